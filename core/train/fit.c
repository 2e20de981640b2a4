// SPDX-License-Identifier: Apache-2.0
// A fit from its options to its results: what it prepares and leaves behind. Its checks are in fit_check.c, the loop in loop.c.
#include "core/train/fit.h"

#include "core/base/log.h"
#include "core/base/random.h"
#include "core/train/agreement.h"
#include "core/train/async_steps.h"
#include "core/model/learned_classes.h"
#include "core/train/elastic.h"
#include "core/model/losses.h"
#include "core/train/fit_timeline.h"
#include "core/train/session_values.h"
#include "core/run/workers.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Fits of fewer steps leave the weights on the replicas.
#define SHORT_STEPS 128

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

// ---- Before ----

static void plan_steps(struct ls_fit *fit)
{
    const uint64_t examples = ls_data_count(fit->train);
    if (!fit->resumed.state)
        fit->plan.order = ls_model_continue_order(fit->model, fit->train, fit->plan.shuffle,
                                                  fit->plan.shuffle_buffer);
    fit->resumed.steps = fit->done.steps;
    fit->plan.epoch_steps = ls_stream_steps(examples, fit->plan.global_batch);
    fit->plan.first_steps =
        ls_stream_steps(examples - fit->plan.order.position, fit->plan.global_batch);
    const uint64_t epochs = fit->options->epochs, steps = fit->options->steps;
    if (epochs == LS_ZERO || steps == LS_ZERO) {
        fit->plan.last_step = fit->plan.epochs = 0;
        return;
    }
    const uint64_t first = fit->options->initial_epoch;
    fit->plan.last_step = steps ? steps : UINT64_MAX;
    fit->plan.epochs = epochs ? epochs : first + 1;
    if (!epochs && steps > fit->plan.first_steps) // as many as they take
        fit->plan.epochs += ls_stream_steps(steps - fit->plan.first_steps, fit->plan.epoch_steps);
    fit->plan.epochs =
        least(fit->plan.epochs, (UINT64_MAX - 1) / fit->plan.epoch_steps); // "for ever"
    if (fit->plan.epochs <= first)
        fit->plan.last_step = fit->plan.epochs = 0;
}

// So short that a loop of such fits would wait for its weights to come to the host more than for its
// steps.
static bool was_short(const struct ls_model *model, uint64_t steps)
{
    return steps < SHORT_STEPS && model->order.position;
}

// This worker was started again, and servers know how many steps it had made: what comes after them
// is left.
static void go_on_with_servers(struct ls_fit *fit)
{
    struct ls_model *model = fit->model;
    const uint64_t gone = ls_driver_steps_gone(fit->session->driver);
    if (gone <= model->steps_done + fit->done.steps)
        return;
    const uint64_t more = gone - model->steps_done - fit->done.steps;
    fit->done.steps += more;
    model->steps_done += more;
    fit->resumed.steps = fit->state.steps_done = fit->done.steps;
    while (ls_fit_epoch_end(fit, fit->resumed.first_epoch) <= fit->done.steps)
        fit->resumed.first_epoch++;
    fit->resumed.in_epoch = fit->done.steps > ls_fit_epoch_end(fit, fit->resumed.first_epoch - 1);
    if (fit->resumed.in_epoch)
        fit->state.epoch = (struct ls_epoch){.epoch = fit->resumed.first_epoch};
}

static enum ls_status prepare(struct ls_fit *fit)
{
    struct ls_model *model = fit->model;
    const struct ls_dataset *dataset = NULL;
    struct ls_session_need need = {
        .global_batch = fit->plan.global_batch,
        .training_examples = ls_data_count(fit->train),
        .position = ls_fit_order(fit).position,
        .microbatches = fit->plan.microbatches,
        .evaluation_examples =
            fit->options->validation ? ls_data_count(fit->options->validation) : 0,
    };
    ls_data_byte_divisors(fit->train, fit->options->validation, need.byte_divisors);
    enum ls_status status = ls_history_init(&fit->history);
    const uint32_t slots = model->graph->count_slots;
    fit->done.counts = calloc(slots + 1, sizeof(*fit->done.counts));
    fit->done.step_counts = calloc(slots + 1, sizeof(*fit->done.step_counts));
    fit->done.counts_before = calloc(slots + 1, sizeof(*fit->done.counts_before));
    if (!status && (!fit->done.counts || !fit->done.step_counts || !fit->done.counts_before))
        status = LS_OUT_OF_MEMORY;
    if (!status && fit->resumed.state)
        status = ls_fit_resume_history(fit);
    if (!status)
        status = ls_session_ready(model, &need);
    // To where the model goes back, should the fit fail. Of parameters in parts nobody makes a copy
    // unasked.
    if (!status && !ls_session_ahead_in_parts(model->session, LS_TAKE_WEIGHTS) &&
        !(model->ahead && was_short(model, model->steps_done - model->on_host.steps_done)))
        status = ls_model_take(model, LS_TAKE_ALL);
    fit->session = model->session;
    if (status)
        return status;
    if (fit->options->class_weight)
        status =
            ls_weighting_set(&fit->session->weighting, fit->options->class_weight, model->graph);
    if (status)
        return status;
    for (uint32_t i = 0; i < fit->session->count; i++) // the history is that of this fit, too
        ls_replica_forget_times(fit->session->replicas[i]);
    go_on_with_servers(fit);
    ls_driver_end_at_nan(fit->session->driver, ls_clients_terminate_on_nan(&fit->clients) != NULL);
    fit->hashes = calloc(ls_run_shares(fit->run), sizeof(*fit->hashes)); // 0: not known here
    if (!fit->hashes)
        return LS_OUT_OF_MEMORY;
    if (ls_driver_asynchronous(fit->session->driver))
        status = ls_async_steps_create(fit, &fit->async_steps);
    if (status)
        return status;
    fit->run->doing = "reading the data";
    const struct ls_model_order order = ls_fit_order(fit);
    fit->learns_classes = !model->class_names;
    status = ls_model_learn_classes(model, fit->train);
    if (!status)
        status = ls_session_set_data(fit->session, fit->train, fit->plan.shuffle,
                                     fit->plan.shuffle_buffer, &order);
    // What is wrong with the other split is said before the work, not after the first epoch.
    if (!status && fit->options->validation)
        status = ls_model_wait_data(model, fit->options->validation, true, &dataset);
    uint64_t contents; // are found before the first step; checkpoints have them
    if (!status && (fit->options->checkpoints || fit->run->most_workers))
        status = ls_data_contents(fit->train, &contents);
    if (!status)
        status = ls_workers_agree_on_examples(fit->run, fit->train, "--dataset");
    if (!status && dataset)
        status = ls_workers_agree_on_examples(fit->run, fit->options->validation,
                                              "the validation of --dataset");
    return status;
}

// The session is of no use for another fit: its threads were recorded, or it was interrupted within a step.
static bool ends_with_fit(const struct ls_fit *fit)
{
    return fit->options->timeline ||
           (fit->session->driver && ls_driver_aborted(fit->session->driver));
}

// The replicas agree. What is in host memory stays there until somebody asks for it (ls_model_take); what could be lost
// with a device comes to the host now.
static enum ls_status conclude_whole(struct ls_fit *fit, enum ls_status status)
{
    struct ls_model *model = fit->model;
    // Replicas that do not wait for each other have taken as many batches unless they were stopped.
    const bool alike = !fit->async_steps || (!status && !fit->done.stopped);
    const enum ls_status different = ls_session_hashes(fit->session, fit->hashes);
    if (different)
        return different;
    model->steps_done = most(model->steps_done, ls_driver_store_steps(fit->session->driver));
    model->order = ls_fit_order(fit);
    ls_session_note_order(fit->session, alike ? &model->order : NULL);
    const bool left = ls_driver_aborted(fit->session->driver); // the servers have the states
    if (!ends_with_fit(fit) && was_short(model, fit->done.steps - fit->resumed.steps))
        return LS_OK;
    const bool stays =
        ls_session_in_host_memory(fit->session) || ls_session_spreads_parameters(fit->session);
    return !ends_with_fit(fit) && stays
               ? ls_session_check_weights(fit->session)
               : ls_session_take(fit->session, left ? LS_TAKE_WEIGHTS : LS_TAKE_ALL);
}

// A replica failed. After a loss that is not finite no update was made, so that replicas and stores have what the steps
// before it made of them; after anything else nobody knows, and the model is what the host has.
static enum ls_status conclude_broken(struct ls_fit *fit, bool *not_finite)
{
    struct ls_model *model = fit->model;
    struct ls_session *session = fit->session;
    const uint64_t before = model->steps_done - fit->done.steps;
    const uint64_t failed = ls_session_explain(session);
    *not_finite = fit->together = failed;
    if (!*not_finite)
        return LS_OK;
    if (ls_optimizer_scales(&model->optimizer))
        model->scale = *ls_replica_scale_before(session->replicas[0]);
    if (!fit->async_steps) // the sums of the last of them may not have been seen
        fit->done.steps = failed - 1 - before;
    model->steps_done = most(before + fit->done.steps, ls_driver_store_steps(session->driver));
    model->order = ls_fit_order(fit);
    return ls_session_take(session, LS_TAKE_ALL);
}

// The same; a callback may have it that a loss that is not finite only ends the training.
static enum ls_status conclude_failure(struct ls_fit *fit, bool *terminated)
{
    const char *name = ls_clients_terminate_on_nan(&fit->clients);
    bool not_finite = false;
    char *error = NULL;
    if (name)
        ls_log_keep(&error);
    const enum ls_status status = conclude_broken(fit, &not_finite);
    ls_log_keep(NULL);
    *terminated = name && not_finite && !status;
    if (!*terminated) {
        ls_log_write_kept(&error);
        return status;
    }
    free(error); // what it says is not an error here
    ls_warn(name, "the loss of step %llu is not finite: the training ends with the step before",
            (unsigned long long)fit->done.steps + 1);
    fit->status = "stopped";
    snprintf(fit->clients.stopped_by, sizeof(fit->clients.stopped_by), "%s", name);
    return status;
}

// As in Keras the weights become their averages when the training ends. Without an update (a loss scale
// may have skipped all steps) there are none.
static enum ls_status take_averages(struct ls_fit *fit)
{
    struct ls_model *model = fit->model;
    const bool updated = fit->done.steps && ls_model_next_update(model) > 1;
    if (updated && ls_session_ahead_in_parts(fit->session, LS_TAKE_WEIGHTS))
        return ls_session_take_averages(fit->session);
    enum ls_status status = ls_model_take(model, LS_TAKE_ALL);
    if (!status) // those of a training that was resumed at its end
        status = ls_model_settle_saved(model);
    float **averages = model->states[model->optimizer.own_states];
    if (status || !averages || !updated)
        return status;
    for (uint32_t i = 0; i < model->graph->parameter_count; i++) {
        const struct ls_tensor *parameter = model->graph->parameters[i];
        if (parameter->zone == LS_ZONE_TRAINED)
            memcpy(model->weights[i], averages[i],
                   (size_t)ls_shape_elements(&parameter->shape, 1) * sizeof(float));
    }
    model->assigned = true;
    return LS_OK;
}

// The first of them was named.
static void say_skipped(const struct ls_fit *fit)
{
    if (fit->done.skipped_steps > 1)
        ls_info("train",
                "%" PRIu64 " of %" PRIu64 " steps were skipped, as their gradients were not "
                "finite; the loss scale is %g",
                fit->done.skipped_steps, fit->done.steps, (double)fit->model->scale.scale);
}

static enum ls_status conclude(struct ls_fit *fit, enum ls_status status)
{
    struct ls_model *model = fit->model;
    bool whole = status == LS_OK || status == LS_INTERRUPTED;
    enum ls_status after = LS_OK;
    if (fit->hashes && !fit->session->broken && (whole || fit->done.steps))
        after = conclude_whole(fit, status);
    if (whole && !after && fit->hashes && !fit->session->broken)
        after = ls_checkpoints_at_end(fit);
    if (!status && !after && fit->hashes && !fit->session->broken && fit->model->optimizer.averages)
        after = take_averages(fit);
    if (status == LS_INTERRUPTED && fit->done.steps && model->optimizer.averages)
        ls_info("train", "the weights are those of the last step and not their averages, as the "
                         "training was interrupted");
    if (fit->session && fit->session->broken) {
        bool terminated = false;
        const enum ls_status saved = conclude_failure(fit, &terminated);
        if (terminated) {
            whole = true;
            status = LS_OK;
        }
        after = after ? after : saved;
        fit->done.steps_reached = model->steps_done;
        ls_model_give_up(model);
    }
    if (whole)
        say_skipped(fit);
    if (status == LS_INTERRUPTED)
        fit->status = "interrupted";
    if (!whole || after)
        fit->status = "failed";
    status = status && status != LS_INTERRUPTED ? status : after ? after : status;
    fit->state.status = status;
    model->fitting = LS_FIT_ENDS;
    after = ls_clients_call(&fit->clients, LS_ON_TRAIN_END, &fit->state);
    return status && status != LS_INTERRUPTED ? status : after ? after : status;
}

// What belongs to the steps and the session of the workers that were; the state that the fit goes on
// from says the rest.
static void forget_steps(struct ls_fit *fit)
{
    ls_history_finish(&fit->history);
    free(fit->hashes);
    free(fit->done.counts);
    free(fit->done.step_counts);
    free(fit->done.counts_before);
    fit->hashes = NULL;
    fit->done.counts = fit->done.step_counts = fit->done.counts_before = NULL;
    memset(fit->done.epoch_statistics, 0, sizeof(fit->done.epoch_statistics));
    fit->session = NULL;
    fit->done.stopped = fit->done.epoch_ended = fit->resumed.in_epoch = fit->reforms = false;
    fit->resumed.first_epoch = fit->options->initial_epoch + 1;
    fit->resumed.seconds = 0;
    fit->done.epoch_examples = 0;
}

// The session is kept, unless it is of no use any more, or its threads were recorded.
static enum ls_status finish(struct ls_fit *fit)
{
    enum ls_status status = LS_OK;
    fit->model->fitting = LS_FIT_NONE;
    ls_progress_finish(&fit->bar);
    if (fit->session)
        ls_weighting_clear(&fit->session->weighting);
    if (fit->session && (fit->session->broken || ends_with_fit(fit)))
        status = ls_session_close(fit->model);
    if (fit->model->steps_done < fit->done.steps_before)
        ls_model_say_back(fit->model, fit->done.steps_reached);
    ls_async_steps_destroy(fit->async_steps);
    ls_history_finish(&fit->history);
    free(fit->hashes);
    free(fit->changes);
    ls_checkpoint_finish(&fit->kept);
    free(fit->done.counts);
    free(fit->done.step_counts);
    free(fit->done.counts_before);
    return status;
}

// A timeline shows how a session is opened, and is written when the session's threads have ended.
static enum ls_status close_for_timeline(struct ls_model *model)
{
    const enum ls_status status = ls_model_take(model, LS_TAKE_ALL);
    const enum ls_status closed = ls_session_close(model);
    return status ? status : closed;
}

// Everything up to the end of the last epoch, or to where it stopped.
static enum ls_status train(struct ls_fit *fit)
{
    enum ls_status status = prepare(fit);
    if (status)
        return status;
    if (fit->begun)
        status = ls_elastic_begin(fit);
    else {
        fit->done.steps_before = fit->done.steps_reached =
            fit->model->steps_done; // preparing may have taken some back
        ls_fit_say_notes(fit);
        fit->begun = true;
        status = ls_fit_begin_training(fit);
    }
    if (!status)
        status = ls_elastic_regroup(fit);
    return status ? status : ls_fit_run_epochs(fit);
}

static void init_progress(struct ls_fit *fit)
{
    enum ls_progress_kind kind = fit->run->progress;
    if (fit->options->progress && ls_run_is_chief(fit->run))
        kind = fit->options->progress == LS_PROGRESS_BAR ? LS_PROGRESS_BAR : LS_PROGRESS_LINES;
    ls_progress_init(&fit->bar, stdout, kind, fit->options->log_every);
}

// This worker may be the chief now, which prints.
static void print_anew(struct ls_fit *fit)
{
    ls_progress_finish(&fit->bar);
    init_progress(fit);
    fit->clients.list[0].callbacks = ls_progress_callbacks(&fit->bar);
}

// At its end the others go on without a worker 0 that is stopped now, or know that it writes the
// results: only one of both.
static enum ls_status train_and_confirm(struct ls_fit *fit)
{
    const enum ls_status status = train(fit);
    if (status && status != LS_INTERRUPTED)
        return status;
    const enum ls_status confirmed = ls_cluster_confirm(fit->run->workers.cluster);
    return confirmed ? confirmed : status;
}

// An elastic training goes on after a loss, and when new workers come.
static enum ls_status train_on(struct ls_fit *fit)
{
    enum ls_status status = train_and_confirm(fit);
    while (ls_elastic_may_go_on(fit, status)) {
        status = ls_elastic_leave(fit);
        if (status)
            break;
        status = ls_elastic_go_on(fit);
        if (status)
            continue; // somebody else was lost meanwhile, or it ends here
        const uint64_t resumed_steps = fit->resumed.steps; // from a disk
        forget_steps(fit);
        plan_steps(fit);
        fit->resumed.steps = resumed_steps;
        print_anew(fit);
        status = train_and_confirm(fit);
    }
    if (!fit->session) // it was closed, and there is nothing of its steps to be concluded
        forget_steps(fit);
    return status;
}

// What was checked and planned, from the preparation to what it leaves behind.
static enum ls_status run_fit(struct ls_fit *fit)
{
    struct ls_model *model = fit->model;
    model->fitting = LS_FIT_TRAINS;
    init_progress(fit);
    ls_fit_open_clients(fit);
    enum ls_status status = ls_fit_begin_timeline(fit);
    fit->done.steps_before = fit->done.steps_reached = model->steps_done;
    if (!status)
        status = train_on(fit);
    status = ls_run_end_interruption(model->run, status);
    const bool prepared = fit->hashes != NULL;
    const bool known = fit->session && fit->session->driver &&
                       ls_driver_not_finite(fit->session->driver); // by all workers
    if (status && status != LS_INTERRUPTED && !known)
        ls_workers_give_up(model->run);
    status = conclude(fit, status);
    const enum ls_status finished = finish(fit);
    status = status && status != LS_INTERRUPTED ? status : finished ? finished : status;
    return ls_fit_end_timeline(fit, prepared, status);
}

enum ls_status ls_fit_model(struct ls_model *model, struct ls_data *train,
                            const struct ls_fit_options *options)
{
    static const struct ls_fit_options defaults;
    struct ls_fit_options without;
    if (!options)
        options = &defaults;
    // Workers that train for themselves each would validate the same values.
    if (model->run->workers.served.servers && !ls_run_is_chief(model->run)) {
        without = *options;
        without.validation = NULL;
        options = &without;
    }
    struct ls_fit fit = {.model = model,
                         .run = model->run,
                         .options = options,
                         .train = train,
                         .resumed.first_epoch = options->initial_epoch + 1,
                         .done.startup_seconds = NAN,
                         .status = "done"};
    enum ls_status status = ls_fit_check(&fit);
    fit.joined = !status && ls_elastic_is_new(&fit);
    if (!status && !fit.joined)
        status = ls_agree_on_fit(&fit);
    if (!status && options->checkpoints)
        status = ls_checkpoints_open(&fit);
    if (!status)
        status = fit.joined ? ls_elastic_go_on(&fit) : ls_checkpoints_agree(&fit);
    if (!status) {
        plan_steps(&fit);
        status = options->timeline ? close_for_timeline(model) : LS_OK;
    }
    if (!status)
        status = run_fit(&fit);
    if (status == LS_PEER_LOST && fit.run->most_workers && !fit.begun)
        ls_error("elastic", "a worker was lost before the training began; start again");
    if (status && status != LS_INTERRUPTED && !fit.together)
        ls_workers_give_up(fit.run);
    ls_checkpoints_close(&fit);
    if (status && fit.learns_classes && !fit.done.steps) // nothing was learnt of them
        ls_model_set_classes(model, NULL);
    return status;
}

uint32_t ls_model_takes_classes(const struct ls_model *model)
{
    return model->compiled && ls_loss_takes_classes(&model->loss.list[0]);
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
