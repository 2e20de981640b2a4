// SPDX-License-Identifier: Apache-2.0
// What a fit has done: its steps, what they have counted, where it is in its epochs and in the
// order of its examples, and whether somebody has asked it to end.
#include "core/train/fit.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/run/workers.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

// ---- Epochs and the order of examples ----

uint64_t ls_fit_epoch_end(const struct ls_fit *fit, uint64_t number)
{
    const uint64_t first = fit->options->initial_epoch + 1;
    return number >= first ? fit->plan.first_steps + (number - first) * fit->plan.epoch_steps : 0;
}

double ls_fit_epoch_seconds(const struct ls_fit *fit)
{
    return fit->resumed.seconds +
           (double)(ls_clock_ns() - fit->done.epoch_begun_ns - fit->done.waited_ns) * 1e-9;
}

static uint64_t order_key(const struct ls_data *data, enum ls_shuffle shuffle, uint64_t buffer)
{
    uint64_t key = ls_random_key_text(data->split, data->text);
    key = ls_random_key(key, ls_data_count(data));
    key = ls_random_key(key, shuffle);
    return ls_random_key(key, buffer);
}

uint64_t ls_fit_order_key(const struct ls_fit *fit)
{
    return order_key(fit->train, fit->plan.shuffle, fit->plan.shuffle_buffer);
}

struct ls_model_order ls_model_continue_order(const struct ls_model *model,
                                              const struct ls_data *data, enum ls_shuffle shuffle,
                                              uint64_t buffer)
{
    struct ls_model_order order = model->order;
    const uint64_t key = order_key(data, shuffle, buffer);
    if (order.position && (order.key != key || order.position >= ls_data_count(data))) {
        order.epochs++;
        order.position = 0;
    }
    order.key = key;
    return order;
}

struct ls_model_order ls_fit_order(const struct ls_fit *fit)
{
    struct ls_model_order order = fit->plan.order;
    if (fit->done.steps < fit->plan.first_steps) {
        order.position += fit->done.steps * fit->plan.global_batch;
        return order;
    }
    const uint64_t more = fit->done.steps - fit->plan.first_steps;
    order.epochs += 1 + more / fit->plan.epoch_steps;
    order.position = more % fit->plan.epoch_steps * fit->plan.global_batch;
    return order;
}

// ---- Whether it is to end ----

bool ls_fit_is_alone(const struct ls_fit *fit)
{
    return ls_cluster_workers(fit->run->workers.cluster) == 1 && !fit->run->most_workers;
}

bool ls_fit_wants_stop(const struct ls_fit *fit)
{
    return atomic_load(&fit->run->interrupted) || atomic_load(&fit->model->stop_training) ||
           atomic_load(&fit->done.failed);
}

void ls_stop_training(struct ls_model *model)
{
    atomic_store(&model->stop_training, true);
}

uint32_t ls_training_is_stopped(const struct ls_model *model)
{
    return atomic_load(&model->stop_training);
}

// ---- Steps ----

// Adds what the metrics have counted in this segment on the replicas of this worker, or of all
// where the driver adds that up. Others may be within a step while one of them asks.
static void add_segment_counts(const struct ls_fit *fit, double *counts)
{
    if (ls_driver_adds_counts(fit->session->driver))
        ls_replica_add_counts(fit->session->replicas[0], counts);
    else if (!fit->async_steps) // these count complete steps, in counts_before
        ls_session_add_counts(fit->session, counts);
}

enum ls_status ls_fit_settle_counts(struct ls_fit *fit)
{
    const uint32_t slots = fit->model->graph->count_slots;
    const bool added = ls_fit_is_alone(fit) || ls_driver_adds_counts(fit->session->driver);
    memset(fit->done.counts, 0, slots * sizeof(*fit->done.counts));
    add_segment_counts(fit, fit->done.counts);
    const enum ls_status status = added ? LS_OK : ls_workers_add(fit->run, fit->done.counts, slots);
    for (uint32_t i = 0; i < slots; i++)
        fit->done.counts[i] = fit->done.counts_before[i] += fit->done.counts[i];
    fit->state.epoch.metrics.count = 0;
    ls_metrics_append(&fit->state.epoch.metrics, &fit->model->metrics, fit->done.epoch_statistics,
                      fit->done.counts, false);
    return status;
}

// The first of them; how many there were is said at the end.
static void say_skipped(const struct ls_fit *fit, uint64_t step)
{
    const float scale = ls_replica_scale(fit->session->replicas[0])->scale;
    const bool dynamic = fit->model->optimizer.loss_scale.kind == LS_DYNAMIC_SCALE;
    ls_info("train",
            "step %" PRIu64 " is skipped, as its gradients are not finite; the loss scale %s %g",
            step, dynamic ? "is now" : "stays", (double)scale);
}

// An answer other than LS_OK ends the training after this step, as that of on_train_batch_end does.
static void take_answer(struct ls_fit *fit, enum ls_status status)
{
    int32_t none = LS_OK;
    if (status == LS_INTERRUPTED)
        ls_run_interrupt(fit->run);
    else if (status)
        atomic_compare_exchange_strong(&fit->done.failed, &none, (int32_t)status);
}

void ls_fit_begin_step(struct ls_fit *fit, uint64_t step)
{
    fit->state.batch = step;
    take_answer(fit, ls_clients_call(&fit->clients, LS_ON_TRAIN_BATCH_BEGIN, &fit->state));
}

void ls_fit_note_step(struct ls_fit *fit, const struct ls_step_result *result)
{
    struct ls_fit_state *state = &fit->state;
    const uint32_t slots = fit->model->graph->count_slots;
    double statistics[LS_STATISTICS];
    for (uint32_t i = 0; i < LS_STATISTICS; i++)
        statistics[i] = (double)result->sums[i];
    // A loss that is not finite would be all that is left of the epoch's.
    for (uint32_t i = 0; i < LS_STATISTICS && isfinite(statistics[LS_SUMS_LOSS]); i++)
        fit->done.epoch_statistics[i] += statistics[i];
    if (result->skipped && fit->done.skipped_steps++ == 0)
        say_skipped(fit, result->step);
    if (isnan(fit->done.startup_seconds))
        fit->done.startup_seconds = (double)ls_clock_since_start_ns() * 1e-9;
    fit->done.steps++;
    fit->done.stopped = fit->done.stopped || result->stop;
    state->steps_done = fit->done.steps;
    state->step_examples = (uint64_t)statistics[LS_SUMS_EXAMPLES];
    // Of one replica the counts are those of this step; others may be in the next one.
    for (uint32_t i = 0; i < slots; i++)
        fit->done.step_counts[i] = -fit->done.counts[i];
    memcpy(fit->done.counts, fit->done.counts_before, slots * sizeof(*fit->done.counts));
    add_segment_counts(fit, fit->done.counts);
    for (uint32_t i = 0; i < slots; i++)
        fit->done.step_counts[i] += fit->done.counts[i];
    ls_metrics_of_step(&state->step_metrics, &fit->model->metrics, statistics,
                       fit->done.step_counts);
    state->epoch.steps++;
    fit->done.epoch_examples += state->step_examples;
    state->epoch.examples = fit->done.epoch_examples;
    state->epoch.metrics.count = 0;
    ls_metrics_append(&state->epoch.metrics, &fit->model->metrics, fit->done.epoch_statistics,
                      fit->done.counts, false);
    // This step is done, and stays; the next one tells the other ranks that it is the last.
    state->batch = fit->done.steps;
    take_answer(fit, ls_clients_call(&fit->clients, LS_ON_TRAIN_BATCH_END, state));
}

// ---- The learning rate ----

enum ls_status ls_set_learning_rate(struct ls_model *model, double rate)
{
    if (!model->compiled) {
        ls_error("learning rate", "model '%s' is not compiled: call ls_compile first",
                 model->source);
        return LS_USAGE;
    }
    if (model->stepping) {
        ls_error("learning rate", "replicas are in their steps; set it in on_epoch_begin, "
                                  "on_segment_begin or on_epoch_end, not in on_train_batch_end");
        return LS_USAGE;
    }
    if (model->optimizer.schedule.kind != LS_RATE_CONSTANT) {
        ls_error(
            "learning rate",
            "model '%s' was compiled with the schedule %s, which decides it; compile it without "
            "one to set the rate",
            model->source, model->optimizer.schedule.name);
        return LS_USAGE;
    }
    const enum ls_status status = ls_learning_rate_check(rate);
    if (!status)
        model->optimizer.learning_rate = rate;
    return status;
}

double ls_learning_rate(const struct ls_model *model)
{
    return model->compiled ? ls_optimizer_rate(&model->optimizer, ls_model_next_update(model))
                           : NAN;
}
