// SPDX-License-Identifier: Apache-2.0
// Attention of one head: scores of queries and keys, softmax over the keys, and the mean of the values by them.
// Attention scores by products, or with score_mode "concat" by sums of tanh(query + key), as AdditiveAttention does.
#include "layers/convolution.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const keys[] = {"use_scale", "score_mode", "dropout", "seed", NULL};
static const char *const additive_keys[] = {"use_scale", "dropout", "seed", NULL};
static const char *const arguments[] = {"inputs", "mask", "return_attention_scores",
                                        "use_causal_mask", NULL};

// A use of the layer, with what it is called on: (B, T, D), (B, S, E) and (B, S, D).
struct use {
    struct ls_tensor *query, *value, *key;
    struct ls_tensor *query_mask, *value_mask; // of steps; NULL: none. As in Keras the key has none
    bool causal, scaled, inference;
    float rate;
};

static void read_options(struct ls_config *c, bool scaled, struct use *out)
{
    const double rate = ls_config_number(c, "dropout", 0, 1, 0);
    if ((float)rate >= 1)
        ls_config_fail(c, "dropout", "1 would drop everything; expected a number below 1");
    out->rate = (float)rate;
    out->scaled = ls_config_boolean(c, "use_scale", scaled);
    ls_config_seed(c);
}

enum ls_status ls_add_given_mask(struct ls_graph *graph, const struct ls_layer_call *call,
                                 const json_t *argument, struct ls_tensor **out)
{
    struct ls_tensor *given = *out = ls_call_tensor(call, argument);
    enum ls_status status = LS_OK;
    if (!given || (given->producer >= 0 && graph->operations[given->producer].op == LS_OP_DIFFERS))
        return LS_OK;
    if (ls_type_is_half(given->dtype))
        status = ls_graph_convert(graph, given, LS_F32, &given);
    return status ? status : ls_graph_add(graph, LS_OP_DIFFERS, NULL, &given, 1, NULL, out);
}

static enum ls_status read_call(struct ls_graph *graph, const struct ls_layer_call *call,
                                bool same_size, struct use *out)
{
    const json_t *list = ls_call_argument(call, 0, "inputs"),
                 *mask = ls_call_argument(call, 1, "mask"); // of the query and the value
    struct ls_tensor *given[3];
    for (uint32_t i = 0; i < 3; i++)
        given[i] = json_is_array(list)     ? ls_call_tensor(call, json_array_get(list, i))
                   : i < call->input_count ? call->inputs[i]
                                           : NULL;
    if (!given[0] || !given[1])
        return ls_graph_fail(graph, call->inputs[0], "expected a query, a value, and maybe a key");
    out->query = given[0];
    out->value = given[1];
    out->key = given[2] ? given[2] : given[1];
    out->query_mask = out->query->mask;
    out->value_mask = out->value->mask;
    out->inference = call->inference;
    out->causal = json_is_true(ls_call_argument(call, 4, "use_causal_mask"));
    if (json_is_true(ls_call_argument(call, 3, "return_attention_scores")))
        return ls_graph_fail(graph, out->query,
                             "return_attention_scores is not supported; set it to False");
    if (mask && !json_is_null(mask) && !json_is_array(mask))
        return ls_graph_fail(graph, out->query,
                             "mask: expected a list, of the query's and the value's");
    enum ls_status status = LS_OK;
    if (json_is_array(mask))
        status = ls_add_given_mask(graph, call, json_array_get(mask, 0), &out->query_mask);
    if (json_is_array(mask) && !status)
        status = ls_add_given_mask(graph, call, json_array_get(mask, 1), &out->value_mask);
    if (status)
        return status;
    for (uint32_t i = 0; i < 3 && given[i]; i++)
        if (given[i]->shape.ndims != 3)
            return ls_graph_fail(graph, given[i], "expected 3 dimensions: batch, steps, features");
    if (out->key->shape.dims[1] != out->value->shape.dims[1])
        return ls_graph_fail(graph, out->key, "expected as many steps as the value has, %lld",
                             (long long)out->value->shape.dims[1]);
    const int64_t queries = out->query->shape.dims[2], features = out->key->shape.dims[2];
    if (same_size && queries != features)
        return ls_graph_fail(graph, out->key, "expected as many features as the query has, %lld",
                             (long long)queries);
    return LS_OK;
}

// A variable of one number, which Keras has without dimensions.
static enum ls_status add_number(struct ls_graph *graph, const char *name, struct ls_tensor **out)
{
    const struct ls_shape variable = {.ndims = 0}, seen = {.ndims = 1, .dims = {1}};
    const struct ls_initializer ones = {.kind = LS_ONES};
    return ls_add_variable(graph, name, &variable, &seen, &ones, out);
}

// x (B, steps, size) -> (B, steps, 1, size), or (B, 1, steps, size)
static enum ls_status spread(struct ls_graph *graph, struct ls_tensor *x, bool as_rows,
                             struct ls_tensor **out)
{
    const int64_t steps = x->shape.dims[1];
    const struct ls_shape shape = {
        .ndims = 4, .dims = {LS_BATCH, as_rows ? steps : 1, as_rows ? 1 : steps, x->shape.dims[2]}};
    return ls_add_reshape(graph, x, &shape, out);
}

// ---- Masks ----

double ls_hidden_score(const struct ls_graph *graph)
{
    return graph->compute == LS_F16 ? -3e4 : -1e9; // Keras's, and that of its Softmax
}

// A matrix of one number where a step (a row) sees another one (a column), which is itself or one
// before it, and of another number elsewhere.
static enum ls_status add_triangle(struct ls_graph *graph, int64_t rows, int64_t columns,
                                   float seen, float later, struct ls_tensor **out)
{
    const struct ls_shape shape = {.ndims = 2, .dims = {rows, columns}};
    float *values = calloc((size_t)(rows * columns), sizeof(*values));

    if (!values)
        return LS_OUT_OF_MEMORY;
    for (int64_t t = 0; t < rows; t++)
        for (int64_t s = 0; s < columns; s++)
            values[t * columns + s] = s > t ? later : seen;
    const enum ls_status status = ls_graph_constant_values(graph, "later", &shape, values, out);
    free(values);
    return status;
}

// A mask of steps as a column (B,T,1) or a row (B,1,S), times what is in `out` already.
static enum ls_status join_mask(struct ls_graph *graph, struct ls_tensor *mask, bool column,
                                struct ls_tensor **out)
{
    const int64_t steps = mask->shape.dims[1];
    const struct ls_shape shape = {.ndims = 3,
                                   .dims = {LS_BATCH, column ? steps : 1, column ? 1 : steps}};
    const enum ls_status status = ls_add_reshape(graph, mask, &shape, &mask);

    if (!status && *out)
        return ls_add_pair(graph, LS_PAIR_MULTIPLY, *out, mask, out);
    *out = mask;
    return status;
}

enum ls_status ls_add_score_mask(struct ls_graph *graph, const struct ls_score_masks *masks,
                                 struct ls_tensor **out)
{
    struct ls_tensor *const given[] = {masks->query, masks->value, masks->key};
    const int64_t steps[] = {masks->steps, masks->keys, masks->keys};
    struct ls_tensor *earlier;
    enum ls_status status = LS_OK;

    *out = NULL;
    for (int i = 0; i < 3 && !status; i++) {
        if (!given[i])
            continue;
        if (given[i]->shape.ndims != 2 || given[i]->shape.dims[1] != steps[i])
            return ls_graph_fail(graph, given[i], "mask: expected a number for each step");
        if (i < 2 || given[2] != given[1])
            status = join_mask(graph, given[i], i == 0, out);
    }
    struct ls_tensor *scores = status ? NULL : masks->scores;
    if (scores && (scores->shape.ndims != 3 ||
                   (scores->shape.dims[1] != 1 && scores->shape.dims[1] != masks->steps) ||
                   (scores->shape.dims[2] != 1 && scores->shape.dims[2] != masks->keys)))
        return ls_graph_fail(graph, scores, "attention_mask: expected a number for each score");
    if (scores && *out)
        status = ls_add_pair(graph, LS_PAIR_MULTIPLY, *out, scores, out);
    else if (scores)
        *out = scores;
    if (status || !masks->causal || !*out)
        return status;
    status = add_triangle(graph, masks->steps, masks->keys, 1, 0, &earlier);
    return status ? status : ls_add_pair(graph, LS_PAIR_MULTIPLY, *out, earlier, out);
}

// ---- Scores that are products: one head of the operation, which divides them by sqrt(D) ----

static enum ls_status attend(struct ls_graph *graph, struct use *use, struct ls_tensor *scale,
                             struct ls_tensor **outputs)
{
    struct ls_tensor *heads[3], *y;
    struct ls_op_attributes attributes = {.causal = use->causal};
    const struct ls_shape shape = {
        .ndims = 3, .dims = {LS_BATCH, use->query->shape.dims[1], use->value->shape.dims[2]}};

    enum ls_status status =
        ls_add_scale(graph, sqrt((double)use->query->shape.dims[2]), 0, use->query, &use->query);
    if (!status && scale)
        status = ls_add_pair(graph, LS_PAIR_MULTIPLY, use->query, scale, &use->query);
    if (!status)
        status = spread(graph, use->query, true, &heads[0]);
    if (!status)
        status = spread(graph, use->key, true, &heads[1]);
    if (!status)
        status = spread(graph, use->value, true, &heads[2]);
    if (status)
        return status;
    if (use->rate > 0 && !use->inference) {
        attributes.rate = use->rate;
        attributes.key = graph->dropout_count++;
    }
    status = ls_graph_add(graph, LS_OP_ATTENTION, &attributes, heads, 3, NULL, &y);
    return status ? status : ls_add_reshape(graph, y, &shape, outputs);
}

// ---- Scores that are sums ----

// tanh(factor (query + key)): (B, T, S, D)
static enum ls_status add_sums(struct ls_graph *graph, const struct use *use,
                               struct ls_tensor *factor, struct ls_tensor **out)
{
    const struct ls_layer_activation function = {.function = LS_TANH};
    struct ls_tensor *query, *key, *sums;

    enum ls_status status = spread(graph, use->query, true, &query);
    if (!status)
        status = spread(graph, use->key, false, &key);
    if (!status)
        status = ls_add_pair(graph, LS_PAIR_ADD, query, key, &sums);
    if (!status && factor)
        status = ls_add_pair(graph, LS_PAIR_MULTIPLY, sums, factor, &sums);
    return status ? status : ls_activation_add(graph, &function, sums, out);
}

// Adds to scores (B, T, S) what hides the steps behind that of the query.
static enum ls_status hide_later(struct ls_graph *graph, struct ls_tensor *scores,
                                 struct ls_tensor **out)
{
    struct ls_tensor *mask;
    const enum ls_status status = add_triangle(graph, scores->shape.dims[1], scores->shape.dims[2],
                                               0, (float)ls_hidden_score(graph), &mask);
    return status ? status : ls_add_pair(graph, LS_PAIR_ADD, scores, mask, out);
}

// The same, and what hides steps of values that do not count.
static enum ls_status hide(struct ls_graph *graph, const struct use *use, struct ls_tensor *scores,
                           struct ls_tensor **out)
{
    const struct ls_score_masks masks = {.value = use->value_mask,
                                         .causal = use->causal,
                                         .steps = scores->shape.dims[1],
                                         .keys = scores->shape.dims[2]};
    const double most = -ls_hidden_score(graph);
    struct ls_tensor *mask;

    enum ls_status status = ls_add_score_mask(graph, &masks, &mask);
    if (!status)
        status = ls_add_scale(graph, most, -most, mask, &mask); // 0, or what hides
    return status ? status : ls_add_pair(graph, LS_PAIR_ADD, scores, mask, out);
}

// The mean of the values by softmax of the `scores` (B, T, S).
static enum ls_status weigh(struct ls_graph *graph, const struct use *use, struct ls_tensor *scores,
                            struct ls_tensor **outputs)
{
    struct ls_tensor *factors[2] = {scores, use->value};
    enum ls_status status = LS_OK;

    if (use->value_mask)
        status = hide(graph, use, scores, &factors[0]);
    else if (use->causal)
        status = hide_later(graph, scores, &factors[0]);
    if (!status)
        status = ls_graph_add(graph, LS_OP_SOFTMAX, NULL, factors, 1, NULL, &factors[0]);
    if (!status)
        status = ls_add_random(graph, LS_OP_DROPOUT, (double)use->rate, use->inference,
                               (struct ls_op_attributes){0}, factors[0], &factors[0]);
    return status ? status : ls_graph_add(graph, LS_OP_MATMUL, NULL, factors, 2, NULL, outputs);
}

// Scores that are products, one by one: values have a mask, which the operation does not know.
static enum ls_status attend_masked(struct ls_graph *graph, const struct use *use,
                                    struct ls_tensor *scale, struct ls_tensor **outputs)
{
    static const int32_t turned[LS_MAX_DIMS] = {0, 2, 1};
    struct ls_tensor *factors[2] = {use->query}, *scores;

    enum ls_status status = ls_add_transposition(graph, turned, use->key, &factors[1]);
    if (!status)
        status = ls_graph_add(graph, LS_OP_MATMUL, NULL, factors, 2, NULL, &scores);
    if (!status && scale)
        status = ls_add_pair(graph, LS_PAIR_MULTIPLY, scores, scale, &scores);
    return status ? status : weigh(graph, use, scores, outputs);
}

// The outputs of queries that do not count are 0, and have their mask.
static enum ls_status finish(struct ls_graph *graph, const struct use *use,
                             struct ls_tensor **outputs)
{
    struct ls_tensor *column = NULL;
    enum ls_status status = LS_OK;

    if (!use->query_mask)
        return LS_OK;
    status = join_mask(graph, use->query_mask, true, &column);
    if (!status)
        status = ls_add_pair(graph, LS_PAIR_MULTIPLY, outputs[0], column, outputs);
    if (!status)
        outputs[0]->mask = use->query_mask;
    return status;
}

// The sum over the last dimension of (B, T, S, D): (B, T, S)
static enum ls_status sum_features(struct ls_graph *graph, struct ls_tensor *x,
                                   struct ls_tensor **out)
{
    const struct ls_shape shape = {.ndims = 3,
                                   .dims = {LS_BATCH, x->shape.dims[1], x->shape.dims[2]}};
    const enum ls_status status =
        ls_add_reduction(graph, LS_REDUCE_TO_SUM, UINT32_C(1) << 3, x, out);
    return status ? status : ls_add_reshape(graph, *out, &shape, out);
}

// ---- Layers ----

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const json_t *mode = json_object_get(call->config, "score_mode");
    const char *name = mode ? json_string_value(mode) : "dot";
    const bool sums = name && strcmp(name, "concat") == 0;
    struct ls_tensor *scale = NULL, *weight, *scores;
    struct use use;
    char text[64];

    read_options(&c, false, &use);
    if (!name || (!sums && strcmp(name, "dot") != 0))
        ls_config_fail(&c, "score_mode", "expected \"dot\" or \"concat\", got %s",
                       ls_json_text(mode, text, sizeof(text)));
    if (c.status || !call->inputs)
        return c.status;
    enum ls_status status = read_call(graph, call, true, &use);
    if (!status && use.scaled)
        status = add_number(graph, "scale", &scale);
    if (!status && !sums)
        status = use.value_mask ? attend_masked(graph, &use, scale, outputs)
                                : attend(graph, &use, scale, outputs);
    if (status || !sums)
        return status ? status : finish(graph, &use, outputs);
    status = add_number(graph, "concat_score_weight", &weight);
    if (!status)
        status = add_sums(graph, &use, scale, &scores);
    if (!status)
        status = sum_features(graph, scores, &scores);
    if (!status)
        status = ls_add_pair(graph, LS_PAIR_MULTIPLY, scores, weight, &scores);
    if (!status)
        status = weigh(graph, &use, scores, outputs);
    return status ? status : finish(graph, &use, outputs);
}

static enum ls_status build_additive(struct ls_graph *graph, const struct ls_layer_call *call,
                                     struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const struct ls_initializer initializer = // no option of its own
        ls_config_initializer(&c, "scale_initializer", "glorot_uniform");
    struct ls_tensor *scale, *scores;
    struct use use;

    read_options(&c, true, &use);
    if (c.status || !call->inputs)
        return c.status;
    enum ls_status status = read_call(graph, call, true, &use);
    const struct ls_shape vector = {.ndims = 1, .dims = {call->inputs[0]->shape.dims[2]}};
    if (!status)
        status = add_sums(graph, &use, NULL, &scores);
    if (!status && use.scaled)
        status = ls_graph_parameter(graph, "scale", &vector, &initializer, &scale);
    if (!status && use.scaled)
        status = ls_add_pair(graph, LS_PAIR_MULTIPLY, scores, scale, &scores);
    if (!status)
        status = sum_features(graph, scores, &scores);
    if (!status)
        status = weigh(graph, &use, scores, outputs);
    return status ? status : finish(graph, &use, outputs);
}

const struct ls_layer_kind ls_layer_attention = {
    .class_name = "Attention",
    .summary = "attention by products of queries and keys",
    .mask = LS_MASK_OWN,
    .least_inputs = 2,
    .most_inputs = 6, // masks, too
    .keys = keys,
    .arguments = arguments,
    .build = build,
};

const struct ls_layer_kind ls_layer_additive_attention = {
    .class_name = "AdditiveAttention",
    .summary = "attention by sums of queries and keys",
    .mask = LS_MASK_OWN,
    .least_inputs = 2,
    .most_inputs = 6, // masks, too
    .keys = additive_keys,
    .arguments = arguments,
    .build = build_additive,
};
