// SPDX-License-Identifier: Apache-2.0
// Pooling of any window, stride and padding, forward and backward; compiled for each instruction
// set. The innermost axis of the layout (a block of channels, or all of them) is the vector. A
// saved index is row * kernel columns + column of the largest element in its window; its top bit
// says that the largest is not above 0, so that the backward of a ReLU before the pooling needs
// nothing else.
#include "plugins/device/cpu/loops.h"

#include <string.h>

// Widths that the instruction set has registers for: gcc takes wider vectors apart element by
// element.
#if defined(__AVX512F__)
#define POOL_WIDTH 16
#include "plugins/device/cpu/loops_pooling_chunk.h"
#undef POOL_WIDTH
#endif
#if defined(__AVX2__)
#define POOL_WIDTH 8
#include "plugins/device/cpu/loops_pooling_chunk.h"
#undef POOL_WIDTH
#endif
#define POOL_WIDTH 4
#include "plugins/device/cpu/loops_pooling_chunk.h"
#undef POOL_WIDTH
#define POOL_WIDTH 1
#include "plugins/device/cpu/loops_pooling_chunk.h"
#undef POOL_WIDTH

#define ALWAYS_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
#define CHUNKS_OF_16(inner, call)                  \
    for (; channel + 16 <= (inner); channel += 16) \
    call(16, channel)
#else
#define CHUNKS_OF_16(inner, call)
#endif
#if defined(__AVX2__)
#define CHUNKS_OF_8(inner, call)                 \
    for (; channel + 8 <= (inner); channel += 8) \
    call(8, channel)
#else
#define CHUNKS_OF_8(inner, call)
#endif

// Runs `call(lanes, channel)` over the channels [0, inner), in the widest pieces that fit.
#define FOR_EACH_CHUNK(inner, call)                  \
    do {                                             \
        int64_t channel = 0;                         \
        CHUNKS_OF_16(inner, call);                   \
        CHUNKS_OF_8(inner, call);                    \
        for (; channel + 4 <= (inner); channel += 4) \
            call(4, channel);                        \
        for (; channel < (inner); channel++)         \
            call(1, channel);                        \
    } while (0)

struct span {
    int64_t begin, end;
};

// Which of the `kernel` elements of the window at `start` lie in [0, size).
ALWAYS_INLINE struct span window_span(int64_t start, int64_t kernel, int64_t size)
{
    struct span span = {start < 0 ? -start : 0, start + kernel > size ? size - start : kernel};
    return span;
}

// A window that lies in the padding alone has the value 0 and gives its gradient to nobody.
static void empty_window(const struct cpu_pool *pool, float *y, void *saved, int64_t at)
{
    memset(y, 0, (size_t)pool->inner * sizeof(float));
    if (saved)
        memset((uint8_t *)saved + at * pool->index_bytes, 0xff,
               (size_t)pool->inner * pool->index_bytes);
}

// One row of y. `inner`, the kernel, the strides and `bytes` are constants where this is worth it.
ALWAYS_INLINE void largest_row(const struct cpu_pool *pool, int64_t inner, int64_t kernel_rows,
                               int64_t kernel_columns, int64_t stride, uint32_t bytes,
                               const float *x, float *y, void *saved, int64_t at, int64_t out_row)
{
    const int64_t top = out_row * pool->strides[0] - pool->before[0];
    const struct span rows = window_span(top, kernel_rows, pool->height);
    for (int64_t o = 0; o < pool->out_width; o++, y += inner, at += inner) {
        const int64_t left = o * stride - pool->before[1];
        const struct span columns = window_span(left, kernel_columns, pool->width);
        const float *window = x + (top * pool->width + left) * inner;
        if (rows.begin == 0 && rows.end == kernel_rows && columns.begin == 0 &&
            columns.end == kernel_columns) {
#define WHOLE(lanes, channel)                                                                \
    largest_window_##lanes(window + channel, pool->width * inner, inner, kernel_columns, 0,  \
                           kernel_rows, 0, kernel_columns, y + channel, saved, at + channel, \
                           bytes)
            FOR_EACH_CHUNK(inner, WHOLE);
#undef WHOLE
        } else if (rows.begin < rows.end && columns.begin < columns.end) {
#define PART(lanes, channel)                                                                     \
    largest_window_##lanes(window + channel, pool->width * inner, inner, kernel_columns,         \
                           rows.begin, rows.end, columns.begin, columns.end, y + channel, saved, \
                           at + channel, bytes)
            FOR_EACH_CHUNK(inner, PART);
#undef PART
        } else {
            empty_window(pool, y, saved, at);
        }
    }
}

static void largest(const struct cpu_pool *pool, const float *x, float *y, void *saved,
                    int64_t begin, int64_t end)
{
    const int64_t plane = pool->height * pool->width * pool->inner,
                  row = pool->out_width * pool->inner;
    const int64_t *k = pool->kernel;
    const int two = k[0] == 2 && k[1] == 2 && pool->strides[1] == 2, bytes = pool->index_bytes == 1;
    for (int64_t r = begin; r < end; r++) {
        const float *from = x + r / pool->out_height * plane;
        const int64_t out_row = r % pool->out_height, at = r * row;
        if (two && bytes && pool->inner == 16)
            largest_row(pool, 16, 2, 2, 2, 1, from, y + at, saved, at, out_row);
        else if (bytes && pool->inner == 16)
            largest_row(pool, 16, k[0], k[1], pool->strides[1], 1, from, y + at, saved, at,
                        out_row);
        else if (bytes && pool->inner == 8)
            largest_row(pool, 8, k[0], k[1], pool->strides[1], 1, from, y + at, saved, at, out_row);
        else
            largest_row(pool, pool->inner, k[0], k[1], pool->strides[1], pool->index_bytes, from,
                        y + at, saved, at, out_row);
    }
}

// The rows of y whose windows hold row `r` of x.
ALWAYS_INLINE struct span covering(int64_t r, int64_t before, int64_t kernel, int64_t stride,
                                   int64_t count)
{
    const int64_t low = r + before - kernel + 1, high = (r + before) / stride + 1;
    struct span span = {low > 0 ? (low + stride - 1) / stride : 0, high < count ? high : count};
    return span;
}

// Window column `c` gives to one row of dx: element c of window o lies at column o * stride + c -
// before.
ALWAYS_INLINE struct span giving(const struct cpu_pool *pool, int64_t c, int64_t stride)
{
    const int64_t shift = pool->before[1] - c, room = pool->width - 1 + shift;
    struct span span = {shift > 0 ? (shift + stride - 1) / stride : 0,
                        room < 0 ? 0 : room / stride + 1};
    if (span.end > pool->out_width)
        span.end = pool->out_width;
    return span;
}

// One row of dx, gathered from the rows of dy whose windows hold it. Where windows do not overlap
// every element is written once; else they are added in row order.
ALWAYS_INLINE void largest_backward_row(const struct cpu_pool *pool, int64_t inner,
                                        int64_t kernel_columns, int64_t stride, uint32_t bytes,
                                        uint32_t overlap, const float *dy, const void *saved,
                                        int64_t plane, float *dx, int64_t x_row)
{
    const struct span rows =
        covering(x_row, pool->before[0], pool->kernel[0], pool->strides[0], pool->out_height);
    const int64_t covered = pool->out_width * kernel_columns;
    if (overlap || rows.begin >= rows.end || pool->before[1] || covered != pool->width ||
        stride != kernel_columns)
        memset(dx, 0, (size_t)(pool->width * inner) * sizeof(float));
    for (int64_t r = rows.begin; r < rows.end; r++) {
        const int64_t index = (x_row + pool->before[0] - r * pool->strides[0]) * kernel_columns;
        for (int64_t c = 0; c < kernel_columns; c++) {
            const struct span span = giving(pool, c, stride);
            int64_t at = plane + (r * pool->out_width + span.begin) * inner;
            float *to = dx + (span.begin * stride + c - pool->before[1]) * inner;
            for (int64_t o = span.begin; o < span.end; o++, at += inner, to += stride * inner) {
#define GIVE(lanes, channel)                                                               \
    largest_give_##lanes(dy, saved, at + channel, bytes, (int32_t)(index + c), pool->relu, \
                         overlap, to + channel)
                FOR_EACH_CHUNK(inner, GIVE);
#undef GIVE
            }
        }
    }
}

static void largest_backward(const struct cpu_pool *pool, const float *dy, const void *saved,
                             float *dx, int64_t begin, int64_t end)
{
    const int64_t out_plane = pool->out_height * pool->out_width * pool->inner;
    const int64_t row = pool->width * pool->inner, columns = pool->kernel[1],
                  stride = pool->strides[1];
    const uint32_t overlap = pool->strides[0] < pool->kernel[0] || stride < columns;
    const int bytes = pool->index_bytes == 1;
    for (int64_t r = begin; r < end; r++) {
        const int64_t plane = r / pool->height * out_plane, x_row = r % pool->height;
        float *to = dx + r * row;
        if (bytes && pool->inner == 16 && !overlap)
            largest_backward_row(pool, 16, columns, stride, 1, 0, dy, saved, plane, to, x_row);
        else if (bytes && pool->inner == 16)
            largest_backward_row(pool, 16, columns, stride, 1, 1, dy, saved, plane, to, x_row);
        else if (bytes && pool->inner == 8)
            largest_backward_row(pool, 8, columns, stride, 1, overlap, dy, saved, plane, to, x_row);
        else
            largest_backward_row(pool, pool->inner, columns, stride, pool->index_bytes, overlap, dy,
                                 saved, plane, to, x_row);
    }
}

ALWAYS_INLINE void mean_row(const struct cpu_pool *pool, int64_t inner, const float *x, float *y,
                            int64_t out_row)
{
    const int64_t top = out_row * pool->strides[0] - pool->before[0];
    const struct span rows = window_span(top, pool->kernel[0], pool->height);
    for (int64_t o = 0; o < pool->out_width; o++, y += inner) {
        const int64_t left = o * pool->strides[1] - pool->before[1];
        const struct span columns = window_span(left, pool->kernel[1], pool->width);
        if (rows.begin >= rows.end || columns.begin >= columns.end) {
            empty_window(pool, y, NULL, 0);
            continue;
        }
        const float *window = x + (top * pool->width + left) * inner;
        const float factor =
            1.0f / (float)((rows.end - rows.begin) * (columns.end - columns.begin));
#define MEAN(lanes, channel)                                                                \
    mean_window_##lanes(window + channel, pool->width * inner, inner, rows.begin, rows.end, \
                        columns.begin, columns.end, factor, y + channel)
        FOR_EACH_CHUNK(inner, MEAN);
#undef MEAN
    }
}

static void mean(const struct cpu_pool *pool, const float *x, float *y, int64_t begin, int64_t end)
{
    const int64_t plane = pool->height * pool->width * pool->inner,
                  row = pool->out_width * pool->inner;
    for (int64_t r = begin; r < end; r++) {
        const float *from = x + r / pool->out_height * plane;
        if (pool->inner == 16)
            mean_row(pool, 16, from, y + r * row, r % pool->out_height);
        else if (pool->inner == 8)
            mean_row(pool, 8, from, y + r * row, r % pool->out_height);
        else
            mean_row(pool, pool->inner, from, y + r * row, r % pool->out_height);
    }
}

ALWAYS_INLINE void mean_backward_row(const struct cpu_pool *pool, int64_t inner, const float *dy,
                                     float *dx, int64_t x_row)
{
    const struct span rows =
        covering(x_row, pool->before[0], pool->kernel[0], pool->strides[0], pool->out_height);
    memset(dx, 0, (size_t)(pool->width * inner) * sizeof(float));
    for (int64_t r = rows.begin; r < rows.end; r++) {
        const int64_t top = r * pool->strides[0] - pool->before[0];
        const struct span down = window_span(top, pool->kernel[0], pool->height);
        for (int64_t o = 0; o < pool->out_width; o++) {
            const int64_t left = o * pool->strides[1] - pool->before[1];
            const struct span across = window_span(left, pool->kernel[1], pool->width);
            const float factor =
                1.0f / (float)((down.end - down.begin) * (across.end - across.begin));
            const float *from = dy + (r * pool->out_width + o) * inner;
            for (int64_t c = across.begin; c < across.end; c++) {
                float *to = dx + (left + c) * inner;
#define GIVE(lanes, channel) mean_give_##lanes(from + channel, factor, to + channel)
                FOR_EACH_CHUNK(inner, GIVE);
#undef GIVE
            }
        }
    }
}

static void mean_backward(const struct cpu_pool *pool, const float *dy, float *dx, int64_t begin,
                          int64_t end)
{
    const int64_t plane = pool->out_height * pool->out_width * pool->inner,
                  row = pool->width * pool->inner;
    for (int64_t r = begin; r < end; r++) {
        const float *from = dy + r / pool->height * plane;
        if (pool->inner == 16)
            mean_backward_row(pool, 16, from, dx + r * row, r % pool->height);
        else
            mean_backward_row(pool, pool->inner, from, dx + r * row, r % pool->height);
    }
}

const struct cpu_pooling_loops CPU_TABLE(pooling) = {
    .largest = largest,
    .largest_backward = largest_backward,
    .mean = mean,
    .mean_backward = mean_backward,
};
