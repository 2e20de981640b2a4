// SPDX-License-Identifier: Apache-2.0
// Gathers what the run report says.
#include "core/model/learned_classes.h"
#include "core/train/fit.h"
#include "core/model/losses.h"

#include "core/base/options.h"
#include "core/base/threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PLUGINS 8 // but for what auto chose

static size_t add_plugin(const struct ls_opened_plugin *opened, struct ls_report_plugin *out)
{
    if (!opened)
        return 0;
    const char *slash = strrchr(opened->file, '/');
    *out = (struct ls_report_plugin){.kind = ls_kind_text(opened->plugin->kind),
                                     .name = opened->plugin->name,
                                     .version = opened->plugin->version,
                                     .file = slash ? slash + 1 : opened->file};
    return 1;
}

static bool reduces_some_bucket(const char *name, const struct ls_report_bucket *buckets,
                                size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (name && buckets[i].algorithm && strcmp(buckets[i].algorithm, name) == 0)
            return true;
    return false;
}

static size_t list_plugins(const struct ls_run *run, const struct ls_report_bucket *buckets,
                           size_t bucket_count, struct ls_report_plugin *out)
{
    size_t count = add_plugin(run->strategy.strategy, out);
    count += add_plugin(run->strategy.collective, out + count);
    for (size_t i = 0; i < run->tuning.count; i++)
        if (reduces_some_bucket(ls_tuning_candidate(&run->tuning, i), buckets, bucket_count))
            count += add_plugin(run->tuning.candidates[i], out + count);
    count += add_plugin(run->mixed.route ? run->mixed.near : run->strategy.transport, out + count);
    count += add_plugin(run->mixed.far, out + count);
    count += add_plugin(run->total_collective, out + count);
    count += add_plugin(run->total_transport, out + count);
    count += add_plugin(run->filter, out + count);
    return count + add_plugin(run->device, out + count);
}

// Lists that the report borrows while it is written.
struct lists {
    struct ls_report_pair *options;
    struct ls_report_bucket *buckets;
    uint64_t *shares;
    struct ls_report_plugin *plugins;
    char library[64]; // of the collective
    uint64_t *lost;
    struct ls_report_fact *facts;
    struct ls_spec dataset; // as the user wrote it
    struct ls_report_pair *dataset_options;
    struct ls_report_number optimizer[LS_OPTIMIZER_OPTIONS];
    size_t optimizer_count;
    char loss[96];
    char recording[LS_RECORDING_TEXT];
    struct ls_report_worker *workers;
};

// 0.9, not 0.899999976, which is what float32 makes of it.
static void add_number(struct lists *lists, const char *name, float value)
{
    char digits[32];
    snprintf(digits, sizeof(digits), "%.7g", (double)value);
    lists->optimizer[lists->optimizer_count++] =
        (struct ls_report_number){name, strtod(digits, NULL)};
}

static void list_optimizer(const struct ls_optimizer *optimizer, struct lists *out)
{
    for (uint32_t i = 0; i < optimizer->option_count; i++)
        add_number(out, optimizer->options[i].name, (float)optimizer->options[i].value);
}

static bool list_dataset(const struct ls_fit *fit, struct lists *out)
{
    if (ls_spec_parse("--dataset", fit->train->text, &out->dataset))
        return false;
    const size_t count = out->dataset.option_count;
    out->dataset_options = calloc(count + 1, sizeof(*out->dataset_options));
    for (size_t i = 0; out->dataset_options && i < count; i++)
        out->dataset_options[i] =
            (struct ls_report_pair){out->dataset.options[i].name, out->dataset.options[i].value};
    return out->dataset_options != NULL;
}

static uint32_t count_workers(const struct ls_run *run)
{
    return run->workers.served.servers ? run->workers.served.workers
                                       : ls_cluster_workers(run->workers.cluster);
}

static bool make_lists(const struct ls_fit *fit, struct lists *out)
{
    const struct ls_run *run = fit->run;
    const struct ls_buckets *buckets = ls_replica_buckets(fit->session->replicas[0]);
    const uint32_t world = ls_run_shares(run);
    out->options = calloc(run->strategy.option_count + 1, sizeof(*out->options));
    out->buckets = calloc(buckets->count, sizeof(*out->buckets));
    out->shares = calloc(world, sizeof(*out->shares));
    out->plugins = calloc(PLUGINS + run->tuning.count, sizeof(*out->plugins));
    out->lost = calloc(world, sizeof(*out->lost));
    out->workers = calloc(count_workers(run), sizeof(*out->workers));
    if (!out->workers || !out->options || !out->buckets || !out->shares || !out->plugins ||
        !out->lost)
        return false;
    for (size_t i = 0; i < run->strategy.option_count; i++)
        out->options[i] =
            (struct ls_report_pair){run->strategy.options[i].name, run->strategy.options[i].value};
    for (uint32_t i = 0; i < buckets->count; i++) {
        uint64_t first, count;
        ls_buckets_reduced(buckets, i, &first, &count);
        out->buckets[i].bytes = count * (run->shards ? sizeof(int64_t) : sizeof(float));
        out->buckets[i].algorithm = ls_run_algorithm(run, out->buckets[i].bytes);
    }
    list_optimizer(&fit->model->optimizer, out);
    const uint64_t examples = ls_data_count(fit->train);
    const uint64_t batch = fit->plan.global_batch < examples ? fit->plan.global_batch : examples;
    const struct ls_shares shares = ls_model_division(fit->model);
    for (uint32_t i = 0; i < world; i++) {
        uint64_t offset;
        ls_share(&shares, batch, fit->session->need.microbatches, i, &offset, &out->shares[i]);
    }
    return list_dataset(fit, out);
}

static void free_lists(struct lists *lists)
{
    ls_spec_finish(&lists->dataset);
    free(lists->dataset_options);
    free(lists->options);
    free(lists->buckets);
    free(lists->shares);
    free(lists->plugins);
    free(lists->lost);
    free(lists->facts);
    free(lists->workers);
}

static const char *plugin_name(const struct ls_opened_plugin *opened)
{
    return opened ? opened->plugin->name : NULL;
}

// Of a text; the data has been read.
static void describe_vocabulary(const struct ls_fit *fit, struct ls_report *report)
{
    const struct ls_dataset *dataset = fit->train->dataset;
    if (dataset && ls_model_wait_data(fit->model, fit->train, true, &dataset))
        return;
    const struct ls_field *target =
        dataset ? ls_field_find(dataset->fields, dataset->field_count, LS_FIELD_TARGET, 0) : NULL;
    if (!target || !target->text)
        return;
    report->vocabulary = target->class_names;
    report->vocabulary_size = target->class_count;
}

// All have the same status but after a failure, of which nobody tells the others.
static void list_workers(const struct ls_fit *fit, struct ls_report_worker *out)
{
    const struct ls_cluster *cluster = fit->run->workers.cluster;
    const uint32_t *owners = ls_cluster_rank_workers(cluster);
    const bool failed = strcmp(fit->status, "failed") == 0;
    const struct ls_worker_place *served = &fit->run->workers.served;
    for (uint32_t i = 0; served->servers && i < served->workers; i++) {
        const bool own = i == served->number; // nobody asks the others, who come and go
        out[i] = (struct ls_report_worker){.host = own ? fit->run->workers.hosts[0] : "unknown",
                                           .first_rank = i * ls_cluster_count(cluster),
                                           .replicas = ls_cluster_count(cluster),
                                           .status = own ? fit->status : "unknown"};
    }
    if (served->servers)
        return;
    for (uint32_t i = ls_cluster_world(cluster); i-- > 0;) {
        out[owners[i]].first_rank = i;
        out[owners[i]].replicas++;
    }
    for (uint32_t i = 0; i < ls_cluster_workers(cluster); i++) {
        out[i].host = fit->run->workers.hosts[i];
        out[i].status = failed && i != ls_cluster_worker(cluster) ? "unknown" : fit->status;
    }
}

static void describe_setting(const struct ls_fit *fit, struct lists *lists,
                             struct ls_report *report)
{
    const struct ls_run *run = fit->run;
    const struct ls_model *model = fit->model;
    report->command = fit->options->command ? fit->options->command : "train";
    report->strategy = plugin_name(run->strategy.strategy);
    report->collective = plugin_name(run->strategy.collective);
    report->transport = plugin_name(run->strategy.transport);
    if (run->strategy.collective && ls_cluster_world(run->workers.cluster) > 1)
        report->wire = ls_wire_text(run->wire);
    if (run->filter && ls_cluster_world(run->workers.cluster) > 1)
        report->compress = run->compress;
    if (run->topology.text)
        report->topology = (struct ls_report_topology){.source = run->topology.text,
                                                       .world = run->topology.world,
                                                       .hosts = run->topology.around.hosts,
                                                       .cards = run->topology.around.cards,
                                                       .order = run->topology.around.order};
    report->device = plugin_name(run->device);
    report->hardware = run->hardware;
    report->precision = ls_graph_precision(model->graph);
    report->workers = count_workers(run);
    report->replicas = ls_run_shares(run);
    list_workers(fit, lists->workers);
    report->worker_reports = lists->workers;
    report->threads_per_replica = run->threads;
    report->seed = run->seed;
    report->optimizer = model->optimizer.name;
    report->learning_rate = model->optimizer.learning_rate;
    if (model->optimizer.excluded[0])
        report->excluded = model->optimizer.excluded;
    report->schedule = model->schedule;
    report->class_weight = fit->options->class_weight;
    ls_loss_set_text(&model->loss, model->graph, lists->loss, sizeof(lists->loss));
    report->loss = lists->loss;
    report->shuffle = fit->options->shuffle ? fit->options->shuffle : "on";
    report->accumulate = fit->options->accumulate ? fit->options->accumulate : 1;
    report->microbatches = fit->plan.microbatches;
    report->shards = fit->run->shards;
    report->model = model->source;
    report->dataset = fit->train->name;
    report->parameters = ls_model_parameters(model);
    report->global_batch = fit->plan.global_batch;
}

static void describe_result(const struct ls_fit *fit, struct lists *lists, struct ls_report *report)
{
    const struct ls_history *history = &fit->history;
    const struct ls_replica *replica = fit->session->replicas[0];
    report->status = fit->status;
    report->resumed_from_step = fit->resumed.steps;
    report->changes = fit->changes;
    report->change_count = fit->change_count;
    report->stopped_by = fit->clients.stopped_by[0] ? fit->clients.stopped_by : NULL;
    report->steps = fit->done.steps;
    report->scales_loss = ls_optimizer_scales(&fit->model->optimizer);
    report->loss_scale = (double)fit->model->scale.scale;
    report->skipped_steps = fit->done.skipped_steps;
    report->startup_seconds = fit->done.startup_seconds;
    report->epochs = history->epochs;
    report->epoch_count = history->epoch_count;
    report->losses = history->losses;
    report->loss_count = history->loss_count;
    report->layout = "master";
    report->recording = ls_replica_recording(replica, lists->recording, sizeof(lists->recording));
    report->peak_rss_bytes = ls_peak_rss_bytes();
    ls_replica_bytes(replica, &report->device_bytes, &report->arena_bytes);
    if (ls_device_in_host_memory(ls_replica_device(replica)))
        report->device_bytes = 0;
    if (strcmp(fit->status, "failed") != 0)
        report->parameter_hashes = fit->hashes;
    if (!fit->session->driver)
        return;
    report->bytes_per_step_per_rank = ls_driver_bytes_per_step(fit->session->driver);
    report->filter_bytes = ls_driver_filter_memory(fit->session->driver);
    report->schedule_check = ls_driver_schedule_check(fit->session->driver, NULL);
    const struct ls_driver_totals totals = ls_driver_totals(fit->session->driver);
    report->statistics = (struct ls_report_statistics){.collective = totals.collective,
                                                       .transport = totals.transport,
                                                       .reductions = totals.count,
                                                       .bytes = totals.bytes};
}

// What the strategy says of itself, and which replicas it went on without.
static enum ls_status describe_strategy(const struct ls_fit *fit, struct lists *lists,
                                        struct ls_report *report)
{
    struct ls_driver *driver = fit->session->driver;
    if (!driver)
        return LS_OK;
    size_t count = 0;
    const struct ls_driver_metric *facts = ls_driver_describe(driver, &count);
    lists->facts = calloc(count + 1, sizeof(*lists->facts));
    if (!lists->facts)
        return LS_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++)
        lists->facts[i] = (struct ls_report_fact){.name = facts[i].name,
                                                  .values = facts[i].values,
                                                  .count = facts[i].count,
                                                  .list = facts[i].list};
    report->facts = lists->facts;
    report->fact_count = count;
    report->lost_replicas = lists->lost;
    for (uint32_t i = 0; i < fit->session->count; i++)
        if (ls_driver_is_lost(driver, i))
            lists->lost[report->lost_count++] = ls_session_rank(fit->session, i);
    return LS_OK;
}

static enum ls_status write_report(const struct ls_fit *fit)
{
    struct lists lists = {0};
    struct ls_report report = {0};
    enum ls_status status = make_lists(fit, &lists) ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_history_times(&fit->history, &report.times);
    if (ls_device_blocking(ls_replica_device(fit->session->replicas[0])))
        report.times.device = NAN; // nobody waits for it
    if (!status)
        status = describe_strategy(fit, &lists, &report);
    if (!status)
        status = ls_tuning_report(&fit->run->tuning, &report.tuner);
    if (!status) {
        report.plugins = lists.plugins;
        ls_run_library(fit->run, lists.library);
        report.plugin_count =
            list_plugins(fit->run, lists.buckets,
                         ls_replica_buckets(fit->session->replicas[0])->count, lists.plugins);
        for (size_t i = 0; i < report.plugin_count; i++)
            if (strcmp(lists.plugins[i].kind, ls_kind_text(LS_KIND_COLLECTIVE)) == 0)
                lists.plugins[i].library = lists.library;
        report.options = lists.options;
        report.option_count = fit->run->strategy.option_count;
        report.buckets = lists.buckets;
        report.bucket_count = ls_replica_buckets(fit->session->replicas[0])->count;
        report.replica_batches = lists.shares;
        report.dataset_options = lists.dataset_options;
        report.dataset_option_count = lists.dataset.option_count;
        report.optimizer_options = lists.optimizer;
        report.optimizer_option_count = lists.optimizer_count;
        describe_setting(fit, &lists, &report);
        describe_vocabulary(fit, &report);
        describe_result(fit, &lists, &report);
        status = ls_report_write(fit->options->report, &report);
    }
    ls_tuning_report_finish(&report.tuner);
    free_lists(&lists);
    return status;
}

static enum ls_status on_train_end(void *context, const struct ls_fit_state *state)
{
    struct ls_fit *fit = context;
    if (!fit->options->report || !fit->hashes || !ls_run_is_chief(fit->run))
        return LS_OK;
    if (fit->run->most_workers && state->status == LS_PEER_LOST)
        return LS_OK; // there may be the report of a successor
    if (state->status == LS_OK)
        fit->run->doing = "writing the report";
    return write_report(fit);
}

struct ls_client ls_fit_report_client(struct ls_fit *fit)
{
    return (struct ls_client){.callbacks = {.context = fit, .on_train_end = on_train_end}};
}
