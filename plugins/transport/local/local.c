// SPDX-License-Identifier: Apache-2.0
// Transport between threads of one process. Nothing is staged: the receiver reads, and reduces,
// straight from the sender's memory; and a receive-reduce-and-send writes its result straight to
// where the next receiver wants it, in the same pass. The meeting place is described in mailbox.h.
#include "plugins/transport/local/local.h"
#include "plugins/transport/local/kernels.h"

#include <string.h>

static int32_t local_peer_state(struct ls_transport *transport, uint32_t peer)
{
    struct local_shared *shared = transport->shared;
    if (atomic_load(&shared->aborted))
        return LS_ABORTED;
    return peer < shared->world && !atomic_load(&shared->endpoints[peer].closed) ? LS_OK
                                                                                 : LS_PEER_LOST;
}

// ---- Opening and closing ----

// An endpoint that leaves waits at most that long for peers and streams that read its memory.
#define LOCAL_PATIENCE_NS UINT64_C(5000000000)

static void *allocate(const struct ls_host *host, uint64_t bytes)
{
    void *memory = host->allocate(host, bytes, LOCAL_APART);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

static void shared_destroy(struct local_shared *shared)
{
    const struct ls_host *host = shared->host;
    const uint64_t pairs = shared->pairs ? (uint64_t)shared->world * shared->world : 0;
    for (uint64_t i = 0; i < pairs; i++) {
        struct local_pair *pair = atomic_load(&shared->pairs[i]);
        if (pair && shared->places)
            local_device_close_events(shared, (uint32_t)(i / shared->world),
                                      (uint32_t)(i % shared->world), pair);
        host->release(host, pair);
    }
    host->release(host, shared->places);
    host->release(host, shared->pairs);
    host->release(host, shared->endpoints);
    host->release(host, shared);
}

static struct local_shared *shared_create(const struct ls_host *host,
                                          const struct ls_transport_config *config)
{
    const uint32_t world = config->world;
    const bool places = config->places != NULL;
    struct local_shared *shared = allocate(host, sizeof(*shared));
    if (!shared)
        return NULL;
    shared->host = host;
    shared->world = world;
    shared->kernels = local_kernels_best();
    shared->window = places ? LOCAL_DEVICE_WINDOW : LOCAL_WINDOW;
    shared->spins = local_choose_spins(world);
    shared->patience_ns = LOCAL_PATIENCE_NS;
    if (config->deadline_ns && config->deadline_ns < shared->patience_ns)
        shared->patience_ns = config->deadline_ns;
    shared->endpoints = allocate(host, world * sizeof(*shared->endpoints));
    shared->pairs = allocate(host, (uint64_t)world * world * sizeof(*shared->pairs));
    if (places)
        shared->places = allocate(host, world * sizeof(*shared->places));
    if (shared->places)
        memcpy(shared->places, config->places, world * sizeof(*shared->places));
    if (shared->endpoints && shared->pairs && (shared->places || !places))
        return shared;
    shared_destroy(shared);
    return NULL;
}

static void local_close(struct ls_transport *transport)
{
    struct local_shared *shared = transport->shared;
    atomic_store(&shared->endpoints[transport->index].closed, 1);
    atomic_fetch_add(&shared->closings, 1);
    local_wake_all(shared);
    (void)local_leave(transport);
    // A peer that hangs may come back: what it looks at then stays.
    if (atomic_fetch_sub(&shared->open, 1) == 1 && !atomic_load(&shared->hangs))
        shared_destroy(shared);
}

static int32_t local_open(const struct ls_host *host, const struct ls_transport_config *config,
                          struct ls_transport *const *endpoints)
{
    if (config->count != config->world)
        return ls_host_fail(
            host, LS_UNSUPPORTED,
            "transport local connects the threads of one process only: %u of %u ranks are "
            "here; choose another transport",
            config->count, config->world);
    const int32_t status = local_device_check(host, config);
    if (status)
        return status;
    struct local_shared *shared = shared_create(host, config);
    if (!shared)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < config->count; i++) {
        endpoints[i]->shared = shared;
        endpoints[i]->index = config->own[i];
    }
    atomic_store(&shared->open, config->world);
    return LS_OK;
}

static const struct ls_transport_interface interface = {
    .struct_size = sizeof(struct ls_transport_interface),
    .scope = LS_SCOPE_PROCESS,
    .memory_kinds = 1u << LS_MEMORY_HOST | 1u << LS_MEMORY_CUDA,
    .state_bytes = sizeof(struct ls_transport),
    .open = local_open,
    .close = local_close,
    .post = local_post,
    .test = local_test,
    .wait_any = local_wait_any,
    .abort = local_abort,
    .peer_state = local_peer_state,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_TRANSPORT),
    .name = "local",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "threads of one process, straight from each other's memory",
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
