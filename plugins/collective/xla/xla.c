// SPDX-License-Identifier: Apache-2.0
// Collective `xla`: the all-reduce of XLA between devices of `pjrt`, all in one process. In a
// recorded step it is an instruction of the one program that all replicas run together; else a
// program of its own. XLA chooses how values travel, so it can be neither simulated nor verified.
//
// What is promised about bits: all ranks get the same. In which order XLA adds is its own matter,
// so nothing is promised between runs on other devices or versions.
#include "core/plugin/transport.h" // LS_SCOPE_PROCESS
#include "plugins/device/pjrt/team.h"

#include <stdatomic.h>
#include <stdlib.h>

struct xla_family;

// One rank.
struct ls_collective {
    struct xla_family *family;
    uint32_t member; // of the team
};

// What the ranks have opened together.
struct xla_family {
    struct pjrt_stream calls; // a copy: streams may be closed before the last rank is
    struct pjrt_team *team;
    _Atomic uint32_t open; // ranks not yet closed
};

// ---- Opening ----

// The calls of the streams, which are all of one device plugin.
static int32_t find_calls(const struct ls_host *host, const struct ls_collective_config *config,
                          const struct pjrt_stream **out)
{
    for (uint32_t i = 0; i < config->count; i++) {
        const struct ls_collective_member *member = &config->members[i];
        struct ls_native_stream stream = {.struct_size = sizeof(stream)};
        if (!member->ops || !LS_HAS(member->ops, streams) || !member->ops->streams)
            return ls_host_fail(host, LS_UNAVAILABLE, "rank %u has no stream: --device=pjrt",
                                member->rank);
        const int32_t status =
            member->ops->streams->native(member->device, member->stream, &stream);
        if (status)
            return status;
        if (stream.family != LS_STREAM_PJRT)
            return ls_host_fail(host, LS_UNAVAILABLE,
                                "rank %u has no stream of PJRT: --device=pjrt", member->rank);
        *out = stream.native;
    }
    return LS_OK;
}

static int32_t open_team(const struct ls_host *host, const struct ls_collective_config *config,
                         struct xla_family *family)
{
    struct ls_device **devices = calloc(config->count, sizeof(struct ls_device *));
    if (!devices)
        return ls_host_fail(host, LS_OUT_OF_MEMORY, "no memory for ranks");
    for (uint32_t i = 0; i < config->count; i++)
        devices[i] = config->members[i].device;
    const struct pjrt_team_config wanted = {.host = host,
                                            .devices = devices,
                                            .count = config->count,
                                            .deadline_ns = config->deadline_ns};
    const int32_t status = family->calls.open_team(&wanted, &family->team);
    free(devices);
    return status;
}

static int32_t xla_open(const struct ls_host *host, const struct ls_collective_config *config,
                        struct ls_collective *const *ranks)
{
    const struct pjrt_stream *calls = NULL;
    if (config->count < config->world)
        return ls_host_fail(host, LS_UNAVAILABLE,
                            "its %u ranks must be in one process, and this one has %u: it does not "
                            "connect several workers yet; choose another collective",
                            config->world, config->count);
    int32_t status = find_calls(host, config, &calls);
    if (status)
        return status;
    struct xla_family *family = calloc(1, sizeof(*family));
    if (!family)
        return ls_host_fail(host, LS_OUT_OF_MEMORY, "no memory for ranks");
    family->calls = *calls;
    atomic_init(&family->open, config->count);
    status = open_team(host, config, family);
    if (status) {
        free(family);
        return status;
    }
    for (uint32_t i = 0; i < config->count; i++) {
        ranks[i]->family = family;
        ranks[i]->member = i;
    }
    return LS_OK;
}

static void xla_close(struct ls_collective *collective)
{
    struct xla_family *family = collective->family;
    if (atomic_fetch_sub(&family->open, 1) > 1)
        return;
    family->calls.close_team(family->team);
    free(family);
}

// ---- Running ----

static int32_t xla_run(struct ls_collective *collective, const struct ls_collective_run *run)
{
    return collective->family->calls.run(collective->family->team, collective->member, run);
}

static int32_t xla_poll(struct ls_collective *collective)
{
    return collective->family->calls.poll(collective->family->team);
}

static void xla_abort(struct ls_collective *collective)
{
    collective->family->calls.abort(collective->family->team);
}

static void xla_about(char *text, uint64_t bytes)
{
    snprintf(text, bytes, "XLA, as the plugin of the device brings it");
}

// ---- Tables ----

static const struct ls_collective_interface collective_interface = {
    .struct_size = sizeof(collective_interface),
    .operations = 1u << LS_ALL_REDUCE | 1u << LS_BROADCAST,
    .dtypes = 1u << LS_F32 | 1u << LS_F64 | 1u << LS_I32 | 1u << LS_I64 | 1u << LS_U8,
    .memory_kinds = 1u << LS_MEMORY_OPAQUE,
    .stream_families = 1u << LS_STREAM_PJRT,
    .scope = LS_SCOPE_PROCESS,
    .one_rank_a_device = 1,
    .capturable = 1,
    .state_bytes = sizeof(struct ls_collective),
    .open = xla_open,
    .close = xla_close,
    .run = xla_run,
    .poll = xla_poll,
    .abort = xla_abort,
    .about = xla_about,
    .same_recordings = 1,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE),
    .name = "xla",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "XLA's own all-reduce between devices of pjrt, within the program of a step",
    .interface = &collective_interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
