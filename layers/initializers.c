// SPDX-License-Identifier: Apache-2.0
// Initializers: by name, or as an object with options. Names, aliases and defaults are those of Keras 3.
#include "layers/config.h"

#include "core/base/keras_names.h"

#include <float.h>
#include <string.h>

#define SCALING(scale_, mode_, distribution_)                                                      \
    {                                                                                              \
        .kind = LS_VARIANCE_SCALING, .scale = scale_, .mode = mode_, .distribution = distribution_ \
    }

static const char *const no_keys[] = {NULL};
static const char *const constant_keys[] = {"value", NULL};
static const char *const uniform_keys[] = {"minval", "maxval", NULL};
static const char *const normal_keys[] = {"mean", "stddev", NULL};
static const char *const scaling_keys[] = {"scale", "mode", "distribution", NULL};
static const char *const orthogonal_keys[] = {"gain", NULL};

static const struct entry {
    const char *class_name, *name, *alias;
    const char *const *keys; // beside those that all have
    struct ls_initializer initializer;
} entries[] = {
    {"Zeros", "zeros", "zero", no_keys, {.kind = LS_ZEROS}},
    {"Ones", "ones", "one", no_keys, {.kind = LS_ONES}},
    {"Constant", "constant", NULL, constant_keys, {.kind = LS_CONSTANT}},
    {"RandomUniform",
     "random_uniform",
     "uniform",
     uniform_keys,
     {.kind = LS_RANDOM_UNIFORM, .minimum = -0.05, .maximum = 0.05}},
    {"RandomNormal",
     "random_normal",
     "normal",
     normal_keys,
     {.kind = LS_RANDOM_NORMAL, .deviation = 0.05}},
    {"TruncatedNormal",
     "truncated_normal",
     NULL,
     normal_keys,
     {.kind = LS_TRUNCATED_NORMAL, .deviation = 0.05}},
    {"VarianceScaling", "variance_scaling", NULL, scaling_keys,
     SCALING(1, LS_FAN_IN, LS_DISTRIBUTION_TRUNCATED_NORMAL)},
    {"GlorotUniform", "glorot_uniform", NULL, no_keys,
     SCALING(1, LS_FAN_AVERAGE, LS_DISTRIBUTION_UNIFORM)},
    {"GlorotNormal", "glorot_normal", NULL, no_keys,
     SCALING(1, LS_FAN_AVERAGE, LS_DISTRIBUTION_TRUNCATED_NORMAL)},
    {"HeUniform", "he_uniform", NULL, no_keys, SCALING(2, LS_FAN_IN, LS_DISTRIBUTION_UNIFORM)},
    {"HeNormal", "he_normal", NULL, no_keys,
     SCALING(2, LS_FAN_IN, LS_DISTRIBUTION_TRUNCATED_NORMAL)},
    {"LecunUniform", "lecun_uniform", NULL, no_keys,
     SCALING(1, LS_FAN_IN, LS_DISTRIBUTION_UNIFORM)},
    {"LecunNormal", "lecun_normal", NULL, no_keys,
     SCALING(1, LS_FAN_IN, LS_DISTRIBUTION_TRUNCATED_NORMAL)},
    {"Orthogonal",
     "orthogonal",
     "OrthogonalInitializer",
     orthogonal_keys,
     {.kind = LS_ORTHOGONAL, .scale = 1}},
};
#define ENTRIES (sizeof(entries) / sizeof(entries[0]))

const char *const ls_initializer_names[] = {"zeros",
                                            "ones",
                                            "constant",
                                            "random_uniform",
                                            "random_normal",
                                            "truncated_normal",
                                            "variance_scaling",
                                            "glorot_uniform",
                                            "glorot_normal",
                                            "he_uniform",
                                            "he_normal",
                                            "lecun_uniform",
                                            "lecun_normal",
                                            "orthogonal",
                                            NULL};

static const struct entry *find(const char *name)
{
    for (size_t i = 0; i < ENTRIES; i++) {
        const struct entry *entry = &entries[i];
        if (strcmp(entry->class_name, name) == 0 || strcmp(entry->name, name) == 0 ||
            (entry->alias && strcmp(entry->alias, name) == 0))
            return entry;
    }
    return NULL;
}

static void refuse_name(struct ls_config *config, const char *key, const char *name)
{
    char why[260];
    ls_config_fail(
        config, key, "'%.60s' %s", name,
        ls_keras_refusal(LS_KERAS_INITIALIZER, name, ls_initializer_names, why, sizeof(why)));
}

// The index in `names` of the value; `missing` when there is none.
static uint32_t read_choice(struct ls_config *config, const char *key, const char *const *names,
                            uint32_t missing)
{
    const json_t *value = json_object_get(config->object, key);
    char text[64], known[120];

    if (!value)
        return missing;
    for (uint32_t i = 0; names[i]; i++)
        if (json_is_string(value) && strcmp(json_string_value(value), names[i]) == 0)
            return i;
    ls_config_fail(config, key, "expected one of %s, got %s",
                   ls_name_list(names, known, sizeof(known)),
                   ls_json_text(value, text, sizeof(text)));
    return missing;
}

static void read_scaling(struct ls_config *config, struct ls_initializer *initializer)
{
    static const char *const modes[] = {"fan_in", "fan_out", "fan_avg", NULL};
    // "normal" is Keras 2.2's name of the truncated one.
    static const char *const distributions[] = {"truncated_normal", "untruncated_normal", "uniform",
                                                "normal", NULL};
    static const enum ls_variance_distribution values[] = {
        LS_DISTRIBUTION_TRUNCATED_NORMAL, LS_DISTRIBUTION_NORMAL, LS_DISTRIBUTION_UNIFORM,
        LS_DISTRIBUTION_TRUNCATED_NORMAL};

    initializer->scale = ls_config_number(config, "scale", 0, FLT_MAX, 1);
    if (initializer->scale == 0)
        ls_config_fail(config, "scale", "expected a positive number, got 0");
    initializer->mode = (enum ls_variance_mode)read_choice(config, "mode", modes, LS_FAN_IN);
    initializer->distribution = values[read_choice(config, "distribution", distributions, 0)];
}

static struct ls_initializer read_options(struct ls_config *config, const struct entry *entry)
{
    struct ls_initializer initializer = entry->initializer;

    if (entry->keys == scaling_keys) {
        read_scaling(config, &initializer);
    } else if (entry->keys == normal_keys) {
        initializer.mean = ls_config_number(config, "mean", -FLT_MAX, FLT_MAX, initializer.mean);
        initializer.deviation =
            ls_config_number(config, "stddev", 0, FLT_MAX, initializer.deviation);
    } else if (entry->keys == uniform_keys) {
        initializer.minimum =
            ls_config_number(config, "minval", -FLT_MAX, FLT_MAX, initializer.minimum);
        initializer.maximum =
            ls_config_number(config, "maxval", -FLT_MAX, FLT_MAX, initializer.maximum);
        if (initializer.maximum < initializer.minimum)
            ls_config_fail(config, "maxval", "expected at least minval, %g, got %g",
                           initializer.minimum, initializer.maximum);
    } else if (entry->keys == orthogonal_keys) {
        initializer.scale = ls_config_number(config, "gain", -FLT_MAX, FLT_MAX, 1);
    } else if (entry->keys == constant_keys) {
        initializer.value = ls_config_number(config, "value", -FLT_MAX, FLT_MAX, 0);
    }
    return initializer;
}

// {"class_name": "HeNormal", "config": {"seed": null}}; Keras 3 adds module and registered_name.
static struct ls_initializer by_object(struct ls_config *config, const char *key,
                                       const json_t *object)
{
    static const char *const every[] = {"seed", "input_axes", "output_axes"};
    const char *class_name = json_string_value(json_object_get(object, "class_name"));
    const json_t *inner = json_object_get(object, "config");
    const struct entry *entry = class_name && !ls_json_is_custom(object) ? find(class_name) : NULL;
    char text[64];

    if (class_name && ls_json_is_custom(object))
        ls_config_fail(config, key, "'%.60s' is a custom initializer; only Keras's are supported",
                       class_name);
    else if (!class_name || (inner && !json_is_object(inner)))
        ls_config_fail(config, key, "expected an initializer, got %s",
                       ls_json_text(object, text, sizeof(text)));
    else if (!entry)
        refuse_name(config, key, class_name);
    if (!entry || (inner && !json_is_object(inner)))
        return entries[0].initializer;
    if (!inner)
        return entry->initializer;

    const char *keys[8] = {every[0], every[1], every[2]};
    for (size_t i = 0; entry->keys[i]; i++)
        keys[3 + i] = entry->keys[i];
    struct ls_config nested = {.graph = config->graph, .object = inner, .parent = key};
    ls_config_check(&nested, keys);
    ls_config_seed(&nested);
    ls_config_null(&nested, "input_axes");
    ls_config_null(&nested, "output_axes");
    const struct ls_initializer initializer = read_options(&nested, entry);
    config->status = config->status ? config->status : nested.status;
    return initializer;
}

struct ls_initializer ls_config_initializer(struct ls_config *config, const char *key,
                                            const char *missing)
{
    const json_t *value = json_object_get(config->object, key);
    const char *name = value ? json_string_value(value) : missing;
    char text[64];

    if (json_is_object(value))
        return by_object(config, key, value);
    const struct entry *entry = name ? find(name) : NULL;
    if (!name)
        ls_config_fail(config, key, "expected the name of an initializer, got %s",
                       ls_json_text(value, text, sizeof(text)));
    else if (!entry)
        refuse_name(config, key, name);
    return entry ? entry->initializer : entries[0].initializer;
}
