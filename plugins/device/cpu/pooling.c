// SPDX-License-Identifier: Apache-2.0
// Pooling: how the loops see the tensors, and which argument a backward kernel does not need.
#include "core/plugin/half.h"
#include "plugins/device/cpu/cpu.h"
#include "plugins/device/cpu/layout.h"

#include <string.h>

struct pooling {
    const struct cpu_pooling_loops *loops;
    struct cpu_pool pool;
    const void *from;
    void *to, *saved;
};

static void largest_part(void *context, int64_t begin, int64_t end)
{
    const struct pooling *p = context;
    p->loops->largest(&p->pool, p->from, p->to, p->saved, begin, end);
}

static void largest_backward_part(void *context, int64_t begin, int64_t end)
{
    const struct pooling *p = context;
    p->loops->largest_backward(&p->pool, p->from, p->saved, p->to, begin, end);
}

static void mean_part(void *context, int64_t begin, int64_t end)
{
    const struct pooling *p = context;
    p->loops->mean(&p->pool, p->from, p->to, begin, end);
}

static void mean_backward_part(void *context, int64_t begin, int64_t end)
{
    const struct pooling *p = context;
    p->loops->mean_backward(&p->pool, p->from, p->to, begin, end);
}

// Work on one thread in nanoseconds: each element of x is touched about once per window that holds
// it.
static double work_of(const struct cpu_pool *pool)
{
    const double windows = (double)(pool->outer * pool->out_height * pool->out_width);
    return windows * (double)(pool->inner * pool->kernel[0] * pool->kernel[1]) * 0.07;
}

static int32_t run_forward(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    struct pooling p = *(struct pooling *)kernel->state;
    p.from = launch->arguments[0];
    p.to = cpu_output(kernel, launch, 0);
    p.saved = p.pool.index_bytes ? cpu_output(kernel, launch, 1) : NULL;
    cpu_parallel(device, p.pool.outer * p.pool.out_height, 1, work_of(&p.pool),
                 kernel->op == LS_OP_MAX_POOL2D ? largest_part : mean_part, &p);
    return LS_OK;
}

static int32_t run_backward(struct ls_device *device, struct ls_kernel *kernel,
                            const struct cpu_call *launch)
{
    struct pooling p = *(struct pooling *)kernel->state;
    const bool largest = kernel->op == LS_OP_MAX_POOL2D_BACKWARD;
    p.from = launch->arguments[0];
    p.to = cpu_output(kernel, launch, 0);
    p.saved = largest ? launch->arguments[3] : NULL;
    cpu_parallel(device, p.pool.outer * p.pool.height, 1, work_of(&p.pool),
                 largest ? largest_backward_part : mean_backward_part, &p);
    return LS_OK;
}

// Settles the layouts of x (or dx) and y (or dy): y lies as x lies.
static int32_t settle(struct ls_device *device, const struct ls_kernel_request *request,
                      struct ls_kernel *kernel, struct ls_tensor_desc *x, struct ls_tensor_desc *y)
{
    const struct ls_op_attributes *a = &request->attributes;
    struct cpu_view view, out_view;
    struct ls_layout like;
    if (x->layout.kind == LS_LAYOUT_ANY)
        cpu_layout_like(&y->layout, x, &x->layout);
    cpu_layout_like(&x->layout, y, &like);
    if (y->layout.kind == LS_LAYOUT_ANY)
        y->layout = like;
    if (memcmp(&y->layout, &like, sizeof(like)) != 0)
        return cpu_unsupported(device, request, "input and output lie in different layouts");
    if (!cpu_view_of(x, &view) || !cpu_view_of(y, &out_view))
        return cpu_unsupported(device, request, "the channels do not lie in blocks");
    const bool backward = x == cpu_output_desc(kernel, 0);
    const int64_t lanes = view.inner < 16 ? view.inner : 16;
    if (backward && ls_dtype_is_half(x->dtype) && view.width * lanes > CPU_POOL_ROOM)
        return CPU_COPIES;
    struct pooling *state = cpu_state(device, sizeof(*state));
    if (!state)
        return LS_OUT_OF_MEMORY;
    state->loops = device->loops->pooling;
    state->pool = (struct cpu_pool){.outer = view.outer,
                                    .height = view.height,
                                    .width = view.width,
                                    .inner = view.inner,
                                    .out_height = out_view.height,
                                    .out_width = out_view.width,
                                    .kernel = {a->kernel[0], a->kernel[1]},
                                    .strides = {a->strides[0], a->strides[1]},
                                    .before = {a->padding[0], a->padding[2]},
                                    .dtype = x->dtype};
    kernel->state = state;
    return LS_OK;
}

// A byte holds the index, and the bit that says "not above 0", of windows up to 127 elements.
static uint32_t index_bytes(const struct ls_op_attributes *a)
{
    return (int64_t)a->kernel[0] * a->kernel[1] <= 127 ? 1 : 4;
}

int32_t cpu_max_pool(struct ls_device *device, const struct ls_kernel_request *request,
                     struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    struct ls_tensor_desc *y = cpu_output_desc(kernel, 0);
    int32_t status = settle(device, request, kernel, &kernel->arguments[0], y);
    if (status)
        return status;
    struct pooling *state = kernel->state;
    kernel->run = run_forward;
    kernel->accumulate &= 1;
    if (request->output_count > 1) {
        state->pool.index_bytes = index_bytes(&request->attributes);
        answer->saved_bytes = cpu_elements(y) * state->pool.index_bytes;
    }
    cpu_implementation(device, answer, "max pooling");
    return LS_OK;
}

int32_t cpu_max_pool_backward(struct ls_device *device, const struct ls_kernel_request *request,
                              struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    struct ls_tensor_desc *dx = cpu_output_desc(kernel, 0), *dy = &kernel->arguments[0];
    if (dx->layout.kind == LS_LAYOUT_ANY)
        dx->layout = kernel->arguments[1].layout;
    if (dy->layout.kind == LS_LAYOUT_ANY)
        dy->layout = kernel->arguments[2].layout;
    int32_t status = settle(device, request, kernel, dx, dy);
    if (status)
        return status;
    struct pooling *state = kernel->state;
    kernel->run = run_backward;
    state->pool.index_bytes = index_bytes(&request->attributes);
    answer->used_inputs = 1U | 1U << 3;
    if (kernel->epilogue.op == LS_OP_ACTIVATION_BACKWARD) {
        // The saved bit knows whether the chosen element was above 0, so the activation is not
        // read.
        if (kernel->epilogue.activation == LS_RELU) {
            state->pool.relu = 1;
            kernel->epilogue.op = LS_OP_NONE;
        } else {
            answer->used_inputs |= 1U << (request->input_count - 1);
        }
    }
    for (uint32_t i = 1; i <= 2; i++)
        if (kernel->arguments[i].layout.kind == LS_LAYOUT_ANY)
            kernel->arguments[i].layout = i == 1 ? dx->layout : dy->layout;
    struct ls_layout *saved = &kernel->arguments[3].layout;
    cpu_layout_plain(&kernel->arguments[3], saved);
    saved->bytes = cpu_elements(dy) * state->pool.index_bytes;
    cpu_implementation(device, answer, state->pool.relu ? "max pooling + relu" : "max pooling");
    return LS_OK;
}

int32_t cpu_average_pool(struct ls_device *device, const struct ls_kernel_request *request,
                         struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_forward;
    cpu_implementation(device, answer, "average pooling");
    return settle(device, request, kernel, &kernel->arguments[0], cpu_output_desc(kernel, 0));
}

int32_t cpu_average_pool_backward(struct ls_device *device, const struct ls_kernel_request *request,
                                  struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_backward;
    cpu_implementation(device, answer, "average pooling");
    return settle(device, request, kernel, cpu_output_desc(kernel, 0), &kernel->arguments[0]);
}
