// SPDX-License-Identifier: Apache-2.0
// Sums of pairs of numbers by a block, in an order that the shape alone decides.
#ifndef LS_DEVICE_CUDA_PAIRS_CUH
#define LS_DEVICE_CUDA_PAIRS_CUH

#include "plugins/device/cuda/engine/grid.cuh"

// Of what the threads of the block have; each of them gets it.
__device__ inline double2 cuda_block_sum(double2 mine)
{
    __shared__ double2 shared[CUDA_BLOCK];
    shared[threadIdx.x] = mine;
    for (unsigned half = CUDA_BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            shared[threadIdx.x].x += shared[threadIdx.x + half].x;
            shared[threadIdx.x].y += shared[threadIdx.x + half].y;
        }
    }
    __syncthreads(); // also for those that need no sum: nvcc lets all of them read it
    return shared[0];
}

// Of `count` pairs in memory; each thread of the block gets it.
__device__ inline double2 cuda_sum_of_pairs(const double *pairs, int64_t count)
{
    double2 sum = make_double2(0, 0);
    for (int64_t k = threadIdx.x; k < count; k += 4 * CUDA_BLOCK) {
        double2 four[4];
        for (int e = 0; e < 4; e++) {
            const int64_t at = k + e * CUDA_BLOCK;
            four[e] = ((const double2 *)pairs)[at < count ? at : k];
        }
        for (int e = 0; e < 4 && k + e * CUDA_BLOCK < count; e++) {
            sum.x += four[e].x;
            sum.y += four[e].y;
        }
    }
    return cuda_block_sum(sum);
}

#endif
