// SPDX-License-Identifier: Apache-2.0
// Opening, watching and closing the communicators of one process.
//
// All of them are non-blocking (NCCL's word): a call only begins something, and ncclCommGetAsyncError() is asked until it is
// no longer in progress. NCCL itself knows no deadline; ours is kept here, and what is late is aborted. NCCL wants every rank
// of a process to finalize, destroy or abort before any of it ends; so the last rank that is closed does it for all.
#include "plugins/collective/nccl/internal.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LEAST_VERSION = 21800 };

// ---- Errors ----

// What NCCL answers for good is the same on all ranks, or nothing comes any more: the others end, too, and one line says why.
static int32_t fail(struct ls_collective *collective, unsigned error, const char *what)
{
    struct nccl_family *family = collective->family;
    const struct nccl_calls *calls = family->calls;
    if (atomic_exchange(&family->aborted, true))
        return LS_ABORTED;
    const char *text = calls->ncclGetLastError(collective->comm);
    return ls_host_fail(family->host, error == ncclRemoteError ? LS_PEER_LOST : LS_FAILED,
                        "rank %u: %s: NCCL answers \"%s\"%s%s", collective->member.rank, what,
                        calls->ncclGetErrorString(error), text && text[0] ? ": " : "",
                        text ? text : "");
}

static void drop(struct ls_collective *collective)
{
    if (collective->comm)
        collective->family->calls->ncclCommAbort(collective->comm);
    collective->comm = NULL;
}

// The state of the communicator: an error when it, or the question, failed.
static unsigned state_of(const struct ls_collective *collective)
{
    unsigned state = ncclSuccess;
    const unsigned error =
        collective->family->calls->ncclCommGetAsyncError(collective->comm, &state);
    return error ? error : state;
}

// ---- Waiting ----

static void pause_after(uint64_t waited_ns)
{
    if (waited_ns < 200000) // what is put on a stream takes tens of microseconds
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = waited_ns < 10000000 ? 20000 : 500000}, NULL);
}

int32_t nccl_synchronize(struct ls_collective *collective, unsigned error, const char *what)
{
    struct nccl_family *family = collective->family;
    const struct ls_host *host = family->host;
    const uint64_t start = host->clock_ns(host);
    int32_t status = LS_OK;
    while (!status && (error == ncclInProgress || error == ncclSuccess)) {
        error = state_of(collective);
        if (error == ncclSuccess)
            return LS_OK;
        const uint64_t waited = host->clock_ns(host) - start;
        if (atomic_load(&family->aborted))
            status = LS_ABORTED;
        else if (error == ncclInProgress && waited > family->deadline_ns)
            status = atomic_exchange(&family->aborted, true)
                         ? LS_ABORTED
                         : ls_host_fail(host, LS_PEER_LOST,
                                        "rank %u: %s: NCCL is still in progress after %.1f s",
                                        collective->member.rank, what, (double)waited * 1e-9);
        else
            pause_after(waited);
    }
    if (!status)
        status = fail(collective, error, what);
    drop(collective);
    return status;
}

// Nobody waits any more: a rank has failed, or a process is lost.
static bool is_given_up(const struct nccl_family *family)
{
    return atomic_load(&family->aborted) || (family->check && family->check(family->context));
}

// All ranks of the process, until none is in progress. 0; else the first error; ncclInProgress: the deadline has passed, or
// the wait was given up.
static unsigned synchronize_all(struct nccl_family *family, uint32_t *culprit)
{
    const struct ls_host *host = family->host;
    const uint64_t start = host->clock_ns(host);
    for (;;) {
        bool busy = false;
        for (uint32_t i = 0; i < family->count; i++) {
            const unsigned state = state_of(family->ranks[i]);
            if (state != ncclSuccess && state != ncclInProgress) {
                *culprit = i;
                return state;
            }
            if (state == ncclInProgress && !busy)
                *culprit = i;
            busy = busy || state == ncclInProgress;
        }
        const uint64_t waited = host->clock_ns(host) - start;
        if (!busy || waited > family->deadline_ns || is_given_up(family))
            return busy ? ncclInProgress : ncclSuccess;
        pause_after(waited);
    }
}

// ---- Closing ----

static void drop_all(struct nccl_family *family)
{
    const struct nccl_calls *calls = family->calls;
    calls->ncclGroupStart();
    for (uint32_t i = 0; i < family->count; i++)
        drop(family->ranks[i]);
    calls->ncclGroupEnd();
}

// Whether all ranks are through with everything; else they can only be aborted.
static bool finalize_all(struct nccl_family *family)
{
    const struct nccl_calls *calls = family->calls;
    uint32_t culprit;
    for (uint32_t i = 0; i < family->count; i++)
        if (!family->ranks[i]->comm || state_of(family->ranks[i]))
            return false;
    calls->ncclGroupStart();
    for (uint32_t i = 0; i < family->count; i++)
        calls->ncclCommFinalize(family->ranks[i]->comm);
    const unsigned error = calls->ncclGroupEnd();
    return (!error || error == ncclInProgress) && !synchronize_all(family, &culprit);
}

static void close_all(struct nccl_family *family)
{
    const struct nccl_calls *calls = family->calls;
    if (atomic_load(&family->aborted) || !finalize_all(family)) {
        drop_all(family);
    } else {
        calls->ncclGroupStart();
        for (uint32_t i = 0; i < family->count; i++)
            calls->ncclCommDestroy(family->ranks[i]->comm);
        calls->ncclGroupEnd();
    }
    free(family);
}

void nccl_close(struct ls_collective *collective)
{
    if (atomic_fetch_sub(&collective->family->open, 1) == 1)
        close_all(collective->family);
}

// ---- Watching ----

int32_t nccl_poll(struct ls_collective *collective)
{
    int32_t status = LS_ABORTED;
    if (collective->comm && !atomic_load(&collective->family->aborted)) {
        const unsigned state = state_of(collective);
        if (state == ncclSuccess || state == ncclInProgress)
            return LS_OK;
        status = fail(collective, state, "while it waits");
    }
    drop(collective);
    return status;
}

// NCCL allows one thread at a time in a communicator, so each rank's own ends it, when it asks next.
void nccl_abort(struct ls_collective *collective)
{
    atomic_store(&collective->family->aborted, true);
}

// ---- Opening ----

static int32_t find_streams(const struct ls_host *host, struct nccl_family *family)
{
    for (uint32_t i = 0; i < family->count; i++) {
        struct ls_collective *rank = family->ranks[i];
        const struct ls_device_interface *ops = rank->member.ops;
        if (!ops || !LS_HAS(ops, streams) || !ops->streams)
            return ls_host_fail(host, LS_UNSUPPORTED,
                                "the device of rank %u has no streams that others can use: "
                                "--device=cuda has",
                                rank->member.rank);
        rank->native.struct_size = sizeof(rank->native);
        const int32_t status =
            ops->streams->native(rank->member.device, rank->member.stream, &rank->native);
        if (status)
            return status;
        if (rank->native.family != LS_STREAM_CUDA)
            return ls_host_fail(host, LS_UNSUPPORTED,
                                "rank %u has no stream of CUDA: --device=cuda", rank->member.rank);
    }
    return LS_OK;
}

// What this process finds out by itself.
static int32_t prepare(const struct ls_host *host, struct nccl_family *family)
{
    char reason[400];
    family->calls = nccl_calls_get(reason, sizeof(reason));
    if (!family->calls)
        return host->fail(host, LS_UNAVAILABLE, reason);
    const int version = family->calls->version;
    if (version < LEAST_VERSION) {
        nccl_version_text(version, reason, sizeof(reason));
        return ls_host_fail(host, LS_UNAVAILABLE,
                            "this is NCCL %s; 2.18 or newer is needed (nvidia-nccl-cu13)", reason);
    }
    int32_t status = nccl_pin(host, version);
    if (!status)
        status = nccl_configure(host, family);
    return status ? status : find_streams(host, family);
}

// Tells the others who is here, and looks at who they are.
static int32_t meet(const struct ls_host *host, const struct ls_collective_config *config,
                    const struct nccl_family *family, int32_t status)
{
    struct nccl_peer *own = calloc(config->count, sizeof(*own));
    struct nccl_peer *all = calloc(config->world, sizeof(*all));
    const int version = family->calls ? family->calls->version : 0;
    int32_t met = own && all ? LS_OK : ls_host_fail(host, LS_OUT_OF_MEMORY, "no memory for ranks");
    for (uint32_t i = 0; !met && i < config->count; i++) {
        nccl_peer_fill(&own[i], status, version, &family->ranks[i]->native);
        own[i].process = config->members[0].rank;
    }
    if (!met)
        met = config->exchange(config->context, own, sizeof(*own), all);
    if (!met && !status)
        met = nccl_peers_check(host, all, config->world);
    free(own);
    free(all);
    return status ? status : met;
}

// Rank 0 makes the name under which all find each other.
static int32_t share_id(const struct ls_host *host, const struct ls_collective_config *config,
                        const struct nccl_family *family, ncclUniqueId *out)
{
    struct item {
        ncclUniqueId id;
        uint32_t error, reserved;
    };
    struct item *own = calloc(config->count, sizeof(*own));
    struct item *all = calloc(config->world, sizeof(*all));
    int32_t status =
        own && all ? LS_OK : ls_host_fail(host, LS_OUT_OF_MEMORY, "no memory for ranks");
    for (uint32_t i = 0; !status && i < config->count; i++)
        if (config->members[i].rank == 0)
            own[i].error = family->calls->ncclGetUniqueId(&own[i].id);
    if (!status)
        status = config->exchange(config->context, own, sizeof(*own), all);
    if (!status && all[0].error)
        status = ls_host_fail(host, LS_FAILED, "rank 0 cannot begin: NCCL answers \"%s\"",
                              family->calls->ncclGetErrorString(all[0].error));
    if (!status)
        *out = all[0].id;
    free(own);
    free(all);
    return status;
}

// The ranks that have a communicator at all; the call that failed has none.
static unsigned begin_all(struct nccl_family *family, ncclUniqueId id, uint32_t *culprit)
{
    const struct nccl_calls *calls = family->calls;
    unsigned error = calls->ncclGroupStart();
    for (uint32_t i = 0; !error && i < family->count; i++) {
        struct ls_collective *rank = family->ranks[i];
        const struct ls_collective_member *member = &rank->member;
        ncclConfig_t settings = family->config;
        *culprit = i;
        // Asked again, for it also makes the rank's GPU that of this thread: NCCL takes the one that it finds.
        if (member->ops->streams->native(member->device, member->stream, &rank->native))
            error = ncclUnhandledCudaError;
        else
            error = calls->ncclCommInitRankConfig(&rank->comm, (int)family->world, id,
                                                  (int)member->rank, &settings);
        error = error == ncclInProgress ? ncclSuccess : error;
    }
    const unsigned ended = calls->ncclGroupEnd();
    return error ? error : ended;
}

static void list_missing(const struct nccl_family *family, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < family->count && used + 16 < bytes; i++)
        if (state_of(family->ranks[i]) == ncclInProgress)
            used += (size_t)snprintf(text + used, bytes - used, "%s%u", used ? ", " : "",
                                     family->ranks[i]->member.rank);
}

static int32_t connect(const struct ls_host *host, struct nccl_family *family, ncclUniqueId id)
{
    char missing[200];
    uint32_t culprit = 0;
    unsigned error = begin_all(family, id, &culprit);
    if (error == ncclSuccess || error == ncclInProgress)
        error = synchronize_all(family, &culprit);
    if (error == ncclSuccess)
        return LS_OK;
    if (error != ncclInProgress)
        return fail(family->ranks[culprit], error, "connecting");
    if (is_given_up(family))
        return ls_host_fail(host, LS_PEER_LOST,
                            "connecting the GPUs is given up, as one of the processes is lost");
    list_missing(family, missing, sizeof(missing));
    return ls_host_fail(
        host, LS_PEER_LOST,
        "of %u ranks, those of this process that are not connected after %.1f s are: "
        "%s; NCCL_DEBUG=INFO shows what NCCL waits for",
        family->world, (double)family->deadline_ns * 1e-9, missing);
}

int32_t nccl_open(const struct ls_host *host, const struct ls_collective_config *config,
                  struct ls_collective *const *ranks)
{
    ncclUniqueId id;
    struct nccl_family *family =
        calloc(1, sizeof(*family) + config->count * sizeof(family->ranks[0]));
    if (!family)
        return ls_host_fail(host, LS_OUT_OF_MEMORY, "no memory for communicators");
    family->host = host;
    family->world = config->world;
    family->count = config->count;
    family->deadline_ns = config->deadline_ns;
    family->check = LS_HAS(config, check) ? config->check : NULL;
    family->context = config->context;
    atomic_init(&family->open, config->count);
    for (uint32_t i = 0; i < config->count; i++) {
        family->ranks[i] = ranks[i];
        ranks[i]->family = family;
        ranks[i]->member = config->members[i];
    }
    int32_t status = meet(host, config, family, prepare(host, family));
    if (!status)
        status = share_id(host, config, family, &id);
    if (!status)
        status = connect(host, family, id);
    if (status) {
        if (family->calls)
            drop_all(family);
        free(family);
        return status;
    }
    return LS_OK;
}
