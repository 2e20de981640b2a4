// SPDX-License-Identifier: Apache-2.0
// Updates the buckets of a replica. Where the optimizer looks at all gradients together, a bucket
// is only measured, and the last one updates them all; or none, where a loss scale skips the step.
// Shadows follow the parameters.
#include "core/replica/programs.h"

#include "core/base/clock.h"
#include "core/base/inside.h"
#include "core/base/log.h"

#include <stdlib.h>

static const struct ls_trace_label update_span = {
    .category = "update", .name = "update", .value = "bucket"};
static const struct ls_trace_label shadows_span = {.category = "update", .name = "shadows"};

static uint64_t first_of(const struct ls_bucket *bucket)
{
    return bucket->offset / sizeof(float);
}

static uint64_t count_measures(const struct ls_replica *replica)
{
    return ls_updater_count_measures(replica->plan, replica->plan->statistics_bytes / sizeof(float),
                                     replica->plan->reduced_bytes / sizeof(float));
}

static enum ls_status prepare_bucket(struct ls_replica *replica, uint32_t index)
{
    const struct ls_bucket *bucket = &replica->buckets.list[index];
    const uint64_t trained = replica->plan->statistics_bytes / sizeof(float);
    const struct ls_updater_options options = {
        .device = replica->device,
        .about = "update",
        .plan = replica->plan,
        .optimizer = &replica->optimizer,
        .first = first_of(bucket),
        .end = first_of(bucket) + bucket->bytes / sizeof(float),
        .first_measure = first_of(bucket) <= trained
                             ? 0
                             : ls_updater_count_measures(replica->plan, trained, first_of(bucket)),
        .measures = count_measures(replica)};
    const char *missing = NULL;
    const enum ls_status status = ls_updater_create(&options, &missing, &replica->updates[index]);
    if (status == LS_UNSUPPORTED) {
        if (ls_device_tell_lack(replica->device, "has no operation %s", missing))
            return LS_UNAVAILABLE;
        ls_error("replica", "device %s has no operation %s%s; use another device",
                 replica->device_name, missing,
                 missing == ls_op_name(LS_OP_AVERAGE_UPDATE) ? ", which moving statistics need"
                                                             : "");
        return LS_UNAVAILABLE;
    }
    if (!status)
        ls_replica_need_scratch(replica, ls_updater_scratch_bytes(replica->updates[index]));
    return status;
}

enum ls_status ls_updates_prepare(struct ls_replica *replica)
{
    enum ls_status status = LS_OK;
    replica->updates = calloc(replica->buckets.count, sizeof(*replica->updates));
    replica->update_captures =
        calloc(replica->buckets.count + 1, sizeof(*replica->update_captures));
    if (!replica->updates || !replica->update_captures)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && replica->optimizer.op && i < replica->buckets.count; i++)
        status = prepare_bucket(replica, i);
    return status;
}

void ls_updates_release(struct ls_replica *replica)
{
    for (uint32_t i = 0; replica->updates && i < replica->buckets.count; i++)
        ls_updater_destroy(replica->updates[i]);
    free(replica->updates);
    free(replica->update_captures);
}

struct update {
    struct ls_replica *replica;
    uint32_t bucket;
};

static struct ls_updater_memory memory_of(const struct ls_replica *replica, uint32_t bucket)
{
    const uint64_t at = replica->buckets.list[bucket].offset;
    struct ls_updater_memory memory = ls_replica_updater_memory(replica, at / sizeof(float));
    memory.scratch = replica->scratch.memory;
    return memory;
}

// The last bucket that begins at float `first` or before it.
static uint32_t bucket_at(const struct ls_replica *replica, uint64_t first)
{
    uint32_t bucket = 0;
    while (bucket + 1 < replica->buckets.count &&
           first_of(&replica->buckets.list[bucket + 1]) <= first)
        bucket++;
    return bucket;
}

// A buffer from float `first` on, which the replica holds.
static struct ls_memory from(const struct ls_replica *replica, enum ls_held kind, uint32_t buffer,
                             uint32_t bucket, uint64_t first)
{
    const uint64_t in_part = first - replica->held[kind][bucket].range.first;
    return ls_memory_at(ls_replica_held_memory(replica, buffer, bucket), in_part * sizeof(float));
}

struct ls_updater_memory ls_replica_updater_memory(const struct ls_replica *replica, uint64_t first)
{
    const uint32_t bucket = bucket_at(replica, first);
    struct ls_updater_memory memory = {
        .gradients = from(replica, LS_HELD_GRADIENTS, LS_BUFFER_GRADIENTS, bucket, first),
        .parameters = from(replica, LS_HELD_PARAMETERS, LS_BUFFER_PARAMETERS, bucket, first),
        .measures = ls_memory_at(replica->measures, LS_UPDATER_OWN),
        .own = replica->measures,
        .record = replica->record,
    };
    for (uint32_t i = 0; i < replica->optimizer.state_count; i++)
        memory.states[i] = from(replica, LS_HELD_STATES, LS_BUFFER_STATE + i, bucket, first);
    return memory;
}

// ---- Loss scale ----

void ls_replica_set_scale(struct ls_replica *replica, const struct ls_loss_scale_state *state)
{
    replica->scale = *state;
}

const struct ls_loss_scale_state *ls_replica_scale(const struct ls_replica *replica)
{
    return &replica->scale;
}

const struct ls_loss_scale_state *ls_replica_scale_before(const struct ls_replica *replica)
{
    return &replica->scale_before;
}

void ls_replica_note_overflow(struct ls_replica *replica)
{
    replica->overflow = true;
}

bool ls_replica_has_overflow(const struct ls_replica *replica)
{
    return replica->overflow;
}

void ls_replica_decide(struct ls_replica *replica, bool finite)
{
    if (replica->decided)
        return;
    replica->decided = true;
    ls_loss_scale_step(&replica->optimizer.loss_scale, finite && !replica->overflow,
                       &replica->scale);
}

// All buckets are measured. The gradients are reduced, so all replicas find the same.
static enum ls_status decide(struct ls_replica *replica, bool *skips)
{
    const uint64_t count = count_measures(replica);
    const uint64_t skipped = replica->scale.skipped;
    const enum ls_status status = ls_device_copy(replica->device, ls_host_memory(replica->measured),
                                                 ls_memory_at(replica->measures, LS_UPDATER_OWN),
                                                 2 * count * sizeof(double), NULL);
    if (status)
        return status;
    ls_replica_decide(replica, ls_measures_finite(replica->measured, count));
    *skips = replica->scale.skipped != skipped;
    return LS_OK;
}

// ---- Updates ----

static enum ls_status launch_measure(void *context)
{
    const struct update *update = context;
    const struct ls_updater_memory memory = memory_of(update->replica, update->bucket);
    ls_inside_about("update");
    return ls_updater_measure(update->replica->updates[update->bucket], &memory);
}

enum ls_status ls_replica_measure(struct ls_replica *replica, uint64_t *count)
{
    enum ls_status status = LS_OK;
    *count = count_measures(replica);
    for (uint32_t i = 0; !status && i < replica->buckets.count; i++)
        status = launch_measure(&(struct update){replica, i});
    return status;
}

// Of the bucket; where all gradients are measured before, of all buckets.
static enum ls_status launch_updates(void *context)
{
    const struct update *update = context;
    struct ls_replica *replica = update->replica;
    enum ls_status status = LS_OK;
    ls_inside_about("update");
    for (uint32_t i = ls_optimizer_measures_all(&replica->optimizer) ? 0 : update->bucket;
         !status && i <= update->bucket; i++) {
        const struct ls_updater_memory memory = memory_of(replica, i);
        status = ls_updater_run(replica->updates[i], &memory);
    }
    return status;
}

static enum ls_status launch_update(void *context)
{
    const struct update *update = context;
    const struct ls_replica *replica = update->replica;
    const bool measures = ls_optimizer_measures_all(&replica->optimizer);
    const enum ls_status status = measures ? launch_measure(context) : LS_OK;
    return status || (measures && update->bucket + 1 < replica->buckets.count)
               ? status
               : launch_updates(context);
}

// The host looks at the measures between them and the updates, so that both are recorded by
// themselves.
static enum ls_status update_scaled(struct update *update)
{
    struct ls_replica *replica = update->replica;
    struct ls_capture *captures = replica->update_captures;
    bool skips = false;
    enum ls_status status =
        ls_capture_run(replica, &captures[update->bucket], launch_measure, update);
    if (status || update->bucket + 1 < replica->buckets.count)
        return status;
    status = decide(replica, &skips);
    return status || skips
               ? status
               : ls_capture_run(replica, &captures[replica->buckets.count], launch_updates, update);
}

enum ls_status ls_replica_update(struct ls_replica *replica, uint32_t index)
{
    const uint64_t start = ls_clock_ns();
    if (replica->buckets.list[index].bytes == 0 || !replica->updates[index])
        return LS_OK;
    struct update update = {replica, index};
    const enum ls_status status =
        ls_optimizer_scales(&replica->optimizer)
            ? update_scaled(&update)
            : ls_capture_run(replica, &replica->update_captures[index], launch_update, &update);
    const uint64_t end = ls_clock_ns();
    replica->update_ns += end - start;
    ls_trace_span(&update_span, start, end, index);
    return status;
}

// ---- Shadows ----

static enum ls_status launch_shadows(void *context)
{
    const struct ls_replica *replica = context;
    return ls_plan_refresh_shadows(replica->plan, replica->parameters, replica->shadows.memory,
                                   replica->scratch.memory);
}

enum ls_status ls_replica_refresh_slot(struct ls_replica *replica, uint32_t bucket)
{
    const struct ls_bucket *of = &replica->buckets.list[bucket];
    const struct ls_bindings bindings = {.parameters = replica->parameters,
                                         .parameters_at =
                                             replica->slots[LS_HELD_PARAMETERS].places_at,
                                         .shadows = replica->shadows.memory,
                                         .shadows_at = replica->shadows_at};
    return replica->shadows_at
               ? ls_plan_refresh_places(replica->plan, of->first_place, of->place_count, &bindings,
                                        replica->scratch.memory)
               : LS_OK;
}

enum ls_status ls_replica_refresh(struct ls_replica *replica)
{
    if (replica->plan->shadow_count == 0 || replica->slots[LS_HELD_PARAMETERS].count)
        return LS_OK; // in slots, they follow their buckets
    const uint64_t start = ls_clock_ns();
    const enum ls_status status =
        ls_capture_run(replica, &replica->shadows_capture, launch_shadows, replica);
    const uint64_t end = ls_clock_ns();
    replica->update_ns += end - start;
    ls_trace_span(&shadows_span, start, end, 0);
    return status;
}
