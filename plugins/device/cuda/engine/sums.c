// SPDX-License-Identifier: Apache-2.0
// Sums of columns and of pairs, in several steps: enough threads side by side to read memory at its speed, each with few
// numbers to add one after the other. The order depends on nothing but the shape.
#include "plugins/device/cuda/engine/internal.h"

// ---- Columns ----

enum {
    ROWS = 16, // that a thread adds, or more where there are enough threads
    THREADS = 1 << 18, // 132 multiprocessors hold as many
    PARTS = 16, // of a sum, that a thread of a later step adds
    LAST = 32, // and of the last step, at most
};

static int64_t parts_of(int64_t rows, int64_t columns)
{
    const int64_t parts = (rows + ROWS - 1) / ROWS, most = THREADS / columns;
    return parts <= most ? parts : most > 0 ? most : 1;
}

static int64_t fewer(int64_t parts)
{
    return (parts + PARTS - 1) / PARTS;
}

uint64_t cuda_column_bytes(int64_t rows, int64_t columns)
{
    int64_t parts = parts_of(rows, columns), all = parts;
    for (; parts > LAST; all += parts)
        parts = fewer(parts);
    return (uint64_t)(all * columns) * sizeof(double);
}

int32_t cuda_column_sums(struct ls_device *device, const struct cuda_columns *columns,
                         const struct cuda_store *store)
{
    struct cuda_arguments a = {.a = columns->values,
                               .a_type = columns->type,
                               .rows = columns->rows,
                               .columns = columns->columns,
                               .width = parts_of(columns->rows, columns->columns),
                               .sums = columns->scratch};
    int32_t status = cuda_start(device, cuda_kernel_column_sums, &a, a.width * a.columns);
    a.a_type = CUDA_FLOAT; // the parts are doubles
    while (!status && a.width > LAST) {
        a.pairs = a.sums;
        a.sums += a.width * a.columns;
        a.count = a.width;
        a.width = fewer(a.count);
        status = cuda_start(device, cuda_kernel_column_parts, &a, a.width * a.columns);
    }
    a.pairs = a.sums;
    a.store = *store;
    return status ? status : cuda_start(device, cuda_kernel_column_total, &a, a.columns);
}

// ---- Pairs ----

enum { WIDE = 1024, NARROW = 32 };

uint64_t cuda_pair_bytes(void)
{
    return (WIDE + NARROW) * 2 * sizeof(double);
}

int32_t cuda_add_pairs(struct ls_device *device, const double *from, int64_t count, double *scratch,
                       const double **out, int64_t *out_count)
{
    static const int64_t widths[2] = {WIDE, NARROW};
    for (int i = 0; i < 2; i++) {
        if (count <= widths[i])
            continue;
        const struct cuda_arguments a = {
            .pairs = from, .count = count, .width = widths[i], .sums = scratch};
        const int32_t status = cuda_start(device, cuda_kernel_add_pairs, &a, a.width);
        if (status)
            return status;
        from = scratch;
        count = a.width;
        scratch += 2 * WIDE;
    }
    *out = from;
    *out_count = count;
    return LS_OK;
}
