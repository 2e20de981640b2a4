// SPDX-License-Identifier: Apache-2.0
// What both formats share: limits, and resizing.
#include "datasets/image.h"

#include "core/base/log.h"
#include "core/base/options.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SIDE 65535
// Of both formats, a byte cannot hold more: deflate makes 1,032 bytes of one, JPEG has a bit for a
// block of 64 at least.
#define MOST_PIXELS_OF_BYTE 1032
#define MOST_PIXELS_OF_BIT 8 // a byte of a PNG may be 8 pixels of a bit

static const uint8_t jpeg_start[] = {0xff, 0xd8, 0xff};
static const uint8_t png_start[] = {0x89, 'P', 'N', 'G', 13, 10, 26, 10};

enum ls_status ls_image_fail(const struct ls_image_file *file, const char *what)
{
    ls_error(file->scope, "%s: %s", file->name, what);
    return LS_BAD_INPUT;
}

enum ls_status ls_image_check_size(const struct ls_image_file *file, uint64_t rows,
                                   uint64_t columns)
{
    if (rows < 1 || columns < 1)
        return ls_image_fail(file, "the image has no pixels");
    if (rows > MOST_SIDE || columns > MOST_SIDE || rows * columns > LS_IMAGE_MOST_PIXELS) {
        ls_error(file->scope,
                 "%s: %" PRIu64 " x %" PRIu64 " pixels; at most 65535 a side and %" PRIu64
                 " in all can be read",
                 file->name, rows, columns, LS_IMAGE_MOST_PIXELS);
        return LS_BAD_INPUT;
    }
    if (rows * columns / (MOST_PIXELS_OF_BYTE * MOST_PIXELS_OF_BIT) <= file->bytes)
        return LS_OK;
    ls_error(file->scope, "%s: says %" PRIu64 " x %" PRIu64 " pixels, which %zu bytes cannot hold",
             file->name, rows, columns, file->bytes);
    return LS_BAD_INPUT;
}

static bool begins_with(const void *data, size_t bytes, const uint8_t *start, size_t length)
{
    return bytes >= length && memcmp(data, start, length) == 0;
}

bool ls_image_is_known(const void *data, size_t bytes)
{
    return begins_with(data, bytes, jpeg_start, sizeof(jpeg_start)) ||
           begins_with(data, bytes, png_start, sizeof(png_start));
}

static enum ls_status read_any(const struct ls_image_file *file, int64_t channels,
                               struct ls_image *out)
{
    *out = (struct ls_image){0};
    if (begins_with(file->data, file->bytes, jpeg_start, sizeof(jpeg_start)))
        return ls_jpeg_read(file, channels, out);
    if (begins_with(file->data, file->bytes, png_start, sizeof(png_start)))
        return ls_png_read(file, channels, out);
    return ls_image_fail(file, file->bytes ? "is neither a JPEG nor a PNG image" : "is empty");
}

enum ls_status ls_image_size(const struct ls_image_file *file, int64_t *rows, int64_t *columns)
{
    struct ls_image image;
    const enum ls_status status = read_any(file, 0, &image);
    if (status)
        return status;
    *rows = image.rows;
    *columns = image.columns;
    return LS_OK;
}

// Where a row or column of the result lies between two of the image.
struct between {
    int64_t low, high;
    float part;
};

static struct between place(int64_t index, int64_t size, int64_t of)
{
    const float at = ((float)index + 0.5f) * ((float)of / (float)size) - 0.5f;
    const float low = floorf(at);
    struct between between = {.low = (int64_t)low, .high = (int64_t)ceilf(at), .part = at - low};
    between.low = between.low < 0 ? 0 : between.low;
    between.high = between.high > of - 1 ? of - 1 : between.high;
    return between;
}

static void resize(const struct ls_image *image, int64_t rows, int64_t columns,
                   struct between *places, uint8_t *out)
{
    const int64_t channels = image->channels, row_values = image->columns * channels;
    for (int64_t x = 0; x < columns; x++)
        places[x] = place(x, columns, image->columns);
    for (int64_t y = 0; y < rows; y++) {
        const struct between row = place(y, rows, image->rows);
        const uint8_t *top = image->values + row.low * row_values;
        const uint8_t *bottom = image->values + row.high * row_values;
        for (int64_t x = 0; x < columns; x++) {
            const int64_t left = places[x].low * channels, right = places[x].high * channels;
            const float part = places[x].part;
            for (int64_t c = 0; c < channels; c++) {
                const float a = top[left + c], b = top[right + c];
                const float d = bottom[left + c], e = bottom[right + c];
                const float above = a + (b - a) * part, below = d + (e - d) * part;
                *out++ = (uint8_t)(above + (below - above) * row.part + 0.5f);
            }
        }
    }
}

enum ls_status ls_image_read(const struct ls_image_file *file, int64_t rows, int64_t columns,
                             int64_t channels, bool resized, uint8_t *out)
{
    struct ls_image image;
    enum ls_status status = read_any(file, channels, &image);
    if (status)
        return status;
    if (image.rows == rows && image.columns == columns) {
        memcpy(out, image.values, (size_t)(rows * columns * channels));
    } else if (!resized) {
        ls_error(file->scope,
                 "%s: has %" PRId64 " x %" PRId64 " pixels, but the first image has %" PRId64
                 " x %" PRId64 "; give resize=HEIGHTxWIDTH",
                 file->name, image.rows, image.columns, rows, columns);
        status = LS_BAD_INPUT;
    } else {
        struct between *places = malloc((size_t)columns * sizeof(*places));
        if (places)
            resize(&image, rows, columns, places, out);
        else
            status = LS_OUT_OF_MEMORY;
        free(places);
    }
    free(image.values);
    return status;
}

bool ls_image_parse_size(const char *text, int64_t *rows, int64_t *columns)
{
    char first[8] = "";
    const size_t length = strcspn(text, "x");
    if (length >= sizeof(first) || text[length] != 'x')
        return false;
    memcpy(first, text, length);
    return ls_parse_integer(first, rows) && ls_parse_integer(text + length + 1, columns) &&
           *rows >= 1 && *rows <= MOST_SIDE && *columns >= 1 && *columns <= MOST_SIDE;
}
