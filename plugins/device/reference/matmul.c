// SPDX-License-Identifier: Apache-2.0
// Products of two activations, one for each index of their leading dimensions: y = a b, da = dy
// b^T, db = a^T dy. Products of an activation and a transposed parameter: y = x w^T, dx = dy w, dw
// = dy^T x.
#include "plugins/device/reference/reference.h"

// a: (products,M,K), b: (products,K,N), y: (products,M,N)
struct matmul {
    int64_t products, m, k, n;
};

static struct matmul matmul_of(const struct ls_tensor_desc *a, const struct ls_tensor_desc *b)
{
    const int64_t m = a->dims[a->ndims - 2], k = a->dims[a->ndims - 1];
    return (struct matmul){
        .products = (int64_t)ls_tensor_elements(a) / (m * k),
        .m = m,
        .k = k,
        .n = b->dims[b->ndims - 1],
    };
}

// Calls for each product a[i] b[j] that is part of y[l].
static void each_term(const struct reference_call *call, const struct matmul *d,
                      void (*term)(const struct reference_call *, int64_t, int64_t, int64_t))
{
    for (int64_t p = 0; p < d->products; p++)
        for (int64_t m = 0; m < d->m; m++)
            for (int64_t k = 0; k < d->k; k++)
                for (int64_t n = 0; n < d->n; n++)
                    term(call, (p * d->m + m) * d->k + k, (p * d->k + k) * d->n + n,
                         (p * d->m + m) * d->n + n);
}

static double input(const struct reference_call *call, uint32_t index, int64_t element)
{
    return (double)((const float *)call->inputs[index])[element];
}

static void forward_term(const struct reference_call *call, int64_t a, int64_t b, int64_t y)
{
    call->results[0][y] += input(call, 0, a) * input(call, 1, b);
}

static void left_term(const struct reference_call *call, int64_t a, int64_t b, int64_t y)
{
    call->results[0][a] += input(call, 0, y) * input(call, 1, b);
}

static void right_term(const struct reference_call *call, int64_t a, int64_t b, int64_t y)
{
    call->results[0][b] += input(call, 0, a) * input(call, 1, y);
}

void reference_matmul(const struct reference_call *call) // a, b -> y
{
    const struct matmul d = matmul_of(&call->input_descs[0], &call->input_descs[1]);
    each_term(call, &d, forward_term);
}

void reference_matmul_backward_left(const struct reference_call *call) // dy, b -> da
{
    const struct matmul d = matmul_of(&call->output_descs[0], &call->input_descs[1]);
    each_term(call, &d, left_term);
}

void reference_matmul_backward_right(const struct reference_call *call) // a, dy -> db
{
    const struct matmul d = matmul_of(&call->input_descs[0], &call->output_descs[0]);
    each_term(call, &d, right_term);
}

// ---- x (M,K), w (N,K) -> y (M,N) ----

struct transposed {
    int64_t m, k, n;
};

static struct transposed transposed_of(const struct ls_tensor_desc *x,
                                       const struct ls_tensor_desc *w)
{
    const int64_t k = w->dims[1];
    return (struct transposed){(int64_t)ls_tensor_elements(x) / k, k, w->dims[0]};
}

void reference_dense_transposed(const struct reference_call *call) // x, w -> y
{
    const struct transposed d = transposed_of(&call->input_descs[0], &call->input_descs[1]);
    for (int64_t m = 0; m < d.m; m++)
        for (int64_t n = 0; n < d.n; n++)
            for (int64_t k = 0; k < d.k; k++)
                call->results[0][m * d.n + n] +=
                    input(call, 0, m * d.k + k) * input(call, 1, n * d.k + k);
}

void reference_dense_transposed_backward_data(const struct reference_call *call) // dy, w -> dx
{
    const struct transposed d = transposed_of(&call->output_descs[0], &call->input_descs[1]);
    for (int64_t m = 0; m < d.m; m++)
        for (int64_t n = 0; n < d.n; n++)
            for (int64_t k = 0; k < d.k; k++)
                call->results[0][m * d.k + k] +=
                    input(call, 0, m * d.n + n) * input(call, 1, n * d.k + k);
}

void reference_dense_transposed_backward_weights(const struct reference_call *call) // x, dy -> dw
{
    const struct transposed d = transposed_of(&call->input_descs[0], &call->output_descs[0]);
    for (int64_t m = 0; m < d.m; m++)
        for (int64_t n = 0; n < d.n; n++)
            for (int64_t k = 0; k < d.k; k++)
                call->results[0][n * d.k + k] +=
                    input(call, 1, m * d.n + n) * input(call, 0, m * d.k + k);
}
