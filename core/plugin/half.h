// SPDX-License-Identifier: Apache-2.0
// The half types of operations: which arguments may have them, and how they are converted to and
// from float32.
#ifndef LS_PLUGIN_HALF_H
#define LS_PLUGIN_HALF_H

#include "core/plugin/device.h"

#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

// 1: bfloat16 or float16.
static inline uint32_t ls_dtype_is_half(uint32_t dtype)
{
    return dtype == LS_BF16 || dtype == LS_F16;
}

// ---- Which type ----

// The type that argument `index` must have in a request of this operation, given its first
// argument; 0: no type fits. core/plugin/operations.h, "Half types", has the rule in words.
static inline uint32_t ls_argument_dtype(const struct ls_kernel_request *request, uint32_t index)
{
    const uint32_t first = request->arguments[0].dtype, own = request->arguments[index].dtype;
    const uint32_t is_output = index >= request->input_count;
    const uint32_t gradient = request->arguments[request->input_count].dtype; // of weights
    const uint32_t floating = first == LS_F32 || ls_dtype_is_half(first) ? first : 0;
    const uint32_t f32 = LS_F32, i32 = LS_I32, u8 = LS_U8; // C++ mixes no enumeration with a number

    switch (request->op) {
    case LS_OP_CONV2D_BACKWARD_WEIGHTS:
    case LS_OP_DENSE_BACKWARD_WEIGHTS:
        return is_output && floating && gradient == LS_F32 ? f32 : floating;
    case LS_OP_MAX_POOL2D: return index == request->input_count + 1 ? u8 : floating;
    case LS_OP_MAX_POOL2D_BACKWARD: return index == 3 ? u8 : floating;
    case LS_OP_CONVERT: return own == LS_F32 || ls_dtype_is_half(own) ? own : 0;
    case LS_OP_SPARSE_CROSS_ENTROPY: return index == 0 ? floating : index == 1 ? i32 : f32;
    case LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD: return index == 1 ? i32 : index == 2 ? f32 : floating;
    case LS_OP_MEAN_SQUARED_ERROR: return index == 0 ? floating : f32;
    case LS_OP_MEAN_SQUARED_ERROR_BACKWARD: return index == 1 ? f32 : floating;
    case LS_OP_MEASURE: return is_output ? LS_F64 : LS_F32;
    case LS_OP_FROM_BYTES: return is_output ? LS_F32 : LS_U8;
    case LS_OP_GUARD: return index ? LS_I32 : LS_F32;
    case LS_OP_SGD_UPDATE:
    case LS_OP_ADAM_UPDATE:
    case LS_OP_BATCH_STATISTICS:
    case LS_OP_AVERAGE_UPDATE:
    case LS_OP_UPDATE:
    case LS_OP_LAMB_DIRECTION:
    case LS_OP_UNSCALE:
    case LS_OP_EMA_UPDATE: return LS_F32;
    case LS_OP_LOSS:
    case LS_OP_LOSS_BACKWARD:
    case LS_OP_POSITION_LOSS:
    case LS_OP_POSITION_LOSS_BACKWARD:
    case LS_OP_METRIC:
        if (index == 3 && !is_output)
            return LS_F64;
        return index == 1 && own == LS_I32 ? i32 : f32;
    case LS_OP_MASKED_MEAN:
    case LS_OP_MASKED_MEAN_BACKWARD: return index == 2 ? LS_F64 : LS_F32;
    case LS_OP_CLIP:
    case LS_OP_LAMB_UPDATE: return index == 1 && !is_output ? LS_F64 : LS_F32;
    case LS_OP_BATCH_NORMALIZATION: // gamma and beta, mean and variance
        return index == 1 || index == 2 || index > request->input_count ? (floating ? f32 : 0)
                                                                        : floating;
    case LS_OP_BATCH_NORMALIZATION_BACKWARD: // gamma, mean and variance, dgamma and dbeta
        return (index >= 1 && index <= 3) || index > request->input_count ? (floating ? f32 : 0)
                                                                          : floating;
    case LS_OP_BATCH_NORMALIZATION_INFERENCE:
        return index >= 1 && index <= 4 ? (floating ? f32 : 0) : floating;
    case LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_DATA: // gamma, variance
        return index == 1 || index == 2 ? (floating ? f32 : 0) : floating;
    case LS_OP_BATCH_NORMALIZATION_INFERENCE_BACKWARD_WEIGHTS: // mean, variance, dgamma, dbeta
        return index == 0 || index == 3 ? floating : (floating ? f32 : 0);
    case LS_OP_BATCH_MOMENTS: return is_output ? LS_F64 : LS_F32;
    case LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED: return index == 3 ? LS_F64 : LS_F32;
    case LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_SUMS: return index == 6 ? LS_F64 : LS_F32;
    case LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED_BACKWARD_DATA: return index == 5 ? LS_F64 : LS_F32;
    case LS_OP_LAYER_NORMALIZATION:
    case LS_OP_RECURRENT:
    case LS_OP_ATTENTION: return index == request->input_count + 1 ? u8 : f32;
    case LS_OP_LAYER_NORMALIZATION_BACKWARD: return index == 2 ? u8 : f32;
    case LS_OP_ATTENTION_BACKWARD: return index == 4 ? u8 : f32;
    case LS_OP_RECURRENT_BACKWARD: return index == 5 ? u8 : f32;
    case LS_OP_DIFFERS:
    case LS_OP_BUCKET:
    case LS_OP_LOOKUP:
    case LS_OP_ENCODE:
    case LS_OP_GATHER_ROWS:
    case LS_OP_GATHER_ROWS_BACKWARD: return index || own == LS_F32 ? f32 : i32;
    case LS_OP_DENSE_TRANSPOSED:
    case LS_OP_DENSE_TRANSPOSED_BACKWARD_DATA:
    case LS_OP_DENSE_TRANSPOSED_BACKWARD_WEIGHTS:
    case LS_OP_RESIZE2D:
    case LS_OP_RESIZE2D_BACKWARD:
    case LS_OP_DRAW:
    case LS_OP_RESAMPLE:
    case LS_OP_RESAMPLE_BACKWARD:
    case LS_OP_RECOLOUR:
    case LS_OP_RECOLOUR_BACKWARD:
    case LS_OP_ERASE:
    case LS_OP_ERASE_BACKWARD: return f32;
    default:
        return request->op >= LS_OP_LAYER_NORMALIZATION && request->op <= LS_OP_PENALTY_BACKWARD
                   ? f32
                   : floating;
    }
}

// ---- Conversions ----

// The float32 that a half stands for: exact.
static inline float ls_half_get(uint32_t dtype, uint16_t half)
{
    const uint32_t magnitude = half & UINT32_C(0x7fff), sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t bits = magnitude << 16; // bfloat16 is the upper half of a float32
    float value;
    if (dtype == LS_F16) {
        // Five bits of exponent with bias 15, ten of mantissa; the largest exponent is infinity and
        // NaN.
        const uint32_t exponent = magnitude >> 10, mantissa = magnitude & 0x3ff;
        value = (float)mantissa * 0x1p-24f; // where the exponent is 0
        memcpy(&bits, &value, sizeof(bits));
        if (exponent)
            bits = (exponent == 31 ? UINT32_C(255) : exponent + 112) << 23 | mantissa << 13;
    }
    bits |= sign;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

// The half nearest to `value`, ties to even; infinity beyond the largest half. A NaN stays a NaN.
static inline uint16_t ls_half_of(uint32_t dtype, float value)
{
    const uint32_t dropped = dtype == LS_F16 ? 13 : 16; // bits of the mantissa that a half lacks
    const uint32_t infinity = dtype == LS_F16 ? 0x7c00 : 0x7f80;
    uint32_t bits, magnitude;
    memcpy(&bits, &value, sizeof(bits));
    magnitude = bits & UINT32_C(0x7fffffff);

    uint32_t half = dtype == LS_F16 ? 0x7e00 : 0x7fc0; // of a NaN
    if (magnitude <= UINT32_C(0x7f800000)) {
        half = 0;
        if (dtype == LS_F16 && magnitude < UINT32_C(0x38800000)) {
            // Below 2^-14: a number of 2^-24. Adding 2^-1 rounds to one, as the last bit of that
            // sum is 2^-24.
            float shifted;
            memcpy(&shifted, &magnitude, sizeof(shifted));
            shifted += 0.5f;
            memcpy(&half, &shifted, sizeof(half));
            half -= UINT32_C(0x3f000000);
        } else {
            const uint32_t rebased =
                magnitude - (dtype == LS_F16 ? UINT32_C(112) << 23 : UINT32_C(0));
            const uint32_t even = rebased >> dropped & 1;
            half = (rebased + (UINT32_C(1) << (dropped - 1)) - 1 + even) >> dropped;
            half = half < infinity ? half : infinity;
        }
    }
    return (uint16_t)(half | (bits >> 16 & 0x8000));
}

#ifdef __cplusplus
}
#endif

#endif
