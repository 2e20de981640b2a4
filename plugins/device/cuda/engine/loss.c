// SPDX-License-Identifier: Apache-2.0
// Cross-entropy and squared errors, with their gradients. One kernel makes both, and the four sums: each for itself, or where the
// host asks for both as a segment, at once; so do those of losses.c.
#include "plugins/device/cuda/engine/internal.h"

#include <string.h>

#define ERROR_WIDTH 16384 // items that add squared errors side by side

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
    a->width = backward || count < ERROR_WIDTH ? count : ERROR_WIDTH;
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

// ---- A loss with its gradient ----

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
    const uint32_t inputs = of->input_count, last = request->input_count;
    struct ls_tensor_desc from = of->arguments[0], to = request->arguments[last];
    for (uint32_t i = 0; i < inputs; i++)
        if (loss->values[i] != gradient->values[i])
            return false;
    return request->op == gradient_of(of->op) && request->op != LS_OP_NONE &&
           !request->accumulate && request->attributes.epilogue == LS_OP_NONE &&
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
int32_t cuda_prepare_loss_with_gradient(struct ls_device *device,
                                        const struct ls_segment_request *request,
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
