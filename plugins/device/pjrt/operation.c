// SPDX-License-Identifier: Apache-2.0
// The table of emitters; each family is a file of its own. What has none is refused by name, or by
// number where it is newer than this file.
#include "plugins/device/pjrt/operations.h"

static const char *not_written(const struct ls_kernel_request *request)
{
    (void)request;
    return "it has no emitter; device cpu has it";
}

#define WITHOUT_EMITTER(text) \
    (&(const struct pjrt_operation){.name = (text), .refusal = not_written})

static const struct pjrt_operation *const operations[] = {
    [LS_OP_CONV2D] = &pjrt_conv2d,
    [LS_OP_CONV2D_BACKWARD_DATA] = &pjrt_conv2d_backward_data,
    [LS_OP_CONV2D_BACKWARD_WEIGHTS] = &pjrt_conv2d_backward_weights,
    [LS_OP_DENSE] = &pjrt_dense,
    [LS_OP_DENSE_BACKWARD_DATA] = &pjrt_dense_backward_data,
    [LS_OP_DENSE_BACKWARD_WEIGHTS] = &pjrt_dense_backward_weights,
    [LS_OP_MAX_POOL2D] = &pjrt_max_pool2d,
    [LS_OP_MAX_POOL2D_BACKWARD] = &pjrt_max_pool2d_backward,
    [LS_OP_AVERAGE_POOL2D] = &pjrt_average_pool2d,
    [LS_OP_AVERAGE_POOL2D_BACKWARD] = &pjrt_average_pool2d_backward,
    [LS_OP_ACTIVATION] = &pjrt_activation,
    [LS_OP_ACTIVATION_BACKWARD] = &pjrt_activation_backward,
    [LS_OP_SOFTMAX] = &pjrt_softmax_forward,
    [LS_OP_SOFTMAX_BACKWARD] = &pjrt_softmax_backward,
    [LS_OP_DROPOUT] = &pjrt_dropout,
    [LS_OP_RESHAPE] = &pjrt_identity,
    [LS_OP_ADD] = &pjrt_add,
    [LS_OP_CONVERT] = &pjrt_identity,
    [LS_OP_SPARSE_CROSS_ENTROPY] = &pjrt_sparse_cross_entropy,
    [LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD] = &pjrt_sparse_cross_entropy_backward,
    [LS_OP_MEAN_SQUARED_ERROR] = &pjrt_mean_squared_error,
    [LS_OP_MEAN_SQUARED_ERROR_BACKWARD] = &pjrt_mean_squared_error_backward,
    [LS_OP_SGD_UPDATE] = &pjrt_sgd_update,
    [LS_OP_ADAM_UPDATE] = &pjrt_adam_update,
    [LS_OP_MEASURE] = &pjrt_measure,
    [LS_OP_FROM_BYTES] = &pjrt_from_bytes,
    [LS_OP_GUARD] = &pjrt_guard,
    [LS_OP_BATCH_NORMALIZATION] = &pjrt_batch_normalization,
    [LS_OP_BATCH_NORMALIZATION_BACKWARD] = &pjrt_batch_normalization_backward,
    [LS_OP_BATCH_NORMALIZATION_INFERENCE] = &pjrt_batch_normalization_inference,
    [LS_OP_MAXIMUM] = &pjrt_maximum,
    [LS_OP_MAXIMUM_BACKWARD] = &pjrt_maximum_backward,
    [LS_OP_BATCH_STATISTICS] = &pjrt_batch_statistics,
    [LS_OP_AVERAGE_UPDATE] = &pjrt_average_update,
    [LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_DATA] =
        &pjrt_batch_normalization_inference_backward_data,
    [LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_WEIGHTS] =
        &pjrt_batch_normalization_inference_backward_weights,
    [LS_OP_LAYER_NORMALIZATION] = &pjrt_layer_normalization,
    [LS_OP_LAYER_NORMALIZATION_BACKWARD] = &pjrt_layer_normalization_backward,
    [LS_OP_GATHER_ROWS] = &pjrt_gather_rows,
    [LS_OP_GATHER_ROWS_BACKWARD] = &pjrt_gather_rows_backward,
    [LS_OP_ATTENTION] = &pjrt_attention,
    [LS_OP_ATTENTION_BACKWARD] = &pjrt_attention_backward,
    [LS_OP_MATMUL] = &pjrt_matmul,
    [LS_OP_MATMUL_BACKWARD_LEFT] = &pjrt_matmul_backward_left,
    [LS_OP_MATMUL_BACKWARD_RIGHT] = &pjrt_matmul_backward_right,
    [LS_OP_CONV2D_TRANSPOSE] = &pjrt_conv2d_transpose,
    [LS_OP_CONV2D_TRANSPOSE_BACKWARD_DATA] = &pjrt_conv2d_transpose_backward_data,
    [LS_OP_CONV2D_TRANSPOSE_BACKWARD_WEIGHTS] = &pjrt_conv2d_transpose_backward_weights,
    [LS_OP_PRELU] = &pjrt_prelu,
    [LS_OP_PRELU_BACKWARD] = &pjrt_prelu_backward,
    [LS_OP_PENALTY] = &pjrt_penalty,
    [LS_OP_PENALTY_BACKWARD] = &pjrt_penalty_backward,
    [LS_OP_FUNCTION] = &pjrt_function,
    [LS_OP_FUNCTION_BACKWARD] = &pjrt_function_backward,
    [LS_OP_PAIR] = &pjrt_pair,
    [LS_OP_PAIR_BACKWARD_FIRST] = &pjrt_pair_backward_first,
    [LS_OP_PAIR_BACKWARD_SECOND] = &pjrt_pair_backward_second,
    [LS_OP_REDUCE] = &pjrt_reduce,
    [LS_OP_REDUCE_BACKWARD] = &pjrt_reduce_backward,
    [LS_OP_CONCATENATE] = &pjrt_concatenate,
    [LS_OP_CONCATENATE_BACKWARD] = &pjrt_concatenate_backward,
    [LS_OP_SLICE] = &pjrt_take_part,
    [LS_OP_SLICE_BACKWARD] = &pjrt_put_part,
    [LS_OP_PAD] = &pjrt_put_part,
    [LS_OP_PAD_BACKWARD] = &pjrt_take_part,
    [LS_OP_TRANSPOSE] = &pjrt_transpose,
    [LS_OP_TRANSPOSE_BACKWARD] = &pjrt_transpose_backward,
    [LS_OP_UPSAMPLE2D] = &pjrt_upsample2d,
    [LS_OP_UPSAMPLE2D_BACKWARD] = &pjrt_upsample2d_backward,
    [LS_OP_NOISE] = &pjrt_noise,
    [LS_OP_BATCH_MOMENTS] = &pjrt_batch_moments,
    [LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED] = &pjrt_batch_normalization_synchronized,
    [LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_SUMS] =
        &pjrt_batch_normalization_synchronized_backward_sums,
    [LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_DATA] =
        &pjrt_batch_normalization_synchronized_backward_data,
    [LS_OP_LOSS] = &pjrt_loss,
    [LS_OP_LOSS_BACKWARD] = &pjrt_loss_backward,
    [LS_OP_METRIC] = &pjrt_metric,
    [LS_OP_UPDATE] = &pjrt_update,
    [LS_OP_CLIP] = &pjrt_clip,
    [LS_OP_LAMB_DIRECTION] = &pjrt_lamb_direction,
    [LS_OP_LAMB_UPDATE] = &pjrt_lamb_update,
    [LS_OP_EMA_UPDATE] = &pjrt_ema_update,
    [LS_OP_UNSCALE] = &pjrt_unscale,
    [LS_OP_RECURRENT] = WITHOUT_EMITTER("recurrent"),
    [LS_OP_RECURRENT_BACKWARD] = WITHOUT_EMITTER("recurrent_backward"),
    [LS_OP_DIFFERS] = &pjrt_differs,
    [LS_OP_MASKED_MEAN] = &pjrt_masked_mean,
    [LS_OP_MASKED_MEAN_BACKWARD] = &pjrt_masked_mean_backward,
    [LS_OP_POSITION_LOSS] = &pjrt_position_loss,
    [LS_OP_POSITION_LOSS_BACKWARD] = &pjrt_position_loss_backward,
    [LS_OP_RESIZE2D] = WITHOUT_EMITTER("resize2d"),
    [LS_OP_RESIZE2D_BACKWARD] = WITHOUT_EMITTER("resize2d_backward"),
    [LS_OP_DRAW] = WITHOUT_EMITTER("draw"),
    [LS_OP_RESAMPLE] = WITHOUT_EMITTER("resample"),
    [LS_OP_RESAMPLE_BACKWARD] = WITHOUT_EMITTER("resample_backward"),
    [LS_OP_RECOLOUR] = WITHOUT_EMITTER("recolour"),
    [LS_OP_RECOLOUR_BACKWARD] = WITHOUT_EMITTER("recolour_backward"),
    [LS_OP_ERASE] = WITHOUT_EMITTER("erase"),
    [LS_OP_ERASE_BACKWARD] = WITHOUT_EMITTER("erase_backward"),
};

const struct pjrt_operation *pjrt_operation_of(uint32_t op)
{
    return op < sizeof(operations) / sizeof(operations[0]) ? operations[op] : NULL;
}
