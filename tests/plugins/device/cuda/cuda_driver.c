// SPDX-License-Identifier: Apache-2.0
// Stands in for libcuda.so.1 where cuDNN compiles kernels for a GPU that is not there: it takes what is loaded, and has no device.
// cuDNN looks for all of these names, and calls those that answer.
#include <stddef.h>

enum { NO_DEVICE = 100, NOT_SUPPORTED = 801 };

#define TAKEN(name)                                              \
    __attribute__((visibility("default"))) int name(void **out); \
    int name(void **out)                                         \
    {                                                            \
        static int thing;                                        \
        *out = &thing;                                           \
        return 0;                                                \
    }
#define REFUSED(name, error)                               \
    __attribute__((visibility("default"))) int name(void); \
    int name(void)                                         \
    {                                                      \
        return error;                                      \
    }

TAKEN(cuLibraryLoadData)
TAKEN(cuLibraryGetKernel)
REFUSED(cuLibraryUnload, 0)
REFUSED(cuInit, NO_DEVICE)
REFUSED(cuDeviceGetCount, NO_DEVICE)
REFUSED(cuDeviceGet, NO_DEVICE)
REFUSED(cuGetErrorString, NOT_SUPPORTED)
REFUSED(cuLibraryLoadFromFile, NOT_SUPPORTED)
REFUSED(cuKernelSetAttribute, NOT_SUPPORTED)
REFUSED(cuKernelGetAttribute, NOT_SUPPORTED)
REFUSED(cuOccupancyMaxPotentialClusterSize, NOT_SUPPORTED)
REFUSED(cuLaunchKernel, NOT_SUPPORTED)
REFUSED(cuLaunchCooperativeKernel, NOT_SUPPORTED)
REFUSED(cuLaunchKernelEx, NOT_SUPPORTED)
REFUSED(cuCtxGetCurrent, NOT_SUPPORTED)
REFUSED(cuCtxGetLimit, NOT_SUPPORTED)
REFUSED(cuCtxPopCurrent, NOT_SUPPORTED)
REFUSED(cuCtxPushCurrent, NOT_SUPPORTED)
REFUSED(cuDriverGetVersion, NOT_SUPPORTED)
REFUSED(cuGetErrorName, NOT_SUPPORTED)
REFUSED(cuLinkAddData, NOT_SUPPORTED)
REFUSED(cuLinkComplete, NOT_SUPPORTED)
REFUSED(cuLinkCreate, NOT_SUPPORTED)
REFUSED(cuLinkDestroy, NOT_SUPPORTED)
REFUSED(cuStreamGetCtx, NOT_SUPPORTED)
