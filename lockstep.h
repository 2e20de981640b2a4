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
// Every call that can fail returns enum ls_status. When it fails, it has logged a line that says
// what, where and what to do: on stderr, or to the function given to ls_set_log. Nothing is written
// to stdout unless the options of the run ask for it. All calls of one run come from one thread,
// except ls_run_interrupt, ls_stop_training and what step functions call; different threads may use
// different runs at the same time. Names and arithmetic are Keras's. The header can also be used in
// C++, but not the macros of layers.h.
//
// Structs of options (ls_run_options, ls_compile_options, ls_fit_options, ls_checkpoint_options,
// ls_callbacks, ls_generator, ls_layer, ls_distribute_options, ls_comm_options) follow one rule:
//
// - A field that is zero has the default that its comment names, so a zeroed struct is a sensible
//   default, and so is NULL instead of a struct. If zero is a value that differs from the default,
//   such as the epochs of a fit or the momentum of a normalization, LS_ZERO stands for it.
// - A later version of Lockstep only adds fields at the end. A call that takes such a struct is an
//   inline function, which tells the library how large the struct was when the program was compiled
//   (ls_fit calls ls_fit_sized). So an old program runs with a newer library, for which fields that
//   the program does not know are zero. A new program runs with an older library as long as the
//   fields that the library does not know are zero; otherwise the call returns LS_USAGE. Languages
//   that call the shared library directly use the functions that end in _sized.
//
// All other structs, which Lockstep fills in, and struct ls_array stay as they are.
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

// From now on every line of the log goes to `write` instead of stderr: errors, warnings and notes,
// such as what was taken from a model's compile_config (`level`: enum ls_log_level). A line comes
// in one piece and without newline: "lockstep: error: optimizer: ...". Any thread calls `write`,
// one line at a time; it must not call Lockstep, except ls_last_error and ls_run_interrupt. NULL:
// stderr again.
LS_API void ls_set_log(void (*write)(void *context, uint32_t level, const char *line),
                       void *context);
// The last error line of the calls that this thread has made, even if another thread of Lockstep
// logged it; if there is none, the last one of the process; "" before the first. A call that
// succeeds does not clear it. The text is a copy for the calling thread, cut to 1,023 bytes, and
// lasts until that thread calls ls_last_error again. [any thread]
LS_API const char *ls_last_error(void);

// ---- What there is on this machine ----

// A plugin: a shared object on the search path.
struct ls_listed_plugin {
    const char *kind; // "device", "transport", "collective", "strategy", "callback", ...
    const char *name; // what options take, such as `strategy` of struct ls_run_options
    const char *version, *summary; // "" if the file could not be opened
    const char *path; // of the file; "built in" for the collective auto
    const char *reason; // why the plugin cannot be used; "" if it can be
    uint32_t usable; // 1: it can be used on this machine; 0: `reason` says why not
};
// A kind of device, for `device` of struct ls_run_options.
struct ls_listed_device {
    const char *name; // "cpu", "cuda"
    const char *hardware; // "Intel(R) Xeon(R) Processor (avx512)"; "" if it cannot be used
    const char *reason; // why it cannot be used; "" if it can
    uint32_t count; // how many the machine has; 0 if it cannot be used
    uint32_t usable; // 1: yes
};

// Lists all plugins, by kind and name. Each is opened in a child process first; devices that can be
// used are then opened in this process, too. `plugin_path` is as in struct ls_run_options; may be
// NULL. The list and its texts last until ls_free_list.
LS_CALL ls_list_plugins(const char *plugin_path, const struct ls_listed_plugin **out,
                        size_t *count);
// Lists all devices in the same way.
LS_CALL ls_list_devices(const char *plugin_path, const struct ls_listed_device **out,
                        size_t *count);
LS_API void ls_free_list(const void *list); // takes NULL

// ---- A run: strategy, device, replicas ----

// A run: a strategy with its plugins, a device, and the replicas. Models belong to a run.
struct ls_run;

// What ls_run_open takes.
struct ls_run_options {
    // "ring", "mirrored:collective=ring", ...; NULL: one-device, mirrored for more
    const char *strategy;
    // "cpu", "cuda", "reference", ...; NULL: cuda if it can run. It is replaced by cpu at the first
    // fit, evaluation or prediction that needs an operation which cuda lacks; a warning names that
    // operation, and the number of replicas stays.
    const char *device;
    uint32_t replicas; // 0: every GPU, or one on the CPU
    uint32_t threads; // per replica; 0: cores / replicas, at least one
    uint64_t seed; // of initial weights, the order of examples, dropout; 0 is a seed like any other
    // The longest wait for a peer, and the longest call of a collective's build_schedule. A call of
    // build_schedule that does not return ends the process with exit code 5, because nothing else
    // can stop it. 0: 60.
    double deadline_seconds;
    const char *plugin_path; // directories separated by ':', searched first
    // On stdout. 1: what runs, and a line for each epoch, or a bar on a terminal; 2: always a line
    // for each epoch
    uint32_t progress;
    uint32_t verbose; // 1: bucket plan, kernels and where the time goes, on stdout
    // Called when a call into a plugin does not return, after a line of the log has named the
    // plugin and the call: either the run has failed and the call of `rank` has not returned for
    // `deadline_seconds` (at least 2, at most 8), or no replica has made progress for
    // `deadline_seconds` (at least 3). Nothing that the plugin uses can be freed, so the only way
    // out is to end the process. `rank` is that of a replica of this process, or UINT32_MAX if the
    // thread that opened the run hangs. Without `stuck`, or if it returns, the run waits forever.
    // [any thread]
    void (*stuck)(uint32_t rank);
    // The dtype policy of layers whose own policy is float32, as with Keras's set_dtype_policy:
    // "mixed_bfloat16", "mixed_float16"; "float32": all layers compute in float32. NULL: what the
    // model's file says.
    const char *precision;
    const char *wire; // the type in which gradients travel: "bfloat16", "float16"; NULL: "float32"
    // A filter that sums gradients with fewer bytes, NAME[:option=value,...], as "int8:block=256"
    // or "topk:fraction=0.01" (core/plugin/filter.h). NULL: none
    const char *compress;
    // The devices of that kind that the replicas use in turn, "0,2"; NULL: all
    const char *devices;
    // The launcher that started this process as one of several workers (docs/cluster.md): "auto"
    // looks for a launcher's variables in the environment, "none" looks for nothing, "torchrun",
    // "slurm" and so on name one. NULL: "auto". Workers open the same runs, models and data, and
    // make the same calls in the same order. `replicas` are those of this worker. All workers but
    // the chief print only warnings and errors.
    const char *cluster;
    // 1: workers need no secret even where other machines reach them, and transports may use any
    // network
    uint32_t insecure;
    // "private": only trusted machines reach the network between workers, which transport ucx
    // requires beyond one host; NULL: nothing is known about it
    const char *network;
    // Seconds of silence after which a worker is lost, at least 1; 0: 3
    double silence_seconds;
    double join_seconds; // the longest wait until all workers are there; 0: 60
    // "MIN:MAX": when a worker is lost, ls_fit goes on with the others, as long as there are MIN,
    // and takes in new ones, up to MAX (docs/cluster.md). NULL: the loss of a worker ends the
    // training
    const char *elastic;
    // "2,1": weights of the workers, in their order, from 1 to 1000000; in a single process,
    // weights of the replicas. The replicas of a worker together take a part of each batch in
    // proportion to its weight, and gradients stay means over the whole batch. NULL: all replicas
    // take equal parts
    const char *share;
    // 1: from now on messages of this process, also of its other runs, name options as the Python
    // package does, `loss_scale="none"`. 0: as before; at first as fields of these structs,
    // `.loss_scale = "none"`, and calls of this header
    uint32_t python;
    // The words that started the program, the last one NULL, as argv has them: from now on reports of
    // this process have them under "made", without passwords and the like. NULL: as before; at first none
    const char *const *command_line;
    // Logical shards of each batch, at most 1024: ls_fit then gives the same bits for any number of
    // replicas up to that and any number of workers, under every strategy whose replicas step
    // together (docs/strategies.md); 8 are what the option has without a value, and True in Python.
    // `threads` 0 is 1 then. 0: bits depend on the replicas
    uint32_t reproducible;
    // What collectives are told of hosts, network cards and an order of the ranks: a network
    // file, as `lockstep simulate` takes it, the name of one of those that come with Lockstep, or
    // "sys": what Linux shows of NUMA nodes and network cards. The order decides in which order
    // values are added, so bits depend on it. NULL: hosts alone
    const char *topology;
};

// Opens a run with the plugins that the options name. Models, and everything else that is opened
// for this run, are closed before it. `options` NULL: all defaults.
LS_CALL ls_run_open_sized(const struct ls_run_options *options, size_t bytes, struct ls_run **out);
LS_INLINE_CALL ls_run_open(const struct ls_run_options *options, struct ls_run **out)
{
    return ls_run_open_sized(options, sizeof(*options), out);
}
LS_API void ls_run_close(struct ls_run *run); // after its models; takes NULL
LS_API uint32_t ls_run_replicas(const struct ls_run *run); // the number of replicas of all workers
// 1: this process has rank 0, and saves what all workers have in common.
LS_API uint32_t ls_run_is_chief(const struct ls_run *run);
// 1: this process is a parameter server (TF_CONFIG with tasks `ps`, `lockstep launch --servers=`):
// call ls_run_serve and nothing else.
LS_API uint32_t ls_run_is_server(const struct ls_run *run);
// Serves until the training is over. LS_PEER_LOST: no worker was there for `deadline_seconds`;
// LS_INTERRUPTED.
LS_CALL ls_run_serve(struct ls_run *run);
// Asks the running ls_fit, ls_evaluate or ls_predict, or else the next one, to end after the
// current step with LS_INTERRUPTED; later calls run as usual. Safe in a signal handler. [any
// thread]
LS_API void ls_run_interrupt(struct ls_run *run);

// ---- Layers, losses, metrics and datasets of one's own ----

// Registers a plugin of the program: from now on the run finds it by its name, before any file.
// `plugin` is the struct that a shared object would return from lockstep_plugin(), of kind layer,
// loss, metric, dataset or callback (core/plugin/layer.h, loss.h, metric.h, dataset.h, callback.h).
// It must last as long as the process.
//
//     ls_plugin_register(run, &rms_norm);
//     ls_sequential_create(run, "mine", (const struct ls_layer[]){
//         LS_INPUT(64), LS_LAYER("RMSNorm", .options = "{\"epsilon\": 1e-5}"), LS_DENSE(10),
//         LS_END}, &model);
//
// LS_USAGE: the plugin is of another kind, its tables are not complete, or the run has another one
// of this name.
LS_CALL ls_plugin_register(struct ls_run *run, const struct ls_plugin *plugin);

// ---- Data ----

// Examples: a split of a dataset, arrays of the program, or examples that a generator makes.
struct ls_data;

// Opens one split ("train", "test", "validation") of a dataset by name: "fashion-mnist",
// "mnist:dir=/data", "arrays:x=x.npy,y=y.npy", ... (docs/models.md). Its files are read in the
// background; the first call that needs them reports their errors. Runs of several threads may use
// the same data at once.
//
// "validation" is the last part of the training examples if the text has validation_split=, else
// the test split. If there is neither, `out` is NULL: arrays: and text: have only one split, which
// is both "train" and "test".
//
// Classes that have names in the files (a column of a table, folders of images, characters of a
// text) get the numbers that the model has learnt, in every call that uses data and model together.
// That call returns LS_BAD_INPUT if an example has a class that the model does not know
// (docs/weights.md).
//
// Any other name is that of a plugin, dataset-NAME.so in LOCKSTEP_PLUGIN_PATH or in the installed
// folder. A name that has a '/' or ends in ".so" is the file of a plugin.
LS_CALL ls_data_open(const char *text, const char *split, struct ls_data **out);
// The same with the search path of the run and the datasets that are registered with it. The data
// may outlast the run.
LS_CALL ls_run_data_open(struct ls_run *run, const char *text, const char *split,
                         struct ls_data **out);

#define LS_ARRAY_DIMS 6 // the most dimensions of an array

// Values of the program's own, in C order.
struct ls_array {
    // As in NumPy: "bool", "uint8", "int32", "int64", "float32", "float64".
    const char *dtype;
    uint32_t ndims; // at least 1: the first dimension counts the examples
    int64_t dims[LS_ARRAY_DIMS]; // sizes of the dimensions, outermost first
    const void *values; // all of them, one after the other
};
// Data from memory: an array for each input of the model (at most 8), in the order of its inputs,
// and one of targets (NULL: none; such data cannot be trained on or evaluated). All have the same
// number of examples. Values are copied, so the arrays may be freed when the call returns. Nothing
// is scaled; int64 must fit into int32, float64 is rounded to float32. Integer targets from 0 are
// classes, all others are numbers, as for mean_squared_error. The call that uses data and model
// together checks whether shapes and types fit.
//
// LS_BAD_INPUT: an unknown dtype, no values, different numbers of examples, an int64 that does not
// fit into int32. LS_USAGE: no inputs, or too many. [any thread]
LS_CALL ls_data_from_memory(const struct ls_array *inputs, uint32_t input_count,
                            const struct ls_array *target, struct ls_data **out);
// The same with a weight for each example: how much it counts in the loss, as Keras's
// sample_weight. Metrics count each example once. NULL: all weights are 1.
LS_CALL ls_data_from_memory_weighted(const struct ls_array *inputs, uint32_t input_count,
                                     const struct ls_array *target, const struct ls_array *weights,
                                     struct ls_data **out);

// Arrays of a number of examples: a batch, or all there are.
struct ls_batch_arrays {
    const struct ls_array *inputs; // one for each input of the model
    uint32_t input_count; // of them
    const struct ls_array *target; // what the output is compared with
    const struct ls_array *weights; // of the examples in the loss; NULL: all count once
    // How many `target` points to: one for each output with a loss, in the order of the outputs.
    // 0: as 1, where `target` is given. Inputs, targets and weights together are at most 10.
    uint32_t target_count;
};
// The same without a copy of what the model reads: inputs and weights of uint8, int32 and float32
// are read where they are. They must stay there unchanged until `release` is called once with
// `context`, after the data is closed and no model goes on training on it (ls_data_close). Arrays
// of other types, arrays that are not aligned to their elements, and the target, whose values are
// used as indices by the loss, are copied. If this call fails, `release` is not called. `release`
// NULL: the arrays last as long as that anyway.
LS_CALL ls_data_borrow(const struct ls_batch_arrays *arrays, void (*release)(void *context),
                       void *context, struct ls_data **out);

// A generator: the program makes examples while it trains (examples/generator.c).
struct ls_generator {
    // Shapes and types of one example: arrays without the dimension of the examples (ndims 0: a
    // single value) and without values, of uint8, int32 or float32. Otherwise as in
    // ls_data_from_memory.
    const struct ls_array *inputs;
    uint32_t input_count; // of `inputs`; 1 to 8
    const struct ls_array *target; // NULL: none
    uint32_t classes; // the target is a class, 0 to classes - 1; 0: the target is numbers
    uint64_t examples; // of an epoch; 0: not known
    // Writes `count` examples, one after the other: numbers `first` to `first` + `count` - 1 (from
    // 0) of that epoch (from 1). inputs[i] has room for count x dims values, and so has `target`
    // (NULL without one). `*filled` is `count` at first. If the number of examples is not known,
    // the generator lowers it when it has no more; else it must write all.
    //
    // A thread of Lockstep calls it, a few batches ahead of the training, one call at a time and in
    // order: examples are not shuffled. It may be asked again for examples that it has made: after
    // ls_compile or a failure, with another batch size or other data in between, and if replicas do
    // not wait for each other. A validation or prediction begins with the first example of epoch 1.
    // The function must not call Lockstep, except ls_run_interrupt. A status other than LS_OK ends
    // the training with that status. Closing the data or the model waits for a call under way. The
    // run's deadline does not apply: Lockstep waits for a slow generator, and logs a warning after
    // that time.
    enum ls_status (*fill)(void *context, uint64_t epoch, uint64_t first, uint64_t count,
                           void *const *inputs, void *target, uint64_t *filled);
    void *context; // the first argument of `fill`
};
// Data from a generator. The struct and its arrays are copied, but not `context`, which must last
// until ls_data_close and until no model goes on training on the data. If the number of examples is
// not known, the generator makes all of them now, on this thread, and they stay in memory as those
// of ls_data_from_memory do.
//
// LS_USAGE: no `fill`, no inputs or too many, a dtype other than the three. LS_BAD_INPUT: a target
// that is not a class, now or when the generator makes it. [any thread]
LS_CALL ls_data_from_generator_sized(const struct ls_generator *generator, size_t bytes,
                                     struct ls_data **out);
LS_INLINE_CALL ls_data_from_generator(const struct ls_generator *generator, struct ls_data **out)
{
    return ls_data_from_generator_sized(generator, sizeof(*generator), out);
}
// Takes NULL. The memory is freed when no model goes on training on the data: a model releases it
// at the next fit with other data, at ls_compile, ls_load_weights and ls_model_close.
LS_API void ls_data_close(struct ls_data *data);
LS_API uint64_t ls_data_count(const struct ls_data *data); // examples

// ---- Models ----

// Layers with their weights; after ls_compile also an optimizer, a loss and metrics.
struct ls_model;

// Makes a model from an array of layers (see layers.h) that ends with LS_END. `name` NULL:
// "sequential".
LS_CALL ls_sequential_create_sized(struct ls_run *run, const char *name,
                                   const struct ls_layer *layers, size_t bytes,
                                   struct ls_model **out);
LS_INLINE_CALL ls_sequential_create(struct ls_run *run, const char *name,
                                    const struct ls_layer *layers, struct ls_model **out)
{
    return ls_sequential_create_sized(run, name, layers, sizeof(*layers), out);
}
// Functional models, as in Keras: layers are called on symbols, which stand for the tensors that a
// layer will take and make, and a model is everything between some inputs and some outputs.
//
//     struct ls_symbol *x, *y, *ends[2], *sum, *scores;
//     ls_input(run, &(struct ls_layer)LS_INPUT(64), &x);
//     ls_layer_call(&(struct ls_layer)LS_DENSE(64, .activation = "relu"), &x, 1, &y);
//     ends[0] = x, ends[1] = y;
//     ls_layer_call(&(struct ls_layer)LS_ADD(), ends, 2, &sum);
//     ls_layer_call(&(struct ls_layer)LS_DENSE(10), &sum, 1, &scores);
//     ls_model_create("residual", &x, 1, &scores, 1, &model);
//
// Symbols belong to the run: ls_run_close frees them. Any number of models may be made from the
// same symbols; each has its own weights. Options of layers and shapes are checked when the model
// is created.
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
// Calls the layer that made `made` again, on other symbols: both calls use the same weights.
LS_CALL ls_layer_call_again(const struct ls_symbol *made, struct ls_symbol *const *inputs,
                            uint32_t input_count, struct ls_symbol **out);
// Calls a model as a layer. `outputs` has room for `output_count` symbols, as many as the model has
// outputs. All calls of one model share weights; these are new ones, not those of `model`. The
// model may be closed afterwards.
LS_CALL ls_model_call(const struct ls_model *model, struct ls_symbol *const *inputs,
                      uint32_t input_count, struct ls_symbol **outputs, uint32_t output_count);
// Makes the model from `inputs`, in the order in which data has them, to `outputs`; with more than
// 8 it cannot be trained. `name` NULL: "functional".
LS_CALL ls_model_create(const char *name, struct ls_symbol *const *inputs, uint32_t input_count,
                        struct ls_symbol *const *outputs, uint32_t output_count,
                        struct ls_model **out);

// Opens a built-in model by name ("cnn"), a file of Keras model JSON, or a whole model that Keras
// saved (.keras, .h5), with the weights in it. A model that does not name the shape of its input
// takes it from `data`, which may be NULL. So does a built-in one whose input has another size, and it
// has an output for each class.
LS_CALL ls_model_open(struct ls_run *run, const char *name, const struct ls_data *data,
                      struct ls_model **out);
// The same from the text of Keras model JSON itself, as Keras's `model.to_json()` returns it.
// Messages and reports call the model `name`; NULL: the name in its JSON ("sequential"), else
// "model".
LS_CALL ls_model_open_json(struct ls_run *run, const char *name, const char *json,
                           const struct ls_data *data, struct ls_model **out);
// Takes NULL. In a callback of a fit of this model, logs an error and does nothing.
LS_API void ls_model_close(struct ls_model *model);

// What ls_compile takes.
struct ls_compile_options {
    // Optimizer, loss and metrics that are NULL are those of the model's file (compile_config),
    // which is logged; else the defaults named here. Names and options are Keras's; docs/models.md
    // lists them. An object in Keras's JSON ({"class_name": "Adam", "config": {...}}), for metrics
    // a list, may be given instead.
    const char *optimizer; // "adamw:weight_decay=0.01,global_clipnorm=1"; NULL: adam
    // An optimizer of the program's own, instead of `optimizer` (core/plugin/optimizer.h); NULL:
    // none. Only on devices that compute in host memory (LS_UNAVAILABLE elsewhere).
    const struct ls_own_optimizer *own_optimizer;
    // "huber:delta=2"; NULL: chosen by the model's last layer. "none": step functions of a custom
    // loop compute it (ls_context_set_loss), and there are no other metrics. Of a model with
    // several outputs (ls_output_describe has their names) the loss is the sum of theirs: "mse" of
    // all of them, "mse,huber:delta=2" in their order, or "size=mse,kind=poisson" by their names.
    // "none", or not to be named, is to have no loss.
    const char *loss;
    // "accuracy,auc", "none"; NULL: accuracy for cross-entropy. With several outputs
    // "kind=accuracy,auc,size=mae": a metric is of the output that is named last, and is called
    // "kind_auc"; or lists in the order of the outputs, "accuracy,auc;mae".
    const char *metrics;
    const char *lr_scaling; // "none", "sqrt", "linear" with the number of replicas; NULL: none
    // "cosine_decay:decay_steps=1000", which begins with the rate of the optimizer, or with
    // initial_learning_rate=; NULL: that of the model's file if its optimizer is used, else the
    // rate is constant. docs/models.md lists all schedules.
    const char *learning_rate_schedule;
    // "dynamic", "dynamic:initial_scale=1024,dynamic_growth_steps=100", a number, "none"; NULL:
    // that of the model's file if its optimizer is used, else dynamic for mixed_float16, none for
    // others
    const char *loss_scale;
    // 1: step functions may call ls_context_output, so nothing else uses the memory of outputs.
    // With loss "none" they always may.
    uint32_t keep_outputs;
    // How often the losses of the outputs count in that of the model: "1,0.5" in their order, or
    // "size=0.5" by their names; NULL: each counts once. What is shown as the loss of an output is
    // not multiplied, as in Keras.
    const char *loss_weights;
};
// Gives the model an optimizer, a loss and metrics. Weights stay, and so does the place in the
// order of examples. The optimizer is new, as in Keras: its moments are zero and its steps count
// from 1 again; dropout, which draws from the number of the step, begins again, too. To change only
// the learning rate, use ls_set_learning_rate.
LS_CALL ls_compile_sized(struct ls_model *model, const struct ls_compile_options *options,
                         size_t bytes);
LS_INLINE_CALL ls_compile(struct ls_model *model, const struct ls_compile_options *options)
{
    return ls_compile_sized(model, options, sizeof(*options));
}
// Sets the learning rate from the next step on; the optimizer keeps its moments. `rate` is used as
// it is, without lr_scaling. LS_USAGE: the model is not compiled, or compiled with a schedule, or
// the rate is negative or not finite.
LS_CALL ls_set_learning_rate(struct ls_model *model, double rate);
LS_API double ls_learning_rate(const struct ls_model *model); // NaN before ls_compile
// 1: the loss of the model's first output takes classes, whole numbers from 0, as targets; 0: it
// does not, or the model is not compiled.
LS_API uint32_t ls_model_takes_classes(const struct ls_model *model);

// ---- Metrics and callbacks ----

// core/plugin/callback.h has the table of functions of a callback, and what they get.

// The value of the metric of that name; NaN if there is none.
LS_API double ls_metric_value(const struct ls_metrics *metrics, const char *name);

// Opens a callback by its name and Keras's options, "early_stopping:monitor=val_loss,patience=3",
// or by the path of a shared object; docs/callbacks.md lists those of Lockstep. It is passed to
// ls_fit in ls_fit_options.callbacks, together with tables of the program:
//
//     struct ls_callbacks *stopping;
//     ls_callback_open(run, "early_stopping:patience=3", &stopping);
//     const struct ls_callbacks callbacks[] = {own, *stopping};
//
// LS_USAGE: the callback has no such option. LS_UNAVAILABLE: there is no such callback.
LS_CALL ls_callback_open(struct ls_run *run, const char *text, struct ls_callbacks **out);
LS_API void ls_callback_close(struct ls_callbacks *callbacks); // before its run; takes NULL
// Sets the callbacks of ls_evaluate and ls_predict, as `callbacks` of Keras's evaluate and predict.
// The tables are copied; what their functions use must last until others are set or the model is
// closed. NULL, 0: none. LS_USAGE in a callback of the model. [main thread]
LS_CALL ls_set_callbacks_sized(struct ls_model *model, const struct ls_callbacks *callbacks,
                               size_t bytes, uint32_t count);
LS_INLINE_CALL ls_set_callbacks(struct ls_model *model, const struct ls_callbacks *callbacks,
                                uint32_t count)
{
    return ls_set_callbacks_sized(model, callbacks, sizeof(*callbacks), count);
}

// Ends the fit under way early, with LS_OK, as `model.stop_training = True` does in Keras. No other
// segment begins; within a segment the step after the one under way is the last, because all
// replicas have to hear of it. An epoch that has steps still gets its validation and its
// on_epoch_end. The next fit goes on where this one ended. [any thread]
LS_API void ls_stop_training(struct ls_model *model);
// 1: the fit under way, or the last one, was asked to end early, by ls_stop_training or by another
// worker. The next one begins with 0. [any thread]
LS_API uint32_t ls_training_is_stopped(const struct ls_model *model);

// ---- Training ----

// Checkpoints: what a fit keeps to go on after an interruption or a crash: weights, the state of
// the optimizer and of callbacks, and the place in the order of examples (docs/checkpoints.md). A
// file is written while the training goes on; an error is logged, and does not end the training.
struct ls_checkpoint_options {
    const char *folder; // is created if it is missing
    uint64_t steps; // a checkpoint after every `steps` steps of the training; 0: not by steps
    // A checkpoint after the step at which so many have passed; 0: not by time. Both 0: after each
    // epoch
    double seconds;
    const char *name; // "checkpoint-{step:08}", {epoch:03}, {val_loss:.2f}; NULL: the first
    uint32_t keep; // how many of this training are kept, the newest; 0: 3
    // "val_loss", "val_accuracy:max": only after an epoch that is the best so far; NULL: all
    const char *best;
    // 1: the model becomes that of the newest good checkpoint in the folder, and the fit goes on
    // from there as if it had never ended: epochs, steps and losses are those of the whole
    // training. If the folder has no checkpoint, the training begins; if none of its checkpoints
    // can be used, the fit is LS_BAD_INPUT. 0: a folder that has checkpoints is LS_USAGE.
    uint32_t resume;
};

// What ls_fit takes.
struct ls_fit_options {
    // Ends after so many ends of an epoch; 0: 1, or no limit if `steps` is set; LS_ZERO: nothing is
    // trained.
    uint64_t epochs;
    // Ends after so many steps, if that is earlier; 0: no limit; LS_ZERO: nothing is trained.
    uint64_t steps;
    uint64_t batch; // global; 0: replica_batch times replicas
    uint64_t replica_batch; // 0: 64
    // The number of blocks in which each share is computed; their gradients are added. 0: 1
    uint32_t microbatches;
    // The number of batches in a step: their gradients are added up on each replica, and reduced
    // and applied once, as the mean over all their examples. A step is such an update. 0: 1
    uint32_t accumulate;
    const char *shuffle; // "on", "off", or the size of a buffer; NULL: on
    struct ls_data *validation; // evaluated after each epoch; NULL: none
    uint64_t check_replicas; // compares the replicas after every so many steps; 0: only at the end
    const char *report; // path of the JSON report; NULL: none
    const char *timeline; // path of the timeline, a Chrome trace (docs/timeline.md); NULL: none
    // The steps that it covers, from 1; 0: from the first, to the last
    uint64_t timeline_first, timeline_last;
    const char *command; // the command that the report names; NULL: "train"
    // Weights of the examples of a class in the loss, "0:1.0,1:2.5"; all others are 1. NULL: all
    // are 1.
    const char *class_weight;
    const struct ls_callbacks *callbacks; // an array of `callback_count`; NULL: none
    uint32_t callback_count; // of `callbacks`
    const struct ls_checkpoint_options *checkpoints; // NULL: none are written
    uint64_t log_every; // with `progress`: a line after every so many steps; 0: none
    // As in Keras: epochs are numbered from initial_epoch + 1, and `epochs` is the number of the
    // last. Steps are counted from this fit. Not together with a resumed checkpoint, which counts
    // epochs itself.
    uint64_t initial_epoch;
    uint64_t validation_freq; // validates after each epoch whose number is a multiple of this; 0: 1
    // Numbers of the epochs, from 1, after which to validate, instead of validation_freq; NULL:
    // none. Borrowed.
    const uint64_t *validation_epochs;
    uint32_t validation_epoch_count; // of `validation_epochs`
    // 1, 2: what this fit shows, as in ls_run_options, whatever its run shows; 0: what the run says
    uint64_t progress;
};
// Trains the model on from its present state: weights, optimizer and the order of examples
// continue, so several fits of one step or one epoch give the same bits as one fit of all. `epochs`
// and `steps` count in this fit. If the last fit ended within an epoch, by `steps` or an
// interruption, the first epoch of this one is the rest of that epoch; with epochs = 1 the fit ends
// with it. With another batch size the fit goes on at the same example. With other data (another
// text or split) or another `shuffle` that rest is given up, and a new epoch begins, in an order of
// its own. After LS_INTERRUPTED the model has what it has learnt so far.
//
// Replicas, strategy and input are kept for the next ls_fit or ls_evaluate of the model, until
// ls_compile, ls_load_weights, ls_model_close or a failure. What was learnt stays on the replicas.
// ls_save_weights, and every other call that needs it, copies it to host memory, where it survives
// the failure of a replica. On a device with memory of its own, a fit of 128 steps or more, or one
// that ends with an epoch, makes this copy itself, and so does the fit after it.
//
// If a callback fails, ls_fit returns its status. LS_FAILED: the loss of a step is not finite; the
// model, its optimizer and its place in the order of examples are those from before that step.
// (With a strategy whose replicas do not wait for each other, the model has all updates that were
// applied until the fit ended, but none of that step.) If the parameters themselves are not finite,
// which is checked after each epoch, and after any other failure of a replica, the model is the
// last one that the host had; a warning says so if that is older than this fit. If replicas differ
// or do not answer, ls_fit and ls_evaluate refuse the model until ls_compile. A validation loss
// that is not finite is LS_FAILED, too, but takes nothing back.
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
// Computes loss and metrics, means over the examples. `batch` as in fit (0: 64 per replica).
LS_CALL ls_evaluate(struct ls_model *model, struct ls_data *data, uint64_t batch,
                    struct ls_scores *out);

// Computes the model's output for each example of `data`, in the order of the data, for any `batch`
// (as in ls_evaluate) and number of replicas: nothing is padded, repeated or left out. Labels are
// ignored, and the model need not be compiled. Where the model has several outputs, those of an
// example follow each other in their order (ls_output_describe): they are one row. `out` has
// room for ls_data_count(data) times ls_model_output_elements(model) floats.
LS_CALL ls_predict(struct ls_model *model, struct ls_data *data, uint64_t batch, float *out);
// The same, written to a file batch by batch: FILE.npy (float32, C order, shape (examples,
// outputs...)) or FILE.csv (a heading, then a line for each example: values with 9 digits, the name of
// its file where examples are files, and of the likeliest class where the model knows their names). Afterwards the file is
// either complete or as it was before.
LS_CALL ls_predict_to_file(struct ls_model *model, struct ls_data *data, uint64_t batch,
                           const char *path);
LS_API uint64_t ls_model_output_elements(const struct ls_model *model); // floats of a prediction
// Writes the sizes of a prediction's dimensions to `dims`, which has room for LS_ARRAY_DIMS,
// outermost first. Returns how many there are. Of several outputs: 1, the floats of a row.
LS_API uint32_t ls_model_output_shape(const struct ls_model *model, int64_t *dims);

// An output of a model.
struct ls_output {
    // As losses and metrics call it: its key in a dictionary of outputs, else the name of its layer;
    // the model's, until it is closed.
    const char *name;
    uint32_t ndims; // of an example
    uint32_t takes_classes; // 1: its loss takes classes, whole numbers from 0, as targets
    uint32_t has_loss; // 1: the model is compiled, and compares this output with targets
    int64_t dims[LS_ARRAY_DIMS]; // `ndims` sizes, outermost first
    uint64_t elements; // floats of an example
};
LS_API uint32_t ls_output_count(const struct ls_model *model); // at least 1
// Describes output `index`, from 0. LS_USAGE: there is none. [main thread]
LS_CALL ls_output_describe(const struct ls_model *model, uint32_t index, struct ls_output *out);

// The losses of the last ls_fit, even if it failed or was interrupted: one for each step, mean over
// the global batch, of the first 65,536 steps; a longer training can be several fits, which are as
// good as one. Borrowed until the next fit.
LS_API const float *ls_fit_losses(const struct ls_model *model, size_t *count);

// Its epochs: one entry for each epoch in which a step was done. Borrowed likewise.
LS_API const struct ls_epoch *ls_fit_epochs(const struct ls_model *model, size_t *count);

// Writes a table of the layers, like Keras's.
LS_API void ls_model_summary(const struct ls_model *model, FILE *out);

// Writes the model's JSON, as Keras has it, on one line. LS_FAILED: `out` does not take it.
LS_CALL ls_model_write_json(const struct ls_model *model, FILE *out);

// The number of variables of a model; they are in the order of its layers. Values are those after
// the last step. A callback of the model's own fit may read and set them on the main thread, while
// the replicas are idle: not in on_train_batch_end.
LS_API uint32_t ls_variable_count(const struct ls_model *model);
// Writes name, shape and kind of variable `index`, from 0.
LS_CALL ls_variable_describe(const struct ls_model *model, uint32_t index, struct ls_variable *out);
LS_CALL ls_get_variable(struct ls_model *model, uint32_t index, float *out); // `elements` of them
// Sets a variable: all replicas have the values before the next step. The optimizer's state stays.
LS_CALL ls_set_variable(struct ls_model *model, uint32_t index, const float *values);
// The gradient of the last step, reduced: the mean over its examples, before clipping and weight
// decay. Only in a callback of the model's fit that may read variables. Before the first step the
// values are undefined; for frozen variables they are zero. LS_USAGE: the replicas do not have it,
// as under strategies that keep variables elsewhere or in parts, or whose replicas do not wait for
// each other.
LS_CALL ls_get_gradient(struct ls_model *model, uint32_t index, float *out);
// 1: the replicas have gradients for ls_get_gradient. In such a callback, or in on_train_begin.
LS_API uint32_t ls_has_gradients(const struct ls_model *model);

// Reads weights, in the format of the file or of the suffix of its name: .safetensors, .weights.h5,
// .keras, .h5 (docs/weights.md). LS_UNAVAILABLE: this Lockstep was built without the formats of
// Keras. Tensors of safetensors have the plain layout and are named layer/variable; a prefix that
// all names share (the model's name) and Keras 2's ":0" are ignored. The file also has the names of
// the classes that were learnt.
LS_CALL ls_load_weights(struct ls_model *model, const char *path);
// Writes weights, in the format of the suffix: .safetensors, .weights.h5 or .keras; LS_USAGE for
// any other name. Callbacks that may read variables may write weights and models, too.
LS_CALL ls_save_weights(struct ls_model *model, const char *path);

// Writes a compiled model with the state of its optimizer, to go on from later, to a .safetensors
// file (docs/checkpoints.md has the format); other names are LS_USAGE. ls_model_load needs a model
// with the same variables that is compiled with the same optimizer: LS_BAD_INPUT, LS_USAGE
// otherwise. Afterwards fits go on as if the model had never been saved. Under strategy sharded all
// workers call it at the same place; with stage=3, whose replicas hold parts of the variables, also
// ls_save_weights, ls_get_variable and ls_set_variable.
LS_CALL ls_model_save(struct ls_model *model, const char *path);
// Reads a file that ls_model_save has written, as described there.
LS_CALL ls_model_load(struct ls_model *model, const char *path);

// ---- Custom training loops ----
//
// A loop of the program's own over a compiled model, with the arithmetic of ls_fit, under every
// strategy whose replicas make their steps together (docs/custom-loops.md):
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

// Data whose global batches are cut into shares, one for each replica, as ls_fit cuts them.
struct ls_distributed;
// A replica while it runs a step function; not to be used afterwards, or by another thread.
struct ls_replica_context;

// What ls_distribute_dataset takes.
struct ls_distribute_options {
    uint64_t batch, replica_batch; // as in ls_fit_options
    const char *shuffle; // as in ls_fit_options; NULL: on, for evaluation off
    // 1: step functions evaluate: ls_context_forward runs the model as ls_evaluate does, without
    // gradients. 0: they train.
    uint32_t evaluation;
};
// Prepares the replicas. Training continues in the order of examples of ls_fit, and a later ls_fit
// goes on from there. `data` may be closed afterwards.
//
// LS_USAGE: the model is not compiled, there are more replicas than examples, the replicas of the
// strategy do not wait for each other (parameter-server without mode=sync), or a `reproducible` run
// does not have one replica for each logical shard, or the data is for evaluation. LS_BAD_INPUT: the
// data does not fit the model.
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
// 1: the epoch has another batch, for the next ls_strategy_run. 0, once: the epoch has ended; the
// next batch is the first of another epoch, in an order of its own.
LS_API uint32_t ls_distributed_next(struct ls_distributed *dataset);

// Runs `function` on the next batch, on the threads of all replicas at the same time, and waits for
// them. The function may call the ls_context_... calls, communicators (ls_comm_...) and
// ls_last_error; all replicas share `context`. A training step is ls_context_forward,
// ls_context_gradients and ls_context_apply, in this order, once: on all replicas, or on none.
//
// If the function returns a status other than LS_OK on some replica, or does not end a step that it
// has begun, the other replicas are woken and the call fails with that status; LS_USAGE if calls
// were made in the wrong order, or not on all replicas. If no replica had begun its step, the model
// stays as it is and the batch is still the next one. Else the model is the last one that the host
// had, and a warning says so: that of the last ls_get_variable or ls_model_save, or if the epoch
// began 32 steps ago or more, at the latest that of its beginning. LS_FAILED: a loss is not finite;
// the model is that from before the step. LS_PEER_LOST: a replica did not come to its next call in
// time (deadline_seconds). LS_INTERRUPTED: ls_run_interrupt was called; the function was not
// called. A function that does not return cannot be ended: see `stuck` of the run.
LS_CALL ls_strategy_run(struct ls_distributed *dataset,
                        enum ls_status (*function)(struct ls_replica_context *replica,
                                                   void *context),
                        void *context);

// Computes the sum or mean ("sum", "mean") over all replicas, added in the order of their ranks.
// `values` has `count` numbers for each replica of this process, one replica after the other; `out`
// gets `count`. LS_USAGE: any other reduction.
LS_CALL ls_strategy_reduce(struct ls_run *run, const char *reduction, const double *values,
                           uint32_t count, double *out);
// Collects the values of all replicas in the order of their ranks: `out` gets `count` times
// ls_run_replicas numbers.
LS_CALL ls_strategy_gather(struct ls_run *run, const double *values, uint32_t count, double *out);

// "loss" and the metrics of the model, of the last run (`step`) and of all runs since the metrics
// were reset (`all`), counting runs whose functions called ls_context_update_metrics. NaN before
// the first. In training they have the same bits as with ls_fit; `step` has those of ls_fit_losses.
// Either may be NULL.
LS_API void ls_strategy_metrics(const struct ls_distributed *dataset, struct ls_metrics *step,
                                struct ls_metrics *all);
// Resets the metrics, as at the beginning of an epoch.
LS_API void ls_strategy_reset_metrics(struct ls_distributed *dataset);

// Gives all replicas the variables of rank `root`, with the state of the optimizer if replicas hold
// it. They are always equal, unless a plugin or an update function of the program's own
// (ls_own_optimizer) made them differ. LS_USAGE: there is no such rank.
LS_CALL ls_broadcast_variables(struct ls_model *model, uint32_t root);

// Compares the variables of all replicas, bit for bit. LS_FAILED, with ranks and hashes: they
// differ; the model is then the last one that the host had, and is refused until ls_compile.
LS_CALL ls_check_replicas(struct ls_model *model);

// ---- In a step function ----
//
// All of these are called on the thread of the replica [step function]. If one fails, it has logged
// why, and ls_strategy_run fails with its status, even if the function returns LS_OK.

// The number of the replica among all and among those of this process, and the number of all
// replicas. Replica i of a process computes on device i modulo the number of devices:
LS_API uint32_t ls_context_rank(const struct ls_replica_context *replica);
LS_API uint32_t ls_context_local_rank(const struct ls_replica_context *replica);
LS_API uint32_t ls_context_world(const struct ls_replica_context *replica);
LS_API uint32_t ls_context_is_chief(const struct ls_replica_context *replica); // 1: rank 0
// The number, from 1, of the model's step that this training step is.
LS_API uint64_t ls_context_step(const struct ls_replica_context *replica);
// The number of examples in this replica's share, which may be 0 at the end of an epoch, and in the
// batch:
LS_API uint64_t ls_context_examples(const struct ls_replica_context *replica);
LS_API uint64_t ls_context_global_examples(const struct ls_replica_context *replica);

// The examples of this replica's share: (examples, dimensions...) in the type that the model reads,
// or uint8 if the device converts bytes to float32. Targets: int32 for classes, else float32.
// Borrowed until the function returns:
LS_CALL ls_context_input(struct ls_replica_context *replica, uint32_t index, struct ls_array *out);
LS_CALL ls_context_target(struct ls_replica_context *replica, struct ls_array *out);

// Runs the model forward on the share: in training with dropout and statistics of the batch, in
// evaluation without.
LS_CALL ls_context_forward(struct ls_replica_context *replica);
// Writes the sum of the examples' losses, by the loss of ls_compile, and the number of examples
// (the sum of their weights, if they have weights). After forward and before gradients. Waits for
// the device. Either may be NULL.
LS_CALL ls_context_loss(struct ls_replica_context *replica, double *sum, double *examples);
// The model's output, (examples, outputs...) of float32, plain. After forward and before gradients,
// with loss "none" or keep_outputs. Borrowed until ls_context_gradients. On a device that computes
// in host memory it is the device's own buffer, else a copy, which waits for the device.
LS_CALL ls_context_output(struct ls_replica_context *replica, struct ls_array *out);
// Both are for loss "none", and are called after forward and before gradients, unless the share is
// empty. The first returns room for d(loss) / d(output), as many floats as the output has, which
// the function fills in; the loss is the mean over the global batch, so multiply by 1.0f /
// ls_context_global_examples, as ls_fit does. The second takes the sum of the losses of this
// share's examples, which must be finite; the metric "loss" is made from it. Lockstep applies a
// loss scale itself:
LS_CALL ls_context_output_gradient(struct ls_replica_context *replica, float **out);
LS_CALL ls_context_set_loss(struct ls_replica_context *replica, double sum);

// Makes this run count in the metrics. After forward; all replicas call it, or none.
LS_CALL ls_context_update_metrics(struct ls_replica_context *replica);
// Runs the model backward. The gradients are those of the mean loss of the global batch. The
// strategy begins to reduce each bucket as soon as it is complete, while the others are still being
// computed.
LS_CALL ls_context_gradients(struct ls_replica_context *replica);
// Ends the reduction and updates the variables as the strategy does. Waits for the other replicas.
LS_CALL ls_context_apply(struct ls_replica_context *replica);
// ls_context_gradients and ls_context_apply, as `optimizer.minimize`.
LS_CALL ls_context_minimize(struct ls_replica_context *replica);

// ---- A batch from memory ----

// Makes one training step on the whole batch, which is divided among the replicas; its values are
// copied. The order in which ls_fit goes through its own data stays as it is. `out` (may be NULL):
// "loss" and the metrics of this batch alone. LS_USAGE: there are fewer examples than replicas, or
// the replicas of the strategy do not wait for each other. Failures of the step are as in ls_fit.
LS_CALL ls_train_on_batch(struct ls_model *model, const struct ls_batch_arrays *batch,
                          struct ls_metrics *out);
// Evaluates the batch in the same way.
LS_CALL ls_test_on_batch(struct ls_model *model, const struct ls_batch_arrays *batch,
                         struct ls_metrics *out);
// Computes the model's output for each example, as ls_predict.
LS_CALL ls_predict_on_batch(struct ls_model *model, const struct ls_array *inputs,
                            uint32_t input_count, float *out);

// ---- Communication without a model ----
//
// Collectives on buffers of the program's own, by any collective plugin, in the manner of MPI, NCCL
// and Horovod. They need no run and no model, and share nothing with existing ones. The ranks of a
// communicator are threads of one process, or the processes of a job, one rank each.
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
// All ranks make the same calls in the same order, each with its own communicator, which only one
// thread uses at a time. A call returns when this rank's result is there. `count` is in elements,
// may be 0, and is the same on all ranks. Buffers are in host memory, aligned to their elements,
// and stay the caller's. dtypes: "float32", "float64", "float16", "bfloat16", "int32", "int64",
// "uint8". Reductions: "sum", "mean" (rounded once; integers towards zero), "min", "max",
// "product". A mean of halves or integers does not overflow: halves are added in float32 and
// integers in a type twice as wide, so that their mean moves twice the bytes of a sum ("uint8":
// four times). "float32" and "float64" are added in their own type.
//
// LS_PEER_LOST: a rank did not come in time, or its process is lost; the message names the rank,
// and the call that it has not made. LS_FAILED: ranks made different calls, which the message
// names, or a collective is wrong (its schedule is verified before it runs). LS_USAGE: the dtype or
// reduction is unknown, or the root is no rank; and every call in a forked child of the process
// that opened the job or the communicator (the child may open its own). LS_ABORTED: another rank
// failed, or ls_comm_abort was called. After a failure in a call that other ranks have begun, the
// communicator cannot be used any more: close it on all ranks.

// A job: processes of the program's own that communicate without a model, and notice when one of
// them is lost. The program starts them, and gives each its number.
struct ls_job;

// What ls_job_open takes.
struct ls_job_options {
    uint32_t rank, size; // number of this process, from 0, and number of processes
    const char *address; // "host:port" at which process 0 listens; NULL: `size` is 1
    // In process 0: a socket that already listens there, which the job takes over; 0: none.
    int32_t listen_fd;
    // A secret of 16 to 4096 letters that only these processes know. NULL: none, which is refused
    // if `address` is not a loopback address, unless `insecure` is 1.
    const char *secret;
    uint32_t insecure; // 1: no secret is needed, even if other machines reach process 0
    double join_seconds; // the longest wait until all processes have joined; 0: 60
    double deadline_seconds; // the longest wait for process 0 later; 0: 300
    double lost_after_seconds; // silence after which a process is lost, at least 1; 0: 3
    const char *network; // as in ls_run_options
    const char *plugin_path; // likewise
};
// Returns when all processes have joined. LS_PEER_LOST: one did not. LS_USAGE: the options of the
// processes, or their secrets, differ. [any thread]
LS_CALL ls_job_open_sized(const struct ls_job_options *options, size_t bytes, struct ls_job **out);
LS_INLINE_CALL ls_job_open(const struct ls_job_options *options, struct ls_job **out)
{
    return ls_job_open_sized(options, sizeof(*options), out);
}
// Leaves the job, so that the others do not count this process as lost. Takes NULL. All
// communicators must be closed before. To open new communicators the others need process 0; for
// open ones they do not.
LS_API void ls_job_close(struct ls_job *job);
// NULL, or a sentence that names a lost process, and why it is lost. Borrowed. [any thread]
LS_API const char *ls_job_lost(const struct ls_job *job);
// Makes the others count this process as lost at once, for this reason, and ends all communicators
// of the job in this process. [any thread]
LS_API void ls_job_give_up(struct ls_job *job, const char *why);
// Allocates `bytes` bytes of memory, aligned to a page, that the other processes of this host can
// reach: communicators that are opened after the job read and write it where it is. Other memory is
// copied for them, which takes two to three times as long. A forked process shares it with its
// parent. [any thread]
LS_CALL ls_job_allocate(struct ls_job *job, uint64_t bytes, void **out);
// Takes NULL. May be called after the job was closed. [any thread]
LS_API void ls_job_free(void *memory);

// A rank's communicator.
struct ls_comm;

// What ls_comm_open takes.
struct ls_comm_options {
    const char *collective; // "ring", "direct", "two-level:node=2", a shared object; NULL: ring
    // NULL: local for threads; for processes shared-memory within a host, ucx between hosts, or
    // both.
    const char *transport;
    const char *plugin_path; // as in ls_run_options; NULL: the job's
    uint32_t size; // ranks
    double deadline_seconds; // the longest wait for another rank; 0: 60
    const char *name; // in messages; NULL: "communicator"
    // The ranks are processes of this job; NULL: threads of this process. With a job `name` is
    // required: at most 200 letters, the same on all ranks, and different from those of all other
    // open communicators of the job.
    struct ls_job *job;
    // The processes of the job that are the ranks, `size` of them, in the order of the ranks. NULL:
    // all, and `size` may be 0.
    const uint32_t *members;
    uint32_t messages; // 1: ls_comm_start_send and ls_comm_start_receive will be used
};
// Opens a communicator. `out` has room for `size` communicators; out[i] is that of rank i. With a
// job only members call this, and `out` gets one communicator. Several threads may open different
// communicators at the same time, in any order. [any thread]
LS_CALL ls_comm_open_sized(const struct ls_comm_options *options, size_t bytes,
                           struct ls_comm **out);
LS_INLINE_CALL ls_comm_open(const struct ls_comm_options *options, struct ls_comm **out)
{
    return ls_comm_open_sized(options, sizeof(*options), out);
}
// Takes NULL. Called once for each rank, by any thread, when no call of that rank is under way;
// works that are not over end with LS_ABORTED. Other ranks may still be in a call. If ranks are
// threads, the last close frees what they share.
LS_API void ls_comm_close(struct ls_comm *comm);
// Ends the calls of all ranks soon, with LS_ABORTED. [any thread]
LS_API void ls_comm_abort(struct ls_comm *comm);
// The number of the rank, and the number of ranks:
LS_API uint32_t ls_comm_rank(const struct ls_comm *comm);
LS_API uint32_t ls_comm_size(const struct ls_comm *comm);
// Sets the longest wait for another rank, for calls and works that begin from now on; above 0. [any
// thread]
LS_API void ls_comm_set_deadline(struct ls_comm *comm, double seconds);
// "ring over shared-memory, 4 ranks, verified": the last words say how the schedules that ran were
// checked; a single rank has none. Borrowed until the next call.
LS_API const char *ls_comm_about(struct ls_comm *comm);

// In place: every rank gets the reduction of all ranks' buffers, with equal bits.
LS_CALL ls_comm_all_reduce(struct ls_comm *comm, void *buffer, uint64_t count, const char *dtype,
                           const char *reduction);
// In place: rank `root` gets the reduction; the buffers of the others are undefined afterwards.
LS_CALL ls_comm_reduce(struct ls_comm *comm, void *buffer, uint64_t count, const char *dtype,
                       const char *reduction, uint32_t root);
// In place: every rank gets the buffer of rank `root`.
LS_CALL ls_comm_broadcast(struct ls_comm *comm, void *buffer, uint64_t count, const char *dtype,
                          uint32_t root);
// `mine`: `count` elements; `all`: `count` of each rank, in the order of ranks. `mine` may be this
// rank's part of `all`. If `count` is a multiple of 64, no extra copy is made.
LS_CALL ls_comm_all_gather(struct ls_comm *comm, const void *mine, uint64_t count,
                           const char *dtype, void *all);
// `all`: `count` elements for each rank; `mine`: the reduction of those for this rank.
LS_CALL ls_comm_reduce_scatter(struct ls_comm *comm, const void *all, uint64_t count,
                               const char *dtype, const char *reduction, void *mine);
// `from`: `count` elements for each rank, in their order; `to`: the `count` elements that each rank
// sends to this one. `to` may be `from`, which is in place; else they do not overlap.
LS_CALL ls_comm_all_to_all(struct ls_comm *comm, const void *from, uint64_t count,
                           const char *dtype, void *to);
// Returns when all ranks have called it.
LS_CALL ls_comm_barrier(struct ls_comm *comm);

// ---- Operations that go on by themselves ----
//
// Each ls_comm_start_... begins an operation and returns a work, which goes on while the caller
// does something else. An error that is found at once, such as an unknown dtype, is returned
// without a work; every other error is that of the work. The works of a communicator run in the
// order in which they were started; several threads may start works if their order is the same on
// all ranks. A small operation that the other ranks have begun may be over when the call returns.
// Buffers belong to the work until it is over.
//
//     struct ls_comm_work *work;
//     ls_comm_start_all_reduce(comm, values, 1000, "float32", "mean", &work);
//     // ...
//     status = ls_comm_work_wait(work, 60);
//     ls_comm_work_free(work);

// An operation under way.
struct ls_comm_work;

// Waits for a work for at most `seconds`; 0: only checks. LS_AGAIN: it is not over. Else the status
// with which it ended; if that is an error, ls_last_error of the calling thread says why. Several
// threads may wait for the same work, and more than once. [any thread]
LS_CALL ls_comm_work_wait(struct ls_comm_work *work, double seconds);
// Takes NULL. A work that is not over goes on, and its buffers are borrowed until it is, at the
// latest until ls_comm_close. [any thread]
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
// As ls_comm_all_to_all.
LS_CALL ls_comm_start_all_to_all(struct ls_comm *comm, const void *from, uint64_t count,
                                 const char *dtype, void *to, struct ls_comm_work **out);
// As ls_comm_barrier.
LS_CALL ls_comm_start_barrier(struct ls_comm *comm, struct ls_comm_work **out);

// Sends a message to rank `peer`, on a communicator that was opened with `messages`. Messages of
// one tag between two ranks arrive in the order in which they were sent. A send is over when the
// receiver has all of it. Once a rank has started any send or receive, it accepts messages for
// which no receive waits, and keeps them in memory. A rank may send to itself. `bytes` may be 0.
// LS_FAILED: sender and receiver name different numbers of bytes; the sender gets this error only
// if the receive was started before the message came. Buffers need no alignment.
LS_CALL ls_comm_start_send(struct ls_comm *comm, const void *buffer, uint64_t bytes, uint32_t peer,
                           uint64_t tag, struct ls_comm_work **out);
#define LS_ANY_RANK UINT32_MAX // as `peer` of a receive: any rank
// Receives a message with that tag from `peer`.
LS_CALL ls_comm_start_receive(struct ls_comm *comm, void *buffer, uint64_t bytes, uint32_t peer,
                              uint64_t tag, struct ls_comm_work **out);
// The rank whose message a receive got; the receive must be over.
LS_API uint32_t ls_comm_work_source(const struct ls_comm_work *work);

#ifdef __cplusplus
}
#endif

#endif
