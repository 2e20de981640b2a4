// SPDX-License-Identifier: Apache-2.0
// Communicators without a model: comm.c (opening and closing), operations.c (the public
// operations), work.c (which thread moves them, and when they are over), messages.c (messages
// between two ranks).
#ifndef LS_COMM_COMM_H
#define LS_COMM_COMM_H

#include "core/collective/communicator.h"
#include "core/loader/loader.h"
#include "core/comm/mixed_transport.h"
#include "lockstep.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

// What the ranks of one ls_comm_open have in common in this process, until the last of them is
// closed.
struct ls_comm_ranks {
    struct ls_loader *loader;
    const struct ls_opened_plugin *collective, *transport;
    struct ls_mixed_transport mixed; // what `transport` is, where there are two
    struct ls_comm **comms; // of this process, by rank
    atomic_uint open;
    uint32_t world;
    uint32_t count; // of `comms`
    char *name;
    struct ls_job *job; // NULL: ranks are threads
    uint32_t *members; // of the job, by rank
    uint32_t *hosts; // of each rank, numbered from 0; NULL: all are on one
    uint32_t meetings; // so far
    uint64_t deadline_ns; // of opening
};

struct ls_comm {
    struct ls_comm_ranks *ranks; // NULL: closed
    uint32_t rank;
    uint64_t forks; // of this process and its ancestors, when it was opened
    struct ls_communicator *communicator;
    char *parts; // of all ranks, where those of the caller do not begin where the collective's do
    uint64_t room; // bytes
    _Atomic uint64_t deadline_ns;
    char about[320];
    struct ls_comm_messages *messages; // NULL: none
    struct ls_comm *next_of_job; // under the job's lock
    char *reason; // likewise: why another process has ended it; NULL: none has said so
    uint64_t *answers; // likewise, of each rank: how many calls it has begun; NULL: nobody is asked
    atomic_uint users; // the program, and each work that was not freed

    // Works. The thread that sets `driven` moves the communicator and the first work, until it
    // clears it.
    pthread_mutex_t lock; // of what follows
    pthread_cond_t changed;
    struct ls_comm_work *first, *last; // not over, in the order in which they were started
    bool driven, closing;
    bool threaded; // there is a thread, for works that nobody waits for
    pthread_t thread;
    enum ls_status failed; // LS_OK, or how every work ends from now on
    char *why; // the line of the log; NULL: there was no memory for it
    char *refusal; // the line of the last call that was refused, of the driver; NULL: none
    struct ls_communicator_call refused; // which it was
    atomic_bool told; // it was logged
    atomic_bool aborted; // by this process
};

// What a work does; enum ls_collective_operation, but for these.
enum ls_comm_kind {
    LS_COMM_IN_PLACE, // the call as it is
    LS_COMM_ALL_GATHER, // from `mine` to `all`
    LS_COMM_REDUCE_SCATTER, // from `all` to `mine`
    LS_COMM_ALL_TO_ALL, // from `mine` to `all`, which are as long
    LS_COMM_BARRIER,
    LS_COMM_SEND, // from here on: messages
    LS_COMM_RECEIVE,
};

// An operation, as the caller has given it.
struct ls_comm_request {
    const char *name; // "ls_comm_all_reduce"
    enum ls_comm_kind kind;
    struct ls_communicator_call call;
    void *mine, *all; // of the kinds that have them; what is only read is not written
    uint64_t count; // elements of a rank's part; of a message, its bytes in `mine`
    uint32_t peer; // of a message
    uint64_t tag;
};

// ---- work.c ----

LS_STATUS ls_comm_start(struct ls_comm *comm, const struct ls_comm_request *request,
                        struct ls_comm_work **out);
void ls_comm_works_init(struct ls_comm *comm);
// Ends what is under way, and the thread.
void ls_comm_works_close(struct ls_comm *comm);
void ls_comm_unref(struct ls_comm *comm);

// ---- messages.c ----

// The endpoints of messages, between all ranks. [the thread that opens]
LS_STATUS ls_comm_messages_open(struct ls_comm *comm);
void ls_comm_messages_stop(
    struct ls_comm_messages *messages); // takes NULL: ends all works, and the thread
void ls_comm_messages_close(struct ls_comm_messages *messages); // likewise, after that
LS_STATUS ls_comm_messages_start(struct ls_comm *comm, const struct ls_comm_request *request,
                                 struct ls_comm_work **out);
// Waits for the work, and moves messages meanwhile where nobody else does; may return early.
void ls_comm_messages_drive(struct ls_comm_work *work, uint64_t end_ns);

// ---- job.c: communicators of a job ----

// From now on `comm` ends when one of its members is lost; at once if one is.
void ls_job_add(struct ls_job *job, struct ls_comm *comm);
void ls_job_remove(struct ls_job *job, const struct ls_comm *comm);
uint32_t ls_job_rank(const struct ls_job *job);
uint32_t ls_job_size(const struct ls_job *job);
const char *ls_job_plugin_path(const struct ls_job *job); // NULL: none
const char *ls_job_network(const struct ls_job *job); // likewise
uint32_t ls_job_host(const struct ls_job *job, uint32_t process); // number of its host
// How `ranks` tell each other something while they are opened: struct ls_exchange.
int32_t ls_job_exchange(void *ranks, const void *own, uint64_t bytes, void *all);
// Waits until it is known why `comm` has ended, but not longer than that, and says why.
// LS_PEER_LOST: a member is lost, or with `left` has left in order; LS_ABORTED: another member has
// ended it; LS_OK: nobody knows.
enum ls_status ls_job_verdict(struct ls_job *job, const struct ls_comm *comm, uint64_t patience_ns,
                              bool left, char *text, size_t bytes);
// Asks the other members how many calls they have begun, and waits for their answers, not for long:
// `ask` of struct ls_communicator_options. [thread that waits]
void ls_job_ask(void *comm, uint64_t *begun);
// Tells the other members why this process has ended it: a line of the log.
void ls_job_tell(struct ls_job *job, const struct ls_comm *comm, const char *line);

// As ls_comm_abort; the other processes hear why. [any thread]
void ls_comm_abort_because(struct ls_comm *comm, const char *why);
// LS_USAGE, said, in a forked child: the communicator is its parent's.
LS_STATUS ls_comm_check_process(const struct ls_comm *comm, const char *call);
// LS_USAGE, said, in a forked child: the job is its parent's.
LS_STATUS ls_job_check_process(const struct ls_job *job, const char *call);

// Forks that led to this process. In the child of one, communicators and jobs are the parent's,
// whose threads and connections it does not have: closing them does nothing, and calls are refused.
uint64_t ls_fork_count(void);

#endif
