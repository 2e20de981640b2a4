// SPDX-License-Identifier: Apache-2.0
// Ranges in memory of devices: hosts only shake hands, everything else is put on the streams of the
// endpoints, which wait for each other's events.
#include "plugins/transport/local/local.h"

#include <sched.h>
#include <time.h>

#define POLL_NS 50000 // between two looks at a stream that is not done yet

static const struct ls_transport_place *place_of(const struct ls_transport *transport)
{
    return &transport->shared->places[transport->index];
}

// ---- What can be served ----

static bool has_streams(const struct ls_device_interface *ops)
{
    return LS_HAS(ops, peers) && !ops->blocking && ops->streams && ops->peers;
}

static int32_t check_reach(const struct ls_host *host, const struct ls_transport_config *config)
{
    for (uint32_t i = 0; i < config->count; i++)
        for (uint32_t k = 0; k < config->count; k++) {
            const struct ls_transport_place *own = &config->places[i], *other = &config->places[k];
            if (own->device == other->device ||
                own->ops->peers->can_access_peer(own->device, other->device) == 0)
                continue;
            return ls_host_fail(host, LS_UNAVAILABLE,
                                "the device of rank %u cannot read the memory of rank %u's; nccl, "
                                "central-storage and parameter-server do without that",
                                i, k);
        }
    return LS_OK;
}

int32_t local_device_check(const struct ls_host *host, const struct ls_transport_config *config)
{
    if (!config->places)
        return LS_OK;
    for (uint32_t i = 0; i < config->count; i++) {
        const struct ls_device_interface *ops = config->places[i].ops;
        if (config->places[i].struct_size != sizeof(*config->places) || !has_streams(ops))
            return ls_host_fail(host, LS_UNAVAILABLE,
                                "the device of rank %u has no streams, events and reductions that "
                                "a transport could use",
                                i);
        if (ops != config->places[0].ops)
            return ls_host_fail(host, LS_UNAVAILABLE,
                                "rank 0 and rank %u compute on devices of two plugins; a transport "
                                "connects those of one",
                                i);
    }
    return check_reach(host, config);
}

// ---- Events ----

int32_t local_device_open_events(struct ls_transport *transport, struct local_pair *pair,
                                 bool sends)
{
    const struct ls_transport_place *place = place_of(transport);
    bool *opened = sends ? &pair->source_opened : &pair->destination_opened;
    int32_t status = LS_OK;
    for (uint32_t i = 0; !*opened && !status && i < transport->shared->window; i++) {
        struct local_slot *slot = &pair->slots[i];
        struct ls_event **event = sends ? &slot->ready : &slot->done;
        status = *event ? LS_OK : place->ops->streams->event_open(place->device, event);
    }
    *opened = status == LS_OK;
    return status;
}

void local_device_close_events(const struct local_shared *shared, uint32_t source,
                               uint32_t destination, struct local_pair *pair)
{
    const struct ls_transport_place *from = &shared->places[source];
    const struct ls_transport_place *to = &shared->places[destination];
    for (uint32_t i = 0; i < shared->window; i++) {
        if (pair->slots[i].ready)
            from->ops->streams->event_close(from->device, pair->slots[i].ready);
        if (pair->slots[i].done)
            to->ops->streams->event_close(to->device, pair->slots[i].done);
    }
}

// ---- Messages ----

int32_t local_device_follow(struct ls_transport *transport, struct local_slot *slot,
                            uint64_t number)
{
    const struct ls_transport_place *place = place_of(transport);
    if (slot->followed > number)
        return LS_OK;
    slot->followed = number + 1;
    return place->ops->streams->event_wait(place->device, slot->done, place->stream);
}

int32_t local_device_offer(struct ls_transport *transport, struct local_slot *slot)
{
    const struct ls_transport_place *place = place_of(transport);
    const uint64_t consumed = atomic_load(&slot->consumed);
    // The receiver records its event anew once it has this message.
    const int32_t status =
        consumed ? local_device_follow(transport, slot, consumed - 1) : (int32_t)LS_OK;
    return status ? status
                  : place->ops->streams->event_record(place->device, slot->ready, place->stream);
}

static int32_t reduce(const struct ls_transport_place *place, const struct ls_transfer *transfer,
                      const void *from, uint64_t divisor)
{
    const struct ls_device_reduction call = {.struct_size = sizeof(call),
                                             .dtype = transfer->dtype,
                                             .reduction = divisor ? LS_SUM : transfer->reduction,
                                             .to = ls_host_memory(transfer->memory),
                                             .from = ls_host_memory(from),
                                             .count = transfer->count,
                                             .divisor = divisor};
    if (transfer->count == 0)
        return LS_OK;
    return place->ops->peers->reduce(place->device, &call, place->stream);
}

static int32_t copy(const struct ls_transport_place *place, const struct ls_transfer *transfer,
                    const void *from)
{
    if (transfer->count == 0)
        return LS_OK;
    return place->ops->memory->copy(place->device, ls_host_memory(transfer->memory),
                                    ls_host_memory(from), local_bytes_of(transfer), place->stream);
}

int32_t local_device_take(struct ls_transport *transport, const struct ls_transfer *transfer)
{
    const struct ls_transport_place *place = place_of(transport);
    struct local_shared *shared = transport->shared;
    struct local_slot *slot = RECEIVE_SLOT(transfer);
    struct local_pair *pair =
        atomic_load(&shared->pairs[(uint64_t)transfer->source * shared->world + transport->index]);
    int32_t status = place->ops->streams->event_wait(place->device, slot->ready, place->stream);
    if (!status)
        status = transfer->kind == LS_TRANSFER_RECEIVE ? copy(place, transfer, slot->source)
                                                       : reduce(place, transfer, slot->source, 0);
    // Also after a failure: what was put on the stream before it reads the peer's memory.
    const int32_t recorded =
        place->ops->streams->event_record(place->device, slot->done, place->stream);
    atomic_store(&pair->last_done, 1 + (uint32_t)(slot - pair->slots));
    return status ? status : recorded;
}

int32_t local_device_alone(struct ls_transport *transport, const struct ls_transfer *transfer)
{
    const struct ls_transport_place *place = place_of(transport);
    if (transfer->kind == LS_TRANSFER_COPY)
        return copy(place, transfer, transfer->from);
    if (transfer->kind == LS_TRANSFER_DIVIDE)
        return reduce(place, transfer, NULL, transfer->divisor);
    return reduce(place, transfer, transfer->from, 0);
}

// ---- Leaving ----

// A stream that is stuck is waited for once, not by everybody: it does not end for the next one
// either.
void local_device_leave(struct ls_transport *transport, uint32_t peer)
{
    struct local_shared *shared = transport->shared;
    const struct ls_transport_place *place = &shared->places[peer];
    struct local_pair *pair =
        atomic_load(&shared->pairs[(uint64_t)transport->index * shared->world + peer]);
    const uint32_t last = pair ? atomic_load(&pair->last_done) : 0;
    if (!last)
        return;
    const struct ls_event *done = pair->slots[last - 1].done;
    const uint64_t begin = shared->host->clock_ns(shared->host);
    while (!atomic_load(&shared->stuck) &&
           place->ops->streams->event_query(place->device, done) == LS_AGAIN) {
        if (shared->host->clock_ns(shared->host) - begin > shared->patience_ns)
            atomic_store(&shared->stuck, 1);
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
}
