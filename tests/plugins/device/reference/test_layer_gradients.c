// SPDX-License-Identifier: Apache-2.0
// The backward operations of what single layers are made of, against central differences of their
// forward operation. Which arguments a backward operation has is read from the table of operations.
#include "tests/plugins/device/reference/operation.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ELEMENTS = 1000 };

// The error is step^2 / 6 times the third derivative, and the rounding of some 100 float32 results
// over the step: some 1e-5 each.
static const double step = 0.01, tolerance = 3e-4;

// A forward operation whose output 1, where it has one, is `saved`: this device keeps nothing
// there.
struct forward {
    uint32_t op;
    struct ls_op_attributes attributes;
    uint32_t inputs;
    struct argument arguments[6]; // inputs, then y
};

static float inputs[4][MAX_ELEMENTS], y[MAX_ELEMENTS], r[MAX_ELEMENTS];
static float gradients[4][MAX_ELEMENTS];

// The sum of y times r.
static double project(const struct forward *f)
{
    struct operation o = {.op = f->op,
                          .attributes = f->attributes,
                          .record = {.step = 3, .seed = 5},
                          .inputs = f->inputs,
                          .outputs = 1};
    double sum = 0;
    memcpy(o.arguments, f->arguments, (f->inputs + 1) * sizeof(f->arguments[0]));
    operation_run(&o);
    for (uint64_t i = 0; i < ls_tensor_elements(&f->arguments[f->inputs].desc); i++)
        sum += (double)r[i] * (double)y[i];
    return sum;
}

// Runs a backward operation of `f` with dy = r; bit i of the answer: it wrote gradients[i].
static uint32_t run_backward(const struct forward *f, uint32_t op)
{
    const struct ls_operation_row *row = ls_operation_row(op);
    struct operation o = {.op = op, .attributes = f->attributes, .record = {.step = 3, .seed = 5}};
    uint32_t written = 0;
    for (uint32_t i = 0; i < LS_MAX_ARGUMENTS; i++) {
        const struct ls_argument a = ls_operation_argument(row, i, false);
        if (a.kind == LS_ARGUMENT_NONE ||
            (a.source == LS_SOURCE_INPUT && a.source_index >= f->inputs))
            break;
        struct argument *out = &o.arguments[o.inputs++];
        if (a.source == LS_SOURCE_OUTPUT_GRADIENT) {
            *out = f->arguments[f->inputs];
            out->values = r;
        } else if (a.source == LS_SOURCE_INPUT) {
            *out = f->arguments[a.source_index];
        } else {
            *out = argument_of(LS_U8, NULL, DIMS(1)); // saved
        }
    }
    for (uint32_t i = 0; i < LS_MAX_ARGUMENTS; i++) {
        const struct ls_argument a = ls_operation_argument(row, i, true);
        if (a.kind == LS_ARGUMENT_NONE || a.source_index >= f->inputs)
            break;
        struct argument *out = &o.arguments[o.inputs + o.outputs++];
        *out = f->arguments[a.source_index];
        out->values = gradients[a.source_index];
        written |= 1u << a.source_index;
    }
    operation_run(&o);
    return written;
}

static void check_input(const struct forward *f, uint32_t input)
{
    float *x = f->arguments[input].values;
    for (uint64_t i = 0; i < ls_tensor_elements(&f->arguments[input].desc); i++) {
        const float before = x[i], up = before + (float)step, down = before - (float)step;
        x[i] = up;
        const double above = project(f);
        x[i] = down;
        const double below = project(f);
        x[i] = before;
        const double difference = (above - below) / ((double)up - (double)down);
        ck_assert_msg(
            fabs(difference - (double)gradients[input][i]) <= tolerance * fmax(1, fabs(difference)),
            "%s, input %u, element %llu: gradient %.9g, difference %.9g", ls_op_name(f->op), input,
            (unsigned long long)i, (double)gradients[input][i], difference);
    }
}

// All gradients of all inputs of type F32.
static void check(const struct forward *f)
{
    const struct ls_operation_row *row = ls_operation_row(f->op);
    uint32_t written = 0;
    for (uint32_t i = 0; i < LS_MAX_BACKWARD && row->backward[i]; i++)
        written |= run_backward(f, row->backward[i]);
    for (uint32_t i = 0; i < f->inputs; i++) {
        if (f->arguments[i].desc.dtype != LS_F32)
            continue;
        const bool factors = f->op >= LS_OP_RESIZE2D && f->op <= LS_OP_ERASE && i == 1;
        const bool mask = i == (f->op == LS_OP_RECURRENT ? 4u : 1u) &&
                          (f->op == LS_OP_RECURRENT || f->op == LS_OP_MASKED_MEAN);
        if (factors || mask)
            continue;
        ck_assert_uint_ne(written & 1u << i, 0);
        check_input(f, i);
    }
}

static void draw_all(void)
{
    for (uint64_t i = 0; i < 4; i++)
        draw(inputs[i], MAX_ELEMENTS, i);
    draw(r, MAX_ELEMENTS, 4);
}

TEST(rows_are_normalized_with_and_without_gamma_and_beta)
{
    for (uint32_t vectors = 0; vectors < 4; vectors++) {
        draw_all();
        struct forward f = {
            .op = LS_OP_LAYER_NORMALIZATION,
            .attributes = {.epsilon = 0.01f, .only_beta = vectors == 3},
            .inputs = 1 + (vectors == 3 ? 1 : vectors),
            .arguments = {F32(inputs[0], 3, 2, 7), F32(inputs[1], 7), F32(inputs[2], 7)}};
        f.arguments[f.inputs] = F32(y, 3, 2, 7);
        check(&f);
    }
}

TEST(groups_of_channels_are_normalized)
{
    draw_all();
    const struct forward f = {.op = LS_OP_LAYER_NORMALIZATION,
                              .attributes = {.epsilon = 0.01f, .groups = 2},
                              .inputs = 3,
                              .arguments = {F32(inputs[0], 2, 3, 2, 6), F32(inputs[1], 6),
                                            F32(inputs[2], 6), F32(y, 2, 3, 2, 6)}};
    check(&f);
}

TEST(rows_of_a_table_get_the_gradients_of_all_their_uses)
{
    static int32_t ids[] = {3, 0, 3, 3, 1, 0};
    draw_all();
    const struct forward f = {.op = LS_OP_GATHER_ROWS,
                              .inputs = 2,
                              .arguments = {I32(ids, 2, 3), F32(inputs[1], 5, 4), F32(y, 2, 3, 4)}};
    check(&f);
    for (int i = 0; i < 4; i++) // nobody has used row 2
        ck_assert_float_eq(gradients[1][2 * 4 + i], 0.0f);
}

TEST(attention_has_the_gradients_of_queries_keys_and_values)
{
    for (uint32_t i = 0; i < 4; i++) {
        draw_all();
        const struct forward f = {
            .op = LS_OP_ATTENTION,
            .attributes = {.causal = i & 1, .rate = i & 2 ? 0.4f : 0, .key = 2},
            .inputs = 3,
            .arguments = {F32(inputs[0], 2, 5, 2, 3), F32(inputs[1], 2, 4, 2, 3),
                          F32(inputs[2], 2, 4, 2, 6), F32(y, 2, 5, 2, 6)}};
        check(&f);
    }
}

TEST(a_product_has_the_gradients_of_both_factors)
{
    draw_all();
    const struct forward f = {
        .op = LS_OP_MATMUL,
        .inputs = 2,
        .arguments = {F32(inputs[0], 2, 3, 4, 5), F32(inputs[1], 2, 3, 5, 2), F32(y, 2, 3, 4, 2)}};
    check(&f);
}

TEST(a_product_with_a_transposed_kernel_has_the_gradients_of_both_factors)
{
    draw_all();
    const struct forward f = {
        .op = LS_OP_DENSE_TRANSPOSED,
        .inputs = 2,
        .arguments = {F32(inputs[0], 2, 3, 5), F32(inputs[1], 4, 5), F32(y, 2, 3, 4)}};
    check(&f);
}

// Of 5 positions of 3 examples a mask leaves 8, and another one nothing.
TEST(a_mean_of_what_a_mask_leaves_has_the_gradient_of_its_positions)
{
    static float masks[2][15] = {{1, 0, 1, 1, 1, 0, 0, 1, 0, 1, 1, 0, 0, 0, 1}};
    static double moments[2][3] = {{8, 8, 15}, {0, 0, 15}};
    for (int i = 0; i < 2; i++) {
        draw_all();
        const struct forward f = {.op = LS_OP_MASKED_MEAN,
                                  .inputs = 3,
                                  .arguments = {F32(inputs[0], 3, 5, 1), F32(masks[i], 3, 5),
                                                F64(moments[i], 3), F32(y, 3, 1)}};
        check(&f);
        ck_assert((y[0] != 0) == (i == 0));
    }
}

TEST(a_transposed_convolution_has_the_gradients_of_all_its_inputs)
{
    draw_all();
    const struct forward f = {
        .op = LS_OP_CONV2D_TRANSPOSE,
        .attributes = {.strides = {2, 3}, .padding = {0, 1, 1, 0}, .dilation = {1, 1}, .groups = 1},
        .inputs = 3,
        .arguments = {F32(inputs[0], 2, 3, 2, 4), F32(inputs[1], 3, 4, 2, 4), F32(inputs[2], 2),
                      F32(y, 2, 6, 6, 2)}};
    check(&f);
}

TEST(a_prelu_has_the_gradients_of_its_slopes)
{
    draw_all();
    for (int i = 0; i < MAX_ELEMENTS; i++) // no difference may cross the kink
        inputs[0][i] += fabsf(inputs[0][i]) < 0.05f ? 0.1f : 0.0f;
    struct forward f = {
        .op = LS_OP_PRELU,
        .inputs = 2,
        .arguments = {F32(inputs[0], 3, 4, 2, 5), F32(inputs[1], 4, 1, 5), F32(y, 3, 4, 2, 5)}};
    check(&f);
    f.arguments[1] = F32(inputs[1], 1, 1, 1);
    check(&f);
}

static const struct {
    uint32_t function, sequence;
    int64_t gates, states, rows, biases;
    bool masked;
    float rate;
} recurrent[] = {
    {LS_RECURRENT_SIMPLE, LS_SEQUENCE_ALL, 1, 1, 4, 1, false, 0},
    {LS_RECURRENT_SIMPLE, LS_SEQUENCE_STATES | LS_SEQUENCE_BACKWARDS, 1, 1, 2, 1, true, 0.4f},
    {LS_RECURRENT_LSTM, LS_SEQUENCE_ALL | LS_SEQUENCE_STATES, 4, 2, 6, 1, true, 0},
    {LS_RECURRENT_LSTM, 0, 4, 2, 1, 1, true, 0.3f},
    {LS_RECURRENT_GRU, LS_SEQUENCE_ALL | LS_SEQUENCE_BACKWARDS | LS_SEQUENCE_IN_TIME, 3, 1, 4, 1,
     true, 0.3f},
    {LS_RECURRENT_GRU, LS_SEQUENCE_ALL | LS_SEQUENCE_ZEROS, 3, 1, 4, 1, true, 0},
    {LS_RECURRENT_GRU_RESET_AFTER, LS_SEQUENCE_ALL, 3, 1, 4, 2, true, 0},
    {LS_RECURRENT_GRU_RESET_AFTER, LS_SEQUENCE_STATES, 3, 1, 2, 2, true, 0.5f},
};

TEST(recurrent_layers_have_the_gradients_of_all_their_inputs)
{
    static float mask[] = {1, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0};
    for (size_t i = 0; i < sizeof(recurrent) / sizeof(recurrent[0]); i++) {
        const int64_t gates = recurrent[i].gates;
        const struct argument bias = F32(inputs[2], recurrent[i].biases, 2 * gates);
        struct forward f = {
            .op = LS_OP_RECURRENT,
            .attributes = {.function = recurrent[i].function,
                           .sequence = recurrent[i].sequence,
                           .activation = LS_TANH,
                           .recurrent_activation = LS_SIGMOID,
                           .rate = recurrent[i].rate,
                           .key = 2},
            .inputs = recurrent[i].masked ? 5 : 4,
            .arguments = {F32(inputs[0], 3, 4, 2 * gates), F32(inputs[1], 2, 2 * gates),
                          recurrent[i].biases == 2 ? bias : F32(inputs[2], 2 * gates),
                          F32(inputs[3], i % 2 ? 3 : 1, recurrent[i].states, 2), F32(mask, 3, 4)}};
        draw_all();
        f.arguments[f.inputs] = F32(y, 3, recurrent[i].rows, 2);
        check(&f);
    }
}

TEST(images_have_the_gradients_of_what_is_made_of_them)
{
    static float transforms[] = {0.9f, 0.2f,  -0.4f, -0.1f, 1.1f, 0.3f, 0.02f, 0,
                                 -1,   -0.3f, 4.3f,  0.4f,  1.6f, -2,   0,     0.01f};
    static float colours[] = {0.6f, 0.1f, 1.4f, -0.2f}, patches[] = {0.5f, 3, 1, 5, 0, 0, 0, 0};
    struct forward f = {.op = LS_OP_RESIZE2D,
                        .inputs = 1,
                        .arguments = {F32(inputs[0], 2, 4, 5, 3), F32(y, 2, 7, 3, 3)}};
    draw_all();
    for (f.attributes.function = 0; f.attributes.function < LS_UPSAMPLE_COUNT;
         f.attributes.function++)
        check(&f);
    f = (struct forward){
        .op = LS_OP_RESAMPLE,
        .attributes = {.offset = 0.5f},
        .inputs = 2,
        .arguments = {F32(inputs[0], 2, 4, 5, 3), F32(transforms, 2, 8), F32(y, 2, 6, 3, 3)}};
    for (f.attributes.function = 0; f.attributes.function < LS_RESAMPLE_COUNT;
         f.attributes.function++)
        check(&f);
    f = (struct forward){
        .op = LS_OP_RECOLOUR,
        .attributes = {.l1 = -5, .l2 = 5},
        .inputs = 2,
        .arguments = {F32(inputs[0], 2, 4, 5, 3), F32(colours, 2, 2), F32(y, 2, 4, 5, 3)}};
    for (f.attributes.function = 0; f.attributes.function < LS_RECOLOUR_COUNT;
         f.attributes.function++)
        check(&f);
    f.op = LS_OP_ERASE;
    f.arguments[1] = F32(patches, 2, 4);
    f.attributes.factor = 2;
    for (f.attributes.function = 0; f.attributes.function < LS_ERASE_COUNT; f.attributes.function++)
        check(&f);
}

// ---- What differences do not show ----

TEST(no_gradient_goes_through_a_colour_at_the_end_of_its_range)
{
    float x[] = {0, 0.4f, 0.8f}, dy[] = {1, 2, 3}, factors[] = {2, 0}, dx[3];
    struct operation o = {.op = LS_OP_RECOLOUR_BACKWARD,
                          .attributes = {.l1 = 0.5f, .l2 = 1},
                          .inputs = 3,
                          .outputs = 1,
                          .arguments = {F32(dy, 1, 1, 3, 1), F32(x, 1, 1, 3, 1), F32(factors, 1, 2),
                                        F32(dx, 1, 1, 3, 1)}};
    operation_run(&o);
    assert_values(dx, (float[]){0, 4, 0}, 3, 0);
}

TEST(an_id_outside_of_the_table_makes_nan_and_adds_nothing)
{
    static int32_t ids[] = {2, -1, 3};
    float table[] = {1, 2, 3, 4, 5, 6}, dy[] = {1, 2, 3, 4, 5, 6}, dtable[6];
    struct operation o = {.op = LS_OP_GATHER_ROWS,
                          .inputs = 2,
                          .outputs = 1,
                          .arguments = {I32(ids, 3), F32(table, 3, 2), F32(y, 3, 2)}};
    operation_run(&o);
    assert_values(y, (float[]){5, 6}, 2, 0);
    for (int i = 2; i < 6; i++)
        ck_assert(isnan(y[i]));
    o = (struct operation){.op = LS_OP_GATHER_ROWS_BACKWARD,
                           .inputs = 2,
                           .outputs = 1,
                           .arguments = {I32(ids, 3), F32(dy, 3, 2), F32(dtable, 3, 2)}};
    operation_run(&o);
    assert_values(dtable, (float[]){0, 0, 0, 0, 1, 2}, 6, 0);

    float floats[] = {2.9f, -0.5f, NAN};
    o = (struct operation){.op = LS_OP_GATHER_ROWS,
                           .inputs = 2,
                           .outputs = 1,
                           .arguments = {F32(floats, 3), F32(table, 3, 2), F32(y, 3, 2)}};
    operation_run(&o);
    assert_values(y, (float[]){5, 6, 1, 2}, 4, 0);
    ck_assert(isnan(y[4]));
}

TEST(a_causal_query_sees_the_keys_up_to_its_own)
{
    // One head of one element: scores q k; the values say which keys were seen.
    float q[] = {0, 0, 0}, k[] = {1, 2, 3}, v[] = {1, 2, 6};
    struct operation o = {.op = LS_OP_ATTENTION,
                          .attributes = {.causal = 1},
                          .inputs = 3,
                          .outputs = 1,
                          .arguments = {F32(q, 1, 3, 1, 1), F32(k, 1, 3, 1, 1), F32(v, 1, 3, 1, 1),
                                        F32(y, 1, 3, 1, 1)}};
    operation_run(&o);
    assert_values(y, (float[]){1, 1.5f, 3}, 3, 1e-6);
}

TEST(a_transposed_convolution_spreads_each_element_over_its_window)
{
    // 1 2 with the kernel (1, 10) and stride 2, and bias 100
    float x[] = {1, 2}, w[] = {1, 10}, b[] = {100};
    struct operation o = {
        .op = LS_OP_CONV2D_TRANSPOSE,
        .attributes = {.strides = {1, 2}, .dilation = {1, 1}, .groups = 1},
        .inputs = 3,
        .outputs = 1,
        .arguments = {F32(x, 1, 1, 2, 1), F32(w, 1, 2, 1, 1), F32(b, 1), F32(y, 1, 1, 4, 1)}};
    operation_run(&o);
    assert_values(y, (float[]){101, 110, 102, 120}, 4, 0);
}

TEST(the_slope_of_a_prelu_at_zero_is_zero)
{
    float x[] = {-2, 0, 3}, alpha[] = {0.5f}, dy[] = {1, 1, 1}, dx[3], dalpha[1];
    struct operation o = {
        .op = LS_OP_PRELU_BACKWARD,
        .inputs = 3,
        .outputs = 2,
        .arguments = {F32(dy, 1, 3), F32(x, 1, 3), F32(alpha, 1), F32(dx, 1, 3), F32(dalpha, 1)}};
    operation_run(&o);
    assert_values(dx, (float[]){0.5f, 0, 1}, 3, 0);
    assert_values(dalpha, (float[]){-2}, 1, 0);
}

int main(void)
{
    return operation_device() ? test_suite_run("layer gradients") : TEST_SKIPPED;
}
