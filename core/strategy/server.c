// SPDX-License-Identifier: Apache-2.0
// The host of a server process: what its strategy hears and says goes over core/wire/service.h, and
// it has stores, but neither replicas nor a driver.
#include "core/strategy/server.h"

#include "core/base/log.h"
#include "core/strategy/description.h"
#include "core/strategy/stores.h"
#include "core/wire/service.h"
#include "core/wire/sockets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLICE_NS UINT64_C(100000000) // after which the server looks whether it is interrupted

struct server {
    struct ls_server_host table;
    const struct ls_server_options *options;
    struct ls_service *service;
    struct ls_stores stores;
    struct ls_description description; // zeroed: nothing was learnt yet
    char job[256];
    bool told; // the strategy, of the interruption
};

static struct server *server_of(const struct ls_server_host *host)
{
    return host->context;
}

// ---- Messages ----

static int32_t host_next(const struct ls_server_host *host, uint64_t timeout_ns,
                         struct ls_server_event *out)
{
    struct server *server = server_of(host);
    struct ls_service_event event;
    for (;;) {
        const uint64_t slice = timeout_ns < SLICE_NS ? timeout_ns : SLICE_NS;
        const bool interrupted =
            server->options->interrupted && atomic_load(server->options->interrupted);
        if (interrupted && !server->told) {
            server->told = true;
            return LS_INTERRUPTED;
        }
        const enum ls_status status = ls_service_next(server->service, slice, &event);
        if (!status)
            break;
        if (status != LS_AGAIN || timeout_ns <= slice)
            return (int32_t)status;
        timeout_ns -= slice;
    }
    *out = (struct ls_server_event){.struct_size = sizeof(*out),
                                    .kind = event.kind,
                                    .peer = event.peer,
                                    .message = event.message,
                                    .data = event.data,
                                    .bytes = event.bytes};
    return LS_OK;
}

static void host_send(const struct ls_server_host *host, uint32_t peer, uint32_t kind,
                      const struct ls_message_piece *pieces, uint32_t count)
{
    struct ls_channel_piece one = {0};
    struct ls_channel_piece *own = count > 1 ? calloc(count, sizeof(*own)) : &one;
    if (!own) { // the worker connects again, and asks again
        ls_service_drop(server_of(host)->service, peer);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        own[i] = (struct ls_channel_piece){pieces[i].data, pieces[i].bytes};
    ls_service_send(server_of(host)->service, peer, kind, own, count);
    if (own != &one)
        free(own);
}

static void host_allow(const struct ls_server_host *host, uint32_t peer, uint64_t bytes)
{
    ls_service_allow(server_of(host)->service, peer, bytes);
}

static void host_drop(const struct ls_server_host *host, uint32_t peer)
{
    ls_service_drop(server_of(host)->service, peer);
}

// ---- Stores ----

static int32_t host_learn(const struct ls_server_host *host, const void *data, uint64_t bytes)
{
    struct server *server = server_of(host);
    ls_stores_clear(&server->stores);
    ls_description_finish(&server->description);
    server->table.learnt_floats = 0;
    const enum ls_status status = ls_description_read(data, bytes, &server->description);
    if (status)
        return (int32_t)status;
    server->stores.seed = server->description.seed;
    server->table.learnt_floats = server->description.plan.reduced_bytes / sizeof(float);
    return LS_OK;
}

static int32_t host_open(const struct ls_server_host *host, uint64_t first, uint64_t count,
                         struct ls_store **out, uint64_t *bytes)
{
    struct server *server = server_of(host);
    const uint64_t all = host->learnt_floats;
    if (first > all || count > all - first || !count || first % (LS_ALIGNMENT / sizeof(float))) {
        ls_error(server->stores.strategy, "a store that is not within the variables");
        return LS_BAD_INPUT;
    }
    return (int32_t)ls_stores_open_placed(&server->stores, first, count, out, bytes);
}

static void host_place(const struct ls_server_host *host, struct ls_store *store, void *memory)
{
    (void)host;
    ls_store_place(store, memory);
}

static void host_fill(const struct ls_server_host *host, struct ls_store *store,
                      const float *values)
{
    ls_stores_fill_placed(&server_of(host)->stores, store, values);
}

static int32_t host_update(const struct ls_server_host *host, struct ls_store *store,
                           const float *gradient, uint64_t step, double learning_rate)
{
    const struct ls_store_step of_store = {.step = step, .learning_rate = learning_rate};
    return (int32_t)ls_stores_update(&server_of(host)->stores, store, gradient, &of_store);
}

// ---- Opening ----

static enum ls_status open_service(struct server *server)
{
    const struct ls_server_options *options = server->options;
    const struct ls_worker_place *place = options->place;
    char name[32], address[LS_HOST_BYTES];
    snprintf(name, sizeof(name), "server %u", place->number);
    snprintf(address, sizeof(address), "%s", place->own_address);
    struct ls_listening where = {.name = name,
                                 .address = address,
                                 .port = place->own_port,
                                 .everywhere = place->reached_from_outside,
                                 .inherited = place->listen_fd};
    struct ls_service_options service = {.sealed = options->secret != NULL,
                                         .most_peers = 2 * place->workers + 2};
    enum ls_status status = ls_channel_key(options->secret, service.key);
    if (status) {
        if (place->listen_fd >= 0)
            close(place->listen_fd);
        return status;
    }
    if (place->listen_fd < 0)
        status = ls_worker_place_server(place, place->number, address, &where.port);
    if (!status)
        status = ls_socket_listen(&where, &service.listener);
    if (status)
        return status;
    if (!options->secret && !options->insecure && !ls_socket_listens_here(service.listener)) {
        close(service.listener);
        return ls_secret_is_missing(name, address, where.port, "workers and servers");
    }
    status = ls_service_open(&service, &server->service);
    sodium_memzero(service.key, sizeof(service.key));
    return status;
}

// What no other job on this machine is called at this time: its launcher's name for it, and where
// this server listens.
static void name_job(struct server *server)
{
    const struct ls_worker_place *place = server->options->place;
    snprintf(server->job, sizeof(server->job), "%s%s%u", place->job, *place->job ? "-" : "",
             place->own_port);
}

enum ls_status ls_server_run(const struct ls_server_options *options)
{
    const struct ls_strategy_interface *strategy = options->strategy.interface;
    if (!strategy->serve) {
        if (options->place->listen_fd >= 0)
            close(options->place->listen_fd);
        ls_error("--strategy",
                 "strategy '%s' has no servers that are processes of their own; use "
                 "parameter-server, or start no servers",
                 options->strategy.plugin->name);
        return LS_USAGE;
    }
    struct server *server = calloc(1, sizeof(*server));
    if (!server) {
        if (options->place->listen_fd >= 0)
            close(options->place->listen_fd);
        return LS_OUT_OF_MEMORY;
    }
    server->options = options;
    server->stores = (struct ls_stores){.strategy = options->strategy.plugin->name,
                                        .plan = &server->description.plan,
                                        .optimizer = &server->description.optimizer,
                                        .threads = 1,
                                        .find_device = options->store_device,
                                        .context = options->context};
    ls_stores_init(&server->stores);
    name_job(server);
    server->table = (struct ls_server_host){
        .struct_size = sizeof(server->table),
        .server = options->place->number,
        .servers = options->place->servers,
        .workers = options->place->workers,
        .deadline_ns = options->deadline_ns,
        .context = server,
        .host = options->strategy.host,
        .job = server->job,
        .folder = *options->place->server_folder ? options->place->server_folder : NULL,
        .next = host_next,
        .send = host_send,
        .allow = host_allow,
        .drop = host_drop,
        .learn = host_learn,
        .open = host_open,
        .place = host_place,
        .fill = host_fill,
        .update = host_update};
    enum ls_status status = open_service(server);
    if (!status)
        status = (enum ls_status)strategy->serve(&server->table);
    ls_service_close(server->service);
    ls_stores_finish(&server->stores);
    ls_description_finish(&server->description);
    free(server);
    return status;
}
