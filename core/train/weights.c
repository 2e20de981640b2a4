// SPDX-License-Identifier: Apache-2.0
// Weights in and out of files.
#include "core/train/weights.h"

#include "core/base/log.h"
#include "core/formats/safetensors.h"
#include "core/report/report.h"
#include "core/train/session.h"

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

// Keras 2 writes "dense/kernel:0".
static bool is_called(const char *saved, const char *prefix, size_t prefix_length, const char *name)
{
    if (strncmp(saved, prefix, prefix_length) != 0)
        return false;
    saved += prefix_length;
    const size_t length = strlen(name);
    return strncmp(saved, name, length) == 0 &&
           (saved[length] == '\0' || strcmp(saved + length, ":0") == 0);
}

static const struct ls_saved_tensor *find(const struct ls_safetensors *file, const char *prefix,
                                          size_t prefix_length, const char *name)
{
    for (size_t i = 0; i < ls_safetensors_count(file); i++)
        if (is_called(ls_safetensors_get(file, i)->name, prefix, prefix_length, name))
            return ls_safetensors_get(file, i);
    return NULL;
}

// Files do not have constants.
static uint32_t count_saved(const struct ls_graph *graph)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        count += !graph->parameters[i]->constant;
    return count;
}

static const struct ls_tensor *first_saved(const struct ls_graph *graph)
{
    uint32_t i = 0;
    while (graph->parameters[i]->constant)
        i++;
    return graph->parameters[i];
}

static bool has_all(const struct ls_graph *graph, const struct ls_safetensors *file,
                    const char *prefix, size_t prefix_length)
{
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        if (!graph->parameters[i]->constant &&
            !find(file, prefix, prefix_length, graph->parameters[i]->name))
            return false;
    return true;
}

// Keras may put a model's name before all names: "sequential/dense/kernel". What stands before the
// name of the first parameter, where it stands before all of them; nothing where no prefix does.
// LS_BAD_INPUT, logged, where the file has the whole model twice.
static enum ls_status find_prefix(const struct ls_model *model, const char *path,
                                  const struct ls_safetensors *file, const char **prefix,
                                  size_t *length)
{
    const struct ls_graph *graph = model->graph;
    bool found = has_all(graph, file, "", 0);
    *prefix = "";
    *length = 0;
    if (count_saved(graph) == 0)
        return LS_OK;
    for (size_t i = 0; i < ls_safetensors_count(file); i++) {
        const char *saved = ls_safetensors_get(file, i)->name;
        for (const char *slash = strchr(saved, '/'); slash; slash = strchr(slash + 1, '/')) {
            const size_t candidate = (size_t)(slash + 1 - saved);
            if (!is_called(saved, saved, candidate, first_saved(graph)->name) ||
                !has_all(graph, file, saved, candidate))
                continue;
            if (found) {
                ls_error("weights",
                         "'%s' has the tensors of model '%s' twice, under '%.*s' and '%.*s'; "
                         "remove one of them",
                         path, model->source, (int)*length, *prefix, (int)candidate, saved);
                return LS_BAD_INPUT;
            }
            found = true;
            *prefix = saved;
            *length = candidate;
        }
    }
    return LS_OK;
}

#define NAMED_EXTRA 3 // tensors that a warning names

// A checkpoint may hold more than the model: an optimizer's state, or layers that were cut off.
static void name_extra(const struct ls_model *model, const char *path,
                       const struct ls_safetensors *file, const struct ls_saved_tensor **used)
{
    const size_t extra = ls_safetensors_count(file) - count_saved(model->graph);
    char names[NAMED_EXTRA * 80] = "";
    size_t length = 0, named = 0;
    for (size_t i = 0; named < extra && named < NAMED_EXTRA; i++) {
        const struct ls_saved_tensor *saved = ls_safetensors_get(file, i);
        uint32_t k = 0;
        while (k < model->graph->parameter_count && used[k] != saved)
            k++;
        if (k < model->graph->parameter_count)
            continue;
        length += (size_t)snprintf(names + length, sizeof(names) - length, "%s'%.70s'",
                                   named++ ? ", " : "", saved->name);
    }
    if (extra)
        ls_warn("weights", "'%s': model '%s' does not have %zu of the file's tensors: %s%s", path,
                model->source, extra, names, extra > named ? ", ..." : "");
}

// The tensors of `file` in the order of the model's parameters.
static enum ls_status match(const struct ls_model *model, const char *path,
                            const struct ls_safetensors *file, const struct ls_saved_tensor **out)
{
    const struct ls_graph *graph = model->graph;
    const char *prefix;
    size_t length;
    enum ls_status status = find_prefix(model, path, file, &prefix, &length);
    if (status)
        return status;
    for (uint32_t i = 0; i < graph->parameter_count; i++) {
        const struct ls_tensor *parameter = graph->parameters[i];
        const struct ls_saved_tensor *saved = find(file, prefix, length, parameter->name);
        char expected[96], found[96];
        if (parameter->constant)
            continue;
        if (!saved) {
            const struct ls_saved_tensor *first = ls_safetensors_get(file, 0);
            ls_error("weights",
                     "'%s' has no tensor '%s', which model '%s' needs%s%s%s; "
                     "docs/models.md has the names",
                     path, parameter->name, model->source, first ? "; its first is '" : "",
                     first ? first->name : "", first ? "'" : "");
            return LS_BAD_INPUT;
        }
        if (!same_shape(&parameter->shape, saved)) {
            struct ls_shape shape = {.ndims =
                                         saved->ndims <= LS_MAX_DIMS ? saved->ndims : LS_MAX_DIMS};
            memcpy(shape.dims, saved->dims, shape.ndims * sizeof(shape.dims[0]));
            ls_error("weights", "'%s': tensor '%s' is %s, but model '%s' expects %s", path,
                     saved->name, ls_shape_text(&shape, found, sizeof(found)), model->source,
                     ls_shape_text(&parameter->shape, expected, sizeof(expected)));
            return LS_BAD_INPUT;
        }
        out[i] = saved;
    }
    name_extra(model, path, file, out);
    return LS_OK;
}

enum ls_status ls_read_weights(struct ls_model *model, const char *path)
{
    const uint32_t count = model->graph->parameter_count;
    struct ls_safetensors *file = NULL;
    const struct ls_saved_tensor **saved = calloc((size_t)count + 1, sizeof(*saved));
    enum ls_status status = saved ? ls_safetensors_open(path, &file) : LS_OUT_OF_MEMORY;
    if (!status)
        status = match(model, path, file, saved);
    if (!status)
        status = ls_model_take_weights(model); // the optimizer's state stays
    if (!status)
        status = ls_session_close(model);
    if (!status)
        status = ls_model_need_weights(model);
    for (uint32_t i = 0; !status && i < count; i++)
        if (saved[i])
            memcpy(model->weights[i], saved[i]->data,
                   (size_t)ls_shape_elements(&model->graph->parameters[i]->shape, 1) *
                       sizeof(float));
    ls_safetensors_close(file);
    free(saved);
    return status;
}

enum ls_status ls_write_weights(struct ls_model *model, const char *path)
{
    enum ls_status status = ls_report_check_path("weights", path);
    if (!status)
        status = ls_model_take_weights(model);
    if (!status)
        status = ls_model_need_weights(model);
    if (status)
        return status;
    uint32_t count = 0;
    struct ls_saved_tensor *tensors =
        calloc((size_t)model->graph->parameter_count + 1, sizeof(*tensors));
    if (!tensors)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < model->graph->parameter_count; i++) {
        const struct ls_tensor *parameter = model->graph->parameters[i];
        struct ls_saved_tensor *tensor = &tensors[count];
        if (parameter->constant)
            continue;
        count++;
        tensor->name = parameter->name;
        tensor->ndims = parameter->shape.ndims;
        memcpy(tensor->dims, parameter->shape.dims, sizeof(parameter->shape.dims));
        tensor->data = model->weights[i];
    }
    status = ls_safetensors_write(path, tensors, count);
    free(tensors);
    return status;
}
