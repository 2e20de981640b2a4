// SPDX-License-Identifier: Apache-2.0
// What a strategy plugin implements: where variables are kept, and how gradients become an update.
// Each worker (process) has one instance of the strategy.
//
// Words. A *rank* is a replica of the whole job, 0 .. world - 1. A *replica* is one of this worker,
// 0 .. replicas - 1; hooks and host calls name replicas. Replica i is rank first_rank + i.
//
// On each replica the parameters of the model are one flat buffer of floats, in the order in which
// backward finishes their gradients (last layer first). Gradients and optimizer states are buffers
// of the same shape. The buffer is cut into buckets, which are contiguous ranges. The sums of the
// step (loss, correct predictions, examples) travel with the gradients of bucket 0.
//
// The buffer begins with parameters that gradients do not train: the moving statistics of
// normalization. In place of their gradient it holds what the replica has measured on its share,
// times its part of the batch, and an update averages that. A strategy need not distinguish them,
// because the host knows which operation updates which part of a range. Only a strategy that looks
// at gradients as such, as clipping does, begins at the host's `trained_first`. Frozen parameters
// are behind the buffer, in buckets of their own behind the others; they are equal on all replicas
// from the start, and broadcast_parameters sends them, too. Where ranks hold parts of parameters,
// those may be parts of frozen ones as well: of their buckets there is a placement, and the calls
// of parameters_ahead and parameters_needed. Nothing else knows them.
//
// The life of an instance:
//   open                    [main thread] ranks and layout are known, replicas have no buffers yet
//   find_traits             [main thread] optional
//   placement               [main thread] optional; for each rank and bucket, before buffers exist
//   initialize_parameters   [replica thread] once on every replica, which has its buffers now
//   in each step, on every replica's thread:
//     begin_step            optional
//     parameters_ahead      optional; for each bucket, when there is a place for it
//     parameters_needed     optional; for each bucket, before forward reads it first
//     gradient_finish       optional; before backward writes where a bucket is that was ready
//     gradient_ready        for each bucket, as soon as backward has finished it
//     end_step
//   synchronise             [replica thread] optional; between steps and at the end
//   report_metrics          [main thread] optional; after the last step
//   close                   [main thread] then the host frees the instance's memory
// Hooks of one replica never run at the same time; hooks of different replicas do.
//
// When a call of the host fails, the hook returns the same status. The smallest strategy needs two
// or three of the host's tables: `collectives` and `step`, and `layout` if it uses ranges;
// plugins/strategy/mirrored is one. Larger ones find more in headers of their own:
//   stores.h     variables on the host, with their optimizer state
//   servers.h    endpoints, channels, and servers that are processes of their own
//   rounds.h     replicas with weights of their own, which are brought together now and then
//   sharding.h   replicas that hold parts of the buffers: placement, and collectives on ranges
#ifndef LS_PLUGIN_STRATEGY_H
#define LS_PLUGIN_STRATEGY_H

#include "core/plugin/collective.h"
#include "core/plugin/plugin.h"
#include "core/plugin/rounds.h"
#include "core/plugin/servers.h"
#include "core/plugin/sharding.h"
#include "core/plugin/stores.h"
#include "core/plugin/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ls_strategy; // each plugin's own: `state_bytes` of zeroed memory
struct ls_strategy_host; // what the host offers, below
struct ls_strategy_thread; // the host's

// Buffers of a replica, in floats.
enum ls_replica_memory {
    LS_REPLICA_PARAMETERS = 1, // the flat buffer of parameters
    LS_REPLICA_GRADIENTS = 2, // the flat buffer of gradients
    LS_REPLICA_SUMS = 3, // the LS_STRATEGY_SUMS floats, as a whole; only for collectives->prepare
    // Only for collectives->prepare, too: the sums and the gradients behind them as one buffer, whose
    // beginning is that of bucket 0 as all_reduce_start has it. A range of it is cut among the ranks
    // alike, and each element is added in the same order; the sums are in the part of rank 0.
    LS_REPLICA_SUMS_AND_GRADIENTS = 4,
    // As long: room that nobody reads, and the parameters behind it.
    LS_REPLICA_ROOM_AND_PARAMETERS = 5,
    // Of strategies with rounds (rounds.h):
    LS_REPLICA_ROUND = 6, // the weights of the last round
    LS_REPLICA_MOMENTUM = 7, // of the outer optimizer
    LS_REPLICA_DIFFERENCE = 8, // what travels
    LS_REPLICA_NOTES = 9, // LS_ROUND_NOTES floats of the strategy's own
};

// The sums of a step, in floats: losses of the examples, correct predictions, examples, 0, number
// of ranks that ask to stop after this step; the rest is zero.
#define LS_STRATEGY_SUMS 16
// Where they are among these.
enum { LS_SUMS_LOSS = 0, LS_SUMS_RIGHT = 1, LS_SUMS_EXAMPLES = 2, LS_SUMS_STOP = 4 };

// What a replica waited for.
enum ls_strategy_wait { LS_WAITED_FOR_REPLICAS = 1, LS_WAITED_FOR_SERVERS = 2 };

// Norms that an optimizer may need (clipping, LAMB); bits.
enum ls_strategy_norms {
    // Norms of the gradients of single variables: update_range and stores get whole variables.
    LS_NORM_OF_VARIABLES = 1,
    // The norm of all gradients together: `update` is called for each bucket once a step, in their
    // order, and the call for the last bucket makes all updates; stores are measured before they
    // are updated. A loss scale needs the same order: the last update, and those of stores, then
    // change nothing if gradients are not finite, and check_step and check_step_on accept a loss
    // that is not finite. Where ranks hold parts, all of them call `update_range` instead for the
    // `states` of each bucket, empty ones too; the last call adds up the norms of all ranks, and
    // waits for them.
    LS_NORM_OF_ALL = 2,
};

// ---- The host's tables ----
//
// Every call that blocks waits for the run's deadline at most, and returns LS_ABORTED after an
// abort. A call that names a replica is made on the thread of that replica, from a hook, unless its
// comment says otherwise.

// Where buckets and variables are in the flat buffers. Variables are numbered in the order of the
// buffer and may have padding between them. [any thread]
struct ls_strategy_layout {
    uint32_t struct_size;
    uint32_t reserved;
    // The range of a bucket, in floats.
    void (*bucket_range)(const struct ls_strategy_host *host, uint32_t bucket, uint64_t *first,
                         uint64_t *count);
    // The range of a variable, in floats.
    void (*variable_range)(const struct ls_strategy_host *host, uint32_t variable, uint64_t *first,
                           uint64_t *count);
};

// Sums and copies over all ranks; for plugins with needs_collective. Every rank makes the same
// calls in the same order.
struct ls_strategy_collectives {
    uint32_t struct_size;
    uint32_t reserved;
    // Begins to sum the gradients of the bucket over all ranks; with bucket 0, the sums of the
    // step, too. Returns at once.
    int32_t (*all_reduce_start)(const struct ls_strategy_host *host, uint32_t replica,
                                uint32_t bucket);
    // Returns when this replica's buffer holds the result of all_reduce_start.
    int32_t (*all_reduce_wait)(const struct ls_strategy_host *host, uint32_t replica,
                               uint32_t bucket);
    // Copies the parameters of rank `root` to every rank, frozen ones too. Blocks.
    int32_t (*broadcast_parameters)(const struct ls_strategy_host *host, uint32_t replica,
                                    uint32_t root);
    // Makes and checks a collective on any range (sharding.h), in place. Each is prepared once, in
    // initialize_parameters, while no other is under way; the host keeps it until `close`. Not in a
    // `capturable` strategy.
    int32_t (*prepare)(const struct ls_strategy_host *host, uint32_t replica,
                       const struct ls_strategy_operation *operation,
                       struct ls_strategy_collective **out);
    // Begins a prepared collective. Returns at once.
    int32_t (*start)(const struct ls_strategy_host *host, uint32_t replica,
                     struct ls_strategy_collective *collective);
    // Returns when this replica's buffer holds its result.
    int32_t (*wait)(const struct ls_strategy_host *host, uint32_t replica,
                    struct ls_strategy_collective *collective);
};

// The step under way: its sums, and the optimizer on the replica.
struct ls_strategy_step {
    uint32_t struct_size;
    uint32_t reserved;
    // Number (from 1) and learning rate of the step. The numbers of a replica never decrease; a
    // replica that also trains the examples of a lost one makes several steps with one number.
    void (*current)(const struct ls_strategy_host *host, uint32_t replica, uint64_t *number,
                    double *learning_rate);
    // This replica's own sums, LS_STRATEGY_SUMS floats; complete when bucket 0 is ready.
    int32_t (*read_sums)(const struct ls_strategy_host *host, uint32_t replica, float *out);
    // Checks the sums of the step. They must be final: bucket 0 (or LS_REPLICA_SUMS) is reduced.
    // LS_FAILED (the host logs why) if the loss is not finite: nothing may be updated then. For a
    // `capturable` strategy this only puts work on the device's stream: the device skips the
    // updates by itself, and the host reads the sums later.
    int32_t (*check_step)(const struct ls_strategy_host *host, uint32_t replica);
    // The same with sums that no collective made: those of the global batch, or with
    // LS_DIVISOR_OWN those of the replica's share.
    int32_t (*check_step_on)(const struct ls_strategy_host *host, uint32_t replica,
                             const float *sums);
    // Runs the optimizer on the bucket's range of this replica's parameters.
    int32_t (*update)(const struct ls_strategy_host *host, uint32_t replica, uint32_t bucket);
    // Runs it on any range, in floats, that the replica holds with its optimizer state
    // (sharding.h).
    int32_t (*update_range)(const struct ls_strategy_host *host, uint32_t replica, uint64_t first,
                            uint64_t count);
};

// The flat buffers of replicas: LS_REPLICA_PARAMETERS, LS_REPLICA_GRADIENTS and those of rounds.
struct ls_strategy_memory {
    uint32_t struct_size;
    uint32_t reserved;
    // The buffer as host memory; NULL if the device has memory of its own: use `read` and `write`
    // then. Other threads may read the gradients of a replica from the moment when it says that
    // they are ready until its next begin_step has returned; parameters are for the replica alone.
    // [any thread]
    float *(*map)(const struct ls_strategy_host *host, uint32_t replica, uint32_t memory);
    // Copies a range from the buffer to host memory.
    int32_t (*read)(const struct ls_strategy_host *host, uint32_t replica, uint32_t memory,
                    uint64_t first, uint64_t count, float *out);
    // Copies a range from host memory to the buffer.
    int32_t (*write)(const struct ls_strategy_host *host, uint32_t replica, uint32_t memory,
                     uint64_t first, uint64_t count, const float *in);
    // To be called after parameters were changed through `map`; after all other calls the host
    // knows.
    void (*changed)(const struct ls_strategy_host *host, uint32_t replica);
    // Runs an operation of the device (compression, clipping) on a range (sharding.h).
    // LS_UNSUPPORTED: the device does not offer it on such a range.
    int32_t (*run)(const struct ls_strategy_host *host, uint32_t replica,
                   const struct ls_strategy_range_operation *operation);
};

// Threads of the strategy's own, and the barrier between replicas.
struct ls_strategy_threads {
    uint32_t struct_size;
    uint32_t reserved;
    // Waits until all replicas of this worker have called it. What a replica wrote before the
    // barrier, all replicas see behind it. LS_PEER_LOST after the deadline. Lost replicas are not
    // waited for.
    int32_t (*barrier)(const struct ls_strategy_host *host, uint32_t replica);
    // Starts a thread that calls `run`. When `run` returns anything but LS_OK or LS_ABORTED, the
    // host logs it and the run ends. All threads must be joined before the strategy's close
    // returns. [main thread]
    int32_t (*start)(const struct ls_strategy_host *host, const char *name,
                     int32_t (*run)(void *context), void *context, struct ls_strategy_thread **out);
    // Waits for the end of the thread, and returns what `run` returned. LS_PEER_LOST: it has not
    // ended within the deadline. [main thread]
    int32_t (*join)(const struct ls_strategy_host *host, struct ls_strategy_thread *thread);
};

// For the report and the timeline.
struct ls_strategy_report {
    uint32_t struct_size;
    uint32_t reserved;
    // Adds bytes that this replica has sent in the step under way.
    void (*count_bytes)(const struct ls_strategy_host *host, uint32_t replica, uint64_t bytes);
    // This replica has waited from `since_ns` (of host->clock_ns) until now; `whom` says for what
    // (enum ls_strategy_wait). The barrier and the waits of collectives call it themselves.
    void (*waited)(const struct ls_strategy_host *host, uint32_t replica, uint32_t whom,
                   uint64_t since_ns);
    // A value for the report under `name` ("staleness.lead.histogram"): one number, or with `list`
    // 1 a list of `count` numbers. Only in report_metrics. [main thread]
    void (*metric)(const struct ls_strategy_host *host, const char *name, const double *values,
                   uint64_t count, uint32_t list);
};

// What the host offers a strategy.
struct ls_strategy_host {
    uint32_t struct_size;
    uint32_t replicas; // of this worker
    uint32_t first_rank; // of this worker
    uint32_t world; // ranks of the whole job
    uint32_t bucket_count; // buckets of the flat buffer
    uint32_t variable_count; // variables of the model
    uint64_t flat_count; // floats of a flat buffer, padding included; the same on all replicas
    uint64_t trained_first; // floats before this one are statistics: gradients begin here
    uint64_t deadline_ns; // the longest that anything may wait for a peer
    void *context; // the host's own
    const struct ls_host *host; // log, fail, options, ...
    // The tables of calls, each described at its struct:
    const struct ls_strategy_layout *layout;
    const struct ls_strategy_collectives *collectives;
    const struct ls_strategy_step *step;
    const struct ls_strategy_memory *memory;
    const struct ls_strategy_stores *stores;
    const struct ls_strategy_threads *threads;
    const struct ls_strategy_endpoints *endpoints;
    const struct ls_strategy_report *report;
    const struct ls_transport_interface *transport; // NULL without needs_transport
    uint32_t norms; // enum ls_strategy_norms: what the optimizer of this run needs
    uint32_t reserved;
    const struct ls_strategy_channels *channels; // NULL: no server is a process of its own
    uint32_t frozen_buckets; // behind the `bucket_count` others
    uint32_t reserved_end;
    uint32_t elastic; // 1: workers may be lost or come, and the others go on
    uint32_t reserved_last;
};

// ---- The plugin's table ----

enum ls_strategy_divisor {
    LS_DIVISOR_GLOBAL = 1, // gradients are divided by the examples of the global batch
    LS_DIVISOR_OWN = 2, // by the replica's own examples (asynchronous steps)
    // The same in steps that all replicas make together, each for itself (local steps). The sums of
    // the step are those of the global batch all the same.
    LS_DIVISOR_SHARE = 3,
};

// When the parameters of all replicas are equal.
enum ls_replica_equality {
    LS_EQUAL_EVERY_STEP = 1, // bit for bit, after each step
    LS_EQUAL_AT_SYNCHRONISE = 2, // after `synchronise`
};

// What the host has to know of a strategy.
struct ls_strategy_traits {
    uint32_t struct_size;
    uint32_t divisor; // enum ls_strategy_divisor
    uint32_t equality; // enum ls_replica_equality
    // 1: `lost` may be called. Only with LS_DIVISOR_OWN: a step that all replicas make together
    // cannot do without one of them.
    uint32_t survives;
    // 1: in every step the hooks make the same calls of the host, and only those that put work on a
    // device's stream (all_reduce_start, all_reduce_wait, check_step, update); begin_step and
    // parameters_needed are NULL. The host may then record a step once and replay it without
    // calling them, if the collective is capturable, too; and it need not wait for the sums.
    uint32_t capturable;
};

// The table of a strategy plugin.
struct ls_strategy_interface {
    uint32_t struct_size;
    uint32_t maximum_replicas; // of the whole job; 0: any number
    uint64_t state_bytes; // of struct ls_strategy
    struct ls_strategy_traits traits; // its struct_size, too
    uint32_t needs_collective; // 1: uses `collectives`, so a collective must be chosen
    uint32_t needs_transport; // 1: calls endpoints->open, so a transport must be chosen
    // enum ls_strategy_norms: those whose rules the strategy follows. A run whose optimizer needs
    // others is refused by name; `open` may refuse (LS_USAGE) what its options rule out.
    uint32_t norms;

    // Fills in `strategy`, which is zeroed. When it fails, `close` is not called.
    int32_t (*open)(const struct ls_strategy_host *host, struct ls_strategy *strategy);
    // Optional. Releases what the strategy has taken; never its own memory.
    void (*close)(struct ls_strategy *strategy);
    // Optional. Changes the traits above if they depend on the instance's options.
    void (*find_traits)(struct ls_strategy *strategy, struct ls_strategy_traits *traits);
    // Optional. Says which ranges of `bucket` rank `rank` holds (sharding.h), from ranks and layout
    // alone. NULL: every rank holds everything.
    void (*placement)(struct ls_strategy *strategy, uint32_t rank, uint32_t bucket,
                      struct ls_strategy_placement *out);

    // Makes the first parameters equal on all ranks.
    int32_t (*initialize_parameters)(struct ls_strategy *strategy, uint32_t replica);
    // Optional. Makes parameters current before forward. NULL: they always are.
    int32_t (*begin_step)(struct ls_strategy *strategy, uint32_t replica);
    // Optional. Forward is about to read parameters of the bucket for the first time in this step;
    // usually the last bucket comes first. The host may call it for the buckets that follow before
    // forward reads this one. Where ranks hold parts of parameters: before each pass, forward or
    // backward, in training and without, that reads the bucket after another has been in its place.
    int32_t (*parameters_needed)(struct ls_strategy *strategy, uint32_t replica, uint32_t bucket);
    // The gradients of this replica in the bucket are complete. Called in the order of the buckets,
    // while backward of earlier layers still runs; must not wait for other replicas. With
    // --reproducible the host has added them before, and the sums of the step: all replicas have
    // the result, but where the strategy adds floats without a collective those of rank 0 alone,
    // and the others zeros.
    int32_t (*gradient_ready)(struct ls_strategy *strategy, uint32_t replica, uint32_t bucket);
    // All buckets were ready. Returns when the parameters are updated.
    int32_t (*end_step)(struct ls_strategy *strategy, uint32_t replica);
    // Optional. Called before evaluation, checkpoints and the end, for all replicas but lost ones,
    // when all of them have ended their steps. NULL: nothing to do.
    int32_t (*synchronise)(struct ls_strategy *strategy, uint32_t replica);

    // Optional. A step of `replica` failed: it makes no more steps, and the other replicas go on
    // and train its examples. Takes back what the replica has under way. No hook is called for the
    // replica any more, and barriers already do not wait for it. Not called after LS_PEER_LOST,
    // which means that another replica is late or lost, and ends the run. NULL: the failure of a
    // replica ends the run. [replica thread]
    int32_t (*lost)(struct ls_strategy *strategy, uint32_t replica);
    // Optional. The replica makes no step for now, because it has no examples left or the user ends
    // the run, while others may be in one: they must not wait for its next step. It goes on with
    // begin_step if another replica is lost, else with synchronise. Only with LS_DIVISOR_OWN, where
    // replicas may make different numbers of steps, and with `rounds`, after the last step of a row
    // on all replicas: what they have under way together ends here, as one of them alone may be
    // asked for its weights then. NULL: no replica ever waits for the next step of another.
    // [replica thread]
    int32_t (*rest)(struct ls_strategy *strategy, uint32_t replica);
    // Optional. Calls report->metric.
    void (*report_metrics)(struct ls_strategy *strategy);

    // 1: all replicas must be in one process, because the strategy passes values through memory of
    // its own, or through the host's stores, barrier or threads; a training of several workers is
    // refused by name. 0: the ranks may be spread over workers, as collectives and endpoints allow.
    uint32_t all_here;
    uint32_t reserved; // 0
    // Optional. All that a server process of this strategy does (servers.h), until the training is
    // over; no other hook is called there. LS_PEER_LOST: no worker was there for the deadline.
    // NULL: servers that are processes are refused. [main thread]
    int32_t (*serve)(const struct ls_server_host *host);
    // Optional, where ranks hold parts of gradients (sharding.h): backward is about to write the
    // gradients of another bucket where those of `bucket` are, which were ready before. Returns when
    // what was begun with them has ended. NULL: nothing is under way when gradient_ready returns.
    // Not called where a filter has taken them (filter.h): then nobody needs them there.
    int32_t (*gradient_finish)(struct ls_strategy *strategy, uint32_t replica, uint32_t bucket);
    // Optional, where ranks hold parts of parameters: nobody reads any more what is where the
    // parameters of `bucket` come to be, and parameters_needed is going to be called for it: what
    // brings them may begin. Must not wait. All ranks call this, parameters_needed and
    // gradient_ready in ways that begin the same in the same order.
    int32_t (*parameters_ahead)(struct ls_strategy *strategy, uint32_t replica, uint32_t bucket);

    // 1: replicas have weights of their own between rounds (rounds.h). With LS_DIVISOR_SHARE and
    // LS_EQUAL_AT_SYNCHRONISE.
    uint32_t rounds;
    uint32_t reserved_too; // 0
    // Optional, with `rounds`: the workers of an elastic run have changed, and the replica is going
    // to make the next step (rounds.h). NULL: `rounds` with --elastic is refused. [replica thread]
    int32_t (*workers_changed)(struct ls_strategy *strategy, uint32_t replica,
                               const struct ls_round_change *change);
};

// An option of a strategy with this name, an integer, is how many bytes a bucket has at most, unless
// a single variable has more.
#define LS_BUCKET_OPTION "bucket"

#ifdef __cplusplus
}
#endif

#endif
