// SPDX-License-Identifier: Apache-2.0
// Small models against real Keras: outputs and gradients that lab/fixtures/keras_layers.py
// wrote down in tests/layers/keras, one file a list. Variables and examples are made by the formula
// that the script has, too.
#include "tests/core/graph/harness.h"
#include "tests/layers/support.h"
#include "tests/support/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { INPUTS = 1000, OUTPUTS = 2000 }; // seeds, as in the script

// Of the largest value, at least 1: Keras's own backends differ by up to 1e-6 here, and so do fused
// sums.
static const double tolerance = 5e-6;

static const char *const lists[] = {"normalize", "elementwise", "sequences",  "images",
                                    "recurrent", "table",       "categories", "volumes"};
static const char *const devices[] = {"reference", "cpu"};

static float number(uint64_t seed, int64_t i)
{
    return (float)(ls_mix64(seed, (uint64_t)i) >> 40) * 0x1p-23f - 1;
}

static json_t *read_list(const char *name)
{
    char path[512];
    json_error_t error;
    snprintf(path, sizeof(path), FIXTURES "/keras/%s.json", name);
    json_t *list = json_load_file(path, 0, &error);
    ck_assert_msg(list != NULL, "%s: %s", path, error.text);
    return list;
}

// Of a model whose loss is compared, too; the targets are what seeds are in the others.
static bool has_loss(const json_t *model)
{
    return json_is_number(json_object_get(model, "loss"));
}

static void fill_inputs(struct harness_run *run, const json_t *model)
{
    for (uint32_t i = 0; i < run->graph->input_count; i++) {
        const struct ls_tensor *tensor = run->graph->inputs[i];
        const json_t *input = json_array_get(json_object_get(model, "inputs"), i);
        const json_int_t below = json_integer_value(json_object_get(input, "below"));
        float *values = i == 0 ? run->input : run->more_inputs[i - 1];
        for (int64_t k = 0; k < harness_elements(run, tensor); k++) {
            const uint64_t id = below > 0 ? ls_mix64(INPUTS + i, (uint64_t)k) % (uint64_t)below : 0;
            if (tensor->dtype == LS_I32)
                ((int32_t *)(void *)values)[k] = (int32_t)id;
            else
                values[k] = below > 0 ? (float)id : number(INPUTS + i, k);
        }
    }
    for (uint32_t i = 0; i < run->graph->seed_count; i++)
        for (int64_t k = 0; k < harness_elements(run, run->graph->seeds[i]); k++)
            run->seeds[i][k] = number(OUTPUTS + i, k);
    for (int64_t k = 0; has_loss(model) && k < harness_elements(run, run->graph->labels[0]); k++)
        ((float *)run->labels)[k] = number(OUTPUTS, k);
    run->record->gradient_scale = 1 / (float)run->program->options.batch; // of the loss
}

// The parameter that variable `index` of the model is; its shape is as Keras has it.
static const struct ls_tensor *parameter_at(const struct ls_graph *graph, const json_t *variables,
                                            size_t index)
{
    const json_t *variable = json_array_get(variables, index);
    const json_t *shape = json_object_get(variable, "shape");
    const struct ls_tensor *parameter =
        parameter_of(graph, json_string_value(json_object_get(variable, "name")));
    const struct ls_shape *found = ls_variable_shape(parameter);
    ck_assert_uint_eq(found->ndims, json_array_size(shape));
    for (uint32_t i = 0; i < found->ndims; i++)
        ck_assert_int_eq(found->dims[i], json_integer_value(json_array_get(shape, i)));
    return parameter;
}

static bool is_variance(const struct ls_tensor *parameter)
{
    const size_t length = strlen(parameter->name);
    return length > 8 && strcmp(parameter->name + length - 8, "variance") == 0;
}

static void fill_variables(struct harness_run *run, const json_t *variables)
{
    size_t own = 0;
    for (uint32_t i = 0; i < run->graph->parameter_count; i++) {
        const struct ls_tensor *parameter = run->graph->parameters[i];
        own += !parameter->constant;
        if (!parameter->constant)
            continue;
        float *values = malloc((size_t)harness_elements(run, parameter) * sizeof(float));
        ls_initialize(parameter, 0, values);
        harness_write(run, parameter, values);
        free(values);
    }
    ck_assert_uint_eq(own, json_array_size(variables));
    for (size_t i = 0; i < json_array_size(variables); i++) {
        const struct ls_tensor *parameter = parameter_at(run->graph, variables, i);
        const int64_t count = harness_elements(run, parameter);
        float *values = malloc((size_t)count * sizeof(float));
        for (int64_t k = 0; k < count; k++)
            values[k] = is_variance(parameter) ? fabsf(0.7f * number(i, k)) : 0.7f * number(i, k);
        harness_write(run, parameter, values);
        free(values);
    }
}

// Differences so far, of one list on one device.
static double differences[1 << 18];
static size_t difference_count;

static int compare_numbers(const void *a, const void *b)
{
    const double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

// By itself with LOCKSTEP_SHOW_DIFFERENCES=1: median and largest.
static void show_differences(const char *of)
{
    if (getenv("LOCKSTEP_SHOW_DIFFERENCES") && difference_count > 0) {
        qsort(differences, difference_count, sizeof(differences[0]), compare_numbers);
        printf("%-60s median %.1e largest %.1e of %zu\n", of, differences[difference_count / 2],
               differences[difference_count - 1], difference_count);
    }
    difference_count = 0;
}

static void check_values(const char *what, const float *found, const json_t *expected,
                         int64_t count)
{
    double largest = 1;
    ck_assert_uint_eq(json_array_size(expected), (size_t)count);
    for (int64_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(json_number_value(json_array_get(expected, (size_t)i))));
    for (int64_t i = 0; i < count; i++) {
        const double wanted = json_number_value(json_array_get(expected, (size_t)i));
        if (difference_count < sizeof(differences) / sizeof(differences[0]))
            differences[difference_count++] = fabs((double)found[i] - wanted) / largest;
        ck_assert_msg(fabs((double)found[i] - wanted) <= tolerance * largest,
                      "%s, element %lld: %.8g, Keras has %.8g", what, (long long)i,
                      (double)found[i], wanted);
    }
}

static void check_run(struct harness_run *run, const json_t *model, const char *where)
{
    const json_t *variables = json_object_get(model, "variables");
    const json_t *outputs = json_object_get(model, "outputs");
    char what[256];

    fill_inputs(run, model);
    fill_variables(run, variables);
    harness_step(run);
    const bool trains = run->program->options.purpose == LS_PURPOSE_TRAIN;
    if (has_loss(model) && trains) {
        const float loss = harness_loss(run) / (float)run->program->options.batch;
        json_t *expected = json_pack("[O]", json_object_get(model, "loss"));
        snprintf(what, sizeof(what), "%s, loss", where);
        check_values(what, &loss, expected, 1);
        json_decref(expected);
    }
    ck_assert_uint_eq(run->graph->output_count, json_array_size(outputs));
    // Where there is a loss, a program that trains does not keep the outputs.
    for (uint32_t i = 0; i < run->graph->output_count && !(has_loss(model) && trains); i++) {
        snprintf(what, sizeof(what), "%s, output %u", where, i);
        check_values(what, ls_address(ls_program_output(run->program, i)),
                     json_object_get(json_array_get(outputs, i), "values"),
                     harness_elements(run, run->graph->outputs[i]));
    }
    for (size_t i = 0; i < json_array_size(variables); i++) {
        const struct ls_tensor *parameter = parameter_at(run->graph, variables, i);
        const json_t *gradient = json_object_get(json_array_get(variables, i), "gradient");
        if (!trains || json_is_null(gradient))
            continue;
        float *found = harness_read(run, parameter, true);
        snprintf(what, sizeof(what), "%s, gradient of %s", where, parameter->name);
        check_values(what, found, gradient, harness_elements(run, parameter));
        free(found);
    }
}

static void check_model(struct harness_device device, const char *device_name, const json_t *model)
{
    const enum ls_purpose purposes[] = {LS_PURPOSE_PREDICT, LS_PURPOSE_TRAIN};
    const char *name = json_string_value(json_object_get(model, "name"));
    const int64_t batch = json_integer_value(json_object_get(model, "batch"));
    struct ls_graph *graph = NULL;
    struct ls_tensor *seed;
    char where[160];

    snprintf(where, sizeof(where), "%s on %s", name, device_name);
    capture_log();
    const enum ls_status status =
        ls_model_build("model.json", json_object_get(model, "model"), NULL, &graph);
    ck_assert_msg(status == LS_OK, "%s: %s", where, logged);
    if (has_loss(model))
        ck_assert_int_eq(
            ls_graph_add_loss(graph, &(struct ls_loss){.kind = LS_LOSS_MEAN_SQUARED_ERROR}), LS_OK);
    for (uint32_t i = 0; i < graph->output_count && !has_loss(model); i++)
        ck_assert_int_eq(ls_graph_add_seed(graph, graph->outputs[i], &seed), LS_OK);
    const bool drops = graph->dropout_count > 0; // in training, which Keras was not asked for
    if (graph->parameter_count > 0 && !drops)
        ck_assert_msg(ls_graph_differentiate(graph) == LS_OK, "%s: %s", where, logged);
    for (int i = 0; i < (graph->parameter_count > 0 && !drops ? 2 : 1); i++) {
        struct harness_run run;
        harness_start(&run, device, graph, NULL,
                      (struct ls_program_options){.batch = batch, .purpose = purposes[i]});
        check_run(&run, model, where);
        harness_stop(&run, true);
    }
    ls_graph_destroy(graph);
    show_differences(where);
}

// One test a list and device.
LOOP_TEST(layers_give_the_outputs_and_gradients_of_keras, 0,
          (int)(sizeof(lists) / sizeof(lists[0]) * sizeof(devices) / sizeof(devices[0])))
{
    const size_t count = sizeof(lists) / sizeof(lists[0]);
    const char *device_name = devices[(size_t)_i / count];
    struct harness_device device;
    json_t *list = read_list(lists[(size_t)_i % count]);
    const json_t *models = json_object_get(list, "models");
    ck_assert_uint_gt(json_array_size(models), 0);
    if (harness_open_threads(device_name, 2, &device)) {
        for (size_t i = 0; i < json_array_size(models); i++)
            check_model(device, device_name, json_array_get(models, i));
        harness_close(&device);
    }
    json_decref(list);
}

TEST_SECONDS(100);
