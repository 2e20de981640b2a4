// SPDX-License-Identifier: Apache-2.0
// Transport between threads of one process. Nothing is staged: the receiver reads, and reduces, straight
// from the sender's memory; and a receive-reduce-and-send writes its result straight to where the next
// receiver wants it, in the same pass. The meeting place is described in mailbox.h.
#define _GNU_SOURCE
#include "plugins/transport/local/kernels.h"
#include "plugins/transport/local/mailbox.h"

#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// A wait first spins, for about 100 us where each rank can have a core, because a peer on another core is soon done
// with its share; else hardly. Then it yields, which costs little where the peer needs this very core; then
// it sleeps.
#define SPINS_OWN_CORE 4000
#define SPINS_SHARED_CORE 20
#define YIELDS 500

// A sleeper looks this often by itself, because the end of a pushed message, which frees a slot of the window, wakes
// nobody. Only what is a whole window ahead of its peer ever waits for that.
#define WINDOW_GLANCE_NS UINT64_C(1000000)

enum stage {
    STAGE_UNPUBLISHED = 0,
    STAGE_WAITING = 1, // for the peer's half of the slot
    STAGE_REDUCED = 2, // result not yet offered
    STAGE_OFFERED = 3, // until it is consumed
};

// What a transfer keeps while it is pending, in `own`.
#define STAGE(transfer) ((transfer)->own[0])
#define RECEIVE_SLOT(transfer) ((struct local_slot *)(uintptr_t)(transfer)->own[1])
#define SEND_SLOT(transfer) ((struct local_slot *)(uintptr_t)(transfer)->own[2])
#define AFTER_SLOT(transfer) ((struct local_slot *)(uintptr_t)(transfer)->own[3])

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t bytes_of(const struct ls_transfer *transfer)
{
    return transfer->count * ls_dtype_bytes(transfer->dtype);
}

// ---- Waking and leaving ----

void local_wake(struct local_endpoint *endpoint)
{
    if (!atomic_load(&endpoint->sleeping) || !atomic_exchange(&endpoint->sleeping, 0))
        return;
    atomic_fetch_add(&endpoint->wakes, 1);
    syscall(SYS_futex, &endpoint->wakes, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void wake(struct ls_transport *transport, uint32_t peer)
{
    local_wake(&transport->shared->endpoints[peer]);
}

// Returns LS_ABORTED when no peer is inside a pass any more, so that memory may be freed.
static int32_t leave(struct ls_transport *transport)
{
    struct local_shared *shared = transport->shared;
    for (uint32_t i = 0; i < shared->world; i++)
        while (i != transport->index && atomic_load(&shared->endpoints[i].active))
            sched_yield();
    return LS_ABORTED;
}

// Whether a peer of the transfer has left for good. Which one is looked up only when any has.
static bool peer_left(const struct ls_transport *transport, const struct ls_transfer *transfer)
{
    const struct local_shared *shared = transport->shared;
    if (!atomic_load(&shared->closings))
        return false;
    const bool receives = transfer->kind != LS_TRANSFER_SEND;
    const bool sends = !receives || transfer->kind == LS_TRANSFER_RECEIVE_REDUCE_SEND;
    return (receives && atomic_load(&shared->endpoints[transfer->source].closed)) ||
           (sends && atomic_load(&shared->endpoints[transfer->destination].closed));
}

// A pass over memory of others stands between these two, so that leave() can wait for its end. False: after an abort, or
// when a peer has left.
static bool pass_begin(struct ls_transport *transport, const struct ls_transfer *transfer)
{
    struct local_endpoint *own = &transport->shared->endpoints[transport->index];
    atomic_store(&own->active, 1);
    if (!atomic_load(&transport->shared->aborted) && !peer_left(transport, transfer))
        return true;
    atomic_store_explicit(&own->active, 0, memory_order_release);
    return false;
}

// What a transfer ends with for which no pass could begin.
static int32_t give_up(struct ls_transport *transport)
{
    return atomic_load(&transport->shared->aborted) ? leave(transport) : LS_PEER_LOST;
}

static void pass_end(struct ls_transport *transport)
{
    struct local_endpoint *own = &transport->shared->endpoints[transport->index];
    atomic_store_explicit(&own->active, 0, memory_order_release);
}

// ---- Halves of a slot ----

static void offer(struct ls_transport *transport, const struct ls_transfer *transfer,
                  const void *source)
{
    struct local_slot *slot = SEND_SLOT(transfer);
    slot->source = source;
    slot->source_bytes = bytes_of(transfer);
    slot->source_signature = transfer->signature;
    atomic_store(&slot->offered, transfer->send_number + 1);
    wake(transport, transfer->destination);
}

static void want(const struct ls_transfer *transfer)
{
    struct local_slot *slot = RECEIVE_SLOT(transfer);
    slot->target = transfer->memory;
    slot->target_bytes = bytes_of(transfer);
    slot->target_signature = transfer->signature;
    slot->after = transfer->after;
    // Nobody waits for this: a sender that finds nothing wanted offers its memory instead.
    atomic_store_explicit(&slot->wanted, transfer->receive_number + 1, memory_order_release);
}

static void consume(struct ls_transport *transport, const struct ls_transfer *transfer)
{
    atomic_store(&RECEIVE_SLOT(transfer)->consumed, transfer->receive_number + 1);
    wake(transport, transfer->source);
}

// The same without the fence that waking needs, which costs as much as a message: where the source is
// told of something else right after, or waits for nothing but a free slot (see WINDOW_GLANCE_NS).
static void consume_quietly(const struct ls_transfer *transfer)
{
    atomic_store_explicit(&RECEIVE_SLOT(transfer)->consumed, transfer->receive_number + 1,
                          memory_order_release);
}

static bool offer_fits(const struct ls_transfer *transfer)
{
    const struct local_slot *slot = RECEIVE_SLOT(transfer);
    return slot->source_bytes == bytes_of(transfer) &&
           slot->source_signature == transfer->signature;
}

// Whether the result of a receive-reduce-and-send may be written straight to the destination while the
// message that is reduced is read. The last line is the rule of `after`: the destination still lets us
// read the very memory that it wants written, and the pass does so element by element.
static bool may_push(const struct ls_transfer *transfer)
{
    struct local_slot *slot = SEND_SLOT(transfer);
    if (atomic_load_explicit(&slot->wanted, memory_order_acquire) != transfer->send_number + 1 ||
        slot->target_bytes != bytes_of(transfer) || slot->target_signature != transfer->signature)
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

static int32_t test_send(struct ls_transport *transport, struct ls_transfer *transfer)
{
    if (STAGE(transfer) == STAGE_UNPUBLISHED) {
        if (!local_slot_free(SEND_SLOT(transfer), transfer->send_number))
            return LS_AGAIN;
        offer(transport, transfer, transfer->memory);
        STAGE(transfer) = STAGE_OFFERED;
    }
    if (!local_reached(&SEND_SLOT(transfer)->consumed, transfer->send_number))
        return LS_AGAIN;
    return complete(transfer);
}

static int32_t test_receive(struct ls_transport *transport, struct ls_transfer *transfer)
{
    struct local_slot *slot = RECEIVE_SLOT(transfer);
    if (STAGE(transfer) == STAGE_UNPUBLISHED) {
        if (!local_slot_free(slot, transfer->receive_number))
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
            !local_reached(&AFTER_SLOT(transfer)->consumed, transfer->after))
            return LS_AGAIN;
        if (!pass_begin(transport, transfer))
            return give_up(transport);
        memcpy(transfer->memory, slot->source, bytes_of(transfer));
        pass_end(transport);
        consume(transport, transfer);
    } else {
        consume_quietly(transfer);
    }
    return complete(transfer);
}

// Reads the offered message; writes the destination's memory too when `target` is not NULL.
static void reduce(struct ls_transport *transport, const struct ls_transfer *transfer, void *target)
{
    const struct local_kernels *kernels = transport->shared->kernels;
    const void *source = RECEIVE_SLOT(transfer)->source;
    const uint32_t dtype = transfer->dtype, reduction = transfer->reduction;
    if (!target)
        kernels->reduce[dtype][reduction](transfer->memory, source, transfer->count);
    else if (target == source)
        kernels->reduce_both[dtype][reduction](transfer->memory, target, transfer->count);
    else
        kernels->reduce_to[dtype][reduction](transfer->memory, source, target, transfer->count);
}

static int32_t test_receive_reduce(struct ls_transport *transport, struct ls_transfer *transfer)
{
    struct local_slot *slot = RECEIVE_SLOT(transfer);
    if (atomic_load(&slot->offered) != transfer->receive_number + 1)
        return LS_AGAIN;
    if (!offer_fits(transfer))
        return mismatch(transfer);
    if (!pass_begin(transport, transfer))
        return give_up(transport);
    reduce(transport, transfer, NULL);
    pass_end(transport);
    consume(transport, transfer);
    return complete(transfer);
}

static int32_t test_receive_reduce_send(struct ls_transport *transport,
                                        struct ls_transfer *transfer)
{
    if (STAGE(transfer) == STAGE_WAITING) {
        struct local_slot *slot = RECEIVE_SLOT(transfer);
        if (atomic_load(&slot->offered) != transfer->receive_number + 1)
            return LS_AGAIN;
        if (!offer_fits(transfer))
            return mismatch(transfer);
        const bool push = may_push(transfer);
        if (!pass_begin(transport, transfer))
            return give_up(transport);
        reduce(transport, transfer, push ? SEND_SLOT(transfer)->target : NULL);
        pass_end(transport);
        if (push && transfer->source == transfer->destination)
            consume_quietly(transfer);
        else
            consume(transport, transfer);
        if (push) {
            offer(transport, transfer, NULL);
            return complete(transfer);
        }
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

static int32_t local_test(struct ls_transport *transport, struct ls_transfer *transfer)
{
    if (atomic_load_explicit(&transport->shared->aborted, memory_order_relaxed))
        return leave(transport);
    const int32_t status = test_any(transport, transfer);
    return status == LS_AGAIN && peer_left(transport, transfer) ? LS_PEER_LOST : status;
}

// Whether local_test() would move the transfer on.
static bool is_ready(const struct ls_transfer *transfer)
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
        return local_slot_free(RECEIVE_SLOT(transfer), transfer->receive_number);
    return local_slot_free(SEND_SLOT(transfer), transfer->send_number);
}

static int32_t post_without_peer(struct ls_transport *transport, struct ls_transfer *transfer)
{
    const struct local_kernels *kernels = transport->shared->kernels;
    if (transfer->kind == LS_TRANSFER_COPY)
        memcpy(transfer->memory, transfer->from, bytes_of(transfer));
    else if (transfer->kind == LS_TRANSFER_DIVIDE)
        kernels->divide[transfer->dtype](transfer->memory, transfer->count, transfer->divisor);
    else
        kernels->reduce[transfer->dtype][transfer->reduction](transfer->memory, transfer->from,
                                                              transfer->count);
    return complete(transfer);
}

static struct local_slot *slot_get(struct ls_transport *transport, uint32_t source,
                                   uint32_t destination, uint64_t number)
{
    struct local_pair *pair = local_pair_get(transport->shared, source, destination);
    return pair ? local_slot(pair, number) : NULL;
}

static int32_t local_post(struct ls_transport *transport, struct ls_transfer *transfer)
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
    if (kind == LS_TRANSFER_SEND && local_slot_free(send, transfer->send_number)) {
        offer(transport, transfer, transfer->memory);
        STAGE(transfer) = STAGE_OFFERED;
    } else if (kind == LS_TRANSFER_RECEIVE && local_slot_free(receive, transfer->receive_number)) {
        want(transfer);
        STAGE(transfer) = STAGE_WAITING;
    }
    return LS_OK;
}

static bool any_ready(struct ls_transport *transport, struct ls_transfer *const *transfers,
                      uint64_t count)
{
    if (atomic_load(&transport->shared->aborted))
        return true;
    for (uint64_t i = 0; i < count; i++)
        if (is_ready(transfers[i]) || peer_left(transport, transfers[i]))
            return true;
    return false;
}

static bool any_waits_for_window(struct ls_transfer *const *transfers, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (STAGE(transfers[i]) == STAGE_UNPUBLISHED)
            return true;
    return false;
}

static void sleep_once(struct ls_transport *transport, struct ls_transfer *const *transfers,
                       uint64_t count, uint64_t timeout_ns)
{
    struct local_endpoint *own = &transport->shared->endpoints[transport->index];
    if (timeout_ns > WINDOW_GLANCE_NS && any_waits_for_window(transfers, count))
        timeout_ns = WINDOW_GLANCE_NS;
    const struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / UINT64_C(1000000000)),
                                     .tv_nsec = (long)(timeout_ns % UINT64_C(1000000000))};
    const uint32_t seen = atomic_load(&own->wakes);
    atomic_store(&own->sleeping, 1);
    if (!any_ready(transport, transfers, count))
        syscall(SYS_futex, &own->wakes, FUTEX_WAIT_PRIVATE, seen, &timeout, NULL, 0);
    atomic_store(&own->sleeping, 0);
}

static int32_t local_wait_any(struct ls_transport *transport, struct ls_transfer *const *transfers,
                              uint64_t count, uint64_t timeout_ns)
{
    struct local_shared *shared = transport->shared;
    bool ready = any_ready(transport, transfers, count);
    for (uint32_t i = 0; !ready && i < shared->spins; i++) {
        relax();
        ready = any_ready(transport, transfers, count);
    }
    for (uint32_t i = 0; !ready && timeout_ns && i < YIELDS; i++) {
        sched_yield();
        ready = any_ready(transport, transfers, count);
    }
    if (!ready && timeout_ns) {
        const uint64_t begin = shared->host->clock_ns(shared->host);
        for (uint64_t waited = 0; !ready && waited < timeout_ns;) {
            sleep_once(transport, transfers, count, timeout_ns - waited);
            ready = any_ready(transport, transfers, count);
            waited = shared->host->clock_ns(shared->host) - begin;
        }
    }
    if (atomic_load(&shared->aborted))
        return leave(transport);
    return ready ? LS_OK : LS_AGAIN;
}

static void wake_all(struct local_shared *shared)
{
    for (uint32_t i = 0; i < shared->world; i++)
        local_wake(&shared->endpoints[i]);
}

static void local_abort(struct ls_transport *transport)
{
    atomic_store(&transport->shared->aborted, 1);
    wake_all(transport->shared);
}

static int32_t local_peer_state(struct ls_transport *transport, uint32_t peer)
{
    struct local_shared *shared = transport->shared;
    if (atomic_load(&shared->aborted))
        return LS_ABORTED;
    return peer < shared->world && !atomic_load(&shared->endpoints[peer].closed) ? LS_OK
                                                                                 : LS_PEER_LOST;
}

// ---- Opening and closing ----

static void *allocate(const struct ls_host *host, uint64_t bytes)
{
    void *memory = host->allocate(host, bytes, LOCAL_LINE);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

struct local_pair *local_pair_get(struct local_shared *shared, uint32_t source,
                                  uint32_t destination)
{
    _Atomic(struct local_pair *) *place =
        &shared->pairs[(uint64_t)source * shared->world + destination];
    struct local_pair *pair = atomic_load_explicit(place, memory_order_acquire);
    if (pair)
        return pair;
    struct local_pair *fresh = allocate(shared->host, sizeof(*fresh));
    if (!fresh || atomic_compare_exchange_strong(place, &pair, fresh))
        return fresh;
    shared->host->release(shared->host, fresh);
    return pair; // the peer was first
}

static void shared_destroy(struct local_shared *shared)
{
    const struct ls_host *host = shared->host;
    const uint64_t pairs = shared->pairs ? (uint64_t)shared->world * shared->world : 0;
    for (uint64_t i = 0; i < pairs; i++)
        host->release(host, atomic_load(&shared->pairs[i]));
    host->release(host, shared->pairs);
    host->release(host, shared->endpoints);
    host->release(host, shared);
}

static const struct local_kernels *best_kernels(void)
{
#if defined(LOCAL_X86_VARIANTS)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return &local_kernels_avx512;
    if (__builtin_cpu_supports("avx2"))
        return &local_kernels_avx2;
#endif
    return &local_kernels_plain;
}

static struct local_shared *shared_create(const struct ls_host *host, uint32_t world)
{
    struct local_shared *shared = allocate(host, sizeof(*shared));
    if (!shared)
        return NULL;
    shared->host = host;
    shared->world = world;
    shared->kernels = best_kernels();
    cpu_set_t cores;
    const bool known = sched_getaffinity(0, sizeof(cores), &cores) == 0;
    const uint32_t available = known ? (uint32_t)CPU_COUNT(&cores) : 1;
    shared->spins = world <= available ? SPINS_OWN_CORE : SPINS_SHARED_CORE;
    shared->endpoints = allocate(host, world * sizeof(*shared->endpoints));
    shared->pairs = allocate(host, (uint64_t)world * world * sizeof(*shared->pairs));
    if (shared->endpoints && shared->pairs)
        return shared;
    shared_destroy(shared);
    return NULL;
}

static void local_close(struct ls_transport *transport)
{
    if (!transport)
        return;
    struct local_shared *shared = transport->shared;
    const struct ls_host *host = shared->host;
    atomic_store(&shared->endpoints[transport->index].closed, 1);
    atomic_fetch_add(&shared->closings, 1);
    wake_all(shared);
    leave(transport);
    host->release(host, transport);
    if (atomic_fetch_sub(&shared->open, 1) == 1)
        shared_destroy(shared);
}

static int32_t local_open(const struct ls_host *host, const struct ls_transport_config *config,
                          struct ls_transport **out)
{
    if (config->first != 0 || config->count != config->world)
        return ls_host_fail(
            host, LS_UNSUPPORTED,
            "transport local connects the threads of one process only: %u of %u ranks are "
            "here; choose another transport",
            config->count, config->world);
    struct local_shared *shared = shared_create(host, config->world);
    if (!shared)
        return LS_OUT_OF_MEMORY;

    for (uint32_t i = 0; i < config->world; i++) {
        out[i] = allocate(host, sizeof(**out));
        if (!out[i]) {
            while (i--) {
                host->release(host, out[i]);
                out[i] = NULL;
            }
            shared_destroy(shared);
            return LS_OUT_OF_MEMORY;
        }
        out[i]->shared = shared;
        out[i]->index = i;
    }
    atomic_store(&shared->open, config->world);
    return LS_OK;
}

static const struct ls_transport_interface interface = {
    .struct_size = sizeof(struct ls_transport_interface),
    .scope = LS_SCOPE_PROCESS,
    .memory_kinds = 1u << 1, // host
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
