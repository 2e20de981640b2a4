// SPDX-License-Identifier: Apache-2.0
// What the files of messages share (messages.c, matching.c, transfers.c,
// failures.c). Private to them.
#ifndef LS_COMM_MESSAGES_H
#define LS_COMM_MESSAGES_H

#include "core/comm/work.h"

enum ls_header_kind {
    LS_HEADER_MESSAGE = 1,
    LS_HEADER_REFUSAL = 2, // of a message the other way: the receiver expects other bytes
};

// In front of each payload.
struct ls_header {
    uint32_t kind; // enum ls_header_kind
    uint32_t reserved;
    uint64_t tag, bytes;
    uint64_t
        serial; // among the messages of this sender to this receiver; of a refusal, the message's
};

// A payload that no receive has waited for, or that none will have.
struct ls_unexpected {
    uint32_t source;
    uint64_t tag, bytes;
    char *data;
    bool here; // all of it
    bool refused; // nobody will have it
    struct ls_comm_work *claimed; // a receive that takes it when it is here
    struct ls_unexpected *next;
};

enum ls_message_transfer_kind {
    LS_MESSAGE_HEADER, // that is sent
    LS_MESSAGE_PAYLOAD, // likewise; `work`
    LS_MESSAGE_REFUSAL, // likewise; afterwards the payload is taken into `unexpected`
    LS_MESSAGE_NEXT, // the next header of a peer
    LS_MESSAGE_COMING, // a payload; into `work` or `unexpected`
};

// A transfer that the transport has: it may use `posted`, and the memory there, until `test` says
// that it is over, or the endpoint is closed.
struct ls_message_transfer {
    struct ls_transfer posted;
    enum ls_message_transfer_kind kind;
    uint32_t peer;
    struct ls_header header;
    struct ls_comm_work *work;
    struct ls_unexpected *unexpected;
    uint64_t number; // of LS_MESSAGE_REFUSAL: of the payload
};

// What this rank knows of another one.
struct ls_pair {
    uint64_t next_send, next_receive; // numbers of transfers
    uint64_t serial; // messages sent
    bool listens; // its next header is awaited; of the own rank: those of all others are
    bool gone; // it has closed its communicator, or is lost: nothing is sent any more
    bool asked; // a work that ended with it has waited for the news why
};

struct ls_comm_messages {
    struct ls_comm *comm;
    const struct ls_transport_interface *interface;
    struct ls_transport *endpoint; // NULL: one rank
    int wake; // eventfd: something was started
    atomic_bool aborted;
    _Atomic uint64_t started; // works, so far

    pthread_mutex_t lock; // of what follows
    pthread_cond_t changed;
    struct ls_comm_work *inbox, *inbox_last; // started, not begun
    uint32_t works; // not over
    uint32_t waiters; // threads that wait for a work, and move messages meanwhile
    bool driven, closing, threaded;
    pthread_t thread;

    // Of the thread that has set `driven`.
    _Atomic uint64_t taken; // of `started`; written by the driver
    struct ls_pair *pairs; // of each rank
    struct ls_message_transfer **transfers;
    uint32_t transfer_count, transfer_room;
    struct ls_transfer **waiting; // room for a list of transfers
    uint32_t waiting_room;
    struct ls_comm_work *receives; // that wait for a message, in order
    struct ls_unexpected *unexpected; // in the order in which they came
    uint64_t polled_ns; // at deadlines
    enum ls_status failed; // LS_OK, or how every work ends
    char *why; // the line of the log
};

// Of a message whose sides disagree, in bytes.
struct ls_sizes {
    uint32_t source, destination;
    uint64_t sent, expected;
};

// ---- job.c ----

void ls_comm_messages_wake(const struct ls_comm_messages *messages);

// All that follows is for the thread that drives.

// ---- matching.c ----

void ls_comm_messages_begin(struct ls_comm_messages *messages, struct ls_comm_work *work);
// Looks at what is under way. True: something has moved.
bool ls_comm_messages_test(struct ls_comm_messages *messages);

// ---- transfers.c: when one of these fails, the transport does not have the memory ----

// The last of the list; NULL: no memory.
struct ls_unexpected *ls_unexpected_add(struct ls_comm_messages *messages, uint32_t source,
                                        uint64_t tag, uint64_t bytes);
void ls_unexpected_drop(struct ls_comm_messages *messages, struct ls_unexpected *unexpected);
LS_STATUS ls_message_send_header(struct ls_comm_messages *messages, uint32_t peer,
                                 const struct ls_header *header, enum ls_message_transfer_kind kind,
                                 struct ls_message_transfer **out);
LS_STATUS ls_message_send(struct ls_comm_messages *messages, struct ls_comm_work *work);
// For the next header of a peer.
LS_STATUS ls_message_listen(struct ls_comm_messages *messages, uint32_t peer);
// A payload, into the memory of the work, or of the unexpected payload.
LS_STATUS ls_message_receive(struct ls_comm_messages *messages, uint32_t peer, uint64_t number,
                             struct ls_comm_work *work, struct ls_unexpected *unexpected);
// Out of the list; the caller frees it. Its transfer is over.
struct ls_message_transfer *ls_message_take_transfer(struct ls_comm_messages *messages,
                                                     uint32_t index);

// ---- failures.c ----

void ls_message_end(struct ls_comm_messages *messages, struct ls_comm_work *work,
                    enum ls_status status);
// With what all works end with.
void ls_message_end_with_all(struct ls_comm_messages *messages, struct ls_comm_work *work);
// With what went wrong between this rank and `peer`, whose memory the transport does not have.
void ls_message_fail(struct ls_comm_messages *messages, struct ls_comm_work *work, uint32_t peer,
                     enum ls_status status);
void ls_message_fail_size(struct ls_comm_messages *messages, struct ls_comm_work *work,
                          const struct ls_sizes *sizes);
// Nothing more goes to a rank. What is under way ends by itself; what waits for its messages ends
// when nothing more can come.
void ls_pair_lose(struct ls_comm_messages *messages, uint32_t peer);
// A transfer that is over, and out of the list, because its peer is lost. Frees it.
void ls_message_lose_transfer(struct ls_comm_messages *messages,
                              struct ls_message_transfer *transfer);
// What follows when something with a peer has ended like that; LS_OK: nothing.
void ls_comm_messages_note(struct ls_comm_messages *messages, uint32_t peer, enum ls_status status);
// Ends works whose deadline has passed.
void ls_comm_messages_watch_deadlines(struct ls_comm_messages *messages);
// Ends all works, also those that are started later.
void ls_comm_messages_fail_all(struct ls_comm_messages *messages, enum ls_status status);
// Frees what is left. The endpoint is closed.
void ls_comm_messages_forget(struct ls_comm_messages *messages);

#endif
