// SPDX-License-Identifier: Apache-2.0
// Functional models: nodes in both forms, shared layers, models inside models, several inputs and
// outputs, frozen layers, and what is refused.
#include "tests/layers/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INPUT(name, sizes)                                                       \
    "{'class_name': 'InputLayer', 'name': '" name "', 'config': {'name': '" name \
    "', 'batch_shape': [null, " sizes "], 'dtype': 'float32'}, 'inbound_nodes': []},"
#define FROM(layer, node, tensor)                                                            \
    "{'class_name': '__keras_tensor__', 'config': {'shape': [null, 4], 'dtype': 'float32', " \
    "'keras_history': ['" layer "', " #node ", " #tensor "]}}"
#define CALL(args) "{'args': [" args "], 'kwargs': {}}"
#define CALL_WITH(args, kwargs) "{'args': [" args "], 'kwargs': {" kwargs "}}"
#define LAYER(class_name, name, options, calls)                                 \
    "{'module': 'keras.layers', 'class_name': '" class_name "', 'name': '" name \
    "', 'registered_name': null, 'config': {'name': '" name "'" options         \
    "}, 'inbound_nodes': [" calls "]}"
#define DENSE(name, units, calls) LAYER("Dense", name, ", 'units': " #units, calls)
#define NODE(class_name, name, calls)                                                  \
    "{'module': 'keras.src.ops.numpy', 'class_name': '" class_name "', 'name': '" name \
    "', 'registered_name': '" class_name "', 'config': {'name': '" name                \
    "'}, 'inbound_nodes': [" calls "]}"
#define CONFIG(name, layers, inputs, outputs)                              \
    "'config': {'name': '" name "', 'trainable': true, 'layers': [" layers \
    "], 'input_layers': " inputs ", 'output_layers': " outputs "}"
#define MODEL(layers, inputs, outputs)                                         \
    "{'module': 'keras.src.models.functional', 'class_name': 'Functional', "   \
    "'registered_name': 'Functional', 'build_config': {'input_shape': null}, " \
    "'compile_config': {}, " CONFIG("m", layers, inputs, outputs) "}"
#define INNER(name, layers, inputs, outputs, calls)                                             \
    "{'module': 'keras.src.models.functional', 'class_name': 'Functional', 'name': '" name      \
    "', 'registered_name': 'Functional', 'build_config': {'input_shape': null}, "               \
    "'compile_config': {}, " CONFIG(name, layers, inputs, outputs) ", 'inbound_nodes': [" calls \
                                                                   "]}"
#define SEQUENTIAL(name, options, layers, calls)                               \
    "{'module': 'keras', 'class_name': 'Sequential', 'name': '" name           \
    "', 'registered_name': null, 'build_config': {'input_shape': [null, 4]}, " \
    "'config': {'name': '" name "', " options "'layers': [" layers "]}, "      \
    "'inbound_nodes': [" calls "]}"

static struct ls_graph *graph_of_model(const char *text)
{
    struct ls_graph *graph = NULL;
    const enum ls_status status = build_text(text, NULL, &graph);
    ck_assert_msg(status == LS_OK, "status %d: %s", status, logged);
    ck_assert_int_eq(logged_lines, 0);
    return graph;
}

static const struct ls_graph_layer *layer_of(const struct ls_graph *graph, const char *name)
{
    for (uint32_t i = 0; i < graph->layer_count; i++)
        if (strcmp(graph->layers[i].name, name) == 0)
            return &graph->layers[i];
    ck_abort_msg("no layer '%s'", name);
    return NULL;
}

static void check_variables(const struct ls_graph *graph, const char *const *names)
{
    uint32_t count = 0;
    for (; names[count]; count++) {
        ck_assert_uint_lt(count, graph->parameter_count);
        ck_assert_str_eq(graph->parameters[count]->name, names[count]);
    }
    ck_assert_uint_eq(graph->parameter_count, count);
}

// ---- What is read ----

#define CHAIN \
    DENSE("b", 3, CALL(FROM("a", 0, 0))) "," INPUT("x", "4") DENSE("a", 5, CALL(FROM("x", 0, 0)))

TEST(layers_are_called_when_their_inputs_are_there)
{
    struct ls_graph *graph = graph_of_model(MODEL(CHAIN, "['x', 0, 0]", "['b', 0, 0]"));
    static const char *const names[] = {"a/kernel", "a/bias", "b/kernel", "b/bias", NULL};
    check_variables(graph, names);
    ck_assert_str_eq(layer_shape(graph, "b"), "(None, 3)");
    ck_assert_str_eq(layer_of(graph, "b")->connected, "a[0][0]");
    ck_assert_str_eq(layer_of(graph, "a")->connected, "x[0][0]");
    ck_assert_ptr_null(layer_of(graph, "x")->connected);
    ck_assert_uint_eq(graph->output_count, 1);
    ck_assert_str_eq(graph->outputs[0]->name, "b");
    ck_assert_str_eq(graph->name, "m");
    ls_graph_destroy(graph);
}

#define DIAMOND                                                                 \
    INPUT("x", "4")                                                             \
    DENSE("a", 4, CALL(FROM("x", 0, 0)))                                        \
    "," NODE("Add", "add", CALL(FROM("x", 0, 0) "," FROM("a", 0, 0))) "," NODE( \
        "Add", "again", CALL_WITH(FROM("add", 0, 0), "'x2': " FROM("x", 0, 0)))

TEST(an_operation_takes_tensors_by_position_or_name)
{
    struct ls_graph *graph = graph_of_model(MODEL(DIAMOND, "[['x', 0, 0]]", "[['again', 0, 0]]"));
    ck_assert_uint_eq(operation_total(graph, LS_OP_ADD), 2);
    ck_assert_str_eq(layer_of(graph, "again")->connected, "add[0][0], x[0][0]");
    ck_assert_str_eq(layer_of(graph, "again")->class_name, "Add");
    ls_graph_destroy(graph);
}

TEST(several_inputs_are_in_the_order_of_input_layers)
{
    static const char *const orders[][3] = {
        {"[['x', 0, 0], ['y', 0, 0]]", "4", "7"},
        {"[['y', 0, 0], ['x', 0, 0]]", "7", "4"},
        {"{'q': ['x', 0, 0], 'p': ['y', 0, 0]}", "7", "4"}, // by key, as Keras flattens them
        {"[[['y', 0, 0]], {'a': ['x', 0, 0]}]", "7", "4"},
    };
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        char text[4096], shape[2][32];
        snprintf(
            text, sizeof(text),
            MODEL(INPUT("x", "4") INPUT("y", "7") DENSE("a", 3, CALL(FROM("x", 0, 0))) "," DENSE(
                      "b", 3,
                      CALL(FROM("y", 0, 0))) "," NODE("Maximum", "top",
                                                      CALL(FROM("a", 0, 0) "," FROM("b", 0, 0))),
                  "%s", "['top', 0, 0]"),
            orders[i][0]);
        struct ls_graph *graph = graph_of_model(text);
        ck_assert_uint_eq(graph->input_count, 2);
        for (int k = 0; k < 2; k++) {
            snprintf(shape[k], sizeof(shape[k]), "%lld",
                     (long long)graph->inputs[k]->shape.dims[1]);
            ck_assert_str_eq(shape[k], orders[i][1 + k]);
        }
        ls_graph_destroy(graph);
    }
}

TEST(tokens_are_integers)
{
    struct ls_graph *graph = NULL;
    ck_assert_int_eq(
        build_text(
            "{'class_name': 'Functional', 'config': {'name': 'm', 'layers': ["
            "{'class_name': 'InputLayer', 'name': 't', 'config': {'name': 't', 'batch_shape': "
            "[null, 5], 'dtype': 'int32'}, 'inbound_nodes': []},"
            "{'class_name': 'Flatten', 'name': 'f', 'config': {'name': 'f'}, 'inbound_nodes': "
            "[[['t', 0, 0, {}]]]}], 'input_layers': [['t', 0, 0]], 'output_layers': [['f', 0, "
            "0]]}}",
            NULL, &graph),
        LS_OK);
    ck_assert_uint_eq(graph->inputs[0]->dtype, LS_I32);
    ls_graph_destroy(graph);
}

TEST(several_outputs_are_in_the_order_of_output_layers)
{
    struct ls_graph *graph =
        graph_of_model(MODEL(CHAIN, "['x', 0, 0]", "{'z': ['a', 0, 0], 'k': ['b', 0, 0]}"));
    ck_assert_uint_eq(graph->output_count, 2);
    ck_assert_str_eq(graph->outputs[0]->name, "b");
    ck_assert_str_eq(graph->outputs[1]->name, "a");
    ls_graph_destroy(graph);
}

// ---- Keras 2 ----

#define OLD_INPUT(name)                                                                 \
    "{'class_name': 'InputLayer', 'config': {'batch_input_shape': [null, 4], 'dtype': " \
    "'float32', 'sparse': false, 'ragged': false, 'name': '" name "'}, 'name': '" name  \
    "', 'inbound_nodes': []},"
#define OLD_LAYER(class_name, name, options, nodes)                                             \
    "{'class_name': '" class_name "', 'config': {'name': '" name "', 'trainable': true" options \
    "}, 'name': '" name "', 'inbound_nodes': " nodes "}"

TEST(a_model_as_keras_2_writes_it_is_read)
{
    struct ls_graph *graph = graph_of_model(
        "{'class_name': 'Functional', 'keras_version': '2.12.0', 'backend': "
        "'tensorflow', "
        "'config': {'name': 'old', 'trainable': true, 'layers': [" OLD_INPUT("x") OLD_INPUT("y")
            OLD_LAYER("Dense", "d", ", 'units': 4",
                      "[[['x', 0, 0, {}]], [['y', 0, 0, {'training': "
                      "false}]]]") ","
                                   "{'class_name': 'Functional', 'config': "
                                   "{'name': 'in', 'layers': [" OLD_INPUT("u")
                                       OLD_LAYER("Dense", "e", ", 'units': 2",
                                                 "[[['u', 0, 0, {}]]]") "], "
                                                                        "'input_"
                                                                        "layers': "
                                                                        "[['u', 0, "
                                                                        "0]], "
                                                                        "'output_"
                                                                        "layers': "
                                                                        "[['e', 0, "
                                                                        "0]]}, "
                                                                        "'name': "
                                                                        "'in', "
                                                                        "'inbound_"
                                                                        "nodes': "
                                                                        "[[['d', 0, "
                                                                        "0, {}]], "
                                                                        "[['d', 1, "
                                                                        "0, {}]]]},"
        // Keras 2 counts the calls of a model inside from 1.
        OLD_LAYER("ReLU", "r", "", "[['in', 1, 0, {}]]") "," OLD_LAYER(
            "ReLU", "s", "",
            "[[['in', 2, 0, {}]]]") "], 'input_layers': [['x', 0, 0], ['y', 0, 0]], "
                                    "'output_layers': [['r', 0, 0], ['s', 0, "
                                    "0]]}}");
    static const char *const names[] = {"d/kernel", "d/bias", "in/e/kernel", "in/e/bias", NULL};
    check_variables(graph, names);
    ck_assert_uint_eq(operation_total(graph, LS_OP_DENSE), 4);
    ck_assert_uint_eq(graph->output_count, 2);
    ck_assert_str_eq(layer_of(graph, "s")->connected, "in[1][0]");
    ls_graph_destroy(graph);
}

// Made by tests/data/functional/make_keras2.py.
TEST(a_file_that_keras_2_wrote_is_read)
{
    struct ls_graph *graph = NULL;
    capture_log();
    ck_assert_msg(ls_model_build_file(FUNCTIONAL "/keras2.json", NULL, &graph) == LS_OK, "%s",
                  logged);
    static const char *const names[] = {"shared/kernel",
                                        "shared/bias",
                                        "inner/f/kernel",
                                        "inner/f/bias",
                                        "lazy/l/kernel",
                                        "lazy/l/bias",
                                        "base/d/kernel",
                                        "base/d/bias",
                                        "base/e/kernel",
                                        "base/e/bias",
                                        NULL};
    check_variables(graph, names);
    ck_assert_uint_eq(operation_total(graph, LS_OP_DENSE), 3 + 2 + 4 + 2);
    ck_assert_uint_eq(graph->input_count, 2);
    ck_assert_uint_eq(graph->output_count, 4);
    ck_assert_str_eq(layer_of(graph, "base/d")->class_name, "Dense");
    ck_assert_str_eq(layer_of(graph, "last")->connected, "lazy[1][0]");
    ls_graph_destroy(graph);
}

// ---- Shared layers, models inside models ----

TEST(a_shared_layer_has_its_variables_once)
{
    struct ls_graph *graph = graph_of_model(MODEL(
        INPUT("x", "4") INPUT("y", "4") DENSE(
            "d", 4,
            CALL(FROM("x", 0, 0)) "," CALL(FROM("y", 0, 0)) "," CALL(
                FROM("d", 0, 0))) "," NODE("Add", "sum", CALL(FROM("d", 1, 0) "," FROM("d", 2, 0))),
        "[['x', 0, 0], ['y', 0, 0]]", "['sum', 0, 0]"));
    static const char *const names[] = {"d/kernel", "d/bias", NULL};
    check_variables(graph, names);
    ck_assert_uint_eq(operation_total(graph, LS_OP_DENSE), 3);
    ck_assert_str_eq(layer_of(graph, "d")->connected, "x[0][0], y[0][0], d[0][0]");
    ck_assert_uint_eq(parameter_total(graph), 20);
    ls_graph_destroy(graph);
}

#define TWIN                                                                                  \
    SEQUENTIAL("base", "",                                                                    \
               INPUT("i", "4") "{'class_name': 'Dense', 'config': {'name': 'd', "             \
                               "'units': 3, 'activation': 'tanh'}}, {'class_name': 'Dense', " \
                               "'config': {'name': 'e', 'units': 2}}",                        \
               CALL_WITH(FROM("x", 0, 0), "'mask': null") "," CALL(FROM("y", 0, 0)))

TEST(a_siamese_network_uses_its_model_twice)
{
    struct ls_graph *graph = graph_of_model(
        MODEL(INPUT("x", "4") INPUT("y", "4") TWIN
              "," NODE("Maximum", "top", CALL(FROM("base", 0, 0) "," FROM("base", 1, 0))),
              "[['x', 0, 0], ['y', 0, 0]]", "['top', 0, 0]"));
    static const char *const names[] = {"base/d/kernel", "base/d/bias", "base/e/kernel",
                                        "base/e/bias", NULL};
    check_variables(graph, names);
    ck_assert_uint_eq(operation_total(graph, LS_OP_DENSE), 4);
    ck_assert_str_eq(layer_shape(graph, "base/e"), "(None, 2)");
    ck_assert_str_eq(layer_of(graph, "base/i")->connected, "x[0][0], y[0][0]");
    ck_assert_ptr_null(layer_of(graph, "base/d")->connected);
    ck_assert_uint_eq(graph->input_count, 2);
    ls_graph_destroy(graph);
}

#define PAIR_MODEL(name, calls)                                                              \
    INNER(name,                                                                              \
          INPUT("u", "4") INPUT("v", "4")                                                    \
              DENSE("p", 2, CALL(FROM("u", 0, 0))) "," DENSE("q", 3, CALL(FROM("v", 0, 0))), \
          "[['v', 0, 0], ['u', 0, 0]]", "[['p', 0, 0], ['q', 0, 0]]", calls)

TEST(a_model_inside_has_its_own_inputs_and_outputs)
{
    // Its first input is v. The output that is a model's is counted from 1 in output_layers.
    struct ls_graph *graph = graph_of_model(
        MODEL(INPUT("x", "4") INPUT("y", "4")
                  PAIR_MODEL("two", CALL("[" FROM("x", 0, 0) "," FROM("y", 0, 0) "]")) "," DENSE(
                      "top", 1, CALL(FROM("two", 0, 1))),
              "[['x', 0, 0], ['y', 0, 0]]", "[['top', 0, 0], ['two', 1, 0]]"));
    ck_assert_str_eq(parameter_shape(graph, "top/kernel"), "(3, 1)");
    ck_assert_str_eq(graph->outputs[1]->name, "two/p");
    const struct ls_operation *first = &graph->operations[0];
    ck_assert_ptr_eq(first->inputs[0], graph->inputs[1]); // u is y
    ck_assert_str_eq(first->inputs[1]->name, "two/p/kernel");
    ls_graph_destroy(graph);
}

#define MASKED_MODEL(shape, dtype, layers, given, mask)                                        \
    MODEL("{'class_name': 'InputLayer', 'name': 'x', 'config': {'name': 'x', 'batch_shape': "  \
          "[null, " shape "], 'dtype': '" dtype "'}, 'inbound_nodes': []}," INPUT("k", "6")    \
              INNER("in",                                                                      \
                    "{'class_name': 'InputLayer', 'name': 'u', 'config': {'name': 'u', "       \
                    "'batch_shape': [null, " shape "], 'dtype': '" dtype                       \
                    "'}, 'inbound_nodes': []}," layers,                                        \
                    "{'u': ['u', 0, 0]}", "[['g', 0, 0]]", CALL_WITH(given, "'mask': " mask)), \
          "[['x', 0, 0], ['k', 0, 0]]", "[['in', 1, 0]]")
#define MEAN_OF(layer) LAYER("GlobalAveragePooling1D", "g", "", CALL(FROM(layer, 0, 0)))

static const struct {
    const char *model;
    uint32_t pairs; // of a mean that looks at a mask
} masked_models[] = {
    {MASKED_MODEL("6, 4", "float32", MEAN_OF("u"), FROM("x", 0, 0), FROM("k", 0, 0)), 2},
    {MASKED_MODEL("6, 4", "float32", MEAN_OF("u"), "[" FROM("x", 0, 0) "]",
                  "[[" FROM("k", 0, 0) "]]"),
     2},
    {MASKED_MODEL("6, 4", "float32", MEAN_OF("u"), "{'u': " FROM("x", 0, 0) "}",
                  "{'u': " FROM("k", 0, 0) "}"),
     2},
    {MASKED_MODEL("6, 4", "float32", MEAN_OF("u"), "{'u': " FROM("x", 0, 0) "}", "{'u': null}"), 0},
    // Embedding passes no mask on.
    {MASKED_MODEL("6", "int32",
                  LAYER("Embedding", "e", ", 'input_dim': 5, 'output_dim': 4",
                        CALL(FROM("u", 0, 0))) "," MEAN_OF("e"),
                  FROM("x", 0, 0), FROM("k", 0, 0)),
     0},
};

TABLE_TEST(a_call_gives_a_model_its_masks_as_it_gives_the_inputs, masked_models)
{
    struct ls_graph *graph = graph_of_model(masked_models[_i].model);
    ck_assert_uint_eq(operation_total(graph, LS_OP_PAIR), masked_models[_i].pairs);
    ls_graph_destroy(graph);
}

#define ATTENTION_MODEL(mask, layers, calls) \
    MODEL(INPUT("x", "5, 6") mask "," layers calls, "[['x', 0, 0], ['k', 0, 0]]", "[['a', 0, 0]]")
#define GIVEN(dtype)                                                                           \
    "{'class_name': 'InputLayer', 'name': 'k', 'config': {'name': 'k', 'batch_shape': [null, " \
    "5], 'dtype': '" dtype "'}, 'inbound_nodes': []}"
#define HEADS(mask)                                                    \
    LAYER("MultiHeadAttention", "a", ", 'num_heads': 2, 'key_dim': 4", \
          CALL_WITH(FROM("x", 0, 0) "," FROM("x", 0, 0), "'value_mask': " mask))
#define LISTED(mask)            \
    LAYER("Attention", "a", "", \
          CALL_WITH("[" FROM("x", 0, 0) "," FROM("x", 0, 0) "]", "'mask': " mask))

static const struct {
    const char *model;
    uint32_t differs; // operations that make 1 of what is not 0
} given_masks[] = {
    {ATTENTION_MODEL(GIVEN("float32"), "", HEADS(FROM("k", 0, 0))), 1},
    {ATTENTION_MODEL(GIVEN("int32"), "", HEADS(FROM("k", 0, 0))), 1},
    {ATTENTION_MODEL(GIVEN("bool"), "", HEADS(FROM("k", 0, 0))), 1},
    {ATTENTION_MODEL(GIVEN("float32"), NODE("NotEqual", "n", CALL(FROM("k", 0, 0) ", 0")) ",",
                     HEADS(FROM("n", 0, 0))),
     1},
    {ATTENTION_MODEL(GIVEN("float32"), "", LISTED("[" FROM("k", 0, 0) "," FROM("k", 0, 0) "]")), 2},
    {ATTENTION_MODEL(GIVEN("float32"), "", LISTED("[null, " FROM("k", 0, 0) "]")), 1},
};

TABLE_TEST(attention_looks_at_whether_a_mask_is_0, given_masks)
{
    struct ls_graph *graph = graph_of_model(given_masks[_i].model);
    ck_assert_uint_eq(operation_total(graph, LS_OP_DIFFERS), given_masks[_i].differs);
    ls_graph_destroy(graph);
}

TEST(models_are_nested_several_deep)
{
    struct ls_graph *graph = graph_of(
        "{'class_name': 'InputLayer', 'config': {'batch_shape': [null, 4]}},"
        "{'class_name': 'Sequential', 'config': {'name': 'one', 'layers': ["
        "{'class_name': 'Dense', 'config': {'units': 4}},"
        "{'class_name': 'Sequential', 'config': {'name': 'two', 'layers': ["
        "{'class_name': 'Dense', 'config': {'units': 3}},"
        "{'class_name': 'Functional', 'config': {'name': 'three', 'layers': [" INPUT("x", "3")
            DENSE("d", 2, CALL(FROM("x", 0, 0))) "], 'input_layers': ['x', 0, 0], "
                                                 "'output_layers': ['d', 0, 0]}}]}}]}}");
    static const char *const names[] = {"one/dense/kernel",
                                        "one/dense/bias",
                                        "one/two/dense/kernel",
                                        "one/two/dense/bias",
                                        "one/two/three/d/kernel",
                                        "one/two/three/d/bias",
                                        NULL};
    check_variables(graph, names);
    ck_assert_str_eq(graph->outputs[0]->name, "one/two/three/d");
    ls_graph_destroy(graph);
}

static bool is_trained(const struct ls_graph *graph, const char *name)
{
    return !layer_of(graph, name)->frozen;
}

TEST(a_frozen_model_freezes_what_is_inside)
{
    struct ls_graph *graph = graph_of_model(MODEL(
        INPUT("x", "4") SEQUENTIAL(
            "base", "'trainable': false, ",
            "{'class_name': 'Dense', 'config': {'name': 'd', 'units': 4, "
            "'trainable': true}}",
            CALL(FROM("x", 0, 0))) "," LAYER("Dense", "cold",
                                             ", 'units': 4, 'trainable': "
                                             "false",
                                             CALL(FROM("base", 0, 0))) "," DENSE("warm", 4,
                                                                                 CALL(FROM("cold",
                                                                                           0, 0))),
        "['x', 0, 0]", "['warm', 0, 0]"));
    ck_assert(!is_trained(graph, "base/d"));
    ck_assert(!is_trained(graph, "cold"));
    ck_assert(is_trained(graph, "warm"));
    ls_graph_destroy(graph);
}

// training=False of a call reaches the layers of a model inside.
TEST(a_call_without_training_drops_nothing)
{
    static const char dropout[] =
        "{'class_name': 'Dropout', 'config': {'name': 'drop', 'rate': 0.5}},"
        "{'class_name': 'Flatten', 'config': {'name': 'flat'}}";
    static const char *const kwargs[] = {"", "'training': null", "'training': false"};
    for (int i = 0; i < 3; i++) {
        char text[4096];
        snprintf(text, sizeof(text),
                 MODEL(INPUT("x", "4")
                           SEQUENTIAL("base", "", "%s", CALL_WITH(FROM("x", 0, 0), "%s")) "," DENSE(
                               "d", 1, CALL(FROM("base", 0, 0))),
                       "['x', 0, 0]", "['d', 0, 0]"),
                 dropout, kwargs[i]);
        struct ls_graph *graph = graph_of_model(text);
        ck_assert_uint_eq(operation_total(graph, LS_OP_DROPOUT), i < 2);
        ls_graph_destroy(graph);
    }
}

// ---- What is refused ----

#define ONE(layers) MODEL(INPUT("x", "4") layers, "['x', 0, 0]", "['a', 0, 0]")
#define NODES(nodes)                                                                 \
    ONE("{'class_name': 'Dense', 'name': 'a', 'config': {'name': 'a', 'units': 4}, " \
        "'inbound_nodes': " nodes "}")

static const char *const refused[][2] = {
    // Nodes.
    {NODES("[]"), "layer 'a' (Dense): inbound_nodes: it is called 0 times; expected 1 to 20000"},
    {NODES("7"), "layer 'a' (Dense): inbound_nodes: expected a list, got 7"},
    {NODES("[7]"), "layer 'a' (Dense): node 0: expected {\"args\": [...], \"kwargs\": {...}}, or "
                   "the list of Keras 2, got 7"},
    {NODES("[{'args': []}]"), "layer 'a' (Dense): node 0: expected {\"args\""},
    {NODES("[{'args': [], 'kwargs': {}, 'more': 1}]"), "node 0: expected {\"args\""},
    {NODES("[{'args': [], 'kwargs': {}}]"),
     "layer 'a' (Dense): node 0: no tensor is among its arguments"},
    {NODES("[[]]"), "node 0: no tensor is among its arguments"},
    {NODES("[[['x', 0]]]"), "node 0: no tensor is among its arguments"},
    {NODES("[" CALL(FROM("nobody", 0, 0)) "]"),
     "layer 'a' (Dense): node 0: there is no layer 'nobody' in this model"},
    {NODES("[" CALL(FROM("/dense", 0, 0)) "]"), "there is no layer '/dense' in this model"},
    {NODES("[" CALL(FROM("x", 1, 0)) "]"),
     "layer 'a' (Dense): node 0: layer 'x' (InputLayer) has no node 1: it has 1, counted from 0"},
    {NODES("[" CALL(FROM("x", 0, 2)) "]"),
     "layer 'a' (Dense): node 0: layer 'x' has no tensor 2: it has 1, counted from 0"},
    {NODES("[" CALL(FROM("x", 0, -1)) "]"), "node 0: layer 'x' has no node 0 with a tensor -1"},
    {NODES("[" CALL(FROM("x", 99999999, 0)) "]"), "layer 'x' has no node 99999999"},
    {NODES("[[['x', 0, 3]]]"), "layer 'x' has no tensor 3"},
    {NODES("[{'args': [{'class_name': '__keras_tensor__', 'config': {}}], 'kwargs': {}}]"),
     "node 0: keras_history: expected [layer, node, tensor], got nothing"},
    {NODES("[" CALL(FROM("a", 0, 0)) "]"),
     "layer 'a' (Dense): node 0 needs its own output, through layer 'a': the layers form a circle"},
    {ONE(DENSE("a", 4, CALL(FROM("b", 0, 0))) "," DENSE("b", 4, CALL(FROM("c", 0, 0))) "," DENSE(
         "c", 4, CALL(FROM("b", 0, 0)))),
     "node 0 needs its own output, through layer '"},
    // Arguments of calls.
    {NODES("[" CALL_WITH(FROM("x", 0, 0), "'training': true") "]"),
     "layer 'a' (Dense): node 0: training=True is not supported"},
    {NODES("[" CALL_WITH(FROM("x", 0, 0), "'training': 3") "]"),
     "node 0: training: expected true, false or null, got 3"},
    {NODES("[" CALL_WITH(FROM("x", 0, 0), "'mask': 3") "]"),
     "layer 'a' (Dense): node 0: argument 'mask' = 3 is not supported"},
    {NODES("[" CALL(FROM("x", 0, 0) ", 3") "]"),
     "layer 'a' (Dense): node 0: argument 1, 3, is not supported"},
    {NODES("[" CALL("[" FROM("x", 0, 0) "," FROM("x", 0, 0) "]") "]"),
     "layer 'a' (Dense): input shape (None, 4): node 0: expected exactly 1 input tensor, got 2"},
    {ONE(NODE("Add", "a", CALL(FROM("x", 0, 0) "," FROM("x", 0, 0) "," FROM("x", 0, 0)))),
     "node 0: expected at most 2 input tensors, got 3"},
    // Layers.
    {ONE(DENSE("x", 4, CALL(FROM("x", 0, 0)))), "two layers are called 'x'"},
    {ONE("{'class_name': 'Dense', 'name': 'a', 'config': {'name': 'b', 'units': 4}, "
         "'inbound_nodes': []}"),
     "layer 1: its name is 'a', but 'b' in its config"},
    {ONE("{'class_name': 'Dense', 'config': {'units': 4}, 'inbound_nodes': []}"),
     "layer 1: name: expected 1 to 199 letters, '/' only between others, got nothing"},
    {ONE("{'class_name': 'InputLayer', 'name': 'a', 'config': {'batch_shape': [null, 4]}, "
         "'inbound_nodes': [" CALL(FROM("x", 0, 0)) "]}"),
     "layer 'a' (InputLayer): an input has no inbound_nodes"},
    {ONE(NODE("Einsum", "a", CALL(FROM("x", 0, 0)))),
     "layer 'a' (Einsum): this operation is not supported; supported: Add, "},
    {ONE(LAYER("RandomHue", "a", "", CALL_WITH(FROM("x", 0, 0), "'training': true"))),
     "layer 'a' (RandomHue): this layer is not supported: change the data"},
    {ONE("{'class_name': 'TFOpLambda', 'name': 'a', 'config': {'name': 'a', 'function': "
         "'math.multiply'}, 'inbound_nodes': [['x', 0, 0, {'y': 2.0}]]}"),
     "layer 'a' (TFOpLambda): operations are read as Keras 3 writes them"},
    {ONE(LAYER("Conv2D", "a", ", 'filters': 1, 'kernel_size': 1", CALL(FROM("x", 0, 0)))),
     "layer 'a' (Conv2D): input shape (None, 4): expected 4 dimensions"},
    {"{'class_name': 'Sequential', 'config': {'layers': [{'class_name': 'InputLayer', 'config': "
     "{'batch_shape': [null, 4], 'dtype': 'int32'}}, {'class_name': 'Dense', 'config': {'units': "
     "2}}]}}",
     "layer 'dense' (Dense): input shape (None, 4): expected floating-point numbers, but 'input' "
     "is "
     "int32"},
    // A shared layer.
    {MODEL(INPUT("x", "4") INPUT("y", "5")
               DENSE("d", 4, CALL(FROM("x", 0, 0)) "," CALL(FROM("y", 0, 0))),
           "[['x', 0, 0], ['y', 0, 0]]", "['d', 1, 0]"),
     "layer 'd' (Dense): used again, variable 'd/kernel' cannot be (5, 4)"},
    {MODEL(INPUT("x", "4") DENSE("d", -1, CALL(FROM("x", 0, 0)) "," CALL(FROM("d", 0, 0))),
           "[['x', 0, 0]]", "['d', 1, 0]"),
     "layer 'd' (Dense): units: expected a positive integer"}, // once
    // Inputs and outputs.
    {MODEL(CHAIN, "[]", "['b', 0, 0]"), "input_layers: expected [layer, node, tensor] or a list"},
    {MODEL(CHAIN, "['a', 0, 0]", "['b', 0, 0]"),
     "input_layers: layer 'a' is a Dense, not an InputLayer"},
    {MODEL(CHAIN, "[['x', 0, 0], ['x', 0, 0]]", "['b', 0, 0]"),
     "input_layers: layer 'x' is there twice"},
    {MODEL(CHAIN "," INPUT("y", "4") DENSE("c", 1, CALL(FROM("y", 0, 0))), "['x', 0, 0]",
           "['b', 0, 0]"),
     "input_layers: InputLayer 'y' is missing"},
    {MODEL(CHAIN, "['x', 0, 0]", "['b', 1, 0]"),
     "output_layers: layer 'b' (Dense) has no node 1: it has 1, counted from 0"},
    {MODEL(CHAIN, "['x', 0, 0]", "['b', 0, 1]"), "output_layers: layer 'b' has no tensor 1"},
    {MODEL(CHAIN, "['x', 0, 0]", "7"), "output_layers: expected [layer, node, tensor] or a list"},
    {MODEL(CHAIN, "['x', 0, 0]", "['c', 0, 0]"), "output_layers: there is no layer 'c'"},
    {MODEL(INPUT("x", "4") DENSE("a", 4, CALL(FROM("x", 0, 0))) ", 7", "['x', 0, 0]",
           "['a', 0, 0]"),
     "layer 2: expected {\"class_name\""},
    // Models inside.
    {MODEL(INPUT("x", "4") PAIR_MODEL("two", CALL(FROM("x", 0, 0))), "['x', 0, 0]",
           "['two', 1, 0]"),
     "model 'two': node 0: expected 2 input tensors, got 1"},
    {MODEL(INPUT("x", "4") PAIR_MODEL("two", CALL("[" FROM("x", 0, 0) "," FROM("x", 0, 0) "]")),
           "['x', 0, 0]", "['two', 0, 0]"),
     "output_layers: layer 'two' (Functional) has no node 0: it has 1, counted from 1"},
    {MODEL(INPUT("x", "4") INPUT("y", "5")
               PAIR_MODEL("two", CALL("[" FROM("y", 0, 0) "," FROM("x", 0, 0) "]")),
           "[['x', 0, 0], ['y', 0, 0]]", "['two', 1, 0]"),
     "layer 'two/v' (InputLayer): input shape (None, 5): the model is called with another shape"},
    {ONE(SEQUENTIAL("a", "'trainable': 3, ", "{'class_name': 'Flatten'}", CALL(FROM("x", 0, 0)))),
     "model 'a': trainable: expected true or false, got 3"},
    {ONE(SEQUENTIAL("a", "", "{'class_name': 'Flatten', 'unknown': 1}", CALL(FROM("x", 0, 0)))),
     "model 'a': layer 0: unknown key 'unknown'"},
    {ONE(SEQUENTIAL("a", "", "{'class_name': 'ConvLSTM1D'}", CALL(FROM("x", 0, 0)))),
     "layer 'a/conv_lstm1d' (ConvLSTM1D): this layer is not supported: take"},
    {ONE("{'class_name': 'Functional', 'module': 'mine', 'name': 'a', 'config': {'name': 'a'}, "
         "'inbound_nodes': [" CALL(FROM("x", 0, 0)) "]}"),
     "layer 'a' (Functional): only Keras's own layers are supported"},
};

TABLE_TEST(what_does_not_fit_is_refused, refused)
{
    refuses_model(refused[_i][0], refused[_i][1]);
}

TEST(layers_behind_a_refused_one_are_checked)
{
    struct ls_graph *graph = NULL;
    ck_assert_int_eq(
        build_text(
            ONE(LAYER("ConvLSTM1D", "l", "", CALL(FROM("x", 0, 0))) "," DENSE(
                "b", "four",
                CALL(FROM("l", 0,
                          0))) "," SEQUENTIAL("c", "",
                                              "{'class_name': 'Dense', "
                                              "'config': {'unit': 3}}",
                                              CALL(FROM("b", 0, 0)) "," CALL(FROM(
                                                  "c", 0,
                                                  0))) "," DENSE("a", 4,
                                                                 CALL(FROM("l", 0, 0)) "," CALL(
                                                                     FROM("x", 0, 0)))),
            NULL, &graph),
        LS_BAD_INPUT);
    static const char *const lines[] = {
        "layer 'l' (ConvLSTM1D): this layer is not supported: take",
        "layer 'b' (Dense): units: expected a positive integer, got \"four\"",
        "layer 'c/dense' (Dense): unit: unknown option",
        "layer 'c/dense' (Dense): units: expected a positive integer, got nothing"};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        ck_assert_msg(strstr(logged, lines[i]) != NULL, "expected: %s\ngot: %s", lines[i], logged);
    ck_assert_int_eq(logged_lines, 4);
}

// ---- Sizes ----

// A chain of `count` layers, written from its end to its beginning.
static json_t *long_chain(uint32_t count)
{
    json_t *layers = json_array();
    char name[16], from[16];
    for (uint32_t i = count; i > 0; i--) {
        snprintf(name, sizeof(name), "l%u", i);
        snprintf(from, sizeof(from), "l%u", i - 1);
        json_array_append_new(layers, json_pack("{s:s, s:s, s:{s:s}, s:[[[s, i, i, {}]]]}",
                                                "class_name", "Flatten", "name", name, "config",
                                                "name", name, "inbound_nodes", from, 0, 0));
    }
    json_array_append_new(layers, json_pack("{s:s, s:s, s:{s:s, s:[n, i]}, s:[]}", "class_name",
                                            "InputLayer", "name", "l0", "config", "name", "l0",
                                            "batch_shape", 4, "inbound_nodes"));
    snprintf(name, sizeof(name), "l%u", count);
    return json_pack("{s:s, s:{s:s, s:o, s:[s, i, i], s:[s, i, i]}}", "class_name", "Functional",
                     "config", "name", "m", "layers", layers, "input_layers", "l0", 0, 0,
                     "output_layers", name, 0, 0);
}

TEST(a_long_chain_in_any_order_is_read)
{
    json_t *model = long_chain(9999);
    struct ls_graph *graph = NULL;
    capture_log();
    ck_assert_int_eq(ls_model_build("model.json", model, NULL, &graph), LS_OK);
    ck_assert_uint_eq(graph->layer_count, 10000);
    ck_assert_str_eq(graph->layers[9999].name, "l9999");
    ls_graph_destroy(graph);
    json_decref(model);
}

TEST(a_hundred_thousand_layers_are_refused)
{
    json_t *model = long_chain(100000);
    struct ls_graph *graph = NULL;
    capture_log();
    ck_assert_int_eq(ls_model_build("model.json", model, NULL, &graph), LS_BAD_INPUT);
    ck_assert_int_eq(logged_lines, 1);
    ck_assert_ptr_nonnull(strstr(logged, "the model has 100001 layers; expected 1 to 10000"));
    json_decref(model);
}

// `depth` models, each of which calls the one inside `width` times.
static json_t *nest(int depth, int width)
{
    json_t *layers = json_array(), *nodes = json_array();
    json_array_append_new(layers, json_pack("{s:s, s:s, s:{s:s, s:[n, i]}, s:[]}", "class_name",
                                            "InputLayer", "name", "x", "config", "name", "x",
                                            "batch_shape", 4, "inbound_nodes"));
    for (int i = 0; i < width; i++)
        json_array_append_new(nodes, json_pack("[[s, i, i, {}]]", "x", 0, 0));
    json_t *inner =
        depth > 0 ? nest(depth - 1, width)
                  : json_pack("{s:s, s:{s:s}}", "class_name", "Flatten", "config", "name", "f");
    json_object_set_new(inner, "name", json_string(depth > 0 ? "n" : "f"));
    json_object_set_new(inner, "inbound_nodes", nodes);
    json_array_append_new(layers, inner);
    return json_pack("{s:s, s:{s:s, s:o, s:[s, i, i], s:[s, i, i]}}", "class_name", "Functional",
                     "config", "name", "n", "layers", layers, "input_layers", "x", 0, 0,
                     "output_layers", depth > 0 ? "n" : "f", 0, 0);
}

TEST(calls_that_multiply_end_at_a_limit)
{
    static const struct {
        int depth, width;
        const char *message;
    } cases[] = {
        {3, 2, NULL},
        {16, 1, NULL},
        {17, 1, "more than 16 models are inside one another"},
        {15, 3, "layers are called more than 20000 times"},
        {1, 15000, "layers are called more than 20000 times"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        json_t *model = nest(cases[i].depth, cases[i].width);
        struct ls_graph *graph = NULL;
        capture_log();
        const enum ls_status status = ls_model_build("model.json", model, NULL, &graph);
        ck_assert_msg(status == (cases[i].message ? LS_BAD_INPUT : LS_OK), "got: %s", logged);
        ck_assert_msg(logged_lines == (cases[i].message != NULL), "got: %s", logged);
        if (cases[i].message)
            ck_assert_msg(strstr(logged, cases[i].message) != NULL, "got: %s", logged);
        ls_graph_destroy(graph);
        json_decref(model);
    }
}

TEST(a_circle_is_said_once_however_often_its_model_is_called)
{
    json_t *model = nest(1, 1000);
    json_t *inner = json_object_get(
        json_array_get(json_object_get(json_object_get(model, "config"), "layers"), 1), "config");
    json_t *layer = json_array_get(json_object_get(inner, "layers"), 1);
    struct ls_graph *graph = NULL;
    json_array_clear(json_object_get(layer, "inbound_nodes"));
    json_array_append_new(json_object_get(layer, "inbound_nodes"),
                          json_pack("[[s, i, i, {}]]", "f", 0, 0));
    capture_log();
    ck_assert_int_eq(ls_model_build("model.json", model, NULL, &graph), LS_BAD_INPUT);
    ck_assert_msg(logged_lines == 1, "%d lines: %s", logged_lines, logged);
    ck_assert_ptr_nonnull(strstr(logged, "the layers form a circle"));
    json_decref(model);
}

TEST_SECONDS(100);
