// SPDX-License-Identifier: Apache-2.0
// Conv2D: convolution of images with a kernel (rows, columns, channels / groups, filters), then the activation.
#include "layers/kinds.h"

static const char *const keys[] = {
    "filters",          "kernel_size",
    "strides",          "padding",
    "data_format",      "dilation_rate",
    "groups",           "activation",
    "use_bias",         "kernel_initializer",
    "bias_initializer", "kernel_regularizer",
    "bias_regularizer", "kernel_constraint",
    "bias_constraint",  "lora_rank",
    "lora_alpha",       NULL,
};
// Written as null where they are not used.
static const char *const unsupported[] = {"lora_rank", "lora_alpha", NULL};

struct options {
    int64_t filters;
    int32_t kernel[2];
    bool same, use_bias;
    struct ls_op_attributes attributes;
    struct ls_layer_activation activation;
    struct ls_initializer kernel_initializer, bias_initializer;
};

static enum ls_status read_options(const struct ls_graph *graph, const json_t *config,
                                   struct options *o)
{
    struct ls_config c = {.graph = graph, .object = config};
    int32_t *strides = o->attributes.strides, *dilation = o->attributes.dilation;

    o->filters = ls_config_integer(&c, "filters", 1, LS_CONFIG_LARGEST, LS_CONFIG_NONE);
    ls_config_pair(&c, "kernel_size", 0, o->kernel);
    ls_config_pair(&c, "strides", 1, strides);
    ls_config_pair(&c, "dilation_rate", 1, dilation);
    o->same = ls_config_padding_same(&c);
    ls_config_data_format(&c);
    o->attributes.groups = (int32_t)ls_config_integer(&c, "groups", 1, LS_CONFIG_LARGEST, 1);
    o->use_bias = ls_config_boolean(&c, "use_bias", true);
    o->activation = ls_config_activation(&c, "activation");
    o->kernel_initializer = ls_config_initializer(&c, "kernel_initializer", "glorot_uniform");
    o->bias_initializer = ls_config_initializer(&c, "bias_initializer", "zeros");
    for (const char *const *key = unsupported; *key; key++)
        ls_config_null(&c, *key);
    if ((strides[0] > 1 || strides[1] > 1) && (dilation[0] > 1 || dilation[1] > 1))
        ls_config_fail(&c, "strides", "must be 1 together with dilation_rate above 1, as in Keras");
    if (!c.status && o->filters % o->attributes.groups != 0)
        ls_config_fail(&c, "filters", "%lld cannot be split into %d groups", (long long)o->filters,
                       o->attributes.groups);
    return c.status;
}

// What an image must be, before the sizes of the variables are made from it.
static enum ls_status check_input(const struct ls_graph *graph, const struct ls_tensor *input,
                                  const struct options *o)
{
    const int64_t *dims = input->shape.dims;

    if (input->shape.ndims != 4)
        return ls_graph_fail(graph, input, "expected 4 dimensions: batch, rows, columns, channels");
    if (dims[3] % o->attributes.groups != 0)
        return ls_graph_fail(graph, input, "groups: %lld channels cannot be split into %d groups",
                             (long long)dims[3], o->attributes.groups);
    for (int axis = 0; axis < 2; axis++) {
        const int64_t extent = (int64_t)(o->kernel[axis] - 1) * o->attributes.dilation[axis] + 1;
        if (!o->same && dims[1 + axis] < extent)
            return ls_graph_fail(graph, input,
                                 "kernel_size: expected at least %lld %s with padding \"valid\"",
                                 (long long)extent, axis == 0 ? "rows" : "columns");
    }
    return LS_OK;
}

static enum ls_status add_variables(struct ls_graph *graph, const struct options *o,
                                    struct ls_tensor **arguments)
{
    const int64_t channels = arguments[0]->shape.dims[3] / o->attributes.groups;
    const struct ls_shape kernel = {.ndims = 4,
                                    .dims = {o->kernel[0], o->kernel[1], channels, o->filters}};
    const struct ls_shape bias = {.ndims = 1, .dims = {o->filters}};

    enum ls_status status =
        ls_graph_parameter(graph, "kernel", &kernel, &o->kernel_initializer, &arguments[1]);
    if (status || !o->use_bias)
        return status;
    return ls_graph_parameter(graph, "bias", &bias, &o->bias_initializer, &arguments[2]);
}

// x: (B, H, W, C) -> (B, OH, OW, filters)
static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_tensor *input = ls_call_input(call);
    struct options o = {0};
    enum ls_status status = read_options(graph, call->config, &o);
    if (status)
        return status;
    if (!input)
        return LS_OK;
    status = check_input(graph, input, &o);
    if (status)
        return status;

    struct ls_tensor *arguments[3] = {input}, *convolution;
    status = add_variables(graph, &o, arguments);
    if (status)
        return status;
    for (int axis = 0; o.same && axis < 2; axis++)
        ls_same_padding(input->shape.dims[1 + axis], o.kernel[axis], o.attributes.strides[axis],
                        o.attributes.dilation[axis], &o.attributes.padding[2 * axis],
                        &o.attributes.padding[2 * axis + 1]);
    status = ls_graph_add(graph, LS_OP_CONV2D, &o.attributes, arguments, o.use_bias ? 3 : 2, NULL,
                          &convolution);
    if (status)
        return status;
    return ls_activation_add(graph, &o.activation, convolution, outputs);
}

const struct ls_layer_kind ls_layer_conv2d = {
    .class_name = "Conv2D",
    .summary = "convolution of images",
    .keys = keys,
    .build = build,
};
