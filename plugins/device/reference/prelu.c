// SPDX-License-Identifier: Apache-2.0
// PReLU: a slope for negative x that is trained, and shared along the dimensions of alpha that are
// 1.
#include "plugins/device/reference/reference.h"

// The element of alpha for element `i` of x.
static int64_t alpha_of(const struct ls_tensor_desc *x, const struct ls_tensor_desc *alpha,
                        int64_t i)
{
    int64_t index = 0, stride = 1;
    for (uint32_t d = alpha->ndims; d > 0; d--) {
        const int64_t at = i % x->dims[d];
        i /= x->dims[d];
        if (alpha->dims[d - 1] > 1)
            index += at * stride;
        stride *= alpha->dims[d - 1];
    }
    return index;
}

// x, alpha -> y
void reference_prelu(const struct reference_call *call)
{
    const struct ls_tensor_desc *desc = &call->input_descs[0];
    const float *x = call->inputs[0], *alpha = call->inputs[1];

    for (int64_t i = 0; i < (int64_t)ls_tensor_elements(desc); i++)
        call->results[0][i] =
            x[i] > 0 ? (double)x[i]
                     : (double)alpha[alpha_of(desc, &call->input_descs[1], i)] * (double)x[i];
}

// dy, x, alpha -> dx, dalpha
void reference_prelu_backward(const struct reference_call *call)
{
    const struct ls_tensor_desc *desc = &call->input_descs[1];
    const float *dy = call->inputs[0], *x = call->inputs[1], *alpha = call->inputs[2];

    for (int64_t i = 0; i < (int64_t)ls_tensor_elements(desc); i++) {
        const int64_t at = alpha_of(desc, &call->input_descs[2], i);
        if (x[i] > 0) {
            call->results[0][i] = (double)dy[i];
        } else if (x[i] < 0) {
            call->results[0][i] = (double)alpha[at] * (double)dy[i];
            call->results[1][at] += (double)x[i] * (double)dy[i];
        }
    }
}
