// SPDX-License-Identifier: Apache-2.0
// Pods of Kubernetes, one worker each:
// - Kubeflow's Trainer (TrainJob) gives torchrun's arguments: PET_NNODES, PET_NODE_RANK and so on;
// - a LeaderWorkerSet gives LWS_GROUP_SIZE, LWS_WORKER_INDEX and LWS_LEADER_ADDRESS;
// - an Indexed Job gives JOB_COMPLETION_INDEX, and its author the rest: LOCKSTEP_WORLD_SIZE,
//   because Kubernetes does not say how many pods there are, and LOCKSTEP_ADDRESS, because it does
//   not say the name of the service.
// The pods of a TrainJob are those of an Indexed Job, too, so that is asked last.
#include "core/place/resolvers/resolver.h"

#include <stdio.h>
#include <string.h>

static enum ls_resolver_answer end(struct ls_resolving *resolving)
{
    resolving->place->local_workers = 1;
    return ls_resolving_end(resolving);
}

// ---- Kubeflow's Trainer ----

// PET_NNODES may be a range, "2:4", which torchrun settles at its rendezvous.
static uint32_t read_nodes(struct ls_resolving *resolving)
{
    const char *value = ls_resolving_read(resolving, "PET_NNODES");
    const char *colon = strchr(value, ':');
    uint32_t least, most;
    if (!colon)
        return ls_resolving_number(resolving, "PET_NNODES", 1, LS_MOST_WORKERS);
    if (ls_digits_parse(value, (size_t)(colon - value), 1, LS_MOST_WORKERS, &least) &&
        ls_digits_parse(colon + 1, strlen(colon + 1), 1, LS_MOST_WORKERS, &most) && least == most)
        return most;
    ls_resolving_fail(resolving, "PET_NNODES=%.40s does not say one number of pods", value);
    resolving->advice = "start torchrun --no-python in each pod, which settles it";
    return 1;
}

// One worker a pod. Where the job asks for more, torchrun must start them.
static void check_processes(struct ls_resolving *resolving)
{
    const char *name = ls_resolving_has(resolving, "PET_N_PROC_PER_NODE") ? "PET_N_PROC_PER_NODE"
                                                                          : "PET_NPROC_PER_NODE";
    const char *value = ls_resolving_read(resolving, name);
    if (!value || strcmp(value, "auto") == 0 || strcmp(value, "cpu") == 0 ||
        strcmp(value, "gpu") == 0 || strcmp(value, "1") == 0)
        return;
    ls_resolving_fail(resolving, "%s=%.40s asks for several processes a pod, but this is one", name,
                      value);
    resolving->advice =
        "start torchrun --no-python in each pod, or set numProcPerNode to 1 and use "
        "--replicas";
}

static enum ls_resolver_answer resolve_trainer(struct ls_resolving *resolving)
{
    static const char *const needed[] = {"PET_NNODES", "PET_NODE_RANK", NULL};
    static const char *const needed_by_several[] = {"PET_NNODES", "PET_NODE_RANK",
                                                    "PET_MASTER_ADDR", "PET_MASTER_PORT", NULL};
    struct ls_worker_place *place = resolving->place;
    resolving->advice =
        "start torchrun --no-python in each pod, which reads PET_NNODES and the others";
    if (ls_resolving_lacks(resolving, needed))
        return LS_RESOLVER_INCOMPLETE;
    place->workers = read_nodes(resolving);
    check_processes(resolving);
    place->number = ls_resolving_number(resolving, "PET_NODE_RANK", 0, LS_MOST_WORKERS - 1);
    if (place->number >= place->workers)
        ls_resolving_fail(resolving, "PET_NODE_RANK=%u is not below PET_NNODES=%u", place->number,
                          place->workers);
    if (!ls_resolving_given_address(resolving) && place->workers > 1 && !resolving->problem[0]) {
        if (ls_resolving_lacks(resolving, needed_by_several))
            return LS_RESOLVER_INCOMPLETE;
        ls_resolving_host(resolving, "PET_MASTER_ADDR",
                          ls_resolving_read(resolving, "PET_MASTER_ADDR"),
                          ls_resolving_number(resolving, "PET_MASTER_PORT", 1, UINT16_MAX));
    }
    return end(resolving);
}

// ---- LeaderWorkerSet ----

static enum ls_resolver_answer resolve_set(struct ls_resolving *resolving)
{
    static const char *const needed[] = {"LWS_GROUP_SIZE", "LWS_WORKER_INDEX", "LWS_LEADER_ADDRESS",
                                         NULL};
    resolving->advice = "run it in a pod of a LeaderWorkerSet, or unset them";
    if (ls_resolving_lacks(resolving, needed))
        return LS_RESOLVER_INCOMPLETE;
    ls_resolving_rank(resolving, "LWS_WORKER_INDEX", "LWS_GROUP_SIZE");
    if (!ls_resolving_given_address(resolving))
        ls_resolving_host(resolving, "LWS_LEADER_ADDRESS",
                          ls_resolving_read(resolving, "LWS_LEADER_ADDRESS"), LS_DEFAULT_PORT);
    return end(resolving);
}

// ---- Indexed Job ----

static enum ls_resolver_answer resolve_indexed(struct ls_resolving *resolving)
{
    static const char *const needed[] = {"JOB_COMPLETION_INDEX", "LOCKSTEP_WORLD_SIZE", NULL};
    static const char *const needed_by_several[] = {"JOB_COMPLETION_INDEX", "LOCKSTEP_WORLD_SIZE",
                                                    "LOCKSTEP_ADDRESS", NULL};
    resolving->advice = "set LOCKSTEP_WORLD_SIZE to the completions of the Job and "
                        "LOCKSTEP_ADDRESS=JOB-0.SERVICE:29400 (examples/cluster/indexed-job.yaml)";
    if (ls_resolving_lacks(resolving, needed))
        return LS_RESOLVER_INCOMPLETE;
    ls_resolving_rank(resolving, "JOB_COMPLETION_INDEX", "LOCKSTEP_WORLD_SIZE");
    if (!ls_resolving_given_address(resolving) && resolving->place->workers > 1 &&
        !resolving->problem[0] && ls_resolving_lacks(resolving, needed_by_several))
        return LS_RESOLVER_INCOMPLETE;
    return end(resolving);
}

static enum ls_resolver_answer resolve(struct ls_resolving *resolving)
{
    if (ls_resolving_has(resolving, "PET_NNODES") || ls_resolving_has(resolving, "PET_NODE_RANK"))
        return resolve_trainer(resolving);
    if (ls_resolving_has(resolving, "LWS_WORKER_INDEX") ||
        ls_resolving_has(resolving, "LWS_GROUP_SIZE"))
        return resolve_set(resolving);
    if (ls_resolving_has(resolving, "JOB_COMPLETION_INDEX"))
        return resolve_indexed(resolving);
    return LS_RESOLVER_ABSENT;
}

const struct ls_resolver ls_resolver_kubernetes = {
    .name = "kubernetes",
    .variables =
        "JOB_COMPLETION_INDEX with LOCKSTEP_WORLD_SIZE and LOCKSTEP_ADDRESS, or PET_NNODES and "
        "PET_NODE_RANK, or LWS_WORKER_INDEX and LWS_GROUP_SIZE",
    .start = "run it in a pod of an Indexed Job, a TrainJob or a LeaderWorkerSet",
    .resolve = resolve,
};
