// SPDX-License-Identifier: Apache-2.0
// Opens what a run needs: loader, device, strategy.
#include "core/graph/layer.h"
#include "core/run/own_parts.h"
#include "core/run/run.h"
#include "core/run/workers.h"

#include "core/base/log.h"
#include "core/base/plain_locale.h"
#include "core/base/threads.h"
#include "core/base/watchdog.h"
#include "core/wire/secret.h"
#include "core/collective/communicator.h"
#include "core/collective/route.h"
#include "core/data/stream.h"
#include "core/plugin/collective.h"
#include "core/plugin/device.h"
#include "core/plugin/strategy.h"
#include "core/replica/replica.h"
#include "core/report/made.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A short deadline is for waits for a peer: preparing and computing may take longer.
#define LEAST_WATCH_NS UINT64_C(3000000000)

#define CPU "cpu" // which has all operations, and computes in host memory

static enum ls_status open_device(struct ls_run *run, const char *text)
{
    struct ls_spec spec = {0};
    enum ls_status status = ls_loader_check_device_text(text);
    if (!status)
        status = ls_spec_parse("--device", text, &spec);
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

// Numbers of devices are for the one that has them.
static enum ls_status open_some_device(struct ls_run *run, const struct ls_run_options *options)
{
    const char *meant = options->strategy ? ls_strategy_device(options->strategy) : NULL;
    if (options->device || meant)
        return open_device(run, options->device ? options->device : meant);
    const char *name = ls_loader_default_device(run->loader);
    run->by_default = strcmp(name, CPU) != 0 && !options->devices;
    return open_device(run, name);
}

// Survivors go on from parameters that no step has touched in part. A device that computes beside
// its thread has updates queued behind a reduction that a lost worker ends halfway.
static enum ls_status check_elastic(const struct ls_run *run, const char *text)
{
    const struct ls_device_interface *ops = run->device->interface;
    if (!text || ops->memory_kind == LS_MEMORY_HOST)
        return LS_OK;
    ls_error("--elastic",
             "'%s': device '%s' has steps under way that cannot be taken back when a worker is "
             "lost; leave --elastic out, and go on from --checkpoint-dir with --resume",
             text, run->device->plugin->name);
    return LS_USAGE;
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

// "MIN:MAX"
static enum ls_status read_elastic(struct ls_run *run, const char *text)
{
    unsigned least = 0, most = 0;
    int length = 0;
    if (!text)
        return LS_OK;
    if (sscanf(text, "%5u:%5u%n", &least, &most, &length) != 2 || text[length] || !least ||
        least > most || most > LS_MOST_WORKERS) {
        ls_error("--elastic", "'%s': expected MIN:MAX, numbers of workers, as in 2:8", text);
        return LS_USAGE;
    }
    run->least_workers = least;
    run->most_workers = most;
    return LS_OK;
}

// "W[,W...]". Whose they are is known when the workers have met.
static enum ls_status read_share(struct ls_run *run, const char *text)
{
    uint32_t count = 0;
    if (!text)
        return LS_OK;
    run->share_groups = calloc(strlen(text) + 1, sizeof(*run->share_groups));
    if (!run->share_groups)
        return LS_OUT_OF_MEMORY;
    for (const char *part = text; part;) {
        const size_t length = strcspn(part, ",");
        char digits[16];
        int64_t weight = 0;
        snprintf(digits, sizeof(digits), "%.*s", length < 12 ? (int)length : 12, part);
        if (!ls_parse_integer(digits, &weight) || weight < 1 || weight > LS_MOST_SHARE_WEIGHT) {
            ls_error("--share",
                     "'%s': '%s' is no weight; expected whole numbers from 1 to %d, one for each "
                     "worker, as in 2,1",
                     text, digits, LS_MOST_SHARE_WEIGHT);
            return LS_USAGE;
        }
        run->share_groups[count++].weight = (uint32_t)weight;
        part = part[length] ? part + length + 1 : NULL;
    }
    run->share_group_count = count;
    return LS_OK;
}

// A weight is that of a worker; in a process alone, that of a replica. Where the replicas come out
// alike, the batch is divided as it is without weights.
static enum ls_status assign_shares(struct ls_run *run)
{
    struct ls_share_group *groups = run->share_groups;
    const uint32_t workers = ls_cluster_workers(run->workers.cluster),
                   count = run->share_group_count;
    const uint32_t world = ls_cluster_world(run->workers.cluster);
    const uint32_t *owners = ls_cluster_rank_workers(run->workers.cluster);
    const uint32_t takers = workers > 1 ? workers : world;
    if (!count)
        return LS_OK;
    if (count != takers) {
        ls_error("--share", "%u weight%s, but %u %s%s; give one weight for each", count,
                 count == 1 ? "" : "s", takers, workers > 1 ? "worker" : "replica",
                 takers == 1 ? "" : "s");
        return LS_USAGE;
    }
    for (uint32_t rank = 0; rank < world; rank++)
        groups[workers > 1 ? owners[rank] : rank].ranks++;
    bool alike = true;
    for (uint32_t i = 1; i < count; i++)
        alike = alike && (uint64_t)groups[i].weight * groups[0].ranks ==
                             (uint64_t)groups[0].weight * groups[i].ranks;
    if (alike)
        run->share_group_count = 0;
    return LS_OK;
}

// What would change bits with the number of replicas, or shares the batch otherwise.
static enum ls_status read_reproducible(struct ls_run *run, const struct ls_run_options *options)
{
    if (!options->reproducible)
        return LS_OK;
    if (options->reproducible > LS_MOST_SHARDS) {
        ls_error("--reproducible", "%u: expected 1 to %d logical shards of a batch",
                 options->reproducible, LS_MOST_SHARDS);
        return LS_USAGE;
    }
    if (run->wire) {
        ls_error("--reproducible", "--wire rounds what replicas send; leave one of both out");
        return LS_USAGE;
    }
    run->shards = options->reproducible;
    if (!run->threads) // kernels may add in another order with another number
        run->threads = 1;
    return LS_OK;
}

enum ls_status ls_run_check_shards(const struct ls_run *run)
{
    const uint32_t world = ls_cluster_world(run->workers.cluster);
    if (!run->shards)
        return LS_OK;
    if (run->workers.served.servers) {
        ls_error(
            "--reproducible",
            "workers with server processes make steps of their own, whose order is another one "
            "in every run; leave --servers out");
        return LS_USAGE;
    }
    if (run->share_group_count) {
        ls_error("--reproducible",
                 "--share gives replicas unequal parts of a batch; leave one of both out");
        return LS_USAGE;
    }
    if (world <= run->shards)
        return LS_OK;
    char more[48] = "";
    if (world <= LS_MOST_SHARDS)
        snprintf(more, sizeof(more), ", or begin with --reproducible=%u", world);
    const char *one = run->shards == 1 ? "" : "s";
    if (run->most_workers)
        ls_error("--reproducible",
                 "%u logical shard%s %s too few for the %u replicas that there are with this "
                 "worker; give --elastic=MIN:MAX a lower MAX%s",
                 run->shards, one, run->shards == 1 ? "is" : "are", world, more);
    else
        ls_error("--reproducible",
                 "%u logical shard%s %s too few for %u replicas; use at most %u replica%s%s",
                 run->shards, one, run->shards == 1 ? "is" : "are", world, run->shards, one, more);
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
    if (options->silence_seconds != 0 &&
        !(options->silence_seconds >= 1 && options->silence_seconds <= 1e6)) {
        ls_error("--lost-after", "%g: expected 1 second or more", options->silence_seconds);
        return LS_USAGE;
    }
    if (!(options->join_seconds >= 0) || options->join_seconds > 1e6) {
        ls_error("--join-deadline", "%g: expected seconds, above 0 and up to 1000000",
                 options->join_seconds);
        return LS_USAGE;
    }
    run->silence_ns = (uint64_t)(options->silence_seconds * 1e9);
    run->insecure = options->insecure;
    run->strategy_text = options->strategy ? strdup(options->strategy) : NULL;
    run->network = options->network ? strdup(options->network) : NULL;
    if ((options->strategy && !run->strategy_text) || (options->network && !run->network))
        return LS_OUT_OF_MEMORY;
    const enum ls_status elastic = read_elastic(run, options->elastic);
    if (elastic)
        return elastic;
    const enum ls_status share = read_share(run, options->share);
    if (share)
        return share;
    if (options->share && options->elastic) {
        ls_error("--share",
                 "'%s': an elastic training has no fixed number of workers that weights could be "
                 "for; leave out --share or --elastic",
                 options->share);
        return LS_USAGE;
    }
    if (options->topology && options->elastic) {
        ls_error("--topology",
                 "'%s': an elastic training has no fixed number of ranks that a topology could be "
                 "for; leave out --topology or --elastic",
                 options->topology);
        return LS_USAGE;
    }
    run->seed = options->seed;
    run->verbose = options->verbose;
    run->progress = options->progress > LS_PROGRESS_LINES
                        ? LS_PROGRESS_LINES
                        : (enum ls_progress_kind)options->progress;
    run->chief_progress = run->progress;
    run->stuck = options->stuck;
    const enum ls_status wire = read_wire(options->wire, &run->wire);
    return wire ? wire : read_reproducible(run, options);
}

// Several workers of a host share its GPUs, the first ones take what is left over: each those of
// its place, unless it was told which. More workers than GPUs take them in turn.
static void share_devices(struct ls_run *run, const char *chosen)
{
    const struct ls_device_interface *device = run->device->interface;
    const struct ls_worker_place *place =
        run->workers.served.servers ? &run->workers.served : &run->workers.place;
    uint64_t first = 0, count = 1;
    if (chosen || device->memory_kind == LS_MEMORY_HOST || place->workers == 1 ||
        place->local_workers < 2)
        return;
    if (run->devices < place->local_workers)
        first = place->local_worker % run->devices;
    else
        ls_share(&(struct ls_shares){.world = place->local_workers}, run->devices, 1,
                 place->local_worker, &first, &count);
    run->chosen_count = (uint32_t)count;
    for (uint32_t i = 0; i < run->chosen_count; i++)
        run->chosen[i] = (uint32_t)first + i;
    ls_debug("cluster",
             "worker %u takes %u of %u devices, from number %u: it is %u of %u on this host",
             place->number, run->chosen_count, run->devices, run->chosen[0], place->local_worker,
             place->local_workers);
}

// The replicas of all workers on this host.
static uint32_t count_neighbours(const struct ls_run *run)
{
    const uint32_t *hosts = ls_cluster_hosts(run->workers.cluster);
    const uint32_t own = hosts[ls_cluster_first_rank(run->workers.cluster)];
    uint32_t count = 0;
    for (uint32_t i = 0; i < ls_cluster_world(run->workers.cluster); i++)
        count += hosts[i] == own;
    return count;
}

// Without a number: every GPU, as far as the strategy takes so many; one on the CPU, which it has
// for itself.
static uint32_t count_replicas(const struct ls_run *run, const struct ls_run_options *options)
{
    const struct ls_device_interface *device = run->device->interface;
    const struct ls_opened_plugin *named = run->strategy.strategy;
    const uint32_t most =
        named ? ((const struct ls_strategy_interface *)named->interface)->maximum_replicas : 0;
    const uint32_t all = device->memory_kind == LS_MEMORY_HOST ? 1 : run->chosen_count;
    if (options->replicas)
        return options->replicas;
    return most && all > most ? most : all;
}

static enum ls_status open_cluster(struct ls_run *run, const struct ls_run_options *options)
{
    enum ls_status status = ls_run_topology_check_device(&run->topology, run->device);
    if (!status)
        status = ls_workers_join(run, options, count_replicas(run, options));
    if (!status)
        status = ls_run_topology_fit(&run->topology, run->workers.cluster);
    if (!status)
        status = assign_shares(run);
    if (!status)
        status = ls_run_check_shards(run);
    if (status)
        return status;
    const uint32_t others =
        run->workers.served.local_workers > 1 ? run->workers.served.local_workers : 1;
    if (run->threads == 0)
        run->threads = ls_core_count() / (count_neighbours(run) * others);
    if (run->threads == 0)
        run->threads = 1;
    return LS_OK;
}

static enum ls_status open_tuning(struct ls_run *run)
{
    const struct ls_device_interface *device = run->device->interface;
    if (run->most_workers) {
        ls_error(
            "--elastic",
            "the strategy has collective auto, which chooses for the workers of the beginning; "
            "name a collective, such as ring");
        return LS_USAGE;
    }
    const enum ls_status status = ls_tuning_open(
        run->loader, run->strategy.collective, run->strategy.transport->plugin->name,
        device->memory_kind == LS_MEMORY_HOST ? LS_TUNING_HOST : run->device->plugin->name,
        ls_cluster_world(run->workers.cluster),
        run->topology.around.hosts ? run->topology.around.hosts
                                   : ls_cluster_hosts(run->workers.cluster),
        &run->tuning);
    return status ? status : ls_workers_agree_on_tuning(run, &run->tuning);
}

static enum ls_status open_strategy(struct ls_run *run, const char *transport)
{
    const bool many = run->workers.place.workers > 1;
    const struct ls_device_interface *device = run->device ? run->device->interface : NULL;
    const struct ls_strategy_setting setting = {
        .strategy = many ? "multi-worker-mirrored" : NULL,
        .collective = !many                                             ? NULL
                      : device && device->memory_kind == LS_MEMORY_CUDA ? "nccl"
                                                                        : "ring",
        .transport = transport,
        .network = run->insecure ? "insecure" : run->network,
        .workers = run->workers.place.workers,
    };
    const char *text = run->strategy_text;
    if (!text)
        text = run->workers.served.servers                   ? "parameter-server"
               : many                                        ? "multi-worker-mirrored"
               : ls_cluster_world(run->workers.cluster) == 1 ? "one-device"
                                                             : "mirrored";
    return ls_loader_resolve_strategy(run->loader, text, &setting, &run->strategy);
}

// Of workers on several hosts some share one: both transports, each where it can.
static enum ls_status mix_transports(struct ls_run *run)
{
    const enum ls_status status =
        ls_mixed_transport_open(run->loader, run->strategy.transport, &run->mixed);
    if (!status)
        run->strategy.transport = &run->mixed.opened;
    return status;
}

// Which workers share a host is known when they have met; until then they are taken to do.
static enum ls_status correct_transport(struct ls_run *run)
{
    const enum ls_route_choice choice = ls_route_choose(ls_cluster_hosts(run->workers.cluster),
                                                        ls_cluster_world(run->workers.cluster),
                                                        ls_cluster_count(run->workers.cluster));
    const enum ls_route_choice needed = choice < LS_ROUTE_HOST ? LS_ROUTE_HOST : choice;
    if (!run->strategy.transport || run->strategy.transport_named || needed == run->route_choice)
        return LS_OK;
    ls_mixed_transport_close(&run->mixed);
    ls_resolved_strategy_finish(&run->strategy);
    run->route_choice = needed;
    const enum ls_status status =
        open_strategy(run, needed == LS_ROUTE_HOST ? LS_NEAR_TRANSPORT : LS_FAR_TRANSPORT);
    return status || needed != LS_ROUTE_BOTH ? status : mix_transports(run);
}

static void follow_chief(struct ls_run *run)
{
    const bool chief = ls_run_is_chief(run); // what the chief says is true of all
    run->progress = chief ? run->chief_progress : LS_PROGRESS_NONE;
    if (chief && run->chief_progress && ls_log_level() == LS_LOG_WARN)
        ls_log_set_level(LS_LOG_INFO);
    else if (!chief && ls_log_level() == LS_LOG_INFO)
        ls_log_set_level(LS_LOG_WARN);
}

enum ls_status ls_run_follow_workers(struct ls_run *run)
{
    follow_chief(run);
    return correct_transport(run);
}

// ---- A device that nobody named ----

// Why the device cannot do what the options want, "has memory of its own, ..."; "": it can.
static void find_lack(const struct ls_run *run, const struct ls_run_options *options,
                      char lack[static LS_LACK_BYTES])
{
    const struct ls_device_interface *device = run->device->interface;
    const struct ls_resolved_strategy *strategy = &run->strategy;
    const struct ls_strategy_interface *ops =
        strategy->strategy ? strategy->strategy->interface : NULL;
    const struct ls_transport_interface *transport =
        strategy->transport ? strategy->transport->interface : NULL;
    const struct ls_collective_interface *collective = NULL;
    if (strategy->collective && !ls_is_auto(strategy->collective))
        collective = strategy->collective->interface;
    const bool several = run->workers.place.workers > 1 || count_replicas(run, options) > 1;
    const bool adds = several && ops && ops->needs_collective; // gradients, in the device's memory
    const char *blind = NULL;
    if (adds && transport && !(transport->memory_kinds >> device->memory_kind & 1))
        blind = strategy->transport->plugin->name;
    else if (adds && collective && !collective->build_schedule &&
             !(collective->memory_kinds >> device->memory_kind & 1))
        blind = strategy->collective->plugin->name;
    if (options->elastic)
        snprintf(lack, LS_LACK_BYTES,
                 "has steps under way that --elastic could not take back when a worker is lost");
    else if (run->shards) // bits depend on the device, and strategies on what it has
        snprintf(lack, LS_LACK_BYTES,
                 "has other bits, so --reproducible takes it where it is named");
    else if (several && run->filter)
        snprintf(lack, LS_LACK_BYTES, "sends gradients as they are, whatever --compress says");
    else if (several && run->wire && (!collective || collective->build_schedule))
        snprintf(lack, LS_LACK_BYTES, "sends gradients as they are, whatever --wire says");
    else if (blind)
        snprintf(lack, LS_LACK_BYTES, "has memory of its own, which '%s' does not reach", blind);
    else
        *lack = '\0';
}

// What the strategy is made of may depend on the device.
static enum ls_status open_strategy_anew(struct ls_run *run)
{
    const bool many = run->workers.place.workers > 1;
    ls_tuning_close(&run->tuning);
    ls_mixed_transport_close(&run->mixed);
    ls_resolved_strategy_finish(&run->strategy);
    run->route_choice = LS_ROUTE_HOST;
    enum ls_status status = open_strategy(run, many ? LS_NEAR_TRANSPORT : NULL);
    if (!status && many && run->workers.cluster)
        status = correct_transport(run);
    if (!status && run->workers.cluster && ls_is_auto(run->strategy.collective))
        status = open_tuning(run);
    return status;
}

// Replicas update their parameters each by itself: another instruction set rounds otherwise.
static enum ls_status compare_hardware(struct ls_run *run)
{
    struct ls_worker_item item = {.name = "the instruction set (ONEDNN_MAX_CPU_ISA lowers it)"};
    const char *arithmetic = strrchr(run->hardware, '(');
    snprintf(item.value, sizeof(item.value), "%s", arithmetic ? arithmetic : run->hardware);
    return ls_workers_agree(run, &item, 1);
}

enum ls_status ls_run_take_cpu(struct ls_run *run, const char *lacks)
{
    const struct ls_worker_place *place =
        run->workers.served.servers ? &run->workers.served : &run->workers.place;
    char replicas[24] = ""; // as many as there are already
    if (run->workers.cluster && ls_cluster_count(run->workers.cluster) > 1)
        snprintf(replicas, sizeof(replicas), " --replicas=%u",
                 ls_cluster_count(run->workers.cluster));
    if (run->workers.cluster ? ls_run_is_chief(run) : place->number == 0)
        ls_warn("--device", CPU ", because %s %s; --device=" CPU "%s chooses it without this line",
                run->device->plugin->name, lacks, replicas);
    run->by_default = false;
    run->chosen_count = 1;
    run->chosen[0] = 0;
    enum ls_status status = open_device(run, CPU);
    if (!status && run->strategy.strategy)
        status = open_strategy_anew(run);
    return status || !run->workers.cluster ? status : compare_hardware(run);
}

// Among workers the strategy is made for the device. Its library may be missing.
static enum ls_status open_workers_strategy(struct ls_run *run)
{
    char *error = NULL, **before = NULL;
    if (!run->by_default)
        return open_strategy(run, LS_NEAR_TRANSPORT);
    before = ls_log_keep(&error);
    enum ls_status status = open_strategy(run, LS_NEAR_TRANSPORT);
    ls_log_keep(before);
    if (status != LS_UNAVAILABLE) {
        ls_log_write_kept(&error);
        return status;
    }
    free(error); // that of the cpu's strategy is said
    status = ls_run_take_cpu(run, "has no collective here that several workers could use");
    return status ? status : open_strategy(run, LS_NEAR_TRANSPORT);
}

// Whoever names a collective expects replicas; on the CPU nothing says how many.
static void say_alone(const struct ls_run *run, const struct ls_run_options *options)
{
    const struct ls_device_interface *device = run->device->interface;
    const struct ls_strategy_interface *ops = run->strategy.strategy->interface;
    if (options->strategy && !options->replicas && ops->needs_collective &&
        !run->workers.served.servers && ls_cluster_world(run->workers.cluster) == 1 &&
        device->memory_kind == LS_MEMORY_HOST)
        ls_info("run",
                "one replica runs, so --strategy=%s has nothing to add up; --replicas=2 trains "
                "with two",
                options->strategy);
}

// A device with memory of its own has its own threads, too.
static void say_threads(const struct ls_run *run, const struct ls_run_options *options)
{
    const struct ls_device_interface *device = run->device->interface;
    if (options->threads && device->memory_kind != LS_MEMORY_HOST && ls_run_is_chief(run))
        ls_info("run", "--threads=%u has no effect on device '%s', which has threads of its own",
                options->threads, run->device->plugin->name);
}

// A strategy that was named is known before the device, which may make more replicas than it takes;
// and all that can be wrong here is said before the workers wait for each other.
static enum ls_status open_plugins(struct ls_run *run, const struct ls_run_options *options)
{
    enum ls_status status = ls_workers_resolve(run, options);
    const bool many = run->workers.place.workers > 1;
    if (!status && ls_run_is_server(run)) { // which has neither a device of its own nor replicas
        status = open_strategy(run, NULL);
        return status ? status : ls_workers_stay_alone(run);
    }
    if (!status && options->strategy && !many)
        status = open_strategy(run, NULL);
    if (!status)
        status = open_some_device(run, options);
    if (!status && !run->by_default)
        status = check_elastic(run, options->elastic);
    if (!status)
        status = choose_devices(run, options->devices);
    if (!status)
        share_devices(run, options->devices);
    if (!status && many)
        status = open_workers_strategy(run);
    char lack[LS_LACK_BYTES];
    if (!status && run->by_default) {
        find_lack(run, options, lack);
        status = *lack ? ls_run_take_cpu(run, lack) : LS_OK;
    }
    if (!status)
        status = open_cluster(run, options);
    if (!status && many)
        status = correct_transport(run);
    if (!status && !options->strategy && !many)
        status = open_strategy(run, NULL);
    if (!status && ls_is_auto(run->strategy.collective))
        status = open_tuning(run);
    if (!status)
        say_alone(run, options);
    if (!status)
        say_threads(run, options);
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
    if (options->command_line)
        ls_made_set_command_line(options->command_line);
    ls_workers_init(run);
    run->route_choice = LS_ROUTE_HOST;
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
    if (!status && options->compress && !(run->compress = strdup(options->compress)))
        status = LS_OUT_OF_MEMORY;
    if (!status && options->compress)
        status = ls_loader_open_text(run->loader, "--compress", LS_KIND_FILTER, options->compress,
                                     &run->filter);
    if (!status)
        status = ls_run_topology_read(options->topology, &run->topology);
    if (!status)
        status = open_plugins(run, options);
    if (status) {
        ls_run_close(run);
        return status;
    }
    if (!ls_run_is_chief(run))
        run->verbose = false;
    if (run->workers.place.workers > 1 || run->workers.served.servers)
        follow_chief(run);
    *out = run;
    return LS_OK;
}

bool ls_run_shares_memory(const struct ls_run *run)
{
    const struct ls_opened_plugin *transport = run->strategy.transport;
    return ls_cluster_workers(run->workers.cluster) > 1 && transport &&
           (run->mixed.route ||
            ((const struct ls_transport_interface *)transport->interface)->scope == LS_SCOPE_HOST);
}

void ls_run_close(struct ls_run *run)
{
    LS_PLAIN_LOCALE;
    if (!run)
        return;
    ls_symbols_destroy(run->symbols);
    ls_tuning_close(&run->tuning);
    ls_mixed_transport_close(&run->mixed);
    ls_resolved_strategy_finish(&run->strategy);
    ls_own_parts_destroy(run->parts);
    ls_loader_destroy(run->loader);
    ls_workers_leave(run);
    ls_run_topology_finish(&run->topology);
    free(run->share_groups);
    free(run->strategy_text);
    free(run->compress);
    free(run->network);
    if (run->watched)
        ls_watchdog_stop();
    free(run);
}

uint32_t ls_run_replicas(const struct ls_run *run)
{
    return ls_run_shares(run);
}

uint32_t ls_run_is_server(const struct ls_run *run)
{
    return run->workers.served.role == LS_ROLE_SERVER;
}

uint32_t ls_run_is_chief(const struct ls_run *run)
{
    if (run->workers.served.servers)
        return run->workers.served.role == LS_ROLE_WORKER && run->workers.served.number == 0;
    return !run->workers.unformed && ls_cluster_first_rank(run->workers.cluster) == 0;
}

void ls_run_interrupt(struct ls_run *run)
{
    atomic_store(&run->interrupted, true);
}

void ls_run_interrupt_by(struct ls_run *run, uint32_t signal)
{
    atomic_store(&run->interrupted_by, signal);
    ls_run_interrupt(run);
}

uint32_t ls_run_interrupted_by(const struct ls_run *run)
{
    return atomic_load(&run->interrupted_by);
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
    memset(text, 0, 64);
    if (collective && !ls_is_auto(collective))
        ls_collective_about(collective, text, 64);
}

const char *ls_run_algorithm(const struct ls_run *run, uint64_t bytes)
{
    if (run->tuning.tuner)
        return ls_tuning_name(&run->tuning, LS_ALL_REDUCE, ls_cluster_world(run->workers.cluster),
                              bytes / sizeof(float), sizeof(float));
    return run->strategy.collective ? run->strategy.collective->plugin->name : NULL;
}

uint64_t ls_run_global_batch(const struct ls_run *run, uint64_t batch, uint64_t replica_batch)
{
    if (batch || (run->shards && !replica_batch)) // the same for any number of replicas
        return batch ? batch : LS_DEFAULT_REPLICA_BATCH;
    return (replica_batch ? replica_batch : LS_DEFAULT_REPLICA_BATCH) * ls_run_shares(run);
}

uint32_t ls_run_shares(const struct ls_run *run)
{
    return ls_cluster_world(run->workers.cluster) *
           (run->workers.served.servers ? run->workers.served.workers : 1);
}

uint32_t ls_run_first_share(const struct ls_run *run)
{
    return run->workers.served.servers
               ? run->workers.served.number * ls_cluster_count(run->workers.cluster)
               : ls_cluster_first_rank(run->workers.cluster);
}

struct ls_shares ls_run_division(const struct ls_run *run, bool trains)
{
    if (trains && run->workers.served.servers)
        return (struct ls_shares){.world = ls_run_shares(run)};
    return (struct ls_shares){.world = ls_cluster_world(run->workers.cluster),
                              .group_count = run->share_group_count,
                              .groups = run->share_groups,
                              .shards = run->shards};
}
