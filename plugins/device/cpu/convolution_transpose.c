// SPDX-License-Identifier: Apache-2.0
// Transposed convolution: each of its operations is one of the convolution from y to x, which an
// inner kernel computes; then the bias, or its gradient, by own loops.
#include "plugins/device/cpu/channel_sums.h"
#include "plugins/device/cpu/cpu.h"
#include "plugins/device/cpu/layout.h"

#include <string.h>

struct transpose {
    struct ls_kernel *inner;
    uint64_t inner_bytes; // of scratch
    bool bias; // there is one, or its gradient
    struct cpu_view view; // of y or dy, with a bias
};

// The inner arguments are arguments `from` of this kernel.
static int32_t run_inner(struct ls_device *device, struct ls_kernel *kernel,
                         const struct cpu_call *launch, const uint32_t from[3])
{
    const struct transpose *s = kernel->state;
    struct ls_memory memory[3];
    for (int i = 0; i < 3; i++)
        memory[i] = ls_host_memory(launch->arguments[from[i]]);
    const struct ls_launch call = {.struct_size = sizeof(call),
                                   .argument_count = 3,
                                   .arguments = memory,
                                   .scratch = ls_host_memory(launch->scratch),
                                   .record = ls_host_memory(launch->record)};
    return cpu_kernel_launch(device, s->inner, &call);
}

struct adding {
    const struct cpu_elementwise_loops *loops;
    const struct cpu_view *view;
    const float *bias; // of all blocks, padding included
    float *y;
};

static void add_bias_part(void *context, int64_t begin, int64_t end)
{
    const struct adding *a = context;
    const struct cpu_view *v = a->view;
    const struct cpu_function linear = {LS_LINEAR, 0.0f};
    for (int64_t o = begin; o < end; o++)
        a->loops->bias_activate(linear, a->bias + o % v->blocks * v->inner,
                                a->y + o * v->height * v->width * v->inner, v->height * v->width,
                                v->inner, v->inner);
}

static int32_t run_forward(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    const struct transpose *s = kernel->state;
    const uint32_t from[] = {0, 1, kernel->input_count};
    const int32_t status = run_inner(device, kernel, launch, from);
    if (status || !s->bias)
        return status;

    float *bias = (float *)(void *)cpu_past(launch->scratch, s->inner_bytes);
    memset(bias, 0, (size_t)(s->view.blocks * s->view.inner) * sizeof(float));
    memcpy(bias, launch->arguments[2], (size_t)s->view.channels * sizeof(float));
    struct adding a = {device->loops->elementwise, &s->view, bias, cpu_output(kernel, launch, 0)};
    const double elements = (double)cpu_elements(cpu_output_desc(kernel, 0));
    cpu_parallel(device, s->view.outer, 1, elements * 0.1, add_bias_part, &a);
    return LS_OK;
}

static int32_t run_backward_data(struct ls_device *device, struct ls_kernel *kernel,
                                 const struct cpu_call *launch)
{
    return run_inner(device, kernel, launch, (const uint32_t[]){0, 1, 2});
}

static int32_t run_backward_weights(struct ls_device *device, struct ls_kernel *kernel,
                                    const struct cpu_call *launch)
{
    const struct transpose *s = kernel->state;
    if (s->bias)
        cpu_channel_sums(device, &s->view, (struct cpu_tensor){launch->arguments[1], LS_F32},
                         (struct cpu_tensor){cpu_output(kernel, launch, 1), LS_F32},
                         cpu_past(launch->scratch, s->inner_bytes));
    return run_inner(device, kernel, launch, (const uint32_t[]){1, 0, 2});
}

// ---- prepare ----

static void finish(struct ls_kernel *kernel)
{
    const struct transpose *s = kernel->state;
    if (s)
        cpu_kernel_release(s->inner);
}

// Prepares the convolution `op` of the arguments `from`. `y`: the argument with the channels of the
// bias, where there is one.
static int32_t prepare(struct ls_device *device, const struct ls_kernel_request *request,
                       struct ls_kernel *kernel, struct ls_kernel_answer *answer, uint32_t op,
                       const uint32_t from[3], bool bias, uint32_t y)
{
    struct ls_tensor_desc arguments[3];
    struct ls_layout layouts[3];
    struct ls_kernel_request inner = {.struct_size = sizeof(inner),
                                      .op = op,
                                      .attributes = request->attributes,
                                      .input_count = 2,
                                      .output_count = 1,
                                      .arguments = arguments};
    struct ls_kernel_answer answered = {.struct_size = sizeof(answered), .layouts = layouts};
    struct transpose *s = cpu_state(device, sizeof(*s));
    if (!s)
        return LS_OUT_OF_MEMORY;
    kernel->state = s;
    kernel->finish = finish;
    s->bias = bias;
    inner.attributes.groups = 1;
    for (int i = 0; i < 3; i++)
        arguments[i] = kernel->arguments[from[i]];
    const int32_t status = cpu_kernel_prepare(device, &inner, &answered);
    if (status)
        return status;
    s->inner = answered.kernel;
    s->inner_bytes = cpu_aligned(answered.scratch_bytes);
    for (int i = 0; i < 3; i++)
        kernel->arguments[from[i]].layout = layouts[i];
    answer->scratch_bytes = s->inner_bytes;
    answer->slow = answered.slow;
    snprintf(answer->implementation, sizeof(answer->implementation), "%.63s",
             answered.implementation);
    if (!bias)
        return LS_OK;
    if (!cpu_view_of(&kernel->arguments[y], &s->view))
        return cpu_unsupported(device, request, "the channels of y do not lie in blocks");
    const uint64_t padded = (uint64_t)(s->view.blocks * s->view.inner) * sizeof(float);
    answer->scratch_bytes +=
        y == request->input_count ? padded : cpu_channel_sums_scratch(&s->view);
    return LS_OK;
}

int32_t cpu_convolution_transpose(struct ls_device *device, const struct ls_kernel_request *request,
                                  struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const uint32_t y = request->input_count;
    kernel->run = run_forward;
    return prepare(device, request, kernel, answer, LS_OP_CONV2D_BACKWARD_DATA,
                   (const uint32_t[]){0, 1, y}, request->input_count > 2, y);
}

int32_t cpu_convolution_transpose_backward_data(struct ls_device *device,
                                                const struct ls_kernel_request *request,
                                                struct ls_kernel *kernel,
                                                struct ls_kernel_answer *answer)
{
    kernel->run = run_backward_data;
    return prepare(device, request, kernel, answer, LS_OP_CONV2D, (const uint32_t[]){0, 1, 2},
                   false, 0);
}

int32_t cpu_convolution_transpose_backward_weights(struct ls_device *device,
                                                   const struct ls_kernel_request *request,
                                                   struct ls_kernel *kernel,
                                                   struct ls_kernel_answer *answer)
{
    kernel->run = run_backward_weights;
    return prepare(device, request, kernel, answer, LS_OP_CONV2D_BACKWARD_WEIGHTS,
                   (const uint32_t[]){1, 0, 2}, request->output_count > 1, 1);
}
