// SPDX-License-Identifier: Apache-2.0
// Devices, strategies, collectives and transports that do nothing, to be put together by the resolver. TEST_NAME,
// TEST_KIND, TEST_NEEDS (whether the strategy needs a collective), TEST_OPTIONS, TEST_VERSION.
#include "core/plugin/collective.h"
#include "core/plugin/device.h"
#include "core/plugin/strategy.h"
#include "core/plugin/transport.h"

#include <stdio.h>
#include <stdlib.h>

#if TEST_KIND == 1
static int32_t describe(const struct ls_host *host, struct ls_device_info *out)
{
    (void)out;
    return host->fail(host, LS_UNSUPPORTED, "for tests only");
}

static int32_t open_device(const struct ls_host *host, const struct ls_device_config *config,
                           struct ls_device *device)
{
    (void)config;
    (void)device;
    return host->fail(host, LS_UNSUPPORTED, "for tests only");
}

static void close_device(struct ls_device *device)
{
    (void)device;
}

static struct ls_buffer *allocate(struct ls_device *device, uint64_t bytes)
{
    (void)device;
    (void)bytes;
    return NULL;
}

static void release(struct ls_device *device, struct ls_buffer *buffer)
{
    (void)device;
    (void)buffer;
}

static int32_t copy(struct ls_device *device, struct ls_memory to, struct ls_memory from,
                    uint64_t bytes, void *stream)
{
    (void)device;
    (void)to;
    (void)from;
    (void)bytes;
    (void)stream;
    return LS_UNSUPPORTED;
}

static int32_t zero(struct ls_device *device, struct ls_memory memory, uint64_t bytes, void *stream)
{
    (void)device;
    (void)memory;
    (void)bytes;
    (void)stream;
    return LS_UNSUPPORTED;
}

static int32_t prepare(struct ls_device *device, const struct ls_kernel_request *request,
                       struct ls_kernel_answer *answer)
{
    (void)device;
    (void)request;
    (void)answer;
    return LS_UNSUPPORTED;
}

static int32_t launch(struct ls_device *device, const struct ls_kernel *kernel,
                      const struct ls_launch *given)
{
    (void)device;
    (void)kernel;
    (void)given;
    return LS_UNSUPPORTED;
}

static void release_kernel(struct ls_device *device, struct ls_kernel *kernel)
{
    (void)device;
    (void)kernel;
}

static const struct ls_device_memory memory_calls = {
    .struct_size = sizeof(memory_calls),
    .allocate = allocate,
    .release = release,
    .copy = copy,
    .zero = zero,
};

static const struct ls_device_kernels kernel_calls = {
    .struct_size = sizeof(kernel_calls),
    .prepare = prepare,
    .launch = launch,
    .release = release_kernel,
};

static const struct ls_device_interface table = {
    .struct_size = sizeof(table),
    .memory_kind = LS_MEMORY_HOST,
    .blocking = 1,
    .state_bytes = 1,
    .describe = describe,
    .open = open_device,
    .close = close_device,
    .memory = &memory_calls,
    .kernels = &kernel_calls,
};
#elif TEST_KIND == 2
static int32_t open_endpoint(const struct ls_host *host, const struct ls_transport_config *config,
                             struct ls_transport *const *endpoints)
{
    (void)config;
    (void)endpoints;
    return host->fail(host, LS_UNSUPPORTED, "for tests only");
}

static void close_endpoint(struct ls_transport *transport)
{
    (void)transport;
}

static int32_t post(struct ls_transport *transport, struct ls_transfer *transfer)
{
    (void)transport;
    (void)transfer;
    return LS_UNSUPPORTED;
}

static int32_t wait_any(struct ls_transport *transport, struct ls_transfer *const *transfers,
                        uint64_t count, uint64_t timeout_ns)
{
    (void)transport;
    (void)transfers;
    (void)count;
    (void)timeout_ns;
    return LS_AGAIN;
}

static int32_t peer_state(struct ls_transport *transport, uint32_t peer)
{
    (void)transport;
    (void)peer;
    return LS_OK;
}

static const struct ls_transport_interface table = {
    .struct_size = sizeof(table),
    .scope = LS_SCOPE_PROCESS,
    .memory_kinds = 2,
    .state_bytes = 1,
    .open = open_endpoint,
    .close = close_endpoint,
    .post = post,
    .test = post,
    .wait_any = wait_any,
    .abort = close_endpoint,
    .peer_state = peer_state,
};
#elif TEST_KIND == 3
static int32_t build_schedule(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)call;
    (void)schedule;
    return LS_OK;
}

static const struct ls_collective_interface table = {
    .struct_size = sizeof(table),
    .operations = 1u << LS_ALL_REDUCE,
    .build_schedule = build_schedule,
};
#else
static int32_t open_strategy(const struct ls_strategy_host *host, struct ls_strategy *strategy)
{
    (void)host;
    (void)strategy;
    return LS_OK;
}

static void close_strategy(struct ls_strategy *strategy)
{
    (void)strategy;
}

static int32_t hook(struct ls_strategy *strategy, uint32_t replica)
{
    (void)strategy;
    (void)replica;
    return LS_OK;
}

static int32_t gradient_ready(struct ls_strategy *strategy, uint32_t replica, uint32_t bucket)
{
    (void)strategy;
    (void)replica;
    (void)bucket;
    return LS_OK;
}

#ifndef TEST_TRANSPORT
#define TEST_TRANSPORT 0
#endif

// TEST_SHORTER: what a table looks like to which a later version has added calls; here it ends before `synchronise`. What
// follows it in memory must never be called.
static const struct {
    struct ls_strategy_interface ours;
} memory = {
    .ours =
        {
#ifdef TEST_SHORTER
            .struct_size = offsetof(struct ls_strategy_interface, synchronise),
#else
            .struct_size = sizeof(struct ls_strategy_interface),
#endif
            .state_bytes = 1,
            .traits = {.divisor = LS_DIVISOR_GLOBAL, .equality = LS_EQUAL_EVERY_STEP},
            .needs_collective = TEST_NEEDS,
            .needs_transport = TEST_TRANSPORT,
            .open = open_strategy,
            .close = close_strategy,
            .initialize_parameters = hook,
            .gradient_ready = gradient_ready,
            .end_step = hook,
            .synchronise = hook,
            .lost = hook,
        },
};
#define table memory.ours
#endif

#ifdef TEST_OPTIONS
static const struct ls_plugin_option options[] = {TEST_OPTIONS, {NULL, NULL, NULL, NULL}};
#endif

#ifndef TEST_VERSION
#define TEST_VERSION "1.2.3"
#endif

#ifdef TEST_BEFORE // as the interface began before 1.0
#undef LS_PLUGIN_MAGIC
#define LS_PLUGIN_MAGIC UINT64_C(0x504554534b434f4c)
#endif

// Counts how often it is asked, where the variable TEST_PROBES names a file.
static int32_t probe(char *reason, uint64_t bytes)
{
    const char *path = getenv("TEST_PROBES");
    FILE *file = path ? fopen(path, "a") : NULL;
    (void)reason;
    (void)bytes;
    if (file) {
        fputc('1', file);
        fclose(file);
    }
    return LS_OK;
}

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(TEST_KIND),
    .name = TEST_NAME,
    .version = TEST_VERSION,
    .licence = "Apache-2.0",
    .summary = "a part for tests",
#ifdef TEST_OPTIONS
    .options = options,
#endif
    .probe = probe,
    .interface = &table,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
