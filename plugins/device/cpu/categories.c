// SPDX-License-Identifier: Apache-2.0
// Categories: the bucket of a number, the value that a table has for it, ids as zeros and ones.
// Each result is made by one thread, from whole numbers: bits do not depend on their number.
#include "plugins/device/cpu/cpu.h"

#include <math.h>
#include <string.h>

struct running {
    const struct ls_op_attributes *attributes;
    const int32_t *whole; // NULL: those are floats
    const float *floats;
    const float *table; // boundaries, or (rows,3)
    float *y;
    int64_t rows; // of the table
    int64_t together, rest, width; // ids (B,together,rest) -> (B,rest,width)
};

// The integer part of element i. False: no int64 holds it.
static inline bool whole_at(const struct running *r, int64_t i, int64_t *out)
{
    if (r->whole)
        *out = r->whole[i];
    else if (r->floats[i] >= -0x1p63f && r->floats[i] < 0x1p63f)
        *out = (int64_t)r->floats[i];
    else
        return false;
    return true;
}

// ---- Buckets ----

static void bucket_part(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    for (int64_t i = begin; i < end; i++) {
        const float x = r->whole ? (float)r->whole[i] : r->floats[i];
        int64_t low = 0, high = r->rows;
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (x < r->table[middle])
                high = middle;
            else
                low = middle + 1;
        }
        r->y[i] = (float)low;
    }
}

// ---- Tables ----

static inline int64_t key_at(const struct running *r, int64_t row)
{
    return (int64_t)r->table[3 * row] * 65536 + (int64_t)r->table[3 * row + 1];
}

// The first row whose key is not below x.
static int64_t row_from(const struct running *r, int64_t x)
{
    int64_t low = 0, high = r->rows;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (key_at(r, middle) < x)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void lookup_part(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    const int64_t count = r->attributes->count;
    for (int64_t i = begin; i < end; i++) {
        int64_t x;
        r->y[i] = NAN;
        if (!whole_at(r, i, &x))
            continue;
        const int64_t row = row_from(r, x);
        if (row < r->rows && key_at(r, row) == x)
            r->y[i] = r->table[3 * row + 2];
        else if (count > 0)
            r->y[i] = r->attributes->offset + (float)((x % count + count) % count);
    }
}

// ---- Ids as zeros and ones ----

// What the ids of one row of y make of it.
static void encode_row(const struct running *r, int64_t first, float *row)
{
    const uint32_t function = r->attributes->function;
    memset(row, 0, (size_t)r->width * sizeof(*row));
    for (int64_t t = 0; t < r->together; t++) {
        const int64_t i = first + t * r->rest;
        int64_t id = r->width; // of none
        const bool nan = !r->whole && isnan(r->floats[i]);
        const bool negative = !nan && (r->whole ? r->whole[i] < 0 : r->floats[i] <= -1);
        if (nan || (negative && function != LS_ENCODE_ONE_HOT)) {
            for (int64_t k = 0; k < r->width; k++)
                row[k] = NAN;
            return;
        }
        if (!negative && whole_at(r, i, &id) && id < r->width)
            row[id] = function == LS_ENCODE_COUNTS ? row[id] + 1 : 1;
    }
}

static void encode_part(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    for (int64_t i = begin; i < end; i++)
        encode_row(r, i / r->rest * r->together * r->rest + i % r->rest, r->y + i * r->width);
}

// ---- Kernels ----

static struct running running_of(const struct ls_kernel *kernel, const struct cpu_call *launch)
{
    const bool floats = kernel->arguments[0].dtype == LS_F32;
    return (struct running){.attributes = &kernel->attributes,
                            .whole = floats ? NULL : launch->arguments[0],
                            .floats = launch->arguments[0],
                            .y = cpu_output(kernel, launch, 0)};
}

static int32_t run_table(struct ls_device *device, struct ls_kernel *kernel,
                         const struct cpu_call *launch)
{
    struct running r = running_of(kernel, launch);
    const int64_t count = (int64_t)ls_tensor_elements(&kernel->arguments[0]);
    r.table = launch->arguments[1];
    r.rows = kernel->arguments[1].dims[0];
    cpu_parallel(device, count, 1, (double)count * (5 + 3 * log2((double)r.rows)),
                 kernel->op == LS_OP_BUCKET ? bucket_part : lookup_part, &r);
    return LS_OK;
}

static int32_t run_encode(struct ls_device *device, struct ls_kernel *kernel,
                          const struct cpu_call *launch)
{
    const struct ls_tensor_desc *ids = &kernel->arguments[0];
    const bool together = kernel->attributes.function >= LS_ENCODE_MULTI_HOT;
    const int64_t count = (int64_t)ls_tensor_elements(ids);
    struct running r = running_of(kernel, launch);
    r.width = kernel->attributes.count;
    r.together = together ? ids->dims[1] : 1;
    r.rest = together ? count / (ids->dims[0] * r.together) : 1;
    const int64_t rows = count / r.together;
    cpu_parallel(device, rows, 1, (double)count * 2 + (double)rows * (double)r.width * 0.1,
                 encode_part, &r);
    return LS_OK;
}

int32_t cpu_categories(struct ls_device *device, const struct ls_kernel_request *request,
                       struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = request->op == LS_OP_ENCODE ? run_encode : run_table;
    cpu_implementation(device, answer, "categories");
    return cpu_all_plain(device, request, kernel);
}
