// SPDX-License-Identifier: Apache-2.0
// Opens devices, and passes on what needs no check.
#include "core/device/device.h"

#include "core/base/instance.h"
#include "core/device/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- Life ----

enum ls_status ls_device_open_state(const struct ls_device_interface *interface,
                                    const struct ls_host *host,
                                    const struct ls_device_config *config, struct ls_device **out)
{
    struct ls_device *state = ls_instance_create(interface, interface->state_bytes);
    if (!state)
        return LS_OUT_OF_MEMORY;
    const int32_t status = interface->open(host, config, state);
    if (status) {
        ls_instance_destroy(state);
        return (enum ls_status)status;
    }
    *out = state;
    return LS_OK;
}

void ls_device_close_state(const struct ls_device_interface *interface, struct ls_device *state)
{
    if (!state)
        return;
    interface->close(state);
    ls_instance_destroy(state);
}

enum ls_status ls_device_open(const struct ls_device_options *options,
                              struct ls_virtual_device **out)
{
    const struct ls_device_config config = {.struct_size = sizeof(config),
                                            .index = options->index,
                                            .threads = options->threads,
                                            .deadline_ns = options->deadline_ns};
    struct ls_virtual_device *device = calloc(1, sizeof(*device));
    if (!device)
        return LS_OUT_OF_MEMORY;
    device->interface = options->interface;
    device->lack = options->lack;
    const enum ls_status status =
        ls_device_open_state(options->interface, options->host, &config, &device->state);
    if (status) {
        free(device);
        return status;
    }
    *out = device;
    return LS_OK;
}

void ls_device_close(struct ls_virtual_device *device)
{
    if (!device)
        return;
    ls_device_close_state(device->interface, device->state);
    free(device);
}

void ls_device_abandon(struct ls_virtual_device *device)
{
    if (device && device->interface->abandon)
        device->interface->abandon(device->state);
}

bool ls_device_tell_lack(const struct ls_virtual_device *device, const char *format, ...)
{
    va_list list;
    if (!device->lack)
        return false;
    va_start(list, format);
    vsnprintf(device->lack, LS_LACK_BYTES, format, list);
    va_end(list);
    return true;
}

// ---- Questions ----

const struct ls_device_interface *ls_device_interface(const struct ls_virtual_device *device)
{
    return device->interface;
}

struct ls_device *ls_device_state(const struct ls_virtual_device *device)
{
    return device->state;
}

bool ls_device_in_host_memory(const struct ls_virtual_device *device)
{
    return device->interface->memory_kind == LS_MEMORY_HOST;
}

bool ls_device_blocking(const struct ls_virtual_device *device)
{
    return device->interface->blocking != 0;
}

bool ls_device_has_streams(const struct ls_virtual_device *device)
{
    return !device->interface->blocking && device->interface->streams;
}

bool ls_device_has_staging(const struct ls_virtual_device *device)
{
    return ls_device_has_streams(device) && device->interface->staging;
}

bool ls_device_can_capture(const struct ls_virtual_device *device)
{
    return !device->interface->blocking && device->interface->capture &&
           !ls_device_in_host_memory(device);
}

uint64_t ls_device_tile_bytes(const struct ls_virtual_device *device)
{
    const struct ls_device_kernels *kernels = device->interface->kernels;
    return kernels->tile_bytes ? kernels->tile_bytes(device->state) : 0;
}

// ---- Memory ----

struct ls_memory ls_device_allocate(struct ls_virtual_device *device, uint64_t bytes)
{
    return ls_memory_of(
        device->interface->memory->allocate(device->state, bytes ? bytes : LS_ALIGNMENT));
}

void ls_device_release(struct ls_virtual_device *device, struct ls_memory memory)
{
    device->interface->memory->release(device->state, memory.buffer);
}

enum ls_status ls_device_copy(struct ls_virtual_device *device, struct ls_memory to,
                              struct ls_memory from, uint64_t bytes, void *stream)
{
    return (enum ls_status)device->interface->memory->copy(device->state, to, from, bytes, stream);
}

enum ls_status ls_device_zero(struct ls_virtual_device *device, struct ls_memory memory,
                              uint64_t bytes, void *stream)
{
    return (enum ls_status)device->interface->memory->zero(device->state, memory, bytes, stream);
}

// ---- Kernels that are there ----

enum ls_status ls_device_launch(struct ls_virtual_device *device, const struct ls_kernel *kernel,
                                const struct ls_launch *launch)
{
    return (enum ls_status)device->interface->kernels->launch(device->state, kernel, launch);
}

void ls_device_release_kernel(struct ls_virtual_device *device, struct ls_kernel *kernel)
{
    device->interface->kernels->release(device->state, kernel);
}

// ---- Streams and events ----

enum ls_status ls_device_stream_open(struct ls_virtual_device *device, void **out)
{
    return (enum ls_status)device->interface->streams->open(device->state, out);
}

void ls_device_stream_close(struct ls_virtual_device *device, void *stream)
{
    device->interface->streams->close(device->state, stream);
}

enum ls_status ls_device_stream_native(struct ls_virtual_device *device, void *stream,
                                       struct ls_native_stream *out)
{
    return (enum ls_status)device->interface->streams->native(device->state, stream, out);
}

enum ls_status ls_device_event_open(struct ls_virtual_device *device, struct ls_event **out)
{
    return (enum ls_status)device->interface->streams->event_open(device->state, out);
}

void ls_device_event_close(struct ls_virtual_device *device, struct ls_event *event)
{
    device->interface->streams->event_close(device->state, event);
}

enum ls_status ls_device_event_record(struct ls_virtual_device *device, struct ls_event *event,
                                      void *stream)
{
    return (enum ls_status)device->interface->streams->event_record(device->state, event, stream);
}

enum ls_status ls_device_event_wait(struct ls_virtual_device *device, struct ls_event *event,
                                    void *stream)
{
    return (enum ls_status)device->interface->streams->event_wait(device->state, event, stream);
}

enum ls_status ls_device_event_query(const struct ls_virtual_device *device,
                                     const struct ls_event *event)
{
    return (enum ls_status)device->interface->streams->event_query(device->state, event);
}

// ---- Staging ----

void *ls_device_allocate_host(struct ls_virtual_device *device, uint64_t bytes)
{
    return device->interface->staging->allocate(device->state, bytes);
}

void ls_device_release_host(struct ls_virtual_device *device, void *memory)
{
    device->interface->staging->release(device->state, memory);
}

enum ls_status ls_device_copy_async(struct ls_virtual_device *device, struct ls_memory to,
                                    struct ls_memory from, uint64_t bytes, void *stream)
{
    return (enum ls_status)device->interface->staging->copy_async(device->state, to, from, bytes,
                                                                  stream);
}

// ---- Capture ----

enum ls_status ls_device_capture_begin(struct ls_virtual_device *device)
{
    return (enum ls_status)device->interface->capture->begin(device->state);
}

enum ls_status ls_device_capture_end(struct ls_virtual_device *device, struct ls_recording **out)
{
    return (enum ls_status)device->interface->capture->end(device->state, out);
}

enum ls_status ls_device_replay(struct ls_virtual_device *device,
                                const struct ls_recording *recording)
{
    return (enum ls_status)device->interface->capture->replay(device->state, recording);
}

void ls_device_release_recording(struct ls_virtual_device *device, struct ls_recording *recording)
{
    device->interface->capture->release(device->state, recording);
}
