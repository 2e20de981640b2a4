// SPDX-License-Identifier: Apache-2.0
// A convolution of bfloat16 as a product of matrices: a row for each pixel of y, as deep as the
// kernel has taps and x has channels. For a kernel of one pixel x is that matrix, and a product
// over all examples reads the kernel once, where a convolution reads it for each example. Where y
// has few pixels this pays for larger kernels, too: the rows are gathered first, or their gradients
// are added up afterwards, in float32.
#include "plugins/device/cpu/convolution_choice.h"
#include "plugins/device/cpu/layout.h"

#include <omp.h>
#include <string.h>

enum {
    FEW_PIXELS = 8, // of y, for which y and dx are products
    FEW_PIXELS_WEIGHTS = 16, // and dw
    FEW_ROWS = 512, // less than which the library writes dw faster in blocks
};

// ---- Which convolutions ----

static bool lies_plain(const struct ls_tensor_desc *desc)
{
    return desc->layout.kind == LS_LAYOUT_ANY || desc->layout.kind == LS_LAYOUT_PLAIN;
}

// Whether rows are read where x has them.
static bool is_pointwise(const struct cpu_conv_product *p)
{
    return p->kernel[0] == 1 && p->kernel[1] == 1;
}

static bool see(uint32_t op, const struct cpu_conv_geometry *g, struct cpu_conv_product *out)
{
    const int64_t *x = g->x->dims, *y = g->y->dims;
    *out = (struct cpu_conv_product){.op = op, .examples = x[0], .channels = x[3]};
    bool padded = false;
    for (int i = 0; i < 2; i++) {
        out->kernel[i] = g->w->dims[i];
        out->strides[i] = g->strides[i];
        out->dilation[i] = g->dilation[i] + 1;
        out->before[i] = g->before[i];
        out->x_size[i] = x[1 + i];
        out->y_size[i] = y[1 + i];
        padded |= g->before[i] != 0 || g->after[i] != 0;
    }
    const int64_t pixels = y[1] * y[2];
    const bool few =
        pixels <= (op == LS_OP_CONV2D_BACKWARD_WEIGHTS ? FEW_PIXELS_WEIGHTS : FEW_PIXELS);
    out->rows = x[0] * pixels;
    out->depth = out->kernel[0] * out->kernel[1] * x[3];
    out->gathers = !is_pointwise(out) || padded || g->strides[0] != 1 || g->strides[1] != 1;
    return g->x->ndims == 4 && g->groups == 1 && lies_plain(g->x) && lies_plain(g->y) &&
           g->x->dtype == LS_BF16 && (is_pointwise(out) || few) && out->rows > 0;
}

// ---- The product ----

struct matrices {
    dnnl_memory_desc_t x, w, b, y;
};

static dnnl_status_t describe_matrices(const struct cpu_conv_geometry *g,
                                       const struct cpu_conv_product *p, int64_t rows,
                                       struct matrices *out)
{
    const bool backward = p->op == LS_OP_CONV2D_BACKWARD_DATA;
    const dnnl_dims_t x = {rows, p->depth}, y = {rows, g->y->dims[3]},
                      w = {g->y->dims[3], p->depth}, b = {g->y->dims[3]};
    const uint32_t kind = g->w->layout.kind;
    const bool many = p->op == LS_OP_CONV2D_BACKWARD_WEIGHTS && p->rows >= FEW_ROWS;
    const bool any = kind == LS_LAYOUT_OWN || (kind == LS_LAYOUT_ANY && !many);
    dnnl_status_t status = dnnl_memory_desc_init_by_tag(
        &out->x, 2, x, p->gathers && backward ? dnnl_f32 : dnnl_bf16, dnnl_ab);
    if (status == dnnl_success)
        status = dnnl_memory_desc_init_by_tag(&out->y, 2, y, dnnl_bf16, dnnl_ab);
    if (status == dnnl_success)
        status = dnnl_memory_desc_init_by_tag(&out->b, 1, b, dnnl_bf16, dnnl_a);
    if (status == dnnl_success)
        status = dnnl_memory_desc_init_by_tag(&out->w, 2, w, cpu_dnnl_type(g->w->dtype),
                                              any ? dnnl_format_tag_any : dnnl_ba);
    return status;
}

static dnnl_status_t make_desc(struct ls_device *device, uint32_t op, const struct matrices *m,
                               bool bias, const_dnnl_primitive_attr_t attributes,
                               dnnl_primitive_desc_t *out)
{
    dnnl_inner_product_desc_t desc;
    dnnl_status_t status;
    if (op == LS_OP_CONV2D)
        status = dnnl_inner_product_forward_desc_init(&desc, dnnl_forward_training, &m->x, &m->w,
                                                      bias ? &m->b : NULL, &m->y);
    else if (op == LS_OP_CONV2D_BACKWARD_DATA)
        status = dnnl_inner_product_backward_data_desc_init(&desc, &m->x, &m->w, &m->y);
    else
        status = dnnl_inner_product_backward_weights_desc_init(&desc, &m->x, &m->w, NULL, &m->y);
    return status != dnnl_success
               ? status
               : dnnl_primitive_desc_create(out, &desc, attributes, device->engine, NULL);
}

// The layout of the kernel (height, width, C, F) that the product reads as (F, height width C).
static bool layout_of_kernel(const struct ls_tensor_desc *w, const dnnl_memory_desc_t *product,
                             struct ls_layout *out)
{
    const int64_t *d = w->dims, taps = d[0] * d[1];
    const dnnl_blocking_desc_t *from = &product->format_desc.blocking;
    dnnl_memory_desc_t md = *product;
    dnnl_blocking_desc_t *to = &md.format_desc.blocking;
    int64_t block = 1; // of channels
    for (int i = 0; i < from->inner_nblks; i++)
        block *= from->inner_idxs[i] == 1 ? from->inner_blks[i] : 1;
    if (product->format_kind != dnnl_blocked || (taps > 1 && d[2] % block != 0))
        return false;
    const dnnl_dims_t dims = {d[3], d[2], d[0], d[1]};
    md.ndims = 4;
    memcpy(md.dims, dims, sizeof(dims));
    memcpy(md.padded_dims, dims, sizeof(dims));
    md.padded_dims[0] = product->padded_dims[0];
    md.padded_dims[1] = product->padded_dims[1] / taps;
    to->strides[3] = from->strides[1] * (md.padded_dims[1] / block);
    to->strides[2] = to->strides[3] * d[1];
    return cpu_layout_of(CPU_KERNEL, w, 1, &md, out);
}

static bool is_fast(uint32_t op, const_dnnl_primitive_desc_t desc)
{
    const char *name = cpu_primitive_name(desc);
    return op == LS_OP_CONV2D_BACKWARD_WEIGHTS ? strncmp(name, "ref", 3) != 0
                                               : strstr(name, "amx") != NULL;
}

static uint64_t size_of(const dnnl_memory_desc_t *md)
{
    return dnnl_memory_desc_get_size(md);
}

// Each thread reads all of w, or writes a dw of its own: not where that is more than the rest.
static int32_t parts_of(const struct ls_device *device, const struct cpu_conv_geometry *g,
                        const struct cpu_conv_product *p)
{
    const uint64_t w = ls_tensor_elements(g->w) * ls_dtype_bytes(g->w->dtype);
    const uint64_t rest = 2 * (ls_tensor_elements(g->x) + ls_tensor_elements(g->y));
    const bool sums = p->op != LS_OP_CONV2D_BACKWARD_WEIGHTS || g->w->dtype == LS_F32;
    return cpu_worth_threads(device, p->work) && p->examples % device->threads == 0 && sums &&
                   w * (device->threads - 1) <= rest
               ? (int32_t)device->threads
               : 1;
}

// As the parts of one argument follow each other.
static void set_steps(const struct cpu_conv_geometry *g, const struct cpu_conv_product *p,
                      const struct matrices *m, const_dnnl_primitive_desc_t desc,
                      struct cpu_parts *parts)
{
    if (parts->count == 1)
        return;
    if (p->op == LS_OP_CONV2D) {
        parts->steps[0] = size_of(&m->x);
        parts->steps[g->bias ? 3 : 2] = size_of(&m->y);
    } else if (p->op == LS_OP_CONV2D_BACKWARD_DATA) {
        parts->steps[0] = size_of(&m->y);
        parts->steps[2] = size_of(&m->x);
    } else {
        parts->steps[0] = size_of(&m->x);
        parts->steps[1] = size_of(&m->y);
        parts->sum_pointer = 2;
        parts->sum_bytes =
            size_of(dnnl_primitive_desc_query_md(desc, dnnl_query_diff_weights_md, 0));
    }
}

dnnl_status_t cpu_conv_product_init(struct ls_device *device, uint32_t op,
                                    const struct cpu_conv_geometry *g,
                                    const_dnnl_primitive_attr_t attributes,
                                    struct cpu_conv_product *out, struct cpu_parts *parts)
{
    const uint32_t unit = dnnl_cpu_isa_avx512_core_amx;
    struct ls_tensor_desc w = *g->w;
    struct matrices m;
    dnnl_primitive_desc_t desc = NULL;
    if (((uint32_t)dnnl_get_effective_cpu_isa() & unit) != unit || !see(op, g, out))
        return dnnl_unimplemented;
    out->work = (double)out->rows * (double)(out->depth * g->y->dims[3]) / 1000.0;
    const int32_t count = parts_of(device, g, out);
    omp_set_num_threads(count > 1 ? 1 : (int)device->threads); // for which a part is made
    dnnl_status_t status = describe_matrices(g, out, out->rows / count, &m);
    if (status == dnnl_success)
        status = make_desc(device, op, &m, g->bias, attributes, &desc);
    const dnnl_query_t query =
        op == LS_OP_CONV2D_BACKWARD_WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
    if (status == dnnl_success &&
        (!is_fast(op, desc) ||
         !layout_of_kernel(g->w, dnnl_primitive_desc_query_md(desc, query, 0), &w.layout) ||
         (g->w->layout.kind != LS_LAYOUT_ANY &&
          memcmp(&g->w->layout, &w.layout, sizeof(w.layout)) != 0))) {
        dnnl_primitive_desc_destroy(desc);
        status = dnnl_unimplemented;
    }
    if (status == dnnl_success)
        status = cpu_parts_init(parts, desc, count);
    omp_set_num_threads((int)device->threads);
    if (status != dnnl_success)
        return status;
    parts->work = out->work;
    set_steps(g, out, &m, desc, parts);
    g->w->layout = w.layout;
    cpu_layout_plain(g->x, &g->x->layout);
    cpu_layout_plain(g->y, &g->y->layout);
    if (out->gathers)
        out->rows_bytes = cpu_aligned((uint64_t)count * size_of(&m.x));
    return dnnl_success;
}

// ---- Rows of the taps ----

struct rows {
    const struct ls_device *device;
    const struct cpu_conv_product *product;
    uint16_t *x; // or dx
    void *rows; // (rows, depth): halves of x, or float32 gradients
};

// The pixel of x that a tap meets, in one direction; -1: padding.
static int64_t meets(const struct cpu_conv_product *p, int d, int64_t pixel, int64_t tap)
{
    const int64_t at = pixel * p->strides[d] + tap * p->dilation[d] - p->before[d];
    return at < p->x_size[d] ? at : -1;
}

static void gather_rows(void *context, int64_t begin, int64_t end)
{
    const struct rows *r = context;
    const struct cpu_conv_product *p = r->product;
    const int64_t pixels = p->y_size[0] * p->y_size[1], c = p->channels;
    uint16_t *to = (uint16_t *)r->rows + begin * p->depth;
    for (int64_t row = begin; row < end; row++) {
        const uint16_t *x = r->x + row / pixels * p->x_size[0] * p->x_size[1] * c;
        const int64_t i = row % pixels / p->y_size[1], j = row % p->y_size[1];
        for (int64_t k = 0; k < p->kernel[0]; k++)
            for (int64_t l = 0; l < p->kernel[1]; l++, to += c) {
                const int64_t y_at = meets(p, 0, i, k), x_at = meets(p, 1, j, l);
                if (y_at < 0 || x_at < 0)
                    memset(to, 0, (size_t)c * sizeof(*to));
                else
                    memcpy(to, x + (y_at * p->x_size[1] + x_at) * c, (size_t)c * sizeof(*to));
            }
    }
}

// The pixel of y whose tap meets pixel `at` of x, in one direction; -1: there is none.
static int64_t met_by(const struct cpu_conv_product *p, int d, int64_t at, int64_t tap)
{
    const int64_t from = at + p->before[d] - tap * p->dilation[d];
    return from >= 0 && from % p->strides[d] == 0 && from / p->strides[d] < p->y_size[d]
               ? from / p->strides[d]
               : -1;
}

// Channels c .. c + n of pixel (i, j) of x: the sum of what all taps that meet it have.
static void add_taps(const struct rows *r, const float *example, int64_t i, int64_t j, int64_t c,
                     int64_t n, float *sum)
{
    const struct cpu_conv_product *p = r->product;
    memset(sum, 0, (size_t)n * sizeof(*sum));
    for (int64_t k = 0; k < p->kernel[0]; k++)
        for (int64_t l = 0; l < p->kernel[1]; l++) {
            const int64_t row = met_by(p, 0, i, k), column = met_by(p, 1, j, l);
            if (row < 0 || column < 0)
                continue;
            const float *tap = example + (row * p->y_size[1] + column) * p->depth +
                               (k * p->kernel[1] + l) * p->channels + c;
            r->device->loops->elementwise->add(sum, tap, sum, n);
        }
}

// Pixels of x.
static void add_rows(void *context, int64_t begin, int64_t end)
{
    const struct rows *r = context;
    const struct cpu_conv_product *p = r->product;
    const int64_t pixels = p->x_size[0] * p->x_size[1], width = p->x_size[1];
    float sum[CPU_CHUNK];
    for (int64_t at = begin; at < end; at++) {
        const float *example =
            (const float *)r->rows + at / pixels * p->y_size[0] * p->y_size[1] * p->depth;
        for (int64_t c = 0, n; c < p->channels; c += n) {
            n = p->channels - c < CPU_CHUNK ? p->channels - c : CPU_CHUNK;
            add_taps(r, example, at % pixels / width, at % width, c, n, sum);
            r->device->loops->half->narrow(LS_BF16, sum, r->x + at * p->channels + c, n);
        }
    }
}

// `pointers` as those of the convolution's primitive.
dnnl_status_t cpu_conv_product_run(struct ls_device *device, const struct cpu_conv_product *product,
                                   struct cpu_parts *parts, void **pointers, void *scratch)
{
    const bool backward = product->op == LS_OP_CONV2D_BACKWARD_DATA;
    struct rows r = {device, product, pointers[backward ? 2 : 0], scratch};
    const double work = (double)(product->rows * product->depth) * 0.1;
    if (product->gathers && backward)
        pointers[2] = scratch;
    if (product->gathers && !backward) {
        cpu_parallel(device, product->rows, 1, work, gather_rows, &r);
        pointers[0] = scratch;
    }
    const dnnl_status_t status =
        cpu_parts_run(parts, device, pointers, cpu_past(scratch, product->rows_bytes));
    if (status == dnnl_success && product->gathers && backward)
        cpu_parallel(device, product->examples * product->x_size[0] * product->x_size[1], 1, work,
                     add_rows, &r);
    return status;
}
