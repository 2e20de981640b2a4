// SPDX-License-Identifier: Apache-2.0
// Operations whose output looks like their input: activations, softmax, dropout, copies and sums.
#include "plugins/device/reference/reference.h"

#include <math.h>

// ---- Activations (names and definitions as in keras.activations) ----

double reference_activate(uint32_t activation, double alpha, double x)
{
    switch (activation) {
    case LS_RELU: return x < 0 ? 0 : x; // written so that NaN stays NaN
    case LS_LEAKY_RELU: return x < 0 ? alpha * x : x;
    case LS_ELU: return x < 0 ? alpha * expm1(x) : x;
    case LS_SIGMOID: return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
    case LS_TANH: return tanh(x);
    case LS_SOFTPLUS: return (x < 0 ? 0 : x) + log1p(exp(-fabs(x)));
    case LS_EXPONENTIAL: return exp(x);
    case LS_RELU6: return x < 0 ? 0 : x > 6 ? 6 : x;
    case LS_SOFTSIGN: return x / (1 + fabs(x));
    case LS_SELU: return LS_SELU_SCALE * (x < 0 ? LS_SELU_ALPHA * expm1(x) : x);
    case LS_HARD_SIGMOID: return x < -3 ? 0 : x > 3 ? 1 : (x + 3) / 6;
    default: return x;
    }
}

// dy/dx where y = activate(x). At a kink: the slope of the left side for the ReLU family at 0 and, for
// ReLU6, 0 at 6; as TensorFlow has it.
double reference_activation_slope(uint32_t activation, double alpha, double y)
{
    switch (activation) {
    case LS_RELU: return y > 0 ? 1 : 0;
    case LS_LEAKY_RELU: return y > 0 ? 1 : alpha;
    case LS_ELU: return y > 0 ? 1 : y + alpha; // alpha exp(x) = alpha (exp(x) - 1) + alpha
    case LS_SIGMOID: return y * (1 - y);
    case LS_TANH: return 1 - y * y;
    case LS_SOFTPLUS: return -expm1(-y); // 1 / (1 + exp(-x)) = 1 - exp(-y)
    case LS_EXPONENTIAL: return y;
    case LS_RELU6: return y > 0 && y < 6 ? 1 : 0;
    case LS_SOFTSIGN: return (1 - fabs(y)) * (1 - fabs(y)); // 1 / (1 + |x|) = 1 - |y|
    case LS_SELU: return y > 0 ? LS_SELU_SCALE : y + LS_SELU_SCALE * LS_SELU_ALPHA;
    case LS_HARD_SIGMOID: return y > 0 && y < 1 ? 1.0 / 6 : 0;
    default: return 1;
    }
}

// x -> y
void reference_activation(const struct reference_call *call)
{
    const uint64_t count = ls_tensor_elements(call->output_descs);
    const float *x = call->inputs[0];

    for (uint64_t i = 0; i < count; i++)
        call->results[0][i] = reference_activate(
            call->attributes->activation, (double)call->attributes->activation_alpha, (double)x[i]);
}

// dy, y -> dx
void reference_activation_backward(const struct reference_call *call)
{
    const uint64_t count = ls_tensor_elements(call->output_descs);
    const float *dy = call->inputs[0], *y = call->inputs[1];

    for (uint64_t i = 0; i < count; i++)
        call->results[0][i] =
            (double)dy[i] * reference_activation_slope(call->attributes->activation,
                                                       (double)call->attributes->activation_alpha,
                                                       (double)y[i]);
}

// ---- Softmax over the last dimension ----

// x -> y: y_i = exp(x_i) / sum of exp(x_j), with the largest x subtracted first so that none overflows
void reference_softmax(const struct reference_call *call)
{
    const struct ls_tensor_desc *desc = call->output_descs;
    const int64_t classes = desc->dims[desc->ndims - 1];
    const int64_t rows = (int64_t)ls_tensor_elements(desc) / classes;

    for (int64_t row = 0; row < rows; row++) {
        const float *x = (const float *)call->inputs[0] + row * classes;
        double *y = call->results[0] + row * classes;
        double largest = (double)x[0], sum = 0;
        for (int64_t i = 1; i < classes; i++)
            largest = fmax(largest, (double)x[i]);
        for (int64_t i = 0; i < classes; i++)
            sum += y[i] = exp((double)x[i] - largest);
        for (int64_t i = 0; i < classes; i++)
            y[i] /= sum;
    }
}

// dy, y -> dx: dx_i = y_i (dy_i - sum of dy_j y_j)
void reference_softmax_backward(const struct reference_call *call)
{
    const struct ls_tensor_desc *desc = call->output_descs;
    const int64_t classes = desc->dims[desc->ndims - 1];
    const int64_t rows = (int64_t)ls_tensor_elements(desc) / classes;

    for (int64_t row = 0; row < rows; row++) {
        const float *dy = (const float *)call->inputs[0] + row * classes;
        const float *y = (const float *)call->inputs[1] + row * classes;
        double inner = 0;
        for (int64_t i = 0; i < classes; i++)
            inner += (double)dy[i] * (double)y[i];
        for (int64_t i = 0; i < classes; i++)
            call->results[0][row * classes + i] = (double)y[i] * ((double)dy[i] - inner);
    }
}

// ---- Dropout: x -> y ----

// Element `element` of an example with the dimensions along which draws are shared left out.
static uint64_t drawn_element(const struct reference_call *call, uint64_t element)
{
    const struct ls_tensor_desc *desc = call->output_descs;
    uint64_t at = 0, stride = 1;
    for (uint32_t i = desc->ndims; i > 1; i--) {
        const uint64_t size = (uint64_t)desc->dims[i - 1];
        if (!call->attributes->axes[i - 1]) {
            at += element % size * stride;
            stride *= size;
        }
        element /= size;
    }
    return at;
}

void reference_dropout(const struct reference_call *call)
{
    const struct ls_tensor_desc *desc = call->output_descs;
    const uint64_t examples = (uint64_t)desc->dims[0];
    const uint64_t elements = ls_tensor_elements(desc) / examples;
    const float rate = call->attributes->rate;
    const float *x = call->inputs[0];

    for (uint64_t example = 0; example < examples; example++) {
        const uint64_t key = ls_dropout_key(call->record, call->attributes->key, example);
        for (uint64_t element = 0; element < elements; element++) {
            const uint64_t i = example * elements + element;
            if (ls_dropout_keep(key, (uint32_t)drawn_element(call, element), rate))
                call->results[0][i] = (double)x[i] / (1 - (double)rate);
        }
    }
}

// x -> y: x plus normal noise
void reference_noise(const struct reference_call *call)
{
    const struct ls_tensor_desc *desc = call->output_descs;
    const uint64_t examples = (uint64_t)desc->dims[0];
    const uint64_t elements = ls_tensor_elements(desc) / examples;
    const double tau = 6.283185307179586476925;
    const float *x = call->inputs[0];

    for (uint64_t i = 0; i < examples * elements; i++) {
        const uint64_t key = ls_dropout_key(call->record, call->attributes->key, i / elements);
        const uint64_t bits = ls_noise_bits(key, i % elements);
        const double u = ((double)(bits >> 32) + 1) * 0x1p-32;
        const double v = (double)(bits & UINT32_MAX) * 0x1p-32;
        call->results[0][i] =
            (double)x[i] + (double)call->attributes->rate * sqrt(-2 * log(u)) * cos(tau * v);
    }
}

// ---- Copies and sums ----

// x -> y, in plain order; there is only one layout, so reshape and convert are the same
void reference_copy(const struct reference_call *call)
{
    const uint64_t count = ls_tensor_elements(call->output_descs);
    for (uint64_t i = 0; i < count; i++)
        call->results[0][i] = (double)((const float *)call->inputs[0])[i];
}

// x (bytes) -> y
void reference_from_bytes(const struct reference_call *call)
{
    const uint64_t count = ls_tensor_elements(call->output_descs);
    for (uint64_t i = 0; i < count; i++)
        call->results[0][i] =
            (double)((const uint8_t *)call->inputs[0])[i] / (double)call->attributes->divisor;
}

// a, b -> y
void reference_add(const struct reference_call *call)
{
    const uint64_t count = ls_tensor_elements(call->output_descs);
    for (uint64_t i = 0; i < count; i++)
        call->results[0][i] = (double)((const float *)call->inputs[0])[i] +
                              (double)((const float *)call->inputs[1])[i];
}

// a, b -> y
void reference_maximum(const struct reference_call *call)
{
    const uint64_t count = ls_tensor_elements(call->output_descs);
    const float *a = call->inputs[0], *b = call->inputs[1];
    for (uint64_t i = 0; i < count; i++)
        call->results[0][i] = (double)(a[i] >= b[i] || isnan(a[i]) ? a[i] : b[i]);
}

// dy, a, b -> da, db
void reference_maximum_backward(const struct reference_call *call)
{
    const uint64_t count = ls_tensor_elements(call->output_descs);
    const float *dy = call->inputs[0], *a = call->inputs[1], *b = call->inputs[2];
    for (uint64_t i = 0; i < count; i++)
        call->results[a[i] >= b[i] ? 0 : 1][i] = (double)dy[i];
}
