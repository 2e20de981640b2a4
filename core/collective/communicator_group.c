// SPDX-License-Identifier: Apache-2.0
// Opens and closes communicators: what the ranks of a process share, their streams, and the
// transport or library behind them.
#include "core/collective/internal.h"

#include "core/base/instance.h"
#include "core/base/log.h"
#include "core/base/memory.h"
#include "core/collective/endpoints.h"

#include <stdlib.h>
#include <string.h>

#define TRIED_CALLS_MOST (UINT64_C(1) << 20)

static void group_destroy(struct ls_communicator_group *group)
{
    if (!group)
        return;
    ls_streams_close(group);
    ls_proofs_destroy(group);
    ls_expectation_stop(&group->expectation);
    pthread_mutex_destroy(&group->lock);
    pthread_mutex_destroy(&group->proof_lock);
    pthread_mutex_destroy(&group->failure_lock);
    free(group->hosts);
    ls_surroundings_finish(&group->around);
    free(group->places);
    free(group->given);
    for (uint32_t i = 0; group->states && i < group->count; i++)
        ls_instance_destroy(group->states[i]);
    free(group->states);
    free(group->libraries);
    free(group->recorders);
    free(group->name);
    free(group->scope);
    free(group->answers);
    free(group->collective_text);
    free(group);
}

static enum ls_status allocate_ranks(struct ls_communicator_group *group,
                                     const struct ls_communicator_options *options)
{
    const size_t bytes = group->count * sizeof(*group->recorders);
    const size_t given = group->count * sizeof(*group->given);
    void *recorders = NULL;
    if (posix_memalign(&recorders, 64, bytes))
        return LS_OUT_OF_MEMORY;
    memset(recorders, 0, bytes);
    group->recorders = recorders;
    group->hosts = calloc(options->world, sizeof(*group->hosts));
    group->places = calloc(group->count, sizeof(*group->places));
    group->given = options->places ? malloc(given) : NULL;
    if (!group->hosts || !group->places || (options->places && !group->given))
        return LS_OUT_OF_MEMORY;
    if (options->hosts)
        memcpy(group->hosts, options->hosts, options->world * sizeof(*group->hosts));
    if (options->places)
        memcpy(group->given, options->places, given);
    struct ls_surroundings around = {0};
    if (options->around)
        around = *options->around;
    if (!around.hosts)
        around.hosts = group->hosts;
    return ls_surroundings_copy(&around, options->world, &group->around);
}

// Options that do not fit the world are refused here, once, and not by every rank that makes a
// plan.
static enum ls_status try_collective(struct ls_communicator_group *group)
{
    const struct ls_collective_call call = {
        .struct_size = sizeof(call),
        .operation = LS_ALL_REDUCE,
        .world = group->world,
        .hosts = group->around.hosts,
        .count = UINT64_C(1) << 20, // a usual size
        .element_bytes = 4,
        .host = group->collective_host,
        .cards = group->around.cards,
        .order = group->around.order,
    };
    struct ls_schedule_size size;
    enum ls_status status = LS_OK;
    if (ls_collective_is_native(group->algorithm))
        return LS_OK;
    if (!group->unproven)
        status = ls_expectation_start(&group->expectation);
    if (status)
        return status;
    ls_expectation_enter(&group->expectation);
    status = ls_schedule_measure(group->algorithm, &call, TRIED_CALLS_MOST, &size);
    ls_expectation_leave(&group->expectation);
    const char *reason = *size.reason ? size.reason : "it gives no reason; choose another";
    if (status == LS_UNSUPPORTED)
        ls_error(group->scope, "collective %s does not serve these %u ranks on their hosts: %s",
                 group->collective->name, group->world, reason);
    else if (status)
        ls_error(group->collective->name, "%s", reason);
    return status;
}

static enum ls_status group_create(const struct ls_communicator_options *options,
                                   struct ls_communicator_group **out)
{
    struct ls_communicator_group *group = calloc(1, sizeof(*group));
    if (!group)
        return LS_OUT_OF_MEMORY;
    group->collective = options->collective;
    group->collective_host = options->collective_host;
    group->transport = options->transport;
    group->algorithm = options->collective->interface;
    group->interface = options->transport ? options->transport->interface : NULL;
    group->world = options->world;
    group->first_rank = options->count ? options->first_rank : 0;
    group->count = options->count ? options->count : options->world;
    group->deadline_ns = options->deadline_ns;
    group->ask = options->ask;
    group->ask_context = options->ask_context;
    group->segment_bytes = options->segment_bytes;
    group->name = strdup(options->name ? options->name : "collective");
    group->scope = group->name ? strndup(group->name, strcspn(group->name, ".")) : NULL;
    group->collective_text = options->collective_text ? strdup(options->collective_text) : NULL;
    group->unproven = options->unproven;
    pthread_mutex_init(&group->lock, NULL);
    pthread_mutex_init(&group->proof_lock, NULL);
    pthread_mutex_init(&group->failure_lock, NULL);
    group->expectation = (struct ls_expectation){.scope = group->scope,
                                                 .name = group->collective->name,
                                                 .world = group->world,
                                                 .deadline_ns = group->deadline_ns,
                                                 .status = LS_PEER_LOST};
    const bool named = group->scope && (group->collective_text || !options->collective_text);
    enum ls_status status = named ? allocate_ranks(group, options) : LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_streams_open(group);
    if (!status)
        status = try_collective(group);
    if (status) {
        group_destroy(group);
        return status;
    }
    atomic_store(&group->open, group->count);
    *out = group;
    return LS_OK;
}

static void communicator_close(struct ls_communicator *communicator)
{
    if (!communicator)
        return;
    struct ls_communicator_group *group = communicator->group;
    ls_communicator_forget_calls(communicator);
    ls_endpoint_close(group->interface, communicator->transport);
    if (communicator->library)
        ls_communicator_end(communicator);
    // What computes on the library's memory is on the device's own stream.
    if (communicator->taken_count && !ls_stream_begin(communicator))
        ls_stream_drain(communicator);
    ls_library_close(communicator);
    free(communicator->numbers.next_send);
    free(communicator->numbers.next_receive);
    free(communicator->running);
    free(communicator->waiting);
    free(communicator->unsynchronized);
    free(communicator->recorded);
    free(communicator);
    if (atomic_fetch_sub(&group->open, 1) == 1)
        group_destroy(group);
}

static enum ls_status check_options(const struct ls_communicator_options *options)
{
    const char *name = options->name ? options->name : "collective";
    const struct ls_collective_interface *algorithm = options->collective->interface;
    const bool library = ls_collective_is_native(algorithm);
    const uint32_t count = options->count ? options->count : options->world;
    if (options->first_rank > options->world || count > options->world - options->first_rank ||
        (count < options->world && !options->exchange.call)) {
        ls_error(name, "%u ranks from %u of %u, and %s other process, do not make a communicator",
                 count, options->first_rank, options->world, options->exchange.call ? "an" : "no");
        return LS_USAGE;
    }
    if (options->world == 0 || (options->world > 1 && !options->transport && !library)) {
        ls_error(name, "%u ranks and %s transport do not make a communicator", options->world,
                 options->transport ? "a" : "no");
        return LS_USAGE;
    }
    if (algorithm->maximum_world && options->world > algorithm->maximum_world) {
        ls_error(name, "collective %s serves at most %u ranks, not %u; choose another",
                 options->collective->name, algorithm->maximum_world, options->world);
        return LS_UNSUPPORTED;
    }
    return library ? ls_library_check(options, name) : LS_OK;
}

static struct ls_communicator *communicator_create(struct ls_communicator_group *group,
                                                   uint32_t rank)
{
    struct ls_communicator *communicator = ls_calloc_cacheline(1, sizeof(*communicator));
    if (!communicator)
        return NULL;
    communicator->group = group;
    communicator->rank = rank;
    communicator->deadline_ns = group->deadline_ns;
    communicator->recorder = &group->recorders[rank - group->first_rank];
    struct ls_rank_place *place = &group->places[rank - group->first_rank];
    communicator->place = place->device ? place : NULL;
    if (!place->device && group->given &&
        ls_works_on_copies(group->algorithm, group->given[rank - group->first_rank].device))
        communicator->behind = group->given[rank - group->first_rank].device;
    communicator->numbers.next_send = ls_calloc_cacheline(group->world, sizeof(uint64_t));
    communicator->numbers.next_receive = ls_calloc_cacheline(group->world, sizeof(uint64_t));
    if (communicator->numbers.next_send && communicator->numbers.next_receive)
        return communicator;
    free(communicator->numbers.next_send);
    free(communicator->numbers.next_receive);
    free(communicator);
    return NULL;
}

// Where no rank's device has streams, the transport sees host memory.
static enum ls_status name_places(const struct ls_communicator_group *group,
                                  struct ls_transport_place **out)
{
    uint32_t devices = 0;
    for (uint32_t i = 0; i < group->count; i++)
        devices += group->places[i].device != NULL;
    *out = devices ? calloc(group->count, sizeof(**out)) : NULL;
    if (!devices)
        return LS_OK;
    if (devices < group->count) {
        ls_error(group->scope,
                 "%u of %u ranks have buffers in memory of devices; all must, or none", devices,
                 group->count);
        return LS_UNSUPPORTED;
    }
    for (uint32_t i = 0; *out && i < group->count; i++)
        (*out)[i] = (struct ls_transport_place){.struct_size = sizeof(**out),
                                                .ops = ls_device_interface(group->places[i].device),
                                                .device = group->places[i].device,
                                                .stream = group->places[i].stream};
    return *out ? LS_OK : LS_OUT_OF_MEMORY;
}

static enum ls_status open_transport(const struct ls_communicator_options *options,
                                     struct ls_communicator_group *group,
                                     struct ls_communicator **communicators)
{
    struct ls_transport_place *places;
    enum ls_status status = name_places(group, &places);
    if (status)
        return status;
    uint32_t *own = calloc(group->count, sizeof(*own));
    const struct ls_endpoints_options opening = {.transport = group->interface,
                                                 .host = options->transport_host,
                                                 .world = options->world,
                                                 .own = own,
                                                 .count = group->count,
                                                 .hosts = group->hosts,
                                                 .name = group->name,
                                                 .places = places,
                                                 .exchange = options->exchange,
                                                 .deadline_ns = options->deadline_ns};
    struct ls_transport **endpoints = calloc(group->count, sizeof(struct ls_transport *));
    for (uint32_t i = 0; own && i < group->count; i++)
        own[i] = group->first_rank + i;
    status = own && endpoints ? ls_endpoints_open(&opening, endpoints) : LS_OUT_OF_MEMORY;
    if (status == LS_UNSUPPORTED) { // an answer, which nobody has heard yet
        ls_error(group->scope, "transport %s cannot connect these %u ranks; choose another",
                 options->transport->name, options->world);
        status = LS_UNAVAILABLE;
    }
    for (uint32_t i = 0; !status && i < group->count; i++)
        communicators[i]->transport = endpoints[i];
    free(own);
    free(endpoints);
    free(places);
    return status;
}

// What the runs go through.
static enum ls_status open_way(const struct ls_communicator_options *options,
                               struct ls_communicator_group *group,
                               struct ls_communicator **communicators)
{
    if (ls_collective_is_native(group->algorithm))
        return ls_library_open(options, group, communicators);
    return options->world > 1 ? open_transport(options, group, communicators) : LS_OK;
}

enum ls_status ls_communicators_open(const struct ls_communicator_options *options,
                                     struct ls_communicator **out)
{
    struct ls_communicator_group *group = NULL;
    enum ls_status status = check_options(options);
    if (!status)
        status = group_create(options, &group);
    if (status)
        return status;
    const uint32_t count = group->count;
    struct ls_communicator **communicators = calloc(count, sizeof(struct ls_communicator *));
    uint32_t created = 0;
    while (communicators && created < count &&
           (communicators[created] = communicator_create(group, group->first_rank + created)))
        created++;
    if (created < count) {
        atomic_fetch_sub(&group->open, count - created);
        if (!created)
            group_destroy(group);
        status = LS_OUT_OF_MEMORY;
    } else {
        status = open_way(options, group, communicators);
    }
    if (status)
        ls_communicators_close(communicators, created);
    else
        memcpy(out, communicators, count * sizeof(struct ls_communicator *));
    free(communicators);
    return status;
}

void ls_communicators_close(struct ls_communicator **communicators, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        communicator_close(communicators[i]);
}
