// SPDX-License-Identifier: Apache-2.0
// Optimizer updates and sums over flat ranges: one pass over the memory.
#include "plugins/device/cpu/cpu.h"

#include <math.h>

struct update {
    const struct cpu_elementwise_loops *loops;
    const struct ls_op_attributes *attributes;
    float rate; // of Adam: alpha
    const float *g;
    float *w, *first, *second;
};

enum { GRAIN = 1024 };

static int32_t check_flat(struct ls_device *device, const struct ls_kernel_request *request)
{
    for (uint32_t i = 0; i < request->input_count + request->output_count; i++)
        if (request->arguments[i].layout.kind == LS_LAYOUT_OWN)
            return cpu_unsupported(device, request, "flat ranges have the plain layout");
    if (request->arguments[0].dtype != LS_F32)
        return cpu_unsupported(device, request, "only float32");
    return LS_OK;
}

static void sgd_part(void *context, int64_t begin, int64_t end)
{
    const struct update *u = context;
    u->loops->sgd(u->rate, u->attributes->momentum, u->attributes->nesterov, u->g + begin,
                  u->w + begin, u->first ? u->first + begin : NULL, end - begin);
}

static int32_t run_sgd(struct ls_device *device, struct ls_kernel *kernel,
                       const struct cpu_call *launch)
{
    if (launch->record->skip)
        return LS_OK;
    const int64_t count = (int64_t)ls_tensor_elements(&kernel->arguments[0]);
    struct update u = {.loops = device->loops->elementwise,
                       .attributes = &kernel->attributes,
                       .rate = launch->record->learning_rate,
                       .g = launch->arguments[0],
                       .w = launch->arguments[1],
                       .first = kernel->output_count > 1 ? launch->arguments[2] : NULL};
    cpu_parallel(device, count, GRAIN, (double)count * 0.2, sgd_part, &u);
    return LS_OK;
}

int32_t cpu_sgd_update(struct ls_device *device, const struct ls_kernel_request *request,
                       struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_sgd;
    kernel->accumulate = 0;
    cpu_implementation(device, answer, "sgd");
    return check_flat(device, request);
}

static void adam_part(void *context, int64_t begin, int64_t end)
{
    const struct update *u = context;
    const struct ls_op_attributes *a = u->attributes;
    u->loops->adam(u->rate, a->beta1, a->beta2, a->epsilon, u->g + begin, u->w + begin,
                   u->first + begin, u->second + begin, end - begin);
}

static int32_t run_adam(struct ls_device *device, struct ls_kernel *kernel,
                        const struct cpu_call *launch)
{
    const struct ls_step_record *record = launch->record;
    const struct ls_op_attributes *a = &kernel->attributes;
    if (record->skip)
        return LS_OK;
    const int64_t count = (int64_t)ls_tensor_elements(&kernel->arguments[0]);
    const double t = (double)record->update;
    const double alpha = (double)record->learning_rate * sqrt(1.0 - pow((double)a->beta2, t)) /
                         (1.0 - pow((double)a->beta1, t));
    struct update u = {.loops = device->loops->elementwise,
                       .attributes = a,
                       .rate = (float)alpha,
                       .g = launch->arguments[0],
                       .w = launch->arguments[1],
                       .first = launch->arguments[2],
                       .second = launch->arguments[3]};
    cpu_parallel(device, count, GRAIN, (double)count * 0.7, adam_part, &u);
    return LS_OK;
}

int32_t cpu_adam_update(struct ls_device *device, const struct ls_kernel_request *request,
                        struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_adam;
    kernel->accumulate = 0;
    cpu_implementation(device, answer, "adam");
    return check_flat(device, request);
}

// Few values, of moving statistics: one thread.
static int32_t run_average(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    (void)device;
    const int64_t count = (int64_t)ls_tensor_elements(&kernel->arguments[0]);
    const float momentum = kernel->attributes.momentum, rest = 1.0f - momentum;
    const float *restrict g = launch->arguments[0];
    float *restrict w = launch->arguments[1];
    if (launch->record->skip)
        return LS_OK;
    for (int64_t i = 0; i < count; i++)
        w[i] = momentum * w[i] + rest * g[i];
    return LS_OK;
}

int32_t cpu_average_update(struct ls_device *device, const struct ls_kernel_request *request,
                           struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_average;
    kernel->accumulate = 0;
    cpu_implementation(device, answer, "average");
    return check_flat(device, request);
}

// ---- measure: pieces of fixed size, whose sums are then added in order ----

enum { PIECE = 4096 };

struct measure {
    const struct cpu_elementwise_loops *loops;
    const float *x;
    int64_t count;
    double *pieces;
};

static void measure_part(void *context, int64_t begin, int64_t end)
{
    const struct measure *m = context;
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t first = piece * PIECE, left = m->count - first;
        m->loops->measure(m->x + first, left < PIECE ? left : PIECE, m->pieces + 2 * piece);
    }
}

static int32_t run_measure(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    const int64_t count = (int64_t)ls_tensor_elements(&kernel->arguments[0]);
    const int64_t pieces = (count + PIECE - 1) / PIECE;
    struct measure m = {device->loops->elementwise, launch->arguments[0], count, launch->scratch};
    cpu_parallel(device, pieces, 1, (double)count * 0.2, measure_part, &m);
    double *out = cpu_output(kernel, launch, 0), sums[2] = {0.0, 0.0};
    for (int64_t i = 0; i < pieces; i++) {
        sums[0] += m.pieces[2 * i];
        sums[1] += m.pieces[2 * i + 1];
    }
    out[0] = sums[0];
    out[1] = sums[1];
    return LS_OK;
}

int32_t cpu_measure(struct ls_device *device, const struct ls_kernel_request *request,
                    struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const uint64_t count = ls_tensor_elements(&request->arguments[0]);
    kernel->run = run_measure;
    kernel->accumulate = 0;
    answer->scratch_bytes = (count + PIECE - 1) / PIECE * 2 * sizeof(double);
    cpu_implementation(device, answer, "measure");
    return check_flat(device, request);
}
