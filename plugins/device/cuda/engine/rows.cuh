// SPDX-License-Identifier: Apache-2.0
// Softmax and cross-entropy: threads side by side have a row, as many as a power of two up to a warp, or a block where rows are
// long. And what is added up over a whole tensor. All orders of adding follow from the shape.
#ifndef LS_DEVICE_CUDA_ROWS_CUH
#define LS_DEVICE_CUDA_ROWS_CUH

#include "plugins/device/cuda/engine/bodies.h"
#include "plugins/device/cuda/engine/pairs.cuh"

// Threads for a row: a block where a warp would ask for elements of it too often. And blocks of threads for all rows.
inline int32_t cuda_row_across(int64_t columns)
{
    int32_t across = columns > 256 ? CUDA_BLOCK : 1;
    while (across < columns && across < 32)
        across *= 2;
    return across;
}

__host__ __device__ inline int64_t cuda_row_blocks(int64_t rows, int32_t across)
{
    return (rows * across + CUDA_BLOCK - 1) / CUDA_BLOCK;
}

struct cuda_row {
    int64_t index, start;
    int32_t thread, across; // of the threads of this row
    bool inside; // else it is the last row again, and nothing is written
};

// That of this thread in the block of threads `at`.
template <bool block>
__device__ inline cuda_row cuda_row_of(int64_t at, int64_t rows, int64_t columns, int32_t across)
{
    const int32_t thread = (int32_t)threadIdx.x;
    cuda_row row;
    row.across = block ? CUDA_BLOCK : across;
    row.thread = block ? thread : thread & (across - 1);
    row.index = block ? at : (at * CUDA_BLOCK + thread) / across;
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

__device__ inline double cuda_of_lane(double value, int32_t step)
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

// Integers are in `labels`. A float64 has all of them.
template <bool block> __device__ void cuda_row_differs(const cuda_arguments &a, const cuda_row &row)
{
    float found = 0;
    for (int64_t k = row.start + row.thread; k < row.start + a.columns; k += row.across)
        if ((a.labels ? (double)a.labels[k] : (double)cuda_a(&a, k)) != (double)a.factor)
            found = 1;
    found = cuda_row_largest<block>(row, found);
    if (row.thread == 0 && row.inside)
        cuda_put(&a.store, row.index, found);
}

// What the loss of a row has as its slope at column k; x: the prediction, p: its probability.
__device__ inline float cuda_entropy_slope(const cuda_arguments &a, int64_t k, int32_t label, float x, float p)
{
    if (label < 0 || label >= a.columns)
        return NAN;
    const float slope = p - (k == label ? 1.0f : 0.0f);
    return a.from_logits ? slope : cuda_clip(x, a.epsilon) == x ? slope / x : 0;
}

// a: predictions; first: probabilities, and store: gradients, NULL where nobody asks for them. A NaN is the largest only where it is
// first. What is read of others' elements is read before the row is joined: gradients may take the place of predictions.
template <bool block>
__device__ double2 cuda_row_cross_entropy(const cuda_arguments &a, const cuda_row &row)
{
    const int32_t label = a.labels[row.index];
    const bool known = label >= 0 && label < a.columns;
    const float right = known ? cuda_a(&a, row.start + label) : NAN;
    __syncwarp(); // what joins lanes orders no memory
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
    if (!row.inside)
        return make_double2(0, 0);
    cuda_store store = a.store;
    store.epilogue = 0; // known
    const float scale = store.out ? a.record->gradient_scale / (float)a.positions : 0;
    const auto put = [&](int64_t k, float x) {
        const float p = cuda_weight(&a, x, largest) / sum;
        if (a.first)
            a.first[row.start + k] = p;
        if (store.out)
            cuda_put(&store, row.start + k, cuda_entropy_slope(a, k, label, x, p) * scale);
    };
    if (a.first || store.out)
        cuda_row_each<4>(row, a, put);
    if (row.thread)
        return make_double2(0, 0);
    const float loss = a.from_logits ? logf(sum) - (right - largest) : logf(sum) - logf(cuda_clip(right, a.epsilon));
    return make_double2(known ? (double)loss : (double)NAN, best.column == label);
}

// ---- Items that are pairs ----

// Of a pack of elements. a: predictions, b: targets
template <int pack> __device__ inline void cuda_add_squared_errors(const cuda_arguments &a, int64_t k, float scale, double2 &sum)
{
    const struct cuda_four one = cuda_take(a.a, a.a_type, k, pack), other = cuda_take(a.b, a.b_type, k, pack);
    struct cuda_four slope = {{0}};
    for (int e = 0; e < pack; e++) {
        const double difference = (double)one.v[e] - (double)other.v[e];
        sum.x += difference * difference;
        slope.v[e] = (one.v[e] - other.v[e]) * scale;
    }
    if (a.store.out)
        cuda_give(&a.store, k, slope, pack);
}

// An item has one element where there are as many items; else four at once, and more of those one width apart.
__device__ inline double2 cuda_pair_squared_error(const cuda_arguments &a, int64_t i)
{
    const uintptr_t addresses = (uintptr_t)a.a | (uintptr_t)a.b | (uintptr_t)a.store.out | (uintptr_t)a.store.y;
    const bool aligned = addresses % sizeof(struct cuda_four) == 0;
    const float scale = a.store.out ? 2 * a.record->gradient_scale / (float)a.positions : 0;
    double2 sum = make_double2(0, 0);
    const int64_t pack = a.width < a.count ? 4 : 1;
    for (int64_t k = pack * i; k < a.count; k += pack * a.width)
        if (pack == 4 && aligned && k + 4 <= a.count)
            cuda_add_squared_errors<4>(a, k, scale, sum);
        else
            for (int64_t e = k; e < k + pack && e < a.count; e++)
                cuda_add_squared_errors<1>(a, e, scale, sum);
    return sum;
}

// a: w; sums of sizes and of squares
__device__ inline double2 cuda_pair_penalty(const cuda_arguments &a, int64_t i)
{
    double2 sum = make_double2(0, 0);
    for (int64_t k = 4 * i; k < a.count; k += 4 * a.width) {
        const struct cuda_four w = cuda_four_of(&a, k);
        for (int e = 0; e < 4; e++) {
            sum.x += (double)fabsf(w.v[e]);
            sum.y += (double)w.v[e] * (double)w.v[e];
        }
    }
    return sum;
}

// Sum of squares, and how many are not finite.
__device__ inline double2 cuda_pair_measure(const cuda_arguments &a, int64_t i)
{
    double2 sum = make_double2(0, 0);
    for (int64_t k = 4 * i; k < a.count; k += 4 * a.width) {
        const struct cuda_four x = cuda_four_of(&a, k);
        for (int e = 0; e < 4; e++)
            if (isfinite(x.v[e]))
                sum.x += (double)x.v[e] * (double)x.v[e];
            else
                sum.y++;
    }
    return sum;
}

// ---- What comes of the pairs of all ----

// loss, right, examples, 0
__device__ inline void cuda_put_loss(float *out, double2 sum, int64_t positions, int64_t examples)
{
    out[0] = (float)(sum.x / (double)positions);
    out[1] = (float)(sum.y / (double)positions);
    out[2] = (float)examples;
    out[3] = 0;
}

__device__ inline void cuda_end_squared_error(const cuda_arguments &a, double2 sum)
{
    cuda_put_loss((float *)a.sums, sum, a.positions, a.examples);
}

// alpha: l1, factor: l2
__device__ inline void cuda_end_penalty(const cuda_arguments &a, double2 sum)
{
    const double loss = (double)a.alpha * sum.x + (double)a.factor * sum.y;
    for (int64_t k = 0; k < 4; k++)
        cuda_put(&a.store, k, k ? 0 : (float)((double)a.examples * loss));
}

__device__ inline void cuda_end_measure(const cuda_arguments &a, double2 sum)
{
    ((double *)a.sums)[0] = sum.x;
    ((double *)a.sums)[1] = sum.y;
}

// ---- Launches ----

template <uint32_t kernel, bool block, bool floats>
__global__ void __launch_bounds__(CUDA_BLOCK, 3)
    cuda_run_rows(const __grid_constant__ struct cuda_arguments arguments, int64_t rows, int32_t across)
{
    struct cuda_arguments a = arguments;
    if (floats)
        a.a_type = a.b_type = a.store.type = CUDA_FLOAT;
    if constexpr (kernel == cuda_kernel_cross_entropy) {
        double2 sum = make_double2(0, 0);
        for (int64_t at = blockIdx.x; at < cuda_row_blocks(rows, across); at += gridDim.x)
            cuda_add_pair(sum, cuda_row_cross_entropy<block>(a, cuda_row_of<block>(at, rows, a.columns, across)));
        if (a.pairs.parts && cuda_grid_sum(sum, a.pairs, &sum) && threadIdx.x == 0)
            cuda_put_loss((float *)a.sums, sum, a.positions, a.examples);
        return;
    }
    const cuda_row row = cuda_row_of<block>(blockIdx.x, rows, a.columns, across);
    if constexpr (kernel == cuda_kernel_softmax)
        cuda_row_softmax<block>(a, row);
    else if constexpr (kernel == cuda_kernel_softmax_backward)
        cuda_row_softmax_backward<block>(a, row);
    else if constexpr (kernel == cuda_kernel_differs)
        cuda_row_differs<block>(a, row);
}

template <uint32_t kernel> unsigned cuda_start_rows(const cuda_arguments *a, int64_t rows, cudaStream_t stream)
{
    const int32_t across = cuda_row_across(a->columns);
    const int64_t all = cuda_row_blocks(rows, across);
    const dim3 blocks = kernel == cuda_kernel_cross_entropy ? cuda_pair_blocks(all) : dim3((unsigned)all);
    return for_flag(across == CUDA_BLOCK, [&](auto block) {
        return for_flag(!(a->a_type | a->b_type | a->store.type), [&](auto floats) {
            return launch<cuda_run_rows<kernel, block, floats>>(blocks, CUDA_BLOCK, stream, *a, rows, across);
        });
    });
}

template <bool floats, double2 (*pair)(const cuda_arguments &, int64_t), void (*end)(const cuda_arguments &, double2)>
__global__ void __launch_bounds__(CUDA_BLOCK) cuda_run_pairs(const __grid_constant__ struct cuda_arguments arguments, int64_t items)
{
    struct cuda_arguments a = arguments;
    if (floats)
        a.a_type = a.b_type = a.store.type = CUDA_FLOAT;
    double2 sum = make_double2(0, 0);
    for (int64_t i = (int64_t)blockIdx.x * CUDA_BLOCK + threadIdx.x; i < items; i += (int64_t)gridDim.x * CUDA_BLOCK)
        cuda_add_pair(sum, pair(a, i));
    if (a.pairs.parts && cuda_grid_sum(sum, a.pairs, &sum) && threadIdx.x == 0)
        end(a, sum);
}

template <double2 (*pair)(const cuda_arguments &, int64_t), void (*end)(const cuda_arguments &, double2)>
unsigned cuda_start_pairs(const cuda_arguments *a, int64_t items, cudaStream_t stream)
{
    const dim3 blocks = cuda_pair_blocks((items + CUDA_BLOCK - 1) / CUDA_BLOCK);
    return for_flag(!(a->a_type | a->b_type | a->store.type), [&](auto floats) {
        return launch<cuda_run_pairs<floats, pair, end>>(blocks, CUDA_BLOCK, stream, *a, items);
    });
}

#endif
