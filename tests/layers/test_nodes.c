// SPDX-License-Identifier: Apache-2.0
// Operations of Keras 3 among the layers of a functional model: shapes, and what is refused. Their
// values are compared with Keras's in test_values.c.
#include "tests/layers/support.h"

#include <stdio.h>
#include <string.h>

#define X "{'class_name': '__keras_tensor__', 'config': {'keras_history': ['x', 0, 0]}}"
#define ALL "{'class_name': '__slice__', 'config': {'start': null, 'stop': null, 'step': null}}"
#define SLICE(start, stop, step)                                                 \
    "{'class_name': '__slice__', 'config': {'start': " #start ", 'stop': " #stop \
    ", 'step': " #step "}}"
#define MORE "{'class_name': '__ellipsis__', 'config': {}}"
#define ARRAY(value) \
    "{'class_name': '__numpy__', 'config': {'value': " value ", 'dtype': 'float32'}}"

// A model of one operation on x (None, 4, 6).
static void write_model(char *text, size_t bytes, const char *class_name, const char *options,
                        const char *args)
{
    snprintf(text, bytes,
             "{'class_name': 'Functional', 'config': {'name': 'm', 'layers': ["
             "{'class_name': 'InputLayer', 'name': 'x', 'config': {'name': 'x', 'batch_shape': "
             "[null, 4, 6]}, 'inbound_nodes': []},"
             "{'module': 'keras.src.ops.numpy', 'class_name': '%s', 'name': 'o', "
             "'registered_name': '%s', 'config': {'name': 'o'%s}, 'inbound_nodes': [{'args': [%s], "
             "'kwargs': {}}]}], 'input_layers': ['x', 0, 0], 'output_layers': ['o', 0, 0]}}",
             class_name, class_name, options, args);
}

static const struct {
    const char *class_name, *options, *args, *shape;
} shapes[] = {
    {"Add", "", X ", 1", "(None, 4, 6)"},
    {"Add", "", X ", " X, "(None, 4, 6)"},
    {"Multiply", "", "2.5, " X, "(None, 4, 6)"},
    {"Multiply", "", X ", " ARRAY("[[1], [2], [3], [4]]"), "(None, 4, 6)"},
    {"Subtract", "", "[1, 2, 3, 4, 5, 6], " X, "(None, 4, 6)"},
    {"Maximum", "", X ", " ARRAY("0.5"), "(None, 4, 6)"},
    {"Matmul", "", X ", " ARRAY("[[1, 2], [1, 2], [1, 2], [1, 2], [1, 2], [1, 2]]"),
     "(None, 4, 2)"},
    {"Reshape", ", 'newshape': [null, -1]", X, "(None, 24)"},
    {"Reshape", ", 'newshape': [-1, 3, 8]", X, "(None, 3, 8)"},
    {"Reshape", ", 'newshape': [-1, 2, -1, 3]", X, "(None, 2, 4, 3)"},
    {"Transpose", ", 'axes': [0, 2, 1]", X, "(None, 6, 4)"},
    {"Transpose", ", 'axes': [0, -1, -2]", X, "(None, 6, 4)"},
    {"Swapaxes", ", 'axis1': -1, 'axis2': 1", X, "(None, 6, 4)"},
    {"ExpandDims", ", 'axis': -1", X, "(None, 4, 6, 1)"},
    {"ExpandDims", ", 'axis': 1", X, "(None, 1, 4, 6)"},
    {"Mean", ", 'axis': 1", X, "(None, 6)"},
    {"Mean", ", 'axis': [1, -1], 'keepdims': true", X, "(None, 1, 1)"},
    {"Min", ", 'axis': -1, 'initial': null", X, "(None, 4)"},
    {"Concatenate", ", 'axis': 1", "[" X ", " X ", " X "]", "(None, 12, 6)"},
    {"Concatenate", ", 'axis': -1", "[" X "," X "," X "," X "," X "," X "," X "," X "," X "," X "]",
     "(None, 4, 60)"},
    {"Stack", ", 'axis': 1", "[" X ", " X ", " X "]", "(None, 3, 4, 6)"},
    {"Stack", ", 'axis': -1", "[" X ", " X "]", "(None, 4, 6, 2)"},
    {"Split", ", 'indices_or_sections': 2, 'axis': 1", X, "(None, 2, 6)"},
    {"Split", ", 'indices_or_sections': [1, 4], 'axis': -1", X, "(None, 4, 1)"},
    {"GetItem", "", X ", [" ALL ", 1]", "(None, 6)"},
    {"GetItem", "", X ", [" ALL ", -1, 2]", "(None,)"},
    {"GetItem", "", X ", [" ALL ", " SLICE(1, -1, null) "]", "(None, 2, 6)"},
    {"GetItem", "", X ", [" ALL ", " SLICE(-2, null, 1) ", " SLICE(0, 100, null) "]",
     "(None, 2, 6)"},
    {"GetItem", "", X ", [" MORE ", " SLICE(0, 2, null) "]", "(None, 4, 2)"},
    {"GetItem", "", X ", [" ALL ", null, 0, " MORE "]", "(None, 1, 6)"},
    {"GetItem", "", X ", " ALL, "(None, 4, 6)"},
    {"GetItem", "", X ", " MORE, "(None, 4, 6)"},
    {"Gelu", ", 'approximate': false", X, "(None, 4, 6)"},
    {"Softmax", ", 'axis': 2", X, "(None, 4, 6)"},
    {"Cast", ", 'dtype': 'float32'", X, "(None, 4, 6)"},
    {"Cast", ", 'dtype': 'bfloat16'", X, "(None, 4, 6)"},
};

TABLE_TEST(operations_have_the_shapes_of_keras, shapes)
{
    char text[4096];
    struct ls_graph *graph = NULL;
    write_model(text, sizeof(text), shapes[_i].class_name, shapes[_i].options, shapes[_i].args);
    ck_assert_msg(build_text(text, NULL, &graph) == LS_OK, "%s: %s", text, logged);
    ck_assert_str_eq(layer_shape(graph, "o"), shapes[_i].shape);
    ls_graph_destroy(graph);
}

static const struct {
    const char *class_name, *options, *args, *message;
} refused[] = {
    {"Add", "", X, "expected a tensor, a number or an array, got nothing"},
    {"Add", "", X ", 'a'", "expected a tensor, a number or an array, got \"a\""},
    {"Add", "", X ", [1, 'a']", "expected a tensor, a number or an array, got [1, \"a\"]"},
    {"Add", "", X ", [[1, 2], [3]]", "expected a tensor, a number or an array"},
    {"Add", "", X ", []", "expected a tensor, a number or an array, got []"},
    {"Add", "", X ", [[[[[[[1]]]]]]]", "expected a tensor, a number or an array"},
    {"Add", "", X ", 1e300", "expected a tensor, a number or an array, got 1e300"},
    {"Add", "", X ", [1, 2, 3]", "cannot be broadcast"},
    {"Add", "", X ", [[[1, 2, 3, 4, 5, 6]], [[1, 2, 3, 4, 5, 6]]]",
     "the constant has more dimensions than an example"},
    {"Add", ", 'axis': 1", X ", 1", "axis: unknown option; the layer has no options"},
    {"Power", "", X ", 2.5", "expected the exponent -1, 0.5, 1, 2, 3 or 4, got 2.5"},
    {"Power", "", "2, " X, "expected the exponent"},
    {"Matmul", "", ARRAY("[[1]]") ", " X, "x1: expected a tensor; a constant may be x2 only"},
    {"Matmul", "", X ", " ARRAY("[[1], [2]]"), "expected a constant matrix with as many rows"},
    {"Clip", ", 'x_min': null, 'x_max': 1", X, "x_min: expected a number, got null"},
    {"Reshape", ", 'newshape': [4, 6]", X, "newshape: expected -1 or null (the batch)"},
    {"Reshape", ", 'newshape': [-1, -1, -1]", X, "newshape: expected -1 or null"},
    {"Reshape", ", 'newshape': [-1, 0]", X, "newshape: expected -1 or null"},
    {"Reshape", ", 'newshape': []", X, "newshape: expected -1 or null"},
    {"Reshape", "", X, "newshape: expected -1 or null (the batch) and up to 5"},
    {"Reshape", ", 'newshape': [-1, 5, 5]", X,
     "newshape: the 24 elements of an example do not make [-1, 5, 5]"},
    {"Reshape", ", 'newshape': [-1, 7, -1]", X, "the 24 elements of an example do not make"},
    {"Reshape", ", 'newshape': [-1, 2147483647, 2147483647, 2147483647]", X, "do not make"},
    {"Transpose", ", 'axes': null", X,
     "axes: expected a list of 3 dimensions, the first of them 0"},
    {"Transpose", ", 'axes': [1, 0, 2]", X, "axes: expected a list of 3 dimensions"},
    {"Transpose", ", 'axes': [0, 1, 1]", X, "a transposition names each dimension once"},
    {"Swapaxes", ", 'axis1': 0, 'axis2': 1", X, "axis1: 0 is the batch"},
    {"ExpandDims", ", 'axis': 0", X, "axis: 0 is the batch"},
    {"ExpandDims", ", 'axis': 5", X, "axis: expected a dimension from -3 to 3, got 5"},
    {"Squeeze", ", 'axis': 1", X, "axis: dimension 1 has size 4, not 1"},
    {"Mean", "", X, "axis: without it the batch would be reduced, too"},
    {"Mean", ", 'axis': -3", X, "axis: -3 is the batch; choose another dimension"},
    {"Mean", ", 'axis': [1, 3]", X, "axis: expected a dimension from -2 to 2, got 3"},
    {"Mean", ", 'axis': []", X, "axis: expected a dimension or a list of them"},
    {"Max", ", 'axis': 1, 'initial': 3", X, "initial: not supported"},
    {"Concatenate", ", 'axis': 0", "[" X ", " X "]", "axis: 0 is the batch"},
    {"Split", ", 'indices_or_sections': 3, 'axis': 1", X,
     "indices_or_sections: expected 1 to 64 parts that dimension 1, of size 4, can be cut into"},
    {"Split", ", 'indices_or_sections': [3, 2], 'axis': 1", X, "can be cut into"},
    {"Split", ", 'indices_or_sections': [0], 'axis': 1", X, "can be cut into"},
    {"Split", ", 'indices_or_sections': 'a', 'axis': 1", X, "can be cut into"},
    {"GetItem", "", X, "key: expected all of the batch"},
    {"GetItem", "", X ", 0", "key: expected all of the batch"},
    {"GetItem", "", X ", [" SLICE(1, null, null) "]", "key: expected all of the batch"},
    {"GetItem", "", X ", [" ALL ", 4]", "key: expected"},
    {"GetItem", "", X ", [" ALL ", -5]", "key: expected"},
    {"GetItem", "", X ", [" ALL ", " SLICE(null, null, 2) "]", "key: expected"},
    {"GetItem", "", X ", [" ALL ", " SLICE(3, 2, null) "]", "key: expected"},
    {"GetItem", "", X ", [" ALL ", 0, 0, 0]", "key: expected"},
    {"GetItem", "", X ", [" ALL ", null, null, null, null]", "key: expected"},
    {"Softmax", ", 'axis': 1", X, "axis: only the last dimension is supported"},
    {"Cast", ", 'dtype': 'int32'", X, "only float32, bfloat16 and float16 are cast"},
    {"LeakyRelu", ", 'negative_slope': -1", X, "negative_slope: expected at least 0"},
};

TABLE_TEST(what_operations_cannot_do_is_refused, refused)
{
    char text[4096];
    write_model(text, sizeof(text), refused[_i].class_name, refused[_i].options, refused[_i].args);
    refuses_model(text, refused[_i].message);
}

TEST_SECONDS(100);
