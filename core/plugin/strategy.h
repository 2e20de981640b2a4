// SPDX-License-Identifier: Apache-2.0
// What a strategy plugin implements: where variables live and how gradients become an update. One
// instance a worker (process); the hooks name the replica they are called for.
//
// The parameters of a model lie in one flat buffer per replica, in the order in which backward finishes
// their gradients (last layer first); gradients and optimizer state lie in buffers of the same shape. The
// buffer is cut into buckets, each a contiguous range; bucket 0 also carries the step's sums (loss,
// right predictions, examples) as a tail.
#ifndef LS_PLUGIN_STRATEGY_H
#define LS_PLUGIN_STRATEGY_H

#include "core/plugin/plugin.h"
#include "core/plugin/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ls_strategy; // each plugin's own
struct ls_store; // the host's: variables that live on the host
struct ls_strategy_thread; // the host's

// Flat buffers of a replica, in floats.
enum ls_replica_memory { LS_REPLICA_PARAMETERS = 1, LS_REPLICA_GRADIENTS = 2 };

// The sums of a step, in floats: of the losses of the examples, predicted right, examples, 0, how many ranks ask to
// stop after this step; the rest is zero.
#define LS_STRATEGY_SUMS 16
enum { LS_SUMS_LOSS = 0, LS_SUMS_RIGHT = 1, LS_SUMS_EXAMPLES = 2, LS_SUMS_STOP = 4 };

// Whom a replica waited for.
enum ls_strategy_wait { LS_WAITED_FOR_REPLICAS = 1, LS_WAITED_FOR_SERVERS = 2 };

// What the host does for a strategy. Every call that blocks has the run's deadline and returns
// LS_ABORTED after an abort. Bucket numbers are those of the plan. [replica thread of `replica`]
struct ls_strategy_host {
    uint32_t struct_size;
    uint32_t replicas; // of this worker; hooks get 0 .. replicas - 1
    uint32_t world; // replicas of the whole job
    uint32_t bucket_count;
    void *context;
    const struct ls_host *host; // log, fail, options, ...

    // Sums the bucket's gradients (and tail) over all ranks. `start` returns at once; it must be called
    // in the same order on every rank. `wait` returns when this replica's bucket holds the sum.
    int32_t (*all_reduce_start)(const struct ls_strategy_host *host, uint32_t replica,
                                uint32_t bucket);
    int32_t (*all_reduce_wait)(const struct ls_strategy_host *host, uint32_t replica,
                               uint32_t bucket);

    // Copies the parameters of `root`'s replica to every rank.
    int32_t (*broadcast_parameters)(const struct ls_strategy_host *host, uint32_t replica,
                                    uint32_t root);

    // Looks at the step's sums, which must be final; LS_FAILED (the host says why) when the loss is not
    // finite: then nothing may be updated. For a strategy that is `capturable` it only puts work on the device's stream,
    // where the device works on by itself: then the device sees to it that nothing is updated, and the host looks later.
    int32_t (*decide)(const struct ls_strategy_host *host, uint32_t replica);

    // Runs the optimizer on the bucket's range of this replica's parameters.
    int32_t (*update)(const struct ls_strategy_host *host, uint32_t replica, uint32_t bucket);

    // ---- Since ABI 1.1 ----

    uint64_t flat_count; // floats of a flat buffer, padding included; the same on all replicas
    uint32_t variable_count;
    uint32_t reserved;
    uint64_t deadline_ns; // the longest that anybody may wait for a peer

    // Where a bucket, and where a variable (in the order in which they lie) is in the flat buffers, in floats. Variables
    // may have padding between them. [any thread]
    void (*bucket_range)(const struct ls_strategy_host *host, uint32_t bucket, uint64_t *first,
                         uint64_t *count);
    void (*variable_range)(const struct ls_strategy_host *host, uint32_t variable, uint64_t *first,
                           uint64_t *count);

    // A flat buffer of the replica (`memory`: enum ls_replica_memory) as host memory; NULL where the device has memory of
    // its own: then read and write. Others may read the gradients of a replica from the moment when it says that they
    // are ready until its next begin_step has returned; parameters are the replica's own. [any thread]
    float *(*map)(const struct ls_strategy_host *host, uint32_t replica, uint32_t memory);
    // Copies a range to and from host memory. [replica thread of `replica`]
    int32_t (*read)(const struct ls_strategy_host *host, uint32_t replica, uint32_t memory,
                    uint64_t first, uint64_t count, float *out);
    int32_t (*write)(const struct ls_strategy_host *host, uint32_t replica, uint32_t memory,
                     uint64_t first, uint64_t count, const float *in);
    // After parameters were changed through `map`; `write` says so itself. [replica thread of `replica`]
    void (*changed)(const struct ls_strategy_host *host, uint32_t replica);

    // The replica's own sums of the step under way; complete when bucket 0 is ready. `out` has LS_STRATEGY_SUMS.
    int32_t (*read_sums)(const struct ls_strategy_host *host, uint32_t replica, float *out);
    // Instead of `decide`, where the sums are not those of an all-reduce: of the global batch, or of the replica's own
    // share for LS_DIVISOR_OWN.
    int32_t (*decide_on)(const struct ls_strategy_host *host, uint32_t replica, const float *sums);
    // Number (from 1) and learning rate of the step under way. The numbers of a replica never decrease; one that trains
    // examples of a lost replica, too, makes several steps of one number.
    void (*step)(const struct ls_strategy_host *host, uint32_t replica, uint64_t *number,
                 double *learning_rate);

    // Variables [first, first + count) of the flat buffer, kept on the host with their optimizer state. They begin with
    // what the run begins with. Only in `open`; close all before `close` returns, but not earlier: when the run ends the
    // host takes the optimizer's state from them. The calls on an open store: [one thread at a time, which may change]
    int32_t (*store_open)(const struct ls_strategy_host *host, uint64_t first, uint64_t count,
                          struct ls_store **out);
    void (*store_close)(const struct ls_strategy_host *host, struct ls_store *store); // takes NULL
    float *(*store_values)(const struct ls_strategy_host *host, struct ls_store *store);
    // One step of the optimizer; `gradient` has `count` floats, LS_ALIGNMENT not needed. `step` is its number, as
    // `step` above says it, and larger than the last; 0: the one after the last of this store, the first after those that
    // the model had before.
    int32_t (*store_update)(const struct ls_strategy_host *host, struct ls_store *store,
                            const float *gradient, uint64_t step, double learning_rate);

    // Waits until all replicas of this worker have come; what they wrote before, all see after. LS_PEER_LOST after the
    // deadline. A replica that was lost is not waited for. [replica thread]
    int32_t (*meet)(const struct ls_strategy_host *host, uint32_t replica);

    // A thread of the strategy's own. When `run` returns anything but LS_OK (which it logs) or LS_ABORTED, the run ends.
    // Join all before `close` returns; `thread_join` answers what `run` returned, and LS_PEER_LOST for a thread that has not
    // ended after the deadline. [main thread]
    int32_t (*thread_start)(const struct ls_strategy_host *host, const char *name,
                            int32_t (*run)(void *context), void *context,
                            struct ls_strategy_thread **out);
    int32_t (*thread_join)(const struct ls_strategy_host *host, struct ls_strategy_thread *thread);

    // Point to point: endpoints of the run's transport, which have its contract (core/plugin/transport.h). Needs
    // `needs_transport`. endpoints[0 .. world - 1] are those of the ranks, then come `servers` more; the host closes
    // them after `close`, or `endpoint_close` one that is lost, so that its peers see it. Once, in `open`.
    const struct ls_transport_interface *transport;
    int32_t (*endpoints_open)(const struct ls_strategy_host *host, uint32_t servers,
                              struct ls_transport **endpoints);
    void (*endpoint_close)(const struct ls_strategy_host *host, uint32_t endpoint);

    // What this replica has sent in the step under way, for the report. [replica thread]
    void (*count_bytes)(const struct ls_strategy_host *host, uint32_t replica, uint64_t bytes);
    // A fact for the report, under `name` ("staleness.lead.histogram"): a number, or (`list` 1) a list of `count`
    // numbers. Only in `describe`. [main thread]
    void (*report)(const struct ls_strategy_host *host, const char *name, const double *values,
                   uint64_t count, uint32_t list);
    // For the timeline: this replica has waited from `since_ns` (of the host's clock) until now, for whom (enum
    // ls_strategy_wait). `meet` and `all_reduce_wait` say so themselves. [replica thread, in a hook]
    void (*waited)(const struct ls_strategy_host *host, uint32_t replica, uint32_t whom,
                   uint64_t since_ns);
};

enum ls_strategy_divisor {
    LS_DIVISOR_GLOBAL = 1, // gradients are divided by the examples of the global batch
    LS_DIVISOR_OWN = 2, // by the replica's own examples (asynchronous and local steps)
};

enum ls_replica_equality {
    LS_EQUAL_EVERY_STEP = 1,
    LS_EQUAL_AT_SYNCHRONISE = 2,
};

struct ls_strategy_traits {
    uint32_t struct_size;
    uint32_t divisor; // enum ls_strategy_divisor
    uint32_t equality; // enum ls_replica_equality
    // 1: `lost` may be called. Only for LS_DIVISOR_OWN: in a step of all replicas none can be missing.
    uint32_t survives;
    // Since ABI 1.2. 1: in every step the hooks make the same calls of the host's table, of those that only put work on a device's
    // stream (all_reduce_start, all_reduce_wait, decide, update), and nothing else; begin_step is NULL. So a step may be
    // recorded once and replayed without calling them, where the collective is capturable, too; and the host need not wait
    // for its sums.
    uint32_t capturable;
};

// `count` floats from float `first` of a flat buffer.
struct ls_placed_range {
    uint64_t first, count;
};

// What a rank holds of a bucket. The host fills it with the whole bucket before it asks.
struct ls_strategy_placement {
    uint32_t struct_size;
    uint32_t reserved;
    struct ls_placed_range parameters, gradients;
    struct ls_placed_range states; // of the optimizer; count 0: none
};

struct ls_strategy_interface {
    uint32_t struct_size;
    uint32_t divisor; // enum ls_strategy_divisor
    uint32_t equality; // enum ls_replica_equality
    uint32_t needs_collective; // 1: calls all_reduce or broadcast, so a collective must be chosen
    uint32_t maximum_replicas; // of the whole job; 0: any number
    uint32_t needs_transport; // 1: calls endpoints_open, so a transport must be chosen

    // When `open` is called there are ranks and a layout, but replicas have no buffers yet. [main thread]
    int32_t (*open)(const struct ls_strategy_host *host, struct ls_strategy **out);
    void (*close)(struct ls_strategy *strategy); // takes NULL

    // Once, before the first step: makes the initial parameters those of rank 0. [replica thread]
    int32_t (*place)(struct ls_strategy *strategy, uint32_t replica);
    // Optional: makes parameters current before forward. NULL: they always are. [replica thread]
    int32_t (*begin_step)(struct ls_strategy *strategy, uint32_t replica);
    // The bucket's gradients of this replica are complete; in the order of the plan, while backward of
    // earlier layers still runs. Must not wait for other replicas. [replica thread]
    int32_t (*gradient_ready)(struct ls_strategy *strategy, uint32_t replica, uint32_t bucket);
    // All buckets were ready: ends with the parameters updated. [replica thread]
    int32_t (*end_step)(struct ls_strategy *strategy, uint32_t replica);
    // Optional: before evaluation, checkpoint and the end, when all replicas have ended their steps. Called for all of
    // them, but for those that were lost. NULL: nothing to do. [replica thread]
    int32_t (*synchronise)(struct ls_strategy *strategy, uint32_t replica);

    // ---- Since ABI 1.1 ----

    // Optional: the traits of this instance, where they depend on its options. NULL: those above. [main thread]
    void (*traits)(struct ls_strategy *strategy, struct ls_strategy_traits *out);
    // Optional: a step of `replica` failed, and it makes no more of them; the others go on, and train the examples that it
    // would have had. Takes back what of it is under way; no hook is called for it any more. It is out of `meet` already.
    // Not after LS_PEER_LOST: then somebody else is late or lost, and the run ends. NULL: the failure of a replica ends the
    // run. [replica thread of `replica`]
    int32_t (*lost)(struct ls_strategy *strategy, uint32_t replica);
    // Optional: calls host->report, after the last step and the last `synchronise`. [main thread]
    void (*describe)(struct ls_strategy *strategy);
    // Optional: the replica has no examples to train for now, or the user ends the run, though others may be in a step:
    // they may not wait for its next one. It goes on with begin_step, when one of them is lost, or with synchronise. Only
    // for LS_DIVISOR_OWN, where replicas may have made unequally many steps. NULL: nobody waits for a replica's next step.
    // [replica thread of `replica`]
    int32_t (*rest)(struct ls_strategy *strategy, uint32_t replica);
    // Optional: which ranges of `bucket` rank `rank` holds; asked after `open`, before replicas have buffers. From world and
    // layout alone. NULL: every rank holds everything. [main thread]
    void (*placement)(struct ls_strategy *strategy, uint32_t rank, uint32_t bucket,
                      struct ls_strategy_placement *out);
};

#ifdef __cplusplus
}
#endif

#endif
