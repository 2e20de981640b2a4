// SPDX-License-Identifier: Apache-2.0
// The file of a server process: head, setup, which slot of each shard is current, which workers are done, slots.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // flock
#endif
#include "plugins/strategy/parameter-server/shard_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x0a31534452414853) // "SHARDS1\n"
#define LINE UINT64_C(64)
#define HEAD_BYTES UINT64_C(4096)
#define LOCK_TRIES 50 // a killed server's lock is free when the kernel has ended it
#define LOCK_PAUSE_NS 20000000L

struct shard_file_head {
    uint64_t magic;
    _Atomic uint64_t ready; // 1: all below and behind it can be used
    uint64_t bytes; // of the file
    uint64_t job;
    uint64_t setup_bytes;
    uint32_t workers, shards;
};

// The beginning of a slot; the numbers of the workers' last pushes follow, and from the next line on the store.
struct slot {
    uint64_t version;
    uint64_t applied[];
};

static uint64_t lines(uint64_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

static int32_t fail(const struct shard_file *file, const char *what)
{
    return ls_host_fail(file->host, LS_FAILED, "cannot %s %s: %s; folder=PATH names another folder",
                        what, file->path, strerror(errno));
}

// ---- Opening ----

static int32_t lock(const struct shard_file *file)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(file->fd, LOCK_EX | LOCK_NB) == 0)
            return LS_OK;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return fail(file, "lock");
        nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_NS}, NULL);
    }
    return ls_host_fail(file->host, LS_FAILED,
                        "%s is used by another server: expected one process for each server",
                        file->path);
}

static int32_t map(struct shard_file *file, uint64_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
    if (memory == MAP_FAILED)
        return fail(file, "map");
    file->map = memory;
    file->bytes = bytes;
    file->head = memory;
    return LS_OK;
}

static void unmap(struct shard_file *file)
{
    if (file->map)
        munmap(file->map, file->bytes);
    file->map = NULL;
    file->head = NULL;
    file->bytes = 0;
}

int32_t shard_file_open(const struct ls_host *host, const char *path, bool disk,
                        struct shard_file *out)
{
    struct shard_file file = {.host = host, .disk = disk, .fd = -1};
    struct stat about;
    snprintf(file.path, sizeof(file.path), "%s", path);
    file.fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file.fd < 0)
        return fail(&file, "open");
    int32_t status = LS_OK;
    if (fstat(file.fd, &about))
        status = fail(&file, "look at");
    else if (!S_ISREG(about.st_mode) || about.st_uid != geteuid() || about.st_nlink != 1)
        status = ls_host_fail(host, LS_FAILED,
                              "%s is not a file of this user alone: remove it, or name another "
                              "folder by folder=PATH",
                              path);
    if (!status)
        status = lock(&file);
    const uint64_t bytes = status ? 0 : (uint64_t)about.st_size;
    if (!status && bytes >= HEAD_BYTES)
        status = map(&file, bytes);
    if (status) {
        close(file.fd);
        return status;
    }
    *out = file;
    return LS_OK;
}

static void forget_layout(struct shard_file *file)
{
    file->host->release(file->host, file->slots);
    file->slots = file->slot_bytes = file->store_bytes = NULL;
}

void shard_file_close(struct shard_file *file, bool remove)
{
    if (!file->host)
        return;
    unmap(file);
    forget_layout(file);
    if (remove)
        unlink(file->path);
    close(file->fd);
    memset(file, 0, sizeof(*file));
    file->fd = -1;
}

const void *shard_file_setup(const struct shard_file *file, uint64_t *bytes, uint64_t *job)
{
    const struct shard_file_head *head = file->head;
    if (!head || head->magic != MAGIC || atomic_load(&head->ready) != 1 ||
        head->bytes != file->bytes || head->setup_bytes > file->bytes - HEAD_BYTES)
        return NULL;
    *bytes = head->setup_bytes;
    *job = head->job;
    return file->map + HEAD_BYTES;
}

// ---- The layout ----

static uint64_t slot_head(const struct shard_file *file)
{
    return lines(sizeof(struct slot) + file->workers * sizeof(uint64_t));
}

// One line for each shard: two servers of one cache line would not matter, but two writes to disk would.
static uint64_t currents_at(uint64_t setup_bytes)
{
    return HEAD_BYTES + lines(setup_bytes);
}

// Fills the arrays, and answers how large the file is.
static int32_t lay_out(struct shard_file *file, uint64_t setup_bytes, uint32_t workers,
                       uint32_t shards, const uint64_t *store_bytes, uint64_t *out)
{
    const uint64_t room = (uint64_t)(shards ? shards : 1) * sizeof(uint64_t);
    forget_layout(file);
    uint64_t *memory = file->host->allocate(file->host, 3 * room, LINE);
    if (!memory)
        return LS_OUT_OF_MEMORY;
    file->slots = memory;
    file->slot_bytes = memory + room / sizeof(uint64_t);
    file->store_bytes = memory + 2 * room / sizeof(uint64_t);
    file->workers = workers;
    file->shards = shards;
    uint64_t at = currents_at(setup_bytes) + shards * LINE + lines(workers);
    for (uint32_t i = 0; i < shards; i++) {
        file->store_bytes[i] = store_bytes[i];
        file->slot_bytes[i] = slot_head(file) + lines(store_bytes[i]);
        file->slots[i] = at;
        at += 2 * file->slot_bytes[i];
    }
    *out = at;
    return LS_OK;
}

int32_t shard_file_lay_out(struct shard_file *file, uint64_t setup_bytes, uint32_t workers,
                           uint32_t shards, const uint64_t *store_bytes)
{
    uint64_t bytes = 0;
    const int32_t status = lay_out(file, setup_bytes, workers, shards, store_bytes, &bytes);
    const struct shard_file_head *head = file->head;
    if (!status && (bytes != file->bytes || head->workers != workers || head->shards != shards))
        return LS_BAD_INPUT;
    return status;
}

// What is mapped but not there would be an error without a message later, where the disk is full.
static int32_t allocate(struct shard_file *file, uint64_t bytes)
{
    if (ftruncate(file->fd, 0))
        return fail(file, "empty");
    const int error = posix_fallocate(file->fd, 0, (off_t)bytes);
    errno = error;
    return error ? fail(file, "make room in") : LS_OK;
}

int32_t shard_file_make(struct shard_file *file, uint64_t job, const void *setup,
                        uint64_t setup_bytes, uint32_t workers, uint32_t shards,
                        const uint64_t *store_bytes)
{
    uint64_t bytes = 0;
    int32_t status = lay_out(file, setup_bytes, workers, shards, store_bytes, &bytes);
    unmap(file);
    if (!status)
        status = allocate(file, bytes);
    if (!status)
        status = map(file, bytes);
    if (status)
        return status;
    *file->head = (struct shard_file_head){.magic = MAGIC,
                                           .bytes = bytes,
                                           .job = job,
                                           .setup_bytes = setup_bytes,
                                           .workers = workers,
                                           .shards = shards};
    memcpy(file->map + HEAD_BYTES, setup, setup_bytes);
    return LS_OK;
}

static int32_t write_out(const struct shard_file *file, const void *memory, uint64_t bytes)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t at = (uint64_t)((const uint8_t *)memory - file->map);
    const uint64_t first = at / page * page;
    if (!file->disk || msync(file->map + first, at + bytes - first, MS_SYNC) == 0)
        return LS_OK;
    return fail(file, "write");
}

int32_t shard_file_set_ready(struct shard_file *file)
{
    const int32_t status = write_out(file, file->map, file->bytes);
    if (status)
        return status;
    atomic_store(&file->head->ready, 1);
    return write_out(file, file->head, sizeof(*file->head));
}

// ---- Steps ----

static _Atomic uint64_t *current_of(const struct shard_file *file, uint32_t shard)
{
    return (_Atomic uint64_t *)(void *)(file->map + currents_at(file->head->setup_bytes) +
                                        shard * LINE);
}

static struct slot *slot_of(const struct shard_file *file, uint32_t shard, uint64_t which)
{
    return (struct slot *)(void *)(file->map + file->slots[shard] +
                                   (which & 1) * file->slot_bytes[shard]);
}

static struct slot *current_slot(const struct shard_file *file, uint32_t shard)
{
    return slot_of(file, shard, atomic_load(current_of(file, shard)));
}

static void *store_of(const struct shard_file *file, struct slot *slot)
{
    return (uint8_t *)slot + slot_head(file);
}

void *shard_file_store(const struct shard_file *file, uint32_t shard)
{
    return store_of(file, current_slot(file, shard));
}

uint64_t shard_file_version(const struct shard_file *file, uint32_t shard)
{
    return current_slot(file, shard)->version;
}

uint64_t shard_file_applied(const struct shard_file *file, uint32_t shard, uint32_t worker)
{
    return current_slot(file, shard)->applied[worker];
}

// Behind the lines that say which slot of each shard is current.
static uint8_t *done_of(const struct shard_file *file, uint32_t worker)
{
    return file->map + currents_at(file->head->setup_bytes) + file->shards * LINE + worker;
}

int32_t shard_file_set_done(struct shard_file *file, uint32_t worker, bool done)
{
    *done_of(file, worker) = done;
    return write_out(file, done_of(file, worker), 1);
}

bool shard_file_is_done(const struct shard_file *file, uint32_t worker)
{
    return *done_of(file, worker) == 1;
}

void *shard_file_begin(struct shard_file *file, uint32_t shard)
{
    const uint64_t which = atomic_load(current_of(file, shard));
    struct slot *next = slot_of(file, shard, which + 1);
    memcpy(next, slot_of(file, shard, which), slot_head(file) + file->store_bytes[shard]);
    return store_of(file, next);
}

int32_t shard_file_commit(struct shard_file *file, uint32_t shard, uint32_t worker, uint64_t push)
{
    _Atomic uint64_t *current = current_of(file, shard);
    const uint64_t which = atomic_load(current);
    struct slot *next = slot_of(file, shard, which + 1);
    next->version++;
    next->applied[worker] = push;
    const int32_t status = write_out(file, next, slot_head(file) + file->store_bytes[shard]);
    if (status)
        return status;
    atomic_store(current, which + 1);
    return write_out(file, (const void *)current, sizeof(*current));
}
