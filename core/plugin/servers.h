// SPDX-License-Identifier: Apache-2.0
// Servers of a strategy. They are threads of the workers, which are reached through endpoints of
// the transport, or processes of their own, which are reached through channels and run the
// strategy's `serve`. core/plugin/strategy.h includes this header.
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

// Endpoints of the run's transport (host->transport), for plugins with needs_transport.
struct ls_strategy_endpoints {
    uint32_t struct_size;
    uint32_t reserved;
    // endpoints[0 .. world - 1] are those of the ranks; `servers` more follow. Called once, in the
    // strategy's open. The host closes them after the strategy.
    int32_t (*open)(const struct ls_strategy_host *host, uint32_t servers,
                    struct ls_transport **endpoints);
    // Closes the endpoint of a lost replica or server, so that its peers notice.
    void (*close)(const struct ls_strategy_host *host, uint32_t endpoint);
};

// A piece of a message.
struct ls_message_piece {
    const void *data; // address of the piece
    uint64_t bytes; // its size
};

// Channels to server processes. A message has a kind and a number of bytes; the messages of a
// channel arrive in the order in which they were sent. The job's secret protects them. All calls
// but `close` return LS_PEER_LOST if the connection is closed, LS_AGAIN if nothing has moved for
// the deadline, and LS_BAD_INPUT if the peer does not behave as a server; the host logs none of
// these, and the channel can then only be closed. A server that was started again is reached by
// another `connect`. [one thread at a time for a channel]
struct ls_strategy_channels {
    uint32_t struct_size;
    uint32_t servers; // server processes; 0: the job has none, and nothing below may be called
    uint32_t worker, workers; // number of this process, and how many there are
    // Tries until the server answers. LS_PEER_LOST (which the host logs) after the deadline.
    int32_t (*connect)(const struct ls_strategy_host *host, uint32_t server,
                       struct ls_strategy_channel **out);
    void (*close)(struct ls_strategy_channel *channel); // takes NULL
    // Sends a message; its bytes are the pieces, one after the other.
    int32_t (*send)(struct ls_strategy_channel *channel, uint32_t kind,
                    const struct ls_message_piece *pieces, uint32_t count);
    // Receives kind and size of the next message. `read` then receives its bytes, all at once or in
    // several calls.
    int32_t (*receive)(struct ls_strategy_channel *channel, uint32_t *kind, uint64_t *bytes);
    // Receives the next `bytes` bytes of the message.
    int32_t (*read)(struct ls_strategy_channel *channel, void *memory, uint64_t bytes);
    // Writes what a server must know of the variables and the optimizer, for `learn` of its host:
    // at most `room` bytes to `out`, and the whole size to `bytes`. LS_USAGE (logged): the
    // optimizer is a function of this program. Not before initialize_parameters.
    int32_t (*describe)(const struct ls_strategy_host *host, void *out, uint64_t room,
                        uint64_t *bytes);
    // This worker was started again after `steps` steps of the training; it goes on with the next
    // one. Only in initialize_parameters.
    void (*go_on)(const struct ls_strategy_host *host, uint64_t steps);
    // How many sums of each step the report needs from all workers. A worker sends them to a server
    // with its push, and the server adds them up for the epoch: workers do not ask each other,
    // because any of them may be lost.
    uint32_t tally_count, reserved;
    // The epoch under way, as the number of its first step in the training, and what the replica's
    // step adds to its sums (`out` may be NULL). Between bucket 0 being ready and the end of
    // end_step.
    int32_t (*read_tally)(const struct ls_strategy_host *host, uint64_t *epoch, float *out);
    // The sums of the epoch over all workers. In `synchronise`, which ends each epoch on all
    // workers.
    void (*give_tally)(const struct ls_strategy_host *host, uint64_t epoch, const double *sums);
};

// ---- A server process ----
//
// It has no model, no data and no replicas: workers send it all that it keeps.

// What may happen in a server process.
enum ls_server_event_kind {
    LS_SERVER_OPENED = 1, // `peer`, which knows the job's secret, has connected
    LS_SERVER_MESSAGE = 2, // `peer` has sent a message
    LS_SERVER_CLOSED = 3, // `peer` is gone, and its number means nothing any more
};

// What has happened.
struct ls_server_event {
    uint32_t struct_size;
    uint32_t kind; // enum ls_server_event_kind
    uint32_t peer; // a number that the host has given
    uint32_t message; // the kind of the message
    const void *data; // the message, aligned to 64 bytes; borrowed until the next event
    uint64_t bytes; // its size
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
    const char *folder; // one that is removed when the job ends; NULL: there is none

    // What happened next, within `timeout_ns`. LS_AGAIN: nothing. LS_INTERRUPTED, once: the user
    // ends this process, and probably the workers, too; it may serve them for some seconds.
    int32_t (*next)(const struct ls_server_host *host, uint64_t timeout_ns,
                    struct ls_server_event *out);
    // Sends a copy of the pieces. As long as a peer has not received all that was sent to it, its
    // own messages wait.
    void (*send)(const struct ls_server_host *host, uint32_t peer, uint32_t kind,
                 const struct ls_message_piece *pieces, uint32_t count);
    // Allows this peer messages of up to `bytes` bytes; at first 65536. A longer one closes the
    // connection.
    void (*allow)(const struct ls_server_host *host, uint32_t peer, uint64_t bytes);
    void (*drop)(const struct ls_server_host *host, uint32_t peer); // without an event

    // Takes variables and optimizer, as `describe` of a worker's host wrote them. Called once.
    // LS_BAD_INPUT (logged): the description makes no sense.
    int32_t (*learn)(const struct ls_server_host *host, const void *description, uint64_t bytes);
    // Opens a store of `count` floats from float `first` of the flat buffer. It is like a worker's,
    // but its memory is the caller's: `bytes` bytes, aligned to 64, which `place` names. They hold
    // the values, then the state of the optimizer. `fill` makes them those of a store that has made
    // no step.
    int32_t (*open)(const struct ls_server_host *host, uint64_t first, uint64_t count,
                    struct ls_store **out, uint64_t *bytes);
    // From now on the store uses `memory`.
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
