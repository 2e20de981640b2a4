// SPDX-License-Identifier: Apache-2.0
// Whole models: what Keras 2 and 3 write, the built-in ones, names and input shapes.
#include "tests/layers/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct ls_graph *load(const char *directory, const char *name, const struct ls_shape *shape)
{
    char path[1024];
    struct ls_graph *graph = NULL;
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    capture_log();
    const enum ls_status status = ls_model_build_file(path, shape, &graph);
    ck_assert_msg(status == LS_OK, "%s", logged);
    ck_assert_int_eq(logged_lines, 0);
    return graph;
}

struct row {
    const char *name, *class_name, *shape;
    uint64_t parameters;
};

static void check_rows(const struct ls_graph *graph, const struct row *rows, uint32_t count)
{
    ck_assert_uint_eq(graph->layer_count, count);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_str_eq(graph->layers[i].name, rows[i].name);
        ck_assert_str_eq(graph->layers[i].class_name, rows[i].class_name);
        ck_assert_str_eq(layer_shape(graph, rows[i].name), rows[i].shape);
        ck_assert_uint_eq(graph->layers[i].parameters, rows[i].parameters);
    }
}

TEST(a_file_that_keras_3_wrote_is_read)
{
    static const struct row rows[] = {
        {"input_layer", "InputLayer", "(None, 28, 28, 1)", 0},
        {"conv2d", "Conv2D", "(None, 26, 26, 32)", 320},
        {"max_pooling2d", "MaxPooling2D", "(None, 13, 13, 32)", 0},
        {"flatten", "Flatten", "(None, 5408)", 0},
        {"dense", "Dense", "(None, 64)", 346176},
        {"dropout", "Dropout", "(None, 64)", 0},
        {"dense_1", "Dense", "(None, 10)", 650},
    };
    struct ls_graph *graph = load(FIXTURES, "keras3-sequential.json", NULL);
    ck_assert_str_eq(graph->name, "cnn");
    check_rows(graph, rows, sizeof(rows) / sizeof(rows[0]));
    ls_graph_destroy(graph);
}

TEST(a_file_as_keras_2_wrote_it_is_read)
{
    static const struct row rows[] = {
        {"conv2d_input", "InputLayer", "(None, 28, 28, 1)", 0},
        {"conv2d", "Conv2D", "(None, 14, 14, 32)", 320},
        {"max_pooling2d", "MaxPooling2D", "(None, 7, 7, 32)", 0},
        {"average_pooling2d", "AveragePooling2D", "(None, 4, 4, 32)", 0},
        {"leaky_re_lu", "LeakyReLU", "(None, 4, 4, 32)", 0},
        {"flatten", "Flatten", "(None, 512)", 0},
        {"dropout", "Dropout", "(None, 512)", 0},
        {"dense", "Dense", "(None, 64)", 32768},
        {"re_lu", "ReLU", "(None, 64)", 0},
        {"dense_1", "Dense", "(None, 10)", 650},
    };
    struct ls_graph *graph = load(FIXTURES, "keras2-sequential.json", NULL);
    check_rows(graph, rows, sizeof(rows) / sizeof(rows[0]));
    ls_graph_destroy(graph);
}

TEST(the_first_keras_2_form_has_a_list_as_its_config)
{
    struct ls_graph *graph;
    ck_assert_int_eq(
        build_text(
            "{'class_name': 'Sequential', 'keras_version': '2.1.5', 'backend': 'tensorflow', "
            "'config': ["
            "{'class_name': 'Dense', 'config': {'name': 'a', 'trainable': true, 'dtype': "
            "'float32', "
            "'batch_input_shape': [null, 4], 'units': 3, 'kernel_initializer': {'class_name': "
            "'VarianceScaling', 'config': {'scale': 1.0, 'mode': 'fan_avg', 'distribution': "
            "'uniform', "
            "'seed': null}}}}]}",
            NULL, &graph),
        LS_OK);
    ck_assert_str_eq(layer_shape(graph, "a"), "(None, 3)");
    ck_assert_str_eq(layer_shape(graph, "input_layer"), "(None, 4)");
    ls_graph_destroy(graph);
}

// Names and shapes as in the reference weights.
TEST(built_in_models_have_the_variables_that_keras_gives_them)
{
    static const struct {
        const char *file;
        uint64_t parameters;
        const char *variables[8][2];
    } models[] = {
        {"cnn.json",
         225034,
         {{"conv2d/kernel", "(3, 3, 1, 32)"},
          {"conv2d/bias", "(32,)"},
          {"conv2d_1/kernel", "(3, 3, 32, 64)"},
          {"conv2d_1/bias", "(64,)"},
          {"dense/kernel", "(1600, 128)"},
          {"dense/bias", "(128,)"},
          {"dense_1/kernel", "(128, 10)"},
          {"dense_1/bias", "(10,)"}}},
        {"mlp.json",
         269322,
         {{"dense/kernel", "(784, 256)"},
          {"dense/bias", "(256,)"},
          {"dense_1/kernel", "(256, 256)"},
          {"dense_1/bias", "(256,)"},
          {"dense_2/kernel", "(256, 10)"},
          {"dense_2/bias", "(10,)"}}},
        {"mlp-dropout.json",
         407050,
         {{"dense/kernel", "(784, 512)"}, {"dense_1/kernel", "(512, 10)"}}},
        {"cnn-small.json",
         2378826,
         {{"conv2d_1/kernel", "(3, 3, 32, 64)"}, {"dense/kernel", "(36864, 64)"}}},
        {"resnet.json",
         2796490,
         {{"conv2d/kernel", "(7, 7, 3, 64)"},
          {"batch_normalization/moving_variance", "(64,)"},
          {"conv2d_6/kernel", "(1, 1, 64, 128)"},
          {"conv2d_15/kernel", "(3, 3, 256, 256)"},
          {"dense/kernel", "(256, 10)"}}},
    };
    for (size_t m = 0; m < sizeof(models) / sizeof(models[0]); m++) {
        struct ls_graph *graph = load(getenv("LOCKSTEP_MODEL_PATH"), models[m].file, NULL);
        ck_assert_uint_eq(parameter_total(graph), models[m].parameters);
        for (size_t i = 0; i < 8 && models[m].variables[i][0]; i++)
            ck_assert_str_eq(parameter_shape(graph, models[m].variables[i][0]),
                             models[m].variables[i][1]);
        ck_assert_int_eq(strncmp(graph->name, models[m].file, strlen(graph->name)), 0);
        ls_graph_destroy(graph);
    }
}

TEST(linear_takes_the_shape_of_the_data)
{
    const struct ls_shape image = {.ndims = 3, .dims = {28, 28, 1}},
                          vector = {.ndims = 1, .dims = {7}};
    struct ls_graph *graph = load(getenv("LOCKSTEP_MODEL_PATH"), "linear.json", &image);
    ck_assert_uint_eq(parameter_total(graph), 785);
    ck_assert_str_eq(layer_shape(graph, "dense"), "(None, 1)");
    ls_graph_destroy(graph);
    graph = load(getenv("LOCKSTEP_MODEL_PATH"), "linear.json", &vector);
    ck_assert_uint_eq(parameter_total(graph), 8);
    ls_graph_destroy(graph);
}

TEST(the_input_shape_comes_from_the_first_place_that_says_one)
{
    static const char *const cases[][2] = {
        {"'config': {'name': 'm', 'build_input_shape': [32, 5], 'layers': [", "(None, 5)"},
        {"'config': {'name': 'm', 'build_input_shape': {'class_name': 'TensorShape', 'items': "
         "[null, 6]}, "
         "'layers': [",
         "(None, 6)"},
        {"'build_config': {'input_shape': [null, 7]}, 'config': {'name': 'm', 'layers': [",
         "(None, 7)"},
        {"'config': {'name': 'm', 'build_input_shape': null, 'layers': [", "(None, 9)"},
        {"'build_config': {'input_shape': [null, 7]}, 'config': {'name': 'm', 'build_input_shape': "
         "[null, 5], "
         "'layers': [{'class_name': 'InputLayer', 'config': {'name': 'input_layer', 'batch_shape': "
         "[64, 8]}}, ",
         "(None, 8)"},
    };
    const struct ls_shape given = {.ndims = 1, .dims = {9}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[1024];
        struct ls_graph *graph = NULL;
        snprintf(
            text, sizeof(text),
            "{'class_name': 'Sequential', %s{'class_name': 'Dense', 'config': {'units': 2}}]}}",
            cases[i][0]);
        ck_assert_int_eq(build_text(text, &given, &graph), LS_OK);
        ck_assert_str_eq(layer_shape(graph, "input_layer"), cases[i][1]);
        ls_graph_destroy(graph);
    }
}

TEST(layers_without_a_name_are_called_as_in_keras)
{
    struct ls_graph *graph =
        graph_of("{'class_name': 'InputLayer', 'config': {'batch_shape': [null, 8, 8, 2]}},"
                 "{'class_name': 'Conv2D', 'config': {'filters': 2, 'kernel_size': 1}},"
                 "{'class_name': 'Conv2D', 'config': {'filters': 2, 'kernel_size': 1}},"
                 "{'class_name': 'MaxPooling2D'}, {'class_name': 'AveragePooling2D'}, "
                 "{'class_name': 'ReLU'},"
                 "{'class_name': 'LeakyReLU'}, {'class_name': 'ELU'}, {'class_name': 'Softmax'},"
                 "{'class_name': 'Dense', 'config': {'units': 1, 'name': 'dense_1'}},"
                 "{'class_name': 'Dense', 'config': {'units': 1}}, {'class_name': 'Dense', "
                 "'config': {'units': 1}}");
    static const char *const wanted[] = {
        "input_layer",       "conv2d",  "conv2d_1",    "max_pooling2d",
        "average_pooling2d", "re_lu",   "leaky_re_lu", "elu",
        "softmax",           "dense_1", "dense",       "dense_2"};
    for (uint32_t i = 0; i < graph->layer_count; i++)
        ck_assert_str_eq(graph->layers[i].name, wanted[i]);
    ls_graph_destroy(graph);
}

TEST(what_keras_writes_without_effect_is_accepted)
{
    struct ls_graph *graph;
    ck_assert_int_eq(
        build_text(
            "{'module': 'keras', 'class_name': 'Sequential', 'registered_name': null, "
            "'keras_version': '3.9', "
            "'backend': 'jax', 'build_config': {'input_shape': [null, 3]}, 'compile_config': "
            "{'loss': 'mse'}, "
            "'config': {'name': 'm', 'trainable': true, 'dtype': {'module': 'keras', 'class_name': "
            "'DTypePolicy', 'config': {'name': 'float32'}, 'registered_name': null}, 'layers': ["
            "{'module': 'keras.layers', 'class_name': 'InputLayer', 'registered_name': null, "
            "'config': "
            "{'batch_shape': [null, 3], 'dtype': 'float32', 'sparse': false, 'ragged': false, "
            "'optional': "
            "false, 'name': 'i'}},"
            "{'module': 'keras.layers', 'class_name': 'Dense', 'registered_name': null, "
            "'shared_object_id': 4, "
            "'build_config': {'input_shape': [null, 3]}, 'name': 'd', 'inbound_nodes': [], "
            "'config': {'units': "
            "2, 'quantization_config': null, 'kernel_regularizer': null, 'bias_constraint': null, "
            "'batch_input_shape': [null, 3], 'dtype': {'class_name': 'Policy', 'config': {'name': "
            "'float32'}}}}]}}",
            NULL, &graph),
        LS_OK);
    ck_assert_str_eq(layer_shape(graph, "d"), "(None, 2)");
    ls_graph_destroy(graph);
}

TEST_SECONDS(100);
