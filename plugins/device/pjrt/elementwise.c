// SPDX-License-Identifier: Apache-2.0
// Activations and other functions of one element, softmax, sums and copies.
#include "plugins/device/pjrt/operations.h"

#include <math.h>

// ---- Safe forms ----

struct hlo_value pjrt_sigmoid(struct hlo *h, struct hlo_value x)
{
    return hlo_unary(h, "logistic", x);
}

// max(x, 0) + log(1 + exp(-|x|))
struct hlo_value pjrt_softplus(struct hlo *h, struct hlo_value x)
{
    const struct hlo_value away = hlo_unary(h, "negate", hlo_unary(h, "abs", x));
    return hlo_add(h, hlo_maximum(h, x, hlo_like(h, x, 0)),
                   hlo_unary(h, "log_plus_one", hlo_unary(h, "exponential", away)));
}

static struct hlo_value over_last(struct hlo *h, const char *name, struct hlo_value x, double first)
{
    return hlo_numpy(h, hlo_reduce_kept(h, name, x, UINT32_C(1) << (x.shape.ndims - 1), first),
                     x.shape);
}

struct hlo_value pjrt_softmax(struct hlo *h, struct hlo_value x)
{
    const struct hlo_value largest = over_last(h, "maximum", x, (double)-INFINITY);
    const struct hlo_value e = hlo_unary(h, "exponential", hlo_subtract(h, x, largest));
    return hlo_divide(h, e, over_last(h, "add", e, 0));
}

// ---- Activations ----

static struct hlo_value between(struct hlo *h, struct hlo_value x, double low, double high)
{
    return hlo_minimum(h, hlo_maximum(h, x, hlo_like(h, x, low)), hlo_like(h, x, high));
}

// x where x > 0, else `below`.
static struct hlo_value positive_or(struct hlo *h, struct hlo_value x, struct hlo_value below)
{
    return hlo_select(h, hlo_compare(h, "GT", x, hlo_like(h, x, 0)), x, below);
}

static struct hlo_value exp_minus_one(struct hlo *h, struct hlo_value x)
{
    return hlo_unary(h, "exponential_minus_one", x);
}

static struct hlo_value hard_sigmoid(struct hlo *h, struct hlo_value x)
{
    return hlo_divide(h, between(h, hlo_plus(h, x, 3), 0, 6), hlo_like(h, x, 6));
}

struct hlo_value pjrt_activate(struct hlo *h, uint32_t activation, double alpha, struct hlo_value x)
{
    switch (activation) {
    case LS_RELU: return hlo_maximum(h, x, hlo_like(h, x, 0));
    case LS_LEAKY_RELU: return positive_or(h, x, hlo_scaled(h, x, alpha));
    case LS_ELU: return positive_or(h, x, hlo_scaled(h, exp_minus_one(h, x), alpha));
    case LS_SIGMOID: return pjrt_sigmoid(h, x);
    case LS_TANH: return hlo_unary(h, "tanh", x);
    case LS_SOFTPLUS: return pjrt_softplus(h, x);
    case LS_EXPONENTIAL: return hlo_unary(h, "exponential", x);
    case LS_RELU6: return between(h, x, 0, 6);
    case LS_SOFTSIGN: return hlo_divide(h, x, hlo_plus(h, hlo_unary(h, "abs", x), 1));
    case LS_SELU:
        return hlo_scaled(h, positive_or(h, x, hlo_scaled(h, exp_minus_one(h, x), LS_SELU_ALPHA)),
                          LS_SELU_SCALE);
    case LS_HARD_SIGMOID: return hard_sigmoid(h, x);
    default: return x;
    }
}

static struct hlo_value where_positive(struct hlo *h, struct hlo_value y, struct hlo_value yes,
                                       struct hlo_value no)
{
    return hlo_select(h, hlo_compare(h, "GT", y, hlo_like(h, y, 0)), yes, no);
}

// `slope` where low < y < high, else 0.
static struct hlo_value slope_between(struct hlo *h, struct hlo_value y, double high, double slope)
{
    const struct hlo_value below = hlo_compare(h, "LT", y, hlo_like(h, y, high));
    const struct hlo_value zero = hlo_like(h, y, 0);
    return where_positive(h, y, hlo_select(h, below, hlo_like(h, y, slope), zero), zero);
}

struct hlo_value pjrt_activation_slope(struct hlo *h, uint32_t activation, double alpha,
                                       struct hlo_value y)
{
    const struct hlo_value one = hlo_like(h, y, 1);
    switch (activation) {
    case LS_RELU: return where_positive(h, y, one, hlo_like(h, y, 0));
    case LS_LEAKY_RELU: return where_positive(h, y, one, hlo_like(h, y, alpha));
    case LS_ELU: return where_positive(h, y, one, hlo_plus(h, y, alpha));
    case LS_SIGMOID: return hlo_multiply(h, y, hlo_subtract(h, one, y));
    case LS_TANH: return hlo_subtract(h, one, hlo_multiply(h, y, y));
    case LS_SOFTPLUS: return hlo_unary(h, "negate", exp_minus_one(h, hlo_unary(h, "negate", y)));
    case LS_EXPONENTIAL: return y;
    case LS_RELU6: return slope_between(h, y, 6, 1);
    case LS_SOFTSIGN: {
        const struct hlo_value rest = hlo_subtract(h, one, hlo_unary(h, "abs", y));
        return hlo_multiply(h, rest, rest);
    }
    case LS_SELU:
        return where_positive(h, y, hlo_like(h, y, LS_SELU_SCALE),
                              hlo_plus(h, y, LS_SELU_SCALE * LS_SELU_ALPHA));
    case LS_HARD_SIGMOID: return slope_between(h, y, 1, 1.0 / 6);
    default: return one;
    }
}

const char *pjrt_activation_refusal(const struct ls_kernel_request *request)
{
    return request->attributes.activation < LS_ACTIVATION_COUNT ? NULL
                                                                : "an activation it does not know";
}

void pjrt_activation(struct pjrt_call *call)
{
    call->outputs[0] = pjrt_activate(call->h, call->attributes->activation,
                                     (double)call->attributes->activation_alpha, call->inputs[0]);
}

void pjrt_activation_backward(struct pjrt_call *call)
{
    call->outputs[0] = hlo_multiply(
        call->h, call->inputs[0],
        pjrt_activation_slope(call->h, call->attributes->activation,
                              (double)call->attributes->activation_alpha, call->inputs[1]));
}

// ---- Functions whose derivative needs x ----

static const double pi = 3.14159265358979323846;

static struct hlo_value chlo(struct hlo *h, const char *name, struct hlo_value x)
{
    const struct hlo_value y = hlo_new(h, x.type, x.shape);
    hlo_print(h, "%%%u = chlo.%s %%%u : ", y.id, name, x.id);
    hlo_print_type(h, &x);
    hlo_print(h, " -> ");
    hlo_print_type(h, &y);
    hlo_print(h, "\n");
    return y;
}

// erfc(-x / sqrt(2)) / 2
static struct hlo_value normal(struct hlo *h, struct hlo_value x)
{
    return hlo_scaled(h, chlo(h, "erfc", hlo_scaled(h, x, -0.70710678118654752440)), 0.5);
}

// 2 sqrt(2 / pi) (x + 0.044715 x^3): (1 + tanh(u / 2)) / 2 is sigmoid(u), which loses no digits.
static struct hlo_value gelu_argument(struct hlo *h, struct hlo_value x)
{
    const struct hlo_value cube = hlo_multiply(h, x, hlo_multiply(h, x, x));
    return hlo_scaled(h, hlo_add(h, x, hlo_scaled(h, cube, 0.044715)), 2 * sqrt(2 / pi));
}

// tanh(log(1 + e)) = n / (n + 2) with n = e (e + 2) and e = exp(x), which is 1 from x = 20 on.
static struct hlo_value mish_part(struct hlo *h, struct hlo_value x, struct hlo_value *n)
{
    const struct hlo_value e = hlo_unary(h, "exponential", hlo_minimum(h, x, hlo_like(h, x, 20)));
    *n = hlo_multiply(h, e, hlo_plus(h, e, 2));
    return hlo_divide(h, *n, hlo_plus(h, *n, 2));
}

static struct hlo_value square_root(struct hlo *h, const struct ls_op_attributes *a,
                                    struct hlo_value x)
{
    const struct hlo_value root = hlo_unary(h, "sqrt", x),
                           least = hlo_like(h, x, (double)a->offset);
    return hlo_select(h, hlo_compare(h, "LT", root, least), least, root);
}

static struct hlo_value function_of(struct hlo *h, const struct ls_op_attributes *a,
                                    struct hlo_value x)
{
    struct hlo_value n;
    switch (a->function) {
    case LS_GELU: return hlo_multiply(h, x, normal(h, x));
    case LS_GELU_TANH: return hlo_multiply(h, x, pjrt_sigmoid(h, gelu_argument(h, x)));
    case LS_SILU: return hlo_multiply(h, x, pjrt_sigmoid(h, x));
    case LS_HARD_SILU: return hlo_multiply(h, x, hard_sigmoid(h, x));
    case LS_MISH: return hlo_multiply(h, x, mish_part(h, x, &n));
    case LS_LOG_SIGMOID: return hlo_unary(h, "negate", pjrt_softplus(h, hlo_unary(h, "negate", x)));
    case LS_SQUARE: return hlo_multiply(h, x, x);
    case LS_SQUARE_ROOT: return square_root(h, a, x);
    case LS_LOGARITHM: return hlo_unary(h, "log", x);
    default: return hlo_plus(h, hlo_scaled(h, x, (double)a->factor), (double)a->offset);
    }
}

static struct hlo_value gelu_slope(struct hlo *h, struct hlo_value x)
{
    const struct hlo_value density =
        hlo_unary(h, "exponential", hlo_scaled(h, hlo_multiply(h, x, x), -0.5));
    return hlo_add(h, normal(h, x), hlo_multiply(h, x, hlo_scaled(h, density, 1 / sqrt(2 * pi))));
}

// s + x s (1 - s) 2 sqrt(2 / pi) (1 + 3 0.044715 x^2), with s = sigmoid(u)
static struct hlo_value gelu_tanh_slope(struct hlo *h, struct hlo_value x)
{
    const struct hlo_value u = gelu_argument(h, x), s = pjrt_sigmoid(h, u);
    const struct hlo_value rest = pjrt_sigmoid(h, hlo_unary(h, "negate", u));
    const struct hlo_value inner =
        hlo_plus(h, hlo_scaled(h, hlo_multiply(h, x, x), 3 * 0.044715), 1);
    const struct hlo_value product = hlo_multiply(h, hlo_multiply(h, x, s), rest);
    return hlo_add(h, s, hlo_scaled(h, hlo_multiply(h, product, inner), 2 * sqrt(2 / pi)));
}

// t + x (1 - t^2) sigmoid(x), with 1 - t^2 = 4 (n + 1) / (n + 2)^2
static struct hlo_value mish_slope(struct hlo *h, struct hlo_value x)
{
    struct hlo_value n;
    const struct hlo_value t = mish_part(h, x, &n), all = hlo_plus(h, n, 2);
    const struct hlo_value share = hlo_divide(h, hlo_plus(h, n, 1), all);
    const struct hlo_value rest = hlo_divide(h, hlo_scaled(h, share, 4), all);
    return hlo_add(h, t, hlo_multiply(h, hlo_multiply(h, x, rest), pjrt_sigmoid(h, x)));
}

static struct hlo_value hard_silu_slope(struct hlo *h, struct hlo_value x)
{
    const struct hlo_value above = hlo_compare(h, "GT", x, hlo_like(h, x, -3));
    const struct hlo_value below = hlo_compare(h, "LT", x, hlo_like(h, x, 3));
    const struct hlo_value inside = hlo_binary(h, "and", above, below);
    return hlo_add(h, hard_sigmoid(h, x),
                   hlo_select(h, inside, hlo_scaled(h, x, 1.0 / 6), hlo_like(h, x, 0)));
}

static struct hlo_value root_slope(struct hlo *h, const struct ls_op_attributes *a,
                                   struct hlo_value x)
{
    const struct hlo_value root = hlo_unary(h, "sqrt", x);
    const struct hlo_value larger = hlo_compare(h, "GT", root, hlo_like(h, x, (double)a->offset));
    return hlo_select(h, larger, hlo_divide(h, hlo_like(h, x, 0.5), root), hlo_like(h, x, 0));
}

static struct hlo_value slope_of(struct hlo *h, const struct ls_op_attributes *a,
                                 struct hlo_value x)
{
    struct hlo_value s;
    switch (a->function) {
    case LS_GELU: return gelu_slope(h, x);
    case LS_GELU_TANH: return gelu_tanh_slope(h, x);
    case LS_SILU: // s + x s (1 - s)
        s = pjrt_sigmoid(h, x);
        return hlo_add(
            h, s,
            hlo_multiply(h, hlo_multiply(h, x, s), pjrt_sigmoid(h, hlo_unary(h, "negate", x))));
    case LS_HARD_SILU: return hard_silu_slope(h, x);
    case LS_MISH: return mish_slope(h, x);
    case LS_LOG_SIGMOID: return pjrt_sigmoid(h, hlo_unary(h, "negate", x));
    case LS_SQUARE: return hlo_scaled(h, x, 2);
    case LS_SQUARE_ROOT: return root_slope(h, a, x);
    case LS_LOGARITHM: return hlo_divide(h, hlo_like(h, x, 1), x);
    default: return hlo_like(h, x, (double)a->factor);
    }
}

const char *pjrt_function_refusal(const struct ls_kernel_request *request)
{
    return request->attributes.function < LS_FUNCTION_COUNT ? NULL : "a function it does not know";
}

void pjrt_function(struct pjrt_call *call)
{
    call->outputs[0] = function_of(call->h, call->attributes, call->inputs[0]);
}

void pjrt_function_backward(struct pjrt_call *call)
{
    call->outputs[0] = hlo_multiply(call->h, call->inputs[0],
                                    slope_of(call->h, call->attributes, call->inputs[1]));
}

// ---- Softmax ----

void pjrt_softmax_forward(struct pjrt_call *call)
{
    call->outputs[0] = pjrt_softmax(call->h, call->inputs[0]);
}

void pjrt_softmax_backward(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value dy = call->inputs[0], y = call->inputs[1];
    const struct hlo_value inner = over_last(h, "add", hlo_multiply(h, dy, y), 0);
    call->outputs[0] = hlo_multiply(h, y, hlo_subtract(h, dy, inner));
}

// ---- Copies, sums, larger ones ----

void pjrt_identity(struct pjrt_call *call)
{
    call->outputs[0] = call->inputs[0]; // in plain order
}

void pjrt_from_bytes(struct pjrt_call *call)
{
    // In float64: XLA divides by a constant by multiplying with its inverse, which rounds twice.
    const struct hlo_value x = hlo_convert(call->h, call->inputs[0], LS_F64);
    const struct hlo_value y =
        hlo_divide(call->h, x, hlo_like(call->h, x, (double)call->attributes->divisor));
    call->outputs[0] = hlo_convert(call->h, y, LS_F32);
}

void pjrt_add(struct pjrt_call *call)
{
    call->outputs[0] = hlo_add(call->h, call->inputs[0], call->inputs[1]);
}

void pjrt_maximum(struct pjrt_call *call)
{
    call->outputs[0] = hlo_maximum(call->h, call->inputs[0], call->inputs[1]);
}

void pjrt_maximum_backward(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value dy = call->inputs[0], zero = hlo_like(h, dy, 0);
    const struct hlo_value first = hlo_compare(h, "GE", call->inputs[1], call->inputs[2]);
    call->outputs[0] = hlo_select(h, first, dy, zero);
    call->outputs[1] = hlo_select(h, first, zero, dy);
}

// ---- PReLU ----

// alpha in the shape of x: it lacks the dimension of examples.
static struct hlo_value alpha_of(struct hlo *h, struct hlo_value alpha, struct hlo_shape shape)
{
    return hlo_numpy(h, alpha, shape);
}

void pjrt_prelu(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value x = call->inputs[0];
    call->outputs[0] = positive_or(h, x, hlo_multiply(h, alpha_of(h, call->inputs[1], x.shape), x));
}

void pjrt_prelu_backward(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value dy = call->inputs[0], x = call->inputs[1], zero = hlo_like(h, x, 0);
    const struct hlo_value alpha = alpha_of(h, call->inputs[2], x.shape);
    const struct hlo_value below = hlo_compare(h, "LT", x, zero);
    const struct hlo_value inner = hlo_select(h, below, hlo_multiply(h, alpha, dy), zero);
    const struct hlo_value each = hlo_select(h, below, hlo_multiply(h, x, dy), zero);
    uint32_t shared = 1;
    for (uint32_t i = 0; i < call->inputs[2].shape.ndims; i++)
        if (call->inputs[2].shape.dims[i] == 1)
            shared |= UINT32_C(2) << i;
    call->outputs[0] = where_positive(h, x, dy, inner);
    call->outputs[1] = hlo_reduce(h, "add", each, shared, 0);
}
