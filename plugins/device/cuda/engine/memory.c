// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU, pinned memory of the host, and copies, which are put on a stream in the order of the calls. A copy from
// host memory returns when the caller's bytes lie in pinned memory; one to host memory when they have arrived.
#include "plugins/device/cuda/engine/internal.h"

#include <string.h>

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

// ---- Memory ----

// Zeroed for every stream: the clearing is waited for where others could use the memory beside the own one.
struct ls_buffer *cuda_allocate(struct ls_device *device, uint64_t bytes)
{
    if (cuda_check_recording(device, "allocation") || cuda_enter(device, NULL))
        return NULL;
    struct ls_buffer *memory = cuda_arena_take(device, bytes);
    if (memory && (cuda_zero(device, ls_memory_of(memory), bytes, NULL) ||
                   ((device->streams || device->reached) &&
                    cuda_wait(device, device->own, "clearing new memory")))) {
        cuda_release(device, memory);
        return NULL;
    }
    return memory;
}

// Memory that a stream may still use stays.
void cuda_release(struct ls_device *device, struct ls_buffer *buffer)
{
    if (buffer && !cuda_enter(device, NULL) && !device->recording &&
        cuda_wait_all(device, "releasing memory") != LS_PEER_LOST)
        cuda_arena_give(device, buffer);
}

void *cuda_allocate_host(struct ls_device *device, uint64_t bytes)
{
    void *memory = NULL;
    const uint64_t size = bytes ? bytes : 1;
    if (cuda_check_recording(device, "allocation") || cuda_enter(device, NULL))
        return NULL;
    if (device->calls->cudaHostAlloc(&memory, size, 0)) {
        device->calls->cudaGetLastError(); // the caller says what it wanted it for
        return NULL;
    }
    memset(memory, 0, size);
    return memory;
}

void cuda_release_host(struct ls_device *device, void *memory)
{
    if (memory && !cuda_enter(device, NULL) && !device->recording &&
        cuda_wait_all(device, "releasing pinned memory") != LS_PEER_LOST)
        device->calls->cudaFreeHost(memory);
}

// ---- Copies ----

// Where an address lies.
struct place {
    bool gpu, pinned;
    int index; // of the GPU
};

static int32_t find_place(struct ls_device *device, const void *memory, struct place *out)
{
    struct cudaPointerAttributes attributes = {0};
    const int32_t status =
        cuda_check(device, device->calls->cudaPointerGetAttributes(&attributes, memory), "copying");
    if (status)
        return status;
    *out = (struct place){.gpu = attributes.type == cudaMemoryTypeDevice,
                          .pinned = attributes.type == cudaMemoryTypeHost,
                          .index = attributes.device};
    if (out->gpu && out->index != (int)device->index &&
        !(out->index < 64 && device->reached >> out->index & 1))
        return cuda_spoil(device,
                          ls_host_fail(device->host, LS_UNSUPPORTED,
                                       "GPU %u: nobody has asked whether memory of GPU %d is "
                                       "reached (`can_access_peer`)",
                                       device->index, out->index));
    return LS_OK;
}

// Begins a copy: finds where its ends lie.
static int32_t enter_copy(struct ls_device *device, const void *to, const void *from, void *stream,
                          struct place *places)
{
    int32_t status = cuda_enter(device, stream);
    if (!status)
        status = find_place(device, to, &places[0]);
    return status ? status : find_place(device, from, &places[1]);
}

static int32_t copy_between(struct ls_device *device, void *to, int to_gpu, const void *from,
                            int from_gpu, uint64_t bytes)
{
    const struct cuda_calls *calls = device->calls;
    return cuda_check(
        device,
        to_gpu == from_gpu && to_gpu == (int)device->index
            ? calls->cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, device->stream)
            : calls->cudaMemcpyPeerAsync(to, to_gpu, from, from_gpu, bytes, device->stream),
        "copying");
}

int32_t cuda_copy(struct ls_device *device, struct ls_memory target, struct ls_memory source,
                  uint64_t bytes, void *stream)
{
    void *to = ls_address(target);
    const void *from = ls_address(source);
    struct place places[2];
    if (bytes == 0)
        return LS_OK;
    int32_t status = enter_copy(device, to, from, stream, places);
    if (status)
        return status;
    if (places[0].gpu && places[1].gpu)
        return copy_between(device, to, places[0].index, from, places[1].index, bytes);
    status = cuda_check_recording(device, "a copy from or to host memory");
    if (status)
        return status;
    if (places[0].gpu)
        return copy_in(device, to, from, bytes);
    if (places[1].gpu)
        return copy_out(device, to, from, bytes);
    memmove(to, from, bytes);
    return LS_OK;
}

int32_t cuda_copy_async(struct ls_device *device, struct ls_memory target, struct ls_memory source,
                        uint64_t bytes, void *stream)
{
    void *to = ls_address(target);
    const void *from = ls_address(source);
    struct place places[2];
    if (bytes == 0)
        return LS_OK;
    const int32_t status = enter_copy(device, to, from, stream, places);
    if (status)
        return status;
    if (places[0].gpu && places[1].gpu)
        return copy_between(device, to, places[0].index, from, places[1].index, bytes);
    if (!(places[0].gpu && places[1].pinned) && !(places[0].pinned && places[1].gpu))
        return cuda_spoil(device, ls_host_fail(device->host, LS_UNSUPPORTED,
                                               "GPU %u: `copy_async` copies between memory "
                                               "of a GPU and of the table of staging",
                                               device->index));
    return cuda_check(device,
                      device->calls->cudaMemcpyAsync(to, from, bytes,
                                                     places[0].gpu ? cudaMemcpyHostToDevice
                                                                   : cudaMemcpyDeviceToHost,
                                                     device->stream),
                      "copying");
}

int32_t cuda_zero(struct ls_device *device, struct ls_memory memory, uint64_t bytes, void *stream)
{
    if (bytes == 0)
        return LS_OK;
    const int32_t status = cuda_enter(device, stream);
    return status ? status
                  : cuda_check(device,
                               device->calls->cudaMemsetAsync(ls_address(memory), 0, bytes,
                                                              device->stream),
                               "clearing memory");
}
