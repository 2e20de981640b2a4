// SPDX-License-Identifier: Apache-2.0
// Our own kernels on a GPU: a thread takes items one grid apart from each other. What a launch answers is its own error, not one
// that an earlier call of somebody else left behind.
#include "plugins/device/cuda/heavy/bodies.h"
#include "plugins/device/cuda/heavy/reduce_body.h"

#include <cuda_runtime.h>

namespace {

constexpr unsigned threads = 256;
constexpr int64_t most_blocks = 4096; // 132 multiprocessors with 8 blocks each, some times over

template <typename arguments_type, void (*body)(const arguments_type *, int64_t)>
__global__ void __launch_bounds__(threads)
    run(const __grid_constant__ arguments_type arguments, int64_t items)
{
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < items; i += stride)
        body(&arguments, i);
}

template <typename arguments_type, void (*body)(const arguments_type *, int64_t)>
unsigned start(const arguments_type *arguments, int64_t items, cudaStream_t stream)
{
    const int64_t blocks = (items + threads - 1) / threads;
    void *values[] = {(void *)arguments, &items}; // they are copied
    return cudaLaunchKernel((const void *)run<arguments_type, body>,
                            dim3((unsigned)(blocks < most_blocks ? blocks : most_blocks)), dim3(threads),
                            values, 0, stream);
}

// A body that knows at compile time that everything is float32: such kernels ask for no type.
template <void (*body)(const struct cuda_arguments *, int64_t)>
__device__ void as_float32(const struct cuda_arguments *arguments, int64_t i)
{
    struct cuda_arguments a = *arguments;
    a.a_type = a.b_type = a.store.type = CUDA_FLOAT;
    body(&a, i);
}

template <void (*body)(const struct cuda_arguments *, int64_t)>
unsigned start_body(const struct cuda_arguments *a, int64_t items, cudaStream_t stream)
{
    if (a->a_type | a->b_type | a->store.type)
        return start<struct cuda_arguments, body>(a, items, stream);
    return start<struct cuda_arguments, as_float32<body>>(a, items, stream);
}

template <typename arguments_type, void (*body)(const arguments_type *, int64_t)>
unsigned load()
{
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, (const void *)run<arguments_type, body>);
}

} // namespace

extern "C" unsigned cuda_kernels_load(void)
{
    unsigned error = cudaSuccess;
#define CUDA_KERNEL_LOAD(name)                                                     \
    error = error ? error : load<struct cuda_arguments, cuda_body_##name>();       \
    error = error ? error : load<struct cuda_arguments, as_float32<cuda_body_##name>>();
    CUDA_KERNELS(CUDA_KERNEL_LOAD)
#define CUDA_REDUCE_LOAD(name, stored, value, ordered, divided, load_value, store) \
    error = error ? error : load<struct cuda_reduction, cuda_reduce_##name>();
    CUDA_REDUCED_TYPES(CUDA_REDUCE_LOAD)
    return error;
}

extern "C" unsigned cuda_kernel_launch(uint32_t kernel, const struct cuda_arguments *arguments,
                                       int64_t items, struct CUstream_st *stream)
{
    if (items < 1)
        return cudaSuccess;
    switch (kernel) {
#define CUDA_KERNEL_CASE(name) \
    case cuda_kernel_##name: return start_body<cuda_body_##name>(arguments, items, stream);
        CUDA_KERNELS(CUDA_KERNEL_CASE)
    default: return cudaErrorInvalidValue;
    }
}

extern "C" unsigned cuda_reduce_launch(const struct cuda_reduction *reduction,
                                       struct CUstream_st *stream)
{
    switch (reduction->dtype) {
#define CUDA_REDUCE_CASE(name, stored, value, ordered, divided, load, store) \
    case cuda_reduce_number_##name:                                          \
        return start<struct cuda_reduction, cuda_reduce_##name>(reduction, reduction->items, stream);
        CUDA_REDUCED_TYPES(CUDA_REDUCE_CASE)
    default: return cudaErrorInvalidValue;
    }
}
