// SPDX-License-Identifier: Apache-2.0
// What goes over flat ranges of float32: the optimizers' updates (enum ls_update), LAMB, averages, clipping, the loss scale. Kernels know
// the function; a thread has four elements where all addresses are aligned. What changes from step to step is read from the record
// there.
#ifndef LS_DEVICE_CUDA_UPDATE_CUH
#define LS_DEVICE_CUDA_UPDATE_CUH

#include "plugins/device/cuda/engine/pairs.cuh"
#include "plugins/device/cuda/engine/store_body.h"

#include <utility>

namespace updates
{

// The product of ls_nadam_product(), by all threads of a block, each of which has some of the first factors; thread 0 gets it. The
// factors behind those are beta1 to the last bit: 0.96^i is too small there.
__device__ inline double nadam_product(double beta1, uint64_t t)
{
    constexpr uint64_t each = 4, first = each * threads;
    static_assert(first >= 900, "0.96^i / 2 is below half of the last bit of 1");
    __shared__ double shared[threads];
    double product = 1, power = pow(0.96, (double)(each * threadIdx.x));
    for (uint64_t i = each * threadIdx.x; i < each * (threadIdx.x + 1) && i < t; i++) {
        power *= 0.96;
        product *= beta1 * (1 - 0.5 * power);
    }
    shared[threadIdx.x] = product;
    for (unsigned half = threads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            shared[threadIdx.x] *= shared[threadIdx.x + half];
    }
    return threadIdx.x ? 0 : shared[0] * pow(beta1, (double)(t > first ? t - first : 0));
}

// The numbers that all elements share; by one thread, of what all threads of its block have found.
template <uint32_t function>
__device__ inline void share(const struct cuda_update &u, double2 found, float *out)
{
    const double rate = (double)u.record->learning_rate, t = (double)u.record->update;
    const double beta1 = (double)u.beta1;
    if constexpr (function == LS_UPDATE_ADAM || function == LS_UPDATE_AMSGRAD)
        out[0] = (float)(rate * sqrt(1 - pow((double)u.beta2, t)) / (1 - pow(beta1, t)));
    else if constexpr (function == LS_UPDATE_ADAMAX)
        out[0] = (float)(rate / (1 - pow(beta1, t)));
    else if constexpr (function == LS_UPDATE_NADAM) {
        const double now = beta1 * (1 - 0.5 * pow(0.96, t)),
                     next = beta1 * (1 - 0.5 * pow(0.96, t + 1));
        const double product = found.x;
        out[0] = (float)(rate * next / (1 - product * next));
        out[1] = (float)(rate * (1 - now) / (1 - product));
        out[2] = (float)(1 / (1 - pow((double)u.beta2, t)));
    } else if constexpr (function == CUDA_LAMB_DIRECTION) {
        out[0] = (float)(1 / (1 - pow(beta1, t)));
        out[1] = (float)(1 / (1 - pow((double)u.beta2, t)));
    } else if constexpr (function == CUDA_LAMB) {
        const bool both = u.measures[0] > 0 && u.measures[2] > 0;
        out[0] = (float)(both ? rate * sqrt(u.measures[0] / u.measures[2]) : rate);
    } else if constexpr (function == CUDA_CLIP_NORM) {
        const double norm = found.y > 0 ? (double)NAN : sqrt(found.x);
        out[0] = (float)(norm <= (double)u.threshold ? 1 : (double)u.threshold / norm);
    }
}

// ---- What is known of a function ----

template <uint32_t function>
constexpr bool skips = function < CUDA_CLIP_VALUE; // where the record says so
// How many numbers all elements share.
template <uint32_t function>
constexpr int shares = function == LS_UPDATE_NADAM           ? 3
                       : function == CUDA_LAMB_DIRECTION     ? 2
                       : function == LS_UPDATE_ADAM || function == LS_UPDATE_AMSGRAD ||
                               function == LS_UPDATE_ADAMAX || function == CUDA_LAMB ||
                               function == CUDA_CLIP_NORM
                           ? 1
                           : 0;
template <uint32_t function> constexpr bool reads_out = function < CUDA_LAMB_DIRECTION;

// The most states; of LAMB's direction those are the parameter, which decays, and the moments.
template <uint32_t function>
constexpr int states_of =
    function == LS_UPDATE_SGD || function == LS_UPDATE_ADAGRAD || function == CUDA_EMA
        ? 1
    : function == CUDA_AVERAGE || function == CUDA_LAMB || !skips<function> ? 0
    : function == LS_UPDATE_AMSGRAD || function == LS_UPDATE_RMSPROP_CENTERED ||
            function == CUDA_LAMB_DIRECTION
        ? 3
        : 2;

// What a thread knows before its elements.
struct known {
    float shared[CUDA_SHARED_NUMBERS];
    float rate, keep, scale;
    bool first, overwrites; // of an average of weights
};

// By all threads of a block. Each block computes what all share: a kernel before it would take longer.
template <uint32_t function> __device__ inline struct known known_of(const struct cuda_update &u)
{
    struct known out = {};
    out.rate = u.record->learning_rate;
    out.keep = 1 - u.weight_decay * out.rate;
    if constexpr (shares<function>) {
        __shared__ float shared[CUDA_SHARED_NUMBERS];
        double2 found = make_double2(0, 0);
        if constexpr (function == CUDA_CLIP_NORM)
            found = cuda_sum_of_pairs(u.measures, u.pairs);
        else if constexpr (function == LS_UPDATE_NADAM)
            found.x = nadam_product((double)u.beta1, u.record->update);
        if (threadIdx.x == 0)
            share<function>(u, found, shared);
        __syncthreads();
        for (int k = 0; k < shares<function>; k++)
            out.shared[k] = shared[k];
    }
    if (function == CUDA_UNSCALE)
        out.scale = u.record->loss_scale;
    if (function == CUDA_EMA) {
        out.first = u.record->update == 1;
        out.overwrites = u.every && cuda_remainder((int64_t)u.record->update, u.every) == 0;
    }
    return out;
}

// ---- One element: g, what is read; w, what is written; the states ----

__device__ inline void move_moments(const struct cuda_update &u, float g, float (&s)[3])
{
    s[0] += (g - s[0]) * (1 - u.beta1);
    s[1] += (g * g - s[1]) * (1 - u.beta2);
}

__device__ inline float blended(float share, float old, float next)
{
    return (float)((double)share * (double)old + (1 - (double)share) * (double)next);
}

// What w loses, or its momentum's new state.
__device__ inline float moved(const struct cuda_update &u, const float *velocities, float &velocity,
                              float step)
{
    if (!velocities)
        return step;
    velocity = u.momentum * velocity + step;
    return velocity;
}

template <uint32_t function>
__device__ inline float step_of(const struct cuda_update &u, const struct known &n, float g,
                                float (&s)[3])
{
    switch (function) {
    case LS_UPDATE_SGD:
        if (!u.states[0])
            return n.rate * g;
        s[0] = u.momentum * s[0] - n.rate * g;
        return u.nesterov ? n.rate * g - u.momentum * s[0] : -s[0];
    case LS_UPDATE_ADAM:
        move_moments(u, g, s);
        return s[0] * n.shared[0] / (sqrtf(s[1]) + u.epsilon);
    case LS_UPDATE_AMSGRAD:
        move_moments(u, g, s);
        s[2] = s[1] > s[2] ? s[1] : s[2];
        return s[0] * n.shared[0] / (sqrtf(s[2]) + u.epsilon);
    case LS_UPDATE_RMSPROP:
        s[0] = u.beta2 * s[0] + (1 - u.beta2) * (g * g);
        return moved(u, u.states[1], s[1], n.rate * g / sqrtf(s[0] + u.epsilon));
    case LS_UPDATE_RMSPROP_CENTERED:
        s[0] = u.beta2 * s[0] + (1 - u.beta2) * (g * g);
        s[1] = u.beta2 * s[1] + (1 - u.beta2) * g;
        return moved(u, u.states[2], s[2], n.rate * g / sqrtf(s[0] - s[1] * s[1] + u.epsilon));
    case LS_UPDATE_ADAGRAD: s[0] += g * g; return n.rate * g / sqrtf(s[0] + u.epsilon);
    case LS_UPDATE_ADADELTA: {
        s[0] = u.beta2 * s[0] + (1 - u.beta2) * (g * g);
        const float step = g * sqrtf(s[1] + u.epsilon) / sqrtf(s[0] + u.epsilon);
        s[1] = u.beta2 * s[1] + (1 - u.beta2) * (step * step);
        return n.rate * step;
    }
    case LS_UPDATE_ADAMAX: {
        const float faded = u.beta2 * s[1], size = fabsf(g);
        s[0] += (g - s[0]) * (1 - u.beta1);
        s[1] = faded > size ? faded : size;
        return n.shared[0] * s[0] / (s[1] + u.epsilon);
    }
    default: // Nadam
        move_moments(u, g, s);
        return (n.shared[0] * s[0] + n.shared[1] * g) / (sqrtf(n.shared[2] * s[1]) + u.epsilon);
    }
}

template <uint32_t function>
__device__ inline void element(const struct cuda_update &u, const struct known &n, float g,
                               float &w, float (&s)[3])
{
    switch (function) {
    case CUDA_AVERAGE: w = blended(u.momentum, w, g); break;
    case CUDA_LAMB: w -= n.shared[0] * g; break;
    case CUDA_EMA: s[0] = w = n.first ? g : blended(u.momentum, w, g); break;
    case CUDA_LAMB_DIRECTION: {
        float moments[3] = {s[1], s[2]};
        move_moments(u, g, moments);
        s[0] *= n.keep;
        s[1] = moments[0];
        s[2] = moments[1];
        w = n.shared[0] * s[1] / (sqrtf(n.shared[1] * s[2]) + u.epsilon);
        break;
    }
    case CUDA_CLIP_VALUE:
        w = g < -u.threshold ? -u.threshold : g > u.threshold ? u.threshold : g;
        break;
    case CUDA_CLIP_NORM: w = n.shared[0] * g; break;
    case CUDA_UNSCALE: w = g / n.scale; break;
    default: w = w * n.keep - step_of<function>(u, n, g, s);
    }
}

// ---- A thread's elements ----

template <int pack> __device__ inline struct cuda_four take(const float *values, int64_t i)
{
    if constexpr (pack == 4)
        return cuda_load_four(values, CUDA_FLOAT, i);
    return {{values[i]}};
}

template <int pack> __device__ inline void put(float *values, int64_t i, struct cuda_four four)
{
    if constexpr (pack == 4)
        cuda_write_four(values, CUDA_FLOAT, i, four);
    else
        values[i] = four.v[0];
}

template <uint32_t function, int pack>
__device__ inline void elements(const struct cuda_update &u, const struct known &n, int64_t i)
{
    constexpr int states = states_of<function>;
    struct cuda_four in = take<pack>(u.in, i), out = {}, s[3] = {};
    if (reads_out<function>)
        out = take<pack>(u.out, i);
    for (int k = 0; k < states; k++)
        if (function != CUDA_EMA && u.states[k])
            s[k] = take<pack>(u.states[k], i);
    for (int e = 0; e < pack; e++) {
        float of[3] = {s[0].v[e], s[1].v[e], s[2].v[e]};
        element<function>(u, n, in.v[e], out.v[e], of);
        for (int k = 0; k < states; k++)
            s[k].v[e] = of[k];
    }
    put<pack>(u.out, i, out);
    for (int k = 0; k < states; k++)
        if (u.states[k] && (function != CUDA_EMA || n.overwrites))
            put<pack>(u.states[k], i, s[k]);
}

// Four elements at once, or what is left of them.
template <uint32_t function>
__global__ void __launch_bounds__(threads) run_update(const __grid_constant__ struct cuda_update u)
{
    const int64_t step = 4 * (int64_t)gridDim.x * threads;
    if (skips<function> && u.record->skip)
        return;
    const struct known n = known_of<function>(u);
    for (int64_t i = 4 * ((int64_t)blockIdx.x * threads + threadIdx.x); i < u.count; i += step)
        if (u.aligned && i + 4 <= u.count)
            elements<function, 4>(u, n, i);
        else
            for (int64_t k = i; k < i + 4 && k < u.count; k++)
                elements<function, 1>(u, n, k);
}

template <uint32_t... functions>
unsigned start_update(const struct cuda_update *u, int64_t blocks, cudaStream_t stream, std::integer_sequence<uint32_t, functions...>)
{
    constexpr unsigned (*all[])(const struct cuda_update *, int64_t, cudaStream_t) = {start_blocks<run_update<functions>>...};
    return all[u->function](u, blocks, stream);
}

} // namespace updates

extern "C" unsigned cuda_update_launch(const struct cuda_update *u, struct CUstream_st *stream)
{
    const int64_t blocks = (u->count + 4 * threads - 1) / (4 * threads);
    return updates::start_update(u, blocks, stream, std::make_integer_sequence<uint32_t, CUDA_UPDATES>());
}

#endif
