// SPDX-License-Identifier: Apache-2.0
// Sums of columns, in one step or two: enough threads side by side to read memory at its speed, each with few
// numbers to add one after the other. The order depends on nothing but the shape. And what kernels need that add pairs up.
#include "plugins/device/cuda/engine/internal.h"

// ---- Columns ----

enum {
    BLOCKS = 264, // two on each of 132 multiprocessors
    NARROW_TILE = 8, // columns of a block that adds the parts
};

// Blocks that each thread asks memory once for all its rows, or more often where there are enough; one, which stores the sums
// itself, where a thread has little more. Of doubles there are BLOCKS rows at most, or few columns.
static struct cuda_column_sums plan(int64_t rows, int64_t columns, bool doubles)
{
    struct cuda_column_sums out = {.rows = rows,
                                   .columns = columns,
                                   .type = CUDA_DOUBLES,
                                   .pack = doubles || columns % 4 ? 1 : 4,
                                   .parts = 1};
    const int64_t most = doubles ? NARROW_TILE : CUDA_BLOCK, units = columns / out.pack;
    out.across = (uint32_t)(units < most ? units : most);
    out.down = CUDA_BLOCK / out.across;
    out.tiles = (uint32_t)((units + out.across - 1) / out.across);
    const int64_t each = CUDA_ROWS_AHEAD * (int64_t)out.down, enough = BLOCKS / out.tiles;
    if (rows > 2 * each && enough > 1)
        out.parts = (rows + each - 1) / each < enough ? (rows + each - 1) / each : enough;
    out.turns = (rows + out.parts * out.down - 1) / (out.parts * out.down);
    return out;
}

uint64_t cuda_column_bytes(int64_t rows, int64_t columns)
{
    const struct cuda_column_sums first = plan(rows, columns, false);
    return first.parts > 1 ? (uint64_t)(first.parts * columns) * sizeof(double) : 0;
}

int32_t cuda_column_sums(struct ls_device *device, const struct cuda_columns *columns,
                         const struct cuda_store *store)
{
    struct cuda_column_sums a = plan(columns->rows, columns->columns, false);
    a.values = columns->values;
    a.type = columns->type;
    a.store = *store;
    a.sums = a.parts > 1 ? columns->scratch : NULL;
    int32_t status = cuda_start_column_sums(device, &a);
    if (status || a.parts == 1)
        return status;
    a = plan(a.parts, columns->columns, true);
    a.values = columns->scratch;
    a.store = *store;
    return cuda_start_column_sums(device, &a);
}

// ---- Pairs ----

int32_t cuda_prepare_pairs(struct ls_device *device, struct ls_kernel *kernel,
                           struct ls_kernel_answer *answer)
{
    cuda_scratch(answer, CUDA_PAIR_BLOCKS * 2 * sizeof(double));
    kernel->done = cuda_allocate(device, sizeof(uint32_t));
    return kernel->done ? LS_OK
                        : ls_host_fail(device->host, LS_OUT_OF_MEMORY,
                                       "GPU %u: no memory for a kernel", device->index);
}

struct cuda_pairs cuda_pairs_of(const struct ls_kernel *kernel, const struct cuda_call *launch)
{
    return (struct cuda_pairs){launch->scratch, ls_address(ls_memory_of(kernel->done))};
}
