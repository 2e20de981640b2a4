// SPDX-License-Identifier: Apache-2.0
// Losses and their gradients. A loss is summed in steps, each in an order that only the shape decides: a pair (loss, right) for
// each position, few pairs where there are many, the four sums.
#include "plugins/device/cuda/engine/internal.h"

#include <string.h>

#define ERROR_WIDTH 16384 // items that add squared errors side by side

struct loss {
    uint64_t pairs, sums; // offsets in the scratch memory
    int64_t count; // of pairs
};

static int32_t run_loss(struct ls_device *device, const struct ls_kernel *kernel,
                        const struct cuda_call *launch)
{
    const struct loss *loss = kernel->state;
    const bool entropy = kernel->request.op == LS_OP_SPARSE_CROSS_ENTROPY;
    char *scratch = launch->scratch;
    struct cuda_arguments a = kernel->arguments;
    a.a = launch->arguments[0];
    a.a_type = cuda_type_of(&kernel->descs[0]);
    a.b = entropy ? NULL : launch->arguments[1];
    a.labels = entropy ? launch->arguments[1] : NULL;
    a.first = kernel->request.output_count == 2 ? cuda_output(kernel, launch, 1) : NULL;
    a.sums = (double *)(void *)(scratch + loss->pairs);
    int32_t status = cuda_start(device, (enum cuda_kernel)kernel->own, &a, kernel->items);
    if (!status)
        status = cuda_add_pairs(device, a.sums, loss->count,
                                (double *)(void *)(scratch + loss->sums), &a.pairs, &a.count);
    a.store = (struct cuda_store){.out = cuda_output(kernel, launch, 0)};
    return status ? status : cuda_start(device, cuda_kernel_loss_sums, &a, 1);
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
    return (int64_t)ls_tensor_elements(desc) == count;
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

static int32_t prepare_sums(struct ls_device *device, struct ls_kernel *kernel,
                            struct ls_kernel_answer *answer)
{
    struct loss *loss = cuda_state(device, kernel, sizeof(*loss));
    if (!loss)
        return LS_OUT_OF_MEMORY;
    loss->count = kernel->items;
    loss->pairs = cuda_scratch(answer, (uint64_t)loss->count * 2 * sizeof(double));
    loss->sums = cuda_scratch(answer, cuda_pair_bytes());
    kernel->run = run_loss;
    if (kernel->request.op == LS_OP_SPARSE_CROSS_ENTROPY)
        answer->saved_bytes = ls_tensor_elements(kernel->descs) * sizeof(float);
    return LS_OK;
}

int32_t cuda_prepare_loss(struct ls_device *device, struct ls_kernel *kernel,
                          struct ls_kernel_answer *answer)
{
    const struct ls_tensor_desc *x = cuda_input_desc(kernel, 0);
    const struct ls_op_attributes *attributes = &kernel->request.attributes;
    const int64_t count = (int64_t)ls_tensor_elements(x), columns = x->dims[x->ndims - 1];
    const int64_t rows = count / columns;
    struct cuda_arguments *a = &kernel->arguments;
    if (!shapes_fit(kernel, count, rows))
        return cuda_unsupported(device, kernel, "the shapes do not belong together");
    a->examples = x->dims[0];
    a->columns = columns;
    a->count = count;
    a->from_logits = attributes->from_logits;
    a->epsilon = attributes->epsilon;
    a->width = count < ERROR_WIDTH ? count : ERROR_WIDTH;
    switch (kernel->request.op) {
    case LS_OP_SPARSE_CROSS_ENTROPY:
        a->positions = rows / a->examples;
        cuda_use_own(kernel, answer, cuda_kernel_cross_entropy, rows);
        return prepare_sums(device, kernel, answer);
    case LS_OP_MEAN_SQUARED_ERROR:
        a->positions = count / a->examples;
        cuda_use_own(kernel, answer, cuda_kernel_squared_error, a->width);
        return prepare_sums(device, kernel, answer);
    case LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD:
        a->positions = rows / a->examples;
        cuda_use_own(kernel, answer, cuda_kernel_cross_entropy_backward, rows);
        if (attributes->from_logits)
            answer->used_inputs &= ~UINT32_C(1);
        answer->in_place = attributes->from_logits ? 4 : 5;
        break;
    default:
        a->positions = count / a->examples;
        cuda_use_own(kernel, answer, cuda_kernel_squared_error_backward, count);
        answer->in_place = 3;
    }
    kernel->run = run_gradient;
    return LS_OK;
}
