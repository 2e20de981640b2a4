// SPDX-License-Identifier: Apache-2.0
// Models written in C are those that the same JSON describes.
#include "layers.h"
#include "tests/layers/support.h"

#include <math.h>
#include <string.h>

static enum ls_status build(const struct ls_layer *layers, struct ls_graph **out)
{
    json_t *json = NULL;
    capture_log();
    enum ls_status status = ls_sequential_json("model", layers, &json);
    if (status)
        return status;
    status = ls_model_build("model.json", json, NULL, out);
    json_decref(json);
    return status;
}

static void must_refuse(const struct ls_layer *layers, const char *message)
{
    struct ls_graph *graph = NULL;
    ck_assert_int_eq(build(layers, &graph), LS_BAD_INPUT);
    ck_assert_int_eq(logged_lines, 1);
    ck_assert_msg(strstr(logged, message) != NULL, "expected: %s\ngot: %s", message, logged);
}

TEST(the_cnn_in_c_is_the_built_in_one)
{
    const struct ls_layer layers[] = {LS_INPUT(28, 28, 1),
                                      LS_CONV2D(32, 3, .activation = "relu"),
                                      LS_MAX_POOLING2D(2),
                                      LS_CONV2D(64, 3, .activation = "relu"),
                                      LS_MAX_POOLING2D(2),
                                      LS_FLATTEN(),
                                      LS_DENSE(128, .activation = "relu"),
                                      LS_DENSE(10),
                                      LS_END};
    struct ls_graph *graph = NULL, *built_in = NULL;
    char path[1024];
    ck_assert_int_eq(build(layers, &graph), LS_OK);
    snprintf(path, sizeof(path), "%s/cnn.json", getenv("LOCKSTEP_MODEL_PATH"));
    ck_assert_int_eq(ls_model_build_file(path, NULL, &built_in), LS_OK);

    ck_assert_uint_eq(graph->layer_count, built_in->layer_count);
    for (uint32_t i = 0; i < graph->layer_count; i++) {
        ck_assert_str_eq(graph->layers[i].name, built_in->layers[i].name);
        ck_assert_str_eq(graph->layers[i].class_name, built_in->layers[i].class_name);
        ck_assert(ls_shape_equal(&graph->layers[i].output, &built_in->layers[i].output));
    }
    ck_assert_uint_eq(graph->operation_count, built_in->operation_count);
    for (uint32_t i = 0; i < graph->operation_count; i++)
        ck_assert_mem_eq(&graph->operations[i].attributes, &built_in->operations[i].attributes,
                         sizeof(struct ls_op_attributes));
    ck_assert_uint_eq(parameter_total(graph), 225034);
    ls_graph_destroy(graph);
    ls_graph_destroy(built_in);
}

TEST(a_normalization_in_c_has_keras_s_defaults)
{
    const struct ls_layer layers[] = {
        LS_INPUT(3, 2),
        LS_BATCH_NORMALIZATION(),
        LS_BATCH_NORMALIZATION(.momentum = 0.5, .epsilon = 0.25, .no_scale = true,
                               .beta_initializer = "ones"),
        LS_BATCH_NORMALIZATION(.no_center = true, .frozen = true,
                               .gamma_initializer = "constant:value=2"),
        LS_BATCH_NORMALIZATION(.synchronized = true),
        LS_END};
    static const struct {
        const char *name;
        enum ls_zone zone;
        bool constant;
        double momentum, first;
    } wanted[] = {
        {"batch_normalization/gamma", LS_ZONE_TRAINED, false, 0, 1},
        {"batch_normalization/beta", LS_ZONE_TRAINED, false, 0, 0},
        {"batch_normalization/moving_mean", LS_ZONE_STATISTICS, false, 0.99, 0},
        {"batch_normalization/moving_variance", LS_ZONE_STATISTICS, false, 0.99, 1},
        {"batch_normalization_1/gamma", LS_ZONE_FROZEN, true, 0, 1},
        {"batch_normalization_1/beta", LS_ZONE_TRAINED, false, 0, 1},
        {"batch_normalization_1/moving_mean", LS_ZONE_STATISTICS, false, 0.5, 0},
        {"batch_normalization_1/moving_variance", LS_ZONE_STATISTICS, false, 0.5, 1},
        {"batch_normalization_2/gamma", LS_ZONE_FROZEN, false, 0, 2},
        {"batch_normalization_2/beta", LS_ZONE_FROZEN, true, 0, 0},
        {"batch_normalization_2/moving_mean", LS_ZONE_FROZEN, false, 0, 0},
        {"batch_normalization_2/moving_variance", LS_ZONE_FROZEN, false, 0, 1},
        {"batch_normalization_3/gamma", LS_ZONE_TRAINED, false, 0, 1},
        {"batch_normalization_3/beta", LS_ZONE_TRAINED, false, 0, 0},
        {"batch_normalization_3/moving_mean", LS_ZONE_STATISTICS, false, 0.99, 0},
        {"batch_normalization_3/moving_variance", LS_ZONE_STATISTICS, false, 0.99, 1},
    };
    struct ls_graph *graph = NULL;
    ck_assert_int_eq(build(layers, &graph), LS_OK);
    ck_assert_uint_eq(graph->parameter_count, sizeof(wanted) / sizeof(wanted[0]));
    for (uint32_t i = 0; i < graph->parameter_count; i++) {
        const struct ls_tensor *parameter = graph->parameters[i];
        float values[2];
        ck_assert_str_eq(parameter->name, wanted[i].name);
        ck_assert_int_eq(parameter->zone, wanted[i].zone);
        ck_assert_int_eq(parameter->constant, wanted[i].constant);
        ck_assert_double_eq_tol(parameter->momentum, wanted[i].momentum, 1e-12);
        ls_initialize(parameter, 0, values);
        ck_assert_double_eq((double)values[1], wanted[i].first);
    }
    static const uint32_t ops[] = {LS_OP_BATCH_NORMALIZATION,
                                   LS_OP_BATCH_STATISTICS,
                                   LS_OP_BATCH_NORMALIZATION,
                                   LS_OP_BATCH_STATISTICS,
                                   LS_OP_BATCH_NORMALIZATION_INFERENCE,
                                   LS_OP_BATCH_MOMENTS,
                                   LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED,
                                   LS_OP_BATCH_STATISTICS};
    static const float epsilons[] = {1e-3f, 0, 0.25f, 0, 1e-3f, 1e-3f, 1e-3f, 0};
    ck_assert_uint_eq(graph->operation_count, 8);
    for (uint32_t i = 0; i < 8; i++) {
        ck_assert_uint_eq(graph->operations[i].op, ops[i]);
        ck_assert_float_eq(graph->operations[i].attributes.epsilon, epsilons[i]);
    }
    ls_graph_destroy(graph);
}

TEST(every_option_can_be_given_in_c)
{
    const struct ls_layer layers[] = {
        LS_INPUT(20, 20, 4),
        LS_CONV2D(6, 5, .kernel_columns = 3, .strides = 2, .strides_columns = 1, .padding = "same",
                  .groups = 2, .no_bias = true, .kernel_initializer = "he_normal", .name = "first"),
        LS_CONV2D(4, 3, .dilation_rate = 2, .bias_initializer = "constant:value=0.5",
                  .data_format = "channels_last"),
        LS_AVERAGE_POOLING2D(2, .strides = 1, .padding = "same"),
        LS_MAX_POOLING2D(3, .pool_columns = 2),
        LS_RELU(.max_value = 6),
        LS_RELU(),
        LS_LEAKY_RELU(0.5),
        LS_ELU(2),
        LS_RESHAPE(-1, 4),
        LS_DENSE(3, .kernel_initializer =
                        "variance_scaling:scale=2,mode=fan_avg,distribution=uniform"),
        LS_DROPOUT(0.25),
        LS_DROPOUT(0),
        LS_ACTIVATION("tanh"),
        LS_SOFTMAX(),
        LS_END};
    struct ls_graph *graph = NULL;
    const enum ls_status status = build(layers, &graph);
    ck_assert_msg(status == LS_OK, "%s", logged);
    ck_assert_str_eq(layer_shape(graph, "first"), "(None, 10, 20, 6)");
    ck_assert_str_eq(parameter_shape(graph, "first/kernel"), "(5, 3, 2, 6)");
    ck_assert_str_eq(layer_shape(graph, "conv2d"), "(None, 6, 16, 4)");
    ck_assert_double_eq(parameter_of(graph, "conv2d/bias")->initializer.value, 0.5);
    ck_assert_str_eq(layer_shape(graph, "average_pooling2d"), "(None, 6, 16, 4)");
    ck_assert_str_eq(layer_shape(graph, "max_pooling2d"), "(None, 2, 8, 4)");
    ck_assert_str_eq(layer_shape(graph, "reshape"), "(None, 16, 4)");
    ck_assert_str_eq(parameter_shape(graph, "dense/kernel"), "(4, 3)");
    ck_assert_int_eq(parameter_of(graph, "dense/kernel")->initializer.mode, LS_FAN_AVERAGE);
    ck_assert_double_eq(parameter_of(graph, "dense/kernel")->initializer.scale, 2);
    ck_assert_uint_eq(operation_total(graph, LS_OP_ACTIVATION), 5);
    ck_assert_uint_eq(operation_total(graph, LS_OP_DROPOUT), 1);
    ck_assert_uint_eq(operation_total(graph, LS_OP_SOFTMAX), 1);
    ls_graph_destroy(graph);
}

TEST(layers_of_image_models_can_be_made_in_c)
{
    const struct ls_layer layers[] = {
        LS_INPUT(6, 8, 3),
        LS_RESCALING(0.5, -1),
        LS_ZERO_PADDING2D(0, 1, 2, 3),
        LS_CROPPING2D(1, 0, 0, 1),
        LS_ZERO_PADDING2D(0),
        LS_DEPTHWISE_CONV2D(3, .depth_multiplier = 2, .padding = "same",
                            .depthwise_initializer = "he_normal"),
        LS_GROUP_NORMALIZATION(3, .epsilon = 1e-5),
        LS_PRELU(.options = "{\"shared_axes\": [1, 2]}"),
        LS_SEPARABLE_CONV2D(4, 3, .pointwise_initializer = "constant:value=1", .no_bias = true),
        LS_LAYER_NORMALIZATION(),
        LS_SPATIAL_DROPOUT2D(0.5),
        LS_GAUSSIAN_NOISE(0.1),
        LS_CONV2D_TRANSPOSE(5, 2, .strides = 2, .kernel_regularizer = "l1_l2:l1=0.25,l2=0.5",
                            .bias_regularizer = "l2"),
        LS_UP_SAMPLING2D(2, .size_columns = 1, .interpolation = "bilinear"),
        LS_PERMUTE(2, 1, 3),
        LS_GLOBAL_MAX_POOLING2D(),
        LS_RESHAPE(5, 1),
        LS_CONV1D(2, 3, .padding = "causal", .dilation_rate = 2),
        LS_LAYER("LayerNormalization", .options = "{\"axis\": [1, 2]}"),
        LS_END};
    struct ls_graph *graph = NULL;
    const enum ls_status status = build(layers, &graph);
    ck_assert_msg(status == LS_OK, "%s", logged);
    ck_assert_str_eq(layer_shape(graph, "zero_padding2d"), "(None, 7, 13, 3)");
    ck_assert_str_eq(layer_shape(graph, "cropping2d"), "(None, 6, 12, 3)");
    ck_assert_str_eq(layer_shape(graph, "zero_padding2d_1"), "(None, 6, 12, 3)");
    ck_assert_str_eq(layer_shape(graph, "depthwise_conv2d"), "(None, 6, 12, 6)");
    ck_assert_str_eq(parameter_shape(graph, "p_re_lu/alpha"), "(1, 1, 6)");
    ck_assert_str_eq(layer_shape(graph, "separable_conv2d"), "(None, 4, 10, 4)");
    ck_assert_double_eq(parameter_of(graph, "separable_conv2d/pointwise_kernel")->initializer.value,
                        1);
    ck_assert_str_eq(layer_shape(graph, "conv2d_transpose"), "(None, 8, 20, 5)");
    ck_assert_float_eq(parameter_of(graph, "conv2d_transpose/kernel")->l1, 0.25f);
    ck_assert_float_eq(parameter_of(graph, "conv2d_transpose/kernel")->l2, 0.5f);
    ck_assert_float_eq(parameter_of(graph, "conv2d_transpose/bias")->l2, 0.01f);
    ck_assert_str_eq(layer_shape(graph, "up_sampling2d"), "(None, 16, 20, 5)");
    ck_assert_str_eq(layer_shape(graph, "permute"), "(None, 20, 16, 5)");
    ck_assert_str_eq(parameter_shape(graph, "conv1d/kernel"), "(3, 1, 2)");
    ck_assert_str_eq(layer_shape(graph, "conv1d"), "(None, 5, 2)");
    ck_assert_str_eq(parameter_shape(graph, "layer_normalization_1/gamma"), "(5, 2)");
    ls_graph_destroy(graph);
}

TEST(layers_of_sequences_can_be_made_in_c)
{
    const struct ls_layer layers[] = {LS_INPUT(5),
                                      LS_REPEAT_VECTOR(6),
                                      LS_IDENTITY(),
                                      LS_ZERO_PADDING1D(1, 3),
                                      LS_CROPPING1D(2),
                                      LS_CROPPING1D(0),
                                      LS_UP_SAMPLING1D(3),
                                      LS_MAX_POOLING1D(2),
                                      LS_AVERAGE_POOLING1D(4, .strides = 2, .padding = "same"),
                                      LS_GLOBAL_MAX_POOLING1D(.options = "{\"keepdims\": true}"),
                                      LS_GLOBAL_AVERAGE_POOLING1D(),
                                      LS_END};
    struct ls_graph *graph = NULL;
    const enum ls_status status = build(layers, &graph);
    ck_assert_msg(status == LS_OK, "%s", logged);
    ck_assert_str_eq(layer_shape(graph, "repeat_vector"), "(None, 6, 5)");
    ck_assert_str_eq(layer_shape(graph, "zero_padding1d"), "(None, 10, 5)");
    ck_assert_str_eq(layer_shape(graph, "cropping1d"), "(None, 8, 5)");
    ck_assert_str_eq(layer_shape(graph, "cropping1d_1"), "(None, 8, 5)");
    ck_assert_str_eq(layer_shape(graph, "up_sampling1d"), "(None, 24, 5)");
    ck_assert_str_eq(layer_shape(graph, "max_pooling1d"), "(None, 12, 5)");
    ck_assert_str_eq(layer_shape(graph, "average_pooling1d"), "(None, 6, 5)");
    ck_assert_str_eq(layer_shape(graph, "global_max_pooling1d"), "(None, 1, 5)");
    ck_assert_str_eq(layer_shape(graph, "global_average_pooling1d"), "(None, 5)");
    ls_graph_destroy(graph);
}

// Zero is a value here, not Keras's default.
TEST(a_slope_of_zero_can_be_said)
{
    const struct ls_layer layers[] = {LS_INPUT(4), LS_LEAKY_RELU(0), LS_ELU(0), LS_LEAKY_RELU(0.3),
                                      LS_END};
    struct ls_graph *graph = NULL;
    ck_assert_int_eq(build(layers, &graph), LS_OK);
    uint32_t found[3] = {0};
    for (uint32_t i = 0, next = 0; i < graph->operation_count && next < 3; i++)
        if (graph->operations[i].op == LS_OP_ACTIVATION)
            found[next++] = graph->operations[i].attributes.activation;
    ck_assert_uint_eq(found[0], LS_RELU);
    ck_assert_uint_eq(found[1], LS_RELU);
    ck_assert_uint_eq(found[2], LS_LEAKY_RELU);
    ls_graph_destroy(graph);
}

TEST(an_option_that_a_layer_does_not_have_is_refused)
{
    must_refuse((const struct ls_layer[]){LS_INPUT(4), LS_FLATTEN(.units = 3), LS_END},
                "layer 'flatten' (Flatten): units: unknown option");
    must_refuse((const struct ls_layer[]){LS_INPUT(4), LS_DENSE(3, .padding = "same"), LS_END},
                "padding: unknown option");
    must_refuse((const struct ls_layer[]){LS_INPUT(4), LS_SOFTMAX(.no_bias = true), LS_END},
                "use_bias: unknown option");
    must_refuse((const struct ls_layer[]){LS_INPUT(4), LS_DENSE(0), LS_END},
                "units: expected a positive integer, got nothing");
    must_refuse((const struct ls_layer[]){LS_INPUT(4),
                                          LS_DENSE(3, .kernel_initializer = "constant:value"),
                                          LS_END},
                "kernel_initializer");
    must_refuse((const struct ls_layer[]){LS_INPUT(4), LS_DROPOUT(NAN), LS_END},
                "Dropout: rate: not a finite number");
    must_refuse((const struct ls_layer[]){LS_INPUT(4), {.class_name = "ConvLSTM1D"}, LS_END},
                "layer 'conv_lstm1d' (ConvLSTM1D): this layer is not supported: take");
    must_refuse(
        (const struct ls_layer[]){LS_INPUT(4, 4, 1), LS_CONV2D(3, .kernel_columns = 3), LS_END},
        "kernel_size: expected");
    must_refuse(
        (const struct ls_layer[]){LS_INPUT(4), LS_DENSE(3, .options = "{\"units\": 2}"), LS_END},
        "Dense: options: 'units' is given twice, also as a field");
    must_refuse((const struct ls_layer[]){LS_INPUT(4), LS_DENSE(3, .options = "[1]"), LS_END},
                "Dense: options: expected a JSON object, got '[1]'");
    must_refuse((const struct ls_layer[]){LS_INPUT(4), LS_DENSE(3, .options = "{"), LS_END},
                "Dense: options: expected a JSON object, got '{': string or '}' expected");
    must_refuse(
        (const struct ls_layer[]){LS_INPUT(4), LS_DENSE(3, .options = "{\"a\": 1}"), LS_END},
        "a: unknown option");
    must_refuse((const struct ls_layer[]){LS_END}, "the model has 0 layers");
}

TEST_SECONDS(100);
