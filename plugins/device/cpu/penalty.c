// SPDX-License-Identifier: Apache-2.0
// What a regularized variable adds to the losses, in whatever layout it lies: padding is zero and
// adds nothing. Sums are made in pieces of fixed size and added in order.
#include "plugins/device/cpu/cpu.h"
#include "plugins/device/cpu/layout.h"

#include <string.h>

enum { PIECE = 4096 };

struct running {
    const struct cpu_layer_loops *loops;
    const float *w;
    float *dw;
    double *pieces; // two of each: sum of magnitudes, of squares
    int64_t count;
    float l1, l2;
};

static void sums_part(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t first = piece * PIECE, left = r->count - first;
        r->loops->norms(r->w + first, left < PIECE ? left : PIECE, r->pieces + 2 * piece);
    }
}

static void gradient_part(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    r->loops->norms_backward(r->w + begin, r->l1, r->l2, r->dw + begin, end - begin);
}

static int64_t pieces_of(int64_t count)
{
    return (count + PIECE - 1) / PIECE;
}

static int32_t run_forward(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    struct running r = {.loops = device->loops->layers,
                        .w = launch->arguments[1],
                        .pieces = launch->scratch,
                        .count = (int64_t)cpu_elements(&kernel->arguments[1])};
    float *sums = cpu_output(kernel, launch, 0);
    double found[2] = {0.0, 0.0};
    cpu_parallel(device, pieces_of(r.count), 1, (double)r.count * 0.1, sums_part, &r);
    for (int64_t i = 0; i < pieces_of(r.count); i++) {
        found[0] += r.pieces[2 * i];
        found[1] += r.pieces[2 * i + 1];
    }
    memset(sums, 0, 4 * sizeof(float));
    sums[0] =
        (float)((double)kernel->arguments[0].dims[0] * ((double)kernel->attributes.l1 * found[0] +
                                                        (double)kernel->attributes.l2 * found[1]));
    return LS_OK;
}

static int32_t run_backward(struct ls_device *device, struct ls_kernel *kernel,
                            const struct cpu_call *launch)
{
    const double scale =
        (double)kernel->arguments[0].dims[0] * (double)launch->record->gradient_scale;
    struct running r = {.loops = device->loops->layers,
                        .w = launch->arguments[1],
                        .dw = cpu_output(kernel, launch, 0),
                        .count = (int64_t)cpu_elements(&kernel->arguments[1]),
                        .l1 = (float)((double)kernel->attributes.l1 * scale),
                        .l2 = (float)(2.0 * (double)kernel->attributes.l2 * scale)};
    cpu_parallel(device, r.count, 1024, (double)r.count * 0.1, gradient_part, &r);
    return LS_OK;
}

int32_t cpu_penalty(struct ls_device *device, const struct ls_kernel_request *request,
                    struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    struct ls_tensor_desc *w = &kernel->arguments[1], *sums = cpu_output_desc(kernel, 0);
    (void)request;
    if (w->layout.kind == LS_LAYOUT_ANY)
        cpu_layout_plain(w, &w->layout);
    cpu_layout_plain(sums, &sums->layout);
    kernel->run = run_forward;
    answer->used_inputs = 2;
    answer->scratch_bytes = (uint64_t)pieces_of((int64_t)cpu_elements(w)) * 2 * sizeof(double);
    cpu_implementation(device, answer, "penalty");
    return LS_OK;
}

int32_t cpu_penalty_backward(struct ls_device *device, const struct ls_kernel_request *request,
                             struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_backward;
    answer->used_inputs = 2;
    answer->in_place = 2;
    cpu_implementation(device, answer, "penalty");
    return cpu_same_layout(device, request, kernel, 1U << 1 | 1U << 2);
}
