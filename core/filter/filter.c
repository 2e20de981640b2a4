// SPDX-License-Identifier: Apache-2.0
// Reads the plan of a filter.
#include "core/filter/filter.h"

#include "core/base/log.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct reading {
    struct ls_filter_plan *plan;
    const char *name;
    enum ls_status status; // of the first call that failed
};

static int32_t refuse(struct reading *reading, const char *why, uint64_t value)
{
    ls_error(reading->name,
             "stage %u of the plan: %s (%" PRIu64 "): an error of the filter, which "
             "`lockstep plugin check` finds",
             reading->plan->stage_count + 1, why, value);
    reading->status = LS_FAILED;
    return LS_FAILED;
}

static int32_t ask_scratch(struct ls_filter_stages *stages, uint64_t bytes)
{
    struct reading *reading = stages->context;
    if (!reading->status)
        reading->plan->scratch_bytes = bytes;
    return (int32_t)reading->status;
}

static int32_t ask_shared(struct ls_filter_stages *stages, uint64_t bytes)
{
    struct reading *reading = stages->context;
    if (!reading->status)
        reading->plan->shared_bytes = bytes;
    return (int32_t)reading->status;
}

static int32_t add(struct reading *reading, const struct ls_filter_stage *stage)
{
    struct ls_filter_plan *plan = reading->plan;
    if (plan->stage_count == LS_FILTER_STAGES)
        return refuse(reading, "there are more stages than a plan may have", LS_FILTER_STAGES);
    plan->stages[plan->stage_count++] = *stage;
    return LS_OK;
}

static int32_t add_local(struct ls_filter_stages *stages, uint32_t function)
{
    struct reading *reading = stages->context;
    const struct ls_filter_stage stage = {.function = function};
    return reading->status ? (int32_t)reading->status : add(reading, &stage);
}

static int32_t add_collective(struct ls_filter_stages *stages, uint32_t operation, uint32_t dtype,
                              uint32_t reduction, uint64_t offset, uint64_t count)
{
    struct reading *reading = stages->context;
    const struct ls_filter_stage stage = {true, 0, operation, dtype, reduction, offset, count};
    if (reading->status)
        return (int32_t)reading->status;
    if (operation != LS_ALL_REDUCE && operation != LS_REDUCE_SCATTER &&
        operation != LS_ALL_GATHER && operation != LS_ALL_TO_ALL)
        return refuse(reading, "there is no such operation without a root", operation);
    if (!ls_dtype_bytes(dtype))
        return refuse(reading, "there is no such element type", dtype);
    if (reduction < LS_SUM || reduction > LS_MEAN)
        return refuse(reading, "there is no such reduction", reduction);
    if (offset % ls_dtype_bytes(dtype))
        return refuse(reading, "the offset is no multiple of the element", offset);
    const uint64_t world = reading->plan->call.world;
    if (operation == LS_ALL_TO_ALL && count % world)
        return refuse(reading, "the blocks of an all-to-all are not equal", count);
    if ((operation == LS_ALL_GATHER || operation == LS_REDUCE_SCATTER) &&
        count % (world * LS_CHUNK_ALIGNMENT))
        return refuse(reading, "its count is no multiple of 64 for each rank", count);
    return add(reading, &stage);
}

// When the plan is written, and it is known how much memory there is.
static enum ls_status check(struct reading *reading)
{
    const struct ls_filter_plan *plan = reading->plan;
    for (uint32_t i = 0; i < plan->stage_count; i++) {
        const struct ls_filter_stage *stage = &plan->stages[i];
        const uint64_t bytes = plan->scratch_bytes;
        if (stage->collective &&
            (stage->offset > bytes ||
             stage->count > (bytes - stage->offset) / ls_dtype_bytes(stage->dtype))) {
            ls_error(reading->name,
                     "stage %u of the plan: %" PRIu64 " elements from byte %" PRIu64
                     " are not within the %" PRIu64 " bytes of scratch: an error of the filter",
                     i + 1, stage->count, stage->offset, bytes);
            return LS_FAILED;
        }
    }
    if (!plan->stage_count || !plan->stages[plan->stage_count - 1].collective)
        return LS_OK;
    ls_error(reading->name, "the last stage of the plan is not local: an error of the filter");
    return LS_FAILED;
}

static void take_variables(struct ls_filter_plan *plan, const struct ls_filter_variable *variables,
                           uint32_t count)
{
    struct ls_filter_call *call = &plan->call;
    for (uint32_t i = 0; i < count; i++) {
        struct ls_filter_variable *own = &plan->variables[call->variable_count];
        *own = variables[i];
        own->first = 0;
        if (!own->count || (plan->interface->takes && !plan->interface->takes(call->host, own)))
            continue;
        own->first = call->count;
        call->count += own->count;
        plan->taken[call->variable_count++] = i;
    }
}

// Where the parts of a range that end at `ends` begin and end in x.
static enum ls_status cut_parts(struct ls_filter_plan *plan,
                                const struct ls_filter_variable *variables, const uint64_t *ends)
{
    struct ls_filter_call *call = &plan->call;
    plan->parts = calloc((size_t)call->world + 1, sizeof(*plan->parts));
    if (!plan->parts)
        return LS_OUT_OF_MEMORY;
    for (uint32_t rank = 0; rank < call->world; rank++)
        for (uint32_t i = 0; i < call->variable_count; i++) {
            const uint64_t first = variables[plan->taken[i]].first, end = ends[rank];
            const uint64_t before = end > first ? end - first : 0, own = plan->variables[i].count;
            plan->parts[rank + 1] += before < own ? before : own;
        }
    call->operation = LS_REDUCE_SCATTER;
    call->parts = plan->parts;
    return LS_OK;
}

enum ls_status ls_filter_plan_create(const struct ls_filter_interface *interface,
                                     const struct ls_host *host, const char *name, uint32_t world,
                                     const struct ls_filter_variable *variables, uint32_t count,
                                     const uint64_t *ends, struct ls_filter_plan **out)
{
    struct ls_filter_plan *plan = calloc(1, sizeof(*plan));
    if (!plan)
        return LS_OUT_OF_MEMORY;
    struct reading reading = {.plan = plan, .name = name};
    struct ls_filter_stages stages = {.struct_size = sizeof(stages),
                                      .context = &reading,
                                      .scratch = ask_scratch,
                                      .local = add_local,
                                      .collective = add_collective,
                                      .shared = ask_shared};
    plan->interface = interface;
    plan->variables = calloc((size_t)count + 1, sizeof(*plan->variables));
    plan->taken = calloc((size_t)count + 1, sizeof(*plan->taken));
    plan->call = (struct ls_filter_call){.struct_size = sizeof(plan->call),
                                         .operation = LS_ALL_REDUCE,
                                         .world = world,
                                         .variables = plan->variables,
                                         .host = host};
    enum ls_status status = plan->variables && plan->taken ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        take_variables(plan, variables, count);
    if (!status && ends)
        status = cut_parts(plan, variables, ends);
    if (!status && plan->call.variable_count)
        status = (enum ls_status)interface->plan(&plan->call, &stages);
    if (reading.status)
        status = reading.status;
    if (!status)
        status = check(&reading);
    if (status)
        ls_filter_plan_destroy(plan);
    else
        *out = plan;
    return status;
}

void ls_filter_plan_destroy(struct ls_filter_plan *plan)
{
    if (!plan)
        return;
    free(plan->variables);
    free(plan->taken);
    free(plan->parts);
    free(plan);
}
