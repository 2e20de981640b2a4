// SPDX-License-Identifier: Apache-2.0
// Segments, of which one kernel is made: casts (casts.c), or a loss (loss.c, losses.c) and its gradient.
#include "plugins/device/cuda/engine/internal.h"

#include <string.h>

static uint32_t gradient_of(uint32_t op)
{
    switch (op) {
    case LS_OP_SPARSE_CROSS_ENTROPY: return LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD;
    case LS_OP_MEAN_SQUARED_ERROR: return LS_OP_MEAN_SQUARED_ERROR_BACKWARD;
    case LS_OP_LOSS: return LS_OP_LOSS_BACKWARD;
    default: return LS_OP_NONE;
    }
}

// Whether the second kernel makes the gradient of the first, of the same tensors, in the type of the predictions, and nothing else.
static bool is_gradient(const struct ls_segment_kernel *loss,
                        const struct ls_segment_kernel *gradient)
{
    const struct ls_kernel_request *of = loss->request, *request = gradient->request;
    if (request->op == LS_OP_NONE || request->op != gradient_of(of->op))
        return false; // of these two alone is it known how many values they have
    struct ls_tensor_desc from = of->arguments[0], to = request->arguments[request->input_count];
    for (uint32_t i = 0; i < of->input_count; i++)
        if (loss->values[i] != gradient->values[i])
            return false;
    return !request->accumulate && request->attributes.epilogue == LS_OP_NONE &&
           from.dtype == to.dtype && cuda_layout_plain(&from) && cuda_layout_plain(&to);
}

static int32_t run_both(struct ls_device *device, const struct ls_kernel *kernel,
                        const struct ls_launch *launch)
{
    const uint32_t inputs = kernel->request.input_count;
    void *arguments[CUDA_LOSS_ARGUMENTS + 1]; // that of probabilities stays NULL
    const struct cuda_call call = {.arguments = arguments,
                                   .scratch = ls_address(launch->scratch),
                                   .record = ls_address(launch->record),
                                   .gradient =
                                       ls_address(launch->arguments[kernel->places[inputs + 1]])};
    for (uint32_t i = 0; i <= inputs; i++)
        arguments[i] = ls_address(launch->arguments[kernel->places[i]]);
    arguments[inputs + 1] = NULL;
    cuda_launched(device, kernel->operation->name);
    return kernel->run(device, kernel, &call);
}

// Probabilities that only the gradient reads are kept nowhere.
static int32_t prepare_loss(struct ls_device *device, const struct ls_segment_request *request,
                            struct ls_kernel_answer *out)
{
    const struct ls_segment_kernel *loss = request->kernels, *gradient = loss + 1;
    struct ls_layout layouts[CUDA_LOSS_ARGUMENTS];
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer), .layouts = layouts};
    const uint32_t inputs = request->kernel_count ? loss->request->input_count : 0;
    const bool saves = inputs && loss->request->output_count == 2;
    if (request->kernel_count != 2 || !is_gradient(loss, gradient) ||
        (saves && request->values[loss->values[inputs + 1]].argument != LS_SEGMENT_INSIDE))
        return ls_host_fail(device->host, LS_UNSUPPORTED,
                            "a segment that is neither casts nor a loss with its gradient");
    memset(layouts, 0, sizeof(layouts));
    const int32_t status = cuda_prepare(device, loss->request, &answer);
    if (status)
        return status;
    for (uint32_t i = 0; i <= inputs; i++)
        answer.kernel->places[i] = request->values[loss->values[i]].argument;
    answer.kernel->places[inputs + 1] =
        request->values[gradient->values[gradient->request->input_count]].argument;
    answer.kernel->run_segment = run_both;
    out->kernel = answer.kernel;
    out->scratch_bytes = answer.scratch_bytes;
    cuda_implementation(out, "own");
    return LS_OK;
}

int32_t cuda_prepare_segment(struct ls_device *device, const struct ls_segment_request *request,
                             struct ls_kernel_answer *out)
{
    const bool casts = request->kernel_count && request->kernels[0].request->op == LS_OP_CONVERT;
    return casts ? cuda_prepare_casts(device, request, out) : prepare_loss(device, request, out);
}
