// SPDX-License-Identifier: Apache-2.0
// Shared objects that say which PJRT interface they have, and have nothing else: FAKE_MAJOR, FAKE_MINOR.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include "plugins/device/pjrt/vendor/pjrt_c_api.h"
#pragma GCC diagnostic pop

__attribute__((visibility("default"))) const PJRT_Api *GetPjrtApi(void);

const PJRT_Api *GetPjrtApi(void)
{
    static const PJRT_Api api = {
        .struct_size = PJRT_Api_STRUCT_SIZE,
        .pjrt_api_version = {.struct_size = PJRT_Api_Version_STRUCT_SIZE,
                             .major_version = FAKE_MAJOR,
                             .minor_version = FAKE_MINOR},
    };
    return &api;
}
