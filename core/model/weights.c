// SPDX-License-Identifier: Apache-2.0
// Finds the parameters of a model in a file, and takes their values.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // qsort_r
#endif
#include "core/model/weights.h"

#include "core/base/log.h"
#include "core/formats/keras_file.h"
#include "core/model/learned_classes.h"
#include "core/model/keras_match.h"
#include "core/model/renaming.h"

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

// A file, and its tensors in the order of their names: a checkpoint may have many.
struct names {
    const struct ls_safetensors *file;
    size_t *sorted;
};

static int compare_names(const void *a, const void *b, void *file)
{
    return strcmp(ls_safetensors_get(file, *(const size_t *)a)->name,
                  ls_safetensors_get(file, *(const size_t *)b)->name);
}

static enum ls_status sort_names(const struct ls_safetensors *file, struct names *out)
{
    const size_t count = ls_safetensors_count(file);
    *out = (struct names){file, calloc(count + 1, sizeof(*out->sorted))};
    if (!out->sorted)
        return LS_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++)
        out->sorted[i] = i;
    qsort_r(out->sorted, count, sizeof(*out->sorted), compare_names, (void *)(uintptr_t)file);
    return LS_OK;
}

// As strcmp of `saved` and the three in a row.
static int compare(const char *saved, const char *prefix, size_t prefix_length, const char *name,
                   const char *suffix)
{
    const size_t length = strlen(name);
    int order = strncmp(saved, prefix, prefix_length);
    if (!order)
        order = strncmp(saved + prefix_length, name, length);
    return order ? order : strcmp(saved + prefix_length + length, suffix);
}

static size_t search(const struct names *names, const char *prefix, size_t prefix_length,
                     const char *name, const char *suffix)
{
    size_t low = 0, high = ls_safetensors_count(names->file);
    while (low < high) {
        const size_t middle = low + (high - low) / 2, index = names->sorted[middle];
        const int order = compare(ls_safetensors_get(names->file, index)->name, prefix,
                                  prefix_length, name, suffix);
        if (order == 0)
            return index;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return LS_NO_TENSOR;
}

// Keras 2 writes "dense/kernel:0".
static size_t find(const struct names *names, const char *prefix, size_t prefix_length,
                   const char *name)
{
    const size_t plain = search(names, prefix, prefix_length, name, "");
    return plain != LS_NO_TENSOR ? plain : search(names, prefix, prefix_length, name, ":0");
}

// Files do not have constants.
static const struct ls_tensor *first_saved(const struct ls_graph *graph)
{
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        if (!graph->parameters[i]->constant)
            return graph->parameters[i];
    return NULL;
}

static bool has_all(const struct ls_graph *graph, const struct names *names, const char *prefix,
                    size_t prefix_length)
{
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        if (!graph->parameters[i]->constant &&
            find(names, prefix, prefix_length, graph->parameters[i]->name) == LS_NO_TENSOR)
            return false;
    return true;
}

// Keras may put a model's name before all names: "sequential/dense/kernel". What stands before the
// name of the first parameter, where it stands before all of them; nothing where no prefix does.
// LS_BAD_INPUT, logged, where the file has the whole model twice.
static enum ls_status find_prefix(const struct ls_model *model, const char *path,
                                  const struct names *names, const char **prefix, size_t *length)
{
    const struct ls_safetensors *file = names->file;
    const struct ls_graph *graph = model->graph;
    const struct ls_tensor *first = first_saved(graph);
    bool found = has_all(graph, names, "", 0);
    *prefix = "";
    *length = 0;
    if (!first)
        return LS_OK;
    for (size_t i = 0; i < ls_safetensors_count(file); i++) {
        const char *saved = ls_safetensors_get(file, i)->name;
        for (const char *slash = strchr(saved, '/'); slash; slash = strchr(slash + 1, '/')) {
            const size_t candidate = (size_t)(slash + 1 - saved);
            const char *rest = saved + candidate;
            if ((compare(rest, "", 0, first->name, "") != 0 &&
                 compare(rest, "", 0, first->name, ":0") != 0) ||
                !has_all(graph, names, saved, candidate))
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

// safetensors: by the names of the parameters.
static enum ls_status match_names(const struct ls_model *model, const char *path,
                                  const struct ls_safetensors *file, size_t *out)
{
    const struct ls_graph *graph = model->graph;
    struct names names;
    struct ls_renaming *renaming = NULL;
    const char *prefix;
    char text[512];
    size_t length;
    enum ls_status status = sort_names(file, &names);
    if (!status)
        status = find_prefix(model, path, &names, &prefix, &length);
    if (!status && !has_all(graph, &names, prefix, length))
        status = ls_renaming_create(model, path, file, &renaming);
    for (uint32_t i = 0; i < graph->parameter_count && !status; i++) {
        const char *name =
            ls_renaming_apply(renaming, graph->parameters[i]->name, text, sizeof(text));
        out[i] = graph->parameters[i]->constant ? LS_NO_TENSOR : find(&names, prefix, length, name);
        if (out[i] != LS_NO_TENSOR || graph->parameters[i]->constant)
            continue;
        const struct ls_saved_tensor *first = ls_safetensors_get(file, 0);
        ls_error("weights",
                 "'%s' has no tensor '%s', which model '%s' needs%s%s%s; docs/weights.md has the "
                 "names",
                 path, name, model->source, first ? "; its first is '" : "",
                 first ? first->name : "", first ? "'" : "");
        status = LS_BAD_INPUT;
    }
    ls_renaming_destroy(renaming);
    free(names.sorted);
    return status;
}

// ---- What was found ----

#define NAMED_EXTRA 3 // tensors that a warning names

// A checkpoint may hold more than the model: layers that were cut off, or what a framework keeps.
static void name_extra(const struct ls_model *model, const char *path,
                       const struct ls_safetensors *file, const bool *known)
{
    char names[NAMED_EXTRA * 80] = "";
    size_t length = 0, extra = 0;
    for (size_t i = 0; i < ls_safetensors_count(file); i++) {
        if (known[i])
            continue;
        if (extra++ < NAMED_EXTRA)
            length += (size_t)snprintf(names + length, sizeof(names) - length, "%s'%.70s'",
                                       extra > 1 ? ", " : "", ls_safetensors_get(file, i)->name);
    }
    if (extra)
        ls_warn("weights", "'%s': model '%s' does not have %zu of the file's tensors: %s%s", path,
                model->source, extra, names, extra > NAMED_EXTRA ? ", ..." : "");
}

// Only a fit says what that means.
static enum ls_status note_skipped(struct ls_model *model, const char *path,
                                   const struct ls_safetensors *file, bool keras)
{
    const char *skipped = keras ? ls_safetensors_text(file, LS_KERAS_SKIPPED) : NULL;
    free(model->skipped);
    model->skipped = NULL;
    if (!skipped || strcmp(skipped, "0") == 0)
        return LS_OK;
    const size_t bytes = strlen(path) + strlen(skipped) + 96;
    model->skipped = malloc(bytes);
    if (!model->skipped)
        return LS_OUT_OF_MEMORY;
    snprintf(model->skipped, bytes,
             "'%s': the state of its optimizer (%s tensors) is not read; training begins with a "
             "new one",
             path, skipped);
    return LS_OK;
}

static void name_converted(const char *path, const struct ls_safetensors *file, const size_t *found,
                           uint32_t count)
{
    uint32_t converted = 0;
    const char *dtype = NULL;
    for (uint32_t i = 0; i < count; i++) {
        const char *own =
            found[i] == LS_NO_TENSOR ? "F32" : ls_safetensors_get(file, found[i])->dtype;
        if (strcmp(own, "F32") != 0) {
            converted++;
            dtype = own;
        }
    }
    if (converted)
        ls_info("weights", "'%s': %u tensor(s) were converted to float32 (%s)", path, converted,
                dtype);
}

static enum ls_status check_tensor(const struct ls_model *model, const char *path,
                                   const struct ls_tensor *parameter,
                                   const struct ls_saved_tensor *saved)
{
    const struct ls_shape *variable = ls_variable_shape(parameter);
    char expected[96], found[96];
    if (!same_shape(variable, saved)) {
        struct ls_shape shape = {.ndims = saved->ndims <= LS_MAX_DIMS ? saved->ndims : LS_MAX_DIMS};
        memcpy(shape.dims, saved->dims, shape.ndims * sizeof(shape.dims[0]));
        ls_error("weights", "'%s': tensor '%s' is %s, but '%s' of model '%s' expects %s%s", path,
                 saved->name, ls_shape_text(&shape, found, sizeof(found)), parameter->name,
                 model->source, ls_shape_text(variable, expected, sizeof(expected)),
                 model->input.ndims ? "; the data gives its shape: name the dataset's options as "
                                      "in the training (resize=, columns=, label=)"
                                    : "");
        return LS_BAD_INPUT;
    }
    if (!saved->data) {
        ls_error("weights",
                 "'%s': tensor '%s' is of dtype %s, but '%s' of model '%s' needs floating-point "
                 "numbers (F32, F64, F16 or BF16)",
                 path, saved->name, saved->dtype, parameter->name, model->source);
        return LS_BAD_INPUT;
    }
    return LS_OK;
}

// `found`: the tensor of each parameter; `known`: tensors that are none and are not named.
static enum ls_status match(const struct ls_model *model, const char *path,
                            const struct ls_safetensors *file, bool keras, size_t *found,
                            bool *known)
{
    const struct ls_graph *graph = model->graph;
    enum ls_status status = keras ? ls_keras_match(model, path, file, found, known)
                                  : match_names(model, path, file, found);
    for (uint32_t i = 0; i < graph->parameter_count && !status; i++)
        if (found[i] != LS_NO_TENSOR) {
            known[found[i]] = true;
            status =
                check_tensor(model, path, graph->parameters[i], ls_safetensors_get(file, found[i]));
        }
    if (status)
        return status;
    name_extra(model, path, file, known);
    name_converted(path, file, found, graph->parameter_count);
    return LS_OK;
}

enum ls_status ls_weights_match(const struct ls_model *model, const char *path,
                                const struct ls_safetensors *file, bool keras,
                                struct ls_found_weights *out)
{
    bool *known = calloc(ls_safetensors_count(file) + 1, sizeof(*known));
    *out = (struct ls_found_weights){.path = path, .file = file, .keras = keras};
    out->tensors = calloc((size_t)model->graph->parameter_count + 1, sizeof(*out->tensors));
    enum ls_status status = out->tensors && known
                                ? match(model, path, file, keras, out->tensors, known)
                                : LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_class_names_read(path, file, &out->names);
    free(known);
    return status;
}

enum ls_status ls_weights_take(struct ls_model *model, struct ls_found_weights *found)
{
    model->assigned = true;
    for (uint32_t i = 0; i < model->graph->parameter_count; i++)
        if (found->tensors[i] != LS_NO_TENSOR)
            memcpy(model->weights[i], ls_safetensors_get(found->file, found->tensors[i])->data,
                   (size_t)ls_shape_elements(&model->graph->parameters[i]->shape, 1) *
                       sizeof(float));
    const enum ls_status status = note_skipped(model, found->path, found->file, found->keras);
    if (status)
        return status;
    model->nameless = !found->names;
    ls_model_set_classes(model, found->names);
    found->names = NULL;
    return LS_OK;
}

void ls_found_weights_finish(struct ls_found_weights *found)
{
    ls_class_names_destroy(found->names);
    free(found->tensors);
    *found = (struct ls_found_weights){0};
}
