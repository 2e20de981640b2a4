// SPDX-License-Identifier: Apache-2.0
// Evaluation by itself.
#include "core/train/evaluate.h"

#include "core/base/log.h"
#include "core/train/session.h"

#include <math.h>
#include <stdlib.h>

// What it begins from is on the replicas; a session that broke takes back what the host does not have.
static enum ls_status conclude(struct ls_model *model, enum ls_status status)
{
    const struct ls_session *session = model->session;
    if (!session || !session->broken)
        return status;
    if (session->hung)
        model->refused = LS_REFUSED_HUNG;
    const uint64_t steps = model->steps_done;
    const enum ls_status closed = ls_session_close(model);
    ls_model_say_back(model, steps);
    return status ? status : closed;
}

enum ls_status ls_evaluate_model(struct ls_model *model, struct ls_data *data, uint64_t batch,
                                 struct ls_scores *out)
{
    enum ls_status status = ls_model_check_usable(model, "evaluate");
    if (!status)
        status = ls_model_check_data(model, data);
    if (status)
        return status;
    struct ls_session_need need = {
        .global_batch = ls_run_global_batch(model->run, batch, 0),
        .evaluation_examples = ls_data_count(data),
    };
    struct ls_scores scores;
    const struct ls_dataset *dataset = NULL;
    ls_data_byte_divisors(data, NULL, need.byte_divisors);
    status = ls_session_ready(model, &need);
    if (!status)
        status = ls_data_wait(data, &dataset);
    if (!status)
        status = ls_session_evaluate(model->session, dataset, false, &scores);
    if (!status && !isfinite(ls_metric_value(&scores.metrics, "loss"))) {
        ls_error("evaluate", "the loss of model '%s' on '%s' is not finite; are the weights?",
                 model->source, data->text);
        status = LS_FAILED;
    }
    if (!status)
        *out = scores;
    return ls_run_end_interruption(model->run, conclude(model, status));
}
