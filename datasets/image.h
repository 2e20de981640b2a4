// SPDX-License-Identifier: Apache-2.0
// Images, JPEG and PNG, from the bytes of a file to rows x columns x channels of 8 bits.
#ifndef LS_DATASETS_IMAGE_H
#define LS_DATASETS_IMAGE_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_IMAGE_MOST_PIXELS (UINT64_C(1) << 26)

struct ls_image {
    int64_t rows, columns, channels;
    uint8_t *values; // malloc'ed
};

// The bytes of a file and how messages name them.
struct ls_image_file {
    const char *scope, *name;
    const uint8_t *data;
    size_t bytes;
};

bool ls_image_is_known(const void *data, size_t bytes); // begins as JPEG or PNG does

// Rows and columns, from the header. Errors of both are logged with the name. LS_BAD_INPUT: neither
// JPEG nor PNG, damaged, more than LS_IMAGE_MOST_PIXELS, or more pixels than so many bytes can hold.
// LS_UNAVAILABLE: built without the library for it. [any thread]
LS_STATUS ls_image_size(const struct ls_image_file *file, int64_t *rows, int64_t *columns);
// The image as `rows` x `columns` x `channels` (1: grey, 3: red, green, blue; opacity is dropped).
// Where it has another size it is refused, or with `resize` it is resized: by bilinear interpolation between pixels whose centres are
// at halves, without antialiasing, rounded to the nearest: as Keras's image_dataset_from_directory,
// but for the rounding. [any thread]
LS_STATUS ls_image_read(const struct ls_image_file *file, int64_t rows, int64_t columns,
                        int64_t channels, bool resize, uint8_t *out);

// "HEIGHTxWIDTH", each from 1 to 65535.
bool ls_image_parse_size(const char *text, int64_t *rows, int64_t *columns);

// ---- For the readers of one format each ----

// `channels` 0: only the size is asked for, `out->values` stays NULL.
LS_STATUS ls_jpeg_read(const struct ls_image_file *file, int64_t channels, struct ls_image *out);
LS_STATUS ls_png_read(const struct ls_image_file *file, int64_t channels, struct ls_image *out);
// Before memory is taken for it.
LS_STATUS ls_image_check_size(const struct ls_image_file *file, uint64_t rows, uint64_t columns);
LS_STATUS ls_image_fail(const struct ls_image_file *file, const char *what); // LS_BAD_INPUT

static inline uint8_t ls_image_grey(int red, int green, int blue)
{
    return (uint8_t)((299 * red + 587 * green + 114 * blue + 500) / 1000);
}

#endif
