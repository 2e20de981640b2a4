// SPDX-License-Identifier: Apache-2.0
// The memory plan by brute force: the steps of a program are followed, and for every block of the
// arena it is kept who wrote it last. Whoever reads must find what was written for it. A step of the
// branch runs when its turn comes, and once more when it joins: it may run at any time between.
#include "tests/core/graph/mock.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define NOBODY UINT32_MAX
#define SCRATCH (UINT32_MAX - 1)

struct replay {
    const struct ls_program *program;
    const struct ls_program_buffers *buffers;
    const char *arena;
    uint32_t *owners; // by block of LS_ALIGNMENT bytes
    bool *made; // by value: a step writes it
};

static bool in_arena(const struct replay *replay, const void *pointer)
{
    const uintptr_t at = (uintptr_t)pointer, start = (uintptr_t)replay->arena;
    return at >= start && at < start + replay->program->arena_bytes;
}

// The value that a step wrote for a reader of `value`: a reshape shares memory.
static uint32_t source_of(const struct replay *replay, uint32_t value)
{
    while (!replay->made[value] && replay->buffers->values[value].memory != value)
        value = replay->buffers->values[value].memory;
    return value;
}

static uint32_t first_block(const struct replay *replay, const void *pointer)
{
    const uintptr_t offset = (uintptr_t)pointer - (uintptr_t)replay->arena;
    ck_assert_uint_eq(offset % LS_ALIGNMENT, 0);
    return (uint32_t)(offset / LS_ALIGNMENT);
}

static uint64_t bytes_of(const struct replay *replay, uint32_t value)
{
    const struct ls_value *found = &replay->buffers->values[value];
    return found->tile_bytes ? found->tile_bytes : found->layout.bytes;
}

static void own(struct replay *replay, const void *pointer, uint64_t bytes, uint32_t owner)
{
    const uint32_t first = first_block(replay, pointer);
    ck_assert_uint_le(first * (uint64_t)LS_ALIGNMENT + bytes, replay->program->arena_bytes);
    for (uint32_t i = first; i < first + (bytes + LS_ALIGNMENT - 1) / LS_ALIGNMENT; i++)
        replay->owners[i] = owner;
}

static void check_owner(const struct replay *replay, const void *pointer, uint64_t bytes,
                        uint32_t owner, const char *label)
{
    const uint32_t first = first_block(replay, pointer);
    for (uint32_t i = first; i < first + (bytes + LS_ALIGNMENT - 1) / LS_ALIGNMENT; i++)
        ck_assert_msg(replay->owners[i] == owner, "%s reads what %u overwrote", label,
                      replay->owners[i]);
}

static void check_inputs(const struct replay *replay, uint32_t s)
{
    const struct ls_program_step *step = &replay->program->steps[s];
    const struct ls_step_plan *plan = &replay->buffers->plans[s];
    for (uint32_t i = 0; i < step->input_count; i++) {
        if (ls_address(step->memory[i]) && in_arena(replay, ls_address(step->memory[i])))
            check_owner(replay, ls_address(step->memory[i]), bytes_of(replay, plan->values[i]),
                        source_of(replay, plan->values[i]), step->label);
    }
}

// An output may lie over an input only where the kernel said so, and then exactly.
static bool may_overlap(const struct replay *replay, uint32_t s, uint32_t input, uint32_t output)
{
    const struct ls_program_step *step = &replay->program->steps[s];
    return output == step->input_count && (replay->buffers->plans[s].in_place >> input & 1) != 0 &&
           ls_address(step->memory[input]) == ls_address(step->memory[output]);
}

static void write_outputs(struct replay *replay, uint32_t s)
{
    const struct ls_program_step *step = &replay->program->steps[s];
    const struct ls_step_plan *plan = &replay->buffers->plans[s];

    if (step->scratch_bytes > 0)
        own(replay, ls_address(replay->buffers->launches[s].scratch), step->scratch_bytes, SCRATCH);
    for (uint32_t i = step->input_count; i < step->input_count + step->output_count; i++)
        if (ls_address(step->memory[i]) && in_arena(replay, ls_address(step->memory[i])))
            own(replay, ls_address(step->memory[i]), bytes_of(replay, plan->values[i]),
                plan->values[i]);
    // Scratch and outputs have not hit each other, nor an input that is still being read.
    if (step->scratch_bytes > 0)
        check_owner(replay, ls_address(replay->buffers->launches[s].scratch), step->scratch_bytes,
                    SCRATCH, step->label);
    for (uint32_t i = 0; i < step->input_count + step->output_count; i++) {
        const uint64_t bytes = bytes_of(replay, plan->values[i]);
        bool shared = false;
        for (uint32_t k = step->input_count; k < step->input_count + step->output_count; k++)
            shared |= i < step->input_count && may_overlap(replay, s, i, k);
        if (ls_address(step->memory[i]) && in_arena(replay, ls_address(step->memory[i])) && !shared)
            check_owner(replay, ls_address(step->memory[i]), bytes,
                        source_of(replay, plan->values[i]), step->label);
    }
}

// Steps that are tiled together run one after the other, and then all of them again.
static void replay_steps(struct replay *replay, uint32_t first, uint32_t last)
{
    for (uint32_t tile = 0; tile < (last > first ? 2 : 1); tile++)
        for (uint32_t s = first; s <= last; s++) {
            check_inputs(replay, s);
            write_outputs(replay, s);
        }
}

static void replay_joining(struct replay *replay, uint32_t join)
{
    for (uint32_t s = 0; s < join; s++)
        if (replay->buffers->plans[s].join == join)
            replay_steps(replay, s, s);
}

static void check_program(const struct harness_run *run)
{
    struct replay replay = {.program = run->program,
                            .buffers = run->program->buffers,
                            .arena = ls_address(run->bindings.arena),
                            .owners = malloc((run->program->arena_bytes / LS_ALIGNMENT + 1) * 4),
                            .made = calloc(run->program->buffers->value_count, sizeof(bool))};
    memset(replay.owners, 0xff, (run->program->arena_bytes / LS_ALIGNMENT + 1) * 4);
    for (uint32_t s = 0; s < run->program->step_count; s++) {
        const struct ls_program_step *step = &run->program->steps[s];
        for (uint32_t i = step->input_count; i < step->input_count + step->output_count; i++)
            replay.made[replay.buffers->plans[s].values[i]] = true;
    }
    for (uint32_t s = 0; s < run->program->step_count; s = ls_tile_last(run->program, s) + 1) {
        replay_joining(&replay, s);
        replay_steps(&replay, s, ls_tile_last(run->program, s));
    }
    replay_joining(&replay, run->program->step_count);
    const void *output = ls_address(ls_program_output(run->program, 0));
    if (ls_keeps_outputs(run->program) && in_arena(&replay, output))
        check_owner(&replay, output, harness_output_layout(run)->bytes,
                    source_of(&replay, replay.buffers->outputs[0]), "the end");
    free(replay.owners);
    free(replay.made);
}

static uint32_t branches; // steps on a branch, of all programs that were checked

static void check_branch(struct harness_device device, const struct ls_graph *graph,
                         struct ls_program_options options)
{
    const struct harness_device streams = harness_with_streams(device);
    struct harness_run run;
    ck_assert_int_eq(ls_branch_open(harness_face(streams), &options.branch), LS_OK);
    ls_branch_set(options.branch, true);
    harness_start(&run, streams, graph, NULL, options);
    check_program(&run);
    branches += run.program->branch_count;
    harness_stop(&run, true);
    ls_branch_close(options.branch);
}

// Every kind of program of a graph, on a plain device, on one with layouts of its own, and with a
// branch.
static void check_graph(struct ls_graph *graph)
{
    static const struct ls_fusion_pattern patterns[] = {
        {LS_OP_CONV2D, LS_OP_ACTIVATION, 0xffffffff, 0},
        {LS_OP_BATCH_NORMALIZATION, LS_OP_ADD, 0, 0},
        {LS_OP_BATCH_NORMALIZATION, LS_OP_ACTIVATION, 0xffffffff, 0},
    };
    const struct mock_policy policies[] = {
        {0},
        {.no_in_place = true},
        {.first_in_place = true},
        {.own_weights = true,
         .own_activations = true,
         .other_data = true,
         .other_gradient = true,
         .plain_dense = true,
         .patterns = patterns,
         .pattern_count = sizeof(patterns) / sizeof(patterns[0])},
    };
    struct harness_device reference;
    ck_assert(harness_open("reference", &reference));
    for (uint32_t i = 0; i < 4 * 4; i++) {
        struct harness_device mock = mock_open(reference, &policies[i / 4]);
        const struct ls_program_options options = {.batch = 2 + i,
                                                   .purpose = (enum ls_purpose)(i % 4 % 3)};
        struct harness_run run;
        harness_start(&run, mock, graph, NULL, options);
        check_program(&run);
        harness_stop(&run, true);
        check_branch(mock, graph, options);
        mock_close(&mock);
        harness_start(&run, harness_with_tiles(reference, UINT64_C(1) << (4 + i)), graph, NULL,
                      options);
        check_program(&run);
        harness_stop(&run, true);
    }
    harness_close(&reference);
    ls_graph_destroy(graph);
}

// The events of these streams cannot be recorded: a call would end the test.
TEST(a_branch_that_is_off_needs_no_event)
{
    struct ls_graph *graph = harness_cnn();
    struct harness_device reference;
    struct harness_run plain, run;
    ck_assert(harness_open("reference", &reference));
    const struct harness_device streams = harness_with_streams(reference);
    ck_assert(!streams.ops->streams->event_record && !streams.ops->streams->event_wait);
    struct ls_program_options options = {.batch = 3, .purpose = LS_PURPOSE_TRAIN};
    harness_start(&plain, reference, graph, NULL, options);
    ck_assert_int_eq(ls_branch_open(harness_face(streams), &options.branch), LS_OK);
    harness_start(&run, streams, graph, NULL, options);
    ck_assert_uint_gt(run.program->branch_count, 0);
    harness_step(&plain);
    harness_step(&run);
    ck_assert_int_eq(ls_program_join(run.program, LS_OK), LS_OK);
    ck_assert_double_eq(harness_gradient_difference(&plain, &run), 0);
    harness_stop(&plain, true);
    harness_stop(&run, true);
    ls_branch_close(options.branch);
    harness_close(&reference);
    ls_graph_destroy(graph);
}

TEST(no_step_reads_memory_that_another_took)
{
    check_graph(harness_cnn());
    check_graph(harness_mixed());
    check_graph(harness_tied());
    check_graph(harness_residual(LS_RELU));
}

TEST(random_graphs_keep_what_is_still_read)
{
    for (uint64_t seed = 0; seed < 40; seed++)
        check_graph(harness_random(seed));
    ck_assert_uint_gt(branches, 500);
}

TEST(buffers_share_memory)
{
    struct ls_graph *graph = harness_cnn();
    struct harness_device device;
    struct harness_run run;
    ck_assert(harness_open("reference", &device));
    harness_start(&run, device, graph, NULL,
                  (struct ls_program_options){.batch = 16, .purpose = LS_PURPOSE_TRAIN});
    ck_assert_uint_lt(run.program->arena_bytes * 2, run.program->unplanned_bytes);
    ck_assert_uint_gt(run.program->arena_bytes, 0);
    harness_stop(&run, true);
    harness_close(&device);
    ls_graph_destroy(graph);
}
