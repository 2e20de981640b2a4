// SPDX-License-Identifier: Apache-2.0
// The runs of a comparison on another network.
#include "tools/compare/simulated.h"

#include "tools/compare/elsewhere.h"
#include "tools/compare/figures.h"
#include "tools/simulate/fabric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS_LETTERS 512
#define REPEATING 3 // steps: one to warm up, and two that are alike

enum ls_status compare_network_fits(const struct ls_network *network, uint32_t world)
{
    struct ls_fabric fabric = {0};
    const enum ls_status status = ls_fabric_create(network, world, &fabric);
    ls_fabric_finish(&fabric);
    return status;
}

// ---- What cannot be simulated ----

static bool begins_exchanges(const struct compare_recording *cycle)
{
    for (size_t i = 0; i < cycle->step_count; i++)
        if (cycle->steps[i].mark_count)
            return true;
    return false;
}

// Whether a round was seen: in each all weights travel, or what a filter makes of them.
static bool sends_weights(const struct ls_compared_run *run, const struct compare_recording *cycle)
{
    const json_t *parameters = json_object_get(run->report, "parameters");
    double elements = 0;
    for (size_t i = 0; i < cycle->step_count; i++)
        for (size_t k = 0; k < cycle->steps[i].mark_count; k++) {
            const struct compare_mark *mark = &cycle->steps[i].marks[k];
            const struct compare_exchange *exchange = &cycle->exchanges[mark->exchange];
            if (strstr(exchange->name, ", stage "))
                return true;
            elements += mark->waits ? 0 : (double)exchange->count;
        }
    return elements >= json_number_value(parameters);
}

// How many steps are trained before a filter works; of one replica nothing is filtered.
static size_t unfiltered_steps(const struct ls_compared_run *run)
{
    return run->replicas > 1 ? (size_t)run->filter_begins : 0;
}

// NULL: nothing is in the way.
static char *find_reason(const struct ls_compared_run *run,
                         const struct compare_recording *recording,
                         const struct compare_recording *cycle)
{
    char text[160] = "";
    const size_t begins = unfiltered_steps(run);
    if (isfinite(run->times.device))
        snprintf(text, sizeof(text),
                 "its device works beside the host, which does not see when gradients are ready");
    else if (!recording->step_count)
        snprintf(text, sizeof(text), "its steps were not recorded");
    else if (begins && recording->step_count < begins + REPEATING)
        snprintf(text, sizeof(text), "its filter begins after %zu updates; %zu were recorded",
                 begins, recording->step_count);
    else if (!cycle->step_count || (run->way == LS_WAY_ROUNDS && !sends_weights(run, cycle)))
        snprintf(text, sizeof(text), "what it sends did not repeat in %zu step%s; train %s",
                 recording->step_count, recording->step_count == 1 ? "" : "s",
                 run->way == LS_WAY_ROUNDS ? "more than two rounds" : "at least three steps");
    else if (run->replicas > 1 && !begins_exchanges(cycle))
        snprintf(text, sizeof(text), "it uses no collective that describes a schedule");
    return *text ? strdup(text) : NULL;
}

// ---- How fast machines compute ----

struct simulated {
    struct compare_recording cycle;
    struct compare_recording unfiltered; // of the steps before its filter begins
    double kernels; // seconds of a step of `cycle`, as recorded; NaN: there is no cycle
};

// What forward and backward take in runs that divide the same batch among as many ranks: the
// median, as all of them compute the same.
static double common_kernels(const struct ls_comparison *comparison,
                             const struct simulated *simulated, size_t like, double *values)
{
    const struct ls_compared_run *run = &comparison->runs[like];
    size_t count = 0;
    for (size_t i = 0; i < comparison->run_count; i++) {
        const struct ls_compared_run *other = &comparison->runs[i];
        if (isfinite(simulated[i].kernels) && other->replicas == run->replicas &&
            other->global_batch == run->global_batch && other->threads == run->threads)
            values[count++] = simulated[i].kernels;
    }
    compare_sort(values, count);
    return compare_quantile(values, count, 0.5);
}

// How many times as fast machines compute there. Where the user says what a step takes, that is
// one of a run with the most replicas.
static double scale_of(const struct ls_comparison *comparison, const struct simulated *simulated,
                       double *values)
{
    size_t largest = LS_COMPARISON_NONE;
    if (isfinite(comparison->compute_scale))
        return comparison->compute_scale;
    for (size_t i = 0; i < comparison->run_count; i++)
        if (isfinite(simulated[i].kernels) &&
            (largest == LS_COMPARISON_NONE ||
             comparison->runs[i].replicas > comparison->runs[largest].replicas))
            largest = i;
    if (!isfinite(comparison->compute_seconds) || largest == LS_COMPARISON_NONE)
        return 1;
    return common_kernels(comparison, simulated, largest, values) / comparison->compute_seconds;
}

// ---- A run ----

static enum ls_status read_run(const struct compare_runner *runner, struct ls_compared_run *run,
                               struct simulated *out)
{
    struct compare_recording recording = {0};
    char *path = compare_runner_path(runner, COMPARE_RECORDING);
    if (!path)
        return LS_OUT_OF_MEMORY;
    enum ls_status status = compare_recording_read(path, &recording);
    free(path);
    if (status == LS_FAILED) // there is none
        status = LS_OK;
    size_t begins = unfiltered_steps(run);
    begins = begins < recording.step_count ? begins : recording.step_count;
    if (!status)
        status = compare_recording_cycle(&recording, 0, begins, &out->unfiltered);
    if (!status)
        status = compare_recording_cycle(&recording, begins, recording.step_count, &out->cycle);
    if (!status) {
        run->elsewhere.recorded_steps = recording.step_count;
        run->elsewhere.reason = find_reason(run, &recording, &out->cycle);
        if (!run->elsewhere.reason)
            out->kernels = compare_mean_work(&out->cycle).kernels;
    }
    compare_recording_finish(&recording);
    return status;
}

// "channels=2", those of the collective as the run's report has them.
static const char *collective_options(const struct ls_compared_run *run, char text[OPTIONS_LETTERS])
{
    static const char prefix[] = "collective.";
    const char *key;
    json_t *value;
    size_t length = 0;
    *text = '\0';
    json_object_foreach(json_object_get(run->report, "options"), key, value)
    {
        if (strncmp(key, prefix, strlen(prefix)) != 0 || !json_is_string(value) ||
            length >= OPTIONS_LETTERS)
            continue;
        length +=
            (size_t)snprintf(text + length, OPTIONS_LETTERS - length, "%s%s=%s", length ? "," : "",
                             key + strlen(prefix), json_string_value(value));
    }
    return text;
}

// All runs compute the same in forward and backward, which take `common` seconds.
static struct compare_step_time replay(const struct compare_recording *cycle, const double *seconds,
                                       double common, double scale)
{
    const double kernels = cycle->step_count ? compare_mean_work(cycle).kernels : 0;
    const struct compare_pace pace = {.kernels = (kernels > 0 ? common / kernels : 1) / scale,
                                      .rest = 1 / scale};
    return compare_replay(cycle, seconds, &pace);
}

// `seconds`: of each exchange.
static void fill_in(const struct simulated *simulated, const double *seconds, double common,
                    double scale, struct ls_compared_run *run)
{
    struct ls_compared_elsewhere *there = &run->elsewhere;
    const struct compare_step_time time = replay(&simulated->cycle, seconds, common, scale);
    const double before = replay(&simulated->unfiltered, seconds, common, scale).seconds;
    there->step_seconds = time.seconds;
    there->work_seconds = time.work;
    there->exchange_seconds = time.exchanges;
    there->unfiltered_seconds = before;
    there->unfiltered_steps = isfinite(before) ? unfiltered_steps(run) : 0;
    if (!run->goal_step)
        return;
    const uint64_t unfiltered =
        run->goal_step < there->unfiltered_steps ? run->goal_step : there->unfiltered_steps;
    there->goal_seconds = (double)(run->goal_step - unfiltered) * time.seconds;
    if (unfiltered)
        there->goal_seconds += (double)unfiltered * before;
}

static enum ls_status simulate_run(struct ls_loader *loader, const struct ls_network *network,
                                   const struct simulated *simulated, double common, double scale,
                                   struct ls_compared_run *run)
{
    char options[OPTIONS_LETTERS];
    const struct compare_elsewhere elsewhere = {
        .loader = loader,
        .network = network,
        .world = run->replicas,
        .named = json_string_value(json_object_get(run->report, "collective")),
        .options = collective_options(run, options)};
    double *seconds = calloc(simulated->cycle.exchange_count + 1, sizeof(*seconds));
    if (!seconds)
        return LS_OUT_OF_MEMORY;
    const enum ls_status status = compare_exchange_times(&elsewhere, &simulated->cycle, seconds);
    if (!status)
        fill_in(simulated, seconds, common, scale, run);
    else if (status != LS_OUT_OF_MEMORY) // logged
        run->elsewhere.reason = strdup("its collective could not be simulated there");
    free(seconds);
    return status == LS_OUT_OF_MEMORY ? status : LS_OK;
}

enum ls_status compare_simulate(const struct compare_race *race, const struct ls_network *network,
                                struct ls_comparison *out)
{
    struct simulated *simulated = calloc(out->run_count + 1, sizeof(*simulated));
    double *values = calloc(out->run_count + 1, sizeof(*values));
    struct ls_loader *loader = NULL;
    enum ls_status status = simulated && values ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_loader_create(race->setting->run.plugin_path, &loader);
    for (size_t i = 0, run = 0; !status && i < race->count; i++) {
        if (race->runners[i].hidden)
            continue;
        simulated[run].kernels = NAN;
        if (out->runs[run].status == LS_COMPARED_DONE ||
            out->runs[run].status == LS_COMPARED_INTERRUPTED)
            status = read_run(&race->runners[i], &out->runs[run], &simulated[run]);
        run++;
    }
    const double scale = status ? 1 : scale_of(out, simulated, values);
    for (size_t i = 0; !status && i < out->run_count; i++) {
        if (!isfinite(simulated[i].kernels))
            continue;
        status = simulate_run(loader, network, &simulated[i],
                              common_kernels(out, simulated, i, values), scale, &out->runs[i]);
    }
    for (size_t i = 0; simulated && i < out->run_count; i++) {
        compare_recording_finish(&simulated[i].cycle);
        compare_recording_finish(&simulated[i].unfiltered);
    }
    free(simulated);
    free(values);
    ls_loader_destroy(loader);
    return status;
}
