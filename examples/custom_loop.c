// SPDX-License-Identifier: Apache-2.0
// A training loop of the program's own, as tf.distribute's tutorial "with Training Loops" writes it:
//     ./custom_loop [STRATEGY] [REPLICAS] [DATA] [EPOCHS] [MODEL]
// Each step prints its loss twice: added up here, and as ls_fit has it, bit for bit.
#include "lockstep.h"

#include <stdlib.h>

// On each replica's own thread, on its share of the batch.
static enum ls_status train_step(struct ls_replica_context *replica, void *losses)
{
    double sum = 0;
    enum ls_status status = ls_context_forward(replica);
    if (!status)
        status = ls_context_loss(replica, &sum, NULL);
    if (!status)
        status = ls_context_update_metrics(replica);
    if (!status)
        status = ls_context_minimize(replica);
    ((double *)losses)[ls_context_local_rank(replica)] =
        sum / (double)ls_context_global_examples(replica);
    return status;
}

static void check(enum ls_status status)
{
    if (status)
        exit((int)status); // Lockstep has logged what went wrong and what to do
}

int main(int argc, char **argv)
{
    const int epochs = argc > 4 ? atoi(argv[4]) : 5;
    struct ls_run_options options = {.strategy = argc > 1 ? argv[1] : "mirrored",
                                     .replicas = argc > 2 ? (uint32_t)atoi(argv[2]) : 2};
    struct ls_run *run;
    struct ls_data *data;
    struct ls_model *model;
    struct ls_distributed *dataset;
    check(ls_run_open(&options, &run));
    printf("Number of devices: %u\n", ls_run_replicas(run));
    check(ls_data_open(argc > 3 ? argv[3] : "fashion-mnist", "train", &data));
    check(ls_model_open(run, argc > 5 ? argv[5] : "cnn", data, &model));
    check(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd:learning_rate=0.001"}));
    check(ls_distribute_dataset(model, data, NULL, &dataset));
    double loss, *losses = calloc(ls_run_replicas(run), sizeof(*losses));
    for (int epoch = 1; losses && epoch <= epochs; epoch++)
        for (int step = 1; ls_distributed_next(dataset); step++) {
            struct ls_metrics metrics;
            check(ls_strategy_run(dataset, train_step, losses));
            check(ls_strategy_reduce(run, "sum", losses, 1, &loss));
            ls_strategy_metrics(dataset, &metrics, NULL);
            printf("Epoch %d Step %d Loss %.4f (%.9g)\n", epoch, step, loss,
                   ls_metric_value(&metrics, "loss"));
        }
    free(losses);
    ls_distributed_close(dataset), ls_model_close(model), ls_data_close(data), ls_run_close(run);
    return 0;
}
