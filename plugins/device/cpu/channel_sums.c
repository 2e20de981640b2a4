// SPDX-License-Identifier: Apache-2.0
// The gradient of a bias: sums over everything but the channels. Each example and block of channels is summed by itself
// and then all of those, so that the result does not depend on the number of threads, and its rounding error grows with
// the pixels of one example and not of all.
#include "plugins/device/cpu/cpu.h"
#include "plugins/device/cpu/layout.h"

struct sums {
    const struct cpu_elementwise_loops *loops;
    struct cpu_view view;
    const float *dy;
    float *parts; // (outer, inner)
};

bool cpu_channel_sums_scratch(const struct ls_tensor_desc *dy, uint64_t *bytes)
{
    struct cpu_view view;
    if (!cpu_view_of(dy, &view))
        return false;
    *bytes = cpu_aligned((uint64_t)(view.outer * view.inner) * sizeof(float));
    return true;
}

static void sum_outer(void *context, int64_t begin, int64_t end)
{
    const struct sums *s = context;
    const int64_t rows = s->view.height * s->view.width, columns = s->view.inner;
    for (int64_t o = begin; o < end; o++)
        s->loops->column_sums(s->dy + o * rows * columns, rows, columns, columns, 0,
                              s->parts + o * columns);
}

void cpu_channel_sums(struct ls_device *device, const struct ls_tensor_desc *desc, const float *dy,
                      float *db, float *scratch)
{
    struct sums s = {.loops = device->loops->elementwise, .dy = dy, .parts = scratch};
    (void)cpu_view_of(desc, &s.view); // it could when the kernel was prepared
    const int64_t padded = s.view.blocks * s.view.inner;
    cpu_parallel(device, s.view.outer, 1, (double)ls_tensor_elements(desc) * 0.05, sum_outer, &s);
    s.loops->column_sums(scratch, s.view.outer / s.view.blocks, s.view.channels, padded, 0, db);
}
