// SPDX-License-Identifier: Apache-2.0
// The shards of a server process: how they come from worker 0 or from the file, and how pushes are applied to them.
#include "plugins/strategy/parameter-server/remote_server.h"

#include <math.h>
#include <unistd.h>

void *remote_allocate(const struct remote_server *server, uint64_t count, uint64_t bytes)
{
    const struct ls_host *host = server->host->host;
    const uint64_t all = (count ? count : 1) * bytes;
    void *memory = host->allocate(host, all, 64);
    if (memory)
        memset(memory, 0, all);
    return memory;
}

void remote_release(const struct remote_server *server, void *memory)
{
    server->host->host->release(server->host->host, memory);
}

// ---- The setup ----

// The shards are one behind the other, and those of a bucket are neighbours.
static bool are_shards(const struct remote_shard *shards, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const bool in_order =
            i == 0 || (shards[i].first >= shards[i - 1].first &&
                       shards[i].first - shards[i - 1].first >= shards[i - 1].count &&
                       shards[i].bucket >= shards[i - 1].bucket);
        if (!in_order || !shards[i].count || shards[i].count > UINT64_MAX / 64 ||
            shards[i].first > UINT64_MAX / 64)
            return false;
    }
    return true;
}

// Opens a store for each shard of a setup whose numbers were checked.
static int32_t open_stores(struct remote_server *server, const struct remote_setup *setup,
                           const struct remote_shard *shards, uint64_t *store_bytes)
{
    const struct ls_server_host *host = server->host;
    int32_t status = host->learn(host, shards + setup->shards, setup->description_bytes);
    for (uint32_t i = 0; !status && i < setup->shards; i++) {
        server->held[i].shard = shards[i];
        status = host->open(host, shards[i].first, shards[i].count, &server->held[i].store,
                            &store_bytes[i]);
    }
    if (status || !setup->tally)
        return status;
    // The tally is behind the first shard's values and states, and is kept as they are.
    server->tally_count = setup->tally;
    server->tally_at = (store_bytes[0] + 63) / 64 * 64;
    store_bytes[0] = server->tally_at + remote_tally_bytes(setup->tally);
    return LS_OK;
}

static void forget(struct remote_server *server)
{
    remote_release(server, server->held);
    for (uint32_t i = 0; i < server->host->workers; i++) {
        remote_release(server, server->workers[i].sent);
        server->workers[i].sent = NULL;
    }
    server->held = NULL;
    server->held_count = 0;
    server->tally_count = 0;
    server->initials = 0;
}

static const struct remote_setup *check_setup(const void *data, uint64_t bytes)
{
    const struct remote_setup *setup = data;
    if (bytes < sizeof(*setup) || setup->shards > REMOTE_MOST_SHARDS || !setup->job ||
        setup->tally > (setup->shards ? REMOTE_MOST_TALLY : 0) ||
        setup->description_bytes > bytes - sizeof(*setup))
        return NULL;
    const uint64_t shards = setup->shards * sizeof(struct remote_shard);
    if (bytes - sizeof(*setup) - setup->description_bytes != shards ||
        !are_shards((const struct remote_shard *)(const void *)(setup + 1), setup->shards))
        return NULL;
    return setup;
}

// Stores for a setup, from a message or from the file; `store_bytes` gets what each takes.
static int32_t take_setup(struct remote_server *server, const void *data, uint64_t bytes,
                          uint64_t **store_bytes)
{
    const struct remote_setup *setup = check_setup(data, bytes);
    if (!setup)
        return LS_BAD_INPUT;
    forget(server);
    server->held = remote_allocate(server, setup->shards, sizeof(*server->held));
    *store_bytes = remote_allocate(server, setup->shards, sizeof(**store_bytes));
    if (!server->held || !*store_bytes)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < server->host->workers; i++) {
        server->workers[i].sent = remote_allocate(server, setup->shards, sizeof(uint64_t));
        if (!server->workers[i].sent)
            return LS_OUT_OF_MEMORY;
    }
    server->held_count = setup->shards;
    server->agreed = setup->agreed;
    return open_stores(server, setup, (const struct remote_shard *)(const void *)(setup + 1),
                       *store_bytes);
}

int32_t remote_shards_setup(struct remote_server *server, const void *data, uint64_t bytes)
{
    const struct remote_setup *setup = data;
    uint64_t *store_bytes = NULL;
    int32_t status = take_setup(server, data, bytes, &store_bytes);
    if (!status)
        status = shard_file_make(&server->file, setup->job, data, bytes, server->host->workers,
                                 setup->shards, store_bytes);
    remote_release(server, store_bytes);
    if (status) {
        forget(server);
        return status;
    }
    if (setup->shards == 0) {
        status = shard_file_set_ready(&server->file);
        server->job = status ? 0 : setup->job;
    }
    return status;
}

// With the last of them the training can begin.
int32_t remote_shards_initial(struct remote_server *server, const void *data, uint64_t bytes)
{
    const struct ls_server_host *host = server->host;
    const struct remote_initial *initial = data;
    if (bytes < sizeof(*initial) || initial->shard >= server->held_count ||
        initial->shard != server->initials)
        return LS_BAD_INPUT;
    struct remote_held *held = &server->held[initial->shard];
    if (bytes - sizeof(*initial) != held->shard.count * sizeof(float))
        return LS_BAD_INPUT;
    host->place(host, held->store, shard_file_store(&server->file, initial->shard));
    host->fill(host, held->store, (const float *)(const void *)(initial + 1));
    if (++server->initials < server->held_count)
        return LS_OK;
    const int32_t status = shard_file_set_ready(&server->file);
    uint64_t setup_bytes, job = 0;
    if (!status && !shard_file_setup(&server->file, &setup_bytes, &job))
        return LS_FAILED;
    server->job = job;
    return status;
}

// ---- The file ----

static int32_t name_file(const struct remote_server *server, char *out, size_t room)
{
    const struct ls_host *host = server->host->host;
    const char *folder = host->option(host, "folder");
    if (!folder)
        folder = server->host->folder ? server->host->folder : "/tmp";
    char job[128];
    size_t length = 0;
    for (const char *at = server->host->job; *at && length + 1 < sizeof(job); at++) {
        const bool plain = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
                           (*at >= '0' && *at <= '9') || *at == '-';
        job[length++] = plain ? *at : '_';
    }
    job[length] = '\0';
    const int written =
        snprintf(out, room, "%s/lockstep-%u-%s-server-%u-of-%u", folder, (unsigned)geteuid(), job,
                 server->host->server, server->host->servers);
    return written > 0 && (size_t)written < room
               ? LS_OK
               : ls_host_fail(host, LS_USAGE, "folder=%.100s... is too long", folder);
}

// What a server before this one has left. Nothing of it is used where it does not fit.
static int32_t go_on(struct remote_server *server)
{
    const struct ls_host *host = server->host->host;
    char text[1280];
    uint64_t bytes = 0, job = 0;
    const void *setup = shard_file_setup(&server->file, &bytes, &job);
    uint64_t *store_bytes = NULL;
    if (!setup)
        return LS_OK;
    int32_t status = take_setup(server, setup, bytes, &store_bytes);
    if (!status)
        status = shard_file_lay_out(&server->file, bytes, server->host->workers, server->held_count,
                                    store_bytes);
    remote_release(server, store_bytes);
    if (status == LS_BAD_INPUT) {
        forget(server);
        snprintf(text, sizeof(text), "%s is of another training: it is made anew",
                 server->file.path);
        host->log(host, LS_LOG_WARN, text);
        return LS_OK;
    }
    if (status)
        return status;
    for (uint32_t i = 0; i < server->held_count; i++)
        server->host->place(server->host, server->held[i].store,
                            shard_file_store(&server->file, i));
    server->job = job;
    server->goes_on = true;
    server->initials = server->held_count;
    for (uint32_t i = 0; i < server->host->workers; i++) {
        uint64_t least, most;
        remote_shards_position(server, i, &least, &most);
        server->workers[i].reached = least;
        server->workers[i].done = shard_file_is_done(&server->file, i);
    }
    snprintf(text, sizeof(text), "server %u goes on after %llu updates, with %s",
             server->host->server, (unsigned long long)remote_shards_updates(server),
             server->file.path);
    host->log(host, LS_LOG_WARN, text);
    return LS_OK;
}

int32_t remote_shards_open(struct remote_server *server)
{
    const struct ls_host *host = server->host->host;
    const char *durability = host->option(host, "durability");
    char path[1024];
    int32_t status = name_file(server, path, sizeof(path));
    if (!status)
        status = shard_file_open(host, path, durability && strcmp(durability, "disk") == 0,
                                 &server->file);
    return status ? status : go_on(server);
}

void remote_shards_close(struct remote_server *server, bool remove)
{
    if (server->workers)
        forget(server);
    shard_file_close(&server->file, remove);
}

void remote_shards_position(const struct remote_server *server, uint32_t worker, uint64_t *least,
                            uint64_t *most)
{
    *least = UINT64_MAX;
    *most = 0;
    for (uint32_t i = 0; i < server->held_count; i++) {
        const uint64_t applied = shard_file_applied(&server->file, i, worker);
        *least = applied < *least ? applied : *least;
        *most = applied > *most ? applied : *most;
    }
}

uint64_t remote_shards_updates(const struct remote_server *server)
{
    uint64_t updates = 0;
    for (uint32_t i = 0; i < server->held_count; i++)
        updates += shard_file_version(&server->file, i);
    return updates;
}

// ---- Pushes ----

uint64_t remote_shards_most(const struct remote_server *server)
{
    uint64_t most = 0, bucket = 0;
    for (uint32_t i = 0; i < server->held_count; i++) {
        const struct remote_shard *shard = &server->held[i].shard;
        bucket = (i && shard->bucket == server->held[i - 1].shard.bucket ? bucket : 0) +
                 shard->count * sizeof(float);
        most = bucket > most ? bucket : most;
    }
    return most + remote_tally_floats(server->tally_count) * sizeof(float) + REMOTE_SMALL;
}

static struct remote_tally *tally_of(const struct remote_server *server, void *store)
{
    return (struct remote_tally *)(void *)((uint8_t *)store + server->tally_at);
}

void remote_shards_tally(const struct remote_server *server, uint64_t epoch, double *out)
{
    const struct remote_tally *tally = tally_of(server, shard_file_store(&server->file, 0));
    const uint64_t bytes = server->tally_count * sizeof(*out);
    memset(out, 0, bytes);
    for (uint32_t i = 0; i < 2; i++)
        if (epoch && tally->epoch[i] == epoch)
            memcpy(out, tally->sums + i * server->tally_count, bytes);
}

// An epoch takes the place of the older one. What comes of one that is over, nobody asks for.
static void add_to_tally(const struct remote_server *server, struct remote_tally *tally,
                         uint64_t epoch, const float *sums)
{
    const uint32_t count = server->tally_count;
    const uint32_t older = tally->epoch[0] < tally->epoch[1] ? 0 : 1;
    const uint32_t which = tally->epoch[1 - older] == epoch ? 1 - older : older;
    double *own = tally->sums + (uint64_t)which * count;
    if (tally->epoch[which] > epoch)
        return;
    if (tally->epoch[which] < epoch)
        memset(own, 0, count * sizeof(*own));
    tally->epoch[which] = epoch;
    for (uint32_t i = 0; i < count; i++)
        own[i] += (double)sums[i];
}

// `sums`: of the worker's share, for the tally; NULL: none come with this shard.
static int32_t apply(struct remote_server *server, uint32_t worker, uint32_t index,
                     const struct remote_push *push, const float *gradient, const float *sums)
{
    const struct ls_server_host *host = server->host;
    struct remote_held *held = &server->held[index];
    struct shard_file *file = &server->file;
    if (shard_file_applied(file, index, worker) >= push->step) {
        server->counts.repeated++;
        return LS_OK;
    }
    const uint64_t version = shard_file_version(file, index);
    const uint64_t seen = server->workers[worker].sent[index];
    void *store = shard_file_begin(file, index);
    host->place(host, held->store, store);
    if (sums)
        add_to_tally(server, tally_of(server, store), push->epoch, sums);
    int32_t status = host->update(host, held->store, gradient, version + 1, push->learning_rate);
    if (!status)
        status = shard_file_commit(file, index, worker, push->step);
    if (!status && seen)
        distribution_add(&server->counts.statistics.missed, version + 1 - seen);
    server->counts.statistics.pushes++;
    return status;
}

int32_t remote_shards_push(struct remote_server *server, uint32_t worker, const void *data,
                           uint64_t bytes)
{
    const struct remote_push *push = data;
    if (bytes < sizeof(*push) || push->step == 0 || push->step == UINT64_MAX ||
        !isfinite(push->learning_rate) || push->learning_rate < 0)
        return LS_BAD_INPUT;
    uint32_t first = 0;
    while (first < server->held_count && server->held[first].shard.bucket != push->bucket)
        first++;
    uint64_t floats = 0;
    uint32_t end = first;
    for (; end < server->held_count && server->held[end].shard.bucket == push->bucket; end++)
        floats += server->held[end].shard.count;
    const uint64_t tally = first == 0 ? remote_tally_floats(server->tally_count) : 0;
    if (first == end || bytes - sizeof(*push) != (tally + floats) * sizeof(float))
        return LS_BAD_INPUT;
    const float *sums = (const float *)(const void *)(push + 1), *gradient = sums + tally;
    int32_t status = LS_OK;
    for (uint32_t i = first; !status && i < end; i++) {
        status = apply(server, worker, i, push, gradient, tally && i == 0 ? sums : NULL);
        gradient += server->held[i].shard.count;
    }
    return status;
}
