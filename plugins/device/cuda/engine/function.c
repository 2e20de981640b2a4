// SPDX-License-Identifier: Apache-2.0
// Functions of elements whose derivative needs x, by own kernels (function.cuh).
#include "plugins/device/cuda/engine/internal.h"

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
    const struct ls_tensor_desc *y = cuda_output_desc(kernel, 0);
    kernel->items = (int64_t)ls_tensor_elements(y);
    for (uint32_t i = 0; i < kernel->request.input_count; i++)
        if ((int64_t)ls_tensor_elements(cuda_input_desc(kernel, i)) != kernel->items)
            return cuda_unsupported(device, kernel, "the shapes do not belong together");
    if (kernel->request.attributes.function > LS_LOGARITHM)
        return cuda_unsupported(device, kernel, "it does not know this function");
    kernel->run = run_function;
    answer->in_place = (UINT32_C(1) << cuda_inputs(kernel)) - 1;
    cuda_implementation(answer, "own");
    return LS_OK;
}
