// SPDX-License-Identifier: Apache-2.0
// Drives a strategy plugin: calls its hooks at the right places of a step, and is the host that its
// table promises (collectives per bucket, check_step, update). One a worker. [main thread, but
// where said]
#ifndef LS_STRATEGY_DRIVER_H
#define LS_STRATEGY_DRIVER_H

#include "core/cluster/cluster.h"
#include "core/collective/communicator.h"
#include "core/collective/tuner.h"
#include "core/plugin/strategy.h"
#include "core/replica/replica.h"
#include "core/strategy/channels.h"

#include <stdatomic.h>

// A plugin as the loader opened it.
struct ls_driver_plugin {
    const struct ls_plugin *plugin; // NULL: none
    const struct ls_host *host;
    const void *interface; // in the size of our headers
    const char *text; // as a command line names it; NULL: by its name
};

// What a replica is before it has buffers. All of it is borrowed.
struct ls_driver_part {
    struct ls_device *device;
    const char *device_name;
    const struct ls_parameter_plan *plan; // the layout of the flat buffers
    const struct ls_buckets *buckets; // the same on all replicas
    uint32_t count_slots; // of metrics
};

static inline struct ls_driver_part ls_driver_part_of(const struct ls_replica *replica)
{
    return (struct ls_driver_part){.device = ls_replica_device(replica),
                                   .device_name = ls_replica_device_name(replica),
                                   .plan = ls_replica_plan(replica),
                                   .buckets = ls_replica_buckets(replica),
                                   .count_slots = ls_replica_count_slots(replica)};
}

struct ls_driver_options {
    struct ls_driver_plugin strategy, collective, transport;
    struct ls_driver_plugin filter; // that sums gradients with fewer bytes; none: nothing does
    struct ls_tuner *tuner; // that measures on the communicators before the first plan; NULL: none
    uint32_t wire; // LS_BF16 or LS_F16: what gradients travel as; 0: as they are
    // Logical shards of a batch: their sums are made in integers, with the same bits for any number
    // of replicas. 0: none.
    uint32_t shards;
    uint64_t deadline_ns;
    struct ls_cluster *cluster; // borrowed
    const struct ls_surroundings *around; // what collectives are told of its ranks; NULL: nothing
    // Of the drivers that the workers have opened in this generation of the cluster, in the same
    // order: part of the names of communicators.
    uint32_t number;
    struct ls_cluster_endpoints *exchange; // of its ranks; borrowed. NULL: one worker
    const struct ls_driver_part *parts; // one a replica of this worker; read while opening only
    uint32_t threads; // of a replica
    // Steps are made as a whole, because workers may be lost: updates wait until the strategy has
    // ended the step, so that a replica whose step failed has all parameters as they were before
    // it, and what metrics count is added up with the sums of the step.
    bool whole_steps;
    bool forward; // nothing is trained: the strategy brings parameters, and there are no gradients
    const struct ls_optimizer *optimizer; // of all replicas; read while opening only. NULL: none
    uint64_t seed; // of the training, for optimizers that draw random numbers
    uint64_t steps_before; // of the optimizer, that the states have had at ls_driver_attach
    // A device whose memory is the host's, for variables that live there; NULL: none. [main thread]
    enum ls_status (*store_device)(void *context, struct ls_driver_plugin *out);
    // What adds up totals (core/graph/program.h) where the strategy has no collective:
    // `collective`, and `transport` where it has none either. [main thread]
    enum ls_status (*total_plugins)(void *context, struct ls_driver_plugin *collective,
                                    struct ls_driver_plugin *transport);
    const struct ls_channels_options *channels; // NULL: no server is a process of its own
    const char *agreement; // with them: what else all workers must have alike; read while opening
    void *context;
};

// What one step of one replica took and found. Where the device works on while its thread does, the
// sums are found some steps later.
struct ls_step_result {
    uint64_t step; // whose sums these are; 0: none yet
    float sums[LS_SUMS]; // of the global batch
    bool stop; // some rank asked to stop after `step`
    bool skipped; // by the loss scale, as gradients were not finite
    // Of the step under way.
    uint64_t examples; // of the replica's share
    uint64_t compute_ns, update_ns, communication_ns, exposed_ns;
    uint64_t waited_ns; // for the device, to look at the sums of an earlier one
};

struct ls_driver;

// A driver's life:
//   ls_driver_open        opens communicators and the strategy, which sees ranks and layout
//   ls_driver_placement   says what each replica must hold; the caller allocates that, the
//                         gradients perhaps in memory of ls_driver_take_memory
//   ls_driver_attach      the replicas have buffers, and the weights to begin with
//   ls_driver_initialize_parameters   on every replica's thread; then steps, synchronise, rest, ...
//   ls_driver_close       before the replicas lose their buffers
LS_STATUS ls_driver_open(const struct ls_driver_options *options, struct ls_driver **out);

// The ranges of a bucket that a rank holds, in floats of the flat buffers. LS_FAILED (logged): the
// strategy answers what is not in the bucket, or not what sharding.h allows. [main thread]
LS_STATUS ls_driver_placement(struct ls_driver *driver, uint32_t rank, uint32_t bucket,
                              struct ls_strategy_placement *out);

// What ranks of the job hold: the same on every worker.
struct ls_driver_held {
    bool placed; // states are where the strategy says; false: on all ranks, or in stores
    bool spread[LS_HELD_KINDS]; // and a rank holds less than all of a bucket's
};
// LS_FAILED as of ls_driver_placement; LS_USAGE or LS_UNAVAILABLE, logged: this run cannot have parts
// of gradients. [main thread]
LS_STATUS ls_driver_find_held(struct ls_driver *driver, struct ls_driver_held *out);

// Whether some range of gradients travels in the wire's number format, after
// ls_driver_initialize_parameters. [main thread]
bool ls_driver_rounds_ranges(const struct ls_driver *driver);

// Memory for LS_BUFFER_REDUCED of a replica in which the strategy's collective is faster, until
// ls_driver_close; nowhere: there is none. All replicas of the job, between ls_driver_open and
// ls_driver_attach. [replica thread]
LS_STATUS ls_driver_take_memory(struct ls_driver *driver, uint32_t replica, struct ls_memory *out);

// Makes the plans of the collectives on the replicas' buffers, and fills stores with the parameters
// of replica 0 and with its optimizer state; where it has none, with zeros until
// ls_driver_fill_stores. `replicas`: one a replica of this worker; borrowed until the driver is
// closed. [main thread, while all replicas rest]
LS_STATUS ls_driver_attach(struct ls_driver *driver, struct ls_replica *const *replicas);

// Stores: variables that live on the host with their optimizer state, instead of on the replicas.
// Both calls copy the ranges that stores hold, between `buffer` of the stores (LS_BUFFER_PARAMETERS
// or LS_BUFFER_STATE + k) and `flat`, any flat buffer of `replica` (ls_replica_memory). Not while
// steps run. [thread of that replica; ls_driver_attach fills them on the main thread while it
// rests]
bool ls_driver_has_stores(const struct ls_driver *driver);
LS_STATUS ls_driver_fill_stores(struct ls_driver *driver, uint32_t replica, uint32_t buffer,
                                uint32_t flat);
LS_STATUS ls_driver_read_stores(struct ls_driver *driver, uint32_t replica, uint32_t buffer,
                                uint32_t flat);
// How many steps of this training this worker had made before it was started again, as servers have
// it; 0: none. After ls_driver_initialize_parameters.
uint64_t ls_driver_steps_gone(const struct ls_driver *driver);

// Whether each replica counts what metrics have counted on all replicas of all workers: the counts
// of a step then travel with its sums, so that whoever has made the step has them, whoever is lost.
bool ls_driver_adds_counts(const struct ls_driver *driver);

// Where servers add up what the report needs of the steps of all workers: an epoch begins, whose
// first step has this number. [main thread, while the replicas rest]
void ls_driver_begin_epoch(struct ls_driver *driver, uint64_t first_step);
// The sums of the epoch that has begun (LS_SUMS and what metrics count), over the steps of all
// workers; NULL: nobody has told. After ls_driver_synchronise. [main thread]
const double *ls_driver_tally(const struct ls_driver *driver);

// Rounds (core/plugin/rounds.h): what the host keeps for a replica beside its flat buffers.
enum ls_round_memory {
    LS_ROUND_WEIGHTS, // of the last round; after ls_driver_synchronise the replica's own
    LS_ROUND_MOMENTUM,
    LS_ROUND_DIFFERENCE,
    LS_ROUND_OWN_NOTES,
    LS_ROUND_MEMORIES
};
bool ls_driver_has_rounds(const struct ls_driver *driver); // [any thread]
// In host memory: reduced_bytes of the plan, or LS_ROUND_NOTES floats. NULL: there are no rounds.
// While all replicas rest. [any thread]
float *ls_driver_round_memory(const struct ls_driver *driver, uint32_t replica,
                              enum ls_round_memory memory);
// The parameters of the replica begin a round: they are the weights of the last one, too, and the
// strategy's notes are zeros. Nothing without rounds. [replica thread]
void ls_driver_begin_round(struct ls_driver *driver, uint32_t replica);
// After another change of workers, with what replicas have of their own in place again; `notes`: of
// all ranks. Afterwards the weights of the last round are where parameters are. [replica thread]
struct ls_round_change;
LS_STATUS ls_driver_workers_changed(struct ls_driver *driver, uint32_t replica,
                                    const struct ls_round_change *change);
// What ls_driver_synchronise does at its end, by itself: after a step has failed. [replica thread]
LS_STATUS ls_driver_show_last_round(struct ls_driver *driver, uint32_t replica);

// Takes NULL; replicas must have left their steps. False (logged): a thread of the strategy's
// hangs, and what it may use was not freed; that is, nothing that `options` had may be freed.
bool ls_driver_close(struct ls_driver *driver);

// Once, before the first step, on every replica: equal parameters everywhere. [replica thread]
LS_STATUS ls_driver_initialize_parameters(struct ls_driver *driver, uint32_t replica);

// One step. LS_FAILED when the loss is not finite; ls_driver_explain then says why. Then no update
// was made, of this step or of those that were begun since. [replica thread]
LS_STATUS ls_driver_step(struct ls_driver *driver, uint32_t replica,
                         const struct ls_replica_batch *batch, uint64_t step, double learning_rate,
                         bool stop, struct ls_step_result *out);
// The same in three calls, in this order: backward makes gradients and has the strategy begin to
// reduce them, apply makes the updates. No other part of the step may be left out. [replica thread]
LS_STATUS ls_driver_forward(struct ls_driver *driver, uint32_t replica,
                            const struct ls_replica_batch *batch, uint64_t step,
                            double learning_rate);
LS_STATUS ls_driver_backward(struct ls_driver *driver, uint32_t replica);
LS_STATUS ls_driver_apply(struct ls_driver *driver, uint32_t replica, struct ls_step_result *out);
// Whether a loss that is not finite ends the training although there is a loss scale, which would
// skip the step; false at first. [main thread, while all replicas rest]
void ls_driver_end_at_nan(struct ls_driver *driver, bool ends);
// The number of the next update, from 1, by which the learning rate goes: of a training whose steps
// were `step - 1` so far, that of the step, unless a loss scale has skipped some. [replica thread,
// or main thread while it rests]
uint64_t ls_driver_next_update(const struct ls_driver *driver, uint32_t replica, uint64_t step);
// The sums of the next step that are still on their way; `out->step` is 0 when there are none. As
// long as it is not, after the last of a row of steps, before anything else is done. [replica
// thread]
LS_STATUS ls_driver_collect(struct ls_driver *driver, uint32_t replica, struct ls_step_result *out);
// As ls_replica_evaluate and ls_replica_predict. Where ranks hold parts of parameters, all of them
// make the same calls in the same order, also for shares of nothing. [replica thread]
LS_STATUS ls_driver_evaluate(struct ls_driver *driver, uint32_t replica,
                             const struct ls_replica_batch *batch, double *sums);
LS_STATUS ls_driver_predict(struct ls_driver *driver, uint32_t replica,
                            const struct ls_replica_batch *batch, float *out);
// Before evaluation, weights are read or the run ends. [replica thread]
LS_STATUS ls_driver_synchronise(struct ls_driver *driver, uint32_t replica);
// It has nothing to train for now, while others have. [replica thread]
LS_STATUS ls_driver_rest(struct ls_driver *driver, uint32_t replica);

// After a failed step, when all replicas have left it and wait: names the first value that is not
// finite, if that was the reason; once. Returns the number of the first step whose loss was not
// finite, which changed nothing; 0: there was none. The strategy's threads have ended then, and
// what is in stores stays as it is.
uint64_t ls_driver_explain(struct ls_driver *driver);

// Wakes everybody who waits for a peer. [any thread]
void ls_driver_abort(struct ls_driver *driver);

bool ls_driver_aborted(const struct ls_driver *driver); // [any thread]
// The rank that the transport has lost; false: it knows of none. [any thread]
bool ls_driver_lost(const struct ls_driver *driver, uint32_t *rank);
// Whether a step failed because its loss was not finite, as all ranks have found. [any thread]
bool ls_driver_not_finite(const struct ls_driver *driver);

// Whether replicas need not wait for each other: each goes through its own steps, whose sums are
// those of its own share. [any thread]
bool ls_driver_asynchronous(const struct ls_driver *driver);

// Whether the others may go on when one replica fails. [any thread]
bool ls_driver_survives(const struct ls_driver *driver);
// After a step of this replica failed with `status`: true when the others go on without it; then it
// makes no more steps and no barrier waits for it. Not after an abort, a deadline (somebody else's
// fault), a loss that is not finite, or when it is the last. [replica thread]
bool ls_driver_survive(struct ls_driver *driver, uint32_t replica, enum ls_status status);
bool ls_driver_is_lost(const struct ls_driver *driver, uint32_t replica); // [any thread]

// How many steps of the optimizer that state has had, where most; 0 without stores. Before the
// first step and after the last.
uint64_t ls_driver_store_steps(const struct ls_driver *driver);

// For the report. How the schedules of the collective were checked: "verified", "known-answer",
// "none". `seconds` (may be NULL): what that took.
const char *ls_driver_schedule_check(const struct ls_driver *driver, double *seconds);

// With a filter: its shared memory, of which all ranks have the same bits: that of all ranges, one
// after the other. 0 bytes: there is none. Copied while the replicas rest. [main thread]
uint64_t ls_driver_shared_bytes(const struct ls_driver *driver);
// A hash of the filter, its options and what it filters: with another one the bytes mean something
// else.
LS_STATUS ls_driver_shared_key(const struct ls_driver *driver, uint64_t *out);
void ls_driver_read_shared(const struct ls_driver *driver, uint8_t *out);
void ls_driver_set_shared(struct ls_driver *driver, uint32_t replica, const uint8_t *values);

// With a filter: what a replica still owes to the sums of gradients, as many floats as a flat
// buffer of gradients has, in its order; 0: there is none. Copied while the replicas rest. [main
// thread]
uint64_t ls_driver_residual_count(const struct ls_driver *driver);
void ls_driver_read_residual(const struct ls_driver *driver, uint32_t replica, float *out);
void ls_driver_set_residual(struct ls_driver *driver, uint32_t replica, const float *values);

// For the report. Bytes that the filter of a replica needs beside its buffers; 0: there is none.
uint64_t ls_driver_filter_memory(const struct ls_driver *driver);

// The last step whose updates the replica has made; before the first one, the steps that were made
// before the driver was opened. [main thread, while the replicas rest]
uint64_t ls_driver_completed(const struct ls_driver *driver, uint32_t replica);

// For the report. Bytes that rank 0 sends in a step, padding included; where the strategy counts
// them, their mean; where a filter begins after some steps, those of the last step. Totals do not
// count.
uint64_t ls_driver_bytes_per_step(const struct ls_driver *driver);

// For the report: what adds up totals of all replicas in a step.
struct ls_driver_totals {
    const char *collective; // NULL: nothing is added up
    const char *transport; // NULL: the collective needs none
    uint32_t count; // in each pass
    uint64_t bytes; // that rank 0 sends in each pass
};
struct ls_driver_totals ls_driver_totals(const struct ls_driver *driver);

// What the strategy says of itself: "staleness.lead.max". Borrowed until the driver is closed.
// After the last step.
struct ls_driver_metric {
    char *name;
    double *values;
    uint64_t count;
    bool list; // else one number
};
const struct ls_driver_metric *ls_driver_describe(struct ls_driver *driver, size_t *count);

#endif
