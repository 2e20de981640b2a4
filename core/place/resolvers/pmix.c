// SPDX-License-Identifier: Apache-2.0
// PMIx: mpirun of Open MPI, prterun, srun --mpi=pmix. The environment says only which process of
// which job this is; the PMIx server of the host says the rest, and carries the address of
// worker 0.
//
// LOCKSTEP_PMIX_LIBRARY names a libpmix that is not where the system looks.
#include "core/place/resolvers/resolver.h"

#include "core/place/pmix_calls.h"

#include <stdio.h>
#include <string.h>

#define OPEN_NS (UINT64_C(10) * 1000000000)

bool ls_resolving_open_pmix(struct ls_resolving *resolving, struct ls_pmix_job *out)
{
    const char *library = ls_environment_get(resolving->environment, "LOCKSTEP_PMIX_LIBRARY");
    const char *name = ls_environment_get(resolving->environment, "PMIX_NAMESPACE");
    char *problem = resolving->pmix_problem;
    const size_t bytes = sizeof(resolving->pmix_problem);
    if (!problem[0] && !name)
        snprintf(problem, bytes, "PMIX_NAMESPACE is not set");
    if (!problem[0] && ls_pmix_open(library, OPEN_NS, out, problem, bytes) &&
        strcmp(out->name, name) != 0)
        snprintf(problem, bytes, "PMIx knows this process as one of job '%.100s'", out->name);
    if (!problem[0])
        return true;
    ls_resolving_fail(resolving, "the workers cannot find each other through PMIx: %s", problem);
    resolving->advice = "set LOCKSTEP_ADDRESS=host:port, a free port of the host of rank 0, or "
                        "LOCKSTEP_PMIX_LIBRARY to the launcher's libpmix";
    return false;
}

static void fill(struct ls_resolving *resolving, const struct ls_pmix_job *job)
{
    struct ls_worker_place *place = resolving->place;
    const uint32_t rank = ls_resolving_number(resolving, "PMIX_RANK", 0, LS_MOST_WORKERS - 1);
    snprintf(place->pmix_name, sizeof(place->pmix_name), "%s", job->name);
    place->number = job->rank;
    place->workers = job->size;
    place->local_worker = job->local_rank;
    place->local_workers = job->local_size;
    if (job->rank != rank)
        ls_resolving_fail(resolving, "PMIX_RANK=%u, but PMIx knows this process as rank %u", rank,
                          job->rank);
    if (job->size == 0 || job->size > LS_MOST_WORKERS || job->rank >= job->size)
        ls_resolving_fail(resolving, "PMIx says that this is rank %u of %u", job->rank, job->size);
    if (job->local_size > job->size || (job->local_size && job->local_rank >= job->local_size))
        ls_resolving_fail(resolving,
                          "PMIx says that this is rank %u of %u on this host, in a job of %u",
                          job->local_rank, job->local_size, job->size);
    ls_resolving_note(resolving, "size %u", job->size);
}

static enum ls_resolver_answer resolve(struct ls_resolving *resolving)
{
    static const char *const needed[] = {"PMIX_NAMESPACE", "PMIX_RANK", NULL};
    struct ls_worker_place *place = resolving->place;
    struct ls_pmix_job job;
    if (!ls_resolving_has(resolving, "PMIX_RANK"))
        return LS_RESOLVER_ABSENT; // tools and servers of PMIx have a namespace, too
    if (ls_resolving_lacks(resolving, needed))
        return LS_RESOLVER_INCOMPLETE;
    const char *name = ls_resolving_read(resolving, "PMIX_NAMESPACE");
    (void)ls_resolving_read(resolving, "PMIX_RANK");
    snprintf(place->job, sizeof(place->job), "pmix %.100s", name);
    if (!ls_resolving_open_pmix(resolving, &job))
        return LS_RESOLVER_INCOMPLETE;
    fill(resolving, &job);
    (void)ls_resolving_given_address(resolving);
    return ls_resolving_end(resolving);
}

const struct ls_resolver ls_resolver_pmix = {
    .name = "pmix",
    .variables = "PMIX_NAMESPACE and PMIX_RANK",
    .start = "start the workers with mpirun or srun --mpi=pmix",
    .resolve = resolve,
};
