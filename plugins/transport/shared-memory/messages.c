// SPDX-License-Identifier: Apache-2.0
// A transfer from post to its end: what its two sides write into their slot, and what each looks
// for in it.
#include "plugins/transport/shared-memory/shared_memory.h"

#include <string.h>

// ---- Memory that another process can touch ----

static bool together(const struct shm_shared *shared, uint32_t a, uint32_t b)
{
    return shared->process_of[a] == shared->process_of[b];
}

// How `peer` names memory of this endpoint; SHM_NOWHERE: not at all.
static uint64_t where_is(const struct ls_transport *transport, const void *memory, uint64_t bytes,
                         uint32_t peer)
{
    const struct shm_shared *shared = transport->shared;
    const struct shm_process *self = &shared->processes[shared->self];
    if (together(shared, transport->index, peer))
        return (uintptr_t)memory;
    if (!bytes)
        return 0;
    const uintptr_t address = (uintptr_t)memory, base = (uintptr_t)self->segment;
    const bool inside = base && address >= base && address - base < self->card.segment_bytes &&
                        bytes <= self->card.segment_bytes - (address - base);
    return inside ? address - base : SHM_NOWHERE;
}

// Memory of `peer` by the name that it gave; NULL: it cannot be there.
static void *memory_of(const struct ls_transport *transport, uint32_t peer, uint64_t where,
                       uint64_t bytes)
{
    const struct shm_shared *shared = transport->shared;
    const struct shm_process *process = &shared->processes[shared->process_of[peer]];
    if (!bytes)
        return process->arena; // anything
    if (together(shared, transport->index, peer))
        return (void *)(uintptr_t)where;
    const bool inside = process->segment && where <= process->card.segment_bytes &&
                        bytes <= process->card.segment_bytes - where;
    return inside ? process->segment + where : NULL;
}

static int32_t nonsense(const struct ls_transport *transport, uint32_t peer)
{
    return ls_host_fail(
        transport->shared->host, LS_FAILED,
        "endpoint %u has written nonsense into shared memory; its process went wrong", peer);
}

// ---- Pieces ----

static uint64_t pieces_of(uint64_t bytes)
{
    return (bytes + SHM_PIECE_BYTES - 1) / SHM_PIECE_BYTES;
}

static uint64_t piece_bytes(uint64_t bytes, uint64_t piece)
{
    const uint64_t left = bytes - piece * SHM_PIECE_BYTES;
    return left < SHM_PIECE_BYTES ? left : SHM_PIECE_BYTES;
}

// There are always some left: each message under way has at most SHM_PIECES.
static uint32_t take_piece(struct ls_transport *transport)
{
    return transport->free_count ? transport->free[--transport->free_count] : transport->fresh++;
}

// The time, where the copies of a message are measured.
static uint64_t measure(const struct ls_transport *transport, const struct shm_slot *slot)
{
    const struct ls_host *host = transport->shared->host;
    return slot->copies == SHM_SHORT ? 0 : host->clock_ns(host);
}

// Copies the next pieces of a message for which there is room. True: the receiver can go on.
static bool stage(struct ls_transport *transport, struct ls_transfer *transfer)
{
    struct shm_slot *slot = SHM_SEND_SLOT(transfer);
    const uint64_t first = slot->where, bytes = slot->bytes, end = first + pieces_of(bytes);
    uint64_t staged = atomic_load_explicit(&slot->staged, memory_order_relaxed);
    const uint64_t before = staged;
    uint64_t copied_ns = atomic_load_explicit(&slot->copied_ns, memory_order_relaxed);
    for (; staged < end && staged - atomic_load(&slot->taken) < SHM_PIECES; staged++) {
        const uint64_t piece = staged - first;
        uint32_t *id = &slot->pieces[piece % SHM_PIECES];
        if (piece < SHM_PIECES) {
            *id = take_piece(transport);
            slot->held++;
        }
        const char *from = (const char *)transfer->memory + piece * SHM_PIECE_BYTES;
        const uint64_t begin = measure(transport, slot);
        shm_copy(transport->shared->pieces[transport->index] + *id * SHM_PIECE_BYTES, from,
                 piece_bytes(bytes, piece), slot->copies == SHM_PAST);
        copied_ns += measure(transport, slot) - begin;
        atomic_store_explicit(&slot->copied_ns, copied_ns, memory_order_relaxed);
        atomic_store(&slot->staged, staged + 1);
        if (piece == 0)
            return true; // the receiver begins while the next is copied
        shm_wake(transport->shared, transfer->destination);
    }
    return staged > before;
}

static bool can_stage(const struct ls_transfer *transfer)
{
    struct shm_slot *slot = SHM_SEND_SLOT(transfer);
    const uint64_t staged = atomic_load_explicit(&slot->staged, memory_order_relaxed);
    return slot->way == SHM_STAGED && staged < slot->where + pieces_of(slot->bytes) &&
           staged - atomic_load(&slot->taken) < SHM_PIECES;
}

// Those of the last message in the slot, which was consumed. A message that is tested late finds
// its slot used again, and its pieces given back by then.
static void give_pieces_back(struct ls_transport *transport, struct shm_slot *slot)
{
    const uint32_t most = transport->shared->piece_count;
    for (uint32_t i = 0; i < slot->held && i < SHM_PIECES; i++)
        if (slot->pieces[i] < most && transport->free_count < most)
            transport->free[transport->free_count++] = slot->pieces[i];
    slot->held = 0;
}

// ---- Halves of a slot ----

static void publish_offer(struct ls_transport *transport, const struct ls_transfer *transfer)
{
    atomic_store(&SHM_SEND_SLOT(transfer)->offered, transfer->send_number + 1);
    shm_wake(transport->shared, transfer->destination);
}

static void fill_offer(const struct ls_transfer *transfer, enum shm_way way, uint64_t where)
{
    struct shm_slot *slot = SHM_SEND_SLOT(transfer);
    slot->way = way;
    slot->where = where;
    slot->bytes = shm_bytes_of(transfer);
    slot->signature = transfer->signature;
}

static void offer(struct ls_transport *transport, struct ls_transfer *transfer)
{
    const uint64_t bytes = shm_bytes_of(transfer);
    const uint64_t where = where_is(transport, transfer->memory, bytes, transfer->destination);
    SHM_STAGE(transfer) = SHM_OFFERED;
    give_pieces_back(transport, SHM_SEND_SLOT(transfer));
    if (where != SHM_NOWHERE) {
        fill_offer(transfer, SHM_PULL, where);
    } else {
        struct shm_slot *slot = SHM_SEND_SLOT(transfer);
        fill_offer(transfer, SHM_STAGED, atomic_load_explicit(&slot->staged, memory_order_relaxed));
        slot->copies = shm_choose_copies(transport, transfer->destination, bytes);
        atomic_store_explicit(&slot->copied_ns, 0, memory_order_relaxed);
        (void)stage(transport, transfer);
    }
    publish_offer(transport, transfer);
}

static void want(const struct ls_transport *transport, const struct ls_transfer *transfer)
{
    struct shm_slot *slot = SHM_RECEIVE_SLOT(transfer);
    slot->target_bytes = shm_bytes_of(transfer);
    slot->target = where_is(transport, transfer->memory, slot->target_bytes, transfer->source);
    slot->target_signature = transfer->signature;
    slot->after = transfer->after;
    // Nobody waits for this: a sender that finds nothing wanted offers its memory instead.
    atomic_store_explicit(&slot->wanted, transfer->receive_number + 1, memory_order_release);
}

static void consume(struct ls_transport *transport, const struct ls_transfer *transfer)
{
    atomic_store(&SHM_RECEIVE_SLOT(transfer)->consumed, transfer->receive_number + 1);
    shm_wake(transport->shared, transfer->source);
}

// The same without the fence that waking needs, which costs as much as a message: where the source
// is told of something else right after, or waits for nothing but a free slot (see
// WINDOW_POLL_NS).
static void consume_quietly(const struct ls_transfer *transfer)
{
    atomic_store_explicit(&SHM_RECEIVE_SLOT(transfer)->consumed, transfer->receive_number + 1,
                          memory_order_release);
}

static bool offer_fits(const struct ls_transfer *transfer)
{
    const struct shm_slot *slot = SHM_RECEIVE_SLOT(transfer);
    return slot->bytes == shm_bytes_of(transfer) && slot->signature == transfer->signature;
}

// Where the result of a receive-reduce-and-send may be written at once, at its destination, while
// the message that is reduced is read; NULL: nowhere. The last condition is the rule of `after`:
// the destination still lets us read the very memory that it wants written, and the pass does so
// element by element.
static void *push_target(const struct ls_transport *transport, const struct ls_transfer *transfer)
{
    struct shm_slot *slot = SHM_SEND_SLOT(transfer);
    const struct shm_slot *from = SHM_RECEIVE_SLOT(transfer);
    const uint64_t bytes = shm_bytes_of(transfer);
    if (from->way != SHM_PULL ||
        atomic_load_explicit(&slot->wanted, memory_order_acquire) != transfer->send_number + 1 ||
        slot->target_bytes != bytes || slot->target_signature != transfer->signature ||
        slot->target == SHM_NOWHERE)
        return NULL;
    if (slot->after != LS_TRANSFER_AT_ONCE &&
        (transfer->source != transfer->destination || slot->after != transfer->receive_number ||
         slot->target != from->where))
        return NULL;
    return memory_of(transport, transfer->destination, slot->target, bytes);
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

static int32_t test_send(struct ls_transport *transport, struct ls_transfer *transfer)
{
    struct shm_slot *slot = SHM_SEND_SLOT(transfer);
    if (SHM_STAGE(transfer) == SHM_UNPUBLISHED) {
        if (!shm_slot_free(slot, transfer->send_number))
            return LS_AGAIN;
        offer(transport, transfer);
    }
    if (!shm_reached(&slot->consumed, transfer->send_number)) { // else the slot is free for others
        if (slot->way == SHM_STAGED && stage(transport, transfer))
            shm_wake(transport->shared, transfer->destination);
        return LS_AGAIN;
    }
    if (atomic_load_explicit(&slot->offered, memory_order_relaxed) == transfer->send_number + 1)
        give_pieces_back(transport, slot);
    return complete(transfer);
}

// What a transfer ends with for which no pass could begin.
static int32_t give_up(struct ls_transport *transport)
{
    return atomic_load(&transport->shared->header->aborted) ? shm_leave(transport) : LS_PEER_LOST;
}

// memory = memory (+) source, or memory = source.
static void combine(const struct ls_transport *transport, const struct ls_transfer *transfer,
                    void *memory, const void *source, uint64_t bytes, bool past_caches)
{
    const struct local_kernels *kernels = transport->shared->kernels;
    if (transfer->kind == LS_TRANSFER_RECEIVE)
        shm_copy(memory, source, bytes, past_caches);
    else
        kernels->reduce[transfer->dtype][transfer->reduction](
            memory, source, bytes / ls_dtype_bytes(transfer->dtype));
}

// Takes out the pieces that are there. LS_AGAIN: more will come.
static int32_t take_pieces(struct ls_transport *transport, const struct ls_transfer *transfer)
{
    struct shm_slot *slot = SHM_RECEIVE_SLOT(transfer);
    const struct shm_shared *shared = transport->shared;
    const uint64_t bytes = shm_bytes_of(transfer), first = slot->where;
    const uint64_t end = first + pieces_of(bytes);
    uint64_t taken = atomic_load_explicit(&slot->taken, memory_order_relaxed);
    while (taken < end && atomic_load(&slot->staged) > taken) {
        const uint64_t piece = taken - first;
        const uint32_t id = slot->pieces[piece % SHM_PIECES];
        if (taken < first || id >= shared->piece_count)
            return nonsense(transport, transfer->source);
        const uint64_t begin = measure(transport, slot);
        combine(transport, transfer, (char *)transfer->memory + piece * SHM_PIECE_BYTES,
                shared->pieces[transfer->source] + id * SHM_PIECE_BYTES, piece_bytes(bytes, piece),
                slot->copies == SHM_PAST);
        slot->taken_ns = (piece ? slot->taken_ns : 0) + measure(transport, slot) - begin;
        if (taken + 1 == end)
            shm_note_copies(transport, transfer);
        atomic_store(&slot->taken, ++taken);
        if (taken < end)
            shm_wake(shared, transfer->source);
    }
    return taken < end ? LS_AGAIN : LS_OK;
}

// Reads the memory that was offered; writes the destination's memory too when `target` is not NULL.
static int32_t take(struct ls_transport *transport, const struct ls_transfer *transfer,
                    void *target)
{
    const struct local_kernels *kernels = transport->shared->kernels;
    const struct shm_slot *slot = SHM_RECEIVE_SLOT(transfer);
    const uint64_t bytes = shm_bytes_of(transfer);
    if (slot->way == SHM_STAGED)
        return take_pieces(transport, transfer);
    void *source = memory_of(transport, transfer->source, slot->where, bytes);
    if (!source)
        return nonsense(transport, transfer->source);
    if (!shm_pass_begin(transport, transfer))
        return give_up(transport);
    if (!target)
        combine(transport, transfer, transfer->memory, source, bytes, shm_is_long(transport));
    else if (target == source)
        kernels->reduce_both[transfer->dtype][transfer->reduction](transfer->memory, target,
                                                                   transfer->count);
    else
        kernels->reduce_to[transfer->dtype][transfer->reduction](transfer->memory, source, target,
                                                                 transfer->count);
    shm_pass_end(transport);
    return LS_OK;
}

static int32_t test_receive(struct ls_transport *transport, struct ls_transfer *transfer)
{
    struct shm_slot *slot = SHM_RECEIVE_SLOT(transfer);
    if (SHM_STAGE(transfer) == SHM_UNPUBLISHED) {
        if (!shm_slot_free(slot, transfer->receive_number))
            return LS_AGAIN;
        want(transport, transfer);
        SHM_STAGE(transfer) = SHM_WAITING;
    }
    if (atomic_load(&slot->offered) != transfer->receive_number + 1)
        return LS_AGAIN;
    if (!offer_fits(transfer))
        return mismatch(transfer);
    if (slot->way == SHM_PUSHED) {
        consume_quietly(transfer);
        return complete(transfer);
    }
    if (SHM_AFTER_SLOT(transfer) &&
        !shm_reached(&SHM_AFTER_SLOT(transfer)->consumed, transfer->after))
        return LS_AGAIN;
    const int32_t status = take(transport, transfer, NULL);
    if (status)
        return status;
    consume(transport, transfer);
    return complete(transfer);
}

// One pass: reduces what was offered, and tells its source. LS_AGAIN: not all of it was offered
// yet. `pushed`: the result is also where its destination wants it; NULL: that is not asked for.
static int32_t take_and_reduce(struct ls_transport *transport, struct ls_transfer *transfer,
                               bool *pushed)
{
    struct shm_slot *slot = SHM_RECEIVE_SLOT(transfer);
    if (atomic_load(&slot->offered) != transfer->receive_number + 1)
        return LS_AGAIN;
    if (!offer_fits(transfer))
        return mismatch(transfer);
    void *target = pushed ? push_target(transport, transfer) : NULL;
    const int32_t status = take(transport, transfer, target);
    if (status)
        return status;
    if (pushed)
        *pushed = target != NULL;
    if (target && transfer->source == transfer->destination)
        consume_quietly(transfer);
    else
        consume(transport, transfer);
    return LS_OK;
}

static int32_t test_receive_reduce(struct ls_transport *transport, struct ls_transfer *transfer)
{
    const int32_t status = take_and_reduce(transport, transfer, NULL);
    return status ? status : complete(transfer);
}

static int32_t test_receive_reduce_send(struct ls_transport *transport,
                                        struct ls_transfer *transfer)
{
    if (SHM_STAGE(transfer) == SHM_WAITING) {
        bool pushed = false;
        const int32_t status = take_and_reduce(transport, transfer, &pushed);
        if (status)
            return status;
        if (pushed) {
            fill_offer(transfer, SHM_PUSHED, 0);
            publish_offer(transport, transfer);
            return complete(transfer);
        }
        transfer->state = LS_TRANSFER_REDUCED;
        SHM_STAGE(transfer) = SHM_UNPUBLISHED;
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

int32_t shm_test(struct ls_transport *transport, struct ls_transfer *transfer)
{
    if (atomic_load_explicit(&transport->shared->header->aborted, memory_order_relaxed))
        return shm_leave(transport);
    int32_t status = test_any(transport, transfer);
    // What a peer did last, before it left, may have come after the first look.
    const bool left = status == LS_AGAIN && shm_peer_left(transport, transfer);
    if (left)
        status = test_any(transport, transfer);
    if (status == LS_OK)
        transport->under_way -= shm_bytes_of(transfer);
    return status == LS_AGAIN && left ? LS_PEER_LOST : status;
}

static bool can_receive(const struct ls_transfer *transfer)
{
    struct shm_slot *slot = SHM_RECEIVE_SLOT(transfer);
    if (atomic_load(&slot->offered) != transfer->receive_number + 1)
        return false;
    if (slot->way != SHM_PUSHED && SHM_AFTER_SLOT(transfer) &&
        !shm_reached(&SHM_AFTER_SLOT(transfer)->consumed, transfer->after))
        return false;
    return slot->way != SHM_STAGED || !offer_fits(transfer) ||
           atomic_load(&slot->staged) > atomic_load_explicit(&slot->taken, memory_order_relaxed);
}

bool shm_is_ready(const struct ls_transport *transport, const struct ls_transfer *transfer)
{
    (void)transport;
    const bool receives = transfer->kind != LS_TRANSFER_SEND;
    if (receives && SHM_STAGE(transfer) == SHM_WAITING)
        return can_receive(transfer);
    if (SHM_STAGE(transfer) == SHM_OFFERED)
        return shm_reached(&SHM_SEND_SLOT(transfer)->consumed, transfer->send_number) ||
               can_stage(transfer);
    if (transfer->kind == LS_TRANSFER_RECEIVE)
        return shm_slot_free(SHM_RECEIVE_SLOT(transfer), transfer->receive_number);
    return shm_slot_free(SHM_SEND_SLOT(transfer), transfer->send_number);
}

static int32_t post_without_peer(struct ls_transport *transport, struct ls_transfer *transfer)
{
    const struct local_kernels *kernels = transport->shared->kernels;
    if (transfer->kind == LS_TRANSFER_COPY)
        memcpy(transfer->memory, transfer->from, shm_bytes_of(transfer));
    else if (transfer->kind == LS_TRANSFER_DIVIDE)
        kernels->divide[transfer->dtype](transfer->memory, transfer->count, transfer->divisor);
    else
        kernels->reduce[transfer->dtype][transfer->reduction](transfer->memory, transfer->from,
                                                              transfer->count);
    return complete(transfer);
}

int32_t shm_post(struct ls_transport *transport, struct ls_transfer *transfer)
{
    const struct shm_shared *shared = transport->shared;
    const uint32_t kind = transfer->kind, own = transport->index;
    if (kind >= LS_TRANSFER_REDUCE)
        return post_without_peer(transport, transfer);

    struct shm_slot *receive = NULL, *send = NULL, *after = NULL;
    if (kind != LS_TRANSFER_SEND)
        receive = shm_slot(shared, transfer->source, own, transfer->receive_number);
    if (kind == LS_TRANSFER_SEND || kind == LS_TRANSFER_RECEIVE_REDUCE_SEND)
        send = shm_slot(shared, own, transfer->destination, transfer->send_number);
    if (kind == LS_TRANSFER_RECEIVE && transfer->after != LS_TRANSFER_AT_ONCE)
        after = shm_slot(shared, own, transfer->source, transfer->after);
    const bool publishes = kind == LS_TRANSFER_SEND || kind == LS_TRANSFER_RECEIVE;
    SHM_STAGE(transfer) = publishes ? SHM_UNPUBLISHED : SHM_WAITING;
    transfer->own[1] = (uintptr_t)receive;
    transfer->own[2] = (uintptr_t)send;
    transfer->own[3] = (uintptr_t)after;
    transfer->state = LS_TRANSFER_PENDING;
    transport->under_way += shm_bytes_of(transfer);

    // Publish at once, so that the peer sees it before this endpoint does anything else.
    if (kind == LS_TRANSFER_SEND && shm_slot_free(send, transfer->send_number)) {
        offer(transport, transfer);
    } else if (kind == LS_TRANSFER_RECEIVE && shm_slot_free(receive, transfer->receive_number)) {
        want(transport, transfer);
        SHM_STAGE(transfer) = SHM_WAITING;
    }
    return LS_OK;
}
