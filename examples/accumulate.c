// SPDX-License-Identifier: Apache-2.0
// Gradient accumulation: a batch that does not fit into memory, as several small ones. Gradients are
// added up on each replica, and reduced and applied once, as the mean over all examples. So a step of
// 4 x 32 examples computes what a step of 128 does, up to rounding; this program trains both ways and
// compares the losses.
//
//     ./accumulate
//     ./accumulate ring 2 fashion-mnist:limit=1000      (strategy, replicas, data)
//
// Compile it with
//
//     cc -o accumulate accumulate.c $(pkg-config --cflags --libs lockstep) -lm
#include "lockstep.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 10

static void check(enum ls_status status)
{
    if (status)
        exit(1);
}

// loss: (STEPS)
static void train(struct ls_run *run, struct ls_data *data, uint64_t batch, uint32_t accumulate,
                  float *loss)
{
    const struct ls_layer layers[] = {
        LS_INPUT(28, 28, 1), LS_FLATTEN(), LS_DENSE(64, .activation = "relu"), LS_DENSE(10), LS_END,
    };
    struct ls_model *model;
    size_t count;
    check(ls_sequential_create(run, "accumulate", layers, &model));
    check(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd:learning_rate=0.05"}));
    check(ls_fit(model, data,
                 &(struct ls_fit_options){
                     .steps = STEPS, // updates, however many batches each is made of
                     .batch = batch,
                     .accumulate = accumulate,
                 }));
    const float *losses = ls_fit_losses(model, &count);
    if (count != STEPS) {
        fprintf(stderr, "%zu steps instead of %d\n", count, STEPS);
        exit(1);
    }
    memcpy(loss, losses, STEPS * sizeof(*loss));
    ls_model_close(model);
}

int main(int argc, char **argv)
{
    const char *strategy = argc > 1 ? argv[1] : NULL;
    const int replicas = argc > 2 ? atoi(argv[2]) : 1;
    const char *dataset = argc > 3 ? argv[3] : "fashion-mnist:limit=2000";
    float whole[STEPS], added[STEPS];
    double largest = 0;
    struct ls_run *run;
    struct ls_data *data;
    check(ls_run_open(
        &(struct ls_run_options){.strategy = strategy, .replicas = (uint32_t)replicas}, &run));
    check(ls_data_open(dataset, "train", &data));

    train(run, data, 128, 1, whole);
    train(run, data, 32, 4, added);
    printf("step   batch of 128   4 batches of 32\n");
    for (int i = 0; i < STEPS; i++) {
        printf("%4d   %12.6f   %15.6f\n", i + 1, (double)whole[i], (double)added[i]);
        largest = fmax(largest, fabs((double)added[i] - (double)whole[i]) / fabs((double)whole[i]));
    }
    printf("largest relative difference: %.1e\n", largest);
    ls_data_close(data);
    ls_run_close(run);
    return 0;
}
