// SPDX-License-Identifier: Apache-2.0
// Activation, sum of two tensors, dropout, and floats from bytes. But for the last two they run over the memory as it
// lies, in any layout.
#include "plugins/device/cpu/cpu.h"
#include "plugins/device/cpu/layout.h"

bool cpu_activation_keeps_zero(uint32_t activation)
{
    return activation != LS_SIGMOID && activation != LS_SOFTPLUS && activation != LS_EXPONENTIAL &&
           activation != LS_HARD_SIGMOID;
}

// Nanoseconds per element on one thread, roughly.
static double activation_cost(uint32_t activation)
{
    switch (activation) {
    case LS_LINEAR:
    case LS_RELU:
    case LS_LEAKY_RELU:
    case LS_RELU6: return 0.15;
    default: return 0.6;
    }
}

// ---- loops ----

struct elementwise {
    const struct cpu_elementwise_loops *loops;
    struct cpu_function function;
};

static void activate(const void *context, const float *const *in, float *const *out, int64_t n)
{
    const struct elementwise *e = context;
    e->loops->activate(e->function, in[0], out[0], n);
}

static void activate_backward(const void *context, const float *const *in, float *const *out,
                              int64_t n)
{
    const struct elementwise *e = context;
    e->loops->activate_backward(e->function, in[0], in[1], out[0], n);
}

static void add(const void *context, const float *const *in, float *const *out, int64_t n)
{
    const struct elementwise *e = context;
    e->loops->add(in[0], in[1], out[0], n);
}

static void maximum(const void *context, const float *const *in, float *const *out, int64_t n)
{
    const struct elementwise *e = context;
    e->loops->maximum(in[0], in[1], out[0], n);
}

static void maximum_backward(const void *context, const float *const *in, float *const *out,
                             int64_t n)
{
    const struct elementwise *e = context;
    e->loops->maximum_backward(in[0], in[1], in[2], out[0], out[1], n);
}

enum { GRAIN = 1024 }; // elements: parts begin at whole cache lines

static void activate_tensor(struct ls_device *device, struct cpu_function function, const void *x,
                            void *y, const struct ls_tensor_desc *desc)
{
    const struct elementwise e = {device->loops->elementwise, function};
    const struct cpu_flat flat = {activate, &e, desc->dtype, cpu_elements(desc), {x}, {y}};
    cpu_flat_run(device, &flat, activation_cost(function.activation));
    if (!cpu_activation_keeps_zero(function.activation))
        cpu_zero_padding(desc, y);
}

static void activate_backward_tensor(struct ls_device *device, struct cpu_function function,
                                     const void *dy, const void *y, void *dx,
                                     const struct ls_tensor_desc *desc)
{
    const struct elementwise e = {device->loops->elementwise, function};
    const struct cpu_flat flat = {activate_backward,  &e,      desc->dtype,
                                  cpu_elements(desc), {dy, y}, {dx}};
    cpu_flat_run(device, &flat, activation_cost(function.activation));
}

void cpu_add_into(struct ls_device *device, const struct ls_tensor_desc *desc, const void *from,
                  void *into)
{
    const struct elementwise e = {device->loops->elementwise, {0}};
    const struct cpu_flat flat = {add, &e, desc->dtype, cpu_elements(desc), {from, into}, {into}};
    cpu_flat_run(device, &flat, 0.15);
}

void cpu_epilogue_run(struct ls_device *device, const struct ls_kernel *kernel,
                      const struct cpu_call *launch, void *output)
{
    const struct cpu_epilogue *epilogue = &kernel->epilogue;
    const struct cpu_function function = {epilogue->activation, epilogue->alpha};
    const struct ls_tensor_desc *desc = &kernel->arguments[kernel->input_count];
    if (epilogue->op == LS_OP_ACTIVATION)
        activate_tensor(device, function, output, output, desc);
    else if (epilogue->op == LS_OP_ACTIVATION_BACKWARD)
        activate_backward_tensor(device, function, output, launch->arguments[epilogue->input],
                                 output, desc);
}

// ---- operations ----

// Each is a loop over all its inputs and outputs, which are of one type and lie alike.
static const struct operation {
    uint32_t op;
    cpu_flat_loop *loop;
    uint32_t inputs, in_place;
    double cost; // 0: that of the activation
    const char *name;
} operations[] = {
    {LS_OP_ACTIVATION, activate, 1, 1, 0, "activation"},
    {LS_OP_ACTIVATION_BACKWARD, activate_backward, 2, 3, 0, "activation"},
    {LS_OP_ADD, add, 2, 3, 0.15, "add"},
    {LS_OP_MAXIMUM, maximum, 2, 3, 0.15, "maximum"},
    {LS_OP_MAXIMUM_BACKWARD, maximum_backward, 3, 3, 0.3, "maximum"},
};

static const struct operation *operation_of(uint32_t op)
{
    const struct operation *operation = operations;
    while (operation->op != op)
        operation++;
    return operation;
}

static int32_t run_flat(struct ls_device *device, struct ls_kernel *kernel,
                        const struct cpu_call *launch)
{
    const struct operation *operation = operation_of(kernel->op);
    const struct ls_op_attributes *a = &kernel->attributes;
    const struct elementwise e = {device->loops->elementwise, {a->activation, a->activation_alpha}};
    const struct ls_tensor_desc *y = cpu_output_desc(kernel, 0);
    struct cpu_flat flat = {operation->loop, &e, y->dtype, cpu_elements(y), {NULL}, {NULL}};
    for (uint32_t i = 0; i < kernel->output_count; i++)
        flat.out[i] = cpu_output(kernel, launch, i);
    for (uint32_t i = 0; i < operation->inputs; i++)
        flat.in[i] = launch->arguments[i];
    cpu_flat_run(device, &flat,
                 operation->cost > 0 ? operation->cost : activation_cost(a->activation));
    if (kernel->op == LS_OP_ACTIVATION && !cpu_activation_keeps_zero(a->activation))
        cpu_zero_padding(y, flat.out[0]);
    return LS_OK;
}

int32_t cpu_elementwise(struct ls_device *device, const struct ls_kernel_request *request,
                        struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const struct operation *operation = operation_of(request->op);
    kernel->run = run_flat;
    answer->in_place = operation->in_place;
    cpu_implementation(device, answer, operation->name);
    return cpu_same_layout(device, request, kernel,
                           ((1U << operation->inputs) - 1) | ((1U << request->output_count) - 1)
                                                                 << request->input_count);
}

// ---- floats from bytes ----

struct bytes {
    const struct cpu_elementwise_loops *loops;
    const uint8_t *x;
    float *y;
    float divisor;
};

static void from_bytes_part(void *context, int64_t begin, int64_t end)
{
    const struct bytes *b = context;
    b->loops->from_bytes(b->divisor, b->x + begin, b->y + begin, end - begin);
}

static int32_t run_from_bytes(struct ls_device *device, struct ls_kernel *kernel,
                              const struct cpu_call *launch)
{
    struct bytes b = {device->loops->elementwise, launch->arguments[0],
                      cpu_output(kernel, launch, 0), kernel->attributes.divisor};
    const uint64_t count = cpu_elements(cpu_output_desc(kernel, 0));
    cpu_parallel(device, (int64_t)count, GRAIN, (double)count * 0.15, from_bytes_part, &b);
    return LS_OK;
}

int32_t cpu_from_bytes(struct ls_device *device, const struct ls_kernel_request *request,
                       struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const struct ls_tensor_desc *x = &request->arguments[0], *y = &request->arguments[1];
    kernel->run = run_from_bytes;
    cpu_implementation(device, answer, "division of bytes");
    if (x->dtype != LS_U8 || y->dtype != LS_F32 || ls_tensor_elements(x) != ls_tensor_elements(y))
        return cpu_unsupported(device, request, "not from bytes to as many floats");
    if (x->layout.kind == LS_LAYOUT_OWN || y->layout.kind == LS_LAYOUT_OWN ||
        request->attributes.epilogue)
        return cpu_unsupported(device, request, "only plain layouts, without an epilogue");
    return LS_OK;
}

// ---- dropout ----

struct dropout {
    const struct ls_device *device;
    const struct ls_op_attributes *attributes;
    const struct ls_step_record *record;
    struct cpu_tensor x, y;
    int64_t elements; // of an example, plain
    struct cpu_view view;
    const struct ls_tensor_desc *desc;
    int64_t draws[LS_MAX_DIMS]; // distance to the next draw along each dimension, 0: it is shared
};

static bool shares_draws(const struct ls_op_attributes *attributes)
{
    bool any = false;
    for (int i = 0; i < LS_MAX_DIMS; i++)
        any |= attributes->axes[i] != 0;
    return any;
}

static void find_draws(struct dropout *d)
{
    int64_t distance = 1;
    for (uint32_t i = d->desc->ndims; i > 1; i--) {
        const bool shared = d->attributes->axes[i - 1] != 0;
        d->draws[i - 1] = shared ? 0 : distance;
        distance *= shared ? 1 : d->desc->dims[i - 1];
    }
}

// `count` elements from `at` on, which share the draw, or the first of which has it.
static void drop_run(const struct dropout *d, uint64_t key, int64_t draw, bool shared, int64_t at,
                     int64_t count)
{
    const struct cpu_elementwise_loops *loops = d->device->loops->elementwise;
    const int64_t most = d->x.dtype == LS_F32 ? count : CPU_CHUNK;
    const float rate = d->attributes->rate;
    float room[CPU_CHUNK];
    for (int64_t i = 0, n; i < count; i += n) {
        n = count - i < most ? count - i : most;
        const float *x = cpu_read(d->device, d->x, at + i, n, room);
        float *y = cpu_target(d->y, at + i, room);
        if (shared)
            loops->dropout_shared(key, (uint32_t)draw, rate, x, y, n);
        else
            loops->dropout(key, (uint32_t)(draw + i), rate, x, y, n);
        cpu_written(d->device, d->y, at + i, n, y);
    }
}

// Shared draws, plain: rows of the last dimension.
static void dropout_rows(void *context, int64_t begin, int64_t end)
{
    const struct dropout *d = context;
    const uint32_t last = d->desc->ndims - 1;
    const bool shared = d->draws[last] == 0;
    const int64_t columns = d->desc->dims[last], rows = d->elements / columns;
    for (int64_t b = begin; b < end; b++) {
        const uint64_t key = ls_dropout_key(d->record, d->attributes->key, (uint64_t)b);
        for (int64_t row = 0; row < rows; row++) {
            int64_t draw = 0, left = row;
            for (uint32_t i = last; i > 1; i--) {
                draw += left % d->desc->dims[i - 1] * d->draws[i - 1];
                left /= d->desc->dims[i - 1];
            }
            drop_run(d, key, draw, shared, b * d->elements + row * columns, columns);
        }
    }
}

static void dropout_plain(void *context, int64_t begin, int64_t end)
{
    const struct dropout *d = context;
    for (int64_t b = begin; b < end; b++)
        drop_run(d, ls_dropout_key(d->record, d->attributes->key, (uint64_t)b), 0, false,
                 b * d->elements, d->elements);
}

// Blocks of channels: each pixel of a block is a run of neighbouring elements of the plain layout.
static void dropout_blocked(void *context, int64_t begin, int64_t end)
{
    const struct dropout *d = context;
    const struct cpu_view *v = &d->view;
    const int64_t plane = v->height * v->width, bytes = (int64_t)ls_dtype_bytes(d->y.dtype);
    for (int64_t o = begin; o < end; o++) {
        const int64_t first = o % v->blocks * v->inner, left = v->channels - first;
        const int64_t used = left < v->inner ? left : v->inner;
        const uint64_t key =
            ls_dropout_key(d->record, d->attributes->key, (uint64_t)(o / v->blocks));
        for (int64_t i = 0; i < plane; i++) {
            const int64_t at = (o * plane + i) * v->inner;
            drop_run(d, key,
                     i / v->width * d->draws[1] + i % v->width * d->draws[2] + first * d->draws[3],
                     d->draws[3] == 0, at, used);
            memset((char *)d->y.at + (at + used) * bytes, 0, (size_t)((v->inner - used) * bytes));
        }
    }
}

static int32_t run_dropout(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    const struct ls_tensor_desc *desc = cpu_output_desc(kernel, 0);
    struct dropout d = {device,
                        &kernel->attributes,
                        launch->record,
                        {launch->arguments[0], desc->dtype},
                        {cpu_output(kernel, launch, 0), desc->dtype},
                        (int64_t)ls_tensor_elements(desc) / desc->dims[0],
                        {0},
                        desc,
                        {0}};
    const double work = (double)cpu_elements(desc) * 0.3;
    find_draws(&d);
    if (desc->layout.kind == LS_LAYOUT_PLAIN) {
        cpu_parallel(device, desc->dims[0], 1, work,
                     shares_draws(&kernel->attributes) && desc->ndims > 1 ? dropout_rows
                                                                          : dropout_plain,
                     &d);
    } else {
        cpu_view_of(desc, &d.view);
        cpu_parallel(device, d.view.outer, 1, work, dropout_blocked, &d);
    }
    return LS_OK;
}

int32_t cpu_dropout(struct ls_device *device, const struct ls_kernel_request *request,
                    struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    struct cpu_view view;
    kernel->run = run_dropout;
    answer->in_place = 1;
    cpu_implementation(device, answer, "dropout");
    int32_t status = cpu_same_layout(device, request, kernel, 1U | 1U << request->input_count);
    if (status)
        return status;
    if (kernel->arguments[0].layout.kind != LS_LAYOUT_PLAIN &&
        !cpu_view_of(&kernel->arguments[0], &view))
        return cpu_unsupported(device, request, "the channels do not lie in blocks");
    return LS_OK;
}

// ---- noise ----

static void noise_part(void *context, int64_t begin, int64_t end)
{
    const struct dropout *d = context;
    const int64_t most = d->x.dtype == LS_F32 ? end - begin : CPU_CHUNK;
    float room[CPU_CHUNK];
    for (int64_t at = begin, count; at < end; at += count) {
        const int64_t example = at / d->elements, first = at % d->elements;
        count = d->elements - first < end - at ? d->elements - first : end - at;
        count = count < most ? count : most;
        const float *x = cpu_read(d->device, d->x, at, count, room);
        float *y = cpu_target(d->y, at, room);
        d->device->loops->elementwise->noise(
            ls_dropout_key(d->record, d->attributes->key, (uint64_t)example), (uint64_t)first,
            d->attributes->rate, x, y, count);
        cpu_written(d->device, d->y, at, count, y);
    }
}

static int32_t run_noise(struct ls_device *device, struct ls_kernel *kernel,
                         const struct cpu_call *launch)
{
    const struct ls_tensor_desc *desc = cpu_output_desc(kernel, 0);
    const int64_t count = (int64_t)ls_tensor_elements(desc);
    struct dropout d = {device,
                        &kernel->attributes,
                        launch->record,
                        {launch->arguments[0], desc->dtype},
                        {cpu_output(kernel, launch, 0), desc->dtype},
                        count / desc->dims[0],
                        {0},
                        desc,
                        {0}};
    cpu_parallel(device, count, GRAIN, (double)count * 20, noise_part, &d);
    return LS_OK;
}

int32_t cpu_noise(struct ls_device *device, const struct ls_kernel_request *request,
                  struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_noise;
    answer->in_place = 1;
    cpu_implementation(device, answer, "noise");
    const int32_t status = cpu_same_layout(device, request, kernel, 3);
    if (status == LS_OK && kernel->arguments[0].layout.kind != LS_LAYOUT_PLAIN)
        return cpu_unsupported(device, request, "only plain layouts");
    return status;
}
