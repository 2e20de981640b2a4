// SPDX-License-Identifier: Apache-2.0
// Gathers what the run report says.
#include "core/train/fit.h"

#include "core/base/threads.h"

#include <stdlib.h>
#include <string.h>

#define PLUGINS 4

static size_t list_plugins(const struct ls_run *run, struct ls_report_plugin *out)
{
    const struct ls_opened_plugin *const opened[PLUGINS] = {
        run->strategy.strategy, run->strategy.collective, run->strategy.transport, run->device};
    size_t count = 0;
    for (size_t i = 0; i < PLUGINS; i++) {
        if (!opened[i])
            continue;
        const char *slash = strrchr(opened[i]->file, '/');
        out[count++] = (struct ls_report_plugin){.kind = ls_kind_text(opened[i]->plugin->kind),
                                                 .name = opened[i]->plugin->name,
                                                 .version = opened[i]->plugin->version,
                                                 .file = slash ? slash + 1 : opened[i]->file};
    }
    return count;
}

// Lists that the report borrows while it is written.
struct lists {
    struct ls_report_pair *options;
    struct ls_report_bucket *buckets;
    uint64_t *shares;
};

static bool make_lists(const struct ls_fit *fit, struct lists *out)
{
    const struct ls_run *run = fit->run;
    const struct ls_buckets *buckets = &fit->trainer->replicas[0]->buckets;
    out->options = calloc(run->strategy.option_count + 1, sizeof(*out->options));
    out->buckets = calloc(buckets->count, sizeof(*out->buckets));
    out->shares = calloc(run->replicas, sizeof(*out->shares));
    if (!out->options || !out->buckets || !out->shares)
        return false;
    for (size_t i = 0; i < run->strategy.option_count; i++)
        out->options[i] =
            (struct ls_report_pair){run->strategy.options[i].name, run->strategy.options[i].value};
    for (uint32_t i = 0; i < buckets->count; i++) {
        out->buckets[i].bytes =
            buckets->list[i].bytes + (i == 0 ? LS_TAIL_FLOATS * sizeof(float) : 0);
        out->buckets[i].algorithm =
            run->strategy.collective ? run->strategy.collective->plugin->name : NULL;
    }
    const uint64_t examples = ls_data_count(fit->train);
    const uint64_t batch = fit->global_batch < examples ? fit->global_batch : examples;
    for (uint32_t i = 0; i < run->replicas; i++) {
        uint64_t offset;
        ls_share(batch, run->replicas, i, &offset, &out->shares[i]);
    }
    return true;
}

static const char *plugin_name(const struct ls_opened_plugin *opened)
{
    return opened ? opened->plugin->name : NULL;
}

static void describe_setting(const struct ls_fit *fit, struct ls_report *report)
{
    const struct ls_run *run = fit->run;
    const struct ls_model *model = fit->model;
    report->command = fit->options->command ? fit->options->command : "train";
    report->strategy = plugin_name(run->strategy.strategy);
    report->collective = plugin_name(run->strategy.collective);
    report->transport = plugin_name(run->strategy.transport);
    report->device = plugin_name(run->device);
    report->hardware = run->hardware;
    report->precision = "float32";
    report->workers = 1;
    report->replicas = run->replicas;
    report->threads_per_replica = run->threads;
    report->seed = run->seed;
    report->optimizer = model->optimizer.name;
    report->learning_rate = model->optimizer.learning_rate;
    report->model = model->source;
    report->dataset = fit->train->name;
    report->parameters = ls_model_parameters(model);
    report->global_batch = fit->global_batch;
    report->has_accuracy = model->accuracy;
}

static void describe_result(const struct ls_fit *fit, struct ls_report *report)
{
    const struct ls_history *history = &fit->history;
    const struct ls_replica *replica = fit->trainer->replicas[0];
    report->status = fit->status;
    report->steps = fit->steps;
    report->startup_seconds = fit->startup_seconds;
    report->epochs = history->epochs;
    report->epoch_count = history->epoch_count;
    report->losses = history->losses;
    report->loss_count = history->loss_count;
    report->layout = "master";
    report->peak_rss_bytes = ls_peak_rss_bytes();
    report->arena_bytes = replica->arena_bytes;
    report->device_bytes = replica->ops->memory_kind == LS_MEMORY_HOST ? 0 : replica->device_bytes;
    if (strcmp(fit->status, "failed") != 0)
        report->parameter_hashes = fit->hashes;
    if (fit->trainer->driver)
        report->bytes_per_step_per_rank = ls_driver_bytes_per_step(fit->trainer->driver);
}

enum ls_status ls_fit_write_report(const struct ls_fit *fit)
{
    struct ls_report_plugin plugins[PLUGINS];
    struct lists lists = {0};
    struct ls_report report = {.plugins = plugins};
    enum ls_status status = make_lists(fit, &lists) ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_history_times(&fit->history, &report.times);
    if (!status) {
        report.plugin_count = list_plugins(fit->run, plugins);
        report.options = lists.options;
        report.option_count = fit->run->strategy.option_count;
        report.buckets = lists.buckets;
        report.bucket_count = fit->trainer->replicas[0]->buckets.count;
        report.replica_batches = lists.shares;
        describe_setting(fit, &report);
        describe_result(fit, &report);
        status = ls_report_write(fit->options->report, &report);
    }
    free(lists.options);
    free(lists.buckets);
    free(lists.shares);
    return status;
}
