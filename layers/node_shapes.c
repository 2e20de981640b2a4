// SPDX-License-Identifier: Apache-2.0
// Operations of keras.ops that change shapes, among the layers of a functional model: reshape,
// expand_dims, squeeze, and x[:, 1:3] (GetItem).
#include "layers/kinds.h"

#include <string.h>

static const char *const no_keys[] = {NULL};
static const char *const axis_keys[] = {"axis", NULL};
static const char *const reshape_keys[] = {"newshape", NULL};
static const char *const item_arguments[] = {"key", NULL};

static enum ls_status add_reshape(struct ls_graph *graph, struct ls_tensor *x,
                                  const struct ls_shape *shape, struct ls_tensor **out)
{
    *out = x;
    return ls_shape_equal(&x->shape, shape)
               ? LS_OK
               : ls_graph_add(graph, LS_OP_RESHAPE, NULL, &x, 1, shape, out);
}

// ---- reshape(x, (-1, ...)): the examples stay apart ----

static bool read_sizes(const json_t *list, const struct ls_tensor *x, struct ls_shape *out)
{
    const int64_t elements = ls_shape_elements(&x->shape, 1);
    const size_t count = json_array_size(list);
    int64_t known = 1;
    size_t open = 0, opened = 0;

    if (count < 2 || count > LS_MAX_DIMS)
        return false;
    *out = (struct ls_shape){.ndims = (uint32_t)count, .dims = {LS_BATCH}};
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(list, i);
        const json_int_t size = json_is_null(value) ? -1 : json_integer_value(value);
        if ((!json_is_integer(value) && !json_is_null(value)) || size == 0 || size < -1 ||
            size > elements || (i == 0 && size != -1))
            return false;
        if (i > 0 && size == -1) {
            open = i;
            opened++;
        } else if (i > 0) {
            out->dims[i] = size;
            known = size > elements / known ? elements + 1 : known * size;
        }
    }
    if (opened == 0)
        return known == elements;
    out->dims[open] = elements / known;
    return opened == 1 && known <= elements && elements % known == 0;
}

static enum ls_status build_reshape(struct ls_graph *graph, const struct ls_layer_call *call,
                                    struct ls_tensor **outputs)
{
    struct ls_tensor *input = ls_call_input(call);
    const json_t *list = json_object_get(call->config, "newshape");
    struct ls_shape shape;
    char text[64];

    if (!input)
        return LS_OK;
    if (!read_sizes(list, input, &shape))
        return ls_graph_fail(graph, input,
                             "newshape: expected -1 for the examples and then sizes that make "
                             "%lld elements, got %s",
                             (long long)ls_shape_elements(&input->shape, 1),
                             ls_json_text(list, text, sizeof(text)));
    return add_reshape(graph, input, &shape, outputs);
}

const struct ls_layer_kind ls_node_reshape = {.class_name = "Reshape",
                                              .summary = "the same elements in another shape",
                                              .keys = reshape_keys,
                                              .build = build_reshape};

// ---- Dimensions of size 1 ----

static enum ls_status build_dim(struct ls_graph *graph, const struct ls_layer_call *call, bool more,
                                struct ls_tensor **outputs)
{
    struct ls_tensor *input = ls_call_input(call);
    const json_t *value = json_object_get(call->config, "axis");
    struct ls_shape shape = {0};
    char text[64];

    if (!input)
        return LS_OK;
    const json_int_t ndims = (json_int_t)input->shape.ndims + more;
    json_int_t axis = json_integer_value(value);
    axis += axis < 0 ? ndims : 0;
    if (!json_is_integer(value) || axis < 1 || axis >= ndims || ndims > LS_MAX_DIMS ||
        (!more && input->shape.dims[axis] != 1))
        return ls_graph_fail(graph, input, "axis: expected %s, and not the first, got %s",
                             more ? "where a dimension can be added" : "a dimension of size 1",
                             ls_json_text(value, text, sizeof(text)));
    for (uint32_t i = 0; i < input->shape.ndims; i++) {
        if (more && i == (uint32_t)axis)
            shape.dims[shape.ndims++] = 1;
        if (more || i != (uint32_t)axis)
            shape.dims[shape.ndims++] = input->shape.dims[i];
    }
    if (more && axis == ndims - 1)
        shape.dims[shape.ndims++] = 1;
    return add_reshape(graph, input, &shape, outputs);
}

static enum ls_status build_expand_dims(struct ls_graph *graph, const struct ls_layer_call *call,
                                        struct ls_tensor **outputs)
{
    return build_dim(graph, call, true, outputs);
}

static enum ls_status build_squeeze(struct ls_graph *graph, const struct ls_layer_call *call,
                                    struct ls_tensor **outputs)
{
    return build_dim(graph, call, false, outputs);
}

const struct ls_layer_kind ls_node_expand_dims = {.class_name = "ExpandDims",
                                                  .summary = "one more dimension of size 1",
                                                  .keys = axis_keys,
                                                  .build = build_expand_dims};
const struct ls_layer_kind ls_node_squeeze = {.class_name = "Squeeze",
                                              .summary = "without a dimension of size 1",
                                              .keys = axis_keys,
                                              .build = build_squeeze};

// ---- x[:, 1:3, 0] ----

// What a key says of one dimension.
struct range {
    int64_t begin, size;
    bool dropped; // an index instead of a slice
};

static bool read_bound(const json_t *value, int64_t size, int64_t missing, int64_t *out)
{
    json_int_t bound = json_integer_value(value);
    *out = missing;
    if (!value || json_is_null(value))
        return true;
    bound += bound < 0 ? size : 0;
    *out = bound < 0 ? 0 : bound > size ? size : bound;
    return json_is_integer(value);
}

static bool read_range(const json_t *value, int64_t size, struct range *out)
{
    const char *class_name = json_string_value(json_object_get(value, "class_name"));
    const json_t *config = json_object_get(value, "config");
    const json_t *step = json_object_get(config, "step");
    int64_t end;

    if (json_is_integer(value)) {
        const json_int_t index = json_integer_value(value);
        *out = (struct range){index < 0 ? index + size : index, 1, true};
        return out->begin >= 0 && out->begin < size;
    }
    if (!class_name || strcmp(class_name, "__slice__") != 0 ||
        (step && !json_is_null(step) && json_integer_value(step) != 1) ||
        !read_bound(json_object_get(config, "start"), size, 0, &out->begin) ||
        !read_bound(json_object_get(config, "stop"), size, size, &end))
        return false;
    out->dropped = false;
    out->size = end - out->begin;
    return out->size > 0;
}

// All examples, then a range of each dimension; those that are not said are whole.
static bool read_key(const json_t *key, const struct ls_tensor *x, struct range *ranges)
{
    const size_t count = json_is_array(key) ? json_array_size(key) : 1;

    if (count > x->shape.ndims)
        return false;
    for (uint32_t i = 0; i < x->shape.ndims; i++) {
        const json_t *value = json_is_array(key) ? json_array_get(key, i) : i == 0 ? key : NULL;
        const int64_t size = i == 0 ? INT32_MAX : x->shape.dims[i];
        ranges[i] = (struct range){0, size, false};
        if (value && !read_range(value, size, &ranges[i]))
            return false;
    }
    return !ranges[0].dropped && ranges[0].size == INT32_MAX;
}

static enum ls_status build_item(struct ls_graph *graph, const struct ls_layer_call *call,
                                 struct ls_tensor **outputs)
{
    struct ls_tensor *input = ls_call_input(call), *part = input;
    const json_t *key = ls_call_argument(call, 1, "key");
    struct range ranges[LS_MAX_DIMS];
    struct ls_op_attributes attributes = {0};
    enum ls_status status = LS_OK;
    char text[64];

    if (!input)
        return LS_OK;
    if (!read_key(key, input, ranges))
        return ls_graph_fail(graph, input,
                             "key: expected ':' for the examples and then an index or a slice of "
                             "step 1 that is not empty for each dimension, got %s",
                             ls_json_text(key, text, sizeof(text)));
    struct ls_shape shape = input->shape, kept = {.ndims = 1, .dims = {LS_BATCH}};
    for (uint32_t i = 1; i < shape.ndims; i++) {
        attributes.axes[i] = (int32_t)ranges[i].begin;
        shape.dims[i] = ranges[i].size;
        if (!ranges[i].dropped)
            kept.dims[kept.ndims++] = ranges[i].size;
    }
    if (kept.ndims == 1)
        return ls_graph_fail(graph, input, "key: expected a slice of at least one dimension");
    if (!ls_shape_equal(&shape, &input->shape))
        status = ls_graph_add(graph, LS_OP_SLICE, &attributes, &input, 1, &shape, &part);
    return status ? status : add_reshape(graph, part, &kept, outputs);
}

const struct ls_layer_kind ls_node_get_item = {.class_name = "GetItem",
                                               .summary = "a part of a tensor: x[:, 1:3]",
                                               .keys = no_keys,
                                               .arguments = item_arguments,
                                               .build = build_item};
