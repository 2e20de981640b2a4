// SPDX-License-Identifier: Apache-2.0
// Lockstep for training programs: the one header to include; link with liblockstep.
//
//     struct ls_run *run;
//     struct ls_model *model;
//     struct ls_data *train, *test;
//     ls_run_open(&(struct ls_run_options){.strategy = "ring", .replicas = 2}, &run);
//     ls_sequential_create(run, "digits", (const struct ls_layer[]){
//         LS_INPUT(28, 28, 1), LS_FLATTEN(), LS_DENSE(128, .activation = "relu"), LS_DENSE(10),
//         LS_END}, &model);
//     ls_compile(model, &(struct ls_compile_options){.optimizer = "adam",
//         .loss = "sparse_categorical_crossentropy:from_logits=true", .metrics = "accuracy"});
//     ls_data_open("fashion-mnist", "train", &train);
//     ls_data_open("fashion-mnist", "test", &test);
//     ls_fit(model, train, &(struct ls_fit_options){.epochs = 5, .validation = test});
//
// Every call that can fail returns enum ls_status; when it fails, a line has been logged that says
// what, where and what to do: on stderr, or to the function given to ls_set_log. Nothing is written
// to stdout unless the options of the run ask for it. All calls of one run come from one thread,
// but for ls_run_interrupt, ls_stop_training and what step functions call; different runs may be
// used by different threads at the same time. Names and arithmetic are Keras's. The header is C++
// too; the macros of layers.h are C only.
//
// Structs of options (ls_run_options, ls_compile_options, ls_fit_options, ls_checkpoint_options,
// ls_callbacks, ls_generator, ls_layer, ls_distribute_options, ls_comm_options) follow one rule:
//
// - A field that is zero has the default that its comment names, so a zeroed struct is a sensible
//   default, and so is NULL for one. Where zero is a value that differs from the default, as the
//   epochs of a fit or the momentum of a normalization, LS_ZERO says it.
// - A later version of Lockstep only adds fields at the end. A call that takes such a struct is an
//   inline function, which tells the library how large the structs were when the program was
//   compiled (ls_fit calls ls_fit_sized). So an old program runs with a newer library, which takes
//   the fields that the program does not know as zero. A new program runs with an older library as
//   long as the fields that the library does not know are zero; otherwise the call is LS_USAGE.
//   Languages that call the shared library directly use the functions that end in _sized.
//
// All other structs stay as they are: what Lockstep fills in, and struct ls_array.
#ifndef LOCKSTEP_H
#define LOCKSTEP_H

#include "core/attributes.h"
#include "core/plugin/callback.h"
#include "core/plugin/optimizer.h"
#include "core/plugin/status.h"
#include "layers.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// In front of calls that the library exports.
#define LS_CALL LS_API LS_MUST_CHECK enum ls_status
// The same for an inline function in front of such a call.
#define LS_INLINE_CALL LS_MUST_CHECK static inline enum ls_status

#ifdef __cplusplus
extern "C" {
#endif

// "0.1.0"
LS_API const char *ls_version(void);

// ---- Messages ----

// From now on every line goes to `write` instead of stderr: errors, warnings and notes such as what
// was taken from a model's compile_config (`level`: enum ls_log_level), in one piece and without
// newline, "lockstep: error: --optimizer: ...". It is called by any thread, one line at a time, and
// may call nothing of Lockstep but ls_last_error and ls_run_interrupt. NULL: stderr again.
LS_API void ls_set_log(void (*write)(void *context, uint32_t level, const char *line),
                       void *context);
// The last error line of the calls that this thread has made, whichever thread of Lockstep has
// logged it; if there is none, the last of the process; "" before the first. A call that succeeds
// does not clear it. The text is a copy for the calling thread, cut to 1,023 bytes, and lasts until
// that thread asks again. [any thread]
LS_API const char *ls_last_error(void);

// ---- What there is on this machine ----

// A plugin: a shared object on the search path.
struct ls_listed_plugin {
    const char *kind; // "device", "transport", "collective", "strategy", "callback", ...
    const char *name; // what options take, such as `strategy` of struct ls_run_options
    const char *version, *summary; // "" if the file could not be opened
    const char *path; // of the file; "built in" for the collective auto
    const char *reason; // why the plugin cannot be used; "" if it can
    uint32_t usable; // 1: yes, on this machine; 0: `reason` says why not
};
// A kind of device: what `device` of struct ls_run_options takes.
struct ls_listed_device {
    const char *name; // "cpu", "cuda"
    const char *hardware; // "Intel(R) Xeon(R) Processor (avx512)"; "" if it cannot be used
    const char *reason; // why it cannot be used; "" if it can
    uint32_t count; // how many of them the machine has; 0 if it cannot be used
    uint32_t usable; // 1: yes
};

// All plugins, by kind and name, or all devices. Each was opened in a child process; devices that
// can be used are then opened in this process, too. `plugin_path` as in struct ls_run_options; may
// be NULL. The list and its texts last until ls_free_list.
LS_CALL ls_list_plugins(const char *plugin_path, const struct ls_listed_plugin **out,
                        size_t *count);
// The same of devices.
LS_CALL ls_list_devices(const char *plugin_path, const struct ls_listed_device **out,
                        size_t *count);
LS_API void ls_free_list(const void *list); // takes NULL

// ---- A run: strategy, device, replicas ----

// Who trains: a strategy with its plugins, a device, and the replicas. Models belong to a run.
struct ls_run;

// What ls_run_open takes.
struct ls_run_options {
    // "ring", "mirrored:collective=ring", ...; NULL: one-device, mirrored for more
    const char *strategy;
    // "cpu", "cuda", "reference", ...; NULL: cuda where it can run, and cpu from the first fit,
    // evaluation or prediction of which cuda lacks an operation; a warning names that, and the
    // number of replicas stays
    const char *device;
    uint32_t replicas; // 0: every GPU, or one on the CPU
    uint32_t threads; // per replica; 0: cores / replicas, at least one
    uint64_t seed; // of first weights, the order of examples, dropout; 0 is a seed like others
    // The longest wait for a peer, and the longest call of a collective's build_schedule. A call of
    // build_schedule that does not return ends the process with exit code 5, because nothing else
    // can stop it. 0: 60.
    double deadline_seconds;
    const char *plugin_path; // directories separated by ':', searched first
    // On stdout. 1: what runs, and a line an epoch or on a terminal a bar; 2: always a line an
    // epoch
    uint32_t progress;
    uint32_t verbose; // 1: bucket plan, kernels and where the time goes, on stdout
    // Called when a call into a plugin does not return, after a line of the log has named plugin
    // and call: the run has failed and the call of `rank` has not returned for
    // `deadline_seconds` (at least 2, at most 8), or no replica has made progress for
    // `deadline_seconds` (at least 3). Nothing that the plugin uses can be freed, so the only way
    // out is to end the process. `rank` is that of a replica of this process, or UINT32_MAX if the
    // thread that opened the run hangs.
    // Without `stuck`, or when it returns, the call keeps waiting forever. [any thread]
    void (*stuck)(uint32_t rank);
    // The dtype policy of layers whose own is float32, as Keras's set_dtype_policy:
    // "mixed_bfloat16", "mixed_float16"; "float32": all layers compute in float32. NULL: what the
    // model's file says.
    const char *precision;
    const char *wire; // what gradients travel as: "bfloat16", "float16"; NULL: "float32"
    // Which of the devices of that kind the replicas take in turn, "0,2"; NULL: all
    const char *devices;
    // Who started this process as one of several workers (docs/cluster.md): "auto" looks for a
    // launcher's variables in the environment, "none" looks for nothing, "torchrun", "slurm" and so
    // on name one. NULL: "auto". Workers open the same runs, models and data, and make the same
    // calls in the same order; `replicas` are those of this worker, and all workers but the chief
    // print warnings and errors alone.
    const char *cluster;
    // 1: workers need no secret, and transports may use any network, where other machines reach
    // them
    uint32_t insecure;
    // "private": only trusted machines reach the network between workers, as transport ucx needs it
    // beyond one host; NULL: nothing is said of it
    const char *network;
    // After which a worker that says nothing is lost, at least 1; 0: 3
    double silence_seconds;
    double join_seconds; // the longest wait until all workers are there; 0: 60
    // "MIN:MAX": when a worker is lost, ls_fit goes on with those that are left, as long as there
    // are MIN, and takes in new ones, up to MAX (docs/cluster.md). NULL: a loss ends the training
    const char *elastic;
    // "2,1": weights of the workers, in their order, from 1 to 1000000; in a process alone those of
    // the replicas. The replicas of a worker take together a part of each batch in proportion to
    // its weight, and gradients stay means over the whole batch. NULL: all replicas take as much
    const char *share;
};

// Opens the plugins that the options name. Models, and what is opened for this run, are closed
// before it. `options` NULL: all defaults.
LS_CALL ls_run_open_sized(const struct ls_run_options *options, size_t bytes, struct ls_run **out);
LS_INLINE_CALL ls_run_open(const struct ls_run_options *options, struct ls_run **out)
{
    return ls_run_open_sized(options, sizeof(*options), out);
}
LS_API void ls_run_close(struct ls_run *run); // after its models; takes NULL
LS_API uint32_t ls_run_replicas(const struct ls_run *run); // how many there are, in all workers
// 1: this process has rank 0, and saves what all of them have.
LS_API uint32_t ls_run_is_chief(const struct ls_run *run);
// 1: the job has parameter servers that are processes of their own (TF_CONFIG with tasks `ps`,
// `lockstep launch --servers=`), and this process is one of them: call ls_run_serve and nothing
// else.
LS_API uint32_t ls_run_is_server(const struct ls_run *run);
// Serves until the training is over. LS_PEER_LOST: no worker was there for `deadline_seconds`;
// LS_INTERRUPTED.
LS_CALL ls_run_serve(struct ls_run *run);
// Asks ls_fit, ls_evaluate or ls_predict, the one that runs or else the next one, to end after the
// current step with LS_INTERRUPTED; calls after that one run as usual. Safe in a signal handler.
// [any thread]
LS_API void ls_run_interrupt(struct ls_run *run);

// ---- Layers, losses, metrics and datasets of one's own ----

// From now on the run finds this plugin by its name, before any file: the same struct that a shared
// object returns from lockstep_plugin(), of kind layer, loss, metric, dataset or callback
// (core/plugin/layer.h, loss.h, metric.h, dataset.h, callback.h). It must last as long as the
// process.
//
//     ls_plugin_register(run, &rms_norm);
//     ls_sequential_create(run, "mine", (const struct ls_layer[]){
//         LS_INPUT(64), LS_LAYER("RMSNorm", .options = "{\"epsilon\": 1e-5}"), LS_DENSE(10),
//         LS_END}, &model);
//
// LS_USAGE: a plugin of another kind, one whose tables are not complete, or another one of this
// name.
LS_CALL ls_plugin_register(struct ls_run *run, const struct ls_plugin *plugin);

// ---- Data ----

// Examples: a split of a dataset, arrays of the program, or what a generator makes.
struct ls_data;

// One split ("train", "test", "validation") of a dataset by name: "fashion-mnist",
// "mnist:dir=/data", "arrays:x=x.npy,y=y.npy", ... (docs/models.md). Its files are read in the
// background; the first call that needs them reports their errors. Runs of several threads may use
// the same one at once.
//
// "validation" is the last part of the training examples where the text has validation_split=, else
// the test split. `out` is NULL where there is neither: arrays: and text: are one split, which is
// "train" and "test" alike.
//
// Classes that have names in the files (a column of a table, folders of images, characters of a
// text) get the numbers that the model has learnt, in every call that has both. LS_BAD_INPUT of
// that call: an example has a class that is none of these (docs/weights.md).
//
// Another name is that of a plugin dataset-NAME.so of LOCKSTEP_PLUGIN_PATH or of the installed
// folder, and a text with a '/' or ".so" at its end is the file of one.
LS_CALL ls_data_open(const char *text, const char *split, struct ls_data **out);
// The same with the search path of the run and the datasets that are registered with it. The data
// may outlast the run.
LS_CALL ls_run_data_open(struct ls_run *run, const char *text, const char *split,
                         struct ls_data **out);

#define LS_ARRAY_DIMS 6 // the most dimensions of an array

// Values of the program's own, in C order.
struct ls_array {
    // As NumPy names them: "bool", "uint8", "int32", "int64", "float32", "float64".
    const char *dtype;
    uint32_t ndims; // at least 1: the first dimension is that of the examples
    int64_t dims[LS_ARRAY_DIMS]; // sizes of the dimensions, outermost first
    const void *values; // all of them, one after the other
};
// Data from memory: an array for each input of the model (at most 8), in the order of its inputs,
// and one of targets (NULL: none; such data cannot be trained on or evaluated). All have the same
// number of examples. Values are copied, so the arrays may be freed when the call returns, and
// taken as they are: nothing is scaled; int64 must fit into int32, float64 is rounded to float32.
// Integer targets from 0 are classes, others are numbers for mean_squared_error. Whether shapes and
// types fit a model is checked by the call that uses both.
//
// LS_BAD_INPUT: an unknown dtype, no values, different numbers of examples, an int64 that is no
// int32. LS_USAGE: no inputs, or too many. [any thread]
LS_CALL ls_data_from_memory(const struct ls_array *inputs, uint32_t input_count,
                            const struct ls_array *target, struct ls_data **out);
// The same with a number for each example: how much it counts in the loss, as Keras's
// sample_weight. Metrics count each example once. NULL: all count once.
LS_CALL ls_data_from_memory_weighted(const struct ls_array *inputs, uint32_t input_count,
                                     const struct ls_array *target, const struct ls_array *weights,
                                     struct ls_data **out);

// Arrays of a number of examples: a batch, or all there are.
struct ls_batch_arrays {
    const struct ls_array *inputs; // one for each input of the model
    uint32_t input_count; // of them
    const struct ls_array *target; // what the output is compared with
    const struct ls_array *weights; // of the examples in the loss; NULL: all count once
};
// The same without a copy of what the model reads: inputs and weights of uint8, int32 and float32
// are read where they are, and must stay there, unchanged, until `release` is called, once, with
// `context`: when the data is closed and no model goes on training on it (ls_data_close). Arrays of
// other types, those that are not aligned to their elements, and the target, whose values are
// addresses in the loss, are copied. Not called when this fails. NULL: the arrays last as long.
LS_CALL ls_data_borrow(const struct ls_batch_arrays *arrays, void (*release)(void *context),
                       void *context, struct ls_data **out);

// Examples that the program makes while it trains (examples/generator.c).
struct ls_generator {
    // What one example has: arrays without the dimension of the examples (ndims 0: a single value)
    // and without values, of uint8, int32 or float32. As in ls_data_from_memory otherwise.
    const struct ls_array *inputs;
    uint32_t input_count; // of `inputs`; 1 to 8
    const struct ls_array *target; // NULL: none
    uint32_t classes; // the target is one of 0 to classes - 1; 0: numbers
    uint64_t examples; // of an epoch; 0: not known
    // Writes `count` examples, numbers `first` to `first` + `count` - 1 (from 0) of that epoch
    // (from 1), one after the other: inputs[i] has room for count x dims values, and so has
    // `target` (NULL without one). Where the number of examples is not known, the generator lowers
    // `*filled`, which is `count` at first, at its end; else it must fill all.
    //
    // Calls come from a thread of Lockstep, a few batches ahead of the training, one call at a time
    // and in order: examples are not shuffled. After ls_compile or a failure, with another batch
    // size or other data in between, and where replicas do not wait for each other, examples that
    // were made before are asked for again. A validation or prediction begins with the first
    // example of epoch 1. Calls may call nothing of Lockstep but ls_run_interrupt. A status that is
    // not LS_OK ends the training with it. Closing the data or the model waits for a call under
    // way. The run's deadline does not apply to it: a slow generator is waited for, and a warning
    // says so after that time.
    enum ls_status (*fill)(void *context, uint64_t epoch, uint64_t first, uint64_t count,
                           void *const *inputs, void *target, uint64_t *filled);
    void *context; // the first argument of `fill`
};
// Data from a generator. The struct and its arrays are copied, but not `context`, which must last
// until ls_data_close and until no model goes on training on the data. Where the number of examples
// is not known, the generator makes all of them now, on this thread, and they stay in memory as
// those of ls_data_from_memory do.
//
// LS_USAGE: no `fill`, no inputs or too many, a dtype that is not one of the three. LS_BAD_INPUT: a
// target that is not a class, now or when it is made. [any thread]
LS_CALL ls_data_from_generator_sized(const struct ls_generator *generator, size_t bytes,
                                     struct ls_data **out);
LS_INLINE_CALL ls_data_from_generator(const struct ls_generator *generator, struct ls_data **out)
{
    return ls_data_from_generator_sized(generator, sizeof(*generator), out);
}
// Takes NULL. Its memory is freed when no model goes on training on it: a model lets go of it at
// the next fit with other data, at ls_compile, ls_load_weights and ls_model_close.
LS_API void ls_data_close(struct ls_data *data);
LS_API uint64_t ls_data_count(const struct ls_data *data); // examples

// ---- Models ----

// Layers with their weights; after ls_compile with an optimizer, a loss and metrics.
struct ls_model;

// From an array of layers (see layers.h) that ends with LS_END. `name` NULL: "sequential".
LS_CALL ls_sequential_create_sized(struct ls_run *run, const char *name,
                                   const struct ls_layer *layers, size_t bytes,
                                   struct ls_model **out);
LS_INLINE_CALL ls_sequential_create(struct ls_run *run, const char *name,
                                    const struct ls_layer *layers, struct ls_model **out)
{
    return ls_sequential_create_sized(run, name, layers, sizeof(*layers), out);
}
// Functional models, as in Keras: layers are called on symbols, which stand for the tensors that a
// layer will take and make, and a model is what lies between some inputs and some outputs.
//
//     struct ls_symbol *x, *y, *ends[2], *sum, *scores;
//     ls_input(run, &(struct ls_layer)LS_INPUT(64), &x);
//     ls_layer_call(&(struct ls_layer)LS_DENSE(64, .activation = "relu"), &x, 1, &y);
//     ends[0] = x, ends[1] = y;
//     ls_layer_call(&(struct ls_layer)LS_ADD(), ends, 2, &sum);
//     ls_layer_call(&(struct ls_layer)LS_DENSE(10), &sum, 1, &scores);
//     ls_model_create("residual", &x, 1, &scores, 1, &model);
//
// Symbols belong to the run: ls_run_close frees them. Any number of models may be made of the same
// ones; each has its own weights. Options of layers, and whether shapes fit, are checked when the
// model is created.
struct ls_symbol;

// An input of a model, from LS_INPUT.
LS_CALL ls_input_sized(struct ls_run *run, const struct ls_layer *input, size_t bytes,
                       struct ls_symbol **out);
LS_INLINE_CALL ls_input(struct ls_run *run, const struct ls_layer *input, struct ls_symbol **out)
{
    return ls_input_sized(run, input, sizeof(*input), out);
}
// Calls a new layer on `input_count` symbols, 1 for most layers.
LS_CALL ls_layer_call_sized(const struct ls_layer *layer, size_t bytes,
                            struct ls_symbol *const *inputs, uint32_t input_count,
                            struct ls_symbol **out);
LS_INLINE_CALL ls_layer_call(const struct ls_layer *layer, struct ls_symbol *const *inputs,
                             uint32_t input_count, struct ls_symbol **out)
{
    return ls_layer_call_sized(layer, sizeof(*layer), inputs, input_count, out);
}
// Calls the layer that made `made` once more, on other symbols: both calls use the same weights.
LS_CALL ls_layer_call_again(const struct ls_symbol *made, struct ls_symbol *const *inputs,
                            uint32_t input_count, struct ls_symbol **out);
// Calls a model as a layer. `outputs` has room for `output_count` symbols, which must be as many as
// the model has outputs. All calls of one model use the same weights, which are new ones: those of
// `model` are not taken. The model may be closed afterwards.
LS_CALL ls_model_call(const struct ls_model *model, struct ls_symbol *const *inputs,
                      uint32_t input_count, struct ls_symbol **outputs, uint32_t output_count);
// The model from `inputs`, in the order in which data gives them, to `outputs`. Only a model with
// one output can be trained. `name` NULL: "functional".
LS_CALL ls_model_create(const char *name, struct ls_symbol *const *inputs, uint32_t input_count,
                        struct ls_symbol *const *outputs, uint32_t output_count,
                        struct ls_model **out);

// A built-in name ("cnn"), a file of Keras model JSON, or a whole model that Keras saved (.keras,
// .h5), with the weights in it. `data` gives the shape of the input to models that do not say it;
// may be NULL.
LS_CALL ls_model_open(struct ls_run *run, const char *name, const struct ls_data *data,
                      struct ls_model **out);
// The same from the text of Keras model JSON itself, as `model.to_json()` of Keras returns it.
// Messages and reports call the model `name`; NULL: as its JSON says ("sequential"), else "model".
LS_CALL ls_model_open_json(struct ls_run *run, const char *name, const char *json,
                           const struct ls_data *data, struct ls_model **out);
// Takes NULL. In a callback of a fit of this model it logs an error and does nothing.
LS_API void ls_model_close(struct ls_model *model);

// What ls_compile takes.
struct ls_compile_options {
    // NULL in the first three: that of the model's file (compile_config), which is logged; else as
    // said here.
    // Names and options are Keras's; docs/models.md lists them. An object as Keras writes it in JSON
    // ({"class_name": "Adam", "config": {...}}), of metrics a list, is taken, too.
    const char *optimizer; // "adamw:weight_decay=0.01,global_clipnorm=1"; NULL: adam
    // One of the program's own, instead of `optimizer` (core/plugin/optimizer.h); NULL: none. On
    // devices that compute in host memory (LS_UNAVAILABLE elsewhere).
    const struct ls_own_optimizer *own_optimizer;
    // "huber:delta=2"; NULL: by the model's last layer. "none": step functions of a custom loop
    // compute it (ls_context_set_loss), and there are no other metrics.
    const char *loss;
    const char *metrics; // "accuracy,auc", "none"; NULL: accuracy for cross-entropy
    const char *lr_scaling; // "none", "sqrt", "linear" with the number of replicas; NULL: none
    // "cosine_decay:decay_steps=1000", which begins with the rate of the optimizer, or with
    // initial_learning_rate=; NULL: that of the model's file where its optimizer is used, else the
    // rate is constant. docs/models.md lists all of them.
    const char *learning_rate_schedule;
    // "dynamic", "dynamic:initial_scale=1024,dynamic_growth_steps=100", a number, "none"; NULL:
    // that of the model's file where its optimizer is used, else dynamic for mixed_float16, none
    // for others
    const char *loss_scale;
    // 1: step functions may call ls_context_output; what else uses their memory is elsewhere then.
    // With loss "none" they always may.
    uint32_t keep_outputs;
};
// Weights stay, and so does the place in the order of examples. The optimizer is a new one, as in
// Keras: its moments are zero and its steps count from 1 again, from which dropout draws, too. To
// change only the learning rate use ls_set_learning_rate.
LS_CALL ls_compile_sized(struct ls_model *model, const struct ls_compile_options *options,
                         size_t bytes);
LS_INLINE_CALL ls_compile(struct ls_model *model, const struct ls_compile_options *options)
{
    return ls_compile_sized(model, options, sizeof(*options));
}
// From the next step on; the optimizer keeps its moments. `rate` is what is used, whatever
// lr_scaling was. LS_USAGE for a model that is not compiled, or compiled with a schedule, and for a
// rate that is negative or not finite.
LS_CALL ls_set_learning_rate(struct ls_model *model, double rate);
LS_API double ls_learning_rate(const struct ls_model *model); // NaN before ls_compile
// 1: the loss that the model is compiled with compares classes, whole numbers from 0; 0: others, or
// none yet.
LS_API uint32_t ls_model_takes_classes(const struct ls_model *model);

// ---- Metrics and callbacks ----

// What callbacks are told, and the table of their functions, are in core/plugin/callback.h.

// The value of the metric of that name; NaN when there is none.
LS_API double ls_metric_value(const struct ls_metrics *metrics, const char *name);

// A callback by its name and Keras's options, "early_stopping:monitor=val_loss,patience=3", or the
// path of a shared object; docs/callbacks.md lists those that Lockstep has. It is given to ls_fit
// in ls_fit_options.callbacks, where tables of the program and such may be mixed:
//
//     struct ls_callbacks *stopping;
//     ls_callback_open(run, "early_stopping:patience=3", &stopping);
//     const struct ls_callbacks callbacks[] = {own, *stopping};
//
// LS_USAGE: an option that it does not have. LS_UNAVAILABLE: no such callback.
LS_CALL ls_callback_open(struct ls_run *run, const char *text, struct ls_callbacks **out);
LS_API void ls_callback_close(struct ls_callbacks *callbacks); // before its run; takes NULL
// What ls_evaluate and the calls of ls_predict tell, as `callbacks` of Keras's evaluate and
// predict. The tables are copied; what their functions use must last until others are set or the
// model is closed. NULL, 0: nobody. LS_USAGE in a callback of the model. [main thread]
LS_CALL ls_set_callbacks_sized(struct ls_model *model, const struct ls_callbacks *callbacks,
                               size_t bytes, uint32_t count);
LS_INLINE_CALL ls_set_callbacks(struct ls_model *model, const struct ls_callbacks *callbacks,
                                uint32_t count)
{
    return ls_set_callbacks_sized(model, callbacks, sizeof(*callbacks), count);
}

// Ends the fit under way early, with LS_OK, as `model.stop_training = True` does in Keras. No other
// segment begins; during a segment the step after the one under way is the last, because all
// replicas have to learn of it. An epoch that has steps still gets its validation and its
// on_epoch_end. The next fit goes on where this one ended. [any thread]
LS_API void ls_stop_training(struct ls_model *model);
// 1: the fit under way was asked to end early, by ls_stop_training or by another worker, or the
// last one was; the next one begins with 0. [any thread]
LS_API uint32_t ls_training_is_stopped(const struct ls_model *model);

// ---- Training ----

// Where a fit keeps what it needs to go on after an interruption or a crash: weights, the state of
// the optimizer and of callbacks, and the place in the order of examples (docs/checkpoints.md). A
// file is written beside the training; what cannot be written is logged, and the training goes on.
struct ls_checkpoint_options {
    const char *folder; // is made where it is missing
    uint64_t steps; // every so many steps of the training; 0: not by steps
    // After the step at which so many have passed; 0: not by time. Neither: each epoch
    double seconds;
    const char *name; // "checkpoint-{step:08}", {epoch:03}, {val_loss:.2f}; NULL: the first
    uint32_t keep; // the newest of this training; 0: 3
    // "val_loss", "val_accuracy:max": only after an epoch that is the best; NULL: all
    const char *best;
    // 1: the model becomes that of the newest good checkpoint of the folder, and the fit goes on
    // from there, as if it had never ended: epochs, steps and losses are those of the whole
    // training. Where there is none, it begins; LS_BAD_INPUT: none of those that are there can be
    // used. 0: a folder that holds checkpoints is LS_USAGE.
    uint32_t resume;
};

// What ls_fit takes.
struct ls_fit_options {
    // The ends of an epoch after which to end; 0: 1, or with `steps` no limit; LS_ZERO: nothing is
    // trained.
    uint64_t epochs;
    // The steps after which to end, if that is earlier; 0: no limit; LS_ZERO: nothing is trained.
    uint64_t steps;
    uint64_t batch; // global; 0: replica_batch times replicas
    uint64_t replica_batch; // 0: 64
    uint32_t microbatches; // blocks that each share is computed in; their gradients are added; 0: 1
    // Batches of which one step is made: their gradients are added up on each replica, and reduced
    // and applied once, as the mean over all their examples. Steps are counted as such updates. 0:
    // 1
    uint32_t accumulate;
    const char *shuffle; // "on", "off", or the size of a buffer; NULL: on
    struct ls_data *validation; // after each epoch; NULL: none
    uint64_t check_replicas; // every so many steps; 0: at the end only
    const char *report; // path of the JSON report; NULL: none
    const char *timeline; // path of the timeline, a Chrome trace (docs/timeline.md); NULL: none
    // The steps that it holds, from 1; 0: from the first, to the last
    uint64_t timeline_first, timeline_last;
    const char *command; // named in the report; NULL: "train"
    // How much examples of a class count in the loss, "0:1.0,1:2.5"; others count once. NULL: all
    // do.
    const char *class_weight;
    const struct ls_callbacks *callbacks; // an array of `callback_count`; NULL: none
    uint32_t callback_count; // of `callbacks`
    const struct ls_checkpoint_options *checkpoints; // NULL: none are written
    uint64_t log_every; // with `progress`: a line whenever so many steps are done; 0: none
    // As in Keras: epochs are numbered behind these, and `epochs` is the number of the last. Steps
    // count from this fit. Not with checkpoints to go on from, which count epochs themselves.
    uint64_t initial_epoch;
    uint64_t validation_freq; // validate after each epoch whose number this divides; 0: 1
    // Numbers of epochs, from 1, after which to validate instead of that; NULL: none. Borrowed.
    const uint64_t *validation_epochs;
    uint32_t validation_epoch_count; // of `validation_epochs`
};
// Trains on from where the model is: weights, optimizer and the order of examples continue, so fits
// of one step or one epoch each give the same bits as one fit of them all. `epochs` and `steps`
// count in this fit. Where the last fit ended within an epoch, by `steps` or an interruption, the
// first epoch of this one is the rest of that epoch: with epochs = 1 it ends where that one ends.
// Another batch size goes on at the same example. With other data (another text or split) or
// another `shuffle` that rest is given up, and an epoch with an order of its own begins.
// LS_INTERRUPTED leaves what was learnt so far.
//
// Replicas, strategy and input are kept for the next ls_fit or ls_evaluate of the model, until
// ls_compile, ls_load_weights, ls_model_close or a failure. What was learnt stays on the replicas,
// in host memory; ls_save_weights and whatever else needs it brings it to where it stays when a
// replica fails. From a device with memory of its own a fit of 128 steps or more, or one that ends
// with an epoch, brings it there itself, and so does the fit after it.
//
// A callback that fails gives its own status. LS_FAILED when the loss of a step is not finite: the
// model, its optimizer and its place in the order of examples are what they were before that step.
// With a strategy whose replicas do not wait for each other, the model has all pushes that were
// applied until the fit ended, but none of that step. When the parameters themselves are not
// finite, which is looked at after each epoch, and after any other failure of a replica, the model
// is what the host last had; a warning says so if that is older than this fit. After replicas that differ or do not answer, ls_fit and
// ls_evaluate refuse the model until ls_compile. A validation loss that is not finite is LS_FAILED,
// too, but takes nothing back.
LS_CALL ls_fit_sized(struct ls_model *model, struct ls_data *train,
                     const struct ls_fit_options *options, size_t bytes, size_t callbacks_bytes,
                     size_t checkpoint_bytes);
LS_INLINE_CALL ls_fit(struct ls_model *model, struct ls_data *train,
                      const struct ls_fit_options *options)
{
    return ls_fit_sized(model, train, options, sizeof(*options), sizeof(struct ls_callbacks),
                        sizeof(struct ls_checkpoint_options));
}

// What ls_evaluate found.
struct ls_scores {
    uint64_t examples; // that were evaluated
    double seconds; // that it took
    struct ls_metrics metrics; // "loss", "accuracy"
};
// Loss and metrics, means over the examples; `batch` as in fit (0: 64 per replica).
LS_CALL ls_evaluate(struct ls_model *model, struct ls_data *data, uint64_t batch,
                    struct ls_scores *out);

// What the model's output is for each example of `data`, in the order of the data and whatever
// `batch` (as in ls_evaluate) and the number of replicas: nothing is padded, repeated or left out.
// Labels are not looked at, and the model need not be compiled. LS_BAD_INPUT for a model with
// several outputs. `out` has room for ls_data_count(data) times ls_model_output_elements(model)
// floats.
LS_CALL ls_predict(struct ls_model *model, struct ls_data *data, uint64_t batch, float *out);
// The same to a file, while batches are done: FILE.npy (float32, C order, shape (examples,
// outputs...)) or FILE.csv (a line an example, values with 9 digits). The file is complete, or what
// it was before.
LS_CALL ls_predict_to_file(struct ls_model *model, struct ls_data *data, uint64_t batch,
                           const char *path);
LS_API uint64_t ls_model_output_elements(const struct ls_model *model); // floats of a prediction
// The sizes of a prediction's dimensions, outermost first; `dims` has room for LS_ARRAY_DIMS.
// Returns how many there are.
LS_API uint32_t ls_model_output_shape(const struct ls_model *model, int64_t *dims);

// What the last ls_fit saw, also when it failed or was interrupted. Borrowed until the next one.
// Losses: one a step, mean over the global batch, of the first 65,536 steps; a longer training can
// be several fits, which are as one.
LS_API const float *ls_fit_losses(const struct ls_model *model, size_t *count);

// One entry for each epoch in which a step was done.
LS_API const struct ls_epoch *ls_fit_epochs(const struct ls_model *model, size_t *count);

// A table like Keras's.
LS_API void ls_model_summary(const struct ls_model *model, FILE *out);

// The variables of a model, in the order of its layers. Values are those after the last step that
// was done. In a callback of the model's own fit they may be read and set on the main thread, while
// the replicas rest: not in on_train_batch_end.
LS_API uint32_t ls_variable_count(const struct ls_model *model);
// Name, shape and kind of variable `index`, from 0.
LS_CALL ls_variable_describe(const struct ls_model *model, uint32_t index, struct ls_variable *out);
LS_CALL ls_get_variable(struct ls_model *model, uint32_t index, float *out); // `elements` of them
// All replicas have the values before the next step. The optimizer's state stays.
LS_CALL ls_set_variable(struct ls_model *model, uint32_t index, const float *values);
// In a callback of the model's fit, where variables may be read: what the last step reduced, which
// is the mean over its examples before clipping and weight decay; before the first step anything.
// Zeros of what is frozen. LS_USAGE where the replicas do not have that: under strategies that keep
// variables elsewhere or in parts, or whose replicas do not wait for each other.
LS_CALL ls_get_gradient(struct ls_model *model, uint32_t index, float *out);
// In such a callback, or in on_train_begin: 1 where the replicas have that.
LS_API uint32_t ls_has_gradients(const struct ls_model *model);

// Weights in the format that the file has, or that the suffix of its name says: .safetensors,
// .weights.h5, .keras, and for reading .h5 (docs/weights.md). LS_UNAVAILABLE for those of Keras
// where this Lockstep was built without them. Tensors of safetensors have the plain layout and are
// named layer/variable; what all names have in front (the model's name) and Keras 2's ":0" are
// left out when they are read. The names of the classes that were learnt travel with them.
LS_CALL ls_load_weights(struct ls_model *model, const char *path);
// The same for writing: the suffix says the format. LS_USAGE for any other name. Callbacks may write
// weights and models, too, where they may read variables.
LS_CALL ls_save_weights(struct ls_model *model, const char *path);

// A compiled model with the state of its optimizer, to go on from later (docs/checkpoints.md has
// the format), in a .safetensors file: other names are LS_USAGE. ls_model_load needs a model of the
// same variables that is compiled with the same optimizer: LS_BAD_INPUT, LS_USAGE otherwise. Then
// fits go on as if the model had never been saved.
LS_CALL ls_model_save(struct ls_model *model, const char *path);
// Goes on from a file that ls_model_save has written, as said there.
LS_CALL ls_model_load(struct ls_model *model, const char *path);

// ---- Custom training loops ----
//
// A loop of the program's own over a compiled model, under every strategy whose replicas step
// together, with the arithmetic of ls_fit (docs/custom-loops.md):
//
//     static enum ls_status train_step(struct ls_replica_context *replica, void *context)
//     {
//         double sum, *losses = context;
//         enum ls_status status = ls_context_forward(replica);
//         if (!status)
//             status = ls_context_loss(replica, &sum, NULL);
//         if (!status)
//             status = ls_context_gradients(replica);
//         if (!status)
//             status = ls_context_apply(replica);
//         losses[ls_context_local_rank(replica)] = sum / ls_context_global_examples(replica);
//         return status;
//     }
//
//     ls_distribute_dataset(model, train, &(struct ls_distribute_options){.batch = 64}, &dataset);
//     while (ls_distributed_next(dataset)) {
//         ls_strategy_run(dataset, train_step, losses);
//         ls_strategy_reduce(run, "sum", losses, 1, &loss);
//     }

// Data whose global batches are cut into shares, one a replica, as ls_fit cuts them.
struct ls_distributed;
// A replica while it runs a step function. Not to be used afterwards, or by another thread.
struct ls_replica_context;

// What ls_distribute_dataset takes.
struct ls_distribute_options {
    uint64_t batch, replica_batch; // as in ls_fit_options
    const char *shuffle; // as in ls_fit_options; NULL: on, for evaluation off
    // 1: step functions evaluate: ls_context_forward runs the model as ls_evaluate does, and there
    // are no gradients. 0: they train.
    uint32_t evaluation;
};
// Prepares the replicas. Training goes through the examples in the order in which ls_fit would go
// on, and an ls_fit that follows goes on from there. `data` may be closed afterwards.
//
// LS_USAGE: a model that is not compiled, more replicas than examples, a strategy whose replicas do
// not wait for each other (parameter-server without mode=sync). LS_BAD_INPUT: data that does not
// fit the model.
LS_CALL ls_distribute_dataset_sized(struct ls_model *model, struct ls_data *data,
                                    const struct ls_distribute_options *options, size_t bytes,
                                    struct ls_distributed **out);
LS_INLINE_CALL ls_distribute_dataset(struct ls_model *model, struct ls_data *data,
                                     const struct ls_distribute_options *options,
                                     struct ls_distributed **out)
{
    return ls_distribute_dataset_sized(model, data, options, sizeof(*options), out);
}
LS_API void ls_distributed_close(struct ls_distributed *dataset); // takes NULL
LS_API uint64_t ls_distributed_steps(const struct ls_distributed *dataset); // batches of an epoch
// 1: the epoch has another batch, for the next ls_strategy_run. 0: it has ended, which is said
// once; the next batch is the first of another epoch, in an order of its own.
LS_API uint32_t ls_distributed_next(struct ls_distributed *dataset);

// Runs `function` on the next batch, on each replica's own thread at the same time, and waits. The
// function may call the ls_context_... calls, communicators (ls_comm_...) and ls_last_error; it
// shares `context` with the other replicas. A training step is ls_context_forward,
// ls_context_gradients and ls_context_apply, in this order, once: on all replicas, or on none.
//
// When the function returns a status other than LS_OK on some replica, or leaves a step that it has
// begun, the others are woken and the call fails with that status: LS_USAGE where calls were made
// in the wrong order, or not on all replicas. Where no replica had begun its step, the model stays
// as it is and the batch is still the next one. Else the model is what the host last had, and a
// warning says so: that is what ls_get_variable or ls_model_save have brought there, or at the
// latest what it was when the epoch began, where that was 32 steps ago or more. LS_FAILED for a
// loss that is not finite: the model is what it was before that step. LS_PEER_LOST when a replica
// did not come to its next call in time (deadline_seconds). LS_INTERRUPTED after ls_run_interrupt,
// before the function is called. A function that does not return cannot be ended: see `stuck` of
// the run.
LS_CALL ls_strategy_run(struct ls_distributed *dataset,
                        enum ls_status (*function)(struct ls_replica_context *replica,
                                                   void *context),
                        void *context);

// The sum or mean ("sum", "mean") over all replicas, added up in the order of their ranks: `values`
// has `count` numbers for each replica of this process, one replica after the other; `out` gets
// `count`. LS_USAGE for another reduction.
LS_CALL ls_strategy_reduce(struct ls_run *run, const char *reduction, const double *values,
                           uint32_t count, double *out);
// The values of all replicas in the order of their ranks: `count` times ls_run_replicas numbers.
LS_CALL ls_strategy_gather(struct ls_run *run, const double *values, uint32_t count, double *out);

// "loss" and the metrics of the model, of the last run (`step`) and of all runs since the metrics
// were reset (`all`), as far as their functions called ls_context_update_metrics. NaN before the
// first. Of training they have the bits of ls_fit's: `step` those of ls_fit_losses. Either may be
// NULL.
LS_API void ls_strategy_metrics(const struct ls_distributed *dataset, struct ls_metrics *step,
                                struct ls_metrics *all);
// The metrics begin anew, as at the beginning of an epoch.
LS_API void ls_strategy_reset_metrics(struct ls_distributed *dataset);

// Gives all replicas the variables that rank `root` has, with the state of the optimizer where
// replicas hold it. They have equal ones at all times, unless a plugin or an update function of the
// program's own (ls_own_optimizer) made them differ. LS_USAGE for a rank that does not exist.
LS_CALL ls_broadcast_variables(struct ls_model *model, uint32_t root);

// Compares the variables of all replicas, bit for bit: LS_FAILED, with ranks and hashes, when they
// differ. Then the model is what the host last had, and is refused until ls_compile.
LS_CALL ls_check_replicas(struct ls_model *model);

// ---- In a step function ----
//
// All of these are called on the thread of the replica [step function]. One that fails has logged
// why, and ls_strategy_run fails with its status, even if the function returns LS_OK.

// The number of the replica among all, among those of this process, and how many there are in all.
// Replica i of a process computes on device i of those there are, which repeat:
LS_API uint32_t ls_context_rank(const struct ls_replica_context *replica);
LS_API uint32_t ls_context_local_rank(const struct ls_replica_context *replica);
LS_API uint32_t ls_context_world(const struct ls_replica_context *replica);
LS_API uint32_t ls_context_is_chief(const struct ls_replica_context *replica); // 1: rank 0
// The number of the model's step that a training step of this run is, from 1.
LS_API uint64_t ls_context_step(const struct ls_replica_context *replica);
// Examples of this replica's share, which may be none at the end of an epoch, and of the batch:
LS_API uint64_t ls_context_examples(const struct ls_replica_context *replica);
LS_API uint64_t ls_context_global_examples(const struct ls_replica_context *replica);

// The examples of this replica's share: (examples, dimensions...) in the type that the model reads,
// or uint8 where the device makes float32 of bytes. Targets: int32 for classes, else float32.
// Borrowed until the function returns:
LS_CALL ls_context_input(struct ls_replica_context *replica, uint32_t index, struct ls_array *out);
LS_CALL ls_context_target(struct ls_replica_context *replica, struct ls_array *out);

// Runs the model forward on the share: for training with dropout and statistics of the batch, for
// evaluation without.
LS_CALL ls_context_forward(struct ls_replica_context *replica);
// After forward and before gradients. The sum of the examples' losses by the loss of ls_compile,
// and how many examples there are (their weights, where they have some). Waits for the device.
// Either may be NULL.
LS_CALL ls_context_loss(struct ls_replica_context *replica, double *sum, double *examples);
// After forward and before gradients, with loss "none" or keep_outputs: the model's output,
// (examples, outputs...) of float32, plain. Borrowed until ls_context_gradients; on a device that
// computes in host memory it is the device's own buffer, else a copy, for which the device is
// waited for.
LS_CALL ls_context_output(struct ls_replica_context *replica, struct ls_array *out);
// With loss "none", both after forward and before gradients, unless the share is empty: room for
// d(loss) / d(output), as many floats as the output has, to be filled in, where the loss is the
// mean over the global batch (so multiply by 1.0f / ls_context_global_examples, as ls_fit does); and
// the sum of the losses of this share's examples, of which the metric "loss" is made, and which
// must be finite. A loss scale is applied by Lockstep:
LS_CALL ls_context_output_gradient(struct ls_replica_context *replica, float **out);
LS_CALL ls_context_set_loss(struct ls_replica_context *replica, double sum);

// After forward: the run counts in the metrics. All replicas call it, or none.
LS_CALL ls_context_update_metrics(struct ls_replica_context *replica);
// Runs the model backward. The gradients are those of the mean loss of the global batch; the
// strategy begins to reduce each bucket of them as soon as it is complete, while others are still
// computed.
LS_CALL ls_context_gradients(struct ls_replica_context *replica);
// Ends the reduction and updates the variables as the strategy does. Waits for the other replicas.
LS_CALL ls_context_apply(struct ls_replica_context *replica);
// Both, as `optimizer.minimize`.
LS_CALL ls_context_minimize(struct ls_replica_context *replica);

// ---- A batch from memory ----

// One step of training on the whole batch, whose values are copied, shared out among the replicas.
// The order in which ls_fit goes through its own data stays as it is. `out` (may be NULL): "loss"
// and the metrics of this batch alone. LS_USAGE: fewer examples than replicas, or a strategy whose
// replicas do not wait for each other. Failures of the step are as in ls_fit.
LS_CALL ls_train_on_batch(struct ls_model *model, const struct ls_batch_arrays *batch,
                          struct ls_metrics *out);
// The same of an evaluation.
LS_CALL ls_test_on_batch(struct ls_model *model, const struct ls_batch_arrays *batch,
                         struct ls_metrics *out);
// The model's output for each example, as ls_predict.
LS_CALL ls_predict_on_batch(struct ls_model *model, const struct ls_array *inputs,
                            uint32_t input_count, float *out);

// ---- Communication without a model ----
//
// Collectives on buffers of the program's own, by any collective plugin, in the manner of MPI, NCCL
// and Horovod. There is no run and no model, and nothing is shared with those that exist. The ranks
// of a communicator are threads of one process, or the processes of a job, one rank each.
//
//     struct ls_comm *comms[4];
//     ls_comm_open(&(struct ls_comm_options){.collective = "ring", .size = 4}, comms);
//     // in each of four threads:
//     ls_comm_all_reduce(comms[rank], values, 1000, "float32", "mean");
//     ls_comm_close(comms[rank]);
//
//     struct ls_job *job;
//     struct ls_comm *comm;
//     ls_job_open(&(struct ls_job_options){.rank = rank, .size = 4,
//                                          .address = "127.0.0.1:29600"}, &job);
//     // in each of four processes:
//     ls_comm_open(&(struct ls_comm_options){.job = job, .name = "gradients"}, &comm);
//     ls_comm_all_reduce(comm, values, 1000, "float32", "mean");
//     ls_comm_close(comm);
//     ls_job_close(job);
//
// All ranks make the same calls in the same order, each with its own communicator, which one thread
// uses at a time. A call returns when this rank's result is there. `count` is in elements, may be
// 0, and is the same on all ranks. Buffers are in host memory, aligned to their elements, and stay
// the caller's. dtypes: "float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8".
// Reductions: "sum", "mean" (rounded once; of integers towards zero), "min", "max", "product". A mean
// of values that a type holds is one that it holds, too: halves are added up in float32, integers
// in a type twice as wide, so that a mean of these moves twice the bytes of a sum (of "uint8" four
// times). "float32" and "float64" are added up as they are.
//
// LS_PEER_LOST: a rank did not come in time, or its process is lost; the message names it, and what
// it has not called. LS_FAILED: ranks made different calls, which the message names, or a
// collective is wrong (its schedule is verified before it runs). LS_USAGE: an unknown dtype or
// reduction, or a root that is no rank; and every call in a forked child of the process that has
// opened the job or the communicator, which may open its own. LS_ABORTED: another rank failed, or
// somebody called ls_comm_abort. After a failure in a call that others have begun the communicator
// is of no more use: close it on all ranks.

// Processes of a program's own that communicate without a model, and notice when one of them is
// lost. Who starts them, and gives each its number, is the program's business.
struct ls_job;

// What ls_job_open takes.
struct ls_job_options {
    uint32_t rank, size; // number of this process, from 0, and of how many
    const char *address; // "host:port" where process 0 is reached; NULL: `size` is 1
    // Of process 0: a socket that listens there already, which is taken over; 0: none.
    int32_t listen_fd;
    // Which all processes know, and nobody else: 16 to 4096 letters; NULL: none, which is refused
    // where `address` is not a loopback address, unless `insecure`.
    const char *secret;
    uint32_t insecure; // 1: without a secret, where others reach process 0, too
    double join_seconds; // until when all processes must be here; 0: 60
    double deadline_seconds; // the longest wait for process 0 later; 0: 300
    double lost_after_seconds; // of silence, after which a process is lost: 1 at least; 0: 3
    const char *network; // of transport ucx, as in ls_run_options
    const char *plugin_path; // likewise
};
// Returns when all processes are here. LS_PEER_LOST: one did not come. LS_USAGE: processes
// disagree, or have another secret. [any thread]
LS_CALL ls_job_open_sized(const struct ls_job_options *options, size_t bytes, struct ls_job **out);
LS_INLINE_CALL ls_job_open(const struct ls_job_options *options, struct ls_job **out)
{
    return ls_job_open_sized(options, sizeof(*options), out);
}
// Says goodbye, so that the others do not count this process as lost. Takes NULL. All communicators
// were closed before. New communicators need process 0; those that are open do not.
LS_API void ls_job_close(struct ls_job *job);
// NULL, or a sentence that names a process that is lost, and why. Borrowed. [any thread]
LS_API const char *ls_job_lost(const struct ls_job *job);
// The others lose this process at once, for this reason; all communicators of the job end here,
// too. [any thread]
LS_API void ls_job_give_up(struct ls_job *job, const char *why);
// `bytes` of memory, aligned to a page, that the other processes of this host reach: communicators
// that are opened after the job read and write it where it is. Other memory is copied for them,
// which takes two to three times as long. A process that is forked shares it with its parent. [any
// thread]
LS_CALL ls_job_allocate(struct ls_job *job, uint64_t bytes, void **out);
// Takes NULL. Also after the job was closed. [any thread]
LS_API void ls_job_free(void *memory);

// A rank's communicator.
struct ls_comm;

// What ls_comm_open takes.
struct ls_comm_options {
    const char *collective; // "ring", "direct", "two-level:node=2", a shared object; NULL: ring
    // NULL: local between threads; between processes shared-memory on one host, ucx between hosts,
    // or both.
    const char *transport;
    const char *plugin_path; // as in ls_run_options; NULL: the job's
    uint32_t size; // ranks
    double deadline_seconds; // the longest wait for another rank; 0: 60
    const char *name; // in messages; NULL: "communicator"
    // Ranks are processes of this job; NULL: threads of this process. `name` is required then, at
    // most 200 letters, the same on all of them, and no other open communicator of the job has it.
    struct ls_job *job;
    // The processes of the job that are the ranks, in the order of ranks; `size` of them. NULL:
    // all, and `size` may be 0.
    const uint32_t *members;
    uint32_t messages; // 1: ls_comm_start_send and ls_comm_start_receive will be used
};
// `out` has room for `size` communicators; out[i] is that of rank i. With a job only members call
// this, and `out` gets one communicator; different communicators may be opened in any order, by
// several threads at the same time. [any thread]
LS_CALL ls_comm_open_sized(const struct ls_comm_options *options, size_t bytes,
                           struct ls_comm **out);
LS_INLINE_CALL ls_comm_open(const struct ls_comm_options *options, struct ls_comm **out)
{
    return ls_comm_open_sized(options, sizeof(*options), out);
}
// Takes NULL. Each rank's once, by any thread, when no call of that rank is under way; works that
// are not over end with LS_ABORTED. Others may still be in a call. Of threads what all ranks have
// is freed with the last.
LS_API void ls_comm_close(struct ls_comm *comm);
// Ends the calls of all ranks soon, with LS_ABORTED. [any thread]
LS_API void ls_comm_abort(struct ls_comm *comm);
// Which rank it is, and of how many:
LS_API uint32_t ls_comm_rank(const struct ls_comm *comm);
LS_API uint32_t ls_comm_size(const struct ls_comm *comm);
// The longest wait for another rank, of what begins from now on; above 0. [any thread]
LS_API void ls_comm_set_deadline(struct ls_comm *comm, double seconds);
// "ring over shared-memory, 4 ranks, verified": the last words are how the schedules that ran were
// checked; a single rank has none. Borrowed until the next call.
LS_API const char *ls_comm_about(struct ls_comm *comm);

// In place: every rank has the reduction of all ranks' buffers, with equal bits.
LS_CALL ls_comm_all_reduce(struct ls_comm *comm, void *buffer, uint64_t count, const char *dtype,
                           const char *reduction);
// In place: rank `root` has it; the buffers of others are undefined afterwards.
LS_CALL ls_comm_reduce(struct ls_comm *comm, void *buffer, uint64_t count, const char *dtype,
                       const char *reduction, uint32_t root);
// Every rank has what rank `root` has.
LS_CALL ls_comm_broadcast(struct ls_comm *comm, void *buffer, uint64_t count, const char *dtype,
                          uint32_t root);
// `mine`: `count` elements; `all`: `count` of each rank, in the order of ranks. `mine` may be this
// rank's part of `all`. Nothing is copied on the way where `count` is a multiple of 64.
LS_CALL ls_comm_all_gather(struct ls_comm *comm, const void *mine, uint64_t count,
                           const char *dtype, void *all);
// `all`: `count` elements for each rank; `mine`: the reduction of those for this one.
LS_CALL ls_comm_reduce_scatter(struct ls_comm *comm, const void *all, uint64_t count,
                               const char *dtype, const char *reduction, void *mine);
// Returns when all ranks have called it.
LS_CALL ls_comm_barrier(struct ls_comm *comm);

// ---- Operations that go on by themselves ----
//
// Each ls_comm_start_... begins an operation and returns a work, which goes on while the caller
// does something else. What is refused at once, as an unknown dtype, has no work; every other
// failure is the work's. The works of a communicator run in the order in which they were started;
// several threads may start works, if they agree on the order with the other ranks. A small one
// that the others have begun may be over when the call returns. Buffers belong to the work until it
// is over.
//
//     struct ls_comm_work *work;
//     ls_comm_start_all_reduce(comm, values, 1000, "float32", "mean", &work);
//     // ...
//     status = ls_comm_work_wait(work, 60);
//     ls_comm_work_free(work);

// An operation under way.
struct ls_comm_work;

// LS_AGAIN: it is not over after `seconds`; 0: only looks. Else how it ended; why it failed is the
// calling thread's ls_last_error. Several threads may wait for a work, again and again. [any
// thread]
LS_CALL ls_comm_work_wait(struct ls_comm_work *work, double seconds);
// Takes NULL. A work that is not over goes on, and its buffers are borrowed until its end, which
// comes with ls_comm_close at the latest. [any thread]
LS_API void ls_comm_work_free(struct ls_comm_work *work);

// As ls_comm_all_reduce.
LS_CALL ls_comm_start_all_reduce(struct ls_comm *comm, void *buffer, uint64_t count,
                                 const char *dtype, const char *reduction,
                                 struct ls_comm_work **out);
// As ls_comm_reduce.
LS_CALL ls_comm_start_reduce(struct ls_comm *comm, void *buffer, uint64_t count, const char *dtype,
                             const char *reduction, uint32_t root, struct ls_comm_work **out);
// As ls_comm_broadcast.
LS_CALL ls_comm_start_broadcast(struct ls_comm *comm, void *buffer, uint64_t count,
                                const char *dtype, uint32_t root, struct ls_comm_work **out);
// As ls_comm_all_gather.
LS_CALL ls_comm_start_all_gather(struct ls_comm *comm, const void *mine, uint64_t count,
                                 const char *dtype, void *all, struct ls_comm_work **out);
// As ls_comm_reduce_scatter.
LS_CALL ls_comm_start_reduce_scatter(struct ls_comm *comm, const void *all, uint64_t count,
                                     const char *dtype, const char *reduction, void *mine,
                                     struct ls_comm_work **out);
// As ls_comm_barrier.
LS_CALL ls_comm_start_barrier(struct ls_comm *comm, struct ls_comm_work **out);

// Messages between two ranks, of a communicator that was opened with `messages`. Between two ranks
// those of one tag come in the order in which they were sent. A send is over when the receiver has
// taken all of it, which it does whether or not a receive waits for it, once it has started any
// message itself; what nobody waits for is kept in its memory. A rank may send to itself. `bytes`
// may be 0. LS_FAILED: sender and receiver name different numbers of bytes; the sender is told
// where the receive was there before the message. Buffers need no alignment.
LS_CALL ls_comm_start_send(struct ls_comm *comm, const void *buffer, uint64_t bytes, uint32_t peer,
                           uint64_t tag, struct ls_comm_work **out);
#define LS_ANY_RANK UINT32_MAX // as `peer` of a receive: whoever sends first
// A receive: of that tag, of `peer`.
LS_CALL ls_comm_start_receive(struct ls_comm *comm, void *buffer, uint64_t bytes, uint32_t peer,
                              uint64_t tag, struct ls_comm_work **out);
// Of a receive that is over: the rank that has sent.
LS_API uint32_t ls_comm_work_source(const struct ls_comm_work *work);

#ifdef __cplusplus
}
#endif

#endif
