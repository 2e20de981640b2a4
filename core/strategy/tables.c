// SPDX-License-Identifier: Apache-2.0
// The host's tables for a replica: layout, collectives, the step, memory; of whole buckets and of
// ranges.
#include "core/strategy/internal.h"

#include "core/base/clock.h"
#include "core/base/inside.h"
#include "core/base/log.h"
#include "core/base/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(LS_STRATEGY_SUMS == LS_STEP_STATS,
               "the step's statistics is what strategies are shown");
_Static_assert(LS_SUMS_STOP == LS_STEP_STATS_STOP,
               "the step's statistics is what strategies are shown");

// ---- Collectives ----

// Whether whole buckets of the memory are in slots, while the replica holds parts.
static bool in_slots(const struct ls_driver_member *member, uint32_t memory)
{
    const bool gradients =
        memory == LS_REPLICA_GRADIENTS || memory == LS_REPLICA_SUMS_AND_GRADIENTS;
    const bool parameters =
        memory == LS_REPLICA_PARAMETERS || memory == LS_REPLICA_ROOM_AND_PARAMETERS;
    return (gradients || parameters) &&
           ls_replica_slot(member->replica, parameters ? LS_HELD_PARAMETERS : LS_HELD_GRADIENTS,
                           0) != LS_NO_SLOT;
}

static bool may_communicate(const struct ls_driver *driver, const char *what, uint32_t number,
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

static enum ls_status start_counts(const struct ls_driver_member *member)
{
    if (!member->counts)
        return LS_OK;
    const enum ls_status status = ls_replica_step_counts(member->replica);
    return status ? status : ls_collective_start(member->counts);
}

static enum ls_status wait_for_counts(const struct ls_driver_member *member)
{
    return member->counts ? ls_collective_wait(member->counts) : LS_OK;
}

static int32_t host_all_reduce_start(const struct ls_strategy_host *table, uint32_t replica,
                                     uint32_t bucket)
{
    const struct ls_driver *driver = ls_driver_of(table);
    struct ls_driver_member *member = ls_driver_find_member(table, "all_reduce_start", replica);
    if (!member ||
        !may_communicate(driver, "all_reduce_start of bucket", bucket, driver->bucket_count))
        return LS_FAILED;
    member->asked = true;
    if (driver->options.shards) // integers were added before the strategy heard of them
        return LS_OK;
    say_bucket(driver, member, bucket);
    if (ls_driver_filters(driver) && !member->filtered)
        return (int32_t)ls_driver_refuse_filter(member->driver,
                                                "has parts or rounds and sums whole buckets, too");
    struct ls_collective_plan *whole = member->whole[bucket], *reduce = member->reduce[bucket];
    struct ls_filtered *filtered = ls_driver_filtered(member, bucket);
    enum ls_status status = bucket == 0 ? start_counts(member) : LS_OK;
    if (status || filtered)
        return (int32_t)(status ? status : ls_driver_begin_filtered(member, filtered));
    if (whole)
        status = ls_collective_start(whole);
    return (int32_t)(status || !reduce ? status : ls_collective_start(reduce));
}

static int32_t host_all_reduce_wait(const struct ls_strategy_host *table, uint32_t replica,
                                    uint32_t bucket)
{
    const struct ls_driver *driver = ls_driver_of(table);
    struct ls_driver_member *member = ls_driver_find_member(table, "all_reduce_wait", replica);
    if (!member ||
        !may_communicate(driver, "all_reduce_wait for bucket", bucket, driver->bucket_count))
        return LS_FAILED;
    if (driver->options.shards)
        return LS_OK;
    struct ls_collective_plan *whole = member->whole[bucket], *reduce = member->reduce[bucket];
    struct ls_filtered *filtered = ls_driver_filtered(member, bucket);
    enum ls_status status = bucket == 0 ? wait_for_counts(member) : LS_OK;
    if (status || filtered)
        return (int32_t)(status ? status : ls_driver_finish_filtered(member, filtered));
    if (whole)
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
    if (!member || !may_communicate(driver, "broadcast_parameters from rank", root, driver->world))
        return LS_FAILED;
    if (in_slots(member, LS_REPLICA_PARAMETERS)) {
        ls_error(ls_driver_name(driver),
                 "broadcast_parameters, of which replica %u holds parts: an error of the plugin",
                 driver->first_rank + replica);
        return LS_FAILED;
    }
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
    if (in_slots(member, LS_REPLICA_GRADIENTS)) {
        ls_error(ls_driver_name(driver),
                 "update of bucket %u, of whose gradients replica %u holds a part; call "
                 "update_range: an error of the plugin",
                 bucket, driver->first_rank + replica);
        return LS_FAILED;
    }
    member->touched = true;
    // Under rounds nothing of a step that could fail follows its updates (core/plugin/rounds.h).
    if (driver->options.whole_steps && !driver->ops->rounds &&
        member->late_count < driver->bucket_count) {
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
    if (!exists(table, "bucket", bucket, table->bucket_count + table->frozen_buckets))
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

// Of rounds; NULL: the strategy has none.
static struct ls_memory round_of(const struct ls_driver_member *member, enum ls_round_memory memory)
{
    float *values = member->round[memory];
    return values ? ls_host_memory(values) : (struct ls_memory){NULL, 0};
}

// In front of parameters and gradients there are LS_STEP_STATS floats.
static struct ls_memory buffer_of(const struct ls_driver_member *member, uint32_t memory)
{
    const struct ls_replica *replica = member->replica;
    struct ls_memory parameters;
    switch (memory) {
    case LS_REPLICA_SUMS_AND_GRADIENTS: return ls_replica_memory(replica, LS_BUFFER_REDUCED);
    case LS_REPLICA_ROOM_AND_PARAMETERS:
        parameters = ls_replica_memory(replica, LS_BUFFER_PARAMETERS);
        parameters.offset -= LS_STEP_STATS_BYTES;
        return parameters;
    case LS_REPLICA_PARAMETERS: return ls_replica_memory(replica, LS_BUFFER_PARAMETERS);
    case LS_REPLICA_GRADIENTS: return ls_replica_memory(replica, LS_BUFFER_GRADIENTS);
    case LS_REPLICA_ROUND: return round_of(member, LS_ROUND_WEIGHTS);
    case LS_REPLICA_MOMENTUM: return round_of(member, LS_ROUND_MOMENTUM);
    case LS_REPLICA_DIFFERENCE: return round_of(member, LS_ROUND_DIFFERENCE);
    case LS_REPLICA_NOTES: return round_of(member, LS_ROUND_OWN_NOTES);
    default: return (struct ls_memory){NULL, 0};
    }
}

static bool is_longer(uint32_t memory)
{
    return memory == LS_REPLICA_SUMS_AND_GRADIENTS || memory == LS_REPLICA_ROOM_AND_PARAMETERS;
}

// What lies in front of them is the host's: collectives alone may have it.
static bool may_have(const struct ls_strategy_host *table, const char *call, uint32_t memory)
{
    if (!is_longer(memory))
        return true;
    ls_error(ls_driver_name(ls_driver_of(table)),
             "%s of memory %u, which is for collectives->prepare alone: an error of the plugin",
             call, memory);
    return false;
}

static float *host_map(const struct ls_strategy_host *table, uint32_t replica, uint32_t memory)
{
    const struct ls_driver_member *member = ls_driver_need_member(table, "map", replica);
    const struct ls_replica *own = member ? member->replica : NULL;
    if (!may_have(table, "map", memory)) {
        ls_driver_fail(ls_driver_of(table), LS_FAILED);
        return NULL;
    }
    return own && ls_device_in_host_memory(ls_replica_device(own))
               ? ls_address(buffer_of(member, memory))
               : NULL;
}

static struct ls_memory range_of(const struct ls_strategy_host *table, const char *call,
                                 uint32_t replica, uint32_t memory, uint64_t first, uint64_t count)
{
    const struct ls_memory nowhere = {NULL, 0};
    const struct ls_driver_member *member = ls_driver_find_member(table, call, replica);
    if (!member)
        return nowhere;
    const bool parameters = // of which frozen ones are behind
        memory == LS_REPLICA_PARAMETERS || memory == LS_REPLICA_ROOM_AND_PARAMETERS;
    const uint64_t values =
        parameters ? ls_driver_of(table)->plan->flat_bytes / sizeof(float) : table->flat_count;
    const uint64_t all = memory == LS_REPLICA_NOTES
                             ? LS_ROUND_NOTES
                             : values + (is_longer(memory) ? LS_STRATEGY_SUMS : 0);
    const struct ls_memory buffer = in_slots(member, memory) ? nowhere : buffer_of(member, memory);
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
    if (!may_have(table, "read", memory))
        return LS_FAILED;
    const struct ls_memory range = range_of(table, "read", replica, memory, first, count);
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
    if (!may_have(table, "write", memory))
        return LS_FAILED;
    const struct ls_memory range = range_of(table, "write", replica, memory, first, count);
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

static const struct ls_trace_label update_span = {
    .category = "update", .name = "update of a range", .value = "elements"};
static const struct ls_trace_label run_span = {
    .category = "strategy", .name = "operation on a range", .value = "elements"};

// ---- Ranges: collectives ----

// A kernel for a number of floats; prepared when it is first needed and kept until the driver is
// closed.
struct ls_range_kernel {
    struct ls_range_kernel *next; // of the member
    uint32_t op;
    struct ls_op_attributes attributes;
    uint64_t count;
    struct ls_kernel *kernel;
    struct ls_memory scratch;
};

// What updates a range.
struct ls_range_updater {
    struct ls_range_updater *next; // of the member
    uint64_t first, count;
    struct ls_updater *updater;
    struct ls_memory scratch;
};

struct ls_strategy_collective {
    struct ls_strategy_collective *next; // of the member
    struct ls_collective_plan *plan; // NULL: nothing is to be done
    struct ls_filtered *filtered; // NULL: no filter sums it
    bool by_filter; // what was begun: until it begins to work, `plan` sums
    bool counts_at_once; // what a filter has summed, whatever becomes of the step
    bool writes_parameters;
    bool keeps; // of what it leaves in the slot of `bucket`, the replica keeps its part
    bool fills; // the slot of `bucket` begins with the part that the replica holds
    uint32_t bucket;
    bool sums; // of the step
    bool added; // all ranks have the sums of integers already: there is no plan
};

static struct ls_memory sums_of(const struct ls_strategy_host *table, uint32_t replica)
{
    const struct ls_driver_member *member = ls_driver_find_member(table, "prepare", replica);
    return member ? ls_replica_memory(member->replica, LS_BUFFER_REDUCED)
                  : (struct ls_memory){NULL, 0};
}

// Sums of gradients may be rounded, but not a range that begins with moving statistics, as it is
// cut among the ranks as a whole.
static uint32_t wire_of(const struct ls_driver *driver,
                        const struct ls_strategy_operation *operation)
{
    return ls_operation_reduces(operation->operation) &&
                   operation->memory == LS_REPLICA_GRADIENTS &&
                   operation->first >= driver->table.trained_first
               ? driver->options.wire
               : 0;
}

// In front of bucket 0 there are LS_STEP_STATS floats.
static struct ls_memory slot_of(const struct ls_replica *replica, bool parameters, bool longer,
                                uint32_t bucket)
{
    struct ls_memory slot = ls_replica_bucket_memory(
        replica, parameters ? LS_BUFFER_PARAMETERS : LS_BUFFER_GRADIENTS, bucket);
    slot.offset -= longer ? LS_STEP_STATS_BYTES : 0;
    return slot;
}

// The slot of the bucket that the operation is on.
static struct ls_memory find_slot(const struct ls_strategy_host *table, uint32_t replica,
                                  const struct ls_strategy_operation *operation, uint32_t *bucket)
{
    const struct ls_driver *driver = ls_driver_of(table);
    const bool longer = operation->memory == LS_REPLICA_SUMS_AND_GRADIENTS ||
                        operation->memory == LS_REPLICA_ROOM_AND_PARAMETERS;
    const bool parameters = operation->memory == LS_REPLICA_PARAMETERS ||
                            operation->memory == LS_REPLICA_ROOM_AND_PARAMETERS;
    const uint32_t count = parameters ? driver->buckets->all : driver->bucket_count;
    for (*bucket = 0; *bucket < (longer ? 1 : count); ++*bucket) {
        const struct ls_bucket *range = &driver->buckets->list[*bucket];
        if (operation->first == range->offset / sizeof(float) &&
            operation->count == range->bytes / sizeof(float) + (longer ? LS_STRATEGY_SUMS : 0))
            return slot_of(driver->members[replica].replica, parameters, longer, *bucket);
    }
    ls_error(ls_driver_name(driver),
             "prepare: %" PRIu64 " values from %" PRIu64 " of memory %u are no whole bucket, and "
             "replica %u holds parts of these: an error of the plugin",
             operation->count, operation->first, operation->memory, replica);
    return (struct ls_memory){NULL, 0};
}

// Gradients, and differences of rounds.
static bool may_be_filtered(const struct ls_driver *driver,
                            const struct ls_strategy_operation *operation)
{
    return ls_driver_filters(driver) && ls_operation_reduces(operation->operation) &&
           (operation->memory == LS_REPLICA_GRADIENTS ||
            operation->memory == LS_REPLICA_SUMS_AND_GRADIENTS ||
            operation->memory == LS_REPLICA_DIFFERENCE);
}

// Where the filter takes nothing of the range, `collective->filtered` stays NULL.
static enum ls_status open_filtered(struct ls_driver_member *member,
                                    const struct ls_strategy_operation *operation,
                                    struct ls_memory values, const char *label,
                                    struct ls_strategy_collective *collective)
{
    const bool longer = operation->memory == LS_REPLICA_SUMS_AND_GRADIENTS;
    const struct ls_filtered_range range = {
        .operation = operation->operation == LS_REDUCE_SCATTER ? LS_REDUCE_SCATTER : LS_ALL_REDUCE,
        .bucket = collective->bucket,
        .first = operation->first + (longer ? 0 : LS_STEP_STATS),
        .count = operation->count,
        .values = ls_address(values),
        .kept = collective->keeps,
        .label = label};
    if (member->filtered)
        return ls_driver_refuse_filter(member->driver,
                                       "sums ranges of gradients beside whole buckets");
    collective->counts_at_once = operation->memory == LS_REPLICA_DIFFERENCE;
    enum ls_status status = ls_driver_check_overlap(member, &range);
    if (!status)
        status = ls_driver_open_filtered(member, &range, &collective->filtered);
    return status || !collective->filtered ? status : ls_driver_try_filtered(collective->filtered);
}

static int32_t range_prepare(const struct ls_strategy_host *table, uint32_t replica,
                             const struct ls_strategy_operation *operation,
                             struct ls_strategy_collective **out)
{
    struct ls_driver *driver = ls_driver_of(table);
    if (driver->traits.capturable) { // nobody would count its bytes where a step is replayed
        ls_error(ls_driver_name(driver), "prepare by a strategy that says that it is capturable, "
                                         "which one on ranges is not: an error of the plugin");
        return LS_FAILED;
    }
    const bool sums = operation->memory == LS_REPLICA_SUMS && operation->first == 0 &&
                      operation->count == LS_STRATEGY_SUMS;
    const struct ls_driver_member *of = ls_driver_find_member(table, "prepare", replica);
    const bool slots = of && in_slots(of, operation->memory);
    // Where nothing is trained there are no gradients, and nothing is to be done with them.
    const bool nothing =
        driver->options.forward && (operation->memory == LS_REPLICA_GRADIENTS ||
                                    operation->memory == LS_REPLICA_SUMS_AND_GRADIENTS);
    uint32_t bucket = 0;
    const struct ls_memory range = sums || nothing ? sums_of(table, replica)
                                   : slots         ? find_slot(table, replica, operation, &bucket)
                                           : range_of(table, "prepare", replica, operation->memory,
                                                      operation->first, operation->count);
    if (ls_memory_is_null(range) ||
        !may_communicate(driver, "prepare with root", operation->root, driver->world))
        return LS_FAILED;
    if (slots && in_slots(of, LS_REPLICA_PARAMETERS) &&
        (operation->memory == LS_REPLICA_PARAMETERS ||
         operation->memory == LS_REPLICA_ROOM_AND_PARAMETERS) &&
        operation->operation != LS_ALL_GATHER) {
        ls_error(ls_driver_name(driver),
                 "prepare: operation %u on parameters, of which ranks hold parts that can only be "
                 "gathered: an error of the plugin",
                 operation->operation);
        return LS_FAILED;
    }
    struct ls_driver_member *member = &driver->members[replica];
    struct ls_strategy_collective *collective = calloc(1, sizeof(*collective));
    if (!collective)
        return LS_OUT_OF_MEMORY;
    char label[32];
    snprintf(label, sizeof(label), "range %" PRIu64, operation->first);
    collective->sums = sums;
    collective->bucket = bucket;
    collective->writes_parameters = operation->memory == LS_REPLICA_PARAMETERS ||
                                    operation->memory == LS_REPLICA_ROOM_AND_PARAMETERS;
    collective->keeps = slots && !collective->writes_parameters;
    collective->fills = slots && collective->writes_parameters;
    collective->added = driver->options.shards && !collective->writes_parameters &&
                        ls_operation_reduces(operation->operation);
    struct ls_communicator_call call = {.operation = operation->operation,
                                        .dtype = LS_F32,
                                        .reduction = LS_SUM,
                                        .root = operation->root,
                                        .buffer = range,
                                        .count = operation->count,
                                        .wire = wire_of(driver, operation),
                                        .keeps_infinite = ls_optimizer_scales(&driver->optimizer)};
    if (call.wire)
        call.halves = ls_driver_halves(member, range);
    member->rounds = member->rounds || call.wire;
    enum ls_status status = LS_OK;
    if (!nothing && may_be_filtered(driver, operation))
        status = open_filtered(member, operation, range, label, collective);
    if (!status && !collective->added && !nothing &&
        (!collective->filtered || ls_driver_begins_plain(driver)))
        status = ls_collective_plan_open(member->communicator, &call, sums ? "sums" : label,
                                         &collective->plan);
    if (!status && collective->plan)
        status = ls_collective_known_answer(collective->plan);
    if (status) {
        ls_collective_plan_destroy(collective->plan);
        free(collective);
        return (int32_t)status;
    }
    collective->next = member->collectives;
    member->collectives = collective;
    *out = collective;
    return LS_OK;
}

static int32_t range_start(const struct ls_strategy_host *table, uint32_t replica,
                           struct ls_strategy_collective *collective)
{
    struct ls_driver_member *member = ls_driver_find_member(table, "start", replica);
    if (!member)
        return LS_FAILED;
    member->asked = member->asked || collective->added;
    enum ls_status status = collective->sums ? start_counts(member) : LS_OK;
    if (!status && collective->fills)
        status = ls_replica_fill_slot(member->replica, collective->bucket);
    collective->by_filter = collective->filtered && member->filters;
    if (!status && collective->by_filter) {
        member->bytes += ls_driver_filtered_bytes(collective->filtered);
        return (int32_t)ls_driver_begin_filtered(member, collective->filtered);
    }
    if (status || !collective->plan)
        return (int32_t)status;
    member->bytes += ls_collective_plan_bytes(collective->plan);
    return (int32_t)ls_collective_start(collective->plan);
}

static int32_t range_wait(const struct ls_strategy_host *table, uint32_t replica,
                          struct ls_strategy_collective *collective)
{
    struct ls_driver_member *member = ls_driver_find_member(table, "wait", replica);
    if (!member)
        return LS_FAILED;
    member->touched = member->touched || (collective->writes_parameters && !collective->fills);
    enum ls_status status = collective->sums ? wait_for_counts(member) : LS_OK;
    if (!status && collective->plan && !collective->by_filter)
        status = ls_collective_wait(collective->plan);
    if (!status && collective->by_filter)
        status = ls_driver_finish_filtered(member, collective->filtered);
    if (!status && collective->by_filter && collective->counts_at_once)
        ls_driver_settle_filtered(collective->filtered);
    if (!status && collective->keeps && !collective->by_filter)
        status = ls_replica_keep_gradients(member->replica, collective->bucket);
    if (!status && collective->fills)
        status = ls_replica_refresh_slot(member->replica, collective->bucket);
    return (int32_t)status;
}

void ls_driver_close_ranges(struct ls_driver_member *member)
{
    while (member->collectives) {
        struct ls_strategy_collective *collective = member->collectives;
        member->collectives = collective->next;
        ls_collective_plan_destroy(collective->plan);
        free(collective);
    }
    while (member->kernels) {
        struct ls_range_kernel *kernel = member->kernels;
        const struct ls_replica *replica = member->replica;
        member->kernels = kernel->next;
        ls_device_release_kernel(ls_replica_device(replica), kernel->kernel);
        ls_device_release(ls_replica_device(replica), kernel->scratch);
        free(kernel);
    }
    while (member->updaters) {
        struct ls_range_updater *range = member->updaters;
        member->updaters = range->next;
        ls_updater_destroy(range->updater);
        ls_device_release(ls_replica_device(member->replica), range->scratch);
        free(range);
    }
}

// ---- Ranges: updates and operations ----

static enum ls_status prepare_kernel(const struct ls_replica *replica,
                                     struct ls_range_kernel *kernel)
{
    const struct ls_range_operation operation = {.op = kernel->op,
                                                 .attributes = &kernel->attributes,
                                                 .input_count = 1,
                                                 .output_count = 1,
                                                 .count = kernel->count};
    struct ls_kernel_answer answer;
    const enum ls_status status = ls_device_prepare_range(
        ls_replica_device(replica), "operation on a range", &operation, &answer);
    if (status)
        return status;
    kernel->kernel = answer.kernel;
    if (!(answer.in_place & 1)) // it has to write where it reads
        return LS_UNSUPPORTED;
    if (answer.scratch_bytes)
        kernel->scratch = ls_device_allocate(ls_replica_device(replica), answer.scratch_bytes);
    return answer.scratch_bytes && ls_memory_is_null(kernel->scratch) ? LS_OUT_OF_MEMORY : LS_OK;
}

static enum ls_status need_kernel(struct ls_driver_member *member, uint32_t op,
                                  const struct ls_op_attributes *attributes, uint64_t count,
                                  const struct ls_range_kernel **out)
{
    const struct ls_replica *replica = member->replica;
    for (*out = member->kernels; *out; *out = (*out)->next)
        if ((*out)->op == op && (*out)->count == count &&
            memcmp(&(*out)->attributes, attributes, sizeof(*attributes)) == 0)
            return LS_OK;
    struct ls_range_kernel *kernel = calloc(1, sizeof(*kernel));
    if (!kernel)
        return LS_OUT_OF_MEMORY;
    kernel->op = op;
    kernel->attributes = *attributes;
    kernel->count = count;
    const enum ls_status status = prepare_kernel(replica, kernel);
    if (status) {
        if (kernel->kernel)
            ls_device_release_kernel(ls_replica_device(replica), kernel->kernel);
        free(kernel);
        return status;
    }
    kernel->next = member->kernels;
    member->kernels = kernel;
    *out = kernel;
    return LS_OK;
}

static int32_t launch(const struct ls_replica *replica, const struct ls_range_kernel *kernel,
                      const struct ls_memory *arguments, uint32_t count)
{
    const struct ls_launch launch = {.struct_size = sizeof(launch),
                                     .argument_count = count,
                                     .arguments = arguments,
                                     .scratch = kernel->scratch,
                                     .record = ls_replica_step_record(replica)};
    return (int32_t)ls_device_launch(ls_replica_device(replica), kernel->kernel, &launch);
}

// Kernels want memory that is aligned as devices allocate it.
static bool is_aligned(const struct ls_strategy_host *table, const char *call, uint64_t first)
{
    if (first % (LS_ALIGNMENT / sizeof(float)) == 0)
        return true;
    ls_error(ls_driver_name(ls_driver_of(table)),
             "%s from float %" PRIu64 ", which is no multiple of %zu: an error of the plugin", call,
             first, LS_ALIGNMENT / sizeof(float));
    return false;
}

// The updater of a range is made when it is first needed, and kept until the driver is closed.
static enum ls_status need_updater(struct ls_driver *driver, struct ls_driver_member *member,
                                   uint64_t first, uint64_t count, struct ls_range_updater **out)
{
    const bool measures = ls_optimizer_measures_all(&driver->optimizer);
    for (*out = member->updaters; *out; *out = (*out)->next)
        if ((*out)->first == first && (*out)->count == count)
            return LS_OK;
    if (ls_updater_cuts_variables(driver->plan, &driver->optimizer, first, first + count)) {
        ls_error(ls_driver_name(driver),
                 "update_range of %" PRIu64 " values from %" PRIu64
                 " is not of whole variables, as optimizer %s needs them: an error of the plugin",
                 count, first, driver->optimizer.name);
        return LS_FAILED;
    }
    struct ls_range_updater *range = calloc(1, sizeof(*range));
    const struct ls_updater_options options = {.device = ls_replica_device(member->replica),
                                               .about = "update of a range",
                                               .plan = driver->plan,
                                               .optimizer = &driver->optimizer,
                                               .first = first,
                                               .end = first + count,
                                               .first_measure = 1 + member->range_measures,
                                               .measures = measures};
    const char *missing = NULL;
    enum ls_status status =
        range ? ls_updater_create(&options, &missing, &range->updater) : LS_OUT_OF_MEMORY;
    const uint64_t scratch = status ? 0 : ls_updater_scratch_bytes(range->updater);
    if (scratch) {
        range->scratch = ls_device_allocate(options.device, scratch);
        status = ls_memory_is_null(range->scratch) ? LS_OUT_OF_MEMORY : LS_OK;
    }
    if (status) {
        if (range)
            ls_updater_destroy(range->updater);
        free(range);
        return status;
    }
    range->first = first;
    range->count = count;
    range->next = member->updaters;
    *out = member->updaters = range;
    return LS_OK;
}

static enum ls_status run_updater(const struct ls_driver_member *member,
                                  const struct ls_range_updater *range, bool measures)
{
    struct ls_updater_memory memory = ls_replica_updater_memory(member->replica, range->first);
    memory.scratch = range->scratch;
    ls_inside_about("update of a range");
    return measures ? ls_updater_measure(range->updater, &memory)
                    : ls_updater_run(range->updater, &memory);
}

// Where the optimizer looks at all gradients together, a range is only measured, and the last one of
// the step updates them all; or none, where a loss scale skips the step. Without a norm of all ranks
// the last one measures, too.
static enum ls_status update_measured(struct ls_driver *driver, struct ls_driver_member *member,
                                      uint64_t first, uint64_t count)
{
    struct ls_range_updater *range = NULL;
    enum ls_status status = LS_OK;
    bool skips = false;
    if (!member->measured || member->measured_count == driver->bucket_count) {
        ls_error(ls_driver_name(driver),
                 "update_range of %" PRIu64
                 " values: the optimizer needs all gradients together (LS_NORM_OF_ALL), so that it "
                 "is called once for each bucket, by a strategy with a placement and a collective: "
                 "an error of the plugin",
                 count);
        return LS_FAILED;
    }
    if (count)
        status = need_updater(driver, member, first, count, &range);
    if (!status && count && member->norm)
        status = run_updater(member, range, true);
    if (status)
        return status;
    member->measured[member->measured_count++] = range;
    const uint64_t trained = driver->table.trained_first, end = first + count;
    if (end > trained)
        member->range_measures +=
            ls_updater_count_measures(driver->plan, first > trained ? first : trained, end);
    if (member->measured_count < driver->bucket_count)
        return LS_OK;
    status = ls_driver_add_norms(driver, member, &skips);
    for (uint32_t i = 0; !status && !skips && i < driver->bucket_count; i++)
        if (member->measured[i])
            status = run_updater(member, member->measured[i], false);
    return status;
}

// Whether the replica has states for all of the range.
static bool holds(const struct ls_driver *driver, const struct ls_driver_member *member,
                  uint64_t first, uint64_t count)
{
    for (uint32_t i = 0; i < driver->bucket_count; i++) {
        const struct ls_held_range held = ls_replica_held(member->replica, LS_HELD_STATES, i);
        if (first >= held.first && first - held.first <= held.count &&
            count <= held.count - (first - held.first))
            return true;
    }
    ls_error(ls_driver_name(driver),
             "update_range of %" PRIu64 " values from %" PRIu64
             ", of which replica %u does not hold the states: an error of the plugin",
             count, first, driver->first_rank + member->index);
    return false;
}

static int32_t range_update(const struct ls_strategy_host *table, uint32_t replica, uint64_t first,
                            uint64_t count)
{
    struct ls_driver *driver = ls_driver_of(table);
    struct ls_driver_member *member = ls_driver_find_member(table, "update_range", replica);
    const bool slots = member && in_slots(member, LS_REPLICA_GRADIENTS);
    if (!member ||
        (!slots && ls_memory_is_null(range_of(table, "update_range", replica, LS_REPLICA_GRADIENTS,
                                              first, count))) ||
        !is_aligned(table, "update_range", first))
        return LS_FAILED;
    const bool measures = ls_optimizer_measures_all(&driver->optimizer);
    if (driver->optimizer.op == LS_OP_NONE || (count == 0 && !measures))
        return LS_OK;
    if (count && !holds(driver, member, first, count))
        return LS_FAILED;
    const uint64_t start = ls_clock_ns();
    struct ls_range_updater *range;
    member->touched = member->touched || !in_slots(member, LS_REPLICA_PARAMETERS);
    enum ls_status status = measures ? update_measured(driver, member, first, count)
                                     : need_updater(driver, member, first, count, &range);
    if (!status && !measures)
        status = run_updater(member, range, false);
    const uint64_t end = ls_clock_ns();
    member->own_update_ns += end - start;
    ls_trace_span(&update_span, start, end, count);
    return (int32_t)status;
}

static int32_t range_run(const struct ls_strategy_host *table, uint32_t replica,
                         const struct ls_strategy_range_operation *operation)
{
    const struct ls_range_kernel *kernel;
    if (!may_have(table, "run", operation->memory))
        return LS_FAILED;
    const struct ls_memory range =
        range_of(table, "run", replica, operation->memory, operation->first, operation->count);
    if (ls_memory_is_null(range) || !is_aligned(table, "run", operation->first))
        return LS_FAILED;
    struct ls_driver_member *member = &ls_driver_of(table)->members[replica];
    if (operation->count == 0)
        return LS_OK;
    const enum ls_status status =
        need_kernel(member, operation->op, &operation->attributes, operation->count, &kernel);
    if (status)
        return (int32_t)status;
    const struct ls_memory arguments[2] = {range, range};
    member->touched = member->touched || operation->memory == LS_REPLICA_PARAMETERS;
    ls_inside_about("operation on a range");
    ls_trace_begin(&run_span, operation->count);
    const int32_t launched = launch(member->replica, kernel, arguments, 2);
    ls_trace_end();
    return launched;
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
    .prepare = range_prepare,
    .start = range_start,
    .wait = range_wait,
};

const struct ls_strategy_step ls_driver_step_table = {
    .struct_size = sizeof(ls_driver_step_table),
    .current = host_current,
    .read_sums = host_read_sums,
    .check_step = host_check_step,
    .check_step_on = host_check_step_on,
    .update = host_update,
    .update_range = range_update,
};

const struct ls_strategy_memory ls_driver_memory = {
    .struct_size = sizeof(ls_driver_memory),
    .map = host_map,
    .read = host_read,
    .write = host_write,
    .changed = host_changed,
    .run = range_run,
};
