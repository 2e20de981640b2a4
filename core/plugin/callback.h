// SPDX-License-Identifier: Apache-2.0
// Callbacks: the functions that ls_fit calls while it trains, and what a callback plugin
// implements.
//
// A callback plugin (kind `callback`, lockstep train --callback=NAME) fills in a table of functions
// when it is opened, and ls_fit calls them in the same way as those of a program. The plugin gets
// the calls of lockstep.h that it needs to reach the model as a table, so it is not linked with the
// library.
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
    const char *name; // as in Keras: "accuracy"; lasts as long as the process
    double value; // NaN where nothing was counted
    uint32_t upwards; // 1: more is better, as for accuracies; 0: less is, as for losses
    uint32_t reserved;
};

// Metrics in the order in which they are printed: "loss", the metrics that ls_compile was given,
// and after a validation the same of its data: "val_loss", "val_accuracy".
struct ls_metrics {
    uint32_t count; // number of entries of `list` in use
    struct ls_metric list[LS_METRICS]; // the values
};

// What is known about an epoch when its steps are done.
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

// How far a fit is. Borrowed for the call; counts are those of this fit.
struct ls_fit_state {
    struct ls_model *model; // that is trained
    uint64_t epochs, steps; // how many the fit will do, unless it ends early
    // Steps of the whole epoch under way; in on_train_begin, of a pass over all the data.
    uint64_t epoch_steps;
    uint32_t asynchronous; // 1: the replicas of this strategy do not wait for each other
    uint64_t steps_done; // until now
    // The epoch under way: its number, its steps and examples so far, and its metrics, which are
    // means over these examples (NaN before the first step). `seconds` and `learning_rate` are set
    // when all its steps are done.
    struct ls_epoch epoch;
    // The last step alone.
    uint64_t step_examples;
    struct ls_metrics step_metrics; // means over these examples; the loss as a float32
    enum ls_status status; // in on_train_end: what ls_fit is about to return
    // In the functions of a batch: its number, from 1, in this fit, validation, evaluation or
    // prediction; and the number of batches there.
    uint64_t batch, batches;
};

// The state of a callback, in a form of its own.
struct ls_callback_state {
    const void *data; // aligned for any type
    uint64_t bytes; // 0: none
};

// Functions that ls_fit calls; they have Keras's names if Keras has them. NULL: not called. If
// there are several tables, ls_fit calls the function of all of them, in the order of the array,
// even if one of them fails.
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
// To end the training early without an error, call ls_stop_training.
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
    // 1: a loss that is not finite ends the training as ls_stop_training does, instead of as a
    // failure. After a step the model then has the weights from before that step; after a
    // validation, those that were validated.
    uint32_t terminate_on_nan;
    uint32_t reserved;

    // After everything is prepared and before the first step. [main thread]
    enum ls_status (*on_train_begin)(void *context, const struct ls_fit_state *state);
    // Once after on_train_begin, also if the training failed. Weights, losses and epochs are
    // already those that ls_fit leaves behind: if this function fails, ls_fit fails, too, but they
    // stay. [main thread]
    enum ls_status (*on_train_end)(void *context, const struct ls_fit_state *state);

    // Before the first step of an epoch. on_epoch_end does not follow if a step of the epoch fails,
    // or if the epoch ends before its first step. [main thread]
    enum ls_status (*on_epoch_begin)(void *context, const struct ls_fit_state *state);
    // After the validation of the epoch, if there is one. [main thread]
    enum ls_status (*on_epoch_end)(void *context, const struct ls_fit_state *state);

    // A segment is a number of consecutive steps that the replicas do on their own; before and
    // after it they are idle. It ends with the epoch, at the next check of the replicas
    // (check_replicas), or earlier: on_segment_begin may lower `steps`, the length of the segment;
    // 0 ends the training as ls_stop_training does. Both functions may wait: their time counts in
    // no epoch. on_segment_end is called whenever the segment began, even if a step failed. [main
    // thread]
    enum ls_status (*on_segment_begin)(void *context, const struct ls_fit_state *state,
                                       uint64_t *steps);
    // Likewise, after the segment. [main thread]
    enum ls_status (*on_segment_end)(void *context, const struct ls_fit_state *state);

    // After all replicas have done a step. They may already be in later ones: a device that
    // computes beside its host thread is up to two steps ahead. [a replica thread, one call at a
    // time]
    enum ls_status (*on_train_batch_end)(void *context, const struct ls_fit_state *state);

    // Returns the state that a checkpoint keeps of the callback; `out` is borrowed until the next
    // call. When a training goes on from the checkpoint, load_state gets it back after
    // on_train_begin. [main thread]
    enum ls_status (*save_state)(void *context, struct ls_callback_state *out);
    // Takes the state that save_state returned, as it is in the file; borrowed for the call. As any
    // other file it may be damaged or forged, so check sizes, counts and offsets. A callback that
    // had ended the training calls ls_stop_training here again, or the training goes on. [main
    // thread]
    enum ls_status (*load_state)(void *context, const struct ls_callback_state *state);

    // Before the validation of an epoch, or before an ls_evaluate. [main thread]
    enum ls_status (*on_test_begin)(void *context, const struct ls_fit_state *state);
    // After it, unless it failed or was interrupted. state->epoch.metrics has the results
    // ("val_loss"; of an ls_evaluate "loss"). [main thread]
    enum ls_status (*on_test_end)(void *context, const struct ls_fit_state *state);

    // When the first replica begins a step; the other replicas may be in earlier or later ones.
    // `state` is that of the steps that are done. [a replica thread, one call at a time]
    enum ls_status (*on_train_batch_begin)(void *context, const struct ls_fit_state *state);
    // When the first replica begins its share of a batch of a validation or evaluation. The other
    // replicas, and a device that computes beside its host thread, may be in other batches. Metrics
    // are known in on_test_end. [a replica thread, one call at a time]
    enum ls_status (*on_test_batch_begin)(void *context, const struct ls_fit_state *state);
    // When the first replica has done its share. [a replica thread, one call at a time]
    enum ls_status (*on_test_batch_end)(void *context, const struct ls_fit_state *state);
    // Before the first batch of ls_predict or ls_predict_to_file. [main thread]
    enum ls_status (*on_predict_begin)(void *context, const struct ls_fit_state *state);
    // After the last batch, unless the prediction failed. [main thread]
    enum ls_status (*on_predict_end)(void *context, const struct ls_fit_state *state);
    // As on_test_batch_begin, for a prediction. [a replica thread, one call at a time]
    enum ls_status (*on_predict_batch_begin)(void *context, const struct ls_fit_state *state);
    // As on_test_batch_end, for a prediction. [a replica thread, one call at a time]
    enum ls_status (*on_predict_batch_end)(void *context, const struct ls_fit_state *state);
};

// ---- Variables ----

#define LS_VARIABLE_DIMS 6 // the most dimensions of a variable

// A weight of a model, with the shape and the order of elements that it has in Keras.
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
    // 1: only the chief of several workers opens it, for callbacks such as those that write files;
    // it must not change what is trained. 0: all workers open it, and all must do the same.
    uint32_t chief_only;
    uint64_t state_bytes; // of one opened callback

    // Fills in the functions of `out`, which is zeroed except for `context` (the callback's state)
    // and `name`. `calls` lasts as long as the callback. Errors go to host->fail.
    int32_t (*open)(const struct ls_host *host, const struct ls_fit_calls *calls,
                    struct ls_callback *callback, struct ls_callbacks *out);
    // Optional. Closes the callback. Not called after a failed open.
    void (*close)(struct ls_callback *callback);
};

#ifdef __cplusplus
}
#endif

#endif
