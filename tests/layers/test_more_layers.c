// SPDX-License-Identifier: Apache-2.0
// Layers of attention, embedding, normalization and more convolutions: names and shapes of their
// variables, what becomes of their options, and what is refused. What they compute is compared with
// Keras by test_keras_layers.c.
#include "tests/layers/support.h"

#include <stdio.h>

#define INPUT(sizes) "{'class_name': 'InputLayer', 'config': {'batch_shape': [null, " sizes "]}},"
#define LAYER(sizes, class_name, options) \
    INPUT(sizes) "{'class_name': '" class_name "', 'config': {'name': 'l', " options "}}"

#define IDS "{'class_name': 'InputLayer', 'config': {'batch_shape': [null, 9], 'dtype': 'int32'}}, "

#define TENSOR(name)                                                                 \
    "{'class_name': '__keras_tensor__', 'config': {'shape': [null, 5, 6], 'dtype': " \
    "'float32', 'keras_history': ['" name "', 0, 0]}}"
// A functional model of x (5, 6), attention `a` of it with these options and keyword arguments.
#define ATTENTION(options, kwargs)                                                                 \
    "{'class_name': 'Functional', 'config': {'name': 'm', 'layers': [{'class_name': "              \
    "'InputLayer', 'name': 'x', 'config': {'name': 'x', 'batch_shape': [null, 5, 6]}, "            \
    "'inbound_nodes': []}, {'class_name': 'MultiHeadAttention', 'name': 'a', 'config': "           \
    "{'name': 'a', 'num_heads': 2, 'key_dim': 4" options "}, 'inbound_nodes': [{'args': [" TENSOR( \
        "x") ", " TENSOR("x") "], 'kwargs': {" kwargs "}}]}], 'input_layers': ['x', 0, 0], "       \
                              "'output_layers': ['a', 0, 0]}}"

static struct ls_graph *attention(const char *text)
{
    struct ls_graph *graph = NULL;
    const enum ls_status status = build_text(text, NULL, &graph);
    ck_assert_msg(status == LS_OK, "status %d: %s", status, logged);
    return graph;
}

TEST(attention_has_the_variables_of_keras)
{
    static const char *const expected[][2] = {
        {"a/query/kernel", "(6, 2, 4)"},
        {"a/query/bias", "(2, 4)"},
        {"a/key/kernel", "(6, 2, 4)"},
        {"a/key/bias", "(2, 4)"},
        {"a/value/kernel", "(6, 2, 3)"},
        {"a/value/bias", "(2, 3)"},
        {"a/attention_output/kernel", "(2, 3, 6)"},
        {"a/attention_output/bias", "(6,)"},
    };
    struct ls_graph *graph = attention(ATTENTION(", 'value_dim': 3", ""));
    ck_assert_uint_eq(graph->parameter_count, 8);
    for (size_t i = 0; i < 8; i++) {
        ck_assert_str_eq(graph->parameters[i]->name, expected[i][0]);
        ck_assert_str_eq(parameter_shape(graph, expected[i][0]), expected[i][1]);
    }
    ck_assert_str_eq(layer_shape(graph, "a"), "(None, 5, 6)");
    const struct ls_op_attributes *attributes = &only_operation(graph, LS_OP_ATTENTION)->attributes;
    ck_assert_uint_eq(attributes->causal, 0);
    ck_assert_float_eq(attributes->rate, 0);
    ls_graph_destroy(graph);
}

TEST(attention_takes_dropout_causal_and_the_size_of_its_output)
{
    struct ls_graph *graph = attention(
        ATTENTION(", 'dropout': 0.5, 'use_bias': false, 'output_shape': [7], 'attention_axes': [1]",
                  "'use_causal_mask': true, 'attention_mask': null"));
    const struct ls_op_attributes *attributes = &only_operation(graph, LS_OP_ATTENTION)->attributes;
    ck_assert_uint_eq(attributes->causal, 1);
    ck_assert_float_eq(attributes->rate, 0.5f);
    ck_assert_uint_eq(graph->dropout_count, 1);
    ck_assert_uint_eq(graph->parameter_count, 4);
    ck_assert_str_eq(layer_shape(graph, "a"), "(None, 5, 7)");
    ls_graph_destroy(graph);
}

static const char *const variables[][3] = {
    // model, variable, shape
    {LAYER("9, 4", "Conv1D", "'filters': 6, 'kernel_size': [3], 'groups': 2"), "l/kernel",
     "(3, 2, 6)"},
    {LAYER("9, 8, 4", "DepthwiseConv2D", "'kernel_size': [3, 2], 'depth_multiplier': 5"),
     "l/kernel", "(3, 2, 4, 5)"},
    {LAYER("9, 8, 4", "DepthwiseConv2D", "'kernel_size': 3, 'depth_multiplier': 5"), "l/bias",
     "(20,)"},
    {LAYER("9, 8, 4", "SeparableConv2D", "'filters': 6, 'kernel_size': 3, 'depth_multiplier': 2"),
     "l/depthwise_kernel", "(3, 3, 4, 2)"},
    {LAYER("9, 8, 4", "SeparableConv2D", "'filters': 6, 'kernel_size': 3, 'depth_multiplier': 2"),
     "l/pointwise_kernel", "(1, 1, 8, 6)"},
    {LAYER("9, 8, 4", "Conv2DTranspose", "'filters': 6, 'kernel_size': [3, 2]"), "l/kernel",
     "(3, 2, 6, 4)"},
    {LAYER("9, 8, 7, 4", "Conv3D", "'filters': 6, 'kernel_size': [1, 2, 3], 'groups': 2"),
     "l/kernel", "(1, 2, 3, 2, 6)"},
    {LAYER("9, 8, 7, 4", "Conv3DTranspose", "'filters': 6, 'kernel_size': [1, 2, 3]"), "l/kernel",
     "(1, 2, 3, 6, 4)"},
    {LAYER("9, 8, 4", "LayerNormalization", "'axis': [-2, 3]"), "l/gamma", "(8, 4)"},
    {LAYER("9, 8, 4", "LayerNormalization", "'axis': 3, 'scale': false"), "l/beta", "(4,)"},
    {LAYER("9, 8, 4", "GroupNormalization", "'groups': 2, 'axis': 3"), "l/gamma", "(4,)"},
    {LAYER("9, 8, 4", "GroupNormalization", "'groups': 2, 'axis': -2"), "l/gamma", "(8,)"},
    {LAYER("9, 8, 4", "LayerNormalization", "'axis': [1, -1]"), "l/gamma", "(9, 4)"},
    {LAYER("9, 8, 4", "BatchNormalization", "'axis': [1]"), "l/moving_mean", "(9,)"},
    {LAYER("9", "Embedding", "'input_dim': 10, 'output_dim': 3, 'input_length': 9"), "l/embeddings",
     "(10, 3)"},
    {LAYER("9, 8, 4", "PReLU", "'shared_axes': [1, 2]"), "l/alpha", "(1, 1, 4)"},
    {LAYER("9, 8, 4", "PReLU", "'shared_axes': 1"), "l/alpha", "(1, 8, 4)"},
};

TABLE_TEST(variables_have_the_shapes_of_keras, variables)
{
    struct ls_graph *graph = graph_of(variables[_i][0]);
    ck_assert_str_eq(parameter_shape(graph, variables[_i][1]), variables[_i][2]);
    ls_graph_destroy(graph);
}

static const char *const outputs[][2] = {
    {LAYER("9, 4", "Conv1D", "'filters': 6, 'kernel_size': 3, 'strides': 2"), "(None, 4, 6)"},
    {LAYER("9, 4", "Conv1D", "'filters': 6, 'kernel_size': 3, 'padding': 'causal'"),
     "(None, 9, 6)"},
    {LAYER("9, 8, 4", "DepthwiseConv2D", "'kernel_size': 3, 'strides': 2, 'padding': 'same'"),
     "(None, 5, 4, 4)"},
    {LAYER("9, 8, 4", "Conv2DTranspose", "'filters': 6, 'kernel_size': 3, 'strides': [2, 4]"),
     "(None, 19, 32, 6)"},
    {LAYER("9, 8, 4", "Conv2DTranspose",
           "'filters': 6, 'kernel_size': 3, 'strides': 2, 'padding': 'same'"),
     "(None, 18, 16, 6)"},
    {LAYER("9, 8", "Embedding", "'input_dim': 10, 'output_dim': 3"), "(None, 9, 8, 3)"},
    {LAYER("9, 8, 7, 4", "Conv3D", "'filters': 6, 'kernel_size': [1, 2, 3], 'strides': [1, 2, 1]"),
     "(None, 9, 4, 5, 6)"},
    {LAYER("9, 8, 7, 4", "Conv3DTranspose", "'filters': 6, 'kernel_size': 3, 'strides': [1, 2, 4]"),
     "(None, 11, 17, 28, 6)"},
    {LAYER("4, 9, 8, 7", "Conv3D",
           "'filters': 6, 'kernel_size': 3, 'strides': 2, 'padding': 'same', "
           "'data_format': 'channels_first'"),
     "(None, 6, 5, 4, 4)"},
};

TABLE_TEST(outputs_have_the_shapes_of_keras, outputs)
{
    struct ls_graph *graph = graph_of(outputs[_i][0]);
    ck_assert_str_eq(layer_shape(graph, "l"), outputs[_i][1]);
    ls_graph_destroy(graph);
}

// Of equal elements of a window the first in memory gets the gradient.
TEST(volumes_are_pooled_along_their_last_dimension_first)
{
    static const int64_t images[][3] = {{2 * 3, 4, 5}, {2, 3, 2 * 5}, {1, 2, 1 * 2 * 5}};
    struct ls_graph *graph = graph_of(LAYER("2, 3, 4, 5", "MaxPooling3D", "'pool_size': 2"));
    size_t found = 0;
    for (uint32_t i = 0; i < graph->operation_count; i++) {
        const struct ls_operation *operation = &graph->operations[i];
        if (operation->op != LS_OP_MAX_POOL2D)
            continue;
        ck_assert_uint_lt(found, 3);
        for (size_t k = 0; k < 3; k++)
            ck_assert_int_eq(operation->inputs[0]->shape.dims[1 + k], images[found][k]);
        found++;
    }
    ck_assert_uint_eq(found, 3);
    ls_graph_destroy(graph);
}

#define FIRST(options) "'data_format': 'channels_first', 'filters': 3, 'kernel_size': 1" options
#define NEXT(class_name, options) ", {'class_name': '" class_name "', 'config': {" options "}}"

// Between layers whose channels come first nothing is transposed.
TEST(transpositions_that_follow_each_other_cancel)
{
    static const uint32_t makers[] = {LS_OP_TRANSPOSE, LS_OP_CONV2D, LS_OP_BATCH_NORMALIZATION,
                                      LS_OP_ACTIVATION, LS_OP_CONV2D};
    static const uint32_t readers[] = {LS_OP_CONV2D, LS_OP_BATCH_NORMALIZATION, LS_OP_ACTIVATION,
                                       LS_OP_CONV2D, LS_OP_BATCH_NORMALIZATION};
    struct ls_graph *graph =
        graph_of(LAYER("4, 9, 8", "Conv2D", FIRST("")) NEXT("BatchNormalization", "'axis': 1")
                     NEXT("ReLU", "") NEXT("Conv2D", FIRST(""))
                         NEXT("BatchNormalization", "'axis': -3, 'name': 'last'"));
    size_t found = 0;
    for (uint32_t i = 0; i < graph->operation_count; i++) {
        const struct ls_operation *operation = &graph->operations[i];
        if (operation->op == LS_OP_TRANSPOSE || operation->op == LS_OP_BATCH_STATISTICS)
            continue;
        ck_assert_uint_lt(found, sizeof(readers) / sizeof(readers[0]));
        ck_assert_uint_eq(operation->op, readers[found]);
        ck_assert_uint_eq(graph->operations[operation->inputs[0]->producer].op, makers[found]);
        found++;
    }
    ck_assert_uint_eq(found, sizeof(readers) / sizeof(readers[0]));
    ck_assert_str_eq(layer_shape(graph, "last"), "(None, 3, 9, 8)");
    ls_graph_destroy(graph);
}

// The fans are those of (3, 3, 16, 2), not of (3, 3, 1, 32): as in Keras, no value is beyond sqrt(6
// / (144 + 18)) of Glorot.
TEST(first_values_go_by_the_shape_of_keras)
{
    struct ls_graph *graph =
        graph_of(LAYER("9, 8, 16", "DepthwiseConv2D", "'kernel_size': 3, 'depth_multiplier': 2"));
    float values[3 * 3 * 16 * 2], largest = 0;
    ls_initialize(parameter_of(graph, "l/kernel"), 1, values);
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        largest = values[i] > largest ? values[i] : largest;
    ck_assert_float_le(largest, 0.19246f);
    ck_assert_float_ge(largest, 0.18f);
    ls_graph_destroy(graph);
}

static const struct {
    const char *model, *parameter;
    float l1, l2;
} regularized[] = {
    {LAYER("4", "Dense", "'units': 3, 'kernel_regularizer': 'l2'"), "l/kernel", 0, 0.01f},
    {LAYER("4", "Dense", "'units': 3, 'kernel_regularizer': 'l2'"), "l/bias", 0, 0},
    {LAYER("4", "Dense",
           "'units': 3, 'bias_regularizer': {'module': 'keras.regularizers', 'class_name': 'L1L2', "
           "'config': {'l1': 0.5, 'l2': 0.25}, 'registered_name': null}"),
     "l/bias", 0.5f, 0.25f},
    {LAYER("4", "Dense", "'units': 3, 'bias_regularizer': {'class_name': 'L1', 'config': {}}"),
     "l/bias", 0.01f, 0},
    {LAYER("9, 8, 4", "DepthwiseConv2D", "'kernel_size': 3, 'depthwise_regularizer': 'l1'"),
     "l/kernel", 0.01f, 0},
    {LAYER("9, 8, 4", "SeparableConv2D",
           "'filters': 2, 'kernel_size': 3, 'pointwise_regularizer': 'L2'"),
     "l/pointwise_kernel", 0, 0.01f},
    {LAYER("9", "Embedding", "'input_dim': 3, 'output_dim': 2, 'embeddings_regularizer': 'l2'"),
     "l/embeddings", 0, 0.01f},
};

TABLE_TEST(regularizers_go_to_their_variables, regularized)
{
    struct ls_graph *graph = graph_of(regularized[_i].model);
    const struct ls_tensor *parameter = parameter_of(graph, regularized[_i].parameter);
    ck_assert_float_eq(parameter->l1, regularized[_i].l1);
    ck_assert_float_eq(parameter->l2, regularized[_i].l2);
    ck_assert_int_eq(
        ls_graph_add_loss(graph, &(struct ls_loss){.kind = LS_LOSS_MEAN_SQUARED_ERROR}), LS_OK);
    const bool any = graph->parameters[0]->l1 + graph->parameters[0]->l2 > 0;
    const bool other =
        graph->parameter_count > 1 && graph->parameters[1]->l1 + graph->parameters[1]->l2 > 0;
    ck_assert_uint_eq(operation_total(graph, LS_OP_PENALTY), (uint32_t)any + (uint32_t)other);
    ls_graph_destroy(graph);
}

// ---- What is refused ----

static const char *const refused[][2] = {
    {LAYER("9", "Conv1D", "'filters': 6, 'kernel_size': 3"),
     "layer 'l' (Conv1D): input shape (None, 9): expected 3 dimensions: batch, steps, channels"},
    {LAYER("2, 4", "Conv1D", "'filters': 6, 'kernel_size': 3"),
     "kernel_size: expected at least 3 steps with padding \"valid\""},
    {LAYER("9, 4", "Conv1D", "'filters': 6, 'kernel_size': [3, 3]"),
     "kernel_size: expected an integer from 1 to 32767, or a list of one, got [3, 3]"},
    {LAYER("9, 8, 7, 4", "Conv3D", "'filters': 6, 'kernel_size': [3, 3]"),
     "kernel_size: expected an integer from 1 to 32767, or a list of three, got [3, 3]"},
    {LAYER("9, 8, 7, 4", "Conv3D", "'filters': 6, 'kernel_size': [2, 2, 8]"),
     "kernel_size: expected at least 8 columns with padding \"valid\""},
    {LAYER("9, 8, 4", "Conv3D", "'filters': 6, 'kernel_size': 2"),
     "expected 5 dimensions: batch, planes, rows, columns, channels"},
    {LAYER("9, 8, 7, 4", "Conv3D",
           "'filters': 6, 'kernel_size': 2, 'strides': [1, 1, 2], 'dilation_rate': [2, 1, 1]"),
     "strides: must be 1 together with dilation_rate above 1"},
    {LAYER("9, 8, 7, 4", "Conv3D", "'filters': 6, 'kernel_size': 2, 'groups': 3"),
     "groups: 4 channels cannot be split into 3 groups"},
    {LAYER("9, 8, 7, 4", "Conv3DTranspose",
           "'filters': 6, 'kernel_size': 2, 'output_padding': [1, 1, 1]"),
     "output_padding: "},
    {LAYER("9, 4", "Conv1D", "'filters': 6, 'kernel_size': 3, 'padding': 'full'"),
     "padding: expected \"valid\", \"same\" or \"causal\", got \"full\""},
    {LAYER("9, 8, 4", "Conv2D", "'filters': 6, 'kernel_size': 3, 'padding': 'causal'"),
     "padding: expected \"valid\" or \"same\", got \"causal\""},
    {LAYER("9, 8, 4", "DepthwiseConv2D", "'kernel_size': 3, 'depth_multiplier': 0"),
     "depth_multiplier: expected a positive integer, got 0"},
    {LAYER("9, 8, 4", "DepthwiseConv2D", "'kernel_size': 3, 'groups': 2"),
     "groups: expected at most 1, got 2"},
    {LAYER("9, 8, 4", "SeparableConv2D", "'kernel_size': 3"),
     "filters: expected a positive integer, got nothing"},
    {LAYER("9, 8, 4", "Conv2DTranspose", "'filters': 6, 'kernel_size': 3, 'output_padding': 1"),
     "output_padding: not supported, got 1; set it to null"},
    {LAYER("9, 8", "Conv2DTranspose", "'filters': 6, 'kernel_size': 3"),
     "expected 4 dimensions: batch, rows, columns, channels"},
    {LAYER("9, 8, 4", "LayerNormalization", "'axis': [2, 1]"),
     "axis: the dimensions must be in ascending order"},
    {LAYER("9, 8, 4", "LayerNormalization", "'axis': [3, 3]"),
     "axis: expected dimensions from 1, behind that of the examples, got [3, 3]"},
    {LAYER("9, 8, 4", "LayerNormalization", "'axis': [0, 1, 2, 3]"),
     "axis: expected dimensions from 1"},
    {LAYER("9, 8, 4", "LayerNormalization", "'axis': 'last'"), "axis: expected dimensions from 1"},
    {LAYER("9, 8, 4", "LayerNormalization", "'axis': []"), "axis: expected dimensions from 1"},
    {LAYER("9, 8, 4", "LayerNormalization", "'rms_scaling': true"),
     "rms_scaling: not supported: Keras divides by the variance there; set it to false"},
    {LAYER("9, 8, 4", "GroupNormalization", "'groups': 3"),
     "4 channels cannot be split into 3 groups"},
    {LAYER("9, 8, 4", "GroupNormalization", "'groups': 0"),
     "groups: expected a number from 1, or -1 for one a channel, got 0"},
    {LAYER("9, 8, 4", "GroupNormalization", "'groups': 2, 'axis': [1, 2]"),
     "axis: one dimension can be split into groups, not several"},
    {LAYER("9", "Embedding", "'input_dim': 10, 'output_dim': 3, 'mask_zero': 1"),
     "mask_zero: expected true or false, got 1"},
    {LAYER("9", "LSTM", "'units': 3"),
     "layer 'l' (LSTM): input shape (None, 9): expected 3 dimensions: batch, steps, features"},
    {LAYER("9, 4", "LSTM", "'units': 3, 'stateful': true"),
     "stateful: states are not kept from one batch to the next; set it to false, and pass"},
    {LAYER("9, 4", "LSTM", "'units': 3, 'reset_after': true"), "reset_after: unknown option"},
    {LAYER("9, 4", "GRU", "'units': 3, 'activation': 'gelu'"),
     "activation: this activation is not supported in a recurrent layer; take tanh"},
    {LAYER("9, 4", "GRU", "'units': 3, 'recurrent_activation': 'softmax'"),
     "recurrent_activation: this activation is not supported"},
    {LAYER("9, 4", "SimpleRNN", "'units': 3, 'dropout': 1"), "dropout: 1 would drop everything"},
    {LAYER("9, 4", "SimpleRNN", "'units': 3, 'seed': 1"), "seed: a layer has no seed of its own"},
    {LAYER("9, 4", "RNN", "'cell': 3"), "cell: expected a layer of Keras, got 3"},
    {LAYER("9, 4", "RNN", "'cell': {'class_name': 'Mine', 'config': {}}"),
     "cell: the cell Mine is not supported; supported: SimpleRNNCell, LSTMCell"},
    {LAYER("9, 4", "Bidirectional", "'layer': {'class_name': 'Dense', 'config': {'units': 2}}"),
     "layer: expected SimpleRNN, LSTM, GRU or RNN, got Dense"},
    {LAYER("9, 4", "Bidirectional",
           "'merge_mode': 'max', 'layer': {'class_name': 'GRU', 'config': {'units': 2}}"),
     "merge_mode: expected concat, sum, mul, ave or null, got \"max\""},
    {LAYER("9, 4", "TimeDistributed",
           "'layer': {'class_name': 'BatchNormalization', 'config': {}}"),
     "layer: BatchNormalization on each step is not supported; put it into a model, and that into"},
    {LAYER("9, 4", "TimeDistributed",
           "'layer': {'class_name': 'Sequential', 'config': [{'class_name': 'Dense', 'config': "
           "{'name': 'd', 'units': 0}}]}"),
     "layer 'l/sequential/d' (Dense): units: expected a positive integer, got 0"},
    {LAYER("9, 4", "TimeDistributed", "'layer': {'class_name': 'Sequential', 'config': []}"),
     "model 'l/sequential': the model has 0 layers"},
    {LAYER("9, 4", "Masking", "'mask_value': 0")
         NEXT("TimeDistributed", "'layer': {'class_name': 'Sequential', 'config': [{'class_name': "
                                 "'BatchNormalization', 'config': {}}]}"),
     "layer 'time_distributed/sequential/batch_normalization' (BatchNormalization): input shape "
     "(None, 4): "
     "the input has a mask"},
    {LAYER("9, 4", "TimeDistributed",
           "'layer': {'class_name': 'Dense', 'config': {'unit': 2, 'units': 2}}"),
     "layer.unit: unknown option"},
    {LAYER("9, 4", "SpectralNormalization",
           "'layer': {'class_name': 'LSTM', 'config': {'units': 2}}"),
     "layer: LSTM inside is not supported; expected Dense, EinsumDense, Embedding, or a "
     "convolution"},
    {LAYER("9, 4", "SpectralNormalization", "'layer': {'class_name': 'Flatten', 'config': {}}"),
     "layer: Flatten inside is not supported; expected Dense, EinsumDense, Embedding, or a conv"},
    {LAYER("9, 4", "SpectralNormalization",
           "'power_iterations': 0, 'layer': {'class_name': 'Dense', 'config': {'units': 2}}"),
     "power_iterations: expected a positive integer, got 0"},
    {LAYER("9", "SpectralNormalization",
           "'layer': {'class_name': 'Embedding', 'config': {'input_dim': 3, 'output_dim': 2, "
           "'mask_zero': true}}"),
     "layer.mask_zero: no mask comes from a layer inside; set it to false"},
    {IDS "{'class_name': 'SpectralNormalization', 'config': {'name': 'l', 'layer': {'class_name': "
         "'Embedding', 'config': {'input_dim': 3, 'output_dim': 2}}}}",
     "Keras casts what the layer inside computes to the type of its input, here int32; give the"},
    {IDS "{'class_name': 'Dense', 'config': {'name': 'l', 'units': 2}}",
     "int32, which only Embedding, CategoryEncoding and IntegerLookup take; for others declare"},
    {LAYER("9, 4", "RandomFlip", "'mode': 'vertical'"),
     "expected 4 dimensions: batch, rows, columns, channels"},
    {LAYER("9, 8, 3", "RandomFlip", "'mode': 'up'"),
     "mode: expected one of horizontal, vertical, horizontal_and_vertical, got \"up\""},
    {LAYER("9, 8, 3", "RandomFlip", "'seed': 3"), "seed: a layer has no seed of its own, got 3"},
    {LAYER("9, 8, 3", "RandomRotation", "'fill_value': 1"),
     "factor: expected a number from -1 to 1, or a list of two"},
    {LAYER("9, 8, 3", "RandomRotation", "'factor': [1, 2, 3]"),
     "factor: expected a number from -1 to 1, or a list of two"},
    {LAYER("9, 8, 3", "RandomRotation", "'factor': 0.1, 'fill_mode': 'mirror'"),
     "fill_mode: expected one of constant, nearest, reflect, wrap, got \"mirror\""},
    {LAYER("9, 8, 3", "RandomRotation", "'factor': 0.1, 'interpolation': 'bicubic'"),
     "interpolation: expected one of nearest, bilinear, got \"bicubic\""},
    {LAYER("9, 8, 3", "RandomZoom", "'height_factor': -1"),
     "height_factor: -1 would leave nothing of the image"},
    {LAYER("9, 8, 3", "RandomTranslation", "'height_factor': 0.1"),
     "width_factor: expected a number from -1 to 1"},
    {LAYER("9, 8, 3", "RandomContrast", "'factor': -0.5"),
     "factor: expected a number from 0 to 1, or a list of two"},
    {LAYER("9, 8, 3", "RandomBrightness", "'factor': 0.5, 'value_range': [1, 0]"),
     "value_range: expected a list of two numbers, the smaller one first"},
    {LAYER("9, 8, 3", "RandomErasing", "'fill_value': [1, 2, 3]"), "fill_value: expected a number"},
    {LAYER("9, 8, 3", "RandomCrop", "'height': 0, 'width': 2"), "height: expected"},
    {LAYER("9, 8, 3", "Resizing", "'height': 3, 'width': 2, 'antialias': true"),
     "antialias: expected false: smaller images are not smoothed first"},
    {LAYER("9, 8, 3", "Resizing", "'height': 3, 'width': 2, 'interpolation': 'lanczos3'"),
     "interpolation: expected one of nearest, bilinear, got \"lanczos3\""},
    {LAYER("9, 8, 3", "CenterCrop", "'height': 3, 'width': 2, 'data_format': 'first'"),
     "data_format"},
    {LAYER("9", "Masking", "'mask_value': 1"), "expected 3 dimensions: batch, steps, features"},
    {LAYER("9", "Embedding", "'output_dim': 3"),
     "input_dim: expected a positive integer, got nothing"},
    {LAYER("9, 8, 4", "PReLU", "'shared_axes': [4]"),
     "shared_axes: expected axes from 1 to 3, got 4"},
    {LAYER("5, 6", "MultiHeadAttention", "'num_heads': 2, 'key_dim': 4"),
     "layer 'l' (MultiHeadAttention)"},
};

TABLE_TEST(what_does_not_fit_is_refused, refused)
{
    refuses(refused[_i][0], refused[_i][1]);
}

static const char *const calls[][2] = {
    {ATTENTION("", "'attention_mask': " TENSOR("x")),
     "attention_mask: expected a number for each score"},
    {ATTENTION("", "'value_mask': 1"), "value_mask: expected a tensor"},
    {ATTENTION("", "'value_mask': {'tensor': 99}"), "value_mask: expected a tensor"},
    {ATTENTION("", "'query_mask': " TENSOR("x")),
     "query_mask: Keras's MultiHeadAttention does not"},
    {ATTENTION("", "'return_attention_scores': true"),
     "return_attention_scores is not supported; set it to False"},
    {ATTENTION(", 'attention_axes': [1, 2]", ""), "attention_axes: only attention over the steps"},
    {ATTENTION(", 'use_gate': true", ""), "use_gate: a gate is not supported"},
    {ATTENTION(", 'sliding_window': 3", ""), "sliding_window: not supported, got 3"},
    {ATTENTION(", 'dropout': 1", ""), "dropout: 1 would drop everything"},
    {ATTENTION(", 'output_shape': [2, 3]", ""),
     "output_shape: expected null or one size, got [2, 3]"},
    {ATTENTION(", 'output_shape': true", ""), "output_shape: expected null"},
};

TABLE_TEST(calls_of_attention_that_do_not_fit_are_refused, calls)
{
    refuses_model(calls[_i][0], calls[_i][1]);
}

TEST_SECONDS(100);
