// SPDX-License-Identifier: Apache-2.0
// Our own kernels in the fake: the bodies that kernels.cu runs with a thread an item, in a loop. Items go backwards, for
// none may need another's result.
#include "plugins/device/cuda/engine/bodies.h"
#include "plugins/device/cuda/engine/norm_body.h"
#include "plugins/device/cuda/engine/reduce_body.h"
#include "tests/support/cuda-fake/fake.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

// ---- Batch normalization ----

struct normalization {
    struct cuda_normalization arguments;
    uint32_t kernel;
};

static void run_normalization(const void *data)
{
    const struct normalization *launch = data;
    const struct cuda_normalization *n = &launch->arguments;
    const bool forward = launch->kernel == cuda_normalization_normalize;
    void (*body)(const struct cuda_normalization *, int64_t, int) =
        forward ? cuda_body_normalize : cuda_body_normalize_backward;
    const int several = cuda_reads_several(cuda_follower_of(&n->store, forward));
    for (int64_t i = n->tiles.columns / n->tiles.pack * n->lanes - 1; i >= 0; i--)
        body(n, i, several);
}

// One step of a block: its threads backwards or forwards.
static void run_step(const struct normalization *launch, struct cuda_together *together,
                     int64_t block, int32_t step, bool backwards)
{
    static void (*const bodies[])(const struct cuda_normalization *, struct cuda_together *,
                                  int64_t, int32_t, int32_t) = {
        [cuda_normalization_moments] = cuda_body_moments,
        [cuda_normalization_statistics] = cuda_body_statistics,
        [cuda_normalization_products] = cuda_body_products,
        [cuda_normalization_gradients] = cuda_body_gradients,
    };
    for (int32_t i = 0; i < CUDA_BLOCK; i++)
        bodies[launch->kernel](&launch->arguments, together, block,
                               backwards ? CUDA_BLOCK - 1 - i : i, step);
}

// What threads share begins as NaN, on a GPU as anything. No step may depend on the order of its threads: those before the last,
// which write nothing else, are done in two orders.
static void run_together(const void *data)
{
    const struct normalization *launch = data;
    const bool parts = launch->kernel == cuda_normalization_moments ||
                       launch->kernel == cuda_normalization_products;
    const struct cuda_tiles *tiles = parts ? &launch->arguments.tiles : &launch->arguments.merged;
    for (int64_t block = tiles->parts * tiles->tiles - 1; block >= 0; block--) {
        struct cuda_together together, again;
        memset(&together, 0xff, sizeof(together));
        for (int32_t step = 0; step < tiles->steps; step++) {
            const bool checked = step > 0 && step + 1 < tiles->steps;
            if (checked)
                again = together;
            run_step(launch, &together, block, step, true);
            if (checked)
                run_step(launch, &again, block, step, false);
            if (checked && memcmp(&together, &again, sizeof(again)) != 0) {
                fprintf(stderr, "cuda-fake: threads of a block depend on their order\n");
                abort();
            }
        }
    }
}

// Four elements are read at once where that many lie beside each other.
static bool fours_are_aligned(const struct cuda_normalization *n)
{
    const uintptr_t all =
        (uintptr_t)n->store.out | (uintptr_t)n->store.y | (uintptr_t)n->x | (uintptr_t)n->other;
    return n->tiles.pack == 1 || all % (n->type == CUDA_FLOAT ? 16 : 8) == 0;
}

unsigned cuda_normalization_launch(uint32_t kernel, const struct cuda_normalization *arguments,
                                   struct CUstream_st *stream)
{
    struct normalization launch = {.arguments = *arguments, .kernel = kernel};
    struct cuda_normalization *n = &launch.arguments;
    if (kernel >= CUDA_NORMALIZATION_COUNT || !fours_are_aligned(n))
        return 1; // cudaErrorInvalidValue; a GPU would end the process of the kernel: misaligned address
    n->store.out = double_reach_on(stream, n->store.out);
    n->store.y = double_reach_on(stream, n->store.y);
    n->x = double_reach_on(stream, n->x);
    n->other = double_reach_on(stream, n->other);
    n->gamma = double_reach_on(stream, n->gamma);
    n->beta = double_reach_on(stream, n->beta);
    n->mean = double_reach_on(stream, n->mean);
    n->variance = double_reach_on(stream, n->variance);
    n->dgamma = double_reach_on(stream, n->dgamma);
    n->dbeta = double_reach_on(stream, n->dbeta);
    n->parts = double_reach_on(stream, n->parts);
    n->totals = double_reach_on(stream, n->totals);
    const bool alone =
        kernel == cuda_normalization_normalize || kernel == cuda_normalization_normalize_backward;
    return double_enqueue(stream, alone ? run_normalization : run_together, &launch, sizeof(launch),
                          1);
}
