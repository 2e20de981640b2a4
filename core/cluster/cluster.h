// SPDX-License-Identifier: Apache-2.0
// The cluster: the workers (processes) of a training, the ranks that each of them has, and the
// calls in which they tell each other something. A rank is a replica of the whole cluster; a local
// index is a replica of this worker. A cluster of one worker opens no socket and starts no thread.
//
// Calls that all workers make (gather, broadcast, barrier, exchange) must come in the same order on
// all of them, one at a time. Each returns after the deadline at the latest, whatever others do,
// and at once when a worker is lost. What goes wrong is logged once on each worker.
#ifndef LS_CLUSTER_CLUSTER_H
#define LS_CLUSTER_CLUSTER_H

#include "core/base/status.h"
#include "core/place/resolve.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ls_cluster;

// This process alone, with `count` replicas (at least 1): ranks 0 .. count - 1 on one host.
LS_STATUS ls_cluster_open_alone(uint32_t count, struct ls_cluster **out);

// What must be equal on all workers: "--model", "cnn".
struct ls_agreement {
    const char *name, *value;
};

#define LS_JOIN_DEADLINE_NS UINT64_C(60000000000)
#define LS_CLUSTER_DEADLINE_NS UINT64_C(300000000000)
#define LS_SILENCE_NS UINT64_C(3000000000)

// Borrowed until ls_cluster_join returns, but for `lost` and `interrupted`.
struct ls_cluster_options {
    const struct ls_worker_place *place;
    uint32_t count; // ranks of this worker, at least 1; workers may differ. Servers have none
    uint64_t join_deadline_ns; // for all workers to be here; 0: LS_JOIN_DEADLINE_NS
    uint64_t deadline_ns; // of each later wait (worker 0's counts); 0: LS_CLUSTER_DEADLINE_NS
    uint64_t silence_ns; // after which a silent worker is lost; 0: LS_SILENCE_NS; at least 1 s
    // NULL: none, which is refused where other machines reach worker 0, unless `insecure`.
    // core/wire/secret.h finds it (ls_secret_find).
    const char *secret;
    bool insecure;
    const struct ls_agreement *agreement;
    uint32_t agreements;
    // --elastic=MIN:MAX, where a loss does not end the training (see ls_cluster_reform); 0: not
    // elastic. The same on all workers: put them into `agreement`.
    uint32_t least_workers, most_workers;
    // The user ends this process: ls_cluster_reform waits no longer then. NULL: never.
    const atomic_bool *interrupted;
    // What tells the machine of this worker from others; NULL: found out. For tests.
    const char *host;
    // A worker is lost (LS_PEER_LOST), or workers made different calls: at most once (in an elastic
    // cluster once in each generation), after the sentence was logged, with that sentence. Must not
    // wait and must not close the cluster. NULL: none. [any thread]
    void (*lost)(void *context, const char *text);
    void *context;
    // The same of each worker that is lost, or has left in order, where that ends nothing but
    // meetings with it (ls_cluster_meet): workers are apart, and called processes in messages. The
    // same on all workers; none of them is elastic, and there are no servers. With worker 0 goes
    // the store, and so every meeting later. NULL: the first loss ends the cluster. [any thread]
    void (*departed)(void *context, uint32_t worker, bool lost, const char *text);
    // What `worker` has told this one (ls_cluster_tell). Must not wait. NULL: nobody listens. [any
    // thread]
    void (*told)(void *context, uint32_t worker, const char *key, const char *text);
};

// Brings all workers (and servers) of the job together: worker 0 opens a store where `place` says
// (or at a port of its own, which PMIx tells the others), the others connect to it, all prove that
// they know the secret, and all must agree. Says every second what it waits for, after the first 5
// s. A place of one worker and no servers is a cluster alone.
//
// LS_PEER_LOST: somebody did not come, or was lost before all were there. LS_USAGE: a difference
// (with both values, on all workers), a number that is taken, another secret, none where one is
// necessary. Logged. place->listen_fd is closed in any case.
LS_STATUS ls_cluster_join(const struct ls_cluster_options *options, struct ls_cluster **out);

// Which worker this is and where it has met the others, for the line that is printed at the
// beginning: "worker 1 of 4 by torchrun (RANK=1 WORLD_SIZE=4 ...), store at 10.0.0.1:29600,
// authenticated". Borrowed.
#define LS_ABOUT_BYTES 1536
const char *ls_cluster_about(const struct ls_cluster *cluster);

// The numeric address of the store, for sockets that are opened beside it: on worker 0 the one that
// it listens at ("0.0.0.0"), on all others the one where they have reached it. "": alone. Borrowed.
const char *ls_cluster_store_host(const struct ls_cluster *cluster);

// Says goodbye, so that the others do not count this worker as lost: first call ls_cluster_give_up
// where the training failed here. Waits for 2 s at most. Takes NULL.
void ls_cluster_close(struct ls_cluster *cluster);

uint32_t ls_cluster_worker(const struct ls_cluster *cluster); // number of this worker, from 0
uint32_t ls_cluster_workers(const struct ls_cluster *cluster);
uint32_t ls_cluster_first_rank(const struct ls_cluster *cluster); // of this worker
uint32_t ls_cluster_count(const struct ls_cluster *cluster); // ranks of this worker
uint32_t ls_cluster_world(const struct ls_cluster *cluster); // ranks of all workers
// The number of the host that each rank runs on, `world` numbers; hosts count from 0 in the order
// in which ranks first name them. Workers are on one host where they may share memory. Borrowed.
const uint32_t *ls_cluster_hosts(const struct ls_cluster *cluster);
// The worker of each rank, `world` numbers. Borrowed.
const uint32_t *ls_cluster_rank_workers(const struct ls_cluster *cluster);

// Collects `bytes` bytes of each rank: `mine` has those of this worker's ranks one after the other,
// `all` gets those of all ranks in rank order. Every worker makes the same calls in the same order.
// For what is small and rare: hashes, evaluation sums, fingerprints. [main thread]
LS_STATUS ls_cluster_gather(struct ls_cluster *cluster, const void *mine, size_t bytes, void *all);
// The same with one block of `bytes` for each worker.
LS_STATUS ls_cluster_gather_workers(struct ls_cluster *cluster, const void *mine, size_t bytes,
                                    void *all);
// `data` of `worker` replaces that of all others.
LS_STATUS ls_cluster_broadcast(struct ls_cluster *cluster, void *data, size_t bytes,
                               uint32_t worker);
LS_STATUS ls_cluster_barrier(struct ls_cluster *cluster);

// Endpoints of a transport, for `exchange` of struct ls_transport_config, whose `context` this is.
// `workers` says which worker has each of the `world` endpoints; NULL: endpoints are the ranks.
struct ls_cluster_endpoints {
    struct ls_cluster *cluster;
    uint32_t world;
    const uint32_t *workers;
};
int32_t ls_cluster_exchange(void *endpoints, const void *own, uint64_t bytes, void *all);
// ls_cluster_check for these. [any thread]
int32_t ls_cluster_exchange_check(void *endpoints);

// Of workers that are apart: some of them, `count` with these numbers, give `bytes` bytes each and
// get those of all, in the order of `members`, which is the same on all of them. `key` names the
// meeting, in messages too, and no other one of the same name is under way. Several threads may
// meet others at the same time. LS_PEER_LOST, logged: a member is lost, has left, or has not come
// within `deadline_ns`. LS_FAILED, logged: members disagree about which of them meet, or how many
// bytes. [any thread]
struct ls_meeting {
    const char *key;
    const uint32_t *members;
    uint32_t count;
    uint64_t deadline_ns;
};
LS_STATUS ls_cluster_meet(struct ls_cluster *cluster, const struct ls_meeting *meeting,
                          const void *own, size_t bytes, void *all);

// Tells the others of `members` something about `key`, if they can be reached; without waiting.
// [any thread]
void ls_cluster_tell(struct ls_cluster *cluster, const char *key, const uint32_t *members,
                     uint32_t count, const char *text);

#define LS_NO_STEP UINT64_MAX

// What this worker is at: "last heard of in step 117" is what the others say if it is the last
// they hear. `step` may be LS_NO_STEP, `where` has at most 47 letters and is copied. Takes no lock,
// and costs some stores. [any thread]
void ls_cluster_say(struct ls_cluster *cluster, uint64_t step, const char *where);

// LS_OK while all is well; LS_PEER_LOST once a worker is lost (LS_FAILED: this one gave up, or
// calls differed), with the sentence that was logged (`text` may be NULL), which is borrowed. [any
// thread]
LS_STATUS ls_cluster_check(struct ls_cluster *cluster, const char **text);

// That this is still the generation of all: returns when every worker has come to the same call,
// and this one has not been stopped meanwhile for so long that the others may have lost it, or has
// heard from them since. LS_PEER_LOST otherwise, as from any call. [main thread]
LS_STATUS ls_cluster_confirm(struct ls_cluster *cluster);

// This worker cannot go on, for the reason that it has logged: the others lose it at once, with
// that reason, instead of waiting for it. [any thread]
void ls_cluster_give_up(struct ls_cluster *cluster, const char *why);

// ---- Elastic: workers are lost, others come, the training goes on ----
//
// A cluster whose options have `most_workers` has generations, from 0. Within one nothing changes:
// the same workers, the same numbers. When a worker is lost, `lost` is called, every call of this
// generation returns LS_PEER_LOST, and each worker
//
//     1. ends the step that it is in (its transports are aborted by then), closes its transports,
//     2. calls ls_cluster_reform, which returns on all of them with the next generation,
//     3. opens transports anew (the generation is part of their name), tells the others with
//        ls_cluster_gather_workers at which step it is, takes over the state of the most advanced
//        worker with ls_cluster_broadcast, and goes on.
//
// New workers (their place has `joins`, or they simply come after the beginning) wait in
// ls_cluster_join until the others form anew. Worker 0 sees them by ls_cluster_waiting; it makes
// all workers end a step at the same number (this is the caller's part, by a number that travels
// with the step's statistics), and all call ls_cluster_reform as above. A new worker knows from
// ls_cluster_generation, which is not 0, that the others have the state, and does step 3.
//
// A loss while the workers form anew needs no further call: it is taken into account, or it is the
// first loss of the next generation. A worker may also call ls_cluster_reform because its transport
// has lost another one: after `silence_ns` the others learn by `lost` that they must come, too.

#define LS_REFORM_DEADLINE_NS UINT64_C(10000000000)
#define LS_NO_WORKER UINT32_MAX

// What became of the workers.
struct ls_cluster_change {
    uint32_t generation; // that has begun
    // Workers 0 .. survivors - 1 were here before, in the same order; those behind them are new.
    uint32_t survivors, joined, lost;
    // The number that each of the workers had before; LS_NO_WORKER: it is new. Borrowed until the
    // next generation.
    const uint32_t *former;
};

// Forms the next generation: ls_cluster_worker, _workers, _first_rank, _world, _hosts and
// _rank_workers are others then (what was borrowed from them is gone), and sequences of calls begin
// anew. The lowest survivor is worker 0. If the last
// worker 0 is lost, that worker opens a store at a port that it has kept for this, which the others
// know.
//
// Waits for all workers that are not known to be lost, and where fewer than `least_workers` would
// be left, for new ones: at most `deadline_ns` (0: LS_REFORM_DEADLINE_NS). A worker that has not
// come by then is lost. Where worker 0 is lost, the same time again for each worker that should
// take its place and does not answer.
//
// LS_INTERRUPTED: this process ends; the others lose it when its cluster is closed. LS_PEER_LOST,
// logged: fewer than `least_workers` are left; this worker was given up by the
// others (it was stopped, or cut off); or the survivors are so few that the others might go on
// without them: they must be more than half of the workers of the last generation, or half of them
// with the lowest. Workers that have certainly ended (nobody listens at their port any more, or
// they said goodbye) do not count.
//
// No other call may be under way on this cluster but ls_cluster_say and ls_cluster_check. [main
// thread]
LS_STATUS ls_cluster_reform(struct ls_cluster *cluster, uint64_t deadline_ns,
                            struct ls_cluster_change *out);

uint32_t ls_cluster_generation(const struct ls_cluster *cluster);

// New workers that wait, and that ls_cluster_reform would take in; on worker 0, else 0. [any
// thread]
uint32_t ls_cluster_waiting(const struct ls_cluster *cluster);

// For tests: connections that worker 0 has dropped because they were none of its workers'; 0 on all
// others.
uint64_t ls_cluster_strangers(const struct ls_cluster *cluster);

#endif
