// SPDX-License-Identifier: Apache-2.0
// The options that train and evaluate share.
#ifndef LS_TOOLS_RUN_OPTIONS_H
#define LS_TOOLS_RUN_OPTIONS_H

#include "lockstep.h"
#include "tools/arguments.h"

#define REPLICAS_MOST 4096

// Rows of the table: which of several workers a process is, and how it meets the others.
#define CLUSTER_ARGUMENTS                                                                          \
    {"cluster", "auto|none|NAME", "auto",                                                          \
     "the launcher whose environment variables say which worker this is: launch, tf-config, "      \
     "torchrun, pmix, openmpi, pmi, slurm or kubernetes; auto: the first whose variables are "     \
     "complete; none: this process is alone (docs/cluster.md)"},                                   \
        {"join-deadline", "SECONDS", "60", "longest wait for all workers to join",                 \
         .idle = ARGUMENT_IDLE_ALONE},                                                             \
        {"lost-after", "SECONDS", "3", "a worker that is silent for this long is lost",            \
         .idle = ARGUMENT_IDLE_ALONE},                                                             \
        {"network", "private", NULL,                                                               \
         "states that only trusted machines reach the network between the workers; transport ucx " \
         "needs this beyond one host",                                                             \
         .idle = ARGUMENT_IDLE_ALONE},                                                             \
    {                                                                                              \
        "insecure", NULL, NULL,                                                                    \
            "let workers on other machines join without a secret, over any network",               \
            .idle = ARGUMENT_IDLE_ALONE                                                            \
    }

// Rows of the table.
#define RUN_ARGUMENTS                                                                              \
    {"strategy", "NAME[:option=value,...]", NULL,                                                  \
     "how the replicas are kept in sync, such as ring or mirrored; a strategy (one-device, "       \
     "mirrored, multi-worker-mirrored, tpu, "                                                      \
     "sharded, local-sgd, diloco, central-storage, parameter-server), or a collective under "      \
     "mirrored (ring, tree, "                                                                      \
     "nccl, ..., auto); `lockstep plugins` lists them. Default: one-device for one replica, "      \
     "mirrored for "                                                                               \
     "several, multi-worker-mirrored among several workers",                                       \
     .first_day = true},                                                                           \
        {"device", "cpu|cuda|reference|...", NULL,                                                 \
         "device to compute on; default: cuda if it can run here and has every operation of the "  \
         "model, otherwise cpu, and a line says what is missing",                                  \
         .first_day = true},                                                                       \
        {"replicas", "N", NULL,                                                                    \
         "copies of the model; on GPUs, replica i uses GPU i modulo their number. Default: every " \
         "GPU that the strategy can use; one on the CPU",                                          \
         .first_day = true},                                                                       \
        {"devices", "N[,N...]", NULL,                                                              \
         "numbers of the GPUs, from 0, given to the replicas in this order; default: all, which "  \
         "the workers of one host divide"},                                                        \
        {"threads", "N", NULL, "threads of each replica; default: cores / replicas"},              \
        {"batch", "N", NULL,                                                                       \
         "examples of a step over all replicas; default: replica-batch times replicas",            \
         .first_day = true},                                                                       \
        {"replica-batch", "N", NULL, "examples of a step for each replica [64]",                   \
         .excludes = "batch"},                                                                     \
        {"share", "W[,W...]", NULL,                                                                \
         "weights of the workers, or of the replicas of one process: each takes its part of a "    \
         "batch, so that a slow host can take less; default: equal parts",                         \
         .idle = ARGUMENT_IDLE_ONE_REPLICA},                                                       \
        {"precision", "float32|mixed_bfloat16|mixed_float16", NULL,                                \
         "dtype policy of the layers whose own is float32: mixed_... compute in 16 bits and keep " \
         "variables in float32; float32 overrides the policy of all layers. Default: as the "      \
         "model's file says"},                                                                     \
        {"deadline", "SECONDS", "60",                                                              \
         "longest wait for another replica, or for a plugin's call to return"},                    \
        {"plugin-path", "DIR[:DIR...]", NULL, "directories searched for plugins first"},           \
        CLUSTER_ARGUMENTS

// Rows of the table, for printing.
#define OUTPUT_ARGUMENTS                                                                  \
    {"quiet", NULL, NULL, "print no progress"},                                           \
    {                                                                                     \
        "verbose", "0|1|2", NULL,                                                         \
            "as in Keras: 0 is --quiet; 1, the default, is a bar on a terminal and a "    \
            "line an epoch elsewhere; 2 is a line an epoch everywhere. Without a value: " \
            "print the bucket plan, the kernels, and where the time of a step goes",      \
            .optional = true, .excludes = "quiet"                                         \
    }

// Those of commands whose result is what they print or write.
#define RESULT_ARGUMENTS                                                                           \
    {"quiet", NULL, NULL, "print the result, warnings and errors only"},                           \
    {                                                                                              \
        "verbose", "0|1|2", NULL,                                                                  \
            "0 is --quiet; 1, 2 and no value are the default of this command", .optional = true,   \
                                                                               .excludes = "quiet" \
    }

// Reads --threads, --deadline, --device, --plugin-path and --quiet alone.
LS_STATUS run_options_common(const struct arguments *arguments, struct ls_run_options *out);

// Reads CLUSTER_ARGUMENTS; the texts are borrowed.
LS_STATUS run_options_cluster(const struct arguments *arguments, struct ls_run_options *out);
// Logical shards; 8 where the option has no value, 0 where it is off or not given.
LS_STATUS run_options_reproducible(const struct arguments *arguments, uint32_t *out);

// Reads all of them; the texts are borrowed.
LS_STATUS run_options_read(const struct arguments *arguments, struct ls_run_options *out);
// Opens --model; a built-in one has as many outputs as --initial-weights, else as the data has classes.
LS_STATUS run_options_open_model(const struct arguments *arguments, struct ls_run *run,
                                 const struct ls_data *data, struct ls_model **out);
// Loads --initial-weights where it is given, the same on all workers.
LS_STATUS run_options_load_weights(const struct arguments *arguments, struct ls_model *model);
// Warns, on worker 0, of options that are without effect because of the number of workers or
// replicas of this run.
void run_options_warn_idle(const struct arguments *arguments, const struct ls_run *run);
// A warning where the model has no weights but those of its initializers; nothing where it has no
// parameters.
void run_options_warn_untrained(const struct ls_model *model, const char *command);
LS_STATUS run_options_batch(const struct arguments *arguments, uint64_t *batch,
                            uint64_t *replica_batch);

// LS_USAGE, with an example, if the option `name` is missing.
LS_STATUS run_options_need(const struct arguments *arguments, const char *name,
                           const char *example);

#endif
