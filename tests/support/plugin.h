// SPDX-License-Identifier: Apache-2.0
// Plugins in tests: opens one straight from the build tree (LOCKSTEP_PLUGIN_PATH), and offers it a host
// that keeps the last failure as text. What the loader checks is not checked here.
#ifndef LS_TESTS_SUPPORT_PLUGIN_H
#define LS_TESTS_SUPPORT_PLUGIN_H

#include "core/plugin/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TEST_SKIPPED 77 // exit code that meson counts as a skip

struct test_host {
    struct ls_host host; // first: its callbacks cast back
    const struct ls_plugin *plugin;
    int32_t status; // of the last failure
    char message[512]; // of the last failure
    char options[128]; // "name=value,...", each ended by a zero byte and all by another
};

static inline void test_host_log(const struct ls_host *host, uint32_t level, const char *message)
{
    (void)host;
    if (level <= LS_LOG_WARN)
        fprintf(stderr, "%s\n", message);
}

static inline int32_t test_host_fail(const struct ls_host *host, int32_t status,
                                     const char *message)
{
    struct test_host *test = (struct test_host *)host->context;
    test->status = status;
    snprintf(test->message, sizeof(test->message), "%s", message);
    return status;
}

static inline void *test_host_allocate(const struct ls_host *host, uint64_t bytes,
                                       uint64_t alignment)
{
    void *memory = NULL;
    (void)host;
    if (alignment < sizeof(void *))
        alignment = sizeof(void *);
    return posix_memalign(&memory, alignment, bytes ? bytes : 1) ? NULL : memory;
}

static inline void test_host_release(const struct ls_host *host, void *memory)
{
    (void)host;
    free(memory);
}

static inline uint64_t test_host_clock(const struct ls_host *host)
{
    struct timespec now;
    (void)host;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

// What test_host_set() has set, else the default of the plugin's table.
static inline const char *test_host_option(const struct ls_host *host, const char *name)
{
    const struct test_host *test = (const struct test_host *)host->context;
    const size_t length = strlen(name);
    for (const char *set = test->options; *set; set += strlen(set) + 1)
        if (strncmp(set, name, length) == 0 && set[length] == '=')
            return set + length + 1;
    const struct ls_plugin_option *option = test->plugin ? test->plugin->options : NULL;
    for (; option && option->name; option++)
        if (strcmp(option->name, name) == 0)
            return option->default_value;
    return NULL;
}

// `plugin` may be NULL: then no option has a value.
static inline void test_host_init(struct test_host *test, const struct ls_plugin *plugin)
{
    *test = (struct test_host){
        .host = {.struct_size = sizeof(struct ls_host),
                 .abi_minor = LS_PLUGIN_ABI_MINOR,
                 .context = test,
                 .log = test_host_log,
                 .fail = test_host_fail,
                 .allocate = test_host_allocate,
                 .release = test_host_release,
                 .clock_ns = test_host_clock,
                 .option = test_host_option},
        .plugin = plugin,
    };
}

// Sets the options "name=value,..."; 0: the plugin does not have one of them, or they are too long.
static inline int test_host_set(struct test_host *test, const char *options)
{
    char *out = test->options;
    if (strlen(options) + 2 > sizeof(test->options))
        return 0;
    memset(out, 0, sizeof(test->options));
    while (*options) {
        const size_t length = strcspn(options, ","), name = strcspn(options, "=,");
        const struct ls_plugin_option *option = test->plugin->options;
        while (option && option->name &&
               (strlen(option->name) != name || strncmp(option->name, options, name) != 0))
            option++;
        if (!option || !option->name || name == length)
            return 0;
        memcpy(out, options, length);
        out += length + 1;
        options += length + (options[length] == ',');
    }
    return 1;
}

// Opens it from the first folder of LOCKSTEP_PLUGIN_PATH (a list with colons) that has it; NULL: dlerror() says why not.
static inline void *test_plugin_load(const char *name)
{
    const char *folder = getenv("LOCKSTEP_PLUGIN_PATH");
    char path[4096];
    void *handle = NULL;
    for (folder = folder ? folder : "plugins"; folder && !handle;) {
        const char *end = strchr(folder, ':');
        const int length = end ? (int)(end - folder) : (int)strlen(folder);
        snprintf(path, sizeof(path), "%.*s/%s.so", length, folder, name);
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        folder = end ? end + 1 : NULL;
    }
    return handle;
}

// Opens "<kind>-<name>", for example "device-cpu". NULL when it was not built or does not run here: the
// reason is printed as a line that begins with SKIP, and the test then ends with TEST_SKIPPED.
static inline const struct ls_plugin *test_plugin_open(const char *name)
{
    char reason[256] = "";
    void *handle = test_plugin_load(name);
    if (!handle) {
        printf("SKIP: plugin %s: %s\n", name, dlerror());
        return NULL;
    }
    ls_plugin_entry entry;
    *(void **)&entry = dlsym(handle, LS_PLUGIN_ENTRY);
    if (!entry) {
        printf("SKIP: plugin %s: no symbol " LS_PLUGIN_ENTRY "\n", name);
        return NULL;
    }
    const struct ls_plugin *plugin = entry();
    if (plugin->probe && plugin->probe(reason, sizeof(reason)) != LS_OK) {
        printf("SKIP: plugin %s: %s\n", name, reason);
        return NULL;
    }
    return plugin;
}

#endif
