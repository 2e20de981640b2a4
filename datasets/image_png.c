// SPDX-License-Identifier: Apache-2.0
// PNG by libpng. Its calls leave by longjmp after an error, so what they change lies in a struct, not
// in variables of the function that called setjmp.
#include "datasets/image.h"

#include "core/base/log.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#define MOST_SIDE 65535
#define MOST_CHUNK_BYTES (8u << 20) // of texts and profiles, which are not needed
#define MOST_CHUNKS 100

struct reader {
    const struct ls_image_file *file;
    size_t read; // bytes of the file
    png_structp png;
    png_infop info;
    char message[256];
    uint8_t *values;
    png_bytep *rows;
    int64_t row_count, columns;
};

static void fail(png_structp png, png_const_charp message)
{
    struct reader *reader = png_get_error_ptr(png);
    snprintf(reader->message, sizeof(reader->message), "%s", message);
    png_longjmp(png, 1);
}

static void ignore(png_structp png, png_const_charp message)
{
    (void)png, (void)message;
}

static void read_bytes(png_structp png, png_bytep to, size_t bytes)
{
    struct reader *reader = png_get_io_ptr(png);
    if (bytes > reader->file->bytes - reader->read)
        png_error(png, "it is cut off");
    memcpy(to, reader->file->data + reader->read, bytes);
    reader->read += bytes;
}

// Everything becomes 8 bits of grey or of red, green, blue. Colours become grey in `make_grey`: libpng
// would go by the gamma in the file.
static void convert(struct reader *reader, int64_t channels)
{
    png_set_expand(reader->png); // palettes, fewer than 8 bits, transparent colours
    png_set_strip_16(reader->png);
    png_set_strip_alpha(reader->png);
    if (channels == 3)
        png_set_gray_to_rgb(reader->png);
    png_set_interlace_handling(reader->png);
    png_read_update_info(reader->png, reader->info);
}

static void make_grey(uint8_t *values, size_t pixels)
{
    for (size_t i = 0; i < pixels; i++)
        values[i] = ls_image_grey(values[3 * i], values[3 * i + 1], values[3 * i + 2]);
}

static enum ls_status read_pixels(struct reader *reader, int64_t channels)
{
    reader->row_count = png_get_image_height(reader->png, reader->info);
    reader->columns = png_get_image_width(reader->png, reader->info);
    const enum ls_status status =
        ls_image_check_size(reader->file, (uint64_t)reader->row_count, (uint64_t)reader->columns);
    if (status || !channels)
        return status;
    const bool colours = png_get_color_type(reader->png, reader->info) & PNG_COLOR_MASK_COLOR;
    const bool to_grey = channels == 1 && colours;
    channels = to_grey ? 3 : channels;
    convert(reader, channels);
    const size_t row_bytes = (size_t)(reader->columns * channels);
    if (png_get_rowbytes(reader->png, reader->info) != row_bytes)
        return ls_image_fail(reader->file,
                             "damaged PNG: rows of another size than its header says");
    reader->values = malloc((size_t)reader->row_count * row_bytes);
    reader->rows = malloc((size_t)reader->row_count * sizeof(*reader->rows));
    if (!reader->values || !reader->rows)
        return LS_OUT_OF_MEMORY;
    for (int64_t y = 0; y < reader->row_count; y++)
        reader->rows[y] = reader->values + (size_t)y * row_bytes;
    png_read_image(reader->png, reader->rows);
    if (to_grey)
        make_grey(reader->values, (size_t)(reader->row_count * reader->columns));
    return LS_OK;
}

static enum ls_status read_file(struct reader *reader, int64_t channels)
{
    if (setjmp(png_jmpbuf(reader->png))) {
        ls_error(reader->file->scope, "%s: damaged PNG: %s", reader->file->name, reader->message);
        return LS_BAD_INPUT;
    }
    png_set_read_fn(reader->png, reader, read_bytes);
    png_set_user_limits(reader->png, MOST_SIDE, MOST_SIDE);
    png_set_chunk_malloc_max(reader->png, MOST_CHUNK_BYTES);
    png_set_chunk_cache_max(reader->png, MOST_CHUNKS);
    png_read_info(reader->png, reader->info);
    return read_pixels(reader, channels);
}

enum ls_status ls_png_read(const struct ls_image_file *file, int64_t channels, struct ls_image *out)
{
    struct reader *reader = calloc(1, sizeof(*reader));
    if (!reader)
        return LS_OUT_OF_MEMORY;
    reader->file = file;
    reader->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, reader, fail, ignore);
    reader->info = reader->png ? png_create_info_struct(reader->png) : NULL;
    const enum ls_status status = reader->info ? read_file(reader, channels) : LS_OUT_OF_MEMORY;
    if (!status) {
        *out = (struct ls_image){.rows = reader->row_count,
                                 .columns = reader->columns,
                                 .channels = channels,
                                 .values = reader->values};
        reader->values = NULL;
    }
    png_destroy_read_struct(&reader->png, &reader->info, NULL);
    free(reader->values);
    free(reader->rows);
    free(reader);
    return status;
}
