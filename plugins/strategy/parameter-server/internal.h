// SPDX-License-Identifier: Apache-2.0
// What the files of the strategy share: its options, a worker's side and a server's side. Workers
// and servers see each other's structs never: what one knows of the other came in a message.
#ifndef LS_PARAMETER_SERVER_INTERNAL_H
#define LS_PARAMETER_SERVER_INTERNAL_H

#include "plugins/strategy/parameter-server/pace.h"
#include "plugins/strategy/parameter-server/shards.h"

enum mode { MODE_ASYNC, MODE_BOUNDED, MODE_SYNC };

struct settings {
    enum mode mode;
    uint32_t servers;
    uint64_t staleness; // bounded
    uint64_t shard_bytes;
    uint32_t delay_replica; // UINT32_MAX: none
    uint64_t delay_ns;
};

// How often a side that waits looks whether the other one is still there.
#define POLL_NS UINT64_C(50000000)

// A server answers a worker that has waited for the deadline; the worker itself waits a little
// longer, so that it hears why.
static inline uint64_t worker_patience_ns(const struct ls_strategy_host *host)
{
    return host->deadline_ns + host->deadline_ns / 8 + 2 * POLL_NS;
}

// ---- Workers ----

// A worker's side of one server.
struct link {
    struct channel channel;
    uint32_t shard_count;
    const struct shard **shards; // of this server, in their order
    uint64_t *versions; // that the replica has
    struct answer *answer;
    struct ls_transfer answering;
    struct ls_transfer *values; // one a shard
    uint32_t *changed; // shards whose values come with this answer
    uint32_t changed_count, changed_done;
    uint32_t waits; // for what; see worker.c
    uint32_t pushed; // shards, in this step
    struct request *requests; // of this step
    struct ls_transfer *sends; // of this step
    uint32_t request_count, send_count;
    uint32_t sends_done; // all before it are complete
};

struct worker {
    struct ls_strategy *strategy;
    uint32_t rank;
    struct ls_transport *endpoint;
    struct link *links; // one a server
    float *parameters, *gradients; // the replica's own memory, or copies in the host's
    float *parameter_copy, *gradient_copy; // NULL: its memory can be reached
    struct ls_transfer **waiting; // for wait_any
    uint64_t step;
    double learning_rate;
    uint64_t sent_bytes; // in this step
    uint32_t silent; // 1: its share of this step has no examples, so it pushes nothing
    uint32_t lost;
    uint32_t broken; // 1: a call failed, so what its channels do next is unknown
};

int32_t worker_open(struct ls_strategy *strategy, struct worker *worker, uint32_t rank);
void worker_close(struct worker *worker); // takes a zeroed one

int32_t worker_initialize(struct worker *worker);
int32_t worker_begin(struct worker *worker);
int32_t worker_push(struct worker *worker, uint32_t bucket);
int32_t worker_end(struct worker *worker);
int32_t worker_barrier(struct worker *worker);
int32_t worker_rest(struct worker *worker);
int32_t worker_statistics(struct worker *worker, struct statistics *out); // one a server
// After this a server waits for nothing of this worker.
int32_t worker_leave(struct worker *worker);

// ---- Servers ----

// A shard where it is kept.
struct held {
    const struct shard *shard;
    struct ls_store *store;
    float *values; // of the store
    uint64_t version; // updates, plus one
    uint32_t readers; // workers that its values are on the way to: it may not change
    uint32_t turn; // sync: whose gradient is added next
    float *sum; // sync
};

enum peer_state {
    PEER_IDLE = 0, // its next request is awaited
    PEER_PUSHES,
    PEER_WAITS, // for an answer
    PEER_TAKES, // the answer is on the way
    PEER_GONE,
};

// A server's side of one worker.
struct peer {
    struct channel channel;
    enum peer_state state;
    struct request request;
    struct ls_transfer incoming;
    uint32_t receiving; // 1: a shard's gradient
    uint32_t place, end; // of the shards that are pushed
    float *gradient; // of the largest shard; async and bounded
    uint64_t *versions; // of each shard, that the worker has
    uint64_t waits_since_ns;
    uint32_t held_back; // 1: it was not let begin at once
    struct answer *answer;
    struct ls_transfer *sends; // the answer, and values
    uint32_t *sent_places; // shard of each send but the first
    uint32_t send_count, sends_done;
    float sums[LS_STRATEGY_SUMS]; // sync
};

struct server {
    struct ls_strategy *strategy;
    uint32_t index;
    struct ls_transport *endpoint;
    struct held *held;
    uint32_t held_count;
    uint32_t *bucket_begins; // bucket_count + 1: its first shard in `held`
    struct peer *peers; // world
    struct ls_transfer **waiting;
    struct pace pace;
    struct statistics statistics, statistics_sent;
    uint64_t polled_ns;

    // sync: the step under way
    uint32_t sums_heard, done_count;
    uint64_t done_step; // the last that is applied
    float sums[LS_STRATEGY_SUMS]; // of done_step, or of the step under way once all are heard
    uint32_t finite; // 1: so is its loss

    struct ls_strategy_thread *thread;
};

int32_t server_open(struct ls_strategy *strategy, struct server *server, uint32_t index);
void server_close(struct server *server); // takes a zeroed one
int32_t server_run(void *server);

// ---- Servers that are processes of their own: remote.h ----

struct remote; // a worker's side of all of them

int32_t remote_open(struct ls_strategy *strategy);
void remote_close(struct ls_strategy *strategy); // takes one without
int32_t remote_initialize(struct remote *remote);
int32_t remote_begin(struct remote *remote);
int32_t remote_push(struct remote *remote, uint32_t bucket);
int32_t remote_end(struct remote *remote);
int32_t remote_rest(struct remote *remote);
int32_t remote_meet(struct remote *remote);
// One struct a server; `updates`: of shards, by all workers, since the training began.
int32_t remote_statistics(struct remote *remote, struct statistics *out, uint64_t *updates);
int32_t remote_serve(const struct ls_server_host *host);

// ---- Both ----

struct ls_strategy {
    const struct ls_strategy_host *host;
    struct settings settings;
    struct shard_plan plan;
    struct range *variables, *buckets;
    struct ls_transport **endpoints; // world + servers
    struct worker *workers;
    struct server *servers;
    struct remote *remote; // NULL: servers are threads of this process
};

// ---- memory.c ----

// Zeroed memory of the host; NULL: there is none. `count` 0 is taken for 1.
void *strategy_allocate(const struct ls_strategy *strategy, uint64_t count, uint64_t bytes);
void strategy_release(const struct ls_strategy *strategy, void *memory); // takes NULL
// Finds the replica's buffers, or makes copies where they cannot be reached.
int32_t worker_find_memory(struct worker *worker);

#endif
