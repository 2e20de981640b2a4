// SPDX-License-Identifier: Apache-2.0
// What workers and the store of worker 0 say to each other. Old and new processes understand each
// other, so that a kind keeps its number and its contents.
#ifndef LS_CLUSTER_FRAMES_H
#define LS_CLUSTER_FRAMES_H

#include "core/wire/frame.h"

// "step 64" is a number of 64 bits.
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
    LS_FRAME_TOLD = 19, // of the store, to those: the worker that tells it 32, texts key and news
};

// What asks to join.
enum ls_join_kind {
    LS_JOIN_FIRST, // one of those that begin the training
    LS_JOIN_LATER, // a new worker for a training that has begun
    LS_JOIN_AGAIN, // one of the last generation, whose number is the frame's
};

#endif
