// SPDX-License-Identifier: Apache-2.0
// What the files of the transport suite share; nobody else includes it.
#ifndef LS_TOOLS_CONFORMANCE_TRANSPORT_SUITE_H
#define LS_TOOLS_CONFORMANCE_TRANSPORT_SUITE_H

#include "tools/conformance/devices.h"
#include "tools/conformance/tally.h"
#include "tools/conformance/transport.h"

#include <pthread.h>
#include <stdatomic.h>

#define LS_TRANSPORT_MOST_ENDPOINTS 8

struct ls_transport_suite {
    struct ls_transport_conformance_options options;
    struct ls_conformance_devices devices;
    struct ls_tally tally;
};

struct ls_transport_trial;

// One endpoint of a running case, with its thread.
struct ls_transport_side {
    struct ls_transport_trial *trial;
    struct ls_transport *endpoint;
    uint32_t rank;
    pthread_t thread;
};

// A running case: what its sides share.
struct ls_transport_trial {
    struct ls_transport_suite *suite;
    const struct ls_transport_interface *ops;
    uint32_t world;
    void (*body)(struct ls_transport_side *side); // what each side does [its thread]
    uint32_t dtype, reduction; // of the case
    uint64_t variant; // of the case: a count, a seed, ...
    _Atomic uint32_t stage; // for bodies that go step by step
    struct ls_transport_side sides[LS_TRANSPORT_MOST_ENDPOINTS];
};

// ---- Support: support.c ----

// Runs the case on all endpoints, if it is wanted; the name is already begun in the tally.
void ls_transport_case_run(struct ls_transport_suite *suite, struct ls_transport_trial *trial);

// Small whole numbers, exact in every type; `value` is not negative.
void ls_transport_encode(void *memory, uint64_t index, uint32_t dtype, uint32_t value);
// What `a` and `b` become under a reduction.
uint32_t ls_transport_combine(uint32_t reduction, uint32_t a, uint32_t b);
// What rank `rank` has in element `index` of message `message`: 0 .. 3 (1 .. 2 for products).
uint32_t ls_transport_value(const struct ls_transport_trial *trial, uint32_t rank, uint64_t message,
                            uint64_t index);

// A buffer with a guard before and after, filled with the values of (rank, message). Freed by ls_transport_buffer_finish.
struct ls_transport_buffer {
    char *memory; // of the host
    void *values; // in it
    void *data; // where transfers find them
    struct ls_conformance_image image; // of all of `memory`
    uint64_t count;
    uint32_t dtype;
    unsigned char guard; // another for each rank, so that a guard that is copied shows
};
bool ls_transport_buffer_init(struct ls_transport_side *side, struct ls_transport_buffer *buffer,
                              uint64_t count, uint32_t rank, uint64_t message);
// After `values` were changed.
bool ls_transport_buffer_push(struct ls_transport_side *side,
                              const struct ls_transport_buffer *buffer);
// Blames where element i is not `expected(side, message, i)`, or a guard was written.
typedef uint32_t (*ls_transport_expected)(const struct ls_transport_side *side, uint64_t message,
                                          uint64_t index);
void ls_transport_buffer_judge(struct ls_transport_side *side,
                               const struct ls_transport_buffer *buffer, uint64_t message,
                               ls_transport_expected expected, const char *what);
void ls_transport_buffer_finish(struct ls_transport_buffer *buffer);

struct ls_transfer ls_transport_send(uint32_t to, uint64_t number,
                                     const struct ls_transport_buffer *buffer);
struct ls_transfer ls_transport_receive(uint32_t from, uint64_t number,
                                        const struct ls_transport_buffer *buffer);

// Posts; false: blamed.
bool ls_transport_post(struct ls_transport_side *side, struct ls_transfer *transfer);
// Tests and waits until all transfers are complete, or a call returns something else than LS_OK and LS_AGAIN, or 5 s
// have passed (LS_PEER_LOST).
int32_t ls_transport_complete(struct ls_transport_side *side, struct ls_transfer *transfers,
                              size_t count);
// The same; blames what is not LS_OK.
bool ls_transport_expect_complete(struct ls_transport_side *side, struct ls_transfer *transfers,
                                  size_t count, const char *what);

// The next stage of the case, and waiting for one (5 s; false: blamed).
void ls_transport_advance(struct ls_transport_side *side);
bool ls_transport_await(struct ls_transport_side *side, uint32_t stage);
void ls_transport_pause(uint64_t milliseconds);

// ---- Cases ----

void ls_transport_value_cases(struct ls_transport_suite *suite); // values.c
void ls_transport_order_cases(struct ls_transport_suite *suite); // order.c
void ls_transport_end_cases(struct ls_transport_suite *suite); // ends.c

#endif
