// SPDX-License-Identifier: Apache-2.0
// Takes optimizer, loss and metrics from a model's file where the caller gives none.
#include "core/model/compiled.h"

#include "core/base/log.h"
#include "core/data/data.h"
#include "core/data/dataset_plugins.h"
#include "core/run/own_parts.h"
#include "core/run/resource_files.h"
#include "core/model/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void log_parts(const char *source, const struct ls_compile_config *config)
{
    const char *const names[] = {"optimizer", "loss",     "loss weights",
                                 "metrics",   "schedule", "loss scale"};
    const char *const values[] = {config->optimizer, config->loss,     config->loss_weights,
                                  config->metrics,   config->schedule, config->loss_scale};
    char text[1200] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && used < sizeof(text); i++)
        if (values[i])
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %s", used ? ", " : "",
                                     names[i], values[i]);
    if (used)
        ls_info(source, "from the file's compile_config: %s", text);
}

// Those of the three that are given as Keras writes such an object, in JSON.
static enum ls_status read_given(const char *source, const json_t *model, struct ls_own_parts *own,
                                 const struct ls_compile_options *options,
                                 struct ls_compile_config *out)
{
    const char *const keys[] = {"optimizer", "loss", "metrics"};
    const char *const texts[] = {options->optimizer, options->loss, options->metrics};
    json_t *given = json_object(), *value;
    enum ls_status status = given ? LS_OK : LS_OUT_OF_MEMORY;
    for (size_t i = 0; !status && i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (!texts[i] || !strchr("{[", texts[i][0]) || !texts[i][0])
            continue;
        status = ls_model_parse(source, keys[i], texts[i], strlen(texts[i]), &value);
        if (!status && json_object_set_new(given, keys[i], value))
            status = LS_OUT_OF_MEMORY;
    }
    if (!status)
        status = ls_compile_config_given(source, model, given, own, out);
    json_decref(given);
    return status;
}

static void move(char **from, char **to)
{
    if (*from)
        *to = *from;
    *from = NULL;
}

enum ls_status ls_compile_fill(const char *source, const json_t *model, struct ls_own_parts *own,
                               struct ls_compile_options *options, struct ls_compile_config *out)
{
    const bool optimizer = options->optimizer || options->own_optimizer;
    const uint32_t parts = (optimizer ? 0 : LS_COMPILE_OPTIMIZER) |
                           (options->loss ? 0 : LS_COMPILE_LOSS) |
                           (options->metrics ? 0 : LS_COMPILE_METRICS);
    struct ls_compile_config given = {0};
    *out = given;
    enum ls_status status = read_given(source, model, own, options, &given);
    if (!status)
        status = ls_model_compile_config(source, model, parts, own, out);
    if (!status)
        log_parts(source, out);
    move(&given.optimizer, &out->optimizer);
    move(&given.schedule, &out->schedule);
    move(&given.loss_scale, &out->loss_scale);
    move(&given.loss, &out->loss);
    move(&given.metrics, &out->metrics);
    if (status)
        return status;
    options->optimizer = out->optimizer ? out->optimizer : options->optimizer;
    if (!options->learning_rate_schedule)
        options->learning_rate_schedule = out->schedule;
    if (!options->loss_scale)
        options->loss_scale = out->loss_scale;
    if (!options->loss_weights)
        options->loss_weights = out->loss_weights;
    options->loss = out->loss ? out->loss : options->loss;
    options->metrics = out->metrics ? out->metrics : options->metrics;
    return LS_OK;
}

void ls_model_input_shape(const struct ls_dataset_info *info, struct ls_shape *out)
{
    const struct ls_field *input =
        ls_field_find(info->fields, info->field_count, LS_FIELD_INPUT, 0);
    *out = (struct ls_shape){.ndims = input ? input->ndims : 0};
    if (input)
        memcpy(out->dims, input->dims, sizeof(out->dims));
}

static enum ls_status look_at_data(const struct ls_loader *loader, const char *dataset,
                                   enum ls_split split, struct ls_dataset_info *out)
{
    struct ls_dataset_plugin *plugin = NULL;
    enum ls_status status = ls_dataset_plugin_find(loader, dataset, &plugin);
    if (!status)
        status = ls_dataset_describe_as(ls_dataset_plugin_kind(plugin), dataset, split, out);
    ls_dataset_plugin_close(plugin);
    return status;
}

enum ls_status ls_data_look(const char *plugin_path, const char *dataset, enum ls_split split,
                            struct ls_dataset_info *out)
{
    struct ls_loader *loader = NULL;
    enum ls_status status = ls_loader_create(plugin_path, &loader);
    if (!status)
        status = look_at_data(loader, dataset, split, out);
    ls_loader_destroy(loader);
    return status;
}

enum ls_status ls_model_look(const char *plugin_path, const char *name, const char *dataset,
                             struct ls_compile_options *options, struct ls_compile_config *out)
{
    struct ls_dataset_info info;
    struct ls_shape input;
    struct ls_graph *graph = NULL;
    struct ls_safetensors *weights = NULL;
    struct ls_loader *loader = NULL;
    struct ls_own_parts *parts = NULL;
    json_t *model = NULL;
    char *path = NULL;
    enum ls_status status = ls_model_find(name, &path);
    if (!status)
        status = ls_loader_create(plugin_path, &loader);
    if (!status)
        status = ls_own_parts_create(loader, &parts);
    if (!status)
        status = look_at_data(loader, dataset, LS_TRAIN, &info);
    if (!status)
        status = ls_read_model(path, &model, &weights);
    if (!status) {
        ls_model_input_shape(&info, &input);
        status = ls_model_build_with(name, model, input.ndims ? &input : NULL, LS_PRECISION_OF_FILE,
                                     parts, &graph);
    }
    if (!status)
        status = ls_model_check_training(name, model, true);
    if (!status)
        status = ls_compile_fill(name, model, parts, options, out);
    ls_graph_destroy(graph);
    ls_own_parts_destroy(parts);
    ls_loader_destroy(loader);
    ls_safetensors_close(weights);
    json_decref(model);
    free(path);
    return status;
}
