// SPDX-License-Identifier: Apache-2.0
// Transport `ucx`: between processes and machines, by UCX: InfiniBand, RoCE, or TCP. Host memory
// only; GPUs use NCCL.
//
// Options: network= says who can reach the ports that UCX opens. UCX neither asks who connects nor
// encrypts, so unless the user says that the network is private, or does not matter, endpoints must
// be on one host and use the interface `lo` alone. Which devices and transports UCX takes otherwise
// is the matter of its own variables, UCX_NET_DEVICES and UCX_TLS.
//
// UCX listens while the endpoints connect, and not any more: it would end the process when a
// stranger sends it certain bytes.
//
// One worker of UCX for each endpoint, one context for all of an open. All pairs of endpoints are
// connected in `open`, in the error mode in which UCX tells that a peer is gone.
#define _GNU_SOURCE
#include "plugins/transport/ucx/ucx.h"

#include <dirent.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

// What each endpoint tells the others first.
struct greeting {
    int32_t status; // LS_OK; else it cannot take part, and has said why
    uint32_t major, minor; // of its UCX
    uint32_t reserved;
    uint64_t address_bytes;
    uint64_t token;
};

// ---- UCX ----

static int32_t fail(const struct ucx_shared *shared, const char *what, ucs_status_t status)
{
    return ls_host_fail(shared->host, LS_UNAVAILABLE,
                        "%s: UCX answers \"%s\"; --verbose shows what it says (UCX_LOG_LEVEL)",
                        what, shared->library->ucs_status_string(status));
}

// A setting of UCX, unless the user has made it.
static void set(const struct ucx_library *library, ucp_config_t *config, const char *name,
                const char *value)
{
    char variable[64];
    snprintf(variable, sizeof(variable), "UCX_%s", name);
    if (!getenv(variable))
        (void)library->ucp_config_modify(config, name, value);
}

// The same of UCX's part for TCP, which UCX 1.13 only finds by the name without this prefix, and
// newer ones by the whole name.
static void set_tcp(const struct ucx_library *library, ucp_config_t *config, const char *name,
                    const char *value)
{
    char variable[64];
    snprintf(variable, sizeof(variable), "UCX_TCP_%s", name);
    if (getenv(variable))
        return;
    (void)library->ucp_config_modify(config, name, value);
    (void)library->ucp_config_modify(config, variable + strlen("UCX_"), value);
}

static bool only_tcp(bool loopback)
{
    const char *const transports = getenv("UCX_TLS");
    if (loopback || (transports && strcmp(transports, "tcp") == 0))
        return true;
    DIR *cards = opendir("/sys/class/infiniband"); // of RoCE and others, too
    const struct dirent *card = NULL;
    while (cards && (card = readdir(cards)) && card->d_name[0] == '.')
        ;
    if (cards)
        closedir(cards);
    return !card;
}

static int32_t create_context(struct ucx_shared *shared, bool loopback)
{
    const struct ucx_library *library = shared->library;
    const ucp_params_t parameters = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED |
                      UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
        .mt_workers_shared = shared->count > 1,
        .estimated_num_eps = shared->world,
    };
    ucp_config_t *config;
    ucs_status_t status = library->ucp_config_read(NULL, NULL, &config);
    if (status)
        return fail(shared, "its settings", status);
    if (loopback) {
        set(library, config, "TLS", "tcp");
        status = library->ucp_config_modify(config, "NET_DEVICES", "lo"); // whatever the user says
    }
    if (!only_tcp(loopback)) {
        set(library, config, "ZCOPY_THRESH", "4k"); // the network card reads parts where they are
    } else {
        // Without a copy over TCP, UCX 1.13 may end the process when a peer is lost: a part whose
        // rest cannot be sent any more is completed twice (uct_tcp_ep_sendv). With pieces as large
        // as parts the copy costs next to nothing: the kernel then reads it from the cache.
        set(library, config, "ZCOPY_THRESH", "inf");
        set_tcp(library, config, "TX_SEG_SIZE", "64k");
    }
    set(library, config, "KEEPALIVE_INTERVAL", "1s");
    set_tcp(library, config, "CONN_NB", "y"); // a peer that does not answer must not keep this one
    if (!status)
        status = library->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &parameters, config,
                                           &shared->context);
    library->ucp_config_release(config);
    return status ? fail(shared, "starting UCX", status) : LS_OK;
}

static int32_t create_worker(struct ls_transport *transport)
{
    const struct ucx_shared *shared = transport->shared;
    const struct ucx_library *library = shared->library;
    const ucp_worker_params_t parameters = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                            .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    const ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = UCX_MESSAGE_ID,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = ucx_receive,
        .arg = transport,
    };
    ucs_status_t status =
        library->ucp_worker_create(shared->context, &parameters, &transport->worker);
    if (status) {
        transport->worker = NULL;
        return fail(shared, "a worker of UCX", status);
    }
    status = library->ucp_worker_set_am_recv_handler(transport->worker, &handler);
    if (!status)
        status = library->ucp_worker_get_efd(transport->worker, &transport->worker_fd);
    return status ? fail(shared, "a worker of UCX", status) : LS_OK;
}

// ---- One endpoint ----

static void endpoint_finish(struct ls_transport *transport)
{
    struct ucx_shared *shared = transport->shared;
    const struct ls_host *host = shared->host;
    if (transport->armed_fd >= 0)
        close(transport->armed_fd);
    if (transport->worker)
        shared->library->ucp_worker_destroy(transport->worker);
    while (transport->used) {
        struct ucx_peer *next = transport->used->next;
        host->release(host, transport->used);
        transport->used = next;
    }
    ucx_blocks_release(transport);
    host->release(host, transport->peers);
    host->release(host, (void *)(uintptr_t)transport->lost);
}

static int32_t endpoint_init(struct ls_transport *transport)
{
    struct ucx_shared *shared = transport->shared;
    transport->peers = ucx_allocate(shared, shared->world * sizeof(*transport->peers));
    transport->lost = ucx_allocate(shared, shared->world * sizeof(*transport->lost));
    shared->wake_fds[transport->own] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!transport->peers || !transport->lost)
        return LS_OUT_OF_MEMORY;
    if (shared->wake_fds[transport->own] < 0)
        return ls_host_fail(shared->host, LS_FAILED, "no event file descriptor: ulimit -n");
    return create_worker(transport);
}

// ---- All endpoints of this process ----

static void shared_destroy(struct ucx_shared *shared)
{
    const struct ls_host *host = shared->host;
    if (shared->context)
        shared->library->ucp_cleanup(shared->context);
    if (shared->library)
        ucx_library_forget(host);
    for (uint32_t i = 0; i < shared->count; i++)
        if (shared->wake_fds[i] >= 0)
            close(shared->wake_fds[i]);
    host->release(host, shared->addresses);
    host->release(host, shared->tokens);
    host->release(host, shared);
}

static bool is_loopback(const struct ucx_shared *shared)
{
    return strcmp(shared->host->option(shared->host, "network"), "loopback") == 0;
}

static int32_t check_network(const struct ucx_shared *shared,
                             const struct ls_transport_config *config)
{
    for (uint32_t i = 0; is_loopback(shared) && i < config->world; i++)
        if (config->hosts[i] != config->hosts[0])
            return ls_host_fail(
                shared->host, LS_USAGE,
                "UCX neither asks who connects to its ports nor encrypts: between hosts it needs "
                "--network=private (only trusted machines reach this network) or --insecure");
    return LS_OK;
}

// What this process can do by itself.
static int32_t prepare(struct ucx_shared *shared, const struct ls_transport_config *config,
                       struct ls_transport *const *endpoints)
{
    char reason[400];
    int32_t status = check_network(shared, config);
    if (status)
        return status;
    shared->library = ucx_library_get(reason, sizeof(reason));
    if (!shared->library)
        return ls_host_fail(shared->host, LS_UNAVAILABLE, "%s", reason);
    ucx_library_log(shared->host);
    status = ucx_ports_note(shared);
    if (!status)
        status = create_context(shared, is_loopback(shared));
    for (uint32_t i = 0; !status && i < config->count; i++)
        status = endpoint_init(endpoints[i]);
    return status;
}

// Looks at what all endpoints said.
static int32_t check_greetings(struct ucx_shared *shared, const struct greeting *all, uint32_t own)
{
    for (uint32_t i = 0; i < shared->world; i++) {
        if (all[i].status)
            return ls_host_fail(shared->host, LS_ABORTED,
                                "endpoint %u could not start UCX; its own message says why", i);
        if (all[i].major != all[own].major || all[i].minor != all[own].minor)
            return ls_host_fail(
                shared->host, LS_UNAVAILABLE,
                "endpoint %u has UCX %u.%u, endpoint %u has %u.%u: install the same", i,
                all[i].major, all[i].minor, own, all[own].major, all[own].minor);
        shared->tokens[i] = all[i].token;
        if (all[i].address_bytes > shared->address_bytes)
            shared->address_bytes = all[i].address_bytes;
    }
    return LS_OK;
}

struct own_address {
    ucp_address_t *address;
    size_t bytes;
};

// Every process makes the same exchanges, whatever it has found, so that nobody waits for one that
// failed.
static int32_t meet(struct ucx_shared *shared, const struct ls_transport_config *config,
                    const struct own_address *addresses, int32_t status)
{
    const struct ls_host *host = shared->host;
    struct greeting *own = ucx_allocate(shared, config->count * sizeof(*own));
    struct greeting *all = ucx_allocate(shared, config->world * sizeof(*all));
    char *packed = NULL;
    int32_t met = own && all ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !met && i < config->count; i++) {
        own[i] = (struct greeting){.status = status, .address_bytes = addresses[i].bytes};
        own[i].major = shared->library ? shared->library->major : 0;
        own[i].minor = shared->library ? shared->library->minor : 0;
        if (getrandom(&own[i].token, sizeof(own[i].token), 0) != (ssize_t)sizeof(own[i].token))
            met = ls_host_fail(host, LS_FAILED, "the kernel has no random numbers");
    }
    if (!met)
        met = config->exchange(config->context, own, sizeof(*own), all);
    if (!met && !status)
        met = check_greetings(shared, all, config->own[0]);
    if (!met && !status) {
        packed = ucx_allocate(shared, config->count * shared->address_bytes);
        shared->addresses = ucx_allocate(shared, config->world * shared->address_bytes);
        met = packed && shared->addresses ? LS_OK : LS_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; packed && i < config->count; i++)
        memcpy(packed + i * shared->address_bytes, addresses[i].address, addresses[i].bytes);
    if (!met && !status)
        met = config->exchange(config->context, packed, shared->address_bytes, shared->addresses);
    host->release(host, packed);
    host->release(host, own);
    host->release(host, all);
    return status ? status : met;
}

static int32_t find_addresses(const struct ucx_shared *shared,
                              struct ls_transport *const *endpoints, struct own_address *out)
{
    for (uint32_t i = 0; i < shared->count; i++) {
        const ucs_status_t status = shared->library->ucp_worker_get_address(
            endpoints[i]->worker, &out[i].address, &out[i].bytes);
        if (status) {
            out[i] = (struct own_address){0};
            return fail(shared, "the address of a worker", status);
        }
    }
    return LS_OK;
}

// Whether all connections of an endpoint are made, by both sides; goes on with them.
static bool is_connected(struct ls_transport *transport)
{
    bool told = true;
    ucx_progress(transport);
    for (struct ucx_peer *peer = transport->used; peer; peer = peer->next)
        told = ucx_peer_get_ready(peer) && told;
    return told && transport->ready == transport->shared->world - 1 && !transport->greeting;
}

// Of each pair the endpoint with the lower number connects first, and the other when it was
// greeted: UCX 1.13 ends the process when two connect to each other at the same time. All pairs are
// connected, because a process that ends is noticed only over a connection.
static int32_t connect_all(const struct ucx_shared *shared, struct ls_transport *const *endpoints)
{
    const uint64_t begin = shared->host->clock_ns(shared->host);
    for (uint32_t i = 0; i < shared->count; i++)
        for (uint32_t peer = endpoints[i]->index + 1; peer < shared->world; peer++)
            if (!ucx_peer_get(endpoints[i], peer) || !ucx_peer_greet(endpoints[i]->peers[peer]))
                return ls_host_fail(shared->host, LS_PEER_LOST,
                                    "endpoint %u cannot connect to endpoint %u",
                                    endpoints[i]->index, peer);
    for (uint32_t done = 0; done < shared->count;) {
        done = 0;
        for (uint32_t i = 0; i < shared->count; i++)
            done += is_connected(endpoints[i]);
        for (uint32_t i = 0; i < shared->count; i++)
            for (struct ucx_peer *peer = endpoints[i]->used; peer; peer = peer->next)
                if (ucx_peer_is_lost(peer) && !peer->ready)
                    return ls_host_fail(shared->host, LS_PEER_LOST,
                                        "endpoint %u lost endpoint %u while they connected",
                                        endpoints[i]->index, peer->index);
        if (shared->host->clock_ns(shared->host) - begin > shared->deadline_ns)
            return ls_host_fail(shared->host, LS_PEER_LOST,
                                "%u of %u endpoints of this process are connected with all others "
                                "after %.1f s",
                                done, shared->count, (double)shared->deadline_ns * 1e-9);
        if (done < shared->count)
            sched_yield();
    }
    return LS_OK;
}

static int32_t ucx_open(const struct ls_host *host, const struct ls_transport_config *config,
                        struct ls_transport *const *endpoints)
{
    const uint64_t bytes = sizeof(struct ucx_shared) + config->count * sizeof(int);
    struct ucx_shared *shared = host->allocate(host, bytes, 64);
    uint32_t here = 0;
    if (!shared)
        return LS_OUT_OF_MEMORY;
    memset(shared, 0, bytes);
    shared->host = host;
    shared->world = config->world;
    shared->count = config->count;
    shared->deadline_ns = config->deadline_ns;
    shared->kernels = local_kernels_best();
    shared->tokens = ucx_allocate(shared, config->world * sizeof(*shared->tokens));
    struct own_address *addresses = ucx_allocate(shared, config->count * sizeof(*addresses));
    for (uint32_t i = 0; i < config->world; i++)
        here += config->hosts[i] == config->hosts[config->own[0]];
    shared->spins = ucx_choose_spins(here, config->count);
    for (uint32_t i = 0; i < config->count; i++) {
        shared->wake_fds[i] = -1;
        *endpoints[i] = (struct ls_transport){
            .shared = shared, .index = config->own[i], .own = i, .armed_fd = -1, .turn = 1};
    }
    int32_t status = LS_OUT_OF_MEMORY;
    if (shared->tokens && addresses) {
        status = prepare(shared, config, endpoints);
        if (!status)
            status = find_addresses(shared, endpoints, addresses);
        status = meet(shared, config, addresses, status);
        if (!status)
            status = connect_all(shared, endpoints);
        for (uint32_t i = 0; !status && i < config->count; i++)
            ucx_ports_close(shared, (const char *)addresses[i].address, addresses[i].bytes);
        ucx_ports_forget(shared);
    }
    for (uint32_t i = 0; addresses && i < config->count; i++)
        if (addresses[i].address)
            shared->library->ucp_worker_release_address(endpoints[i]->worker, addresses[i].address);
    host->release(host, addresses);
    atomic_store(&shared->open, config->count);
    for (uint32_t i = 0; status && i < config->count; i++) {
        if (endpoints[i]->worker)
            (void)ucx_disconnect(endpoints[i], false);
        endpoint_finish(endpoints[i]);
    }
    if (status)
        shared_destroy(shared);
    return status;
}

static void ucx_close(struct ls_transport *transport)
{
    struct ucx_shared *shared = transport->shared;
    if (!transport->given_up)
        (void)ucx_disconnect(transport, !transport->lent && !atomic_load(&shared->aborted));
    endpoint_finish(transport);
    if (atomic_fetch_sub(&shared->open, 1) == 1)
        shared_destroy(shared);
}

static int32_t ucx_peer_state(struct ls_transport *transport, uint32_t peer)
{
    if (atomic_load(&transport->shared->aborted))
        return LS_ABORTED;
    return peer < transport->shared->world && !atomic_load(&transport->lost[peer]) ? LS_OK
                                                                                   : LS_PEER_LOST;
}

// ---- Tables ----

static const struct ls_plugin_option options[] = {
    {"network", "one of: loopback, private, insecure", "loopback",
     "who reaches the ports that UCX opens: this host alone; a network of trusted machines; "
     "anybody"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_transport_interface interface = {
    .struct_size = sizeof(struct ls_transport_interface),
    .scope = LS_SCOPE_NETWORK,
    .memory_kinds = 1u << LS_MEMORY_HOST,
    .state_bytes = sizeof(struct ls_transport),
    .open = ucx_open,
    .close = ucx_close,
    .post = ucx_post,
    .test = ucx_test,
    .wait_any = ucx_wait_any,
    .abort = ucx_abort,
    .peer_state = ucx_peer_state,
    .arm = ucx_arm,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_TRANSPORT),
    .name = "ucx",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "between processes and machines, by UCX: InfiniBand, RoCE or TCP",
    .options = options,
    .probe = ucx_probe,
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
