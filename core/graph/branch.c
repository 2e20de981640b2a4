// SPDX-License-Identifier: Apache-2.0
// The branch of a training program: steps whose results no other step reads, above all gradients of
// weights, and conversions around them. They run on a second stream, beside gradients of data:
//
//   own stream  data 4 -> data 3 -> data 2 -> data 1
//   branch             weights 4 -> weights 3 -> weights 2
//
// A step of the branch runs after all steps that come before it in the program (an event of the own
// stream), and before the step where it joins (an event of the branch). Until then lives what it
// reads and writes (arena.c), so later joins take more memory. While the branch is off its steps are
// on the own stream like all others, which needs no event.
#include "core/graph/build.h"

#include <stdlib.h>

#define NOTHING UINT32_MAX // `branch_from` where the branch has joined

struct ls_branch {
    struct ls_device *device;
    void *stream;
    struct ls_event *forked; // what the own stream did before a step of the branch
    struct ls_event *joined; // the branch, where a part of the program ends
    bool on;
};

enum ls_status ls_branch_open(struct ls_device *device, struct ls_branch **out)
{
    struct ls_branch *branch = calloc(1, sizeof(*branch));
    if (!branch)
        return LS_OUT_OF_MEMORY;
    branch->device = device;
    int32_t status = ls_device_stream_open(device, &branch->stream);
    if (!status)
        status = ls_device_event_open(device, &branch->forked);
    if (!status)
        status = ls_device_event_open(device, &branch->joined);
    if (status)
        ls_branch_close(branch);
    else
        *out = branch;
    return (enum ls_status)status;
}

void ls_branch_close(struct ls_branch *branch)
{
    if (!branch)
        return;
    if (branch->forked)
        ls_device_event_close(branch->device, branch->forked);
    if (branch->joined)
        ls_device_event_close(branch->device, branch->joined);
    if (branch->stream)
        ls_device_stream_close(branch->device, branch->stream);
    free(branch);
}

void ls_branch_set(struct ls_branch *branch, bool on)
{
    branch->on = on;
}

// ---- Which steps, and where they join ----

static uint32_t root_of(const struct ls_program *program, uint32_t s, uint32_t argument)
{
    return ls_value_memory(program->buffers, program->buffers->plans[s].values[argument]);
}

// `taken`: what later steps of the own stream read or write, by value.
static bool leaves(const struct ls_program *program, uint32_t s, const bool *taken)
{
    const struct ls_program_step *step = &program->steps[s];
    for (uint32_t i = step->input_count; i < step->input_count + step->output_count; i++) {
        const uint32_t root = root_of(program, s, i);
        const struct ls_value *value = &program->buffers->values[root];
        const bool result = value->home == LS_HOME_GRADIENTS || value->home == LS_HOME_SUMS ||
                            value->home == LS_HOME_COUNTS; // read when all steps have run
        const bool bridge = value->home == LS_HOME_ARENA && value->owned;
        if (taken[root] || !(result || bridge))
            return false;
    }
    return !program->buffers->plans[s].tile;
}

// The own stream has nothing else to do at the end: the last step stays there, unless it needs what
// the branch makes.
static void keep_last(const struct ls_program *program)
{
    const uint32_t last = program->step_count - 1;
    const uint32_t count = program->steps[last].input_count + program->steps[last].output_count;
    for (uint32_t s = 0; s < last; s++)
        for (uint32_t i = program->steps[s].input_count;
             program->buffers->plans[s].leaves &&
             i < program->steps[s].input_count + program->steps[s].output_count;
             i++)
            for (uint32_t k = 0; k < count; k++)
                if (root_of(program, s, i) == root_of(program, last, k))
                    return;
    program->buffers->plans[last].leaves = false;
}

enum ls_status ls_branch_find(struct ls_program *program)
{
    const struct ls_program_buffers *buffers = program->buffers;
    bool *taken = calloc((size_t)buffers->value_count + 1, sizeof(*taken));
    if (!taken)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < buffers->output_count && ls_keeps_outputs(program); i++)
        taken[ls_value_memory(buffers, buffers->outputs[i])] = true;
    for (uint32_t s = program->step_count; s-- > 0;) {
        const struct ls_program_step *step = &program->steps[s];
        struct ls_step_plan *plan = &program->buffers->plans[s];
        plan->leaves = leaves(program, s, taken);
        for (uint32_t i = 0; !plan->leaves && i < step->input_count + step->output_count; i++)
            taken[root_of(program, s, i)] = true;
    }
    free(taken);
    keep_last(program);
    return LS_OK;
}

// The step of the own stream that has `ahead` others of it between step `s` and itself.
static uint32_t join_of(const struct ls_program *program, uint32_t s, uint32_t ahead)
{
    uint32_t join = s + 1;
    while (join < program->step_count && (program->buffers->plans[join].leaves || ahead-- > 0))
        join++;
    return join;
}

void ls_branch_set_joins(struct ls_program *program, uint32_t ahead)
{
    struct ls_step_plan *plans = program->buffers->plans;
    program->branch_count = 0;
    for (uint32_t s = 0; s < program->step_count; s++)
        plans[s].join = plans[s].waits_for = 0;
    for (uint32_t s = 0; s < program->step_count && ahead; s++) {
        if (!plans[s].leaves)
            continue;
        program->branch_count++;
        plans[s].join = join_of(program, s, ahead);
        if (plans[s].join < program->step_count)
            plans[plans[s].join].waits_for = s + 1;
    }
}

enum ls_status ls_branch_make_events(struct ls_program *program)
{
    struct ls_program_buffers *buffers = program->buffers;
    int32_t status = LS_OK;
    buffers->branch_from = NOTHING;
    for (uint32_t s = 0; !status && s < program->step_count; s++) {
        if (buffers->plans[s].waits_for)
            status = ls_device_event_open(program->plan->device,
                                          &buffers->plans[buffers->plans[s].waits_for - 1].over);
    }
    return (enum ls_status)status;
}

// ---- Running ----

enum ls_status ls_branch_before(struct ls_program *program, uint32_t s)
{
    struct ls_program_buffers *buffers = program->buffers;
    const struct ls_step_plan *plan = &buffers->plans[s];
    const struct ls_branch *branch = program->options.branch;
    int32_t status = LS_OK;
    buffers->launches[s].stream = plan->join && branch->on ? branch->stream : NULL;
    if (!branch->on)
        return LS_OK;
    if (plan->waits_for > buffers->branch_from) // what has joined is not waited for again
        status =
            ls_device_event_wait(branch->device, buffers->plans[plan->waits_for - 1].over, NULL);
    if (!plan->join)
        buffers->branch_follows = false;
    if (status || !plan->join || buffers->branch_follows)
        return (enum ls_status)status;
    if (buffers->branch_from == NOTHING)
        buffers->branch_from = s;
    buffers->branch_follows = true;
    status = ls_device_event_record(branch->device, branch->forked, NULL);
    return (enum ls_status)(
        status ? status : ls_device_event_wait(branch->device, branch->forked, branch->stream));
}

enum ls_status ls_branch_after(struct ls_program *program, uint32_t s)
{
    const struct ls_branch *branch = program->options.branch;
    struct ls_event *over = branch->on ? program->buffers->plans[s].over : NULL;
    return over ? (enum ls_status)ls_device_event_record(branch->device, over, branch->stream)
                : LS_OK;
}

enum ls_status ls_program_join(struct ls_program *program, enum ls_status status)
{
    struct ls_program_buffers *buffers = program ? program->buffers : NULL;
    if (!buffers || !program->branch_count)
        return status;
    const struct ls_branch *branch = program->options.branch;
    const bool joined = buffers->branch_from == NOTHING;
    buffers->branch_from = NOTHING;
    if (joined)
        return status;
    // Also after a failure: what gives memory up waits for the own stream, so for the branch, too.
    int32_t made = ls_device_event_record(branch->device, branch->joined, branch->stream);
    if (!made)
        made = ls_device_event_wait(branch->device, branch->joined, NULL);
    return status ? status : (enum ls_status)made;
}
