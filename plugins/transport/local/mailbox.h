// SPDX-License-Identifier: Apache-2.0
// Where two endpoints of one process meet: for each ordered pair a window of slots, message n in slot
// n % LOCAL_WINDOW. The sender writes one half of a slot, the receiver the other, each on cache lines of
// its own, and each publishes its half by storing n + 1 into the counter at its head.
//
//   offered   (sender)    memory to be read ("pull"), or: already written where the receiver wanted it
//   wanted    (receiver)  memory that the sender may write, once it has read message `after` of the other way
//   consumed  (receiver)  message n has arrived: its memory is the sender's again, the slot is free for n + window
//
// All counters are sequentially consistent: a side that publishes then looks whether the other sleeps, and
// a side that goes to sleep says so and then looks at the counters once more.
#ifndef LS_LOCAL_MAILBOX_H
#define LS_LOCAL_MAILBOX_H

#include "core/plugin/transport.h"

#include <stdatomic.h>
#include <stdbool.h>

#define LOCAL_WINDOW 128
#define LOCAL_LINE 64

struct local_slot {
    _Alignas(LOCAL_LINE) _Atomic uint64_t offered;
    const void *source; // NULL: written by the sender, nothing to read
    uint64_t source_bytes;
    uint64_t source_signature;

    _Alignas(LOCAL_LINE) _Atomic uint64_t wanted;
    void *target;
    uint64_t target_bytes;
    uint64_t target_signature;
    uint64_t after;
    _Atomic uint64_t consumed;
};

struct local_pair {
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
    uint32_t spins; // before a wait yields its core
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

// Sets the pair up where this is its first use; NULL: no memory.
struct local_pair *local_pair_get(struct local_shared *shared, uint32_t source,
                                  uint32_t destination);

static inline struct local_slot *local_slot(struct local_pair *pair, uint64_t number)
{
    return &pair->slots[number % LOCAL_WINDOW];
}

// The slot of message `number` no longer holds the message a window before it.
static inline bool local_slot_free(struct local_slot *slot, uint64_t number)
{
    return number < LOCAL_WINDOW ||
           atomic_load_explicit(&slot->consumed, memory_order_acquire) + LOCAL_WINDOW > number;
}

static inline bool local_reached(_Atomic uint64_t *counter, uint64_t number)
{
    return atomic_load(counter) > number;
}

// Wakes the endpoint if it sleeps; after something it may wait for was published.
void local_wake(struct local_endpoint *endpoint);

#endif
