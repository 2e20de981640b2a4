// SPDX-License-Identifier: Apache-2.0
// The result of `lockstep compare`, the same model trained under several strategies: plain figures,
// written as JSON, as a table, and as a verdict in words (tools/compare/verdict.h). NaN means "not
// known" everywhere. [main thread]
#ifndef LS_TOOLS_COMPARE_COMPARISON_H
#define LS_TOOLS_COMPARE_COMPARISON_H

#include "core/base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define LS_COMPARISON_NONE SIZE_MAX

enum ls_compared_status {
    LS_COMPARED_DONE,
    LS_COMPARED_UNAVAILABLE, // cannot run on this machine
    LS_COMPARED_FAILED,
    LS_COMPARED_INTERRUPTED,
};

// What runs are held against, and what shows the effect of rounding (tools/compare/yardstick.h).
enum ls_basis {
    LS_BASIS_HALVES, // one device with whole batches; the same in two halves
    LS_BASIS_SHARES, // one device with the shares of the replicas; the same, rounded otherwise
    LS_BASIS_WHOLE, // one device with whole batches; the same with a rounding error more
    LS_BASIS_MIXED, // one device for one replica; for several, no single device computes the same
    LS_BASIS_BITS, // one device with the same logical shards, and rounding does nothing
};

// Losses may differ by this much, relative, before rounding has grown; and by so many times what it
// does: one difference by rounding tells the size of another, not its bound.
#define LS_ROUNDING_MOST 5e-6
#define LS_SPREADS_MOST 10
// The largest relative error of one rounding to `dtype`; of LS_F32, its last bit.
double ls_rounding_of(uint32_t dtype);

// Seconds, medians over the steps of replica 0. Input, compute, exposed communication, update and
// other add up to the step; communication includes the hidden part.
struct ls_compared_times {
    double median, input, compute, communication, exposed_communication, update, device, other;
};

// A range of steps: the means over them, and the position of the last one.
struct ls_compared_point {
    uint64_t step, examples; // since the beginning
    double seconds; // of training, since the beginning
    double loss, accuracy;
    double val_loss, val_accuracy; // where an epoch ends here
};

// What a run computes, held against one device. All but the first make other updates, and are
// judged by what they reach.
enum ls_compared_way {
    LS_WAY_PLAIN, // the same
    LS_WAY_ASYNCHRONOUS, // replicas do not wait for each other
    LS_WAY_ROUNDS, // replicas have weights of their own between rounds (local SGD, DiLoCo)
    LS_WAY_FILTERED, // a filter makes the sums of gradients with fewer bytes (--compress)
};

// What a step of a run would take on a network that is not here (tools/compare/elsewhere.h).
struct ls_compared_elsewhere {
    double step_seconds; // NaN: it was not simulated
    double unfiltered_seconds; // likewise, of a step before its filter begins
    uint64_t unfiltered_steps; // so many; 0: none, or too few to see what a step is
    double work_seconds,
        exchange_seconds; // of it: what the rank does; all exchanges, hidden or not
    double goal_seconds; // until the goal (struct ls_comparison), with the steps before its filter
    uint64_t recorded_steps; // the first ones, that this was made from
    char *reason; // why it was not simulated; NULL: it was, or nobody asked
};

struct ls_compared_run {
    char *strategy; // as the user wrote it, with its filter
    uint32_t workers; // that it ran on
    uint32_t replicas, threads; // replicas of all workers; threads of a replica
    double cores; // that the run can keep busy; on a device with memory of its own: replicas
    uint64_t global_batch;
    enum ls_compared_status status;
    char *reason; // one line; NULL: none
    enum ls_compared_way way;
    uint64_t filter_begins; // after so many updates
    double rate; // examples/s: geometric mean of the processes; without them, median of the rounds
    double rate_low, rate_high; // quartiles of the rounds
    double *round_rates; // of turns, process after process
    size_t round_count;
    double *process_rates; // of timed processes, by block; NaN: it has none
    size_t process_count;
    uint64_t timed_steps; // over all processes
    struct ls_compared_times times;
    // Sent by a rank in a step, the mean over the run, or that of the last one where a filter begins
    // late; of a process; of one of its replicas, with the memory of its device.
    uint64_t bytes_per_step, peak_rss_bytes, replica_bytes;
    double final_loss, final_accuracy; // of the last steps
    double val_loss, val_accuracy; // of the last validation
    // Against the reference, where the global batch is the same: relative for losses, absolute for parameters.
    double loss_deviation, loss_deviation_first_ten, parameter_deviation;
    // With LS_BASIS_SHARES: of the first two losses; and the largest deviation of a loss over what
    // rounding explains by then.
    double loss_deviation_first_two, loss_excess;
    uint32_t reference_shares; // that the reference takes each batch in; 0: it is not compared
    int replicas_equal; // 1, 0; -1: not known
    // With LS_BASIS_BITS, likewise: the losses of all steps and the parameters at the end are those
    // of the reference.
    int same_bits;
    double target_seconds, target_examples; // NaN: not reached
    uint64_t target_step; // likewise; 0: not reached
    uint64_t goal_step; // of the goal; 0: not reached
    struct ls_compared_elsewhere elsewhere;
    struct ls_compared_point *curve;
    size_t curve_count;
    json_t *report; // its own; NULL: none
};

struct ls_compared_option {
    const char *name, *value; // without the dashes; as the user wrote it
};

// The difference in speed of two finished runs, over the blocks in which both were timed.
struct ls_difference {
    size_t a, b; // indices of runs, a < b
    double ratio, low,
        high; // examples/s of a over b, with its 95 % confidence interval; NaN: not known
    double p; // two-sided, corrected for the number of comparisons; NaN: too few blocks
    bool different;
    // If no difference was found: the number of steps to time in each run to detect, in four of five
    // comparisons, a difference as large as `ratio`, or 1 % if that is larger. 0: not known.
    uint64_t needed_steps;
    double needed_percent; // that difference
};

struct ls_comparison {
    const char *status; // "done", "interrupted", "failed"
    const char *model, *dataset, *optimizer; // as the user named them
    bool for_python; // advice is calls of the Python package, not commands
    // The options of all runs that `lockstep train` has too, without those of each run.
    const struct ls_compared_option *options;
    size_t option_count;
    char *device, *hardware; // NULL: not known
    uint32_t workers; // processes that train each run together, but for the reference
    uint64_t seed, global_batch, steps;
    uint32_t shards; // logical ones of a batch (--reproducible); 0: none
    const char *target_metric; // NULL: none
    double target_value;
    const char *network; // that runs were simulated on; NULL: none
    double compute_scale; // how many times as fast its machines compute; NaN: not given
    double compute_seconds; // what forward and backward take there; NaN: not given
    // What all runs that learned have reached, for the time to a loss: the worst of the best
    // losses, means of as many steps as `final_loss`. NaN where there is a target, which is the
    // goal then.
    double goal_loss;
    struct ls_compared_run *runs;
    size_t run_count;
    size_t reference; // index; LS_COMPARISON_NONE: there is none
    bool reference_is_extra; // added because the user did not name it
    struct ls_difference *differences; // of ls_comparison_measure()
    size_t difference_count;
    enum ls_basis basis;
    uint32_t nudge_dtype; // whose rounding the learning rate of the second run is off by; 0: none
    char *shares_failed; // why the reference with the same shares has no result; NULL: it has
    // The effect of rounding alone: the reference compared with itself, computed in another way.
    double rounding_spread, rounding_spread_first_two, rounding_spread_first_ten,
        rounding_spread_parameters;
};

const char *ls_way_text(enum ls_compared_way way); // "plain", "asynchronous", "rounds", "filtered"

void ls_comparison_finish(struct ls_comparison *comparison); // takes a zeroed one

// Compares the speeds of all finished runs, in two families of comparisons: the runs that the user
// named with each other, and the reference, if the user did not name it, with each of them.
// LS_OUT_OF_MEMORY.
LS_STATUS ls_comparison_measure(struct ls_comparison *comparison);
// The difference of two runs, in either order; NULL: they were not compared.
const struct ls_difference *ls_comparison_between(const struct ls_comparison *comparison, size_t a,
                                                  size_t b);

// The object that --report writes and that the page is made from. LS_OUT_OF_MEMORY.
LS_STATUS ls_comparison_json(const struct ls_comparison *comparison, json_t **out);
// Writes that object. LS_FAILED, logged under --report; the file is either complete or unchanged.
LS_STATUS ls_comparison_write(const json_t *comparison, const char *path);

// Tables for people, then the verdict.
LS_STATUS ls_comparison_print(const struct ls_comparison *comparison, FILE *out);

#endif
