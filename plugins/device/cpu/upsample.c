// SPDX-License-Identifier: Apache-2.0
// Upsampling of rows and columns, plain or in blocks of channels.
#include "plugins/device/cpu/layout.h"

#include <math.h>
#include <string.h>

struct upsample {
    struct cpu_view small, large;
    int64_t factor[2]; // rows, columns
    int64_t bytes; // of an element
    bool bilinear;
};

struct upsampling {
    const struct upsample *plan;
    const float *from;
    float *to;
};

// Of which two elements along an axis of `size`, and with which weight of the second, element `o`
// is made.
struct source {
    int64_t at[2];
    float weight;
};

static struct source source_of(int64_t o, int64_t factor, int64_t size)
{
    const float at = ((float)o + 0.5f) / (float)factor - 0.5f, below = floorf(at);
    const int64_t first = (int64_t)below;
    struct source s = {{first < 0 ? 0 : first, first + 1 > size - 1 ? size - 1 : first + 1},
                       at - below};
    return s;
}

// ---- Nearest: a row of the small image at a time ----

// Of elements of any size.
static void repeat_rows(void *context, int64_t begin, int64_t end)
{
    const struct upsampling *u = context;
    const struct upsample *p = u->plan;
    const int64_t inner = p->small.inner * p->bytes, width = p->large.width * inner;
    for (int64_t row = begin; row < end; row++) {
        const char *from = (const char *)u->from + row * p->small.width * inner;
        char *first = (char *)u->to + row * p->factor[0] * width, *to = first;
        for (int64_t w = 0; w < p->small.width; w++, from += inner)
            for (int64_t k = 0; k < p->factor[1]; k++, to += inner)
                memcpy(to, from, (size_t)inner);
        for (int64_t k = 1; k < p->factor[0]; k++)
            memcpy(first + k * width, first, (size_t)width);
    }
}

static void add_rows(void *context, int64_t begin, int64_t end)
{
    const struct upsampling *u = context;
    const struct upsample *p = u->plan;
    const int64_t inner = p->small.inner, width = p->large.width * inner;
    for (int64_t row = begin; row < end; row++) {
        float *to = u->to + row * p->small.width * inner;
        memset(to, 0, (size_t)(p->small.width * inner) * sizeof(float));
        for (int64_t k = 0; k < p->factor[0]; k++) {
            const float *from = u->from + (row * p->factor[0] + k) * width;
            for (int64_t w = 0; w < p->large.width; w++)
                for (int64_t i = 0; i < inner; i++)
                    to[w / p->factor[1] * inner + i] += from[w * inner + i];
        }
    }
}

// ---- Bilinear: a plane at a time ----

static void mix_planes(void *context, int64_t begin, int64_t end)
{
    const struct upsampling *u = context;
    const struct upsample *p = u->plan;
    const int64_t inner = p->small.inner, width = p->small.width * inner;
    for (int64_t o = begin; o < end; o++) {
        const float *plane = u->from + o * p->small.height * width;
        float *to = u->to + o * p->large.height * p->large.width * inner;
        for (int64_t h = 0; h < p->large.height; h++) {
            const struct source row = source_of(h, p->factor[0], p->small.height);
            const float *above = plane + row.at[0] * width, *below = plane + row.at[1] * width;
            for (int64_t w = 0; w < p->large.width; w++, to += inner) {
                const struct source column = source_of(w, p->factor[1], p->small.width);
                const int64_t left = column.at[0] * inner, right = column.at[1] * inner;
                for (int64_t i = 0; i < inner; i++) {
                    const float one =
                        above[left + i] + (above[right + i] - above[left + i]) * column.weight;
                    const float other =
                        below[left + i] + (below[right + i] - below[left + i]) * column.weight;
                    to[i] = one + (other - one) * row.weight;
                }
            }
        }
    }
}

static void spread_planes(void *context, int64_t begin, int64_t end)
{
    const struct upsampling *u = context;
    const struct upsample *p = u->plan;
    const int64_t inner = p->small.inner, width = p->small.width * inner;
    for (int64_t o = begin; o < end; o++) {
        float *plane = u->to + o * p->small.height * width;
        const float *from = u->from + o * p->large.height * p->large.width * inner;
        memset(plane, 0, (size_t)(p->small.height * width) * sizeof(float));
        for (int64_t h = 0; h < p->large.height; h++) {
            const struct source row = source_of(h, p->factor[0], p->small.height);
            for (int64_t w = 0; w < p->large.width; w++, from += inner) {
                const struct source column = source_of(w, p->factor[1], p->small.width);
                for (int k = 0; k < 4; k++) {
                    const float weight = (k / 2 ? row.weight : 1 - row.weight) *
                                         (k % 2 ? column.weight : 1 - column.weight);
                    float *to = plane + row.at[k / 2] * width + column.at[k % 2] * inner;
                    for (int64_t i = 0; i < inner; i++)
                        to[i] += from[i] * weight;
                }
            }
        }
    }
}

// ---- Halves: planes of float32 in scratch, one for each thread ----

struct widened {
    const struct ls_device *device;
    const struct upsample *plan;
    struct cpu_tensor from, to;
    int64_t from_plane, to_plane; // elements
    cpu_body *body;
    int64_t units; // of a plane, for the body
    int64_t workers;
    float *rooms;
};

static int64_t plane_of(const struct cpu_view *view)
{
    return view->height * view->width * view->inner;
}

static int64_t workers_of(const struct ls_device *device, const struct upsample *p)
{
    return p->small.outer < device->threads ? p->small.outer : device->threads;
}

static void run_workers(void *context, int64_t begin, int64_t end)
{
    const struct widened *w = context;
    const int64_t outer = w->plan->small.outer;
    for (int64_t worker = begin; worker < end; worker++) {
        float *in = w->rooms + worker * (w->from_plane + w->to_plane), *out = in + w->from_plane;
        struct upsampling u = {w->plan, in, out};
        for (int64_t o = outer * worker / w->workers; o < outer * (worker + 1) / w->workers; o++) {
            cpu_read(w->device, w->from, o * w->from_plane, w->from_plane, in);
            w->body(&u, 0, w->units);
            cpu_written(w->device, w->to, o * w->to_plane, w->to_plane, out);
        }
    }
}

static int32_t run_upsample2d(struct ls_device *device, struct ls_kernel *kernel,
                              const struct cpu_call *launch)
{
    const struct upsample *p = kernel->state;
    const bool forward = kernel->op == LS_OP_UPSAMPLE2D;
    const uint32_t dtype = kernel->arguments[0].dtype;
    struct upsampling u = {p, launch->arguments[0], launch->arguments[1]};
    const double elements =
        (double)cpu_elements(&kernel->arguments[0]) + (double)cpu_elements(&kernel->arguments[1]);
    cpu_body *body = p->bilinear ? forward ? mix_planes : spread_planes
                     : forward   ? repeat_rows
                                 : add_rows;
    const int64_t units = p->bilinear ? 1 : p->small.height; // of a plane
    const double work = elements * (p->bilinear ? 1 : 0.3);
    if (dtype == LS_F32 || body == repeat_rows) {
        cpu_parallel(device, p->small.outer * units, 1, work, body, &u);
        return LS_OK; // padding stays 0
    }
    struct widened w = {device,
                        p,
                        {launch->arguments[0], dtype},
                        {launch->arguments[1], dtype},
                        plane_of(forward ? &p->small : &p->large),
                        plane_of(forward ? &p->large : &p->small),
                        body,
                        units,
                        workers_of(device, p),
                        launch->scratch};
    cpu_parallel(device, w.workers, 1, work, run_workers, &w);
    return LS_OK;
}

int32_t cpu_upsample2d(struct ls_device *device, const struct ls_kernel_request *request,
                       struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const uint32_t small = request->op == LS_OP_UPSAMPLE2D ? 0 : 1;
    struct ls_tensor_desc *x = &kernel->arguments[0], *y = &kernel->arguments[1];
    struct upsample *p = kernel->state = cpu_state(device, sizeof(*p));
    if (!p)
        return LS_OUT_OF_MEMORY;
    if (request->attributes.function >= LS_UPSAMPLE_COUNT)
        return cpu_unsupported(device, request, "there is no such function");
    if (x->layout.kind == LS_LAYOUT_ANY)
        cpu_layout_like(&y->layout, x, &x->layout);
    if (y->layout.kind == LS_LAYOUT_ANY)
        cpu_layout_like(&x->layout, y, &y->layout);
    if (!cpu_view_of(&kernel->arguments[small], &p->small) ||
        !cpu_view_of(&kernel->arguments[1 - small], &p->large) ||
        p->small.inner != p->large.inner || p->small.blocks != p->large.blocks)
        return cpu_unsupported(device, request, "the arguments lie in layouts that do not match");
    p->factor[0] = request->attributes.strides[0];
    p->factor[1] = request->attributes.strides[1];
    p->bilinear = request->attributes.function == LS_UPSAMPLE_BILINEAR;
    p->bytes = (int64_t)ls_dtype_bytes(x->dtype);
    if (x->dtype != LS_F32 && (p->bilinear || small == 1))
        answer->scratch_bytes =
            (uint64_t)(workers_of(device, p) * (plane_of(&p->small) + plane_of(&p->large))) *
            sizeof(float);
    kernel->run = run_upsample2d;
    cpu_implementation(device, answer, "upsampling");
    return LS_OK;
}
