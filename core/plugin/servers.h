// SPDX-License-Identifier: Apache-2.0
// Servers of a strategy: endpoints and channels that lead to them, and the processes that they may be.
// core/plugin/strategy.h includes this header.
#ifndef LS_PLUGIN_SERVERS_H
#define LS_PLUGIN_SERVERS_H

#include "core/plugin/plugin.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ls_store; // core/plugin/stores.h
struct ls_strategy_host; // core/plugin/strategy.h
struct ls_transport; // core/plugin/transport.h
struct ls_strategy_channel; // the host's: a connection to a server process
struct ls_server_host; // what the host offers a server process, below

// Point to point: endpoints of the run's transport (host->transport), for plugins with
// needs_transport.
struct ls_strategy_endpoints {
    uint32_t struct_size;
    uint32_t reserved;
    // endpoints[0 .. world - 1] are those of the ranks, `servers` more follow. Once, in the
    // strategy's open. The host closes them after the strategy.
    int32_t (*open)(const struct ls_strategy_host *host, uint32_t servers,
                    struct ls_transport **endpoints);
    // Closes one that is lost, so that its peers see it.
    void (*close)(const struct ls_strategy_host *host, uint32_t endpoint);
};

// A piece of a message.
struct ls_message_piece {
    const void *data; // where it lies
    uint64_t bytes; // of it
};

// Channels to the servers of a job that are processes of their own (`serve`, below). A message has
// a kind and so many bytes; those of a channel arrive in their order. The job's secret protects
// them. All calls but `close` return LS_PEER_LOST when the connection is closed, LS_AGAIN when
// nothing moved for the deadline, LS_BAD_INPUT where the server is none; none of these is logged,
// and the channel can then only be closed. A server that is started again is reached by another
// `connect`. [one thread at a time for a channel]
struct ls_strategy_channels {
    uint32_t struct_size;
    uint32_t servers; // server processes; 0: the job has none, and nothing below may be called
    uint32_t worker, workers; // number of this process, and how many there are
    // Tries until the server answers; LS_PEER_LOST (which the host says) after the deadline.
    int32_t (*connect)(const struct ls_strategy_host *host, uint32_t server,
                       struct ls_strategy_channel **out);
    void (*close)(struct ls_strategy_channel *channel); // takes NULL
    // Sends a message; its bytes are the pieces, one after the other.
    int32_t (*send)(struct ls_strategy_channel *channel, uint32_t kind,
                    const struct ls_message_piece *pieces, uint32_t count);
    // The head of the next message. Its bytes are to be read next, by one `read` or several.
    int32_t (*receive)(struct ls_strategy_channel *channel, uint32_t *kind, uint64_t *bytes);
    // The next bytes of the message; the last have come when this returns.
    int32_t (*read)(struct ls_strategy_channel *channel, void *memory, uint64_t bytes);
    // What a server must know of the variables and the optimizer, for its host's `learn`. Writes
    // at most `room` bytes, and the size that it has to `bytes`. LS_USAGE (said): the optimizer is
    // a function of this program. Not before initialize_parameters.
    int32_t (*describe)(const struct ls_strategy_host *host, void *out, uint64_t room,
                        uint64_t *bytes);
    // This worker had made so many steps of the training before it was started again; it goes on
    // with the next one. Only in initialize_parameters.
    void (*go_on)(const struct ls_strategy_host *host, uint64_t steps);
    // What the report needs of the steps of all workers: so many sums of each step. A worker's go to
    // a server with its push, and are added up there for the epoch, because no worker asks another
    // one, which may be lost.
    uint32_t tally_count, reserved;
    // The epoch under way, as the number of its first step in the training, and (`out` may be NULL)
    // what the replica's step adds to its sums. From when bucket 0 is ready until end_step.
    int32_t (*read_tally)(const struct ls_strategy_host *host, uint64_t *epoch, float *out);
    // What the sums of the epoch have come to over all workers. In `synchronise`, with which each
    // epoch ends on all workers.
    void (*give_tally)(const struct ls_strategy_host *host, uint64_t epoch, const double *sums);
};

// ---- A server process ----
//
// It has no model, no data and no replicas: what it keeps it was sent by workers.

// What may happen in a server process.
enum ls_server_event_kind {
    LS_SERVER_OPENED = 1, // somebody who knows the job's secret has connected
    LS_SERVER_MESSAGE = 2, // of `peer`
    LS_SERVER_CLOSED = 3, // `peer` is nobody any more
};

// What has happened.
struct ls_server_event {
    uint32_t struct_size;
    uint32_t kind; // enum ls_server_event_kind
    uint32_t peer; // a number of the host's
    uint32_t message; // the kind of a message
    const void *data; // of a message, aligned to 64 bytes; borrowed until the next event
    uint64_t bytes; // of a message
};

// What the host offers a server process. [the thread of `serve`]
struct ls_server_host {
    uint32_t struct_size;
    uint32_t server, servers, workers; // number of this process, and how many there are
    uint64_t deadline_ns; // the longest that anything may wait for a worker
    uint64_t learnt_floats; // of the flat buffer that `learn` was told of; 0 before
    void *context; // the host's own
    const struct ls_host *host; // log, fail, options, ...
    const char *job; // a name that no other job on this machine has at this time
    const char *folder; // that lasts as long as the job and is removed then; NULL: there is none

    // What happened next, within `timeout_ns`. LS_AGAIN: nothing; LS_INTERRUPTED, once: the user
    // ends this process, and mostly the workers, too: it may serve them for some seconds.
    int32_t (*next)(const struct ls_server_host *host, uint64_t timeout_ns,
                    struct ls_server_event *out);
    // Takes a copy. While a peer does not take what it was sent, nothing is heard of it.
    void (*send)(const struct ls_server_host *host, uint32_t peer, uint32_t kind,
                 const struct ls_message_piece *pieces, uint32_t count);
    // Messages of this peer may have so many bytes; at first 65536. A longer one closes it.
    void (*allow)(const struct ls_server_host *host, uint32_t peer, uint64_t bytes);
    void (*drop)(const struct ls_server_host *host, uint32_t peer); // without an event

    // Variables and optimizer, as `describe` of a worker's host wrote them. Once. LS_BAD_INPUT
    // (said): it makes no sense.
    int32_t (*learn)(const struct ls_server_host *host, const void *description, uint64_t bytes);
    // A store of `count` floats from float `first` of the flat buffer, as that of a worker, but in
    // memory of the caller, which `place` names: `bytes` of it, aligned to 64. First come the
    // values, then the state of the optimizer. `fill` makes them those of a store without a step.
    int32_t (*open)(const struct ls_server_host *host, uint64_t first, uint64_t count,
                    struct ls_store **out, uint64_t *bytes);
    // From now on the store is in `memory`.
    void (*place)(const struct ls_server_host *host, struct ls_store *store, void *memory);
    // As said above `open`; `values` has `count` floats.
    void (*fill)(const struct ls_server_host *host, struct ls_store *store, const float *values);
    // One step of the optimizer: the `step`th of this store, from 1.
    int32_t (*update)(const struct ls_server_host *host, struct ls_store *store,
                      const float *gradient, uint64_t step, double learning_rate);
};

#ifdef __cplusplus
}
#endif

#endif
