// SPDX-License-Identifier: Apache-2.0
// A model written in C becomes the JSON that the reader of Keras models takes: there is one way in.
#include "layers.h"
#include "layers/config.h"
#include "layers/functional.h"

#include "core/base/log.h"
#include "core/base/options.h"

#include <string.h>

#define SCOPE "sequential"

// Where zero means Keras's default, each field is one line: its key, and where it lies.
#define KEY(field)                               \
    {                                            \
#field, offsetof(struct ls_layer, field) \
    }
struct key {
    const char *name;
    size_t offset;
};
static const struct key texts[] = {KEY(name),        KEY(activation), KEY(padding),
                                   KEY(data_format), KEY(dtype),      KEY(interpolation)};
// Initializers and regularizers.
static const struct key specs[] = {
    KEY(kernel_initializer), KEY(bias_initializer),       KEY(gamma_initializer),
    KEY(beta_initializer),   KEY(depthwise_initializer),  KEY(pointwise_initializer),
    KEY(kernel_regularizer), KEY(embeddings_initializer), KEY(bias_regularizer),
};
static const struct key integers[] = {
    KEY(units),      KEY(filters),   KEY(groups),  KEY(depth_multiplier), KEY(input_dim),
    KEY(output_dim), KEY(num_heads), KEY(key_dim), KEY(value_dim),        KEY(n),
};
static const struct key numbers[] = {
    KEY(rate),    KEY(negative_slope), KEY(alpha),  KEY(max_value), KEY(momentum),
    KEY(epsilon), KEY(dropout),        KEY(stddev), KEY(scale),     KEY(offset),
};
static const struct {
    const char *name;
    size_t given;
    bool value; // where it is given
} switches[] = {
    {"use_bias", offsetof(struct ls_layer, no_bias), false},
    {"scale", offsetof(struct ls_layer, no_scale), false},
    {"center", offsetof(struct ls_layer, no_center), false},
    {"trainable", offsetof(struct ls_layer, frozen), false},
    {"synchronized", offsetof(struct ls_layer, synchronized), true},
};
static const struct {
    const char *name;
    size_t rows, columns;
} pairs[] = {
    {"kernel_size", offsetof(struct ls_layer, kernel_size),
     offsetof(struct ls_layer, kernel_columns)},
    {"strides", offsetof(struct ls_layer, strides), offsetof(struct ls_layer, strides_columns)},
    {"dilation_rate", offsetof(struct ls_layer, dilation_rate),
     offsetof(struct ls_layer, dilation_columns)},
    {"pool_size", offsetof(struct ls_layer, pool_size), offsetof(struct ls_layer, pool_columns)},
    {"size", offsetof(struct ls_layer, size), offsetof(struct ls_layer, size_columns)},
};
// Numbers that a layer takes as they are given, zero included.
static const char *const given[][2] = {
    {"Dropout", "rate"}, {"SpatialDropout2D", "rate"}, {"LeakyReLU", "negative_slope"},
    {"ELU", "alpha"},    {"Rescaling", "scale"},       {"GaussianNoise", "stddev"},
};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const void *at(const struct ls_layer *layer, size_t offset)
{
    return (const char *)layer + offset;
}

// Takes `value`; NULL means that it could not be made.
static enum ls_status put(json_t *config, const char *key, json_t *value)
{
    return json_object_set_new(config, key, value) == 0 ? LS_OK : LS_OUT_OF_MEMORY;
}

static json_t *text_value(const char *text)
{
    int64_t integer;
    double number;

    if (ls_parse_integer(text, &integer))
        return json_integer(integer);
    if (ls_parse_number(text, &number))
        return json_real(number);
    return json_string(text);
}

enum ls_status ls_config_put_spec(json_t *config, const char *key, const char *text)
{
    struct ls_spec spec = {0};
    enum ls_status status = ls_spec_parse(key, text, &spec);
    if (status)
        return LS_BAD_INPUT;
    if (spec.option_count == 0) {
        status = put(config, key, json_string(spec.name));
    } else {
        json_t *options = json_object();
        for (size_t i = 0; i < spec.option_count && !status; i++)
            status = put(options, spec.options[i].name, text_value(spec.options[i].value));
        json_t *object = json_pack("{s:s, s:o}", "class_name", spec.name, "config", options);
        if (!status)
            status = put(config, key, object);
        else
            json_decref(object);
    }
    ls_spec_finish(&spec);
    return status;
}

static enum ls_status put_shape(json_t *config, const struct ls_layer *layer)
{
    const bool input = strcmp(layer->class_name, "InputLayer") == 0;
    const char *key = input                                       ? "batch_shape"
                      : strcmp(layer->class_name, "Permute") == 0 ? "dims"
                                                                  : "target_shape";
    json_t *list = json_array();
    int failed = input ? json_array_append_new(list, json_null()) : 0;

    for (size_t i = 0; i < COUNT(layer->shape) && layer->shape[i] != 0; i++)
        failed |= json_array_append_new(list, json_integer(layer->shape[i]));
    enum ls_status status = put(config, key, list);
    return failed ? LS_OUT_OF_MEMORY : status;
}

// Conv1D and others have numbers where those of images have pairs.
static bool is_of_sequences(const struct ls_layer *layer)
{
    return strstr(layer->class_name, "1D") != NULL;
}

static enum ls_status put_pairs(json_t *config, const struct ls_layer *layer)
{
    // A number of Conv3D is for all three dimensions.
    const bool one = is_of_sequences(layer) || strstr(layer->class_name, "3D") != NULL;
    for (size_t i = 0; i < COUNT(pairs); i++) {
        const int64_t rows = *(const int64_t *)at(layer, pairs[i].rows);
        const int64_t columns = *(const int64_t *)at(layer, pairs[i].columns);
        if (rows == 0 && columns == 0)
            continue;
        json_t *pair = one && columns == 0 ? json_integer(rows)
                                           : json_pack("[I, I]", (json_int_t)rows,
                                                       (json_int_t)(columns != 0 ? columns : rows));
        enum ls_status status = put(config, pairs[i].name, pair);
        if (status)
            return status;
    }
    return LS_OK;
}

static bool is_given(const struct ls_layer *layer, const char *key)
{
    for (size_t i = 0; i < COUNT(given); i++)
        if (strcmp(layer->class_name, given[i][0]) == 0 && strcmp(key, given[i][1]) == 0)
            return true;
    return false;
}

// [[above, below], [left, right]]; or [before, after]; zeros are no default of these layers.
static enum ls_status put_border(json_t *config, const struct ls_layer *layer)
{
    const int64_t *border = layer->border;
    const bool set = border[0] || border[1] || border[2] || border[3];
    const bool crops = strncmp(layer->class_name, "Cropping", strlen("Cropping")) == 0;
    const char *key = crops ? "cropping" : "padding";

    if (!set && !crops && strncmp(layer->class_name, "ZeroPadding", strlen("ZeroPadding")) != 0)
        return LS_OK;
    if (is_of_sequences(layer) && !border[2] && !border[3])
        return put(config, key, json_pack("[I, I]", (json_int_t)border[0], (json_int_t)border[1]));
    return put(config, key,
               json_pack("[[I, I], [I, I]]", (json_int_t)border[0], (json_int_t)border[1],
                         (json_int_t)border[2], (json_int_t)border[3]));
}

static enum ls_status put_number(json_t *config, const struct ls_layer *layer,
                                 const struct key *key)
{
    const double value = *(const double *)at(layer, key->offset);

    if (value == 0 && !is_given(layer, key->name))
        return LS_OK;
    if (value - value != 0) {
        ls_error(SCOPE, "%s: %s: not a finite number", layer->class_name, key->name);
        return LS_BAD_INPUT;
    }
    return put(config, key->name, json_real(value == (double)LS_ZERO ? 0 : value));
}

// What the layer's JSON text says; an option must not be there twice.
static enum ls_status put_text(json_t *config, const struct ls_layer *layer)
{
    json_error_t error;
    json_t *object, *value;
    const char *key;

    if (!layer->options)
        return LS_OK;
    object = json_loads(layer->options, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(object)) {
        ls_error(SCOPE, "%s: options: expected a JSON object, got '%s'%s%s", layer->class_name,
                 layer->options, object ? "" : ": ", object ? "" : error.text);
        json_decref(object);
        return LS_BAD_INPUT;
    }
    enum ls_status status = LS_OK;
    json_object_foreach(object, key, value)
    {
        if (json_object_get(config, key)) {
            ls_error(SCOPE, "%s: options: '%s' is given twice, also as a field", layer->class_name,
                     key);
            status = LS_BAD_INPUT;
        } else if (json_object_set(config, key, value) != 0) {
            status = LS_OUT_OF_MEMORY;
        }
        if (status)
            break;
    }
    json_decref(object);
    return status;
}

static enum ls_status put_options(json_t *config, const struct ls_layer *layer)
{
    enum ls_status status = put_pairs(config, layer);

    for (size_t i = 0; i < COUNT(texts) && !status; i++) {
        const char *text = *(const char *const *)at(layer, texts[i].offset);
        if (text)
            status = put(config, texts[i].name, json_string(text));
    }
    for (size_t i = 0; i < COUNT(specs) && !status; i++) {
        const char *text = *(const char *const *)at(layer, specs[i].offset);
        if (text)
            status = ls_config_put_spec(config, specs[i].name, text);
    }
    for (size_t i = 0; i < COUNT(integers) && !status; i++) {
        const int64_t value = *(const int64_t *)at(layer, integers[i].offset);
        if (value != 0)
            status =
                put(config, integers[i].name, json_integer(value == (int64_t)LS_ZERO ? 0 : value));
    }
    for (size_t i = 0; i < COUNT(numbers) && !status; i++)
        status = put_number(config, layer, &numbers[i]);
    for (size_t i = 0; i < COUNT(switches) && !status; i++)
        if (*(const bool *)at(layer, switches[i].given))
            status = put(config, switches[i].name, json_boolean(switches[i].value));
    if (!status && layer->shape[0] != 0)
        status = put_shape(config, layer);
    if (!status)
        status = put_border(config, layer);
    if (!status)
        status = put_text(config, layer);
    return status;
}

enum ls_status ls_layer_config(const struct ls_layer *layer, json_t **out)
{
    json_t *config = json_object();
    const enum ls_status status = config ? put_options(config, layer) : LS_OUT_OF_MEMORY;
    if (status)
        json_decref(config);
    else
        *out = config;
    return status;
}

enum ls_status ls_sequential_json(const char *name, const struct ls_layer *layers, json_t **out)
{
    json_t *list = json_array();
    json_t *model =
        json_pack("{s:s, s:s, s:n, s:{s:s, s:O}}", "module", "keras", "class_name", "Sequential",
                  "registered_name", "config", "name", name ? name : "sequential", "layers", list);
    enum ls_status status = model ? LS_OK : LS_OUT_OF_MEMORY;

    for (; layers->class_name && !status; layers++) {
        json_t *config = NULL;
        status = ls_layer_config(layers, &config);
        if (status)
            break;
        json_t *layer = json_pack("{s:s, s:s, s:n, s:o}", "module", "keras.layers", "class_name",
                                  layers->class_name, "registered_name", "config", config);
        if (json_array_append_new(list, layer) != 0)
            status = LS_OUT_OF_MEMORY;
    }
    json_decref(list);
    if (status) {
        json_decref(model);
        return status;
    }
    *out = model;
    return LS_OK;
}
