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

#include <float.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN 64
#define MOST_NUMBERS 4
#define DEEPEST_METRICS 3 // lists in lists

// One of the three parts, with the option that takes its place.
struct part {
    struct ls_config config; // of compile_config; reads nothing else
    const char *key;
    const char *option;
    enum ls_keras_kind kind;
};

// Logs "compile_config.<key>: <message>; --optimizer= overrides it".
LS_PRINTF(3, 4)
static void refuse(struct part *part, const char *key, const char *format, ...)
{
    char message[320], path[160];
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof(message), format, list);
    va_end(list);
    snprintf(path, sizeof(path), "%s%s%.100s", part->key, key ? "." : "", key ? key : "");
    ls_config_fail(&part->config, path, "%s; %s overrides it", message, part->option);
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
    refuse(part, key, "%s is not supported", ls_json_text(value, text, sizeof(text)));
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
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, bytes, "%.*g", digits, value);
        if (single ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value)
            break;
    }
    for (; *text; text++) // a program that embeds us may have set a locale with a comma
        if (*text == ',')
            *text = '.';
}

// ---- Optimizer ----

static const struct optimizer {
    const char *class_name, *name;
    const char *numbers[MOST_NUMBERS + 1]; // options of the same names
    double most[MOST_NUMBERS]; // the largest, or 1: below it
    bool nesterov;
} optimizers[] = {
    {"SGD", "sgd", {"learning_rate", "momentum"}, {FLT_MAX, 1}, true},
    {"Adam",
     "adam",
     {"learning_rate", "beta_1", "beta_2", "epsilon"},
     {FLT_MAX, 1, 1, FLT_MAX},
     false},
};
static const char *const optimizer_names[] = {"sgd", "adam", NULL};

// Whatever they say, they change nothing; those of the average only where there is one (use_ema).
static const char *const optimizer_harmless[] = {
    "name", "is_legacy_optimizer", "jit_compile", "ema_momentum", "ema_overwrite_frequency", NULL};

static const struct optimizer *find_optimizer(const char *name)
{
    for (size_t i = 0; i < sizeof(optimizers) / sizeof(optimizers[0]); i++)
        if (strcmp(optimizers[i].class_name, name) == 0 || strcmp(optimizers[i].name, name) == 0)
            return &optimizers[i];
    return NULL;
}

// ":learning_rate=0.5" or ",momentum=0.9", behind what is there.
static void add_option(char *text, size_t bytes, const char *name, const char *value)
{
    const size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%c%s=%s", strchr(text, ':') ? ',' : ':', name, value);
}

static void read_number(struct part *part, const char *key, const char *name, double most,
                        const json_t *value, char *out, size_t bytes)
{
    char text[SHOWN];
    const double number = json_number_value(value);

    if (json_is_object(value)) {
        const char *class_name = json_string_value(json_object_get(value, "class_name"));
        refuse(part, key, "the schedule %.60s is not supported", class_name ? class_name : "");
    } else if (!json_is_number(value) || number < 0 || number > most ||
               (most == 1 && (float)number >= 1)) {
        refuse(part, key, "expected a number from 0%s, got %s", most == 1 ? " to below 1" : "",
               ls_json_text(value, text, sizeof(text)));
    } else {
        number_text(number, text, sizeof(text));
        add_option(out, bytes, name, text);
    }
}

static void read_optimizer_option(struct part *part, const struct optimizer *optimizer,
                                  const char *key, const json_t *value, char *out, size_t bytes)
{
    const char *name = strcmp(key, "lr") == 0 ? "learning_rate" : key; // its name before Keras 2.3
    for (size_t i = 0; optimizer->numbers[i]; i++)
        if (strcmp(optimizer->numbers[i], name) == 0) {
            read_number(part, key, name, optimizer->most[i], value, out, bytes);
            return;
        }
    if (optimizer->nesterov && strcmp(key, "nesterov") == 0 && json_is_boolean(value))
        add_option(out, bytes, name, json_is_true(value) ? "on" : "off");
    else if (!is_one_of(key, optimizer_harmless) && !is_off(value))
        refuse_value(part, key, value);
}

static char *read_optimizer(struct part *part, const json_t *value)
{
    const char *name, *key;
    const json_t *options;
    json_t *option;
    char text[256];

    if (!read_object(part, value, &name, &options))
        return NULL;
    const struct optimizer *optimizer = find_optimizer(name);
    if (!optimizer) {
        refuse_name(part, name, optimizer_names);
        return NULL;
    }
    snprintf(text, sizeof(text), "%s", optimizer->name);
    json_object_foreach((json_t *)options, key, option)
    {
        read_optimizer_option(part, optimizer, key, option, text, sizeof(text));
    }
    return strdup(text);
}

// ---- Loss ----

static const char *const squared_names[] = {"mean_squared_error", "MeanSquaredError", "mse", "MSE",
                                            NULL};
static const char *const classes_names[] = {"sparse_categorical_crossentropy",
                                            "SparseCategoricalCrossentropy", NULL};
static const char *const loss_names[] = {"sparse_categorical_crossentropy", "mean_squared_error",
                                         NULL};
// All are the mean over the examples of a batch, where examples have no weights.
static const char *const mean_reductions[] = {"sum_over_batch_size", "auto", "mean",
                                              "mean_with_sample_weight", NULL};

static void read_loss_option(struct part *part, bool classes, const char *key, const json_t *value,
                             bool *from_logits)
{
    const char *word = json_string_value(value);
    if (strcmp(key, "name") == 0 || (strcmp(key, "dtype") == 0 && ls_json_is_float32(value)) ||
        (strcmp(key, "reduction") == 0 && word && is_one_of(word, mean_reductions)) ||
        (strcmp(key, "axis") == 0 && json_integer_value(value) == -1))
        return;
    if (classes && strcmp(key, "from_logits") == 0 && json_is_boolean(value))
        *from_logits = json_is_true(value);
    else if (!json_is_null(value))
        refuse_value(part, key, value);
}

static char *read_loss(struct part *part, const json_t *value)
{
    const char *name, *key;
    const json_t *options;
    json_t *option;
    bool from_logits = false;

    if (json_array_size(value) == 1)
        value = json_array_get(value, 0);
    if (!read_object(part, value, &name, &options))
        return NULL;
    const bool classes = is_one_of(name, classes_names);
    if (!classes && !is_one_of(name, squared_names)) {
        refuse_name(part, name, loss_names);
        return NULL;
    }
    json_object_foreach((json_t *)options, key, option)
    {
        read_loss_option(part, classes, key, option, &from_logits);
    }
    return strdup(!classes      ? "mean_squared_error"
                  : from_logits ? "sparse_categorical_crossentropy:from_logits=true"
                                : "sparse_categorical_crossentropy");
}

// ---- Metrics ----

static const char *const accuracy_names[] = {"accuracy", "acc", "sparse_categorical_accuracy",
                                             "SparseCategoricalAccuracy", NULL};

// A metric, or a list of them: Keras 2 writes one list for each output.
static void read_metrics(struct part *part, const json_t *value, int depth, bool *accuracy)
{
    static const char *const supported[] = {"accuracy", NULL};
    const char *name, *inner;
    const json_t *options, *element;
    size_t index;

    if (json_is_array(value) && depth < DEEPEST_METRICS) {
        json_array_foreach((json_t *)value, index, element)
        {
            read_metrics(part, element, depth + 1, accuracy);
        }
        return;
    }
    if (is_off(value) || !read_object(part, value, &name, &options))
        return;
    inner = json_string_value(json_object_get(options, "fn"));
    if (inner && strcmp(name, "MeanMetricWrapper") == 0)
        name = inner;
    if (is_one_of(name, accuracy_names))
        *accuracy = true;
    else
        refuse_name(part, name, supported);
}

// ---- All ----

static const char *const harmless[] = {"run_eagerly", "jit_compile", "steps_per_execution",
                                       "auto_scale_loss", NULL};

// What is beside the three, by the part that it belongs to.
static void check_rest(const json_t *object, uint32_t parts, struct part *optimizer,
                       struct part *loss, struct part *metrics)
{
    static const char *const read[] = {"optimizer", "optimizer_config", "loss", "metrics", NULL};
    const char *key;
    json_t *value;
    char text[SHOWN];

    json_object_foreach((json_t *)object, key, value)
    {
        struct part *part = strcmp(key, "loss_weights") == 0       ? loss
                            : strcmp(key, "weighted_metrics") == 0 ? metrics
                                                                   : NULL;
        if (is_one_of(key, read) || is_one_of(key, harmless) || is_off(value))
            continue;
        ls_json_text(value, text, sizeof(text));
        if (!part)
            ls_config_fail(&optimizer->config, key, "%s is not supported; remove it", text);
        else if (parts & (part == loss ? LS_COMPILE_LOSS : LS_COMPILE_METRICS))
            ls_config_fail(&part->config, key, "%s is not supported; %s overrides it", text,
                           part->option);
    }
}

static enum ls_status read_parts(struct ls_graph *graph, const char *where, const json_t *object,
                                 uint32_t parts, struct ls_compile_config *out)
{
    const struct ls_config config = {.graph = graph, .object = object, .parent = where};
    struct part optimizer = {config, "optimizer", "--optimizer=", LS_KERAS_OPTIMIZER};
    struct part loss = {config, "loss", "--loss=", LS_KERAS_LOSS};
    struct part metrics = {config, "metrics", "--metrics=", LS_KERAS_METRIC};
    const json_t *value = json_object_get(object, "optimizer");
    bool accuracy = false, memory = true;

    if (!value)
        value = json_object_get(object, "optimizer_config");
    if ((parts & LS_COMPILE_OPTIMIZER) && !is_off(value)) {
        out->optimizer = read_optimizer(&optimizer, value);
        memory = memory && (out->optimizer || optimizer.config.status);
    }
    value = json_object_get(object, "loss");
    if ((parts & LS_COMPILE_LOSS) && !is_off(value)) {
        out->loss = read_loss(&loss, value);
        memory = memory && (out->loss || loss.config.status);
    }
    value = json_object_get(object, "metrics");
    if (parts & LS_COMPILE_METRICS)
        read_metrics(&metrics, value, 0, &accuracy);
    if (accuracy) {
        out->metrics = strdup("accuracy");
        memory = memory && out->metrics;
    }
    check_rest(object, parts, &optimizer, &loss, &metrics);
    if (optimizer.config.status || loss.config.status || metrics.config.status)
        return LS_BAD_INPUT;
    return memory ? LS_OK : LS_OUT_OF_MEMORY;
}

enum ls_status ls_model_compile_config(const char *source, const json_t *model, uint32_t parts,
                                       struct ls_compile_config *out)
{
    const char *where = "compile_config";
    const json_t *object = json_object_get(model, where);
    struct ls_compile_config config = {0};
    struct ls_graph *graph = NULL; // gives messages their source

    *out = config;
    if (!object)
        object = json_object_get(model, where = "training_config");
    if (is_off(object))
        return LS_OK;
    enum ls_status status = ls_graph_create("compiled", &graph);
    if (status)
        return status;
    graph->source = strdup(source);
    if (!graph->source)
        status = LS_OUT_OF_MEMORY;
    else if (!json_is_object(object))
        status = ls_graph_fail(graph, NULL, "%s: expected an object", where);
    else
        status = read_parts(graph, where, object, parts, &config);
    ls_graph_destroy(graph);
    if (status)
        ls_compile_config_finish(&config);
    else
        *out = config;
    return status;
}

void ls_compile_config_finish(struct ls_compile_config *config)
{
    free(config->optimizer);
    free(config->loss);
    free(config->metrics);
    *config = (struct ls_compile_config){0};
}
