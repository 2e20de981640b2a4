// SPDX-License-Identifier: Apache-2.0
// What the files of the device `reference` share. An operation computes in double precision into zeroed
// results, one for each output; epilogue, accumulation and rounding to float32 follow in one place.
#ifndef LS_DEVICE_REFERENCE_H
#define LS_DEVICE_REFERENCE_H

#include "core/plugin/device.h"

#include <stdbool.h>

#define REFERENCE_MAX_OUTPUTS LS_CONCATENATE_INPUTS

// One run of one operation.
struct reference_call {
    const struct ls_op_attributes *attributes;
    const struct ls_tensor_desc *input_descs;
    const struct ls_tensor_desc *output_descs;
    uint32_t input_count; // the epilogue's own input not counted
    uint32_t output_count;
    void *const *inputs;
    void *const *outputs;
    double *results[REFERENCE_MAX_OUTPUTS]; // as many elements as the outputs, zero at first
    double *room; // as many as the table of operations asked for, with anything in them
    const struct ls_step_record *record;
};

typedef void reference_run(const struct reference_call *call);
reference_run reference_conv2d, reference_conv2d_backward_data, reference_conv2d_backward_weights;
reference_run reference_dense, reference_dense_backward_data, reference_dense_backward_weights;
reference_run reference_max_pool2d, reference_max_pool2d_backward, reference_average_pool2d,
    reference_average_pool2d_backward;
reference_run reference_activation, reference_activation_backward, reference_softmax,
    reference_softmax_backward, reference_dropout, reference_noise, reference_copy, reference_add,
    reference_maximum, reference_maximum_backward, reference_from_bytes;
reference_run reference_sparse_cross_entropy, reference_sparse_cross_entropy_backward,
    reference_mean_squared_error, reference_mean_squared_error_backward;
reference_run reference_sgd_update, reference_adam_update, reference_average_update,
    reference_measure, reference_guard;
reference_run reference_loss, reference_loss_backward, reference_position_loss,
    reference_position_loss_backward, reference_masked_mean, reference_masked_mean_backward,
    reference_metric;
reference_run reference_update, reference_clip, reference_unscale, reference_lamb_direction,
    reference_lamb_update, reference_ema_update;

reference_run reference_function, reference_function_backward;
reference_run reference_pair, reference_pair_backward_first, reference_pair_backward_second,
    reference_reduce, reference_reduce_backward;
reference_run reference_concatenate, reference_concatenate_backward, reference_take_part,
    reference_put_part, reference_transpose, reference_transpose_backward, reference_upsample2d,
    reference_upsample2d_backward;
reference_run reference_batch_normalization, reference_batch_normalization_backward,
    reference_batch_normalization_inference, reference_batch_normalization_inference_backward_data,
    reference_batch_normalization_inference_backward_weights, reference_batch_statistics;
reference_run reference_batch_moments, reference_synchronized_normalization,
    reference_synchronized_normalization_backward_sums,
    reference_synchronized_normalization_backward_data;
reference_run reference_layer_normalization, reference_layer_normalization_backward,
    reference_gather_rows, reference_gather_rows_backward, reference_attention,
    reference_attention_backward, reference_matmul, reference_matmul_backward_left,
    reference_matmul_backward_right, reference_conv2d_transpose,
    reference_conv2d_transpose_backward_data, reference_conv2d_transpose_backward_weights,
    reference_prelu, reference_prelu_backward, reference_penalty, reference_penalty_backward;
reference_run reference_recurrent, reference_recurrent_backward, reference_differs;
reference_run reference_bucket, reference_lookup, reference_encode, reference_dense_transposed,
    reference_dense_transposed_backward_data, reference_dense_transposed_backward_weights;
reference_run reference_resize2d, reference_resize2d_backward, reference_draw, reference_resample,
    reference_resample_backward, reference_recolour, reference_recolour_backward, reference_erase,
    reference_erase_backward;

// Doubles of room for one call.
uint64_t reference_recurrent_room(const struct ls_kernel_request *request);

// The element-wise functions, and their derivatives expressed through the function's own result y.
double reference_activate(uint32_t activation, double alpha, double x);
double reference_activation_slope(uint32_t activation, double alpha, double y);

// A window that slides over rows and columns, of a convolution or of pooling.
struct reference_window {
    int64_t size[2], stride[2], before[2], after[2], dilation[2]; // rows, columns
};

struct reference_window reference_window_of(const struct ls_op_attributes *attributes, int64_t rows,
                                            int64_t columns);

#endif
