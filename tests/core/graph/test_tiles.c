// SPDX-License-Identifier: Apache-2.0
// Tiles: neighbouring steps that run a few examples at a time compute what they compute for the
// whole batch at once.
#include "tests/core/graph/pair.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

// Gradients of weights are added up in another order.
#define ADDED 1e-5

static uint32_t count_tiled(const struct ls_program *program)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < program->step_count; s++)
        count += program->buffers->plans[s].tile != NULL;
    return count;
}

static void check_predictions(const struct harness_run *whole, const struct harness_run *tiled)
{
    const float *p = ls_address(ls_program_output(whole->program, 0)),
                *q = ls_address(ls_program_output(tiled->program, 0));
    for (size_t i = 0; i < harness_output_layout(whole)->bytes / sizeof(float); i++)
        ck_assert_double_le(fabs((double)p[i] - (double)q[i]), 1e-6);
}

// Steps of a program for `batch` examples with tiles of `bytes` against one without; returns how
// many were tiled.
static uint32_t compare(struct harness_device device, struct ls_graph *graph,
                        struct ls_program_options options, uint64_t bytes)
{
    struct harness_run whole, tiled;
    struct harness_device plain = device;
    struct ls_device_interface without = *device.ops;
    struct ls_device_kernels kernels = *device.ops->kernels;
    kernels.tile_bytes = NULL;
    without.kernels = &kernels;
    plain.ops = &without;
    harness_start(&whole, plain, graph, NULL, options);
    harness_start(&tiled, harness_with_tiles(device, bytes), graph, NULL, options);
    harness_step(&whole);
    harness_step(&tiled);
    harness_step(&tiled);
    const double loss = (double)harness_loss(&whole);
    ck_assert_double_le(fabs(loss - (double)harness_loss(&tiled)), 1e-6 * fabs(loss));
    if (options.purpose == LS_PURPOSE_TRAIN)
        ck_assert_double_le(harness_gradient_difference(&whole, &tiled), ADDED);
    if (options.purpose == LS_PURPOSE_PREDICT)
        check_predictions(&whole, &tiled);
    if (options.purpose == LS_PURPOSE_PREDICT)
        ck_assert_uint_eq(harness_output_layout(&whole)->bytes,
                          harness_output_layout(&tiled)->bytes);
    const uint32_t count = count_tiled(tiled.program);
    ck_assert_uint_eq(count_tiled(whole.program), 0);
    harness_stop(&whole, true);
    harness_stop(&tiled, true);
    return count;
}

// What reads the pooling's output calls it by another name.
static struct ls_graph *pooled_and_reshaped(void)
{
    struct ls_graph *graph = harness_graph((const int64_t[]){9, 8, 2}, 3);
    struct ls_tensor *x = harness_pool(graph, "pool", graph->inputs[0], LS_OP_AVERAGE_POOL2D, 2, 1);
    x = harness_flatten(graph, "flatten", x);
    x = harness_activation(graph, "tanh", x, LS_TANH);
    harness_dense(graph, "dense", x, 3);
    harness_finish(graph, LS_LOSS_SPARSE_CROSS_ENTROPY, true);
    return graph;
}

static const char *const devices[] = {"reference", "cpu"};

// Examples of harness_cnn's largest activation, 9 x 8 x 3 floats, are 864 bytes.
LOOP_TEST(every_batch_and_tile_computes_the_same, 0, 2)
{
    struct harness_device device;
    struct ls_graph *graphs[] = {harness_cnn(), harness_mixed(), harness_residual(LS_RELU),
                                 pooled_and_reshaped()};
    uint32_t tiled = 0;
    if (!harness_open(devices[_i], &device))
        return;
    for (int64_t batch = 1; batch <= 9; batch++)
        for (uint64_t bytes = 300; bytes <= 4800; bytes *= 2)
            for (size_t g = 0; g < sizeof(graphs) / sizeof(graphs[0]); g++)
                for (int training = 0; training < 2; training++)
                    tiled +=
                        compare(device, graphs[g],
                                (struct ls_program_options){
                                    .batch = batch,
                                    .purpose = training ? LS_PURPOSE_TRAIN : LS_PURPOSE_PREDICT},
                                bytes);
    ck_assert_uint_gt(tiled, 0);
    for (size_t g = 0; g < sizeof(graphs) / sizeof(graphs[0]); g++)
        ls_graph_destroy(graphs[g]);
    harness_close(&device);
}

LOOP_TEST(random_graphs_compute_the_same, 0, 2)
{
    struct harness_device device;
    if (!harness_open(devices[_i], &device))
        return;
    uint32_t tiled = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct ls_graph *graph = harness_random(seed);
        for (int training = 0; training < 2; training++)
            tiled += compare(device, graph,
                             (struct ls_program_options){.batch = 2 + (int64_t)seed % 6,
                                                         .purpose = training ? LS_PURPOSE_TRAIN
                                                                             : LS_PURPOSE_PREDICT},
                             UINT64_C(288) << seed % 4);
        ls_graph_destroy(graph);
    }
    ck_assert_uint_gt(tiled, 0);
    harness_close(&device);
}

static void check_tiled(const struct ls_program *program, const char *label, const char *text)
{
    const int step = harness_find_step(program, label);
    ck_assert_msg(step >= 0, "%s", label);
    ck_assert_msg(text ? strstr(program->steps[step].implementation, text) != NULL
                       : program->buffers->plans[step].tile == NULL,
                  "%s: %s", label, program->steps[step].implementation);
}

// The reference device looks for the largest elements again in the backward pass, so that what
// pooling reads must stay.
TEST(what_lies_between_two_steps_has_room_for_a_tile)
{
    struct ls_graph *graph = harness_cnn();
    struct harness_device device;
    struct harness_run run;
    ck_assert(harness_open("reference", &device));
    harness_start(&run, harness_with_tiles(device, 2000), graph, NULL,
                  (struct ls_program_options){.batch = 7, .purpose = LS_PURPOSE_TRAIN});
    check_tiled(run.program, "conv2d forward", ", 2 at a time");
    check_tiled(run.program, "max_pooling2d forward", NULL);
    check_tiled(run.program, "max_pooling2d backward", ", 2 at a time");
    check_tiled(run.program, "relu backward", ", 2 at a time");
    check_tiled(run.program, "conv2d backward weights", ", 2 at a time");
    check_tiled(run.program, "dense backward weights", NULL);
    const int step = harness_find_step(run.program, "relu backward");
    const uint32_t dy = run.program->buffers->plans[step].values[0];
    ck_assert_uint_eq(run.program->buffers->values[dy].tile_bytes, 2 * 864);
    harness_stop(&run, true);

    harness_start(&run, harness_with_tiles(device, 2000), graph, NULL,
                  (struct ls_program_options){.batch = 7, .purpose = LS_PURPOSE_PREDICT});
    check_tiled(run.program, "conv2d forward", ", 2 at a time");
    check_tiled(run.program, "max_pooling2d_1 forward", ", 2 at a time");
    harness_stop(&run, true);

    harness_start(&run, harness_with_tiles(device, 7 * 864), graph, NULL,
                  (struct ls_program_options){.batch = 7, .purpose = LS_PURPOSE_TRAIN});
    ck_assert_uint_eq(count_tiled(run.program), 0); // all fits
    harness_stop(&run, true);
    harness_start(&run, harness_with_tiles(device, 863), graph, NULL,
                  (struct ls_program_options){.batch = 7, .purpose = LS_PURPOSE_TRAIN});
    check_tiled(run.program, "conv2d forward", NULL); // not even one example fits
    harness_stop(&run, true);
    harness_close(&device);
    ls_graph_destroy(graph);
}

static const struct ls_device_interface *inner_ops;

static int32_t refuse_to_add(struct ls_device *device, const struct ls_kernel_request *request,
                             struct ls_kernel_answer *out)
{
    return request->accumulate ? LS_UNSUPPORTED : inner_ops->kernels->prepare(device, request, out);
}

TEST(a_device_without_kernels_for_tiles_runs_the_whole_batch)
{
    struct ls_graph *graph = harness_cnn();
    struct harness_device device;
    ck_assert(harness_open("reference", &device));
    struct ls_device_interface ops = *device.ops;
    inner_ops = device.ops;
    struct ls_device_kernels kernels = *device.ops->kernels;
    kernels.prepare = refuse_to_add;
    ops.kernels = &kernels;
    const struct harness_device refusing = {.ops = &ops, .device = device.device};
    struct harness_run run;
    harness_start(&run, harness_with_tiles(refusing, 900), graph, NULL,
                  (struct ls_program_options){.batch = 4, .purpose = LS_PURPOSE_TRAIN});
    check_tiled(run.program, "conv2d backward weights", NULL);
    harness_stop(&run, true);
    compare(refusing, graph, (struct ls_program_options){.batch = 4, .purpose = LS_PURPOSE_TRAIN},
            900);
    harness_close(&device);
    ls_graph_destroy(graph);
}

TEST(steps_that_are_tiled_together_run_with_the_first)
{
    struct ls_graph *graph = harness_cnn();
    struct harness_device device;
    struct harness_run at_once, one_by_one;
    ck_assert(harness_open("reference", &device));
    const struct harness_device tiled = harness_with_tiles(device, 900);
    const struct ls_program_options options = {.batch = 5, .purpose = LS_PURPOSE_TRAIN};
    harness_start(&at_once, tiled, graph, NULL, options);
    harness_start(&one_by_one, tiled, graph, NULL, options);
    harness_step(&at_once);
    for (uint32_t s = 0; s < one_by_one.program->step_count; s++) {
        ck_assert_int_eq(ls_program_run(one_by_one.program, s, s + 1, true), LS_OK);
        const uint32_t first = ls_tile_first(one_by_one.program, s);
        for (uint32_t k = first; k <= ls_tile_last(one_by_one.program, s); k++)
            ck_assert_uint_gt(one_by_one.program->steps[k].nanoseconds, 0);
    }
    ck_assert_uint_gt(count_tiled(one_by_one.program), 0);
    ck_assert(harness_loss(&at_once) == harness_loss(&one_by_one));
    ck_assert(harness_gradient_difference(&at_once, &one_by_one) == 0);
    harness_stop(&at_once, true);
    harness_stop(&one_by_one, true);
    harness_close(&device);
    ls_graph_destroy(graph);
}

TEST(what_is_not_finite_is_found_behind_tiles)
{
    struct ls_graph *graph = harness_cnn();
    struct harness_device device;
    struct harness_run run;
    char text[64];
    ck_assert(harness_open("reference", &device));
    harness_start(&run, harness_with_tiles(device, 900), graph, NULL,
                  (struct ls_program_options){.batch = 5, .purpose = LS_PURPOSE_PREDICT});
    const struct ls_tensor *kernel = harness_parameter(graph, "conv2d/kernel");
    float *values = harness_read(&run, kernel, false);
    for (int64_t i = 0; i < harness_elements(&run, kernel); i++)
        values[i] = 3e38f;
    harness_write(&run, kernel, values);
    free(values);
    ck_assert_int_eq(ls_program_find_not_finite(run.program, text, sizeof(text)), LS_OK);
    const int last = (int)ls_tile_last(run.program, 0);
    ck_assert_int_gt(last, 0);
    ck_assert_str_eq(text, run.program->steps[last].label);
    harness_stop(&run, true);
    harness_close(&device);
    ls_graph_destroy(graph);
}
