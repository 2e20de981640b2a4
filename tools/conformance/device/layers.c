// SPDX-License-Identifier: Apache-2.0
// Cases of the operations that single layers are made of: normalization of examples, rows by index,
// attention, products of activations, transposed convolution, PReLU. A device may leave an
// operation out; that is reported as one case. The bits do not depend on the number of threads,
// which one case of each operation checks.
#include "core/plugin/window.h"
#include "tools/conformance/device/suite.h"

#include "core/operation/operation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t input(struct ls_device_case *c, enum ls_device_role role,
                      struct ls_tensor_desc desc)
{
    const uint32_t index = ls_device_case_input(c, role, desc);
    ls_device_case_draw(c, index, LS_DEVICE_UNIFORM);
    return index;
}

static struct ls_tensor_desc saved_desc(void)
{
    return LS_DEVICE_DESC(LS_U8, 0);
}

static struct ls_device_tolerance absolute(double tolerance)
{
    return (struct ls_device_tolerance){0, 0, tolerance + 1e-30};
}

// The backward case of `forward` takes over `saved`, its input number `saved`; each input of
// forward is input from[i] of the case.
static void take_saved(struct ls_device_case *c, const struct ls_device_request *forward,
                       const uint32_t *from, uint32_t saved)
{
    c->has_forward = c->saved_from_forward = true;
    c->forward = *forward;
    for (uint32_t i = 0; i < forward->input_count; i++) {
        c->forward_roles[i] = c->roles[from[i]];
        c->from_forward[from[i]] = (uint8_t)(i + 1);
    }
    c->forward_roles[forward->input_count] = LS_DEVICE_ACTIVATION;
    c->forward_roles[forward->input_count + 1] = LS_DEVICE_SAVED;
    c->from_forward[saved] = (uint8_t)(forward->input_count + 2);
}

// ---- Normalization ----

enum { MOST_CHANNELS = 256 };

struct norm_shape {
    uint32_t ndims;
    int64_t x[4];
    int32_t groups; // 0: over the last dimension
    float centre, spread;
    float epsilon;
    uint32_t vectors; // 0, 1: gamma, 2: gamma and beta, 3: beta
};

static const struct norm_shape norm_shapes[] = {
    {2, {1, 1}, 0, 0, 1, 1e-3f, 2},
    {2, {5, 3}, 0, 0, 1, 1e-3f, 2},
    {3, {2, 7, 17}, 0, 0, 1, 1e-6f, 1},
    {3, {4, 33, 64}, 0, 100, 0.1f, 1e-5f, 2},
    {4, {2, 5, 7, 96}, 0, 0, 1, 1e-6f, 3},
    {2, {129, 255}, 0, -1, 2, 1e-3f, 0},
    {3, {3, 200, 128}, 0, 1, 1, 1e-3f, 2},
    {4, {2, 5, 7, 8}, 2, 0, 1, 1e-3f, 2},
    {4, {3, 13, 11, 24}, 24, 100, 0.1f, 1e-3f, 1},
    {4, {1, 4, 3, 15}, 5, 0, 1, 1e-3f, 3},
    {4, {5, 16, 16, 64}, 32, 1, 1, 1e-3f, 2},
    {2, {7, 33}, 1, 0, 4, 1e-3f, 0},
    {4, {2, 1, 1, 6}, 3, 0, 1, 1e-3f, 2},
    {4, {2, 17, 13, 12}, 2, 100, 0.1f, 1e-3f, 2},
    {4, {3, 16, 12, 32}, 4, 0, 1, 1e-3f, 2},
};

#define NORM_COUNT (sizeof(norm_shapes) / sizeof(norm_shapes[0]))

// What tolerances follow from: the largest |x|, the least sqrt(variance + epsilon), the largest
// |h|; and of the sums over all examples, the largest sum of |dy| and of |dy h| of a channel.
struct norm_measures {
    int64_t n, rows;
    double largest, deviation, height;
    double sums[2];
};

// The start of the values that are normalized together with value `i`, and how they lie.
static int64_t norm_place(const struct norm_shape *s, int64_t set, int64_t i)
{
    const int64_t channels = s->x[s->ndims - 1];
    int64_t positions = 1;
    for (uint32_t d = 1; d + 1 < s->ndims; d++)
        positions *= s->x[d];
    if (!s->groups)
        return set * channels + i;
    const int64_t width = channels / s->groups, b = set / s->groups, group = set % s->groups;
    return (b * positions + i / width) * channels + group * width + i % width;
}

static void norm_measure(const struct norm_shape *s, const float *x, const float *dy,
                         struct norm_measures *out)
{
    const struct ls_tensor_desc desc = ls_device_desc(LS_F32, s->ndims, s->x);
    const int64_t count = (int64_t)ls_tensor_elements(&desc), channels = s->x[s->ndims - 1];
    double sums[2][MOST_CHANNELS] = {{0}};
    out->n = s->groups ? count / s->x[0] / s->groups : channels;
    out->rows = count / channels;
    out->largest = out->height = out->sums[0] = out->sums[1] = 0;
    out->deviation = INFINITY;
    for (int64_t set = 0; set < count / out->n; set++) {
        double mean = 0, variance = 0;
        for (int64_t i = 0; i < out->n; i++)
            mean += (double)x[norm_place(s, set, i)] / (double)out->n;
        for (int64_t i = 0; i < out->n; i++) {
            const double distance = (double)x[norm_place(s, set, i)] - mean;
            variance += distance * distance / (double)out->n;
        }
        const double deviation = sqrt(variance + (double)s->epsilon);
        out->deviation = fmin(out->deviation, deviation);
        for (int64_t i = 0; i < out->n; i++) {
            const int64_t at = norm_place(s, set, i);
            const double h = ((double)x[at] - mean) / deviation;
            out->largest = fmax(out->largest, fabs((double)x[at]));
            out->height = fmax(out->height, fabs(h));
            sums[0][at % channels] += dy ? fabs((double)dy[at]) : 0;
            sums[1][at % channels] += dy ? fabs((double)dy[at] * h) : 0;
        }
    }
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < channels; i++)
            out->sums[k] = fmax(out->sums[k], sums[k][i]);
}

// How far x - mean may be off: n additions are n roundings at most, and three more for the mean and
// the difference.
static double norm_shift(const struct norm_measures *m)
{
    return m->largest * fmin(LS_DEVICE_SUM.of_magnitude, (double)(m->n + 3) * 0x1p-24);
}

// How far h may be off: by that of x - mean, and by the variance's e and the square of the mean's
// error.
static double norm_error(const struct norm_measures *m)
{
    const double shift = norm_shift(m) / m->deviation;
    return shift + m->height * (LS_DEVICE_SUM.of_magnitude + shift * shift);
}

static void norm_place_x(struct ls_device_case *c, uint32_t argument, const struct norm_shape *s)
{
    float *x = c->values[argument];
    for (uint64_t i = 0; x && i < ls_tensor_elements(&c->request.arguments[argument]); i++)
        x[i] = s->centre + s->spread * x[i];
}

static void norm_start(struct ls_device_case *c, const struct norm_shape *s, uint32_t op,
                       const char *more)
{
    static const char *const vectors[] = {"none", "gamma", "gamma and beta", "beta"};
    char x[64] = "", groups[32] = "";
    size_t length = 0;
    for (uint32_t i = 1; i < s->ndims; i++)
        length += (size_t)snprintf(x + length, sizeof(x) - length, "%s%lld", i > 1 ? "x" : "",
                                   (long long)s->x[i]);
    if (s->groups)
        snprintf(groups, sizeof(groups), " %d groups", s->groups);
    ls_device_case_start(c, op, "%s B=%lld %s%s around %g, %s%s", ls_op_name(op),
                         (long long)s->x[0], x, groups, (double)s->centre, vectors[s->vectors],
                         more);
    c->request.attributes = (struct ls_op_attributes){
        .epsilon = s->epsilon, .groups = s->groups, .only_beta = s->vectors == 3};
}

static uint32_t norm_vectors(const struct norm_shape *s)
{
    return s->vectors == 3 ? 1 : s->vectors;
}

static void norm_forward(struct ls_device_case *c, const struct norm_shape *s, size_t number)
{
    const struct ls_tensor_desc x = ls_device_desc(LS_F32, s->ndims, s->x);
    struct norm_measures m = {.n = 1, .deviation = 1};

    norm_start(c, s, LS_OP_LAYER_NORMALIZATION, number % 3 == 1 ? " alone" : "");
    input(c, LS_DEVICE_ACTIVATION, x);
    for (uint32_t i = 0; i < norm_vectors(s); i++)
        input(c, LS_DEVICE_WEIGHTS, LS_DEVICE_DESC(LS_F32, s->x[s->ndims - 1]));
    ls_device_case_values(c);
    norm_place_x(c, 0, s);
    if (c->values[0])
        norm_measure(s, c->values[0], NULL, &m);
    ls_device_case_output(
        c, LS_DEVICE_ACTIVATION, x,
        absolute(norm_error(&m) + 2 * LS_DEVICE_ROUNDED.relative * (1 + m.height)));
    if (number % 3 != 1)
        ls_device_case_output(c, LS_DEVICE_SAVED, saved_desc(), LS_DEVICE_EXACT);
    if (number % 4 == 3)
        ls_device_case_accumulate(c, 0);
}

static void norm_backward(struct ls_device_case *c, const struct norm_shape *s, size_t number)
{
    static const uint32_t from[] = {1, 3};
    const struct ls_tensor_desc x = ls_device_desc(LS_F32, s->ndims, s->x);
    const struct ls_tensor_desc vector = LS_DEVICE_DESC(LS_F32, s->x[s->ndims - 1]);
    const double e = LS_DEVICE_SUM.of_magnitude, rounding = LS_DEVICE_ROUNDED.relative;
    struct norm_measures m = {.n = 1, .deviation = 1};

    norm_start(c, s, LS_OP_LAYER_NORMALIZATION_BACKWARD, number % 3 == 2 ? " all added" : "");
    input(c, LS_DEVICE_ACTIVATION, x);
    input(c, LS_DEVICE_ACTIVATION, x);
    ls_device_case_input(c, LS_DEVICE_SAVED, saved_desc());
    if (norm_vectors(s))
        input(c, LS_DEVICE_WEIGHTS, vector);
    ls_device_case_values(c);
    norm_place_x(c, 1, s);
    if (c->values[0] && c->values[1])
        norm_measure(s, c->values[1], c->values[0], &m);
    struct ls_device_request forward = {
        .op = LS_OP_LAYER_NORMALIZATION,
        .attributes = c->request.attributes,
        .input_count = norm_vectors(s) ? 2 : 1,
        .output_count = 2,
    };
    uint32_t at = 0;
    forward.arguments[at++] = x;
    if (norm_vectors(s))
        forward.arguments[at++] = vector;
    forward.arguments[at++] = x;
    forward.arguments[at] = saved_desc();
    take_saved(c, &forward, from, 2);

    // |g| <= 1: its mean and that of g h are off by e and e height + the error of h.
    const double error = norm_error(&m);
    const double dx = (2 * rounding + e + m.height * (e * m.height + error) + error * m.height) /
                      m.deviation * (1 + error);
    ls_device_case_output(c, LS_DEVICE_ACTIVATION, x, absolute(dx));
    const struct ls_device_tolerance dgamma = absolute(e * m.sums[1] + error * m.sums[0]);
    const struct ls_device_tolerance dbeta = absolute(e * m.sums[0]);
    if (norm_vectors(s))
        ls_device_case_output(c, LS_DEVICE_WEIGHTS, vector, s->vectors == 3 ? dbeta : dgamma);
    if (s->vectors == 2)
        ls_device_case_output(c, LS_DEVICE_WEIGHTS, vector, dbeta);
    for (uint32_t i = 0; number % 3 == 2 && i < c->request.output_count; i++)
        ls_device_case_accumulate(c, i);
}

static bool norm_case(struct ls_device_case *c, uint32_t op, size_t number)
{
    if (number >= NORM_COUNT)
        return false;
    if (op == LS_OP_LAYER_NORMALIZATION)
        norm_forward(c, &norm_shapes[number], number);
    else
        norm_backward(c, &norm_shapes[number], number);
    return true;
}

// ---- Rows by index ----

static const struct {
    int64_t b, t, v, n; // t 0: ids (B)
} row_shapes[] = {
    {1, 1, 1, 1},     {5, 3, 7, 3},      {2, 17, 65, 16}, {64, 0, 1000, 10}, {3, 33, 2, 5},
    {7, 128, 65, 96}, {4, 64, 5000, 64}, {1, 1, 3, 257},  {5, 1031, 3, 7},   {1, 2049, 9, 8},
};

static bool row_case(struct ls_device_case *c, uint32_t op, size_t number)
{
    if (number >= sizeof(row_shapes) / sizeof(row_shapes[0]))
        return false;
    const bool backward = op == LS_OP_GATHER_ROWS_BACKWARD;
    const int64_t b = row_shapes[number].b, t = row_shapes[number].t, v = row_shapes[number].v,
                  n = row_shapes[number].n;
    struct ls_tensor_desc ids = t ? LS_DEVICE_DESC(LS_I32, b, t) : LS_DEVICE_DESC(LS_I32, b);
    const struct ls_tensor_desc y =
        t ? LS_DEVICE_DESC(LS_F32, b, t, n) : LS_DEVICE_DESC(LS_F32, b, n);

    ls_device_case_start(c, op, "%s B=%lld %lld of %lldx%lld%s", ls_op_name(op), (long long)b,
                         (long long)t, (long long)v, (long long)n,
                         number % 4 == 2 ? " float ids" : "");
    const bool floats = number % 4 == 2;
    ids.dtype = floats ? LS_F32 : LS_I32;
    ls_device_case_draw_labels(c, ls_device_case_input(c, LS_DEVICE_PLAIN, ids), v);
    if (backward)
        input(c, LS_DEVICE_ACTIVATION, y);
    else
        input(c, LS_DEVICE_WEIGHTS, LS_DEVICE_DESC(LS_F32, v, n));
    ls_device_case_values(c);
    int32_t *values = c->values[0];
    if (values && number % 2 == 1) { // outside of the table
        values[0] = (int32_t)v;
        values[b * (t ? t : 1) - 1] = -1;
    }
    for (int64_t i = 0; values && floats && i < b * t; i++) // some a little above the integer
        ((float *)c->values[0])[i] = (float)values[i] + (i % 3 == 1 ? 0.75f : 0.0f);
    c->magnitude_inputs = backward ? 2 : 0;
    ls_device_case_output(c, backward ? LS_DEVICE_WEIGHTS : LS_DEVICE_ACTIVATION,
                          backward ? LS_DEVICE_DESC(LS_F32, v, n) : y,
                          backward ? LS_DEVICE_SUM : absolute(0)); // rounded to halves, no more
    if (number % 3 == 2)
        ls_device_case_accumulate(c, 0);
    return true;
}

// ---- Attention ----

static const struct {
    int64_t b, t, s, h, d, e;
    bool causal;
    float rate;
} attention_shapes[] = {
    {2, 64, 64, 4, 32, 32, true, 0},      {2, 5, 7, 3, 4, 4, false, 0},
    {2, 7, 7, 2, 8, 5, true, 0},          {1, 13, 5, 2, 3, 7, true, 0},
    {1, 5, 13, 1, 3, 3, true, 0.3f},      {2, 1, 33, 2, 16, 8, false, 0},
    {1, 1, 1, 1, 1, 1, false, 0},         {1, 130, 130, 2, 64, 64, true, 0},
    {1, 197, 197, 1, 24, 24, false, 0},   {3, 17, 17, 2, 16, 16, false, 0.5f},
    {2, 17, 70, 3, 40, 24, false, 0},     {1, 3, 1031, 2, 4, 3, false, 0.2f},
    {1, 65, 33000, 2, 1, 1, false, 0.1f}, {1, 129, 65, 1, 5, 11, true, 0.1f},
};

static bool attention_case(struct ls_device_case *c, uint32_t op, size_t number)
{
    static const uint32_t from[] = {1, 2, 3};
    if (number >= sizeof(attention_shapes) / sizeof(attention_shapes[0]))
        return false;
    const bool backward = op == LS_OP_ATTENTION_BACKWARD;
    const int64_t b = attention_shapes[number].b, t = attention_shapes[number].t,
                  s = attention_shapes[number].s, h = attention_shapes[number].h,
                  d = attention_shapes[number].d, e = attention_shapes[number].e;
    const float rate = attention_shapes[number].rate;
    const struct ls_tensor_desc q = LS_DEVICE_DESC(LS_F32, b, t, h, d),
                                k = LS_DEVICE_DESC(LS_F32, b, s, h, d),
                                v = LS_DEVICE_DESC(LS_F32, b, s, h, e),
                                y = LS_DEVICE_DESC(LS_F32, b, t, h, e);

    ls_device_case_start(c, op, "%s B=%lld %lld of %lld, %lld heads of %lld and %lld%s rate %g",
                         ls_op_name(op), (long long)b, (long long)t, (long long)s, (long long)h,
                         (long long)d, (long long)e,
                         attention_shapes[number].causal ? " causal" : "", (double)rate);
    c->request.attributes = (struct ls_op_attributes){
        .causal = attention_shapes[number].causal, .rate = rate, .key = 3};
    if (backward)
        input(c, LS_DEVICE_ACTIVATION, y);
    input(c, LS_DEVICE_ACTIVATION, q);
    input(c, LS_DEVICE_ACTIVATION, k);
    input(c, LS_DEVICE_ACTIVATION, v);

    // A score, at most sqrt(D), is off by a few roundings for each of sqrt(D) terms; p by twice
    // that of itself, and by its exponential. Of dp, at most E, it is the same. What is dropped
    // makes the others larger.
    const double scale = 1 / (1 - (double)rate), rounding = 0x1p-22;
    const double p = rounding * (2 * sqrt((double)d) + 8) * scale;
    const double dp = rounding * (double)e * scale, ds = 2 * dp + 2 * p * sqrt((double)e) * scale;
    // Halves: p and ds may be rounded to 11 bits before they are multiplied (in bfloat16 to its 8), p of a sum of 1 and ds of one
    // like dp.
    const double p_inside = 0x1p-12 * scale, ds_inside = 2 * p_inside * sqrt((double)e);
    if (!backward) {
        c->inside[3] = p_inside;
        ls_device_case_output(c, LS_DEVICE_ACTIVATION, y, absolute(p + rounding));
        if (number % 3 != 1)
            ls_device_case_output(c, LS_DEVICE_SAVED, saved_desc(), LS_DEVICE_EXACT);
        return true;
    }
    ls_device_case_input(c, LS_DEVICE_SAVED, saved_desc());
    const struct ls_device_request forward = {
        .op = LS_OP_ATTENTION,
        .attributes = c->request.attributes,
        .input_count = 3,
        .output_count = 2,
        .arguments = {q, k, v, y, saved_desc()},
    };
    take_saved(c, &forward, from, 4);
    // Sums over the keys of a query have weights that sum to 1; those over the queries of a key may
    // sum to T.
    const double weights = attention_shapes[number].causal ? 3 + log((double)t) : 2;
    const double queries = weights * fmax(1, (double)t / (double)s);
    c->inside[5] = ds_inside / sqrt((double)d);
    c->inside[6] = queries * ds_inside / sqrt((double)d);
    c->inside[7] = queries * p_inside;
    ls_device_case_output(c, LS_DEVICE_ACTIVATION, q, absolute(ds / sqrt((double)d)));
    ls_device_case_output(c, LS_DEVICE_ACTIVATION, k, absolute(queries * ds / sqrt((double)d)));
    ls_device_case_output(c, LS_DEVICE_ACTIVATION, v, absolute(queries * (p + rounding)));
    for (uint32_t i = 0; number % 4 == 1 && i < 3; i++)
        ls_device_case_accumulate(c, i);
    return true;
}

// ---- Products ----

static const struct {
    uint32_t ndims;
    int64_t leading[3], m, k, n;
} product_shapes[] = {
    {2, {0}, 1, 1, 1},      {2, {0}, 5, 7, 3},        {3, {4}, 33, 17, 9},
    {3, {13}, 1, 64, 10},   {4, {2, 3}, 16, 31, 16},  {4, {5, 7}, 3, 2, 128},
    {3, {1}, 300, 64, 129}, {5, {2, 1, 3}, 11, 8, 5}, {3, {32771}, 1, 2, 1},
};

static bool product_case(struct ls_device_case *c, uint32_t op, size_t number)
{
    if (number >= sizeof(product_shapes) / sizeof(product_shapes[0]))
        return false;
    const uint32_t ndims = product_shapes[number].ndims;
    const int64_t m = product_shapes[number].m, k = product_shapes[number].k,
                  n = product_shapes[number].n;
    struct ls_tensor_desc a = {.dtype = LS_F32, .ndims = ndims}, b, y;
    memcpy(a.dims, product_shapes[number].leading, (ndims - 2) * sizeof(a.dims[0]));
    b = y = a;
    a.dims[ndims - 2] = y.dims[ndims - 2] = m;
    a.dims[ndims - 1] = b.dims[ndims - 2] = k;
    b.dims[ndims - 1] = y.dims[ndims - 1] = n;

    const struct ls_tensor_desc *const arguments[3][3] = {{&a, &b, &y}, {&y, &b, &a}, {&a, &y, &b}};
    const struct ls_tensor_desc *const *of = arguments[op - LS_OP_MATMUL];
    ls_device_case_start(c, op, "%s B=%lld %u dimensions %lldx%lldx%lld", ls_op_name(op),
                         (long long)a.dims[0], ndims, (long long)m, (long long)k, (long long)n);
    input(c, LS_DEVICE_ACTIVATION, *of[0]);
    input(c, LS_DEVICE_ACTIVATION, *of[1]);
    c->magnitude_inputs = 3;
    ls_device_case_output(c, LS_DEVICE_ACTIVATION, *of[2], LS_DEVICE_SUM);
    if (number % 3 == 1)
        ls_device_case_accumulate(c, 0);
    return true;
}

// ---- Transposed convolution ----

static const struct {
    int64_t b, h, w, c, f;
    int32_t kernel[2], stride[2], padding[4], dilation;
    int64_t extra; // rows and columns of y beyond those that the convolution of y needs
    bool bias;
} transpose_shapes[] = {
    {1, 1, 1, 1, 1, {1, 1}, {1, 1}, {0, 0, 0, 0}, 1, 0, true},
    {2, 5, 7, 3, 4, {3, 3}, {2, 2}, {0, 1, 0, 1}, 1, 0, true},
    {4, 8, 8, 16, 8, {4, 4}, {2, 2}, {1, 1, 1, 1}, 1, 0, true},
    {3, 7, 5, 17, 13, {3, 5}, {1, 1}, {1, 1, 2, 2}, 1, 0, false},
    {2, 4, 4, 8, 3, {2, 2}, {3, 3}, {0, 0, 0, 0}, 1, 1, true},
    {5, 6, 6, 24, 32, {3, 3}, {1, 1}, {0, 0, 0, 0}, 2, 0, false},
    {1, 16, 1, 10, 16, {4, 1}, {2, 1}, {1, 1, 0, 0}, 1, 0, true},
};

struct transposed {
    uint32_t space;
    int64_t b, c, f, size[3], kernel[3];
    struct ls_moves moves[3];
    int64_t extra; // of each dimension of y beyond what the convolution of y needs
    bool bias;
};

static struct ls_tensor_desc tensor_of(const int64_t *first, uint32_t first_count,
                                       const struct transposed *t, const int64_t *space,
                                       const int64_t *last, uint32_t last_count)
{
    int64_t dims[LS_MAX_DIMS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < first_count; i++)
        dims[count++] = first[i];
    for (uint32_t i = 0; i < t->space; i++)
        dims[count++] = space[i];
    for (uint32_t i = 0; i < last_count; i++)
        dims[count++] = last[i];
    return ls_device_desc(LS_F32, count, dims);
}

static bool transposed_case(struct ls_device_case *c, uint32_t op, size_t number,
                            const struct transposed *t)
{
    int64_t out[3] = {0};
    char size[64] = "", kernel[64] = "";
    struct ls_op_attributes attributes = {.groups = 1};
    for (uint32_t i = 0; i < t->space; i++) {
        const struct ls_moves *m = &t->moves[i];
        const size_t said = strlen(size), also = strlen(kernel);
        ls_set_moves(&attributes, t->space, i, m);
        out[i] = (t->size[i] - 1) * m->stride + (t->kernel[i] - 1) * m->dilation + 1 - m->before -
                 m->after + t->extra;
        snprintf(size + said, sizeof(size) - said, "%lldx", (long long)t->size[i]);
        snprintf(kernel + also, sizeof(kernel) - also, "%s%lld", i ? "x" : "",
                 (long long)t->kernel[i]);
    }
    const struct ls_tensor_desc x = tensor_of(&t->b, 1, t, t->size, &t->c, 1),
                                w = tensor_of(NULL, 0, t, t->kernel, (int64_t[]){t->f, t->c}, 2),
                                b = LS_DEVICE_DESC(LS_F32, t->f),
                                y = tensor_of(&t->b, 1, t, out, &t->f, 1);
    const bool weights = op == LS_OP_CONV2D_TRANSPOSE_BACKWARD_WEIGHTS;

    ls_device_case_start(c, op, "%s B=%lld %s%lld filters %lld kernel %s stride %d%s",
                         ls_op_name(op), (long long)t->b, size, (long long)t->c, (long long)t->f,
                         kernel, t->moves[0].stride, t->bias ? " bias" : "");
    c->request.attributes = attributes;
    input(c, LS_DEVICE_ACTIVATION, op == LS_OP_CONV2D_TRANSPOSE_BACKWARD_DATA ? y : x);
    input(c, weights ? LS_DEVICE_ACTIVATION : LS_DEVICE_WEIGHTS, weights ? y : w);
    if (op == LS_OP_CONV2D_TRANSPOSE && t->bias)
        input(c, LS_DEVICE_WEIGHTS, b);
    c->magnitude_inputs = op == LS_OP_CONV2D_TRANSPOSE && t->bias ? 7 : 3;
    ls_device_case_output(c, weights ? LS_DEVICE_WEIGHTS : LS_DEVICE_ACTIVATION,
                          weights                        ? w
                          : op == LS_OP_CONV2D_TRANSPOSE ? y
                                                         : x,
                          LS_DEVICE_SUM);
    if (weights && t->bias)
        ls_device_case_output(c, LS_DEVICE_WEIGHTS, b, LS_DEVICE_SUM);
    for (uint32_t i = 0; number % 3 == 1 && i < c->request.output_count; i++)
        ls_device_case_accumulate(c, i);
    return true;
}

static bool transpose_case(struct ls_device_case *c, uint32_t op, size_t number)
{
    if (number >= sizeof(transpose_shapes) / sizeof(transpose_shapes[0]))
        return false;
    const int32_t *kernel = transpose_shapes[number].kernel,
                  *stride = transpose_shapes[number].stride,
                  *padding = transpose_shapes[number].padding,
                  dilation = transpose_shapes[number].dilation;
    const struct transposed t = {
        .space = 2,
        .b = transpose_shapes[number].b,
        .c = transpose_shapes[number].c,
        .f = transpose_shapes[number].f,
        .size = {transpose_shapes[number].h, transpose_shapes[number].w},
        .kernel = {kernel[0], kernel[1]},
        .moves = {{stride[0], dilation, padding[0], padding[1]},
                  {stride[1], dilation, padding[2], padding[3]}},
        .extra = transpose_shapes[number].extra,
        .bias = transpose_shapes[number].bias,
    };
    return transposed_case(c, op, number, &t);
}

static bool volume_case(struct ls_device_case *c, uint32_t op, size_t number)
{
    static const struct transposed volumes[] = {
        {3, 1, 1, 1, {1, 1, 1}, {1, 1, 1}, {{1, 1, 0, 0}, {1, 1, 0, 0}, {1, 1, 0, 0}}, 0, true},
        {3, 2, 3, 4, {3, 4, 2}, {3, 2, 3}, {{2, 1, 0, 1}, {2, 1, 0, 0}, {2, 1, 1, 0}}, 0, true},
        {3, 2, 16, 8, {2, 3, 4}, {4, 2, 3}, {{2, 1, 1, 1}, {1, 1, 0, 1}, {3, 1, 0, 0}}, 0, true},
        {3, 3, 5, 16, {3, 2, 2}, {2, 2, 2}, {{3, 1, 0, 0}, {3, 1, 0, 0}, {3, 1, 0, 0}}, 1, false},
    };
    return number < sizeof(volumes) / sizeof(volumes[0]) &&
           transposed_case(c, op, number, &volumes[number]);
}

// ---- PReLU ----

static const struct {
    uint32_t ndims;
    int64_t x[4], alpha[3];
} prelu_shapes[] = {
    {2, {1, 1}, {1}},
    {2, {5, 33}, {33}},
    {2, {64, 100}, {1}},
    {4, {2, 13, 11, 17}, {1, 1, 17}},
    {4, {3, 5, 7, 4}, {5, 7, 4}},
    {4, {4, 6, 5, 8}, {6, 1, 8}},
    {3, {7, 9, 16}, {9, 1}},
    {4, {5, 32, 32, 16}, {1, 1, 16}},
};

static bool prelu_case(struct ls_device_case *c, uint32_t op, size_t number)
{
    const size_t count = sizeof(prelu_shapes) / sizeof(prelu_shapes[0]);
    if (number >= 2 * count)
        return false;
    const size_t at = number % count;
    const bool ties = number >= count, backward = op == LS_OP_PRELU_BACKWARD;
    const struct ls_tensor_desc x =
        ls_device_desc(LS_F32, prelu_shapes[at].ndims, prelu_shapes[at].x);
    const struct ls_tensor_desc alpha =
        ls_device_desc(LS_F32, prelu_shapes[at].ndims - 1, prelu_shapes[at].alpha);

    ls_device_case_start(c, op, "%s B=%lld %llu elements, %llu slopes%s%s", ls_op_name(op),
                         (long long)x.dims[0], (unsigned long long)ls_tensor_elements(&x),
                         (unsigned long long)ls_tensor_elements(&alpha), ties ? " ties" : "",
                         number % 3 == 1 ? " added" : "");
    if (backward)
        input(c, LS_DEVICE_ACTIVATION, x);
    ls_device_case_draw(c, ls_device_case_input(c, LS_DEVICE_ACTIVATION, x),
                        ties ? LS_DEVICE_TIES : LS_DEVICE_UNIFORM);
    input(c, LS_DEVICE_WEIGHTS, alpha);
    ls_device_case_output(c, LS_DEVICE_ACTIVATION, x, LS_DEVICE_ROUNDED);
    if (backward) // each term is 1 at most
        ls_device_case_output(
            c, LS_DEVICE_WEIGHTS, alpha,
            absolute(LS_DEVICE_SUM.of_magnitude * 0.25 *
                     (double)(ls_tensor_elements(&x) / ls_tensor_elements(&alpha))));
    for (uint32_t i = 0; number % 3 == 1 && i < c->request.output_count; i++)
        ls_device_case_accumulate(c, i);
    return true;
}

// ---- Penalties ----

static const struct {
    int64_t batch;
    uint32_t ndims;
    int64_t w[4];
    float l1, l2;
} penalty_shapes[] = {
    {1, 1, {1}, 0.5f, 0.25f},         {3, 2, {5, 7}, 0.01f, 0},
    {7, 4, {3, 3, 8, 16}, 0, 0.1f},   {64, 2, {300, 129}, 0.02f, 0.03f},
    {5, 1, {4097}, 0.1f, 0.001f},     {2, 4, {5, 5, 3, 33}, 1e-4f, 1e-3f},
    {8, 3, {64, 8, 64}, 0.25f, 0.5f},
};

static bool penalty_case(struct ls_device_case *c, uint32_t op, size_t number)
{
    if (number >= sizeof(penalty_shapes) / sizeof(penalty_shapes[0]))
        return false;
    const struct ls_tensor_desc w =
        ls_device_desc(LS_F32, penalty_shapes[number].ndims, penalty_shapes[number].w);
    const float l1 = penalty_shapes[number].l1, l2 = penalty_shapes[number].l2;

    ls_device_case_start(c, op, "%s B=%lld %llu elements, l1 %g, l2 %g", ls_op_name(op),
                         (long long)penalty_shapes[number].batch,
                         (unsigned long long)ls_tensor_elements(&w), (double)l1, (double)l2);
    c->request.attributes = (struct ls_op_attributes){.l1 = l1, .l2 = l2};
    input(c, LS_DEVICE_ACTIVATION, LS_DEVICE_DESC(LS_F32, penalty_shapes[number].batch, 10));
    ls_device_case_draw(c, ls_device_case_input(c, LS_DEVICE_WEIGHTS, w),
                        number % 2 ? LS_DEVICE_TIES : LS_DEVICE_UNIFORM);
    if (op == LS_OP_PENALTY)
        ls_device_case_output(c, LS_DEVICE_PLAIN, LS_DEVICE_DESC(LS_F32, 4),
                              (struct ls_device_tolerance){0, LS_DEVICE_SUM.of_magnitude, 1e-30});
    else
        ls_device_case_output(c, LS_DEVICE_WEIGHTS, w, LS_DEVICE_ROUNDED);
    if (number != 1)
        ls_device_case_accumulate(c, 0);
    return true;
}

// ---- Recurrent layers ----

enum { ALL = LS_SEQUENCE_ALL, STATES = LS_SEQUENCE_STATES, BACK = LS_SEQUENCE_BACKWARDS };
enum { IN_TIME = LS_SEQUENCE_IN_TIME, ZEROS = LS_SEQUENCE_ZEROS };

static const struct {
    int64_t b, t, u;
    uint32_t cell, f, g, sequence;
    bool mask, starts; // a start for each example
    float rate;
} recurrent_shapes[] = {
    {1, 1, 1, LS_RECURRENT_SIMPLE, LS_TANH, LS_LINEAR, ALL, false, false, 0},
    {3, 5, 7, LS_RECURRENT_SIMPLE, LS_TANH, LS_LINEAR, 0, true, true, 0},
    {4, 6, 33, LS_RECURRENT_SIMPLE, LS_SOFTSIGN, LS_LINEAR, ALL | STATES | BACK, true, true, 0.3f},
    {1, 1, 1, LS_RECURRENT_LSTM, LS_TANH, LS_SIGMOID, ALL, false, false, 0},
    {5, 7, 3, LS_RECURRENT_LSTM, LS_TANH, LS_SIGMOID, 0, false, false, 0},
    {13, 11, 17, LS_RECURRENT_LSTM, LS_TANH, LS_SIGMOID, ALL | STATES, true, true, 0},
    {7, 9, 40, LS_RECURRENT_LSTM, LS_SOFTSIGN, LS_HARD_SIGMOID, ALL | BACK | IN_TIME | ZEROS, true,
     true, 0},
    {3, 6, 5, LS_RECURRENT_LSTM, LS_TANH, LS_SIGMOID, STATES | BACK, false, true, 0.4f},
    {29, 3, 65, LS_RECURRENT_LSTM, LS_LINEAR, LS_SIGMOID, ALL, false, false, 0},
    {5, 4, 3, LS_RECURRENT_GRU, LS_TANH, LS_SIGMOID, ALL, false, false, 0},
    {7, 8, 19, LS_RECURRENT_GRU, LS_TANH, LS_SIGMOID, STATES, true, true, 0.25f},
    {2, 9, 33, LS_RECURRENT_GRU, LS_SOFTSIGN, LS_SIGMOID, ALL | ZEROS, true, false, 0},
    {5, 4, 3, LS_RECURRENT_GRU_RESET_AFTER, LS_TANH, LS_SIGMOID, ALL, false, false, 0},
    {9, 8, 31, LS_RECURRENT_GRU_RESET_AFTER, LS_TANH, LS_SIGMOID, ALL | STATES | BACK, true, true,
     0},
    {4, 5, 6, LS_RECURRENT_GRU_RESET_AFTER, LS_TANH, LS_HARD_SIGMOID, 0, true, true, 0.5f},
    {32, 16, 64, LS_RECURRENT_GRU_RESET_AFTER, LS_TANH, LS_SIGMOID, ALL, false, false, 0},
};

// 0 and 1: an example that begins with zeros, one that has only these, the others as they fall.
static void fill_mask(float *mask, int64_t b, int64_t t)
{
    for (int64_t i = 0; mask && i < b * t; i++)
        mask[i] = i / t == 1 || (i / t == 0 && i % t < t / 2) || (mask[i] < -0.3f) ? 0.0f : 1.0f;
}

static bool recurrent_case(struct ls_device_case *c, uint32_t op, size_t number)
{
    static const uint32_t from[] = {1, 2, 3, 4, 6};
    if (number >= sizeof(recurrent_shapes) / sizeof(recurrent_shapes[0]))
        return false;
    const bool backward = op == LS_OP_RECURRENT_BACKWARD, mask = recurrent_shapes[number].mask;
    const uint32_t cell = recurrent_shapes[number].cell;
    const uint32_t sequence = recurrent_shapes[number].sequence;
    const int64_t b = recurrent_shapes[number].b, t = recurrent_shapes[number].t,
                  u = recurrent_shapes[number].u, states = cell == LS_RECURRENT_LSTM ? 2 : 1,
                  gates = cell == LS_RECURRENT_SIMPLE ? 1
                          : cell == LS_RECURRENT_LSTM ? 4
                                                      : 3,
                  rows = (sequence & ALL ? t : 1) + (sequence & STATES ? states : 0);
    const struct ls_tensor_desc p = LS_DEVICE_DESC(LS_F32, b, t, gates * u),
                                w = LS_DEVICE_DESC(LS_F32, u, gates * u),
                                bias = cell == LS_RECURRENT_GRU_RESET_AFTER
                                           ? LS_DEVICE_DESC(LS_F32, 2, gates * u)
                                           : LS_DEVICE_DESC(LS_F32, gates * u),
                                s = LS_DEVICE_DESC(LS_F32, recurrent_shapes[number].starts ? b : 1,
                                                   states, u),
                                m = LS_DEVICE_DESC(LS_F32, b, t),
                                y = LS_DEVICE_DESC(LS_F32, b, rows, u);
    const float rate = recurrent_shapes[number].rate;

    ls_device_case_start(c, op, "%s B=%lld cell %u, %lld steps of %lld, sequence %u%s rate %g",
                         ls_op_name(op), (long long)b, cell, (long long)t, (long long)u, sequence,
                         mask ? " masked" : "", (double)rate);
    c->request.attributes =
        (struct ls_op_attributes){.function = cell,
                                  .activation = recurrent_shapes[number].f,
                                  .recurrent_activation = recurrent_shapes[number].g,
                                  .sequence = sequence,
                                  .rate = rate,
                                  .key = 3};
    if (backward)
        input(c, LS_DEVICE_ACTIVATION, y);
    input(c, LS_DEVICE_ACTIVATION, p);
    const uint32_t weights = input(c, LS_DEVICE_WEIGHTS, w);
    input(c, LS_DEVICE_WEIGHTS, bias);
    input(c, LS_DEVICE_ACTIVATION, s);
    if (backward)
        ls_device_case_input(c, LS_DEVICE_SAVED, saved_desc());
    const uint32_t masked = mask ? input(c, LS_DEVICE_ACTIVATION, m) : 0;
    ls_device_case_values(c);
    float *values = c->values[weights]; // so that a step changes a state by no more than it was
    for (uint64_t i = 0; values && i < ls_tensor_elements(&w); i++)
        values[i] /= (float)sqrt((double)u);
    if (mask)
        fill_mask(c->values[masked], b, t);

    // A value of a step is off by a few roundings and by those of the state before it.
    const double error = 1e-6 * (double)(t + 8) / (1 - (double)rate);
    if (!backward) {
        ls_device_case_output(c, LS_DEVICE_ACTIVATION, y, absolute(error));
        if (number % 3 != 1)
            ls_device_case_output(c, LS_DEVICE_SAVED, saved_desc(), LS_DEVICE_EXACT);
        return true;
    }
    struct ls_device_request forward = {
        .op = LS_OP_RECURRENT,
        .attributes = c->request.attributes,
        .input_count = mask ? 5 : 4,
        .output_count = 2,
        .arguments = {p, w, bias, s, mask ? m : y, mask ? y : saved_desc(), saved_desc()},
    };
    take_saved(c, &forward, from, 5);
    const double sums = 4 * error * (1 + sqrt((double)(b * t)));
    ls_device_case_output(c, LS_DEVICE_ACTIVATION, p, absolute(4 * error));
    ls_device_case_output(c, LS_DEVICE_WEIGHTS, w, absolute(sums));
    ls_device_case_output(c, LS_DEVICE_WEIGHTS, bias, absolute(sums));
    ls_device_case_output(c, LS_DEVICE_ACTIVATION, s, absolute(sums));
    for (uint32_t i = 0; number % 4 == 1 && i < 4; i++)
        ls_device_case_accumulate(c, i);
    return true;
}

// ---- Masks ----

static const struct {
    int64_t b, t, c; // c 0: ids
    bool floats;
    float offset;
} differs_shapes[] = {
    {1, 1, 0, false, 0}, {3, 5, 0, true, 1},  {7, 33, 0, false, 2}, {2, 3, 1, true, 0},
    {5, 17, 7, true, 0}, {4, 9, 2, false, 1}, {64, 31, 3, true, 1}, {1, 1000, 0, true, 0},
};

static bool differs_case(struct ls_device_case *c, uint32_t op, size_t number)
{
    if (number >= sizeof(differs_shapes) / sizeof(differs_shapes[0]))
        return false;
    const int64_t b = differs_shapes[number].b, t = differs_shapes[number].t,
                  width = differs_shapes[number].c;
    const bool floats = differs_shapes[number].floats;
    struct ls_tensor_desc x =
        width ? LS_DEVICE_DESC(LS_I32, b, t, width) : LS_DEVICE_DESC(LS_I32, b, t);

    ls_device_case_start(c, op, "%s B=%lld %lld of %lld%s from %g", ls_op_name(op), (long long)b,
                         (long long)t, (long long)width, floats ? " floats" : "",
                         (double)differs_shapes[number].offset);
    c->request.attributes.offset = differs_shapes[number].offset;
    c->request.attributes.axes[2] = width > 0;
    x.dtype = floats ? LS_F32 : LS_I32;
    ls_device_case_draw_labels(c, ls_device_case_input(c, LS_DEVICE_PLAIN, x), 3);
    ls_device_case_values(c);
    const int32_t *ids = c->values[0];
    for (int64_t i = 0; ids && floats && i < b * t * (width ? width : 1); i++)
        ((float *)c->values[0])[i] = (float)ids[i];
    ls_device_case_output(c, LS_DEVICE_ACTIVATION, LS_DEVICE_DESC(LS_F32, b, t), LS_DEVICE_EXACT);
    return true;
}

// ---- All of it ----

// Starts case `number` of the operation and draws what it needs; false: there are no more.
typedef bool make_case(struct ls_device_case *c, uint32_t op, size_t number);

static const struct {
    uint32_t op;
    make_case *make;
    const char *name; // where a device may refuse it; NULL: that of the operation
} operations[] = {
    {LS_OP_LAYER_NORMALIZATION, norm_case},
    {LS_OP_LAYER_NORMALIZATION_BACKWARD, norm_case},
    {LS_OP_GATHER_ROWS, row_case},
    {LS_OP_GATHER_ROWS_BACKWARD, row_case},
    {LS_OP_ATTENTION, attention_case},
    {LS_OP_ATTENTION_BACKWARD, attention_case},
    {LS_OP_MATMUL, product_case},
    {LS_OP_MATMUL_BACKWARD_LEFT, product_case},
    {LS_OP_MATMUL_BACKWARD_RIGHT, product_case},
    {LS_OP_CONV2D_TRANSPOSE, transpose_case},
    {LS_OP_CONV2D_TRANSPOSE_BACKWARD_DATA, transpose_case},
    {LS_OP_CONV2D_TRANSPOSE_BACKWARD_WEIGHTS, transpose_case},
    {LS_OP_CONV2D_TRANSPOSE, volume_case, "transposed convolution of volumes"},
    {LS_OP_CONV2D_TRANSPOSE_BACKWARD_DATA, volume_case, "transposed convolution of volumes"},
    {LS_OP_CONV2D_TRANSPOSE_BACKWARD_WEIGHTS, volume_case, "transposed convolution of volumes"},
    {LS_OP_PRELU, prelu_case},
    {LS_OP_PRELU_BACKWARD, prelu_case},
    {LS_OP_PENALTY, penalty_case},
    {LS_OP_PENALTY_BACKWARD, penalty_case},
    {LS_OP_RECURRENT, recurrent_case},
    {LS_OP_RECURRENT_BACKWARD, recurrent_case},
    {LS_OP_DIFFERS, differs_case},
    {LS_OP_BUCKET, ls_device_bucket_case},
    {LS_OP_LOOKUP, ls_device_lookup_case},
    {LS_OP_ENCODE, ls_device_encode_case},
    {LS_OP_DENSE_TRANSPOSED, ls_device_transposed_case},
    {LS_OP_DENSE_TRANSPOSED_BACKWARD_DATA, ls_device_transposed_case},
    {LS_OP_DENSE_TRANSPOSED_BACKWARD_WEIGHTS, ls_device_transposed_case},
    {LS_OP_RESIZE2D, ls_device_resize_case},
    {LS_OP_RESIZE2D_BACKWARD, ls_device_resize_case},
    {LS_OP_DRAW, ls_device_draw_case},
    {LS_OP_RESAMPLE, ls_device_resample_case},
    {LS_OP_RESAMPLE_BACKWARD, ls_device_resample_case},
    {LS_OP_RECOLOUR, ls_device_recolour_case},
    {LS_OP_RECOLOUR_BACKWARD, ls_device_recolour_case},
    {LS_OP_ERASE, ls_device_erase_case},
    {LS_OP_ERASE_BACKWARD, ls_device_erase_case},
};

// Whether the tested device has the operation at all; if not, why is in tested->message.
static bool offered(struct ls_device_suite *suite, const struct ls_device_case *c)
{
    struct ls_device_session session;
    struct ls_device_request request = c->request;
    for (uint32_t i = 0; i < request.input_count + request.output_count; i++) {
        struct ls_tensor_desc *desc = &request.arguments[i];
        desc->layout = c->roles[i] == LS_DEVICE_SAVED ? (struct ls_layout){.kind = LS_LAYOUT_ANY}
                                                      : ls_device_plain_layout(desc);
    }
    const int32_t status = ls_device_session_prepare(&session, suite, suite->tested, &request);
    ls_device_session_close(&session);
    return status != LS_UNSUPPORTED;
}

// The results of a case on a device of so many threads, one after the other in `out`.
static bool run_with(struct ls_device_suite *suite, const struct ls_device_case *c,
                     uint32_t threads, char *out)
{
    struct ls_device_side side;
    struct ls_device_trial trial;
    void *outputs[LS_DEVICE_ARGUMENTS] = {NULL};

    if (ls_device_side_open(&side, suite->tested->interface, suite->tested->outer, threads))
        return ls_device_suite_fail(suite, "cannot open another device with %u threads: %s",
                                    threads, side.message);
    for (uint32_t i = 0; i < c->request.output_count; i++) {
        outputs[i] = out;
        out += ls_device_plain_bytes(&c->request.arguments[c->request.input_count + i]);
    }
    const int32_t status = ls_device_trial_open(&trial, suite, &side, c, LS_DEVICE_ALL_PLAIN);
    if (status == LS_UNSUPPORTED)
        ls_device_suite_refuse(suite, "", side.message);
    const bool good = !status && ls_device_trial_run(&trial, false, -1, outputs);
    ls_device_trial_close(&trial);
    ls_device_side_close(&side);
    return good;
}

// The bits of a case with one, two and three threads. Takes the case.
static void thread_case(struct ls_device_suite *suite, struct ls_device_case *c)
{
    char name[64];
    uint64_t bytes = 0;
    snprintf(name, sizeof(name), "%s with 1, 2 and 3 threads", ls_op_name(c->request.op));
    if (ls_device_suite_begin(suite, name)) {
        ls_device_case_values(c);
        for (uint32_t i = 0; i < c->request.output_count; i++)
            bytes += ls_device_plain_bytes(&c->request.arguments[c->request.input_count + i]);
        char *results = calloc(3, bytes + 1);
        bool good = results ? true : ls_device_suite_fail(suite, "no host memory");
        for (uint32_t i = 0; good && i < 3; i++)
            good = run_with(suite, c, i + 1, results + i * bytes);
        for (uint32_t i = 1; good && i < 3; i++)
            if (memcmp(results, results + i * bytes, bytes) != 0)
                good = ls_device_suite_fail(suite, "%u threads give other bits than one", i + 1);
        free(results);
        ls_device_suite_end(suite, name, NULL);
    }
    ls_device_case_finish(c);
}

// The convolutions of a library may divide their sums as the threads are; all others may not.
static bool keeps_bits(uint32_t op)
{
    return op < LS_OP_CONV2D_TRANSPOSE || op > LS_OP_CONV2D_TRANSPOSE_BACKWARD_WEIGHTS;
}

void ls_device_layer_cases(struct ls_device_suite *suite)
{
    for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
        const uint32_t op = operations[i].op;
        const char *name = operations[i].name ? operations[i].name : ls_op_name(op);
        struct ls_device_case c;
        if (suite->dtype && !ls_device_takes_halves(suite, op))
            continue;
        operations[i].make(&c, op, 0);
        const bool known = offered(suite, &c);
        ls_device_case_finish(&c);
        if (!known) {
            if (!suite->dtype && ls_device_suite_begin(suite, name))
                ls_device_suite_end(suite, name, suite->tested->message);
            continue;
        }
        size_t count = 0;
        while (operations[i].make(&c, op, count)) {
            ls_device_case_run(suite, &c);
            count++;
        }
        if (!suite->dtype && keeps_bits(op) && operations[i].make(&c, op, 6))
            thread_case(suite, &c);
    }
}
