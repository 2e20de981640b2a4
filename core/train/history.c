// SPDX-License-Identifier: Apache-2.0
// Losses, times and epochs of a fit.
#include "core/train/history.h"

#include "core/model/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum ls_status ls_history_init(struct ls_history *history)
{
    *history = (struct ls_history){0};
    history->losses = malloc(LS_HISTORY_LOSSES * sizeof(float));
    history->examples = malloc(LS_HISTORY_STEPS * sizeof(*history->examples));
    bool complete = history->losses && history->examples;
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
    free(history->examples);
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
    history->examples[at] = step->examples;
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

void ls_history_add_loss(struct ls_history *history, double loss)
{
    if (history->loss_count < LS_HISTORY_LOSSES)
        history->losses[history->loss_count++] = (float)loss;
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

void ls_history_means(const struct ls_history *history, uint64_t examples,
                      double out[LS_PART_COUNT])
{
    const uint64_t kept =
        history->timed_steps < LS_HISTORY_STEPS ? history->timed_steps : LS_HISTORY_STEPS;
    bool cold = history->timed_steps <= LS_HISTORY_STEPS; // else the first has left the ring
    uint64_t count = 0;
    double sums[LS_PART_COUNT] = {0};

    for (uint64_t i = 0; i < kept; i++) {
        if (history->examples[i] != examples)
            continue;
        for (int part = 0; part < LS_PART_COUNT; part++)
            sums[part] = (count ? sums[part] : 0) + (double)history->parts[part][i];
        count += !cold;
        cold = false;
    }
    for (int part = 0; part < LS_PART_COUNT; part++)
        out[part] = count ? sums[part] / (double)count : sums[part];
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

// ---- As a client of the fit ----

static enum ls_status on_train_batch_end(void *context, const struct ls_fit_state *state)
{
    ls_history_add_loss(context, state->step_metrics.list[0].value);
    return LS_OK;
}

static enum ls_status on_epoch_end(void *context, const struct ls_fit_state *state)
{
    return ls_history_add_epoch(context, &state->epoch);
}

// Losses and epochs outlive the fit, for ls_fit_losses and ls_fit_epochs.
static enum ls_status on_train_end(void *context, const struct ls_fit_state *state)
{
    struct ls_history *history = context;
    struct ls_model *model = state->model;
    free(model->losses);
    model->losses = history->losses;
    model->loss_count = history->loss_count;
    free(model->epochs);
    model->epochs = history->epochs;
    model->epoch_count = history->epoch_count;
    history->losses = NULL;
    history->epochs = NULL;
    return LS_OK;
}

static void on_step_times(void *context, const struct ls_step_result *times, uint64_t step_ns,
                          uint64_t input_ns)
{
    ls_history_add_times(context, times, step_ns, input_ns);
}

static void on_device_wait(void *context, uint64_t steps, uint64_t wait_ns)
{
    ls_history_add_wait(context, steps, wait_ns);
}

struct ls_client ls_history_client(struct ls_history *history)
{
    return (struct ls_client){.callbacks = {.context = history,
                                            .on_train_batch_end = on_train_batch_end,
                                            .on_epoch_end = on_epoch_end,
                                            .on_train_end = on_train_end},
                              .on_step_times = on_step_times,
                              .on_device_wait = on_device_wait};
}
