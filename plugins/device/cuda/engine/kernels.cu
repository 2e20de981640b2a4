// SPDX-License-Identifier: Apache-2.0
// Our own kernels on a GPU.
#include "plugins/device/cuda/engine/attention.cuh"
#include "plugins/device/cuda/engine/augment.cuh"
#include "plugins/device/cuda/engine/bodies.h"
#include "plugins/device/cuda/engine/casts.cuh"
#include "plugins/device/cuda/engine/categories.cuh"
#include "plugins/device/cuda/engine/columns.cuh"
#include "plugins/device/cuda/engine/elements.cuh"
#include "plugins/device/cuda/engine/function.cuh"
#include "plugins/device/cuda/engine/gather.cuh"
#include "plugins/device/cuda/engine/grid.cuh"
#include "plugins/device/cuda/engine/layer.cuh"
#include "plugins/device/cuda/engine/losses.cuh"
#include "plugins/device/cuda/engine/move.cuh"
#include "plugins/device/cuda/engine/normalization.cuh"
#include "plugins/device/cuda/engine/pairs.cuh"
#include "plugins/device/cuda/engine/pooling.cuh"
#include "plugins/device/cuda/engine/product.cuh"
#include "plugins/device/cuda/engine/recurrent.cuh"
#include "plugins/device/cuda/engine/reduce_body.h"
#include "plugins/device/cuda/engine/rows.cuh"
#include "plugins/device/cuda/engine/taps.cuh"
#include "plugins/device/cuda/engine/update.cuh"
#include "plugins/device/cuda/engine/walk.cuh"

#include <cuda_runtime.h>

namespace {

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

} // namespace

extern "C" unsigned cuda_kernels_load(void)
{
    unsigned error = cudaSuccess;
    for (const listed_kernel *kernel = listed_kernel::first; kernel && !error; kernel = kernel->next)
        error = kernel->load();
    return error;
}

extern "C" unsigned cuda_kernel_launch(uint32_t kernel, const struct cuda_arguments *arguments,
                                       int64_t items, struct CUstream_st *stream)
{
    unsigned error = cudaSuccess;
    if (items < 1)
        return cudaSuccess;
    switch (kernel) {
#define CUDA_ELEMENT_CASE(name)                                                              \
    case cuda_kernel_##name:                                                               \
        if (cuda_try_elements<cuda_kernel_##name>(arguments, items, stream, &error)) \
            return error;                                                                  \
        return start_body<cuda_one_element<cuda_kernel_##name>>(arguments, items, stream);
        CUDA_ELEMENT_KERNELS(CUDA_ELEMENT_CASE)
#define CUDA_KERNEL_CASE(name) \
    case cuda_kernel_##name: return start_body<cuda_body_##name>(arguments, items, stream);
        CUDA_KERNELS(CUDA_KERNEL_CASE)
#define CUDA_ROWS_CASE(name) \
    case cuda_kernel_##name: return cuda_start_rows<cuda_kernel_##name>(arguments, items, stream);
        CUDA_ROW_KERNELS(CUDA_ROWS_CASE)
#define CUDA_PAIRS_CASE(name) \
    case cuda_kernel_##name: return cuda_start_pairs<cuda_pair_##name, cuda_end_##name>(arguments, items, stream);
        CUDA_PAIR_KERNELS(CUDA_PAIRS_CASE)
    default: return cudaErrorInvalidValue;
    }
}

extern "C" unsigned cuda_reduction_launch(const struct cuda_reduction *reduction, struct CUstream_st *stream)
{
    switch (reduction->dtype) {
#define CUDA_REDUCE_CASE(name, stored, value, ordered, divided, load, store) \
    case LS_##name: return start<struct cuda_reduction, cuda_reduce_##name>(reduction, reduction->items, stream);
        CUDA_REDUCED_TYPES(CUDA_REDUCE_CASE)
    default: return cudaErrorInvalidValue;
    }
}
