// SPDX-License-Identifier: Apache-2.0
// Images of another size, transformed, in other colours, with erased patches. Threads share rows of
// the result, and where pixels are added up or a mean is taken, whole images: the bits do not
// depend on their number.
#include "core/plugin/augment.h"

#include "plugins/device/cpu/cpu.h"

#include <string.h>

enum { CHANNELS = 16 }; // whose sums of an image are taken at once

struct images {
    const struct ls_device *device;
    const struct ls_op_attributes *attributes;
    const struct ls_step_record *record;
    int64_t count, rows, columns, channels; // of x
    int64_t to_rows, to_columns; // of y
    const float *from, *x, *factors; // from: x, or dy; factors NULL: another size only
    float *to;
};

static struct images images_of(const struct ls_device *device, struct ls_kernel *kernel,
                               const struct cpu_call *launch, const struct ls_tensor_desc *x,
                               const struct ls_tensor_desc *y)
{
    return (struct images){.device = device,
                           .attributes = &kernel->attributes,
                           .record = launch->record,
                           .count = x->dims[0],
                           .rows = x->dims[1],
                           .columns = x->dims[2],
                           .channels = x->dims[3],
                           .to_rows = y->dims[1],
                           .to_columns = y->dims[2],
                           .from = launch->arguments[0],
                           .to = cpu_output(kernel, launch, 0)};
}

static double elements_of(const struct images *m)
{
    const int64_t small = m->rows * m->columns, large = m->to_rows * m->to_columns;
    return (double)(m->count * (small > large ? small : large) * m->channels);
}

// ---- Resampling ----

static inline void taps_of(const struct images *m, int64_t b, int64_t row, int64_t column,
                           struct ls_taps *out)
{
    const uint32_t function = m->attributes->function;
    if (m->factors)
        ls_resample_taps(function, m->factors + LS_TRANSFORM_NUMBERS * b, row, column, m->rows,
                         m->columns, out);
    else
        ls_resize_taps(function, row, column, m->rows, m->columns, m->to_rows, m->to_columns, out);
}

// Rows of all results.
static void gather_part(void *context, int64_t begin, int64_t end)
{
    const struct images *m = context;
    const int64_t channels = m->channels;
    float *to = m->to + begin * m->to_columns * channels;
    for (int64_t i = begin; i < end; i++) {
        const int64_t b = i / m->to_rows;
        const float *image = m->from + b * m->rows * m->columns * channels;
        for (int64_t column = 0; column < m->to_columns; column++, to += channels) {
            struct ls_taps taps;
            taps_of(m, b, i % m->to_rows, column, &taps);
            for (uint32_t k = 0; k < taps.count; k++) {
                const bool inside = taps.at[k] >= 0;
                const float *from = inside ? image + taps.at[k] * channels : &m->attributes->offset;
                for (int64_t c = 0; c < channels; c++) {
                    const float value = taps.weight[k] * from[inside ? c : 0];
                    to[c] = k ? to[c] + value : value;
                }
            }
        }
    }
}

// Whole images.
static void scatter_part(void *context, int64_t begin, int64_t end)
{
    const struct images *m = context;
    const int64_t channels = m->channels, size = m->rows * m->columns * channels;
    const float *from = m->from + begin * m->to_rows * m->to_columns * channels;
    memset(m->to + begin * size, 0, (size_t)((end - begin) * size) * sizeof(float));
    for (int64_t i = begin * m->to_rows; i < end * m->to_rows; i++) {
        float *image = m->to + i / m->to_rows * size;
        for (int64_t column = 0; column < m->to_columns; column++, from += channels) {
            struct ls_taps taps;
            taps_of(m, i / m->to_rows, i % m->to_rows, column, &taps);
            for (uint32_t k = 0; k < taps.count; k++)
                for (int64_t c = 0; c < channels && taps.at[k] >= 0; c++)
                    image[taps.at[k] * channels + c] += taps.weight[k] * from[c];
        }
    }
}

// x, [factors] -> y
static int32_t run_sampling(struct ls_device *device, struct ls_kernel *kernel,
                            const struct cpu_call *launch)
{
    struct images m =
        images_of(device, kernel, launch, &kernel->arguments[0], cpu_output_desc(kernel, 0));
    m.factors = kernel->input_count > 1 ? launch->arguments[1] : NULL;
    cpu_parallel(device, m.count * m.to_rows, 1, elements_of(&m) * 8, gather_part, &m);
    return LS_OK;
}

// dy, [factors] -> dx
static int32_t run_sampling_backward(struct ls_device *device, struct ls_kernel *kernel,
                                     const struct cpu_call *launch)
{
    struct images m =
        images_of(device, kernel, launch, cpu_output_desc(kernel, 0), &kernel->arguments[0]);
    m.factors = kernel->input_count > 1 ? launch->arguments[1] : NULL;
    cpu_parallel(device, m.count, 1, elements_of(&m) * 8, scatter_part, &m);
    return LS_OK;
}

// x -> factors, a few numbers an example
static int32_t run_draw(struct ls_device *device, struct ls_kernel *kernel,
                        const struct cpu_call *launch)
{
    const struct ls_tensor_desc *x = &kernel->arguments[0];
    const struct ls_op_attributes *attributes = &kernel->attributes;
    float *factors = cpu_output(kernel, launch, 0);
    (void)device;
    for (int64_t b = 0; b < x->dims[0]; b++)
        ls_draw_factors(attributes, ls_dropout_key(launch->record, attributes->key, (uint64_t)b),
                        x->dims[1], x->dims[2],
                        factors + ls_draw_numbers(attributes->function) * b);
    return LS_OK;
}

// ---- Colours ----

// Of up to CHANNELS channels of image b from the first one on: means, or 0.
static void means_of(const struct images *m, const float *x, int64_t first, int64_t n,
                     double *means)
{
    const int64_t pixels = m->rows * m->columns;
    memset(means, 0, CHANNELS * sizeof(*means));
    if (m->attributes->function != LS_RECOLOUR_AROUND_MEAN)
        return;
    for (int64_t k = 0; k < pixels; k++)
        for (int64_t c = 0; c < n; c++)
            means[c] += (double)x[k * m->channels + first + c];
    for (int64_t c = 0; c < n; c++)
        means[c] /= (double)pixels;
}

static inline float recoloured(const float *factors, float mean, float x)
{
    return (x - mean) * factors[0] + mean + factors[1];
}

static void recolour_part(void *context, int64_t begin, int64_t end)
{
    const struct images *m = context;
    const int64_t pixels = m->rows * m->columns;
    const float low = m->attributes->l1, high = m->attributes->l2;
    for (int64_t b = begin; b < end; b++) {
        const float *x = m->x + b * pixels * m->channels;
        const float *factors = m->factors + LS_RECOLOUR_NUMBERS * b;
        float *y = m->to + b * pixels * m->channels;
        for (int64_t first = 0, n; first < m->channels; first += n) {
            double means[CHANNELS];
            n = m->channels - first < CHANNELS ? m->channels - first : CHANNELS;
            means_of(m, x, first, n, means);
            for (int64_t k = 0; k < pixels; k++)
                for (int64_t c = 0; c < n; c++) {
                    const int64_t at = k * m->channels + first + c;
                    const float value = recoloured(factors, (float)means[c], x[at]);
                    y[at] = value < low ? low : value > high ? high : value; // NaN stays
                }
        }
    }
}

static void recolour_backward_part(void *context, int64_t begin, int64_t end)
{
    const struct images *m = context;
    const int64_t pixels = m->rows * m->columns;
    const float low = m->attributes->l1, high = m->attributes->l2;
    const bool around = m->attributes->function == LS_RECOLOUR_AROUND_MEAN;
    for (int64_t b = begin; b < end; b++) {
        const float *x = m->x + b * pixels * m->channels;
        const float *dy = m->from + b * pixels * m->channels;
        const float *factors = m->factors + LS_RECOLOUR_NUMBERS * b;
        float *dx = m->to + b * pixels * m->channels;
        for (int64_t first = 0, n; first < m->channels; first += n) {
            double means[CHANNELS], sums[CHANNELS] = {0};
            n = m->channels - first < CHANNELS ? m->channels - first : CHANNELS;
            means_of(m, x, first, n, means);
            for (int64_t k = 0; k < pixels; k++)
                for (int64_t c = 0; c < n; c++) {
                    const int64_t at = k * m->channels + first + c;
                    const float value = recoloured(factors, (float)means[c], x[at]);
                    const float through = value >= low && value <= high ? dy[at] : 0.0f;
                    dx[at] = factors[0] * through;
                    sums[c] += (double)through;
                }
            for (int64_t k = 0; k < pixels && around; k++)
                for (int64_t c = 0; c < n; c++)
                    dx[k * m->channels + first + c] +=
                        (float)((1 - (double)factors[0]) * sums[c] / (double)pixels);
        }
    }
}

// x, factors -> y
static int32_t run_recolour(struct ls_device *device, struct ls_kernel *kernel,
                            const struct cpu_call *launch)
{
    struct images m =
        images_of(device, kernel, launch, &kernel->arguments[0], &kernel->arguments[0]);
    m.x = launch->arguments[0];
    m.factors = launch->arguments[1];
    cpu_parallel(device, m.count, 1, elements_of(&m) * 2, recolour_part, &m);
    return LS_OK;
}

// dy, x, factors -> dx
static int32_t run_recolour_backward(struct ls_device *device, struct ls_kernel *kernel,
                                     const struct cpu_call *launch)
{
    struct images m =
        images_of(device, kernel, launch, &kernel->arguments[0], &kernel->arguments[0]);
    m.x = launch->arguments[1];
    m.factors = launch->arguments[2];
    cpu_parallel(device, m.count, 1, elements_of(&m) * 3, recolour_backward_part, &m);
    return LS_OK;
}

// ---- Patches ----

// What stands at element `at` of image b in a patch; backward: no gradient.
static float erased_value(const struct images *m, bool forward, int64_t b, int64_t at)
{
    const struct ls_op_attributes *a = m->attributes;
    if (!forward || a->function == LS_ERASE_VALUE)
        return forward ? a->offset : 0;
    const uint64_t key = ls_dropout_key(m->record, a->key, (uint64_t)b);
    float value = 0;
    m->device->loops->elementwise->noise(key, (uint64_t)at, a->factor, &value, &value, 1);
    return value < a->l1 ? a->l1 : value > a->l2 ? a->l2 : value;
}

static void erase_rows(const struct images *m, bool forward, int64_t begin, int64_t end)
{
    const int64_t width = m->columns * m->channels;
    for (int64_t i = begin; i < end; i++) {
        const int64_t b = i / m->rows, row = i % m->rows;
        const float *factors = m->factors + LS_ERASE_NUMBERS * b;
        float *to = m->to + i * width;
        memmove(to, m->from + i * width, (size_t)width * sizeof(float));
        if (!((float)row >= factors[2] && (float)row < factors[3]))
            continue;
        for (int64_t k = 0; k < width; k++) {
            const float column = (float)(k / m->channels);
            if (column >= factors[0] && column < factors[1])
                to[k] = erased_value(m, forward, b, row * width + k);
        }
    }
}

static void erase_part(void *context, int64_t begin, int64_t end)
{
    erase_rows(context, true, begin, end);
}

static void erase_backward_part(void *context, int64_t begin, int64_t end)
{
    erase_rows(context, false, begin, end);
}

// x or dy, factors -> y or dx
static int32_t run_erase(struct ls_device *device, struct ls_kernel *kernel,
                         const struct cpu_call *launch)
{
    struct images m =
        images_of(device, kernel, launch, &kernel->arguments[0], &kernel->arguments[0]);
    m.factors = launch->arguments[1];
    cpu_parallel(device, m.count * m.rows, 1, elements_of(&m),
                 kernel->op == LS_OP_ERASE ? erase_part : erase_backward_part, &m);
    return LS_OK;
}

// ---- prepare ----

int32_t cpu_augment(struct ls_device *device, const struct ls_kernel_request *request,
                    struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    switch (request->op) {
    case LS_OP_DRAW:
        answer->used_inputs = 0;
        kernel->run = run_draw;
        break;
    case LS_OP_RESIZE2D:
    case LS_OP_RESAMPLE: kernel->run = run_sampling; break;
    case LS_OP_RECOLOUR: kernel->run = run_recolour; break;
    case LS_OP_RECOLOUR_BACKWARD: kernel->run = run_recolour_backward; break;
    case LS_OP_ERASE:
    case LS_OP_ERASE_BACKWARD: kernel->run = run_erase; break;
    default: kernel->run = run_sampling_backward; break;
    }
    cpu_implementation(device, answer, "images");
    return cpu_all_plain(device, request, kernel);
}
