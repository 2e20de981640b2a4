// SPDX-License-Identifier: Apache-2.0
// What moves elements: parts and transposed tensors, concatenation, upsampling. An item is a pack: one element, or four side by side
// where all rows have a multiple of four.
#ifndef LS_DEVICE_CUDA_MOVE_CUH
#define LS_DEVICE_CUDA_MOVE_CUH

#include "plugins/device/cuda/engine/grid.cuh"
#include "plugins/device/cuda/engine/store_body.h"

namespace moves {

template <int pack>
__device__ void move(const struct cuda_move *m, int64_t i)
{
    int64_t rest = i, at = 0;
    bool inside = true;
    for (int d = m->dims - 1; d >= 0; d--) {
        const int64_t above = d ? cuda_quotient(rest, m->out[d]) : 0;
        const int64_t place = rest - above * m->out[d] + m->shift[d];
        inside = inside && place >= 0 && place < m->in[d];
        at += place * m->step[d];
        rest = above;
    }
    struct cuda_four x = {{0}};
    if (inside)
        x = cuda_take(m->from, m->type, pack * at, pack);
    cuda_give(&m->store, pack * i, x, pack);
}

// By tiles, so that what lies side by side is read and written side by side, though it is another dimension.
__global__ void __launch_bounds__(threads) turn(const __grid_constant__ struct cuda_move m)
{
    constexpr int side = CUDA_TURNED_TILE, rows = (int)threads / side;
    __shared__ float tile[side][side + 1];
    const int x = (int)threadIdx.x % side, y = (int)threadIdx.x / side, last = m.dims - 1;
    for (int64_t block = blockIdx.x; block < m.blocks; block += gridDim.x) {
        const int64_t above = cuda_quotient(block, m.tiles[1]);
        int64_t outer = cuda_quotient(above, m.tiles[0]), from = 0, to = 0, step = 1, turned_step = 1;
        const int64_t first = (above - outer * m.tiles[0]) * side; // of dimension `turned`
        const int64_t first_last = (block - above * m.tiles[1]) * side;
        for (int d = last; d >= 0; d--) {
            int64_t place = d == last ? first_last : first;
            if (d != last && d != m.turned) {
                const int64_t rest = d ? cuda_quotient(outer, m.out[d]) : 0;
                place = outer - rest * m.out[d];
                outer = rest;
            }
            turned_step = d == m.turned ? step : turned_step;
            from += place * m.step[d];
            to += place * step;
            step *= m.out[d];
        }
        const int64_t columns = m.out[m.turned] - first, lines = m.out[last] - first_last;
        for (int k = y; k < side; k += rows)
            if (x < columns && k < lines)
                tile[k][x] = cuda_load(m.from, m.type, from + x + k * m.step[last]);
        __syncthreads();
        for (int k = y; k < side; k += rows)
            if (x < lines && k < columns)
                cuda_put(&m.store, to + k * turned_step + x, tile[x][k]);
        __syncthreads(); // the next turn writes what is read here
    }
}

// Item: a pack of the whole.
template <int pack>
__device__ void concatenate(const struct cuda_concatenation *c, int64_t i)
{
    const int64_t end = c->start[CUDA_PARTS];
    const int64_t row = cuda_quotient(i, end), column = i - row * end;
    int k = 0;
    while (column >= c->start[k + 1])
        k++;
    const int64_t at = row * (c->start[k + 1] - c->start[k]) + column - c->start[k];
    if (!c->whole) {
        cuda_give(&c->store, pack * i, cuda_take(c->parts[k], c->store.type, pack * at, pack), pack);
        return;
    }
    struct cuda_store store = c->store;
    store.out = c->parts[k];
    store.add = c->add >> k & 1;
    cuda_give(&store, pack * at, cuda_take(c->whole, store.type, pack * i, pack), pack);
}

// Row or column `out` of y is between two of x, whose numbers are below `size`: `right` of the second, the rest of the first.
struct between {
    int64_t first, second;
    float right;
};

__device__ inline between between_of(bool bilinear, int64_t size, int64_t factor, int64_t out)
{
    if (!bilinear) {
        const int64_t same = cuda_quotient(out, factor);
        return {same, same, 0};
    }
    // (out + 1/2) / factor - 1/2, and 1 more so that it is above 0, as a fraction of 2 factor.
    const int64_t above = 2 * out + 1 + factor, second = cuda_quotient(above, 2 * factor);
    const float right = (float)(above - second * 2 * factor) / (float)(2 * factor);
    return {second > 0 ? second - 1 : 0, second < size ? second : size - 1, right};
}

// Item: a pack of y.
template <int pack>
__device__ void upsample(const struct cuda_upsampling *u, int64_t i)
{
    const int64_t position = cuda_quotient(i, u->channels), channel = i - position * u->channels;
    const int64_t line = cuda_quotient(position, u->columns * u->factor[1]);
    const int64_t image = cuda_quotient(line, u->rows * u->factor[0]);
    const between row = between_of(u->bilinear, u->rows, u->factor[0], line - image * u->rows * u->factor[0]);
    const between column =
        between_of(u->bilinear, u->columns, u->factor[1], position - line * u->columns * u->factor[1]);
    struct cuda_four y = {{0}}, x[4];
    for (int k = 0; k < 4; k++) {
        const int64_t h = k / 2 ? row.second : row.first, w = k % 2 ? column.second : column.first;
        x[k] = cuda_take(u->from, u->type, pack * (((image * u->rows + h) * u->columns + w) * u->channels + channel), pack);
    }
    for (int k = 0; k < 4; k++)
        for (int e = 0; e < pack; e++)
            y.v[e] += (k / 2 ? row.right : 1 - row.right) * (k % 2 ? column.right : 1 - column.right) * x[k].v[e];
    cuda_give(&u->store, pack * i, y, pack);
}

// How much of row or column `at` of x is in `out` of y.
__device__ inline float share(const struct cuda_upsampling *u, int axis, int64_t at, int64_t out)
{
    const between b = between_of(u->bilinear, axis ? u->columns : u->rows, u->factor[axis], out);
    return (b.first == at ? 1 - b.right : 0) + (b.second == at ? b.right : 0);
}

// Item: a pack of dx, which adds what the rows and columns of dy around it have of it, in their order.
template <int pack>
__device__ void upsample_backward(const struct cuda_upsampling *u, int64_t i)
{
    const int64_t position = cuda_quotient(i, u->channels), channel = i - position * u->channels;
    const int64_t line = cuda_quotient(position, u->columns), image = cuda_quotient(line, u->rows);
    const int64_t at[2] = {line - image * u->rows, position - line * u->columns};
    const int64_t size[2] = {u->rows * u->factor[0], u->columns * u->factor[1]};
    int64_t from[2], to[2];
    for (int d = 0; d < 2; d++) {
        from[d] = (at[d] - u->bilinear) * u->factor[d];
        to[d] = (at[d] + 1 + u->bilinear) * u->factor[d];
        from[d] = from[d] < 0 ? 0 : from[d];
        to[d] = to[d] > size[d] ? size[d] : to[d];
    }
    struct cuda_four dx = {{0}};
    for (int64_t h = from[0]; h < to[0]; h++) {
        const float lower = share(u, 0, at[0], h);
        for (int64_t w = from[1]; w < to[1]; w++) {
            const float weight = lower * share(u, 1, at[1], w);
            const int64_t element = pack * (((image * size[0] + h) * size[1] + w) * u->channels + channel);
            struct cuda_four dy = {{0}};
            if (weight != 0)
                dy = cuda_take(u->from, u->type, element, pack);
            for (int e = 0; e < pack; e++)
                dx.v[e] += weight * dy.v[e];
        }
    }
    cuda_give(&u->store, pack * i, dx, pack);
}

} // namespace moves

extern "C" unsigned cuda_move_launch(const struct cuda_move *m, struct CUstream_st *stream)
{
    if (m->turned >= 0)
        return start_blocks<moves::turn>(m, m->blocks, stream);
    return for_pack(m->pack, [&](auto pack) { return start<struct cuda_move, moves::move<pack>>(m, m->items, stream); });
}

extern "C" unsigned cuda_concatenation_launch(const struct cuda_concatenation *c, struct CUstream_st *stream)
{
    return for_pack(c->pack, [&](auto pack) { return start<struct cuda_concatenation, moves::concatenate<pack>>(c, c->items, stream); });
}

extern "C" unsigned cuda_upsampling_launch(const struct cuda_upsampling *u, struct CUstream_st *stream)
{
    return for_pack(u->pack, [&](auto pack) {
        return u->backward ? start<struct cuda_upsampling, moves::upsample_backward<pack>>(u, u->items, stream)
                           : start<struct cuda_upsampling, moves::upsample<pack>>(u, u->items, stream);
    });
}

#endif
