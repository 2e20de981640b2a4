// SPDX-License-Identifier: Apache-2.0
// What route.h makes. The far transport has all endpoints of the job; there is a near one for each
// host that has several, and they know nothing of each other. A transfer is handed on to one of the
// two; one that is received and reduced from here and sent on there is handed on twice.
#define _GNU_SOURCE // ppoll
#include "core/collective/route.h"

#include "core/base/clock.h"
#include "core/base/instance.h"
#include "core/base/log.h"
#include "core/base/memory.h"
#include "core/plugin/waiting.h"

#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ELSEWHERE UINT32_MAX

// How often a wait looks before it sleeps: where ranks have cores of their own, for about 100 us;
// else it yields between.
#define SPINS_OWN_CORE 200
#define SPINS_SHARED_CORE 20

#define BLOCK_ITEMS 64
// A leg for which no transfer waits is asked for news only so often while others are waited for: it
// may have to tell its peers something.
#define IDLE_TURNS 16
// A transport that cannot be armed is asked this often.
#define UNARMED_POLL_NS UINT64_C(200000)

enum { NEAR, FAR, LEGS };

// One of the two transports.
struct route_part {
    const struct ls_plugin *plugin;
    const struct ls_transport_interface *interface;
    const struct ls_host *host;
};

// What the endpoints of one open have in common.
struct route_shared {
    struct route_part near, far;
    uint32_t *near_index; // of each endpoint of the job, among those of this host; or ELSEWHERE
    uint32_t near_world; // endpoints of this host
    bool has_near, has_far; // whether anybody is reached by them
    uint32_t spins;
    _Atomic uint32_t open; // endpoints
    _Atomic uint32_t aborted;
};

struct ls_route {
    struct ls_host host; // the first: `open` finds the rest by it
    struct ls_plugin plugin;
    struct ls_transport_interface interface;
    struct route_part near, far;
    char name[128], summary[256];
};

// One transport of an endpoint.
struct route_leg {
    const struct ls_transport_interface *ops; // NULL: nobody is to be reached by it
    struct ls_transport *endpoint;
    struct ls_transfer **pending; // of a wait
    uint64_t pending_count;
};

// The caller's transfer, as the transports see it. Items are reused, and freed when the endpoint is
// closed: what failed may still be known to a transport.
struct route_item {
    struct route_item *next; // free
    struct ls_transfer inner; // with the numbers that endpoints have on this leg
    struct route_leg *leg; // where it is
    struct route_leg *then; // where it is sent on when it is received and reduced; NULL: nowhere
    int32_t ended; // LS_OK, or what it failed with
};

// The endpoint itself.
struct ls_transport {
    struct route_shared *shared;
    uint32_t index;
    int32_t
        left; // LS_OK; after an abort, whether peers still touch memory (LS_PEER_LOST) or not (LS_ABORTED)
    uint32_t turn; // of looks in vain
    uint64_t capacity; // of pending, of each leg
    struct route_leg legs[LEGS];
    struct route_item *free_items;
    struct route_block *blocks;
};

// ---- Items ----

struct route_block {
    struct route_block *next;
    struct route_item items[BLOCK_ITEMS];
};

static struct route_item *item_of(const struct ls_transfer *transfer)
{
    return (struct route_item *)(uintptr_t)transfer->own[0];
}

static void item_release(struct ls_transport *transport, struct route_item *item)
{
    item->next = transport->free_items;
    transport->free_items = item;
}

static struct route_item *item_take(struct ls_transport *transport)
{
    if (!transport->free_items) {
        struct route_block *block = calloc(1, sizeof(*block));
        if (!block)
            return NULL;
        block->next = transport->blocks;
        transport->blocks = block;
        for (uint32_t i = 0; i < BLOCK_ITEMS; i++)
            item_release(transport, &block->items[i]);
    }
    struct route_item *item = transport->free_items;
    transport->free_items = item->next;
    return item;
}

static void items_release(struct ls_transport *transport)
{
    while (transport->blocks) {
        struct route_block *next = transport->blocks->next;
        free(transport->blocks);
        transport->blocks = next;
    }
    for (int i = 0; i < LEGS; i++)
        free((void *)transport->legs[i].pending);
}

// ---- Peers ----

static struct route_leg *leg_to(struct ls_transport *transport, uint32_t peer)
{
    const bool here = transport->shared->near_index[peer] != ELSEWHERE;
    struct route_leg *near = &transport->legs[NEAR];
    return here && near->endpoint ? near : &transport->legs[FAR];
}

// The number that an endpoint of the job has there.
static uint32_t index_on(const struct ls_transport *transport, const struct route_leg *leg,
                         uint32_t peer)
{
    return leg == &transport->legs[NEAR] ? transport->shared->near_index[peer] : peer;
}

static int32_t route_peer_state(struct ls_transport *transport, uint32_t peer)
{
    if (atomic_load(&transport->shared->aborted))
        return LS_ABORTED;
    const struct route_leg *leg = leg_to(transport, peer);
    return leg->ops->peer_state(leg->endpoint, index_on(transport, leg, peer));
}

static void route_abort(struct ls_transport *transport)
{
    atomic_store(&transport->shared->aborted, 1);
    for (int i = 0; i < LEGS; i++)
        if (transport->legs[i].endpoint)
            transport->legs[i].ops->abort(transport->legs[i].endpoint);
}

// After an abort, which may have reached this process over one leg only: no peer touches memory of
// this endpoint any more, on any leg.
static int32_t leave(struct ls_transport *transport)
{
    if (transport->left)
        return transport->left;
    route_abort(transport);
    transport->left = LS_ABORTED;
    for (int i = 0; i < LEGS; i++) {
        const struct route_leg *leg = &transport->legs[i];
        if (leg->endpoint && leg->ops->wait_any(leg->endpoint, NULL, 0, 0) != LS_ABORTED)
            transport->left = LS_PEER_LOST;
    }
    return transport->left;
}

// ---- Transfers ----

static bool receives(uint32_t kind)
{
    return kind == LS_TRANSFER_RECEIVE || kind == LS_TRANSFER_RECEIVE_REDUCE ||
           kind == LS_TRANSFER_RECEIVE_REDUCE_SEND;
}

static bool sends(uint32_t kind)
{
    return kind == LS_TRANSFER_SEND || kind == LS_TRANSFER_RECEIVE_REDUCE_SEND;
}

static void item_init(struct ls_transport *transport, struct route_item *item,
                      const struct ls_transfer *transfer)
{
    const uint32_t kind = transfer->kind;
    struct route_leg *from = receives(kind) ? leg_to(transport, transfer->source) : NULL;
    struct route_leg *to = sends(kind) ? leg_to(transport, transfer->destination) : NULL;
    struct route_leg *any = leg_to(transport, transport->index); // of what has no peer
    *item = (struct route_item){.inner = *transfer, .leg = from ? from : to ? to : any};
    item->inner.source = from ? index_on(transport, from, transfer->source) : 0;
    item->inner.destination = to ? index_on(transport, to, transfer->destination) : 0;
    if (from && to && from != to) {
        item->inner.kind = LS_TRANSFER_RECEIVE_REDUCE;
        item->then = to;
    }
}

// It has been received and reduced; posts the rest.
static int32_t send_on(struct route_item *item, struct ls_transfer *transfer)
{
    transfer->state = LS_TRANSFER_REDUCED;
    item->leg = item->then;
    item->then = NULL;
    item->inner.kind = LS_TRANSFER_SEND;
    return item->leg->ops->post(item->leg->endpoint, &item->inner);
}

// What `status` of the leg means for the caller's transfer.
static int32_t follow(struct ls_transport *transport, struct ls_transfer *transfer, int32_t status)
{
    struct route_item *item = item_of(transfer);
    if (status == LS_ABORTED)
        return leave(transport);
    if (status == LS_AGAIN) {
        if (item->inner.state == LS_TRANSFER_REDUCED)
            transfer->state = LS_TRANSFER_REDUCED;
        return LS_AGAIN;
    }
    if (status) {
        if (item->inner.state == LS_TRANSFER_MISMATCH)
            transfer->state = LS_TRANSFER_MISMATCH;
        item->ended = status;
        return status;
    }
    transfer->own[0] = 0;
    transfer->state = LS_TRANSFER_COMPLETE;
    item_release(transport, item);
    return LS_OK;
}

static int32_t route_post(struct ls_transport *transport, struct ls_transfer *transfer)
{
    struct route_item *item = item_take(transport);
    if (!item)
        return LS_OUT_OF_MEMORY;
    item_init(transport, item, transfer);
    transfer->own[0] = (uintptr_t)item;
    transfer->state = LS_TRANSFER_PENDING;
    int32_t status = item->leg->ops->post(item->leg->endpoint, &item->inner);
    if (!status && item->inner.state == LS_TRANSFER_COMPLETE && item->then)
        status = send_on(item, transfer);
    if (!status && item->inner.state != LS_TRANSFER_COMPLETE)
        return LS_OK;
    return follow(transport, transfer, status);
}

static int32_t route_test(struct ls_transport *transport, struct ls_transfer *transfer)
{
    struct route_item *item = item_of(transfer);
    if (!item)
        return LS_OK;
    if (atomic_load_explicit(&transport->shared->aborted, memory_order_relaxed))
        return leave(transport);
    if (item->ended)
        return item->ended;
    int32_t status = item->leg->ops->test(item->leg->endpoint, &item->inner);
    if (!status && item->then) {
        status = send_on(item, transfer);
        if (!status && item->inner.state != LS_TRANSFER_COMPLETE)
            status = LS_AGAIN;
    }
    return follow(transport, transfer, status);
}

// ---- Waiting ----

// Each leg gets its own. LS_OK: something need not be waited for.
static int32_t sort_pending(struct ls_transport *transport, struct ls_transfer *const *transfers,
                            uint64_t count)
{
    for (int i = 0; i < LEGS; i++) {
        struct route_leg *leg = &transport->legs[i];
        leg->pending_count = 0;
        if (count <= transport->capacity)
            continue;
        free((void *)leg->pending);
        leg->pending = calloc(2 * count, sizeof(struct ls_transfer *));
        if (!leg->pending) {
            transport->capacity = 0;
            return LS_OUT_OF_MEMORY;
        }
    }
    if (count > transport->capacity)
        transport->capacity = 2 * count;
    for (uint64_t i = 0; i < count; i++) {
        struct route_item *item = item_of(transfers[i]);
        if (!item || item->ended)
            return LS_OK;
        item->leg->pending[item->leg->pending_count++] = &item->inner;
    }
    return LS_AGAIN;
}

static int32_t poll_leg(const struct route_leg *leg)
{
    return leg->ops->wait_any(leg->endpoint, leg->pending, leg->pending_count, 0);
}

static int32_t poll_legs(struct ls_transport *transport)
{
    const bool idle_too = transport->turn++ % IDLE_TURNS == 0;
    for (int i = 0; i < LEGS; i++) {
        const struct route_leg *leg = &transport->legs[i];
        const int32_t status =
            leg->endpoint && (leg->pending_count || idle_too) ? poll_leg(leg) : LS_AGAIN;
        if (status != LS_AGAIN)
            return status;
    }
    return LS_AGAIN;
}

// Until a leg may have news, at most until one of them wants to be asked. LS_AGAIN: look now.
static int32_t sleep_once(struct ls_transport *transport, uint64_t timeout_ns)
{
    struct pollfd fds[LEGS];
    nfds_t count = 0;
    for (int i = 0; i < LEGS; i++) {
        const struct route_leg *leg = &transport->legs[i];
        uint64_t poll_ns = UNARMED_POLL_NS;
        int32_t fd = -1, status = LS_OK;
        if (!leg->endpoint)
            continue;
        if (leg->ops->arm)
            status = leg->ops->arm(leg->endpoint, leg->pending, leg->pending_count, &fd, &poll_ns);
        if (status) // LS_AGAIN: it may have some already
            return status;
        if (fd >= 0)
            fds[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
        if (timeout_ns > poll_ns)
            timeout_ns = poll_ns;
    }
    const struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / UINT64_C(1000000000)),
                                     .tv_nsec = (long)(timeout_ns % UINT64_C(1000000000))};
    (void)ppoll(fds, count, &timeout, NULL);
    return LS_AGAIN;
}

static int32_t route_wait_any(struct ls_transport *transport, struct ls_transfer *const *transfers,
                              uint64_t count, uint64_t timeout_ns)
{
    if (atomic_load_explicit(&transport->shared->aborted, memory_order_relaxed))
        return leave(transport);
    const uint32_t spins = transport->shared->spins;
    int32_t status = sort_pending(transport, transfers, count);
    if (status == LS_AGAIN)
        status = poll_legs(transport);
    for (uint32_t i = 0; status == LS_AGAIN && timeout_ns && i < spins; i++) {
        if (spins == SPINS_SHARED_CORE)
            sched_yield();
        status = poll_legs(transport);
    }
    const uint64_t begin_ns = status == LS_AGAIN && timeout_ns ? ls_clock_ns() : 0;
    for (uint64_t waited = 0; status == LS_AGAIN && waited < timeout_ns;) {
        status = sleep_once(transport, timeout_ns - waited);
        if (status == LS_AGAIN)
            status = poll_legs(transport);
        waited = ls_clock_ns() - begin_ns;
    }
    return status == LS_ABORTED ? leave(transport) : status;
}

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

// Near transports of different hosts are opened at the same time, and need not make equally many
// exchanges. So each of their exchanges is one or more rounds of cards, in which all processes of
// the job take part until every near transport is open.
enum card_state { CARD_OPENING, CARD_OPEN, CARD_FAILED };
#define CARD_BYTES 1024

struct card {
    uint32_t state; // enum card_state
    uint32_t bytes; // of data, for the endpoints of the same host
    unsigned char data[CARD_BYTES];
};

struct near_meeting {
    const struct ls_transport_config *config; // of the job
    const struct route_shared *shared;
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
    const struct route_shared *shared = meeting->shared;
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
static int32_t open_near(const struct route_shared *shared,
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

static void shared_destroy(struct route_shared *shared)
{
    if (!shared)
        return;
    free(shared->near_index);
    free(shared);
}

static struct route_shared *shared_create(const struct ls_route *route,
                                          const struct ls_transport_config *config)
{
    struct route_shared *shared = ls_calloc_cacheline(1, sizeof(*shared));
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
        near_index[i] = here ? shared->near_world++ : ELSEWHERE;
    }
    shared->has_near = shared->near_world > 1 || config->world == 1;
    shared->has_far = shared->near_world < config->world;
    shared->spins =
        ls_ranks_have_cores(config->count, shared->near_world) ? SPINS_OWN_CORE : SPINS_SHARED_CORE;
    atomic_store(&shared->open, config->count);
    return shared;
}

static void free_legs(struct ls_transport *const *endpoints, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        for (int leg = 0; leg < LEGS; leg++) {
            ls_instance_destroy(endpoints[i]->legs[leg].endpoint);
            endpoints[i]->legs[leg] = (struct route_leg){0};
        }
}

static int32_t allocate_leg(struct ls_transport *const *endpoints, uint32_t count, int leg,
                            const struct ls_transport_interface *ops, struct ls_transport **list)
{
    for (uint32_t i = 0; i < count; i++) {
        list[i] = ls_instance_create(ops, ops->state_bytes);
        endpoints[i]->legs[leg] = (struct route_leg){.ops = ops, .endpoint = list[i]};
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

static int32_t open_legs(struct route_shared *shared, const struct ls_transport_config *config,
                         struct ls_transport *const *endpoints)
{
    struct ls_transport **near = calloc(config->count, sizeof(struct ls_transport *));
    struct ls_transport **far = calloc(config->count, sizeof(struct ls_transport *));
    int32_t status = near && far ? check_hosts(config) : LS_OUT_OF_MEMORY;
    if (!status && shared->has_near)
        status = allocate_leg(endpoints, config->count, NEAR, shared->near.interface, near);
    if (!status && shared->has_far)
        status = allocate_leg(endpoints, config->count, FAR, shared->far.interface, far);
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
    struct route_shared *shared = shared_create(route, config);
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
    struct route_shared *shared = transport->shared;
    for (int leg = 0; leg < LEGS; leg++)
        if (transport->legs[leg].endpoint)
            transport->legs[leg].ops->close(transport->legs[leg].endpoint);
    items_release(transport);
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
    route->near = (struct route_part){near, near->interface, near_host};
    route->far = (struct route_part){far, far->interface, far_host};
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
        .post = route_post,
        .test = route_test,
        .wait_any = route_wait_any,
        .abort = route_abort,
        .peer_state = route_peer_state,
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
