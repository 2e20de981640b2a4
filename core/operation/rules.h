// SPDX-License-Identifier: Apache-2.0
// The shape rules of the table. Private to core/operation.
#ifndef LS_OPERATION_RULES_H
#define LS_OPERATION_RULES_H

#include "core/operation/operation.h"

bool ls_shapes_of_conv2d(struct ls_shape_call *call);
bool ls_shapes_of_dense(struct ls_shape_call *call);
bool ls_shapes_of_pool(struct ls_shape_call *call);
bool ls_shapes_of_activation(struct ls_shape_call *call);
bool ls_shapes_of_softmax(struct ls_shape_call *call);
bool ls_shapes_of_dropout(struct ls_shape_call *call);
bool ls_shapes_of_reshape(struct ls_shape_call *call);
bool ls_shapes_of_pair(struct ls_shape_call *call);
bool ls_shapes_of_broadcast(struct ls_shape_call *call);
bool ls_shapes_of_reduce(struct ls_shape_call *call);
bool ls_shapes_of_concatenate(struct ls_shape_call *call);
bool ls_shapes_of_slice(struct ls_shape_call *call);
bool ls_shapes_of_pad(struct ls_shape_call *call);
bool ls_shapes_of_transpose(struct ls_shape_call *call);
bool ls_shapes_of_upsample2d(struct ls_shape_call *call);
bool ls_shapes_of_noise(struct ls_shape_call *call);
bool ls_shapes_of_batch_normalization(struct ls_shape_call *call);
bool ls_shapes_of_moments(struct ls_shape_call *call);
bool ls_shapes_of_synchronized_normalization(struct ls_shape_call *call);
bool ls_shapes_of_sparse_cross_entropy(struct ls_shape_call *call);
bool ls_shapes_of_mean_squared_error(struct ls_shape_call *call);
bool ls_shapes_of_measure(struct ls_shape_call *call);
bool ls_shapes_of_from_bytes(struct ls_shape_call *call);
bool ls_shapes_of_guard(struct ls_shape_call *call);
bool ls_shapes_of_layer_normalization(struct ls_shape_call *call);
bool ls_shapes_of_gather_rows(struct ls_shape_call *call);
bool ls_shapes_of_attention(struct ls_shape_call *call);
bool ls_shapes_of_matmul(struct ls_shape_call *call);
bool ls_shapes_of_conv2d_transpose(struct ls_shape_call *call);
bool ls_shapes_of_prelu(struct ls_shape_call *call);
bool ls_shapes_of_penalty(struct ls_shape_call *call);
bool ls_shapes_of_update(struct ls_shape_call *call);
bool ls_shapes_of_loss(struct ls_shape_call *call);
bool ls_shapes_of_position_loss(struct ls_shape_call *call);
bool ls_shapes_of_masked_mean(struct ls_shape_call *call);
bool ls_shapes_of_metric(struct ls_shape_call *call);
bool ls_shapes_of_clip(struct ls_shape_call *call);
bool ls_shapes_of_lamb_update(struct ls_shape_call *call);
bool ls_shapes_kept(struct ls_shape_call *call); // every output is shaped as input 0
bool ls_shapes_of_recurrent(struct ls_shape_call *call);
bool ls_shapes_of_differs(struct ls_shape_call *call);
bool ls_shapes_of_bucket(struct ls_shape_call *call);
bool ls_shapes_of_lookup(struct ls_shape_call *call);
bool ls_shapes_of_encode(struct ls_shape_call *call);
bool ls_shapes_of_dense_transposed(struct ls_shape_call *call);
bool ls_shapes_of_resize2d(struct ls_shape_call *call);
bool ls_shapes_of_draw(struct ls_shape_call *call);
bool ls_shapes_of_resample(struct ls_shape_call *call);
bool ls_shapes_of_recolour(struct ls_shape_call *call);
bool ls_shapes_of_erase(struct ls_shape_call *call);

#endif
