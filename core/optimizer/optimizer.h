// SPDX-License-Identifier: Apache-2.0
// Optimizers by their Keras names: parses "sgd:learning_rate=0.01,momentum=0.9" into the operation
// that a device runs over flat ranges, its attributes and the number of state buffers. [any thread]
#ifndef LS_OPTIMIZER_OPTIMIZER_H
#define LS_OPTIMIZER_OPTIMIZER_H

#include "core/base/status.h"
#include "core/plugin/device.h"

#define LS_OPTIMIZER_STATES 4 // at most
#define LS_OPTIMIZER_OPTIONS 3

struct ls_optimizer {
    const char *name; // "sgd", "adam"; static
    uint32_t op; // enum ls_op
    struct ls_op_attributes attributes;
    uint32_t state_count; // flat float32 buffers of the parameters' shape, zero at first
    double learning_rate;
    // Its options beside the learning rate, by their Keras names.
    struct ls_optimizer_option {
        const char *name; // static
        double value;
    } options[LS_OPTIMIZER_OPTIONS];
    uint32_t option_count;
};

// Unknown names and options (the message suggests the nearest) and values out of range are
// LS_USAGE.
LS_STATUS ls_optimizer_parse(const char *text, struct ls_optimizer *out);

// Checks that devices can use the rate: finite and not negative, as a float32. LS_USAGE, logged.
LS_STATUS ls_learning_rate_check(double rate);

// "none", "sqrt" or "linear": the factor on the learning rate for `world` replicas (Goyal et al. 2017:
// linear; Krizhevsky 2014: square root). LS_USAGE for another rule.
LS_STATUS ls_learning_rate_scale(const char *rule, uint32_t world, double *out);

// Names and options of all optimizers, for --help; ends with a NULL name.
struct ls_optimizer_kind {
    const char *name;
    const char *summary;
    const struct ls_plugin_option *options;
};
const struct ls_optimizer_kind *ls_optimizer_kinds(void);

#endif
