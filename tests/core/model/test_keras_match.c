// SPDX-License-Identifier: Apache-2.0
// Which variable of a file of Keras becomes which parameter: files that Keras wrote, and what is
// missing or other in them.
#include "core/model/keras_match.h"
#include "core/model/keras_layout.h"
#include "tests/support/suite.h"
#include "tests/tools/keras-files/fixtures.h"

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

struct subject {
    struct ls_model model;
    struct ls_safetensors *expected;
};

// Replaces `from` by `to`, of the same length, wherever it stands.
static void rename_all(char *text, size_t bytes, const char *from, const char *to)
{
    const size_t length = strlen(from);
    for (size_t i = 0; from && i + length <= bytes; i++)
        if (memcmp(text + i, from, length) == 0)
            memcpy(text + i, to, length);
}

// A model with the JSON of a fixture and the parameters of its expected values; no operations.
// `from` is renamed to `to` in both, if given.
static struct subject subject_open(const char *name, const char *from, const char *to)
{
    char file[64];
    size_t bytes;
    struct subject subject = {.model = {.source = (char *)name}};
    snprintf(file, sizeof(file), "%s.json", name);
    char *content = unpack(file, &bytes);
    if (from)
        rename_all(content, bytes, from, to);
    subject.model.json = json_loads(content, 0, NULL);
    ck_assert_ptr_nonnull(subject.model.json);
    free(content);
    snprintf(file, sizeof(file), "%s.expected.safetensors", name);
    content = unpack(file, &bytes);
    if (from)
        rename_all(content, bytes, from, to);
    write_file(file, content, bytes);
    free(content);
    ck_assert_int_eq(ls_safetensors_open(in_folder(file), &subject.expected), LS_OK);

    struct ls_graph *graph;
    ck_assert_int_eq(ls_graph_create(name, &graph), LS_OK);
    char last[200] = "";
    for (size_t i = 0; i < ls_safetensors_count(subject.expected); i++) {
        const struct ls_saved_tensor *tensor = ls_safetensors_get(subject.expected, i);
        const char *slash = strrchr(tensor->name, '/');
        char layer[200];
        snprintf(layer, sizeof(layer), "%.*s", (int)(slash - tensor->name), tensor->name);
        if (strcmp(layer, last) != 0)
            ck_assert_int_eq(ls_graph_begin_layer(graph, layer, "Layer"), LS_OK);
        strcpy(last, layer);
        struct ls_shape shape = {.ndims = tensor->ndims};
        memcpy(shape.dims, tensor->dims, tensor->ndims * sizeof(shape.dims[0]));
        struct ls_tensor *parameter;
        ck_assert_int_eq(ls_graph_parameter(graph, slash + 1, &shape,
                                            &(struct ls_initializer){.kind = LS_ZEROS}, &parameter),
                         LS_OK);
    }
    subject.model.graph = graph;
    return subject;
}

static void subject_close(struct subject *subject)
{
    ls_graph_destroy(subject->model.graph);
    json_decref(subject->model.json);
    ls_safetensors_close(subject->expected);
}

static void expect_values(const struct ls_saved_tensor *tensor,
                          const struct ls_saved_tensor *expected)
{
    size_t count = 1;
    ck_assert_uint_eq(tensor->ndims, expected->ndims);
    for (uint32_t i = 0; i < tensor->ndims; i++) {
        ck_assert_int_eq(tensor->dims[i], expected->dims[i]);
        count *= (size_t)tensor->dims[i];
    }
    ck_assert_msg(memcmp(tensor->data, expected->data, count * sizeof(float)) == 0, "%s is not %s",
                  tensor->name, expected->name);
}

// Each parameter of the model gets the values that Keras had there.
static void expect_match(struct subject *subject, const char *file)
{
    struct ls_safetensors *read = NULL;
    const uint32_t count = subject->model.graph->parameter_count;
    ck_assert_msg(ls_keras_file_read(&keras_program, fixture(file), &read) == LS_OK, "%s",
                  captured);
    size_t *found = calloc(count, sizeof(*found));
    bool *known = calloc(ls_safetensors_count(read) + 1, sizeof(*known));
    ck_assert_msg(ls_keras_match(&subject->model, file, read, found, known) == LS_OK, "%s",
                  captured);
    ck_assert_uint_gt(count, 5);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_uint_ne(found[i], LS_NO_TENSOR);
        known[found[i]] = true;
        expect_values(ls_safetensors_get(read, found[i]), ls_safetensors_get(subject->expected, i));
    }
    for (size_t i = 0; i < ls_safetensors_count(read); i++)
        ck_assert_msg(known[i], "%s", ls_safetensors_get(read, i)->name);
    free(found);
    free(known);
    ls_safetensors_close(read);
}

TEST(variables_of_every_version_of_keras_are_found)
{
    static const char *const files[] = {"small.weights.h5",
                                        "small.keras",
                                        "small.h5",
                                        "small.keras-2.h5",
                                        "small.keras-2.weights-only.h5",
                                        "small.keras-2.13.weights.h5"};
    struct subject subject = subject_open("small", NULL, NULL);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        expect_match(&subject, files[i]);
    ck_assert_uint_eq(captured_warnings, 0);
    subject_close(&subject);
}

TEST(layers_of_keras_2_go_by_their_order_where_their_names_are_others)
{
    struct subject subject = subject_open("small", NULL, NULL);
    expect_match(&subject, "small.other-names.h5");
    subject_close(&subject);
}

TEST(models_inside_models_and_parts_of_layers_are_found)
{
    struct subject subject = subject_open("nested", NULL, NULL);
    expect_match(&subject, "nested.weights.h5");
    expect_match(&subject, "nested.h5");
    subject_close(&subject);
}

// Keras 2 keeps the trained variables of a model inside a model before all statistics.
TEST(order_counts_where_names_inside_a_model_are_others)
{
    struct subject subject = subject_open("nested", "encoder", "another");
    expect_match(&subject, "nested.h5");
    expect_match(&subject, "nested.weights.h5");
    subject_close(&subject);
}

static enum ls_status match_other(struct subject *subject, const char *file)
{
    struct ls_safetensors *read = NULL;
    size_t *found = calloc((size_t)subject->model.graph->parameter_count + 1, sizeof(*found));
    ck_assert_int_eq(ls_keras_file_read(&keras_program, fixture(file), &read), LS_OK);
    bool *known = calloc(ls_safetensors_count(read) + 1, sizeof(*known));
    const enum ls_status status = ls_keras_match(&subject->model, file, read, found, known);
    free(found);
    free(known);
    ls_safetensors_close(read);
    return status;
}

TEST(what_is_missing_is_named)
{
    struct subject subject = subject_open("nested", NULL, NULL);
    ck_assert_int_eq(match_other(&subject, "small.weights.h5"), LS_BAD_INPUT);
    expect_error("'layers/conv2d_1/vars'", "layer 'a_second' (kernel, bias) of model 'nested'");
    ck_assert_int_eq(match_other(&subject, "small.keras-2.h5"), LS_BAD_INPUT);
    expect_error("3 layers with weights, but model 'nested' has 8", "'z_first'");
    subject_close(&subject);
    // The reader of models refuses this before.
    subject = subject_open("small", NULL, NULL);
    json_t *layers = json_object_get(json_object_get(subject.model.json, "config"), "layers");
    json_t *dense = json_array_get(layers, json_array_size(layers) - 2);
    ck_assert_str_eq(json_string_value(json_object_get(dense, "class_name")), "Dense");
    json_array_append(layers, dense);
    ck_assert_int_eq(match_other(&subject, "small.weights.h5"), LS_BAD_INPUT);
    expect_error("small", "two layers are called 'hidden'");
    subject_close(&subject);
}

// Two layers of a class and shape, in the other order in the model's JSON.
// In Keras 2 a layer may be called "block/b"; the file has the layers in another order, and one more.
TEST(names_of_layers_may_have_slashes)
{
    static const char *const layers[] = {"block", "block/b", "block/c"};
    static const char *const tensors[] = {"extra/extra/kernel:0", "block/c/block/c/kernel:0",
                                          "block/block/kernel:0", "block/b/block/b/kernel:0"};
    static const size_t expected[] = {2, 3, 1};
    const struct ls_saved_text text = {
        LS_KERAS_LAYERS, "[[\"extra\",1],[\"block/c\",1],[\"block\",1],[\"block/b\",1]]"};
    const float value = 1;
    struct ls_saved_tensor saved[4];
    for (size_t i = 0; i < 4; i++)
        saved[i] =
            (struct ls_saved_tensor){.name = tensors[i], .ndims = 1, .dims = {1}, .data = &value};
    const int fd = open(in_folder("slashes.safetensors"), O_CREAT | O_RDWR, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(
        ls_safetensors_write_to(
            fd, "slashes",
            &(struct ls_saved){.tensors = saved, .count = 4, .texts = &text, .text_count = 1}),
        LS_OK);
    struct ls_safetensors *file;
    ck_assert_int_eq(ls_safetensors_open_from(fd, "slashes", &file), LS_OK);
    close(fd);

    struct ls_model model = {.source = "slashes"};
    json_t *list = json_array();
    ck_assert_int_eq(ls_graph_create("slashes", &model.graph), LS_OK);
    for (size_t i = 0; i < 3; i++) {
        struct ls_tensor *parameter;
        json_array_append_new(
            list, json_pack("{s:s, s:{s:s}}", "class_name", "Dense", "config", "name", layers[i]));
        ck_assert_int_eq(ls_graph_begin_layer(model.graph, layers[i], "Dense"), LS_OK);
        ck_assert_int_eq(ls_graph_parameter(model.graph, "kernel",
                                            &(struct ls_shape){.ndims = 1, .dims = {1}},
                                            &(struct ls_initializer){.kind = LS_ZEROS}, &parameter),
                         LS_OK);
    }
    model.json = json_pack("{s:s, s:{s:o}}", "class_name", "Sequential", "config", "layers", list);
    size_t found[3];
    bool known[4] = {false};
    ck_assert_msg(ls_keras_match(&model, "slashes", file, found, known) == LS_OK, "%s", captured);
    for (size_t i = 0; i < 3; i++)
        ck_assert_uint_eq(found[i], expected[i]);
    ls_graph_destroy(model.graph);
    json_decref((json_t *)(uintptr_t)model.json);
    ls_safetensors_close(file);
}

TEST(layers_that_changed_places_are_a_warning)
{
    struct subject subject = subject_open("small", NULL, NULL);
    json_t *layers = json_object_get(json_object_get(subject.model.json, "config"), "layers");
    const size_t count = json_array_size(layers);
    json_t *last = json_incref(json_array_get(layers, count - 1));
    json_array_remove(layers, count - 1);
    json_array_insert_new(layers, count - 2, last);
    ck_assert_int_eq(match_other(&subject, "small.weights.h5"), LS_OK);
    ck_assert_uint_eq(captured_warnings, 1);
    ck_assert_msg(strstr(captured, "saved from a layer called 'hidden', but is read as 'dense'"),
                  "%s", captured);
    subject_close(&subject);
}

TEST(the_layout_of_a_nested_model_is_that_of_keras)
{
    static const char *const groups[][2] = {
        {"layers/conv2d", "z_first"},
        {"layers/conv2d_1", "a_second"},
        {"layers/batch_normalization", "normal"},
        {"layers/functional/layers/sequential/layers/conv2d", "deep/encoder/conv2d_1"},
        {"layers/functional/layers/sequential/layers/batch_normalization",
         "deep/encoder/batch_normalization"},
        {"layers/functional/layers/sequential/layers/conv2d_1", "deep/encoder/conv2d_2"},
        {"layers/functional/layers/depthwise_conv2d", "deep/depthwise_conv2d"},
        {"layers/multi_head_attention", "attention"},
        {"layers/multi_head_attention/output_dense", "attention"},
        {"layers/multi_head_attention/key_dense", "attention"},
        {"layers/multi_head_attention/query_dense", "attention"},
        {"layers/multi_head_attention/value_dense", "attention"},
        {"layers/layer_normalization", "layer_normalization"},
        {"layers/normalization", "scale"},
        {"layers/dense", "head"},
    };
    struct subject subject = subject_open("nested", NULL, NULL);
    struct ls_keras_layout layout;
    ck_assert_int_eq(
        ls_keras_layout_create("nested", subject.model.json, subject.model.graph, &layout), LS_OK);
    ck_assert_uint_eq(layout.count, sizeof(groups) / sizeof(groups[0]));
    ck_assert_uint_eq(layout.parameter_count, subject.model.graph->parameter_count);
    for (uint32_t i = 0; i < layout.count; i++) {
        ck_assert_str_eq(layout.stores[i].group, groups[i][0]);
        ck_assert_str_eq(layout.stores[i].layer, groups[i][1]);
    }
    ls_keras_layout_finish(&layout);
    subject_close(&subject);
}

// What the graph has and Keras has not is neither read nor written.
TEST(variables_that_keras_does_not_have_are_left_out)
{
    struct subject subject = subject_open("nested", NULL, NULL);
    struct ls_keras_layout layout;
    struct ls_tensor *gamma;
    const struct ls_shape shape = {.ndims = 1, .dims = {3}};
    const uint32_t count = subject.model.graph->parameter_count;
    ck_assert_int_eq(ls_graph_begin_layer(subject.model.graph, "normal/", "Layer"), LS_OK);
    subject.model.graph->layers[subject.model.graph->layer_count - 1].name[6] = '\0';
    ck_assert_int_eq(ls_graph_constant(subject.model.graph, "gamma", &shape, 1, &gamma), LS_OK);
    ck_assert_str_eq(gamma->name, "normal/gamma");
    ck_assert_int_eq(
        ls_keras_layout_create("nested", subject.model.json, subject.model.graph, &layout), LS_OK);
    ck_assert_uint_eq(layout.parameter_count, count);
    for (uint32_t i = 0; i < layout.parameter_count; i++)
        ck_assert_uint_ne(layout.parameters[i], count);
    ls_keras_layout_finish(&layout);
    subject_close(&subject);
}

TEST_FIXTURE(folder_make, folder_remove);
