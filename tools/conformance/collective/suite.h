// SPDX-License-Identifier: Apache-2.0
// The parts of the suite for collectives: a case, the ranks that run it, what they do and how they judge it.
#ifndef LS_TOOLS_CONFORMANCE_COLLECTIVE_SUITE_H
#define LS_TOOLS_CONFORMANCE_COLLECTIVE_SUITE_H

#include "core/attributes.h"
#include "core/base/threads.h"
#include "core/collective/communicator.h"
#include "tools/conformance/collective.h"
#include "tools/conformance/devices.h"

#include <stdbool.h>

#define MAXIMUM_WORLD 16
#define MESSAGE_BYTES 512
#define LONG_DEADLINE_NS UINT64_C(60000000000)
#define SHORT_DEADLINE_NS UINT64_C(300000000)

struct ls_collective_suite {
    const struct ls_collective_conformance_options *options;
    ls_conformance_report report;
    void *context;
    struct ls_conformance_counts counts;
    struct ls_conformance_devices devices;
    uint32_t operations, dtypes, reductions; // masks that are tested
};

struct ls_collective_rank;
typedef void (*ls_collective_body)(struct ls_collective_rank *rank);

struct ls_collective_case {
    const char *name;
    uint32_t world;
    uint64_t segment_bytes;
    uint64_t deadline_ns;
    uint32_t operation, dtype, reduction;
    ls_collective_body body;
};

// One rank of a running case. What it finds wrong goes to `message`.
struct ls_collective_rank {
    const struct ls_collective_suite *suite;
    const struct ls_collective_case *trial;
    struct ls_communicator *communicator;
    uint32_t number;
    enum ls_status status; // what the body's last call returned, where the case wants to know
    uint64_t hash; // of the result, where the case compares ranks
    char message[MESSAGE_BYTES];
    pthread_t thread;
};

struct ls_collective_buffer {
    char *memory; // of the host
    void *data; // behind the guard; `offset` elements past a multiple of 64 bytes
    struct ls_conformance_image image; // of all of `memory`
    uint64_t count, offset, element_bytes;
};

// Room for `count` elements between guards; false: no memory, which is blamed, and the others are woken.
bool ls_conformance_buffer_init(struct ls_collective_rank *rank,
                                struct ls_collective_buffer *buffer, uint64_t count,
                                uint64_t offset, uint32_t dtype);
void ls_conformance_buffer_finish(struct ls_collective_buffer *buffer); // takes a zeroed one

// What this rank contributes to run `run`.
void ls_conformance_fill(const struct ls_collective_rank *rank, struct ls_collective_buffer *buffer,
                         uint64_t run);

// Compares with what must have come out of it.
void ls_conformance_judge(struct ls_collective_rank *rank,
                          const struct ls_collective_buffer *buffer, uint64_t run, uint32_t root);

// Notes what is wrong; the first finding counts.
LS_PRINTF(2, 3) void ls_conformance_blame(struct ls_collective_rank *rank, const char *format, ...);
void ls_conformance_expect_ok(struct ls_collective_rank *rank, enum ls_status status,
                              const char *what);

// What a rank does in a case.
void ls_conformance_values_body(struct ls_collective_rank *rank);
void ls_conformance_large_body(struct ls_collective_rank *rank);
void ls_conformance_in_flight_body(struct ls_collective_rank *rank);
void ls_conformance_bits_body(struct ls_collective_rank *rank);
void ls_conformance_late_body(struct ls_collective_rank *rank);
void ls_conformance_lost_body(struct ls_collective_rank *rank);
void ls_conformance_abort_body(struct ls_collective_rank *rank);
void ls_conformance_abort_busy_body(struct ls_collective_rank *rank);
void ls_conformance_other_count_body(struct ls_collective_rank *rank);
void ls_conformance_other_reduction_body(struct ls_collective_rank *rank);
void ls_conformance_other_operation_body(struct ls_collective_rank *rank);

#endif
