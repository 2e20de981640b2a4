// SPDX-License-Identifier: Apache-2.0
// The bits of a training loop of a program's own: steps by step functions, then the weights.
//
//     loop-bits MODEL DATASET STRATEGY REPLICAS STEPS WEIGHTS
//
// The chief writes the file WEIGHTS and prints JSON: the loss of each step as a hexadecimal number, and for each replica a
// hash of all examples and targets that it was given, in their order. Started by tools/compare-builds --bits, which
// compiles this file against each of the two builds.
#include <lockstep.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_REPLICAS 16

// 48 bits, which a double holds exactly: so ls_strategy_gather can carry it.
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hash = ((hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3) & 0xffffffffffff;
    return hash;
}

static uint64_t hash_array(uint64_t hash, const struct ls_array *array)
{
    size_t bytes = !strcmp(array->dtype, "bool") || !strcmp(array->dtype, "uint8")      ? 1
                   : !strcmp(array->dtype, "int64") || !strcmp(array->dtype, "float64") ? 8
                                                                                        : 4;
    for (uint32_t i = 0; i < array->ndims; i++)
        bytes *= (size_t)array->dims[i];
    return hash_bytes(hash, array->values, bytes);
}

// On each replica's own thread, on its share of the batch. `context`: the hashes of the replicas.
static enum ls_status train_step(struct ls_replica_context *replica, void *context)
{
    double *hash = (double *)context + ls_context_local_rank(replica);
    struct ls_array input, target;
    enum ls_status status = ls_context_input(replica, 0, &input);
    if (!status)
        status = ls_context_target(replica, &target);
    if (!status) {
        *hash = (double)hash_array(hash_array((uint64_t)*hash, &input), &target);
        status = ls_context_forward(replica);
    }
    if (!status)
        status = ls_context_update_metrics(replica);
    return status ? status : ls_context_minimize(replica);
}

static enum ls_status train(struct ls_distributed *dataset, int steps, int speak, double *hashes)
{
    enum ls_status status = LS_OK;
    for (int step = 0; !status && step < steps; step++) {
        struct ls_metrics metrics;
        if (!ls_distributed_next(dataset))
            return LS_FAILED;
        status = ls_strategy_run(dataset, train_step, hashes);
        ls_strategy_metrics(dataset, &metrics, NULL);
        if (speak)
            printf("%s\"%a\"", step ? ", " : "", ls_metric_value(&metrics, "loss"));
    }
    return status;
}

static enum ls_status run_loop(struct ls_run *run, struct ls_model *model, struct ls_data *data,
                               int steps, const char *weights)
{
    const int speak = ls_run_is_chief(run) == 1;
    double hashes[MOST_REPLICAS] = {0}, all[MOST_REPLICAS];
    struct ls_distributed *dataset = NULL;
    enum ls_status status =
        ls_distribute_dataset(model, data, &(struct ls_distribute_options){.batch = 100}, &dataset);
    if (!status && speak)
        printf("{\"losses\": [");
    if (!status)
        status = train(dataset, steps, speak, hashes);
    if (!status)
        status = ls_check_replicas(model);
    if (!status)
        status = ls_strategy_gather(run, hashes, 1, all);
    for (uint32_t i = 0; !status && speak && i < ls_run_replicas(run); i++)
        printf("%s\"%.0f\"", i ? ", " : "], \"examples\": [", all[i]);
    if (!status && speak)
        printf("]}\n");
    ls_distributed_close(dataset);
    return !status ? ls_save_weights(model, weights) : status;
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fputs("loop-bits: expected MODEL DATASET STRATEGY REPLICAS STEPS WEIGHTS\n", stderr);
        return LS_USAGE;
    }
    const struct ls_run_options options = {.device = "cpu",
                                           .strategy = argv[3],
                                           .replicas = (uint32_t)strtol(argv[4], NULL, 10),
                                           .threads = 1};
    struct ls_run *run = NULL;
    struct ls_data *data = NULL;
    struct ls_model *model = NULL;
    enum ls_status status = ls_run_open(&options, &run);
    if (!status)
        status = ls_data_open(argv[2], "train", &data);
    if (!status)
        status = ls_model_open(run, argv[1], data, &model);
    if (!status)
        status = ls_compile(model, NULL);
    if (!status)
        status = run_loop(run, model, data, (int)strtol(argv[5], NULL, 10), argv[6]);
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
    return (int)status;
}
