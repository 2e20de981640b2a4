// SPDX-License-Identifier: Apache-2.0
// Memory that NCCL allocates and registers at all ranks as a symmetric window, so that its kernels read and write that of the
// other GPUs at once, without copies through buffers of NCCL's. A window is registered before anything is captured; it ends
// before its memory and before the communicator.
#include "plugins/collective/nccl/internal.h"

#include <stdlib.h>

enum { UNIT = 4096 }; // of a window

struct nccl_memory {
    void *memory;
    struct ncclWindow_vidmem
        *window; // NULL: NCCL made none. It writes here some time after the call
    struct nccl_memory *next;
};

// NCCL takes the GPU that it finds current.
static int32_t choose_gpu(struct ls_collective *collective)
{
    const struct ls_collective_member *member = &collective->member;
    return member->ops->streams->native(member->device, member->stream, &collective->native);
}

// Where a window is missing, NCCL has said so to nobody.
static int32_t judge_window(const struct ls_collective *collective,
                            const struct nccl_memory *memory)
{
    const struct nccl_family *family = collective->family;
    if (memory->window)
        return LS_OK;
    if (family->needs_windows)
        return ls_host_fail(
            family->host, LS_UNAVAILABLE,
            "symmetric=on: NCCL makes no window on rank %u; NCCL_DEBUG=INFO says why, "
            "symmetric=auto does without",
            collective->member.rank);
    if (collective->member.rank == 0)
        family->host->log(family->host, LS_LOG_INFO,
                          "gradients are not in symmetric memory: NCCL makes no window "
                          "(NCCL_DEBUG=INFO says why)");
    return LS_OK;
}

int32_t nccl_allocate(struct ls_collective *collective, uint64_t bytes, void **out)
{
    const struct nccl_family *family = collective->family;
    const struct nccl_calls *calls = family->calls;
    const uint64_t size = (bytes + UNIT - 1) / UNIT * UNIT;
    if (!family->windows)
        return LS_OK;
    struct nccl_memory *memory = calloc(1, sizeof(*memory));
    int32_t status = memory
                         ? nccl_poll(collective)
                         : ls_host_fail(family->host, LS_OUT_OF_MEMORY, "no memory for a window");
    if (!status)
        status = choose_gpu(collective);
    if (!status && calls->ncclMemAlloc(&memory->memory, size))
        status = ls_host_fail(family->host, LS_OUT_OF_MEMORY,
                              "rank %u: NCCL finds no %.1f MB for gradients; symmetric=off takes "
                              "memory of the device",
                              collective->member.rank, (double)size * 1e-6);
    if (status) {
        free(memory);
        return status;
    }
    memory->next = collective->memory;
    collective->memory = memory;
    status =
        nccl_synchronize(collective,
                         calls->ncclCommWindowRegister(collective->comm, memory->memory, size,
                                                       &memory->window, NCCL_WIN_COLL_SYMMETRIC),
                         "registering memory (symmetric=off does without)");
    if (!status)
        status = judge_window(collective, memory);
    if (status)
        nccl_release(collective, memory->memory);
    else
        *out = memory->memory;
    return status;
}

// After an abort there are neither communicator nor windows.
void nccl_release(struct ls_collective *collective, void *address)
{
    const struct nccl_calls *calls = collective->family->calls;
    struct nccl_memory **place = &collective->memory;
    while (*place && (*place)->memory != address)
        place = &(*place)->next;
    struct nccl_memory *memory = *place;
    if (!memory)
        return;
    *place = memory->next;
    if (!choose_gpu(collective)) {
        int32_t status = LS_OK;
        if (!nccl_poll(collective) && memory->window)
            status = nccl_synchronize(
                collective, calls->ncclCommWindowDeregister(collective->comm, memory->window),
                "ending a window");
        if (!status) // else the window may still be there, and needs its memory
            calls->ncclMemFree(memory->memory);
    }
    free(memory);
}
