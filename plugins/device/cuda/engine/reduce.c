// SPDX-License-Identifier: Apache-2.0
// Reductions for collectives, and which GPUs reach each other's memory.
#include "plugins/device/cuda/engine/internal.h"

enum { PACK_BYTES = 16 }; // as CUDA_PACK_BYTES of reduce_body.h

// Packs where all lie alike between two of them; else every element by itself.
static void split(struct cuda_reduction *r, int64_t count, int64_t size)
{
    const uintptr_t to = (uintptr_t)r->to % PACK_BYTES;
    const bool alike = (!r->from || (uintptr_t)r->from % PACK_BYTES == to) &&
                       (!r->also || (uintptr_t)r->also % PACK_BYTES == to);
    r->head = to ? (PACK_BYTES - (int64_t)to) / size : 0;
    if (!alike || r->head > count)
        r->head = count;
    r->packs = (count - r->head) * size / PACK_BYTES;
    r->items = count - r->packs * (PACK_BYTES / size) + r->packs;
}

int32_t cuda_reduce(struct ls_device *device, const struct ls_device_reduction *call, void *stream)
{
    const bool known = call->dtype >= LS_F32 && call->dtype <= LS_U8;
    const uintptr_t size = known ? ls_dtype_bytes(call->dtype) : 1;
    const bool divides = call->divisor > 0;
    struct cuda_reduction r = {.to = ls_address(call->to),
                               .from = ls_address(call->from),
                               .also = ls_address(call->also),
                               .divisor = call->divisor,
                               .dtype = call->dtype,
                               .operation = divides ? 0 : call->reduction};
    const uintptr_t all = (uintptr_t)r.to | (uintptr_t)r.from | (uintptr_t)r.also;
    if (!known || (!divides && (call->reduction < LS_SUM || call->reduction > LS_MAX)) ||
        divides == (r.from != NULL) || all % size)
        return cuda_spoil(device, ls_host_fail(device->host, LS_UNSUPPORTED,
                                               "GPU %u: there is no such reduction (type %u, "
                                               "operation %u)",
                                               device->index, call->dtype, call->reduction));
    const int32_t status = cuda_enter(device, stream);
    if (status || call->count == 0)
        return status;
    split(&r, (int64_t)call->count, (int64_t)size);
    cuda_launched(device, "reduce");
    return cuda_start_reduction(device, &r);
}

int32_t cuda_can_access_peer(struct ls_device *device, struct ls_device *other)
{
    const struct cuda_calls *calls = device->calls;
    int able = device->index == other->index;
    int32_t status = cuda_enter(device, NULL);
    if (!status)
        status = cuda_wait(device, device->own, "opening peer access"); // cleared memory is cleared
    if (status)
        return status;
    device->reached |= able ? UINT64_C(1) << device->index % 64 : 0;
    if (able)
        return LS_OK;
    status = cuda_check(
        device, calls->cudaDeviceCanAccessPeer(&able, (int)device->index, (int)other->index),
        "asking for peer access");
    if (status)
        return status;
    if (!able || other->index >= 64)
        return ls_host_fail(device->host, LS_UNSUPPORTED,
                            "GPU %u cannot read memory of GPU %u: nvidia-smi topo -p2p r says why",
                            device->index, other->index);
    const unsigned error = calls->cudaDeviceEnablePeerAccess((int)other->index, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled)
        calls->cudaGetLastError(); // by another device of this process
    else
        status = cuda_check(device, error, "opening peer access");
    if (!status)
        device->reached |= UINT64_C(1) << other->index;
    return status;
}
