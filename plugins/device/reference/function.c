// SPDX-License-Identifier: Apache-2.0
// Functions of elements whose derivative needs x (names and definitions as in keras.activations).
#include "plugins/device/reference/reference.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

static double sigmoid(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static double softplus(double x)
{
    return (x < 0 ? 0 : x) + log1p(exp(-fabs(x)));
}

static double hard_sigmoid(double x)
{
    return x < -3 ? 0 : x > 3 ? 1 : (x + 3) / 6;
}

static double gelu_argument(double x)
{
    return sqrt(2 / pi) * (x + 0.044715 * x * x * x);
}

static double function_of(const struct ls_op_attributes *a, double x)
{
    switch (a->function) {
    case LS_GELU: return x * erfc(-x / sqrt(2)) / 2;
    case LS_GELU_TANH: return x * (1 + tanh(gelu_argument(x))) / 2;
    case LS_SILU: return x * sigmoid(x);
    case LS_HARD_SILU: return x * hard_sigmoid(x);
    case LS_MISH: return x * tanh(softplus(x));
    case LS_LOG_SIGMOID: return -softplus(-x);
    case LS_SQUARE: return x * x;
    case LS_SQUARE_ROOT: return sqrt(x) < (double)a->offset ? (double)a->offset : sqrt(x);
    case LS_LOGARITHM: return log(x);
    default: return (double)a->factor * x + (double)a->offset;
    }
}

static double slope_of(const struct ls_op_attributes *a, double x)
{
    switch (a->function) {
    case LS_GELU: return erfc(-x / sqrt(2)) / 2 + x * exp(-x * x / 2) / sqrt(2 * pi);
    case LS_GELU_TANH: {
        const double t = tanh(gelu_argument(x));
        return (1 + t) / 2 + x * (1 - t * t) / 2 * sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x);
    }
    case LS_SILU: return sigmoid(x) + x * sigmoid(x) * sigmoid(-x);
    case LS_HARD_SILU: return hard_sigmoid(x) + (x > -3 && x < 3 ? x / 6 : 0);
    case LS_MISH: {
        const double t = tanh(softplus(x));
        return t + x * (1 - t * t) * sigmoid(x);
    }
    case LS_LOG_SIGMOID: return sigmoid(-x);
    case LS_SQUARE: return 2 * x;
    case LS_SQUARE_ROOT: return sqrt(x) > (double)a->offset ? 1 / (2 * sqrt(x)) : 0;
    case LS_LOGARITHM: return 1 / x;
    default: return (double)a->factor;
    }
}

// x -> y
void reference_function(const struct reference_call *call)
{
    const uint64_t count = ls_tensor_elements(call->output_descs);
    const float *x = call->inputs[0];
    for (uint64_t i = 0; i < count; i++)
        call->results[0][i] = function_of(call->attributes, (double)x[i]);
}

// dy, x -> dx
void reference_function_backward(const struct reference_call *call)
{
    const uint64_t count = ls_tensor_elements(call->output_descs);
    const float *dy = call->inputs[0], *x = call->inputs[1];
    for (uint64_t i = 0; i < count; i++)
        call->results[0][i] = (double)dy[i] * slope_of(call->attributes, (double)x[i]);
}
