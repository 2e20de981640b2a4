// SPDX-License-Identifier: Apache-2.0
// A transfer over two transports: it is posted to the one that reaches its peer, and a wait is for both.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // ppoll
#endif
#include "core/collective/route_internal.h"

#include "core/base/clock.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#define BLOCK_ITEMS 64
// A leg for which no transfer waits is asked for news only so often while others are waited for: it may have to tell its peers
// something.
#define IDLE_TURNS 16
// A transport that cannot be armed is asked this often.
#define UNARMED_GLANCE_NS UINT64_C(200000)

// ---- Items ----

struct ls_route_block {
    struct ls_route_block *next;
    struct ls_route_item items[BLOCK_ITEMS];
};

static struct ls_route_item *item_of(const struct ls_transfer *transfer)
{
    return (struct ls_route_item *)(uintptr_t)transfer->own[0];
}

static void item_release(struct ls_transport *transport, struct ls_route_item *item)
{
    item->next = transport->free_items;
    transport->free_items = item;
}

static struct ls_route_item *item_take(struct ls_transport *transport)
{
    if (!transport->free_items) {
        struct ls_route_block *block = calloc(1, sizeof(*block));
        if (!block)
            return NULL;
        block->next = transport->blocks;
        transport->blocks = block;
        for (uint32_t i = 0; i < BLOCK_ITEMS; i++)
            item_release(transport, &block->items[i]);
    }
    struct ls_route_item *item = transport->free_items;
    transport->free_items = item->next;
    return item;
}

void ls_route_items_release(struct ls_transport *transport)
{
    while (transport->blocks) {
        struct ls_route_block *next = transport->blocks->next;
        free(transport->blocks);
        transport->blocks = next;
    }
    for (int i = 0; i < LS_ROUTE_LEGS; i++)
        free((void *)transport->legs[i].pending);
}

// ---- Peers ----

static struct ls_route_leg *leg_to(struct ls_transport *transport, uint32_t peer)
{
    const bool here = transport->shared->near_index[peer] != LS_ROUTE_ELSEWHERE;
    struct ls_route_leg *near = &transport->legs[LS_ROUTE_NEAR];
    return here && near->endpoint ? near : &transport->legs[LS_ROUTE_FAR];
}

// The number that an endpoint of the job has there.
static uint32_t index_on(const struct ls_transport *transport, const struct ls_route_leg *leg,
                         uint32_t peer)
{
    return leg == &transport->legs[LS_ROUTE_NEAR] ? transport->shared->near_index[peer] : peer;
}

int32_t ls_route_peer_state(struct ls_transport *transport, uint32_t peer)
{
    if (atomic_load(&transport->shared->aborted))
        return LS_ABORTED;
    const struct ls_route_leg *leg = leg_to(transport, peer);
    return leg->ops->peer_state(leg->endpoint, index_on(transport, leg, peer));
}

void ls_route_abort(struct ls_transport *transport)
{
    atomic_store(&transport->shared->aborted, 1);
    for (int i = 0; i < LS_ROUTE_LEGS; i++)
        if (transport->legs[i].endpoint)
            transport->legs[i].ops->abort(transport->legs[i].endpoint);
}

// After an abort, which may have reached this process over one leg only: no peer touches memory of this endpoint any more, on
// any leg.
static int32_t leave(struct ls_transport *transport)
{
    if (transport->left)
        return transport->left;
    ls_route_abort(transport);
    transport->left = LS_ABORTED;
    for (int i = 0; i < LS_ROUTE_LEGS; i++) {
        const struct ls_route_leg *leg = &transport->legs[i];
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

static void item_init(struct ls_transport *transport, struct ls_route_item *item,
                      const struct ls_transfer *transfer)
{
    const uint32_t kind = transfer->kind;
    struct ls_route_leg *from = receives(kind) ? leg_to(transport, transfer->source) : NULL;
    struct ls_route_leg *to = sends(kind) ? leg_to(transport, transfer->destination) : NULL;
    struct ls_route_leg *any = leg_to(transport, transport->index); // of what has no peer
    *item = (struct ls_route_item){.inner = *transfer, .leg = from ? from : to ? to : any};
    item->inner.source = from ? index_on(transport, from, transfer->source) : 0;
    item->inner.destination = to ? index_on(transport, to, transfer->destination) : 0;
    if (from && to && from != to) {
        item->inner.kind = LS_TRANSFER_RECEIVE_REDUCE;
        item->then = to;
    }
}

// It has been received and reduced; posts the rest.
static int32_t send_on(struct ls_route_item *item, struct ls_transfer *transfer)
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
    struct ls_route_item *item = item_of(transfer);
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

int32_t ls_route_post(struct ls_transport *transport, struct ls_transfer *transfer)
{
    struct ls_route_item *item = item_take(transport);
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

int32_t ls_route_test(struct ls_transport *transport, struct ls_transfer *transfer)
{
    struct ls_route_item *item = item_of(transfer);
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
    for (int i = 0; i < LS_ROUTE_LEGS; i++) {
        struct ls_route_leg *leg = &transport->legs[i];
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
        struct ls_route_item *item = item_of(transfers[i]);
        if (!item || item->ended)
            return LS_OK;
        item->leg->pending[item->leg->pending_count++] = &item->inner;
    }
    return LS_AGAIN;
}

static int32_t look_at(const struct ls_route_leg *leg)
{
    return leg->ops->wait_any(leg->endpoint, leg->pending, leg->pending_count, 0);
}

static int32_t look(struct ls_transport *transport)
{
    const bool idle_too = transport->turn++ % IDLE_TURNS == 0;
    for (int i = 0; i < LS_ROUTE_LEGS; i++) {
        const struct ls_route_leg *leg = &transport->legs[i];
        const int32_t status =
            leg->endpoint && (leg->pending_count || idle_too) ? look_at(leg) : LS_AGAIN;
        if (status != LS_AGAIN)
            return status;
    }
    return LS_AGAIN;
}

// Until a leg may have news, at most until one of them wants to be asked. LS_AGAIN: look now.
static int32_t sleep_once(struct ls_transport *transport, uint64_t timeout_ns)
{
    struct pollfd fds[LS_ROUTE_LEGS];
    nfds_t count = 0;
    for (int i = 0; i < LS_ROUTE_LEGS; i++) {
        const struct ls_route_leg *leg = &transport->legs[i];
        uint64_t glance_ns = UNARMED_GLANCE_NS;
        int32_t fd = -1, status = LS_OK;
        if (!leg->endpoint)
            continue;
        if (leg->ops->arm)
            status =
                leg->ops->arm(leg->endpoint, leg->pending, leg->pending_count, &fd, &glance_ns);
        if (status) // LS_AGAIN: it may have some already
            return status;
        if (fd >= 0)
            fds[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
        if (timeout_ns > glance_ns)
            timeout_ns = glance_ns;
    }
    const struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / UINT64_C(1000000000)),
                                     .tv_nsec = (long)(timeout_ns % UINT64_C(1000000000))};
    (void)ppoll(fds, count, &timeout, NULL);
    return LS_AGAIN;
}

int32_t ls_route_wait_any(struct ls_transport *transport, struct ls_transfer *const *transfers,
                          uint64_t count, uint64_t timeout_ns)
{
    if (atomic_load_explicit(&transport->shared->aborted, memory_order_relaxed))
        return leave(transport);
    const uint32_t spins = transport->shared->spins;
    int32_t status = sort_pending(transport, transfers, count);
    if (status == LS_AGAIN)
        status = look(transport);
    for (uint32_t i = 0; status == LS_AGAIN && timeout_ns && i < spins; i++) {
        if (spins == LS_ROUTE_SPINS_SHARED_CORE)
            sched_yield();
        status = look(transport);
    }
    const uint64_t begin_ns = status == LS_AGAIN && timeout_ns ? ls_clock_ns() : 0;
    for (uint64_t waited = 0; status == LS_AGAIN && waited < timeout_ns;) {
        status = sleep_once(transport, timeout_ns - waited);
        if (status == LS_AGAIN)
            status = look(transport);
        waited = ls_clock_ns() - begin_ns;
    }
    return status == LS_ABORTED ? leave(transport) : status;
}
