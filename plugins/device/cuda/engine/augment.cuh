// SPDX-License-Identifier: Apache-2.0
// Images: what is drawn for them, another size, transforms, colours, patches. The arithmetic is
// that of core/plugin/augment.h, which is no CUDA C++: each operation of a coordinate or a factor
// is rounded by itself, so nvcc must not make one of a product and a sum.
#ifndef LS_DEVICE_CUDA_AUGMENT_CUH
#define LS_DEVICE_CUDA_AUGMENT_CUH

#include "plugins/device/cuda/engine/pairs.cuh"
#include "plugins/device/cuda/engine/random_body.h"
#include "plugins/device/cuda/engine/store_body.h"

namespace augment
{

__device__ inline float times(float a, float b)
{
    return __fmul_rn(a, b);
}

__device__ inline float plus(float a, float b)
{
    return __fadd_rn(a, b);
}

__device__ inline double times(double a, double b)
{
    return __dmul_rn(a, b);
}

__device__ inline double plus(double a, double b)
{
    return __dadd_rn(a, b);
}

// ---- Factors ----

__device__ inline double between(uint64_t key, uint64_t index, double low, double high)
{
    const double part = (double)(cuda_mix(key, index) >> 11) * (1.0 / 9007199254740992.0); // 2^53
    return plus(low, times(high - low, part));
}

struct factors {
    float v[8];
};

__device__ inline struct factors around_middle(const struct cuda_augment &a, double a0, double a1,
                                               double b0, double b1)
{
    const double x = (double)(a.columns - 1) / 2, y = (double)(a.rows - 1) / 2;
    struct factors out = {{(float)a0, (float)a1, 0, (float)b0, (float)b1, 0, 0, 0}};
    out.v[2] = (float)plus(plus(x, -times(a0, x)), -times(a1, y));
    out.v[5] = (float)plus(plus(y, -times(b0, x)), -times(b1, y));
    return out;
}

// Columns by the first two, rows by the others.
__device__ inline struct factors patch(const struct cuda_augment &a, uint64_t key)
{
    const double low = (double)a.other_low, high = (double)a.other_high;
    const double width = (double)a.columns, height = (double)a.rows;
    const double across = times(sqrt(between(key, 1, low, high)), width);
    const double down = times(sqrt(between(key, 5, low, high)), height);
    const double left = between(key, 3, 0, plus(width, -across));
    const double top = between(key, 4, 0, plus(height, -down));
    return {{(float)left, (float)plus(left, across), (float)top, (float)plus(top, down)}};
}

__device__ inline struct factors drawn(const struct cuda_augment &a, uint64_t key)
{
    const double first = between(key, 0, (double)a.low, (double)a.high);
    const double other = between(key, 1, (double)a.other_low, (double)a.other_high);
    const double sign = between(key, 0, 0, 1) < 0.5 ? -1 : 1;
    struct factors out = {{1, 0, 0, 0, 1, 0, 0, 0}};

    switch (a.function) {
    case LS_DRAW_FLIP_COLUMNS: return around_middle(a, sign, 0, 0, 1);
    case LS_DRAW_FLIP_ROWS: return around_middle(a, 1, 0, 0, sign);
    case LS_DRAW_FLIP_BOTH: return around_middle(a, sign, 0, 0, sign);
    case LS_DRAW_ROTATION: { // in half turns: cos() of any angle would want a stack
        const double cosine = cospi(2 * first), sine = sinpi(2 * first);
        return around_middle(a, cosine, -sine, sine, cosine);
    }
    case LS_DRAW_ZOOM: return around_middle(a, 1 + other, 0, 0, 1 + first);
    case LS_DRAW_ZOOM_EVEN: return around_middle(a, 1 + first, 0, 0, 1 + first);
    case LS_DRAW_TRANSLATION:
        out.v[2] = (float)times(-other, (double)a.columns);
        out.v[5] = (float)times(-first, (double)a.rows);
        return out;
    case LS_DRAW_CROP:
        out.v[2] = (float)floor(between(key, 1, 0, (double)(a.columns - a.crop[1] + 1)));
        out.v[5] = (float)floor(between(key, 0, 0, (double)(a.rows - a.crop[0] + 1)));
        return out;
    case LS_DRAW_CONTRAST: return {{(float)first}};
    case LS_DRAW_BRIGHTNESS: return {{1, (float)first}};
    default: // a patch, or none
        return between(key, 2, 0, 1) < first ? patch(a, key) : factors{{0}};
    }
}

__device__ inline void draw(const struct cuda_augment *a, int64_t example)
{
    const struct factors out = drawn(*a, cuda_draw_key(a->record, a->key, example));
#pragma unroll
    for (int k = 0; k < 8; k++)
        if (k < a->numbers)
            cuda_put(&a->store, example * a->numbers + k, out.v[k]);
}

// ---- Pixels that one is made of ----

struct taps {
    int32_t count; // 1 or 4
    int64_t at[4]; // -1: outside
    float weight[4];
};

__device__ inline int64_t tap_at(const struct cuda_augment &a, float row, float column)
{
    return row >= 0 && row < (float)a.rows && column >= 0 && column < (float)a.columns
               ? (int64_t)row * a.columns + (int64_t)column
               : -1;
}

__device__ inline struct taps taps_around(const struct cuda_augment &a, bool mixed, float row,
                                          float column)
{
    struct taps out = {mixed ? 4 : 1, {-1, -1, -1, -1}, {1, 0, 0, 0}};
    if (!mixed) {
        out.at[0] = tap_at(a, roundf(row), roundf(column));
        return out;
    }
    const float top = floorf(row), left = floorf(column), down = row - top, right = column - left;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        out.at[i] = tap_at(a, top + (float)(i >> 1), left + (float)(i & 1));
        out.weight[i] = times(i >> 1 ? down : 1 - down, i & 1 ? right : 1 - right);
    }
    return out;
}

__device__ inline float fill_inside(uint32_t fill, float at, int64_t size)
{
    const float length = (float)size, last = (float)(size - 1);

    if (fill == LS_FILL_CONSTANT || (at >= 0 && at <= last))
        return at;
    if (size > 1 && fill == LS_FILL_REFLECT) {
        at = at < 0 ? -at - 1 : at;
        at = plus(at, -times(2 * length, truncf(at / (2 * length))));
        at = at >= length ? plus(plus(2 * length, -at), -1.0f) : at;
    } else if (size > 1 && fill == LS_FILL_WRAP) {
        at = plus(at, at < 0 ? times(length, truncf(-at / last) + 1)
                             : -times(length, truncf(at / last)));
    }
    return at > 0 ? (at < last ? at : last) : 0; // NaN: 0
}

__device__ inline float resize_at(uint32_t function, int64_t o, int64_t small, int64_t large)
{
    const float middle = times((float)o + 0.5f, (float)small / (float)large);
    const float at = function == LS_UPSAMPLE_NEAREST ? floorf(middle) : plus(middle, -0.5f);
    return fill_inside(LS_FILL_NEAREST, at, small);
}

// Of pixel (row, column) of y of example b.
__device__ inline struct taps taps_of(const struct cuda_augment &a, int64_t b, int64_t row,
                                      int64_t column)
{
    if (!a.factors)
        return taps_around(a, a.function == LS_UPSAMPLE_BILINEAR,
                           resize_at(a.function, row, a.rows, a.to_rows),
                           resize_at(a.function, column, a.columns, a.to_columns));
    const float *f = a.factors + 8 * b, x = (float)column, y = (float)row;
    const float k = plus(plus(times(f[6], x), times(f[7], y)), 1.0f);
    const float from_x = plus(plus(times(f[0], x), times(f[1], y)), f[2]) / k;
    const float from_y = plus(plus(times(f[3], x), times(f[4], y)), f[5]) / k;
    const uint32_t fill = a.function & LS_FILL_MASK;
    if (k == 0)
        return {1, {-1, -1, -1, -1}, {1, 0, 0, 0}};
    return taps_around(a, a.function & LS_RESAMPLE_BILINEAR, fill_inside(fill, from_y, a.rows),
                       fill_inside(fill, from_x, a.columns));
}

// ---- x -> y: an item is a pixel of four channels, or of those that are left ----

__host__ __device__ inline int64_t channel_groups(const struct cuda_augment &a)
{
    return (a.channels + 3) / 4;
}

__device__ inline void sample(const struct cuda_augment *a, int64_t i)
{
    const int64_t groups = channel_groups(*a), place = cuda_quotient(i, groups);
    const int64_t line = cuda_quotient(place, a->to_columns), column = place - line * a->to_columns;
    const int64_t b = cuda_quotient(line, a->to_rows), row = line - b * a->to_rows;
    const int64_t first = 4 * (i - place * groups);
    const struct taps taps = taps_of(*a, b, row, column);
    float sum[4] = {0, 0, 0, 0};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const float *x = a->x + (b * a->rows * a->columns + taps.at[k]) * a->channels + first;
#pragma unroll
        for (int c = 0; c < 4; c++)
            if (k < taps.count && first + c < a->channels)
                sum[c] += taps.weight[k] * (taps.at[k] < 0 ? a->offset : x[c]);
    }
#pragma unroll
    for (int c = 0; c < 4; c++)
        if (first + c < a->channels)
            cuda_put(&a->store, place * a->channels + first + c, sum[c]);
}

// ---- dy -> dx ----

// A block has as many pixels of dx as threads, and goes over all of dy in order. Each thread says
// where one pixel of dy came from; then all of them look at those that came from the block's
// pixels. No two threads add to one element.

__global__ void __launch_bounds__(CUDA_BLOCK)
    cuda_sample_backward(const __grid_constant__ struct cuda_augment a, int64_t tiles)
{
    __shared__ int32_t at[4][CUDA_BLOCK]; // pixel of the block; -1: another one
    __shared__ float weight[4][CUDA_BLOCK];
    __shared__ unsigned hits[CUDA_BLOCK / 32]; // lanes of a warp
    const int64_t groups = channel_groups(a), image = a.rows * a.columns,
                  pixels = a.to_rows * a.to_columns;
    const int32_t thread = (int32_t)threadIdx.x;

    for (int64_t block = blockIdx.x; block < a.batch * tiles * groups; block += gridDim.x) {
        const int64_t place = cuda_quotient(block, groups), b = cuda_quotient(place, tiles);
        const int64_t first = (place - b * tiles) * CUDA_BLOCK,
                      channel = 4 * (block - place * groups);
        double sum[4] = {0, 0, 0, 0};
        for (int64_t start = 0; start < pixels; start += CUDA_BLOCK) {
            const int64_t pixel = start + thread < pixels ? start + thread : pixels - 1;
            const int64_t row = cuda_quotient(pixel, a.to_columns);
            const struct taps taps = taps_of(a, b, row, pixel - row * a.to_columns);
            bool hit = false;
            __syncthreads(); // those before have been read
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const bool here = start + thread < pixels && k < taps.count &&
                                  taps.at[k] >= first && taps.at[k] < first + CUDA_BLOCK;
                at[k][thread] = here ? (int32_t)(taps.at[k] - first) : -1;
                weight[k][thread] = taps.weight[k];
                hit |= here;
            }
            const unsigned lanes = __ballot_sync(0xffffffff, hit);
            if (thread % 32 == 0)
                hits[thread / 32] = lanes;
            __syncthreads();
            for (int warp = 0; warp < CUDA_BLOCK / 32; warp++)
                for (unsigned left = hits[warp]; left; left &= left - 1) {
                    const int from = warp * 32 + __ffs((int)left) - 1;
                    const float *dy = a.x + (b * pixels + start + from) * a.channels + channel;
                    for (int k = 0; k < 4; k++)
                        if (at[k][from] == thread) {
#pragma unroll
                            for (int c = 0; c < 4; c++)
                                if (channel + c < a.channels)
                                    sum[c] += (double)weight[k][from] * (double)dy[c];
                        }
                }
        }
#pragma unroll
        for (int c = 0; c < 4; c++)
            if (first + thread < image && channel + c < a.channels)
                cuda_put(&a.store, (b * image + first + thread) * a.channels + channel + c,
                         (float)sum[c]);
    }
}

// ---- Colours: a block has a channel of an image ----

struct colour {
    double scale, offset, mean, low, high;
};

__device__ inline double coloured(const struct colour &f, float x)
{
    return plus(plus(times((double)x - f.mean, f.scale), f.mean), f.offset);
}

__device__ inline bool goes_through(const struct colour &f, float x)
{
    const double y = coloured(f, x);
    return y >= f.low && y <= f.high;
}

// term(element) of all elements of the channel, added up; each thread gets it.
template <typename function>
__device__ inline double channel_sum(int64_t first, int64_t pixels, int64_t channels, function term)
{
    double2 sum = make_double2(0, 0);
    for (int64_t k = threadIdx.x; k < pixels; k += CUDA_BLOCK)
        sum.x += term(first + k * channels);
    __syncthreads(); // what was added before has been read
    return cuda_block_sum(sum).x;
}

template <bool backward>
__global__ void __launch_bounds__(CUDA_BLOCK)
    cuda_recolour(const __grid_constant__ struct cuda_augment a)
{
    const int64_t pixels = a.rows * a.columns;
    const bool around = a.function == LS_RECOLOUR_AROUND_MEAN;
    const double each = 1 / (double)pixels; // a division among other numbers would want a stack
    for (int64_t at = blockIdx.x; at < a.batch * a.channels; at += gridDim.x) {
        const int64_t b = cuda_quotient(at, a.channels);
        const int64_t first = b * pixels * a.channels + (at - b * a.channels);
        struct colour f = {(double)a.factors[2 * b], (double)a.factors[2 * b + 1], 0, (double)a.low,
                           (double)a.high};
        double shared = 0; // what each element has of the gradients of all
        if (around)
            f.mean =
                channel_sum(first, pixels, a.channels, [&](int64_t i) { return (double)a.x[i]; }) *
                each;
        if (backward && around)
            shared = (1 - f.scale) * each * channel_sum(first, pixels, a.channels, [&](int64_t i) {
                         return goes_through(f, a.x[i]) ? (double)a.dy[i] : 0;
                     });
        for (int64_t k = threadIdx.x; k < pixels; k += CUDA_BLOCK) {
            const int64_t i = first + k * a.channels;
            if (backward) {
                cuda_put(
                    &a.store, i,
                    (float)((goes_through(f, a.x[i]) ? f.scale * (double)a.dy[i] : 0) + shared));
                continue;
            }
            const double y = coloured(f, a.x[i]);
            cuda_put(&a.store, i, (float)(y < f.low ? f.low : y > f.high ? f.high : y));
        }
    }
}

// ---- Patches ----

__device__ inline void erase(const struct cuda_augment *a, int64_t i)
{
    const int64_t pixel = cuda_quotient(i, a->channels), line = cuda_quotient(pixel, a->columns);
    const int64_t b = cuda_quotient(line, a->rows);
    const float column = (float)(pixel - line * a->columns), row = (float)(line - b * a->rows);
    const float *f = a->factors + 4 * b;
    float y = a->x[i];
    if (column >= f[0] && column < f[1] && row >= f[2] && row < f[3]) {
        y = a->backward ? 0 : a->offset;
        if (!a->backward && a->function == LS_ERASE_NOISE) {
            const int64_t element = i - b * a->rows * a->columns * a->channels;
            const float z = cuda_normal(cuda_draw_key(a->record, a->key, b), (uint64_t)element);
            y = fminf(fmaxf(a->factor * z, a->low), a->high);
        }
    }
    cuda_put(&a->store, i, y);
}

} // namespace augment

extern "C" unsigned cuda_augment_launch(uint32_t kernel, const struct cuda_augment *a,
                                        struct CUstream_st *stream)
{
    using namespace augment;
    switch (kernel) {
    case cuda_augment_draw: return start<struct cuda_augment, draw>(a, a->batch, stream);
    case cuda_augment_erase:
        return start<struct cuda_augment, erase>(a, a->batch * a->rows * a->columns * a->channels,
                                                 stream);
    case cuda_augment_recolour:
        return for_flag(a->backward, [&](auto backward) {
            return start_blocks<cuda_recolour<backward>>(a, a->batch * a->channels, stream);
        });
    default: break;
    }
    if (!a->backward)
        return start<struct cuda_augment, sample>(
            a, a->batch * a->to_rows * a->to_columns * channel_groups(*a), stream);
    const int64_t tiles = (a->rows * a->columns + CUDA_BLOCK - 1) / CUDA_BLOCK,
                  all = a->batch * tiles * channel_groups(*a);
    return launch<cuda_sample_backward>(dim3((unsigned)(all < most_blocks ? all : most_blocks)),
                                        CUDA_BLOCK, stream, *a, tiles);
}

#endif
