// SPDX-License-Identifier: Apache-2.0
// A test double of what collective `nccl` calls of NCCL: ranks are threads of one process, data are moved and added in plain
// loops, on the streams of the double of CUDA. THIS IS NEITHER NCCL NOR A GPU: it shows what the host code does, and nothing of
// NCCL's algorithms, links or speed. Never installed.
//
// What makes mistakes show:
// - Communicators are non-blocking: a call answers "in progress" until it was asked for twice, and only then is anything put on
//   the stream. A call before that is refused.
// - An operation begins when those of all ranks have come to the front of their streams; it reads its input then.
// - Ranks that call different operations, on which NCCL would hang, end the process with a line; so do a communicator that is
//   used after its end, a stream of another GPU, and an operation that is recorded on some ranks only, or that ranks replay from
//   recordings which they did not make together.
// Variables make it fail: NCCL_DOUBLE_VERSION (22809), NCCL_DOUBLE_ID_ERROR (what ncclGetUniqueId answers), NCCL_DOUBLE_MISSING
// (a rank that never joins), NCCL_DOUBLE_ERROR (the so-many-th rank to begin an operation breaks the connection: all get
// ncclRemoteError, and it never ends), NCCL_DOUBLE_STUCK (the so-many-th call stays in progress), NCCL_DOUBLE_STAY (1: finalizing never ends),
// NCCL_DOUBLE_TWICE (1: reductions have rank 0's input twice).
#ifndef LS_TESTS_NCCL_DOUBLE_H
#define LS_TESTS_NCCL_DOUBLE_H

#include "plugins/collective/nccl/calls.h"
#include "tests/support/cuda-double/double.h"

#include <pthread.h>

enum { NCCL_DOUBLE_RANKS = 16 };

enum nccl_double_operation {
    NCCL_DOUBLE_ALL_REDUCE,
    NCCL_DOUBLE_REDUCE_SCATTER,
    NCCL_DOUBLE_ALL_GATHER,
    NCCL_DOUBLE_BROADCAST,
    NCCL_DOUBLE_REDUCE,
};

// One operation of one rank; `from` and `to` are where the double finds the memory.
struct nccl_double_order {
    struct ncclComm *comm;
    struct CUstream_st *stream;
    const void *from;
    void *to;
    size_t count; // as NCCL's call has it
    unsigned operation, type, reduction;
    int root;
    uint64_t
        recording; // the so-many-th with operations of this rank; 0: given outside of recordings
};

// Orders of all ranks that belong together.
struct nccl_double_slot {
    uint64_t number;
    struct nccl_double_order orders[NCCL_DOUBLE_RANKS];
    void *inputs[NCCL_DOUBLE_RANKS]; // copies
    uint32_t arrived, done;
    struct nccl_double_slot *next;
};

struct nccl_double_clique {
    ncclUniqueId id;
    int world, joined, finalized;
    struct ncclComm *ranks[NCCL_DOUBLE_RANKS];
    unsigned failure; // of all its ranks, for good
    char text[160]; // of the failure
    struct nccl_double_slot *slots;
    struct nccl_double_clique *next;
};

enum nccl_double_phase {
    NCCL_DOUBLE_IDLE,
    NCCL_DOUBLE_JOINING,
    NCCL_DOUBLE_PUTTING,
    NCCL_DOUBLE_FINALIZING
};

struct ncclComm {
    struct nccl_double_clique *clique;
    int rank, device;
    enum nccl_double_phase phase;
    int questions; // since the phase has begun
    int stuck, aborted, closed;
    struct nccl_double_order *orders; // given, but not yet on the stream
    uint32_t order_count, order_room;
    uint64_t recording,
        recordings; // the last that had operations (double_recording_of), and how many
    uint64_t arrived, done; // orders that came to the front, and that are over
    struct CUstream_st *stream; // of the last order
};

// Over everything here; taken after the lock of the streams, never before it.
extern pthread_mutex_t nccl_double_lock;

// Puts what was given on the stream; under no lock. 0, or an error of NCCL.
unsigned nccl_double_flush(struct nccl_double_order *orders, uint32_t count);

// For good, on all ranks; under the lock.
void nccl_double_break(struct nccl_double_clique *clique, unsigned error, const char *text);

size_t nccl_double_bytes(unsigned type);
// to[i] = to[i] (+) from[i]
void nccl_double_combine(void *to, const void *from, size_t count, unsigned type,
                         unsigned reduction);

__attribute__((noreturn, format(printf, 1, 2))) void nccl_double_stop(const char *format, ...);

// What is in use; for tests.
struct nccl_double_counts {
    uint64_t communicators, aborts, slots;
};
DOUBLE_EXPORT void nccl_double_count(struct nccl_double_counts *out);
extern struct nccl_double_counts nccl_double_live; // under the lock

#define NCCL_CALL(result, name, arguments) DOUBLE_EXPORT result name arguments;
#include "plugins/collective/nccl/calls_list.h"

#endif
