// SPDX-License-Identifier: Apache-2.0
// Changes the first and the last layer of a built-in model.
#include "core/model/built_in.h"

#include <stdio.h>
#include <string.h>

#define CLASSES_MOST 65536

static bool is_class(const json_t *layer, const char *name)
{
    const char *class_name = json_string_value(json_object_get(layer, "class_name"));
    return class_name && strcmp(class_name, name) == 0;
}

static uint64_t elements_of(const json_t *batch_shape)
{
    uint64_t elements = 1;
    for (size_t i = 1; i < json_array_size(batch_shape); i++)
        elements *= (uint64_t)json_integer_value(json_array_get(batch_shape, i));
    return elements;
}

// Models that do not flatten their input take images, of which grey ones may have no channels.
static void take_shape(const json_t *layers, const struct ls_field *field)
{
    json_t *first = json_array_get(layers, 0);
    json_t *config = json_object_get(first, "config");
    const bool flattens = is_class(json_array_get(layers, 1), "Flatten");
    if (!is_class(first, "InputLayer") || (!flattens && field->ndims != 2 && field->ndims != 3) ||
        elements_of(json_object_get(config, "batch_shape")) == ls_field_elements(field))
        return;
    json_t *shape = json_array();
    json_array_append_new(shape, json_null());
    for (uint32_t i = 0; i < field->ndims; i++)
        json_array_append_new(shape, json_integer(field->dims[i]));
    if (!flattens && field->ndims == 2)
        json_array_append_new(shape, json_integer(1));
    json_object_set_new(config, "batch_shape", shape);
}

static int64_t outputs_of(const json_t *layer, const struct ls_safetensors *weights)
{
    char name[128];
    snprintf(name, sizeof(name), "%s/kernel",
             json_string_value(json_object_get(json_object_get(layer, "config"), "name")));
    const struct ls_saved_tensor *kernel = weights ? ls_safetensors_find(weights, name) : NULL;
    return kernel && kernel->ndims == 2 ? kernel->dims[1] : 0;
}

// What the dataset says, or counted: whole numbers that are no classes have few examples for each of them, and keep
// the model's own outputs, of which ls_model_check_data says that they are too few. A model with one output is for
// numbers: it keeps it, whatever the labels are.
static int64_t classes_of(const struct ls_data *data, int64_t units)
{
    const struct ls_field *target =
        ls_field_find(data->info.fields, data->info.field_count, LS_FIELD_TARGET, 0);
    if (!target)
        return units;
    if (!target->class_count)
        return (int64_t)ls_field_elements(target);
    const bool plausible = target->class_count > 1 && target->class_count <= CLASSES_MOST &&
                           (!target->counted_in || target->class_count <= target->counted_in ||
                            target->class_count <= units);
    return units > 1 && plausible ? target->class_count : units;
}

void ls_built_in_take(json_t *model, const struct ls_data *data,
                      const struct ls_safetensors *weights)
{
    const json_t *layers = json_object_get(json_object_get(model, "config"), "layers");
    json_t *last = json_array_get(layers, json_array_size(layers) - 1);
    json_t *config = json_object_get(last, "config");
    const struct ls_field *field =
        data ? ls_field_find(data->info.fields, data->info.field_count, LS_FIELD_INPUT, 0) : NULL;
    if (!is_class(last, "Dense"))
        return;
    if (field)
        take_shape(layers, field);
    int64_t units = outputs_of(last, weights);
    if (!units && data)
        units = classes_of(data, json_integer_value(json_object_get(config, "units")));
    if (units > 0)
        json_object_set_new(config, "units", json_integer(units));
}
