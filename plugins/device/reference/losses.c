// SPDX-License-Identifier: Apache-2.0
// The losses of LS_OP_LOSS with their gradients, and the counts of LS_OP_METRIC: one position after
// another, as the definitions read.
#include "plugins/device/reference/reference.h"

#include <math.h>

// One position: C predictions and what they should be.
struct position {
    const struct ls_op_attributes *a;
    const float *p;
    const float *t; // targets; NULL: a label
    int32_t label;
    int64_t classes;
};

static double target_of(const struct position *at, int64_t i)
{
    return at->t ? (double)at->t[i] : (double)(at->classes == 1 ? at->label : at->label == i);
}

static double clip(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static double sign(double x)
{
    return (x > 0) - (x < 0);
}

// ---- Losses of elements: value and derivative by p ----

static double binary(const struct ls_op_attributes *a, double p, double t, double *slope)
{
    const double epsilon = (double)a->epsilon;
    t = t * (1 - (double)a->smoothing) + (double)a->smoothing / 2;
    if (a->from_logits) {
        *slope = 1 / (1 + exp(-p)) - t;
        return fmax(p, 0) - p * t + log1p(exp(-fabs(p)));
    }
    // The bound as a float32: 1 - q, of which the logarithm is taken, would be another without it.
    const double q = clip(p, epsilon, (double)(1.0f - a->epsilon));
    *slope = q == p ? (1 - t) / (1 - q) - t / q : 0;
    return -t * log(q) - (1 - t) * log(1 - q);
}

static double logarithmic(double p, double t, double epsilon, double *slope)
{
    const double d = log(1 + fmax(p, epsilon)) - log(1 + fmax(t, epsilon));
    *slope = p > epsilon ? 2 * d / (1 + p) : 0;
    return d * d;
}

static double huber(double e, double delta, double *slope)
{
    *slope = fabs(e) <= delta ? e : delta * sign(e);
    return fabs(e) <= delta ? e * e / 2 : delta * fabs(e) - delta * delta / 2;
}

static double hinge(double p, double t, double *slope)
{
    const double y = t == 0 ? -1 : t, h = fmax(1 - y * p, 0);
    *slope = h > 0 ? -y : 0;
    return h;
}

static double element(const struct ls_op_attributes *a, double p, double t, double *slope)
{
    const double epsilon = (double)a->epsilon, e = p - t;
    double value;
    switch (a->function) {
    case LS_LOSS_BINARY: return binary(a, p, t, slope);
    case LS_LOSS_SQUARED: *slope = 2 * e; return e * e;
    case LS_LOSS_ABSOLUTE: *slope = sign(e); return fabs(e);
    case LS_LOSS_PERCENTAGE:
        *slope = 100 * sign(e) / fmax(fabs(t), epsilon);
        return 100 * fabs(e) / fmax(fabs(t), epsilon);
    case LS_LOSS_LOGARITHMIC: return logarithmic(p, t, epsilon, slope);
    case LS_LOSS_HUBER: return huber(e, (double)a->threshold, slope);
    case LS_LOSS_LOG_COSH: *slope = tanh(e); return fabs(e) + log1p(exp(-2 * fabs(e))) - log(2);
    case LS_LOSS_POISSON: *slope = 1 - t / (p + epsilon); return p - t * log(p + epsilon);
    case LS_LOSS_HINGE: return hinge(p, t, slope);
    case LS_LOSS_SQUARED_HINGE:
        value = hinge(p, t, slope);
        *slope *= 2 * value;
        return value * value;
    case LS_LOSS_VALUES: *slope = 1; return p;
    default: *slope = NAN; return NAN;
    }
}

// ---- Losses of positions; slopes may be NULL ----

static double sparse(const struct position *at, double *slopes)
{
    const double epsilon = (double)at->a->epsilon;
    double largest = -INFINITY, sum = 0;
    if (at->label < 0 || at->label >= at->classes) {
        for (int64_t i = 0; slopes && i < at->classes; i++)
            slopes[i] = NAN;
        return NAN;
    }
    for (int64_t i = 0; i < at->classes; i++)
        largest = fmax(largest, (double)at->p[i]);
    for (int64_t i = 0; i < at->classes; i++)
        sum += at->a->from_logits ? exp((double)at->p[i] - largest)
                                  : clip((double)at->p[i], epsilon, 1 - epsilon);
    for (int64_t i = 0; slopes && i < at->classes; i++) {
        const double p = (double)at->p[i], c = clip(p, epsilon, 1 - epsilon);
        if (at->a->from_logits)
            slopes[i] = exp(p - largest) / sum - (i == at->label);
        else
            slopes[i] = c == p ? (c / sum - (i == at->label)) / c : 0;
    }
    const double p = (double)at->p[at->label];
    return log(sum) - (at->a->from_logits ? p - largest : log(clip(p, epsilon, 1 - epsilon)));
}

static double smoothed(const struct position *at, int64_t i)
{
    const double s = (double)at->a->smoothing;
    return target_of(at, i) * (1 - s) + s / (double)at->classes;
}

static double categorical(const struct position *at, double *slopes)
{
    const double epsilon = (double)at->a->epsilon;
    double largest = -INFINITY, sum = 0, targets = 0, loss = 0, product = 0;
    for (int64_t i = 0; i < at->classes; i++)
        largest = fmax(largest, (double)at->p[i]);
    for (int64_t i = 0; i < at->classes; i++) {
        sum += at->a->from_logits ? exp((double)at->p[i] - largest) : (double)at->p[i];
        targets += smoothed(at, i);
    }
    for (int64_t i = 0; i < at->classes; i++) {
        const double p = (double)at->p[i], t = smoothed(at, i), q = p / sum;
        const double c = clip(q, epsilon, 1 - epsilon);
        if (at->a->from_logits) {
            loss += t * (log(sum) - (p - largest));
            if (slopes)
                slopes[i] = targets * exp(p - largest) / sum - t;
            continue;
        }
        loss -= t * log(c);
        product += c == q ? -t : 0; // the sum of slope by q times q
        if (slopes)
            slopes[i] = c == q ? -t / c : 0;
    }
    for (int64_t i = 0; slopes && !at->a->from_logits && i < at->classes; i++)
        slopes[i] = (slopes[i] - product) / sum;
    return loss;
}

static double divergence(const struct position *at, double *slopes)
{
    const double epsilon = (double)at->a->epsilon;
    double loss = 0;
    for (int64_t i = 0; i < at->classes; i++) {
        const double p = (double)at->p[i], q = clip(p, epsilon, 1);
        const double t = clip(target_of(at, i), epsilon, 1);
        loss += t * log(t / q);
        if (slopes)
            slopes[i] = p == q ? -t / q : 0;
    }
    return loss;
}

static double categorical_hinge(const struct position *at, double *slopes)
{
    double right = 0, wrong = -INFINITY;
    int64_t worst = 0;
    for (int64_t i = 0; i < at->classes; i++) {
        const double t = target_of(at, i), p = (double)at->p[i];
        right += t * p;
        if ((1 - t) * p > wrong) {
            wrong = (1 - t) * p;
            worst = i;
        }
    }
    const double loss = fmax(wrong - right + 1, 0);
    for (int64_t i = 0; slopes && i < at->classes; i++) {
        const double t = target_of(at, i);
        slopes[i] = loss > 0 ? (i == worst ? 1 - t : 0) - t : 0;
    }
    return loss;
}

static double cosine(const struct position *at, double *slopes)
{
    double pp = 0, tt = 0, product = 0;
    for (int64_t i = 0; i < at->classes; i++) {
        const double t = target_of(at, i), p = (double)at->p[i];
        pp += p * p;
        tt += t * t;
        product += t * p;
    }
    const double least = (double)at->a->epsilon;
    const double norm = fmax(sqrt(pp), least), of_targets = fmax(sqrt(tt), least);
    for (int64_t i = 0; slopes && i < at->classes; i++) {
        const double p = (double)at->p[i];
        const double turned = sqrt(pp) > least ? product / (norm * norm) * p : 0;
        slopes[i] = -(target_of(at, i) - turned) / (norm * of_targets);
    }
    return -product / (norm * of_targets);
}

static double position_loss(const struct position *at, double *slopes)
{
    double loss = 0;
    switch (at->a->function) {
    case LS_LOSS_SPARSE: return sparse(at, slopes);
    case LS_LOSS_CATEGORICAL: return categorical(at, slopes);
    case LS_LOSS_DIVERGENCE: return divergence(at, slopes);
    case LS_LOSS_CATEGORICAL_HINGE: return categorical_hinge(at, slopes);
    case LS_LOSS_COSINE: return cosine(at, slopes);
    default: break;
    }
    for (int64_t i = 0; i < at->classes; i++) {
        double slope;
        loss += element(at->a, (double)at->p[i], target_of(at, i), &slope);
        if (slopes)
            slopes[i] = slope / (double)at->classes;
    }
    return loss / (double)at->classes;
}

// ---- Calls ----

struct shape {
    int64_t examples, positions, classes; // positions of each example
};

static struct shape shape_of(const struct reference_call *call)
{
    const struct ls_tensor_desc *desc = &call->input_descs[0];
    const int64_t classes = desc->dims[desc->ndims - 1], examples = desc->dims[0];
    return (struct shape){examples, (int64_t)ls_tensor_elements(desc) / classes / examples,
                          classes};
}

static struct position position_at(const struct reference_call *call, const struct shape *s,
                                   int64_t i)
{
    const bool labels = call->input_descs[1].dtype == LS_I32;
    return (struct position){.a = call->attributes,
                             .p = (const float *)call->inputs[0] + i * s->classes,
                             .t = labels ? NULL : (const float *)call->inputs[1] + i * s->classes,
                             .label = labels ? ((const int32_t *)call->inputs[1])[i] : 0,
                             .classes = s->classes};
}

// Whether there is a weight for each position of an example.
static bool weighs_positions(const struct reference_call *call)
{
    return call->input_count > 2 && call->input_descs[2].ndims > 1;
}

static double weight_of(const struct reference_call *call, const struct shape *s, int64_t position)
{
    const int64_t at = weighs_positions(call) ? position : position / s->positions;
    return call->input_count > 2 ? (double)((const float *)call->inputs[2])[at] : 1;
}

// The share of the positions that a mask leaves; 1: there is none.
static double left_of(const struct reference_call *call)
{
    const double *moments = call->input_count > 3 ? call->inputs[3] : NULL;
    return moments ? moments[0] / moments[2] : 1;
}

// predictions, targets, [weights], [moments] -> sums
void reference_loss(const struct reference_call *call)
{
    const struct shape s = shape_of(call);
    const double left = left_of(call);
    double *sums = call->results[0];
    for (int64_t i = 0; i < s.examples * s.positions; i++) {
        const struct position at = position_at(call, &s, i);
        const double weight = weight_of(call, &s, i) / (double)s.positions;
        sums[0] += weight != 0 && left > 0 ? position_loss(&at, NULL) * weight / left : 0;
        sums[3] += weighs_positions(call) ? weight : 0;
    }
    sums[2] = (double)s.examples;
    if (call->input_count > 3)
        sums[3] = (double)s.examples * left;
}

// predictions, targets, [weights], [moments] -> dpredictions
void reference_loss_backward(const struct reference_call *call)
{
    const struct shape s = shape_of(call);
    for (int64_t i = 0; i < s.examples * s.positions; i++) {
        const struct position at = position_at(call, &s, i);
        double *slopes = call->results[0] + i * s.classes;
        const double weight = weight_of(call, &s, i), left = left_of(call);
        const double factor =
            weight / (double)s.positions * (double)call->record->gradient_scale / left;
        position_loss(&at, slopes);
        for (int64_t k = 0; k < s.classes; k++)
            slopes[k] = weight != 0 && left > 0 ? slopes[k] * factor : 0;
    }
}

// predictions, targets -> y
void reference_position_loss(const struct reference_call *call)
{
    const struct shape s = shape_of(call);
    for (int64_t i = 0; i < s.examples * s.positions; i++) {
        const struct position at = position_at(call, &s, i);
        call->results[0][i] = position_loss(&at, NULL);
    }
}

// predictions, targets, dy -> dpredictions
void reference_position_loss_backward(const struct reference_call *call)
{
    const struct shape s = shape_of(call);
    const float *dy = call->inputs[2];
    for (int64_t i = 0; i < s.examples * s.positions; i++) {
        const struct position at = position_at(call, &s, i);
        double *slopes = call->results[0] + i * s.classes;
        position_loss(&at, slopes);
        for (int64_t k = 0; k < s.classes; k++)
            slopes[k] *= (double)dy[i];
    }
}

// ---- The mean of what a mask leaves ----

// Position i of `positions` an example: what it is multiplied by in the mean of its example.
static double share_at(const struct reference_call *call, int64_t i, int64_t positions)
{
    const float *mask = call->inputs[1];
    const double *moments = call->inputs[2];
    return moments[0] > 0 ? (double)mask[i] / (double)positions * moments[2] / moments[0] : 0;
}

// x, mask, moments -> y
void reference_masked_mean(const struct reference_call *call)
{
    const float *x = call->inputs[0];
    const int64_t count = (int64_t)ls_tensor_elements(&call->input_descs[1]);
    const int64_t positions = count / call->input_descs[1].dims[0];
    for (int64_t i = 0; i < count; i++) {
        const double share = share_at(call, i, positions);
        call->results[0][i / positions] += share != 0 ? share * (double)x[i] : 0;
    }
}

// dy, mask, moments -> dx
void reference_masked_mean_backward(const struct reference_call *call)
{
    const float *dy = call->inputs[0];
    const int64_t count = (int64_t)ls_tensor_elements(&call->input_descs[1]);
    const int64_t positions = count / call->input_descs[1].dims[0];
    for (int64_t i = 0; i < count; i++)
        call->results[0][i] = share_at(call, i, positions) * (double)dy[i / positions];
}

// ---- Metrics ----

static int64_t largest_target(const struct position *at)
{
    int64_t best = 0;
    for (int64_t i = 1; at->t && i < at->classes; i++)
        if (at->t[i] > at->t[best])
            best = i;
    return at->t ? best : at->label;
}

// How many classes have a larger prediction than class `of`, or an equal one before it.
static int64_t classes_before(const struct position *at, int64_t of, bool equal_ones)
{
    int64_t count = 0;
    if (of < 0 || of >= at->classes)
        return at->classes;
    for (int64_t i = 0; i < at->classes; i++)
        count += at->p[i] > at->p[of] || (equal_ones && at->p[i] == at->p[of] && i < of);
    return count;
}

static void count_element(const struct ls_op_attributes *a, double p, double t, double weight,
                          double *counts)
{
    const bool above = p > (double)a->threshold, is = t > 0;
    const double last = (double)a->count - 1;
    switch (a->function) {
    case LS_METRIC_BINARY:
        counts[0] += (above ? 1 : 0) == t ? weight : 0;
        counts[1] += weight;
        break;
    case LS_METRIC_CONFUSION: counts[above ? (is ? 0 : 1) : (is ? 2 : 3)] += weight; break;
    default: // in float32, so that every device finds the same bucket
        counts[(is ? 0 : a->count) +
               (uint64_t)clip((double)ceilf((float)p * (float)last) - 1, 0, last)] += weight;
        break;
    }
}

static int64_t largest_prediction(const struct position *at)
{
    int64_t best = 0;
    for (int64_t i = 1; i < at->classes; i++)
        if (at->p[i] > at->p[best])
            best = i;
    return best;
}

// LS_METRIC_SQUARES of column k.
static void count_squares(double p, double t, double weight, double *sums)
{
    sums[0] += weight * t;
    sums[1] += weight * t * t;
    sums[2] += weight * (t - p) * (t - p);
    sums[3] += weight;
    sums[4] += 1;
}

// LS_METRIC_PEARSON, LS_METRIC_CONCORDANCE
static double correlation(const struct position *at, bool concordance)
{
    const double n = (double)at->classes;
    double p = 0, t = 0, pp = 0, tt = 0, pt = 0;
    for (int64_t k = 0; k < at->classes; k++) {
        p += (double)at->p[k] / n;
        t += target_of(at, k) / n;
    }
    for (int64_t k = 0; k < at->classes; k++) {
        const double dp = (double)at->p[k] - p, dt = target_of(at, k) - t;
        pp += dp * dp / n;
        tt += dt * dt / n;
        pt += dp * dt / n;
    }
    return concordance ? 2 * pt / (pp + tt + (t - p) * (t - p) + 1e-7) : pt / (sqrt(pp) * sqrt(tt));
}

// Whether the function counts by classes or by positions, and has counted this one.
static bool count_classes(const struct ls_op_attributes *a, const struct position *at,
                          double weight, double *counts)
{
    const int64_t right = largest_target(at);
    if (a->function == LS_METRIC_CLASSES && right >= 0 && right < at->classes)
        counts[right * at->classes + largest_prediction(at)] += weight;
    for (int64_t k = 0; a->function == LS_METRIC_EACH_CLASS && k < at->classes; k++) {
        const bool above = at->p[k] > a->threshold, is = target_of(at, k) > 0;
        if (above || is)
            counts[3 * k + (above ? (is ? 0 : 1) : 2)] += weight;
    }
    for (int64_t k = 0; a->function == LS_METRIC_SQUARES && k < at->classes; k++)
        count_squares((double)at->p[k], target_of(at, k), weight, &counts[5 * k]);
    if (a->function == LS_METRIC_PEARSON || a->function == LS_METRIC_CONCORDANCE) {
        counts[0] += weight * correlation(at, a->function == LS_METRIC_CONCORDANCE);
        counts[1] += weight;
    }
    return a->function >= LS_METRIC_CLASSES;
}

// predictions, targets, [weights] -> counts
void reference_metric(const struct reference_call *call)
{
    const struct shape s = shape_of(call);
    const struct ls_op_attributes *a = call->attributes;
    const bool top = a->function == LS_METRIC_TOP;
    double *counts = call->results[0];
    for (int64_t i = 0; i < s.examples * s.positions; i++) {
        const struct position at = position_at(call, &s, i);
        const double weight = weight_of(call, &s, i);
        if (a->function == LS_METRIC_CATEGORICAL || top) {
            const bool right =
                classes_before(&at, largest_target(&at), !top) < (top ? a->count : 1);
            counts[0] += right ? weight : 0;
            counts[1] += weight;
            continue;
        }
        const bool done = count_classes(a, &at, weight, counts);
        for (int64_t k = 0; !done && k < s.classes; k++)
            count_element(a, (double)at.p[k], target_of(&at, k), weight, counts);
    }
}
