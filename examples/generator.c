// SPDX-License-Identifier: Apache-2.0
// Trains on examples that a function makes while the training runs: points in a plane, whose class
// is the quarter that they lie in. The same function makes other points for the evaluation.
//
//     ./generator
//
// Compile it with
//
//     cc -o generator generator.c $(pkg-config --cflags --libs lockstep)
#include "lockstep.h"

#include <stdlib.h>

#define EXAMPLES 2000 // of an epoch

static void check(enum ls_status status)
{
    if (status)
        exit(1);
}

// A number from -1 to 1, the same whenever it is asked for.
static float draw(uint64_t number)
{
    uint64_t bits = (number + 1) * UINT64_C(0x9e3779b97f4a7c15);
    bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
    return (float)(bits >> 40) / 8388608.0f - 1.0f;
}

// Makes `count` examples from `first` on. `context` tells the sets apart.
static enum ls_status fill(void *context, uint64_t epoch, uint64_t first, uint64_t count,
                           void *const *inputs, void *target, uint64_t *filled)
{
    const uint64_t *set = context;
    float *points = inputs[0];
    int32_t *quarters = target;
    (void)filled; // as many as asked for
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t number = (*set * 1000 + epoch) * EXAMPLES + first + i;
        points[2 * i] = draw(2 * number);
        points[2 * i + 1] = draw(2 * number + 1);
        quarters[i] = (points[2 * i] > 0) + 2 * (points[2 * i + 1] > 0);
    }
    return LS_OK;
}

static struct ls_data *open_set(uint64_t *set)
{
    const struct ls_array point = {.dtype = "float32", .ndims = 1, .dims = {2}};
    const struct ls_array quarter = {.dtype = "int32"};
    const struct ls_generator generator = {
        .inputs = &point,
        .input_count = 1,
        .target = &quarter,
        .classes = 4,
        .examples = EXAMPLES,
        .fill = fill,
        .context = set,
    };
    struct ls_data *data;
    check(ls_data_from_generator(&generator, &data));
    return data;
}

int main(void)
{
    const struct ls_layer layers[] = {
        LS_INPUT(2),
        LS_DENSE(16, .activation = "relu"),
        LS_DENSE(4, .activation = "softmax"),
        LS_END,
    };
    struct ls_run *run;
    struct ls_model *model;
    struct ls_scores scores;
    uint64_t sets[] = {1, 2};
    struct ls_data *train = open_set(&sets[0]), *test = open_set(&sets[1]);
    check(ls_run_open(&(struct ls_run_options){.strategy = "ring", .replicas = 2}, &run));
    check(ls_sequential_create(run, "quarters", layers, &model));
    check(ls_compile(model, &(struct ls_compile_options){.optimizer = "adam:learning_rate=0.01"}));
    check(ls_fit(model, train, &(struct ls_fit_options){.epochs = 3}));
    check(ls_evaluate(model, test, 0, &scores));
    printf("accuracy on %llu new points: %.3f\n", (unsigned long long)scores.examples,
           ls_metric_value(&scores.metrics, "accuracy"));
    ls_model_close(model);
    ls_run_close(run);
    ls_data_close(train);
    ls_data_close(test);
    return 0;
}
