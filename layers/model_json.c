// SPDX-License-Identifier: Apache-2.0
// The reader of Keras model JSON, as Keras 2 and 3 write it: Sequential and functional models, and
// models inside them.
//
// Accepted without effect: versions, names of modules, build configurations, a fixed batch size
// (the run has one). What a model's compile configuration says is compile_config.c's. Everything
// else that is not known is refused by name, so that no model is ever trained as another one than
// its author meant.
#include "layers/model_json.h"

#include "core/base/keras_names.h"
#include "core/base/log.h"
#include "core/base/options.h"
#include "layers/kinds.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN 64

static const char *const model_keys[] = {
    "module",         "class_name",      "config",        "registered_name", "build_config",
    "compile_config", "training_config", "keras_version", "backend",         NULL};
static const char *const sequential_keys[] = {
    "name", "trainable", "dtype", "layers", "build_input_shape", "build_config", NULL};
static const char *const functional_keys[] = {"name",         "trainable",     "dtype", "layers",
                                              "input_layers", "output_layers", NULL};
static const char *const layer_keys[] = {
    "module", "class_name",    "config", "registered_name", "build_config", "shared_object_id",
    "name",   "inbound_nodes", NULL};
static const char *const inner_model_keys[] = {
    "module",         "class_name",       "config", "registered_name", "build_config",
    "compile_config", "shared_object_id", "name",   "inbound_nodes",   NULL};

enum ls_status ls_model_json_fail(const struct ls_model_json *model, const char *format, ...)
{
    char message[512];
    va_list list;

    va_start(list, format);
    vsnprintf(message, sizeof(message), format, list);
    va_end(list);
    if (model->path[0] != '\0')
        ls_error(model->source, "model '%s': %s", model->path, message);
    else
        ls_error(model->source, "%s", message);
    return LS_BAD_INPUT;
}

// `where` says which object it is, e.g. "layer 3"; `keys` ends with NULL.
static enum ls_status check_keys(const struct ls_model_json *model, const char *where,
                                 const json_t *object, const char *const *keys)
{
    const char *key;
    json_t *value;
    char text[SHOWN];

    json_object_foreach((json_t *)object, key, value)
    {
        size_t i = 0;
        while (keys[i] && strcmp(keys[i], key) != 0)
            i++;
        if (keys[i])
            continue;
        const char *nearest = ls_nearest(key, keys);
        return ls_model_json_fail(model, "%s: unknown key '%.100s' = %s%s%s%s", where, key,
                                  ls_json_text(value, text, sizeof(text)),
                                  nearest ? "; did you mean '" : "", nearest ? nearest : "",
                                  nearest ? "'?" : "");
    }
    return LS_OK;
}

// ---- Names ----

// The first of dense, dense_1, ... that no layer has. The number found last is kept under a key
// that is no name, so that ten thousand layers without a name do not take minutes.
void ls_model_json_name(const struct ls_model_json *model, uint32_t index, const char *class_name,
                        char *name)
{
    char last[LS_LONGEST_NAME + 1] = "/";

    ls_keras_snake_case(class_name, name, LS_LONGEST_NAME - 16); // room for a number behind it
    strcat(last, name);
    const size_t length = strlen(name);
    json_int_t number = json_integer_value(json_object_get(model->numbers, last));
    if (number > 0)
        snprintf(name + length, LS_LONGEST_NAME - length, "_%lld", (long long)number);
    while (json_object_get(model->numbers, name))
        snprintf(name + length, LS_LONGEST_NAME - length, "_%lld", (long long)++number);
    json_object_set_new_nocheck(model->numbers, last, json_integer(number));
    json_object_set_new_nocheck(model->numbers, name, json_integer(index));
}

// A name becomes part of a variable's: nothing that a terminal would not show. Keras 2 allows slashes,
// as in "conv1/bn", and they may be where they are between other letters.
static bool is_name(const json_t *value)
{
    const char *name = json_string_value(value);
    const size_t length = name ? strlen(name) : 0;
    if (length == 0 || length >= LS_LONGEST_NAME)
        return false;
    for (size_t i = 0; i < length; i++)
        if (iscntrl((unsigned char)name[i]) ||
            (name[i] == '/' && (i == 0 || i + 1 == length || name[i - 1] == '/')))
            return false;
    return true;
}

static enum ls_status refuse_name(const struct ls_model_json *model, const char *where,
                                  const json_t *name)
{
    char text[SHOWN];
    return ls_model_json_fail(model,
                              "%s: name: expected 1 to %d letters, '/' only between others, got %s",
                              where, LS_LONGEST_NAME - 1, ls_json_text(name, text, sizeof(text)));
}

static enum ls_status read_name(const struct ls_model_json *model, const char *where,
                                struct ls_layer_json *layer)
{
    const json_t *outer = json_object_get(layer->object, "name");
    const json_t *name = json_object_get(layer->config, "name");

    if (!name)
        name = outer;
    if (model->functional && json_is_string(outer) && json_is_string(name) &&
        !json_equal((json_t *)outer, (json_t *)name))
        return ls_model_json_fail(model, "%s: its name is '%.100s', but '%.100s' in its config",
                                  where, json_string_value(outer), json_string_value(name));
    if (!name || json_is_null(name))
        return model->functional ? refuse_name(model, where, name) : LS_OK;
    if (!is_name(name))
        return refuse_name(model, where, name);
    layer->given = json_string_value(name);
    return LS_OK;
}

enum ls_status ls_model_json_path(const struct ls_model_json *model, const char *name,
                                  char out[LS_LONGEST_PATH + 1])
{
    const int length = snprintf(out, LS_LONGEST_PATH + 1, "%s%s%s", model->path,
                                model->depth > 0 ? "/" : "", name);
    if (length <= LS_LONGEST_PATH)
        return LS_OK;
    return ls_model_json_fail(model,
                              "layer '%s' and the models that it is in have names of more than %d "
                              "letters together; choose shorter ones",
                              name, LS_LONGEST_PATH);
}

// The given names first, so that no other layer gets one of them.
static enum ls_status give_names(struct ls_model_json *model)
{
    char path[LS_LONGEST_PATH + 1];

    for (uint32_t i = 0; i < model->count; i++) {
        struct ls_layer_json *layer = &model->layers[i];
        if (!layer->given)
            continue;
        if (model->functional && json_object_get(model->numbers, layer->given))
            return ls_model_json_fail(model, "two layers are called '%s'; give one another name",
                                      layer->given);
        snprintf(layer->name, sizeof(layer->name), "%s", layer->given);
        if (json_object_set_new_nocheck(model->numbers, layer->name, json_integer(i)) != 0)
            return LS_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < model->count; i++) {
        struct ls_layer_json *layer = &model->layers[i];
        if (!layer->given)
            ls_model_json_name(model, i, layer->class_name, layer->name);
        enum ls_status status = ls_model_json_path(model, layer->name, path);
        if (status)
            return status;
    }
    return LS_OK;
}

// ---- Layers ----

bool ls_is_model_class(const char *class_name)
{
    return strcmp(class_name, "Sequential") == 0 || strcmp(class_name, "Functional") == 0 ||
           strcmp(class_name, "Model") == 0;
}

const char *ls_layer_json_own_name(const struct ls_layer_json *layer)
{
    const char *registered = json_string_value(json_object_get(layer->object, "registered_name"));
    const char *name = registered && strchr(registered, '>') ? registered : layer->class_name;
    const char *package = strrchr(name, '>');
    return package ? package + 1 : name;
}

static const struct ls_layer_kind *find_kind(const struct ls_layer_json *layer)
{
    const bool operation = ls_json_is_operation(layer->object);

    for (size_t i = 0; operation && ls_node_kinds[i].class_name; i++)
        if (strcmp(ls_node_kinds[i].class_name, layer->class_name) == 0)
            return &ls_node_kinds[i];
    for (size_t i = 0; !operation && ls_layer_kinds[i]; i++)
        if (strcmp(ls_layer_kinds[i]->class_name, layer->class_name) == 0)
            return ls_layer_kinds[i];
    return NULL;
}

// A layer of the user's own, which Keras registers as "package>RMSNorm".
static enum ls_status find_own(const struct ls_model_json *model, struct ls_layer_json *layer)
{
    const struct ls_layer_kind *kind = NULL;
    struct ls_own_parts *parts = model->parts;
    const enum ls_status status =
        parts ? parts->find_layer(parts, ls_layer_json_own_name(layer), &kind) : LS_OK;
    if (kind) {
        layer->kind = kind;
        layer->custom = false;
    }
    return status;
}

// An element of "layers": class, configuration, given name. `index` counts from 0, as Keras's
// model.layers.
static enum ls_status read_layer(const struct ls_model_json *model, size_t index,
                                 const json_t *object, struct ls_layer_json *layer)
{
    const json_t *class_name = json_object_get(object, "class_name"),
                 *config = json_object_get(object, "config");
    char text[SHOWN], where[32];
    const bool is_model =
        json_is_string(class_name) && ls_is_model_class(json_string_value(class_name));

    snprintf(where, sizeof(where), "layer %zu", index);
    if (!json_is_object(object) || !json_is_string(class_name) ||
        (config && !is_model && !json_is_object(config)))
        return ls_model_json_fail(
            model, "%s: expected {\"class_name\": \"...\", \"config\": {...}}, got %s", where,
            ls_json_text(object, text, sizeof(text)));
    layer->object = object;
    layer->config = config;
    layer->class_name = ls_json_is_operation(object)
                            ? json_string_value(class_name)
                            : ls_layer_class(json_string_value(class_name));
    layer->custom = ls_json_is_custom(object);
    layer->kind = is_model ? NULL : find_kind(layer);
    if (!is_model && (!layer->kind || layer->custom)) {
        const enum ls_status found = find_own(model, layer);
        if (found)
            return found;
    }
    if (!model->functional && json_array_size(json_object_get(object, "inbound_nodes")) > 0)
        return ls_model_json_fail(model, "%s: inbound_nodes in a Sequential model; remove them",
                                  where);
    if (!model->functional && index > 0 && strcmp(layer->class_name, "InputLayer") == 0)
        return ls_model_json_fail(model, "%s: an InputLayer must be the first layer", where);
    enum ls_status status =
        check_keys(model, where, object, is_model ? inner_model_keys : layer_keys);
    if (status)
        return status;
    return read_name(model, where, layer);
}

static enum ls_status check_count(const struct ls_model_json *model, size_t count)
{
    if (count == 0 || count > LS_MOST_LAYERS)
        return ls_model_json_fail(model, "the model has %zu layers; expected 1 to %d", count,
                                  LS_MOST_LAYERS);
    if (count > LS_MOST_LAYERS - *model->total)
        return ls_model_json_fail(
            model, "with the models inside it, the model has more than %d layers", LS_MOST_LAYERS);
    *model->total += (uint32_t)count;
    return LS_OK;
}

// The model that a layer is, or that TimeDistributed has inside; NULL: none.
static const json_t *model_of(const struct ls_layer_json *layer)
{
    const json_t *object = layer->kind == &ls_layer_time_distributed
                               ? json_object_get(layer->config, "layer")
                               : layer->object;
    const char *class_name = json_string_value(json_object_get(object, "class_name"));
    return class_name && ls_is_model_class(class_name) && !ls_json_is_custom(object) ? object
                                                                                     : NULL;
}

// "outer/encoder", and "outer/time_distributed/encoder" of a model on each step.
static enum ls_status inner_path(const struct ls_model_json *outer,
                                 const struct ls_layer_json *layer, const json_t *object,
                                 char out[LS_LONGEST_PATH + 1])
{
    const char *class_name = json_string_value(json_object_get(object, "class_name"));
    const json_t *name = json_object_get(json_object_get(object, "config"), "name");
    char both[LS_LONGEST_PATH + 2];

    if (object == layer->object)
        return ls_model_json_path(outer, layer->name, out);
    if (name && !is_name(name))
        return refuse_name(outer, "a model in TimeDistributed", name);
    snprintf(both, sizeof(both), "%s/%s", layer->name,
             name ? json_string_value(name) : ls_keras_model_name(class_name));
    return ls_model_json_path(outer, both, out);
}

// The model `object` of a layer of `outer`.
static enum ls_status read_inner(const struct ls_model_json *outer, struct ls_layer_json *layer,
                                 const json_t *object)
{
    if (outer->depth + 1 > LS_MOST_NESTED)
        return ls_model_json_fail(outer, "layer '%s': more than %d models are inside one another",
                                  layer->name, LS_MOST_NESTED);
    struct ls_model_json *inner = calloc(1, sizeof(*inner));
    if (!inner)
        return LS_OUT_OF_MEMORY;
    layer->model = inner;
    inner->source = outer->source;
    inner->object = object;
    inner->depth = outer->depth + 1;
    inner->total = outer->total;
    inner->parts = outer->parts;
    enum ls_status status = inner_path(outer, layer, object, inner->path);
    if (!status)
        status = check_keys(inner, "the model", object, inner_model_keys);
    return status ? status : ls_model_json_read(inner);
}

static enum ls_status read_layers(struct ls_model_json *model, const json_t *layers)
{
    char text[SHOWN];
    bool unknown[2] = {false, false}; // a layer was, an operation was

    if (!json_is_array(layers))
        return ls_model_json_fail(model, "layers: expected a list, got %s",
                                  ls_json_text(layers, text, sizeof(text)));
    enum ls_status status = check_count(model, json_array_size(layers));
    if (status)
        return status;
    model->count = (uint32_t)json_array_size(layers);
    model->layers = calloc(model->count, sizeof(*model->layers));
    model->numbers = json_object();
    if (!model->layers || !model->numbers)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < model->count; i++) {
        struct ls_layer_json *layer = &model->layers[i];
        status = read_layer(model, i, json_array_get(layers, i), layer);
        if (status)
            return status;
        if (layer->kind || layer->custom || ls_is_model_class(layer->class_name))
            continue;
        const bool operation = ls_json_is_operation(layer->object);
        layer->first_unknown = !unknown[operation];
        unknown[operation] = true;
    }
    status = give_names(model);
    for (uint32_t i = 0; i < model->count && !status; i++) {
        const json_t *inner = model_of(&model->layers[i]);
        if (inner)
            status = read_inner(model, &model->layers[i], inner);
    }
    if (status)
        return status;
    if (model->count == 1 && strcmp(model->layers[0].class_name, "InputLayer") == 0)
        return ls_model_json_fail(model, "the model has no layer besides its InputLayer");
    return LS_OK;
}

// ---- Models ----

// What is checked of the outermost model's when it is built.
static enum ls_status check_inner_config(const struct ls_model_json *model)
{
    const json_t *trainable = json_object_get(model->config, "trainable"),
                 *dtype = json_object_get(model->config, "dtype");
    char text[SHOWN], why[256];

    if (trainable && !json_is_boolean(trainable))
        return ls_model_json_fail(model, "trainable: expected true or false, got %s",
                                  ls_json_text(trainable, text, sizeof(text)));
    if (!ls_json_precision(dtype, why, sizeof(why)))
        return ls_model_json_fail(model, "dtype: %s", why);
    return LS_OK;
}

static enum ls_status check_class(struct ls_model_json *model)
{
    const json_t *class_name = json_object_get(model->object, "class_name");
    const char *name = json_string_value(class_name);
    char text[SHOWN];

    if (!json_is_object(model->object) || !class_name)
        return ls_model_json_fail(
            model,
            "not a Keras model: expected {\"class_name\": \"Sequential\", \"config\": {...}}");
    if (!name || !ls_is_model_class(name) || ls_json_is_custom(model->object))
        return ls_model_json_fail(
            model, "class_name: expected Keras's \"Sequential\" or \"Functional\", got %s",
            ls_json_text(class_name, text, sizeof(text)));
    model->functional = strcmp(name, "Sequential") != 0;
    return model->depth > 0 ? LS_OK : check_keys(model, "the model", model->object, model_keys);
}

enum ls_status ls_model_json_read(struct ls_model_json *model)
{
    const json_t *config = json_object_get(model->object, "config");
    char text[SHOWN];

    enum ls_status status = check_class(model);
    if (status)
        return status;
    model->name = ls_keras_model_name(model->functional ? "Functional" : "Sequential");
    if (json_is_array(config) && !model->functional)
        return read_layers(model, config);
    if (!json_is_object(config))
        return ls_model_json_fail(model, "config: expected an object, got %s",
                                  ls_json_text(config, text, sizeof(text)));
    status =
        check_keys(model, "config", config, model->functional ? functional_keys : sequential_keys);
    if (status)
        return status;
    const json_t *name = json_object_get(config, "name");
    if (name && !is_name(name))
        return refuse_name(model, "config", name);
    if (name)
        model->name = json_string_value(name);
    model->config = config;
    if (model->depth > 0)
        status = check_inner_config(model);
    if (!status)
        status = read_layers(model, json_object_get(config, "layers"));
    if (!status && model->functional)
        status = ls_nodes_read(model);
    return status;
}

void ls_model_json_finish(struct ls_model_json *model)
{
    ls_nodes_finish(model);
    for (uint32_t i = 0; model->layers && i < model->count; i++)
        if (model->layers[i].model) {
            ls_model_json_finish(model->layers[i].model);
            free(model->layers[i].model);
        }
    free(model->layers);
    json_decref(model->numbers);
}
