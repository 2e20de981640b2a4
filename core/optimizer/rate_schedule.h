// SPDX-License-Identifier: Apache-2.0
// Learning rates that change from step to step, by their Keras names and with Keras's arithmetic:
// "cosine_decay:initial_learning_rate=0.1,decay_steps=1000". [any thread]
#ifndef LS_OPTIMIZER_RATE_SCHEDULE_H
#define LS_OPTIMIZER_RATE_SCHEDULE_H

#include "core/base/status.h"
#include "core/plugin/plugin.h"

#include <stdbool.h>

#define LS_RATE_VALUES 32 // of a piecewise constant rate, at most

enum ls_rate_kind {
    LS_RATE_CONSTANT, // the rate is constant
    LS_RATE_EXPONENTIAL,
    LS_RATE_INVERSE_TIME,
    LS_RATE_PIECEWISE,
    LS_RATE_POLYNOMIAL,
    LS_RATE_COSINE,
    LS_RATE_RESTARTS,
};

struct ls_rate_schedule {
    enum ls_rate_kind kind;
    const char *name; // static
    double initial, decay_steps, decay_rate, end, power, alpha, t_mul, m_mul;
    double warmup_target, warmup_steps;
    bool staircase, cycle, warms_up;
    uint32_t count; // values of a piecewise constant rate
    double boundaries[LS_RATE_VALUES], values[LS_RATE_VALUES];
};

// `rate`: that of the optimizer, with which a schedule begins that does not say its own. LS_USAGE
// (logged) for unknown names, options and values.
LS_STATUS ls_rate_schedule_parse(const char *text, double rate, struct ls_rate_schedule *out);

// The rate of a step; `step` counts from 0, as Keras's `iterations` do.
double ls_rate_at(const struct ls_rate_schedule *schedule, uint64_t step);

#endif
