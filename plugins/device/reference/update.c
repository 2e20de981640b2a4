// SPDX-License-Identifier: Apache-2.0
// Operations over flat ranges: moving averages, and what is measured of a gradient.
#include "plugins/device/reference/reference.h"

#include <math.h>

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
