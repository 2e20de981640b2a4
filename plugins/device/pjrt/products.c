// SPDX-License-Identifier: Apache-2.0
// Dense layers, products of matrices, and attention.
#include "plugins/device/pjrt/operations.h"

#include <math.h>

// ---- Dense: x seen as (M,K), w (K,N), y seen as (M,N) ----

static struct hlo_value matrix(struct hlo *h, struct hlo_value x, int64_t columns)
{
    return hlo_reshape(h, x, HLO_SHAPE(hlo_elements(&x.shape) / columns, columns));
}

void pjrt_dense(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value w = call->inputs[1];
    struct hlo_value y = hlo_dot(h, matrix(h, call->inputs[0], w.shape.dims[0]), w, 0, 1, 0);
    if (call->input_count == 3)
        y = hlo_add(h, y, hlo_along(h, call->inputs[2], y.shape));
    call->outputs[0] = y;
}

// dy, w -> dx
void pjrt_dense_backward_data(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value w = call->inputs[1];
    call->outputs[0] = hlo_dot(h, matrix(h, call->inputs[0], w.shape.dims[1]), w, 0, 1, 1);
}

// x, dy -> dw, [db]
void pjrt_dense_backward_weights(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_shape dw = pjrt_output_shape(call, 0);
    const struct hlo_value x = matrix(h, call->inputs[0], dw.dims[0]);
    const struct hlo_value dy = matrix(h, call->inputs[1], dw.dims[1]);
    call->outputs[0] = hlo_dot(h, x, dy, 0, 0, 0);
    if (call->output_count == 2)
        call->outputs[1] = hlo_reduce(h, "add", dy, 1, 0);
}

// ---- A product for each index of the leading dimensions ----

void pjrt_matmul(struct pjrt_call *call)
{
    const uint32_t n = call->inputs[0].shape.ndims;
    call->outputs[0] = hlo_dot(call->h, call->inputs[0], call->inputs[1], n - 2, n - 1, n - 2);
}

// dy (M,N), b (K,N) -> da
void pjrt_matmul_backward_left(struct pjrt_call *call)
{
    const uint32_t n = call->inputs[0].shape.ndims;
    call->outputs[0] = hlo_dot(call->h, call->inputs[0], call->inputs[1], n - 2, n - 1, n - 1);
}

// a (M,K), dy (M,N) -> db
void pjrt_matmul_backward_right(struct pjrt_call *call)
{
    const uint32_t n = call->inputs[0].shape.ndims;
    call->outputs[0] = hlo_dot(call->h, call->inputs[0], call->inputs[1], n - 2, n - 2, n - 2);
}

// ---- Attention ----

// (B,T,H,D) <-> (B,H,T,D)
static struct hlo_value by_head(struct hlo *h, struct hlo_value x)
{
    static const int64_t order[4] = {0, 2, 1, 3};
    return hlo_transpose(h, x, order);
}

// softmax(q k^T / sqrt(D)) over the keys that a query sees: (B,H,T,S)
static struct hlo_value probabilities(struct pjrt_call *call, struct hlo_value q,
                                      struct hlo_value k)
{
    struct hlo *h = call->h;
    const double depth = (double)q.shape.dims[3];
    struct hlo_value scores = hlo_scaled(h, hlo_dot(h, q, k, 2, 3, 3), 1 / sqrt(depth));
    if (call->attributes->causal) {
        const struct hlo_value t = hlo_iota(h, LS_I32, scores.shape, 2);
        const struct hlo_value s = hlo_iota(h, LS_I32, scores.shape, 3);
        scores = hlo_select(h, hlo_compare(h, "LE", s, t), scores,
                            hlo_like(h, scores, (double)-INFINITY));
    }
    return pjrt_softmax(h, scores);
}

// What dropout multiplies probabilities by; none: nothing is dropped.
static struct hlo_value kept_of(struct pjrt_call *call, struct hlo_shape shape)
{
    const int64_t each = shape.dims[1] * shape.dims[2] * shape.dims[3];
    if (call->attributes->rate <= 0)
        return (struct hlo_value){0};
    const struct hlo_value flat = hlo_iota(call->h, HLO_U32, HLO_SHAPE(shape.dims[0], each), 1);
    return pjrt_kept(call, hlo_reshape(call->h, flat, shape));
}

static struct hlo_value times(struct hlo *h, struct hlo_value a, struct hlo_value kept)
{
    return kept.id ? hlo_multiply(h, a, kept) : a;
}

// q, k, v -> y
void pjrt_attention(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value p =
        probabilities(call, by_head(h, call->inputs[0]), by_head(h, call->inputs[1]));
    const struct hlo_value dropped = times(h, p, kept_of(call, p.shape));
    call->outputs[0] = by_head(h, hlo_dot(h, dropped, by_head(h, call->inputs[2]), 2, 3, 2));
}

// dy, q, k, v -> dq, dk, dv: with p again, dp = dy v^T kept, ds = p (dp - sum of p dp) / sqrt(D)
void pjrt_attention_backward(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value dy = by_head(h, call->inputs[0]), q = by_head(h, call->inputs[1]);
    const struct hlo_value k = by_head(h, call->inputs[2]), v = by_head(h, call->inputs[3]);
    const struct hlo_value p = probabilities(call, q, k), kept = kept_of(call, p.shape);
    const struct hlo_value dp = times(h, hlo_dot(h, dy, v, 2, 3, 3), kept);
    const struct hlo_value mean = hlo_reduce_kept(h, "add", hlo_multiply(h, p, dp), 1 << 3, 0);
    const struct hlo_value distance = hlo_subtract(h, dp, hlo_numpy(h, mean, p.shape));
    const struct hlo_value ds =
        hlo_scaled(h, hlo_multiply(h, p, distance), 1 / sqrt((double)q.shape.dims[3]));
    call->outputs[0] = by_head(h, hlo_dot(h, ds, k, 2, 3, 2));
    call->outputs[1] = by_head(h, hlo_dot(h, ds, q, 2, 2, 2));
    call->outputs[2] = by_head(h, hlo_dot(h, times(h, p, kept), dy, 2, 2, 2));
}
