// SPDX-License-Identifier: Apache-2.0
// What workers and servers send each other: the messages, and the numbering of those between two endpoints. Both sides
// are the same build on machines of the same kind, so structs travel as they are.
#ifndef LS_PARAMETER_SERVER_WIRE_H
#define LS_PARAMETER_SERVER_WIRE_H

#include "core/plugin/strategy.h"

// What a worker asks for.
enum request_kind {
    REQUEST_PUSH = 1, // the gradients of a bucket's shards on this server follow, one message each
    REQUEST_END = 2, // of a step: nothing more is pushed in it
    REQUEST_PULL =
        3, // answered when the worker may begin its next step; sync: when the step under way is applied
    REQUEST_FETCH = 4, // answered at once: the values as they are
    REQUEST_MEET = 5, // answered when all workers have sent it
    REQUEST_STATISTICS = 6, // answered at once with a struct statistics
    REQUEST_LEAVE = 7, // the last message of this worker
    REQUEST_REST = 8, // its next step, if there is one, is not to be waited for
};

struct request {
    uint32_t kind;
    uint32_t bucket; // of a push
    uint64_t step; // that is under way, from 1
    double learning_rate; // of a push
    float sums[LS_STRATEGY_SUMS]; // of a push of bucket 0 in sync: of this worker
};

// The answer to a pull, a fetch and a meeting. The version of each of the server's shards follows in the same message;
// then the values of each shard whose version this worker does not have yet, one message each.
struct answer {
    uint32_t late; // 1: it took longer than the deadline; nothing follows
    uint32_t late_worker; // whom the server waits for
    uint64_t late_steps; // that this one has made since all met
    uint32_t held_back; // 1: for other workers; 0: it came at once
    uint32_t reserved;
    float sums[LS_STRATEGY_SUMS]; // sync: of the step, over all workers
};

static inline uint64_t answer_bytes(uint32_t shards)
{
    return sizeof(struct answer) + shards * sizeof(uint64_t);
}

static inline uint64_t *answer_versions(struct answer *answer)
{
    return (uint64_t *)(void *)(answer + 1);
}

// Of whole numbers; the last bin has all that are no smaller.
#define DISTRIBUTION_BINS 256

struct distribution {
    uint64_t count, sum, largest;
    uint64_t bins[DISTRIBUTION_BINS];
};

// Of one server.
struct statistics {
    struct distribution lead; // of the workers that began a step, in steps
    struct distribution missed; // of the pushes of a shard, in updates
    uint64_t pushes; // of a shard
    uint64_t pulls, pulls_unchanged; // of a shard
    uint64_t waits, waits_ns; // of workers that were not let begin at once
    uint64_t bytes_received, bytes_sent;
};

// What a message is, besides its size: equal on both sides. The low half has the shard's place on its server.
#define SIGNATURE_REQUEST (UINT64_C(1) << 32)
#define SIGNATURE_ANSWER (UINT64_C(2) << 32)
#define SIGNATURE_GRADIENT (UINT64_C(3) << 32)
#define SIGNATURE_VALUES (UINT64_C(4) << 32)
#define SIGNATURE_STATISTICS (UINT64_C(5) << 32)

// One side of a pair of endpoints; numbers its messages.
struct channel {
    const struct ls_transport_interface *ops;
    struct ls_transport *own;
    uint32_t peer;
    uint64_t sent, received; // messages posted so far
};

static inline int32_t channel_send(struct channel *channel, struct ls_transfer *transfer,
                                   uint64_t signature, const void *memory, uint64_t count,
                                   uint32_t dtype)
{
    *transfer = (struct ls_transfer){.struct_size = sizeof(*transfer),
                                     .kind = LS_TRANSFER_SEND,
                                     .destination = channel->peer,
                                     .send_number = channel->sent++,
                                     .signature = signature,
                                     .memory = (void *)(uintptr_t)memory,
                                     .count = count,
                                     .dtype = dtype};
    return channel->ops->post(channel->own, transfer);
}

// `add`: what comes is added to floats that are there.
static inline int32_t channel_receive(struct channel *channel, struct ls_transfer *transfer,
                                      uint64_t signature, void *memory, uint64_t count,
                                      uint32_t dtype, int add)
{
    *transfer = (struct ls_transfer){.struct_size = sizeof(*transfer),
                                     .kind = add ? LS_TRANSFER_RECEIVE_REDUCE : LS_TRANSFER_RECEIVE,
                                     .source = channel->peer,
                                     .receive_number = channel->received++,
                                     .after = LS_TRANSFER_AT_ONCE,
                                     .signature = signature,
                                     .memory = memory,
                                     .count = count,
                                     .dtype = dtype,
                                     .reduction = LS_SUM};
    return channel->ops->post(channel->own, transfer);
}

#endif
