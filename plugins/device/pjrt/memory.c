// SPDX-License-Identifier: Apache-2.0
// Allocates, copies and clears.
#include "plugins/device/pjrt/device.h"

struct ls_buffer *pjrt_allocate(struct ls_device *device, uint64_t bytes)
{
    if (pjrt_check_recording(device, "an allocation"))
        return NULL;
    struct ls_buffer *buffer = calloc(1, sizeof(*buffer));
    if (!buffer)
        return NULL;
    buffer->bytes = bytes;
    buffer->host = device->host->allocate(device->host, bytes, LS_ALIGNMENT);
    if (!buffer->host) {
        free(buffer);
        return NULL;
    }
    memset(buffer->host, 0, bytes);
    return buffer;
}

void pjrt_free(struct ls_device *device, struct ls_buffer *buffer)
{
    if (!buffer)
        return;
    pjrt_drop_pieces(device, buffer);
    device->host->release(device->host, buffer->host);
    free(buffer->pieces);
    free(buffer->cuts);
    free(buffer);
}

// Where a place is in host memory, and that memory as new as the device's.
static int32_t host_address(struct ls_device *device, struct ls_memory memory, uint64_t bytes,
                            unsigned char **out)
{
    *out = memory.buffer ? memory.buffer->host + memory.offset : ls_address(memory);
    return memory.buffer ? pjrt_gather(device, memory.buffer, memory.offset, bytes) : LS_OK;
}

int32_t pjrt_copy(struct ls_device *device, struct ls_memory to, struct ls_memory from,
                  uint64_t bytes, void *stream)
{
    unsigned char *source;
    (void)stream; // all streams are one
    if (bytes == 0)
        return LS_OK;
    if (device->recording && to.buffer && from.buffer)
        return pjrt_record_copy(device, to, from, bytes);
    int32_t status = pjrt_check_recording(device, "a copy from or to host memory");
    if (!status)
        status = host_address(device, from, bytes, &source);
    if (!status && to.buffer)
        status = pjrt_forget(device, to.buffer, to.offset, bytes);
    if (!status)
        memmove(to.buffer ? to.buffer->host + to.offset : ls_address(to), source, bytes);
    return status;
}

int32_t pjrt_zero(struct ls_device *device, struct ls_memory memory, uint64_t bytes, void *stream)
{
    (void)stream;
    if (bytes == 0)
        return LS_OK;
    if (device->recording)
        return pjrt_record_zero(device, memory, bytes);
    const int32_t status =
        memory.buffer ? pjrt_forget(device, memory.buffer, memory.offset, bytes) : LS_OK;
    if (!status)
        memset(memory.buffer ? memory.buffer->host + memory.offset : ls_address(memory), 0, bytes);
    return status;
}
