// SPDX-License-Identifier: Apache-2.0
// Each example and block of channels is summed by itself and then all of those, so that the result does not depend on
// the number of threads, and its rounding error grows with the pixels of one example and not of all.
#include "plugins/device/cpu/channel_sums.h"

struct running {
    const struct ls_device *device;
    const struct cpu_view *view;
    struct cpu_tensor dy;
    float *parts; // (outer, inner)
};

// An example and block, with a row of db behind it that becomes halves.
uint64_t cpu_channel_sums_scratch(const struct cpu_view *view)
{
    const int64_t inner = view->outer * view->inner;
    return cpu_aligned((uint64_t)(inner + view->channels) * sizeof(float));
}

// Halves pass through a room, as many whole rows at a time as it holds, or a part of one.
static void sum_halves(const struct running *r, int64_t begin, int64_t rows, float *sums)
{
    const struct cpu_elementwise_loops *loops = r->device->loops->elementwise;
    const int64_t columns = r->view->inner, whole = CPU_CHUNK / columns;
    float room[CPU_CHUNK];
    for (int64_t i = 0, n; i < rows && whole; i += n) {
        n = rows - i < whole ? rows - i : whole;
        cpu_read(r->device, r->dy, begin + i * columns, n * columns, room);
        loops->column_sums(room, n, columns, columns, i > 0, sums);
    }
    for (int64_t i = 0; i < rows && !whole; i++)
        for (int64_t c = 0, n; c < columns; c += n) {
            n = columns - c < CPU_CHUNK ? columns - c : CPU_CHUNK;
            cpu_read(r->device, r->dy, begin + i * columns + c, n, room);
            loops->column_sums(room, 1, n, n, i > 0, sums + c);
        }
}

static void sum_outer(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    const int64_t rows = r->view->height * r->view->width, columns = r->view->inner;
    for (int64_t o = begin; o < end; o++)
        if (r->dy.dtype == LS_F32)
            r->device->loops->elementwise->column_sums((const float *)r->dy.at + o * rows * columns,
                                                       rows, columns, columns, 0,
                                                       r->parts + o * columns);
        else
            sum_halves(r, o * rows * columns, rows, r->parts + o * columns);
}

void cpu_channel_sums(const struct ls_device *device, const struct cpu_view *view,
                      struct cpu_tensor dy, struct cpu_tensor db, void *scratch)
{
    struct running r = {device, view, dy, scratch};
    const double elements =
        (double)(view->outer * view->inner) * (double)(view->height * view->width);
    float *sums = db.dtype == LS_F32 ? db.at : r.parts + view->outer * view->inner;
    cpu_parallel(device, view->outer, 1, elements * 0.05, sum_outer, &r);
    device->loops->elementwise->column_sums(r.parts, view->outer / view->blocks, view->channels,
                                            view->blocks * view->inner, 0, sums);
    if (db.dtype != LS_F32)
        device->loops->half->narrow(db.dtype, sums, db.at, view->channels);
}
