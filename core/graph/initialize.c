// SPDX-License-Identifier: Apache-2.0
// First values of parameters, with Keras's formulas. Each element is drawn by itself, keyed by
// (seed, name of the parameter, element), so that it depends on nothing else.
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
    case LS_TRUNCATED_NORMAL: return (float)(mean + deviation * truncated_normal(key, index));
    default: return 0.0f;
    }
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
}
