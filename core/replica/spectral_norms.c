// SPDX-License-Identifier: Apache-2.0
// Spectral normalization: kernels divided by their largest singular value, as power iterations
// estimate it, before a step.
#include "core/replica/internal.h"

#include <math.h>
#include <stdlib.h>

static const double least = 1e-7; // Keras's epsilon, of a norm

// Kernel and vector in plain layout, and what the iterations make of them.
struct iteration {
    int64_t rows, columns;
    float *kernel; // (rows, columns)
    float *vector; // u, (columns)
    double *u, *v; // (columns), (rows)
};

static void make_unit(double *values, int64_t count)
{
    double squares = 0;
    for (int64_t i = 0; i < count; i++)
        squares += values[i] * values[i];
    const double norm = sqrt(squares);
    for (int64_t i = 0; i < count; i++)
        values[i] /= norm > least ? norm : least;
}

// v = unit(u W^T), u = unit(v W)
static void iterate(const struct iteration *it)
{
    for (int64_t r = 0; r < it->rows; r++) {
        it->v[r] = 0;
        for (int64_t c = 0; c < it->columns; c++)
            it->v[r] += it->u[c] * (double)it->kernel[r * it->columns + c];
    }
    make_unit(it->v, it->rows);
    for (int64_t c = 0; c < it->columns; c++)
        it->u[c] = 0;
    for (int64_t r = 0; r < it->rows; r++)
        for (int64_t c = 0; c < it->columns; c++)
            it->u[c] += it->v[r] * (double)it->kernel[r * it->columns + c];
    make_unit(it->u, it->columns);
}

static bool is_zero(const struct iteration *it)
{
    for (int64_t i = 0; i < it->rows * it->columns; i++)
        if (it->kernel[i] != 0)
            return false;
    return true;
}

static void normalize(const struct iteration *it, uint32_t iterations)
{
    double sigma = 0;

    if (is_zero(it))
        return;
    for (int64_t c = 0; c < it->columns; c++)
        it->u[c] = (double)it->vector[c];
    for (uint32_t i = 0; i < iterations; i++)
        iterate(it);
    for (int64_t r = 0; r < it->rows; r++)
        for (int64_t c = 0; c < it->columns; c++)
            sigma += it->v[r] * it->u[c] * (double)it->kernel[r * it->columns + c];
    for (int64_t i = 0; i < it->rows * it->columns; i++)
        it->kernel[i] = (float)((double)it->kernel[i] / sigma);
    for (int64_t c = 0; c < it->columns; c++)
        it->vector[c] = (float)it->u[c];
}

static enum ls_status normalize_kernel(struct ls_replica *replica,
                                       const struct ls_spectral_norm *norm)
{
    const struct ls_shape *shape = ls_variable_shape(replica->graph->parameters[norm->kernel]);
    struct iteration it = {.columns = shape->dims[shape->ndims - 1]};
    it.rows = ls_shape_elements(shape, 1) / it.columns;
    it.kernel = calloc((size_t)(it.rows * it.columns), sizeof(*it.kernel));
    it.vector = calloc((size_t)it.columns, sizeof(*it.vector));
    it.u = calloc((size_t)it.columns, sizeof(*it.u));
    it.v = calloc((size_t)it.rows, sizeof(*it.v));
    enum ls_status status = it.kernel && it.vector && it.u && it.v ? LS_OK : LS_OUT_OF_MEMORY;

    if (!status)
        status = ls_replica_get_buffer(replica, LS_BUFFER_PARAMETERS, norm->kernel, it.kernel);
    if (!status)
        status = ls_replica_get_buffer(replica, LS_BUFFER_PARAMETERS, norm->vector, it.vector);
    if (!status) {
        normalize(&it, norm->iterations);
        status = ls_replica_set_buffer(replica, LS_BUFFER_PARAMETERS, norm->kernel, it.kernel);
    }
    if (!status)
        status = ls_replica_set_buffer(replica, LS_BUFFER_PARAMETERS, norm->vector, it.vector);
    free(it.kernel);
    free(it.vector);
    free(it.u);
    free(it.v);
    return status;
}

enum ls_status ls_replica_normalize_kernels(struct ls_replica *replica)
{
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < replica->graph->spectral_norm_count; i++)
        status = normalize_kernel(replica, &replica->graph->spectral_norms[i]);
    return status;
}

const char *ls_replica_normalized_kernel(const struct ls_replica *replica)
{
    const struct ls_graph *graph = replica->graph;
    return graph->spectral_norm_count > 0 ? graph->parameters[graph->spectral_norms[0].kernel]->name
                                          : NULL;
}
