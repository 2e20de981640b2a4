// SPDX-License-Identifier: Apache-2.0
// What the files of the transport suite share; nobody else includes it.
#ifndef LS_TOOLS_CONFORMANCE_TRANSPORT_SUITE_H
#define LS_TOOLS_CONFORMANCE_TRANSPORT_SUITE_H

#include "core/collective/endpoints.h"
#include "tools/conformance/devices.h"
#include "tools/conformance/tally.h"
#include "tools/conformance/transport.h"

#include <pthread.h>
#include <stdatomic.h>

#define LS_TRANSPORT_MOST_ENDPOINTS 8

// How the endpoints of a case are spread over processes.
enum ls_transport_spread {
    LS_SPREAD_THREADS, // all in this process
    LS_SPREAD_PROCESSES, // each in a process of its own
    LS_SPREAD_MAPPED, // likewise, and buffers are where the others may map them
    LS_SPREAD_MIXED, // two processes take turns; only one has such buffers
    LS_SPREADS,
};

struct ls_transport_suite {
    struct ls_transport_conformance_options options;
    struct ls_conformance_devices devices;
    struct ls_tally tally;
    enum ls_transport_spread spread; // of the cases that are run now
};

struct ls_transport_trial;
struct ls_transport_meeting; // memory that the processes of a case share

// One endpoint of a running case, with its thread.
struct ls_transport_side {
    struct ls_transport_trial *trial;
    struct ls_transport *endpoint;
    uint32_t rank;
    pthread_t thread;
};

#define LS_TRANSPORT_NOBODY UINT32_MAX

// What happens to a process of a running case, after `stage` is 1 and `delay_us` more; after it,
// LS_TRANSPORT_HAPPENED is added to `stage`.
#define LS_TRANSPORT_HAPPENED (1u << 16)
struct ls_transport_accident {
    int signal; // that the process of endpoint `victim` gets; 0: nothing happens
    uint32_t victim;
    uint64_t delay_us;
};

// A running case: what its sides share. Where they are in several processes, each has a copy.
struct ls_transport_trial {
    struct ls_transport_suite *suite;
    const struct ls_transport_interface *ops;
    uint32_t world;
    uint32_t processes; // endpoint i is in process i % processes
    uint32_t process; // this one
    struct ls_transport_meeting *meeting; // NULL: one process
    struct ls_transport_accident accident;
    uint64_t deadline_ns; // that endpoints are opened with; 0: ls_transport_patience_ns()
    void (*body)(struct ls_transport_side *side); // what each side does [its thread]
    uint32_t dtype, reduction; // of the case
    uint64_t variant; // of the case: a count, a seed, ...
    _Atomic uint32_t *stage; // for bodies that go step by step; shared by all processes
    struct ls_transport_side sides[LS_TRANSPORT_MOST_ENDPOINTS];
};

// ---- Support: support.c ----

// How long a case waits for what must come: a quarter of its deadline.
uint64_t ls_transport_patience_ns(const struct ls_transport_suite *suite);

// Names the case and, where it is wanted and its endpoints can be spread like that, runs it on all
// endpoints.
LS_PRINTF(3, 4)
void ls_transport_case(struct ls_transport_suite *suite, struct ls_transport_trial *trial,
                       const char *format, ...);
// Whether two endpoints are in one process.
bool ls_transport_together(const struct ls_transport_trial *trial, uint32_t a, uint32_t b);

// Opens the endpoints of this process, runs a thread for each, and closes them; `processes.c` calls
// it in each process.
void ls_transport_sides_run(struct ls_transport_trial *trial);

// Small whole numbers, exact in every type; `value` is not negative.
void ls_transport_encode(void *memory, uint64_t index, uint32_t dtype, uint32_t value);
// What `a` and `b` become under a reduction.
uint32_t ls_transport_combine(uint32_t reduction, uint32_t a, uint32_t b);
// What rank `rank` has in element `index` of message `message`: 0 .. 3 (1 .. 2 for products).
uint32_t ls_transport_value(const struct ls_transport_trial *trial, uint32_t rank, uint64_t message,
                            uint64_t index);

// A buffer with a guard before and after, filled with the values of (rank, message). Freed by
// ls_transport_buffer_finish.
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
#define LS_TRANSPORT_NEVER LS_AGAIN
// Tests and waits until all transfers are complete, or a call returns something else than LS_OK and
// LS_AGAIN, or 5 s have passed (LS_TRANSPORT_NEVER).
int32_t ls_transport_complete(struct ls_transport_side *side, struct ls_transfer *transfers,
                              size_t count);
// The same; blames what is not LS_OK.
bool ls_transport_expect_complete(struct ls_transport_side *side, struct ls_transfer *transfers,
                                  size_t count, const char *what);

// The next stage of the case, and waiting for one (5 s; false: blamed).
void ls_transport_advance(struct ls_transport_side *side);
bool ls_transport_await(struct ls_transport_side *side, uint32_t stage);
void ls_transport_pause(uint64_t milliseconds);

// ---- Several processes: processes.c ----

// Runs the case in trial->processes children of this process, which must have no other thread, and
// collects what they blame. [main thread]
void ls_transport_processes_run(struct ls_transport_trial *trial);
// What the transport is opened with in each of them.
struct ls_exchange ls_transport_meeting_exchange(struct ls_transport_trial *trial);

// ---- Cases ----

void ls_transport_value_cases(struct ls_transport_suite *suite); // values.c
void ls_transport_order_cases(struct ls_transport_suite *suite); // order.c
void ls_transport_end_cases(struct ls_transport_suite *suite); // ends.c
void ls_transport_death_cases(struct ls_transport_suite *suite); // deaths.c
void ls_transport_arming_cases(struct ls_transport_suite *suite); // arming.c

#endif
