// SPDX-License-Identifier: Apache-2.0
// A functional model written in C becomes the JSON that the reader of Keras models takes: there is
// one way in. A symbol is an output of a call; a call has a layer and the symbols that it takes. All
// of them are kept until their run is closed, because any of them may become part of another model.
#include "layers/functional.h"

#include "layers.h"
#include "layers/model_json.h"

#include "core/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCOPE "model"

// Something that is called: a layer, or a model.
struct part {
    struct part *next;
    char *class_name;
    json_t *config;
    const void *model; // of a model: what the caller knows it by; NULL: a layer
    uint32_t input_count, output_count;
    bool causal; // its calls say use_causal_mask=True
    // While a model is made of it:
    char name[LS_LONGEST_NAME];
    uint32_t nodes;
    json_t *inbound_nodes;
};

struct call {
    struct call *previous, *next; // made before and after this one
    struct part *part;
    struct ls_symbol **inputs;
    uint32_t input_count;
    struct ls_symbol *outputs; // as many as the part has
    // While a model is made of it:
    bool needed;
    uint32_t node;
};

struct ls_symbol {
    struct ls_symbols *symbols;
    struct call *call;
    uint32_t output;
};

struct ls_symbols {
    void *owner;
    struct part *parts;
    struct call *first, *last;
};

void *ls_symbol_owner(const struct ls_symbol *symbol)
{
    return symbol->symbols->owner;
}

enum ls_status ls_symbols_create(void *owner, struct ls_symbols **out)
{
    struct ls_symbols *symbols = calloc(1, sizeof(*symbols));
    if (!symbols)
        return LS_OUT_OF_MEMORY;
    symbols->owner = owner;
    *out = symbols;
    return LS_OK;
}

static void free_part(struct part *part)
{
    if (!part)
        return;
    json_decref(part->config);
    json_decref(part->inbound_nodes);
    free(part->class_name);
    free(part);
}

static void free_call(struct call *call)
{
    if (!call)
        return;
    free(call->inputs);
    free(call->outputs);
    free(call);
}

void ls_symbols_destroy(struct ls_symbols *symbols)
{
    if (!symbols)
        return;
    while (symbols->first) {
        struct call *next = symbols->first->next;
        free_call(symbols->first);
        symbols->first = next;
    }
    while (symbols->parts) {
        struct part *next = symbols->parts->next;
        free_part(symbols->parts);
        symbols->parts = next;
    }
    free(symbols);
}

// ---- Parts and calls ----

// Takes `config`, which may be NULL after a failure.
static enum ls_status add_part(struct ls_symbols *symbols, const char *class_name, json_t *config,
                               struct part **out)
{
    struct part *part = calloc(1, sizeof(*part));
    if (part) {
        part->config = config;
        part->class_name = strdup(class_name);
        part->output_count = 1;
    } else {
        json_decref(config);
    }
    if (!part || !config || !part->class_name) {
        free_part(part);
        return LS_OUT_OF_MEMORY;
    }
    part->next = symbols->parts;
    symbols->parts = part;
    *out = part;
    return LS_OK;
}

static enum ls_status check_inputs(const char *class_name, struct ls_symbol *const *inputs,
                                   uint32_t count)
{
    if (count == 0 || count > LS_LAYER_INPUTS) {
        ls_error(SCOPE, "%s: a call takes 1 to %d symbols, not %u", class_name, LS_LAYER_INPUTS,
                 count);
        return LS_BAD_INPUT;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (inputs[i] && inputs[i]->symbols == inputs[0]->symbols)
            continue;
        ls_error(SCOPE, "%s: input %u %s", class_name, i,
                 inputs[i] ? "is of another run than the first" : "is NULL");
        return LS_BAD_INPUT;
    }
    return LS_OK;
}

static enum ls_status add_call(struct ls_symbols *symbols, struct part *part,
                               struct ls_symbol *const *inputs, uint32_t count,
                               struct ls_symbol **outputs)
{
    struct call *call = calloc(1, sizeof(*call));
    if (!call)
        return LS_OUT_OF_MEMORY;
    call->part = part;
    call->inputs = calloc((size_t)count + 1, sizeof(struct ls_symbol *));
    call->outputs = calloc(part->output_count, sizeof(*call->outputs));
    if (!call->inputs || !call->outputs) {
        free_call(call);
        return LS_OUT_OF_MEMORY;
    }
    if (count > 0)
        memcpy(call->inputs, inputs, count * sizeof(struct ls_symbol *));
    call->input_count = count;
    for (uint32_t i = 0; i < part->output_count; i++) {
        call->outputs[i] = (struct ls_symbol){.symbols = symbols, .call = call, .output = i};
        outputs[i] = &call->outputs[i];
    }
    call->previous = symbols->last;
    *(symbols->last ? &symbols->last->next : &symbols->first) = call;
    symbols->last = call;
    return LS_OK;
}

enum ls_status ls_symbols_input(struct ls_symbols *symbols, const struct ls_layer *input,
                                struct ls_symbol **out)
{
    struct part *part;
    json_t *config = NULL;

    if (!input->class_name || strcmp(input->class_name, "InputLayer") != 0) {
        ls_error(SCOPE, "ls_input takes an LS_INPUT, not '%s'; call layers with ls_layer_call",
                 input->class_name ? input->class_name : "LS_END");
        return LS_BAD_INPUT;
    }
    enum ls_status status = ls_layer_config(input, &config);
    if (!status)
        status = add_part(symbols, input->class_name, config, &part);
    if (!status)
        status = add_call(symbols, part, NULL, 0, out);
    return status;
}

enum ls_status ls_symbols_call(const struct ls_layer *layer, struct ls_symbol *const *inputs,
                               uint32_t count, struct ls_symbol **out)
{
    struct part *part;
    json_t *config = NULL;

    if (!layer->class_name || strcmp(layer->class_name, "InputLayer") == 0) {
        ls_error(SCOPE, "'%s' is no layer that can be called; inputs are made by ls_input",
                 layer->class_name ? layer->class_name : "LS_END");
        return LS_BAD_INPUT;
    }
    enum ls_status status = check_inputs(layer->class_name, inputs, count);
    if (!status)
        status = ls_layer_config(layer, &config);
    if (!status)
        status = add_part(inputs[0]->symbols, layer->class_name, config, &part);
    if (status)
        return status;
    part->causal = layer->causal;
    return add_call(inputs[0]->symbols, part, inputs, count, out);
}

enum ls_status ls_symbols_call_again(const struct ls_symbol *made, struct ls_symbol *const *inputs,
                                     uint32_t count, struct ls_symbol **out)
{
    struct part *part = made->call->part;

    if (made->call->input_count == 0 || part->model) {
        ls_error(SCOPE,
                 "%s: only what a layer has made says which layer to call again; an input "
                 "has none, and a model is called again with ls_model_call",
                 part->class_name);
        return LS_BAD_INPUT;
    }
    enum ls_status status = check_inputs(part->class_name, inputs, count);
    if (!status && inputs[0]->symbols != made->symbols) {
        ls_error(SCOPE, "%s: the inputs are of another run than the layer", part->class_name);
        return LS_BAD_INPUT;
    }
    if (!status)
        status = add_call(made->symbols, part, inputs, count, out);
    return status;
}

static struct part *find_model(const struct ls_symbols *symbols, const void *model)
{
    for (struct part *part = symbols->parts; part; part = part->next)
        if (part->model == model)
            return part;
    return NULL;
}

enum ls_status ls_symbols_call_model(const struct ls_symbols_model *model,
                                     struct ls_symbol *const *inputs, uint32_t count,
                                     struct ls_symbol **outputs)
{
    const char *class_name = json_string_value(json_object_get(model->json, "class_name"));
    enum ls_status status = check_inputs(model->name, inputs, count);
    if (status)
        return status;
    if (count != model->input_count) {
        ls_error(SCOPE, "%s: the model has %u input%s, not %u", model->name, model->input_count,
                 model->input_count == 1 ? "" : "s", count);
        return LS_BAD_INPUT;
    }
    struct part *part = find_model(inputs[0]->symbols, model->key);
    if (!part) {
        const json_t *given = json_object_get(model->json, "config");
        json_t *config = json_is_array(given) // of the first Keras 2
                             ? json_pack("{s:O}", "layers", given)
                             : json_deep_copy(given);
        status = add_part(inputs[0]->symbols, class_name, config, &part);
        if (status)
            return status;
        part->model = model->key;
        part->input_count = model->input_count;
        part->output_count = model->output_count;
    }
    return add_call(inputs[0]->symbols, part, inputs, count, outputs);
}

void ls_symbols_forget_model(struct ls_symbols *symbols, const void *model)
{
    static const char closed;
    for (struct part *part = symbols->parts; part; part = part->next)
        if (part->model == model)
            part->model = &closed;
}

// ---- The model ----

// A call was made after all that it takes from.
static void mark_needed(struct ls_symbols *symbols, const struct ls_model_ends *ends)
{
    for (struct call *call = symbols->first; call; call = call->next)
        call->needed = false;
    for (uint32_t i = 0; i < ends->input_count; i++)
        ends->inputs[i]->call->needed = true;
    for (uint32_t i = 0; i < ends->output_count; i++)
        ends->outputs[i]->call->needed = true;
    for (struct call *call = symbols->last; call; call = call->previous)
        for (uint32_t i = 0; call->needed && i < call->input_count; i++)
            call->inputs[i]->call->needed = true;
}

// Those that were given first, as Keras counts the others.
static enum ls_status give_names(struct ls_symbols *symbols)
{
    struct ls_model_json names = {.numbers = json_object()};
    if (!names.numbers)
        return LS_OUT_OF_MEMORY;
    for (struct call *call = symbols->first; call; call = call->next) {
        struct part *part = call->part;
        const char *given = json_string_value(json_object_get(part->config, "name"));
        json_decref(part->inbound_nodes);
        part->inbound_nodes = NULL;
        part->nodes = 0;
        snprintf(part->name, sizeof(part->name), "%s", given ? given : "");
        if (call->needed && given)
            json_object_set_new(names.numbers, given, json_true());
    }
    for (struct call *call = symbols->first; call; call = call->next)
        if (call->needed && call->part->name[0] == '\0')
            ls_model_json_name(&names, 0, call->part->class_name, call->part->name);
    json_decref(names.numbers);
    return LS_OK;
}

static json_t *history_of(const struct ls_symbol *symbol, uint32_t own)
{
    return json_pack("[s, I, I]", symbol->call->part->name, (json_int_t)symbol->call->node + own,
                     (json_int_t)symbol->output);
}

static json_t *node_of(const struct call *call)
{
    // These take their tensors one by one, all other layers as a list.
    const char *class_name = call->part->class_name;
    const bool apart = strcmp(class_name, "MultiHeadAttention") == 0 ||
                       strcmp(class_name, "GroupQueryAttention") == 0;
    json_t *list = json_array(), *args = list;
    int failed = !list;

    for (uint32_t i = 0; i < call->input_count; i++)
        failed |= json_array_append_new(
            list,
            json_pack("{s:s, s:{s:[n], s:s, s:o}}", "class_name", "__keras_tensor__", "config",
                      "shape", "dtype", "float32", // Keras asks for them, and uses neither
                      "keras_history", history_of(call->inputs[i], 0)));
    if (!apart && call->input_count > 1)
        args = json_pack("[o]", list);
    if (!failed && args && call->part->causal)
        return json_pack("{s:o, s:{s:b}}", "args", args, "kwargs", "use_causal_mask", 1);
    if (!failed && args)
        return json_pack("{s:o, s:{}}", "args", args, "kwargs");
    json_decref(args);
    return NULL;
}

// An element of "layers", whose nodes come later.
static enum ls_status put_part(json_t *layers, struct part *part)
{
    json_t *config = json_copy(part->config);
    if (!config || json_object_set_new(config, "name", json_string(part->name)) != 0) {
        json_decref(config);
        return LS_OUT_OF_MEMORY;
    }
    part->inbound_nodes = json_array();
    json_t *layer = json_pack("{s:s, s:s, s:n, s:o, s:s, s:O}", "module",
                              part->model ? "keras" : "keras.layers", "class_name",
                              part->class_name, "registered_name", "config", config, "name",
                              part->name, "inbound_nodes", part->inbound_nodes);
    return json_array_append_new(layers, layer) == 0 ? LS_OK : LS_OUT_OF_MEMORY;
}

static enum ls_status put_calls(struct ls_symbols *symbols, json_t *layers)
{
    for (struct call *call = symbols->first; call; call = call->next) {
        struct part *part = call->part;
        enum ls_status status = LS_OK;
        if (!call->needed)
            continue;
        if (!part->inbound_nodes)
            status = put_part(layers, part);
        if (status)
            return status;
        call->node = part->nodes++;
        if (call->input_count > 0 && json_array_append_new(part->inbound_nodes, node_of(call)) != 0)
            return LS_OUT_OF_MEMORY;
    }
    return LS_OK;
}

static json_t *ends_of(struct ls_symbol *const *symbols, uint32_t count)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < count; i++) {
        // A functional model has a node of its own before those of its calls.
        const bool own = strcmp(symbols[i]->call->part->class_name, "Functional") == 0;
        if (json_array_append_new(list, history_of(symbols[i], own)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static enum ls_status check_ends(const char *name, const struct ls_model_ends *ends)
{
    enum ls_status status = check_inputs(name, ends->inputs, ends->input_count);
    if (!status)
        status = check_inputs(name, ends->outputs, ends->output_count);
    if (status)
        return status;
    for (uint32_t i = 0; i < ends->input_count; i++) {
        if (ends->inputs[i]->call->input_count == 0)
            continue;
        ls_error(SCOPE, "%s: input %u was made by a layer (%s), not by ls_input", name, i,
                 ends->inputs[i]->call->part->class_name);
        return LS_BAD_INPUT;
    }
    if (ends->inputs[0]->symbols == ends->outputs[0]->symbols)
        return LS_OK;
    ls_error(SCOPE, "%s: inputs and outputs are of different runs", name);
    return LS_BAD_INPUT;
}

enum ls_status ls_functional_json(const char *name, const struct ls_model_ends *ends, json_t **out)
{
    name = name ? name : "functional";
    enum ls_status status = check_ends(name, ends);
    if (status)
        return status;
    struct ls_symbols *symbols = ends->outputs[0]->symbols;
    json_t *layers = json_array();
    mark_needed(symbols, ends);
    status = layers ? give_names(symbols) : LS_OUT_OF_MEMORY;
    if (!status)
        status = put_calls(symbols, layers);
    json_t *model =
        status ? NULL
               : json_pack("{s:s, s:s, s:s, s:{s:s, s:O, s:o, s:o}}", "module",
                           "keras.src.models.functional", "class_name", "Functional",
                           "registered_name", "Functional", "config", "name", name, "layers",
                           layers, "input_layers", ends_of(ends->inputs, ends->input_count),
                           "output_layers", ends_of(ends->outputs, ends->output_count));
    json_decref(layers);
    if (!model)
        return status ? status : LS_OUT_OF_MEMORY;
    *out = model;
    return LS_OK;
}
