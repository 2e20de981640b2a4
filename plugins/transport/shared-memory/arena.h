// SPDX-License-Identifier: Apache-2.0
// What processes write to each other: each has one arena, a file without a name that all of them
// map.
//
//   arena of a process:  its header | its endpoints | their inboxes, a pair for each source |
//                        their pieces
//
// For each ordered pair of endpoints there is a window of slots in the arena of the destination;
// message n is in slot n % SHM_WINDOW. The sender writes one half of a slot, the receiver the
// other, and each publishes its half by storing n + 1 into a counter:
//
//   offered   (sender)    how the message gets across (enum shm_way)
//   wanted    (receiver)  memory that the sender may write, once it has read message `after` of the
//                         other way
//   consumed  (receiver)  message n has arrived: its memory is the sender's again, the slot is free
//                         for n + window
//
// A message whose memory others cannot map is copied into pieces of the sender's arena, a few at a
// time, while the receiver takes them out: `staged` and `taken` count the pieces of all messages of
// a slot, so they are equal between messages.
//
// All counters are sequentially consistent: a side that publishes then looks whether the other
// sleeps, and a side that goes to sleep says so and then looks at the counters once more. What
// another process has written is checked before it is used as an address: a process that goes wrong
// must not take others with it.
#ifndef LS_SHARED_MEMORY_ARENA_H
#define LS_SHARED_MEMORY_ARENA_H

#include <stdatomic.h>
#include <stdint.h>

#define SHM_WINDOW 128 // a power of two
#define SHM_LINE 64
#define SHM_APART 128 // processors fetch cache lines in pairs
#define SHM_PIECE_BYTES UINT64_C(32768)
// Of one message at a time. Where cores are few, a side copies as many each time that it has one.
#define SHM_PIECES 8
#define SHM_SOCKET_BYTES 32
#define SHM_NOWHERE UINT64_MAX // memory that the other side cannot touch

enum shm_way {
    SHM_PULL = 1, // the receiver reads `where`
    SHM_PUSHED = 2, // it is where the receiver wanted it
    SHM_STAGED = 3, // it comes in pieces; `where` is what `staged` was before the first
};

struct shm_slot {
    _Alignas(SHM_LINE) _Atomic uint64_t offered;
    uint64_t where;
    uint64_t bytes;
    uint64_t signature;
    _Atomic uint64_t staged;
    uint32_t way; // enum shm_way
    uint32_t held; // pieces that are the slot's until the sender sees that they were taken
    uint32_t pieces[SHM_PIECES];
    uint32_t copies; // enum shm_copies, of a message in pieces
    _Atomic uint64_t copied_ns; // what the sender has taken for them so far

    _Alignas(SHM_LINE) _Atomic uint64_t wanted;
    uint64_t target; // where; or SHM_NOWHERE
    uint64_t target_bytes;
    uint64_t target_signature;
    uint64_t after;
    _Atomic uint64_t consumed;
    _Atomic uint64_t taken;
    uint64_t taken_ns; // what the receiver has taken for the pieces so far
};

// How pieces are copied. Short messages are not measured.
enum shm_copies {
    SHM_SHORT = 0,
    SHM_CACHED = 1, // through the caches
    SHM_PAST = 2, // past them
};

#define SHM_SIZES 2 // of long messages, which are measured apart

struct shm_pair {
    struct shm_slot slots[SHM_WINDOW];
    struct {
        _Alignas(SHM_APART) _Atomic uint32_t best; // (receiver) enum shm_copies; 0: not known
        uint32_t ns[2]; // (receiver) for a MiB, both sides together, by SHM_CACHED and SHM_PAST
        _Alignas(SHM_APART) uint32_t count; // (sender) of messages
        uint32_t next; // (sender) the message that tries the other way
        uint32_t pause; // (sender) messages between two such
    } sizes[SHM_SIZES];
};

enum shm_sleep {
    SHM_AWAKE = 0,
    SHM_SLEEPING = 1, // on the futex
    SHM_ARMED = 2, // on its socket, with other things
};

struct shm_endpoint {
    _Alignas(SHM_LINE) _Atomic uint32_t sleeping; // enum shm_sleep
    _Atomic uint32_t wakes; // futex
    uint32_t socket_bytes; // of the socket's name; written once, before it is SHM_ARMED
    char socket[SHM_SOCKET_BYTES];
    _Alignas(SHM_LINE) _Atomic uint32_t active; // reads or writes memory of others
    _Atomic uint32_t closed;
};

struct shm_header {
    _Alignas(SHM_APART) _Atomic uint32_t aborted;
    _Atomic uint32_t departures; // endpoints that were closed, and processes that have died
};

#endif
