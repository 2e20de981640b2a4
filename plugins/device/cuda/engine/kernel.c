// SPDX-License-Identifier: Apache-2.0
// Prepares and launches operations: checks a request, fixes its layouts, hands it to the file of the operation; all are here.
#include "plugins/device/cuda/engine/internal.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(LS_ACTIVATION_COUNT == 12, "store_body.h does not know the last activation");

static const struct cuda_operation operations[] = {
    [LS_OP_CONV2D] = {"conv2d", true, true, cuda_prepare_conv2d},
    [LS_OP_CONV2D_BACKWARD_DATA] = {"conv2d_backward_data", true, true, cuda_prepare_conv2d},
    [LS_OP_CONV2D_BACKWARD_WEIGHTS] = {"conv2d_backward_weights", false, true, cuda_prepare_conv2d},
    [LS_OP_DENSE] = {"dense", true, true, cuda_prepare_dense},
    [LS_OP_DENSE_BACKWARD_DATA] = {"dense_backward_data", true, true, cuda_prepare_dense},
    [LS_OP_DENSE_BACKWARD_WEIGHTS] = {"dense_backward_weights", false, true, cuda_prepare_dense},
    [LS_OP_MAX_POOL2D] = {"max_pool2d", true, true, cuda_prepare_pooling},
    [LS_OP_MAX_POOL2D_BACKWARD] = {"max_pool2d_backward", true, true, cuda_prepare_pooling},
    [LS_OP_AVERAGE_POOL2D] = {"average_pool2d", true, true, cuda_prepare_pooling},
    [LS_OP_AVERAGE_POOL2D_BACKWARD] = {"average_pool2d_backward", true, true, cuda_prepare_pooling},
    [LS_OP_ACTIVATION] = {"activation", true, true, cuda_prepare_elementwise},
    [LS_OP_ACTIVATION_BACKWARD] = {"activation_backward", true, true, cuda_prepare_elementwise},
    [LS_OP_SOFTMAX] = {"softmax", true, true, cuda_prepare_elementwise},
    [LS_OP_SOFTMAX_BACKWARD] = {"softmax_backward", true, true, cuda_prepare_elementwise},
    [LS_OP_DROPOUT] = {"dropout", true, true, cuda_prepare_elementwise},
    [LS_OP_RESHAPE] = {"reshape", true, true, cuda_prepare_elementwise},
    [LS_OP_ADD] = {"add", true, true, cuda_prepare_elementwise},
    [LS_OP_CONVERT] = {"convert", false, false, cuda_prepare_convert},
    [LS_OP_SPARSE_CROSS_ENTROPY] = {"sparse_cross_entropy", false, false, cuda_prepare_loss},
    [LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD] = {"sparse_cross_entropy_backward", false, true,
                                             cuda_prepare_loss},
    [LS_OP_MEAN_SQUARED_ERROR] = {"mean_squared_error", false, false, cuda_prepare_loss},
    [LS_OP_MEAN_SQUARED_ERROR_BACKWARD] = {"mean_squared_error_backward", true, true,
                                           cuda_prepare_loss},
    [LS_OP_SGD_UPDATE] = {"sgd_update", false, false, cuda_prepare_update},
    [LS_OP_ADAM_UPDATE] = {"adam_update", false, false, cuda_prepare_update},
    [LS_OP_MEASURE] = {"measure", false, false, cuda_prepare_measure},
    [LS_OP_FROM_BYTES] = {"from_bytes", false, false, cuda_prepare_elementwise},
    [LS_OP_GUARD] = {"guard", false, false, cuda_prepare_guard},
    [LS_OP_BATCH_NORMALIZATION] = {"batch_normalization", true, true, cuda_prepare_normalization},
    [LS_OP_BATCH_NORMALIZATION_BACKWARD] = {"batch_normalization_backward", false, true,
                                            cuda_prepare_normalization},
    [LS_OP_BATCH_NORMALIZATION_INFERENCE] = {"batch_normalization_inference", true, true,
                                             cuda_prepare_normalization},
    [LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_DATA] =
        {"batch_normalization_inference_backward_data", false, true, cuda_prepare_normalization},
    [LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_WEIGHTS] =
        {"batch_normalization_inference_backward_weights", false, true, cuda_prepare_normalization},
    [LS_OP_BATCH_MOMENTS] = {"batch_moments", false, false, cuda_prepare_normalization},
    [LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED] = {"batch_normalization_synchronized", true, true,
                                                cuda_prepare_normalization},
    [LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_SUMS] =
        {"batch_normalization_synchronized_backward_sums", false, true, cuda_prepare_normalization},
    [LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_DATA] =
        {"batch_normalization_synchronized_backward_data", false, true, cuda_prepare_normalization},
    [LS_OP_NOISE] = {"noise", false, true, cuda_prepare_elementwise},
    [LS_OP_MAXIMUM] = {"maximum", false, true, cuda_prepare_pair},
    [LS_OP_MAXIMUM_BACKWARD] = {"maximum_backward", false, true, cuda_prepare_pair},
    [LS_OP_BATCH_STATISTICS] = {"batch_statistics", false, true, cuda_prepare_statistics},
    [LS_OP_AVERAGE_UPDATE] = {"average_update", false, false, cuda_prepare_update},
    [LS_OP_LAYER_NORMALIZATION] = {"layer_normalization", false, true, cuda_prepare_layer},
    [LS_OP_LAYER_NORMALIZATION_BACKWARD] = {"layer_normalization_backward", false, true,
                                            cuda_prepare_layer},
    [LS_OP_GATHER_ROWS] = {"gather_rows", false, true, cuda_prepare_gather},
    [LS_OP_GATHER_ROWS_BACKWARD] = {"gather_rows_backward", false, true, cuda_prepare_gather},
    [LS_OP_ATTENTION] = {"attention", false, true, cuda_prepare_attention},
    [LS_OP_ATTENTION_BACKWARD] = {"attention_backward", false, true, cuda_prepare_attention},
    [LS_OP_MATMUL] = {"matmul", false, true, cuda_prepare_matmul},
    [LS_OP_MATMUL_BACKWARD_LEFT] = {"matmul_backward_left", false, true, cuda_prepare_matmul},
    [LS_OP_MATMUL_BACKWARD_RIGHT] = {"matmul_backward_right", false, true, cuda_prepare_matmul},
    [LS_OP_CONV2D_TRANSPOSE] = {"conv2d_transpose", false, true, cuda_prepare_conv2d},
    [LS_OP_CONV2D_TRANSPOSE_BACKWARD_DATA] = {"conv2d_transpose_backward_data", false, true,
                                              cuda_prepare_conv2d},
    [LS_OP_CONV2D_TRANSPOSE_BACKWARD_WEIGHTS] = {"conv2d_transpose_backward_weights", false, true,
                                                 cuda_prepare_conv2d},
    [LS_OP_PRELU] = {"prelu", false, true, cuda_prepare_prelu},
    [LS_OP_PRELU_BACKWARD] = {"prelu_backward", false, true, cuda_prepare_prelu},
    [LS_OP_FUNCTION] = {"function", true, true, cuda_prepare_function},
    [LS_OP_FUNCTION_BACKWARD] = {"function_backward", true, true, cuda_prepare_function},
    [LS_OP_PAIR] = {"pair", false, true, cuda_prepare_pair},
    [LS_OP_PAIR_BACKWARD_FIRST] = {"pair_backward_first", false, true, cuda_prepare_pair},
    [LS_OP_PAIR_BACKWARD_SECOND] = {"pair_backward_second", false, true, cuda_prepare_pair},
    [LS_OP_REDUCE] = {"reduce", false, true, cuda_prepare_reduction},
    [LS_OP_REDUCE_BACKWARD] = {"reduce_backward", false, true, cuda_prepare_reduction},
    [LS_OP_CONCATENATE] = {"concatenate", false, true, cuda_prepare_concatenation},
    [LS_OP_CONCATENATE_BACKWARD] = {"concatenate_backward", false, true,
                                    cuda_prepare_concatenation},
    [LS_OP_SLICE] = {"slice", false, true, cuda_prepare_part},
    [LS_OP_SLICE_BACKWARD] = {"slice_backward", false, true, cuda_prepare_part},
    [LS_OP_PAD] = {"pad", false, true, cuda_prepare_part},
    [LS_OP_PAD_BACKWARD] = {"pad_backward", false, true, cuda_prepare_part},
    [LS_OP_UPDATE] = {"update", false, false, cuda_prepare_update},
    [LS_OP_CLIP] = {"clip", false, false, cuda_prepare_update},
    [LS_OP_LAMB_DIRECTION] = {"lamb_direction", false, false, cuda_prepare_update},
    [LS_OP_LAMB_UPDATE] = {"lamb_update", false, false, cuda_prepare_update},
    [LS_OP_PENALTY] = {"penalty", false, true, cuda_prepare_penalty},
    [LS_OP_PENALTY_BACKWARD] = {"penalty_backward", false, true, cuda_prepare_penalty},
    [LS_OP_LOSS] = {"loss", false, false, cuda_prepare_losses},
    [LS_OP_LOSS_BACKWARD] = {"loss_backward", false, false, cuda_prepare_losses},
    [LS_OP_METRIC] = {"metric", false, false, cuda_prepare_losses},
    [LS_OP_EMA_UPDATE] = {"ema_update", false, false, cuda_prepare_update},
    [LS_OP_UNSCALE] = {"unscale", false, false, cuda_prepare_update},
    [LS_OP_TRANSPOSE] = {"transpose", false, true, cuda_prepare_transposition},
    [LS_OP_TRANSPOSE_BACKWARD] = {"transpose_backward", false, true, cuda_prepare_transposition},
    [LS_OP_UPSAMPLE2D] = {"upsample2d", false, true, cuda_prepare_upsampling},
    [LS_OP_UPSAMPLE2D_BACKWARD] = {"upsample2d_backward", false, true, cuda_prepare_upsampling},
    [LS_OP_RECURRENT] = {"recurrent", false, false, cuda_prepare_recurrent},
    [LS_OP_RECURRENT_BACKWARD] = {"recurrent_backward", false, true, cuda_prepare_recurrent},
    [LS_OP_DIFFERS] = {"differs", false, true, cuda_prepare_differs},
    [LS_OP_POSITION_LOSS] = {"position_loss", false, false, cuda_prepare_losses},
    [LS_OP_POSITION_LOSS_BACKWARD] = {"position_loss_backward", false, true, cuda_prepare_losses},
    [LS_OP_MASKED_MEAN] = {"masked_mean", false, false, cuda_prepare_masked_mean},
    [LS_OP_MASKED_MEAN_BACKWARD] = {"masked_mean_backward", false, true, cuda_prepare_masked_mean},
    [LS_OP_RESIZE2D] = {"resize2d", false, true, cuda_prepare_augment},
    [LS_OP_RESIZE2D_BACKWARD] = {"resize2d_backward", false, true, cuda_prepare_augment},
    [LS_OP_DRAW] = {"draw", false, true, cuda_prepare_augment},
    [LS_OP_RESAMPLE] = {"resample", false, true, cuda_prepare_augment},
    [LS_OP_RESAMPLE_BACKWARD] = {"resample_backward", false, true, cuda_prepare_augment},
    [LS_OP_RECOLOUR] = {"recolour", false, true, cuda_prepare_augment},
    [LS_OP_RECOLOUR_BACKWARD] = {"recolour_backward", false, true, cuda_prepare_augment},
    [LS_OP_ERASE] = {"erase", false, true, cuda_prepare_augment},
    [LS_OP_ERASE_BACKWARD] = {"erase_backward", false, true, cuda_prepare_augment},
    [LS_OP_BUCKET] = {"bucket", false, true, cuda_prepare_categories},
    [LS_OP_LOOKUP] = {"lookup", false, true, cuda_prepare_categories},
    [LS_OP_ENCODE] = {"encode", false, true, cuda_prepare_categories},
    [LS_OP_DENSE_TRANSPOSED] = {"dense_transposed", false, true, cuda_prepare_matmul},
    [LS_OP_DENSE_TRANSPOSED_BACKWARD_DATA] = {"dense_transposed_backward_data", false, true,
                                              cuda_prepare_matmul},
    [LS_OP_DENSE_TRANSPOSED_BACKWARD_WEIGHTS] = {"dense_transposed_backward_weights", false, true,
                                                 cuda_prepare_matmul},
};

// ---- Checking a request ----

// The host has checked the request: numbers of arguments, their types and shapes, attributes. What is
// asked here, and by the operations, is what this device knows.
static const char *check_request(const struct ls_kernel_request *request,
                                 const struct cuda_operation *operation)
{
    if (request->accumulate && !operation->accumulate)
        return "it cannot add into its outputs";
    if (request->attributes.activation > LS_HARD_SIGMOID ||
        request->attributes.epilogue_activation > LS_HARD_SIGMOID)
        return "it does not know this activation";
    return request->attributes.epilogue == LS_OP_NONE || operation->epilogue
               ? NULL
               : "it has no such epilogue";
}

// ---- Preparing and launching ----

// What the operation has not laid out lies plain. Bytes are what a forward operation saves.
static const char *fix_layouts(struct ls_kernel *kernel, struct ls_kernel_answer *out)
{
    const struct ls_kernel_request *request = &kernel->request;
    for (uint32_t i = 0; i < request->input_count + request->output_count; i++) {
        struct ls_tensor_desc *desc = &kernel->descs[i];
        const bool weights = desc->layout.kind == LS_LAYOUT_OWN && cuda_layout_weights(desc) &&
                             out->layouts[i].kind == LS_LAYOUT_OWN;
        const bool saved = desc->dtype == LS_U8 && request->op != LS_OP_FROM_BYTES;
        if (!saved && !weights && !cuda_layout_plain(desc))
            return "an argument lies in a layout that this operation does not read";
        out->layouts[i] = desc->layout;
    }
    return NULL;
}

static int32_t prepare_kernel(struct ls_device *device, struct ls_kernel *kernel,
                              struct ls_kernel_answer *out)
{
    const struct ls_kernel_request *request = &kernel->request;
    out->used_inputs = (UINT32_C(1) << request->input_count) - 1;
    out->scratch_bytes = out->saved_bytes = 0;
    out->in_place = out->slow = 0;
    // An operation that lays out weights by itself says so in the layouts, which are zero at first.
    const int32_t status = kernel->operation->prepare(device, kernel, out);
    if (status)
        return status;
    const char *why = fix_layouts(kernel, out);
    if (why)
        return cuda_unsupported(device, kernel, why);
    for (uint32_t i = 0; i < request->input_count; i++)
        if (cuda_accumulates(kernel, 0) ||
            request->arguments[i].dtype != cuda_output_desc(kernel, 0)->dtype)
            out->in_place &= ~(UINT32_C(1) << i);
    out->kernel = kernel;
    return LS_OK;
}

// Tests say by name which operation there is not, to see what happens without one.
static bool is_known(uint32_t op)
{
    const bool known = op < sizeof(operations) / sizeof(operations[0]) && operations[op].prepare;
#ifdef CUDA_LACKS
    const char *lacking = getenv(CUDA_LACKS);
    return known && !(lacking && strcmp(lacking, operations[op].name) == 0);
#else
    return known;
#endif
}

int32_t cuda_prepare(struct ls_device *device, const struct ls_kernel_request *request,
                     struct ls_kernel_answer *out)
{
    if (!is_known(request->op))
        return ls_host_fail(device->host, LS_UNSUPPORTED, "there is no operation %u", request->op);
    const struct cuda_operation *operation = &operations[request->op];
    const char *why = check_request(request, operation);
    if (why)
        return ls_host_fail(device->host, LS_UNSUPPORTED, "%s: %s", operation->name, why);
    int32_t status = cuda_check_recording(device, "preparing an operation");
    if (!status)
        status = cuda_enter(device, NULL);
    if (status)
        return status;
    struct ls_kernel *kernel = calloc(1, sizeof(*kernel));
    if (!kernel)
        return ls_host_fail(device->host, LS_OUT_OF_MEMORY, "%s: no memory for a kernel",
                            operation->name);
    kernel->operation = operation;
    kernel->request = *request;
    kernel->request.forward = NULL;
    kernel->request.arguments = kernel->descs;
    memcpy(kernel->descs, request->arguments,
           (request->input_count + request->output_count) * sizeof(*request->arguments));
    kernel->turn = calloc(1, sizeof(*kernel->turn));
    status = kernel->turn ? prepare_kernel(device, kernel, out)
                          : ls_host_fail(device->host, LS_OUT_OF_MEMORY, "no memory for a kernel");
    if (status)
        cuda_release_kernel(device, kernel);
    return status;
}

static int32_t run(struct ls_device *device, const struct ls_kernel *kernel,
                   const struct cuda_call *launch)
{
    device->refused = NULL;
    const int32_t status = kernel->run(device, kernel, launch);
    if (!status || !kernel->otherwise || !cuda_turn_to_own(device, kernel))
        return status;
    return kernel->otherwise(device, kernel, launch);
}

int32_t cuda_launch(struct ls_device *device, const struct ls_kernel *kernel,
                    const struct ls_launch *launch)
{
    void *addresses[CUDA_MAX_ARGUMENTS];
    int32_t status = cuda_enter(device, launch->stream);
    if (!status && kernel->run_segment)
        return kernel->run_segment(device, kernel, launch);
    if (!status)
        status = cuda_use_dnn(device);
    if (status)
        return status;
    for (uint32_t i = 0; i < launch->argument_count; i++)
        addresses[i] = ls_address(launch->arguments[i]);
    const struct cuda_call call = {addresses, ls_address(launch->scratch),
                                   ls_address(launch->record)};
    cuda_launched(device, kernel->operation->name);
    return kernel->turn->refused && kernel->otherwise ? kernel->otherwise(device, kernel, &call)
                                                      : run(device, kernel, &call);
}

void cuda_release_kernel(struct ls_device *device, struct ls_kernel *kernel)
{
    if (!kernel)
        return;
    if (kernel->finish)
        kernel->finish(device, kernel);
    cuda_release(device, kernel->done);
    free(kernel->state);
    free(kernel->turn);
    free(kernel);
}
