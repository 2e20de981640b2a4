// SPDX-License-Identifier: Apache-2.0
// Reads an optimizer's description; the arithmetic itself is an operation of the device.
#include "core/optimizer/optimizer.h"

#include "core/base/keras_names.h"
#include "core/base/log.h"
#include "core/base/options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- What they are told ----

#define RATE(value)                                   \
    {                                                 \
        "learning_rate", "number", value, "step size" \
    }
#define BETAS                                                                     \
    {"beta_1", "number", "0.9", "decay of the mean gradient, 0 to 1"},            \
    {                                                                             \
        "beta_2", "number", "0.999", "decay of the mean squared gradient, 0 to 1" \
    }
#define EPSILON                                                  \
    {                                                            \
        "epsilon", "number", "1e-7", "added where it is divided" \
    }
// What all of them have.
#define COMMON(decay)                                                                          \
    {"weight_decay", "number", decay,                                                          \
     "share of each weight, times the rate, taken off before an "                              \
     "update"},                                                                                \
        {"exclude_from_weight_decay", "text", "",                                              \
         "parts of names of variables without weight decay, "                                  \
         "such as bias:gamma:beta"},                                                           \
        {"clipvalue", "number", "0", "bound of each element of the gradient; 0: none"},        \
        {"clipnorm", "number", "0", "bound of the norm of each variable's gradient; 0: none"}, \
        {"global_clipnorm", "number", "0",                                                     \
         "bound of the norm of all gradients together; 0: none"},                              \
        {"use_ema", "boolean", "off",                                                          \
         "averages the weights, which the model has after the training"},                      \
        {"ema_momentum", "number", "0.99", "of that average, 0 to 1"},                         \
        {"ema_overwrite_frequency", "integer", "0",                                            \
         "the weights become the average every so many "                                       \
         "updates; 0: at the end only"},                                                       \
    {                                                                                          \
        NULL, NULL, NULL, NULL                                                                 \
    }

// Defaults as in Keras 3.
// clang-format off
static const struct ls_plugin_option sgd_options[] = {
    RATE("0.01"),
    {"momentum", "number", "0", "share of the last step that is kept, 0 to 1"},
    {"nesterov", "boolean", "off", "look ahead along the momentum"},
    COMMON("0"),
};
static const struct ls_plugin_option adam_options[] = {
    RATE("0.001"),
    BETAS,
    {"epsilon", "number", "1e-7", "added to the root, outside of the bias correction"},
    {"amsgrad", "boolean", "off", "divides by the largest mean squared gradient so far"},
    COMMON("0"),
};
static const struct ls_plugin_option adamw_options[] = {
    RATE("0.001"),
    BETAS,
    {"epsilon", "number", "1e-7", "added to the root, outside of the bias correction"},
    {"amsgrad", "boolean", "off", "divides by the largest mean squared gradient so far"},
    COMMON("0.004"),
};
static const struct ls_plugin_option rmsprop_options[] = {
    RATE("0.001"),
    {"rho", "number", "0.9", "decay of the mean squared gradient, 0 to 1"},
    {"momentum", "number", "0", "share of the last step that is kept, 0 to 1"},
    EPSILON,
    {"centered", "boolean", "off", "divides by the deviation of the gradient from its mean"},
    COMMON("0"),
};
static const struct ls_plugin_option adagrad_options[] = {
    RATE("0.001"),
    {"initial_accumulator_value", "number", "0.1", "what sums of squared gradients begin with"},
    EPSILON,
    COMMON("0"),
};
static const struct ls_plugin_option adadelta_options[] = {
    RATE("0.001"),
    {"rho", "number", "0.95", "decay of the means of squares, 0 to 1"},
    EPSILON,
    COMMON("0"),
};
static const struct ls_plugin_option moment_options[] = {
    RATE("0.001"),
    BETAS,
    EPSILON,
    COMMON("0"),
};
// clang-format on

// What is read of an optimizer beside what all have: bits, and the operation.
enum { MOMENTUM = 1, NESTEROV = 2, MOMENTS = 4, AMSGRAD = 8, RHO = 16, CENTERED = 32, START = 64 };
enum { USES_EPSILON = 128 };

static const struct reading {
    uint32_t op, function, states, reads;
} readings[] = {
    {LS_OP_SGD_UPDATE, LS_UPDATE_SGD, 0, MOMENTUM | NESTEROV},
    {LS_OP_ADAM_UPDATE, LS_UPDATE_ADAM, 2, MOMENTS | USES_EPSILON | AMSGRAD},
    {LS_OP_ADAM_UPDATE, LS_UPDATE_ADAM, 2, MOMENTS | USES_EPSILON | AMSGRAD},
    {LS_OP_UPDATE, LS_UPDATE_RMSPROP, 1, RHO | MOMENTUM | USES_EPSILON | CENTERED},
    {LS_OP_UPDATE, LS_UPDATE_ADAGRAD, 1, START | USES_EPSILON},
    {LS_OP_UPDATE, LS_UPDATE_ADADELTA, 2, RHO | USES_EPSILON},
    {LS_OP_UPDATE, LS_UPDATE_ADAMAX, 2, MOMENTS | USES_EPSILON},
    {LS_OP_UPDATE, LS_UPDATE_NADAM, 2, MOMENTS | USES_EPSILON},
    {LS_OP_LAMB_DIRECTION, 0, 2, MOMENTS | USES_EPSILON},
};

static const struct ls_optimizer_kind kinds[] = {
    {"sgd", "stochastic gradient descent, with momentum and Nesterov", sgd_options},
    {"adam", "Adam (Kingma, Ba 2014) with Keras's arithmetic", adam_options},
    {"adamw", "Adam with weight decay (Loshchilov, Hutter 2019)", adamw_options},
    {"rmsprop", "RMSprop (Hinton 2012)", rmsprop_options},
    {"adagrad", "Adagrad (Duchi, Hazan, Singer 2011)", adagrad_options},
    {"adadelta", "Adadelta (Zeiler 2012)", adadelta_options},
    {"adamax", "Adam with the largest gradient (Kingma, Ba 2014)", moment_options},
    {"nadam", "Adam with Nesterov momentum (Dozat 2016)", moment_options},
    {"lamb", "Adam with steps by the norm of each variable (You et al. 2020)", moment_options},
    {NULL, NULL, NULL},
};

const struct ls_optimizer_kind *ls_optimizer_kinds(void)
{
    return kinds;
}

static const struct ls_optimizer_kind *find_kind(const char *name)
{
    const char *names[sizeof(kinds) / sizeof(kinds[0])] = {NULL};
    for (size_t i = 0; kinds[i].name; i++) {
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
        names[i] = kinds[i].name;
    }
    char why[240];
    ls_error("--optimizer", "'%s' %s", name,
             ls_keras_refusal(LS_KERAS_OPTIMIZER, name, names, why, sizeof(why)));
    return NULL;
}

// The value given, else the default of the table; both are checked numbers.
static double number(const struct ls_spec *spec, const struct ls_plugin_option *table,
                     const char *name)
{
    const char *text = ls_spec_get(spec, name);
    if (!text)
        text = ls_option_find(table, name)->default_value;
    double value = 0;
    (void)!ls_parse_number(text, &value);
    return value;
}

// Looks at the number as devices compute with it: 1 - 1e-9 is 1 in float32.
static bool within(const char *name, double given, double minimum, double below)
{
    const double value = (double)(float)given;
    if (isfinite(value) && value >= minimum && value < below)
        return true;
    if (isinf(below))
        ls_error("--optimizer", "%s=%g: expected a finite number of at least %g", name, value,
                 minimum);
    else
        ls_error("--optimizer", "%s=%g: expected a number from %g to below %g", name, value,
                 minimum, below);
    return false;
}

static void add_option(struct ls_optimizer *optimizer, const char *name, double value)
{
    optimizer->options[optimizer->option_count++] = (struct ls_optimizer_option){name, value};
}

// An option that is reported, within these bounds. `out` may be NULL.
static enum ls_status read_number(const struct ls_spec *spec, const struct ls_plugin_option *table,
                                  const char *name, double below, float *out,
                                  struct ls_optimizer *optimizer)
{
    const double value = number(spec, table, name);
    if (!within(name, value, 0, below))
        return LS_USAGE;
    *out = (float)value;
    add_option(optimizer, name, value);
    return LS_OK;
}

static bool boolean(const struct ls_spec *spec, const char *name)
{
    const char *text = ls_spec_get(spec, name);
    bool value = false;
    if (text)
        (void)!ls_parse_boolean(text, &value);
    return value;
}

static enum ls_status read_own(const struct ls_spec *spec, const struct ls_plugin_option *table,
                               const struct reading *reading, struct ls_optimizer *out)
{
    struct ls_op_attributes *a = &out->attributes;
    const uint32_t reads = reading->reads;
    enum ls_status status = LS_OK;
    out->op = reading->op;
    a->function = reading->function;
    out->own_states = reading->states;
    if (reads & MOMENTS)
        status = read_number(spec, table, "beta_1", 1, &a->beta1, out);
    if (!status && (reads & MOMENTS))
        status = read_number(spec, table, "beta_2", 1, &a->beta2, out);
    if (!status && (reads & RHO))
        status = read_number(spec, table, "rho", 1, &a->beta2, out);
    if (!status && (reads & MOMENTUM))
        status = read_number(spec, table, "momentum", 1, &a->momentum, out);
    if (!status && (reads & START))
        status =
            read_number(spec, table, "initial_accumulator_value", INFINITY, &out->initial[0], out);
    if (!status && (reads & USES_EPSILON))
        status = read_number(spec, table, "epsilon", INFINITY, &a->epsilon, out);
    if (reads & NESTEROV) {
        a->nesterov = boolean(spec, "nesterov");
        add_option(out, "nesterov", a->nesterov);
    }
    if (a->momentum > 0)
        out->own_states++;
    if ((reads & AMSGRAD) && boolean(spec, "amsgrad")) {
        out->op = LS_OP_UPDATE;
        a->function = LS_UPDATE_AMSGRAD;
        out->own_states++;
        add_option(out, "amsgrad", 1);
    }
    if ((reads & CENTERED) && boolean(spec, "centered")) {
        a->function = LS_UPDATE_RMSPROP_CENTERED;
        out->own_states++;
        add_option(out, "centered", 1);
    }
    return status;
}

static enum ls_status read_decay(const struct ls_spec *spec, const struct ls_plugin_option *table,
                                 struct ls_optimizer *out)
{
    const char *excluded = ls_spec_get(spec, "exclude_from_weight_decay");
    const double decay = number(spec, table, "weight_decay");
    if (!within("weight_decay", decay, 0, INFINITY))
        return LS_USAGE;
    if (excluded && strlen(excluded) >= sizeof(out->excluded)) {
        ls_error("--optimizer", "exclude_from_weight_decay is longer than %zu letters",
                 sizeof(out->excluded) - 1);
        return LS_USAGE;
    }
    snprintf(out->excluded, sizeof(out->excluded), "%s", excluded ? excluded : "");
    out->attributes.weight_decay = (float)decay;
    if (decay <= 0)
        return LS_OK;
    add_option(out, "weight_decay", decay);
    if (out->op == LS_OP_SGD_UPDATE || out->op == LS_OP_ADAM_UPDATE)
        out->op = LS_OP_UPDATE; // those have none
    return LS_OK;
}

static enum ls_status read_clipping(const struct ls_spec *spec,
                                    const struct ls_plugin_option *table, struct ls_optimizer *out)
{
    static const char *const names[] = {"clipvalue", "clipnorm", "global_clipnorm"};
    for (uint32_t i = 0; i < 3; i++) {
        const double bound = number(spec, table, names[i]);
        if (!within(names[i], bound, 0, INFINITY))
            return LS_USAGE;
        if ((float)bound <= 0)
            continue;
        if (out->clipping) {
            ls_error("--optimizer",
                     "%s and %s are both given; expected one of clipvalue, "
                     "clipnorm, global_clipnorm",
                     names[out->clipping - LS_CLIP_EACH_VALUE], names[i]);
            return LS_USAGE;
        }
        out->clipping = LS_CLIP_EACH_VALUE + i;
        out->clip = (float)bound;
        add_option(out, names[i], bound);
    }
    return LS_OK;
}

static enum ls_status read_average(const struct ls_spec *spec, const struct ls_plugin_option *table,
                                   struct ls_optimizer *out)
{
    const double momentum = number(spec, table, "ema_momentum");
    const double every = number(spec, table, "ema_overwrite_frequency");
    if (!within("ema_momentum", momentum, 0, 1))
        return LS_USAGE;
    if (!(every >= 0 && every < UINT32_MAX)) {
        ls_error("--optimizer", "ema_overwrite_frequency=%g: expected a number of updates from 0",
                 every);
        return LS_USAGE;
    }
    out->averages = boolean(spec, "use_ema");
    out->state_count = out->own_states + out->averages;
    if (!out->averages) {
        const bool frequency = ls_spec_get(spec, "ema_overwrite_frequency") != NULL;
        if (frequency || ls_spec_get(spec, "ema_momentum"))
            ls_warn("--optimizer", "%s= changes nothing without use_ema=on",
                    frequency ? "ema_overwrite_frequency" : "ema_momentum");
        return LS_OK;
    }
    out->average_momentum = (float)momentum;
    out->average_overwrites = (uint32_t)every;
    add_option(out, "use_ema", 1);
    add_option(out, "ema_momentum", momentum);
    if (every > 0)
        add_option(out, "ema_overwrite_frequency", every);
    return LS_OK;
}

double ls_optimizer_rate(const struct ls_optimizer *optimizer, uint64_t step)
{
    return optimizer->schedule.kind == LS_RATE_CONSTANT
               ? optimizer->learning_rate
               : optimizer->rate_factor * ls_rate_at(&optimizer->schedule, step ? step - 1 : 0);
}

bool ls_optimizer_decays(const struct ls_optimizer *optimizer, const char *variable)
{
    char part[LS_OPTIMIZER_EXCLUDED];
    for (const char *at = optimizer->excluded; *at;) {
        const size_t length = strcspn(at, ":");
        memcpy(part, at, length);
        part[length] = '\0';
        if (length && strstr(variable, part))
            return false;
        at += length + (at[length] == ':');
    }
    return true;
}

enum ls_status ls_learning_rate_check(double rate)
{
    return within("learning_rate", rate, 0, INFINITY) ? LS_OK : LS_USAGE;
}

enum ls_status ls_optimizer_parse(const char *text, struct ls_optimizer *out)
{
    struct ls_spec spec = {0};
    struct ls_optimizer optimizer = {0};
    enum ls_status status = ls_spec_parse("--optimizer", text, &spec);
    if (status)
        return status;
    const struct ls_optimizer_kind *kind = find_kind(spec.name);
    if (!kind) {
        status = LS_USAGE;
        goto out;
    }
    status = ls_spec_check("--optimizer", &spec, kind->options);
    if (status)
        goto out;
    optimizer.name = kind->name;
    optimizer.learning_rate = number(&spec, kind->options, "learning_rate");
    optimizer.rate_factor = 1;
    status = read_own(&spec, kind->options, &readings[kind - kinds], &optimizer);
    if (!status)
        status = read_decay(&spec, kind->options, &optimizer);
    if (!status)
        status = read_clipping(&spec, kind->options, &optimizer);
    if (!status)
        status = read_average(&spec, kind->options, &optimizer);
    if (optimizer.op != LS_OP_UPDATE)
        optimizer.attributes.function = 0;
    if (!status)
        status = ls_learning_rate_check(optimizer.learning_rate);
    if (!status)
        *out = optimizer;
out:
    ls_spec_finish(&spec);
    return status;
}

enum ls_status ls_learning_rate_scale(const char *rule, uint32_t world, double *out)
{
    static const char *const names[] = {"none", "sqrt", "linear", NULL};
    if (strcmp(rule, "none") == 0)
        *out = 1;
    else if (strcmp(rule, "sqrt") == 0)
        *out = sqrt(world);
    else if (strcmp(rule, "linear") == 0)
        *out = world;
    else {
        const char *nearest = ls_nearest(rule, names);
        ls_error("--lr-scaling", "unknown rule '%s'; %s%s", rule,
                 nearest ? "did you mean " : "available: none, sqrt, linear",
                 nearest ? nearest : "");
        return LS_USAGE;
    }
    return LS_OK;
}

enum ls_status ls_optimizer_take_own(const struct ls_own_optimizer *own, struct ls_optimizer *out)
{
    const double rate = own->learning_rate != 0 ? own->learning_rate : 0.001;
    if (!own->update || own->state_count > LS_OWN_STATES) {
        ls_error("own_optimizer", "%s; expected a function and at most %d states",
                 own->update ? "too many states" : "there is no update function", LS_OWN_STATES);
        return LS_USAGE;
    }
    const enum ls_status status = ls_learning_rate_check(rate);
    if (status)
        return status;
    *out = (struct ls_optimizer){.name = own->name ? own->name : "own",
                                 .op = LS_OP_SGD_UPDATE,
                                 .own_states = own->state_count,
                                 .state_count = own->state_count,
                                 .learning_rate = rate,
                                 .rate_factor = 1,
                                 .own = *own};
    memcpy(out->initial, own->initial, own->state_count * sizeof(*own->initial));
    return LS_OK;
}
