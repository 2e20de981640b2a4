// SPDX-License-Identifier: Apache-2.0
// Normalization of each example by itself: over the last dimension, or over groups of channels.
// What backward needs of forward it computes again: this device saves nothing.
#include "plugins/device/reference/reference.h"

#include <math.h>

// x seen as (outer, positions, groups, width); the values of one (outer, group) are normalized
// together.
struct norm {
    int64_t outer, positions, groups, width;
    double epsilon;
};

static struct norm norm_of(const struct reference_call *call, const struct ls_tensor_desc *x)
{
    const int64_t channels = x->dims[x->ndims - 1];
    const int64_t rows = (int64_t)ls_tensor_elements(x) / channels;
    const int64_t groups = call->attributes->groups;
    return (struct norm){
        .outer = groups ? x->dims[0] : rows,
        .positions = groups ? rows / x->dims[0] : 1,
        .groups = groups ? groups : 1,
        .width = groups ? channels / groups : channels,
        .epsilon = (double)call->attributes->epsilon,
    };
}

// Index in x of value i of those that are normalized together; its channel in `channel`.
static int64_t place(const struct norm *d, int64_t outer, int64_t group, int64_t i,
                     int64_t *channel)
{
    *channel = group * d->width + i % d->width;
    return (outer * d->positions + i / d->width) * d->groups * d->width + *channel;
}

static void moments(const struct norm *d, const float *x, int64_t outer, int64_t group,
                    double *mean, double *deviation)
{
    const int64_t n = d->positions * d->width;
    double variance = 0;
    int64_t channel;

    *mean = 0;
    for (int64_t i = 0; i < n; i++)
        *mean += (double)x[place(d, outer, group, i, &channel)];
    *mean /= (double)n;
    for (int64_t i = 0; i < n; i++) {
        const double distance = (double)x[place(d, outer, group, i, &channel)] - *mean;
        variance += distance * distance;
    }
    *deviation = sqrt(variance / (double)n + d->epsilon);
}

// ---- Forward: x, [gamma], [beta] -> y, [saved] ----

void reference_layer_normalization(const struct reference_call *call)
{
    const struct norm d = norm_of(call, &call->input_descs[0]);
    const bool only_beta = call->attributes->only_beta != 0;
    const float *x = call->inputs[0];
    const float *gamma = call->input_count > 1 && !only_beta ? call->inputs[1] : NULL;
    const float *beta = only_beta               ? call->inputs[1]
                        : call->input_count > 2 ? call->inputs[2]
                                                : NULL;

    for (int64_t outer = 0; outer < d.outer; outer++)
        for (int64_t group = 0; group < d.groups; group++) {
            double mean, deviation;
            moments(&d, x, outer, group, &mean, &deviation);
            for (int64_t i = 0; i < d.positions * d.width; i++) {
                int64_t channel;
                const int64_t at = place(&d, outer, group, i, &channel);
                const double h = ((double)x[at] - mean) / deviation;
                call->results[0][at] =
                    (gamma ? (double)gamma[channel] : 1) * h + (beta ? (double)beta[channel] : 0);
            }
        }
}

// ---- Backward: dy, x, saved, [gamma] -> dx, [dgamma], [dbeta] ----

void reference_layer_normalization_backward(const struct reference_call *call)
{
    const struct norm d = norm_of(call, &call->input_descs[1]);
    const bool only_beta = call->attributes->only_beta != 0;
    const float *dy = call->inputs[0], *x = call->inputs[1];
    const float *gamma = call->input_count > 3 && !only_beta ? call->inputs[3] : NULL;
    double *dgamma = call->output_count > 1 && !only_beta ? call->results[1] : NULL;
    double *dbeta = only_beta ? call->results[1] : call->output_count > 2 ? call->results[2] : NULL;
    const int64_t n = d.positions * d.width;

    for (int64_t outer = 0; outer < d.outer; outer++)
        for (int64_t group = 0; group < d.groups; group++) {
            double mean, deviation, sum = 0, product = 0; // of g, of g h
            int64_t channel;
            moments(&d, x, outer, group, &mean, &deviation);
            for (int64_t i = 0; i < n; i++) {
                const int64_t at = place(&d, outer, group, i, &channel);
                const double h = ((double)x[at] - mean) / deviation;
                const double g = (gamma ? (double)gamma[channel] : 1) * (double)dy[at];
                sum += g;
                product += g * h;
                if (dgamma)
                    dgamma[channel] += (double)dy[at] * h;
                if (dbeta)
                    dbeta[channel] += (double)dy[at];
            }
            for (int64_t i = 0; i < n; i++) {
                const int64_t at = place(&d, outer, group, i, &channel);
                const double h = ((double)x[at] - mean) / deviation;
                const double g = (gamma ? (double)gamma[channel] : 1) * (double)dy[at];
                call->results[0][at] = (g - sum / (double)n - h * product / (double)n) / deviation;
            }
        }
}
