// SPDX-License-Identifier: Apache-2.0
// Cases of batch normalization: with the statistics of the batch, backward, and with given ones. A device may leave an operation
// out; that is reported as one case.
//
// Tolerances follow from the values, which are drawn first. With M the largest |x|, D the least sqrt(variance + epsilon), H the
// largest |h|, and e = 1e-5 for a float32 sum in any order (LS_DEVICE_SUM):
//     x - mean   is off by s = M min(e, (n + 3) 2^-24): n terms are n roundings at most, three more where a device multiplies
//                gamma / sqrt(variance + epsilon) out; where the mean is given it is n = 0
//     variance   by e of itself, and by s^2: the sum of (x - mean) is zero, so that an error of the mean counts twice only
//     h          by s / D, and by H (e + s^2 / D^2) for the variance
// One pass in float32, the mean of x^2 less mean^2, is off by 2^-24 M^2 and more: for x around 100 that is 6e-4, and the variance
// here is 3e-3, so that its error is far beyond e of itself.
#include "tools/conformance/device/suite.h"
#include "core/plugin/half.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { MOST_CHANNELS = 64 };

struct shape {
    uint32_t ndims;
    int64_t x[4];
    float centre, spread; // x lies between centre - spread and centre + spread
    float epsilon;
    bool flat; // the first channel has one value, as a channel of dead units has
};

static const struct shape shapes[] = {
    {2, {1, 1}, 0, 1, 1e-3f, false},
    {2, {5, 3}, 0, 1, 1e-3f, false},
    {4, {5, 5, 5, 64}, 0, 1, 1e-5f, false},
    {2, {1, 17}, 0, 1, 1e-3f, false},
    {4, {2, 13, 11, 17}, 100, 0.1f, 1e-5f, false},
    {2, {64, 33}, 0, 1, 1e-3f, true},
    {4, {1, 7, 5, 16}, 1, 1, 1e-3f, false},
    {4, {3, 9, 7, 33}, 0, 1, 1e-5f, false},
    {4, {1, 1, 1, 3}, 100, 0.1f, 1e-3f, false},
    {4, {8, 16, 16, 16}, 0, 1, 1e-3f, true},
    {2, {300, 64}, 100, 0.1f, 1e-3f, false},
    {4, {1, 32, 31, 1}, 0, 4, 1e-3f, false},
    {4, {4, 28, 28, 3}, 100, 0.1f, 1e-5f, false},
    {3, {2, 7, 10}, -1, 2, 1e-3f, false},
    {4, {7, 1, 3, 24}, 0, 1, 1e-3f, false},
    {2, {129, 16}, 0, 1, 1e-5f, false},
};

#define SHAPE_COUNT (sizeof(shapes) / sizeof(shapes[0]))

// x seen as (N,C) and what it is about.
struct norm {
    int64_t n, channels;
    double epsilon;
    double mean[MOST_CHANNELS], variance[MOST_CHANNELS];
    double largest, deviation, height; // M, D, H
};

static void start(struct ls_device_case *c, const struct shape *s, uint32_t op, const char *name,
                  const char *more)
{
    char x[64] = "";
    size_t length = 0;
    for (uint32_t i = 1; i < s->ndims; i++)
        length += (size_t)snprintf(x + length, sizeof(x) - length, "%s%lld", i > 1 ? "x" : "",
                                   (long long)s->x[i]);
    ls_device_case_start(c, op, "%s B=%lld %s around %g%s%s", name, (long long)s->x[0], x,
                         (double)s->centre, s->flat ? " and flat" : "", more);
    c->request.attributes = (struct ls_op_attributes){.epsilon = s->epsilon};
}

static struct ls_tensor_desc x_of(const struct shape *s)
{
    return ls_device_desc(LS_F32, s->ndims, s->x);
}

static struct ls_tensor_desc vector_of(const struct shape *s)
{
    return LS_DEVICE_DESC(LS_F32, s->x[s->ndims - 1]);
}

static uint32_t input(struct ls_device_case *c, enum ls_device_role role,
                      struct ls_tensor_desc desc)
{
    const uint32_t index = ls_device_case_input(c, role, desc);
    ls_device_case_draw(c, index, LS_DEVICE_UNIFORM);
    return index;
}

// ---- Values ----

// Moves the drawn x to where the shape has it, as the type of the case holds it.
static void place_x(const struct ls_device_suite *suite, const struct ls_device_case *c,
                    const struct shape *s)
{
    const int64_t channels = s->x[s->ndims - 1];
    const int64_t count = (int64_t)ls_tensor_elements(&c->request.arguments[0]);
    float *x = c->values[0];

    for (int64_t i = 0; i < count; i++) {
        x[i] = s->centre + s->spread * (s->flat && i % channels == 0 ? 0.3f : x[i]);
        if (suite->dtype)
            x[i] = ls_half_get(suite->dtype, ls_half_of(suite->dtype, x[i]));
    }
}

static struct norm statistics_of(const struct ls_device_case *c)
{
    const struct ls_tensor_desc *desc = &c->request.arguments[0];
    struct norm d = {.channels = desc->dims[desc->ndims - 1],
                     .epsilon = (double)c->request.attributes.epsilon};
    const float *x = c->values[0];
    d.n = (int64_t)ls_tensor_elements(desc) / d.channels;
    assert(d.channels <= MOST_CHANNELS);

    for (int64_t i = 0; i < d.n * d.channels; i++)
        d.mean[i % d.channels] += (double)x[i] / (double)d.n;
    for (int64_t i = 0; i < d.n * d.channels; i++) {
        const double difference = (double)x[i] - d.mean[i % d.channels];
        d.variance[i % d.channels] += difference * difference / (double)d.n;
    }
    return d;
}

static double deviation_of(const struct norm *d, int64_t channel)
{
    return sqrt(d->variance[channel] + d->epsilon);
}

// M, D and H, of these statistics.
static void measure(const struct ls_device_case *c, struct norm *d)
{
    const float *x = c->values[0];
    d->largest = d->height = 0;
    d->deviation = INFINITY;
    for (int64_t i = 0; i < d->n * d->channels; i++) {
        const int64_t channel = i % d->channels;
        const double deviation = deviation_of(d, channel);
        d->largest = fmax(d->largest, fabs((double)x[i]));
        d->deviation = fmin(d->deviation, deviation);
        d->height = fmax(d->height, fabs((double)x[i] - d->mean[channel]) / deviation);
    }
}

// Statistics as arguments `mean` and the next one, float32 as an operation before has left them.
static void give_statistics(struct ls_device_case *c, struct norm *d, uint32_t mean)
{
    for (int64_t i = 0; i < d->channels; i++) {
        d->mean[i] = (double)(((float *)c->values[mean])[i] = (float)d->mean[i]);
        d->variance[i] = (double)(((float *)c->values[mean + 1])[i] = (float)d->variance[i]);
    }
}

// Statistics that are not those of x, yet not far from them: the drawn numbers, moved.
static void move_statistics(const struct ls_device_case *c, struct norm *d, const struct shape *s,
                            uint32_t mean)
{
    const double spread = (double)s->spread;
    for (int64_t i = 0; i < d->channels; i++) {
        d->mean[i] = (double)s->centre + spread / 2 * (double)((const float *)c->values[mean])[i];
        d->variance[i] =
            spread * spread * (0.2 + fabs((double)((const float *)c->values[mean + 1])[i]));
    }
}

static bool has_values(const struct ls_device_case *c)
{
    for (uint32_t i = 0; i < c->request.input_count; i++)
        if (!c->values[i])
            return false;
    return true;
}

// ---- Tolerances ----

// How far x - mean may be off where `terms` have made the mean.
static double shift_of(const struct norm *d, int64_t terms)
{
    return d->largest * fmin(LS_DEVICE_SUM.of_magnitude, (double)(terms + 3) * 0x1p-24);
}

static struct ls_device_tolerance absolute(double tolerance)
{
    return (struct ls_device_tolerance){0, 0, tolerance + 1e-30};
}

// |gamma|, |beta| and |addend| are 1 at most.
static struct ls_device_tolerance y_tolerance(const struct norm *d, int64_t terms)
{
    const double e = LS_DEVICE_SUM.of_magnitude, shift = shift_of(d, terms) / d->deviation;
    return absolute(shift + d->height * (e + shift * shift) + 2 * LS_DEVICE_ROUNDED.relative);
}

static struct ls_device_tolerance variance_tolerance(const struct norm *d)
{
    const double shift = shift_of(d, d->n);
    return (struct ls_device_tolerance){0, LS_DEVICE_SUM.of_magnitude + LS_DEVICE_ROUNDED.relative,
                                        shift * shift + 1e-30};
}

// Of dx, dgamma and dbeta. dx is 1 / D times dy less two means, of which one is weighted by h.
static void backward_tolerances(const struct ls_device_case *c, const struct norm *d,
                                struct ls_device_tolerance *out)
{
    const double e = LS_DEVICE_SUM.of_magnitude, rounding = LS_DEVICE_ROUNDED.relative;
    const double of_h = shift_of(d, 0) / d->deviation + d->height * rounding;
    const float *x = c->values[0], *dy = c->values[4];
    double sums[2][MOST_CHANNELS] = {{0}}, largest[2] = {0}; // of |dy|, of |dy h|

    for (int64_t i = 0; i < d->n * d->channels; i++) {
        const int64_t channel = i % d->channels;
        sums[0][channel] += fabs((double)dy[i]);
        sums[1][channel] +=
            fabs((double)dy[i] * ((double)x[i] - d->mean[channel])) / deviation_of(d, channel);
        for (int k = 0; k < 2; k++)
            largest[k] = fmax(largest[k], sums[k][channel]);
    }
    const double of_beta = e * largest[0], of_gamma = e * largest[1] + of_h * largest[0];
    const double of_means = (of_beta + d->height * of_gamma + of_h * largest[1]) / (double)d->n;
    out[0] = absolute((2 * rounding + of_means) / d->deviation);
    out[1] = absolute(of_gamma);
    out[2] = absolute(of_beta);
}

// ---- Cases ----

// Statistics of the batch, or given ones. `added`: y is added to; mean and variance never are.
static void forward(struct ls_device_suite *suite, const struct shape *s, uint32_t op, bool addend,
                    bool added, const struct ls_device_epilogue *epilogue)
{
    static const char *const more[2][2] = {{"", " added to y"},
                                           {" with addend", " with addend added to y"}};
    const bool given = op == LS_OP_BATCH_NORMALIZATION_INFERENCE;
    struct ls_device_case c;
    struct norm d = {.deviation = 1};

    start(&c, s, op, given ? "batch_normalization_inference" : "batch_normalization",
          more[addend][added]);
    input(&c, LS_DEVICE_ACTIVATION, x_of(s));
    for (int i = 0; i < (given ? 4 : 2); i++)
        input(&c, LS_DEVICE_WEIGHTS, vector_of(s));
    if (addend)
        input(&c, LS_DEVICE_ACTIVATION, x_of(s));
    ls_device_case_values(&c);
    if (has_values(&c)) {
        place_x(suite, &c, s);
        d = statistics_of(&c);
        if (given) {
            move_statistics(&c, &d, s, 3);
            give_statistics(&c, &d, 3);
        }
        measure(&c, &d);
    }
    ls_device_case_epilogue(&c, epilogue, x_of(s));
    ls_device_case_output(&c, LS_DEVICE_ACTIVATION, x_of(s), y_tolerance(&d, given ? 0 : d.n));
    if (!given) {
        ls_device_case_output(&c, LS_DEVICE_WEIGHTS, vector_of(s), absolute(shift_of(&d, d.n)));
        ls_device_case_output(&c, LS_DEVICE_WEIGHTS, vector_of(s), variance_tolerance(&d));
    }
    if (added)
        ls_device_case_accumulate(&c, 0);
    ls_device_case_run(suite, &c);
}

static void add_forward(struct ls_device_case *c, const struct shape *s)
{
    static const enum ls_device_role roles[] = {LS_DEVICE_ACTIVATION, LS_DEVICE_WEIGHTS,
                                                LS_DEVICE_WEIGHTS,    LS_DEVICE_ACTIVATION,
                                                LS_DEVICE_WEIGHTS,    LS_DEVICE_WEIGHTS};
    static const uint8_t from[] = {1, 2, 5, 6,
                                   0, 1, 2, 3}; // x, gamma, mean, variance; dx, dgamma, dbeta
    c->has_forward = true;
    c->forward = (struct ls_device_request){
        .op = LS_OP_BATCH_NORMALIZATION,
        .attributes = c->request.attributes,
        .input_count = 3,
        .output_count = 3,
        .arguments = {x_of(s), vector_of(s), vector_of(s), x_of(s), vector_of(s), vector_of(s)},
    };
    memcpy(c->forward_roles, roles, sizeof(roles));
    memcpy(c->from_forward, from, sizeof(from));
}

// `accumulate`: bit i for output i.
static void backward(struct ls_device_suite *suite, const struct shape *s, uint32_t accumulate)
{
    static const char *const added[8] = {
        "", " added to dx", " added to dgamma", NULL, " added to dbeta", NULL, NULL, " all added"};
    struct ls_device_tolerance tolerances[3] = {{0}};
    struct ls_device_case c;

    start(&c, s, LS_OP_BATCH_NORMALIZATION_BACKWARD, "batch_normalization_backward",
          added[accumulate]);
    input(&c, LS_DEVICE_ACTIVATION, x_of(s));
    for (int i = 0; i < 3; i++)
        input(&c, LS_DEVICE_WEIGHTS, vector_of(s));
    input(&c, LS_DEVICE_ACTIVATION, x_of(s));
    ls_device_case_values(&c);
    if (has_values(&c)) {
        place_x(suite, &c, s);
        struct norm d = statistics_of(&c);
        give_statistics(&c, &d, 2);
        measure(&c, &d);
        backward_tolerances(&c, &d, tolerances);
    }
    add_forward(&c, s);
    ls_device_case_output(&c, LS_DEVICE_ACTIVATION, x_of(s), tolerances[0]);
    ls_device_case_output(&c, LS_DEVICE_WEIGHTS, vector_of(s), tolerances[1]);
    ls_device_case_output(&c, LS_DEVICE_WEIGHTS, vector_of(s), tolerances[2]);
    for (uint32_t i = 0; i < 3; i++)
        if (accumulate >> i & 1)
            ls_device_case_accumulate(&c, i);
    ls_device_case_run(suite, &c);
}

// ---- All of it ----

static const char *name_of(uint32_t op)
{
    static const char *const names[] = {"batch_normalization", "batch_normalization_backward",
                                        "batch_normalization_inference"};
    return names[op - LS_OP_BATCH_NORMALIZATION];
}

// What the tested device answers to a plain request; as ls_device_session_prepare().
static int32_t try(struct ls_device_suite *suite, uint32_t op)
{
    static const uint32_t inputs[] = {3, 5, 5}, outputs[] = {3, 3, 1};
    const uint32_t which = op - LS_OP_BATCH_NORMALIZATION;
    struct ls_device_session session;
    struct ls_device_request request = {
        .op = op,
        .attributes = {.epsilon = 1e-3f},
        .input_count = inputs[which],
        .output_count = outputs[which],
    };
    for (uint32_t i = 0; i < inputs[which] + outputs[which]; i++) {
        const bool whole =
            i == 0 || i == inputs[which] || (op == LS_OP_BATCH_NORMALIZATION_BACKWARD && i == 4);
        struct ls_tensor_desc *desc = &request.arguments[i];
        *desc = whole ? LS_DEVICE_DESC(LS_F32, 4, 3) : LS_DEVICE_DESC(LS_F32, 3);
        desc->layout = ls_device_plain_layout(desc);
    }
    const int32_t status = ls_device_session_prepare(&session, suite, suite->tested, &request);
    ls_device_session_close(&session);
    return status;
}

bool ls_device_batch_normalization_offered(struct ls_device_suite *suite, uint32_t op)
{
    return try(suite, op) != LS_UNSUPPORTED;
}

// Whether there are cases to run: none of an operation that the device has not. That is one case, of the float32 ones without an
// epilogue.
static bool begin_cases(struct ls_device_suite *suite, uint32_t op, bool first)
{
    const bool offered = ls_device_batch_normalization_offered(suite, op);
    if (first && !offered && ls_device_suite_begin(suite, name_of(op)))
        ls_device_suite_end(suite, name_of(op), suite->tested->message);
    return offered;
}

// A device gets an addend only where it has said that it takes what is added.
static bool takes_addend(const struct ls_device_interface *d, uint32_t op)
{
    for (uint32_t i = 0; i < d->pattern_count; i++)
        if (d->patterns[i].producer == op && d->patterns[i].consumer == LS_OP_ADD)
            return true;
    return false;
}

// Around 100 the neighbours in bfloat16 are 0.5 apart: halves are spread so far that they differ.
static struct shape shape_at(const struct ls_device_suite *suite, size_t i)
{
    struct shape s = shapes[i];
    if (suite->dtype)
        s.spread = fmaxf(s.spread, fabsf(s.centre) / 16);
    return s;
}

void ls_device_batch_normalization_cases(struct ls_device_suite *suite, uint32_t op,
                                         const struct ls_device_epilogue *epilogue)
{
    static const uint32_t accumulate[] = {0, 2, 4, 7};
    const int addends = takes_addend(suite->tested->interface, op) ? 2 : 1;

    if (!begin_cases(suite, op, !epilogue && !suite->dtype))
        return;
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        const struct shape s = shape_at(suite, i);
        if (epilogue && i % 3 != 1)
            continue;
        if (op == LS_OP_BATCH_NORMALIZATION_BACKWARD) {
            backward(suite, &s, accumulate[i % 4]);
            continue;
        }
        for (int addend = 0; addend < addends; addend++) {
            forward(suite, &s, op, addend, false, epilogue);
            if (i % 6 == 1)
                forward(suite, &s, op, addend, true, epilogue);
        }
    }
}

// ---- Through given statistics, and moving ones ----

// x or dy, of which `inputs` follow, then vectors; statistics are not those of x.
static void given_backward(struct ls_device_suite *suite, const struct shape *s, bool weights,
                           bool added)
{
    const char *name = weights ? "batch_normalization_inference_backward_weights"
                               : "batch_normalization_inference_backward_data";
    struct ls_device_tolerance tolerances[2] = {{0}};
    struct ls_device_case c;

    start(&c, s,
          weights ? LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_WEIGHTS
                  : LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_DATA,
          name, added ? " added" : "");
    input(&c, LS_DEVICE_ACTIVATION, x_of(s));
    for (int i = 0; i < 2; i++)
        input(&c, LS_DEVICE_WEIGHTS, vector_of(s));
    if (weights)
        input(&c, LS_DEVICE_ACTIVATION, x_of(s));
    ls_device_case_values(&c);
    if (has_values(&c)) {
        float *variance = c.values[2];
        for (int64_t i = 0; i < s->x[s->ndims - 1]; i++)
            variance[i] = 0.2f + fabsf(variance[i]);
        if (weights)
            place_x(suite, &c, s);
        struct norm d = statistics_of(&c);
        const float *x = c.values[0], *mean = c.values[1], *dy = c.values[weights ? 3 : 0];
        double largest[2] = {0}, sums[2][MOST_CHANNELS] = {{0}}, least = INFINITY;
        for (int64_t i = 0; i < d.n * d.channels; i++) {
            const int64_t k = i % d.channels;
            const double deviation = sqrt((double)variance[k] + d.epsilon);
            const double h =
                (fabs((double)x[i]) + (weights ? fabs((double)mean[k]) : 0)) / deviation;
            least = fmin(least, deviation);
            sums[0][k] += fabs((double)dy[i]) * h;
            sums[1][k] += fabs((double)dy[i]);
            for (int j = 0; j < 2; j++)
                largest[j] = fmax(largest[j], sums[j][k]);
        }
        const double e = LS_DEVICE_SUM.of_magnitude;
        tolerances[0] = absolute(weights ? e * largest[0] : e / least);
        tolerances[1] = absolute(e * largest[1]);
    }
    ls_device_case_output(&c, weights ? LS_DEVICE_WEIGHTS : LS_DEVICE_ACTIVATION,
                          weights ? vector_of(s) : x_of(s), tolerances[0]);
    if (weights)
        ls_device_case_output(&c, LS_DEVICE_WEIGHTS, vector_of(s), tolerances[1]);
    if (added)
        ls_device_case_accumulate(&c, 0);
    ls_device_case_run(suite, &c);
}

void ls_device_given_backward_cases(struct ls_device_suite *suite)
{
    const struct ls_op_attributes attributes = {.epsilon = 1e-3f};
    const struct ls_tensor_desc x = LS_DEVICE_DESC(LS_F32, 4, 3), c = LS_DEVICE_DESC(LS_F32, 3);
    const struct ls_device_request data = {.op = LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_DATA,
                                           .attributes = attributes,
                                           .input_count = 3,
                                           .output_count = 1,
                                           .arguments = {x, c, c, x}};
    const struct ls_device_request weights = {
        .op = LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_WEIGHTS,
        .attributes = attributes,
        .input_count = 4,
        .output_count = 2,
        .arguments = {x, c, c, x, c, c}};
    const bool offered[2] = {
        ls_device_operation_offered(suite, "batch_normalization_inference_backward_data", &data),
        ls_device_operation_offered(suite, "batch_normalization_inference_backward_weights",
                                    &weights)};

    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        const struct shape s = shape_at(suite, i);
        for (int k = 0; k < 2; k++)
            if (offered[k])
                given_backward(suite, &s, k, i % 2);
    }
}

// Vectors, float32 only.
void ls_device_statistics_cases(struct ls_device_suite *suite)
{
    static const int64_t lengths[] = {1, 3, 16, 64, 1000};
    const struct ls_tensor_desc three = LS_DEVICE_DESC(LS_F32, 3);
    const struct ls_device_request request = {.op = LS_OP_BATCH_STATISTICS,
                                              .attributes = {.factor = 1},
                                              .input_count = 2,
                                              .output_count = 2,
                                              .arguments = {three, three, three, three}};

    if (suite->dtype || !ls_device_operation_offered(suite, "batch_statistics", &request))
        return;
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
        for (uint32_t added = 0; added < 2; added++) {
            struct ls_device_case c;
            ls_device_case_start(&c, LS_OP_BATCH_STATISTICS, "batch_statistics N=%lld%s",
                                 (long long)lengths[i], added ? " added" : "");
            c.request.attributes.factor = 0.5f + (float)i;
            c.record.share_weight = 0.375f;
            for (int k = 0; k < 2; k++)
                input(&c, LS_DEVICE_WEIGHTS, LS_DEVICE_DESC(LS_F32, lengths[i]));
            for (uint32_t k = 0; k < 2; k++)
                ls_device_case_output(&c, LS_DEVICE_WEIGHTS, LS_DEVICE_DESC(LS_F32, lengths[i]),
                                      LS_DEVICE_ROUNDED);
            for (uint32_t k = 0; k < 2 * added; k++)
                ls_device_case_accumulate(&c, k);
            ls_device_case_run(suite, &c);
        }
}
