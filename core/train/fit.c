// SPDX-License-Identifier: Apache-2.0
// The training loop, written once for every strategy.
#include "core/train/fit.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/base/threads.h"
#include "core/base/trace.h"
#include "core/train/calls.h"
#include "core/train/timeline.h"
#include "core/train/watch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct ls_trace_label epoch_slice = {
    .category = "epoch", .name = "epoch", .value = "epoch", .numbered = true};
static const struct ls_trace_label input_slice = {.category = "input", .name = "input"};
static const struct ls_trace_label validation_slice = {
    .category = "validation", .name = "validation", .value = "epoch"};

// The steps of a fit up to the end of epoch `number`; 0 for 0.
static uint64_t epoch_end(const struct ls_fit *fit, uint64_t number)
{
    return number ? fit->first_steps + (number - 1) * fit->epoch_steps : 0;
}

// ---- Steps ----

static struct ls_progress_values epoch_values(const struct ls_fit *fit)
{
    const struct ls_history *history = &fit->history;
    return (struct ls_progress_values){
        .loss = history->epoch_loss / history->epoch_examples,
        .accuracy = fit->model->accuracy ? history->epoch_right / history->epoch_examples : NAN,
        .val_loss = NAN,
        .val_accuracy = NAN,
    };
}

void ls_fit_note_step(struct ls_fit *fit, const struct ls_step_result *result)
{
    ls_history_add_sums(&fit->history, result);
    if (isnan(fit->startup_seconds))
        fit->startup_seconds = (double)ls_clock_since_start_ns() * 1e-9;
    fit->steps++;
    fit->stopped = fit->stopped || result->stop;
    const struct ls_progress_values values = epoch_values(fit);
    ls_progress_step(&fit->progress, fit->steps - epoch_end(fit, fit->epoch - 1), &values);
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
    const uint64_t end = least(epoch_end(fit, fit->epoch), fit->last_step);
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

static enum ls_status validate(struct ls_fit *fit, struct ls_report_epoch *epoch)
{
    const struct ls_dataset *dataset = NULL;
    struct ls_scores scores;
    if (fit->options->watch)
        fit->options->watch->validate(fit->options->watch->context);
    enum ls_status status =
        ls_fit_dataset(fit->model, fit->options->validation, &fit->validation_copy, &dataset);
    ls_trace_begin(&validation_slice, fit->epoch);
    if (!status)
        status = ls_trainer_evaluate(fit->trainer, dataset, &scores);
    ls_trace_end();
    if (status)
        return status;
    if (!isfinite(scores.loss)) {
        ls_error("train",
                 "epoch %llu: the validation loss is not finite; try a smaller learning rate, or "
                 "check the data",
                 (unsigned long long)epoch->epoch);
        return LS_FAILED;
    }
    epoch->val_loss = scores.loss;
    epoch->val_accuracy = scores.accuracy;
    return LS_OK;
}

static enum ls_status run_epoch(struct ls_fit *fit, uint64_t number)
{
    const uint64_t first = fit->steps;
    const uint64_t start = ls_clock_ns();
    uint64_t waited_ns = 0;
    ls_history_begin_epoch(&fit->history);
    ls_progress_begin(&fit->progress, number, epoch_end(fit, number) - first);
    enum ls_status status = run_steps(fit, &waited_ns);
    if (status || fit->steps == first) {
        ls_progress_clear(&fit->progress);
        return status;
    }
    struct ls_progress_values values = epoch_values(fit);
    struct ls_report_epoch epoch = {
        .epoch = number,
        .steps = fit->steps - first,
        .examples = (uint64_t)fit->history.epoch_examples,
        .seconds = (double)(ls_clock_ns() - start - waited_ns) * 1e-9,
        .learning_rate = fit->model->optimizer.learning_rate,
        .loss = values.loss,
        .accuracy = values.accuracy,
        .val_loss = NAN,
        .val_accuracy = NAN,
    };
    if (fit->options->validation && !fit->stopped)
        status = validate(fit, &epoch);
    values.val_loss = epoch.val_loss;
    values.val_accuracy = epoch.val_accuracy;
    ls_progress_end(&fit->progress, epoch.steps, epoch.seconds, epoch.examples, &values);
    const enum ls_status added = ls_history_add_epoch(&fit->history, &epoch);
    return status ? status : added;
}

static enum ls_status run_epochs(struct ls_fit *fit)
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
            if (fit->steps < epoch_end(fit, fit->epochs))
                fit->status = "stopped";
            return LS_OK;
        }
    }
    return LS_OK;
}

// ---- Before and after ----

static void tell_prepared(const struct ls_fit *fit)
{
    const struct ls_fit_watch *watch = fit->options->watch;
    const struct ls_watch_facts facts = {
        .steps = least(epoch_end(fit, fit->epochs), fit->last_step),
        .global_batch = fit->global_batch,
        .epoch_steps = fit->epoch_steps,
        .accuracy = fit->model->accuracy,
        .asynchronous = ls_driver_asynchronous(fit->trainer->driver),
    };
    watch->prepared(watch->context, &facts);
}

static enum ls_status parse_shuffle(struct ls_fit *fit)
{
    const char *text = fit->options->shuffle;
    int64_t buffer;
    fit->shuffle = LS_SHUFFLE_ALL;
    if (!text || strcmp(text, "on") == 0)
        return LS_OK;
    if (strcmp(text, "off") == 0) {
        fit->shuffle = LS_SHUFFLE_OFF;
        return LS_OK;
    }
    if (!ls_parse_integer(text, &buffer) || buffer < 1) {
        ls_error("--shuffle", "'%s': wanted on, off, or the number of examples in the buffer",
                 text);
        return LS_USAGE;
    }
    fit->shuffle = LS_SHUFFLE_BUFFER;
    fit->shuffle_buffer = (uint64_t)buffer;
    return LS_OK;
}

static enum ls_status check(struct ls_fit *fit)
{
    const uint64_t examples = ls_data_count(fit->train);
    if (!fit->model->compiled) {
        ls_error("fit", "model '%s' is not compiled: call ls_compile first", fit->model->source);
        return LS_USAGE;
    }
    if (fit->run->replicas > examples) {
        ls_error("--replicas",
                 "%u replicas, but '%s' has only %llu examples; use at most that many",
                 fit->run->replicas, fit->train->text, (unsigned long long)examples);
        return LS_USAGE;
    }
    enum ls_status status = ls_model_check_training(fit->model->source, fit->model->json, true);
    if (!status)
        status = ls_model_check_data(fit->model, fit->train);
    if (!status && fit->options->validation)
        status = ls_model_check_data(fit->model, fit->options->validation);
    if (!status && fit->options->report)
        status = ls_report_check_path("--report", fit->options->report);
    if (!status)
        status = ls_fit_check_timeline(fit);
    return status ? status : parse_shuffle(fit);
}

// Goes on in the epoch where the last fit ended, if the order of its examples is the same; else a new one begins.
static void continue_order(struct ls_fit *fit)
{
    const struct ls_data *train = fit->train;
    uint64_t key = ls_random_key_text(train->split, train->text);
    key = ls_random_key(key, ls_data_count(train));
    key = ls_random_key(key, fit->shuffle);
    key = ls_random_key(key, fit->shuffle_buffer);
    fit->order = fit->model->order;
    if (fit->order.position && fit->order.key != key) {
        fit->order.epochs++;
        fit->order.position = 0;
    }
    fit->order.key = key;
}

static void plan_steps(struct ls_fit *fit)
{
    const uint64_t examples = ls_data_count(fit->train);
    continue_order(fit);
    fit->epoch_steps = ls_stream_steps(examples, fit->global_batch);
    fit->first_steps = ls_stream_steps(examples - fit->order.position, fit->global_batch);
    fit->last_step = fit->options->steps ? fit->options->steps : UINT64_MAX;
    fit->epochs = fit->options->epochs ? fit->options->epochs : 1;
    if (!fit->options->epochs && fit->options->steps > fit->first_steps) // as many as they take
        fit->epochs += ls_stream_steps(fit->options->steps - fit->first_steps, fit->epoch_steps);
    fit->epochs = least(fit->epochs, (UINT64_MAX - 1) / fit->epoch_steps); // "for ever"
}

static enum ls_status prepare(struct ls_fit *fit)
{
    const struct ls_dataset *dataset = NULL;
    const struct ls_trainer_options options = {
        .global_batch = fit->global_batch,
        .training_examples = ls_data_count(fit->train),
        .order = fit->order,
        .slices = fit->options->slices,
        .byte_divisor = ls_data_byte_divisor(fit->train, fit->options->validation),
        .evaluation_examples =
            fit->options->validation ? ls_data_count(fit->options->validation) : 0,
    };
    fit->hashes = calloc(fit->run->replicas, sizeof(*fit->hashes));
    enum ls_status status = fit->hashes ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_history_init(&fit->history);
    if (!status)
        status = ls_trainer_open(fit->model, &options, &fit->trainer);
    if (!status)
        status = ls_trainer_start(fit->trainer);
    if (!status && ls_driver_asynchronous(fit->trainer->driver))
        status = ls_books_create(fit, &fit->books);
    if (status)
        return status;
    fit->run->doing = "reading the data";
    status = ls_fit_dataset(fit->model, fit->train, &fit->train_copy, &dataset);
    if (!status)
        status = ls_trainer_set_data(fit->trainer, dataset, fit->shuffle, fit->shuffle_buffer);
    // What is wrong with the other split is said before the work, not after the first epoch.
    if (!status && fit->options->validation)
        status =
            ls_fit_dataset(fit->model, fit->options->validation, &fit->validation_copy, &dataset);
    return status;
}

static enum ls_status keep_epochs(struct ls_fit *fit)
{
    const size_t count = fit->history.epoch_count;
    struct ls_epoch *epochs = calloc(count + 1, sizeof(*epochs));
    if (!epochs)
        return LS_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const struct ls_report_epoch *from = &fit->history.epochs[i];
        epochs[i] = (struct ls_epoch){.epoch = from->epoch,
                                      .steps = from->steps,
                                      .examples = from->examples,
                                      .seconds = from->seconds,
                                      .learning_rate = from->learning_rate,
                                      .loss = from->loss,
                                      .accuracy = from->accuracy,
                                      .val_loss = from->val_loss,
                                      .val_accuracy = from->val_accuracy};
    }
    free(fit->model->epochs);
    fit->model->epochs = epochs;
    fit->model->epoch_count = count;
    return LS_OK;
}

// Losses and epochs outlive the fit, for ls_fit_losses and ls_fit_epochs.
static enum ls_status keep_history(struct ls_fit *fit)
{
    free(fit->model->losses);
    fit->model->losses = fit->history.losses;
    fit->model->loss_count = fit->history.loss_count;
    fit->history.losses = NULL;
    return keep_epochs(fit);
}

// What comes next after the steps of the fit.
static struct ls_model_order order_after(const struct ls_fit *fit)
{
    struct ls_model_order order = fit->order;
    if (fit->steps < fit->first_steps) {
        order.position += fit->steps * fit->global_batch;
        return order;
    }
    const uint64_t more = fit->steps - fit->first_steps;
    order.epochs += 1 + more / fit->epoch_steps;
    order.position = more % fit->epoch_steps * fit->global_batch;
    return order;
}

static enum ls_status conclude(struct ls_fit *fit, enum ls_status status)
{
    const bool whole = status == LS_OK || status == LS_INTERRUPTED;
    enum ls_status after = LS_OK;
    fit->status = whole ? (status ? "interrupted" : fit->status) : "failed";
    if (!whole && fit->trainer && fit->trainer->driver)
        ls_driver_explain(fit->trainer->driver);
    if (whole)
        after = ls_trainer_hashes(fit->trainer, fit->hashes);
    if (whole && !after)
        after = ls_trainer_take_weights(fit->trainer);
    if (after)
        fit->status = "failed";
    if (after || !whole) // the model is what it was, and so is its optimizer
        fit->model->steps_done -= fit->steps;
    else
        fit->model->order = order_after(fit);
    if (fit->run->verbose && fit->trainer && fit->steps)
        ls_fit_print_times(fit, stdout);
    if (fit->options->report && fit->trainer) {
        if (!status && !after)
            fit->run->doing = "writing the report";
        const enum ls_status written = ls_fit_write_report(fit);
        after = after ? after : written;
    }
    const enum ls_status kept = keep_history(fit);
    after = after ? after : kept;
    return status && status != LS_INTERRUPTED ? status : after ? after : status;
}

static enum ls_status finish(struct ls_fit *fit)
{
    ls_progress_finish(&fit->progress);
    const enum ls_status status = ls_trainer_close(fit->trainer);
    ls_books_destroy(fit->books);
    ls_history_finish(&fit->history);
    free(fit->train_copy.labels);
    free(fit->validation_copy.labels);
    free(fit->hashes);
    return status;
}

enum ls_status ls_fit_model(struct ls_model *model, struct ls_data *train,
                            const struct ls_fit_options *options)
{
    static const struct ls_fit_options defaults;
    if (!options)
        options = &defaults;
    struct ls_fit fit = {.model = model,
                         .run = model->run,
                         .options = options,
                         .train = train,
                         .startup_seconds = NAN,
                         .status = "done"};
    fit.global_batch = ls_run_global_batch(model->run, options->batch, options->replica_batch);
    enum ls_status status = check(&fit);
    if (status)
        return status;
    plan_steps(&fit);
    ls_progress_init(&fit.progress, stdout, !model->run->progress, fit.epochs);
    status = ls_fit_begin_timeline(&fit);
    if (!status)
        status = prepare(&fit);
    if (!status && model->run->progress)
        ls_fit_print_setting(&fit, stdout);
    if (!status && model->run->verbose)
        ls_fit_print_plan(&fit, stdout);
    if (!status && options->watch)
        tell_prepared(&fit);
    if (!status)
        status = ls_run_end_interruption(model->run, run_epochs(&fit));
    const bool prepared = fit.trainer != NULL;
    status = conclude(&fit, status);
    const enum ls_status finished = finish(&fit);
    status = status && status != LS_INTERRUPTED ? status : finished ? finished : status;
    return ls_fit_end_timeline(&fit, prepared, status);
}

enum ls_status ls_set_learning_rate(struct ls_model *model, double rate)
{
    if (!model->compiled) {
        ls_error("learning rate", "model '%s' is not compiled: call ls_compile first",
                 model->source);
        return LS_USAGE;
    }
    const enum ls_status status = ls_learning_rate_check(rate);
    if (!status)
        model->optimizer.learning_rate = rate;
    return status;
}

double ls_learning_rate(const struct ls_model *model)
{
    return model->compiled ? model->optimizer.learning_rate : NAN;
}

const float *ls_fit_losses(const struct ls_model *model, size_t *count)
{
    *count = model->loss_count;
    return model->losses;
}

const struct ls_epoch *ls_fit_epochs(const struct ls_model *model, size_t *count)
{
    *count = model->epoch_count;
    return model->epochs;
}
