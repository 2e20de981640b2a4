// SPDX-License-Identifier: Apache-2.0
// The host table's calls on a replica: collectives, its memory, decision and update.
#include "core/strategy/internal.h"

#include "core/base/clock.h"
#include "core/base/inside.h"
#include "core/base/log.h"
#include "core/base/trace.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

_Static_assert(LS_STRATEGY_SUMS == LS_STEP_STATS,
               "the step's statistics is what strategies are shown");
_Static_assert(LS_SUMS_STOP == LS_STEP_STATS_STOP,
               "the step's statistics is what strategies are shown");

// What a plugin passes to a call may not exist. NULL, logged: there is no such replica, or not yet.
struct ls_driver_member *ls_driver_find_member(const struct ls_strategy_host *table,
                                               const char *call, uint32_t replica)
{
    struct ls_driver *driver = ls_driver_of(table);
    if (replica < driver->count && driver->members[replica].replica)
        return &driver->members[replica];
    if (replica < driver->count) {
        ls_error(ls_driver_name(driver),
                 "%s in open, when replicas have no buffers yet: an error of the plugin", call);
        return NULL;
    }
    ls_error(ls_driver_name(driver), "%s for replica %u, but there are %u: an error of the plugin",
             call, replica, driver->count);
    return NULL;
}

// The same for calls that cannot answer that.
struct ls_driver_member *ls_driver_need_member(const struct ls_strategy_host *table,
                                               const char *call, uint32_t replica)
{
    struct ls_driver_member *member = ls_driver_find_member(table, call, replica);
    if (!member)
        ls_driver_fail(ls_driver_of(table), LS_FAILED);
    return member;
}

// ---- Collectives ----

bool ls_driver_may_communicate(const struct ls_driver *driver, const char *what, uint32_t number,
                               uint32_t count)
{
    if (driver->communicators && number < count)
        return true;
    if (!driver->communicators)
        ls_error(ls_driver_name(driver),
                 "%s without a collective: the plugin must set needs_collective", what);
    else
        ls_error(ls_driver_name(driver), "%s %u, but there are %u: an error of the plugin", what,
                 number, count);
    return false;
}

// What others say of this worker should they lose it.
static void say_bucket(const struct ls_driver *driver, const struct ls_driver_member *member,
                       uint32_t bucket)
{
    char where[32];
    if (driver->count == driver->world || member != &driver->members[0])
        return;
    snprintf(where, sizeof(where), "bucket %u", bucket);
    ls_cluster_say(driver->options.cluster, member->step, where);
}

enum ls_status ls_driver_start_counts(const struct ls_driver_member *member)
{
    if (!member->counts)
        return LS_OK;
    const enum ls_status status = ls_replica_step_counts(member->replica);
    return status ? status : ls_collective_start(member->counts);
}

enum ls_status ls_driver_wait_for_counts(const struct ls_driver_member *member)
{
    return member->counts ? ls_collective_wait(member->counts) : LS_OK;
}

static int32_t host_all_reduce_start(const struct ls_strategy_host *table, uint32_t replica,
                                     uint32_t bucket)
{
    const struct ls_driver *driver = ls_driver_of(table);
    const struct ls_driver_member *member =
        ls_driver_find_member(table, "all_reduce_start", replica);
    if (!member || !ls_driver_may_communicate(driver, "all_reduce_start of bucket", bucket,
                                              driver->bucket_count))
        return LS_FAILED;
    struct ls_collective_plan *whole = member->whole[bucket], *reduce = member->reduce[bucket];
    say_bucket(driver, member, bucket);
    enum ls_status status = bucket == 0 ? ls_driver_start_counts(member) : LS_OK;
    if (!status && whole)
        status = ls_collective_start(whole);
    return (int32_t)(status || !reduce ? status : ls_collective_start(reduce));
}

static int32_t host_all_reduce_wait(const struct ls_strategy_host *table, uint32_t replica,
                                    uint32_t bucket)
{
    const struct ls_driver *driver = ls_driver_of(table);
    const struct ls_driver_member *member =
        ls_driver_find_member(table, "all_reduce_wait", replica);
    if (!member || !ls_driver_may_communicate(driver, "all_reduce_wait for bucket", bucket,
                                              driver->bucket_count))
        return LS_FAILED;
    struct ls_collective_plan *whole = member->whole[bucket], *reduce = member->reduce[bucket];
    enum ls_status status = bucket == 0 ? ls_driver_wait_for_counts(member) : LS_OK;
    if (!status && whole)
        status = ls_collective_wait(whole);
    return (int32_t)(status || !reduce ? status : ls_collective_wait(reduce));
}

// Before the host waits for what a collective has made.
static enum ls_status synchronize(struct ls_driver_member *member)
{
    const enum ls_status status = member->total_communicator
                                      ? ls_communicator_synchronize(member->total_communicator)
                                      : LS_OK;
    return status || !member->communicator ? status
                                           : ls_communicator_synchronize(member->communicator);
}

static int32_t host_broadcast(const struct ls_strategy_host *table, uint32_t replica, uint32_t root)
{
    const struct ls_driver *driver = ls_driver_of(table);
    struct ls_driver_member *member = ls_driver_find_member(table, "broadcast_parameters", replica);
    if (!member ||
        !ls_driver_may_communicate(driver, "broadcast_parameters from rank", root, driver->world))
        return LS_FAILED;
    if (!member->broadcast[root]) {
        const enum ls_status status = ls_collective_plan_create(
            member->communicator, LS_BROADCAST,
            ls_replica_memory(member->replica, LS_BUFFER_PARAMETERS),
            driver->plan->flat_bytes / sizeof(float), LS_F32, // frozen ones, too
            LS_SUM, root, "parameters", &member->broadcast[root]);
        if (status)
            return (int32_t)status;
    }
    enum ls_status status = ls_collective_known_answer(member->broadcast[root]);
    if (!status)
        status = ls_collective_start(member->broadcast[root]);
    if (!status)
        status = ls_collective_wait(member->broadcast[root]);
    member->touched = true;
    return (int32_t)(status ? status : synchronize(member));
}

// ---- Decision and update ----

#define ROUNDING (1 + 1e-3) // of a sum of shares of examples

// Sums that no step can have: what computed, reduced or carried them is wrong. Logged once.
static enum ls_status refuse_sums(struct ls_driver *driver, uint64_t step, double examples,
                                  double right)
{
    const struct ls_driver_options *options = &driver->options;
    ls_inside_note_reason();
    if (atomic_exchange(&driver->wrong_sums, true))
        return LS_FAILED;
    ls_error(ls_driver_name(driver),
             "step %" PRIu64 ": the sums of the step say %g examples, %g of them right, which no "
             "batch of this run has: an error of device %s, strategy %s%s%s%s%s",
             step, examples, right, ls_replica_device_name(driver->members[0].replica),
             ls_driver_name(driver), options->collective.plugin ? ", collective " : "",
             options->collective.plugin ? options->collective.plugin->name : "",
             options->transport.plugin ? " or transport " : "",
             options->transport.plugin ? options->transport.plugin->name : "");
    return LS_FAILED;
}

// Why is said by ls_driver_explain, when all replicas have left the step: which of them has the cause in its share is
// not known here, and the first that fails may wake the others before they look.
enum ls_status ls_driver_judge(struct ls_driver *driver, struct ls_driver_member *member,
                               uint64_t step)
{
    const double examples = (double)member->step_stats[LS_SUMS_EXAMPLES];
    const double right = (double)member->step_stats[LS_SUMS_RIGHT];
    if (isfinite(member->step_stats[LS_SUMS_LOSS])) {
        const bool possible = examples >= (double)member->least_examples &&
                              examples <= (double)member->most_examples && right >= 0 &&
                              right <= examples * ROUNDING;
        return possible ? LS_OK : refuse_sums(driver, step, examples, right);
    }
    if (ls_optimizer_scales(&driver->optimizer) && !driver->ends_at_nan) { // the step is skipped
        ls_replica_note_overflow(member->replica);
        return LS_OK;
    }
    ls_inside_note_reason();
    member->not_finite = true;
    if (!atomic_exchange(&driver->not_finite, true))
        atomic_store(&driver->not_finite_step, step);
    return LS_FAILED;
}

static int32_t host_check_step(const struct ls_strategy_host *table, uint32_t replica)
{
    struct ls_driver *driver = ls_driver_of(table);
    struct ls_driver_member *member = ls_driver_find_member(table, "check_step", replica);
    if (!member)
        return LS_FAILED;
    if (driver->defers) {
        member->checked_late = true;
        return (int32_t)ls_replica_guard(member->replica);
    }
    enum ls_status status = synchronize(member);
    if (!status)
        status = ls_replica_read_step_stats(member->replica, member->step_stats);
    return (int32_t)(status ? status : ls_driver_judge(driver, member, member->step));
}

static int32_t host_check_step_on(const struct ls_strategy_host *table, uint32_t replica,
                                  const float *sums)
{
    struct ls_driver *driver = ls_driver_of(table);
    struct ls_driver_member *member = ls_driver_find_member(table, "check_step_on", replica);
    if (!member)
        return LS_FAILED;
    memcpy(member->step_stats, sums, sizeof(member->step_stats));
    member->checked_late = false;
    return (int32_t)ls_driver_judge(driver, member, member->step);
}

static int32_t host_read_sums(const struct ls_strategy_host *table, uint32_t replica, float *out)
{
    struct ls_driver_member *member = ls_driver_find_member(table, "read_sums", replica);
    if (!member)
        return LS_FAILED;
    const enum ls_status status = synchronize(member);
    return (int32_t)(status ? status : ls_replica_read_step_stats(member->replica, out));
}

static int32_t host_update(const struct ls_strategy_host *table, uint32_t replica, uint32_t bucket)
{
    const struct ls_driver *driver = ls_driver_of(table);
    if (bucket >= driver->bucket_count) {
        ls_error(ls_driver_name(driver),
                 "update of bucket %u, but there are %u: an error of the plugin", bucket,
                 driver->bucket_count);
        return LS_FAILED;
    }
    struct ls_driver_member *member = ls_driver_find_member(table, "update", replica);
    if (!member)
        return LS_FAILED;
    member->touched = true;
    if (driver->options.whole_steps && member->late_count < driver->bucket_count) {
        member->late[member->late_count++] = bucket;
        return LS_OK;
    }
    return (int32_t)ls_replica_update(member->replica, bucket);
}

static void host_current(const struct ls_strategy_host *table, uint32_t replica, uint64_t *number,
                         double *learning_rate)
{
    const struct ls_driver_member *member = ls_driver_need_member(table, "current", replica);
    if (number)
        *number = member ? member->step : 0;
    if (learning_rate)
        *learning_rate = member ? member->learning_rate : 0;
}

// ---- Memory ----

static bool exists(const struct ls_strategy_host *table, const char *what, uint32_t number,
                   uint32_t count)
{
    if (number < count)
        return true;
    ls_error(ls_driver_name(ls_driver_of(table)),
             "the range of %s %u, but there are %u: an error of the plugin", what, number, count);
    ls_driver_fail(ls_driver_of(table), LS_FAILED);
    return false;
}

static void host_bucket_range(const struct ls_strategy_host *table, uint32_t bucket,
                              uint64_t *first, uint64_t *count)
{
    *first = *count = 0;
    if (!exists(table, "bucket", bucket, table->bucket_count))
        return;
    const struct ls_bucket *range = &ls_driver_of(table)->buckets->list[bucket];
    *first = range->offset / sizeof(float);
    *count = range->bytes / sizeof(float);
}

static void host_variable_range(const struct ls_strategy_host *table, uint32_t variable,
                                uint64_t *first, uint64_t *count)
{
    *first = *count = 0;
    if (!exists(table, "variable", variable, table->variable_count))
        return;
    const struct ls_parameter_place *place = &ls_driver_of(table)->plan->places[variable];
    *first = place->offset / sizeof(float);
    *count = place->bytes / sizeof(float);
}

static struct ls_memory buffer_of(const struct ls_replica *replica, uint32_t memory)
{
    switch (memory) {
    case LS_REPLICA_PARAMETERS: return ls_replica_memory(replica, LS_BUFFER_PARAMETERS);
    case LS_REPLICA_GRADIENTS: return ls_replica_memory(replica, LS_BUFFER_GRADIENTS);
    default: return (struct ls_memory){NULL, 0};
    }
}

static float *host_map(const struct ls_strategy_host *table, uint32_t replica, uint32_t memory)
{
    const struct ls_driver_member *member = ls_driver_need_member(table, "map", replica);
    const struct ls_replica *own = member ? member->replica : NULL;
    return own && ls_device_in_host_memory(ls_replica_device(own))
               ? ls_address(buffer_of(own, memory))
               : NULL;
}

struct ls_memory ls_driver_range_of(const struct ls_strategy_host *table, const char *call,
                                    uint32_t replica, uint32_t memory, uint64_t first,
                                    uint64_t count)
{
    const struct ls_memory nowhere = {NULL, 0};
    const struct ls_driver_member *member = ls_driver_find_member(table, call, replica);
    if (!member)
        return nowhere;
    const uint64_t all = table->flat_count;
    const struct ls_memory buffer = buffer_of(member->replica, memory);
    if (!ls_memory_is_null(buffer) && first <= all && count <= all - first)
        return ls_memory_at(buffer, first * sizeof(float));
    ls_error(ls_driver_name(ls_driver_of(table)),
             "%s: %" PRIu64 " values from %" PRIu64
             " of memory %u of replica %u: there are %" PRIu64 "; an error of the plugin",
             call, count, first, memory, replica, ls_memory_is_null(buffer) ? 0 : all);
    return nowhere;
}

static const struct ls_trace_label read_span = {
    .category = "strategy", .name = "read from the replica", .value = "elements"};
static const struct ls_trace_label write_span = {
    .category = "strategy", .name = "write to the replica", .value = "elements"};

static int32_t host_read(const struct ls_strategy_host *table, uint32_t replica, uint32_t memory,
                         uint64_t first, uint64_t count, float *out)
{
    const struct ls_memory range = ls_driver_range_of(table, "read", replica, memory, first, count);
    if (ls_memory_is_null(range))
        return LS_FAILED;
    const struct ls_replica *own = ls_driver_of(table)->members[replica].replica;
    ls_trace_begin(&read_span, count);
    const enum ls_status status = ls_device_copy(ls_replica_device(own), ls_host_memory(out), range,
                                                 count * sizeof(float), NULL);
    ls_trace_end();
    return status;
}

static int32_t host_write(const struct ls_strategy_host *table, uint32_t replica, uint32_t memory,
                          uint64_t first, uint64_t count, const float *in)
{
    const struct ls_memory range =
        ls_driver_range_of(table, "write", replica, memory, first, count);
    if (ls_memory_is_null(range))
        return LS_FAILED;
    struct ls_driver_member *member = &ls_driver_of(table)->members[replica];
    const struct ls_replica *own = member->replica;
    member->touched = member->touched || memory == LS_REPLICA_PARAMETERS;
    ls_trace_begin(&write_span, count);
    const enum ls_status status = ls_device_copy(ls_replica_device(own), range, ls_host_memory(in),
                                                 count * sizeof(float), NULL);
    ls_trace_end();
    return status;
}

static void host_changed(const struct ls_strategy_host *table, uint32_t replica)
{
    struct ls_driver_member *member = ls_driver_need_member(table, "changed", replica);
    if (member)
        member->touched = true;
}

// ---- The tables ----

const struct ls_strategy_layout ls_driver_layout = {
    .struct_size = sizeof(ls_driver_layout),
    .bucket_range = host_bucket_range,
    .variable_range = host_variable_range,
};

const struct ls_strategy_collectives ls_driver_collectives = {
    .struct_size = sizeof(ls_driver_collectives),
    .all_reduce_start = host_all_reduce_start,
    .all_reduce_wait = host_all_reduce_wait,
    .broadcast_parameters = host_broadcast,
    .prepare = ls_driver_range_prepare,
    .start = ls_driver_range_start,
    .wait = ls_driver_range_wait,
};

const struct ls_strategy_step ls_driver_step_table = {
    .struct_size = sizeof(ls_driver_step_table),
    .current = host_current,
    .read_sums = host_read_sums,
    .check_step = host_check_step,
    .check_step_on = host_check_step_on,
    .update = host_update,
    .update_range = ls_driver_range_update,
};

const struct ls_strategy_memory ls_driver_memory = {
    .struct_size = sizeof(ls_driver_memory),
    .map = host_map,
    .read = host_read,
    .write = host_write,
    .changed = host_changed,
    .run = ls_driver_range_run,
};
