// SPDX-License-Identifier: Apache-2.0
// Tensors as distances in memory.
#include "plugins/device/cpu/strided.h"
#include "plugins/device/cpu/layout.h"

#include <string.h>

// In memory an activation in blocks is (B, blocks, H, W, inner).
enum { BATCH, BLOCKS, ROWS, COLUMNS, INNER, BLOCKED_DIMS };

bool cpu_strided_start(const struct ls_tensor_desc *whole, struct cpu_strided *out)
{
    struct cpu_view view;
    *out = (struct cpu_strided){.ndims = (int)whole->ndims};
    if (whole->layout.kind == LS_LAYOUT_PLAIN) {
        memcpy(out->dims, whole->dims, whole->ndims * sizeof(whole->dims[0]));
        return true;
    }
    if (!cpu_view_of(whole, &view))
        return false;
    out->ndims = BLOCKED_DIMS;
    out->dims[BATCH] = view.outer / view.blocks;
    out->dims[BLOCKS] = view.blocks;
    out->dims[ROWS] = view.height;
    out->dims[COLUMNS] = view.width;
    out->dims[INNER] = view.inner;
    return true;
}

// Distances of a plain tensor along the dimensions of `whole`.
static void plain_strides(const struct ls_tensor_desc *whole, const struct ls_tensor_desc *part,
                          int64_t *out)
{
    int64_t stride = 1;
    memset(out, 0, LS_MAX_DIMS * sizeof(*out));
    for (uint32_t i = 0; i < part->ndims; i++) {
        const int64_t size = part->dims[part->ndims - 1 - i];
        out[whole->ndims - 1 - i] = size > 1 ? stride : 0;
        stride *= size;
    }
}

// A tensor beside one in blocks of channels: in such blocks itself, or plain.
static bool blocked_strides(const struct cpu_strided *strided, const struct ls_tensor_desc *whole,
                            const struct ls_tensor_desc *part, int64_t *out)
{
    const int64_t inner = strided->dims[INNER], channels = whole->dims[3];
    struct cpu_view view;
    if (part->layout.kind == LS_LAYOUT_PLAIN) {
        int64_t plain[LS_MAX_DIMS];
        plain_strides(whole, part, plain);
        if (plain[3] > 0 && channels % inner != 0)
            return false; // a block would read behind the last channel
        out[BATCH] = plain[0];
        out[BLOCKS] = plain[3] * inner;
        out[ROWS] = plain[1];
        out[COLUMNS] = plain[2];
        out[INNER] = plain[3];
        return true;
    }
    if (!cpu_view_of(part, &view) || view.inner != inner || view.channels != channels)
        return false;
    out[INNER] = inner > 1;
    out[COLUMNS] = view.width > 1 ? inner : 0;
    out[ROWS] = view.height > 1 ? view.width * inner : 0;
    out[BLOCKS] = view.height * view.width * inner;
    out[BATCH] = part->dims[0] > 1 ? view.blocks * out[BLOCKS] : 0;
    return true;
}

bool cpu_strided_add(const struct ls_tensor_desc *whole, const struct ls_tensor_desc *part,
                     struct cpu_strided *strided)
{
    int64_t *strides = strided->strides[strided->count++];
    memset(strides, 0, LS_MAX_DIMS * sizeof(*strides));
    if (whole->layout.kind != LS_LAYOUT_PLAIN)
        return blocked_strides(strided, whole, part, strides);
    if (part->layout.kind != LS_LAYOUT_PLAIN)
        return false;
    plain_strides(whole, part, strides);
    return true;
}

static bool follow_each_other(const struct cpu_strided *s, int outer, int inner)
{
    for (int t = 0; t < s->count; t++)
        if (s->strides[t][outer] != s->strides[t][inner] * s->dims[inner])
            return false;
    return true;
}

static void copy_dim(struct cpu_strided *s, int to, int from)
{
    for (int t = 0; t < s->count; t++)
        s->strides[t][to] = s->strides[t][from];
}

void cpu_strided_collapse(struct cpu_strided *s)
{
    int last = -1; // of the dimensions that stay
    for (int i = 0; i < s->ndims; i++) {
        if (s->dims[i] == 1)
            continue;
        if (last >= 0 && follow_each_other(s, last, i)) {
            s->dims[last] *= s->dims[i];
            copy_dim(s, last, i);
            continue;
        }
        last++;
        s->dims[last] = s->dims[i];
        copy_dim(s, last, i);
    }
    if (last < 0) {
        last = 0;
        s->dims[0] = 1;
        for (int t = 0; t < s->count; t++)
            s->strides[t][0] = 1;
    }
    s->ndims = last + 1;
}

int64_t cpu_strided_offset(const struct cpu_strided *s, int tensor, int ndims, int64_t index)
{
    int64_t offset = 0;
    for (int i = ndims - 1; i >= 0; i--) {
        offset += index % s->dims[i] * s->strides[tensor][i];
        index /= s->dims[i];
    }
    return offset;
}

bool cpu_strided_has_rows(const struct cpu_strided *s)
{
    for (int t = 0; t < s->count; t++)
        if (s->strides[t][s->ndims - 1] > 1)
            return false;
    return true;
}

// ---- Running ----

struct run {
    const struct cpu_strided *strided;
    cpu_strided_body *body;
    void *context;
};

static void run_pieces(const struct run *run, const int64_t *offsets, int64_t rows, int64_t columns)
{
    const struct cpu_strided *s = run->strided;
    if (s->piece == 0 || rows * columns <= s->piece) {
        run->body(run->context, offsets, rows, columns);
        return;
    }
    const int64_t width = columns < s->piece ? columns : s->piece, height = s->piece / width;
    for (int64_t r = 0; r < rows; r += height)
        for (int64_t c = 0; c < columns; c += width) {
            int64_t moved[CPU_STRIDED_TENSORS];
            for (int t = 0; t < s->count; t++)
                moved[t] = offsets[t] + r * cpu_strided_row(s, t) + c * cpu_strided_step(s, t);
            run->body(run->context, moved, rows - r < height ? rows - r : height,
                      columns - c < width ? columns - c : width);
        }
}

static void run_rows(void *context, int64_t begin, int64_t end)
{
    const struct run *run = context;
    const struct cpu_strided *s = run->strided;
    const int64_t rows = s->dims[s->ndims - 2], columns = s->dims[s->ndims - 1];
    int64_t offsets[CPU_STRIDED_TENSORS], count;

    for (int64_t at = begin; at < end; at += count) {
        const int64_t left = rows - at % rows;
        count = end - at < left ? end - at : left;
        for (int t = 0; t < s->count; t++)
            offsets[t] = cpu_strided_offset(s, t, s->ndims - 1, at);
        run_pieces(run, offsets, count, columns);
    }
}

// Of one dimension: parts of the only row.
static void run_columns(void *context, int64_t begin, int64_t end)
{
    const struct run *run = context;
    const struct cpu_strided *s = run->strided;
    int64_t offsets[CPU_STRIDED_TENSORS];

    for (int t = 0; t < s->count; t++)
        offsets[t] = begin * s->strides[t][0];
    run_pieces(run, offsets, 1, end - begin);
}

void cpu_strided_run(struct ls_device *device, const struct cpu_strided *s, double work,
                     cpu_strided_body *body, void *context)
{
    enum { GRAIN = 1024 }; // elements: parts begin at whole cache lines
    struct run run = {s, body, context};
    int64_t units = 1;
    for (int i = 0; i < s->ndims - 1; i++)
        units *= s->dims[i];
    if (s->ndims == 1)
        cpu_parallel(device, s->dims[0], GRAIN, work, run_columns, &run);
    else
        cpu_parallel(device, units, 1, work, run_rows, &run);
}

// ---- Rows of any floating type ----

struct cpu_operand cpu_read_rows(const struct ls_device *device, const struct cpu_place *place,
                                 int64_t rows, int64_t columns, float *room)
{
    const struct cpu_tensor tensor = place->tensor;
    if (tensor.dtype == LS_F32)
        return (struct cpu_operand){(const float *)tensor.at + place->offset, place->row,
                                    place->step};
    const int64_t width = place->step ? columns : 1, height = place->row ? rows : 1;
    if (place->row == width || height == 1)
        cpu_read(device, tensor, place->offset, height * width, room);
    else
        for (int64_t r = 0; r < height; r++)
            cpu_read(device, tensor, place->offset + r * place->row, width, room + r * width);
    return (struct cpu_operand){room, place->row ? width : 0, place->step};
}

struct cpu_result cpu_target_rows(const struct cpu_place *place, int64_t columns, float *room)
{
    if (place->tensor.dtype == LS_F32)
        return (struct cpu_result){(float *)place->tensor.at + place->offset, place->row};
    return (struct cpu_result){room, columns};
}

void cpu_written_rows(const struct ls_device *device, const struct cpu_place *place, int64_t rows,
                      int64_t columns, const float *room)
{
    if (place->row == columns || rows == 1)
        cpu_written(device, place->tensor, place->offset, rows * columns, room);
    else
        for (int64_t r = 0; r < rows; r++)
            cpu_written(device, place->tensor, place->offset + r * place->row, columns,
                        room + r * columns);
}

// ---- Layouts ----

static bool same_shape(const struct ls_tensor_desc *a, const struct ls_tensor_desc *b)
{
    return a->ndims == b->ndims && memcmp(a->dims, b->dims, a->ndims * sizeof(a->dims[0])) == 0;
}

// The layout of the result is that of an argument as large as it, else of any in blocks.
static void choose_whole(struct ls_kernel *kernel, uint32_t count, struct ls_tensor_desc *whole)
{
    for (int any = 0; any < 2; any++)
        for (uint32_t i = 0; i < count && whole->layout.kind == LS_LAYOUT_ANY; i++) {
            const struct ls_tensor_desc *desc = &kernel->arguments[i];
            if (same_shape(desc, whole) && desc->layout.kind != LS_LAYOUT_ANY)
                whole->layout = desc->layout;
            else if (any && desc->layout.kind == LS_LAYOUT_OWN && desc->ndims == whole->ndims &&
                     cpu_layout_role(&desc->layout) == CPU_ACTIVATION && whole->ndims == 4)
                cpu_layout_like(&desc->layout, whole, &whole->layout);
        }
    if (whole->layout.kind == LS_LAYOUT_ANY)
        cpu_layout_plain(whole, &whole->layout);
}

void cpu_broadcast_layouts(struct ls_kernel *kernel, uint32_t count, uint32_t whole)
{
    struct ls_tensor_desc *largest = &kernel->arguments[whole];
    choose_whole(kernel, count, largest);
    for (uint32_t i = 0; i < count; i++) {
        struct ls_tensor_desc *desc = &kernel->arguments[i];
        if (desc->layout.kind != LS_LAYOUT_ANY)
            continue;
        if (same_shape(desc, largest))
            desc->layout = largest->layout;
        else if (largest->layout.kind == LS_LAYOUT_OWN && desc->ndims == 4 && largest->ndims == 4 &&
                 desc->dims[3] == largest->dims[3])
            cpu_layout_like(&largest->layout, desc, &desc->layout);
        else
            cpu_layout_plain(desc, &desc->layout);
    }
}
