// SPDX-License-Identifier: Apache-2.0
// Operations on images, by own kernels (augment.cuh): draws, another size, transforms, colours,
// patches.
#include "plugins/device/cuda/engine/internal.h"

#include "core/plugin/augment.h"

static uint32_t kernel_of(uint32_t op)
{
    switch (op) {
    case LS_OP_DRAW: return cuda_augment_draw;
    case LS_OP_RECOLOUR:
    case LS_OP_RECOLOUR_BACKWARD: return cuda_augment_recolour;
    case LS_OP_ERASE:
    case LS_OP_ERASE_BACKWARD: return cuda_augment_erase;
    default: return cuda_augment_sample;
    }
}

static bool is_backward(uint32_t op)
{
    return op == LS_OP_RESIZE2D_BACKWARD || op == LS_OP_RESAMPLE_BACKWARD ||
           op == LS_OP_RECOLOUR_BACKWARD || op == LS_OP_ERASE_BACKWARD;
}

static int32_t run_augment(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch)
{
    struct cuda_augment a = *(const struct cuda_augment *)kernel->state;
    const uint32_t op = kernel->request.op, inputs = kernel->request.input_count;
    const bool both = op == LS_OP_RECOLOUR_BACKWARD; // dy and x
    a.store = cuda_store_of(kernel, launch);
    a.record = launch->record;
    a.x = launch->arguments[both ? 1 : 0];
    a.dy = both ? launch->arguments[0] : NULL;
    a.factors = inputs > 1 ? launch->arguments[inputs - 1] : NULL;
    return cuda_start_augment(device, kernel_of(op), &a);
}

static const char *check_function(uint32_t op, uint32_t function)
{
    uint32_t last;
    switch (op) {
    case LS_OP_DRAW: last = LS_DRAW_ERASE; break;
    case LS_OP_RESAMPLE:
    case LS_OP_RESAMPLE_BACKWARD: last = LS_FILL_WRAP | LS_RESAMPLE_BILINEAR; break;
    case LS_OP_RECOLOUR:
    case LS_OP_RECOLOUR_BACKWARD: last = LS_RECOLOUR_AROUND_MEAN; break;
    case LS_OP_ERASE:
    case LS_OP_ERASE_BACKWARD: last = LS_ERASE_NOISE; break;
    default: last = LS_UPSAMPLE_BILINEAR;
    }
    return function > last ? "it does not know this function" : NULL;
}

int32_t cuda_prepare_augment(struct ls_device *device, struct ls_kernel *kernel,
                             struct ls_kernel_answer *answer)
{
    const struct ls_op_attributes *attributes = &kernel->request.attributes;
    const uint32_t op = kernel->request.op;
    const bool backward = is_backward(op),
               turned = backward && kernel_of(op) == cuda_augment_sample;
    const struct ls_tensor_desc *in = cuda_input_desc(kernel, 0),
                                *out = cuda_output_desc(kernel, 0);
    const struct ls_tensor_desc *x = turned ? out : in, *y = turned ? in : out;
    const char *why = check_function(op, attributes->function);
    if (why)
        return cuda_unsupported(device, kernel, why);
    struct cuda_augment *a = cuda_state(device, kernel, sizeof(*a));
    if (!a)
        return LS_OUT_OF_MEMORY;
    *a = (struct cuda_augment){.batch = x->dims[0],
                               .rows = x->dims[1],
                               .columns = x->dims[2],
                               .channels = x->dims[3],
                               .function = attributes->function,
                               .key = attributes->key,
                               .backward = backward,
                               .crop = {attributes->kernel[0], attributes->kernel[1]},
                               .low = attributes->l1,
                               .high = attributes->l2,
                               .other_low = attributes->beta1,
                               .other_high = attributes->beta2,
                               .offset = attributes->offset,
                               .factor = attributes->factor};
    if (op == LS_OP_DRAW) {
        a->numbers = (int32_t)ls_draw_numbers(attributes->function);
        answer->used_inputs = 0;
    } else {
        a->to_rows = y->dims[1];
        a->to_columns = y->dims[2];
    }
    return cuda_run_own(kernel, answer, run_augment);
}
