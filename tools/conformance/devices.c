// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/devices.h"

#include <stddef.h>

enum ls_status ls_conformance_devices_need(struct ls_conformance_devices *devices, uint32_t count)
{
    int32_t status = LS_OK;
    if (devices->ops && !devices->physical) {
        struct ls_device_info info = {.struct_size = sizeof(info)};
        status = devices->ops->describe(devices->host, &info);
        devices->physical = info.physical_count ? info.physical_count : 1;
    }
    for (uint32_t i = 0; devices->ops && !status && i < count; i++) {
        const struct ls_device_options options = {.interface = devices->ops,
                                                  .host = devices->host,
                                                  .index = i % devices->physical,
                                                  .threads = 1};
        if (!devices->opened[i])
            status = (int32_t)ls_device_open(&options, &devices->opened[i]);
    }
    return (enum ls_status)status;
}

void ls_conformance_devices_close(struct ls_conformance_devices *devices)
{
    for (uint32_t i = 0; devices->ops && i < LS_CONFORMANCE_DEVICES; i++)
        ls_device_close(devices->opened[i]);
}

enum ls_status ls_conformance_image_init(struct ls_conformance_image *out,
                                         const struct ls_conformance_devices *devices,
                                         uint32_t rank, void *image, uint64_t bytes)
{
    *out = (struct ls_conformance_image){.image = image, .bytes = bytes};
    if (!devices->ops)
        return LS_OK;
    out->device = devices->opened[rank];
    out->memory = ls_device_allocate(out->device, bytes);
    return ls_memory_is_null(out->memory) ? LS_OUT_OF_MEMORY : ls_conformance_image_push(out, NULL);
}

enum ls_status ls_conformance_image_push(const struct ls_conformance_image *image, void *stream)
{
    return image->device ? ls_device_copy(image->device, image->memory,
                                          ls_host_memory(image->image), image->bytes, stream)
                         : LS_OK;
}

enum ls_status ls_conformance_image_pull(const struct ls_conformance_image *image, void *stream)
{
    return image->device ? ls_device_copy(image->device, ls_host_memory(image->image),
                                          image->memory, image->bytes, stream)
                         : LS_OK;
}

void ls_conformance_image_finish(struct ls_conformance_image *image)
{
    if (image->device)
        ls_device_release(image->device, image->memory);
    *image = (struct ls_conformance_image){0};
}

struct ls_memory ls_conformance_image_at(const struct ls_conformance_image *image, const void *at)
{
    const struct ls_memory start = image->device ? image->memory : ls_host_memory(image->image);
    return ls_memory_at(start, (uint64_t)((const char *)at - (const char *)image->image));
}
