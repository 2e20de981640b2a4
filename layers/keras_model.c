// SPDX-License-Identifier: Apache-2.0
// The reader of Keras model JSON: Sequential, as Keras 2 and 3 write it.
//
// Accepted without effect: versions, names of modules, build configurations, a fixed batch size
// (the run has one). What a model's compile configuration says is compile_config.c's. Everything
// else that is not known is refused by name, so that no model is ever trained as another one than
// its author meant. All that is wrong is said at once.
#include "layers/config.h"

#include "core/base/file_kind.h"
#include "core/base/keras_names.h"
#include "core/base/log.h"
#include "core/base/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MOST_LAYERS 10000
#define LONGEST_NAME 200
#define SHOWN 64

// One element of "layers".
struct entry {
    const struct ls_layer_kind *kind; // NULL: there is none
    const char *class_name;
    const json_t *config;
    bool custom; // a class of the user's own
    bool first_unknown; // the first layer of the model that there is not
    const char *given; // name in the JSON; NULL: none
    char name[LONGEST_NAME]; // the given one, or as Keras would call it
};

struct model {
    const char *source;
    const char *name;
    const json_t *object, *config; // `config` is NULL where Keras 2 wrote a list
    struct entry *entries;
    size_t count;
};

static const char *const model_keys[] = {
    "module",         "class_name",      "config",        "registered_name", "build_config",
    "compile_config", "training_config", "keras_version", "backend",         NULL};
static const char *const config_keys[] = {
    "name", "trainable", "dtype", "layers", "build_input_shape", "build_config", NULL};
static const char *const layer_keys[] = {
    "module", "class_name",    "config", "registered_name", "build_config", "shared_object_id",
    "name",   "inbound_nodes", NULL};

static const struct ls_layer_kind *find_kind(const char *class_name)
{
    for (size_t i = 0; ls_layer_kinds[i]; i++)
        if (strcmp(ls_layer_kinds[i]->class_name, class_name) == 0)
            return ls_layer_kinds[i];
    return NULL;
}

// `where` says which object it is, e.g. "the model".
static enum ls_status check_keys(const struct model *model, const char *where, const json_t *object,
                                 const char *const *keys)
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
        ls_error(model->source, "%s: unknown key '%.100s' = %s%s%s%s", where, key,
                 ls_json_text(value, text, sizeof(text)), nearest ? "; did you mean '" : "",
                 nearest ? nearest : "", nearest ? "'?" : "");
        return LS_BAD_INPUT;
    }
    return LS_OK;
}

// ---- Names ----

// Keras: a separator before each capital that starts a word. MaxPooling2D: max_pooling2d, LeakyReLU:
// leaky_re_lu.
static void snake_case(const char *class_name, char *out)
{
    const char *end = out + LONGEST_NAME - 16; // room for a number behind it
    for (size_t i = 0; class_name[i] && out + 1 < end; i++) {
        const bool capital = isupper((unsigned char)class_name[i]);
        const bool after_small = i > 0 && islower((unsigned char)class_name[i - 1]);
        const bool before_small = i > 0 && islower((unsigned char)class_name[i + 1]);
        if (capital && (after_small || before_small))
            *out++ = '_';
        *out++ = (char)tolower((unsigned char)class_name[i]);
    }
    *out = '\0';
}

static bool is_taken(const struct model *model, size_t index, const char *name)
{
    for (size_t i = 0; i < model->count; i++) {
        const struct entry *entry = &model->entries[i];
        if (entry->given ? strcmp(entry->given, name) == 0
                         : i < index && strcmp(entry->name, name) == 0)
            return true;
    }
    return false;
}

// dense, dense_1, ...: the first that no other layer has.
static void choose_name(const struct model *model, size_t index, const char *class_name, char *name)
{
    snake_case(class_name, name);
    const size_t length = strlen(name);
    for (unsigned number = 1; is_taken(model, index, name); number++)
        snprintf(name + length, LONGEST_NAME - length, "_%u", number);
}

// A name becomes part of a variable's: no slash, nothing that a terminal would not show.
static bool is_name(const char *name)
{
    const size_t length = strlen(name);
    if (length == 0 || length >= LONGEST_NAME)
        return false;
    for (size_t i = 0; i < length; i++)
        if (name[i] == '/' || iscntrl((unsigned char)name[i]))
            return false;
    return true;
}

// ---- Structure ----

// An unknown class, or one of the user's own. Only the first of a model lists what there is.
static enum ls_status refuse_class(const struct ls_graph *graph, const struct entry *entry)
{
    const char *names[64] = {NULL};
    char why[400];

    if (strcmp(entry->class_name, "Sequential") == 0 ||
        strcmp(entry->class_name, "Functional") == 0)
        return ls_graph_fail(graph, NULL,
                             "a model inside a model is not supported; list its layers instead");
    if (entry->custom)
        return ls_graph_fail(graph, NULL, "only Keras's own layers are supported");
    for (size_t i = 0; ls_layer_kinds[i] && i + 1 < sizeof(names) / sizeof(names[0]); i++)
        names[i] = ls_layer_kinds[i]->class_name;
    ls_keras_refusal(LS_KERAS_LAYER, entry->class_name, names, why, sizeof(why));
    char *list = strstr(why, "; supported:");
    if (list && !entry->first_unknown)
        *list = '\0';
    return ls_graph_fail(graph, NULL, "this layer %s", why);
}

static enum ls_status read_name(const struct model *model, size_t index, const json_t *layer,
                                struct entry *entry)
{
    const json_t *name = json_object_get(entry->config, "name");
    char text[SHOWN];

    if (!name)
        name = json_object_get(layer, "name");
    if (!name || json_is_null(name))
        return LS_OK;
    if (!json_is_string(name) || !is_name(json_string_value(name))) {
        ls_error(model->source, "layer %zu: name: expected 1 to %d letters without '/', got %s",
                 index, LONGEST_NAME - 1, ls_json_text(name, text, sizeof(text)));
        return LS_BAD_INPUT;
    }
    entry->given = json_string_value(name);
    return LS_OK;
}

// An element of "layers": class, configuration, given name. `index` counts from 0, as Keras's model.layers.
static enum ls_status read_layer(const struct model *model, size_t index, const json_t *layer,
                                 struct entry *entry)
{
    const json_t *class_name = json_object_get(layer, "class_name"),
                 *config = json_object_get(layer, "config");
    char text[SHOWN], where[32];

    if (!json_is_object(layer) || !json_is_string(class_name) ||
        (config && !json_is_object(config))) {
        ls_error(model->source,
                 "layer %zu: expected {\"class_name\": \"...\", \"config\": {...}}, got %s", index,
                 ls_json_text(layer, text, sizeof(text)));
        return LS_BAD_INPUT;
    }
    entry->class_name = json_string_value(class_name);
    entry->kind = find_kind(entry->class_name);
    entry->config = config;
    entry->custom = ls_json_is_custom(layer);
    if (json_array_size(json_object_get(layer, "inbound_nodes")) > 0) {
        ls_error(model->source, "layer %zu: inbound_nodes in a Sequential model; remove them",
                 index);
        return LS_BAD_INPUT;
    }
    if (index > 0 && strcmp(entry->class_name, "InputLayer") == 0) {
        ls_error(model->source, "layer %zu: an InputLayer must be the first layer", index);
        return LS_BAD_INPUT;
    }
    snprintf(where, sizeof(where), "layer %zu", index);
    enum ls_status status = check_keys(model, where, layer, layer_keys);
    if (status)
        return status;
    return read_name(model, index, layer, entry);
}

static enum ls_status read_layers(struct model *model, const json_t *layers)
{
    char text[SHOWN];
    const size_t count = json_array_size(layers);
    struct entry *unknown = NULL;

    if (!json_is_array(layers)) {
        ls_error(model->source, "layers: expected a list, got %s",
                 ls_json_text(layers, text, sizeof(text)));
        return LS_BAD_INPUT;
    }
    if (count == 0 || count > MOST_LAYERS) {
        ls_error(model->source, "the model has %zu layers; expected 1 to %d", count, MOST_LAYERS);
        return LS_BAD_INPUT;
    }
    model->entries = calloc(count, sizeof(*model->entries));
    if (!model->entries)
        return LS_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++) {
        enum ls_status status = read_layer(model, i, json_array_get(layers, i), &model->entries[i]);
        if (status)
            return status;
        const struct entry *entry = &model->entries[i];
        if (!entry->kind && !entry->custom)
            unknown = unknown ? unknown : &model->entries[i];
    }
    if (unknown)
        unknown->first_unknown = true;
    model->count = count;
    for (size_t i = 0; i < count; i++) {
        struct entry *entry = &model->entries[i];
        if (entry->given)
            snprintf(entry->name, sizeof(entry->name), "%s", entry->given);
        else
            choose_name(model, i, entry->class_name, entry->name);
    }
    if (count == 1 && strcmp(model->entries[0].class_name, "InputLayer") == 0) {
        ls_error(model->source, "the model has no layer besides its InputLayer");
        return LS_BAD_INPUT;
    }
    return LS_OK;
}

static enum ls_status check_class(const struct model *model)
{
    const json_t *class_name = json_object_get(model->object, "class_name");
    const char *name = json_string_value(class_name);
    char text[SHOWN];

    if (name && strcmp(name, "Sequential") == 0 && !ls_json_is_custom(model->object))
        return check_keys(model, "the model", model->object, model_keys);
    if (name && (strcmp(name, "Functional") == 0 || strcmp(name, "Model") == 0))
        ls_error(
            model->source,
            "Functional models are not supported yet; if the model is a plain chain of layers, "
            "convert it with keras.Sequential(model.layers)");
    else if (!json_is_object(model->object) || !class_name)
        ls_error(model->source,
                 "not a Keras model: expected {\"class_name\": \"Sequential\", \"config\": {...}}");
    else
        ls_error(model->source, "class_name: expected Keras's \"Sequential\", got %s",
                 ls_json_text(class_name, text, sizeof(text)));
    return LS_BAD_INPUT;
}

static enum ls_status read_model(struct model *model)
{
    const json_t *config = json_object_get(model->object, "config");
    char text[SHOWN];

    enum ls_status status = check_class(model);
    if (status)
        return status;
    model->name = "sequential";
    if (json_is_array(config))
        return read_layers(model, config);
    if (!json_is_object(config)) {
        ls_error(model->source, "config: expected an object, got %s",
                 ls_json_text(config, text, sizeof(text)));
        return LS_BAD_INPUT;
    }
    status = check_keys(model, "config", config, config_keys);
    if (status)
        return status;

    const json_t *name = json_object_get(config, "name");
    if (name && (!json_is_string(name) || !is_name(json_string_value(name)))) {
        ls_error(model->source, "config: name: expected 1 to %d letters without '/', got %s",
                 LONGEST_NAME - 1, ls_json_text(name, text, sizeof(text)));
        return LS_BAD_INPUT;
    }
    if (name)
        model->name = json_string_value(name);
    model->config = config;
    return read_layers(model, json_object_get(config, "layers"));
}

// ---- Building ----

static bool has(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value && !json_is_null(value);
}

// The model's input where no InputLayer gives it: what the first layer, the model or the data set says.
static enum ls_status build_input(const struct model *model, const struct ls_shape *input_shape,
                                  struct ls_graph *graph, struct ls_tensor **out)
{
    char name[LONGEST_NAME];
    struct ls_shape example;
    struct ls_config c = {.graph = graph};
    const json_t *first = model->entries[0].config,
                 *build = json_object_get(model->object, "build_config");

    choose_name(model, model->count, "InputLayer", name);
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
    } else if (input_shape) {
        example = *input_shape;
    } else {
        return ls_graph_fail(graph, NULL,
                             "the model does not give its input shape; put an InputLayer first");
    }
    if (c.status)
        return c.status;
    return ls_graph_input(graph, &example, out);
}

// batch_input_shape of a layer must be what arrives there.
static enum ls_status check_input_shape(struct ls_config *config, const struct ls_tensor *input)
{
    struct ls_shape example = {0};
    char text[SHOWN];

    if (!input || !has(config->object, "batch_input_shape"))
        return LS_OK;
    ls_config_shape(config, "batch_input_shape", &example);
    if (config->status)
        return config->status;
    if (example.ndims + 1 == input->shape.ndims &&
        memcmp(example.dims, &input->shape.dims[1], example.ndims * sizeof(example.dims[0])) == 0)
        return LS_OK;
    return ls_graph_fail(
        config->graph, input, "batch_input_shape: says %s",
        ls_json_text(json_object_get(config->object, "batch_input_shape"), text, sizeof(text)));
}

// `tensor`: what arrives, then what leaves; NULL after a layer that was refused, of which only the
// options are checked.
static enum ls_status build_layer(struct ls_graph *graph, const struct entry *entry,
                                  struct ls_tensor **tensor)
{
    json_t *empty = entry->config ? NULL : json_object();
    struct ls_config c = {.graph = graph, .object = entry->config ? entry->config : empty};
    struct ls_tensor *output = NULL;
    if (!c.object)
        return LS_OUT_OF_MEMORY;

    enum ls_status status = ls_graph_begin_layer(graph, entry->name, entry->class_name);
    if (!status && (!entry->kind || entry->custom))
        status = refuse_class(graph, entry);
    if (status)
        goto out;
    if (json_is_false(json_object_get(c.object, "trainable")))
        ls_graph_freeze_layer(graph);
    ls_config_check(&c, entry->kind->keys);
    const enum ls_status checked = c.status ? c.status : check_input_shape(&c, *tensor);
    const struct ls_layer_call call = {
        .config = c.object, .inputs = checked || !*tensor ? NULL : tensor, .input_count = 1};
    struct ls_tensor *outputs[LS_LAYER_OUTPUTS] = {NULL};
    status = entry->kind->build(graph, &call, outputs);
    output = outputs[0];
    status = status ? status : checked;
    if (!status && output)
        ls_graph_end_layer(graph, output);

out:
    *tensor = status ? NULL : output;
    json_decref(empty);
    return status;
}

static enum ls_status build_layers(const struct model *model, const struct ls_shape *input_shape,
                                   struct ls_graph *graph)
{
    struct ls_tensor *tensor = NULL;
    struct ls_config c = {.graph = graph, .object = model->config};
    enum ls_status status = LS_OK;

    if (c.object)
        ls_config_check(&c, config_keys);
    status = c.status;
    if (strcmp(model->entries[0].class_name, "InputLayer") != 0) {
        const enum ls_status found = build_input(model, input_shape, graph, &tensor);
        if (!found)
            ls_graph_end_layer(graph, tensor);
        status = status ? status : found;
    }
    for (size_t i = 0; i < model->count && status != LS_OUT_OF_MEMORY; i++) {
        const enum ls_status built = build_layer(graph, &model->entries[i], &tensor);
        status = built ? built : status;
    }
    return status;
}

enum ls_status ls_model_build(const char *source, const json_t *object,
                              const struct ls_shape *input_shape, struct ls_graph **out)
{
    struct model model = {.source = source, .object = object};
    struct ls_graph *graph = NULL;
    uint32_t problems = 0;

    enum ls_status status = read_model(&model);
    if (status)
        goto out;
    status = ls_graph_create(model.name, &graph);
    if (status)
        goto out;
    graph->source = strdup(source);
    graph->problems = &problems;
    status = graph->source ? build_layers(&model, input_shape, graph) : LS_OUT_OF_MEMORY;
    if (status)
        goto out;
    graph->problems = NULL;
    *out = graph;
    graph = NULL;

out:
    if (problems > LS_GRAPH_PROBLEMS)
        ls_error(source, "and %u more problems", problems - LS_GRAPH_PROBLEMS);
    if (problems) // at once with what only training minds
        (void)!ls_model_check_training(source, object, true);
    ls_graph_destroy(graph);
    free(model.entries);
    return status;
}

enum ls_status ls_model_read(const char *path, json_t **out)
{
    struct stat about;
    json_error_t error;
    char place[512];

    // A pipe would be waited for, for ever.
    const bool there = stat(path, &about) == 0;
    FILE *file = there && S_ISREG(about.st_mode) ? fopen(path, "rb") : NULL;
    if (!file) {
        ls_error(path, "model file cannot be read: %s",
                 there && S_ISDIR(about.st_mode)    ? strerror(EISDIR)
                 : there && !S_ISREG(about.st_mode) ? "it is not a regular file"
                                                    : strerror(errno));
        return LS_BAD_INPUT;
    }
    char start[LS_FILE_KIND_BYTES];
    const char *kind = ls_file_kind(start, fread(start, 1, sizeof(start), file));
    if (kind && strcmp(kind, "JSON") != 0) {
        fclose(file);
        ls_error(path,
                 "the model file is %s, not JSON; docs/models.md says how to get JSON from "
                 "Keras (model.to_json(), or config.json in a .keras archive)",
                 kind);
        return LS_BAD_INPUT;
    }
    rewind(file);
    json_t *model = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    fclose(file);
    if (!model) {
        snprintf(place, sizeof(place), "%s:%d:%d", path, error.line, error.column);
        ls_error(place, "malformed JSON: %s", error.text);
        return LS_BAD_INPUT;
    }
    *out = model;
    return LS_OK;
}

enum ls_status ls_model_load(const char *path, const struct ls_shape *input_shape,
                             struct ls_graph **out)
{
    json_t *model = NULL;
    enum ls_status status = ls_model_read(path, &model);
    if (!status)
        status = ls_model_build(path, model, input_shape, out);
    json_decref(model);
    return status;
}
