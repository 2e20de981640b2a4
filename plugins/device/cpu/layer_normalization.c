// SPDX-License-Identifier: Apache-2.0
// Normalization of each example by itself, plain layouts. What is saved of a row or group: its mean
// and 1 / deviation. dgamma and dbeta are summed over pieces of fixed size, and then over the
// pieces in their order, so that they do not depend on the number of threads.
#include "plugins/device/cpu/cpu.h"
#include "plugins/device/cpu/layout.h"

#include <string.h>

enum { PIECE_ROWS = 32 };

struct running {
    const struct ls_device *device;
    const struct cpu_layer_loops *loops;
    struct cpu_groups shape; // of an example, where groups are normalized
    int64_t channels, rows, count; // rows of all; pieces of rows, or examples
    float epsilon;
    const float *gamma, *beta, *saved_before;
    float *saved;
    float *dgamma, *dbeta; // of the pieces, one after the other; NULL: not asked for
    float *room; // for each example 4 rows, where groups are normalized
    struct cpu_row_pass pass; // rows, or examples where groups are normalized
};

static void normalize_rows(const void *context, const float *const *in, float *out, int64_t first,
                           int64_t rows)
{
    const struct running *r = context;
    r->loops->normalize_rows(in[0], r->gamma, r->beta, r->epsilon, out,
                             r->saved ? r->saved + 2 * first : NULL, rows, r->channels);
}

static void normalize_groups(const void *context, const float *const *in, float *out, int64_t first,
                             int64_t rows)
{
    const struct running *r = context;
    for (int64_t b = first; b < first + rows; b++) {
        const int64_t at = (b - first) * r->shape.rows * r->channels;
        r->loops->normalize_groups(&r->shape, in[0] + at, r->gamma, r->beta, r->epsilon, out + at,
                                   r->saved ? r->saved + 2 * b * r->shape.groups : NULL,
                                   r->room + 4 * b * r->channels);
    }
}

// Rows of one piece.
static void normalize_rows_backward(const void *context, const float *const *in, float *out,
                                    int64_t first, int64_t rows)
{
    const struct running *r = context;
    const int64_t piece = first / PIECE_ROWS;
    r->loops->normalize_rows_backward(in[0], in[1], r->saved_before + 2 * first, r->gamma, out,
                                      r->dgamma ? r->dgamma + piece * r->channels : NULL,
                                      r->dbeta ? r->dbeta + piece * r->channels : NULL, rows,
                                      r->channels);
}

static void normalize_groups_backward(const void *context, const float *const *in, float *out,
                                      int64_t first, int64_t rows)
{
    const struct running *r = context;
    for (int64_t b = first; b < first + rows; b++) {
        const int64_t at = (b - first) * r->shape.rows * r->channels;
        r->loops->normalize_groups_backward(
            &r->shape, in[0] + at, in[1] + at, r->saved_before + 2 * b * r->shape.groups, r->gamma,
            out + at, r->dgamma + b * r->channels, r->dbeta + b * r->channels,
            r->room + 4 * b * r->channels);
    }
}

static void rows_part(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t first = piece * PIECE_ROWS, left = r->rows - first;
        if (r->dgamma)
            memset(r->dgamma + piece * r->channels, 0, (size_t)r->channels * sizeof(float));
        if (r->dbeta)
            memset(r->dbeta + piece * r->channels, 0, (size_t)r->channels * sizeof(float));
        cpu_row_pass_run(r->device, &r->pass, first,
                         first + (left < PIECE_ROWS ? left : PIECE_ROWS));
    }
}

static void groups_part(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    cpu_row_pass_run(r->device, &r->pass, begin, end);
}

// ---- launch ----

static struct running running_of(const struct ls_device *device, const struct ls_kernel *kernel,
                                 const struct ls_tensor_desc *x)
{
    const int64_t channels = x->dims[x->ndims - 1], groups = kernel->attributes.groups;
    struct running r = {.device = device,
                        .loops = device->loops->layers,
                        .channels = channels,
                        .rows = (int64_t)ls_tensor_elements(x) / channels,
                        .epsilon = kernel->attributes.epsilon};
    r.count = groups ? x->dims[0] : (r.rows + PIECE_ROWS - 1) / PIECE_ROWS;
    if (groups)
        r.shape = (struct cpu_groups){r.rows / x->dims[0], groups, channels / groups};
    r.pass.dtype = x->dtype;
    r.pass.columns = groups ? r.shape.rows * channels : channels;
    return r;
}

static uint64_t rooms_of(const struct ls_device *device, const struct running *r)
{
    return cpu_row_rooms(device, r->pass.dtype, r->pass.columns);
}

static double work_of(const struct running *r, double of_element)
{
    return (double)r->rows * ((double)r->channels * of_element + 20.0);
}

static int32_t run_forward(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    struct running r = running_of(device, kernel, &kernel->arguments[0]);
    const bool only_beta = kernel->attributes.only_beta != 0;
    r.pass.loop = r.shape.groups ? normalize_groups : normalize_rows;
    r.pass.context = &r;
    r.pass.in[0] = launch->arguments[0];
    r.pass.out = cpu_output(kernel, launch, 0);
    r.pass.rooms = launch->scratch;
    r.saved = kernel->output_count > 1 ? cpu_output(kernel, launch, 1) : NULL;
    r.gamma = kernel->input_count > 1 && !only_beta ? launch->arguments[1] : NULL;
    r.beta = only_beta                 ? launch->arguments[1]
             : kernel->input_count > 2 ? launch->arguments[2]
                                       : NULL;
    r.room = (float *)(void *)cpu_past(launch->scratch, rooms_of(device, &r));
    cpu_parallel(device, r.count, 1, work_of(&r, 0.3),
                 kernel->attributes.groups ? groups_part : rows_part, &r);
    return LS_OK;
}

// The sum of all pieces, in their order.
static void join(const struct ls_device *device, const struct running *r, const float *pieces,
                 float *out)
{
    device->loops->elementwise->column_sums(pieces, r->count, r->channels, r->channels, 0, out);
}

static int32_t run_backward(struct ls_device *device, struct ls_kernel *kernel,
                            const struct cpu_call *launch)
{
    struct running r = running_of(device, kernel, &kernel->arguments[1]);
    const bool only_beta = kernel->attributes.only_beta != 0, groups = r.shape.groups > 0;
    float *dgamma = kernel->output_count > 1 && !only_beta ? cpu_output(kernel, launch, 1) : NULL;
    float *dbeta = only_beta                  ? cpu_output(kernel, launch, 1)
                   : kernel->output_count > 2 ? cpu_output(kernel, launch, 2)
                                              : NULL;
    float *pieces = (float *)(void *)cpu_past(launch->scratch, rooms_of(device, &r));
    r.pass.loop = groups ? normalize_groups_backward : normalize_rows_backward;
    r.pass.context = &r;
    r.pass.in[0] = launch->arguments[0];
    r.pass.in[1] = launch->arguments[1];
    r.pass.out = cpu_output(kernel, launch, 0);
    r.pass.rooms = launch->scratch;
    r.saved_before = launch->arguments[2];
    r.gamma = kernel->input_count > 3 && !only_beta ? launch->arguments[3] : NULL;
    r.dgamma = dgamma || groups ? pieces : NULL;
    r.dbeta = dbeta || groups ? pieces + r.count * r.channels : NULL;
    r.room = pieces + 2 * r.count * r.channels;
    cpu_parallel(device, r.count, 1, work_of(&r, 0.5), groups ? groups_part : rows_part, &r);
    if (dgamma)
        join(device, &r, r.dgamma, dgamma);
    if (dbeta)
        join(device, &r, r.dbeta, dbeta);
    return LS_OK;
}

// ---- prepare ----

static uint64_t floats(int64_t count)
{
    return (uint64_t)count * sizeof(float);
}

static void say(struct ls_device *device, const struct running *r, struct ls_kernel_answer *answer)
{
    cpu_implementation(device, answer,
                       r->shape.groups ? "group normalization" : "layer normalization");
}

int32_t cpu_layer_normalization(struct ls_device *device, const struct ls_kernel_request *request,
                                struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const struct running r = running_of(device, kernel, &kernel->arguments[0]);
    kernel->run = run_forward;
    answer->saved_bytes = floats(2 * (r.shape.groups ? r.count * r.shape.groups : r.rows));
    answer->scratch_bytes =
        rooms_of(device, &r) + (r.shape.groups ? floats(4 * r.count * r.channels) : 0);
    say(device, &r, answer);
    return cpu_all_plain(device, request, kernel);
}

int32_t cpu_layer_normalization_backward(struct ls_device *device,
                                         const struct ls_kernel_request *request,
                                         struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const struct running r = running_of(device, kernel, &kernel->arguments[1]);
    kernel->run = run_backward;
    answer->scratch_bytes =
        rooms_of(device, &r) + floats((r.shape.groups ? 6 : 2) * r.count * r.channels);
    if (kernel->attributes.only_beta)
        answer->used_inputs &= ~8U;
    answer->in_place = 3; // the last pass over a row reads and writes it element by element
    say(device, &r, answer);
    return cpu_all_plain(device, request, kernel);
}
