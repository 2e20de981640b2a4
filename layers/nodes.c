// SPDX-License-Identifier: Apache-2.0
// The calls of a functional model's layers ("inbound_nodes"), its inputs and its outputs.
//
// Keras 3 writes a call as {"args": [...], "kwargs": {...}} with objects for tensors, Keras 2 as a
// list of [layer, node, tensor, kwargs]. Both become struct ls_call_json.
//
// Nodes are counted from 0, with one exception that is Keras's own: a model inside the model has a
// node of its own before its calls. Keras 2 counts that node wherever it refers to the model,
// except to a Sequential that was made without an input; Keras 3 counts it in "output_layers" only,
// and only if the model is functional.
#include "layers/model_json.h"

#include <stdlib.h>
#include <string.h>

#define SHOWN 64
#define CONSTANT "_CONSTANT_VALUE" // what Keras 2 writes for a layer where a constant is

// One call that is being read.
struct reading {
    const struct ls_model_json *model;
    const struct ls_layer_json *layer; // NULL: input_layers or output_layers
    const char *key; // "input_layers"
    uint32_t node;
    bool legacy;
    const json_t *legacy_kwargs;
    struct ls_reference **references;
    uint32_t *count;
    enum ls_status status;
};

LS_PRINTF(2, 3)
static void fail(struct reading *r, const char *format, ...);

static void fail(struct reading *r, const char *format, ...)
{
    char message[320];
    va_list list;
    if (r->status)
        return;
    va_start(list, format);
    vsnprintf(message, sizeof(message), format, list);
    va_end(list);
    if (r->layer)
        r->status = ls_model_json_fail(r->model, "layer '%s' (%.100s): node %u: %s", r->layer->name,
                                       r->layer->class_name, r->node, message);
    else
        r->status = ls_model_json_fail(r->model, "%s: %s", r->key, message);
}

static json_t *out_of_memory(struct reading *r)
{
    r->status = r->status ? r->status : LS_OUT_OF_MEMORY;
    return NULL;
}

// ---- References ----

// [layer, node, tensor], where Keras 2 may add an object of keyword arguments.
static bool is_history(const json_t *value)
{
    const size_t count = json_array_size(value);
    return (count == 3 || count == 4) && json_is_string(json_array_get(value, 0)) &&
           json_is_integer(json_array_get(value, 1)) &&
           (json_is_integer(json_array_get(value, 2)) ||
            strcmp(json_string_value(json_array_get(value, 0)), CONSTANT) == 0);
}

static bool is_index(const json_t *value)
{
    return json_integer_value(value) >= 0 && json_integer_value(value) <= LS_MOST_CALLS;
}

// Appends the reference, whose node is only checked when all calls are known. Returns its index.
static uint32_t add_reference(struct reading *r, const json_t *history)
{
    const char *name = json_string_value(json_array_get(history, 0));
    const json_t *call = json_array_get(history, 1), *output = json_array_get(history, 2);
    const json_t *number = name[0] == '/' ? NULL : json_object_get(r->model->numbers, name);
    const uint32_t count = *r->count;

    if (!number)
        fail(r, "there is no layer '%.100s' in this model", name);
    else if (!is_index(call) || !is_index(output))
        fail(r, "layer '%s' has no node %lld with a tensor %lld", name,
             (long long)json_integer_value(call), (long long)json_integer_value(output));
    else if (count == LS_LAYER_INPUTS)
        fail(r, "more than %d tensors", LS_LAYER_INPUTS);
    if (r->status)
        return 0;
    if ((count & (count - 1)) == 0) {
        const size_t capacity = count > 0 ? (size_t)count * 2 : 1;
        struct ls_reference *larger = realloc(*r->references, capacity * sizeof(*larger));
        if (!larger) {
            (void)!out_of_memory(r);
            return 0;
        }
        *r->references = larger;
    }
    (*r->references)[count] = (struct ls_reference){.layer = (uint32_t)json_integer_value(number),
                                                    .call = (uint32_t)json_integer_value(call),
                                                    .output = (uint32_t)json_integer_value(output)};
    return (*r->count)++;
}

static json_t *take_tensor(struct reading *r, const json_t *history)
{
    char text[SHOWN];
    if (!is_history(history))
        fail(r, "keras_history: expected [layer, node, tensor], got %s",
             ls_json_text(history, text, sizeof(text)));
    const uint32_t index = r->status ? 0 : add_reference(r, history);
    return r->status ? NULL : json_pack("{s:I}", "tensor", (json_int_t)index);
}

// ---- Arguments ----

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// The keys in the order in which Keras goes through a dictionary. NULL: out of memory.
static const char **sorted_keys(const json_t *object)
{
    const size_t count = json_object_size(object);
    const char **keys = calloc(count + 1, sizeof(*keys)), *key;
    size_t i = 0;
    json_t *value;
    if (!keys)
        return NULL;
    json_object_foreach((json_t *)object, key, value) keys[i++] = key;
    qsort(keys, count, sizeof(*keys), compare_names);
    return keys;
}

static json_t *take(struct reading *r, const json_t *value);

static json_t *take_list(struct reading *r, const json_t *list)
{
    json_t *out = json_array(), *element;
    size_t i;
    if (!out)
        return out_of_memory(r);
    json_array_foreach((json_t *)list, i, element)
    {
        if (json_array_append_new(out, take(r, element)) != 0) {
            json_decref(out);
            return out_of_memory(r);
        }
    }
    return out;
}

static json_t *take_object(struct reading *r, const json_t *object)
{
    json_t *out = json_object();
    const char **keys = sorted_keys(object);
    for (size_t i = 0; out && keys && keys[i] && !r->status; i++)
        if (json_object_set_new(out, keys[i], take(r, json_object_get(object, keys[i]))) != 0)
            (void)!out_of_memory(r);
    free(keys);
    if (out && keys && !r->status)
        return out;
    json_decref(out);
    return out_of_memory(r);
}

// A copy in which each tensor is {"tensor": its index}; constants are shared. NULL: failed.
static json_t *take(struct reading *r, const json_t *value)
{
    const char *class_name = json_string_value(json_object_get(value, "class_name"));

    if (r->status)
        return NULL;
    if (r->legacy && is_history(value)) {
        if (json_is_object(json_array_get(value, 3)))
            r->legacy_kwargs = json_array_get(value, 3);
        if (strcmp(json_string_value(json_array_get(value, 0)), CONSTANT) == 0)
            return json_incref(json_array_get(value, 2));
        return take_tensor(r, value);
    }
    if (json_is_array(value))
        return take_list(r, value);
    if (class_name && strcmp(class_name, "__keras_tensor__") == 0)
        return take_tensor(r, json_object_get(json_object_get(value, "config"), "keras_history"));
    if (class_name && strcmp(class_name, "__tuple__") == 0)
        return take_list(r, json_object_get(value, "items"));
    if (json_is_object(value) && !class_name)
        return take_object(r, value);
    return json_incref((json_t *)value);
}

// Null, or a structure of nothing else.
static bool is_nothing(const json_t *value)
{
    size_t i;
    const char *key;
    json_t *inner;
    if (json_is_array(value)) {
        json_array_foreach((json_t *)value, i, inner) if (!is_nothing(inner)) return false;
        return true;
    }
    if (!json_is_object(value))
        return json_is_null(value);
    json_object_foreach((json_t *)value, key, inner) if (!is_nothing(inner)) return false;
    return true;
}

static void read_training(struct reading *r, const json_t *value, struct ls_call_json *call)
{
    char text[SHOWN];
    if (!r->layer->kind && !r->layer->model) // refused itself: Keras writes this for RandomHue
        return;
    if (json_is_true(value) && r->layer->kind && r->layer->kind->says_training)
        return;
    if (json_is_true(value))
        fail(r, "training=True is not supported: the layer would also act in predictions as in "
                "training; remove it");
    else if (!json_is_false(value))
        fail(r, "training: expected true, false or null, got %s",
             ls_json_text(value, text, sizeof(text)));
    call->inference = true;
}

static void read_kwargs(struct reading *r, const json_t *kwargs, struct ls_call_json *call)
{
    const char **keys = sorted_keys(kwargs);
    call->kwargs = json_object();
    if (!keys || !call->kwargs)
        (void)!out_of_memory(r);
    for (size_t i = 0; keys && keys[i] && !r->status; i++) {
        const json_t *value = json_object_get(kwargs, keys[i]);
        if (is_nothing(value))
            continue;
        if (strcmp(keys[i], "training") == 0)
            read_training(r, value, call);
        else if (json_object_set_new(call->kwargs, keys[i], take(r, value)) != 0)
            (void)!out_of_memory(r);
    }
    free(keys);
}

// Keras 2: one tensor, or a list of them; a list of one is that one.
static void read_legacy(struct reading *r, const json_t *node, struct ls_call_json *call)
{
    if (!is_history(node) && json_array_size(node) == 1)
        node = json_array_get(node, 0);
    call->args = json_pack("[o]", take(r, node));
    if (!call->args)
        (void)!out_of_memory(r);
    else if (r->legacy_kwargs)
        read_kwargs(r, r->legacy_kwargs, call);
}

static void read_call(struct reading *r, const json_t *node, struct ls_call_json *call)
{
    const json_t *args = json_object_get(node, "args"), *kwargs = json_object_get(node, "kwargs");
    char text[SHOWN];

    r->legacy = json_is_array(node);
    if (r->legacy) {
        read_legacy(r, node, call);
    } else if (json_is_array(args) && json_is_object(kwargs) && json_object_size(node) == 2) {
        call->args = take_list(r, args);
        if (!r->status)
            read_kwargs(r, kwargs, call);
    } else {
        fail(r, "expected {\"args\": [...], \"kwargs\": {...}}, or the list of Keras 2, got %s",
             ls_json_text(node, text, sizeof(text)));
    }
    if (call->input_count == 0)
        fail(r, "no tensor is among its arguments");
}

static enum ls_status read_calls(const struct ls_model_json *model, struct ls_layer_json *layer)
{
    const json_t *nodes = json_object_get(layer->object, "inbound_nodes");
    const bool input = strcmp(layer->class_name, "InputLayer") == 0;
    const size_t count = input ? 1 : json_array_size(nodes);
    struct reading r = {.model = model, .layer = layer};
    char text[SHOWN];

    if (nodes && !json_is_array(nodes))
        return ls_model_json_fail(
            model, "layer '%s' (%.100s): inbound_nodes: expected a list, got %s", layer->name,
            layer->class_name, ls_json_text(nodes, text, sizeof(text)));
    if (input && json_array_size(nodes) > 0)
        return ls_model_json_fail(model, "layer '%s' (InputLayer): an input has no inbound_nodes",
                                  layer->name);
    if (count == 0 || count > LS_MOST_CALLS)
        return ls_model_json_fail(model,
                                  "layer '%s' (%.100s): inbound_nodes: it is called %zu times; "
                                  "expected 1 to %d",
                                  layer->name, layer->class_name, count, LS_MOST_CALLS);
    layer->calls = calloc(count, sizeof(*layer->calls));
    if (!layer->calls)
        return LS_OUT_OF_MEMORY;
    layer->call_count = (uint32_t)count;
    for (r.node = 0; r.node < count && !input && !r.status; r.node++) {
        struct ls_call_json *call = &layer->calls[r.node];
        r.references = &call->inputs;
        r.count = &call->input_count;
        r.legacy_kwargs = NULL;
        read_call(&r, json_array_get(nodes, r.node), call);
        layer->legacy = r.legacy;
    }
    return r.status;
}

// ---- Inputs and outputs of the model ----

static void read_ends(struct reading *r, const json_t *value)
{
    char text[SHOWN];
    size_t i;
    json_t *element;

    if (r->status)
        return;
    if (is_history(value)) {
        (void)add_reference(r, value);
    } else if (json_is_array(value)) {
        json_array_foreach((json_t *)value, i, element) read_ends(r, element);
    } else if (json_is_object(value)) {
        const char **keys = sorted_keys(value);
        if (!keys)
            (void)!out_of_memory(r);
        for (i = 0; keys && keys[i]; i++) {
            const json_t *end = json_object_get(value, keys[i]);
            read_ends(r, end);
            if (!r->status && is_history(end))
                (*r->references)[*r->count - 1].key = keys[i];
        }
        free(keys);
    } else {
        fail(r, "expected [layer, node, tensor] or a list of these, got %s",
             ls_json_text(value, text, sizeof(text)));
    }
}

static enum ls_status read_end(struct ls_model_json *model, const char *key,
                               struct ls_reference **references, uint32_t *count, uint32_t most)
{
    struct reading r = {.model = model, .key = key, .references = references, .count = count};
    read_ends(&r, json_object_get(model->config, key));
    if (*count == 0)
        fail(&r, "expected [layer, node, tensor] or a list of these, got an empty list");
    if (*count > most)
        fail(&r, "more than %u tensors", most);
    return r.status;
}

static enum ls_status check_inputs(const struct ls_model_json *model)
{
    struct reading r = {.model = model, .key = "input_layers"};
    for (uint32_t i = 0; i < model->input_count; i++) {
        const struct ls_layer_json *layer = &model->layers[model->inputs[i].layer];
        if (strcmp(layer->class_name, "InputLayer") != 0)
            fail(&r, "layer '%s' is a %.100s, not an InputLayer", layer->name, layer->class_name);
        for (uint32_t k = 0; k < i; k++)
            if (model->inputs[k].layer == model->inputs[i].layer)
                fail(&r, "layer '%s' is there twice", layer->name);
    }
    for (uint32_t i = 0; i < model->count; i++) {
        bool listed = strcmp(model->layers[i].class_name, "InputLayer") != 0;
        for (uint32_t k = 0; k < model->input_count; k++)
            listed |= model->inputs[k].layer == i;
        if (!listed)
            fail(&r, "InputLayer '%s' is missing", model->layers[i].name);
    }
    return r.status;
}

// ---- Nodes as they are counted ----

// TimeDistributed over a model is a layer.
static bool is_model(const struct ls_layer_json *layer)
{
    return layer->model && !layer->kind;
}

// Whether Keras 2 counted the node that the model has of its own: then one reference is to a node
// beyond the last call.
static void mark_counted(const struct ls_model_json *model, const struct ls_reference *references,
                         uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct ls_layer_json *layer = &model->layers[references[i].layer];
        if (is_model(layer) && layer->legacy && references[i].call >= layer->call_count)
            layer->counts_own_node = true;
    }
}

static void resolve(struct reading *r, struct ls_reference *references, uint32_t count,
                    bool outputs)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct ls_layer_json *layer = &r->model->layers[references[i].layer];
        const uint32_t node = references[i].call;
        const bool own = is_model(layer) && (layer->legacy ? layer->counts_own_node
                                                           : outputs && layer->model->functional);
        if (node < own || node - own >= layer->call_count)
            fail(r, "layer '%s' (%.100s) has no node %u: it has %u, counted from %d", layer->name,
                 layer->class_name, node, layer->call_count, own);
        references[i].call -= own;
    }
}

static enum ls_status resolve_all(struct ls_model_json *model)
{
    struct reading r = {.model = model};

    mark_counted(model, model->outputs, model->output_count);
    for (uint32_t i = 0; i < model->count; i++)
        for (uint32_t k = 0; k < model->layers[i].call_count; k++)
            mark_counted(model, model->layers[i].calls[k].inputs,
                         model->layers[i].calls[k].input_count);
    r.key = "input_layers";
    resolve(&r, model->inputs, model->input_count, false);
    r.key = "output_layers";
    resolve(&r, model->outputs, model->output_count, true);
    for (uint32_t i = 0; i < model->count && !r.status; i++) {
        r.layer = &model->layers[i];
        for (r.node = 0; r.node < r.layer->call_count && !r.status; r.node++)
            resolve(&r, r.layer->calls[r.node].inputs, r.layer->calls[r.node].input_count, false);
    }
    return r.status;
}

enum ls_status ls_nodes_read(struct ls_model_json *model)
{
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; i < model->count && !status; i++)
        status = read_calls(model, &model->layers[i]);
    if (!status)
        status =
            read_end(model, "input_layers", &model->inputs, &model->input_count, LS_LAYER_INPUTS);
    if (!status)
        status = read_end(model, "output_layers", &model->outputs, &model->output_count,
                          LS_LAYER_OUTPUTS);
    if (!status)
        status = check_inputs(model);
    if (!status)
        status = resolve_all(model);
    return status;
}

void ls_nodes_finish(struct ls_model_json *model)
{
    for (uint32_t i = 0; model->layers && i < model->count; i++) {
        for (uint32_t k = 0; k < model->layers[i].call_count; k++) {
            json_decref(model->layers[i].calls[k].args);
            json_decref(model->layers[i].calls[k].kwargs);
            free(model->layers[i].calls[k].inputs);
        }
        free(model->layers[i].calls);
    }
    free(model->inputs);
    free(model->outputs);
}
