// SPDX-License-Identifier: Apache-2.0
// Whole graphs against central differences of their loss, on the reference device.
#include "tests/core/graph/harness.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

// The loss is a float: its rounding (6e-8 of about 10) over twice the step is 1.5e-4; the rest is
// for the truncation, of second order in the step. A larger step would cross kinks of relu and ties
// of pooling.
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
                  (struct ls_program_options){.batch = batch, .purpose = LS_PURPOSE_TRAIN});
    harness_step(&run);
    ck_assert(isfinite(harness_loss(&run)));
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        if (graph->parameters[i]->zone == LS_ZONE_TRAINED)
            check_parameter(&run, graph->parameters[i]);
    harness_stop(&run, true);
    harness_close(&device);
    ls_graph_destroy(graph);
}

// A normalization whose statistics are the batch's, or given ones; and frozen layers.
TEST(normalization_with_moving_statistics_has_the_gradient_of_its_loss)
{
    static const struct harness_moving kinds[] = {{.momentum = 0.9},
                                                  {.given = true},
                                                  {.frozen = true},
                                                  {.constants = true},
                                                  {.given = true, .constants = true}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        check_graph(harness_moving(&kinds[i]), 3);
}

TEST(a_convolutional_network_has_the_gradient_of_its_loss)
{
    check_graph(harness_cnn(), 3);
}

TEST(reshapes_rows_dropout_and_softmax_have_the_gradient_of_their_loss)
{
    check_graph(harness_mixed(), 5);
}

TEST(a_kernel_used_three_times_and_a_tensor_used_twice_sum_their_gradients)
{
    check_graph(harness_tied(), 4);
}

TEST(normalized_convolutions_with_short_cuts_have_the_gradient_of_their_loss)
{
    check_graph(harness_residual(LS_TANH), 3);
}

// The term goes around the norm; few elements, so that no difference crosses the kink of relu.
TEST(a_short_cut_around_a_norm_before_relu_has_the_gradient_of_its_loss)
{
    struct ls_graph *graph = harness_graph((const int64_t[]){3}, 1);
    struct ls_tensor *term = harness_dense(graph, "dense", graph->inputs[0], 4);
    struct ls_tensor *x = harness_activation(graph, "tanh", term, LS_TANH);
    x = harness_add(graph, "add", harness_norm(graph, "norm", x), term);
    x = harness_activation(graph, "relu", x, LS_RELU);
    harness_dense(graph, "dense_1", x, 3);
    harness_finish(graph, LS_LOSS_SPARSE_CROSS_ENTROPY, true);
    check_graph(graph, 4);
}

TEST(variables_of_a_norm_used_twice_sum_their_gradients)
{
    check_graph(harness_tied_norm(), 5);
}

TEST(every_activation_is_differentiated_through_its_output)
{
    static const uint32_t smooth[] = {LS_LINEAR,   LS_ELU,         LS_SIGMOID, LS_TANH,
                                      LS_SOFTPLUS, LS_EXPONENTIAL, LS_SOFTSIGN};
    for (size_t i = 0; i < sizeof(smooth) / sizeof(smooth[0]); i++) {
        struct ls_graph *graph = harness_graph((const int64_t[]){4}, 1);
        struct ls_tensor *x = harness_dense(graph, "dense", graph->inputs[0], 4);
        x = harness_activation(graph, "activation", x, smooth[i]);
        harness_simple(graph, "softmax", harness_dense(graph, "dense_1", x, 4), LS_OP_SOFTMAX);
        harness_finish(graph, LS_LOSS_MEAN_SQUARED_ERROR, false);
        check_graph(graph, 2);
    }
}

// One operation with the gradients of two tensors, also where both are the same.
TEST(a_maximum_has_the_gradients_of_both_inputs)
{
    struct ls_graph *graph = harness_graph((const int64_t[]){3}, 1);
    struct ls_tensor *pair[2], *y;
    pair[0] = harness_dense(graph, "dense", graph->inputs[0], 6);
    pair[1] = harness_activation(graph, "tanh", pair[0], LS_TANH);
    pair[1] = harness_dense(graph, "dense_1", pair[1], 6);
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_MAXIMUM, NULL, pair, 2, NULL, &y), LS_OK);
    pair[0] = pair[1] = y;
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_MAXIMUM, NULL, pair, 2, NULL, &y), LS_OK);
    harness_dense(graph, "dense_2", y, 3);
    harness_finish(graph, LS_LOSS_SPARSE_CROSS_ENTROPY, true);
    check_graph(graph, 4);
}

// The penalties of a variable that is used twice, of one that is used once, and of none; the values
// are away from 0.
TEST(penalties_add_to_loss_and_gradient)
{
    struct harness_device device;
    struct harness_run runs[2];
    struct ls_graph *graphs[2];
    double penalty = 0;
    ck_assert(harness_open("reference", &device));
    for (int i = 0; i < 2; i++) {
        graphs[i] = harness_graph((const int64_t[]){3}, 1);
        struct ls_tensor *x = harness_dense(graphs[i], "dense", graphs[i]->inputs[0], 3);
        x = harness_activation(graphs[i], "tanh", x, LS_TANH);
        x = harness_dense_with(graphs[i], "again", x, harness_parameter(graphs[i], "dense/kernel"),
                               NULL);
        harness_parameter(graphs[i], "dense/kernel")->l2 = i == 0 ? 0.25f : 0;
        harness_parameter(graphs[i], "dense/bias")->l1 = i == 0 ? 0.5f : 0;
        harness_parameter(graphs[i], "dense/bias")->l2 = i == 0 ? 0.125f : 0;
        harness_finish(graphs[i], LS_LOSS_MEAN_SQUARED_ERROR, false);
        harness_start(&runs[i], device, graphs[i], NULL,
                      (struct ls_program_options){.batch = 4, .purpose = LS_PURPOSE_TRAIN});
        harness_step(&runs[i]);
    }
    for (uint32_t i = 0; i < graphs[0]->parameter_count; i++) {
        const struct ls_tensor *parameter = graphs[0]->parameters[i];
        float *values = harness_read(&runs[0], parameter, false);
        for (int64_t k = 0; k < harness_elements(&runs[0], parameter); k++)
            penalty += (double)parameter->l1 * fabs((double)values[k]) +
                       (double)parameter->l2 * (double)values[k] * (double)values[k];
        free(values);
    }
    ck_assert_double_gt(penalty, 0.1);
    // The sums are over 4 examples.
    ck_assert_double_eq_tol((double)harness_loss(&runs[0]) - (double)harness_loss(&runs[1]),
                            4 * penalty, 1e-5);
    for (int i = 0; i < 2; i++)
        harness_stop(&runs[i], true);
    check_graph(graphs[0], 4);
    ls_graph_destroy(graphs[1]);
    harness_close(&device);
}

TEST(a_loss_over_several_positions_has_its_gradient)
{
    struct ls_graph *graph = harness_graph((const int64_t[]){3, 4}, 2);
    struct ls_tensor *x = harness_dense(graph, "dense", graph->inputs[0], 5);
    x = harness_activation(graph, "tanh", x, LS_TANH);
    harness_dense(graph, "dense_1", x, 3);
    harness_finish(graph, LS_LOSS_SPARSE_CROSS_ENTROPY, true);
    check_graph(graph, 3);
}

// One backward operation writes both gradients of the variable; the second norm adds to them.
TEST(one_variable_as_gamma_and_beta_sums_both_gradients)
{
    struct ls_graph *graph = harness_graph((const int64_t[]){4}, 1);
    struct ls_tensor *x = harness_dense(graph, "dense", graph->inputs[0], 4);
    struct ls_tensor *both = harness_parameter(graph, "dense/bias");
    x = harness_activation(graph, "tanh", harness_norm_with(graph, "norm", x, both, both), LS_TANH);
    harness_norm_with(graph, "norm_1", x, both, both);
    harness_finish(graph, LS_LOSS_MEAN_SQUARED_ERROR, false);
    check_graph(graph, 5);
}

// A dense layer without options, on a kernel and bias of its own or, used again, on those it has.
static struct ls_tensor *dense_layer(struct ls_graph *graph, const char *name, bool again,
                                     struct ls_tensor *x, int64_t units)
{
    const struct ls_initializer zeros = {.kind = LS_ZEROS};
    const struct ls_shape kernel = {.ndims = 2, .dims = {x->shape.dims[1], units}},
                          bias = {.ndims = 1, .dims = {units}};
    struct ls_tensor *inputs[3] = {x}, *y;
    ck_assert_int_eq(again ? ls_graph_reuse_layer(graph, name)
                           : ls_graph_begin_layer(graph, name, "Dense"),
                     LS_OK);
    ck_assert_int_eq(ls_graph_parameter(graph, "kernel", &kernel, &zeros, &inputs[1]), LS_OK);
    ck_assert_int_eq(ls_graph_parameter(graph, "bias", &bias, &zeros, &inputs[2]), LS_OK);
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_DENSE, NULL, inputs, 3, NULL, &y), LS_OK);
    ls_graph_end_layer(graph, y);
    return y;
}

// One layer looks at two inputs of the model: a siamese network.
static struct ls_graph *siamese(void)
{
    struct ls_graph *graph = harness_graph((const int64_t[]){3}, 1);
    struct ls_tensor *left = graph->inputs[0], *right;
    ck_assert_int_eq(ls_graph_input(graph, &(struct ls_shape){.ndims = 1, .dims = {3}}, &right),
                     LS_OK);
    left = harness_activation(graph, "left", dense_layer(graph, "tower", false, left, 5), LS_TANH);
    right =
        harness_activation(graph, "right", dense_layer(graph, "tower", true, right, 5), LS_SIGMOID);
    harness_add(graph, "add", left, right);
    ck_assert_uint_eq(graph->parameter_count, 2);
    return graph;
}

TEST(two_inputs_through_one_layer_sum_its_gradients)
{
    struct ls_graph *graph = siamese();
    harness_finish(graph, LS_LOSS_MEAN_SQUARED_ERROR, false);
    check_graph(graph, 4);
}

// The sum over the model's outputs of output times seed.
static double seeded(struct harness_run *run, const struct ls_tensor *parameter, float *values,
                     int64_t i, float value)
{
    double sum = 0;
    const float before = values[i];
    values[i] = value;
    harness_write(run, parameter, values);
    harness_step(run);
    for (uint32_t o = 0; o < run->graph->output_count; o++) {
        const float *y = ls_address(ls_program_output(run->program, o));
        for (int64_t k = 0; k < harness_elements(run, run->graph->outputs[o]); k++)
            sum += (double)y[k] * (double)run->seeds[o][k];
    }
    values[i] = before;
    return sum;
}

static void check_seeded(struct harness_run *run, const struct ls_tensor *parameter)
{
    harness_step(run);
    float *values = harness_read(run, parameter, false),
          *gradient = harness_read(run, parameter, true);
    for (int64_t i = 0; i < harness_elements(run, parameter); i++) {
        const double above = seeded(run, parameter, values, i, values[i] + DIFFERENCE);
        const double below = seeded(run, parameter, values, i, values[i] - DIFFERENCE);
        ck_assert_double_eq_tol((above - below) / (2 * (double)DIFFERENCE), (double)gradient[i],
                                TOLERANCE);
    }
    harness_write(run, parameter, values);
    free(values);
    free(gradient);
}

// Two outputs, one of which is also what the other is made of.
TEST(gradients_from_outside_of_two_outputs_reach_every_variable)
{
    struct harness_device device;
    struct harness_run run;
    struct ls_graph *graph = siamese();
    struct ls_tensor *outputs[] = {graph->outputs[0], NULL}, *seed;
    outputs[1] = harness_dense(graph, "head", outputs[0], 2);
    ck_assert_int_eq(ls_graph_set_outputs(graph, outputs, 2), LS_OK);
    for (uint32_t i = 0; i < 2; i++)
        ck_assert_int_eq(ls_graph_add_seed(graph, outputs[i], &seed), LS_OK);
    ck_assert_int_eq(ls_graph_differentiate(graph), LS_OK);

    ck_assert(harness_open("reference", &device));
    harness_start(&run, device, graph, NULL,
                  (struct ls_program_options){.batch = 4, .purpose = LS_PURPOSE_TRAIN});
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        check_seeded(&run, graph->parameters[i]);
    harness_stop(&run, true);
    harness_close(&device);
    ls_graph_destroy(graph);
}

// Dense tanh and a product with a scale, both twice with the same variables, then a mean over a
// layer that is computed in float32 only.
static struct ls_graph *twice_graph(uint32_t compute)
{
    const struct ls_shape units = {.ndims = 1, .dims = {4}};
    const struct ls_initializer ones = {.kind = LS_ONES};
    const struct ls_op_attributes product = {.function = LS_PAIR_MULTIPLY};
    const struct ls_op_attributes norm = {.epsilon = 1e-3f};
    struct ls_graph *graph = harness_graph((const int64_t[]){4}, 1);
    struct ls_tensor *x, *scale;
    graph->compute = compute;
    x = harness_dense(graph, "dense", graph->inputs[0], 4);
    struct ls_tensor *kernel = harness_parameter(graph, "dense/kernel"),
                     *bias = harness_parameter(graph, "dense/bias");
    ck_assert_int_eq(ls_graph_begin_layer(graph, "scale", "Test"), LS_OK);
    ck_assert_int_eq(ls_graph_parameter(graph, "scale", &units, &ones, &scale), LS_OK);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(ls_graph_add(graph, LS_OP_PAIR, &product, (struct ls_tensor *[]){x, scale},
                                      2, NULL, &x),
                         LS_OK);
    ls_graph_end_layer(graph, x);
    x = harness_activation(graph, "tanh", x, LS_TANH);
    ck_assert_int_eq(ls_graph_begin_layer(graph, "norm", "Test"), LS_OK);
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_LAYER_NORMALIZATION, &norm, &x, 1, NULL, &x), LS_OK);
    ls_graph_end_layer(graph, x);
    x = harness_dense_with(graph, "again", x, kernel, bias);
    ck_assert_uint_eq(x->dtype, compute);
    ck_assert_int_eq(ls_graph_float32_outputs(graph), LS_OK);
    ck_assert_uint_eq(graph->outputs[0]->dtype, LS_F32);
    harness_finish(graph, LS_LOSS_MEAN_SQUARED_ERROR, false);
    return graph;
}

// Kernels read halves of the variables, of which there is one for each variable, in training and
// evaluation; gradients come together in float32.
LOOP_TEST(variables_in_halves_used_twice_sum_their_gradients, 0, 2)
{
    static const uint32_t types[2] = {LS_BF16, LS_F16};
    static const double most[2] = {0x1p-5, 0x1p-8};
    struct harness_device device;
    struct harness_run exact, run, evaluation;
    struct ls_graph *graph = twice_graph(LS_F32), *halves = twice_graph(types[_i]);
    ck_assert(harness_open("reference", &device));
    struct ls_program_options options = {.batch = 4, .purpose = LS_PURPOSE_TRAIN};
    harness_start(&exact, device, graph, NULL, options);
    harness_start(&run, device, halves, NULL, options);
    ck_assert_uint_eq(exact.plan->shadow_count, 0);
    ck_assert_uint_eq(run.plan->shadow_count, 3); // kernel, bias, scale
    for (uint32_t i = 0; i < run.plan->shadow_count; i++)
        ck_assert_uint_eq(run.plan->shadows[i].dtype, types[_i]);
    harness_step(&exact);
    harness_step(&run);
    const double difference = harness_gradient_difference(&exact, &run);
    ck_assert_double_gt(difference, 0);
    ck_assert_double_lt(difference, most[_i]);
    options.purpose = LS_PURPOSE_EVALUATE;
    harness_start(&evaluation, device, halves, run.plan, options);
    ck_assert_uint_eq(run.plan->shadow_count, 3);
    harness_stop(&evaluation, false);
    harness_stop(&exact, true);
    harness_stop(&run, true);
    harness_close(&device);
    ls_graph_destroy(graph);
    ls_graph_destroy(halves);
}

// ---- Shadows together: a device that makes segments of casts alone ----

static struct {
    const struct ls_device_kernels *real;
    struct ls_kernel *list[4];
    uint32_t count, asked[3], asks, launches;
} casts;

static int32_t prepare_casts(struct ls_device *device, const struct ls_segment_request *request,
                             struct ls_kernel_answer *out)
{
    casts.asked[casts.asks++] = request->kernel_count;
    for (uint32_t i = 0; i < request->kernel_count; i++) {
        const struct ls_tensor_desc *of = request->kernels[i].request->arguments;
        if (of[0].layout.words[0] != of[1].layout.words[0])
            return LS_UNSUPPORTED;
    }
    for (casts.count = 0; casts.count < request->kernel_count; casts.count++) {
        struct ls_layout layouts[2] = {{0}};
        struct ls_kernel_answer answer = {.struct_size = sizeof(answer), .layouts = layouts};
        ck_assert_int_eq(
            casts.real->prepare(device, request->kernels[casts.count].request, &answer), LS_OK);
        casts.list[casts.count] = answer.kernel;
        if (answer.scratch_bytes > out->scratch_bytes)
            out->scratch_bytes = answer.scratch_bytes;
    }
    out->kernel = (struct ls_kernel *)(void *)&casts;
    return LS_OK;
}

static int32_t launch_casts(struct ls_device *device, const struct ls_kernel *kernel,
                            const struct ls_launch *launch)
{
    if ((const void *)kernel != &casts)
        return casts.real->launch(device, kernel, launch);
    casts.launches++;
    ck_assert_uint_eq(launch->argument_count, 2 * casts.count);
    for (uint32_t i = 0; i < casts.count; i++) {
        struct ls_launch one = *launch;
        one.argument_count = 2;
        one.arguments = &launch->arguments[2 * i];
        ck_assert_int_eq(casts.real->launch(device, casts.list[i], &one), LS_OK);
    }
    return LS_OK;
}

static void release_casts(struct ls_device *device, struct ls_kernel *kernel)
{
    if ((void *)kernel != &casts)
        casts.real->release(device, kernel);
    else
        for (uint32_t i = 0; i < casts.count; i++)
            casts.real->release(device, casts.list[i]);
}

TEST(a_shadow_of_another_layout_leaves_the_others_together)
{
    struct harness_device device;
    struct harness_run apart, run;
    struct ls_graph *halves = twice_graph(LS_BF16);
    ck_assert(harness_open("reference", &device));
    const struct ls_program_options options = {.batch = 4, .purpose = LS_PURPOSE_TRAIN};
    harness_start(&apart, device, halves, NULL, options);
    harness_step(&apart);
    harness_start(&run, device, halves, NULL, options);
    struct ls_device_interface ops = *device.ops;
    struct ls_device_kernels kernels = *device.ops->kernels;
    memset(&casts, 0, sizeof(casts));
    casts.real = device.ops->kernels;
    kernels.prepare_segment = prepare_casts;
    kernels.launch = launch_casts;
    kernels.release = release_casts;
    ops.kernels = &kernels;
    harness_face((struct harness_device){.ops = &ops, .device = device.device});
    run.plan->shadows[1].layout.words[0] = 7; // its conversion stays what it is
    ck_assert_int_eq(ls_plan_gather_shadows(run.plan), LS_OK);
    ck_assert_uint_eq(casts.asks, 2);
    ck_assert_uint_eq(casts.asked[0], 3);
    ck_assert_uint_eq(casts.asked[1], 2);
    harness_step(&run);
    ck_assert_uint_eq(casts.launches, 1);
    ck_assert_double_eq(harness_gradient_difference(&apart, &run), 0);
    harness_stop(&run, true);
    harness_stop(&apart, true);
    harness_face(device);
    harness_close(&device);
    ls_graph_destroy(halves);
}

// Halves have steps of their own, so differences say nothing: the gradient is that without the
// conversion, but for the rounding of bfloat16 (8 bits) on the way.
TEST(a_conversion_passes_the_gradient_through)
{
    struct harness_device device;
    struct harness_run runs[2];
    struct ls_graph *graphs[2];
    ck_assert(harness_open("reference", &device));
    for (int i = 0; i < 2; i++) {
        graphs[i] = harness_graph((const int64_t[]){4}, 1);
        struct ls_tensor *x = harness_dense(graphs[i], "dense", graphs[i]->inputs[0], 4);
        if (i == 1)
            ck_assert_int_eq(ls_graph_convert(graphs[i], x, LS_BF16, &x), LS_OK);
        x = harness_activation(graphs[i], "tanh", x, LS_TANH);
        if (i == 1)
            ck_assert_int_eq(ls_graph_convert(graphs[i], x, LS_F32, &x), LS_OK);
        harness_dense(graphs[i], "dense_1", x, 3);
        harness_finish(graphs[i], LS_LOSS_MEAN_SQUARED_ERROR, false);
        harness_start(&runs[i], device, graphs[i], NULL,
                      (struct ls_program_options){.batch = 4, .purpose = LS_PURPOSE_TRAIN});
        harness_step(&runs[i]);
    }
    const double difference = harness_gradient_difference(&runs[0], &runs[1]);
    ck_assert_double_gt(difference, 0);
    ck_assert_double_lt(difference, 0x1p-6);
    for (int i = 0; i < 2; i++) {
        harness_stop(&runs[i], true);
        ls_graph_destroy(graphs[i]);
    }
    harness_close(&device);
}
