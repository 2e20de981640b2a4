// SPDX-License-Identifier: Apache-2.0
// The device as it was built, with NVIDIA's own libraries: both parts load, every call is found, and the answer is one of
// those that are meant: a device, or a reason. Whether a GPU computes is not asked here: that is the device suite's.
#include "core/plugin/device.h"
#include "plugins/device/cuda/engine.h"
#include "tests/support/device_calls.h"
#include "tests/support/plugin.h"

int main(void)
{
    char reason[400] = "";
    struct test_host host;
    struct ls_device *device = NULL;
    const struct ls_device_config config = {.struct_size = sizeof(config)};
    void *handle = test_plugin_load("device-cuda");
    ls_plugin_entry entry;
    *(void **)&entry = handle ? dlsym(handle, LS_PLUGIN_ENTRY) : NULL;
    if (!entry) {
        printf("FAILED: %s\n", dlerror());
        return 1;
    }
    const struct ls_plugin *plugin = entry();
    const struct ls_device_interface *ops = plugin->interface;
    const int32_t probed = plugin->probe(reason, sizeof(reason));
    printf("probe: %d %s\n", probed, reason);

    test_host_init(&host, plugin);
    const int32_t status = ls_device_open_state(ops, &host.host, &config, &device);
    printf("open: %d %s\n", status, status ? host.message : "");
    ls_device_close(device);
    if (strstr(host.message, "missing library") || strstr(host.message, "another version"))
        return 1; // they were here when this was built
    if (probed == LS_UNAVAILABLE)
        return status == LS_UNAVAILABLE && reason[0] && host.message[0] ? 0 : 1;
    return probed || status;
}
