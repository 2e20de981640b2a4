// SPDX-License-Identifier: Apache-2.0
// Whole graphs against central differences of their loss, on the reference device.
#include "tests/core/graph/harness.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

// The loss is a float: its rounding (6e-8 of about 10) over twice the step is 1.5e-4; the rest is for the
// truncation, of second order in the step. A larger step would cross kinks of relu and ties of pooling.
#define DIFFERENCE 2e-3f
#define TOLERANCE 1e-3

static float loss_at(struct harness_run *run, const struct ls_tensor *parameter, float *values,
                     int64_t i, float value)
{
    const float before = values[i];
    values[i] = value;
    harness_write(run, parameter, values);
    harness_step(run);
    values[i] = before;
    return harness_loss(run);
}

static void check_parameter(struct harness_run *run, const struct ls_tensor *parameter)
{
    const int64_t count = harness_elements(run, parameter);
    float *values = harness_read(run, parameter, false),
          *gradient = harness_read(run, parameter, true);
    double largest = 0;

    for (int64_t i = 0; i < count; i++)
        largest = fmax(largest, fabs((double)gradient[i]));
    ck_assert_double_gt(largest, 1e-4);
    for (int64_t i = 0; i < count; i++) {
        const float above = loss_at(run, parameter, values, i, values[i] + DIFFERENCE);
        const float below = loss_at(run, parameter, values, i, values[i] - DIFFERENCE);
        const double expected = ((double)above - (double)below) / (2 * (double)DIFFERENCE);
        ck_assert_msg(fabs(expected - (double)gradient[i]) <= TOLERANCE * fmax(largest, 1),
                      "%s[%lld]: gradient %g, difference %g", parameter->name, (long long)i,
                      (double)gradient[i], expected);
    }
    harness_write(run, parameter, values);
    harness_step(run);
    free(values);
    free(gradient);
}

static void check_graph(struct ls_graph *graph, int64_t batch)
{
    struct harness_device device;
    struct harness_run run;

    ck_assert(harness_open("reference", &device));
    harness_start(&run, device, graph, NULL,
                  (struct ls_program_options){.batch = batch, .training = true});
    harness_step(&run);
    ck_assert(isfinite(harness_loss(&run)));
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        check_parameter(&run, graph->parameters[i]);
    harness_stop(&run, true);
    harness_close(&device);
    ls_graph_destroy(graph);
}

START_TEST(a_convolutional_network_has_the_gradient_of_its_loss)
{
    check_graph(harness_cnn(), 3);
}
END_TEST

START_TEST(reshapes_rows_dropout_and_softmax_have_the_gradient_of_their_loss)
{
    check_graph(harness_mixed(), 5);
}
END_TEST

START_TEST(a_kernel_used_three_times_and_a_tensor_used_twice_sum_their_gradients)
{
    check_graph(harness_tied(), 4);
}
END_TEST

START_TEST(normalized_convolutions_with_short_cuts_have_the_gradient_of_their_loss)
{
    check_graph(harness_residual(LS_TANH), 3);
}
END_TEST

// The term goes around the norm; few elements, so that no difference crosses the kink of relu.
START_TEST(a_short_cut_around_a_norm_before_relu_has_the_gradient_of_its_loss)
{
    struct ls_graph *graph = harness_graph((const int64_t[]){3}, 1);
    struct ls_tensor *term = harness_dense(graph, "dense", graph->input, 4);
    struct ls_tensor *x = harness_activation(graph, "tanh", term, LS_TANH);
    x = harness_add(graph, "add", harness_norm(graph, "norm", x), term);
    x = harness_activation(graph, "relu", x, LS_RELU);
    harness_dense(graph, "dense_1", x, 3);
    harness_finish(graph, LS_LOSS_SPARSE_CROSS_ENTROPY, true);
    check_graph(graph, 4);
}
END_TEST

START_TEST(variables_of_a_norm_used_twice_sum_their_gradients)
{
    check_graph(harness_tied_norm(), 5);
}
END_TEST

START_TEST(every_activation_is_differentiated_through_its_output)
{
    static const uint32_t smooth[] = {LS_LINEAR, LS_ELU,      LS_SIGMOID,
                                      LS_TANH,   LS_SOFTPLUS, LS_EXPONENTIAL};
    struct ls_graph *graph = harness_graph((const int64_t[]){4}, 1);
    struct ls_tensor *x = graph->input;
    char name[32];

    for (size_t i = 0; i < sizeof(smooth) / sizeof(smooth[0]); i++) {
        snprintf(name, sizeof(name), "dense_%zu", i);
        x = harness_dense(graph, name, x, 4);
        snprintf(name, sizeof(name), "activation_%zu", i);
        x = harness_activation(graph, name, x, smooth[i]);
    }
    harness_simple(graph, "softmax", x, LS_OP_SOFTMAX);
    harness_finish(graph, LS_LOSS_MEAN_SQUARED_ERROR, false);
    check_graph(graph, 2);
}
END_TEST

START_TEST(a_loss_over_several_positions_has_its_gradient)
{
    struct ls_graph *graph = harness_graph((const int64_t[]){3, 4}, 2);
    struct ls_tensor *x = harness_dense(graph, "dense", graph->input, 5);
    x = harness_activation(graph, "tanh", x, LS_TANH);
    harness_dense(graph, "dense_1", x, 3);
    harness_finish(graph, LS_LOSS_SPARSE_CROSS_ENTROPY, true);
    check_graph(graph, 3);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gradients");
    TCase *tests = tcase_create("whole graphs");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_convolutional_network_has_the_gradient_of_its_loss);
    tcase_add_test(tests, reshapes_rows_dropout_and_softmax_have_the_gradient_of_their_loss);
    tcase_add_test(tests, a_kernel_used_three_times_and_a_tensor_used_twice_sum_their_gradients);
    tcase_add_test(tests, normalized_convolutions_with_short_cuts_have_the_gradient_of_their_loss);
    tcase_add_test(tests, a_short_cut_around_a_norm_before_relu_has_the_gradient_of_its_loss);
    tcase_add_test(tests, variables_of_a_norm_used_twice_sum_their_gradients);
    tcase_add_test(tests, every_activation_is_differentiated_through_its_output);
    tcase_add_test(tests, a_loss_over_several_positions_has_its_gradient);
    suite_add_tcase(suite, tests);

    return test_suite_run(suite);
}
