// SPDX-License-Identifier: Apache-2.0
// PMI_RANK and PMI_SIZE: mpiexec of MPICH and Intel MPI, srun --mpi=pmi2. How processes tell each
// other something over PMI is not for others than MPI libraries, so LOCKSTEP_ADDRESS must say where
// worker 0 is; without it a Slurm step may be complete.
#include "core/place/resolvers/resolver.h"

static enum ls_resolver_answer resolve(struct ls_resolving *resolving)
{
    static const char *const needed[] = {"PMI_RANK", "PMI_SIZE", NULL};
    static const char *const needed_by_several[] = {"PMI_RANK", "PMI_SIZE", "LOCKSTEP_ADDRESS",
                                                    NULL};
    if (!ls_resolving_has(resolving, "PMI_RANK") && !ls_resolving_has(resolving, "PMI_SIZE"))
        return LS_RESOLVER_ABSENT;
    if (ls_resolving_lacks(resolving, needed))
        return LS_RESOLVER_INCOMPLETE;
    ls_resolving_rank(resolving, "PMI_RANK", "PMI_SIZE");
    ls_resolving_local_rank(resolving, "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
    if (!ls_resolving_given_address(resolving) && resolving->place->workers > 1 &&
        !resolving->problem[0] && ls_resolving_lacks(resolving, needed_by_several)) {
        resolving->advice =
            "PMI does not say where worker 0 is: set LOCKSTEP_ADDRESS=host:port, a free "
            "port of the host of rank 0";
        return LS_RESOLVER_INCOMPLETE;
    }
    return ls_resolving_end(resolving);
}

const struct ls_resolver ls_resolver_pmi = {
    .name = "pmi",
    .variables = "PMI_RANK, PMI_SIZE and LOCKSTEP_ADDRESS",
    .start = "start the workers with mpiexec",
    .resolve = resolve,
};
