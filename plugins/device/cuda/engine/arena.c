// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU in large pieces (chunks), which are the device's until it is closed, and are given out in blocks: first fit,
// free neighbours joined. So a run that frees and allocates again takes no more of the GPU, and no call of it waits for other
// devices on the GPU, as cudaFree() would. The chunks grow; what is larger than the next one gets one of its own.
// With arena=off each block is a chunk of its own, of exactly its size, so that tools which know allocations see its ends.
#include "plugins/device/cuda/engine/internal.h"

#include <stdlib.h>

#define UNIT UINT64_C(256) // of addresses and sizes
#define FIRST_CHUNK (UINT64_C(2) << 20)
#define LARGEST_CHUNK (UINT64_C(512) << 20)

// A part of a chunk, used or free. No two free ones are neighbours.
struct block {
    uint64_t at, bytes;
    bool used;
    struct block *next; // the neighbour behind it
};

struct cuda_chunk {
    char *memory;
    uint64_t bytes;
    struct block *blocks;
    struct cuda_chunk *next;
};

// ---- Chunks ----

static unsigned get_chunk(struct ls_device *device, uint64_t bytes)
{
    struct cuda_chunk *chunk = calloc(1, sizeof(*chunk));
    struct block *block = calloc(1, sizeof(*block));
    void *memory = NULL;
    const unsigned error =
        chunk && block ? device->calls->cudaMalloc(&memory, bytes) : cudaErrorMemoryAllocation;
    if (error) {
        device->calls->cudaGetLastError(); // the caller says how much it wanted in all
        free(chunk);
        free(block);
        return error;
    }
    *block = (struct block){.bytes = bytes};
    *chunk = (struct cuda_chunk){
        .memory = memory, .bytes = bytes, .blocks = block, .next = device->chunks};
    device->chunks = chunk;
    device->reserved += bytes;
    return cudaSuccess;
}

static void free_chunk(struct ls_device *device, struct cuda_chunk *chunk)
{
    device->calls->cudaFree(chunk->memory);
    device->reserved -= chunk->bytes;
    while (chunk->blocks) {
        struct block *block = chunk->blocks;
        chunk->blocks = block->next;
        free(block);
    }
    free(chunk);
}

// Gives back the chunks of which nothing is used; 0: there is none.
static int free_empty_chunks(struct ls_device *device)
{
    int count = 0;
    for (struct cuda_chunk **place = &device->chunks; *place;) {
        struct cuda_chunk *chunk = *place;
        if (chunk->blocks->used || chunk->blocks->next) {
            place = &chunk->next;
            continue;
        }
        *place = chunk->next;
        free_chunk(device, chunk);
        count++;
    }
    return count;
}

// A chunk in which `bytes` have room. Where the GPU has not enough for one that grows, one of this size alone; and at last what
// lies empty is given back for it.
static unsigned grow(struct ls_device *device, uint64_t bytes)
{
    const uint64_t next = device->next_chunk ? device->next_chunk : FIRST_CHUNK;
    unsigned error = get_chunk(device, bytes < next ? next : bytes);
    if (!error && bytes <= next)
        device->next_chunk = next < LARGEST_CHUNK ? 2 * next : next;
    if (error && bytes < next)
        error = get_chunk(device, bytes);
    if (error && free_empty_chunks(device))
        error = get_chunk(device, bytes);
    return error;
}

// ---- Blocks ----

static void *take_block(struct cuda_chunk *chunk, uint64_t bytes)
{
    struct block *block = chunk->blocks;
    while (block && (block->used || block->bytes < bytes))
        block = block->next;
    if (!block)
        return NULL;
    if (block->bytes > bytes) {
        struct block *rest = calloc(1, sizeof(*rest));
        if (!rest)
            return NULL;
        *rest = (struct block){
            .at = block->at + bytes, .bytes = block->bytes - bytes, .next = block->next};
        block->bytes = bytes;
        block->next = rest;
    }
    block->used = true;
    return chunk->memory + block->at;
}

static void *take(const struct ls_device *device, uint64_t bytes)
{
    void *memory = NULL;
    for (struct cuda_chunk *chunk = device->chunks; chunk && !memory; chunk = chunk->next)
        memory = take_block(chunk, bytes);
    return memory;
}

static void join_with_next(struct block *block)
{
    struct block *next = block->next;
    if (block->used || !next || next->used)
        return;
    block->bytes += next->bytes;
    block->next = next->next;
    free(next);
}

// The bytes given back; 0: nothing of this device lies there.
static uint64_t give_back(struct cuda_chunk *chunk, uint64_t at)
{
    struct block *before = NULL, *block = chunk->blocks;
    for (; block && block->at != at; block = block->next)
        before = block;
    if (!block || !block->used)
        return 0;
    const uint64_t bytes = block->bytes;
    block->used = false;
    join_with_next(block);
    if (before)
        join_with_next(before);
    return bytes;
}

// ---- For the device ----

static void *take_alone(struct ls_device *device, uint64_t bytes)
{
    const uint64_t size = bytes ? bytes : 1;
    if (get_chunk(device, size))
        return NULL;
    device->used += size;
    return take_block(device->chunks, size);
}

void *cuda_arena_take(struct ls_device *device, uint64_t bytes)
{
    if (device->alone)
        return take_alone(device, bytes);
    const uint64_t size = bytes < UNIT ? UNIT : (bytes + UNIT - 1) / UNIT * UNIT;
    if (size < bytes)
        return NULL; // more than an address can say
    void *memory = take(device, size);
    if (!memory && !grow(device, size))
        memory = take(device, size);
    device->used += memory ? size : 0;
    return memory;
}

void cuda_arena_give(struct ls_device *device, void *memory)
{
    for (struct cuda_chunk *chunk = device->chunks; chunk; chunk = chunk->next)
        if ((char *)memory >= chunk->memory && (char *)memory < chunk->memory + chunk->bytes)
            device->used -= give_back(chunk, (uint64_t)((char *)memory - chunk->memory));
    if (device->alone)
        free_empty_chunks(device);
}

void cuda_arena_finish(struct ls_device *device)
{
    while (device->chunks) {
        struct cuda_chunk *chunk = device->chunks;
        device->chunks = chunk->next;
        free_chunk(device, chunk);
    }
}

void cuda_memory_use(const struct ls_device *device, uint64_t *reserved, uint64_t *used)
{
    *reserved = device->reserved;
    *used = device->used;
}
