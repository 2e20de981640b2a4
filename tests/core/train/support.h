// SPDX-License-Identifier: Apache-2.0
// For tests of core/train: runs on the reference device, small models and sets, and the errors that were logged.
#ifndef LS_TESTS_TRAIN_SUPPORT_H
#define LS_TESTS_TRAIN_SUPPORT_H

#include "core/graph/graph.h"
#include "core/train/session.h"
#include "lockstep.h"
#include "tests/support/errors.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OK(call) ck_assert_int_eq((call), LS_OK)
#define DATA "synthetic:shape=4x4x1,examples=50" // and 5 of the test split; 10 classes

static inline struct ls_run *run_of(const char *strategy, uint32_t replicas)
{
    struct ls_run *run = NULL;
    const struct ls_run_options options = {
        .strategy = strategy, .device = "reference", .replicas = replicas, .threads = 1, .seed = 5};
    OK(ls_run_open(&options, &run));
    return run;
}

static inline struct ls_data *data_of(const char *text, const char *split)
{
    struct ls_data *data = NULL;
    OK(ls_data_open(text, split, &data));
    return data;
}

// With dropout, so that the number of the step and the place in the batch matter.
static inline struct ls_model *model_of(struct ls_run *run, const char *optimizer)
{
    const struct ls_layer layers[] = {
        LS_INPUT(4, 4, 1),
        LS_CONV2D(3, 2, .activation = "relu"),
        LS_FLATTEN(),
        LS_DENSE(6, .activation = "tanh"),
        LS_DROPOUT(0.25),
        LS_DENSE(10),
        LS_END,
    };
    struct ls_model *model = NULL;
    OK(ls_sequential_create(run, "small", layers, &model));
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = optimizer}));
    return model;
}

static inline size_t elements_of(const struct ls_model *model, uint32_t index)
{
    return (size_t)ls_shape_elements(&model->graph->parameters[index]->shape, 1);
}

// Largest difference of a weight; 0: the same bits, but for the sign of zero.
static inline double weight_difference(struct ls_model *a, struct ls_model *b)
{
    double largest = 0;
    OK(ls_model_take(a, LS_TAKE_ALL));
    OK(ls_model_take(b, LS_TAKE_ALL));
    OK(ls_model_need_weights(a));
    OK(ls_model_need_weights(b));
    ck_assert_uint_eq(a->graph->parameter_count, b->graph->parameter_count);
    for (uint32_t i = 0; i < a->graph->parameter_count; i++)
        for (size_t k = 0; k < elements_of(a, i); k++)
            largest = fmax(largest, fabs((double)a->weights[i][k] - (double)b->weights[i][k]));
    return largest;
}

#endif
