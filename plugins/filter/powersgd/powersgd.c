// SPDX-License-Identifier: Apache-2.0
// powersgd: the gradient of each variable travels as a product of two thin matrices (T. Vogels et
// al., "PowerSGD", 2019). M, n x m, is a variable whose last dimension is n, so that a kernel of
// Dense or of a convolution has an output in each row. In each step
//
//   project     Q, m x rank, is what the last step made, its columns orthogonal; P = M Q
//   all-reduce  P, so that it is that of the sum of all M
//   back        the columns of P are made orthogonal; Q = M^T P
//   all-reduce  Q; it is kept for the next step
//   decode      the sum is P Q^T
//
// Of the sum, each rank has delivered an equal part. Bytes that a rank sends: about
// 8 rank (n + m) (world - 1) / world. Products are summed in `LANES` sums or in the order of the
// columns, the same ones on every processor.
#include "core/plugin/filter.h"
#include "core/plugin/operations.h"

#include <float.h>
#include <math.h>

#define LANES 16
#define MOST_RANK 1024
// A column is lost when less than this of it is not along the columns before it: the rest is
// roundings.
#define LEAST 1e-6

enum { PROJECT, BACK, DECODE };

// A variable as the matrix M. P and Q are column by column.
struct matrix {
    uint64_t n, m;
    uint64_t x, p, q; // where it begins, in floats
};

static uint32_t rank_of(const struct ls_host *host)
{
    return (uint32_t)ls_host_number(host, "rank");
}

static struct matrix matrix_of(const struct ls_filter_variable *variable)
{
    const uint64_t n = (uint64_t)variable->dims[variable->ndims - 1];
    return (struct matrix){.n = n, .m = variable->count / n, .x = variable->first};
}

static uint32_t takes(const struct ls_host *host, const struct ls_filter_variable *variable)
{
    const uint64_t rank = rank_of(host);
    if (variable->ndims < 2 || !variable->plain)
        return 0;
    const struct matrix matrix = matrix_of(variable);
    return (matrix.n + matrix.m) * rank * 2 < matrix.n * matrix.m;
}

// The next variable's matrix, behind `last`, the one before it.
static struct matrix next_matrix(const struct ls_filter_call *call, uint32_t variable,
                                 const struct matrix *last)
{
    const uint64_t rank = rank_of(call->host);
    struct matrix matrix = matrix_of(&call->variables[variable]);
    matrix.p = last->p + rank * last->n;
    matrix.q = last->q + rank * last->m;
    return matrix;
}

// How many floats all P and all Q have.
static void count_factors(const struct ls_filter_call *call, uint64_t *p, uint64_t *q)
{
    struct matrix last = {0};
    for (uint32_t i = 0; i < call->variable_count; i++)
        last = next_matrix(call, i, &last);
    *p = last.p + rank_of(call->host) * last.n;
    *q = last.q + rank_of(call->host) * last.m;
}

static int32_t plan(const struct ls_filter_call *call, struct ls_filter_stages *stages)
{
    const double rank = ls_host_number(call->host, "rank");
    const double start = ls_host_number(call->host, "start");
    uint64_t p, q;
    if (!(rank >= 1 && rank <= MOST_RANK))
        return ls_host_fail(call->host, LS_USAGE, "rank=%.0f: expected 1 to %d", rank, MOST_RANK);
    if (!(start >= 2))
        return ls_host_fail(call->host, LS_USAGE, "start=%.0f: expected 2 updates or more", start);
    count_factors(call, &p, &q);
    stages->scratch(stages, (p + q) * sizeof(float));
    stages->shared(stages, q * sizeof(float));
    stages->local(stages, PROJECT);
    stages->collective(stages, LS_ALL_REDUCE, LS_F32, LS_SUM, 0, p);
    stages->local(stages, BACK);
    stages->collective(stages, LS_ALL_REDUCE, LS_F32, LS_SUM, p * sizeof(float), q);
    return stages->local(stages, DECODE);
}

static uint64_t begins(const struct ls_host *host)
{
    return (uint64_t)ls_host_number(host, "start");
}

// ---- Columns that are orthogonal ----

static double dot(const float *a, const float *b, uint64_t count)
{
    double sums[LANES] = {0};
    uint64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (uint64_t k = 0; k < LANES; k++)
            sums[k] += (double)a[i + k] * (double)b[i + k];
    for (uint64_t k = 0; i + k < count; k++)
        sums[k] += (double)a[i + k] * (double)b[i + k];
    for (uint64_t half = LANES / 2; half; half /= 2)
        for (uint64_t k = 0; k < half; k++)
            sums[k] += sums[k + half];
    return sums[0];
}

// Gram and Schmidt, twice, because the first time leaves what it has rounded. 0: nothing is left of
// the column, or it is not finite.
static int straighten(float *columns, uint64_t count, uint64_t number)
{
    float *own = columns + number * count;
    const double before = sqrt(dot(own, own, count));
    for (uint64_t i = 0; i < 2 * number; i++) {
        const float *other = columns + i % number * count;
        const double along = dot(other, own, count);
        for (uint64_t k = 0; k < count; k++)
            own[k] = (float)((double)own[k] - along * (double)other[k]);
    }
    const double left = sqrt(dot(own, own, count));
    if (!(left > LEAST * before && left <= DBL_MAX))
        return 0;
    for (uint64_t k = 0; k < count; k++)
        own[k] = (float)((double)own[k] / left);
    return 1;
}

// About normal: a sum of four uniform numbers, because integers are the same on every processor.
static void draw(float *column, uint64_t count, uint64_t key)
{
    for (uint64_t k = 0; k < count; k++) {
        const uint64_t bits = ls_mix64(key, k);
        const uint64_t sum =
            (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
        column[k] = (float)((int64_t)sum - 2 * 0xffff);
    }
}

// A column that is lost begins anew with random numbers, as all do in the first step: else the rank
// would be less from then on.
static void make_orthogonal(float *columns, uint64_t count, uint64_t rank, uint64_t key)
{
    for (uint64_t i = 0; i < rank; i++)
        for (uint64_t drawn = 0; !straighten(columns, count, i); drawn++)
            draw(columns + i * count, count, ls_mix64(ls_mix64(key, i), drawn));
}

// ---- Products ----

// P = M Q. In x, the n elements of a column of M are one after the other.
static void project(const struct matrix *matrix, uint64_t rank, const float *x, const float *q,
                    float *p)
{
    memset(p, 0, rank * matrix->n * sizeof(*p));
    for (uint64_t column = 0; column < matrix->m; column++)
        for (uint64_t j = 0; j < rank; j++) {
            const float factor = q[j * matrix->m + column];
            for (uint64_t i = 0; i < matrix->n; i++)
                p[j * matrix->n + i] += factor * x[column * matrix->n + i];
        }
}

static float dot_short(const float *a, const float *b, uint64_t count)
{
    float sums[LANES] = {0};
    uint64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (uint64_t k = 0; k < LANES; k++)
            sums[k] += a[i + k] * b[i + k];
    for (uint64_t k = 0; i + k < count; k++)
        sums[k] += a[i + k] * b[i + k];
    for (uint64_t half = LANES / 2; half; half /= 2)
        for (uint64_t k = 0; k < half; k++)
            sums[k] += sums[k + half];
    return sums[0];
}

// Q = M^T P.
static void go_back(const struct matrix *matrix, uint64_t rank, const float *x, const float *p,
                    float *q)
{
    for (uint64_t column = 0; column < matrix->m; column++)
        for (uint64_t j = 0; j < rank; j++)
            q[j * matrix->m + column] =
                dot_short(x + column * matrix->n, p + j * matrix->n, matrix->n);
}

// M = P Q^T.
static void decode(const struct matrix *matrix, uint64_t rank, const float *p, const float *q,
                   float *out)
{
    memset(out, 0, matrix->n * matrix->m * sizeof(*out));
    for (uint64_t column = 0; column < matrix->m; column++)
        for (uint64_t j = 0; j < rank; j++) {
            const float factor = q[j * matrix->m + column];
            for (uint64_t i = 0; i < matrix->n; i++)
                out[column * matrix->n + i] += factor * p[j * matrix->n + i];
        }
}

// ---- Stages ----

static void run_matrix(const struct matrix *matrix, uint64_t rank, uint32_t function,
                       const struct ls_filter_memory *memory, float *p, float *q)
{
    float *kept = (float *)(void *)memory->shared + matrix->q;
    switch (function) {
    case PROJECT:
        make_orthogonal(kept, matrix->m, rank, matrix->q);
        project(matrix, rank, memory->x + matrix->x, kept, p);
        break;
    case BACK:
        make_orthogonal(p, matrix->n, rank, matrix->p);
        go_back(matrix, rank, memory->x + matrix->x, p, q);
        break;
    default:
        memcpy(kept, q, rank * matrix->m * sizeof(*kept));
        decode(matrix, rank, p, q, memory->result + matrix->x);
        break;
    }
}

static int32_t run(const struct ls_filter_call *call, const struct ls_filter_memory *memory,
                   uint32_t function)
{
    const uint64_t rank = rank_of(call->host);
    struct matrix matrix = {0};
    uint64_t p_count, q_count;
    count_factors(call, &p_count, &q_count);
    float *p = (float *)(void *)memory->scratch, *q = p + p_count;
    for (uint32_t i = 0; i < call->variable_count; i++) {
        matrix = next_matrix(call, i, &matrix);
        run_matrix(&matrix, rank, function, memory, p + matrix.p, q + matrix.q);
    }
    for (uint64_t i = 0; function == DECODE && i < call->count; i++)
        memory->delivered[i] = memory->result[i] / (float)call->world;
    return LS_OK;
}

static const struct ls_plugin_option options[] = {
    {"rank", "integer", "2", "columns of the thin matrices"},
    {"start", "integer", "1000", "updates before which gradients travel as they are, at least 2"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_filter_interface interface = {
    .struct_size = sizeof(struct ls_filter_interface),
    .takes = takes,
    .plan = plan,
    .run = run,
    .begins = begins,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_FILTER),
    .name = "powersgd",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "gradients travel as products of two thin matrices",
    .options = options,
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
