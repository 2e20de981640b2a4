// SPDX-License-Identifier: Apache-2.0
// Device `cuda` on the fake (tests/support/cuda-fake), as the tests of this folder open it. NOT A
// GPU.
#ifndef LS_TESTS_CUDA_ON_FAKE_H
#define LS_TESTS_CUDA_ON_FAKE_H

#include "core/plugin/device.h"
#include "tests/support/cuda-fake/fake.h"
#include "tests/support/device_calls.h"
#include "tests/support/plugin.h"
#include "tests/support/suite.h"

static const struct ls_plugin *plugin;
static const struct ls_device_interface *ops;
static struct test_host host;

static inline int32_t open_device(uint32_t index, struct ls_device **out)
{
    const struct ls_device_config config = {.struct_size = sizeof(config), .index = index};
    return ls_device_open_state(ops, &host.host, &config, out);
}

static inline struct ls_device *opened(uint32_t index)
{
    struct ls_device *device = NULL;
    ck_assert_msg(open_device(index, &device) == LS_OK, "%s", host.message);
    return device;
}

static inline void assert_says(const char *text)
{
    ck_assert_msg(strstr(host.message, text), "\"%s\" does not say \"%s\"", host.message, text);
}

// For the host's `option`.
static inline const char *short_deadline(const struct ls_host *of, const char *name)
{
    (void)of;
    return strcmp(name, "deadline") == 0 ? "1" : NULL;
}

// A host that has heard nothing, and a fake without the settings of the test before.
static inline void reset(void)
{
    static const char *const names[] = {"DEVICES",  "VERSION", "MEMORY", "PINNED",
                                        "NO_PEERS", "FAIL",    "ERROR",  "HANG"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char name[64];
        snprintf(name, sizeof(name), "CUDA_FAKE_%s", names[i]);
        unsetenv(name);
    }
    test_host_init(&host, plugin);
}

// What `main` returns.
static inline int run_on_fake(const char *name)
{
    printf("on the fake of CUDA: NOT A GPU\n");
    plugin = test_plugin_open("device-cuda");
    if (!plugin)
        return EXIT_FAILURE; // it says why; the fake is built wherever the tests are
    ops = plugin->interface;
    return test_suite_run(name);
}

#endif
