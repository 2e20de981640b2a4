// SPDX-License-Identifier: Apache-2.0
// Asks the driver's library, libcuda.so.1, which is small; the declarations are our own.
#include "plugins/device/cuda/driver.h"

#include "core/plugin/status.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifndef CUDA_DRIVER_LIBRARY
#define CUDA_DRIVER_LIBRARY "libcuda.so.1"
#endif

enum { NOT_INITIALIZED = 3, STUB_LIBRARY = 34, NO_DEVICE = 100 }; // CUresult
enum { CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76 }; // CUdevice_attribute

struct driver {
    int (*cuInit)(unsigned flags);
    int (*cuDriverGetVersion)(int *version);
    int (*cuGetErrorString)(int error, const char **text);
    int (*cuDeviceGetCount)(int *count);
    int (*cuDeviceGet)(int *device, int ordinal);
    int (*cuDeviceGetName)(char *name, int bytes, int device);
    int (*cuDeviceGetAttribute)(int *value, int attribute, int device);
    int (*cuDeviceTotalMem_v2)(size_t *bytes, int device);
};

static int find_calls(void *handle, struct driver *out)
{
    const struct {
        const char *name;
        void *place;
    } calls[] = {
        {"cuInit", (void *)&out->cuInit},
        {"cuDriverGetVersion", (void *)&out->cuDriverGetVersion},
        {"cuGetErrorString", (void *)&out->cuGetErrorString},
        {"cuDeviceGetCount", (void *)&out->cuDeviceGetCount},
        {"cuDeviceGet", (void *)&out->cuDeviceGet},
        {"cuDeviceGetName", (void *)&out->cuDeviceGetName},
        {"cuDeviceGetAttribute", (void *)&out->cuDeviceGetAttribute},
        {"cuDeviceTotalMem_v2", (void *)&out->cuDeviceTotalMem_v2},
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        *(void **)calls[i].place = dlsym(handle, calls[i].name);
        if (!*(void **)calls[i].place)
            return 0;
    }
    return 1;
}

static int32_t refuse_version(int version, char *reason, size_t bytes)
{
    snprintf(reason, bytes,
             "driver too old: it knows CUDA %d.%d, this was built for %d: install a newer driver",
             version / 1000, version % 1000 / 10, CUDA_LEAST_VERSION / 1000);
    return LS_UNAVAILABLE;
}

static int32_t refuse_start(const struct driver *driver, int error, char *reason, size_t bytes)
{
    const char *text = NULL;
    if (error == NO_DEVICE)
        snprintf(reason, bytes, "no device: the driver finds no GPU (CUDA_VISIBLE_DEVICES?)");
    else if (error == STUB_LIBRARY)
        snprintf(reason, bytes, "no driver: " CUDA_DRIVER_LIBRARY " is the toolkit's stub");
    else {
        driver->cuGetErrorString(error, &text);
        snprintf(reason, bytes, "the driver does not start: %s (error %d)", text ? text : "unknown",
                 error);
    }
    return LS_UNAVAILABLE;
}

static int32_t describe_first(const struct driver *driver, int count, struct cuda_driver_info *out,
                              char *reason, size_t bytes)
{
    int device = 0;
    size_t memory = 0;
    struct cuda_driver_info info = {.count = (uint32_t)count};
    int error = driver->cuDeviceGet(&device, 0);
    if (!error)
        error = driver->cuDeviceGetName(info.name, (int)sizeof(info.name), device);
    if (!error)
        error = driver->cuDeviceGetAttribute(&info.major, CAPABILITY_MAJOR, device);
    if (!error)
        error = driver->cuDeviceGetAttribute(&info.minor, CAPABILITY_MINOR, device);
    if (!error)
        error = driver->cuDeviceTotalMem_v2(&memory, device);
    if (error)
        return refuse_start(driver, error, reason, bytes);
    info.name[sizeof(info.name) - 1] = '\0';
    info.bytes = memory;
    if (info.major * 10 + info.minor < CUDA_LEAST_CAPABILITY) {
        snprintf(reason, bytes,
                 "GPU too old: %s has compute capability %d.%d, this was built for %d.%d and newer "
                 "(-Dgpu_archs=)",
                 info.name, info.major, info.minor, CUDA_LEAST_CAPABILITY / 10,
                 CUDA_LEAST_CAPABILITY % 10);
        return LS_UNAVAILABLE;
    }
    if (out)
        *out = info;
    return LS_OK;
}

static int32_t ask(const struct driver *driver, struct cuda_driver_info *out, char *reason,
                   size_t bytes)
{
    int version = 0, count = 0;
    int error = driver->cuDriverGetVersion(&version);
    if (!error && version && version < CUDA_LEAST_VERSION)
        return refuse_version(version, reason, bytes);
    if (!error)
        error = driver->cuInit(0);
    if (error == NOT_INITIALIZED && !out)
        return LS_OK;
    if (!error)
        error = driver->cuDeviceGetCount(&count);
    if (!error && count < 1)
        error = NO_DEVICE;
    return error ? refuse_start(driver, error, reason, bytes)
                 : describe_first(driver, count, out, reason, bytes);
}

int32_t cuda_driver_ask(struct cuda_driver_info *out, char *reason, size_t bytes)
{
    struct driver driver;
    void *handle = dlopen(CUDA_DRIVER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        snprintf(reason, bytes,
                 "no driver: NVIDIA's driver (" CUDA_DRIVER_LIBRARY ") is not on this machine");
        return LS_UNAVAILABLE;
    }
    // Never closed: the runtime uses it, too.
    if (!find_calls(handle, &driver)) {
        snprintf(reason, bytes, "driver too old: " CUDA_DRIVER_LIBRARY " lacks calls of CUDA 11");
        return LS_UNAVAILABLE;
    }
    return ask(&driver, out, reason, bytes);
}
