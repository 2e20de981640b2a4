// SPDX-License-Identifier: Apache-2.0
// Between the two parts of device `cuda`: the thin one is the plugin, the heavy one a shared object beside it that is
// opened when a device is. It is no plugin of its own and exports one function.
#ifndef LS_DEVICE_CUDA_ENGINE_H
#define LS_DEVICE_CUDA_ENGINE_H

#include "core/plugin/device.h"

#define CUDA_ENGINE_ENTRY "cuda_engine_get"
#define CUDA_ENGINE_EXPORT __attribute__((visibility("default")))

// The calls of struct ls_device_interface that need a device.
struct cuda_engine {
    uint32_t struct_size;
    uint32_t reserved;
    int32_t (*open)(const struct ls_host *host, const struct ls_device_config *config,
                    struct ls_device **out);
    void (*close)(struct ls_device *device);
    void *(*allocate)(struct ls_device *device, uint64_t bytes);
    void (*release)(struct ls_device *device, void *memory);
    int32_t (*copy)(struct ls_device *device, void *to, const void *from, uint64_t bytes,
                    void *stream);
    int32_t (*zero)(struct ls_device *device, void *memory, uint64_t bytes, void *stream);
    int32_t (*prepare)(struct ls_device *device, const struct ls_kernel_request *request,
                       struct ls_kernel_answer *out);
    int32_t (*launch)(struct ls_device *device, const struct ls_kernel *kernel,
                      const struct ls_launch *launch);
    void (*release_kernel)(struct ls_device *device, struct ls_kernel *kernel);
    int32_t (*stream_open)(struct ls_device *device, void **out);
    void (*stream_close)(struct ls_device *device, void *stream);
    int32_t (*stream_native)(struct ls_device *device, void *stream, struct ls_native_stream *out);
    int32_t (*event_open)(struct ls_device *device, struct ls_event **out);
    void (*event_close)(struct ls_device *device, struct ls_event *event);
    int32_t (*event_record)(struct ls_device *device, struct ls_event *event, void *stream);
    int32_t (*event_wait)(struct ls_device *device, struct ls_event *event, void *stream);
    int32_t (*event_query)(struct ls_device *device, const struct ls_event *event);
    void *(*allocate_host)(struct ls_device *device, uint64_t bytes);
    void (*release_host)(struct ls_device *device, void *memory);
    int32_t (*copy_later)(struct ls_device *device, void *to, const void *from, uint64_t bytes,
                          void *stream);
    int32_t (*reduce)(struct ls_device *device, const struct ls_device_reduction *call,
                      void *stream);
    int32_t (*reaches)(struct ls_device *device, struct ls_device *other);
    int32_t (*record_begin)(struct ls_device *device);
    int32_t (*record_end)(struct ls_device *device, struct ls_recording **out);
    int32_t (*replay)(struct ls_device *device, const struct ls_recording *recording);
    void (*release_recording)(struct ls_device *device, struct ls_recording *recording);
    void (*abandon)(struct ls_device *device);
    // For tests: bytes that the device holds of the GPU, and of those the ones given out.
    void (*memory_use)(const struct ls_device *device, uint64_t *reserved, uint64_t *used);
};

CUDA_ENGINE_EXPORT const struct cuda_engine *cuda_engine_get(void);

#endif
