// SPDX-License-Identifier: Apache-2.0
// Numbers, texts and bytes, written to frames and read from them.
#include "core/wire/frame.h"

#include <string.h>

void ls_frame_begin(struct ls_frame *frame, uint8_t kind, uint32_t generation)
{
    frame->bytes = 0;
    frame->full = false;
    ls_frame_put_u8(frame, kind);
    ls_frame_put_u32(frame, generation);
}

void ls_frame_put_bytes(struct ls_frame *frame, const void *data, size_t bytes)
{
    if (frame->full || bytes > sizeof(frame->data) - frame->bytes) {
        frame->full = true;
        return;
    }
    if (bytes)
        memcpy(frame->data + frame->bytes, data, bytes);
    frame->bytes += bytes;
}

static void put_number(struct ls_frame *frame, uint64_t number, size_t bytes)
{
    uint8_t data[8];
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)(number >> 8 * i);
    ls_frame_put_bytes(frame, data, bytes);
}

void ls_frame_put_u8(struct ls_frame *frame, uint8_t number)
{
    put_number(frame, number, 1);
}

void ls_frame_put_u16(struct ls_frame *frame, uint16_t number)
{
    put_number(frame, number, 2);
}

void ls_frame_put_u32(struct ls_frame *frame, uint32_t number)
{
    put_number(frame, number, 4);
}

void ls_frame_put_u64(struct ls_frame *frame, uint64_t number)
{
    put_number(frame, number, 8);
}

void ls_frame_put_text(struct ls_frame *frame, const char *text)
{
    const size_t length = strlen(text);
    if (length > UINT16_MAX) {
        frame->full = true;
        return;
    }
    ls_frame_put_u16(frame, (uint16_t)length);
    ls_frame_put_bytes(frame, text, length);
}

const uint8_t *ls_frame_get_bytes(struct ls_frame_reader *reader, size_t bytes)
{
    if (reader->wrong || bytes > reader->left) {
        reader->wrong = true;
        return NULL;
    }
    const uint8_t *data = reader->at;
    reader->at += bytes;
    reader->left -= bytes;
    return data;
}

static uint64_t get_number(struct ls_frame_reader *reader, size_t bytes)
{
    const uint8_t *data = ls_frame_get_bytes(reader, bytes);
    uint64_t number = 0;
    for (size_t i = 0; data && i < bytes; i++)
        number |= (uint64_t)data[i] << 8 * i;
    return number;
}

uint8_t ls_frame_get_u8(struct ls_frame_reader *reader)
{
    return (uint8_t)get_number(reader, 1);
}

uint16_t ls_frame_get_u16(struct ls_frame_reader *reader)
{
    return (uint16_t)get_number(reader, 2);
}

uint32_t ls_frame_get_u32(struct ls_frame_reader *reader)
{
    return (uint32_t)get_number(reader, 4);
}

uint64_t ls_frame_get_u64(struct ls_frame_reader *reader)
{
    return get_number(reader, 8);
}

void ls_frame_get_text(struct ls_frame_reader *reader, char *out, size_t room)
{
    const size_t length = ls_frame_get_u16(reader);
    const uint8_t *text = ls_frame_get_bytes(reader, length);
    out[0] = '\0';
    if (!text)
        return;
    if (length >= room || memchr(text, '\0', length)) {
        reader->wrong = true;
        return;
    }
    memcpy(out, text, length);
    out[length] = '\0';
}
