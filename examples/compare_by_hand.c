// SPDX-License-Identifier: Apache-2.0
// Trains the same model on the same data under three strategies and compares their losses. The losses
// differ only by rounding, because the global batch is the same and only the order of additions
// differs. (Over many steps the difference grows, because rounding can change which of two nearly
// equal values in a max-pooling window is larger.)
//
//     ./compare_by_hand
//     ./compare_by_hand 4 synthetic:examples=1000      (replicas, data)
//
// Compile it with
//
//     cc -o compare_by_hand compare_by_hand.c $(pkg-config --cflags --libs lockstep) -lm
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

// Trains from the same initial weights, in the same order of examples: both come from the seed.
// loss: (STEPS)
static void train_under(const char *strategy, uint32_t replicas, const char *dataset, float *loss)
{
    struct ls_run *run;
    struct ls_model *model;
    struct ls_data *data;
    check(ls_run_open(
        &(struct ls_run_options){.strategy = strategy, .replicas = replicas, .seed = 7}, &run));
    check(ls_data_open(dataset, "train", &data));
    check(ls_model_open(run, "cnn", data, &model));
    check(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd:learning_rate=0.01"}));
    check(ls_fit(model, data, &(struct ls_fit_options){.steps = STEPS, .batch = 60}));

    size_t count;
    const float *losses = ls_fit_losses(model, &count);
    if (count != STEPS) {
        fprintf(stderr, "'%s' has too few examples for %d steps of 60\n", dataset, STEPS);
        exit(1);
    }
    memcpy(loss, losses, STEPS * sizeof(*loss));
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
}

static double largest_difference(const float *a, const float *b)
{
    double largest = 0;
    for (int i = 0; i < STEPS; i++)
        largest = fmax(largest, fabs((double)a[i] - (double)b[i]) / fabs((double)b[i]));
    return largest;
}

int main(int argc, char **argv)
{
    static const char *const strategies[] = {"ring", "hierarchical-copy"};
    const uint32_t replicas = argc > 1 ? (uint32_t)atoi(argv[1]) : 2;
    const char *dataset = argc > 2 ? argv[2] : "fashion-mnist:limit=1000";

    float one[STEPS], many[STEPS];
    train_under("one-device", 1, dataset, one);
    printf("%-20s %8s   %s\n", "strategy", "replicas", "largest relative difference of a loss");
    printf("%-20s %8d   losses %.4f to %.4f\n", "one-device", 1, (double)one[0],
           (double)one[STEPS - 1]);
    for (int i = 0; i < 2; i++) {
        train_under(strategies[i], replicas, dataset, many);
        printf("%-20s %8u   %.1e\n", strategies[i], replicas, largest_difference(many, one));
    }
    return 0;
}
