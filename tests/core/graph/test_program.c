// SPDX-License-Identifier: Apache-2.0
// Programs: what they run and leave out, several batch sizes on one plan, the order of gradients,
// finding what is not finite, and what is refused.
#include "tests/core/graph/mock.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct harness_device device;

static void open_reference(void)
{
    ck_assert(harness_open("reference", &device));
    harness_capture_messages();
}

static void close_reference(void)
{
    harness_close(&device);
}

#define TRAINING(examples)                               \
    (struct ls_program_options)                          \
    {                                                    \
        .batch = (examples), .purpose = LS_PURPOSE_TRAIN \
    }

TEST(training_runs_no_softmax_that_nobody_reads_and_prediction_does)
{
    struct ls_graph *graph = harness_mixed();
    struct harness_run train, evaluate, predict;
    harness_start(&train, device, graph, NULL, TRAINING(4));
    harness_start(&evaluate, device, graph, train.plan,
                  (struct ls_program_options){.batch = 4, .purpose = LS_PURPOSE_EVALUATE});
    harness_start(&predict, device, graph, train.plan,
                  (struct ls_program_options){.batch = 4, .purpose = LS_PURPOSE_PREDICT});

    ck_assert_int_lt(harness_find_step(train.program, "softmax"), 0);
    ck_assert_int_lt(harness_find_step(evaluate.program, "softmax"), 0);
    ck_assert_int_ge(harness_find_step(predict.program, "softmax"), 0);
    ck_assert_int_ge(harness_find_step(train.program, "dropout"), 0);
    ck_assert_int_lt(harness_find_step(predict.program, "dropout"), 0);
    ck_assert_uint_eq(evaluate.program->forward_count, evaluate.program->step_count);
    ck_assert_uint_lt(evaluate.program->arena_bytes, train.program->arena_bytes);

    harness_step(&predict);
    harness_step(&evaluate);
    ck_assert_int_lt(harness_find_step(predict.program, "sparse_cross_entropy"), 0);
    ck_assert_int_ge(harness_find_step(evaluate.program, "sparse_cross_entropy"), 0);
    const float *predictions = ls_address(ls_program_output(predict.program, 0));
    ck_assert_uint_eq(harness_output_layout(&predict)->kind, LS_LAYOUT_PLAIN);
    double loss = 0;
    for (int i = 0; i < 4; i++) {
        const float *row = predictions + i * 4;
        ck_assert_double_eq_tol((double)(row[0] + row[1] + row[2] + row[3]), 1, 1e-6);
        loss -= log((double)row[((int32_t *)predict.labels)[i]]);
    }
    ck_assert_double_eq_tol(loss, (double)harness_loss(&evaluate), 1e-5);

    harness_stop(&evaluate, false);
    harness_stop(&predict, false);
    harness_stop(&train, true);
    ls_graph_destroy(graph);
}

// Losses and gradients of 5 examples are those of the first 3 plus those of the last 2, drop-out
// included.
static void check_parts(struct harness_device target, struct ls_graph *graph)
{
    struct harness_run whole, first, last;
    harness_start(&whole, target, graph, NULL, TRAINING(5));
    harness_start(&first, target, graph, whole.plan, TRAINING(3));
    harness_start(&last, target, graph, whole.plan, TRAINING(2));
    const int64_t example = ls_shape_elements(&graph->inputs[0]->shape, 1);
    const int64_t label = ls_shape_elements(&graph->labels[0]->shape, 1);
    const struct ls_memory rest = ls_host_memory(whole.input + 3 * example);
    const struct ls_memory rest_labels = ls_host_memory((char *)whole.labels + 3 * label * 4);
    ls_program_set_batch(last.program, &rest, &rest_labels);
    last.record->example_offset = 3;
    // The plan's shadows are complete only now.
    struct harness_run *runs[3] = {&whole, &first, &last};
    for (int i = 0; i < 3; i++) {
        target.ops->memory->release(target.device, runs[i]->bindings.shadows.buffer);
        runs[i]->bindings.shadows =
            ls_memory_of(target.ops->memory->allocate(target.device, whole.plan->shadow_bytes + 1));
        ls_program_bind(runs[i]->program, &runs[i]->bindings);
    }
    harness_step(&whole);
    harness_step(&first);
    harness_step(&last);
    ck_assert_double_eq_tol((double)harness_loss(&whole),
                            (double)harness_loss(&first) + (double)harness_loss(&last), 1e-5);
    for (uint32_t i = 0; i < graph->parameter_count; i++) {
        const struct ls_tensor *tensor = graph->parameters[i];
        float *sum = harness_read(&whole, tensor, true), *a = harness_read(&first, tensor, true);
        float *b = harness_read(&last, tensor, true);
        for (int64_t k = 0; k < harness_elements(&whole, tensor); k++)
            ck_assert_double_eq_tol((double)sum[k], (double)a[k] + (double)b[k], 1e-5);
        free(sum);
        free(a);
        free(b);
    }
    harness_stop(&first, false);
    harness_stop(&last, false);
    harness_stop(&whole, true);
    ls_graph_destroy(graph);
}

TEST(programs_of_several_batch_sizes_share_a_plan)
{
    const struct mock_policy policy = {
        .own_weights = true, .own_activations = true, .other_data = true, .other_gradient = true};
    check_parts(device, harness_cnn());
    check_parts(device, harness_mixed());
    check_parts(device, harness_tied());
    struct harness_device mock = mock_open(device, &policy);
    check_parts(mock, harness_cnn());
    mock_close(&mock);
}

static void check_order(struct ls_graph *graph)
{
    struct harness_run run;
    uint64_t end = 0;
    harness_start(&run, device, graph, NULL, TRAINING(2));
    ck_assert_uint_eq(run.plan->place_count, graph->parameter_count);
    for (uint32_t i = 0; i < run.plan->place_count; i++) {
        const struct ls_parameter_place *place = &run.plan->places[i];
        ck_assert_uint_eq(place->offset % LS_ALIGNMENT, 0);
        ck_assert_uint_ge(place->offset, end);
        end = place->offset + place->bytes;
        if (i > 0)
            ck_assert_uint_ge(run.program->ready[i], run.program->ready[i - 1]);
        const struct ls_program_step *step = &run.program->steps[run.program->ready[i]];
        bool writes = false;
        for (uint32_t k = step->input_count; k < step->input_count + step->output_count; k++)
            writes |= ls_address(step->memory[k]) ==
                      ls_address(ls_memory_at(run.bindings.gradients, place->offset));
        ck_assert(writes);
    }
    ck_assert_uint_ge(run.plan->flat_bytes, end);
    harness_stop(&run, true);
    ls_graph_destroy(graph);
}

TEST(gradients_become_ready_in_the_order_of_the_flat_buffer)
{
    check_order(harness_cnn());
    check_order(harness_mixed());
    check_order(harness_tied());
    for (uint64_t seed = 0; seed < 20; seed++)
        check_order(harness_random(seed));
}

TEST(a_plan_without_backward_operations_is_the_same_plan)
{
    struct ls_graph *graph = harness_tied();
    struct ls_parameter_plan *with, *without;
    ck_assert_int_eq(ls_plan_create(graph, harness_face(device), 2, false, &with), LS_OK);
    const uint32_t count = graph->operation_count;
    while (graph->operations[graph->operation_count - 1].backward)
        graph->operation_count--;
    ck_assert_int_eq(ls_plan_create(graph, harness_face(device), 2, false, &without), LS_OK);
    graph->operation_count = count;
    ck_assert_uint_eq(ls_plan_fingerprint(with), ls_plan_fingerprint(without));
    ls_plan_destroy(with);
    ls_plan_destroy(without);
    ls_graph_destroy(graph);
}

TEST(parameters_come_out_as_they_went_in)
{
    const struct mock_policy policy = {.own_weights = true};
    struct harness_device mock = mock_open(device, &policy);
    struct ls_graph *graph = harness_cnn();
    struct harness_run run;
    harness_start(&run, mock, graph, NULL, TRAINING(2));
    for (uint32_t i = 0; i < graph->parameter_count; i++) {
        const struct ls_tensor *tensor = graph->parameters[i];
        const int64_t count = harness_elements(&run, tensor);
        float *in = malloc((size_t)count * sizeof(float));
        for (int64_t k = 0; k < count; k++)
            in[k] = (float)(k + 1) * (float)(i + 1);
        harness_write(&run, tensor, in);
        float *out = harness_read(&run, tensor, false);
        ck_assert_mem_eq(in, out, (size_t)count * sizeof(float));
        free(in);
        free(out);
    }
    harness_stop(&run, true);
    ls_graph_destroy(graph);
    mock_close(&mock);
}

TEST(steps_run_in_parts_and_timed_give_the_same)
{
    struct ls_graph *graph = harness_cnn();
    struct harness_run run, timed;
    harness_start(&run, device, graph, NULL, TRAINING(2));
    harness_start(&timed, device, graph, run.plan, TRAINING(2));
    harness_step(&run);
    const uint32_t middle = timed.program->step_count / 2;
    ck_assert_int_eq(ls_program_run(timed.program, 0, middle, true), LS_OK);
    ck_assert_int_eq(ls_program_run(timed.program, middle, timed.program->step_count, true), LS_OK);
    ck_assert_double_eq(harness_gradient_difference(&run, &timed), 0);
    uint64_t nanoseconds = 0;
    for (uint32_t s = 0; s < timed.program->step_count; s++)
        nanoseconds += timed.program->steps[s].nanoseconds;
    ck_assert_uint_gt(nanoseconds, 0);
    harness_stop(&timed, false);
    harness_stop(&run, true);
    ls_graph_destroy(graph);
}

// ---- What is not finite ----

static void check_found(struct harness_run *run, const char *expected)
{
    char text[64];
    ck_assert_int_eq(ls_program_find_not_finite(run->program, text, sizeof(text)), LS_OK);
    ck_assert_str_eq(text, expected);
}

static void set_all(struct harness_run *run, const char *name, float value, int64_t count)
{
    const struct ls_tensor *tensor = harness_parameter(run->graph, name);
    float *values = harness_read(run, tensor, false);
    for (int64_t i = 0; i < count && i < harness_elements(run, tensor); i++)
        values[i] = value;
    harness_write(run, tensor, values);
    free(values);
}

TEST(the_first_step_with_a_value_that_is_not_finite_is_named)
{
    const struct mock_policy policy = {.own_weights = true, .own_activations = true};
    struct harness_device mock = mock_open(device, &policy);
    struct ls_graph *graph = harness_cnn();
    struct harness_run run;
    harness_start(&run, mock, graph, NULL, TRAINING(2));
    check_found(&run, "");

    const float before = run.input[3];
    run.input[3] = NAN;
    check_found(&run, "input");
    run.input[3] = before;
    check_found(&run, "");

    set_all(&run, "conv2d_1/kernel", 3e38f, INT64_MAX);
    check_found(&run, "conv2d_1 forward");
    set_all(&run, "dense/bias", INFINITY, 1);
    check_found(&run, "dense/bias");
    set_all(&run, "conv2d/kernel", NAN, 1);
    check_found(&run, "conv2d/kernel");

    harness_stop(&run, true);
    ls_graph_destroy(graph);
    mock_close(&mock);
}

// ---- Odd and refused ----

TEST(a_model_without_kernels_predicts_its_input)
{
    struct ls_graph *graph = harness_graph((const int64_t[]){2, 3}, 2);
    harness_dropout(graph, "dropout", harness_flatten(graph, "flatten", graph->inputs[0]), 0.5f);
    struct harness_run run;
    harness_start(&run, device, graph, NULL,
                  (struct ls_program_options){.batch = 2, .purpose = LS_PURPOSE_EVALUATE});
    ck_assert_uint_eq(run.program->step_count, 0);
    harness_step(&run);
    ck_assert_ptr_eq(ls_address(ls_program_output(run.program, 0)), run.input);
    harness_stop(&run, true);
    ls_graph_destroy(graph);
}

TEST(reshapes_vanish)
{
    struct ls_graph *graph = harness_cnn();
    struct harness_run run;
    harness_start(&run, device, graph, NULL, TRAINING(2));
    ck_assert_int_lt(harness_find_step(run.program, "flatten"), 0);
    const struct ls_program_step *dense =
        &run.program->steps[harness_find_step(run.program, "dense forward")];
    ck_assert_uint_eq(dense->tensors[0]->shape.ndims, 4);
    const int data = harness_find_step(run.program, "dense backward data");
    ck_assert_uint_eq(run.program->steps[data].tensors[2]->shape.ndims, 4);
    ck_assert_uint_eq(harness_parameter(graph, "dense/kernel")->shape.ndims, 2);
    harness_stop(&run, true);
    ls_graph_destroy(graph);
}

TEST(programs_that_cannot_be_are_refused)
{
    struct ls_graph *graph = harness_cnn(), *other = harness_tied();
    struct ls_parameter_plan *plan;
    struct ls_program *program;
    ck_assert_int_eq(ls_plan_create(graph, harness_face(device), 2, false, &plan), LS_OK);

    struct ls_program_options options = {.batch = 0, .purpose = LS_PURPOSE_EVALUATE};
    ck_assert_int_eq(ls_program_create(plan, graph, &options, &program), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(harness_message(), "batch of 0"));
    options.batch = INT64_C(1) << 40;
    ck_assert_int_eq(ls_program_create(plan, graph, &options, &program), LS_BAD_INPUT);
    options.batch = 2;
    ck_assert_int_eq(ls_program_create(plan, other, &options, &program), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(harness_message(), "'dense/kernel'"));

    struct ls_graph *plain = harness_graph((const int64_t[]){3}, 1);
    struct ls_parameter_plan *plain_plan;
    harness_dense(plain, "dense", plain->inputs[0], 2);
    ck_assert_int_eq(ls_plan_create(plain, harness_face(device), 2, false, &plain_plan), LS_OK);
    options.purpose = LS_PURPOSE_TRAIN;
    ck_assert_int_eq(ls_program_create(plain_plan, plain, &options, &program), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(harness_message(), "not differentiated"));

    struct ls_graph *empty;
    ck_assert_int_eq(ls_graph_create("empty", &empty), LS_OK);
    ck_assert_int_eq(ls_plan_create(empty, harness_face(device), 2, false, &plan), LS_BAD_INPUT);
    ls_plan_destroy(plan);
    ls_plan_destroy(plain_plan);
    ls_graph_destroy(plain);
    ls_graph_destroy(empty);
    ls_graph_destroy(graph);
    ls_graph_destroy(other);
}

// A device that knows one operation less.
static const struct ls_device_interface *lacking_ops;
static uint32_t lacking_op;
static int32_t lacking_prepare(struct ls_device *opened, const struct ls_kernel_request *request,
                               struct ls_kernel_answer *out)
{
    return request->op == lacking_op ? LS_UNSUPPORTED
                                     : lacking_ops->kernels->prepare(opened, request, out);
}

// Making a program for a device without operation `op` fails, with a message of `layer` that names
// the operation.
static void check_lacking(const struct ls_graph *graph, uint32_t op, const char *layer,
                          const char *name)
{
    struct ls_device_interface ops = *device.ops;
    struct ls_device_kernels kernels = *device.ops->kernels;
    struct ls_parameter_plan *plan = NULL;
    struct ls_program *program;
    const struct ls_program_options options = TRAINING(2);
    lacking_op = op;
    lacking_ops = device.ops;
    kernels.prepare = lacking_prepare;
    ops.kernels = &kernels;
    const struct harness_device lacking = {.ops = &ops, .device = device.device};
    // The layouts of parameters are planned with the forward operations.
    enum ls_status status = ls_plan_create(graph, harness_face(lacking), 2, false, &plan);
    if (!status)
        status = ls_program_create(plan, graph, &options, &program);
    ck_assert_int_eq(status, LS_UNAVAILABLE);
    ck_assert_msg(strstr(harness_message(), layer) != NULL, "%s", harness_message());
    ck_assert_msg(strstr(harness_message(), name) != NULL, "%s", harness_message());
    ls_plan_destroy(plan);
}

TEST(an_operation_that_the_device_lacks_is_named)
{
    struct ls_graph *graph = harness_cnn();
    check_lacking(graph, LS_OP_MAX_POOL2D_BACKWARD, "max_pooling2d_1 backward",
                  "max_pool2d_backward");
    ls_graph_destroy(graph);

    // Of an operation that is one of several functions, the function's name.
    const struct ls_op_attributes gelu = {.function = LS_GELU};
    struct ls_tensor *x;
    graph = harness_graph((const int64_t[]){4}, 1);
    x = harness_dense(graph, "dense", graph->inputs[0], 4);
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_FUNCTION, &gelu, &x, 1, NULL, &x), LS_OK);
    harness_dense(graph, "dense_1", x, 3);
    harness_finish(graph, LS_LOSS_SPARSE_CROSS_ENTROPY, true);
    check_lacking(graph, LS_OP_FUNCTION, "dense", "no kernel for operation gelu");
    ls_graph_destroy(graph);
}

TEST_FIXTURE(open_reference, close_reference);
