// SPDX-License-Identifier: Apache-2.0
// RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT: torchrun, Kubeflow's PyTorchJob, and scripts that
// set what PyTorch calls env://.
//
// torchrun's agent has its own store on MASTER_PORT, which says so by
// TORCHELASTIC_USE_AGENT_STORE=True. Worker 0 then listens PORT_DISTANCE above it. Not on the next
// port: whoever runs a second torchrun on a host gives it that one.
#include "core/place/resolvers/resolver.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define PORT_DISTANCE 100

static bool has_agent_store(struct ls_resolving *resolving)
{
    const char *value = ls_resolving_read(resolving, "TORCHELASTIC_USE_AGENT_STORE");
    return value && (strcasecmp(value, "true") == 0 || strcmp(value, "1") == 0);
}

// A PyTorchJob with several processes a pod expects torchrun in each pod, gives WORLD_SIZE of all
// processes, and RANK of the pod. Without torchrun, which numbers its processes itself, most ranks
// would be waited for in vain.
static void refuse_pod_rank(struct ls_resolving *resolving)
{
    uint32_t nodes, each;
    const char *nnodes = ls_environment_get(resolving->environment, "PET_NNODES");
    const char *nproc = ls_environment_get(resolving->environment, "PET_NPROC_PER_NODE");
    if (ls_resolving_has(resolving, "TORCHELASTIC_RUN_ID") || !nnodes || !nproc ||
        !ls_digits_parse(nnodes, strlen(nnodes), 1, LS_MOST_WORKERS, &nodes) ||
        !ls_digits_parse(nproc, strlen(nproc), 2, LS_MOST_WORKERS, &each) ||
        (uint64_t)nodes * each != resolving->place->workers)
        return;
    ls_resolving_fail(resolving,
                      "RANK=%u is the number of the pod, but WORLD_SIZE=%u counts %u processes a "
                      "pod (PET_NPROC_PER_NODE)",
                      resolving->place->number, resolving->place->workers, each);
    resolving->advice = "start torchrun --no-python in each pod, or set nprocPerNode to 1";
}

// torchrun on several hosts, and worker 0 on "localhost".
static void check_loopback(struct ls_resolving *resolving)
{
    struct ls_worker_place *place = resolving->place;
    const char *group = ls_environment_get(resolving->environment, "GROUP_RANK");
    if (place->local_workers == 0 || place->local_workers == place->workers ||
        !ls_host_is_loopback(place->address))
        return;
    if (group && strcmp(group, "0") != 0)
        ls_resolving_fail(resolving, "MASTER_ADDR=%s is this host, but worker 0 is on another one",
                          place->address);
    place->reached_from_outside = true;
}

static void read_address(struct ls_resolving *resolving)
{
    const char *host = ls_resolving_read(resolving, "MASTER_ADDR");
    const struct ls_worker_place *place = resolving->place;
    uint32_t port = ls_resolving_number(resolving, "MASTER_PORT", 1, UINT16_MAX);
    if (has_agent_store(resolving))
        port += port + PORT_DISTANCE <= UINT16_MAX ? PORT_DISTANCE : -PORT_DISTANCE;
    // torchrun --standalone gives the name of this host, which others could reach, too.
    if (place->local_workers == place->workers)
        host = "127.0.0.1";
    ls_resolving_host(resolving, "MASTER_ADDR", host, port);
}

static enum ls_resolver_answer resolve(struct ls_resolving *resolving)
{
    static const char *const needed[] = {"RANK", "WORLD_SIZE", NULL};
    static const char *const needed_by_several[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR",
                                                    "MASTER_PORT", NULL};
    struct ls_worker_place *place = resolving->place;
    if (!ls_resolving_has(resolving, "RANK") && !ls_resolving_has(resolving, "WORLD_SIZE"))
        return LS_RESOLVER_ABSENT;
    if (ls_resolving_lacks(resolving, needed))
        return LS_RESOLVER_INCOMPLETE;
    ls_resolving_rank(resolving, "RANK", "WORLD_SIZE");
    ls_resolving_local_rank(resolving, "LOCAL_RANK", "LOCAL_WORLD_SIZE");
    refuse_pod_rank(resolving);
    if (!ls_resolving_given_address(resolving) && !resolving->problem[0]) {
        const bool has_address = ls_resolving_has(resolving, "MASTER_ADDR") &&
                                 ls_resolving_has(resolving, "MASTER_PORT");
        if (has_address)
            read_address(resolving);
        else if (place->workers > 1 && ls_resolving_lacks(resolving, needed_by_several))
            return LS_RESOLVER_INCOMPLETE;
    }
    check_loopback(resolving);
    const char *job = ls_resolving_read(resolving, "TORCHELASTIC_RUN_ID");
    snprintf(place->job, sizeof(place->job), "%s", job ? job : "");
    place->restart =
        ls_resolving_number_or(resolving, "TORCHELASTIC_RESTART_COUNT", 0, INT32_MAX, 0);
    return ls_resolving_end(resolving);
}

const struct ls_resolver ls_resolver_torchrun = {
    .name = "torchrun",
    .variables = "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
    .start = "start the workers with torchrun --no-python, or unset RANK and WORLD_SIZE",
    .resolve = resolve,
};
