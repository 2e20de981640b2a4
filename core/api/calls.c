// SPDX-License-Identifier: Apache-2.0
// The calls of lockstep.h that can fail: they work in the C locale, and none fails without a message. Hundreds of functions below may run out of memory
// and return LS_OUT_OF_MEMORY without logging; every call passes through here, so it is logged here.
#include "core/api/listing.h"
#include "core/api/serve.h"
#include "core/base/caller.h"
#include "core/base/log.h"
#include "core/base/option_words.h"
#include "core/base/plain_locale.h"
#include "core/base/sizes.h"
#include "core/run/workers.h"
#include "core/train/callback_plugins.h"
#include "core/model/checkpoint_file.h"
#include "core/loops/distributed.h"
#include "core/train/evaluate.h"
#include "core/train/fit.h"
#include "core/loops/on_batch.h"
#include "core/train/variables.h"
#include "core/train/model_calls.h"

#include <stdarg.h>
#include <stdlib.h>

// What a call began with: errors that were logged before it are not its own.
struct call {
    const char *name;
    struct ls_run *run; // NULL: none yet
    uint64_t errors;
    locale_t locale; // of the program
};

static struct call begin(const char *name, struct ls_run *run)
{
    if (run)
        run->doing = NULL;
    return (struct call){name, run, ls_log_errors(), ls_locale_enter_plain()};
}

// A fit's `doing` stays while its callbacks call.
static struct ls_run *of_idle(const struct ls_model *model)
{
    return model->fitting == LS_FIT_NONE ? model->run : NULL;
}

static enum ls_status explain(const struct call *call, enum ls_status status)
{
    const char *doing = call->run ? call->run->doing : NULL;
    if (status == LS_OK || status == LS_INTERRUPTED || ls_log_errors() != call->errors)
        return status;
    // A worker that was lost before this call began was named when it was.
    if (status == LS_PEER_LOST && call->run && ls_cluster_check(call->run->workers.cluster, NULL))
        return status;
    if (status == LS_OUT_OF_MEMORY)
        ls_error(call->name,
                 "out of memory%s%s; smaller models and batches, and fewer replicas, need less",
                 doing ? " while " : "", doing ? doing : "");
    else
        ls_error(call->name, "%s%s%s (status %d), without a reason from a plugin or from Lockstep",
                 ls_status_text(status), doing ? " while " : "", doing ? doing : "", (int)status);
    return status;
}

static enum ls_status end(const struct call *call, enum ls_status status)
{
    status = explain(call, status);
    ls_locale_return(call->locale);
    return status;
}

// LS_USAGE, logged: one of the pointers is NULL. Each comes behind what it is expected to be; the
// last name is NULL.
static enum ls_status need(const char *call, ...)
{
    enum ls_status status = LS_OK;
    const char *expected;
    va_list list;
    va_start(list, call);
    while (!status && (expected = va_arg(list, const char *)))
        if (!va_arg(list, const void *)) {
            ls_error(call, "expected %s, got NULL", expected);
            status = LS_USAGE;
        }
    va_end(list);
    return status;
}

// What ls_data_open leaves where there is no validation split is given to other calls by mistake.
#define DATA "data (ls_data_open leaves NULL where a dataset has no validation split)"

enum ls_status ls_run_open_sized(const struct ls_run_options *options, size_t bytes,
                                 struct ls_run **out)
{
    const struct call call = begin("opening the run", NULL);
    struct ls_run_options ours;
    const enum ls_status status =
        ls_take_options("struct ls_run_options", options, bytes, &ours, sizeof(ours));
    if (!status && ours.python)
        ls_option_words_set(LS_WORDS_PYTHON);
    return end(&call, status ? status : ls_open_run(&ours, out));
}

enum ls_status ls_run_serve(struct ls_run *run)
{
    const enum ls_status missing = need("ls_run_serve", "a run", run, NULL);
    if (missing)
        return missing;
    const struct call call = begin("serving", run);
    return end(&call, ls_run_end_interruption(run, ls_serve(run)));
}

enum ls_status ls_list_plugins(const char *plugin_path, const struct ls_listed_plugin **out,
                               size_t *count)
{
    const struct call call = begin("listing plugins", NULL);
    return end(&call, ls_make_plugin_list(plugin_path, out, count));
}

enum ls_status ls_list_devices(const char *plugin_path, const struct ls_listed_device **out,
                               size_t *count)
{
    const struct call call = begin("listing devices", NULL);
    return end(&call, ls_make_device_list(plugin_path, out, count));
}

static enum ls_status register_plugin(struct ls_run *run, const struct ls_plugin *plugin)
{
    if (plugin->kind < LS_KIND_CALLBACK) {
        const char *kind = ls_kind_text(plugin->kind);
        ls_error("plugins",
                 "a %s cannot be registered: the run has chosen its own when it was opened; put a "
                 "shared object on the plugin path",
                 kind ? kind : "plugin");
        return LS_USAGE;
    }
    if (plugin->name && ls_is_built_in(plugin->kind, plugin->name)) {
        ls_error("plugins", "Lockstep has a %s %s itself; give the program's another name",
                 ls_kind_text(plugin->kind), plugin->name);
        return LS_USAGE;
    }
    return ls_loader_register(run->loader, plugin);
}

enum ls_status ls_plugin_register(struct ls_run *run, const struct ls_plugin *plugin)
{
    const enum ls_status given = need("ls_plugin_register", "a run", run, "a plugin", plugin, NULL);
    if (given)
        return given;
    const struct call call = begin("registering a plugin", run);
    return end(&call, register_plugin(run, plugin));
}

enum ls_status ls_data_open(const char *text, const char *split, struct ls_data **out)
{
    const enum ls_status given =
        need("ls_data_open", "the name of a dataset", text, "a split", split, NULL);
    if (given)
        return given;
    const struct call call = begin("opening the data", NULL);
    return end(&call, ls_open_data(NULL, text, split, out));
}

enum ls_status ls_run_data_open(struct ls_run *run, const char *text, const char *split,
                                struct ls_data **out)
{
    const enum ls_status given = need("ls_run_data_open", "a run", run, "the name of a dataset",
                                      text, "a split", split, NULL);
    if (given)
        return given;
    const struct call call = begin("opening the data", run);
    return end(&call, ls_workers_open_data(run, text, split, out));
}

enum ls_status ls_data_from_memory(const struct ls_array *inputs, uint32_t input_count,
                                   const struct ls_array *target, struct ls_data **out)
{
    const struct call call = begin("copying the data", NULL);
    const struct ls_batch_arrays arrays = {
        .inputs = inputs, .input_count = input_count, .target = target};
    return end(&call, ls_copy_data(&arrays, out));
}

enum ls_status ls_data_from_memory_weighted(const struct ls_array *inputs, uint32_t input_count,
                                            const struct ls_array *target,
                                            const struct ls_array *weights, struct ls_data **out)
{
    const struct call call = begin("copying the data", NULL);
    const struct ls_batch_arrays arrays = {
        .inputs = inputs, .input_count = input_count, .target = target, .weights = weights};
    return end(&call, ls_copy_data(&arrays, out));
}

enum ls_status ls_data_borrow(const struct ls_batch_arrays *arrays, void (*release)(void *context),
                              void *context, struct ls_data **out)
{
    const enum ls_status given = need("ls_data_borrow", "arrays", arrays, NULL);
    if (given)
        return given;
    const struct call call = begin("taking the data", NULL);
    return end(&call, ls_borrow_data(arrays, release, context, out));
}

enum ls_status ls_data_from_generator_sized(const struct ls_generator *generator, size_t bytes,
                                            struct ls_data **out)
{
    const struct call call = begin("opening the generator", NULL);
    struct ls_generator ours;
    const enum ls_status status =
        ls_take_options("struct ls_generator", generator, bytes, &ours, sizeof(ours));
    return end(&call, status ? status : ls_generate_data(&ours, out));
}

enum ls_status ls_sequential_create_sized(struct ls_run *run, const char *name,
                                          const struct ls_layer *layers, size_t bytes,
                                          struct ls_model **out)
{
    const enum ls_status given = need("ls_sequential_create", "a run", run, "layers", layers, NULL);
    if (given)
        return given;
    const struct call call = begin("building the model", run);
    struct ls_layer *ours = NULL;
    enum ls_status status = ls_take_layers(layers, bytes, &ours);
    if (!status)
        status = ls_create_sequential(run, name, ours, out);
    free(ours);
    return end(&call, status);
}

enum ls_status ls_input_sized(struct ls_run *run, const struct ls_layer *input, size_t bytes,
                              struct ls_symbol **out)
{
    const enum ls_status given = need("ls_input", "a run", run, "a layer", input, NULL);
    if (given)
        return given;
    const struct call call = begin("making an input", run);
    struct ls_layer ours;
    const enum ls_status status =
        ls_take_options("struct ls_layer", input, bytes, &ours, sizeof(ours));
    return end(&call, status ? status : ls_make_input(run, &ours, out));
}

enum ls_status ls_layer_call_sized(const struct ls_layer *layer, size_t bytes,
                                   struct ls_symbol *const *inputs, uint32_t input_count,
                                   struct ls_symbol **out)
{
    const enum ls_status given = need("ls_layer_call", "a layer", layer, "symbols", inputs, NULL);
    if (given)
        return given;
    const struct call call = begin("calling a layer", NULL);
    struct ls_layer ours;
    const enum ls_status status =
        ls_take_options("struct ls_layer", layer, bytes, &ours, sizeof(ours));
    return end(&call, status ? status : ls_symbols_call(&ours, inputs, input_count, out));
}

enum ls_status ls_layer_call_again(const struct ls_symbol *made, struct ls_symbol *const *inputs,
                                   uint32_t input_count, struct ls_symbol **out)
{
    const enum ls_status given =
        need("ls_layer_call_again", "a symbol", made, "symbols", inputs, NULL);
    if (given)
        return given;
    const struct call call = begin("calling a layer again", NULL);
    return end(&call, ls_symbols_call_again(made, inputs, input_count, out));
}

enum ls_status ls_model_call(const struct ls_model *model, struct ls_symbol *const *inputs,
                             uint32_t input_count, struct ls_symbol **outputs,
                             uint32_t output_count)
{
    const enum ls_status given = need("ls_model_call", "a model", model, "symbols", inputs, NULL);
    if (given)
        return given;
    const struct call call = begin("calling a model", NULL);
    return end(&call, ls_call_model(model, inputs, input_count, outputs, output_count));
}

enum ls_status ls_model_create(const char *name, struct ls_symbol *const *inputs,
                               uint32_t input_count, struct ls_symbol *const *outputs,
                               uint32_t output_count, struct ls_model **out)
{
    const enum ls_status given =
        need("ls_model_create", "symbols of inputs", inputs, "symbols of outputs", outputs, NULL);
    if (given)
        return given;
    const struct ls_model_ends ends = {.inputs = inputs,
                                       .outputs = outputs,
                                       .input_count = input_count,
                                       .output_count = output_count};
    const struct call call = begin("building the model", NULL);
    return end(&call, ls_create_model(name, &ends, out));
}

enum ls_status ls_model_open(struct ls_run *run, const char *name, const struct ls_data *data,
                             struct ls_model **out)
{
    const enum ls_status given =
        need("ls_model_open", "a run", run, "the name of a model", name, NULL);
    if (given)
        return given;
    const struct call call = begin("opening the model", run);
    return end(&call, ls_open_model(run, name, data, out));
}

enum ls_status ls_model_open_json(struct ls_run *run, const char *name, const char *json,
                                  const struct ls_data *data, struct ls_model **out)
{
    const enum ls_status given =
        need("ls_model_open_json", "a run", run, "the JSON of a model", json, NULL);
    if (given)
        return given;
    const struct call call = begin("opening the model", run);
    return end(&call, ls_open_model_json(run, name, json, data, out));
}

enum ls_status ls_compile_sized(struct ls_model *model, const struct ls_compile_options *options,
                                size_t bytes)
{
    const enum ls_status idle = ls_model_check_idle(model, "ls_compile");
    if (idle)
        return idle;
    const struct call call = begin("compile", model->run);
    struct ls_compile_options ours;
    const enum ls_status status =
        ls_take_options("struct ls_compile_options", options, bytes, &ours, sizeof(ours));
    return end(&call, status ? status : ls_compile_model(model, &ours));
}

enum ls_status ls_fit_sized(struct ls_model *model, struct ls_data *train,
                            const struct ls_fit_options *options, size_t bytes,
                            size_t callbacks_bytes, size_t checkpoint_bytes)
{
    enum ls_status idle = ls_model_check_idle(model, "ls_fit");
    if (!idle)
        idle = need("ls_fit", DATA, train, NULL);
    if (idle)
        return idle;
    const struct call call = begin("fit", model->run);
    struct ls_taken_fit ours;
    enum ls_status status =
        ls_take_fit_options(options, bytes, callbacks_bytes, checkpoint_bytes, &ours);
    if (!status)
        status = ls_fit_model(model, train, &ours.options);
    ls_taken_fit_finish(&ours);
    return end(&call, status);
}

enum ls_status ls_distribute_dataset_sized(struct ls_model *model, struct ls_data *data,
                                           const struct ls_distribute_options *options,
                                           size_t bytes, struct ls_distributed **out)
{
    enum ls_status idle = ls_model_check_idle(model, "ls_distribute_dataset");
    if (!idle)
        idle = need("ls_distribute_dataset", DATA, data, NULL);
    if (idle)
        return idle;
    const struct call call = begin("distributing the data", model->run);
    struct ls_distribute_options ours;
    const enum ls_status status =
        ls_take_options("struct ls_distribute_options", options, bytes, &ours, sizeof(ours));
    return end(&call, status ? status : ls_open_distributed(model, data, &ours, false, out));
}

enum ls_status ls_strategy_run(struct ls_distributed *dataset,
                               enum ls_status (*function)(struct ls_replica_context *replica,
                                                          void *context),
                               void *context)
{
    enum ls_status idle = need("ls_strategy_run", "a distributed dataset", dataset, NULL);
    if (!idle)
        idle = ls_model_check_idle(dataset->model, "ls_strategy_run");
    if (idle)
        return idle;
    const struct call call = begin("running the step function", dataset->model->run);
    return end(&call, ls_run_step_function(dataset, function, context));
}

enum ls_status ls_train_on_batch(struct ls_model *model, const struct ls_batch_arrays *batch,
                                 struct ls_metrics *out)
{
    enum ls_status idle = ls_model_check_idle(model, "ls_train_on_batch");
    if (!idle)
        idle = need("ls_train_on_batch", "a batch", batch, NULL);
    if (idle)
        return idle;
    const struct call call = begin("training on a batch", model->run);
    return end(&call, ls_train_batch(model, batch, out));
}

enum ls_status ls_test_on_batch(struct ls_model *model, const struct ls_batch_arrays *batch,
                                struct ls_metrics *out)
{
    enum ls_status idle = ls_model_check_idle(model, "ls_test_on_batch");
    if (!idle)
        idle = need("ls_test_on_batch", "a batch", batch, NULL);
    if (idle)
        return idle;
    const struct call call = begin("testing on a batch", model->run);
    return end(&call, ls_test_batch(model, batch, out));
}

enum ls_status ls_predict_on_batch(struct ls_model *model, const struct ls_array *inputs,
                                   uint32_t input_count, float *out)
{
    enum ls_status idle = ls_model_check_idle(model, "ls_predict_on_batch");
    if (!idle)
        idle = need("ls_predict_on_batch", "inputs", inputs, "room for predictions", out, NULL);
    if (idle)
        return idle;
    const struct call call = begin("predicting a batch", model->run);
    return end(&call, ls_predict_batch(model, inputs, input_count, out));
}

enum ls_status ls_check_replicas(struct ls_model *model)
{
    const enum ls_status idle = ls_model_check_idle(model, "ls_check_replicas");
    if (idle)
        return idle;
    const struct call call = begin("comparing the replicas", model->run);
    return end(&call, ls_compare_replicas(model));
}

enum ls_status ls_broadcast_variables(struct ls_model *model, uint32_t root)
{
    const enum ls_status idle = ls_model_check_idle(model, "ls_broadcast_variables");
    if (idle)
        return idle;
    const struct call call = begin("broadcasting the variables", model->run);
    return end(&call, ls_broadcast_model(model, root));
}

enum ls_status ls_evaluate(struct ls_model *model, struct ls_data *data, uint64_t batch,
                           struct ls_scores *out)
{
    enum ls_status idle = ls_model_check_idle(model, "ls_evaluate");
    if (!idle)
        idle = need("ls_evaluate", DATA, data, "room for scores", out, NULL);
    if (idle)
        return idle;
    const struct call call = begin("evaluate", model->run);
    return end(&call, ls_evaluate_model(model, data, batch, out));
}

enum ls_status ls_predict(struct ls_model *model, struct ls_data *data, uint64_t batch, float *out)
{
    enum ls_status idle = ls_model_check_idle(model, "ls_predict");
    if (!idle)
        idle = need("ls_predict", DATA, data, "room for predictions", out, NULL);
    if (idle)
        return idle;
    const struct call call = begin("predict", model->run);
    return end(&call, ls_predict_model(model, data, batch, out));
}

enum ls_status ls_predict_to_file(struct ls_model *model, struct ls_data *data, uint64_t batch,
                                  const char *path)
{
    enum ls_status idle = ls_model_check_idle(model, "ls_predict_to_file");
    if (!idle)
        idle = need("ls_predict_to_file", DATA, data, "a path", path, NULL);
    if (idle)
        return idle;
    const struct call call = begin("predict", model->run);
    return end(&call, ls_predict_model_to_file(model, data, batch, path));
}

enum ls_status ls_load_weights(struct ls_model *model, const char *path)
{
    enum ls_status idle = ls_model_check_idle(model, "ls_load_weights");
    if (!idle)
        idle = need("ls_load_weights", "a path", path, NULL);
    if (idle)
        return idle;
    const struct call call = begin("reading weights", model->run);
    return end(&call, ls_read_weights(model, path));
}

enum ls_status ls_save_weights(struct ls_model *model, const char *path)
{
    enum ls_status idle = need("ls_save_weights", "a model", model, "a path", path, NULL);
    if (!idle)
        idle = ls_model_check_resting(model, "ls_save_weights");
    if (idle)
        return idle;
    const struct call call = begin("writing weights", of_idle(model));
    return end(&call, ls_write_weights(model, path));
}

// ---- Messages ----

void ls_set_log(void (*write)(void *context, uint32_t level, const char *line), void *context)
{
    ls_log_set_writer(write, context);
}

const char *ls_last_error(void)
{
    static _Thread_local char text[1024];
    ls_caller_last_error(text, sizeof(text));
    return text;
}

// Callbacks may read and set variables while a fit runs, whose `doing` stays.
enum ls_status ls_get_variable(struct ls_model *model, uint32_t index, float *out)
{
    const struct call call = begin("reading a variable", NULL);
    return end(&call, ls_read_variable(model, index, out));
}

enum ls_status ls_set_variable(struct ls_model *model, uint32_t index, const float *values)
{
    const struct call call = begin("setting a variable", NULL);
    return end(&call, ls_write_variable(model, index, values));
}

enum ls_status ls_get_gradient(struct ls_model *model, uint32_t index, float *out)
{
    const struct call call = begin("reading a gradient", NULL);
    return end(&call, ls_read_gradient(model, index, out));
}

enum ls_status ls_callback_open(struct ls_run *run, const char *text, struct ls_callbacks **out)
{
    const enum ls_status given =
        need("ls_callback_open", "a run", run, "the name of a callback", text, NULL);
    if (given)
        return given;
    const struct call call = begin("opening a callback", run);
    return end(&call, ls_open_callback(run, text, out));
}

enum ls_status ls_set_callbacks_sized(struct ls_model *model, const struct ls_callbacks *callbacks,
                                      size_t bytes, uint32_t count)
{
    enum ls_status idle = ls_model_check_idle(model, "ls_set_callbacks");
    if (!idle && count)
        idle = need("ls_set_callbacks", "callbacks", callbacks, NULL);
    if (idle)
        return idle;
    const struct call call = begin("setting callbacks", model->run);
    return end(&call, ls_take_model_callbacks(model, callbacks, bytes, count));
}

enum ls_status ls_model_save(struct ls_model *model, const char *path)
{
    enum ls_status idle = ls_model_check_resting(model, "ls_model_save");
    if (!idle)
        idle = need("ls_model_save", "a path", path, NULL);
    if (idle)
        return idle;
    const struct call call = begin("saving the model", of_idle(model));
    const enum ls_status named = ls_model_check_file_name(path);
    return end(&call, named ? named : ls_save_model(model, path));
}

enum ls_status ls_model_load(struct ls_model *model, const char *path)
{
    enum ls_status idle = ls_model_check_idle(model, "ls_model_load");
    if (!idle)
        idle = need("ls_model_load", "a path", path, NULL);
    if (idle)
        return idle;
    const struct call call = begin("loading the model", model->run);
    return end(&call, ls_load_model(model, path));
}
