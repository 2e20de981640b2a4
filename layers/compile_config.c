// SPDX-License-Identifier: Apache-2.0
// How a Keras model was compiled: optimizer, loss and metrics of "compile_config" (Keras 3) or
// "training_config" (Keras 2), in the words of Lockstep's command line, so that there is one reader
// of those.
//
// Accepted without effect: what only says how Keras runs the model (run_eagerly, jit_compile,
// steps_per_execution), names, and options that are switched off. Everything else that is not
// supported is refused by name.
#include "layers/config.h"

#include "core/base/keras_names.h"
#include "core/base/log.h"

#include <float.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>

#define SHOWN 64
#define LONGEST_METRIC 4096 // as the command line says it
#define DEEPEST_METRICS 3 // lists in lists

// One of the three parts, with the option that takes its place.
struct part {
    struct ls_config config; // of compile_config; reads nothing else
    const char *key;
    const char *option;
    enum ls_keras_kind kind;
    const struct ls_own_parts *own; // NULL: none
    uint32_t plugin_kind; // enum ls_kind, of losses and metrics
};

// Logs "compile_config.<key>: <message>; --optimizer= overrides it"; of what a program gave, "optimizer: <message>".
LS_PRINTF(3, 4)
static void refuse(struct part *part, const char *key, const char *format, ...)
{
    char message[320], path[160];
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof(message), format, list);
    va_end(list);
    snprintf(path, sizeof(path), "%s%s%.100s", part->key, key ? "." : "", key ? key : "");
    if (part->config.parent)
        ls_config_fail(&part->config, path, "%s; %s overrides it", message, part->option);
    else
        ls_config_fail(&part->config, path, "%s", message);
}

static void refuse_name(struct part *part, const char *name, const char *const *supported)
{
    char why[160];
    refuse(part, NULL, "'%.60s' %s", name,
           ls_keras_refusal(part->kind, name, supported, why, sizeof(why)));
}

static void refuse_value(struct part *part, const char *key, const json_t *value)
{
    char text[SHOWN];
    refuse(part, key, "%s is not supported%s", ls_json_text(value, text, sizeof(text)),
           key && strcmp(key, "reduction") == 0 ? "; only the mean of the examples is computed"
                                                : "");
}

static bool is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

// Null, false, 0, or an empty list: as if it were not there.
static bool is_off(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_number(value) && json_number_value(value) == 0) ||
           ((json_is_array(value) || json_is_object(value)) && json_array_size(value) == 0 &&
            json_object_size(value) == 0);
}

// The name and, of an object, the options of what is written as "adam", {"class_name": "Adam",
// "config": {...}} or {"class_name": "function", "config": "mean_squared_error"}. False: refused.
static bool read_object(struct part *part, const json_t *value, const char **name,
                        const json_t **options)
{
    const json_t *config = json_object_get(value, "config");
    char text[SHOWN];

    *options = NULL;
    *name = json_string_value(value);
    if (!*name)
        *name = json_string_value(json_object_get(value, "class_name"));
    if (*name && strcmp(*name, "function") == 0 && json_is_string(config))
        *name = json_string_value(config);
    else if (json_is_object(config))
        *options = config;
    if (*name && !ls_json_is_custom(value))
        return true;
    refuse(part, NULL, "expected one of Keras's, got %s", ls_json_text(value, text, sizeof(text)));
    return false;
}

// The least digits that give the number back; one that is a float32 is written as such: 0.001, not
// 0.00100000005.
static void number_text(double value, char *text, size_t bytes)
{
    const bool single = (double)(float)value == value;
    if (value >= 0 && value < 1e9 &&
        value == (double)(int64_t)value) { // a count, as options have it
        snprintf(text, bytes, "%.0f", value);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, bytes, "%.*g", digits, value);
        if (single ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value)
            break;
    }
    for (; *text; text++) // a program that embeds us may have set a locale with a comma
        if (*text == ',')
            *text = '.';
}

// ---- Names ----

// The name on the command line of what is written as "CategoricalCrossentropy", "mse" or "huber".
static void plain_name(const char *name, char *out, size_t bytes)
{
    static const char *const aliases[][2] = {{"mse", "mean_squared_error"},
                                             {"mae", "mean_absolute_error"},
                                             {"mape", "mean_absolute_percentage_error"},
                                             {"msle", "mean_squared_logarithmic_error"},
                                             {"bce", "binary_crossentropy"},
                                             {"kld", "kl_divergence"},
                                             {"kullback_leibler_divergence", "kl_divergence"},
                                             {"logcosh", "log_cosh"},
                                             {"log_cosh_error", "log_cosh"},
                                             {"cosine_proximity", "cosine_similarity"},
                                             {"f_beta_score", "fbeta_score"}};
    ls_keras_snake_case(name, out, bytes);
    for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++)
        if (strcmp(aliases[i][0], out) == 0)
            snprintf(out, bytes, "%s", aliases[i][1]);
}

// ":learning_rate=0.5" or ",momentum=0.9", behind what is there from `text` on.
static void add_option(char *text, size_t bytes, const char *name, const char *value)
{
    const size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%c%s=%s", strchr(text, ':') ? ',' : ':', name, value);
}

// A number from 0 to `most`, or 1: below it.
static void read_number(struct part *part, const char *key, const char *name, double most,
                        const json_t *value, char *out, size_t bytes)
{
    char text[SHOWN];
    const double number = json_number_value(value);

    if (!json_is_number(value) || number < 0 || number > most ||
        (most == 1 && (float)number >= 1)) {
        refuse(part, key, "expected a number from 0%s, got %s", most == 1 ? " to below 1" : "",
               ls_json_text(value, text, sizeof(text)));
    } else {
        number_text(number, text, sizeof(text));
        add_option(out, bytes, name, text);
    }
}

// ---- Schedules ----

static const struct schedule {
    const char *class_name, *name;
    const char *keys[7];
} schedules[] = {
    {"ExponentialDecay",
     "exponential_decay",
     {"initial_learning_rate", "decay_steps", "decay_rate", "staircase"}},
    {"InverseTimeDecay",
     "inverse_time_decay",
     {"initial_learning_rate", "decay_steps", "decay_rate", "staircase"}},
    {"PiecewiseConstantDecay", "piecewise_constant_decay", {"boundaries", "values"}},
    {"PolynomialDecay",
     "polynomial_decay",
     {"initial_learning_rate", "decay_steps", "end_learning_rate", "power", "cycle"}},
    {"CosineDecay",
     "cosine_decay",
     {"initial_learning_rate", "decay_steps", "alpha", "warmup_target", "warmup_steps"}},
    {"CosineDecayRestarts",
     "cosine_decay_restarts",
     {"initial_learning_rate", "first_decay_steps", "t_mul", "m_mul", "alpha"}},
};

// "0.1:0.01"
static bool list_text(const json_t *list, char *out, size_t bytes)
{
    const json_t *element;
    size_t index, used = 0;
    json_array_foreach((json_t *)list, index, element)
    {
        char text[SHOWN];
        if (!json_is_number(element) || used + SHOWN > bytes)
            return false;
        number_text(json_number_value(element), text, sizeof(text));
        used += (size_t)snprintf(out + used, bytes - used, "%s%s", used ? ":" : "", text);
    }
    return used > 0;
}

static void read_schedule_option(struct part *part, const struct schedule *schedule,
                                 const char *key, const json_t *value, char *out, size_t bytes)
{
    char text[1024];
    if (strcmp(key, "name") == 0)
        return;
    if (!is_one_of(key, schedule->keys))
        refuse_value(part, key, value);
    else if (json_is_array(value) && list_text(value, text, sizeof(text)))
        add_option(out, bytes, key, text);
    else if (json_is_boolean(value))
        add_option(out, bytes, key, json_is_true(value) ? "on" : "off");
    else if (!json_is_null(value))
        read_number(part, key, key, FLT_MAX, value, out, bytes);
}

static char *read_schedule(struct part *part, const json_t *value)
{
    const char *class_name = json_string_value(json_object_get(value, "class_name")), *key;
    const json_t *config = json_object_get(value, "config");
    const struct schedule *schedule = NULL;
    json_t *option;
    char text[2048];

    for (size_t i = 0; class_name && i < sizeof(schedules) / sizeof(schedules[0]); i++)
        if (strcmp(schedules[i].class_name, class_name) == 0)
            schedule = &schedules[i];
    if (!schedule || !json_is_object(config)) {
        refuse(part, "learning_rate",
               "the schedule %.60s is not supported; piecewise_constant_decay takes rates by steps",
               class_name ? class_name : "");
        return NULL;
    }
    snprintf(text, sizeof(text), "%s", schedule->name);
    json_object_foreach((json_t *)config, key, option)
    {
        read_schedule_option(part, schedule, key, option, text, sizeof(text));
    }
    return strdup(text);
}

// ---- Optimizer ----

static const struct optimizer {
    const char *class_name, *name;
    const char *keys[7]; // options beside those that all have
} optimizers[] = {
    {"SGD", "sgd", {"learning_rate", "momentum", "nesterov"}},
    {"Adam", "adam", {"learning_rate", "beta_1", "beta_2", "epsilon", "amsgrad"}},
    {"AdamW", "adamw", {"learning_rate", "beta_1", "beta_2", "epsilon", "amsgrad"}},
    {"RMSprop", "rmsprop", {"learning_rate", "rho", "momentum", "epsilon", "centered"}},
    {"Adagrad", "adagrad", {"learning_rate", "initial_accumulator_value", "epsilon"}},
    {"Adadelta", "adadelta", {"learning_rate", "rho", "epsilon"}},
    {"Adamax", "adamax", {"learning_rate", "beta_1", "beta_2", "epsilon"}},
    {"Nadam", "nadam", {"learning_rate", "beta_1", "beta_2", "epsilon"}},
    {"Lamb", "lamb", {"learning_rate", "beta_1", "beta_2", "epsilon"}},
};
static const char *const optimizer_names[] = {"sgd",      "adam",   "adamw", "rmsprop", "adagrad",
                                              "adadelta", "adamax", "nadam", "lamb",    NULL};
static const char *const common[] = {"weight_decay", "clipnorm", "clipvalue", "global_clipnorm",
                                     NULL};
static const char *const of_average[] = {"ema_momentum", "ema_overwrite_frequency", NULL};
static const char *const below_one[] = {"momentum", "beta_1",       "beta_2",
                                        "rho",      "ema_momentum", NULL};

// Whatever they say, they change nothing.
static const char *const optimizer_harmless[] = {"name", "is_legacy_optimizer", "jit_compile",
                                                 NULL};

static const struct optimizer *find_optimizer(const char *name)
{
    for (size_t i = 0; i < sizeof(optimizers) / sizeof(optimizers[0]); i++)
        if (strcmp(optimizers[i].class_name, name) == 0 || strcmp(optimizers[i].name, name) == 0)
            return &optimizers[i];
    return NULL;
}

static void read_optimizer_option(struct part *part, const struct optimizer *optimizer,
                                  const char *key, const json_t *value, bool averages, char *out,
                                  size_t bytes)
{
    const char *name = strcmp(key, "lr") == 0 ? "learning_rate" : key; // its name before Keras 2.3
    const bool own = is_one_of(name, optimizer->keys), off = is_off(value);
    const bool boolean =
        is_one_of(name, (const char *const[]){"nesterov", "amsgrad", "centered", NULL});
    const bool decays = strcmp(optimizer->name, "adamw") == 0 && strcmp(key, "weight_decay") == 0;
    if (is_one_of(name, of_average) && (!averages || off))
        return;
    if (strcmp(key, "use_ema") == 0 && json_is_true(value)) {
        add_option(out, bytes, key, "on");
    } else if (own && boolean && (json_is_boolean(value) || off)) {
        if (!off || strcmp(key, "nesterov") == 0)
            add_option(out, bytes, key, json_is_true(value) ? "on" : "off");
    } else if (decays && off) {
        add_option(out, bytes, key, "0");
    } else if ((own && !boolean) ||
               (!off && (is_one_of(name, common) || is_one_of(name, of_average)))) {
        read_number(part, key, name, is_one_of(name, below_one) ? 1 : FLT_MAX, value, out, bytes);
    } else if (!is_one_of(key, optimizer_harmless) && !off) {
        refuse_value(part, key, value);
    }
}

static char *fixed_scale(const json_t *value)
{
    char text[64];
    number_text(json_number_value(value), text, sizeof(text));
    return strdup(text);
}

// What wraps another optimizer in Keras, in the words of --loss-scale=. Other versions write more options,
// which are those of the inner optimizer and off here.
static const json_t *read_loss_scale(struct part *part, const json_t *options, char **loss_scale)
{
    char dynamic[128] = "dynamic";
    const char *key;
    json_t *option;
    json_object_foreach((json_t *)options, key, option)
    {
        if (strcmp(key, "initial_scale") == 0 ||
            (strcmp(key, "dynamic_growth_steps") == 0 && !is_off(option)))
            read_number(part, key, key, FLT_MAX, option, dynamic, sizeof(dynamic));
        else if (!is_off(option) &&
                 !is_one_of(key, (const char *const[]){"inner_optimizer", "dynamic", "name",
                                                       "ema_momentum", NULL}))
            refuse_value(part, key, option);
    }
    const json_t *scale = json_object_get(options, "initial_scale");
    const bool fixed = json_is_false(json_object_get(options, "dynamic")); // Keras 2
    *loss_scale = fixed && json_is_number(scale) ? fixed_scale(scale) : strdup(dynamic);
    return json_object_get(options, "inner_optimizer");
}

static char *read_optimizer(struct part *part, const json_t *value, struct ls_compile_config *out)
{
    const char *name, *key;
    const json_t *options;
    json_t *option;
    char text[512];

    if (!read_object(part, value, &name, &options))
        return NULL;
    if (strcmp(name, "LossScaleOptimizer") == 0) {
        value = read_loss_scale(part, options, &out->loss_scale);
        if (!out->loss_scale || !read_object(part, value, &name, &options))
            return NULL;
    }
    const struct optimizer *optimizer = find_optimizer(name);
    if (!optimizer) {
        refuse_name(part, name, optimizer_names);
        return NULL;
    }
    const bool averages = json_is_true(json_object_get(options, "use_ema"));
    snprintf(text, sizeof(text), "%s", optimizer->name);
    json_object_foreach((json_t *)options, key, option)
    {
        if (json_is_object(option) && strcmp(key, "learning_rate") == 0)
            out->schedule = read_schedule(part, option);
        else if (strcmp(key, "loss_scale_factor") == 0 && json_is_number(option) &&
                 !out->loss_scale)
            out->loss_scale = fixed_scale(option);
        else
            read_optimizer_option(part, optimizer, key, option, averages, text, sizeof(text));
    }
    return strdup(text);
}

// ---- Of the user's own ----

static const char *const loss_names[] = {"sparse_categorical_crossentropy",
                                         "mean_squared_error",
                                         "categorical_crossentropy",
                                         "binary_crossentropy",
                                         "mean_absolute_error",
                                         "mean_absolute_percentage_error",
                                         "mean_squared_logarithmic_error",
                                         "huber",
                                         "log_cosh",
                                         "kl_divergence",
                                         "poisson",
                                         "hinge",
                                         "squared_hinge",
                                         "categorical_hinge",
                                         "cosine_similarity",
                                         NULL};
static const char *const metric_names[] = {"accuracy",
                                           "binary_accuracy",
                                           "categorical_accuracy",
                                           "sparse_categorical_accuracy",
                                           "top_k_categorical_accuracy",
                                           "sparse_top_k_categorical_accuracy",
                                           "auc",
                                           "precision",
                                           "recall",
                                           "true_positives",
                                           "false_positives",
                                           "false_negatives",
                                           "true_negatives",
                                           "root_mean_squared_error",
                                           "f1_score",
                                           "fbeta_score",
                                           "mean_io_u",
                                           "one_hot_mean_io_u",
                                           "io_u",
                                           "one_hot_io_u",
                                           "binary_io_u",
                                           "precision_at_recall",
                                           "recall_at_precision",
                                           "sensitivity_at_specificity",
                                           "specificity_at_sensitivity",
                                           "r2_score",
                                           "pearson_correlation",
                                           "concordance_correlation",
                                           NULL};
// All are the mean over the examples of a batch.
static const char *const mean_reductions[] = {"sum_over_batch_size", "auto", "mean",
                                              "mean_with_sample_weight", NULL};

// The name of a loss or a metric that is a plugin; NULL: it is none.
static const char *own_name(const struct part *part, const json_t *value)
{
    const char *name = json_string_value(value);
    const json_t *config = json_object_get(value, "config");
    if (!name)
        name = json_string_value(json_object_get(value, "class_name"));
    if (name && strcmp(name, "function") == 0)
        name = json_string_value(config);
    if (!name)
        return NULL;
    char plain[SHOWN];
    plain_name(name, plain, sizeof(plain));
    const bool metric = part->plugin_kind == LS_KIND_METRIC && is_one_of(plain, metric_names);
    if (!ls_json_is_custom(value) && (metric || is_one_of(plain, loss_names)))
        return NULL; // Keras's own
    const char *package = strrchr(name, '>');
    name = package ? package + 1 : name;
    return part->own && part->own->has(part->own, part->plugin_kind, name) ? name : NULL;
}

// "focal:gamma=2". Its options are checked where the plugin is opened.
static void own_text(struct part *part, const char *name, const json_t *value, char *text,
                     size_t bytes)
{
    const json_t *config = json_object_get(value, "config");
    const char *key;
    json_t *option;
    char number[40];
    snprintf(text, bytes, "%s", name);
    json_object_foreach((json_t *)config, key, option)
    {
        const char *word = json_string_value(option);
        if (json_is_null(option) ||
            is_one_of(key, (const char *const[]){"name", "dtype", "fn", NULL}) ||
            (strcmp(key, "reduction") == 0 && word && is_one_of(word, mean_reductions)))
            continue;
        number_text(json_number_value(option), number, sizeof(number));
        if (strlen(text) + strlen(key) + strlen(word ? word : number) + 3 > bytes)
            refuse(part, key, "the options of '%s' have more than %zu letters", name, bytes);
        else if (word && !strpbrk(word, ",="))
            add_option(text, bytes, key, word);
        else if (json_is_boolean(option))
            add_option(text, bytes, key, json_is_true(option) ? "on" : "off");
        else if (json_is_number(option))
            add_option(text, bytes, key, number);
        else
            refuse_value(part, key, option);
    }
}

// ---- Loss ----

// Options of a loss, which a metric of that name has, too. False: `key` is none of them.
static bool read_loss_option(struct part *part, const char *loss, const char *key,
                             const json_t *value, char *out, size_t bytes)
{
    const bool entropy = strstr(loss, "crossentropy") != NULL;
    const bool smooth = entropy && strncmp(loss, "sparse", 6) != 0;
    if (entropy && strcmp(key, "from_logits") == 0 && json_is_boolean(value)) {
        if (json_is_true(value))
            add_option(out, bytes, key, "true");
        return true;
    }
    if ((smooth && strcmp(key, "label_smoothing") == 0) ||
        (strcmp(loss, "huber") == 0 && strcmp(key, "delta") == 0)) {
        if (!is_off(value) || strcmp(key, "delta") == 0)
            read_number(part, key, key, FLT_MAX, value, out, bytes);
        return true;
    }
    return false;
}

// Of one output. NULL: refused, or no memory.
static char *read_one_loss(struct part *part, const json_t *value)
{
    const char *name, *key;
    const json_t *options;
    json_t *option;
    char text[256];

    if (json_is_null(value))
        return strdup("none");
    name = json_string_value(value);
    if (name && strchr(name, ':')) // in the words of the command line already
        return strdup(name);
    name = own_name(part, value);
    if (name) {
        own_text(part, name, value, text, sizeof(text));
        return strdup(text);
    }
    if (!read_object(part, value, &name, &options))
        return NULL;
    char loss[SHOWN];
    plain_name(name, loss, sizeof(loss));
    if (!is_one_of(loss, loss_names)) {
        refuse_name(part, name, loss_names);
        return NULL;
    }
    snprintf(text, sizeof(text), "%s", loss);
    json_object_foreach((json_t *)options, key, option)
    {
        const char *word = json_string_value(option);
        const bool harmless =
            strcmp(key, "name") == 0 || (strcmp(key, "dtype") == 0 && ls_json_is_float32(option)) ||
            (strcmp(key, "reduction") == 0 && word && is_one_of(word, mean_reductions)) ||
            (strcmp(key, "axis") == 0 && json_integer_value(option) == -1);
        if (!harmless && !read_loss_option(part, loss, key, option, text, sizeof(text)) &&
            !json_is_null(option))
            refuse_value(part, key, option);
    }
    return strdup(text);
}

// Whether a value is by the names of outputs, and not an object of Keras.
static bool is_by_name(const json_t *value)
{
    return json_is_object(value) && !json_object_get(value, "class_name") &&
           !json_object_get(value, "module");
}

// A loss, a list of them in the order of the outputs, or an object by their names.
static char *read_loss(struct part *part, const json_t *value)
{
    char *text = NULL;
    size_t bytes = 0, index;
    const char *output;
    json_t *one;

    if (json_array_size(value) == 1)
        value = json_array_get(value, 0);
    if (!json_is_array(value) && !is_by_name(value))
        return read_one_loss(part, value);
    FILE *list = open_memstream(&text, &bytes);
    if (!list)
        return NULL;
    bool complete = true;
    json_array_foreach(value, index, one)
    {
        char *loss = read_one_loss(part, one);
        fprintf(list, "%s%s", index ? "," : "", loss ? loss : "");
        complete = complete && loss;
        free(loss);
    }
    json_object_foreach((json_t *)(json_is_object(value) ? value : NULL), output, one)
    {
        char *loss = read_one_loss(part, one);
        fprintf(list, "%s%s=%s", ftell(list) ? "," : "", output, loss ? loss : "");
        complete = complete && loss;
        free(loss);
    }
    if (fclose(list) == 0 && complete)
        return text;
    free(text);
    return NULL;
}

// Numbers, in the order of the outputs or by their names.
static char *read_loss_weights(struct part *part, const json_t *value)
{
    char *text = NULL;
    size_t bytes = 0, index;
    const char *output;
    json_t *one;
    FILE *list = open_memstream(&text, &bytes);
    bool complete = list != NULL;

    json_array_foreach(list ? value : NULL, index, one)
    {
        fprintf(list, "%s%.9g", index ? "," : "", json_number_value(one));
        complete = complete && json_is_number(one);
    }
    json_object_foreach((json_t *)(list && json_is_object(value) ? value : NULL), output, one)
    {
        fprintf(list, "%s%s=%.9g", ftell(list) ? "," : "", output, json_number_value(one));
        complete = complete && json_is_number(one);
    }
    if (list && fclose(list) == 0 && complete && (json_is_array(value) || is_by_name(value)))
        return text;
    free(text);
    refuse_value(part, "loss_weights", value);
    return NULL;
}

// ---- Metrics ----

static const char *const short_names[] = {"mae", "mape", "mse", "msle", NULL};

// That of a list of one.
static const json_t *only_axis(const json_t *value)
{
    return json_array_size(value) == 1 ? json_array_get(value, 0) : value;
}

// What is a default in Keras, or does not change the value.
static bool is_harmless_in_metric(const char *key, const json_t *value)
{
    const char *word = json_string_value(value);
    if (is_one_of(key, (const char *const[]){"name", "dtype", "fn", NULL}) || json_is_null(value) ||
        json_is_false(value))
        return true;
    if (strcmp(key, "axis") == 0)
        return json_integer_value(only_axis(value)) == -1;
    return word && ((strcmp(key, "summation_method") == 0 && strcmp(word, "interpolation") == 0) ||
                    (strcmp(key, "reduction") == 0 && is_one_of(word, mean_reductions)));
}

// The thresholds that some versions of Keras write beside `num_thresholds`, the first and the last left out.
static bool are_even(const json_t *thresholds, const json_t *of)
{
    const size_t count = json_array_size(thresholds);
    if (!json_is_integer(of) || json_integer_value(of) != (json_int_t)count + 2)
        return false;
    for (size_t i = 0; i < count; i++) {
        const double even = (double)(i + 1) / (double)(count + 1);
        if (fabs(json_number_value(json_array_get(thresholds, i)) - even) > 1e-6)
            return false;
    }
    return true;
}

// Those of metrics of classes. MeanIoU and IoU compare classes that are given, unless sparse_y_pred
// is false, while outputs are scores.
static bool read_class_option(struct part *part, const char *metric, const char *key,
                              const json_t *value, char *out, size_t bytes)
{
    static const char *const numbers[] = {"beta",           "threshold",   "recall",
                                          "precision",      "specificity", "sensitivity",
                                          "num_thresholds", "num_classes", NULL};
    char several[512];
    const bool score = strstr(metric, "f1_score") || strstr(metric, "fbeta_score");
    const bool overlap = strstr(metric, "io_u") != NULL, at = strstr(metric, "_at_") != NULL;

    if (strcmp(metric, "r2_score") == 0 && strcmp(key, "num_regressors") == 0 &&
        json_is_integer(value)) {
        read_number(part, key, key, FLT_MAX, value, out, bytes);
        return true;
    }
    if (strcmp(metric, "r2_score") == 0 && strcmp(key, "class_aggregation") == 0 &&
        json_is_string(value)) {
        add_option(out, bytes, key, json_string_value(value));
        return true;
    }
    if (strstr(metric, "_correlation") && strcmp(key, "axis") == 0 &&
        json_is_integer(only_axis(value))) {
        read_number(part, key, key, FLT_MAX, only_axis(value), out, bytes);
        return true;
    }
    if (overlap && strcmp(key, "sparse_y_true") == 0)
        return true;
    if (overlap && strcmp(key, "axis") == 0)
        return json_integer_value(value) == -1; // where the classes of an output are
    if (overlap && strcmp(key, "sparse_y_pred") == 0)
        return json_is_false(value);
    if ((score && strcmp(key, "beta") == 0 && strcmp(metric, "f1_score") == 0) ||
        (overlap && strcmp(key, "num_classes") == 0 && strcmp(metric, "binary_io_u") == 0))
        return true;
    if ((score || overlap || at) && json_is_number(value) && is_one_of(key, numbers)) {
        read_number(part, key, key, FLT_MAX, value, out, bytes);
        return true;
    }
    if (overlap && strcmp(key, "target_class_ids") == 0 &&
        list_text(value, several, sizeof(several))) {
        add_option(out, bytes, key, several);
        return true;
    }
    if (score && strcmp(key, "average") == 0 && json_is_string(value)) {
        add_option(out, bytes, key, json_string_value(value));
        return true;
    }
    return false;
}

static void read_metric_option(struct part *part, const char *metric, const json_t *options,
                               const char *key, const json_t *value, char *out, size_t bytes)
{
    const bool sided = strcmp(metric, "precision") == 0 || strcmp(metric, "recall") == 0 ||
                       strstr(metric, "itives") || strstr(metric, "atives");
    char several[LONGEST_METRIC - 512];
    const bool area = strcmp(metric, "auc") == 0, thresholds = strcmp(key, "thresholds") == 0;
    const json_t *only = json_array_size(value) == 1 ? json_array_get(value, 0) : value;
    const json_t *number = json_object_get(options, "num_thresholds");
    const json_t *given = json_object_get(options, "thresholds");
    const bool average = strcmp(key, "average") == 0;
    if ((average || strcmp(key, "class_aggregation") == 0) && json_is_null(value)) {
        refuse(
            part, key, "null gives one score for each column, and a metric is one number; take %s",
            average ? "macro, micro or weighted" : "uniform_average or variance_weighted_average");
        return;
    }
    if (is_harmless_in_metric(key, value) || (area && thresholds && are_even(value, number)))
        return;
    if (area && strcmp(key, "num_thresholds") == 0 && json_is_array(given) &&
        !are_even(given, number))
        return; // in Keras, too, it is the number of the others
    if (read_class_option(part, metric, key, value, out, bytes))
        return;
    if ((sided || area) && thresholds && (area || json_array_size(value) > 1)) {
        if (list_text(value, several, sizeof(several)))
            add_option(out, bytes, key, several);
        else
            refuse(part, key, "expected numbers, at most %zu of them", sizeof(several) / SHOWN);
    } else if ((strstr(metric, "top_k") && strcmp(key, "k") == 0) ||
               (strcmp(metric, "binary_accuracy") == 0 && strcmp(key, "threshold") == 0) ||
               (sided && thresholds) || (area && strcmp(key, "num_thresholds") == 0))
        read_number(part, key, key, FLT_MAX, only, out, bytes);
    else if (area && strcmp(key, "curve") == 0 && json_is_string(value))
        add_option(out, bytes, key, json_string_value(value));
    else if (!read_loss_option(part, metric, key, value, out, bytes))
        refuse_value(part, key, value);
}

// That of a metric, where the command line can say it.
static bool is_plain(const char *name)
{
    const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    return name && name[0] && strlen(name) < 2 * SHOWN && strspn(name, letters) == strlen(name);
}

// Adds "auc:curve=PR" to the list, with a comma before it.
static void read_metric(struct part *part, const char *name, const json_t *options, FILE *list)
{
    char metric[SHOWN], text[LONGEST_METRIC];
    const char *key;
    json_t *option;
    plain_name(name, metric, sizeof(metric));
    if (strcmp(metric, "acc") == 0)
        snprintf(metric, sizeof(metric), "accuracy");
    // Keras's key in the history of a training, too, is the name that was given.
    const char *shown = is_one_of(name, short_names) ? name : metric;
    // The class of that name compares predictions and targets as they are.
    if (strcmp(name, "Accuracy") == 0 ||
        (!is_one_of(metric, metric_names) && !is_one_of(metric, loss_names))) {
        refuse_name(part, name, metric_names);
        return;
    }
    snprintf(text, sizeof(text), "%s", shown);
    json_object_foreach((json_t *)options, key, option)
    {
        read_metric_option(part, metric, options, key, option, text, sizeof(text));
    }
    const char *given = json_string_value(json_object_get(options, "name"));
    if (is_plain(given) && strcmp(given, shown) != 0)
        add_option(text, sizeof(text), "name", given);
    else if (given && !is_plain(given))
        ls_warn("metrics",
                "the name '%.60s' is no key of reports, which have letters, digits and "
                "underscores; the key is %s",
                given, shown);
    fprintf(list, ",%s", text);
}

// A metric, or a list of them.
static void read_metrics(struct part *part, const json_t *value, int depth, FILE *list)
{
    const char *name, *inner;
    const json_t *options, *element;
    size_t index;

    if (json_is_array(value) && depth < DEEPEST_METRICS) {
        json_array_foreach((json_t *)value, index, element)
        {
            read_metrics(part, element, depth + 1, list);
        }
        return;
    }
    name = json_string_value(value);
    if (name && strchr(name, ':')) { // in the words of the command line already
        fprintf(list, ",%s", name);
        return;
    }
    name = own_name(part, value);
    if (name) {
        char text[LONGEST_METRIC];
        own_text(part, name, value, text, sizeof(text));
        fprintf(list, ",%s", text);
        return;
    }
    if (is_off(value) || !read_object(part, value, &name, &options))
        return;
    inner = json_string_value(json_object_get(options, "fn"));
    if (inner && strcmp(name, "MeanMetricWrapper") == 0) {
        // What "accuracy" or "mae" has become keeps that name.
        const char *given = json_string_value(json_object_get(options, "name"));
        name = given && (strcmp(given, "accuracy") == 0 || is_one_of(given, short_names)) ? given
                                                                                          : inner;
    }
    read_metric(part, name, options, list);
}

// Those of all outputs as text, which may be empty: a list of each, in their order or by name.
static char *read_all_metrics(struct part *part, const json_t *value, size_t outputs)
{
    char *text = NULL;
    size_t bytes = 0, index;
    const char *output;
    json_t *one;
    FILE *stream = open_memstream(&text, &bytes);
    if (!stream)
        return NULL;
    const bool lists = outputs > 1 && json_array_size(value) == outputs;
    if (is_by_name(value)) {
        json_object_foreach((json_t *)value, output, one)
        {
            char *list = read_all_metrics(part, one, 1);
            if (list && list[0])
                fprintf(stream, "%s%s=%s", ftell(stream) ? "," : "", output, list);
            free(list);
        }
    } else if (lists) {
        json_array_foreach((json_t *)value, index, one)
        {
            char *list = read_all_metrics(part, one, 1);
            fprintf(stream, "%s%s", index ? ";" : "", list ? list : "");
            free(list);
        }
    } else {
        read_metrics(part, value, 0, stream);
    }
    if (fclose(stream)) {
        free(text);
        return NULL;
    }
    if (text[0] == ',') // before the first one
        memmove(text, text + 1, strlen(text));
    return text;
}

// ---- All ----

static const char *const harmless[] = {"run_eagerly", "jit_compile", "steps_per_execution",
                                       "auto_scale_loss", NULL};

// What is beside the three, by the part that it belongs to.
static void check_rest(const json_t *object, uint32_t parts, struct part *optimizer,
                       struct part *metrics)
{
    static const char *const read[] = {"optimizer",    "optimizer_config", "loss",
                                       "loss_weights", "metrics",          NULL};
    const char *key;
    json_t *value;
    char text[SHOWN];

    json_object_foreach((json_t *)object, key, value)
    {
        struct part *part = strcmp(key, "weighted_metrics") == 0 ? metrics : NULL;
        if (is_one_of(key, read) || is_one_of(key, harmless) || is_off(value))
            continue;
        ls_json_text(value, text, sizeof(text));
        if (!part)
            ls_config_fail(&optimizer->config, key, "%s is not supported; remove it", text);
        else if (parts & LS_COMPILE_METRICS)
            ls_config_fail(&part->config, key, "%s is not supported; %s overrides it", text,
                           part->option);
    }
}

// How many outputs a model has: of several, output_layers is a list or an object of references.
static size_t count_outputs(const json_t *model)
{
    const json_t *outputs = json_object_get(json_object_get(model, "config"), "output_layers");
    if (json_is_object(outputs))
        return json_object_size(outputs);
    return json_is_array(json_array_get(outputs, 0)) ? json_array_size(outputs) : 1;
}

static enum ls_status read_parts(struct ls_graph *graph, const char *where, const json_t *object,
                                 const json_t *model, uint32_t parts,
                                 const struct ls_own_parts *own, struct ls_compile_config *out)
{
    const struct ls_config config = {.graph = graph, .object = object, .parent = where};
    struct part optimizer = {config, "optimizer", "--optimizer=", LS_KERAS_OPTIMIZER, NULL, 0};
    struct part loss = {config, "loss", "--loss=", LS_KERAS_LOSS, own, LS_KIND_LOSS};
    struct part metrics = {config, "metrics", "--metrics=", LS_KERAS_METRIC, own, LS_KIND_METRIC};
    const json_t *value = json_object_get(object, "optimizer");
    bool memory = true;

    if (!value)
        value = json_object_get(object, "optimizer_config");
    if ((parts & LS_COMPILE_OPTIMIZER) && !is_off(value)) {
        out->optimizer = read_optimizer(&optimizer, value, out);
        memory = memory && (out->optimizer || optimizer.config.status);
    }
    value = json_object_get(object, "loss");
    if ((parts & LS_COMPILE_LOSS) && !is_off(value)) {
        out->loss = read_loss(&loss, value);
        memory = memory && (out->loss || loss.config.status);
    }
    value = json_object_get(object, "loss_weights");
    if ((parts & LS_COMPILE_LOSS) && !is_off(value)) {
        out->loss_weights = read_loss_weights(&loss, value);
        memory = memory && (out->loss_weights || loss.config.status);
    }
    value = json_object_get(object, "metrics");
    if (parts & LS_COMPILE_METRICS) {
        char *list = read_all_metrics(&metrics, value, count_outputs(model));
        memory = memory && list;
        if (list && list[0])
            out->metrics = list;
        else
            free(list);
    }
    check_rest(object, parts, &optimizer, &metrics);
    if (optimizer.config.status || loss.config.status || metrics.config.status)
        return LS_BAD_INPUT;
    return memory ? LS_OK : LS_OUT_OF_MEMORY;
}

static enum ls_status read_config(const char *source, const char *where, const json_t *object,
                                  const json_t *model, uint32_t parts, struct ls_own_parts *own,
                                  struct ls_compile_config *out)
{
    struct ls_compile_config config = {0};
    struct ls_graph *graph = NULL; // gives messages their source, and counts them
    uint32_t problems = 0;

    *out = config;
    if (is_off(object))
        return LS_OK;
    enum ls_status status = ls_graph_create("compiled", &graph);
    if (status)
        return status;
    graph->source = strdup(source);
    graph->problems = &problems;
    if (!graph->source)
        status = LS_OUT_OF_MEMORY;
    else if (!json_is_object(object))
        status = ls_graph_fail(graph, NULL, "%s: expected an object", where ? where : "compile");
    else
        status = read_parts(graph, where, object, model, parts, own, &config);
    ls_graph_destroy(graph);
    if (problems > LS_GRAPH_PROBLEMS)
        ls_error(source, "and %u more problems of %s", problems - LS_GRAPH_PROBLEMS,
                 where ? where : "what it is compiled with");
    if (status)
        ls_compile_config_finish(&config);
    else
        *out = config;
    return status;
}

enum ls_status ls_model_compile_config(const char *source, const json_t *model, uint32_t parts,
                                       struct ls_own_parts *own, struct ls_compile_config *out)
{
    const json_t *object = json_object_get(model, "compile_config");
    return object ? read_config(source, "compile_config", object, model, parts, own, out)
                  : read_config(source, "training_config",
                                json_object_get(model, "training_config"), model, parts, own, out);
}

enum ls_status ls_compile_config_given(const char *source, const json_t *model, const json_t *given,
                                       struct ls_own_parts *own, struct ls_compile_config *out)
{
    const uint32_t all = LS_COMPILE_OPTIMIZER | LS_COMPILE_LOSS | LS_COMPILE_METRICS;
    const enum ls_status status = read_config(source, NULL, given, model, all, own, out);
    return status == LS_BAD_INPUT ? LS_USAGE : status;
}

void ls_compile_config_finish(struct ls_compile_config *config)
{
    free(config->optimizer);
    free(config->schedule);
    free(config->loss_scale);
    free(config->loss);
    free(config->loss_weights);
    free(config->metrics);
    *config = (struct ls_compile_config){0};
}
