// SPDX-License-Identifier: Apache-2.0
// What route.c and route_transfers.c share: an endpoint that has one of each transport, and its
// transfers.
#ifndef LS_COLLECTIVE_ROUTE_INTERNAL_H
#define LS_COLLECTIVE_ROUTE_INTERNAL_H

#include "core/collective/route.h"

#include <stdatomic.h>
#include <stdbool.h>

#define LS_ROUTE_ELSEWHERE UINT32_MAX

// How often a wait looks before it sleeps: where ranks have cores of their own, for about 100 us;
// else it yields between.
#define LS_ROUTE_SPINS_OWN_CORE 200
#define LS_ROUTE_SPINS_SHARED_CORE 20

enum { LS_ROUTE_NEAR, LS_ROUTE_FAR, LS_ROUTE_LEGS };

// One of the two transports.
struct ls_route_part {
    const struct ls_plugin *plugin;
    const struct ls_transport_interface *interface;
    const struct ls_host *host;
};

// What the endpoints of one open have in common.
struct ls_route_shared {
    struct ls_route_part near, far;
    uint32_t
        *near_index; // of each endpoint of the job, among those of this host; or LS_ROUTE_ELSEWHERE
    uint32_t near_world; // endpoints of this host
    bool has_near, has_far; // whether anybody is reached by them
    uint32_t spins;
    _Atomic uint32_t open; // endpoints
    _Atomic uint32_t aborted;
};

// One transport of an endpoint.
struct ls_route_leg {
    const struct ls_transport_interface *ops; // NULL: nobody is to be reached by it
    struct ls_transport *endpoint;
    struct ls_transfer **pending; // of a wait
    uint64_t pending_count;
};

// The caller's transfer, as the transports see it. Items are reused, and freed when the endpoint is
// closed: what failed may still be known to a transport.
struct ls_route_item {
    struct ls_route_item *next; // free
    struct ls_transfer inner; // with the numbers that endpoints have on this leg
    struct ls_route_leg *leg; // where it is
    struct ls_route_leg *then; // where it is sent on when it is received and reduced; NULL: nowhere
    int32_t ended; // LS_OK, or what it failed with
};

// The endpoint itself.
struct ls_transport {
    struct ls_route_shared *shared;
    uint32_t index;
    int32_t
        left; // LS_OK; after an abort, whether peers still touch memory (LS_PEER_LOST) or not (LS_ABORTED)
    uint32_t turn; // of looks in vain
    uint64_t capacity; // of pending, of each leg
    struct ls_route_leg legs[LS_ROUTE_LEGS];
    struct ls_route_item *free_items;
    struct ls_route_block *blocks;
};

int32_t ls_route_post(struct ls_transport *transport, struct ls_transfer *transfer);
int32_t ls_route_test(struct ls_transport *transport, struct ls_transfer *transfer);
int32_t ls_route_wait_any(struct ls_transport *transport, struct ls_transfer *const *transfers,
                          uint64_t count, uint64_t timeout_ns);
void ls_route_abort(struct ls_transport *transport);
int32_t ls_route_peer_state(struct ls_transport *transport, uint32_t peer);
void ls_route_items_release(struct ls_transport *transport);

#endif
