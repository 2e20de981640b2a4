// SPDX-License-Identifier: Apache-2.0
// Matches as Keras does: by the number of a layer among those of its class (Keras 3), or by names
// and order (the layout of Keras 2).
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // qsort_r
#endif
#include "core/model/keras_match.h"

#include "core/base/log.h"
#include "core/formats/keras_file.h"
#include "core/model/keras_layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCOPE "weights"
#define LONGEST 2100 // of a path in the file
#define DEPENDENCIES "_layer_checkpoint_dependencies" // what Keras 2.12 and 2.13 called "layers"

struct match {
    const struct ls_model *model;
    const char *path;
    const struct ls_safetensors *file;
    const struct ls_keras_layout *layout;
    size_t *by_name; // tensors of the file, sorted
    size_t *out;
    bool *known;
};

static const char *tensor_name(const struct match *match, size_t index)
{
    return ls_safetensors_get(match->file, index)->name;
}

static const char *parameter_name(const struct match *match, const struct ls_keras_store *store,
                                  uint32_t index)
{
    return match->model->graph->parameters[match->layout->parameters[store->first + index]]->name;
}

// ---- Keras 3 ----

static int compare_tensors(const void *a, const void *b, void *file)
{
    return strcmp(ls_safetensors_get(file, *(const size_t *)a)->name,
                  ls_safetensors_get(file, *(const size_t *)b)->name);
}

// The first tensor by name that is not before `prefix`.
static size_t find_first(const struct match *match, const char *prefix)
{
    size_t low = 0, high = ls_safetensors_count(match->file);
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (strcmp(tensor_name(match, match->by_name[middle]), prefix) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// How many tensors have names that begin so.
static size_t count_below(const struct match *match, const char *prefix)
{
    const size_t first = find_first(match, prefix), length = strlen(prefix);
    size_t count = 0;
    while (first + count < ls_safetensors_count(match->file) &&
           strncmp(tensor_name(match, match->by_name[first + count]), prefix, length) == 0)
        count++;
    return count;
}

static size_t find_tensor(const struct match *match, const char *name)
{
    const size_t first = find_first(match, name);
    return first < ls_safetensors_count(match->file) &&
                   strcmp(tensor_name(match, match->by_name[first]), name) == 0
               ? match->by_name[first]
               : LS_NO_TENSOR;
}

// Appends to `path` the `number`-th group that is called "BASE" or "BASE_<n>" and has tensors.
static bool append_group(const struct match *match, char *path, const char *base, size_t length,
                         unsigned number)
{
    const size_t before = strlen(path);
    if (before + length + 16 >= LONGEST)
        return false;
    // A gap between two groups of a class is at most as wide as there are tensors.
    for (size_t n = 0, seen = 0; n <= 2 * ls_safetensors_count(match->file); n++) {
        char suffix[24] = "";
        if (n)
            snprintf(suffix, sizeof(suffix), "_%zu", n);
        snprintf(path + before, LONGEST - before, "%.*s%s/", (int)length, base, suffix);
        if (count_below(match, path) && seen++ == number) {
            path[strlen(path) - 1] = '\0';
            return true;
        }
    }
    path[before] = '\0';
    return false;
}

// The group of a store in the layout of Keras 2.12 and 2.13, whose counters count each layer with
// variables twice: layers are found by their order alone.
static bool resolve(const struct match *match, const char *counted, char *out)
{
    out[0] = '\0';
    for (const char *part = counted; *part;) {
        const char *end = strchr(part, '/');
        const size_t length = end ? (size_t)(end - part) : strlen(part);
        const char *at = memchr(part, '@', length);
        if (*out)
            strcat(out, "/");
        if (strlen(out) + length + sizeof(DEPENDENCIES) >= LONGEST)
            return false;
        if (length == strlen("layers") && strncmp(part, "layers", length) == 0)
            strcat(out, DEPENDENCIES);
        else if (!at)
            strncat(out, part, length);
        else if (!append_group(match, out, part, (size_t)(at - part),
                               (unsigned)strtoul(at + 1, NULL, 10)))
            return false;
        part += length + (end != NULL);
    }
    return true;
}

static enum ls_status refuse_count(const struct match *match, const struct ls_keras_store *store,
                                   const char *group, size_t found)
{
    char names[200] = "";
    size_t length = 0;
    for (uint32_t i = 0; i < store->count && length < sizeof(names); i++)
        length += (size_t)snprintf(names + length, sizeof(names) - length, "%s%s", i ? ", " : "",
                                   ls_keras_last_part(parameter_name(match, store, i)));
    if (found == 0)
        ls_error(SCOPE,
                 "'%s' has no variables in its group '%s/vars', where Keras keeps those of layer "
                 "'%s' (%s) of model '%s'; was the file saved from this model?",
                 match->path, group, store->layer, names, match->model->source);
    else
        ls_error(SCOPE,
                 "'%s': its group '%s/vars' has %zu variable(s), but layer '%s' of model '%s' has "
                 "%u (%s)",
                 match->path, group, found, store->layer, match->model->source, store->count,
                 names);
    return LS_BAD_INPUT;
}

static enum ls_status match_store(const struct match *match, const struct ls_keras_store *store)
{
    char group[LONGEST], name[LONGEST + 32];
    snprintf(name, sizeof(name), "%s/vars/", store->group);
    snprintf(group, sizeof(group), "%s", store->group);
    if (count_below(match, name) == 0 && count_below(match, DEPENDENCIES "/") &&
        resolve(match, store->counted, group))
        snprintf(name, sizeof(name), "%s/vars/", group);
    const size_t found = count_below(match, name), length = strlen(name);
    if (found < store->count || (found > store->count && !store->counts_examples))
        return refuse_count(match, store, group, found);
    for (uint32_t i = 0; i < found; i++) {
        snprintf(name + length, sizeof(name) - length, "%u", i);
        const size_t tensor = find_tensor(match, name);
        if (tensor == LS_NO_TENSOR) {
            ls_error(SCOPE, "'%s' has no tensor '%s', which layer '%s' of model '%s' needs",
                     match->path, name, store->layer, match->model->source);
            return LS_BAD_INPUT;
        }
        match->known[tensor] = true;
        if (i < store->count)
            match->out[match->layout->parameters[store->first + i]] = tensor;
    }
    return LS_OK;
}

// Two layers of a class that change places are not seen in shapes.
static void warn_of_other_names(const struct match *match)
{
    const char *text = ls_safetensors_text(match->file, LS_KERAS_NAMES);
    json_t *names = text ? json_loads(text, 0, NULL) : NULL, *places = json_object();
    for (uint32_t i = 0; i < match->layout->count && places; i++) {
        const struct ls_keras_store *store = &match->layout->stores[i];
        (void)!json_object_set_new(places, store->name, json_string(store->group));
    }
    for (uint32_t i = 0; i < match->layout->count && names && places; i++) {
        const struct ls_keras_store *store = &match->layout->stores[i];
        const char *saved = json_string_value(json_object_get(names, store->group));
        const char *place = saved ? json_string_value(json_object_get(places, saved)) : NULL;
        if (!place || strcmp(saved, store->name) == 0 || strcmp(place, store->group) == 0)
            continue;
        ls_warn(SCOPE,
                "'%s': its group '%s' was saved from a layer called '%s', but is read as '%s', as "
                "Keras reads it: layers of a class go by their order in the model",
                match->path, store->group, saved, store->layer);
        break;
    }
    json_decref(names);
    json_decref(places);
}

static enum ls_status match_groups(struct match *match)
{
    const size_t count = ls_safetensors_count(match->file);
    match->by_name = calloc(count + 1, sizeof(*match->by_name));
    if (!match->by_name)
        return LS_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++)
        match->by_name[i] = i;
    qsort_r(match->by_name, count, sizeof(*match->by_name), compare_tensors, (void *)match->file);
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; i < match->layout->count && !status; i++)
        status = match_store(match, &match->layout->stores[i]);
    free(match->by_name);
    if (!status)
        warn_of_other_names(match);
    return status;
}

// ---- The layout of Keras 2 ----

// A layer of the file that has tensors, or one of the model that has parameters.
struct layer {
    const char *name;
    size_t length; // of the name
    size_t first, count; // tensors of the file; stores of the layout
};

struct layers {
    struct layer *list;
    size_t count;
};

// Those of the file, in its order. Borrows names from `json`.
static enum ls_status layers_of_file(const struct match *match, const json_t *json,
                                     struct layers *out)
{
    size_t first = 0;
    out->list = calloc(json_array_size(json) + 1, sizeof(*out->list));
    if (!out->list)
        return LS_OUT_OF_MEMORY;
    for (size_t i = 0; i < json_array_size(json); i++) {
        const json_t *entry = json_array_get(json, i);
        const char *name = json_string_value(json_array_get(entry, 0));
        const json_int_t count = json_integer_value(json_array_get(entry, 1));
        if (!name || count < 0 || (size_t)count > ls_safetensors_count(match->file) - first) {
            ls_error(SCOPE, "'%s': its list of layers does not fit its tensors", match->path);
            return LS_BAD_INPUT;
        }
        if (count)
            out->list[out->count++] = (struct layer){name, strlen(name), first, (size_t)count};
        first += (size_t)count;
    }
    return LS_OK;
}

static enum ls_status layers_of_model(const struct match *match, struct layers *out)
{
    const struct ls_keras_layout *layout = match->layout;
    out->list = calloc((size_t)layout->count + 1, sizeof(*out->list));
    if (!out->list)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < layout->count; i++) {
        const struct ls_keras_store *store = &layout->stores[i];
        if (i == 0 || store->top != layout->stores[i - 1].top)
            out->list[out->count++] = (struct layer){store->layer, store->top_length, i, 0};
        out->list[out->count - 1].count++;
    }
    return LS_OK;
}

static const struct layer *find_layer(const struct layers *layers, const struct layer *other)
{
    for (size_t i = 0; i < layers->count; i++)
        if (layers->list[i].length == other->length &&
            strncmp(layers->list[i].name, other->name, other->length) == 0)
            return &layers->list[i];
    return NULL;
}

// Whether a name of Keras 2 and a parameter's are the same, or one has more models before it:
// "conv/kernel:0" and "encoder/conv/kernel".
static bool is_same(const char *saved, const char *parameter)
{
    const size_t length = strcspn(saved, ":"), other = strlen(parameter);
    const char *longer = length >= other ? saved : parameter;
    const size_t most = length >= other ? length : other, least = length >= other ? other : length;
    return strncmp(longer + most - least, length >= other ? parameter : saved, least) == 0 &&
           (most == least || longer[most - least - 1] == '/');
}

// The parameters of a layer of the model: trainable ones first, over all layers that it has inside.
static size_t parameters_of(const struct match *match, const struct layer *layer, uint32_t *out)
{
    const struct ls_keras_layout *layout = match->layout;
    size_t count = 0;
    for (int statistics = 0; statistics <= 1; statistics++)
        for (size_t s = layer->first; s < layer->first + layer->count; s++) {
            const struct ls_keras_store *store = &layout->stores[s];
            for (uint32_t i = 0; i < store->count; i++) {
                const uint32_t parameter = layout->parameters[store->first + i];
                size_t before = 0; // two groups may have it
                while (before < count && out[before] != parameter)
                    before++;
                if (before == count &&
                    ls_keras_is_statistic(parameter_name(match, store, i)) == (statistics == 1))
                    out[count++] = parameter;
            }
        }
    return count;
}

// By names, where each parameter has exactly one tensor.
static bool match_names(const struct match *match, const struct layer *saved, size_t prefix,
                        const uint32_t *parameters, size_t count)
{
    for (size_t p = 0; p < count; p++) {
        const char *name = match->model->graph->parameters[parameters[p]]->name;
        size_t found = 0;
        for (size_t t = saved->first; t < saved->first + saved->count; t++)
            if (is_same(tensor_name(match, t) + prefix, name)) {
                match->out[parameters[p]] = t;
                found++;
            }
        for (size_t other = 0; other < p && found == 1; other++)
            found += match->out[parameters[other]] == match->out[parameters[p]];
        if (found != 1)
            return false;
    }
    return true;
}

static enum ls_status match_layer(const struct match *match, const struct layer *saved,
                                  const struct layer *layer, uint32_t *parameters)
{
    const struct ls_keras_store *store = &match->layout->stores[layer->first];
    const size_t count = parameters_of(match, layer, parameters);
    const char *first = tensor_name(match, saved->first);
    // "model_weights/LAYER/", or "LAYER/".
    const size_t prefix = (strncmp(first, "model_weights/", 14) == 0 ? 14 : 0) + saved->length + 1;
    if (saved->count < count || (saved->count > count && !store->counts_examples)) {
        ls_error(SCOPE,
                 "'%s': its layer '%s' has %zu variable(s), but layer '%.*s' of model '%s' has %zu",
                 match->path, saved->name, saved->count, (int)layer->length, layer->name,
                 match->model->source, count);
        return LS_BAD_INPUT;
    }
    for (size_t t = saved->first; t < saved->first + saved->count; t++)
        match->known[t] = true;
    if (!match_names(match, saved, prefix, parameters, count))
        for (size_t p = 0; p < count; p++)
            match->out[parameters[p]] = saved->first + p;
    return LS_OK;
}

static enum ls_status refuse_layers(const struct match *match, const struct layers *saved,
                                    const struct layers *own)
{
    const struct layer *missing = NULL;
    for (size_t i = 0; i < own->count && !missing; i++)
        if (!find_layer(saved, &own->list[i]))
            missing = &own->list[i];
    ls_error(SCOPE,
             "'%s' has %zu layers with weights, but model '%s' has %zu; it has none called '%.*s'",
             match->path, saved->count, match->model->source, own->count,
             missing ? (int)missing->length : 0, missing ? missing->name : "");
    return LS_BAD_INPUT;
}

static enum ls_status match_layers(const struct match *match, const char *text)
{
    struct layers saved = {0}, own = {0};
    uint32_t *parameters = calloc((size_t)match->layout->parameter_count + 1, sizeof(*parameters));
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    enum ls_status status = parameters && json ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        status = layers_of_file(match, json, &saved);
    if (!status)
        status = layers_of_model(match, &own);
    bool by_name = !status;
    for (size_t i = 0; by_name && i < own.count; i++)
        by_name = find_layer(&saved, &own.list[i]) != NULL;
    if (!status && !by_name && saved.count != own.count)
        status = refuse_layers(match, &saved, &own);
    for (size_t i = 0; i < own.count && !status; i++)
        status = match_layer(match, by_name ? find_layer(&saved, &own.list[i]) : &saved.list[i],
                             &own.list[i], parameters);
    free(parameters);
    free(saved.list);
    free(own.list);
    json_decref(json);
    return status;
}

enum ls_status ls_keras_match(const struct ls_model *model, const char *path,
                              const struct ls_safetensors *file, size_t *out, bool *known)
{
    struct ls_keras_layout layout = {0};
    struct match match = {model, path, file, &layout, NULL, out, known};
    const char *layers = ls_safetensors_text(file, LS_KERAS_LAYERS);
    enum ls_status status =
        ls_keras_layout_create(model->source, model->json, model->graph, &layout);
    for (uint32_t i = 0; i < model->graph->parameter_count; i++)
        out[i] = LS_NO_TENSOR;
    if (!status)
        status = layers ? match_layers(&match, layers) : match_groups(&match);
    ls_keras_layout_finish(&layout);
    return status;
}
