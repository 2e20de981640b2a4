// SPDX-License-Identifier: Apache-2.0
// Open MPI's mpirun, where PMIx cannot be asked for the same. The address of worker 0 still comes
// through PMIx, unless LOCKSTEP_ADDRESS says it. OMPI_COMM_WORLD_NODE_RANK counts the processes of
// all jobs on a host, so it is not the local rank.
#include "core/place/resolvers/resolver.h"

#include <stdio.h>

static enum ls_resolver_answer resolve(struct ls_resolving *resolving)
{
    static const char *const needed[] = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL};
    struct ls_worker_place *place = resolving->place;
    struct ls_pmix_job job;
    if (!ls_resolving_has(resolving, needed[0]) && !ls_resolving_has(resolving, needed[1]))
        return LS_RESOLVER_ABSENT;
    if (ls_resolving_lacks(resolving, needed))
        return LS_RESOLVER_INCOMPLETE;
    ls_resolving_rank(resolving, needed[0], needed[1]);
    ls_resolving_local_rank(resolving, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
    if (!ls_resolving_given_address(resolving) && place->workers > 1 && !resolving->problem[0]) {
        if (!ls_resolving_open_pmix(resolving, &job))
            return LS_RESOLVER_INCOMPLETE;
        snprintf(place->pmix_name, sizeof(place->pmix_name), "%s", job.name);
    }
    return ls_resolving_end(resolving);
}

const struct ls_resolver ls_resolver_openmpi = {
    .name = "openmpi",
    .variables = "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE",
    .start = "start the workers with mpirun",
    .resolve = resolve,
};
