// SPDX-License-Identifier: Apache-2.0
// Opens and closes what route.h makes. The far transport has all endpoints of the job; there is a near one for each host that
// has several, and they know nothing of each other.
#include "core/collective/route_internal.h"

#include "core/base/instance.h"
#include "core/base/log.h"
#include "core/base/memory.h"
#include "core/plugin/waiting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ls_route {
    struct ls_host host; // the first: `open` finds the rest by it
    struct ls_plugin plugin;
    struct ls_transport_interface interface;
    struct ls_route_part near, far;
    char name[128], summary[256];
};

// ---- Which transport ----

enum ls_route_choice ls_route_choose(const uint32_t *hosts, uint32_t world, uint32_t count)
{
    bool same = false, others = false;
    for (uint32_t i = 1; i < world; i++) {
        others |= hosts[i] != hosts[0];
        for (uint32_t k = 0; k < i; k++)
            same |= hosts[i] == hosts[k];
    }
    if (count == world)
        return LS_ROUTE_PROCESS;
    if (!others)
        return LS_ROUTE_HOST;
    return same ? LS_ROUTE_BOTH : LS_ROUTE_NETWORK;
}

// ---- Opening the near transport ----

// Near transports of different hosts are opened at the same time, and need not make equally many exchanges. So each of their
// exchanges is one or more rounds of cards, in which all processes of the job take part until every near transport is open.
enum card_state { CARD_OPENING, CARD_OPEN, CARD_FAILED };
#define CARD_BYTES 1024

struct card {
    uint32_t state; // enum card_state
    uint32_t bytes; // of data, for the endpoints of the same host
    unsigned char data[CARD_BYTES];
};

struct near_meeting {
    const struct ls_transport_config *config; // of the job
    const struct ls_route_shared *shared;
    uint32_t host; // of this process
    uint32_t world; // endpoints of this host
    struct card *own, *all;
    int32_t broken; // what a round failed with: there are no more rounds
};

// data: of each own endpoint, `stride` bytes apart.
static int32_t meet_once(struct near_meeting *meeting, enum card_state state, const char *data,
                         uint64_t stride, uint64_t bytes)
{
    const struct ls_transport_config *config = meeting->config;
    for (uint32_t i = 0; i < config->count; i++) {
        struct card *card = &meeting->own[i];
        *card = (struct card){.state = state, .bytes = (uint32_t)bytes};
        if (bytes)
            memcpy(card->data, data + i * stride, bytes);
    }
    meeting->broken =
        config->exchange(config->context, meeting->own, sizeof(struct card), meeting->all);
    return meeting->broken;
}

// The near transport's exchange: its endpoints are those of this host.
static int32_t exchange_near(void *context, const void *own, uint64_t bytes, void *all)
{
    struct near_meeting *meeting = context;
    const struct ls_transport_config *config = meeting->config;
    uint64_t done = 0;
    do {
        const uint64_t part = bytes - done < CARD_BYTES ? bytes - done : CARD_BYTES;
        const int32_t status =
            meet_once(meeting, CARD_OPENING, (const char *)own + done, bytes, part);
        if (status)
            return status;
        for (uint32_t i = 0; i < config->world; i++) {
            const struct card *card = &meeting->all[i];
            if (config->hosts[i] != meeting->host)
                continue;
            if (card->state != CARD_OPENING || card->bytes != part)
                return LS_PEER_LOST; // its own message says why
            memcpy((char *)all + meeting->shared->near_index[i] * bytes + done, card->data, part);
        }
        done += part;
    } while (done < bytes);
    return LS_OK;
}

// Until all are as far; every process hears the same.
static int32_t finish_rounds(struct near_meeting *meeting, int32_t status)
{
    const struct ls_transport_config *config = meeting->config;
    bool opening = true;
    while (opening && !meeting->broken) {
        opening = false;
        if (meet_once(meeting, status ? CARD_FAILED : CARD_OPEN, NULL, 0, 0))
            break;
        for (uint32_t i = 0; i < config->world; i++)
            opening |= meeting->all[i].state == CARD_OPENING;
    }
    if (meeting->broken)
        return status ? status : meeting->broken;
    for (uint32_t i = 0; !status && i < config->world; i++)
        if (meeting->all[i].state != CARD_OPEN) {
            ls_error("transport",
                     "rank %u could not open transport %s on its host; its own message says why", i,
                     meeting->shared->near.plugin->name);
            status = LS_UNAVAILABLE;
        }
    return status;
}

static int32_t open_near_here(struct near_meeting *meeting, struct ls_transport **endpoints)
{
    const struct ls_transport_config *config = meeting->config;
    const struct ls_route_shared *shared = meeting->shared;
    uint32_t *own = calloc(config->count, sizeof(*own));
    uint32_t *hosts = calloc(meeting->world, sizeof(*hosts));
    char name[160];
    // Where hosts are only said to be several, as in tests, names must still differ.
    snprintf(name, sizeof(name), "%s.host%u", config->name, meeting->host);
    struct ls_transport_config near = *config;
    near.world = meeting->world;
    near.own = own;
    near.hosts = hosts;
    near.name = name;
    near.context = meeting;
    near.exchange = exchange_near;
    for (uint32_t i = 0; own && i < config->count; i++)
        own[i] = shared->near_index[config->own[i]];
    const int32_t status = own && hosts
                               ? shared->near.interface->open(shared->near.host, &near, endpoints)
                               : LS_OUT_OF_MEMORY;
    free(own);
    free(hosts);
    return status;
}

// Where this host has one endpoint, this process only takes part in the rounds.
static int32_t open_near(const struct ls_route_shared *shared,
                         const struct ls_transport_config *config, struct ls_transport **endpoints)
{
    struct near_meeting meeting = {.config = config,
                                   .shared = shared,
                                   .host = config->hosts[config->own[0]],
                                   .world = shared->near_world,
                                   .own = calloc(config->count, sizeof(struct card)),
                                   .all = calloc(config->world, sizeof(struct card))};
    int32_t status = meeting.own && meeting.all ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status) {
        if (shared->has_near)
            status = open_near_here(&meeting, endpoints);
        const bool opened = shared->has_near && !status;
        status = finish_rounds(&meeting, status);
        for (uint32_t i = 0; status && opened && i < config->count; i++)
            shared->near.interface->close(endpoints[i]);
    }
    free(meeting.own);
    free(meeting.all);
    return status;
}

// ---- Opening ----

static void shared_destroy(struct ls_route_shared *shared)
{
    if (!shared)
        return;
    free(shared->near_index);
    free(shared);
}

static struct ls_route_shared *shared_create(const struct ls_route *route,
                                             const struct ls_transport_config *config)
{
    struct ls_route_shared *shared = ls_calloc_cacheline(1, sizeof(*shared));
    uint32_t *near_index = calloc(config->world, sizeof(*near_index));
    if (!shared || !near_index) {
        free(near_index);
        shared_destroy(shared);
        return NULL;
    }
    shared->near = route->near;
    shared->far = route->far;
    shared->near_index = near_index;
    for (uint32_t i = 0; i < config->world; i++) {
        const bool here = config->hosts[i] == config->hosts[config->own[0]];
        near_index[i] = here ? shared->near_world++ : LS_ROUTE_ELSEWHERE;
    }
    shared->has_near = shared->near_world > 1 || config->world == 1;
    shared->has_far = shared->near_world < config->world;
    shared->spins = ls_ranks_have_cores(config->count, shared->near_world)
                        ? LS_ROUTE_SPINS_OWN_CORE
                        : LS_ROUTE_SPINS_SHARED_CORE;
    atomic_store(&shared->open, config->count);
    return shared;
}

static void free_legs(struct ls_transport *const *endpoints, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        for (int leg = 0; leg < LS_ROUTE_LEGS; leg++) {
            ls_instance_destroy(endpoints[i]->legs[leg].endpoint);
            endpoints[i]->legs[leg] = (struct ls_route_leg){0};
        }
}

static int32_t allocate_leg(struct ls_transport *const *endpoints, uint32_t count, int leg,
                            const struct ls_transport_interface *ops, struct ls_transport **list)
{
    for (uint32_t i = 0; i < count; i++) {
        list[i] = ls_instance_create(ops, ops->state_bytes);
        endpoints[i]->legs[leg] = (struct ls_route_leg){.ops = ops, .endpoint = list[i]};
        if (!list[i])
            return LS_OUT_OF_MEMORY;
    }
    return LS_OK;
}

static int32_t check_hosts(const struct ls_transport_config *config)
{
    for (uint32_t i = 1; i < config->count; i++)
        if (config->hosts[config->own[i]] != config->hosts[config->own[0]]) {
            ls_error("transport", "ranks %u and %u are in one process, and not on one host",
                     config->own[0], config->own[i]);
            return LS_USAGE;
        }
    return LS_OK;
}

static int32_t open_legs(struct ls_route_shared *shared, const struct ls_transport_config *config,
                         struct ls_transport *const *endpoints)
{
    struct ls_transport **near = calloc(config->count, sizeof(struct ls_transport *));
    struct ls_transport **far = calloc(config->count, sizeof(struct ls_transport *));
    int32_t status = near && far ? check_hosts(config) : LS_OUT_OF_MEMORY;
    if (!status && shared->has_near)
        status =
            allocate_leg(endpoints, config->count, LS_ROUTE_NEAR, shared->near.interface, near);
    if (!status && shared->has_far)
        status = allocate_leg(endpoints, config->count, LS_ROUTE_FAR, shared->far.interface, far);
    if (!status)
        status = open_near(shared, config, near);
    if (!status && shared->has_far) {
        status = shared->far.interface->open(shared->far.host, config, far);
        for (uint32_t i = 0; status && shared->has_near && i < config->count; i++)
            shared->near.interface->close(near[i]);
    }
    free((void *)near);
    free((void *)far);
    return status;
}

static int32_t route_open(const struct ls_host *host, const struct ls_transport_config *config,
                          struct ls_transport *const *endpoints)
{
    const struct ls_route *route = (const struct ls_route *)(const void *)host;
    struct ls_route_shared *shared = shared_create(route, config);
    if (!shared)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < config->count; i++)
        *endpoints[i] = (struct ls_transport){.shared = shared, .index = config->own[i]};
    const int32_t status = open_legs(shared, config, endpoints);
    if (status) {
        free_legs(endpoints, config->count);
        shared_destroy(shared);
    }
    return status;
}

static void route_close(struct ls_transport *transport)
{
    struct ls_route_shared *shared = transport->shared;
    for (int leg = 0; leg < LS_ROUTE_LEGS; leg++)
        if (transport->legs[leg].endpoint)
            transport->legs[leg].ops->close(transport->legs[leg].endpoint);
    ls_route_items_release(transport);
    free_legs(&transport, 1);
    if (atomic_fetch_sub(&shared->open, 1) == 1)
        shared_destroy(shared);
}

// ---- The transport itself ----

enum ls_status ls_route_make(const struct ls_plugin *near, const struct ls_host *near_host,
                             const struct ls_plugin *far, const struct ls_host *far_host,
                             struct ls_route **out)
{
    struct ls_route *route = calloc(1, sizeof(*route));
    if (!route)
        return LS_OUT_OF_MEMORY;
    route->near = (struct ls_route_part){near, near->interface, near_host};
    route->far = (struct ls_route_part){far, far->interface, far_host};
    route->host = *far_host;
    snprintf(route->name, sizeof(route->name), "%s+%s", near->name, far->name);
    snprintf(route->summary, sizeof(route->summary), "%s within a host, %s between hosts",
             near->name, far->name);
    route->interface = (struct ls_transport_interface){
        .struct_size = sizeof(route->interface),
        .scope = route->far.interface->scope,
        .memory_kinds = route->near.interface->memory_kinds & route->far.interface->memory_kinds,
        .state_bytes = sizeof(struct ls_transport),
        .open = route_open,
        .close = route_close,
        .post = ls_route_post,
        .test = ls_route_test,
        .wait_any = ls_route_wait_any,
        .abort = ls_route_abort,
        .peer_state = ls_route_peer_state,
    };
    route->plugin = (struct ls_plugin){
        LS_PLUGIN_HEADER(LS_KIND_TRANSPORT),
        .name = route->name,
        .version = far->version,
        .licence = "Apache-2.0",
        .summary = route->summary,
        .interface = &route->interface,
    };
    *out = route;
    return LS_OK;
}

void ls_route_destroy(struct ls_route *route)
{
    free(route);
}

const struct ls_plugin *ls_route_plugin(const struct ls_route *route)
{
    return &route->plugin;
}

const struct ls_host *ls_route_host(const struct ls_route *route)
{
    return &route->host;
}
