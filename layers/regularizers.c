// SPDX-License-Identifier: Apache-2.0
// Regularizers l1, l2 and l1_l2: by name, or as an object in the forms of Keras 2 and 3; of variables, and
// of what layers make, which ActivityRegularization does and nothing else.
#include "layers/kinds.h"

#include <stdio.h>
#include <string.h>

static bool read_factor(const json_t *config, const char *key, double missing, float *out)
{
    const json_t *value = json_object_get(config, key);
    const double factor = value ? json_number_value(value) : missing;

    *out = (float)factor;
    return (!value || json_is_number(value)) && factor >= 0 && factor <= 1e30;
}

bool ls_json_regularizer(const json_t *value, float *l1, float *l2)
{
    static const struct {
        const char *class_name, *name;
        double l1, l2; // where they are not given
    } known[] = {{"L1", "l1", 0.01, 0},
                 {"L2", "l2", 0, 0.01},
                 {"L1L2", "l1l2", 0, 0},
                 {"L1L2", "l1_l2", 0, 0}}; // Keras 2
    const json_t *config = json_object_get(value, "config");
    const char *name =
        json_string_value(json_is_object(value) ? json_object_get(value, "class_name") : value);
    *l1 = *l2 = 0;
    if (!name || (json_is_object(value) && ls_json_is_custom(value)))
        return false;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(name, known[i].class_name) != 0 && strcmp(name, known[i].name) != 0)
            continue;
        return (strcmp(known[i].name, "l2") == 0 || read_factor(config, "l1", known[i].l1, l1)) &&
               (strcmp(known[i].name, "l1") == 0 || read_factor(config, "l2", known[i].l2, l2));
    }
    return false;
}

// The regularizer of variable "layer/query/kernel" is "kernel_regularizer", of "pointwise_kernel"
// it is "pointwise_regularizer", and that of a depthwise kernel, whose name is just "kernel", is
// "depthwise_regularizer".
static const json_t *regularizer_of(const json_t *config, const char *parameter)
{
    static const char *const suffixes[] = {"", "_kernel"};
    const char *name = strrchr(parameter, '/');
    char key[128];

    name = name ? name + 1 : parameter;
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        const size_t length = strlen(name), cut = strlen(suffixes[i]);
        if (length <= cut || strcmp(name + length - cut, suffixes[i]) != 0)
            continue;
        snprintf(key, sizeof(key), "%.*s_regularizer", (int)(length - cut), name);
        const json_t *value = json_object_get(config, key);
        if (value)
            return value;
    }
    return strcmp(name, "kernel") == 0 ? json_object_get(config, "depthwise_regularizer") : NULL;
}

void ls_add_regularizers(struct ls_graph *graph, const json_t *config, uint32_t first)
{
    for (uint32_t i = first; i < graph->parameter_count; i++) {
        struct ls_tensor *parameter = graph->parameters[i];
        const json_t *value = regularizer_of(config, parameter->name);
        float l1, l2;
        if (value && ls_json_regularizer(value, &l1, &l2)) {
            parameter->l1 = l1;
            parameter->l2 = l2;
        }
    }
}

// ---- Activities ----

// As Keras 3: the mean over the examples of what all of its elements add. It is only called several times, on other
// tensors, or adds up what several layers ask for.
static enum ls_status add_activity(const struct ls_graph *graph, struct ls_tensor *output, float l1,
                                   float l2)
{
    if (output->dtype != LS_F32)
        return ls_graph_fail(graph, output,
                             "activity_regularizer: only of float32; set the layer's dtype to "
                             "\"float32\"");
    output->l1 += l1;
    output->l2 += l2;
    return LS_OK;
}

enum ls_status ls_add_activity_regularizer(const struct ls_graph *graph, const json_t *config,
                                           struct ls_tensor *const outputs[LS_LAYER_OUTPUTS])
{
    const json_t *value = json_object_get(config, "activity_regularizer");
    enum ls_status status = LS_OK;
    float l1, l2;

    if (!value || !ls_json_regularizer(value, &l1, &l2))
        return LS_OK;
    for (uint32_t i = 0; i < LS_LAYER_OUTPUTS && outputs[i] && !status; i++)
        status = add_activity(graph, outputs[i], l1, l2);
    return status;
}

static const char *const keys[] = {"l1", "l2", NULL};

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const double l1 = ls_config_number(&c, "l1", 0, 1e30, 0),
                 l2 = ls_config_number(&c, "l2", 0, 1e30, 0);

    if (c.status || !call->inputs)
        return c.status;
    outputs[0] = call->inputs[0];
    return add_activity(graph, outputs[0], (float)l1, (float)l2);
}

const struct ls_layer_kind ls_layer_activity_regularization = {
    .class_name = "ActivityRegularization",
    .summary = "adds a penalty of its input to the loss",
    .mask = LS_MASK_PASSES,
    .keys = keys,
    .build = build,
};
