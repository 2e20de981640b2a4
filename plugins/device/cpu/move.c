// SPDX-License-Identifier: Apache-2.0
// What moves elements: concatenation, parts of tensors, transposition. Parts are copied as they lie,
// also from and to blocks of channels, where a part begins and ends with a block.
#include "plugins/device/cpu/layout.h"
#include "plugins/device/cpu/strided.h"

#include <string.h>

// ---- A part of a tensor ----

// Tensor 0 is the part, tensor 1 the whole, which is `offset` elements further on.
struct part {
    struct cpu_strided strided;
    int64_t offset;
};

static void strides_of_plain(const struct ls_tensor_desc *desc, int64_t *out)
{
    int64_t stride = 1;
    for (uint32_t i = desc->ndims; i > 0; i--) {
        out[i - 1] = stride;
        stride *= desc->dims[i - 1];
    }
}

static bool plan_plain(const struct ls_tensor_desc *part, const struct ls_tensor_desc *whole,
                       const int64_t *from, struct part *out)
{
    struct cpu_strided *s = &out->strided;
    s->ndims = (int)part->ndims;
    memcpy(s->dims, part->dims, part->ndims * sizeof(part->dims[0]));
    strides_of_plain(part, s->strides[0]);
    strides_of_plain(whole, s->strides[1]);
    for (int i = 0; i < s->ndims; i++)
        out->offset += from[i] * s->strides[1][i];
    return true;
}

// Distances along batch, blocks, rows, columns and within a block.
enum { BATCH, BLOCKS, ROWS, COLUMNS, INNER, BLOCKED_DIMS };

static void strides_in_blocks(const struct ls_tensor_desc *desc, int64_t inner, int64_t *out)
{
    const int64_t *d = desc->dims;
    const bool plain = desc->layout.kind == LS_LAYOUT_PLAIN;
    const int64_t blocks = (d[3] + inner - 1) / inner;
    out[INNER] = 1;
    out[COLUMNS] = plain ? d[3] : inner;
    out[ROWS] = out[COLUMNS] * d[2];
    out[BLOCKS] = plain ? inner : out[ROWS] * d[1];
    out[BATCH] = plain ? out[ROWS] * d[1] : out[BLOCKS] * blocks;
}

static bool plan_blocks(const struct ls_tensor_desc *part, const struct ls_tensor_desc *whole,
                        const int64_t *from, struct part *out)
{
    struct cpu_strided *s = &out->strided;
    struct cpu_view one, other;
    const bool mixed =
        part->layout.kind == LS_LAYOUT_PLAIN || whole->layout.kind == LS_LAYOUT_PLAIN;
    if (!cpu_view_of(part, &one) || !cpu_view_of(whole, &other))
        return false;
    const int64_t inner = part->layout.kind == LS_LAYOUT_PLAIN ? other.inner : one.inner;
    const bool all_channels = !mixed && part->dims[3] == whole->dims[3];
    if ((!mixed && one.inner != other.inner) || (!all_channels && part->dims[3] % inner != 0) ||
        (whole->layout.kind != LS_LAYOUT_PLAIN && from[3] % inner != 0))
        return false;
    s->ndims = BLOCKED_DIMS;
    s->dims[BATCH] = part->dims[0];
    s->dims[BLOCKS] = (part->dims[3] + inner - 1) / inner;
    s->dims[ROWS] = part->dims[1];
    s->dims[COLUMNS] = part->dims[2];
    s->dims[INNER] = inner;
    strides_in_blocks(part, inner, s->strides[0]);
    strides_in_blocks(whole, inner, s->strides[1]);
    const int64_t *strides = s->strides[1];
    out->offset = from[1] * strides[ROWS] + from[2] * strides[COLUMNS] +
                  from[3] / inner * strides[BLOCKS] + from[3] % inner;
    return true;
}

// False: the tensors do not lie so that whole runs of elements can be copied.
static bool plan_part(const struct ls_tensor_desc *part, const struct ls_tensor_desc *whole,
                      const int64_t *from, struct part *out)
{
    const bool plain =
        part->layout.kind == LS_LAYOUT_PLAIN && whole->layout.kind == LS_LAYOUT_PLAIN;
    *out = (struct part){.strided = {.count = 2}};
    if (!(plain ? plan_plain : plan_blocks)(part, whole, from, out))
        return false;
    struct cpu_strided *s = &out->strided;
    cpu_strided_collapse(s);
    if (plain && !cpu_strided_has_rows(s)) { // single elements, each a row
        s->dims[s->ndims] = s->strides[0][s->ndims] = s->strides[1][s->ndims] = 1;
        s->ndims++;
    }
    return cpu_strided_has_rows(s);
}

struct copy {
    const struct cpu_strided *strided;
    int64_t bytes; // of an element
    const char *from;
    char *to;
    int from_tensor;
};

static void copy_rows(void *context, const int64_t *offsets, int64_t rows, int64_t columns)
{
    const struct copy *c = context;
    const int other = 1 - c->from_tensor;
    const char *from = c->from + offsets[c->from_tensor] * c->bytes;
    char *to = c->to + offsets[other] * c->bytes;
    for (int64_t r = 0; r < rows; r++) {
        memcpy(to, from, (size_t)(columns * c->bytes));
        from += cpu_strided_row(c->strided, c->from_tensor) * c->bytes;
        to += cpu_strided_row(c->strided, other) * c->bytes;
    }
}

static double work_of(const struct cpu_strided *s)
{
    double count = 0.15;
    for (int i = 0; i < s->ndims; i++)
        count *= (double)s->dims[i];
    return count;
}

static int64_t element_bytes(const struct ls_kernel *kernel)
{
    return (int64_t)ls_dtype_bytes(kernel->arguments[0].dtype);
}

// `take`: from the whole to the part, else back.
static void copy_part(struct ls_device *device, const struct ls_kernel *kernel,
                      const struct part *part, bool take, const void *from, void *to)
{
    struct copy c = {&part->strided, element_bytes(kernel), from, to, take ? 1 : 0};
    if (take)
        c.from += part->offset * c.bytes;
    else
        c.to += part->offset * c.bytes;
    cpu_strided_run(device, &part->strided, work_of(&part->strided), copy_rows, &c);
}

// ---- Layouts ----

// Where any layout is allowed, that of another tensor; 4-D only.
static void follow(struct ls_tensor_desc *desc, const struct ls_layout *like)
{
    if (desc->layout.kind != LS_LAYOUT_ANY)
        return;
    if (like && like->kind == LS_LAYOUT_OWN && cpu_layout_role(like) == CPU_ACTIVATION &&
        desc->ndims == 4)
        cpu_layout_like(like, desc, &desc->layout);
    else
        cpu_layout_plain(desc, &desc->layout);
}

struct move_state {
    struct part parts[LS_CONCATENATE_INPUTS];
};

static uint32_t part_count(const struct ls_kernel *kernel)
{
    return kernel->input_count + kernel->output_count - 1;
}

// Where the parts of a concatenation, or the only part, begin.
static bool plan_parts(const struct ls_kernel *kernel, uint32_t whole, struct move_state *state)
{
    const bool joins = kernel->op == LS_OP_CONCATENATE || kernel->op == LS_OP_CONCATENATE_BACKWARD;
    int64_t from[LS_MAX_DIMS] = {0};
    for (uint32_t i = 0; i < LS_MAX_DIMS && !joins; i++)
        from[i] = kernel->attributes.axes[i];
    for (uint32_t k = 0; k < part_count(kernel); k++) {
        const struct ls_tensor_desc *part = &kernel->arguments[k + (whole == 0)];
        if (!plan_part(part, &kernel->arguments[whole], from, &state->parts[k]))
            return false;
        for (uint32_t i = 0; i < LS_MAX_DIMS && joins; i++)
            from[i] += kernel->attributes.axes[i] ? part->dims[i] : 0;
    }
    return true;
}

// Gives the arguments layouts and plans the copies: first as the first argument in blocks lies, then
// plain.
static int32_t plan(struct ls_device *device, const struct ls_kernel_request *request,
                    struct ls_kernel *kernel, struct ls_kernel_answer *answer, uint32_t whole)
{
    const uint32_t count = part_count(kernel) + 1;
    struct move_state *state = kernel->state = cpu_state(device, sizeof(*state));
    const struct ls_layout *like = NULL;
    if (!state)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < count && !like; i++)
        if (request->arguments[i].layout.kind == LS_LAYOUT_OWN)
            like = &request->arguments[i].layout;
    for (int plain = like ? 0 : 1; plain < 2; plain++) {
        for (uint32_t i = 0; i < count; i++) {
            kernel->arguments[i].layout = request->arguments[i].layout;
            follow(&kernel->arguments[i], plain ? NULL : like);
        }
        if (plan_parts(kernel, whole, state)) {
            cpu_implementation(device, answer, "copy");
            return LS_OK;
        }
    }
    return cpu_unsupported(device, request, "the arguments lie in layouts that do not match");
}

// ---- Concatenation ----

static int32_t run_concatenate(struct ls_device *device, struct ls_kernel *kernel,
                               const struct cpu_call *launch)
{
    const struct move_state *state = kernel->state;
    for (uint32_t k = 0; k < part_count(kernel); k++)
        copy_part(device, kernel, &state->parts[k], false, launch->arguments[k],
                  cpu_output(kernel, launch, 0));
    cpu_zero_padding(cpu_output_desc(kernel, 0), cpu_output(kernel, launch, 0));
    return LS_OK;
}

int32_t cpu_concatenate(struct ls_device *device, const struct ls_kernel_request *request,
                        struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_concatenate;
    return plan(device, request, kernel, answer, request->input_count);
}

static int32_t run_concatenate_backward(struct ls_device *device, struct ls_kernel *kernel,
                                        const struct cpu_call *launch)
{
    const struct move_state *state = kernel->state;
    for (uint32_t k = 0; k < part_count(kernel); k++) {
        copy_part(device, kernel, &state->parts[k], true, launch->arguments[0],
                  cpu_output(kernel, launch, k));
        cpu_zero_padding(cpu_output_desc(kernel, k), cpu_output(kernel, launch, k));
    }
    return LS_OK;
}

int32_t cpu_concatenate_backward(struct ls_device *device, const struct ls_kernel_request *request,
                                 struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_concatenate_backward;
    return plan(device, request, kernel, answer, 0);
}

// ---- Parts ----

static int32_t run_take_part(struct ls_device *device, struct ls_kernel *kernel,
                             const struct cpu_call *launch)
{
    const struct move_state *state = kernel->state;
    copy_part(device, kernel, &state->parts[0], true, launch->arguments[0], launch->arguments[1]);
    cpu_zero_padding(&kernel->arguments[1], launch->arguments[1]);
    return LS_OK;
}

// x is the whole.
int32_t cpu_take_part(struct ls_device *device, const struct ls_kernel_request *request,
                      struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_take_part;
    return plan(device, request, kernel, answer, 0);
}

static void zero_bytes(void *context, int64_t begin, int64_t end)
{
    memset((char *)context + begin, 0, (size_t)(end - begin));
}

static int32_t run_put_part(struct ls_device *device, struct ls_kernel *kernel,
                            const struct cpu_call *launch)
{
    const struct move_state *state = kernel->state;
    const int64_t bytes = (int64_t)kernel->arguments[1].layout.bytes;
    cpu_parallel(device, bytes, 4096, (double)bytes * 0.025, zero_bytes, launch->arguments[1]);
    copy_part(device, kernel, &state->parts[0], false, launch->arguments[0], launch->arguments[1]);
    return LS_OK;
}

// y is the whole, and 0 elsewhere.
int32_t cpu_put_part(struct ls_device *device, const struct ls_kernel_request *request,
                     struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_put_part;
    return plan(device, request, kernel, answer, 1);
}

// ---- Transposition ----

enum { TILE = 32 }; // elements: a tile of both sides lies in the first-level cache

// Tensor 0 is what is written, tensor 1 what is read.
struct transposition {
    struct cpu_strided outer; // without the two dimensions of a tile
    bool rows; // rows of both follow each other: `outer` has all dimensions, nothing is tiled
    int64_t rows_count, columns_count; // of a matrix
    int64_t row; // distance of rows of the matrix where it is written
    int64_t column; // distance of columns of the matrix where it is read
};

struct transposing {
    const struct transposition *plan;
    int64_t bytes; // of an element: 4, or 2 of a half
    const char *from;
    char *to;
};

static int64_t tiles_of(int64_t count)
{
    return (count + TILE - 1) / TILE;
}

// Rows and columns [0] <= i < [1] of a matrix.
#define DEFINE_TRANSPOSE(name, type)                                                 \
    static void name(const struct transposition *p, const void *read, void *written, \
                     const int64_t *rows, const int64_t *columns)                    \
    {                                                                                \
        const type *from = read;                                                     \
        type *to = written;                                                          \
        for (int64_t r = rows[0]; r < rows[1]; r++)                                  \
            for (int64_t c = columns[0]; c < columns[1]; c++)                        \
                to[r * p->row + c] = from[r + c * p->column];                        \
    }
DEFINE_TRANSPOSE(transpose_words, uint32_t)
DEFINE_TRANSPOSE(transpose_halves, uint16_t)

static void transpose_tiles(void *context, int64_t begin, int64_t end)
{
    const struct transposing *t = context;
    const struct transposition *p = t->plan;
    for (int64_t at = begin; at < end; at++) {
        const int64_t outer = at / tiles_of(p->rows_count), first = at % tiles_of(p->rows_count);
        const void *from =
            t->from + cpu_strided_offset(&p->outer, 1, p->outer.ndims, outer) * t->bytes;
        void *to = t->to + cpu_strided_offset(&p->outer, 0, p->outer.ndims, outer) * t->bytes;
        const int64_t r0 = first * TILE, r1 = r0 + TILE;
        const int64_t rows[] = {r0, r1 < p->rows_count ? r1 : p->rows_count};
        for (int64_t c0 = 0; c0 < p->columns_count; c0 += TILE) {
            const int64_t c1 = c0 + TILE < p->columns_count ? c0 + TILE : p->columns_count;
            (t->bytes == 4 ? transpose_words : transpose_halves)(p, from, to, rows,
                                                                 (const int64_t[]){c0, c1});
        }
    }
}

static int32_t run_transpose(struct ls_device *device, struct ls_kernel *kernel,
                             const struct cpu_call *launch)
{
    const struct transposition *p = kernel->state;
    struct transposing t = {p, element_bytes(kernel), launch->arguments[0], launch->arguments[1]};
    int64_t count = tiles_of(p->rows_count);
    if (p->rows) {
        struct copy c = {&p->outer, t.bytes, t.from, t.to, 1};
        cpu_strided_run(device, &p->outer, work_of(&p->outer), copy_rows, &c);
        return LS_OK;
    }
    for (int i = 0; i < p->outer.ndims; i++)
        count *= p->outer.dims[i];
    cpu_parallel(device, count, 1, (double)cpu_elements(&kernel->arguments[1]) * 0.4,
                 transpose_tiles, &t);
    return LS_OK;
}

static void drop_dim(struct cpu_strided *s, int dim)
{
    s->ndims--;
    for (int i = dim; i < s->ndims; i++) {
        s->dims[i] = s->dims[i + 1];
        for (int t = 0; t < s->count; t++)
            s->strides[t][i] = s->strides[t][i + 1];
    }
}

// The matrix: the last dimension where it is written, and the last where it is read.
static void plan_matrix(struct transposition *p)
{
    struct cpu_strided *s = &p->outer;
    const int last = s->ndims - 1;
    int read = 0;
    while (s->strides[1][read] != 1)
        read++;
    p->columns_count = s->dims[last];
    p->column = s->strides[1][last];
    p->rows_count = s->dims[read];
    p->row = s->strides[0][read];
    drop_dim(s, last);
    drop_dim(s, read);
}

// Backward writes what forward reads: the same with the inverse permutation.
static void permutation_of(const struct ls_kernel_request *request, int32_t *out)
{
    for (uint32_t i = 0; i < request->arguments[0].ndims; i++) {
        const int32_t axis = request->attributes.axes[i];
        if (request->op == LS_OP_TRANSPOSE)
            out[i] = axis;
        else
            out[axis] = (int32_t)i;
    }
}

int32_t cpu_transpose(struct ls_device *device, const struct ls_kernel_request *request,
                      struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    struct transposition *p = kernel->state = cpu_state(device, sizeof(*p));
    const struct ls_tensor_desc *x = &kernel->arguments[0], *y = &kernel->arguments[1];
    int64_t strides[LS_MAX_DIMS] = {0};
    int32_t permutation[LS_MAX_DIMS] = {0};
    if (!p)
        return LS_OUT_OF_MEMORY;
    if (x->layout.kind == LS_LAYOUT_OWN || y->layout.kind == LS_LAYOUT_OWN)
        return cpu_unsupported(device, request, "only plain layouts");
    permutation_of(request, permutation);
    p->outer = (struct cpu_strided){.ndims = (int)y->ndims, .count = 2};
    memcpy(p->outer.dims, y->dims, y->ndims * sizeof(y->dims[0]));
    strides_of_plain(y, p->outer.strides[0]);
    strides_of_plain(x, strides);
    for (uint32_t i = 0; i < y->ndims; i++)
        p->outer.strides[1][i] = strides[permutation[i]];
    cpu_strided_collapse(&p->outer);
    p->rows = p->outer.strides[1][p->outer.ndims - 1] == 1;
    p->rows_count = 1;
    if (!p->rows)
        plan_matrix(p);
    kernel->run = run_transpose;
    cpu_implementation(device, answer, "transposition");
    return LS_OK;
}
