// SPDX-License-Identifier: Apache-2.0
// Operations over flat ranges: the optimizers' updates, clipping, averages, the loss scale (update.cuh); the measure of a gradient; the guard
// of a loss. What changes from step to step is read from the record on the GPU.
#include "plugins/device/cuda/engine/internal.h"

_Static_assert(LS_UPDATE_COUNT == 9, "update.cuh does not know the last optimizer");

#define MEASURE_WIDTH 32768 // items that add side by side, four elements each at once
#define PACK_BYTES 16 // of four elements; a range of a larger buffer may begin anywhere

// ---- Updates, clipping, averages, the loss scale ----

// What an operation is: its function, and how many outputs it has.
static const struct kind {
    uint32_t least, most; // outputs
} kinds[] = {
    [LS_UPDATE_SGD] = {1, 2},
    [LS_UPDATE_ADAM] = {3, 3},
    [LS_UPDATE_AMSGRAD] = {4, 4},
    [LS_UPDATE_RMSPROP] = {2, 3},
    [LS_UPDATE_RMSPROP_CENTERED] = {3, 4},
    [LS_UPDATE_ADAGRAD] = {2, 2},
    [LS_UPDATE_ADADELTA] = {3, 3},
    [LS_UPDATE_ADAMAX] = {3, 3},
    [LS_UPDATE_NADAM] = {3, 3},
    [CUDA_AVERAGE] = {1, 1},
    [CUDA_LAMB] = {1, 1},
    [CUDA_EMA] = {2, 2},
    [CUDA_LAMB_DIRECTION] = {4, 4},
    [CUDA_CLIP_VALUE] = {1, 1},
    [CUDA_CLIP_NORM] = {1, 1},
    [CUDA_UNSCALE] = {1, 1},
};

static uint32_t function_of(const struct ls_kernel_request *request)
{
    switch (request->op) {
    case LS_OP_SGD_UPDATE: return LS_UPDATE_SGD;
    case LS_OP_ADAM_UPDATE: return LS_UPDATE_ADAM;
    case LS_OP_AVERAGE_UPDATE: return CUDA_AVERAGE;
    case LS_OP_LAMB_DIRECTION: return CUDA_LAMB_DIRECTION;
    case LS_OP_LAMB_UPDATE: return CUDA_LAMB;
    case LS_OP_EMA_UPDATE: return CUDA_EMA;
    case LS_OP_UNSCALE: return CUDA_UNSCALE;
    case LS_OP_CLIP:
        return request->attributes.function == LS_CLIP_VALUE  ? CUDA_CLIP_VALUE
               : request->attributes.function == LS_CLIP_NORM ? CUDA_CLIP_NORM
                                                              : UINT32_MAX;
    default:
        return request->attributes.function < LS_UPDATE_COUNT ? request->attributes.function
                                                              : UINT32_MAX;
    }
}

static int32_t run_update(struct ls_device *device, const struct ls_kernel *kernel,
                          const struct cuda_call *launch)
{
    const uint32_t outputs = kernel->request.output_count;
    struct cuda_update u = *(const struct cuda_update *)kernel->state;
    u.in = launch->arguments[0];
    u.measures = kernel->request.input_count > 1 ? launch->arguments[1] : NULL;
    u.out = cuda_output(kernel, launch, 0);
    u.record = launch->record;
    uintptr_t all = (uintptr_t)u.in | (uintptr_t)u.out;
    for (uint32_t i = 0; i + 1 < outputs; i++) {
        u.states[i] = cuda_output(kernel, launch, 1 + i);
        all |= (uintptr_t)u.states[i];
    }
    u.aligned = all % PACK_BYTES == 0;
    return cuda_start_update(device, &u);
}

int32_t cuda_prepare_update(struct ls_device *device, struct ls_kernel *kernel,
                            struct ls_kernel_answer *answer)
{
    const struct ls_kernel_request *request = &kernel->request;
    const struct ls_op_attributes *attributes = &request->attributes;
    const uint32_t function = function_of(request);
    const int64_t measures =
        request->input_count > 1 ? cuda_elements(cuda_input_desc(kernel, 1)) : 0;
    if (function == UINT32_MAX)
        return cuda_unsupported(device, kernel, "it does not know this function");
    if (request->output_count < kinds[function].least ||
        request->output_count > kinds[function].most)
        return cuda_unsupported(device, kernel, "no optimizer has these states");
    struct cuda_update *u = cuda_state(device, kernel, sizeof(*u));
    if (!u)
        return LS_OUT_OF_MEMORY;
    *u = (struct cuda_update){.count = cuda_elements(cuda_input_desc(kernel, 0)),
                              .pairs = measures / 2,
                              .function = function,
                              .nesterov = attributes->nesterov,
                              .every = attributes->count,
                              .momentum = attributes->momentum,
                              .beta1 = attributes->beta1,
                              .beta2 = attributes->beta2,
                              .epsilon = attributes->epsilon,
                              .weight_decay =
                                  request->op == LS_OP_UPDATE || request->op == LS_OP_LAMB_DIRECTION
                                      ? attributes->weight_decay
                                      : 0,
                              .threshold = attributes->threshold};
    answer->in_place = request->op == LS_OP_CLIP || request->op == LS_OP_UNSCALE;
    return cuda_run_own(kernel, answer, run_update);
}

// ---- Measures ----

static int32_t run_measure(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch)
{
    struct cuda_arguments a = kernel->arguments;
    a.a = launch->arguments[0];
    a.pairs = cuda_pairs_of(kernel, launch);
    a.sums = cuda_output(kernel, launch, 0);
    return cuda_start(device, cuda_kernel_measure, &a, a.width);
}

int32_t cuda_prepare_measure(struct ls_device *device, struct ls_kernel *kernel,
                             struct ls_kernel_answer *answer)
{
    struct cuda_arguments *a = &kernel->arguments;
    (void)device;
    a->count = cuda_elements(cuda_input_desc(kernel, 0));
    a->width = (a->count + 3) / 4 < MEASURE_WIDTH ? (a->count + 3) / 4 : MEASURE_WIDTH;
    cuda_use_own(kernel, answer, cuda_kernel_measure, a->width);
    kernel->run = run_measure;
    return cuda_prepare_pairs(device, kernel, answer);
}

// ---- Guard ----

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
    kernel->arguments.count = cuda_elements(cuda_input_desc(kernel, 0));
    cuda_use_own(kernel, answer, cuda_kernel_guard, 1);
    kernel->run = run_guard;
    return LS_OK;
}
