// SPDX-License-Identifier: Apache-2.0
// MultiHeadAttention: queries, keys and values are projected into heads, each head attends by
// itself, and the heads are projected to the output. The four projections are dense layers, whose
// kernels Keras has as (inputs, heads, size). GroupQueryAttention has fewer heads of keys and
// values than of queries, and each is for several of these.
#include "layers/convolution.h"

#include <math.h>

static const char *const keys[] = {
    "num_heads",
    "key_dim",
    "value_dim",
    "dropout",
    "use_bias",
    "output_shape",
    "attention_axes",
    "sliding_window",
    "flash_attention",
    "kernel_initializer",
    "bias_initializer",
    "kernel_regularizer",
    "bias_regularizer",
    "kernel_constraint",
    "bias_constraint",
    "use_gate",
    "seed",
    "query_shape", // Keras 2 writes what the layer was built with
    "key_shape",
    "value_shape",
    NULL,
};
static const char *const grouped_keys[] = {
    "head_dim",
    "num_query_heads",
    "num_key_value_heads",
    "dropout",
    "use_bias",
    "sliding_window",
    "flash_attention",
    "kernel_initializer",
    "bias_initializer",
    "kernel_regularizer",
    "bias_regularizer",
    "kernel_constraint",
    "bias_constraint",
    "use_gate",
    "seed",
    NULL,
};
static const char *const arguments[] = {
    "query",
    "value",
    "key",
    "query_mask",
    "value_mask",
    "key_mask",
    "attention_mask",
    "return_attention_scores",
    "use_causal_mask",
    NULL,
};

struct options {
    int64_t heads, key_dim, value_dim, output; // output 0: as the query
    bool use_bias;
    struct ls_initializer kernel, bias;
    struct ls_op_attributes attributes;
};

// "output_shape": null, an integer or a list of one; 0 for null.
static int64_t read_output(struct ls_config *c)
{
    const json_t *value = json_object_get(c->object, "output_shape");
    char text[64];

    if (json_is_array(value) && json_array_size(value) == 1)
        value = json_array_get(value, 0);
    if (!value || json_is_null(value))
        return 0;
    if (json_is_integer(value) && json_integer_value(value) >= 1 &&
        json_integer_value(value) <= LS_CONFIG_LARGEST)
        return json_integer_value(value);
    ls_config_fail(c, "output_shape", "expected null or one size, got %s",
                   ls_json_text(value, text, sizeof(text)));
    return 0;
}

// "attention_axes": those of a sequence, null or [1].
static void check_axes(struct ls_config *c)
{
    const json_t *value = json_object_get(c->object, "attention_axes");
    const json_t *first = json_is_array(value) ? json_array_get(value, 0) : value;
    char text[64];

    if (value && !json_is_null(value) &&
        (json_array_size(value) > 1 || json_integer_value(first) != 1))
        ls_config_fail(c, "attention_axes",
                       "only attention over the steps is supported, got %s; "
                       "set it to null",
                       ls_json_text(value, text, sizeof(text)));
}

// What both layers have.
static void read_common(struct ls_config *c, struct options *o)
{
    const double rate = ls_config_number(c, "dropout", 0, 1, 0);
    if ((float)rate >= 1)
        ls_config_fail(c, "dropout", "1 would drop everything; expected a number below 1");
    o->attributes.rate = (float)rate;
    o->use_bias = ls_config_boolean(c, "use_bias", true);
    o->kernel = ls_config_initializer(c, "kernel_initializer", "glorot_uniform");
    o->bias = ls_config_initializer(c, "bias_initializer", "zeros");
    ls_config_null(c, "sliding_window");
    if (ls_config_boolean(c, "use_gate", false))
        ls_config_fail(c, "use_gate", "a gate is not supported; set it to false");
    ls_config_seed(c);
}

static void read_options(struct ls_config *c, struct options *o)
{
    const json_t *value_dim = json_object_get(c->object, "value_dim");

    o->heads = ls_config_integer(c, "num_heads", 1, LS_CONFIG_LARGEST, LS_CONFIG_NONE);
    o->key_dim = ls_config_integer(c, "key_dim", 1, LS_CONFIG_LARGEST, LS_CONFIG_NONE);
    o->value_dim = o->key_dim;
    if (value_dim && !json_is_null(value_dim))
        o->value_dim = ls_config_integer(c, "value_dim", 1, LS_CONFIG_LARGEST, LS_CONFIG_NONE);
    o->output = read_output(c);
    check_axes(c);
    read_common(c, o);
}

// Refuses what a call must not pass, and reads the others.
static enum ls_status read_call(struct ls_graph *graph, const struct ls_layer_call *call,
                                struct ls_tensor *inputs[3], struct ls_score_masks *out)
{
    static const struct {
        size_t position;
        const char *name;
    } masks[] = {{3, "query_mask"}, {4, "value_mask"}, {5, "key_mask"}, {6, "attention_mask"}};
    struct ls_tensor **const given[] = {&out->query, &out->value, &out->key, &out->scores};
    inputs[0] = ls_call_tensor(call, ls_call_argument(call, 0, "query"));
    inputs[1] = ls_call_tensor(call, ls_call_argument(call, 1, "value"));
    inputs[2] = ls_call_tensor(call, ls_call_argument(call, 2, "key"));
    if (!inputs[0] || !inputs[1])
        return ls_graph_fail(graph, call->inputs[0], "expected tensors as query and value");
    out->query = inputs[0]->mask;
    out->value = inputs[1]->mask;
    out->key = inputs[2] ? inputs[2]->mask : NULL;
    if (!inputs[2])
        inputs[2] = inputs[1];
    for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
        const json_t *mask = ls_call_argument(call, masks[i].position, masks[i].name);
        if (!mask || json_is_null(mask))
            continue;
        const enum ls_status status = ls_add_given_mask(graph, call, mask, given[i]);
        if (status)
            return status;
        if (!*given[i])
            return ls_graph_fail(graph, inputs[0], "%s: expected a tensor", masks[i].name);
    }
    if (json_is_true(ls_call_argument(call, 7, "return_attention_scores")))
        return ls_graph_fail(graph, inputs[0],
                             "return_attention_scores is not supported; set it to False");
    out->causal = json_is_true(ls_call_argument(call, 9, "use_causal_mask"));
    for (int i = 0; i < 3; i++)
        if (inputs[i]->shape.ndims != 3)
            return ls_graph_fail(graph, inputs[i], "expected 3 dimensions: batch, steps, features");
    if (inputs[1]->shape.dims[1] != inputs[2]->shape.dims[1])
        return ls_graph_fail(graph, inputs[1], "expected as many steps as the key has, %lld",
                             (long long)inputs[2]->shape.dims[1]);
    out->steps = inputs[0]->shape.dims[1];
    out->keys = inputs[2]->shape.dims[1];
    return LS_OK;
}

// x (B, T, in) times "<name>/kernel", plus "<name>/bias" -> (B, T, a b). Keras has the kernel as
// (in, a, b), or where b is 0, as (heads, in / heads, a) with a bias of a.
static enum ls_status project(struct ls_graph *graph, const struct options *o, const char *name,
                              struct ls_tensor *x, int64_t a, int64_t b, struct ls_tensor **out)
{
    const int64_t in = x->shape.dims[2], units = b ? a * b : a;
    const struct ls_shape seen = {.ndims = 2, .dims = {in, units}},
                          vector = {.ndims = 1, .dims = {units}};
    const struct ls_shape into_heads = {.ndims = 3, .dims = {in, a, b}},
                          out_of_heads = {.ndims = 3, .dims = {o->heads, in / o->heads, a}};
    const struct ls_shape bias = {.ndims = b ? 2 : 1, .dims = {a, b}};
    struct ls_tensor *all[3] = {x};
    char full[48];

    snprintf(full, sizeof(full), "%s/kernel", name);
    enum ls_status status =
        ls_add_variable(graph, full, b ? &into_heads : &out_of_heads, &seen, &o->kernel, &all[1]);
    snprintf(full, sizeof(full), "%s/bias", name);
    if (!status && o->use_bias)
        status = ls_add_variable(graph, full, &bias, &vector, &o->bias, &all[2]);
    if (status)
        return status;
    return ls_graph_add(graph, LS_OP_DENSE, NULL, all, o->use_bias ? 3 : 2, NULL, out);
}

// The same, as heads (B, T, heads, size).
static enum ls_status project_heads(struct ls_graph *graph, const struct options *o,
                                    const char *name, struct ls_tensor *x, int64_t heads,
                                    int64_t size, struct ls_tensor **out)
{
    const struct ls_shape shape = {.ndims = 4, .dims = {LS_BATCH, x->shape.dims[1], heads, size}};
    const enum ls_status status = project(graph, o, name, x, heads, size, out);
    return status ? status : ls_add_reshape(graph, *out, &shape, out);
}

// heads[0] attends to heads[1] and [2] under a mask of scores (B, T or 1, S or 1), which the
// operation does not know. As in Keras a query without any key has the mean of all values; where
// the layer has dropout, it has 0.
static enum ls_status attend_masked(struct ls_graph *graph, const struct options *o, bool inference,
                                    struct ls_tensor *const heads[3], struct ls_tensor *mask,
                                    struct ls_tensor **out)
{
    static const int32_t by_head[LS_MAX_DIMS] = {0, 2, 1, 3}, turned[LS_MAX_DIMS] = {0, 2, 3, 1};
    const int64_t *dims = mask->shape.dims;
    const struct ls_shape shape = {.ndims = 4, .dims = {LS_BATCH, 1, dims[1], dims[2]}};
    const double most = -ls_hidden_score(graph);
    struct ls_tensor *q, *k, *v, *hidden, *scores;

    enum ls_status status = ls_add_transposition(graph, by_head, heads[0], &q);
    if (!status)
        status = ls_add_transposition(graph, turned, heads[1], &k);
    if (!status)
        status = ls_add_transposition(graph, by_head, heads[2], &v);
    if (!status)
        status = ls_add_scale(graph, 1 / sqrt((double)o->key_dim), 0, q, &q);
    if (!status)
        status =
            ls_graph_add(graph, LS_OP_MATMUL, NULL, (struct ls_tensor *[]){q, k}, 2, NULL, &scores);
    if (!status)
        status = ls_add_reshape(graph, mask, &shape, &mask);
    if (!status)
        status = ls_add_scale(graph, most, -most, mask, &hidden); // 0, or what hides
    if (!status)
        status = ls_add_pair(graph, LS_PAIR_MULTIPLY, scores, mask, &scores);
    if (!status)
        status = ls_add_pair(graph, LS_PAIR_ADD, scores, hidden, &scores);
    if (!status)
        status = ls_graph_add(graph, LS_OP_SOFTMAX, NULL, &scores, 1, NULL, &scores);
    if (!status && o->attributes.rate > 0)
        status = ls_add_pair(graph, LS_PAIR_MULTIPLY, scores, mask, &scores);
    if (!status)
        status = ls_add_random(graph, LS_OP_DROPOUT, (double)o->attributes.rate, inference,
                               (struct ls_op_attributes){0}, scores, &scores);
    if (!status)
        status = ls_graph_add(graph, LS_OP_MATMUL, NULL, (struct ls_tensor *[]){scores, v}, 2, NULL,
                              out);
    return status ? status : ls_add_transposition(graph, by_head, *out, out);
}

// The same without one.
static enum ls_status attend_all(struct ls_graph *graph, const struct options *o, bool inference,
                                 bool causal, struct ls_tensor *const heads[3],
                                 struct ls_tensor **out)
{
    struct ls_op_attributes attributes = o->attributes;

    attributes.causal = causal;
    if (inference)
        attributes.rate = 0;
    else if (attributes.rate > 0)
        attributes.key = graph->dropout_count++;
    return ls_graph_add(graph, LS_OP_ATTENTION, &attributes, heads, 3, NULL, out);
}

// heads[0] attends to heads[1] and [2]; the projection to the output, as wide as the query.
static enum ls_status attend(struct ls_graph *graph, const struct ls_layer_call *call,
                             const struct options *o, const struct ls_score_masks *masks,
                             const struct ls_shape *query, struct ls_tensor *heads[3],
                             struct ls_tensor **outputs)
{
    const struct ls_shape together = {.ndims = 3,
                                      .dims = {LS_BATCH, query->dims[1], o->heads * o->value_dim}};
    struct ls_tensor *y, *mask;

    enum ls_status status = ls_add_score_mask(graph, masks, &mask);
    if (!status)
        status = mask ? attend_masked(graph, o, call->inference, heads, mask, &y)
                      : attend_all(graph, o, call->inference, masks->causal, heads, &y);
    if (!status)
        status = ls_add_reshape(graph, y, &together, &y);
    if (status)
        return status;
    status = project(graph, o, "attention_output", y, o->output ? o->output : query->dims[2], 0,
                     outputs);
    if (!status)
        outputs[0]->mask = masks->query;
    return status;
}

// query (B, T, ..), value and key (B, S, ..) -> (B, T, output)
static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct options o = {.heads = 0};
    struct ls_tensor *inputs[3] = {NULL}, *heads[3] = {NULL};
    struct ls_score_masks masks = {.causal = false};
    read_options(&c, &o);
    if (c.status || !call->inputs)
        return c.status;
    const json_t *mask = ls_call_argument(call, 3, "query_mask");
    if (mask && !json_is_null(mask))
        return ls_graph_fail(graph, call->inputs[0],
                             "query_mask: Keras's MultiHeadAttention does not look at it, but at "
                             "the mask that the query has; leave it out");
    enum ls_status status = read_call(graph, call, inputs, &masks);
    if (!status)
        status = project_heads(graph, &o, "query", inputs[0], o.heads, o.key_dim, &heads[0]);
    if (!status)
        status = project_heads(graph, &o, "key", inputs[2], o.heads, o.key_dim, &heads[1]);
    if (!status)
        status = project_heads(graph, &o, "value", inputs[1], o.heads, o.value_dim, &heads[2]);
    if (!status)
        status = attend(graph, call, &o, &masks, &inputs[0]->shape, heads, outputs);
    for (int i = 0; i < 3 && !status; i++)
        inputs[i]->mask = NULL; // Keras takes them away: layers that come later see none
    return status;
}

// ---- GroupQueryAttention ----

// Each of the heads (B, S, fewer, size) `times` in a row: times a one for each, by broadcasting.
static enum ls_status repeat_heads(struct ls_graph *graph, const char *name, int64_t times,
                                   struct ls_tensor *heads, struct ls_tensor **out)
{
    const int64_t *dims = heads->shape.dims;
    const struct ls_shape apart = {.ndims = 5, .dims = {LS_BATCH, dims[1], dims[2], 1, dims[3]}},
                          all = {.ndims = 4, .dims = {LS_BATCH, dims[1], dims[2] * times, dims[3]}},
                          column = {.ndims = 2, .dims = {times, 1}};
    struct ls_tensor *ones;

    *out = heads;
    if (times == 1)
        return LS_OK;
    enum ls_status status = ls_graph_constant(graph, name, &column, 1, &ones);
    if (!status)
        status = ls_add_reshape(graph, heads, &apart, out);
    if (!status)
        status = ls_add_pair(graph, LS_PAIR_MULTIPLY, *out, ones, out);
    return status ? status : ls_add_reshape(graph, *out, &all, out);
}

static int64_t read_group_options(struct ls_config *c, struct options *o)
{
    const int64_t size = ls_config_integer(c, "head_dim", 1, LS_CONFIG_LARGEST, LS_CONFIG_NONE);
    const int64_t fewer =
        ls_config_integer(c, "num_key_value_heads", 1, LS_CONFIG_LARGEST, LS_CONFIG_NONE);

    o->heads = ls_config_integer(c, "num_query_heads", 1, LS_CONFIG_LARGEST, LS_CONFIG_NONE);
    o->key_dim = o->value_dim = size;
    read_common(c, o);
    if (!c->status && o->heads % fewer != 0)
        ls_config_fail(c, "num_query_heads",
                       "expected a multiple of num_key_value_heads, %lld, got %lld",
                       (long long)fewer, (long long)o->heads);
    return fewer;
}

static enum ls_status build_grouped(struct ls_graph *graph, const struct ls_layer_call *call,
                                    struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct options o = {.heads = 0};
    struct ls_tensor *inputs[3] = {NULL}, *heads[3] = {NULL};
    struct ls_score_masks masks = {.causal = false};
    const int64_t fewer = read_group_options(&c, &o);
    if (c.status || !call->inputs)
        return c.status;
    enum ls_status status = read_call(graph, call, inputs, &masks);
    if (!status)
        status = project_heads(graph, &o, "query", inputs[0], o.heads, o.key_dim, &heads[0]);
    if (!status)
        status = project_heads(graph, &o, "key", inputs[2], fewer, o.key_dim, &heads[1]);
    if (!status)
        status = project_heads(graph, &o, "value", inputs[1], fewer, o.key_dim, &heads[2]);
    if (!status)
        status = repeat_heads(graph, "key_ones", o.heads / fewer, heads[1], &heads[1]);
    if (!status)
        status = repeat_heads(graph, "value_ones", o.heads / fewer, heads[2], &heads[2]);
    return status ? status : attend(graph, call, &o, &masks, &inputs[0]->shape, heads, outputs);
}

const struct ls_layer_kind ls_layer_multi_head_attention = {
    .class_name = "MultiHeadAttention",
    .summary = "attention of several heads",
    .mask = LS_MASK_OWN,
    .least_inputs = 2,
    .most_inputs = 7, // masks, too
    .keys = keys,
    .arguments = arguments,
    .build = build,
};

const struct ls_layer_kind ls_layer_grouped_query_attention = {
    .class_name = "GroupQueryAttention",
    .summary = "attention of heads that share keys and values",
    .mask = LS_MASK_OWN,
    .least_inputs = 2,
    .most_inputs = 7, // masks, too
    .keys = grouped_keys,
    .arguments = arguments,
    .build = build_grouped,
};
