// SPDX-License-Identifier: Apache-2.0
// Outputs and gradients of functional models are those of Keras. The models and Keras's values are
// in tests/data/functional; make.py there has the formula of inputs and weights.
#include "core/formats/safetensors.h"
#include "core/graph/layer.h"
#include "tests/core/graph/harness.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 4
// Sums of float32 products in another order: a few units in the last place of the largest element.
#define TOLERANCE 2e-5
// In a gradient of a bias terms cancel, and what is left is smaller than what was added.
#define GRADIENT_TOLERANCE 1e-4

static const char *const models[] = {"residual", "siamese",   "shared", "nested",
                                     "pairs",    "functions", "shapes"};
#define MODELS (int)(sizeof(models) / sizeof(*models))
static const char *const devices[] = {"reference", "cpu"};

static float formula(const char *name, int64_t k)
{
    int64_t letters = 0;
    for (; *name; name++)
        letters += (unsigned char)*name;
    return (float)(0.5 * sin(0.7 * (double)k + (double)letters));
}

static void fill_input(struct harness_run *run, uint32_t index, float *to)
{
    const struct ls_tensor *input = run->graph->inputs[index];
    char name[32] = "input";
    if (index > 0)
        snprintf(name, sizeof(name), "input_%u", index);
    for (int64_t k = 0; k < harness_elements(run, input); k++)
        if (input->dtype == LS_I32)
            ((int32_t *)to)[k] = (int32_t)((7 * k + 3) % 5);
        else
            to[k] = formula(name, k);
}

static void fill(struct harness_run *run)
{
    const struct ls_graph *graph = run->graph;
    const struct ls_shape *output = &graph->outputs[0]->shape;
    for (uint32_t i = 0; i < graph->parameter_count; i++) {
        const struct ls_tensor *parameter = graph->parameters[i];
        const int64_t count = harness_elements(run, parameter);
        float *values = malloc((size_t)count * sizeof(float));
        ls_initialize(parameter, 0, values);
        for (int64_t k = 0; k < count && !parameter->constant; k++) {
            values[k] = formula(parameter->name, k);
            if (strstr(parameter->name, "variance"))
                values[k] = fabsf(values[k]) + 0.5f;
        }
        harness_write(run, parameter, values);
        free(values);
    }
    for (uint32_t i = 0; i < graph->input_count; i++)
        fill_input(run, i, i == 0 ? run->input : run->more_inputs[i - 1]);
    for (int32_t i = 0; run->labels && i < BATCH; i++)
        ((int32_t *)run->labels)[i] = i % (int32_t)output->dims[output->ndims - 1];
}

static double compare(const float *ours, const struct ls_saved_tensor *theirs)
{
    int64_t count = 1;
    double largest = 0, difference = 0;
    for (uint32_t i = 0; i < theirs->ndims; i++)
        count *= theirs->dims[i];
    for (int64_t k = 0; k < count; k++) {
        largest = fmax(largest, fabs((double)theirs->data[k]));
        const double d = fabs((double)ours[k] - (double)theirs->data[k]);
        difference = d <= difference ? difference : d; // NaN stays
    }
    return difference / fmax(largest, 1e-3);
}

static void check_outputs(struct harness_device device, const struct ls_graph *graph,
                          const struct ls_safetensors *file)
{
    struct harness_run run;
    harness_start(&run, device, graph, NULL,
                  (struct ls_program_options){.batch = BATCH, .purpose = LS_PURPOSE_PREDICT});
    fill(&run);
    harness_step(&run);
    const double difference =
        compare(ls_address(ls_program_output(run.program, 0)), ls_safetensors_find(file, "output"));
    ck_assert_msg(difference <= TOLERANCE, "%s: output: %g", graph->name, difference);
    harness_stop(&run, true);
}

static void check_gradients(struct harness_device device, const struct ls_graph *graph,
                            const struct ls_safetensors *file)
{
    struct harness_run run;
    char name[512];
    harness_start(&run, device, graph, NULL,
                  (struct ls_program_options){.batch = BATCH, .purpose = LS_PURPOSE_TRAIN});
    fill(&run);
    harness_step(&run);
    size_t compared = 0;
    for (uint32_t i = 0; i < graph->parameter_count; i++) {
        if (graph->parameters[i]->zone != LS_ZONE_TRAINED)
            continue;
        snprintf(name, sizeof(name), "gradient/%s", graph->parameters[i]->name);
        const struct ls_saved_tensor *theirs = ls_safetensors_find(file, name);
        ck_assert_msg(theirs != NULL, "Keras has no %s", name);
        float *ours = harness_read(&run, graph->parameters[i], true);
        const double difference = compare(ours, theirs);
        ck_assert_msg(difference <= GRADIENT_TOLERANCE, "%s: %s: %g", graph->name, name,
                      difference);
        free(ours);
        compared++;
    }
    ck_assert_uint_eq(compared + 2, ls_safetensors_count(file)); // output and loss besides
    harness_stop(&run, true);
}

LOOP_TEST(outputs_and_gradients_are_those_of_keras, 0, MODELS)
{
    const char *model = models[_i];
    char path[512];
    struct ls_graph *graph = NULL;
    struct ls_safetensors *file = NULL;
    int checked = 0;

    snprintf(path, sizeof(path), DATA "/%s.json", model);
    ck_assert_int_eq(ls_model_build_file(path, NULL, &graph), LS_OK);
    snprintf(path, sizeof(path), DATA "/%s.safetensors", model);
    ck_assert_int_eq(ls_safetensors_open(path, &file), LS_OK);
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1)
            harness_finish(graph, LS_LOSS_SPARSE_CROSS_ENTROPY, true);
        for (size_t d = 0; d < sizeof(devices) / sizeof(*devices); d++) {
            struct harness_device device;
            if (!harness_open(devices[d], &device))
                continue; // says so
            if (pass == 0)
                check_outputs(device, graph, file);
            else
                check_gradients(device, graph, file);
            harness_close(&device);
            checked++;
        }
    }
    ck_assert_int_gt(checked, 0);
    ls_safetensors_close(file);
    ls_graph_destroy(graph);
}

TEST_SECONDS(100);
