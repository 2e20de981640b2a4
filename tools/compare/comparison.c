// SPDX-License-Identifier: Apache-2.0
// A comparison as JSON.
#include "tools/compare/comparison.h"

#include "core/report/json_values.h"
#include "core/report/made.h"
#include "core/plugin/device.h"
#include "core/report/whole_file.h"
#include "tools/compare/sentences.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS 9

void ls_comparison_finish(struct ls_comparison *comparison)
{
    for (size_t i = 0; i < comparison->run_count; i++) {
        struct ls_compared_run *run = &comparison->runs[i];
        free(run->strategy);
        free(run->reason);
        free(run->round_rates);
        free(run->process_rates);
        free(run->curve);
        free(run->elsewhere.reason);
        json_decref(run->report);
    }
    free(comparison->runs);
    free(comparison->differences);
    free(comparison->device);
    free(comparison->hardware);
    free(comparison->shares_failed);
    *comparison = (struct ls_comparison){.reference = LS_COMPARISON_NONE};
}

const char *ls_way_text(enum ls_compared_way way)
{
    static const char *const texts[] = {
        [LS_WAY_PLAIN] = "plain",
        [LS_WAY_ASYNCHRONOUS] = "asynchronous",
        [LS_WAY_ROUNDS] = "rounds",
        [LS_WAY_FILTERED] = "filtered",
    };
    return texts[way];
}

double ls_rounding_of(uint32_t dtype)
{
    return ldexp(1, dtype == LS_BF16 ? -8 : dtype == LS_F16 ? -11 : -23);
}

// ---- Values ----

static json_t *numbers(const double *values, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, ls_report_number_json(values[i]));
    return list;
}

// One may have a command to copy, with the words of this one's; it ends where something may be secret.
static json_t *sentences_json(const struct ls_sentences *sentences)
{
    json_t *list = json_array();
    for (size_t i = 0; i < sentences->count; i++)
        json_array_append_new(list, ls_made_text_json(NULL, sentences->list[i]));
    return list;
}

static const char *status_text(enum ls_compared_status status)
{
    switch (status) {
    case LS_COMPARED_DONE: return "done";
    case LS_COMPARED_UNAVAILABLE: return "unavailable";
    case LS_COMPARED_INTERRUPTED: return "interrupted";
    default: return "failed";
    }
}

// ---- A run ----

static json_t *times_json(const struct ls_compared_times *times)
{
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "median", ls_report_number_json(times->median),
        "input", ls_report_number_json(times->input), "compute",
        ls_report_number_json(times->compute), "communication",
        ls_report_number_json(times->communication), "exposed_communication",
        ls_report_number_json(times->exposed_communication), "update",
        ls_report_number_json(times->update), "device", ls_report_number_json(times->device),
        "other", ls_report_number_json(times->other));
}

static json_t *curve_json(const struct ls_compared_run *run)
{
    json_t *list = json_array();
    for (size_t i = 0; i < run->curve_count; i++) {
        const struct ls_compared_point *point = &run->curve[i];
        json_array_append_new(list,
                              json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "step",
                                        ls_report_count_json(point->step), "examples",
                                        ls_report_count_json(point->examples), "seconds",
                                        ls_report_number_json(point->seconds), "loss",
                                        ls_report_number_json(point->loss), "accuracy",
                                        ls_report_number_json(point->accuracy), "val_loss",
                                        ls_report_number_json(point->val_loss), "val_accuracy",
                                        ls_report_number_json(point->val_accuracy)));
    }
    return list;
}

// Parts of the run's own report, which stands whole beside them.
static json_t *part_of_report(const struct ls_compared_run *run, const char *first,
                              const char *second)
{
    json_t *part = json_object_get(run->report, first);
    if (second)
        part = json_object_get(part, second);
    return part ? json_incref(part) : json_array();
}

static void add_speed(json_t *object, const struct ls_compared_run *run)
{
    json_object_set_new(object, "examples_per_second", ls_report_number_json(run->rate));
    json_object_set_new(object, "examples_per_second_low", ls_report_number_json(run->rate_low));
    json_object_set_new(object, "examples_per_second_high", ls_report_number_json(run->rate_high));
    json_object_set_new(object, "round_examples_per_second",
                        numbers(run->round_rates, run->round_count));
    json_object_set_new(object, "process_examples_per_second",
                        numbers(run->process_rates, run->process_count));
    json_object_set_new(object, "timed_steps", ls_report_count_json(run->timed_steps));
    json_object_set_new(object, "step_seconds", times_json(&run->times));
    json_object_set_new(object, "bytes_per_step_per_rank",
                        run->report ? ls_report_count_json(run->bytes_per_step) : json_null());
    json_object_set_new(object, "peak_rss_bytes",
                        run->report ? ls_report_count_json(run->peak_rss_bytes) : json_null());
    json_object_set_new(object, "replica_bytes",
                        run->report ? ls_report_count_json(run->replica_bytes) : json_null());
}

static void add_truth(json_t *object, const struct ls_compared_run *run)
{
    json_object_set_new(object, "final_loss", ls_report_number_json(run->final_loss));
    json_object_set_new(object, "final_accuracy", ls_report_number_json(run->final_accuracy));
    json_object_set_new(object, "val_loss", ls_report_number_json(run->val_loss));
    json_object_set_new(object, "val_accuracy", ls_report_number_json(run->val_accuracy));
    json_object_set_new(object, "max_loss_deviation", ls_report_number_json(run->loss_deviation));
    json_object_set_new(object, "max_loss_deviation_first_ten",
                        ls_report_number_json(run->loss_deviation_first_ten));
    json_object_set_new(object, "max_loss_deviation_first_two",
                        ls_report_number_json(run->loss_deviation_first_two));
    json_object_set_new(object, "max_parameter_deviation",
                        ls_report_number_json(run->parameter_deviation));
    json_object_set_new(object, "reference_shares",
                        run->reference_shares ? ls_report_count_json(run->reference_shares)
                                              : json_null());
    json_object_set_new(object, "replicas_equal",
                        run->replicas_equal < 0 ? json_null() : json_boolean(run->replicas_equal));
    json_object_set_new(object, "same_bits",
                        run->same_bits < 0 ? json_null() : json_boolean(run->same_bits));
    json_object_set_new(object, "target_seconds", ls_report_number_json(run->target_seconds));
    json_object_set_new(object, "target_examples", ls_report_number_json(run->target_examples));
}

static json_t *elsewhere_json(const struct ls_compared_run *run)
{
    const struct ls_compared_elsewhere *elsewhere = &run->elsewhere;
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "recorded_steps",
                     ls_report_count_json(elsewhere->recorded_steps), "step_seconds",
                     ls_report_number_json(elsewhere->step_seconds), "unfiltered_steps",
                     ls_report_count_json(elsewhere->unfiltered_steps), "unfiltered_step_seconds",
                     ls_report_number_json(elsewhere->unfiltered_seconds), "work_seconds",
                     ls_report_number_json(elsewhere->work_seconds), "exchange_seconds",
                     ls_report_number_json(elsewhere->exchange_seconds), "goal_step",
                     run->goal_step ? ls_report_count_json(run->goal_step) : json_null(),
                     "goal_seconds", ls_report_number_json(elsewhere->goal_seconds), "reason",
                     ls_report_text_json(elsewhere->reason));
}

static json_t *run_json(const struct ls_comparison *comparison, size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    json_t *object = json_object();
    json_object_set_new(object, "strategy", ls_report_text_json(run->strategy));
    json_object_set_new(object, "workers", ls_report_count_json(run->workers));
    json_object_set_new(object, "replicas", ls_report_count_json(run->replicas));
    json_object_set_new(object, "threads", ls_report_count_json(run->threads));
    json_object_set_new(object, "global_batch", ls_report_count_json(run->global_batch));
    json_object_set_new(object, "status", json_string(status_text(run->status)));
    json_object_set_new(object, "reason", ls_report_text_json(run->reason));
    json_object_set_new(object, "synchronous", json_boolean(run->way != LS_WAY_ASYNCHRONOUS));
    json_object_set_new(object, "way", json_string(ls_way_text(run->way)));
    add_speed(object, run);
    add_truth(object, run);
    json_object_set_new(object, "simulated",
                        comparison->network ? elsewhere_json(run) : json_null());
    json_object_set_new(object, "curve", curve_json(run));
    json_object_set_new(object, "epochs", part_of_report(run, "epochs", NULL));
    json_object_set_new(object, "buckets", part_of_report(run, "communication", "buckets"));
    json_object_set(object, "report", run->report ? run->report : json_null());
    return object;
}

// ---- Scaling ----

static bool is_first_of_strategy(const struct ls_comparison *comparison, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (strcmp(comparison->runs[i].strategy, comparison->runs[index].strategy) == 0)
            return false;
    return true;
}

static json_t *points_json(const struct ls_comparison *comparison, const char *strategy)
{
    json_t *points = json_array();
    for (size_t i = 0; i < comparison->run_count; i++) {
        const struct ls_compared_run *run = &comparison->runs[i];
        if (strcmp(run->strategy, strategy) != 0 || !isfinite(run->rate))
            continue;
        json_array_append_new(points,
                              json_pack("{s:o, s:o, s:o, s:o}", "replicas",
                                        ls_report_count_json(run->replicas), "examples_per_second",
                                        ls_report_number_json(run->rate), "low",
                                        ls_report_number_json(run->rate_low), "high",
                                        ls_report_number_json(run->rate_high)));
    }
    return points;
}

static json_t *scaling_json(const struct ls_comparison *comparison)
{
    json_t *list = json_array();
    for (size_t i = 0; i < comparison->run_count; i++) {
        if (!is_first_of_strategy(comparison, i))
            continue;
        const char *strategy = comparison->runs[i].strategy;
        json_array_append_new(list,
                              json_pack("{s:o, s:o}", "strategy", ls_report_text_json(strategy),
                                        "points", points_json(comparison, strategy)));
    }
    return list;
}

// ---- Comparisons ----

static json_t *difference_json(const struct ls_comparison *comparison,
                               const struct ls_difference *difference)
{
    const struct ls_compared_run *a = &comparison->runs[difference->a];
    const struct ls_compared_run *b = &comparison->runs[difference->b];
    json_t *object = json_object();
    json_object_set_new(object, "a", ls_report_text_json(a->strategy));
    json_object_set_new(object, "b", ls_report_text_json(b->strategy));
    json_object_set_new(object, "a_replicas", ls_report_count_json(a->replicas));
    json_object_set_new(object, "b_replicas", ls_report_count_json(b->replicas));
    json_object_set_new(object, "ratio", ls_report_number_json(difference->ratio));
    json_object_set_new(object, "low", ls_report_number_json(difference->low));
    json_object_set_new(object, "high", ls_report_number_json(difference->high));
    json_object_set_new(object, "p", ls_report_number_json(difference->p));
    json_object_set_new(object, "different", json_boolean(difference->different));
    if (!difference->different)
        json_object_set_new(object, "needed_steps",
                            difference->needed_steps
                                ? ls_report_count_json(difference->needed_steps)
                                : json_null());
    return object;
}

// Those that the user asked for; or, `with_extra`, those with a reference that nobody named.
static json_t *differences_json(const struct ls_comparison *comparison, bool with_extra)
{
    json_t *list = json_array();
    for (size_t i = 0; i < comparison->difference_count; i++) {
        const struct ls_difference *difference = &comparison->differences[i];
        const bool extra =
            comparison->reference_is_extra &&
            (difference->a == comparison->reference || difference->b == comparison->reference);
        if (extra == with_extra)
            json_array_append_new(list, difference_json(comparison, difference));
    }
    return list;
}

// ---- The whole ----

static void add_setting(json_t *root, const struct ls_comparison *comparison)
{
    json_object_set_new(root, "lockstep", json_string(LS_VERSION));
    json_object_set_new(root, "made", ls_made_json());
    json_object_set_new(root, "command", json_string("compare"));
    json_object_set_new(root, "status", ls_report_text_json(comparison->status));
    json_object_set_new(root, "model", ls_made_text_json(NULL, comparison->model));
    json_object_set_new(root, "dataset", ls_made_text_json(NULL, comparison->dataset));
    json_object_set_new(root, "optimizer", ls_report_text_json(comparison->optimizer));
    json_object_set_new(root, "device", ls_report_text_json(comparison->device));
    json_object_set_new(root, "hardware", ls_report_text_json(comparison->hardware));
    json_object_set_new(root, "workers", ls_report_count_json(comparison->workers));
    json_object_set_new(root, "seed", ls_report_count_json(comparison->seed));
    json_object_set_new(root, "global_batch", ls_report_count_json(comparison->global_batch));
    json_object_set_new(root, "steps", ls_report_count_json(comparison->steps));
    json_object_set_new(root, "reproducible",
                        comparison->shards ? ls_report_count_json(comparison->shards)
                                           : json_null());
    json_object_set_new(root, "target",
                        comparison->target_metric
                            ? json_pack("{s:o, s:o}", "metric",
                                        ls_report_text_json(comparison->target_metric), "value",
                                        ls_report_number_json(comparison->target_value))
                            : json_null());
}

static json_t *simulated_json(const struct ls_comparison *comparison)
{
    if (!comparison->network)
        return json_null();
    char compute[LS_COMPUTE_BYTES], goal[LS_GOAL_BYTES];
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "network",
                     ls_report_text_json(comparison->network), "compute",
                     ls_report_text_json(ls_compute_text(comparison, compute)), "goal",
                     ls_report_text_json(ls_goal_text(comparison, goal)), "compute_scale",
                     ls_report_number_json(comparison->compute_scale), "compute_seconds",
                     ls_report_number_json(comparison->compute_seconds), "goal_loss",
                     ls_report_number_json(comparison->goal_loss));
}

static void add_results(json_t *root, const struct ls_comparison *comparison)
{
    json_t *runs = json_array();
    for (size_t i = 0; i < comparison->run_count; i++)
        json_array_append_new(runs, run_json(comparison, i));
    const bool has_reference = comparison->reference != LS_COMPARISON_NONE;
    char twin[LS_TWIN_BYTES];
    json_object_set_new(root, "reference",
                        has_reference ? ls_report_count_json(comparison->reference) : json_null());
    json_object_set_new(root, "rounding_spread",
                        ls_report_number_json(comparison->rounding_spread));
    json_object_set_new(root, "rounding_spread_of", json_string(ls_twin_text(comparison, twin)));
    json_object_set_new(root, "rounding_spread_first_two",
                        ls_report_number_json(comparison->rounding_spread_first_two));
    json_object_set_new(root, "rounding_spread_first_ten",
                        ls_report_number_json(comparison->rounding_spread_first_ten));
    json_object_set_new(root, "rounding_spread_parameters",
                        ls_report_number_json(comparison->rounding_spread_parameters));
    json_object_set_new(root, "simulated", simulated_json(comparison));
    json_object_set_new(root, "runs", runs);
    json_object_set_new(root, "comparisons", differences_json(comparison, false));
    json_object_set_new(root, "reference_comparisons", differences_json(comparison, true));
    json_object_set_new(root, "scaling", scaling_json(comparison));
}

enum ls_status ls_comparison_json(const struct ls_comparison *comparison, json_t **out)
{
    struct ls_sentences verdict = {0}, suggestions = {0};
    enum ls_status status = ls_verdict(comparison, &verdict);
    if (!status)
        status = ls_suggestions(comparison, &suggestions);
    json_t *root = status ? NULL : json_object();
    if (root) {
        add_setting(root, comparison);
        add_results(root, comparison);
        json_object_set_new(root, "verdict", sentences_json(&verdict));
        if (json_object_set_new(root, "suggestions", sentences_json(&suggestions)))
            status = LS_OUT_OF_MEMORY;
    }
    ls_sentences_finish(&verdict);
    ls_sentences_finish(&suggestions);
    if (status || !root) {
        json_decref(root);
        return status ? status : LS_OUT_OF_MEMORY;
    }
    *out = root;
    return LS_OK;
}

enum ls_status ls_comparison_write(const json_t *comparison, const char *path)
{
    struct ls_whole_file file = {0};
    const enum ls_status status = ls_whole_file_open("--report", path, &file);
    if (status)
        return status;
    // What could not be written shows as an error of the stream.
    (void)json_dumpf(comparison, file.stream, JSON_INDENT(1) | JSON_REAL_PRECISION(DIGITS));
    fputc('\n', file.stream);
    return ls_whole_file_commit(&file);
}
