// SPDX-License-Identifier: Apache-2.0
// Sums over everything but the channels: the gradient of a convolution's bias.
#ifndef LS_CPU_CHANNEL_SUMS_H
#define LS_CPU_CHANNEL_SUMS_H

#include "plugins/device/cpu/layout.h"

struct cpu_channel_sums {
    struct cpu_view view; // of dy
};

// False: dy lies in a layout for which this is not offered.
bool cpu_channel_sums_init(struct cpu_channel_sums *sums, const struct ls_tensor_desc *dy);
uint64_t cpu_channel_sums_scratch(const struct cpu_channel_sums *sums); // bytes
// db[c] = sum of dy[.., .., .., c]; the same bits with any number of threads.
void cpu_channel_sums_run(const struct cpu_channel_sums *sums, struct ls_device *device,
                          const float *dy, float *db, void *scratch);

#endif
