// SPDX-License-Identifier: Apache-2.0
// Memory of the host, and where a worker finds the buffers of its replica.
#include "plugins/strategy/parameter-server/internal.h"

#include <string.h>

void *strategy_allocate(const struct ls_strategy *strategy, uint64_t count, uint64_t bytes)
{
    const struct ls_host *host = strategy->host->host;
    const uint64_t all = (count ? count : 1) * bytes;
    void *memory = host->allocate(host, all, 64);
    if (memory)
        memset(memory, 0, all);
    return memory;
}

void strategy_release(const struct ls_strategy *strategy, void *memory)
{
    strategy->host->host->release(strategy->host->host, memory);
}

int32_t worker_find_memory(struct worker *worker)
{
    struct ls_strategy *strategy = worker->strategy;
    const struct ls_strategy_host *host = strategy->host;
    worker->parameters = host->memory->map(host, worker->rank, LS_REPLICA_PARAMETERS);
    worker->gradients = host->memory->map(host, worker->rank, LS_REPLICA_GRADIENTS);
    if (!worker->parameters && !worker->parameter_copy)
        worker->parameter_copy = strategy_allocate(strategy, host->flat_count, sizeof(float));
    if (!worker->gradients && !worker->gradient_copy)
        worker->gradient_copy = strategy_allocate(strategy, host->flat_count, sizeof(float));
    if (!worker->parameters)
        worker->parameters = worker->parameter_copy;
    if (!worker->gradients)
        worker->gradients = worker->gradient_copy;
    return worker->parameters && worker->gradients ? LS_OK : LS_OUT_OF_MEMORY;
}
