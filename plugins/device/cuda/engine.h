// SPDX-License-Identifier: Apache-2.0
// Between the two parts of device `cuda`: the thin one is the plugin, the engine one a shared object beside it that is
// opened when a device is. It is no plugin of its own and exports one function.
#ifndef LS_DEVICE_CUDA_ENGINE_H
#define LS_DEVICE_CUDA_ENGINE_H

#include "core/plugin/device.h"

#define CUDA_ENGINE_ENTRY "cuda_engine_get"
#define CUDA_DEVICE_BYTES 2048 // the state of a device, of which only the engine part knows more
#define CUDA_ENGINE_EXPORT __attribute__((visibility("default")))

struct cuda_engine {
    uint32_t struct_size;
    uint32_t reserved;
    // All calls of the plugin that need a device; the rest of the table is empty.
    const struct ls_device_interface *calls;
    // For tests: bytes that the device holds of the GPU, and of those the ones given out.
    void (*memory_use)(const struct ls_device *device, uint64_t *reserved, uint64_t *used);
};

CUDA_ENGINE_EXPORT const struct cuda_engine *cuda_engine_get(void);

#endif
