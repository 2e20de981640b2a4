// SPDX-License-Identifier: Apache-2.0
// Values of a Keras configuration: the plain ones.
#include "layers/config.h"

#include "core/base/options.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SHOWN 64

static const char *const common_keys[] = {"name",  "trainable",         "activity_regularizer",
                                          "dtype", "batch_input_shape", NULL};

struct shown {
    char *text;
    size_t used, bytes;
};

// Ends the dump of a value as soon as it does not fit, however large the value is.
static int show(const char *part, size_t bytes, void *context)
{
    struct shown *shown = context;
    const size_t room = shown->bytes - shown->used;
    memcpy(shown->text + shown->used, part, bytes < room ? bytes : room);
    shown->used += bytes < room ? bytes : room;
    return bytes < room ? 0 : -1;
}

const char *ls_json_text(const json_t *value, char *text, size_t bytes)
{
    struct shown shown = {.text = text, .bytes = bytes};

    if (!value) {
        snprintf(text, bytes, "nothing");
    } else if (json_dump_callback(value, show, &shown,
                                  JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15)) ==
               0) {
        text[shown.used] = '\0';
    } else if (shown.used == bytes) {
        memcpy(text + bytes - 4, "...", 4);
    } else {
        snprintf(text, bytes, "a value that cannot be shown");
    }
    return text;
}

const char *ls_name_list(const char *const *names, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (; *names && used < bytes; names++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", used > 0 ? ", " : "", *names);
    return text;
}

bool ls_json_is_custom(const json_t *object)
{
    static const char *const packages[] = {"keras", "tf_keras", "tensorflow", "builtins", NULL};
    const char *registered = json_string_value(json_object_get(object, "registered_name"));
    const char *module = json_string_value(json_object_get(object, "module"));

    if (registered && strchr(registered, '>'))
        return true;
    if (!module)
        return false;
    for (const char *const *package = packages; *package; package++) {
        const size_t length = strlen(*package);
        if (strncmp(module, *package, length) == 0 &&
            (module[length] == '\0' || module[length] == '.'))
            return false;
    }
    return true;
}

bool ls_json_is_operation(const json_t *object)
{
    static const char *const modules[] = {"keras.src.ops.", "keras.ops", NULL};
    const char *module = json_string_value(json_object_get(object, "module"));

    for (const char *const *name = modules; module && *name; name++)
        if (strncmp(module, *name, strlen(*name)) == 0)
            return true;
    return false;
}

void ls_config_fail(struct ls_config *config, const char *key, const char *format, ...)
{
    char message[400];
    va_list list;

    va_start(list, format);
    vsnprintf(message, sizeof(message), format, list);
    va_end(list);
    if (config->parent)
        config->status =
            ls_graph_fail(config->graph, NULL, "%s.%s: %s", config->parent, key, message);
    else
        config->status = ls_graph_fail(config->graph, NULL, "%s: %s", key, message);
}

static bool is_in(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

static void refuse_key(struct ls_config *config, const char *key, const char *const *keys)
{
    char known[320];
    const char *nearest = ls_nearest(key, keys);
    if (!nearest)
        nearest = ls_nearest(key, common_keys);

    if (nearest)
        ls_config_fail(config, key, "unknown option; did you mean '%s'?", nearest);
    else if (*keys)
        ls_config_fail(config, key, "unknown option; available: %s",
                       ls_name_list(keys, known, sizeof(known)));
    else
        ls_config_fail(config, key, "unknown option; the layer has no options");
}

const char *ls_json_dtype(const json_t *dtype)
{
    if (json_is_object(dtype))
        dtype = json_object_get(json_object_get(dtype, "config"), "name");
    return json_is_string(dtype) ? json_string_value(dtype) : "";
}

bool ls_json_is_float32(const json_t *dtype)
{
    return strcmp(ls_json_dtype(dtype), "float32") == 0;
}

enum ls_precision ls_json_precision(const json_t *dtype, char *why, size_t bytes)
{
    const char *name = ls_json_dtype(dtype);
    char text[SHOWN];

    if (!dtype || json_is_null(dtype))
        return LS_PRECISION_FLOAT32;
    if (strcmp(name, "float16") == 0 || strcmp(name, "bfloat16") == 0)
        snprintf(why, bytes,
                 "%s would keep variables in 16 bits, too, which is not supported; set it to "
                 "\"mixed_%s\"",
                 name, name);
    else
        snprintf(why, bytes, "expected float32, mixed_bfloat16 or mixed_float16, got %s",
                 ls_json_text(dtype, text, sizeof(text)));
    return ls_precision_find(name);
}

void ls_config_check(struct ls_config *config, const char *const *keys)
{
    const char *key;
    json_t *value;
    char why[256];

    json_object_foreach((json_t *)config->object, key, value)
    {
        if (!is_in(key, keys) && !is_in(key, common_keys))
            refuse_key(config, key, keys);
    }
    (void)ls_config_boolean(config, "trainable", true);
    if (config->parent && !config->penalized)
        ls_config_null(config, "activity_regularizer");
    value = json_object_get(config->object, "dtype");
    if (!is_in("dtype", keys) && !ls_json_precision(value, why, sizeof(why)))
        ls_config_fail(config, "dtype", "%s", why);
}

const json_t *ls_call_argument(const struct ls_layer_call *call, size_t position, const char *name)
{
    const json_t *value = json_array_get(call->args, position);
    return value ? value : json_object_get(call->kwargs, name);
}

struct ls_tensor *ls_call_tensor(const struct ls_layer_call *call, const json_t *argument)
{
    const json_t *index = json_object_get(argument, "tensor");
    const json_int_t i = json_is_integer(index) ? json_integer_value(index) : -1;
    return i >= 0 && i < call->input_count && call->inputs ? call->inputs[i] : NULL;
}

int64_t ls_config_integer(struct ls_config *config, const char *key, int64_t minimum,
                          int64_t maximum, int64_t missing)
{
    const json_t *value = json_object_get(config->object, key);
    char text[SHOWN];

    if (!value && missing != LS_CONFIG_NONE)
        return missing;
    ls_json_text(value, text, sizeof(text));
    if (json_is_integer(value) && json_integer_value(value) > maximum)
        ls_config_fail(config, key, "expected at most %lld, got %s", (long long)maximum, text);
    else if (!json_is_integer(value) || json_integer_value(value) < minimum)
        ls_config_fail(config, key, "expected %s integer, got %s",
                       minimum > 0 ? "a positive" : "an", text);
    else
        return json_integer_value(value);
    return minimum;
}

double ls_config_number(struct ls_config *config, const char *key, double minimum, double maximum,
                        double missing)
{
    const json_t *value = json_object_get(config->object, key);
    char text[SHOWN];

    if (!value)
        return missing;
    ls_json_text(value, text, sizeof(text));
    if (!json_is_number(value))
        ls_config_fail(config, key, "expected a number, got %s", text);
    else if (json_number_value(value) < minimum)
        ls_config_fail(config, key, "expected at least %g, got %s", minimum, text);
    else if (json_number_value(value) > maximum)
        ls_config_fail(config, key, "expected at most %g, got %s", maximum, text);
    else
        return json_number_value(value);
    return missing;
}

bool ls_config_boolean(struct ls_config *config, const char *key, bool missing)
{
    const json_t *value = json_object_get(config->object, key);
    char text[SHOWN];

    if (!value)
        return missing;
    if (json_is_boolean(value))
        return json_is_true(value);
    ls_config_fail(config, key, "expected true or false, got %s",
                   ls_json_text(value, text, sizeof(text)));
    return missing;
}

static bool is_window(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 1 &&
           json_integer_value(value) <= LS_CONFIG_WINDOW;
}

void ls_config_sizes(struct ls_config *config, const char *key, uint32_t count, int32_t missing,
                     int32_t *out)
{
    static const char *const counts[] = {"none", "one", "two", "three"};
    const json_t *value = json_object_get(config->object, key);
    const bool list = json_is_array(value) && json_array_size(value) == count;
    bool right = true;
    char text[SHOWN];

    for (uint32_t i = 0; i < count; i++)
        out[i] = missing > 0 ? missing : 1;
    if (!value && missing > 0)
        return;
    for (uint32_t i = 0; i < count; i++)
        right = right && is_window(list ? json_array_get(value, i) : value);
    for (uint32_t i = 0; i < count && right; i++)
        out[i] = (int32_t)json_integer_value(list ? json_array_get(value, i) : value);
    if (!right)
        ls_config_fail(config, key, "expected an integer from 1 to %d, or a list of %s, got %s",
                       LS_CONFIG_WINDOW, counts[count], ls_json_text(value, text, sizeof(text)));
}

void ls_config_padding_steps(struct ls_config *config, bool *same, bool *causal)
{
    const json_t *value = json_object_get(config->object, "padding");
    const char *padding = value ? json_string_value(value) : "valid";
    char text[SHOWN];

    *same = padding && strcasecmp(padding, "same") == 0;
    *causal = padding && strcasecmp(padding, "causal") == 0;
    if (!*same && !*causal && (!padding || strcasecmp(padding, "valid") != 0))
        ls_config_fail(config, "padding", "expected \"valid\", \"same\" or \"causal\", got %s",
                       ls_json_text(value, text, sizeof(text)));
}

static bool is_border(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0 &&
           json_integer_value(value) <= LS_CONFIG_WINDOW;
}

void ls_config_borders(struct ls_config *config, const char *key, uint32_t axes, int32_t missing,
                       int32_t out[][2])
{
    static const char *const lists[] = {"or a list of two", "a list of two, or two lists of two",
                                        "a list of three, or three lists of two"};
    const json_t *value = json_object_get(config->object, key);
    bool right = true;
    char text[SHOWN];

    for (size_t i = 0; i < 2 * axes; i++) {
        const json_t *side = value;
        if (axes > 1 && json_is_array(side)) {
            right = right && json_array_size(side) == axes;
            side = json_array_get(side, i / 2);
        }
        if (json_is_array(side)) {
            right = right && json_array_size(side) == 2;
            side = json_array_get(side, i % 2);
        }
        right = right && (!value || is_border(side));
        out[i / 2][i % 2] = !value ? missing : right ? (int32_t)json_integer_value(side) : 0;
    }
    if (!right)
        ls_config_fail(config, key, "expected an integer from 0 to %d, %s, got %s",
                       LS_CONFIG_WINDOW, lists[axes - 1], ls_json_text(value, text, sizeof(text)));
}

// An array that Keras wrote: {"class_name": "__numpy__", "config": {"value": [...]}}.
static const json_t *array_value(const json_t *value)
{
    const char *class_name = json_string_value(json_object_get(value, "class_name"));
    if (!class_name ||
        (strcmp(class_name, "__numpy__") != 0 && strcmp(class_name, "__tensor__") != 0))
        return value;
    return json_object_get(json_object_get(value, "config"), "value");
}

void ls_config_numbers(struct ls_config *config, const char *key, struct ls_numbers *out)
{
    const json_t *value = array_value(json_object_get(config->object, key));
    char text[SHOWN];

    *out = (struct ls_numbers){.list = json_is_array(value)};
    if (!value || json_is_null(value))
        return;
    const size_t count = out->list ? json_array_size(value) : 1;
    bool right = count > 0;
    out->values = malloc((count + 1) * sizeof(*out->values));
    if (!out->values) {
        config->status = LS_OUT_OF_MEMORY;
        return;
    }
    for (size_t i = 0; i < count && right; i++) {
        const json_t *number = out->list ? json_array_get(value, i) : value;
        right = json_is_number(number) && fabs(json_number_value(number)) <= (double)FLT_MAX;
        out->values[i] = right ? (float)json_number_value(number) : 0;
    }
    out->count = right ? (int64_t)count : 0;
    if (!right)
        ls_config_fail(config, key, "expected a number or a list of numbers, got %s",
                       ls_json_text(value, text, sizeof(text)));
}

uint32_t ls_config_choice(struct ls_config *config, const char *key, const char *const *names,
                          uint32_t missing)
{
    const json_t *value = json_object_get(config->object, key);
    const char *name = value ? json_string_value(value) : names[missing];
    char text[SHOWN], list[SHOWN];

    for (uint32_t i = 0; name && names[i]; i++)
        if (strcasecmp(name, names[i]) == 0)
            return i;
    ls_config_fail(config, key, "expected one of %s, got %s",
                   ls_name_list(names, list, sizeof(list)),
                   ls_json_text(value, text, sizeof(text)));
    return missing;
}

bool ls_config_padding_same(struct ls_config *config)
{
    const json_t *value = json_object_get(config->object, "padding");
    const char *padding = value ? json_string_value(value) : "valid";
    char text[SHOWN];

    if (padding && strcasecmp(padding, "same") == 0)
        return true;
    if (!padding || strcasecmp(padding, "valid") != 0)
        ls_config_fail(config, "padding", "expected \"valid\" or \"same\", got %s",
                       ls_json_text(value, text, sizeof(text)));
    return false;
}

void ls_config_data_format(struct ls_config *config)
{
    const json_t *value = json_object_get(config->object, "data_format");
    const char *format = json_string_value(value);
    char text[SHOWN];

    if (!value || json_is_null(value) ||
        (format && (strcmp(format, "channels_last") == 0 || strcmp(format, "channels_first") == 0)))
        return;
    ls_config_fail(config, "data_format",
                   "expected \"channels_last\" or \"channels_first\", got %s",
                   ls_json_text(value, text, sizeof(text)));
}

void ls_config_null(struct ls_config *config, const char *key)
{
    const json_t *value = json_object_get(config->object, key);
    char text[SHOWN];

    if (value && !json_is_null(value))
        ls_config_fail(config, key, "not supported, got %s; set it to null",
                       ls_json_text(value, text, sizeof(text)));
}

void ls_config_seed(struct ls_config *config)
{
    const json_t *value = json_object_get(config->object, "seed");
    char text[SHOWN];

    if (value && !json_is_null(value))
        ls_config_fail(config, "seed",
                       "a layer has no seed of its own, got %s; set seed to null and give the run "
                       "one (--seed=)",
                       ls_json_text(value, text, sizeof(text)));
}

// Keras 2 wraps some shapes: {"class_name": "TensorShape", "items": [...]}.
static const json_t *shape_list(const json_t *value)
{
    return json_is_object(value) ? json_object_get(value, "items") : value;
}

static bool is_dimension(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 1 &&
           json_integer_value(value) <= LS_CONFIG_LARGEST;
}

void ls_config_shape(struct ls_config *config, const char *key, struct ls_shape *out)
{
    const json_t *value = json_object_get(config->object, key), *list = shape_list(value);
    const json_t *batch = json_array_get(list, 0);
    const size_t count = json_array_size(list);
    char text[SHOWN];

    ls_json_text(value, text, sizeof(text));
    if (count < 2 || count > LS_MAX_DIMS || !(json_is_null(batch) || is_dimension(batch))) {
        ls_config_fail(config, key, "expected a list of null (the batch) and 1 to %d sizes, got %s",
                       LS_MAX_DIMS - 1, text);
        return;
    }
    out->ndims = (uint32_t)count - 1;
    for (size_t i = 1; i < count; i++) {
        const json_t *size = json_array_get(list, i);
        if (!is_dimension(size)) {
            ls_config_fail(config, key,
                           "every size after the batch must be an integer from 1 to %d, got %s",
                           LS_CONFIG_LARGEST, text);
            return;
        }
        out->dims[i - 1] = json_integer_value(size);
    }
}
