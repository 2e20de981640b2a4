// SPDX-License-Identifier: Apache-2.0
// The dense layer and its two backward operations: y = x w + b with x seen as (M,K), w (K,N), y (M,N);
// hence dx = dy w^T, dw = x^T dy, db = the sum of dy over M.
#include "plugins/device/reference/reference.h"

struct dense {
    int64_t m, k, n;
};

static struct dense dense_of(const struct ls_tensor_desc *w, const struct ls_tensor_desc *y)
{
    const int64_t n = w->dims[w->ndims - 1];
    return (struct dense){
        .m = (int64_t)ls_tensor_elements(y) / n,
        .k = (int64_t)ls_tensor_elements(w) / n,
        .n = n,
    };
}

// ---- Forward: x, w, [b] -> y ----

void reference_dense(const struct reference_call *call)
{
    const struct dense d = dense_of(&call->input_descs[1], call->output_descs);
    const float *x = call->inputs[0], *w = call->inputs[1];
    const float *bias = call->input_count == 3 ? call->inputs[2] : NULL;

    for (int64_t m = 0; m < d.m; m++) {
        double *y = call->results[0] + m * d.n;
        for (int64_t n = 0; bias && n < d.n; n++)
            y[n] = (double)bias[n];
        for (int64_t k = 0; k < d.k; k++)
            for (int64_t n = 0; n < d.n; n++)
                y[n] += (double)x[m * d.k + k] * (double)w[k * d.n + n];
    }
}

// ---- Backward to the data: dy, w -> dx ----

void reference_dense_backward_data(const struct reference_call *call)
{
    const struct dense d = dense_of(&call->input_descs[1], &call->input_descs[0]);
    const float *dy = call->inputs[0], *w = call->inputs[1];

    for (int64_t m = 0; m < d.m; m++)
        for (int64_t k = 0; k < d.k; k++)
            for (int64_t n = 0; n < d.n; n++)
                call->results[0][m * d.k + k] += (double)dy[m * d.n + n] * (double)w[k * d.n + n];
}

// ---- Backward to the weights: x, dy -> dw, [db] ----

void reference_dense_backward_weights(const struct reference_call *call)
{
    const struct dense d = dense_of(&call->output_descs[0], &call->input_descs[1]);
    const float *x = call->inputs[0], *dy = call->inputs[1];

    for (int64_t m = 0; m < d.m; m++)
        for (int64_t k = 0; k < d.k; k++)
            for (int64_t n = 0; n < d.n; n++)
                call->results[0][k * d.n + n] += (double)x[m * d.k + k] * (double)dy[m * d.n + n];

    if (call->output_count == 2)
        for (int64_t m = 0; m < d.m; m++)
            for (int64_t n = 0; n < d.n; n++)
                call->results[1][n] += (double)dy[m * d.n + n];
}
