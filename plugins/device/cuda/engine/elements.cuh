// SPDX-License-Identifier: Apache-2.0
// What goes element by element, four elements at once, and two fours a thread, all of which it asks
// for before it waits. Where a count or an address is no multiple of four elements, a thread has
// one, with the same bits.
#ifndef LS_DEVICE_CUDA_ELEMENTS_CUH
#define LS_DEVICE_CUDA_ELEMENTS_CUH

#include "plugins/device/cuda/engine/bodies.h"
#include "plugins/device/cuda/engine/grid.cuh"

template <uint32_t kernel>
constexpr bool cuda_has_two =
    kernel == cuda_kernel_activation_backward || kernel == cuda_kernel_add;

// Rounded once whatever the compiler's flags: the CPU's input thread divides, too.
__device__ inline float cuda_from_byte(const cuda_arguments &a, float x)
{
    return __fdiv_rn(x, a.divisor);
}

// alpha: l1, factor: l2
__device__ inline float cuda_penalty_slope(const cuda_arguments &a, float w)
{
    const float scale = (float)a.examples * a.record->gradient_scale;
    return scale * (a.alpha * (float)((w > 0) - (w < 0)) + 2 * a.factor * w);
}

// What an element becomes before it is stored. y: the second input, bias, whether kept, or noise.
template <uint32_t kernel>
__device__ inline float cuda_element(const cuda_arguments &a, float x, float y)
{
    switch (kernel) {
    case cuda_kernel_activation: return cuda_activate(a.activation, a.alpha, x);
    case cuda_kernel_activation_backward: return x * cuda_slope(a.activation, a.alpha, y);
    case cuda_kernel_add: return x + y;
    case cuda_kernel_dropout: return y != 0 ? x / (1 - a.rate) : 0;
    case cuda_kernel_noise: return x + a.rate * y;
    case cuda_kernel_from_bytes: return cuda_from_byte(a, x);
    case cuda_kernel_penalty_backward: return cuda_penalty_slope(a, x);
    default: return a.bias ? x + y : x;
    }
}

// columns: of the bias, or elements of an example
template <uint32_t kernel> __device__ void cuda_one_element(const cuda_arguments *a, int64_t i)
{
    const float x =
        kernel == cuda_kernel_from_bytes ? (float)((const uint8_t *)a->a)[i] : cuda_a(a, i);
    float y = 0;
    if (cuda_has_two<kernel>)
        y = cuda_b(a, i);
    if (kernel == cuda_kernel_finish && a->bias)
        y = cuda_bias(a, cuda_remainder(i, a->columns));
    if (kernel == cuda_kernel_dropout || kernel == cuda_kernel_noise) {
        const int64_t example = cuda_quotient(i, a->columns), element = i - example * a->columns;
        const uint64_t key = cuda_draw_key(a->record, a->key, example);
        y = kernel == cuda_kernel_noise ? cuda_normal(key, (uint64_t)element)
                                        : (float)cuda_keep(key, (uint32_t)element, a->rate);
    }
    cuda_put(&a->store, i, cuda_element<kernel>(*a, x, y));
}

// ---- Four at once ----

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
__global__ void __launch_bounds__(threads)
    cuda_elements(const __grid_constant__ struct cuda_arguments a, int64_t fours)
{
    const int64_t first = (int64_t)blockIdx.x * 2 * threads + threadIdx.x, second = first + threads;
    const bool two = second < fours;
    // The first elements of the fours of a thread. Who has one only asks for that twice, without a
    // branch between loads.
    const int64_t places[2] = {first * 4, (two ? second : first) * 4};
    cuda_four x[2], y[2] = {};
    if (first >= fours)
        return;
    for (int e = 0; e < 2; e++) {
        x[e] = kernel == cuda_kernel_from_bytes ? cuda_load_bytes(a.a, places[e])
                                                : cuda_load_four(a.a, from, places[e]);
        if (cuda_has_two<kernel>)
            y[e] = cuda_load_four(a.b, from, places[e]);
    }
    if (kernel == cuda_kernel_finish && a.bias)
        for (int e = 0; e < 2; e++)
            y[e] = cuda_load_four(a.bias, from, cuda_remainder(places[e], a.columns));
    if (kernel == cuda_kernel_dropout)
        for (int e = 0; e < 2; e++)
            y[e] = cuda_kept(a, places[e]);
    cuda_store store = a.store;
    store.type = to;
    if (plain)
        store.epilogue = store.add = 0;
    int64_t at = places[0];
    for (int left = two ? 2 : 1; left > 0; left--) {
        for (int k = 0; k < 4; k++)
            x[0].v[k] = cuda_element<kernel>(a, x[0].v[k], y[0].v[k]);
        cuda_put_four(&store, at, x[0]);
        x[0] = x[1];
        y[0] = y[1];
        at = places[1];
    }
}

// ---- Launches ----

template <uint32_t kernel, uint32_t from, uint32_t to>
unsigned cuda_start_elements(const struct cuda_arguments *a, int64_t items, cudaStream_t stream)
{
    const int64_t fours = items / 4;
    return for_flag(!a->store.epilogue && !a->store.add, [&](auto plain) {
        return launch<cuda_elements<kernel, from, to, plain>>(
            dim3((unsigned)((fours + 2 * threads - 1) / (2 * threads))), threads, stream, *a,
            fours);
    });
}

// Whether it has begun, or failed with `error`; false: there is no such kernel for these types and
// addresses.
template <uint32_t kernel>
bool cuda_try_elements(const struct cuda_arguments *a, int64_t items, cudaStream_t stream,
                       unsigned *error)
{
    constexpr bool float_only =
        kernel == cuda_kernel_from_bytes || kernel == cuda_kernel_penalty_backward;
    constexpr bool converts = kernel == cuda_kernel_finish, two = cuda_has_two<kernel>;
    const uint32_t from = a->a_type, to = a->store.type;
    const uintptr_t all = (uintptr_t)a->a | (two ? (uintptr_t)a->b : 0) | (uintptr_t)a->bias |
                          (uintptr_t)a->store.out | (uintptr_t)a->store.y;
    const bool by_columns = a->bias || kernel == cuda_kernel_dropout;
    if (items % 4 || all % 16 || (by_columns && a->columns % 4) || (two && a->b_type != from) ||
        (float_only && (from | to)) || (from != to && (!converts || (from && to))))
        return false;
    if constexpr (kernel == cuda_kernel_noise)
        return false;
    else if constexpr (float_only)
        *error = cuda_start_elements<kernel, CUDA_FLOAT, CUDA_FLOAT>(a, items, stream);
    else if (from == to)
        *error = for_type(from, [&](auto type) {
            return cuda_start_elements<kernel, type, type>(a, items, stream);
        });
    else if constexpr (converts)
        *error = for_flag(from, [&](auto narrow) {
            return for_flag((from | to) == CUDA_F16, [&](auto is_f16) {
                constexpr uint32_t half = is_f16 ? CUDA_F16 : CUDA_BF16;
                return narrow ? cuda_start_elements<kernel, half, CUDA_FLOAT>(a, items, stream)
                              : cuda_start_elements<kernel, CUDA_FLOAT, half>(a, items, stream);
            });
        });
    return true;
}

#endif
