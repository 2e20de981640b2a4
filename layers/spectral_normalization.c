// SPDX-License-Identifier: Apache-2.0
// SpectralNormalization: another layer, whose kernel each step of training divides by its largest
// singular value. Otherwise it is that layer.
#include "layers/kinds.h"

#include <stdio.h>
#include <string.h>

static const char *const keys[] = {"layer", "power_iterations", NULL};

// Layers of one input that have a kernel or embeddings.
static const struct ls_layer_kind *const kinds[] = {
    &ls_layer_dense,
    &ls_layer_einsum_dense,
    &ls_layer_conv1d,
    &ls_layer_conv2d,
    &ls_layer_conv3d,
    &ls_layer_conv1d_transpose,
    &ls_layer_conv2d_transpose,
    &ls_layer_conv3d_transpose,
    &ls_layer_depthwise_conv1d,
    &ls_layer_depthwise_conv2d,
    &ls_layer_embedding,
    NULL,
};

static const struct ls_layer_kind *find_kind(struct ls_config *c, const char *class_name)
{
    const struct ls_layer_kind *const *kind = kinds;

    if (!class_name)
        return NULL;
    while (*kind && strcmp((*kind)->class_name, ls_layer_class(class_name)) != 0)
        kind++;
    if (!*kind)
        ls_config_fail(c, "layer",
                       "%.60s inside is not supported; expected Dense, EinsumDense, Embedding, or "
                       "a convolution that is not separable",
                       class_name);
    return *kind;
}

// What Keras normalizes of a layer: its attribute `kernel`, else `embeddings`; NULL: it has none.
static struct ls_tensor *find_kernel(const struct ls_graph *graph, const char *part)
{
    static const char *const names[] = {"kernel", "embeddings", NULL};
    const struct ls_graph_layer *layer = &graph->layers[graph->layer];
    char name[512];

    for (const char *const *last = names; *last; last++) {
        snprintf(name, sizeof(name), "%s/%s/%s", layer->name, part, *last);
        for (uint32_t i = 0; i < layer->parameter_count; i++) {
            struct ls_tensor *parameter = graph->parameters[layer->first_parameter + i];
            if (strcmp(parameter->name, name) == 0)
                return parameter;
        }
    }
    return NULL;
}

static enum ls_status add_norm(struct ls_graph *graph, const struct ls_inner_layer *layer,
                               int64_t iterations, struct ls_tensor *input)
{
    const struct ls_initializer initializer = {.kind = LS_TRUNCATED_NORMAL, .deviation = 0.02};
    struct ls_tensor *kernel = find_kernel(graph, layer->name), *vector;

    if (!kernel)
        return ls_graph_fail(graph, input,
                             "layer: %s has no kernel and no embeddings that could be normalized",
                             layer->class_name);
    const struct ls_shape *seen = ls_variable_shape(kernel);
    const struct ls_shape shape = {.ndims = 2, .dims = {1, seen->dims[seen->ndims - 1]}};
    graph->part = NULL;
    enum ls_status status = ls_graph_statistic(graph, "vector_u", &shape, &initializer, &vector);
    return status ? status
                  : ls_graph_add_spectral_norm(graph, kernel, vector, (uint32_t)iterations);
}

// Keras writes training=False into each call, which says nothing: it is what the argument is by
// default, and a model overrides it.
static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const int64_t iterations = ls_config_integer(&c, "power_iterations", 1, LS_CONFIG_LARGEST, 1);
    const struct ls_inner_layer layer =
        ls_config_inner(&c, "layer", json_object_get(call->config, "layer"));
    struct ls_layer_call inner = {.kind = find_kind(&c, layer.class_name),
                                  .config = layer.config,
                                  .inputs = call->inputs,
                                  .input_count = 1};
    if (!inner.kind)
        return c.status;
    struct ls_config own = {
        .graph = graph, .object = inner.config, .parent = "layer", .penalized = true};
    ls_config_check(&own, inner.kind->keys);
    if (json_is_true(json_object_get(inner.config, "mask_zero")))
        ls_config_fail(&own, "mask_zero", "no mask comes from a layer inside; set it to false");
    if (c.status || own.status || !call->inputs)
        return c.status     ? c.status
               : own.status ? own.status
                            : ls_layer_build(graph, &inner, outputs);
    if (call->inputs[0]->dtype == LS_I32)
        return ls_graph_fail(graph, call->inputs[0],
                             "Keras casts what the layer inside computes to the type of its input, "
                             "here int32; give the ids as float32 (dtype of Input)");
    if (graph->reusing)
        return ls_graph_fail(graph, call->inputs[0],
                             "it is called twice, and in Keras each call normalizes the kernel "
                             "anew; call it once, or give each call a layer of its own");
    if (json_is_false(json_object_get(inner.config, "trainable")))
        ls_graph_freeze_layer(graph);

    const uint32_t first = graph->parameter_count;
    graph->part = layer.name;
    enum ls_status status = ls_layer_build(graph, &inner, outputs);
    ls_add_regularizers(graph, inner.config, first);
    if (!status)
        status = ls_add_activity_regularizer(graph, inner.config, outputs);
    if (!status)
        status = add_norm(graph, &layer, iterations, call->inputs[0]);
    if (!status && inner.kind->mask == LS_MASK_PASSES)
        outputs[0]->mask = call->inputs[0]->mask;
    graph->part = NULL;
    return status;
}

const struct ls_layer_kind ls_layer_spectral_normalization = {
    .class_name = "SpectralNormalization",
    .summary = "another layer, whose kernel has the largest singular value 1",
    .mask = LS_MASK_OWN,
    .keys = keys,
    .build = build,
};
