// SPDX-License-Identifier: Apache-2.0
// Sums over everything but the channels: the gradient of a convolution's bias.
#ifndef LS_CPU_CHANNEL_SUMS_H
#define LS_CPU_CHANNEL_SUMS_H

#include "plugins/device/cpu/layout.h"

uint64_t cpu_channel_sums_scratch(const struct cpu_view *view); // bytes
// db[c] = sum of dy[.., .., .., c], in float32; the same bits with any number of threads.
void cpu_channel_sums(const struct ls_device *device, const struct cpu_view *view,
                      struct cpu_tensor dy, struct cpu_tensor db, void *scratch);

#endif
