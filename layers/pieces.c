// SPDX-License-Identifier: Apache-2.0
// Pieces that several layers are composed of: axes of a configuration, sums over them, other orders
// of dimensions, channels first, vectors of length 1.
#include "layers/kinds.h"

#include <string.h>

uint32_t ls_config_axes(struct ls_config *config, const char *key, const struct ls_tensor *x)
{
    const json_t *value = json_object_get(config->object, key);
    const size_t count = json_is_array(value) ? json_array_size(value) : 1;
    const json_int_t ndims = x ? x->shape.ndims : LS_MAX_DIMS;
    uint32_t axes = 0;
    bool right = count > 0;
    char text[64];

    for (size_t i = 0; i < count && right; i++) {
        const json_t *axis = json_is_array(value) ? json_array_get(value, i) : value;
        json_int_t at = axis ? json_integer_value(axis) : -1;
        right = !axis || json_is_integer(axis);
        at += at < 0 ? ndims : 0;
        right = right && at > 0 && at < ndims && (axes >> at & 1) == 0;
        axes |= right ? UINT32_C(1) << at : 0;
    }
    if (right)
        return axes;
    ls_config_fail(config, key, "expected dimensions from 1, behind that of the examples, got %s",
                   ls_json_text(value, text, sizeof(text)));
    return 0;
}

enum ls_status ls_add_reduction(struct ls_graph *graph, uint32_t function, uint32_t axes,
                                struct ls_tensor *x, struct ls_tensor **out)
{
    struct ls_op_attributes attributes = {.function = function};
    for (uint32_t i = 0; i < LS_MAX_DIMS; i++)
        attributes.axes[i] = axes >> i & 1;
    return ls_graph_add(graph, LS_OP_REDUCE, &attributes, &x, 1, NULL, out);
}

enum ls_status ls_add_transposition(struct ls_graph *graph, const int32_t order[LS_MAX_DIMS],
                                    struct ls_tensor *x, struct ls_tensor **out)
{
    struct ls_op_attributes attributes = {0};
    bool same = true;
    for (uint32_t i = 0; i < x->shape.ndims; i++) {
        attributes.axes[i] = order[i];
        same = same && order[i] == (int32_t)i;
    }
    *out = x;
    return same ? LS_OK : ls_graph_add(graph, LS_OP_TRANSPOSE, &attributes, &x, 1, NULL, out);
}

enum ls_status ls_add_unit(struct ls_graph *graph, uint32_t axes, double least, struct ls_tensor *x,
                           struct ls_tensor **out)
{
    const struct ls_op_attributes square = {.function = LS_SQUARE},
                                  root = {.function = LS_SQUARE_ROOT, .offset = (float)least};
    struct ls_tensor *norm;

    enum ls_status status = ls_graph_add(graph, LS_OP_FUNCTION, &square, &x, 1, NULL, &norm);
    if (!status)
        status = ls_add_reduction(graph, LS_REDUCE_TO_SUM, axes, norm, &norm);
    if (!status)
        status = ls_graph_add(graph, LS_OP_FUNCTION, &root, &norm, 1, NULL, &norm);
    return status ? status : ls_add_pair(graph, LS_PAIR_DIVIDE, x, norm, out);
}

// ---- Channels first ----

// (B, C, ...) -> (B, ..., C), or back
static enum ls_status move_channels(struct ls_graph *graph, bool to_last, struct ls_tensor *x,
                                    struct ls_tensor **out)
{
    const int32_t last = (int32_t)x->shape.ndims - 1;
    int32_t order[LS_MAX_DIMS] = {0};
    for (int32_t i = 1; i <= last; i++)
        order[i] = to_last ? (i == last ? 1 : i + 1) : (i == 1 ? last : i - 1);
    return ls_add_transposition(graph, order, x, out);
}

static bool has_channels_first(const struct ls_layer_call *call)
{
    const char *format = json_string_value(json_object_get(call->config, "data_format"));
    return format && strcmp(format, "channels_first") == 0 && call->inputs && !call->kind->own &&
           call->inputs[0]->shape.ndims > 2; // a layer of the user's own may mean something else
}

enum ls_status ls_layer_build(struct ls_graph *graph, const struct ls_layer_call *call,
                              struct ls_tensor **outputs)
{
    struct ls_layer_call moved = *call;
    struct ls_tensor *inputs[LS_LAYER_INPUTS];

    if (!has_channels_first(call))
        return call->kind->build(graph, call, outputs);
    memcpy(inputs, call->inputs, call->input_count * sizeof(inputs[0]));
    moved.inputs = inputs;
    enum ls_status status = move_channels(graph, true, call->inputs[0], &inputs[0]);
    if (!status)
        status = call->kind->build(graph, &moved, outputs);
    for (uint32_t i = 0; i < LS_LAYER_OUTPUTS && outputs[i] && !status; i++)
        if (outputs[i]->shape.ndims == inputs[0]->shape.ndims)
            status = move_channels(graph, false, outputs[i], &outputs[i]);
    return status;
}
