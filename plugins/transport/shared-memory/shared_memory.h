// SPDX-License-Identifier: Apache-2.0
// What the files of this transport share.
#ifndef LS_SHARED_MEMORY_SHARED_MEMORY_H
#define LS_SHARED_MEMORY_SHARED_MEMORY_H

#include "core/plugin/transport.h"
#include "plugins/transport/local/kernels.h"
#include "plugins/transport/shared-memory/arena.h"

#include <stdbool.h>
#include <sys/types.h>

#define SHM_TOKEN_BYTES 16
#define SHM_NAME_BYTES 32
#define SHM_CORES_BYTES 128 // a set of cores, as the kernel has it

// What each process tells the others before they are connected; one for each of its endpoints, all
// alike.
struct shm_card {
    uint32_t form; // of arenas, equal in all processes; 0: this one has none
    uint32_t name_bytes;
    unsigned char token[SHM_TOKEN_BYTES]; // known only to processes that were told by `exchange`
    char name[SHM_NAME_BYTES]; // of its socket
    uint64_t arena_bytes;
    uint64_t segment_bytes; // of its segment; 0: none
    unsigned char cores[SHM_CORES_BYTES]; // that it may run on
};

// A process, as this one sees it.
struct shm_process {
    struct shm_card card;
    uint32_t first, count; // `count` endpoints, the first of which is `first`
    int socket, pidfd; // open as long as it lives; -1: this process
    char *arena;
    char *segment; // where this process sees its segment; NULL: nobody touches it
    _Atomic uint32_t lost;
};

// What the endpoints of one open have in common.
struct shm_shared {
    const struct ls_host *host;
    const struct local_kernels *kernels;
    uint32_t world;
    uint32_t spins; // before a wait yields its core
    uint64_t patience_ns; // with peers that use memory of others, when an endpoint leaves
    uint32_t process_count, self; // of `processes`
    struct shm_process *processes;
    uint32_t *process_of; // of each endpoint
    uint32_t *place_of; // of each endpoint among those of its process
    struct shm_endpoint **endpoints;
    struct shm_pair **inboxes; // of each endpoint: a pair for each source
    char **pieces; // of each endpoint
    uint32_t piece_count; // of an endpoint
    struct shm_header *header; // of this process
    int arena_fd, listener;
    int waker; // socket from which armed endpoints are woken
    _Atomic uint64_t polled_ns; // when it was looked last whether processes have died
    _Atomic uint32_t *hung; // of each endpoint: it did not leave memory of others in `patience_ns`
    _Atomic uint32_t hangs; // such an endpoint is in this process
    _Atomic uint32_t open;
};

// The endpoint itself.
struct ls_transport {
    struct shm_shared *shared;
    struct shm_endpoint *own; // in the arena
    uint32_t index;
    // Pieces that no message has: those that were used last come first, because caches still have
    // them.
    uint32_t fresh; // all from here on were never used
    uint32_t free_count;
    uint32_t *free;
    uint64_t under_way; // bytes of its messages that are not complete
    int socket; // that turns readable when it is woken while it is armed; -1: it never was
};

enum shm_stage {
    SHM_UNPUBLISHED = 0,
    SHM_WAITING = 1, // for the peer's half of the slot
    SHM_OFFERED = 2, // until it is consumed
};

// What a transfer keeps while it is pending, in `own`.
#define SHM_STAGE(transfer) ((transfer)->own[0])
#define SHM_RECEIVE_SLOT(transfer) ((struct shm_slot *)(uintptr_t)(transfer)->own[1])
#define SHM_SEND_SLOT(transfer) ((struct shm_slot *)(uintptr_t)(transfer)->own[2])
#define SHM_AFTER_SLOT(transfer) ((struct shm_slot *)(uintptr_t)(transfer)->own[3])

static inline uint64_t shm_bytes_of(const struct ls_transfer *transfer)
{
    return transfer->count * ls_dtype_bytes(transfer->dtype);
}

static inline struct shm_slot *shm_slot(const struct shm_shared *shared, uint32_t source,
                                        uint32_t destination, uint64_t number)
{
    return &shared->inboxes[destination][source].slots[number & (SHM_WINDOW - 1)];
}

// The slot of message `number` no longer holds the message a window before it.
static inline bool shm_slot_free(struct shm_slot *slot, uint64_t number)
{
    return number < SHM_WINDOW ||
           atomic_load_explicit(&slot->consumed, memory_order_acquire) + SHM_WINDOW > number;
}

static inline bool shm_reached(_Atomic uint64_t *counter, uint64_t number)
{
    return atomic_load(counter) > number;
}

// ---- connect.c: processes find each other, and map each other's memory ----

// Fills in the processes of shared, with their arenas and segments. Fails alike in all processes.
int32_t shm_connect(struct shm_shared *shared, const struct ls_transport_config *config,
                    uint64_t arena_bytes);
void shm_disconnect(struct shm_shared *shared);

// ---- messages.c ----

int32_t shm_post(struct ls_transport *transport, struct ls_transfer *transfer);
int32_t shm_test(struct ls_transport *transport, struct ls_transfer *transfer);
// Whether shm_test() would move the transfer on.
bool shm_is_ready(const struct ls_transport *transport, const struct ls_transfer *transfer);

// ---- stream.c ----

// memcpy for the parts of messages.
void shm_copy(void *to, const void *from, uint64_t bytes, bool past_caches);
// How the pieces of the next message to this endpoint are copied. [sender]
enum shm_copies shm_choose_copies(const struct ls_transport *transport, uint32_t destination,
                                  uint64_t bytes);
// Weighs what the copies of a message took that has come whole. [receiver]
void shm_note_copies(const struct ls_transport *transport, const struct ls_transfer *transfer);
// Whether the memory of a message that is not in pieces is written past the caches.
bool shm_is_long(const struct ls_transport *transport);

// ---- life.c ----

int shm_waker_open(void); // -1: the kernel has none
// Wakes an endpoint if it sleeps; after something it may wait for was published.
void shm_wake(const struct shm_shared *shared, uint32_t endpoint);
void shm_wake_all(const struct shm_shared *shared);

// Looks whether processes have died, which wake nobody; wakes the endpoints of this one when any
// has. [any thread]
void shm_poll_life(struct shm_shared *shared);
// The same, unless that was done less than SHM_LIFE_POLL_NS ago.
#define SHM_LIFE_POLL_NS UINT64_C(20000000)
void shm_poll_life_sometimes(struct shm_shared *shared, uint64_t now_ns);
bool shm_is_gone(const struct shm_shared *shared, uint32_t endpoint);
// Whether a peer of the transfer has left for good.
bool shm_peer_left(const struct ls_transport *transport, const struct ls_transfer *transfer);

void shm_abort(struct ls_transport *transport);
// An endpoint was closed: tells all processes.
void shm_tell_departure(struct shm_shared *shared);
// Returns LS_ABORTED when no peer touches memory of this endpoint any more, so that it may be
// freed; LS_PEER_LOST when one still does after the deadline.
int32_t shm_leave(struct ls_transport *transport);
// A pass over memory of others stands between these two, so that shm_leave() can wait for its end.
// False: after an abort, or when a peer has left.
bool shm_pass_begin(struct ls_transport *transport, const struct ls_transfer *transfer);
void shm_pass_end(struct ls_transport *transport);

// ---- waiting.c ----

uint32_t shm_choose_spins(const struct shm_shared *shared);
int32_t shm_wait_any(struct ls_transport *transport, struct ls_transfer *const *transfers,
                     uint64_t count, uint64_t timeout_ns);
// Instead, by a file descriptor.
int32_t shm_arm(struct ls_transport *transport, struct ls_transfer *const *transfers,
                uint64_t count, int32_t *fd, uint64_t *poll_ns);
void shm_disarm(struct ls_transport *transport); // it is closed

#endif
