// SPDX-License-Identifier: Apache-2.0
// The file is as large as the addresses that are reserved, and sealed at that; pages exist from the first write until their
// block is freed. Blocks are kept in a list beside it, in the order of their addresses: there are hundreds, and they are
// allocated once.
//
// A child process shares the file with its parent, so it allocates nothing there and frees nothing, without looking at the lock,
// which another thread of the parent may have held.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // memfd_create, fallocate
#endif
#include "core/base/shared_memory.h"

#include "core/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define RESERVED_BYTES (UINT64_C(64) << 30)
#define LEAST_RESERVED_BYTES (UINT64_C(1) << 30)
#define PAGE_BYTES UINT64_C(4096)
#define HUGE_PAGE_BYTES (UINT64_C(2) << 20)

struct block {
    uint64_t offset, bytes;
    bool used;
    struct block *next;
};

static struct {
    pthread_mutex_t lock;
    atomic_bool open;
    pid_t owner; // the process that opened it
    struct ls_segment segment;
    struct block *blocks; // of the whole segment, used and free
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_inherited(void)
{
    return atomic_load(&state.open) && state.owner != getpid();
}

// ---- The file ----

static int create_file(uint64_t bytes)
{
    struct rlimit most;
    // A larger file would be the end of the process (SIGXFSZ).
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY &&
        most.rlim_cur < bytes) {
        errno = EFBIG;
        return -1;
    }
    const int fd = memfd_create("lockstep-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || (ftruncate(fd, (off_t)bytes) == 0 &&
                   fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0))
        return fd;
    close(fd);
    return -1;
}

// At an address that is a multiple of large pages, so that offsets in the file have the alignment of addresses. NULL: no room.
static void *map_aligned(int fd, uint64_t bytes)
{
    char *room = mmap(NULL, bytes + HUGE_PAGE_BYTES, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return NULL;
    const uint64_t skip = (HUGE_PAGE_BYTES - (uintptr_t)room % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
    void *base = mmap(room + skip, bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0);
    if (base == MAP_FAILED) {
        munmap(room, bytes + HUGE_PAGE_BYTES);
        return NULL;
    }
    if (skip)
        munmap(room, skip);
    if (skip < HUGE_PAGE_BYTES)
        munmap((char *)base + bytes, HUGE_PAGE_BYTES - skip);
    return base;
}

// Half as large where there are not so many addresses.
static bool create_segment(struct ls_segment *out)
{
    for (uint64_t bytes = RESERVED_BYTES; bytes >= LEAST_RESERVED_BYTES; bytes /= 2) {
        const int fd = create_file(bytes);
        if (fd < 0)
            continue;
        void *base = map_aligned(fd, bytes);
        if (base) {
            madvise(base, bytes, MADV_HUGEPAGE); // a wish; without it all works, slower
            madvise(base, bytes,
                    MADV_DONTDUMP); // a core file would make pages of all that is reserved
            *out = (struct ls_segment){.fd = fd, .base = base, .bytes = bytes};
            return true;
        }
        close(fd);
    }
    return false;
}

enum ls_status ls_segment_open(void)
{
    enum ls_status status = LS_OK;
    if (is_inherited()) {
        ls_info("memory", "this process shares its parent's memory; values are copied for others");
        return LS_UNAVAILABLE;
    }
    pthread_mutex_lock(&state.lock);
    if (!atomic_load(&state.open)) {
        struct block *all = calloc(1, sizeof(*all));
        if (!all) {
            status = LS_OUT_OF_MEMORY;
        } else if (create_segment(&state.segment)) {
            all->bytes = state.segment.bytes;
            state.blocks = all;
            state.owner = getpid();
            atomic_store(&state.open, true);
        } else {
            free(all);
            status = LS_UNAVAILABLE;
        }
    }
    pthread_mutex_unlock(&state.lock);
    if (status == LS_UNAVAILABLE)
        ls_info("memory", "no memory that other processes can map: %s; values are copied for them",
                strerror(errno));
    return status;
}

bool ls_segment_get(struct ls_segment *out)
{
    if (!atomic_load(&state.open) || is_inherited())
        return false;
    *out = state.segment; // never changes again
    return true;
}

// ---- Blocks ----

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

// Cuts what is behind `bytes` off; false: no memory.
static bool cut(struct block *block, uint64_t bytes)
{
    if (block->bytes == bytes)
        return true;
    struct block *rest = malloc(sizeof(*rest));
    if (!rest)
        return false;
    *rest = (struct block){.offset = block->offset + bytes,
                           .bytes = block->bytes - bytes,
                           .used = block->used,
                           .next = block->next};
    block->bytes = bytes;
    block->next = rest;
    return true;
}

static void *allocate_block(uint64_t bytes, uint64_t alignment)
{
    for (struct block *block = state.blocks; block; block = block->next) {
        const uint64_t begin = round_up(block->offset, alignment), skip = begin - block->offset;
        if (block->used || skip > block->bytes || bytes > block->bytes - skip)
            continue;
        if (skip) {
            if (!cut(block, skip))
                return NULL;
            block = block->next;
        }
        if (!cut(block, bytes))
            return NULL;
        block->used = true;
        return (char *)state.segment.base + begin;
    }
    return NULL;
}

static void join_free_blocks(void)
{
    for (struct block *block = state.blocks; block && block->next;) {
        struct block *next = block->next;
        if (block->used || next->used) {
            block = next;
            continue;
        }
        block->bytes += next->bytes;
        block->next = next->next;
        free(next);
    }
}

static void free_block(uint64_t offset)
{
    struct block *block = state.blocks;
    while (block && block->offset != offset)
        block = block->next;
    if (!block)
        return;
    // The pages are the system's again; who still looks at them reads zeros.
    (void)fallocate(state.segment.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                    (off_t)block->bytes);
    block->used = false;
    join_free_blocks();
}

void *ls_segment_allocate(size_t bytes, size_t alignment)
{
    void *memory = NULL;
    if (alignment < sizeof(void *))
        alignment = sizeof(void *);
    if (bytes > PTRDIFF_MAX || alignment & (alignment - 1))
        return NULL;
    if (bytes >= LS_SEGMENT_LEAST_BYTES && alignment <= HUGE_PAGE_BYTES &&
        atomic_load(&state.open) && !is_inherited()) {
        const uint64_t least = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : PAGE_BYTES;
        pthread_mutex_lock(&state.lock);
        memory = allocate_block(round_up(bytes, PAGE_BYTES), alignment > least ? alignment : least);
        pthread_mutex_unlock(&state.lock);
    }
    if (!memory && posix_memalign(&memory, alignment, bytes ? bytes : 1))
        return NULL;
    return memory;
}

static bool is_inside(const void *memory)
{
    const uintptr_t base = (uintptr_t)state.segment.base, address = (uintptr_t)memory;
    return atomic_load(&state.open) && address >= base && address - base < state.segment.bytes;
}

void ls_segment_free(void *memory)
{
    if (!is_inside(memory)) {
        free(memory);
    } else if (!is_inherited()) {
        pthread_mutex_lock(&state.lock);
        free_block((uintptr_t)memory - (uintptr_t)state.segment.base);
        pthread_mutex_unlock(&state.lock);
    }
}
