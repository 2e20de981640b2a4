// SPDX-License-Identifier: Apache-2.0
// A complete training program: a small convolutional network on Fashion-MNIST, trained under the
// strategy that you name on the command line. The default is one device:
//
//     ./train_cnn
//     ./train_cnn ring 2
//     ./train_cnn hierarchical-copy 4 fashion-mnist:limit=10000 100      (data, steps)
//
// Compile it with
//
//     cc -o train_cnn train_cnn.c $(pkg-config --cflags --libs lockstep)
#include "lockstep.h"

#include <stdlib.h>

// Lockstep has logged what went wrong and what to do.
static void check(enum ls_status status)
{
    if (status)
        exit(1);
}

int main(int argc, char **argv)
{
    const char *strategy = argc > 1 ? argv[1] : NULL;
    const int replicas = argc > 2 ? atoi(argv[2]) : 1;
    const char *dataset = argc > 3 ? argv[3] : "fashion-mnist";
    const int steps = argc > 4 ? atoi(argv[4]) : 0;

    struct ls_run *run;
    check(ls_run_open(&(struct ls_run_options){.strategy = strategy,
                                               .replicas = (uint32_t)replicas,
                                               .progress = 1},
                      &run));

    struct ls_data *train, *test;
    check(ls_data_open(dataset, "train", &train));
    check(ls_data_open(dataset, "test", &test));

    const struct ls_layer layers[] = {
        LS_INPUT(28, 28, 1),
        LS_CONV2D(32, 3, .activation = "relu"),
        LS_MAX_POOLING2D(2),
        LS_CONV2D(64, 3, .activation = "relu"),
        LS_MAX_POOLING2D(2),
        LS_FLATTEN(),
        LS_DENSE(128, .activation = "relu"),
        LS_DENSE(10),
        LS_END,
    };
    struct ls_model *model;
    check(ls_sequential_create(run, "fashion", layers, &model));
    ls_model_summary(model, stdout);

    check(ls_compile(model, &(struct ls_compile_options){
                                .optimizer = "adam:learning_rate=0.001",
                                .loss = "sparse_categorical_crossentropy:from_logits=true",
                                .metrics = "accuracy",
                            }));
    check(ls_fit(model, train,
                 &(struct ls_fit_options){
                     .epochs = 2,
                     .steps = (uint64_t)steps,
                     .replica_batch = 64,
                     .validation = test,
                 }));

    size_t count;
    const struct ls_epoch *epochs = ls_fit_epochs(model, &count);
    const struct ls_epoch *last = &epochs[count - 1];
    printf("after %zu epoch(s): %.1f %% of the test examples are right, %.0f examples/s\n", count,
           100 * ls_metric_value(&last->metrics, "val_accuracy"),
           (double)last->examples / last->seconds);

    ls_model_close(model);
    ls_data_close(train);
    ls_data_close(test);
    ls_run_close(run);
    return 0;
}
