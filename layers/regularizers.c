// SPDX-License-Identifier: Apache-2.0
// Regularizers l1, l2 and l1_l2: by name, or as an object in the forms of Keras 2 and 3.
#include "layers/config.h"

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
