// SPDX-License-Identifier: Apache-2.0
// The state of a fit as JSON, and back: how far it is, its epochs, and the sums of the one under way.
#include "core/train/checkpoints.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/collective/communicator.h"
#include "core/model/checkpoint_file.h"
#include "core/data/data.h"
#include "core/train/fit.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCOPE "resume"

// JSON has no NaN.
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static double value_of(const json_t *json)
{
    return json_is_number(json) ? json_number_value(json) : (double)NAN;
}

static json_t *numbers(const double *values, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(array, number(values[i]));
    return array;
}

static bool read_numbers(const json_t *array, double *out, size_t count)
{
    if (json_array_size(array) != count)
        return false;
    for (size_t i = 0; i < count; i++)
        out[i] = value_of(json_array_get(array, i));
    return true;
}

// ---- Writing ----

static json_t *epoch_json(const struct ls_epoch *epoch)
{
    json_t *metrics = json_object();
    for (uint32_t i = 0; i < epoch->metrics.count; i++)
        json_object_set_new(metrics, epoch->metrics.list[i].name,
                            number(epoch->metrics.list[i].value));
    return json_pack("{s:I, s:I, s:I, s:o, s:o, s:o}", "epoch", (json_int_t)epoch->epoch, "steps",
                     (json_int_t)epoch->steps, "examples", (json_int_t)epoch->examples, "seconds",
                     number(epoch->seconds), "learning_rate", number(epoch->learning_rate),
                     "metrics", metrics);
}

static json_t *under_way(const struct ls_fit *fit)
{
    json_t *json = epoch_json(&fit->state.epoch);
    if (!json)
        return NULL;
    json_object_set_new(json, "seconds", number(ls_fit_epoch_seconds(fit)));
    json_object_set_new(json, "sums", numbers(fit->done.epoch_statistics, LS_STATISTICS));
    json_object_set_new(json, "counts", numbers(fit->done.counts, fit->model->graph->count_slots));
    return json;
}

static const char *shuffle_text(const struct ls_fit *fit)
{
    return fit->options->shuffle ? fit->options->shuffle : "on";
}

// What the choice of `auto` depends on.
static const char *tuning_setting(const struct ls_fit *fit, char text[static 160])
{
    const struct ls_run *run = fit->run;
    snprintf(text, 160, "%u ranks over %s on %s as %s", ls_cluster_world(run->workers.cluster),
             run->strategy.transport ? run->strategy.transport->plugin->name : "none",
             run->device->plugin->name, run->wire ? ls_wire_text(run->wire) : "float32");
    return text;
}

// What the order of examples is made of.
static json_t *data_json(const struct ls_fit *fit)
{
    char contents[24];
    uint64_t hash = 0;
    if (ls_data_contents(fit->train, &hash))
        return NULL;
    snprintf(contents, sizeof(contents), "%016" PRIx64, hash);
    return json_pack("{s:s, s:I, s:s}", "contents", contents, "examples",
                     (json_int_t)ls_data_count(fit->train), "shuffle", shuffle_text(fit));
}

// An epoch that ended early, by a number of steps or an interruption, is still under way: a training that
// goes on trains the rest of it.
json_t *ls_fit_save_state(struct ls_fit *fit, bool ended)
{
    const uint64_t number = fit->state.epoch.epoch;
    char setting[160];
    json_t *epochs = json_array();
    for (size_t i = 0; i < fit->history.epoch_count; i++)
        if (ended || fit->history.epochs[i].epoch != number)
            json_array_append_new(epochs, epoch_json(&fit->history.epochs[i]));
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "steps", (json_int_t)fit->done.steps,
        "skipped_steps", (json_int_t)fit->done.skipped_steps, "global_batch",
        (json_int_t)fit->plan.global_batch, "shards", (json_int_t)fit->run->shards, "seed",
        (json_int_t)fit->run->seed, "order", ls_checkpoint_order(&fit->plan.order), "data",
        data_json(fit), "epochs", epochs, "epoch",
        ended || fit->state.epoch.steps == 0 ? json_null() : under_way(fit), "tuning",
        ls_tuning_save(&fit->run->tuning, tuning_setting(fit, setting)));
}

// ---- Reading ----

static enum ls_status damaged(const char *what)
{
    ls_error(SCOPE, "the checkpoint is damaged: %s", what);
    return LS_BAD_INPUT;
}

// `saved` and `own` are what the training had, and what is given now. A new worker goes on from what the others
// have, and not from a checkpoint.
static enum ls_status refuse(const struct ls_fit *fit, const char *saved, const char *own)
{
    ls_error(SCOPE, "%s with %s, this %s has %s; give the same%s",
             fit->joined ? "the other workers train" : "the checkpoint was written", saved,
             fit->joined ? "worker" : "training", own,
             fit->joined ? "" : ", or begin anew with --initial-weights=CHECKPOINT");
    return LS_USAGE;
}

static enum ls_status check_number(const struct ls_fit *fit, const char *option, uint64_t saved,
                                   uint64_t own)
{
    char theirs[64], ours[64];
    if (saved == own)
        return LS_OK;
    snprintf(theirs, sizeof(theirs), "%s=%" PRIu64, option, saved);
    snprintf(ours, sizeof(ours), "%" PRIu64, own);
    return refuse(fit, theirs, ours);
}

// 0 is none, as in a checkpoint without "shards", which is an older one.
static enum ls_status check_shards(const struct ls_fit *fit)
{
    const uint64_t saved =
        (uint64_t)json_integer_value(json_object_get(fit->resumed.state, "shards"));
    char theirs[64] = "no --reproducible", ours[64] = "none";
    if (saved == fit->run->shards)
        return LS_OK;
    if (saved)
        snprintf(theirs, sizeof(theirs), "--reproducible=%" PRIu64, saved);
    if (fit->run->shards)
        snprintf(ours, sizeof(ours), "%u", fit->run->shards);
    return refuse(fit, theirs, ours);
}

// A checkpoint without "data" is an older one, which knows it by the user's text.
static enum ls_status check_data(const struct ls_fit *fit, uint64_t order_key)
{
    const json_t *saved = json_object_get(fit->resumed.state, "data");
    const char *contents = json_string_value(json_object_get(saved, "contents"));
    const char *shuffle = json_string_value(json_object_get(saved, "shuffle"));
    char theirs[128], ours[512];
    uint64_t own = 0, examples = 0;
    if (!saved && order_key != ls_fit_order_key(fit))
        return refuse(fit, "other data, or another --shuffle", fit->train->text);
    if (!saved)
        return LS_OK;
    if (!contents || !shuffle || !ls_checkpoint_count(saved, "examples", &examples))
        return damaged("what it was trained on is incomplete");
    if (strcmp(shuffle, shuffle_text(fit)) != 0) {
        snprintf(theirs, sizeof(theirs), "--shuffle=%.64s", shuffle);
        snprintf(ours, sizeof(ours), "--shuffle=%.64s", shuffle_text(fit));
        return refuse(fit, theirs, ours);
    }
    fit->run->doing = "reading the data";
    const enum ls_status status = ls_data_contents(fit->train, &own);
    if (status || strtoull(contents, NULL, 16) == own)
        return status;
    snprintf(theirs, sizeof(theirs), "other data (%" PRIu64 " examples, whose contents are %.16s)",
             examples, contents);
    snprintf(ours, sizeof(ours), "'%.400s' (%" PRIu64 " examples, %016" PRIx64 ")",
             fit->train->text, ls_data_count(fit->train), own);
    return refuse(fit, theirs, ours);
}

// The sums of an epoch under way go on only as those of the same metrics.
static enum ls_status check_metrics(const struct ls_fit *fit, const json_t *epoch)
{
    const json_t *saved = json_object_get(epoch, "metrics");
    const double none[LS_STATISTICS] = {0};
    struct ls_metrics own = {0};
    ls_metrics_append(&own, &fit->model->metrics, none, NULL, false);
    bool same = json_array_size(json_object_get(epoch, "counts")) == fit->model->graph->count_slots;
    for (uint32_t i = 0; same && i < own.count; i++)
        same = json_object_get(saved, own.list[i].name) != NULL;
    if (same || !json_is_object(epoch))
        return LS_OK;
    ls_error(SCOPE, "the checkpoint was written in the middle of an epoch, with other metrics; "
                    "give the same --metrics");
    return LS_USAGE;
}

enum ls_status ls_fit_resume_steps(struct ls_fit *fit)
{
    const json_t *saved = fit->resumed.state;
    struct ls_model_order order;
    uint64_t batch, seed;
    if (!ls_checkpoint_count(saved, "steps", &fit->done.steps) ||
        !ls_checkpoint_count(saved, "skipped_steps", &fit->done.skipped_steps) ||
        !ls_checkpoint_count(saved, "global_batch", &batch) ||
        !ls_checkpoint_count(saved, "seed", &seed) ||
        !ls_checkpoint_read_order(json_object_get(saved, "order"), &order))
        return damaged("how far the training was is incomplete");
    enum ls_status status = check_number(fit, "--batch", batch, fit->plan.global_batch);
    if (!status)
        status = check_number(fit, "--seed", seed, fit->run->seed);
    if (!status)
        status = check_shards(fit);
    if (!status)
        status = check_data(fit, order.key);
    if (!status &&
        (order.position >= ls_data_count(fit->train) || fit->done.skipped_steps > fit->done.steps))
        status = damaged("how far the training was makes no sense");
    order.key = ls_fit_order_key(fit); // the text may be another one
    if (!status)
        status = check_metrics(fit, json_object_get(saved, "epoch"));
    fit->plan.order = order;
    char setting[160];
    if (!status)
        status = ls_tuning_resume(&fit->run->tuning, json_object_get(saved, "tuning"),
                                  tuning_setting(fit, setting),
                                  ls_cluster_world(fit->run->workers.cluster));
    return status;
}

// The name as long as the process lasts; NULL: the model does not have this metric.
static const char *name_of(const struct ls_metric_set *set, const char *name, bool *upwards)
{
    struct ls_metrics all = {0};
    const double none[LS_STATISTICS] = {0};
    ls_metrics_append(&all, set, none, NULL, false);
    ls_metrics_append(&all, set, none, NULL, true);
    for (uint32_t i = 0; i < all.count; i++)
        if (strcmp(all.list[i].name, name) == 0) {
            *upwards = all.list[i].upwards;
            return all.list[i].name;
        }
    return NULL;
}

static const char *name_or_none(const char *name)
{
    return name ? name : "";
}

size_t ls_fit_find_callback(const struct ls_fit *fit, uint32_t index)
{
    const struct ls_callbacks *tables = fit->clients.tables;
    const json_t *saved = json_object_get(fit->resumed.state, "callbacks");
    const char *name = name_or_none(tables[index].name);
    size_t before = 0, at = 0;
    for (uint32_t i = 0; i < index; i++)
        before += strcmp(name_or_none(tables[i].name), name) == 0;
    for (; at < json_array_size(saved); at++) {
        const json_t *entry = json_array_get(saved, at);
        const char *there = json_string_value(json_object_get(entry, "name"));
        if (strcmp(name_or_none(there), name) == 0 && before-- == 0)
            break;
    }
    return at;
}

static bool read_epoch(const struct ls_fit *fit, const json_t *json, struct ls_epoch *out)
{
    const char *key;
    json_t *value;
    *out = (struct ls_epoch){.seconds = value_of(json_object_get(json, "seconds")),
                             .learning_rate = value_of(json_object_get(json, "learning_rate"))};
    if (!ls_checkpoint_count(json, "epoch", &out->epoch) || out->epoch == 0 ||
        !ls_checkpoint_count(json, "steps", &out->steps) ||
        !ls_checkpoint_count(json, "examples", &out->examples))
        return false;
    json_object_foreach(json_object_get(json, "metrics"), key, value)
    {
        struct ls_metric *metric = &out->metrics.list[out->metrics.count];
        bool upwards = false;
        const char *name = name_of(&fit->model->metrics, key, &upwards);
        if (!name || out->metrics.count == LS_METRICS)
            continue; // it was compiled with other metrics
        *metric = (struct ls_metric){.name = name, .value = value_of(value), .upwards = upwards};
        out->metrics.count++;
    }
    return true;
}

static enum ls_status resume_epoch(struct ls_fit *fit, const json_t *json)
{
    struct ls_epoch epoch;
    if (!read_epoch(fit, json, &epoch) ||
        !read_numbers(json_object_get(json, "sums"), fit->done.epoch_statistics, LS_STATISTICS) ||
        !read_numbers(json_object_get(json, "counts"), fit->done.counts_before,
                      fit->model->graph->count_slots))
        return damaged("the epoch under way is incomplete");
    // A worker that is lost before the first step goes on from here once more.
    memcpy(fit->done.counts, fit->done.counts_before,
           fit->model->graph->count_slots * sizeof(*fit->done.counts));
    fit->done.epoch_begun_ns = ls_clock_ns();
    fit->resumed.first_epoch = epoch.epoch;
    fit->resumed.seconds = epoch.seconds;
    fit->done.epoch_examples = epoch.examples;
    fit->state.epoch = epoch;
    fit->resumed.in_epoch = true;
    return LS_OK;
}

enum ls_status ls_fit_resume_history(struct ls_fit *fit)
{
    const json_t *epochs = json_object_get(fit->resumed.state, "epochs");
    const json_t *under_way = json_object_get(fit->resumed.state, "epoch");
    for (size_t i = 0; i < json_array_size(epochs); i++) {
        struct ls_epoch epoch;
        if (!read_epoch(fit, json_array_get(epochs, i), &epoch))
            return damaged("an epoch is incomplete");
        const enum ls_status status = ls_history_add_epoch(&fit->history, &epoch);
        if (status)
            return status;
        fit->resumed.first_epoch = epoch.epoch + 1;
    }
    fit->state.steps_done = fit->done.steps;
    for (size_t i = 0; i < fit->resumed.loss_count; i++)
        ls_history_add_loss(&fit->history, (double)fit->resumed.losses[i]);
    return json_is_object(under_way) ? resume_epoch(fit, under_way) : LS_OK;
}
