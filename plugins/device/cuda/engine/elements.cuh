// SPDX-License-Identifier: Apache-2.0
// What goes element by element, four elements at once, and two fours a thread, all of which it asks for before it waits. Where a
// count or an address is no multiple of four elements, the bodies of bodies.h run instead, with the same bits.
#ifndef LS_DEVICE_CUDA_ELEMENTS_CUH
#define LS_DEVICE_CUDA_ELEMENTS_CUH

#include "plugins/device/cuda/engine/bodies.h"

template <uint32_t kernel>
constexpr bool cuda_has_two =
    kernel == cuda_kernel_activation_backward || kernel == cuda_kernel_add;

// What an element becomes before it is stored. y: the second input, the bias, or whether it is kept.
template <uint32_t kernel>
__device__ inline float cuda_element(const cuda_arguments &a, float x, float y)
{
    switch (kernel) {
    case cuda_kernel_activation: return cuda_activate(a.activation, a.alpha, x);
    case cuda_kernel_activation_backward: return x * cuda_slope(a.activation, a.alpha, y);
    case cuda_kernel_add: return x + y;
    case cuda_kernel_dropout: return cuda_dropped(&a, y != 0, x);
    case cuda_kernel_from_bytes: return cuda_from_byte(&a, x);
    case cuda_kernel_penalty_backward: return cuda_penalty_slope(&a, x);
    default: return a.bias ? x + y : x;
    }
}

// The fours of a thread: the first elements. Who has one only asks for that twice, without a branch between loads.
struct cuda_fours {
    int64_t at[2];
    bool two;
};

__device__ inline cuda_four cuda_load_bytes(const void *values, int64_t i)
{
    const uchar4 four = *(const uchar4 *)((const uint8_t *)values + i);
    return {{(float)four.x, (float)four.y, (float)four.z, (float)four.w}};
}

// All four are of one example.
__device__ inline cuda_four cuda_kept(const cuda_arguments &a, int64_t i)
{
    const int64_t example = cuda_quotient(i, a.columns);
    const uint64_t key = cuda_draw_key(a.record, a.key, example);
    const uint32_t first = (uint32_t)(i - example * a.columns);
    cuda_four out;
    for (uint32_t k = 0; k < 4; k++)
        out.v[k] = (float)cuda_keep(key, first + k, a.rate);
    return out;
}

// `plain`: nothing but a rounding follows.
template <uint32_t kernel, uint32_t from, uint32_t to, bool plain>
__device__ void cuda_elements(const cuda_arguments &a, const cuda_fours &fours)
{
    cuda_four x[2], y[2] = {};
    for (int e = 0; e < 2; e++) {
        x[e] = kernel == cuda_kernel_from_bytes ? cuda_load_bytes(a.a, fours.at[e])
                                                : cuda_load_four(a.a, from, fours.at[e]);
        if (cuda_has_two<kernel>)
            y[e] = cuda_load_four(a.b, from, fours.at[e]);
    }
    if (kernel == cuda_kernel_finish && a.bias)
        for (int e = 0; e < 2; e++)
            y[e] = cuda_load_four(a.bias, from, cuda_remainder(fours.at[e], a.columns));
    if (kernel == cuda_kernel_dropout)
        for (int e = 0; e < 2; e++)
            y[e] = cuda_kept(a, fours.at[e]);
    cuda_store store = a.store;
    store.type = to;
    if (plain)
        store.epilogue = store.add = 0;
    int64_t at = fours.at[0];
    for (int left = fours.two ? 2 : 1; left > 0; left--) {
        for (int k = 0; k < 4; k++)
            x[0].v[k] = cuda_element<kernel>(a, x[0].v[k], y[0].v[k]);
        cuda_put_four(&store, at, x[0]);
        x[0] = x[1];
        y[0] = y[1];
        at = fours.at[1];
    }
}

#endif
