// SPDX-License-Identifier: Apache-2.0
// A functional model: a small residual network on Fashion-MNIST, whose two blocks add their input to
// what they make of it.
//
//     ./residual
//     ./residual ring 2
//     ./residual ring 2 fashion-mnist:limit=10000 100      (data, steps)
//
// Compile it with
//
//     cc -o residual residual.c $(pkg-config --cflags --libs lockstep)
#include "lockstep.h"

#include <stdlib.h>

// Lockstep has logged what went wrong and what to do.
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

static struct ls_symbol *add(struct ls_symbol *x, struct ls_symbol *y)
{
    struct ls_symbol *both[] = {x, y}, *sum;
    check(ls_layer_call(&(struct ls_layer)LS_ADD(), both, 2, &sum));
    return sum;
}

static struct ls_symbol *block(struct ls_symbol *x, int filters)
{
    struct ls_symbol *y = call((struct ls_layer)LS_CONV2D(filters, 3, .padding = "same"), x);
    y = call((struct ls_layer)LS_RELU(), y);
    y = call((struct ls_layer)LS_CONV2D(filters, 3, .padding = "same"), y);
    return call((struct ls_layer)LS_RELU(), add(x, y));
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

    struct ls_symbol *image, *x;
    check(ls_input(run, &(struct ls_layer)LS_INPUT(28, 28, 1), &image));
    x = call((struct ls_layer)LS_CONV2D(16, 3, .strides = 2, .padding = "same"), image);
    x = block(x, 16);
    x = call((struct ls_layer)LS_CONV2D(32, 3, .strides = 2, .padding = "same"), x);
    x = block(x, 32);
    x = call((struct ls_layer)LS_GLOBAL_AVERAGE_POOLING2D(), x);
    x = call((struct ls_layer)LS_DENSE(10), x);

    struct ls_model *model;
    check(ls_model_create("residual", &image, 1, &x, 1, &model));
    ls_model_summary(model, stdout);

    struct ls_data *train, *test;
    check(ls_data_open(dataset, "train", &train));
    check(ls_data_open(dataset, "test", &test));
    check(ls_compile(model, &(struct ls_compile_options){
                                .loss = "sparse_categorical_crossentropy:from_logits=true"}));
    check(ls_fit(model, train,
                 &(struct ls_fit_options){.steps = (uint64_t)steps, .validation = test}));

    size_t count;
    const struct ls_epoch *epochs = ls_fit_epochs(model, &count);
    printf("after %zu epoch(s): %.1f %% of the test examples are right\n", count,
           100 * ls_metric_value(&epochs[count - 1].metrics, "val_accuracy"));

    ls_model_close(model);
    ls_data_close(train);
    ls_data_close(test);
    ls_run_close(run);
    return 0;
}
