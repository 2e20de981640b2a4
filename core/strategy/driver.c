// SPDX-License-Identifier: Apache-2.0
// A driver's life: it opens a strategy before its replicas have buffers, is attached to them, says
// how a run ended, and closes it. Its steps are in step.c.
#include "core/strategy/internal.h"

#include "core/base/caller.h"
#include "core/base/instance.h"
#include "core/base/log.h"

#include <stdio.h>
#include <stdlib.h>

// ---- Opening ----

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

// A collective works on the gradients where they are, or on copies: the transport must reach that
// memory.
static enum ls_status check_memory(const struct ls_driver *driver,
                                   const struct ls_driver_options *options)
{
    const struct ls_transport_interface *transport = options->transport.interface;
    const uint32_t kind = ls_collective_memory(
        options->collective.interface, ls_device_interface(options->parts[0].device)->memory_kind);
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

// In host memory, a library decides itself what travels; in a device's, only libraries send halves.
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
    const bool on_host = ls_device_in_host_memory(options->parts[0].device);
    if (on_host && !collective->build_schedule) {
        ls_error("--wire",
                 "%s: collective '%s' is native and decides itself what it sends; use one that "
                 "describes its schedule, such as ring, or float32",
                 wire, options->collective.plugin->name);
        return LS_USAGE;
    }
    if (!on_host && !collective->build_schedule && options->wire == LS_F16 &&
        !ls_optimizer_scales(&driver->optimizer)) {
        ls_error("--wire",
                 "float16: a gradient beyond 65504 would become infinite in the memory of device "
                 "'%s', and nobody looks; use bfloat16, or a loss scale, which skips such steps",
                 options->parts[0].device_name);
        return LS_USAGE;
    }
    if (!on_host && collective->build_schedule) {
        ls_error("--wire",
                 "%s: gradients in the memory of device '%s' travel as they are under collective "
                 "'%s'; use nccl, or float32",
                 wire, options->parts[0].device_name, options->collective.plugin->name);
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
        member->completed = driver->options.steps_before;
        member->reduce = calloc(driver->bucket_count, sizeof(struct ls_collective_plan *));
        member->whole = calloc(driver->bucket_count, sizeof(struct ls_collective_plan *));
        member->broadcast = calloc(driver->world, sizeof(struct ls_collective_plan *));
        member->late = calloc(driver->bucket_count + 1, sizeof(*member->late));
        member->in_slot = calloc(driver->bucket_count, sizeof(*member->in_slot));
        if (!member->reduce || !member->whole || !member->broadcast || !member->late ||
            !member->in_slot)
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
        .frozen_buckets = driver->buckets->all - driver->bucket_count,
        .elastic = driver->options.whole_steps,
    };
    // A norm of pieces depends on where they are cut, but norms.c measures what ranks cut.
    const bool measured = driver->ops->placement && driver->ops->needs_collective;
    if (driver->options.shards && driver->table.norms && !measured)
        driver->table.norms |= LS_NORM_OF_VARIABLES;
}

// The optimizer needs norms that the strategy does not provide for.
static enum ls_status check_norms(const struct ls_driver *driver)
{
    const uint32_t missing = driver->table.norms & ~driver->ops->norms;
    const struct ls_optimizer *optimizer = &driver->optimizer;
    if (!missing)
        return LS_OK;
    if (missing == LS_NORM_OF_VARIABLES && !ls_optimizer_measures_variables(optimizer)) {
        ls_error("--reproducible",
                 "a norm of all gradients (global_clipnorm, a loss scale) has the same bits only "
                 "where it is made of whole variables, which strategy '%s' cuts; use clipvalue and "
                 "--loss-scale=none, or --strategy=mirrored",
                 ls_driver_name(driver));
        return LS_USAGE;
    }
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
    const bool divides =
        traits->divisor >= LS_DIVISOR_GLOBAL && traits->divisor <= LS_DIVISOR_SHARE;
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
    struct ls_strategy *strategy = ls_instance_create(driver->ops, driver->ops->state_bytes);
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
    driver->reasons = ls_caller_reasons();
    driver->ops = options->strategy.interface;
    driver->first_rank = ls_cluster_first_rank(options->cluster);
    driver->count = ls_cluster_count(options->cluster);
    driver->world = ls_cluster_world(options->cluster);
    driver->plan = options->parts[0].plan;
    driver->buckets = options->parts[0].buckets;
    driver->bucket_count = driver->buckets->count;
    driver->on_host = ls_device_in_host_memory(options->parts[0].device) &&
                      ls_device_blocking(options->parts[0].device);
    pthread_mutex_init(&driver->lock, NULL);
    driver->stores = (struct ls_stores){.strategy = ls_driver_name(driver),
                                        .plan = driver->plan,
                                        .optimizer = &driver->optimizer,
                                        .seed = options->seed,
                                        .steps_before = options->steps_before,
                                        .threads = options->threads,
                                        .find_device = options->store_device,
                                        .context = options->context};
    ls_stores_init(&driver->stores);
    enum ls_status status = check_needs(driver, options);
    if (!status)
        status = check_layouts(driver);
    if (!status)
        status = create_members(driver);
    if (!status)
        status = ls_barrier_init(&driver->barrier, ls_driver_name(driver), driver->first_rank,
                                 driver->count);
    if (!status && options->collective.plugin)
        status = ls_driver_open_gradients(driver);
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
        status = ls_driver_check_rounds(driver);
    if (!status)
        status = ls_driver_check_reproducible(driver);
    if (!status)
        status = ls_driver_check_filter(driver);
    if (!status && !options->forward)
        status = ls_driver_open_totals(driver);
    if (!status && !options->forward)
        status = ls_driver_open_integers(driver);
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

static bool is_aligned(const struct ls_placed_range *range)
{
    return range->first % (LS_ALIGNMENT / sizeof(float)) == 0;
}

enum ls_status ls_driver_placement(struct ls_driver *driver, uint32_t rank, uint32_t bucket,
                                   struct ls_strategy_placement *out)
{
    const struct ls_bucket *range = &driver->buckets->list[bucket];
    const struct ls_placed_range whole = {range->offset / sizeof(float),
                                          range->bytes / sizeof(float)};
    struct ls_strategy_placement placement = {
        .struct_size = sizeof(placement), .parameters = whole, .gradients = whole, .states = whole};
    if (driver->ops->placement)
        driver->ops->placement(driver->strategy, rank, bucket, &placement);
    const bool frozen = bucket >= driver->bucket_count;
    if (frozen) // nobody has any
        placement.gradients = placement.states = (struct ls_placed_range){whole.first, 0};
    if (!is_within(&placement.parameters, &whole) || !is_within(&placement.gradients, &whole) ||
        !is_within(&placement.states, &whole)) {
        ls_error(ls_driver_name(driver),
                 "placement of bucket %u on rank %u is not within the bucket: an error of the "
                 "plugin",
                 bucket, rank);
        return LS_FAILED;
    }
    if ((placement.states.count || frozen) &&
        (!is_aligned(&placement.parameters) || !is_aligned(&placement.gradients) ||
         !is_aligned(&placement.states) || !is_within(&placement.states, &placement.gradients) ||
         !is_within(&placement.states, &placement.parameters))) {
        ls_error(ls_driver_name(driver),
                 "placement of bucket %u on rank %u: parameters and gradients must hold all that "
                 "there are states for, and parts begin at a multiple of %zu floats: an error of "
                 "the plugin",
                 bucket, rank, LS_ALIGNMENT / sizeof(float));
        return LS_FAILED;
    }
    *out = placement;
    return LS_OK;
}

bool ls_driver_rounds_ranges(const struct ls_driver *driver)
{
    return driver->members[0].rounds;
}

// Slots are written by the replica's thread, and integers of logical shards need whole buffers.
static enum ls_status check_parts(const struct ls_driver *driver, bool parameters)
{
    if (driver->options.shards) {
        ls_error("--reproducible",
                 "strategy '%s' with these options has no replica with the gradients of a whole "
                 "step, as sums in integers need them; use sharded:stage=1 or mirrored",
                 ls_driver_name(driver));
        return LS_USAGE;
    }
    if (!driver->on_host) {
        ls_error("--strategy",
                 "strategy '%s' with these options keeps parts of gradients, so far only in host "
                 "memory; use --device=cpu, sharded:stage=1 or mirrored",
                 ls_driver_name(driver));
        return LS_UNAVAILABLE;
    }
    if (!parameters || !driver->plan->total_count || driver->options.forward)
        return LS_OK;
    if (driver->plan->totals[0].of_mask) {
        ls_error("--strategy",
                 "an output of model '%s' has a mask (mask_zero or Masking), whose steps all "
                 "replicas count in each pass, which strategy '%s' with these options cannot order "
                 "with its parameters; use sharded:stage=2",
                 driver->plan->totals[0].tensor->name, ls_driver_name(driver));
        return LS_UNAVAILABLE;
    }
    ls_error(
        "--strategy",
        "layer '%s' normalizes by the statistics of all replicas (synchronized), which strategy "
        "'%s' with these options cannot order with its parameters; use sharded:stage=2, or set "
        "synchronized to false",
        driver->plan->totals[0].tensor->name, ls_driver_name(driver));
    return LS_UNAVAILABLE;
}

enum ls_status ls_driver_find_held(struct ls_driver *driver, struct ls_driver_held *out)
{
    const struct ls_buckets *buckets = driver->buckets;
    const uint32_t world = driver->ops->placement ? driver->world : 0;
    enum ls_status status = LS_OK;
    *out = (struct ls_driver_held){0};
    for (uint32_t rank = 0; !status && rank < world; rank++)
        for (uint32_t i = 0; !status && i < buckets->all; i++) {
            struct ls_strategy_placement placement;
            status = ls_driver_placement(driver, rank, i, &placement);
            if (status)
                break;
            const struct ls_placed_range *ranges[] = {[LS_HELD_PARAMETERS] = &placement.parameters,
                                                      [LS_HELD_GRADIENTS] = &placement.gradients,
                                                      [LS_HELD_STATES] = &placement.states};
            out->placed = out->placed || placement.states.count;
            const uint32_t kinds = i < buckets->count ? LS_HELD_KINDS : LS_HELD_PARAMETERS + 1;
            for (uint32_t kind = 0; kind < kinds; kind++)
                if (ranges[kind]->count != buckets->list[i].bytes / sizeof(float))
                    out->spread[kind] = true;
        }
    for (uint32_t kind = 0; kind < LS_HELD_KINDS; kind++)
        out->spread[kind] = out->spread[kind] &&
                            (driver->options.forward ? kind == LS_HELD_PARAMETERS : out->placed);
    if (!status && (out->spread[LS_HELD_GRADIENTS] || out->spread[LS_HELD_PARAMETERS]))
        status = check_parts(driver, out->spread[LS_HELD_PARAMETERS]);
    return status;
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

// Replicas normalize kernels themselves, each all of them.
static enum ls_status check_kernels(const struct ls_driver *driver)
{
    const struct ls_replica *replica = driver->members[0].replica;
    const char *kernel = ls_replica_normalized_kernel(replica);
    if (!kernel || driver->options.forward ||
        (!driver->stores.first && ls_replica_slot(replica, LS_HELD_PARAMETERS, 0) == LS_NO_SLOT))
        return LS_OK;
    ls_error(
        "--strategy",
        "SpectralNormalization replaces '%s' before each step, so that every replica must have "
        "it whole, which none has with strategy '%s' and these options; use mirrored or "
        "sharded:stage=2",
        kernel, ls_driver_name(driver));
    return LS_UNAVAILABLE;
}

enum ls_status ls_driver_attach(struct ls_driver *driver, struct ls_replica *const *replicas)
{
    for (uint32_t i = 0; i < driver->count; i++)
        driver->members[i].replica = replicas[i];
    enum ls_status status = driver->options.forward ? LS_OK : ls_driver_attach_gradients(driver);
    if (!status)
        status = ls_driver_attach_norms(driver);
    if (!status)
        status = ls_driver_attach_totals(driver);
    if (!status)
        status = ls_driver_attach_integers(driver);
    if (!status)
        status = ls_driver_attach_rounds(driver);
    if (!status)
        status = ls_driver_attach_stores(driver);
    if (!status)
        status = check_kernels(driver);
    driver->defers = !status && !driver->options.shards && may_defer(driver);
    driver->capturable = driver->defers && !driver->ops->begin_step &&
                         !driver->ops->parameters_needed && !driver->total_communicators;
    for (uint32_t i = 0; driver->communicators && i < driver->count; i++) {
        driver->capturable =
            driver->capturable && ls_communicator_capturable(driver->communicators[i]);
        driver->records_alike = ls_communicator_records_alike(driver->communicators[i]);
    }
    return status;
}

void ls_driver_end_at_nan(struct ls_driver *driver, bool ends)
{
    driver->ends_at_nan = ends;
}

// ---- Ends ----

// Where the host looked later, the replica has the parameters of that step, but the examples of
// another.
static void say_nothing_found(const struct ls_driver *driver, unsigned long long step,
                              unsigned long long looked)
{
    if (driver->defers && looked != step)
        ls_error("train",
                 "step %llu: the loss is not finite; the parameters are, and with the examples of "
                 "step %llu all values are: check the data of step %llu, or try a smaller learning "
                 "rate",
                 step, looked, step);
    else
        ls_error("train",
                 "step %llu: the loss is not finite, though all values that it is made of are: the "
                 "sum overflows; try a smaller learning rate, or check the data",
                 step);
}

// Where the loss is finite, all values of the step that lead to it may be.
static void say_skipped(const struct ls_driver *driver, unsigned long long step, const char *text,
                        const char *whose)
{
    const struct ls_replica *replica = driver->members[0].replica;
    ls_error("train",
             "step %llu: %d steps in a row were skipped, as their gradients were not finite, the "
             "last with loss scale %g%s%s%s%s; try a smaller learning rate, or check the data",
             step, LS_MOST_SKIPS, (double)ls_replica_scale_before(replica)->scale,
             text[0] ? "; the first value that is not finite is in '" : "", text,
             text[0] ? "'" : "", whose);
}

uint64_t ls_driver_explain(struct ls_driver *driver)
{
    const int32_t silent = atomic_load(&driver->silent);
    const bool elsewhere = silent == LS_ABORTED && driver->count < driver->world; // its reason is
    if (silent && !elsewhere && driver->reasons == ls_caller_reasons())
        ls_error(ls_driver_name(driver),
                 "a call of strategy %s answered '%s', and no reason was given",
                 ls_driver_name(driver), ls_status_text((enum ls_status)silent));
    if (!atomic_exchange(&driver->not_finite, false))
        return 0;
    ls_driver_wait_for_threads(driver);
    // One replica may be steps ahead of another that has left: nothing on its device ends before
    // that is aborted.
    ls_driver_end_communicators(driver);
    const unsigned long long step = atomic_load(&driver->not_finite_step);
    char text[128] = "", whose[32] = "";
    uint32_t i = 0;
    const bool parts =
        ls_replica_slot(driver->members[0].replica, LS_HELD_PARAMETERS, 0) != LS_NO_SLOT;
    for (; i < driver->count && !text[0]; i++)
        if (ls_replica_find_not_finite(driver->members[i].replica, text, sizeof(text)))
            text[0] = '\0';
    if (!text[0] && !atomic_load(&driver->skipped_too_many)) {
        if (parts)
            ls_error("train",
                     "step %llu: the loss is not finite; which value is it first cannot be told "
                     "where no replica has all parameters; try a smaller learning rate, or check "
                     "the data",
                     step);
        else
            say_nothing_found(driver, step, driver->members[0].step);
        return step;
    }
    if (driver->world > 1 && text[0])
        snprintf(whose, sizeof(whose), " of replica %u", driver->first_rank + i - 1);
    if (atomic_load(&driver->skipped_too_many))
        say_skipped(driver, step, text, whose);
    else
        ls_error("train",
                 "step %llu: the loss is not finite; the first value that is not finite is in "
                 "'%s'%s%s",
                 step, text, whose,
                 step == 1
                     ? "; check the data: a NaN or an infinity in it, or numbers that need scaling"
                     : "; try a smaller learning rate, or check the data");
    return step;
}

bool ls_driver_aborted(const struct ls_driver *driver)
{
    return atomic_load(&driver->aborted);
}

bool ls_driver_not_finite(const struct ls_driver *driver)
{
    return atomic_load(&driver->not_finite);
}

static uint32_t count_left(const struct ls_driver *driver)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < driver->count; i++)
        count += !atomic_load(&driver->members[i].lost);
    return count;
}

bool ls_driver_survives(const struct ls_driver *driver)
{
    return driver->traits.survives && driver->ops->lost && driver->count > 1 &&
           ls_driver_asynchronous(driver);
}

bool ls_driver_survive(struct ls_driver *driver, uint32_t index, enum ls_status status)
{
    struct ls_driver_member *member = &driver->members[index];
    if (!ls_driver_survives(driver) || status == LS_ABORTED || status == LS_INTERRUPTED ||
        status == LS_PEER_LOST || member->not_finite || atomic_load(&driver->aborted))
        return false;
    pthread_mutex_lock(&driver->lock);
    const bool last = count_left(driver) == 1;
    if (!last)
        atomic_store(&member->lost, true);
    pthread_mutex_unlock(&driver->lock);
    if (last)
        return false;
    ls_barrier_leave(&driver->barrier, index);
    return driver->ops->lost(driver->strategy, index) == LS_OK;
}

bool ls_driver_is_lost(const struct ls_driver *driver, uint32_t replica)
{
    return atomic_load(&driver->members[replica].lost);
}

bool ls_driver_asynchronous(const struct ls_driver *driver)
{
    return driver->traits.divisor == LS_DIVISOR_OWN;
}

bool ls_driver_adds_counts(const struct ls_driver *driver)
{
    return driver->members[0].counts || driver->options.shards;
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
        ls_collective_plan_destroy(member->norm);
        free(member->measured);
        ls_driver_close_ranges(member);
        ls_driver_close_rounds(member);
        ls_driver_close_filter(member);
        free(member->reduce);
        free(member->whole);
        free(member->broadcast);
        free(member->late);
        free(member->in_slot);
    }
    free(driver->members);
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
    ls_instance_destroy(driver->state);
    ls_stores_finish(&driver->stores);
    ls_driver_close_endpoints(driver);
    ls_driver_close_metrics(driver);
    ls_driver_close_channels(driver);
    // A collective may only be closed when no recording has operations or memory of it.
    ls_driver_end_communicators(driver);
    for (uint32_t i = 0; driver->communicators && i < driver->count; i++)
        if (driver->members[i].replica)
            ls_replica_forget_recordings(driver->members[i].replica);
    ls_driver_close_totals(driver);
    ls_driver_close_integers(driver);
    close_members(driver);
    if (driver->communicators)
        ls_communicators_close(driver->communicators, driver->count);
    free(driver->communicators);
    ls_barrier_finish(&driver->barrier);
    pthread_mutex_destroy(&driver->lock);
    free(driver);
    return true;
}
