// SPDX-License-Identifier: Apache-2.0
// Windows over rows and columns, and pooling with them: own kernels, one pass each way. Max-pooling saves which element of
// each window won: a byte, or four where the window is larger.
#include "plugins/device/cuda/heavy/heavy.h"

static bool axis_fits(const struct cuda_window *window, int axis, int64_t in, int64_t out)
{
    if (window->stride[axis] < 1 || window->before[axis] < 0 || window->after[axis] < 0 ||
        window->size[axis] < 1)
        return false;
    const int64_t span = (window->size[axis] - 1) * window->dilation[axis] + 1;
    const int64_t padded = in + window->before[axis] + window->after[axis];
    return padded >= span && out == (padded - span) / window->stride[axis] + 1;
}

bool cuda_window_of(const struct ls_op_attributes *attributes, int64_t rows, int64_t columns,
                    const struct ls_tensor_desc *x, const struct ls_tensor_desc *y,
                    struct cuda_window *out)
{
    if (x->ndims != 4 || y->ndims != 4 || x->dims[0] != y->dims[0])
        return false;
    *out = (struct cuda_window){
        .batch = x->dims[0],
        .height = x->dims[1],
        .width = x->dims[2],
        .channels = x->dims[3],
        .out_height = y->dims[1],
        .out_width = y->dims[2],
        .size = {rows, columns},
        .before = {attributes->padding[0], attributes->padding[2]},
        .after = {attributes->padding[1], attributes->padding[3]},
    };
    for (int i = 0; i < 2; i++) {
        out->stride[i] = attributes->strides[i];
        out->dilation[i] = attributes->dilation[i] > 0 ? attributes->dilation[i] : 1;
    }
    return axis_fits(out, 0, out->height, out->out_height) &&
           axis_fits(out, 1, out->width, out->out_width);
}

// Every window must hold an element: padding smaller than the window sees to that.
static bool pool_fits(const struct ls_op_attributes *attributes, const struct ls_tensor_desc *x,
                      const struct ls_tensor_desc *y, struct cuda_window *out)
{
    if (!cuda_window_of(attributes, attributes->kernel[0], attributes->kernel[1], x, y, out) ||
        x->dims[3] != y->dims[3])
        return false;
    for (int i = 0; i < 2; i++)
        if (out->dilation[i] != 1 || out->before[i] >= out->size[i] ||
            out->after[i] >= out->size[i])
            return false;
    return true;
}

static int32_t run_max(struct ls_device *device, const struct ls_kernel *kernel,
                       const struct ls_launch *launch)
{
    struct cuda_arguments a = kernel->arguments;
    const bool backward = kernel->request.op == LS_OP_MAX_POOL2D_BACKWARD;
    cuda_fill(kernel, launch, &a);
    if (backward)
        a.saved = launch->arguments[3];
    else if (kernel->request.output_count == 2)
        a.saved = cuda_output(kernel, launch, 1);
    return cuda_start(device, (enum cuda_kernel)kernel->own, &a, kernel->items);
}

// Lays `saved` out as a number of bytes; false: it is fixed to another.
static bool fix_saved(struct ls_tensor_desc *desc, uint64_t bytes)
{
    if (desc->layout.kind == LS_LAYOUT_ANY)
        desc->layout = (struct ls_layout){.kind = LS_LAYOUT_PLAIN, .bytes = bytes};
    return desc->layout.bytes == bytes;
}

int32_t cuda_prepare_pooling(struct ls_device *device, struct ls_kernel *kernel,
                             struct ls_kernel_answer *answer)
{
    const struct ls_kernel_request *request = &kernel->request;
    const uint32_t op = request->op;
    const bool backward = op == LS_OP_MAX_POOL2D_BACKWARD || op == LS_OP_AVERAGE_POOL2D_BACKWARD;
    const bool largest = op == LS_OP_MAX_POOL2D || op == LS_OP_MAX_POOL2D_BACKWARD;
    const struct ls_tensor_desc *in = cuda_input_desc(kernel, 0),
                                *out = cuda_output_desc(kernel, 0);
    struct cuda_arguments *a = &kernel->arguments;
    if (!pool_fits(&request->attributes, backward ? out : in, backward ? in : out, &a->window))
        return cuda_unsupported(device, kernel, "shapes and attributes do not belong together");
    const int64_t area = a->window.size[0] * a->window.size[1];
    if (area > INT32_MAX)
        return cuda_unsupported(device, kernel, "the window has too many elements");
    a->wide = area > 256;
    cuda_use_own(kernel, answer,
                 backward ? cuda_kernel_average_pool_backward : cuda_kernel_average_pool,
                 (int64_t)ls_tensor_elements(out));
    if (!largest)
        return LS_OK;

    kernel->run = run_max;
    a->strip = a->window.channels % CUDA_STRIP ? 1 : CUDA_STRIP;
    kernel->own = backward ? cuda_kernel_max_pool_backward : cuda_kernel_max_pool;
    kernel->items /= a->strip;
    const uint64_t saved = ls_tensor_elements(backward ? in : out) * (a->wide ? 4 : 1);
    if (backward) {
        answer->used_inputs &= ~UINT32_C(6); // neither x nor y
        if (!fix_saved(cuda_input_desc(kernel, 3), saved))
            return cuda_unsupported(device, kernel, "`saved` is not what forward leaves");
    } else if (request->output_count == 2) {
        answer->saved_bytes = saved;
        cuda_output_desc(kernel, 1)->layout =
            (struct ls_layout){.kind = LS_LAYOUT_PLAIN, .bytes = saved};
    }
    return LS_OK;
}
