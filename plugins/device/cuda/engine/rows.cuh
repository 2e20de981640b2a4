// SPDX-License-Identifier: Apache-2.0
// Softmax and cross-entropy: threads side by side have a row, as many as a power of two up to a warp, or a block where rows are
// long. And sums of pairs by one block. All orders of adding follow from the shape.
#ifndef LS_DEVICE_CUDA_ROWS_CUH
#define LS_DEVICE_CUDA_ROWS_CUH

#include "plugins/device/cuda/engine/bodies.h"
#include "plugins/device/cuda/engine/pairs.cuh"

// Threads for a row: a block where a warp would ask for elements of it too often. And blocks for all rows.
inline int32_t cuda_row_across(int64_t columns)
{
    int32_t across = columns > 256 ? CUDA_BLOCK : 1;
    while (across < columns && across < 32)
        across *= 2;
    return across;
}

inline dim3 cuda_row_blocks(int64_t rows, int32_t across)
{
    return dim3((unsigned)((rows * across + CUDA_BLOCK - 1) / CUDA_BLOCK));
}

struct cuda_row {
    int64_t index, start;
    int32_t thread, across; // of the threads of this row
    bool inside; // else it is the last row again, and nothing is written
};

template <bool block>
__device__ inline cuda_row cuda_row_of(int64_t rows, int64_t columns, int32_t across)
{
    const int32_t thread = (int32_t)threadIdx.x;
    cuda_row row;
    row.across = block ? CUDA_BLOCK : across;
    row.thread = block ? thread : thread & (across - 1);
    row.index = block ? blockIdx.x : ((int64_t)blockIdx.x * CUDA_BLOCK + thread) / across;
    row.inside = row.index < rows;
    row.index = row.inside ? row.index : rows - 1;
    row.start = row.index * columns;
    return row;
}

// Elements k, k + across, ... of the row; k again for what is behind its end.
template <int ahead>
__device__ inline void cuda_row_load(const cuda_row &row, const void *values, uint32_t type,
                                     int64_t k, int64_t columns, float (&out)[ahead])
{
    for (int e = 0; e < ahead; e++) {
        const int64_t at = k + e * row.across;
        out[e] = cuda_load(values, type, row.start + (at < columns ? at : k));
    }
}

// each(column, element) for what this thread has of the row, `ahead` of which it asks for before it waits.
template <int ahead, typename function>
__device__ inline void cuda_row_each(const cuda_row &row, const cuda_arguments &a, function each)
{
    for (int64_t k = row.thread; k < a.columns; k += ahead * row.across) {
        float x[ahead];
        cuda_row_load(row, a.a, a.a_type, k, a.columns, x);
        for (int e = 0; e < ahead; e++)
            if (k + e * row.across < a.columns)
                each(k + e * row.across, x[e]);
    }
}

// each(column, element of a, or 0 where that is not read, element of b)
template <int ahead, typename function>
__device__ inline void cuda_row_each_two(const cuda_row &row, const cuda_arguments &a, bool first,
                                         function each)
{
    for (int64_t k = row.thread; k < a.columns; k += ahead * row.across) {
        float x[ahead] = {0}, y[ahead];
        cuda_row_load(row, a.b, a.b_type, k, a.columns, y);
        if (first)
            cuda_row_load(row, a.a, a.a_type, k, a.columns, x);
        for (int e = 0; e < ahead; e++)
            if (k + e * row.across < a.columns)
                each(k + e * row.across, x[e], y[e]);
    }
}

// ---- What the threads of a row have, joined: each of them gets it ----

struct cuda_best {
    float value;
    int64_t column;
};

__device__ inline float cuda_of_lane(float value, int32_t step)
{
    return __shfl_xor_sync(0xffffffff, value, step);
}

__device__ inline cuda_best cuda_of_lane(cuda_best best, int32_t step)
{
    return {__shfl_xor_sync(0xffffffff, best.value, step),
            __shfl_xor_sync(0xffffffff, best.column, step)};
}

template <bool block, typename type, typename function>
__device__ inline type cuda_row_join(const cuda_row &row, type value, function join)
{
    for (int32_t step = (block ? 32 : row.across) / 2; step > 0; step /= 2)
        value = join(value, cuda_of_lane(value, step));
    if constexpr (block) {
        __shared__ type warps[CUDA_BLOCK / 32];
        __syncthreads(); // what was joined before has been read
        if (threadIdx.x % 32 == 0)
            warps[threadIdx.x / 32] = value;
        __syncthreads();
        value = warps[0];
        for (int w = 1; w < CUDA_BLOCK / 32; w++)
            value = join(value, warps[w]);
    }
    return value;
}

template <bool block> __device__ inline float cuda_row_sum(const cuda_row &row, float value)
{
    return cuda_row_join<block>(row, value, [](float a, float b) { return a + b; });
}

template <bool block> __device__ inline float cuda_row_largest(const cuda_row &row, float value)
{
    return cuda_row_join<block>(row, value, [](float a, float b) { return fmaxf(a, b); });
}

template <bool block>
__device__ inline cuda_best cuda_row_first_largest(const cuda_row &row, cuda_best best)
{
    return cuda_row_join<block>(row, best, [](cuda_best one, cuda_best other) {
        const bool same = !(one.value > other.value) && other.column < one.column;
        return other.value > one.value || same ? other : one;
    });
}

// ---- Operations ----

template <bool block> __device__ void cuda_row_softmax(const cuda_arguments &a, const cuda_row &row)
{
    float largest = -INFINITY, sum = 0;
    cuda_row_each<4>(row, a, [&](int64_t, float x) { largest = fmaxf(largest, x); });
    largest = cuda_row_largest<block>(row, largest);
    cuda_row_each<4>(row, a, [&](int64_t, float x) { sum += expf(x - largest); });
    sum = cuda_row_sum<block>(row, sum);
    cuda_row_each<1>(row, a, [&](int64_t k, float x) {
        if (row.inside)
            cuda_put(&a.store, row.start + k, expf(x - largest) / sum);
    });
}

template <bool block> // a: dy, b: y
__device__ void cuda_row_softmax_backward(const cuda_arguments &a, const cuda_row &row)
{
    float inner = 0;
    cuda_row_each_two<4>(row, a, true, [&](int64_t, float dy, float y) { inner += dy * y; });
    inner = cuda_row_sum<block>(row, inner);
    cuda_row_each_two<1>(row, a, true, [&](int64_t k, float dy, float y) {
        if (row.inside)
            cuda_put(&a.store, row.start + k, y * (dy - inner));
    });
}

// a: predictions; first: probabilities, NULL where nobody needs them. A NaN is the largest only where it is first.
template <bool block>
__device__ void cuda_row_cross_entropy(const cuda_arguments &a, const cuda_row &row)
{
    const int32_t label = a.labels[row.index];
    float largest = -INFINITY, sum = 0;
    cuda_best best = {-INFINITY, INT64_MAX};
    cuda_row_each<4>(row, a, [&](int64_t k, float x) {
        largest = fmaxf(largest, x);
        if (k == 0 || x > best.value)
            best = {x, k};
    });
    largest = cuda_row_largest<block>(row, largest);
    best = cuda_row_first_largest<block>(row, best);
    cuda_row_each<4>(row, a, [&](int64_t, float x) { sum += cuda_weight(&a, x, largest); });
    sum = cuda_row_sum<block>(row, sum);
    if (a.first && row.inside)
        cuda_row_each<4>(row, a, [&](int64_t k, float x) {
            a.first[row.start + k] = cuda_weight(&a, x, largest) / sum;
        });
    if (row.thread || !row.inside)
        return;
    float loss = NAN;
    if (label >= 0 && label < a.columns) {
        const float p = cuda_a(&a, row.start + label);
        loss =
            a.from_logits ? logf(sum) - (p - largest) : logf(sum) - logf(cuda_clip(p, a.epsilon));
    }
    a.sums[2 * row.index] = (double)loss;
    a.sums[2 * row.index + 1] = best.column == label;
}

// a: predictions, b: probabilities
template <int ahead>
__device__ void cuda_row_cross_entropy_backward(const cuda_arguments &a, const cuda_row &row)
{
    const int32_t label = a.labels[row.index];
    const bool known = label >= 0 && label < a.columns;
    const float scale = a.record->gradient_scale / (float)a.positions;
    cuda_store store = a.store;
    store.epilogue = 0; // known
    if (!row.inside)
        return;
    cuda_row_each_two<ahead>(row, a, !a.from_logits, [&](int64_t k, float x, float p) {
        float gradient = known ? p - (k == label ? 1.0f : 0.0f) : NAN;
        if (!a.from_logits)
            gradient = cuda_clip(x, a.epsilon) == x ? gradient / x : 0;
        cuda_put(&store, row.start + k, gradient * scale);
    });
}

// ---- Pairs: `count` of them by one block ----

// loss, right, examples, 0
__device__ inline void cuda_loss_sums(const cuda_arguments &a)
{
    const double2 sum = cuda_sum_of_pairs(a.pairs, a.count);
    if (threadIdx.x)
        return;
    float *out = (float *)a.store.out;
    out[0] = (float)(sum.x / (double)a.positions);
    out[1] = (float)(sum.y / (double)a.positions);
    out[2] = (float)a.examples;
    out[3] = 0;
}

// right, of how many
__device__ inline void cuda_metric_sums(const cuda_arguments &a)
{
    const double2 sum = cuda_sum_of_pairs(a.pairs, a.count);
    if (threadIdx.x)
        return;
    ((float *)a.store.out)[0] = (float)sum.x;
    ((float *)a.store.out)[1] = (float)sum.y;
}

// alpha: l1, factor: l2
__device__ inline void cuda_penalty_sums(const cuda_arguments &a)
{
    const double2 sum = cuda_sum_of_pairs(a.pairs, a.count);
    const double loss = (double)a.alpha * sum.x + (double)a.factor * sum.y;
    for (int64_t k = 0; threadIdx.x == 0 && k < 4; k++)
        cuda_put(&a.store, k, k ? 0 : (float)((double)a.examples * loss));
}

__device__ inline void cuda_measure_sums(const cuda_arguments &a)
{
    const double2 sum = cuda_sum_of_pairs(a.pairs, a.count);
    if (threadIdx.x)
        return;
    a.sums[0] = sum.x;
    a.sums[1] = sum.y;
}

// ---- Launches ----

template <uint32_t kernel, bool block, bool floats>
__global__ void __launch_bounds__(CUDA_BLOCK)
    cuda_run_rows(const __grid_constant__ struct cuda_arguments arguments, int64_t rows, int32_t across)
{
    struct cuda_arguments a = arguments;
    if (floats)
        a.a_type = a.b_type = a.store.type = CUDA_FLOAT;
    const cuda_row row = cuda_row_of<block>(rows, a.columns, across);
    if constexpr (kernel == cuda_kernel_softmax)
        cuda_row_softmax<block>(a, row);
    else if constexpr (kernel == cuda_kernel_softmax_backward)
        cuda_row_softmax_backward<block>(a, row);
    else if constexpr (kernel == cuda_kernel_cross_entropy)
        cuda_row_cross_entropy<block>(a, row);
    else
        cuda_row_cross_entropy_backward<floats ? 4 : 2>(a, row); // more would not fit into registers
}

template <uint32_t kernel> unsigned cuda_start_rows(const cuda_arguments *a, int64_t rows, cudaStream_t stream)
{
    const int32_t across = cuda_row_across(a->columns);
    return for_flag(across == CUDA_BLOCK, [&](auto block) {
        return for_flag(!(a->a_type | a->b_type | a->store.type), [&](auto floats) {
            return launch<cuda_run_rows<kernel, block, floats>>(cuda_row_blocks(rows, across), CUDA_BLOCK, stream, *a, rows, across);
        });
    });
}

template <void (*body)(const cuda_arguments &)>
__global__ void __launch_bounds__(CUDA_BLOCK) cuda_run_pairs(const __grid_constant__ struct cuda_arguments a)
{
    body(a);
}

#endif
