// SPDX-License-Identifier: Apache-2.0
// The host's side of core/plugin/compose.h: a plugin composes layers, losses and metrics of the
// operations of the graph that is being made.
#include "layers/kinds.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DIGITS_OF_FLOAT (INT64_C(1) << 24) // whole numbers up to it are exact in float32

static struct ls_composition *composition_of(const struct ls_composer *composer)
{
    return composer->context;
}

// ---- Failures ----

static enum ls_status note(struct ls_composition *c, enum ls_status status)
{
    if (status && !c->status)
        c->status = status;
    return status;
}

// Logs what is wrong where the layer, loss or metric is named.
LS_PRINTF(2, 3)
static enum ls_status refuse(struct ls_composition *c, const char *format, ...)
{
    char message[440];
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof(message), format, list);
    va_end(list);
    return note(c, ls_graph_fail(c->graph, NULL, "%s%s%s", c->what ? c->what : "",
                                 c->what ? ": " : "", message));
}

static int32_t fail(const struct ls_composer *composer, const char *message)
{
    return (int32_t)refuse(composition_of(composer), "%s", message ? message : "refused");
}

// A pointer that is none of this graph's must not be followed.
static bool is_ours(struct ls_composition *c, const struct ls_tensor *x)
{
    for (uint32_t i = c->graph->tensor_count; i > 0; i--)
        if (c->graph->tensors[i - 1] == x)
            return true;
    (void)!refuse(c,
                  "a tensor that is not of this model was used; those of an earlier call are gone");
    return false;
}

// Whether a call can be made: none before it has failed.
static bool are_usable(struct ls_composition *c, struct ls_tensor *const *inputs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!inputs[i] && !c->status)
            (void)!refuse(c, "tensor %u of %u is NULL, and no call has failed", i + 1, count);
        if (!inputs[i] || !is_ours(c, inputs[i]))
            return false;
    }
    return true;
}

// `out` is looked at when the status is known.
static struct ls_tensor *made(struct ls_composition *c, enum ls_status status,
                              struct ls_tensor *const *out)
{
    return note(c, status) ? NULL : *out;
}

// ---- Shapes, weights, constants ----

static uint32_t shape(const struct ls_composer *composer, const struct ls_tensor *x,
                      int64_t dims[LS_MAX_DIMS])
{
    if (!x || !is_ours(composition_of(composer), x))
        return 0;
    memcpy(dims, x->shape.dims, sizeof(x->shape.dims));
    return x->shape.ndims;
}

static bool read_shape(struct ls_composition *c, uint32_t ndims, const int64_t *dims,
                       struct ls_shape *out)
{
    *out = (struct ls_shape){.ndims = ndims};
    if (ndims < 1 || ndims > LS_MAX_DIMS || !dims) {
        (void)!refuse(c, "a shape of %u dimensions; expected 1 to %d", ndims, LS_MAX_DIMS);
        return false;
    }
    memcpy(out->dims, dims, ndims * sizeof(*dims));
    return true;
}

// "constant:value=0.1", or what stands in a model's file: {"class_name": ..., "config": ...}
static enum ls_status read_initializer(struct ls_composition *c, const char *name, const char *text,
                                       struct ls_initializer *out)
{
    json_t *config = json_object();
    char key[96];
    enum ls_status status = config ? LS_OK : LS_OUT_OF_MEMORY;
    snprintf(key, sizeof(key), "%.64s_initializer", name);
    if (!status && text && text[0] == '{')
        status = json_object_set_new(config, key, json_loads(text, 0, NULL)) == 0
                     ? LS_OK
                     : refuse(c, "%s: expected JSON, got %.100s", key, text);
    else if (!status && text)
        status = ls_config_put_spec(config, key, text);
    struct ls_config reader = {.graph = c->graph, .object = config};
    if (!status)
        *out = ls_config_initializer(&reader, key, "glorot_uniform");
    json_decref(config);
    return note(c, status ? status : reader.status);
}

static bool is_variable_name(const char *name)
{
    const char *letter = name;
    while (letter && (isalnum((unsigned char)*letter) || *letter == '_'))
        letter++;
    return letter && letter > name && !*letter && letter - name <= 64;
}

static struct ls_tensor *weight(const struct ls_composer *composer, const struct ls_weight *wanted)
{
    struct ls_composition *c = composition_of(composer);
    struct ls_initializer initializer;
    struct ls_shape dims;
    struct ls_tensor *tensor = NULL;
    if (c->status)
        return NULL;
    if (c->what)
        return made(c, refuse(c, "only a layer has weights; a constant has numbers"), NULL);
    if (!wanted)
        return made(c, refuse(c, "weight: expected what the weight is, got NULL"), NULL);
    if (!is_variable_name(wanted->name))
        return made(c,
                    refuse(c, "a weight has the name '%.64s'; expected letters, digits and '_'",
                           wanted->name ? wanted->name : ""),
                    NULL);
    if (!read_shape(c, wanted->ndims, wanted->dims, &dims) ||
        read_initializer(c, wanted->name, wanted->initializer, &initializer))
        return NULL;
    const enum ls_status status =
        wanted->frozen ? ls_graph_statistic(c->graph, wanted->name, &dims, &initializer, &tensor)
                       : ls_graph_parameter(c->graph, wanted->name, &dims, &initializer, &tensor);
    return made(c, status, &tensor);
}

static struct ls_tensor *constant(const struct ls_composer *composer, uint32_t ndims,
                                  const int64_t *dims, const float *values)
{
    struct ls_composition *c = composition_of(composer);
    struct ls_tensor *tensor = NULL;
    struct ls_shape size;
    char name[160];
    if (c->status || !read_shape(c, ndims, dims, &size))
        return NULL;
    int64_t elements = 1;
    for (uint32_t i = 0; i < ndims; i++)
        elements = dims[i] > 0 && dims[i] <= INT32_MAX / elements ? elements * dims[i] : 0;
    if (!elements || !values)
        return made(c, refuse(c, "a constant without values, or with more than 2 billion"), NULL);
    if (c->what) // the same loss may be a metric, and twice with other options
        snprintf(name, sizeof(name), "%.100s/constant_%u", c->what, c->graph->parameter_count);
    else
        snprintf(name, sizeof(name), "constant_%u", c->constants++);
    return made(c, ls_graph_constant_values(c->graph, name, &size, values, &tensor), &tensor);
}

// ---- Operations ----

static bool is_random(uint32_t op)
{
    return op == LS_OP_DROPOUT || op == LS_OP_NOISE || op == LS_OP_ATTENTION || op == LS_OP_DRAW ||
           op == LS_OP_ERASE;
}

static struct ls_tensor *operation(const struct ls_composer *composer, uint32_t op,
                                   const struct ls_op_attributes *attributes,
                                   struct ls_tensor *const *inputs, uint32_t input_count,
                                   uint32_t ndims, const int64_t *dims)
{
    static const struct ls_op_attributes none;
    struct ls_composition *c = composition_of(composer);
    const struct ls_operation_row *row = ls_operation_row(op);
    struct ls_op_attributes own = attributes ? *attributes : none;
    struct ls_tensor *tensor = NULL;
    struct ls_shape size = {0};
    if (!inputs)
        return made(c, refuse(c, "operation: expected an array of tensors, got NULL"), NULL);
    if (!input_count || input_count > LS_MAX_ARGUMENTS || !are_usable(c, inputs, input_count))
        return made(c,
                    c->status ? c->status
                              : refuse(c, "operation: expected 1 to %d tensors, got %u",
                                       LS_MAX_ARGUMENTS, input_count),
                    NULL);
    if (!row || !ls_operation_has(op, LS_TRAIT_LAYER))
        return made(c, refuse(c, "operation %u is not one that layers use", op), NULL);
    if (row->given != LS_OP_NONE || op == LS_OP_BATCH_NORMALIZATION_INFERENCE)
        return made(c,
                    refuse(c, "%s moves statistics, which only BatchNormalization can", row->name),
                    NULL);
    if (ndims && !read_shape(c, ndims, dims, &size))
        return NULL;
    if (ls_operation_has(op, LS_TRAIT_TRAINING_ONLY) && !composer->training)
        return inputs[input_count > 2 ? 2 : 0]; // `otherwise`, or x
    if (is_random(op))
        own.key = c->graph->dropout_count++;
    if (!composer->training)
        own.rate = 0; // of attention, whose probabilities are dropped
    own.epilogue = LS_OP_NONE; // fusion decides that
    if (op == LS_OP_PAIR && input_count == 2)
        return made(c, ls_add_pair(c->graph, own.function, inputs[0], inputs[1], &tensor), &tensor);
    return made(
        c, ls_graph_add(c->graph, op, &own, inputs, input_count, ndims ? &size : NULL, &tensor),
        &tensor);
}

static enum ls_status add_absolute(struct ls_graph *graph, struct ls_tensor *x,
                                   struct ls_tensor **out)
{
    struct ls_tensor *negative;
    const enum ls_status status = ls_add_scale(graph, -1, 0, x, &negative);
    return status ? status : ls_add_pair(graph, LS_PAIR_MAXIMUM, x, negative, out);
}

// By its name as an activation, else one of those that are none.
static enum ls_status add_function(struct ls_composition *c, const char *name, struct ls_tensor *x,
                                   struct ls_tensor **out)
{
    static const struct {
        const char *name;
        struct ls_layer_activation function;
    } more[] = {
        {"square", {.needs_input = true, .function = LS_SQUARE}},
        {"sqrt", {.needs_input = true, .function = LS_SQUARE_ROOT}},
        {"log", {.needs_input = true, .function = LS_LOGARITHM}},
        {"exp", {.function = LS_EXPONENTIAL}},
    };
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++)
        if (strcmp(more[i].name, name) == 0)
            return ls_activation_add(c->graph, &more[i].function, x, out);
    if (strcmp(name, "negative") == 0)
        return ls_add_scale(c->graph, -1, 0, x, out);
    if (strcmp(name, "abs") == 0)
        return add_absolute(c->graph, x, out);
    json_t *config = json_pack("{s:s}", "function", name);
    struct ls_config reader = {.graph = c->graph, .object = config};
    if (!config)
        return refuse(c, "a function whose name is not text");
    const struct ls_layer_activation activation = ls_config_activation(&reader, "function");
    json_decref(config);
    return reader.status ? reader.status : ls_activation_add(c->graph, &activation, x, out);
}

static struct ls_tensor *function(const struct ls_composer *composer, const char *name,
                                  struct ls_tensor *x)
{
    struct ls_composition *c = composition_of(composer);
    struct ls_tensor *tensor = NULL;
    if (!are_usable(c, &x, 1))
        return NULL;
    return made(c, add_function(c, name ? name : "", x, &tensor), &tensor);
}

// max(1 - (x - class)^2, 0): a table of one column makes a float32 of each number, on any device.
static enum ls_status add_one_hot(const struct ls_composer *composer, struct ls_tensor *x,
                                  int64_t classes, const float *numbers, struct ls_tensor **out)
{
    struct ls_graph *graph = composition_of(composer)->graph;
    const struct ls_layer_activation square = {.needs_input = true, .function = LS_SQUARE};
    const struct ls_layer_activation relu = {.function = LS_RELU};
    const int64_t column[2] = {classes, 1};
    struct ls_tensor *inputs[2] = {x, constant(composer, 2, column, numbers)};
    struct ls_tensor *row = constant(composer, 1, &classes, numbers), *y = NULL;
    if (!inputs[1] || !row)
        return composition_of(composer)->status;
    enum ls_status status = ls_graph_add(graph, LS_OP_GATHER_ROWS, NULL, inputs, 2, NULL, &y);
    if (!status)
        status = ls_add_pair(graph, LS_PAIR_SUBTRACT, y, row, &y);
    if (!status)
        status = ls_activation_add(graph, &square, y, &y);
    if (!status)
        status = ls_add_scale(graph, -1, 1, y, &y);
    return status ? status : ls_activation_add(graph, &relu, y, out);
}

static struct ls_tensor *one_hot(const struct ls_composer *composer, struct ls_tensor *x,
                                 int64_t classes)
{
    struct ls_composition *c = composition_of(composer);
    struct ls_tensor *tensor = NULL;
    if (!are_usable(c, &x, 1))
        return NULL;
    if (classes < 1 || classes > MOST_DIGITS_OF_FLOAT)
        return made(c,
                    refuse(c, "one_hot of %lld classes; expected 1 to %lld", (long long)classes,
                           (long long)MOST_DIGITS_OF_FLOAT),
                    NULL);
    float *numbers = malloc((size_t)classes * sizeof(*numbers));
    if (!numbers)
        return made(c, LS_OUT_OF_MEMORY, NULL);
    for (int64_t i = 0; i < classes; i++)
        numbers[i] = (float)i;
    const uint32_t compute = c->graph->compute;
    c->graph->compute = LS_F32; // halves have not all whole numbers
    const enum ls_status status = add_one_hot(composer, x, classes, numbers, &tensor);
    c->graph->compute = compute;
    free(numbers);
    return made(c, status, &tensor);
}

// ---- Beginning and end ----

void ls_composition_begin(struct ls_composition *c, struct ls_graph *graph, const char *what,
                          bool inference)
{
    *c = (struct ls_composition){
        .graph = graph,
        .what = what,
        .composer = {.struct_size = sizeof(c->composer),
                     .training = !inference,
                     .context = c,
                     .shape = shape,
                     .weight = weight,
                     .constant = constant,
                     .operation = operation,
                     .function = function,
                     .one_hot = one_hot,
                     .fail = fail},
    };
}

enum ls_status ls_composition_end(struct ls_composition *c, int32_t answer,
                                  struct ls_tensor *const *results, uint32_t count)
{
    char text[128];
    if (c->status || answer)
        return c->status ? c->status : (enum ls_status)answer;
    for (uint32_t i = 0; i < count; i++) {
        if (!results[i])
            return refuse(c, "build returned OK, but output %u of %u is NULL", i + 1, count);
        if (!is_ours(c, results[i]))
            return c->status;
        if (results[i]->shape.dims[0] != LS_BATCH || results[i]->role == LS_ROLE_PARAMETER)
            return refuse(c, "output %u, %s, has no row for each example", i + 1,
                          ls_shape_text(&results[i]->shape, text, sizeof(text)));
    }
    return LS_OK;
}
