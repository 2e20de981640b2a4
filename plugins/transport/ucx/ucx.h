// SPDX-License-Identifier: Apache-2.0
// What the files of this transport share: the endpoints of one process, their peers, and
// operations, which is what a transfer becomes while it is under way.
//
// A message travels as active messages of UCX, each with a header and a part of the data. Its first
// UCX_EARLY_BYTES may be sent before the receive is posted; the receiver then keeps a copy. What is
// longer waits until the receiver says that it wants it, so what a peer can make a receiver keep is
// bounded: UCX_WINDOW messages of UCX_EARLY_BYTES for each pair. Data is copied, or reduced,
// straight from UCX's buffer into the receiver's memory, part by part, and a message that is
// reduced and sent on is sent on part by part, too.
//
// A send is complete when the receiver has acknowledged the whole message. Each header says which
// messages of the other direction were consumed; where there is nothing to send, an acknowledgement
// travels alone.
#ifndef LS_TRANSPORT_UCX_UCX_H
#define LS_TRANSPORT_UCX_UCX_H

#include "core/plugin/transport.h"
#include "plugins/transport/local/kernels.h"
#include "plugins/transport/ucx/library.h"

#include <stdatomic.h>
#include <stdbool.h>

#define UCX_WINDOW 64 // messages of a pair that may be under way; bits of `consumed`
#define UCX_EARLY_BYTES (UINT64_C(16) << 10)
// What UCX sends over TCP in one piece: its buffers have 64 KiB, with headers.
#define UCX_PART_BYTES (UINT64_C(60) << 10)
#define UCX_PARTS_UNDER_WAY 4 // of a message
#define UCX_MESSAGE_ID 1

enum ucx_message {
    UCX_HELLO = 1, // the first of each connection
    UCX_DATA = 2,
    UCX_WANT = 3, // the receive is posted: all of the message may be sent
    UCX_ACKNOWLEDGE = 4,
    UCX_READY =
        5, // the sender has made all its connections with the receiver, whose ports it needs no more
};

struct ucx_header {
    uint64_t token; // of the receiving endpoint: a process that does not know it is a stranger
    uint32_t kind; // enum ucx_message
    uint32_t source; // endpoint that sends
    uint64_t consumed_below; // messages destination -> source: all below this were consumed,
    uint64_t consumed; // and of those from it on the ones whose bits are set
    uint64_t number; // DATA: of the message source -> destination; WANT: destination -> source
    uint64_t signature;
    uint64_t bytes; // of the whole message
    uint64_t offset; // DATA: of this part
};

// Which messages of one direction were consumed.
struct ucx_record {
    uint64_t below; // all below this,
    uint64_t bits; // and `below` + i where bit i is set
};

// What has come of a message before its receive was posted.
struct ucx_early {
    struct ucx_early *next; // of free ones
    uint64_t part_bytes, bytes, signature;
    _Alignas(64) char data[UCX_EARLY_BYTES];
};

// A message that a peer sends.
struct ucx_incoming {
    struct ucx_operation *operation; // NULL: not posted
    struct ucx_early *early; // NULL: nothing has arrived
};

// A message to a peer.
struct ucx_outgoing {
    struct ucx_operation *operation; // NULL: not posted
    bool wanted; // the peer has posted its receive
    uint64_t wanted_bytes, wanted_signature;
};

struct ucx_list {
    struct ucx_operation *first, **end;
};

struct ucx_peer {
    struct ls_transport *transport;
    uint32_t index;
    bool attention; // in the list of those to be looked at
    bool acknowledge; // it has not been told of all that was consumed
    bool closing; // `endpoint` failed, and is to be closed
    bool greeted; // it has said hello
    bool ready; // it has said that it is ready
    bool flushed, told; // this side has made its connections, and said that it is ready
    void *flushing; // request of UCX; NULL: none
    ucp_ep_h endpoint; // NULL: not connected
    void *disconnecting; // request of UCX; NULL: none
    struct ucx_peer *next_attention, *next; // of all peers that were used
    struct ucx_record received, sent;
    struct ucx_incoming incoming[UCX_WINDOW];
    struct ucx_outgoing outgoing[UCX_WINDOW];
    struct ucx_list receives; // posted, but not in the window yet, or memory may not be written yet
    struct ucx_list sends; // posted, and not wholly given to UCX
};

// A transfer under way.
struct ucx_operation {
    struct ucx_operation *next; // in a list of a peer, or of free ones
    struct ls_transfer *transfer; // the caller's
    struct ucx_peer *source, *destination; // NULL: none
    uint64_t bytes;
    uint64_t received; // bytes, copied or reduced
    uint64_t given; // bytes, to UCX
    uint64_t turn; // of the endpoint, when it was tested
    uint32_t parts; // given to UCX, and not returned
    int32_t status; // LS_AGAIN while it is under way
    bool bound; // its receive is in the window
    bool after; // its memory may not be written yet
    bool scattered; // parts have come out of order
    bool receive_ended, send_bound, begun, acknowledged;
};

// A part, or a message without data, that UCX has.
struct ucx_part {
    struct ucx_part *next; // of free ones
    struct ucx_operation *operation; // NULL: none
    struct ucx_peer *peer;
    struct ucx_header header;
};

// Sockets that listen in this process.
struct ucx_ports {
    int *others; // those that were there before UCX opened its own
    uint32_t other_count;
};

struct ucx_shared {
    const struct ls_host *host;
    const struct ucx_library *library;
    const struct local_kernels *kernels;
    ucp_context_h context;
    uint64_t deadline_ns;
    uint32_t world, count, spins;
    _Atomic uint32_t open; // endpoints
    _Atomic uint32_t aborted;
    char *addresses; // of each endpoint, `address_bytes` each
    uint64_t address_bytes;
    uint64_t *tokens; // of each endpoint
    struct ucx_ports ports;
    int wake_fds[]; // of each own endpoint: somebody aborted
};

// The endpoint itself.
struct ls_transport {
    struct ucx_shared *shared;
    uint32_t index; // of the job
    uint32_t own; // of this process
    ucp_worker_h worker;
    int worker_fd;
    int armed_fd; // -1: it never was armed
    bool given_up; // nothing is connected any more
    bool stuck; // UCX did not end all connections
    bool out_of_memory;
    uint32_t acknowledging,
        greeting; // messages of these kinds that UCX has; UCX_READY counts as a greeting
    uint32_t greeted, ready; // peers that have said so
    uint64_t turn; // grows when UCX was asked for news
    uint64_t lent; // parts of the caller's memory that UCX has
    struct ucx_peer **peers; // NULL: not used
    struct ucx_peer *used, *attention;
    _Atomic uint8_t *lost; // of each peer
    struct ucx_operation *free_operations;
    struct ucx_part *free_parts;
    struct ucx_early *free_early;
    struct ucx_block *blocks; // of memory behind these lists
};

// ---- peers.c ----

// NULL: no memory.
struct ucx_peer *ucx_peer_get(struct ls_transport *transport, uint32_t index);
// It is looked at when UCX has been asked for news.
void ucx_peer_look(struct ucx_peer *peer);
void ucx_peer_lose(struct ucx_peer *peer);
static inline bool ucx_peer_is_lost(const struct ucx_peer *peer)
{
    return atomic_load_explicit(&peer->transport->lost[peer->index], memory_order_relaxed);
}
bool ucx_peer_greet(struct ucx_peer *peer); // connects, and says hello; false: it is lost
// Goes on with the connection of a peer that was greeted; true: nothing is left to do here.
bool ucx_peer_get_ready(struct ucx_peer *peer);
void ucx_peer_disconnect(struct ucx_peer *peer);

// Whether a message is in the window, or before it, and whether it was consumed.
static inline bool ucx_record_reaches(const struct ucx_record *record, uint64_t number)
{
    return number < record->below + UCX_WINDOW;
}
static inline bool ucx_record_has(const struct ucx_record *record, uint64_t number)
{
    return number < record->below ||
           (number - record->below < UCX_WINDOW && record->bits >> (number - record->below) & 1);
}
void ucx_record_add(struct ucx_record *record, uint64_t number);

void ucx_list_add(struct ucx_list *list, struct ucx_operation *operation);
void ucx_list_remove(struct ucx_list *list, struct ucx_operation *operation); // if it is there

// Gives UCX a message; `data` belongs to `operation`, NULL: there is none. False: no memory, or the
// peer is lost.
bool ucx_send(struct ucx_peer *peer, const struct ucx_header *header, const void *data,
              uint64_t bytes, struct ucx_operation *operation);
// Its send moved on: it may be complete.
void ucx_operation_look(struct ucx_operation *operation);
// Tells all peers what was consumed, where they do not know it.
void ucx_acknowledge_all(struct ls_transport *transport);

// After an abort, by the owner: cuts all connections; then nobody reads this endpoint's memory.
// LS_ABORTED, or LS_PEER_LOST when UCX does not let go of it.
int32_t ucx_give_up(struct ls_transport *transport);
// Ends all connections; `gently`: after acknowledgements are sent. False: UCX did not end all
// within the deadline.
bool ucx_disconnect(struct ls_transport *transport, bool gently);

// ---- ports.c: the ports that UCX opens ----

// Before UCX opens its own. LS_OUT_OF_MEMORY, or LS_FAILED, said.
int32_t ucx_ports_note(struct ucx_shared *shared);
// Closes those that it has opened since, and whose numbers are in one of the addresses: nobody can
// connect any more.
void ucx_ports_close(struct ucx_shared *shared, const char *address, uint64_t bytes);
void ucx_ports_forget(struct ucx_shared *shared);

// ---- messages.c ----

int32_t ucx_post(struct ls_transport *transport, struct ls_transfer *transfer);
int32_t ucx_test(struct ls_transport *transport, struct ls_transfer *transfer);
// Whether ucx_test() would move it on.
bool ucx_is_ready(const struct ls_transport *transport, const struct ls_transfer *transfer);
// Asks UCX for news, and does what follows.
void ucx_progress(struct ls_transport *transport);
// [callback of UCX]
ucs_status_t ucx_receive(void *argument, const void *header_bytes, size_t header_length, void *data,
                         size_t bytes, const ucp_am_recv_param_t *parameters);

// ---- waiting.c ----

uint32_t ucx_choose_spins(uint32_t ranks_here, uint32_t own_ranks);
int32_t ucx_wait_any(struct ls_transport *transport, struct ls_transfer *const *transfers,
                     uint64_t count, uint64_t timeout_ns);
int32_t ucx_arm(struct ls_transport *transport, struct ls_transfer *const *transfers,
                uint64_t count, int32_t *fd, uint64_t *poll_ns);
void ucx_abort(struct ls_transport *transport);

// ---- memory.c ----

struct ucx_operation *ucx_operation_take(struct ls_transport *transport);
void ucx_operation_release(struct ls_transport *transport, struct ucx_operation *operation);
struct ucx_part *ucx_part_take(struct ls_transport *transport);
void ucx_part_release(struct ls_transport *transport, struct ucx_part *part);
struct ucx_early *ucx_early_take(struct ls_transport *transport);
void ucx_early_release(struct ls_transport *transport, struct ucx_early *early);
void ucx_blocks_release(struct ls_transport *transport);
// Zeroed; NULL: none.
void *ucx_allocate(const struct ucx_shared *shared, uint64_t bytes);

#endif
