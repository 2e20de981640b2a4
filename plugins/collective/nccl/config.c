// SPDX-License-Identifier: Apache-2.0
// What NCCL is told of a communicator beside its ranks: how many thread blocks it may take, what it favours, and whether memory is
// registered. NCCL passes over settings that are newer than itself; here they are refused by name.
#include "plugins/collective/nccl/internal.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_CTAS = 64 }; // as many channels as NCCL has

static int32_t refuse(const struct ls_host *host, const char *option, int version)
{
    char text[24];
    nccl_version_text(version, text, sizeof(text));
    return ls_host_fail(host, LS_UNAVAILABLE, "%s=%s needs NCCL 2.27 or newer, this is %s", option,
                        host->option(host, option), text);
}

static int32_t read_policy(const struct ls_host *host, int version, ncclConfig_t *config)
{
    const char *policy = host->option(host, "policy");
    if (!policy || strcmp(policy, "auto") == 0)
        return LS_OK;
    if (version < NCCL_LATER)
        return refuse(host, "policy", version);
    if (getenv("NCCL_ALGO") || getenv("NCCL_PROTO"))
        return ls_host_fail(host, LS_USAGE,
                            "policy=%s: NCCL passes over it where algorithm or protocol is pinned; "
                            "leave algorithm=, protocol=, NCCL_ALGO and NCCL_PROTO away",
                            policy);
    config->CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY;
    return LS_OK;
}

// One rank has nobody to register memory for.
static int32_t read_symmetric(const struct ls_host *host, struct nccl_family *family)
{
    const char *symmetric = host->option(host, "symmetric");
    const int version = family->calls->version;
    char text[24], line[120];
    family->needs_windows = symmetric && strcmp(symmetric, "on") == 0;
    if (family->needs_windows && version < NCCL_LATER)
        return refuse(host, "symmetric", version);
    if (family->world == 1 || (symmetric && strcmp(symmetric, "off") == 0))
        return LS_OK;
    family->windows = version >= NCCL_LATER;
    nccl_version_text(version, text, sizeof(text));
    snprintf(line, sizeof(line),
             "gradients are not in symmetric memory: that needs NCCL 2.27 or newer, this is %s",
             text);
    if (!family->windows && family->ranks[0]->member.rank == 0)
        host->log(host, LS_LOG_INFO, line);
    return LS_OK;
}

int32_t nccl_configure(const struct ls_host *host, struct nccl_family *family)
{
    const double ctas = ls_host_number(host, "ctas");
    const int open = NCCL_CONFIG_UNDEF_INT;
    family->config = (ncclConfig_t){
        sizeof(ncclConfig_t),   NCCL_CONFIG_MAGIC,     NCCL_CONFIG_VERSION, .blocking = 0,
        .cgaClusterSize = open, .minCTAs = open,       .maxCTAs = open,     .splitShare = open,
        .trafficClass = open,   .collnetEnable = open, .CTAPolicy = open,   .shrinkShare = open,
        .nvlsCTAs = open};
    if (ctas < 0 || ctas > MOST_CTAS)
        return ls_host_fail(host, LS_USAGE, "ctas=%g: it is 1 to %d, or 0 for NCCL's choice", ctas,
                            MOST_CTAS);
    if (ctas > 0)
        family->config.maxCTAs = (int)ctas;
    const int32_t status = read_policy(host, family->calls->version, &family->config);
    return status ? status : read_symmetric(host, family);
}
