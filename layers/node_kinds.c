// SPDX-License-Identifier: Apache-2.0
// Operations as Keras 3 writes them among the layers of a functional model: x + y, ops.reshape(x,
// ...), ops.relu(x). Their arguments come with the call; some also have options. A new operation is
// a line of the table at the end.
#include "layers/kinds.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// "Add": the operation that is built. Nodes of one kind have one `build`, which looks it up.
static const char *node_class(const struct ls_graph *graph)
{
    return graph->layers[graph->layer].class_name;
}

// The same elements in another shape; x itself where that is its shape.
static enum ls_status node_reshape(struct ls_graph *graph, struct ls_tensor *x,
                                   const struct ls_shape *shape, struct ls_tensor **out)
{
    if (!ls_shape_equal(&x->shape, shape))
        return ls_graph_add(graph, LS_OP_RESHAPE, NULL, &x, 1, shape, out);
    *out = x;
    return LS_OK;
}

// An axis of x, from -ndims to ndims - 1, as an index behind the batch; else it is refused and 0.
// `more`: axes that the result has beyond those of x.
static uint32_t node_axis(struct ls_config *config, const char *key, const json_t *value,
                          const struct ls_tensor *x, uint32_t more)
{
    const int64_t ndims = (int64_t)x->shape.ndims + more;
    char text[64];
    if (json_is_integer(value)) {
        json_int_t axis = json_integer_value(value);
        axis += axis < 0 ? ndims : 0;
        if (axis > 0 && axis < ndims)
            return (uint32_t)axis;
        if (axis == 0) {
            ls_config_fail(config, key, "%s is the batch; choose another dimension",
                           ls_json_text(value, text, sizeof(text)));
            return 0;
        }
    }
    ls_config_fail(config, key, "expected a dimension from %lld to %lld, got %s",
                   (long long)-ndims + 1, (long long)ndims - 1,
                   ls_json_text(value, text, sizeof(text)));
    return 0;
}

// ---- Constants ----

// A constant among the arguments: a number, a list, or an array as Keras writes it.
struct node_constant {
    struct ls_shape shape; // of a number: ndims 0
    float *values; // freed by the caller
};

// The shape of nested lists, by their first elements.
static bool read_shape(const json_t *value, struct ls_shape *shape)
{
    for (shape->ndims = 0; json_is_array(value); value = json_array_get(value, 0)) {
        if (shape->ndims == LS_MAX_DIMS || json_array_size(value) == 0)
            return false;
        shape->dims[shape->ndims++] = (int64_t)json_array_size(value);
    }
    return true;
}

// Appends the numbers; false when a list has another length than the first of its depth.
static bool read_values(const json_t *value, const struct ls_shape *shape, uint32_t depth,
                        float **to)
{
    const json_t *element;
    size_t i;

    if (depth == shape->ndims) {
        const double number = json_number_value(value);
        if (!json_is_number(value) || !isfinite((float)number))
            return false;
        *(*to)++ = (float)number;
        return true;
    }
    if (json_array_size(value) != (size_t)shape->dims[depth])
        return false;
    json_array_foreach((json_t *)value, i,
                       element) if (!read_values(element, shape, depth + 1, to)) return false;
    return true;
}

// Logs what it is when it is none: LS_BAD_INPUT.
static enum ls_status node_read_constant(struct ls_config *config, const json_t *value,
                                         struct node_constant *out)
{
    const char *class_name = json_string_value(json_object_get(value, "class_name"));
    const json_t *given = value;
    char text[64];
    int64_t count = 1;

    if (class_name &&
        (strcmp(class_name, "__numpy__") == 0 || strcmp(class_name, "__tensor__") == 0))
        value = json_object_get(json_object_get(value, "config"), "value");
    bool right = read_shape(value, &out->shape);
    for (uint32_t i = 0; right && i < out->shape.ndims; i++) {
        right = out->shape.dims[i] <= INT32_MAX / count;
        count *= right ? out->shape.dims[i] : 1;
    }
    float *values = right ? malloc((size_t)count * sizeof(*values)) : NULL, *to = values;
    if (right && !values)
        return LS_OUT_OF_MEMORY;
    if (right && read_values(value, &out->shape, 0, &to)) {
        out->values = values;
        return LS_OK;
    }
    free(values);
    return ls_graph_fail(config->graph, NULL, "expected a tensor, a number or an array, got %s",
                         ls_json_text(given, text, sizeof(text)));
}

// As a variable that is neither trained nor saved.
static enum ls_status node_add_constant(struct ls_graph *graph,
                                        const struct node_constant *constant,
                                        struct ls_tensor **out)
{
    struct ls_shape shape = constant->shape;
    if (shape.ndims == 0)
        shape = (struct ls_shape){.ndims = 1, .dims = {1}};
    return ls_graph_constant_values(graph, "constant", &shape, constant->values, out);
}

// ---- Functions of elements, and softmax ----

static const struct {
    const char *class_name;
    struct ls_layer_activation function;
} functions[] = {
    {"Square", {.needs_input = true, .function = LS_SQUARE}},
    {"Sqrt", {.needs_input = true, .function = LS_SQUARE_ROOT}},
    {"Exp", {.function = LS_EXPONENTIAL}},
    {"Tanh", {.function = LS_TANH}},
    {"Sigmoid", {.function = LS_SIGMOID}},
    {"LogSigmoid", {.needs_input = true, .function = LS_LOG_SIGMOID}},
    {"Relu", {.function = LS_RELU}},
    {"Relu6", {.function = LS_RELU6}},
    {"Selu", {.function = LS_SELU}},
    {"Silu", {.needs_input = true, .function = LS_SILU}},
    {"HardSigmoid", {.function = LS_HARD_SIGMOID}},
    {"HardSilu", {.needs_input = true, .function = LS_HARD_SILU}},
    {"Softplus", {.function = LS_SOFTPLUS}},
    {"Softsign", {.function = LS_SOFTSIGN}},
};

// enum ls_function, but LS_SCALE.
static enum ls_status node_function(struct ls_graph *graph, uint32_t function, struct ls_tensor *x,
                                    struct ls_tensor **out)
{
    const struct ls_layer_activation activation = {.needs_input = true, .function = function};
    return ls_activation_add(graph, &activation, x, out);
}

static enum ls_status add_absolute(struct ls_graph *graph, struct ls_tensor *x,
                                   struct ls_tensor **out)
{
    struct ls_tensor *negative;
    const enum ls_status status = ls_add_scale(graph, -1, 0, x, &negative);
    return status ? status : ls_add_pair(graph, LS_PAIR_MAXIMUM, x, negative, out);
}

static enum ls_status add_reciprocal(struct ls_graph *graph, struct ls_tensor *x,
                                     struct ls_tensor **out)
{
    const struct ls_shape one = {.ndims = 1, .dims = {1}};
    struct ls_tensor *numerator;
    const enum ls_status status = ls_graph_constant(graph, "constant", &one, 1, &numerator);
    return status ? status : ls_add_pair(graph, LS_PAIR_DIVIDE, numerator, x, out);
}

static enum ls_status add_reciprocal_root(struct ls_graph *graph, struct ls_tensor *x,
                                          struct ls_tensor **out)
{
    struct ls_tensor *root;
    const enum ls_status status = node_function(graph, LS_SQUARE_ROOT, x, &root);
    return status ? status : add_reciprocal(graph, root, out);
}

static enum ls_status add_softmax(struct ls_graph *graph, struct ls_config *c, struct ls_tensor *x,
                                  struct ls_tensor **out)
{
    const json_t *axis = json_object_get(c->object, "axis");
    const struct ls_layer_activation softmax = {.softmax = true};
    if (axis && !json_is_null(axis) && node_axis(c, "axis", axis, x, 0) != x->shape.ndims - 1 &&
        !c->status)
        ls_config_fail(c, "axis", "only the last dimension is supported");
    return c->status ? c->status : ls_activation_add(graph, &softmax, x, out);
}

static enum ls_status add_cast(struct ls_graph *graph, struct ls_config *c, struct ls_tensor *x,
                               struct ls_tensor **out)
{
    const char *name = ls_json_dtype(json_object_get(c->object, "dtype"));
    uint32_t dtype = strcmp(name, "float32") == 0    ? LS_F32
                     : strcmp(name, "bfloat16") == 0 ? LS_BF16
                     : strcmp(name, "float16") == 0  ? LS_F16
                                                     : 0;
    if (!dtype || x->dtype == LS_I32)
        return ls_graph_fail(c->graph, x,
                             "only float32, bfloat16 and float16 are cast, to one another");
    if (graph->compute == LS_F32)
        dtype = LS_F32; // all is computed in float32
    *out = x;
    return x->dtype == dtype ? LS_OK : ls_graph_convert(graph, x, dtype, out);
}

// Those with options, or made of several operations.
static enum ls_status build_own(struct ls_graph *graph, struct ls_config *c, struct ls_tensor *x,
                                struct ls_tensor **out)
{
    const char *name = node_class(graph);
    const float slope = (float)ls_config_number(c, "negative_slope", 0, FLT_MAX, 0.2);
    const float alpha = (float)ls_config_number(c, "alpha", 0, FLT_MAX, 1);
    const bool approximate = ls_config_boolean(c, "approximate", true);
    const struct ls_layer_activation leaky = {.function = slope > 0 ? LS_LEAKY_RELU : LS_RELU,
                                              .alpha = slope};
    const struct ls_layer_activation elu = {.function = alpha > 0 ? LS_ELU : LS_RELU,
                                            .alpha = alpha};

    if (c->status || !x)
        return c->status;
    if (strcmp(name, "LeakyRelu") == 0)
        return ls_activation_add(graph, &leaky, x, out);
    if (strcmp(name, "Elu") == 0)
        return ls_activation_add(graph, &elu, x, out);
    if (strcmp(name, "Gelu") == 0)
        return node_function(graph, approximate ? LS_GELU_TANH : LS_GELU, x, out);
    if (strcmp(name, "Negative") == 0)
        return ls_add_scale(graph, -1, 0, x, out);
    if (strcmp(name, "Absolute") == 0)
        return add_absolute(graph, x, out);
    if (strcmp(name, "Reciprocal") == 0)
        return add_reciprocal(graph, x, out);
    if (strcmp(name, "Rsqrt") == 0)
        return add_reciprocal_root(graph, x, out);
    if (strcmp(name, "Softmax") == 0)
        return add_softmax(graph, c, x, out);
    assert(strcmp(name, "Cast") == 0); // the last FUNCTION of the table below
    return add_cast(graph, c, x, out);
}

static enum ls_status build_function_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                          struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);

    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
        if (strcmp(functions[i].class_name, node_class(graph)) == 0)
            return x ? ls_activation_add(graph, &functions[i].function, x, outputs) : LS_OK;
    return build_own(graph, &c, x, outputs);
}

// ---- Two arguments, each a tensor or a constant: x + y, 2 * x, x ** 2, a @ b ----

// x and a number, as factor x + offset; false: that cannot be said so.
static bool as_scale(uint32_t function, bool first, float number, double *factor, double *offset)
{
    *factor = 1;
    *offset = 0;
    switch (function) {
    case LS_PAIR_ADD: *offset = number; return true;
    case LS_PAIR_MULTIPLY: *factor = number; return true;
    case LS_PAIR_SUBTRACT:
        *factor = first ? -1 : 1;
        *offset = first ? number : -number;
        return true;
    case LS_PAIR_DIVIDE: *factor = 1 / (double)number; return !first && isfinite((float)*factor);
    default: return false;
    }
}

// `first`: the constant is the first of both.
static enum ls_status add_with_constant(struct ls_graph *graph, uint32_t function, bool first,
                                        const struct node_constant *constant, struct ls_tensor *x,
                                        struct ls_tensor **out)
{
    double factor, offset;
    struct ls_tensor *variable;

    if (constant->shape.ndims == 0 &&
        as_scale(function, first, constant->values[0], &factor, &offset))
        return ls_add_scale(graph, factor, offset, x, out);
    if (constant->shape.ndims > x->shape.ndims ||
        (constant->shape.ndims == x->shape.ndims && constant->shape.dims[0] != 1))
        return ls_graph_fail(graph, x, "the constant has more dimensions than an example");
    const enum ls_status status = node_add_constant(graph, constant, &variable);
    if (status)
        return status;
    return ls_add_pair(graph, function, first ? variable : x, first ? x : variable, out);
}

static enum ls_status build_pair_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                      struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const uint32_t function = call->kind->function;
    const json_t *one = ls_call_argument(call, 0, "x1"), *other = ls_call_argument(call, 1, "x2");
    struct ls_tensor *a = ls_call_tensor(call, one), *b = ls_call_tensor(call, other);
    struct node_constant constant = {0};

    if (!call->inputs)
        return LS_OK;
    if (a && b)
        return ls_add_pair(graph, function, a, b, outputs);
    if (!a && !b)
        return ls_graph_fail(graph, NULL, "expected two arguments, x1 and x2");
    enum ls_status status = node_read_constant(&c, a ? other : one, &constant);
    if (!status)
        status = add_with_constant(graph, function, !a, &constant, a ? a : b, outputs);
    free(constant.values);
    return status;
}

static enum ls_status square(struct ls_graph *graph, struct ls_tensor *x, struct ls_tensor **out)
{
    return node_function(graph, LS_SQUARE, x, out);
}

static enum ls_status build_power_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                       struct ls_tensor **outputs)
{
    const json_t *exponent = ls_call_argument(call, 1, "x2");
    struct ls_tensor *x = ls_call_tensor(call, ls_call_argument(call, 0, "x1")), *squared = NULL;
    const double power = json_number_value(exponent);
    const struct node_constant one = {.values = &(float){1}};
    char text[64];

    if (!call->inputs)
        return LS_OK;
    if (!x || !json_is_number(exponent) ||
        !(power == -1 || power == 0.5 || power == 1 || power == 2 || power == 3 || power == 4))
        return ls_graph_fail(graph, x, "expected the exponent -1, 0.5, 1, 2, 3 or 4, got %s",
                             ls_json_text(exponent, text, sizeof(text)));
    if (power == -1)
        return add_with_constant(graph, LS_PAIR_DIVIDE, true, &one, x, outputs);
    if (power == 0.5)
        return node_function(graph, LS_SQUARE_ROOT, x, outputs);
    if (power == 1) {
        *outputs = x;
        return LS_OK;
    }
    enum ls_status status = square(graph, x, power == 2 ? outputs : &squared);
    if (!status && power == 3)
        status = ls_add_pair(graph, LS_PAIR_MULTIPLY, squared, x, outputs);
    if (!status && power == 4)
        status = square(graph, squared, outputs);
    return status;
}

static enum ls_status build_clip_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                      struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call), *variables[2], *above;
    const float low = (float)ls_config_number(&c, "x_min", -3e38, 3e38, LS_CONFIG_NONE);
    const float high = (float)ls_config_number(&c, "x_max", -3e38, 3e38, LS_CONFIG_NONE);

    if (c.status || !x)
        return c.status;
    enum ls_status status = ls_graph_constant(
        graph, "x_min", &(struct ls_shape){.ndims = 1, .dims = {1}}, low, &variables[0]);
    if (!status)
        status = ls_graph_constant(graph, "x_max", &(struct ls_shape){.ndims = 1, .dims = {1}},
                                   high, &variables[1]);
    if (!status)
        status = ls_add_pair(graph, LS_PAIR_MAXIMUM, x, variables[0], &above);
    if (!status)
        status = ls_add_pair(graph, LS_PAIR_MINIMUM, above, variables[1], outputs);
    return status;
}

// x (B,...,K) and a constant (K,N)
static enum ls_status multiply_by_constant(struct ls_graph *graph, struct ls_config *c,
                                           const json_t *value, struct ls_tensor *x,
                                           struct ls_tensor **out)
{
    struct node_constant constant = {0};
    struct ls_tensor *inputs[2] = {x};

    enum ls_status status = node_read_constant(c, value, &constant);
    if (!status && (x->shape.ndims < 2 || constant.shape.ndims != 2 ||
                    constant.shape.dims[0] != x->shape.dims[x->shape.ndims - 1]))
        status = ls_graph_fail(graph, x,
                               "expected a constant matrix with as many rows as the tensor has "
                               "columns");
    if (!status)
        status = node_add_constant(graph, &constant, &inputs[1]);
    free(constant.values);
    return status ? status : ls_graph_add(graph, LS_OP_DENSE, NULL, inputs, 2, NULL, out);
}

static enum ls_status build_matmul_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                        struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const json_t *one = ls_call_argument(call, 0, "x1"), *other = ls_call_argument(call, 1, "x2");
    struct ls_tensor *inputs[2] = {ls_call_tensor(call, one), ls_call_tensor(call, other)};

    if (!call->inputs)
        return LS_OK;
    if (!inputs[0])
        return ls_graph_fail(graph, NULL, "x1: expected a tensor; a constant may be x2 only");
    if (!inputs[1])
        return multiply_by_constant(graph, &c, other, inputs[0], outputs);
    return ls_graph_add(graph, LS_OP_MATMUL, NULL, inputs, 2, NULL, outputs);
}

// ---- Reductions: mean, sum, largest and smallest element ----

// Fills axes[i] with 1 where dimension i is reduced.
static void read_axes(struct ls_config *c, const struct ls_tensor *x, int32_t *axes)
{
    const json_t *value = json_object_get(c->object, "axis"), *element;
    size_t i;

    if (!value || json_is_null(value))
        ls_config_fail(c, "axis", "without it the batch would be reduced, too; name the others");
    if (json_is_integer(value))
        axes[node_axis(c, "axis", value, x, 0)] = 1;
    else if (json_array_size(value) == 0 && !c->status)
        ls_config_fail(c, "axis", "expected a dimension or a list of them");
    json_array_foreach((json_t *)value, i, element) axes[node_axis(c, "axis", element, x, 0)] = 1;
}

static enum ls_status reduce(struct ls_graph *graph, const struct ls_op_attributes *attributes,
                             bool smallest, struct ls_tensor *x, struct ls_tensor **out)
{
    struct ls_tensor *from = x, *reduced;
    enum ls_status status = LS_OK;
    if (smallest)
        status = ls_add_scale(graph, -1, 0, x, &from);
    if (!status)
        status = ls_graph_add(graph, LS_OP_REDUCE, attributes, &from, 1, NULL, &reduced);
    if (!status && smallest)
        return ls_add_scale(graph, -1, 0, reduced, out);
    if (!status)
        *out = reduced;
    return status;
}

static enum ls_status build_reduce_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                        struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call), *reduced;
    const char *name = node_class(graph);
    const bool keep = ls_config_boolean(&c, "keepdims", false);
    struct ls_op_attributes attributes = {.function = strcmp(name, "Mean") == 0 ? LS_REDUCE_TO_MEAN
                                                      : strcmp(name, "Sum") == 0
                                                          ? LS_REDUCE_TO_SUM
                                                          : LS_REDUCE_TO_MAXIMUM};
    struct ls_shape shape = {0};

    ls_config_null(&c, "initial");
    if (x)
        read_axes(&c, x, attributes.axes);
    if (c.status || !x)
        return c.status;
    enum ls_status status = reduce(graph, &attributes, strcmp(name, "Min") == 0, x, &reduced);
    if (status)
        return status;
    for (uint32_t i = 0; i < x->shape.ndims; i++)
        if (keep || attributes.axes[i] == 0)
            shape.dims[shape.ndims++] = reduced->shape.dims[i];
    return node_reshape(graph, reduced, &shape, outputs);
}

// ---- Shapes. The batch is always the first dimension, whole ----

// [null, 2, 4] or [-1, 2, 4]: the batch first. One other size may be -1.
static enum ls_status build_reshape_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                         struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);
    const json_t *list = json_object_get(call->config, "newshape"),
                 *first = json_array_get(list, 0);
    struct ls_shape shape = {.ndims = (uint32_t)json_array_size(list), .dims = {LS_BATCH}};
    uint32_t open = 0;
    int64_t known = 1;
    char text[64];

    bool right = json_array_size(list) >= 1 && json_array_size(list) <= LS_MAX_DIMS &&
                 (json_is_null(first) || json_integer_value(first) == -1);
    for (uint32_t i = 1; right && i < shape.ndims; i++) {
        const json_t *size = json_array_get(list, i);
        shape.dims[i] = json_integer_value(size);
        right = json_is_integer(size) && shape.dims[i] <= LS_CONFIG_LARGEST &&
                (shape.dims[i] >= 1 || (shape.dims[i] == -1 && open == 0));
        open = shape.dims[i] == -1 ? i : open;
        known = shape.dims[i] == -1 || known > LS_CONFIG_LARGEST ? known : known * shape.dims[i];
    }
    ls_json_text(list, text, sizeof(text));
    if (!right)
        ls_config_fail(&c, "newshape",
                       "expected -1 or null (the batch) and up to %d positive sizes, one of them "
                       "may be -1, got %s",
                       LS_MAX_DIMS - 1, text);
    if (c.status || !x)
        return c.status;
    const int64_t elements = ls_shape_elements(&x->shape, 1);
    if (open > 0 ? elements % known != 0 : elements != known)
        return ls_graph_fail(graph, x, "newshape: the %lld elements of an example do not make %s",
                             (long long)elements, text);
    if (open > 0)
        shape.dims[open] = elements / known;
    return node_reshape(graph, x, &shape, outputs);
}

static enum ls_status build_expand_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                        struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);
    if (!x)
        return LS_OK;
    const uint32_t axis = node_axis(&c, "axis", json_object_get(call->config, "axis"), x, 1);
    struct ls_shape shape = {.ndims = x->shape.ndims + 1};
    if (c.status)
        return c.status;
    if (shape.ndims > LS_MAX_DIMS)
        return ls_graph_fail(graph, x, "a tensor has at most %d dimensions", LS_MAX_DIMS);
    for (uint32_t i = 0, from = 0; i < shape.ndims; i++)
        shape.dims[i] = i == axis ? 1 : x->shape.dims[from++];
    return node_reshape(graph, x, &shape, outputs);
}

static enum ls_status build_squeeze_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                         struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);
    const json_t *value = json_object_get(call->config, "axis"), *element;
    bool gone[LS_MAX_DIMS] = {false};
    struct ls_shape shape = {0};
    size_t k;

    if (!x)
        return LS_OK;
    for (uint32_t i = 1; i < x->shape.ndims && (!value || json_is_null(value)); i++)
        gone[i] = x->shape.dims[i] == 1;
    json_array_foreach((json_t *)value, k, element) gone[node_axis(&c, "axis", element, x, 0)] =
        true;
    if (json_is_integer(value))
        gone[node_axis(&c, "axis", value, x, 0)] = true;
    for (uint32_t i = 0; i < x->shape.ndims; i++) {
        if (!gone[i])
            shape.dims[shape.ndims++] = x->shape.dims[i];
        else if (x->shape.dims[i] != 1 && !c.status)
            ls_config_fail(&c, "axis", "dimension %u has size %lld, not 1", i,
                           (long long)x->shape.dims[i]);
    }
    return c.status ? c.status : node_reshape(graph, x, &shape, outputs);
}

// ---- Transpositions ----

static enum ls_status transpose(struct ls_graph *graph, struct ls_tensor *x, const int32_t *axes,
                                struct ls_tensor **out)
{
    struct ls_op_attributes attributes = {0};
    memcpy(attributes.axes, axes, sizeof(attributes.axes));
    return ls_graph_add(graph, LS_OP_TRANSPOSE, &attributes, &x, 1, NULL, out);
}

static enum ls_status build_transpose_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                           struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);
    const json_t *list = json_object_get(call->config, "axes");
    int32_t axes[LS_MAX_DIMS] = {0};

    if (!x)
        return LS_OK;
    if (json_array_size(list) != x->shape.ndims || !json_is_integer(json_array_get(list, 0)) ||
        json_integer_value(json_array_get(list, 0)) != 0) {
        ls_config_fail(&c, "axes", "expected a list of %u dimensions, the first of them 0",
                       x->shape.ndims);
        return c.status;
    }
    for (uint32_t i = 1; i < x->shape.ndims; i++)
        axes[i] = (int32_t)node_axis(&c, "axes", json_array_get(list, i), x, 0);
    return c.status ? c.status : transpose(graph, x, axes, outputs);
}

static enum ls_status build_swap_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                      struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);
    int32_t axes[LS_MAX_DIMS];

    if (!x)
        return LS_OK;
    for (int32_t i = 0; i < LS_MAX_DIMS; i++)
        axes[i] = i;
    const uint32_t one = node_axis(&c, "axis1", json_object_get(call->config, "axis1"), x, 0);
    const uint32_t other = node_axis(&c, "axis2", json_object_get(call->config, "axis2"), x, 0);
    axes[one] = (int32_t)other;
    axes[other] = (int32_t)one;
    return c.status ? c.status : transpose(graph, x, axes, outputs);
}

// ---- Slices ----

// The part of `size` elements from `begin` of each dimension; x itself where that is all.
static enum ls_status slice(struct ls_graph *graph, struct ls_tensor *x, const int32_t *begin,
                            const struct ls_shape *size, struct ls_tensor **out)
{
    struct ls_op_attributes attributes = {0};
    if (ls_shape_equal(&x->shape, size)) {
        *out = x;
        return LS_OK;
    }
    memcpy(attributes.axes, begin, sizeof(attributes.axes));
    return ls_graph_add(graph, LS_OP_SLICE, &attributes, &x, 1, size, out);
}

// What x[...] asks for.
struct key {
    int32_t begin[LS_MAX_DIMS];
    struct ls_shape size, shape; // of the part, and of the result
    uint32_t at; // dimension of x that is next
};

// A bound of a slice, where a negative one counts from the end, as in Python.
static bool read_bound(const json_t *value, int64_t missing, int64_t size, int64_t *out)
{
    *out = missing;
    if (!value || json_is_null(value))
        return true;
    int64_t bound = json_integer_value(value);
    bound += bound < 0 && bound >= -size ? size : 0;
    *out = bound < 0 ? 0 : bound > size ? size : bound;
    return json_is_integer(value);
}

static bool read_slice(const json_t *config, const struct ls_tensor *x, struct key *key)
{
    const json_t *step = json_object_get(config, "step");
    int64_t begin, end;

    if (key->at >= x->shape.ndims || key->shape.ndims == LS_MAX_DIMS)
        return false;
    const int64_t size = key->at == 0 ? INT32_MAX : x->shape.dims[key->at];
    if (!read_bound(json_object_get(config, "start"), 0, size, &begin) ||
        !read_bound(json_object_get(config, "stop"), size, size, &end) || begin >= end ||
        (step && !json_is_null(step) && json_integer_value(step) != 1) ||
        (key->at == 0 && (begin != 0 || end != size)))
        return false;
    key->begin[key->at] = (int32_t)begin;
    key->size.dims[key->at] = key->at == 0 ? LS_BATCH : end - begin;
    key->shape.dims[key->shape.ndims++] = key->size.dims[key->at];
    key->at++;
    return true;
}

static bool read_index(const json_t *value, const struct ls_tensor *x, struct key *key)
{
    if (key->at == 0 || key->at >= x->shape.ndims)
        return false;
    const int64_t size = x->shape.dims[key->at];
    const json_int_t index = json_integer_value(value) + (json_integer_value(value) < 0 ? size : 0);
    if (index < 0 || index >= size)
        return false;
    key->begin[key->at] = (int32_t)index;
    key->size.dims[key->at++] = 1;
    return true;
}

static bool read_all(const struct ls_tensor *x, uint32_t until, struct key *key)
{
    const json_t *everything = NULL;
    while (key->at < until)
        if (!read_slice(everything, x, key))
            return false;
    return true;
}

static bool is_class(const json_t *value, const char *name)
{
    const char *class_name = json_string_value(json_object_get(value, "class_name"));
    return class_name && strcmp(class_name, name) == 0;
}

static bool read_key(const json_t *list, const struct ls_tensor *x, struct key *key)
{
    uint32_t named = 0;
    const json_t *element;
    size_t i;

    key->size.ndims = x->shape.ndims;
    json_array_foreach((json_t *)list, i, element) named +=
        !json_is_null(element) && !is_class(element, "__ellipsis__");
    if (named > x->shape.ndims)
        return false;
    json_array_foreach((json_t *)list, i, element)
    {
        bool right = key->shape.ndims < LS_MAX_DIMS;
        if (right && json_is_null(element) && key->at > 0)
            key->shape.dims[key->shape.ndims++] = 1;
        else if (right && is_class(element, "__ellipsis__"))
            right = read_all(x, key->at + x->shape.ndims - named, key);
        else if (right && is_class(element, "__slice__"))
            right = read_slice(json_object_get(element, "config"), x, key);
        else if (right && json_is_integer(element))
            right = read_index(element, x, key);
        else
            right = false;
        if (!right)
            return false;
    }
    return read_all(x, x->shape.ndims, key);
}

static enum ls_status build_slice_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                       struct ls_tensor **outputs)
{
    struct ls_tensor *x = ls_call_input(call), *part;
    const json_t *given = ls_call_argument(call, 1, "key");
    struct key key = {0};
    char text[128];

    if (!x)
        return LS_OK;
    json_t *list = json_is_array(given) ? json_incref((json_t *)given) : json_pack("[O]", given);
    const bool right = list && read_key(list, x, &key);
    json_decref(list);
    if (!right)
        return ls_graph_fail(graph, x,
                             "key: expected all of the batch, then numbers and slices with step 1 "
                             "that are not empty, got %s",
                             ls_json_text(given, text, sizeof(text)));
    const enum ls_status status = slice(graph, x, key.begin, &key.size, &part);
    return status ? status : node_reshape(graph, part, &key.shape, outputs);
}

// A number of equal parts, or the places where parts begin.
static enum ls_status build_split_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                       struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);
    const json_t *where = json_object_get(call->config, "indices_or_sections");
    const json_int_t sections = json_integer_value(where);
    enum ls_status status = LS_OK;

    if (!x)
        return LS_OK;
    const uint32_t axis = node_axis(&c, "axis", json_object_get(call->config, "axis"), x, 0);
    if (c.status)
        return c.status;
    const int64_t size = x->shape.dims[axis];
    const size_t count = json_is_array(where) ? json_array_size(where) + 1 : (size_t)sections;
    bool right = count >= 1 && count <= LS_LAYER_OUTPUTS &&
                 (json_is_array(where) || (sections >= 1 && size % sections == 0));
    int64_t begin = 0;
    for (size_t i = 0; right && i < count && !status; i++) {
        const json_t *next = json_array_get(where, i);
        const int64_t end = json_is_array(where) ? (i + 1 < count ? json_integer_value(next) : size)
                                                 : begin + size / sections;
        struct ls_shape part = x->shape;
        int32_t from[LS_MAX_DIMS] = {0};
        right = begin < end && end <= size;
        part.dims[axis] = end - begin;
        from[axis] = (int32_t)begin;
        if (right)
            status = slice(graph, x, from, &part, &outputs[i]);
        begin = end;
    }
    if (!right)
        ls_config_fail(&c, "indices_or_sections",
                       "expected 1 to %d parts that dimension %u, of size %lld, can be cut into",
                       LS_LAYER_OUTPUTS, axis, (long long)size);
    return c.status ? c.status : status;
}

// ---- Several tensors ----

static enum ls_status build_join_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                      struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const bool stack = strcmp(node_class(graph), "Stack") == 0;
    struct ls_tensor *tensors[LS_LAYER_INPUTS];
    enum ls_status status = LS_OK;

    if (!call->inputs)
        return LS_OK;
    const struct ls_tensor *x = call->inputs[0];
    const uint32_t axis = node_axis(&c, "axis", json_object_get(call->config, "axis"), x, stack);
    struct ls_shape shape = {.ndims = x->shape.ndims + 1};
    if (c.status)
        return c.status;
    if (stack && shape.ndims > LS_MAX_DIMS)
        return ls_graph_fail(graph, x, "a tensor has at most %d dimensions", LS_MAX_DIMS);
    for (uint32_t i = 0; i < call->input_count && !status; i++) {
        tensors[i] = call->inputs[i];
        if (stack && !ls_shape_equal(&tensors[i]->shape, &x->shape))
            return ls_graph_fail(graph, tensors[i], "all tensors must have the shape of the first");
        for (uint32_t k = 0, from = 0; stack && k < shape.ndims; k++)
            shape.dims[k] = k == axis ? 1 : tensors[i]->shape.dims[from++];
        if (stack)
            status = node_reshape(graph, tensors[i], &shape, &tensors[i]);
    }
    return status ? status : ls_add_concatenation(graph, tensors, call->input_count, axis, outputs);
}

// ---- All of them ----

static const char *const none[] = {NULL};
// ---- Masks: what Keras writes where a layer before it has one; true is 1, false is 0 ----

static enum ls_status build_not_equal_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                           struct ls_tensor **outputs)
{
    struct ls_tensor *x = ls_call_tensor(call, ls_call_argument(call, 0, "x1"));
    const json_t *number = ls_call_argument(call, 1, "x2");
    const struct ls_op_attributes attributes = {.offset = (float)json_number_value(number)};
    char text[64];

    if (!call->inputs)
        return LS_OK;
    if (!x || !json_is_number(number))
        return ls_graph_fail(graph, x, "expected a tensor and a number, got %s",
                             ls_json_text(number, text, sizeof(text)));
    return ls_graph_add(graph, LS_OP_DIFFERS, &attributes, &x, 1, NULL, outputs);
}

// What Keras's attention writes of its mask.
static enum ls_status build_tensor_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                        struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    ls_config_null(&c, "sparse");
    ls_config_null(&c, "ragged");
    if (!c.status)
        outputs[0] = ls_call_input(call);
    return c.status;
}

static enum ls_status build_any_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                     struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);
    const int64_t axis = ls_config_integer(&c, "axis", -1, LS_MAX_DIMS, 0);
    struct ls_op_attributes attributes = {.offset = 0};

    if (ls_config_boolean(&c, "keepdims", false))
        ls_config_fail(&c, "keepdims", "only false is supported");
    if (c.status || !x)
        return c.status;
    const uint32_t last = x->shape.ndims - 1;
    if (last == 0 || (axis != -1 && axis != last))
        return ls_graph_fail(graph, x, "axis: only the last one is supported");
    attributes.axes[last] = 1;
    return ls_graph_add(graph, LS_OP_DIFFERS, &attributes, &x, 1, NULL, outputs);
}

// ZerosLike and OnesLike, of which Keras makes the masks of what Concatenate joins. Elements of x
// may be NaN or infinite, so 0 is multiplied by whether they differ from 0, which is a number.
static enum ls_status build_filled_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                        struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const char *const dtypes[] = {"bool", "float32", NULL};
    const double value = strcmp(call->kind->class_name, "OnesLike") == 0;
    struct ls_tensor *x = ls_call_input(call), *finite;

    if (!json_is_null(json_object_get(c.object, "dtype")))
        ls_config_choice(&c, "dtype", dtypes, 0);
    if (c.status || !x)
        return c.status;
    const enum ls_status status = ls_graph_add(graph, LS_OP_DIFFERS, NULL, &x, 1, NULL, &finite);
    return status ? status : ls_add_scale(graph, 0, value, finite, outputs);
}

static enum ls_status build_or_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                    struct ls_tensor **outputs)
{
    struct ls_tensor *a = ls_call_tensor(call, ls_call_argument(call, 0, "x1")),
                     *b = ls_call_tensor(call, ls_call_argument(call, 1, "x2"));
    if (!call->inputs)
        return LS_OK;
    if (!a || !b)
        return ls_graph_fail(graph, NULL, "expected two tensors, x1 and x2");
    return ls_add_pair(graph, LS_PAIR_MAXIMUM, a, b, outputs);
}

static const char *const pair_arguments[] = {"x1", "x2", NULL};
static const char *const x_arguments[] = {"x", NULL};
static const char *const list_arguments[] = {"xs", "arrays", "x", NULL};
static const char *const reduce_keys[] = {"axis", "keepdims", "initial", NULL};
static const char *const axis_keys[] = {"axis", NULL};

// clang-format off
#define PAIR(name, what, pair) {.class_name = name, .summary = what, .least_inputs = 1, \
                                .most_inputs = 2, .keys = none, .arguments = pair_arguments, \
                                .no_policy = true, .function = pair, .build = build_pair_node}
#define FUNCTION(name, what, options) {.class_name = name, .summary = what, .keys = options, \
                                       .arguments = x_arguments, .no_policy = true, \
                                       .build = build_function_node}
#define REDUCE(name, what) {.class_name = name, .summary = what, .keys = reduce_keys, \
                            .arguments = x_arguments, .no_policy = true, .build = build_reduce_node}
#define OTHER(name, what, options, function) {.class_name = name, .summary = what, \
                                              .keys = options, .arguments = x_arguments, \
                                              .no_policy = true, .build = function}
#define JOIN(name, what) {.class_name = name, .summary = what, .least_inputs = 1, \
                          .keys = axis_keys, .most_inputs = LS_LAYER_INPUTS, \
                          .arguments = list_arguments, .no_policy = true, .build = build_join_node}
#define OPTIONS(...) (const char *const[]){__VA_ARGS__, NULL}

const struct ls_layer_kind ls_node_kinds[] = {
    PAIR("Add", "x + y; of two tensors with broadcast, or a tensor and a constant", LS_PAIR_ADD),
    PAIR("Subtract", "x - y", LS_PAIR_SUBTRACT),
    PAIR("Multiply", "x y", LS_PAIR_MULTIPLY),
    PAIR("Divide", "x / y", LS_PAIR_DIVIDE),
    PAIR("TrueDivide", "x / y", LS_PAIR_DIVIDE),
    PAIR("Maximum", "the larger of both", LS_PAIR_MAXIMUM),
    PAIR("Minimum", "the smaller of both", LS_PAIR_MINIMUM),
    {.class_name = "Power", .summary = "x to the power of -1, 0.5, 1, 2, 3 or 4", .keys = none,
     .arguments = pair_arguments, .no_policy = true, .build = build_power_node},
    {.class_name = "Matmul", .summary = "product of matrices, or with a constant matrix",
     .least_inputs = 1, .most_inputs = 2, .keys = none, .arguments = pair_arguments,
     .no_policy = true, .build = build_matmul_node},
    {.class_name = "NotEqual", .summary = "whether elements differ from a number",
     .least_inputs = 1, .most_inputs = 2, .keys = none, .arguments = pair_arguments,
     .no_policy = true, .build = build_not_equal_node},
    {.class_name = "LogicalOr", .summary = "whether one of two is true", .least_inputs = 2,
     .most_inputs = 2, .keys = none, .arguments = pair_arguments, .no_policy = true,
     .build = build_or_node},
    OTHER("Any", "whether any along the last axis is true", OPTIONS("axis", "keepdims"),
          build_any_node),
    OTHER("ZerosLike", "a 0 for each element", OPTIONS("dtype"), build_filled_node),
    OTHER("OnesLike", "a 1 for each element", OPTIONS("dtype"), build_filled_node),
    OTHER("ConvertToTensor", "what it is given", OPTIONS("sparse", "ragged"),
          build_tensor_node),
    OTHER("Clip", "between two numbers", OPTIONS("x_min", "x_max"), build_clip_node),
    FUNCTION("Negative", "-x", none),
    FUNCTION("Absolute", "|x|", none),
    FUNCTION("Square", "x^2", none),
    FUNCTION("Sqrt", "the square root", none),
    FUNCTION("Rsqrt", "1 / the square root", none),
    FUNCTION("Reciprocal", "1 / x", none),
    FUNCTION("Exp", "exp(x)", none),
    FUNCTION("Tanh", "tanh(x)", none),
    FUNCTION("Sigmoid", "1 / (1 + exp(-x))", none),
    FUNCTION("LogSigmoid", "log(sigmoid(x))", none),
    FUNCTION("Relu", "max(x, 0)", none),
    FUNCTION("Relu6", "min(max(x, 0), 6)", none),
    FUNCTION("LeakyRelu", "x above 0, a fraction of it below", OPTIONS("negative_slope")),
    FUNCTION("Elu", "x above 0, alpha (exp(x) - 1) below", OPTIONS("alpha")),
    FUNCTION("Selu", "scaled ELU", none),
    FUNCTION("Gelu", "x times the normal distribution function of x", OPTIONS("approximate")),
    FUNCTION("Silu", "x sigmoid(x)", none),
    FUNCTION("HardSigmoid", "relu6(x + 3) / 6", none),
    FUNCTION("HardSilu", "x hard_sigmoid(x)", none),
    FUNCTION("Softplus", "log(1 + exp(x))", none),
    FUNCTION("Softsign", "x / (1 + |x|)", none),
    FUNCTION("Softmax", "probabilities over the last dimension", OPTIONS("axis")),
    FUNCTION("Cast", "another floating type", OPTIONS("dtype")),
    REDUCE("Mean", "over dimensions other than the batch"),
    REDUCE("Sum", "likewise"),
    REDUCE("Max", "likewise"),
    REDUCE("Min", "likewise"),
    OTHER("Reshape", "the first size is the batch", OPTIONS("newshape"), build_reshape_node),
    OTHER("Transpose", "the batch stays first", OPTIONS("axes"), build_transpose_node),
    OTHER("Swapaxes", "the batch stays first", OPTIONS("axis1", "axis2"), build_swap_node),
    OTHER("ExpandDims", "one more dimension of size 1", axis_keys, build_expand_node),
    OTHER("Squeeze", "without dimensions of size 1", axis_keys, build_squeeze_node),
    {.class_name = "GetItem", .summary = "x[:, 1:3], x[:, 0], x[..., None]; steps are 1",
     .keys = none, .arguments = OPTIONS("x", "key"), .build = build_slice_node},
    OTHER("Split", "parts along a dimension", OPTIONS("indices_or_sections", "axis"),
          build_split_node),
    JOIN("Concatenate", "one behind the other along a dimension"),
    JOIN("Stack", "along a new dimension"),
    {.class_name = NULL},
};
// clang-format on
