// SPDX-License-Identifier: Apache-2.0
// Optimizers by their Keras names: parses "sgd:learning_rate=0.01,momentum=0.9" into the operation
// that a device runs over flat ranges, its attributes and the number of state buffers. [any thread]
#ifndef LS_OPTIMIZER_OPTIMIZER_H
#define LS_OPTIMIZER_OPTIMIZER_H

#include "core/base/status.h"
#include "core/optimizer/loss_scale.h"
#include "core/optimizer/rate_schedule.h"
#include "core/plugin/device.h"
#include "core/plugin/optimizer.h"

#define LS_OPTIMIZER_STATES 4 // at most
#define LS_OPTIMIZER_OPTIONS 16
#define LS_OPTIMIZER_EXCLUDED 256 // bytes

enum ls_clipping {
    LS_NO_CLIPPING,
    LS_CLIP_EACH_VALUE, // clipvalue
    LS_CLIP_EACH_NORM, // clipnorm: of the gradient of each variable
    LS_CLIP_GLOBAL_NORM, // global_clipnorm: of all gradients together
};

struct ls_optimizer {
    const char *name; // "sgd", "adam"; static
    uint32_t
        op; // enum ls_op; LS_OP_LAMB_DIRECTION is followed by LS_OP_LAMB_UPDATE for each variable
    struct ls_op_attributes attributes;
    uint32_t own_states; // that the operation keeps, flat float32 buffers of the parameters' shape
    uint32_t state_count; // with the average of weights, which is the last
    float initial[LS_OPTIMIZER_STATES]; // what each begins with
    double learning_rate;
    struct ls_rate_schedule schedule; // of kind LS_RATE_CONSTANT: the rate stays
    double rate_factor; // on the rates of a schedule; learning_rate has it already
    bool rate_by_replicas; // a rule makes the factor from their number, also where it is 1
    enum ls_clipping clipping;
    float clip; // value or norm
    bool averages; // use_ema
    float average_momentum;
    uint32_t average_overwrites; // every so many updates; 0: never
    struct ls_loss_scale loss_scale;
    // What the program updates trained variables with, instead of `op`; `update` NULL: nothing.
    struct ls_own_optimizer own;
    // Parts of names with colons between them: variables with one of these have no weight decay.
    char excluded[LS_OPTIMIZER_EXCLUDED];
    // Its options beside the learning rate, by their Keras names.
    struct ls_optimizer_option {
        const char *name; // static
        double value;
    } options[LS_OPTIMIZER_OPTIONS];
    uint32_t option_count;
};

// The rate of the update, which counts from 1.
double ls_optimizer_rate(const struct ls_optimizer *optimizer, uint64_t update);

static inline bool ls_optimizer_scales(const struct ls_optimizer *optimizer)
{
    return optimizer->loss_scale.kind != LS_NO_SCALE;
}

// Whether the update of a variable needs norms of the whole of it, or a look at all gradients
// together: for their norm, or because a loss scale skips steps whose gradients are not finite.
static inline bool ls_optimizer_measures_variables(const struct ls_optimizer *optimizer)
{
    return optimizer->op == LS_OP_LAMB_DIRECTION || optimizer->clipping == LS_CLIP_EACH_NORM;
}
static inline bool ls_optimizer_measures_all(const struct ls_optimizer *optimizer)
{
    return optimizer->clipping == LS_CLIP_GLOBAL_NORM || ls_optimizer_scales(optimizer);
}

// Whether the variable of this name has weight decay.
bool ls_optimizer_decays(const struct ls_optimizer *optimizer, const char *variable);

// Unknown names and options (the message suggests the nearest) and values out of range are
// LS_USAGE.
LS_STATUS ls_optimizer_parse(const char *text, struct ls_optimizer *out);

// An optimizer of the program's own. LS_USAGE, logged: without a function, or with too many states.
LS_STATUS ls_optimizer_take_own(const struct ls_own_optimizer *own, struct ls_optimizer *out);

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
