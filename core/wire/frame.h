// SPDX-License-Identifier: Apache-2.0
// Small frames of numbers, texts and bytes, little-endian: what workers and the store of worker 0
// say to each other (core/cluster/frames.h), and what a server is told of variables. A reader never
// reads past its frame; once something did not fit, everything after it reads as zero and `wrong`
// is set, so that a function checks once, at its end. [any thread]
#ifndef LS_WIRE_FRAME_H
#define LS_WIRE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_FRAME_MOST ((size_t)65536) // bytes of a frame on the wire
#define LS_FRAME_OVERHEAD ((size_t)21) // its length, and the seal (core/wire/connection.h)
#define LS_FRAME_PLAIN (LS_FRAME_MOST - LS_FRAME_OVERHEAD)

struct ls_frame {
    size_t bytes;
    bool full; // something did not fit and was left out
    uint8_t data[LS_FRAME_PLAIN];
};

// Every frame begins with its kind (8 bits) and the generation of the cluster (32 bits).
void ls_frame_begin(struct ls_frame *frame, uint8_t kind, uint32_t generation);
void ls_frame_put_u8(struct ls_frame *frame, uint8_t number);
void ls_frame_put_u16(struct ls_frame *frame, uint16_t number);
void ls_frame_put_u32(struct ls_frame *frame, uint32_t number);
void ls_frame_put_u64(struct ls_frame *frame, uint64_t number);
void ls_frame_put_bytes(struct ls_frame *frame, const void *data, size_t bytes);
void ls_frame_put_text(struct ls_frame *frame, const char *text); // up to 65535 letters

struct ls_frame_reader {
    const uint8_t *at;
    size_t left;
    bool wrong;
};

uint8_t ls_frame_get_u8(struct ls_frame_reader *reader);
uint16_t ls_frame_get_u16(struct ls_frame_reader *reader);
uint32_t ls_frame_get_u32(struct ls_frame_reader *reader);
uint64_t ls_frame_get_u64(struct ls_frame_reader *reader);
const uint8_t *ls_frame_get_bytes(struct ls_frame_reader *reader, size_t bytes); // NULL: wrong
// Copies a text with its final zero. A text that does not fit in `room`, or has a zero inside, is
// wrong, and then the copy is "".
void ls_frame_get_text(struct ls_frame_reader *reader, char *out, size_t room);

#endif
