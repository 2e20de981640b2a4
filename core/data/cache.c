// SPDX-License-Identifier: Apache-2.0
// The file: a header of 32 bytes (magic, key, examples, bytes of an example), then one example after
// the other, each with the fields that were made, in their order. It is read with pread, not mapped,
// so that a file that shrinks is an error and not a SIGBUS.
#include "core/data/cache.h"

#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/data/crew.h"
#include "core/formats/replacement.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES ((uint64_t)8 << 20) // of examples that are made before they are written

struct header {
    char magic[8];
    uint64_t key, count, example_bytes;
};

static const char magic[8] = "LSCACHE1";

// What stands for the dataset: its fields are those of `made`, which stays open.
struct cache {
    struct ls_dataset dataset;
    struct ls_dataset *made;
    void *memory[LS_MAX_FIELDS]; // in memory
    const char *scope; // in a file
    char *path;
    int fd;
    uint64_t example_bytes;
};

static void cache_close(struct ls_dataset *dataset)
{
    struct cache *cache = dataset->storage;
    ls_dataset_close(cache->made);
    for (uint32_t i = 0; i < LS_MAX_FIELDS; i++)
        free(cache->memory[i]);
    if (cache->fd >= 0)
        close(cache->fd);
    free(cache->path);
    free(cache);
}

// Without `made`, which is its caller's until all went well. NULL: no memory.
static struct cache *create(const struct ls_dataset *made)
{
    struct cache *cache = calloc(1, sizeof(*cache));
    if (!cache)
        return NULL;
    cache->dataset = *made;
    cache->dataset.first = 0;
    cache->dataset.load = NULL;
    cache->dataset.made = made;
    cache->dataset.storage = cache;
    cache->dataset.close = cache_close;
    cache->fd = -1;
    return cache;
}

static uint64_t field_bytes(const struct ls_field *field)
{
    return field->values ? 0 : ls_field_elements(field) * ls_dtype_bytes(field->dtype);
}

static uint64_t example_bytes(const struct ls_dataset *dataset)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < dataset->field_count; i++)
        bytes += field_bytes(&dataset->fields[i]);
    return bytes;
}

// ---- In memory ----

static enum ls_status make_in_memory(void *context, uint32_t worker, uint64_t item)
{
    const struct cache *cache = context;
    void *fields[LS_MAX_FIELDS] = {NULL};
    (void)worker;
    for (uint32_t i = 0; i < cache->dataset.field_count; i++)
        if (cache->memory[i])
            fields[i] = (char *)cache->memory[i] + item * cache->dataset.fields[i].stride;
    return cache->made->load(cache->made, 0, cache->made->first + item, 1, fields);
}

enum ls_status ls_cache_in_memory(const char *scope, struct ls_dataset **dataset)
{
    struct cache *cache = create(*dataset);
    enum ls_status status = cache ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < cache->dataset.field_count; i++) {
        struct ls_field *field = &cache->dataset.fields[i];
        const uint64_t bytes = field_bytes(field);
        if (!bytes)
            continue;
        field->stride = bytes;
        cache->memory[i] = bytes <= SIZE_MAX / (*dataset)->count
                               ? malloc((size_t)(bytes * (*dataset)->count))
                               : NULL;
        if (cache->memory[i])
            continue;
        ls_error(scope,
                 "cache=memory: no memory for %" PRIu64 " examples of %" PRIu64
                 " bytes; cache=FILE keeps them in a file",
                 (*dataset)->count, bytes);
        status = LS_OUT_OF_MEMORY;
    }
    if (cache)
        cache->made = *dataset;
    if (!status)
        status = ls_crew_run_once(make_in_memory, cache, (*dataset)->count);
    if (status) {
        if (cache)
            cache->made = NULL;
        ls_dataset_close(cache ? &cache->dataset : NULL);
        return status;
    }
    for (uint32_t i = 0; i < cache->dataset.field_count; i++)
        if (cache->memory[i])
            cache->dataset.fields[i].values = cache->memory[i];
    *dataset = &cache->dataset;
    return LS_OK;
}

// ---- In a file ----

static enum ls_status read_at(const struct cache *cache, void *to, uint64_t bytes, uint64_t offset)
{
    for (uint64_t done = 0; done < bytes;) {
        const ssize_t got =
            pread(cache->fd, (char *)to + done, (size_t)(bytes - done), (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            ls_error(cache->scope, "%s: %s", cache->path,
                     got ? strerror(errno) : "the cache is cut off; delete it");
            return LS_BAD_INPUT;
        }
        done += (uint64_t)got;
    }
    return LS_OK;
}

static enum ls_status load_from_file(const struct ls_dataset *dataset, uint64_t epoch,
                                     uint64_t first, uint64_t count, void *const *fields)
{
    const struct cache *cache = dataset->storage;
    enum ls_status status = LS_OK;
    (void)epoch, (void)count; // 1
    uint64_t offset = sizeof(struct header) + first * cache->example_bytes;
    for (uint32_t i = 0; !status && i < dataset->field_count; i++) {
        const uint64_t bytes = field_bytes(&dataset->fields[i]);
        if (bytes)
            status = read_at(cache, fields[i], bytes, offset);
        offset += bytes;
    }
    return status;
}

// Examples that are made together.
struct piece {
    const struct ls_dataset *made;
    uint64_t first, example_bytes;
    char *memory;
};

static enum ls_status make_in_piece(void *context, uint32_t worker, uint64_t item)
{
    const struct piece *piece = context;
    void *fields[LS_MAX_FIELDS] = {NULL};
    char *memory = piece->memory + item * piece->example_bytes;
    (void)worker;
    for (uint32_t i = 0; i < piece->made->field_count; i++) {
        fields[i] = memory;
        memory += field_bytes(&piece->made->fields[i]);
    }
    return piece->made->load(piece->made, 0, piece->made->first + piece->first + item, 1, fields);
}

static enum ls_status write_all(const struct ls_replacement *file, const char *data, uint64_t bytes)
{
    while (bytes) {
        const ssize_t written = write(file->fd, data, (size_t)bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return ls_replacement_fail(file, "write the cache");
        data += written;
        bytes -= (uint64_t)written;
    }
    return LS_OK;
}

static enum ls_status make_pieces(const struct ls_dataset *made, const struct header *header,
                                  const struct ls_replacement *file)
{
    const uint64_t bytes = header->example_bytes;
    const uint64_t most = bytes < PIECE_BYTES ? PIECE_BYTES / bytes : 1;
    struct piece piece = {.made = made, .example_bytes = bytes, .memory = malloc(most * bytes)};
    enum ls_status status = piece.memory ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        status = write_all(file, (const char *)header, sizeof(*header));
    while (!status && piece.first < made->count) {
        const uint64_t rest = made->count - piece.first, count = rest < most ? rest : most;
        status = ls_crew_run_once(make_in_piece, &piece, count);
        if (!status)
            status = write_all(file, piece.memory, count * bytes);
        piece.first += count;
    }
    free(piece.memory);
    return status;
}

static enum ls_status make_file(const char *scope, const char *path, const struct ls_dataset *made,
                                const struct header *header)
{
    struct ls_replacement file = {0};
    enum ls_status status = ls_replacement_open(scope, path, &file);
    if (!status)
        status = make_pieces(made, header, &file);
    if (!status)
        return ls_replacement_commit(&file);
    ls_replacement_discard(&file);
    return status;
}

// Opens the file and says whether it is the one that `header` describes. A file of anything else is
// LS_BAD_INPUT.
static enum ls_status open_file(struct cache *cache, const struct header *header, bool *fits)
{
    struct header found = {0};
    struct stat about = {0};
    *fits = false;
    cache->fd = open(cache->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (cache->fd < 0 && errno == ENOENT)
        return LS_OK;
    if (cache->fd < 0 || fstat(cache->fd, &about)) {
        ls_error(cache->scope, "%s: %s", cache->path, strerror(errno));
        return LS_BAD_INPUT;
    }
    if (!S_ISREG(about.st_mode) || pread(cache->fd, &found, sizeof(found), 0) != sizeof(found) ||
        memcmp(found.magic, magic, sizeof(magic)) != 0) {
        ls_error(cache->scope,
                 "cache=%s: is a file of another kind, which is not overwritten; "
                 "delete it or give another name",
                 cache->path);
        return LS_BAD_INPUT;
    }
    *fits = memcmp(&found, header, sizeof(found)) == 0 &&
            (uint64_t)about.st_size == sizeof(found) + header->count * header->example_bytes;
    if (*fits)
        return LS_OK;
    ls_info(cache->scope, "%s: is of other examples, or their files have changed; it is made again",
            cache->path);
    close(cache->fd);
    cache->fd = -1;
    return LS_OK;
}

// So that the same options over other files, or another size of image, are another cache.
static bool make_header(const struct ls_dataset *made, uint64_t key, struct header *out)
{
    struct ls_hash *hash = ls_hash_create();
    if (!hash)
        return false;
    ls_hash_add(hash, &key, sizeof(key));
    ls_hash_add(hash, &made->identity, sizeof(made->identity));
    ls_hash_add(hash, &made->first, sizeof(made->first));
    for (uint32_t i = 0; i < made->field_count; i++)
        ls_hash_add(hash, made->fields[i].dims, sizeof(made->fields[i].dims));
    *out = (struct header){
        .key = ls_hash_get(hash), .count = made->count, .example_bytes = example_bytes(made)};
    memcpy(out->magic, magic, sizeof(magic));
    ls_hash_destroy(hash);
    return true;
}

enum ls_status ls_cache_in_file(const char *scope, const char *path, uint64_t key,
                                struct ls_dataset **dataset)
{
    struct cache *cache = create(*dataset);
    struct header header;
    bool fits = false;
    if (!cache || !make_header(*dataset, key, &header)) {
        free(cache);
        return LS_OUT_OF_MEMORY;
    }
    cache->scope = scope;
    cache->path = strdup(path);
    cache->example_bytes = header.example_bytes;
    cache->dataset.load = load_from_file;
    enum ls_status status = cache->path ? open_file(cache, &header, &fits) : LS_OUT_OF_MEMORY;
    if (!status && !fits) {
        status = make_file(scope, path, *dataset, &header);
        if (!status)
            status = open_file(cache, &header, &fits);
        if (!status && !fits) {
            ls_error(scope, "%s: changed while it was read", path);
            status = LS_BAD_INPUT;
        }
    }
    if (status) {
        ls_dataset_close(&cache->dataset);
        return status;
    }
    cache->made = *dataset;
    *dataset = &cache->dataset;
    return LS_OK;
}
