// SPDX-License-Identifier: Apache-2.0
// Moving statistics and frozen parameters: where they are in the flat buffers, what a pass
// contributes to them, and which form of a normalization a program has.
#include "core/graph/build.h"
#include "tests/core/graph/harness.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 5
#define C 4
#define EPSILON 1e-3

static const char *const devices[] = {"reference", "cpu"};

static struct harness_run start(struct harness_device *device, int which,
                                const struct ls_graph *graph, struct ls_parameter_plan *plan,
                                enum ls_purpose purpose)
{
    struct harness_run run;
    ck_assert(harness_open(devices[which], device));
    harness_start(&run, *device, graph, plan,
                  (struct ls_program_options){.batch = BATCH, .purpose = purpose});
    return run;
}

static enum ls_zone zone_of(const struct ls_graph *graph, const char *name)
{
    return harness_parameter(graph, name)->zone;
}

LOOP_TEST(places_come_in_the_order_of_their_zones, 0, 2)
{
    struct harness_device device;
    struct ls_graph *graph =
        harness_moving(&(struct harness_moving){.momentum = 0.9, .constants = true});
    struct harness_run run = start(&device, _i, graph, NULL, LS_PURPOSE_TRAIN);
    const struct ls_parameter_plan *plan = run.plan;
    static const char *const order[] = {
        "norm/moving_mean", "norm/moving_variance", "last/kernel", "last/bias",
        "norm/beta",        "dense/kernel",         "dense/bias",  "norm/gamma"};
    ck_assert_uint_eq(plan->place_count, 8);
    ck_assert_uint_eq(plan->reduced_count, 7);
    for (uint32_t i = 0; i < 8; i++)
        ck_assert_str_eq(plan->places[i].parameter->name, order[i]);
    ck_assert_uint_eq(plan->reduced_bytes, plan->places[7].offset);
    ck_assert_uint_eq(plan->statistics_bytes, plan->places[2].offset);
    ck_assert_uint_eq(plan->flat_bytes, plan->reduced_bytes + LS_ALIGNMENT);
    for (uint32_t i = 1; i < plan->reduced_count; i++)
        ck_assert_uint_ge(run.program->ready[i], run.program->ready[i - 1]);
    ck_assert_uint_lt(run.program->ready[1], run.program->forward_count);
    harness_stop(&run, true);
    harness_close(&device);
    ls_graph_destroy(graph);
}

TEST(a_layer_counts_what_is_trained_and_what_not)
{
    static const struct {
        struct harness_moving kind;
        uint64_t parameters, untrained;
        enum ls_zone gamma, mean;
    } cases[] = {
        {{.momentum = 0.9}, 4 * C, 2 * C, LS_ZONE_TRAINED, LS_ZONE_STATISTICS},
        {{.given = true}, 4 * C, 2 * C, LS_ZONE_TRAINED, LS_ZONE_FROZEN},
        {{.frozen = true}, 4 * C, 4 * C, LS_ZONE_FROZEN, LS_ZONE_FROZEN},
        {{.constants = true}, 3 * C, 2 * C, LS_ZONE_FROZEN, LS_ZONE_STATISTICS},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ls_graph *graph = harness_moving(&cases[i].kind);
        const struct ls_graph_layer *layer = graph->layers;
        while (strcmp(layer->name, "norm") != 0)
            layer++;
        ck_assert_uint_eq(layer->parameters, cases[i].parameters);
        ck_assert_uint_eq(layer->untrained, cases[i].untrained);
        ck_assert_int_eq(zone_of(graph, "norm/gamma"), cases[i].gamma);
        ck_assert_int_eq(zone_of(graph, "norm/moving_mean"), cases[i].mean);
        ls_graph_destroy(graph);
    }
}

// What arrives at the normalization: tanh(x w + b)
static void dense(const struct harness_run *run, double out[BATCH][C])
{
    float *w = harness_read(run, harness_parameter(run->graph, "dense/kernel"), false);
    float *b = harness_read(run, harness_parameter(run->graph, "dense/bias"), false);
    for (int i = 0; i < BATCH; i++)
        for (int c = 0; c < C; c++) {
            out[i][c] = (double)b[c];
            for (int k = 0; k < 3; k++)
                out[i][c] += (double)run->input[3 * i + k] * (double)w[C * k + c];
            out[i][c] = tanh(out[i][c]);
        }
    free(w);
    free(b);
}

static void moments(double x[BATCH][C], double mean[C], double variance[C])
{
    for (int c = 0; c < C; c++) {
        mean[c] = variance[c] = 0;
        for (int i = 0; i < BATCH; i++)
            mean[c] += x[i][c] / BATCH;
        for (int i = 0; i < BATCH; i++)
            variance[c] += (x[i][c] - mean[c]) * (x[i][c] - mean[c]) / BATCH;
    }
}

static void normalize(const struct harness_run *run, double x[BATCH][C], const double mean[C],
                      const double variance[C])
{
    float *gamma = harness_read(run, harness_parameter(run->graph, "norm/gamma"), false);
    float *beta = harness_read(run, harness_parameter(run->graph, "norm/beta"), false);
    for (int i = 0; i < BATCH; i++)
        for (int c = 0; c < C; c++)
            x[i][c] = (x[i][c] - mean[c]) / sqrt(variance[c] + EPSILON) * (double)gamma[c] +
                      (double)beta[c];
    free(gamma);
    free(beta);
}

// After `uses` updates of Keras from `before`, w = m w + (1 - m) found, the one update of the
// contributions must be the same.
static void check_contributions(int which, uint32_t uses, double momentum, float weight)
{
    const char *const names[] = {"norm/moving_mean", "norm/moving_variance"};
    struct harness_device device;
    struct ls_graph *graph =
        harness_moving(&(struct harness_moving){.momentum = momentum, .uses = uses});
    struct harness_run run = start(&device, which, graph, NULL, LS_PURPOSE_TRAIN);
    double x[BATCH][C], found[2][C], expected[2][C];

    run.record->share_weight = weight;
    harness_step(&run);
    dense(&run, x);
    for (int k = 0; k < 2; k++)
        for (int c = 0; c < C; c++)
            expected[k][c] = 2;
    for (uint32_t use = 0; use < uses; use++) {
        moments(x, found[0], found[1]);
        for (int k = 0; k < 2; k++)
            for (int c = 0; c < C; c++)
                expected[k][c] =
                    momentum * expected[k][c] + (1 - momentum) * found[k][c] * (double)weight;
        normalize(&run, x, found[0], found[1]);
    }
    for (int k = 0; k < 2; k++) {
        const struct ls_tensor *moving = harness_parameter(graph, names[k]);
        float *contributed = harness_read(&run, moving, true);
        for (int c = 0; c < C; c++)
            ck_assert_double_eq_tol(moving->momentum * 2 +
                                        (1 - moving->momentum) * (double)contributed[c],
                                    expected[k][c], 1e-5);
        free(contributed);
    }
    harness_stop(&run, true);
    harness_close(&device);
    ls_graph_destroy(graph);
}

LOOP_TEST(a_pass_contributes_its_statistics_times_its_share, 0, 2)
{
    check_contributions(_i, 1, 0.9, 1);
    check_contributions(_i, 1, 0.99, 0.375f);
    check_contributions(_i, 1, 0, 1);
}

LOOP_TEST(uses_of_one_layer_follow_each_other_as_in_keras, 0, 2)
{
    check_contributions(_i, 2, 0.9, 1);
    check_contributions(_i, 3, 0.5, 0.25f);
    check_contributions(_i, 2, 0, 1);
}

// The outputs of a program that does not train.
static void check_output(int which, const struct harness_moving *kind, enum ls_purpose purpose)
{
    struct harness_device device;
    struct ls_graph *graph = harness_moving(kind);
    struct harness_run run = start(&device, which, graph, NULL, purpose);
    double x[BATCH][C], mean[C], variance[C];
    float *given[2] = {harness_read(&run, harness_parameter(graph, "norm/moving_mean"), false),
                       harness_read(&run, harness_parameter(graph, "norm/moving_variance"), false)};

    harness_step(&run);
    dense(&run, x);
    for (int c = 0; c < C; c++) {
        mean[c] = (double)given[0][c];
        variance[c] = (double)given[1][c];
    }
    normalize(&run, x, mean, variance);
    float *w = harness_read(&run, harness_parameter(graph, "last/kernel"), false);
    float *b = harness_read(&run, harness_parameter(graph, "last/bias"), false);
    const float *labels = run.labels;
    const float *out =
        purpose == LS_PURPOSE_PREDICT ? ls_address(ls_program_output(run.program, 0)) : NULL;
    double loss = 0;
    for (int i = 0; i < BATCH; i++)
        for (int j = 0; j < 2; j++) {
            double y = (double)b[j];
            for (int c = 0; c < C; c++)
                y += tanh(x[i][c]) * (double)w[2 * c + j];
            loss += (y - (double)labels[2 * i + j]) * (y - (double)labels[2 * i + j]) / 2;
            if (out)
                ck_assert_double_eq_tol((double)out[2 * i + j], y, 1e-5);
        }
    if (!out)
        ck_assert_double_eq_tol((double)harness_loss(&run), loss, 1e-4);
    free(w);
    free(b);
    free(given[0]);
    free(given[1]);
    harness_stop(&run, true);
    harness_close(&device);
    ls_graph_destroy(graph);
}

LOOP_TEST(programs_that_do_not_train_take_the_moving_statistics, 0, 2)
{
    check_output(_i, &(struct harness_moving){.momentum = 0.9}, LS_PURPOSE_EVALUATE);
    check_output(_i, &(struct harness_moving){.momentum = 0.9}, LS_PURPOSE_PREDICT);
    check_output(_i, &(struct harness_moving){.momentum = 0.9, .constants = true},
                 LS_PURPOSE_PREDICT);
    const struct harness_moving synchronized = {.momentum = 0.9, .synchronized = true};
    check_output(_i, &synchronized, LS_PURPOSE_EVALUATE);
    check_output(_i, &synchronized, LS_PURPOSE_PREDICT);
}

LOOP_TEST(a_frozen_layer_takes_them_in_training_too, 0, 2)
{
    check_output(_i, &(struct harness_moving){.frozen = true}, LS_PURPOSE_TRAIN);
    check_output(_i, &(struct harness_moving){.given = true}, LS_PURPOSE_TRAIN);
    check_output(_i, &(struct harness_moving){.frozen = true}, LS_PURPOSE_EVALUATE);
}

// Of a frozen layer, backward computes what the layers in front of it need and nothing else.
LOOP_TEST(a_frozen_layer_has_no_gradients_of_its_own, 0, 2)
{
    struct harness_device device;
    struct ls_graph *graph = harness_moving(&(struct harness_moving){.frozen = true});
    struct harness_run run = start(&device, _i, graph, NULL, LS_PURPOSE_TRAIN);
    ck_assert_uint_eq(run.plan->reduced_count, 4);
    ck_assert_int_ge(harness_find_step(run.program, "norm backward data"), 0);
    ck_assert_int_lt(harness_find_step(run.program, "norm backward weights"), 0);
    harness_stop(&run, true);
    harness_close(&device);
    ls_graph_destroy(graph);
}

TEST(a_model_of_frozen_layers_cannot_be_trained)
{
    const struct ls_shape vector = {.ndims = 1, .dims = {3}};
    const struct ls_initializer ones = {.kind = LS_ONES};
    struct ls_graph *graph = harness_graph((const int64_t[]){3}, 1);
    struct ls_tensor *inputs[3] = {graph->inputs[0]}, *y;
    harness_capture_messages();
    ck_assert_int_eq(ls_graph_begin_layer(graph, "norm", "Norm"), LS_OK);
    ls_graph_freeze_layer(graph);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(
            ls_graph_parameter(graph, i ? "beta" : "gamma", &vector, &ones, &inputs[1 + i]), LS_OK);
    ck_assert_int_eq(ls_graph_add(graph, LS_OP_BATCH_NORMALIZATION,
                                  &(struct ls_op_attributes){.epsilon = 1e-3f}, inputs, 3, NULL,
                                  &y),
                     LS_OK);
    ls_graph_end_layer(graph, y);
    ck_assert_int_eq(ls_graph_add_loss(graph, &(struct ls_loss){LS_LOSS_MEAN_SQUARED_ERROR, false}),
                     LS_OK);
    ck_assert_int_eq(ls_graph_differentiate(graph), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(harness_message(), "frozen; set trainable to true"));
    ls_graph_destroy(graph);
}
