// SPDX-License-Identifier: Apache-2.0
// Categories made of numbers: CategoryEncoding, Discretization, IntegerLookup. Their indices are
// whole numbers in float32, which has all of them up to 2^24; what would need larger ones is
// refused.
#include "layers/convolution.h"

#include <stdlib.h>
#include <string.h>

#define LARGEST_EXACT (1 << 24) // whole number up to which float32 has all

static const char *const modes[] = {"int",    "one_hot", "multi_hot", "count",
                                    "tf_idf", "tf-idf",  "binary",    NULL};
enum mode { INDICES, ONE_HOT, MULTI_HOT, COUNT };

static enum mode read_mode(struct ls_config *c, enum mode missing)
{
    const uint32_t mode = ls_config_choice(c, "output_mode", modes, missing);
    if (mode == 4 || mode == 5)
        ls_config_fail(c, "output_mode",
                       "tf_idf is not supported; take \"count\", and behind it the layer "
                       "Rescaling with the weights as scale");
    return mode > COUNT ? MULTI_HOT : (enum mode)mode; // binary is an older name
}

// The result is float32 whatever the type is; those are refused that would change its values.
static void read_dtype(struct ls_config *c)
{
    const json_t *value = json_object_get(c->object, "dtype");
    const char *name = ls_json_dtype(value);
    char why[256];

    if (strcmp(name, "int32") != 0 && strcmp(name, "int64") != 0 &&
        !ls_json_precision(value, why, sizeof(why)))
        ls_config_fail(c, "dtype", "%s, int32 or int64", why);
}

static void refuse_sparse(struct ls_config *c)
{
    if (ls_config_boolean(c, "sparse", false))
        ls_config_fail(c, "sparse", "not supported; set it to false");
}

// ids -> which of `depth` categories they are. With counts, the second dimension is gone.
static enum ls_status encode(struct ls_graph *graph, enum mode mode, int64_t depth, bool checked,
                             struct ls_tensor *ids, struct ls_tensor **out)
{
    const uint32_t function = mode == MULTI_HOT ? LS_ENCODE_MULTI_HOT
                              : mode != ONE_HOT ? LS_ENCODE_COUNTS
                              : checked         ? LS_ENCODE_ONE_HOT_CHECKED
                                                : LS_ENCODE_ONE_HOT;
    const struct ls_op_attributes attributes = {.function = function, .count = (uint32_t)depth};
    return ls_graph_add(graph, LS_OP_ENCODE, &attributes, &ids, 1, NULL, out);
}

// `compute` runs in float32, whatever the layer's policy is: halves have too few whole numbers.
static enum ls_status in_float32(struct ls_graph *graph, const struct ls_layer_call *call,
                                 enum ls_status (*compute)(struct ls_graph *,
                                                           const struct ls_layer_call *,
                                                           struct ls_tensor **),
                                 struct ls_tensor **outputs)
{
    const uint32_t before = graph->compute;
    graph->compute = before == LS_COMPUTE_UNCAST ? before : LS_F32;
    const enum ls_status status = compute(graph, call, outputs);
    graph->compute = before;
    return status;
}

// ---- CategoryEncoding ----

static const char *const encoding_keys[] = {"num_tokens", "output_mode", "sparse", "dtype", NULL};
static const char *const encoding_arguments[] = {"count_weights", NULL};

// Counts of ids (B,T), each times its weight: the weights times a matrix of ones and zeros.
static enum ls_status count_weighted(struct ls_graph *graph, int64_t depth, struct ls_tensor *ids,
                                     struct ls_tensor *weights, struct ls_tensor **out)
{
    const int64_t together = ids->shape.ndims == 2 ? ids->shape.dims[1] : 0;
    const struct ls_shape row = {.ndims = 3, .dims = {LS_BATCH, 1, together}},
                          matrix = {.ndims = 3, .dims = {LS_BATCH, together, depth}},
                          made = {.ndims = 2, .dims = {LS_BATCH, depth}};
    struct ls_tensor *factors[2], *y;

    if (!together || !ls_shape_equal(&ids->shape, &weights->shape))
        return ls_graph_fail(graph, ids,
                             "count_weights: expected ids and weights of the same shape, with 2 "
                             "dimensions: batch, ids");
    enum ls_status status = encode(graph, ONE_HOT, depth, true, ids, &factors[1]);
    if (!status)
        status = ls_add_reshape(graph, factors[1], &matrix, &factors[1]);
    if (!status)
        status = ls_add_reshape(graph, weights, &row, &factors[0]);
    if (!status)
        status = ls_graph_add(graph, LS_OP_MATMUL, NULL, factors, 2, NULL, &y);
    return status ? status : ls_add_reshape(graph, y, &made, out);
}

static enum ls_status encode_categories(struct ls_graph *graph, const struct ls_layer_call *call,
                                        struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *ids = ls_call_input(call);
    const json_t *given = ls_call_argument(call, 1, "count_weights");
    struct ls_tensor *weights = ls_call_tensor(call, given);
    const int64_t depth = ls_config_integer(&c, "num_tokens", 1, LARGEST_EXACT, LS_CONFIG_NONE);
    const enum mode mode = read_mode(&c, MULTI_HOT);

    read_dtype(&c);
    refuse_sparse(&c);
    if (mode == INDICES)
        ls_config_fail(&c, "output_mode", "expected one_hot, multi_hot or count, as in Keras");
    if (c.status || !ids)
        return c.status;
    const bool wanted = call->input_count > 1 || (given && !json_is_null(given));
    if (wanted && (!weights || mode != COUNT))
        return ls_graph_fail(graph, ids,
                             "count_weights: expected a tensor of that name in the call, with "
                             "output_mode \"count\"");
    return weights ? count_weighted(graph, depth, ids, weights, outputs)
                   : encode(graph, mode, depth, false, ids, outputs);
}

static enum ls_status build_encoding(struct ls_graph *graph, const struct ls_layer_call *call,
                                     struct ls_tensor **outputs)
{
    return in_float32(graph, call, encode_categories, outputs);
}

const struct ls_layer_kind ls_layer_category_encoding = {
    .class_name = "CategoryEncoding",
    .summary = "ids as zeros and ones, or counts",
    .least_inputs = 1,
    .most_inputs = 2,
    .keys = encoding_keys,
    .arguments = encoding_arguments,
    .build = build_encoding,
};

// ---- Discretization ----

static const char *const discretization_keys[] = {
    "bin_boundaries", "num_bins", "epsilon", "output_mode", "sparse", "dtype", NULL};

static void check_boundaries(struct ls_config *c, const struct ls_numbers *boundaries)
{
    if (!c->status && boundaries->count == 0)
        ls_config_fail(
            c, "bin_boundaries",
            "there are none; call the layer's adapt() in Keras and save the model again, "
            "or give them in place of num_bins");
    for (int64_t i = 1; i < boundaries->count && !c->status; i++)
        if (boundaries->values[i] < boundaries->values[i - 1])
            ls_config_fail(c, "bin_boundaries", "must ascend; number %lld is below the one before",
                           (long long)i);
    if (boundaries->count >= LARGEST_EXACT)
        ls_config_fail(c, "bin_boundaries", "expected fewer than %d", LARGEST_EXACT);
}

static enum ls_status discretize(struct ls_graph *graph, const struct ls_layer_call *call,
                                 struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *arguments[2] = {ls_call_input(call)};
    const enum mode mode = read_mode(&c, INDICES);
    struct ls_numbers boundaries;
    enum ls_status status = LS_OK;

    read_dtype(&c);
    refuse_sparse(&c);
    ls_config_numbers(&c, "bin_boundaries", &boundaries);
    check_boundaries(&c, &boundaries);
    if (!c.status && arguments[0]) {
        const struct ls_shape vector = {.ndims = 1, .dims = {boundaries.count}};
        status = ls_graph_constant_values(graph, "boundaries", &vector, boundaries.values,
                                          &arguments[1]);
        if (!status)
            status = ls_graph_add(graph, LS_OP_BUCKET, NULL, arguments, 2, NULL, outputs);
        if (!status && mode != INDICES)
            status = encode(graph, mode, boundaries.count + 1, false, *outputs, outputs);
    }
    free(boundaries.values);
    return c.status ? c.status : status;
}

static enum ls_status build_discretization(struct ls_graph *graph, const struct ls_layer_call *call,
                                           struct ls_tensor **outputs)
{
    return in_float32(graph, call, discretize, outputs);
}

const struct ls_layer_kind ls_layer_discretization = {
    .class_name = "Discretization",
    .summary = "which bin numbers are in, by boundaries that are given",
    .keys = discretization_keys,
    .build = build_discretization,
};

// ---- IntegerLookup ----

static const char *const lookup_keys[] = {
    "max_tokens",      "num_oov_indices",
    "mask_token",      "oov_token",
    "vocabulary",      "vocabulary_dtype",
    "vocabulary_size", "idf_weights",
    "invert",          "output_mode",
    "sparse",          "pad_to_max_tokens",
    "oov_method",      "salt",
    "dtype",           NULL,
};

// What the layer's options say. Indices are those of the mask token, if it has one, of numbers that
// are not in the vocabulary (out of it: OOV), then of the vocabulary.
struct lookup {
    enum mode mode;
    bool invert, has_mask, has_oov_token, pads;
    int64_t mask_token, oov_token, oov_count, max_tokens; // max_tokens 0: not given
    int64_t *tokens; // the vocabulary without the special ones
    int64_t count;
};

static int64_t first_oov(const struct lookup *l)
{
    return l->has_mask && l->mode == INDICES ? 1 : 0;
}

static int64_t first_token(const struct lookup *l)
{
    return first_oov(l) + l->oov_count;
}

// An int32, or null.
static bool read_token(struct ls_config *c, const char *key, int64_t missing, int64_t *out)
{
    const json_t *value = json_object_get(c->object, key);
    *out = 0;
    if (json_is_null(value) || (!value && missing == LS_CONFIG_NONE))
        return false;
    *out = ls_config_integer(c, key, INT32_MIN, INT32_MAX, missing);
    return true;
}

static void read_vocabulary(struct ls_config *c, struct lookup *l)
{
    const json_t *list = json_object_get(c->object, "vocabulary");
    const size_t count = json_array_size(list);
    char text[64];

    if (!list || json_is_null(list))
        ls_config_fail(c, "vocabulary",
                       "there is none; what adapt() finds is not in the configuration: give the "
                       "layer vocabulary=layer.get_vocabulary() in Keras and save the model again");
    else if (count == 0)
        ls_config_fail(c, "vocabulary", "expected a list of whole numbers, got %s",
                       ls_json_text(list, text, sizeof(text)));
    l->tokens = c->status ? NULL : malloc(count * sizeof(*l->tokens));
    if (!c->status && !l->tokens)
        c->status = LS_OUT_OF_MEMORY;
    for (size_t i = 0; i < count && !c->status; i++) {
        const json_t *token = json_array_get(list, i);
        const json_int_t value = json_integer_value(token);
        if (!json_is_integer(token) || value < INT32_MIN || value > INT32_MAX)
            ls_config_fail(c, "vocabulary", "number %zu: expected one that int32 holds, got %s", i,
                           ls_json_text(token, text, sizeof(text)));
        l->tokens[i] = value;
    }
    l->count = c->status ? 0 : (int64_t)count;
}

// Leaves the vocabulary without the special tokens, where it begins with all of them.
static void drop_special(struct lookup *l)
{
    const int64_t oov = first_oov(l), special = first_token(l);
    bool same = l->count >= special && (l->has_oov_token || l->oov_count == 0);
    for (int64_t i = 0; i < special && same; i++)
        same = l->tokens[i] == (i < oov ? l->mask_token : l->oov_token);
    if (!same)
        return;
    l->count -= special;
    memmove(l->tokens, l->tokens + special, (size_t)l->count * sizeof(*l->tokens));
}

static void read_lookup(struct ls_config *c, struct lookup *l)
{
    const json_t *max_tokens = json_object_get(c->object, "max_tokens");
    const json_t *method = json_object_get(c->object, "oov_method"),
                 *dtype = json_object_get(c->object, "vocabulary_dtype");
    static const char *const methods[] = {"floormod", "farmhash", NULL}, *const dtypes[] = {"int64",
                                                                                            NULL};

    l->mode = read_mode(c, INDICES);
    l->invert = ls_config_boolean(c, "invert", false);
    l->pads = ls_config_boolean(c, "pad_to_max_tokens", false);
    l->oov_count = ls_config_integer(c, "num_oov_indices", 0, LARGEST_EXACT, 1);
    l->has_mask = read_token(c, "mask_token", LS_CONFIG_NONE, &l->mask_token);
    l->has_oov_token = read_token(c, "oov_token", -1, &l->oov_token);
    if (max_tokens && !json_is_null(max_tokens))
        l->max_tokens = ls_config_integer(c, "max_tokens", 2, LARGEST_EXACT, LS_CONFIG_NONE);
    if (method && ls_config_choice(c, "oov_method", methods, 0) == 1 && l->oov_count > 1)
        ls_config_fail(c, "oov_method", "farmhash is not supported; make the model with floormod");
    if (dtype)
        (void)ls_config_choice(c, "vocabulary_dtype", dtypes, 0);
    read_dtype(c);
    refuse_sparse(c);
    read_vocabulary(c, l);
    if (!c->status)
        drop_special(l);
}

static int compare_tokens(const void *a, const void *b)
{
    const int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;
    return (one > other) - (one < other);
}

// What invert gives must be a float32.
static void check_exact(struct ls_config *c, const char *key, int64_t token)
{
    if (token > LARGEST_EXACT || token < -LARGEST_EXACT)
        ls_config_fail(c, key,
                       "invert gives float32, which does not hold all whole numbers above %d; got "
                       "%lld",
                       LARGEST_EXACT, (long long)token);
}

// No token twice, and no special one among them.
static void check_tokens(struct ls_config *c, const struct lookup *l)
{
    int64_t *sorted = malloc((size_t)(l->count + 1) * sizeof(*sorted));
    if (!sorted) {
        c->status = LS_OUT_OF_MEMORY;
        return;
    }
    memcpy(sorted, l->tokens, (size_t)l->count * sizeof(*sorted));
    qsort(sorted, (size_t)l->count, sizeof(*sorted), compare_tokens);
    for (int64_t i = 0; i < l->count && !c->status; i++) {
        const long long token = sorted[i];
        if (i > 0 && sorted[i] == sorted[i - 1])
            ls_config_fail(c, "vocabulary", "%lld is in it twice", token);
        else if ((l->has_mask && token == l->mask_token) ||
                 (l->invert && l->has_oov_token && token == l->oov_token))
            ls_config_fail(c, "vocabulary",
                           "%lld is a special token, which may only stand before the others: "
                           "mask_token, then oov_token num_oov_indices times",
                           token);
        else if (l->invert)
            check_exact(c, "vocabulary", sorted[i]);
    }
    free(sorted);
}

static void check_lookup(struct ls_config *c, const struct lookup *l)
{
    const int64_t size = first_token(l) + l->count;

    if (l->invert && l->mode != INDICES)
        ls_config_fail(c, "invert", "expected output_mode \"int\" with it");
    if (l->invert && !l->has_oov_token)
        ls_config_fail(c, "oov_token", "expected a number with invert, got null");
    if (l->invert) {
        check_exact(c, "oov_token", l->oov_token);
        check_exact(c, "mask_token", l->mask_token);
    }
    if (l->count == 0)
        ls_config_fail(c, "vocabulary", "expected numbers besides the special ones");
    if (l->pads && l->max_tokens == 0)
        ls_config_fail(c, "pad_to_max_tokens", "expected max_tokens with it");
    if (size > (l->max_tokens > 0 ? l->max_tokens : LARGEST_EXACT))
        ls_config_fail(c, "vocabulary",
                       "expected at most %lld indices with the special ones, got "
                       "%lld",
                       (long long)(l->max_tokens > 0 ? l->max_tokens : LARGEST_EXACT),
                       (long long)size);
}

// Rows of LS_OP_LOOKUP's table.
struct row {
    int64_t key;
    int64_t value;
};

static int compare_rows(const void *a, const void *b)
{
    return compare_tokens(&((const struct row *)a)->key, &((const struct row *)b)->key);
}

// Number to index, or with invert index to number. The mask token has index 0; where ids are
// encoded, one behind all, so that it is none of them.
static int64_t fill_rows(const struct lookup *l, int64_t depth, struct row *rows)
{
    int64_t count = 0;
    for (int64_t i = 0; i < l->count; i++) {
        const int64_t index = first_token(l) + i;
        rows[count++] =
            l->invert ? (struct row){index, l->tokens[i]} : (struct row){l->tokens[i], index};
    }
    if (l->has_mask)
        rows[count++] = l->invert ? (struct row){0, l->mask_token}
                                  : (struct row){l->mask_token, l->mode == INDICES ? 0 : depth};
    qsort(rows, (size_t)count, sizeof(*rows), compare_rows);
    return count;
}

// float32 has not all whole numbers above 2^24, but two of them have all of an int32.
static enum ls_status add_table(struct ls_graph *graph, const struct ls_tensor *x,
                                const struct lookup *l, int64_t depth, struct ls_tensor **out)
{
    struct row *rows = malloc((size_t)(l->count + 1) * sizeof(*rows));
    float *values = malloc((size_t)(l->count + 1) * 3 * sizeof(*values));
    enum ls_status status = rows && values ? LS_OK : LS_OUT_OF_MEMORY;
    const int64_t count = status ? 0 : fill_rows(l, depth, rows);

    for (int64_t i = 0; i < count && !status; i++) {
        const int64_t key = rows[i].key, low = (key % 65536 + 65536) % 65536;
        if (x->dtype != LS_I32 && (key > LARGEST_EXACT || key < -LARGEST_EXACT))
            status = ls_graph_fail(graph, x,
                                   "vocabulary: float32 does not hold all whole numbers above %d; "
                                   "give the model's input dtype=\"int32\", for %lld",
                                   LARGEST_EXACT, (long long)key);
        values[3 * i] = (float)((key - low) / 65536);
        values[3 * i + 1] = (float)low;
        values[3 * i + 2] = (float)rows[i].value;
    }
    const struct ls_shape shape = {.ndims = 2, .dims = {count, 3}};
    if (!status)
        status = ls_graph_constant_values(graph, "table", &shape, values, out);
    free(rows);
    free(values);
    return status;
}

static enum ls_status add_lookup(struct ls_graph *graph, const struct lookup *l,
                                 struct ls_tensor *x, struct ls_tensor **outputs)
{
    const int64_t depth = l->pads ? l->max_tokens : first_token(l) + l->count;
    const struct ls_op_attributes attributes = {.count = l->invert ? 1 : (uint32_t)l->oov_count,
                                                .offset = l->invert ? (float)l->oov_token
                                                                    : (float)first_oov(l)};
    struct ls_tensor *arguments[2] = {x}, *y;

    enum ls_status status = add_table(graph, x, l, depth, &arguments[1]);
    if (!status)
        status = ls_graph_add(graph, LS_OP_LOOKUP, &attributes, arguments, 2, NULL, &y);
    if (!status && l->mode != INDICES)
        status = encode(graph, l->mode, depth, false, y, &y);
    *outputs = status ? NULL : y;
    return status;
}

static enum ls_status look_up(struct ls_graph *graph, const struct ls_layer_call *call,
                              struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);
    struct lookup l = {0};
    enum ls_status status = LS_OK;

    read_lookup(&c, &l);
    ls_config_null(&c, "idf_weights");
    if (!c.status)
        check_lookup(&c, &l);
    if (!c.status)
        check_tokens(&c, &l);
    if (!c.status && x)
        status = add_lookup(graph, &l, x, outputs);
    free(l.tokens);
    return c.status ? c.status : status;
}

static enum ls_status build_lookup(struct ls_graph *graph, const struct ls_layer_call *call,
                                   struct ls_tensor **outputs)
{
    return in_float32(graph, call, look_up, outputs);
}

const struct ls_layer_kind ls_layer_integer_lookup = {
    .class_name = "IntegerLookup",
    .summary = "the indices that numbers have in a vocabulary that is given",
    .keys = lookup_keys,
    .build = build_lookup,
};
