// SPDX-License-Identifier: Apache-2.0
// Every layer: the shapes, variables and operations that its options make.
#include "tests/layers/support.h"

#include "core/base/random.h"

#include <string.h>

#define IMAGE "{'class_name': 'InputLayer', 'config': {'batch_shape': [null, 28, 28, 1]}},"
#define VECTOR "{'class_name': 'InputLayer', 'config': {'batch_shape': [null, 12]}},"
#define LAYER(class_name, config) \
    "{'class_name': '" class_name "', 'config': {'name': 'layer'" config "}}"

TEST(dense_has_kernel_bias_and_units)
{
    struct ls_graph *graph = graph_of(VECTOR LAYER("Dense", ", 'units': 5"));
    ck_assert_str_eq(layer_shape(graph, "layer"), "(None, 5)");
    ck_assert_str_eq(parameter_shape(graph, "layer/kernel"), "(12, 5)");
    ck_assert_str_eq(parameter_shape(graph, "layer/bias"), "(5,)");
    ck_assert_uint_eq(graph->operation_count, 1);
    ck_assert_ptr_eq(graph->outputs[0], only_operation(graph, LS_OP_DENSE)->outputs[0]);
    ls_graph_destroy(graph);
}

TEST(dense_without_bias_has_only_a_kernel)
{
    struct ls_graph *graph = graph_of(VECTOR LAYER("Dense", ", 'units': 5, 'use_bias': false"));
    ck_assert_uint_eq(graph->parameter_count, 1);
    ck_assert_uint_eq(only_operation(graph, LS_OP_DENSE)->input_count, 2);
    ls_graph_destroy(graph);
}

TEST(dense_acts_on_the_last_dimension)
{
    struct ls_graph *graph = graph_of(IMAGE LAYER("Dense", ", 'units': 5"));
    ck_assert_str_eq(layer_shape(graph, "layer"), "(None, 28, 28, 5)");
    ck_assert_str_eq(parameter_shape(graph, "layer/kernel"), "(1, 5)");
    ls_graph_destroy(graph);
}

TEST(conv2d_defaults_are_stride_one_valid_with_bias_glorot)
{
    struct ls_graph *graph = graph_of(IMAGE LAYER("Conv2D", ", 'filters': 7, 'kernel_size': 3"));
    const struct ls_operation *operation = only_operation(graph, LS_OP_CONV2D);
    const struct ls_initializer *kernel = &parameter_of(graph, "layer/kernel")->initializer;
    ck_assert_str_eq(layer_shape(graph, "layer"), "(None, 26, 26, 7)");
    ck_assert_str_eq(parameter_shape(graph, "layer/kernel"), "(3, 3, 1, 7)");
    ck_assert_int_eq(operation->attributes.strides[0], 1);
    ck_assert_int_eq(operation->attributes.dilation[1], 1);
    ck_assert_int_eq(operation->attributes.groups, 1);
    ck_assert_int_eq(kernel->kind, LS_VARIANCE_SCALING);
    ck_assert_int_eq(kernel->mode, LS_FAN_AVERAGE);
    ck_assert_int_eq(kernel->distribution, LS_DISTRIBUTION_UNIFORM);
    ck_assert_int_eq(parameter_of(graph, "layer/bias")->initializer.kind, LS_ZEROS);
    ck_assert_uint_eq(graph->operation_count, 1);
    ls_graph_destroy(graph);
}

// Shapes as Keras's compute_output_shape gives them for (None, 28, 28, 1).
TEST(conv2d_windows_are_those_of_keras)
{
    static const struct {
        const char *options, *shape;
        int32_t padding[4];
    } cases[] = {
        {", 'filters': 2, 'kernel_size': [3, 3], 'strides': 2, 'padding': 'same'",
         "(None, 14, 14, 2)",
         {0, 1, 0, 1}},
        {", 'filters': 2, 'kernel_size': [5, 2], 'padding': 'SAME'",
         "(None, 28, 28, 2)",
         {2, 2, 0, 1}},
        {", 'filters': 2, 'kernel_size': [5, 2], 'strides': [3, 1]", "(None, 8, 27, 2)", {0}},
        {", 'filters': 2, 'kernel_size': 28, 'padding': 'valid'", "(None, 1, 1, 2)", {0}},
        {", 'filters': 2, 'kernel_size': 40, 'padding': 'same'",
         "(None, 28, 28, 2)",
         {19, 20, 19, 20}},
        {", 'filters': 2, 'kernel_size': 3, 'dilation_rate': [2, 4]", "(None, 24, 20, 2)", {0}},
        {", 'filters': 2, 'kernel_size': 1, 'strides': 30, 'padding': 'same'",
         "(None, 1, 1, 2)",
         {0}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[512];
        snprintf(text, sizeof(text), IMAGE LAYER("Conv2D", "%s"), cases[i].options);
        struct ls_graph *graph = graph_of(text);
        ck_assert_str_eq(layer_shape(graph, "layer"), cases[i].shape);
        ck_assert_mem_eq(only_operation(graph, LS_OP_CONV2D)->attributes.padding, cases[i].padding,
                         sizeof(cases[i].padding));
        ls_graph_destroy(graph);
    }
}

TEST(conv2d_groups_share_the_channels)
{
    struct ls_graph *graph =
        graph_of("{'class_name': 'InputLayer', 'config': {'batch_shape': [null, 9, 9, 6]}}," LAYER(
            "Conv2D", ", 'filters': 4, 'kernel_size': 3, 'groups': 2"));
    ck_assert_str_eq(parameter_shape(graph, "layer/kernel"), "(3, 3, 3, 4)");
    ck_assert_int_eq(only_operation(graph, LS_OP_CONV2D)->attributes.groups, 2);
    ls_graph_destroy(graph);
}

TEST(pooling_moves_by_its_window_unless_told_otherwise)
{
    static const struct {
        const char *options, *shape;
        int32_t padding[4];
    } cases[] = {
        {"", "(None, 14, 14, 1)", {0}},
        {", 'pool_size': 3", "(None, 9, 9, 1)", {0}},
        {", 'pool_size': [2, 5], 'strides': null", "(None, 14, 5, 1)", {0}},
        {", 'pool_size': 3, 'strides': 2", "(None, 13, 13, 1)", {0}},
        {", 'pool_size': 3, 'padding': 'same', 'data_format': 'channels_last'",
         "(None, 10, 10, 1)",
         {1, 1, 1, 1}},
        {", 'pool_size': 3, 'strides': [2, 1], 'padding': 'same'",
         "(None, 14, 28, 1)",
         {0, 1, 1, 1}},
    };
    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
        const bool largest = i % 2 == 0;
        char text[512];
        snprintf(text, sizeof(text), IMAGE LAYER("%s", "%s"),
                 largest ? "MaxPooling2D" : "AveragePooling2D", cases[i / 2].options);
        struct ls_graph *graph = graph_of(text);
        const struct ls_operation *operation =
            only_operation(graph, largest ? LS_OP_MAX_POOL2D : LS_OP_AVERAGE_POOL2D);
        ck_assert_str_eq(layer_shape(graph, "layer"), cases[i / 2].shape);
        ck_assert_mem_eq(operation->attributes.padding, cases[i / 2].padding,
                         sizeof(cases[0].padding));
        ls_graph_destroy(graph);
    }
}

TEST(flatten_makes_one_dimension_and_leaves_one_as_it_is)
{
    struct ls_graph *graph = graph_of(IMAGE LAYER("Flatten", "") ", {'class_name': 'Flatten'}");
    ck_assert_str_eq(layer_shape(graph, "layer"), "(None, 784)");
    ck_assert_str_eq(layer_shape(graph, "flatten"), "(None, 784)");
    ck_assert_uint_eq(graph->operation_count, 1);
    ls_graph_destroy(graph);
}

TEST(reshape_fills_in_what_is_open)
{
    static const char *const cases[][2] = {{"[3, 4]", "(None, 3, 4)"},
                                           {"[-1]", "(None, 12)"},
                                           {"[2, -1, 2]", "(None, 2, 3, 2)"},
                                           {"[12, -1]", "(None, 12, 1)"},
                                           {"[1, 1, 12]", "(None, 1, 1, 12)"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[512];
        snprintf(text, sizeof(text), VECTOR LAYER("Reshape", ", 'target_shape': %s"), cases[i][0]);
        struct ls_graph *graph = graph_of(text);
        ck_assert_str_eq(layer_shape(graph, "layer"), cases[i][1]);
        ls_graph_destroy(graph);
    }
}

TEST(each_dropout_has_a_key_of_its_own_and_rate_zero_is_nothing)
{
    struct ls_graph *graph = graph_of(
        VECTOR
        "{'class_name': 'Dropout', 'config': {'rate': 0.25, 'seed': null, 'noise_shape': null}},"
        "{'class_name': 'Dropout', 'config': {'rate': 0}},"
        "{'class_name': 'Dropout', 'config': {'rate': 0.5}}");
    ck_assert_uint_eq(graph->operation_count, 2);
    ck_assert_uint_eq(graph->operations[0].attributes.key, 0);
    ck_assert_uint_eq(graph->operations[1].attributes.key, 1);
    ck_assert_float_eq(graph->operations[0].attributes.rate, 0.25f);
    ck_assert_uint_eq(graph->dropout_count, 2);
    ls_graph_destroy(graph);
}

// EfficientNet drops whole examples so.
TEST(a_noise_shape_says_what_shares_a_draw)
{
    struct ls_graph *graph = graph_of(
        "{'class_name': 'InputLayer', 'config': {'batch_shape': [null, 4, 5, 3]}},"
        "{'class_name': 'Dropout', 'config': {'rate': 0.25, 'noise_shape': [null, 1, 5, 1]}}");
    static const int32_t axes[LS_MAX_DIMS] = {0, 1, 0, 1};
    ck_assert_mem_eq(graph->operations[0].attributes.axes, axes, sizeof(axes));
    ls_graph_destroy(graph);
}

// Layer with options, and the operation that it must become.
static const struct {
    const char *class_name, *options;
    uint32_t op, function; // LS_OP_NONE: no operation
    float alpha;
} activations[] = {
    {"Activation", ", 'activation': 'linear'", LS_OP_NONE, 0, 0},
    {"Activation", ", 'activation': null", LS_OP_NONE, 0, 0},
    {"Activation", ", 'activation': 'relu'", LS_OP_ACTIVATION, LS_RELU, 0},
    {"Activation", ", 'activation': 'relu6'", LS_OP_ACTIVATION, LS_RELU6, 0},
    {"Activation", ", 'activation': 'leaky_relu'", LS_OP_ACTIVATION, LS_LEAKY_RELU, 0.2f},
    {"Activation", ", 'activation': 'elu'", LS_OP_ACTIVATION, LS_ELU, 1},
    {"Activation", ", 'activation': 'sigmoid'", LS_OP_ACTIVATION, LS_SIGMOID, 0},
    {"Activation", ", 'activation': 'tanh'", LS_OP_ACTIVATION, LS_TANH, 0},
    {"Activation", ", 'activation': 'softplus'", LS_OP_ACTIVATION, LS_SOFTPLUS, 0},
    {"Activation", ", 'activation': 'exponential'", LS_OP_ACTIVATION, LS_EXPONENTIAL, 0},
    {"Activation", ", 'activation': 'softsign'", LS_OP_ACTIVATION, LS_SOFTSIGN, 0},
    {"Activation", ", 'activation': 'softmax'", LS_OP_SOFTMAX, 0, 0},
    {"Activation",
     ", 'activation': {'module': 'builtins', 'class_name': 'function', 'config': 'tanh', "
     "'registered_name': 'function'}",
     LS_OP_ACTIVATION, LS_TANH, 0},
    {"Activation",
     ", 'activation': {'module': 'keras.layers', 'class_name': 'LeakyReLU', 'config': {'name': "
     "'leaky_re_lu', "
     "'trainable': true, 'dtype': {'module': 'keras', 'class_name': 'DTypePolicy', 'config': "
     "{'name': 'float32'}, "
     "'registered_name': null}, 'negative_slope': 0.5}, 'registered_name': null}",
     LS_OP_ACTIVATION, LS_LEAKY_RELU, 0.5f},
    {"Activation", ", 'activation': {'class_name': 'ReLU', 'config': {'max_value': 6}}",
     LS_OP_ACTIVATION, LS_RELU6, 0},
    {"ReLU", "", LS_OP_ACTIVATION, LS_RELU, 0},
    {"ReLU", ", 'max_value': null, 'negative_slope': 0.0, 'threshold': 0.0", LS_OP_ACTIVATION,
     LS_RELU, 0},
    {"ReLU", ", 'max_value': 6.0", LS_OP_ACTIVATION, LS_RELU6, 0},
    {"ReLU", ", 'negative_slope': 0.25", LS_OP_ACTIVATION, LS_LEAKY_RELU, 0.25f},
    {"LeakyReLU", "", LS_OP_ACTIVATION, LS_LEAKY_RELU, 0.3f},
    {"LeakyReLU", ", 'negative_slope': 0.125", LS_OP_ACTIVATION, LS_LEAKY_RELU, 0.125f},
    {"LeakyReLU", ", 'alpha': 0.75", LS_OP_ACTIVATION, LS_LEAKY_RELU, 0.75f},
    {"LeakyReLU", ", 'negative_slope': 0", LS_OP_ACTIVATION, LS_RELU, 0},
    {"ELU", "", LS_OP_ACTIVATION, LS_ELU, 1},
    {"ELU", ", 'alpha': 2", LS_OP_ACTIVATION, LS_ELU, 2},
    {"Softmax", "", LS_OP_SOFTMAX, 0, 0},
    {"Softmax", ", 'axis': -1", LS_OP_SOFTMAX, 0, 0},
    {"Softmax", ", 'axis': [-1]", LS_OP_SOFTMAX, 0, 0},
};

TABLE_TEST(activations_become_one_operation, activations)
{
    char text[1024];
    snprintf(text, sizeof(text), VECTOR LAYER("%s", "%s"), activations[_i].class_name,
             activations[_i].options);
    struct ls_graph *graph = graph_of(text);
    ck_assert_str_eq(layer_shape(graph, "layer"), "(None, 12)");
    ck_assert_uint_eq(graph->operation_count, activations[_i].op == LS_OP_NONE ? 0 : 1);
    if (activations[_i].op != LS_OP_NONE) {
        const struct ls_operation *operation = only_operation(graph, activations[_i].op);
        ck_assert_uint_eq(operation->attributes.activation, activations[_i].function);
        ck_assert_float_eq(operation->attributes.activation_alpha, activations[_i].alpha);
    }
    ls_graph_destroy(graph);
}

TEST(dense_and_conv2d_add_their_activation)
{
    struct ls_graph *graph =
        graph_of(IMAGE "{'class_name': 'Conv2D', 'config': {'filters': 2, 'kernel_size': 3, "
                       "'activation': 'relu'}},"
                       "{'class_name': 'Dense', 'config': {'units': 3, 'activation': 'softmax'}}");
    ck_assert_uint_eq(graph->operation_count, 4);
    ck_assert_uint_eq(graph->operations[1].op, LS_OP_ACTIVATION);
    ck_assert_uint_eq(graph->operations[3].op, LS_OP_SOFTMAX);
    ck_assert_uint_eq(graph->operations[3].layer, graph->operations[2].layer);
    ls_graph_destroy(graph);
}

static const struct {
    const char *text;
    struct ls_initializer wanted;
} initializers[] = {
    {"'zeros'", {.kind = LS_ZEROS}},
    {"'Ones'", {.kind = LS_ONES}},
    {"{'class_name': 'Constant', 'config': {'value': 0.5}}", {.kind = LS_CONSTANT, .value = 0.5}},
    {"'uniform'", {.kind = LS_RANDOM_UNIFORM, .minimum = -0.05, .maximum = 0.05}},
    {"{'class_name': 'RandomUniform', 'config': {'minval': 0, 'maxval': 2, 'seed': null}}",
     {.kind = LS_RANDOM_UNIFORM, .minimum = 0, .maximum = 2}},
    {"'random_normal'", {.kind = LS_RANDOM_NORMAL, .deviation = 0.05}},
    {"{'class_name': 'TruncatedNormal', 'config': {'mean': 1.0, 'stddev': 0.25}}",
     {.kind = LS_TRUNCATED_NORMAL, .mean = 1, .deviation = 0.25}},
    {"'glorot_normal'", {.kind = LS_VARIANCE_SCALING, .scale = 1, .mode = LS_FAN_AVERAGE}},
    {"'he_uniform'",
     {.kind = LS_VARIANCE_SCALING, .scale = 2, .distribution = LS_DISTRIBUTION_UNIFORM}},
    {"'HeNormal'", {.kind = LS_VARIANCE_SCALING, .scale = 2}},
    {"'lecun_uniform'",
     {.kind = LS_VARIANCE_SCALING, .scale = 1, .distribution = LS_DISTRIBUTION_UNIFORM}},
    {"{'module': 'keras.initializers', 'class_name': 'LecunNormal', 'config': {'seed': null, "
     "'input_axes': null, "
     "'output_axes': null}, 'registered_name': null}",
     {.kind = LS_VARIANCE_SCALING, .scale = 1}},
    {"{'class_name': 'VarianceScaling', 'config': {'scale': 3, 'mode': 'fan_out', 'distribution': "
     "'untruncated_normal', 'seed': null}}",
     {.kind = LS_VARIANCE_SCALING,
      .scale = 3,
      .mode = LS_FAN_OUT,
      .distribution = LS_DISTRIBUTION_NORMAL}},
    {"{'class_name': 'VarianceScaling', 'config': {'scale': 1.0, 'mode': 'fan_avg', "
     "'distribution': 'normal', "
     "'dtype': 'float32'}}",
     {.kind = LS_VARIANCE_SCALING, .scale = 1, .mode = LS_FAN_AVERAGE}},
};

TABLE_TEST(initializers_are_read_in_every_form, initializers)
{
    char text[1024];
    snprintf(text, sizeof(text), VECTOR LAYER("Dense", ", 'units': 3, 'kernel_initializer': %s"),
             initializers[_i].text);
    struct ls_graph *graph = graph_of(text);
    const struct ls_initializer *got = &parameter_of(graph, "layer/kernel")->initializer;
    const struct ls_initializer *wanted = &initializers[_i].wanted;
    ck_assert_int_eq(got->kind, wanted->kind);
    ck_assert_int_eq(got->mode, wanted->mode);
    ck_assert_int_eq(got->distribution, wanted->distribution);
    ck_assert_double_eq(got->value, wanted->value);
    ck_assert_double_eq(got->minimum, wanted->minimum);
    ck_assert_double_eq(got->maximum, wanted->maximum);
    ck_assert_double_eq(got->mean, wanted->mean);
    ck_assert_double_eq(got->deviation, wanted->deviation);
    ck_assert_double_eq(got->scale, wanted->scale);
    ls_graph_destroy(graph);
}

TEST(every_kind_has_a_name_a_summary_and_keys)
{
    size_t count = 0;
    for (; ls_layer_kinds[count]; count++) {
        ck_assert(ls_layer_kinds[count]->class_name[0] != '\0');
        ck_assert(ls_layer_kinds[count]->summary[0] != '\0');
        ck_assert_ptr_nonnull(ls_layer_kinds[count]->keys);
        ck_assert(ls_layer_kinds[count]->build != NULL);
    }
    ck_assert_uint_eq(count, 104);
}

TEST_SECONDS(100);
