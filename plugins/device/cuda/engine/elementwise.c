// SPDX-License-Identifier: Apache-2.0
// Operations whose output looks like their input: activations, functions whose derivative needs x, softmax, dropout, noise, reshape, add,
// convert, floats from bytes.
#include "plugins/device/cuda/engine/internal.h"

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
    answer->in_place = 1;
    return cuda_run_own(kernel, answer, run_shared_draws);
}

// ---- Functions ----

#define PACK_BYTES 16 // of four elements of float32; a range of a larger buffer may begin anywhere

static int32_t run_function(struct ls_device *device, const struct ls_kernel *kernel,
                            const struct cuda_call *launch)
{
    const struct ls_op_attributes *attributes = &kernel->request.attributes;
    const bool backward = kernel->request.op == LS_OP_FUNCTION_BACKWARD;
    struct cuda_function f = {.store = cuda_store_of(kernel, launch),
                              .x = launch->arguments[backward ? 1 : 0],
                              .dy = backward ? launch->arguments[0] : NULL,
                              .function = attributes->function,
                              .factor = attributes->factor,
                              .offset = attributes->offset,
                              .count = kernel->items};
    const uintptr_t all =
        (uintptr_t)f.store.out | (uintptr_t)f.store.y | (uintptr_t)f.x | (uintptr_t)f.dy;
    f.aligned = all % PACK_BYTES == 0;
    return cuda_start_function(device, &f);
}

int32_t cuda_prepare_function(struct ls_device *device, struct ls_kernel *kernel,
                              struct ls_kernel_answer *answer)
{
    if (kernel->request.attributes.function > LS_LOGARITHM)
        return cuda_unsupported(device, kernel, "it does not know this function");
    kernel->items = cuda_elements(cuda_output_desc(kernel, 0));
    answer->in_place = (UINT32_C(1) << cuda_inputs(kernel)) - 1;
    return cuda_run_own(kernel, answer, run_function);
}

// ---- All others ----

static enum cuda_kernel kernel_of(uint32_t op)
{
    switch (op) {
    case LS_OP_ACTIVATION: return cuda_kernel_activation;
    case LS_OP_ACTIVATION_BACKWARD: return cuda_kernel_activation_backward;
    case LS_OP_SOFTMAX: return cuda_kernel_softmax;
    case LS_OP_SOFTMAX_BACKWARD: return cuda_kernel_softmax_backward;
    case LS_OP_DROPOUT: return cuda_kernel_dropout;
    case LS_OP_NOISE: return cuda_kernel_noise;
    case LS_OP_FROM_BYTES: return cuda_kernel_from_bytes;
    case LS_OP_ADD: return cuda_kernel_add;
    default: return cuda_kernel_finish;
    }
}

int32_t cuda_prepare_elementwise(struct ls_device *device, struct ls_kernel *kernel,
                                 struct ls_kernel_answer *answer)
{
    const struct ls_op_attributes *attributes = &kernel->request.attributes;
    const struct ls_tensor_desc *y = cuda_output_desc(kernel, 0);
    const int64_t count = cuda_elements(y), last = y->dims[y->ndims - 1];
    const uint32_t op = kernel->request.op;
    const bool rows = op == LS_OP_SOFTMAX || op == LS_OP_SOFTMAX_BACKWARD;
    struct cuda_arguments *a = &kernel->arguments;
    for (uint32_t i = 0; op == LS_OP_DROPOUT && i < LS_MAX_DIMS; i++)
        if (attributes->axes[i])
            return prepare_shared_draws(device, kernel, answer);
    a->activation = attributes->activation;
    a->alpha = attributes->activation_alpha;
    a->columns = op == LS_OP_DROPOUT || op == LS_OP_NOISE ? count / y->dims[0] : last;
    a->rate = attributes->rate;
    a->key = attributes->key;
    a->divisor = attributes->divisor;
    cuda_use_own(kernel, answer, kernel_of(op), rows ? count / last : count);
    if (op != LS_OP_FROM_BYTES)
        answer->in_place = (UINT32_C(1) << cuda_inputs(kernel)) - 1;
    return LS_OK;
}

// ---- Differs: of each element, or of any along the last dimension ----

static int32_t run_differs(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch)
{
    struct cuda_arguments a = kernel->arguments;
    const bool integers = kernel->descs[0].dtype == LS_I32;
    cuda_fill(kernel, launch, &a);
    a.labels = integers ? launch->arguments[0] : NULL;
    return cuda_start(device, cuda_kernel_differs, &a, kernel->items);
}

int32_t cuda_prepare_differs(struct ls_device *device, struct ls_kernel *kernel,
                             struct ls_kernel_answer *answer)
{
    (void)device;
    kernel->items = cuda_elements(cuda_output_desc(kernel, 0));
    kernel->arguments.columns = cuda_elements(cuda_input_desc(kernel, 0)) / kernel->items;
    kernel->arguments.factor = kernel->request.attributes.offset;
    return cuda_run_own(kernel, answer, run_differs);
}

// ---- Convert: plain, or weights of a convolution, or back ----

int32_t cuda_prepare_convert(struct ls_device *device, struct ls_kernel *kernel,
                             struct ls_kernel_answer *answer)
{
    struct ls_tensor_desc *x = cuda_input_desc(kernel, 0), *y = cuda_output_desc(kernel, 0);
    const int64_t count = cuda_elements(x), last = x->dims[x->ndims - 1];
    const bool from = x->layout.kind == LS_LAYOUT_OWN, to = y->layout.kind == LS_LAYOUT_OWN;
    struct cuda_arguments *a = &kernel->arguments;
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
