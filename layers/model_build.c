// SPDX-License-Identifier: Apache-2.0
// Makes a graph from a model that was read: calls the layers of a Sequential model one after the
// other, those of a functional model as soon as their inputs are there, and models inside a model in
// the same way wherever they are called. All options that are wrong are said at once.
#include "layers/model_json.h"

#include "core/base/keras_names.h"
#include "core/base/log.h"
#include "layers/kinds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN 64

// Of the outermost model's "config", besides those of every layer. The reader has refused others.
static const char *const model_keys[] = {"layers",       "build_input_shape", "build_config",
                                         "input_layers", "output_layers",     NULL};

struct builder {
    struct ls_graph *graph;
    const struct ls_shape *input_shape; // of the data; NULL: not known
    enum ls_precision precision; // that was asked for
    uint32_t calls; // made so far
    bool stop; // the model is beyond a limit
};

// One call of a model; the outermost model has no inputs.
struct run {
    struct builder *builder;
    struct ls_model_json *model;
    bool trainable, inference;
    struct ls_tensor *const *inputs; // NULL: only options are checked
    struct ls_tensor **outputs; // room for LS_LAYER_OUTPUTS
    const struct ls_model_json *outer; // that calls it
    const struct ls_call_json *json; // by this call; NULL: there is none, or in a Sequential model
    uint32_t node; // number of the call
};

// One call of a layer.
struct use {
    struct ls_layer_json *layer;
    const struct ls_call_json *json; // NULL in a Sequential model
    uint32_t node;
    struct ls_tensor *const *inputs; // NULL: only options are checked
    uint32_t input_count;
    // Where the tensors come from, for the summary; NULL: from the layer before, or said already.
    const struct ls_model_json *from;
    const struct ls_reference *references;
    uint32_t reference_count;
    struct ls_tensor *outputs[LS_LAYER_OUTPUTS];
};

// The model that TimeDistributed has inside.
struct step_model {
    struct ls_inner_model base;
    const struct run *run; // that calls the layer
    struct ls_layer_json *layer;
};

static enum ls_status call_model(const struct run *outer, struct use *use);
static enum ls_status call_on_step(struct ls_inner_model *model, struct ls_tensor *input,
                                   bool inference, struct ls_tensor **outputs);

static bool has(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value && !json_is_null(value);
}

// A problem with the structure, which is counted among those of the graph.
static bool is_said(const struct run *run)
{
    return ++*run->builder->graph->problems <= LS_GRAPH_PROBLEMS;
}

static enum ls_status worse(enum ls_status a, enum ls_status b)
{
    return a == LS_OUT_OF_MEMORY || b == LS_OK ? a : b;
}

// ---- One layer ----

#define PREPROCESSING "change the data before training, and remove the layer"
#define PYTHON_CODE \
    "it has Python code inside; make it of the layers of docs/keras-names.md, or a plugin"
#define STRINGS "strings are not supported; make numbers of them before training"

// What to do without a layer of Keras. The first that begins a class's name counts.
static const struct {
    const char *prefix, *advice;
} instead[] = {
    {"ConvLSTM", "take TimeDistributed(Conv2D) and an LSTM"},
    {"CuDNN", "it is Keras 1's; make the model with LSTM or GRU"},
    {"Lambda", "a file does not hold Python code; write it with operators and keras.ops, see "
               "docs/models.md"},
    {"FlaxLayer", PYTHON_CODE},
    {"JaxLayer", PYTHON_CODE},
    {"TFSMLayer", PYTHON_CODE},
    {"TorchModuleWrapper", PYTHON_CODE},
    {"Wrapper", PYTHON_CODE},
    {"Pipeline", "put its layers into the model one by one"},
    {"StringLookup", STRINGS},
    {"TextVectorization", STRINGS},
    {"Hashing", STRINGS},
    {"HashedCrossing", STRINGS},
    {"MelSpectrogram", "sound is made into spectrograms before training; give the model these"},
    {"STFTSpectrogram", "sound is made into spectrograms before training; give the model these"},
    {"MaxNumBoundingBoxes", "bounding boxes are not supported; remove the layer"},
    {"Random", PREPROCESSING},
};

static const char *find_advice(const char *class_name)
{
    for (size_t i = 0; i < sizeof(instead) / sizeof(instead[0]); i++)
        if (strncmp(class_name, instead[i].prefix, strlen(instead[i].prefix)) == 0)
            return instead[i].advice;
    return NULL;
}

static enum ls_status refuse_operation(const struct ls_graph *graph,
                                       const struct ls_layer_json *layer)
{
    const char *names[128] = {NULL};
    char list[480];

    if (!layer->first_unknown)
        return ls_graph_fail(graph, NULL, "this operation is not supported");
    for (size_t i = 0; ls_node_kinds[i].class_name && i < 127; i++)
        names[i] = ls_node_kinds[i].class_name;
    return ls_graph_fail(graph, NULL, "this operation is not supported; supported: %s",
                         ls_name_list(names, list, sizeof(list)));
}

// An unknown class, or one of the user's own. Only the first of a model lists what there is.
static enum ls_status refuse_class(const struct ls_graph *graph, struct ls_own_parts *parts,
                                   const struct ls_layer_json *layer)
{
    const char *names[128] = {NULL};
    const char *advice = find_advice(layer->class_name);
    char why[360], hint[420] = "";

    if (parts) {
        snprintf(hint, sizeof(hint), "; ");
        parts->hint(parts, LS_KIND_LAYER, ls_layer_json_own_name(layer), hint + 2,
                    sizeof(hint) - 2);
    }
    if (layer->custom)
        return ls_graph_fail(graph, NULL,
                             "only Keras's own layers are supported; make it of the layers and "
                             "operations that docs/models.md lists%s",
                             hint);
    if (ls_json_is_operation(layer->object))
        return refuse_operation(graph, layer);
    if (strcmp(layer->class_name, "TFOpLambda") == 0 ||
        strcmp(layer->class_name, "SlicingOpLambda") == 0 ||
        strcmp(layer->class_name, "TensorFlowOpLayer") == 0)
        return ls_graph_fail(graph, NULL,
                             "operations are read as Keras 3 writes them; make the model with "
                             "Keras 3, or use a layer such as Add, Multiply or Rescaling");
    if (advice)
        return ls_graph_fail(graph, NULL, "this layer is not supported: %s", advice);
    for (size_t i = 0; ls_layer_kinds[i] && i < 127; i++)
        names[i] = ls_layer_kinds[i]->class_name;
    ls_keras_refusal(LS_KERAS_LAYER, layer->class_name, names, why, sizeof(why));
    char *list = strstr(why, "; supported:");
    if (list && !layer->first_unknown)
        *list = '\0';
    return ls_graph_fail(graph, NULL, "this layer %s%s", why, hint);
}

// batch_input_shape of a layer must be what arrives there.
static void check_input_shape(struct ls_config *config, const struct use *use)
{
    const struct ls_tensor *input = use->inputs && use->input_count > 0 ? use->inputs[0] : NULL;
    struct ls_shape example = {0};
    char text[SHOWN];

    if (!input || !has(config->object, "batch_input_shape"))
        return;
    ls_config_shape(config, "batch_input_shape", &example);
    if (config->status ||
        (example.ndims + 1 == input->shape.ndims &&
         memcmp(example.dims, &input->shape.dims[1], example.ndims * sizeof(example.dims[0])) == 0))
        return;
    config->status = ls_graph_fail(
        config->graph, input, "batch_input_shape: says %s",
        ls_json_text(json_object_get(config->object, "batch_input_shape"), text, sizeof(text)));
}

// A tensor, or a structure of nothing but tensors and null.
static bool is_tensors(const json_t *value)
{
    size_t i;
    const char *key;
    json_t *inner;
    if (json_is_null(value) ||
        (json_object_size(value) == 1 && json_is_integer(json_object_get(value, "tensor"))))
        return true;
    if (!json_is_array(value) && !json_is_object(value))
        return false;
    json_array_foreach((json_t *)value, i, inner) if (!is_tensors(inner)) return false;
    json_object_foreach((json_t *)value, key, inner) if (!is_tensors(inner)) return false;
    return true;
}

// How many tensors a structure of nothing but tensors and null has.
static uint32_t count_tensors(const json_t *value)
{
    uint32_t count = json_is_integer(json_object_get(value, "tensor")) ? 1 : 0;
    size_t i;
    const char *key;
    json_t *inner;
    json_array_foreach((json_t *)value, i, inner) count += count_tensors(inner);
    json_object_foreach((json_t *)value, key, inner) count += count_tensors(inner);
    return count;
}

static bool is_in(const char *name, const char *const *names)
{
    for (; names && *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

#define MASK_IS_REFUSED                                                    \
    "the input has a mask (mask_zero or Masking), which this layer would " \
    "obey in Keras; this is not supported: remove the mask"

// The number of tensors, and arguments that the layer does not look at.
static void check_arguments(struct ls_config *config, const struct ls_layer_kind *kind,
                            const struct use *use)
{
    const uint32_t count = use->input_count;
    const uint32_t most = kind->most_inputs > 0 ? kind->most_inputs : 1;
    const uint32_t least = kind->most_inputs > 0 ? kind->least_inputs : 1;
    const struct ls_tensor *input = use->inputs && count > 0 ? use->inputs[0] : NULL;
    const char *key;
    json_t *value;
    size_t i;
    char text[SHOWN];

    // As functional models of Keras 3 have it.
    if (kind->mask == LS_MASK_REFUSED && use->json && json_object_get(use->json->kwargs, "mask")) {
        config->status = ls_graph_fail(config->graph, input, MASK_IS_REFUSED);
        return;
    }
    if (count < least || count > most)
        config->status = ls_graph_fail(
            config->graph, input, "node %u: expected %s %u input tensor%s, got %u", use->node,
            least == most   ? "exactly"
            : count < least ? "at least"
                            : "at most",
            count < least ? least : most, (count < least ? least : most) == 1 ? "" : "s", count);
    if (!use->json)
        return;
    json_array_foreach(use->json->args, i, value)
    {
        if (!kind->arguments && !is_tensors(value))
            config->status =
                ls_graph_fail(config->graph, NULL, "node %u: argument %zu, %s, is not supported",
                              use->node, i, ls_json_text(value, text, sizeof(text)));
    }
    json_object_foreach(use->json->kwargs, key, value)
    {
        const bool tensors = strcmp(key, "inputs") == 0 && is_tensors(value);
        if (!is_in(key, kind->arguments) && !tensors)
            config->status = ls_graph_fail(config->graph, NULL,
                                           "node %u: argument '%.100s' = %s is not supported",
                                           use->node, key, ls_json_text(value, text, sizeof(text)));
    }
}

static enum ls_status begin(const struct run *run, struct ls_layer_json *layer)
{
    struct ls_graph *graph = run->builder->graph;
    char name[LS_LONGEST_PATH + 1];

    enum ls_status status = ls_model_json_path(run->model, layer->name, name);
    if (status)
        return status;
    if (layer->built)
        return ls_graph_reuse_layer(graph, name);
    layer->built = true;
    status = ls_graph_begin_layer(graph, name, layer->class_name);
    if (!status && (!run->trainable || json_is_false(json_object_get(layer->config, "trainable"))))
        ls_graph_freeze_layer(graph);
    return status;
}

// What "connected to" of a summary says: "add[0][0], inner/dense[1][0]".
static enum ls_status connect(const struct run *run, const struct use *use)
{
    char name[LS_LONGEST_PATH + 1], text[LS_LONGEST_PATH + 32];
    enum ls_status status = LS_OK;

    for (uint32_t i = 0; use->from && i < use->reference_count && !status; i++) {
        const struct ls_reference *reference = &use->references[i];
        status = ls_model_json_path(use->from, use->from->layers[reference->layer].name, name);
        snprintf(text, sizeof(text), "%s[%u][%u]", name, reference->call, reference->output);
        if (!status)
            status = ls_graph_connect_layer(run->builder->graph, text);
    }
    return status;
}

// Input `index` of a model inside a model comes from where the call has it from.
static void connect_input(const struct run *run, uint32_t index, struct use *use)
{
    if (!run->json || run->node < use->layer->connected)
        return;
    use->layer->connected = run->node + 1;
    use->from = run->outer;
    use->references = &run->json->inputs[index];
    use->reference_count = 1;
}

// What the layer computes in. Its dtype is checked with its other options.
static uint32_t computes_in(const struct builder *builder, const struct ls_layer_kind *kind,
                            const json_t *config)
{
    char why[256];
    enum ls_precision own = ls_json_precision(json_object_get(config, "dtype"), why, sizeof(why));
    if (kind->no_policy)
        return builder->precision == LS_PRECISION_FLOAT32 ? LS_F32 : LS_COMPUTE_AS_INPUTS;
    if (builder->precision == LS_PRECISION_FLOAT32 ||
        (builder->precision != LS_PRECISION_OF_FILE && own == LS_PRECISION_FLOAT32))
        own = builder->precision;
    return ls_precision_dtype(own);
}

// Whether an input has a mask for fewer steps than the output has: they follow each other in time.
static bool is_longer(const struct use *use)
{
    for (uint32_t i = 0; i < use->input_count; i++)
        if (use->inputs[i]->mask && use->inputs[i]->mask->shape.ndims > 1 &&
            use->inputs[i]->mask->shape.dims[1] != use->outputs[0]->shape.dims[1])
            return true;
    return false;
}

// Of sequences one behind the other in time: all steps count of one that has no mask.
static enum ls_status join_masks(struct ls_graph *graph, const struct use *use)
{
    struct ls_tensor *masks[LS_LAYER_INPUTS];
    for (uint32_t i = 0; i < use->input_count; i++) {
        struct ls_tensor *input = use->inputs[i];
        const struct ls_op_attributes last = {.axes = {0, 0, 1}};
        enum ls_status status = LS_OK;

        masks[i] = input->mask;
        if (input->shape.ndims != 3 || (masks[i] && masks[i]->shape.ndims != 2))
            return ls_graph_fail(graph, input,
                                 "Concatenate joins masks (mask_zero or Masking) of sequences, "
                                 "(batch, steps, features), alone; remove the masks");
        if (!input->mask)
            status = ls_graph_add(graph, LS_OP_DIFFERS, &last, &input, 1, NULL, &masks[i]);
        if (!status && !input->mask)
            status = ls_add_scale(graph, 0, 1, masks[i], &masks[i]);
        if (status)
            return status;
    }
    return ls_add_concatenation(graph, masks, use->input_count, 1, &use->outputs[0]->mask);
}

// The mask of a layer's outputs, where it passes on those of its inputs: where all have one, a step
// counts that counts in any of them.
static enum ls_status pass_mask(struct ls_graph *graph, const struct ls_layer_kind *kind,
                                const struct use *use)
{
    struct ls_tensor *mask = use->input_count > 0 ? use->inputs[0]->mask : NULL;
    enum ls_status status = LS_OK;

    for (uint32_t i = 0; kind->mask == LS_MASK_REFUSED && i < use->input_count; i++)
        if (use->inputs[i]->mask)
            return ls_graph_fail(graph, use->inputs[i], MASK_IS_REFUSED);
    if (kind == &ls_layer_concatenate && use->outputs[0] && is_longer(use))
        return join_masks(graph, use);
    for (uint32_t i = 1; mask && i < use->input_count && !status; i++) {
        struct ls_tensor *other = use->inputs[i]->mask;
        if (other && other != mask && ls_shape_equal(&other->shape, &mask->shape))
            status = ls_add_pair(graph, LS_PAIR_MAXIMUM, mask, other, &mask);
        else if (other != mask)
            mask = NULL;
    }
    if (!status && kind->mask == LS_MASK_PASSES && use->outputs[0] && !use->outputs[0]->mask)
        use->outputs[0]->mask = mask;
    return status;
}

static enum ls_status build_layer(const struct run *run, struct use *use)
{
    struct ls_layer_json *layer = use->layer;
    json_t *empty = layer->config ? NULL : json_object();
    struct ls_graph *graph = run->builder->graph;
    struct ls_config c = {.graph = graph, .object = layer->config ? layer->config : empty};
    if (!c.object)
        return LS_OUT_OF_MEMORY;

    enum ls_status status = begin(run, layer);
    if (!status)
        status = connect(run, use);
    if (!status && (!layer->kind || layer->custom))
        status = refuse_class(graph, run->model->parts, layer);
    if (status)
        goto out;
    ls_config_check(&c, layer->kind->keys);
    check_input_shape(&c, use);
    check_arguments(&c, layer->kind, use);
    struct step_model model = {{call_on_step}, run, layer};
    const struct ls_layer_call call = {
        .kind = layer->kind,
        .config = c.object,
        .inputs = c.status ? NULL : use->inputs,
        .input_count = use->input_count,
        .args = use->json ? use->json->args : NULL,
        .kwargs = use->json ? use->json->kwargs : NULL,
        .inference = run->inference || (use->json && use->json->inference),
        .model = layer->model ? &model.base : NULL,
    };
    const uint32_t first = graph->parameter_count;
    graph->compute = computes_in(run->builder, layer->kind, c.object);
    status = ls_layer_build(graph, &call, use->outputs);
    status = status ? status : c.status;
    if (!status && call.inputs)
        status = pass_mask(graph, layer->kind, use);
    if (!status)
        ls_add_regularizers(graph, c.object, first);
    if (!status && layer->kind != &ls_layer_activity_regularization) // which has its own
        status = ls_add_activity_regularizer(graph, c.object, use->outputs);
    if (!status && use->outputs[0])
        ls_graph_end_layer(graph, use->outputs[0]);

out:
    json_decref(empty);
    return status;
}

// What is wrong with a layer is said once. Its outputs are then NULL, and so they are where only
// options are checked.
static enum ls_status call_layer(const struct run *run, struct use *use)
{
    struct ls_layer_json *layer = use->layer;

    if (run->builder->stop)
        return LS_BAD_INPUT;
    if (++run->builder->calls > LS_MOST_CALLS) {
        run->builder->stop = true;
        return ls_model_json_fail(run->model,
                                  "layers are called more than %d times, those of models inside "
                                  "the model at each of its calls",
                                  LS_MOST_CALLS);
    }
    if (layer->refused)
        return LS_BAD_INPUT;
    const enum ls_status status =
        layer->kind || !layer->model ? build_layer(run, use) : call_model(run, use);
    layer->refused = !use->outputs[0] || status;
    if (status)
        memset(use->outputs, 0, sizeof(use->outputs));
    return status;
}

// ---- Sequential ----

// The model's input where no InputLayer gives it: what the first layer, the model or the data set
// says.
static enum ls_status build_input(const struct run *run, struct ls_tensor **out)
{
    const struct ls_model_json *model = run->model;
    struct ls_graph *graph = run->builder->graph;
    char name[LS_LONGEST_NAME];
    struct ls_shape example;
    struct ls_config c = {.graph = graph};
    const json_t *first = model->layers[0].config,
                 *build = json_object_get(model->object, "build_config");

    ls_model_json_name(model, model->count, "InputLayer", name);
    enum ls_status status = ls_graph_begin_layer(graph, name, "InputLayer");
    if (status)
        return status;
    if (has(first, "batch_input_shape")) {
        c.object = first;
        ls_config_shape(&c, "batch_input_shape", &example);
    } else if (has(model->config, "build_input_shape")) {
        c.object = model->config;
        ls_config_shape(&c, "build_input_shape", &example);
    } else if (has(build, "input_shape")) {
        c.object = build;
        ls_config_shape(&c, "input_shape", &example);
    } else if (run->builder->input_shape) {
        example = *run->builder->input_shape;
    } else {
        return ls_graph_fail(graph, NULL,
                             "the model does not give its input shape; put an InputLayer first");
    }
    if (!c.status)
        c.status = ls_graph_input(graph, &example, out);
    if (!c.status)
        ls_graph_end_layer(graph, *out);
    return c.status;
}

static enum ls_status run_sequential(const struct run *run)
{
    struct ls_model_json *model = run->model;
    struct ls_tensor *tensor = run->inputs ? run->inputs[0] : NULL;
    const bool has_input = strcmp(model->layers[0].class_name, "InputLayer") == 0;
    const bool makes_input = model->depth == 0 && has_input;
    enum ls_status status = LS_OK;

    if (model->depth == 0 && !has_input)
        status = build_input(run, &tensor);
    for (uint32_t i = 0; i < model->count && status != LS_OUT_OF_MEMORY && !run->builder->stop;
         i++) {
        struct ls_layer_json *layer = &model->layers[i];
        struct use use = {.layer = layer,
                          .inputs = tensor ? &tensor : NULL,
                          .input_count = makes_input && i == 0 ? 0 : 1};
        if (i == 0)
            connect_input(run, 0, &use);
        enum ls_status called = call_layer(run, &use);
        if (!called && use.outputs[1])
            called = ls_model_json_fail(model,
                                        "layer '%s' (%.100s) has several outputs, but a layer of a "
                                        "Sequential model has one",
                                        layer->name, layer->class_name);
        tensor = called ? NULL : use.outputs[0];
        status = worse(status, called);
    }
    run->outputs[0] = tensor;
    return status;
}

// ---- Functional ----

// What a call gave.
struct result {
    bool done;
    uint32_t count; // 0: it was refused
    struct ls_tensor **outputs;
};

struct pending {
    uint32_t layer, call;
    uint32_t ready; // inputs, the first ones, that are there
};

struct work {
    const struct run *run;
    uint32_t *first; // by layer: the result of its first call
    struct result *results;
    struct pending *pending; // in the order of the file
    uint32_t left;
};

static struct result *result_of(const struct work *work, uint32_t layer, uint32_t call)
{
    return &work->results[work->first[layer] + call];
}

static enum ls_status work_init(struct work *work, const struct run *run)
{
    const struct ls_model_json *model = run->model;
    uint32_t calls = 0;

    work->run = run;
    for (uint32_t i = 0; i < model->count; i++) {
        if (model->layers[i].call_count > LS_MOST_CALLS - calls) {
            run->builder->stop = true;
            return ls_model_json_fail(model, "layers are called more than %d times", LS_MOST_CALLS);
        }
        calls += model->layers[i].call_count;
    }
    work->first = calloc(model->count, sizeof(*work->first));
    work->results = calloc(calls, sizeof(*work->results));
    work->pending = calloc(calls, sizeof(*work->pending));
    if (!work->first || !work->results || !work->pending)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0, next = 0; i < model->count; i++) {
        work->first[i] = next;
        next += model->layers[i].call_count;
        if (strcmp(model->layers[i].class_name, "InputLayer") == 0)
            continue;
        for (uint32_t k = 0; k < model->layers[i].call_count; k++)
            work->pending[work->left++] = (struct pending){.layer = i, .call = k};
    }
    return LS_OK;
}

static void work_finish(struct work *work)
{
    const struct ls_model_json *model = work->run->model;
    for (uint32_t i = 0; work->first && work->results && i < model->count; i++)
        for (uint32_t k = 0; k < model->layers[i].call_count; k++)
            free(result_of(work, i, k)->outputs);
    free(work->first);
    free(work->results);
    free(work->pending);
}

static enum ls_status keep_result(struct result *result, struct ls_tensor *const *outputs)
{
    result->done = true;
    uint32_t count = 0;
    while (count < LS_LAYER_OUTPUTS && outputs[count])
        count++;
    if (count == 0)
        return LS_OK;
    result->outputs = calloc(count, sizeof(struct ls_tensor *));
    if (!result->outputs)
        return LS_OUT_OF_MEMORY;
    memcpy(result->outputs, outputs, count * sizeof(struct ls_tensor *));
    result->count = count;
    return LS_OK;
}

// The tensor that is referred to; NULL: refused, now or before. `where` is for the message.
static enum ls_status find_tensor(const struct work *work, const struct ls_reference *reference,
                                  const char *where, struct ls_tensor **out)
{
    const struct ls_model_json *model = work->run->model;
    const struct result *result = result_of(work, reference->layer, reference->call);

    *out = NULL;
    if (result->count == 0)
        return LS_OK;
    if (reference->output >= result->count && !is_said(work->run))
        return LS_BAD_INPUT;
    if (reference->output >= result->count)
        return ls_model_json_fail(
            model, "%s: layer '%s' has no tensor %u: it has %u, counted from 0", where,
            model->layers[reference->layer].name, reference->output, result->count);
    *out = result->outputs[reference->output];
    return LS_OK;
}

static enum ls_status call_input(struct work *work, uint32_t index)
{
    const struct run *run = work->run;
    const uint32_t layer = run->model->inputs[index].layer;
    struct use use = {.layer = &run->model->layers[layer],
                      .inputs = run->inputs ? &run->inputs[index] : NULL,
                      .input_count = run->model->depth == 0 ? 0 : 1};
    connect_input(run, index, &use);
    const enum ls_status status = call_layer(run, &use);
    return worse(status, keep_result(result_of(work, layer, 0), use.outputs));
}

static bool is_ready(const struct work *work, struct pending *pending)
{
    const struct ls_call_json *call =
        &work->run->model->layers[pending->layer].calls[pending->call];
    for (; pending->ready < call->input_count; pending->ready++) {
        const struct ls_reference *input = &call->inputs[pending->ready];
        if (!result_of(work, input->layer, input->call)->done)
            return false;
    }
    return true;
}

static enum ls_status call_pending(struct work *work, const struct pending *pending)
{
    struct ls_layer_json *layer = &work->run->model->layers[pending->layer];
    const struct ls_call_json *call = &layer->calls[pending->call];
    struct ls_tensor *inputs[LS_LAYER_INPUTS];
    struct use use = {.layer = layer,
                      .json = call,
                      .node = pending->call,
                      .inputs = inputs,
                      .input_count = call->input_count};
    char where[LS_LONGEST_NAME + 160];
    enum ls_status status = LS_OK;

    if (pending->call >= layer->connected) { // else the model was called before
        layer->connected = pending->call + 1;
        use.from = work->run->model;
        use.references = call->inputs;
        use.reference_count = call->input_count;
    }

    snprintf(where, sizeof(where), "layer '%s' (%.100s): node %u", layer->name, layer->class_name,
             pending->call);
    for (uint32_t i = 0; i < call->input_count; i++) {
        status = worse(status, find_tensor(work, &call->inputs[i], where, &inputs[i]));
        if (!inputs[i])
            use.inputs = NULL;
    }
    if (status != LS_OUT_OF_MEMORY)
        status = worse(status, call_layer(work->run, &use));
    return worse(status, keep_result(result_of(work, pending->layer, pending->call), use.outputs));
}

// Nothing that is left has all its inputs: following what each waits for leads around a circle.
static enum ls_status refuse_circle(const struct work *work)
{
    const struct ls_model_json *model = work->run->model;
    struct pending at = work->pending[0], next = at;

    for (uint32_t steps = 0; steps < 2 * work->left + 1; steps++) {
        const struct ls_call_json *call = &model->layers[at.layer].calls[at.call];
        uint32_t i = 0;
        while (result_of(work, call->inputs[i].layer, call->inputs[i].call)->done)
            i++;
        next = (struct pending){.layer = call->inputs[i].layer, .call = call->inputs[i].call};
        if (steps < 2 * work->left)
            at = next;
    }
    return ls_model_json_fail(
        model,
        "layer '%s' (%.100s): node %u needs its own output, through layer '%s': the layers form a "
        "circle",
        model->layers[at.layer].name, model->layers[at.layer].class_name, at.call,
        model->layers[next.layer].name);
}

static enum ls_status call_all(struct work *work)
{
    const struct run *run = work->run;
    enum ls_status status = LS_OK;

    for (uint32_t i = 0; i < run->model->input_count && status != LS_OUT_OF_MEMORY; i++)
        status = worse(status, call_input(work, i));
    while (work->left > 0) {
        const uint32_t before = work->left;
        uint32_t kept = 0;
        for (uint32_t i = 0; i < before; i++) {
            struct pending pending = work->pending[i];
            if (!is_ready(work, &pending)) {
                work->pending[kept++] = pending;
                continue;
            }
            status = worse(status, call_pending(work, &pending));
            if (status == LS_OUT_OF_MEMORY || run->builder->stop)
                return status;
        }
        work->left = kept;
        if (kept == before)
            return refuse_circle(work);
    }
    return status;
}

// The outputs of the outermost model, and their names, which are their keys or those of their layers.
static enum ls_status set_outputs(const struct run *run)
{
    const struct ls_model_json *model = run->model;
    const char *names[LS_LAYER_OUTPUTS];
    const enum ls_status status =
        ls_graph_set_outputs(run->builder->graph, run->outputs, model->output_count);
    for (uint32_t i = 0; i < model->output_count; i++)
        names[i] = model->outputs[i].key ? model->outputs[i].key
                                         : model->layers[model->outputs[i].layer].name;
    return status ? status : ls_graph_name_outputs(run->builder->graph, names);
}

static enum ls_status run_functional(const struct run *run)
{
    struct ls_model_json *model = run->model;
    struct work work = {0};
    enum ls_status status = work_init(&work, run);

    if (!status)
        status = call_all(&work);
    for (uint32_t i = 0; i < model->output_count && !status; i++)
        status = find_tensor(&work, &model->outputs[i], "output_layers", &run->outputs[i]);
    if (!status && model->depth == 0)
        status = set_outputs(run);
    work_finish(&work);
    if (status)
        memset(run->outputs, 0, LS_LAYER_OUTPUTS * sizeof(struct ls_tensor *));
    return status;
}

// ---- Models ----

static enum ls_status run_model(const struct run *run)
{
    return run->model->functional ? run_functional(run) : run_sequential(run);
}

// The masks of an argument, one for each input in their order: {"tensor": index}, or null.
static uint32_t take_masks(const json_t *value, uint32_t count,
                           const json_t *out[static LS_LAYER_INPUTS])
{
    const bool named = json_is_object(value) && !json_is_integer(json_object_get(value, "tensor"));
    size_t i;
    const char *key;
    json_t *inner;
    if (!named && !json_is_array(value) && count < LS_LAYER_INPUTS)
        out[count++] = value;
    json_array_foreach((json_t *)value, i, inner) count = take_masks(inner, count, out);
    if (named)
        json_object_foreach((json_t *)value, key, inner) count = take_masks(inner, count, out);
    return count;
}

// What a call gives a model, each with its mask of the argument `mask`. An input that is seen
// elsewhere, too, keeps its own there. Layers that take whole numbers look at no mask of theirs.
static enum ls_status give_inputs(struct ls_graph *graph, const struct use *use, uint32_t count,
                                  struct ls_tensor **out)
{
    const json_t *masks[LS_LAYER_INPUTS];
    const uint32_t given =
        take_masks(json_object_get(use->json ? use->json->kwargs : NULL, "mask"), 0, masks);
    enum ls_status status = LS_OK;

    for (uint32_t i = 0; i < count && !status; i++) {
        const json_t *index = i < given ? json_object_get(masks[i], "tensor") : NULL;
        const json_int_t place = json_is_integer(index) ? json_integer_value(index) : -1;
        out[i] = use->inputs[i];
        if (place < 0 || place >= use->input_count || out[i]->dtype == LS_I32)
            continue;
        status = ls_graph_add(graph, LS_OP_RESHAPE, NULL, &out[i], 1, &out[i]->shape, &out[i]);
        if (!status)
            out[i]->mask = use->inputs[place];
    }
    return status;
}

static enum ls_status call_model(const struct run *outer, struct use *use)
{
    struct ls_model_json *model = use->layer->model;
    const uint32_t expected = model->functional ? model->input_count : 1;
    uint32_t count = use->input_count;
    const char *key;
    json_t *value;

    json_object_foreach(use->json ? use->json->kwargs : NULL, key, value)
    {
        if (strcmp(key, "mask") == 0 && is_tensors(value))
            count -= count_tensors(value);
        else if (strcmp(key, "inputs") != 0)
            return ls_model_json_fail(model, "node %u: argument '%.100s' is not supported",
                                      use->node, key);
    }
    if (count != expected && !is_said(outer))
        return LS_BAD_INPUT;
    if (count != expected)
        return ls_model_json_fail(model, "node %u: expected %u input tensor%s, got %u", use->node,
                                  expected, expected == 1 ? "" : "s", count);
    struct ls_tensor *inputs[LS_LAYER_INPUTS];
    const enum ls_status status =
        use->inputs ? give_inputs(outer->builder->graph, use, expected, inputs) : LS_OK;
    if (status)
        return status;
    const struct run run = {
        .builder = outer->builder,
        .model = model,
        .trainable =
            outer->trainable && !json_is_false(json_object_get(model->config, "trainable")),
        .inference = outer->inference || (use->json && use->json->inference),
        .inputs = use->inputs ? inputs : NULL,
        .outputs = use->outputs,
        .outer = outer->model,
        .json = use->json,
        .node = use->node,
    };
    return run_model(&run);
}

static enum ls_status call_on_step(struct ls_inner_model *model, struct ls_tensor *input,
                                   bool inference, struct ls_tensor **outputs)
{
    const struct step_model *own = (const struct step_model *)model;
    struct ls_graph *graph = own->run->builder->graph;
    const uint32_t layer = graph->layer, compute = graph->compute;
    const bool reusing = graph->reusing;
    struct run run = *own->run;
    struct use use = {.layer = own->layer, .inputs = input ? &input : NULL, .input_count = 1};

    run.inference = inference;
    run.trainable =
        run.trainable && !json_is_false(json_object_get(own->layer->config, "trainable"));
    const enum ls_status status = call_model(&run, &use);
    memcpy(outputs, use.outputs, sizeof(use.outputs));
    graph->layer = layer;
    graph->compute = compute;
    graph->reusing = reusing;
    return status;
}

enum ls_status ls_model_build(const char *source, const json_t *object,
                              const struct ls_shape *input_shape, struct ls_graph **out)
{
    return ls_model_build_with(source, object, input_shape, LS_PRECISION_OF_FILE, NULL, out);
}

enum ls_status ls_model_build_with(const char *source, const json_t *object,
                                   const struct ls_shape *input_shape, enum ls_precision precision,
                                   struct ls_own_parts *parts, struct ls_graph **out)
{
    uint32_t total = 0, problems = 0;
    struct ls_model_json model = {
        .source = source, .object = object, .total = &total, .parts = parts};
    struct builder builder = {.input_shape = input_shape, .precision = precision};
    struct ls_tensor *outputs[LS_LAYER_OUTPUTS] = {NULL};
    struct run run = {.builder = &builder, .model = &model, .outputs = outputs};
    struct ls_config c = {0};

    enum ls_status status = ls_model_json_read(&model);
    if (!status)
        status = ls_graph_create(model.name, &builder.graph);
    if (status)
        goto out;
    builder.graph->source = strdup(source);
    builder.graph->problems = &problems;
    status = builder.graph->source ? LS_OK : LS_OUT_OF_MEMORY;
    if (status)
        goto out;
    c.graph = builder.graph;
    c.object = model.config;
    if (c.object)
        ls_config_check(&c, model_keys);
    run.trainable = !json_is_false(json_object_get(model.config, "trainable"));
    status = worse(c.status, run_model(&run));
    if (!status)
        status = ls_graph_float32_outputs(builder.graph);
    if (status)
        goto out;
    builder.graph->problems = NULL;
    *out = builder.graph;
    builder.graph = NULL;

out:
    if (problems > LS_GRAPH_PROBLEMS)
        ls_error(source, "and %u more problems", problems - LS_GRAPH_PROBLEMS);
    if (problems) // at once with what only training minds
        (void)!ls_model_check_training(source, object, true);
    ls_graph_destroy(builder.graph);
    ls_model_json_finish(&model);
    return status;
}
