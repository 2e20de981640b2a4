// SPDX-License-Identifier: Apache-2.0
// Cross-entropy and squared errors, with their gradients. One kernel makes both, and the four sums: each for itself, or where the
// host asks for both (segment.c), at once.
#include "plugins/device/cuda/engine/internal.h"

// Of so many squared errors each item has one. Of more it has four at once, and the sum has another order.
#define FEW_ERRORS 16384
#define ERROR_WIDTH ((int64_t)CUDA_PAIR_BLOCKS * CUDA_BLOCK) // items that add side by side, at most

static int32_t run_loss(struct ls_device *device, const struct ls_kernel *kernel,
                        const struct cuda_call *launch)
{
    struct cuda_arguments a = kernel->arguments;
    const bool entropy = kernel->own == cuda_kernel_cross_entropy;
    a.a = launch->arguments[0];
    a.a_type = cuda_type_of(&kernel->descs[0]);
    a.b = entropy ? NULL : launch->arguments[1];
    a.labels = entropy ? launch->arguments[1] : NULL;
    a.first = kernel->request.output_count == 2 ? cuda_output(kernel, launch, 1) : NULL;
    a.store = (struct cuda_store){.out = launch->gradient, .type = a.a_type};
    a.record = launch->record;
    a.pairs = cuda_pairs_of(kernel, launch);
    a.sums = cuda_output(kernel, launch, 0);
    return cuda_start(device, (enum cuda_kernel)kernel->own, &a, kernel->items);
}

static int32_t run_gradient(struct ls_device *device, const struct ls_kernel *kernel,
                            const struct cuda_call *launch)
{
    const bool entropy = kernel->own == cuda_kernel_cross_entropy;
    struct cuda_arguments a = kernel->arguments;
    cuda_fill(kernel, launch, &a);
    a.record = launch->record;
    a.b = entropy ? NULL : launch->arguments[1];
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

int32_t cuda_prepare_loss(struct ls_device *device, struct ls_kernel *kernel,
                          struct ls_kernel_answer *answer)
{
    const struct ls_tensor_desc *x = cuda_input_desc(kernel, 0);
    const struct ls_op_attributes *attributes = &kernel->request.attributes;
    const int64_t count = cuda_elements(x), columns = x->dims[x->ndims - 1];
    const int64_t rows = count / columns;
    const uint32_t op = kernel->request.op;
    const bool entropy =
        op == LS_OP_SPARSE_CROSS_ENTROPY || op == LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD;
    const bool backward =
        op == LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD || op == LS_OP_MEAN_SQUARED_ERROR_BACKWARD;
    struct cuda_arguments *a = &kernel->arguments;
    if (!shapes_fit(kernel, count, rows))
        return cuda_unsupported(device, kernel, "the shapes do not belong together");
    a->examples = x->dims[0];
    a->columns = columns;
    a->count = count;
    a->from_logits = attributes->from_logits;
    a->epsilon = attributes->epsilon;
    a->width = count > FEW_ERRORS ? (count + 3) / 4 : count;
    a->width = a->width < ERROR_WIDTH ? a->width : ERROR_WIDTH;
    a->positions = (entropy ? rows : count) / a->examples;
    cuda_use_own(kernel, answer, entropy ? cuda_kernel_cross_entropy : cuda_kernel_squared_error,
                 entropy ? rows : a->width);
    kernel->run = backward ? run_gradient : run_loss;
    if (backward) {
        answer->in_place = entropy ? 1 : 3;
        answer->used_inputs = 3;
        return LS_OK;
    }
    answer->saved_bytes = entropy ? (uint64_t)count * sizeof(float) : 0;
    return cuda_prepare_pairs(device, kernel, answer);
}
