// SPDX-License-Identifier: Apache-2.0
// Losses and their gradients. A loss is summed in steps, each in an order that only the shape decides: a pair (loss, right) for
// each position, few pairs where there are many, the four sums.
#include "plugins/device/cuda/engine/internal.h"

#include <string.h>

#define ERROR_WIDTH 16384 // items that add squared errors side by side

static int32_t run_loss(struct ls_device *device, const struct ls_kernel *kernel,
                        const struct cuda_call *launch)
{
    const bool entropy = kernel->request.op == LS_OP_SPARSE_CROSS_ENTROPY;
    struct cuda_arguments a = kernel->arguments;
    a.a = launch->arguments[0];
    a.a_type = cuda_type_of(&kernel->descs[0]);
    a.b = entropy ? NULL : launch->arguments[1];
    a.labels = entropy ? launch->arguments[1] : NULL;
    a.first = kernel->request.output_count == 2 ? cuda_output(kernel, launch, 1) : NULL;
    a.sums = launch->scratch;
    const int32_t status = cuda_start(device, (enum cuda_kernel)kernel->own, &a, kernel->items);
    a.store = (struct cuda_store){.out = cuda_output(kernel, launch, 0)};
    return status ? status
                  : cuda_add_pairs(device, a.sums, kernel->items, cuda_kernel_loss_sums, &a);
}

static int32_t run_gradient(struct ls_device *device, const struct ls_kernel *kernel,
                            const struct cuda_call *launch)
{
    const bool entropy = kernel->request.op == LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD;
    struct cuda_arguments a = kernel->arguments;
    cuda_fill(kernel, launch, &a);
    a.record = launch->record;
    a.b = launch->arguments[entropy ? 2 : 1];
    a.b_type = CUDA_FLOAT;
    a.labels = entropy ? launch->arguments[1] : NULL;
    return cuda_start(device, (enum cuda_kernel)kernel->own, &a, kernel->items);
}

static bool has_elements(const struct ls_tensor_desc *desc, int64_t count)
{
    return cuda_elements(desc) == count;
}

static bool shapes_fit(struct ls_kernel *kernel, int64_t count, int64_t rows)
{
    const struct ls_tensor_desc *in = kernel->descs;
    const struct ls_tensor_desc *out = cuda_output_desc(kernel, 0);
    switch (kernel->request.op) {
    case LS_OP_SPARSE_CROSS_ENTROPY:
        return in[0].ndims >= 2 && has_elements(&in[1], rows) && has_elements(out, 4) &&
               (kernel->request.output_count < 2 || has_elements(&out[1], count));
    case LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD:
        return in[0].ndims >= 2 && has_elements(&in[1], rows) && has_elements(&in[2], count) &&
               has_elements(out, count);
    case LS_OP_MEAN_SQUARED_ERROR: return has_elements(&in[1], count) && has_elements(out, 4);
    default: return has_elements(&in[1], count) && has_elements(out, count);
    }
}

static enum cuda_kernel kernel_of(uint32_t op)
{
    switch (op) {
    case LS_OP_SPARSE_CROSS_ENTROPY: return cuda_kernel_cross_entropy;
    case LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD: return cuda_kernel_cross_entropy_backward;
    case LS_OP_MEAN_SQUARED_ERROR: return cuda_kernel_squared_error;
    default: return cuda_kernel_squared_error_backward;
    }
}

int32_t cuda_prepare_loss(struct ls_device *device, struct ls_kernel *kernel,
                          struct ls_kernel_answer *answer)
{
    const struct ls_tensor_desc *x = cuda_input_desc(kernel, 0);
    const struct ls_op_attributes *attributes = &kernel->request.attributes;
    const int64_t count = cuda_elements(x), columns = x->dims[x->ndims - 1];
    const int64_t rows = count / columns;
    const enum cuda_kernel own = kernel_of(kernel->request.op);
    const bool backward =
        own == cuda_kernel_cross_entropy_backward || own == cuda_kernel_squared_error_backward;
    const bool sparse =
        own == cuda_kernel_cross_entropy || own == cuda_kernel_cross_entropy_backward;
    struct cuda_arguments *a = &kernel->arguments;
    if (!shapes_fit(kernel, count, rows))
        return cuda_unsupported(device, kernel, "the shapes do not belong together");
    a->examples = x->dims[0];
    a->columns = columns;
    a->count = count;
    a->from_logits = attributes->from_logits;
    a->epsilon = attributes->epsilon;
    a->width = count < ERROR_WIDTH ? count : ERROR_WIDTH;
    a->positions = (sparse ? rows : count) / a->examples;
    cuda_use_own(kernel, answer, own, sparse ? rows : backward ? count : a->width);
    if (backward) {
        answer->in_place = !sparse ? 3 : a->from_logits ? 4 : 5;
        answer->used_inputs &= ~(uint32_t)(sparse && a->from_logits);
        kernel->run = run_gradient;
        return LS_OK;
    }
    cuda_scratch(answer, cuda_pair_bytes(kernel->items));
    answer->saved_bytes = sparse ? (uint64_t)count * sizeof(float) : 0;
    kernel->run = run_loss;
    return LS_OK;
}
