// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU, and copies. All of it is put on the device's one stream, in the order of the calls. A copy from host
// memory returns when the caller's bytes lie in pinned memory; one to host memory when they have arrived.
#include "plugins/device/cuda/heavy/heavy.h"

#include <string.h>

#define LEAST_BYTES 256

// ---- Pinned memory in slots ----

int32_t cuda_staging_open(struct ls_device *device)
{
    const struct cuda_calls *calls = device->calls;
    void *memory = NULL;
    int32_t status =
        cuda_check(device, calls->cudaHostAlloc(&memory, CUDA_SLOTS * CUDA_SLOT_BYTES, 0),
                   "making pinned host memory");
    device->staging = memory;
    for (int i = 0; !status && i < CUDA_SLOTS; i++)
        status = cuda_check(
            device, calls->cudaEventCreateWithFlags(&device->events[i], cudaEventDisableTiming),
            "making an event");
    return status;
}

void cuda_staging_close(struct ls_device *device)
{
    for (int i = 0; i < CUDA_SLOTS; i++)
        if (device->events[i])
            device->calls->cudaEventDestroy(device->events[i]);
    if (device->staging)
        device->calls->cudaFreeHost(device->staging);
}

// The next slot, once nothing reads or writes it any more. An event that was never recorded counts as over.
static int32_t take_slot(struct ls_device *device, uint32_t *out)
{
    const uint32_t slot = device->slot;
    const int32_t status =
        cuda_wait_event(device, device->events[slot], "waiting for pinned memory");
    if (status)
        return status;
    device->slot = (slot + 1) % CUDA_SLOTS;
    *out = slot;
    return LS_OK;
}

static char *slot_memory(const struct ls_device *device, uint32_t slot)
{
    return device->staging + slot * CUDA_SLOT_BYTES;
}

// Puts a copy between a slot and the GPU on the stream, and marks its end.
static int32_t put_copy(struct ls_device *device, uint32_t slot, void *to, const void *from,
                        uint64_t bytes, unsigned kind)
{
    const struct cuda_calls *calls = device->calls;
    const int32_t status = cuda_check(
        device, calls->cudaMemcpyAsync(to, from, bytes, kind, device->stream), "copying");
    return status ? status
                  : cuda_check(device, calls->cudaEventRecord(device->events[slot], device->stream),
                               "copying");
}

static uint64_t piece_of(uint64_t left)
{
    return left < CUDA_SLOT_BYTES ? left : CUDA_SLOT_BYTES;
}

static int32_t copy_in(struct ls_device *device, char *to, const char *from, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += CUDA_SLOT_BYTES) {
        const uint64_t piece = piece_of(bytes - at);
        uint32_t slot;
        int32_t status = take_slot(device, &slot);
        if (status)
            return status;
        memcpy(slot_memory(device, slot), from + at, piece);
        status = put_copy(device, slot, to + at, slot_memory(device, slot), piece,
                          cudaMemcpyHostToDevice);
        if (status)
            return status;
    }
    return LS_OK;
}

// Half of the slots are under way while the oldest is emptied.
static int32_t copy_out(struct ls_device *device, char *to, const char *from, uint64_t bytes)
{
    enum { AHEAD = CUDA_SLOTS / 2 };
    const uint64_t pieces = (bytes + CUDA_SLOT_BYTES - 1) / CUDA_SLOT_BYTES;
    uint32_t slots[AHEAD];
    for (uint64_t i = 0; i < pieces + AHEAD; i++) {
        if (i >= AHEAD && i - AHEAD < pieces) { // the piece that was asked for AHEAD turns ago
            const uint64_t at = (i - AHEAD) * CUDA_SLOT_BYTES;
            const uint32_t slot = slots[i % AHEAD];
            const int32_t status =
                cuda_wait_event(device, device->events[slot], "copying to host memory");
            if (status)
                return status;
            memcpy(to + at, slot_memory(device, slot), piece_of(bytes - at));
        }
        if (i < pieces) {
            const uint64_t at = i * CUDA_SLOT_BYTES;
            int32_t status = take_slot(device, &slots[i % AHEAD]);
            if (!status)
                status = put_copy(device, slots[i % AHEAD], slot_memory(device, slots[i % AHEAD]),
                                  from + at, piece_of(bytes - at), cudaMemcpyDeviceToHost);
            if (status)
                return status;
        }
    }
    return LS_OK;
}

// ---- The interface ----

void *cuda_allocate(struct ls_device *device, uint64_t bytes)
{
    void *memory = NULL;
    const uint64_t size = bytes < LEAST_BYTES ? LEAST_BYTES : bytes;
    if (cuda_select(device))
        return NULL;
    if (device->calls->cudaMalloc(&memory, size)) {
        device->calls->cudaGetLastError(); // the caller says how much it wanted in all
        return NULL;
    }
    if (cuda_zero(device, memory, size, NULL)) {
        device->calls->cudaFree(memory);
        return NULL;
    }
    return memory;
}

// cudaFree() waits by itself, but without a deadline. Memory that a stream may still use stays.
void cuda_release(struct ls_device *device, void *memory)
{
    if (!memory || cuda_select(device) || cuda_wait(device, "releasing memory") == LS_PEER_LOST)
        return;
    device->calls->cudaFree(memory);
}

static int32_t check_stream(struct ls_device *device, const void *stream)
{
    return stream ? ls_host_fail(device->host, LS_UNSUPPORTED,
                                 "GPU %u: the device has only its own stream", device->index)
                  : LS_OK;
}

// Whether the GPU holds it; LS_UNSUPPORTED when another GPU does.
static int32_t find_place(struct ls_device *device, const void *memory, bool *out)
{
    struct cudaPointerAttributes attributes = {0};
    const int32_t status =
        cuda_check(device, device->calls->cudaPointerGetAttributes(&attributes, memory), "copying");
    if (status)
        return status;
    *out = attributes.type == cudaMemoryTypeDevice;
    if (*out && attributes.device != (int)device->index)
        return ls_host_fail(device->host, LS_UNSUPPORTED,
                            "GPU %u: copies from and to another GPU (%d) are not there yet",
                            device->index, attributes.device);
    return LS_OK;
}

int32_t cuda_copy(struct ls_device *device, void *to, const void *from, uint64_t bytes,
                  void *stream)
{
    bool to_gpu = false, from_gpu = false;
    if (bytes == 0)
        return LS_OK;
    int32_t status = check_stream(device, stream);
    if (!status)
        status = cuda_select(device);
    if (!status)
        status = find_place(device, to, &to_gpu);
    if (!status)
        status = find_place(device, from, &from_gpu);
    if (status)
        return status;
    if (to_gpu && from_gpu)
        return cuda_check(device,
                          device->calls->cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                                                         device->stream),
                          "copying");
    if (to_gpu)
        return copy_in(device, to, from, bytes);
    if (from_gpu)
        return copy_out(device, to, from, bytes);
    memmove(to, from, bytes);
    return LS_OK;
}

int32_t cuda_zero(struct ls_device *device, void *memory, uint64_t bytes, void *stream)
{
    if (bytes == 0)
        return LS_OK;
    int32_t status = check_stream(device, stream);
    if (!status)
        status = cuda_select(device);
    return status ? status
                  : cuda_check(device,
                               device->calls->cudaMemsetAsync(memory, 0, bytes, device->stream),
                               "clearing memory");
}
