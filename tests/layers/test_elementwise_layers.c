// SPDX-License-Identifier: Apache-2.0
// Layers and operations of elements, pairs and parts: what they become, and what is refused. Their
// values are compared with Keras in test_keras_layers.c.
#include "tests/layers/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMAGE "{'class_name': 'InputLayer', 'config': {'batch_shape': [null, 6, 8, 3]}},"
#define ROWS "{'class_name': 'InputLayer', 'config': {'batch_shape': [null, 4, 5]}},"
#define LAYER(class_name, options) \
    "{'class_name': '" class_name "', 'config': {'name': 'l'" options "}}"

// ---- One input ----

static const struct {
    const char *layers, *shape;
    uint32_t op; // of which there is exactly one; LS_OP_NONE: no operation at all
} cases[] = {
    {IMAGE LAYER("GlobalAveragePooling2D", ""), "(None, 3)", LS_OP_AVERAGE_POOL2D},
    {IMAGE LAYER("GlobalMaxPooling2D", ", 'keepdims': true"), "(None, 1, 1, 3)", LS_OP_REDUCE},
    {IMAGE LAYER("ZeroPadding2D", ""), "(None, 8, 10, 3)", LS_OP_PAD},
    {IMAGE LAYER("ZeroPadding2D", ", 'padding': 2"), "(None, 10, 12, 3)", LS_OP_PAD},
    {IMAGE LAYER("ZeroPadding2D", ", 'padding': [1, 3]"), "(None, 8, 14, 3)", LS_OP_PAD},
    {IMAGE LAYER("ZeroPadding2D", ", 'padding': [[0, 1], [2, 0]]"), "(None, 7, 10, 3)", LS_OP_PAD},
    {IMAGE LAYER("ZeroPadding2D", ", 'padding': 0"), "(None, 6, 8, 3)", LS_OP_NONE},
    {IMAGE LAYER("Cropping2D", ", 'cropping': [[1, 2], [0, 4]]"), "(None, 3, 4, 3)", LS_OP_SLICE},
    {IMAGE LAYER("Cropping2D", ""), "(None, 6, 8, 3)", LS_OP_NONE},
    {IMAGE LAYER("Permute", ", 'dims': [3, 1, 2]"), "(None, 3, 6, 8)", LS_OP_TRANSPOSE},
    {ROWS LAYER("Permute", ", 'dims': [2, 1]"), "(None, 5, 4)", LS_OP_TRANSPOSE},
    {IMAGE LAYER("UpSampling2D", ""), "(None, 12, 16, 3)", LS_OP_UPSAMPLE2D},
    {IMAGE LAYER("UpSampling2D", ", 'size': [3, 1], 'interpolation': 'Bilinear'"),
     "(None, 18, 8, 3)", LS_OP_UPSAMPLE2D},
    {IMAGE LAYER("SpatialDropout2D", ", 'rate': 0.25"), "(None, 6, 8, 3)", LS_OP_DROPOUT},
    {IMAGE LAYER("SpatialDropout2D", ", 'rate': 0"), "(None, 6, 8, 3)", LS_OP_NONE},
    {IMAGE LAYER("StochasticDepth", ", 'drop_path_rate': 0.25"), "(None, 6, 8, 3)", LS_OP_DROPOUT},
    {ROWS LAYER("GaussianNoise", ", 'stddev': 0.5"), "(None, 4, 5)", LS_OP_NOISE},
    {ROWS LAYER("GaussianNoise", ", 'stddev': 0"), "(None, 4, 5)", LS_OP_NONE},
    {ROWS LAYER("SpatialDropout1D", ", 'rate': 0.25"), "(None, 4, 5)", LS_OP_DROPOUT},
    {ROWS LAYER("GaussianDropout", ", 'rate': 0.5"), "(None, 4, 5)", LS_OP_NOISE},
    {ROWS LAYER("GaussianDropout", ", 'rate': 0"), "(None, 4, 5)", LS_OP_NONE},
    {ROWS LAYER("AlphaDropout", ", 'rate': 0.5"), "(None, 4, 5)", LS_OP_DROPOUT},
    {ROWS LAYER("AlphaDropout", ", 'rate': 0.0"), "(None, 4, 5)", LS_OP_NONE},
    {ROWS LAYER("ActivityRegularization", ", 'l1': 0.5"), "(None, 4, 5)", LS_OP_NONE},
    {IMAGE LAYER("MaxPool2D", ""), "(None, 3, 4, 3)", LS_OP_MAX_POOL2D},
    {IMAGE LAYER("Convolution2D", ", 'filters': 2, 'kernel_size': 3"), "(None, 4, 6, 2)",
     LS_OP_CONV2D},
    {ROWS LAYER("GlobalMaxPool1D", ""), "(None, 5)", LS_OP_REDUCE},
    {ROWS LAYER("Rescaling", ", 'scale': 0.5, 'offset': 1"), "(None, 4, 5)", LS_OP_FUNCTION},
    {ROWS LAYER("Rescaling", ", 'scale': 1, 'offset': 0.0"), "(None, 4, 5)", LS_OP_NONE},
    {IMAGE LAYER("Rescaling", ", 'scale': [1, 2, 3]"), "(None, 6, 8, 3)", LS_OP_PAIR},
    {IMAGE LAYER("Rescaling",
                 ", 'scale': {'class_name': '__numpy__', 'config': {'value': [1, 2, 3], "
                 "'dtype': 'float32'}}"),
     "(None, 6, 8, 3)", LS_OP_PAIR},
    {IMAGE LAYER("LayerScale", ", 'init_values': 0.1, 'projection_dim': 3"), "(None, 6, 8, 3)",
     LS_OP_PAIR},
    {ROWS LAYER("GlobalAveragePooling1D", ", 'keepdims': true"), "(None, 1, 5)", LS_OP_REDUCE},
    {ROWS LAYER("ZeroPadding1D", ""), "(None, 6, 5)", LS_OP_PAD},
    {ROWS LAYER("ZeroPadding1D", ", 'padding': [0, 3]"), "(None, 7, 5)", LS_OP_PAD},
    {ROWS LAYER("ZeroPadding1D", ", 'padding': 0"), "(None, 4, 5)", LS_OP_NONE},
    {ROWS LAYER("Cropping1D", ""), "(None, 2, 5)", LS_OP_SLICE},
    {ROWS LAYER("Cropping1D", ", 'cropping': [2, 1]"), "(None, 1, 5)", LS_OP_SLICE},
    {ROWS LAYER("Identity", ""), "(None, 4, 5)", LS_OP_NONE},
    {ROWS LAYER("Activation", ", 'activation': 'swish'"), "(None, 4, 5)", LS_OP_FUNCTION},
    {ROWS LAYER("Activation", ", 'activation': 'selu'"), "(None, 4, 5)", LS_OP_ACTIVATION},
};

TABLE_TEST(layers_become_their_operation, cases)
{
    struct ls_graph *graph = graph_of(cases[_i].layers);
    ck_assert_str_eq(layer_shape(graph, "l"), cases[_i].shape);
    if (cases[_i].op == LS_OP_NONE)
        ck_assert_uint_eq(graph->operation_count, 0);
    else
        only_operation(graph, cases[_i].op);
    ls_graph_destroy(graph);
}

TEST(random_layers_share_their_draws_and_have_keys_of_their_own)
{
    struct ls_graph *graph =
        graph_of(IMAGE "{'class_name': 'SpatialDropout2D', 'config': {'rate': 0.5}},"
                       "{'class_name': 'StochasticDepth', 'config': {'drop_path_rate': 0.5}},"
                       "{'class_name': 'GaussianNoise', 'config': {'stddev': 2}}");
    const int32_t shared[2][4] = {{0, 1, 1, 0}, {0, 1, 1, 1}};
    ck_assert_uint_eq(graph->operation_count, 3);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(graph->operations[i].attributes.key, i);
    for (int i = 0; i < 2; i++)
        ck_assert_mem_eq(graph->operations[i].attributes.axes, shared[i], sizeof(shared[i]));
    ck_assert_float_eq(graph->operations[2].attributes.rate, 2);
    ls_graph_destroy(graph);
}

TEST(what_a_normalization_has_depends_on_its_options)
{
    struct ls_graph *graph =
        graph_of(IMAGE LAYER("Normalization", ", 'mean': [1, 2, 3], 'variance': [4, 9, 0]"));
    const struct ls_tensor *deviation = parameter_of(graph, "l/deviation");
    ck_assert_uint_eq(parameter_total(graph), 0); // constants are none of the layer's
    ck_assert(deviation->constant);
    ck_assert_float_eq(deviation->initializer.values[1], 3);
    ck_assert_float_eq(deviation->initializer.values[2], 1e-7f);
    ls_graph_destroy(graph);

    graph = graph_of(IMAGE LAYER("Normalization", ""));
    ck_assert_uint_eq(parameter_total(graph), 6);
    ck_assert_int_eq(parameter_of(graph, "l/mean")->zone, LS_ZONE_FROZEN);
    ck_assert_int_eq(parameter_of(graph, "l/variance")->zone, LS_ZONE_FROZEN);
    ls_graph_destroy(graph);
}

static const char *const refused[][2] = {
    {ROWS LAYER("GlobalAveragePooling2D", ""), "expected 4 dimensions"},
    {IMAGE LAYER("GlobalAveragePooling1D", ""), "expected 3 dimensions: batch, steps, channels"},
    {IMAGE LAYER("MaxPooling1D", ""), "expected 3 dimensions: batch, steps, channels"},
    {ROWS LAYER("MaxPooling1D", ", 'pool_size': 5"), "pool_size: expected at least 5 steps"},
    {ROWS LAYER("AveragePooling1D", ", 'pool_size': [2, 2]"),
     "pool_size: expected an integer from 1"},
    {ROWS LAYER("AveragePooling1D", ", 'padding': 'causal'"), "padding: expected \"valid\""},
    {ROWS LAYER("ZeroPadding1D", ", 'padding': [1, 2, 3]"), "padding: expected an integer from 0"},
    {ROWS LAYER("ZeroPadding1D", ", 'padding': -1"), "padding: expected an integer from 0"},
    {ROWS LAYER("Cropping1D", ", 'cropping': 2"), "nothing remains of 4 steps"},
    {ROWS LAYER("UpSampling1D", ", 'size': 0"), "size: expected an integer from 1"},
    {ROWS LAYER("RepeatVector", ", 'n': 2"), "expected 2 dimensions: batch, elements"},
    {ROWS LAYER("RepeatVector", ""), "n: expected"},
    {IMAGE LAYER("GlobalMaxPooling2D", ", 'data_format': 'first'"), "data_format"},
    {IMAGE LAYER("ZeroPadding2D", ", 'padding': -1"), "padding: expected an integer from 0 to"},
    {IMAGE LAYER("ZeroPadding2D", ", 'padding': [1, 2, 3]"), "padding: expected an integer from 0"},
    {IMAGE LAYER("ZeroPadding2D", ", 'padding': [[1, 2], [3]]"), "or two lists of two, got"},
    {IMAGE LAYER("Cropping2D", ", 'cropping': [[3, 3], [0, 0]]"), "nothing remains of 6 rows"},
    {IMAGE LAYER("Cropping2D", ", 'cropping': 'all'"), "cropping: expected an integer"},
    {IMAGE LAYER("Permute", ", 'dims': [1, 2]"), "dims: expected 3 numbers"},
    {IMAGE LAYER("Permute", ", 'dims': [1, 1, 2]"), "each once"},
    {IMAGE LAYER("Permute", ", 'dims': [0, 1, 2]"), "each once"},
    {IMAGE LAYER("Permute", ""), "each once"},
    {IMAGE LAYER("UpSampling2D", ", 'interpolation': 'bicubic'"),
     "expected \"nearest\" or \"bilinear\""},
    {IMAGE LAYER("UpSampling2D", ", 'size': 0"), "size: expected an integer from 1"},
    {IMAGE LAYER("SpatialDropout2D", ", 'rate': 1"), "would drop everything"},
    {IMAGE LAYER("SpatialDropout2D", ""), "rate: expected a number from 0 to 1, got nothing"},
    {ROWS LAYER("SpatialDropout2D", ", 'rate': 0.5"), "expected 4 dimensions"},
    {IMAGE LAYER("StochasticDepth", ", 'drop_path_rate': 1.0"), "would drop everything"},
    {ROWS LAYER("GaussianNoise", ""), "stddev: expected a number, got nothing"},
    {ROWS LAYER("GaussianNoise", ", 'stddev': -1"), "stddev"},
    {ROWS LAYER("GaussianDropout", ", 'rate': 1"), "rate: 1 would drop everything"},
    {ROWS LAYER("AlphaDropout", ""), "rate: expected a number from 0 to 1, got nothing"},
    {ROWS LAYER("SpatialDropout3D", ", 'rate': 0.5"), "expected 5 dimensions: batch, "},
    {ROWS LAYER("AdaptiveMaxPooling1D", ""), "output_size: expected an integer from 1"},
    {ROWS LAYER("AdaptiveMaxPooling1D", ", 'output_size': [2, 2]"), "output_size: expected"},
    {IMAGE LAYER("MaxPooling3D", ""), "expected 5 dimensions: batch, three of space, channels"},
    {IMAGE LAYER("Cropping3D", ", 'cropping': [1, 2]"),
     "cropping: expected an integer from 0 to 32767, a list of three"},
    {IMAGE LAYER("ZeroPadding3D", ", 'padding': -1"),
     "padding: expected an integer from 0 to 32767, a list of three"},
    {ROWS LAYER("CategoryEncoding", ""), "num_tokens: expected a positive integer, got nothing"},
    {ROWS LAYER("CategoryEncoding", ", 'num_tokens': 16777217"), "num_tokens: expected at most"},
    {ROWS LAYER("CategoryEncoding", ", 'num_tokens': 3, 'output_mode': 'int'"),
     "output_mode: expected one_hot, multi_hot or count"},
    {ROWS LAYER("CategoryEncoding", ", 'num_tokens': 3, 'sparse': true"), "sparse: not supported"},
    {ROWS LAYER("CategoryEncoding", ", 'num_tokens': 3, 'dtype': 'uint8'"), "dtype: expected"},
    {ROWS LAYER("Discretization", ", 'num_bins': 4"), "bin_boundaries: there are none; call"},
    {ROWS LAYER("Discretization", ", 'bin_boundaries': []"), "bin_boundaries: expected"},
    {ROWS LAYER("Discretization", ", 'bin_boundaries': [1, 0.5]"),
     "must ascend; number 1 is below the one before"},
    {ROWS LAYER("Discretization", ", 'bin_boundaries': [1], 'output_mode': 'tf_idf'"),
     "output_mode: tf_idf is not supported"},
    {ROWS LAYER("IntegerLookup", ""), "vocabulary: there is none; what adapt() finds"},
    {ROWS LAYER("IntegerLookup", ", 'vocabulary': 'file.txt'"), "vocabulary: expected a list"},
    {ROWS LAYER("IntegerLookup", ", 'vocabulary': ['a']"), "vocabulary: number 0: expected one"},
    {ROWS LAYER("IntegerLookup", ", 'vocabulary': [1, 2147483648]"), "number 1: expected one"},
    {ROWS LAYER("IntegerLookup", ", 'vocabulary': [3, 1, 3]"), "vocabulary: 3 is in it twice"},
    {ROWS LAYER("IntegerLookup", ", 'vocabulary': [3, 0], 'mask_token': 0"),
     "vocabulary: 0 is a special token"},
    {ROWS LAYER("IntegerLookup", ", 'vocabulary': [-1]"), "numbers besides the special ones"},
    {ROWS LAYER("IntegerLookup", ", 'vocabulary': [1, 2], 'max_tokens': 2"),
     "vocabulary: expected at most 2 indices with the special ones, got 3"},
    {ROWS LAYER("IntegerLookup", ", 'vocabulary': [1], 'pad_to_max_tokens': true"),
     "pad_to_max_tokens: expected max_tokens"},
    {ROWS LAYER("IntegerLookup", ", 'vocabulary': [16777217]"), "give the model's input dtype="},
    {ROWS LAYER("IntegerLookup", ", 'vocabulary': [16777217], 'invert': true"),
     "vocabulary: invert gives float32"},
    {ROWS LAYER("IntegerLookup", ", 'vocabulary': [1], 'invert': true, 'output_mode': 'count'"),
     "invert: expected output_mode"},
    {ROWS LAYER("IntegerLookup", ", 'vocabulary': [1], 'output_mode': 'tf_idf'"),
     "output_mode: tf_idf is not supported; take"},
    {ROWS LAYER("IntegerLookup", ", 'vocabulary': [1], 'idf_weights': [1]"), "idf_weights"},
    {ROWS LAYER("IntegerLookup",
                ", 'vocabulary': [1], 'num_oov_indices': 2, 'oov_method': 'farmhash'"),
     "oov_method: farmhash is not supported"},
    {ROWS LAYER("IntegerLookup", ", 'vocabulary': [1], 'vocabulary_dtype': 'string'"),
     "vocabulary_dtype: expected one of int64"},
    {ROWS LAYER("ReversibleEmbedding",
                ", 'input_dim': 3, 'output_dim': 2, 'reverse_dtype': 'bfloat16'"),
     "reverse_dtype: expected null, float32"},
    {ROWS LAYER("ReversibleEmbedding", ", 'input_dim': 3, 'output_dim': 2, 'logit_soft_cap': 0"),
     "logit_soft_cap: expected a number that is not 0"},
    {ROWS LAYER("UnitNormalization", ", 'axis': 0"), "axis: expected dimensions from 1"},
    {ROWS LAYER("UnitNormalization", ", 'axis': [1, 1]"), "axis: expected dimensions from 1"},
    {ROWS LAYER("RMSNormalization", ", 'axis': 3"), "axis: expected dimensions from 1"},
    {ROWS LAYER("ActivityRegularization", ", 'l2': -1"), "l2"},
    {ROWS LAYER("EinsumDense", ", 'equation': 'abc,cd->ad', 'output_shape': 2"), "equation: "},
    {ROWS LAYER("EinsumDense", ", 'equation': 'abc,cd->abd', 'output_shape': 2"), "output_shape: "},
    {ROWS LAYER("EinsumDense", ", 'equation': 'abc,cd->bad', 'output_shape': [4, 2]"),
     "equation: "},
    {ROWS LAYER("EinsumDense",
                ", 'equation': 'abc,cd->abd', 'output_shape': [4, 2], 'bias_axes': 'c'"),
     "bias_axes: "},
    {ROWS LAYER("Conv1DTranspose", ", 'filters': 2, 'kernel_size': 2, 'padding': 'causal'"),
     "padding: "},
    {ROWS LAYER("GaussianNoise", ", 'stddev': 1, 'seed': 3"), "seed"},
    {ROWS LAYER("Rescaling", ""), "scale: expected a number or a list of numbers, got nothing"},
    {ROWS LAYER("Rescaling", ", 'scale': 'x'"), "scale: expected a number or a list of numbers"},
    {ROWS LAYER("Rescaling", ", 'scale': []"), "scale: expected a number or a list of numbers"},
    {ROWS LAYER("Rescaling", ", 'scale': [1, 2]"), "expected a number or 5, one a channel, got 2"},
    {ROWS LAYER("Rescaling", ", 'scale': [1, [2]]"), "scale: expected a number or a list"},
    {IMAGE LAYER("Normalization", ", 'axis': 1"), "axis: expected -1, the last axis, or null"},
    {IMAGE LAYER("Normalization", ", 'axis': null"), "null needs mean and variance"},
    {IMAGE LAYER("Normalization", ", 'mean': 1"), "variance: expected as many numbers as mean"},
    {IMAGE LAYER("Normalization", ", 'mean': [1, 2], 'variance': [1, 2]"),
     "mean: expected one number, or one a channel, got 2"},
    {IMAGE LAYER("Normalization", ", 'mean': 1, 'variance': -1"), "must not be negative"},
    {IMAGE LAYER("LayerScale", ", 'init_values': 0.1, 'projection_dim': 4"),
     "projection_dim: expected 3"},
    {IMAGE LAYER("LayerScale", ", 'init_values': 0.1"), "projection_dim: expected a"},
    {IMAGE LAYER("Subtract", ""), "2"},
    {IMAGE LAYER("CustomScaleLayer", ", 'scale': 0.1"), "2"},
    {ROWS LAYER("Concatenate", ", 'axis': 0"), "axis: expected one of 3 dimensions"},
    {ROWS LAYER("Concatenate", ", 'axis': 3"), "axis: expected one of 3 dimensions"},
    {ROWS LAYER("Activation", ", 'activation': 'sparsemax'"), "is not supported yet"},
};

TABLE_TEST(layers_that_do_not_fit_are_refused, refused)
{
    refuses(refused[_i][0], refused[_i][1]);
}

// ---- Several inputs ----

// Builds a model of two inputs of these shapes (lists) and one node on them, JSON in single quotes.
static enum ls_status build_pair(const char *a, const char *b, const char *node,
                                 struct ls_graph **out)
{
    char text[4096];
    const int length =
        snprintf(text, sizeof(text),
                 "{'class_name': 'Functional', 'config': {'name': 'm', 'layers': ["
                 "{'class_name': 'InputLayer', 'name': 'a', 'config': {'batch_shape': [null, %s], "
                 "'name': 'a'}, 'inbound_nodes': []},"
                 "{'class_name': 'InputLayer', 'name': 'b', 'config': {'batch_shape': [null, %s], "
                 "'name': 'b'}, 'inbound_nodes': []}, %s],"
                 "'input_layers': [['a', 0, 0], ['b', 0, 0]], 'output_layers': [['l', 0, 0]]}}",
                 a, b, node);
    ck_assert(length > 0 && (size_t)length < sizeof(text));
    return build_text(text, NULL, out);
}

#define TENSOR(name) \
    "{'class_name': '__keras_tensor__', 'config': {'keras_history': ['" name "', 0, 0]}}"
#define NODE(class_name, options)                                                  \
    "{'class_name': '" class_name "', 'name': 'l', 'config': {'name': 'l'" options \
    "}, 'inbound_nodes': [{'args': [[" TENSOR("a") ", " TENSOR("b") "]], 'kwargs': {}}]}"
#define OPERATION(class_name, arguments)                                              \
    "{'module': 'keras.src.ops.numpy', 'class_name': '" class_name                    \
    "', 'name': 'l', 'config': {'name': 'l'}, 'inbound_nodes': [{'args': [" arguments \
    "], 'kwargs': {}}]}"

#define SLICE(start, stop, step)                                                                 \
    "{'class_name': '__slice__', 'config': {'start': " start ", 'stop': " stop ", 'step': " step \
    "}}"
#define ALL SLICE("null", "null", "null")

static const struct {
    const char *a, *b, *node, *shape;
    uint32_t op, function;
} merges[] = {
    {"4, 5", "4, 5", NODE("Add", ""), "(None, 4, 5)", LS_OP_ADD, 0},
    {"4, 5", "4, 5", NODE("Maximum", ""), "(None, 4, 5)", LS_OP_MAXIMUM, 0},
    {"4, 5", "4, 5", NODE("Multiply", ""), "(None, 4, 5)", LS_OP_PAIR, LS_PAIR_MULTIPLY},
    {"4, 5", "1, 5", NODE("Add", ""), "(None, 4, 5)", LS_OP_PAIR, LS_PAIR_ADD},
    {"4, 1", "1, 5", NODE("Minimum", ""), "(None, 4, 5)", LS_OP_PAIR, LS_PAIR_MINIMUM},
    {"4, 5", "5", NODE("Subtract", ""), "(None, 4, 5)", LS_OP_PAIR, LS_PAIR_SUBTRACT},
    {"4, 5", "4, 2", NODE("Concatenate", ""), "(None, 4, 7)", LS_OP_CONCATENATE, 0},
    {"4, 5", "3, 5", NODE("Concatenate", ", 'axis': 1"), "(None, 7, 5)", LS_OP_CONCATENATE, 0},
    {"4, 5", "4, 5", NODE("CustomScaleLayer", ", 'scale': 0.5"), "(None, 4, 5)", LS_OP_ADD, 0},
    {"4, 5", "4, 5", OPERATION("Divide", TENSOR("a") ", " TENSOR("b")), "(None, 4, 5)", LS_OP_PAIR,
     LS_PAIR_DIVIDE},
};

TABLE_TEST(two_tensors_become_a_pair, merges)
{
    struct ls_graph *graph = NULL;
    const enum ls_status status = build_pair(merges[_i].a, merges[_i].b, merges[_i].node, &graph);
    ck_assert_msg(status == LS_OK, "%s", logged);
    ck_assert_str_eq(layer_shape(graph, "l"), merges[_i].shape);
    const struct ls_operation *operation = only_operation(graph, merges[_i].op);
    ck_assert_uint_eq(operation->attributes.function, merges[_i].function);
    ls_graph_destroy(graph);
}

static const struct {
    const char *a, *b, *node, *message;
} refused_pairs[] = {
    {"4, 5", "3, 5", NODE("Add", ""), "(None, 3, 5), cannot be broadcast to it"},
    {"4, 5", "3, 4", NODE("Concatenate", ""), "(None, 3, 4) can only differ from it along"},
    {"4, 5", "4, 5", OPERATION("Multiply", TENSOR("a") ", 'x'"), "expected a tensor, a number"},
    {"4, 5", "4, 5", OPERATION("Multiply", TENSOR("a") ", [[1, 2], [3]]"),
     "expected a tensor, a number or"},
    {"4, 5", "4, 5", OPERATION("Multiply", TENSOR("a") ", [1, 2]"), "cannot be broadcast"},
    {"4, 5", "4, 5", OPERATION("GetItem", TENSOR("a") ", 0"), "key: expected all of the batch"},
    {"4, 5", "4, 5", OPERATION("GetItem", TENSOR("a") ", [" ALL ", 4]"),
     "key: expected all of the batch"},
    {"4, 5", "4, 5", OPERATION("GetItem", TENSOR("a") ", [" ALL ", " SLICE("2", "2", "1") "]"),
     "that are not empty"},
    {"4, 5", "4, 5", OPERATION("GetItem", TENSOR("a") ", [" ALL ", " SLICE("0", "4", "2") "]"),
     "slices with step 1"},
};

TABLE_TEST(pairs_that_do_not_fit_are_refused, refused_pairs)
{
    struct ls_graph *graph = NULL;
    ck_assert_int_eq(
        build_pair(refused_pairs[_i].a, refused_pairs[_i].b, refused_pairs[_i].node, &graph),
        LS_BAD_INPUT);
    ck_assert_ptr_null(graph);
    ck_assert_msg(strstr(logged, refused_pairs[_i].message) != NULL, "%s", logged);
}

// More inputs than the operation takes are joined step by step.
TEST(many_tensors_are_concatenated_in_steps)
{
    struct ls_graph *graph = NULL;
    char node[4096], tensors[2048] = "";
    for (int i = 0; i < 20; i++) {
        const size_t length = strlen(tensors);
        snprintf(tensors + length, sizeof(tensors) - length, "%s%s", i ? ", " : "", TENSOR("a"));
    }
    snprintf(node, sizeof(node),
             "{'class_name': 'Concatenate', 'name': 'l', 'config': {'name': 'l'}, 'inbound_nodes': "
             "[{'args': [[%s, %s]], 'kwargs': {}}]}",
             tensors, TENSOR("b"));
    ck_assert_msg(build_pair("4, 2", "4, 3", node, &graph) == LS_OK, "%s", logged);
    ck_assert_str_eq(layer_shape(graph, "l"), "(None, 4, 43)");
    ck_assert_uint_eq(operation_total(graph, LS_OP_CONCATENATE), 3);
    ls_graph_destroy(graph);
}

TEST_SECONDS(100);
