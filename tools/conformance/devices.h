// SPDX-License-Identifier: Apache-2.0
// Devices whose memory holds the buffers of a suite: one virtual device for each rank, on the physical
// devices in turn, opened when a case first needs them.
#ifndef LS_TOOLS_CONFORMANCE_DEVICES_H
#define LS_TOOLS_CONFORMANCE_DEVICES_H

#include "core/base/status.h"
#include "core/device/device.h"

#include <stdbool.h>

#define LS_CONFORMANCE_DEVICES 16

struct ls_conformance_devices {
    const struct ls_device_interface *ops; // NULL: buffers are host memory
    const struct ls_host *host;
    uint32_t physical; // 0: not asked yet
    struct ls_device *opened[LS_CONFORMANCE_DEVICES];
};

// The first `count` are open afterwards. [main thread]
LS_STATUS ls_conformance_devices_need(struct ls_conformance_devices *devices, uint32_t count);
void ls_conformance_devices_close(struct ls_conformance_devices *devices);

// Memory of a device beside its image in host memory. Both ways wait for the stream.
struct ls_conformance_image {
    struct ls_device *device; // NULL: there is only the image
    struct ls_memory memory;
    void *image;
    uint64_t bytes;
};
// `image` of `bytes` bytes, the caller's, is copied there. LS_OUT_OF_MEMORY.
LS_STATUS ls_conformance_image_init(struct ls_conformance_image *out,
                                    const struct ls_conformance_devices *devices, uint32_t rank,
                                    void *image, uint64_t bytes);
LS_STATUS ls_conformance_image_push(const struct ls_conformance_image *image, void *stream);
LS_STATUS ls_conformance_image_pull(const struct ls_conformance_image *image, void *stream);
void ls_conformance_image_finish(struct ls_conformance_image *image); // takes a zeroed one
// The place of `at` (in the image) that the tested plugin uses.
struct ls_memory ls_conformance_image_at(const struct ls_conformance_image *image, const void *at);

#endif
