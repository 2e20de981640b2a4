// SPDX-License-Identifier: Apache-2.0
// Embedding: a row of a table for each id. An id outside of the table makes its row NaN, and so the
// loss.
#include "layers/kinds.h"

static const char *const keys[] = {
    "input_dim",
    "output_dim",
    "embeddings_initializer",
    "embeddings_regularizer",
    "embeddings_constraint",
    "mask_zero",
    "input_length",
    "lora_rank",
    "lora_alpha",
    "quantization_config",
    NULL,
};
// Written as null where they are not used.
static const char *const unsupported[] = {"lora_rank", "lora_alpha", "quantization_config", NULL};

// ids: (B, ...) -> (B, ..., output_dim). Float ids lose their fraction, as in Keras.
static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *arguments[2] = {ls_call_input(call)};
    const struct ls_shape table = {
        .ndims = 2,
        .dims = {ls_config_integer(&c, "input_dim", 1, LS_CONFIG_LARGEST, LS_CONFIG_NONE),
                 ls_config_integer(&c, "output_dim", 1, LS_CONFIG_LARGEST, LS_CONFIG_NONE)}};
    const struct ls_initializer initializer =
        ls_config_initializer(&c, "embeddings_initializer", "uniform");
    const bool masks = ls_config_boolean(&c, "mask_zero", false);
    for (const char *const *key = unsupported; *key; key++)
        ls_config_null(&c, *key);
    if (c.status || !arguments[0])
        return c.status;
    enum ls_status status =
        ls_graph_parameter(graph, "embeddings", &table, &initializer, &arguments[1]);
    if (!status)
        status = ls_graph_add(graph, LS_OP_GATHER_ROWS, NULL, arguments, 2, NULL, outputs);
    if (!status && masks) // steps whose id is not 0
        status = ls_graph_add(graph, LS_OP_DIFFERS, NULL, arguments, 1, NULL, &outputs[0]->mask);
    return status;
}

const struct ls_layer_kind ls_layer_embedding = {
    .class_name = "Embedding",
    .summary = "a row of a table for each id",
    .mask = LS_MASK_OWN,
    .keys = keys,
    .build = build,
};
