// SPDX-License-Identifier: Apache-2.0
// Weight gradients of convolutions over few pixels; compiled for each instruction set. A tap of the
// kernel visits only the pixels that it meets inside x, where a convolution that treats all taps
// alike multiplies with padding most of the time.
#include "plugins/device/cpu/loops.h"
#include "plugins/device/cpu/loops_vector.h"

#include <string.h>

// The pixels of y, in one direction, whose tap `tap` lies inside x.
static void inside(const struct cpu_taps *t, int direction, int64_t tap, int64_t *begin,
                   int64_t *end)
{
    const int64_t offset = tap * t->dilation[direction] - t->before[direction],
                  stride = t->strides[direction];
    const int64_t first = offset < 0 ? (-offset + stride - 1) / stride : 0,
                  last = t->x_size[direction] - 1 - offset;
    *begin = first;
    *end = last < 0 ? 0 : last / stride + 1;
    if (*end > t->y_size[direction])
        *end = t->y_size[direction];
}

// One pixel of y and one of x, of all examples: the innermost loop is the longest.
static inline __attribute__((always_inline)) void add_products(const struct cpu_taps *t,
                                                               const float *x, const float *dy,
                                                               vec *sums)
{
    for (int64_t n = 0; n < t->examples; n++) {
        const float *pixel = x + n * t->x_example;
        const vec gradient = load(dy + n * t->y_example);
#pragma GCC unroll 16
        for (int k = 0; k < LANES; k++)
            sums[k] += pixel[k] * gradient;
    }
}

// Where the pixel of x is that tap (row, column) meets at pixel (i, j) of y.
static inline int64_t x_pixel(const struct cpu_taps *t, int64_t row, int64_t column, int64_t i,
                              int64_t j)
{
    const int64_t x_row = i * t->strides[0] + row * t->dilation[0] - t->before[0],
                  x_column = j * t->strides[1] + column * t->dilation[1] - t->before[1];
    return (x_row * t->x_size[1] + x_column) * t->x_pixel;
}

static void weights_of_tap(const struct cpu_taps *t, int64_t row, int64_t column, const float *x,
                           const float *dy, float *dw)
{
    int64_t top, bottom, left, right;
    vec sums[LANES] = {0};
    inside(t, 0, row, &top, &bottom);
    inside(t, 1, column, &left, &right);
    for (int64_t i = top; i < bottom; i++)
        for (int64_t j = left; j < right; j++)
            add_products(t, x + x_pixel(t, row, column, i, j),
                         dy + (i * t->y_size[1] + j) * t->y_pixel, sums);
    for (int k = 0; k < LANES; k++)
        store(dw + (int64_t)k * LANES, sums[k]);
}

static void weights(const struct cpu_taps *t, const float *x, const float *dy, float *dw)
{
    for (int64_t row = 0; row < t->kernel[0]; row++)
        for (int64_t column = 0; column < t->kernel[1]; column++, dw += (int64_t)LANES * LANES)
            weights_of_tap(t, row, column, x, dy, dw);
}

static vec depthwise_tap(const struct cpu_taps *t, int64_t row, int64_t column, const float *x,
                         const float *dy)
{
    int64_t top, bottom, left, right;
    vec sum = {0};
    inside(t, 0, row, &top, &bottom);
    inside(t, 1, column, &left, &right);
    for (int64_t i = top; i < bottom; i++)
        for (int64_t j = left; j < right; j++) {
            const float *pixel = x + x_pixel(t, row, column, i, j);
            const float *gradient = dy + (i * t->y_size[1] + j) * t->y_pixel;
            for (int64_t n = 0; n < t->examples; n++)
                sum += load(pixel + n * t->x_example) * load(gradient + n * t->y_example);
        }
    return sum;
}

static void depthwise_weights(const struct cpu_taps *t, const float *x, const float *dy, float *dw)
{
    for (int64_t row = 0; row < t->kernel[0]; row++)
        for (int64_t column = 0; column < t->kernel[1]; column++, dw += LANES)
            store(dw, depthwise_tap(t, row, column, x, dy));
}

const struct cpu_convolution_loops CPU_TABLE(convolution) = {
    .lanes = LANES,
    .weights = weights,
    .depthwise_weights = depthwise_weights,
};
