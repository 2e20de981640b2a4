// SPDX-License-Identifier: Apache-2.0
// What convolutions and dense layers share: bias and its gradient, and own kernels for both where a library has nothing or
// refuses at a launch. Those are slow, and know any shape.
#include "plugins/device/cuda/engine/internal.h"

uint32_t cuda_convolution_of(uint32_t op)
{
    switch (op) {
    case LS_OP_CONV2D_TRANSPOSE: return LS_OP_CONV2D_BACKWARD_DATA;
    case LS_OP_CONV2D_TRANSPOSE_BACKWARD_DATA: return LS_OP_CONV2D;
    case LS_OP_CONV2D_TRANSPOSE_BACKWARD_WEIGHTS: return LS_OP_CONV2D_BACKWARD_WEIGHTS;
    default: return op;
    }
}

uint32_t cuda_image_input(const struct ls_kernel *kernel)
{
    return kernel->request.op == LS_OP_CONV2D_TRANSPOSE_BACKWARD_WEIGHTS ? 1 : 0;
}

bool cuda_has_bias(const struct ls_kernel *kernel)
{
    const uint32_t op = kernel->request.op;
    return (op == LS_OP_CONV2D || op == LS_OP_CONV2D_TRANSPOSE || op == LS_OP_DENSE) &&
           cuda_inputs(kernel) == 3;
}

bool cuda_has_bias_gradient(const struct ls_kernel *kernel)
{
    const uint32_t op = cuda_convolution_of(kernel->request.op);
    return (op == LS_OP_CONV2D_BACKWARD_WEIGHTS || op == LS_OP_DENSE_BACKWARD_WEIGHTS) &&
           kernel->request.output_count == 2;
}

// The sums over dy, each row of which has the columns of the bias.
static struct cuda_columns columns_of(const struct ls_kernel *kernel)
{
    const struct ls_tensor_desc *dy = &kernel->descs[1];
    const int64_t columns = cuda_elements(&kernel->descs[kernel->request.input_count + 1]);
    return (struct cuda_columns){
        .type = cuda_type_of(dy), .rows = cuda_elements(dy) / columns, .columns = columns};
}

struct cuda_store cuda_bias_store(const struct ls_kernel *kernel, const struct cuda_call *launch)
{
    return (struct cuda_store){.out = cuda_output(kernel, launch, 1),
                               .type =
                                   cuda_type_of(&kernel->descs[kernel->request.input_count + 1]),
                               .add = cuda_accumulates(kernel, 1)};
}

int32_t cuda_run_bias_gradient(struct ls_device *device, const struct ls_kernel *kernel,
                               const struct cuda_call *launch)
{
    struct cuda_columns columns = columns_of(kernel);
    columns.values = launch->arguments[1];
    columns.scratch = (char *)launch->scratch + kernel->sums;
    const struct cuda_store store = cuda_bias_store(kernel, launch);
    return cuda_column_sums(device, &columns, &store);
}

static int32_t run_direct(struct ls_device *device, const struct ls_kernel *kernel,
                          const struct cuda_call *launch)
{
    struct cuda_arguments a = kernel->arguments;
    cuda_fill(kernel, launch, &a);
    if (cuda_image_input(kernel) == 1) {
        a.a = launch->arguments[1];
        a.b = launch->arguments[0];
    }
    a.bias = cuda_has_bias(kernel) ? launch->arguments[2] : NULL;
    const int32_t status = cuda_start(device, (enum cuda_kernel)kernel->own, &a, kernel->items);
    return status || !cuda_has_bias_gradient(kernel)
               ? status
               : cuda_run_bias_gradient(device, kernel, launch);
}

static enum cuda_kernel kernel_of(uint32_t op)
{
    switch (cuda_convolution_of(op)) {
    case LS_OP_CONV2D:
    case LS_OP_DENSE: return cuda_kernel_convolution;
    case LS_OP_CONV2D_BACKWARD_DATA:
    case LS_OP_DENSE_BACKWARD_DATA: return cuda_kernel_convolution_data;
    default: return cuda_kernel_convolution_weights;
    }
}

struct cuda_arguments cuda_direct_arguments(const struct cuda_direct *how)
{
    const struct cuda_window *window = &how->window;
    const int64_t taps = window->size[0] * window->size[1] * (window->channels / how->groups);
    return (struct cuda_arguments){
        .window = *window,
        .filters = how->filters,
        .groups = how->groups,
        .tap_step = how->turned ? 1 : how->filters,
        .filter_step = how->turned ? taps : 1,
    };
}

void cuda_use_direct(struct ls_kernel *kernel, struct ls_kernel_answer *answer,
                     const struct cuda_direct *how)
{
    kernel->arguments = cuda_direct_arguments(how);
    cuda_use_own(kernel, answer, kernel_of(kernel->request.op),
                 cuda_elements(cuda_output_desc(kernel, 0)));
    kernel->run = kernel->otherwise = run_direct;
    snprintf(answer->implementation, sizeof(answer->implementation), "own, without %s",
             how->library);
    if (!cuda_has_bias_gradient(kernel))
        return;
    const struct cuda_columns columns = columns_of(kernel);
    kernel->sums = cuda_scratch(answer, cuda_column_bytes(columns.rows, columns.columns));
}
