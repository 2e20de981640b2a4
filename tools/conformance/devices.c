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
        const struct ls_device_config config = {
            .struct_size = sizeof(config), .index = i % devices->physical, .threads = 1};
        if (!devices->opened[i])
            status = devices->ops->open(devices->host, &config, &devices->opened[i]);
    }
    return (enum ls_status)status;
}

void ls_conformance_devices_close(struct ls_conformance_devices *devices)
{
    for (uint32_t i = 0; devices->ops && i < LS_CONFORMANCE_DEVICES; i++)
        if (devices->opened[i])
            devices->ops->close(devices->opened[i]);
}

enum ls_status ls_conformance_image_init(struct ls_conformance_image *out,
                                         const struct ls_conformance_devices *devices,
                                         uint32_t rank, void *image, uint64_t bytes)
{
    *out = (struct ls_conformance_image){.image = image, .bytes = bytes};
    if (!devices->ops)
        return LS_OK;
    out->ops = devices->ops;
    out->device = devices->opened[rank];
    out->memory = out->ops->allocate(out->device, bytes);
    return out->memory ? ls_conformance_image_push(out, NULL) : LS_OUT_OF_MEMORY;
}

enum ls_status ls_conformance_image_push(const struct ls_conformance_image *image, void *stream)
{
    if (!image->ops)
        return LS_OK;
    return (enum ls_status)image->ops->copy(image->device, image->memory, image->image,
                                            image->bytes, stream);
}

enum ls_status ls_conformance_image_pull(const struct ls_conformance_image *image, void *stream)
{
    if (!image->ops)
        return LS_OK;
    return (enum ls_status)image->ops->copy(image->device, image->image, image->memory,
                                            image->bytes, stream);
}

void ls_conformance_image_finish(struct ls_conformance_image *image)
{
    if (image->ops)
        image->ops->release(image->device, image->memory);
    *image = (struct ls_conformance_image){0};
}

void *ls_conformance_image_at(const struct ls_conformance_image *image, const void *at)
{
    char *from = image->ops ? image->memory : image->image;
    return from + ((const char *)at - (const char *)image->image);
}
