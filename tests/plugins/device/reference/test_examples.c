// SPDX-License-Identifier: Apache-2.0
// Device `reference` against small examples computed by hand.
#include "tests/plugins/device/reference/operation.h"

#define ROUNDING 1e-6 // a few float32 roundings of numbers near 1

static struct ls_op_attributes convolution(int32_t stride)
{
    return (struct ls_op_attributes){.strides = {stride, stride}, .dilation = {1, 1}, .groups = 1};
}

TEST(convolution_adds_products_and_bias)
{
    // 1 2 3      1 0
    // 4 5 6  by  0 2  with bias 10: 1 + 2 * 5, 2 + 2 * 6, 4 + 2 * 8, 5 + 2 * 9
    // 7 8 9
    float x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, w[] = {1, 0, 0, 2}, b[] = {10}, y[4];
    struct operation o = {
        .op = LS_OP_CONV2D,
        .attributes = convolution(1),
        .inputs = 3,
        .outputs = 1,
        .arguments = {F32(x, 1, 3, 3, 1), F32(w, 2, 2, 1, 1), F32(b, 1), F32(y, 1, 2, 2, 1)}};
    operation_run(&o);
    assert_values(y, (float[]){21, 24, 30, 33}, 4, 0);
}

TEST(convolution_sums_over_channels_for_each_filter)
{
    // two pixels of two channels; filters (1, 10) and (100, 1000)
    float x[] = {1, 2, 3, 4}, w[] = {1, 100, 10, 1000}, y[4];
    struct operation o = {
        .op = LS_OP_CONV2D,
        .attributes = convolution(1),
        .inputs = 2,
        .outputs = 1,
        .arguments = {F32(x, 1, 1, 2, 2), F32(w, 1, 1, 2, 2), F32(y, 1, 1, 2, 2)}};
    operation_run(&o);
    assert_values(y, (float[]){21, 2100, 43, 4300}, 4, 0);
}

TEST(asymmetric_padding_lies_behind_as_in_keras)
{
    // padding "same", kernel 2: nothing before, one zero behind; kernel (1, 10) over 1 2 3
    float x[] = {1, 2, 3}, w[] = {1, 10}, y[3];
    struct operation o = {
        .op = LS_OP_CONV2D,
        .attributes = convolution(1),
        .inputs = 2,
        .outputs = 1,
        .arguments = {F32(x, 1, 1, 3, 1), F32(w, 1, 2, 1, 1), F32(y, 1, 1, 3, 1)}};
    o.attributes.padding[3] = 1;
    operation_run(&o);
    assert_values(y, (float[]){21, 32, 3}, 3, 0);
    o.attributes.padding[2] = 1;
    o.attributes.padding[3] = 0;
    operation_run(&o);
    assert_values(y, (float[]){10, 21, 32}, 3, 0);
}

TEST(strides_and_dilation_step_over_elements)
{
    float x[] = {1, 2, 3, 4, 5, 6, 7}, w[] = {1, 100}, y[3];
    struct operation o = {
        .op = LS_OP_CONV2D,
        .attributes = {.strides = {1, 2}, .dilation = {1, 3}, .groups = 1},
        .inputs = 2,
        .outputs = 1,
        .arguments = {F32(x, 1, 1, 7, 1), F32(w, 1, 2, 1, 1), F32(y, 1, 1, 2, 1)}};
    operation_run(&o); // 1 with 4, then 3 with 6
    assert_values(y, (float[]){401, 603}, 2, 0);

    // The same along rows, with a zero before the first.
    o.attributes = (struct ls_op_attributes){
        .strides = {2, 1}, .padding = {1, 0, 0, 0}, .dilation = {3, 1}, .groups = 1};
    o.arguments[0] = F32(x, 1, 7, 1, 1);
    o.arguments[1] = F32(w, 2, 1, 1, 1);
    o.arguments[2] = F32(y, 1, 3, 1, 1);
    operation_run(&o); // 0 with 3, 2 with 5, 4 with 7
    assert_values(y, (float[]){300, 502, 704}, 3, 0);
}

TEST(groups_keep_their_channels_apart)
{
    float x[] = {1, 2, 3, 4}, w[] = {1, 10, 100, 1000}, y[2];
    // 4 channels, 2 groups: w is (1,1,2,2); filter 0 sees channels 0 and 1, filter 1 channels 2 and 3
    struct operation o = {
        .op = LS_OP_CONV2D,
        .attributes = convolution(1),
        .inputs = 2,
        .outputs = 1,
        .arguments = {F32(x, 1, 1, 1, 4), F32(w, 1, 1, 2, 2), F32(y, 1, 1, 1, 2)}};
    o.attributes.groups = 2;
    operation_run(&o);
    assert_values(y, (float[]){1 * 1 + 2 * 100, 3 * 10 + 4 * 1000}, 2, 0);
}

TEST(dense_flattens_what_comes_before_it)
{
    float x[] = {1, 2, 3, 4, 5, 6, 7, 8}, w[] = {1, 0, 0, 1, 1, 1, 2, -1}, b[] = {0.5f, -0.5f},
          y[4];
    struct operation o = {.op = LS_OP_DENSE,
                          .inputs = 3,
                          .outputs = 1,
                          .arguments = {F32(x, 2, 2, 1, 2), F32(w, 4, 2), F32(b, 2), F32(y, 2, 2)}};
    operation_run(&o);
    assert_values(
        y, (float[]){1 + 3 + 8 + 0.5f, 2 + 3 - 4 - 0.5f, 5 + 7 + 16 + 0.5f, 6 + 7 - 8 - 0.5f}, 4,
        0);
}

TEST(an_epilogue_and_accumulation_follow_the_operation)
{
    float x[] = {1, 2}, w[] = {1, -1}, y[] = {100, 200};
    struct operation o = {.op = LS_OP_DENSE,
                          .attributes = {.epilogue = LS_OP_ACTIVATION,
                                         .epilogue_activation = LS_LEAKY_RELU,
                                         .epilogue_alpha = 0.5f},
                          .inputs = 2,
                          .outputs = 1,
                          .arguments = {F32(x, 2, 1), F32(w, 1, 1), F32(y, 2, 1)},
                          .accumulate = 1};
    w[0] = -4;
    operation_run(&o);
    assert_values(y, (float[]){100 - 2, 200 - 4}, 2, 0);
}

TEST(a_backward_epilogue_reads_the_output_that_it_passes)
{
    float dy[] = {1, 2, 3}, w[] = {10}, passed[] = {0, 0.5f, 7}, dx[3];
    struct operation o = {
        .op = LS_OP_DENSE_BACKWARD_DATA,
        .attributes = {.epilogue = LS_OP_ACTIVATION_BACKWARD, .epilogue_activation = LS_RELU},
        .inputs = 3,
        .outputs = 1,
        .arguments = {F32(dy, 3, 1), F32(w, 1, 1), F32(passed, 3, 1), F32(dx, 3, 1)}};
    operation_run(&o);
    assert_values(dx, (float[]){0, 20, 30}, 3, 0);
}

TEST(max_pooling_gives_a_tie_to_the_first)
{
    float x[] = {2, 5, 5, 5}, y[1], dy[] = {3}, dx[4];
    const struct ls_op_attributes window = {.kernel = {2, 2}, .strides = {2, 2}};
    struct operation forward = {
        .op = LS_OP_MAX_POOL2D,
        .attributes = window,
        .inputs = 1,
        .outputs = 2,
        .arguments = {F32(x, 1, 2, 2, 1), F32(y, 1, 1, 1, 1), argument_of(LS_U8, NULL, 0, NULL)}};
    struct operation backward = {
        .op = LS_OP_MAX_POOL2D_BACKWARD,
        .attributes = window,
        .inputs = 4,
        .outputs = 1,
        .arguments = {F32(dy, 1, 1, 1, 1), F32(x, 1, 2, 2, 1), F32(y, 1, 1, 1, 1),
                      argument_of(LS_U8, NULL, 0, NULL), F32(dx, 1, 2, 2, 1)}};
    operation_run(&forward);
    operation_run(&backward);
    ck_assert_float_eq(y[0], 5);
    assert_values(dx, (float[]){0, 3, 0, 0}, 4, 0);
}

TEST(padding_never_wins_and_never_counts)
{
    float x[] = {-4, -2, -8, -6}, y[9];
    struct operation o = {
        .op = LS_OP_MAX_POOL2D,
        .attributes = {.kernel = {2, 2}, .strides = {1, 1}, .padding = {1, 1, 1, 1}},
        .inputs = 1,
        .outputs = 1,
        .arguments = {F32(x, 1, 2, 2, 1), F32(y, 1, 3, 3, 1)}};
    operation_run(&o);
    assert_values(y, (float[]){-4, -2, -2, -4, -2, -2, -8, -6, -6}, 9, 0);
    o.op = LS_OP_AVERAGE_POOL2D;
    operation_run(&o);
    assert_values(y, (float[]){-4, -3, -2, -6, -5, -4, -8, -7, -6}, 9, 0);
}

// From the formulas of keras.activations, in double precision.
TEST(functions_have_the_values_of_their_formulas)
{
    float x[] = {-4, -1, 0.25f, 3.5f}, y[4];
    const float wanted[LS_FUNCTION_COUNT][4] = {
        [LS_SCALE] = {8.5f, 2.5f, 0, -6.5f},
        [LS_GELU] = {-1.2668497e-4f, -0.15865525f, 0.14967658f, 3.4991858f},
        [LS_GELU_TANH] = {-7.0245948e-5f, -0.15880801f, 0.14967535f, 3.4993838f},
        [LS_SILU] = {-0.071944841f, -0.26894142f, 0.14054413f, 3.3974072f},
        [LS_HARD_SILU] = {0, -1.0f / 3, 0.13541667f, 3.5f},
        [LS_MISH] = {-0.072591731f, -0.30340146f, 0.16957241f, 3.4939907f},
        [LS_LOG_SIGMOID] = {-4.0181499f, -1.3132617f, -0.57593942f, -0.029750418f},
        [LS_SQUARE] = {16, 1, 0.0625f, 12.25f},
        [LS_SQUARE_ROOT] = {NAN, NAN, 0.5f, 1.8708287f},
        [LS_LOGARITHM] = {NAN, NAN, -1.3862944f, 1.2527630f},
    };
    for (uint32_t f = 0; f < LS_FUNCTION_COUNT; f++) {
        struct operation o = {.op = LS_OP_FUNCTION,
                              .attributes = {.function = f, .factor = -2, .offset = 0.5f},
                              .inputs = 1,
                              .outputs = 1,
                              .arguments = {F32(x, 1, 4), F32(y, 1, 4)}};
        operation_run(&o);
        const bool positive = f == LS_SQUARE_ROOT || f == LS_LOGARITHM;
        const int from = positive ? 2 : 0;
        assert_values(y + from, wanted[f] + from, (size_t)(4 - from), 1e-6);
        ck_assert(!positive || (isnan(y[0]) && isnan(y[1])));
    }
}

// 40,000 numbers: mean and variance are off by four deviations once in 16,000 seeds; fixed seed.
TEST(noise_is_normal_and_goes_by_the_example)
{
    enum { EXAMPLES = 8, ELEMENTS = 5000 };
    static float x[EXAMPLES * ELEMENTS], y[EXAMPLES * ELEMENTS], part[2 * ELEMENTS];
    double sum = 0, squares = 0;
    uint32_t beyond = 0;
    struct operation o = {.op = LS_OP_NOISE,
                          .attributes = {.rate = 2, .key = 3},
                          .record = {.step = 4, .seed = 9, .example_offset = 12},
                          .inputs = 1,
                          .outputs = 1,
                          .arguments = {F32(x, EXAMPLES, ELEMENTS), F32(y, EXAMPLES, ELEMENTS)}};
    operation_run(&o);
    for (int i = 0; i < EXAMPLES * ELEMENTS; i++) {
        sum += (double)y[i] / 2;
        squares += (double)y[i] * (double)y[i] / 4;
        beyond += fabsf(y[i]) > 2 * 1.959964f;
    }
    const double count = EXAMPLES * ELEMENTS;
    ck_assert(fabs(sum / count) < 4 / sqrt(count));
    ck_assert(fabs(squares / count - 1) < 4 * sqrt(2 / count));
    ck_assert(fabs(beyond / count - 0.05) < 4 * sqrt(0.05 * 0.95 / count));

    o.record.example_offset += 5; // another replica has examples 5 and 6
    o.arguments[0] = F32(x, 2, ELEMENTS);
    o.arguments[1] = F32(part, 2, ELEMENTS);
    operation_run(&o);
    assert_values(part, y + (size_t)5 * ELEMENTS, (size_t)2 * ELEMENTS, 0);
}

// A channel of an example is dropped as a whole, and which ones is what it would be without rows and
// columns.
TEST(shared_draws_drop_whole_channels)
{
    enum { CHANNELS = 50 };
    static float x[2 * 3 * 4 * CHANNELS], y[2 * 3 * 4 * CHANNELS], small[2 * CHANNELS];
    for (int i = 0; i < 2 * 3 * 4 * CHANNELS; i++)
        x[i] = 1;
    struct operation o = {.op = LS_OP_DROPOUT,
                          .attributes = {.rate = 0.5f, .key = 2, .axes = {0, 1, 1}},
                          .record = {.step = 4, .seed = 9},
                          .inputs = 1,
                          .outputs = 1,
                          .arguments = {F32(x, 2, 3, 4, CHANNELS), F32(y, 2, 3, 4, CHANNELS)}};
    operation_run(&o);
    memset(o.attributes.axes, 0, sizeof(o.attributes.axes));
    o.arguments[0] = F32(x, 2, CHANNELS);
    o.arguments[1] = F32(small, 2, CHANNELS);
    operation_run(&o);
    for (int i = 0; i < 2 * 3 * 4 * CHANNELS; i++)
        ck_assert(y[i] == small[i / (12 * CHANNELS) * CHANNELS + i % CHANNELS]);
}

// Worked out by hand.
TEST(moved_elements_are_where_they_belong)
{
    float x[] = {1, 2, 3, 4, 5, 6}, other[] = {7, 8}, y[24];
    struct operation o = {.op = LS_OP_CONCATENATE,
                          .attributes = {.axes = {0, 1}},
                          .inputs = 2,
                          .outputs = 1,
                          .arguments = {F32(x, 2, 3), F32(other, 2, 1), F32(y, 2, 4)}};
    operation_run(&o);
    assert_values(y, (float[]){1, 2, 3, 7, 4, 5, 6, 8}, 8, 0);

    o = (struct operation){.op = LS_OP_SLICE,
                           .attributes = {.axes = {0, 1}},
                           .inputs = 1,
                           .outputs = 1,
                           .arguments = {F32(x, 1, 3, 2), F32(y, 1, 2, 1)}};
    operation_run(&o);
    assert_values(y, (float[]){3, 5}, 2, 0);

    o.op = LS_OP_PAD;
    o.arguments[0] = F32(other, 1, 2, 1);
    o.arguments[1] = F32(y, 1, 3, 2);
    operation_run(&o);
    assert_values(y, (float[]){0, 0, 7, 0, 8, 0}, 6, 0);

    o = (struct operation){.op = LS_OP_TRANSPOSE,
                           .attributes = {.axes = {0, 2, 1}},
                           .inputs = 1,
                           .outputs = 1,
                           .arguments = {F32(x, 1, 2, 3), F32(y, 1, 3, 2)}};
    operation_run(&o);
    assert_values(y, (float[]){1, 4, 2, 5, 3, 6}, 6, 0);

    o = (struct operation){.op = LS_OP_UPSAMPLE2D,
                           .attributes = {.strides = {1, 2}},
                           .inputs = 1,
                           .outputs = 1,
                           .arguments = {F32(x, 1, 2, 3, 1), F32(y, 1, 2, 6, 1)}};
    operation_run(&o);
    assert_values(y, (float[]){1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6}, 12, 0);
    o.attributes.function = LS_UPSAMPLE_BILINEAR;
    operation_run(&o);
    assert_values(y, (float[]){1, 1.25f, 1.75f, 2.25f, 2.75f, 3, 4, 4.25f, 4.75f, 5.25f, 5.75f, 6},
                  12, 0);
}

// Worked out by hand.
TEST(pairs_and_reductions_have_the_values_of_numpy)
{
    float a[] = {1, 2, 3, 4, 5, 6}, b[] = {2, 3, 10}, y[6];
    static const struct {
        uint32_t function;
        float wanted[6];
    } pairs[] = {
        {LS_PAIR_ADD, {3, 5, 13, 6, 8, 16}},
        {LS_PAIR_SUBTRACT, {-1, -1, -7, 2, 2, -4}},
        {LS_PAIR_MULTIPLY, {2, 6, 30, 8, 15, 60}},
        {LS_PAIR_DIVIDE, {0.5f, 2.0f / 3, 0.3f, 2, 5.0f / 3, 0.6f}},
        {LS_PAIR_MAXIMUM, {2, 3, 10, 4, 5, 10}},
        {LS_PAIR_MINIMUM, {1, 2, 3, 2, 3, 6}},
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        struct operation o = {.op = LS_OP_PAIR,
                              .attributes = {.function = pairs[i].function},
                              .inputs = 2,
                              .outputs = 1,
                              .arguments = {F32(a, 2, 3), F32(b, 3), F32(y, 2, 3)}};
        operation_run(&o);
        assert_values(y, pairs[i].wanted, 6, ROUNDING);
    }
    static const float wanted[LS_REDUCE_COUNT][2] = {{6, 15}, {2, 5}, {3, 6}};
    for (uint32_t function = 0; function < LS_REDUCE_COUNT; function++) {
        struct operation o = {.op = LS_OP_REDUCE,
                              .attributes = {.function = function, .axes = {0, 1}},
                              .inputs = 1,
                              .outputs = 1,
                              .arguments = {F32(a, 2, 3), F32(y, 2, 1)}};
        operation_run(&o);
        assert_values(y, wanted[function], 2, 0);
    }
}

TEST(activations_have_the_values_of_their_formulas)
{
    float x[] = {-2, 0, 3, 7}, y[4];
    const float e2 = 0.135335283f, e3 = 20.0855369f; // exp(-2), exp(3)
    const float wanted[LS_ACTIVATION_COUNT][4] = {
        [LS_LINEAR] = {-2, 0, 3, 7},
        [LS_RELU] = {0, 0, 3, 7},
        [LS_LEAKY_RELU] = {-0.5f, 0, 3, 7},
        [LS_ELU] = {0.25f * (e2 - 1), 0, 3, 7},
        [LS_SIGMOID] = {0.119202922f, 0.5f, 0.952574127f, 0.999088949f},
        [LS_TANH] = {-0.96402758f, 0, 0.995054754f, 0.999998337f},
        [LS_SOFTPLUS] = {0.126928011f, 0.693147181f, 3.04858735f, 7.00091147f},
        [LS_EXPONENTIAL] = {e2, 1, e3, 1096.63316f},
        [LS_RELU6] = {0, 0, 3, 6},
        [LS_SOFTSIGN] = {-2.0f / 3, 0, 0.75f, 0.875f},
        [LS_SELU] = {-1.52016647f, 0, 3.1521030f, 7.35490691f},
        [LS_HARD_SIGMOID] = {1.0f / 6, 0.5f, 1, 1},
    };
    for (uint32_t a = 0; a < LS_ACTIVATION_COUNT; a++) {
        struct operation o = {.op = LS_OP_ACTIVATION,
                              .attributes = {.activation = a, .activation_alpha = 0.25f},
                              .inputs = 1,
                              .outputs = 1,
                              .arguments = {F32(x, 1, 4), F32(y, 1, 4)}};
        operation_run(&o);
        assert_values(y, wanted[a], 4, a == LS_EXPONENTIAL ? 1e-4 : ROUNDING);
    }
}

// TensorFlow's rule for a tie: all of the gradient to the first.
TEST(the_maximum_gives_a_tie_to_the_first_and_keeps_not_a_number)
{
    float a[] = {1, 2, 3, NAN, 0}, b[] = {2, 2, -3, 0, NAN}, y[5];
    struct operation o = {.op = LS_OP_MAXIMUM,
                          .inputs = 2,
                          .outputs = 1,
                          .arguments = {F32(a, 1, 5), F32(b, 1, 5), F32(y, 1, 5)}};
    operation_run(&o);
    assert_values(y, (float[]){2, 2, 3}, 3, 0);
    ck_assert(isnan(y[3]) && isnan(y[4]));

    float dy[] = {5, 6, 7}, da[3], db[3];
    o = (struct operation){
        .op = LS_OP_MAXIMUM_BACKWARD,
        .inputs = 3,
        .outputs = 2,
        .arguments = {F32(dy, 1, 3), F32(a, 1, 3), F32(b, 1, 3), F32(da, 1, 3), F32(db, 1, 3)}};
    operation_run(&o);
    assert_values(da, (float[]){0, 6, 7}, 3, 0);
    assert_values(db, (float[]){5, 0, 0}, 3, 0);
}

TEST(activations_survive_the_far_ends)
{
    float x[] = {-1000, 1000}, y[2];
    struct operation o = {.op = LS_OP_ACTIVATION,
                          .attributes = {.activation = LS_SIGMOID},
                          .inputs = 1,
                          .outputs = 1,
                          .arguments = {F32(x, 1, 2), F32(y, 1, 2)}};
    operation_run(&o);
    assert_values(y, (float[]){0, 1}, 2, 0);
    o.attributes.activation = LS_SOFTPLUS;
    operation_run(&o);
    assert_values(y, (float[]){0, 1000}, 2, 0);
    o.op = LS_OP_SOFTMAX;
    operation_run(&o);
    assert_values(y, (float[]){0, 1}, 2, 0);
}

TEST(softmax_is_exp_over_sum)
{
    float x[] = {0, 0.693147181f, 1.38629436f, 5, 5, 5},
          y[6]; // log 1, log 2, log 4; then equal ones
    struct operation o = {
        .op = LS_OP_SOFTMAX, .inputs = 1, .outputs = 1, .arguments = {F32(x, 2, 3), F32(y, 2, 3)}};
    operation_run(&o);
    assert_values(y, (float[]){1 / 7.f, 2 / 7.f, 4 / 7.f, 1 / 3.f, 1 / 3.f, 1 / 3.f}, 6, ROUNDING);
}

TEST(cross_entropy_from_logits)
{
    // probabilities 1/7 2/7 4/7, label 1; and three equal ones, label 2, whose largest is the first
    float p[] = {0, 0.693147181f, 1.38629436f, 5, 5, 5}, sums[4], saved[6], dp[6];
    int32_t labels[] = {1, 2};
    struct operation o = {
        .op = LS_OP_SPARSE_CROSS_ENTROPY,
        .attributes = {.from_logits = 1},
        .record = {.gradient_scale = 0.5f},
        .inputs = 2,
        .outputs = 2,
        .arguments = {F32(p, 2, 3), I32(labels, 2), F32(sums, 4), F32(saved, 2, 3)}};
    operation_run(&o);
    assert_values(sums, (float[]){logf(7 / 2.f) + logf(3), 0, 2, 0}, 4, ROUNDING);

    o.op = LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD;
    o.inputs = 3;
    o.outputs = 1;
    o.arguments[2] = o.arguments[3];
    o.arguments[3] = F32(dp, 2, 3);
    operation_run(&o);
    assert_values(dp, (float[]){1 / 14.f, -5 / 14.f, 4 / 14.f, 1 / 6.f, 1 / 6.f, -2 / 6.f}, 6,
                  ROUNDING);
}

TEST(cross_entropy_from_probabilities_clips_as_keras_does)
{
    // epsilon 0.1 for clear numbers: 0, 0.25, 1 become 0.1, 0.25, 0.9, with sum 1.25
    float p[] = {0, 0.25f, 1}, sums[4], saved[3], dp[3];
    int32_t labels[] = {0};
    struct operation o = {
        .op = LS_OP_SPARSE_CROSS_ENTROPY,
        .attributes = {.epsilon = 0.1f},
        .record = {.gradient_scale = 1},
        .inputs = 2,
        .outputs = 2,
        .arguments = {F32(p, 1, 3), I32(labels, 1), F32(sums, 4), F32(saved, 1, 3)}};
    operation_run(&o);
    assert_values(sums, (float[]){logf(12.5f), 0, 1, 0}, 4, ROUNDING);
    labels[0] = 2;
    operation_run(&o);
    assert_values(sums, (float[]){logf(1.25f / 0.9f), 1, 1, 0}, 4, ROUNDING);

    // the gradient is zero where the clip holds p; else (q - [label]) / p = 0.2 / 0.25
    o.op = LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD;
    o.inputs = 3;
    o.outputs = 1;
    o.arguments[2] = o.arguments[3];
    o.arguments[3] = F32(dp, 1, 3);
    operation_run(&o);
    assert_values(dp, (float[]){0, 0.8f, 0}, 3, ROUNDING);
    labels[0] = 1;
    operation_run(&o);
    assert_values(dp, (float[]){0, (0.2f - 1) / 0.25f, 0}, 3, ROUNDING);
}

TEST(positions_of_an_example_are_averaged)
{
    float p[] = {0, 0, 0, 1.09861229f},
          sums[4]; // losses log 2 and log(4/3); the first is right as first of equals
    int32_t labels[] = {0, 1};
    struct operation o = {.op = LS_OP_SPARSE_CROSS_ENTROPY,
                          .attributes = {.from_logits = 1},
                          .inputs = 2,
                          .outputs = 1,
                          .arguments = {F32(p, 1, 2, 2), I32(labels, 1, 2), F32(sums, 4)}};
    operation_run(&o);
    assert_values(sums, (float[]){(logf(2) + logf(4 / 3.f)) / 2, 1, 1, 0}, 4, ROUNDING);
}

TEST(a_label_outside_of_the_classes_is_not_a_number)
{
    float p[] = {0, 1}, sums[4];
    int32_t labels[] = {2};
    struct operation o = {.op = LS_OP_SPARSE_CROSS_ENTROPY,
                          .attributes = {.from_logits = 1},
                          .inputs = 2,
                          .outputs = 1,
                          .arguments = {F32(p, 1, 2), I32(labels, 1), F32(sums, 4)}};
    operation_run(&o);
    ck_assert(isnan(sums[0]));
}

TEST(squared_error_is_averaged_over_the_elements_of_an_example)
{
    float p[] = {1, 2, 3, 4}, t[] = {0, 4, 3, 1}, sums[4], dp[4];
    struct operation o = {.op = LS_OP_MEAN_SQUARED_ERROR,
                          .record = {.gradient_scale = 0.5f},
                          .inputs = 2,
                          .outputs = 1,
                          .arguments = {F32(p, 2, 2), F32(t, 2, 2), F32(sums, 4)}};
    operation_run(&o);
    assert_values(sums, (float[]){(1 + 4) / 2.f + 9 / 2.f, 0, 2, 0}, 4, 0);
    o.op = LS_OP_MEAN_SQUARED_ERROR_BACKWARD;
    o.arguments[2] = F32(dp, 2, 2);
    operation_run(&o);
    assert_values(dp, (float[]){0.5f, -1, 0, 1.5f}, 4, 0);
}

TEST(dropout_scales_what_it_keeps)
{
    enum { COUNT = 400 };
    float x[COUNT], y[COUNT];
    int kept = 0;
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(i + 1);
    struct operation o = {.op = LS_OP_DROPOUT,
                          .attributes = {.rate = 0.75f, .key = 3},
                          .record = {.step = 1, .seed = 2},
                          .inputs = 1,
                          .outputs = 1,
                          .arguments = {F32(x, 4, COUNT / 4), F32(y, 4, COUNT / 4)}};
    operation_run(&o);
    for (int i = 0; i < COUNT; i++) {
        ck_assert(y[i] == 0 || y[i] == 4 * x[i]);
        kept += y[i] != 0;
    }
    ck_assert_int_gt(kept, 60); // 100 of 400 are expected, the deviation is 9
    ck_assert_int_lt(kept, 140);
}

// Channels (1, 3) and (10, 10): means 2 and 10, variances 1 and 0; epsilon 3 makes the deviation of the first 2.
TEST(batch_normalization_is_by_channel_with_the_population_variance)
{
    float x[] = {1, 10, 3, 10}, gamma[] = {4, 5}, beta[] = {100, 200}, addend[] = {0, 0, 7, 1};
    float y[4], mean[2], variance[2];
    struct operation o = {.op = LS_OP_BATCH_NORMALIZATION,
                          .attributes = {.epsilon = 3},
                          .inputs = 3,
                          .outputs = 3,
                          .arguments = {F32(x, 2, 2), F32(gamma, 2), F32(beta, 2), F32(y, 2, 2),
                                        F32(mean, 2), F32(variance, 2)}};
    operation_run(&o);
    assert_values(y, (float[]){98, 200, 102, 200}, 4, 0);
    assert_values(mean, (float[]){2, 10}, 2, 0);
    assert_values(variance, (float[]){1, 0}, 2, 0);

    struct operation added = {.op = LS_OP_BATCH_NORMALIZATION,
                              .attributes = {.epsilon = 3},
                              .inputs = 4,
                              .outputs = 3,
                              .arguments = {F32(x, 2, 2), F32(gamma, 2), F32(beta, 2),
                                            F32(addend, 2, 2), F32(y, 2, 2), F32(mean, 2),
                                            F32(variance, 2)}};
    operation_run(&added);
    assert_values(y, (float[]){98, 200, 109, 201}, 4, 0);
    added.arguments[3] = F32(addend, 4);
    ck_assert_int_eq(operation_try(&added), LS_UNSUPPORTED);
    for (o.accumulate = 2; o.accumulate <= 4; o.accumulate *= 2)
        ck_assert_int_eq(operation_try(&o), LS_UNSUPPORTED);
    o.accumulate = 0;
    o.attributes.epsilon = NAN;
    ck_assert_int_eq(operation_try(&o), LS_UNSUPPORTED);
    o.attributes.epsilon = 0;
    ck_assert_int_eq(operation_try(&o), LS_OK);
    o.arguments[4] = F32(mean, 1);
    ck_assert_int_eq(operation_try(&o), LS_UNSUPPORTED);
}

// The same channels with moving statistics: (x - 1) / 2 of the first, x / 4 of the second.
TEST(batch_normalization_of_inference_takes_what_it_is_given)
{
    float x[] = {1, 10, 3, 10}, gamma[] = {4, 8}, beta[] = {100, 200}, addend[] = {0, 0, 7, 1};
    float mean[] = {1, 0}, variance[] = {1, 13}, y[4];
    struct operation o = {.op = LS_OP_BATCH_NORMALIZATION_INFERENCE,
                          .attributes = {.epsilon = 3},
                          .inputs = 6,
                          .outputs = 1,
                          .arguments = {F32(x, 2, 2), F32(gamma, 2), F32(beta, 2), F32(mean, 2),
                                        F32(variance, 2), F32(addend, 2, 2), F32(y, 2, 2)}};
    operation_run(&o);
    assert_values(y, (float[]){100, 220, 111, 221}, 4, 0);
}

// dy (1, 0) and (1, 1) of channels (1, 3) and (10, 10): dgamma is -1/2 and 0, dbeta 1 and 2. What the gradients are added to
// plays no part in dx.
TEST(batch_normalization_gradients_are_of_this_share_alone)
{
    float x[] = {1, 10, 3, 10}, gamma[] = {4, 5}, mean[] = {2, 10}, variance[] = {1, 0};
    float dy[] = {1, 1, 0, 1}, dx[4], dgamma[] = {10, 20}, dbeta[] = {30, 40};
    struct operation o = {.op = LS_OP_BATCH_NORMALIZATION_BACKWARD,
                          .attributes = {.epsilon = 3},
                          .inputs = 5,
                          .outputs = 3,
                          .arguments = {F32(x, 2, 2), F32(gamma, 2), F32(mean, 2), F32(variance, 2),
                                        F32(dy, 2, 2), F32(dx, 2, 2), F32(dgamma, 2),
                                        F32(dbeta, 2)},
                          .accumulate = 6};
    operation_run(&o);
    assert_values(dgamma, (float[]){9.5f, 20}, 2, 0);
    assert_values(dbeta, (float[]){31, 42}, 2, 0);
    // 4 / 2 (1 - 1/2 - 1/2 1/4) and its opposite; the second channel has no slope
    assert_values(dx, (float[]){0.75f, 0, -0.75f, 0}, 4, ROUNDING);
}

TEST(what_does_not_fit_together_is_refused)
{
    float x[64], y[64], w[64];
    struct operation o = {
        .op = LS_OP_CONV2D,
        .attributes = convolution(1),
        .inputs = 2,
        .outputs = 1,
        .arguments = {F32(x, 1, 3, 3, 1), F32(w, 2, 2, 1, 1), F32(y, 1, 3, 2, 1)}};
    ck_assert_int_eq(operation_try(&o), LS_UNSUPPORTED);
    o.arguments[2] = F32(y, 1, 2, 2, 1);
    ck_assert_int_eq(operation_try(&o), LS_OK);
    o.attributes.strides[0] = 0;
    ck_assert_int_eq(operation_try(&o), LS_UNSUPPORTED);
    o.attributes.strides[0] = 1;
    o.arguments[0].desc.dims[0] = 0;
    ck_assert_int_eq(operation_try(&o), LS_UNSUPPORTED);
    o.arguments[0] = F32(x, 1, 3, 3, 1);
    o.arguments[1].desc.layout.kind = LS_LAYOUT_OWN;
    ck_assert_int_eq(operation_try(&o), LS_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(operation_host.message, "only the plain layout"));
}

int main(void)
{
    return operation_device() ? test_suite_run("reference examples") : TEST_SKIPPED;
}
