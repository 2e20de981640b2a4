// SPDX-License-Identifier: Apache-2.0
// Our own kernels on a GPU: a thread takes items one grid apart from each other.
#include "plugins/device/cuda/heavy/bodies.h"

#include <cuda_runtime.h>

namespace {

constexpr unsigned threads = 256;
constexpr int64_t most_blocks = 4096; // 132 multiprocessors with 8 blocks each, some times over

template <void (*body)(const struct cuda_arguments *, int64_t)>
__global__ void __launch_bounds__(threads)
    run(const __grid_constant__ struct cuda_arguments arguments, int64_t items)
{
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < items; i += stride)
        body(&arguments, i);
}

template <void (*body)(const struct cuda_arguments *, int64_t)>
void start(const struct cuda_arguments *arguments, int64_t items, cudaStream_t stream)
{
    const int64_t blocks = (items + threads - 1) / threads;
    run<body><<<(unsigned)(blocks < most_blocks ? blocks : most_blocks), threads, 0, stream>>>(
        *arguments, items);
}

} // namespace

extern "C" unsigned cuda_kernel_launch(uint32_t kernel, const struct cuda_arguments *arguments,
                                       int64_t items, struct CUstream_st *stream)
{
    if (items < 1)
        return cudaSuccess;
    switch (kernel) {
#define CUDA_KERNEL_CASE(name)                                 \
    case cuda_kernel_##name:                                        \
        start<cuda_body_##name>(arguments, items, stream);     \
        break;
        CUDA_KERNELS(CUDA_KERNEL_CASE)
    default: return cudaErrorInvalidValue;
    }
    return cudaGetLastError();
}
