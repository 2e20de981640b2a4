// SPDX-License-Identifier: Apache-2.0
// One fit while it runs. [main thread]
#ifndef LS_TRAIN_FIT_H
#define LS_TRAIN_FIT_H

#include "core/report/progress.h"
#include "core/train/callbacks.h"
#include "core/train/checkpoints.h"
#include "core/train/history.h"
#include "core/train/session.h"

struct ls_async_steps;

// What was asked for and agreed on, and what follows from it before the first step.
struct ls_fit_plan {
    enum ls_shuffle shuffle;
    uint64_t shuffle_buffer;
    uint64_t global_batch; // of a step, accumulated batches and all
    uint32_t microbatches; // of a step's share, likewise
    struct ls_model_order order; // of the model when the fit begins
    uint64_t epochs, epoch_steps;
    uint64_t first_steps; // of the first epoch: the rest of one, where an earlier fit began it
    uint64_t last_step; // stop after it; UINT64_MAX: no limit
};

// What was done, and whether it is to end (fit_progress.c).
struct ls_fit_progress {
    uint64_t steps; // in earlier processes too where the fit goes on from a checkpoint
    uint64_t skipped_steps; // of those: by a loss scale
    uint64_t steps_before; // of the model
    uint64_t steps_reached; // of the model, by the steps that a failure may take back
    uint64_t segment; // steps that replicas run before they come back
    uint64_t segment_first; // the first of them, from 1 in each fit
    double epoch_statistics[LS_STATISTICS]; // of the steps of the epoch under way
    uint64_t epoch_examples; // of these steps
    // What metrics counted in this epoch, in the last step, and in the epoch before the segment
    // under way; where replicas do not wait for each other, in the steps that are complete.
    double *counts, *step_counts, *counts_before;
    uint64_t epoch_begun_ns; // when this process began the epoch under way
    uint64_t waited_ns; // for clients between the segments of the epoch under way
    bool epoch_ended; // it has had its validation and its callbacks
    double startup_seconds; // NaN until the first step is done
    bool stopped; // the last step was the last: a rank has asked for that
    // What all workers know of each other since they last compared: with several, no worker may act
    // on what it alone knows.
    bool all_stop, all_interrupted;
    _Atomic int32_t failed; // what on_train_batch_end returned, if not LS_OK or LS_INTERRUPTED
};

// What a checkpoint brought that the fit goes on from; zeros where it begins.
struct ls_fit_resumed {
    json_t *state; // of the fit; NULL: there is none
    struct ls_safetensors *file; // until the fit begins
    uint64_t steps;
    uint64_t first_epoch; // the first that this process trains
    bool in_epoch; // that epoch has begun before, and these are what was counted in it
    double seconds;
    float *losses;
    size_t loss_count;
};

struct ls_fit {
    struct ls_model *model;
    struct ls_run *run;
    const struct ls_fit_options *options;
    struct ls_data *train;
    struct ls_session *session; // the model's
    struct ls_fit_plan plan;
    struct ls_fit_progress done;
    struct ls_fit_resumed resumed;
    struct ls_clients clients; // whom the loop tells what it does
    struct ls_fit_state state; // what it tells them
    struct ls_history history; // these are clients
    struct ls_progress bar;
    struct ls_trace *trace; // for the timeline; NULL: none is wanted
    struct ls_checkpoints *checkpoints; // NULL: none are written
    struct ls_async_steps *async_steps; // of replicas that do not wait for each other; else NULL
    uint64_t *hashes;
    const char *status; // for the report
    bool learns_classes; // the model did not know the names of its classes before
    bool together; // the failure is the same on all workers
    // Of an elastic training.
    bool joined; // this worker has come while the others were training
    bool begun; // callbacks were told that the training begins
    bool reforms; // new workers wait: the training stops to take them in
    struct ls_report_change *changes; // of the workers, in their order
    size_t change_count;
    uint64_t changed_ns; // when the last one began; 0: the training has continued since
    // What the replicas of this worker have of their own (rank_values.h), while they have no
    // session: after so many steps, with what so many of them owed, of so many in the whole world
    // that owed something. What it has of all ranks is always that of the state that the fit has.
    struct ls_checkpoint_image kept;
    uint64_t kept_steps;
    uint32_t kept_residuals, kept_world;
    bool regroups; // workers have changed, and what is in no round is to be counted anew
};

// As ls_fit, but may fail without a message (calls.c).
LS_STATUS ls_fit_model(struct ls_model *model, struct ls_data *train,
                       const struct ls_fit_options *options);

// Reads the batch and the shuffle, and checks all that was given. Logged. (fit_check.c)
LS_STATUS ls_fit_check(struct ls_fit *fit);
// Says, when a fit begins, what is no error but may surprise.
void ls_fit_say_notes(struct ls_fit *fit);

// The number of steps of this fit up to the end of epoch `number`; 0 for epoch 0.
uint64_t ls_fit_epoch_end(const struct ls_fit *fit, uint64_t number);

// "on" (NULL), "off", or the size of a buffer. LS_USAGE, logged.
LS_STATUS ls_shuffle_parse(const char *text, enum ls_shuffle *out, uint64_t *buffer);
// That the model can be trained on the data by all replicas of its run: each gets an example,
// unless the data is one batch of many. Logged.
LS_STATUS ls_model_check_training_data(struct ls_model *model, const struct ls_data *data,
                                       bool one_batch);
// Goes on in the epoch where the last training ended, if the order of its examples is the same;
// else a new one begins.
struct ls_model_order ls_model_continue_order(const struct ls_model *model,
                                              const struct ls_data *data, enum ls_shuffle shuffle,
                                              uint64_t buffer);

// Of data, split and shuffle: examples come in another order where it is another.
uint64_t ls_fit_order_key(const struct ls_fit *fit);
// Where the model is in the order of its examples, after the steps that the fit has done.
struct ls_model_order ls_fit_order(const struct ls_fit *fit);

// Of the epoch under way, without validation and clients, those of earlier processes included.
double ls_fit_epoch_seconds(const struct ls_fit *fit);

// Trains all epochs, or until somebody asks to stop. LS_INTERRUPTED after ls_run_interrupt.
LS_STATUS ls_fit_run_epochs(struct ls_fit *fit);

// Fills fit->clients with those of the core. Before the preparation, so that they see how it ends.
void ls_fit_open_clients(struct ls_fit *fit);

// Calls on_train_begin, and tells the clients how much there is to do.
LS_STATUS ls_fit_begin_training(struct ls_fit *fit);

// Whether the training is to end now or after the step under way: by ls_stop_training,
// ls_run_interrupt or a failed on_train_batch_end. [any thread]
bool ls_fit_wants_stop(const struct ls_fit *fit);

// Whether no other worker takes part, and none may join: an elastic training is never alone.
bool ls_fit_is_alone(const struct ls_fit *fit);

// The replicas of all workers rest: what they have counted in this segment joins what was counted
// before, which all workers have alike, and a checkpoint has. An evaluation that follows clears the
// counts of the replicas.
LS_STATUS ls_fit_settle_counts(struct ls_fit *fit);

// Counts a step of all replicas and calls on_train_batch_end, which may end the training. [replica
// thread, one at a time]
void ls_fit_note_step(struct ls_fit *fit, const struct ls_step_result *result);

// Calls on_train_batch_begin of step `step` of this fit. [replica thread, one at a time]
void ls_fit_begin_step(struct ls_fit *fit, uint64_t step);

// Writes options->report at the end. The facts are complete as far as the fit came.
struct ls_client ls_fit_report_client(struct ls_fit *fit);

// Prints on stdout before the first step what runs, with --verbose also the bucket plan and the
// kernels; with --verbose after the last step where the time went.
struct ls_client ls_fit_verbose_client(struct ls_fit *fit);

#endif
