// SPDX-License-Identifier: Apache-2.0
// What workers and the store of worker 0 say to each other: small frames of numbers, texts and
// bytes, little-endian. A reader never reads past its frame; once something did not fit, everything
// after it reads as zero and `wrong` is set, so that a function checks once, at its end. [any
// thread]
#ifndef LS_WIRE_FRAME_H
#define LS_WIRE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_FRAME_MOST ((size_t)65536) // bytes of a frame on the wire
#define LS_FRAME_OVERHEAD ((size_t)21) // its length, and the seal (core/wire/connection.h)
#define LS_FRAME_PLAIN (LS_FRAME_MOST - LS_FRAME_OVERHEAD)

// Every frame begins with its kind (8 bits) and the generation of the cluster (32 bits).
enum ls_frame_kind {
    // Of a worker: role 8, kind 8 (enum ls_join_kind), number 32, workers 32, servers 32, count 32,
    // restart 32, process 64, port of its reserve 16, texts host and name of the machine, number of
    // agreements 16, and a name and a value for each.
    LS_FRAME_JOIN = 1,
    LS_FRAME_BEAT = 2, // both ways: step 64, text `where`; from the store, those of worker 0
    // Of a worker: sequence 64, operation 8, root 32, bytes 64 (both the same on all workers), and
    // its part of the data up to the end of the frame.
    LS_FRAME_BLOCK = 3,
    // 4, 5 and 11 were values under keys: no kind has these numbers again.
    LS_FRAME_GIVE_UP = 6, // of a worker: text
    LS_FRAME_GOODBYE = 7, // both ways: an orderly end
    // Of the store: number of the member 32, workers 32, survivors 32, name of the machine of
    // worker 0, elastic 8, and for each worker its count 32 and the number of its host 32; elastic
    // also its former number 32, and port 16 and text address of its reserve.
    LS_FRAME_WELCOME = 8,
    LS_FRAME_REFUSED = 9, // of the store: status 32, text
    // Of the store: sequence 64, total 32, offset 32, bytes; the total is a size (32) for each
    // worker and then the parts one after the other.
    LS_FRAME_RESULT = 10,
    LS_FRAME_LOST = 12, // of the store: status 32, member 32, text
    LS_FRAME_REFORM = 13, // of a worker, which waits for a new generation: deadline 64
    LS_FRAME_WAIT = 14, // of the store: the worker comes in when the others form anew
    // Of a worker: sequence 64, deadline 64, text key, bytes 32 of each, members 32, the number 32
    // of each, and its own bytes up to the end of the frame.
    LS_FRAME_MEET = 15,
    // Of the store: sequence 64, status 32; with LS_OK offset 32 and bytes, the blocks of all
    // members one after the other; else a text.
    LS_FRAME_MET = 16,
    LS_FRAME_LEFT = 17, // of the store: member 32, text; it has ended in order
    LS_FRAME_TELL = 18, // of a worker: texts key and news, members 32, the number 32 of each
    LS_FRAME_TOLD = 19, // of the store, to those: who tells it 32, texts key and news
};

// Who asks to join.
enum ls_join_kind {
    LS_JOIN_FIRST, // one of those that begin the training
    LS_JOIN_LATER, // a new worker for a training that has begun
    LS_JOIN_AGAIN, // one of the last generation, whose number is the frame's
};

struct ls_frame {
    size_t bytes;
    bool full; // something did not fit and was left out
    uint8_t data[LS_FRAME_PLAIN];
};

void ls_frame_begin(struct ls_frame *frame, enum ls_frame_kind kind, uint32_t generation);
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
