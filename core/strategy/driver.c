// SPDX-License-Identifier: Apache-2.0
// The hooks of a strategy around a replica's step, and the host table behind them.
#include "core/strategy/driver.h"

#include "core/base/clock.h"
#include "core/base/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What the driver keeps for one replica. Only that replica's thread touches it.
struct member {
    struct ls_replica *replica;
    struct ls_communicator *communicator;
    struct ls_collective_plan **reduce; // one a bucket
    struct ls_collective_plan **broadcast; // one a root that was asked for
    float tail[LS_TAIL_FLOATS];
};

struct ls_driver {
    struct ls_strategy_host table;
    const struct ls_strategy_interface *ops;
    struct ls_strategy *strategy;
    struct member *members;
    struct ls_communicator **communicators; // NULL: no collective
    uint32_t count;
    uint32_t bucket_count;
    atomic_bool not_finite; // the loss of some step was not
};

static struct ls_driver *driver_of(const struct ls_strategy_host *table)
{
    return table->context;
}

// ---- The host table ----

// What a plugin asks for may not exist.
static bool may_communicate(const struct ls_driver *driver, const char *what, uint32_t number,
                            uint32_t count)
{
    if (driver->communicators && number < count)
        return true;
    if (!driver->communicators)
        ls_error("strategy", "%s without a collective: the plugin must set needs_collective", what);
    else
        ls_error("strategy", "%s %u, but there are %u: an error of the plugin", what, number,
                 count);
    return false;
}

static int32_t host_all_reduce_start(const struct ls_strategy_host *table, uint32_t replica,
                                     uint32_t bucket)
{
    const struct ls_driver *driver = driver_of(table);
    if (!may_communicate(driver, "all_reduce_start of bucket", bucket, driver->bucket_count))
        return LS_FAILED;
    return (int32_t)ls_collective_start(driver->members[replica].reduce[bucket]);
}

static int32_t host_all_reduce_wait(const struct ls_strategy_host *table, uint32_t replica,
                                    uint32_t bucket)
{
    const struct ls_driver *driver = driver_of(table);
    if (!may_communicate(driver, "all_reduce_wait for bucket", bucket, driver->bucket_count))
        return LS_FAILED;
    return (int32_t)ls_collective_wait(driver->members[replica].reduce[bucket]);
}

static int32_t host_broadcast(const struct ls_strategy_host *table, uint32_t replica, uint32_t root)
{
    const struct ls_driver *driver = driver_of(table);
    struct member *member = &driver->members[replica];
    if (!may_communicate(driver, "broadcast_parameters from rank", root, driver->count))
        return LS_FAILED;
    if (!member->broadcast[root]) {
        const enum ls_status status = ls_collective_plan_create(
            member->communicator, LS_BROADCAST, member->replica->parameters,
            member->replica->plan->flat_bytes / sizeof(float), LS_F32, LS_SUM, root, "parameters",
            &member->broadcast[root]);
        if (status)
            return (int32_t)status;
    }
    enum ls_status status = ls_collective_start(member->broadcast[root]);
    if (!status)
        status = ls_collective_wait(member->broadcast[root]);
    if (!status)
        status = ls_replica_refresh(member->replica);
    return (int32_t)status;
}

// Why is said by ls_driver_explain, when all replicas have left the step: which of them has the cause in its share is
// not known here, and the first that fails may wake the others before they look.
static int32_t host_decide(const struct ls_strategy_host *table, uint32_t replica)
{
    struct ls_driver *driver = driver_of(table);
    struct member *member = &driver->members[replica];
    const enum ls_status status = ls_replica_read_tail(member->replica, member->tail);
    if (status)
        return (int32_t)status;
    if (isfinite(member->tail[0]))
        return LS_OK;
    atomic_store(&driver->not_finite, true);
    return LS_FAILED;
}

static int32_t host_update(const struct ls_strategy_host *table, uint32_t replica, uint32_t bucket)
{
    const struct ls_driver *driver = driver_of(table);
    if (bucket >= driver->bucket_count) {
        ls_error("strategy", "update of bucket %u, but there are %u: an error of the plugin",
                 bucket, driver->bucket_count);
        return LS_FAILED;
    }
    return (int32_t)ls_replica_update(driver->members[replica].replica, bucket);
}

// ---- Opening ----

static enum ls_status create_plans(struct ls_driver *driver, uint32_t index)
{
    struct member *member = &driver->members[index];
    const struct ls_replica *replica = member->replica;
    for (uint32_t i = 0; i < driver->bucket_count; i++) {
        const struct ls_bucket *bucket = &replica->buckets.list[i];
        float *start =
            i == 0 ? replica->reduced : replica->gradients + bucket->offset / sizeof(float);
        const uint64_t count = bucket->bytes / sizeof(float) + (i == 0 ? LS_TAIL_FLOATS : 0);
        char label[32];
        snprintf(label, sizeof(label), "bucket %u", i);
        const enum ls_status status =
            ls_collective_plan_create(member->communicator, LS_ALL_REDUCE, start, count, LS_F32,
                                      LS_SUM, 0, label, &member->reduce[i]);
        if (status)
            return status;
    }
    return LS_OK;
}

static enum ls_status open_communicators(struct ls_driver *driver,
                                         const struct ls_driver_options *options)
{
    const struct ls_communicator_options communicator = {
        .collective = options->collective.plugin,
        .collective_host = options->collective.host,
        .transport = options->transport.plugin,
        .transport_host = options->transport.host,
        .world = options->count,
        .deadline_ns = options->deadline_ns,
        .name = "gradients",
    };
    driver->communicators = calloc(driver->count, sizeof(*driver->communicators));
    if (!driver->communicators)
        return LS_OUT_OF_MEMORY;
    enum ls_status status = ls_communicators_open(&communicator, driver->communicators);
    for (uint32_t i = 0; !status && i < driver->count; i++) {
        driver->members[i].communicator = driver->communicators[i];
        status = create_plans(driver, i);
    }
    return status;
}

// Flat buffers can be reduced as they are only where they lie alike.
static enum ls_status check_plans(const struct ls_driver_options *options)
{
    for (uint32_t i = 1; i < options->count; i++)
        if (ls_plan_fingerprint(options->replicas[i]->plan) !=
            ls_plan_fingerprint(options->replicas[0]->plan)) {
            ls_error("strategy", "replicas 0 and %u keep their parameters in different layouts", i);
            return LS_FAILED;
        }
    return LS_OK;
}

static enum ls_status check_traits(const struct ls_driver *driver,
                                   const struct ls_driver_options *options)
{
    const uint32_t most = driver->ops->maximum_replicas;
    if (most && options->count > most) {
        ls_error("--replicas",
                 "strategy '%s' runs at most %u replica%s, not %u; choose another strategy or "
                 "fewer replicas",
                 options->strategy.plugin->name, most, most == 1 ? "" : "s", options->count);
        return LS_USAGE;
    }
    if (driver->ops->needs_collective && !options->collective.plugin) {
        ls_error("--strategy", "strategy '%s' needs a collective", options->strategy.plugin->name);
        return LS_USAGE;
    }
    return LS_OK;
}

static enum ls_status create_members(struct ls_driver *driver,
                                     const struct ls_driver_options *options)
{
    driver->members = calloc(options->count, sizeof(*driver->members));
    if (!driver->members)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < options->count; i++) {
        struct member *member = &driver->members[i];
        member->replica = options->replicas[i];
        member->reduce = calloc(driver->bucket_count, sizeof(struct ls_collective_plan *));
        member->broadcast = calloc(options->count, sizeof(struct ls_collective_plan *));
        if (!member->reduce || !member->broadcast)
            return LS_OUT_OF_MEMORY;
    }
    return LS_OK;
}

enum ls_status ls_driver_open(const struct ls_driver_options *options, struct ls_driver **out)
{
    struct ls_driver *driver = calloc(1, sizeof(*driver));
    if (!driver)
        return LS_OUT_OF_MEMORY;
    driver->ops = options->strategy.interface;
    driver->count = options->count;
    driver->bucket_count = options->replicas[0]->buckets.count;
    driver->table = (struct ls_strategy_host){.struct_size = sizeof(driver->table),
                                              .replicas = options->count,
                                              .world = options->count,
                                              .bucket_count = driver->bucket_count,
                                              .context = driver,
                                              .host = options->strategy.host,
                                              .all_reduce_start = host_all_reduce_start,
                                              .all_reduce_wait = host_all_reduce_wait,
                                              .broadcast_parameters = host_broadcast,
                                              .decide = host_decide,
                                              .update = host_update};
    enum ls_status status = check_traits(driver, options);
    if (!status)
        status = check_plans(options);
    if (!status)
        status = create_members(driver, options);
    if (!status && options->collective.plugin)
        status = open_communicators(driver, options);
    if (!status)
        status = (enum ls_status)driver->ops->open(&driver->table, &driver->strategy);
    if (status) {
        ls_driver_close(driver);
        return status;
    }
    *out = driver;
    return LS_OK;
}

void ls_driver_close(struct ls_driver *driver)
{
    if (!driver)
        return;
    if (driver->strategy)
        driver->ops->close(driver->strategy);
    for (uint32_t i = 0; driver->members && i < driver->count; i++) {
        struct member *member = &driver->members[i];
        for (uint32_t bucket = 0; member->reduce && bucket < driver->bucket_count; bucket++)
            ls_collective_plan_destroy(member->reduce[bucket]);
        for (uint32_t root = 0; member->broadcast && root < driver->count; root++)
            ls_collective_plan_destroy(member->broadcast[root]);
        free(member->reduce);
        free(member->broadcast);
    }
    if (driver->communicators)
        ls_communicators_close(driver->communicators, driver->count);
    free(driver->communicators);
    free(driver->members);
    free(driver);
}

// ---- A step ----

static enum ls_status bucket_ready(void *context, struct ls_replica *replica, uint32_t bucket)
{
    struct ls_driver *driver = context;
    return (enum ls_status)driver->ops->gradient_ready(driver->strategy, replica->rank, bucket);
}

static enum ls_status progress(void *context, struct ls_replica *replica)
{
    struct ls_communicator *communicator =
        ((struct ls_driver *)context)->members[replica->rank].communicator;
    return communicator ? ls_communicator_progress(communicator) : LS_OK;
}

static enum ls_status run_step(struct ls_driver *driver, struct member *member, uint32_t index,
                               const struct ls_replica_batch *batch, uint64_t step,
                               double learning_rate, bool stop)
{
    const struct ls_replica_hooks hooks = {
        .context = driver, .bucket_ready = bucket_ready, .progress = progress};
    struct ls_replica_batch divided = *batch;
    int32_t status = LS_OK;
    if (driver->ops->divisor == LS_DIVISOR_OWN && batch->count)
        divided.global_count = batch->count;
    if (driver->ops->begin_step)
        status = driver->ops->begin_step(driver->strategy, index);
    if (!status)
        status = (int32_t)ls_replica_run(member->replica, &divided, step, learning_rate,
                                         stop ? 1.0f : 0.0f, &hooks);
    if (!status)
        status = driver->ops->end_step(driver->strategy, index);
    if (!status)
        status = (int32_t)ls_replica_refresh(member->replica);
    return (enum ls_status)status;
}

enum ls_status ls_driver_step(struct ls_driver *driver, uint32_t index,
                              const struct ls_replica_batch *batch, uint64_t step,
                              double learning_rate, bool stop, struct ls_step_result *out)
{
    struct member *member = &driver->members[index];
    member->replica->times = (struct ls_replica_times){0};
    const enum ls_status status = run_step(driver, member, index, batch, step, learning_rate, stop);
    if (status)
        return status;
    struct ls_communication_times communication = {0};
    if (member->communicator)
        ls_communicator_times(member->communicator, 1, &communication);
    memcpy(out->sums, member->tail, sizeof(out->sums));
    out->stop = member->tail[LS_TAIL_STOP] > 0;
    out->compute_ns = member->replica->times.compute_ns;
    out->update_ns = member->replica->times.update_ns;
    out->communication_ns = communication.busy_ns;
    out->exposed_ns = communication.exposed_ns;
    return LS_OK;
}

enum ls_status ls_driver_place(struct ls_driver *driver, uint32_t replica)
{
    return (enum ls_status)driver->ops->place(driver->strategy, replica);
}

enum ls_status ls_driver_synchronise(struct ls_driver *driver, uint32_t replica)
{
    if (!driver->ops->synchronise)
        return LS_OK;
    return (enum ls_status)driver->ops->synchronise(driver->strategy, replica);
}

void ls_driver_explain(struct ls_driver *driver)
{
    if (!atomic_exchange(&driver->not_finite, false))
        return;
    const unsigned long long step = driver->members[0].replica->host_record.step;
    char text[128] = "", whose[32] = "";
    uint32_t i = 0;
    for (; i < driver->count && !text[0]; i++)
        if (ls_replica_find_not_finite(driver->members[i].replica, text, sizeof(text)))
            text[0] = '\0';
    if (!text[0]) {
        ls_error("train",
                 "step %llu: the loss is not finite, though all values that it is made of are: the "
                 "sum overflows; try a smaller learning rate, or check the data",
                 step);
        return;
    }
    if (driver->count > 1)
        snprintf(whose, sizeof(whose), " of replica %u", i - 1);
    ls_error("train",
             "step %llu: the loss is not finite; the first value that is not finite is in '%s'%s; "
             "try a smaller learning rate, or check the data",
             step, text, whose);
}

void ls_driver_abort(struct ls_driver *driver)
{
    for (uint32_t i = 0; driver->communicators && i < driver->count; i++)
        if (driver->communicators[i])
            ls_communicator_abort(driver->communicators[i]);
}

uint64_t ls_driver_bytes_per_step(const struct ls_driver *driver)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; driver->communicators && i < driver->bucket_count; i++)
        bytes += ls_collective_plan_bytes(driver->members[0].reduce[i]);
    return bytes;
}
