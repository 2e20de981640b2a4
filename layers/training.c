// SPDX-License-Identifier: Apache-2.0
// What a Keras model says about its training alone, and Lockstep does not do.
#include "layers/model_json.h"

#include "core/base/log.h"

#include <stdio.h>
#include <string.h>

#define SHOWN 64

struct search {
    const char *source;
    uint32_t problems, of_loss;
    bool silent;
};

static bool ends_with(const char *text, const char *suffix)
{
    const size_t length = strlen(text), rest = strlen(suffix);
    return length > rest && strcmp(text + length - rest, suffix) == 0;
}

static bool is_refused(const char *key, const json_t *value)
{
    float l1, l2;
    if (ends_with(key, "_regularizer") && ls_json_regularizer(value, &l1, &l2))
        return false; // it is in the loss
    return !json_is_null(value) &&
           (ends_with(key, "_regularizer") || ends_with(key, "_constraint"));
}

// The class or the name, else the value as it is.
static const char *value_name(const json_t *value, char *text, size_t bytes)
{
    const char *name = json_string_value(json_object_get(value, "class_name"));
    if (!name)
        name = json_string_value(value);
    if (!name)
        return ls_json_text(value, text, bytes);
    snprintf(text, bytes, "%s", name);
    return text;
}

// `where`: "layer 'dense' (Dense)", or "the model".
static void check(struct search *search, const char *where, const json_t *config)
{
    const char *key;
    json_t *value;
    char text[SHOWN];

    json_object_foreach((json_t *)config, key, value)
    {
        if (!is_refused(key, value))
            continue;
        search->of_loss += ends_with(key, "_regularizer");
        if (++search->problems > LS_GRAPH_PROBLEMS || search->silent)
            continue;
        ls_error(search->source,
                 "%s: %s: %s is not supported, and ignoring it would change %sthe training; set it "
                 "to null to train without it",
                 where, key, value_name(value, text, sizeof(text)),
                 ends_with(key, "_regularizer") ? "the loss and " : "");
    }
}

// Layers that a layer has inside: of Bidirectional and TimeDistributed, cells of RNN.
static void check_inside(struct search *search, const char *where, const json_t *config)
{
    static const char *const inside[] = {"layer", "backward_layer", "cell", NULL};
    const json_t *cell;
    size_t index;

    for (const char *const *key = inside; *key; key++) {
        const json_t *inner = json_object_get(json_object_get(config, *key), "config");
        check(search, where, inner);
        if (inner)
            check_inside(search, where, inner);
    }
    json_array_foreach(json_object_get(config, "cells"), index, cell)
        check(search, where, json_object_get(cell, "config"));
}

static bool is_model(const json_t *layer)
{
    const char *class_name = json_string_value(json_object_get(layer, "class_name"));
    return class_name && ls_is_model_class(class_name);
}

// `path`: "outer/inner/" of a model inside the model, else "".
static void check_all(struct search *search, const json_t *model, const char *path)
{
    const json_t *config = json_object_get(model, "config"); // a list of layers in old files
    const json_t *layers = json_is_array(config) ? config : json_object_get(config, "layers");
    const json_t *layer;
    size_t index;

    if (path[0] == '\0')
        check(search, "the model", config);
    json_array_foreach((json_t *)layers, index, layer)
    {
        const json_t *options = json_object_get(layer, "config");
        const char *class_name = json_string_value(json_object_get(layer, "class_name"));
        const char *name = json_string_value(json_object_get(options, "name"));
        char where[LS_LONGEST_PATH + 200], inner[LS_LONGEST_PATH];
        if (name)
            snprintf(where, sizeof(where), "layer '%s%.100s' (%.100s)", path, name, class_name);
        else
            snprintf(where, sizeof(where), "layer %s%zu (%.100s)", path, index, class_name);
        check(search, where, options);
        check_inside(search, where, options);
        const json_t *below = is_model(layer) ? layer : json_object_get(options, "layer");
        // A path that is too long is cut: it is only shown, and such a model is refused anyway.
        if (is_model(below) &&
            snprintf(inner, sizeof(inner), "%s%.100s/", path, name ? name : class_name) > 0)
            check_all(search, below, inner);
    }
}

enum ls_status ls_model_check_training(const char *source, const json_t *model, bool fit)
{
    struct search look = {.silent = true}, search = {.source = source};
    check_all(&look, model, "");
    if (look.of_loss == 0 && (!fit || look.problems == 0))
        return LS_OK;
    check_all(&search, model, "");
    if (search.problems > LS_GRAPH_PROBLEMS)
        ls_error(source, "and %u more like these", search.problems - LS_GRAPH_PROBLEMS);
    return LS_BAD_INPUT;
}
