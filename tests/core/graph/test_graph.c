// SPDX-License-Identifier: Apache-2.0
// Building graphs: the shape that every operation makes, and what is refused with which message.
#include "tests/core/graph/harness.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>
#include <string.h>

static struct ls_graph *graph;
static struct ls_tensor *image, *rows; // (None, 9, 8, 6), (None, 12)

static void open_graph(void)
{
    const struct ls_shape twelve = {.ndims = 2, .dims = {LS_BATCH, 12}};
    const struct ls_shape part = {.ndims = 4, .dims = {LS_BATCH, 2, 1, 6}};
    harness_capture_messages();
    graph = harness_graph((const int64_t[]){9, 8, 6}, 3);
    image = graph->inputs[0];
    struct ls_tensor *x = harness_pool(graph, "pool", image, LS_OP_AVERAGE_POOL2D, 4, 4);
    x = harness_pool(graph, "pool_1", x, LS_OP_AVERAGE_POOL2D, 1, 2);
    ck_assert_int_eq(ls_graph_begin_layer(graph, "other", "Test"), LS_OK);
    struct ls_tensor *smaller;
    const struct ls_op_attributes window = {.kernel = {4, 8}, .strides = {5, 8}};
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_MAX_POOL2D, &window, &image, 1, NULL, &smaller),
                     LS_OK);
    ck_assert(ls_shape_equal(&smaller->shape, &part));
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_RESHAPE, NULL, &smaller, 1, &twelve, &rows), LS_OK);
}

static void close_graph(void)
{
    ls_graph_destroy(graph);
}

static struct ls_tensor *parameter(const char *name, struct ls_shape shape)
{
    static const struct ls_initializer zeros = {.kind = LS_ZEROS};
    struct ls_tensor *out;
    ck_assert_int_eq(ls_graph_parameter(graph, name, &shape, &zeros, &out), LS_OK);
    return out;
}

#define SHAPE(count, ...) ((struct ls_shape){.ndims = (count), .dims = {__VA_ARGS__}})

static void check_shape(const struct ls_tensor *tensor, const char *expected)
{
    char text[128];
    ck_assert_str_eq(ls_shape_text(&tensor->shape, text, sizeof(text)), expected);
}

// Adds an operation that must be refused with a message that has all of `words`.
static void check_refused(uint32_t op, struct ls_op_attributes attributes,
                          struct ls_tensor *const *inputs, uint32_t count,
                          const struct ls_shape *shape, const char *word)
{
    struct ls_tensor *out = NULL;
    const uint32_t operations = graph->operation_count;
    ck_assert_int_eq(ls_graph_add(graph, op, &attributes, inputs, count, shape, &out),
                     LS_BAD_INPUT);
    ck_assert_msg(strstr(harness_message(), word) != NULL, "'%s' does not say '%s'",
                  harness_message(), word);
    ck_assert_ptr_nonnull(strstr(harness_message(), "layer 'other' (Test): input shape (None, "));
    ck_assert_ptr_null(out);
    ck_assert_uint_eq(graph->operation_count, operations);
}

TEST(shapes_are_written_as_keras_writes_them)
{
    char text[64], little[6];
    ck_assert_str_eq(ls_shape_text(&SHAPE(1, LS_BATCH), text, sizeof(text)), "(None,)");
    ck_assert_str_eq(ls_shape_text(&SHAPE(4, LS_BATCH, 28, 28, 1), text, sizeof(text)),
                     "(None, 28, 28, 1)");
    ck_assert_str_eq(ls_shape_text(&SHAPE(2, LS_BATCH, 28), little, sizeof(little)), "(None");
    ck_assert_int_eq(ls_shape_elements(&SHAPE(3, LS_BATCH, 4, 5), 3), 60);
    ck_assert(!ls_shape_equal(&SHAPE(2, 1, 2), &SHAPE(3, 1, 2, 1)));
}

TEST(windows_are_counted_and_padded_as_in_keras)
{
    int32_t before, after;
    ck_assert_int_eq(ls_window_count(28, 3, 1, 1, 0, 0), 26);
    ck_assert_int_eq(ls_window_count(28, 3, 2, 1, 0, 0), 13);
    ck_assert_int_eq(ls_window_count(7, 3, 1, 3, 0, 0), 1);
    ck_assert_int_eq(ls_window_count(2, 3, 1, 1, 0, 0), 0);
    ck_assert_int_eq(ls_window_count(2, 3, 1, 1, 1, 0), 1);
    ls_same_padding(28, 3, 1, 1, &before, &after);
    ck_assert(before == 1 && after == 1);
    ls_same_padding(28, 2, 1, 1, &before, &after);
    ck_assert(before == 0 && after == 1);
    ls_same_padding(28, 3, 2, 1, &before, &after);
    ck_assert(before == 0 && after == 1);
    ls_same_padding(10, 1, 3, 1, &before, &after);
    ck_assert(before == 0 && after == 0);
    for (int64_t size = 1; size < 20; size++)
        for (int64_t kernel = 1; kernel < 6; kernel++)
            for (int64_t stride = 1; stride < 4; stride++) {
                ls_same_padding(size, kernel, stride, 2, &before, &after);
                ck_assert_int_eq(ls_window_count(size, kernel, stride, 2, before, after),
                                 (size + stride - 1) / stride);
            }
}

TEST(a_convolution_has_its_shape)
{
    struct ls_tensor *inputs[3] = {image, parameter("kernel", SHAPE(4, 3, 2, 2, 9)),
                                   parameter("bias", SHAPE(1, 9))};
    const struct ls_op_attributes attributes = {
        .strides = {2, 1}, .padding = {1, 0, 0, 1}, .dilation = {1, 3}, .groups = 3};
    struct ls_tensor *y;
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_CONV2D, &attributes, inputs, 3, NULL, &y), LS_OK);
    check_shape(y, "(None, 4, 6, 9)");
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_CONV2D, &attributes, inputs, 2, NULL, &y), LS_OK);
    check_shape(y, "(None, 4, 6, 9)");
}

TEST(a_convolution_that_does_not_fit_is_refused)
{
    struct ls_tensor *kernel = parameter("kernel", SHAPE(4, 3, 3, 6, 4));
    struct ls_tensor *inputs[3] = {image, kernel, parameter("bias", SHAPE(1, 5))};
    struct ls_tensor *flat[2] = {rows, kernel}, *no_kernel[2] = {image, image};
    struct ls_tensor *two[2] = {image, parameter("two", SHAPE(2, 3, 3))};
    struct ls_tensor *large[2] = {image, parameter("large", SHAPE(4, 10, 3, 6, 4))};
    const struct ls_op_attributes good = {.strides = {1, 1}, .dilation = {1, 1}, .groups = 1};
    struct ls_op_attributes bad = good;

    check_refused(LS_OP_CONV2D, good, inputs, 3, NULL, "bias must have 4");
    check_refused(LS_OP_CONV2D, good, flat, 2, NULL, "expected 4 dimensions");
    check_refused(LS_OP_CONV2D, good, no_kernel, 2, NULL, "must be a variable");
    check_refused(LS_OP_CONV2D, good, two, 2, NULL, "4 dimensions, not 2");
    check_refused(LS_OP_CONV2D, good, large, 2, NULL, "10 rows");
    check_refused(LS_OP_CONV2D, good, inputs, 1, NULL, "takes 2 to 3 tensors, not 1");
    bad.groups = 4;
    check_refused(LS_OP_CONV2D, bad, inputs, 2, NULL, "4 groups");
    bad.groups = 2;
    check_refused(LS_OP_CONV2D, bad, inputs, 2, NULL, "6 channels a group, the input has 3");
    bad = good, bad.strides[1] = 0;
    check_refused(LS_OP_CONV2D, bad, inputs, 2, NULL, "at least 1 along the columns");
    bad = good, bad.dilation[0] = 0;
    check_refused(LS_OP_CONV2D, bad, inputs, 2, NULL, "dilation");
    bad = good, bad.dilation[0] = 5;
    check_refused(LS_OP_CONV2D, bad, inputs, 2, NULL, "does not fit into 9");
    bad = good, bad.padding[3] = -1;
    check_refused(LS_OP_CONV2D, bad, inputs, 2, NULL, "negative along the columns");
    bad = good, bad.padding[0] = INT32_MAX, bad.padding[1] = INT32_MAX;
    check_refused(LS_OP_CONV2D, bad, inputs, 2, NULL, "between 1 and");
}

TEST(pooling_has_its_shape_and_its_limits)
{
    const struct ls_op_attributes good = {
        .kernel = {2, 3}, .strides = {2, 3}, .padding = {0, 1, 2, 2}};
    struct ls_op_attributes bad = good;
    struct ls_tensor *y;
    for (int i = 0; i < 2; i++) {
        const uint32_t op = i ? LS_OP_MAX_POOL2D : LS_OP_AVERAGE_POOL2D;
        ck_assert_int_eq(ls_graph_add(graph, op, &good, &image, 1, NULL, &y), LS_OK);
        check_shape(y, "(None, 5, 4, 6)");
        ck_assert_uint_eq(graph->operations[graph->operation_count - 1].output_count, i ? 2 : 1);
        check_refused(op, good, &rows, 1, NULL, "expected 4 dimensions");
        bad = good, bad.padding[0] = 2;
        check_refused(op, bad, &image, 1, NULL, "smaller than the window of 2 rows");
        bad = good, bad.kernel[1] = 0;
        check_refused(op, bad, &image, 1, NULL, "at least 1");
        bad = good, bad.kernel[0] = 12;
        check_refused(op, bad, &image, 1, NULL, "does not fit");
    }
}

TEST(a_dense_operation_has_its_shape_and_its_limits)
{
    struct ls_tensor *channels[3] = {image, parameter("channels", SHAPE(2, 6, 7)),
                                     parameter("bias", SHAPE(1, 7))};
    struct ls_tensor *all[2] = {image, parameter("all", SHAPE(2, 432, 5))}, *y;
    const struct ls_op_attributes none = {0};
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_DENSE, NULL, channels, 3, NULL, &y), LS_OK);
    check_shape(y, "(None, 9, 8, 7)");
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_DENSE, NULL, all, 2, &SHAPE(2, LS_BATCH, 5), &y),
                     LS_OK);
    check_shape(y, "(None, 5)");

    check_refused(LS_OP_DENSE, none, all, 2, NULL, "432 as the last dimension");
    check_refused(LS_OP_DENSE, none, all, 2, &SHAPE(2, LS_BATCH, 10), "cannot make (None, 10)");
    check_refused(LS_OP_DENSE, none, all, 2, &SHAPE(2, 5, 5), "cannot make");
    struct ls_tensor *wrong_bias[3] = {image, all[1], channels[2]};
    check_refused(LS_OP_DENSE, none, wrong_bias, 3, &SHAPE(2, LS_BATCH, 5), "bias must have 5");
    struct ls_tensor *vector[2] = {rows, channels[2]};
    check_refused(LS_OP_DENSE, none, vector, 2, NULL, "2 dimensions, not 1");
}

TEST(element_wise_operations_keep_the_shape)
{
    const struct ls_op_attributes none = {0}, no_function = {.activation = LS_ACTIVATION_COUNT};
    const struct ls_op_attributes no_slope = {.activation = LS_LEAKY_RELU}, all = {.rate = 1};
    struct ls_tensor *pair[2] = {image, image}, *unequal[2] = {image, rows}, *y;
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_SOFTMAX, NULL, &image, 1, NULL, &y), LS_OK);
    check_shape(y, "(None, 9, 8, 6)");
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_ACTIVATION, &none, &rows, 1, NULL, &y), LS_OK);
    check_shape(y, "(None, 12)");
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_DROPOUT, &none, &rows, 1, NULL, &y), LS_OK);
    check_shape(y, "(None, 12)");
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_ADD, &none, pair, 2, NULL, &y), LS_OK);
    check_shape(y, "(None, 9, 8, 6)");

    check_refused(LS_OP_ACTIVATION, no_function, &rows, 1, NULL, "there is no activation number");
    check_refused(LS_OP_ACTIVATION, no_slope, &rows, 1, NULL, "slope");
    check_refused(LS_OP_DROPOUT, all, &rows, 1, NULL, "below 1, not 1");
    check_refused(LS_OP_ADD, none, unequal, 2, NULL, "the same shape, not (None, 12)");
    check_refused(LS_OP_ADD, none, pair, 1, NULL, "takes 2 to 2 tensors");
}

TEST(changes_of_images_have_factors_and_what_stands_for_their_result)
{
    const struct ls_op_attributes none = {0};
    const struct ls_shape small = {.ndims = 4, .dims = {LS_BATCH, 4, 3, 6}};
    struct ls_tensor *factors, *resized, *out, *few[] = {image, rows};
    check_refused(LS_OP_DRAW, none, &rows, 1, NULL, "expected 4 dimensions");
    check_refused(LS_OP_DRAW, (struct ls_op_attributes){.l1 = 1}, &image, 1, NULL, "is no range");
    check_refused(LS_OP_DRAW, (struct ls_op_attributes){.function = LS_DRAW_CROP, .kernel = {9, 9}},
                  &image, 1, NULL, "9 columns cannot be cropped out of it");
    check_refused(LS_OP_RESAMPLE, none, few, 2, NULL, "there must be 8 factors an example");
    check_refused(LS_OP_RESIZE2D, none, &image, 1, &rows->shape, "the same examples and channels");

    ck_assert_int_eq(ls_graph_add(graph, LS_OP_DRAW, &none, &image, 1, NULL, &factors), LS_OK);
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_RESIZE2D, &none, &image, 1, &small, &resized),
                     LS_OK);
    struct ls_tensor *inputs[] = {image, factors, resized};
    check_refused(LS_OP_RESAMPLE, none, inputs, 2, &small, "stands for the result");
    check_refused(LS_OP_RESAMPLE, none, inputs, 3, &image->shape, "stands for the result");
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_RESAMPLE, &none, inputs, 3, NULL, &out), LS_OK);
    ck_assert(ls_shape_equal(&out->shape, &small));
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_RESAMPLE, &none, inputs, 2, NULL, &out), LS_OK);
    ck_assert(ls_shape_equal(&out->shape, &image->shape));
}

TEST(categories_have_their_shapes_and_their_limits)
{
    const struct ls_op_attributes none = {0}, together = {.function = LS_ENCODE_COUNTS, .count = 7},
                                  apart = {.count = 7};
    const int64_t b = LS_BATCH, h = image->shape.dims[1], w = image->shape.dims[2];
    const struct ls_shape all = {.ndims = 4, .dims = {b, w, image->shape.dims[3], 7}},
                          each = {.ndims = 5, .dims = {b, h, w, image->shape.dims[3], 7}};
    struct ls_tensor *out;
    check_refused(LS_OP_ENCODE, none, &image, 1, NULL, "1 category or more");
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_ENCODE, &together, &image, 1, NULL, &out), LS_OK);
    ck_assert(ls_shape_equal(&out->shape, &all));
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_ENCODE, &apart, &image, 1, NULL, &out), LS_OK);
    ck_assert(ls_shape_equal(&out->shape, &each));
}

TEST(a_batch_normalization_has_its_shapes_and_its_limits)
{
    const struct ls_op_attributes good = {.epsilon = 1e-3f};
    struct ls_op_attributes bad = good;
    struct ls_tensor *gamma = parameter("gamma", SHAPE(1, 6)),
                     *beta = parameter("beta", SHAPE(1, 6));
    struct ls_tensor *inputs[4] = {image, gamma, beta, image}, *y;
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_BATCH_NORMALIZATION, &good, inputs, 3, NULL, &y),
                     LS_OK);
    check_shape(y, "(None, 9, 8, 6)");
    const struct ls_operation *operation = &graph->operations[graph->operation_count - 1];
    ck_assert_uint_eq(operation->output_count, 3);
    for (uint32_t i = 1; i < 3; i++) {
        check_shape(operation->outputs[i], "(6,)");
        ck_assert_uint_eq(operation->outputs[i]->dtype, LS_F32);
    }
    inputs[0] = rows;
    inputs[1] = parameter("gamma_12", SHAPE(1, 12));
    inputs[2] = parameter("beta_12", SHAPE(1, 12));
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_BATCH_NORMALIZATION, &good, inputs, 3, NULL, &y),
                     LS_OK);
    check_shape(y, "(None, 12)");

    inputs[0] = image;
    check_refused(LS_OP_BATCH_NORMALIZATION, good, inputs, 3, NULL, "gamma must have 6 elements");
    inputs[1] = gamma;
    check_refused(LS_OP_BATCH_NORMALIZATION, good, inputs, 3, NULL, "beta must have 6 elements");
    inputs[2] = parameter("beta_2", SHAPE(2, 1, 6));
    check_refused(LS_OP_BATCH_NORMALIZATION, good, inputs, 3, NULL, "beta must have 6 elements");
    inputs[2] = beta;
    check_refused(LS_OP_BATCH_NORMALIZATION, good, inputs, 2, NULL, "takes 3 to 3 tensors");
    check_refused(LS_OP_BATCH_NORMALIZATION, good, inputs, 4, NULL, "takes 3 to 3 tensors");
    bad.epsilon = -1e-3f;
    check_refused(LS_OP_BATCH_NORMALIZATION, bad, inputs, 3, NULL, "must not be negative");
    bad.epsilon = NAN;
    check_refused(LS_OP_BATCH_NORMALIZATION, bad, inputs, 3, NULL, "must not be negative");
    inputs[1] = image;
    check_refused(LS_OP_BATCH_NORMALIZATION, good, inputs, 3, NULL, "must be a variable");

    struct ls_graph *numbers = harness_graph((const int64_t[]){0}, 0);
    ck_assert_int_eq(ls_graph_begin_layer(numbers, "norm", "BatchNormalization"), LS_OK);
    inputs[0] = numbers->inputs[0];
    inputs[1] = gamma;
    ck_assert_int_eq(ls_graph_add(numbers, LS_OP_BATCH_NORMALIZATION, &good, inputs, 3, NULL, &y),
                     LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(harness_message(), "layer 'norm' (BatchNormalization): input "
                                                    "shape (None,): batch normalization expects"));
    ls_graph_destroy(numbers);
}

TEST(the_inference_form_of_a_norm_takes_its_statistics_and_passes_gradients_on)
{
    const struct ls_op_attributes attributes = {.epsilon = 1e-3f};
    struct ls_graph *given = harness_graph((const int64_t[]){6}, 1);
    struct ls_tensor *x = harness_dense(given, "dense", given->inputs[0], 6), *y;
    struct ls_tensor *gamma = harness_parameter(given, "dense/bias");
    struct ls_tensor *inputs[] = {x, gamma, gamma, gamma, gamma};
    ck_assert_int_eq(
        ls_graph_add(given, LS_OP_BATCH_NORMALIZATION_INFERENCE, &attributes, inputs, 4, NULL, &y),
        LS_BAD_INPUT);
    ck_assert_int_eq(
        ls_graph_add(given, LS_OP_BATCH_NORMALIZATION_INFERENCE, &attributes, inputs, 5, NULL, &y),
        LS_OK);
    ls_graph_end_layer(given, y);
    ck_assert_int_eq(ls_graph_add_loss(given, &(struct ls_loss){LS_LOSS_MEAN_SQUARED_ERROR, false}),
                     LS_OK);
    ck_assert_int_eq(ls_graph_differentiate(given), LS_OK);
    ls_graph_destroy(given);
}

// A gradient that arrives where no rule takes it on is not lost silently.
TEST(a_loss_of_the_statistics_of_a_norm_is_refused)
{
    struct ls_graph *other = harness_graph((const int64_t[]){4}, 1);
    struct ls_tensor *x = harness_dense(other, "dense", other->inputs[0], 4);
    harness_norm(other, "norm", x);
    struct ls_tensor *mean = other->operations[other->operation_count - 1].outputs[1], *seed;
    ck_assert_int_eq(ls_graph_add_seed(other, mean, &seed), LS_OK);
    ck_assert_int_eq(ls_graph_differentiate(other), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(harness_message(), "through its output 'mean'"));
    ls_graph_destroy(other);
}

TEST(a_layer_that_is_used_again_has_the_same_variables)
{
    const struct ls_initializer zeros = {.kind = LS_ZEROS};
    struct ls_graph *other = harness_graph((const int64_t[]){4}, 1);
    struct ls_tensor *again;
    harness_dense(other, "dense", other->inputs[0], 4);
    struct ls_tensor *kernel = harness_parameter(other, "dense/kernel"),
                     *bias = harness_parameter(other, "dense/bias");

    ck_assert_int_eq(ls_graph_reuse_layer(other, "nowhere"), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(harness_message(), "no layer 'nowhere'"));
    ck_assert_int_eq(ls_graph_reuse_layer(other, "dense"), LS_OK);
    ck_assert_int_eq(ls_graph_parameter(other, "kernel", &SHAPE(2, 5, 4), &zeros, &again),
                     LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(harness_message(), "'dense/kernel' cannot be (5, 4)"));
    ck_assert_int_eq(ls_graph_parameter(other, "bias", &SHAPE(1, 4), &zeros, &again), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(harness_message(), "next variable is 'dense/kernel'"));
    ck_assert_int_eq(ls_graph_parameter(other, "kernel", &SHAPE(2, 4, 4), &zeros, &again), LS_OK);
    ck_assert_ptr_eq(again, kernel);
    ck_assert_int_eq(ls_graph_parameter(other, "bias", &SHAPE(1, 4), &zeros, &again), LS_OK);
    ck_assert_ptr_eq(again, bias);
    ck_assert_int_eq(ls_graph_parameter(other, "more", &SHAPE(1, 4), &zeros, &again), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(harness_message(), "has no variable 'dense/more'"));
    ck_assert_uint_eq(other->parameter_count, 2);
    ck_assert_uint_eq(other->layers[0].parameters, 20);
    ls_graph_destroy(other);
}

TEST(operations_take_one_floating_type_and_convert_changes_it)
{
    struct ls_graph *other = harness_graph((const int64_t[]){4}, 1);
    struct ls_tensor *x = other->inputs[0], *half, *y;
    ck_assert_int_eq(ls_graph_convert(other, x, LS_I32, &half), LS_BAD_INPUT);
    ck_assert_int_eq(ls_graph_convert(other, x, LS_BF16, &half), LS_OK);
    ck_assert_uint_eq(half->dtype, LS_BF16);
    struct ls_tensor *unequal[] = {x, half}, *equal[] = {half, half};
    ck_assert_int_eq(ls_graph_add(other, LS_OP_ADD, NULL, unequal, 2, NULL, &y), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(harness_message(), "not of the same type"));
    ck_assert_int_eq(ls_graph_add(other, LS_OP_ADD, NULL, equal, 2, NULL, &y), LS_OK);
    ck_assert_uint_eq(y->dtype, LS_BF16);
    ls_graph_destroy(other);
}

TEST(a_reshape_keeps_the_number_of_elements)
{
    const struct ls_op_attributes none = {0};
    struct ls_tensor *y;
    ck_assert_int_eq(
        ls_graph_add(graph, LS_OP_RESHAPE, NULL, &image, 1, &SHAPE(3, LS_BATCH, 72, 6), &y), LS_OK);
    check_shape(y, "(None, 72, 6)");
    check_refused(LS_OP_RESHAPE, none, &image, 1, &SHAPE(2, LS_BATCH, 433),
                  "cannot become (None, 433)");
    check_refused(LS_OP_RESHAPE, none, &image, 1, &SHAPE(2, 1, 432), "cannot become (1, 432)");
    check_refused(LS_OP_RESHAPE, none, &image, 1, &SHAPE(3, LS_BATCH, 0, 6), "between 1 and");
    check_refused(LS_OP_RESHAPE, none, &image, 1, &SHAPE(3, LS_BATCH, -432, -1), "between 1 and");
    check_refused(LS_OP_RESHAPE, none, &image, 1,
                  &SHAPE(4, LS_BATCH, 0x7fffffff, 0x7fffffff, 0x7fffffff), "more than");
    check_refused(LS_OP_RESHAPE, none, &image, 1, NULL, "needs the shape");
}

TEST(only_forward_operations_can_be_added)
{
    const struct ls_op_attributes none = {0};
    const uint32_t ops[] = {LS_OP_NONE,
                            LS_OP_CONV2D_BACKWARD_DATA,
                            LS_OP_CONVERT,
                            LS_OP_SPARSE_CROSS_ENTROPY,
                            LS_OP_MEASURE,
                            LS_OP_FROM_BYTES,
                            LS_OP_BATCH_NORMALIZATION_BACKWARD,
                            LS_OP_COUNT,
                            UINT32_MAX};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        check_refused(ops[i], none, &image, 1, NULL, "not one that a layer adds");
}

TEST(every_operation_has_a_name_of_its_own)
{
    for (uint32_t op = LS_OP_NONE; op < LS_OP_COUNT; op++) {
        ck_assert_ptr_nonnull(ls_op_name(op));
        ck_assert_int_eq(strcmp(ls_op_name(op), "unknown") == 0, !ls_operation_row(op));
        for (uint32_t other = LS_OP_NONE; other < op && ls_operation_row(op); other++)
            ck_assert_str_ne(ls_op_name(op), ls_op_name(other));
    }
    ck_assert_str_eq(ls_op_name(LS_OP_DENSE_BACKWARD_DATA), "dense_backward_data");
    ck_assert_str_eq(ls_op_name(LS_OP_BATCH_NORMALIZATION), "batch_normalization");
    ck_assert_str_eq(ls_op_name(LS_OP_COUNT), "unknown");
    ck_assert_str_eq(ls_op_name(UINT32_MAX), "unknown");
}

TEST(names_are_unique_and_parameters_have_a_fixed_shape)
{
    static const struct ls_initializer zeros = {.kind = LS_ZEROS};
    struct ls_tensor *out;
    ck_assert_int_eq(ls_graph_begin_layer(graph, "pool", "Test"), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(harness_message(), "two layers are called 'pool'"));
    parameter("kernel", SHAPE(2, 3, 4));
    ck_assert_uint_eq(graph->layers[graph->layer_count - 1].parameters, 12);
    ck_assert_int_eq(ls_graph_parameter(graph, "kernel", &SHAPE(1, 3), &zeros, &out), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(harness_message(), "'other/kernel'"));
    ck_assert_int_eq(ls_graph_parameter(graph, "open", &SHAPE(2, LS_BATCH, 3), &zeros, &out),
                     LS_BAD_INPUT);
    ck_assert_int_eq(ls_graph_parameter(graph, "none", &SHAPE(2, 3, 0), &zeros, &out),
                     LS_BAD_INPUT);
    ck_assert_int_eq(ls_graph_input(graph, &SHAPE(1, 3), &out), LS_OK);
    ck_assert_str_eq(out->name, "input_1");
    ck_assert_uint_eq(graph->input_count, 2);
    ck_assert_ptr_eq(graph->inputs[1], out);
    ck_assert_uint_eq(out->dtype, LS_F32);
    ck_assert_int_eq(ls_graph_typed_input(graph, LS_I32, &SHAPE(1, 3), &out), LS_OK);
    ck_assert_str_eq(out->name, "input_2");
    ck_assert_uint_eq(out->dtype, LS_I32);
    ck_assert_int_eq(ls_graph_typed_input(graph, LS_U8, &SHAPE(1, 3), &out), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(harness_message(), "an input is float32 or int32"));
}

TEST(an_input_must_have_a_size)
{
    struct ls_graph *other;
    struct ls_tensor *out;
    ck_assert_int_eq(ls_graph_create("other", &other), LS_OK);
    ck_assert_int_eq(ls_graph_input(other, &SHAPE(2, 3, LS_BATCH), &out), LS_BAD_INPUT);
    ck_assert_int_eq(ls_graph_input(other, &SHAPE(2, 3, -7), &out), LS_BAD_INPUT);
    ck_assert_int_eq(ls_graph_input(other, &SHAPE(6, 1, 1, 1, 1, 1, 1), &out), LS_BAD_INPUT);
    ck_assert_int_eq(ls_graph_add_loss(other, &(struct ls_loss){0}), LS_BAD_INPUT);
    ls_graph_destroy(other);
}

TEST(the_loss_reads_logits_where_the_model_ends_in_a_softmax)
{
    struct ls_tensor *softmax = harness_simple(graph, "softmax", rows, LS_OP_SOFTMAX);
    const struct ls_loss loss = {.kind = LS_LOSS_SPARSE_CROSS_ENTROPY};
    ck_assert_int_eq(ls_graph_add_loss(graph, &loss), LS_OK);
    const struct ls_operation *operation = &graph->operations[graph->operation_count - 1];
    ck_assert_ptr_eq(operation->inputs[0], rows);
    ck_assert_uint_eq(operation->attributes.from_logits, 1);
    ck_assert_ptr_eq(graph->outputs[0], softmax);
    ck_assert_uint_eq(graph->labels[0]->dtype, LS_I32);
    check_shape(graph->labels[0], "(None,)");
    ck_assert_int_eq(ls_graph_add_loss(graph, &loss), LS_BAD_INPUT);
}

TEST(a_loss_from_probabilities_and_one_from_targets_read_the_output)
{
    const struct ls_loss sparse = {.kind = LS_LOSS_SPARSE_CROSS_ENTROPY};
    struct ls_tensor *y = harness_activation(graph, "activation", image, LS_SIGMOID);
    ck_assert_int_eq(ls_graph_add_loss(graph, &sparse), LS_OK);
    const struct ls_operation *operation = &graph->operations[graph->operation_count - 1];
    ck_assert_ptr_eq(operation->inputs[0], y);
    ck_assert_uint_eq(operation->attributes.from_logits, 0);
    ck_assert_float_eq(operation->attributes.epsilon, 1e-7f);
    check_shape(graph->labels[0], "(None, 9, 8)");

    struct ls_graph *other = harness_graph((const int64_t[]){3}, 1);
    harness_dense(other, "dense", other->inputs[0], 2);
    ck_assert_int_eq(
        ls_graph_add_loss(other, &(struct ls_loss){.kind = LS_LOSS_MEAN_SQUARED_ERROR}), LS_OK);
    ck_assert_uint_eq(other->labels[0]->dtype, LS_F32);
    check_shape(other->labels[0], "(None, 2)");
    ls_graph_destroy(other);
}

TEST(what_cannot_be_differentiated_is_refused)
{
    ck_assert_int_eq(ls_graph_differentiate(graph), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(harness_message(), "without a loss"));

    struct ls_graph *other = harness_graph((const int64_t[]){3}, 1);
    harness_activation(other, "relu", other->inputs[0], LS_RELU);
    ck_assert_int_eq(
        ls_graph_add_loss(other, &(struct ls_loss){.kind = LS_LOSS_MEAN_SQUARED_ERROR}), LS_OK);
    ck_assert_int_eq(ls_graph_differentiate(other), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(harness_message(), "no variables"));
    ls_graph_destroy(other);

    other = harness_graph((const int64_t[]){3}, 1);
    harness_dense(other, "aside", other->inputs[0], 2);
    harness_dense(other, "dense", other->inputs[0], 2);
    ck_assert_int_eq(
        ls_graph_add_loss(other, &(struct ls_loss){.kind = LS_LOSS_MEAN_SQUARED_ERROR}), LS_OK);
    ck_assert_int_eq(ls_graph_differentiate(other), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(harness_message(), "'aside/kernel'"));
    ls_graph_destroy(other);

    other = harness_tied();
    ck_assert_int_eq(ls_graph_differentiate(other), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(harness_message(), "already"));
    ls_graph_destroy(other);
}

TEST(the_input_has_no_gradient_and_parameters_have_one_each)
{
    struct ls_graph *other = harness_tied();
    uint32_t gradients = 0;
    for (uint32_t i = 0; i < other->tensor_count; i++) {
        const struct ls_tensor *tensor = other->tensors[i];
        if (tensor->gradient_of)
            ck_assert(ls_shape_equal(&tensor->shape, &tensor->gradient_of->shape));
        ck_assert_ptr_ne(tensor->gradient_of, other->inputs[0]);
        gradients += tensor->role == LS_ROLE_PARAMETER_GRADIENT;
    }
    ck_assert_uint_eq(gradients, other->parameter_count);
    ls_graph_destroy(other);
}

// The kernel of its gradients writes that of x in any case; here nobody adds to it or reads it.
TEST(a_norm_of_the_input_has_the_gradients_of_its_variables)
{
    struct ls_graph *other = harness_residual(LS_RELU);
    const struct ls_operation *last = &other->operations[other->operation_count - 1];
    ck_assert_uint_eq(last->op, LS_OP_BATCH_NORMALIZATION_BACKWARD);
    ck_assert_ptr_eq(last->inputs[0], other->inputs[0]);
    ck_assert_uint_eq(last->output_count, 3);
    ck_assert(ls_shape_equal(&last->outputs[0]->shape, &other->inputs[0]->shape));
    ck_assert_ptr_eq(last->outputs[1]->gradient_of, harness_parameter(other, "input_norm/gamma"));
    ck_assert_ptr_eq(last->outputs[2]->gradient_of, harness_parameter(other, "input_norm/beta"));
    ls_graph_destroy(other);
}

// 20 MB: in the time of a test only where each is appended without looking at those before it.
TEST(a_layer_is_connected_to_a_hundred_thousand_others)
{
    char name[201];
    memset(name, 'n', sizeof(name) - 1);
    name[200] = '\0';
    ck_assert_int_eq(ls_graph_begin_layer(graph, "last", "Test"), LS_OK);
    for (int i = 0; i < 100000; i++)
        ck_assert_int_eq(ls_graph_connect_layer(graph, name), LS_OK);
    const char *connected = graph->layers[graph->layer].connected;
    ck_assert_uint_eq(strlen(connected), 100000 * 202 - 2);
    ck_assert_mem_eq(connected + 200, ", n", 3);
}

TEST_FIXTURE(open_graph, close_graph);
