// SPDX-License-Identifier: Apache-2.0
// Whole programs on device cpu against device reference: the same losses and gradients, in layouts
// of its own, without a conversion of an activation and without a slow kernel.
#include "tests/core/graph/harness.h"

#include "tests/support/plugin.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// The reference computes in double precision; sums of a few thousand products in float32 keep five
// digits.
#define TOLERANCE 2e-5

static struct harness_device reference, cpu;

static void open_devices(void)
{
    ck_assert(harness_open("reference", &reference));
    ck_assert(harness_open("cpu", &cpu));
}

static void close_devices(void)
{
    harness_close(&reference);
    harness_close(&cpu);
}

// oneDNN's kernels for wide vectors agree on layouts. Elsewhere it may have but one fast kernel
// that wants another layout, or none: then only the numbers are checked.
static bool has_wide_kernels(const struct ls_program *program)
{
    for (uint32_t s = 0; s < program->step_count; s++)
        if (strstr(program->steps[s].implementation, "oneDNN") &&
            strstr(program->steps[s].implementation, ":avx"))
            return true;
    return false;
}

static void check_steps(const struct ls_program *program, bool no_conversion)
{
    for (uint32_t s = 0; s < program->step_count && has_wide_kernels(program); s++) {
        ck_assert_msg(!program->steps[s].slow, "%s is slow", program->steps[s].label);
        ck_assert_msg(!no_conversion || !program->steps[s].converts_activation, "%s converts",
                      program->steps[s].label);
    }
}

static void check_graph(struct ls_graph *graph, int64_t batch, bool no_conversion)
{
    const struct ls_program_options options = {.batch = batch, .purpose = LS_PURPOSE_TRAIN};
    struct harness_run expected, run;

    harness_start(&expected, reference, graph, NULL, options);
    harness_start(&run, cpu, graph, NULL, options);
    harness_step(&expected);
    harness_step(&run);
    if (getenv("LOCKSTEP_TEST_VERBOSE"))
        harness_print_steps(run.program);
    ck_assert_double_le(fabs((double)harness_loss(&expected) - (double)harness_loss(&run)),
                        TOLERANCE * fabs((double)harness_loss(&expected)));
    const double difference = harness_gradient_difference(&expected, &run);
    ck_assert_double_le(difference, TOLERANCE);
    check_steps(run.program, no_conversion);
    harness_stop(&expected, true);
    harness_stop(&run, true);
    ls_graph_destroy(graph);
}

// The convolutional network that the documentation trains.
static struct ls_graph *full_cnn(void)
{
    struct ls_graph *graph = harness_graph((const int64_t[]){28, 28, 1}, 3);
    struct ls_tensor *x = harness_conv(graph, "conv2d", graph->inputs[0], 32, 3, 1, false);
    x = harness_activation(graph, "relu", x, LS_RELU);
    x = harness_pool(graph, "max_pooling2d", x, LS_OP_MAX_POOL2D, 2, 2);
    x = harness_conv(graph, "conv2d_1", x, 64, 3, 1, false);
    x = harness_activation(graph, "relu_1", x, LS_RELU);
    x = harness_pool(graph, "max_pooling2d_1", x, LS_OP_MAX_POOL2D, 2, 2);
    x = harness_flatten(graph, "flatten", x);
    x = harness_dense(graph, "dense", x, 128);
    x = harness_activation(graph, "relu_2", x, LS_RELU);
    harness_dense(graph, "dense_1", x, 10);
    harness_finish(graph, LS_LOSS_SPARSE_CROSS_ENTROPY, true);
    return graph;
}

TEST(the_convolutional_network_is_computed_without_conversions)
{
    check_graph(full_cnn(), 4, true);
}

// Under ThreadSanitizer OpenMP has one (tools/test).
static bool has_threads(uint32_t threads)
{
    const char *limit = getenv("OMP_THREAD_LIMIT");
    return !limit || strtoul(limit, NULL, 10) >= threads;
}

static bool is_convolution(const struct ls_program_step *step)
{
    const uint32_t op = step->operation ? step->operation->op : 0;
    return op == LS_OP_CONV2D || op == LS_OP_CONV2D_BACKWARD_DATA ||
           op == LS_OP_CONV2D_BACKWARD_WEIGHTS;
}

// The examples of which convolutions are divided among threads; a batch that they do not divide is
// the library's, as is what is converted around.
static void check_division(uint32_t threads, int64_t batch, bool divisible)
{
    const bool divided = divisible && has_threads(threads);
    struct ls_graph *graph = full_cnn();
    struct harness_run run;
    struct harness_device one = cpu;
    ck_assert(harness_open_threads("cpu", threads, &cpu));
    harness_start(&run, cpu, graph, NULL,
                  (struct ls_program_options){.batch = batch, .purpose = LS_PURPOSE_TRAIN});
    uint32_t convolutions = 0;
    for (uint32_t s = 0; s < run.program->step_count; s++) {
        const struct ls_program_step *step = &run.program->steps[s];
        if (!is_convolution(step) || step->slow || strstr(step->implementation, "reordered"))
            continue;
        ck_assert_msg((strstr(step->implementation, "by examples") != NULL) == divided, "%s: %s",
                      step->label, step->implementation);
        convolutions++;
    }
    // What the library calls its kernels, and which it has, differs between its versions and
    // processors.
    if (!convolutions)
        printf("SKIP: division among threads: oneDNN converts all convolutions here\n");
    harness_stop(&run, true);
    ls_graph_destroy(graph);
    check_graph(full_cnn(), batch, true);
    harness_close(&cpu);
    cpu = one;
}

TEST(threads_divide_the_examples_and_compute_the_same)
{
    check_division(2, 32, true);
    check_division(2, 33, false);
    check_division(4, 32, true);
}

TEST(odd_channels_windows_and_batches_compute_the_same)
{
    for (int64_t batch = 1; batch < 8; batch += 2)
        check_graph(harness_cnn(), batch, false);
}

TEST(reshapes_rows_and_dropout_compute_the_same)
{
    check_graph(harness_mixed(), 5, false);
}

TEST(a_tied_kernel_computes_the_same)
{
    check_graph(harness_tied(), 4, false);
}

TEST(batch_normalization_and_short_cuts_compute_the_same)
{
    for (int64_t batch = 2; batch < 6; batch++)
        check_graph(harness_residual(LS_RELU), batch, false);
    check_graph(harness_tied_norm(), 5, false);
}

TEST(random_graphs_compute_the_same)
{
    for (uint64_t seed = 0; seed < 24; seed++)
        check_graph(harness_random(seed), 3, false);
}

TEST(other_batch_sizes_keep_the_master_layouts)
{
    struct ls_graph *graph = full_cnn();
    struct harness_run whole, part, expected;
    harness_start(&whole, cpu, graph, NULL,
                  (struct ls_program_options){.batch = 8, .purpose = LS_PURPOSE_TRAIN});
    harness_start(&part, cpu, graph, whole.plan,
                  (struct ls_program_options){.batch = 3, .purpose = LS_PURPOSE_TRAIN});
    harness_start(&expected, reference, graph, NULL,
                  (struct ls_program_options){.batch = 3, .purpose = LS_PURPOSE_TRAIN});
    harness_step(&part);
    harness_step(&expected);
    ck_assert_double_le(harness_gradient_difference(&expected, &part), TOLERANCE);
    check_steps(part.program, true);
    harness_stop(&part, false);
    harness_stop(&whole, true);
    harness_stop(&expected, true);
    ls_graph_destroy(graph);
}

TEST(predictions_are_plain_and_the_same)
{
    struct ls_graph *graph = harness_mixed();
    const struct ls_program_options options = {.batch = 3, .purpose = LS_PURPOSE_PREDICT};
    struct harness_run expected, run;
    harness_start(&expected, reference, graph, NULL, options);
    harness_start(&run, cpu, graph, NULL, options);
    harness_step(&expected);
    harness_step(&run);
    ck_assert_uint_eq(harness_output_layout(&run)->kind, LS_LAYOUT_PLAIN);
    const float *a = ls_address(ls_program_output(expected.program, 0)),
                *b = ls_address(ls_program_output(run.program, 0));
    for (int i = 0; i < 12; i++)
        ck_assert_double_eq_tol((double)a[i], (double)b[i], TOLERANCE);
    harness_stop(&expected, true);
    harness_stop(&run, true);
    ls_graph_destroy(graph);
}

TEST_FIXTURE(open_devices, close_devices);

int main(void)
{
    if (!test_plugin_open("device-cpu"))
        return TEST_SKIPPED;
    return test_suite_run("devices");
}
