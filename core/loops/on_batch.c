// SPDX-License-Identifier: Apache-2.0
// One batch from the program's memory: a step, an evaluation or a prediction of it.
#include "core/loops/on_batch.h"

#include "core/loops/distributed.h"
#include "core/train/evaluate.h"

// [replica thread]
static enum ls_status train_step(struct ls_replica_context *replica, void *context)
{
    const struct ls_model *model = context;
    if (model->run->shards)
        return ls_context_train(replica);
    enum ls_status status = ls_context_forward(replica);
    if (!status)
        status = ls_context_update_metrics(replica);
    return status ? status : ls_context_minimize(replica);
}

enum ls_status ls_train_batch(struct ls_model *model, const struct ls_batch_arrays *batch,
                              struct ls_metrics *out)
{
    struct ls_data *data = NULL;
    struct ls_distributed *dataset = NULL;
    enum ls_status status = ls_model_check_has_loss(model, "ls_train_on_batch");
    if (!status)
        status = ls_copy_data(batch, &data);
    if (status)
        return status;
    const struct ls_distribute_options options = {.batch = ls_data_count(data), .shuffle = "off"};
    status = ls_open_distributed(model, data, &options, true, &dataset);
    if (!status)
        status = ls_run_step_function(dataset, train_step, model);
    if (!status && out)
        ls_strategy_metrics(dataset, out, NULL);
    ls_distributed_close(dataset);
    ls_data_close(data);
    return status;
}

enum ls_status ls_test_batch(struct ls_model *model, const struct ls_batch_arrays *batch,
                             struct ls_metrics *out)
{
    struct ls_data *data = NULL;
    struct ls_scores scores;
    enum ls_status status = ls_copy_data(batch, &data);
    if (!status)
        status = ls_evaluate_model(model, data, ls_data_count(data), &scores);
    if (!status && out)
        *out = scores.metrics;
    ls_data_close(data);
    return status;
}

enum ls_status ls_predict_batch(struct ls_model *model, const struct ls_array *inputs,
                                uint32_t input_count, float *out)
{
    struct ls_data *data = NULL;
    const struct ls_batch_arrays batch = {.inputs = inputs, .input_count = input_count};
    enum ls_status status = ls_copy_data(&batch, &data);
    if (!status)
        status = ls_predict_model(model, data, ls_data_count(data), out);
    ls_data_close(data);
    return status;
}
