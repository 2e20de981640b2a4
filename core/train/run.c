// SPDX-License-Identifier: Apache-2.0
// Opens what a run needs: loader, device, strategy.
#include "core/graph/layer.h"
#include "core/train/own_parts.h"
#include "core/train/run.h"

#include "core/base/log.h"
#include "core/base/threads.h"
#include "core/base/watchdog.h"
#include "core/collective/communicator.h"
#include "core/plugin/collective.h"
#include "core/plugin/device.h"
#include "core/plugin/strategy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A short deadline is for waits for a peer: preparing and computing may take longer.
#define LEAST_WATCH_NS UINT64_C(3000000000)

static enum ls_status open_device(struct ls_run *run, const char *text)
{
    struct ls_spec spec = {0};
    enum ls_status status = text ? ls_loader_check_device_text(text) : LS_OK;
    if (!status)
        status =
            ls_spec_parse("--device", text ? text : ls_loader_default_device(run->loader), &spec);
    if (status)
        return status;
    status = ls_loader_open(run->loader, LS_KIND_DEVICE, spec.name, spec.options, spec.option_count,
                            &run->device);
    ls_spec_finish(&spec);
    if (status)
        return status;
    const struct ls_device_interface *ops = run->device->interface;
    struct ls_device_info info = {.struct_size = sizeof(info)};
    status = (enum ls_status)ops->describe(run->device->host, &info);
    if (!status) {
        memcpy(run->hardware, info.hardware, sizeof(run->hardware));
        run->devices = info.physical_count ? info.physical_count : 1;
    }
    return status;
}

static enum ls_status add_device(struct ls_run *run, const char *text, const char *part,
                                 size_t length)
{
    char digits[16];
    int64_t number = -1;
    snprintf(digits, sizeof(digits), "%.*s", length < 12 ? (int)length : 12, part);
    if (!ls_parse_integer(digits, &number) || number < 0) {
        ls_error("--devices", "'%s': expected numbers of devices from 0, as in 0,1", text);
        return LS_USAGE;
    }
    if (number >= run->devices) {
        ls_error("--devices", "'%s': there is no %s %lld; this machine has %u, numbered from 0",
                 text, run->device->plugin->name, (long long)number, run->devices);
        return LS_USAGE;
    }
    for (uint32_t i = 0; i < run->chosen_count; i++)
        if (run->chosen[i] == number) {
            ls_error("--devices",
                     "'%s': %lld is given twice; --replicas=N puts several replicas "
                     "on a device",
                     text, (long long)number);
            return LS_USAGE;
        }
    run->chosen[run->chosen_count++] = (uint32_t)number; // fewer than there are, as none is twice
    return LS_OK;
}

// Without a text: all of them, as far as there is room.
static enum ls_status choose_devices(struct ls_run *run, const char *text)
{
    const struct ls_device_interface *ops = run->device->interface;
    enum ls_status status = LS_OK;
    if (run->devices > LS_CHOSEN_DEVICES)
        run->devices = LS_CHOSEN_DEVICES;
    for (uint32_t i = 0; !text && i < run->devices; i++)
        run->chosen[run->chosen_count++] = i;
    if (text && ops->memory_kind == LS_MEMORY_HOST) {
        ls_error("--devices",
                 "'%s': device '%s' is all processors of this machine, which have no numbers; "
                 "--threads=N says how many of them each replica takes",
                 text, run->device->plugin->name);
        return LS_USAGE;
    }
    for (const char *part = text; !status && part;) {
        const size_t length = strcspn(part, ",");
        status = add_device(run, text, part, length);
        part = part[length] ? part + length + 1 : NULL;
    }
    return status;
}

static enum ls_status read_wire(const char *text, uint32_t *out)
{
    static const uint32_t types[] = {0, LS_BF16, LS_F16};
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (!text || strcmp(text, ls_wire_text(types[i])) == 0) {
            *out = types[i];
            return LS_OK;
        }
    ls_error("--wire", "'%s': expected float32, bfloat16 or float16", text);
    return LS_USAGE;
}

static enum ls_status read_options(struct ls_run *run, const struct ls_run_options *options)
{
    run->threads = options->threads;
    const double deadline =
        options->deadline_seconds != 0 ? options->deadline_seconds : LS_DEFAULT_DEADLINE_SECONDS;
    if (!(deadline > 0) || deadline > 1e6) {
        ls_error("--deadline", "%g: expected seconds, above 0 and up to 1000000", deadline);
        return LS_USAGE;
    }
    const char *precision = options->precision;
    run->precision = precision ? ls_precision_find(precision) : LS_PRECISION_OF_FILE;
    if (precision && !run->precision) {
        const bool half = strcmp(precision, "float16") == 0 || strcmp(precision, "bfloat16") == 0;
        ls_error("--precision", "'%s': expected float32, mixed_bfloat16 or mixed_float16%s%s",
                 precision, half ? "; variables stay float32, so it is mixed_" : "",
                 half ? precision : "");
        return LS_USAGE;
    }
    run->deadline_ns = (uint64_t)(deadline * 1e9);
    run->seed = options->seed;
    run->verbose = options->verbose;
    run->progress = options->progress > LS_PROGRESS_LINES
                        ? LS_PROGRESS_LINES
                        : (enum ls_progress_kind)options->progress;
    run->stuck = options->stuck;
    return read_wire(options->wire, &run->wire);
}

// Without a number: every GPU, as far as the strategy takes so many; one on the CPU, which it has for itself.
static enum ls_status open_cluster(struct ls_run *run, uint32_t replicas)
{
    const struct ls_device_interface *device = run->device->interface;
    const struct ls_opened_plugin *named = run->strategy.strategy;
    const uint32_t most =
        named ? ((const struct ls_strategy_interface *)named->interface)->maximum_replicas : 0;
    if (replicas == 0) {
        replicas = device->memory_kind == LS_MEMORY_HOST ? 1 : run->chosen_count;
        if (most && replicas > most)
            replicas = most;
    }
    if (run->threads == 0)
        run->threads = ls_core_count() / replicas;
    if (run->threads == 0)
        run->threads = 1;
    return ls_cluster_open_alone(replicas, &run->cluster);
}

static enum ls_status open_tuning(struct ls_run *run)
{
    const struct ls_device_interface *device = run->device->interface;
    return ls_tuning_open(
        run->loader, run->strategy.collective, run->strategy.transport->plugin->name,
        device->memory_kind == LS_MEMORY_HOST ? LS_TUNING_HOST : run->device->plugin->name,
        ls_cluster_world(run->cluster), &run->tuning);
}

// A strategy that was named is known before the device, which may make more replicas than it takes.
static enum ls_status open_plugins(struct ls_run *run, const struct ls_run_options *options)
{
    enum ls_status status = LS_OK;
    if (options->strategy)
        status = ls_loader_resolve_strategy(run->loader, options->strategy, &run->strategy);
    if (!status)
        status = open_device(run, options->device);
    if (!status)
        status = choose_devices(run, options->devices);
    if (!status)
        status = open_cluster(run, options->replicas);
    if (!status && !options->strategy)
        status = ls_loader_resolve_strategy(
            run->loader, ls_cluster_world(run->cluster) == 1 ? "one-device" : "mirrored",
            &run->strategy);
    if (!status && ls_is_auto(run->strategy.collective))
        status = open_tuning(run);
    return status;
}

enum ls_status ls_open_run(const struct ls_run_options *options, struct ls_run **out)
{
    static const struct ls_run_options defaults;
    struct ls_run *run = calloc(1, sizeof(*run));
    if (!run)
        return LS_OUT_OF_MEMORY;
    if (!options)
        options = &defaults;
    enum ls_status status = read_options(run, options);
    if (!status && run->stuck) {
        status = ls_watchdog_start(
            run->deadline_ns < LEAST_WATCH_NS ? LEAST_WATCH_NS : run->deadline_ns, run->stuck);
        run->watched = !status;
    }
    if (!status)
        status = ls_loader_create(options->plugin_path, &run->loader);
    if (!status)
        status = ls_own_parts_create(run->loader, &run->parts);
    if (!status)
        status = open_plugins(run, options);
    if (status) {
        ls_run_close(run);
        return status;
    }
    *out = run;
    return LS_OK;
}

void ls_run_close(struct ls_run *run)
{
    if (!run)
        return;
    ls_symbols_destroy(run->symbols);
    ls_tuning_close(&run->tuning);
    ls_resolved_strategy_finish(&run->strategy);
    ls_own_parts_destroy(run->parts);
    ls_loader_destroy(run->loader);
    ls_cluster_close(run->cluster);
    if (run->watched)
        ls_watchdog_stop();
    free(run);
}

enum ls_status ls_register(struct ls_run *run, const struct ls_plugin *plugin)
{
    if (plugin && plugin->kind < LS_KIND_CALLBACK) {
        const char *kind = ls_kind_text(plugin->kind);
        ls_error("plugins",
                 "a %s cannot be registered: the run has chosen its own when it was opened; put a "
                 "shared object on the plugin path",
                 kind ? kind : "plugin");
        return LS_USAGE;
    }
    if (plugin && plugin->name && ls_own_part_is_built_in(plugin->kind, plugin->name)) {
        ls_error("plugins", "Lockstep has a %s %s itself; give the program's another name",
                 ls_kind_text(plugin->kind), plugin->name);
        return LS_USAGE;
    }
    return ls_loader_register(run->loader, plugin);
}

uint32_t ls_run_replicas(const struct ls_run *run)
{
    return ls_cluster_world(run->cluster);
}

uint32_t ls_run_is_chief(const struct ls_run *run)
{
    return ls_cluster_first_rank(run->cluster) == 0;
}

void ls_run_interrupt(struct ls_run *run)
{
    atomic_store(&run->interrupted, true);
}

enum ls_status ls_run_end_interruption(struct ls_run *run, enum ls_status status)
{
    if (status == LS_INTERRUPTED)
        atomic_store(&run->interrupted, false);
    return status;
}

void ls_run_library(const struct ls_run *run, char text[static 64])
{
    const struct ls_opened_plugin *collective = run->strategy.collective;
    const struct ls_collective_interface *ops =
        collective && !ls_is_auto(collective) ? collective->interface : NULL;
    memset(text, 0, 64);
    if (ops && ops->about)
        ops->about(text, 64);
}

const char *ls_run_algorithm(const struct ls_run *run, uint64_t bytes)
{
    if (run->tuning.tuner)
        return ls_tuning_name(&run->tuning, LS_ALL_REDUCE, ls_cluster_world(run->cluster),
                              bytes / sizeof(float), sizeof(float));
    return run->strategy.collective ? run->strategy.collective->plugin->name : NULL;
}

uint64_t ls_run_global_batch(const struct ls_run *run, uint64_t batch, uint64_t replica_batch)
{
    if (batch)
        return batch;
    return (replica_batch ? replica_batch : LS_DEFAULT_REPLICA_BATCH) *
           ls_cluster_world(run->cluster);
}
