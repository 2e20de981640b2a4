// SPDX-License-Identifier: Apache-2.0
// The command line of lockstep compare.
#include "tools/compare/comparing.h"

#include "core/base/log.h"
#include "core/report/report.h"
#include "core/run/networks.h"
#include "tools/number_list.h"
#include "tools/compare/simulated.h"
#include "tools/run_options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_REPLICA_BATCH 64
#define SCALE_MOST 1e9
#define STEP_SECONDS_LEAST 1e-9
#define STEP_SECONDS_MOST 1e6
#define REPLICAS_ALONE "2"
#define REPLICAS_OF_SEVERAL "1" // of each, as for train

static enum ls_status read_counts(const struct arguments *arguments, struct comparing *out)
{
    struct number_list list = {0};
    const char *text = arguments_text(arguments, "replicas");
    if (!text)
        text = out->place.workers > 1 ? REPLICAS_OF_SEVERAL : REPLICAS_ALONE;
    enum ls_status status = number_list_parse("--replicas", text, 1, REPLICAS_MOST, false, &list);
    if (status)
        return status;
    if (list.count > COUNTS_MOST) {
        ls_error("usage", "--replicas=%s: at most %d counts at a time", text, COUNTS_MOST);
        status = LS_USAGE;
    }
    for (size_t i = 0; !status && i < list.count; i++) {
        const uint32_t count = (uint32_t)list.numbers[i].value;
        for (size_t j = 0; j < i; j++)
            if (out->counts[j] == count)
                status = LS_USAGE;
        if (status)
            ls_error("usage", "--replicas=%s: %u is given twice", text, count);
        out->counts[out->count_count++] = count;
        out->largest = count > out->largest ? count : out->largest;
    }
    number_list_finish(&list);
    return status;
}

static enum ls_status read_batch(const struct arguments *arguments, struct comparing *out)
{
    uint64_t batch = 0, replica_batch = 0;
    const enum ls_status status = run_options_batch(arguments, &batch, &replica_batch);
    if (status)
        return status;
    out->replica_batch = out->count_count > 1 ? replica_batch : 0;
    if (!replica_batch)
        replica_batch = DEFAULT_REPLICA_BATCH;
    out->batch = batch ? batch : replica_batch * out->largest * out->place.workers;
    return LS_OK;
}

// Each run is of workers alone.
static enum ls_status refuse_servers(const struct ls_worker_place *place)
{
    char text[640];
    if (place->servers == 0)
        return LS_OK;
    ls_worker_place_describe(place, text, sizeof(text));
    ls_error(
        "compare",
        "this is %s, and compare starts workers of its own for each run, but no servers: leave "
        "the servers out, or give --cluster=none; lockstep train trains with servers",
        text);
    return LS_USAGE;
}

static enum ls_status read_training(const struct arguments *arguments, struct comparing *out)
{
    struct compare_setting *setting = &out->setting;
    enum ls_status status = run_options_common(arguments, &setting->run);
    if (!status)
        status = run_options_cluster(arguments, &setting->run);
    setting->run.cluster = "none"; // of the processes of the runs, unless they meet others
    if (!status)
        status = arguments_count(arguments, "seed", 0, INT64_MAX, &setting->run.seed);
    if (!status)
        status = run_options_reproducible(arguments, &setting->run.reproducible);
    if (!status && setting->run.reproducible && arguments_given(arguments, "replica-batch")) {
        ls_error("--reproducible", "--replica-batch makes the batch depend on the number of "
                                   "replicas; use --batch");
        return LS_USAGE;
    }
    if (!status)
        status = arguments_count(arguments, "epochs", 1, UINT32_MAX, &setting->fit.epochs);
    if (!status)
        status = arguments_count(arguments, "steps", 1, UINT64_C(1) << 48, &setting->fit.steps);
    if (!status)
        status = arguments_count(arguments, "round-steps", 1, UINT32_MAX, &out->race.round_steps);
    if (!status)
        status = arguments_count(arguments, "speed-steps", 0, UINT64_C(1) << 48, &out->speed_steps);
    out->race.turn_steps = out->race.round_steps;
    setting->validation = true;
    if (!status)
        status = arguments_switch(arguments, "validation", &setting->validation);
    setting->fit.shuffle = arguments_text(arguments, "shuffle");
    setting->run.precision = arguments_text(arguments, "precision");
    setting->run.wire = arguments_text(arguments, "wire");
    setting->compile.optimizer = arguments_text(arguments, "optimizer");
    setting->compile.loss_scale = arguments_text(arguments, "loss-scale");
    setting->compile.loss = arguments_text(arguments, "loss");
    setting->compile.loss_weights = arguments_text(arguments, "loss-weights");
    setting->compile.metrics = arguments_text(arguments, "metrics");
    setting->model = arguments_text(arguments, "model");
    setting->dataset = arguments_text(arguments, "dataset");
    setting->initial_weights = arguments_text(arguments, "initial-weights");
    return status;
}

bool comparing_needs_validation(const struct comparing *comparing)
{
    return comparing->target.metric == COMPARE_VAL_LOSS ||
           comparing->target.metric == COMPARE_VAL_ACCURACY;
}

static enum ls_status read_target(const struct arguments *arguments, struct comparing *out)
{
    const char *text = arguments_text(arguments, "target");
    if (!text)
        return LS_OK;
    const enum ls_status status = compare_target_parse(text, &out->target);
    if (status)
        return status;
    if (comparing_needs_validation(out) && !out->setting.validation) {
        ls_error("--target", "%s is not measured with --validation=off",
                 compare_metric_text(out->target.metric));
        return LS_USAGE;
    }
    return LS_OK;
}

// A number of the command line from `least` to `most`; NaN where it is not given.
static enum ls_status read_positive(const struct arguments *arguments, const char *option,
                                    double least, double most, double *out)
{
    double value = NAN;
    enum ls_status status = LS_OK;
    if (arguments_given(arguments, option))
        status = arguments_number(arguments, option, &value);
    if (!status && arguments_given(arguments, option) && !(value >= least && value <= most)) {
        ls_error("usage", "--%s=%s: expected a number from %g to %g", option,
                 arguments_text(arguments, option), least, most);
        status = LS_USAGE;
    }
    *out = value;
    return status;
}

// All runs of several workers are as large as the largest of one, times their number.
static enum ls_status read_network(const struct arguments *arguments, struct comparing *out)
{
    out->network_name = arguments_text(arguments, "simulate-network");
    enum ls_status status =
        read_positive(arguments, "compute-scale", 1 / SCALE_MOST, SCALE_MOST, &out->compute_scale);
    if (!status)
        status = read_positive(arguments, "step-seconds", STEP_SECONDS_LEAST, STEP_SECONDS_MOST,
                               &out->compute_seconds);
    if (status || !out->network_name || out->place.number) // worker 0 simulates
        return status;
    out->setting.records = true;
    status =
        ls_network_open("--simulate-network", out->network_name, LS_NETWORK_ELSE, &out->network);
    for (size_t i = 0; !status && i < out->count_count; i++)
        status = compare_network_fits(&out->network, out->counts[i] * out->place.workers);
    return status;
}

// The Python package gives files of its own to the command, which its user has never seen.
static enum ls_status read_names(const struct arguments *arguments, struct comparing *out)
{
    const char *model = arguments_text(arguments, "model-name");
    const char *dataset = arguments_text(arguments, "dataset-name");
    const char *advice = arguments_text(arguments, "advice");
    out->model_name = model ? model : out->setting.model;
    out->dataset_name = dataset ? dataset : out->setting.dataset;
    out->for_python = strcmp(advice, "python") == 0;
    if (out->for_python || strcmp(advice, "command") == 0)
        return LS_OK;
    ls_error("--advice", "'%s' is neither command nor python", advice);
    return LS_USAGE;
}

static enum ls_status read_files(const struct arguments *arguments, struct comparing *out)
{
    enum ls_status status = LS_OK;
    out->report = arguments_text(arguments, "report");
    out->html = arguments_text(arguments, "html");
    if (out->report)
        status = ls_report_check_path("--report", out->report);
    if (!status && out->html)
        status = ls_report_check_path("--html", out->html);
    return status;
}

enum ls_status comparing_read(const struct arguments *arguments, struct comparing *out)
{
    enum ls_status status = refuse_servers(&out->place);
    if (!status)
        status = run_options_need(arguments, "model", "cnn");
    if (!status)
        status = run_options_need(arguments, "dataset", "fashion-mnist");
    if (!status)
        status = compare_list_parse(arguments_text(arguments, "strategies"), &out->strategies);
    if (!status)
        status = read_counts(arguments, out);
    out->default_list = !arguments_given(arguments, "strategies");
    if (!status)
        status = read_batch(arguments, out);
    if (!status)
        status = read_training(arguments, out);
    if (!status)
        status = read_target(arguments, out);
    if (!status)
        status = read_network(arguments, out);
    if (!status)
        status = read_names(arguments, out);
    return status || out->place.number ? status : read_files(arguments, out);
}

// Files may be in another folder on each host; what they hold is compared when the runs train.
static const char *last_part(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path;
}

uint32_t comparing_agreement(const struct arguments *arguments, uint32_t shards,
                             char dataset[COMPARING_NAME], char logical[COMPARING_NAME],
                             struct ls_agreement items[COMPARING_AGREEMENTS])
{
    static const char *const names[] = {
        "--strategies",  "--replicas",     "--threads", "--device",        "--target",
        "--epochs",      "--steps",        "--batch",   "--optimizer",     "--loss-scale",
        "--wire",        "--seed",         "--shuffle", "--validation",    "--precision",
        "--loss",        "--loss-weights", "--metrics", "--replica-batch", "--round-steps",
        "--speed-steps", "--deadline"};
    const char *data = arguments_text(arguments, "dataset");
    uint32_t count = 0;
    snprintf(dataset, COMPARING_NAME, "%.*s", (int)strcspn(data, ":"), data);
    snprintf(logical, COMPARING_NAME, shards ? "%u" : "(none)", shards);
    items[count++] = (struct ls_agreement){"the version of Lockstep", LS_VERSION};
    items[count++] = (struct ls_agreement){"the command", "compare"};
    items[count++] =
        (struct ls_agreement){"--model", last_part(arguments_text(arguments, "model"))};
    items[count++] = (struct ls_agreement){"--dataset", dataset};
    items[count++] = (struct ls_agreement){"--reproducible", logical};
    items[count++] = (struct ls_agreement){"--initial-weights",
                                           last_part(arguments_text(arguments, "initial-weights"))};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        items[count++] =
            (struct ls_agreement){names[i], arguments_text(arguments, names[i] + strlen("--"))};
    for (uint32_t i = 0; i < count; i++)
        items[i].value = items[i].value ? items[i].value : "(default)";
    return count;
}
