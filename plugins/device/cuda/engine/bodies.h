// SPDX-License-Identifier: Apache-2.0
// What our own kernels do with one item: kernels.cu runs it with a thread for an item. Every item writes what no other writes,
// and adds in a fixed order: no atomics, and the same bits whatever the grid.
#ifndef LS_DEVICE_CUDA_BODIES_H
#define LS_DEVICE_CUDA_BODIES_H

#include "plugins/device/cuda/engine/half.h"
#include "plugins/device/cuda/engine/kernels.h"
#include "plugins/device/cuda/engine/random_body.h"
#include "plugins/device/cuda/engine/store_body.h"

#include <math.h>

#define CUDA_BODY(name) CUDA_SHARED void cuda_body_##name(const struct cuda_arguments *a, int64_t i)

// ---- The numbers of an item ----

CUDA_SHARED float cuda_a(const struct cuda_arguments *a, int64_t i)
{
    return cuda_load(a->a, a->a_type, i);
}

CUDA_SHARED float cuda_b(const struct cuda_arguments *a, int64_t i)
{
    return cuda_load(a->b, a->b_type, i);
}

CUDA_SHARED float cuda_bias(const struct cuda_arguments *a, int64_t i)
{
    return cuda_load(a->bias, a->a_type, i);
}

// ---- Windows, and matrices that are turned ----

CUDA_BODY(transpose)
{
    const int64_t column = cuda_quotient(i, a->rows);
    cuda_put(&a->store, i, cuda_a(a, (i - column * a->rows) * a->columns + column));
}

struct cuda_place {
    int64_t b, h, w, c;
};

CUDA_SHARED struct cuda_place cuda_place_of(int64_t i, int64_t height, int64_t width,
                                            int64_t channels)
{
    struct cuda_place p;
    int64_t rest = cuda_quotient(i, channels);
    p.c = i - rest * channels;
    i = cuda_quotient(rest, width);
    p.w = rest - i * width;
    p.b = cuda_quotient(i, height);
    p.h = i - p.b * height;
    return p;
}

CUDA_SHARED int64_t cuda_index(int64_t b, int64_t h, int64_t w, int64_t c, int64_t height,
                               int64_t width, int64_t channels)
{
    return ((b * height + h) * width + w) * channels + c;
}

// Input row (d = 0) or column (1) of output position `out` under element `k` of the window.
CUDA_SHARED int64_t cuda_under(const struct cuda_window *w, int d, int64_t out, int64_t k)
{
    return out * w->stride[d] - w->before[d] + k * w->dilation[d];
}

// The output position that reads input position `in` with element `k`; -1: none.
CUDA_SHARED int64_t cuda_over(const struct cuda_window *w, int d, int64_t in, int64_t k,
                              int64_t limit)
{
    const int64_t at = in + w->before[d] - k * w->dilation[d];
    if (at < 0 || cuda_remainder(at, w->stride[d]))
        return -1;
    const int64_t out = cuda_quotient(at, w->stride[d]);
    return out < limit ? out : -1;
}

CUDA_BODY(pad) // a: (B,H,W,C) -> (B, H + before + after, ...)
{
    const struct cuda_window *w = &a->window;
    const int64_t height = w->height + w->before[0] + w->after[0];
    const int64_t width = w->width + w->before[1] + w->after[1];
    const struct cuda_place p = cuda_place_of(i, height, width, w->channels);
    const int64_t h = p.h - w->before[0], column = p.w - w->before[1];
    const int inside = h >= 0 && h < w->height && column >= 0 && column < w->width;
    const int64_t at = cuda_index(p.b, h, column, p.c, w->height, w->width, w->channels);
    cuda_write(a->store.out, a->store.type, i, inside ? cuda_a(a, at) : 0);
}

CUDA_BODY(crop)
{
    const struct cuda_window *w = &a->window;
    const int64_t height = w->height + w->before[0] + w->after[0];
    const int64_t width = w->width + w->before[1] + w->after[1];
    const struct cuda_place p = cuda_place_of(i, w->height, w->width, w->channels);
    const float value = cuda_a(a, cuda_index(p.b, p.h + w->before[0], p.w + w->before[1], p.c,
                                             height, width, w->channels));
    cuda_put(&a->store, i, a->bias ? value + cuda_bias(a, p.c) : value);
}

// ---- Pooling ----

// Elements of the window at output position `out` that are not padding, along one dimension.
CUDA_SHARED int64_t cuda_inside(const struct cuda_window *w, int d, int64_t out, int64_t limit)
{
    const int64_t start = cuda_under(w, d, out, 0), end = start + w->size[d];
    return (end > limit ? limit : end) - (start < 0 ? 0 : start);
}

CUDA_BODY(average_pool)
{
    const struct cuda_window *w = &a->window;
    const struct cuda_place p = cuda_place_of(i, w->out_height, w->out_width, w->channels);
    float sum = 0;
    for (int64_t kh = 0; kh < w->size[0]; kh++) {
        const int64_t h = cuda_under(w, 0, p.h, kh);
        for (int64_t kw = 0; h >= 0 && h < w->height && kw < w->size[1]; kw++) {
            const int64_t column = cuda_under(w, 1, p.w, kw);
            if (column >= 0 && column < w->width)
                sum += cuda_a(a, cuda_index(p.b, h, column, p.c, w->height, w->width, w->channels));
        }
    }
    const int64_t elements = cuda_inside(w, 0, p.h, w->height) * cuda_inside(w, 1, p.w, w->width);
    cuda_put(&a->store, i, sum / (float)elements);
}

CUDA_BODY(average_pool_backward) // a: dy
{
    const struct cuda_window *w = &a->window;
    const struct cuda_place p = cuda_place_of(i, w->height, w->width, w->channels);
    float sum = 0;
    for (int64_t kh = w->size[0] - 1; kh >= 0; kh--) {
        const int64_t oh = cuda_over(w, 0, p.h, kh, w->out_height);
        for (int64_t kw = w->size[1] - 1; oh >= 0 && kw >= 0; kw--) {
            const int64_t ow = cuda_over(w, 1, p.w, kw, w->out_width);
            if (ow < 0)
                continue;
            const int64_t elements =
                cuda_inside(w, 0, oh, w->height) * cuda_inside(w, 1, ow, w->width);
            sum +=
                cuda_a(a, cuda_index(p.b, oh, ow, p.c, w->out_height, w->out_width, w->channels)) /
                (float)elements;
        }
    }
    cuda_put(&a->store, i, sum);
}

// ---- Convolutions where the library has none: slow, for any shape ----
// w lies as tap_step and filter_step say; a tap is (row, column, channel of the group).

CUDA_SHARED int64_t cuda_tap(const struct cuda_arguments *a, int64_t kh, int64_t kw, int64_t c)
{
    const int64_t group_channels = cuda_quotient(a->window.channels, a->groups);
    return ((kh * a->window.size[1] + kw) * group_channels + c) * a->tap_step;
}

CUDA_BODY(convolution) // a: x, b: w
{
    const struct cuda_window *w = &a->window;
    const struct cuda_place p = cuda_place_of(i, w->out_height, w->out_width, a->filters);
    const int64_t channels = cuda_quotient(w->channels, a->groups);
    const int64_t group = cuda_quotient(p.c, cuda_quotient(a->filters, a->groups));
    double sum = a->bias ? (double)cuda_bias(a, p.c) : 0;
    for (int64_t kh = 0; kh < w->size[0]; kh++) {
        const int64_t h = cuda_under(w, 0, p.h, kh);
        for (int64_t kw = 0; h >= 0 && h < w->height && kw < w->size[1]; kw++) {
            const int64_t column = cuda_under(w, 1, p.w, kw);
            if (column < 0 || column >= w->width)
                continue;
            const int64_t x =
                cuda_index(p.b, h, column, group * channels, w->height, w->width, w->channels);
            const int64_t kernel = cuda_tap(a, kh, kw, 0) + p.c * a->filter_step;
            float part = 0;
            for (int64_t c = 0; c < channels; c++)
                part += cuda_a(a, x + c) * cuda_b(a, kernel + c * a->tap_step);
            sum += (double)part;
        }
    }
    cuda_put(&a->store, i, (float)sum);
}

CUDA_BODY(convolution_data) // a: dy, b: w
{
    const struct cuda_window *w = &a->window;
    const struct cuda_place p = cuda_place_of(i, w->height, w->width, w->channels);
    const int64_t channels = cuda_quotient(w->channels, a->groups);
    const int64_t filters = cuda_quotient(a->filters, a->groups);
    const int64_t group = cuda_quotient(p.c, channels);
    double sum = a->bias ? (double)cuda_bias(a, p.c) : 0;
    for (int64_t kh = 0; kh < w->size[0]; kh++) {
        const int64_t oh = cuda_over(w, 0, p.h, kh, w->out_height);
        for (int64_t kw = 0; oh >= 0 && kw < w->size[1]; kw++) {
            const int64_t ow = cuda_over(w, 1, p.w, kw, w->out_width);
            if (ow < 0)
                continue;
            const int64_t dy =
                cuda_index(p.b, oh, ow, group * filters, w->out_height, w->out_width, a->filters);
            const int64_t kernel =
                cuda_tap(a, kh, kw, p.c - group * channels) + group * filters * a->filter_step;
            float part = 0;
            for (int64_t f = 0; f < filters; f++)
                part += cuda_a(a, dy + f) * cuda_b(a, kernel + f * a->filter_step);
            sum += (double)part;
        }
    }
    cuda_put(&a->store, i, (float)sum);
}

// One weight: items count filters first, as the plain layout (KH,KW,C/groups,F).
CUDA_BODY(convolution_weights) // a: x, b: dy
{
    const struct cuda_window *w = &a->window;
    const int64_t channels = cuda_quotient(w->channels, a->groups);
    const struct cuda_place p = cuda_place_of(i, w->size[1], channels, a->filters);
    const int64_t kh = p.b, kw = p.h, f = p.c; // p.w is the channel
    const int64_t c = cuda_quotient(f, cuda_quotient(a->filters, a->groups)) * channels + p.w;
    double sum = 0;
    for (int64_t b = 0; b < w->batch; b++)
        for (int64_t oh = 0; oh < w->out_height; oh++) {
            const int64_t h = cuda_under(w, 0, oh, kh);
            float part = 0;
            for (int64_t ow = 0; h >= 0 && h < w->height && ow < w->out_width; ow++) {
                const int64_t column = cuda_under(w, 1, ow, kw);
                if (column >= 0 && column < w->width)
                    part +=
                        cuda_a(a, cuda_index(b, h, column, c, w->height, w->width, w->channels)) *
                        cuda_b(a,
                               cuda_index(b, oh, ow, f, w->out_height, w->out_width, a->filters));
            }
            sum += (double)part;
        }
    cuda_put(&a->store, cuda_tap(a, kh, kw, p.w) + f * a->filter_step, (float)sum);
}

// ---- Losses ----

CUDA_SHARED float cuda_clip(float p, float epsilon)
{
    const float high = 1 - epsilon;
    return p < epsilon ? epsilon : p > high ? high : p;
}

CUDA_SHARED float cuda_weight(const struct cuda_arguments *a, float p, float largest)
{
    return a->from_logits ? expf(p - largest) : cuda_clip(p, a->epsilon);
}

// Four elements of float32 from k on, of which the last may be missing: in the same order whether they are aligned or not.
CUDA_SHARED struct cuda_four cuda_four_of(const struct cuda_arguments *a, int64_t k)
{
    struct cuda_four out = {{0}};
    if ((uintptr_t)a->a % sizeof(out) == 0 && k + 4 <= a->count)
        return cuda_load_four(a->a, CUDA_FLOAT, k);
    for (int e = 0; e < 4; e++)
        if (k + e < a->count)
            out.v[e] = ((const float *)a->a)[k + e];
    return out;
}

// ---- Moving statistics, guard ----

// What a step contributes to moving statistics. a: mean, into the store; b: variance, into `first`
CUDA_BODY(batch_statistics)
{
    const double weight = (double)a->factor * (double)a->record->share_weight;
    const float variance = (float)(weight * (double)cuda_b(a, i));
    cuda_put(&a->store, i, (float)(weight * (double)cuda_a(a, i)));
    a->first[i] = a->add_first ? a->first[i] + variance : variance;
}

CUDA_BODY(guard)
{
    int32_t *flags = a->flags[0] + i;
    for (int64_t k = 0; k < a->count; k++)
        if (!isfinite(cuda_a(a, k)))
            *flags = 1;
    if (*flags)
        a->flags[1][i] = 1;
}

#endif
