// SPDX-License-Identifier: Apache-2.0
// Where two endpoints of one process meet: for each ordered pair a window of slots, message n in
// slot n % LOCAL_WINDOW. The sender writes one half of a slot, the receiver the other, each on
// cache lines of its own, and each publishes its half by storing n + 1 into the counter at its
// head.
//
//   offered   (sender)    memory to be read ("pull"), or: already written where the receiver wanted it
//   wanted    (receiver)  memory that the sender may write, once it has read message `after` of the other way
//   consumed  (receiver)  message n has arrived: its memory is the sender's again, the slot is free for n + window
//
// Where ranges are in memory of devices, "to be read" and "arrived" are points on a stream: an
// offer comes with an event of the sender's stream (`ready`), which the receiver's stream waits for
// before it reads; what is consumed comes with an event of the receiver's (`done`), which the
// sender's waits for before it does anything else. Then nothing is written ahead, so that `wanted`
// is not used. An event is recorded anew only when the other side's stream has been told to wait
// for it.
//
// All counters are sequentially consistent: a side that publishes then looks whether the other
// sleeps, and a side that goes to sleep says so and then looks at the counters once more.
#ifndef LS_LOCAL_MAILBOX_H
#define LS_LOCAL_MAILBOX_H

#include "core/plugin/transport.h"

#include <stdatomic.h>
#include <stdbool.h>

#define LOCAL_WINDOW 128
#define LOCAL_DEVICE_WINDOW 32 // a slot has two events there
#define LOCAL_LINE 64
#define LOCAL_APART 128 // processors fetch cache lines in pairs

struct local_slot {
    _Alignas(LOCAL_LINE) _Atomic uint64_t offered;
    const void *source; // NULL: written by the sender, nothing to read
    uint64_t source_bytes;
    uint64_t source_signature;
    struct ls_event *ready;
    uint64_t
        followed; // the sender's own: its stream waits for all that was consumed of messages below it

    _Alignas(LOCAL_LINE) _Atomic uint64_t wanted;
    void *target;
    uint64_t target_bytes;
    uint64_t target_signature;
    uint64_t after;
    _Atomic uint64_t consumed;
    struct ls_event *done;
};

struct local_pair {
    bool source_opened, destination_opened; // each side's own: it has made its events
    // 1 + the slot whose `done` was recorded last: after it, nothing on the receiver's stream reads
    // the sender's memory.
    _Atomic uint32_t last_done;
    struct local_slot slots[LOCAL_WINDOW];
};

struct local_endpoint {
    _Alignas(LOCAL_LINE) _Atomic uint32_t sleeping;
    _Atomic uint32_t wakes; // futex
    _Alignas(LOCAL_LINE) _Atomic uint32_t active; // reads or writes memory of others
    _Atomic uint32_t closed;
};

struct local_shared {
    const struct ls_host *host;
    const struct local_kernels *kernels;
    uint32_t world;
    uint32_t window; // a power of two, at most LOCAL_WINDOW
    uint32_t spins; // before a wait yields its core
    struct ls_transport_place *places; // of each endpoint; NULL: all have host memory
    uint64_t patience_ns; // with peers and their streams, when an endpoint leaves
    _Atomic uint32_t hangs; // a peer did not leave memory of others in that time
    _Atomic uint32_t stuck; // patience has ended once
    _Atomic uint32_t open;
    _Alignas(LOCAL_LINE) _Atomic uint32_t aborted;
    _Atomic uint32_t closings; // endpoints that were closed
    struct local_endpoint *endpoints;
    _Atomic(struct local_pair *) *pairs; // source * world + destination; made when first used
};

// The endpoint itself.
struct ls_transport {
    struct local_shared *shared;
    uint32_t index;
    uint32_t reserved;
};

static inline struct local_slot *local_slot(const struct local_shared *shared,
                                            struct local_pair *pair, uint64_t number)
{
    return &pair->slots[number & (shared->window - 1)];
}

// The slot of message `number` no longer holds the message a window before it.
static inline bool local_slot_free(const struct local_shared *shared, struct local_slot *slot,
                                   uint64_t number)
{
    return number < shared->window ||
           atomic_load_explicit(&slot->consumed, memory_order_acquire) + shared->window > number;
}

static inline bool local_reached(_Atomic uint64_t *counter, uint64_t number)
{
    return atomic_load(counter) > number;
}

#endif
