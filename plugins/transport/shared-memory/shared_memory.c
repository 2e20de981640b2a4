// SPDX-License-Identifier: Apache-2.0
// Transport between processes of one host, and the threads of each. What is in a segment that
// processes share is read, reduced and written where it is, as transport `local` does between
// threads; other memory is copied into pieces of shared memory, out of which the receiver reduces.
// Nothing has a name in a file system: when all processes have ended, nothing is left, however they
// ended. The memory in which they meet is described in arena.h.
#include "plugins/transport/shared-memory/shared_memory.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

// An endpoint that leaves waits at most that long for peers that use its memory. A pass takes
// milliseconds, so a process that does not end one is stopped. That is found by its silence, and
// all of it must not take 5 s.
#define PATIENCE_NS UINT64_C(1500000000)

static int32_t shm_peer_state(struct ls_transport *transport, uint32_t peer)
{
    struct shm_shared *shared = transport->shared;
    if (atomic_load(&shared->header->aborted))
        return LS_ABORTED;
    if (peer >= shared->world)
        return LS_PEER_LOST;
    shm_poll_life(shared);
    return shm_is_gone(shared, peer) ? LS_PEER_LOST : LS_OK;
}

// ---- Opening and closing ----

static void *allocate(const struct ls_host *host, uint64_t bytes)
{
    void *memory = host->allocate(host, bytes ? bytes : 1, SHM_APART);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

// Where the parts of an arena of `count` endpoints are; returns its size.
static uint64_t lay_out(const struct shm_shared *shared, uint32_t count, uint64_t *endpoints,
                        uint64_t *inboxes, uint64_t *pieces)
{
    const uint64_t page = 65536; // of any processor, at most
    *endpoints = sizeof(struct shm_header);
    *inboxes = *endpoints + count * sizeof(struct shm_endpoint);
    *pieces = *inboxes + (uint64_t)count * shared->world * sizeof(struct shm_pair);
    *pieces = (*pieces + page - 1) / page * page;
    return *pieces + (uint64_t)count * shared->piece_count * SHM_PIECE_BYTES;
}

static int32_t find_endpoints(struct shm_shared *shared)
{
    for (uint32_t i = 0; i < shared->world; i++) {
        const struct shm_process *process = &shared->processes[shared->process_of[i]];
        const uint32_t place = shared->place_of[i];
        uint64_t endpoints, inboxes, pieces;
        if (lay_out(shared, process->count, &endpoints, &inboxes, &pieces) !=
            process->card.arena_bytes)
            return ls_host_fail(shared->host, LS_FAILED,
                                "the process of rank %u says that it has %" PRIu64
                                " bytes for %u ranks of %u, which cannot be; it went wrong",
                                i, process->card.arena_bytes, process->count, shared->world);
        shared->endpoints[i] = (struct shm_endpoint *)(void *)(process->arena + endpoints) + place;
        shared->inboxes[i] =
            (struct shm_pair *)(void *)(process->arena + inboxes) + (uint64_t)place * shared->world;
        shared->pieces[i] =
            process->arena + pieces + (uint64_t)place * shared->piece_count * SHM_PIECE_BYTES;
    }
    shared->header = (struct shm_header *)(void *)shared->processes[shared->self].arena;
    return LS_OK;
}

static void shared_destroy(struct shm_shared *shared)
{
    const struct ls_host *host = shared->host;
    if (shared->processes)
        shm_disconnect(shared);
    if (shared->waker >= 0)
        close(shared->waker);
    host->release(host, shared->processes);
    host->release(host, shared->process_of);
    host->release(host, shared->place_of);
    host->release(host, shared->endpoints);
    host->release(host, shared->inboxes);
    host->release(host, shared->pieces);
    host->release(host, (void *)shared->hung);
    host->release(host, shared);
}

static struct shm_shared *shared_create(const struct ls_host *host,
                                        const struct ls_transport_config *config)
{
    const uint64_t world = config->world;
    struct shm_shared *shared = allocate(host, sizeof(*shared));
    if (!shared)
        return NULL;
    shared->host = host;
    shared->arena_fd = shared->listener = -1;
    shared->waker = shm_waker_open();
    shared->kernels = local_kernels_best();
    shared->world = config->world;
    // Each message under way has as many as it may use: none ever waits for another.
    shared->piece_count = config->world * SHM_WINDOW * SHM_PIECES;
    shared->patience_ns = PATIENCE_NS;
    if (config->deadline_ns && config->deadline_ns < shared->patience_ns)
        shared->patience_ns = config->deadline_ns;
    shared->processes = allocate(host, world * sizeof(*shared->processes));
    shared->process_of = allocate(host, world * sizeof(*shared->process_of));
    shared->place_of = allocate(host, world * sizeof(*shared->place_of));
    shared->endpoints = allocate(host, world * sizeof(struct shm_endpoint *));
    shared->inboxes = allocate(host, world * sizeof(struct shm_pair *));
    shared->pieces = allocate(host, world * sizeof(char *));
    shared->hung = allocate(host, world * sizeof(*shared->hung));
    if (shared->processes && shared->process_of && shared->place_of && shared->endpoints &&
        shared->inboxes && shared->pieces && shared->hung)
        return shared;
    shared_destroy(shared);
    return NULL;
}

static int32_t check_config(const struct ls_host *host, const struct ls_transport_config *config)
{
    for (uint32_t i = 0; i < config->world; i++)
        if (config->hosts[i] != config->hosts[0])
            return ls_host_fail(host, LS_UNSUPPORTED,
                                "transport shared-memory connects the processes of one host: rank "
                                "%u is on another host than rank 0; choose another transport",
                                i);
    if (config->places)
        return ls_host_fail(host, LS_UNSUPPORTED,
                            "transport shared-memory moves host memory, not memory of devices; "
                            "choose another transport");
    if (config->world > UINT32_MAX / SHM_WINDOW / SHM_PIECES)
        return ls_host_fail(host, LS_UNSUPPORTED, "%u ranks are too many for one host",
                            config->world);
    return LS_OK;
}

static int32_t open_endpoints(struct shm_shared *shared, const struct ls_transport_config *config,
                              struct ls_transport *const *endpoints)
{
    for (uint32_t i = 0; i < config->count; i++) {
        struct ls_transport *endpoint = endpoints[i];
        *endpoint = (struct ls_transport){.shared = shared,
                                          .own = shared->endpoints[config->own[i]],
                                          .index = config->own[i],
                                          .socket = -1};
        endpoint->free = allocate(shared->host, shared->piece_count * sizeof(*endpoint->free));
        if (!endpoint->free)
            return LS_OUT_OF_MEMORY;
    }
    atomic_store(&shared->open, config->count);
    return LS_OK;
}

static int32_t shm_open_all(const struct ls_host *host, const struct ls_transport_config *config,
                            struct ls_transport *const *endpoints)
{
    uint64_t ignored[3];
    int32_t status = check_config(host, config);
    if (status)
        return status;
    struct shm_shared *shared = shared_create(host, config);
    if (!shared)
        return LS_OUT_OF_MEMORY;
    status = shm_connect(shared, config,
                         lay_out(shared, config->count, &ignored[0], &ignored[1], &ignored[2]));
    if (!status)
        status = find_endpoints(shared);
    if (!status) {
        shared->spins = shm_choose_spins(shared);
        status = open_endpoints(shared, config, endpoints);
    }
    if (!status)
        return LS_OK;
    for (uint32_t i = 0; i < config->count; i++)
        host->release(host, endpoints[i]->free);
    shared_destroy(shared);
    return status;
}

static void shm_close(struct ls_transport *transport)
{
    struct shm_shared *shared = transport->shared;
    atomic_store(&transport->own->closed, 1);
    shm_tell_departure(shared);
    (void)shm_leave(transport);
    shared->host->release(shared->host, transport->free);
    shm_disarm(transport);
    // A thread that hangs may come back: what it looks at then stays. Other processes have mappings
    // of their own.
    if (atomic_fetch_sub(&shared->open, 1) == 1 && !atomic_load(&shared->hangs))
        shared_destroy(shared);
}

static const struct ls_transport_interface interface = {
    .struct_size = sizeof(struct ls_transport_interface),
    .scope = LS_SCOPE_HOST,
    .memory_kinds = 1u << LS_MEMORY_HOST,
    .state_bytes = sizeof(struct ls_transport),
    .open = shm_open_all,
    .close = shm_close,
    .post = shm_post,
    .test = shm_test,
    .wait_any = shm_wait_any,
    .abort = shm_abort,
    .peer_state = shm_peer_state,
    .arm = shm_arm,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_TRANSPORT),
    .name = "shared-memory",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "processes of one host, through memory that they share",
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
