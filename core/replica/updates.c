// SPDX-License-Identifier: Apache-2.0
// Cuts ranges into runs, and updates the buckets of a replica run by run.
#include "core/replica/updates.h"
#include "core/replica/programs.h"
#include "core/replica/record.h"

#include "core/base/clock.h"
#include "core/base/inside.h"
#include "core/base/log.h"

#include <stdlib.h>
#include <string.h>

static const struct ls_trace_label update_span = {
    .category = "update", .name = "update", .value = "bucket"};

// ---- Runs ----

// How a place is updated, without its range.
static struct ls_update_run rule_of(const struct ls_parameter_place *place,
                                    const struct ls_optimizer *optimizer)
{
    if (place->parameter->zone == LS_ZONE_STATISTICS)
        return (struct ls_update_run){
            .op = LS_OP_AVERAGE_UPDATE,
            .attributes = {.momentum = (float)place->parameter->momentum}};
    return (struct ls_update_run){.op = optimizer->op,
                                  .attributes = optimizer->attributes,
                                  .state_count = optimizer->state_count};
}

static bool is_same(const struct ls_update_run *a, const struct ls_update_run *b)
{
    return a->op == b->op && memcmp(&a->attributes, &b->attributes, sizeof(a->attributes)) == 0;
}

struct ls_update_run ls_update_run_at(const struct ls_parameter_plan *plan,
                                      const struct ls_optimizer *optimizer, uint64_t first,
                                      uint64_t end)
{
    uint32_t place = 0;
    while (place + 1 < plan->reduced_count &&
           plan->places[place + 1].offset / sizeof(float) <= first)
        place++;
    struct ls_update_run run = rule_of(&plan->places[place], optimizer);
    for (place++; place < plan->reduced_count; place++) {
        const uint64_t begin = plan->places[place].offset / sizeof(float);
        const struct ls_update_run next = rule_of(&plan->places[place], optimizer);
        if (begin >= end || is_same(&run, &next))
            continue;
        end = begin;
    }
    run.first = first;
    run.count = end - first;
    return run;
}

// ---- Buckets ----

static enum ls_status prepare_run(struct ls_replica *replica, struct ls_update_kernel *out)
{
    const struct ls_range_operation update = {.op = out->run.op,
                                              .attributes = &out->run.attributes,
                                              .input_count = 1,
                                              .output_count = 1 + out->run.state_count,
                                              .count = out->run.count};
    struct ls_kernel_answer answer;
    const enum ls_status status =
        ls_device_prepare_range(replica->device, "update", &update, &answer);
    if (status == LS_UNSUPPORTED) {
        ls_error("replica", "device %s has no operation %s%s; use another device",
                 replica->device_name, ls_op_name(out->run.op),
                 out->run.op == LS_OP_AVERAGE_UPDATE ? ", which moving statistics need" : "");
        return LS_UNAVAILABLE;
    }
    if (status)
        return status;
    out->kernel = answer.kernel;
    ls_replica_need_scratch(replica, answer.scratch_bytes);
    return LS_OK;
}

static enum ls_status prepare_bucket(struct ls_replica *replica, uint32_t index)
{
    const struct ls_bucket *bucket = &replica->buckets.list[index];
    struct ls_update_list *updates = &replica->updates[index];
    const uint64_t end = (bucket->offset + bucket->bytes) / sizeof(float);
    updates->list = calloc(bucket->place_count + 1, sizeof(*updates->list)); // runs at most
    if (!updates->list)
        return LS_OUT_OF_MEMORY;
    for (uint64_t first = bucket->offset / sizeof(float); first < end;) {
        struct ls_update_kernel *update = &updates->list[updates->count++];
        update->run = ls_update_run_at(replica->plan, &replica->optimizer, first, end);
        const enum ls_status status = prepare_run(replica, update);
        if (status)
            return status;
        first += update->run.count;
    }
    return LS_OK;
}

enum ls_status ls_updates_prepare(struct ls_replica *replica)
{
    enum ls_status status = LS_OK;
    replica->updates = calloc(replica->buckets.count, sizeof(*replica->updates));
    replica->update_captures = calloc(replica->buckets.count, sizeof(*replica->update_captures));
    if (!replica->updates || !replica->update_captures)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && replica->optimizer.op && i < replica->buckets.count; i++)
        status = prepare_bucket(replica, i);
    return status;
}

void ls_updates_release(struct ls_replica *replica)
{
    for (uint32_t i = 0; replica->updates && i < replica->buckets.count; i++) {
        for (uint32_t k = 0; k < replica->updates[i].count; k++)
            ls_device_release_kernel(replica->device, replica->updates[i].list[k].kernel);
        free(replica->updates[i].list);
    }
    free(replica->updates);
    free(replica->update_captures);
}

struct update {
    struct ls_replica *replica;
    uint32_t bucket;
};

static enum ls_status launch_update(void *context)
{
    const struct update *update = context;
    struct ls_replica *replica = update->replica;
    const struct ls_update_list *updates = &replica->updates[update->bucket];
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < updates->count; i++) {
        const struct ls_update_run *run = &updates->list[i].run;
        const uint64_t at = run->first * sizeof(float);
        struct ls_memory arguments[2 + LS_OPTIMIZER_STATES] = {
            ls_memory_at(replica->gradients, at), ls_memory_at(replica->parameters, at)};
        for (uint32_t k = 0; k < run->state_count; k++)
            arguments[2 + k] = ls_memory_at(replica->states[k], at);
        const struct ls_launch launch = {.struct_size = sizeof(launch),
                                         .argument_count = 2 + run->state_count,
                                         .arguments = arguments,
                                         .scratch = replica->scratch.memory,
                                         .record = replica->record};
        ls_inside_about("update");
        status = ls_device_launch(replica->device, updates->list[i].kernel, &launch);
    }
    return status;
}

enum ls_status ls_replica_update(struct ls_replica *replica, uint32_t index)
{
    const uint64_t start = ls_clock_ns();
    if (replica->buckets.list[index].bytes == 0)
        return LS_OK;
    struct update update = {replica, index};
    const struct ls_section section = {
        .work = launch_update, .context = &update, .capture = &replica->update_captures[index]};
    const enum ls_status status = ls_record_run(replica, &section);
    const uint64_t end = ls_clock_ns();
    replica->times.update_ns += end - start;
    ls_trace_span(&update_span, start, end, index);
    return status;
}
