// SPDX-License-Identifier: Apache-2.0
// A fake of what collective `nccl` calls of NCCL: ranks are threads of one or more processes of a host, data are moved and
// added in plain loops, on the streams of the fake of CUDA. THIS IS NEITHER NCCL NOR A GPU: it shows what the host code does, and
// nothing of NCCL's algorithms, links or speed. Never installed.
//
// What makes mistakes show:
// - Communicators are non-blocking: a call answers "in progress" until it was asked for twice, and only then is anything put on
//   the stream. A call before that is refused.
// - An operation begins when those of all ranks have come to the front of their streams; it reads its input then.
// - Ranks that call different operations, on which NCCL would hang, end the process with a line; so do a communicator that is
//   used after its end, a stream of another GPU, and an operation that is recorded on some ranks only, or that ranks replay from
//   recordings which they did not make together.
// - Settings of a communicator that the version does not know are passed over, and wrong ones refused, as NCCL does; a later call
//   of an older version ends the process.
// - A window is made when all ranks have asked for one. Memory that is not ncclMemAlloc's, an address of no page, other sizes on
//   other ranks, a capture, memory that is freed under a window and a communicator that is destroyed with one end the process; so
//   does an operation in windows at other places on other ranks.
// Variables make it fail: NCCL_FAKE_VERSION (22809), NCCL_FAKE_NO_WINDOWS (1: none is made, without an error; 2: with one), NCCL_FAKE_ID_ERROR (what ncclGetUniqueId answers), NCCL_FAKE_MISSING
// (a rank that never joins), NCCL_FAKE_ERROR (the so-many-th rank to begin an operation breaks the connection: all get
// ncclRemoteError, and it never ends), NCCL_FAKE_STUCK (the so-many-th call stays in progress), NCCL_FAKE_STAY (1: finalizing never ends),
// NCCL_FAKE_TWICE (1: reductions have rank 0's input twice).
#ifndef LS_TESTS_NCCL_FAKE_H
#define LS_TESTS_NCCL_FAKE_H

#include "plugins/collective/nccl/calls.h"
#include "tests/support/cuda-fake/fake.h"

#include <pthread.h>

enum { NCCL_FAKE_RANKS = 16 };

enum nccl_fake_operation {
    NCCL_FAKE_ALL_REDUCE,
    NCCL_FAKE_REDUCE_SCATTER,
    NCCL_FAKE_ALL_GATHER,
    NCCL_FAKE_BROADCAST,
    NCCL_FAKE_REDUCE,
    NCCL_FAKE_ALL_TO_ALL,
};

// One operation of one rank; `from` and `to` are where the fake finds the memory.
struct nccl_fake_order {
    struct ncclComm *comm;
    struct CUstream_st *stream;
    const void *from;
    void *to;
    size_t count; // as NCCL's call has it
    unsigned operation, type, reduction;
    int root;
    uint64_t
        recording; // the so-many-th with operations of this rank; 0: given outside of recordings
    // The window that has all of it: the so-many-th of this rank, and where in it; 0: none has.
    uint64_t window, from_at, to_at;
};

// Orders of all ranks that belong together.
struct nccl_fake_slot {
    uint64_t number;
    struct nccl_fake_order orders[NCCL_FAKE_RANKS];
    void *inputs[NCCL_FAKE_RANKS]; // copies
    uint32_t arrived, done;
    struct nccl_fake_slot *next;
};

struct nccl_fake_link; // link.c: the connections to other processes

// Each process has all of it; ranks of other processes have neither memory nor streams here.
struct nccl_fake_clique {
    ncclUniqueId id;
    int world, joined, finalized;
    int own, open; // ranks of this process, and how many of them are neither closed nor aborted
    struct nccl_fake_link *link; // NULL: all ranks are in this process
    struct ncclComm *ranks[NCCL_FAKE_RANKS];
    unsigned failure; // of all its ranks, for good
    char text[160]; // of the failure
    struct nccl_fake_slot *slots;
    struct nccl_fake_clique *next;
};

enum nccl_fake_phase {
    NCCL_FAKE_IDLE,
    NCCL_FAKE_JOINING,
    NCCL_FAKE_PUTTING,
    NCCL_FAKE_REGISTERING,
    NCCL_FAKE_FINALIZING,
};

enum { NCCL_FAKE_WINDOWS = 8 }; // of a rank, ever

// windows.c
struct ncclWindow_vidmem {
    struct ncclComm *comm;
    const char *memory; // as the caller names it
    size_t bytes;
    uint64_t number; // from 1
    int open;
};

struct ncclComm {
    struct nccl_fake_clique *clique;
    int rank, device;
    long long gpu; // the same number in all processes
    enum nccl_fake_phase phase;
    int questions; // since the phase has begun
    int stuck, aborted, closed;
    struct nccl_fake_order *orders; // given, but not yet on the stream
    uint32_t order_count, order_room;
    uint64_t recording,
        recordings; // the last that had operations (double_recording_of), and how many
    uint64_t arrived, done; // orders that came to the front, and that are over
    struct CUstream_st *stream; // of the last order
    struct nccl_fake_order exchange; // of which `sent` and `received` blocks were named
    int sent, received;
    struct ncclWindow_vidmem windows[NCCL_FAKE_WINDOWS]; // asked for, `asked` of them
    struct ncclWindow_vidmem **answer; // where the last goes
    int asked;
};

extern struct nccl_fake_clique *nccl_fake_cliques; // all that ever were; under the lock

// Over everything here; taken after the lock of the streams, never before it.
extern pthread_mutex_t nccl_fake_lock;

// Puts what was given on the stream; under no lock. 0, or an error of NCCL.
unsigned nccl_fake_flush(struct nccl_fake_order *orders, uint32_t count);

// For good, on all ranks; under the lock.
void nccl_fake_break(struct nccl_fake_clique *clique, unsigned error, const char *text);

// ---- Other processes: link.c, but for nccl_fake_hear ----

enum nccl_fake_kind {
    NCCL_FAKE_JOINS,
    NCCL_FAKE_ARRIVES,
    NCCL_FAKE_REGISTERS,
    NCCL_FAKE_FINALIZES,
    NCCL_FAKE_IS_LOST,
};

// What a process tells the others.
struct nccl_fake_message {
    enum nccl_fake_kind kind;
    int rank, world;
    long long gpu;
    struct nccl_fake_order order; // without its pointers
    uint64_t bytes; // of the input that follows
};

// Other processes can reach this one by the id.
void nccl_fake_listen(const ncclUniqueId *id);
// Once in each process, when its ranks have joined and are not all. Under no lock, as the others.
void nccl_fake_connect(struct nccl_fake_clique *clique);
void nccl_fake_tell(struct nccl_fake_clique *clique, const struct nccl_fake_message *message,
                    const void *input);
// `well`: all ranks have finalized, and the others may hear so.
void nccl_fake_disconnect(struct nccl_fake_clique *clique, int well);

// Does here what was told there; takes the input. Whether it is news (NCCL_FAKE_IS_LOST).
int nccl_fake_hear(struct nccl_fake_clique *clique, const struct nccl_fake_message *message,
                   void *input);
// operations.c; under the lock
void nccl_fake_arrive(struct ncclComm *comm, const struct nccl_fake_order *order, void *input);

// ---- windows.c ----

// Ends the process where this version has no such call; for memory that is no window's.
void nccl_fake_need(const char *call, int since);
void nccl_fake_check_memory(const void *memory, size_t bytes);

// Under the lock:

// A rank asks for its next window of so many bytes.
void nccl_fake_ask(struct ncclComm *comm, const void *memory, size_t bytes);
// Whether all ranks have asked for the one that this rank waits for; ends the process where sizes differ.
int nccl_fake_have_asked(const struct ncclComm *comm);
// All have: the window is there.
void nccl_fake_answer(struct ncclComm *comm);
// Where the memory of an order is.
void nccl_fake_find_window(struct nccl_fake_order *order, const void *from, const void *to);
int nccl_fake_open_windows(const struct ncclComm *comm);

size_t nccl_fake_bytes(unsigned type);
// to[i] = to[i] (+) from[i]
void nccl_fake_combine(void *to, const void *from, size_t count, unsigned type, unsigned reduction);

__attribute__((noreturn, format(printf, 1, 2))) void nccl_fake_stop(const char *format, ...);

// What is in use; for tests.
struct nccl_fake_counts {
    uint64_t communicators, aborts, slots;
    uint64_t memories, windows; // of ncclMemAlloc; open
    uint64_t symmetric; // operations in windows, so far
    int ctas, policy; // of the last communicator; 0: NCCL's own choice
};
DOUBLE_EXPORT void nccl_fake_count(struct nccl_fake_counts *out);
extern struct nccl_fake_counts nccl_fake_live; // under the lock

#define NCCL_CALL(result, name, arguments) DOUBLE_EXPORT result name arguments;
#include "plugins/collective/nccl/calls_list.h"

#endif
