// SPDX-License-Identifier: Apache-2.0
// Operations whose output looks like their input: activations, softmax, dropout, noise, reshape, add, convert, floats from bytes.
#include "plugins/device/cuda/engine/internal.h"

#include <string.h>

static bool same_count(const struct ls_tensor_desc *a, const struct ls_tensor_desc *b)
{
    return ls_tensor_elements(a) == ls_tensor_elements(b);
}

static bool same_shape(const struct ls_tensor_desc *a, const struct ls_tensor_desc *b)
{
    return a->ndims == b->ndims && memcmp(a->dims, b->dims, a->ndims * sizeof(a->dims[0])) == 0;
}

// Reshape and the activations look at elements alone.
static bool shapes_fit(struct ls_kernel *kernel)
{
    const uint32_t op = kernel->request.op;
    const bool loose =
        op == LS_OP_RESHAPE || op == LS_OP_ACTIVATION || op == LS_OP_ACTIVATION_BACKWARD;
    const struct ls_tensor_desc *y = cuda_output_desc(kernel, 0);
    for (uint32_t i = 0; i < cuda_inputs(kernel); i++) {
        const struct ls_tensor_desc *x = cuda_input_desc(kernel, i);
        if (loose ? !same_count(x, y) : !same_shape(x, y))
            return false;
    }
    return true;
}

// ---- Dropout whose elements share draws ----

static int32_t run_shared_draws(struct ls_device *device, const struct ls_kernel *kernel,
                                const struct cuda_call *launch)
{
    struct cuda_broadcast b = *(const struct cuda_broadcast *)kernel->state;
    b.store = cuda_store_of(kernel, launch);
    b.values[0] = launch->arguments[0];
    b.record = launch->record;
    return cuda_start_broadcast(device, &b);
}

// Beside y are walked: one example without the dimensions along which draws are shared, and the examples.
static int32_t prepare_shared_draws(struct ls_device *device, struct ls_kernel *kernel,
                                    struct ls_kernel_answer *answer)
{
    const struct ls_op_attributes *attributes = &kernel->request.attributes;
    const struct ls_tensor_desc *y = cuda_output_desc(kernel, 0);
    struct ls_tensor_desc drawn = *y, examples = *y;
    struct cuda_broadcast *b = cuda_state(device, kernel, sizeof(*b));
    if (!b)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < y->ndims; i++) {
        drawn.dims[i] = i && !attributes->axes[i] ? y->dims[i] : 1;
        examples.dims[i] = i ? 1 : y->dims[i];
    }
    const struct cuda_walked walked = {.whole = y, .parts = {y, &drawn, &examples}, .tensors = 3};
    cuda_broadcast_plan(b, &walked);
    b->term = cuda_term_dropout;
    b->rate = attributes->rate;
    b->key = attributes->key;
    kernel->run = run_shared_draws;
    answer->in_place = 1;
    cuda_implementation(answer, "own");
    return LS_OK;
}

// ---- All others ----

int32_t cuda_prepare_elementwise(struct ls_device *device, struct ls_kernel *kernel,
                                 struct ls_kernel_answer *answer)
{
    const struct ls_op_attributes *attributes = &kernel->request.attributes;
    const struct ls_tensor_desc *y = cuda_output_desc(kernel, 0);
    const int64_t count = (int64_t)ls_tensor_elements(y), last = y->dims[y->ndims - 1];
    struct cuda_arguments *a = &kernel->arguments;
    if (!shapes_fit(kernel))
        return cuda_unsupported(device, kernel, "the shapes do not belong together");
    a->activation = attributes->activation;
    a->alpha = attributes->activation_alpha;
    a->columns = last;
    a->rate = attributes->rate;
    a->key = attributes->key;
    switch (kernel->request.op) {
    case LS_OP_ACTIVATION: cuda_use_own(kernel, answer, cuda_kernel_activation, count); break;
    case LS_OP_ACTIVATION_BACKWARD:
        cuda_use_own(kernel, answer, cuda_kernel_activation_backward, count);
        break;
    case LS_OP_SOFTMAX: cuda_use_own(kernel, answer, cuda_kernel_softmax, count / last); break;
    case LS_OP_SOFTMAX_BACKWARD:
        cuda_use_own(kernel, answer, cuda_kernel_softmax_backward, count / last);
        break;
    case LS_OP_DROPOUT:
        for (uint32_t i = 0; i < LS_MAX_DIMS; i++)
            if (attributes->axes[i])
                return prepare_shared_draws(device, kernel, answer);
        a->columns = count / y->dims[0];
        cuda_use_own(kernel, answer, cuda_kernel_dropout, count);
        break;
    case LS_OP_NOISE:
        a->columns = count / y->dims[0];
        cuda_use_own(kernel, answer, cuda_kernel_noise, count);
        break;
    case LS_OP_FROM_BYTES:
        a->divisor = attributes->divisor;
        cuda_use_own(kernel, answer, cuda_kernel_from_bytes, count);
        return LS_OK;
    case LS_OP_ADD: cuda_use_own(kernel, answer, cuda_kernel_add, count); break;
    default: cuda_use_own(kernel, answer, cuda_kernel_finish, count);
    }
    answer->in_place = (UINT32_C(1) << cuda_inputs(kernel)) - 1;
    return LS_OK;
}

// ---- Convert: plain, or weights of a convolution, or back ----

int32_t cuda_prepare_convert(struct ls_device *device, struct ls_kernel *kernel,
                             struct ls_kernel_answer *answer)
{
    struct ls_tensor_desc *x = cuda_input_desc(kernel, 0), *y = cuda_output_desc(kernel, 0);
    const int64_t count = (int64_t)ls_tensor_elements(x), last = x->dims[x->ndims - 1];
    const bool from = x->layout.kind == LS_LAYOUT_OWN, to = y->layout.kind == LS_LAYOUT_OWN;
    struct cuda_arguments *a = &kernel->arguments;
    if (!same_shape(x, y))
        return cuda_unsupported(device, kernel, "the shapes differ");
    if ((from && !cuda_layout_weights(x)) || (to && !cuda_layout_weights(y)))
        return cuda_unsupported(device, kernel, "a layout that is not of this device");
    // Turned is (F, rest); a matrix (rows, columns) is written as (columns, rows).
    a->rows = from ? last : count / last;
    a->columns = from ? count / last : last;
    cuda_use_own(kernel, answer, from == to ? cuda_kernel_finish : cuda_kernel_transpose, count);
    answer->layouts[0] = x->layout;
    answer->layouts[1] = y->layout;
    return LS_OK;
}
