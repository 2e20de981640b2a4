// SPDX-License-Identifier: Apache-2.0
// What streams, events and recordings of the fake share. All of it is under one lock, which is open while work runs.
#ifndef LS_TESTS_CUDA_FAKE_STREAM_H
#define LS_TESTS_CUDA_FAKE_STREAM_H

#include "tests/support/cuda-fake/fake.h"

#include <pthread.h>

extern pthread_mutex_t double_lock;

// How far a stream is. It outlives the stream while an event or somebody who waits still names it.
struct double_line {
    uint64_t posted, done;
    uint32_t holders;
    struct CUstream_st *stream; // NULL once closed: everything is done then
};

// Work put on a stream; what is recorded looks the same, without a stream.
struct double_item {
    double_work run;
    const void *data;
    size_t bytes;
    int kernel;
    double_ready ready; // NULL: at once
};

// Nodes of a recording that others run after.
enum { DOUBLE_SET = 16 };
struct double_set {
    uint32_t count;
    uint32_t nodes[DOUBLE_SET];
};

struct double_capture;
struct work;

struct CUstream_st {
    pthread_cond_t changed;
    pthread_t thread;
    struct double_line *line;
    struct work *first, **last;
    const struct double_line *blocked; // thread: on whom the first of the queue waits
    uint64_t asked; // deferred: what had been posted when somebody asked last
    int device, deferred, begun, ending, running;
    int random; // deferred, and with others in any order
    int priority; // only kept: the fake keeps no order but that of events
    int meeting; // thread: the first of the queue is not ready
    struct CUstream_st *next; // of all
    struct double_capture *capture; // NULL: not recording
    struct double_set set; // recording: what the next node runs after
};

struct CUevent_st {
    int device;
    struct double_line *line; // NULL: never recorded, or in a recording
    uint64_t ticket;
    uint64_t capture; // number of the recording; 0: none
    struct double_set set;
};

extern struct CUstream_st *double_streams;

// ---- stream.c; all under the lock ----

unsigned double_failed(void); // what failed for good; under no lock
unsigned double_post(struct CUstream_st *stream, const struct double_item *item);
unsigned double_post_wait(struct CUstream_st *stream, struct double_line *line, uint64_t ticket);
unsigned double_ask(struct double_line *line, uint64_t ticket);
struct double_line *double_line_hold(struct double_line *line);
void double_line_drop(struct double_line *line); // takes NULL
uint32_t double_draw(uint32_t below); // a random number

// ---- capture.c; under the lock but for the last ----

unsigned double_capture_add(struct CUstream_st *stream, const struct double_item *item);
void double_capture_record(const struct CUstream_st *stream, struct CUevent_st *event);
unsigned double_capture_wait(struct CUstream_st *stream, const struct CUevent_st *event);
// The calling thread does what spoils a recording that it has begun.
unsigned double_capture_spoils_locked(void);
unsigned double_capture_spoils(void);

#endif
