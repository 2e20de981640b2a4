// SPDX-License-Identifier: Apache-2.0
// The driver's calls of the fake (driver.c of the plugin has the declarations).
#include "tests/support/cuda-fake/fake.h"

#include <stdio.h>
#include <unistd.h>

DOUBLE_EXPORT int cuInit(unsigned flags);
DOUBLE_EXPORT int cuDriverGetVersion(int *version);
DOUBLE_EXPORT int cuGetErrorString(int error, const char **text);
DOUBLE_EXPORT int cuDeviceGetCount(int *count);
DOUBLE_EXPORT int cuDeviceGet(int *device, int ordinal);
DOUBLE_EXPORT int cuDeviceGetName(char *name, int bytes, int device);
DOUBLE_EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device);
DOUBLE_EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device);

// As NVIDIA's, which a child of a process that has started it cannot use, nor start again.
int cuInit(unsigned flags)
{
    enum { NOT_INITIALIZED = 3 }; // CUresult
    static pid_t started;
    const int error = (int)double_setting("CUDA_FAKE_INIT", 0);
    (void)flags;
    if (started && started != getpid() && !double_setting("CUDA_FAKE_FORKED", 0))
        return NOT_INITIALIZED;
    if (!error)
        started = getpid();
    return error;
}

int cuDriverGetVersion(int *version)
{
    *version = (int)double_setting("CUDA_FAKE_VERSION", 13000);
    return 0;
}

int cuGetErrorString(int error, const char **text)
{
    (void)error;
    *text = "an error of the fake";
    return 0;
}

int cuDeviceGetCount(int *count)
{
    *count = (int)double_setting("CUDA_FAKE_DEVICES", 1);
    return 0;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return 0;
}

int cuDeviceGetName(char *name, int bytes, int device)
{
    (void)device;
    snprintf(name, (size_t)bytes, "fake, NOT A GPU");
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    const int capability = (int)double_setting("CUDA_FAKE_CAPABILITY", 90);
    (void)device;
    *value = attribute == 75 ? capability / 10 : capability % 10;
    return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    (void)device;
    *bytes = (size_t)double_setting("CUDA_FAKE_MEMORY", 8LL << 30);
    return 0;
}
