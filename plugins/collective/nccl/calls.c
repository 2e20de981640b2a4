// SPDX-License-Identifier: Apache-2.0
// Finds NCCL: where the dynamic linker looks (LD_LIBRARY_PATH), else the file that was there when this was built. Whether there is
// a GPU, its driver says.
#include "plugins/collective/nccl/calls.h"

#include "core/plugin/status.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#ifndef NCCL_LIBRARY
#define NCCL_LIBRARY "libnccl.so.2"
#endif
#ifndef NCCL_LIBRARY_FILE // "": it was not found when this was built
#define NCCL_LIBRARY_FILE ""
#endif
#ifndef NCCL_DRIVER_LIBRARY
#define NCCL_DRIVER_LIBRARY "libcuda.so.1"
#endif
#define PACKAGE "nvidia-nccl-cu13"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nccl_calls calls;
static int ready;

// ---- The library ----

static void *open_library(int flags)
{
    void *handle = dlopen(NCCL_LIBRARY, flags | RTLD_LOCAL);
    return handle || !NCCL_LIBRARY_FILE[0] ? handle : dlopen(NCCL_LIBRARY_FILE, flags | RTLD_LOCAL);
}

static void say_missing(char *reason, size_t bytes)
{
    if (NCCL_LIBRARY_FILE[0])
        snprintf(reason, bytes,
                 "missing library: %s, neither %s nor in LD_LIBRARY_PATH (" PACKAGE ")",
                 NCCL_LIBRARY, NCCL_LIBRARY_FILE);
    else
        snprintf(reason, bytes, "missing library: %s is not in LD_LIBRARY_PATH (" PACKAGE ")",
                 NCCL_LIBRARY);
}

static int find(void *handle, const char *name, void *out, char *reason, size_t bytes)
{
    *(void **)out = dlsym(handle, name);
    if (*(void **)out)
        return 1;
    snprintf(reason, bytes, "%s has no %s: NCCL 2.18 or newer is needed", NCCL_LIBRARY, name);
    return 0;
}

static int find_all(void *handle, char *reason, size_t bytes)
{
    *(void **)&calls.ncclGetVersion = dlsym(handle, "ncclGetVersion");
    if (!calls.ncclGetVersion || calls.ncclGetVersion(&calls.version)) {
        snprintf(reason, bytes, "%s does not say its version", NCCL_LIBRARY);
        return 0;
    }
#define NCCL_CALL(result, name, arguments)                        \
    if (!find(handle, #name, (void *)&calls.name, reason, bytes)) \
        return 0;
#define NCCL_LATER_CALL(since, result, name, arguments)                                     \
    if (calls.version >= since && !find(handle, #name, (void *)&calls.name, reason, bytes)) \
        return 0;
#include "plugins/collective/nccl/calls_list.h"
    return 1;
}

// Never closed: it has threads of its own.
const struct nccl_calls *nccl_calls_get(char *reason, size_t bytes)
{
    pthread_mutex_lock(&lock);
    if (!ready) {
        void *handle = open_library(RTLD_NOW);
        if (!handle)
            say_missing(reason, bytes);
        ready = handle && find_all(handle, reason, bytes);
    }
    const struct nccl_calls *out = ready ? &calls : NULL;
    pthread_mutex_unlock(&lock);
    return out;
}

// ---- The GPU ----

static int32_t refuse(char *reason, size_t bytes, const char *text, int error)
{
    if (error)
        snprintf(reason, bytes, "%s (error %d)", text, error);
    else
        snprintf(reason, bytes, "%s", text);
    return LS_UNAVAILABLE;
}

// Device `cuda` asks more; this is what tells whether NCCL can do anything at all.
static int32_t ask_driver(char *reason, size_t bytes)
{
    enum { NOT_INITIALIZED = 3, STUB_LIBRARY = 34, NO_DEVICE = 100 }; // CUresult
    int (*start)(unsigned flags), (*count_devices)(int *count), count = 0;
    void *handle = dlopen(NCCL_DRIVER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return refuse(reason, bytes,
                      "no driver: NVIDIA's driver (" NCCL_DRIVER_LIBRARY ") is not on this machine",
                      0);
    *(void **)&start = dlsym(handle, "cuInit");
    *(void **)&count_devices = dlsym(handle, "cuDeviceGetCount");
    if (!start || !count_devices)
        return refuse(reason, bytes, "driver too old: " NCCL_DRIVER_LIBRARY " lacks cuInit", 0);
    int error = start(0);
    if (error == NOT_INITIALIZED)
        return LS_OK; // this is a child of a process that uses the driver, which runs then
    if (!error)
        error = count_devices(&count);
    if (error == NO_DEVICE || (!error && count < 1))
        return refuse(reason, bytes, "no device: the driver finds no GPU (CUDA_VISIBLE_DEVICES?)",
                      0);
    if (error == STUB_LIBRARY)
        return refuse(reason, bytes, "no driver: " NCCL_DRIVER_LIBRARY " is the toolkit's stub", 0);
    return error ? refuse(reason, bytes, "the driver does not start", error) : LS_OK;
}

int32_t nccl_probe(char *reason, uint64_t bytes)
{
    const int32_t status = ask_driver(reason, bytes);
    if (status || (NCCL_LIBRARY_FILE[0] && access(NCCL_LIBRARY_FILE, R_OK) == 0))
        return status;
    void *handle = open_library(RTLD_LAZY);
    if (!handle) {
        say_missing(reason, bytes);
        return LS_UNAVAILABLE;
    }
    dlclose(handle);
    return LS_OK;
}
