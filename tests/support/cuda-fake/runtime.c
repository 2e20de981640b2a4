// SPDX-License-Identifier: Apache-2.0
// Errors, versions and GPUs of the fake.
#include "tests/support/cuda-fake/stream.h"

#include <stdio.h>

enum { INVALID_VALUE = 1, INVALID_DEVICE = 101, MOST_DEVICES = 16 };

static _Thread_local int current;
static unsigned char peers[MOST_DEVICES][MOST_DEVICES]; // changed with __atomic_* only

int double_current(void)
{
    return current;
}

int double_sees(int device, int other)
{
    return device == other || __atomic_load_n(&peers[device][other], __ATOMIC_ACQUIRE);
}

static int is_device(int device)
{
    return device >= 0 && device < MOST_DEVICES && device < double_setting("CUDA_FAKE_DEVICES", 1);
}

unsigned cudaSetDevice(int device)
{
    if (!is_device(device))
        return INVALID_DEVICE;
    current = device;
    return cudaSuccess;
}

unsigned cudaDeviceCanAccessPeer(int *out, int device, int peer)
{
    if (!is_device(device) || !is_device(peer))
        return INVALID_DEVICE;
    *out = device != peer && !double_setting("CUDA_FAKE_NO_PEERS", 0);
    return cudaSuccess;
}

unsigned cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    int able = 0;
    const unsigned error = cudaDeviceCanAccessPeer(&able, current, peer);
    if (error || flags || !able)
        return error ? error : flags ? INVALID_VALUE : INVALID_DEVICE;
    return __atomic_exchange_n(&peers[current][peer], 1, __ATOMIC_ACQ_REL)
               ? cudaErrorPeerAccessAlreadyEnabled
               : cudaSuccess;
}

unsigned cudaDeviceGetPCIBusId(char *out, int bytes, int device)
{
    if (!is_device(device) || bytes < 13)
        return INVALID_VALUE;
    snprintf(out, (size_t)bytes, "0000:%02X:00.0",
             0x10 + (unsigned)double_setting("CUDA_FAKE_FIRST", 0) + (unsigned)device);
    return cudaSuccess;
}

unsigned cudaDeviceGetAttribute(int *value, unsigned attribute, int device)
{
    const int capability = (int)double_setting("CUDA_FAKE_CAPABILITY", 90);
    if (!is_device(device))
        return INVALID_DEVICE;
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = capability / 10; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = capability % 10; return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
        *value = (int)double_setting("CUDA_FAKE_MULTIPROCESSORS", 132);
        return cudaSuccess;
    case cudaDevAttrGlobalMemoryBusWidth: *value = 5120; return cudaSuccess;
    default: return INVALID_VALUE;
    }
}

// ---- Errors ----

static const struct {
    unsigned error;
    const char *name, *text;
} errors[] = {
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
};

unsigned cudaGetLastError(void)
{
    return double_failed();
}

const char *cudaGetErrorName(unsigned error)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (errors[i].error == error)
            return errors[i].name;
    return "an error of the fake";
}

const char *cudaGetErrorString(unsigned error)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (errors[i].error == error)
            return errors[i].text;
    return "an error of the fake";
}

// ---- Versions ----

unsigned cudaDriverGetVersion(int *version)
{
    *version = (int)double_setting("CUDA_FAKE_VERSION", 13000);
    return cudaSuccess;
}

unsigned cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

unsigned cudaGetDeviceCount(int *count)
{
    const int found = (int)double_setting("CUDA_FAKE_DEVICES", 1);
    if (double_setting("CUDA_FAKE_VERSION", 13000) < 13000)
        return cudaErrorInsufficientDriver;
    if (found < 1)
        return cudaErrorNoDevice;
    *count = found;
    return cudaSuccess;
}
