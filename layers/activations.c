// SPDX-License-Identifier: Apache-2.0
// Activations: by name as an option of a layer, as a serialized object, and as an operation.
#include "layers/kinds.h"

#include "core/base/keras_names.h"

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

static const struct {
    const struct ls_layer_kind *kind;
    struct ls_layer_activation (*read)(struct ls_config *config);
} layers[] = {
    {&ls_layer_activation, ls_read_activation},
    {&ls_layer_relu, ls_read_relu},
    {&ls_layer_softmax, ls_read_softmax},
    {&ls_layer_leaky_relu, ls_read_leaky_relu},
    {&ls_layer_elu, ls_read_elu},
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
        return ls_graph_add(graph, LS_OP_FUNCTION, &mapping, &input, 1, NULL, out);
    if (activation->function != LS_LINEAR)
        return ls_graph_add(graph, LS_OP_ACTIVATION, &attributes, &input, 1, NULL, out);
    *out = input;
    return LS_OK;
}

enum ls_status ls_build_activation(struct ls_graph *graph, const struct ls_layer_call *call,
                                   struct ls_layer_activation (*read)(struct ls_config *config),
                                   struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call);
    const struct ls_layer_activation activation = read(&c);
    if (c.status || !input)
        return c.status;
    return ls_activation_add(graph, &activation, input, outputs);
}
