// SPDX-License-Identifier: Apache-2.0
// Weights and models in files: which format a file has, and what is written to it.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // secure_getenv
#endif
#include "core/model/weights.h"

#include "core/base/log.h"
#include "core/base/memory.h"
#include "core/formats/keras_file.h"
#include "core/formats/replacement.h"
#include "core/loader/loader.h"
#include "core/model/keras_layout.h"
#include "core/model/model.h"
#include "core/report/report.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER_VARIABLE "LOCKSTEP_KERAS_FILES"

// The program that reads and writes files of Keras, in the folder that the variable names, beside
// the installed program or library, or in the build tree.
static struct ls_keras_program find_program(char path[PATH_MAX])
{
    char folder[PATH_MAX];
    const char *given = secure_getenv(FOLDER_VARIABLE);
    if (given)
        snprintf(folder, sizeof(folder), "%s", given);
    else if (!ls_find_installed(LS_KERAS_FILES_FROM_PROGRAM, LS_KERAS_FILES_FROM_LIBRARY,
                                "tools/keras-files", folder))
        return (struct ls_keras_program){0};
    const int length = snprintf(path, PATH_MAX, "%s/" LS_KERAS_PROGRAM, folder);
    const bool there = length > 0 && length < PATH_MAX && access(path, X_OK) == 0;
    return (struct ls_keras_program){.path = there ? path : NULL};
}

static enum ls_status open_keras(const char *path, struct ls_safetensors **out)
{
    char program_path[PATH_MAX];
    const struct ls_keras_program program = find_program(program_path);
    return ls_keras_file_read(&program, path, out);
}

enum ls_status ls_weights_open(const char *path, bool *keras, struct ls_safetensors **out)
{
    const enum ls_status status = ls_keras_file_check("weights", path);
    *keras = ls_keras_file_is(path);
    if (status)
        return status;
    return *keras ? open_keras(path, out) : ls_safetensors_open(path, out);
}

// ---- Models ----

// Keras 2 keeps apart what Keras 3 writes into the model.
static enum ls_status add_training(const char *path, const char *text, json_t *model)
{
    json_t *training = NULL;
    const enum ls_status status =
        text ? ls_model_parse(path, LS_KERAS_TRAINING, text, strlen(text), &training) : LS_OK;
    if (status || !training || !json_is_object(model)) {
        json_decref(training);
        return status;
    }
    return json_object_set_new(model, LS_KERAS_TRAINING, training) ? LS_OUT_OF_MEMORY : LS_OK;
}

enum ls_status ls_read_model(const char *path, json_t **model, struct ls_safetensors **weights)
{
    struct ls_safetensors *file = NULL;
    json_t *json = NULL;
    *weights = NULL;
    enum ls_status status = ls_keras_file_check("model", path);
    if (status)
        return status;
    if (!ls_keras_file_is(path))
        return ls_model_read(path, model);
    status = open_keras(path, &file);
    const char *text = status ? NULL : ls_safetensors_text(file, LS_KERAS_MODEL);
    if (!status && !text) {
        ls_error(path, "the file holds weights but no model; give --model= the model's JSON, and "
                       "--initial-weights= this file");
        status = LS_BAD_INPUT;
    }
    if (!status)
        status = ls_model_parse(path, "the model in the file", text, strlen(text), &json);
    if (!status)
        status = add_training(path, ls_safetensors_text(file, LS_KERAS_TRAINING), json);
    if (status) {
        json_decref(json);
        ls_safetensors_close(file);
        return status;
    }
    *model = json;
    *weights = file;
    return LS_OK;
}

// ---- Writing ----

enum format { SAFETENSORS, WEIGHTS_H5, KERAS, NO_FORMAT };

static bool ends(const char *path, const char *suffix)
{
    const size_t length = strlen(path), bytes = strlen(suffix);
    return length >= bytes && strcmp(path + length - bytes, suffix) == 0;
}

static enum format format_of(const char *path)
{
    return ends(path, ".safetensors")  ? SAFETENSORS
           : ends(path, ".weights.h5") ? WEIGHTS_H5
           : ends(path, ".keras")      ? KERAS
                                       : NO_FORMAT;
}

enum ls_status ls_weights_check_path(const char *scope, const char *path)
{
    char program[PATH_MAX];
    const enum ls_status status = ls_report_check_path(scope, path);
    const enum format format = format_of(path);
    if (status)
        return status;
    if (format == NO_FORMAT) {
        ls_error(scope,
                 "'%s': weights are written as .safetensors, .weights.h5 or .keras, which the name "
                 "must end with",
                 path);
        return LS_USAGE;
    }
    return format == SAFETENSORS || find_program(program).path ? LS_OK
                                                               : ls_keras_file_unavailable(path);
}

// `weights`: NULL: they are asked for later.
static void describe(const struct ls_model *model, float *const *weights, uint32_t index,
                     const char *name, struct ls_saved_tensor *out)
{
    const struct ls_shape *variable = ls_variable_shape(model->graph->parameters[index]);
    *out = (struct ls_saved_tensor){
        .name = name, .ndims = variable->ndims, .data = weights ? weights[index] : NULL};
    memcpy(out->dims, variable->dims, sizeof(variable->dims));
}

// Weights that come from a source, while a file is written.
struct sourcing {
    const struct ls_model *model;
    const struct ls_value_source *source;
    float *values; // room for the largest variable
    uint32_t next; // parameter of the graph
    enum ls_status status; // of the source
};

// False: all were read, or the source has failed.
static bool read_next(struct sourcing *sourcing)
{
    const struct ls_graph *graph = sourcing->model->graph;
    while (sourcing->next < graph->parameter_count && graph->parameters[sourcing->next]->constant)
        sourcing->next++;
    if (sourcing->status || sourcing->next == graph->parameter_count)
        return false;
    sourcing->status =
        sourcing->source->read(sourcing->source->context, sourcing->next++, -1, sourcing->values);
    return !sourcing->status;
}

static const float *source_values(void *context, size_t index)
{
    struct sourcing *sourcing = context;
    (void)index; // tensors are in the order of the graph
    return read_next(sourcing) ? sourcing->values : NULL;
}

// `saved`: all but the values.
static enum ls_status write_from_source(const struct ls_model *model,
                                        const struct ls_value_source *source, const char *path,
                                        struct ls_saved *saved)
{
    struct sourcing sourcing = {.model = model, .source = source};
    struct ls_replacement file = {0};
    int64_t most = 1;
    for (uint32_t i = 0; i < model->graph->parameter_count; i++) {
        const int64_t count = ls_shape_elements(&model->graph->parameters[i]->shape, 1);
        most = count > most ? count : most;
    }
    sourcing.values = ls_malloc_aligned((size_t)most * sizeof(float));
    enum ls_status status = sourcing.values ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_replacement_open("weights", path, &file);
    const enum ls_status begun = source->begin(source->context, !status);
    status = status ? status : begun;
    if (!status) {
        saved->values = source_values;
        saved->context = &sourcing;
        status = ls_safetensors_write_to(file.fd, path, saved);
        while (read_next(&sourcing)) // after a failure of the file
            continue;
        status = sourcing.status ? sourcing.status : status;
    }
    if (!status)
        status = ls_replacement_commit(&file);
    ls_replacement_discard(&file);
    free(sourcing.values);
    return status;
}

static enum ls_status write_names(const struct ls_model *model, float *const *weights,
                                  const struct ls_value_source *source, const char *path,
                                  const char *classes)
{
    const struct ls_graph *graph = model->graph;
    const struct ls_saved_text texts[] = {{"format", "pt"}, {LS_CLASS_NAMES, classes}};
    struct ls_saved saved = {.texts = texts, .text_count = classes ? 2 : 0};
    struct ls_saved_tensor *tensors = calloc((size_t)graph->parameter_count + 1, sizeof(*tensors));
    for (uint32_t i = 0; tensors && i < graph->parameter_count; i++)
        if (!graph->parameters[i]->constant)
            describe(model, weights, i, graph->parameters[i]->name, &tensors[saved.count++]);
    saved.tensors = tensors;
    enum ls_status status = LS_OUT_OF_MEMORY;
    if (tensors && source)
        status = write_from_source(model, source, path, &saved);
    else if (tensors)
        status = ls_safetensors_write_saved(path, &saved);
    else if (source)
        (void)!source->begin(source->context, false);
    free(tensors);
    return status;
}

// The model as Keras 3 reads it from an archive: without what is Keras 2's, and with the shape of
// the input where no layer says it. NULL: no memory.
static char *model_text(const struct ls_model *model)
{
    const json_t *config = json_object_get(model->json, "config");
    const json_t *first = json_array_get(json_object_get(config, "layers"), 0);
    const char *class_name = json_string_value(json_object_get(first, "class_name"));
    const struct ls_shape *input = &model->graph->inputs[0]->shape;
    json_t *copy = json_copy(model->json);
    json_object_del(copy, LS_KERAS_TRAINING);
    if (class_name && strcmp(class_name, "InputLayer") != 0 &&
        !json_object_get(copy, "build_config")) {
        json_t *shape = json_pack("[n]");
        for (uint32_t i = 1; i < input->ndims; i++)
            json_array_append_new(shape, json_integer(input->dims[i]));
        json_object_set_new(copy, "build_config", json_pack("{s:o}", "input_shape", shape));
    }
    char *text = copy ? json_dumps(copy, JSON_COMPACT) : NULL;
    json_decref(copy);
    return text;
}

// Describes the tensors of all groups, "GROUP/vars/N", and returns their names, one behind the
// other; freed by the caller. `tensors` has room for one a parameter and one a group. NULL: no memory.
static char *number_tensors(const struct ls_model *model, float *const *weights,
                            const struct ls_keras_layout *layout, struct ls_saved_tensor *tensors,
                            size_t *tensor_count)
{
    static const float nothing; // of examples that Keras's Normalization has adapted to
    size_t bytes = 1, used = 0, count = 0;
    for (uint32_t i = 0; i < layout->count; i++)
        bytes += (layout->stores[i].count + 1) * (strlen(layout->stores[i].group) + 20);
    char *names = malloc(bytes);
    for (uint32_t i = 0; i < layout->count && names; i++) {
        const struct ls_keras_store *store = &layout->stores[i];
        const uint32_t variables = store->count + (store->counts_examples && store->count ? 1 : 0);
        for (uint32_t k = 0; k < variables; k++, count++) {
            char *name = names + used;
            used += 1 + (size_t)snprintf(name, bytes - used, "%s/vars/%u", store->group, k);
            if (k < store->count)
                describe(model, weights, layout->parameters[store->first + k], name,
                         &tensors[count]);
            else
                tensors[count] = (struct ls_saved_tensor){.name = name, .data = &nothing};
        }
    }
    *tensor_count = count;
    return names;
}

static char *group_names(const struct ls_model *model, const struct ls_keras_layout *layout)
{
    json_t *groups = json_object();
    bool whole = groups && json_object_set_new(groups, "", json_string(model->graph->name)) == 0;
    for (uint32_t i = 0; i < layout->count && whole; i++)
        whole = json_object_set_new(groups, layout->stores[i].group,
                                    json_string(layout->stores[i].name)) == 0;
    char *text = whole ? json_dumps(groups, JSON_COMPACT) : NULL;
    json_decref(groups);
    return text;
}

static enum ls_status check_archive(const struct ls_model *model, const char *path)
{
    if (json_object_get(model->json, "module"))
        return LS_OK;
    ls_error(
        "weights",
        "'%s': a .keras file holds a model as Keras 3 writes it, but the JSON of model '%s' is "
        "Keras 2's; save a .weights.h5 file instead, which goes with that JSON",
        path, model->source);
    return LS_BAD_INPUT;
}

static enum ls_status write_keras(const struct ls_model *model, float *const *weights,
                                  const char *path, bool archive, const char *classes)
{
    char program_path[PATH_MAX];
    const struct ls_keras_program program = find_program(program_path);
    struct ls_keras_layout layout = {0};
    enum ls_status status = archive ? check_archive(model, path) : LS_OK;
    if (!status)
        status = ls_keras_layout_create(model->source, model->json, model->graph, &layout);
    if (status)
        return status;
    size_t count = 0;
    struct ls_saved_tensor *tensors =
        calloc((size_t)layout.parameter_count + layout.count + 1, sizeof(*tensors));
    char *names = tensors ? number_tensors(model, weights, &layout, tensors, &count) : NULL;
    char *groups = group_names(model, &layout), *json = model_text(model);
    const struct ls_saved_text texts[] = {{LS_KERAS_NAMES, groups},
                                          {LS_KERAS_ARCHIVE, archive ? "yes" : "no"},
                                          {LS_KERAS_MODEL, json},
                                          {LS_CLASS_NAMES, classes}};
    const struct ls_saved saved = {
        .tensors = tensors, .count = count, .texts = texts, .text_count = classes ? 4 : 3};
    status =
        names && groups && json ? ls_keras_file_write(&program, path, &saved) : LS_OUT_OF_MEMORY;
    free(tensors);
    free(names);
    free(groups);
    free(json);
    ls_keras_layout_finish(&layout);
    return status;
}

bool ls_weights_written_in_turn(const char *path)
{
    return format_of(path) == SAFETENSORS;
}

enum ls_status ls_weights_write(const struct ls_model *model, float *const *weights,
                                const struct ls_value_source *source, const char *path)
{
    char *classes = model->class_names ? ls_class_names_text(model->class_names) : NULL;
    const enum format format = format_of(path);
    enum ls_status status = LS_OUT_OF_MEMORY;
    if (classes || !model->class_names)
        status = format == SAFETENSORS
                     ? write_names(model, weights, source, path, classes)
                     : write_keras(model, weights, path, format == KERAS, classes);
    else if (source)
        (void)!source->begin(source->context, false);
    free(classes);
    return status;
}
