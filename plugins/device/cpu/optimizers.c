// SPDX-License-Identifier: Apache-2.0
// Optimizers beside SGD and Adam, clipping, and averages of weights, over flat ranges.
#include "plugins/device/cpu/cpu.h"

#include <math.h>
#include <string.h>

enum { GRAIN = 1024, STATES = 3 };

// One launch; what a part of it needs.
struct job {
    const struct cpu_update_loops *loops;
    struct cpu_optimizer o;
    const float *in;
    float *out, *more;
    float *states[STATES];
};

static int32_t check_flat(struct ls_device *device, const struct ls_kernel_request *request)
{
    for (uint32_t i = 0; i < request->input_count + request->output_count; i++)
        if (request->arguments[i].layout.kind == LS_LAYOUT_OWN)
            return cpu_unsupported(device, request, "flat ranges have the plain layout");
    return LS_OK;
}

static int64_t count_of(const struct ls_kernel *kernel)
{
    return (int64_t)ls_tensor_elements(&kernel->arguments[0]);
}

// ---- Updates ----

// What depends on the step, in double precision.
static struct cpu_optimizer optimizer_of(const struct ls_kernel *kernel,
                                         const struct ls_step_record *record)
{
    const struct ls_op_attributes *a = &kernel->attributes;
    const double rate = (double)record->learning_rate, t = (double)record->update;
    const double beta1 = (double)a->beta1, beta2 = (double)a->beta2;
    const double left1 = 1.0 - pow(beta1, t), left2 = 1.0 - pow(beta2, t);
    struct cpu_optimizer o = {.function = a->function,
                              .nesterov = a->nesterov,
                              .rate = record->learning_rate,
                              .keep = (float)(1.0 - (double)a->weight_decay * rate),
                              .momentum = a->momentum,
                              .beta1 = a->beta1,
                              .beta2 = a->beta2,
                              .epsilon = a->epsilon};
    if (kernel->op == LS_OP_LAMB_DIRECTION) {
        o.first = (float)(1.0 / left1);
        o.second = (float)(1.0 / left2);
    } else if (a->function == LS_UPDATE_ADAM || a->function == LS_UPDATE_AMSGRAD) {
        o.rate = (float)(rate * sqrt(left2) / left1);
    } else if (a->function == LS_UPDATE_ADAMAX) {
        o.rate = (float)(rate / left1);
    } else if (a->function == LS_UPDATE_NADAM) {
        const double now = beta1 * (1.0 - 0.5 * pow(0.96, t));
        const double next = beta1 * (1.0 - 0.5 * pow(0.96, t + 1.0));
        const double product = ls_nadam_product(beta1, record->update);
        o.first = (float)(next / (1.0 - product * next));
        o.second = (float)((1.0 - now) / (1.0 - product));
        o.third = (float)(1.0 / left2);
    }
    return o;
}

static void update_part(void *context, int64_t begin, int64_t end)
{
    const struct job *job = context;
    float *states[STATES];
    for (int i = 0; i < STATES; i++)
        states[i] = job->states[i] ? job->states[i] + begin : NULL;
    job->loops->update(&job->o, job->in + begin, job->out + begin, states, end - begin);
}

static int32_t run_update(struct ls_device *device, struct ls_kernel *kernel,
                          const struct cpu_call *launch)
{
    const int64_t count = count_of(kernel);
    if (launch->record->skip)
        return LS_OK;
    struct job job = {.loops = device->loops->update,
                      .o = optimizer_of(kernel, launch->record),
                      .in = launch->arguments[0],
                      .out = launch->arguments[1]};
    for (uint32_t i = 0; i + 1 < kernel->output_count; i++)
        job.states[i] = launch->arguments[2 + i];
    cpu_parallel(device, count, GRAIN, (double)count * 0.7, update_part, &job);
    return LS_OK;
}

// How many states a function has: at least, at most.
static const uint32_t state_counts[LS_UPDATE_COUNT][2] = {
    [LS_UPDATE_SGD] = {0, 1},      [LS_UPDATE_ADAM] = {2, 2},
    [LS_UPDATE_AMSGRAD] = {3, 3},  [LS_UPDATE_RMSPROP] = {1, 2},
    [LS_UPDATE_ADAGRAD] = {1, 1},  [LS_UPDATE_RMSPROP_CENTERED] = {2, 3},
    [LS_UPDATE_ADADELTA] = {2, 2}, [LS_UPDATE_ADAMAX] = {2, 2},
    [LS_UPDATE_NADAM] = {2, 2},
};

int32_t cpu_update(struct ls_device *device, const struct ls_kernel_request *request,
                   struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const uint32_t function = request->attributes.function, states = request->output_count - 1;
    kernel->run = run_update;
    kernel->accumulate = 0;
    cpu_implementation(device, answer, "optimizer");
    if (function >= LS_UPDATE_COUNT || states < state_counts[function][0] ||
        states > state_counts[function][1])
        return cpu_unsupported(device, request, "no optimizer has these states");
    return check_flat(device, request);
}

// ---- LAMB ----

static void direction_part(void *context, int64_t begin, int64_t end)
{
    const struct job *job = context;
    job->loops->lamb_direction(&job->o, job->in + begin, job->out + begin, job->more + begin,
                               job->states[0] + begin, job->states[1] + begin, end - begin);
}

static int32_t run_direction(struct ls_device *device, struct ls_kernel *kernel,
                             const struct cpu_call *launch)
{
    const int64_t count = count_of(kernel);
    if (launch->record->skip)
        return LS_OK;
    struct job job = {.loops = device->loops->update,
                      .o = optimizer_of(kernel, launch->record),
                      .in = launch->arguments[0],
                      .out = launch->arguments[1],
                      .more = launch->arguments[2],
                      .states = {launch->arguments[3], launch->arguments[4]}};
    cpu_parallel(device, count, GRAIN, (double)count * 0.7, direction_part, &job);
    return LS_OK;
}

int32_t cpu_lamb_direction(struct ls_device *device, const struct ls_kernel_request *request,
                           struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_direction;
    kernel->accumulate = 0;
    cpu_implementation(device, answer, "lamb direction");
    return check_flat(device, request);
}

static void subtract_part(void *context, int64_t begin, int64_t end)
{
    const struct job *job = context;
    job->loops->subtract(job->o.rate, job->in + begin, job->out + begin, end - begin);
}

static int32_t run_lamb(struct ls_device *device, struct ls_kernel *kernel,
                        const struct cpu_call *launch)
{
    const int64_t count = count_of(kernel);
    const double *measures = launch->arguments[1];
    if (launch->record->skip)
        return LS_OK;
    const double ratio = measures[0] > 0 && measures[2] > 0 ? sqrt(measures[0] / measures[2]) : 1.0;
    struct job job = {.loops = device->loops->update,
                      .o = {.rate = (float)(ratio * (double)launch->record->learning_rate)},
                      .in = launch->arguments[0],
                      .out = launch->arguments[2]};
    cpu_parallel(device, count, GRAIN, (double)count * 0.3, subtract_part, &job);
    return LS_OK;
}

int32_t cpu_lamb_update(struct ls_device *device, const struct ls_kernel_request *request,
                        struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_lamb;
    kernel->accumulate = 0;
    cpu_implementation(device, answer, "lamb");
    return check_flat(device, request);
}

// ---- Clipping ----

static void clamp_part(void *context, int64_t begin, int64_t end)
{
    const struct job *job = context;
    job->loops->clamp(job->o.rate, job->in + begin, job->out + begin, end - begin);
}

static void scale_part(void *context, int64_t begin, int64_t end)
{
    const struct job *job = context;
    job->loops->scale(job->o.rate, job->in + begin, job->out + begin, end - begin);
}

static double norm_of(const struct ls_kernel *kernel, const double *measures)
{
    const int64_t count = kernel->arguments[1].dims[0];
    double squares = 0.0, others = 0.0;
    for (int64_t i = 0; i + 1 < count; i += 2) {
        squares += measures[i];
        others += measures[i + 1];
    }
    return others > 0 ? (double)NAN : sqrt(squares);
}

static int32_t run_clip(struct ls_device *device, struct ls_kernel *kernel,
                        const struct cpu_call *launch)
{
    const int64_t count = count_of(kernel);
    const double bound = (double)kernel->attributes.threshold;
    struct job job = {.loops = device->loops->update,
                      .o = {.rate = kernel->attributes.threshold},
                      .in = launch->arguments[0],
                      .out = launch->arguments[kernel->input_count]};
    if (kernel->attributes.function == LS_CLIP_VALUE) {
        cpu_parallel(device, count, GRAIN, (double)count * 0.2, clamp_part, &job);
        return LS_OK;
    }
    const double norm = norm_of(kernel, launch->arguments[1]);
    job.o.rate = (float)(norm <= bound ? 1.0 : bound / norm);
    if (norm <= bound && job.in == job.out)
        return LS_OK;
    cpu_parallel(device, count, GRAIN, (double)count * 0.2, scale_part, &job);
    return LS_OK;
}

int32_t cpu_clip(struct ls_device *device, const struct ls_kernel_request *request,
                 struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_clip;
    kernel->accumulate = 0;
    answer->in_place = 1;
    cpu_implementation(device, answer, "clip");
    return check_flat(device, request);
}

// ---- Loss scale ----

// A loss scale is a power of two as a rule: then its reciprocal is exact.
static int32_t run_unscale(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    const int64_t count = count_of(kernel);
    struct job job = {.loops = device->loops->update,
                      .o = {.rate = 1.0f / launch->record->loss_scale},
                      .in = launch->arguments[0],
                      .out = launch->arguments[1]};
    cpu_parallel(device, count, GRAIN, (double)count * 0.2, scale_part, &job);
    return LS_OK;
}

int32_t cpu_unscale(struct ls_device *device, const struct ls_kernel_request *request,
                    struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_unscale;
    kernel->accumulate = 0;
    answer->in_place = 1;
    cpu_implementation(device, answer, "unscale");
    return check_flat(device, request);
}

// ---- Averages ----

static void average_part(void *context, int64_t begin, int64_t end)
{
    const struct job *job = context;
    job->loops->average(job->o.momentum, job->in + begin, job->out + begin, end - begin);
    if (job->more)
        memcpy(job->more + begin, job->out + begin, (size_t)(end - begin) * sizeof(float));
}

static int32_t run_ema(struct ls_device *device, struct ls_kernel *kernel,
                       const struct cpu_call *launch)
{
    const int64_t count = count_of(kernel);
    const struct ls_op_attributes *a = &kernel->attributes;
    const uint64_t update = launch->record->update;
    if (launch->record->skip)
        return LS_OK;
    struct job job = {.loops = device->loops->update,
                      .o = {.momentum = update == 1 ? 0.0f : a->momentum},
                      .in = launch->arguments[0],
                      .out = launch->arguments[1],
                      .more = a->count && update % a->count == 0 ? launch->arguments[2] : NULL};
    cpu_parallel(device, count, GRAIN, (double)count * 0.3, average_part, &job);
    return LS_OK;
}

int32_t cpu_ema_update(struct ls_device *device, const struct ls_kernel_request *request,
                       struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_ema;
    kernel->accumulate = 0;
    cpu_implementation(device, answer, "average of weights");
    return check_flat(device, request);
}
