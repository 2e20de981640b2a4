// SPDX-License-Identifier: Apache-2.0
// An optimizer of the program's own: a function that updates ranges of variables. ls_fit and custom
// loops call it wherever the strategy updates variables: on the replicas, or in host memory.
#ifndef LS_PLUGIN_OPTIMIZER_H
#define LS_PLUGIN_OPTIMIZER_H

#include "core/plugin/status.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LS_OWN_STATES 3 // the most state buffers that it may have

// A variable, or a part of one if the strategy cuts variables: `count` floats of each buffer.
// Elements are in the device's order, which is the same in all buffers. Nothing else uses the range
// during the call.
struct ls_update_range {
    const char *variable; // "conv2d/kernel"
    uint64_t first, count; // where the part begins in the variable, in floats
    float *parameters; // to be updated
    // The gradient of the mean loss of the global batch, reduced over all replicas and without a
    // loss scale.
    const float *gradients;
    float *states[LS_OWN_STATES]; // as many as were asked for
    uint64_t update; // number of the update, from 1
    float learning_rate; // of this update
    float reserved;
};

// An optimizer for ls_compile_options, instead of a name.
struct ls_own_optimizer {
    // In messages, reports and checkpoints; lasts until ls_model_close or another ls_compile. NULL:
    // "own".
    const char *name;
    uint32_t state_count; // at most LS_OWN_STATES
    float initial[LS_OWN_STATES]; // what each state begins with
    double learning_rate; // 0: 0.001
    // Updates the range. Replicas must stay equal, bit for bit, so the result must depend on the
    // range alone. Under strategies that keep all variables on every replica it is called for each
    // replica; calls for different ranges and different replicas run at the same time. A status
    // other than LS_OK ends the training with that status. [thread of a replica or of the strategy]
    enum ls_status (*update)(void *context, const struct ls_update_range *range);
    void *context; // the first argument of `update`
};

#ifdef __cplusplus
}
#endif

#endif
