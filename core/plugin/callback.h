// SPDX-License-Identifier: Apache-2.0
// Callbacks: what ls_fit tells while it trains, and what a callback plugin implements.
//
// A callback plugin (kind `callback`, lockstep train --callback=NAME) fills in a table of functions
// when it is opened, and ls_fit calls them, as it calls those that a program writes itself. It
// reaches the model through the calls that it is given, which are those of lockstep.h: so it need
// not be linked with the library.
//
// The life of a callback:
//   open        [main thread] before the first fit; reads its options
//   the functions of its table   as said at each, for one fit after the other
//   close       [main thread] after the last fit
#ifndef LS_PLUGIN_CALLBACK_H
#define LS_PLUGIN_CALLBACK_H

#include "core/plugin/plugin.h"
#include "core/plugin/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ls_model; // what is trained; a program closes it

// ---- Metrics ----

#define LS_METRICS 16 // the most in one struct ls_metrics

// One value with its name.
struct ls_metric {
    const char *name; // as Keras has it: "accuracy"; lasts as long as the process
    double value; // NaN where nothing was counted
    uint32_t upwards; // 1: more is better, as of accuracies; 0: less is, as of losses
    uint32_t reserved;
};

// In the order in which they are shown: "loss", the metrics that ls_compile was given, and after a
// validation the same of its data: "val_loss", "val_accuracy".
struct ls_metrics {
    uint32_t count; // of entries of `list` that are used
    struct ls_metric list[LS_METRICS]; // the values
};

// What is known of an epoch when its steps are done.
struct ls_epoch {
    uint64_t epoch; // from 1 in each fit
    // Of this fit; fewer than the data has if the fit began or ended within the epoch.
    uint64_t steps, examples;
    double seconds; // without validation
    double learning_rate; // of the last of these steps
    // "loss" and the metrics are means over the examples, while the weights changed; "val_loss" and
    // its relatives are those of the validation data after the last of these steps, if there was a
    // validation.
    struct ls_metrics metrics;
};

// ---- Callbacks ----

// How far a fit is. Borrowed for the call; counts are of this fit.
struct ls_fit_state {
    struct ls_model *model; // that is trained
    uint64_t epochs, steps; // that the fit will do, unless it ends early
    // Of the epoch under way when it is complete; in on_train_begin, of a pass over all the data.
    uint64_t epoch_steps;
    uint32_t asynchronous; // 1: the replicas of this strategy do not wait for each other
    uint64_t steps_done; // until now
    // The epoch under way: its number, its steps and examples so far, and its metrics, which are
    // means over these examples (NaN before the first step). `seconds` and `learning_rate` are set
    // when its steps are done.
    struct ls_epoch epoch;
    // The last step alone.
    uint64_t step_examples;
    struct ls_metrics step_metrics; // means over these examples; the loss as a float32
    enum ls_status status; // in on_train_end: what ls_fit is about to return
    // In the functions of a batch: its number, from 1, in this fit, validation, evaluation or
    // prediction; and how many there are in all.
    uint64_t batch, batches;
};

// The state of a callback, of whatever form it likes.
struct ls_callback_state {
    const void *data; // aligned for any type
    uint64_t bytes; // 0: none
};

// Functions that ls_fit calls, under Keras's names for moments that Keras has, too. NULL: not
// called. Where several tables are given, each moment reaches all of them, in the order of the
// array, even if one of them fails.
//
//     static enum ls_status stop_when_good(void *context, const struct ls_fit_state *state)
//     {
//         if (ls_metric_value(&state->epoch.metrics, "val_accuracy") > 0.9)
//             ls_stop_training(state->model);
//         return LS_OK;
//     }
//     const struct ls_callbacks callbacks = {.on_epoch_end = stop_when_good};
//     ls_fit(model, train, &(struct ls_fit_options){.epochs = 50, .validation = test,
//         .callbacks = &callbacks, .callback_count = 1});
//
// A function returns LS_OK to go on. LS_INTERRUPTED ends the fit as ls_run_interrupt does. Any
// other status ends the fit with that status; the model keeps the steps that were done until then.
// To end the training as planned call ls_stop_training.
//
// A function may call ls_stop_training, ls_run_interrupt, ls_learning_rate and ls_variable_describe
// and, on the main thread, ls_set_learning_rate, ls_get_variable and ls_set_variable; on_train_end
// may also call ls_fit_losses, ls_fit_epochs and ls_save_weights. Other calls on the model of the
// fit are LS_USAGE: evaluate between fits of one epoch each. The main thread is the one that called
// ls_fit. ls_evaluate and ls_predict call the functions of ls_set_callbacks, with the same rules.
struct ls_callbacks {
    void *context; // the first argument of each function
    // Named in messages, and in the report where it ended the training; NULL: "callbacks[0]".
    const char *name;
    // 1: a loss that is not finite ends the training as ls_stop_training does, instead of making it
    // fail: that of a step with the weights from before it, that of a validation with those that it
    // was computed with.
    uint32_t terminate_on_nan;
    uint32_t reserved;

    // Everything is prepared, and nothing is trained yet. [main thread]
    enum ls_status (*on_train_begin)(void *context, const struct ls_fit_state *state);
    // Once after on_train_begin, also when the training failed. Weights, losses and epochs are
    // already what ls_fit leaves behind: if this function fails, so does ls_fit, but they stay.
    // [main thread]
    enum ls_status (*on_train_end)(void *context, const struct ls_fit_state *state);

    // There is no on_epoch_end if a step of the epoch fails, or if it ends before its first step.
    // [main thread]
    enum ls_status (*on_epoch_begin)(void *context, const struct ls_fit_state *state);
    // After the validation of the epoch, if there is one. [main thread]
    enum ls_status (*on_epoch_end)(void *context, const struct ls_fit_state *state);

    // A segment is a number of consecutive steps that the replicas do on their own; before and
    // after it they are idle. It is as long as the epoch, or ends at the next check of the replicas
    // (check_replicas), or earlier: on_segment_begin may lower `steps`, the length of the segment;
    // 0 ends the training as ls_stop_training does. Both may wait: their time counts in no epoch.
    // on_segment_end is called if the segment began, also when a step failed. [main thread]
    enum ls_status (*on_segment_begin)(void *context, const struct ls_fit_state *state,
                                       uint64_t *steps);
    // Likewise, after the segment. [main thread]
    enum ls_status (*on_segment_end)(void *context, const struct ls_fit_state *state);

    // All replicas have done a step. They may be in later ones: a device that computes beside its
    // host thread is up to two steps ahead. [a replica thread, one call at a time]
    enum ls_status (*on_train_batch_end)(void *context, const struct ls_fit_state *state);

    // What a checkpoint keeps of the callback, and gives back after on_train_begin where a training
    // goes on from it. `out` is borrowed until the next call; what load_state is given, for the
    // call. A callback that had ended the training calls ls_stop_training in load_state, or it is
    // trained on. [main thread]
    enum ls_status (*save_state)(void *context, struct ls_callback_state *out);
    // Gives back what save_state had given, as the file has it: like any other file it may be
    // damaged, or a stranger's, so check sizes, counts and places. [main thread]
    enum ls_status (*load_state)(void *context, const struct ls_callback_state *state);

    // Around the validation of an epoch, or an ls_evaluate. In on_test_end state->epoch.metrics has
    // its results ("val_loss"; of an ls_evaluate "loss"); there is none if it failed or was
    // interrupted. [main thread]
    enum ls_status (*on_test_begin)(void *context, const struct ls_fit_state *state);
    // Likewise, after the validation. [main thread]
    enum ls_status (*on_test_end)(void *context, const struct ls_fit_state *state);

    // The first replica begins a step: others may be before or after it. Its numbers are those of
    // the steps that are done. [a replica thread, one call at a time]
    enum ls_status (*on_train_batch_begin)(void *context, const struct ls_fit_state *state);
    // The first replica begins its share of a batch of a validation or evaluation, or has done it.
    // Others may be in other batches, and a device that computes beside its host thread, too.
    // Metrics are known in on_test_end. [a replica thread, one call at a time]
    enum ls_status (*on_test_batch_begin)(void *context, const struct ls_fit_state *state);
    // Likewise, after the share. [a replica thread, one call at a time]
    enum ls_status (*on_test_batch_end)(void *context, const struct ls_fit_state *state);
    // Before the first batch of ls_predict or ls_predict_to_file. [main thread]
    enum ls_status (*on_predict_begin)(void *context, const struct ls_fit_state *state);
    // After the last one; not if it failed. [main thread]
    enum ls_status (*on_predict_end)(void *context, const struct ls_fit_state *state);
    // As on_test_batch_begin, of a prediction. [a replica thread, one call at a time]
    enum ls_status (*on_predict_batch_begin)(void *context, const struct ls_fit_state *state);
    // As on_test_batch_end, of a prediction. [a replica thread, one call at a time]
    enum ls_status (*on_predict_batch_end)(void *context, const struct ls_fit_state *state);
};

// ---- Variables ----

#define LS_VARIABLE_DIMS 6 // the most dimensions of a variable

// A weight of a model, in the shape and order of elements that Keras gives it.
struct ls_variable {
    const char *name; // as in a file of weights, "conv2d/kernel"; lasts until ls_compile
    uint32_t ndims; // dimensions
    uint32_t trained; // 1: gradients change it; 0: a moving statistic, or frozen
    int64_t dims[LS_VARIABLE_DIMS]; // their sizes
    uint64_t elements; // values: the product of the dimensions
};

// ---- Plugins ----

struct ls_callback; // each plugin's own: `state_bytes` of zeroed memory

// The calls of lockstep.h that a callback may make, without their "ls_".
struct ls_fit_calls {
    uint32_t struct_size;
    uint32_t reserved;
    // ls_metric_value
    double (*metric_value)(const struct ls_metrics *metrics, const char *name);
    void (*stop_training)(struct ls_model *model); // ls_stop_training
    double (*learning_rate)(const struct ls_model *model); // ls_learning_rate
    // ls_set_learning_rate
    enum ls_status (*set_learning_rate)(struct ls_model *model, double rate);
    uint32_t (*variable_count)(const struct ls_model *model); // ls_variable_count
    // ls_variable_describe
    enum ls_status (*variable_describe)(const struct ls_model *model, uint32_t index,
                                        struct ls_variable *out);
    // ls_get_variable
    enum ls_status (*get_variable)(struct ls_model *model, uint32_t index, float *out);
    // ls_set_variable
    enum ls_status (*set_variable)(struct ls_model *model, uint32_t index, const float *values);
    // ls_get_gradient
    enum ls_status (*get_gradient)(struct ls_model *model, uint32_t index, float *out);
    uint32_t (*has_gradients)(const struct ls_model *model); // ls_has_gradients
};

// The table of a callback plugin.
struct ls_callback_interface {
    uint32_t struct_size;
    // 1: of several workers only the chief opens it, as a callback that writes files. It must not
    // change what is trained. 0: all open it, and all must do the same.
    uint32_t chief_only;
    uint64_t state_bytes; // of one opened callback

    // Fills in the functions of `out`, which is zeroed but for `context` (the callback's state) and
    // `name`. `calls` lasts as long as the callback. Fails with host->fail.
    int32_t (*open)(const struct ls_host *host, const struct ls_fit_calls *calls,
                    struct ls_callback *callback, struct ls_callbacks *out);
    // NULL: there is nothing to close. Not called after an open that failed.
    void (*close)(struct ls_callback *callback);
};

#ifdef __cplusplus
}
#endif

#endif
