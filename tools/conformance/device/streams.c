// SPDX-License-Identifier: Apache-2.0
// Cases of devices that compute beside the caller: streams, events between them, copies that are done later, and two devices
// that reach each other's memory.
#include "tools/conformance/device/suite.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FLOATS 3001
#define STEPS 20
#define DEADLINE_NS (UINT64_C(60) * 1000000000)

// ---- Which groups of calls there are ----

bool ls_device_group(const struct ls_device_interface *d, enum ls_device_calls calls)
{
    switch (calls) {
    case LS_DEVICE_STREAMS: return LS_HAS(d, streams) && d->streams;
    case LS_DEVICE_HOST_MEMORY: return LS_HAS(d, staging) && d->staging;
    case LS_DEVICE_COLLECTIVES: return LS_HAS(d, peers) && d->peers;
    default: return LS_HAS(d, capture) && d->capture;
    }
}

bool ls_device_group_offered(struct ls_device_suite *suite, const char *name,
                             enum ls_device_calls calls)
{
    const struct ls_device_interface *d = suite->tested->interface;
    const bool offered = ls_device_group(d, calls);
    if (offered && ls_device_group(d, LS_DEVICE_STREAMS))
        return true;
    if (!ls_device_suite_begin(suite, name))
        return false;
    if (offered)
        ls_device_suite_fail(suite, "offered without streams and events");
    ls_device_suite_end(suite, name, "not offered");
    return false;
}

// ---- An addition on some stream ----

bool ls_device_adder_open(struct ls_device_suite *suite, struct ls_device_side *side,
                          struct ls_device_adder *out)
{
    const struct ls_tensor_desc desc = LS_DEVICE_DESC(LS_F32, FLOATS);
    const struct ls_device_interface *d = side->interface;
    float *ones = malloc(FLOATS * sizeof(float));
    *out = (struct ls_device_adder){.suite = suite, .side = side};
    for (int i = 0; ones && i < FLOATS; i++)
        ones[i] = 1;
    struct ls_device_request request = {
        .op = LS_OP_ADD, .input_count = 2, .output_count = 1, .arguments = {desc, desc, desc}};
    for (int i = 0; i < 3; i++)
        request.arguments[i].layout = ls_device_plain_layout(&desc);
    const bool good = ones && !ls_device_session_prepare(&out->session, suite, side, &request) &&
                      ls_device_session_allocate(&out->session) &&
                      ls_device_buffer_write(suite, side, &out->session.buffers[1], ones) &&
                      ls_device_buffer_create(suite, side, out->session.answer.scratch_bytes,
                                              &out->session.scratch) &&
                      !d->streams->event_open(side->device, &out->event) &&
                      !d->streams->event_open(side->device, &out->back) &&
                      !d->streams->open(side->device, &out->stream);
    free(ones);
    return good || ls_device_suite_fail(suite, "an addition, an event or a stream is refused: %s",
                                        side->message);
}

void ls_device_adder_close(struct ls_device_adder *adder)
{
    struct ls_device_side *side = adder->side;
    side->interface->streams->close(side->device, adder->stream);
    side->interface->streams->event_close(side->device, adder->event);
    side->interface->streams->event_close(side->device, adder->back);
    ls_device_session_close(&adder->session);
}

bool ls_device_adder_set(struct ls_device_adder *adder, float value)
{
    float values[FLOATS];
    for (int i = 0; i < FLOATS; i++)
        values[i] = value;
    return ls_device_buffer_write(adder->suite, adder->side, &adder->session.buffers[0], values);
}

bool ls_device_adder_step(struct ls_device_adder *adder, void *stream)
{
    struct ls_device_session *s = &adder->session;
    const struct ls_device_interface *d = adder->side->interface;
    const struct ls_launch launch = {.struct_size = sizeof(launch),
                                     .argument_count = 3,
                                     .arguments = s->memory,
                                     .scratch = ls_device_buffer_memory(&s->scratch),
                                     .record = ls_device_buffer_memory(&s->record),
                                     .stream = stream};
    if (d->kernels->launch(adder->side->device, s->answer.kernel, &launch) ||
        d->memory->copy(adder->side->device, s->memory[0], s->memory[2], FLOATS * sizeof(float),
                        stream))
        return ls_device_suite_fail(adder->suite, "an addition or a copy on %s stream: %s",
                                    stream ? "another" : "the own", adder->side->message);
    return true;
}

bool ls_device_adder_join(struct ls_device_adder *adder, struct ls_event *event, void *from,
                          void *to)
{
    const struct ls_device_interface *d = adder->side->interface;
    if (d->streams->event_record(adder->side->device, event, from) ||
        d->streams->event_wait(adder->side->device, event, to))
        return ls_device_suite_fail(adder->suite, "an event is refused: %s", adder->side->message);
    return true;
}

bool ls_device_adder_is(struct ls_device_adder *adder, void *stream, double wanted)
{
    float values[FLOATS] = {0};
    const struct ls_device_interface *d = adder->side->interface;
    if (d->memory->copy(adder->side->device, ls_host_memory(values), adder->session.memory[0],
                        sizeof(values), stream))
        return ls_device_suite_fail(adder->suite, "copy from the device: %s", adder->side->message);
    for (int i = 0; i < FLOATS; i++)
        if ((double)values[i] < wanted || (double)values[i] > wanted)
            return ls_device_suite_fail(adder->suite, "element %d is %g, not %g", i,
                                        (double)values[i], wanted);
    return true;
}

// ---- Streams and events ----

static bool add_on_both(struct ls_device_adder *a)
{
    bool good = ls_device_adder_set(a, 0);
    for (int i = 0; good && i < STEPS; i++)
        good = ls_device_adder_step(a, NULL);
    good = good && ls_device_adder_join(a, a->event, NULL, a->stream);
    for (int i = 0; good && i < STEPS; i++)
        good = ls_device_adder_step(a, a->stream);
    good = good && ls_device_adder_is(a, a->stream, 2 * STEPS) &&
           ls_device_adder_step(a, a->stream) &&
           ls_device_adder_join(a, a->back, a->stream, NULL) && ls_device_adder_step(a, NULL);
    return good && ls_device_adder_is(a, NULL, 2 * STEPS + 2);
}

static void order_case(struct ls_device_suite *suite)
{
    const char *name = "streams: work of one runs after the event of another";
    struct ls_device_adder adder;
    if (!ls_device_suite_begin(suite, name))
        return;
    if (ls_device_adder_open(suite, suite->tested, &adder))
        add_on_both(&adder);
    ls_device_adder_close(&adder);
    ls_device_suite_end(suite, name, NULL);
}

// Clearing and copying on a stream beside the own one, without an event between them.
static void own_order_case(struct ls_device_suite *suite)
{
    const char *name = "streams: clearing, copies and launches keep their order";
    struct ls_device_adder a;
    if (!ls_device_suite_begin(suite, name))
        return;
    bool good = ls_device_adder_open(suite, suite->tested, &a) && ls_device_adder_set(&a, 7) &&
                ls_device_adder_join(&a, a.event, NULL, a.stream) &&
                ls_device_adder_step(&a, a.stream);
    if (good && suite->tested->interface->memory->zero(suite->tested->device, a.session.memory[0],
                                                       FLOATS * sizeof(float), a.stream))
        good = ls_device_suite_fail(suite, "zero on a stream: %s", suite->tested->message);
    if (good && ls_device_adder_step(&a, a.stream) && ls_device_adder_step(&a, a.stream))
        ls_device_adder_is(&a, a.stream, 2);
    ls_device_adder_close(&a);
    ls_device_suite_end(suite, name, NULL);
}

static bool until_over(struct ls_device_adder *a, const struct ls_event *event)
{
    const struct ls_host *host = &a->side->host;
    const uint64_t start = host->clock_ns(host);
    int32_t status;
    while ((status = a->side->interface->streams->event_query(a->side->device, event)) ==
               LS_AGAIN &&
           host->clock_ns(host) - start < DEADLINE_NS)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    return status == LS_OK || ls_device_suite_fail(a->suite, "an event is not over: status %d, %s",
                                                   status, a->side->message);
}

// Who waited for the event keeps waiting for its first record.
static bool record_again(struct ls_device_adder *a)
{
    const struct ls_device_interface *d = a->side->interface;
    if (d->streams->event_query(a->side->device, a->event) ||
        d->streams->event_wait(a->side->device, a->event, a->stream))
        return ls_device_suite_fail(a->suite, "an event that was never recorded is not over");
    bool good = ls_device_adder_set(a, 0) && ls_device_adder_step(a, NULL) &&
                ls_device_adder_join(a, a->event, NULL, a->stream) &&
                ls_device_adder_step(a, a->stream);
    // The own stream goes on after the other one, whose wait must not follow the event to its new place.
    good = good && ls_device_adder_join(a, a->back, a->stream, NULL) &&
           ls_device_adder_step(a, NULL) &&
           !d->streams->event_record(a->side->device, a->event, NULL) && until_over(a, a->event) &&
           ls_device_adder_is(a, a->stream, 3);
    for (int i = 0; good && i < 3; i++)
        good = ls_device_adder_step(a, NULL) &&
               !d->streams->event_record(a->side->device, a->event, NULL);
    return good && until_over(a, a->event) && ls_device_adder_is(a, a->stream, 6);
}

static void event_case(struct ls_device_suite *suite)
{
    const char *name = "streams: events are asked about and recorded again";
    struct ls_device_adder adder;
    if (!ls_device_suite_begin(suite, name))
        return;
    if (ls_device_adder_open(suite, suite->tested, &adder))
        record_again(&adder);
    ls_device_adder_close(&adder);
    ls_device_suite_end(suite, name, NULL);
}

static void native_case(struct ls_device_suite *suite)
{
    const char *name = "streams: each is known to libraries of its family";
    const struct ls_device_side *side = suite->tested;
    struct ls_native_stream own = {.struct_size = sizeof(own)}, other = own;
    void *stream = NULL;
    if (!ls_device_suite_begin(suite, name))
        return;
    side->interface->streams->close(side->device, NULL);
    side->interface->streams->event_close(side->device, NULL);
    if (side->interface->streams->open(side->device, &stream) ||
        side->interface->streams->native(side->device, NULL, &own) ||
        side->interface->streams->native(side->device, stream, &other))
        ls_device_suite_fail(suite, "refused: %s", side->message);
    else if (own.family == LS_STREAM_NONE && other.family == LS_STREAM_NONE)
        snprintf(suite->note, sizeof(suite->note), "no library knows its streams");
    else if (own.family == LS_STREAM_NONE || !own.identity[0] ||
             !memchr(own.identity, '\0', sizeof(own.identity)))
        ls_device_suite_fail(suite, "a stream without a family or without an identity");
    else if (own.family != other.family || strcmp(own.identity, other.identity) != 0 ||
             own.native == other.native)
        ls_device_suite_fail(suite, "two streams of a device are of two, or one and the same");
    side->interface->streams->close(side->device, stream);
    ls_device_suite_end(suite, name, NULL);
}

// ---- Copies that are done later ----

static bool copy_there_and_back(struct ls_device_suite *suite, unsigned char *host,
                                struct ls_memory memory, void *stream, uint64_t bytes)
{
    const struct ls_device_side *side = suite->tested;
    const struct ls_device_interface *d = side->interface;
    if ((uintptr_t)host % LS_ALIGNMENT)
        return ls_device_suite_fail(suite, "host memory is not aligned");
    for (uint64_t i = 0; i < 2 * bytes; i++) {
        if (host[i])
            return ls_device_suite_fail(suite, "host memory is not zero");
        host[i] = i < bytes ? (unsigned char)(i * 7 + 1) : 0xee;
    }
    if (d->staging->copy_async(side->device, memory, ls_host_memory(host), bytes, stream) ||
        d->staging->copy_async(side->device, ls_host_memory(host + bytes), memory, bytes, stream))
        return ls_device_suite_fail(suite, "refused: %s", side->message);
    unsigned char last; // a copy on the same stream: what comes before it is done when it returns
    if (d->memory->copy(side->device, ls_host_memory(&last), ls_memory_at(memory, bytes - 1), 1,
                        stream))
        return ls_device_suite_fail(suite, "copy from the device: %s", side->message);
    for (uint64_t i = 0; i < bytes; i++)
        if (host[i] != (unsigned char)(i * 7 + 1) || host[bytes + i] != host[i])
            return ls_device_suite_fail(suite, "byte %llu of %llu does not come back",
                                        (unsigned long long)i, (unsigned long long)bytes);
    return last == host[bytes - 1] || ls_device_suite_fail(suite, "the last byte differs");
}

static void later_case(struct ls_device_suite *suite)
{
    static const uint64_t sizes[] = {1, 777, 1000003};
    const char *name = "host memory: copies that are done later, both ways";
    const struct ls_device_interface *d = suite->tested->interface;
    struct ls_device *device = suite->tested->device;
    void *stream = NULL;
    if (!ls_device_suite_begin(suite, name))
        return;
    d->staging->release(device, NULL);
    bool good = !d->streams->open(device, &stream) ||
                ls_device_suite_fail(suite, "no stream: %s", suite->tested->message);
    for (int i = 0; good && i < 3; i++) {
        struct ls_buffer *memory = d->memory->allocate(device, sizes[i]);
        unsigned char *host = d->staging->allocate(device, 2 * sizes[i]);
        good = memory && host ? copy_there_and_back(suite, host, ls_memory_of(memory),
                                                    i == 1 ? NULL : stream, sizes[i])
                              : ls_device_suite_fail(suite, "no memory");
        d->memory->release(device, memory);
        d->staging->release(device, host);
    }
    d->streams->close(device, stream);
    ls_device_suite_end(suite, name, NULL);
}

// ---- Two devices ----

// `first` adds, `second` copies it to itself and adds, `first` takes it back: over events of both.
static bool hand_over(struct ls_device_suite *suite, struct ls_device_adder *first,
                      struct ls_device_adder *second)
{
    const uint64_t bytes = FLOATS * sizeof(float);
    const struct ls_device_interface *d = first->side->interface;
    struct ls_device *one = first->side->device, *two = second->side->device;
    const struct ls_memory x = first->session.memory[0], y = second->session.memory[0];
    bool good = ls_device_adder_set(first, 5) && ls_device_adder_set(second, 0) &&
                ls_device_adder_join(second, second->back, NULL, second->stream);
    for (int i = 0; good && i < STEPS; i++)
        good = ls_device_adder_step(first, NULL);
    if (!good)
        return false;
    if (d->streams->event_record(one, first->event, NULL) ||
        d->streams->event_wait(two, first->event, second->stream) ||
        d->memory->copy(two, y, x, bytes, second->stream))
        return ls_device_suite_fail(suite, "from the first: %s", second->side->message);
    for (int i = 0; good && i < STEPS; i++)
        good = ls_device_adder_step(second, second->stream);
    struct ls_device_reduction sum = {.struct_size = sizeof(sum),
                                      .dtype = LS_F32,
                                      .reduction = LS_SUM,
                                      .to = x,
                                      .from = y,
                                      .also = y,
                                      .count = FLOATS};
    if (!good)
        return false;
    if (d->streams->event_record(two, second->event, second->stream) ||
        d->streams->event_wait(one, second->event, NULL) || d->peers->reduce(one, &sum, NULL))
        return ls_device_suite_fail(suite, "from the second: %s", first->side->message);
    if (d->streams->event_record(one, first->back, NULL) ||
        d->streams->event_wait(two, first->back, NULL))
        return ls_device_suite_fail(suite, "the last event: %s", second->side->message);
    return ls_device_adder_is(first, NULL, 10 + 3 * STEPS) &&
           ls_device_adder_is(second, NULL, 10 + 3 * STEPS);
}

static bool reach(struct ls_device_suite *suite, struct ls_device_side *from,
                  struct ls_device_side *to)
{
    from->message[0] = '\0';
    const int32_t status = from->interface->peers->can_access_peer(from->device, to->device);
    if (status == LS_UNSUPPORTED && from->message[0]) {
        snprintf(suite->note, sizeof(suite->note), "%.*s", (int)sizeof(suite->note) - 1,
                 from->message);
        suite->excused = true; // as the hardware is
        return false;
    }
    return !status ||
           ls_device_suite_fail(suite, "can_access_peer: status %d, %s", status, from->message);
}

static void together_case(struct ls_device_suite *suite, const char *name, uint32_t index)
{
    struct ls_device_side other = {0};
    struct ls_device_adder first = {0}, second = {0};
    if (!ls_device_suite_begin(suite, name))
        return;
    if (ls_device_side_open_at(&other, suite->tested->interface, suite->tested->outer, index, 0))
        ls_device_suite_fail(suite, "another device does not open: %s", other.message);
    else if (reach(suite, suite->tested, &other) && reach(suite, &other, suite->tested)) {
        if (ls_device_adder_open(suite, suite->tested, &first) &&
            ls_device_adder_open(suite, &other, &second))
            hand_over(suite, &first, &second);
        if (second.side)
            ls_device_adder_close(&second);
        if (first.side)
            ls_device_adder_close(&first);
    }
    ls_device_side_close(&other);
    ls_device_suite_end(suite, name, NULL);
}

void ls_device_stream_cases(struct ls_device_suite *suite)
{
    struct ls_device_info info = {.struct_size = sizeof(info)};
    if (ls_device_group_offered(suite, "streams and events", LS_DEVICE_STREAMS)) {
        order_case(suite);
        own_order_case(suite);
        event_case(suite);
        native_case(suite);
    }
    if (ls_device_group_offered(suite, "host memory of the device", LS_DEVICE_HOST_MEMORY))
        later_case(suite);
    if (!ls_device_group_offered(suite, "reductions", LS_DEVICE_COLLECTIVES))
        return;
    ls_device_reduction_cases(suite);
    together_case(suite, "two devices: copies and sums on one physical device", 0);
    if (!suite->tested->interface->describe(&suite->tested->host, &info) && info.physical_count > 1)
        together_case(suite, "two devices: copies and sums on two physical devices", 1);
}
