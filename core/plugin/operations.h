// SPDX-License-Identifier: Apache-2.0
// The operations that a device runs: arguments, arithmetic, types and attributes, and the step
// record. core/plugin/device.h includes this header, and says how an operation becomes a kernel.
//
// Shapes are in the plain layout: activations B H W C (or B N), convolution kernels KH KW C F,
// dense kernels K N, vectors N. B examples, H rows, W columns, C channels, F filters, N units.
#ifndef LS_PLUGIN_OPERATIONS_H
#define LS_PLUGIN_OPERATIONS_H

#include "core/plugin/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LS_MAX_DIMS 6 // the most dimensions of a tensor

// ---- Operations ----
// Arguments are listed as inputs -> outputs; [x] is optional. "sums" is F32 x 4: sum of the losses
// of the examples, number of right predictions, number of examples, 0 (see LS_OP_LOSS). `saved` is
// U8 of the size that `prepare` returns in `saved_bytes` for the forward operation (its dims are
// not read; 0 bytes: nothing to keep); its content is the device's own.
enum ls_op {
    LS_OP_NONE = 0, // no operation
    // x (B,H,W,C), w (KH,KW,C/groups,F), [b (F)] -> y (B,OH,OW,F); of volumes x (B,D,H,W,C), w
    // (KD,KH,KW,C/groups,F), y (B,OD,OH,OW,F), which a device may refuse. core/plugin/window.h says
    // how the window moves.
    LS_OP_CONV2D = 1,
    // dy, w -> dx
    LS_OP_CONV2D_BACKWARD_DATA = 2,
    // x, dy -> dw, [db]
    LS_OP_CONV2D_BACKWARD_WEIGHTS = 3,
    // x, seen in plain order as (M,K), times w (K,N) plus [b (N)] -> y, seen as (M,N). M is
    // elements(y) / N. A dense layer on (B,H,W,C) with K = H W C includes the flatten before it.
    LS_OP_DENSE = 4,
    // dy, w -> dx
    LS_OP_DENSE_BACKWARD_DATA = 5,
    // x, dy -> dw, [db]
    LS_OP_DENSE_BACKWARD_WEIGHTS = 6,
    // x -> y, [saved]. The largest element of each window; padding is never the largest. Without
    // backward there is no `saved`.
    LS_OP_MAX_POOL2D = 7,
    // dy, x, y, saved -> dx. Each gradient goes to the first largest element of its window, in row
    // order.
    LS_OP_MAX_POOL2D_BACKWARD = 8,
    // x -> y. Mean over the elements of the window that are not padding.
    LS_OP_AVERAGE_POOL2D = 9,
    // dy -> dx
    LS_OP_AVERAGE_POOL2D_BACKWARD = 10,
    // x -> y, element-wise
    LS_OP_ACTIVATION = 11,
    // dy, y -> dx; the derivative is expressed through the output y
    LS_OP_ACTIVATION_BACKWARD = 12,
    // x -> y, over the last dimension
    LS_OP_SOFTMAX = 13,
    // dy, y -> dx
    LS_OP_SOFTMAX_BACKWARD = 14,
    // x -> y: an element is kept with probability 1 - rate and then divided by it, else 0.
    // ls_dropout_keep() of the step record says which are kept, so the backward operation is this
    // one, on dy. Elements along a dimension i with axes[i] 1 (never the first) share one draw:
    // `element` is the index within the example as if that dimension were 1.
    LS_OP_DROPOUT = 15,
    // x -> y of as many elements, in plain order
    LS_OP_RESHAPE = 16,
    // a, b -> y, element-wise sum
    LS_OP_ADD = 17,
    // x -> y: the same tensor in another layout, of another floating type, or both
    LS_OP_CONVERT = 18,
    // predictions (B,...,C), labels I32 (B,...) -> sums, saved (F32, as predictions, plain)
    // attribute from_logits: softmax first; else predictions are probabilities: clipped to
    // [epsilon, 1 - epsilon] and normalised, as Keras does (backend TensorFlow). Loss of an
    // example: mean over its positions. Right: the share of an example's positions whose largest
    // prediction (the first of equals) is the label. A label that is no class makes loss and
    // gradient NaN. In a program without backward there is no `saved`.
    LS_OP_SPARSE_CROSS_ENTROPY = 19,
    // predictions, labels, saved -> dpredictions, times record->gradient_scale
    LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD = 20,
    // predictions (B,...), targets F32 of the same shape -> sums; loss of an example: mean over its
    // elements
    LS_OP_MEAN_SQUARED_ERROR = 21,
    // predictions, targets -> dpredictions, times record->gradient_scale
    LS_OP_MEAN_SQUARED_ERROR_BACKWARD = 22,
    // Flat (N) F32: gradient -> parameter, [velocity]; outputs are read and written.
    // Keras: without momentum w -= lr g; else v = m v - lr g, w += v, or with nesterov
    // w += m v - lr g.
    LS_OP_SGD_UPDATE = 23,
    // Flat (N) F32: gradient -> parameter, first moment, second moment.
    // Keras: m += (g - m)(1 - b1), v += (g^2 - v)(1 - b2), w -= m alpha / (sqrt(v) + epsilon),
    // alpha = lr sqrt(1 - b2^t) / (1 - b1^t)
    LS_OP_ADAM_UPDATE = 24,
    // Flat (N) F32 -> F64 x 2: sum of squares of the finite elements, number of the others. The
    // order of additions does not depend on the number of threads.
    LS_OP_MEASURE = 25,
    // x U8 -> y F32 of the same shape, plain: x / divisor, rounded once (images that are sent as
    // bytes). If the device lacks it, the host sends float32 examples.
    LS_OP_FROM_BYTES = 26,
    // Flat (N) F32: x -> flag I32 (1), skip I32 (1), both read and written: 1 if an element of x is
    // not finite or flag was 1, else left as they are. x is the loss, and skip is that of the
    // record: so no update follows a loss that is not finite, although the host learns of it only
    // some steps later. If the device lacks it, the host waits for the device in every step.
    LS_OP_GUARD = 27,
    // Batch normalization, over the last dimension C, of n = elements(x) / C values a channel
    // (Ioffe and Szegedy 2015, algorithm 1, with the population variance, as Keras): x, gamma (C),
    // beta (C), [addend as x] -> y as x, mean (C), variance (C). mean = sum(x) / n, variance =
    // sum((x - mean)^2) / n, h = (x - mean) / sqrt(variance + epsilon), y = gamma h + beta [+
    // addend]. The values are those of this replica's share only. Only a device that declares the
    // pattern {operation, LS_OP_ADD} gets an addend. The host never adds to mean and variance, so a
    // device may refuse that. Epsilon is at least 0.
    LS_OP_BATCH_NORMALIZATION = 28,
    // x, gamma, mean, variance, dy -> dx, dgamma (C), dbeta (C); mean and variance as the forward
    // operation made them. dgamma = sum(dy h), dbeta = sum(dy), dx = gamma / sqrt(variance +
    // epsilon) (dy - dbeta / n - h dgamma / n), where dgamma and dbeta are those of this share,
    // even if the outputs are added to. The gradient of addend is dy. It has no epilogue.
    LS_OP_BATCH_NORMALIZATION_BACKWARD = 29,
    // x, gamma, beta, mean (C), variance (C), [addend as x] -> y: the same, but mean and variance
    // are given (the moving ones).
    LS_OP_BATCH_NORMALIZATION_INFERENCE = 30,
    // a, b -> y as a, element-wise: the larger one; NaN where one is NaN
    LS_OP_MAXIMUM = 31,
    // dy, a, b -> da, db: dy goes to da where a >= b, else to db; the other gets 0
    LS_OP_MAXIMUM_BACKWARD = 32,
    // mean (C), variance (C) -> as many: each times the attribute factor times
    // record->share_weight: what a step contributes to moving statistics. LS_OP_AVERAGE_UPDATE
    // takes it in place of a gradient.
    LS_OP_BATCH_STATISTICS = 33,
    // Flat (N) F32: gradient -> parameter: w = m w + (1 - m) g with the attribute momentum m.
    LS_OP_AVERAGE_UPDATE = 34,
    // dy, gamma (C), variance (C) -> dx = dy gamma / sqrt(variance + epsilon), through
    // LS_OP_BATCH_NORMALIZATION_INFERENCE. The gradient of addend is dy. It has no epilogue.
    LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_DATA = 35,
    // x, mean (C), variance (C), dy -> dgamma = sum(dy h), dbeta = sum(dy)
    LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_WEIGHTS = 36,

    // From here to LS_OP_PENALTY_BACKWARD all floating tensors are F32, unless the device declares
    // that it takes halves (struct ls_fusion_pattern).

    // Each example is normalized by itself: x (B,...,C), [gamma], [beta] -> y as x, [saved]. With
    // attribute groups 0, over the last dimension: n = C (Ba, Kiros, Hinton 2016). With groups G,
    // over all positions of an example and C / G neighbouring channels (Wu, He 2018). mean =
    // sum(x) / n, variance = sum((x - mean)^2) / n, h = (x - mean) / sqrt(variance + epsilon), y =
    // gamma h + beta. gamma and beta have C elements, one a channel, in any shape; a missing gamma
    // is 1, a missing beta 0. A single vector is gamma, or with attribute only_beta 1 it is beta.
    LS_OP_LAYER_NORMALIZATION = 37,
    // dy, x, saved, [gamma] -> dx, [dgamma], [dbeta]: dgamma = sum(dy h) and dbeta = sum(dy) over
    // all positions of all examples; with g = gamma dy, dx = (g - mean(g) - h mean(g h)) /
    // sqrt(variance + epsilon), where the means are those over the n values. gamma and beta are
    // present as in the forward operation; with only_beta 1 the vector is beta, and the output is
    // its gradient.
    LS_OP_LAYER_NORMALIZATION_BACKWARD = 38,
    // ids (B,...), I32, or F32 cut to its integer part, table (V,N) -> y (B,...,N): rows of the
    // table. For an id below 0, not below V, or NaN, the row is NaN, so that the loss is NaN, too.
    LS_OP_GATHER_ROWS = 39,
    // ids, dy -> dtable: each row is the sum of the dy of its id, added in the order of the
    // positions; ids outside the table add nothing.
    LS_OP_GATHER_ROWS_BACKWARD = 40,
    // q (B,T,H,D), k (B,S,H,D), v (B,S,H,E) -> y (B,T,H,E), [saved]. For each example and head, p =
    // softmax(q k^T / sqrt(D)) over S, y = p v. With attribute causal 1 position t sees the keys
    // s <= t only. With rate above 0 an element of p is kept with probability 1 - rate and then
    // divided by it, else 0, after the softmax: ls_dropout_keep() of element (h T + t) S + s.
    LS_OP_ATTENTION = 41,
    // dy, q, k, v, saved -> dq, dk, dv
    LS_OP_ATTENTION_BACKWARD = 42,
    // a (...,M,K), b (...,K,N) -> y (...,M,N): a product for each index of the leading dimensions,
    // which are the same
    LS_OP_MATMUL = 43,
    // dy, b -> da
    LS_OP_MATMUL_BACKWARD_LEFT = 44,
    // a, dy -> db
    LS_OP_MATMUL_BACKWARD_RIGHT = 45,
    // x (B,H,W,C), w (KH,KW,F,C), [b (F)] -> y (B,OH,OW,F): what LS_OP_CONV2D_BACKWARD_DATA
    // computes from dy = x for a convolution of y with w with these strides, padding and dilation
    // and one group, plus the bias. OH and OW are any sizes for which that convolution has H rows
    // and W columns. Of volumes likewise, with D, KD and OD.
    LS_OP_CONV2D_TRANSPOSE = 46,
    // dy, w -> dx
    LS_OP_CONV2D_TRANSPOSE_BACKWARD_DATA = 47,
    // x, dy -> dw, [db]
    LS_OP_CONV2D_TRANSPOSE_BACKWARD_WEIGHTS = 48,
    // x (B,...), alpha -> y as x: x where x > 0, else alpha x. alpha has the dimensions of an
    // example, each of the same size or 1; 1 means that one value is shared along it.
    LS_OP_PRELU = 49,
    // dy, x, alpha -> dx, dalpha: dx is dy where x > 0, alpha dy where x < 0, else 0;
    // dalpha is the sum of x dy over all x < 0 that share the value
    LS_OP_PRELU_BACKWARD = 50,
    // x (B,...), of which only B counts, w -> sums: B (l1 sum(|w|) + l2 sum(w^2)), 0, 0, 0; w may
    // have any layout. This is what a regularized variable adds to the losses of B examples:
    // requests ask to add to sums. Where w is what a layer makes of the examples, x has one. The
    // order of additions does not depend on the number of threads.
    LS_OP_PENALTY = 51,
    // x, w -> dw = (l1 sign(w) + 2 l2 w) times B record->gradient_scale; the sign of 0 is 0
    LS_OP_PENALTY_BACKWARD = 52,
    // x -> y, element-wise: a function of x (enum ls_function) whose derivative cannot be computed
    // from its output
    LS_OP_FUNCTION = 53,
    // dy, x -> dx
    LS_OP_FUNCTION_BACKWARD = 54,
    // a, b -> y, element by element (enum ls_pair_function), shapes broadcast as in numpy: counted
    // from the last one, a dimension that is 1 or missing is repeated. A batch dimension is the
    // first of y.
    LS_OP_PAIR = 55,
    // dy, a, b -> da, summed over where a was repeated. The order of additions does not depend on
    // the number of threads.
    LS_OP_PAIR_BACKWARD_FIRST = 56,
    // dy, a, b -> db, likewise
    LS_OP_PAIR_BACKWARD_SECOND = 57,
    // x -> y: reduces every dimension i with axes[i] 1 (enum ls_reduce), which has size 1 in y;
    // never the first. The order of additions does not depend on the number of threads.
    LS_OP_REDUCE = 58,
    // dy, x, y -> dx. For a maximum, equal largest elements share the gradient.
    LS_OP_REDUCE_BACKWARD = 59,
    // a, b, [c, ...] -> y: one after the other along the dimension i with axes[i] 1, which is not
    // the first
    LS_OP_CONCATENATE = 60,
    // dy -> da, db, [dc, ...]
    LS_OP_CONCATENATE_BACKWARD = 61,
    // x -> y: the part of x that begins at element axes[i] of each dimension i; all examples
    LS_OP_SLICE = 62,
    // dy -> dx, which is 0 elsewhere
    LS_OP_SLICE_BACKWARD = 63,
    // x -> y: x begins at element axes[i] of each dimension i of y, which is 0 elsewhere; it gets
    // no more examples
    LS_OP_PAD = 64,
    // dy -> dx
    LS_OP_PAD_BACKWARD = 65,
    // x -> y: dimension i of y is dimension axes[i] of x; the first stays the first
    LS_OP_TRANSPOSE = 66,
    // dy -> dx
    LS_OP_TRANSPOSE_BACKWARD = 67,
    // x (B,H,W,C) -> y (B, strides[0] H, strides[1] W, C); enum ls_upsample. Row o of y is at (o +
    // 1/2) / strides[0] - 1/2 of x, columns likewise.
    LS_OP_UPSAMPLE2D = 68,
    // dy -> dx
    LS_OP_UPSAMPLE2D_BACKWARD = 69,
    // x -> y = x + rate * z, with z drawn from the normal distribution: ls_noise_bits() of element
    // and example gives 64 bits; u = (the upper 32 + 1) / 2^32, v = the lower 32 / 2^32, z =
    // sqrt(-2 log(u)) cos(2 pi v) (Box and Muller 1958). The gradient of x is that of y.
    LS_OP_NOISE = 70,

    // Batch normalization with the statistics of all replicas, in F32. Between the operation that
    // makes a tensor of 2 C + 1 F64 and the one that reads it, the host sums that tensor over all
    // replicas.

    // x (B,...,C) -> moments F64 (2 C + 1): for each channel the sum of x, for each the sum of x^2,
    // and n = elements(x) / C. The order of additions does not depend on the number of threads.
    LS_OP_BATCH_MOMENTS = 71,
    // x, gamma (C), beta (C), moments, [addend as x] -> y as x, mean (C), variance (C): y as in
    // LS_OP_BATCH_NORMALIZATION, with mean = sum / n and variance = sum of squares / n - mean^2, at
    // least 0, computed in float64. Mean and variance are never added to.
    LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED = 72,
    // x, mean, variance, dy -> dgamma (C), dbeta (C), sums F64 (2 C + 1): dgamma = sum(dy h) and
    // dbeta = sum(dy) of this share; sums has sum(dy h) of each channel, then sum(dy) of each, then
    // n, without what dgamma and dbeta held before if they are added to.
    LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_SUMS = 73,
    // x, gamma, mean, variance, dy, sums -> dx = gamma / sqrt(variance + epsilon) (dy - sum(dy) / n
    // - h sum(dy h) / n). The gradient of addend is dy. It has no epilogue.
    LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_DATA = 74,

    // All that follows is F32. Flat (N): gradient -> parameter, up to three states, all read and
    // written: one update of the optimizer `function` (enum ls_update), after the weight decay: w
    // -= w weight_decay lr.
    LS_OP_UPDATE = 75,
    // Flat (N): x, [measures F64 (2 K)] -> y, which may be in the memory of x. `function` (enum
    // ls_clip): by value: between -threshold and threshold; by norm: x threshold / max(norm,
    // threshold), where norm^2 is the sum of measures[2 k], and norm is NaN where a measures[2 k +
    // 1] is not 0.
    LS_OP_CLIP = 76,
    // Flat (N): gradient -> direction, parameter, first moment, second moment; direction may be in
    // the memory of the gradient. Weight decay as above, moments as in LS_OP_ADAM_UPDATE, then
    // direction = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + epsilon).
    LS_OP_LAMB_DIRECTION = 77,
    // Flat (N): direction, measures F64 (4) -> parameter: w -= r lr direction, r = sqrt(measures[0]
    // / measures[2]): the norm of the parameter divided by that of the direction; 1 if one of them
    // is 0.
    LS_OP_LAMB_UPDATE = 78,
    // Flat (N): parameter -> average, parameter: a = m a + (1 - m) w with the attribute momentum m;
    // at the first update a = w. With `count` c above 0, w = a after every c-th update.
    LS_OP_EMA_UPDATE = 79,
    // predictions (B,...,C), targets, [weights (B) or (B,...)], [moments F64 (3)] -> sums: the loss
    // `function` (enum ls_loss_function) of each position (C values), times its weight or that of
    // its example; the mean of that over the positions of an example. No prediction counts as
    // right. Targets are F32 in the shape of predictions; for LS_LOSS_SPARSE they are labels, I32
    // (B,...). Weights of at least 2 dimensions are of positions: where one is 0, so is the loss,
    // whatever predictions and targets are, and the fourth sum is that of the mean weights of the
    // examples. Moments are those of a mask of the positions (see LS_OP_BATCH_MOMENTS, C = 1):
    // every loss is then multiplied by n / sum, or by 0 where the sum is 0, and the fourth sum is
    // B sum / n.
    LS_OP_LOSS = 80,
    // predictions, targets, [weights], [moments] -> dpredictions, times record->gradient_scale
    LS_OP_LOSS_BACKWARD = 81,
    // predictions (B,...,C), targets, [weights (B,...)] -> the counts of `function` (enum
    // ls_metric_function), to which each position adds its weight instead of 1. Targets are F32 in
    // the shape of predictions, or labels I32 (B,...): one of C classes, or the value of the one
    // element if C is 1.
    LS_OP_METRIC = 82,
    // Flat (N) F32: gradient -> y, which may be in the memory of the gradient: gradient /
    // record->loss_scale. A device without it cannot train with a loss scale.
    LS_OP_UNSCALE = 83,
    // A recurrent layer over a sequence, all steps in one kernel: p (B,T,G U), which are the
    // examples times the kernel, w (U,G U), b, s, [mask (B,T)] -> y (B,N,U), [saved]. `function`
    // (enum ls_recurrent) says what a step does with its p, the state before it and b, (G U) or
    // (2,G U). s are the first states: (B,S,U), or (1,S,U) for all examples, an activation or a
    // parameter. Where the mask is 0, the state stays as it is, and the output of the step is that
    // of the step before, or 0 where there is none. `sequence` (bits of enum ls_sequence) says
    // which steps y has and in which order. With rate above 0 each gate multiplies w by a state of
    // its own of which elements are dropped, the same ones in all steps: ls_dropout_keep() of
    // element g U + u is of unit u for gate g; kept ones are divided by 1 - rate.
    LS_OP_RECURRENT = 84,
    // dy, p, w, b, s, saved, [mask] -> dp, dw, db, ds. The order of additions does not depend on
    // the number of threads.
    LS_OP_RECURRENT_BACKWARD = 85,
    // x (B,...), I32 or F32 -> y F32: 1 where an element differs from the attribute offset, else 0.
    // Without reduction (axes all 0) y is as x; with axes 1 at the last dimension it lacks that,
    // and is 1 where any element along it differs. No gradient goes through it.
    LS_OP_DIFFERS = 86,
    // predictions (B,...,C), targets -> y (B,...,1): the loss `function` (enum ls_loss_function) of
    // each position, as LS_OP_LOSS takes the mean of it. Targets are as those of LS_OP_LOSS.
    LS_OP_POSITION_LOSS = 87,
    // predictions, targets, dy (B,...,1) -> dpredictions
    LS_OP_POSITION_LOSS_BACKWARD = 88,

    // Images, x (B,H,W,C) and y (B,OH,OW,C), in F32. core/plugin/augment.h has the arithmetic.

    // x -> y of any size. `function` (enum ls_upsample): row o of y is at (o + 1/2) H / OH - 1/2 of
    // x, to the nearest at the row below (o + 1/2) H / OH; columns likewise; the border goes on.
    LS_OP_RESIZE2D = 90,
    // dy -> dx
    LS_OP_RESIZE2D_BACKWARD = 91,
    // x, of which only the dimensions count -> factors (B,N): random numbers, which
    // ls_draw_factors() makes of ls_dropout_key(); N is ls_draw_numbers(). `function` (enum
    // ls_draw) says for which of the next operations. The first range is from l1 to l2, the other
    // one from beta1 to beta2.
    LS_OP_DRAW = 92,
    // x, factors (B,8), [otherwise as y] -> y: pixel (column x, row y) of the result is what lies
    // at ((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2) / k), k = c0 x + c1 y + 1, for factors a0 a1
    // a2 b0 b1 b2 c0 c1; where k is 0 it is the attribute offset. `function` is one of enum
    // ls_fill, which says what is outside of x (constant: offset), with LS_RESAMPLE_BILINEAR
    // between four pixels, else the nearest one. A program that trains nothing has `otherwise`, or
    // x, in place of y; no device is asked for an operation with `otherwise`.
    LS_OP_RESAMPLE = 93,
    // dy, factors -> dx
    LS_OP_RESAMPLE_BACKWARD = 94,
    // x, factors (B,2), scale and offset -> y = (x - m) scale + m + offset, between l1 and l2.
    // `function` (enum ls_recolour) says whether m is 0 or the mean of the channel of the image.
    LS_OP_RECOLOUR = 95,
    // dy, x, factors -> dx; no gradient goes through where y was outside of the range
    LS_OP_RECOLOUR_BACKWARD = 96,
    // x, factors (B,4) -> y, which is x outside of a patch: columns from factor 0 to below factor
    // 1, rows from factor 2 to below factor 3. `function` (enum ls_erase) says what is inside:
    // offset, or factor z, between l1 and l2, z being that of LS_OP_NOISE.
    LS_OP_ERASE = 97,
    // dy, factors -> dx
    LS_OP_ERASE_BACKWARD = 98,

    // Categories, in F32 but for ids and x, which may be I32. Of an F32 id, and of one that is
    // looked up, the integer part counts. No gradient goes through these three.

    // x (B,...), boundaries (N), ascending -> y as x: how many boundaries are not above the
    // element, which is compared in float32; N for NaN
    LS_OP_BUCKET = 140,
    // x (B,...), table (N,3) -> y as x: the third number of the row whose first two are the
    // element: 65536 times the first, a whole number, plus the second, from 0 to below 65536; rows
    // are in the order of that. An element that has no row becomes offset + its remainder by
    // `count`, which is at least 0; NaN where `count` is 0, or for what no int64 holds.
    LS_OP_LOOKUP = 141,
    // ids (B,...) -> y: `function` (enum ls_encode) says which of `count` categories N each id is,
    // (B,...,N), or without the last dimension of ids if that is 1; or of ids (B,T,...) what T of
    // them are, (B,...,N). Ids from N on are none of them. An id that is NaN, or negative where the
    // function says so, makes the N elements that it would count in NaN.
    LS_OP_ENCODE = 142,
    // x (...,K), w (N,K) -> y (...,N): x times w transposed
    LS_OP_DENSE_TRANSPOSED = 143,
    // dy, w -> dx
    LS_OP_DENSE_TRANSPOSED_BACKWARD_DATA = 144,
    // x, dy -> dw
    LS_OP_DENSE_TRANSPOSED_BACKWARD_WEIGHTS = 145,

    // x (B,...,1), mask (B,...), moments F64 (3) -> y (B,1), in F32: the mean over the positions of
    // each example of x times the mask, times n / sum, or 0 where the sum is 0. Where the mask is
    // 0, a position adds 0, whatever x is. Moments are those of the mask (see LS_OP_BATCH_MOMENTS,
    // C = 1).
    LS_OP_MASKED_MEAN = 150,
    // dy, mask, moments -> dx
    LS_OP_MASKED_MEAN_BACKWARD = 151,
    LS_OP_COUNT = 152, // grows with the operations: plugins compare with the numbers above
};

// Half types: tensors are F32 if an operation says no other type. From LS_OP_CONV2D to
// LS_OP_MEAN_SQUARED_ERROR_BACKWARD, in batch normalization, and from LS_OP_FUNCTION to
// LS_OP_NOISE, a request may have BF16 or F16 instead: one type for all of its tensors, except
// - LS_OP_CONVERT, where x and y each have any of the three: the casts of mixed precision;
// - dw and db, which may both be F32 beside halves: gradients that are added up over several
//   passes;
// - the vectors of batch normalization (gamma, beta, mean, variance and their gradients), which
//   stay F32;
// - sums, `saved` of the losses and the targets of the squared error, which stay F32 (and labels,
//   I32).
// The optimizers, their states and parameters, LS_OP_MEASURE and LS_OP_GUARD are F32 only: these
// are the masters from which halves are made. Products and sums (also means, softmax, losses, bias
// gradients) are computed in float32 or wider, and a result is rounded once, to nearest, ties to
// even, when it is stored. It may also be rounded before a bias, an addend, an epilogue or the
// addition into an output, as if that were an operation of its own. What only moves or chooses
// elements is exact. Between the products of attention, probabilities and gradients of scores may
// be rounded to 11 bits, as TF32 does, or to the type of the tensors; gradients may be made of y as
// it was stored. A device without a half type refuses (LS_UNSUPPORTED) LS_OP_CONVERT from F32
// to it, so the host asks for that first, and for nothing else if it is refused.
// ls_argument_dtype() in core/plugin/half.h is this rule as code. A device may declare that it
// takes halves in more operations: LS_OP_CONVERT in struct ls_fusion_pattern.

// Activations, element by element; they travel as uint32_t.
enum ls_activation {
    LS_LINEAR = 0, // x
    LS_RELU = 1, // max(x, 0)
    LS_LEAKY_RELU = 2, // x if x > 0, else activation_alpha x; activation_alpha > 0
    LS_ELU = 3, // x if x > 0, else activation_alpha (exp(x) - 1)
    LS_SIGMOID = 4, // 1 / (1 + exp(-x))
    LS_TANH = 5, // tanh(x)
    LS_SOFTPLUS = 6, // log(1 + exp(x))
    LS_EXPONENTIAL = 7, // exp(x)
    LS_RELU6 = 8, // min(max(x, 0), 6)
    LS_SOFTSIGN = 9, // x / (1 + |x|)
    LS_SELU = 10, // LS_SELU_SCALE x if x > 0, else LS_SELU_SCALE LS_SELU_ALPHA (exp(x) - 1)
    LS_HARD_SIGMOID = 11, // min(max(x + 3, 0), 6) / 6
    LS_ACTIVATION_COUNT = 12, // grows: a device refuses the numbers that it does not know
};

// Of self-normalizing networks (Klambauer et al. 2017), as Keras has them.
#define LS_SELU_ALPHA 1.6732632423543772848170429916717
#define LS_SELU_SCALE 1.0507009873554804934193349852946 // likewise

// Functions of LS_OP_FUNCTION: `function` of the attributes.
enum ls_function {
    LS_SCALE = 0, // factor x + offset
    LS_GELU = 1, // x (1 + erf(x / sqrt(2))) / 2
    LS_GELU_TANH = 2, // x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
    LS_SILU = 3, // x / (1 + exp(-x)), also called swish
    LS_HARD_SILU = 4, // x min(max(x + 3, 0), 6) / 6
    LS_MISH = 5, // x tanh(log(1 + exp(x)))
    LS_LOG_SIGMOID = 6, // -log(1 + exp(-x))
    LS_SQUARE = 7, // x^2
    LS_SQUARE_ROOT = 8, // max(sqrt(x), offset); the derivative is 0 where offset is not smaller
    LS_LOGARITHM = 9, // log(x): NaN below 0
    LS_FUNCTION_COUNT = 10, // grows: a device refuses the numbers that it does not know
};

// Functions of LS_OP_PAIR: `function` of the attributes.
enum ls_pair_function {
    LS_PAIR_ADD = 0, // a + b
    LS_PAIR_SUBTRACT = 1, // a - b
    LS_PAIR_MULTIPLY = 2, // a b
    LS_PAIR_DIVIDE = 3, // a / b
    LS_PAIR_MAXIMUM = 4, // NaN where one is NaN; the gradient goes to a where a >= b, else to b
    LS_PAIR_MINIMUM = 5, // likewise, a <= b
    LS_PAIR_COUNT = 6, // grows: a device refuses the numbers that it does not know
};

// Functions of LS_OP_REDUCE: `function` of the attributes.
enum ls_reduce {
    LS_REDUCE_TO_SUM = 0, // sum of the elements
    LS_REDUCE_TO_MEAN = 1, // the sum divided by their number
    LS_REDUCE_TO_MAXIMUM = 2, // NaN where one is NaN
    LS_REDUCE_COUNT = 3, // grows: a device refuses the numbers that it does not know
};

// Functions of LS_OP_UPSAMPLE2D: `function` of the attributes.
enum ls_upsample {
    LS_UPSAMPLE_NEAREST = 0, // each element strides[0] x strides[1] times
    LS_UPSAMPLE_BILINEAR = 1, // between the two nearest rows and columns; the border goes on
    LS_UPSAMPLE_COUNT = 2, // grows: a device refuses the numbers that it does not know
};

// Functions of LS_OP_UPDATE: `function` of the attributes. g is the gradient, w the parameter, t
// `update` of the record; states in their order. Arithmetic as in keras.optimizers.
enum ls_update {
    LS_UPDATE_SGD = 0, // as LS_OP_SGD_UPDATE; [velocity]
    LS_UPDATE_ADAM = 1, // as LS_OP_ADAM_UPDATE; m, v
    LS_UPDATE_AMSGRAD = 2, // the same with the largest v so far; m, v, largest
    // v = beta2 v + (1 - beta2) g^2; s = lr g / sqrt(v + epsilon); without momentum w -= s, else
    // m = momentum m + s, w -= m; v, [m]
    LS_UPDATE_RMSPROP = 3,
    // the same with a = beta2 a + (1 - beta2) g and s = lr g / sqrt(v - a^2 + epsilon); v, a, [m]
    LS_UPDATE_RMSPROP_CENTERED = 4,
    LS_UPDATE_ADAGRAD = 5, // v += g^2, w -= lr g / sqrt(v + epsilon); v
    // v = beta2 v + (1 - beta2) g^2, s = g sqrt(d + epsilon) / sqrt(v + epsilon), d = beta2 d +
    // (1 - beta2) s^2, w -= lr s; v, d
    LS_UPDATE_ADADELTA = 6,
    // m += (g - m)(1 - beta1), u = max(beta2 u, |g|), w -= lr m / ((1 - beta1^t) (u + epsilon)); m,
    // u
    LS_UPDATE_ADAMAX = 7,
    // u_i = beta1 (1 - 0.96^i / 2), p_t = u_1 u_2 ... u_t; m and v as Adam; h = u_(t+1) m / (1 -
    // p_(t+1)) + (1 - u_t) g / (1 - p_t); w -= lr h / (sqrt(v / (1 - beta2^t)) + epsilon); m, v
    LS_UPDATE_NADAM = 8,
    LS_UPDATE_COUNT = 9, // grows: a device refuses the numbers that it does not know
};

// Functions of LS_OP_LOSS, of predictions p and targets t of one position, as in keras.losses with
// backend TensorFlow. Smoothing s: t becomes t (1 - s) + s / C, in the binary one t (1 - s) + s /
// 2.
enum ls_loss_function {
    LS_LOSS_SPARSE = 0, // as LS_OP_SPARSE_CROSS_ENTROPY
    // sum of -t log(q); from_logits: q = softmax(p), else q = p / sum(p), clipped to [epsilon, 1 -
    // epsilon]
    LS_LOSS_CATEGORICAL = 1,
    // mean of -t log(q) - (1 - t) log(1 - q); from_logits: q = sigmoid(p), else p clipped likewise
    LS_LOSS_BINARY = 2,
    LS_LOSS_SQUARED = 3, // mean of (p - t)^2
    LS_LOSS_ABSOLUTE = 4, // mean of |p - t|; the derivative is 0 where they are equal
    LS_LOSS_PERCENTAGE = 5, // mean of 100 |p - t| / max(|t|, epsilon)
    LS_LOSS_LOGARITHMIC = 6, // mean of (log(1 + max(p, epsilon)) - log(1 + max(t, epsilon)))^2
    // mean of e^2 / 2 where |e| <= threshold, else threshold |e| - threshold^2 / 2; e = p - t
    LS_LOSS_HUBER = 7,
    LS_LOSS_LOG_COSH = 8, // mean of log(cosh(p - t))
    LS_LOSS_DIVERGENCE = 9, // sum of t log(t / p), both clipped to [epsilon, 1]
    LS_LOSS_POISSON = 10, // mean of p - t log(p + epsilon)
    LS_LOSS_HINGE = 11, // mean of max(1 - t p, 0), t = 0 standing for -1
    LS_LOSS_SQUARED_HINGE = 12, // mean of its square
    // max(largest (1 - t) p - sum of t p + 1, 0); the first of the largest has the gradient
    LS_LOSS_CATEGORICAL_HINGE = 13,
    LS_LOSS_COSINE = 14, // -(t . p) / (|t| |p|), norms at least epsilon
    LS_LOSS_VALUES = 15, // mean of p, which is a loss already; targets do not count
    LS_LOSS_FUNCTION_COUNT = 16, // grows: a device refuses the numbers that it does not know
};

// Functions of LS_OP_METRIC, and their counts.
enum ls_metric_function {
    // elements with (p > threshold) == t, elements
    LS_METRIC_BINARY = 0,
    // positions whose largest p is where the largest t is (the first of equal ones), positions
    LS_METRIC_CATEGORICAL = 1,
    // positions where fewer than `count` classes have a larger p than the right one, positions
    LS_METRIC_TOP = 2,
    // elements with p > threshold and t, p > threshold and not t, t only, neither
    LS_METRIC_CONFUSION = 3,
    // of the elements with t, then of those without: how many have p in each of `count` buckets;
    // the bucket of p is max(ceil(p (count - 1)) - 1, 0)
    LS_METRIC_BUCKETS = 4,
    // for each class of targets, C rows: how many of its positions have their largest p (the first
    // of equal ones) at each class; a label that is no class counts nowhere
    LS_METRIC_CLASSES = 5,
    // for each class, C rows: elements with p > threshold and t, p > threshold and not t, t only
    LS_METRIC_EACH_CLASS = 6,
    // for each column, C rows: sums of t, t^2, (t - p)^2 and 1, by weight, and elements whatever
    // they weigh
    LS_METRIC_SQUARES = 7,
    // sum over positions of the correlation of p and t along the last dimension (Pearson 1895): the
    // mean of (p - mean) (t - mean) by both deviations; positions
    LS_METRIC_PEARSON = 8,
    // the same of concordance (Lin 1989): 2 covariance by variance of p + variance of t +
    // (difference of the means)^2 + 1e-7
    LS_METRIC_CONCORDANCE = 9,
    LS_METRIC_FUNCTION_COUNT = 10, // grows: a device refuses the numbers that it does not know
};

#define LS_METRIC_MOST_CLASSES 1024 // of LS_METRIC_CLASSES, _EACH_CLASS and _SQUARES

// Functions of LS_OP_RECURRENT: `function` of the attributes. h is the state before the step, f the
// activation, g the recurrent one, * element by element; p, q = h w (dropped states as said) and b
// are in parts of U, one a gate. Arithmetic as in keras.layers.
enum ls_recurrent {
    LS_RECURRENT_SIMPLE = 0, // G = 1, S = 1: h' = f(p + q + b), which is the output of the step
    // G = 4, S = 2 (h and c): with a = p + q + b in parts i, f, c, o: c' = g(a_f) * c + g(a_i) *
    // f(a_c); h' = g(a_o) * f(c'), which is the output (Hochreiter, Schmidhuber 1997; Gers 2000)
    LS_RECURRENT_LSTM = 1,
    // G = 3, S = 1: with parts z, r, h: z = g(p + q + b), r likewise; e = f(p_h + (r * h) w_h +
    // b_h); h' = z * h + (1 - z) * e, which is the output (Cho et al. 2014)
    LS_RECURRENT_GRU = 2,
    // G = 3, S = 1, b (2,G U): z = g(p + b_0 + q + b_1), r likewise; e = f(p_h + b_0h + r * (q_h +
    // b_1h)); h' as above
    LS_RECURRENT_GRU_RESET_AFTER = 3,
    LS_RECURRENT_COUNT = 4, // grows: a device refuses the numbers that it does not know
};

// Bits of `sequence` of LS_OP_RECURRENT.
enum ls_sequence {
    LS_SEQUENCE_ALL = 1, // y has the outputs of all steps; else only that of the last one
    LS_SEQUENCE_STATES = 2, // behind them the states after the last step, S rows
    LS_SEQUENCE_BACKWARDS = 4, // the last step in time is the first; outputs are in that order
    LS_SEQUENCE_IN_TIME = 8, // outputs of all steps are in the order of time
    LS_SEQUENCE_ZEROS = 16, // the output of a step whose mask is 0 is 0
};

// Functions of LS_OP_DRAW: what is drawn, with u uniform between 0 and 1.
enum ls_draw {
    LS_DRAW_FLIP_COLUMNS = 0, // of LS_OP_RESAMPLE: mirrors the columns where u < 1/2
    LS_DRAW_FLIP_ROWS = 1, // likewise
    LS_DRAW_FLIP_BOTH = 2, // both or none
    LS_DRAW_ROTATION = 3, // counterclockwise around the middle; the first range is in turns
    LS_DRAW_ZOOM = 4, // rows by 1 + the first range, columns by 1 + the other one; above 1: smaller
    LS_DRAW_ZOOM_EVEN = 5, // both by 1 + the first range
    LS_DRAW_TRANSLATION = 6, // down by the first range times H, to the right by the other times W
    LS_DRAW_CROP = 7, // by whole pixels; kernel[0] rows and kernel[1] columns remain
    LS_DRAW_CONTRAST = 8, // of LS_OP_RECOLOUR: scale in the first range
    LS_DRAW_BRIGHTNESS = 9, // offset in the first range
    // Of LS_OP_ERASE: with a probability in the first range a patch; its parts of width and height
    // are square roots of numbers in the other one.
    LS_DRAW_ERASE = 10,
    LS_DRAW_COUNT = 11, // grows: a device refuses the numbers that it does not know
};

// Functions of LS_OP_RESAMPLE: what is outside of an image, and whether pixels are mixed.
enum ls_fill {
    LS_FILL_CONSTANT = 0, // k k k k | a b c d | k k k k
    LS_FILL_NEAREST = 1, // a a a a | a b c d | d d d d
    LS_FILL_REFLECT = 2, // d c b a | a b c d | d c b a
    LS_FILL_WRAP = 3, // a b c d | a b c d | a b c d
    LS_FILL_MASK = 3, // these bits say which
    LS_RESAMPLE_BILINEAR = 4, // added to one of them
    LS_RESAMPLE_COUNT = 8, // grows: a device refuses the numbers that it does not know
};

// Functions of LS_OP_RECOLOUR: x scale + offset, or around the mean of the channel.
enum ls_recolour { LS_RECOLOUR_PLAIN = 0, LS_RECOLOUR_AROUND_MEAN = 1, LS_RECOLOUR_COUNT = 2 };
// Functions of LS_OP_ERASE: what stands in a patch.
enum ls_erase { LS_ERASE_VALUE = 0, LS_ERASE_NOISE = 1, LS_ERASE_COUNT = 2 };

// Functions of LS_OP_ENCODE.
enum ls_encode {
    LS_ENCODE_ONE_HOT = 0, // 1 at each id; a negative one is nowhere
    LS_ENCODE_ONE_HOT_CHECKED = 1, // the same, but NaN for a negative id
    LS_ENCODE_MULTI_HOT = 2, // 1 where any of the ids is; NaN where one is negative
    LS_ENCODE_COUNTS = 3, // how many of the ids are there; NaN where one is negative
    LS_ENCODE_COUNT = 4, // grows: a device refuses the numbers that it does not know
};

// Functions of LS_OP_CLIP.
enum ls_clip { LS_CLIP_VALUE = 0, LS_CLIP_NORM = 1, LS_CLIP_COUNT = 2 };

#define LS_CONCATENATE_INPUTS 8 // at most

// What an operation is told beside its arguments; fields that it does not use are zero.
struct ls_op_attributes {
    int32_t kernel[2]; // pooling window, LS_OP_DRAW: rows, columns (a convolution has it in w)
    int32_t strides[2]; // rows, columns
    int32_t padding[4]; // zeros (pooling: nothing) added at top, bottom, left, right
    int32_t dilation[2]; // 1: none
    int32_t groups; // 1: none; layer normalization: 0 or more
    uint32_t activation; // enum ls_activation
    float activation_alpha; // of the activation, where it has one; not of LS_OP_RECURRENT

    // A fused element-wise operation on the first output: LS_OP_ACTIVATION, or
    // LS_OP_ACTIVATION_BACKWARD, whose y is then one more input after the others: the tensor whose
    // gradient the first output is (x of LS_OP_MAX_POOL2D_BACKWARD). LS_OP_NONE: none.
    uint32_t epilogue;
    uint32_t epilogue_activation; // enum ls_activation, of the epilogue
    float epilogue_alpha; // activation_alpha of the epilogue

    float rate; // dropout, attention, recurrent; noise: the standard deviation
    uint32_t key; // dropout, attention, recurrent, noise, draws: number of the layer
    uint32_t from_logits; // losses: 0 or 1
    float epsilon; // cross-entropy from probabilities, optimizers, normalization
    float momentum; // SGD, RMSprop, LS_OP_AVERAGE_UPDATE, LS_OP_EMA_UPDATE
    uint32_t nesterov; // SGD: 0 or 1
    float beta1, beta2; // optimizers, LS_OP_DRAW
    float divisor; // LS_OP_FROM_BYTES
    float factor; // LS_OP_BATCH_STATISTICS, LS_OP_FUNCTION, LS_OP_ERASE
    float offset; // LS_OP_FUNCTION, LS_OP_DIFFERS, LS_OP_RESAMPLE, LS_OP_ERASE, LS_OP_LOOKUP
    uint32_t only_beta; // layer normalization: 0 or 1
    uint32_t causal; // attention: 0 or 1
    float l1, l2; // LS_OP_PENALTY; a range: LS_OP_DRAW, LS_OP_RECOLOUR, LS_OP_ERASE
    uint32_t function; // of operations that choose one: LS_OP_FUNCTION, LS_OP_PAIR, ...
    // One number for each dimension. LS_OP_REDUCE: 1 if it is reduced; LS_OP_CONCATENATE: 1 for the
    // one to concatenate along; LS_OP_SLICE, LS_OP_PAD: where the part begins; LS_OP_TRANSPOSE:
    // which dimension of x it is; LS_OP_DROPOUT: 1 if all elements along it share one draw.
    // Convolutions of volumes: stride, dilation, and zeros before and behind, all of the planes.
    int32_t axes[LS_MAX_DIMS];
    float weight_decay; // LS_OP_UPDATE, LS_OP_LAMB_DIRECTION
    float threshold; // LS_OP_CLIP, LS_OP_LOSS, LS_OP_METRIC
    uint32_t count; // LS_OP_EMA_UPDATE, LS_OP_METRIC, LS_OP_LOOKUP, LS_OP_ENCODE
    float smoothing; // LS_OP_LOSS
    uint32_t recurrent_activation; // enum ls_activation; LS_OP_RECURRENT
    uint32_t sequence; // LS_OP_RECURRENT: bits of enum ls_sequence
    uint32_t reserved[1];
};

// What changes from step to step. It is in device memory, so that a recorded step can be replayed.
struct ls_step_record {
    uint64_t step; // attempted steps, from 1: what dropout draws from
    uint64_t seed; // of the run
    uint64_t example_offset; // position in the global batch of this replica's first example
    float learning_rate; // of this step
    float gradient_scale; // 1 / examples of the global batch, times the loss scale
    uint32_t skip; // 1: updates leave everything as it is
    // Examples of this pass, divided by those of the global batch, or with LS_DIVISOR_OWN or _SHARE
    // of the replica's share. The weights of a step add up to 1.
    float share_weight;
    uint64_t update; // updates of the optimizer, from 1 (Adam's t); a skipped step does not count
    float loss_scale; // a factor of gradient_scale; 1: none
    uint32_t reserved[5];
};

// ---- Shared arithmetic, so that every device draws the same numbers ----

// 64 well-mixed bits of two words (splitmix64's finaliser, Steele, Lea, Flood 2014, applied twice).
static inline uint64_t ls_mix64(uint64_t a, uint64_t b)
{
    uint64_t z = a + UINT64_C(0x9e3779b97f4a7c15) * (b + 1);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

// The key of one example in one layer and step, for ls_dropout_keep() and ls_noise_bits().
static inline uint64_t ls_dropout_key(const struct ls_step_record *record, uint32_t layer,
                                      uint64_t example)
{
    return ls_mix64(ls_mix64(ls_mix64(record->seed, record->step), layer),
                    record->example_offset + example);
}

// Whether dropout keeps element `element` (index within the example, plain layout): 1 or 0. The
// arithmetic is 32-bit (a finaliser of the xorshift-multiply family, as in MurmurHash3), so that
// compilers can vectorise it.
static inline uint32_t ls_dropout_keep(uint64_t key, uint32_t element, float rate)
{
    uint32_t z = element * UINT32_C(0x9e3779b9) + (uint32_t)key;
    z = (z ^ (z >> 16)) * UINT32_C(0x85ebca6b);
    z = (z ^ (z >> 13) ^ (uint32_t)(key >> 32)) * UINT32_C(0xc2b2ae35);
    z ^= z >> 16;
    return (float)(z >> 8) * 0x1p-24f >= rate;
}

// The random bits for the noise of element `element` (index within the example, plain layout).
static inline uint64_t ls_noise_bits(uint64_t key, uint64_t element)
{
    return ls_mix64(key, element);
}

// The product of beta1 (1 - 0.96^i / 2) for i = 1 .. t, of LS_UPDATE_NADAM. It ends early when one
// minus the product is 1 in every type.
static inline double ls_nadam_product(double beta1, uint64_t t)
{
    double product = 1, power = 1;
    for (uint64_t i = 0; i < t && product > 1e-20; i++) {
        power *= 0.96;
        product *= beta1 * (1 - 0.5 * power);
    }
    return product;
}

#ifdef __cplusplus
}
#endif

#endif
