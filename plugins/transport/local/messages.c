// SPDX-License-Identifier: Apache-2.0
// A transfer from post to its end: what its two sides write into their slot, and what each looks
// for in it.
#include "plugins/transport/local/kernels.h"
#include "plugins/transport/local/local.h"

#include <string.h>

// ---- Halves of a slot ----

static bool on_device(const struct ls_transport *transport)
{
    return transport->shared->places != NULL;
}

static int32_t offer(struct ls_transport *transport, const struct ls_transfer *transfer,
                     const void *source)
{
    struct local_slot *slot = SEND_SLOT(transfer);
    const int32_t status = on_device(transport) ? local_device_offer(transport, slot) : LS_OK;
    if (status)
        return status;
    slot->source = source;
    slot->source_bytes = local_bytes_of(transfer);
    slot->source_signature = transfer->signature;
    atomic_store(&slot->offered, transfer->send_number + 1);
    local_wake(transport, transfer->destination);
    return LS_OK;
}

static void want(const struct ls_transfer *transfer)
{
    struct local_slot *slot = RECEIVE_SLOT(transfer);
    slot->target = transfer->memory;
    slot->target_bytes = local_bytes_of(transfer);
    slot->target_signature = transfer->signature;
    slot->after = transfer->after;
    // Nobody waits for this: a sender that finds nothing wanted offers its memory instead.
    atomic_store_explicit(&slot->wanted, transfer->receive_number + 1, memory_order_release);
}

static void consume(struct ls_transport *transport, const struct ls_transfer *transfer)
{
    atomic_store(&RECEIVE_SLOT(transfer)->consumed, transfer->receive_number + 1);
    local_wake(transport, transfer->source);
}

// The same without the fence that waking needs, which costs as much as a message: where the source
// is told of something else right after, or waits for nothing but a free slot (see WINDOW_POLL_NS).
static void consume_quietly(const struct ls_transfer *transfer)
{
    atomic_store_explicit(&RECEIVE_SLOT(transfer)->consumed, transfer->receive_number + 1,
                          memory_order_release);
}

static bool offer_fits(const struct ls_transfer *transfer)
{
    const struct local_slot *slot = RECEIVE_SLOT(transfer);
    return slot->source_bytes == local_bytes_of(transfer) &&
           slot->source_signature == transfer->signature;
}

// Whether the result of a receive-reduce-and-send may be written straight to the destination while
// the message that is reduced is read. The last line is the rule of `after`: the destination still
// lets us read the very memory that it wants written, and the pass does so element by element. Not
// on devices, where a second stream would have to wait for the writing.
static bool may_push(const struct ls_transport *transport, const struct ls_transfer *transfer)
{
    struct local_slot *slot = SEND_SLOT(transfer);
    if (on_device(transport))
        return false;
    if (atomic_load_explicit(&slot->wanted, memory_order_acquire) != transfer->send_number + 1 ||
        slot->target_bytes != local_bytes_of(transfer) ||
        slot->target_signature != transfer->signature)
        return false;
    if (slot->after == LS_TRANSFER_AT_ONCE)
        return true;
    return transfer->source == transfer->destination && slot->after == transfer->receive_number &&
           slot->target == RECEIVE_SLOT(transfer)->source;
}

// ---- Moving on, one kind at a time ----

static int32_t complete(struct ls_transfer *transfer)
{
    transfer->state = LS_TRANSFER_COMPLETE;
    return LS_OK;
}

static int32_t mismatch(struct ls_transfer *transfer)
{
    transfer->state = LS_TRANSFER_MISMATCH;
    return LS_FAILED;
}

// The peer has read message `number` of this endpoint; false: not yet.
static bool was_taken(struct ls_transport *transport, struct local_slot *slot, uint64_t number,
                      int32_t *status)
{
    if (!local_reached(&slot->consumed, number))
        return false;
    *status = on_device(transport) ? local_device_follow(transport, slot, number) : LS_OK;
    return true;
}

static int32_t test_send(struct ls_transport *transport, struct ls_transfer *transfer)
{
    int32_t status = LS_OK;
    if (STAGE(transfer) == STAGE_UNPUBLISHED) {
        if (!local_slot_free(transport->shared, SEND_SLOT(transfer), transfer->send_number))
            return LS_AGAIN;
        status = offer(transport, transfer, transfer->memory);
        if (status)
            return status;
        STAGE(transfer) = STAGE_OFFERED;
    }
    if (!was_taken(transport, SEND_SLOT(transfer), transfer->send_number, &status))
        return LS_AGAIN;
    return status ? status : complete(transfer);
}

// What a transfer ends with for which no pass could begin.
static int32_t give_up(struct ls_transport *transport)
{
    return atomic_load(&transport->shared->aborted) ? local_leave(transport) : LS_PEER_LOST;
}

static int32_t take(struct ls_transport *transport, const struct ls_transfer *transfer)
{
    if (!local_pass_begin(transport, transfer))
        return give_up(transport);
    int32_t status = LS_OK;
    if (on_device(transport))
        status = local_device_take(transport, transfer);
    else
        memcpy(transfer->memory, RECEIVE_SLOT(transfer)->source, local_bytes_of(transfer));
    local_pass_end(transport);
    if (!status)
        consume(transport, transfer);
    return status;
}

static int32_t test_receive(struct ls_transport *transport, struct ls_transfer *transfer)
{
    struct local_slot *slot = RECEIVE_SLOT(transfer);
    int32_t status = LS_OK;
    if (STAGE(transfer) == STAGE_UNPUBLISHED) {
        if (!local_slot_free(transport->shared, slot, transfer->receive_number))
            return LS_AGAIN;
        want(transfer);
        STAGE(transfer) = STAGE_WAITING;
    }
    if (atomic_load(&slot->offered) != transfer->receive_number + 1)
        return LS_AGAIN;
    if (!offer_fits(transfer))
        return mismatch(transfer);
    if (slot->source) {
        if (AFTER_SLOT(transfer) &&
            !was_taken(transport, AFTER_SLOT(transfer), transfer->after, &status))
            return LS_AGAIN;
        if (!status)
            status = take(transport, transfer);
    } else {
        consume_quietly(transfer);
    }
    return status ? status : complete(transfer);
}

// Reads the offered message; writes the destination's memory too when `target` is not NULL.
static int32_t reduce(struct ls_transport *transport, const struct ls_transfer *transfer,
                      void *target)
{
    const struct local_kernels *kernels = transport->shared->kernels;
    const void *source = RECEIVE_SLOT(transfer)->source;
    const uint32_t dtype = transfer->dtype, reduction = transfer->reduction;
    if (on_device(transport))
        return local_device_take(transport, transfer);
    if (!target)
        kernels->reduce[dtype][reduction](transfer->memory, source, transfer->count);
    else if (target == source)
        kernels->reduce_both[dtype][reduction](transfer->memory, target, transfer->count);
    else
        kernels->reduce_to[dtype][reduction](transfer->memory, source, target, transfer->count);
    return LS_OK;
}

// One pass: reduces what was offered, and tells its source. LS_AGAIN: nothing was offered yet.
static int32_t take_and_reduce(struct ls_transport *transport, struct ls_transfer *transfer,
                               bool *push)
{
    struct local_slot *slot = RECEIVE_SLOT(transfer);
    if (atomic_load(&slot->offered) != transfer->receive_number + 1)
        return LS_AGAIN;
    if (!offer_fits(transfer))
        return mismatch(transfer);
    *push = *push && may_push(transport, transfer);
    if (!local_pass_begin(transport, transfer))
        return give_up(transport);
    const int32_t status = reduce(transport, transfer, *push ? SEND_SLOT(transfer)->target : NULL);
    local_pass_end(transport);
    if (status)
        return status;
    if (*push && transfer->source == transfer->destination)
        consume_quietly(transfer);
    else
        consume(transport, transfer);
    return LS_OK;
}

static int32_t test_receive_reduce(struct ls_transport *transport, struct ls_transfer *transfer)
{
    bool push = false;
    const int32_t status = take_and_reduce(transport, transfer, &push);
    return status ? status : complete(transfer);
}

static int32_t test_receive_reduce_send(struct ls_transport *transport,
                                        struct ls_transfer *transfer)
{
    if (STAGE(transfer) == STAGE_WAITING) {
        bool push = true;
        int32_t status = take_and_reduce(transport, transfer, &push);
        if (!status && push)
            status = offer(transport, transfer, NULL);
        if (status)
            return status;
        if (push)
            return complete(transfer);
        transfer->state = LS_TRANSFER_REDUCED;
        STAGE(transfer) = STAGE_UNPUBLISHED;
    }
    return test_send(transport, transfer);
}

// ---- The interface ----

static int32_t test_any(struct ls_transport *transport, struct ls_transfer *transfer)
{
    switch (transfer->kind) {
    case LS_TRANSFER_SEND: return test_send(transport, transfer);
    case LS_TRANSFER_RECEIVE: return test_receive(transport, transfer);
    case LS_TRANSFER_RECEIVE_REDUCE: return test_receive_reduce(transport, transfer);
    case LS_TRANSFER_RECEIVE_REDUCE_SEND: return test_receive_reduce_send(transport, transfer);
    default: return LS_OK;
    }
}

int32_t local_test(struct ls_transport *transport, struct ls_transfer *transfer)
{
    if (atomic_load_explicit(&transport->shared->aborted, memory_order_relaxed))
        return local_leave(transport);
    int32_t status = test_any(transport, transfer);
    if (status != LS_AGAIN || !local_peer_left(transport, transfer))
        return status;
    // What a peer did last, before it left, may have come after the first look.
    status = test_any(transport, transfer);
    return status == LS_AGAIN ? LS_PEER_LOST : status;
}

bool local_is_ready(const struct ls_transport *transport, const struct ls_transfer *transfer)
{
    const bool receives = transfer->kind != LS_TRANSFER_SEND && STAGE(transfer) == STAGE_WAITING;
    if (receives) {
        struct local_slot *slot = RECEIVE_SLOT(transfer);
        if (atomic_load(&slot->offered) != transfer->receive_number + 1)
            return false;
        return !slot->source || !AFTER_SLOT(transfer) ||
               local_reached(&AFTER_SLOT(transfer)->consumed, transfer->after);
    }
    if (STAGE(transfer) == STAGE_OFFERED)
        return local_reached(&SEND_SLOT(transfer)->consumed, transfer->send_number);
    if (transfer->kind == LS_TRANSFER_RECEIVE)
        return local_slot_free(transport->shared, RECEIVE_SLOT(transfer), transfer->receive_number);
    return local_slot_free(transport->shared, SEND_SLOT(transfer), transfer->send_number);
}

static int32_t post_without_peer(struct ls_transport *transport, struct ls_transfer *transfer)
{
    const struct local_kernels *kernels = transport->shared->kernels;
    if (on_device(transport)) {
        const int32_t status = local_device_alone(transport, transfer);
        return status ? status : complete(transfer);
    }
    if (transfer->kind == LS_TRANSFER_COPY)
        memcpy(transfer->memory, transfer->from, local_bytes_of(transfer));
    else if (transfer->kind == LS_TRANSFER_DIVIDE)
        kernels->divide[transfer->dtype](transfer->memory, transfer->count, transfer->divisor);
    else
        kernels->reduce[transfer->dtype][transfer->reduction](transfer->memory, transfer->from,
                                                              transfer->count);
    return complete(transfer);
}

// ---- Posting ----

static struct local_pair *find_pair(struct local_shared *shared, uint32_t source,
                                    uint32_t destination)
{
    _Atomic(struct local_pair *) *place =
        &shared->pairs[(uint64_t)source * shared->world + destination];
    struct local_pair *pair = atomic_load_explicit(place, memory_order_acquire);
    if (pair)
        return pair;
    struct local_pair *fresh = shared->host->allocate(shared->host, sizeof(*fresh), LOCAL_APART);
    if (fresh)
        memset(fresh, 0, sizeof(*fresh));
    if (!fresh || atomic_compare_exchange_strong(place, &pair, fresh))
        return fresh;
    shared->host->release(shared->host, fresh);
    return pair; // the peer was first
}

// The meeting place of two endpoints, set up where this is its first use, with what `transport`
// needs of it; NULL: no memory, or no events.
static struct local_pair *pair_get(struct ls_transport *transport, uint32_t source,
                                   uint32_t destination)
{
    struct local_pair *pair = find_pair(transport->shared, source, destination);
    const bool events = pair && transport->shared->places;
    if (events && local_device_open_events(transport, pair, source == transport->index))
        return NULL;
    return pair;
}

static struct local_slot *slot_get(struct ls_transport *transport, uint32_t source,
                                   uint32_t destination, uint64_t number)
{
    struct local_pair *pair = pair_get(transport, source, destination);
    return pair ? local_slot(transport->shared, pair, number) : NULL;
}

int32_t local_post(struct ls_transport *transport, struct ls_transfer *transfer)
{
    const uint32_t kind = transfer->kind, own = transport->index;
    if (kind >= LS_TRANSFER_REDUCE)
        return post_without_peer(transport, transfer);

    struct local_slot *receive = NULL, *send = NULL, *after = NULL;
    if (kind != LS_TRANSFER_SEND) {
        receive = slot_get(transport, transfer->source, own, transfer->receive_number);
        if (!receive)
            return LS_OUT_OF_MEMORY;
    }
    if (kind == LS_TRANSFER_SEND || kind == LS_TRANSFER_RECEIVE_REDUCE_SEND) {
        send = slot_get(transport, own, transfer->destination, transfer->send_number);
        if (!send)
            return LS_OUT_OF_MEMORY;
    }
    if (kind == LS_TRANSFER_RECEIVE && transfer->after != LS_TRANSFER_AT_ONCE) {
        after = slot_get(transport, own, transfer->source, transfer->after);
        if (!after)
            return LS_OUT_OF_MEMORY;
    }
    const bool publishes = kind == LS_TRANSFER_SEND || kind == LS_TRANSFER_RECEIVE;
    STAGE(transfer) = publishes ? STAGE_UNPUBLISHED : STAGE_WAITING;
    transfer->own[1] = (uintptr_t)receive;
    transfer->own[2] = (uintptr_t)send;
    transfer->own[3] = (uintptr_t)after;
    transfer->state = LS_TRANSFER_PENDING;

    // Publish at once, so that the peer sees it before this endpoint does anything else.
    const struct local_shared *shared = transport->shared;
    if (kind == LS_TRANSFER_SEND && local_slot_free(shared, send, transfer->send_number)) {
        const int32_t status = offer(transport, transfer, transfer->memory);
        if (status)
            return status;
        STAGE(transfer) = STAGE_OFFERED;
    } else if (kind == LS_TRANSFER_RECEIVE &&
               local_slot_free(shared, receive, transfer->receive_number)) {
        want(transfer);
        STAGE(transfer) = STAGE_WAITING;
    }
    return LS_OK;
}
