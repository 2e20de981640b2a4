// SPDX-License-Identifier: Apache-2.0
// lockstep compare: one model under several strategies.
#include "tools/command.h"
#include "tools/compare/collect.h"
#include "tools/compare/comparing.h"
#include "tools/compare/crew.h"
#include "tools/compare/follow.h"
#include "tools/compare/simulated.h"
#include "tools/compare/speed.h"
#include "tools/run_options.h"

#include "core/base/log.h"
#include "core/place/resolve.h"
#include "core/base/threads.h"
#include "tools/compare/page.h"
#include "tools/compare/comparison.h"
#include "core/report/report.h"
#include "core/data/dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_OPTIMIZER "adam:learning_rate=0.001"
#define RUNS_MOST 64
#define DEADLINE_MOST 1e6 // seconds; the runs refuse longer ones

static const struct argument table[] = {
    {NULL, NULL, NULL, "What to train"},
    {"model", "NAME|FILE", NULL,
     "a built-in model, Keras model JSON, or a .keras file; as for train", .first_day = true},
    {"dataset", "NAME[:option=value,...]", NULL,
     "what to learn from, such as fashion-mnist; as for train", .first_day = true},
    {"loss", "NAME", NULL, "as for train"},
    {"loss-weights", "OUTPUT=X,...", NULL, "as for train"},
    {"metrics", "NAME", NULL, "as for train"},
    {"initial-weights", "FILE", NULL,
     "start every run from these weights: .safetensors, .weights.h5, .keras or .h5; default: those "
     "in the model's file, else Keras's initializers"},

    {NULL, NULL, NULL, "What to compare"},
    {"strategies", "NAME[:option=value,...],...",
     "one-device,ring,hierarchical-copy,central-storage,parameter-server",
     "names of strategies or collectives, as for --strategy of train. An item with '=' and no ':' "
     "continues the options of the "
     "item before it: ring,parameter-server:mode=bounded,staleness=2,tree are three strategies. "
     "'+' and a filter, as for --compress of train: ring+int8,ring+topk:fraction=0.01",
     .first_day = true},
    {"replicas", "N[,N...]", NULL,
     "copies of the model, over several workers those of each; with several counts, each strategy "
     "runs once with each count. Strategies for a single device run with one replica. Default: 2; "
     "1 over several workers",
     .first_day = true},
    {"threads", "N", NULL,
     "threads of each replica; default: cores / replicas on this host, or with several counts "
     "cores / the largest count, so that a replica has the same threads at every count"},
    {"device", "cpu|cuda|reference|...", NULL,
     "device that computes; default: cuda where it can run and has every operation, else cpu",
     .first_day = true},
    {"target", "METRIC:VALUE", NULL,
     "measure the time until a metric reaches this value: val_accuracy or val_loss after an epoch, "
     "accuracy or loss over the last 100 steps; for example val_accuracy:0.88",
     .first_day = true},

    {NULL, NULL, NULL, "How to train: the same for all"},
    {"epochs", "N", "1", "passes over the training data", .first_day = true},
    {"steps", "N", NULL, "stop after N steps", .first_day = true},
    {"batch", "N", NULL,
     "examples of a step over all replicas, the same for every replica count; default: 64 times "
     "the largest count"},
    {"replica-batch", "N", NULL,
     "examples of a step for each replica: the global batch then grows with the replica count, and "
     "losses are compared at the largest count only",
     .excludes = "batch"},
    {"optimizer", "NAME[:option=value,...]", NULL, "as for train"},
    {"precision", "float32|mixed_bfloat16|mixed_float16", NULL, "as for train"},
    {"loss-scale", "dynamic|N|none", NULL, "as for train"},
    {"wire", "float32|bfloat16|float16", NULL,
     "number format in which gradients travel between replicas, as for train; strategies that send "
     "none through a collective are not available then",
     .idle = ARGUMENT_IDLE_ONE_REPLICA},
    {"reproducible", "SHARDS", NULL,
     "as for train: every synchronous strategy then has to have the bits of one device, which is "
     "checked; a replica has 1 thread, unless --threads says otherwise",
     .optional = true},
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
    CLUSTER_ARGUMENTS,
    {"deadline", "SECONDS", "60",
     "longest wait for another replica; a run is stopped when it completes no step for twice this "
     "time plus 5 s, and at least 20 s"},
    {"plugin-path", "DIR[:DIR...]", NULL, "directories searched for plugins first"},

    {NULL, NULL, NULL, "On a network that is not here"},
    {"simulate-network", "NAME|FILE.json", NULL,
     "simulate a step of each run on this network, as for --network of simulate (internet, "
     "ethernet-100g, nvlink-ndr, ...), and say how long each takes to a loss there: that of "
     "--target, else the worst of the best losses of all runs"},
    {"compute-scale", "X", NULL, "its machines compute X times as fast as this one",
     .needs = "simulate-network", .excludes = "step-seconds"},
    {"step-seconds", "S", NULL,
     "forward and backward of a step take S seconds there, with the most replicas",
     .needs = "simulate-network"},

    {NULL, NULL, NULL, "What comes out"},
    {"report", "FILE", NULL, "write what was measured, as JSON", .writes = true, .first_day = true},
    {"html", "FILE", NULL, "write one page with charts, which needs no network", .writes = true,
     .first_day = true},
    {"quiet", NULL, NULL, "print no progress, only the result"},
    {"progress", NULL, NULL,
     "print what is going on to stderr, one line each time, for programs that display it"},
    {"model-name", "TEXT", NULL, "what tables, page and report call the model; default: --model"},
    {"dataset-name", "TEXT", NULL, "what they call the data; default: --dataset"},
    {"advice", "command|python", "command",
     "whether advice is commands, or calls of the Python package"},
    {NULL, NULL, NULL, NULL},
};

static const char help[] =
    "Over several workers (lockstep launch, mpirun, srun, torchrun and others) every run is one "
    "training of all of them.\n"
    "The references are trained on worker 0 alone, which also prints the result and writes the "
    "files.\n\n"
    "Every run trains from the same weights on the same data, in a process of its own. The "
    "reference for correctness\n"
    "is one-device, which is added if the list does not name it. It runs a second time with each "
    "batch in two halves:\n"
    "the difference between these two runs is what rounding alone causes. Where replicas normalize "
    "by statistics of their\n"
    "own shares (BatchNormalization without synchronized), the reference takes the same shares. "
    "With --reproducible\n"
    "there is no rounding to allow for: a synchronous run has the bits of the reference, or is "
    "wrong. Then every run is timed in\n"
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
    "--replicas=1,2,4 --threads=1\n"
    "  lockstep compare --model=cnn --dataset=fashion-mnist "
    "--strategies=ring,ring+int8,diloco:steps=50 --steps=300 --simulate-network=internet\n\n"
    "Ctrl-C stops every run after its current step and shows the results so far; a second one "
    "stops at once.\n";

// ---- Who runs ----

static uint32_t threads_of(const struct comparing *comparing, uint32_t replicas, bool together)
{
    if (comparing->setting.run.threads)
        return comparing->setting.run.threads;
    if (comparing->setting.run.reproducible) // other numbers of threads have other bits
        return 1;
    // Of the workers on one host, as for train; a run of worker 0 alone has the host for itself.
    const struct compare_crew *workers = comparing->race.workers;
    const uint32_t crowd = workers && (together || comparing->count_count > 1) ? workers->crowd : 1;
    const uint32_t parts = crowd * (comparing->count_count > 1 ? comparing->largest : replicas);
    const uint32_t threads = ls_core_count() / parts;
    return threads ? threads : 1;
}

// `replicas` 0: a strategy for one replica, which worker 0 has.
static enum ls_status add(struct comparing *comparing, const char *strategy, uint32_t replicas,
                          uint64_t batch, size_t item)
{
    const bool together = replicas > 0;
    replicas = together ? replicas : 1;
    if (comparing->race.count == RUNS_MOST) {
        ls_error("usage", "more than %d runs; compare fewer strategies or counts of replicas",
                 RUNS_MOST);
        return LS_USAGE;
    }
    const struct compare_entry entry = {.strategy = strategy,
                                        .workers = together ? comparing->place.workers : 1,
                                        .replicas = replicas,
                                        .threads = threads_of(comparing, replicas, together),
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
        status = add(comparing, strategy, 0, comparing->batch, item);
        if (!status && is_one_device(strategy) && comparing->reference == SIZE_MAX)
            comparing->reference = comparing->race.count - 1;
    } else {
        for (size_t i = 0; !status && i < comparing->count_count; i++) {
            const uint32_t count = comparing->counts[i];
            const uint64_t batch = comparing->replica_batch
                                       ? comparing->replica_batch * count * comparing->place.workers
                                       : comparing->batch;
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
        status = add(comparing, COMPARE_REFERENCE, 0, comparing->batch, SIZE_MAX);
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
    // Where nobody named a device, all runs have that of the reference.
    if (!comparing->setting.run.device && comparing->place.workers == 1)
        comparing->setting.run.device = runner->shared->device;
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

static void warn_of_idle_options(const struct arguments *arguments,
                                 const struct comparing *comparing)
{
    const struct compare_shared *shared = comparing->race.runners[comparing->reference].shared;
    arguments_warn_steps(arguments, shared->steps, comparing->setting.fit.epochs);
    if (comparing->place.workers > 1)
        return;
    arguments_warn_idle(arguments, ARGUMENT_IDLE_ALONE, 0, "with one worker");
    if (comparing->largest == 1)
        arguments_warn_idle(arguments, ARGUMENT_IDLE_ONE_REPLICA, 0, "with one replica");
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
    printf("comparing %zu runs of %s on %s%s", count_visible(&comparing->race),
           comparing->model_name, comparing->dataset_name,
           compare_yardstick_text(&comparing->yardstick));
    if (comparing->place.workers > 1)
        printf(", over %u workers", comparing->place.workers);
    printf(": %llu steps of %llu examples, %s\n", (unsigned long long)shared->steps,
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
        "model",           "dataset",    "loss",     "loss-weights", "metrics",
        "initial-weights", "device",     "epochs",   "steps",        "optimizer",
        "precision",       "loss-scale", "wire",     "reproducible", "seed",
        "shuffle",         "validation", "deadline", "plugin-path"};
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
    struct ls_comparison comparison = {
        .model = comparing->model_name,
        .dataset = comparing->dataset_name,
        .for_python = comparing->for_python,
        .optimizer = comparing->optimizer,
        .options = options,
        .option_count = shared_options(arguments, options),
        .seed = comparing->setting.run.seed,
        .shards = comparing->setting.run.reproducible,
        .workers = comparing->place.workers,
        .global_batch = comparing->batch,
        .target_metric = compare_metric_text(comparing->target.metric),
        .target_value = comparing->target.value,
        .network = comparing->network_name ? comparing->network.name : NULL,
        .compute_scale = comparing->compute_scale,
        .compute_seconds = comparing->compute_seconds,
        .reference = LS_COMPARISON_NONE,
        .reference_is_extra = comparing->reference_is_ours};
    enum ls_status status =
        compare_collect(&comparing->race, &comparing->target, &comparing->yardstick, &comparison);
    if (!status && comparison.network)
        status = compare_simulate(&comparing->race, &comparing->network, &comparison);
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
    if (comparing_needs_validation(comparing)) {
        ls_error("--target", "%s is not measured: '%s' is one split; add validation_split=",
                 compare_metric_text(comparing->target.metric), dataset);
        return LS_USAGE;
    }
    comparing->unvalidated = dataset;
    comparing->setting.validation = false;
    return LS_OK;
}

// Of a process alone, or of worker 0, where all workers train each run.
static enum ls_status compare(const struct arguments *arguments, struct comparing *comparing)
{
    compare_catch();
    enum ls_status status = compare_race_init(&comparing->race, &comparing->setting);
    comparing->race.quiet = !comparing->setting.run.progress;
    comparing->race.says = arguments_given(arguments, "progress");
    comparing->race.deadline_ns =
        (uint64_t)(fmin(comparing->setting.run.deadline_seconds, DEADLINE_MOST) * 1e9);
    if (!status)
        status = choose_runs(comparing);
    if (!status)
        status = look_at_model(comparing);
    if (!status)
        status = look_at_validation(comparing);
    if (!status)
        status = prepare_all(comparing);
    if (status == LS_INTERRUPTED && !compare_lost())
        ls_error("compare", "interrupted before the first step");
    if (status)
        return status;
    if (comparing->unvalidated)
        ls_info("compare",
                "no validation: '%s' is one split; add validation_split=", comparing->unvalidated);
    warn_of_idle_options(arguments, comparing);
    print_setting(comparing);
    enum ls_status ran = compare_race_run(&comparing->race);
    if (!ran && comparing->speed_steps)
        ran = compare_speed_run(&comparing->race, comparing->speed_steps);
    if (compare_lost() || (ran && ran != LS_INTERRUPTED))
        return ran ? ran : LS_INTERRUPTED;
    return show_result(arguments, comparing, ran);
}

// Several workers: this one passes on what is said, and a child of it does what there is to do.
static enum ls_status compare_together(const struct arguments *arguments,
                                       struct comparing *comparing)
{
    struct ls_agreement agreement[COMPARING_AGREEMENTS];
    char dataset[COMPARING_NAME], logical[COMPARING_NAME];
    struct compare_crew workers = {.strategies = &comparing->strategies};
    const struct compare_crew_options options = {
        .place = &comparing->place,
        .run = &comparing->setting.run,
        .agreement = agreement,
        .agreements = comparing_agreement(arguments, comparing->setting.run.reproducible, dataset,
                                          logical, agreement)};
    bool passed_on = true;
    enum ls_status status = compare_crew_divide(&options, &workers, &passed_on);
    if (status || passed_on)
        return status;
    comparing->race.workers = &workers;
    if (workers.worker)
        compare_follow(&workers, &comparing->setting);
    else
        status = compare(arguments, comparing);
    compare_race_finish(&comparing->race); // while there are others to hear of it
    if (!compare_lost())
        return status;
    ls_log_note_error(); // the process that has joined says who is lost
    return LS_PEER_LOST;
}

static enum ls_status run(const struct arguments *arguments)
{
    struct comparing comparing = {.speed_steps = 1}; // that is: the least number of processes
    const struct ls_environment environment = ls_environment_of_process();
    enum ls_status status = ls_worker_place_resolve(arguments_text(arguments, "cluster"),
                                                    &environment, &comparing.place);
    if (!status && *comparing.place.ignored)
        ls_warn("cluster", "%s: incomplete, and not used", comparing.place.ignored);
    if (!status)
        status = comparing_read(arguments, &comparing);
    if (!status)
        status = comparing.place.workers > 1 ? compare_together(arguments, &comparing)
                                             : compare(arguments, &comparing);
    compare_race_finish(&comparing.race);
    compare_list_finish(&comparing.strategies);
    ls_network_finish(&comparing.network);
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
