// SPDX-License-Identifier: Apache-2.0
// Operation nodes that move elements or change shapes: reshape, transpose, slices, split,
// concatenate, stack. The batch is always the first dimension, whole.
#include "layers/node_kinds.h"

#include <string.h>

// ---- Shapes ----

// [null, 2, 4] or [-1, 2, 4]: the batch first. One other size may be -1.
enum ls_status ls_build_reshape_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                     struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);
    const json_t *list = json_object_get(call->config, "newshape"),
                 *first = json_array_get(list, 0);
    struct ls_shape shape = {.ndims = (uint32_t)json_array_size(list), .dims = {LS_BATCH}};
    uint32_t open = 0;
    int64_t known = 1;
    char text[64];

    bool right = json_array_size(list) >= 1 && json_array_size(list) <= LS_MAX_DIMS &&
                 (json_is_null(first) || json_integer_value(first) == -1);
    for (uint32_t i = 1; right && i < shape.ndims; i++) {
        const json_t *size = json_array_get(list, i);
        shape.dims[i] = json_integer_value(size);
        right = json_is_integer(size) && shape.dims[i] <= LS_CONFIG_LARGEST &&
                (shape.dims[i] >= 1 || (shape.dims[i] == -1 && open == 0));
        open = shape.dims[i] == -1 ? i : open;
        known = shape.dims[i] == -1 || known > LS_CONFIG_LARGEST ? known : known * shape.dims[i];
    }
    ls_json_text(list, text, sizeof(text));
    if (!right)
        ls_config_fail(&c, "newshape",
                       "expected -1 or null (the batch) and up to %d positive sizes, one of them "
                       "may be -1, got %s",
                       LS_MAX_DIMS - 1, text);
    if (c.status || !x)
        return c.status;
    const int64_t elements = ls_shape_elements(&x->shape, 1);
    if (open > 0 ? elements % known != 0 : elements != known)
        return ls_graph_fail(graph, x, "newshape: the %lld elements of an example do not make %s",
                             (long long)elements, text);
    if (open > 0)
        shape.dims[open] = elements / known;
    return ls_node_reshape(graph, x, &shape, outputs);
}

enum ls_status ls_build_expand_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                    struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);
    if (!x)
        return LS_OK;
    const uint32_t axis = ls_node_axis(&c, "axis", json_object_get(call->config, "axis"), x, 1);
    struct ls_shape shape = {.ndims = x->shape.ndims + 1};
    if (c.status)
        return c.status;
    if (shape.ndims > LS_MAX_DIMS)
        return ls_graph_fail(graph, x, "a tensor has at most %d dimensions", LS_MAX_DIMS);
    for (uint32_t i = 0, from = 0; i < shape.ndims; i++)
        shape.dims[i] = i == axis ? 1 : x->shape.dims[from++];
    return ls_node_reshape(graph, x, &shape, outputs);
}

enum ls_status ls_build_squeeze_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                     struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);
    const json_t *value = json_object_get(call->config, "axis"), *element;
    bool gone[LS_MAX_DIMS] = {false};
    struct ls_shape shape = {0};
    size_t k;

    if (!x)
        return LS_OK;
    for (uint32_t i = 1; i < x->shape.ndims && (!value || json_is_null(value)); i++)
        gone[i] = x->shape.dims[i] == 1;
    json_array_foreach((json_t *)value, k, element) gone[ls_node_axis(&c, "axis", element, x, 0)] =
        true;
    if (json_is_integer(value))
        gone[ls_node_axis(&c, "axis", value, x, 0)] = true;
    for (uint32_t i = 0; i < x->shape.ndims; i++) {
        if (!gone[i])
            shape.dims[shape.ndims++] = x->shape.dims[i];
        else if (x->shape.dims[i] != 1 && !c.status)
            ls_config_fail(&c, "axis", "dimension %u has size %lld, not 1", i,
                           (long long)x->shape.dims[i]);
    }
    return c.status ? c.status : ls_node_reshape(graph, x, &shape, outputs);
}

// ---- Transpositions ----

static enum ls_status transpose(struct ls_graph *graph, struct ls_tensor *x, const int32_t *axes,
                                struct ls_tensor **out)
{
    struct ls_op_attributes attributes = {0};
    memcpy(attributes.axes, axes, sizeof(attributes.axes));
    return ls_graph_add(graph, LS_OP_TRANSPOSE, &attributes, &x, 1, NULL, out);
}

enum ls_status ls_build_transpose_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                       struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);
    const json_t *list = json_object_get(call->config, "axes");
    int32_t axes[LS_MAX_DIMS] = {0};

    if (!x)
        return LS_OK;
    if (json_array_size(list) != x->shape.ndims || !json_is_integer(json_array_get(list, 0)) ||
        json_integer_value(json_array_get(list, 0)) != 0) {
        ls_config_fail(&c, "axes", "expected a list of %u dimensions, the first of them 0",
                       x->shape.ndims);
        return c.status;
    }
    for (uint32_t i = 1; i < x->shape.ndims; i++)
        axes[i] = (int32_t)ls_node_axis(&c, "axes", json_array_get(list, i), x, 0);
    return c.status ? c.status : transpose(graph, x, axes, outputs);
}

enum ls_status ls_build_swap_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                  struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);
    int32_t axes[LS_MAX_DIMS];

    if (!x)
        return LS_OK;
    for (int32_t i = 0; i < LS_MAX_DIMS; i++)
        axes[i] = i;
    const uint32_t one = ls_node_axis(&c, "axis1", json_object_get(call->config, "axis1"), x, 0);
    const uint32_t other = ls_node_axis(&c, "axis2", json_object_get(call->config, "axis2"), x, 0);
    axes[one] = (int32_t)other;
    axes[other] = (int32_t)one;
    return c.status ? c.status : transpose(graph, x, axes, outputs);
}

// ---- Slices ----

// The part of `size` elements from `begin` of each dimension; x itself where that is all.
static enum ls_status slice(struct ls_graph *graph, struct ls_tensor *x, const int32_t *begin,
                            const struct ls_shape *size, struct ls_tensor **out)
{
    struct ls_op_attributes attributes = {0};
    if (ls_shape_equal(&x->shape, size)) {
        *out = x;
        return LS_OK;
    }
    memcpy(attributes.axes, begin, sizeof(attributes.axes));
    return ls_graph_add(graph, LS_OP_SLICE, &attributes, &x, 1, size, out);
}

// What x[...] asks for.
struct key {
    int32_t begin[LS_MAX_DIMS];
    struct ls_shape size, shape; // of the part, and of the result
    uint32_t at; // dimension of x that is next
};

// A bound of a slice, where a negative one counts from the end, as in Python.
static bool read_bound(const json_t *value, int64_t missing, int64_t size, int64_t *out)
{
    *out = missing;
    if (!value || json_is_null(value))
        return true;
    int64_t bound = json_integer_value(value);
    bound += bound < 0 && bound >= -size ? size : 0;
    *out = bound < 0 ? 0 : bound > size ? size : bound;
    return json_is_integer(value);
}

static bool read_slice(const json_t *config, const struct ls_tensor *x, struct key *key)
{
    const json_t *step = json_object_get(config, "step");
    int64_t begin, end;

    if (key->at >= x->shape.ndims || key->shape.ndims == LS_MAX_DIMS)
        return false;
    const int64_t size = key->at == 0 ? INT32_MAX : x->shape.dims[key->at];
    if (!read_bound(json_object_get(config, "start"), 0, size, &begin) ||
        !read_bound(json_object_get(config, "stop"), size, size, &end) || begin >= end ||
        (step && !json_is_null(step) && json_integer_value(step) != 1) ||
        (key->at == 0 && (begin != 0 || end != size)))
        return false;
    key->begin[key->at] = (int32_t)begin;
    key->size.dims[key->at] = key->at == 0 ? LS_BATCH : end - begin;
    key->shape.dims[key->shape.ndims++] = key->size.dims[key->at];
    key->at++;
    return true;
}

static bool read_index(const json_t *value, const struct ls_tensor *x, struct key *key)
{
    if (key->at == 0 || key->at >= x->shape.ndims)
        return false;
    const int64_t size = x->shape.dims[key->at];
    const json_int_t index = json_integer_value(value) + (json_integer_value(value) < 0 ? size : 0);
    if (index < 0 || index >= size)
        return false;
    key->begin[key->at] = (int32_t)index;
    key->size.dims[key->at++] = 1;
    return true;
}

static bool read_all(const struct ls_tensor *x, uint32_t until, struct key *key)
{
    const json_t *everything = NULL;
    while (key->at < until)
        if (!read_slice(everything, x, key))
            return false;
    return true;
}

static bool is_class(const json_t *value, const char *name)
{
    const char *class_name = json_string_value(json_object_get(value, "class_name"));
    return class_name && strcmp(class_name, name) == 0;
}

static bool read_key(const json_t *list, const struct ls_tensor *x, struct key *key)
{
    uint32_t named = 0;
    const json_t *element;
    size_t i;

    key->size.ndims = x->shape.ndims;
    json_array_foreach((json_t *)list, i, element) named +=
        !json_is_null(element) && !is_class(element, "__ellipsis__");
    if (named > x->shape.ndims)
        return false;
    json_array_foreach((json_t *)list, i, element)
    {
        bool right = key->shape.ndims < LS_MAX_DIMS;
        if (right && json_is_null(element) && key->at > 0)
            key->shape.dims[key->shape.ndims++] = 1;
        else if (right && is_class(element, "__ellipsis__"))
            right = read_all(x, key->at + x->shape.ndims - named, key);
        else if (right && is_class(element, "__slice__"))
            right = read_slice(json_object_get(element, "config"), x, key);
        else if (right && json_is_integer(element))
            right = read_index(element, x, key);
        else
            right = false;
        if (!right)
            return false;
    }
    return read_all(x, x->shape.ndims, key);
}

enum ls_status ls_build_slice_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                   struct ls_tensor **outputs)
{
    struct ls_tensor *x = ls_call_input(call), *part;
    const json_t *given = ls_call_argument(call, 1, "key");
    struct key key = {0};
    char text[128];

    if (!x)
        return LS_OK;
    json_t *list = json_is_array(given) ? json_incref((json_t *)given) : json_pack("[O]", given);
    const bool right = list && read_key(list, x, &key);
    json_decref(list);
    if (!right)
        return ls_graph_fail(graph, x,
                             "key: expected all of the batch, then numbers and slices with step 1 "
                             "that are not empty, got %s",
                             ls_json_text(given, text, sizeof(text)));
    const enum ls_status status = slice(graph, x, key.begin, &key.size, &part);
    return status ? status : ls_node_reshape(graph, part, &key.shape, outputs);
}

// A number of equal parts, or the places where parts begin.
enum ls_status ls_build_split_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                   struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);
    const json_t *where = json_object_get(call->config, "indices_or_sections");
    const json_int_t sections = json_integer_value(where);
    enum ls_status status = LS_OK;

    if (!x)
        return LS_OK;
    const uint32_t axis = ls_node_axis(&c, "axis", json_object_get(call->config, "axis"), x, 0);
    if (c.status)
        return c.status;
    const int64_t size = x->shape.dims[axis];
    const size_t count = json_is_array(where) ? json_array_size(where) + 1 : (size_t)sections;
    bool right = count >= 1 && count <= LS_LAYER_OUTPUTS &&
                 (json_is_array(where) || (sections >= 1 && size % sections == 0));
    int64_t begin = 0;
    for (size_t i = 0; right && i < count && !status; i++) {
        const json_t *next = json_array_get(where, i);
        const int64_t end = json_is_array(where) ? (i + 1 < count ? json_integer_value(next) : size)
                                                 : begin + size / sections;
        struct ls_shape part = x->shape;
        int32_t from[LS_MAX_DIMS] = {0};
        right = begin < end && end <= size;
        part.dims[axis] = end - begin;
        from[axis] = (int32_t)begin;
        if (right)
            status = slice(graph, x, from, &part, &outputs[i]);
        begin = end;
    }
    if (!right)
        ls_config_fail(&c, "indices_or_sections",
                       "expected 1 to %d parts that dimension %u, of size %lld, can be cut into",
                       LS_LAYER_OUTPUTS, axis, (long long)size);
    return c.status ? c.status : status;
}

// ---- Several tensors ----

enum ls_status ls_build_join_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                  struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const bool stack = strcmp(ls_node_class(graph), "Stack") == 0;
    struct ls_tensor *tensors[LS_LAYER_INPUTS];
    enum ls_status status = LS_OK;

    if (!call->inputs)
        return LS_OK;
    const struct ls_tensor *x = call->inputs[0];
    const uint32_t axis = ls_node_axis(&c, "axis", json_object_get(call->config, "axis"), x, stack);
    struct ls_shape shape = {.ndims = x->shape.ndims + 1};
    if (c.status)
        return c.status;
    if (stack && shape.ndims > LS_MAX_DIMS)
        return ls_graph_fail(graph, x, "a tensor has at most %d dimensions", LS_MAX_DIMS);
    for (uint32_t i = 0; i < call->input_count && !status; i++) {
        tensors[i] = call->inputs[i];
        if (stack && !ls_shape_equal(&tensors[i]->shape, &x->shape))
            return ls_graph_fail(graph, tensors[i], "all tensors must have the shape of the first");
        for (uint32_t k = 0, from = 0; stack && k < shape.ndims; k++)
            shape.dims[k] = k == axis ? 1 : tensors[i]->shape.dims[from++];
        if (stack)
            status = ls_node_reshape(graph, tensors[i], &shape, &tensors[i]);
    }
    return status ? status : ls_add_concatenation(graph, tensors, call->input_count, axis, outputs);
}
