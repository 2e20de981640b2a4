// SPDX-License-Identifier: Apache-2.0
// Evaluation and prediction by themselves.
#include "core/train/evaluate.h"

#include "core/base/log.h"
#include "core/train/agreement.h"
#include "core/train/callbacks.h"
#include "core/model/learned_classes.h"
#include "core/model/pixels.h"
#include "core/report/predictions_file.h"
#include "core/train/session.h"
#include "core/base/sizes.h"
#include "core/run/workers.h"
#include "core/train/model_calls.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

// What it begins from is on the replicas; a session that broke takes back what the host does not have.
static enum ls_status conclude(struct ls_model *model, enum ls_status status)
{
    struct ls_worker_word word = {.interrupted = model->run->interrupted,
                                  .signal = model->run->interrupted_by};
    model->fitting = LS_FIT_NONE;
    if (!status)
        status = ls_workers_combine(model->run, &word);
    if (!status && ls_cluster_workers(model->run->workers.cluster) > 1 && word.interrupted) {
        atomic_store(&model->run->interrupted_by, word.signal);
        status = LS_INTERRUPTED;
    }
    if (status && status != LS_INTERRUPTED)
        ls_workers_give_up(model->run);
    const struct ls_session *session = model->session;
    if (!session || !session->broken)
        return status;
    if (session->hung)
        model->refused = LS_REFUSED_HUNG;
    const uint64_t steps = model->steps_done;
    ls_session_rescue(model->session);
    const enum ls_status closed = ls_session_close(model);
    ls_model_say_back(model, steps);
    return status ? status : closed;
}

enum ls_status ls_take_model_callbacks(struct ls_model *model, const struct ls_callbacks *callbacks,
                                       size_t bytes, uint32_t count)
{
    struct ls_callbacks *taken = NULL;
    const enum ls_status status = ls_take_callbacks(callbacks, bytes, count, &taken);
    if (status)
        return status;
    free(model->callbacks);
    model->callbacks = taken;
    model->callback_count = taken ? count : 0;
    return LS_OK;
}

// Whom a call tells, and what.
struct told {
    struct ls_clients clients;
    struct ls_fit_state state;
    struct ls_batch_clients batches;
};

// From here on callbacks may call on the model what they may in a fit.
static void open_told(struct told *told, struct ls_model *model, const char *call)
{
    model->fitting = model->callback_count ? LS_FIT_TRAINS : LS_FIT_NONE;
    *told = (struct told){
        .clients = {.tables = model->callbacks, .table_count = model->callback_count, .call = call},
        .state = {.model = model, .epoch = {.epoch = 1}}};
    told->batches = (struct ls_batch_clients){.clients = &told->clients, .state = &told->state};
}

static enum ls_status tell(struct told *told, enum ls_moment moment)
{
    return told->clients.table_count ? ls_clients_call(&told->clients, moment, &told->state)
                                     : LS_OK;
}

// NULL where nobody listens, so that a batch costs nothing.
static const struct ls_batch_clients *batches_of(const struct told *told)
{
    return told->clients.table_count ? &told->batches : NULL;
}

enum ls_status ls_evaluate_model(struct ls_model *model, struct ls_data *data, uint64_t batch,
                                 struct ls_scores *out)
{
    enum ls_status status = ls_model_check_usable(model, "evaluate");
    if (!status)
        status = ls_model_check_has_loss(model, "evaluate");
    if (!status)
        status = ls_model_check_data(model, data);
    if (!status && ls_model_data_has_weights(data))
        status = ls_model_need_weighted(model);
    if (status)
        return status;
    struct ls_session_need need = {
        .global_batch = ls_run_global_batch(model->run, batch, 0),
        .evaluation_examples = ls_data_count(data),
    };
    struct ls_scores scores;
    struct told told;
    const struct ls_dataset *dataset = NULL;
    open_told(&told, model, "evaluation");
    ls_data_byte_divisors(data, NULL, need.byte_divisors);
    status = ls_agree_on_evaluation(model, data, need.global_batch, true);
    if (!status)
        status = ls_session_ready(model, &need);
    if (!status)
        status = ls_model_wait_data(model, data, true, &dataset);
    if (!status)
        status = ls_workers_agree_on_examples(model->run, data, "--dataset");
    if (!status && ls_run_is_chief(model->run))
        ls_model_warn_of_pixels(model, data->text, dataset);
    if (!status)
        status = tell(&told, LS_ON_TEST_BEGIN);
    if (!status)
        status = ls_session_evaluate(model->session, dataset, false, batches_of(&told), &scores);
    if (!status && !isfinite(ls_metric_value(&scores.metrics, "loss"))) {
        ls_error("evaluate", "the loss of model '%s' on '%s' is not finite; check data and weights",
                 model->source, data->text);
        status = LS_FAILED;
    }
    if (!status) {
        told.state.epoch.metrics = scores.metrics;
        told.state.epoch.examples = scores.examples;
        told.state.epoch.seconds = scores.seconds;
        status = tell(&told, LS_ON_TEST_END);
    }
    if (!status)
        *out = scores;
    return ls_run_end_interruption(model->run, conclude(model, status));
}

// ---- Prediction ----

#define SEGMENT_BYTES (UINT64_C(16) << 20) // of predictions that wait to be written to a file

// Ready to predict all of the data.
static enum ls_status begin_prediction(struct ls_model *model, struct ls_data *data, uint64_t batch,
                                       struct told *told, const struct ls_dataset **out)
{
    open_told(told, model, "prediction");
    enum ls_status status = ls_model_check_refused(model, "predict");
    if (!status)
        status = ls_model_check_inputs(model, data);
    if (status)
        return status;
    struct ls_session_need need = {
        .global_batch = ls_run_global_batch(model->run, batch, 0),
        .prediction_examples = ls_data_count(data),
    };
    ls_data_byte_divisors(data, NULL, need.byte_divisors);
    status = ls_agree_on_evaluation(model, data, need.global_batch, false);
    if (!status)
        status = ls_session_ready(model, &need);
    if (!status)
        status = ls_model_wait_data(model, data, false, out);
    if (!status)
        status = ls_workers_agree_on_examples(model->run, data, "--dataset");
    if (!status && ls_run_is_chief(model->run))
        ls_model_warn_of_pixels(model, data->text, *out);
    told->state.batches = ls_stream_steps(need.prediction_examples, need.global_batch);
    return status ? status : tell(told, LS_ON_PREDICT_BEGIN);
}

// Examples whose predictions have a value that is not finite.
static uint64_t count_not_finite(const float *outputs, uint64_t count, uint64_t elements)
{
    uint64_t found = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t k = 0;
        while (k < elements && isfinite(outputs[i * elements + k]))
            k++;
        found += k < elements;
    }
    return found;
}

static void say_not_finite(const struct ls_model *model, uint64_t found, uint64_t count)
{
    if (found)
        ls_warn("predict",
                "the predictions of model '%s' for %" PRIu64 " of %" PRIu64
                " examples are not finite; check weights and data (an Embedding gives NaN for an "
                "id that it has no row for)",
                model->source, found, count);
}

enum ls_status ls_predict_model(struct ls_model *model, struct ls_data *data, uint64_t batch,
                                float *out)
{
    const struct ls_dataset *dataset = NULL;
    struct told told;
    enum ls_status status = begin_prediction(model, data, batch, &told, &dataset);
    if (!status)
        status =
            ls_session_predict(model->session, dataset, 0, dataset->count, batches_of(&told), out);
    if (!status)
        status = tell(&told, LS_ON_PREDICT_END);
    if (!status)
        say_not_finite(model,
                       count_not_finite(out, dataset->count, ls_model_output_elements(model)),
                       dataset->count);
    return ls_run_end_interruption(model->run, conclude(model, status));
}

// Segments of whole batches, so that no more than these are in memory. `file` NULL: another worker
// writes them.
static enum ls_status predict_segments(struct ls_model *model, const struct ls_dataset *dataset,
                                       const struct told *told, struct ls_predictions_file *file)
{
    const uint64_t elements = ls_model_output_elements(model);
    const uint64_t global_batch = model->session->need.global_batch;
    uint64_t segment = SEGMENT_BYTES / sizeof(float) / elements / global_batch * global_batch;
    segment = segment ? segment : global_batch;
    segment = segment < dataset->count ? segment : dataset->count;
    uint64_t not_finite = 0;
    float *outputs = malloc(segment * elements * sizeof(*outputs));
    enum ls_status status = outputs ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint64_t first = 0; !status && first < dataset->count; first += segment) {
        const uint64_t left = dataset->count - first, count = left < segment ? left : segment;
        status =
            ls_session_predict(model->session, dataset, first, count, batches_of(told), outputs);
        if (!status && file)
            status = ls_predictions_file_write(file, outputs, count);
        if (!status)
            not_finite += count_not_finite(outputs, count, elements);
    }
    free(outputs);
    if (!status)
        say_not_finite(model, not_finite, dataset->count);
    return status;
}

static const char *example_name(const void *dataset, uint64_t row)
{
    return ls_dataset_example_name(dataset, row);
}

// Which class an output is for is known where each has its own.
static struct ls_predictions_columns columns_of(const struct ls_model *model,
                                                const struct ls_dataset *dataset)
{
    const struct ls_class_names *names =
        model->shown_classes ? model->shown_classes : model->class_names;
    const uint64_t elements = ls_model_output_elements(model);
    struct ls_predictions_columns columns = {.context = dataset};
    if (names && elements > 1 && names->count == elements && model->graph->output_count == 1) {
        columns.classes = (const char *const *)names->names;
        columns.class_count = names->count;
    }
    if (dataset->count && ls_dataset_example_name(dataset, 0))
        columns.name = example_name;
    return columns;
}

// Whether the file can be written is known before anything is computed.
enum ls_status ls_predict_model_to_file(struct ls_model *model, struct ls_data *data,
                                        uint64_t batch, const char *path)
{
    int64_t dims[LS_ARRAY_DIMS];
    const uint32_t ndims = ls_model_output_shape(model, dims);
    const struct ls_dataset *dataset = NULL;
    struct ls_predictions_file file = {0};
    struct told told;
    const bool writes = ls_run_is_chief(model->run);
    enum ls_status status =
        writes ? ls_predictions_file_open(path, ls_data_count(data), dims, ndims, &file) : LS_OK;
    if (!status)
        status = begin_prediction(model, data, batch, &told, &dataset);
    if (!status && writes) {
        const struct ls_predictions_columns columns = columns_of(model, dataset);
        status = ls_predictions_file_begin(&file, &columns);
    }
    if (!status)
        status = predict_segments(model, dataset, &told, writes ? &file : NULL);
    if (!status)
        status = tell(&told, LS_ON_PREDICT_END);
    if (!status && writes)
        status = ls_predictions_file_commit(&file);
    ls_predictions_file_discard(&file);
    return ls_run_end_interruption(model->run, conclude(model, status));
}
