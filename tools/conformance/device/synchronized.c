// SPDX-License-Identifier: Apache-2.0
// Cases of batch normalization with the statistics of all replicas: the float64 totals of a share, forward and backward, and what
// is made of totals that are more than those of this share. A device may leave the operations out; each is one case then.
//
// Tolerances follow from the values. With M the largest |x|, R the largest |x - mean| and D the least sqrt(variance + epsilon) of
// the channels, and e = 1e-5 for a float32 sum in any order (LS_DEVICE_SUM): sums may be formed in float32 around some value of
// the channel, so that they are off by n e R and, of the squares, n e (R^2 + 2 M R). Squares of x around 100 that are added up
// in float32 are off by much more.
#include "tools/conformance/device/suite.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum { MOST_CHANNELS = 64 };

struct shape {
    uint32_t ndims;
    int64_t x[4];
    double centre, spread; // x lies between centre - spread and centre + spread
    float epsilon;
};

static const struct shape shapes[] = {
    {2, {1, 1}, 0, 1, 1e-3f},
    {2, {5, 3}, 0, 1, 1e-3f},
    {4, {5, 5, 5, 64}, 0, 1, 1e-5f},
    {2, {1, 17}, 0, 1, 1e-3f},
    {4, {2, 13, 11, 17}, 100, 0.1, 1e-5f},
    {4, {1, 7, 5, 16}, 1, 1, 1e-3f},
    {4, {3, 9, 7, 33}, 0, 1, 1e-5f},
    {2, {300, 64}, 100, 0.1, 1e-3f},
    {3, {2, 7, 10}, -1, 2, 1e-3f},
};

#define SHAPE_COUNT (sizeof(shapes) / sizeof(shapes[0]))

static const struct {
    uint32_t op, inputs, outputs;
    const char *name;
} operations[] = {
    {LS_OP_BATCH_MOMENTS, 1, 1, "batch_moments"},
    {LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED, 4, 3, "batch_normalization_synchronized"},
    {LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_SUMS, 4, 3,
     "batch_normalization_synchronized_backward_sums"},
    {LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_DATA, 6, 1,
     "batch_normalization_synchronized_backward_data"},
};

// What a case is about, of the share and of the batch.
struct batch {
    int64_t n, channels;
    double mean[MOST_CHANNELS], variance[MOST_CHANNELS]; // of the batch
    double largest, reach, deviation; // M, R, D
};

static struct ls_tensor_desc x_of(const struct shape *s)
{
    return ls_device_desc(LS_F32, s->ndims, s->x);
}

static struct ls_tensor_desc vector_of(const struct shape *s)
{
    return LS_DEVICE_DESC(LS_F32, s->x[s->ndims - 1]);
}

static struct ls_tensor_desc totals_of(const struct shape *s)
{
    return LS_DEVICE_DESC(LS_F64, 2 * s->x[s->ndims - 1] + 1);
}

static void start(struct ls_device_case *c, const struct shape *s, int which, const char *more)
{
    ls_device_case_start(
        c, operations[which].op, "%s B=%lld %lld of %lld around %g%s", operations[which].name,
        (long long)s->x[0],
        (long long)(ls_tensor_elements(&(struct ls_tensor_desc){
                        .ndims = s->ndims, .dims = {s->x[0], s->x[1], s->x[2], s->x[3]}}) /
                    (uint64_t)s->x[0]),
        (long long)s->x[s->ndims - 1], s->centre, more);
    c->request.attributes = (struct ls_op_attributes){.epsilon = s->epsilon};
}

static uint32_t input(struct ls_device_case *c, enum ls_device_role role,
                      struct ls_tensor_desc desc)
{
    const uint32_t index = ls_device_case_input(c, role, desc);
    ls_device_case_draw(c, index, LS_DEVICE_UNIFORM);
    return index;
}

static struct ls_device_tolerance tolerance(double relative, double absolute)
{
    return (struct ls_device_tolerance){0, relative, absolute + 1e-30};
}

// ---- Values ----

// Moves the drawn x to where the shape has it. The batch has other examples, too: its statistics are not those of x.
static bool place_x(const struct ls_device_case *c, const struct shape *s, struct batch *b)
{
    float *x = c->values[0];
    *b = (struct batch){.channels = s->x[s->ndims - 1], .deviation = INFINITY};
    b->n = (int64_t)ls_tensor_elements(&c->request.arguments[0]) / b->channels;
    assert(b->channels <= MOST_CHANNELS);
    for (int64_t k = 0; k < b->channels; k++) {
        b->mean[k] = s->centre + s->spread * (0.25 - 0.01 * (double)k);
        b->variance[k] = s->spread * s->spread * (0.2 + 0.01 * (double)k);
        b->deviation = fmin(b->deviation, sqrt(b->variance[k] + (double)s->epsilon));
    }
    for (int64_t i = 0; x && i < b->n * b->channels; i++) {
        x[i] = (float)(s->centre + s->spread * (double)x[i]);
        b->largest = fmax(b->largest, fabs((double)x[i]));
        b->reach = fmax(b->reach, fabs((double)x[i] - b->mean[i % b->channels]));
    }
    return x != NULL;
}

// float32, as an operation before has left them.
static void give_statistics(struct ls_device_case *c, struct batch *b, uint32_t mean)
{
    for (int64_t k = 0; k < b->channels && c->values[mean] && c->values[mean + 1]; k++) {
        b->mean[k] = (double)(((float *)c->values[mean])[k] = (float)b->mean[k]);
        b->variance[k] = (double)(((float *)c->values[mean + 1])[k] = (float)b->variance[k]);
    }
}

// The totals of a batch that is three times as large as the share: of x (`backward` 0), or of gradients.
static void give_totals(struct ls_device_case *c, const struct batch *b, uint32_t index,
                        bool backward)
{
    const double n = 3.0 * (double)b->n;
    double *totals = malloc((size_t)(2 * b->channels + 1) * sizeof(*totals));
    c->values[index] = totals;
    for (int64_t k = 0; totals && k < b->channels; k++) {
        const double one = backward ? 0.3 - 0.02 * (double)k : b->mean[k];
        const double other =
            backward ? 0.01 * (double)k - 0.2 : b->variance[k] + b->mean[k] * b->mean[k];
        totals[k] = n * one;
        totals[b->channels + k] = n * other;
    }
    if (totals)
        totals[2 * b->channels] = n;
}

// ---- Cases ----

static void moments(struct ls_device_suite *suite, const struct shape *s)
{
    const double e = LS_DEVICE_SUM.of_magnitude;
    struct ls_device_case c;
    struct batch b;

    start(&c, s, 0, "");
    input(&c, LS_DEVICE_ACTIVATION, x_of(s));
    ls_device_case_values(&c);
    place_x(&c, s, &b);
    // Sums are n M large, and squares n M^2.
    const double relative = b.largest > 0 ? 2 * e * b.reach / b.largest : 0;
    ls_device_case_output(&c, LS_DEVICE_WEIGHTS, totals_of(s),
                          tolerance(relative, (double)b.n * e * fmin(b.reach, b.reach * b.reach)));
    ls_device_case_run(suite, &c);
}

static void forward(struct ls_device_suite *suite, const struct shape *s, bool addend, bool added,
                    const struct ls_device_epilogue *epilogue)
{
    static const char *const more[2][2] = {{"", " added to y"},
                                           {" with addend", " with addend added to y"}};
    const double e = LS_DEVICE_SUM.of_magnitude, rounding = LS_DEVICE_ROUNDED.relative;
    struct ls_device_case c;
    struct batch b;

    start(&c, s, 1, more[addend][added]);
    input(&c, LS_DEVICE_ACTIVATION, x_of(s));
    for (int i = 0; i < 2; i++)
        input(&c, LS_DEVICE_WEIGHTS, vector_of(s));
    const uint32_t totals = ls_device_case_input(&c, LS_DEVICE_WEIGHTS, totals_of(s));
    if (addend)
        input(&c, LS_DEVICE_ACTIVATION, x_of(s));
    ls_device_case_values(&c);
    place_x(&c, s, &b);
    give_totals(&c, &b, totals, false);
    ls_device_case_epilogue(&c, epilogue, x_of(s));
    ls_device_case_output(
        &c, LS_DEVICE_ACTIVATION, x_of(s),
        tolerance(0, (4 * 0x1p-24 * b.largest + e * b.reach) / b.deviation + 3 * rounding));
    ls_device_case_output(&c, LS_DEVICE_WEIGHTS, vector_of(s), tolerance(rounding, 0));
    ls_device_case_output(&c, LS_DEVICE_WEIGHTS, vector_of(s),
                          tolerance(rounding, 0x1p-48 * b.largest * b.largest));
    if (added)
        ls_device_case_accumulate(&c, 0);
    ls_device_case_run(suite, &c);
}

// `accumulate`: bit i for output i.
static void backward_sums(struct ls_device_suite *suite, const struct shape *s, uint32_t accumulate)
{
    static const char *const more[4] = {"", " added to dgamma", " added to dbeta", " added"};
    const double e = LS_DEVICE_SUM.of_magnitude;
    struct ls_device_case c;
    struct batch b;

    start(&c, s, 2, more[accumulate]);
    input(&c, LS_DEVICE_ACTIVATION, x_of(s));
    for (int i = 0; i < 2; i++)
        input(&c, LS_DEVICE_WEIGHTS, vector_of(s));
    input(&c, LS_DEVICE_ACTIVATION, x_of(s));
    ls_device_case_values(&c);
    place_x(&c, s, &b);
    give_statistics(&c, &b, 1);
    // |dy| is 1 at most.
    const double n = (double)b.n, of_beta = e * n;
    const double of_gamma = n * (e * b.reach + 4 * 0x1p-24 * b.largest) / b.deviation;
    ls_device_case_output(&c, LS_DEVICE_WEIGHTS, vector_of(s), tolerance(1e-6, of_gamma));
    ls_device_case_output(&c, LS_DEVICE_WEIGHTS, vector_of(s), tolerance(1e-6, of_beta));
    ls_device_case_output(&c, LS_DEVICE_WEIGHTS, totals_of(s),
                          tolerance(0, fmax(of_gamma, of_beta)));
    for (uint32_t i = 0; i < 2; i++)
        if (accumulate >> i & 1)
            ls_device_case_accumulate(&c, i);
    ls_device_case_run(suite, &c);
}

static void backward_data(struct ls_device_suite *suite, const struct shape *s, bool added)
{
    const double e = LS_DEVICE_SUM.of_magnitude;
    struct ls_device_case c;
    struct batch b;

    start(&c, s, 3, added ? " added" : "");
    input(&c, LS_DEVICE_ACTIVATION, x_of(s));
    for (int i = 0; i < 3; i++)
        input(&c, LS_DEVICE_WEIGHTS, vector_of(s));
    input(&c, LS_DEVICE_ACTIVATION, x_of(s));
    const uint32_t totals = ls_device_case_input(&c, LS_DEVICE_WEIGHTS, totals_of(s));
    ls_device_case_values(&c);
    place_x(&c, s, &b);
    give_statistics(&c, &b, 2);
    give_totals(&c, &b, totals, true);
    // gamma and dy are 1 at most, the totals less than n.
    const double height = (b.reach + 4 * 0x1p-24 / e * b.largest) / b.deviation;
    ls_device_case_output(&c, LS_DEVICE_ACTIVATION, x_of(s),
                          tolerance(0, e * (2 + height) / b.deviation));
    if (added)
        ls_device_case_accumulate(&c, 0);
    ls_device_case_run(suite, &c);
}

// ---- All of it ----

static struct ls_device_request request_of(int which)
{
    const struct ls_tensor_desc x = LS_DEVICE_DESC(LS_F32, 4, 3), c = LS_DEVICE_DESC(LS_F32, 3),
                                t = LS_DEVICE_DESC(LS_F64, 7);
    const struct ls_device_request requests[] = {
        {.arguments = {x, t}},
        {.arguments = {x, c, c, t, x, c, c}},
        {.arguments = {x, c, c, x, c, c, t}},
        {.arguments = {x, c, c, c, x, t, x}},
    };
    struct ls_device_request request = requests[which];
    request.op = operations[which].op;
    request.attributes.epsilon = 1e-3f;
    request.input_count = operations[which].inputs;
    request.output_count = operations[which].outputs;
    return request;
}

static bool is_offered(struct ls_device_suite *suite, int which)
{
    const struct ls_device_request request = request_of(which);
    return ls_device_operation_offered(suite, operations[which].name, &request);
}

bool ls_device_synchronized_offered(struct ls_device_suite *suite)
{
    struct ls_device_request request = request_of(1);
    struct ls_device_session session;
    for (uint32_t i = 0; i < request.input_count + request.output_count; i++)
        request.arguments[i].layout = ls_device_plain_layout(&request.arguments[i]);
    const int32_t status = ls_device_session_prepare(&session, suite, suite->tested, &request);
    ls_device_session_close(&session);
    return status != LS_UNSUPPORTED;
}

static bool takes_addend(const struct ls_device_interface *d)
{
    for (uint32_t i = 0; i < d->pattern_count; i++)
        if (d->patterns[i].producer == LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED &&
            d->patterns[i].consumer == LS_OP_ADD)
            return true;
    return false;
}

void ls_device_synchronized_forward_cases(struct ls_device_suite *suite,
                                          const struct ls_device_epilogue *epilogue)
{
    const int addends = takes_addend(suite->tested->interface) ? 2 : 1;

    if (suite->dtype || !(epilogue ? ls_device_synchronized_offered(suite) : is_offered(suite, 1)))
        return;
    for (size_t i = 0; i < SHAPE_COUNT; i++)
        for (int addend = 0; addend < addends && (!epilogue || i % 3 == 1); addend++)
            forward(suite, &shapes[i], addend, i % 4 == 1, epilogue);
}

void ls_device_synchronized_cases(struct ls_device_suite *suite)
{
    const bool offered[] = {is_offered(suite, 0), true, is_offered(suite, 2), is_offered(suite, 3)};

    ls_device_synchronized_forward_cases(suite, NULL);
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        if (offered[0])
            moments(suite, &shapes[i]);
        if (offered[2])
            backward_sums(suite, &shapes[i], i % 4);
        if (offered[3])
            backward_data(suite, &shapes[i], i % 2);
    }
}
