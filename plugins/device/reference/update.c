// SPDX-License-Identifier: Apache-2.0
// Operations over flat ranges: the optimizers' updates, and the measure of a gradient.
#include "plugins/device/reference/reference.h"

#include <math.h>

// gradient -> parameter, [velocity]. As keras.optimizers.SGD: v = m v - lr g; w += v, or with Nesterov
// w += m v - lr g; without momentum w -= lr g.
void reference_sgd_update(const struct reference_call *call)
{
    const struct ls_op_attributes *a = call->attributes;
    const uint64_t count = ls_tensor_elements(&call->input_descs[0]);
    const double rate = (double)call->record->learning_rate, momentum = (double)a->momentum;
    const float *gradient = call->inputs[0];
    float *parameter = call->outputs[0];
    float *velocity = call->output_count == 2 ? call->outputs[1] : NULL;

    if (call->record->skip)
        return;
    for (uint64_t i = 0; i < count; i++) {
        const double step = -rate * (double)gradient[i];
        if (!velocity) {
            parameter[i] = (float)((double)parameter[i] + step);
            continue;
        }
        const double v = momentum * (double)velocity[i] + step;
        parameter[i] = (float)((double)parameter[i] + (a->nesterov ? momentum * v + step : v));
        velocity[i] = (float)v;
    }
}

// gradient -> parameter, first moment, second moment. As keras.optimizers.Adam, whose epsilon is added
// outside of the bias correction (Kingma and Ba 2014, section 2, last paragraph).
void reference_adam_update(const struct reference_call *call)
{
    const struct ls_op_attributes *a = call->attributes;
    const uint64_t count = ls_tensor_elements(&call->input_descs[0]);
    const double beta1 = (double)a->beta1, beta2 = (double)a->beta2;
    const double t = (double)call->record->update;
    const double alpha =
        (double)call->record->learning_rate * sqrt(1 - pow(beta2, t)) / (1 - pow(beta1, t));
    const float *gradient = call->inputs[0];
    float *parameter = call->outputs[0], *first = call->outputs[1], *second = call->outputs[2];

    if (call->record->skip)
        return;
    for (uint64_t i = 0; i < count; i++) {
        const double g = (double)gradient[i];
        const double m = (double)first[i] + (g - (double)first[i]) * (1 - beta1);
        const double v = (double)second[i] + (g * g - (double)second[i]) * (1 - beta2);
        parameter[i] = (float)((double)parameter[i] - m * alpha / (sqrt(v) + (double)a->epsilon));
        first[i] = (float)m;
        second[i] = (float)v;
    }
}

// gradient -> parameter: w = m w + (1 - m) g
void reference_average_update(const struct reference_call *call)
{
    const uint64_t count = ls_tensor_elements(&call->input_descs[0]);
    const double momentum = (double)call->attributes->momentum;
    const float *gradient = call->inputs[0];
    float *parameter = call->outputs[0];

    if (call->record->skip)
        return;
    for (uint64_t i = 0; i < count; i++)
        parameter[i] =
            (float)(momentum * (double)parameter[i] + (1 - momentum) * (double)gradient[i]);
}

// values -> F64 x 2: sum of squares of the finite elements, number of the others
void reference_measure(const struct reference_call *call)
{
    const uint64_t count = ls_tensor_elements(&call->input_descs[0]);
    const float *values = call->inputs[0];
    double sum = 0, others = 0;

    for (uint64_t i = 0; i < count; i++) {
        if (isfinite(values[i]))
            sum += (double)values[i] * (double)values[i];
        else
            others++;
    }
    double *out = call->outputs[0];
    out[0] = sum;
    out[1] = others;
}

// values -> flag, skip: 1 where a value is not finite or flag was 1, else as they were
void reference_guard(const struct reference_call *call)
{
    const uint64_t count = ls_tensor_elements(&call->input_descs[0]);
    const float *values = call->inputs[0];
    for (uint64_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            *(int32_t *)call->outputs[0] = 1;
    if (*(const int32_t *)call->outputs[0])
        *(int32_t *)call->outputs[1] = 1;
}
