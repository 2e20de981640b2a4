// SPDX-License-Identifier: Apache-2.0
// What fiber_kernels.h says, in CUDA C++.
#include <cuda_runtime.h>

extern "C" {
#include "tests/plugins/device/cuda/fiber_kernels.h"
}

namespace {

__device__ unsigned thread_of_block()
{
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}

__device__ unsigned block_of_grid()
{
    return (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
}

__device__ unsigned threads_of_block()
{
    return blockDim.x * blockDim.y * blockDim.z;
}

__global__ void visit(int32_t *out)
{
    out[block_of_grid() * threads_of_block() + thread_of_block()]++;
}

// The number of a thread is its own, plus 1000 times the block's.
template <bool barrier>
__device__ void sum_in(int32_t *shared, int32_t *out)
{
    const unsigned i = thread_of_block();
    shared[i] = (int32_t)(i + 1000 * block_of_grid());
    for (unsigned left = threads_of_block(); left > 1; left = (left + 1) / 2) {
        const unsigned half = (left + 1) / 2;
        if (barrier)
            __syncthreads();
        if (i + half < left)
            shared[i] += shared[i + half];
    }
    if (i == 0)
        out[block_of_grid()] = shared[0];
}

template <bool barrier>
__global__ void sum(int32_t *out)
{
    __shared__ int32_t shared[1024];
    sum_in<barrier>(shared, out);
}

__global__ void sum_dynamic(int32_t *out)
{
    CUDA_DYNAMIC_SHARED(int32_t, shared);
    sum_in<true>(shared, out);
}

template <bool barrier>
__global__ void exchanges(int32_t *out)
{
    __shared__ int32_t found[32];
    const int32_t first = __shfl_sync(0xffffffff, (int32_t)thread_of_block(), 0);
    int32_t sum = 0;
    for (int turn = 1; turn <= 3; turn++) {
        __syncwarp();
        if (barrier)
            __syncthreads();
        if (threadIdx.x % 32 == 0)
            found[threadIdx.x / 32] = turn * first;
        __syncthreads();
        for (unsigned warp = 0; warp < threads_of_block() / 32; warp++)
            sum += found[warp];
    }
    out[thread_of_block()] = sum;
}

template <int width>
__global__ void shuffle(int32_t *out)
{
    const int32_t mine = (int32_t)thread_of_block();
    int32_t *to = out + 4 * mine;
    to[0] = __shfl_sync(0xffffffff, mine, 3, width);
    to[1] = __shfl_up_sync(0xffffffff, mine, 2, width);
    to[2] = __shfl_down_sync(0xffffffff, mine, 5, width);
    const double neighbour = __shfl_xor_sync(0xffffffff, (double)mine, 1, width);
    to[3] = neighbour == neighbour ? (int32_t)neighbour : -1;
}

__global__ void votes(int32_t *out)
{
    const unsigned i = thread_of_block();
    const unsigned mask = i % 2 ? 0xaaaaaaaa : 0x55555555; // odd and even lanes each among themselves
    __syncwarp();
    if (i % 2)
        out[3 * i] = __any_sync(mask, i % 32 == 31);
    else
        out[3 * i] = __any_sync(mask, i % 32 == 31);
    out[3 * i + 1] = __all_sync(0xffffffff, i < 64);
    out[3 * i + 2] = (int32_t)__ballot_sync(0xffffffff, i % 2 == 1);
}

__global__ void atomics(int32_t *out)
{
    const int32_t i = (int32_t)(block_of_grid() * threads_of_block() + thread_of_block());
    atomicAdd(&out[0], i);
    atomicMin(&out[1], i);
    atomicMax(&out[2], i);
    atomicAdd((float *)&out[3], 0.5f);
    atomicExch(&out[4], i);
}

__global__ void unwritten(int32_t *out)
{
    __shared__ int32_t shared[64];
    if (threadIdx.x == 0)
        out[blockIdx.x] = shared[5];
    __syncthreads();
    shared[threadIdx.x] = 7;
}

__global__ void barrier_after_end(int32_t *out)
{
    if (threadIdx.x == 40)
        return;
    __syncthreads();
    out[threadIdx.x] = 1;
}

__global__ void two_barriers(int32_t *out)
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
    out[threadIdx.x] = 1;
}

__global__ void lane_missing(int32_t *out)
{
    if (threadIdx.x != 9)
        __syncwarp();
    __syncthreads();
    out[threadIdx.x] = 1;
}

__global__ void mask_without_itself(int32_t *out)
{
    out[threadIdx.x] = __shfl_sync(0x0000ffff, 1, 0);
}

__global__ void unaligned(int32_t *out)
{
    *(int4 *)(out + 1) = make_int4(1, 2, 3, 4);
}

__global__ void index_beyond(int32_t *out)
{
    __shared__ int32_t shared[32];
    shared[threadIdx.x + (out[0] == 0)] = 1;
    __syncthreads();
    out[threadIdx.x] = shared[threadIdx.x];
}

} // namespace

extern "C" unsigned fiber_launch(enum fiber_kernel kernel, const unsigned *blocks, const unsigned *threads,
                                 size_t dynamic, int32_t *out, struct CUstream_st *stream)
{
    static void (*const kernels[])(int32_t *) = {
        visit, sum<true>, sum<false>, sum_dynamic, exchanges<true>, exchanges<false>, shuffle<32>, shuffle<8>, votes, atomics, unwritten,
        barrier_after_end, two_barriers, lane_missing, mask_without_itself, unaligned, index_beyond};
    static_assert(sizeof(kernels) / sizeof(kernels[0]) == FIBER_KERNELS, "one for each number");
    void *values[] = {&out};
    return cudaLaunchKernel(kernels[kernel], dim3(blocks[0], blocks[1], blocks[2]),
                            dim3(threads[0], threads[1], threads[2]), values, dynamic, stream);
}
