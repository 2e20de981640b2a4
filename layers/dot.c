// SPDX-License-Identifier: Apache-2.0
// Dot: products of two tensors along one dimension of each, example by example.
#include "layers/convolution.h"

static const char *const keys[] = {"axes", "normalize", NULL};

// The dimension of x to sum over, 0: refused. `axes` is a number for both, or a list of two.
static uint32_t read_axis(struct ls_config *config, const struct ls_tensor *x, size_t input)
{
    const json_t *axes = json_object_get(config->object, "axes");
    const json_t *axis = json_is_array(axes) ? json_array_get(axes, input) : axes;
    const json_int_t ndims = x ? x->shape.ndims : LS_MAX_DIMS;
    const json_int_t at = json_integer_value(axis) + (json_integer_value(axis) < 0 ? ndims : 0);
    char text[64];

    if (json_is_integer(axis) && at > 0 && at < ndims &&
        (!json_is_array(axes) || json_array_size(axes) == 2))
        return (uint32_t)at;
    ls_config_fail(config, "axes",
                   "expected a dimension of each input, behind that of the examples, got %s",
                   ls_json_text(axes, text, sizeof(text)));
    return 0;
}

// x as matrices (B, others, summed), or with `first` (B, summed, others); appends the sizes of
// the others to `shape`.
static enum ls_status as_matrices(struct ls_graph *graph, struct ls_tensor *x, uint32_t axis,
                                  bool first, struct ls_shape *shape, struct ls_tensor **out)
{
    const int64_t sum = x->shape.dims[axis];
    int32_t order[LS_MAX_DIMS] = {0};
    uint32_t count = 1;
    int64_t others = 1;

    if (first)
        order[count++] = (int32_t)axis;
    for (uint32_t i = 1; i < x->shape.ndims; i++)
        if (i != axis) {
            order[count++] = (int32_t)i;
            others *= x->shape.dims[i];
            if (shape->ndims == LS_MAX_DIMS)
                return ls_graph_fail(graph, x, "the product has more than %d dimensions",
                                     LS_MAX_DIMS);
            shape->dims[shape->ndims++] = x->shape.dims[i];
        }
    if (!first)
        order[count] = (int32_t)axis;
    const struct ls_shape matrices = {
        .ndims = 3, .dims = {LS_BATCH, first ? sum : others, first ? others : sum}};
    const enum ls_status status = ls_add_transposition(graph, order, x, out);
    return status ? status : ls_add_reshape(graph, *out, &matrices, out);
}

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x[2] = {NULL}, *y;
    uint32_t axes[2];
    const bool normalize = ls_config_boolean(&c, "normalize", false);
    struct ls_shape shape = {.ndims = 1, .dims = {LS_BATCH}};
    enum ls_status status = LS_OK;

    for (size_t i = 0; i < 2; i++) {
        x[i] = call->inputs ? call->inputs[i] : NULL;
        axes[i] = read_axis(&c, x[i], i);
    }
    if (c.status || !call->inputs)
        return c.status;
    if (x[0]->shape.dims[axes[0]] != x[1]->shape.dims[axes[1]])
        return ls_graph_fail(graph, x[1], "axes: expected %lld along dimension %u, got %lld",
                             (long long)x[0]->shape.dims[axes[0]], axes[1],
                             (long long)x[1]->shape.dims[axes[1]]);
    for (int i = 0; i < 2 && !status; i++) {
        if (normalize)
            status = ls_add_unit(graph, UINT32_C(1) << axes[i], 1e-7, x[i], &x[i]);
        if (!status)
            status = as_matrices(graph, x[i], axes[i], i == 1, &shape, &x[i]);
    }
    if (!status)
        status = ls_graph_add(graph, LS_OP_MATMUL, NULL, x, 2, NULL, &y);
    if (shape.ndims == 1)
        shape.dims[shape.ndims++] = 1;
    return status ? status : ls_add_reshape(graph, y, &shape, outputs);
}

const struct ls_layer_kind ls_layer_dot = {
    .class_name = "Dot",
    .summary = "products of two tensors along a dimension of each",
    .least_inputs = 2,
    .most_inputs = 2,
    .keys = keys,
    .build = build,
};
