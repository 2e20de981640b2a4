// SPDX-License-Identifier: Apache-2.0
// Layers that change images at random: with the factors that lab/fixtures/keras_augmentation.py gave
// Keras's layers the pixels are Keras's, and the factors that are drawn have Keras's ranges and
// distribution.
#include "core/plugin/augment.h"
#include "tests/core/graph/harness.h"
#include "tests/layers/support.h"
#include "tests/support/device_calls.h"
#include "tests/support/suite.h"

#include <math.h>
#include <stdlib.h>

enum { INPUTS = 1000 }; // seed of the pixels, as in the script
static const double tolerance = 1e-5; // of the largest pixel
static const char *const devices[] = {"reference", "cpu"};

static json_t *read_cases(void)
{
    json_error_t error;
    json_t *list = json_load_file(FIXTURES "/keras/augmentation.json", 0, &error);
    ck_assert_msg(list != NULL, "%s", error.text);
    return list;
}

// Numbers of a list; freed by the caller.
static float *values_of(const json_t *list)
{
    float *values = malloc((json_array_size(list) + 1) * sizeof(*values));
    for (size_t i = 0; i < json_array_size(list); i++)
        values[i] = (float)json_number_value(json_array_get(list, i));
    return values;
}

static struct ls_tensor_desc desc_of(const json_t *shape)
{
    struct ls_tensor_desc desc = {.dtype = LS_F32, .ndims = (uint32_t)json_array_size(shape)};
    for (uint32_t i = 0; i < desc.ndims; i++)
        desc.dims[i] = json_integer_value(json_array_get(shape, i));
    return desc;
}

// A model of this one layer, in JSON, on images of this size.
static struct ls_graph *model_of(const char *layer, int64_t rows, int64_t columns, int64_t channels)
{
    char text[2048];
    snprintf(
        text, sizeof(text),
        "{'class_name': 'InputLayer', 'config': {'batch_shape': [null, %lld, %lld, %lld]}}, %s",
        (long long)rows, (long long)columns, (long long)channels, layer);
    return graph_of(text);
}

static struct ls_graph *graph_of_case(const json_t *one)
{
    const struct ls_tensor_desc x = desc_of(json_object_get(one, "shape"));
    char *text = json_dumps(json_object_get(one, "layer"), 0);
    struct ls_graph *graph = model_of(text, x.dims[1], x.dims[2], x.dims[3]);
    free(text);
    return graph;
}

// The operation that takes the factors.
static const struct ls_operation *change_of(const struct ls_graph *graph)
{
    const uint32_t ops[] = {LS_OP_RESAMPLE, LS_OP_RECOLOUR, LS_OP_ERASE};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        if (operation_total(graph, ops[i]) > 0)
            return only_operation(graph, ops[i]);
    ck_abort_msg("the layer takes no factors");
    return NULL;
}

static void run(struct harness_device device, const struct ls_operation *operation,
                const struct ls_tensor_desc descs[3], void *const arguments[3])
{
    const struct test_request request = {.op = operation->op,
                                         .attributes = operation->attributes,
                                         .input_count = 2,
                                         .output_count = 1,
                                         .arguments = {descs[0], descs[1], descs[2]}};
    struct ls_kernel_answer answer;
    ck_assert_int_eq(test_prepare(device.ops, device.device, &request, &answer), LS_OK);
    void *scratch = aligned_alloc(LS_ALIGNMENT, (answer.scratch_bytes / LS_ALIGNMENT + 1) *
                                                    (uint64_t)LS_ALIGNMENT);
    ck_assert_int_eq(test_launch(device.ops, device.device, answer.kernel, arguments, 3, scratch),
                     LS_OK);
    device.ops->kernels->release(device.device, answer.kernel);
    free(scratch);
}

static void check_pixels(struct harness_device device, const json_t *one, const char *where)
{
    struct ls_tensor_desc descs[3] = {desc_of(json_object_get(one, "shape")),
                                      {.dtype = LS_F32, .ndims = 2},
                                      desc_of(json_object_get(one, "out"))};
    const json_t *factor_list = json_object_get(one, "factors");
    const uint64_t count = ls_tensor_elements(&descs[0]), made = ls_tensor_elements(&descs[2]);
    const float high = (float)json_number_value(json_object_get(one, "high"));
    struct ls_graph *graph = graph_of_case(one);
    float *x = malloc(count * sizeof(*x)), *y = malloc(made * sizeof(*y));
    float *factors = values_of(factor_list), *wanted = values_of(json_object_get(one, "pixels"));

    descs[1].dims[0] = descs[0].dims[0];
    descs[1].dims[1] = (int64_t)json_array_size(factor_list) / descs[0].dims[0];
    for (uint64_t i = 0; i < count; i++) // from -1 to 1, then to `high`
        x[i] = ((float)(ls_mix64(INPUTS, i) >> 40) * 0x1p-23f - 1 + 1) * (high / 2);
    run(device, change_of(graph), descs, (void *[]){x, factors, y});
    ck_assert_uint_eq(json_array_size(json_object_get(one, "pixels")), made);
    for (uint64_t i = 0; i < made; i++)
        ck_assert_msg(fabs((double)y[i] - (double)wanted[i]) <= tolerance * (double)high,
                      "%s, pixel %llu: %.8g, Keras has %.8g", where, (unsigned long long)i,
                      (double)y[i], (double)wanted[i]);
    free(wanted);
    free(factors);
    free(y);
    free(x);
    ls_graph_destroy(graph);
}

LOOP_TEST(pixels_are_those_of_keras_for_the_same_factors, 0, 2)
{
    struct harness_device device;
    json_t *list = read_cases();
    const json_t *cases = json_object_get(list, "cases");
    ck_assert_uint_ge(json_array_size(cases), 50);
    if (harness_open_threads(devices[_i], 2, &device)) {
        for (size_t i = 0; i < json_array_size(cases); i++) {
            const json_t *one = json_array_get(cases, i);
            char where[160];
            snprintf(
                where, sizeof(where), "case %zu (%s) on %s", i,
                json_string_value(json_object_get(json_object_get(one, "layer"), "class_name")),
                devices[_i]);
            check_pixels(device, one, where);
        }
        harness_close(&device);
    }
    json_decref(list);
}

// The factors of an example that the layer draws.
static void draw(const struct ls_operation *operation, uint64_t step, uint64_t example, float *out)
{
    const struct ls_step_record record = {.seed = 7, .step = step};
    const int64_t *dims = operation->inputs[0]->shape.dims;
    ls_draw_factors(&operation->attributes,
                    ls_dropout_key(&record, operation->attributes.key, example), dims[1], dims[2],
                    out);
}

TEST(a_range_of_one_number_gives_the_factors_of_keras)
{
    json_t *list = read_cases();
    const json_t *cases = json_object_get(list, "cases");
    size_t drawn = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i);
        if (!json_is_true(json_object_get(one, "drawn")))
            continue;
        struct ls_graph *graph = graph_of_case(one);
        const struct ls_operation *operation = only_operation(graph, LS_OP_DRAW);
        float *wanted = values_of(json_object_get(one, "factors")), found[LS_TRANSFORM_NUMBERS];
        draw(operation, i, 0, found);
        for (uint32_t k = 0; k < ls_draw_numbers(operation->attributes.function); k++)
            ck_assert_msg(fabs((double)found[k] - (double)wanted[k]) <=
                              2e-6 * fmax(1, fabs((double)wanted[k])),
                          "case %zu, factor %u: %.9g, Keras has %.9g", i, k, (double)found[k],
                          (double)wanted[k]);
        free(wanted);
        ls_graph_destroy(graph);
        drawn++;
    }
    ck_assert_uint_ge(drawn, 20);
    json_decref(list);
}

// ---- Distributions ----

#define DRAWS 10000

// A number that follows from the factors of an image of 40 rows and 60 columns, and the range in
// which Keras draws it uniformly.
static const struct {
    const char *class_name, *config;
    double low, high, mean;
    int kind; // see number_of()
} ranges[] = {
    {"RandomRotation", "{'factor': [-0.2, 0.3]}", -0.2, 0.3, 0.05, 0},
    {"RandomRotation", "{'factor': 0.1}", -0.1, 0.1, 0, 0},
    {"RandomZoom", "{'height_factor': [0.2, 0.4], 'width_factor': 0.5}", 0.2, 0.4, 0.3, 1},
    {"RandomZoom", "{'height_factor': [0.2, 0.4], 'width_factor': 0.5}", -0.5, 0.5, 0, 2},
    {"RandomZoom", "{'height_factor': [-0.2, 0.4]}", -0.2, 0.4, 0.1, 2},
    {"RandomTranslation", "{'height_factor': 0.1, 'width_factor': [0.2, 0.4]}", -0.1, 0.1, 0, 3},
    {"RandomTranslation", "{'height_factor': 0.1, 'width_factor': [0.2, 0.4]}", 0.2, 0.4, 0.3, 4},
    {"RandomContrast", "{'factor': [0.5, 0.1]}", 0.9, 1.5, 1.2, 5},
    {"RandomContrast", "{'factor': 0.4}", 1, 1.4, 1.2, 5},
    {"RandomBrightness", "{'factor': 0.2}", -51, 51, 0, 6},
    {"RandomBrightness", "{'factor': [0.1, 0.5], 'value_range': [0, 1]}", 0.1, 0.5, 0.3, 6},
    {"RandomFlip", "{'mode': 'horizontal'}", -1, 1, 0, 5},
    {"RandomFlip", "{'mode': 'vertical'}", -1, 1, 0, 7},
    {"RandomFlip", "{}", -1, 1, 0, 5},
    {"RandomCrop", "{'height': 31, 'width': 51}", 0, 9, 4.5, 8},
    {"RandomCrop", "{'height': 31, 'width': 51}", 0, 9, 4.5, 9},
    // Parts of the width and height where a patch is: means of a square root of numbers in a range.
    {"RandomErasing", "{'factor': [1, 1]}", 0.1414, 0.5745, 0.40164, 10},
    {"RandomErasing", "{'factor': [1, 1], 'scale': [0.04, 0.09]}", 0.2, 0.3, 0.25333, 11},
    {"RandomErasing", "{'factor': 1.0}", 0, 1, 0.5, 12},
    {"RandomErasing", "{'factor': [0.2, 0.4]}", 0, 1, 0.3, 12},
};

static double number_of(int kind, const float *f)
{
    switch (kind) {
    case 0: return atan2((double)f[3], (double)f[0]) / 6.283185307179586;
    case 1: return (double)f[4] - 1;
    case 2: return (double)f[0] - 1;
    case 3: return -(double)f[5] / 40;
    case 4: return -(double)f[2] / 60;
    case 5: return (double)f[0];
    case 6: return (double)f[1];
    case 7: return (double)f[4];
    case 8: return (double)f[5];
    case 9: return (double)f[2];
    case 10: return ((double)f[1] - (double)f[0]) / 60;
    case 11: return ((double)f[3] - (double)f[2]) / 40;
    default: return f[1] > f[0];
    }
}

TABLE_TEST(factors_have_the_range_and_the_mean_of_keras, ranges)
{
    char layer[256];
    snprintf(layer, sizeof(layer), "{'class_name': '%s', 'config': %s}", ranges[_i].class_name,
             ranges[_i].config);
    struct ls_graph *graph = model_of(layer, 40, 60, 3);
    const struct ls_operation *operation = only_operation(graph, LS_OP_DRAW);
    const double low = ranges[_i].low, high = ranges[_i].high, width = high - low;
    double sum = 0, least = INFINITY, most = -INFINITY;
    for (uint64_t i = 0; i < DRAWS; i++) { // 100 steps of 100 examples
        float factors[LS_TRANSFORM_NUMBERS], again[LS_TRANSFORM_NUMBERS];
        draw(operation, 1 + i / 100, i % 100, factors);
        draw(operation, 1 + i / 100, i % 100, again);
        const double number = number_of(ranges[_i].kind, factors);
        ck_assert_double_eq(number, number_of(ranges[_i].kind, again));
        sum += number;
        least = fmin(least, number);
        most = fmax(most, number);
    }
    ck_assert_double_ge(least, low - 1e-4 * width);
    ck_assert_double_le(most, high + 1e-4 * width);
    ck_assert_double_le(least, low + 0.01 * width);
    ck_assert_double_ge(most, high - 0.01 * width);
    // The deviation of the mean is at most width / 2 / sqrt(DRAWS), of two values.
    ck_assert_double_le(fabs(sum / DRAWS - ranges[_i].mean), 0.02 * width);
    ls_graph_destroy(graph);
}

TEST_SECONDS(100);
