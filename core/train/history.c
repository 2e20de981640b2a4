// SPDX-License-Identifier: Apache-2.0
// Losses, times and epochs of a fit.
#include "core/train/history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum ls_status ls_history_init(struct ls_history *history)
{
    *history = (struct ls_history){0};
    history->losses = malloc(LS_HISTORY_LOSSES * sizeof(float));
    bool complete = history->losses;
    for (int part = 0; part < LS_PART_COUNT; part++) {
        history->parts[part] = malloc(LS_HISTORY_STEPS * sizeof(float));
        complete = complete && history->parts[part];
    }
    if (complete)
        return LS_OK;
    ls_history_finish(history);
    return LS_OUT_OF_MEMORY;
}

void ls_history_finish(struct ls_history *history)
{
    free(history->losses);
    for (int part = 0; part < LS_PART_COUNT; part++)
        free(history->parts[part]);
    free(history->epochs);
    *history = (struct ls_history){0};
}

void ls_history_add_times(struct ls_history *history, const struct ls_step_result *step,
                          uint64_t step_ns, uint64_t input_ns)
{
    const size_t at = history->timed_steps++ % LS_HISTORY_STEPS;
    const uint64_t parts[LS_PART_COUNT] = {
        [LS_PART_STEP] = step_ns,
        [LS_PART_INPUT] = input_ns,
        [LS_PART_COMPUTE] = step->compute_ns,
        [LS_PART_COMMUNICATION] = step->communication_ns,
        [LS_PART_EXPOSED] = step->exposed_ns,
        [LS_PART_UPDATE] = step->update_ns,
        [LS_PART_DEVICE] = step->waited_ns,
    };
    for (int part = 0; part < LS_PART_COUNT; part++)
        history->parts[part][at] = (float)((double)parts[part] * 1e-9);
}

void ls_history_add_wait(struct ls_history *history, uint64_t steps, uint64_t wait_ns)
{
    const uint64_t kept = steps < LS_HISTORY_STEPS ? steps : LS_HISTORY_STEPS;
    const float part = kept ? (float)((double)wait_ns * 1e-9 / (double)steps) : 0;
    for (uint64_t i = 1; i <= kept; i++) {
        const size_t at = (history->timed_steps - i) % LS_HISTORY_STEPS;
        history->parts[LS_PART_STEP][at] += part;
        history->parts[LS_PART_DEVICE][at] += part;
    }
}

void ls_history_add_sums(struct ls_history *history, const struct ls_step_result *step)
{
    if (history->loss_count < LS_HISTORY_LOSSES)
        history->losses[history->loss_count++] =
            (float)((double)step->sums[LS_SUMS_LOSS] / (double)step->sums[LS_SUMS_EXAMPLES]);
    for (uint32_t i = 0; i < LS_STATISTICS; i++)
        history->epoch_statistics[i] += (double)step->sums[i];
}

void ls_history_begin_epoch(struct ls_history *history)
{
    memset(history->epoch_statistics, 0, sizeof(history->epoch_statistics));
}

enum ls_status ls_history_add_epoch(struct ls_history *history, const struct ls_epoch *epoch)
{
    if (history->epoch_count == history->epoch_capacity) {
        const size_t capacity = history->epoch_capacity ? 2 * history->epoch_capacity : 16;
        struct ls_epoch *grown = realloc(history->epochs, capacity * sizeof(*grown));
        if (!grown)
            return LS_OUT_OF_MEMORY;
        history->epochs = grown;
        history->epoch_capacity = capacity;
    }
    history->epochs[history->epoch_count++] = *epoch;
    return LS_OK;
}

static int compare(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

// The value below which `share` of the (sorted) values lie.
static double quantile(const float *sorted, size_t count, double share)
{
    return (double)sorted[(size_t)(share * (double)(count - 1) + 0.5)];
}

void ls_history_means(const struct ls_history *history, double out[LS_PART_COUNT])
{
    const uint64_t count =
        history->timed_steps < LS_HISTORY_STEPS ? history->timed_steps : LS_HISTORY_STEPS;
    const uint64_t first = history->timed_steps <= LS_HISTORY_STEPS ? 1 : 0;
    for (int part = 0; part < LS_PART_COUNT; part++) {
        double sum = 0;
        for (uint64_t i = first; i < count; i++)
            sum += (double)history->parts[part][i];
        out[part] = count > first ? sum / (double)(count - first) : 0;
    }
}

enum ls_status ls_history_times(const struct ls_history *history, struct ls_report_times *out)
{
    const size_t count =
        history->timed_steps < LS_HISTORY_STEPS ? (size_t)history->timed_steps : LS_HISTORY_STEPS;
    *out = (struct ls_report_times){NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    if (count == 0)
        return LS_OK;
    float *sorted = malloc(count * sizeof(*sorted));
    if (!sorted)
        return LS_OUT_OF_MEMORY;
    double medians[LS_PART_COUNT];
    for (int part = 0; part < LS_PART_COUNT; part++) {
        memcpy(sorted, history->parts[part], count * sizeof(*sorted));
        qsort(sorted, count, sizeof(*sorted), compare);
        medians[part] = quantile(sorted, count, 0.5);
        if (part == LS_PART_STEP)
            out->p90 = quantile(sorted, count, 0.9);
    }
    free(sorted);
    out->median = medians[LS_PART_STEP];
    out->input = medians[LS_PART_INPUT];
    out->compute = medians[LS_PART_COMPUTE];
    out->communication = medians[LS_PART_COMMUNICATION];
    out->exposed_communication = medians[LS_PART_EXPOSED];
    out->update = medians[LS_PART_UPDATE];
    out->device = medians[LS_PART_DEVICE];
    return LS_OK;
}
