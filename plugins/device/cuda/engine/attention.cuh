// SPDX-License-Identifier: Apache-2.0
// What attention does around its products. Heads come together: (B, positions, H, elements) becomes (B, H, positions, elements) in
// float32, and back. Between the products: the softmax of a row of scores, with the keys that a query sees and the elements that are kept, and its
// derivative. Scores and gradients are (matrices, queries, keys), and become what the next products want.
#ifndef LS_DEVICE_CUDA_ATTENTION_CUH
#define LS_DEVICE_CUDA_ATTENTION_CUH

#include "plugins/device/cuda/engine/random_body.h"
#include "plugins/device/cuda/engine/softmax.cuh"

namespace attention {

// ---- Heads ----

// An item is one element, or four, of one of the tensors, in the order of (B, H, positions, elements).
template <int pack>
__device__ void move_heads(const struct cuda_heads *h, int64_t i)
{
    int which = 0;
    while (i >= h->tensors[which].items)
        i -= h->tensors[which++].items;
    const struct cuda_head_tensor &t = h->tensors[which];
    const int64_t line = cuda_quotient(i, t.packs), matrix = cuda_quotient(line, t.positions);
    const int64_t example = cuda_quotient(matrix, h->heads), head = matrix - example * h->heads;
    const int64_t position = line - matrix * t.positions, column = i - line * t.packs;
    const int64_t apart = ((example * t.positions + position) * h->heads + head) * t.packs + column;
    const struct cuda_store store = {t.to, nullptr, h->to_type, 0, 0, 0, t.add};
    const int64_t from = h->together ? apart : i, to = h->together ? i : apart;
    if constexpr (pack == 4)
        cuda_put_four(&store, 4 * to, cuda_load_four(t.from, h->from_type, 4 * from));
    else
        cuda_put(&store, to, cuda_load(t.from, h->from_type, from));
}

// ---- Rows of scores ----

// One query of one head of an example.
struct query {
    int64_t keys; // that it sees
    uint64_t key; // of its draws
    uint32_t element; // of the first draw
};

__device__ inline query query_of(const struct cuda_attention &a, int64_t row)
{
    const int64_t line = cuda_quotient(row, a.queries), t = row - line * a.queries;
    query q = {a.causal && t + 1 < a.keys ? t + 1 : a.keys, 0, 0};
    if (a.rate > 0) {
        const int64_t matrix = a.first + line, example = cuda_quotient(matrix, a.heads);
        q.key = cuda_draw_key(a.record, a.key, example);
        q.element = (uint32_t)(((matrix - example * a.heads) * a.queries + t) * a.keys);
    }
    return q;
}

// What p is multiplied by.
__device__ inline float kept(const struct cuda_attention &a, const query &q, int64_t s)
{
    return a.rate <= 0 ? 1 : cuda_keep(q.key, q.element + (uint32_t)s, a.rate) ? 1 / (1 - a.rate) : 0;
}

// Scores become p, times what is kept of it.
template <unsigned group>
__global__ void __launch_bounds__(threads) forward(const __grid_constant__ struct cuda_attention a)
{
    for (int64_t row = teams::first_row<group>(); row < a.rows; row += teams::row_step<group>()) {
        const query q = query_of(a, row);
        float *scores = a.scores + row * a.keys;
        const softmax::divisor of = softmax::divisor_of<group>(q.keys, [&](int64_t s) { return scores[s]; });
        for (int64_t s = teams::lane<group>(); s < a.keys; s += group)
            scores[s] = s < q.keys ? of.share(scores[s]) * kept(a, q, s) : 0;
    }
}

// Scores become the same, and the gradients of what they became the gradients of scores.
template <unsigned group>
__global__ void __launch_bounds__(threads) backward(const __grid_constant__ struct cuda_attention a)
{
    for (int64_t row = teams::first_row<group>(); row < a.rows; row += teams::row_step<group>()) {
        const query q = query_of(a, row);
        float *scores = a.scores + row * a.keys, *gradients = a.gradients + row * a.keys;
        const softmax::divisor of = softmax::divisor_of<group>(q.keys, [&](int64_t s) { return scores[s]; });
        float sum = 0;
        for (int64_t s = teams::lane<group>(); s < q.keys; s += group)
            sum += of.share(scores[s]) * (kept(a, q, s) * gradients[s]);
        sum = teams::sum_together<group>(sum);
        for (int64_t s = teams::lane<group>(); s < a.keys; s += group) {
            const float p = s < q.keys ? of.share(scores[s]) : 0, keep = s < q.keys ? kept(a, q, s) : 0;
            gradients[s] = s < q.keys ? p * (keep * gradients[s] - sum) : 0;
            scores[s] = p * keep;
        }
    }
}

} // namespace attention

extern "C" unsigned cuda_heads_launch(const struct cuda_heads *h, struct CUstream_st *stream)
{
    int64_t items = 0;
    for (const struct cuda_head_tensor &tensor : h->tensors)
        items += tensor.items;
    return for_pack(h->pack, [&](auto pack) { return start<struct cuda_heads, attention::move_heads<pack>>(h, items, stream); });
}

extern "C" unsigned cuda_attention_launch(const struct cuda_attention *a, struct CUstream_st *stream)
{
    return for_flag(a->keys > CUDA_WARP_ROW, [&](auto wide) {
        constexpr unsigned group = wide ? threads : teams::warp;
        return a->gradients ? teams::start<group, attention::backward<group>>(a, a->rows, stream)
                            : teams::start<group, attention::forward<group>>(a, a->rows, stream);
    });
}

#endif
