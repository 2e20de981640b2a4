// SPDX-License-Identifier: Apache-2.0
// Opens the endpoints of a case, a thread each; values, buffers, and waiting with a deadline.
#include "tools/conformance/transport/suite.h"

#include "core/base/clock.h"
#include "core/base/random.h"
#include "core/base/shared_memory.h"
#include "core/base/threads.h"
#include "core/collective/endpoints.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GUARD 64 // bytes on both sides of a buffer
#define DEADLINE_NS UINT64_C(20000000000) // of a case, unless the options say another

// ---- Values ----

void ls_transport_encode(void *memory, uint64_t index, uint32_t dtype, uint32_t value)
{
    const float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof(bits));
    switch (dtype) {
    case LS_F32: ((float *)memory)[index] = single; break;
    case LS_F64: ((double *)memory)[index] = value; break;
    case LS_F16: // exponent moved from bias 127 to 15, ten bits of mantissa
        ((uint16_t *)memory)[index] = (uint16_t)(value ? (bits - 0x38000000) >> 13 : 0);
        break;
    case LS_BF16: ((uint16_t *)memory)[index] = (uint16_t)(bits >> 16); break;
    case LS_I32: ((int32_t *)memory)[index] = (int32_t)value; break;
    case LS_I64: ((int64_t *)memory)[index] = value; break;
    default: ((uint8_t *)memory)[index] = (uint8_t)value; break;
    }
}

uint32_t ls_transport_combine(uint32_t reduction, uint32_t a, uint32_t b)
{
    switch (reduction) {
    case LS_PRODUCT: return a * b;
    case LS_MIN: return a < b ? a : b;
    case LS_MAX: return a > b ? a : b;
    default: return a + b;
    }
}

uint32_t ls_transport_value(const struct ls_transport_trial *trial, uint32_t rank, uint64_t message,
                            uint64_t index)
{
    const uint64_t key = ls_random_key(trial->suite->options.seed, message * 1000 + rank);
    const uint32_t drawn = (uint32_t)(ls_random_u64(key, index) >> 40);
    return trial->reduction == LS_PRODUCT ? 1 + drawn % 2 : drawn % 4;
}

// ---- Buffers ----

bool ls_transport_buffer_init(struct ls_transport_side *side, struct ls_transport_buffer *buffer,
                              uint64_t count, uint32_t rank, uint64_t message)
{
    const uint32_t dtype = side->trial->dtype;
    const uint64_t bytes = count * ls_dtype_bytes(dtype);
    *buffer = (struct ls_transport_buffer){
        .count = count, .dtype = dtype, .guard = (unsigned char)(0xa5 + side->rank)};
    buffer->memory = ls_segment_allocate(bytes + 2 * GUARD, GUARD);
    if (!buffer->memory)
        return ls_tally_blame(&side->trial->suite->tally, "no memory for %" PRIu64 " elements",
                              count);
    memset(buffer->memory, buffer->guard, bytes + 2 * GUARD);
    buffer->values = buffer->memory + GUARD;
    for (uint64_t i = 0; i < count; i++)
        ls_transport_encode(buffer->values, i, dtype,
                            ls_transport_value(side->trial, rank, message, i));
    if (ls_conformance_image_init(&buffer->image, &side->trial->suite->devices, side->rank,
                                  buffer->memory, bytes + 2 * GUARD)) {
        ls_transport_buffer_finish(buffer);
        return ls_tally_blame(&side->trial->suite->tally,
                              "no memory of a device for %" PRIu64 " elements", count);
    }
    buffer->data = ls_address(ls_conformance_image_at(&buffer->image, buffer->values));
    return true;
}

bool ls_transport_buffer_push(struct ls_transport_side *side,
                              const struct ls_transport_buffer *buffer)
{
    return ls_conformance_image_push(&buffer->image, NULL) == LS_OK ||
           ls_tally_blame(&side->trial->suite->tally, "endpoint %u: copying to its device fails",
                          side->rank);
}

void ls_transport_buffer_judge(struct ls_transport_side *side,
                               const struct ls_transport_buffer *buffer, uint64_t message,
                               ls_transport_expected expected, const char *what)
{
    struct ls_tally *tally = &side->trial->suite->tally;
    const uint64_t size = ls_dtype_bytes(buffer->dtype), bytes = buffer->count * size;
    if (ls_conformance_image_pull(&buffer->image, NULL)) {
        ls_tally_blame(tally, "endpoint %u: %s: the device fails", side->rank, what);
        return;
    }
    for (uint64_t i = 0; i < buffer->count; i++) {
        uint64_t wanted[1];
        const uint32_t value = expected(side, message, i);
        ls_transport_encode(wanted, 0, buffer->dtype, value);
        if (memcmp(wanted, (char *)buffer->values + i * size, size) == 0)
            continue;
        ls_tally_blame(tally,
                       "endpoint %u: %s, message %" PRIu64 ": element %" PRIu64 " of %" PRIu64
                       " is not %u",
                       side->rank, what, message, i, buffer->count, value);
        return;
    }
    for (uint64_t i = 0; i < GUARD; i++)
        if ((unsigned char)buffer->memory[i] != buffer->guard ||
            (unsigned char)buffer->memory[GUARD + bytes + i] != buffer->guard) {
            ls_tally_blame(
                tally, "endpoint %u: %s: memory outside of the %" PRIu64 " elements was written",
                side->rank, what, buffer->count);
            return;
        }
}

void ls_transport_buffer_finish(struct ls_transport_buffer *buffer)
{
    ls_conformance_image_finish(&buffer->image);
    ls_segment_free(buffer->memory);
    *buffer = (struct ls_transport_buffer){0};
}

// ---- Transfers ----

struct ls_transfer ls_transport_send(uint32_t to, uint64_t number,
                                     const struct ls_transport_buffer *buffer)
{
    return (struct ls_transfer){
        .struct_size = sizeof(struct ls_transfer),
        .kind = LS_TRANSFER_SEND,
        .destination = to,
        .send_number = number,
        .after = LS_TRANSFER_AT_ONCE,
        .memory = buffer->data,
        .count = buffer->count,
        .dtype = buffer->dtype,
        .reduction = LS_SUM,
    };
}

struct ls_transfer ls_transport_receive(uint32_t from, uint64_t number,
                                        const struct ls_transport_buffer *buffer)
{
    struct ls_transfer transfer = ls_transport_send(0, 0, buffer);
    transfer.kind = LS_TRANSFER_RECEIVE;
    transfer.source = from;
    transfer.receive_number = number;
    return transfer;
}

bool ls_transport_post(struct ls_transport_side *side, struct ls_transfer *transfer)
{
    const int32_t status = side->trial->ops->post(side->endpoint, transfer);
    if (status)
        return ls_tally_blame(&side->trial->suite->tally, "endpoint %u: post: %s", side->rank,
                              ls_status_text((enum ls_status)status));
    return true;
}

// What is not complete, in `pending`. Tests each once.
static int32_t test_all(struct ls_transport_side *side, struct ls_transfer *transfers, size_t count,
                        struct ls_transfer **pending, size_t *pending_count)
{
    *pending_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (transfers[i].state == LS_TRANSFER_COMPLETE)
            continue;
        const int32_t status = side->trial->ops->test(side->endpoint, &transfers[i]);
        if (status && status != LS_AGAIN)
            return status;
        if (!status && transfers[i].state != LS_TRANSFER_COMPLETE) {
            ls_tally_blame(&side->trial->suite->tally,
                           "endpoint %u: test returned LS_OK, but state is %u, not "
                           "LS_TRANSFER_COMPLETE",
                           side->rank, transfers[i].state);
            return LS_FAILED;
        }
        if (status)
            pending[(*pending_count)++] = &transfers[i];
    }
    return LS_OK;
}

uint64_t ls_transport_patience_ns(const struct ls_transport_suite *suite)
{
    return (suite->options.deadline_ns ? suite->options.deadline_ns : DEADLINE_NS) / 4;
}

int32_t ls_transport_complete(struct ls_transport_side *side, struct ls_transfer *transfers,
                              size_t count)
{
    struct ls_transfer **pending = calloc(count + 1, sizeof(struct ls_transfer *));
    const uint64_t end_ns = ls_clock_ns() + ls_transport_patience_ns(side->trial->suite);
    size_t left = 0;
    int32_t status = pending ? LS_OK : LS_OUT_OF_MEMORY;
    while (!status) {
        status = test_all(side, transfers, count, pending, &left);
        if (status || !left)
            break;
        status = side->trial->ops->wait_any(side->endpoint, pending, left, 20000000);
        if (status == LS_AGAIN)
            status = ls_clock_ns() < end_ns ? LS_OK : LS_TRANSPORT_NEVER;
    }
    free((void *)pending);
    return status;
}

bool ls_transport_expect_complete(struct ls_transport_side *side, struct ls_transfer *transfers,
                                  size_t count, const char *what)
{
    const int32_t status = ls_transport_complete(side, transfers, count);
    if (!status)
        return true;
    ls_tally_blame(&side->trial->suite->tally, "endpoint %u: %s: %s", side->rank, what,
                   status == LS_TRANSPORT_NEVER ? "not complete in time"
                                                : ls_status_text((enum ls_status)status));
    side->trial->ops->abort(side->endpoint);
    return false;
}

// ---- Stages ----

void ls_transport_pause(uint64_t milliseconds)
{
    const struct timespec time = {.tv_sec = (time_t)(milliseconds / 1000),
                                  .tv_nsec = (long)(milliseconds % 1000) * 1000000};
    nanosleep(&time, NULL);
}

void ls_transport_advance(struct ls_transport_side *side)
{
    atomic_fetch_add(side->trial->stage, 1);
}

bool ls_transport_await(struct ls_transport_side *side, uint32_t stage)
{
    const uint64_t end_ns = ls_clock_ns() + ls_transport_patience_ns(side->trial->suite);
    while (atomic_load(side->trial->stage) < stage) {
        if (ls_clock_ns() > end_ns)
            return ls_tally_blame(&side->trial->suite->tally,
                                  "endpoint %u: the others did not come as far in time",
                                  side->rank);
        ls_transport_pause(1);
    }
    return true;
}

// ---- Running ----

static void *side_main(void *argument)
{
    struct ls_transport_side *side = argument;
    side->trial->body(side);
    return NULL;
}

// An exchange with the other processes, where there are some.
static struct ls_endpoints_options options_of(struct ls_transport_trial *trial, uint32_t *own,
                                              uint32_t *hosts)
{
    struct ls_endpoints_options options = {
        .transport = trial->ops,
        .host = trial->suite->options.host,
        .world = trial->world,
        .own = own,
        .hosts = hosts,
        .name = "check",
        .deadline_ns =
            trial->deadline_ns ? trial->deadline_ns : ls_transport_patience_ns(trial->suite)};
    const uint32_t said = trial->suite->options.hosts;
    for (uint32_t i = 0; i < trial->world; i++) {
        if (ls_transport_together(trial, i, trial->process))
            own[options.count++] = i;
        hosts[i] = said ? i % trial->processes % said : 0;
    }
    if (trial->meeting)
        options.exchange = ls_transport_meeting_exchange(trial);
    return options;
}

static bool open_sides(struct ls_transport_trial *trial, uint32_t *count)
{
    struct ls_transport_suite *suite = trial->suite;
    struct ls_transport *endpoints[LS_TRANSPORT_MOST_ENDPOINTS] = {NULL};
    struct ls_transport_place places[LS_TRANSPORT_MOST_ENDPOINTS];
    uint32_t own[LS_TRANSPORT_MOST_ENDPOINTS], hosts[LS_TRANSPORT_MOST_ENDPOINTS];
    struct ls_endpoints_options options = options_of(trial, own, hosts);
    int32_t status = (int32_t)ls_conformance_devices_need(&suite->devices, trial->world);
    for (uint32_t i = 0; suite->devices.ops && i < trial->world; i++)
        places[i] = (struct ls_transport_place){.struct_size = sizeof(places[i]),
                                                .ops = suite->devices.ops,
                                                .device = suite->devices.opened[i]};
    options.places = suite->devices.ops ? places : NULL;
    if (!status)
        status = (int32_t)ls_endpoints_open(&options, endpoints);
    if (status == LS_UNSUPPORTED || status == LS_UNAVAILABLE)
        ls_tally_refuse(&suite->tally, "it does not connect %u threads of %s", trial->world,
                        trial->processes > 1 ? "several processes" : "one process");
    else if (status)
        ls_tally_blame(&suite->tally, "open of %u endpoints: %s", trial->world,
                       ls_status_text((enum ls_status)status));
    for (uint32_t i = 0; !status && i < options.count; i++)
        trial->sides[i] =
            (struct ls_transport_side){.trial = trial, .endpoint = endpoints[i], .rank = own[i]};
    *count = options.count;
    return status == LS_OK;
}

bool ls_transport_together(const struct ls_transport_trial *trial, uint32_t a, uint32_t b)
{
    return a % trial->processes == b % trial->processes;
}

void ls_transport_sides_run(struct ls_transport_trial *trial)
{
    uint32_t started = 0, count = 0;
    if (!open_sides(trial, &count))
        return;
    while (started < count && !ls_thread_start(&trial->sides[started].thread, "endpoint", side_main,
                                               &trial->sides[started]))
        started++;
    if (started < count)
        ls_tally_blame(&trial->suite->tally, "no thread for endpoint %u",
                       trial->sides[started].rank);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(trial->sides[i].thread, NULL);
    for (uint32_t i = 0; i < count; i++)
        ls_endpoint_close(trial->ops, trial->sides[i].endpoint);
}

static uint32_t processes_of(enum ls_transport_spread spread, uint32_t world)
{
    if (spread == LS_SPREAD_THREADS)
        return 1;
    if (spread == LS_SPREAD_MIXED)
        return world > 2 ? 2 : 0;
    return world > 1 ? world : 0;
}

void ls_transport_case(struct ls_transport_suite *suite, struct ls_transport_trial *trial,
                       const char *format, ...)
{
    _Atomic uint32_t stage = 0;
    char name[160];
    va_list list;
    va_start(list, format);
    vsnprintf(name, sizeof(name), format, list);
    va_end(list);
    trial->suite = suite;
    trial->ops = suite->options.transport;
    trial->processes = processes_of(suite->spread, trial->world);
    if (!trial->processes)
        return;
    const bool wanted =
        trial->processes > 1
            ? ls_tally_begin(&suite->tally, "%s processes=%u%s", name, trial->processes,
                             suite->spread == LS_SPREAD_MAPPED ? " mapped" : "")
            : ls_tally_begin(&suite->tally, "%s", name);
    if (!wanted)
        return;
    trial->stage = &stage;
    if (trial->processes > 1)
        ls_transport_processes_run(trial);
    else
        ls_transport_sides_run(trial);
    ls_tally_end(&suite->tally);
}
