// SPDX-License-Identifier: Apache-2.0
// Pooling of any window, stride and padding, forward and backward; compiled for each instruction
// set. The innermost axis of the layout (a block of channels, or all of them) is the vector. A
// saved index is row * kernel columns + column of the largest element in its window; its top bit
// says that the largest is not above 0, so that the backward of a ReLU before the pooling needs
// nothing else.
#include "plugins/device/cpu/loops.h"

#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

// `dtype` is a constant wherever these are inlined.
ALWAYS_INLINE int64_t bytes_of(uint32_t dtype)
{
    return dtype == LS_F32 ? 4 : 2;
}

// So many elements further on.
ALWAYS_INLINE const void *past(uint32_t dtype, const void *x, int64_t elements)
{
    return (const char *)x + elements * bytes_of(dtype);
}

ALWAYS_INLINE void *past_in(uint32_t dtype, void *x, int64_t elements)
{
    return (char *)x + elements * bytes_of(dtype);
}

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
static void empty_window(const struct cpu_pool *pool, void *y, void *saved, int64_t at)
{
    memset(y, 0, (size_t)(pool->inner * bytes_of(pool->dtype)));
    if (saved)
        memset((uint8_t *)saved + at * pool->index_bytes, 0xff,
               (size_t)pool->inner * pool->index_bytes);
}

// One row of y. `dtype` is a constant, and where this is worth it `inner`, the kernel, the strides
// and `bytes` are, too.
ALWAYS_INLINE void largest_row(uint32_t dtype, const struct cpu_pool *pool, int64_t inner,
                               int64_t kernel_rows, int64_t kernel_columns, int64_t stride,
                               uint32_t bytes, const void *x, void *y, void *saved, int64_t at,
                               int64_t out_row)
{
    const int64_t top = out_row * pool->strides[0] - pool->before[0];
    const struct span rows = window_span(top, kernel_rows, pool->height);
    for (int64_t o = 0; o < pool->out_width; o++, y = past_in(dtype, y, inner), at += inner) {
        const int64_t left = o * stride - pool->before[1];
        const struct span columns = window_span(left, kernel_columns, pool->width);
        const void *window = past(dtype, x, (top * pool->width + left) * inner);
        if (rows.begin == 0 && rows.end == kernel_rows && columns.begin == 0 &&
            columns.end == kernel_columns) {
#define WHOLE(lanes, channel)                                                              \
    largest_window_##lanes(dtype, past(dtype, window, channel), pool->width *inner, inner, \
                           kernel_columns, 0, kernel_rows, 0, kernel_columns,              \
                           past_in(dtype, y, channel), saved, at + channel, bytes)
            FOR_EACH_CHUNK(inner, WHOLE);
#undef WHOLE
        } else if (rows.begin < rows.end && columns.begin < columns.end) {
#define PART(lanes, channel)                                                                 \
    largest_window_##lanes(dtype, past(dtype, window, channel), pool->width *inner, inner,   \
                           kernel_columns, rows.begin, rows.end, columns.begin, columns.end, \
                           past_in(dtype, y, channel), saved, at + channel, bytes)
            FOR_EACH_CHUNK(inner, PART);
#undef PART
        } else {
            empty_window(pool, y, saved, at);
        }
    }
}

ALWAYS_INLINE void largest_rows(uint32_t dtype, const struct cpu_pool *pool, const void *x, void *y,
                                void *saved, int64_t begin, int64_t end)
{
    const int64_t plane = pool->height * pool->width * pool->inner,
                  row = pool->out_width * pool->inner;
    const int64_t *k = pool->kernel;
    const int two = k[0] == 2 && k[1] == 2 && pool->strides[1] == 2, bytes = pool->index_bytes == 1;
    for (int64_t r = begin; r < end; r++) {
        const void *from = past(dtype, x, r / pool->out_height * plane);
        const int64_t out_row = r % pool->out_height, at = r * row;
        void *to = past_in(dtype, y, at);
        if (two && bytes && pool->inner == 16)
            largest_row(dtype, pool, 16, 2, 2, 2, 1, from, to, saved, at, out_row);
        else if (bytes && pool->inner == 16)
            largest_row(dtype, pool, 16, k[0], k[1], pool->strides[1], 1, from, to, saved, at,
                        out_row);
        else if (bytes && pool->inner == 8)
            largest_row(dtype, pool, 8, k[0], k[1], pool->strides[1], 1, from, to, saved, at,
                        out_row);
        else
            largest_row(dtype, pool, pool->inner, k[0], k[1], pool->strides[1], pool->index_bytes,
                        from, to, saved, at, out_row);
    }
}

#define FOR_EACH_TYPE(dtype, call)  \
    do {                            \
        if ((dtype) == LS_BF16)     \
            call(LS_BF16);          \
        else if ((dtype) == LS_F16) \
            call(LS_F16);           \
        else                        \
            call(LS_F32);           \
    } while (0)

static void largest(const struct cpu_pool *pool, const void *x, void *y, void *saved, int64_t begin,
                    int64_t end)
{
#define LARGEST(dtype) largest_rows(dtype, pool, x, y, saved, begin, end)
    FOR_EACH_TYPE(pool->dtype, LARGEST);
#undef LARGEST
}

// The rows of y whose windows hold row `r` of x.
ALWAYS_INLINE struct span covering(int64_t r, int64_t before, int64_t kernel, int64_t stride,
                                   int64_t count)
{
    const int64_t low = r + before - kernel + 1, high = (r + before) / stride + 1;
    struct span span = {low > 0 ? (low + stride - 1) / stride : 0, high < count ? high : count};
    return span;
}

// Window column `c` gives to one row of dx: element c of window o is at column o * stride + c -
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

// `count` channels of one row of dx, to which the rows of dy give whose windows hold it. Where
// windows do not overlap every element is written once; else they are added in row order.
ALWAYS_INLINE void largest_give_row(uint32_t dtype, const struct cpu_pool *pool, int64_t inner,
                                    int64_t kernel_columns, int64_t stride, uint32_t bytes,
                                    uint32_t overlap, const void *dy, const void *saved,
                                    int64_t plane, void *dx, int64_t count, int64_t x_row)
{
    const uint32_t type = overlap ? LS_F32 : dtype; // of dx
    const struct span rows =
        covering(x_row, pool->before[0], pool->kernel[0], pool->strides[0], pool->out_height);
    const int64_t covered = pool->out_width * kernel_columns;
    if (overlap || rows.begin >= rows.end || pool->before[1] || covered != pool->width ||
        stride != kernel_columns)
        memset(dx, 0, (size_t)(pool->width * count * bytes_of(type)));
    for (int64_t r = rows.begin; r < rows.end; r++) {
        const int64_t index = (x_row + pool->before[0] - r * pool->strides[0]) * kernel_columns;
        for (int64_t c = 0; c < kernel_columns; c++) {
            const struct span span = giving(pool, c, stride);
            int64_t at = plane + (r * pool->out_width + span.begin) * inner;
            int64_t to = (span.begin * stride + c - pool->before[1]) * count;
            for (int64_t o = span.begin; o < span.end; o++, at += inner, to += stride * count) {
#define GIVE(lanes, channel)                                                                      \
    largest_give_##lanes(dtype, dy, saved, at + channel, bytes, (int32_t)(index + c), pool->relu, \
                         overlap, past_in(type, dx, to + channel))
                FOR_EACH_CHUNK(count, GIVE);
#undef GIVE
            }
        }
    }
}

// How many channels of a row of halves are added up in a room at once.
ALWAYS_INLINE int64_t piece_of(const struct cpu_pool *pool)
{
    const int64_t most = CPU_POOL_ROOM / pool->width;
    return most < pool->inner ? most / 16 * 16 : pool->inner;
}

// `count` channels of a row, rounded.
ALWAYS_INLINE void round_row(uint32_t dtype, const struct cpu_pool *pool, const float *room,
                             void *dx, int64_t count)
{
    for (int64_t c = 0; c < pool->width; c++) {
#define ROUND(lanes, channel)                           \
    round_to_##lanes(dtype, room + c * count + channel, \
                     past_in(dtype, dx, c * pool->inner + channel))
        FOR_EACH_CHUNK(count, ROUND);
#undef ROUND
    }
}

// One row of halves, where windows overlap, so many channels at once.
ALWAYS_INLINE void largest_sum_row(uint32_t dtype, const struct cpu_pool *pool, int64_t inner,
                                   int64_t piece, uint32_t bytes, const void *dy, const void *saved,
                                   int64_t plane, void *dx, int64_t x_row)
{
    float room[CPU_POOL_ROOM];
    for (int64_t first = 0, count; first < inner; first += count) {
        count = piece < inner - first ? piece : inner - first;
        largest_give_row(dtype, pool, inner, pool->kernel[1], pool->strides[1], bytes, 1, dy, saved,
                         plane + first, room, count, x_row);
        round_row(dtype, pool, room, past_in(dtype, dx, first), count);
    }
}

ALWAYS_INLINE void largest_backward_rows(uint32_t dtype, const struct cpu_pool *pool,
                                         const void *dy, const void *saved, void *dx, int64_t begin,
                                         int64_t end)
{
    const int64_t out_plane = pool->out_height * pool->out_width * pool->inner;
    const int64_t row = pool->width * pool->inner, columns = pool->kernel[1],
                  stride = pool->strides[1];
    const uint32_t overlap = pool->strides[0] < pool->kernel[0] || stride < columns;
    const int bytes = pool->index_bytes == 1;
    for (int64_t r = begin; r < end; r++) {
        const int64_t plane = r / pool->height * out_plane, x_row = r % pool->height;
        void *to = past_in(dtype, dx, r * row);
        if (dtype != LS_F32 && overlap && bytes && pool->inner == 16)
            largest_sum_row(dtype, pool, 16, 16, 1, dy, saved, plane, to, x_row);
        else if (dtype != LS_F32 && overlap)
            largest_sum_row(dtype, pool, pool->inner, piece_of(pool), pool->index_bytes, dy, saved,
                            plane, to, x_row);
        else if (bytes && pool->inner == 16 && !overlap)
            largest_give_row(dtype, pool, 16, columns, stride, 1, 0, dy, saved, plane, to, 16,
                             x_row);
        else if (bytes && pool->inner == 16)
            largest_give_row(dtype, pool, 16, columns, stride, 1, 1, dy, saved, plane, to, 16,
                             x_row);
        else if (bytes && pool->inner == 8)
            largest_give_row(dtype, pool, 8, columns, stride, 1, overlap, dy, saved, plane, to, 8,
                             x_row);
        else
            largest_give_row(dtype, pool, pool->inner, columns, stride, pool->index_bytes, overlap,
                             dy, saved, plane, to, pool->inner, x_row);
    }
}

static void largest_backward(const struct cpu_pool *pool, const void *dy, const void *saved,
                             void *dx, int64_t begin, int64_t end)
{
#define BACKWARD(dtype) largest_backward_rows(dtype, pool, dy, saved, dx, begin, end)
    FOR_EACH_TYPE(pool->dtype, BACKWARD);
#undef BACKWARD
}

ALWAYS_INLINE void mean_row(uint32_t dtype, const struct cpu_pool *pool, int64_t inner,
                            const void *x, void *y, int64_t out_row)
{
    const int64_t top = out_row * pool->strides[0] - pool->before[0];
    const struct span rows = window_span(top, pool->kernel[0], pool->height);
    for (int64_t o = 0; o < pool->out_width; o++, y = past_in(dtype, y, inner)) {
        const int64_t left = o * pool->strides[1] - pool->before[1];
        const struct span columns = window_span(left, pool->kernel[1], pool->width);
        if (rows.begin >= rows.end || columns.begin >= columns.end) {
            empty_window(pool, y, NULL, 0);
            continue;
        }
        const void *window = past(dtype, x, (top * pool->width + left) * inner);
        const float factor =
            1.0f / (float)((rows.end - rows.begin) * (columns.end - columns.begin));
#define MEAN(lanes, channel)                                                            \
    mean_window_##lanes(dtype, past(dtype, window, channel), pool->width *inner, inner, \
                        rows.begin, rows.end, columns.begin, columns.end, factor,       \
                        past_in(dtype, y, channel))
        FOR_EACH_CHUNK(inner, MEAN);
#undef MEAN
    }
}

ALWAYS_INLINE void mean_rows(uint32_t dtype, const struct cpu_pool *pool, const void *x, void *y,
                             int64_t begin, int64_t end)
{
    const int64_t plane = pool->height * pool->width * pool->inner,
                  row = pool->out_width * pool->inner;
    for (int64_t r = begin; r < end; r++) {
        const void *from = past(dtype, x, r / pool->out_height * plane);
        void *to = past_in(dtype, y, r * row);
        if (pool->inner == 16)
            mean_row(dtype, pool, 16, from, to, r % pool->out_height);
        else if (pool->inner == 8)
            mean_row(dtype, pool, 8, from, to, r % pool->out_height);
        else
            mean_row(dtype, pool, pool->inner, from, to, r % pool->out_height);
    }
}

static void mean(const struct cpu_pool *pool, const void *x, void *y, int64_t begin, int64_t end)
{
#define MEAN(dtype) mean_rows(dtype, pool, x, y, begin, end)
    FOR_EACH_TYPE(pool->dtype, MEAN);
#undef MEAN
}

// `count` channels of one row of dx.
ALWAYS_INLINE void mean_give_row(uint32_t dtype, const struct cpu_pool *pool, int64_t inner,
                                 const void *dy, float *dx, int64_t count, int64_t x_row)
{
    const struct span rows =
        covering(x_row, pool->before[0], pool->kernel[0], pool->strides[0], pool->out_height);
    memset(dx, 0, (size_t)(pool->width * count) * sizeof(float));
    for (int64_t r = rows.begin; r < rows.end; r++) {
        const int64_t top = r * pool->strides[0] - pool->before[0];
        const struct span down = window_span(top, pool->kernel[0], pool->height);
        for (int64_t o = 0; o < pool->out_width; o++) {
            const int64_t left = o * pool->strides[1] - pool->before[1];
            const struct span across = window_span(left, pool->kernel[1], pool->width);
            const float factor =
                1.0f / (float)((down.end - down.begin) * (across.end - across.begin));
            const void *from = past(dtype, dy, (r * pool->out_width + o) * inner);
            for (int64_t c = across.begin; c < across.end; c++) {
                float *to = dx + (left + c) * count;
#define GIVE(lanes, channel) \
    mean_give_##lanes(dtype, past(dtype, from, channel), factor, to + channel)
                FOR_EACH_CHUNK(count, GIVE);
#undef GIVE
            }
        }
    }
}

// One row of halves.
ALWAYS_INLINE void mean_sum_row(uint32_t dtype, const struct cpu_pool *pool, const void *dy,
                                void *dx, int64_t x_row)
{
    const int64_t inner = pool->inner;
    float room[CPU_POOL_ROOM];
    for (int64_t first = 0, count = piece_of(pool); first < inner; first += count) {
        count = count < inner - first ? count : inner - first;
        mean_give_row(dtype, pool, inner, past(dtype, dy, first), room, count, x_row);
        round_row(dtype, pool, room, past_in(dtype, dx, first), count);
    }
}

ALWAYS_INLINE void mean_backward_rows(uint32_t dtype, const struct cpu_pool *pool, const void *dy,
                                      void *dx, int64_t begin, int64_t end)
{
    const int64_t plane = pool->out_height * pool->out_width * pool->inner,
                  row = pool->width * pool->inner;
    for (int64_t r = begin; r < end; r++) {
        const void *from = past(dtype, dy, r / pool->height * plane);
        void *to = past_in(dtype, dx, r * row);
        if (dtype != LS_F32)
            mean_sum_row(dtype, pool, from, to, r % pool->height);
        else if (pool->inner == 16)
            mean_give_row(dtype, pool, 16, from, to, 16, r % pool->height);
        else
            mean_give_row(dtype, pool, pool->inner, from, to, pool->inner, r % pool->height);
    }
}

static void mean_backward(const struct cpu_pool *pool, const void *dy, void *dx, int64_t begin,
                          int64_t end)
{
#define BACKWARD(dtype) mean_backward_rows(dtype, pool, dy, dx, begin, end)
    FOR_EACH_TYPE(pool->dtype, BACKWARD);
#undef BACKWARD
}

const struct cpu_pooling_loops CPU_TABLE(pooling) = {
    .largest = largest,
    .largest_backward = largest_backward,
    .mean = mean,
    .mean_backward = mean_backward,
};
