// SPDX-License-Identifier: Apache-2.0
// Memory of the fake that may become windows, and windows: what NCCL wants of both, as its source of 2.28 has it.
#include "tests/support/nccl-fake/fake.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, GRANULE = 2 << 20 }; // of windows, and of what is allocated

// From ncclMemAlloc.
struct memory {
    char *block, *at; // as the runtime gave it, and aligned
    size_t bytes;
    struct memory *next;
};

static struct memory *memories; // under the lock

void nccl_fake_need(const char *call, int since)
{
    const int version = (int)double_setting("NCCL_FAKE_VERSION", 22809);
    if (version < since)
        nccl_fake_stop("version %d has no %s", version, call);
}

// ---- Memory ----

unsigned ncclMemAlloc(void **out, size_t bytes)
{
    nccl_fake_need("ncclMemAlloc", NCCL_LATER);
    struct memory *memory = calloc(1, sizeof(*memory));
    if (!memory)
        nccl_fake_stop("no memory");
    memory->bytes = (bytes + GRANULE - 1) / GRANULE * GRANULE;
    if (cudaMalloc((void **)&memory->block, memory->bytes + PAGE)) {
        free(memory);
        return ncclUnhandledCudaError;
    }
    memory->at = memory->block + (PAGE - (uintptr_t)memory->block % PAGE) % PAGE;
    pthread_mutex_lock(&nccl_fake_lock);
    memory->next = memories;
    memories = memory;
    nccl_fake_live.memories++;
    pthread_mutex_unlock(&nccl_fake_lock);
    *out = memory->at;
    return ncclSuccess;
}

static struct memory **find(const char *address)
{
    struct memory **place = &memories;
    while (*place && (address < (*place)->at || address >= (*place)->at + (*place)->bytes))
        place = &(*place)->next;
    return place;
}

void nccl_fake_check_memory(const void *address, size_t bytes)
{
    pthread_mutex_lock(&nccl_fake_lock);
    const struct memory *memory = *find(address);
    pthread_mutex_unlock(&nccl_fake_lock);
    if (!memory || (const char *)address + bytes > memory->at + memory->bytes)
        nccl_fake_stop("%p is registered, but not from ncclMemAlloc", address);
    if ((uintptr_t)address % PAGE || bytes == 0)
        nccl_fake_stop("%p (%zu bytes) begins on no page", address, bytes);
}

// The windows of communicators that are gone are gone, too.
static struct nccl_fake_clique *owner_of(const struct memory *memory, int *rank)
{
    for (struct nccl_fake_clique *clique = nccl_fake_cliques; clique; clique = clique->next)
        for (int i = 0; i < clique->world; i++) {
            const struct ncclComm *comm = clique->ranks[i];
            for (int k = 0; comm && !comm->aborted && !comm->closed && k < comm->asked; k++)
                if (comm->windows[k].open && comm->windows[k].memory >= memory->at &&
                    comm->windows[k].memory < memory->at + memory->bytes) {
                    *rank = i;
                    return clique;
                }
        }
    return NULL;
}

unsigned ncclMemFree(void *address)
{
    int rank = 0;
    nccl_fake_need("ncclMemFree", NCCL_LATER);
    pthread_mutex_lock(&nccl_fake_lock);
    struct memory **place = find(address), *memory = *place;
    if (!memory || memory->at != address)
        nccl_fake_stop("%p is freed, but not from ncclMemAlloc", address);
    if (owner_of(memory, &rank))
        nccl_fake_stop("memory of rank %d is freed under its window", rank);
    *place = memory->next;
    nccl_fake_live.memories--;
    pthread_mutex_unlock(&nccl_fake_lock);
    const unsigned error = cudaFree(memory->block);
    free(memory);
    return error ? ncclUnhandledCudaError : ncclSuccess;
}

// ---- Windows ----

void nccl_fake_ask(struct ncclComm *comm, const void *memory, size_t bytes)
{
    comm->windows[comm->asked] = (struct ncclWindow_vidmem){
        .comm = comm, .memory = memory, .bytes = bytes, .number = (uint64_t)comm->asked + 1};
    comm->asked++;
}

int nccl_fake_have_asked(const struct ncclComm *comm)
{
    const int last = comm->asked - 1;
    for (int i = 0; i < comm->clique->world; i++) {
        const struct ncclComm *other = comm->clique->ranks[i];
        if (other->asked <= last)
            return 0;
        if (other->windows[last].bytes != comm->windows[last].bytes)
            nccl_fake_stop(
                "rank %d registers %zu bytes, rank %d %zu: NCCL's windows are as large on all",
                comm->rank, comm->windows[last].bytes, other->rank, other->windows[last].bytes);
    }
    return 1;
}

void nccl_fake_answer(struct ncclComm *comm)
{
    struct ncclWindow_vidmem *window = &comm->windows[comm->asked - 1];
    window->open = 1;
    *comm->answer = window;
    nccl_fake_live.windows++;
}

unsigned ncclCommWindowDeregister(struct ncclComm *comm, struct ncclWindow_vidmem *window)
{
    nccl_fake_need("ncclCommWindowDeregister", NCCL_LATER);
    if (!window)
        return ncclSuccess;
    pthread_mutex_lock(&nccl_fake_lock);
    if (comm->aborted || comm->closed || window->comm != comm || !window->open)
        nccl_fake_stop("rank %d ends a window that is gone", comm->rank);
    if (comm->phase != NCCL_FAKE_IDLE || comm->arrived != comm->done)
        nccl_fake_stop("rank %d ends a window while it works", comm->rank);
    window->open = 0;
    nccl_fake_live.windows--;
    pthread_mutex_unlock(&nccl_fake_lock);
    return ncclSuccess;
}

int nccl_fake_open_windows(const struct ncclComm *comm)
{
    int count = 0;
    for (int i = 0; i < comm->asked; i++)
        count += comm->windows[i].open;
    return count;
}

void nccl_fake_find_window(struct nccl_fake_order *order, const void *from, const void *to)
{
    const struct ncclComm *comm = order->comm;
    for (int i = 0; i < comm->asked; i++) {
        const struct ncclWindow_vidmem *window = &comm->windows[i];
        const char *end = window->memory + window->bytes;
        if (!window->open || (const char *)from < window->memory || (const char *)from >= end ||
            (const char *)to < window->memory || (const char *)to >= end)
            continue;
        order->window = window->number;
        order->from_at = (uint64_t)((const char *)from - window->memory);
        order->to_at = (uint64_t)((const char *)to - window->memory);
        nccl_fake_live.symmetric++;
    }
}
