// SPDX-License-Identifier: Apache-2.0
// Cases of the element-wise operations, of softmax, and of what only moves elements.
#include "tools/conformance/device/suite.h"

#include "core/operation/operation.h"

// Dimensions of one to four; lengths around multiples of a vector register.
static const struct {
    uint32_t ndims;
    int64_t dims[4];
} shapes[] = {
    {2, {1, 1}},        {2, {5, 10}},       {2, {7, 128}},   {2, {3, 33}},    {4, {2, 13, 11, 17}},
    {4, {5, 5, 5, 64}}, {4, {1, 7, 3, 24}}, {3, {2, 7, 10}}, {2, {64, 1000}}, {4, {1, 1, 1, 3}},
};

#define SHAPE_COUNT (sizeof(shapes) / sizeof(shapes[0]))

static void start(struct ls_device_case *c, uint32_t op, const char *name, const char *more,
                  size_t shape)
{
    char dims[64] = "";
    size_t length = 0;
    for (uint32_t i = 1; i < shapes[shape].ndims; i++)
        length += (size_t)snprintf(dims + length, sizeof(dims) - length, "%s%lld", i > 1 ? "x" : "",
                                   (long long)shapes[shape].dims[i]);
    ls_device_case_start(c, op, "%s%s B=%lld %s", name, more, (long long)shapes[shape].dims[0],
                         dims);
}

static struct ls_tensor_desc desc_of(size_t shape)
{
    return ls_device_desc(LS_F32, shapes[shape].ndims, shapes[shape].dims);
}

// One case of an operation that takes one or two tensors like its output.
static void simple(struct ls_device_suite *suite, struct ls_device_case *c, size_t shape,
                   uint32_t inputs, enum ls_device_values values,
                   const struct ls_device_epilogue *epilogue, struct ls_device_tolerance tolerance)
{
    for (uint32_t i = 0; i < inputs; i++)
        ls_device_case_draw(c, ls_device_case_input(c, LS_DEVICE_ACTIVATION, desc_of(shape)),
                            values);
    ls_device_case_epilogue(c, epilogue, desc_of(shape));
    ls_device_case_output(c, LS_DEVICE_ACTIVATION, desc_of(shape), tolerance);
    ls_device_case_run(suite, c);
}

static float alpha_of(uint32_t activation)
{
    return activation == LS_LEAKY_RELU ? 0.3f : activation == LS_ELU ? 0.7f : 0;
}

// Choices are exact; the one product of a leaky ReLU is rounded; the others are approximations.
static struct ls_device_tolerance tolerance_of(uint32_t activation)
{
    switch (activation) {
    case LS_LINEAR:
    case LS_RELU:
    case LS_RELU6: return LS_DEVICE_EXACT;
    case LS_LEAKY_RELU: return LS_DEVICE_ROUNDED;
    default: return LS_DEVICE_FUNCTION;
    }
}

// An activation that the device lacks has one case, in which it says so.
static bool offers_activation(struct ls_device_suite *suite, uint32_t op, uint32_t activation,
                              size_t shape)
{
    struct ls_device_case c;
    char name[64];
    snprintf(name, sizeof(name), "%s %s", ls_op_name(op), ls_activation_name(activation));
    start(&c, op, name, "", 0);
    c.request.attributes.activation = activation;
    c.request.attributes.activation_alpha = alpha_of(activation);
    for (uint32_t i = 0; i < (op == LS_OP_ACTIVATION ? 1 : 2); i++)
        ls_device_case_input(&c, LS_DEVICE_ACTIVATION, desc_of(0));
    ls_device_case_output(&c, LS_DEVICE_ACTIVATION, desc_of(0), LS_DEVICE_EXACT);
    return ls_device_case_offered(suite, &c, shape == 0 ? name : NULL);
}

static void activations(struct ls_device_suite *suite, uint32_t op, size_t shape,
                        const struct ls_device_epilogue *epilogue)
{
    const bool backward = op == LS_OP_ACTIVATION_BACKWARD;
    struct ls_device_case c;

    for (uint32_t a = 0; a < LS_ACTIVATION_COUNT; a++) {
        char more[64];
        if (a > LS_SOFTSIGN && !offers_activation(suite, op, a, shape))
            continue;
        snprintf(more, sizeof(more), " %s", ls_activation_name(a));
        start(&c, op, backward ? "activation_backward" : "activation", more, shape);
        c.request.attributes.activation = a;
        c.request.attributes.activation_alpha = alpha_of(a);
        if (!backward) {
            simple(suite, &c, shape, 1, LS_DEVICE_WIDE, epilogue, tolerance_of(a));
            continue;
        }
        ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_ACTIVATION, desc_of(shape)),
                            LS_DEVICE_UNIFORM);
        ls_device_case_draw_activated(
            &c, ls_device_case_input(&c, LS_DEVICE_ACTIVATION, desc_of(shape)), a, alpha_of(a));
        ls_device_case_epilogue(&c, epilogue, desc_of(shape));
        ls_device_case_output(&c, LS_DEVICE_ACTIVATION, desc_of(shape), tolerance_of(a));
        if (a == LS_RELU && !epilogue)
            ls_device_case_accumulate(&c, 0);
        ls_device_case_run(suite, &c);
    }
}

// exp of float32 differences of up to 60: relative error 60 * 2^-24; softmax itself adds little.
static const struct ls_device_tolerance softmax_tolerance = {0, 1e-5, 1e-7};

static void softmax_backward(struct ls_device_suite *suite, size_t shape,
                             const struct ls_device_epilogue *epilogue)
{
    struct ls_device_case c;
    start(&c, LS_OP_SOFTMAX_BACKWARD, "softmax_backward", "", shape);
    ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_ACTIVATION, desc_of(shape)),
                        LS_DEVICE_UNIFORM);
    ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_ACTIVATION, desc_of(shape)),
                        LS_DEVICE_PROBABILITIES);
    ls_device_case_epilogue(&c, epilogue, desc_of(shape));
    ls_device_case_output(&c, LS_DEVICE_ACTIVATION, desc_of(shape), softmax_tolerance);
    ls_device_case_run(suite, &c);
}

// To two dimensions, and from two to as many as there were.
static void reshape(struct ls_device_suite *suite, size_t shape, bool back)
{
    const struct ls_tensor_desc full = desc_of(shape);
    const struct ls_tensor_desc flat =
        LS_DEVICE_DESC(LS_F32, full.dims[0], (int64_t)ls_tensor_elements(&full) / full.dims[0]);
    struct ls_device_case c;

    start(&c, LS_OP_RESHAPE, back ? "reshape back" : "reshape", "", shape);
    ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_ACTIVATION, back ? flat : full),
                        LS_DEVICE_UNIFORM);
    ls_device_case_output(&c, LS_DEVICE_ACTIVATION, back ? full : flat, LS_DEVICE_EXACT);
    ls_device_case_run(suite, &c);
}

void ls_device_elementwise_cases(struct ls_device_suite *suite, uint32_t op,
                                 const struct ls_device_epilogue *epilogue)
{
    struct ls_device_case c;

    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        if (epilogue && i % 4 != 0)
            continue;
        switch (op) {
        case LS_OP_ACTIVATION:
        case LS_OP_ACTIVATION_BACKWARD: activations(suite, op, i, epilogue); break;
        case LS_OP_SOFTMAX:
            start(&c, op, "softmax", "", i);
            simple(suite, &c, i, 1, LS_DEVICE_WIDE, epilogue, softmax_tolerance);
            break;
        case LS_OP_SOFTMAX_BACKWARD: softmax_backward(suite, i, epilogue); break;
        case LS_OP_ADD:
            start(&c, op, "add", "", i);
            simple(suite, &c, i, 2, LS_DEVICE_WIDE, epilogue, LS_DEVICE_ROUNDED);
            break;
        case LS_OP_RESHAPE:
            reshape(suite, i, false);
            reshape(suite, i, true);
            break;
        default:
            start(&c, op, "convert", "", i);
            simple(suite, &c, i, 1, LS_DEVICE_WIDE, epilogue, LS_DEVICE_EXACT);
            break;
        }
    }
}

// ---- The larger of two ----

// A device that lacks the operation has one case, in which it says so.
void ls_device_maximum_cases(struct ls_device_suite *suite, uint32_t op)
{
    const uint32_t inputs = op == LS_OP_MAXIMUM ? 2 : 3;
    const char *name = ls_op_name(op);

    for (size_t i = 0; i < 2 * SHAPE_COUNT; i++) {
        const size_t shape = i / 2;
        struct ls_device_case c;
        start(&c, op, name, i % 2 ? " ties" : "", shape);
        for (uint32_t k = 0; k < inputs; k++)
            ls_device_case_draw(&c, ls_device_case_input(&c, LS_DEVICE_ACTIVATION, desc_of(shape)),
                                i % 2 ? LS_DEVICE_TIES : LS_DEVICE_WIDE);
        for (uint32_t k = 1; k < inputs; k++)
            ls_device_case_output(&c, LS_DEVICE_ACTIVATION, desc_of(shape), LS_DEVICE_EXACT);
        if (i % 4 == 1)
            ls_device_case_accumulate(&c, 0);
        struct ls_device_case asked = c;
        if (i == 0 && !ls_device_case_offered(suite, &asked, name))
            return;
        ls_device_case_run(suite, &c);
    }
}
