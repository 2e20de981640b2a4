// SPDX-License-Identifier: Apache-2.0
// A strategy's channels to server processes: connections of core/wire.
#include "core/strategy/internal.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/strategy/description.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMPLETES_NS UINT64_C(500000000) // that an interrupted worker waits for a server

struct ls_strategy_channel {
    struct ls_channel channel;
    struct ls_channel_wait wait;
};

struct server {
    char address[LS_HOST_BYTES];
    uint16_t port;
};

struct ls_driver_channels {
    struct ls_strategy_channels table;
    uint8_t key[LS_SECURE_KEY];
    bool sealed, insecure;
    const atomic_bool *interrupted;
    _Atomic uint64_t interrupted_ns; // since when that is known; 0: it is not
    struct server servers[];
};

// ---- The calls ----

// Asked where nothing moves. An interrupted worker completes its step, but not where a server keeps
// it waiting: then that is what has ended the step.
static bool is_aborted(void *context)
{
    struct ls_driver *driver = context;
    struct ls_driver_channels *channels = driver->channels;
    uint64_t since = atomic_load(&channels->interrupted_ns);
    if (atomic_load(&driver->aborted))
        return true;
    if (!channels->interrupted || !atomic_load(channels->interrupted))
        return false;
    if (!since)
        atomic_store(&channels->interrupted_ns, since = ls_clock_ns());
    if (ls_clock_ns() - since <= COMPLETES_NS)
        return false;
    ls_driver_fail(driver, LS_INTERRUPTED);
    ls_warn(ls_driver_name(driver), "interrupted while this worker waits for a server: it leaves "
                                    "its step, with the weights that servers gave it last");
    return true;
}

static int32_t host_connect(const struct ls_strategy_host *host, uint32_t server,
                            struct ls_strategy_channel **out)
{
    struct ls_driver *driver = ls_driver_of(host);
    const struct ls_driver_channels *channels = driver->channels;
    if (server >= channels->table.servers) {
        ls_error(ls_driver_name(driver),
                 "channels->connect to server %u: there are %u; an error of the plugin", server,
                 channels->table.servers);
        return LS_FAILED;
    }
    char name[32];
    snprintf(name, sizeof(name), "server %u", server);
    struct ls_strategy_channel *channel = calloc(1, sizeof(*channel));
    if (!channel)
        return LS_OUT_OF_MEMORY;
    channel->wait = (struct ls_channel_wait){.patience_ns = driver->options.deadline_ns,
                                             .stop = {is_aborted, driver}};
    const struct ls_reach reach = {
        .name = name,
        .address = channels->servers[server].address,
        .port = channels->servers[server].port,
        .key = channels->key,
        .open_to_all = !channels->sealed && !channels->insecure,
        .patience_ns = channel->wait.patience_ns,
        .stop = channel->wait.stop,
        .own = "worker",
        .all = "workers and servers",
        .expected = "the same LOCKSTEP_SECRET or LOCKSTEP_SECRET_FILE for all workers and servers"};
    const enum ls_status status = ls_channel_reach(&reach, channels->sealed, &channel->channel);
    if (status)
        free(channel);
    else
        *out = channel;
    return (int32_t)status;
}

static void host_close(struct ls_strategy_channel *channel)
{
    if (!channel)
        return;
    ls_channel_finish(&channel->channel);
    free(channel);
}

static int32_t host_send(struct ls_strategy_channel *channel, uint32_t kind,
                         const struct ls_message_piece *pieces, uint32_t count)
{
    struct ls_channel_piece few[8] = {{0}};
    const bool many = count > sizeof(few) / sizeof(few[0]);
    struct ls_channel_piece *own = many ? calloc(count, sizeof(*own)) : few;
    if (!own)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < count; i++)
        own[i] = (struct ls_channel_piece){pieces[i].data, pieces[i].bytes};
    const enum ls_status status =
        ls_channel_send(&channel->channel, kind, own, count, &channel->wait);
    if (many)
        free(own);
    return (int32_t)status;
}

static int32_t host_receive(struct ls_strategy_channel *channel, uint32_t *kind, uint64_t *bytes)
{
    return (int32_t)ls_channel_receive(&channel->channel, kind, bytes, &channel->wait);
}

static int32_t host_read(struct ls_strategy_channel *channel, void *memory, uint64_t bytes)
{
    return (int32_t)ls_channel_read(&channel->channel, memory, bytes, &channel->wait);
}

static int32_t host_describe(const struct ls_strategy_host *host, void *out, uint64_t room,
                             uint64_t *bytes)
{
    const struct ls_driver *driver = ls_driver_of(host);
    const struct ls_described described = {.plan = driver->plan,
                                           .optimizer = &driver->optimizer,
                                           .seed = driver->options.seed,
                                           .agreement = driver->agreement};
    return (int32_t)ls_describe(&described, out, room, bytes);
}

static void host_go_on(const struct ls_strategy_host *host, uint64_t steps)
{
    atomic_store(&ls_driver_of(host)->steps_gone, steps);
}

static int32_t host_read_tally(const struct ls_strategy_host *host, uint64_t *epoch, float *out)
{
    const struct ls_driver *driver = ls_driver_of(host);
    const struct ls_driver_member *member = ls_driver_find_member(host, "read_tally", 0);
    *epoch = driver->epoch;
    if (!member || !out)
        return member ? LS_OK : LS_FAILED;
    struct ls_replica *replica = member->replica;
    const struct ls_memory counts = ls_replica_memory(replica, LS_BUFFER_COUNTS);
    float sums[LS_STEP_STATS];
    enum ls_status status = ls_replica_read_step_stats(replica, sums);
    memcpy(out, sums, LS_SUMS * sizeof(*out));
    if (!status && ls_replica_count_slots(replica))
        status = ls_replica_step_counts(replica);
    if (!status && ls_replica_count_slots(replica))
        status = ls_device_copy(ls_replica_device(replica), ls_host_memory(out + LS_SUMS), counts,
                                ls_replica_count_slots(replica) * sizeof(*out), NULL);
    return (int32_t)status;
}

static void host_give_tally(const struct ls_strategy_host *host, uint64_t epoch, const double *sums)
{
    struct ls_driver *driver = ls_driver_of(host);
    driver->tally_epoch = epoch;
    memcpy(driver->tally, sums, driver->channels->table.tally_count * sizeof(*sums));
}

void ls_driver_begin_epoch(struct ls_driver *driver, uint64_t first_step)
{
    driver->epoch = first_step;
}

const double *ls_driver_tally(const struct ls_driver *driver)
{
    return driver->tally_epoch && driver->tally_epoch == driver->epoch ? driver->tally : NULL;
}

uint64_t ls_driver_steps_gone(const struct ls_driver *driver)
{
    return atomic_load(&driver->steps_gone);
}

// ---- Opening ----

enum ls_status ls_driver_open_channels(struct ls_driver *driver)
{
    const struct ls_channels_options *options = driver->options.channels;
    if (!options)
        return LS_OK;
    const struct ls_worker_place *place = options->place;
    if (!driver->ops->serve) {
        ls_error("--strategy",
                 "strategy '%s' has no servers that are processes of their own; use "
                 "parameter-server, or start workers alone",
                 ls_driver_name(driver));
        return LS_USAGE;
    }
    struct ls_driver_channels *channels =
        calloc(1, sizeof(*channels) + place->servers * sizeof(channels->servers[0]));
    if (!channels)
        return LS_OUT_OF_MEMORY;
    driver->channels = channels;
    channels->table =
        (struct ls_strategy_channels){.struct_size = sizeof(channels->table),
                                      .servers = place->servers,
                                      .worker = place->number,
                                      .workers = place->workers,
                                      .connect = host_connect,
                                      .close = host_close,
                                      .send = host_send,
                                      .receive = host_receive,
                                      .read = host_read,
                                      .describe = host_describe,
                                      .go_on = host_go_on,
                                      .tally_count = LS_SUMS + driver->options.parts[0].count_slots,
                                      .read_tally = host_read_tally,
                                      .give_tally = host_give_tally};
    driver->tally = calloc(channels->table.tally_count, sizeof(*driver->tally));
    if (!driver->tally)
        return LS_OUT_OF_MEMORY;
    channels->sealed = options->secret != NULL;
    channels->insecure = options->insecure;
    channels->interrupted = options->interrupted;
    driver->table.channels = &channels->table;
    if (driver->options.agreement)
        snprintf(driver->agreement, sizeof(driver->agreement), "%s", driver->options.agreement);
    driver->options.channels = NULL; // the caller's, as this is
    driver->options.agreement = NULL;
    enum ls_status status = ls_channel_key(options->secret, channels->key);
    for (uint32_t i = 0; !status && i < place->servers; i++)
        status = ls_worker_place_server(place, i, channels->servers[i].address,
                                        &channels->servers[i].port);
    return status;
}

void ls_driver_close_channels(struct ls_driver *driver)
{
    if (driver->channels)
        sodium_memzero(driver->channels->key, sizeof(driver->channels->key));
    free(driver->channels);
    free(driver->tally);
}
