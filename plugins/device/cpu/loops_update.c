// SPDX-License-Identifier: Apache-2.0
// Loops of the optimizers. Each element goes through registers once; the states are read and written in
// the same pass as the parameter.
#include "plugins/device/cpu/loops.h"

#include <math.h>

static void sgd(const struct cpu_optimizer *o, const float *restrict g, float *restrict w,
                float *restrict v, int64_t n)
{
    const float rate = o->rate, momentum = o->momentum, keep = o->keep;
    const float ahead = o->nesterov ? momentum : 1.0f, own = o->nesterov ? rate : 0.0f;
    for (int64_t i = 0; !v && i < n; i++)
        w[i] = w[i] * keep - rate * g[i];
    for (int64_t i = 0; v && i < n; i++) {
        v[i] = momentum * v[i] - rate * g[i];
        w[i] = w[i] * keep + (ahead * v[i] - own * g[i]);
    }
}

static void adam(const struct cpu_optimizer *o, const float *restrict g, float *restrict w,
                 float *restrict m, float *restrict v, int64_t n)
{
    const float b1 = 1.0f - o->beta1, b2 = 1.0f - o->beta2, epsilon = o->epsilon;
    const float alpha = o->rate, keep = o->keep;
    for (int64_t i = 0; i < n; i++) {
        m[i] += (g[i] - m[i]) * b1;
        v[i] += (g[i] * g[i] - v[i]) * b2;
        w[i] = w[i] * keep - m[i] * alpha / (sqrtf(v[i]) + epsilon);
    }
}

static void amsgrad(const struct cpu_optimizer *o, const float *restrict g, float *restrict w,
                    float *restrict m, float *restrict v, float *restrict largest, int64_t n)
{
    const float b1 = 1.0f - o->beta1, b2 = 1.0f - o->beta2, epsilon = o->epsilon;
    const float alpha = o->rate, keep = o->keep;
    for (int64_t i = 0; i < n; i++) {
        m[i] += (g[i] - m[i]) * b1;
        v[i] += (g[i] * g[i] - v[i]) * b2;
        largest[i] = largest[i] > v[i] ? largest[i] : v[i];
        w[i] = w[i] * keep - m[i] * alpha / (sqrtf(largest[i]) + epsilon);
    }
}

static void rmsprop(const struct cpu_optimizer *o, const float *restrict g, float *restrict w,
                    float *restrict v, float *restrict m, int64_t n)
{
    const float rho = o->beta2, rest = 1.0f - rho, epsilon = o->epsilon, rate = o->rate;
    const float momentum = o->momentum, keep = o->keep;
    for (int64_t i = 0; !m && i < n; i++) {
        v[i] = rho * v[i] + rest * (g[i] * g[i]);
        w[i] = w[i] * keep - rate * g[i] / sqrtf(v[i] + epsilon);
    }
    for (int64_t i = 0; m && i < n; i++) {
        v[i] = rho * v[i] + rest * (g[i] * g[i]);
        m[i] = momentum * m[i] + rate * g[i] / sqrtf(v[i] + epsilon);
        w[i] = w[i] * keep - m[i];
    }
}

static void rmsprop_centered(const struct cpu_optimizer *o, const float *restrict g,
                             float *restrict w, float *restrict v, float *restrict a,
                             float *restrict m, int64_t n)
{
    const float rho = o->beta2, rest = 1.0f - rho, epsilon = o->epsilon, rate = o->rate;
    const float momentum = o->momentum, keep = o->keep;
    for (int64_t i = 0; !m && i < n; i++) {
        v[i] = rho * v[i] + rest * (g[i] * g[i]);
        a[i] = rho * a[i] + rest * g[i];
        w[i] = w[i] * keep - rate * g[i] / sqrtf(v[i] - a[i] * a[i] + epsilon);
    }
    for (int64_t i = 0; m && i < n; i++) {
        v[i] = rho * v[i] + rest * (g[i] * g[i]);
        a[i] = rho * a[i] + rest * g[i];
        m[i] = momentum * m[i] + rate * g[i] / sqrtf(v[i] - a[i] * a[i] + epsilon);
        w[i] = w[i] * keep - m[i];
    }
}

static void adagrad(const struct cpu_optimizer *o, const float *restrict g, float *restrict w,
                    float *restrict v, int64_t n)
{
    const float epsilon = o->epsilon, rate = o->rate, keep = o->keep;
    for (int64_t i = 0; i < n; i++) {
        v[i] += g[i] * g[i];
        w[i] = w[i] * keep - rate * g[i] / sqrtf(v[i] + epsilon);
    }
}

static void adadelta(const struct cpu_optimizer *o, const float *restrict g, float *restrict w,
                     float *restrict v, float *restrict d, int64_t n)
{
    const float rho = o->beta2, rest = 1.0f - rho, epsilon = o->epsilon, rate = o->rate;
    const float keep = o->keep;
    for (int64_t i = 0; i < n; i++) {
        v[i] = rho * v[i] + rest * (g[i] * g[i]);
        const float step = g[i] * sqrtf(d[i] + epsilon) / sqrtf(v[i] + epsilon);
        d[i] = rho * d[i] + rest * (step * step);
        w[i] = w[i] * keep - rate * step;
    }
}

static void adamax(const struct cpu_optimizer *o, const float *restrict g, float *restrict w,
                   float *restrict m, float *restrict u, int64_t n)
{
    const float b1 = 1.0f - o->beta1, b2 = o->beta2, epsilon = o->epsilon;
    const float alpha = o->rate, keep = o->keep;
    for (int64_t i = 0; i < n; i++) {
        const float faded = b2 * u[i], size = fabsf(g[i]);
        m[i] += (g[i] - m[i]) * b1;
        u[i] = faded > size ? faded : size;
        w[i] = w[i] * keep - alpha * m[i] / (u[i] + epsilon);
    }
}

static void nadam(const struct cpu_optimizer *o, const float *restrict g, float *restrict w,
                  float *restrict m, float *restrict v, int64_t n)
{
    const float b1 = 1.0f - o->beta1, b2 = 1.0f - o->beta2, epsilon = o->epsilon;
    const float rate = o->rate, keep = o->keep;
    const float of_m = o->first, of_g = o->second, of_v = o->third;
    for (int64_t i = 0; i < n; i++) {
        m[i] += (g[i] - m[i]) * b1;
        v[i] += (g[i] * g[i] - v[i]) * b2;
        w[i] = w[i] * keep - rate * (of_m * m[i] + of_g * g[i]) / (sqrtf(of_v * v[i]) + epsilon);
    }
}

// The states are arguments of each function: as such the compiler knows that they are apart.
static void update(const struct cpu_optimizer *o, const float *g, float *w, float *const *s,
                   int64_t n)
{
    switch (o->function) {
    case LS_UPDATE_SGD: sgd(o, g, w, s[0], n); break;
    case LS_UPDATE_ADAM: adam(o, g, w, s[0], s[1], n); break;
    case LS_UPDATE_AMSGRAD: amsgrad(o, g, w, s[0], s[1], s[2], n); break;
    case LS_UPDATE_RMSPROP: rmsprop(o, g, w, s[0], s[1], n); break;
    case LS_UPDATE_RMSPROP_CENTERED: rmsprop_centered(o, g, w, s[0], s[1], s[2], n); break;
    case LS_UPDATE_ADAGRAD: adagrad(o, g, w, s[0], n); break;
    case LS_UPDATE_ADADELTA: adadelta(o, g, w, s[0], s[1], n); break;
    case LS_UPDATE_ADAMAX: adamax(o, g, w, s[0], s[1], n); break;
    case LS_UPDATE_NADAM: nadam(o, g, w, s[0], s[1], n); break;
    default: break;
    }
}

static void lamb_direction(const struct cpu_optimizer *o, const float *g, float *d,
                           float *restrict w, float *restrict m, float *restrict v, int64_t n)
{
    const float b1 = 1.0f - o->beta1, b2 = 1.0f - o->beta2, epsilon = o->epsilon, keep = o->keep;
    const float of_m = o->first, of_v = o->second;
    for (int64_t i = 0; i < n; i++) {
        const float gradient = g[i];
        m[i] += (gradient - m[i]) * b1;
        v[i] += (gradient * gradient - v[i]) * b2;
        w[i] *= keep;
        d[i] = of_m * m[i] / (sqrtf(of_v * v[i]) + epsilon);
    }
}

static void scale(float factor, const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = factor * x[i];
}

static void clamp(float bound, const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float low = x[i] < -bound ? -bound : x[i]; // NaN stays
        y[i] = low > bound ? bound : low;
    }
}

static void subtract(float factor, const float *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] -= factor * x[i];
}

static void average(float momentum, const float *restrict x, float *restrict y, int64_t n)
{
    const float rest = 1.0f - momentum;
    for (int64_t i = 0; i < n; i++)
        y[i] = momentum * y[i] + rest * x[i];
}

const struct cpu_update_loops CPU_TABLE(update) = {
    .update = update,
    .lamb_direction = lamb_direction,
    .scale = scale,
    .clamp = clamp,
    .subtract = subtract,
    .average = average,
};
