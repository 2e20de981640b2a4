// SPDX-License-Identifier: Apache-2.0
// Horovod's recipe, step by step, in a loop of the program's own:
//
//     ./horovod_recipe [REPLICAS] [DATA] [STEPS] [CHECKPOINT]
//
// Horovod starts a process for each device; here they are replicas of one process, each with a
// thread of its own.
#include "lockstep.h"

#include <stdlib.h>

static void check(enum ls_status status)
{
    if (status)
        exit((int)status); // Lockstep has logged what went wrong and what to do
}

// hvd.DistributedOptimizer: gradients are averaged over all replicas by a ring all-reduce, which
// begins while backward still runs, and each replica makes the same update.
static enum ls_status train_step(struct ls_replica_context *replica, void *context)
{
    (void)context;
    // hvd.rank(), hvd.local_rank(), hvd.size(). Replica i of the process is pinned to device i.
    if (ls_context_step(replica) == 1)
        fprintf(stderr, "rank %u of %u on device %u%s\n", ls_context_rank(replica),
                ls_context_world(replica), ls_context_local_rank(replica),
                ls_context_is_chief(replica) ? " saves the checkpoint" : "");
    enum ls_status status = ls_context_forward(replica);
    if (!status)
        status = ls_context_update_metrics(replica);
    return status ? status : ls_context_minimize(replica);
}

int main(int argc, char **argv)
{
    const int replicas = argc > 1 ? atoi(argv[1]) : 2;
    const char *const dataset = argc > 2 ? argv[2] : "fashion-mnist";
    const int steps = argc > 3 ? atoi(argv[3]) : 200;
    const char *const checkpoint = argc > 4 ? argv[4] : "horovod_recipe.safetensors";

    // hvd.init()
    struct ls_run *run;
    check(ls_run_open(&(struct ls_run_options){.strategy = "ring", .replicas = (uint32_t)replicas},
                      &run));
    struct ls_data *data;
    check(ls_data_open(dataset, "train", &data));
    struct ls_model *model;
    check(ls_model_open(run, "mlp", data, &model));
    // The learning rate grows with the number of workers: lr * hvd.size().
    check(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd:learning_rate=0.01",
                                                         .lr_scaling = "linear"}));
    struct ls_distributed *batches;
    check(ls_distribute_dataset(model, data, NULL, &batches));
    // hvd.BroadcastGlobalVariablesHook(0)
    check(ls_broadcast_variables(model, 0));

    // while not mon_sess.should_stop(): mon_sess.run(train_op)
    for (int step = 0; step < steps; step++)
        check(ls_strategy_run(batches, train_step, NULL));
    struct ls_metrics metrics;
    ls_strategy_metrics(batches, NULL, &metrics);
    printf("%u workers, %d steps: loss %.4f, accuracy %.4f, learning rate %g\n",
           ls_run_replicas(run), steps, ls_metric_value(&metrics, "loss"),
           ls_metric_value(&metrics, "accuracy"), ls_learning_rate(model));

    // checkpoint_dir = '/tmp/train_logs' if hvd.rank() == 0 else None
    if (ls_run_is_chief(run))
        check(ls_model_save(model, checkpoint));

    ls_distributed_close(batches);
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
    return 0;
}
