// SPDX-License-Identifier: Apache-2.0
// TensorFlow's Estimator tutorial: a dense layer with one unit learns that 1 becomes 1, with gradient
// descent under MirroredStrategy. It trains, evaluates and predicts.
//
//     ./estimator
//     ./estimator central-storage 2      (strategy, replicas)
//     ./estimator ring 2 reference       (device)
//
// Compile it with
//
//     cc -o estimator estimator.c $(pkg-config --cflags --libs lockstep)
#include "lockstep.h"

#include <stdlib.h>

#define EXAMPLES 100 // repeat(100)

static void check(enum ls_status status)
{
    if (status)
        exit(1);
}

// input_fn: Dataset.from_tensors([[1.]]).repeat(100), and 1. as the label of each.
static struct ls_data *input_fn(void)
{
    float ones[EXAMPLES];
    struct ls_data *data;
    for (int i = 0; i < EXAMPLES; i++)
        ones[i] = 1;
    const struct ls_array features = {
        .dtype = "float32", .ndims = 2, .dims = {EXAMPLES, 1}, .values = ones};
    const struct ls_array labels = {
        .dtype = "float32", .ndims = 2, .dims = {EXAMPLES, 1}, .values = ones};
    check(ls_data_from_memory(&features, 1, &labels, &data));
    return data;
}

// model_fn: tf.layers.Dense(1), mean_squared_error, GradientDescentOptimizer(0.2).
static struct ls_model *model_fn(struct ls_run *run)
{
    const struct ls_layer layers[] = {LS_INPUT(1), LS_DENSE(1), LS_END};
    struct ls_model *model;
    check(ls_sequential_create(run, "estimator", layers, &model));
    check(ls_compile(model, &(struct ls_compile_options){
                                .optimizer = "sgd:learning_rate=0.2",
                                .loss = "mean_squared_error",
                                .metrics = "none",
                            }));
    return model;
}

int main(int argc, char **argv)
{
    const char *strategy = argc > 1 ? argv[1] : "mirrored";
    const int replicas = argc > 2 ? atoi(argv[2]) : 2;
    struct ls_run *run; // RunConfig(train_distribute=MirroredStrategy())
    struct ls_scores scores;
    float predictions[EXAMPLES];
    check(ls_run_open(&(struct ls_run_options){.strategy = strategy,
                                               .device = argc > 3 ? argv[3] : NULL,
                                               .replicas = (uint32_t)replicas},
                      &run));
    struct ls_data *data = input_fn();
    struct ls_model *classifier = model_fn(run);

    // Each replica takes one element of the dataset in a step, as under the Estimator.
    check(ls_fit(classifier, data, &(struct ls_fit_options){.replica_batch = 1}));
    check(ls_evaluate(classifier, data, 0, &scores));
    check(ls_predict(classifier, data, 0, predictions));
    size_t steps;
    const float *losses = ls_fit_losses(classifier, &steps);
    printf("trained %zu steps: loss %.6f, then %.6f\n", steps, (double)losses[0],
           (double)losses[steps - 1]);
    printf("evaluated %llu examples: loss %.6f\n", (unsigned long long)scores.examples,
           ls_metric_value(&scores.metrics, "loss"));
    printf("predicted for 1: %.6f\n", (double)predictions[0]);

    ls_model_close(classifier);
    ls_data_close(data);
    ls_run_close(run);
    return 0;
}
