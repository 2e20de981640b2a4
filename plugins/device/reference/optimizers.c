// SPDX-License-Identifier: Apache-2.0
// Optimizers, clipping, and averages of weights: one element after another, as
// the papers and keras.optimizers have them.
#include "plugins/device/reference/reference.h"

#include <math.h>

#define STATES 3

// What is the same for all elements of a call.
struct optimizer {
    const struct ls_op_attributes *a;
    double rate, t, beta1, beta2, epsilon, momentum;
};

static struct optimizer optimizer_of(const struct reference_call *call)
{
    const struct ls_op_attributes *a = call->attributes;
    return (struct optimizer){.a = a,
                              .rate = (double)call->record->learning_rate,
                              .t = (double)call->record->update,
                              .beta1 = (double)a->beta1,
                              .beta2 = (double)a->beta2,
                              .epsilon = (double)a->epsilon,
                              .momentum = (double)a->momentum};
}

static double decayed(const struct optimizer *o, double w)
{
    return w - w * (double)o->a->weight_decay * o->rate;
}

// Adam's moments (Kingma and Ba 2014).
static void move_moments(const struct optimizer *o, double g, double *s)
{
    s[0] += (g - s[0]) * (1 - o->beta1);
    s[1] += (g * g - s[1]) * (1 - o->beta2);
}

// Hinton, lecture 6e; centered: Graves 2013. Returns what w loses.
static double rmsprop(const struct optimizer *o, double g, double *s, bool centered)
{
    const uint32_t m = centered ? 2 : 1;
    s[0] = o->beta2 * s[0] + (1 - o->beta2) * g * g;
    if (centered)
        s[1] = o->beta2 * s[1] + (1 - o->beta2) * g;
    const double step = o->rate * g / sqrt(s[0] - (centered ? s[1] * s[1] : 0) + o->epsilon);
    if (o->momentum <= 0)
        return step;
    return s[m] = o->momentum * s[m] + step;
}

// Nadam (Dozat 2016), with the momentum schedule of Sutskever et al. 2013.
static double nadam(const struct optimizer *o, double g, double *s, uint64_t t)
{
    const double now = o->beta1 * (1 - 0.5 * pow(0.96, o->t));
    const double next = o->beta1 * (1 - 0.5 * pow(0.96, o->t + 1));
    const double product = ls_nadam_product(o->beta1, t);
    move_moments(o, g, s);
    const double h = next * s[0] / (1 - product * next) + (1 - now) * g / (1 - product);
    return o->rate * h / (sqrt(s[1] / (1 - pow(o->beta2, o->t))) + o->epsilon);
}

// What w loses at a gradient g; s: the states. SGD: v = m v - lr g; w += v, or with Nesterov w += m
// v - lr g; without momentum w -= lr g. Adam's epsilon is added outside of the bias correction
// (section 2, last paragraph).
static double step_of(const struct optimizer *o, uint32_t function, double g, double *s,
                      uint32_t states, uint64_t t)
{
    const double alpha = o->rate * sqrt(1 - pow(o->beta2, o->t)) / (1 - pow(o->beta1, o->t));
    double step;
    switch (function) {
    case LS_UPDATE_SGD:
        if (states == 0)
            return o->rate * g;
        s[0] = o->momentum * s[0] - o->rate * g;
        return o->a->nesterov ? o->rate * g - o->momentum * s[0] : -s[0];
    case LS_UPDATE_ADAM: move_moments(o, g, s); return alpha * s[0] / (sqrt(s[1]) + o->epsilon);
    case LS_UPDATE_AMSGRAD: // Reddi et al. 2018
        move_moments(o, g, s);
        s[2] = fmax(s[2], s[1]);
        return alpha * s[0] / (sqrt(s[2]) + o->epsilon);
    case LS_UPDATE_RMSPROP: return rmsprop(o, g, s, false);
    case LS_UPDATE_RMSPROP_CENTERED: return rmsprop(o, g, s, true);
    case LS_UPDATE_ADAGRAD: // Duchi et al. 2011
        s[0] += g * g;
        return o->rate * g / sqrt(s[0] + o->epsilon);
    case LS_UPDATE_ADADELTA: // Zeiler 2012
        s[0] = o->beta2 * s[0] + (1 - o->beta2) * g * g;
        step = g * sqrt(s[1] + o->epsilon) / sqrt(s[0] + o->epsilon);
        s[1] = o->beta2 * s[1] + (1 - o->beta2) * step * step;
        return o->rate * step;
    case LS_UPDATE_ADAMAX: // Kingma and Ba 2014, section 7
        s[0] += (g - s[0]) * (1 - o->beta1);
        s[1] = fmax(o->beta2 * s[1], fabs(g));
        return o->rate * s[0] / ((1 - pow(o->beta1, o->t)) * (s[1] + o->epsilon));
    case LS_UPDATE_NADAM: return nadam(o, g, s, t);
    default: return NAN;
    }
}

static void update_by(uint32_t function, const struct reference_call *call)
{
    const struct optimizer o = optimizer_of(call);
    const uint64_t count = ls_tensor_elements(&call->input_descs[0]);
    const uint32_t states = call->output_count - 1;
    const float *gradient = call->inputs[0];
    float *parameter = call->outputs[0];

    if (call->record->skip)
        return;
    for (uint64_t i = 0; i < count; i++) {
        double s[STATES] = {0};
        for (uint32_t k = 0; k < states; k++)
            s[k] = (double)((const float *)call->outputs[1 + k])[i];
        const double step =
            step_of(&o, function, (double)gradient[i], s, states, call->record->update);
        parameter[i] = (float)(decayed(&o, (double)parameter[i]) - step);
        for (uint32_t k = 0; k < states; k++)
            ((float *)call->outputs[1 + k])[i] = (float)s[k];
    }
}

// gradient -> parameter, [velocity]
void reference_sgd_update(const struct reference_call *call)
{
    update_by(LS_UPDATE_SGD, call);
}

// gradient -> parameter, first moment, second moment
void reference_adam_update(const struct reference_call *call)
{
    update_by(LS_UPDATE_ADAM, call);
}

// gradient -> parameter, [states]
void reference_update(const struct reference_call *call)
{
    update_by(call->attributes->function, call);
}

// gradient -> direction, parameter, first moment, second moment: LAMB (You et al. 2020)
void reference_lamb_direction(const struct reference_call *call)
{
    const struct optimizer o = optimizer_of(call);
    const uint64_t count = ls_tensor_elements(&call->input_descs[0]);
    const double left1 = 1 - pow(o.beta1, o.t), left2 = 1 - pow(o.beta2, o.t);
    const float *gradient = call->inputs[0];
    float *direction = call->outputs[0], *parameter = call->outputs[1];
    float *first = call->outputs[2], *second = call->outputs[3];

    if (call->record->skip)
        return;
    for (uint64_t i = 0; i < count; i++) {
        double s[2] = {(double)first[i], (double)second[i]};
        move_moments(&o, (double)gradient[i], s);
        direction[i] = (float)(s[0] / left1 / (sqrt(s[1] / left2) + o.epsilon));
        parameter[i] = (float)decayed(&o, (double)parameter[i]);
        first[i] = (float)s[0];
        second[i] = (float)s[1];
    }
}

// direction, measures (4) -> parameter
void reference_lamb_update(const struct reference_call *call)
{
    const uint64_t count = ls_tensor_elements(&call->input_descs[0]);
    const double *measures = call->inputs[1];
    const bool both = measures[0] > 0 && measures[2] > 0;
    const double ratio = both ? sqrt(measures[0]) / sqrt(measures[2]) : 1;
    const float *direction = call->inputs[0];
    float *parameter = call->outputs[0];

    if (call->record->skip)
        return;
    for (uint64_t i = 0; i < count; i++)
        parameter[i] = (float)((double)parameter[i] -
                               ratio * (double)call->record->learning_rate * (double)direction[i]);
}

// x, [measures] -> y
void reference_clip(const struct reference_call *call)
{
    const uint64_t count = ls_tensor_elements(&call->input_descs[0]);
    const bool by_norm = call->attributes->function == LS_CLIP_NORM;
    const double bound = (double)call->attributes->threshold;
    const uint64_t pairs = by_norm ? ls_tensor_elements(&call->input_descs[1]) / 2 : 0;
    const double *measures = by_norm ? call->inputs[1] : NULL;
    const float *x = call->inputs[0];
    float *y = call->outputs[0];
    double squares = 0;

    for (uint64_t k = 0; k < pairs; k++)
        squares += measures[2 * k + 1] > 0 ? (double)NAN : measures[2 * k];
    const double norm = sqrt(squares);
    for (uint64_t i = 0; i < count; i++) {
        const double value = (double)x[i];
        if (by_norm)
            y[i] = (float)(norm <= bound ? value : value * bound / norm);
        else
            y[i] = (float)(value < -bound ? -bound : value > bound ? bound : value);
    }
}

// gradient -> y
void reference_unscale(const struct reference_call *call)
{
    const uint64_t count = ls_tensor_elements(&call->input_descs[0]);
    const float *gradient = call->inputs[0];
    float *y = call->outputs[0];

    for (uint64_t i = 0; i < count; i++)
        y[i] = gradient[i] / call->record->loss_scale;
}

// parameter -> average, parameter
void reference_ema_update(const struct reference_call *call)
{
    const uint64_t count = ls_tensor_elements(&call->input_descs[0]);
    const uint64_t update = call->record->update;
    const uint32_t every = call->attributes->count;
    const double momentum = update == 1 ? 0 : (double)call->attributes->momentum;
    const float *parameter = call->inputs[0];
    float *average = call->outputs[0], *overwritten = call->outputs[1];

    if (call->record->skip)
        return;
    for (uint64_t i = 0; i < count; i++) {
        average[i] = (float)(momentum * (double)average[i] + (1 - momentum) * (double)parameter[i]);
        if (every && update % every == 0)
            overwritten[i] = average[i];
    }
}
