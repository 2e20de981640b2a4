// SPDX-License-Identifier: Apache-2.0
// Functions of elements whose derivative needs x (enum ls_function, as device `reference` defines them), four elements a thread
// where all of them are aligned. Kernels know the type; the function is the same for all threads.
#ifndef LS_DEVICE_CUDA_FUNCTION_CUH
#define LS_DEVICE_CUDA_FUNCTION_CUH

#include "plugins/device/cuda/engine/grid.cuh"
#include "plugins/device/cuda/engine/store_body.h"

namespace functions {

__device__ inline float sigmoid(float x)
{
    return cuda_activate(LS_SIGMOID, 0, x);
}

__device__ inline float softplus(float x)
{
    return cuda_activate(LS_SOFTPLUS, 0, x);
}

__device__ inline float hard_sigmoid(float x)
{
    return cuda_activate(LS_HARD_SIGMOID, 0, x);
}

constexpr float root_of_half = 0.70710678118654752f;
constexpr float root_of_two_over_pi = 0.79788456080286536f;

// (1 + erf(x / sqrt(2))) / 2, which loses nothing where x is far below 0.
__device__ inline float normal_share(float x)
{
    return erfcf(-x * root_of_half) / 2;
}

// For results that are halves: off by less than 1e-6, in a fifth of the instructions (Abramowitz, Stegun 7.1.26). `bell` is exp(-x^2 / 2).
__device__ inline float quick_normal_share(float x, float bell)
{
    const float t = __fdividef(1, 1 + 0.3275911f * root_of_half * fabsf(x));
    const float sum = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    const float above = sum * bell / 2; // the share above |x|
    return x < 0 ? above : 1 - above;
}

__device__ inline float gelu_tanh(float x)
{
    return tanhf(root_of_two_over_pi * (x + 0.044715f * x * x * x));
}

template <bool half>
__device__ inline float function_of(const struct cuda_function &f, float x)
{
    switch (f.function) {
    case LS_GELU: return x * (half ? quick_normal_share(x, __expf(-x * x / 2)) : normal_share(x));
    case LS_GELU_TANH: return x * (1 + gelu_tanh(x)) / 2;
    case LS_SILU: return x * sigmoid(x);
    case LS_HARD_SILU: return x * hard_sigmoid(x);
    case LS_MISH: return x * tanhf(softplus(x));
    case LS_LOG_SIGMOID: return -softplus(-x);
    case LS_SQUARE: return x * x;
    case LS_SQUARE_ROOT: return sqrtf(x) < f.offset ? f.offset : sqrtf(x);
    case LS_LOGARITHM: return logf(x);
    default: return f.factor * x + f.offset;
    }
}

template <bool half>
__device__ inline float slope_of(const struct cuda_function &f, float x)
{
    switch (f.function) {
    case LS_GELU: {
        const float bell = half ? __expf(-x * x / 2) : expf(-x * x / 2);
        return (half ? quick_normal_share(x, bell) : normal_share(x)) + x * bell * (root_of_two_over_pi / 2);
    }
    case LS_GELU_TANH: {
        const float t = gelu_tanh(x);
        return (1 + t) / 2 + x * (1 - t * t) / 2 * root_of_two_over_pi * (1 + 3 * 0.044715f * x * x);
    }
    case LS_SILU: return sigmoid(x) + x * sigmoid(x) * sigmoid(-x);
    case LS_HARD_SILU: return hard_sigmoid(x) + (x > -3 && x < 3 ? x / 6 : 0);
    case LS_MISH: {
        const float t = tanhf(softplus(x));
        return t + x * (1 - t * t) * sigmoid(x);
    }
    case LS_LOG_SIGMOID: return sigmoid(-x);
    case LS_SQUARE: return 2 * x;
    case LS_SQUARE_ROOT: return sqrtf(x) > f.offset ? 1 / (2 * sqrtf(x)) : 0;
    case LS_LOGARITHM: return 1 / x;
    default: return f.factor;
    }
}

template <uint32_t type, bool backward>
__device__ inline float result(const struct cuda_function &f, float x, float dy)
{
    constexpr bool half = type != CUDA_FLOAT;
    return backward ? dy * slope_of<half>(f, x) : function_of<half>(f, x);
}

// An item is the four elements from 4 i on, or what is left of them.
template <uint32_t type, bool backward>
__device__ void body(const struct cuda_function *f, int64_t i)
{
    struct cuda_store store = f->store;
    store.type = type;
    if (f->aligned && 4 * i + 4 <= f->count) {
        struct cuda_four x = cuda_load_four(f->x, type, 4 * i), dy = {{0}};
        if (backward)
            dy = cuda_load_four(f->dy, type, 4 * i);
        for (int k = 0; k < 4; k++)
            x.v[k] = result<type, backward>(*f, x.v[k], dy.v[k]);
        cuda_put_four(&store, 4 * i, x);
        return;
    }
    for (int64_t k = 4 * i; k < 4 * i + 4 && k < f->count; k++)
        cuda_put(&store, k, result<type, backward>(*f, cuda_load(f->x, type, k), backward ? cuda_load(f->dy, type, k) : 0));
}

} // namespace functions

extern "C" unsigned cuda_function_launch(const struct cuda_function *f, struct CUstream_st *stream)
{
    return for_type(f->store.type, [&](auto type) {
        return for_flag(f->dy, [&](auto backward) {
            return start<struct cuda_function, functions::body<type, backward>>(f, (f->count + 3) / 4, stream);
        });
    });
}

#endif
