// SPDX-License-Identifier: Apache-2.0
// lockstep compare: one model under several strategies.
#include "tools/command.h"
#include "tools/compare/collect.h"
#include "tools/compare/list.h"
#include "tools/compare/race.h"
#include "tools/compare/speed.h"
#include "tools/compare/yardstick.h"
#include "tools/number_list.h"
#include "tools/output_files.h"
#include "tools/run_options.h"

#include "core/base/log.h"
#include "core/cluster/resolve.h"
#include "core/base/threads.h"
#include "tools/compare/page.h"
#include "tools/compare/comparison.h"
#include "core/report/report.h"
#include "core/data/dataset.h"
#include "core/train/compiled.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_REPLICA_BATCH 64
#define DEFAULT_OPTIMIZER "adam:learning_rate=0.001"
#define RUNS_MOST 64
#define DEADLINE_MOST 1e6 // seconds; the runs refuse longer ones

static const struct argument table[] = {
    {NULL, NULL, NULL, "What to train"},
    {"model", "NAME|FILE", NULL,
     "a built-in model (mlp, cnn, resnet, mlp-dropout, cnn-small, linear), Keras model JSON, or a "
     ".keras or .h5 file, with its weights"},
    {"dataset", "NAME[:option=value,...]", NULL, "as for train"},
    {"loss", "NAME", NULL, "as for train"},
    {"metrics", "NAME", NULL, "as for train"},
    {"initial-weights", "FILE", NULL,
     "start every run from these weights: .safetensors, .weights.h5, .keras or .h5; default: those "
     "in the model's file, else Keras's initializers"},

    {NULL, NULL, NULL, "What to compare"},
    {"strategies", "NAME[:option=value,...],...",
     "one-device,ring,hierarchical-copy,central-storage,parameter-server",
     "each as for train's --strategy. An item with '=' and no ':' continues the options of the "
     "item before it: ring,parameter-server:mode=bounded,staleness=2,tree are three strategies"},
    {"replicas", "N[,N...]", "2",
     "copies of the model; with several counts, each strategy runs once with each count. "
     "Strategies for a single device run with one replica"},
    {"threads", "N", NULL,
     "threads of each replica; default: cores / replicas, or with several counts cores / the "
     "largest count, so that a replica has the same threads at every count"},
    {"device", "cpu|cuda|reference|...", NULL,
     "device that computes; default: the fastest kind on this machine"},
    {"target", "METRIC:VALUE", NULL,
     "measure the time until a metric reaches this value: val_accuracy or val_loss after an epoch, "
     "accuracy or loss over the last 100 steps; for example val_accuracy:0.88"},

    {NULL, NULL, NULL, "How to train: the same for all"},
    {"epochs", "N", "1", "passes over the training data"},
    {"steps", "N", NULL, "stop after N steps"},
    {"batch", "N", NULL,
     "examples of a step over all replicas, the same for every replica count; default: 64 times "
     "the largest count"},
    {"replica-batch", "N", NULL,
     "examples of a step for each replica: the global batch then grows with the replica count, and "
     "losses are compared at the largest count only"},
    {"optimizer", "NAME[:option=value,...]", NULL, "as for train"},
    {"precision", "float32|mixed_bfloat16|mixed_float16", NULL, "as for train"},
    {"loss-scale", "dynamic|N|none", NULL, "as for train"},
    {"wire", "float32|bfloat16|float16", NULL,
     "number format in which gradients travel between replicas, as for train; strategies that send "
     "none through a collective are not available then"},
    {"seed", "N", "0", "seed of the initial weights, the order of examples and dropout"},
    {"shuffle", "on|off|N", "on",
     "shuffle the examples anew in each epoch; N: through a buffer of N examples"},
    {"validation", "on|off", "on",
     "compute loss and accuracy after each epoch as train does, outside all timings"},
    {"round-steps", "N", NULL,
     "steps in a turn: in each round the runs take turns, one after the other; default: about 20 "
     "rounds. A timed turn has more steps if it would take less than 50 ms"},
    {"speed-steps", "N", NULL,
     "time at least N steps of each run, in addition to the training; more steps reveal smaller "
     "differences. Default: as many as 10 processes compute in 4 turns of 50 ms. 0: time none; "
     "speeds are then those of the training and are not compared"},
    {"cluster", "auto|none|NAME", "auto",
     "as for train, but several workers are refused: compare starts processes of its own. none: "
     "compares here alone, whatever started this process"},
    {"deadline", "SECONDS", "60",
     "longest wait for another replica; a run is stopped when it completes no step for twice this "
     "time plus 5 s, and at least 20 s"},
    {"plugin-path", "DIR[:DIR...]", NULL, "directories searched for plugins first"},

    {NULL, NULL, NULL, "What comes out"},
    {"report", "FILE", NULL, "write one JSON object with everything that was measured"},
    {"html", "FILE", NULL, "write one page with charts, which needs no network"},
    {"quiet", NULL, NULL, "print no progress, only the result"},
    {NULL, NULL, NULL, NULL},
};

static const char help[] =
    "Every run trains from the same weights on the same data, in a process of its own. The "
    "reference for correctness\n"
    "is one-device, which is added if the list does not name it. It runs a second time with each "
    "batch in two halves:\n"
    "the difference between these two runs is what rounding alone causes. Where replicas normalize "
    "by statistics of their\n"
    "own shares (BatchNormalization without synchronized), the reference takes the same shares. "
    "Then every run is timed in\n"
    "several fresh processes, which take turns, so that a machine that slows down favours no "
    "strategy. A difference counts\n"
    "if chance alone would produce it at most once in a hundred times. A strategy that cannot run "
    "here gets a row with the\n"
    "reason.\n\n"
    "Examples:\n"
    "  lockstep compare --model=cnn --dataset=fashion-mnist --optimizer=sgd:learning_rate=0.01 "
    "--strategies=one-device,ring,hierarchical-copy --replicas=2 --steps=300\n"
    "  lockstep compare --model=mlp --dataset=fashion-mnist "
    "--strategies=ring,parameter-server:mode=async --epochs=2 --target=val_accuracy:0.85 "
    "--html=compare.html\n"
    "  lockstep compare --model=cnn --dataset=fashion-mnist --strategies=ring,tree "
    "--replicas=1,2,4 --threads=1\n\n"
    "Ctrl-C stops every run after its current step and shows the results so far; a second one "
    "stops at once.\n";

#define COUNTS_MOST 16

struct comparing {
    struct compare_setting setting;
    struct compare_list strategies;
    struct compare_target target;
    uint32_t counts[COUNTS_MOST]; // of replicas, as given
    size_t count_count;
    uint32_t largest; // of them
    uint64_t batch; // of the reference
    uint64_t replica_batch; // 0: every run has `batch`
    uint64_t speed_steps; // to time in each run, at least; 0: none are timed
    const char *report, *html;
    struct ls_compile_config file; // what the model's file says where the command line does not
    const char *optimizer; // of all runs
    struct compare_race race;
    size_t reference; // runner
    struct compare_yardstick yardstick;
    bool default_list; // of strategies
    const char
        *unvalidated; // dataset that has nothing to validate on; NULL: it has, or nobody asks
    bool reference_is_ours; // nobody asked for it
    size_t *item_of; // item of the list of each runner; SIZE_MAX: ours
};

// ---- The command line ----

static enum ls_status read_counts(const struct arguments *arguments, struct comparing *out)
{
    struct number_list list = {0};
    const char *text = arguments_text(arguments, "replicas");
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
    out->batch = batch ? batch : replica_batch * out->largest;
    return LS_OK;
}

// Each run is a process of its own that takes turns with the others. Workers would each compare for
// themselves, at the same time, and write the same files.
static enum ls_status refuse_workers(const struct arguments *arguments)
{
    struct ls_worker_place place;
    char text[640];
    const struct ls_environment environment = ls_environment_of_process();
    const enum ls_status status =
        ls_worker_place_resolve(arguments_text(arguments, "cluster"), &environment, &place);
    if (status || (place.workers == 1 && place.servers == 0))
        return status;
    ls_worker_place_describe(&place, text, sizeof(text));
    ls_error("compare",
             "this is %s, and compare trains in processes of its own on one machine: start it "
             "without the launcher, or give --cluster=none; lockstep bench and lockstep train "
             "measure over workers",
             text);
    return LS_USAGE;
}

static enum ls_status read_training(const struct arguments *arguments, struct comparing *out)
{
    struct compare_setting *setting = &out->setting;
    enum ls_status status = run_options_common(arguments, &setting->run);
    setting->run.cluster = "none"; // it compares in processes of its own
    if (!status)
        status = arguments_count(arguments, "seed", 0, INT64_MAX, &setting->run.seed);
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
    setting->compile.metrics = arguments_text(arguments, "metrics");
    setting->model = arguments_text(arguments, "model");
    setting->dataset = arguments_text(arguments, "dataset");
    setting->initial_weights = arguments_text(arguments, "initial-weights");
    return status;
}

static bool needs_validation(const struct comparing *comparing)
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
    if (needs_validation(out) && !out->setting.validation) {
        ls_error("--target", "%s is not measured with --validation=off",
                 compare_metric_text(out->target.metric));
        return LS_USAGE;
    }
    return LS_OK;
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
    static const char *const files[] = {"report", "html", NULL};
    return status ? status : output_files_check(arguments, files);
}

static enum ls_status read_arguments(const struct arguments *arguments, struct comparing *out)
{
    enum ls_status status = refuse_workers(arguments);
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
    return status ? status : read_files(arguments, out);
}

// ---- Who runs ----

static uint32_t threads_of(const struct comparing *comparing, uint32_t replicas)
{
    if (comparing->setting.run.threads)
        return comparing->setting.run.threads;
    const uint32_t parts = comparing->count_count > 1 ? comparing->largest : replicas;
    const uint32_t threads = ls_core_count() / parts;
    return threads ? threads : 1;
}

static enum ls_status add(struct comparing *comparing, const char *strategy, uint32_t replicas,
                          uint64_t batch, size_t item)
{
    if (comparing->race.count == RUNS_MOST) {
        ls_error("usage", "more than %d runs; compare fewer strategies or counts of replicas",
                 RUNS_MOST);
        return LS_USAGE;
    }
    const struct compare_entry entry = {.strategy = strategy,
                                        .replicas = replicas,
                                        .threads = threads_of(comparing, replicas),
                                        .batch = batch,
                                        .microbatches = 1};
    const enum ls_status status = compare_race_add(&comparing->race, &entry, false);
    if (!status)
        comparing->item_of[comparing->race.count - 1] = item;
    return status;
}

static bool is_one_device(const char *strategy)
{
    const size_t length = strlen(COMPARE_REFERENCE);
    return strncmp(strategy, COMPARE_REFERENCE, length) == 0 &&
           (strategy[length] == '\0' || strategy[length] == ':');
}

static enum ls_status add_item(struct comparing *comparing, size_t item)
{
    const char *strategy = comparing->strategies.items[item];
    uint32_t most = 0;
    char *message = NULL;
    const enum ls_status looked = compare_race_look(&comparing->race, strategy, &most, &message);
    enum ls_status status = LS_OK;
    if (looked == LS_USAGE || looked == LS_INTERRUPTED) {
        if (looked == LS_USAGE)
            ls_error("--strategies", "%s: %s", strategy, message ? message : "it is not valid");
        status = looked;
    } else if (looked) { // a row, and no more of it
        status = add(comparing, strategy, comparing->largest, comparing->batch, item);
        if (!status) {
            struct compare_runner *runner = &comparing->race.runners[comparing->race.count - 1];
            runner->end = COMPARE_ENDED;
            runner->code = ls_status_exit_code(looked);
            runner->message = message;
            message = NULL;
        }
    } else if (most == 1) {
        status = add(comparing, strategy, 1, comparing->batch, item);
        if (!status && is_one_device(strategy) && comparing->reference == SIZE_MAX)
            comparing->reference = comparing->race.count - 1;
    } else {
        for (size_t i = 0; !status && i < comparing->count_count; i++) {
            const uint32_t count = comparing->counts[i];
            const uint64_t batch =
                comparing->replica_batch ? comparing->replica_batch * count : comparing->batch;
            status = add(comparing, strategy, count, batch, item);
        }
    }
    free(message);
    return status;
}

static bool names_reference(const struct comparing *comparing)
{
    for (size_t i = 0; i < comparing->strategies.count; i++)
        if (is_one_device(comparing->strategies.items[i]))
            return true;
    return false;
}

static enum ls_status choose_runs(struct comparing *comparing)
{
    enum ls_status status = LS_OK;
    comparing->reference = SIZE_MAX;
    comparing->item_of = calloc(RUNS_MOST, sizeof(*comparing->item_of));
    if (!comparing->item_of)
        return LS_OUT_OF_MEMORY;
    if (!names_reference(comparing)) {
        comparing->reference_is_ours = true;
        comparing->reference = 0;
        status = add(comparing, COMPARE_REFERENCE, 1, comparing->batch, SIZE_MAX);
    }
    for (size_t i = 0; !status && i < comparing->strategies.count; i++)
        status = add_item(comparing, i);
    if (!status && comparing->reference == SIZE_MAX) { // its plugin is not there
        const struct compare_runner *first = &comparing->race.runners[0];
        ls_error("compare", "the reference, strategy " COMPARE_REFERENCE ", is not available: %s",
                 first->message ? first->message : "it cannot be loaded");
        status = LS_UNAVAILABLE;
    }
    return status;
}

// ---- Before the first step ----

// The exit code of a run that ended before it trained is the status that it ended with.
static enum ls_status status_of(const struct compare_runner *runner)
{
    return runner->end == COMPARE_ENDED && runner->code ? (enum ls_status)runner->code : LS_FAILED;
}

// What the reference says is true of all.
static enum ls_status pass_on(const struct compare_runner *runner, bool reference)
{
    const bool crashed = runner->end == COMPARE_CRASHED;
    if (runner->message && reference)
        ls_error(NULL, "%s", runner->message);
    else if (runner->message)
        ls_error("--strategies", "%s: %s", runner->entry.strategy, runner->message);
    else
        ls_error("compare", "the process of '%s' %s before its first step", runner->entry.strategy,
                 crashed ? "crashed" : "ended");
    return status_of(runner);
}

static enum ls_status prepare(struct comparing *comparing, size_t index)
{
    struct compare_runner *runner = &comparing->race.runners[index];
    return runner->end == COMPARE_ALIVE ? compare_race_prepare(&comparing->race, runner) : LS_OK;
}

// What is wrong with model, data or device is said by the reference, once.
static enum ls_status prepare_reference(struct comparing *comparing)
{
    const enum ls_status status = prepare(comparing, comparing->reference);
    if (status)
        return status;
    const struct compare_runner *runner = &comparing->race.runners[comparing->reference];
    if (!runner->ready)
        return pass_on(runner, true);
    const bool accuracy = comparing->target.metric == COMPARE_ACCURACY ||
                          comparing->target.metric == COMPARE_VAL_ACCURACY;
    if (accuracy && !runner->shared->accuracy) {
        ls_error("--target", "model '%s' is trained without accuracy; available: loss, val_loss",
                 comparing->setting.model);
        return LS_USAGE;
    }
    return LS_OK;
}

// Whether a strategy beside the reference trains.
static bool any_is_ready(const struct comparing *comparing)
{
    for (size_t i = 0; i < comparing->race.count; i++)
        if (i != comparing->reference && !comparing->race.runners[i].hidden &&
            comparing->race.runners[i].ready)
            return true;
    return false;
}

// A strategy whose runs all say that what the user asks of it is wrong is no row, but a mistake.
// Nobody asked for those of the default list, one of which may be none for this model.
static enum ls_status refuse_mistakes(const struct comparing *comparing)
{
    if (comparing->default_list && any_is_ready(comparing))
        return LS_OK;
    for (size_t item = 0; item < comparing->strategies.count; item++) {
        const struct compare_runner *mistaken = NULL;
        bool all = true;
        for (size_t i = 0; i < comparing->race.count; i++) {
            const struct compare_runner *runner = &comparing->race.runners[i];
            if (runner->hidden || comparing->item_of[i] != item)
                continue;
            const bool wrong = !runner->ready && runner->end == COMPARE_ENDED &&
                               (runner->code == LS_USAGE || runner->code == LS_BAD_INPUT);
            mistaken = wrong ? runner : mistaken;
            all = all && wrong;
        }
        if (mistaken && all)
            return pass_on(mistaken, false);
    }
    return LS_OK;
}

static enum ls_status prepare_all(struct comparing *comparing)
{
    enum ls_status status = prepare_reference(comparing);
    if (!status)
        status =
            compare_yardstick_add(&comparing->race, comparing->reference, &comparing->yardstick);
    for (size_t i = 0; !status && i < comparing->race.count; i++)
        if (i != comparing->reference)
            status = prepare(comparing, i);
    return status ? status : refuse_mistakes(comparing);
}

static size_t count_visible(const struct compare_race *race)
{
    size_t count = 0;
    for (size_t i = 0; i < race->count; i++)
        count += !race->runners[i].hidden;
    return count;
}

static void print_setting(const struct comparing *comparing)
{
    const struct compare_setting *setting = &comparing->setting;
    const struct compare_shared *shared = comparing->race.runners[comparing->reference].shared;
    if (!setting->run.progress)
        return;
    printf("comparing %zu runs of %s on %s%s: %llu steps of %llu examples, %s\n",
           count_visible(&comparing->race), setting->model, setting->dataset,
           compare_yardstick_text(&comparing->yardstick), (unsigned long long)shared->steps,
           (unsigned long long)comparing->batch, comparing->optimizer);
    fflush(stdout);
}

// ---- After the last ----

// The reference and one of the user's were trained; else what kept the first from it. `why` is left alone otherwise.
static enum ls_status conclusion(const struct comparing *comparing,
                                 const struct ls_comparison *comparison, const char **why)
{
    enum ls_status first = LS_OK;
    bool trained = false;
    for (size_t i = 0; i < comparison->run_count; i++) {
        const enum ls_compared_status status = comparison->runs[i].status;
        if (i == comparison->reference && comparing->reference_is_ours)
            continue;
        trained = trained || status == LS_COMPARED_DONE;
        if (!first)
            first = status == LS_COMPARED_UNAVAILABLE ? LS_UNAVAILABLE : LS_FAILED;
    }
    if (trained && comparison->runs[comparison->reference].status == LS_COMPARED_DONE &&
        !comparison->shares_failed)
        return LS_OK;
    *why = trained ? "the reference failed, so that correctness could not be judged"
                   : "no strategy could be trained";
    return trained ? LS_FAILED : first;
}

static enum ls_status write_files(const struct comparing *comparing,
                                  const struct ls_comparison *comparison)
{
    json_t *root = NULL;
    enum ls_status status = ls_comparison_json(comparison, &root);
    if (!status && comparing->report)
        status = ls_comparison_write(root, comparing->report);
    if (!status && comparing->html)
        status = ls_compare_page_write(comparing->html, root);
    json_decref(root);
    return status;
}

// What `lockstep train` is to be given, too; strategy, replicas, threads and batch are each run's own.
#define SHARED_MOST 20
static size_t shared_options(const struct arguments *arguments, struct ls_compared_option *out)
{
    static const char *const names[] = {
        "model",  "dataset", "loss",       "metrics",   "initial-weights", "device",
        "epochs", "steps",   "optimizer",  "precision", "loss-scale",      "wire",
        "seed",   "shuffle", "validation", "deadline",  "plugin-path"};
    size_t count = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && count < SHARED_MOST; i++)
        if (arguments_given(arguments, names[i]))
            out[count++] =
                (struct ls_compared_option){names[i], arguments_text(arguments, names[i])};
    return count;
}

static enum ls_status show_result(const struct arguments *arguments, struct comparing *comparing,
                                  enum ls_status ran)
{
    struct ls_compared_option options[SHARED_MOST];
    struct ls_comparison comparison = {.model = comparing->setting.model,
                                       .dataset = comparing->setting.dataset,
                                       .optimizer = comparing->optimizer,
                                       .options = options,
                                       .option_count = shared_options(arguments, options),
                                       .seed = comparing->setting.run.seed,
                                       .global_batch = comparing->batch,
                                       .target_metric =
                                           compare_metric_text(comparing->target.metric),
                                       .target_value = comparing->target.value,
                                       .reference = LS_COMPARISON_NONE,
                                       .reference_is_extra = comparing->reference_is_ours};
    enum ls_status status =
        compare_collect(&comparing->race, &comparing->target, &comparing->yardstick, &comparison);
    const char *why = NULL;
    const enum ls_status concluded = status || ran ? ran : conclusion(comparing, &comparison, &why);
    comparison.status = ran ? "interrupted" : concluded ? "failed" : "done";
    if (!status)
        status = ls_comparison_print(&comparison, stdout);
    if (!status)
        status = write_files(comparing, &comparison);
    ls_comparison_finish(&comparison);
    if (!status && concluded == LS_INTERRUPTED)
        ls_warn("compare", "interrupted: every run stopped after its current step");
    else if (!status && concluded)
        ls_error("compare", "%s; the table has the reasons", why);
    return status ? status : concluded;
}

// All that is wrong with the model is said here, not by a run, of which only the first error is
// kept. The runs read the model's file themselves.
static enum ls_status look_at_model(struct comparing *comparing)
{
    struct ls_compile_options options = comparing->setting.compile;
    const enum ls_status status =
        ls_model_look(comparing->setting.run.plugin_path, comparing->setting.model,
                      comparing->setting.dataset, &options, &comparing->file);
    comparing->optimizer = options.optimizer ? options.optimizer : DEFAULT_OPTIMIZER;
    return status;
}

// A dataset of one split may have nothing to validate on.
static enum ls_status look_at_validation(struct comparing *comparing)
{
    const char *dataset = comparing->setting.dataset;
    struct ls_dataset_info info = {.count = 0};
    enum ls_status status = LS_OK;
    if (comparing->setting.validation)
        status = ls_data_look(comparing->setting.run.plugin_path, dataset, LS_VALIDATION, &info);
    if (status || info.count || !comparing->setting.validation)
        return status;
    if (needs_validation(comparing)) {
        ls_error("--target", "%s is not measured: '%s' is one split; add validation_split=",
                 compare_metric_text(comparing->target.metric), dataset);
        return LS_USAGE;
    }
    comparing->unvalidated = dataset;
    comparing->setting.validation = false;
    return LS_OK;
}

static enum ls_status run(const struct arguments *arguments)
{
    struct comparing comparing = {.speed_steps = 1}; // that is: the least number of processes
    enum ls_status status = read_arguments(arguments, &comparing);
    compare_race_catch();
    if (!status)
        status = compare_race_init(&comparing.race, &comparing.setting);
    comparing.race.quiet = !comparing.setting.run.progress;
    comparing.race.deadline_ns =
        (uint64_t)(fmin(comparing.setting.run.deadline_seconds, DEADLINE_MOST) * 1e9);
    if (!status)
        status = choose_runs(&comparing);
    if (!status)
        status = look_at_model(&comparing);
    if (!status)
        status = look_at_validation(&comparing);
    if (!status)
        status = prepare_all(&comparing);
    if (status == LS_INTERRUPTED)
        ls_error("compare", "interrupted before the first step");
    if (!status) {
        if (comparing.unvalidated)
            ls_info("compare", "no validation: '%s' is one split; add validation_split=",
                    comparing.unvalidated);
        print_setting(&comparing);
        enum ls_status ran = compare_race_run(&comparing.race);
        if (!ran && comparing.speed_steps)
            ran = compare_speed_run(&comparing.race, comparing.speed_steps);
        status = ran && ran != LS_INTERRUPTED ? ran : show_result(arguments, &comparing, ran);
    }
    compare_race_finish(&comparing.race);
    compare_list_finish(&comparing.strategies);
    ls_compile_config_finish(&comparing.file);
    compare_yardstick_finish(&comparing.yardstick);
    free(comparing.item_of);
    return status;
}

const struct command compare_command = {
    .name = "compare",
    .operands = "",
    .summary = "trains a model under several strategies and says which is right for it",
    .help = help,
    .arguments = table,
    .run = run,
};
