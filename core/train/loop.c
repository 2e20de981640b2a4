// SPDX-License-Identifier: Apache-2.0
// The training loop, written once for every strategy: epochs, segments, steps.
#include "core/train/fit.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/trace.h"
#include "core/train/watch.h"

#include <math.h>

static const struct ls_trace_label epoch_slice = {
    .category = "epoch", .name = "epoch", .value = "epoch", .numbered = true};
static const struct ls_trace_label input_slice = {.category = "input", .name = "input"};
static const struct ls_trace_label validation_slice = {
    .category = "validation", .name = "validation", .value = "epoch"};

uint64_t ls_fit_epoch_end(const struct ls_fit *fit, uint64_t number)
{
    return number ? fit->first_steps + (number - 1) * fit->epoch_steps : 0;
}

// ---- Steps ----

static struct ls_metrics epoch_means(const struct ls_fit *fit)
{
    struct ls_metrics metrics = {0};
    ls_metrics_append(&metrics, &fit->model->metrics, fit->history.epoch_statistics, false);
    return metrics;
}

void ls_fit_note_step(struct ls_fit *fit, const struct ls_step_result *result)
{
    ls_history_add_sums(&fit->history, result);
    if (isnan(fit->startup_seconds))
        fit->startup_seconds = (double)ls_clock_since_start_ns() * 1e-9;
    fit->steps++;
    fit->stopped = fit->stopped || result->stop;
    const struct ls_metrics means = epoch_means(fit);
    ls_progress_step(&fit->progress, fit->steps - ls_fit_epoch_end(fit, fit->epoch - 1), &means);
    if (fit->options->watch) {
        const double examples = (double)result->sums[2];
        const struct ls_watch_step step = {
            .loss = (double)result->sums[0] / examples,
            .right = (double)result->sums[1],
            .examples = examples,
        };
        fit->options->watch->step(fit->options->watch->context, &step);
    }
}

// Replica 0 keeps the books. `step` is its number in the training of the model. [replica thread]
static enum ls_status run_step(struct ls_fit *fit, uint32_t rank, uint64_t step, bool *stopped)
{
    const uint64_t start = ls_clock_ns();
    uint64_t waited = 0;
    struct ls_replica_batch batch;
    struct ls_step_result result = {0};
    const bool stop = rank == 0 && fit->run->interrupted;
    ls_trace_begin(&input_slice, 0);
    enum ls_status status = ls_trainer_next(fit->trainer, rank, &batch, &waited);
    ls_trace_end();
    if (!status) {
        ls_trace_examples(batch.count);
        status = ls_driver_step(fit->trainer->driver, rank, &batch, step,
                                fit->model->optimizer.learning_rate, stop, &result);
    }
    if (!status && rank == 0) {
        ls_history_add_times(&fit->history, &result, ls_clock_ns() - start, waited);
        if (result.step)
            ls_fit_note_step(fit, &result);
    }
    *stopped = result.stop;
    return status;
}

// The steps whose sums are still on their way. [replica thread]
static enum ls_status settle(struct ls_fit *fit, uint32_t rank)
{
    for (;;) {
        struct ls_step_result result = {0};
        const enum ls_status status = ls_driver_settle(fit->trainer->driver, rank, &result);
        if (!status && result.step && rank == 0)
            ls_fit_note_step(fit, &result);
        if (status || result.step == 0)
            return status;
    }
}

// [replica thread]
static enum ls_status run_segment_steps(struct ls_fit *fit, uint32_t rank)
{
    const uint64_t count = fit->segment, first = fit->model->steps_done + 1;
    const uint64_t first_of_fit = fit->segment_first;
    enum ls_status status = LS_OK;
    bool stopped = false;
    uint64_t done = 0;
    for (; !status && !stopped && done < count; done++) {
        ls_trace_begin_step(first_of_fit + done);
        status = run_step(fit, rank, first + done, &stopped);
        ls_trace_end_step();
    }
    const uint64_t start = ls_clock_ns();
    if (!status)
        status = settle(fit, rank);
    if (!status && rank == 0 && !fit->trainer->replicas[0]->ops->blocking)
        ls_history_add_wait(&fit->history, done, ls_clock_ns() - start);
    return status;
}

// [replica thread]
static enum ls_status run_segment(void *context, uint32_t rank)
{
    struct ls_fit *fit = context;
    ls_trace_begin(&epoch_slice, fit->epoch);
    const enum ls_status status =
        fit->books ? ls_books_run(fit->books, rank) : run_segment_steps(fit, rank);
    ls_trace_end();
    return status;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

// The steps of `fit->segment`, when the watch lets them be done. The time that it waited is added to `waited_ns`.
static enum ls_status run_watched(struct ls_fit *fit, uint64_t *waited_ns)
{
    const struct ls_fit_watch *watch = fit->options->watch;
    const uint64_t start = ls_clock_ns();
    fit->segment = least(fit->segment, watch->wait(watch->context));
    const uint64_t waited = ls_clock_ns() - start;
    *waited_ns += waited;
    if (fit->segment == 0) {
        fit->stopped = true;
        return LS_OK;
    }
    const bool first = isnan(fit->startup_seconds);
    watch->begin(watch->context);
    const enum ls_status status = ls_trainer_run(fit->trainer, "training", run_segment, fit);
    watch->end(watch->context);
    if (first)
        fit->startup_seconds -= (double)waited * 1e-9;
    return status;
}

// Steps up to the end of the epoch, the limit, or the next check of the replicas.
static enum ls_status run_steps(struct ls_fit *fit, uint64_t *waited_ns)
{
    const uint64_t end = least(ls_fit_epoch_end(fit, fit->epoch), fit->last_step);
    while (fit->steps < end && !fit->stopped) {
        const uint64_t check = fit->options->check_replicas;
        const uint64_t before = fit->steps;
        fit->segment = end - fit->steps;
        if (check)
            fit->segment = least(fit->segment, check - fit->steps % check);
        fit->segment_first = fit->steps + 1;
        enum ls_status status = fit->options->watch
                                    ? run_watched(fit, waited_ns)
                                    : ls_trainer_run(fit->trainer, "training", run_segment, fit);
        fit->model->steps_done += fit->steps - before;
        if (!status && check && fit->steps % check == 0)
            status = ls_trainer_hashes(fit->trainer, fit->hashes);
        if (status)
            return status;
    }
    return LS_OK;
}

// ---- Epochs ----

static enum ls_status validate(struct ls_fit *fit, struct ls_epoch *epoch)
{
    const struct ls_dataset *dataset = NULL;
    struct ls_scores scores;
    if (fit->options->watch)
        fit->options->watch->validate(fit->options->watch->context);
    enum ls_status status =
        ls_fit_dataset(fit->model, fit->options->validation, &fit->validation_copy, &dataset);
    ls_trace_begin(&validation_slice, fit->epoch);
    if (!status)
        status = ls_trainer_evaluate(fit->trainer, dataset, true, &scores);
    ls_trace_end();
    if (status)
        return status;
    if (!isfinite(ls_metric_value(&scores.metrics, "val_loss"))) {
        ls_error("train",
                 "epoch %llu: the validation loss is not finite; try a smaller learning rate, or "
                 "check the data",
                 (unsigned long long)epoch->epoch);
        return LS_FAILED;
    }
    for (uint32_t i = 0; i < scores.metrics.count; i++)
        epoch->metrics.list[epoch->metrics.count++] = scores.metrics.list[i];
    return LS_OK;
}

static enum ls_status run_epoch(struct ls_fit *fit, uint64_t number)
{
    const uint64_t first = fit->steps;
    const uint64_t start = ls_clock_ns();
    uint64_t waited_ns = 0;
    ls_history_begin_epoch(&fit->history);
    ls_progress_begin(&fit->progress, number, ls_fit_epoch_end(fit, number) - first);
    enum ls_status status = run_steps(fit, &waited_ns);
    if (status || fit->steps == first) {
        ls_progress_clear(&fit->progress);
        return status;
    }
    struct ls_epoch epoch = {
        .epoch = number,
        .steps = fit->steps - first,
        .examples = (uint64_t)fit->history.epoch_statistics[LS_SUMS_EXAMPLES],
        .seconds = (double)(ls_clock_ns() - start - waited_ns) * 1e-9,
        .learning_rate = fit->model->optimizer.learning_rate,
        .metrics = epoch_means(fit),
    };
    if (fit->options->validation && !fit->stopped)
        status = validate(fit, &epoch);
    ls_progress_end(&fit->progress, epoch.steps, epoch.seconds, epoch.examples, &epoch.metrics);
    const enum ls_status added = ls_history_add_epoch(&fit->history, &epoch);
    return status ? status : added;
}

enum ls_status ls_fit_run_epochs(struct ls_fit *fit)
{
    for (uint64_t epoch = 1; epoch <= fit->epochs; epoch++) {
        fit->epoch = epoch;
        ls_trace_begin(&epoch_slice, epoch);
        const enum ls_status status = run_epoch(fit, epoch);
        ls_trace_end();
        if (status)
            return status;
        if (fit->stopped || fit->run->interrupted)
            return LS_INTERRUPTED;
        if (fit->steps == fit->last_step) {
            if (fit->steps < ls_fit_epoch_end(fit, fit->epochs))
                fit->status = "stopped";
            return LS_OK;
        }
    }
    return LS_OK;
}
