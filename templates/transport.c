// SPDX-License-Identifier: Apache-2.0
// my-plugin: messages between threads of one process, under one lock. A receiver copies or reduces
// directly from the sender's memory. It is short and slow; a real transport replaces the lock, or
// replaces the shared memory with a network.
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L // clock_gettime
#endif
#include "core/plugin/transport.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#define WINDOW 256 // messages of a pair that may be under way

// Messages from one endpoint to another.
struct pair {
    struct ls_transfer *offered; // sends that nobody has received yet; a list
    uint64_t received[WINDOW]; // 1 + the last number received in this slot
};

// What the endpoints of one open share, until the last is closed.
struct shared {
    const struct ls_host *host;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t world, open, aborted;
    struct pair *pairs; // source * world + destination
};

struct ls_transport {
    struct shared *shared;
    uint32_t index;
};

// What a transfer keeps while it is pending: where it stands, and the next one in a list.
enum stage { RECEIVING, OFFERED, TAKEN };
#define STAGE(transfer) ((transfer)->own[0])
#define NEXT(transfer) ((transfer)->own[1])

static uint64_t bytes_of(const struct ls_transfer *transfer)
{
    return transfer->count * ls_dtype_bytes(transfer->dtype);
}

static struct pair *pair_of(struct shared *shared, uint32_t source, uint32_t destination)
{
    return &shared->pairs[(uint64_t)source * shared->world + destination];
}

// ---- Arithmetic, one element at a time ----

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

// Half precision: 1 sign, 5 exponent, 10 mantissa bits.
static double from_half(uint16_t half)
{
    const uint32_t exponent = half >> 10 & 31, mantissa = half & 1023;
    const double sign = half & 0x8000 ? -1 : 1;
    if (exponent == 31)
        return (double)from_bits(0x7f800000 | mantissa << 13) * sign;
    if (!exponent)
        return sign * mantissa * 0x1p-24;
    return sign * (double)from_bits((exponent + 112) << 23 | mantissa << 13);
}

// Rounds to the nearest number whose last bit is worth `unit`, ties to even. The sum forces the rounding.
static double round_to(double value, double unit)
{
    volatile double large = value + unit * 0x1.8p52;
    return large - unit * 0x1.8p52;
}

static uint16_t to_half(double value)
{
    const uint16_t sign = to_bits((float)value) >> 16 & 0x8000;
    double size = value < 0 ? -value : value, unit = 0x1p-24;
    if (value != value)
        return 0x7e00;
    if (size >= 65520)
        return sign | 0x7c00;
    while (size >= unit * 2048)
        unit *= 2;
    size = round_to(size, unit);
    if (size < 0x1p-14)
        return sign | (uint16_t)(size * 0x1p24);
    const uint32_t bits = to_bits((float)size);
    return sign | (uint16_t)(((bits >> 23) - 112) << 10 | (bits >> 13 & 1023));
}

static uint16_t to_bfloat(double value)
{
    double size = value < 0 ? -value : value, unit = 0x1p-133;
    if (value != value)
        return 0x7fc0;
    while (size < 0x1p128 && size >= unit * 256)
        unit *= 2;
    if (size < 0x1p128)
        size = round_to(size, unit);
    return (uint16_t)(to_bits((float)(value < 0 ? -size : size)) >> 16);
}

static double load(uint32_t dtype, const void *memory, uint64_t i)
{
    switch (dtype) {
    case LS_F32: return (double)((const float *)memory)[i];
    case LS_F64: return ((const double *)memory)[i];
    case LS_F16: return from_half(((const uint16_t *)memory)[i]);
    default: return (double)from_bits((uint32_t)((const uint16_t *)memory)[i] << 16);
    }
}

static void store(uint32_t dtype, void *memory, uint64_t i, double value)
{
    switch (dtype) {
    case LS_F32: ((float *)memory)[i] = (float)value; break;
    case LS_F64: ((double *)memory)[i] = value; break;
    case LS_F16: ((uint16_t *)memory)[i] = to_half(value); break;
    default: ((uint16_t *)memory)[i] = to_bfloat(value); break;
    }
}

static int64_t load_whole(uint32_t dtype, const void *memory, uint64_t i)
{
    if (dtype == LS_I64)
        return ((const int64_t *)memory)[i];
    return dtype == LS_I32 ? ((const int32_t *)memory)[i] : ((const uint8_t *)memory)[i];
}

static void store_whole(uint32_t dtype, void *memory, uint64_t i, int64_t value)
{
    if (dtype == LS_I64)
        ((int64_t *)memory)[i] = value;
    else if (dtype == LS_I32)
        ((int32_t *)memory)[i] = (int32_t)value;
    else
        ((uint8_t *)memory)[i] = (uint8_t)value;
}

static double combine(uint32_t reduction, double a, double b)
{
    switch (reduction) {
    case LS_SUM: return a + b;
    case LS_PRODUCT: return a * b;
    case LS_MIN: return b < a || b != b ? b : a;
    default: return b > a || b != b ? b : a;
    }
}

static int64_t combine_whole(uint32_t reduction, int64_t a, int64_t b)
{
    switch (reduction) {
    case LS_SUM: return (int64_t)((uint64_t)a + (uint64_t)b);
    case LS_PRODUCT: return (int64_t)((uint64_t)a * (uint64_t)b);
    case LS_MIN: return b < a ? b : a;
    default: return b > a ? b : a;
    }
}

static int is_float(uint32_t dtype)
{
    return dtype == LS_F32 || dtype == LS_F64 || dtype == LS_F16 || dtype == LS_BF16;
}

// memory = memory (+) from. Floats go over double, which rounds a single sum or product as their own type does.
static void reduce(const struct ls_transfer *to, const void *from)
{
    const uint32_t dtype = to->dtype;
    for (uint64_t i = 0; i < to->count; i++) {
        if (is_float(dtype))
            store(dtype, to->memory, i,
                  combine(to->reduction, load(dtype, to->memory, i), load(dtype, from, i)));
        else
            store_whole(dtype, to->memory, i,
                        combine_whole(to->reduction, load_whole(dtype, to->memory, i),
                                      load_whole(dtype, from, i)));
    }
}

static void divide(const struct ls_transfer *transfer)
{
    const uint32_t dtype = transfer->dtype;
    for (uint64_t i = 0; i < transfer->count; i++) {
        if (is_float(dtype))
            store(dtype, transfer->memory, i,
                  load(dtype, transfer->memory, i) / (double)transfer->divisor);
        else
            store_whole(dtype, transfer->memory, i,
                        load_whole(dtype, transfer->memory, i) / (int64_t)transfer->divisor);
    }
}

// ---- Meeting; all with the lock held ----

static void offer(struct ls_transport *transport, struct ls_transfer *transfer)
{
    struct pair *pair = pair_of(transport->shared, transport->index, transfer->destination);
    STAGE(transfer) = OFFERED;
    NEXT(transfer) = (uint64_t)(uintptr_t)pair->offered;
    pair->offered = transfer;
    pthread_cond_broadcast(&transport->shared->changed);
}

static int was_received(struct pair *pair, uint64_t number)
{
    return pair->received[number % WINDOW] >= number + 1;
}

// The send that this receive waits for, if it may be taken now.
static struct ls_transfer *find_send(struct ls_transport *transport,
                                     const struct ls_transfer *receive)
{
    struct shared *shared = transport->shared;
    struct pair *pair = pair_of(shared, receive->source, transport->index);
    const uint64_t number = receive->receive_number;
    if (number >= WINDOW && !was_received(pair, number - WINDOW))
        return NULL;
    if (receive->kind == LS_TRANSFER_RECEIVE && receive->after != LS_TRANSFER_AT_ONCE &&
        !was_received(pair_of(shared, transport->index, receive->source), receive->after))
        return NULL;
    struct ls_transfer *send = pair->offered;
    while (send && send->send_number != number)
        send = (struct ls_transfer *)(uintptr_t)NEXT(send);
    return send;
}

static void take(struct ls_transport *transport, struct ls_transfer *receive,
                 struct ls_transfer *send)
{
    struct pair *pair = pair_of(transport->shared, receive->source, transport->index);
    struct ls_transfer *before = pair->offered;
    if (receive->kind == LS_TRANSFER_RECEIVE && bytes_of(receive))
        memcpy(receive->memory, send->memory, bytes_of(receive));
    else if (receive->kind != LS_TRANSFER_RECEIVE)
        reduce(receive, send->memory);
    if (before == send)
        pair->offered = (struct ls_transfer *)(uintptr_t)NEXT(send);
    else {
        while (NEXT(before) != (uint64_t)(uintptr_t)send)
            before = (struct ls_transfer *)(uintptr_t)NEXT(before);
        NEXT(before) = NEXT(send);
    }
    STAGE(send) = TAKEN;
    pair->received[receive->receive_number % WINDOW] = receive->receive_number + 1;
    pthread_cond_broadcast(&transport->shared->changed);
}

static int32_t move_on(struct ls_transport *transport, struct ls_transfer *transfer)
{
    if (transport->shared->aborted)
        return LS_ABORTED;
    if (transfer->state == LS_TRANSFER_COMPLETE)
        return LS_OK;
    if (STAGE(transfer) == RECEIVING) {
        struct ls_transfer *send = find_send(transport, transfer);
        if (!send)
            return LS_AGAIN;
        if (send->signature != transfer->signature || bytes_of(send) != bytes_of(transfer)) {
            transfer->state = LS_TRANSFER_MISMATCH;
            return LS_FAILED;
        }
        take(transport, transfer, send);
        if (transfer->kind != LS_TRANSFER_RECEIVE_REDUCE_SEND)
            STAGE(transfer) = TAKEN;
        else {
            transfer->state = LS_TRANSFER_REDUCED;
            offer(transport, transfer);
        }
    }
    if (STAGE(transfer) != TAKEN)
        return LS_AGAIN;
    transfer->state = LS_TRANSFER_COMPLETE;
    return LS_OK;
}

static int can_move(struct ls_transport *transport, const struct ls_transfer *transfer)
{
    return transport->shared->aborted || STAGE(transfer) == TAKEN ||
           (STAGE(transfer) == RECEIVING && find_send(transport, transfer));
}

// ---- The interface ----

static int32_t post(struct ls_transport *transport, struct ls_transfer *transfer)
{
    int32_t status = LS_OK;
    transfer->state = LS_TRANSFER_PENDING;
    STAGE(transfer) = RECEIVING;
    if (transfer->kind >= LS_TRANSFER_REDUCE) { // no peer: done here
        if (transfer->kind == LS_TRANSFER_REDUCE)
            reduce(transfer, transfer->from);
        else if (transfer->kind == LS_TRANSFER_DIVIDE)
            divide(transfer);
        else if (bytes_of(transfer))
            memcpy(transfer->memory, transfer->from, bytes_of(transfer));
        transfer->state = LS_TRANSFER_COMPLETE;
        return LS_OK;
    }
    pthread_mutex_lock(&transport->shared->lock);
    if (transport->shared->aborted)
        status = LS_ABORTED;
    else if (transfer->kind == LS_TRANSFER_SEND)
        offer(transport, transfer);
    pthread_mutex_unlock(&transport->shared->lock);
    return status;
}

static int32_t test(struct ls_transport *transport, struct ls_transfer *transfer)
{
    pthread_mutex_lock(&transport->shared->lock);
    const int32_t status = move_on(transport, transfer);
    pthread_mutex_unlock(&transport->shared->lock);
    return status;
}

static int32_t wait_any(struct ls_transport *transport, struct ls_transfer *const *transfers,
                        uint64_t count, uint64_t timeout_ns)
{
    struct shared *shared = transport->shared;
    struct timespec end;
    int late = 0, ready = 0;
    clock_gettime(CLOCK_MONOTONIC, &end);
    timeout_ns += (uint64_t)end.tv_nsec;
    end.tv_sec += (time_t)(timeout_ns / 1000000000);
    end.tv_nsec = (long)(timeout_ns % 1000000000);
    pthread_mutex_lock(&shared->lock);
    while (!ready) {
        for (uint64_t i = 0; !ready && i < count; i++)
            ready = can_move(transport, transfers[i]);
        if (ready || late)
            break;
        late = pthread_cond_timedwait(&shared->changed, &shared->lock, &end) != 0;
    }
    const int32_t status = shared->aborted ? LS_ABORTED : ready ? LS_OK : LS_AGAIN;
    pthread_mutex_unlock(&shared->lock);
    return status;
}

static void abort_all(struct ls_transport *transport)
{
    pthread_mutex_lock(&transport->shared->lock);
    transport->shared->aborted = 1;
    pthread_cond_broadcast(&transport->shared->changed);
    pthread_mutex_unlock(&transport->shared->lock);
}

// A closed endpoint aborts all others, so that none waits for it.
static int32_t peer_state(struct ls_transport *transport, uint32_t peer)
{
    (void)peer;
    pthread_mutex_lock(&transport->shared->lock);
    const int32_t status = transport->shared->aborted ? LS_ABORTED : LS_OK;
    pthread_mutex_unlock(&transport->shared->lock);
    return status;
}

// The host frees `transport` afterwards.
static void close_endpoint(struct ls_transport *transport)
{
    struct shared *shared = transport->shared;
    const struct ls_host *host = shared->host;
    abort_all(transport);
    pthread_mutex_lock(&shared->lock);
    const uint32_t left = --shared->open;
    pthread_mutex_unlock(&shared->lock);
    if (left)
        return;
    pthread_cond_destroy(&shared->changed);
    pthread_mutex_destroy(&shared->lock);
    host->release(host, shared->pairs);
    host->release(host, shared);
}

static struct shared *make_shared(const struct ls_host *host, uint32_t world)
{
    const uint64_t bytes = (uint64_t)world * world * sizeof(struct pair);
    struct shared *shared =
        (struct shared *)host->allocate(host, sizeof(*shared), sizeof(uint64_t));
    struct pair *pairs = (struct pair *)host->allocate(host, bytes, sizeof(uint64_t));
    pthread_condattr_t clock;
    if (!shared || !pairs) {
        host->release(host, shared);
        host->release(host, pairs);
        return NULL;
    }
    memset(shared, 0, sizeof(*shared));
    memset(pairs, 0, bytes);
    shared->host = host;
    shared->world = shared->open = world;
    shared->pairs = pairs;
    pthread_mutex_init(&shared->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&shared->changed, &clock);
    pthread_condattr_destroy(&clock);
    return shared;
}

// Endpoints are zeroed memory of `state_bytes` each.
static int32_t open_endpoints(const struct ls_host *host, const struct ls_transport_config *config,
                              struct ls_transport *const *endpoints)
{
    if (config->count != config->world)
        return ls_host_fail(
            host, LS_UNSUPPORTED,
            "my-plugin connects the threads of one process: %u of %u ranks are here", config->count,
            config->world);
    struct shared *shared = make_shared(host, config->world);
    if (!shared)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < config->count; i++) {
        endpoints[i]->shared = shared;
        endpoints[i]->index = config->own[i];
    }
    return LS_OK;
}

static const struct ls_transport_interface interface = {
    .struct_size = sizeof(struct ls_transport_interface),
    .scope = LS_SCOPE_PROCESS,
    .memory_kinds = 1u << 1, // host memory
    .state_bytes = sizeof(struct ls_transport),
    .open = open_endpoints,
    .close = close_endpoint,
    .post = post,
    .test = test,
    .wait_any = wait_any,
    .abort = abort_all,
    .peer_state = peer_state,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_TRANSPORT),
    .name = "my-plugin",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "threads of one process, under one lock",
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
