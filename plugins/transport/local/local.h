// SPDX-License-Identifier: Apache-2.0
// What the files of this transport share.
#ifndef LS_LOCAL_LOCAL_H
#define LS_LOCAL_LOCAL_H

#include "plugins/transport/local/mailbox.h"

enum stage {
    STAGE_UNPUBLISHED = 0,
    STAGE_WAITING = 1, // for the peer's half of the slot
    STAGE_OFFERED = 2, // until it is consumed
};

// What a transfer keeps while it is pending, in `own`.
#define STAGE(transfer) ((transfer)->own[0])
#define RECEIVE_SLOT(transfer) ((struct local_slot *)(uintptr_t)(transfer)->own[1])
#define SEND_SLOT(transfer) ((struct local_slot *)(uintptr_t)(transfer)->own[2])
#define AFTER_SLOT(transfer) ((struct local_slot *)(uintptr_t)(transfer)->own[3])

static inline uint64_t local_bytes_of(const struct ls_transfer *transfer)
{
    return transfer->count * ls_dtype_bytes(transfer->dtype);
}

// ---- life.c ----

// Wakes an endpoint if it sleeps; after something it may wait for was published.
void local_wake(struct ls_transport *transport, uint32_t peer);
void local_wake_all(struct local_shared *shared);
void local_abort(struct ls_transport *transport);

// Returns LS_ABORTED when no peer touches memory of this endpoint any more, so that it may be
// freed; LS_PEER_LOST when one still does after the deadline.
int32_t local_leave(struct ls_transport *transport);
// Whether a peer of the transfer has left for good.
bool local_peer_left(const struct ls_transport *transport, const struct ls_transfer *transfer);
// A pass over memory of others stands between these two, so that local_leave() can wait for its
// end. False: after an abort, or when a peer has left.
bool local_pass_begin(struct ls_transport *transport, const struct ls_transfer *transfer);
void local_pass_end(struct ls_transport *transport);

// ---- messages.c ----

int32_t local_post(struct ls_transport *transport, struct ls_transfer *transfer);
int32_t local_test(struct ls_transport *transport, struct ls_transfer *transfer);
// Whether local_test() would move the transfer on.
bool local_is_ready(const struct ls_transport *transport, const struct ls_transfer *transfer);

// ---- waiting.c ----

uint32_t local_choose_spins(uint32_t world);
int32_t local_wait_any(struct ls_transport *transport, struct ls_transfer *const *transfers,
                       uint64_t count, uint64_t timeout_ns);

// ---- device.c: ranges in memory of devices; all work is put on the endpoint's stream ----

// LS_UNSUPPORTED, logged, for places that this transport cannot serve.
int32_t local_device_check(const struct ls_host *host, const struct ls_transport_config *config);

// This endpoint's half of the events of a pair; once.
int32_t local_device_open_events(struct ls_transport *transport, struct local_pair *pair,
                                 bool sends);
void local_device_close_events(const struct local_shared *shared, uint32_t source,
                               uint32_t destination, struct local_pair *pair);

// Before a message is offered: the peer reads its memory after all that is on the stream.
int32_t local_device_offer(struct ls_transport *transport, struct local_slot *slot);
// The stream comes after the peer's reading of message `number`, which was consumed.
int32_t local_device_follow(struct ls_transport *transport, struct local_slot *slot,
                            uint64_t number);
// Receives, or receives and reduces, what was offered; between begin and end of a pass.
int32_t local_device_take(struct ls_transport *transport, const struct ls_transfer *transfer);
// REDUCE, COPY and DIVIDE.
int32_t local_device_alone(struct ls_transport *transport, const struct ls_transfer *transfer);

// Waits until no stream of `peer` reads memory of this endpoint.
void local_device_leave(struct ls_transport *transport, uint32_t peer);

#endif
