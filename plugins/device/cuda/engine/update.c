// SPDX-License-Identifier: Apache-2.0
// Operations over flat ranges: the optimizers' updates, moving averages, the measure of a gradient, the guard of a loss. What changes from step to step is
// read from the record on the GPU.
#include "plugins/device/cuda/engine/internal.h"

#define MEASURE_WIDTH 16384 // items that add side by side

static int32_t run_update(struct ls_device *device, const struct ls_kernel *kernel,
                          const struct cuda_call *launch)
{
    const bool adam = kernel->request.op == LS_OP_ADAM_UPDATE;
    const uint32_t outputs = kernel->request.output_count;
    struct cuda_arguments a = kernel->arguments;
    a.record = (const struct cuda_record *)launch->record;
    if (adam) {
        a.store = (struct cuda_store){.out = launch->scratch};
        const int32_t status = cuda_start(device, cuda_kernel_adam_rate, &a, 1);
        if (status)
            return status;
    }
    a.store = (struct cuda_store){.out = cuda_output(kernel, launch, 0)};
    a.a = launch->arguments[0];
    a.b = adam ? launch->scratch : NULL;
    a.first = outputs > 1 ? cuda_output(kernel, launch, 1) : NULL;
    a.second = outputs > 2 ? cuda_output(kernel, launch, 2) : NULL;
    return cuda_start(device, (enum cuda_kernel)kernel->own, &a, kernel->items);
}

static int32_t run_measure(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch)
{
    struct cuda_arguments a = kernel->arguments;
    double *scratch = launch->scratch;
    a.a = launch->arguments[0];
    a.sums = scratch;
    int32_t status = cuda_start(device, cuda_kernel_measure, &a, a.width);
    if (!status)
        status =
            cuda_add_pairs(device, scratch, a.width, scratch + 2 * a.width, &a.pairs, &a.count);
    a.sums = cuda_output(kernel, launch, 0);
    return status ? status : cuda_start(device, cuda_kernel_measure_sums, &a, 1);
}

int32_t cuda_prepare_update(struct ls_device *device, struct ls_kernel *kernel,
                            struct ls_kernel_answer *answer)
{
    const struct ls_op_attributes *attributes = &kernel->request.attributes;
    const int64_t count = (int64_t)ls_tensor_elements(cuda_input_desc(kernel, 0));
    const bool measure = kernel->request.op == LS_OP_MEASURE;
    struct cuda_arguments *a = &kernel->arguments;
    for (uint32_t i = 0; i < kernel->request.output_count; i++)
        if ((int64_t)ls_tensor_elements(cuda_output_desc(kernel, i)) != (measure ? 2 : count))
            return cuda_unsupported(device, kernel, "the ranges are not of one length");
    a->count = count;
    a->momentum = attributes->momentum;
    a->nesterov = attributes->nesterov;
    a->beta1 = attributes->beta1;
    a->beta2 = attributes->beta2;
    a->epsilon = attributes->epsilon;
    if (measure) {
        a->width = count < MEASURE_WIDTH ? count : MEASURE_WIDTH;
        cuda_scratch(answer, (uint64_t)a->width * 2 * sizeof(double) + cuda_pair_bytes());
        cuda_use_own(kernel, answer, cuda_kernel_measure, a->width);
        kernel->run = run_measure;
        return LS_OK;
    }
    enum cuda_kernel which = cuda_kernel_sgd;
    if (kernel->request.op == LS_OP_AVERAGE_UPDATE)
        which = cuda_kernel_average;
    if (kernel->request.op == LS_OP_ADAM_UPDATE) {
        which = cuda_kernel_adam;
        cuda_scratch(answer, sizeof(float)); // for the rate
    }
    cuda_use_own(kernel, answer, which, count);
    kernel->run = run_update;
    return LS_OK;
}

static int32_t run_guard(struct ls_device *device, const struct ls_kernel *kernel,
                         const struct cuda_call *launch)
{
    struct cuda_arguments a = kernel->arguments;
    a.a = launch->arguments[0];
    a.flags[0] = (void *)cuda_output(kernel, launch, 0);
    a.flags[1] = (void *)cuda_output(kernel, launch, 1);
    return cuda_start(device, cuda_kernel_guard, &a, 1);
}

int32_t cuda_prepare_guard(struct ls_device *device, struct ls_kernel *kernel,
                           struct ls_kernel_answer *answer)
{
    if (ls_tensor_elements(cuda_output_desc(kernel, 0)) != 1 ||
        ls_tensor_elements(cuda_output_desc(kernel, 1)) != 1)
        return cuda_unsupported(device, kernel, "a flag is one number");
    kernel->arguments.count = (int64_t)ls_tensor_elements(cuda_input_desc(kernel, 0));
    cuda_use_own(kernel, answer, cuda_kernel_guard, 1);
    kernel->run = run_guard;
    return LS_OK;
}
