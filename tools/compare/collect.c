// SPDX-License-Identifier: Apache-2.0
// Reads reports, losses and weights of the runs.
#include "tools/compare/collect.h"

#include "core/base/log.h"
#include "core/base/threads.h"
#include "core/formats/safetensors.h"
#include "tools/compare/figures.h"
#include "tools/compare/race.h"
#include "tools/compare/crew.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FIRST_STEPS 10
#define REASON_LETTERS 160

// ---- Files ----

struct steps {
    struct compare_step *list;
    size_t count;
};

// Nothing where the run left none.
static enum ls_status read_steps(const struct compare_runner *runner, struct steps *out)
{
    char *path = compare_runner_path(runner, COMPARE_STEPS);
    if (!path)
        return LS_OUT_OF_MEMORY;
    FILE *file = fopen(path, "r");
    free(path);
    struct stat about;
    *out = (struct steps){0};
    if (!file)
        return LS_OK;
    enum ls_status status = LS_OK;
    if (fstat(fileno(file), &about) == 0 && about.st_size > 0) {
        const size_t count = (size_t)about.st_size / sizeof(*out->list);
        out->list = malloc(count * sizeof(*out->list) + 1);
        status = out->list ? LS_OK : LS_OUT_OF_MEMORY;
        if (!status)
            out->count = fread(out->list, sizeof(*out->list), count, file);
    }
    fclose(file);
    return status;
}

static json_t *read_report(const struct compare_runner *runner)
{
    char *path = compare_runner_path(runner, COMPARE_REPORT);
    json_t *report = path ? json_load_file(path, 0, NULL) : NULL;
    free(path);
    return report;
}

static double number_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static struct ls_safetensors *open_weights(const struct compare_runner *runner)
{
    struct stat about;
    struct ls_safetensors *file = NULL;
    char *path = compare_runner_path(runner, COMPARE_WEIGHTS);
    if (path && stat(path, &about) == 0)
        (void)!ls_safetensors_open(path, &file);
    free(path);
    return file;
}

static size_t elements(const struct ls_saved_tensor *tensor)
{
    size_t count = 1;
    for (uint32_t i = 0; i < tensor->ndims; i++)
        count *= (size_t)tensor->dims[i];
    return count;
}

// Largest absolute difference of two runs' parameters; NaN where one has none, or one that is not finite.
static double compare_weights(const struct compare_runner *a, const struct compare_runner *b)
{
    struct ls_safetensors *ours = open_weights(a), *theirs = open_weights(b);
    double largest = ours && theirs ? 0 : NAN;
    for (size_t i = 0; ours && theirs && i < ls_safetensors_count(ours); i++) {
        const struct ls_saved_tensor *x = ls_safetensors_get(ours, i);
        const struct ls_saved_tensor *y = ls_safetensors_find(theirs, x->name);
        if (!y || elements(y) != elements(x))
            largest = NAN;
        for (size_t k = 0; !isnan(largest) && k < elements(x); k++) {
            const double difference = fabs((double)x->data[k] - (double)y->data[k]);
            largest = isfinite(difference) ? fmax(largest, difference) : NAN;
        }
    }
    ls_safetensors_close(ours);
    ls_safetensors_close(theirs);
    return largest;
}

// ---- A run ----

// Files of the user are in no such folder: what could not be written there is what this program keeps of a run.
static char *message_text(const struct compare_race *race, const struct compare_runner *runner)
{
    const char *cause = strrchr(runner->message, ':');
    if (!strstr(runner->message, race->folder) || !cause)
        return strdup(runner->message);
    const int length = (int)(strrchr(race->folder, '/') - race->folder);
    const size_t bytes = strlen(cause) + (size_t)length + 128;
    char *text = malloc(bytes);
    if (text)
        snprintf(text, bytes,
                 "it could not write its results:%.*s in '%.*s'; set TMPDIR to another folder",
                 (int)strcspn(cause + 1, ";"), cause + 1, length, race->folder);
    return text;
}

static char *reason_text(const struct compare_race *race, const struct compare_runner *runner)
{
    char text[REASON_LETTERS];
    if (runner->end == COMPARE_HUNG) {
        char where[64] = "before the first step";
        if (runner->ready)
            snprintf(where, sizeof(where), "before step %llu was done%s",
                     (unsigned long long)runner->given,
                     runner->speed.failed ? ", while it was timed" : "");
        snprintf(text, sizeof(text),
                 "it made no progress for %.0f s and was stopped %s; a larger --deadline waits "
                 "longer",
                 (double)runner->waited_ns * 1e-9, where);
        return strdup(text);
    }
    if (runner->message)
        return message_text(race, runner);
    char on[32] = "";
    if (runner->worker)
        snprintf(on, sizeof(on), " on worker %u", runner->worker);
    if (runner->end == COMPARE_CRASHED)
        snprintf(text, sizeof(text), "its process%s crashed with signal %d (%s), %s", on,
                 runner->signal, strsignal(runner->signal),
                 runner->speed.failed ? "while it was timed"
                 : runner->ready      ? "while it trained"
                                      : "before the first step");
    else
        snprintf(text, sizeof(text), "its process%s ended with code %d and no message", on,
                 runner->code);
    return strdup(text);
}

static enum ls_compared_status status_of(const struct compare_runner *runner)
{
    if (runner->end != COMPARE_ENDED)
        return LS_COMPARED_FAILED;
    switch (runner->code) {
    case 0: return LS_COMPARED_DONE;
    case 2:
    case 4: return runner->ready ? LS_COMPARED_FAILED : LS_COMPARED_UNAVAILABLE;
    case 130: return LS_COMPARED_INTERRUPTED;
    default: return LS_COMPARED_FAILED;
    }
}

static void read_times(const json_t *report, struct ls_compared_times *out)
{
    const json_t *times = json_object_get(report, "step_seconds");
    out->median = number_at(times, "median");
    out->input = number_at(times, "input");
    out->compute = number_at(times, "compute");
    out->communication = number_at(times, "communication");
    out->exposed_communication = number_at(times, "exposed_communication");
    out->update = number_at(times, "update");
    out->device = number_at(times, "device");
    const double known = out->input + out->compute + out->exposed_communication + out->update;
    out->other = fmax(0, out->median - known - fmax(0, out->device));
}

static const char *first_hash(const json_t *report)
{
    return json_string_value(json_array_get(json_object_get(report, "parameter_hashes"), 0));
}

static int hashes_equal(const json_t *report)
{
    const json_t *hashes = json_object_get(report, "parameter_hashes");
    const char *first = first_hash(report);
    for (size_t i = 1; first && i < json_array_size(hashes); i++) {
        const char *other = json_string_value(json_array_get(hashes, i));
        if (!other || strcmp(first, other) != 0)
            return 0;
    }
    return first ? 1 : -1;
}

// `hosts`: of the workers that the run is on.
static void read_facts(struct ls_compared_run *run, uint32_t hosts)
{
    const json_t *report = run->report;
    const json_t *bytes =
        json_object_get(json_object_get(report, "communication"), "bytes_per_step_per_rank");
    read_times(report, &run->times);
    run->bytes_per_step = (uint64_t)json_integer_value(bytes);
    run->peak_rss_bytes = (uint64_t)json_integer_value(json_object_get(report, "peak_rss_bytes"));
    run->replicas_equal = hashes_equal(report);
    const uint64_t device_bytes =
        (uint64_t)json_integer_value(json_object_get(report, "device_bytes"));
    const uint32_t workers = run->workers ? run->workers : 1;
    run->replica_bytes = run->peak_rss_bytes / (run->replicas / workers) + device_bytes;
    const double cores = (double)run->replicas * run->threads,
                 all = (double)ls_core_count() * hosts;
    run->cores = device_bytes ? (double)run->replicas : fmin(cores, all);
}

// Validation belongs to the end of its epoch.
static void read_validation(struct ls_compared_run *run, const struct steps *steps,
                            const struct compare_target *target)
{
    json_t *epochs = json_object_get(run->report, "epochs");
    uint64_t step = 0;
    for (size_t i = 0; i < json_array_size(epochs); i++) {
        const json_t *epoch = json_array_get(epochs, i);
        step += (uint64_t)json_integer_value(json_object_get(epoch, "steps"));
        const double loss = number_at(epoch, "val_loss");
        const double accuracy = number_at(epoch, "val_accuracy");
        if (isfinite(loss)) {
            run->val_loss = loss;
            run->val_accuracy = accuracy;
        }
        for (size_t k = 0; k < run->curve_count; k++)
            if (run->curve[k].step == step) {
                run->curve[k].val_loss = loss;
                run->curve[k].val_accuracy = accuracy;
            }
        const bool wanted =
            target->metric == COMPARE_VAL_LOSS || target->metric == COMPARE_VAL_ACCURACY;
        const double value = target->metric == COMPARE_VAL_LOSS ? loss : accuracy;
        if (!wanted || step == 0 || step > steps->count || isfinite(run->target_seconds) ||
            !compare_target_reached(target, value))
            continue;
        run->target_step = step;
        run->target_seconds = steps->list[step - 1].seconds;
        run->target_examples = 0;
        for (size_t k = 0; k < step; k++)
            run->target_examples += steps->list[k].examples;
    }
}

// Training figures jump from step to step: what counts is their mean over the last steps, as many as an epoch has, at
// most 100.
static void find_target(struct ls_compared_run *run, const struct steps *steps,
                        const struct compare_target *target, uint64_t epoch_steps)
{
    if (target->metric != COMPARE_LOSS && target->metric != COMPARE_ACCURACY)
        return;
    const size_t width =
        epoch_steps < COMPARE_LAST_STEPS ? (size_t)epoch_steps : COMPARE_LAST_STEPS;
    double examples = 0;
    for (size_t end = 1; end <= steps->count; end++) {
        examples += steps->list[end - 1].examples;
        if (end < width)
            continue;
        const struct compare_mean mean = compare_mean_of(steps->list, end - width, end);
        if (!compare_target_reached(target,
                                    target->metric == COMPARE_LOSS ? mean.loss : mean.accuracy))
            continue;
        run->target_step = end;
        run->target_seconds = steps->list[end - 1].seconds;
        run->target_examples = examples;
        return;
    }
}

// The speed of the timed processes; of the training itself where there are none, after an interruption.
static enum ls_status measure_speed(const struct compare_runner *runner, size_t blocks,
                                    const struct steps *steps, struct ls_compared_run *run)
{
    const struct compare_speed *speed = &runner->speed;
    const size_t room = (speed->turn_count > steps->count ? speed->turn_count : steps->count) + 1;
    run->round_rates = malloc(room * sizeof(*run->round_rates));
    run->process_rates = malloc((blocks + 1) * sizeof(*run->process_rates));
    double *sorted = malloc(room * sizeof(*sorted));
    if (!run->round_rates || !run->process_rates || !sorted) {
        free(sorted);
        return LS_OUT_OF_MEMORY;
    }
    if (speed->turn_count) {
        run->round_count = speed->turn_count;
        memcpy(run->round_rates, speed->turns, speed->turn_count * sizeof(*speed->turns));
        run->process_count = blocks;
        memcpy(run->process_rates, speed->processes, blocks * sizeof(*speed->processes));
        run->timed_steps = speed->steps;
    } else {
        run->round_count = compare_rates(steps->list, steps->count, run->round_rates);
    }
    memcpy(sorted, run->round_rates, run->round_count * sizeof(*sorted));
    compare_sort(sorted, run->round_count);
    run->rate = run->process_count ? compare_geometric_mean(run->process_rates, run->process_count)
                                   : compare_quantile(sorted, run->round_count, 0.5);
    run->rate_low = compare_quantile(sorted, run->round_count, 0.25);
    run->rate_high = compare_quantile(sorted, run->round_count, 0.75);
    free(sorted);
    return LS_OK;
}

static enum ls_status measure(const struct compare_runner *runner, const struct steps *steps,
                              const struct compare_target *target, struct ls_compared_run *run)
{
    const bool accuracy = runner->shared->accuracy;
    const struct compare_mean last = compare_mean(steps->list, steps->count);
    run->final_loss = last.loss;
    run->final_accuracy = accuracy ? last.accuracy : NAN;
    const enum ls_status status =
        compare_curve(steps->list, steps->count, runner->shared->epoch_steps, accuracy, &run->curve,
                      &run->curve_count);
    if (status)
        return status;
    find_target(run, steps, target, runner->shared->epoch_steps);
    read_validation(run, steps, target);
    if (run->process_count && run->rate > 0)
        compare_set_times(run);
    return LS_OK;
}

static const struct ls_compared_run nothing = {.rate = NAN,
                                               .rate_low = NAN,
                                               .rate_high = NAN,
                                               .times = {NAN, NAN, NAN, NAN, NAN, NAN, NAN},
                                               .final_loss = NAN,
                                               .final_accuracy = NAN,
                                               .val_loss = NAN,
                                               .val_accuracy = NAN,
                                               .loss_deviation = NAN,
                                               .loss_deviation_first_two = NAN,
                                               .loss_deviation_first_ten = NAN,
                                               .loss_excess = NAN,
                                               .parameter_deviation = NAN,
                                               .replicas_equal = -1,
                                               .same_bits = -1,
                                               .target_seconds = NAN,
                                               .target_examples = NAN,
                                               .elsewhere = {.step_seconds = NAN,
                                                             .unfiltered_seconds = NAN,
                                                             .work_seconds = NAN,
                                                             .exchange_seconds = NAN,
                                                             .goal_seconds = NAN}};

static enum ls_status collect_run(const struct compare_race *race,
                                  const struct compare_runner *runner, const struct steps *steps,
                                  const struct compare_target *target, struct ls_compared_run *run)
{
    *run = nothing;
    run->workers = runner->entry.workers;
    run->replicas = compare_entry_world(&runner->entry);
    run->threads = runner->entry.threads;
    run->global_batch = runner->entry.batch;
    run->status = status_of(runner);
    run->strategy = strdup(runner->entry.strategy);
    const bool said_why = run->status != LS_COMPARED_DONE && run->status != LS_COMPARED_INTERRUPTED;
    run->reason = said_why ? reason_text(race, runner) : NULL;
    if (!run->strategy || (said_why && !run->reason))
        return LS_OUT_OF_MEMORY;
    if (!runner->ready)
        return LS_OK;
    run->way = (enum ls_compared_way)runner->shared->way;
    run->filter_begins = runner->shared->filter_begins;
    run->report = read_report(runner);
    // What failed is no result, though it may have trained for a while.
    if (run->status == LS_COMPARED_FAILED)
        return LS_OK;
    if (run->report)
        read_facts(run, race->workers && run->workers > 1 ? race->workers->hosts : 1);
    const enum ls_status status = measure_speed(runner, race->blocks, steps, run);
    return status ? status : measure(runner, steps, target, run);
}

// ---- All of them ----

static bool has_failed(const struct compare_runner *runner)
{
    return status_of(runner) == LS_COMPARED_FAILED || status_of(runner) == LS_COMPARED_UNAVAILABLE;
}

static void compare_with(const struct compare_race *race, const struct steps *steps, size_t truth,
                         size_t index, struct ls_compared_run *run)
{
    const struct steps *ours = &steps[index], *theirs = &steps[truth];
    const struct compare_runner *runner = &race->runners[index];
    const struct compare_runner *base = &race->runners[truth];
    if (runner->entry.batch != base->entry.batch || status_of(runner) == LS_COMPARED_FAILED ||
        status_of(base) == LS_COMPARED_FAILED)
        return;
    run->loss_deviation_first_ten =
        compare_losses(ours->list, ours->count, theirs->list, theirs->count, FIRST_STEPS);
    run->loss_deviation =
        compare_losses(ours->list, ours->count, theirs->list, theirs->count, SIZE_MAX);
    run->reference_shares = base->entry.microbatches;
    // After different numbers of steps parameters are not the same thing.
    if (ours->count == theirs->count && ours->count)
        run->parameter_deviation = compare_weights(runner, base);
}

static int same_bits(const struct ls_compared_run *run, const struct compare_runner *base)
{
    json_t *theirs = read_report(base);
    const char *mine = first_hash(run->report), *other = first_hash(theirs);
    const int same =
        isfinite(run->parameter_deviation) && mine && other
            ? run->loss_deviation == 0 && strcmp(mine, other) == 0 && run->replicas_equal != 0
            : -1;
    json_decref(theirs);
    return same;
}

// What rounding alone does, step by step; nothing where there is no second run of the reference.
struct growth {
    double *list;
    size_t count;
};

static enum ls_status find_spread(const struct compare_race *race, const struct steps *steps,
                                  const struct compare_yardstick *yardstick, struct growth *growth,
                                  struct ls_comparison *out)
{
    const size_t twin = yardstick->twin, truth = yardstick->twin_of;
    struct ls_compared_run spread = nothing;
    out->basis = yardstick->basis;
    out->nudge_dtype = yardstick->nudge_dtype;
    out->rounding_spread_first_two = NAN;
    if (twin != SIZE_MAX)
        compare_with(race, steps, truth, twin, &spread);
    out->rounding_spread = spread.loss_deviation;
    out->rounding_spread_first_ten = spread.loss_deviation_first_ten;
    out->rounding_spread_parameters = spread.parameter_deviation;
    if (yardstick->basis != LS_BASIS_SHARES)
        return LS_OK;
    growth->list = malloc((steps[twin].count + 1) * sizeof(*growth->list));
    if (!growth->list)
        return LS_OUT_OF_MEMORY;
    growth->count = compare_growth(steps[twin].list, steps[twin].count, steps[truth].list,
                                   steps[truth].count, growth->list);
    if (growth->count > 1)
        out->rounding_spread_first_two = growth->list[1];
    return LS_OK;
}

// Where the reference takes the same shares, it is not among the runs: that it failed is said
// apart.
static enum ls_status hold_against(const struct compare_race *race, const struct steps *steps,
                                   const struct compare_yardstick *yardstick,
                                   const struct growth *growth, size_t index,
                                   struct ls_comparison *out, struct ls_compared_run *run)
{
    const size_t truth = yardstick->truth_of[index];
    if (truth == SIZE_MAX)
        return LS_OK;
    compare_with(race, steps, truth, index, run);
    if (yardstick->basis == LS_BASIS_BITS)
        run->same_bits = same_bits(run, &race->runners[truth]);
    if (yardstick->basis == LS_BASIS_SHARES && run->reference_shares) {
        const struct steps *ours = &steps[index], *theirs = &steps[truth];
        run->loss_deviation_first_two =
            compare_losses(ours->list, ours->count, theirs->list, theirs->count, 2);
        run->loss_excess = compare_excess(ours->list, ours->count, theirs->list, theirs->count,
                                          growth->list, growth->count);
    }
    if (truth == yardstick->reference || out->shares_failed || !has_failed(&race->runners[truth]))
        return LS_OK;
    out->shares_failed = reason_text(race, &race->runners[truth]);
    return out->shares_failed ? LS_OK : LS_OUT_OF_MEMORY;
}

static void describe_machine(const struct ls_compared_run *run, struct ls_comparison *out)
{
    const char *device = json_string_value(json_object_get(run->report, "device"));
    const char *hardware = json_string_value(json_object_get(run->report, "hardware"));
    if (out->device || !device || !hardware)
        return;
    out->device = strdup(device);
    out->hardware = strdup(hardware);
}

// The target, or else what all runs that learned have reached. `steps_of`: of each run.
static void find_goal(const struct steps *const *steps_of, struct ls_comparison *out)
{
    out->goal_loss = NAN;
    for (size_t i = 0; i < out->run_count && !out->target_metric; i++) {
        const double best = out->runs[i].status == LS_COMPARED_DONE
                                ? compare_best_loss(steps_of[i]->list, steps_of[i]->count)
                                : NAN;
        if (isfinite(best))
            out->goal_loss = isfinite(out->goal_loss) ? fmax(out->goal_loss, best) : best;
    }
    for (size_t i = 0; i < out->run_count; i++) {
        struct ls_compared_run *run = &out->runs[i];
        const bool learned = run->status == LS_COMPARED_DONE;
        run->goal_step =
            out->target_metric ? run->target_step
            : learned ? compare_step_of_loss(steps_of[i]->list, steps_of[i]->count, out->goal_loss)
                      : 0;
    }
}

enum ls_status compare_collect(const struct compare_race *race, const struct compare_target *target,
                               const struct compare_yardstick *yardstick, struct ls_comparison *out)
{
    struct steps *steps = calloc(race->count + 1, sizeof(*steps));
    const struct steps **steps_of = calloc(race->count + 1, sizeof(struct steps *));
    struct growth growth = {0};
    out->runs = calloc(race->count + 1, sizeof(*out->runs));
    out->run_count = 0;
    out->reference = LS_COMPARISON_NONE;
    enum ls_status status = steps && steps_of && out->runs ? LS_OK : LS_OUT_OF_MEMORY;
    for (size_t i = 0; !status && i < race->count; i++)
        status = read_steps(&race->runners[i], &steps[i]);
    if (!status)
        status = find_spread(race, steps, yardstick, &growth, out);
    for (size_t i = 0; !status && i < race->count; i++) {
        if (race->runners[i].hidden)
            continue;
        struct ls_compared_run *run = &out->runs[out->run_count];
        steps_of[out->run_count++] = &steps[i];
        if (i == yardstick->reference)
            out->reference = out->run_count - 1;
        status = collect_run(race, &race->runners[i], &steps[i], target, run);
        if (status)
            break;
        describe_machine(run, out);
        status = hold_against(race, steps, yardstick, &growth, i, out, run);
        if (steps[i].count > out->steps)
            out->steps = steps[i].count;
    }
    if (!status)
        find_goal(steps_of, out);
    if (!status)
        status = ls_comparison_measure(out);
    for (size_t i = 0; steps && i < race->count; i++)
        free(steps[i].list);
    free(steps);
    free(steps_of);
    free(growth.list);
    return status;
}
