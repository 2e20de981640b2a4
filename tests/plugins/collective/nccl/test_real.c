// SPDX-License-Identifier: Apache-2.0
// The collective as it was built, with NVIDIA's own library where that is: it loads, every call is found, it says its version,
// and the probe answers what is meant: available, or a reason. Whether GPUs add anything is not asked here.
#include "core/plugin/collective.h"
#include "plugins/collective/nccl/calls.h"
#include "tests/support/plugin.h"

int main(void)
{
    char reason[400] = "", text[64] = "", calls_reason[400] = "";
    void *handle = test_plugin_load("collective-nccl");
    ls_plugin_entry entry;
    *(void **)&entry = handle ? dlsym(handle, LS_PLUGIN_ENTRY) : NULL;
    if (!entry) {
        printf("FAILED: %s\n", dlerror());
        return 1;
    }
    const struct ls_plugin *plugin = entry();
    const struct ls_collective_interface *ops = plugin->interface;
    const int32_t probed = plugin->probe(reason, sizeof(reason));
    printf("probe: %d %s\n", probed, reason);
    if (probed != LS_OK && (probed != LS_UNAVAILABLE || !reason[0]))
        return 1;
    ops->about(text, sizeof(text));
    printf("about: %s\n", text);
    const struct nccl_calls *calls = nccl_calls_get(calls_reason, sizeof(calls_reason));
    if (!calls) {
        printf("SKIP: %s\n", calls_reason);
        return strstr(calls_reason, "missing library") && !strcmp(text, "no NCCL") ? TEST_SKIPPED
                                                                                   : 1;
    }
    // What NCCL does without a driver, too.
    ncclUniqueId id = {{0}};
    const unsigned error = calls->ncclGetUniqueId(&id);
    printf("version %d, ncclGetUniqueId: %s\n", calls->version, calls->ncclGetErrorString(error));
    return error || calls->version < 21800 || strncmp(text, "NCCL 2.", 7) != 0;
}
