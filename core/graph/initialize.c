// SPDX-License-Identifier: Apache-2.0
// First values of parameters, with Keras's formulas. Each element is drawn by itself, keyed by
// (seed, name of the parameter, element), so that it depends on nothing else. Orthogonal rows are
// made of such elements.
#include "core/graph/graph.h"

#include "core/base/random.h"

#include <math.h>

// Deviation of the standard normal distribution once it is cut off at two deviations.
#define TRUNCATED_DEVIATION 0.87962566103423978

// Fans as Keras counts them: kernels are (..., in, out), and what is before them is the receptive
// field.
static void fans(const struct ls_shape *shape, double *in, double *out)
{
    double field = 1;

    *in = *out = shape->ndims == 1 ? (double)shape->dims[0] : 1;
    if (shape->ndims < 2)
        return;
    for (uint32_t i = 0; i + 2 < shape->ndims; i++)
        field *= (double)shape->dims[i];
    *in = field * (double)shape->dims[shape->ndims - 2];
    *out = field * (double)shape->dims[shape->ndims - 1];
}

// What variance scaling means for a shape: a plain distribution.
static struct ls_initializer scaled(const struct ls_initializer *initializer,
                                    const struct ls_shape *shape)
{
    double in, out, fan;
    fans(shape, &in, &out);
    switch (initializer->mode) {
    case LS_FAN_IN: fan = in; break;
    case LS_FAN_OUT: fan = out; break;
    default: fan = (in + out) / 2; break;
    }

    const double variance = initializer->scale / fmax(1, fan);
    const double limit = sqrt(3 * variance), deviation = sqrt(variance);
    switch (initializer->distribution) {
    case LS_DISTRIBUTION_UNIFORM:
        return (struct ls_initializer){
            .kind = LS_RANDOM_UNIFORM, .minimum = -limit, .maximum = limit};
    case LS_DISTRIBUTION_NORMAL:
        return (struct ls_initializer){.kind = LS_RANDOM_NORMAL, .deviation = deviation};
    default:
        return (struct ls_initializer){.kind = LS_TRUNCATED_NORMAL,
                                       .deviation = deviation / TRUNCATED_DEVIATION};
    }
}

// Standard normal, drawn again while it is beyond two deviations.
static double truncated_normal(uint64_t key, uint64_t index)
{
    double value = ls_random_normal(key, index);

    for (uint64_t attempt = 1; fabs(value) > 2; attempt++)
        value = ls_random_normal(ls_random_key(key, attempt), index);
    return value;
}

static float draw(const struct ls_initializer *initializer, uint64_t key, uint64_t index)
{
    const double mean = initializer->mean, deviation = initializer->deviation;
    const double minimum = initializer->minimum, maximum = initializer->maximum;

    switch (initializer->kind) {
    case LS_ONES: return 1.0f;
    case LS_CONSTANT: return (float)initializer->value;
    case LS_RANDOM_UNIFORM:
        return (float)(minimum + (maximum - minimum) * ls_random_uniform(key, index));
    case LS_RANDOM_NORMAL: return (float)(mean + deviation * ls_random_normal(key, index));
    case LS_ORTHOGONAL: return (float)ls_random_normal(key, index);
    case LS_TRUNCATED_NORMAL: return (float)(mean + deviation * truncated_normal(key, index));
    default: return 0.0f;
    }
}

// Makes `count` vectors of `length` elements orthogonal, each of length `scale` (Gram and Schmidt):
// the Q of Keras's QR decomposition, whose R has a positive diagonal. Elements of a vector are
// `step` apart, vectors `next`.
static void orthogonalize(float *x, int64_t count, int64_t length, int64_t next, int64_t step,
                          double scale)
{
    for (int64_t i = 0; i < count; i++) {
        float *own = x + i * next;
        double square = 0;
        for (int64_t k = 0; k < length; k++)
            square += (double)own[k * step] * (double)own[k * step];
        for (int64_t k = 0; k < length; k++)
            own[k * step] = (float)((double)own[k * step] / sqrt(square));
        for (int64_t j = i + 1; j < count; j++) {
            float *other = x + j * next;
            double common = 0;
            for (int64_t k = 0; k < length; k++)
                common += (double)own[k * step] * (double)other[k * step];
            for (int64_t k = 0; k < length; k++)
                other[k * step] -= (float)(common * (double)own[k * step]);
        }
    }
    for (int64_t i = 0; i < count * length; i++)
        x[i] *= (float)scale;
}

// As Keras sees the variable: all dimensions but the last are rows.
static void initialize_orthogonal(const struct ls_tensor *parameter, float *out)
{
    const struct ls_shape *shape = ls_variable_shape(parameter);
    const int64_t columns = shape->dims[shape->ndims - 1],
                  rows = ls_shape_elements(shape, 1) / columns;
    const double scale = parameter->initializer.scale;
    if (rows < columns)
        orthogonalize(out, rows, columns, columns, 1, scale);
    else
        orthogonalize(out, columns, rows, 1, columns, scale);
}

void ls_initialize(const struct ls_tensor *parameter, uint64_t seed, float *out)
{
    struct ls_initializer initializer = parameter->initializer;
    const uint64_t key = ls_random_key_text(seed, parameter->name);
    const uint64_t count = (uint64_t)ls_shape_elements(&parameter->shape, 1);

    if (initializer.kind == LS_VARIANCE_SCALING)
        initializer = scaled(&parameter->initializer, ls_variable_shape(parameter));
    for (uint64_t i = 0; i < count; i++)
        out[i] = initializer.kind == LS_VALUES ? initializer.values[i] : draw(&initializer, key, i);
    if (initializer.kind == LS_ORTHOGONAL)
        initialize_orthogonal(parameter, out);
    for (int64_t i = initializer.ones_from; i < initializer.ones_to; i++)
        out[i] = 1.0f;
}
