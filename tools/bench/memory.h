// SPDX-License-Identifier: Apache-2.0
// The memory of a benchmark's buffers: host memory, or memory of devices, one virtual device for
// each rank, on the physical devices in turn.
#ifndef LS_TOOLS_BENCH_MEMORY_H
#define LS_TOOLS_BENCH_MEMORY_H

#include "core/base/status.h"
#include "core/collective/communicator.h"
#include "core/loader/loader.h"

#include <stdbool.h>

struct bench_memory {
    const struct ls_opened_plugin *plugin; // the device's; NULL: host memory
    const struct ls_device_interface *ops; // NULL: host memory, which is that of the device, too
    uint32_t count, physical;
    uint32_t first,
        here; // ranks of other processes on this host before ours; of all processes here
    struct ls_communicator_place *places; // one a rank; NULL: host memory
    char hardware[128];
};

// `device` as a user writes it; NULL: host memory. `out` has `count`, `first` and `here`. [main
// thread]
LS_STATUS bench_memory_open(struct ls_loader *loader, const char *device, struct bench_memory *out);
void bench_memory_close(struct bench_memory *memory); // takes a zeroed one
// Whether a native collective can use this memory, so that the caller can leave out those that
// cannot.
bool bench_memory_fits(const struct bench_memory *memory,
                       const struct ls_opened_plugin *collective);

// Called by the rank's own thread; `rank` counts those of this process. Work on a device goes to
// the device's own stream, except for copies from and to host memory. Nowhere: there is no memory
// left.
struct ls_memory bench_memory_allocate(const struct bench_memory *memory, uint32_t rank,
                                       size_t bytes);
void bench_memory_release(const struct bench_memory *memory, uint32_t rank,
                          struct ls_memory buffer);
LS_STATUS bench_memory_zero(const struct bench_memory *memory, uint32_t rank,
                            struct ls_memory buffer, size_t bytes);
LS_STATUS bench_memory_copy(const struct bench_memory *memory, uint32_t rank, struct ls_memory to,
                            struct ls_memory from, size_t bytes);

#endif
