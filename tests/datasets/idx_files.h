// SPDX-License-Identifier: Apache-2.0
// Writes small IDX files, plain or gzip, right or wrong.
#ifndef LS_TESTS_IDX_FILES_H
#define LS_TESTS_IDX_FILES_H

#include "tests/core/data/capture.h"

#include <stdint.h>
#include <zlib.h>

#define MOST_FILE_BYTES 65536

struct bytes {
    uint8_t data[MOST_FILE_BYTES];
    size_t count;
};

static inline void put_number(struct bytes *file, uint32_t number)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        file->data[file->count++] = (uint8_t)(number >> shift);
}

// Elements are 7, 14, 21, ... modulo 256, or modulo 10 for labels.
static inline struct bytes idx_images(uint32_t count, uint32_t rows, uint32_t columns)
{
    struct bytes file = {.count = 0};
    put_number(&file, 0x803);
    put_number(&file, count);
    put_number(&file, rows);
    put_number(&file, columns);
    for (uint32_t i = 0; i < count * rows * columns; i++)
        file.data[file.count++] = (uint8_t)(7 * (i + 1));
    return file;
}

static inline struct bytes idx_labels(uint32_t count)
{
    struct bytes file = {.count = 0};
    put_number(&file, 0x801);
    put_number(&file, count);
    for (uint32_t i = 0; i < count; i++)
        file.data[file.count++] = (uint8_t)(7 * (i + 1) % 10);
    return file;
}

static inline struct bytes gzipped(const struct bytes *plain)
{
    struct bytes packed = {.count = 0};
    z_stream stream = {0};
    ck_assert_int_eq(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = (Bytef *)plain->data;
    stream.avail_in = (uInt)plain->count;
    stream.next_out = packed.data;
    stream.avail_out = MOST_FILE_BYTES;
    ck_assert_int_eq(deflate(&stream, Z_FINISH), Z_STREAM_END);
    packed.count = stream.total_out;
    deflateEnd(&stream);
    return packed;
}

static inline void write_bytes(const char *name, const struct bytes *file)
{
    write_file(name, file->data, file->count);
}

#define TRAIN_IMAGES "train-images-idx3-ubyte"
#define TRAIN_LABELS "train-labels-idx1-ubyte"

#endif
