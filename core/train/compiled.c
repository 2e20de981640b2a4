// SPDX-License-Identifier: Apache-2.0
// Takes optimizer, loss and metrics from a model's file where the caller gives none.
#include "core/train/compiled.h"

#include "core/base/log.h"
#include "core/train/data.h"
#include "core/train/resource_files.h"
#include "core/train/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void log_parts(const char *source, const struct ls_compile_config *config)
{
    const char *const names[] = {"optimizer", "loss", "metrics", "schedule", "loss scale"};
    const char *const values[] = {config->optimizer, config->loss, config->metrics,
                                  config->schedule, config->loss_scale};
    char text[1200] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && used < sizeof(text); i++)
        if (values[i])
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %s", used ? ", " : "",
                                     names[i], values[i]);
    if (used)
        ls_info(source, "from the file's compile_config: %s", text);
}

enum ls_status ls_compile_fill(const char *source, const json_t *model,
                               struct ls_compile_options *options, struct ls_compile_config *out)
{
    const uint32_t parts = (options->optimizer ? 0 : LS_COMPILE_OPTIMIZER) |
                           (options->loss ? 0 : LS_COMPILE_LOSS) |
                           (options->metrics ? 0 : LS_COMPILE_METRICS);
    const enum ls_status status = ls_model_compile_config(source, model, parts, out);
    if (status)
        return status;
    log_parts(source, out);
    options->optimizer = out->optimizer ? out->optimizer : options->optimizer;
    if (!options->learning_rate_schedule)
        options->learning_rate_schedule = out->schedule;
    if (!options->loss_scale)
        options->loss_scale = out->loss_scale;
    options->loss = out->loss ? out->loss : options->loss;
    options->metrics = out->metrics ? out->metrics : options->metrics;
    return LS_OK;
}

enum ls_status ls_model_look(const char *name, const char *dataset,
                             struct ls_compile_options *options, struct ls_compile_config *out)
{
    struct ls_dataset_info info;
    struct ls_shape input;
    struct ls_graph *graph = NULL;
    struct ls_safetensors *weights = NULL;
    json_t *model = NULL;
    char *path = NULL;
    enum ls_status status = ls_model_find(name, &path);
    if (!status)
        status = ls_dataset_describe(dataset, LS_TRAIN, &info);
    if (!status)
        status = ls_read_model(path, &model, &weights);
    if (!status) {
        ls_data_input_shape(&info, &input);
        status = ls_model_build(name, model, input.ndims ? &input : NULL, &graph);
    }
    if (!status)
        status = ls_model_check_training(name, model, true);
    if (!status)
        status = ls_compile_fill(name, model, options, out);
    ls_graph_destroy(graph);
    ls_safetensors_close(weights);
    json_decref(model);
    free(path);
    return status;
}
