// SPDX-License-Identifier: Apache-2.0
// Activations: by name as an option of a layer, as a serialized object, as an operation, and as the layers
// Activation, ReLU, Softmax, LeakyReLU and ELU.
#include "layers/kinds.h"

#include "core/base/keras_names.h"

#include <float.h>
#include <string.h>

const char *const ls_activation_names[] = {
    "linear",   "relu",        "relu6",      "leaky_relu",   "elu",  "sigmoid",     "tanh",
    "softplus", "exponential", "softsign",   "softmax",      "selu", "gelu",        "silu",
    "swish",    "hard_silu",   "hard_swish", "hard_sigmoid", "mish", "log_sigmoid", NULL};

// In the order of the names, with the constants of Keras's functions.
static const struct ls_layer_activation functions[] = {
    {.function = LS_LINEAR},
    {.function = LS_RELU},
    {.function = LS_RELU6},
    {.function = LS_LEAKY_RELU, .alpha = 0.2f},
    {.function = LS_ELU, .alpha = 1.0f},
    {.function = LS_SIGMOID},
    {.function = LS_TANH},
    {.function = LS_SOFTPLUS},
    {.function = LS_EXPONENTIAL},
    {.function = LS_SOFTSIGN},
    {.softmax = true},
    {.function = LS_SELU},
    {.needs_input = true, .function = LS_GELU},
    {.needs_input = true, .function = LS_SILU},
    {.needs_input = true, .function = LS_SILU},
    {.needs_input = true, .function = LS_HARD_SILU},
    {.needs_input = true, .function = LS_HARD_SILU},
    {.function = LS_HARD_SIGMOID},
    {.needs_input = true, .function = LS_MISH},
    {.needs_input = true, .function = LS_LOG_SIGMOID},
};

// ---- What the layers say ----

// Activation: an element-wise function, or softmax, by name.
static struct ls_layer_activation read_activation(struct ls_config *config)
{
    if (!json_object_get(config->object, "activation"))
        ls_config_fail(config, "activation", "expected the name of an activation, got nothing");
    return ls_config_activation(config, "activation");
}

// ReLU: max(x, 0); with negative_slope a leaky one, with max_value 6 a bounded one.
static struct ls_layer_activation read_relu(struct ls_config *config)
{
    const bool bounded = json_object_get(config->object, "max_value") &&
                         !json_is_null(json_object_get(config->object, "max_value"));
    const double bound = bounded ? ls_config_number(config, "max_value", 0, FLT_MAX, 0) : 0;
    const double slope = ls_config_number(config, "negative_slope", 0, FLT_MAX, 0);
    const double threshold = ls_config_number(config, "threshold", 0, FLT_MAX, 0);

    if (threshold != 0)
        ls_config_fail(config, "threshold", "only 0 is supported, got %g", threshold);
    if (!config->status && bounded && bound != 6)
        ls_config_fail(config, "max_value", "only null and 6 are supported, got %g", bound);
    if (bounded && slope != 0)
        ls_config_fail(config, "negative_slope", "must be 0 together with max_value, got %g",
                       slope);
    if (bounded)
        return (struct ls_layer_activation){.function = LS_RELU6};
    if ((float)slope > 0)
        return (struct ls_layer_activation){.function = LS_LEAKY_RELU, .alpha = (float)slope};
    return (struct ls_layer_activation){.function = LS_RELU};
}

// Softmax over one dimension, which ls_layer_build makes the last one.
static struct ls_layer_activation read_softmax(struct ls_config *config)
{
    if (ls_config_axis_count(config) != 1)
        ls_config_fail(config, "axis", "softmax over several dimensions is not supported");
    return (struct ls_layer_activation){.softmax = true};
}

// LeakyReLU: x above 0, negative_slope times x below. Keras 2 calls the slope alpha.
static struct ls_layer_activation read_leaky_relu(struct ls_config *config)
{
    const double alpha = ls_config_number(config, "alpha", 0, FLT_MAX, 0.3);
    const double slope = ls_config_number(config, "negative_slope", 0, FLT_MAX, alpha);

    if (json_object_get(config->object, "alpha") &&
        json_object_get(config->object, "negative_slope"))
        ls_config_fail(config, "alpha", "is the old name of negative_slope; give only one of them");
    if ((float)slope > 0)
        return (struct ls_layer_activation){.function = LS_LEAKY_RELU, .alpha = (float)slope};
    return (struct ls_layer_activation){.function = LS_RELU};
}

// ELU: x above 0, alpha (exp(x) - 1) below.
static struct ls_layer_activation read_elu(struct ls_config *config)
{
    // The derivative is expressed through the output, which a negative alpha would make ambiguous.
    const double alpha = ls_config_number(config, "alpha", 0, FLT_MAX, 1);

    if ((float)alpha > 0)
        return (struct ls_layer_activation){.function = LS_ELU, .alpha = (float)alpha};
    return (struct ls_layer_activation){.function = LS_RELU};
}

// ---- As an option of another layer ----

static const struct {
    const struct ls_layer_kind *kind;
    struct ls_layer_activation (*read)(struct ls_config *config);
} layers[] = {
    {&ls_layer_activation, read_activation},
    {&ls_layer_relu, read_relu},
    {&ls_layer_softmax, read_softmax},
    {&ls_layer_leaky_relu, read_leaky_relu},
    {&ls_layer_elu, read_elu},
};

static void refuse_name(struct ls_config *config, const char *key, const char *name)
{
    char why[200];
    ls_config_fail(
        config, key, "'%.60s' %s", name,
        ls_keras_refusal(LS_KERAS_ACTIVATION, name, ls_activation_names, why, sizeof(why)));
}

static struct ls_layer_activation by_name(struct ls_config *config, const char *key,
                                          const char *name)
{
    for (size_t i = 0; ls_activation_names[i]; i++)
        if (strcmp(ls_activation_names[i], name) == 0)
            return functions[i];
    refuse_name(config, key, name);
    return functions[0];
}

// {"class_name": "function", "config": "relu"}, or a layer: {"class_name": "LeakyReLU", "config": {...}}.
static struct ls_layer_activation by_object(struct ls_config *config, const char *key,
                                            const json_t *object)
{
    const char *class_name = json_string_value(json_object_get(object, "class_name"));
    const json_t *inner = json_object_get(object, "config");
    char text[64];

    if (class_name && strcmp(class_name, "function") == 0 && json_is_string(inner) &&
        !ls_json_is_custom(object))
        return by_name(config, key, json_string_value(inner));
    for (size_t i = 0; class_name && i < sizeof(layers) / sizeof(layers[0]); i++) {
        if (strcmp(layers[i].kind->class_name, class_name) != 0 || !json_is_object(inner) ||
            ls_json_is_custom(object))
            continue;
        struct ls_config nested = {.graph = config->graph, .object = inner, .parent = key};
        ls_config_check(&nested, layers[i].kind->keys);
        const struct ls_layer_activation activation = layers[i].read(&nested);
        config->status = config->status ? config->status : nested.status;
        return activation;
    }
    if (class_name && !ls_json_is_custom(object))
        refuse_name(config, key, class_name);
    else
        ls_config_fail(config, key, "expected an activation of Keras, got %s",
                       ls_json_text(object, text, sizeof(text)));
    return functions[0];
}

struct ls_layer_activation ls_config_activation(struct ls_config *config, const char *key)
{
    const json_t *value = json_object_get(config->object, key);
    char text[64];

    if (!value || json_is_null(value))
        return functions[0];
    if (json_is_string(value))
        return by_name(config, key, json_string_value(value));
    if (json_is_object(value))
        return by_object(config, key, value);
    ls_config_fail(config, key, "expected the name of an activation, got %s",
                   ls_json_text(value, text, sizeof(text)));
    return functions[0];
}

enum ls_status ls_activation_add(struct ls_graph *graph,
                                 const struct ls_layer_activation *activation,
                                 struct ls_tensor *input, struct ls_tensor **out)
{
    const struct ls_op_attributes attributes = {.activation = activation->function,
                                                .activation_alpha = activation->alpha};
    const struct ls_op_attributes mapping = {.function = activation->function};

    if (activation->softmax)
        return ls_graph_add(graph, LS_OP_SOFTMAX, NULL, &input, 1, NULL, out);
    if (activation->needs_input)
        return ls_add_elementwise(graph, LS_OP_FUNCTION, &mapping, &input, 1, out);
    if (activation->function != LS_LINEAR)
        return ls_add_elementwise(graph, LS_OP_ACTIVATION, &attributes, &input, 1, out);
    *out = input;
    return LS_OK;
}

// ---- The layers ----

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call);
    size_t i = 0;
    while (layers[i].kind != call->kind)
        i++;
    const struct ls_layer_activation activation = layers[i].read(&c);
    if (c.status || !input)
        return c.status;
    return ls_activation_add(graph, &activation, input, outputs);
}

static const char *const activation_keys[] = {"activation", NULL};

const struct ls_layer_kind ls_layer_activation = {
    .class_name = "Activation",
    .summary = "an activation function by name",
    .mask = LS_MASK_PASSES,
    .keys = activation_keys,
    .build = build,
};

static const char *const relu_keys[] = {"max_value", "negative_slope", "threshold", NULL};

const struct ls_layer_kind ls_layer_relu = {
    .class_name = "ReLU",
    .summary = "rectified linear unit: max(x, 0)",
    .mask = LS_MASK_PASSES,
    .keys = relu_keys,
    .build = build,
};

static const char *const softmax_keys[] = {"axis", NULL};

const struct ls_layer_kind ls_layer_softmax = {
    .class_name = "Softmax",
    .summary = "probabilities over one dimension",
    .mask = LS_MASK_REFUSED,
    .moves_axes = true,
    .keys = softmax_keys,
    .build = build,
};

static const char *const leaky_relu_keys[] = {"negative_slope", "alpha", NULL};

const struct ls_layer_kind ls_layer_leaky_relu = {
    .class_name = "LeakyReLU",
    .summary = "x above 0, a fraction of it below",
    .mask = LS_MASK_PASSES,
    .keys = leaky_relu_keys,
    .build = build,
};

static const char *const elu_keys[] = {"alpha", NULL};

const struct ls_layer_kind ls_layer_elu = {
    .class_name = "ELU",
    .summary = "x above 0, alpha (exp(x) - 1) below",
    .mask = LS_MASK_PASSES,
    .keys = elu_keys,
    .build = build,
};
