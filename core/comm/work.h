// SPDX-License-Identifier: Apache-2.0
// What a work is, for the files that move one: work.c (collectives), messages.c. Private
// to them.
#ifndef LS_COMM_WORK_H
#define LS_COMM_WORK_H

#include "core/comm/comm.h"

struct ls_comm_work {
    struct ls_comm *comm;
    struct ls_comm_request request;
    uint64_t deadline_ns;
    int32_t here; // of a barrier
    uint64_t begun_ns; // of a message
    uint32_t source; // of a receive: the sender
    uint64_t serial; // of a send, among those to its peer
    bool refused; // the receiver expects `other_bytes`
    uint64_t other_bytes;
    bool copies; // through the communicator's own parts
    bool begun;
    struct ls_collective_plan *plan;
    char *line; // of the log, why it failed
    bool ends_all; // so did the communicator
    enum ls_status status;
    atomic_bool told;
    atomic_uint users; // the program; the communicator, until it is over
    atomic_uint sleepers;
    uint32_t over; // a word to wait for: 1
    struct ls_comm_work *next;
};

// NULL, logged: there is no memory. The thread that moves it ends it (ls_work_end).
struct ls_comm_work *ls_work_create(struct ls_comm *comm, const struct ls_comm_request *request);
void ls_work_discard(struct ls_comm_work *work); // that could not be started
bool ls_work_is_over(const struct ls_comm_work *work);
// From then on others may free it.
void ls_work_end(struct ls_comm_work *work, enum ls_status status);
// How a work that is over has ended; says why, once.
LS_STATUS ls_work_tell(struct ls_comm_work *work);
// Moves the communicator's works, where nobody else does, until this one is over or the time has
// come.
void ls_work_drive(struct ls_comm_work *work, uint64_t end_ns);
// Where nothing else is under way the caller drives the communicator, and no work is made: `*out`
// is how the operation has ended. False: works are under way.
bool ls_work_run(struct ls_comm *comm, const struct ls_comm_request *request, enum ls_status *out);
// Until it is over, or the time has come.
void ls_work_sleep(struct ls_comm_work *work, uint64_t end_ns);
// Another process is to blame for a failure, whichever rank noticed it first: says so, in place of
// `line`, and returns how the work ends; LS_OK: nothing is known of that. `waits`: for a moment, as
// the news may be on its way.
enum ls_status ls_work_blame_process(const struct ls_comm *comm, const struct ls_comm_work *work,
                                     enum ls_status status, bool waits, char **line);

// ---- mean.c: means of types whose sums do not fit them ----

// A mean of halves is added up in float32, of whole numbers in a type twice as wide, and divided
// and rounded once: in its own type the sum of all ranks would be rounded at each step, or wrap.
struct ls_wide_mean {
    uint32_t dtype; // that is added up; 0: the mean is taken in its own type
    uint32_t lanes; // elements of it for a value: of int64 the quotient and the remainder
};

struct ls_wide_mean ls_wide_mean_of(uint32_t dtype, uint32_t reduction, uint32_t world);
// wide: count * lanes elements.
void ls_wide_mean_begin(uint32_t dtype, uint32_t world, const void *values, uint64_t count,
                        void *wide);
void ls_wide_mean_end(uint32_t dtype, uint32_t world, const void *wide, uint64_t count,
                      void *values);

#endif
