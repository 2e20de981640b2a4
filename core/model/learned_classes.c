// SPDX-License-Identifier: Apache-2.0
// The classes that a model has learnt: from the data of its first training, or from the file with
// its weights. Data that it meets afterwards gets their numbers.
#include "core/model/learned_classes.h"

#include "core/base/log.h"

#include <stdio.h>

#define SHOWN 320 // bytes of names in a message

static const struct ls_field *named_target(const struct ls_data *data)
{
    const struct ls_field *target =
        ls_field_find(data->info.fields, data->info.field_count, LS_FIELD_TARGET, 0);
    return target && target->by_name ? target : NULL;
}

static bool has_named_input(const struct ls_data *data)
{
    const struct ls_field *input;
    for (uint32_t i = 0;
         (input = ls_field_find(data->info.fields, data->info.field_count, LS_FIELD_INPUT, i)); i++)
        if (input->by_name)
            return true;
    return false;
}

// Labels would be addresses outside of the loss.
static enum ls_status check_units(const struct ls_model *model)
{
    const struct ls_tensor *label = model->graph->label_of[0];
    const struct ls_shape *output = &model->graph->outputs[0]->shape;
    const int64_t units = output->dims[output->ndims - 1];
    if (!label || label->dtype != LS_I32 || model->loss.list[0].composed ||
        model->class_names->count <= (uint64_t)units)
        return LS_OK;
    ls_error("data",
             "model '%s' has learnt %u classes, as its weights say, but its last layer has %lld "
             "units",
             model->source, model->class_names->count, (long long)units);
    return LS_BAD_INPUT;
}

// Once for what has been learnt: its numbers may be those of the data, or may not. They are not where a class is
// missing in the data.
static enum ls_status say_nameless(struct ls_model *model, const struct ls_data *data,
                                   const struct ls_dataset *dataset)
{
    const struct ls_field *target = ls_dataset_named_target(dataset);
    const struct ls_shape *output = &model->graph->outputs[0]->shape;
    const int64_t units = output->dims[output->ndims - 1];
    struct ls_class_names *names = NULL;
    char list[SHOWN];
    if (!model->nameless || !target)
        return LS_OK;
    const enum ls_status status =
        ls_class_names_copy(target->class_names, target->class_count, &names);
    if (!status)
        (target->class_count < (units > 1 ? units : 2) ? ls_warn : ls_info)(
            "data",
            "the weights of model '%s' do not say which class has which number; those of '%s' are "
            "numbered from 0 in this order: %s",
            model->source, data->text, ls_class_names_list(names, list, sizeof(list)));
    model->nameless = false;
    ls_class_names_destroy(names);
    return status;
}

enum ls_status ls_model_wait_data(struct ls_model *model, struct ls_data *data, bool labels,
                                  const struct ls_dataset **out)
{
    if (!named_target(data) || !(labels || has_named_input(data)))
        return ls_data_wait(data, out);
    if (!model->class_names) {
        const enum ls_status status = ls_data_wait(data, out);
        return status ? status : say_nameless(model, data, *out);
    }
    const enum ls_status status = labels ? check_units(model) : LS_OK;
    return status ? status : ls_data_wait_numbered(data, model->class_names, model->source, out);
}

enum ls_status ls_model_learn_classes(struct ls_model *model, struct ls_data *data)
{
    const struct ls_dataset *dataset = NULL;
    struct ls_class_names *names = NULL;
    if (model->class_names)
        return LS_OK;
    if (!named_target(data)) {
        ls_model_learn_numbers(model);
        return LS_OK;
    }
    enum ls_status status = ls_data_wait(data, &dataset);
    const struct ls_field *target = status ? NULL : ls_dataset_named_target(dataset);
    if (target)
        status = ls_class_names_copy(target->class_names, target->class_count, &names);
    if (!status) {
        model->nameless = false; // whatever its weights had learnt, now it learns these
        ls_model_set_classes(model, names);
    }
    return status;
}

void ls_model_learn_numbers(struct ls_model *model)
{
    model->nameless = model->nameless || (!model->class_names && model->steps_done == 0);
}

void ls_model_set_classes(struct ls_model *model, struct ls_class_names *names)
{
    ls_class_names_destroy(model->class_names);
    model->class_names = names;
}

enum ls_status ls_class_names_read(const char *path, const struct ls_safetensors *file,
                                   struct ls_class_names **out)
{
    const char *text = ls_safetensors_text(file, LS_CLASS_NAMES);
    *out = NULL;
    const enum ls_status status = text ? ls_class_names_parse(text, out) : LS_OK;
    if (status == LS_BAD_INPUT)
        ls_error("weights",
                 "'%s': '" LS_CLASS_NAMES "' of its metadata is no list of different names; the "
                 "file is damaged",
                 path);
    return status;
}
