// SPDX-License-Identifier: Apache-2.0
// Flip and crop move pixels; shift and rotation interpolate between four of them.
#include "core/data/augment.h"

#include "core/base/dtype.h"
#include "core/base/log.h"
#include "core/base/random.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define TAU 6.283185307179586476925286766559
#define MOST_CROP 4096

enum draw { FLIP_COLUMNS, FLIP_ROWS, CROP_ROW, CROP_COLUMN, SHIFT_ROWS, SHIFT_COLUMNS, ANGLE };

const struct ls_plugin_option ls_augmentation_options[] = {
    {"random_flip", "one of: horizontal, vertical, horizontal_and_vertical", NULL,
     "training images: mirror half of them"},
    {"random_crop", "integer", NULL,
     "training images: add N rows and columns of zeros on each side, then cut out the size"},
    {"random_translation", "number", NULL,
     "training images: shift by up to this part of height and width"},
    {"random_rotation", "number", NULL, "training images: rotate by up to this part of a turn"},
    {0},
};

static enum ls_status read_part(const char *scope, const struct ls_spec *spec, const char *name,
                                double *out)
{
    const char *text = ls_spec_get(spec, name);
    double value = 0;
    if (text && (!ls_parse_number(text, &value) || !(value > 0 && value <= 1))) {
        ls_error(scope, "%s: %s must be above 0 and at most 1, not %s", spec->name, name, text);
        return LS_USAGE;
    }
    *out = value;
    return LS_OK;
}

enum ls_status ls_augmentation_read(const char *scope, const struct ls_spec *spec,
                                    struct ls_augmentation *out)
{
    const char *flip = ls_spec_get(spec, "random_flip");
    const char *crop = ls_spec_get(spec, "random_crop");
    int64_t padding = 0;
    *out = (struct ls_augmentation){0};
    if (flip) {
        out->flip_columns = strcmp(flip, "vertical") != 0;
        out->flip_rows = strcmp(flip, "horizontal") != 0;
    }
    if (crop && (!ls_parse_integer(crop, &padding) || padding < 1 || padding > MOST_CROP)) {
        ls_error(scope, "%s: random_crop must be from 1 to %d, not %s", spec->name, MOST_CROP,
                 crop);
        return LS_USAGE;
    }
    out->crop = (uint32_t)padding;
    const enum ls_status status = read_part(scope, spec, "random_translation", &out->translation);
    return status ? status : read_part(scope, spec, "random_rotation", &out->rotation);
}

bool ls_augmentation_is_none(const struct ls_augmentation *augmentation)
{
    return !augmentation->flip_rows && !augmentation->flip_columns && !augmentation->crop &&
           augmentation->translation == 0 && augmentation->rotation == 0;
}

enum ls_status ls_augmentation_check(const char *scope, const struct ls_augmentation *augmentation,
                                     const struct ls_field *fields, uint32_t field_count)
{
    const struct ls_field *image = ls_field_find(fields, field_count, LS_FIELD_INPUT, 0);
    if (ls_augmentation_is_none(augmentation))
        return LS_OK;
    if (image && image->ndims == 3 && (image->dtype == LS_U8 || image->dtype == LS_F32))
        return LS_OK;
    ls_error(
        scope,
        "random_flip, random_crop, random_translation and random_rotation are for images (rows "
        "x columns x channels of uint8 or float32); '%s' has %" PRIu32 " dimensions of %s",
        image ? image->name : "the first input", image ? image->ndims : 0,
        ls_dtype_name(image ? image->dtype : 0));
    return LS_USAGE;
}

uint64_t ls_augmentation_key(uint64_t seed, uint64_t epoch)
{
    return ls_random_key(ls_random_key_text(seed, "augment"), epoch);
}

// ---- Moving pixels ----

static uint64_t pixel_bytes(const struct ls_field *field)
{
    return (uint64_t)field->dims[2] * ls_dtype_bytes(field->dtype);
}

static void mirror(const uint8_t *restrict from, int64_t columns, uint64_t bytes,
                   uint8_t *restrict to)
{
    if (bytes == 1) {
        for (int64_t x = 0; x < columns; x++)
            to[x] = from[columns - 1 - x];
    } else if (bytes == 3) {
        for (int64_t x = 0; x < columns; x++)
            memcpy(to + 3 * x, from + 3 * (columns - 1 - x), 3);
    } else {
        for (int64_t x = 0; x < columns; x++)
            memcpy(to + (uint64_t)x * bytes, from + (uint64_t)(columns - 1 - x) * bytes, bytes);
    }
}

// Row y of the result is row y + `down` of `from` (counted from its other end when flipped), moved
// by `right` columns; what is outside is zero.
static void move_pixels(const struct ls_field *field, int64_t down, int64_t right, bool flip_rows,
                        bool flip_columns, const uint8_t *from, uint8_t *to)
{
    const int64_t rows = field->dims[0], columns = field->dims[1];
    const uint64_t bytes = pixel_bytes(field), row_bytes = (uint64_t)columns * bytes;
    const int64_t gap = right < 0 ? -right : 0; // zeros in front
    const int64_t width = columns - (right < 0 ? -right : right);
    for (int64_t y = 0; y < rows; y++, to += row_bytes) {
        const int64_t source = y + down;
        const bool inside = source >= 0 && source < rows && width > 0;
        if (!inside || width < columns)
            memset(to, 0, row_bytes);
        if (!inside)
            continue;
        const uint8_t *row = from + (uint64_t)(flip_rows ? rows - 1 - source : source) * row_bytes;
        uint8_t *start = to + (uint64_t)gap * bytes;
        const int64_t first = right > 0 ? right : 0;
        if (flip_columns) // the mirrored row's columns from `first` on
            mirror(row + (uint64_t)(columns - first - width) * bytes, width, bytes, start);
        else
            memcpy(start, row + (uint64_t)first * bytes, (uint64_t)width * bytes);
    }
}

// ---- Interpolating ----

// Reflection at the edges: d c b a | a b c d | d c b a.
static int64_t reflect(int64_t index, int64_t size)
{
    const int64_t period = 2 * size;
    if (index >= 0 && index < size)
        return index;
    index %= period;
    if (index < 0)
        index += period;
    return index < size ? index : period - 1 - index;
}

static float value_at(const struct ls_field *field, const void *from, int64_t index)
{
    return field->dtype == LS_U8 ? (float)((const uint8_t *)from)[index]
                                 : ((const float *)from)[index];
}

static void put_value(const struct ls_field *field, void *to, int64_t index, float value)
{
    if (field->dtype == LS_U8)
        ((uint8_t *)to)[index] = (uint8_t)(value + 0.5f); // between four of 0 to 255
    else
        ((float *)to)[index] = value;
}

// The pixel at (row, column) of `from`, between four of them.
static void interpolate(const struct ls_field *field, double row, double column, const void *from,
                        int64_t pixel, void *to)
{
    const int64_t rows = field->dims[0], columns = field->dims[1], channels = field->dims[2];
    const double top = floor(row), left = floor(column);
    const float down = (float)(row - top), right = (float)(column - left);
    const int64_t y[2] = {reflect((int64_t)top, rows), reflect((int64_t)top + 1, rows)};
    const int64_t x[2] = {reflect((int64_t)left, columns), reflect((int64_t)left + 1, columns)};
    for (int64_t c = 0; c < channels; c++) {
        float ends[2];
        for (int i = 0; i < 2; i++) {
            const float a = value_at(field, from, (y[i] * columns + x[0]) * channels + c);
            const float b = value_at(field, from, (y[i] * columns + x[1]) * channels + c);
            ends[i] = a * (1 - right) + b * right;
        }
        put_value(field, to, pixel * channels + c, ends[0] * (1 - down) + ends[1] * down);
    }
}

void ls_image_shift(const struct ls_field *field, double rows, double columns, const void *from,
                    void *to)
{
    for (int64_t y = 0; y < field->dims[0]; y++)
        for (int64_t x = 0; x < field->dims[1]; x++)
            interpolate(field, (double)y - rows, (double)x - columns, from, y * field->dims[1] + x,
                        to);
}

void ls_image_rotate(const struct ls_field *field, double angle, const void *from, void *to)
{
    const double sine = sin(angle), cosine = cos(angle);
    const double middle_y = (double)(field->dims[0] - 1) / 2;
    const double middle_x = (double)(field->dims[1] - 1) / 2;
    for (int64_t y = 0; y < field->dims[0]; y++)
        for (int64_t x = 0; x < field->dims[1]; x++) {
            const double dy = (double)y - middle_y, dx = (double)x - middle_x;
            interpolate(field, middle_y + sine * dx + cosine * dy,
                        middle_x + cosine * dx - sine * dy, from, y * field->dims[1] + x, to);
        }
}

// ---- An example ----

// From -most to most.
static double draw_between(uint64_t key, enum draw draw, double most)
{
    return (2 * ls_random_uniform(key, draw) - 1) * most;
}

// From -padding to padding.
static int64_t draw_offset(uint64_t key, enum draw draw, uint32_t padding)
{
    return (int64_t)(ls_random_uniform(key, draw) * (2 * (double)padding + 1)) - padding;
}

void *ls_augment(const struct ls_augmentation *augmentation, const struct ls_field *field,
                 uint64_t key, const void *from, void *buffers[2])
{
    const bool flip_rows = augmentation->flip_rows && ls_random_u64(key, FLIP_ROWS) >> 63;
    const bool flip_columns = augmentation->flip_columns && ls_random_u64(key, FLIP_COLUMNS) >> 63;
    void *now = buffers[0], *other = buffers[1];
    move_pixels(field, draw_offset(key, CROP_ROW, augmentation->crop),
                draw_offset(key, CROP_COLUMN, augmentation->crop), flip_rows, flip_columns, from,
                now);
    if (augmentation->translation > 0) {
        const double part = augmentation->translation;
        ls_image_shift(field, draw_between(key, SHIFT_ROWS, part * (double)field->dims[0]),
                       draw_between(key, SHIFT_COLUMNS, part * (double)field->dims[1]), now, other);
        void *shifted = other;
        other = now;
        now = shifted;
    }
    if (augmentation->rotation > 0) {
        ls_image_rotate(field, draw_between(key, ANGLE, augmentation->rotation * TAU), now, other);
        now = other;
    }
    return now;
}
