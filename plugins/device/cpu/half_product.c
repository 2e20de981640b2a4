// SPDX-License-Identifier: Apache-2.0
// A product runs in blocks of the result, each by a primitive made for one thread. Their sizes
// follow from the shape alone, because the order in which a kernel adds depends on its sizes: the
// bits do not depend on the number of threads. Blocks of few rows are as fast as large ones when
// the right side is already in the kernel's own layout: weights are kept in it, and what a step
// computes is brought into it by each launch, in scratch; so is a transposed left side into rows.
#include "plugins/device/cpu/half_product.h"

#include "plugins/device/cpu/layout.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { MANY_ROWS = 512, ROWS = 64, FEW_ROWS = 32, COLUMNS = 64, BLOCKS = 32 };
// A block of fewer multiplications is not divided further: an execution costs a microsecond or two.
static const double least_block = 4e6;

enum { LEFT, RIGHT, RESULT, BIAS }; // pointers of a block's primitive

// The primitives of one thread: of whole blocks, and of those at the lower and the right edge.
struct worker {
    struct cpu_primitive blocks[2][2];
};

struct cpu_half_product {
    struct cpu_half_product_shape shape;
    int64_t block_rows, block_columns, row_blocks, column_blocks;
    int32_t worker_count;
    struct worker *workers;
    struct cpu_primitive pack, turn; // turn: only of a transposed left side
    dnnl_memory_desc_t right; // as the kernel has it
    bool takes_packed; // the right side comes like this
    uint64_t packed_bytes, turned_bytes,
        pad_bytes; // in scratch, one after the other; a pad for each worker
    double work; // about nanoseconds on one thread
};

bool cpu_half_product_applies(uint32_t activation)
{
    return activation == LS_LINEAR || activation == LS_RELU || activation == LS_LEAKY_RELU;
}

uint64_t cpu_half_product_scratch(const struct cpu_half_product *product)
{
    return product->packed_bytes + product->turned_bytes +
           (uint64_t)product->worker_count * product->pad_bytes;
}

bool cpu_half_product_layout(const struct cpu_half_product *product, const struct ls_tensor_desc *w,
                             struct ls_layout *out)
{
    const dnnl_memory_desc_t *right = &product->right;
    dnnl_memory_desc_t md = *right;
    dnnl_blocking_desc_t *blocking = &md.format_desc.blocking;
    for (int i = 0; i < 2 && product->shape.right_transposed; i++) {
        md.dims[i] = right->dims[1 - i];
        md.padded_dims[i] = right->padded_dims[1 - i];
        blocking->strides[i] = right->format_desc.blocking.strides[1 - i];
    }
    for (int i = 0; i < blocking->inner_nblks && product->shape.right_transposed; i++)
        blocking->inner_idxs[i] = 1 - blocking->inner_idxs[i];
    return cpu_layout_of(CPU_MATRIX, w, 1, &md, out);
}

void cpu_half_product_take_packed(struct cpu_half_product *product)
{
    product->takes_packed = true;
    product->packed_bytes = 0;
}

const char *cpu_half_product_name(const struct cpu_half_product *product)
{
    return cpu_primitive_name(product->workers[0].blocks[0][0].desc);
}

static void finish_workers(struct cpu_half_product *product)
{
    for (int32_t i = 0; product->workers && i < product->worker_count * 4; i++)
        cpu_primitive_finish(&product->workers[i / 4].blocks[i / 2 % 2][i % 2]);
}

void cpu_half_product_destroy(struct cpu_half_product *product)
{
    if (!product)
        return;
    finish_workers(product);
    cpu_primitive_finish(&product->pack);
    cpu_primitive_finish(&product->turn);
    free(product->workers);
    free(product);
}

// ---- Making ----

static dnnl_status_t describe(int64_t rows, int64_t columns, uint32_t dtype, dnnl_format_tag_t tag,
                              dnnl_memory_desc_t *out)
{
    const dnnl_dims_t dims = {rows, columns};
    return dnnl_memory_desc_init_by_tag(out, 2, dims, cpu_dnnl_type(dtype), tag);
}

static dnnl_primitive_attr_t attributes_of(const struct cpu_half_product_shape *shape)
{
    const dnnl_primitive_attr_t attributes = cpu_primitive_attributes();
    dnnl_post_ops_t after = NULL;
    if (!attributes || dnnl_post_ops_create(&after) != dnnl_success)
        return attributes;
    const float slope = shape->function.activation == LS_RELU ? 0 : shape->function.alpha;
    dnnl_status_t status = dnnl_success;
    if (shape->add)
        status = dnnl_post_ops_append_sum(after, 1);
    if (status == dnnl_success && shape->function.activation != LS_LINEAR)
        status = dnnl_post_ops_append_eltwise(after, 1, dnnl_eltwise_relu, slope, 0);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(attributes, after);
    dnnl_post_ops_destroy(after);
    if (status == dnnl_success)
        return attributes;
    dnnl_primitive_attr_destroy(attributes);
    return NULL;
}

// A block's primitive, with memory objects. `right` of kind any becomes what the kernel has.
static dnnl_status_t make_block(const struct cpu_half_product *product, struct ls_device *device,
                                int64_t rows, int64_t columns, dnnl_memory_desc_t *right,
                                struct cpu_primitive *out)
{
    const struct cpu_half_product_shape *shape = &product->shape;
    const dnnl_dims_t dims = {rows, columns}, strides = {shape->columns, 1};
    dnnl_memory_desc_t left, bias, result;
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t status = describe(rows, shape->depth, shape->dtype, dnnl_ab, &left);
    if (status == dnnl_success)
        status = describe(1, columns, shape->dtype, dnnl_ab, &bias);
    if (status == dnnl_success)
        status = dnnl_memory_desc_init_by_strides(&result, 2, dims,
                                                  cpu_dnnl_type(shape->result_dtype), strides);
    if (status == dnnl_success)
        status = dnnl_matmul_desc_init(&matmul, &left, right, shape->bias ? &bias : NULL, &result);
    const dnnl_primitive_attr_t attributes = attributes_of(shape);
    if (status == dnnl_success)
        status = attributes
                     ? dnnl_primitive_desc_create(&desc, &matmul, attributes, device->engine, NULL)
                     : dnnl_out_of_memory;
    dnnl_primitive_attr_destroy(attributes);
    if (status != dnnl_success)
        return status;
    if (strncmp(cpu_primitive_name(desc), "brg", 3) != 0) { // not for the processor's unit
        dnnl_primitive_desc_destroy(desc);
        return dnnl_unimplemented;
    }
    *right = *dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 0);
    status = cpu_primitive_init(out, desc);
    if (status == dnnl_success)
        status = cpu_primitive_add(out, device, DNNL_ARG_SRC, &left);
    if (status == dnnl_success)
        status = cpu_primitive_add(out, device, DNNL_ARG_WEIGHTS, right);
    if (status == dnnl_success)
        status = cpu_primitive_add(out, device, DNNL_ARG_DST, &result);
    if (status == dnnl_success && shape->bias)
        status = cpu_primitive_add(out, device, DNNL_ARG_BIAS, &bias);
    return status == dnnl_success ? cpu_primitive_add_scratch(out, device) : status;
}

// Columns of the right side that are inside each other in the kernel's layout: its blocks of
// columns follow each other.
static int64_t column_grain(const dnnl_memory_desc_t *right)
{
    const dnnl_blocking_desc_t *blocking = &right->format_desc.blocking;
    int64_t grain = 1;
    for (int i = 0; i < blocking->inner_nblks; i++)
        if (blocking->inner_idxs[i] == 1)
            grain *= blocking->inner_blks[i];
    return grain;
}

// Whether a part of the columns lies in `right` as it lies in a right side of its own.
static bool is_part(const dnnl_memory_desc_t *part, const dnnl_memory_desc_t *right)
{
    const dnnl_blocking_desc_t *a = &part->format_desc.blocking, *b = &right->format_desc.blocking;
    return a->inner_nblks == b->inner_nblks && a->strides[0] == b->strides[0] &&
           a->strides[1] == b->strides[1] &&
           memcmp(a->inner_blks, b->inner_blks, (size_t)a->inner_nblks * sizeof(dnnl_dim_t)) == 0 &&
           memcmp(a->inner_idxs, b->inner_idxs, (size_t)a->inner_nblks * sizeof(dnnl_dim_t)) == 0;
}

// Few rows give few blocks, so these are divided among columns, too.
static void choose_blocks(struct cpu_half_product *p)
{
    const struct cpu_half_product_shape *s = &p->shape;
    p->block_rows = s->rows >= MANY_ROWS ? ROWS : FEW_ROWS;
    if (p->block_rows > s->rows)
        p->block_rows = s->rows;
    p->row_blocks = (s->rows + p->block_rows - 1) / p->block_rows;
    const double block = (double)p->block_rows * (double)s->depth * (double)s->columns;
    int64_t parts = (BLOCKS + p->row_blocks - 1) / p->row_blocks;
    if ((double)parts > block / least_block)
        parts = (int64_t)(block / least_block);
    p->block_columns = s->columns;
    if (parts > 1)
        p->block_columns = (s->columns / parts + COLUMNS - 1) / COLUMNS * COLUMNS;
    if (p->block_columns > s->columns)
        p->block_columns = s->columns;
}

static dnnl_status_t make_workers(struct cpu_half_product *p, struct ls_device *device)
{
    const struct cpu_half_product_shape *s = &p->shape;
    dnnl_memory_desc_t any;
    struct cpu_primitive whole = {0};
    dnnl_status_t status = describe(s->depth, s->columns, s->dtype, dnnl_format_tag_any, &any);
    if (status != dnnl_success)
        return status;
    p->right = any;
    status = make_block(p, device, p->block_rows, s->columns, &p->right, &whole);
    cpu_primitive_finish(&whole);
    if (status != dnnl_success)
        return status;
    if (p->block_columns < s->columns) {
        const int64_t columns = p->block_columns;
        dnnl_memory_desc_t part;
        status = describe(s->depth, columns, s->dtype, dnnl_format_tag_any, &part);
        if (status == dnnl_success)
            status = make_block(p, device, p->block_rows, columns, &part, &whole);
        cpu_primitive_finish(&whole);
        if (status != dnnl_success || columns % column_grain(&p->right) ||
            !is_part(&part, &p->right))
            p->block_columns = s->columns;
    }
    p->column_blocks = (s->columns + p->block_columns - 1) / p->block_columns;
    const int64_t rows[] = {p->block_rows, s->rows - (p->row_blocks - 1) * p->block_rows},
                  columns[] = {p->block_columns,
                               s->columns - (p->column_blocks - 1) * p->block_columns};
    status = dnnl_success;
    for (int32_t i = 0; i < p->worker_count * 4 && status == dnnl_success; i++) {
        struct cpu_primitive *block = &p->workers[i / 4].blocks[i / 2 % 2][i % 2];
        const int64_t n = columns[i % 2];
        if ((i / 2 % 2 && p->row_blocks == 1) || (i % 2 && p->column_blocks == 1))
            continue; // there is one block only, which is whole
        dnnl_memory_desc_t right = p->right; // of these columns
        right.dims[1] = n;
        right.padded_dims[1] = n == s->columns ? p->right.padded_dims[1]
                                               : (n + column_grain(&right) - 1) /
                                                     column_grain(&right) * column_grain(&right);
        status = make_block(p, device, rows[i / 2 % 2], n, &right, block);
        if (block->scratch_bytes > p->pad_bytes)
            p->pad_bytes = cpu_aligned(block->scratch_bytes);
    }
    return status;
}

static dnnl_status_t make_reorders(struct cpu_half_product *p, struct ls_device *device)
{
    const struct cpu_half_product_shape *s = &p->shape;
    dnnl_memory_desc_t plain, rows;
    dnnl_status_t status =
        describe(s->depth, s->columns, s->dtype, s->right_transposed ? dnnl_ba : dnnl_ab, &plain);
    if (status == dnnl_success)
        status = cpu_primitive_reorder(&p->pack, device, &plain, &p->right);
    p->packed_bytes = cpu_aligned(dnnl_memory_desc_get_size(&p->right));
    if (status != dnnl_success || !s->left_transposed)
        return status;
    status = describe(s->rows, s->depth, s->dtype, dnnl_ba, &plain);
    if (status == dnnl_success)
        status = describe(s->rows, s->depth, s->dtype, dnnl_ab, &rows);
    if (status == dnnl_success)
        status = cpu_primitive_reorder(&p->turn, device, &plain, &rows);
    p->turned_bytes = cpu_aligned(dnnl_memory_desc_get_size(&rows));
    return status;
}

int32_t cpu_half_product_create(struct ls_device *device,
                                const struct cpu_half_product_shape *shape,
                                struct cpu_half_product **out)
{
    struct cpu_half_product *p = calloc(1, sizeof(*p));
    if (!p)
        return cpu_out_of_memory(device);
    p->shape = *shape;
    p->work = (double)shape->rows * (double)shape->columns * (double)shape->depth / 400.0;
    p->worker_count = cpu_worth_threads(device, p->work) ? (int32_t)device->threads : 1;
    p->workers = calloc((size_t)p->worker_count, sizeof(*p->workers));
    choose_blocks(p);
    omp_set_num_threads(1); // oneDNN plans for the calling thread's setting
    dnnl_status_t status = p->workers ? make_workers(p, device) : dnnl_out_of_memory;
    if (status == dnnl_unimplemented && p->block_columns < shape->columns) {
        finish_workers(p);
        p->block_columns = shape->columns;
        status = make_workers(p, device);
    }
    omp_set_num_threads((int)device->threads);
    if (status == dnnl_success)
        status = make_reorders(p, device);
    const uint64_t pad = p->pack.scratch_bytes > p->turn.scratch_bytes ? p->pack.scratch_bytes
                                                                       : p->turn.scratch_bytes;
    if (pad > p->pad_bytes)
        p->pad_bytes = cpu_aligned(pad);
    if (status == dnnl_success) {
        *out = p;
        return LS_OK;
    }
    cpu_half_product_destroy(p);
    return status == dnnl_unimplemented ? CPU_COPIES
                                        : cpu_fail_dnnl(device, "product of halves", status);
}

// ---- Running ----

struct running {
    struct ls_device *device;
    struct cpu_half_product *product;
    const struct cpu_half_product_call *call;
    const char *left; // rows
    const char *right; // as the kernel has it
    char *pads;
    _Atomic dnnl_status_t status;
};

static void run_block(struct running *r, struct worker *worker, char *pad, int64_t i)
{
    const struct cpu_half_product *p = r->product;
    const struct cpu_half_product_shape *s = &p->shape;
    const int64_t row_block = i / p->column_blocks, column_block = i % p->column_blocks;
    const int64_t row = row_block * p->block_rows, column = column_block * p->block_columns;
    const int64_t half = (int64_t)ls_dtype_bytes(s->dtype);
    const int64_t packed =
        column / column_grain(&p->right) * p->right.format_desc.blocking.strides[1];
    const bool last_row = row_block && row_block + 1 == p->row_blocks,
               last_column = column_block && column_block + 1 == p->column_blocks;
    void *pointers[] = {
        [LEFT] = (char *)(uintptr_t)r->left + row * s->depth * half,
        [RIGHT] = (char *)(uintptr_t)r->right + packed * half,
        [RESULT] = (char *)r->call->result +
                   (row * s->columns + column) * (int64_t)ls_dtype_bytes(s->result_dtype),
        [BIAS] = s->bias ? (char *)(uintptr_t)r->call->bias + column * half : NULL,
    };
    const dnnl_status_t status =
        cpu_primitive_execute(&worker->blocks[last_row][last_column], r->device, pointers, pad);
    if (status != dnnl_success)
        r->status = status;
    else if (r->call->after)
        r->call->after(r->call->context, row, last_row ? s->rows - row : p->block_rows, column,
                       last_column ? s->columns - column : p->block_columns);
}

static void run_blocks(void *context, int64_t begin, int64_t end)
{
    struct running *r = context;
    const int32_t me = omp_get_thread_num();
    char *pad = cpu_past(r->pads, (uint64_t)me * r->product->pad_bytes);
    omp_set_num_threads(1); // of this task: nor may the library divide a block
    for (int64_t i = begin; i < end; i++)
        run_block(r, &r->product->workers[me], pad, i);
}

int32_t cpu_half_product_run(struct ls_device *device, struct cpu_half_product *product,
                             const struct cpu_half_product_call *call)
{
    char *turned = cpu_past(call->scratch, product->packed_bytes);
    struct running r = {.device = device,
                        .product = product,
                        .call = call,
                        .left = product->shape.left_transposed ? turned : call->left,
                        .right = product->takes_packed ? call->right : call->scratch,
                        .pads = cpu_past(turned, product->turned_bytes)};
    void *pack[] = {(void *)(uintptr_t)call->right, call->scratch},
         *turn[] = {(void *)(uintptr_t)call->left, turned};
    if (product->worker_count == 1)
        omp_set_num_threads(1);
    if (!product->takes_packed)
        r.status = cpu_primitive_execute(&product->pack, device, pack, r.pads);
    if (r.status == dnnl_success && product->shape.left_transposed)
        r.status = cpu_primitive_execute(&product->turn, device, turn, r.pads);
    if (r.status == dnnl_success)
        cpu_parallel(device, product->row_blocks * product->column_blocks, 1, product->work,
                     run_blocks, &r);
    return r.status == dnnl_success ? LS_OK : cpu_fail_dnnl(device, "product of halves", r.status);
}
