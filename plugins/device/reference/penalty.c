// SPDX-License-Identifier: Apache-2.0
// What a regularized variable adds to the loss of each example, and its gradient.
#include "plugins/device/reference/reference.h"

#include <math.h>

// x, w -> sums
void reference_penalty(const struct reference_call *call)
{
    const float *w = call->inputs[1];
    const double l1 = (double)call->attributes->l1, l2 = (double)call->attributes->l2;
    double sum = 0;

    for (uint64_t i = 0; i < ls_tensor_elements(&call->input_descs[1]); i++)
        sum += l1 * fabs((double)w[i]) + l2 * (double)w[i] * (double)w[i];
    call->results[0][0] = (double)call->input_descs[0].dims[0] * sum;
}

// x, w -> dw
void reference_penalty_backward(const struct reference_call *call)
{
    const float *w = call->inputs[1];
    const double l1 = (double)call->attributes->l1, l2 = (double)call->attributes->l2;
    const double scale =
        (double)call->input_descs[0].dims[0] * (double)call->record->gradient_scale;

    for (uint64_t i = 0; i < ls_tensor_elements(&call->input_descs[1]); i++) {
        const double sign = w[i] > 0 ? 1 : w[i] < 0 ? -1 : 0;
        call->results[0][i] = scale * (l1 * sign + 2 * l2 * (double)w[i]);
    }
}
