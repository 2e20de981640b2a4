// SPDX-License-Identifier: Apache-2.0
// What attention does between its products: the softmax of a row of scores, with the keys that a query sees and the elements that are
// kept, and its derivative. Scores and gradients are (matrices, queries, keys), and become what the next products want.
#ifndef LS_DEVICE_CUDA_ATTENTION_CUH
#define LS_DEVICE_CUDA_ATTENTION_CUH

#include "plugins/device/cuda/engine/random_body.h"
#include "plugins/device/cuda/engine/softmax.cuh"

namespace attention {

// One query of one head of an example.
struct query {
    int64_t keys; // that it sees
    uint64_t key; // of its draws
    uint32_t element; // of the first draw
};

__device__ inline query query_of(const struct cuda_attention &a, int64_t row)
{
    const int64_t matrix = cuda_quotient(row, a.queries), t = row - matrix * a.queries;
    const int64_t example = a.over_heads ? matrix : a.outer, head = a.over_heads ? a.outer : matrix;
    query q = {a.causal && t + 1 < a.keys ? t + 1 : a.keys, 0, 0};
    if (a.rate > 0) {
        q.key = cuda_draw_key(a.record, a.key, example);
        q.element = (uint32_t)((head * a.queries + t) * a.keys);
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

inline unsigned load()
{
    unsigned error = load_kernel(forward<teams::warp>);
    error = error ? error : load_kernel(forward<threads>);
    error = error ? error : load_kernel(backward<teams::warp>);
    return error ? error : load_kernel(backward<threads>);
}

} // namespace attention

extern "C" unsigned cuda_attention_launch(const struct cuda_attention *a, struct CUstream_st *stream)
{
    using namespace attention;
    if (a->keys > CUDA_WARP_ROW)
        return teams::start<threads>(a->gradients ? backward<threads> : forward<threads>, a, a->rows, stream);
    return teams::start<teams::warp>(a->gradients ? backward<teams::warp> : forward<teams::warp>, a, a->rows, stream);
}

#endif
