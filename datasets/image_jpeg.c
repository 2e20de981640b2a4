// SPDX-License-Identifier: Apache-2.0
// JPEG by libjpeg-turbo. Its calls leave by longjmp after an error, so what they change lies in a
// struct, not in variables of the function that called setjmp. Warnings about damage are errors here:
// libjpeg would fill what is missing with grey.
#include "datasets/image.h"

#include "core/base/log.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

#define MOST_SCANS 100 // of a progressive image; real ones have about ten

struct reader {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf leave;
    char message[JMSG_LENGTH_MAX];
    bool no_memory;
    uint8_t *values, *row; // of the image; a row of CMYK
    int64_t channels; // of `values`
};

static void leave(j_common_ptr jpeg)
{
    struct reader *reader = jpeg->client_data;
    jpeg->err->format_message(jpeg, reader->message);
    reader->no_memory = jpeg->err->msg_code == JERR_OUT_OF_MEMORY;
    longjmp(reader->leave, 1);
}

static void note_message(j_common_ptr jpeg, int level)
{
    if (level < 0 && jpeg->err->msg_code != JWRN_EXTRANEOUS_DATA &&
        jpeg->err->msg_code != JWRN_ADOBE_XFORM)
        leave(jpeg);
}

static void watch_scans(j_common_ptr jpeg)
{
    struct reader *reader = jpeg->client_data;
    if (reader->jpeg.input_scan_number <= MOST_SCANS)
        return;
    snprintf(reader->message, sizeof(reader->message), "more than %d scans", MOST_SCANS);
    longjmp(reader->leave, 1);
}

// Of inverted values, as Adobe's programs store them, or of plain ones.
static void convert_cmyk(const uint8_t *from, int64_t columns, bool inverted, int64_t channels,
                         uint8_t *to)
{
    for (int64_t x = 0; x < columns; x++, from += 4, to += channels) {
        int colour[3];
        const int black = inverted ? from[3] : 255 - from[3];
        for (int c = 0; c < 3; c++)
            colour[c] = black * (inverted ? from[c] : 255 - from[c]) / 255;
        if (channels == 3)
            for (int c = 0; c < 3; c++)
                to[c] = (uint8_t)colour[c];
        else
            to[0] = ls_image_grey(colour[0], colour[1], colour[2]);
    }
}

static void read_rows(struct reader *reader)
{
    struct jpeg_decompress_struct *jpeg = &reader->jpeg;
    const bool cmyk = jpeg->out_color_space == JCS_CMYK;
    const uint64_t row_bytes = (uint64_t)jpeg->output_width * (uint64_t)reader->channels;
    while (jpeg->output_scanline < jpeg->output_height) {
        uint8_t *to = reader->values + jpeg->output_scanline * row_bytes;
        JSAMPROW row = cmyk ? reader->row : to;
        jpeg_read_scanlines(jpeg, &row, 1);
        if (cmyk)
            convert_cmyk(reader->row, jpeg->output_width, jpeg->saw_Adobe_marker, reader->channels,
                         to);
    }
}

static enum ls_status read_pixels(const struct ls_image_file *file, int64_t channels,
                                  struct reader *reader)
{
    struct jpeg_decompress_struct *jpeg = &reader->jpeg;
    const enum ls_status status = ls_image_check_size(file, jpeg->image_height, jpeg->image_width);
    if (status || !channels)
        return status;
    const bool cmyk = jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK;
    jpeg->out_color_space = cmyk ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    reader->channels = channels;
    reader->values = malloc((size_t)jpeg->image_height * jpeg->image_width * (size_t)channels);
    reader->row = malloc((size_t)jpeg->image_width * 4);
    if (!reader->values || !reader->row)
        return LS_OUT_OF_MEMORY;
    jpeg_start_decompress(jpeg);
    read_rows(reader);
    jpeg_finish_decompress(jpeg);
    return LS_OK;
}

enum ls_status ls_jpeg_read(const struct ls_image_file *file, int64_t channels,
                            struct ls_image *out)
{
    struct reader *reader = calloc(1, sizeof(*reader));
    if (!reader)
        return LS_OUT_OF_MEMORY;
    enum ls_status status;
    reader->jpeg.err = jpeg_std_error(&reader->errors);
    reader->jpeg.client_data = reader;
    reader->errors.error_exit = leave;
    reader->errors.emit_message = note_message;
    if (setjmp(reader->leave)) {
        if (!reader->no_memory)
            ls_error(file->scope, "%s: damaged JPEG: %s", file->name, reader->message);
        status = reader->no_memory ? LS_OUT_OF_MEMORY : LS_BAD_INPUT;
    } else {
        jpeg_create_decompress(&reader->jpeg);
        reader->jpeg.client_data = reader;
        reader->progress.progress_monitor = watch_scans;
        reader->jpeg.progress = &reader->progress;
        jpeg_mem_src(&reader->jpeg, file->data, (unsigned long)file->bytes);
        jpeg_read_header(&reader->jpeg, TRUE);
        status = read_pixels(file, channels, reader);
    }
    if (!status) {
        *out = (struct ls_image){.rows = reader->jpeg.image_height,
                                 .columns = reader->jpeg.image_width,
                                 .channels = channels,
                                 .values = reader->values};
        reader->values = NULL;
    }
    jpeg_destroy_decompress(&reader->jpeg);
    free(reader->values);
    free(reader->row);
    free(reader);
    return status;
}
