// SPDX-License-Identifier: Apache-2.0
// PReLU. Slopes are shared along dimensions; the last ones, along which either all or none are
// shared, are one loop. dalpha is summed over a fixed number of pieces of the batch, and then over
// the pieces.
#include "core/plugin/half.h"
#include "plugins/device/cpu/cpu.h"
#include "plugins/device/cpu/layout.h"

#include <string.h>

enum { PIECES = 16 };

struct prelu {
    int64_t batch, example, slopes; // examples; elements of one; of alpha
    int64_t run; // elements of an example that are one loop
    int64_t step; // of alpha along it: 0 or 1
    uint32_t ndims; // before the run, of an example
    int64_t dims[LS_MAX_DIMS], strides[LS_MAX_DIMS]; // of an example, of alpha: 0 where shared
};

struct running {
    struct prelu s;
    const struct ls_device *device;
    struct cpu_tensor x, dy, result;
    const float *alpha;
    float *dalpha; // of the pieces
};

static struct prelu shape_of(const struct ls_tensor_desc *x, const struct ls_tensor_desc *alpha)
{
    struct prelu s = {.batch = x->dims[0],
                      .example = (int64_t)ls_tensor_elements(x) / x->dims[0],
                      .slopes = (int64_t)ls_tensor_elements(alpha),
                      .run = 1};
    int64_t stride = 1;
    uint32_t d = alpha->ndims;
    s.step = alpha->dims[d - 1] > 1;
    for (; d > 0 && (x->dims[d] == 1 || (alpha->dims[d - 1] > 1) == (s.step != 0)); d--) {
        s.run *= x->dims[d];
        stride *= alpha->dims[d - 1];
    }
    s.ndims = d;
    for (; d > 0; d--) {
        s.dims[d - 1] = x->dims[d];
        s.strides[d - 1] = alpha->dims[d - 1] > 1 ? stride : 0;
        stride *= alpha->dims[d - 1];
    }
    return s;
}

// The slope with which run `index` of an example begins.
static int64_t slope_of(const struct prelu *s, int64_t index)
{
    int64_t at = 0;
    for (uint32_t d = s->ndims; d > 0; d--) {
        at += index % s->dims[d - 1] * s->strides[d - 1];
        index /= s->dims[d - 1];
    }
    return at;
}

static void forward_part(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    const struct prelu *s = &r->s;
    const int64_t runs = s->example / s->run;
    float room[CPU_CHUNK];
    for (int64_t i = begin; i < end; i++) {
        const float *alpha = r->alpha + slope_of(s, i % runs);
        if (r->x.dtype == LS_F32) { // runs are short where channels have slopes
            r->device->loops->layers->prelu((const float *)r->x.at + i * s->run, alpha, s->step,
                                            (float *)r->result.at + i * s->run, s->run);
            continue;
        }
        for (int64_t c = 0, n; c < s->run; c += n) {
            const int64_t at = i * s->run + c;
            n = s->run - c < CPU_CHUNK ? s->run - c : CPU_CHUNK;
            const float *x = cpu_read(r->device, r->x, at, n, room);
            float *y = cpu_target(r->result, at, room);
            r->device->loops->layers->prelu(x, alpha + c * s->step, s->step, y, n);
            cpu_written(r->device, r->result, at, n, y);
        }
    }
}

// One run, which begins at `at`; with one slope, halves of it are no more than a room holds.
static void backward_run(const struct running *r, int64_t at, const float *alpha, float *dalpha)
{
    const struct prelu *s = &r->s;
    float rooms[2][CPU_CHUNK];
    if (r->x.dtype == LS_F32) {
        r->device->loops->layers->prelu_backward((const float *)r->dy.at + at,
                                                 (const float *)r->x.at + at, alpha, s->step,
                                                 (float *)r->result.at + at, dalpha, s->run);
        return;
    }
    for (int64_t c = 0, n; c < s->run; c += n) {
        n = s->run - c < CPU_CHUNK ? s->run - c : CPU_CHUNK;
        const float *dy = cpu_read(r->device, r->dy, at + c, n, rooms[0]);
        const float *x = cpu_read(r->device, r->x, at + c, n, rooms[1]);
        float *dx = cpu_target(r->result, at + c, rooms[0]);
        r->device->loops->layers->prelu_backward(dy, x, alpha + c * s->step, s->step, dx,
                                                 dalpha + c * s->step, n);
        cpu_written(r->device, r->result, at + c, n, dx);
    }
}

static void backward_part(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    const struct prelu *s = &r->s;
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t first = s->batch * piece / PIECES, last = s->batch * (piece + 1) / PIECES;
        float *dalpha = r->dalpha + piece * s->slopes;
        memset(dalpha, 0, (size_t)s->slopes * sizeof(float));
        for (int64_t b = first; b < last; b++)
            for (int64_t i = 0; i < s->example / s->run; i++) {
                const int64_t slope = slope_of(s, i);
                backward_run(r, b * s->example + i * s->run, r->alpha + slope, dalpha + slope);
            }
    }
}

static int32_t run_forward(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    struct running r = {.s = shape_of(&kernel->arguments[0], &kernel->arguments[1]),
                        .device = device,
                        .x = {launch->arguments[0], kernel->arguments[0].dtype},
                        .alpha = launch->arguments[1],
                        .result = {launch->arguments[2], kernel->arguments[2].dtype}};
    const int64_t runs = r.s.batch * (r.s.example / r.s.run);
    cpu_parallel(device, runs, 1, (double)runs * (5.0 + (double)r.s.run * 0.15), forward_part, &r);
    return LS_OK;
}

static int32_t run_backward(struct ls_device *device, struct ls_kernel *kernel,
                            const struct cpu_call *launch)
{
    struct running r = {.s = shape_of(&kernel->arguments[1], &kernel->arguments[2]),
                        .device = device,
                        .dy = {launch->arguments[0], kernel->arguments[0].dtype},
                        .x = {launch->arguments[1], kernel->arguments[1].dtype},
                        .alpha = launch->arguments[2],
                        .result = {launch->arguments[3], kernel->arguments[3].dtype},
                        .dalpha = launch->scratch};
    const double runs = (double)(r.s.batch * (r.s.example / r.s.run));
    cpu_parallel(device, PIECES, 1, runs * (10.0 + (double)r.s.run * 0.3), backward_part, &r);
    device->loops->elementwise->column_sums(r.dalpha, PIECES, r.s.slopes, r.s.slopes, 0,
                                            cpu_output(kernel, launch, 1));
    return LS_OK;
}

int32_t cpu_prelu(struct ls_device *device, const struct ls_kernel_request *request,
                  struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_forward;
    answer->in_place = 1;
    cpu_implementation(device, answer, "prelu");
    return cpu_all_plain(device, request, kernel);
}

int32_t cpu_prelu_backward(struct ls_device *device, const struct ls_kernel_request *request,
                           struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const struct prelu s = shape_of(&kernel->arguments[1], &kernel->arguments[2]);
    if (ls_dtype_is_half(kernel->arguments[1].dtype) && s.step == 0 && s.run > CPU_CHUNK)
        return CPU_COPIES; // the slope's gradient would be added up in another order
    kernel->run = run_backward;
    answer->in_place = 3;
    answer->scratch_bytes = PIECES * ls_tensor_elements(&kernel->arguments[2]) * sizeof(float);
    cpu_implementation(device, answer, "prelu");
    return cpu_all_plain(device, request, kernel);
}
