// SPDX-License-Identifier: Apache-2.0
// Batch normalization with the statistics of all replicas: what channels come to is added over them, in float64.
#include "plugins/device/cpu/batch_normalization.h"

#include <math.h>

// ---- Between the passes ----

static void set_moments(const struct cpu_run *r, struct cpu_lanes *lanes, const double *sums,
                        int64_t i, int64_t channel)
{
    const struct cpu_normalization *n = &r->state->shape;
    (void)lanes;
    r->totals[channel] = sums[i] * (double)n->rows;
    r->totals[n->channels + channel] = sums[n->width + i] + sums[i] * sums[i] * (double)n->rows;
}

static void set_of_moments(const struct cpu_run *r, struct cpu_lanes *lanes, const double *sums,
                           int64_t i, int64_t channel)
{
    const int64_t channels = r->state->shape.channels;
    const double rows = r->totals[2 * channels], mean = r->totals[channel] / rows;
    const double variance = r->totals[channels + channel] / rows - mean * mean;
    (void)sums;
    // Comparisons are written so that NaN stays what it is.
    cpu_set_affine(r, lanes, i, channel, mean, variance < 0 ? 0 : variance);
    r->out[0][channel] = (float)mean;
    r->out[1][channel] = (float)(variance < 0 ? 0 : variance);
}

static void set_totals(const struct cpu_run *r, struct cpu_lanes *lanes, const double *sums,
                       int64_t i, int64_t channel)
{
    const struct cpu_normalization *n = &r->state->shape;
    const double inverse = 1.0 / sqrt((double)r->variance[channel] + r->state->epsilon);
    (void)lanes;
    r->totals[channel] = sums[n->width + i] * inverse;
    r->totals[n->channels + channel] = sums[i];
    r->out[0][channel] = (float)r->totals[channel];
    r->out[1][channel] = (float)sums[i];
}

static void set_of_totals(const struct cpu_run *r, struct cpu_lanes *lanes, const double *sums,
                          int64_t i, int64_t channel)
{
    const int64_t channels = r->state->shape.channels;
    const double rows = r->totals[2 * channels];
    const double inverse = 1.0 / sqrt((double)r->variance[channel] + r->state->epsilon);
    const double scale = (double)r->gamma[channel] * inverse;
    (void)sums;
    lanes->mean[i] = r->mean[channel];
    lanes->scale[i] = (float)scale;
    lanes->shift[i] = (float)(-scale * r->totals[channels + channel] / rows);
    lanes->slope[i] = (float)(-scale * inverse * r->totals[channel] / rows);
}

// ---- Launch ----

static int32_t run_moments(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    struct cpu_run r = cpu_run_of(kernel, launch);
    r.totals = cpu_output(kernel, launch, 0);
    r.totals[2 * r.state->shape.channels] = (double)r.state->shape.rows;
    while (cpu_next_blocks(&r)) {
        cpu_pass_blocks(device, &r, 0.1, cpu_moments_part);
        cpu_set_lanes(device, &r, cpu_join_moments, set_moments);
    }
    return LS_OK;
}

static int32_t run_synchronized(struct ls_device *device, struct ls_kernel *kernel,
                                const struct cpu_call *launch)
{
    struct cpu_run r = cpu_run_of(kernel, launch);
    r.beta = launch->arguments[2];
    r.totals = launch->arguments[3];
    while (cpu_next_blocks(&r)) {
        cpu_set_lanes(device, &r, NULL, set_of_moments);
        cpu_pass_blocks(device, &r, 0.2, cpu_normalize_part);
    }
    cpu_finish_y(kernel, &r);
    return LS_OK;
}

static int32_t run_synchronized_backward_sums(struct ls_device *device, struct ls_kernel *kernel,
                                              const struct cpu_call *launch)
{
    struct cpu_run r = cpu_run_of(kernel, launch);
    r.mean = launch->arguments[1];
    r.variance = launch->arguments[2];
    r.dy = launch->arguments[3];
    r.out[0] = cpu_output(kernel, launch, 0);
    r.out[1] = cpu_output(kernel, launch, 1);
    r.totals = cpu_output(kernel, launch, 2);
    r.totals[2 * r.state->shape.channels] = (double)r.state->shape.rows;
    while (cpu_next_blocks(&r)) {
        cpu_set_lanes(device, &r, NULL, cpu_set_mean);
        cpu_pass_blocks(device, &r, 0.15, cpu_gradient_sums_part);
        cpu_set_lanes(device, &r, cpu_join_gradients, set_totals);
    }
    return LS_OK;
}

static int32_t run_synchronized_backward_data(struct ls_device *device, struct ls_kernel *kernel,
                                              const struct cpu_call *launch)
{
    struct cpu_run r = cpu_run_of(kernel, launch);
    r.mean = launch->arguments[2];
    r.variance = launch->arguments[3];
    r.dy = launch->arguments[4];
    r.totals = launch->arguments[5];
    while (cpu_next_blocks(&r)) {
        cpu_set_lanes(device, &r, NULL, set_of_totals);
        cpu_pass_blocks(device, &r, 0.25, cpu_gradient_part);
    }
    return LS_OK;
}

// ---- Prepare ----

int32_t cpu_batch_moments(struct ls_device *device, const struct ls_kernel_request *request,
                          struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_moments;
    cpu_implementation(device, answer, "batch moments");
    return cpu_settle_blocks(device, request, kernel, answer, 1U, 0);
}

int32_t cpu_synchronized_normalization(struct ls_device *device,
                                       const struct ls_kernel_request *request,
                                       struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_synchronized;
    if (kernel->accumulate & 6)
        return cpu_unsupported(device, request, "mean and variance cannot be added to");
    return cpu_prepare_y(device, request, kernel, answer, 3, 0);
}

int32_t cpu_synchronized_normalization_backward_sums(struct ls_device *device,
                                                     const struct ls_kernel_request *request,
                                                     struct ls_kernel *kernel,
                                                     struct ls_kernel_answer *answer)
{
    kernel->run = run_synchronized_backward_sums;
    cpu_implementation(device, answer, "batch normalization");
    return cpu_settle_blocks(device, request, kernel, answer, 1U | 1U << 3, 0);
}

int32_t cpu_synchronized_normalization_backward_data(struct ls_device *device,
                                                     const struct ls_kernel_request *request,
                                                     struct ls_kernel *kernel,
                                                     struct ls_kernel_answer *answer)
{
    const int32_t status = cpu_settle_blocks(device, request, kernel, answer,
                                             1U | 1U << 4 | 1U << request->input_count, 0);
    if (status)
        return status;
    kernel->run = run_synchronized_backward_data;
    answer->in_place = 1U | 1U << 4;
    cpu_add_to_result(request, kernel);
    cpu_implementation(device, answer, "batch normalization");
    return LS_OK;
}
