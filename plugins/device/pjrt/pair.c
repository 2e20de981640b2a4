// SPDX-License-Identifier: Apache-2.0
// Pairs of tensors, of which one may be repeated; and reductions along dimensions.
#include "plugins/device/pjrt/operations.h"

#include <math.h>

// ---- Pairs ----

static struct hlo_value repeated(struct hlo *h, struct hlo_value x, struct hlo_shape shape)
{
    return hlo_numpy(h, x, shape);
}

static struct hlo_value pair_of(struct hlo *h, uint32_t function, struct hlo_value a,
                                struct hlo_value b)
{
    static const char *const names[LS_PAIR_COUNT] = {
        [LS_PAIR_ADD] = "add",           [LS_PAIR_SUBTRACT] = "subtract",
        [LS_PAIR_MULTIPLY] = "multiply", [LS_PAIR_DIVIDE] = "divide",
        [LS_PAIR_MAXIMUM] = "maximum",   [LS_PAIR_MINIMUM] = "minimum",
    };
    return hlo_binary(h, names[function], a, b);
}

const char *pjrt_pair_refusal(const struct ls_kernel_request *request)
{
    return request->attributes.function < LS_PAIR_COUNT ? NULL : "a function it does not know";
}

void pjrt_pair(struct pjrt_call *call)
{
    const struct hlo_shape y = pjrt_output_shape(call, 0);
    call->outputs[0] =
        pair_of(call->h, call->attributes->function, repeated(call->h, call->inputs[0], y),
                repeated(call->h, call->inputs[1], y));
}

// dy where a (or b) was taken, else 0; the gradient of equal ones goes to a.
static struct hlo_value where_taken(struct hlo *h, const char *direction, bool by_b,
                                    struct hlo_value dy, struct hlo_value a, struct hlo_value b)
{
    const struct hlo_value first = hlo_compare(h, direction, a, b), zero = hlo_like(h, dy, 0);
    return by_b ? hlo_select(h, first, zero, dy) : hlo_select(h, first, dy, zero);
}

// dy times the derivative by a, or by b
static struct hlo_value slope(struct hlo *h, uint32_t function, bool by_b, struct hlo_value dy,
                              struct hlo_value a, struct hlo_value b)
{
    switch (function) {
    case LS_PAIR_SUBTRACT: return by_b ? hlo_unary(h, "negate", dy) : dy;
    case LS_PAIR_MULTIPLY: return hlo_multiply(h, dy, by_b ? a : b);
    case LS_PAIR_DIVIDE:
        if (!by_b)
            return hlo_divide(h, dy, b);
        return hlo_unary(h, "negate", hlo_divide(h, hlo_multiply(h, dy, a), hlo_multiply(h, b, b)));
    case LS_PAIR_MAXIMUM: return where_taken(h, "GE", by_b, dy, a, b);
    case LS_PAIR_MINIMUM: return where_taken(h, "LE", by_b, dy, a, b);
    default: return dy;
    }
}

// dy, a, b -> da or db: summed over where it was repeated
static void pair_backward(struct pjrt_call *call, bool by_b)
{
    struct hlo *h = call->h;
    const struct hlo_value dy = call->inputs[0];
    const struct hlo_shape own = pjrt_output_shape(call, 0);
    const uint32_t missing = dy.shape.ndims - own.ndims;
    uint32_t axes = (UINT32_C(1) << missing) - 1;
    for (uint32_t i = 0; i < own.ndims; i++)
        if (own.dims[i] == 1 && dy.shape.dims[missing + i] > 1)
            axes |= UINT32_C(1) << (missing + i);
    const struct hlo_value each =
        slope(h, call->attributes->function, by_b, dy, repeated(h, call->inputs[1], dy.shape),
              repeated(h, call->inputs[2], dy.shape));
    call->outputs[0] = hlo_reduce(h, "add", each, axes, 0);
}

void pjrt_pair_backward_first(struct pjrt_call *call)
{
    pair_backward(call, false);
}

void pjrt_pair_backward_second(struct pjrt_call *call)
{
    pair_backward(call, true);
}

// ---- Reductions ----

static uint32_t axes_of(const struct pjrt_call *call)
{
    uint32_t axes = 0;
    for (uint32_t i = 0; i < LS_MAX_DIMS; i++)
        axes |= call->attributes->axes[i] ? UINT32_C(1) << i : 0;
    return axes;
}

const char *pjrt_reduce_refusal(const struct ls_kernel_request *request)
{
    return request->attributes.function < LS_REDUCE_COUNT ? NULL : "a function it does not know";
}

void pjrt_reduce(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value x = call->inputs[0];
    const uint32_t function = call->attributes->function;
    const struct hlo_shape y = pjrt_output_shape(call, 0);
    const bool largest = function == LS_REDUCE_TO_MAXIMUM;
    struct hlo_value all = hlo_reduce(h, largest ? "maximum" : "add", x, axes_of(call),
                                      largest ? (double)-INFINITY : 0);
    if (function == LS_REDUCE_TO_MEAN)
        all = hlo_scaled(h, all, (double)hlo_elements(&y) / (double)hlo_elements(&x.shape));
    call->outputs[0] = all;
}

// dy, x, y -> dx; equal largest elements share the gradient
void pjrt_reduce_backward(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value x = call->inputs[1], y = call->inputs[2];
    const uint32_t function = call->attributes->function;
    struct hlo_value dx = hlo_numpy(h, call->inputs[0], x.shape);
    if (function == LS_REDUCE_TO_MEAN)
        dx = hlo_scaled(h, dx, (double)hlo_elements(&y.shape) / (double)hlo_elements(&x.shape));
    if (function == LS_REDUCE_TO_MAXIMUM) {
        const struct hlo_value is = hlo_compare(h, "EQ", x, hlo_numpy(h, y, x.shape));
        const struct hlo_value count =
            hlo_reduce_kept(h, "add", hlo_convert(h, is, LS_F32), axes_of(call), 0);
        dx = hlo_select(h, is, hlo_divide(h, dx, hlo_numpy(h, count, x.shape)), hlo_like(h, x, 0));
    }
    call->outputs[0] = dx;
}
