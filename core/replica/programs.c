// SPDX-License-Identifier: Apache-2.0
// Makes programs and lets the memory grow that they share.
#include "core/replica/programs.h"
#include "core/replica/input.h"
#include "core/replica/microbatches.h"
#include "core/replica/shard_sums.h"

#include "core/base/log.h"

#include <stdlib.h>

struct ls_replica_program *ls_programs_find(const struct ls_replica *replica, uint64_t count,
                                            enum ls_purpose purpose)
{
    for (uint32_t i = 0; i < replica->program_count; i++) {
        struct ls_replica_program *entry = replica->programs[i];
        if (entry->purpose == purpose && (uint64_t)entry->program->options.batch == count)
            return entry;
    }
    return NULL;
}

struct ls_program *ls_replica_training_program(const struct ls_replica *replica, uint64_t count,
                                               uint64_t *runs)
{
    const struct ls_replica_program *entry = ls_programs_find(replica, count, LS_PURPOSE_TRAIN);
    if (runs)
        *runs = entry ? entry->runs : 0;
    return entry ? entry->program : NULL;
}

void ls_programs_forget_times(struct ls_replica_program *entry)
{
    entry->runs = 0;
    for (uint32_t i = 0; entry->program && i < entry->program->step_count; i++)
        entry->program->steps[i].nanoseconds = 0;
}

void ls_replica_forget_times(struct ls_replica *replica)
{
    for (uint32_t i = 0; i < replica->program_count; i++) {
        ls_programs_forget_times(replica->programs[i]);
        replica->programs[i]->first_step = 0;
        replica->programs[i]->warm = false;
    }
}

// Where a program is cut: the first steps that read a parameter of a bucket and write a gradient of
// it, and the first after which every gradient of the bucket is complete.
static enum ls_status find_bucket_ends(const struct ls_replica *replica,
                                       struct ls_replica_program *entry)
{
    entry->bucket_ends = calloc(replica->buckets.count, sizeof(*entry->bucket_ends));
    entry->bucket_needs = calloc(replica->buckets.count, sizeof(*entry->bucket_needs));
    entry->bucket_writes = calloc(replica->buckets.count, sizeof(*entry->bucket_writes));
    if (!entry->bucket_ends || !entry->bucket_needs || !entry->bucket_writes)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; entry->program && i < replica->buckets.count; i++) {
        const struct ls_bucket *bucket = &replica->buckets.list[i];
        const uint32_t end = bucket->first_place + bucket->place_count;
        entry->bucket_needs[i] = entry->bucket_writes[i] = entry->program->step_count;
        for (uint32_t place = bucket->first_place; place < end; place++) {
            if (entry->program->needed[place] < entry->bucket_needs[i])
                entry->bucket_needs[i] = entry->program->needed[place];
            if (entry->program->written[place] < entry->bucket_writes[i])
                entry->bucket_writes[i] = entry->program->written[place];
            if (entry->program->ready[place] + 1 > entry->bucket_ends[i])
                entry->bucket_ends[i] = entry->program->ready[place] + 1;
        }
    }
    return LS_OK;
}

// No kernel may write to a slot before the bucket that was there is complete and on its way; none is
// on its way before backward begins.
static enum ls_status check_slots(const struct ls_replica *replica,
                                  const struct ls_replica_program *entry)
{
    const struct ls_slots *slots = &replica->slots[LS_HELD_GRADIENTS];
    for (uint32_t i = 0; slots->count && i < replica->buckets.count; i++) {
        for (uint32_t k = 0, before = entry->program->forward_count; k < i; k++) {
            before = entry->bucket_ends[k] > before ? entry->bucket_ends[k] : before;
            if (slots->of[k] != slots->of[i] || before <= entry->bucket_writes[i])
                continue;
            ls_error("replica",
                     "device %s writes gradients of '%s' and of '%s' at once, which have one place "
                     "where each replica holds parts of gradients; use --strategy=sharded:stage=1",
                     replica->device_name,
                     replica->plan->places[replica->buckets.list[k].first_place].parameter->name,
                     replica->plan->places[replica->buckets.list[i].first_place].parameter->name);
            return LS_UNAVAILABLE;
        }
    }
    return LS_OK;
}

// ---- The walk through slots of parameters ----

// A bucket comes into its slot before step `step`, whatever was there.
struct walking {
    const struct ls_replica *replica;
    const struct ls_walk *walk;
    struct ls_replica_program *entry;
    uint32_t next; // entry of the walk
    uint32_t *in; // by slot: the bucket, and one more
    uint32_t *over; // by bucket: the step from which on its slot may be taken
};

static void take_next(struct walking *walking, uint32_t step)
{
    const uint32_t k = walking->next++, bucket = walking->walk->list[k].bucket;
    uint32_t *in = &walking->in[walking->replica->slots[LS_HELD_PARAMETERS].of[bucket]];
    const uint32_t free_from = *in ? walking->over[*in - 1] : 0;
    const uint32_t before = k ? walking->entry->walk_starts[k - 1] : 0;
    walking->entry->walk_starts[k] = free_from > before ? free_from : before;
    walking->entry->walk_needs[k] = step;
    walking->over[bucket] = step;
    *in = bucket + 1;
}

static uint32_t bucket_read(const struct walking *walking, uint32_t read)
{
    return ls_buckets_find(&walking->replica->buckets, walking->entry->program->reads[read].place);
}

static bool is_missing(const struct walking *walking, uint32_t read, uint32_t end)
{
    for (; read < end; read++) {
        const uint32_t bucket = bucket_read(walking, read);
        if (walking->in[walking->replica->slots[LS_HELD_PARAMETERS].of[bucket]] != bucket + 1)
            return true;
    }
    return false;
}

// What a step reads is all there, or LS_UNAVAILABLE.
static enum ls_status walk_steps(struct walking *walking)
{
    const struct ls_program *program = walking->entry->program;
    for (uint32_t read = 0, end; read < program->read_count; read = end) {
        const uint32_t step = program->reads[read].step;
        for (end = read; end < program->read_count && program->reads[end].step == step;)
            end++;
        while (is_missing(walking, read, end)) {
            if (walking->next == walking->walk->count)
                return LS_UNAVAILABLE;
            take_next(walking, step);
        }
        for (uint32_t i = read; i < end; i++)
            walking->over[bucket_read(walking, i)] = step + 1;
    }
    while (walking->next < walking->walk->count)
        take_next(walking, program->step_count);
    return LS_OK;
}

// The step before which the strategy hears that a bucket is ready; `before`: that of the one in front.
static uint32_t ready_at(const struct ls_replica_program *entry, uint32_t bucket, uint32_t before)
{
    const uint32_t forward = entry->program->forward_count, end = entry->bucket_ends[bucket];
    before = before > forward ? before : forward;
    return end > before ? end : before;
}

// All replicas begin gathers and reductions in one order, whatever their programs are.
static bool keeps_order(const struct walking *walking)
{
    const struct ls_replica_program *entry = walking->entry;
    const uint32_t buckets = walking->replica->buckets.count;
    uint32_t end = 0, ready = 0; // the step from which on so many buckets are ready
    for (uint32_t k = 0; k < walking->walk->count; k++) {
        for (; ready < walking->walk->list[k].ready; ready++)
            end = ready_at(entry, ready, end);
        if (entry->walk_needs[k] < end ||
            (ready < buckets && entry->walk_starts[k] > ready_at(entry, ready, end)))
            return false;
    }
    return true;
}

static enum ls_status find_walk(const struct ls_replica *replica, struct ls_replica_program *entry)
{
    const bool trains = entry->purpose == LS_PURPOSE_TRAIN;
    const struct ls_walk *walk = &replica->walks[trains ? 0 : 1];
    struct walking walking = {.replica = replica,
                              .walk = walk,
                              .entry = entry,
                              .in = calloc(replica->buckets.all, sizeof(*walking.in)),
                              .over = calloc(replica->buckets.all, sizeof(*walking.over))};
    enum ls_status status = LS_OK;
    entry->walk_starts = calloc((size_t)walk->count + 1, sizeof(*entry->walk_starts));
    entry->walk_needs = calloc((size_t)walk->count + 1, sizeof(*entry->walk_needs));
    if (!walking.in || !walking.over || !entry->walk_starts || !entry->walk_needs)
        status = LS_OUT_OF_MEMORY;
    if (!status)
        status = walk_steps(&walking);
    if (!status && trains && !keeps_order(&walking))
        status = LS_UNAVAILABLE;
    if (status == LS_UNAVAILABLE)
        ls_error("replica",
                 "device %s reads parameters of more buckets at once than there are places for, "
                 "or in another order than the layers have; use --strategy=sharded:stage=2, or "
                 "another bucket=BYTES",
                 replica->device_name);
    free(walking.in);
    free(walking.over);
    return status;
}

// The second layouts of a bucket are in a slot, as it is.
static enum ls_status place_shadows(struct ls_replica *replica, uint64_t *bytes)
{
    const struct ls_parameter_plan *plan = replica->plan;
    const struct ls_slots *slots = &replica->slots[LS_HELD_PARAMETERS];
    uint64_t *used = calloc(replica->buckets.all, sizeof(*used));
    uint64_t *at = realloc(replica->shadows_at, (plan->shadow_count + 1) * sizeof(*at));
    replica->shadows_at = at ? at : replica->shadows_at;
    *bytes = 0;
    if (!used || !at) {
        free(used);
        return LS_OUT_OF_MEMORY;
    }
    for (uint32_t slot = 0; slot < slots->count; slot++) {
        uint64_t most = 0;
        for (uint32_t i = 0; i < plan->shadow_count; i++) {
            const uint32_t bucket = ls_buckets_find(&replica->buckets, plan->shadows[i].place);
            if (slots->of[bucket] != slot)
                continue;
            at[i] = *bytes + used[bucket];
            used[bucket] +=
                (plan->shadows[i].layout.bytes + LS_ALIGNMENT - 1) / LS_ALIGNMENT * LS_ALIGNMENT;
            most = used[bucket] > most ? used[bucket] : most;
        }
        *bytes += most;
    }
    free(used);
    return LS_OK;
}

// Of a program.
static uint32_t capture_count(const struct ls_replica *replica)
{
    return LS_STEP_KINDS * LS_PASS_COUNT * (replica->buckets.count + 1);
}

static enum ls_status add_program(struct ls_replica *replica, uint64_t size,
                                  enum ls_purpose purpose)
{
    struct ls_replica_program **grown = realloc(
        replica->programs, (replica->program_count + 1) * sizeof(struct ls_replica_program *));
    if (!grown)
        return LS_OUT_OF_MEMORY;
    replica->programs = grown;
    struct ls_replica_program *entry = calloc(1, sizeof(*entry));
    if (!entry)
        return LS_OUT_OF_MEMORY;
    const struct ls_program_options options = {
        .batch = (int64_t)size,
        .purpose = purpose,
        .branch = purpose == LS_PURPOSE_TRAIN ? replica->branch : NULL,
        .buckets = replica->slots[LS_HELD_PARAMETERS].buckets};
    enum ls_status status =
        ls_program_create(replica->plan, replica->graph, &options, &entry->program);
    if (status) {
        free(entry);
        return status;
    }
    replica->programs[replica->program_count++] = entry;
    entry->purpose = purpose;
    entry->captures = calloc(capture_count(replica), sizeof(*entry->captures));
    status = entry->captures ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status && purpose == LS_PURPOSE_TRAIN)
        status = find_bucket_ends(replica, entry);
    if (!status && purpose == LS_PURPOSE_TRAIN)
        status = check_slots(replica, entry);
    if (!status && replica->slots[LS_HELD_PARAMETERS].count)
        status = find_walk(replica, entry);
    if (!status)
        status = ls_input_prepare(replica, entry);
    if (entry->program->arena_bytes > replica->arena_bytes)
        replica->arena_bytes = entry->program->arena_bytes;
    if (size > replica->largest_batch)
        replica->largest_batch = size;
    return status;
}

static enum ls_status add_programs(struct ls_replica *replica, const struct ls_replica_need *need)
{
    enum ls_status status = LS_OK;
    for (uint32_t purpose = 0; purpose < LS_PURPOSE_COUNT; purpose++)
        for (uint32_t i = 0; !status && i < need->sizes[purpose].count; i++) {
            const uint64_t size = need->sizes[purpose].list[i];
            if (size && !ls_programs_find(replica, size, purpose))
                status = add_program(replica, size, purpose);
        }
    return status;
}

static enum ls_status add_empty(struct ls_replica *replica)
{
    struct ls_replica_program *empty = &replica->empty;
    empty->purpose = LS_PURPOSE_TRAIN;
    empty->captures = calloc(capture_count(replica), sizeof(*empty->captures));
    return empty->captures ? find_bucket_ends(replica, empty) : LS_OUT_OF_MEMORY;
}

static enum ls_status make_room(struct ls_replica *replica)
{
    const uint64_t flat = LS_STEP_STATS_BYTES + replica->plan->reduced_bytes;
    const struct ls_memory shadows = replica->shadows.memory;
    const struct ls_slots *slots = replica->slots;
    uint64_t shadow_bytes = replica->plan->shadow_bytes;
    enum ls_status status =
        slots[LS_HELD_PARAMETERS].count ? place_shadows(replica, &shadow_bytes) : LS_OK;
    if (!status)
        status = ls_replica_grow(replica, &replica->shadows, shadow_bytes);
    if (!status)
        status = ls_replica_grow(replica, &replica->scratch, replica->scratch_bytes);
    if (!status)
        status = ls_replica_grow(replica, &replica->arena, replica->arena_bytes);
    for (const uint32_t levels =
             replica->shard_sums ? 0 : ls_microbatches_levels(replica->microbatches);
         !status && replica->levels < levels; replica->levels++) {
        struct ls_memory *sums = &replica->accumulated[replica->levels];
        *sums = ls_replica_take_memory(replica, flat);
        if (ls_memory_is_null(*sums))
            return LS_OUT_OF_MEMORY;
    }
    if (!status)
        status = ls_input_make_room(replica);
    if (!status)
        status = ls_seed_make_room(replica);
    for (uint32_t i = 0; !status && i < replica->program_count; i++) {
        const bool training = replica->programs[i]->purpose == LS_PURPOSE_TRAIN;
        const struct ls_bindings bindings = {
            .arena = replica->arena.memory,
            .parameters = replica->parameters,
            .gradients = training ? replica->gradients : (struct ls_memory){NULL, 0},
            .parameters_at = slots[LS_HELD_PARAMETERS].places_at,
            .gradients_at = slots[LS_HELD_GRADIENTS].places_at,
            .shadows_at = replica->shadows_at,
            .shadows = replica->shadows.memory,
            .sums = training ? replica->reduced : replica->evaluation_sums,
            .totals = training ? replica->totals : (struct ls_memory){NULL, 0},
            .counts = replica->counts,
            .record = replica->record,
        };
        ls_program_bind(replica->programs[i]->program, &bindings);
        ls_seed_bind(replica, replica->programs[i]->program);
    }
    return status || (ls_memory_is_same(shadows, replica->shadows.memory) && !replica->shadows_at)
               ? status
               : ls_replica_refresh(replica);
}

enum ls_status ls_replica_need(struct ls_replica *replica, const struct ls_replica_need *need,
                               bool *changed)
{
    const uint32_t programs = replica->program_count, microbatches = replica->microbatches;
    replica->may_stop = true; // before, and in lent memory, others may have written
    replica->microbatches = need->microbatches > 1 ? need->microbatches : 1;
    enum ls_status status = replica->empty.captures ? LS_OK : add_empty(replica);
    if (!status)
        status = add_programs(replica, need);
    if (!status && need->shards && !replica->shard_sums)
        status = ls_replica_say_no_memory(
            replica, ls_shard_sums_create(replica, need->shards, replica->microbatches));
    if (!status && !replica->shard_sums)
        status = ls_microbatches_prepare(replica);
    *changed = programs != replica->program_count || microbatches != replica->microbatches ||
               ls_memory_is_null(replica->record);
    if (status || !*changed)
        return status;
    ls_replica_forget_recordings(replica);
    status = ls_plan_gather_shadows(replica->plan);
    if (status)
        return status;
    for (uint32_t i = 0; i < replica->plan->shadow_count; i++)
        ls_replica_need_scratch(replica, replica->plan->shadows[i].scratch_bytes);
    ls_replica_need_scratch(replica, replica->plan->refresh_scratch_bytes);
    // The device may still compute what no call has waited for; a copy to the host waits for it.
    char scrap[LS_ALIGNMENT];
    if (!ls_device_blocking(replica->device))
        status = ls_device_copy(replica->device, ls_host_memory(scrap), replica->reduced,
                                sizeof(scrap), NULL);
    return status ? status : ls_replica_say_no_memory(replica, make_room(replica));
}

void ls_replica_forget_recordings(struct ls_replica *replica)
{
    const uint32_t count = capture_count(replica);
    for (uint32_t i = 0; i < replica->program_count; i++)
        ls_captures_release(replica, replica->programs[i]->captures, count);
    ls_captures_release(replica, replica->empty.captures, count);
    ls_captures_release(replica, replica->update_captures, replica->buckets.count + 1);
    ls_captures_release(replica, &replica->shadows_capture, 1);
    for (uint32_t i = 0; i < LS_STEP_KINDS; i++)
        replica->recorder.kinds[i] = 0;
}

void ls_programs_destroy(struct ls_replica *replica)
{
    for (uint32_t i = 0; i < replica->program_count; i++) {
        struct ls_replica_program *entry = replica->programs[i];
        for (uint32_t input = 0; input < LS_REPLICA_INPUTS; input++)
            ls_device_release_kernel(replica->device, entry->from_bytes[input]);
        ls_program_destroy(entry->program);
        free(entry->captures);
        free(entry->bucket_ends);
        free(entry->bucket_needs);
        free(entry->bucket_writes);
        free(entry->walk_starts);
        free(entry->walk_needs);
        free(entry);
    }
    free(replica->programs);
    free(replica->empty.captures);
    free(replica->empty.bucket_ends);
    free(replica->empty.bucket_needs);
    free(replica->empty.bucket_writes);
}
