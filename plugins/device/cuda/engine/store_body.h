// SPDX-License-Identifier: Apache-2.0
// What all bodies share, as C that is also CUDA C++: division, numbers in memory through their type, one or four at a time, and
// where a result goes: epilogue, addition, one rounding.
#ifndef LS_DEVICE_CUDA_STORE_BODY_H
#define LS_DEVICE_CUDA_STORE_BODY_H

#include "plugins/device/cuda/engine/half.h"
#include "plugins/device/cuda/engine/kernels.h"

#include <math.h>

// Division of 64-bit integers takes a GPU long, and is rarely needed.
CUDA_SHARED int64_t cuda_quotient(int64_t a, int64_t b)
{
    return (a | b) >> 32 ? a / b : (int64_t)((uint32_t)a / (uint32_t)b);
}

CUDA_SHARED int64_t cuda_remainder(int64_t a, int64_t b)
{
    return a - cuda_quotient(a, b) * b;
}

// ---- Numbers in memory ----

CUDA_SHARED float cuda_load(const void *values, uint32_t type, int64_t i)
{
    switch (type) {
    case CUDA_F16: return cuda_from_f16(((const uint16_t *)values)[i]);
    case CUDA_BF16: return cuda_from_bf16(((const uint16_t *)values)[i]);
    default: return ((const float *)values)[i];
    }
}

CUDA_SHARED void cuda_write(void *values, uint32_t type, int64_t i, float value)
{
    switch (type) {
    case CUDA_F16: ((uint16_t *)values)[i] = cuda_to_f16(value); break;
    case CUDA_BF16: ((uint16_t *)values)[i] = cuda_to_bf16(value); break;
    default: ((float *)values)[i] = value;
    }
}

// Four elements side by side, which a thread reads and writes at once: the first is a multiple of four, and its address one of
// their size.
struct cuda_four {
    float v[4];
} __attribute__((aligned(16)));

struct cuda_four_halves {
    uint16_t v[4];
} __attribute__((aligned(8)));

CUDA_SHARED struct cuda_four cuda_load_four(const void *values, uint32_t type, int64_t i)
{
    if (type == CUDA_FLOAT)
        return *(const struct cuda_four *)((const float *)values + i);
    const struct cuda_four_halves halves =
        *(const struct cuda_four_halves *)((const uint16_t *)values + i);
    struct cuda_four out;
    for (int k = 0; k < 4; k++)
        out.v[k] = type == CUDA_F16 ? cuda_from_f16(halves.v[k]) : cuda_from_bf16(halves.v[k]);
    return out;
}

// A GPU is told by name that it is one store: left to itself the compiler makes four of it.
CUDA_SHARED void cuda_write_four(void *values, uint32_t type, int64_t i, struct cuda_four four)
{
    struct cuda_four_halves halves = {{0}};
    for (int k = 0; type != CUDA_FLOAT && k < 4; k++)
        halves.v[k] = type == CUDA_F16 ? cuda_to_f16(four.v[k]) : cuda_to_bf16(four.v[k]);
    struct cuda_four *to = (struct cuda_four *)((float *)values + i);
    struct cuda_four_halves *to_halves = (struct cuda_four_halves *)((uint16_t *)values + i);
#ifdef __CUDA_ARCH__
    if (type == CUDA_FLOAT)
        __stwb((float4 *)to, make_float4(four.v[0], four.v[1], four.v[2], four.v[3]));
    else
        __stwb((ushort4 *)to_halves,
               make_ushort4(halves.v[0], halves.v[1], halves.v[2], halves.v[3]));
#else
    if (type == CUDA_FLOAT)
        *to = four;
    else
        *to_halves = halves;
#endif
}

// ---- Activations: as device `reference` defines them ----

CUDA_SHARED float cuda_activate(uint32_t activation, float alpha, float x)
{
    switch (activation) {
    case LS_RELU: return x < 0 ? 0 : x; // NaN stays NaN
    case LS_LEAKY_RELU: return x < 0 ? alpha * x : x;
    case LS_ELU: return x < 0 ? alpha * expm1f(x) : x;
    case LS_SIGMOID: return x < 0 ? expf(x) / (1 + expf(x)) : 1 / (1 + expf(-x));
    case LS_TANH: return tanhf(x);
    case LS_SOFTPLUS: return (x < 0 ? 0 : x) + log1pf(expf(-fabsf(x)));
    case LS_EXPONENTIAL: return expf(x);
    case LS_RELU6: return x < 0 ? 0 : x > 6 ? 6 : x;
    case LS_SOFTSIGN: return x / (1 + fabsf(x));
    case LS_SELU: return 1.0507009873554805f * (x < 0 ? 1.6732632423543772f * expm1f(x) : x);
    case LS_HARD_SIGMOID: return x < -3 ? 0 : x > 3 ? 1 : (x + 3) / 6;
    default: return x;
    }
}

CUDA_SHARED float cuda_slope(uint32_t activation, float alpha, float y)
{
    switch (activation) {
    case LS_RELU: return y > 0 ? 1.0f : 0.0f;
    case LS_LEAKY_RELU: return y > 0 ? 1 : alpha;
    case LS_ELU: return y > 0 ? 1 : y + alpha;
    case LS_SIGMOID: return y * (1 - y);
    case LS_TANH: return 1 - y * y;
    case LS_SOFTPLUS: return -expm1f(-y);
    case LS_EXPONENTIAL: return y;
    case LS_RELU6: return y > 0 && y < 6 ? 1.0f : 0.0f;
    case LS_SOFTSIGN: return (1 - fabsf(y)) * (1 - fabsf(y));
    case LS_SELU: return y > 0 ? 1.0507009873554805f : y + 1.7580993408473766f;
    case LS_HARD_SIGMOID: return y > 0 && y < 1 ? 1.0f / 6 : 0.0f;
    default: return 1;
    }
}

// ---- Where a result goes ----

// `y` is that of a backward epilogue, `before` what an addition finds.
CUDA_SHARED float cuda_follow(const struct cuda_store *store, float value, float y, float before)
{
    if (store->epilogue == 1)
        value = cuda_activate(store->activation, store->alpha, value);
    if (store->epilogue == 2)
        value *= cuda_slope(store->activation, store->alpha, y);
    return store->add ? value + before : value;
}

CUDA_SHARED void cuda_put(const struct cuda_store *store, int64_t i, float value)
{
    const float y = store->epilogue == 2 ? cuda_load(store->y, store->type, i) : 0;
    const float before = store->add ? cuda_load(store->out, store->type, i) : 0;
    cuda_write(store->out, store->type, i, cuda_follow(store, value, y, before));
}

CUDA_SHARED void cuda_put_four(const struct cuda_store *store, int64_t i, struct cuda_four value)
{
    struct cuda_four y = {{0}}, before = {{0}};
    if (store->epilogue == 2)
        y = cuda_load_four(store->y, store->type, i);
    if (store->add)
        before = cuda_load_four(store->out, store->type, i);
    for (int k = 0; k < 4; k++)
        value.v[k] = cuda_follow(store, value.v[k], y.v[k], before.v[k]);
    cuda_write_four(store->out, store->type, i, value);
}

// ---- A pack: four elements, or one, which is then v[0] ----

CUDA_SHARED struct cuda_four cuda_take(const void *values, uint32_t type, int64_t i, int pack)
{
    if (pack == 4)
        return cuda_load_four(values, type, i);
    const struct cuda_four one = {{cuda_load(values, type, i)}};
    return one;
}

CUDA_SHARED void cuda_give(const struct cuda_store *store, int64_t i, struct cuda_four four,
                           int pack)
{
    if (pack == 4)
        cuda_put_four(store, i, four);
    else
        cuda_put(store, i, four.v[0]);
}

#endif
