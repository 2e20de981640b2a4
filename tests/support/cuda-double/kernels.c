// SPDX-License-Identifier: Apache-2.0
// Our own kernels in the double: the bodies that kernels.cu runs with a thread an item, in a loop. Items go backwards, for
// none may need another's result.
#include "plugins/device/cuda/heavy/bodies.h"
#include "plugins/device/cuda/heavy/reduce_body.h"
#include "tests/support/cuda-double/double.h"

struct launch {
    struct cuda_arguments arguments;
    int64_t items;
    uint32_t kernel;
};

static void run_kernel(const void *data)
{
    static void (*const bodies[])(const struct cuda_arguments *, int64_t) = {
#define KERNEL_BODY(name) [cuda_kernel_##name] = cuda_body_##name,
        CUDA_KERNELS(KERNEL_BODY)
#undef KERNEL_BODY
    };
    const struct launch *launch = data;
    for (int64_t i = launch->items - 1; i >= 0; i--)
        bodies[launch->kernel](&launch->arguments, i);
}

unsigned cuda_kernels_load(void)
{
    return 0;
}

unsigned cuda_kernel_launch(uint32_t kernel, const struct cuda_arguments *arguments, int64_t items,
                            struct CUstream_st *stream)
{
    struct launch launch = {.arguments = *arguments, .items = items, .kernel = kernel};
    struct cuda_arguments *a = &launch.arguments;
    if (kernel >= CUDA_KERNEL_COUNT)
        return 1; // cudaErrorInvalidValue
    a->store.out = double_reach_on(stream, a->store.out);
    a->store.y = double_reach_on(stream, a->store.y);
    a->a = double_reach_on(stream, a->a);
    a->b = double_reach_on(stream, a->b);
    a->bias = double_reach_on(stream, a->bias);
    a->labels = double_reach_on(stream, a->labels);
    for (int i = 0; i < 2; i++)
        a->flags[i] = double_reach_on(stream, a->flags[i]);
    a->first = double_reach_on(stream, a->first);
    a->second = double_reach_on(stream, a->second);
    a->saved = double_reach_on(stream, a->saved);
    a->pairs = double_reach_on(stream, a->pairs);
    a->sums = double_reach_on(stream, a->sums);
    a->record = double_reach_on(stream, a->record);
    return double_enqueue(stream, run_kernel, &launch, sizeof(launch), 1);
}

static void run_reduction(const void *data)
{
    static void (*const bodies[])(const struct cuda_reduction *, int64_t) = {
#define REDUCE_BODY(name, stored, value, ordered, divided, load, store) \
    [cuda_reduce_number_##name] = cuda_reduce_##name,
        CUDA_REDUCED_TYPES(REDUCE_BODY)
#undef REDUCE_BODY
    };
    const struct cuda_reduction *r = data;
    for (int64_t i = r->items - 1; i >= 0; i--)
        bodies[r->dtype](r, i);
}

static int packs_are_aligned(const struct cuda_reduction *r)
{
    static const uintptr_t sizes[] = {
        [cuda_reduce_number_f32] = 4,  [cuda_reduce_number_f64] = 8, [cuda_reduce_number_f16] = 2,
        [cuda_reduce_number_bf16] = 2, [cuda_reduce_number_i32] = 4, [cuda_reduce_number_i64] = 8,
        [cuda_reduce_number_u8] = 1};
    const uintptr_t head = (uintptr_t)r->head * sizes[r->dtype];
    const uintptr_t all = ((uintptr_t)r->to + head) | (r->from ? (uintptr_t)r->from + head : 0) |
                          (r->also ? (uintptr_t)r->also + head : 0);
    return r->packs == 0 || all % CUDA_PACK_BYTES == 0;
}

unsigned cuda_reduce_launch(const struct cuda_reduction *reduction, struct CUstream_st *stream)
{
    struct cuda_reduction r = *reduction;
    r.to = double_reach_on(stream, r.to);
    r.from = double_reach_on(stream, r.from);
    r.also = double_reach_on(stream, r.also);
    if (!packs_are_aligned(&r))
        return 1; // a GPU would end the process of the kernel: misaligned address
    return double_enqueue(stream, run_reduction, &r, sizeof(r), 1);
}
