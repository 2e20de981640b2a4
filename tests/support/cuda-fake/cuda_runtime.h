// SPDX-License-Identifier: Apache-2.0
// What CUDA C++ has beside C++, for kernels that the fake runs on the CPU (fibers.h): kernels.cu is compiled as it is, with this
// instead of NVIDIA's header. THIS IS NOT A GPU. Left out is what no kernel uses; add it when one does.
//
// - Shared memory is thread-local, so that the fake finds all of it: a library with kernels has no other thread-local variables.
//   Dynamic shared memory has no syntax that is also C++: CUDA_DYNAMIC_SHARED(type, name).
// - Arguments of a kernel are plain numbers, pointers, and structs whose pointers double_pointers(struct *, reach) names.
// - Reading another lane's value that took no part gives NaN.
#ifndef LS_TESTS_CUDA_RUNTIME_H
#define LS_TESTS_CUDA_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <tuple>
#include <type_traits>

extern "C" {
#include "tests/support/cuda-fake/fibers.h"
}

#define __CUDA_ARCH__ 900

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ thread_local
#define CUDA_DYNAMIC_SHARED(type, name) type *const name = static_cast<type *>(double_dynamic())

// ---- Vectors ----

#define CUDA_FAKE_VECTORS(name, type)                                    \
    struct __align__(2 * sizeof(type)) name##2                           \
    {                                                                    \
        type x, y;                                                       \
    };                                                                   \
    struct name##3                                                       \
    {                                                                    \
        type x, y, z;                                                    \
    };                                                                   \
    struct __align__(4 * sizeof(type)) name##4                           \
    {                                                                    \
        type x, y, z, w;                                                 \
    };                                                                   \
    static inline name##2 make_##name##2(type x, type y)                 \
    {                                                                    \
        return {x, y};                                                   \
    }                                                                    \
    static inline name##3 make_##name##3(type x, type y, type z)         \
    {                                                                    \
        return {x, y, z};                                                \
    }                                                                    \
    static inline name##4 make_##name##4(type x, type y, type z, type w) \
    {                                                                    \
        return {x, y, z, w};                                             \
    }
CUDA_FAKE_VECTORS(char, signed char)
CUDA_FAKE_VECTORS(uchar, unsigned char)
CUDA_FAKE_VECTORS(short, short)
CUDA_FAKE_VECTORS(ushort, unsigned short)
CUDA_FAKE_VECTORS(int, int)
CUDA_FAKE_VECTORS(uint, unsigned)
CUDA_FAKE_VECTORS(float, float)

struct __align__(16) double2
{
    double x, y;
};
static inline double2 make_double2(double x, double y)
{
    return {x, y};
}

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c)
    {
    }
};

// ---- Threads that wait for each other ----

#define CUDA_FAKE_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

static inline void __syncthreads(CUDA_FAKE_PLACE)
{
    double_wait_for_block({file, line});
}

static inline void __syncwarp(unsigned mask = 0xffffffff, CUDA_FAKE_PLACE)
{
    double_wait_for_warp({file, line}, mask, 0);
}

// What lane `source` of a group of `width` lanes has.
template <typename type>
static inline type cuda_fake_shuffle(double_place place, unsigned mask, type value,
                                     unsigned (*source)(unsigned lane, unsigned by, unsigned width),
                                     unsigned by, unsigned width)
{
    static_assert(sizeof(type) <= sizeof(uint64_t), "a lane shows 8 bytes at most");
    uint64_t shown = 0;
    memcpy(&shown, &value, sizeof(type));
    const double_lanes *lanes = double_wait_for_warp(place, mask, shown);
    const unsigned from = source(double_lane(), by, width);
    shown = lanes->present >> from & 1 ? lanes->values[from] : UINT64_MAX;
    memcpy(&value, &shown, sizeof(type));
    return value;
}

#define CUDA_FAKE_SHUFFLE(name, number, computed)                                          \
    template <typename type>                                                               \
    static inline type name(unsigned mask, type value, number by, int group = DOUBLE_WARP, \
                            CUDA_FAKE_PLACE)                                               \
    {                                                                                      \
        const auto source = [](unsigned lane, unsigned by, unsigned width) -> unsigned {   \
            const unsigned first = lane / width * width, end = first + width;              \
            const unsigned from = computed;                                                \
            return from >= first && from < end ? from : lane;                              \
        };                                                                                 \
        return cuda_fake_shuffle<type>({file, line}, mask, value, source, (unsigned)by,    \
                                       (unsigned)group);                                   \
    }
CUDA_FAKE_SHUFFLE(__shfl_sync, int, first + by % width)
CUDA_FAKE_SHUFFLE(__shfl_up_sync, unsigned, lane - by)
CUDA_FAKE_SHUFFLE(__shfl_down_sync, unsigned, lane + by)
CUDA_FAKE_SHUFFLE(__shfl_xor_sync, int, lane ^ by)

static inline unsigned __ballot_sync(unsigned mask, int predicate, CUDA_FAKE_PLACE)
{
    const double_lanes *lanes = double_wait_for_warp({file, line}, mask, predicate != 0);
    unsigned out = 0;
    for (unsigned k = 0; k < DOUBLE_WARP; k++)
        out |= lanes->present >> k & 1 ? (unsigned)lanes->values[k] << k : 0;
    return out;
}

static inline int __any_sync(unsigned mask, int predicate, CUDA_FAKE_PLACE)
{
    return __ballot_sync(mask, predicate, file, line) != 0;
}

static inline int __all_sync(unsigned mask, int predicate, CUDA_FAKE_PLACE)
{
    return __ballot_sync(mask, !predicate, file, line) == 0;
}

static inline void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void __threadfence_block()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

// ---- Atomics: kernels of other streams run beside this one ----

template <typename type, typename function>
static inline type cuda_fake_atomic(type *at, function next)
{
    type old, made;
    __atomic_load(at, &old, __ATOMIC_RELAXED);
    do
        made = next(old);
    while (!__atomic_compare_exchange(at, &old, &made, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}

#define CUDA_FAKE_ATOMIC(name, computed)                                                       \
    template <typename type> static inline type name(type *at, std::common_type_t<type> value) \
    {                                                                                          \
        return cuda_fake_atomic(at, [&](type old) -> type { return (type)(computed); });       \
    }
CUDA_FAKE_ATOMIC(atomicAdd, old + value)
CUDA_FAKE_ATOMIC(atomicSub, old - value)
CUDA_FAKE_ATOMIC(atomicMin, old < value ? old : value)
CUDA_FAKE_ATOMIC(atomicMax, old > value ? old : value)
CUDA_FAKE_ATOMIC(atomicAnd, old &value)
CUDA_FAKE_ATOMIC(atomicOr, old | value)

template <typename type> static inline type atomicExch(type *at, std::common_type_t<type> value)
{
    return cuda_fake_atomic(at, [&](type) { return value; });
}

template <typename type>
static inline type atomicCAS(type *at, std::common_type_t<type> wanted,
                             std::common_type_t<type> value)
{
    return cuda_fake_atomic(at, [&](type old) { return old == wanted ? value : old; });
}

// ---- Memory and arithmetic by name ----

template <typename type> static inline type __ldg(const type *at)
{
    return *at;
}

#define CUDA_FAKE_STORE(name)                                              \
    template <typename type> static inline void name(type *at, type value) \
    {                                                                      \
        *at = value;                                                       \
    }
CUDA_FAKE_STORE(__stwb)

// A GPU's are less exact.
#define __expf(x) expf(x)
#define __fdividef(a, b) ((a) / (b))
CUDA_FAKE_STORE(__stcg)
CUDA_FAKE_STORE(__stcs)

static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}

static inline float __fmul_rn(float a, float b)
{
    return a * b;
}

static inline float __fadd_rn(float a, float b)
{
    return a + b;
}

static inline double __dmul_rn(double a, double b)
{
    return a * b;
}

static inline double __dadd_rn(double a, double b)
{
    return a + b;
}

static inline float cospif(float x)
{
    return (float)cos((double)x * 3.14159265358979323846);
}

static inline double cospi(double x)
{
    return cos(x * 3.14159265358979323846);
}

static inline double sinpi(double x)
{
    return sin(x * 3.14159265358979323846);
}

static inline int __ffs(int value)
{
    return __builtin_ffs(value);
}

using std::max;
using std::min;

// ---- Launches ----

typedef struct CUstream_st *cudaStream_t;
typedef unsigned cudaError_t;
enum { cudaErrorInvalidValue = 1 };

struct cudaFuncAttributes {
    int unused;
};

template <typename... values>
static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *, void (*)(values...))
{
    return cudaSuccess;
}

static thread_local char cuda_fake_shared;

template <typename... values> struct cuda_fake_launch {
    double_grid grid;
    void (*kernel)(values...);
    std::tuple<values...> arguments;

    static void run(const void *data)
    {
        const auto *launch = static_cast<const cuda_fake_launch *>(data);
        std::apply(launch->kernel, launch->arguments);
    }
};

// An address of the GPU becomes one that the fake can read.
template <typename type> static inline void cuda_fake_translate(cudaStream_t stream, type &value)
{
    const auto reach = [stream](auto &pointer) {
        pointer = static_cast<std::remove_reference_t<decltype(pointer)>>(
            double_reach_on(stream, (const void *)pointer));
    };
    if constexpr (std::is_pointer_v<type>)
        reach(value);
    else if constexpr (std::is_class_v<type>)
        double_pointers(&value, reach);
}

template <typename... values>
static inline cudaError_t cudaLaunchKernel(void (*kernel)(values...), dim3 grid, dim3 block,
                                           void **arguments, size_t dynamic = 0,
                                           cudaStream_t stream = nullptr)
{
    static_assert((std::is_trivially_copyable_v<values> && ...),
                  "arguments of a kernel are copied as bytes");
    using launch_type = cuda_fake_launch<values...>;
    static_assert(alignof(launch_type) <= 16);
    size_t i = 0;
    launch_type launch = {{{grid.x, grid.y, grid.z},
                           {block.x, block.y, block.z},
                           dynamic,
                           launch_type::run,
                           [] { return &cuda_fake_shared; }},
                          kernel,
                          {*static_cast<const values *>(arguments[i++])...}};
    std::apply([stream](auto &...each) { (cuda_fake_translate(stream, each), ...); },
               launch.arguments);
    return double_launch(stream, &launch.grid, sizeof(launch));
}

#endif
