// SPDX-License-Identifier: Apache-2.0
// How kernels lie over a GPU: a thread takes items one grid apart from each other, or a block of threads works together on what is one
// grid apart. What a launch answers is its own error, not one that an earlier call of somebody else left behind.
#ifndef LS_DEVICE_CUDA_GRID_CUH
#define LS_DEVICE_CUDA_GRID_CUH

#include "plugins/device/cuda/engine/kernels.h"

#include <cuda_runtime.h>

#include <type_traits>

namespace {

constexpr unsigned threads = CUDA_BLOCK;
#ifndef CUDA_MOST_BLOCKS
#define CUDA_MOST_BLOCKS 4096 // fewer in tests, where blocks then have several turns
#endif
constexpr int64_t most_blocks = CUDA_MOST_BLOCKS; // 132 multiprocessors with 8 blocks each, some times over

// ---- Kernels ----

// A kernel that launch() is compiled for, and with it all of them.
struct listed_kernel {
    unsigned (*load)();
    const listed_kernel *next;
    static inline const listed_kernel *first = nullptr;

    explicit listed_kernel(unsigned (*load_it)()) : load(load_it), next(first)
    {
        first = this;
    }
};

template <auto kernel> struct listed {
    static unsigned load()
    {
        cudaFuncAttributes attributes;
        return cudaFuncGetAttributes(&attributes, kernel);
    }
    static inline const listed_kernel entry{load};
};

// Arguments are copied.
template <auto kernel, typename... values>
unsigned launch(dim3 blocks, unsigned block, cudaStream_t stream, const values &...arguments)
{
    static_assert(std::is_same_v<decltype(kernel), void (*)(values...)>, "arguments are what the kernel takes");
    (void)&listed<kernel>::entry; // so it is in the list
    void *all[] = {(void *)&arguments...};
    return cudaLaunchKernel(kernel, blocks, dim3(block), all, 0, stream);
}

// Blocks of threads, which take several turns where there are more than most_blocks.
template <auto kernel, typename arguments_type>
unsigned start_blocks(const arguments_type *arguments, int64_t blocks, cudaStream_t stream)
{
    if (blocks < 1)
        return cudaSuccess;
    return launch<kernel>(dim3((unsigned)(blocks < most_blocks ? blocks : most_blocks)), threads, stream, *arguments);
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
    if (blocks < 1)
        return cudaSuccess;
    return launch<run<arguments_type, body, least_blocks>>(dim3((unsigned)(blocks < most_blocks ? blocks : most_blocks)), threads,
                                                           stream, *arguments, items);
}

// ---- What the host knows and a kernel is compiled for: with(type), with(flag), with(1 or 4 elements) ----

template <uint32_t number> using constant = std::integral_constant<uint32_t, number>;

template <typename function> unsigned for_type(uint32_t type, function with)
{
    switch (type) {
    case CUDA_F16: return with(constant<CUDA_F16>());
    case CUDA_BF16: return with(constant<CUDA_BF16>());
    default: return with(constant<CUDA_FLOAT>());
    }
}

template <typename function> unsigned for_flag(bool flag, function with)
{
    return flag ? with(std::true_type()) : with(std::false_type());
}

template <typename function> unsigned for_pack(int64_t pack, function with)
{
    return pack == 4 ? with(constant<4>()) : with(constant<1>());
}

} // namespace

#endif
