// SPDX-License-Identifier: Apache-2.0
// The arithmetic of operations on images that all devices share: what LS_OP_DRAW draws, and which
// pixels LS_OP_RESAMPLE and LS_OP_RESIZE2D read. Coordinates are float32, each operation rounded by
// itself, as in TensorFlow's kernels: where a coordinate lies between two pixels of equal distance,
// or at the edge of the image, another rounding would choose another pixel.
#ifndef LS_PLUGIN_AUGMENT_H
#define LS_PLUGIN_AUGMENT_H

#include "core/plugin/operations.h"

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Factors ----

#define LS_TRANSFORM_NUMBERS 8 // factors of LS_OP_RESAMPLE
#define LS_RECOLOUR_NUMBERS 2 // of LS_OP_RECOLOUR: scale, offset
#define LS_ERASE_NUMBERS 4 // of LS_OP_ERASE: first and last column, first and last row

// How many numbers LS_OP_DRAW draws for an example.
static inline uint32_t ls_draw_numbers(uint32_t function)
{
    return function < LS_DRAW_CONTRAST ? LS_TRANSFORM_NUMBERS
           : function == LS_DRAW_ERASE ? LS_ERASE_NUMBERS
                                       : LS_RECOLOUR_NUMBERS;
}

// Draw `index` of the example with this key: from `low` to `high`, which it does not reach.
static inline double ls_draw_between(uint64_t key, uint64_t index, double low, double high)
{
    return low + (high - low) * ((double)(ls_noise_bits(key, index) >> 11) * 0x1p-53);
}

// An affine transform that keeps the middle of an image of rows x columns where it is.
static inline void ls_draw_around_middle(int64_t rows, int64_t columns, double a0, double a1,
                                         double b0, double b1, float *out)
{
    const double x = (double)(columns - 1) / 2, y = (double)(rows - 1) / 2;
    out[0] = (float)a0, out[1] = (float)a1, out[2] = (float)(x - a0 * x - a1 * y);
    out[3] = (float)b0, out[4] = (float)b1, out[5] = (float)(y - b0 * x - b1 * y);
}

// A patch of the image, as part `share` of its area along one axis; first and last coordinate.
static inline void ls_draw_patch(uint64_t key, uint64_t index, int64_t size, double share,
                                 float *out)
{
    const double length = sqrt(share) * (double)size;
    const double first = ls_draw_between(key, index, 0, (double)size - length);
    out[0] = (float)first;
    out[1] = (float)(first + length);
}

// The factors of an example of LS_OP_DRAW for images of rows x columns. `key` is ls_dropout_key()
// of the record, the attribute key and the example; `out` has ls_draw_numbers() elements.
static inline void ls_draw_factors(const struct ls_op_attributes *attributes, uint64_t key,
                                   int64_t rows, int64_t columns, float *out)
{
    const double low = (double)attributes->l1, high = (double)attributes->l2;
    const double other_low = (double)attributes->beta1, other_high = (double)attributes->beta2;
    const double first = ls_draw_between(key, 0, low, high);
    const double other = ls_draw_between(key, 1, other_low, other_high);
    const uint32_t function = attributes->function;

    for (uint32_t i = 0; i < ls_draw_numbers(function); i++)
        out[i] = 0;
    switch (function) {
    case LS_DRAW_FLIP_COLUMNS:
    case LS_DRAW_FLIP_ROWS:
    case LS_DRAW_FLIP_BOTH: {
        const double sign = ls_draw_between(key, 0, 0, 1) < 0.5 ? -1 : 1;
        ls_draw_around_middle(rows, columns, function == LS_DRAW_FLIP_ROWS ? 1 : sign, 0, 0,
                              function == LS_DRAW_FLIP_COLUMNS ? 1 : sign, out);
        break;
    }
    case LS_DRAW_ROTATION: {
        const double angle = first * 6.283185307179586476925286766559;
        ls_draw_around_middle(rows, columns, cos(angle), -sin(angle), sin(angle), cos(angle), out);
        break;
    }
    case LS_DRAW_ZOOM: ls_draw_around_middle(rows, columns, 1 + other, 0, 0, 1 + first, out); break;
    case LS_DRAW_ZOOM_EVEN:
        ls_draw_around_middle(rows, columns, 1 + first, 0, 0, 1 + first, out);
        break;
    case LS_DRAW_TRANSLATION:
        out[0] = out[4] = 1;
        out[2] = (float)(-other * (double)columns);
        out[5] = (float)(-first * (double)rows);
        break;
    case LS_DRAW_CROP:
        out[0] = out[4] = 1;
        out[2] =
            (float)floor(ls_draw_between(key, 1, 0, (double)(columns - attributes->kernel[1] + 1)));
        out[5] =
            (float)floor(ls_draw_between(key, 0, 0, (double)(rows - attributes->kernel[0] + 1)));
        break;
    case LS_DRAW_CONTRAST: out[0] = (float)first; break;
    case LS_DRAW_BRIGHTNESS:
        out[0] = 1;
        out[1] = (float)first;
        break;
    case LS_DRAW_ERASE:
        if (ls_draw_between(key, 2, 0, 1) >= first)
            break; // nothing is erased
        ls_draw_patch(key, 3, columns, other, out);
        ls_draw_patch(key, 4, rows, ls_draw_between(key, 5, other_low, other_high), out + 2);
        break;
    default: break;
    }
}

// ---- Reading an image ----

// The pixels that one pixel is made of.
struct ls_taps {
    uint32_t count; // 1 or 4
    int64_t at[4]; // row times columns plus column; -1: outside, where the fill value is
    float weight[4]; // of each; their sum is 1
};

// `at` of this pixel.
static inline int64_t ls_tap_at(float row, float column, int64_t rows, int64_t columns)
{
    return row >= 0 && row < (float)rows && column >= 0 && column < (float)columns
               ? (int64_t)row * columns + (int64_t)column
               : -1;
}

// One pixel where `between` is 0, else the four around (row, column).
static inline void ls_taps_around(uint32_t between, float row, float column, int64_t rows,
                                  int64_t columns, struct ls_taps *out)
{
    out->count = between ? 4 : 1;
    if (!between) {
        out->at[0] = ls_tap_at(roundf(row), roundf(column), rows, columns);
        out->weight[0] = 1;
        return;
    }
    const float top = floorf(row), left = floorf(column), down = row - top, right = column - left;
    for (uint32_t i = 0; i < 4; i++) {
        out->at[i] = ls_tap_at(top + (float)(i >> 1), left + (float)(i & 1), rows, columns);
        out->weight[i] = (i >> 1 ? down : 1 - down) * (i & 1 ? right : 1 - right);
    }
}

// A coordinate along an axis of `size`, brought inside as the fill says (enum ls_fill).
static inline float ls_fill_inside(uint32_t fill, float at, int64_t size)
{
    const float length = (float)size, last = (float)(size - 1);

    if (fill == LS_FILL_CONSTANT || (at >= 0 && at <= last))
        return at;
    if (size > 1 && fill == LS_FILL_REFLECT) { // d c b a | a b c d | d c b a
        at = at < 0 ? -at - 1 : at;
        at -= 2 * length * truncf(at / (2 * length));
        at = at >= length ? 2 * length - at - 1 : at;
    } else if (size > 1 && fill == LS_FILL_WRAP) { // a b c d | a b c d | a b c d
        at += at < 0 ? length * (truncf(-at / last) + 1) : -length * truncf(at / last);
    }
    return at > 0 ? (at < last ? at : last) : 0; // NaN: 0
}

// What pixel (row, column) of the result of LS_OP_RESAMPLE is made of.
static inline void ls_resample_taps(uint32_t function, const float *factors, int64_t row,
                                    int64_t column, int64_t rows, int64_t columns,
                                    struct ls_taps *out)
{
    const float x = (float)column, y = (float)row;
    const float k = factors[6] * x + factors[7] * y + 1;
    const float from_x = (factors[0] * x + factors[1] * y + factors[2]) / k;
    const float from_y = (factors[3] * x + factors[4] * y + factors[5]) / k;
    const uint32_t fill = function & LS_FILL_MASK;

    out->count = 1;
    out->at[0] = -1;
    out->weight[0] = 1;
    if (k != 0)
        ls_taps_around(function & LS_RESAMPLE_BILINEAR, ls_fill_inside(fill, from_y, rows),
                       ls_fill_inside(fill, from_x, columns), rows, columns, out);
}

// Where element `o` of `large` along an axis lies in `small`: half a pixel is the middle of one.
static inline float ls_resize_at(uint32_t function, int64_t o, int64_t small, int64_t large)
{
    const float ratio = (float)small / (float)large, middle = ((float)o + 0.5f) * ratio;
    const float at = function == LS_UPSAMPLE_NEAREST ? floorf(middle) : middle - 0.5f;
    return ls_fill_inside(LS_FILL_NEAREST, at, small);
}

// What pixel (row, column) of the result of LS_OP_RESIZE2D is made of; its size is to_*.
static inline void ls_resize_taps(uint32_t function, int64_t row, int64_t column, int64_t rows,
                                  int64_t columns, int64_t to_rows, int64_t to_columns,
                                  struct ls_taps *out)
{
    ls_taps_around(function == LS_UPSAMPLE_BILINEAR, ls_resize_at(function, row, rows, to_rows),
                   ls_resize_at(function, column, columns, to_columns), rows, columns, out);
}

#ifdef __cplusplus
}
#endif

#endif
