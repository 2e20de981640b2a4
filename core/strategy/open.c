// SPDX-License-Identifier: Apache-2.0
// Opens a strategy before its replicas have buffers, attaches it to them, and closes it.
#include "core/strategy/internal.h"

#include "core/base/inside.h"
#include "core/base/log.h"
#include "core/base/memory.h"

#include <stdio.h>
#include <stdlib.h>

// ---- Opening ----

// What a bucket is reduced as, in floats of LS_BUFFER_REDUCED. With a wire, its first `whole` floats travel as they are.
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
                                       .dtype = LS_F32,
                                       .reduction = LS_SUM,
                                       .wire = driver->options.wire,
                                       .counts = counts,
                                       .size_count = driver->bucket_count};
    const enum ls_status status =
        ls_tuner_measure(tuner, &task, driver->communicators, driver->count);
    free(counts);
    return status;
}

static enum ls_status create_bucket_plans(struct ls_driver *driver, struct ls_driver_member *member,
                                          uint32_t bucket)
{
    const struct ls_memory reduced = ls_replica_memory(member->replica, LS_BUFFER_REDUCED);
    uint64_t first, whole, count;
    bucket_parts(driver, bucket, &first, &whole, &count);
    struct ls_communicator_call call = {.operation = LS_ALL_REDUCE,
                                        .dtype = LS_F32,
                                        .reduction = LS_SUM,
                                        .buffer = ls_memory_at(reduced, first * sizeof(float)),
                                        .count = whole};
    char label[32];
    enum ls_status status = LS_OK;
    snprintf(label, sizeof(label), "statistics of bucket %u", bucket);
    if (whole)
        status =
            ls_collective_plan_open(member->communicator, &call, label, &member->whole[bucket]);
    if (status || whole == count)
        return status;
    call.buffer = ls_memory_at(reduced, (first + whole) * sizeof(float));
    call.count = count - whole;
    call.wire = driver->options.wire;
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
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < driver->bucket_count; i++)
        status = create_bucket_plans(driver, &driver->members[index], i);
    if (!status && driver->options.whole_steps)
        status = create_counts_plan(&driver->members[index]);
    return status;
}

static struct ls_communicator_place *list_places(const struct ls_driver_options *options,
                                                 uint32_t count)
{
    struct ls_communicator_place *places = calloc(count, sizeof(*places));
    for (uint32_t i = 0; places && i < count; i++)
        places[i] = (struct ls_communicator_place){.device = options->parts[i].device};
    return places;
}

enum ls_status ls_driver_open_communicators(const struct ls_driver *driver,
                                            const struct ls_driver_plugin *collective,
                                            const struct ls_driver_plugin *transport,
                                            const char *name, struct ls_communicator ***out)
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
        .places = places,
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

static enum ls_status open_communicators(struct ls_driver *driver,
                                         const struct ls_driver_options *options)
{
    enum ls_status status = ls_driver_open_communicators(
        driver, &options->collective, &options->transport, "gradients", &driver->communicators);
    if (!status && options->tuner)
        status = tune(driver, options->tuner);
    for (uint32_t i = 0; !status && i < driver->count; i++)
        driver->members[i].communicator = driver->communicators[i];
    return status;
}

// Flat buffers can be reduced in place only if they have the same layout on all ranks.
static enum ls_status check_layouts(const struct ls_driver *driver)
{
    const struct ls_driver_options *options = &driver->options;
    uint64_t *mine = calloc(driver->count, sizeof(*mine));
    uint64_t *all = calloc(driver->world, sizeof(*all));
    enum ls_status status = mine && all ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < driver->count; i++)
        mine[i] = ls_plan_fingerprint(options->parts[i].plan);
    if (!status)
        status = ls_cluster_gather(options->cluster, mine, sizeof(*mine), all);
    for (uint32_t i = 1; !status && i < driver->world; i++)
        if (all[i] != all[0]) {
            ls_error("strategy", "replicas 0 and %u keep their parameters in different layouts", i);
            status = LS_FAILED;
        }
    free(mine);
    free(all);
    return status;
}

// A collective works on the gradients where they lie: the transport must reach that memory.
static enum ls_status check_memory(const struct ls_driver *driver,
                                   const struct ls_driver_options *options)
{
    const struct ls_transport_interface *transport = options->transport.interface;
    const uint32_t kind = ls_device_interface(options->parts[0].device)->memory_kind;
    if (!driver->ops->needs_collective || driver->world < 2 || !transport ||
        transport->memory_kinds >> kind & 1)
        return LS_OK;
    ls_error("--strategy",
             "strategy '%s' adds gradients in the device's memory, which transport '%s' cannot "
             "reach; take transport local, or central-storage or parameter-server, which keep "
             "variables on the host",
             options->strategy.plugin->name, options->transport.plugin->name);
    return LS_UNAVAILABLE;
}

// Who adds up gradients without a schedule of ours decides itself what travels.
static enum ls_status check_wire(const struct ls_driver *driver,
                                 const struct ls_driver_options *options)
{
    const struct ls_collective_interface *collective = options->collective.interface;
    const char *wire = ls_wire_text(options->wire);
    if (!options->wire || driver->world < 2)
        return LS_OK;
    if (!driver->ops->needs_collective) {
        ls_error("--wire",
                 "%s: strategy '%s' sends no gradients through a collective; use mirrored, or "
                 "float32",
                 wire, options->strategy.plugin->name);
        return LS_USAGE;
    }
    if (!collective->build_schedule) {
        ls_error("--wire",
                 "%s: collective '%s' is native and decides itself what it sends; use one that "
                 "describes its schedule, such as ring, or float32",
                 wire, options->collective.plugin->name);
        return LS_USAGE;
    }
    if (!ls_device_in_host_memory(options->parts[0].device)) {
        ls_error("--wire",
                 "%s: gradients in the memory of device '%s' travel as they are; use float32", wire,
                 options->parts[0].device_name);
        return LS_UNAVAILABLE;
    }
    return LS_OK;
}

static enum ls_status check_needs(const struct ls_driver *driver,
                                  const struct ls_driver_options *options)
{
    const uint32_t most = driver->ops->maximum_replicas;
    if (most && driver->world > most) {
        ls_error("--replicas",
                 "strategy '%s' runs at most %u replica%s, not %u; choose another strategy or "
                 "fewer replicas",
                 options->strategy.plugin->name, most, most == 1 ? "" : "s", driver->world);
        return LS_USAGE;
    }
    if (driver->ops->needs_collective && !options->collective.plugin) {
        ls_error("--strategy", "strategy '%s' needs a collective", options->strategy.plugin->name);
        return LS_USAGE;
    }
    if (driver->ops->needs_transport && !options->transport.plugin) {
        ls_error("--strategy", "strategy '%s' needs a transport", options->strategy.plugin->name);
        return LS_USAGE;
    }
    const enum ls_status status = check_memory(driver, options);
    return status ? status : check_wire(driver, options);
}

static enum ls_status create_members(struct ls_driver *driver)
{
    driver->members = calloc(driver->count, sizeof(*driver->members));
    if (!driver->members)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < driver->count; i++) {
        struct ls_driver_member *member = &driver->members[i];
        member->driver = driver;
        member->index = i;
        member->reduce = calloc(driver->bucket_count, sizeof(struct ls_collective_plan *));
        member->whole = calloc(driver->bucket_count, sizeof(struct ls_collective_plan *));
        member->broadcast = calloc(driver->world, sizeof(struct ls_collective_plan *));
        member->late = calloc(driver->bucket_count + 1, sizeof(*member->late));
        if (!member->reduce || !member->whole || !member->broadcast || !member->late)
            return LS_OUT_OF_MEMORY;
    }
    return LS_OK;
}

static uint32_t norms_of(const struct ls_optimizer *optimizer)
{
    return (ls_optimizer_measures_variables(optimizer) ? LS_NORM_OF_VARIABLES : 0) |
           (ls_optimizer_measures_all(optimizer) ? LS_NORM_OF_ALL : 0);
}

static void make_table(struct ls_driver *driver)
{
    driver->table = (struct ls_strategy_host){
        .struct_size = sizeof(driver->table),
        .replicas = driver->count,
        .first_rank = driver->first_rank,
        .world = driver->world,
        .bucket_count = driver->bucket_count,
        .variable_count = driver->plan->reduced_count,
        .flat_count = driver->plan->reduced_bytes / sizeof(float),
        .trained_first = driver->plan->statistics_bytes / sizeof(float),
        .deadline_ns = driver->options.deadline_ns,
        .context = driver,
        .host = driver->options.strategy.host,
        .layout = &ls_driver_layout,
        .collectives = &ls_driver_collectives,
        .step = &ls_driver_step_table,
        .memory = &ls_driver_memory,
        .stores = &ls_driver_stores,
        .threads = &ls_driver_threads,
        .endpoints = &ls_driver_endpoints,
        .report = &ls_driver_report,
        .transport = driver->options.transport.interface,
        .norms = norms_of(&driver->optimizer),
    };
}

// The optimizer needs norms that the strategy does not provide for.
static enum ls_status check_norms(const struct ls_driver *driver)
{
    const uint32_t missing = driver->table.norms & ~driver->ops->norms;
    const struct ls_optimizer *optimizer = &driver->optimizer;
    if (!missing)
        return LS_OK;
    const bool all = (missing & LS_NORM_OF_ALL) != 0;
    if (all && ls_optimizer_scales(optimizer)) {
        ls_error("--loss-scale",
                 "a loss scale looks at all gradients together, which strategy '%s' cannot show; "
                 "use --strategy=mirrored or --loss-scale=none",
                 ls_driver_name(driver));
        return LS_USAGE;
    }
    ls_error("--optimizer",
             "%s%s needs the norm of %s, which strategy '%s' cannot give; %s or "
             "--strategy=mirrored",
             optimizer->name,
             all                                        ? ":global_clipnorm"
             : optimizer->clipping == LS_CLIP_EACH_NORM ? ":clipnorm"
                                                        : "",
             all ? "all gradients together" : "whole variables", ls_driver_name(driver),
             optimizer->clipping ? "use clipvalue" : "use another optimizer");
    return LS_USAGE;
}

static enum ls_status read_traits(struct ls_driver *driver)
{
    const struct ls_strategy_interface *ops = driver->ops;
    struct ls_strategy_traits *traits = &driver->traits;
    *traits = ops->traits;
    traits->struct_size = sizeof(*traits);
    if (ops->find_traits)
        ops->find_traits(driver->strategy, traits);
    const bool divides = traits->divisor == LS_DIVISOR_GLOBAL || traits->divisor == LS_DIVISOR_OWN;
    const bool equals =
        traits->equality == LS_EQUAL_EVERY_STEP || traits->equality == LS_EQUAL_AT_SYNCHRONISE;
    if (divides && equals)
        return LS_OK;
    ls_error("strategy", "strategy '%s' answers the unknown traits %u and %u",
             driver->options.strategy.plugin->name, traits->divisor, traits->equality);
    return LS_FAILED;
}

// The strategy's memory is the driver's; a strategy that did not open has none.
static enum ls_status open_strategy(struct ls_driver *driver)
{
    struct ls_strategy *strategy = ls_calloc_cacheline(1, driver->ops->state_bytes);
    driver->state = strategy;
    if (!strategy)
        return LS_OUT_OF_MEMORY;
    const enum ls_status status = (enum ls_status)driver->ops->open(&driver->table, strategy);
    driver->opened = true;
    if (status)
        return status;
    driver->strategy = strategy;
    return read_traits(driver);
}

// All replicas decide together whether a step is skipped.
static enum ls_status check_scale(const struct ls_driver *driver)
{
    if (!ls_optimizer_scales(&driver->optimizer) ||
        (driver->traits.divisor == LS_DIVISOR_GLOBAL &&
         driver->traits.equality == LS_EQUAL_EVERY_STEP))
        return LS_OK;
    ls_error("--loss-scale",
             "a loss scale needs replicas that make their steps together, which those of strategy "
             "'%s' with these options do not; use --strategy=mirrored or --loss-scale=none",
             ls_driver_name(driver));
    return LS_USAGE;
}

enum ls_status ls_driver_open(const struct ls_driver_options *options, struct ls_driver **out)
{
    struct ls_driver *driver = calloc(1, sizeof(*driver));
    if (!driver)
        return LS_OUT_OF_MEMORY;
    driver->options = *options;
    if (options->optimizer)
        driver->optimizer = *options->optimizer;
    driver->reasons = ls_inside_all_reasons();
    driver->ops = options->strategy.interface;
    driver->first_rank = ls_cluster_first_rank(options->cluster);
    driver->count = ls_cluster_count(options->cluster);
    driver->world = ls_cluster_world(options->cluster);
    driver->plan = options->parts[0].plan;
    driver->buckets = options->parts[0].buckets;
    driver->bucket_count = driver->buckets->count;
    pthread_mutex_init(&driver->lock, NULL);
    enum ls_status status = check_needs(driver, options);
    if (!status)
        status = check_layouts(driver);
    if (!status)
        status = create_members(driver);
    if (!status)
        status = ls_barrier_init(&driver->barrier, ls_driver_name(driver), driver->first_rank,
                                 driver->count);
    if (!status && options->collective.plugin)
        status = open_communicators(driver, options);
    if (!status) {
        make_table(driver);
        status = check_norms(driver);
    }
    if (!status)
        status = ls_driver_open_channels(driver);
    if (!status)
        status = open_strategy(driver);
    if (!status)
        status = check_scale(driver);
    if (!status)
        status = ls_driver_open_totals(driver);
    if (status) {
        ls_driver_close(driver);
        return status;
    }
    driver->options.parts = NULL; // the caller's
    driver->options.optimizer = NULL;
    *out = driver;
    return LS_OK;
}

// ---- Placement ----

static bool is_within(const struct ls_placed_range *range, const struct ls_placed_range *bucket)
{
    return range->count == 0 || (range->first >= bucket->first && range->count <= bucket->count &&
                                 range->first - bucket->first <= bucket->count - range->count);
}

enum ls_status ls_driver_placement(struct ls_driver *driver, uint32_t replica, uint32_t bucket,
                                   struct ls_strategy_placement *out)
{
    const struct ls_bucket *range = &driver->buckets->list[bucket];
    const struct ls_placed_range whole = {range->offset / sizeof(float),
                                          range->bytes / sizeof(float)};
    struct ls_strategy_placement placement = {
        .struct_size = sizeof(placement), .parameters = whole, .gradients = whole, .states = whole};
    const uint32_t rank = driver->first_rank + replica;
    if (driver->ops->placement)
        driver->ops->placement(driver->strategy, rank, bucket, &placement);
    if (!is_within(&placement.parameters, &whole) || !is_within(&placement.gradients, &whole) ||
        !is_within(&placement.states, &whole)) {
        ls_error(ls_driver_name(driver),
                 "placement of bucket %u on rank %u is not within the bucket: an error of the "
                 "plugin",
                 bucket, rank);
        return LS_FAILED;
    }
    *out = placement;
    return LS_OK;
}

// ---- Attaching ----

// Whether sums may be looked at later. The strategy must not look at what it decides on, nor do
// anything on the host that depends on it.
static bool may_defer(const struct ls_driver *driver)
{
    for (uint32_t i = 0; i < driver->count; i++)
        if (!ls_replica_may_defer(driver->members[i].replica))
            return false;
    return driver->traits.capturable;
}

enum ls_status ls_driver_attach(struct ls_driver *driver, struct ls_replica *const *replicas)
{
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; i < driver->count; i++)
        driver->members[i].replica = replicas[i];
    for (uint32_t i = 0; !status && driver->communicators && i < driver->count; i++)
        status = create_plans(driver, i);
    if (!status)
        status = ls_driver_attach_totals(driver);
    if (!status)
        status = ls_driver_attach_stores(driver);
    driver->defers = !status && may_defer(driver);
    driver->capturable = driver->defers && !driver->ops->begin_step &&
                         !driver->ops->parameters_needed && !driver->total_communicators;
    for (uint32_t i = 0; driver->communicators && i < driver->count; i++)
        driver->capturable =
            driver->capturable && ls_communicator_capturable(driver->communicators[i]);
    return status;
}

// ---- Closing ----

static void close_members(struct ls_driver *driver)
{
    for (uint32_t i = 0; driver->members && i < driver->count; i++) {
        struct ls_driver_member *member = &driver->members[i];
        for (uint32_t bucket = 0; member->reduce && bucket < driver->bucket_count; bucket++)
            ls_collective_plan_destroy(member->reduce[bucket]);
        for (uint32_t bucket = 0; member->whole && bucket < driver->bucket_count; bucket++)
            ls_collective_plan_destroy(member->whole[bucket]);
        for (uint32_t root = 0; member->broadcast && root < driver->world; root++)
            ls_collective_plan_destroy(member->broadcast[root]);
        ls_collective_plan_destroy(member->counts);
        ls_driver_close_ranges(member);
        free(member->reduce);
        free(member->whole);
        free(member->broadcast);
        free(member->late);
    }
    free(driver->members);
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
}

bool ls_driver_close(struct ls_driver *driver)
{
    if (!driver)
        return true;
    if (driver->strategy && driver->ops->close)
        driver->ops->close(driver->strategy);
    ls_driver_close_threads(driver);
    if (driver->hangs)
        return false; // the thread may use all of it
    free(driver->state);
    ls_driver_close_stores(driver);
    ls_driver_close_endpoints(driver);
    ls_driver_close_metrics(driver);
    ls_driver_close_channels(driver);
    // A collective may only be closed when no recording has operations of it.
    ls_driver_end_communicators(driver);
    for (uint32_t i = 0; driver->capturable && driver->communicators && i < driver->count; i++)
        ls_replica_forget_recordings(driver->members[i].replica);
    ls_driver_close_totals(driver);
    close_members(driver);
    if (driver->communicators)
        ls_communicators_close(driver->communicators, driver->count);
    free(driver->communicators);
    ls_barrier_finish(&driver->barrier);
    pthread_mutex_destroy(&driver->lock);
    free(driver);
    return true;
}
