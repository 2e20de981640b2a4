// SPDX-License-Identifier: Apache-2.0
// Trains a model on two replicas, saves its weights, loads them into a new model on one device, and
// prints loss and accuracy of both. The file is safetensors, with Keras's names
// (dense/kernel), so other tools can read it too.
//
//     ./weights
//     ./weights digits.safetensors synthetic:examples=1000      (file, data)
//
// Compile it with
//
//     cc -o weights weights.c $(pkg-config --cflags --libs lockstep)
#include "lockstep.h"

#include <stdlib.h>

static void check(enum ls_status status)
{
    if (status)
        exit(1);
}

static struct ls_model *make_model(struct ls_run *run)
{
    const struct ls_layer layers[] = {
        LS_INPUT(28, 28, 1),
        LS_FLATTEN(),
        LS_DENSE(128, .activation = "relu"),
        LS_DROPOUT(0.2),
        LS_DENSE(10, .activation = "softmax"),
        LS_END,
    };
    struct ls_model *model;
    check(ls_sequential_create(run, "clothes", layers, &model));
    check(ls_compile(model, NULL)); // adam, and the loss that fits a softmax
    return model;
}

static struct ls_scores train_and_save(const char *dataset, struct ls_data *test, const char *path)
{
    struct ls_run *run;
    struct ls_data *train;
    struct ls_scores scores;
    check(ls_run_open(&(struct ls_run_options){.strategy = "ring", .replicas = 2, .progress = 1},
                      &run));
    check(ls_data_open(dataset, "train", &train));
    struct ls_model *model = make_model(run);
    check(ls_fit(model, train, &(struct ls_fit_options){.epochs = 2}));
    check(ls_evaluate(model, test, 0, &scores));
    check(ls_save_weights(model, path));
    ls_model_close(model);
    ls_data_close(train);
    ls_run_close(run);
    return scores;
}

static struct ls_scores load_and_evaluate(struct ls_data *test, const char *path)
{
    struct ls_run *run;
    struct ls_scores scores;
    check(ls_run_open(NULL, &run));
    struct ls_model *model = make_model(run);
    check(ls_load_weights(model, path));
    check(ls_evaluate(model, test, 0, &scores));
    ls_model_close(model);
    ls_run_close(run);
    return scores;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "clothes.safetensors";
    const char *dataset = argc > 2 ? argv[2] : "fashion-mnist";

    struct ls_data *test;
    check(ls_data_open(dataset, "test", &test));
    const struct ls_scores trained = train_and_save(dataset, test, path);
    const struct ls_scores loaded = load_and_evaluate(test, path);
    printf("trained: loss %.4f, accuracy %.4f\n", ls_metric_value(&trained.metrics, "loss"),
           ls_metric_value(&trained.metrics, "accuracy"));
    printf("loaded:  loss %.4f, accuracy %.4f\n", ls_metric_value(&loaded.metrics, "loss"),
           ls_metric_value(&loaded.metrics, "accuracy"));
    ls_data_close(test);
    return 0;
}
