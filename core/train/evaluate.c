// SPDX-License-Identifier: Apache-2.0
// Evaluation by itself, and data with the labels that a loss wants.
#include "core/train/fit.h"

#include "core/base/log.h"
#include "core/train/calls.h"

#include <math.h>
#include <stdlib.h>

static enum ls_status convert_labels(const struct ls_dataset *dataset, struct ls_dataset_copy *copy)
{
    copy->labels = malloc(((size_t)dataset->count + 1) * sizeof(float));
    if (!copy->labels)
        return LS_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < dataset->count; i++)
        copy->labels[i] = dataset->label_dtype == LS_U8
                              ? (float)((const uint8_t *)dataset->labels)[i]
                              : (float)((const int32_t *)dataset->labels)[i];
    copy->dataset = *dataset;
    copy->dataset.labels = copy->labels;
    copy->dataset.label_dtype = LS_F32;
    copy->dataset.class_count = 0;
    return LS_OK;
}

enum ls_status ls_fit_dataset(const struct ls_model *model, struct ls_data *data,
                              struct ls_dataset_copy *copy, const struct ls_dataset **out)
{
    const struct ls_dataset *dataset = NULL;
    enum ls_status status = ls_data_wait(data, &dataset);
    if (status)
        return status;
    if (model->graph->label->dtype == LS_F32 && dataset->label_dtype != LS_F32) {
        if (!copy->labels)
            status = convert_labels(dataset, copy);
        dataset = &copy->dataset;
    }
    if (!status)
        *out = dataset;
    return status;
}

static enum ls_status check(const struct ls_model *model, const struct ls_data *data)
{
    if (!model->compiled) {
        ls_error("evaluate", "model '%s' is not compiled: call ls_compile first", model->source);
        return LS_USAGE;
    }
    return ls_model_check_data(model, data);
}

enum ls_status ls_evaluate_model(struct ls_model *model, struct ls_data *data, uint64_t batch,
                                 struct ls_scores *out)
{
    enum ls_status status = check(model, data);
    if (status)
        return status;
    const struct ls_trainer_options options = {
        .global_batch = ls_run_global_batch(model->run, batch, 0),
        .evaluation_examples = ls_data_count(data),
        .byte_divisor = ls_data_byte_divisor(data, NULL),
    };
    struct ls_trainer *trainer = NULL;
    struct ls_dataset_copy copy = {0};
    struct ls_scores scores;
    const struct ls_dataset *dataset = NULL;
    status = ls_trainer_open(model, &options, &trainer);
    if (!status)
        status = ls_fit_dataset(model, data, &copy, &dataset);
    if (!status)
        status = ls_trainer_evaluate(trainer, dataset, false, &scores);
    if (!status && !isfinite(ls_metric_value(&scores.metrics, "loss"))) {
        ls_error("evaluate", "the loss of model '%s' on '%s' is not finite; are the weights?",
                 model->source, data->text);
        status = LS_FAILED;
    }
    if (!status)
        *out = scores;
    const enum ls_status closed = ls_trainer_close(trainer);
    free(copy.labels);
    return ls_run_end_interruption(model->run, status ? status : closed);
}
