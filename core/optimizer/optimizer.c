// SPDX-License-Identifier: Apache-2.0
// Reads an optimizer's description; the arithmetic itself is an operation of the device.
#include "core/optimizer/optimizer.h"

#include "core/base/keras_names.h"
#include "core/base/log.h"
#include "core/base/options.h"

#include <math.h>
#include <string.h>

// Defaults as in Keras 3.
static const struct ls_plugin_option sgd_options[] = {
    {"learning_rate", "number", "0.01", "step size"},
    {"momentum", "number", "0", "share of the last step that is kept, 0 to 1"},
    {"nesterov", "boolean", "off", "look ahead along the momentum"},
    {NULL, NULL, NULL, NULL},
};
static const struct ls_plugin_option adam_options[] = {
    {"learning_rate", "number", "0.001", "step size"},
    {"beta_1", "number", "0.9", "decay of the mean gradient, 0 to 1"},
    {"beta_2", "number", "0.999", "decay of the mean squared gradient, 0 to 1"},
    {"epsilon", "number", "1e-7", "added to the root, outside of the bias correction"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_optimizer_kind kinds[] = {
    {"sgd", "stochastic gradient descent, with momentum and Nesterov", sgd_options},
    {"adam", "Adam (Kingma, Ba 2014) with Keras's arithmetic", adam_options},
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
    char why[120];
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

static enum ls_status read_sgd(const struct ls_spec *spec, struct ls_optimizer *out)
{
    const double momentum = number(spec, sgd_options, "momentum");
    if (!within("momentum", momentum, 0, 1))
        return LS_USAGE;
    bool nesterov = false;
    const char *text = ls_spec_get(spec, "nesterov");
    if (text)
        (void)!ls_parse_boolean(text, &nesterov);
    out->op = LS_OP_SGD_UPDATE;
    out->attributes.momentum = (float)momentum;
    out->attributes.nesterov = nesterov;
    out->state_count = momentum > 0 ? 1 : 0;
    add_option(out, "momentum", momentum);
    add_option(out, "nesterov", nesterov);
    out->learning_rate = number(spec, sgd_options, "learning_rate");
    return LS_OK;
}

static enum ls_status read_adam(const struct ls_spec *spec, struct ls_optimizer *out)
{
    const double beta1 = number(spec, adam_options, "beta_1");
    const double beta2 = number(spec, adam_options, "beta_2");
    const double epsilon = number(spec, adam_options, "epsilon");
    if (!within("beta_1", beta1, 0, 1) || !within("beta_2", beta2, 0, 1) ||
        !within("epsilon", epsilon, 0, INFINITY))
        return LS_USAGE;
    out->op = LS_OP_ADAM_UPDATE;
    out->attributes.beta1 = (float)beta1;
    out->attributes.beta2 = (float)beta2;
    out->attributes.epsilon = (float)epsilon;
    out->state_count = 2;
    add_option(out, "beta_1", beta1);
    add_option(out, "beta_2", beta2);
    add_option(out, "epsilon", epsilon);
    out->learning_rate = number(spec, adam_options, "learning_rate");
    return LS_OK;
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
    status =
        strcmp(kind->name, "sgd") == 0 ? read_sgd(&spec, &optimizer) : read_adam(&spec, &optimizer);
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
