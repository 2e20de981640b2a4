// SPDX-License-Identifier: Apache-2.0
// Layer and group normalization. The values that are normalized together, a set, are one row of
// threads' work (teams.cuh): of an example or a position, all channels or those of a group. Forward
// keeps two numbers of each set: its mean less its first value, so that a large mean takes nothing
// from what lies around it, and 1 / sqrt(variance + epsilon).
//
// Gradients of gamma and beta are sums over all positions: threads lie over the columns and over
// the rows, a block adds a part of the rows, and a second kernel adds the parts.
#ifndef LS_DEVICE_CUDA_LAYER_CUH
#define LS_DEVICE_CUDA_LAYER_CUH

#include "plugins/device/cuda/engine/teams.cuh"
#include "plugins/device/cuda/engine/store_body.h"

namespace layers
{

// What gamma and beta are where they are missing.
template <int pack>
__device__ inline struct cuda_four take_or(const float *values, int64_t i, float otherwise)
{
    if (values)
        return cuda_take(values, CUDA_FLOAT, i, pack);
    return {{otherwise, otherwise, otherwise, otherwise}};
}

// The first element of a set.
__device__ inline int64_t start_of(const struct cuda_layer &n, int64_t set)
{
    const int64_t outer = cuda_quotient(set, n.groups);
    return outer * n.positions * n.channels + (set - outer * n.groups) * n.width;
}

// Goes over the elements of a set that this thread has: where each is, and its channel.
template <unsigned group, int pack, typename function>
__device__ inline void each(const struct cuda_layer &n, int64_t set, function visit)
{
    const int64_t start = start_of(n, set),
                  first_channel = start - cuda_quotient(start, n.channels) * n.channels;
    for (int64_t i = teams::lane<group>() * pack; i < n.values; i += group * pack) {
        const int64_t position = n.positions == 1 ? 0 : cuda_quotient(i, n.width);
        const int64_t inside = i - position * n.width;
        visit(start + position * n.channels + inside, first_channel + inside);
    }
}

// ---- Forward ----

template <unsigned group, int pack>
__global__ void __launch_bounds__(threads) normalize(const __grid_constant__ struct cuda_layer n)
{
    for (int64_t set = teams::first_row<group>(); set < n.sets; set += teams::row_step<group>()) {
        const float first = cuda_load(n.x, n.type, start_of(n, set));
        float sum = 0, squares = 0;
        each<group, pack>(n, set, [&](int64_t at, int64_t) {
            const struct cuda_four x = cuda_take(n.x, n.type, at, pack);
            for (int k = 0; k < pack; k++)
                sum += x.v[k] - first;
        });
        const float mean =
            teams::sum_together<group>(sum) / (float)n.values; // less the first value
        each<group, pack>(n, set, [&](int64_t at, int64_t) {
            const struct cuda_four x = cuda_take(n.x, n.type, at, pack);
            for (int k = 0; k < pack; k++)
                squares += (x.v[k] - first - mean) * (x.v[k] - first - mean);
        });
        const float scale =
            1 / sqrtf(teams::sum_together<group>(squares) / (float)n.values + n.epsilon);
        each<group, pack>(n, set, [&](int64_t at, int64_t channel) {
            const struct cuda_four gamma = take_or<pack>(n.gamma, channel, 1),
                                   beta = take_or<pack>(n.beta, channel, 0);
            struct cuda_four x = cuda_take(n.x, n.type, at, pack);
            for (int k = 0; k < pack; k++)
                x.v[k] = gamma.v[k] * ((x.v[k] - first - mean) * scale) + beta.v[k];
            cuda_give(&n.store, at, x, pack);
        });
        if (n.saved && teams::lane<group>() == 0) {
            n.saved[2 * set] = mean;
            n.saved[2 * set + 1] = scale;
        }
    }
}

// ---- Backward: dx ----

template <unsigned group, int pack>
__global__ void __launch_bounds__(threads)
    normalize_backward(const __grid_constant__ struct cuda_layer n)
{
    for (int64_t set = teams::first_row<group>(); set < n.sets; set += teams::row_step<group>()) {
        const float first = cuda_load(n.x, n.type, start_of(n, set)), mean = n.saved[2 * set],
                    scale = n.saved[2 * set + 1];
        float sums[2] = {0, 0}; // of g = gamma dy, and of g h
        each<group, pack>(n, set, [&](int64_t at, int64_t channel) {
            const struct cuda_four x = cuda_take(n.x, n.type, at, pack),
                                   dy = cuda_take(n.dy, n.type, at, pack);
            const struct cuda_four gamma = take_or<pack>(n.gamma, channel, 1);
            for (int k = 0; k < pack; k++) {
                sums[0] += gamma.v[k] * dy.v[k];
                sums[1] += gamma.v[k] * dy.v[k] * ((x.v[k] - first - mean) * scale);
            }
        });
        teams::sum_together<group, 2>(sums);
        const float sum = sums[0] / (float)n.values, product = sums[1] / (float)n.values;
        each<group, pack>(n, set, [&](int64_t at, int64_t channel) {
            const struct cuda_four x = cuda_take(n.x, n.type, at, pack),
                                   dy = cuda_take(n.dy, n.type, at, pack);
            const struct cuda_four gamma = take_or<pack>(n.gamma, channel, 1);
            struct cuda_four dx = {{0}};
            for (int k = 0; k < pack; k++)
                dx.v[k] = (gamma.v[k] * dy.v[k] - sum - (x.v[k] - first - mean) * scale * product) *
                          scale;
            cuda_give(&n.store, at, dx, pack);
        });
    }
}

// ---- Backward: dgamma and dbeta ----

constexpr int across = teams::warp,
              down = (int)teams::warps; // threads over columns, or packs of them, and over rows

// Adds what the threads of a column have, for those with y = 0.
template <int count> __device__ inline void add_down(float (&sums)[count])
{
    __shared__ float found[threads][count];
    const int y = (int)threadIdx.x / across;
    __syncthreads(); // for the columns before
    for (int k = 0; k < count; k++)
        found[threadIdx.x][k] = sums[k];
    __syncthreads();
    for (int from = 1; y == 0 && from < down; from++)
        for (int k = 0; k < count; k++)
            sums[k] += found[threadIdx.x + from * across][k];
}

// parts: (n.parts, 2, channels), sums of dy h and of dy
template <int pack>
__global__ void __launch_bounds__(threads) add_part(const __grid_constant__ struct cuda_layer n)
{
    const int y = (int)threadIdx.x / across, x = (int)threadIdx.x % across;
    const int64_t row_count = n.sets / n.groups * n.positions,
                  tiles = (n.channels / pack + across - 1) / across;
    for (int64_t block = blockIdx.x; block < n.parts * tiles; block += gridDim.x) {
        const int64_t part = cuda_quotient(block, tiles),
                      channel = ((block - part * tiles) * across + x) * pack;
        const int64_t group = cuda_quotient(channel, n.width);
        float sums[2 * pack] = {0};
        for (int64_t row = part * down + y; channel < n.channels && row < row_count;
             row += n.parts * down) {
            const int64_t set = cuda_quotient(row, n.positions) * n.groups + group;
            const float first = cuda_load(n.x, n.type, start_of(n, set)), mean = n.saved[2 * set],
                        scale = n.saved[2 * set + 1];
            const struct cuda_four in = cuda_take(n.x, n.type, row * n.channels + channel, pack);
            const struct cuda_four dy = cuda_take(n.dy, n.type, row * n.channels + channel, pack);
            for (int k = 0; k < pack; k++) {
                sums[k] += dy.v[k] * ((in.v[k] - first - mean) * scale);
                sums[pack + k] += dy.v[k];
            }
        }
        add_down<2 * pack>(sums);
        for (int k = 0; y == 0 && channel < n.channels && k < pack; k++) {
            n.sums[part * 2 * n.channels + channel + k] = sums[k];
            n.sums[(part * 2 + 1) * n.channels + channel + k] = sums[pack + k];
        }
    }
}

__global__ void __launch_bounds__(threads) add_parts(const __grid_constant__ struct cuda_layer n)
{
    const int y = (int)threadIdx.x / across, x = (int)threadIdx.x % across;
    for (int64_t block = blockIdx.x; block * across < 2 * n.channels; block += gridDim.x) {
        const int64_t column = block * across + x;
        float sums[1] = {0};
        for (int64_t part = y; column < 2 * n.channels && part < n.parts; part += down)
            sums[0] += n.sums[part * 2 * n.channels + column];
        add_down<1>(sums);
        const bool of_beta = column >= n.channels;
        const struct cuda_store &store = of_beta ? n.beta_store : n.gamma_store;
        if (y == 0 && column < 2 * n.channels && store.out)
            cuda_put(&store, of_beta ? column - n.channels : column, sums[0]);
    }
}

} // namespace layers

extern "C" unsigned cuda_layer_launch(uint32_t kernel, const struct cuda_layer *n,
                                      struct CUstream_st *stream)
{
    using namespace layers;
    if (kernel == cuda_layer_add_parts)
        return start_blocks<add_parts>(n, (2 * n->channels + across - 1) / across, stream);
    return for_pack(n->pack, [&](auto pack) {
        if (kernel == cuda_layer_add_part)
            return start_blocks<add_part<pack>>(
                n, n->parts * ((n->channels / pack + across - 1) / across), stream);
        return for_flag(n->wide, [&](auto wide) {
            constexpr unsigned group = wide ? threads : teams::warp;
            return kernel == cuda_layer_forward
                       ? teams::start<group, normalize<group, pack>>(n, n->sets, stream)
                       : teams::start<group, normalize_backward<group, pack>>(n, n->sets, stream);
        });
    });
}

#endif
