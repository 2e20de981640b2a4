// SPDX-License-Identifier: Apache-2.0
// Embedding: a row of a table for each id. An id outside of the table makes its row NaN, and so the
// loss. ReversibleEmbedding, which language models end with, too: features times the rows.
#include "layers/kinds.h"

#include <string.h>

#define KEYS                                                                             \
    "input_dim", "output_dim", "embeddings_initializer", "embeddings_regularizer",       \
        "embeddings_constraint", "mask_zero", "input_length", "lora_rank", "lora_alpha", \
        "quantization_config"
static const char *const keys[] = {KEYS, NULL};
static const char *const reversible_keys[] = {KEYS, "tie_weights", "reverse_dtype",
                                              "logit_soft_cap", NULL};
static const char *const reversible_arguments[] = {"reverse", NULL};
// Written as null where they are not used.
static const char *const unsupported[] = {"lora_rank", "lora_alpha", "quantization_config", NULL};

// What the two layers have in common: the table, and rows of it.
struct table {
    int64_t rows, width;
    struct ls_initializer initializer;
    bool masks;
};

static void read_table(struct ls_config *c, struct table *out)
{
    out->rows = ls_config_integer(c, "input_dim", 1, LS_CONFIG_LARGEST, LS_CONFIG_NONE);
    out->width = ls_config_integer(c, "output_dim", 1, LS_CONFIG_LARGEST, LS_CONFIG_NONE);
    out->initializer = ls_config_initializer(c, "embeddings_initializer", "uniform");
    out->masks = ls_config_boolean(c, "mask_zero", false);
    for (const char *const *key = unsupported; *key; key++)
        ls_config_null(c, *key);
}

static enum ls_status add_table(struct ls_graph *graph, const struct table *table,
                                struct ls_tensor **out)
{
    const struct ls_shape shape = {.ndims = 2, .dims = {table->rows, table->width}};
    return ls_graph_parameter(graph, "embeddings", &shape, &table->initializer, out);
}

// ids: (B, ...) -> (B, ..., output_dim). Float ids lose their fraction, as in Keras.
static enum ls_status add_rows(struct ls_graph *graph, const struct table *table,
                               struct ls_tensor *ids, struct ls_tensor *embeddings,
                               struct ls_tensor **outputs)
{
    struct ls_tensor *arguments[2] = {ids, embeddings};
    enum ls_status status =
        ls_graph_add(graph, LS_OP_GATHER_ROWS, NULL, arguments, 2, NULL, outputs);
    if (!status && table->masks) // steps whose id is not 0
        status = ls_graph_add(graph, LS_OP_DIFFERS, NULL, arguments, 1, NULL, &outputs[0]->mask);
    return status;
}

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *ids = ls_call_input(call), *embeddings;
    struct table table;

    read_table(&c, &table);
    if (c.status || !ids)
        return c.status;
    const enum ls_status status = add_table(graph, &table, &embeddings);
    return status ? status : add_rows(graph, &table, ids, embeddings, outputs);
}

const struct ls_layer_kind ls_layer_embedding = {
    .class_name = "Embedding",
    .summary = "a row of a table for each id",
    .mask = LS_MASK_OWN,
    .keys = keys,
    .build = build,
};

// ---- In reverse: features times the table, or times a kernel of its own ----

// The type of the reverse projection: that of the layer, or float32.
static uint32_t read_reverse_dtype(struct ls_config *c)
{
    const json_t *value = json_object_get(c->object, "reverse_dtype");
    const uint32_t own = c->graph->compute;
    const char *name = ls_json_dtype(value);
    char text[64];

    if (!value || json_is_null(value) || (strcmp(name, "bfloat16") == 0 && own == LS_BF16) ||
        (strcmp(name, "float16") == 0 && own == LS_F16))
        return own;
    if (strcmp(name, "float32") != 0)
        ls_config_fail(c, "reverse_dtype",
                       "expected null, float32 or what the layer computes in, got %s",
                       ls_json_text(value, text, sizeof(text)));
    return own == LS_COMPUTE_UNCAST ? own : LS_F32;
}

// x: (B, ..., output_dim) -> (B, ..., input_dim), with `cap` between -cap and cap.
static enum ls_status add_logits(struct ls_graph *graph, bool tied, double cap,
                                 struct ls_tensor *const arguments[2], struct ls_tensor **outputs)
{
    const struct ls_layer_activation tanh = {.function = LS_TANH};
    struct ls_tensor *y;

    enum ls_status status = ls_graph_add(graph, tied ? LS_OP_DENSE_TRANSPOSED : LS_OP_DENSE, NULL,
                                         arguments, 2, NULL, &y);
    if (!status && cap != 0) {
        status = ls_add_scale(graph, 1 / cap, 0, y, &y);
        if (!status)
            status = ls_activation_add(graph, &tanh, y, &y);
        if (!status)
            status = ls_add_scale(graph, cap, 0, y, &y);
    }
    *outputs = status ? NULL : y;
    return status;
}

static enum ls_status build_reversible(struct ls_graph *graph, const struct ls_layer_call *call,
                                       struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const json_t *given = json_object_get(call->config, "logit_soft_cap");
    const double cap =
        given && !json_is_null(given) ? ls_config_number(&c, "logit_soft_cap", -1e30, 1e30, 0) : 0;
    const bool tied = ls_config_boolean(&c, "tie_weights", true);
    const bool reverse = json_is_true(ls_call_argument(call, 1, "reverse"));
    const uint32_t compute = graph->compute, reverse_dtype = read_reverse_dtype(&c);
    struct ls_tensor *arguments[2] = {ls_call_input(call)}, *embeddings, *kernel = NULL;
    struct table table;

    read_table(&c, &table);
    if (given && !json_is_null(given) && cap == 0)
        ls_config_fail(&c, "logit_soft_cap", "expected a number that is not 0, or null");
    if (c.status || !arguments[0])
        return c.status;
    const struct ls_shape shape = {.ndims = 2, .dims = {table.width, table.rows}};
    enum ls_status status = add_table(graph, &table, &embeddings);
    if (!status && !tied)
        status =
            ls_graph_parameter(graph, "reverse_embeddings", &shape, &table.initializer, &kernel);
    if (status || !reverse)
        return status ? status : add_rows(graph, &table, arguments[0], embeddings, outputs);
    arguments[1] = tied ? embeddings : kernel;
    graph->compute = reverse_dtype;
    status = add_logits(graph, tied, cap, arguments, outputs);
    graph->compute = compute;
    return status;
}

const struct ls_layer_kind ls_layer_reversible_embedding = {
    .class_name = "ReversibleEmbedding",
    .summary = "a row of a table for each id, and in reverse a number for each row",
    .mask = LS_MASK_OWN,
    .keys = reversible_keys,
    .arguments = reversible_arguments,
    .build = build_reversible,
};
