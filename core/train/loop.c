// SPDX-License-Identifier: Apache-2.0
// The training loop, written once for every strategy: epochs, segments, steps.
#include "core/train/fit.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/trace.h"
#include "core/train/async_steps.h"
#include "core/model/learned_classes.h"
#include "core/run/workers.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdatomic.h>
#include <string.h>

static const struct ls_trace_label epoch_span = {
    .category = "epoch", .name = "epoch", .value = "epoch", .numbered = true};
static const struct ls_trace_label input_span = {.category = "input", .name = "input"};
static const struct ls_trace_label validation_span = {
    .category = "validation", .name = "validation", .value = "epoch"};

static bool is_ended(const struct ls_fit *fit)
{
    return ls_fit_is_alone(fit) ? atomic_load(&fit->model->stop_training) : fit->done.all_stop;
}

// Where a rank has asked for the end and it was not for ls_stop_training, it was for an
// interruption.
static bool is_interrupted(const struct ls_fit *fit)
{
    const bool known =
        ls_fit_is_alone(fit) ? atomic_load(&fit->run->interrupted) : fit->done.all_interrupted;
    return known || (fit->done.stopped && !is_ended(fit));
}

// All workers go on, or end, for the same reasons, and with segments of the same length.
static enum ls_status compare_workers(struct ls_fit *fit)
{
    struct ls_worker_word word = {.most_steps = fit->done.segment,
                                  .stops = atomic_load(&fit->model->stop_training),
                                  .interrupted = atomic_load(&fit->run->interrupted),
                                  .signal = atomic_load(&fit->run->interrupted_by),
                                  .reforms = ls_cluster_waiting(fit->run->workers.cluster) > 0,
                                  .learning_rate = fit->model->optimizer.learning_rate,
                                  .set_key = fit->model->set_key};
    if (ls_fit_is_alone(fit))
        return LS_OK;
    const enum ls_status status = ls_workers_combine(fit->run, &word);
    if (status)
        return status;
    fit->model->set_key = 0;
    fit->done.segment = word.most_steps;
    fit->done.all_stop = word.stops;
    fit->done.all_interrupted = word.interrupted;
    if (word.signal) // else one may have arrived here in the meantime
        atomic_store(&fit->run->interrupted_by, word.signal);
    if (word.stops)
        ls_stop_training(fit->model);
    fit->reforms = word.reforms && !word.stops && !word.interrupted;
    return fit->reforms ? LS_ABORTED : LS_OK; // ls_fit goes on from here
}

// ---- Steps ----

// As in Keras, schedules count updates: a step that a loss scale skips is none.
static double rate_of(const struct ls_fit *fit, uint32_t index, uint64_t step)
{
    return ls_optimizer_rate(&fit->model->optimizer,
                             ls_driver_next_update(fit->session->driver, index, step));
}

// Replica 0 counts the steps. `step` is its number in the training of the model. [replica thread]
static enum ls_status run_step(struct ls_fit *fit, uint32_t index, uint64_t step, bool *stopped)
{
    if (index == 0)
        ls_cluster_say(fit->run->workers.cluster, step, "forward");
    if (index == 0)
        ls_fit_begin_step(fit, fit->done.segment_first + step - fit->model->steps_done - 1);
    const uint64_t start = ls_clock_ns();
    uint64_t waited = 0;
    struct ls_replica_batch batch;
    struct ls_step_result result = {0};
    const bool stop =
        index == 0 && (ls_fit_wants_stop(fit) || ls_cluster_waiting(fit->run->workers.cluster) > 0);
    ls_trace_begin(&input_span, 0);
    enum ls_status status = ls_session_next(fit->session, index, &batch, &waited);
    ls_trace_end();
    if (!status) {
        ls_trace_examples(batch.count);
        status = ls_driver_step(fit->session->driver, index, &batch, step,
                                rate_of(fit, index, step), stop, &result);
    }
    if (!status && index == 0) {
        ls_clients_step_times(&fit->clients, &result, ls_clock_ns() - start, waited);
        if (result.step)
            ls_fit_note_step(fit, &result);
    }
    *stopped = result.stop;
    return status;
}

// The steps whose sums are still on their way. [replica thread]
static enum ls_status collect_deferred(struct ls_fit *fit, uint32_t index)
{
    for (;;) {
        struct ls_step_result result = {0};
        const enum ls_status status = ls_driver_collect(fit->session->driver, index, &result);
        if (!status && result.step && index == 0)
            ls_fit_note_step(fit, &result);
        if (status || result.step == 0)
            return status;
    }
}

// [replica thread]
static enum ls_status run_segment_steps(struct ls_fit *fit, uint32_t index)
{
    const uint64_t count = fit->done.segment, first = fit->model->steps_done + 1;
    const uint64_t first_of_fit = fit->done.segment_first;
    enum ls_status status = LS_OK;
    bool stopped = false;
    uint64_t done = 0;
    for (; !status && !stopped && done < count; done++) {
        ls_trace_begin_step(first_of_fit + done);
        status = run_step(fit, index, first + done, &stopped);
        ls_trace_end_step();
    }
    const uint64_t start = ls_clock_ns();
    if (!status)
        status = collect_deferred(fit, index);
    if (!status && ls_driver_has_rounds(fit->session->driver))
        status = ls_driver_rest(fit->session->driver, index);
    if (!status && index == 0 && !ls_device_blocking(ls_replica_device(fit->session->replicas[0])))
        ls_clients_device_wait(&fit->clients, done, ls_clock_ns() - start);
    return status;
}

// [replica thread]
static enum ls_status run_replica_segment(void *context, uint32_t index)
{
    struct ls_fit *fit = context;
    ls_trace_begin(&epoch_span, fit->state.epoch.epoch);
    const enum ls_status status = fit->async_steps ? ls_async_steps_run(fit->async_steps, index)
                                                   : run_segment_steps(fit, index);
    ls_trace_end();
    return status;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

// The steps of `fit->done.segment`, or as many of them as the clients let be done. What the clients
// take before and after is nobody's training.
static enum ls_status run_segment(struct ls_fit *fit)
{
    const uint64_t start = ls_clock_ns();
    enum ls_status status =
        ls_clients_begin_segment(&fit->clients, &fit->state, &fit->done.segment);
    const uint64_t waited = ls_clock_ns() - start;
    fit->done.waited_ns += waited;
    if (fit->done.segment == 0)
        ls_stop_training(fit->model);
    if (status == LS_INTERRUPTED && ls_fit_is_alone(fit))
        fit->done.stopped = true;
    else if (status == LS_INTERRUPTED)
        ls_run_interrupt(fit->run);
    else if (status)
        return status;
    const enum ls_status compared = compare_workers(fit);
    if (compared)
        return compared;
    if (fit->done.stopped || is_ended(fit) || (!ls_fit_is_alone(fit) && fit->done.all_interrupted))
        return LS_OK;
    status = LS_OK;
    const bool first = isnan(fit->done.startup_seconds);
    const uint64_t before = fit->done.steps;
    if (!status)
        status = ls_session_give_assigned(fit->session);
    if (status)
        return status;
    ls_session_clear_counts(fit->session);
    fit->model->stepping = true;
    fit->model->ahead = fit->model->states_ahead = true;
    if (ls_driver_has_rounds(fit->session->driver)) // a step hides the weights of the last round
        fit->session->unsynchronized = true;
    status = ls_session_run(fit->session, "training", run_replica_segment, fit);
    fit->model->stepping = false;
    if (!status)
        status = ls_fit_settle_counts(fit);
    fit->model->steps_done += fit->done.steps - before;
    fit->model->order = ls_fit_order(fit);
    if (ls_optimizer_scales(&fit->model->optimizer))
        fit->model->scale = *ls_replica_scale(fit->session->replicas[0]);
    const uint64_t next = ls_model_next_update(fit->model);
    fit->state.epoch.learning_rate =
        ls_optimizer_rate(&fit->model->optimizer, next > 1 ? next - 1 : 1);
    if (!status)
        status = (enum ls_status)atomic_load(&fit->done.failed);
    if (first)
        fit->done.startup_seconds -= (double)waited * 1e-9;
    const uint64_t end = ls_clock_ns();
    const enum ls_status ended = ls_clients_call(&fit->clients, LS_ON_SEGMENT_END, &fit->state);
    fit->done.waited_ns += ls_clock_ns() - end;
    if (ended == LS_INTERRUPTED && ls_fit_is_alone(fit))
        fit->done.stopped = true;
    else if (ended == LS_INTERRUPTED)
        ls_run_interrupt(fit->run);
    status = status || ended == LS_INTERRUPTED ? status : ended;
    return status ? status : compare_workers(fit);
}

// Steps up to the end of the epoch, the limit, or the next check of the replicas.
static enum ls_status run_steps(struct ls_fit *fit)
{
    const uint64_t end = least(ls_fit_epoch_end(fit, fit->state.epoch.epoch), fit->plan.last_step);
    while (fit->done.steps < end && !fit->done.stopped && !is_ended(fit) &&
           !fit->done.all_interrupted) {
        const uint64_t check = fit->options->check_replicas;
        fit->done.segment = end - fit->done.steps;
        if (check)
            fit->done.segment = least(fit->done.segment, check - fit->done.steps % check);
        fit->done.segment = least(fit->done.segment, ls_checkpoints_most_steps(fit));
        fit->done.segment_first = fit->done.steps + 1;
        enum ls_status status = run_segment(fit);
        if (!status && check && fit->done.steps % check == 0)
            status = ls_session_hashes(fit->session, fit->hashes);
        if (!status)
            status = ls_checkpoints_after_segment(fit);
        if (status)
            return status;
    }
    return LS_OK;
}

// ---- Epochs ----

static bool is_validated(const struct ls_fit_options *options, uint64_t epoch)
{
    bool listed = false;
    for (uint32_t i = 0; i < options->validation_epoch_count; i++)
        listed = listed || options->validation_epochs[i] == epoch;
    const uint64_t every = options->validation_freq ? options->validation_freq : 1;
    return options->validation && (options->validation_epochs ? listed : epoch % every == 0);
}

static enum ls_status validate(struct ls_fit *fit)
{
    struct ls_epoch *epoch = &fit->state.epoch;
    const struct ls_dataset *dataset = NULL;
    struct ls_scores scores;
    enum ls_status status = ls_clients_call(&fit->clients, LS_ON_TEST_BEGIN, &fit->state);
    ls_cluster_say(fit->run->workers.cluster, fit->model->steps_done, "validation");
    if (!status)
        status = ls_model_wait_data(fit->model, fit->options->validation, true, &dataset);
    if (!status)
        status = ls_session_give_assigned(fit->session);
    ls_trace_begin(&validation_span, epoch->epoch);
    if (!status)
        status = ls_session_evaluate(
            fit->session, dataset, true,
            &(struct ls_batch_clients){.clients = &fit->clients, .state = &fit->state}, &scores);
    fit->state.batches = fit->state.steps;
    ls_trace_end();
    if (status)
        return status;
    const char *terminates = ls_clients_terminate_on_nan(&fit->clients);
    const bool finite = isfinite(ls_metric_value(&scores.metrics, "val_loss"));
    if (!finite && terminates) {
        ls_warn(terminates, "the validation loss of epoch %llu is not finite: the training ends",
                (unsigned long long)epoch->epoch);
        ls_stop_training(fit->model);
        snprintf(fit->clients.stopped_by, sizeof(fit->clients.stopped_by), "%s", terminates);
    } else if (!finite) {
        ls_error("train",
                 "epoch %llu: the validation loss is not finite; try a smaller learning rate, or "
                 "check the data",
                 (unsigned long long)epoch->epoch);
        return LS_FAILED;
    }
    for (uint32_t i = 0; i < scores.metrics.count; i++)
        epoch->metrics.list[epoch->metrics.count++] = scores.metrics.list[i];
    return ls_clients_call(&fit->clients, LS_ON_TEST_END, &fit->state);
}

static void begin_epoch(struct ls_fit *fit, uint64_t number)
{
    struct ls_fit_state *state = &fit->state;
    fit->done.waited_ns = 0;
    fit->done.epoch_ended = false;
    const bool goes_on = fit->resumed.in_epoch && number == fit->resumed.first_epoch;
    if (!goes_on) {
        memset(fit->done.epoch_statistics, 0, sizeof(fit->done.epoch_statistics));
        memset(fit->done.counts_before, 0,
               fit->model->graph->count_slots * sizeof(*fit->done.counts_before));
        fit->done.epoch_examples = 0;
        fit->resumed.seconds = 0;
        state->epoch = (struct ls_epoch){.epoch = number};
    }
    memcpy(fit->done.counts, fit->done.counts_before,
           fit->model->graph->count_slots * sizeof(*fit->done.counts));
    state->epoch.metrics.count = 0;
    ls_metrics_append(&state->epoch.metrics, &fit->model->metrics, fit->done.epoch_statistics,
                      goes_on ? fit->done.counts : NULL, false);
    ls_driver_begin_epoch(fit->session->driver, fit->model->steps_done - fit->done.steps +
                                                    ls_fit_epoch_end(fit, number - 1) + 1);
    state->epoch_steps = ls_fit_epoch_end(fit, number) - ls_fit_epoch_end(fit, number - 1);
    fit->done.epoch_begun_ns = ls_clock_ns();
}

// With servers that are processes every worker trains for itself, and the servers add up what all
// have done in the epoch, when all have done it.
static enum ls_status take_tally(struct ls_fit *fit)
{
    const uint32_t slots = fit->model->graph->count_slots;
    struct ls_epoch *epoch = &fit->state.epoch;
    if (!fit->run->workers.served.servers)
        return LS_OK;
    ls_cluster_say(fit->run->workers.cluster, fit->model->steps_done, "the end of an epoch");
    fit->session->unsynchronized = true;
    const enum ls_status status = ls_session_synchronise(fit->session);
    const double *tally = ls_driver_tally(fit->session->driver);
    if (status || !tally || !(tally[LS_SUMS_EXAMPLES] > 0))
        return status;
    memcpy(fit->done.epoch_statistics, tally, sizeof(fit->done.epoch_statistics));
    memcpy(fit->done.counts, tally + LS_STATISTICS, slots * sizeof(*fit->done.counts));
    fit->done.epoch_examples = epoch->examples = (uint64_t)tally[LS_SUMS_EXAMPLES];
    epoch->metrics.count = 0;
    ls_metrics_append(&epoch->metrics, &fit->model->metrics, fit->done.epoch_statistics,
                      fit->done.counts, false);
    return LS_OK;
}

static enum ls_status run_epoch(struct ls_fit *fit, uint64_t number)
{
    struct ls_epoch *epoch = &fit->state.epoch;
    begin_epoch(fit, number);
    enum ls_status status = ls_clients_call(&fit->clients, LS_ON_EPOCH_BEGIN, &fit->state);
    fit->done.epoch_begun_ns = ls_clock_ns();
    if (!status)
        status = run_steps(fit);
    if (!status && epoch->steps)
        status = take_tally(fit);
    const bool whole = fit->done.steps >= ls_fit_epoch_end(fit, number);
    if (!status && !whole)
        status = ls_checkpoints_within_epoch(fit);
    if (!status && whole && number < fit->plan.epochs && fit->done.steps < fit->plan.last_step)
        status = ls_session_check_replica(fit->session); // the end of the fit looks by itself
    if (status || epoch->steps == 0)
        return status;
    ls_cluster_say(fit->run->workers.cluster, fit->model->steps_done, "the end of an epoch");
    epoch->seconds = ls_fit_epoch_seconds(fit);
    // Weights of classes are those of training.
    float *class_weights = fit->session->weighting.classes;
    fit->session->weighting.classes = NULL;
    if (is_validated(fit->options, number) && !is_interrupted(fit))
        status = validate(fit);
    fit->session->weighting.classes = class_weights;
    // Where the validation is missing, a training that goes on ends this epoch once more.
    const bool complete = !status && whole && !is_interrupted(fit);
    enum ls_status written = LS_OK;
    if (whole && !complete && (!status || status == LS_INTERRUPTED))
        written = ls_checkpoints_within_epoch(fit);
    const enum ls_status ended = ls_clients_call(&fit->clients, LS_ON_EPOCH_END, &fit->state);
    status = written ? written : status ? status : ended;
    fit->done.epoch_ended = complete && (!ended || ended == LS_INTERRUPTED);
    if (fit->done.epoch_ended)
        written = ls_checkpoints_after_epoch(fit);
    return written ? written : status;
}

// A callback that interrupts one worker interrupts all.
static enum ls_status compare_after_epoch(struct ls_fit *fit, enum ls_status status)
{
    if (status == LS_INTERRUPTED)
        ls_run_interrupt(fit->run);
    return compare_workers(fit);
}

enum ls_status ls_fit_run_epochs(struct ls_fit *fit)
{
    const enum ls_status compared = compare_workers(fit); // a callback may have ended it already
    if (compared)
        return compared;
    if (fit->resumed.state && atomic_load(&fit->model->stop_training) && fit->clients.stopped_by[0])
        ls_info("train", "the training is complete: %s ended it after %llu steps",
                fit->clients.stopped_by, (unsigned long long)fit->done.steps);
    else if (fit->resumed.steps && fit->done.steps >= fit->state.steps)
        ls_info("train", "the training is complete: the %s all of its %llu steps",
                fit->resumed.state ? "checkpoint has" : "servers have",
                (unsigned long long)fit->done.steps);
    for (uint64_t epoch = fit->resumed.first_epoch;
         epoch <= fit->plan.epochs &&
         (fit->done.steps < fit->plan.last_step || fit->resumed.in_epoch) && !is_ended(fit);
         epoch++) {
        ls_trace_begin(&epoch_span, epoch);
        enum ls_status status = run_epoch(fit, epoch);
        fit->resumed.in_epoch = false;
        if (!status && fit->session->broken) // and a callback took no notice
            status = LS_FAILED;
        if (!status || (status == LS_INTERRUPTED && !ls_fit_is_alone(fit)))
            status = compare_after_epoch(fit, status);
        ls_trace_end();
        if (status)
            return status;
        if (is_interrupted(fit))
            return LS_INTERRUPTED;
    }
    if (fit->done.steps < ls_fit_epoch_end(fit, fit->plan.epochs))
        fit->status = "stopped";
    if (fit->clients.stopped_by[0] && fit->done.steps > fit->resumed.steps &&
        fit->state.epoch.epoch < fit->plan.epochs)
        ls_info("train", "%s ended the training in epoch %llu of %llu", fit->clients.stopped_by,
                (unsigned long long)fit->state.epoch.epoch, (unsigned long long)fit->plan.epochs);
    return LS_OK;
}

// ---- Clients ----

void ls_fit_open_clients(struct ls_fit *fit)
{
    const struct ls_client progress = {.callbacks = ls_progress_callbacks(&fit->bar)};
    fit->state.model = fit->model;
    // What is printed comes first; the history gives losses and epochs away at the end.
    fit->clients =
        (struct ls_clients){.list = {progress, ls_fit_verbose_client(fit),
                                     ls_fit_report_client(fit), ls_history_client(&fit->history)},
                            .count = LS_CLIENTS,
                            .tables = fit->options->callbacks,
                            .table_count = fit->options->callback_count};
}

enum ls_status ls_fit_begin_training(struct ls_fit *fit)
{
    struct ls_fit_state *state = &fit->state;
    atomic_store(&fit->model->stop_training, false);
    state->epochs = fit->plan.epochs;
    state->steps = state->batches =
        least(ls_fit_epoch_end(fit, fit->plan.epochs), fit->plan.last_step);
    state->epoch_steps = fit->plan.epoch_steps;
    state->asynchronous = ls_driver_asynchronous(fit->session->driver);
    const enum ls_status status = ls_clients_call(&fit->clients, LS_ON_TRAIN_BEGIN, state);
    return status ? status : ls_checkpoints_begin(fit);
}
