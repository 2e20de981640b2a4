// SPDX-License-Identifier: Apache-2.0
// Rows of a table by index, and their gradient. Each thread adds up a part of the columns, or where
// rows are short a part of the table's rows, over all positions in their order: no two threads
// write the same element, and the bits do not depend on their number.
#include "plugins/device/cpu/cpu.h"
#include "plugins/device/cpu/layout.h"

#include <math.h>
#include <string.h>

enum { COLUMN_GRAIN = 64, POSITION_GRAIN = 32 };

struct running {
    const struct ls_device *device;
    const int32_t *ids; // NULL: those are floats
    const float *float_ids;
    const float *table;
    float *dtable;
    struct cpu_tensor y; // or dy
    int64_t count, rows, width; // positions; of the table
};

// The row of a position; -1: there is none.
static inline int64_t row_of(const struct running *r, int64_t i)
{
    if (r->ids)
        return r->ids[i] >= 0 && r->ids[i] < r->rows ? r->ids[i] : -1;
    return r->float_ids[i] > -1.0f && r->float_ids[i] < (float)r->rows ? (int64_t)r->float_ids[i]
                                                                       : -1;
}

// ids, table -> y
static void forward_part(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    const float none = NAN;
    for (int64_t i = begin; i < end; i++) {
        const int64_t at = i * r->width, row = row_of(r, i);
        const float *from = row < 0 ? &none : r->table + row * r->width;
        const int64_t n = row < 0 ? 1 : r->width;
        for (int64_t k = 0; k < r->width; k += n) {
            if (r->y.dtype == LS_F32)
                memcpy((float *)r->y.at + at + k, from, (size_t)n * sizeof(float));
            else
                cpu_written(r->device, r->y, at + k, n, from);
        }
    }
}

// Columns begin <= column < end of rows first <= row < last.
static void add_rows(const struct running *r, int64_t first, int64_t last, int64_t begin,
                     int64_t end)
{
    const int64_t most = r->y.dtype == LS_F32 ? end - begin : CPU_CHUNK;
    float room[CPU_CHUNK];
    for (int64_t row = first; row < last; row++)
        memset(r->dtable + row * r->width + begin, 0, (size_t)(end - begin) * sizeof(float));
    for (int64_t i = 0; i < r->count; i++) {
        const int64_t row = row_of(r, i);
        if (row < first || row >= last)
            continue;
        for (int64_t at = begin, n; at < end; at += n) {
            float *to = r->dtable + row * r->width + at;
            n = end - at < most ? end - at : most;
            const float *dy = cpu_read(r->device, r->y, i * r->width + at, n, room);
            r->device->loops->elementwise->add(to, dy, to, n);
        }
    }
}

static void columns_part(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    add_rows(r, 0, r->rows, begin, end);
}

static void rows_part(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    add_rows(r, begin, end, 0, r->width);
}

static struct running running_of(const struct ls_device *device, const struct ls_kernel *kernel,
                                 const struct cpu_call *launch, const struct ls_tensor_desc *table)
{
    const bool floats = kernel->arguments[0].dtype == LS_F32;
    return (struct running){.device = device,
                            .ids = floats ? NULL : launch->arguments[0],
                            .float_ids = launch->arguments[0],
                            .count = (int64_t)ls_tensor_elements(&kernel->arguments[0]),
                            .rows = table->dims[0],
                            .width = table->dims[1]};
}

static int32_t run_forward(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    struct running r = running_of(device, kernel, launch, &kernel->arguments[1]);
    const double work = (double)r.count * (5.0 + (double)r.width * 0.1);
    r.table = launch->arguments[1];
    r.y = (struct cpu_tensor){cpu_output(kernel, launch, 0), kernel->arguments[2].dtype};
    cpu_parallel(device, r.count, POSITION_GRAIN, work, forward_part, &r);
    return LS_OK;
}

static int32_t run_backward(struct ls_device *device, struct ls_kernel *kernel,
                            const struct cpu_call *launch)
{
    struct running r = running_of(device, kernel, launch, cpu_output_desc(kernel, 0));
    const bool by_columns = r.width >= (int64_t)device->threads * COLUMN_GRAIN;
    const double work = (double)(r.count + r.rows) * (double)r.width * 0.1;
    r.y = (struct cpu_tensor){launch->arguments[1], kernel->arguments[1].dtype};
    r.dtable = cpu_output(kernel, launch, 0);
    cpu_parallel(device, by_columns ? r.width : r.rows, by_columns ? COLUMN_GRAIN : 1, work,
                 by_columns ? columns_part : rows_part, &r);
    return LS_OK;
}

// Whether elements, or any of a row, differ from the offset; as few as ids or steps.
static int32_t run_differs(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    const int64_t rows = (int64_t)ls_tensor_elements(cpu_output_desc(kernel, 0)),
                  width = (int64_t)ls_tensor_elements(&kernel->arguments[0]) / rows;
    const bool floats = kernel->arguments[0].dtype == LS_F32;
    const int32_t *ids = launch->arguments[0];
    const float *x = launch->arguments[0], offset = kernel->attributes.offset;
    float *y = cpu_output(kernel, launch, 0);
    (void)device;
    for (int64_t i = 0; i < rows; i++) {
        bool any = false;
        for (int64_t k = i * width; k < (i + 1) * width && !any; k++)
            any = floats ? x[k] != offset : (double)ids[k] != (double)offset;
        y[i] = any ? 1.0f : 0.0f;
    }
    return LS_OK;
}

int32_t cpu_differs(struct ls_device *device, const struct ls_kernel_request *request,
                    struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_differs;
    cpu_implementation(device, answer, "differences");
    return cpu_all_plain(device, request, kernel);
}

int32_t cpu_gather_rows(struct ls_device *device, const struct ls_kernel_request *request,
                        struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_forward;
    cpu_implementation(device, answer, "rows");
    return cpu_all_plain(device, request, kernel);
}

int32_t cpu_gather_rows_backward(struct ls_device *device, const struct ls_kernel_request *request,
                                 struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_backward;
    cpu_implementation(device, answer, "sums of rows");
    return cpu_all_plain(device, request, kernel);
}
