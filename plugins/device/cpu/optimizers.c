// SPDX-License-Identifier: Apache-2.0
// Operations over flat ranges, in one pass over the memory: the optimizers' updates, clipping,
// averages of weights, and measures.
#include "plugins/device/cpu/cpu.h"

#include <math.h>
#include <string.h>

enum { GRAIN = 1024, STATES = 3 };

// One launch; what a part of it needs.
struct job {
    const struct cpu_loops *loops;
    struct cpu_optimizer o;
    const float *in;
    float *out, *more;
    float *states[STATES];
};

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
    struct cpu_optimizer o = {.function =
                                  kernel->op == LS_OP_ADAM_UPDATE ? LS_UPDATE_ADAM : a->function,
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
    } else if (o.function == LS_UPDATE_ADAM || o.function == LS_UPDATE_AMSGRAD) {
        o.rate = (float)(rate * sqrt(left2) / left1);
    } else if (o.function == LS_UPDATE_ADAMAX) {
        o.rate = (float)(rate / left1);
    } else if (o.function == LS_UPDATE_NADAM) {
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
    job->loops->update->update(&job->o, job->in + begin, job->out + begin, states, end - begin);
}

static void sgd_part(void *context, int64_t begin, int64_t end)
{
    const struct job *job = context;
    job->loops->elementwise->sgd(job->o.rate, job->o.momentum, job->o.nesterov, job->in + begin,
                                 job->out + begin, job->states[0] ? job->states[0] + begin : NULL,
                                 end - begin);
}

static int32_t run_update(struct ls_device *device, struct ls_kernel *kernel,
                          const struct cpu_call *launch)
{
    const int64_t count = count_of(kernel);
    if (launch->record->skip)
        return LS_OK;
    struct job job = {.loops = device->loops,
                      .o = optimizer_of(kernel, launch->record),
                      .in = launch->arguments[0],
                      .out = launch->arguments[1]};
    for (uint32_t i = 0; i + 1 < kernel->output_count; i++)
        job.states[i] = launch->arguments[2 + i];
    if (kernel->op == LS_OP_SGD_UPDATE)
        cpu_parallel(device, count, GRAIN, (double)count * 0.2, sgd_part, &job);
    else
        cpu_parallel(device, count, GRAIN, (double)count * 0.7, update_part, &job);
    return LS_OK;
}

// ---- LAMB ----

static void direction_part(void *context, int64_t begin, int64_t end)
{
    const struct job *job = context;
    job->loops->update->lamb_direction(&job->o, job->in + begin, job->out + begin,
                                       job->more + begin, job->states[0] + begin,
                                       job->states[1] + begin, end - begin);
}

static int32_t run_direction(struct ls_device *device, struct ls_kernel *kernel,
                             const struct cpu_call *launch)
{
    const int64_t count = count_of(kernel);
    if (launch->record->skip)
        return LS_OK;
    struct job job = {.loops = device->loops,
                      .o = optimizer_of(kernel, launch->record),
                      .in = launch->arguments[0],
                      .out = launch->arguments[1],
                      .more = launch->arguments[2],
                      .states = {launch->arguments[3], launch->arguments[4]}};
    cpu_parallel(device, count, GRAIN, (double)count * 0.7, direction_part, &job);
    return LS_OK;
}

static void subtract_part(void *context, int64_t begin, int64_t end)
{
    const struct job *job = context;
    job->loops->update->subtract(job->o.rate, job->in + begin, job->out + begin, end - begin);
}

static int32_t run_lamb(struct ls_device *device, struct ls_kernel *kernel,
                        const struct cpu_call *launch)
{
    const int64_t count = count_of(kernel);
    const double *measures = launch->arguments[1];
    if (launch->record->skip)
        return LS_OK;
    const double ratio = measures[0] > 0 && measures[2] > 0 ? sqrt(measures[0] / measures[2]) : 1.0;
    struct job job = {.loops = device->loops,
                      .o = {.rate = (float)(ratio * (double)launch->record->learning_rate)},
                      .in = launch->arguments[0],
                      .out = launch->arguments[2]};
    cpu_parallel(device, count, GRAIN, (double)count * 0.3, subtract_part, &job);
    return LS_OK;
}

// ---- Clipping ----

static void clamp_part(void *context, int64_t begin, int64_t end)
{
    const struct job *job = context;
    job->loops->update->clamp(job->o.rate, job->in + begin, job->out + begin, end - begin);
}

static void scale_part(void *context, int64_t begin, int64_t end)
{
    const struct job *job = context;
    job->loops->update->scale(job->o.rate, job->in + begin, job->out + begin, end - begin);
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
    struct job job = {.loops = device->loops,
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

// ---- Loss scale ----

// A loss scale is a power of two as a rule: then its reciprocal is exact.
static int32_t run_unscale(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    const int64_t count = count_of(kernel);
    struct job job = {.loops = device->loops,
                      .o = {.rate = 1.0f / launch->record->loss_scale},
                      .in = launch->arguments[0],
                      .out = launch->arguments[1]};
    cpu_parallel(device, count, GRAIN, (double)count * 0.2, scale_part, &job);
    return LS_OK;
}

// ---- Averages ----

static void average_part(void *context, int64_t begin, int64_t end)
{
    const struct job *job = context;
    job->loops->update->average(job->o.momentum, job->in + begin, job->out + begin, end - begin);
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
    struct job job = {.loops = device->loops,
                      .o = {.momentum = update == 1 ? 0.0f : a->momentum},
                      .in = launch->arguments[0],
                      .out = launch->arguments[1],
                      .more = a->count && update % a->count == 0 ? launch->arguments[2] : NULL};
    cpu_parallel(device, count, GRAIN, (double)count * 0.3, average_part, &job);
    return LS_OK;
}

// Few values, of moving statistics: one thread.
static int32_t run_average(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    (void)device;
    const int64_t count = count_of(kernel);
    const float momentum = kernel->attributes.momentum, rest = 1.0f - momentum;
    const float *restrict g = launch->arguments[0];
    float *restrict w = launch->arguments[1];
    if (launch->record->skip)
        return LS_OK;
    for (int64_t i = 0; i < count; i++)
        w[i] = momentum * w[i] + rest * g[i];
    return LS_OK;
}

// ---- Measures: pieces of fixed size, whose sums are then added in order ----

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

static int64_t pieces_of(int64_t count)
{
    return (count + PIECE - 1) / PIECE;
}

static int32_t run_measure(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    const int64_t count = count_of(kernel);
    const int64_t pieces = pieces_of(count);
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

// ---- Prepare ----

// How many states a function has: at least, at most.
static const uint32_t state_counts[LS_UPDATE_COUNT][2] = {
    [LS_UPDATE_SGD] = {0, 1},      [LS_UPDATE_ADAM] = {2, 2},
    [LS_UPDATE_AMSGRAD] = {3, 3},  [LS_UPDATE_RMSPROP] = {1, 2},
    [LS_UPDATE_ADAGRAD] = {1, 1},  [LS_UPDATE_RMSPROP_CENTERED] = {2, 3},
    [LS_UPDATE_ADADELTA] = {2, 2}, [LS_UPDATE_ADAMAX] = {2, 2},
    [LS_UPDATE_NADAM] = {2, 2},
};

static const struct operation {
    uint32_t op;
    int32_t (*run)(struct ls_device *device, struct ls_kernel *kernel,
                   const struct cpu_call *launch);
    const char *name;
    uint32_t in_place;
} operations[] = {
    {LS_OP_SGD_UPDATE, run_update, "sgd", 0},
    {LS_OP_ADAM_UPDATE, run_update, "adam", 0},
    {LS_OP_UPDATE, run_update, "optimizer", 0},
    {LS_OP_LAMB_DIRECTION, run_direction, "lamb direction", 0},
    {LS_OP_LAMB_UPDATE, run_lamb, "lamb", 0},
    {LS_OP_CLIP, run_clip, "clip", 1},
    {LS_OP_UNSCALE, run_unscale, "unscale", 1},
    {LS_OP_EMA_UPDATE, run_ema, "average of weights", 0},
    {LS_OP_AVERAGE_UPDATE, run_average, "average", 0},
    {LS_OP_MEASURE, run_measure, "measure", 0},
};

int32_t cpu_flat_range(struct ls_device *device, const struct ls_kernel_request *request,
                       struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const uint32_t function = request->attributes.function, states = request->output_count - 1;
    const struct operation *operation = operations;
    while (operation->op != request->op)
        operation++;
    kernel->run = operation->run;
    kernel->accumulate = 0;
    answer->in_place = operation->in_place;
    cpu_implementation(device, answer, operation->name);
    if (request->op == LS_OP_MEASURE)
        answer->scratch_bytes = (uint64_t)pieces_of(count_of(kernel)) * 2 * sizeof(double);
    if (request->op == LS_OP_UPDATE &&
        (function >= LS_UPDATE_COUNT || states < state_counts[function][0] ||
         states > state_counts[function][1]))
        return cpu_unsupported(device, request, "no optimizer has these states");
    return cpu_all_plain(device, request, kernel);
}
