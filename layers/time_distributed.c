// SPDX-License-Identifier: Apache-2.0
// TimeDistributed: another layer, or a model, on each step. What acts on the last dimension takes
// all steps at once; others get one after the other, with the same variables.
#include "layers/convolution.h"

#include <stdlib.h>
#include <string.h>

static const char *const keys[] = {"layer", NULL};
static const char *const arguments[] = {"inputs", "mask", NULL};

enum { MOST_STEPS = 1024 }; // of layers that take one after the other

#define FEW_DIMENSIONS "expected at least 3 dimensions: batch, steps, features"

// Layers that act on the last dimension alone, and those that need a step at a time. None has a
// state.
static const struct ls_layer_kind *const of_features[] = {
    &ls_layer_dense,
    &ls_layer_activation,
    &ls_layer_relu,
    &ls_layer_leaky_relu,
    &ls_layer_elu,
    &ls_layer_softmax,
    &ls_layer_dropout,
    &ls_layer_gaussian_noise,
    &ls_layer_identity,
    &ls_layer_embedding,
    NULL,
};
static const struct ls_layer_kind *const of_steps[] = {
    &ls_layer_dropout, // with noise_shape
    &ls_layer_conv1d,
    &ls_layer_conv2d,
    &ls_layer_conv2d_transpose,
    &ls_layer_depthwise_conv2d,
    &ls_layer_separable_conv2d,
    &ls_layer_max_pooling1d,
    &ls_layer_max_pooling2d,
    &ls_layer_average_pooling1d,
    &ls_layer_average_pooling2d,
    &ls_layer_global_average_pooling1d,
    &ls_layer_global_average_pooling2d,
    &ls_layer_global_max_pooling1d,
    &ls_layer_global_max_pooling2d,
    &ls_layer_zero_padding1d,
    &ls_layer_zero_padding2d,
    &ls_layer_cropping1d,
    &ls_layer_cropping2d,
    &ls_layer_up_sampling1d,
    &ls_layer_up_sampling2d,
    &ls_layer_resizing,
    &ls_layer_center_crop,
    &ls_layer_flatten,
    &ls_layer_reshape,
    &ls_layer_permute,
    &ls_layer_repeat_vector,
    &ls_layer_prelu,
    &ls_layer_layer_normalization,
    &ls_layer_group_normalization,
    &ls_layer_conv1d_transpose,
    &ls_layer_conv3d,
    &ls_layer_conv3d_transpose,
    &ls_layer_depthwise_conv1d,
    &ls_layer_separable_conv1d,
    &ls_layer_unit_normalization,
    &ls_layer_spatial_dropout1d,
    &ls_layer_spatial_dropout2d,
    &ls_layer_rescaling,
    &ls_layer_simple_rnn,
    &ls_layer_lstm,
    &ls_layer_gru,
    &ls_layer_rnn,
    &ls_layer_bidirectional,
    NULL,
};

static const struct ls_layer_kind *find(const struct ls_layer_kind *const *kinds,
                                        const char *class_name)
{
    while (*kinds && strcmp((*kinds)->class_name, class_name) != 0)
        kinds++;
    return *kinds;
}

static const struct ls_layer_kind *find_kind(struct ls_config *c, const char *class_name)
{
    if (!class_name)
        return NULL;
    class_name = ls_layer_class(class_name);
    const struct ls_layer_kind *kind = find(of_features, class_name);
    kind = kind ? kind : find(of_steps, class_name);
    if (!kind)
        ls_config_fail(c, "layer",
                       "%.60s on each step is not supported; put it into a model, and that "
                       "into TimeDistributed",
                       class_name);
    return kind;
}

static bool takes_all_steps(const struct ls_layer_kind *kind, const json_t *config)
{
    const json_t *shape = json_object_get(config, "noise_shape"),
                 *axis = json_object_get(config, "axis"); // of Softmax, counted in one step
    return find(of_features, kind->class_name) && (!shape || json_is_null(shape)) &&
           (!axis || json_integer_value(axis) == -1);
}

// What one step after the other is taken of.
struct steps {
    struct ls_tensor *x, *mask; // (B, T, ...); mask NULL: none
    bool ids; // x was int32, which half types do not hold
};

// x (B, T, ...) -> step t (B, ...). `exact`: whatever type the layer computes in.
static enum ls_status take_step(struct ls_graph *graph, struct ls_tensor *x, bool exact, int64_t t,
                                struct ls_tensor **out)
{
    const struct ls_op_attributes attributes = {.axes = {0, (int32_t)t}};
    struct ls_shape part = x->shape, step = {.ndims = x->shape.ndims - 1, .dims = {LS_BATCH}};
    const uint32_t compute = graph->compute;

    part.dims[1] = 1;
    memcpy(&step.dims[1], &x->shape.dims[2], (step.ndims - 1) * sizeof(step.dims[0]));
    graph->compute = exact ? LS_COMPUTE_AS_INPUTS : compute;
    enum ls_status status = ls_graph_add(graph, LS_OP_SLICE, &attributes, &x, 1, &part, out);
    if (!status)
        status = ls_add_reshape(graph, *out, &step, out);
    graph->compute = compute;
    return status;
}

// `made` (B, ...) -> (B, 1, ...)
static enum ls_status as_step(struct ls_graph *graph, struct ls_tensor *made,
                              struct ls_tensor **out)
{
    struct ls_shape shape = {.ndims = made->shape.ndims + 1, .dims = {LS_BATCH, 1}};
    if (shape.ndims > LS_MAX_DIMS)
        return ls_graph_fail(graph, made, "with the steps there are too many dimensions");
    memcpy(&shape.dims[2], &made->shape.dims[1], (made->shape.ndims - 1) * sizeof(shape.dims[0]));
    return ls_add_reshape(graph, made, &shape, out);
}

static enum ls_status call_step(struct ls_graph *graph, const struct ls_layer_call *inner,
                                const struct steps *steps, int64_t t, struct ls_tensor **out)
{
    struct ls_tensor *step, *made[LS_LAYER_OUTPUTS] = {NULL};
    struct ls_layer_call call = *inner;
    enum ls_status status = take_step(graph, steps->x, steps->ids, t, &step);

    if (!status && steps->mask)
        status = take_step(graph, steps->mask, true, t, &step->mask);
    call.inputs = &step;
    if (!status)
        status = call.model ? call.model->call(call.model, step, call.inference, made)
                            : ls_layer_build(graph, &call, made);
    if (!status && made[1])
        status =
            ls_graph_fail(graph, steps->x, "layer: it has several outputs, but one is expected");
    return status ? status : as_step(graph, made[0], out);
}

// int32 ids in float32, of which steps can be taken: the remainders by more than there are.
static enum ls_status take_ids(struct ls_graph *graph, struct ls_tensor **x)
{
    static const float zero[3] = {0};
    const struct ls_shape row = {.ndims = 2, .dims = {1, 3}};
    const struct ls_op_attributes attributes = {.count = UINT32_MAX};
    struct ls_tensor *inputs[2] = {*x};
    const uint32_t compute = graph->compute;

    graph->compute = LS_COMPUTE_AS_INPUTS;
    enum ls_status status = ls_graph_constant_values(graph, "zero", &row, zero, &inputs[1]);
    if (!status)
        status = ls_graph_add(graph, LS_OP_LOOKUP, &attributes, inputs, 2, NULL, x);
    graph->compute = compute;
    return status;
}

static enum ls_status call_steps(struct ls_graph *graph, const struct ls_layer_call *inner,
                                 struct steps steps, struct ls_tensor **out)
{
    const int64_t count = steps.x->shape.dims[1];
    const bool reusing = graph->reusing;
    enum ls_status status = LS_OK;

    if (count > MOST_STEPS)
        return ls_graph_fail(graph, steps.x, "layer: %s takes at most %d steps",
                             inner->model ? "a model" : inner->kind->class_name, MOST_STEPS);
    if (steps.mask && (steps.mask->shape.ndims < 2 || steps.mask->shape.dims[1] != count))
        return ls_graph_fail(graph, steps.mask, "mask: expected a number for each step");
    if (steps.ids)
        status = take_ids(graph, &steps.x);
    const uint32_t reused = reusing ? graph->reused : 0; // else it is still that of a layer before
    struct ls_tensor **made = calloc((size_t)count, sizeof(struct ls_tensor *));
    if (!made)
        return LS_OUT_OF_MEMORY;
    for (int64_t t = 0; t < count && !status; t++) {
        graph->reusing = reusing || t > 0;
        graph->reused = reused;
        status = call_step(graph, inner, &steps, t, &made[t]);
    }
    graph->reusing = reusing;
    if (!status)
        status = ls_add_concatenation(graph, made, (uint32_t)count, 1, out);
    free(made);
    return status;
}

// x: (B, T, ...) -> (B, T, what the model makes of ...)
static enum ls_status build_model(struct ls_graph *graph, const struct ls_layer_call *call,
                                  struct ls_tensor **outputs)
{
    struct ls_tensor *input = ls_call_input(call);
    const struct ls_layer_call inner = {
        .model = call->model, .input_count = 1, .inference = call->inference};

    if (!input)
        return call->model->call(call->model, NULL, call->inference, outputs);
    if (input->shape.ndims < 3)
        return ls_graph_fail(graph, input, FEW_DIMENSIONS);
    struct ls_tensor *mask = ls_call_mask(call, 2);
    const struct steps steps = {.x = input, .mask = mask, .ids = input->dtype == LS_I32};
    const enum ls_status status = call_steps(graph, &inner, steps, outputs);
    if (!status)
        outputs[0]->mask = mask;
    return status;
}

// x: (B, T, ...) -> (B, T, what the layer makes of ...)
static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call);
    if (call->model)
        return build_model(graph, call, outputs);
    const struct ls_inner_layer layer =
        ls_config_inner(&c, "layer", json_object_get(call->config, "layer"));
    struct ls_layer_call inner = {.kind = find_kind(&c, layer.class_name),
                                  .config = layer.config,
                                  .input_count = 1,
                                  .inference = call->inference};
    if (!inner.kind)
        return c.status;
    struct ls_config own = {.graph = graph, .object = inner.config, .parent = "layer"};
    ls_config_check(&own, inner.kind->keys);
    if (c.status || own.status || !input)
        return c.status     ? c.status
               : own.status ? own.status
                            : inner.kind->build(graph, &inner, outputs);
    if (input->shape.ndims < 3)
        return ls_graph_fail(graph, input, FEW_DIMENSIONS);
    if (json_is_false(json_object_get(inner.config, "trainable")))
        ls_graph_freeze_layer(graph);

    const uint32_t first = graph->parameter_count;
    graph->part = layer.name;
    inner.inputs = call->inputs;
    struct ls_tensor *mask = ls_call_mask(call, 2);
    const struct steps steps = {.x = input, .mask = mask};
    const enum ls_status status = takes_all_steps(inner.kind, inner.config)
                                      ? inner.kind->build(graph, &inner, outputs)
                                      : call_steps(graph, &inner, steps, outputs);
    graph->part = NULL;
    if (!status && !outputs[0]->mask)
        outputs[0]->mask = mask;
    ls_add_regularizers(graph, inner.config, first);
    return status;
}

const struct ls_layer_kind ls_layer_time_distributed = {
    .class_name = "TimeDistributed",
    .summary = "another layer on each step of a sequence",
    .least_inputs = 1,
    .most_inputs = 2,
    .mask = LS_MASK_OWN,
    .keys = keys,
    .arguments = arguments,
    .build = build,
};
