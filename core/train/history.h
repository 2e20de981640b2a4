// SPDX-License-Identifier: Apache-2.0
// What a fit remembers of its steps and epochs. Private to train/. [main thread and the thread of replica 0,
// which alone adds]
#ifndef LS_TRAIN_HISTORY_H
#define LS_TRAIN_HISTORY_H

#include "core/report/report.h"
#include "core/train/callbacks.h"

#define LS_HISTORY_STEPS 16384 // times of the last so many steps are kept
#define LS_HISTORY_LOSSES 65536 // losses of the first so many

enum ls_step_part {
    LS_PART_STEP,
    LS_PART_INPUT,
    LS_PART_COMPUTE,
    LS_PART_COMMUNICATION,
    LS_PART_EXPOSED,
    LS_PART_UPDATE,
    LS_PART_DEVICE,
    LS_PART_COUNT,
};

struct ls_history {
    float *losses; // of the first LS_HISTORY_LOSSES steps
    size_t loss_count;
    float *parts[LS_PART_COUNT]; // seconds, a ring of LS_HISTORY_STEPS
    uint64_t *examples; // of the share of replica 0, a ring as well
    uint64_t timed_steps; // ever added to the ring
    struct ls_epoch *epochs;
    size_t epoch_count, epoch_capacity;
};

// All memory of steps is taken now: a step adds none, however many there are.
LS_STATUS ls_history_init(struct ls_history *history);
void ls_history_finish(struct ls_history *history);
// What a step took.
void ls_history_add_times(struct ls_history *history, const struct ls_step_result *step,
                          uint64_t step_ns, uint64_t input_ns);
// What was waited for the device after the last `steps` of them, which had run ahead of it: a part of each.
void ls_history_add_wait(struct ls_history *history, uint64_t steps, uint64_t wait_ns);
// The loss of a step, which may be known some steps later than its times.
void ls_history_add_loss(struct ls_history *history, double loss);
LS_STATUS ls_history_add_epoch(struct ls_history *history, const struct ls_epoch *epoch);
// Mean seconds of each part over the steps in the ring in which replica 0 had so many examples, but
// for the first of them, whose caches are cold, where there are more. Zeros without such steps.
void ls_history_means(const struct ls_history *history, uint64_t examples,
                      double out[LS_PART_COUNT]);
// Medians over the steps in the ring; NaN without steps.
LS_STATUS ls_history_times(const struct ls_history *history, struct ls_report_times *out);

// Adds what the fit tells; at the end losses and epochs are the model's, and the history has only the times.
struct ls_client ls_history_client(struct ls_history *history);

#endif
