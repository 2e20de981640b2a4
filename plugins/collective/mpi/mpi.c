// SPDX-License-Identifier: Apache-2.0
// Collective `mpi`: Open MPI's nonblocking collectives, between processes that were started by mpirun, or by another engine that
// Open MPI can ask. It runs itself: it describes no schedule, so it can be neither simulated nor verified.
//
// One rank a process, which is MPI's own idea of a rank. In host memory. A rank that is lost is Open MPI's matter: mpirun
// ends all processes when one dies; what hangs ends by the host's deadline.
//
// Nothing is promised about bits: Open MPI chooses its algorithm by size.
#include "core/plugin/transport.h" // LS_SCOPE_NETWORK
#include "plugins/collective/mpi/internal.h"

// What each rank tells the others before the communicator is made, which waits for all.
struct greeting {
    int32_t status; // LS_OK; else it cannot take part, and has said why
    int32_t rank, size; // of MPI_COMM_WORLD
    uint32_t reserved;
};

static int32_t check_ranks(const struct ls_host *host, const struct ls_collective_config *config)
{
    char reason[200];
    if (config->count != 1)
        return ls_host_fail(host, LS_UNAVAILABLE,
                            "MPI has one rank a process, and %u replicas are in this one: start "
                            "more workers with --replicas=1, or choose another collective",
                            config->count);
    if (!mpi_was_launched(reason, sizeof(reason)))
        return host->fail(host, LS_UNAVAILABLE, reason);
    return LS_OK;
}

// All ranks say whether they come, so that nobody waits in MPI for one that does not.
static int32_t meet(const struct ls_host *host, const struct ls_collective_config *config,
                    const struct greeting *own, int32_t status)
{
    struct greeting *mine = calloc(config->count, sizeof(*mine));
    struct greeting *all = calloc(config->world, sizeof(*all));
    int32_t met = mine && all ? LS_OK : ls_host_fail(host, LS_OUT_OF_MEMORY, "no memory for ranks");
    for (uint32_t i = 0; !met && i < config->count; i++) {
        mine[i] = *own;
        mine[i].status = status;
    }
    if (!met)
        met = config->exchange(config->context, mine, sizeof(*mine), all);
    for (uint32_t i = 0; !met && !status && i < config->world; i++)
        if (all[i].status)
            met = ls_host_fail(host, LS_ABORTED, "rank %u cannot use MPI; its own message says why",
                               i);
        else if (all[i].size != own->size ||
                 (uint32_t)all[i].size != (own->size ? config->world : 0))
            met = ls_host_fail(host, LS_UNAVAILABLE,
                               "rank %u is one of %d processes of MPI, and this job has %u ranks: "
                               "start all workers by one mpirun, one rank each",
                               i, all[i].size, config->world);
    free(mine);
    free(all);
    return status ? status : met;
}

// Our ranks in their order, and errors that are returned.
static int32_t create_communicator(struct ls_collective *collective)
{
    const struct mpi_calls *calls = collective->calls;
    pthread_mutex_lock(&mpi_lock);
    int error = calls->MPI_Comm_split((mpi_comm)calls->ompi_mpi_comm_world, 0,
                                      (int)collective->rank, &collective->comm);
    if (!error)
        error = calls->MPI_Comm_set_errhandler(collective->comm,
                                               (mpi_errhandler)calls->ompi_mpi_errors_return);
    pthread_mutex_unlock(&mpi_lock);
    return error ? ls_host_fail(collective->host, LS_FAILED, "Open MPI makes no communicator")
                 : LS_OK;
}

static int32_t mpi_open(const struct ls_host *host, const struct ls_collective_config *config,
                        struct ls_collective *const *collectives)
{
    struct ls_collective *collective = collectives[0];
    struct greeting own = {0};
    char reason[300];
    collective->host = host;
    collective->rank = config->members[0].rank;
    collective->world = config->world;
    collective->end = &collective->first;
    if (config->world == 1)
        return LS_OK;
    int32_t status = meet(host, config, &own, check_ranks(host, config));
    if (status)
        return status;
    status = mpi_start(&collective->calls, reason, sizeof(reason));
    if (status)
        host->fail(host, status, reason);
    if (!status) {
        pthread_mutex_lock(&mpi_lock);
        collective->calls->MPI_Comm_rank((mpi_comm)collective->calls->ompi_mpi_comm_world,
                                         &own.rank);
        collective->calls->MPI_Comm_size((mpi_comm)collective->calls->ompi_mpi_comm_world,
                                         &own.size);
        pthread_mutex_unlock(&mpi_lock);
    }
    status = meet(host, config, &own, status);
    return status ? status : create_communicator(collective);
}

// The communicator stays until the process ends: to free it, all ranks would have to wait for each other.
static void mpi_close(struct ls_collective *collective)
{
    bool unfinished = false;
    for (const struct mpi_operation *operation = collective->first; operation;
         operation = operation->next)
        unfinished = unfinished || operation->count;
    if (unfinished)
        mpi_give_up();
    else
        mpi_operations_destroy(collective->first); // else MPI refers to them
    mpi_operations_destroy(collective->free);
}

static void mpi_abort(struct ls_collective *collective)
{
    atomic_store(&collective->aborted, true);
}

static void mpi_about(char *text, uint64_t bytes)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "Open MPI";
    const struct mpi_calls *calls = mpi_loaded();
    int length = 0;
    if (calls)
        calls->MPI_Get_library_version(version, &length);
    snprintf(text, bytes, "%.*s", (int)strcspn(version, ","), version);
}

static const struct ls_collective_interface interface = {
    .struct_size = sizeof(struct ls_collective_interface),
    .operations = 1u << LS_ALL_REDUCE | 1u << LS_REDUCE_SCATTER | 1u << LS_ALL_GATHER |
                  1u << LS_BROADCAST | 1u << LS_REDUCE | 1u << LS_ALL_TO_ALL,
    .dtypes = 1u << LS_F32 | 1u << LS_F64 | 1u << LS_F16 | 1u << LS_BF16 | 1u << LS_I32 |
              1u << LS_I64 | 1u << LS_U8,
    .memory_kinds = 1u << LS_MEMORY_HOST,
    .scope = LS_SCOPE_NETWORK,
    .state_bytes = sizeof(struct ls_collective),
    .open = mpi_open,
    .close = mpi_close,
    .run = mpi_run,
    .done = mpi_done,
    .poll = mpi_poll,
    .abort = mpi_abort,
    .about = mpi_about,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE),
    .name = "mpi",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "Open MPI between processes, one rank in each",
    .probe = mpi_probe,
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
