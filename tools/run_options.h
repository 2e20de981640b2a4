// SPDX-License-Identifier: Apache-2.0
// The options that train and evaluate share: who takes part, and how.
#ifndef LS_TOOLS_RUN_OPTIONS_H
#define LS_TOOLS_RUN_OPTIONS_H

#include "lockstep.h"
#include "tools/arguments.h"

#define REPLICAS_MOST 4096

// Rows of the table.
#define RUN_ARGUMENTS                                                                              \
    {"strategy", "NAME[:option=value,...]", NULL,                                                  \
     "how the replicas stay together: a strategy (one-device, mirrored, central-storage, "         \
     "parameter-server), or a collective under mirrored (ring, tree, nccl, ..., auto); `lockstep " \
     "plugins` lists them. Default: one-device for one replica, else mirrored"},                   \
        {"device", "cpu|cuda|reference|...", NULL,                                                 \
         "what computes; `lockstep plugins` lists them. Default: cuda where it is available and "  \
         "not marked untried, else cpu"},                                                          \
        {"replicas", "N", NULL,                                                                    \
         "copies of the model, each with its thread; they take the GPUs in turn. Default: every "  \
         "GPU that the strategy can use; one on the CPU"},                                         \
        {"threads", "N", NULL, "threads of each replica; default: cores / replicas"},              \
        {"batch", "N", NULL,                                                                       \
         "examples of a step over all replicas; default: replica-batch times replicas"},           \
        {"replica-batch", "N", NULL, "examples of a step for each replica [64]"},                  \
        {"deadline", "SECONDS", "60", "longest wait for another replica"},                         \
    {                                                                                              \
        "plugin-path", "DIR[:DIR...]", NULL, "directories searched for plugins first"              \
    }

// Rows of the table, for printing.
#define OUTPUT_ARGUMENTS                                                                 \
    {"quiet", NULL, NULL, "no progress"},                                                \
    {                                                                                    \
        "verbose", NULL, NULL, "bucket plan, kernels, and where the time of a step goes" \
    }

// Reads --threads, --deadline, --device, --plugin-path and --quiet alone, for a command that has no others of them.
LS_STATUS run_options_common(const struct arguments *arguments, struct ls_run_options *out);

// Reads them all; borrowed texts.
LS_STATUS run_options_read(const struct arguments *arguments, struct ls_run_options *out);
LS_STATUS run_options_batch(const struct arguments *arguments, uint64_t *batch,
                            uint64_t *replica_batch);

// --model and --dataset must be there: LS_USAGE with an example.
LS_STATUS run_options_need(const struct arguments *arguments, const char *name,
                           const char *example);

#endif
