// SPDX-License-Identifier: Apache-2.0
// Memory of the fake: one range, mapped twice. The addresses handed out cannot be read; the others are the fake's own.
#define _GNU_SOURCE
#include "tests/support/cuda-fake/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(memory, bytes) ((void)(memory), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(memory, bytes) ((void)(memory), (void)(bytes))
#endif

#define RANGE_BYTES (UINT64_C(16) << 30) // of addresses; memory is taken when it is written
#define UNIT UINT64_C(256) // as cudaMalloc() aligns
#define ZONE UINT64_C(4096) // before and behind each block, of nobody: what is read there is NaN
#define ZONE_BYTE 0xff

struct block {
    uint64_t at, bytes;
    int device;
    struct block *next; // by address
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *shown, *own; // the two mappings
static struct block *blocks;
struct double_counts double_live;

long long double_setting(const char *name, long long otherwise)
{
    const char *text = getenv(name);
    return text && text[0] ? strtoll(text, NULL, 10) : otherwise;
}

struct double_work_counts double_handed;

void double_count(struct double_counts *out)
{
    *out = double_live;
}

void double_count_work(struct double_work_counts *out)
{
    *out = double_handed;
}

static int map_range(void)
{
    if (shown)
        return 1;
    const int file = memfd_create("cuda-fake", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)RANGE_BYTES))
        return 0;
    own = mmap(NULL, RANGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    char *none = mmap(NULL, RANGE_BYTES, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
    close(file);
    if (own == MAP_FAILED || none == MAP_FAILED)
        return 0;
    shown = none;
    return 1;
}

static int is_ours(const void *memory)
{
    const uintptr_t at = (uintptr_t)memory, start = (uintptr_t)shown;
    return shown && at >= start && at < start + RANGE_BYTES;
}

// The block in which the address lies, or at whose end; NULL. Under the lock.
static const struct block *find_block(const void *memory)
{
    const struct block *block = blocks;
    if (!is_ours(memory))
        return NULL;
    const uint64_t at = (uint64_t)((const char *)memory - shown);
    while (block && at > block->at + block->bytes)
        block = block->next;
    return block && at >= block->at ? block : NULL;
}

int double_owner(const void *memory)
{
    pthread_mutex_lock(&lock);
    const struct block *block = find_block(memory);
    const int device = block ? block->device : -1;
    pthread_mutex_unlock(&lock);
    return device;
}

void *double_reach(const void *memory)
{
    if (!memory || double_owner(memory) >= 0)
        return memory ? own + ((const char *)memory - shown) : NULL;
    fprintf(stderr, "cuda-fake: %p is given to the GPU, but is no memory of it\n", memory);
    abort();
}

void *double_reach_on(const struct CUstream_st *stream, const void *memory)
{
    void *out = double_reach(memory);
    const int device = double_device_of(stream);
    if (!memory || double_sees(device, double_owner(memory)))
        return out;
    fprintf(stderr, "cuda-fake: GPU %d is given %p of GPU %d without peer access\n", device, memory,
            double_owner(memory));
    abort();
}

static uint64_t used_bytes(int device)
{
    uint64_t bytes = 0;
    for (const struct block *block = blocks; block; block = block->next)
        if (block->device == device)
            bytes += block->bytes;
    return bytes;
}

// First fit, each block between zones of its own.
static struct block *take(uint64_t bytes, int device)
{
    struct block **place = &blocks, *block = calloc(1, sizeof(*block));
    uint64_t at = ZONE;
    while (*place && (*place)->at < at + bytes + 2 * ZONE) {
        at = ((*place)->at + (*place)->bytes + 2 * ZONE + UNIT - 1) / UNIT * UNIT;
        place = &(*place)->next;
    }
    if (!block || at + bytes + ZONE > RANGE_BYTES) {
        free(block);
        return NULL;
    }
    *block = (struct block){.at = at, .bytes = bytes, .device = device, .next = *place};
    *place = block;
    return block;
}

static void close_zone(char *zone)
{
    memset(zone, ZONE_BYTE, ZONE);
    ASAN_POISON_MEMORY_REGION(zone, ZONE);
}

static void open_zone(const char *zone, const char *where, const struct block *block)
{
    ASAN_UNPOISON_MEMORY_REGION(zone, ZONE);
    for (uint64_t i = 0; i < ZONE; i++)
        if ((unsigned char)zone[i] != ZONE_BYTE) {
            fprintf(stderr, "cuda-fake: somebody wrote %s the %llu bytes at %p\n", where,
                    (unsigned long long)block->bytes, (void *)(shown + block->at));
            abort();
        }
}

unsigned cudaMalloc(void **memory, size_t bytes)
{
    const int device = double_current();
    const unsigned spoils = double_capture_spoils();
    const uint64_t most = (uint64_t)double_setting("CUDA_FAKE_MEMORY", 8LL << 30);
    if (spoils)
        return spoils;
    pthread_mutex_lock(&lock);
    struct block *block = NULL;
    if (map_range() && bytes <= most && used_bytes(device) <= most - bytes)
        block = take(bytes, device);
    if (block) {
        close_zone(own + block->at - ZONE);
        close_zone(own + block->at + bytes);
        memset(own + block->at, 0xff, bytes);
        *memory = shown + block->at;
        double_add(&double_live.blocks, 1);
    }
    pthread_mutex_unlock(&lock);
    return block ? cudaSuccess : cudaErrorMemoryAllocation;
}

unsigned cudaMemGetInfo(size_t *unused, size_t *total)
{
    *total = (size_t)double_setting("CUDA_FAKE_MEMORY", 8LL << 30);
    pthread_mutex_lock(&lock);
    *unused = *total - used_bytes(double_current());
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

unsigned cudaFree(void *memory)
{
    const unsigned spoils = double_capture_spoils();
    if (spoils)
        return spoils;
    double_device_waits();
    pthread_mutex_lock(&lock);
    struct block **place = &blocks;
    while (*place && shown + (*place)->at != (char *)memory)
        place = &(*place)->next;
    struct block *block = *place;
    if (block) {
        *place = block->next;
        open_zone(own + block->at - ZONE, "before", block);
        open_zone(own + block->at + block->bytes, "behind", block);
        memset(own + block->at, 0xcd, block->bytes);
        double_add(&double_live.blocks, -1);
    }
    pthread_mutex_unlock(&lock);
    free(block);
    return block || !memory ? cudaSuccess : 1; // cudaErrorInvalidValue
}

// ---- Pinned memory ----

struct pinned {
    char *at;
    size_t bytes;
    struct pinned *next;
};

static struct pinned *pinned; // under the lock

static int is_pinned(const char *memory)
{
    pthread_mutex_lock(&lock);
    const struct pinned *part = pinned;
    while (part && (memory < part->at || memory >= part->at + part->bytes))
        part = part->next;
    pthread_mutex_unlock(&lock);
    return part != NULL;
}

void *double_pinned(const void *memory)
{
    if (is_pinned(memory))
        return (void *)(uintptr_t)memory;
    fprintf(stderr, "cuda-fake: %p is given to the GPU, but is no pinned memory\n", memory);
    abort();
}

unsigned cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    const unsigned spoils = double_capture_spoils();
    struct pinned *part = calloc(1, sizeof(*part));
    (void)flags;
    if (spoils || !part || (long long)bytes > double_setting("CUDA_FAKE_PINNED", 1LL << 40) ||
        posix_memalign(memory, 4096, bytes)) {
        free(part);
        return spoils ? spoils : cudaErrorMemoryAllocation;
    }
    memset(*memory, 0xff, bytes);
    pthread_mutex_lock(&lock);
    *part = (struct pinned){*memory, bytes, pinned};
    pinned = part;
    pthread_mutex_unlock(&lock);
    double_add(&double_live.pinned, 1);
    return cudaSuccess;
}

unsigned cudaFreeHost(void *memory)
{
    const unsigned spoils = double_capture_spoils();
    if (spoils)
        return spoils;
    pthread_mutex_lock(&lock);
    struct pinned **place = &pinned;
    while (*place && (*place)->at != memory)
        place = &(*place)->next;
    struct pinned *part = *place;
    if (part)
        *place = part->next;
    pthread_mutex_unlock(&lock);
    if (!part)
        return 1; // cudaErrorInvalidValue
    free(part);
    free(memory);
    double_add(&double_live.pinned, -1);
    return cudaSuccess;
}

unsigned cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *memory)
{
    const int device = double_owner(memory), host = is_pinned(memory);
    memset(out, 0, sizeof(*out));
    if (device < 0 && is_ours(memory)) {
        fprintf(stderr, "cuda-fake: %p lies in no block of the GPU\n", memory);
        abort();
    }
    out->type = device >= 0 ? cudaMemoryTypeDevice : host ? cudaMemoryTypeHost : 0;
    out->device = device >= 0 ? device : 0;
    return cudaSuccess;
}
