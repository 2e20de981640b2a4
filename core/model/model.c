// SPDX-License-Identifier: Apache-2.0
// Models: opening, what they are compiled to, and the check that data fits them.
#include "core/model/model.h"

#include "core/base/dtype.h"
#include "core/base/keras_names.h"
#include "core/base/log.h"
#include "core/base/memory.h"
#include "core/formats/safetensors.h"
#include "core/data/gather.h"
#include "core/model/built_in.h"
#include "core/model/compiled.h"
#include "core/model/losses.h"
#include "core/run/resource_files.h"
#include "core/model/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum ls_status create(struct ls_run *run, const char *source, struct ls_model **out)
{
    struct ls_model *model = calloc(1, sizeof(*model));
    if (!model)
        return LS_OUT_OF_MEMORY;
    model->run = run;
    model->source = strdup(source);
    if (!model->source) {
        ls_model_destroy(model);
        return LS_OUT_OF_MEMORY;
    }
    *out = model;
    return LS_OK;
}

static enum ls_status build(const struct ls_model *model, struct ls_graph **out)
{
    return ls_model_build_with(model->source, model->json,
                               model->input.ndims ? &model->input : NULL, model->run->precision,
                               model->run->parts, out);
}

enum ls_status ls_create_sequential(struct ls_run *run, const char *name,
                                    const struct ls_layer *layers, struct ls_model **out)
{
    struct ls_model *model = NULL;
    enum ls_status status = create(run, name ? name : "sequential", &model);
    if (!status)
        status = ls_sequential_json(name, layers, &model->json);
    if (!status)
        status = build(model, &model->graph);
    if (status) {
        ls_model_destroy(model);
        return status;
    }
    *out = model;
    return LS_OK;
}

enum ls_status ls_make_input(struct ls_run *run, const struct ls_layer *input,
                             struct ls_symbol **out)
{
    enum ls_status status = run->symbols ? LS_OK : ls_symbols_create(run, &run->symbols);
    return status ? status : ls_symbols_input(run->symbols, input, out);
}

enum ls_status ls_call_model(const struct ls_model *model, struct ls_symbol *const *inputs,
                             uint32_t input_count, struct ls_symbol **outputs,
                             uint32_t output_count)
{
    const struct ls_symbols_model called = {.name = model->source,
                                            .json = model->json,
                                            .input_count = model->graph->input_count,
                                            .output_count = model->graph->output_count,
                                            .key = model};
    if (output_count == model->graph->output_count)
        return ls_symbols_call_model(&called, inputs, input_count, outputs);
    ls_error(model->source, "the model has %u output%s, not %u", model->graph->output_count,
             model->graph->output_count == 1 ? "" : "s", output_count);
    return LS_BAD_INPUT;
}

enum ls_status ls_create_model(const char *name, const struct ls_model_ends *ends,
                               struct ls_model **out)
{
    struct ls_model *model = NULL;
    json_t *json = NULL;
    enum ls_status status = ls_functional_json(name, ends, &json);
    if (!status)
        status = create(ls_symbol_owner(ends->outputs[0]), name ? name : "functional", &model);
    if (status) {
        json_decref(json);
        return status;
    }
    model->json = json;
    status = build(model, &model->graph);
    if (status) {
        ls_model_destroy(model);
        return status;
    }
    *out = model;
    return LS_OK;
}

// What the weights of a built-in model, which are loaded next, say of its outputs. Other files than
// .safetensors say nothing here.
static enum ls_status take_data(const struct ls_data *data, const char *weights, json_t *model)
{
    const size_t length = weights ? strlen(weights) : 0;
    struct ls_safetensors *file = NULL;
    enum ls_status status = LS_OK;
    if (length > 12 && strcmp(weights + length - 12, ".safetensors") == 0)
        status = ls_safetensors_open(weights, &file);
    if (!status)
        ls_built_in_take(model, data, file);
    ls_safetensors_close(file);
    return status;
}

enum ls_status ls_open_model(struct ls_run *run, const char *name, const struct ls_data *data,
                             struct ls_model **out)
{
    return ls_open_model_for_weights(run, name, data, NULL, out);
}

enum ls_status ls_open_model_for_weights(struct ls_run *run, const char *name,
                                         const struct ls_data *data, const char *weights_path,
                                         struct ls_model **out)
{
    struct ls_model *model = NULL;
    struct ls_safetensors *weights = NULL; // of a file of Keras that has them, too
    struct ls_found_weights found = {0};
    char *path = NULL;
    enum ls_status status = ls_model_find(name, &path);
    if (!status)
        status = create(run, name, &model);
    if (!status && data)
        ls_model_input_shape(&data->info, &model->input);
    if (!status)
        status = ls_read_model(path, &model->json, &weights);
    if (!status && strcmp(path, name) != 0) // it was found by its name
        status = take_data(data, weights_path, model->json);
    if (!status)
        status = build(model, &model->graph);
    if (!status && weights) {
        status = ls_weights_match(model, path, weights, true, &found);
        if (!status)
            status = ls_model_need_weights(model);
        if (!status)
            status = ls_weights_take(model, &found);
    }
    ls_found_weights_finish(&found);
    ls_safetensors_close(weights);
    free(path);
    if (status) {
        ls_model_destroy(model);
        return status;
    }
    *out = model;
    return LS_OK;
}

// Of a list of layers, as Keras 2 wrote it, there is none.
static const char *own_name(const json_t *json)
{
    const char *name = json_string_value(json_object_get(json_object_get(json, "config"), "name"));
    return name && name[0] ? name : "model";
}

enum ls_status ls_open_model_json(struct ls_run *run, const char *name, const char *text,
                                  const struct ls_data *data, struct ls_model **out)
{
    struct ls_model *model = NULL;
    json_t *json = NULL;
    enum ls_status status = ls_model_parse(name ? name : "model", NULL, text, strlen(text), &json);
    if (!status)
        status = create(run, name ? name : own_name(json), &model);
    if (status) {
        json_decref(json);
        return status;
    }
    model->json = json;
    if (data)
        ls_model_input_shape(&data->info, &model->input);
    status = build(model, &model->graph);
    if (status) {
        ls_model_destroy(model);
        return status;
    }
    *out = model;
    return LS_OK;
}

void ls_model_free(const struct ls_model *model, float **buffers)
{
    for (uint32_t i = 0; buffers && i < model->graph->parameter_count; i++)
        free(buffers[i]);
    free(buffers);
}

void ls_model_destroy(struct ls_model *model)
{
    if (!model)
        return;
    if (model->run->symbols)
        ls_symbols_forget_model(model->run->symbols, model);
    ls_model_forget_values(model);
    ls_graph_destroy(model->graph);
    json_decref(model->json);
    free(model->losses);
    free(model->skipped);
    free(model->schedule);
    free(model->epochs);
    free(model->source);
    free(model->callbacks);
    ls_class_names_destroy(model->class_names);
    free(model);
}

uint64_t ls_model_output_elements(const struct ls_model *model)
{
    return ls_graph_output_elements(model->graph);
}

uint32_t ls_model_output_shape(const struct ls_model *model, int64_t *dims)
{
    const struct ls_shape *shape = &model->graph->outputs[0]->shape;
    if (model->graph->output_count > 1) {
        dims[0] = (int64_t)ls_model_output_elements(model);
        return 1;
    }
    memcpy(dims, shape->dims + 1, (shape->ndims - 1) * sizeof(*dims));
    return shape->ndims - 1;
}

uint32_t ls_output_count(const struct ls_model *model)
{
    return model->graph->output_count;
}

enum ls_status ls_output_describe(const struct ls_model *model, uint32_t index,
                                  struct ls_output *out)
{
    const struct ls_graph *graph = model->graph;
    if (index >= graph->output_count) {
        ls_error("ls_output_describe", "output %u of %u", index, graph->output_count);
        return LS_USAGE;
    }
    const struct ls_shape *shape = &graph->outputs[index]->shape;
    const struct ls_loss *loss =
        model->compiled && index < model->loss.count ? &model->loss.list[index] : NULL;
    *out = (struct ls_output){.name = ls_graph_output_name(graph, index),
                              .ndims = shape->ndims - 1,
                              .takes_classes = loss && ls_loss_takes_classes(loss),
                              .has_loss = loss && loss->kind != LS_LOSS_NONE,
                              .elements = (uint64_t)ls_shape_elements(shape, 1)};
    memcpy(out->dims, shape->dims + 1, out->ndims * sizeof(out->dims[0]));
    return LS_OK;
}

uint64_t ls_model_parameters(const struct ls_model *model)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < model->graph->parameter_count; i++)
        if (!model->graph->parameters[i]->constant)
            count += (uint64_t)ls_shape_elements(&model->graph->parameters[i]->shape, 1);
    return count;
}

enum ls_status ls_model_allocate(const struct ls_model *model, float ***out)
{
    const uint32_t count = model->graph->parameter_count;
    float **buffers = calloc((size_t)count + 1, sizeof(*buffers));
    if (!buffers)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        const struct ls_tensor *parameter = model->graph->parameters[i];
        buffers[i] =
            ls_malloc_aligned((size_t)ls_shape_elements(&parameter->shape, 1) * sizeof(float));
        if (!buffers[i]) {
            ls_model_free(model, buffers);
            return LS_OUT_OF_MEMORY;
        }
    }
    *out = buffers;
    return LS_OK;
}

void ls_saved_values_destroy(struct ls_saved_values *saved)
{
    if (!saved)
        return;
    ls_safetensors_close(saved->file);
    free(saved->tensors);
    free(saved);
}

void ls_model_forget_values(struct ls_model *model)
{
    ls_saved_values_destroy(model->saved);
    model->saved = NULL;
    ls_model_free(model, model->weights);
    model->weights = NULL;
    for (uint32_t i = 0; i < LS_OPTIMIZER_STATES; i++) {
        ls_model_free(model, model->states[i]);
        model->states[i] = NULL;
    }
}

// NULL: it is not saved. Losses and metrics may have added constants behind the saved ones.
static const struct ls_saved_tensor *saved_tensor(const struct ls_model *model, uint32_t parameter,
                                                  int state)
{
    const struct ls_saved_values *saved = model->saved;
    if (!saved || parameter >= saved->parameters || state >= (int)saved->states)
        return NULL;
    return saved->tensors[(size_t)parameter * (1 + saved->states) + (size_t)(1 + state)];
}

bool ls_model_has_saved(const struct ls_model *model, uint32_t parameter, int state)
{
    return saved_tensor(model, parameter, state) != NULL;
}

enum ls_status ls_model_read_values(const struct ls_model *model, uint32_t parameter, int state,
                                    float *out)
{
    const struct ls_tensor *tensor = model->graph->parameters[parameter];
    const struct ls_saved_tensor *saved = saved_tensor(model, parameter, state);
    if (saved)
        return ls_safetensors_read(model->saved->file, saved, out);
    if (state < 0)
        ls_initialize(tensor, model->run->seed, out);
    for (int64_t i = 0; state >= 0 && i < ls_shape_elements(&tensor->shape, 1); i++)
        out[i] = model->optimizer.initial[state];
    return LS_OK;
}

static enum ls_status read_all(const struct ls_model *model, int state, float ***out)
{
    float **values = NULL;
    enum ls_status status = ls_model_allocate(model, &values);
    for (uint32_t i = 0; !status && i < model->graph->parameter_count; i++)
        status = ls_model_read_values(model, i, state, values[i]);
    if (status)
        ls_model_free(model, values);
    else
        *out = values;
    return status;
}

enum ls_status ls_model_need_weights(struct ls_model *model)
{
    return model->weights ? LS_OK : read_all(model, -1, &model->weights);
}

enum ls_status ls_model_need_states(struct ls_model *model, uint32_t index)
{
    return model->states[index] ? LS_OK : read_all(model, (int)index, &model->states[index]);
}

enum ls_status ls_model_need_saved_states(struct ls_model *model)
{
    enum ls_status status = LS_OK;
    for (uint32_t k = 0; !status && k < model->optimizer.state_count; k++) {
        bool saved = false;
        for (uint32_t i = 0; i < model->graph->parameter_count; i++)
            saved = saved || ls_model_has_saved(model, i, (int)k);
        status = saved ? ls_model_need_states(model, k) : LS_OK;
    }
    return status;
}

enum ls_status ls_model_settle_saved(struct ls_model *model)
{
    enum ls_status status = model->saved ? ls_model_need_weights(model) : LS_OK;
    if (!status)
        status = ls_model_need_saved_states(model);
    if (status)
        return status;
    ls_saved_values_destroy(model->saved);
    model->saved = NULL;
    return LS_OK;
}

// ---- What replicas are ahead of ----

void ls_model_say_back(const struct ls_model *model, uint64_t steps)
{
    if (model->steps_done < steps)
        ls_warn("train", "model '%s' is what it was after step %llu again, not after step %llu",
                model->source, (unsigned long long)model->steps_done, (unsigned long long)steps);
}

// The state of the optimizer that the host has belongs to other weights, once these were taken
// without it.
void ls_model_give_up(struct ls_model *model)
{
    if (model->states_ahead && !model->ahead)
        model->refused = LS_REFUSED_STATES;
    if (model->ahead) {
        model->steps_done = model->on_host.steps_done;
        model->scale = model->on_host.scale;
        model->order = model->on_host.order;
    }
    model->ahead = model->states_ahead = false;
}

// ---- Compiling ----

// Keras trains labels 0 and 1 on binary_crossentropy, but nobody has said that these are labels.
static void say_loss_of_sigmoid(const struct ls_model *model, uint32_t index)
{
    const struct ls_tensor *output = model->graph->outputs[index];
    const struct ls_operation *last =
        output->producer >= 0 ? &model->graph->operations[output->producer] : NULL;
    if (last && ls_operation_has(last->op, LS_TRAIT_ACTIVATION) &&
        last->attributes.activation == LS_SIGMOID)
        ls_info("--loss",
                "model '%s' ends with a sigmoid: mean_squared_error, if no loss is named; "
                "binary_crossentropy is for labels 0 and 1",
                model->source);
}

static enum ls_status parse_options(const struct ls_model *model,
                                    const struct ls_compile_options *options, bool metrics_of_file,
                                    struct ls_compilation *out)
{
    double scale = 1;
    enum ls_status status =
        options->own_optimizer
            ? ls_optimizer_take_own(options->own_optimizer, &out->optimizer)
            : ls_optimizer_parse(options->optimizer ? options->optimizer : "adam", &out->optimizer);
    if (!status && options->own_optimizer && options->optimizer) {
        ls_error("own_optimizer", "it is given with optimizer '%s'; expected one of them",
                 options->optimizer);
        status = LS_USAGE;
    }
    if (!status && options->lr_scaling)
        status = ls_learning_rate_scale(options->lr_scaling,
                                        ls_cluster_world(model->run->workers.cluster), &scale);
    if (!status)
        status = ls_loss_set_parse(options->loss, options->loss_weights, model->graph,
                                   model->run->parts, &out->loss);
    const struct ls_loss *first = &out->loss.list[0];
    for (uint32_t i = 0; !status && !options->loss && i < out->loss.count; i++)
        if (out->loss.list[i].kind == LS_LOSS_MEAN_SQUARED_ERROR)
            say_loss_of_sigmoid(model, i);
    if (!status && metrics_of_file && first->kind == LS_LOSS_MEAN_SQUARED_ERROR &&
        strcmp(options->metrics, "accuracy") == 0) {
        ls_error(model->source, "compile_config.metrics: accuracy needs classes, and "
                                "mean_squared_error has none; --metrics=none overrides it");
        return LS_BAD_INPUT;
    }
    if (!status)
        status = ls_metric_set_parse(options->metrics, &out->loss, model->graph, model->run->parts,
                                     &out->metrics);
    if (!status && options->learning_rate_schedule)
        status = ls_rate_schedule_parse(options->learning_rate_schedule,
                                        out->optimizer.learning_rate, &out->optimizer.schedule);
    const char *loss_scale =
        options->loss_scale ? options->loss_scale
                            : ls_loss_scale_default(ls_graph_computes_in(model->graph, LS_F16));
    if (!status)
        status = ls_loss_scale_parse(loss_scale, &out->optimizer.loss_scale);
    out->optimizer.learning_rate *= scale;
    out->optimizer.rate_factor = scale;
    out->optimizer.rate_by_replicas =
        options->lr_scaling && strcmp(options->lr_scaling, "none") != 0;
    return status;
}

// Weights for the parameters of another graph of the model: those of layers are the same, and come
// first; constants of losses and metrics may follow, each with its only values.
static enum ls_status fit_weights(struct ls_model *model, const struct ls_graph *graph)
{
    const uint32_t before = model->graph->parameter_count, count = graph->parameter_count;
    if (!model->weights || before == count)
        return LS_OK;
    float **weights = calloc((size_t)count + 1, sizeof(*weights));
    bool complete = weights != NULL;
    for (uint32_t i = before; weights && i < count; i++) {
        const struct ls_tensor *parameter = graph->parameters[i];
        weights[i] =
            ls_malloc_aligned((size_t)ls_shape_elements(&parameter->shape, 1) * sizeof(float));
        if (weights[i])
            ls_initialize(parameter, model->run->seed, weights[i]);
        complete = complete && weights[i];
    }
    if (!complete) {
        for (uint32_t i = before; weights && i < count; i++)
            free(weights[i]);
        free(weights);
        return LS_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < before; i++)
        if (i < count)
            weights[i] = model->weights[i];
        else
            free(model->weights[i]);
    free(model->weights);
    model->weights = weights;
    return LS_OK;
}

// A model whose layers are all frozen is evaluated as any other.
static bool has_trained(const struct ls_graph *graph)
{
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        if (graph->parameters[i]->zone == LS_ZONE_TRAINED)
            return true;
    return false;
}

enum ls_status ls_model_check_trained(const struct ls_model *model)
{
    if (has_trained(model->graph))
        return LS_OK;
    ls_error("fit", "all layers of model '%s' are frozen; set trainable to true in those to train",
             model->source);
    return LS_BAD_INPUT;
}

// A loss with weights, or of an output with a mask, counts nothing.
static void count_right(struct ls_metric_set *metrics)
{
    for (uint32_t i = 1; i < metrics->count; i++)
        if (metrics->list[i].kind == LS_METRIC_OF_STATISTIC)
            ls_metric_count_right(&metrics->list[i]);
}

// Logical shards are computed one after the other, and none knows what the mask leaves of the others.
static enum ls_status check_mask(const struct ls_model *model, const struct ls_graph *graph,
                                 const struct ls_loss_set *loss)
{
    if (!model->run->shards || !ls_graph_masks_losses(graph, loss->list, loss->count))
        return LS_OK;
    ls_error("--reproducible",
             "an output of '%s' has a mask (mask_zero or Masking), whose steps are counted over "
             "the whole batch, and logical shards are computed one by one; leave it out",
             model->source);
    return LS_USAGE;
}

// The graph of a compilation whose loss and metrics are known.
static enum ls_status build_for_training(const struct ls_model *model,
                                         struct ls_compilation *compilation)
{
    const struct ls_loss_set *loss = &compilation->loss;
    struct ls_tensor *seed;
    enum ls_status status = build(model, &compilation->graph);
    struct ls_graph *graph = compilation->graph;
    if (status)
        return status;
    status = check_mask(model, graph, loss);
    if (!status &&
        (loss->list[0].weighted || ls_graph_masks_losses(graph, loss->list, loss->count)))
        count_right(&compilation->metrics);
    graph->keeps_outputs = compilation->keeps_outputs;
    if (status)
        return status;
    status = ls_loss_set_is_none(loss) ? ls_graph_add_seed(graph, graph->outputs[0], &seed)
                                       : ls_graph_add_losses(graph, loss->list, loss->count);
    if (!status)
        status = ls_metric_set_add(&compilation->metrics, graph);
    if (!status && (graph->parameter_count == 0 || has_trained(graph)))
        status = ls_graph_differentiate(graph);
    return status;
}

struct ls_shares ls_model_division(const struct ls_model *model)
{
    struct ls_shares shares = ls_run_division(model->run, true);
    shares.blocks_first = ls_graph_has_totals(model->graph);
    return shares;
}

bool ls_model_data_has_weights(const struct ls_data *data)
{
    return ls_field_find(data->info.fields, data->info.field_count, LS_FIELD_WEIGHT, 0) != NULL;
}

enum ls_status ls_compilation_weigh(const struct ls_model *model, struct ls_compilation *out)
{
    *out = (struct ls_compilation){
        .loss = model->loss, .metrics = model->metrics, .keeps_outputs = model->keeps_outputs};
    for (uint32_t i = 0; i < out->loss.count; i++)
        out->loss.list[i].weighted = true;
    return build_for_training(model, out);
}

static void take_graph(struct ls_model *model, struct ls_compilation *compilation)
{
    ls_graph_destroy(model->graph);
    model->graph = compilation->graph;
    model->graph_number++;
    model->loss = compilation->loss;
    model->metrics = compilation->metrics;
    compilation->graph = NULL;
}

void ls_model_take_weighted(struct ls_model *model, struct ls_compilation *compilation)
{
    take_graph(model, compilation);
}

// What is excluded from weight decay in vain is a misspelling.
static void warn_of_exclusions(const struct ls_model *model)
{
    const struct ls_optimizer *optimizer = &model->optimizer;
    if (optimizer->excluded[0] && optimizer->attributes.weight_decay <= 0)
        ls_warn("--optimizer", "exclude_from_weight_decay=%s changes nothing, as weight_decay is 0",
                optimizer->excluded);
    for (const char *at = optimizer->excluded; *at;) {
        const size_t length = strcspn(at, ":");
        struct ls_optimizer one = {0}; // that excludes this part only
        bool found = length == 0;
        memcpy(one.excluded, at, length);
        for (uint32_t i = 0; i < model->graph->parameter_count; i++)
            found = found || !ls_optimizer_decays(&one, model->graph->parameters[i]->name);
        if (!found)
            ls_warn("--optimizer",
                    "exclude_from_weight_decay=%s: no variable of model '%s' has '%s' in its name",
                    optimizer->excluded, model->source, one.excluded);
        at += length + (at[length] == ':');
    }
}

// As in frameworks where a loop computes the loss itself, penalties are a part of it.
static void warn_of_penalties(const struct ls_model *model)
{
    const struct ls_graph *graph = model->graph;
    for (uint32_t i = 0; ls_loss_set_is_none(&model->loss) && i < graph->parameter_count; i++)
        if (graph->parameters[i]->l1 > 0 || graph->parameters[i]->l2 > 0) {
            ls_warn(model->source,
                    "the model is compiled with loss none, so the regularizer of '%s' adds nothing "
                    "to the loss that the program computes",
                    graph->parameters[i]->name);
            return;
        }
}

enum ls_status ls_model_check_has_loss(const struct ls_model *model, const char *scope)
{
    if (!ls_loss_set_is_none(&model->loss))
        return LS_OK;
    ls_error(scope,
             "model '%s' is compiled with loss none: the step function of a custom loop computes "
             "it (ls_strategy_run); name a loss to fit or evaluate it",
             model->source);
    return LS_USAGE;
}

enum ls_status ls_model_check_rate(const struct ls_model *model)
{
    if (!model->run->shards || !model->optimizer.rate_by_replicas)
        return LS_OK;
    ls_error("--reproducible",
             "--lr-scaling makes the learning rate depend on the number of replicas; use none");
    return LS_USAGE;
}

enum ls_status ls_compilation_create(const struct ls_model *model,
                                     const struct ls_compile_options *options,
                                     struct ls_compilation *out)
{
    struct ls_compile_options all = options ? *options : (struct ls_compile_options){0};
    struct ls_compile_config file = {0};
    *out = (struct ls_compilation){0};
    enum ls_status status = ls_model_check_training(model->source, model->json, false);
    if (!status)
        status = ls_compile_fill(model->source, model->json, model->run->parts, &all, &file);
    if (!status)
        status = parse_options(model, &all, file.metrics && !(options && options->metrics), out);
    if (!status && all.learning_rate_schedule) {
        out->schedule = strdup(all.learning_rate_schedule);
        status = out->schedule ? LS_OK : LS_OUT_OF_MEMORY;
    }
    ls_compile_config_finish(&file);
    out->keeps_outputs = all.keep_outputs;
    return status ? status : build_for_training(model, out);
}

enum ls_status ls_model_take_compilation(struct ls_model *model, struct ls_compilation *compilation)
{
    enum ls_status status = model->saved ? ls_model_need_weights(model) : LS_OK;
    if (!status)
        status = fit_weights(model, compilation->graph);
    if (status)
        return status;
    ls_saved_values_destroy(model->saved); // its states were another optimizer's
    model->saved = NULL;
    for (uint32_t i = 0; i < LS_OPTIMIZER_STATES; i++) {
        ls_model_free(model, model->states[i]);
        model->states[i] = NULL;
    }
    model->steps_done = model->on_host.steps_done = 0;
    model->refused = NULL;
    take_graph(model, compilation);
    model->keeps_outputs = compilation->keeps_outputs;
    model->optimizer = compilation->optimizer;
    free(model->schedule);
    model->schedule = compilation->schedule;
    compilation->schedule = NULL;
    model->scale = model->on_host.scale = ls_loss_scale_begin(&model->optimizer.loss_scale);
    model->compiled = true;
    warn_of_exclusions(model);
    warn_of_penalties(model);
    return LS_OK;
}

void ls_compilation_finish(struct ls_compilation *compilation)
{
    ls_graph_destroy(compilation->graph);
    free(compilation->schedule);
    *compilation = (struct ls_compilation){0};
}

enum ls_status ls_model_check_idle(const struct ls_model *model, const char *call)
{
    if (!model) {
        ls_error(call, "expected a model, got NULL");
        return LS_USAGE;
    }
    if (model->fitting == LS_FIT_NONE)
        return LS_OK;
    if (model->fitting == LS_FIT_STEPS) {
        ls_error(call,
                 "a step function of model '%s' called it; call it when ls_strategy_run has "
                 "returned",
                 model->source);
        return LS_USAGE;
    }
    ls_error(call,
             "a callback of model '%s' called it during ls_fit; call it after ls_fit, which may do "
             "one epoch at a time with the same results (nor during ls_evaluate and ls_predict)",
             model->source);
    return LS_USAGE;
}

enum ls_status ls_model_check_resting(const struct ls_model *model, const char *call)
{
    if (!model || model->fitting == LS_FIT_STEPS)
        return ls_model_check_idle(model, call);
    if (!model->stepping)
        return LS_OK;
    ls_error(call,
             "replicas of model '%s' are in their steps; call it in on_segment_end or "
             "on_epoch_end, not in on_train_batch_end",
             model->source);
    return LS_USAGE;
}

enum ls_status ls_model_check_usable(const struct ls_model *model, const char *scope)
{
    if (!model->compiled) {
        ls_error(scope, "model '%s' is not compiled: call ls_compile first", model->source);
        return LS_USAGE;
    }
    return ls_model_check_refused(model, scope);
}

enum ls_status ls_model_check_refused(const struct ls_model *model, const char *scope)
{
    if (!model->refused)
        return LS_OK;
    ls_error(scope,
             "%s, so model '%s' is what it was after step %llu, the last that the host has; save "
             "it, or call ls_compile to train it on from there",
             model->refused, model->source, (unsigned long long)model->steps_done);
    return LS_FAILED;
}

// ---- Does the data fit? ----

static int compare_sizes(const void *a, const void *b)
{
    const int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;
    return one < other ? -1 : one > other;
}

// The sizes of an example but for those that are 1; how many there are.
static uint32_t real_sizes(const int64_t *dims, uint32_t ndims, int64_t *out)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < ndims; i++)
        if (dims[i] != 1)
            out[count++] = dims[i];
    return count;
}

// Whether examples can be reshaped into the input: as many elements, in the same order. The same
// sizes in another order, as rows and channels that change places, would need a transposition.
static bool fits(const struct ls_shape *input, const struct ls_shape *examples)
{
    int64_t ours[LS_MAX_DIMS], theirs[LS_MAX_DIMS];
    const uint32_t count = real_sizes(input->dims + 1, input->ndims - 1, ours);
    if (ls_shape_elements(input, 1) != ls_shape_elements(examples, 1))
        return false;
    if (count != real_sizes(examples->dims + 1, examples->ndims - 1, theirs) ||
        memcmp(ours, theirs, count * sizeof(ours[0])) == 0)
        return true;
    qsort(ours, count, sizeof(ours[0]), compare_sizes);
    qsort(theirs, count, sizeof(theirs[0]), compare_sizes);
    return memcmp(ours, theirs, count * sizeof(ours[0])) != 0;
}

// (None, 28, 28)
static struct ls_shape field_shape(const struct ls_field *field)
{
    struct ls_shape shape = {.ndims = field->ndims + 1, .dims = {LS_BATCH}};
    memcpy(shape.dims + 1, field->dims, field->ndims * sizeof(shape.dims[0]));
    return shape;
}

// That of its layer: inputs are made first, in their order.
static const char *input_name(const struct ls_model *model, const struct ls_tensor *input)
{
    const struct ls_graph *graph = model->graph;
    uint32_t before = 0;
    while (graph->inputs[before] != input)
        before++;
    for (uint32_t i = 0; i < graph->layer_count; i++)
        if (strcmp(graph->layers[i].class_name, "InputLayer") == 0 && before-- == 0)
            return graph->layers[i].name;
    return input->name;
}

static enum ls_status check_input(const struct ls_model *model, const struct ls_data *data,
                                  const struct ls_tensor *input, const struct ls_field *field)
{
    const struct ls_shape shape = field_shape(field);
    if (!fits(&input->shape, &shape)) {
        char expected[96], found[96];
        const bool image = input->shape.ndims == 4 && shape.ndims < 4;
        const bool any = strcmp(model->source, "mlp") == 0 || strcmp(model->source, "linear") == 0;
        ls_error("data", "model '%s' expects input '%s' %s, but field '%s' of '%s' is %s%s",
                 model->source, input_name(model, input),
                 ls_shape_text(&input->shape, expected, sizeof(expected)), field->name, data->text,
                 ls_shape_text(&shape, found, sizeof(found)),
                 any     ? "; it takes the shape of the data that it is made with"
                 : image ? "; it is for images, --model=mlp takes any shape"
                         : "");
        return LS_BAD_INPUT;
    }
    if (field->dtype && !ls_can_gather(field->dtype, input->dtype)) {
        ls_error("data", "model '%s' expects input '%s' as %s, but field '%s' of '%s' is %s",
                 model->source, input_name(model, input), ls_dtype_name(input->dtype), field->name,
                 data->text, ls_dtype_name(field->dtype));
        return LS_BAD_INPUT;
    }
    return LS_OK;
}

// The fields of a role as a list: "x, x2".
static const char *list_fields(const struct ls_dataset_info *info, enum ls_field_role role,
                               char *text, size_t bytes)
{
    const struct ls_field *field;
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0;
         (field = ls_field_find(info->fields, info->field_count, role, i)) && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? ", " : "", field->name);
    return text;
}

enum ls_status ls_model_check_inputs(const struct ls_model *model, const struct ls_data *data)
{
    const struct ls_graph *graph = model->graph;
    const struct ls_dataset_info *info = &data->info;
    const struct ls_field *field;
    uint32_t count = 0, least = 0;
    for (; (field = ls_field_find(info->fields, info->field_count, LS_FIELD_INPUT, count)); count++)
        least += !field->optional;
    if (graph->input_count < least || graph->input_count > count) {
        char names[LS_MAX_FIELDS * 40];
        ls_error("data", "model '%s' has %u input%s, but dataset '%s' has %u (%s)", model->source,
                 graph->input_count, graph->input_count == 1 ? "" : "s", data->text, count,
                 list_fields(info, LS_FIELD_INPUT, names, sizeof(names)));
        return LS_BAD_INPUT;
    }
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < graph->input_count; i++)
        status = check_input(model, data, graph->inputs[i],
                             ls_field_find(info->fields, info->field_count, LS_FIELD_INPUT, i));
    return status;
}

// The loss expects classes, and these are other numbers.
static void say_no_classes(const struct ls_shape *output, const struct ls_data *data,
                           const struct ls_field *target)
{
    const bool each = output->dims[output->ndims - 1] > 1 &&
                      ls_field_elements(target) == (uint64_t)ls_shape_elements(output, 1);
    if (target->dtype == LS_U8 || target->dtype == LS_I32)
        ls_error("data",
                 "dataset '%s' has targets below 0, not classes: labels are whole numbers from 0; "
                 "numbers of any size are for --loss=mean_squared_error and y.astype(\"float32\")",
                 data->text);
    else if (each)
        ls_error(
            "data",
            "dataset '%s' has a target for each output, not classes (integers from 0): train "
            "it with --loss=categorical_crossentropy, if they are one-hot, or mean_squared_error",
            data->text);
    else
        ls_error("data",
                 "dataset '%s' has targets, not classes: labels are whole numbers from 0 (of an "
                 "array: y.astype(\"int32\")); other numbers are for --loss=mean_squared_error",
                 data->text);
}

// The labels of one output.
static enum ls_status check_output_labels(const struct ls_model *model, const struct ls_data *data,
                                          uint32_t index, const struct ls_field *target)
{
    const struct ls_tensor *label = model->graph->label_of[index];
    const struct ls_loss *loss = &model->loss.list[index];
    const bool table = strcmp(data->name, "csv") == 0;
    const struct ls_shape *output = &model->graph->outputs[index]->shape;
    const int64_t units = output->dims[output->ndims - 1];
    if (label->dtype == LS_I32 && target->class_count == 0) {
        say_no_classes(output, data, target);
        return LS_BAD_INPUT;
    }
    if (loss->by_layer && loss->kind == LS_LOSS_MEAN_SQUARED_ERROR && target->class_count > 1 &&
        strcmp(data->name, "synthetic") != 0) {
        ls_error("data",
                 "the labels of '%s' are %u classes, but model '%s' has one output: it would learn "
                 "the numbers of the classes, not the classes; take --model=mlp, which has an "
                 "output for each class, or say --loss=mean_squared_error if they are numbers",
                 data->text, target->class_count, model->source);
        return LS_USAGE;
    }
    // A composed loss knows what it makes of a class.
    // Where the model knows its classes, their names decide (ls_model_wait_data).
    if (label->dtype == LS_I32 && !loss->composed && (uint64_t)units < target->class_count &&
        !(model->class_names && target->by_name)) {
        if (target->counted_in && target->class_count > target->counted_in)
            ls_error("data",
                     "the labels of '%s' go up to %u in %llu examples, but the last layer of model "
                     "'%s' has %lld unit%s: "
                     "if they are classes, take more examples, or a model with %u units; if they "
                     "are numbers, %s",
                     data->text, target->class_count - 1, (unsigned long long)target->counted_in,
                     model->source, (long long)units, units == 1 ? "" : "s", target->class_count,
                     table ? "add targets=numbers to the dataset"
                           : "--model=linear --loss=mean_squared_error");
        else
            ls_error(
                "data",
                "dataset '%s' has %u classes, but the last layer of model '%s' has %lld unit%s%s",
                data->text, target->class_count, model->source, (long long)units,
                units == 1 ? "" : "s", target->by_name ? "" : "; labels begin at 0");
        return LS_BAD_INPUT;
    }
    const int64_t labels = ls_shape_elements(&label->shape, 1);
    if ((uint64_t)labels != ls_field_elements(target)) {
        const struct ls_shape shape = field_shape(target);
        char expected[96], found[96];
        const uint64_t elements = ls_field_elements(target);
        const bool several = model->graph->output_count > 1;
        const bool classes = target->class_count && (uint64_t)labels == elements * (uint64_t)units;
        const bool one_hot = label->dtype == LS_I32 && target->class_count &&
                             elements == (uint64_t)labels * (uint64_t)units;
        ls_error("data", "%s%s%s of model '%s' expects labels %s, but field '%s' of '%s' is %s%s",
                 several ? "output '" : "the output",
                 several ? ls_graph_output_name(model->graph, index) : "", several ? "'" : "",
                 model->source, ls_shape_text(&label->shape, expected, sizeof(expected)),
                 target->name, data->text, ls_shape_text(&shape, found, sizeof(found)),
                 classes && table && !target->by_name
                     ? "; if they are no classes, add targets=numbers to the dataset"
                 : classes ? "; classes are for --loss=sparse_categorical_crossentropy"
                 : one_hot ? "; one-hot targets are for --loss=categorical_crossentropy, as "
                             "y.astype(\"float32\")"
                           : "");
        return LS_BAD_INPUT;
    }
    return LS_OK;
}

// One target for each output with a loss, in their order.
static enum ls_status check_labels(const struct ls_model *model, const struct ls_data *data)
{
    const struct ls_graph *graph = model->graph;
    const struct ls_dataset_info *info = &data->info;
    const bool arrays = strcmp(data->name, "arrays") == 0;
    const bool images = strcmp(data->name, "images") == 0;
    uint32_t count = 0;
    enum ls_status status = LS_OK;
    while (ls_field_find(info->fields, info->field_count, LS_FIELD_TARGET, count))
        count++;
    if (count == 0) {
        ls_error("data", "dataset '%s' has no targets to compare the output of model '%s' with%s",
                 data->text, model->source,
                 arrays   ? "; add y=FILE"
                 : images ? "; the classes are the folders in dir=, and it has none"
                          : "");
        return LS_USAGE;
    }
    if (count != graph->label_count) {
        ls_error("data",
                 "dataset '%s' has %u target%s, but model '%s' has %u output%s with a loss%s",
                 data->text, count, count == 1 ? "" : "s", model->source, graph->label_count,
                 graph->label_count == 1 ? "" : "s",
                 arrays && count < graph->label_count ? "; add y2=FILE, and so on" : "");
        return LS_USAGE;
    }
    for (uint32_t i = 0, target = 0; !status && i < graph->output_count; i++)
        if (graph->label_of[i])
            status = check_output_labels(
                model, data, i,
                ls_field_find(info->fields, info->field_count, LS_FIELD_TARGET, target++));
    return status;
}

static enum ls_status check_weights(const struct ls_data *data)
{
    const struct ls_field *weight =
        ls_field_find(data->info.fields, data->info.field_count, LS_FIELD_WEIGHT, 0);
    if (!weight || ls_field_elements(weight) == 1)
        return LS_OK;
    const struct ls_shape shape = field_shape(weight);
    char found[96];
    ls_error("data", "field '%s' of '%s' is %s; expected one weight an example", weight->name,
             data->text, ls_shape_text(&shape, found, sizeof(found)));
    return LS_BAD_INPUT;
}

enum ls_status ls_model_check_data(const struct ls_model *model, const struct ls_data *data)
{
    enum ls_status status = ls_model_check_inputs(model, data);
    if (!status)
        status = check_weights(data);
    return status || !model->graph->label_count ? status : check_labels(model, data);
}
