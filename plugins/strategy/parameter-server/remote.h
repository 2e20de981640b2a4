// SPDX-License-Identifier: Apache-2.0
// What workers and servers that are processes say to each other, over channels of the host. All
// numbers are little-endian, as on all machines that Lockstep runs on; sizes are checked before
// anything is believed.
//
//   worker                                      server
//   HELLO, after each connect              ->   WELCOME: how far this worker's pushes have come; held until there is a
//                                               setup. WANTS_SETUP: to worker 0, when it has none. REFUSED, with a text
//   SETUP, INITIAL for each shard (worker 0) -> WELCOME
//   PULL, MEET                             ->   ANSWER with the values that have changed, when the worker may go on;
//                                               PATIENCE every second before; LATE: whom it has waited for in vain
//   PUSH, REST                                  nothing
//   LEAVE, after all steps                 ->   GOODBYE
//   STATISTICS                             ->   COUNTS
//   TALLY (worker 0)                       ->   SUMS
//
// Exactly once. A push is numbered by the worker's step, and a server applies a push to a shard
// only if its number is above that of the last one of this worker there, which it keeps with the
// values (shard_file.h). A worker that has lost a server pushes the gradients of its step again:
// they stay in its buffer until the next pull is answered, and an answer to a pull says that all
// pushes before it were applied. A worker that was started again is told the number of its last
// push, and makes the steps after it: each step of each worker reaches each shard exactly once,
// whoever dies.
#ifndef LS_PARAMETER_SERVER_REMOTE_H
#define LS_PARAMETER_SERVER_REMOTE_H

#include "plugins/strategy/parameter-server/wire.h"

#define REMOTE_MAGIC UINT64_C(0x0a32535056525353) // "SSRVPS2\n"
#define REMOTE_SETUP_MOST (UINT64_C(256) << 20) // bytes of a setup
#define REMOTE_MOST_SHARDS 1000000u
#define REMOTE_MOST_TALLY 1000000u
#define REMOTE_SMALL UINT64_C(4096) // bytes of messages other than setups, values and gradients

enum remote_kind {
    REMOTE_HELLO = 1,
    REMOTE_SETUP,
    REMOTE_INITIAL,
    REMOTE_PULL,
    REMOTE_PUSH,
    REMOTE_MEET,
    REMOTE_REST,
    REMOTE_STATISTICS,
    REMOTE_LEAVE,
    REMOTE_TALLY,
    REMOTE_WELCOME = 32,
    REMOTE_WANTS_SETUP,
    REMOTE_REFUSED,
    REMOTE_ANSWER,
    REMOTE_PATIENCE,
    REMOTE_LATE,
    REMOTE_COUNTS,
    REMOTE_GOODBYE,
    REMOTE_SUMS,
};

// What must be the same on all workers.
struct remote_agreed {
    uint32_t mode;
    uint32_t tally; // sums of a step
    uint64_t staleness, shard_bytes;
    uint64_t description; // hash of what the host says of variables and optimizer
};

struct remote_hello {
    uint64_t magic;
    uint32_t worker, workers, server, servers;
    uint64_t job; // that the worker takes part in; 0: it does not know yet
    uint64_t steps; // that it knows to be applied
    uint64_t begun; // 1: it has begun a step
    struct remote_agreed agreed;
};

struct remote_shard {
    uint64_t first, count; // in floats
    uint32_t bucket, reserved;
};

// The shards of this server follow, in their order, then the description.
struct remote_setup {
    uint64_t job;
    struct remote_agreed agreed;
    uint32_t shards;
    uint32_t tally; // sums of an epoch that this server keeps; 0: another one does
    uint64_t description_bytes;
};

// The values follow. A line long, so that they are aligned.
struct remote_initial {
    uint32_t shard, reserved;
    uint64_t padding[7];
};

struct remote_welcome {
    uint64_t job;
    uint64_t least, most; // of the last pushes of this worker, over the shards of this server
    uint64_t updates; // of all shards
};

// TALLY: `step` is that with which the epoch began. PULL: `step` begins when it is answered, MEET: `step` was this worker's last, and all workers'
// first `step` are pushed.
struct remote_request {
    uint64_t step;
    uint32_t at_once; // PULL: 1: the values as they are
    uint32_t done; // LEAVE: 1
};

// The gradients of the bucket's shards follow. Where the first of them is that with which the server keeps a tally, the sums
// of the worker's share come before them, up to a line.
struct remote_push {
    uint64_t step;
    double learning_rate;
    uint32_t bucket, reserved;
    uint64_t epoch; // by the number of its first step
    uint64_t padding[4];
};

// The version of each shard follows, then the values of those whose version this connection has not
// brought yet.
struct remote_answer {
    uint32_t held_back; // 1: other workers were waited for
    uint32_t shards;
};

struct remote_late {
    uint32_t worker;
    uint32_t here; // 1: it is connected; 2: it has never been
    uint64_t steps; // that it has made
    double seconds; // for which nothing was heard of it
};

struct remote_counts {
    uint64_t updates; // of shards, since the training began
    uint64_t repeated; // pushes to a shard that it had already, since this process began
    struct statistics statistics; // since this process began
};

// What a server keeps with the first shard of all: a push and its sums are applied together, once. Of two epochs, because a
// worker may have begun the next one when worker 0 asks; all meet at the end of each.
struct remote_tally {
    uint64_t epoch[2]; // 0: none
    double sums[]; // those of the first, then those of the second
};

static inline uint64_t remote_tally_bytes(uint32_t count)
{
    return count ? sizeof(struct remote_tally) + 2 * (uint64_t)count * sizeof(double) : 0;
}

// What a push has before its gradients, which begin at a cache line as the values do.
static inline uint64_t remote_tally_floats(uint32_t count)
{
    return (count + UINT64_C(15)) / 16 * 16;
}

#endif
