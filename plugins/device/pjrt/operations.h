// SPDX-License-Identifier: Apache-2.0
// All operations that have an emitter (operation.c).
#ifndef LS_DEVICE_PJRT_OPERATIONS_H
#define LS_DEVICE_PJRT_OPERATIONS_H

#include "plugins/device/pjrt/operation.h"

pjrt_emitter pjrt_activation, pjrt_activation_backward, pjrt_adam_update, pjrt_add, pjrt_attention,
    pjrt_attention_backward, pjrt_average_pool2d, pjrt_average_pool2d_backward, pjrt_average_update,
    pjrt_batch_moments, pjrt_batch_normalization, pjrt_batch_normalization_backward,
    pjrt_batch_normalization_inference, pjrt_batch_normalization_inference_backward_data,
    pjrt_batch_normalization_inference_backward_weights, pjrt_batch_normalization_synchronized,
    pjrt_batch_normalization_synchronized_backward_data,
    pjrt_batch_normalization_synchronized_backward_sums, pjrt_batch_statistics, pjrt_clip,
    pjrt_concatenate, pjrt_concatenate_backward, pjrt_conv2d, pjrt_conv2d_backward_data,
    pjrt_conv2d_backward_weights, pjrt_conv2d_transpose, pjrt_conv2d_transpose_backward_data,
    pjrt_conv2d_transpose_backward_weights, pjrt_dense, pjrt_dense_backward_data,
    pjrt_dense_backward_weights, pjrt_differs, pjrt_dropout, pjrt_ema_update, pjrt_from_bytes,
    pjrt_function, pjrt_function_backward, pjrt_gather_rows, pjrt_gather_rows_backward, pjrt_guard,
    pjrt_identity, pjrt_lamb_direction, pjrt_lamb_update, pjrt_layer_normalization,
    pjrt_layer_normalization_backward, pjrt_loss, pjrt_loss_backward, pjrt_masked_mean,
    pjrt_masked_mean_backward, pjrt_matmul, pjrt_matmul_backward_left, pjrt_matmul_backward_right,
    pjrt_max_pool2d, pjrt_max_pool2d_backward, pjrt_maximum, pjrt_maximum_backward,
    pjrt_mean_squared_error, pjrt_mean_squared_error_backward, pjrt_measure, pjrt_metric,
    pjrt_noise, pjrt_pair, pjrt_pair_backward_first, pjrt_pair_backward_second, pjrt_penalty,
    pjrt_penalty_backward, pjrt_position_loss, pjrt_position_loss_backward, pjrt_prelu,
    pjrt_prelu_backward, pjrt_put_part, pjrt_reduce, pjrt_reduce_backward, pjrt_sgd_update,
    pjrt_softmax_backward, pjrt_softmax_forward, pjrt_sparse_cross_entropy,
    pjrt_sparse_cross_entropy_backward, pjrt_take_part, pjrt_transpose, pjrt_transpose_backward,
    pjrt_unscale, pjrt_update, pjrt_upsample2d, pjrt_upsample2d_backward;

pjrt_refusal pjrt_function_refusal, pjrt_loss_refusal, pjrt_metric_refusal, pjrt_upsample_refusal,
    pjrt_update_refusal, pjrt_clip_refusal, pjrt_pair_refusal, pjrt_reduce_refusal;

#endif
