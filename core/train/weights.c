// SPDX-License-Identifier: Apache-2.0
// Weights in and out of files.
#include "core/base/log.h"
#include "core/formats/safetensors.h"
#include "core/report/report.h"
#include "core/train/model.h"

#include <stdlib.h>
#include <string.h>

static bool same_shape(const struct ls_shape *shape, const struct ls_saved_tensor *saved)
{
    if (shape->ndims != saved->ndims)
        return false;
    for (uint32_t i = 0; i < shape->ndims; i++)
        if (shape->dims[i] != saved->dims[i])
            return false;
    return true;
}

static enum ls_status check(const struct ls_model *model, const char *path,
                            const struct ls_safetensors *file)
{
    const struct ls_graph *graph = model->graph;
    for (uint32_t i = 0; i < graph->parameter_count; i++) {
        const struct ls_tensor *parameter = graph->parameters[i];
        const struct ls_saved_tensor *saved = ls_safetensors_find(file, parameter->name);
        char wanted[96], found[96];
        if (!saved) {
            ls_error("weights", "'%s' has no tensor '%s', which model '%s' needs", path,
                     parameter->name, model->source);
            return LS_BAD_INPUT;
        }
        if (!same_shape(&parameter->shape, saved)) {
            struct ls_shape shape = {.ndims =
                                         saved->ndims <= LS_MAX_DIMS ? saved->ndims : LS_MAX_DIMS};
            memcpy(shape.dims, saved->dims, shape.ndims * sizeof(shape.dims[0]));
            ls_error("weights", "'%s': tensor '%s' is %s, but model '%s' wants %s", path,
                     parameter->name, ls_shape_text(&shape, found, sizeof(found)), model->source,
                     ls_shape_text(&parameter->shape, wanted, sizeof(wanted)));
            return LS_BAD_INPUT;
        }
    }
    if (ls_safetensors_count(file) > graph->parameter_count) {
        ls_error("weights",
                 "'%s' has %zu tensors, but model '%s' has only %u; is it of another model?", path,
                 ls_safetensors_count(file), model->source, graph->parameter_count);
        return LS_BAD_INPUT;
    }
    return LS_OK;
}

enum ls_status ls_load_weights(struct ls_model *model, const char *path)
{
    struct ls_safetensors *file = NULL;
    enum ls_status status = ls_safetensors_open(path, &file);
    if (!status)
        status = check(model, path, file);
    if (!status)
        status = ls_model_need_weights(model);
    for (uint32_t i = 0; !status && i < model->graph->parameter_count; i++) {
        const struct ls_tensor *parameter = model->graph->parameters[i];
        const size_t bytes = (size_t)ls_shape_elements(&parameter->shape, 1) * sizeof(float);
        memcpy(model->weights[i], ls_safetensors_find(file, parameter->name)->data, bytes);
    }
    ls_safetensors_close(file);
    return status;
}

enum ls_status ls_save_weights(struct ls_model *model, const char *path)
{
    enum ls_status status = ls_report_check_path("weights", path);
    if (!status)
        status = ls_model_need_weights(model);
    if (status)
        return status;
    const uint32_t count = model->graph->parameter_count;
    struct ls_saved_tensor *tensors = calloc((size_t)count + 1, sizeof(*tensors));
    if (!tensors)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        const struct ls_tensor *parameter = model->graph->parameters[i];
        tensors[i].name = parameter->name;
        tensors[i].ndims = parameter->shape.ndims;
        memcpy(tensors[i].dims, parameter->shape.dims, sizeof(parameter->shape.dims));
        tensors[i].data = model->weights[i];
    }
    status = ls_safetensors_write(path, tensors, count);
    free(tensors);
    return status;
}
