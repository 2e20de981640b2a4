// SPDX-License-Identifier: Apache-2.0
// Sums of pairs of numbers, by a block or over a grid, by the kernel that makes them: the block that is done last adds what all
// have. Which one that is changes nothing: the order is that of the blocks, and how many there are the shape alone decides.
#ifndef LS_DEVICE_CUDA_PAIRS_CUH
#define LS_DEVICE_CUDA_PAIRS_CUH

#include "plugins/device/cuda/engine/grid.cuh"

__device__ inline void cuda_add_pair(double2 &to, double2 pair)
{
    to.x += pair.x;
    to.y += pair.y;
}

// Of what the threads of the block have; each of them gets it.
__device__ inline double2 cuda_block_sum(double2 mine)
{
    __shared__ double2 shared[CUDA_BLOCK];
    shared[threadIdx.x] = mine;
    for (unsigned half = CUDA_BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            cuda_add_pair(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
    __syncthreads(); // also for those that need no sum: nvcc lets all of them read it
    return shared[0];
}

// Of `count` pairs in memory; each thread of the block gets it.
template <typename number> __device__ inline double2 cuda_sum_of_pairs(const number *pairs, int64_t count)
{
    double2 sum = make_double2(0, 0);
    for (int64_t k = threadIdx.x; k < count; k += 4 * CUDA_BLOCK) {
        double2 four[4];
        for (int e = 0; e < 4; e++) {
            const int64_t at = 2 * (k + e * CUDA_BLOCK < count ? k + e * CUDA_BLOCK : k);
            four[e] = make_double2(pairs[at], pairs[at + 1]);
        }
        for (int e = 0; e < 4 && k + e * CUDA_BLOCK < count; e++)
            cuda_add_pair(sum, four[e]);
    }
    return cuda_block_sum(sum);
}

// Of what all threads of the grid have. True in the block that is done last: each of its threads gets it.
__device__ inline bool cuda_grid_sum(double2 mine, const cuda_pairs &pairs, double2 *sum)
{
    __shared__ bool last;
    mine = cuda_block_sum(mine);
    if (threadIdx.x == 0) {
        ((double2 *)pairs.parts)[blockIdx.x] = mine;
        __threadfence(); // before others learn that it is there
        last = atomicAdd(pairs.done, 1) + 1 == gridDim.x;
    }
    __syncthreads();
    if (!last)
        return false;
    __threadfence();
    *sum = cuda_sum_of_pairs((const volatile double *)pairs.parts, gridDim.x);
    if (threadIdx.x == 0)
        *pairs.done = 0;
    return true;
}

inline dim3 cuda_pair_blocks(int64_t blocks)
{
    return dim3((unsigned)(blocks < CUDA_PAIR_BLOCKS ? blocks : CUDA_PAIR_BLOCKS));
}

#endif
