// SPDX-License-Identifier: Apache-2.0
// What the files of core/strategy share; beside them only tests of its insides include it.
#ifndef LS_STRATEGY_INTERNAL_H
#define LS_STRATEGY_INTERNAL_H

#include "core/strategy/driver.h"
#include "core/strategy/stores.h"

#include <pthread.h>

// What the driver keeps for one replica. Only that replica's thread touches it.
struct ls_driver_member {
    struct ls_driver *driver;
    uint32_t index; // of the replica, in this worker
    struct ls_replica *replica; // NULL until the driver is attached
    struct ls_communicator *communicator; // NULL: no collective
    struct ls_communicator *total_communicator; // NULL: no totals
    // One a bucket: of its gradients, or of integers. NULL: all of it is in `whole`, or one rank.
    struct ls_collective_plan **reduce;
    // With a wire, one a bucket: the sums of the step and the moving statistics at its front, which
    // travel as float32, because no rounding may change how many examples there were. NULL: it has
    // none.
    struct ls_collective_plan **whole;
    // One a bucket, NULL: it is reduced as it is. NULL: no filter sums whole buckets.
    struct ls_filtered **filtered;
    struct ls_filtered *filtered_ranges; // a list of all that a filter sums, these among them
    bool filters; // the filter works in the step under way, or did in the last one
    struct ls_memory halves; // of LS_BUFFER_REDUCED, that travel; nowhere: plans have their own
    struct ls_collective_plan **broadcast; // one a root that was asked for
    struct ls_collective_plan **totals; // one a total of the plan; NULL: none are added up
    struct ls_memory total_places; // with logical shards: one a rank, of the largest total
    struct ls_collective_plan *magnitudes; // of logical shards; NULL: there are none, or one rank
    struct ls_collective_plan *counts; // what metrics count; NULL: each replica has its own
    float step_stats[LS_STEP_STATS]; // the sums that were checked
    uint32_t *late; // buckets to be updated when the step has ended, where updates come last
    uint32_t late_count;
    bool asked; // the strategy has asked for sums of buckets, or for any that are there already
    bool rounds; // a range of gradients travels in the wire's number format
    bool touched; // parameters changed after the shadows were made
    // Of rounds (rounds.c), by enum ls_round_memory; NULL: the strategy has none.
    float *round[LS_ROUND_MEMORIES];
    bool shows_round; // parameters and those of the last round have changed places
    bool not_finite; // the sums of its last step were not
    uint64_t most_examples, least_examples; // so far, of a global batch and of a share of its own
    bool checked_late; // the sums that the strategy checked are looked at later
    atomic_bool lost;
    uint64_t completed; // the last step whose updates were made
    // Of the step under way.
    uint64_t step;
    double learning_rate;
    struct ls_replica_batch batch; // its share, divided as the strategy says
    struct ls_pass pass; // over the block under way
    uint32_t from, to; // of its program, the steps under way
    uint32_t bucket; // that they complete; bucket_count: none
    // Of the walk of the pass through slots of parameters: entries that are begun, that are there,
    // and buckets of gradients that are ready.
    uint32_t walk_started, walk_there, walk_ready;
    uint32_t *in_slot; // by slot of gradients: the bucket that was written last; bucket_count: none
    uint32_t total; // the next one that all replicas add up
    bool forwarded; // the forward pass was made by itself
    bool under_way; // the strategy has begun to reduce
    bool recording; // what is launched is recorded, and does not run
    uint64_t compute_ns; // in forward and backward kernels
    uint64_t update_ns_before; // of the replica, in earlier steps
    uint64_t hook_ns; // in hooks, but for updates
    uint64_t own_update_ns; // in updates of stores and ranges, which the replica knows nothing of
    uint64_t bytes; // that the strategy counted, and of its ranges
    // Of all steps.
    uint64_t all_bytes, all_steps;
    struct ls_strategy_collective *collectives; // on ranges: a list
    struct ls_range_kernel *kernels; // on ranges: a list
    struct ls_range_updater *updaters; // of ranges: a list
    // Where ranks hold parts and the optimizer looks at all gradients together (norms.c):
    struct ls_collective_plan *norm; // adds the measures of all ranks; NULL: each measures all
    struct ls_range_updater **measured; // of the step under way, one a bucket; NULL: an empty range
    uint32_t measured_count;
    uint64_t range_measures; // of these
};

// A place where the replicas wait for each other.
struct ls_barrier {
    const char *name; // of the strategy
    uint32_t first_rank; // of this worker, for messages
    pthread_mutex_t lock;
    _Atomic uint32_t generation; // rounds of it that have ended; waited on
    atomic_bool aborted;
    bool *came, *gone; // one a replica
    uint32_t count, came_count, gone_count;
    uint32_t spins;
    bool said; // whom all wait for
};

// `name`: the strategy's, borrowed.
LS_STATUS ls_barrier_init(struct ls_barrier *barrier, const char *name, uint32_t first_rank,
                          uint32_t count);
void ls_barrier_finish(struct ls_barrier *barrier);
// LS_ABORTED; LS_PEER_LOST after the deadline, which the first to see it logs.
LS_STATUS ls_barrier_wait(struct ls_barrier *barrier, uint32_t replica, uint64_t deadline_ns);
// Nobody waits for it any more.
void ls_barrier_leave(struct ls_barrier *barrier, uint32_t replica);
void ls_barrier_abort(struct ls_barrier *barrier);

struct ls_driver {
    struct ls_strategy_host table;
    struct ls_driver_options options;
    struct ls_optimizer optimizer; // zeroed: nothing is updated
    const struct ls_strategy_interface *ops;
    struct ls_strategy_traits traits;
    struct ls_strategy *state; // the strategy's memory
    struct ls_strategy *strategy; // the same; NULL: not open
    bool opened; // the strategy's open has returned
    struct ls_driver_member *members;
    struct ls_communicator **communicators; // NULL: no collective
    struct ls_communicator **total_communicators; // NULL: no totals, or one rank
    struct ls_communicator **integer_communicators; // NULL: no logical shards, or others add them
    const char *total_collective, *total_transport; // what adds them up; NULL: nothing, none
    uint32_t first_rank, count, world; // of the cluster; `count` replicas are this worker's
    const struct ls_parameter_plan *plan; // of replica 0: the layout of all of them
    const struct ls_buckets *buckets; // likewise
    uint32_t bucket_count;
    bool on_host; // replicas compute in host memory, on their threads
    atomic_bool not_finite; // the loss of some step was not
    bool ends_at_nan; // where a loss scale would skip the step
    atomic_bool skipped_too_many; // that is what `not_finite` is about
    atomic_bool wrong_sums; // those of some step were impossible, and that was said
    atomic_bool filter_refused; // the strategy sums in a way that no filter does; that was said
    _Atomic uint64_t not_finite_step;
    atomic_bool aborted;
    _Atomic int32_t silent; // see ls_driver_note_silent
    uint32_t reasons; // for failures, that were known when the driver was opened
    _Atomic int32_t failure; // of a thread of the strategy's, or of a call that cannot answer it
    bool hangs; // a thread of the strategy's was given up
    struct ls_barrier barrier;

    struct ls_stores stores;
    pthread_mutex_t lock; // of what follows
    struct ls_strategy_thread *threads; // a list
    struct ls_transport **endpoints; // NULL: none were opened
    uint32_t endpoint_count;
    struct ls_driver_metric *metrics;
    size_t metric_count;
    bool reporting;
    struct ls_driver_channels *channels; // to server processes; NULL: there are none
    char agreement[256]; // of the workers, for servers
    _Atomic uint64_t steps_gone; // before this process was started again
    uint64_t epoch, tally_epoch; // under way; that `tally` is of
    double *tally; // over all workers, as servers have it; NULL: there are none
    bool defers; // devices work on while the host does
    bool capturable; // a step may be recorded whole,
    bool records_alike; // and only where the shares of all replicas are equal
};

static inline struct ls_driver *ls_driver_of(const struct ls_strategy_host *table)
{
    return table->context;
}

// Whose error it is, for the log.
static inline const char *ls_driver_name(const struct ls_driver *driver)
{
    return driver->options.strategy.plugin ? driver->options.strategy.plugin->name : "strategy";
}

// ---- members.c ----

// An answer of the strategy without a reason: where no other reason is given by the end,
// ls_driver_explain says it.
void ls_driver_note_silent(struct ls_driver *driver, int32_t status);
// What a replica did wrong in a call that answers nothing ends the run all the same.
void ls_driver_fail(struct ls_driver *driver, enum ls_status status);

// The member whose step this thread runs; NULL: none.
struct ls_driver_member *ls_driver_current(void);
void ls_driver_set_current(struct ls_driver_member *member);
// A plugin may name a replica that does not exist, or not yet. NULL, logged.
struct ls_driver_member *ls_driver_find_member(const struct ls_strategy_host *table,
                                               const char *call, uint32_t replica);
// The same for calls that return nothing: ends the run.
struct ls_driver_member *ls_driver_need_member(const struct ls_strategy_host *table,
                                               const char *call, uint32_t replica);

// ---- communicators.c: each does nothing where there are none ----
LS_STATUS ls_driver_open_gradients(struct ls_driver *driver);
LS_STATUS ls_driver_attach_gradients(struct ls_driver *driver);
// Where the halves of a range of LS_BUFFER_REDUCED are.
struct ls_memory ls_driver_halves(const struct ls_driver_member *member, struct ls_memory reduced);
// When the strategy is open. LS_USAGE, logged, where its replicas do not make their steps together.
LS_STATUS ls_driver_open_totals(struct ls_driver *driver);
LS_STATUS ls_driver_attach_totals(struct ls_driver *driver);
// Nothing is reduced by a collective that was not checked. [replica thread]
LS_STATUS ls_driver_try_collectives(const struct ls_driver_member *member);
// All replicas have left their steps: ends what they had under way together, or aborts it.
void ls_driver_end_communicators(struct ls_driver *driver);
void ls_driver_close_totals(struct ls_driver *driver);
// Total `number` becomes the sum over all replicas. What is put on the device's own stream
// afterwards sees it. [replica thread]
LS_STATUS ls_driver_add_total(struct ls_driver_member *member, uint32_t number);
LS_STATUS ls_driver_open_communicators(const struct ls_driver *driver,
                                       const struct ls_driver_plugin *collective,
                                       const struct ls_driver_plugin *transport, const char *name,
                                       bool on_host, struct ls_communicator ***out);

// ---- reproducible.c: each does nothing where there are no logical shards ----
// LS_USAGE or LS_UNAVAILABLE, logged: what would not have the same bits. When the strategy is open.
LS_STATUS ls_driver_check_reproducible(const struct ls_driver *driver);
LS_STATUS ls_driver_open_integers(struct ls_driver *driver);
LS_STATUS ls_driver_attach_integers(struct ls_driver *driver);
// The sums of the step become those of all shards. [replica thread]
LS_STATUS ls_driver_add_shards(struct ls_driver_member *member);
// The strategy has ended the step. LS_USAGE, logged once: it adds gradients in a way of its own.
LS_STATUS ls_driver_check_sums(const struct ls_driver_member *member);
void ls_driver_close_integers(struct ls_driver *driver);

// ---- rounds.c: each does nothing where the strategy has none ----
// LS_USAGE or LS_UNAVAILABLE, logged. When the strategy is open.
LS_STATUS ls_driver_check_rounds(const struct ls_driver *driver);
LS_STATUS ls_driver_attach_rounds(struct ls_driver *driver);
// The weights of the last round are where parameters are, until they are hidden. [replica thread]
void ls_driver_show_round(struct ls_driver_member *member);
void ls_driver_hide_round(struct ls_driver_member *member);
void ls_driver_close_rounds(struct ls_driver_member *member);

// ---- filtered.c: each does nothing where there is no filter, or one rank ----
bool ls_driver_filters(const struct ls_driver *driver);
// LS_USAGE or LS_UNAVAILABLE, logged: what cannot be filtered. When the strategy is open.
LS_STATUS ls_driver_check_filter(const struct ls_driver *driver);
// For strategies that sum whole buckets.
LS_STATUS ls_driver_attach_filter(struct ls_driver *driver, uint32_t replica);
void ls_driver_close_filter(struct ls_driver_member *member);
LS_STATUS ls_driver_try_filter(const struct ls_driver_member *member);
// Whether the filter works for this update of the weights, from 1: it may begin after some.
bool ls_driver_filters_update(const struct ls_driver *driver, uint64_t update);
// Whether some step must reduce as it is what the filter takes later.
bool ls_driver_begins_plain(const struct ls_driver *driver);
// Whether some step must reduce this bucket as it is.
bool ls_driver_reduces_plain(const struct ls_driver_member *member, uint32_t bucket);
// Of a bucket that is filtered in the step under way; NULL: it must be reduced as it is.
struct ls_filtered *ls_driver_filtered(const struct ls_driver_member *member, uint32_t bucket);

// What a filter is to sum.
struct ls_filtered_range {
    uint32_t operation; // LS_ALL_REDUCE; LS_REDUCE_SCATTER: each rank gets its ls_part of the range
    uint32_t bucket; // that it is, where the replica holds parts
    uint64_t first, count; // in floats of LS_BUFFER_REDUCED
    float *values; // where they are when it begins
    bool kept; // the sums go to what the replica holds of `bucket`
    const char *label; // for messages, until it is opened
};
// LS_USAGE, logged once: the strategy does `what`.
LS_STATUS ls_driver_refuse_filter(struct ls_driver *driver, const char *what);
// LS_USAGE, logged once: some of it is in another range that is filtered.
LS_STATUS ls_driver_check_overlap(const struct ls_driver_member *member,
                                  const struct ls_filtered_range *range);
// `*out` stays NULL where the filter takes nothing of it; else it is the member's.
LS_STATUS ls_driver_open_filtered(struct ls_driver_member *member,
                                  const struct ls_filtered_range *range, struct ls_filtered **out);
LS_STATUS ls_driver_try_filtered(const struct ls_filtered *filtered); // as ls_driver_try_filter
uint64_t ls_driver_filtered_bytes(const struct ls_filtered *filtered); // that travel; 0 for NULL
// Begins to sum the values over all ranks, and ends that. [replica thread]
LS_STATUS ls_driver_begin_filtered(const struct ls_driver_member *member,
                                   struct ls_filtered *filtered);
LS_STATUS ls_driver_finish_filtered(const struct ls_driver_member *member,
                                    struct ls_filtered *filtered);
// Whether a filter has taken the gradients of a bucket of which the replica holds a part: nobody
// needs them any more where they were. [replica thread]
bool ls_driver_has_taken(const struct ls_driver_member *member, uint32_t bucket);
// What was finished counts: what the rank owes from now on is what it has not delivered. The second
// is for all at the end of a step, unless a loss scale has skipped it. [replica thread]
void ls_driver_settle_filtered(struct ls_filtered *filtered);
void ls_driver_settle_filter(const struct ls_driver_member *member);

// ---- norms.c ----
// Does nothing where nobody needs them. [main thread]
LS_STATUS ls_driver_attach_norms(struct ls_driver *driver);
// All ranges of the step are known: adds the measures of this rank to those of all others, where
// updates find them; with --reproducible, measures all gradients. `skips`: a loss scale has it that
// there are none. [replica thread]
LS_STATUS ls_driver_add_norms(struct ls_driver *driver, struct ls_driver_member *member,
                              bool *skips);

// ---- step.c ----
// LS_FAILED when the loss of `step` in member->step_stats is not finite.
LS_STATUS ls_driver_judge(struct ls_driver *driver, struct ls_driver_member *member, uint64_t step);

// ---- The host's tables ----

extern const struct ls_strategy_layout ls_driver_layout; // tables.c
extern const struct ls_strategy_collectives ls_driver_collectives;
extern const struct ls_strategy_step ls_driver_step_table;
extern const struct ls_strategy_memory ls_driver_memory;
extern const struct ls_strategy_stores ls_driver_stores; // stores.c
extern const struct ls_strategy_threads ls_driver_threads; // own_threads.c
extern const struct ls_strategy_endpoints ls_driver_endpoints; // point_to_point.c
extern const struct ls_strategy_report ls_driver_report; // driver_metrics.c

void ls_driver_close_ranges(struct ls_driver_member *member);

// Gives stores the values that the replicas begin with, and what updates them.
LS_STATUS ls_driver_attach_stores(struct ls_driver *driver);

// ---- channels.c ----
// Does nothing where no server is a process. After make_table.
LS_STATUS ls_driver_open_channels(struct ls_driver *driver);
void ls_driver_close_channels(struct ls_driver *driver);

// What the strategy left behind when it was closed.
void ls_driver_close_threads(struct ls_driver *driver);
// After an abort: until all threads of the strategy's have ended, as far as they do.
void ls_driver_wait_for_threads(struct ls_driver *driver);
void ls_driver_close_endpoints(struct ls_driver *driver);
void ls_driver_close_metrics(struct ls_driver *driver);

#endif
