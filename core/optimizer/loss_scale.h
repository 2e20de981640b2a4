// SPDX-License-Identifier: Apache-2.0
// Loss scales, with the arithmetic of Keras's LossScaleOptimizer: the loss is scaled before
// backward, so that small gradients do not vanish in 16 bits, and the gradients are divided by the
// scale before the update. A step whose gradients are not finite is skipped. [any thread]
#ifndef LS_OPTIMIZER_LOSS_SCALE_H
#define LS_OPTIMIZER_LOSS_SCALE_H

#include "core/base/status.h"
#include "core/plugin/plugin.h"

#include <stdbool.h>

#define LS_MOST_SKIPS 100 // in a row: then nothing is learned any more

enum ls_scaling {
    LS_NO_SCALE,
    LS_FIXED_SCALE,
    LS_DYNAMIC_SCALE, // half after a skipped step, twice after growth_steps good ones
};

struct ls_loss_scale {
    enum ls_scaling kind;
    float initial;
    uint64_t growth_steps;
};

// Where a training is. All replicas take the same decisions, so that all have the same state.
struct ls_loss_scale_state {
    float scale;
    uint32_t skipped_in_row;
    uint64_t good_steps; // since the scale last changed
    uint64_t updates; // of the optimizer: attempted steps, without those that were skipped
    uint64_t skipped;
};

// "dynamic", "dynamic:initial_scale=1024,dynamic_growth_steps=100", "128", "none". LS_USAGE,
// logged.
LS_STATUS ls_loss_scale_parse(const char *text, struct ls_loss_scale *out);
// For a model of which nobody says it: Keras scales the loss of mixed_float16 alone, as bfloat16
// has the range of float32.
const char *ls_loss_scale_default(bool uses_float16);

struct ls_loss_scale_state ls_loss_scale_begin(const struct ls_loss_scale *loss_scale);
// A step was attempted.
void ls_loss_scale_step(const struct ls_loss_scale *loss_scale, bool finite,
                        struct ls_loss_scale_state *state);

#endif
