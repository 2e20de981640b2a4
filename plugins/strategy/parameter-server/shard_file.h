// SPDX-License-Identifier: Apache-2.0
// The shards of a server process in a file that is mapped into memory: whoever kills the server,
// the kernel still has every page of it, and a server that is started again goes on where it was.
// `disk` writes each step out before it counts, so that the machine may fail too.
//
// Each shard has two slots, and a number that says which is current. A step is made in the other
// slot: a copy of the values and optimizer states is updated there, with the version and the number
// of the last push of each worker beside it, and then the number changes: one store of 8 bytes, so
// a step is made as a whole or not at all, and what is known of pushes is always true of the
// values.
#ifndef LS_PARAMETER_SERVER_SHARD_FILE_H
#define LS_PARAMETER_SERVER_SHARD_FILE_H

#include "core/plugin/plugin.h"

#include <stdbool.h>

struct shard_file_head;

struct shard_file {
    const struct ls_host *host;
    char path[1024];
    int fd; // -1: not open
    bool disk;
    uint8_t *map; // NULL: nothing in it can be used yet
    uint64_t bytes;
    struct shard_file_head *head; // of the map
    uint32_t workers, shards;
    uint64_t *slots; // where the first slot of each shard is; NULL: not laid out
    uint64_t *slot_bytes;
    uint64_t *store_bytes;
};

// Opens or makes the file, and maps what a server has left in it. LS_FAILED, LS_UNAVAILABLE (said):
// another process uses it, or it belongs to somebody else.
int32_t shard_file_open(const struct ls_host *host, const char *path, bool disk,
                        struct shard_file *out);
// `remove`: nobody will go on with it. Takes a zeroed one.
void shard_file_close(struct shard_file *file, bool remove);

// The setup that is in it, and whose training it is; NULL: there is nothing to go on with.
const void *shard_file_setup(const struct shard_file *file, uint64_t *bytes, uint64_t *job);

// Where everything is, for shards whose stores take so many bytes each. LS_BAD_INPUT: the file has
// `ready` contents for others.
int32_t shard_file_lay_out(struct shard_file *file, uint64_t setup_bytes, uint32_t workers,
                           uint32_t shards, const uint64_t *store_bytes);
// A new file with this setup, zeroed slots and no steps. After shard_file_lay_out of nothing older.
// It counts from shard_file_set_ready on.
int32_t shard_file_make(struct shard_file *file, uint64_t job, const void *setup,
                        uint64_t setup_bytes, uint32_t workers, uint32_t shards,
                        const uint64_t *store_bytes);
int32_t shard_file_set_ready(struct shard_file *file);

// Of the current slot.
void *shard_file_store(const struct shard_file *file, uint32_t shard);
uint64_t shard_file_version(const struct shard_file *file, uint32_t shard); // steps, from 0
uint64_t shard_file_applied(const struct shard_file *file, uint32_t shard, uint32_t worker);

// A worker has made all its steps, or has come back. Kept as the shards are.
int32_t shard_file_set_done(struct shard_file *file, uint32_t worker, bool done);
bool shard_file_is_done(const struct shard_file *file, uint32_t worker);

// A step: returns the store of the other slot, a copy of the current one. Nothing counts before
// `commit`.
void *shard_file_begin(struct shard_file *file, uint32_t shard);
int32_t shard_file_commit(struct shard_file *file, uint32_t shard, uint32_t worker, uint64_t push);

#endif
