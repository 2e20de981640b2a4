// SPDX-License-Identifier: Apache-2.0
// Dense layers as matrix products on memory as it lies. The kernel's rows are in the order in which
// the activation before it lies in memory (layout.h), so that neither is ever converted, forward or
// backward. Each thread multiplies a slice of the result and finishes it (bias, activation) while
// it is in its cache. Halves are multiplied by half_product.c.
#include "core/plugin/half.h"
#include "plugins/device/cpu/cpu.h"
#include "plugins/device/cpu/half_product.h"
#include "plugins/device/cpu/layout.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

struct dense {
    int64_t rows, columns; // M, N
    int64_t depth; // K as it lies in memory, padding included
    bool bias;
    uint32_t adds; // bit i: sgemm adds into output i
    // x (or dx) lies in another layout than the kernel's rows: it is converted in scratch.
    struct ls_kernel *convert;
    uint64_t converted_bytes;
};

struct product {
    const struct cpu_elementwise_loops *loops;
    const struct dense *shape;
    const float *x, *w, *dy, *epilogue_y, *bias;
    float *y, *dx, *dw, *db;
    struct cpu_function function;
    uint32_t epilogue;
    float add_dw, add_dx;
    uint32_t add_db;
};

// One element of work is a multiplication and an addition; a thread does about 60 a nanosecond.
static double work_of(const struct dense *shape)
{
    return (double)shape->rows * (double)shape->columns * (double)shape->depth / 60.0;
}

enum { COLUMN_GRAIN = 48, ROW_GRAIN = 8 }; // tiles of oneDNN's product
enum { DATA_COLUMNS = 12 * COLUMN_GRAIN };
// Examples at a time of a gradient of weights: x is transposed inside the product, which is slower
// the further its rows reach.
enum { WEIGHTS_DEPTH = 512 };

// ---- forward: y = function(x w + b) ----

static void forward_slice(const struct product *p, int64_t row, int64_t rows, int64_t column,
                          int64_t columns)
{
    const struct dense *s = p->shape;
    float *y = p->y + row * s->columns + column;
    dnnl_sgemm('N', 'N', rows, columns, s->depth, 1.0f, p->x + row * s->depth, s->depth,
               p->w + column, s->columns, 0.0f, y, s->columns);
    if (p->bias || p->epilogue)
        p->loops->bias_activate(p->function, p->bias ? p->bias + column : NULL, y, rows, columns,
                                s->columns);
}

static void forward_columns(void *context, int64_t begin, int64_t end)
{
    const struct product *p = context;
    forward_slice(p, 0, p->shape->rows, begin, end - begin);
}

static void forward_rows(void *context, int64_t begin, int64_t end)
{
    const struct product *p = context;
    forward_slice(p, begin, end - begin, 0, p->shape->columns);
}

// ---- backward ----

static void data_slice(const struct product *p, int64_t row, int64_t rows, int64_t column,
                       int64_t columns)
{
    const struct dense *s = p->shape;
    float *dx = p->dx + row * s->depth + column;
    dnnl_sgemm('N', 'T', rows, columns, s->columns, 1.0f, p->dy + row * s->columns, s->columns,
               p->w + column * s->columns, s->columns, p->add_dx, dx, s->depth);
    if (p->epilogue)
        p->loops->activate_backward_rows(p->function, p->epilogue_y + row * s->depth + column,
                                         s->depth, dx, s->depth, rows, columns);
}

// Few columns at a time: w has to be transposed inside the product, and what is transposed at once
// should stay in the cache (half as fast otherwise).
static void data_columns(void *context, int64_t begin, int64_t end)
{
    const struct product *p = context;
    for (int64_t at = begin; at < end; at += DATA_COLUMNS)
        data_slice(p, 0, p->shape->rows, at, end - at < DATA_COLUMNS ? end - at : DATA_COLUMNS);
}

static void data_rows(void *context, int64_t begin, int64_t end)
{
    const struct product *p = context;
    data_slice(p, begin, end - begin, 0, p->shape->depth);
}

// Rows of dw, and a share of the columns of the bias gradient.
static void weights_rows(void *context, int64_t begin, int64_t end)
{
    const struct product *p = context;
    const struct dense *s = p->shape;
    for (int64_t at = 0; at < s->rows; at += WEIGHTS_DEPTH) {
        const int64_t depth = s->rows - at < WEIGHTS_DEPTH ? s->rows - at : WEIGHTS_DEPTH;
        dnnl_sgemm('T', 'N', end - begin, s->columns, depth, 1.0f, p->x + at * s->depth + begin,
                   s->depth, p->dy + at * s->columns, s->columns, at ? 1.0f : p->add_dw,
                   p->dw + begin * s->columns, s->columns);
    }
    if (!p->db)
        return;
    const int64_t first = begin * s->columns / s->depth, last = end * s->columns / s->depth;
    p->loops->column_sums(p->dy + first, s->rows, last - first, s->columns, p->add_db,
                          p->db + first);
}

// ---- launch ----

// A product that is too small for two threads must not be split by oneDNN either. The setting is
// that of the calling thread, made anew by every launch.
static void multiply(const struct ls_device *device, int64_t count, int64_t grain, cpu_body *body,
                     struct product *p)
{
    const double work = work_of(p->shape);
    if (!cpu_worth_threads(device, work))
        omp_set_num_threads(1);
    cpu_parallel(device, count, grain, work, body, p);
}

static struct product product_of(struct ls_device *device, const struct ls_kernel *kernel)
{
    return (struct product){.loops = device->loops->elementwise, .shape = kernel->state};
}

static int32_t convert(struct ls_device *device, const struct dense *s, const void *from, void *to,
                       void *scratch)
{
    void *arguments[] = {(void *)(uintptr_t)from, to};
    const struct cpu_call launch = {.arguments = arguments, .scratch = scratch};
    return s->convert->run(device, s->convert, &launch);
}

// x in the order of the kernel's rows.
static int32_t take_x(struct ls_device *device, const struct dense *s,
                      const struct cpu_call *launch, struct product *p)
{
    p->x = launch->arguments[0];
    if (!s->convert)
        return LS_OK;
    p->x = launch->scratch;
    return convert(device, s, launch->arguments[0], launch->scratch,
                   (char *)launch->scratch + s->converted_bytes);
}

static int32_t run_forward(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    const struct dense *s = kernel->state;
    struct product p = product_of(device, kernel);
    const int32_t status = take_x(device, s, launch, &p);
    if (status)
        return status;
    p.w = launch->arguments[1];
    p.bias = s->bias ? launch->arguments[2] : NULL;
    p.y = cpu_output(kernel, launch, 0);
    p.function = (struct cpu_function){kernel->attributes.epilogue_activation,
                                       kernel->attributes.epilogue_alpha};
    p.epilogue = kernel->attributes.epilogue;
    if (s->columns >= s->rows)
        multiply(device, s->columns, COLUMN_GRAIN, forward_columns, &p);
    else
        multiply(device, s->rows, ROW_GRAIN, forward_rows, &p);
    return LS_OK;
}

static int32_t run_backward_data(struct ls_device *device, struct ls_kernel *kernel,
                                 const struct cpu_call *launch)
{
    const struct dense *s = kernel->state;
    struct product p = product_of(device, kernel);
    p.dy = launch->arguments[0];
    p.w = launch->arguments[1];
    p.dx = s->convert ? launch->scratch : cpu_output(kernel, launch, 0);
    if (!s->convert && kernel->attributes.epilogue) {
        p.epilogue = kernel->attributes.epilogue;
        p.epilogue_y = launch->arguments[2];
        p.function = (struct cpu_function){kernel->attributes.epilogue_activation,
                                           kernel->attributes.epilogue_alpha};
    }
    if (s->depth >= s->rows)
        multiply(device, s->depth, COLUMN_GRAIN, data_columns, &p);
    else
        multiply(device, s->rows, ROW_GRAIN, data_rows, &p);
    if (!s->convert)
        return LS_OK;
    return convert(device, s, p.dx, cpu_output(kernel, launch, 0),
                   (char *)launch->scratch + s->converted_bytes);
}

static int32_t run_backward_weights(struct ls_device *device, struct ls_kernel *kernel,
                                    const struct cpu_call *launch)
{
    const struct dense *s = kernel->state;
    struct product p = product_of(device, kernel);
    const int32_t status = take_x(device, s, launch, &p);
    if (status)
        return status;
    p.dy = launch->arguments[1];
    p.dw = cpu_output(kernel, launch, 0);
    p.db = s->bias ? cpu_output(kernel, launch, 1) : NULL;
    p.add_dw = s->adds & 1 ? 1.0f : 0.0f;
    p.add_db = s->adds >> 1 & 1;
    multiply(device, s->depth, COLUMN_GRAIN, weights_rows, &p);
    return LS_OK;
}

// ---- halves ----

struct half_dense {
    struct cpu_half_product *product;
    uint64_t product_scratch; // bytes; behind them the sums of db, where it is to be rounded
};

static void finish_half(struct ls_kernel *kernel)
{
    const struct half_dense *h = kernel->state;
    if (h)
        cpu_half_product_destroy(h->product);
}

// What follows a product, on the block that has just been written: a function, or its derivative by
// y.
struct follow {
    const struct ls_device *device;
    struct cpu_function function;
    struct cpu_tensor result, y; // y: of the derivative
    int64_t columns; // of the whole result
};

static void follow_flat(const struct follow *f, int64_t begin, int64_t end)
{
    const struct cpu_elementwise_loops *loops = f->device->loops->elementwise;
    float room[CPU_CHUNK], y_room[CPU_CHUNK];
    if (f->y.at && f->function.activation == LS_RELU && f->y.dtype == f->result.dtype) {
        f->device->loops->half->relu_backward(f->y.dtype, (const uint16_t *)f->y.at + begin,
                                              (uint16_t *)f->result.at + begin, end - begin);
        return;
    }
    for (int64_t at = begin, n; at < end; at += n) {
        n = end - at < CPU_CHUNK ? end - at : CPU_CHUNK;
        const float *x = cpu_read(f->device, f->result, at, n, room);
        if (f->y.at)
            loops->activate_backward(f->function, x, cpu_read(f->device, f->y, at, n, y_room), room,
                                     n);
        else
            loops->activate(f->function, x, room, n);
        cpu_written(f->device, f->result, at, n, room);
    }
}

static void follow_block(void *context, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    const struct follow *f = context;
    if (columns == f->columns) {
        follow_flat(f, row * columns, (row + rows) * columns);
        return;
    }
    for (int64_t r = row; r < row + rows; r++)
        follow_flat(f, r * f->columns + column, r * f->columns + column + columns);
}

static int32_t run_half(struct ls_device *device, struct ls_kernel *kernel,
                        const struct cpu_call *launch)
{
    const struct half_dense *h = kernel->state;
    const struct ls_op_attributes *a = &kernel->attributes;
    const struct ls_tensor_desc *result = cpu_output_desc(kernel, 0);
    const bool derivative = a->epilogue == LS_OP_ACTIVATION_BACKWARD;
    struct follow follow = {
        .device = device,
        .function = {a->epilogue_activation, a->epilogue_alpha},
        .result = {cpu_output(kernel, launch, 0), result->dtype},
        .columns = result->dims[result->ndims - 1],
    };
    if (kernel->op == LS_OP_DENSE_BACKWARD_DATA)
        follow.columns = kernel->arguments[1].dims[0];
    if (derivative)
        follow.y = (struct cpu_tensor){launch->arguments[2], kernel->arguments[2].dtype};
    const bool follows = derivative || (a->epilogue == LS_OP_ACTIVATION &&
                                        !cpu_half_product_applies(a->epilogue_activation));
    const bool bias = kernel->op == LS_OP_DENSE && kernel->input_count > 2;
    const struct cpu_half_product_call call = {
        .left = launch->arguments[0],
        .right = launch->arguments[1],
        .bias = bias ? launch->arguments[2] : NULL,
        .result = follow.result.at,
        .scratch = launch->scratch,
        .after = follows ? follow_block : NULL,
        .context = &follow,
    };
    return cpu_half_product_run(device, h->product, &call);
}

struct sums {
    const struct cpu_half_loops *loops;
    const uint16_t *dy;
    uint32_t dtype;
    int64_t rows, columns;
    float *out;
};

static void sum_columns(void *context, int64_t begin, int64_t end)
{
    const struct sums *s = context;
    s->loops->column_sums(s->dtype, s->dy + begin, s->rows, end - begin, s->columns,
                          s->out + begin);
}

static int32_t run_half_weights(struct ls_device *device, struct ls_kernel *kernel,
                                const struct cpu_call *launch)
{
    const struct half_dense *h = kernel->state;
    const struct ls_tensor_desc *dy = &kernel->arguments[1], *dw = cpu_output_desc(kernel, 0);
    const struct cpu_half_product_call call = {.left = launch->arguments[0],
                                               .right = launch->arguments[1],
                                               .result = cpu_output(kernel, launch, 0),
                                               .scratch = launch->scratch};
    const int32_t status = cpu_half_product_run(device, h->product, &call);
    if (status || kernel->output_count == 1)
        return status;
    const bool rounded = cpu_output_desc(kernel, 1)->dtype != LS_F32;
    void *db = cpu_output(kernel, launch, 1);
    struct sums s = {device->loops->half, launch->arguments[1], dy->dtype, 0, dw->dims[1], db};
    s.rows = (int64_t)ls_tensor_elements(dy) / s.columns;
    if (rounded)
        s.out = (float *)(void *)((char *)launch->scratch + h->product_scratch);
    cpu_parallel(device, s.columns, 64, (double)s.rows * (double)s.columns * 0.1, sum_columns, &s);
    if (rounded)
        device->loops->half->narrow(dy->dtype, s.out, db, s.columns);
    return LS_OK;
}

// All plain but weights that are read, which lie as the kernel has them: anything else is done on
// copies. w and y may be gradients.
static int32_t prepare_half(struct ls_device *device, const struct ls_kernel_request *request,
                            struct ls_kernel *kernel, struct ls_kernel_answer *answer,
                            struct ls_tensor_desc *w, const struct ls_tensor_desc *y)
{
    const struct ls_op_attributes *a = &request->attributes;
    const bool weights = request->op == LS_OP_DENSE_BACKWARD_WEIGHTS;
    struct cpu_half_product_shape shape = {
        .rows = (int64_t)ls_tensor_elements(y) / w->dims[1],
        .columns = w->dims[1],
        .depth = w->dims[0],
        .dtype = kernel->arguments[0].dtype,
        .result_dtype = cpu_output_desc(kernel, 0)->dtype,
        .bias = request->op == LS_OP_DENSE && request->input_count > 2,
    };
    for (uint32_t i = 0; i < request->input_count + request->output_count; i++) {
        struct ls_tensor_desc *desc = &kernel->arguments[i];
        if (desc == w && !weights)
            continue;
        if (desc->layout.kind == LS_LAYOUT_ANY)
            cpu_layout_plain(desc, &desc->layout);
        if (desc->layout.kind != LS_LAYOUT_PLAIN)
            return CPU_COPIES;
    }
    if (w->ndims != 2)
        return CPU_COPIES;
    if (request->op == LS_OP_DENSE_BACKWARD_DATA) {
        shape.right_transposed = true;
        shape.columns = w->dims[0];
        shape.depth = w->dims[1];
    } else if (weights) {
        shape.left_transposed = true;
        shape.depth = shape.rows;
        shape.rows = w->dims[0];
        shape.add = (kernel->accumulate & 1) != 0 && shape.result_dtype == LS_F32;
        if (shape.add)
            kernel->accumulate &= ~UINT32_C(1);
    }
    if (a->epilogue == LS_OP_ACTIVATION && cpu_half_product_applies(a->epilogue_activation))
        shape.function = (struct cpu_function){a->epilogue_activation, a->epilogue_alpha};
    struct half_dense *h = cpu_state(device, sizeof(*h));
    if (!h)
        return LS_OUT_OF_MEMORY;
    kernel->state = h;
    kernel->finish = finish_half;
    const int32_t status = cpu_half_product_create(device, &shape, &h->product);
    if (status)
        return status;
    if (!weights && w->layout.kind != LS_LAYOUT_PLAIN) {
        struct ls_layout packed;
        if (!cpu_half_product_layout(h->product, w, &packed))
            cpu_layout_plain(w, &packed);
        if (w->layout.kind == LS_LAYOUT_ANY)
            w->layout = packed;
        if (memcmp(&w->layout, &packed, sizeof(packed)) != 0)
            return CPU_COPIES;
        if (packed.kind == LS_LAYOUT_OWN)
            cpu_half_product_take_packed(h->product);
    }
    kernel->run = weights ? run_half_weights : run_half;
    kernel->epilogue.op = LS_OP_NONE;
    h->product_scratch = cpu_aligned(cpu_half_product_scratch(h->product));
    answer->scratch_bytes = h->product_scratch;
    if (weights && request->output_count > 1 && cpu_output_desc(kernel, 1)->dtype != LS_F32)
        answer->scratch_bytes += (uint64_t)w->dims[1] * sizeof(float);
    snprintf(answer->implementation, sizeof(answer->implementation), "oneDNN %s",
             cpu_half_product_name(h->product));
    return LS_OK;
}

// ---- prepare ----

static void finish_dense(struct ls_kernel *kernel)
{
    struct dense *s = kernel->state;
    if (!s || !s->convert)
        return;
    if (s->convert->finish)
        s->convert->finish(s->convert);
    free(s->convert->state);
    free(s->convert);
}

// A conversion between x's layout and the one that the kernel's rows follow, inside this kernel.
static int32_t plan_conversion(struct ls_device *device, struct dense *s,
                               const struct ls_tensor_desc *from, const struct ls_tensor_desc *to,
                               uint64_t converted_bytes, struct ls_kernel_answer *answer)
{
    const struct ls_tensor_desc arguments[2] = {*from, *to};
    const struct ls_kernel_request request = {.struct_size = sizeof(request),
                                              .op = LS_OP_CONVERT,
                                              .input_count = 1,
                                              .output_count = 1,
                                              .arguments = arguments};
    struct ls_layout layouts[2] = {{0}};
    struct ls_kernel_answer inner = {.struct_size = sizeof(inner), .layouts = layouts};
    s->convert = cpu_state(device, sizeof(*s->convert));
    if (!s->convert)
        return LS_OUT_OF_MEMORY;
    s->convert->op = LS_OP_CONVERT;
    s->convert->input_count = s->convert->output_count = 1;
    memcpy(s->convert->arguments, arguments, sizeof(arguments));
    s->converted_bytes = cpu_aligned(converted_bytes);
    const int32_t status = cpu_convert(device, &request, s->convert, &inner);
    answer->scratch_bytes = s->converted_bytes + inner.scratch_bytes;
    return status;
}

// Settles layouts and sizes. x, w, y may be gradients; `x_written`: dx is an output.
static int32_t prepare_dense(struct ls_device *device, const struct ls_kernel_request *request,
                             struct ls_kernel *kernel, struct ls_kernel_answer *answer,
                             struct ls_tensor_desc *x, struct ls_tensor_desc *w,
                             struct ls_tensor_desc *y, bool x_written)
{
    struct ls_layout fitting;
    if (x->dtype != LS_F32 || w->dtype != LS_F32 || w->ndims != 2)
        return cpu_unsupported(device, request, "only float32, kernels of two dimensions");
    struct dense *s = cpu_state(device, sizeof(*s));
    if (!s)
        return LS_OUT_OF_MEMORY;
    kernel->state = s;
    kernel->finish = finish_dense;
    if (x->layout.kind == LS_LAYOUT_ANY)
        cpu_layout_plain(x, &x->layout);
    if (y->layout.kind == LS_LAYOUT_ANY)
        cpu_layout_plain(y, &y->layout);
    if (y->layout.kind != LS_LAYOUT_PLAIN)
        return cpu_unsupported(device, request, "the output of a dense layer is plain");
    const bool fits = cpu_layout_dense(x, w, &fitting);
    if (w->layout.kind == LS_LAYOUT_ANY) {
        if (fits)
            w->layout = fitting;
        else
            cpu_layout_plain(w, &w->layout);
    }
    s->columns = w->dims[1];
    s->rows = (int64_t)ls_tensor_elements(y) / s->columns;
    s->depth = (int64_t)(w->layout.bytes / sizeof(float)) / s->columns;
    if (fits && memcmp(&fitting, &w->layout, sizeof(fitting)) == 0)
        return LS_OK;
    struct ls_tensor_desc inner = *x;
    if (w->layout.kind == LS_LAYOUT_PLAIN)
        cpu_layout_plain(x, &inner.layout);
    else if (cpu_layout_role(&w->layout) == CPU_DENSE_ROWS && x->ndims == 4)
        cpu_layout_of_rows(&w->layout, x, &inner.layout);
    else
        return cpu_unsupported(device, request,
                               "the kernel's rows are in the order of another activation");
    return plan_conversion(device, s, x_written ? &inner : x, x_written ? x : &inner,
                           inner.layout.bytes, answer);
}

int32_t cpu_dense_forward(struct ls_device *device, const struct ls_kernel_request *request,
                          struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    if (ls_dtype_is_half(request->arguments[0].dtype))
        return prepare_half(device, request, kernel, answer, &kernel->arguments[1],
                            cpu_output_desc(kernel, 0));
    const int32_t status = prepare_dense(device, request, kernel, answer, &kernel->arguments[0],
                                         &kernel->arguments[1], cpu_output_desc(kernel, 0), false);
    if (status)
        return status;
    ((struct dense *)kernel->state)->bias = request->input_count > 2;
    kernel->run = run_forward;
    kernel->epilogue.op = LS_OP_NONE;
    snprintf(answer->implementation, sizeof(answer->implementation), "oneDNN sgemm + own %s",
             device->loops->name);
    return LS_OK;
}

int32_t cpu_dense_backward_data(struct ls_device *device, const struct ls_kernel_request *request,
                                struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    if (ls_dtype_is_half(request->arguments[0].dtype))
        return prepare_half(device, request, kernel, answer, &kernel->arguments[1],
                            &kernel->arguments[0]);
    const int32_t status =
        prepare_dense(device, request, kernel, answer, cpu_output_desc(kernel, 0),
                      &kernel->arguments[1], &kernel->arguments[0], true);
    if (status)
        return status;
    kernel->run = run_backward_data;
    if (!((struct dense *)kernel->state)->convert)
        kernel->epilogue.op = LS_OP_NONE;
    snprintf(answer->implementation, sizeof(answer->implementation), "oneDNN sgemm + own %s",
             device->loops->name);
    return LS_OK;
}

int32_t cpu_dense_backward_weights(struct ls_device *device,
                                   const struct ls_kernel_request *request,
                                   struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    if (ls_dtype_is_half(request->arguments[0].dtype))
        return prepare_half(device, request, kernel, answer, cpu_output_desc(kernel, 0),
                            &kernel->arguments[1]);
    const int32_t status = prepare_dense(device, request, kernel, answer, &kernel->arguments[0],
                                         cpu_output_desc(kernel, 0), &kernel->arguments[1], false);
    if (status)
        return status;
    struct dense *s = kernel->state;
    s->bias = request->output_count > 1;
    s->adds = kernel->accumulate; // sgemm adds by itself
    kernel->run = run_backward_weights;
    kernel->accumulate = 0;
    snprintf(answer->implementation, sizeof(answer->implementation), "oneDNN sgemm + own %s",
             device->loops->name);
    return LS_OK;
}
