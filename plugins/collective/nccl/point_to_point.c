// SPDX-License-Identifier: Apache-2.0
// Whether the ranks can be one communicator, asked before NCCL is: it would answer some of it with an error that names no
// rank, and the rest with a wait that never ends.
#include "plugins/collective/nccl/internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void nccl_version_text(int version, char *text, size_t bytes)
{
    if (version >= 10000)
        snprintf(text, bytes, "%d.%d.%d", version / 10000, version % 10000 / 100, version % 100);
    else // before 2.9
        snprintf(text, bytes, "%d.%d.%d", version / 1000, version % 1000 / 100, version % 100);
}

// The same in all containers of a machine, other after each start.
static void fill_host(char *text, size_t bytes)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    const bool read = file && fgets(text, (int)bytes, file);
    if (file)
        fclose(file);
    if (!read && gethostname(text, bytes))
        text[0] = '\0';
    text[bytes - 1] = '\0';
}

static void fill_setting(const char *name, char *text, size_t bytes)
{
    const char *value = getenv(name);
    snprintf(text, bytes, "%s", value ? value : "");
}

void nccl_peer_fill(struct nccl_peer *peer, int32_t status, int version,
                    const struct ls_native_stream *native)
{
    *peer = (struct nccl_peer){.status = status, .version = version, .index = native->index};
    fill_host(peer->host, sizeof(peer->host));
    if (native->identity[0])
        memcpy(peer->gpu, native->identity, sizeof(peer->gpu));
    else
        snprintf(peer->gpu, sizeof(peer->gpu), "%u", native->index);
    peer->gpu[sizeof(peer->gpu) - 1] = '\0';
    fill_setting("NCCL_ALGO", peer->algorithm, sizeof(peer->algorithm));
    fill_setting("NCCL_PROTO", peer->protocol, sizeof(peer->protocol));
}

static int32_t check_setting(const struct ls_host *host, const char *name, uint32_t rank,
                             const char *first, const char *other)
{
    return strcmp(first, other) == 0
               ? LS_OK
               : ls_host_fail(host, LS_USAGE,
                              "%s is '%s' on rank 0 and '%s' on rank %u; NCCL would wait for ever: "
                              "set the same everywhere",
                              name, first, other, rank);
}

static int32_t check_version(const struct ls_host *host, const struct nccl_peer *peers,
                             uint32_t rank)
{
    char first[24], other[24];
    if (peers[rank].version == peers[0].version)
        return LS_OK;
    nccl_version_text(peers[0].version, first, sizeof(first));
    nccl_version_text(peers[rank].version, other, sizeof(other));
    return ls_host_fail(host, LS_UNAVAILABLE,
                        "rank 0 has NCCL %s and rank %u has %s; it talks to its own version only: "
                        "install the same everywhere",
                        first, rank, other);
}

static int32_t refuse_gpu(const struct ls_host *host, const struct nccl_peer *peers, uint32_t first,
                          uint32_t second)
{
    const struct nccl_peer *one = &peers[first], *other = &peers[second];
    if (one->process == other->process)
        return ls_host_fail(host, LS_UNAVAILABLE,
                            "rank %u and rank %u are both on GPU %u; use hierarchical-copy, or "
                            "one replica a GPU",
                            first, second, one->index);
    return ls_host_fail(host, LS_UNAVAILABLE,
                        "rank %u and rank %u, of two workers on one host, are both on GPU %s; give "
                        "each worker its own by --devices=, or by LOCKSTEP_LOCAL_RANK and "
                        "LOCKSTEP_LOCAL_WORLD_SIZE, or start no more workers than GPUs",
                        first, second, one->gpu);
}

static int32_t check_gpu(const struct ls_host *host, const struct nccl_peer *peers, uint32_t rank)
{
    for (uint32_t i = 0; i < rank; i++)
        if (!strcmp(peers[i].host, peers[rank].host) && !strcmp(peers[i].gpu, peers[rank].gpu))
            return refuse_gpu(host, peers, i, rank);
    return LS_OK;
}

int32_t nccl_peers_check(const struct ls_host *host, const struct nccl_peer *peers, uint32_t world)
{
    for (uint32_t i = 0; i < world; i++)
        if (peers[i].status)
            return ls_host_fail(host, peers[i].status, "rank %u cannot take part; it says why", i);
    for (uint32_t i = 0; i < world; i++) {
        int32_t status = check_version(host, peers, i);
        if (!status)
            status = check_gpu(host, peers, i);
        if (!status)
            status = check_setting(host, "NCCL_ALGO", i, peers[0].algorithm, peers[i].algorithm);
        if (!status)
            status = check_setting(host, "NCCL_PROTO", i, peers[0].protocol, peers[i].protocol);
        if (status)
            return status;
    }
    return LS_OK;
}
