// SPDX-License-Identifier: Apache-2.0
// A step of a Slurm job: what srun sets for each task.
//
// A batch script has SLURM_PROCID=0 and SLURM_NTASKS=4, too, but is one process, not one of four;
// so SLURM_STEP_ID is needed, and must not be the number of the batch or the interactive step.
// Slurm names no port: it is made of the numbers of job and step, so that jobs that share a host
// differ.
#include "core/place/resolvers/resolver.h"
#include "core/place/resolvers/slurm_lists.h"

#include <stdio.h>
#include <string.h>

#define FIRST_SPECIAL_STEP 0xfffffff0u // the batch script, the interactive step and others
#define FIRST_PORT 12000 // the ports from here on are below those that systems give to clients
#define PORTS 16384
#define STEPS 16 // of one job, until ports are the same again

static uint32_t read_tasks(struct ls_resolving *resolving)
{
    return ls_resolving_number(resolving,
                               ls_resolving_has(resolving, "SLURM_STEP_NUM_TASKS")
                                   ? "SLURM_STEP_NUM_TASKS"
                                   : "SLURM_NTASKS",
                               1, LS_MOST_WORKERS);
}

// Not in a step: nothing to join where the job has one task. Else this process would do alone what
// the job was given several tasks for.
static enum ls_resolver_answer resolve_outside(struct ls_resolving *resolving)
{
    const bool tasks = ls_resolving_has(resolving, "SLURM_NTASKS");
    const char *name = tasks ? "SLURM_NTASKS" : "SLURM_JOB_NUM_NODES";
    if (!ls_resolving_has(resolving, "SLURM_JOB_ID") || !ls_resolving_has(resolving, name))
        return LS_RESOLVER_ABSENT;
    const uint32_t count = ls_resolving_number(resolving, name, 1, UINT32_MAX - 1);
    if (resolving->problem[0])
        return LS_RESOLVER_WRONG;
    ls_resolving_fail(resolving, "the Slurm job has %u %s, but this process is in no step of it",
                      count, tasks ? "tasks" : "nodes");
    return count == 1 ? LS_RESOLVER_ABSENT : LS_RESOLVER_INCOMPLETE;
}

// This node's tasks, of which this process is one.
static void read_local(struct ls_resolving *resolving, uint32_t node, uint32_t hosts)
{
    struct ls_worker_place *place = resolving->place;
    const char *list = ls_resolving_read(resolving, "SLURM_STEP_TASKS_PER_NODE");
    uint32_t total, nodes;
    if (!list)
        return;
    place->local_worker = ls_resolving_number(resolving, "SLURM_LOCALID", 0, LS_MOST_WORKERS - 1);
    if (!ls_slurm_tasks(list, node, &place->local_workers, &total, &nodes))
        ls_resolving_fail(resolving,
                          "SLURM_STEP_TASKS_PER_NODE=%.100s is not a list such as 2(x2),1", list);
    else if (total != place->workers || nodes != hosts)
        ls_resolving_fail(
            resolving,
            "SLURM_STEP_TASKS_PER_NODE=%.100s counts %u tasks on %u nodes, but the step "
            "has %u tasks on %u nodes",
            list, total, nodes, place->workers, hosts);
    else if (place->local_worker >= place->local_workers)
        ls_resolving_fail(resolving, "SLURM_LOCALID=%u is not below the %u tasks of node %u",
                          place->local_worker, place->local_workers, node);
}

static uint32_t make_port(uint32_t job, uint32_t step)
{
    return FIRST_PORT + (uint32_t)(((uint64_t)job * STEPS + step % STEPS) % PORTS);
}

static void read_hosts(struct ls_resolving *resolving, uint32_t job, uint32_t step)
{
    struct ls_worker_place *place = resolving->place;
    const char *list = ls_resolving_read(resolving, "SLURM_STEP_NODELIST");
    char first[LS_HOST_BYTES];
    uint32_t hosts = 0;
    if (!ls_slurm_host(list, 0, first, &hosts)) {
        ls_resolving_fail(
            resolving, "SLURM_STEP_NODELIST=%.100s is not a list of hosts such as n[1-2,5]", list);
        return;
    }
    const uint32_t node =
        ls_resolving_number_or(resolving, "SLURM_NODEID", 0, LS_MOST_WORKERS - 1, 0);
    if (node >= hosts)
        ls_resolving_fail(resolving, "SLURM_NODEID=%u is not below the %u hosts of %.100s", node,
                          hosts, list);
    read_local(resolving, node, hosts);
    if (ls_resolving_given_address(resolving))
        return;
    if (place->number == 0 && node != 0) {
        ls_resolving_fail(resolving, "task 0 is not on the first host of the step, %s", first);
        resolving->advice = "leave out srun's --distribution, or set LOCKSTEP_ADDRESS=host:port";
    }
    // Names of nodes need not be names of hosts, which does not matter on one of them.
    ls_resolving_host(resolving, "SLURM_STEP_NODELIST", hosts == 1 ? "127.0.0.1" : first,
                      make_port(job, step));
}

// mpirun and mpiexec start a daemon on each node by srun, and their processes inherit its
// variables: rank and number of tasks of the daemon.
static bool is_daemon_environment(struct ls_resolving *resolving)
{
    static const char *const names[][2] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                           {"PMI_RANK", "PMI_SIZE"},
                                           {"PMIX_RANK", NULL}};
    const struct ls_worker_place *place = resolving->place;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *rank = ls_environment_get(resolving->environment, names[i][0]);
        const char *size =
            names[i][1] ? ls_environment_get(resolving->environment, names[i][1]) : NULL;
        char same_rank[16], same_size[16];
        snprintf(same_rank, sizeof(same_rank), "%u", place->number);
        snprintf(same_size, sizeof(same_size), "%u", place->workers);
        if ((rank && strcmp(rank, same_rank) != 0) || (size && strcmp(size, same_size) != 0))
            return true;
    }
    return false;
}

static enum ls_resolver_answer resolve(struct ls_resolving *resolving)
{
    static const char *const needed[] = {"SLURM_STEP_ID", "SLURM_JOB_ID", "SLURM_PROCID",
                                         "SLURM_STEP_NODELIST", NULL};
    struct ls_worker_place *place = resolving->place;
    const char *name = "SLURM_STEP_ID";
    if (!ls_resolving_has(resolving, name))
        return resolve_outside(resolving);
    const uint32_t step = ls_resolving_number(resolving, name, 0, UINT32_MAX);
    if (resolving->problem[0])
        return LS_RESOLVER_WRONG;
    if (step >= FIRST_SPECIAL_STEP)
        return resolve_outside(resolving);
    if (ls_resolving_lacks(resolving, needed))
        return LS_RESOLVER_INCOMPLETE;
    const uint32_t job = ls_resolving_number(resolving, "SLURM_JOB_ID", 1, UINT32_MAX);
    place->number = ls_resolving_number(resolving, "SLURM_PROCID", 0, LS_MOST_WORKERS - 1);
    place->workers = read_tasks(resolving);
    if (place->number >= place->workers)
        ls_resolving_fail(resolving, "SLURM_PROCID=%u is not below the %u tasks of the step",
                          place->number, place->workers);
    if (!resolving->problem[0] && is_daemon_environment(resolving)) {
        ls_resolving_fail(resolving,
                          "the variables of Slurm are those of a daemon of MPI, which started "
                          "this process");
        return LS_RESOLVER_ABSENT;
    }
    read_hosts(resolving, job, step);
    snprintf(place->job, sizeof(place->job), "slurm %u.%u", job, step);
    place->restart = ls_resolving_number_or(resolving, "SLURM_RESTART_COUNT", 0, INT32_MAX, 0);
    return ls_resolving_end(resolving);
}

const struct ls_resolver ls_resolver_slurm = {
    .name = "slurm",
    .variables = "SLURM_STEP_ID, SLURM_PROCID, SLURM_STEP_NUM_TASKS and SLURM_STEP_NODELIST",
    .start = "start the workers with srun",
    .resolve = resolve,
};
