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

bool cpu_channel_sums_init(struct cpu_channel_sums *sums, const struct ls_tensor_desc *dy)
{
    return cpu_view_of(dy, &sums->view);
}

uint64_t cpu_channel_sums_scratch(const struct cpu_channel_sums *sums)
{
    return cpu_aligned((uint64_t)(sums->view.outer * sums->view.inner) * sizeof(float));
}

static void sum_outer(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    const int64_t rows = r->view->height * r->view->width, columns = r->view->inner;
    for (int64_t o = begin; o < end; o++)
        r->loops->column_sums(r->dy + o * rows * columns, rows, columns, columns, 0,
                              r->parts + o * columns);
}

void cpu_channel_sums_run(const struct cpu_channel_sums *sums, struct ls_device *device,
                          const float *dy, float *db, void *scratch)
{
    const struct cpu_view *v = &sums->view;
    struct running r = {device->loops->elementwise, v, dy, scratch};
    const double elements = (double)(v->outer * v->inner) * (double)(v->height * v->width);
    cpu_parallel(device, v->outer, 1, elements * 0.05, sum_outer, &r);
    r.loops->column_sums(r.parts, v->outer / v->blocks, v->channels, v->blocks * v->inner, 0, db);
}
