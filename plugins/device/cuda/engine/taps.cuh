// SPDX-License-Identifier: Apache-2.0
// Convolutions whose kernels have few taps, (row, column, channel): forward, and the gradient of their weights. Both read or write
// the large tensor y or dy once, and that is what takes the time.
//
// A block goes over chunks of output positions. Its threads first copy the patch of x under each position into shared memory, as
// float32, zero where there is padding or no position; then a thread goes over positions of the chunk, four at once, with four filters,
// of which it has in registers: forward the weights, backward the sums. So one load from shared memory serves 16 products. The next
// chunk uses the other half of that memory, so that a chunk costs one barrier.
//
// Sums of a block go into parts, which a second kernel adds; all orders follow from the shape.
#ifndef LS_DEVICE_CUDA_TAPS_CUH
#define LS_DEVICE_CUDA_TAPS_CUH

#include "plugins/device/cuda/engine/grid.cuh"
#include "plugins/device/cuda/engine/store_body.h"

#include <type_traits>

namespace taps {

constexpr int threads = CUDA_TAPS_THREADS;
constexpr int four = CUDA_TAPS_FOUR; // positions, or filters, of a thread at once
constexpr int at_once = 9; // elements of x that a thread asks for before it waits for the first

// Blocks on a multiprocessor: what many taps have in registers leaves room for fewer.
constexpr unsigned beside(int most)
{
    return most <= CUDA_TAPS_FEW ? CUDA_TAPS_BESIDE_FEW : CUDA_TAPS_BESIDE_MOST;
}

// Elements as they are in memory. What makes float32 of halves would wait for them.
template <uint32_t type> using number = std::conditional_t<type == CUDA_FLOAT, float, uint16_t>;
template <uint32_t type>
using numbers = std::conditional_t<type == CUDA_FLOAT, struct cuda_four, struct cuda_four_halves>;

// ---- Where a thread is ----

// As one that copies: its output position in this chunk.
struct reader {
    int image, row, column;
};

__device__ inline reader reader_of(const struct cuda_taps &a)
{
    const int position = (int)blockIdx.x * a.size + (int)threadIdx.x, line = position / a.out_width;
    const int image = line / a.out_height;
    return {image, line - image * a.out_height, position - line * a.out_width};
}

__device__ inline void go_on(const struct cuda_taps &a, reader *r)
{
    r->column += a.step[2];
    const int line = r->column >= a.out_width;
    r->column -= line ? a.out_width : 0;
    r->row += a.step[1] + line;
    const int image = r->row >= a.out_height;
    r->row -= image ? a.out_height : 0;
    r->image += a.step[0] + image;
}

// As one that computes: four filters, and of each chunk every `down`-th four positions. Who is not `inside` computes for nothing.
struct worker {
    int filter, slot;
    bool inside;
};

__device__ inline worker worker_of(const struct cuda_taps &a)
{
    const int thread = (int)threadIdx.x, y = thread / a.across;
    const int filter = ((int)blockIdx.y * a.across + thread - y * a.across) * four;
    const bool inside = y < a.down && filter < a.filters;
    return {inside ? filter : 0, inside ? four * y : 0, inside};
}

// ---- Patches of x ----

// The last row is 1 where there is a position.
template <int most> using patches = float[most + 1][threads];

template <uint32_t type, int most>
__device__ inline void copy_patch(const struct cuda_taps &a, const reader &r, float (*patch)[threads])
{
    if ((int)threadIdx.x >= a.size)
        return;
    const number<type> *x = (const number<type> *)a.x;
    const bool real = r.image < a.batch;
    const int h = r.row * a.stride[0] - a.before[0], w = r.column * a.stride[1] - a.before[1];
    const int base = real ? ((r.image * a.height + h) * a.width + w) * a.channels : 0;
    const unsigned height = real ? (unsigned)a.height : 0;
#pragma unroll
    for (int first = 0; first < most; first += at_once) {
        number<type> found[at_once];
#pragma unroll
        for (int k = 0; k < at_once; k++) {
            found[k] = 0;
            if (((unsigned)(h + a.row[first + k]) < height) & ((unsigned)(w + a.column[first + k]) < (unsigned)a.width))
                found[k] = x[base + a.offset[first + k]];
        }
#pragma unroll
        for (int k = 0; k < at_once; k++)
            patch[first + k][threadIdx.x] = cuda_load(&found[k], type, 0);
    }
    patch[most][threadIdx.x] = real;
}

// ---- Four filters ----

// dy at four positions; beyond the last one that of the last, which is multiplied with 0.
template <uint32_t type>
__device__ inline void load_filters(const struct cuda_taps &a, const worker &me, int position, numbers<type> *out)
{
    const number<type> *dy = (const number<type> *)a.dy + me.filter;
    const int last = a.filters - 1 - me.filter;
    if (a.aligned) {
#pragma unroll
        for (int j = 0; j < four; j++)
            out[j] = *(const numbers<type> *)(dy + min(position + j, a.positions - 1) * a.filters);
        return;
    }
#pragma unroll
    for (int j = 0; j < four; j++)
#pragma unroll
        for (int k = 0; k < four; k++)
            out[j].v[k] = dy[min(position + j, a.positions - 1) * a.filters + min(k, last)];
}

__device__ inline void put_filters(const struct cuda_taps &a, const struct cuda_store &store, const worker &me, int position,
                                   struct cuda_four value)
{
    const int at = position * a.filters + me.filter;
    if (a.aligned) {
        cuda_put_four(&store, at, value);
        return;
    }
#pragma unroll
    for (int k = 0; k < four; k++)
        if (me.filter + k < a.filters)
            cuda_put(&store, at + k, value.v[k]);
}

// ---- Forward ----

// plain: nothing but a ReLU follows.
template <uint32_t type, int most, bool plain>
__global__ void __launch_bounds__(threads, beside(most)) forward(const __grid_constant__ struct cuda_taps a)
{
    __shared__ __align__(16) patches<most> both[2];
    const worker me = worker_of(a);
    reader r = reader_of(a);
    struct cuda_store store = a.store;
    store.type = type;
    if (plain) {
        store.add = 0;
        store.activation = LS_RELU;
        store.epilogue = store.epilogue != 0;
    }

    float weights[most][four], bias[four];
#pragma unroll
    for (int k = 0; k < four; k++) {
        const bool real = me.inside && me.filter + k < a.filters;
        bias[k] = real && a.bias ? cuda_load(a.bias, type, me.filter + k) : 0;
#pragma unroll
        for (int tap = 0; tap < most; tap++)
            weights[tap][k] = real && tap < a.taps
                                  ? cuda_load(a.w, type, (me.filter + k) * a.filter_step + tap * a.tap_step)
                                  : 0;
    }

    int side = 0;
    for (int chunk = (int)blockIdx.x; chunk < a.chunks; chunk += (int)gridDim.x) {
        copy_patch<type, most>(a, r, both[side]);
        go_on(a, &r);
        __syncthreads();
        for (int slot = me.slot; slot < a.size; slot += four * a.down) {
            struct cuda_four y[four];
#pragma unroll
            for (int j = 0; j < four; j++)
                y[j] = {{bias[0], bias[1], bias[2], bias[3]}};
#pragma unroll
            for (int tap = 0; tap < most; tap++) {
                const struct cuda_four x = *(const struct cuda_four *)&both[side][tap][slot];
#pragma unroll
                for (int j = 0; j < four; j++)
#pragma unroll
                    for (int k = 0; k < four; k++)
                        y[j].v[k] += x.v[j] * weights[tap][k];
            }
            const int position = chunk * a.size + slot;
#pragma unroll
            for (int j = 0; j < four; j++)
                if (me.inside && position + j < a.positions)
                    put_filters(a, store, me, position + j, y[j]);
        }
        side ^= 1;
    }
}

// ---- Gradients of weights and bias ----

// Adds what the threads with the same filters have, and keeps it as one row of the block's part.
__device__ inline void keep_row(const struct cuda_taps &a, const worker &me, const float *mine, int row)
{
    __shared__ struct cuda_four shared[threads];
    __syncthreads(); // for the row before
    if (me.inside)
        shared[threadIdx.x] = {{mine[0], mine[1], mine[2], mine[3]}};
    __syncthreads();
    const int i = (int)threadIdx.x, filter = (int)blockIdx.y * a.across * four + i;
    if (i >= a.across * four || filter >= a.filters)
        return;
    float sum = 0;
#pragma unroll 8
    for (int y = 0; y < a.down; y++)
        sum += shared[y * a.across + i / four].v[i % four];
    a.parts[((int64_t)blockIdx.x * a.rows + row) * a.filters + filter] = sum;
}

template <uint32_t type, int most>
__global__ void __launch_bounds__(threads, beside(most)) weights(const __grid_constant__ struct cuda_taps a)
{
    __shared__ __align__(16) patches<most> both[2];
    const worker me = worker_of(a);
    reader r = reader_of(a);
    constexpr bool ahead = most <= CUDA_TAPS_FEW; // whether registers are left to read dy for the next four positions meanwhile
    float sums[most + 1][four] = {{0}}; // the last row: of the bias
    numbers<type> next[four];
    if (ahead)
        load_filters<type>(a, me, (int)blockIdx.x * a.size + me.slot, next);

    int side = 0;
    for (int chunk = (int)blockIdx.x; chunk < a.chunks; chunk += (int)gridDim.x) {
        copy_patch<type, most>(a, r, both[side]);
        go_on(a, &r);
        __syncthreads();
        for (int slot = me.slot; slot < a.size; slot += four * a.down) {
            struct cuda_four dy[four];
            if (!ahead)
                load_filters<type>(a, me, chunk * a.size + slot, next);
#pragma unroll
            for (int j = 0; j < four; j++)
                dy[j] = cuda_load_four(&next[j], type, 0);
            const int after = slot + four * a.down;
            if (ahead)
                load_filters<type>(
                    a, me, after < a.size ? chunk * a.size + after : (chunk + (int)gridDim.x) * a.size + me.slot, next);
#pragma unroll
            for (int tap = 0; tap <= most; tap++) {
                const struct cuda_four x = *(const struct cuda_four *)&both[side][tap][slot];
#pragma unroll
                for (int j = 0; j < four; j++)
#pragma unroll
                    for (int k = 0; k < four; k++)
                        sums[tap][k] += x.v[j] * dy[j].v[k];
            }
        }
        side ^= 1;
    }

#pragma unroll
    for (int tap = 0; tap < most; tap++)
        if (tap < a.taps)
            keep_row(a, me, sums[tap], tap);
    if (a.rows > a.taps)
        keep_row(a, me, sums[most], a.taps);
}

// Adds the parts: a block has some outputs beside each other, and for each of them several threads.
__global__ void __launch_bounds__(CUDA_TAPS_TOTAL) total(const __grid_constant__ struct cuda_taps a)
{
    constexpr int beside = CUDA_TAPS_OUTPUTS, down = CUDA_TAPS_TOTAL / beside;
    __shared__ double shared[down][beside];
    const int x = (int)threadIdx.x % beside, y = (int)threadIdx.x / beside;
    const int outputs = a.rows * a.filters, i = (int)blockIdx.x * beside + x;
    double sum = 0;
#pragma unroll 4
    for (int part = y; i < outputs && part < a.part_count; part += down)
        sum += (double)a.parts[(int64_t)part * outputs + i];
    shared[y][x] = sum;
    __syncthreads();
    if (y > 0 || i >= outputs)
        return;
    for (int k = 1; k < down; k++)
        sum += shared[k][x];
    const int row = i / a.filters, filter = i - row * a.filters;
    if (row < a.taps)
        cuda_put(&a.store, filter * a.filter_step + row * a.tap_step, (float)sum);
    else
        cuda_put(&a.bias_store, filter, (float)sum);
}

} // namespace taps

extern "C" unsigned cuda_taps_launch(uint32_t which, const struct cuda_taps *a, struct CUstream_st *stream)
{
    if (which == cuda_taps_total)
        return launch<taps::total>(dim3((unsigned)(a->rows * a->filters + CUDA_TAPS_OUTPUTS - 1) / CUDA_TAPS_OUTPUTS), CUDA_TAPS_TOTAL,
                                   stream, *a);
    const bool relu = a->store.epilogue == 1 && a->store.activation == LS_RELU;
    const dim3 blocks((unsigned)a->part_count, (unsigned)a->tiles);
    return for_type(a->type, [&](auto type) {
        return for_flag(a->taps <= CUDA_TAPS_FEW, [&](auto few) {
            constexpr int most = few ? CUDA_TAPS_FEW : CUDA_TAPS_MOST;
            if (which == cuda_taps_weights)
                return launch<taps::weights<type, most>>(blocks, CUDA_TAPS_THREADS, stream, *a);
            return for_flag(!a->store.add && (a->store.epilogue == 0 || relu), [&](auto plain) {
                return launch<taps::forward<type, most, plain>>(blocks, CUDA_TAPS_THREADS, stream, *a);
            });
        });
    });
}

#endif
