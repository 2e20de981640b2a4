// SPDX-License-Identifier: Apache-2.0
// The communicators of a driver, and the plans on them. Those of gradients have a plan for each
// bucket. Totals are sums that all replicas add up in the middle of a step (core/graph/program.h),
// as the statistics of a synchronized batch normalization. They have communicators of their own, so
// that they never wait behind the gradients of a bucket, and exist under strategies that reduce
// nothing with a collective, too.
#include "core/strategy/internal.h"

#include "core/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ls_communicator_place *list_places(const struct ls_driver_options *options,
                                                 uint32_t count)
{
    struct ls_communicator_place *places = calloc(count, sizeof(*places));
    for (uint32_t i = 0; places && i < count; i++)
        places[i] = (struct ls_communicator_place){.device = options->parts[i].device};
    return places;
}

// Of all ranks. `on_host`: they work in host memory, wherever the device computes.
enum ls_status ls_driver_open_communicators(const struct ls_driver *driver,
                                            const struct ls_driver_plugin *collective,
                                            const struct ls_driver_plugin *transport,
                                            const char *name, bool on_host,
                                            struct ls_communicator ***out)
{
    const struct ls_driver_options *options = &driver->options;
    struct ls_communicator_place *places = list_places(options, driver->count);
    char unique[64]; // in the job
    snprintf(unique, sizeof(unique), "%s.%u.%u", name, ls_cluster_generation(options->cluster),
             options->number);
    struct ls_communicator_options communicator = {
        .collective = collective->plugin,
        .collective_host = collective->host,
        .collective_text = collective->text,
        .transport = transport->plugin,
        .transport_host = transport->host,
        .world = driver->world,
        .first_rank = driver->first_rank,
        .count = driver->count,
        .deadline_ns = options->deadline_ns,
        .name = unique,
        .hosts = ls_cluster_hosts(options->cluster),
        .around = options->around,
        .places = on_host ? NULL : places,
    };
    if (options->exchange && driver->count < driver->world)
        communicator.exchange = (struct ls_exchange){.call = ls_cluster_exchange,
                                                     .context = options->exchange,
                                                     .check = ls_cluster_exchange_check};
    *out = calloc(driver->count, sizeof(**out));
    const enum ls_status status =
        places && *out ? ls_communicators_open(&communicator, *out) : LS_OUT_OF_MEMORY;
    free(places);
    return status;
}

// ---- Gradients ----

// What a bucket is reduced as, in floats of LS_BUFFER_REDUCED. With a wire, its first `whole`
// floats travel as they are.
static void bucket_parts(const struct ls_driver *driver, uint32_t bucket, uint64_t *first,
                         uint64_t *whole, uint64_t *count)
{
    const uint64_t trained = LS_STEP_STATS + driver->plan->statistics_bytes / sizeof(float);
    ls_buckets_reduced(driver->buckets, bucket, first, count);
    *whole = 0;
    if (driver->options.wire && *first < trained)
        *whole = trained - *first < *count ? trained - *first : *count;
}

// Times the candidates of `auto` for the sizes of the buckets.
static enum ls_status tune(const struct ls_driver *driver, struct ls_tuner *tuner)
{
    uint64_t *counts = calloc(driver->bucket_count + 1, sizeof(*counts));
    if (!counts)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < driver->bucket_count; i++) {
        uint64_t first, whole;
        bucket_parts(driver, i, &first, &whole, &counts[i]);
        counts[i] -= whole;
    }
    const struct ls_tuner_task task = {.operation = LS_ALL_REDUCE,
                                       .dtype = driver->options.shards ? LS_I64 : LS_F32,
                                       .reduction = LS_SUM,
                                       .wire = driver->options.wire,
                                       .counts = counts,
                                       .size_count = driver->bucket_count};
    const enum ls_status status =
        ls_tuner_measure(tuner, &task, driver->communicators, driver->count);
    free(counts);
    return status;
}

enum ls_status ls_driver_open_gradients(struct ls_driver *driver)
{
    const struct ls_driver_options *options = &driver->options;
    const char *name = driver->ops->parameters_ahead ? "variables" : "gradients"; // that travel
    enum ls_status status = ls_driver_open_communicators(
        driver, &options->collective, &options->transport, name, false, &driver->communicators);
    if (!status && options->tuner)
        status = tune(driver, options->tuner);
    for (uint32_t i = 0; !status && i < driver->count; i++)
        driver->members[i].communicator = driver->communicators[i];
    return status;
}

enum ls_status ls_driver_take_memory(struct ls_driver *driver, uint32_t replica,
                                     struct ls_memory *out)
{
    struct ls_driver_member *member = &driver->members[replica];
    const uint64_t bytes = LS_STEP_STATS_BYTES + driver->plan->reduced_bytes;
    *out = (struct ls_memory){NULL, 0};
    if (!member->communicator)
        return LS_OK;
    enum ls_status status = ls_communicator_allocate(member->communicator, bytes, out);
    if (!status && driver->options.wire && !ls_memory_is_null(*out))
        status = ls_communicator_allocate(member->communicator, bytes / sizeof(float) * 2,
                                          &member->halves);
    return status;
}

struct ls_memory ls_driver_halves(const struct ls_driver_member *member, struct ls_memory reduced)
{
    const struct ls_memory all = ls_replica_memory(member->replica, LS_BUFFER_REDUCED);
    return ls_memory_is_null(member->halves)
               ? member->halves
               : ls_memory_at(member->halves, (reduced.offset - all.offset) / sizeof(float) * 2);
}

static enum ls_status create_bucket_plans(struct ls_driver *driver, struct ls_driver_member *member,
                                          uint32_t bucket)
{
    const struct ls_memory reduced =
        ls_replica_bucket_memory(member->replica, LS_BUFFER_REDUCED, bucket);
    uint64_t first, whole, count;
    bucket_parts(driver, bucket, &first, &whole, &count);
    struct ls_communicator_call call = {.operation = LS_ALL_REDUCE,
                                        .dtype = LS_F32,
                                        .reduction = LS_SUM,
                                        .buffer = reduced,
                                        .count = whole};
    char label[32];
    enum ls_status status = LS_OK;
    snprintf(label, sizeof(label), "statistics of bucket %u", bucket);
    if (whole)
        status =
            ls_collective_plan_open(member->communicator, &call, label, &member->whole[bucket]);
    if (status || whole == count)
        return status;
    call.buffer = ls_memory_at(reduced, whole * sizeof(float));
    call.count = count - whole;
    call.wire = driver->options.wire;
    call.halves = ls_driver_halves(member, call.buffer);
    call.keeps_infinite = ls_optimizer_scales(&driver->optimizer); // such a step is skipped
    snprintf(label, sizeof(label), "bucket %u", bucket);
    return ls_collective_plan_open(member->communicator, &call, label, &member->reduce[bucket]);
}

static enum ls_status create_counts_plan(struct ls_driver_member *member)
{
    const struct ls_communicator_call call = {
        .operation = LS_ALL_REDUCE,
        .dtype = LS_F32,
        .reduction = LS_SUM,
        .buffer = ls_replica_memory(member->replica, LS_BUFFER_COUNTS),
        .count = ls_replica_count_slots(member->replica)};
    return call.count ? ls_collective_plan_open(member->communicator, &call, "counts of metrics",
                                                &member->counts)
                      : LS_OK;
}

static enum ls_status create_plans(struct ls_driver *driver, uint32_t index)
{
    enum ls_status status = ls_driver_attach_filter(driver, index);
    for (uint32_t i = 0; !status && i < driver->bucket_count; i++)
        if (ls_driver_reduces_plain(&driver->members[index], i))
            status = create_bucket_plans(driver, &driver->members[index], i);
    if (!status && driver->options.whole_steps)
        status = create_counts_plan(&driver->members[index]);
    return status;
}

enum ls_status ls_driver_attach_gradients(struct ls_driver *driver)
{
    enum ls_status status = LS_OK;
    if (driver->options.shards) // integers travel instead
        return LS_OK;
    for (uint32_t i = 0; !status && driver->communicators && i < driver->count; i++)
        status = create_plans(driver, i);
    return status;
}

// ---- Totals ----

// The layer of the first total.
static const char *layer_of(const struct ls_driver *driver)
{
    return driver->plan->totals[0].tensor->name;
}

// Every replica takes part in each step, and each gradient is one of the global batch.
static enum ls_status check_strategy(const struct ls_driver *driver)
{
    if (driver->traits.divisor == LS_DIVISOR_GLOBAL)
        return LS_OK;
    ls_error("--strategy",
             "strategy '%s' with these options lets replicas make steps of their own, but layer "
             "'%s' normalizes by the statistics of all of them (synchronized); take mirrored, "
             "central-storage or parameter-server:mode=sync, or set synchronized to false",
             ls_driver_name(driver), layer_of(driver));
    return LS_USAGE;
}

static enum ls_status check_transport(const struct ls_driver *driver,
                                      const struct ls_driver_plugin *collective,
                                      const struct ls_driver_plugin *transport)
{
    const struct ls_transport_interface *interface = transport->interface;
    const uint32_t kind = ls_collective_memory(
        collective->interface, ls_device_interface(driver->options.parts[0].device)->memory_kind);
    if (!interface || interface->memory_kinds >> kind & 1)
        return LS_OK;
    ls_error("--strategy",
             "layer '%s' adds up statistics in the device's memory (synchronized), which transport "
             "'%s' cannot reach; take transport local, or set synchronized to false",
             layer_of(driver), transport->plugin->name);
    return LS_UNAVAILABLE;
}

enum ls_status ls_driver_open_totals(struct ls_driver *driver)
{
    const struct ls_driver_options *options = &driver->options;
    struct ls_driver_plugin collective = options->collective, transport = options->transport;
    if (driver->plan->total_count == 0 || driver->world < 2)
        return LS_OK;
    // A replica that makes steps of its own has a batch of its own, of which a mask leaves something.
    if (driver->plan->totals[0].of_mask && driver->traits.divisor != LS_DIVISOR_GLOBAL)
        return LS_OK;
    enum ls_status status = check_strategy(driver);
    if (!status && !collective.plugin)
        status = options->total_plugins(options->context, &collective, &transport);
    if (!status)
        status = check_transport(driver, &collective, &transport);
    if (!status)
        status = ls_driver_open_communicators(driver, &collective, &transport, "statistics", false,
                                              &driver->total_communicators);
    for (uint32_t i = 0; !status && i < driver->count; i++)
        driver->members[i].total_communicator = driver->total_communicators[i];
    if (status)
        return status;
    driver->total_collective = collective.plugin->name;
    driver->total_transport = transport.plugin ? transport.plugin->name : NULL;
    return LS_OK;
}

// "bn_1", or "bn_1 backward"
static enum ls_status create_plan(struct ls_driver *driver, uint32_t index, uint32_t number)
{
    struct ls_driver_member *member = &driver->members[index];
    const struct ls_total *total = &driver->plan->totals[number];
    const struct ls_memory totals = ls_replica_memory(member->replica, LS_BUFFER_TOTALS);
    const bool placed = !ls_memory_is_null(member->total_places);
    char label[64];
    snprintf(label, sizeof(label), "%.40s%s", total->tensor->name,
             total->tensor->gradient_of ? " backward" : "");
    return ls_collective_plan_create(member->total_communicator, LS_ALL_REDUCE,
                                     placed ? member->total_places
                                            : ls_memory_at(totals, total->offset),
                                     placed ? driver->world * total->count : total->count, LS_F64,
                                     LS_SUM, 0, label, &member->totals[number]);
}

static enum ls_status take_places(const struct ls_driver *driver, struct ls_driver_member *member)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < driver->plan->total_count; i++)
        most = driver->plan->totals[i].count > most ? driver->plan->totals[i].count : most;
    member->total_places = ls_device_allocate(ls_replica_device(member->replica),
                                              driver->world * most * sizeof(double));
    return ls_memory_is_null(member->total_places) ? LS_OUT_OF_MEMORY : LS_OK;
}

enum ls_status ls_driver_attach_totals(struct ls_driver *driver)
{
    const uint32_t count = driver->plan->total_count;
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && driver->total_communicators && i < driver->count; i++) {
        struct ls_driver_member *member = &driver->members[i];
        member->totals = calloc(count, sizeof(struct ls_collective_plan *));
        status = member->totals ? LS_OK : LS_OUT_OF_MEMORY;
        if (!status && driver->options.shards)
            status = take_places(driver, member);
        for (uint32_t k = 0; !status && k < count; k++)
            status = create_plan(driver, i, k);
    }
    return status;
}

// With logical shards each replica has one (reproducible.c). A collective then gets each total at a
// place of its rank among zeros, which rounds nothing, and the places are added in one order.
enum ls_status ls_driver_add_total(struct ls_driver_member *member, uint32_t number)
{
    const struct ls_driver *driver = member->driver;
    const struct ls_total *total = &driver->plan->totals[number];
    const uint32_t rank = driver->first_rank + member->index;
    const bool placed = !ls_memory_is_null(member->total_places);
    double *own = NULL, *places = NULL;
    if (placed) {
        own = ls_address(
            ls_memory_at(ls_replica_memory(member->replica, LS_BUFFER_TOTALS), total->offset));
        places = ls_address(member->total_places);
        memset(places, 0, driver->world * total->count * sizeof(*places));
        memcpy(places + rank * total->count, own, total->count * sizeof(*own));
    }
    enum ls_status status = ls_collective_start(member->totals[number]);
    if (!status)
        status = ls_collective_wait(member->totals[number]);
    if (status || !placed)
        return status;
    memcpy(own, places, total->count * sizeof(*own));
    for (uint32_t i = 1; i < driver->world; i++)
        for (uint64_t k = 0; k < total->count; k++)
            own[k] += places[i * total->count + k];
    return LS_OK;
}

void ls_driver_close_totals(struct ls_driver *driver)
{
    for (uint32_t i = 0; driver->members && i < driver->count; i++) {
        struct ls_driver_member *member = &driver->members[i];
        for (uint32_t k = 0; member->totals && k < driver->plan->total_count; k++)
            ls_collective_plan_destroy(member->totals[k]);
        free(member->totals);
        member->totals = NULL;
        if (!ls_memory_is_null(member->total_places))
            ls_device_release(ls_replica_device(member->replica), member->total_places);
        member->total_places = (struct ls_memory){NULL, 0};
    }
    if (driver->total_communicators)
        ls_communicators_close(driver->total_communicators, driver->count);
    free(driver->total_communicators);
    driver->total_communicators = NULL;
}

// ---- All of them ----

// Nothing is reduced by a collective that was not checked.
enum ls_status ls_driver_try_collectives(const struct ls_driver_member *member)
{
    const struct ls_driver *driver = member->driver;
    enum ls_status status =
        member->magnitudes ? ls_collective_known_answer(member->magnitudes) : LS_OK;
    for (uint32_t i = 0; !status && i < driver->bucket_count; i++) {
        if (member->whole[i])
            status = ls_collective_known_answer(member->whole[i]);
        if (!status && member->reduce[i])
            status = ls_collective_known_answer(member->reduce[i]);
    }
    if (!status && member->counts)
        status = ls_collective_known_answer(member->counts);
    if (!status && member->norm)
        status = ls_collective_known_answer(member->norm);
    if (!status)
        status = ls_driver_try_filter(member);
    for (uint32_t i = 0; !status && member->totals && i < driver->plan->total_count; i++)
        status = ls_collective_known_answer(member->totals[i]);
    return status;
}

// All replicas have left their steps. What they had under way together ends, or is aborted.
void ls_driver_end_communicators(struct ls_driver *driver)
{
    for (uint32_t i = 0; driver->communicators && i < driver->count; i++)
        if (driver->communicators[i])
            ls_communicator_end(driver->communicators[i]);
    for (uint32_t i = 0; driver->total_communicators && i < driver->count; i++)
        if (driver->total_communicators[i])
            ls_communicator_end(driver->total_communicators[i]);
    for (uint32_t i = 0; driver->integer_communicators && i < driver->count; i++)
        if (driver->integer_communicators[i])
            ls_communicator_end(driver->integer_communicators[i]);
}

bool ls_driver_lost(const struct ls_driver *driver, uint32_t *rank)
{
    return (driver->communicators && ls_communicator_lost(driver->communicators[0], rank)) ||
           (driver->total_communicators &&
            ls_communicator_lost(driver->total_communicators[0], rank)) ||
           (driver->integer_communicators &&
            ls_communicator_lost(driver->integer_communicators[0], rank));
}

// ---- For the report ----

const char *ls_driver_schedule_check(const struct ls_driver *driver, double *seconds)
{
    const struct ls_communicator *first = driver->communicators ? driver->communicators[0] : NULL;
    if (seconds)
        *seconds = first ? (double)ls_communicator_check_ns(first) * 1e-9 : 0;
    return ls_schedule_check_text(first ? ls_communicator_check(first) : LS_CHECK_NONE);
}

uint64_t ls_driver_bytes_per_step(const struct ls_driver *driver)
{
    const struct ls_driver_member *first = &driver->members[0];
    const bool ranges = first->collectives && !first->asked; // these are counted in steps
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < driver->bucket_count && !ranges; i++) {
        if (ls_driver_filtered(first, i)) {
            bytes += ls_driver_filtered_bytes(ls_driver_filtered(first, i));
            continue;
        }
        if (first->whole[i])
            bytes += ls_collective_plan_bytes(first->whole[i]);
        if (first->reduce[i]) // else the driver could not be attached
            bytes += ls_collective_plan_bytes(first->reduce[i]);
    }
    if (first->counts)
        bytes += ls_collective_plan_bytes(first->counts);
    if (first->magnitudes)
        bytes += ls_collective_plan_bytes(first->magnitudes);
    if (first->norm)
        bytes += ls_collective_plan_bytes(first->norm);
    return bytes + (first->all_steps ? first->all_bytes / first->all_steps : 0);
}

static uint64_t total_bytes(const struct ls_driver *driver)
{
    const struct ls_driver_member *first = &driver->members[0];
    uint64_t bytes = 0;
    for (uint32_t i = 0; first->totals && i < driver->plan->total_count; i++)
        if (first->totals[i]) // else the driver could not be attached
            bytes += ls_collective_plan_bytes(first->totals[i]);
    return bytes;
}

struct ls_driver_totals ls_driver_totals(const struct ls_driver *driver)
{
    return (struct ls_driver_totals){.collective = driver->total_collective,
                                     .transport = driver->total_transport,
                                     .count = driver->plan->total_count,
                                     .bytes = total_bytes(driver)};
}
