// SPDX-License-Identifier: Apache-2.0
// Each example and block of channels is summed by itself and then all of those, so that the result does not depend on
// the number of threads, and its rounding error grows with the pixels of one example and not of all.
#include "plugins/device/cpu/channel_sums.h"

struct running {
    const struct cpu_elementwise_loops *loops;
    const struct cpu_view *view;
    const float *dy;
    float *parts; // (outer, inner)
};

uint64_t cpu_channel_sums_scratch(const struct cpu_view *view)
{
    return cpu_aligned((uint64_t)(view->outer * view->inner) * sizeof(float));
}

static void sum_outer(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    const int64_t rows = r->view->height * r->view->width, columns = r->view->inner;
    for (int64_t o = begin; o < end; o++)
        r->loops->column_sums(r->dy + o * rows * columns, rows, columns, columns, 0,
                              r->parts + o * columns);
}

void cpu_channel_sums(const struct ls_device *device, const struct cpu_view *view, const float *dy,
                      float *db, void *scratch)
{
    struct running r = {device->loops->elementwise, view, dy, scratch};
    const double elements =
        (double)(view->outer * view->inner) * (double)(view->height * view->width);
    cpu_parallel(device, view->outer, 1, elements * 0.05, sum_outer, &r);
    r.loops->column_sums(r.parts, view->outer / view->blocks, view->channels,
                         view->blocks * view->inner, 0, db);
}
