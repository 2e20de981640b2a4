// SPDX-License-Identifier: Apache-2.0
// Walks a model's JSON as Keras walks a model's layers when it saves.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // qsort_r
#endif
#include "core/model/keras_layout.h"

#include "core/base/keras_names.h"
#include "core/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_NAME 2000 // of a group or layer inside others
#define LONGEST_CLASS 200 // of a class, or of a part of a layer
#define DEEPEST 64 // models inside one another

// Parts of layers that Keras keeps apart: the part of a parameter's name behind the layer's, and
// the attribute of the layer that holds it.
static const struct {
    const char *class_name, *part, *attribute;
} parts[] = {
    {"MultiHeadAttention", "query", "query_dense"},
    {"MultiHeadAttention", "key", "key_dense"},
    {"MultiHeadAttention", "value", "value_dense"},
    {"MultiHeadAttention", "attention_output", "output_dense"},
    {"GroupedQueryAttention", "query", "_query_dense"},
    {"GroupedQueryAttention", "key", "_key_dense"},
    {"GroupedQueryAttention", "value", "_value_dense"},
    {"GroupedQueryAttention", "attention_output", "_output_dense"},
    {"SimpleRNN", "simple_rnn_cell", "cell"},
    {"LSTM", "lstm_cell", "cell"},
    {"GRU", "gru_cell", "cell"},
};

// A list of layers that is walked, in the model or in models inside it.
struct container {
    const struct container *outer;
    const json_t *layers;
    const char *group, *counted, *name; // what its layers' begin with
};

struct walk {
    const char *source;
    const struct ls_graph *graph;
    const uint32_t *by_name; // parameters of the graph, sorted by name
    struct ls_keras_layout *layout;
    bool *placed; // by parameter
    uint32_t room;
    uint32_t top;
    uint32_t depth;
    size_t own_at, top_length; // of the layer at hand: where its own name begins; of `top`
    const json_t *names; // of the layers beside it
};

#define SLASHES "//" // a key among names of layers: one of them has a slash

const char *ls_keras_last_part(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

bool ls_keras_is_statistic(const char *name)
{
    static const char *const names[] = {"moving_mean", "moving_variance", "mean", "variance",
                                        "count",       "vector_u",        NULL};
    const char *last = ls_keras_last_part(name);
    for (size_t i = 0; names[i]; i++) {
        const size_t length = strlen(names[i]);
        if (strncmp(last, names[i], length) == 0 && (!last[length] || last[length] == ':'))
            return true;
    }
    return false;
}

// ---- Layers of the JSON ----

static const json_t *layers_of(const json_t *model)
{
    const json_t *config = json_object_get(model, "config");
    return json_is_array(config) ? config : json_object_get(config, "layers");
}

static const char *class_of(const json_t *layer)
{
    const char *name = json_string_value(json_object_get(layer, "class_name"));
    if (!name)
        return "";
    // The class is called otherwise than Keras exports it, and the groups are called after it.
    return strcmp(name, "GroupQueryAttention") == 0 ? "GroupedQueryAttention" : name;
}

// What Keras 3 calls an operation is no layer, and not counted as one.
static bool is_operation(const json_t *layer)
{
    const char *module = json_string_value(json_object_get(layer, "module"));
    return module && strncmp(module, "keras.src.ops", 13) == 0;
}

static const char *given_name(const json_t *layer)
{
    const char *name = json_string_value(json_object_get(json_object_get(layer, "config"), "name"));
    return name ? name : json_string_value(json_object_get(layer, "name"));
}

// Names of a model's layers, as keys; under "/dense" the number that was tried last for a name, and
// SLASHES. NULL: no memory.
static json_t *given_names(const json_t *layers)
{
    json_t *names = json_object();
    for (size_t i = 0; names && i < json_array_size(layers); i++) {
        const char *given = given_name(json_array_get(layers, i));
        const bool slash = given && strchr(given, '/');
        if ((given && json_object_set_new(names, given, json_true())) ||
            (slash && json_object_set_new(names, SLASHES, json_true()))) {
            json_decref(names);
            return NULL;
        }
    }
    return names;
}

// The name that the reader of models gave a layer without one. Of the names dense, dense_1, ...
// that no layer was given, each layer of the class without a name takes the next.
static enum ls_status choose_name(json_t *names, const json_t *layer, char *out, size_t bytes)
{
    char last[LONGEST_CLASS + 1] = "/";
    ls_keras_snake_case(class_of(layer), last + 1, LONGEST_CLASS);
    json_int_t number = json_integer_value(json_object_get(names, last));
    do
        snprintf(out, bytes, number ? "%s_%lld" : "%s", last + 1, (long long)number);
    while (number++, json_object_get(names, out));
    return json_object_set_new(names, last, json_integer(number)) ? LS_OUT_OF_MEMORY : LS_OK;
}

// ---- Stores ----

static int compare_names(const void *a, const void *b, void *graph)
{
    const struct ls_graph *of = graph;
    return strcmp(of->parameters[*(const uint32_t *)a]->name,
                  of->parameters[*(const uint32_t *)b]->name);
}

static int compare_numbers(const void *a, const void *b)
{
    const uint32_t one = *(const uint32_t *)a, other = *(const uint32_t *)b;
    return one < other ? -1 : one > other;
}

// The first parameter by name that is not before `prefix`.
static uint32_t find_first(const struct walk *walk, const char *prefix)
{
    uint32_t low = 0, high = walk->graph->parameter_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (strcmp(walk->graph->parameters[walk->by_name[middle]]->name, prefix) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool begins(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

// Whether a parameter whose name begins with that of layer "a" is one of layer "a/b" in the same model.
static bool is_anothers(const struct walk *walk, const char *layer, const char *parameter)
{
    const char *own = layer + walk->own_at, *part = parameter + walk->own_at, *name;
    const size_t length = strlen(own);
    json_t *value;
    if (!json_object_get(walk->names, SLASHES))
        return false;
    json_object_foreach((json_t *)(uintptr_t)walk->names, name,
                        value) if (strncmp(name, own, length) == 0 && name[length] == '/' &&
                                   begins(part, name) && part[strlen(name)] == '/') return true;
    return false;
}

// Whether the graph has parameters whose names begin with "NAME/". Constants, such as the 2 in
// 2 * x, are in no file.
static bool has_parameters(const struct walk *walk, const char *name)
{
    char prefix[LONGEST_NAME + 2];
    snprintf(prefix, sizeof(prefix), "%s/", name);
    for (uint32_t i = find_first(walk, prefix); i < walk->graph->parameter_count; i++) {
        const struct ls_tensor *parameter = walk->graph->parameters[walk->by_name[i]];
        if (!begins(parameter->name, prefix))
            break;
        if (!parameter->constant && !is_anothers(walk, name, parameter->name))
            return true;
    }
    return false;
}

static enum ls_status too_long(const struct walk *walk, const char *name)
{
    ls_error(walk->source,
             "layer '%.60s...': its name with those of the models that it is inside "
             "is too long for a file of Keras",
             name);
    return LS_BAD_INPUT;
}

static struct ls_keras_store *add_store(struct walk *walk, const char *group, const char *counted,
                                        const char *layer)
{
    struct ls_keras_layout *layout = walk->layout;
    if (layout->count == walk->room) {
        const uint32_t room = walk->room ? 2 * walk->room : 16;
        struct ls_keras_store *more = realloc(layout->stores, room * sizeof(*more));
        if (!more)
            return NULL;
        layout->stores = more;
        walk->room = room;
    }
    struct ls_keras_store store = {.group = strdup(group),
                                   .counted = strdup(counted),
                                   .layer = strdup(layer),
                                   .top = walk->top,
                                   .top_length = walk->top_length,
                                   .first = layout->parameter_count};
    if (!store.group || !store.counted || !store.layer) {
        free(store.group);
        free(store.counted);
        free(store.layer);
        return NULL;
    }
    store.name = store.layer + walk->own_at;
    layout->stores[layout->count] = store;
    return &layout->stores[layout->count++];
}

// Adds those of the parameters from `first` on whose names begin with `prefix` and have no slash
// behind; trainable ones first.
static void add_parameters(struct walk *walk, struct ls_keras_store *store, uint32_t first,
                           const char *prefix)
{
    const struct ls_graph *graph = walk->graph;
    struct ls_keras_layout *layout = walk->layout;
    for (int statistics = 0; statistics <= 1; statistics++) {
        const uint32_t start = layout->parameter_count;
        for (uint32_t i = first; i < graph->parameter_count; i++) {
            const uint32_t index = walk->by_name[i];
            const char *name = graph->parameters[index]->name;
            if (!begins(name, prefix))
                break;
            if (strchr(name + strlen(prefix), '/') || is_anothers(walk, store->layer, name) ||
                ls_keras_is_statistic(name) != (statistics == 1))
                continue;
            walk->placed[index] = true;
            if (!graph->parameters[index]->constant)
                layout->parameters[layout->parameter_count++] = index;
        }
        qsort(layout->parameters + start, layout->parameter_count - start, sizeof(uint32_t),
              compare_numbers);
    }
    store->count = layout->parameter_count - store->first;
}

// SpectralNormalization has the kernel of the layer inside, or its embeddings, among its own
// variables, too, as its first one.
static void add_normalized_kernel(struct walk *walk, uint32_t first, const char *prefix)
{
    const struct ls_graph *graph = walk->graph;
    struct ls_keras_layout *layout = walk->layout;
    for (uint32_t i = first; i < graph->parameter_count; i++) {
        const char *name = graph->parameters[walk->by_name[i]]->name;
        const char *last = ls_keras_last_part(name);
        if (!begins(name, prefix))
            return;
        if (strcmp(last, "kernel") != 0 && strcmp(last, "embeddings") != 0)
            continue;
        layout->parameters[layout->parameter_count++] = walk->by_name[i];
        return;
    }
}

// False: too long.
static bool join(char out[LONGEST_NAME], const char *first, const char *second, const char *third)
{
    const int length = snprintf(out, LONGEST_NAME, "%s%s%s", first, second, third);
    return length > 0 && length < LONGEST_NAME;
}

static const json_t *inner_of(const json_t *layer, const char *attribute)
{
    return json_object_get(json_object_get(layer, "config"), attribute);
}

// Which of the cells one above the other is called so: "cells/lstm_cell_1", as Keras counts them by
// their class. False: none.
static bool find_cell(const json_t *stack, const char *part, size_t length, char *out, size_t bytes)
{
    const json_t *cells = inner_of(stack, "cells"), *cell;
    char snake[LONGEST_CLASS];
    size_t index;
    json_array_foreach(cells, index, cell)
    {
        const char *name = given_name(cell);
        unsigned before = 0;
        if (!name || strlen(name) != length || strncmp(name, part, length) != 0)
            continue;
        for (size_t i = 0; i < index; i++)
            before += strcmp(class_of(json_array_get(cells, i)), class_of(cell)) == 0;
        ls_keras_snake_case(class_of(cell), snake, sizeof(snake));
        snprintf(out, bytes, before ? "cells/%s_%u" : "cells/%s", snake, before);
        return true;
    }
    return false;
}

// Where Keras keeps part `part` of a layer, which may have slashes: "forward_lstm/lstm_cell" of a
// Bidirectional is "forward_layer/cell".
static void attribute_of(const json_t *layer, const char *part, char *out, size_t bytes)
{
    const char *class_name = class_of(layer), *slash = strchr(part, '/');
    const size_t length = slash ? (size_t)(slash - part) : strlen(part);
    const json_t *cell = inner_of(layer, "cell"), *inner = inner_of(layer, "layer");
    char own[LONGEST_CLASS + 32];

    snprintf(own, sizeof(own), "%.*s", (int)(length < LONGEST_CLASS ? length : LONGEST_CLASS),
             part);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (strcmp(class_name, parts[i].class_name) == 0 && strcmp(own, parts[i].part) == 0)
            snprintf(own, sizeof(own), "%s", parts[i].attribute);
    if (strcmp(class_name, "Bidirectional") == 0) {
        const bool backward = strncmp(part, "forward_", 8) != 0;
        const json_t *second = inner_of(layer, "backward_layer");
        snprintf(own, sizeof(own), "%s", backward ? "backward_layer" : "forward_layer");
        inner = backward && json_is_object(second) ? second : inner;
    } else if (strcmp(class_name, "TimeDistributed") == 0 ||
               strcmp(class_name, "SpectralNormalization") == 0) {
        snprintf(own, sizeof(own), "layer");
    } else if (strcmp(class_name, "StackedRNNCells") == 0) {
        find_cell(layer, part, length, own, sizeof(own));
    } else if (strcmp(class_name, "RNN") == 0) {
        snprintf(own, sizeof(own), "cell");
        inner = cell;
    }
    const size_t used = (size_t)snprintf(out, bytes, "%s%s", own, slash ? "/" : "");
    if (slash && used < bytes)
        attribute_of(inner, slash + 1, out + used, bytes - used);
}

// One store for the layer's own variables, and one for each part that is kept apart.
static enum ls_status add_layer(struct walk *walk, const json_t *layer, const char *group,
                                const char *counted, const char *name)
{
    const struct ls_graph *graph = walk->graph;
    char prefix[LONGEST_NAME + 2], done[LONGEST_CLASS] = "";
    snprintf(prefix, sizeof(prefix), "%s/", name);
    const size_t length = strlen(prefix);
    uint32_t first = find_first(walk, prefix);
    while (is_anothers(walk, name, graph->parameters[walk->by_name[first]]->name))
        first++;
    if (walk->placed[walk->by_name[first]]) {
        ls_error(walk->source, "two layers are called '%s'", name);
        return LS_BAD_INPUT;
    }
    struct ls_keras_store *store = add_store(walk, group, counted, name);
    if (!store)
        return LS_OUT_OF_MEMORY;
    store->counts_examples = strcmp(class_of(layer), "Normalization") == 0;
    if (strcmp(class_of(layer), "SpectralNormalization") == 0)
        add_normalized_kernel(walk, first, prefix);
    add_parameters(walk, store, first, prefix);
    for (uint32_t i = first; i < graph->parameter_count; i++) {
        const char *parameter = graph->parameters[walk->by_name[i]]->name;
        if (!begins(parameter, prefix))
            break;
        const char *part = parameter + length, *slash = strrchr(part, '/');
        if (!slash || (size_t)(slash - part) >= sizeof(done) ||
            is_anothers(walk, name, parameter) ||
            (begins(part, done) && *done && slash == part + strlen(done)))
            continue;
        snprintf(done, sizeof(done), "%.*s", (int)(slash - part), part);
        char own[LONGEST_NAME], own_counted[LONGEST_NAME], own_prefix[LONGEST_NAME];
        char attribute[LONGEST_NAME];
        attribute_of(layer, done, attribute, sizeof(attribute));
        if (!join(own, group, "/", attribute) || !join(own_counted, counted, "/", attribute) ||
            !join(own_prefix, prefix, done, "/"))
            return too_long(walk, name);
        store = add_store(walk, own, own_counted, name);
        if (!store)
            return LS_OUT_OF_MEMORY;
        add_parameters(walk, store, i, own_prefix);
    }
    return LS_OK;
}

// ---- Walking ----

static enum ls_status walk_layers(struct walk *walk, const struct container *container);

// How many layers of a class were before this one in the same model.
struct numbers {
    json_int_t all, with_variables;
};

// Counts the layer for those behind it; `counts`: class -> numbers.
static enum ls_status count_layer(json_t *counts, const char *snake, bool has_variables,
                                  struct numbers *out)
{
    json_t *count = json_object_get(counts, snake);
    *out = (struct numbers){json_integer_value(json_array_get(count, 0)),
                            json_integer_value(json_array_get(count, 1))};
    count = json_pack("[I, I]", out->all + 1, out->with_variables + has_variables);
    return json_object_set_new(counts, snake, count) ? LS_OUT_OF_MEMORY : LS_OK;
}

// Appends the name of a model that TimeDistributed has inside. False: too long.
static bool append_model(char name[LONGEST_NAME], const json_t *model)
{
    const char *given = json_string_value(inner_of(model, "name"));
    if (!given)
        given = ls_keras_model_name(class_of(model));
    const size_t before = strlen(name), room = LONGEST_NAME - 1 - before; // and a slash behind
    return (size_t)snprintf(name + before, room, "/%s", given) < room;
}

static enum ls_status walk_layer(struct walk *walk, const struct container *container, size_t index,
                                 json_t *names, json_t *counts)
{
    const json_t *layer = json_array_get(container->layers, index);
    if (is_operation(layer))
        return LS_OK;
    char chosen[LONGEST_CLASS + 16], name[LONGEST_NAME], snake[LONGEST_CLASS], number[16] = "";
    char group[LONGEST_NAME], counted[LONGEST_NAME];
    const char *given = given_name(layer), *own = given ? given : chosen;
    if (!given && choose_name(names, layer, chosen, sizeof(chosen)))
        return LS_OUT_OF_MEMORY;
    // Models are called by their Keras 3 class, whatever Keras 2 called it.
    const char *class_name = strcmp(class_of(layer), "Model") == 0 ? "Functional" : class_of(layer);
    ls_keras_snake_case(class_name, snake, sizeof(snake));
    if (strlen(container->name) + strlen(container->counted) + strlen(own) + strlen(snake) + 64 >=
        LONGEST_NAME)
        return too_long(walk, own);
    snprintf(name, sizeof(name), "%s%s", container->name, own);
    walk->own_at = strlen(container->name);
    walk->names = names;
    if (!container->outer)
        walk->top_length = strlen(own);
    struct numbers numbers;
    const bool has_variables = has_parameters(walk, name);
    const enum ls_status status = count_layer(counts, snake, has_variables, &numbers);
    if (status || !has_variables)
        return status;
    if (numbers.all)
        snprintf(number, sizeof(number), "_%u", (unsigned)numbers.all);
    snprintf(group, sizeof(group), "%slayers/%s%s", container->group, snake, number);
    snprintf(counted, sizeof(counted), "%slayers/%s@%u", container->counted, snake,
             (unsigned)numbers.with_variables);
    const bool steps = strcmp(class_name, "TimeDistributed") == 0;
    const json_t *model = steps ? inner_of(layer, "layer") : layer;
    if (!json_is_array(layers_of(model)))
        return add_layer(walk, layer, group, counted, name);
    if (steps && !append_model(name, model))
        return too_long(walk, name);
    strcat(group, steps ? "/layer/" : "/");
    strcat(counted, steps ? "/layer/" : "/");
    strcat(name, "/");
    const struct container inner = {container, layers_of(model), group, counted, name};
    return walk_layers(walk, &inner);
}

static enum ls_status walk_layers(struct walk *walk, const struct container *container)
{
    json_t *counts = json_object(), *names = given_names(container->layers);
    enum ls_status status = counts && names ? LS_OK : LS_OUT_OF_MEMORY;
    if (++walk->depth > DEEPEST) {
        ls_error(walk->source, "more than %d models inside one another", DEEPEST);
        status = LS_BAD_INPUT;
    }
    for (size_t i = 0; i < json_array_size(container->layers) && !status; i++) {
        if (!container->outer)
            walk->top = (uint32_t)i;
        status = walk_layer(walk, container, i, names, counts);
    }
    json_decref(counts);
    json_decref(names);
    walk->depth--;
    return status;
}

static enum ls_status check_all_placed(const struct walk *walk)
{
    for (uint32_t i = 0; i < walk->graph->parameter_count; i++)
        if (!walk->placed[i] && !walk->graph->parameters[i]->constant) {
            ls_error(walk->source, "no layer of the model's JSON has the parameter '%s'",
                     walk->graph->parameters[i]->name);
            return LS_BAD_INPUT;
        }
    return LS_OK;
}

enum ls_status ls_keras_layout_create(const char *source, const json_t *model,
                                      const struct ls_graph *graph, struct ls_keras_layout *out)
{
    const struct container whole = {NULL, layers_of(model), "", "", ""};
    const size_t count = (size_t)graph->parameter_count + 1;
    struct ls_keras_layout layout = {.parameters = calloc(2 * count, sizeof(uint32_t))};
    uint32_t *by_name = calloc(count, sizeof(*by_name));
    bool *placed = calloc(count, sizeof(*placed));
    struct walk walk = {source, graph, by_name, &layout, placed, 0, 0, 0};
    enum ls_status status = layout.parameters && by_name && placed ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status) {
        for (uint32_t i = 0; i < graph->parameter_count; i++)
            by_name[i] = i;
        qsort_r(by_name, graph->parameter_count, sizeof(*by_name), compare_names, (void *)graph);
        status = walk_layers(&walk, &whole);
    }
    if (!status)
        status = check_all_placed(&walk);
    free(by_name);
    free(placed);
    if (status)
        ls_keras_layout_finish(&layout);
    else
        *out = layout;
    return status;
}

void ls_keras_layout_finish(struct ls_keras_layout *layout)
{
    for (uint32_t i = 0; i < layout->count; i++) {
        free(layout->stores[i].group);
        free(layout->stores[i].counted);
        free(layout->stores[i].layer);
    }
    free(layout->stores);
    free(layout->parameters);
    *layout = (struct ls_keras_layout){0};
}
