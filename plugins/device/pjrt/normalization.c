// SPDX-License-Identifier: Apache-2.0
// Batch normalization (with this share's statistics, given ones, or those of all replicas) and
// layer normalization.
#include "plugins/device/pjrt/operations.h"

// ---- Batch normalization, over the last dimension C ----

static uint32_t all_but_last(struct hlo_value x)
{
    return (UINT32_C(1) << (x.shape.ndims - 1)) - 1;
}

static int64_t channels_of(struct hlo_value x)
{
    return x.shape.dims[x.shape.ndims - 1];
}

static double values_of(struct hlo_value x)
{
    return (double)hlo_elements(&x.shape) / (double)channels_of(x);
}

static struct hlo_value sum(struct hlo *h, struct hlo_value x)
{
    return hlo_reduce(h, "add", x, all_but_last(x), 0);
}

static struct hlo_value mean_of(struct hlo *h, struct hlo_value x)
{
    return hlo_scaled(h, sum(h, x), 1 / values_of(x));
}

static struct hlo_value deviation(struct pjrt_call *call, struct hlo_value variance)
{
    return hlo_unary(call->h, "sqrt",
                     hlo_plus(call->h, variance, (double)call->attributes->epsilon));
}

// h = (x - mean) / sqrt(variance + epsilon)
static struct hlo_value normalized(struct pjrt_call *call, struct hlo_value x,
                                   struct hlo_value mean, struct hlo_value variance)
{
    struct hlo *h = call->h;
    return hlo_divide(h, hlo_subtract(h, x, hlo_along(h, mean, x.shape)),
                      hlo_along(h, deviation(call, variance), x.shape));
}

// gamma h + beta [+ addend]
static struct hlo_value shifted(struct pjrt_call *call, struct hlo_value mean,
                                struct hlo_value variance, uint32_t addend)
{
    struct hlo *h = call->h;
    const struct hlo_value x = call->inputs[0];
    struct hlo_value y = hlo_multiply(h, normalized(call, x, mean, variance),
                                      hlo_along(h, call->inputs[1], x.shape));
    y = hlo_add(h, y, hlo_along(h, call->inputs[2], x.shape));
    return call->input_count > addend ? hlo_add(h, y, call->inputs[addend]) : y;
}

// x, gamma, beta, [addend] -> y, mean, variance
void pjrt_batch_normalization(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value x = call->inputs[0], mean = mean_of(h, x);
    const struct hlo_value distance = hlo_subtract(h, x, hlo_along(h, mean, x.shape));
    const struct hlo_value variance = mean_of(h, hlo_multiply(h, distance, distance));
    call->outputs[0] = shifted(call, mean, variance, 3);
    call->outputs[1] = mean;
    call->outputs[2] = variance;
}

// gamma / deviation (dy - dbeta / n - h dgamma / n)
static struct hlo_value batch_gradient(struct pjrt_call *call, struct hlo_value normal,
                                       struct hlo_value dgamma_mean, struct hlo_value dbeta_mean)
{
    struct hlo *h = call->h;
    const struct hlo_value dy = call->inputs[4];
    const struct hlo_value turned = hlo_multiply(h, normal, hlo_along(h, dgamma_mean, dy.shape));
    const struct hlo_value rest =
        hlo_subtract(h, hlo_subtract(h, dy, hlo_along(h, dbeta_mean, dy.shape)), turned);
    const struct hlo_value factor =
        hlo_divide(h, call->inputs[1], deviation(call, call->inputs[3]));
    return hlo_multiply(h, rest, hlo_along(h, factor, dy.shape));
}

// x, gamma, mean, variance, dy -> dx, dgamma, dbeta
void pjrt_batch_normalization_backward(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value dy = call->inputs[4];
    const struct hlo_value normal =
        normalized(call, call->inputs[0], call->inputs[2], call->inputs[3]);
    const struct hlo_value dgamma = sum(h, hlo_multiply(h, dy, normal)), dbeta = sum(h, dy);
    const double n = values_of(dy);
    call->outputs[0] =
        batch_gradient(call, normal, hlo_scaled(h, dgamma, 1 / n), hlo_scaled(h, dbeta, 1 / n));
    call->outputs[1] = dgamma;
    call->outputs[2] = dbeta;
}

// x, gamma, beta, mean, variance, [addend] -> y
void pjrt_batch_normalization_inference(struct pjrt_call *call)
{
    call->outputs[0] = shifted(call, call->inputs[3], call->inputs[4], 5);
}

// dy, gamma, variance -> dx
void pjrt_batch_normalization_inference_backward_data(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value dy = call->inputs[0];
    const struct hlo_value factor =
        hlo_divide(h, call->inputs[1], deviation(call, call->inputs[2]));
    call->outputs[0] = hlo_multiply(h, dy, hlo_along(h, factor, dy.shape));
}

// x, mean, variance, dy -> dgamma, dbeta
void pjrt_batch_normalization_inference_backward_weights(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value dy = call->inputs[3];
    call->outputs[0] =
        sum(h, hlo_multiply(h, dy,
                            normalized(call, call->inputs[0], call->inputs[1], call->inputs[2])));
    call->outputs[1] = sum(h, dy);
}

// mean, variance -> both, weighted
void pjrt_batch_statistics(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value weight =
        hlo_scaled(h, PJRT_RECORD(call, share_weight, LS_F32), (double)call->attributes->factor);
    for (uint32_t k = 0; k < 2; k++)
        call->outputs[k] =
            hlo_multiply(h, call->inputs[k], hlo_spread(h, weight, call->inputs[k].shape));
}

// ---- With the statistics of all replicas: tensors of 2 C + 1 F64 ----

static struct hlo_value with_count(struct hlo *h, struct hlo_value first, struct hlo_value second,
                                   double n)
{
    const struct hlo_value parts[3] = {first, second, hlo_constant(h, LS_F64, hlo_flat(1), n)};
    return hlo_concatenate(h, parts, 3, 0);
}

// x -> moments
void pjrt_batch_moments(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value x = hlo_convert(h, call->inputs[0], LS_F64);
    call->outputs[0] = with_count(h, sum(h, x), sum(h, hlo_multiply(h, x, x)), values_of(x));
}

// The first or second C of a tensor of 2 C + 1, divided by its last element.
static struct hlo_value mean_part(struct hlo *h, struct hlo_value all, int64_t part)
{
    const int64_t channels = (all.shape.dims[0] - 1) / 2;
    const struct hlo_value n =
        hlo_reshape(h, hlo_part(h, all, 2 * channels, 1), (struct hlo_shape){0});
    return hlo_divide(h, hlo_part(h, all, part * channels, channels),
                      hlo_spread(h, n, hlo_flat(channels)));
}

// x, gamma, beta, moments, [addend] -> y, mean, variance
void pjrt_batch_normalization_synchronized(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value mean = mean_part(h, call->inputs[3], 0);
    struct hlo_value variance =
        hlo_subtract(h, mean_part(h, call->inputs[3], 1), hlo_multiply(h, mean, mean));
    variance = hlo_maximum(h, variance, hlo_like(h, variance, 0));
    call->outputs[1] = hlo_convert(h, mean, LS_F32);
    call->outputs[2] = hlo_convert(h, variance, LS_F32);
    call->outputs[0] = shifted(call, call->outputs[1], call->outputs[2], 4);
}

// x, mean, variance, dy -> dgamma, dbeta, both again in F64 with n behind them
void pjrt_batch_normalization_synchronized_backward_sums(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value dy = call->inputs[3];
    const struct hlo_value normal =
        normalized(call, call->inputs[0], call->inputs[1], call->inputs[2]);
    const struct hlo_value wide = hlo_convert(h, dy, LS_F64);
    const struct hlo_value dgamma = sum(h, hlo_multiply(h, wide, hlo_convert(h, normal, LS_F64)));
    const struct hlo_value dbeta = sum(h, wide);
    call->outputs[0] = hlo_convert(h, dgamma, LS_F32);
    call->outputs[1] = hlo_convert(h, dbeta, LS_F32);
    call->outputs[2] = with_count(h, dgamma, dbeta, values_of(dy));
}

// x, gamma, mean, variance, dy, sums -> dx
void pjrt_batch_normalization_synchronized_backward_data(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value normal =
        normalized(call, call->inputs[0], call->inputs[2], call->inputs[3]);
    call->outputs[0] =
        batch_gradient(call, normal, hlo_convert(h, mean_part(h, call->inputs[5], 0), LS_F32),
                       hlo_convert(h, mean_part(h, call->inputs[5], 1), LS_F32));
}

// ---- Each example by itself: x seen as (outer, positions, groups, width) ----

struct layer {
    struct hlo_shape shape; // in which x is seen
    uint32_t axes; // that are normalized together
    double n;
};

static struct layer layer_of(const struct pjrt_call *call, struct hlo_value x)
{
    const int64_t channels = channels_of(x), rows = hlo_elements(&x.shape) / channels;
    const int64_t groups = call->attributes->groups;
    if (!groups)
        return (struct layer){HLO_SHAPE(rows, 1, 1, channels), 8, (double)channels};
    const int64_t positions = rows / x.shape.dims[0], width = channels / groups;
    return (struct layer){HLO_SHAPE(x.shape.dims[0], positions, groups, width), 2 | 8,
                          (double)(positions * width)};
}

static struct hlo_value layer_mean(struct hlo *h, const struct layer *layer, struct hlo_value x)
{
    const struct hlo_value all = hlo_reduce_kept(h, "add", x, layer->axes, 0);
    return hlo_numpy(h, hlo_scaled(h, all, 1 / layer->n), x.shape);
}

// h, and the deviation of each element's values
static struct hlo_value layer_normalized(struct pjrt_call *call, const struct layer *layer,
                                         struct hlo_value x, struct hlo_value *spread)
{
    struct hlo *h = call->h;
    x = hlo_reshape(h, x, layer->shape);
    const struct hlo_value distance = hlo_subtract(h, x, layer_mean(h, layer, x));
    *spread = deviation(call, layer_mean(h, layer, hlo_multiply(h, distance, distance)));
    return hlo_divide(h, distance, *spread);
}

// A vector of channels in the shape in which x is seen.
static struct hlo_value channels(struct hlo *h, const struct layer *layer, struct hlo_value vector)
{
    return hlo_numpy(h,
                     hlo_reshape(h, vector, HLO_SHAPE(layer->shape.dims[2], layer->shape.dims[3])),
                     layer->shape);
}

// x, [gamma], [beta] -> y
void pjrt_layer_normalization(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct layer layer = layer_of(call, call->inputs[0]);
    const bool only_beta = call->attributes->only_beta;
    struct hlo_value spread;
    struct hlo_value y = layer_normalized(call, &layer, call->inputs[0], &spread);
    if (call->input_count > 1 && !only_beta)
        y = hlo_multiply(h, y, channels(h, &layer, call->inputs[1]));
    if (call->input_count > 2 || only_beta)
        y = hlo_add(h, y, channels(h, &layer, call->inputs[only_beta ? 1 : 2]));
    call->outputs[0] = y;
}

// dy, x, saved, [gamma] -> dx, [dgamma], [dbeta]
void pjrt_layer_normalization_backward(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct layer layer = layer_of(call, call->inputs[1]);
    const bool only_beta = call->attributes->only_beta;
    struct hlo_value spread;
    const struct hlo_value normal = layer_normalized(call, &layer, call->inputs[1], &spread);
    const struct hlo_value dy = hlo_reshape(h, call->inputs[0], layer.shape);
    const struct hlo_value g = call->input_count > 3 && !only_beta
                                   ? hlo_multiply(h, dy, channels(h, &layer, call->inputs[3]))
                                   : dy;
    const struct hlo_value product = layer_mean(h, &layer, hlo_multiply(h, g, normal));
    const struct hlo_value rest = hlo_subtract(h, hlo_subtract(h, g, layer_mean(h, &layer, g)),
                                               hlo_multiply(h, normal, product));
    call->outputs[0] = hlo_divide(h, rest, spread);
    const struct hlo_value dbeta = hlo_reduce(h, "add", dy, 3, 0);
    if (call->output_count > 1)
        call->outputs[1] =
            only_beta ? dbeta : hlo_reduce(h, "add", hlo_multiply(h, dy, normal), 3, 0);
    if (call->output_count > 2)
        call->outputs[2] = dbeta;
}
