// SPDX-License-Identifier: Apache-2.0
#include "core/train/agreement.h"

#include "core/base/hash.h"
#include "core/base/memory.h"
#include "core/base/random.h"
#include "core/train/callback_plugins.h"
#include "core/train/fit.h"
#include "core/model/losses.h"
#include "core/run/workers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ITEMS 40
#define DATA_ITEMS 3 // the model, the data and the batch

struct agreement {
    struct ls_worker_item items[MOST_ITEMS];
    uint32_t count;
};

static struct ls_worker_item *add(struct agreement *all, const char *name, const char *value)
{
    struct ls_worker_item *item = &all->items[all->count++];
    item->name = name;
    snprintf(item->value, sizeof(item->value), "%s", value);
    if (strlen(value) >= sizeof(item->value))
        item->key = ls_random_key_text(1, value);
    return item;
}

static void add_count(struct agreement *all, const char *name, uint64_t number)
{
    struct ls_worker_item *item = add(all, name, "");
    snprintf(item->value, sizeof(item->value), "%" PRIu64, number);
}

static const char *or_none(const char *text)
{
    return text ? text : "(none)";
}

// Numbers differ where any bit does, and not only where what is shown of them does.
static void mix(uint64_t *key, double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof(bits));
    *key = ls_random_key(*key, bits);
}

// ---- The model and its data ----

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// The first DATA_ITEMS: the model, the data and the batch.
static void describe(struct ls_model *model, const struct ls_data *data, uint64_t global_batch,
                     struct ls_worker_item *items)
{
    char *json = json_dumps(model->json, JSON_COMPACT | JSON_SORT_KEYS);
    memset(items, 0, DATA_ITEMS * sizeof(*items));
    items[0].name = "--model";
    snprintf(items[0].value, sizeof(items[0].value), "%.120s (%llu parameters, %08x)",
             last_part(model->source), (unsigned long long)ls_model_parameters(model),
             json ? (unsigned)ls_random_key_text(1, json) : 0);
    free(json);
    ls_workers_describe_data(data, "--dataset", &items[1]);
    items[2].name = "--batch";
    snprintf(items[2].value, sizeof(items[2].value), "%llu", (unsigned long long)global_batch);
}

// ---- What a model is compiled with ----

// Each replica updates its parameters itself: with other options they would drift apart. `rate`: later
// a callback may have set another one, which a new worker is given.
static void add_optimizer(struct agreement *all, const struct ls_optimizer *optimizer, bool rate)
{
    struct ls_worker_item *item = add(all, "--optimizer", optimizer->name);
    size_t used = strlen(item->value);
    item->key = ls_random_key_text(ls_random_key_text(1, optimizer->name), optimizer->excluded);
    if (rate) {
        used += (size_t)snprintf(item->value + used, sizeof(item->value) - used,
                                 ":learning_rate=%.9g", optimizer->learning_rate);
        mix(&item->key, optimizer->learning_rate);
    }
    for (uint32_t i = 0; i < optimizer->option_count; i++) {
        if (used < sizeof(item->value))
            used += (size_t)snprintf(item->value + used, sizeof(item->value) - used, "%c%s=%.9g",
                                     used > strlen(optimizer->name) ? ',' : ':',
                                     optimizer->options[i].name, optimizer->options[i].value);
        item->key = ls_random_key_text(item->key, optimizer->options[i].name);
        mix(&item->key, optimizer->options[i].value);
    }
}

static void add_schedule(struct agreement *all, const struct ls_optimizer *optimizer)
{
    const struct ls_rate_schedule *schedule = &optimizer->schedule;
    const bool constant = schedule->kind == LS_RATE_CONSTANT;
    const double shape[] = {
        schedule->initial,       schedule->decay_steps,  schedule->decay_rate,  schedule->end,
        schedule->power,         schedule->alpha,        schedule->t_mul,       schedule->m_mul,
        schedule->staircase,     schedule->cycle,        schedule->warms_up,    schedule->count,
        schedule->warmup_target, schedule->warmup_steps, optimizer->rate_factor};
    uint64_t curve = 1;
    for (size_t i = 0; i < sizeof(shape) / sizeof(*shape); i++)
        mix(&curve, shape[i]);
    for (uint32_t i = 0; i < schedule->count; i++) {
        mix(&curve, (double)schedule->boundaries[i]);
        mix(&curve, (double)schedule->values[i]);
    }
    struct ls_worker_item *item = add(all, "--learning-rate-schedule", "(none)");
    if (!constant)
        snprintf(item->value, sizeof(item->value), "%s (%08x)", schedule->name, (unsigned)curve);
}

static void add_scale(struct agreement *all, const struct ls_loss_scale *scale)
{
    struct ls_worker_item *item = add(all, "--loss-scale", "");
    snprintf(item->value, sizeof(item->value), "%s from %.9g, growing after %" PRIu64 " steps",
             scale->kind == LS_NO_SCALE        ? "no scale"
             : scale->kind == LS_DYNAMIC_SCALE ? "a dynamic scale"
                                               : "a fixed scale",
             (double)scale->initial, scale->growth_steps);
}

static void add_loss(struct agreement *all, const struct ls_model *model)
{
    struct ls_worker_item *item = add(all, "--loss", "");
    ls_loss_set_text(&model->loss, model->graph, item->value, sizeof(item->value));
    item->key = 1;
    for (uint32_t i = 0; i < model->loss.count; i++) {
        const struct ls_loss *loss = &model->loss.list[i];
        char text[256];
        ls_loss_text(loss, text, sizeof(text));
        item->key = ls_random_key_text(item->key, loss->composed ? loss->composed->text : text);
        if (loss->kind == LS_LOSS_OTHER && loss->function == LS_LOSS_HUBER)
            mix(&item->key, (double)loss->delta);
        mix(&item->key, (double)loss->smoothing);
    }
}

static void add_loss_weights(struct agreement *all, const struct ls_loss_set *set)
{
    struct ls_worker_item *item = add(all, "--loss-weights", "");
    size_t used = 0;
    item->key = 1;
    for (uint32_t i = 0; i < set->count; i++) {
        const double factor = set->list[i].scaled ? (double)set->list[i].factor : 1;
        mix(&item->key, factor);
        if (used < sizeof(item->value))
            used += (size_t)snprintf(item->value + used, sizeof(item->value) - used, "%s%.9g",
                                     i ? "," : "", factor);
    }
}

// All workers add what each has counted. Metrics of one name may count other things.
static void add_metrics(struct agreement *all, const struct ls_metric_set *metrics)
{
    struct ls_worker_item *item = add(all, "--metrics", "");
    size_t used = 0;
    item->key = 1;
    for (uint32_t i = 0; i < metrics->count; i++) {
        const struct ls_metric_source *metric = &metrics->list[i];
        const struct ls_op_attributes *how = &metric->counts.attributes;
        const double facts[] = {
            metric->kind,           metric->statistic,     metric->counts.op, metric->counts.slots,
            metric->counts.output,  how->function,         how->count,        how->from_logits,
            (double)how->threshold, (double)how->smoothing};
        item->key = ls_random_key_text(item->key, metric->name);
        item->key = ls_random_key_text(item->key, metric->composed ? metric->composed->text : "");
        for (size_t k = 0; k < sizeof(facts) / sizeof(*facts); k++)
            mix(&item->key, facts[k]);
        for (uint32_t k = 0; k < metric->threshold_count; k++)
            mix(&item->key, (double)metric->thresholds[k]);
        if (used < sizeof(item->value))
            used += (size_t)snprintf(item->value + used, sizeof(item->value) - used, "%s%s",
                                     i ? "," : "", metric->name);
    }
    char options[24];
    const int length = snprintf(options, sizeof(options), " (%08x)", (unsigned)item->key);
    const size_t room = sizeof(item->value) - (size_t)length - 1;
    memcpy(item->value + (used < room ? used : room), options, (size_t)length + 1);
}

static void add_compiled(struct agreement *all, const struct ls_model *model, bool trains,
                         bool rate)
{
    add_loss(all, model);
    add_loss_weights(all, &model->loss);
    add_metrics(all, &model->metrics);
    if (!trains)
        return;
    add_optimizer(all, &model->optimizer, rate);
    add_schedule(all, &model->optimizer);
    add_scale(all, &model->optimizer.loss_scale);
}

// ---- Where a model is ----

static void add_place(struct agreement *all, const struct ls_model *model)
{
    struct ls_worker_item *item = add(all, "a model that is at", "");
    snprintf(item->value, sizeof(item->value),
             "step %" PRIu64 ", epoch %" PRIu64 ", example %" PRIu64, model->steps_done,
             model->order.epochs, model->order.position);
}

// Of weights that the host has, which the program may have set.
struct weights {
    uint64_t known, assigned, hash;
};

static enum ls_status hash_weights(struct ls_model *model, struct weights *out)
{
    *out = (struct weights){.known = !model->ahead, .assigned = model->assigned};
    if (model->ahead)
        return LS_OK;
    const struct ls_graph *graph = model->graph;
    struct ls_hash *hash = ls_hash_create();
    enum ls_status status = hash ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < graph->parameter_count; i++) {
        // Values of which the host has no copy are not kept.
        const size_t bytes =
            (size_t)ls_shape_elements(&graph->parameters[i]->shape, 1) * sizeof(float);
        float *own = model->weights ? NULL : ls_malloc_aligned(bytes);
        if (!model->weights)
            status = own ? ls_model_read_values(model, i, -1, own) : LS_OUT_OF_MEMORY;
        if (!status)
            ls_hash_add(hash, own ? own : model->weights[i], bytes);
        free(own);
    }
    if (!status)
        out->hash = ls_hash_get(hash);
    ls_hash_destroy(hash);
    return status;
}

static bool differ(const struct weights *one, const struct weights *other)
{
    if (one->known && other->known)
        return one->hash != other->hash;
    return one->assigned || other->assigned; // the other goes on with what was trained
}

// A worker whose replicas are ahead of the host has what all have trained.
static enum ls_status agree_on_weights(struct ls_model *model)
{
    struct ls_cluster *cluster = model->run->workers.cluster;
    const uint32_t workers = ls_cluster_workers(cluster);
    struct weights mine, *all = calloc(workers, sizeof(*all));
    enum ls_status status = all ? hash_weights(model, &mine) : LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_cluster_gather_workers(cluster, &mine, sizeof(mine), all);
    model->set_key = 0;
    for (uint32_t i = 1; !status && i < workers; i++)
        if (differ(&all[0], &all[i]))
            status = ls_workers_refuse(model->run, i,
                                       "other weights than worker 0: load and set "
                                       "the same on all workers, or call "
                                       "ls_broadcast_variables");
    free(all);
    return status;
}

enum ls_status ls_agree_on_loaded_weights(struct ls_model *model, const char *file)
{
    const struct ls_graph *graph = model->graph;
    struct ls_worker_item item = {.name = "--initial-weights", .value = "(none)"};
    // The others do not ask a new worker, which is given weights.
    if (ls_cluster_workers(model->run->workers.cluster) == 1 || !model->run->workers.met)
        return LS_OK;
    if (file) {
        struct ls_hash *hash = ls_hash_create();
        if (!hash)
            return LS_OUT_OF_MEMORY;
        for (uint32_t i = 0; i < graph->parameter_count; i++)
            ls_hash_add(hash, model->weights[i],
                        (size_t)ls_shape_elements(&graph->parameters[i]->shape, 1) * sizeof(float));
        for (uint32_t i = 0; model->class_names && i < model->class_names->count; i++)
            ls_hash_add(hash, model->class_names->names[i],
                        strlen(model->class_names->names[i]) + 1);
        snprintf(item.value, sizeof(item.value), "%.200s (%016llx)", last_part(file),
                 (unsigned long long)ls_hash_get(hash));
        ls_hash_destroy(hash);
    }
    return ls_workers_agree(model->run, &item, 1);
}

// ---- What is done together ----

enum ls_status ls_agree_on_evaluation(struct ls_model *model, const struct ls_data *data,
                                      uint64_t global_batch, bool scores)
{
    struct agreement all = {.count = DATA_ITEMS};
    if (ls_cluster_workers(model->run->workers.cluster) == 1)
        return LS_OK;
    describe(model, data, global_batch, all.items);
    if (scores)
        add_compiled(&all, model, false, false);
    return ls_workers_agree(model->run, all.items, all.count);
}

enum ls_status ls_agree_on_loop(struct ls_model *model, const struct ls_data *data,
                                uint64_t global_batch, const char *shuffle)
{
    struct agreement all = {.count = DATA_ITEMS};
    if (ls_cluster_workers(model->run->workers.cluster) == 1)
        return LS_OK;
    describe(model, data, global_batch, all.items);
    add_compiled(&all, model, true, true);
    add_place(&all, model);
    add(&all, "shuffle", or_none(shuffle));
    const enum ls_status status = ls_workers_agree(model->run, all.items, all.count);
    return status || !shuffle ? status : agree_on_weights(model);
}

static void add_epochs(struct agreement *all, const struct ls_fit_options *options)
{
    struct ls_worker_item *item = add(all, "initial_epoch and validation_freq", "");
    size_t used = (size_t)snprintf(item->value, sizeof(item->value), "%" PRIu64 ", %" PRIu64,
                                   options->initial_epoch, options->validation_freq);
    item->key = ls_random_key(ls_random_key(1, options->initial_epoch), options->validation_freq);
    for (uint32_t i = 0; i < options->validation_epoch_count; i++) {
        item->key = ls_random_key(item->key, options->validation_epochs[i]);
        if (used < sizeof(item->value))
            used += (size_t)snprintf(item->value + used, sizeof(item->value) - used, " %" PRIu64,
                                     options->validation_epochs[i]);
    }
}

// The one that writes them may be another one after a loss. Where each goes on from is compared by
// itself (ls_checkpoints_agree), and a new worker goes on from what it is given.
static void add_checkpoints(struct agreement *all, const struct ls_checkpoint_options *options)
{
    struct ls_worker_item *item = add(all, "the checkpoint options", "(none)");
    if (!options)
        return;
    snprintf(item->value, sizeof(item->value),
             "steps=%" PRIu64 ", seconds=%g, keep=%u, best=%s, name=%s", options->steps,
             options->seconds, options->keep, or_none(options->best), or_none(options->name));
    item->key = ls_random_key_text(ls_random_key_text(1, or_none(options->name)), item->value);
    mix(&item->key, options->seconds);
}

static enum ls_status add_callbacks(struct agreement *all, const struct ls_fit_options *options)
{
    struct ls_worker_item *item = add(all, "--callback", "(none)");
    bool terminates = false;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < options->callback_count; i++) {
        terminates |= options->callbacks[i].terminate_on_nan != 0;
        ls_callback_describe(&options->callbacks[i], out);
    }
    const bool written = !fclose(out);
    if (written && bytes)
        snprintf(item->value, sizeof(item->value), "%s", text);
    item->key = ls_random_key_text(1, text ? text : "");
    free(text);
    add(all, "a callback that ends the training at a loss that is not finite",
        terminates ? "yes" : "(none)");
    return written ? LS_OK : LS_OUT_OF_MEMORY;
}

enum ls_status ls_agree_on_fit(struct ls_fit *fit)
{
    const struct ls_fit_options *options = fit->options;
    const bool together =
        ls_cluster_generation(fit->run->workers.cluster) == 0; // from the beginning
    struct agreement all = {.count = DATA_ITEMS};
    if (ls_cluster_workers(fit->run->workers.cluster) == 1)
        return LS_OK;
    const uint32_t times = options->accumulate > 1 ? options->accumulate : 1;
    describe(fit->model, fit->train, fit->plan.global_batch / times, all.items);
    add_count(&all, "--epochs", options->epochs);
    add_count(&all, "--steps", options->steps);
    add_count(&all, "--microbatches", options->microbatches > 1 ? options->microbatches : 1);
    add_count(&all, "--accumulate", times);
    add_count(&all, "--check-replicas", options->check_replicas);
    add(&all, "--shuffle", options->shuffle ? options->shuffle : "on");
    add(&all, "--class-weight", or_none(options->class_weight));
    add_compiled(&all, fit->model, true, !fit->begun && !fit->joined);
    ls_workers_describe_data(options->validation, "--validation-dataset", &all.items[all.count++]);
    add_epochs(&all, options);
    add(&all, "--timeline", options->timeline ? "given" : "(none)");
    add_checkpoints(&all, options->checkpoints);
    enum ls_status status = add_callbacks(&all, options);
    if (together)
        add_place(&all, fit->model);
    else
        fit->model->set_key = 0; // a new worker is given what was set
    if (!status)
        status = ls_workers_agree(fit->run, all.items, all.count);
    return status || !together ? status : agree_on_weights(fit->model);
}
