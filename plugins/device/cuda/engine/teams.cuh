// SPDX-License-Identifier: Apache-2.0
// Teams of threads that work on a row together: a warp, or a block where rows are long. What they find out is put together in an
// order that the number of threads decides, and all of them get the same bits.
#ifndef LS_DEVICE_CUDA_TEAMS_CUH
#define LS_DEVICE_CUDA_TEAMS_CUH

#include "plugins/device/cuda/engine/grid.cuh"

namespace teams {

constexpr unsigned warp = 32, warps = threads / warp;
constexpr unsigned everybody = 0xffffffff;

// Where this thread begins: `group` threads have a row, so a block has several at once where that is a warp.
template <unsigned group>
__device__ inline int64_t first_row()
{
    return (int64_t)blockIdx.x * (threads / group) + threadIdx.x / group;
}

template <unsigned group>
__device__ inline int64_t row_step()
{
    return (int64_t)gridDim.x * (threads / group);
}

template <unsigned group>
__device__ inline unsigned lane()
{
    return threadIdx.x % group;
}

// Puts `count` numbers of each thread together: add(mine, other) takes over those of another.
template <unsigned group, int count, typename function>
__device__ inline void together(float (&mine)[count], function add)
{
    float other[count];
    for (unsigned step = warp / 2; step; step /= 2) {
        for (int k = 0; k < count; k++)
            other[k] = __shfl_down_sync(everybody, mine[k], step);
        add(mine, other);
    }
    if constexpr (group == warp) {
        for (int k = 0; k < count; k++)
            mine[k] = __shfl_sync(everybody, mine[k], 0);
    } else {
        __shared__ float found[warps][count];
        __syncthreads(); // for what was put together before
        for (int k = 0; threadIdx.x % warp == 0 && k < count; k++)
            found[threadIdx.x / warp][k] = mine[k];
        __syncthreads();
        for (int k = 0; k < count; k++)
            mine[k] = found[0][k];
        for (unsigned from = 1; from < warps; from++) {
            for (int k = 0; k < count; k++)
                other[k] = found[from][k];
            add(mine, other);
        }
    }
}

template <unsigned group, int count>
__device__ inline void sum_together(float (&mine)[count])
{
    together<group, count>(mine, [](float(&to)[count], const float(&from)[count]) {
        for (int k = 0; k < count; k++)
            to[k] += from[k];
    });
}

template <unsigned group>
__device__ inline float sum_together(float mine)
{
    float sum[1] = {mine};
    sum_together<group, 1>(sum);
    return sum[0];
}

// Blocks for so many rows.
template <unsigned group, auto kernel, typename arguments_type>
unsigned start(const arguments_type *arguments, int64_t count, cudaStream_t stream)
{
    constexpr int64_t beside = threads / group;
    return start_blocks<kernel>(arguments, (count + beside - 1) / beside, stream);
}

} // namespace teams

#endif
