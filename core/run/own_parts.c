// SPDX-License-Identifier: Apache-2.0
// Layers, losses and metrics that are plugins: how their options are read, and what their build
// functions are called with.
#include "core/run/own_parts.h"

#include "core/base/log.h"
#include "core/plugin/layer.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct own_layer {
    struct ls_layer_kind kind; // the first member, so that it leads here
    struct ls_loader *loader;
    const struct ls_opened_plugin *plugin; // with its default options
    const char **keys;
    struct own_layer *next;
};

struct own_composed {
    struct ls_composed composed; // the first member, so that it leads here
    const struct ls_opened_plugin *plugin;
    char what[96]; // "loss 'focal'"
    char text[256]; // "focal:gamma=2"
    struct own_composed *next;
};

struct parts {
    struct ls_own_parts face; // the first member, so that it leads here
    struct ls_loader *loader;
    struct own_layer *layers;
    struct own_composed *composed;
};

static bool has(const struct ls_own_parts *face, uint32_t kind, const char *name)
{
    return ls_loader_has(((const struct parts *)face)->loader, kind, name);
}

static void hint(const struct ls_own_parts *face, uint32_t kind, const char *name, char *text,
                 size_t bytes)
{
    const struct ls_loader *loader = ((const struct parts *)face)->loader;
    char path[320], own[160];
    ls_loader_path_text(loader, path, sizeof(path));
    if (ls_loader_registered_text(loader, kind, name, own, sizeof(own))[0])
        snprintf(text, bytes, "%s", own);
    else if (path[0])
        snprintf(text, bytes, "a plugin %s-%.64s.so could provide it; there is none in %s",
                 ls_kind_text(kind), name, path);
    else
        snprintf(text, bytes,
                 "a plugin %s-%.64s.so could provide it; name its folder with --plugin-path",
                 ls_kind_text(kind), name);
}

// ---- Layers ----

// The value of an option as text; the caller frees it.
static char *option_text(const json_t *value)
{
    if (json_is_string(value))
        return strdup(json_string_value(value));
    if (json_is_boolean(value))
        return strdup(json_is_true(value) ? "true" : "false");
    return json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(17));
}

// Reads the options of the layer's configuration; `values` has room for all that there are.
static enum ls_status read_options(const struct ls_graph *graph, const struct own_layer *layer,
                                   const json_t *config, struct ls_option_value *values,
                                   size_t *count)
{
    enum ls_status status = LS_OK;
    for (const struct ls_plugin_option *option = layer->plugin->plugin->options;
         option && option->name; option++) {
        const json_t *value = json_object_get(config, option->name);
        if (!value || json_is_null(value))
            continue;
        char *text = option_text(value);
        if (!text)
            return LS_OUT_OF_MEMORY;
        values[(*count)++] = (struct ls_option_value){(char *)option->name, text};
        if (!ls_option_fits(option, text))
            status = ls_graph_fail(graph, NULL, "%s: expected %s, got '%.80s'", option->name,
                                   strcmp(option->type, "integer") == 0   ? "an integer"
                                   : strcmp(option->type, "boolean") == 0 ? "true or false"
                                   : strcmp(option->type, "number") == 0  ? "a number"
                                                                          : option->type,
                                   text);
    }
    return status;
}

static enum ls_status compose_layer(struct ls_graph *graph, const struct own_layer *layer,
                                    const struct ls_layer_call *call,
                                    const struct ls_option_value *values, size_t count,
                                    struct ls_tensor **outputs)
{
    const struct ls_layer_interface *interface = layer->plugin->interface;
    struct ls_tensor *results[LS_LAYER_MOST_OUTPUTS] = {NULL};
    const struct ls_opened_plugin *opened = NULL;
    struct ls_composition composition;
    enum ls_status status = ls_loader_open(layer->loader, LS_KIND_LAYER, layer->kind.class_name,
                                           values, count, &opened);
    if (status)
        return status;
    ls_composition_begin(&composition, graph, NULL, call->inference);
    const int32_t answer = interface->build(opened->host, &composition.composer, call->inputs,
                                            call->input_count, results);
    uint32_t made = 1;
    while (made < LS_LAYER_MOST_OUTPUTS && results[made])
        made++;
    status = ls_composition_end(&composition, answer, results, made);
    for (uint32_t i = 0; !status && i < made; i++)
        outputs[i] = results[i];
    return status;
}

static enum ls_status build_layer(struct ls_graph *graph, const struct ls_layer_call *call,
                                  struct ls_tensor **outputs)
{
    const struct own_layer *layer = (const struct own_layer *)call->kind;
    size_t count = 0, room = 0;
    while (layer->keys[room])
        room++;
    struct ls_option_value *values = calloc(room + 1, sizeof(*values));
    if (!values)
        return LS_OUT_OF_MEMORY;
    enum ls_status status = read_options(graph, layer, call->config, values, &count);
    if (!status && call->inputs)
        status = compose_layer(graph, layer, call, values, count, outputs);
    for (size_t i = 0; i < count; i++)
        free(values[i].value);
    free(values);
    return status;
}

static enum ls_status open_layer(struct parts *parts, const char *name, struct own_layer **out)
{
    const struct ls_opened_plugin *opened = NULL;
    enum ls_status status = ls_loader_open(parts->loader, LS_KIND_LAYER, name, NULL, 0, &opened);
    if (status)
        return status;
    const struct ls_plugin_option *options = opened->plugin->options;
    const struct ls_layer_interface *interface = opened->interface;
    size_t count = 0;
    while (options && options[count].name)
        count++;
    struct own_layer *layer = calloc(1, sizeof(*layer));
    const char **keys = calloc(count + 1, sizeof(*keys));
    if (!layer || !keys) {
        free(layer);
        free(keys);
        return LS_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < count; i++)
        keys[i] = options[i].name;
    *layer = (struct own_layer){.kind = {.class_name = opened->plugin->name,
                                         .summary = opened->plugin->summary,
                                         .least_inputs = interface->least_inputs,
                                         .most_inputs = interface->most_inputs,
                                         .keys = keys,
                                         .own = true,
                                         .build = build_layer},
                                .loader = parts->loader,
                                .plugin = opened,
                                .keys = keys,
                                .next = parts->layers};
    *out = parts->layers = layer;
    return LS_OK;
}

static enum ls_status find_layer(struct ls_own_parts *face, const char *class_name,
                                 const struct ls_layer_kind **out)
{
    struct parts *parts = (struct parts *)face;
    struct own_layer *layer = parts->layers;
    while (layer && strcmp(layer->kind.class_name, class_name) != 0)
        layer = layer->next;
    enum ls_status status = LS_OK;
    if (!layer && ls_loader_has(parts->loader, LS_KIND_LAYER, class_name))
        status = open_layer(parts, class_name, &layer);
    *out = layer ? &layer->kind : NULL;
    return status;
}

// ---- Losses and metrics ----

static const struct own_composed *own_of(const struct ls_composed *composed)
{
    return (const struct own_composed *)composed;
}

// A value an example becomes a row of one.
static enum ls_status make_rows(struct ls_graph *graph, struct ls_tensor **values, uint32_t count)
{
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < count; i++) {
        const struct ls_shape rows = {.ndims = 2, .dims = {LS_BATCH, 1}};
        if (values[i]->shape.ndims == 1)
            status = ls_graph_add(graph, LS_OP_RESHAPE, NULL, &values[i], 1, &rows, &values[i]);
    }
    return status;
}

static enum ls_status compose(const struct ls_composed *composed, struct ls_graph *graph,
                              struct ls_tensor *predictions, struct ls_tensor *labels,
                              struct ls_tensor **out)
{
    const struct own_composed *own = own_of(composed);
    const struct ls_opened_plugin *plugin = own->plugin;
    struct ls_tensor *values[LS_METRIC_SUMS] = {NULL};
    struct ls_composition composition;
    ls_composition_begin(&composition, graph, own->what, false);
    const int32_t answer =
        plugin->plugin->kind == LS_KIND_LOSS
            ? ((const struct ls_loss_interface *)plugin->interface)
                  ->build(plugin->host, &composition.composer, predictions, labels, values)
            : ((const struct ls_metric_interface *)plugin->interface)
                  ->build(plugin->host, &composition.composer, predictions, labels, values);
    enum ls_status status = ls_composition_end(&composition, answer, values, composed->count);
    if (!status)
        status = make_rows(graph, values, composed->count);
    for (uint32_t i = 0; !status && i < composed->count; i++)
        out[i] = values[i];
    return status;
}

static enum ls_status label_shape(const struct ls_composed *composed,
                                  const struct ls_shape *predictions, struct ls_shape *out)
{
    const struct own_composed *own = own_of(composed);
    const struct ls_loss_interface *interface = own->plugin->interface;
    struct ls_shape shape = *predictions;
    char text[128];
    const int32_t status = interface->target_shape(own->plugin->host, &shape.ndims, shape.dims);
    if (status)
        return (enum ls_status)status;
    bool right = shape.ndims >= 1 && shape.ndims <= LS_MAX_DIMS && shape.dims[0] == LS_BATCH;
    int64_t elements = 1;
    for (uint32_t i = 1; right && i < shape.ndims; i++) {
        right = shape.dims[i] >= 1 && shape.dims[i] <= INT32_MAX / elements;
        elements *= right ? shape.dims[i] : 1;
    }
    if (!right) {
        shape.ndims = shape.ndims > LS_MAX_DIMS ? LS_MAX_DIMS : shape.ndims;
        ls_error(composed->name, "target_shape: %s is no shape of targets",
                 ls_shape_text(&shape, text, sizeof(text)));
        return LS_BAD_INPUT;
    }
    *out = shape;
    return LS_OK;
}

bool ls_own_part_is(const struct ls_own_parts *parts, uint32_t kind, const char *name)
{
    return ls_is_plugin_file(name) || has(parts, kind, name);
}

// Without name= of a metric, which is the host's.
static enum ls_status open_spec(struct ls_loader *loader, uint32_t kind, const struct ls_spec *spec,
                                const struct ls_opened_plugin **out)
{
    struct ls_option_value *options = calloc(spec->option_count + 1, sizeof(*options));
    size_t count = 0;
    if (!options)
        return LS_OUT_OF_MEMORY;
    for (size_t i = 0; i < spec->option_count; i++)
        if (kind != LS_KIND_METRIC || strcmp(spec->options[i].name, "name") != 0)
            options[count++] = spec->options[i];
    const enum ls_status status =
        ls_is_plugin_file(spec->name)
            ? ls_loader_open_file(loader, spec->name, kind, options, count, out)
            : ls_loader_open(loader, kind, spec->name, options, count, out);
    free(options);
    return status;
}

enum ls_status ls_own_part_open(struct ls_own_parts *face, uint32_t kind,
                                const struct ls_spec *spec, const struct ls_composed **out)
{
    struct parts *parts = (struct parts *)face;
    const struct ls_opened_plugin *opened = NULL;
    const enum ls_status status = open_spec(parts->loader, kind, spec, &opened);
    if (status)
        return status;
    struct own_composed *own = calloc(1, sizeof(*own));
    if (!own)
        return LS_OUT_OF_MEMORY;
    const struct ls_loss_interface *loss = opened->interface;
    const struct ls_metric_interface *metric = opened->interface;
    const bool is_loss = kind == LS_KIND_LOSS;
    const uint32_t sums = is_loss || !metric->sums ? 1 : metric->sums;
    snprintf(own->text, sizeof(own->text), "%s%s", opened->plugin->name,
             opened->text + strlen(opened->file));
    own->composed = (struct ls_composed){
        .name = opened->plugin->name,
        .text = own->text,
        .classes = (is_loss ? loss->targets : metric->targets) == LS_TARGETS_CLASSES,
        .count = sums,
        .label_shape = is_loss && loss->target_shape ? label_shape : NULL,
        .compose = compose};
    own->plugin = opened;
    snprintf(own->what, sizeof(own->what), "%s '%s'", ls_kind_text(kind), opened->plugin->name);
    own->next = parts->composed;
    parts->composed = own;
    *out = &own->composed;
    return LS_OK;
}

double ls_own_metric_value(const struct ls_composed *composed, const double *sums, double examples)
{
    const struct ls_opened_plugin *plugin = own_of(composed)->plugin;
    const struct ls_metric_interface *metric = plugin->interface;
    if (!(examples > 0))
        return NAN;
    return metric->result ? metric->result(plugin->host, sums, examples) : sums[0] / examples;
}

bool ls_own_metric_is_upwards(const struct ls_composed *composed)
{
    const struct ls_metric_interface *metric = own_of(composed)->plugin->interface;
    return metric->upwards != 0;
}

// ---- All ----

enum ls_status ls_own_parts_create(struct ls_loader *loader, struct ls_own_parts **out)
{
    struct parts *parts = calloc(1, sizeof(*parts));
    if (!parts)
        return LS_OUT_OF_MEMORY;
    parts->face = (struct ls_own_parts){.find_layer = find_layer, .has = has, .hint = hint};
    parts->loader = loader;
    *out = &parts->face;
    return LS_OK;
}

void ls_own_parts_destroy(struct ls_own_parts *face)
{
    struct parts *parts = (struct parts *)face;
    while (parts && parts->layers) {
        struct own_layer *layer = parts->layers;
        parts->layers = layer->next;
        free(layer->keys);
        free(layer);
    }
    while (parts && parts->composed) {
        struct own_composed *own = parts->composed;
        parts->composed = own->next;
        free(own);
    }
    free(parts);
}
