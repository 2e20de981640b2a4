// SPDX-License-Identifier: Apache-2.0
// Images of another size, transformed, in other colours, with erased patches.
#include "core/plugin/augment.h"

#include "plugins/device/reference/reference.h"

// ---- Resampling ----

// What pixel `pixel` (row times columns plus column) of image b of the result is made of.
static void taps_of(const struct reference_call *call, const struct ls_tensor_desc *from,
                    const struct ls_tensor_desc *to, const float *factors, int64_t b, int64_t pixel,
                    struct ls_taps *out)
{
    const uint32_t function = call->attributes->function;
    const int64_t row = pixel / to->dims[2], column = pixel % to->dims[2];
    if (factors)
        ls_resample_taps(function, factors + LS_TRANSFORM_NUMBERS * b, row, column, from->dims[1],
                         from->dims[2], out);
    else
        ls_resize_taps(function, row, column, from->dims[1], from->dims[2], to->dims[1],
                       to->dims[2], out);
}

// x, [factors] -> y; dy, [factors] -> dx
static void sample(const struct reference_call *call, const float *factors, bool forward)
{
    const struct ls_tensor_desc *from = forward ? call->input_descs : call->output_descs;
    const struct ls_tensor_desc *to = forward ? call->output_descs : call->input_descs;
    const int64_t channels = to->dims[3], pixels = to->dims[1] * to->dims[2];
    const int64_t image = from->dims[1] * from->dims[2];
    const float *in = call->inputs[0];
    double *out = call->results[0];

    for (int64_t i = 0; i < to->dims[0] * pixels; i++) {
        const int64_t b = i / pixels;
        struct ls_taps taps;
        taps_of(call, from, to, factors, b, i % pixels, &taps);
        for (uint32_t k = 0; k < taps.count; k++)
            for (int64_t c = 0; c < channels; c++) {
                const double weight = (double)taps.weight[k];
                const int64_t at = (b * image + taps.at[k]) * channels + c;
                if (forward)
                    out[i * channels + c] +=
                        weight * (double)(taps.at[k] < 0 ? call->attributes->offset : in[at]);
                else if (taps.at[k] >= 0)
                    out[at] += weight * (double)in[i * channels + c];
            }
    }
}

void reference_resize2d(const struct reference_call *call)
{
    sample(call, NULL, true);
}

void reference_resize2d_backward(const struct reference_call *call)
{
    sample(call, NULL, false);
}

void reference_resample(const struct reference_call *call)
{
    sample(call, call->inputs[1], true);
}

void reference_resample_backward(const struct reference_call *call)
{
    sample(call, call->inputs[1], false);
}

// x -> factors
void reference_draw(const struct reference_call *call)
{
    const struct ls_tensor_desc *x = call->input_descs;
    const uint32_t count = ls_draw_numbers(call->attributes->function);
    for (int64_t b = 0; b < x->dims[0]; b++) {
        float factors[LS_TRANSFORM_NUMBERS];
        ls_draw_factors(call->attributes,
                        ls_dropout_key(call->record, call->attributes->key, (uint64_t)b),
                        x->dims[1], x->dims[2], factors);
        for (uint32_t i = 0; i < count; i++)
            call->results[0][b * count + i] = (double)factors[i];
    }
}

// ---- Colours ----

// The mean of channel c of image b.
static double mean_of(const float *x, const struct ls_tensor_desc *desc, int64_t b, int64_t c)
{
    const int64_t pixels = desc->dims[1] * desc->dims[2];
    double sum = 0;
    for (int64_t i = 0; i < pixels; i++)
        sum += (double)x[(b * pixels + i) * desc->dims[3] + c];
    return sum / (double)pixels;
}

// One channel of an image: x -> y.
void reference_recolour(const struct reference_call *call)
{
    const struct ls_op_attributes *a = call->attributes;
    const struct ls_tensor_desc *desc = call->input_descs;
    const int64_t channels = desc->dims[3], pixels = desc->dims[1] * desc->dims[2];
    const float *x = call->inputs[0], *factors = call->inputs[1];

    for (int64_t i = 0; i < desc->dims[0] * channels; i++) {
        const int64_t b = i / channels, c = i % channels;
        const double scale = (double)factors[2 * b], offset = (double)factors[2 * b + 1];
        const double mean = a->function == LS_RECOLOUR_AROUND_MEAN ? mean_of(x, desc, b, c) : 0;
        for (int64_t k = 0; k < pixels; k++) {
            const int64_t at = (b * pixels + k) * channels + c;
            const double y = ((double)x[at] - mean) * scale + mean + offset;
            call->results[0][at] = y < (double)a->l1   ? (double)a->l1
                                   : y > (double)a->l2 ? (double)a->l2
                                                       : y;
        }
    }
}

// dy, x, factors -> dx
void reference_recolour_backward(const struct reference_call *call)
{
    const struct ls_op_attributes *a = call->attributes;
    const struct ls_tensor_desc *desc = call->input_descs;
    const int64_t channels = desc->dims[3], pixels = desc->dims[1] * desc->dims[2];
    const float *dy = call->inputs[0], *x = call->inputs[1], *factors = call->inputs[2];

    for (int64_t i = 0; i < desc->dims[0] * channels; i++) {
        const int64_t b = i / channels, c = i % channels;
        const double scale = (double)factors[2 * b], offset = (double)factors[2 * b + 1];
        const bool around = a->function == LS_RECOLOUR_AROUND_MEAN;
        const double mean = around ? mean_of(x, desc, b, c) : 0;
        double sum = 0; // of the gradients that go through
        for (int64_t k = 0; k < pixels; k++) {
            const int64_t at = (b * pixels + k) * channels + c;
            const double y = ((double)x[at] - mean) * scale + mean + offset;
            const bool through = y >= (double)a->l1 && y <= (double)a->l2;
            call->results[0][at] = through ? scale * (double)dy[at] : 0;
            sum += through ? (double)dy[at] : 0;
        }
        for (int64_t k = 0; k < pixels && around; k++)
            call->results[0][(b * pixels + k) * channels + c] += (1 - scale) * sum / (double)pixels;
    }
}

// ---- Patches ----

static bool is_erased(const float *factors, int64_t row, int64_t column)
{
    return (float)column >= factors[0] && (float)column < factors[1] && (float)row >= factors[2] &&
           (float)row < factors[3];
}

// What stands at element `i` of example b in a patch.
static double erased_value(const struct reference_call *call, int64_t b, int64_t i)
{
    const struct ls_op_attributes *a = call->attributes;
    if (a->function == LS_ERASE_VALUE)
        return (double)a->offset;
    const double tau = 6.283185307179586476925;
    const uint64_t key = ls_dropout_key(call->record, a->key, (uint64_t)b);
    const uint64_t bits = ls_noise_bits(key, (uint64_t)i);
    const double u = ((double)(bits >> 32) + 1) * 0x1p-32;
    const double v = (double)(bits & UINT32_MAX) * 0x1p-32;
    const double value = (double)a->factor * sqrt(-2 * log(u)) * cos(tau * v);
    return fmin(fmax(value, (double)a->l1), (double)a->l2);
}

// x or dy, factors -> y or dx
static void erase(const struct reference_call *call, bool forward)
{
    const struct ls_tensor_desc *desc = call->input_descs;
    const int64_t channels = desc->dims[3], pixels = desc->dims[1] * desc->dims[2];
    const float *x = call->inputs[0], *factors = call->inputs[1];

    for (int64_t i = 0; i < desc->dims[0] * pixels * channels; i++) {
        const int64_t b = i / channels / pixels, pixel = i / channels % pixels;
        if (!is_erased(factors + LS_ERASE_NUMBERS * b, pixel / desc->dims[2],
                       pixel % desc->dims[2]))
            call->results[0][i] = (double)x[i];
        else if (forward)
            call->results[0][i] = erased_value(call, b, i % (pixels * channels));
    }
}

void reference_erase(const struct reference_call *call)
{
    erase(call, true);
}

void reference_erase_backward(const struct reference_call *call)
{
    erase(call, false);
}
