// SPDX-License-Identifier: Apache-2.0
// Device `pjrt`: whatever a PJRT plugin drives (TPUs, GPUs, CPUs), through XLA. Operations are
// written as StableHLO text (operation.h), a recorded step is one program (recording.c). Calls
// return when the work is done, so streams and events have nothing to wait for: the host needs them
// to record, and sees one stream.
//
// Options: plugin=FILE, the shared object (unsaid: find.h); cpu_device_count=N, how many devices
// XLA's CPU plugin shows (4 unsaid); recording=off, every operation is a program of its own.
#include "plugins/device/pjrt/device.h"
#include "plugins/device/pjrt/together.h"

static int32_t pjrt_describe(const struct ls_host *host, struct ls_device_info *out)
{
    struct pjrt_client *client;
    const int32_t status = pjrt_client_open(host, &client);
    if (status)
        return status;
    const struct pjrt_client_info *info = pjrt_client_describe(client);
    out->physical_count = info->devices;
    snprintf(out->hardware, sizeof(out->hardware), "%s", info->text);
    return LS_OK;
}

static int32_t pjrt_open(const struct ls_host *host, const struct ls_device_config *config,
                         struct ls_device *device)
{
    struct pjrt_client *client;
    const int32_t status = pjrt_client_open(host, &client);
    if (status)
        return status;
    const struct pjrt_client_info *info = pjrt_client_describe(client);
    if (config->index >= info->devices)
        return ls_host_fail(host, LS_UNAVAILABLE,
                            "there is no device %u: %s has %u; cpu_device_count=N gives XLA's CPU "
                            "plugin more",
                            config->index, info->text, info->devices);
    device->host = host;
    device->caller = (struct pjrt_caller){host, client, config->index, config->deadline_ns};
    return LS_OK;
}

static void pjrt_close(struct ls_device *device)
{
    (void)device; // the client stays open
}

// ---- Streams and events ----

struct ls_event {
    bool inside; // recorded last within a recording: outside it means nothing
};

// Each is a handle of its own, though all work is done when a call returns.
static int32_t stream_open(struct ls_device *device, void **out)
{
    struct pjrt_stream *stream = malloc(sizeof(*stream));
    if (stream)
        *stream = *pjrt_stream_calls();
    *out = stream;
    return stream ? LS_OK : ls_host_fail(device->host, LS_OUT_OF_MEMORY, "no memory for a stream");
}

static void stream_close(struct ls_device *device, void *stream)
{
    (void)device;
    free(stream);
}

static int32_t stream_native(struct ls_device *device, void *stream, struct ls_native_stream *out)
{
    out->family = LS_STREAM_PJRT;
    out->native = stream ? stream : (void *)(uintptr_t)pjrt_stream_calls();
    out->index = device->caller.device;
    snprintf(out->identity, sizeof(out->identity), "pjrt %u", device->caller.device);
    return LS_OK;
}

static int32_t event_open(struct ls_device *device, struct ls_event **out)
{
    *out = calloc(1, sizeof(**out));
    return *out ? LS_OK : ls_host_fail(device->host, LS_OUT_OF_MEMORY, "no memory for an event");
}

static void event_close(struct ls_device *device, struct ls_event *event)
{
    (void)device;
    free(event);
}

static int32_t event_record(struct ls_device *device, struct ls_event *event, void *stream)
{
    (void)stream;
    event->inside = device->recording != NULL;
    return LS_OK;
}

static int32_t event_wait(struct ls_device *device, struct ls_event *event, void *stream)
{
    (void)stream;
    if (device->recording && !event->inside)
        return pjrt_check_recording(device, "a wait for an event that was recorded before");
    return LS_OK;
}

static int32_t event_query(struct ls_device *device, const struct ls_event *event)
{
    return event->inside ? ls_host_fail(device->host, LS_FAILED, "the event belongs to a recording")
                         : LS_OK;
}

// ---- Staging: memory of the host, and copies that are done when they return ----

static void *staging_allocate(struct ls_device *device, uint64_t bytes)
{
    void *memory = device->host->allocate(device->host, bytes, LS_ALIGNMENT);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

static void staging_release(struct ls_device *device, void *memory)
{
    device->host->release(device->host, memory);
}

// ---- Tables ----

static const struct ls_device_memory memory_calls = {
    .struct_size = sizeof(memory_calls),
    .allocate = pjrt_allocate,
    .release = pjrt_free,
    .copy = pjrt_copy,
    .zero = pjrt_zero,
};

static const struct ls_device_kernels kernel_calls = {
    .struct_size = sizeof(kernel_calls),
    .prepare = pjrt_prepare,
    .launch = pjrt_launch,
    .release = pjrt_release_kernel,
};

static const struct ls_device_streams stream_calls = {
    .struct_size = sizeof(stream_calls),
    .open = stream_open,
    .close = stream_close,
    .native = stream_native,
    .event_open = event_open,
    .event_close = event_close,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_query = event_query,
};

static const struct ls_device_staging staging_calls = {
    .struct_size = sizeof(staging_calls),
    .allocate = staging_allocate,
    .release = staging_release,
    .copy_async = pjrt_copy,
};

static const struct ls_device_capture capture_calls = {
    .struct_size = sizeof(capture_calls),
    .begin = pjrt_record_begin,
    .end = pjrt_record_end,
    .replay = pjrt_replay,
    .release = pjrt_release_recording,
};

static const struct ls_plugin_option options[] = {
    {"plugin", "text", NULL,
     "the file of the PJRT plugin; unsaid, libtpu.so or that of jax-cuda13-pjrt, where it is "
     "installed"},
    {"cpu_device_count", "integer", NULL,
     "how many devices XLA's CPU plugin shows; unsaid, its own choice (4)"},
    {LS_RECORDING_OPTION, "one of: on, off", "on",
     "whether a step becomes one program; off: each operation is a program of its own"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_device_interface device_interface = {
    .struct_size = sizeof(device_interface),
    .memory_kind = LS_MEMORY_OPAQUE,
    .blocking = 0,
    .state_bytes = sizeof(struct ls_device),
    .describe = pjrt_describe,
    .open = pjrt_open,
    .close = pjrt_close,
    .memory = &memory_calls,
    .kernels = &kernel_calls,
    .streams = &stream_calls,
    .staging = &staging_calls,
    .capture = &capture_calls,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_DEVICE),
    .name = "pjrt",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "what a PJRT plugin drives, through XLA: TPUs, GPUs, CPUs",
    .options = options,
    .interface = &device_interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
