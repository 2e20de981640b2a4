// SPDX-License-Identifier: Apache-2.0
// Keras's guide to training on several devices: a dense network on images of 28 x 28, a part of the
// training examples for validation, a checkpoint after each epoch. The training is run twice, and the
// second time goes on where the first has ended, as after a crash.
//
//     ./fit
//     ./fit ring 2 checkpoints                                   (strategy, replicas, folder)
//     ./fit ring 2 checkpoints synthetic:examples=1000           (data)
//
// Compile it with
//
//     cc -o fit fit.c $(pkg-config --cflags --libs lockstep)
#include "lockstep.h"

#include <stdlib.h>

static void check(enum ls_status status)
{
    if (status)
        exit(1);
}

static struct ls_symbol *call(struct ls_layer layer, struct ls_symbol *x)
{
    struct ls_symbol *y;
    check(ls_layer_call(&layer, &x, 1, &y));
    return y;
}

// get_compiled_model
static struct ls_model *compiled_model(struct ls_run *run)
{
    const struct ls_layer images = LS_INPUT(28, 28, 1);
    struct ls_symbol *inputs, *x, *outputs;
    struct ls_model *model;
    check(ls_input(run, &images, &inputs));
    x = call((struct ls_layer)LS_FLATTEN(), inputs);
    x = call((struct ls_layer)LS_DENSE(256, .activation = "relu"), x);
    x = call((struct ls_layer)LS_DENSE(256, .activation = "relu"), x);
    outputs = call((struct ls_layer)LS_DENSE(10), x);
    check(ls_model_create("guide", &inputs, 1, &outputs, 1, &model));
    check(ls_compile(model, &(struct ls_compile_options){
                                .optimizer = "adam",
                                .loss = "sparse_categorical_crossentropy:from_logits=true",
                                .metrics = "sparse_categorical_accuracy",
                            }));
    return model;
}

struct splits {
    struct ls_data *train, *validation, *test;
};

// run_training: `epochs` count from the beginning of the training, also when it goes on.
static void run_training(struct ls_run *run, const struct splits *data, const char *folder,
                         uint64_t epochs)
{
    struct ls_model *model = compiled_model(run);
    const struct ls_checkpoint_options checkpoints = {
        .folder = folder, .name = "ckpt-{epoch}", .resume = 1};
    struct ls_scores scores;
    check(ls_fit(model, data->train,
                 &(struct ls_fit_options){
                     .epochs = epochs,
                     .batch = 32,
                     .validation = data->validation,
                     .checkpoints = &checkpoints,
                 }));
    check(ls_evaluate(model, data->test, 0, &scores));
    size_t count;
    const struct ls_epoch *history = ls_fit_epochs(model, &count);
    for (size_t i = 0; i < count; i++)
        printf("epoch %llu: loss %.4f, val_loss %.4f\n", (unsigned long long)history[i].epoch,
               ls_metric_value(&history[i].metrics, "loss"),
               ls_metric_value(&history[i].metrics, "val_loss"));
    printf("test accuracy after %zu epoch(s): %.4f\n", count,
           ls_metric_value(&scores.metrics, "sparse_categorical_accuracy"));
    ls_model_close(model);
}

int main(int argc, char **argv)
{
    const char *strategy = argc > 1 ? argv[1] : NULL;
    const int replicas = argc > 2 ? atoi(argv[2]) : 1;
    const char *folder = argc > 3 ? argv[3] : "checkpoints";
    const char *dataset = argc > 4 ? argv[4] : "fashion-mnist:validation_split=0.1";
    struct ls_run *run;
    struct splits data;
    check(ls_run_open(
        &(struct ls_run_options){.strategy = strategy, .replicas = (uint32_t)replicas}, &run));
    printf("Number of devices: %u\n", (unsigned)ls_run_replicas(run));
    check(ls_data_open(dataset, "train", &data.train));
    check(ls_data_open(dataset, "validation", &data.validation));
    check(ls_data_open(dataset, "test", &data.test));

    run_training(run, &data, folder, 1); // makes a new model
    run_training(run, &data, folder, 2); // goes on from its checkpoint

    ls_data_close(data.train);
    ls_data_close(data.validation);
    ls_data_close(data.test);
    ls_run_close(run);
    return 0;
}
