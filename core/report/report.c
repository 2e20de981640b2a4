// SPDX-License-Identifier: Apache-2.0
// The run report as JSON.
#include "core/report/report.h"

#include "core/base/log.h"
#include "core/report/json_values.h"
#include "core/report/made.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIGITS 9

static json_t *texts_json(const char *const *texts, uint32_t count)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(list, ls_report_text_json(texts[i]));
    return list;
}

static json_t *numbers_json(const uint32_t *numbers, uint32_t count)
{
    json_t *list = numbers ? json_array() : json_null();
    for (uint32_t i = 0; numbers && i < count; i++)
        json_array_append_new(list, ls_report_count_json(numbers[i]));
    return list;
}

static json_t *topology_json(const struct ls_report_topology *topology)
{
    json_t *object = json_object();
    json_object_set_new(object, "source", ls_report_text_json(topology->source));
    json_object_set_new(object, "hosts", numbers_json(topology->hosts, topology->world));
    json_object_set_new(object, "cards", numbers_json(topology->cards, topology->world));
    json_object_set_new(object, "order", numbers_json(topology->order, topology->world));
    return object;
}

static json_t *pairs_json(const struct ls_report_pair *pairs, size_t n)
{
    json_t *object = json_object();
    for (size_t i = 0; i < n; i++)
        json_object_set_new(object, pairs[i].name,
                            ls_made_text_json(pairs[i].name, pairs[i].value));
    return object;
}

static json_t *optimizer_json(const struct ls_report *report)
{
    json_t *object = json_pack("{s:o, s:o}", "name", ls_report_text_json(report->optimizer),
                               "learning_rate", ls_report_number_json(report->learning_rate));
    for (size_t i = 0; i < report->optimizer_option_count; i++)
        json_object_set_new(object, report->optimizer_options[i].name,
                            ls_report_number_json(report->optimizer_options[i].value));
    if (report->excluded)
        json_object_set_new(object, "exclude_from_weight_decay",
                            ls_report_text_json(report->excluded));
    return object;
}

static json_t *plugins_json(const struct ls_report *report)
{
    json_t *list = json_array();
    for (size_t i = 0; i < report->plugin_count; i++) {
        const struct ls_report_plugin *plugin = &report->plugins[i];
        json_t *object = json_pack(
            "{s:o, s:o, s:o, s:o}", "kind", ls_report_text_json(plugin->kind), "name",
            ls_report_text_json(plugin->name), "version", ls_report_text_json(plugin->version),
            "file", ls_report_text_json(plugin->file));
        if (plugin->library && plugin->library[0])
            json_object_set_new(object, "library", ls_report_text_json(plugin->library));
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *epochs_json(const struct ls_report *report)
{
    json_t *list = json_array();
    for (size_t i = 0; i < report->epoch_count; i++) {
        const struct ls_epoch *epoch = &report->epochs[i];
        const double rate = epoch->seconds > 0 ? (double)epoch->examples / epoch->seconds : NAN;
        json_t *object = json_pack(
            "{s:o, s:o, s:o, s:o, s:o, s:o}", "epoch", ls_report_count_json(epoch->epoch), "steps",
            ls_report_count_json(epoch->steps), "examples", ls_report_count_json(epoch->examples),
            "seconds", ls_report_number_json(epoch->seconds), "examples_per_second",
            ls_report_number_json(rate), "learning_rate",
            ls_report_number_json(epoch->learning_rate));
        for (uint32_t k = 0; k < epoch->metrics.count; k++)
            json_object_set_new(object, epoch->metrics.list[k].name,
                                ls_report_number_json(epoch->metrics.list[k].value));
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *losses_json(const struct ls_report *report)
{
    json_t *list = json_array();
    for (size_t i = 0; i < report->loss_count && i < LS_REPORT_LOSSES; i++)
        json_array_append_new(list, ls_report_number_json((double)report->losses[i]));
    return list;
}

static json_t *tuner_size_json(const struct ls_report_tuner_size *size)
{
    json_t *times = json_array();
    for (size_t i = 0; i < size->time_count; i++) {
        const struct ls_report_tuner_time *time = &size->times[i];
        json_array_append_new(
            times, json_pack("{s:o, s:o, s:o, s:o, s:b}", "collective",
                             ls_report_text_json(time->collective), "seconds",
                             ls_report_number_json(time->seconds), "spread_seconds",
                             ls_report_number_json(time->spread), "rounds",
                             ls_report_count_json(time->rounds), "given_up", (int)time->given_up));
    }
    return json_pack("{s:o, s:o, s:o}", "bytes", ls_report_count_json(size->bytes), "collective",
                     ls_report_text_json(size->collective), "candidates", times);
}

static json_t *tuner_json(const struct ls_report_tuner *tuner)
{
    if (!tuner->source)
        return json_null();
    json_t *sizes = json_array();
    for (size_t i = 0; i < tuner->size_count; i++)
        json_array_append_new(sizes, tuner_size_json(&tuner->sizes[i]));
    return json_pack("{s:o, s:o, s:o, s:o}", "source", ls_report_text_json(tuner->source), "file",
                     ls_report_text_json(tuner->file), "seconds",
                     ls_report_number_json(tuner->seconds), "sizes", sizes);
}

static json_t *communication_json(const struct ls_report *report)
{
    json_t *buckets = json_array();
    for (size_t i = 0; i < report->bucket_count; i++)
        json_array_append_new(buckets,
                              json_pack("{s:o, s:o}", "bytes",
                                        ls_report_count_json(report->buckets[i].bytes), "algorithm",
                                        ls_report_text_json(report->buckets[i].algorithm)));
    return json_pack("{s:o, s:o, s:o}", "buckets", buckets, "bytes_per_step_per_rank",
                     ls_report_count_json(report->bytes_per_step_per_rank), "filter_bytes",
                     ls_report_count_json(report->filter_bytes));
}

static json_t *counts_json(const uint64_t *values, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, ls_report_count_json(values[i]));
    return list;
}

static bool is_lost(const struct ls_report *report, uint32_t replica)
{
    for (size_t i = 0; i < report->lost_count; i++)
        if (report->lost_replicas[i] == replica)
            return true;
    return false;
}

static json_t *hashes_json(const struct ls_report *report)
{
    json_t *list = json_array();
    for (uint32_t i = 0; report->parameter_hashes && i < report->replicas; i++) {
        char digits[17];
        if (is_lost(report, i) || !report->parameter_hashes[i]) {
            json_array_append_new(list, json_null());
            continue;
        }
        snprintf(digits, sizeof(digits), "%016llx",
                 (unsigned long long)report->parameter_hashes[i]);
        json_array_append_new(list, json_string(digits));
    }
    return list;
}

static json_t *workers_json(const struct ls_report *report)
{
    json_t *list = json_array();
    json_t *hashes = hashes_json(report);
    for (uint32_t i = 0; i < report->workers; i++) {
        const struct ls_report_worker *worker = &report->worker_reports[i];
        json_t *own = json_array();
        for (uint32_t k = 0; k < worker->replicas; k++)
            json_array_append(own, json_array_get(hashes, worker->first_rank + k));
        json_array_append_new(list,
                              json_pack("{s:I, s:o, s:I, s:I, s:o, s:o}", "worker", (json_int_t)i,
                                        "host", ls_report_text_json(worker->host), "first_rank",
                                        (json_int_t)worker->first_rank, "replicas",
                                        (json_int_t)worker->replicas, "parameter_hashes", own,
                                        "status", ls_report_text_json(worker->status)));
    }
    json_decref(hashes);
    return list;
}

static json_t *times_json(const struct ls_report_times *times)
{
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "median", ls_report_number_json(times->median),
        "p90", ls_report_number_json(times->p90), "input", ls_report_number_json(times->input),
        "compute", ls_report_number_json(times->compute), "communication",
        ls_report_number_json(times->communication), "exposed_communication",
        ls_report_number_json(times->exposed_communication), "update",
        ls_report_number_json(times->update), "device", ls_report_number_json(times->device));
}

// Whole numbers are written as such.
static json_t *fact_number(double value)
{
    return fabs(value) < 0x1p53 && floor(value) == value ? json_integer((json_int_t)value)
                                                         : ls_report_number_json(value);
}

static json_t *fact_json(const struct ls_report_fact *fact)
{
    if (!fact->list)
        return fact_number(fact->values[0]);
    json_t *list = json_array();
    for (uint64_t i = 0; i < fact->count; i++)
        json_array_append_new(list, fact_number(fact->values[i]));
    return list;
}

// Puts the fact where the dots of its name lead; false: something else is there.
static bool add_fact(json_t *root, const struct ls_report_fact *fact)
{
    json_t *object = root;
    const char *name = fact->name;
    for (const char *dot; (dot = strchr(name, '.')); name = dot + 1) {
        char key[64];
        snprintf(key, sizeof(key), "%.*s", (int)(dot - name), name);
        json_t *inner = json_object_get(object, key);
        if (!inner)
            json_object_set_new(object, key, inner = json_object());
        if (!json_is_object(inner))
            return false;
        object = inner;
    }
    return !json_object_get(object, name) &&
           json_object_set_new(object, name, fact_json(fact)) == 0;
}

// What the report says itself is not overwritten.
static void add_facts(json_t *root, const struct ls_report *report)
{
    json_t *facts = json_object();
    for (size_t i = 0; i < report->fact_count; i++)
        if (!add_fact(facts, &report->facts[i]))
            ls_warn("report", "there is no place for '%s'", report->facts[i].name);
    json_object_update_missing(root, facts);
    json_decref(facts);
}

static json_t *changes_json(const struct ls_report *report)
{
    json_t *list = json_array();
    for (size_t i = 0; i < report->change_count; i++) {
        const struct ls_report_change *change = &report->changes[i];
        json_t *one = json_pack("{s:I, s:I, s:I, s:I, s:o}", "step", (json_int_t)change->step,
                                "lost", (json_int_t)change->lost, "joined",
                                (json_int_t)change->joined, "workers", (json_int_t)change->workers,
                                "seconds", ls_report_number_json(change->seconds));
        if (report->compress)
            json_object_set_new(one, "residuals_lost", json_integer(change->residuals_lost));
        if (change->rounds)
            json_object_set_new(one, "examples_left_out",
                                json_integer((json_int_t)change->examples_left_out));
        json_array_append_new(list, one);
    }
    return list;
}

// What ran, and on what.
static void add_setting(json_t *root, const struct ls_report *report)
{
    json_object_set_new(root, "lockstep", json_string(LS_VERSION));
    json_object_set_new(root, "made", ls_made_json());
    json_object_set_new(root, "command", ls_report_text_json(report->command));
    json_object_set_new(root, "status", ls_report_text_json(report->status));
    json_object_set_new(root, "resumed_from_step",
                        report->resumed_from_step ? ls_report_count_json(report->resumed_from_step)
                                                  : json_null());
    if (report->change_count)
        json_object_set_new(root, "elastic", changes_json(report));
    json_object_set_new(root, "stopped_by", ls_report_text_json(report->stopped_by));
    json_object_set_new(root, "strategy", ls_report_text_json(report->strategy));
    json_object_set_new(root, "collective", ls_report_text_json(report->collective));
    json_object_set_new(root, "transport", ls_report_text_json(report->transport));
    json_object_set_new(root, "wire", ls_report_text_json(report->wire));
    json_object_set_new(root, "compress", ls_report_text_json(report->compress));
    if (report->topology.source)
        json_object_set_new(root, "topology", topology_json(&report->topology));
    json_object_set_new(root, "device", ls_report_text_json(report->device));
    json_object_set_new(root, "hardware", ls_report_text_json(report->hardware));
    json_object_set_new(root, "precision", ls_report_text_json(report->precision));
    json_object_set_new(root, "options", pairs_json(report->options, report->option_count));
    json_object_set_new(root, "plugins", plugins_json(report));
    json_object_set_new(root, "workers", ls_report_count_json(report->workers));
    json_object_set_new(root, "worker_reports", workers_json(report));
    json_object_set_new(root, "replicas", ls_report_count_json(report->replicas));
    json_object_set_new(root, "threads_per_replica",
                        ls_report_count_json(report->threads_per_replica));
    json_object_set_new(root, "seed", ls_report_count_json(report->seed));
    json_object_set_new(root, "optimizer", optimizer_json(report));
    json_object_set_new(root, "learning_rate_schedule", ls_report_text_json(report->schedule));
    json_object_set_new(root, "loss", ls_report_text_json(report->loss));
    json_object_set_new(root, "class_weight", ls_report_text_json(report->class_weight));
    json_object_set_new(root, "model", ls_made_text_json(NULL, report->model));
    json_object_set_new(root, "parameters", ls_report_count_json(report->parameters));
    json_object_set_new(root, "dataset", ls_report_text_json(report->dataset));
    json_object_set_new(root, "dataset_options",
                        pairs_json(report->dataset_options, report->dataset_option_count));
    if (report->vocabulary)
        json_object_set_new(root, "vocabulary",
                            texts_json(report->vocabulary, report->vocabulary_size));
    json_object_set_new(root, "shuffle", ls_report_text_json(report->shuffle));
    json_object_set_new(root, "microbatches", ls_report_count_json(report->microbatches));
    if (report->shards)
        json_object_set_new(root, "logical_shards", ls_report_count_json(report->shards));
    json_object_set_new(root, "accumulate", ls_report_count_json(report->accumulate));
    json_object_set_new(root, "global_batch", ls_report_count_json(report->global_batch));
    json_object_set_new(root, "replica_batches",
                        counts_json(report->replica_batches, report->replicas));
}

static json_t *statistics_json(const struct ls_report_statistics *statistics)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "collective",
                     ls_report_text_json(statistics->collective), "transport",
                     ls_report_text_json(statistics->transport), "reductions_per_pass",
                     ls_report_count_json(statistics->reductions), "bytes_per_pass_per_rank",
                     ls_report_count_json(statistics->bytes));
}

// How it went.
static void add_results(json_t *root, const struct ls_report *report)
{
    json_object_set_new(root, "steps", ls_report_count_json(report->steps));
    json_object_set_new(root, "loss_scale",
                        report->scales_loss ? ls_report_number_json(report->loss_scale)
                                            : json_null());
    json_object_set_new(root, "skipped_steps",
                        report->scales_loss ? ls_report_count_json(report->skipped_steps)
                                            : json_null());
    json_object_set_new(root, "startup_seconds", ls_report_number_json(report->startup_seconds));
    json_object_set_new(root, "epochs", epochs_json(report));
    json_object_set_new(root, "losses", losses_json(report));
    json_object_set_new(root, "step_seconds", times_json(&report->times));
    json_object_set_new(root, "communication", communication_json(report));
    if (report->statistics.collective)
        json_object_set_new(root, "synchronized_statistics", statistics_json(&report->statistics));
    json_object_set_new(root, "tuner", tuner_json(&report->tuner));
    json_object_set_new(root, "schedule_check", ls_report_text_json(report->schedule_check));
    json_object_set_new(root, "layout", ls_report_text_json(report->layout));
    json_object_set_new(root, "recording", ls_report_text_json(report->recording));
    json_object_set_new(root, "peak_rss_bytes", ls_report_count_json(report->peak_rss_bytes));
    json_object_set_new(root, "device_bytes", ls_report_count_json(report->device_bytes));
    json_object_set_new(root, "arena_bytes", ls_report_count_json(report->arena_bytes));
    json_object_set_new(root, "parameter_hashes", hashes_json(report));
    if (report->lost_count)
        json_object_set_new(root, "lost_replicas",
                            counts_json(report->lost_replicas, report->lost_count));
    add_facts(root, report);
}

static enum ls_status write_failed(const char *path, const char *temporary, FILE *file)
{
    const int cause = errno;
    if (file)
        fclose(file);
    unlink(temporary);
    ls_error("report", "cannot write '%s': %s", path, strerror(cause));
    return LS_FAILED;
}

enum ls_status ls_report_write(const char *path, const struct ls_report *report)
{
    json_t *root = json_object();
    char *temporary = malloc(strlen(path) + 32);
    if (!root || !temporary) {
        json_decref(root);
        free(temporary);
        return LS_OUT_OF_MEMORY;
    }
    add_setting(root, report);
    add_results(root, report);
    sprintf(temporary, "%s.%ld.part", path, (long)getpid());
    enum ls_status status = LS_OK;
    FILE *file = fopen(temporary, "w");
    if (!file || json_dumpf(root, file, JSON_INDENT(1) | JSON_REAL_PRECISION(DIGITS)) ||
        fputc('\n', file) == EOF || fflush(file) || fsync(fileno(file)))
        status = write_failed(path, temporary, file);
    else if (fclose(file) || rename(temporary, path))
        status = write_failed(path, temporary, NULL);
    free(temporary);
    json_decref(root);
    return status;
}

// Not every folder that may be written to takes files (those of /proc do not): one is made, and taken away. One
// that is there already is another thread's, or of a process that died and had this number.
static enum ls_status check_folder(const char *scope, const char *path)
{
    const size_t bytes = strlen(path) + 32;
    char *copy = strdup(path), *trial = malloc(bytes);
    enum ls_status status = copy && trial ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status) {
        snprintf(trial, bytes, "%s.%ld.part", path, (long)getpid());
        const int file = open(trial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (file >= 0) {
            close(file);
            unlink(trial);
        } else if (errno != EEXIST) {
            ls_error(scope, "cannot write '%s': folder '%s': %s", path, dirname(copy),
                     strerror(errno));
            status = LS_BAD_INPUT;
        }
    }
    free(copy);
    free(trial);
    return status;
}

enum ls_status ls_report_check_path(const char *scope, const char *path)
{
    struct stat about;
    if (!*path) {
        ls_error(scope, "the name of the file is empty");
        return LS_USAGE;
    }
    // The new file would take the place of these, also of /dev/null and /dev/stdout.
    if (lstat(path, &about) == 0 && !S_ISREG(about.st_mode)) {
        ls_error(scope, "cannot write '%s': it is %s, not a file", path,
                 S_ISDIR(about.st_mode)   ? "a folder"
                 : S_ISLNK(about.st_mode) ? "a link"
                                          : "a device or a pipe");
        return LS_BAD_INPUT;
    }
    return check_folder(scope, path);
}
