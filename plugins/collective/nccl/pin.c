// SPDX-License-Identifier: Apache-2.0
// The algorithm and the protocol of NCCL. Its interface has no way to name them: it reads NCCL_ALGO and NCCL_PROTO whenever it
// makes a communicator. So the options set these, before it reads them, unless somebody else has set them otherwise.
#include "plugins/collective/nccl/internal.h"

#include <stdlib.h>
#include <string.h>

struct choice {
    const char *option, *value;
};

// One that is for all-reduce alone leaves the ring for the other operations.
static const struct choice algorithms[] = {
    {"ring", "Ring"},
    {"tree", "Ring;allreduce:Tree"},
    {"nvls", "Ring;allreduce:NVLS"},
    {"nvls_tree", "Ring;allreduce:NVLSTree"},
    {NULL, NULL},
};
static const struct choice protocols[] = {
    {"simple", "Simple"},
    {"ll", "LL"},
    {"ll128", "LL128"},
    {NULL, NULL},
};

enum { LEAST_VERSION_OF_LISTS = 22400 }; // that knows "allreduce:"

struct setting {
    const char *option, *variable;
    const struct choice *choices;
    const char *ours; // what we have set; NULL: nothing
};

static const char *value_of(const struct setting *setting, const char *option)
{
    const struct choice *choice = setting->choices;
    while (choice->option && (!option || strcmp(choice->option, option)))
        choice++;
    return choice->value;
}

static int32_t apply(const struct ls_host *host, int version, struct setting *setting)
{
    const char *option = host->option(host, setting->option);
    const char *wanted = value_of(setting, option); // NULL: auto
    const char *found = getenv(setting->variable);
    const bool is_ours = found && setting->ours && strcmp(found, setting->ours) == 0;
    if (!wanted && is_ours)
        unsetenv(setting->variable); // left by another run of this process
    setting->ours = wanted && is_ours ? setting->ours : NULL;
    if (!wanted)
        return LS_OK;
    if (found && !is_ours && strcmp(found, wanted))
        return ls_host_fail(host, LS_USAGE,
                            "%s=%s needs %s='%s', but the environment has '%s': leave one of both "
                            "away",
                            setting->option, option, setting->variable, wanted, found);
    if (version < LEAST_VERSION_OF_LISTS && strchr(wanted, ':')) {
        char text[24];
        nccl_version_text(version, text, sizeof(text));
        return ls_host_fail(host, LS_UNAVAILABLE, "%s=%s needs NCCL 2.24 or newer, this is %s",
                            setting->option, option, text);
    }
    if (!found || is_ours) {
        setenv(setting->variable, wanted, 1);
        setting->ours = wanted;
    }
    return LS_OK;
}

int32_t nccl_pin(const struct ls_host *host, int version)
{
    static struct setting algorithm = {"algorithm", "NCCL_ALGO", algorithms, NULL};
    static struct setting protocol = {"protocol", "NCCL_PROTO", protocols, NULL};
    const int32_t status = apply(host, version, &algorithm);
    return status ? status : apply(host, version, &protocol);
}
