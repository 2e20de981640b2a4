// SPDX-License-Identifier: Apache-2.0
// Batch normalization over the last dimension (Ioffe and Szegedy 2015, algorithm 1): with the mean and variance of this share, which
// are found in two passes; its backward operation; and with mean and variance given.
#include "plugins/device/reference/reference.h"

#include <math.h>

// x seen as (N,C).
struct norm {
    int64_t n, channels;
    double epsilon;
};

static struct norm norm_of(const struct reference_call *call)
{
    const struct ls_tensor_desc *x = &call->input_descs[0];
    const int64_t channels = x->dims[x->ndims - 1];
    return (struct norm){
        .n = (int64_t)ls_tensor_elements(x) / channels,
        .channels = channels,
        .epsilon = (double)call->attributes->epsilon,
    };
}

// y = gamma (x - mean) / sqrt(variance + epsilon) + beta [+ addend] in channel c
static void normalize(const struct reference_call *call, const struct norm *d, int64_t c,
                      double mean, double variance, const float *addend)
{
    const float *x = call->inputs[0], *gamma = call->inputs[1], *beta = call->inputs[2];
    const double deviation = sqrt(variance + d->epsilon);

    for (int64_t i = c; i < d->n * d->channels; i += d->channels)
        call->results[0][i] = (double)gamma[c] * ((double)x[i] - mean) / deviation +
                              (double)beta[c] + (addend ? (double)addend[i] : 0);
}

// ---- Forward: x, gamma, beta, [addend] -> y, mean, variance ----

void reference_batch_normalization(const struct reference_call *call)
{
    const struct norm d = norm_of(call);
    const float *x = call->inputs[0];
    const float *addend = call->input_count == 4 ? call->inputs[3] : NULL;

    for (int64_t c = 0; c < d.channels; c++) {
        double mean = 0, variance = 0;
        for (int64_t i = c; i < d.n * d.channels; i += d.channels)
            mean += (double)x[i];
        mean /= (double)d.n;
        for (int64_t i = c; i < d.n * d.channels; i += d.channels)
            variance += ((double)x[i] - mean) * ((double)x[i] - mean);
        variance /= (double)d.n;
        call->results[1][c] = mean;
        call->results[2][c] = variance;
        normalize(call, &d, c, mean, variance, addend);
    }
}

// ---- Backward: x, gamma, mean, variance, dy -> dx, dgamma, dbeta ----

void reference_batch_normalization_backward(const struct reference_call *call)
{
    const struct norm d = norm_of(call);
    const float *x = call->inputs[0], *gamma = call->inputs[1], *mean = call->inputs[2];
    const float *variance = call->inputs[3], *dy = call->inputs[4];
    double *dx = call->results[0], *dgamma = call->results[1], *dbeta = call->results[2];

    for (int64_t c = 0; c < d.channels; c++) {
        const double deviation = sqrt((double)variance[c] + d.epsilon);
        for (int64_t i = c; i < d.n * d.channels; i += d.channels) {
            dgamma[c] += (double)dy[i] * ((double)x[i] - (double)mean[c]) / deviation;
            dbeta[c] += (double)dy[i];
        }
        for (int64_t i = c; i < d.n * d.channels; i += d.channels) {
            const double h = ((double)x[i] - (double)mean[c]) / deviation;
            dx[i] = (double)gamma[c] / deviation *
                    ((double)dy[i] - dbeta[c] / (double)d.n - h * dgamma[c] / (double)d.n);
        }
    }
}

// ---- Inference: x, gamma, beta, mean, variance, [addend] -> y ----

void reference_batch_normalization_inference(const struct reference_call *call)
{
    const struct norm d = norm_of(call);
    const float *mean = call->inputs[3], *variance = call->inputs[4];
    const float *addend = call->input_count == 6 ? call->inputs[5] : NULL;

    for (int64_t c = 0; c < d.channels; c++)
        normalize(call, &d, c, (double)mean[c], (double)variance[c], addend);
}

// ---- Backward of that: dy, gamma, variance -> dx; x, mean, variance, dy -> dgamma, dbeta ----

void reference_batch_normalization_inference_backward_data(const struct reference_call *call)
{
    const struct norm d = norm_of(call); // of dy
    const float *dy = call->inputs[0], *gamma = call->inputs[1], *variance = call->inputs[2];

    for (int64_t i = 0; i < d.n * d.channels; i++) {
        const int64_t c = i % d.channels;
        call->results[0][i] =
            (double)dy[i] * (double)gamma[c] / sqrt((double)variance[c] + d.epsilon);
    }
}

void reference_batch_normalization_inference_backward_weights(const struct reference_call *call)
{
    const struct norm d = norm_of(call);
    const float *x = call->inputs[0], *mean = call->inputs[1], *variance = call->inputs[2];
    const float *dy = call->inputs[3];

    for (int64_t i = 0; i < d.n * d.channels; i++) {
        const int64_t c = i % d.channels;
        const double deviation = sqrt((double)variance[c] + d.epsilon);
        call->results[0][c] += (double)dy[i] * ((double)x[i] - (double)mean[c]) / deviation;
        call->results[1][c] += (double)dy[i];
    }
}

// ---- Moving statistics: mean, variance -> both, weighted ----

void reference_batch_statistics(const struct reference_call *call)
{
    const double weight = (double)call->attributes->factor * (double)call->record->share_weight;

    for (uint32_t k = 0; k < 2; k++)
        for (uint64_t c = 0; c < ls_tensor_elements(&call->input_descs[k]); c++)
            call->results[k][c] = weight * (double)((const float *)call->inputs[k])[c];
}

// ---- Synchronized: the sums of all replicas are added between these ----

// x -> sums of x, sums of x^2, n
void reference_batch_moments(const struct reference_call *call)
{
    const struct norm d = norm_of(call);
    const float *x = call->inputs[0];
    double *moments = call->results[0];

    for (int64_t i = 0; i < d.n * d.channels; i++) {
        moments[i % d.channels] += (double)x[i];
        moments[d.channels + i % d.channels] += (double)x[i] * (double)x[i];
    }
    moments[2 * d.channels] = (double)d.n;
}

// x, gamma, beta, moments, [addend] -> y, mean, variance
void reference_synchronized_normalization(const struct reference_call *call)
{
    const struct norm d = norm_of(call);
    const double *moments = call->inputs[3], n = moments[2 * d.channels];
    const float *addend = call->input_count == 5 ? call->inputs[4] : NULL;

    for (int64_t c = 0; c < d.channels; c++) {
        const double mean = moments[c] / n;
        const double variance = moments[d.channels + c] / n - mean * mean;
        call->results[1][c] = mean;
        call->results[2][c] = variance < 0 ? 0 : variance;
        normalize(call, &d, c, mean, call->results[2][c], addend);
    }
}

// x, mean, variance, dy -> dgamma, dbeta, both again with n behind them
void reference_synchronized_normalization_backward_sums(const struct reference_call *call)
{
    const struct norm d = norm_of(call);
    double *sums = call->results[2];

    reference_batch_normalization_inference_backward_weights(call);
    for (int64_t c = 0; c < d.channels; c++) {
        sums[c] = call->results[0][c];
        sums[d.channels + c] = call->results[1][c];
    }
    sums[2 * d.channels] = (double)d.n;
}

// x, gamma, mean, variance, dy, sums -> dx
void reference_synchronized_normalization_backward_data(const struct reference_call *call)
{
    const struct norm d = norm_of(call);
    const float *x = call->inputs[0], *gamma = call->inputs[1], *mean = call->inputs[2];
    const float *variance = call->inputs[3], *dy = call->inputs[4];
    const double *sums = call->inputs[5], n = sums[2 * d.channels];

    for (int64_t i = 0; i < d.n * d.channels; i++) {
        const int64_t c = i % d.channels;
        const double deviation = sqrt((double)variance[c] + d.epsilon);
        const double h = ((double)x[i] - (double)mean[c]) / deviation;
        call->results[0][i] = (double)gamma[c] / deviation *
                              ((double)dy[i] - sums[d.channels + c] / n - h * sums[c] / n);
    }
}
