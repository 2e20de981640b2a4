// SPDX-License-Identifier: Apache-2.0
// Every backward operation of device `reference` against central differences of its forward operation. The
// scalar is the sum of the outputs times fixed random numbers r; its gradient is backward with dy = r.
#include "tests/plugins/device/reference/operation.h"

#include <stdlib.h>

#define MAX_ELEMENTS 400

// For operations that are linear in the input any step is exact; a large one hides the rounding of the
// float32 results: 400 of them near 3, 2^-24 each, over a step of 0.5.
static const double linear_step = 0.5, linear_tolerance = 2e-5;
// Else the error is step^2 / 6 times the third derivative, and rounding over the step: some 1e-5 each.
static const double curved_step = 0.01, curved_tolerance = 2e-4;

// The sum of output 0 times r.
static double project(struct operation *forward, const float *r)
{
    const struct argument *y = &forward->arguments[forward->inputs];
    double sum = 0;

    operation_run(forward);
    for (uint64_t i = 0; i < ls_tensor_elements(&y->desc); i++)
        sum += (double)r[i] * (double)((const float *)y->values)[i];
    return sum;
}

// Compares `gradient` with the differences that the forward operation shows for its input `input`.
static void assert_gradient(struct operation *forward, uint32_t input, const float *r,
                            const float *gradient, double step, double tolerance)
{
    float *x = forward->arguments[input].values;

    for (uint64_t i = 0; i < ls_tensor_elements(&forward->arguments[input].desc); i++) {
        const float before = x[i], up = before + (float)step, down = before - (float)step;
        x[i] = up;
        const double above = project(forward, r);
        x[i] = down;
        const double below = project(forward, r);
        x[i] = before;
        const double difference = (above - below) / ((double)up - (double)down);
        ck_assert_msg(fabs(difference - (double)gradient[i]) <=
                          tolerance * fmax(1, fabs(difference)),
                      "input %u, element %llu: gradient %.9g, difference %.9g", input,
                      (unsigned long long)i, (double)gradient[i], difference);
    }
}

// ---- Convolution and dense layer ----

static float x[MAX_ELEMENTS], w[MAX_ELEMENTS], b[MAX_ELEMENTS], y[MAX_ELEMENTS], r[MAX_ELEMENTS];
static float dx[MAX_ELEMENTS], dw[MAX_ELEMENTS], db[MAX_ELEMENTS];

static void draw_all(void)
{
    draw(x, MAX_ELEMENTS, 1);
    draw(w, MAX_ELEMENTS, 2);
    draw(b, MAX_ELEMENTS, 3);
    draw(r, MAX_ELEMENTS, 4);
}

// x, w, b and y of the layer, whose backward operations have these numbers.
static void check_layer(struct operation *forward, uint32_t backward_data,
                        uint32_t backward_weights)
{
    const struct argument *a = forward->arguments;
    struct argument dy = a[3], grad_x = a[0], grad_w = a[1], grad_b = a[2];
    dy.values = r;
    grad_x.values = dx;
    grad_w.values = dw;
    grad_b.values = db;
    struct operation data = {.op = backward_data,
                             .attributes = forward->attributes,
                             .inputs = 2,
                             .outputs = 1,
                             .arguments = {dy, a[1], grad_x}};
    struct operation weights = {.op = backward_weights,
                                .attributes = forward->attributes,
                                .inputs = 2,
                                .outputs = 2,
                                .arguments = {a[0], dy, grad_w, grad_b}};
    operation_run(&data);
    operation_run(&weights);
    assert_gradient(forward, 0, r, dx, linear_step, linear_tolerance);
    assert_gradient(forward, 1, r, dw, linear_step, linear_tolerance);
    assert_gradient(forward, 2, r, db, linear_step, linear_tolerance);
}

static const struct {
    int64_t dims[7]; // B H W C F KH KW
    int32_t strides[2], padding[4], dilation[2], groups;
} convolutions[] = {
    {{2, 5, 6, 3, 4, 3, 3}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 1},
    {{1, 7, 5, 2, 3, 2, 3}, {2, 1}, {0, 1, 1, 1}, {1, 1}, 1},
    {{2, 6, 4, 4, 6, 3, 2}, {1, 2}, {2, 0, 0, 1}, {1, 1}, 2},
    {{1, 8, 7, 3, 3, 3, 3}, {1, 1}, {1, 1, 1, 1}, {2, 2}, 3},
    {{3, 1, 1, 5, 2, 1, 1}, {3, 3}, {0, 0, 0, 0}, {1, 1}, 1},
};

TABLE_TEST(convolution_gradients_are_differences, convolutions)
{
    const int64_t *d = convolutions[_i].dims;
    struct operation o = {.op = LS_OP_CONV2D, .inputs = 3, .outputs = 1};
    struct ls_op_attributes *a = &o.attributes;
    memcpy(a->strides, convolutions[_i].strides, sizeof(a->strides));
    memcpy(a->padding, convolutions[_i].padding, sizeof(a->padding));
    memcpy(a->dilation, convolutions[_i].dilation, sizeof(a->dilation));
    a->groups = convolutions[_i].groups;
    const int64_t oh =
        (d[1] + a->padding[0] + a->padding[1] - (d[5] - 1) * a->dilation[0] - 1) / a->strides[0] +
        1;
    const int64_t ow =
        (d[2] + a->padding[2] + a->padding[3] - (d[6] - 1) * a->dilation[1] - 1) / a->strides[1] +
        1;

    draw_all();
    o.arguments[0] = F32(x, d[0], d[1], d[2], d[3]);
    o.arguments[1] = F32(w, d[5], d[6], d[3] / a->groups, d[4]);
    o.arguments[2] = F32(b, d[4]);
    o.arguments[3] = F32(y, d[0], oh, ow, d[4]);
    check_layer(&o, LS_OP_CONV2D_BACKWARD_DATA, LS_OP_CONV2D_BACKWARD_WEIGHTS);
}

TEST(dense_gradients_are_differences)
{
    struct operation o = {.op = LS_OP_DENSE,
                          .inputs = 3,
                          .outputs = 1,
                          .arguments = {F32(x, 3, 2, 4), F32(w, 8, 5), F32(b, 5), F32(y, 3, 5)}};
    draw_all();
    check_layer(&o, LS_OP_DENSE_BACKWARD_DATA, LS_OP_DENSE_BACKWARD_WEIGHTS);
    o.arguments[1] = F32(w, 4, 5);
    o.arguments[3] = F32(y, 3, 2, 5);
    check_layer(&o, LS_OP_DENSE_BACKWARD_DATA, LS_OP_DENSE_BACKWARD_WEIGHTS);
}

// ---- Pooling ----

static const struct ls_op_attributes windows[] = {
    {.kernel = {2, 2}, .strides = {2, 2}},
    {.kernel = {3, 3}, .strides = {2, 1}, .padding = {1, 0, 1, 1}},
    {.kernel = {2, 3}, .strides = {1, 3}, .padding = {0, 1, 2, 0}},
};

static struct operation pooling(uint32_t op, const struct ls_op_attributes *a)
{
    const int64_t oh = (6 + a->padding[0] + a->padding[1] - a->kernel[0]) / a->strides[0] + 1;
    const int64_t ow = (7 + a->padding[2] + a->padding[3] - a->kernel[1]) / a->strides[1] + 1;
    return (struct operation){.op = op,
                              .attributes = *a,
                              .inputs = 1,
                              .outputs = 1,
                              .arguments = {F32(x, 2, 6, 7, 3), F32(y, 2, oh, ow, 3)}};
}

LOOP_TEST(max_pooling_gradients_are_differences, 0, 3)
{
    struct operation o = pooling(LS_OP_MAX_POOL2D, &windows[_i]);
    draw_all();
    for (int i = 0; i < 252; i++) // all different, in no order, farther apart than two steps
        x[i] = (float)(i * 89 % 252) * 0.05f;
    struct argument dy = o.arguments[1], grad = o.arguments[0];
    dy.values = r;
    grad.values = dx;
    struct operation backward = {
        .op = LS_OP_MAX_POOL2D_BACKWARD,
        .attributes = o.attributes,
        .inputs = 4,
        .outputs = 1,
        .arguments = {dy, o.arguments[0], o.arguments[1], argument_of(LS_U8, NULL, 0, NULL), grad}};
    operation_run(&o);
    operation_run(&backward);
    assert_gradient(&o, 0, r, dx, curved_step, curved_tolerance);
}

LOOP_TEST(average_pooling_gradients_are_differences, 0, 3)
{
    struct operation o = pooling(LS_OP_AVERAGE_POOL2D, &windows[_i]);
    draw_all();
    struct argument dy = o.arguments[1], grad = o.arguments[0];
    dy.values = r;
    grad.values = dx;
    struct operation backward = {.op = LS_OP_AVERAGE_POOL2D_BACKWARD,
                                 .attributes = o.attributes,
                                 .inputs = 1,
                                 .outputs = 1,
                                 .arguments = {dy, grad}};
    operation_run(&backward);
    assert_gradient(&o, 0, r, dx, linear_step, linear_tolerance);
}

// ---- Element-wise ----

LOOP_TEST(activation_gradients_are_differences, 0, LS_ACTIVATION_COUNT)
{
    struct operation o = {.op = LS_OP_ACTIVATION,
                          .attributes = {.activation = (uint32_t)_i, .activation_alpha = 0.3f},
                          .inputs = 1,
                          .outputs = 1,
                          .arguments = {F32(x, 2, 30), F32(y, 2, 30)}};
    draw_all();
    for (int i = 0; i < 60; i++) // from -2.9 to 8.9 in steps of 0.2: never within a step of 0 or 6
        x[i] = -2.9f + 0.2f * (float)i;
    struct operation backward = {.op = LS_OP_ACTIVATION_BACKWARD,
                                 .attributes = o.attributes,
                                 .inputs = 2,
                                 .outputs = 1,
                                 .arguments = {F32(r, 2, 30), F32(y, 2, 30), F32(dx, 2, 30)}};
    operation_run(&o);
    operation_run(&backward);
    assert_gradient(&o, 0, r, dx, curved_step, curved_tolerance);
}

// Scale, and square root from the offset on, with their own coefficients.
LOOP_TEST(function_gradients_are_differences, 0, LS_FUNCTION_COUNT)
{
    const bool root = _i == LS_SQUARE_ROOT, logarithm = _i == LS_LOGARITHM;
    struct operation o = {
        .op = LS_OP_FUNCTION,
        .attributes = {.function = (uint32_t)_i, .factor = -1.3f, .offset = root ? 0.7f : 0.2f},
        .inputs = 1,
        .outputs = 1,
        .arguments = {F32(x, 2, 30), F32(y, 2, 30)}};
    draw_all();
    for (int i = 0; i < 60; i++) // never within a step of -3, 0, 3, or of 0.49
        x[i] = logarithm ? 1.05f + 0.1f * (float)i
               : root    ? 0.05f + 0.1f * (float)i
                         : -5.9f + 0.2f * (float)i;
    struct operation backward = {.op = LS_OP_FUNCTION_BACKWARD,
                                 .attributes = o.attributes,
                                 .inputs = 2,
                                 .outputs = 1,
                                 .arguments = {F32(r, 2, 30), F32(x, 2, 30), F32(dx, 2, 30)}};
    operation_run(&backward);
    assert_gradient(&o, 0, r, dx, curved_step, curved_tolerance);
}

// ---- Pairs and reductions ----

// a (2,3,1,4) and b (3,5,1): each is repeated where the other is not.
LOOP_TEST(pair_gradients_are_differences, 0, LS_PAIR_COUNT)
{
    struct operation o = {
        .op = LS_OP_PAIR,
        .attributes = {.function = (uint32_t)_i},
        .inputs = 2,
        .outputs = 1,
        .arguments = {F32(x, 2, 3, 1, 4), F32(w, 3, 5, 1), F32(y, 2, 3, 5, 4)},
    };
    draw_all();
    for (int i = 0; i < 24; i++) // a and b never within two steps of each other, or of 0
        x[i] = (float)(i * 7 % 24) * 0.2f - 2.3f;
    for (int i = 0; i < 15; i++)
        w[i] = (float)(i * 11 % 15) * 0.2f + 0.8f;
    for (uint32_t i = 0; i < 2; i++) {
        struct argument grad = o.arguments[i];
        grad.values = dx;
        struct operation backward = {
            .op = i ? LS_OP_PAIR_BACKWARD_SECOND : LS_OP_PAIR_BACKWARD_FIRST,
            .attributes = o.attributes,
            .inputs = 3,
            .outputs = 1,
            .arguments = {F32(r, 2, 3, 5, 4), o.arguments[0], o.arguments[1], grad}};
        operation_run(&backward);
        assert_gradient(&o, i, r, dx, curved_step, 5e-4);
    }
}

LOOP_TEST(reduction_gradients_are_differences, 0, LS_REDUCE_COUNT)
{
    struct operation o = {.op = LS_OP_REDUCE,
                          .attributes = {.function = (uint32_t)_i, .axes = {0, 1, 0, 1}},
                          .inputs = 1,
                          .outputs = 1,
                          .arguments = {F32(x, 2, 3, 4, 5), F32(y, 2, 1, 4, 1)}};
    draw_all();
    for (int i = 0; i < 120; i++) // all different, in no order, farther apart than two steps
        x[i] = (float)(i * 89 % 120) * 0.05f;
    struct operation backward = {
        .op = LS_OP_REDUCE_BACKWARD,
        .attributes = o.attributes,
        .inputs = 3,
        .outputs = 1,
        .arguments = {F32(r, 2, 1, 4, 1), o.arguments[0], o.arguments[1], F32(dx, 2, 3, 4, 5)}};
    operation_run(&o);
    operation_run(&backward);
    assert_gradient(&o, 0, r, dx, curved_step, curved_tolerance);
}

// ---- What moves elements ----

// The backward operation of one with one input and one output, which is linear.
static void check_linear(struct operation *o, uint32_t op)
{
    struct argument dy = o->arguments[1], grad = o->arguments[0];
    dy.values = r;
    grad.values = dx;
    struct operation backward = {
        .op = op, .attributes = o->attributes, .inputs = 1, .outputs = 1, .arguments = {dy, grad}};
    draw_all();
    operation_run(&backward);
    assert_gradient(o, 0, r, dx, linear_step, linear_tolerance);
}

TEST(gradients_of_what_moves_elements_are_differences)
{
    struct operation o = {.op = LS_OP_SLICE,
                          .attributes = {.axes = {0, 1, 2}},
                          .inputs = 1,
                          .outputs = 1,
                          .arguments = {F32(x, 2, 4, 5, 3), F32(y, 2, 2, 3, 2)}};
    check_linear(&o, LS_OP_SLICE_BACKWARD);
    o.op = LS_OP_PAD;
    o.arguments[0] = F32(x, 2, 2, 3, 2);
    o.arguments[1] = F32(y, 2, 4, 5, 3);
    check_linear(&o, LS_OP_PAD_BACKWARD);
    o = (struct operation){.op = LS_OP_TRANSPOSE,
                           .attributes = {.axes = {0, 3, 1, 2}},
                           .inputs = 1,
                           .outputs = 1,
                           .arguments = {F32(x, 2, 3, 4, 5), F32(y, 2, 5, 3, 4)}};
    check_linear(&o, LS_OP_TRANSPOSE_BACKWARD);
    for (uint32_t function = 0; function < LS_UPSAMPLE_COUNT; function++) {
        o = (struct operation){.op = LS_OP_UPSAMPLE2D,
                               .attributes = {.function = function, .strides = {2, 3}},
                               .inputs = 1,
                               .outputs = 1,
                               .arguments = {F32(x, 2, 3, 4, 2), F32(y, 2, 6, 12, 2)}};
        check_linear(&o, LS_OP_UPSAMPLE2D_BACKWARD);
    }
}

TEST(concatenation_gradients_are_differences)
{
    struct operation o = {
        .op = LS_OP_CONCATENATE,
        .attributes = {.axes = {0, 0, 1}},
        .inputs = 3,
        .outputs = 1,
        .arguments = {F32(x, 2, 3, 4), F32(w, 2, 3, 1), F32(b, 2, 3, 2), F32(y, 2, 3, 7)}};
    struct operation backward = {
        .op = LS_OP_CONCATENATE_BACKWARD,
        .attributes = o.attributes,
        .inputs = 1,
        .outputs = 3,
        .arguments = {F32(r, 2, 3, 7), F32(dx, 2, 3, 4), F32(dw, 2, 3, 1), F32(db, 2, 3, 2)}};
    draw_all();
    operation_run(&backward);
    assert_gradient(&o, 0, r, dx, linear_step, linear_tolerance);
    assert_gradient(&o, 1, r, dw, linear_step, linear_tolerance);
    assert_gradient(&o, 2, r, db, linear_step, linear_tolerance);
}

TEST(softmax_gradients_are_differences)
{
    struct operation o = {.op = LS_OP_SOFTMAX,
                          .inputs = 1,
                          .outputs = 1,
                          .arguments = {F32(x, 3, 2, 5), F32(y, 3, 2, 5)}};
    draw_all();
    struct operation backward = {.op = LS_OP_SOFTMAX_BACKWARD,
                                 .inputs = 2,
                                 .outputs = 1,
                                 .arguments = {F32(r, 3, 2, 5), F32(y, 3, 2, 5), F32(dx, 3, 2, 5)}};
    operation_run(&o);
    operation_run(&backward);
    assert_gradient(&o, 0, r, dx, curved_step, curved_tolerance);
}

TEST(dropout_is_its_own_backward_operation)
{
    struct operation o = {.op = LS_OP_DROPOUT,
                          .attributes = {.rate = 0.4f, .key = 2},
                          .record = {.step = 4, .seed = 9, .example_offset = 12},
                          .inputs = 1,
                          .outputs = 1,
                          .arguments = {F32(x, 3, 40), F32(y, 3, 40)}};
    draw_all();
    struct operation backward = o;
    backward.arguments[0] = F32(r, 3, 40);
    backward.arguments[1] = F32(dx, 3, 40);
    operation_run(&backward);
    assert_gradient(&o, 0, r, dx, linear_step, linear_tolerance);
}

// ---- Batch normalization ----

static float mean[MAX_ELEMENTS], variance[MAX_ELEMENTS];

TEST(batch_normalization_gradients_are_differences)
{
    const struct ls_op_attributes attributes = {.epsilon = 1e-3f};
    struct operation o = {.op = LS_OP_BATCH_NORMALIZATION,
                          .attributes = attributes,
                          .inputs = 3,
                          .outputs = 3,
                          .arguments = {F32(x, 3, 2, 5, 4), F32(w, 4), F32(b, 4),
                                        F32(y, 3, 2, 5, 4), F32(mean, 4), F32(variance, 4)}};
    struct operation backward = {.op = LS_OP_BATCH_NORMALIZATION_BACKWARD,
                                 .attributes = attributes,
                                 .inputs = 5,
                                 .outputs = 3,
                                 .arguments = {o.arguments[0], F32(w, 4), F32(mean, 4),
                                               F32(variance, 4), F32(r, 3, 2, 5, 4),
                                               F32(dx, 3, 2, 5, 4), F32(dw, 4), F32(db, 4)}};
    draw_all();
    operation_run(&o);
    operation_run(&backward);
    assert_gradient(&o, 0, r, dx, curved_step, curved_tolerance);
    assert_gradient(&o, 1, r, dw, linear_step, linear_tolerance);
    assert_gradient(&o, 2, r, db, linear_step, linear_tolerance);
}

// ---- Losses: the scalar is the first of the sums, times gradient_scale ----

static int32_t labels[] = {0, 3, 2, 2, 1, 0};
static const float first_sum[] = {0.25f, 0, 0, 0};

static void check_cross_entropy(struct operation *o, double step)
{
    struct operation backward = *o;
    backward.op = LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD;
    backward.inputs = 3;
    backward.outputs = 1;
    backward.arguments[2] = o->arguments[3];
    backward.arguments[3] = F32(dx, 3, 2, 4);
    operation_run(o);
    operation_run(&backward);
    assert_gradient(o, 0, first_sum, dx, step, curved_tolerance);
}

TEST(cross_entropy_gradients_are_differences)
{
    static float sums[4], saved[MAX_ELEMENTS];
    struct operation o = {
        .op = LS_OP_SPARSE_CROSS_ENTROPY,
        .attributes = {.from_logits = 1, .epsilon = 1e-7f},
        .record = {.gradient_scale = first_sum[0]},
        .inputs = 2,
        .outputs = 2,
        .arguments = {F32(x, 3, 2, 4), I32(labels, 3, 2), F32(sums, 4), F32(saved, 3, 2, 4)}};
    draw_all();
    check_cross_entropy(&o, curved_step);

    // Probabilities, not normalised; some outside of a wide clip range, where nothing may change.
    o.attributes.from_logits = 0;
    o.attributes.epsilon = 0.1f;
    for (int i = 0; i < 24; i++)
        x[i] = 0.05f + 0.9f * fabsf(x[i]) + (i % 5 == 0 ? 1 : 0);
    for (int i = 0; i < 24; i++) // not within a step of the range's ends
        if (fabsf(x[i] - 0.1f) < 0.02f || fabsf(x[i] - 0.9f) < 0.02f)
            x[i] += 0.05f;
    check_cross_entropy(&o, 0.003);
}

TEST(squared_error_gradients_are_differences)
{
    static float sums[4];
    struct operation o = {.op = LS_OP_MEAN_SQUARED_ERROR,
                          .record = {.gradient_scale = first_sum[0]},
                          .inputs = 2,
                          .outputs = 1,
                          .arguments = {F32(x, 3, 7), F32(w, 3, 7), F32(sums, 4)}};
    draw_all();
    struct operation backward = o;
    backward.op = LS_OP_MEAN_SQUARED_ERROR_BACKWARD;
    backward.arguments[2] = F32(dx, 3, 7);
    operation_run(&backward);
    assert_gradient(&o, 0, first_sum, dx, linear_step,
                    linear_tolerance); // central differences of a square are exact
}

// Where the functions of LS_OP_LOSS are smooth: what predictions and targets are made of the numbers from
// -1 to 1 that are drawn.
enum domain { REAL, PROBABILITY, SIGN, ONE_HOT, POSITIVE };

static const struct {
    uint32_t function;
    bool from_logits;
    enum domain predictions, targets;
    float smoothing;
} losses[] = {
    {LS_LOSS_SPARSE, true, REAL, REAL, 0}, // whose targets are labels
    {LS_LOSS_SPARSE, false, PROBABILITY, REAL, 0},
    {LS_LOSS_CATEGORICAL, true, REAL, PROBABILITY, 0},
    {LS_LOSS_CATEGORICAL, true, REAL, ONE_HOT, 0.2f},
    {LS_LOSS_CATEGORICAL, false, PROBABILITY, ONE_HOT, 0.1f},
    {LS_LOSS_BINARY, true, REAL, PROBABILITY, 0},
    {LS_LOSS_BINARY, true, REAL, ONE_HOT, 0.3f},
    {LS_LOSS_BINARY, false, PROBABILITY, ONE_HOT, 0.1f},
    {LS_LOSS_SQUARED, false, REAL, REAL, 0},
    {LS_LOSS_ABSOLUTE, false, REAL, REAL, 0},
    {LS_LOSS_PERCENTAGE, false, REAL, POSITIVE, 0},
    {LS_LOSS_LOGARITHMIC, false, POSITIVE, POSITIVE, 0},
    {LS_LOSS_HUBER, false, REAL, REAL, 0},
    {LS_LOSS_LOG_COSH, false, REAL, REAL, 0},
    {LS_LOSS_DIVERGENCE, false, PROBABILITY, PROBABILITY, 0},
    {LS_LOSS_POISSON, false, POSITIVE, POSITIVE, 0},
    {LS_LOSS_HINGE, false, REAL, SIGN, 0},
    {LS_LOSS_HINGE, false, REAL, ONE_HOT, 0},
    {LS_LOSS_SQUARED_HINGE, false, REAL, SIGN, 0},
    {LS_LOSS_CATEGORICAL_HINGE, false, REAL, ONE_HOT, 0},
    {LS_LOSS_VALUES, false, REAL, REAL, 0},
    {LS_LOSS_COSINE, false, REAL, REAL, 0},
};
#define LOSSES (sizeof(losses) / sizeof(losses[0]))
#define LOSS_ELEMENTS 24 // 3 examples of 2 positions of 4 classes
#define DELTA 0.5f // of huber

static float in_domain(enum domain domain, int i, float value)
{
    switch (domain) {
    case PROBABILITY: return 0.2f + 0.6f * fabsf(value);
    case SIGN: return value < 0 ? -1 : 1;
    case ONE_HOT: return i % 4 == i / 4 % 4 ? 1 : 0;
    case POSITIVE: return 0.3f + fabsf(value);
    default: return 1.5f * value;
    }
}

// How far a prediction is from where the derivative jumps.
static float from_kink(uint32_t function, float p, float t)
{
    switch (function) {
    case LS_LOSS_ABSOLUTE:
    case LS_LOSS_PERCENTAGE: return fabsf(p - t);
    case LS_LOSS_HUBER: return fabsf(fabsf(p - t) - DELTA);
    case LS_LOSS_HINGE:
    case LS_LOSS_SQUARED_HINGE: return fabsf(1 - (t > 0 ? p : -p));
    default: return 1;
    }
}

static void check_loss(size_t which, bool weighted)
{
    static float sums[4], weights[] = {1.5f, 0, 0.25f};
    const bool sparse = losses[which].function == LS_LOSS_SPARSE;
    struct operation o = {.op = LS_OP_LOSS,
                          .attributes = {.function = losses[which].function,
                                         .from_logits = losses[which].from_logits,
                                         .smoothing = losses[which].smoothing,
                                         .threshold = DELTA,
                                         .epsilon = 1e-7f},
                          .record = {.gradient_scale = first_sum[0]},
                          .inputs = weighted ? 3 : 2,
                          .outputs = 1,
                          .arguments = {F32(x, 3, 2, 4), F32(w, 3, 2, 4), F32(weights, 3)}};
    draw_all();
    for (int i = 0; i < LOSS_ELEMENTS; i++) {
        x[i] = in_domain(losses[which].predictions, i, x[i]);
        w[i] = in_domain(losses[which].targets, i, w[i]);
        while (from_kink(o.attributes.function, x[i], w[i]) < 3 * (float)curved_step)
            x[i] += (float)curved_step;
    }
    if (sparse)
        o.arguments[1] = I32(labels, 3, 2);
    struct operation backward = o;
    backward.op = LS_OP_LOSS_BACKWARD;
    o.arguments[o.inputs] = F32(sums, 4);
    backward.arguments[o.inputs] = F32(dx, 3, 2, 4);
    operation_run(&backward);
    const bool steep = losses[which].predictions == PROBABILITY; // logarithms
    assert_gradient(&o, 0, first_sum, dx, steep ? 0.003 : curved_step, curved_tolerance);
    float largest = 0;
    for (int i = 0; i < LOSS_ELEMENTS; i++)
        largest = fmaxf(largest, fabsf(dx[i]));
    ck_assert_float_gt(largest, 1e-3f);
}

// The same of each position by itself: the sum of `r` times the losses.
static void check_position_loss(size_t which)
{
    const bool sparse = losses[which].function == LS_LOSS_SPARSE;
    struct operation o = {.op = LS_OP_POSITION_LOSS,
                          .attributes = {.function = losses[which].function,
                                         .from_logits = losses[which].from_logits,
                                         .smoothing = losses[which].smoothing,
                                         .threshold = DELTA,
                                         .epsilon = 1e-7f},
                          .inputs = 2,
                          .outputs = 1,
                          .arguments = {F32(x, 3, 2, 4), F32(w, 3, 2, 4), F32(y, 3, 2, 1)}};
    draw_all();
    for (int i = 0; i < LOSS_ELEMENTS; i++) {
        x[i] = in_domain(losses[which].predictions, i, x[i]);
        w[i] = in_domain(losses[which].targets, i, w[i]);
        while (from_kink(o.attributes.function, x[i], w[i]) < 3 * (float)curved_step)
            x[i] += (float)curved_step;
    }
    if (sparse)
        o.arguments[1] = I32(labels, 3, 2);
    struct operation backward = o;
    backward.op = LS_OP_POSITION_LOSS_BACKWARD;
    backward.inputs = 3;
    backward.arguments[2] = F32(r, 3, 2, 1);
    backward.arguments[3] = F32(dx, 3, 2, 4);
    operation_run(&backward);
    const bool steep = losses[which].predictions == PROBABILITY; // logarithms
    assert_gradient(&o, 0, r, dx, steep ? 0.003 : curved_step, curved_tolerance);
}

LOOP_TEST(loss_gradients_are_differences, 0, LOSSES)
{
    check_position_loss((size_t)_i);
    check_loss((size_t)_i, false);
    check_loss((size_t)_i, true);
}

TEST(every_loss_is_differentiated)
{
    bool found[LS_LOSS_FUNCTION_COUNT] = {false};
    for (size_t i = 0; i < LOSSES; i++)
        found[losses[i].function] = true;
    for (size_t i = 0; i < LS_LOSS_FUNCTION_COUNT; i++)
        ck_assert_msg(found[i], "loss function %zu", i);
}

int main(void)
{
    return operation_device() ? test_suite_run("reference gradients") : TEST_SKIPPED;
}
