// SPDX-License-Identifier: Apache-2.0
// How kernels lie over a GPU: a thread takes items one grid apart from each other, or a block of threads works together on what is one
// grid apart. What a launch answers is its own error, not one that an earlier call of somebody else left behind.
#ifndef LS_DEVICE_CUDA_GRID_CUH
#define LS_DEVICE_CUDA_GRID_CUH

#include <cuda_runtime.h>

#include <stdint.h>

namespace {

constexpr unsigned threads = 256;
#ifndef CUDA_MOST_BLOCKS
#define CUDA_MOST_BLOCKS 4096 // fewer in tests, where blocks then have several turns
#endif
constexpr int64_t most_blocks = CUDA_MOST_BLOCKS; // 132 multiprocessors with 8 blocks each, some times over

// ---- Blocks ----

template <typename arguments_type>
unsigned start_blocks(void (*kernel)(arguments_type), const arguments_type *arguments, int64_t blocks, cudaStream_t stream)
{
    void *values[] = {(void *)arguments}; // they are copied
    if (blocks < 1)
        return cudaSuccess;
    return cudaLaunchKernel(kernel, dim3((unsigned)(blocks < most_blocks ? blocks : most_blocks)), dim3(threads), values, 0,
                            stream);
}

template <typename... arguments_types>
unsigned load_kernel(void (*kernel)(arguments_types...))
{
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, kernel);
}

// ---- Items ----

template <typename arguments_type, void (*body)(const arguments_type *, int64_t), unsigned least_blocks = 1>
__global__ void __launch_bounds__(threads, least_blocks)
    run(const __grid_constant__ arguments_type arguments, int64_t items)
{
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < items; i += stride)
        body(&arguments, i);
}

template <typename arguments_type, void (*body)(const arguments_type *, int64_t), unsigned least_blocks = 1>
unsigned start(const arguments_type *arguments, int64_t items, cudaStream_t stream)
{
    const int64_t blocks = (items + threads - 1) / threads;
    void *values[] = {(void *)arguments, &items}; // they are copied
    if (blocks < 1)
        return cudaSuccess;
    return cudaLaunchKernel(run<arguments_type, body, least_blocks>,
                            dim3((unsigned)(blocks < most_blocks ? blocks : most_blocks)), dim3(threads), values, 0, stream);
}

template <typename arguments_type, void (*body)(const arguments_type *, int64_t), unsigned least_blocks = 1>
unsigned load()
{
    return load_kernel(run<arguments_type, body, least_blocks>);
}

} // namespace

#endif
