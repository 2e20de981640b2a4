// SPDX-License-Identifier: Apache-2.0
// Casts of many tensors of float32 to halves in one kernel: a block has a tile of one of them.
#ifndef LS_DEVICE_CUDA_CASTS_CUH
#define LS_DEVICE_CUDA_CASTS_CUH

#include "plugins/device/cuda/engine/grid.cuh"
#include "plugins/device/cuda/engine/store_body.h"

namespace casts {

static_assert(sizeof(struct cuda_casts) <= 4096, "arguments of a kernel have 4 KiB");

// The first that ends behind the tile.
__device__ inline uint32_t find(const struct cuda_casts &c, int64_t tile)
{
    uint32_t low = 0, high = c.count - 1;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (tile < c.casts[middle].end)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

template <uint32_t type>
__global__ void __launch_bounds__(threads) run(const __grid_constant__ struct cuda_casts c)
{
    for (int64_t tile = blockIdx.x; tile < c.casts[c.count - 1].end; tile += gridDim.x) {
        const uint32_t at = find(c, tile);
        const struct cuda_cast &cast = c.casts[at];
        const float *from = c.from + cast.from;
        uint16_t *to = (uint16_t *)c.to + cast.to;
        const int64_t i = (tile - (at ? c.casts[at - 1].end : 0)) * CUDA_CAST_TILE + 4 * threadIdx.x;
        if (c.aligned && i + 4 <= cast.count)
            cuda_write_four(to, type, i, cuda_load_four(from, CUDA_FLOAT, i));
        else
            for (int64_t k = i; k < cast.count && k < i + 4; k++)
                cuda_write(to, type, k, from[k]);
    }
}

} // namespace casts

extern "C" unsigned cuda_casts_launch(const struct cuda_casts *c, struct CUstream_st *stream)
{
    const int64_t tiles = c->casts[c->count - 1].end;
    return for_flag(c->type == CUDA_F16, [&](auto is_f16) {
        return start_blocks<casts::run<is_f16 ? CUDA_F16 : CUDA_BF16>>(c, tiles, stream);
    });
}

#endif
