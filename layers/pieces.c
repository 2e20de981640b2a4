// SPDX-License-Identifier: Apache-2.0
// Pieces that several layers are composed of: axes of a configuration, sums over them, other orders
// of dimensions, channels and other axes that are not the last ones, vectors of length 1.
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

uint32_t ls_config_axis_count(const struct ls_config *config)
{
    const json_t *value = json_object_get(config->object, "axis");
    return json_is_array(value) ? (uint32_t)json_array_size(value) : 1;
}

enum ls_status ls_add_reduction(struct ls_graph *graph, uint32_t function, uint32_t axes,
                                struct ls_tensor *x, struct ls_tensor **out)
{
    struct ls_op_attributes attributes = {.function = function};
    for (uint32_t i = 0; i < LS_MAX_DIMS; i++)
        attributes.axes[i] = axes >> i & 1;
    return ls_graph_add(graph, LS_OP_REDUCE, &attributes, &x, 1, NULL, out);
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

// ---- Channels first, and other axes that are not the last ones ----

// Dimensions that are bits behind the others, or from there back.
static enum ls_status move_axes(struct ls_graph *graph, uint32_t axes, bool to_last,
                                struct ls_tensor *x, struct ls_tensor **out)
{
    int32_t order[LS_MAX_DIMS] = {0}, back[LS_MAX_DIMS] = {0}, next = 0;
    for (int last = 0; last < 2; last++)
        for (uint32_t i = 0; i < x->shape.ndims; i++)
            if ((int)(axes >> i & 1) == last)
                order[next++] = (int32_t)i;
    for (int32_t i = 0; i < next; i++)
        back[order[i]] = i;
    return ls_add_transposition(graph, to_last ? order : back, x, out);
}

// The dimensions that `build` finds last, where they may be others; 0: they stay.
static uint32_t axes_to_move(struct ls_config *c, const struct ls_layer_call *call)
{
    const char *format = json_string_value(json_object_get(call->config, "data_format"));
    const struct ls_tensor *x = call->inputs ? call->inputs[0] : NULL;
    if (call->kind->own) // which may mean something else
        return 0;
    if (call->kind->moves_axes)
        return ls_config_axes(c, "axis", x);
    return format && strcmp(format, "channels_first") == 0 && x && x->shape.ndims > 2 ? 1u << 1 : 0;
}

enum ls_status ls_layer_build(struct ls_graph *graph, const struct ls_layer_call *call,
                              struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_layer_call moved = *call;
    struct ls_tensor *inputs[LS_LAYER_INPUTS];
    const uint32_t axes = axes_to_move(&c, call);

    if (c.status)
        return c.status;
    if (!axes || !call->inputs)
        return call->kind->build(graph, call, outputs);
    memcpy(inputs, call->inputs, call->input_count * sizeof(inputs[0]));
    moved.inputs = inputs;
    enum ls_status status = move_axes(graph, axes, true, call->inputs[0], &inputs[0]);
    if (!status)
        status = call->kind->build(graph, &moved, outputs);
    for (uint32_t i = 0; i < LS_LAYER_OUTPUTS && outputs[i] && !status; i++)
        if (outputs[i]->shape.ndims == inputs[0]->shape.ndims)
            status = move_axes(graph, axes, false, outputs[i], &outputs[i]);
    return status;
}
