// SPDX-License-Identifier: Apache-2.0
// What does not fit is refused with one line that names file, layer, option and what was wanted.
#include "layers/config.h"
#include "tests/layers/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IMAGE "{'class_name': 'InputLayer', 'config': {'batch_shape': [null, 28, 28, 3]}},"
#define DENSE(options) \
    IMAGE "{'class_name': 'Dense', 'config': {'name': 'd', 'units': 4" options "}}"
#define CONV(options) \
    IMAGE             \
    "{'class_name': 'Conv2D', 'config': {'name': 'c', 'filters': 4, 'kernel_size': 3" options "}}"
#define OTHER(class_name, options) \
    IMAGE "{'class_name': '" class_name "', 'config': {'name': 'l'" options "}}"

static const char *const layers[][2] = {
    // Values of another kind or out of range.
    {IMAGE "{'class_name': 'Dense', 'config': {'name': 'd', 'units': 'ten'}}",
     "layer 'd' (Dense): units: expected a positive integer, got \"ten\""},
    {IMAGE "{'class_name': 'Dense', 'config': {'name': 'd'}}",
     "units: expected a positive integer, got nothing"},
    {IMAGE "{'class_name': 'Dense', 'config': {'units': 0}}",
     "units: expected a positive integer, got 0"},
    {IMAGE "{'class_name': 'Dense', 'config': {'units': -3}}",
     "units: expected a positive integer, got -3"},
    {IMAGE "{'class_name': 'Dense', 'config': {'units': 10.0}}",
     "units: expected a positive integer, got 10.0"},
    {IMAGE "{'class_name': 'Dense', 'config': {'units': true}}",
     "units: expected a positive integer, got true"},
    {IMAGE "{'class_name': 'Dense', 'config': {'units': 1099511627776}}",
     "units: expected at most 2147483647, got 1099511627776"},
    {IMAGE "{'class_name': 'Dense', 'config': {'units': 2147483647}}", "has more than"},
    {DENSE(", 'use_bias': 1"), "use_bias: expected true or false, got 1"},
    {DENSE(", 'activation': 3"), "activation: expected the name of an activation, got 3"},
    {DENSE(", 'activation': 'rellu'"), "activation: 'rellu' is unknown; did you mean 'relu'?"},
    {DENSE(", 'activation': 'hard_shrink'"),
     "activation: 'hard_shrink' is not supported yet; supported: linear, relu,"},
    {DENSE(", 'activation': 'celu'"),
     "layer 'd' (Dense): activation: 'celu' is not supported yet; supported: linear,"},
    {DENSE(", 'activation': 'mine'"), "'mine' is unknown; supported: linear, relu,"},
    {DENSE(", 'activation': {'class_name': 'PReLU', 'config': {}}"),
     "activation: 'PReLU' is not supported yet"},
    {DENSE(", 'activation': {'class_name': 'ReLU', 'config': {'max_value': 5}}"),
     "activation.max_value: only null and 6 are supported, got 5"},
    {DENSE(", 'activation': {'class_name': 'ReLU', 'config': {'treshold': 0}}"),
     "activation.treshold: unknown option; did you mean 'threshold'?"},
    {DENSE(", 'activation': {'module': 'mine', 'class_name': 'ReLU', 'config': {}}"),
     "activation: expected an activation of Keras, got {"},
    {DENSE(", 'activation': {'class_name': 'relu', 'config': {'alpha': 3}}"),
     "activation: 'relu' is unknown"},
    {DENSE(", 'activation': {'class_name': 'ReLU', 'config': {'activity_regularizer': 'l2'}}"),
     "activation.activity_regularizer: not supported"},
    {DENSE(", 'kernel_initializer': 'he_norml'"),
     "kernel_initializer: 'he_norml' is unknown; did you mean 'he_normal'?"},
    {DENSE(", 'kernel_initializer': 'identity'"),
     "'identity' is not supported yet; supported: zeros, ones,"},
    {DENSE(", 'bias_initializer': null"),
     "bias_initializer: expected the name of an initializer, got null"},
    {DENSE(", 'bias_initializer': {'config': {}}"),
     "bias_initializer: expected an initializer, got"},
    {DENSE(", 'kernel_initializer': {'class_name': 'HeNormal', 'config': {'seed': 3}}"),
     "kernel_initializer.seed: a layer has no seed of its own, got 3; set seed to null"},
    {DENSE(", 'kernel_initializer': {'class_name': 'HeNormal', 'config': {'scale': 3}}"),
     "kernel_initializer.scale: unknown option"},
    {DENSE(", 'kernel_initializer': {'class_name': 'VarianceScaling', 'config': {'mode': 'fan'}}"),
     "kernel_initializer.mode: expected one of fan_in, fan_out, fan_avg, got \"fan\""},
    {DENSE(", 'kernel_initializer': {'class_name': 'VarianceScaling', 'config': {'scale': 0}}"),
     "kernel_initializer.scale: expected a positive number"},
    {DENSE(", 'kernel_initializer': {'class_name': 'RandomUniform', 'config': {'minval': 1}}"),
     "kernel_initializer.maxval: expected at least minval"},
    {DENSE(", 'kernel_initializer': {'class_name': 'Constant', 'config': {'value': 'x'}}"),
     "kernel_initializer.value: expected a number, got \"x\""},
    {DENSE(", 'kernel_initializer': {'class_name': 'Zeros', 'config': {}, 'registered_name': "
           "'my>Zeros'}"),
     "'Zeros' is a custom initializer"},
    {DENSE(", 'quantization_config': {}"), "quantization_config: not supported"},
    {DENSE(", 'unit': 3"), "layer 'd' (Dense): unit: unknown option; did you mean 'units'?"},
    {DENSE(", 'foobar': 3"), "foobar: unknown option; available: units, activation, use_bias,"},
    {DENSE(", 'trainable': 0"), "trainable: expected true or false, got 0"},
    {DENSE(", 'dtype': 'float16'"),
     "dtype: float16 would keep variables in 16 bits, too, which is not supported; set it to "
     "\"mixed_float16\""},
    {DENSE(", 'dtype': {'class_name': 'DTypePolicy', 'config': {'name': 'bfloat16'}}"),
     "dtype: bfloat16 would keep variables in 16 bits"},
    {DENSE(", 'dtype': 'float64'"),
     "dtype: expected float32, mixed_bfloat16 or mixed_float16, got \"float64\""},
    {DENSE(", 'dtype': {'class_name': 'DTypePolicyMap', 'config': {'default_policy': 'float32'}}"),
     "dtype: expected float32, mixed_bfloat16 or mixed_float16, got "},
    {DENSE(", 'dtype': {'class_name': 'QuantizedDTypePolicy', 'config': {'mode': 'int8', "
           "'source_name': 'float32'}}"),
     "dtype: expected float32, mixed_bfloat16 or mixed_float16, got "},
    {DENSE(", 'batch_input_shape': [null, 5]"),
     "layer 'd' (Dense): input shape (None, 28, 28, 3): batch_input_shape: says [null, 5]"},
    {CONV(", 'strides': 0"),
     "strides: expected an integer from 1 to 32767, or a list of two, got 0"},
    {CONV(", 'strides': [1, 2, 3]"),
     "strides: expected an integer from 1 to 32767, or a list of two, got [1, 2, 3]"},
    {CONV(", 'strides': [1, 'a']"), "strides: expected"},
    {CONV(", 'strides': 40000"), "strides: expected an integer from 1 to 32767"},
    {CONV(", 'strides': 2, 'dilation_rate': 2"), "strides: must be 1 together with dilation_rate"},
    {CONV(", 'padding': 'causal'"), "padding: expected \"valid\" or \"same\", got \"causal\""},
    {CONV(", 'padding': 1"), "padding: expected \"valid\" or \"same\", got 1"},
    {CONV(", 'data_format': 'channels'"),
     "data_format: expected \"channels_last\" or \"channels_first\", got "},
    {CONV(", 'data_format': 'NHWC'"), "data_format: expected \"channels_last\" or "},
    {CONV(", 'groups': 3"), "filters: 4 cannot be split into 3 groups"},
    {CONV(", 'groups': 2"),
     "input shape (None, 28, 28, 3): groups: 3 channels cannot be split into 2 groups"},
    {CONV(", 'groups': 0"), "groups: expected a positive integer, got 0"},
    {CONV(", 'dilation_rate': 14"), "layer 'c' (Conv2D): input shape (None, 28, 28, 3): "
                                    "kernel_size: expected at least 29 rows with padding"},
    {IMAGE "{'class_name': 'Conv2D', 'config': {'filters': 4}}",
     "kernel_size: expected an integer from 1"},
    {IMAGE "{'class_name': 'Conv2D', 'config': {'filters': 4, 'kernel_size': [3, 29]}}",
     "kernel_size: expected at least 29 columns"},
    {IMAGE "{'class_name': 'Conv2D', 'config': {'filters': 2147483647, 'kernel_size': 28}}",
     "has more than"},
    {OTHER("MaxPooling2D", ", 'pool_size': 29"), "layer 'l' (MaxPooling2D): input shape (None, 28, "
                                                 "28, 3): pool_size: expected at least 29 rows"},
    {OTHER("AveragePooling2D", ", 'strides': 'x'"), "strides: expected an integer"},
    {OTHER("MaxPooling2D", ", 'data_format': 'first'"), "data_format: expected "},
    {OTHER("Flatten", ", 'data_format': 1"), "data_format: expected "},
    {OTHER("Reshape", ""), "target_shape: expected a list of 1 to 5 positive integers, one of them "
                           "may be -1, got nothing"},
    {OTHER("Reshape", ", 'target_shape': []"), "target_shape: expected a list"},
    {OTHER("Reshape", ", 'target_shape': [-1, -1]"), "target_shape: expected a list"},
    {OTHER("Reshape", ", 'target_shape': [0, -1]"), "target_shape: expected a list"},
    {OTHER("Reshape", ", 'target_shape': [1, 2, 3, 4, 5, 6]"), "target_shape: expected a list"},
    {OTHER("Reshape", ", 'target_shape': [5, 5]"),
     "input shape (None, 28, 28, 3): target_shape: 2352 elements do not make [5, 5]"},
    {OTHER("Reshape", ", 'target_shape': [-1, 5]"),
     "target_shape: 2352 elements do not make [-1, 5]"},
    {OTHER("Reshape", ", 'target_shape': [2147483647, 2147483647, 2147483647]"),
     "target_shape: 2352 elements"},
    {OTHER("Dropout", ""), "rate: expected a number from 0 to 1, got nothing"},
    {OTHER("Dropout", ", 'rate': 1.5"), "rate: expected at most 1, got 1.5"},
    {OTHER("Dropout", ", 'rate': -0.5"), "rate: expected at least 0, got -0.5"},
    {OTHER("Dropout", ", 'rate': 1"), "rate: 1 would drop everything"},
    {OTHER("Dropout", ", 'rate': '0.5'"), "rate: expected a number, got \"0.5\""},
    {OTHER("Dropout", ", 'rate': 0.5, 'seed': 42"),
     "seed: a layer has no seed of its own, got 42; set seed to null and give the run one "
     "(--seed=)"},
    {OTHER("Dropout", ", 'rate': 0.5, 'noise_shape': [null, 1]"),
     "noise_shape: expected null, or a list of null (the batch) and 3 sizes, each null, 1 or that "
     "of "
     "the input, got [null, 1]"},
    {OTHER("Dropout", ", 'rate': 0.5, 'noise_shape': [1, 28, 28, 3]"),
     "noise_shape: expected null"},
    {OTHER("Dropout", ", 'rate': 0.5, 'noise_shape': [null, 1, 2, 1]"),
     "noise_shape: expected null"},
    {OTHER("Activation", ""), "activation: expected the name of an activation, got nothing"},
    {OTHER("ReLU", ", 'max_value': 5.5"), "max_value: only null and 6 are supported, got 5.5"},
    {OTHER("ReLU", ", 'threshold': 1"), "threshold: only 0 is supported, got 1"},
    {OTHER("ReLU", ", 'negative_slope': -1"), "negative_slope: expected at least 0, got -1"},
    {OTHER("ReLU", ", 'max_value': 6, 'negative_slope': 0.1"),
     "negative_slope: must be 0 together with max_value"},
    {OTHER("LeakyReLU", ", 'negative_slope': 'a'"), "negative_slope: expected a number"},
    {OTHER("LeakyReLU", ", 'negative_slope': 0.1, 'alpha': 0.1"),
     "alpha: is the old name of negative_slope"},
    {OTHER("ELU", ", 'alpha': -1"), "alpha: expected at least 0, got -1"},
    {OTHER("BatchNormalization", ", 'axis': 0"),
     "axis: expected dimensions from 1, behind that of the examples, got 0"},
    {OTHER("BatchNormalization", ", 'axis': [1, 2]"),
     "axis: one dimension has the channels, not several"},
    {OTHER("BatchNormalization", ", 'axis': 'all'"), "of the examples, got \"all\""},
    {OTHER("BatchNormalization", ", 'momentum': 1.5"), "momentum: expected at most 1, got 1.5"},
    {OTHER("BatchNormalization", ", 'epsilon': -1"), "epsilon: expected at least 0, got -1"},
    {OTHER("BatchNormalization", ", 'scale': 1"), "scale: expected true or false, got 1"},
    {OTHER("BatchNormalization", ", 'renorm': true"),
     "renorm: batch renormalization is not supported; set it to false"},
    {OTHER("BatchNormalization", ", 'virtual_batch_size': 4"),
     "virtual_batch_size: unknown option"},
    {OTHER("BatchNormalization", ", 'synchronized': null"),
     "synchronized: expected true or false, got null"},
    {OTHER("Softmax", ", 'axis': [1, 2]"), "axis: softmax over several dimensions is not"},
    // Inputs.
    {"{'class_name': 'InputLayer', 'config': {}}, {'class_name': 'Flatten'}",
     "layer 'input_layer' (InputLayer): batch_shape: expected a list of null (the batch) and 1 to "
     "5 "
     "sizes, got nothing"},
    {"{'class_name': 'InputLayer', 'config': {'batch_shape': [null]}}, {'class_name': 'Flatten'}",
     "batch_shape: expected"},
    {"{'class_name': 'InputLayer', 'config': {'batch_shape': [null, null, 3]}}, {'class_name': "
     "'Flatten'}",
     "batch_shape: every size after the batch must be an integer from 1 to 2147483647, got [null, "
     "null, 3]"},
    {"{'class_name': 'InputLayer', 'config': {'batch_shape': [null, 0]}}, {'class_name': "
     "'Flatten'}",
     "every size"},
    {"{'class_name': 'InputLayer', 'config': {'batch_shape': [-1, 3]}}, {'class_name': 'Flatten'}",
     "expected a list of null"},
    {"{'class_name': 'InputLayer', 'config': {'batch_shape': [null, 1, 1, 1, 1, 1, 1]}}, "
     "{'class_name': 'Flatten'}",
     "batch_shape: expected a list of null"},
    {"{'class_name': 'InputLayer', 'config': {'batch_shape': [null, 2147483647, 2147483647, "
     "2147483647]}}, "
     "{'class_name': 'Flatten'}",
     "has more than"},
    {"{'class_name': 'InputLayer', 'config': {'batch_shape': [null, 3], 'sparse': true}}, "
     "{'class_name': 'Flatten'}",
     "sparse: not supported; set it to false"},
    {"{'class_name': 'InputLayer', 'config': {'batch_shape': [null, 3], 'dtype': 'uint8'}}, "
     "{'class_name': 'Flatten'}",
     "dtype: only float32, bfloat16, float16, int32, int64 and bool are supported, got \"uint8\""},
    {"{'class_name': 'InputLayer', 'config': {'batch_shape': [null, 3], 'dtype': 'string'}}, "
     "{'class_name': 'Flatten'}",
     "got \"string\"; make numbers of the texts before"},
    {IMAGE "{'class_name': 'InputLayer', 'config': {'batch_shape': [null, 3]}}",
     "layer 1: an InputLayer must be the first layer"},
    {"{'class_name': 'Dense', 'config': {'units': 3}}", "the model does not give its input shape"},
    {"{'class_name': 'Dense', 'config': {'units': 3, 'batch_input_shape': 7}}",
     "batch_input_shape: expected a list"},
    {IMAGE "{'class_name': 'Flatten'}, {'class_name': 'Conv2D', 'config': {'filters': 1, "
           "'kernel_size': 1}}",
     "layer 'conv2d' (Conv2D): input shape (None, 2352): expected 4 dimensions: batch, rows, "
     "columns, channels"},
    {IMAGE "{'class_name': 'Flatten'}, {'class_name': 'MaxPooling2D'}",
     "layer 'max_pooling2d' (MaxPooling2D): input shape (None, 2352): expected 4 dimensions"},
    // Structure.
    {"", "the model has 0 layers; expected 1 to 10000"},
    {"{'class_name': 'InputLayer', 'config': {'batch_shape': [null, 3]}}",
     "no layer besides its InputLayer"},
    {"3", "layer 0: expected {\"class_name\": \"...\", \"config\": {...}}, got 3"},
    {"{'config': {}}", "layer 0: expected {\"class_name\""},
    {"{'class_name': 'Dense', 'config': []}", "layer 0: expected {\"class_name\""},
    {IMAGE "{'class_name': 'Hashing', 'config': {}}",
     "this layer is not supported: strings are not supported; make numbers of them"},
    {IMAGE "{'class_name': 'Solarization', 'config': {}}",
     "layer 'solarization' (Solarization): this layer is not supported yet; supported: InputLayer, "
     "Dense,"},
    {IMAGE "{'class_name': 'Conv2d', 'config': {'name': 'first'}}",
     "layer 'first' (Conv2d): this layer is unknown; did you mean 'Conv2D'?"},
    {IMAGE "{'class_name': 'ConvLSTM1D', 'config': {}}",
     "layer 'conv_lstm1d' (ConvLSTM1D): this layer is not supported: take "
     "TimeDistributed(Conv2D)"},
    {IMAGE "{'class_name': 'Lambda', 'config': {}}",
     "layer 'lambda' (Lambda): this layer is not supported: a file does not hold Python code; "
     "write it with operators and keras.ops"},
    {IMAGE "{'class_name': 'RandomHue', 'config': {}}",
     "layer 'random_hue' (RandomHue): this layer is not supported: change the data"},
    {IMAGE "{'class_name': 'RandAugment', 'config': {}}", "Average, ...\n"},
    {IMAGE "{'class_name': 'Equalization', 'config': {}}",
     "this layer is not supported yet; supported: "},
    {IMAGE "{'class_name': 'Sequential', 'config': {}}",
     "model 'sequential': layers: expected a list, got nothing"},
    {IMAGE "{'class_name': 'Dense', 'module': 'my.layers', 'config': {'units': 1}}",
     "layer 'dense' (Dense): only Keras's own layers are supported; make it of the layers and "
     "operations that docs/models.md lists"},
    {IMAGE "{'class_name': 'Dense', 'registered_name': 'my>Dense', 'config': {'units': 1}}",
     "layer 'dense' (Dense): only Keras's own layers are supported"},
    {IMAGE "{'class_name': 'Dense', 'confg': {'units': 1}}",
     "layer 1: unknown key 'confg' = {\"units\": 1}; did you mean 'config'?"},
    {IMAGE "{'class_name': 'Flatten', 'inbound_nodes': [[]]}",
     "layer 1: inbound_nodes in a Sequential model"},
    {IMAGE "{'class_name': 'Flatten', 'config': {'name': 'a//b'}}",
     "layer 1: name: expected 1 to 199 letters, '/' only between others, got \"a//b\""},
    {IMAGE "{'class_name': 'Flatten', 'config': {'name': '/a'}}", "layer 1: name: expected"},
    {IMAGE "{'class_name': 'Flatten', 'config': {'name': 'a/'}}", "layer 1: name: expected"},
    {IMAGE "{'class_name': 'Flatten', 'config': {'name': ''}}", "layer 1: name: expected"},
    {IMAGE "{'class_name': 'Flatten', 'config': {'name': 3}}", "layer 1: name: expected"},
    {IMAGE "{'class_name': 'Flatten', 'config': {'name': 'a\\nb'}}", "layer 1: name: expected"},
    {IMAGE "{'class_name': 'Flatten', 'config': {'name': 'a'}}, {'class_name': 'Flatten', "
           "'config': {'name': 'a'}}",
     "two layers are called 'a'"},
};

TABLE_TEST(layers_that_do_not_fit_are_refused, layers)
{
    refuses(layers[_i][0], layers[_i][1]);
}

TEST(all_problems_of_a_model_are_said_at_once)
{
    static const char *const lines[] = {
        "layer 'c' (Conv2D): padding: expected \"valid\" or \"same\", got \"causal\"",
        "layer 'c' (Conv2D): activation: 'celu' is not supported yet; supported: linear",
        "layer 'solarization' (Solarization): this layer is not supported yet; supported: ",
        "layer 'equalization' (Equalization): this layer is not supported yet",
        "layer 'mine' (Dens): this layer is unknown; did you mean 'Dense'?",
        "layer 'd' (Dense): unit: unknown option; did you mean 'units'?",
        "layer 'd' (Dense): units: expected a positive integer, got nothing",
        "layer 'd' (Dense): kernel_regularizer: OrthogonalRegularizer is not supported, and",
    };
    struct ls_graph *graph = NULL;
    ck_assert_int_eq(
        build_layers(
            &graph,
            IMAGE "{'class_name': 'Conv2D', 'config': {'name': 'c', 'filters': 4, "
                  "'kernel_size': 3, 'padding': 'causal', 'activation': 'celu'}},"
                  "{'class_name': 'Solarization'}, {'class_name': 'Equalization'},"
                  "{'class_name': 'Dens', 'config': {'name': 'mine'}},"
                  "{'class_name': 'Dense', 'config': {'name': 'd', 'unit': 4, "
                  "'kernel_regularizer': {'class_name': 'OrthogonalRegularizer', 'config': {}}}},"
                  "{'class_name': 'Flatten'}"),
        LS_BAD_INPUT);
    ck_assert_ptr_null(graph);
    const char *from = logged;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        from = strstr(from, lines[i]);
        ck_assert_msg(from != NULL, "expected, in this order: %s\ngot:\n%s", lines[i], logged);
    }
    ck_assert_int_eq(logged_lines, sizeof(lines) / sizeof(lines[0]));
    ck_assert_ptr_null(
        strstr(strstr(logged, "(Equalization)"), "supported: ")); // the list is there once
}

TEST(options_of_a_reshape_after_a_refused_layer_are_checked)
{
    struct ls_graph *graph = NULL;
    ck_assert_int_eq(build_layers(&graph, IMAGE
                                  "{'class_name': 'ConvLSTM1D'}, "
                                  "{'class_name': 'Reshape', 'config': {'target_shape': [2]}}, "
                                  "{'class_name': 'Reshape', 'config': {'target_shape': 5}}"),
                     LS_BAD_INPUT);
    ck_assert_int_eq(logged_lines, 2);
    ck_assert_ptr_nonnull(strstr(logged, "'reshape_1' (Reshape): target_shape: expected a list"));
}

TEST(of_very_many_problems_the_first_twenty_are_said)
{
    json_t *list = json_array(), *layer = json_pack("{s:s}", "class_name", "ConvLSTM1D");
    for (int i = 0; i < 100; i++)
        json_array_append(list, layer);
    json_t *model =
        json_pack("{s:s, s:{s:o}}", "class_name", "Sequential", "config", "layers", list);
    struct ls_graph *graph = NULL;
    capture_log();
    ck_assert_int_eq(ls_model_build("model.json", model, NULL, &graph), LS_BAD_INPUT);
    ck_assert_int_eq(logged_lines, 21);
    // The twenty-first is that the model does not give its input shape.
    ck_assert_ptr_nonnull(strstr(logged, "model.json: and 81 more problems\n"));
    json_decref(layer);
    json_decref(model);
}

TEST(a_class_with_a_very_long_name_is_refused)
{
    char text[6000], class_name[2000];
    memset(class_name, 'A', sizeof(class_name) - 1);
    class_name[sizeof(class_name) - 1] = '\0';
    for (size_t i = 0; i < sizeof(class_name) - 1; i += 2)
        class_name[i] = 'a'; // each capital gets a separator
    snprintf(text, sizeof(text), IMAGE "{'class_name': '%s'}, {'class_name': '%s'}", class_name,
             class_name);
    struct ls_graph *graph = NULL;
    ck_assert_int_eq(build_layers(&graph, text), LS_BAD_INPUT);
    ck_assert_int_eq(logged_lines, 2);
}

// What only training minds does not keep a model from being read: its predictions do not depend on
// it.
static const struct {
    const char *options, *line;
    bool loss; // of an evaluation, too
} trainings[] = {
    {"'kernel_regularizer': {'class_name': 'OrthogonalRegularizer', 'config': {'factor': 0.01}}",
     "layer 'd' (Dense): kernel_regularizer: OrthogonalRegularizer is not supported, and ignoring "
     "it would "
     "change the loss and the training; set it to null to train without it",
     true},
    {"'bias_regularizer': 'mine'", "bias_regularizer: mine is not supported", true},
    {"'bias_regularizer': {'class_name': 'L1', 'config': {'l1': -1}}",
     "bias_regularizer: L1 is not supported", true},
    {"'bias_regularizer': {'module': 'mine', 'class_name': 'L1', 'config': {}}",
     "bias_regularizer: L1 is not supported", true},
    {"'activity_regularizer': 'mine'", "activity_regularizer: mine is not supported", true},
    {"'bias_constraint': 'non_neg'",
     "layer 'd' (Dense): bias_constraint: non_neg is not supported, and ignoring it would change "
     "the training; set it to null to train without it",
     false},
    {"'kernel_constraint': {'class_name': 'MaxNorm', 'config': {}}",
     "kernel_constraint: MaxNorm is not supported", false},
};

TABLE_TEST(what_only_training_minds_is_refused_for_training, trainings)
{
    char text[800];
    snprintf(text, sizeof(text),
             "{'class_name': 'Sequential', 'config': {'layers': [" IMAGE
             "{'class_name': 'Dense', 'config': {'name': 'd', 'units': 4, %s}}]}}",
             trainings[_i].options);
    struct ls_graph *graph = NULL;
    ck_assert_int_eq(build_text(text, NULL, &graph), LS_OK);
    ck_assert_int_eq(logged_lines, 0);
    ls_graph_destroy(graph);
    for (char *letter = text; *letter; letter++)
        if (*letter == '\'')
            *letter = '"';
    json_t *model = json_loads(text, 0, NULL);
    capture_log();
    ck_assert_int_eq(ls_model_check_training("model.json", model, true), LS_BAD_INPUT);
    ck_assert_int_eq(logged_lines, 1);
    ck_assert_msg(strstr(logged, trainings[_i].line) != NULL, "expected: %s\ngot: %s",
                  trainings[_i].line, logged);
    capture_log();
    ck_assert_int_eq(ls_model_check_training("model.json", model, false),
                     trainings[_i].loss ? LS_BAD_INPUT : LS_OK);
    ck_assert_int_eq(logged_lines, trainings[_i].loss);
    json_decref(model);
}

static const char *const models[][2] = {
    {"[]", "not a Keras model"},
    {"{}", "not a Keras model"},
    {"{'class_name': 7}", "class_name: expected Keras's \"Sequential\" or \"Functional\", got 7"},
    {"{'class_name': 'Transformer'}",
     "class_name: expected Keras's \"Sequential\" or \"Functional\", got \"Transformer\""},
    {"{'class_name': 'Functional', 'config': {'layers': []}}",
     "the model has 0 layers; expected 1 to 10000"},
    {"{'class_name': 'Model', 'config': [1]}", "config: expected an object, got [1]"},
    {"{'class_name': 'Sequential'}", "config: expected an object, got nothing"},
    {"{'class_name': 'Sequential', 'config': 'x'}", "config: expected an object, got \"x\""},
    {"{'class_name': 'Sequential', 'config': {}}", "layers: expected a list, got nothing"},
    {"{'class_name': 'Sequential', 'config': {'layers': {}}}", "layers: expected a list, got {}"},
    {"{'class_name': 'Sequential', 'config': {'layers': [], 'layer': 1}}",
     "config: unknown key 'layer' = 1; did you mean 'layers'?"},
    {"{'class_name': 'Sequential', 'config': {'name': 4, 'layers': []}}", "config: name: expected"},
    {"{'class_name': 'Sequential', 'confg': {}, 'config': {}}", "the model: unknown key 'confg'"},
    {"{'class_name': 'Sequential', 'config': {'dtype': 'float64', 'layers': [{'class_name': "
     "'Flatten', 'config': {'batch_input_shape': [null, 4]}}]}}",
     "dtype: expected float32, mixed_bfloat16 or mixed_float16, got "},
    {"{'class_name': 'Sequential', 'config': {'build_input_shape': 'x', 'layers': [{'class_name': "
     "'Flatten'}]}}",
     "build_input_shape: expected a list"},
};

TABLE_TEST(models_that_do_not_fit_are_refused, models)
{
    refuses_model(models[_i][0], models[_i][1]);
}

static void refuses_file(const char *content, size_t bytes, const char *message)
{
    char path[] = "/tmp/lockstep-model-XXXXXX";
    const int fd = mkstemp(path);
    struct ls_graph *graph = NULL;
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, content, bytes), (ssize_t)bytes);
    close(fd);

    capture_log();
    const enum ls_status status = ls_model_build_file(path, NULL, &graph);
    unlink(path);
    ck_assert_int_eq(status, LS_BAD_INPUT);
    ck_assert_int_eq(logged_lines, 1);
    ck_assert_ptr_nonnull(strstr(logged, path));
    ck_assert_msg(strstr(logged, message) != NULL, "expected: %s\ngot: %s", message, logged);
}

TEST(malformed_json_is_named_by_line_and_column)
{
    static const char *const cases[][2] = {
        {"", ":1:0: malformed JSON: "},
        {"{\n  \"class_name\": \"Sequential\",\n  \"config\": oops\n}", ":3:16: malformed JSON: "},
        {"{\"a\": 1,\n \"a\": 2}", ":2:4: malformed JSON: duplicate object key"},
        {"{\"a\": 1e999}", "malformed JSON: real number overflow"},
        {"{\"a\": 99999999999999999999}", "malformed JSON: too big integer"},
        {"{} {}",
         "malformed JSON: there is more behind the end of the JSON, as where two documents"},
        {" \"{\\\"class_name\\\": 1}\"", "malformed JSON: the JSON is a text that holds JSON"},
        {"\xef\xbb\xbf{}", "class_name"}, // a byte order mark is no error
        {"\xff\xfe{\0", "a text in UTF-16"},
        {"{\"a\": \"\xff\"}", "malformed JSON: "},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        refuses_file(cases[i][0], strlen(cases[i][0]), cases[i][1]);
}

TEST(json_nested_without_end_is_refused)
{
    enum { DEPTH = 200000 };
    char *text = malloc(DEPTH);
    ck_assert_ptr_nonnull(text);
    memset(text, '[', DEPTH);
    refuses_file(text, DEPTH, "malformed JSON: maximum parsing depth reached");
    free(text);
}

// A sparse file: nothing of it may be read.
TEST(a_file_larger_than_any_model_is_refused)
{
    char path[] = "/tmp/lockstep-model-XXXXXX";
    const int fd = mkstemp(path);
    struct ls_graph *graph = NULL;
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "{", 1), 1);
    ck_assert_int_eq(ftruncate(fd, (off_t)1 << 40), 0);
    close(fd);
    capture_log();
    ck_assert_int_eq(ls_model_build_file(path, NULL, &graph), LS_BAD_INPUT);
    unlink(path);
    ck_assert_int_eq(logged_lines, 1);
    ck_assert_ptr_nonnull(strstr(logged, "the model file has 1099511627776 bytes; the JSON of a "
                                         "model has at most 64 MiB"));
}

TEST(more_values_than_any_model_has_are_refused)
{
    enum { BYTES = 3 * 4000000 };
    char *text = malloc(BYTES);
    ck_assert_ptr_nonnull(text);
    for (int i = 0; i < BYTES; i++)
        text[i] = "{},"[i % 3];
    text[0] = '[';
    refuses_file(text, BYTES, ": the JSON has more than 4000000 values; a model has at most");
    free(text);
}

TEST(a_value_of_any_size_is_shown_short)
{
    enum { COUNT = 1000000 };
    json_t *list = json_array();
    char text[16], whole[8];
    for (int i = 0; i < COUNT; i++)
        json_array_append_new(list, json_integer(i));
    ck_assert_str_eq(ls_json_text(list, text, sizeof(text)), "[0, 1, 2, 3,...");
    json_decref(list);
    list = json_pack("[i, s]", 1, "a");
    ck_assert_str_eq(ls_json_text(list, whole, sizeof(whole)), "[1, ...");
    ck_assert_str_eq(ls_json_text(list, text, sizeof(text)), "[1, \"a\"]");
    ck_assert_str_eq(ls_json_text(NULL, text, sizeof(text)), "nothing");
    json_decref(list);
}

TEST(activations_nested_deeply_end_in_one_refusal)
{
    enum { DEPTH = 900 };
    json_t *activation = json_string("reluu");
    for (int i = 0; i < DEPTH; i++)
        activation = json_pack("{s:s, s:{s:o}}", "class_name", "Activation", "config", "activation",
                               activation);
    json_t *model = json_pack("{s:s, s:{s:[{s:s, s:{s:[n, i], s:i, s:o}}]}}", "class_name",
                              "Sequential", "config", "layers", "class_name", "Dense", "config",
                              "batch_input_shape", 2, "units", 2, "activation", activation);
    struct ls_graph *graph = NULL;
    capture_log();
    ck_assert_int_eq(ls_model_build("model.json", model, NULL, &graph), LS_BAD_INPUT);
    ck_assert_int_eq(logged_lines, 1);
    ck_assert_ptr_nonnull(strstr(logged, "'reluu' is unknown"));
    json_decref(model);
}

TEST(a_file_that_cannot_be_read_is_named)
{
    struct ls_graph *graph = NULL;
    capture_log();
    ck_assert_int_eq(ls_model_build_file("/nowhere/model.json", NULL, &graph), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(
        logged, "/nowhere/model.json: model file cannot be read: No such file or directory"));
    capture_log();
    ck_assert_int_eq(ls_model_build_file("/", NULL, &graph), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(logged, "/: model file cannot be read: Is a directory"));
    ck_assert_int_eq(logged_lines, 1);
}

TEST(too_many_layers_are_refused)
{
    json_t *list = json_array(), *layer = json_pack("{s:s}", "class_name", "Flatten");
    for (int i = 0; i < 10001; i++)
        json_array_append(list, layer);
    json_t *model =
        json_pack("{s:s, s:{s:o}}", "class_name", "Sequential", "config", "layers", list);
    struct ls_graph *graph = NULL;
    capture_log();
    ck_assert_int_eq(ls_model_build("model.json", model, NULL, &graph), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(logged, "the model has 10001 layers; expected 1 to 10000"));
    json_decref(layer);
    json_decref(model);
}

TEST_SECONDS(100);
