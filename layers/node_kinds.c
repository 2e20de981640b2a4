// SPDX-License-Identifier: Apache-2.0
// Operations as Keras 3 writes them among the layers of a functional model: x + y, ops.reshape(x,
// ...), ops.relu(x). Their arguments come with the call; some also have options. A new operation is
// a line here.
#include "layers/node_kinds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const none[] = {NULL};
static const char *const pair_arguments[] = {"x1", "x2", NULL};
static const char *const x_arguments[] = {"x", NULL};
static const char *const list_arguments[] = {"xs", "arrays", "x", NULL};
static const char *const reduce_keys[] = {"axis", "keepdims", "initial", NULL};
static const char *const axis_keys[] = {"axis", NULL};

// clang-format off
#define PAIR(name, what) {.class_name = name, .summary = what, .least_inputs = 1, .most_inputs = 2, \
                          .keys = none, .arguments = pair_arguments, .no_policy = true, .build = ls_build_pair_node}
#define FUNCTION(name, what, options) {.class_name = name, .summary = what, .keys = options, \
                                       .arguments = x_arguments, .no_policy = true, .build = ls_build_function_node}
#define REDUCE(name, what) {.class_name = name, .summary = what, .keys = reduce_keys, \
                            .arguments = x_arguments, .no_policy = true, .build = ls_build_reduce_node}
#define OTHER(name, what, options, function) {.class_name = name, .summary = what, .keys = options, \
                                              .arguments = x_arguments, .no_policy = true, .build = function}
#define JOIN(name, what) {.class_name = name, .summary = what, .least_inputs = 1, .keys = axis_keys, \
                          .most_inputs = LS_LAYER_INPUTS, .arguments = list_arguments, \
                          .no_policy = true, .build = ls_build_join_node}
#define OPTIONS(...) (const char *const[]){__VA_ARGS__, NULL}

const struct ls_layer_kind ls_node_kinds[] = {
    PAIR("Add", "x + y; of two tensors with broadcast, or a tensor and a constant"),
    PAIR("Subtract", "x - y"),
    PAIR("Multiply", "x y"),
    PAIR("Divide", "x / y"),
    PAIR("TrueDivide", "x / y"),
    PAIR("Maximum", "the larger of both"),
    PAIR("Minimum", "the smaller of both"),
    {.class_name = "Power", .summary = "x to the power of -1, 0.5, 1, 2, 3 or 4", .keys = none,
     .arguments = pair_arguments, .no_policy = true, .build = ls_build_power_node},
    {.class_name = "Matmul", .summary = "product of matrices, or with a constant matrix",
     .least_inputs = 1, .most_inputs = 2, .keys = none, .arguments = pair_arguments,
     .no_policy = true, .build = ls_build_matmul_node},
    OTHER("Clip", "between two numbers", OPTIONS("x_min", "x_max"), ls_build_clip_node),
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
    OTHER("Reshape", "the first size is the batch", OPTIONS("newshape"), ls_build_reshape_node),
    OTHER("Transpose", "the batch stays first", OPTIONS("axes"), ls_build_transpose_node),
    OTHER("Swapaxes", "the batch stays first", OPTIONS("axis1", "axis2"), ls_build_swap_node),
    OTHER("ExpandDims", "one more dimension of size 1", axis_keys, ls_build_expand_node),
    OTHER("Squeeze", "without dimensions of size 1", axis_keys, ls_build_squeeze_node),
    {.class_name = "GetItem", .summary = "x[:, 1:3], x[:, 0], x[..., None]; steps are 1",
     .keys = none, .arguments = OPTIONS("x", "key"), .build = ls_build_slice_node},
    OTHER("Split", "parts along a dimension", OPTIONS("indices_or_sections", "axis"),
          ls_build_split_node),
    JOIN("Concatenate", "one behind the other along a dimension"),
    JOIN("Stack", "along a new dimension"),
    {.class_name = NULL},
};
// clang-format on

const char *ls_node_class(const struct ls_graph *graph)
{
    return graph->layers[graph->layer].class_name;
}

enum ls_status ls_node_reshape(struct ls_graph *graph, struct ls_tensor *x,
                               const struct ls_shape *shape, struct ls_tensor **out)
{
    if (!ls_shape_equal(&x->shape, shape))
        return ls_graph_add(graph, LS_OP_RESHAPE, NULL, &x, 1, shape, out);
    *out = x;
    return LS_OK;
}

uint32_t ls_node_axis(struct ls_config *config, const char *key, const json_t *value,
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

enum ls_status ls_node_read_constant(struct ls_config *config, const json_t *value,
                                     struct ls_node_constant *out)
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

enum ls_status ls_node_add_constant(struct ls_graph *graph, const struct ls_node_constant *constant,
                                    struct ls_tensor **out)
{
    struct ls_shape shape = constant->shape;
    if (shape.ndims == 0)
        shape = (struct ls_shape){.ndims = 1, .dims = {1}};
    return ls_graph_constant_values(graph, "constant", &shape, constant->values, out);
}
