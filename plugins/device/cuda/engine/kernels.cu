// SPDX-License-Identifier: Apache-2.0
// Our own kernels on a GPU.
#include "plugins/device/cuda/engine/attention.cuh"
#include "plugins/device/cuda/engine/bodies.h"
#include "plugins/device/cuda/engine/columns.cuh"
#include "plugins/device/cuda/engine/elements.cuh"
#include "plugins/device/cuda/engine/function.cuh"
#include "plugins/device/cuda/engine/gather.cuh"
#include "plugins/device/cuda/engine/grid.cuh"
#include "plugins/device/cuda/engine/layer.cuh"
#include "plugins/device/cuda/engine/losses.cuh"
#include "plugins/device/cuda/engine/move.cuh"
#include "plugins/device/cuda/engine/normalization.cuh"
#include "plugins/device/cuda/engine/pooling.cuh"
#include "plugins/device/cuda/engine/product.cuh"
#include "plugins/device/cuda/engine/reduce_body.h"
#include "plugins/device/cuda/engine/rows.cuh"
#include "plugins/device/cuda/engine/taps.cuh"
#include "plugins/device/cuda/engine/update.cuh"
#include "plugins/device/cuda/engine/walk.cuh"

#include <cuda_runtime.h>

namespace {

// A body that knows at compile time that everything is float32: such kernels ask for no type.
template <void (*body)(const struct cuda_arguments *, int64_t)>
__device__ void as_float32(const struct cuda_arguments *arguments, int64_t i)
{
    struct cuda_arguments a = *arguments;
    a.a_type = a.b_type = a.store.type = CUDA_FLOAT;
    body(&a, i);
}

template <void (*body)(const struct cuda_arguments *, int64_t)>
unsigned start_body(const struct cuda_arguments *a, int64_t items, cudaStream_t stream)
{
    if (a->a_type | a->b_type | a->store.type)
        return start<struct cuda_arguments, body>(a, items, stream);
    return start<struct cuda_arguments, as_float32<body>>(a, items, stream);
}

// ---- Element by element, four at once ----

using elements_kernel = void (*)(struct cuda_arguments, int64_t);

template <void (*body)(const cuda_arguments &, const cuda_fours &)>
__global__ void __launch_bounds__(threads) run_elements(const __grid_constant__ struct cuda_arguments a, int64_t fours)
{
    const int64_t first = (int64_t)blockIdx.x * 2 * threads + threadIdx.x, second = first + threads;
    if (first < fours)
        body(a, {{first * 4, (second < fours ? second : first) * 4}, second < fours});
}

template <uint32_t kernel, uint32_t from, uint32_t to>
constexpr elements_kernel elements_of_types(bool plain)
{
    return plain ? run_elements<cuda_elements<kernel, from, to, true>> : run_elements<cuda_elements<kernel, from, to, false>>;
}

template <uint32_t kernel>
elements_kernel elements_of(uint32_t from, uint32_t to, bool plain)
{
    if constexpr (kernel == cuda_kernel_finish)
        switch (from << 4 | to) {
        case CUDA_F16: return elements_of_types<kernel, CUDA_FLOAT, CUDA_F16>(plain);
        case CUDA_BF16: return elements_of_types<kernel, CUDA_FLOAT, CUDA_BF16>(plain);
        case CUDA_F16 << 4: return elements_of_types<kernel, CUDA_F16, CUDA_FLOAT>(plain);
        case CUDA_BF16 << 4: return elements_of_types<kernel, CUDA_BF16, CUDA_FLOAT>(plain);
        }
    if (from != to)
        return NULL;
    return to == CUDA_F16    ? elements_of_types<kernel, CUDA_F16, CUDA_F16>(plain)
           : to == CUDA_BF16 ? elements_of_types<kernel, CUDA_BF16, CUDA_BF16>(plain)
                             : elements_of_types<kernel, CUDA_FLOAT, CUDA_FLOAT>(plain);
}

// NULL: there is none.
elements_kernel elements_of(uint32_t kernel, uint32_t from, uint32_t to, bool plain)
{
    switch (kernel) {
    case cuda_kernel_finish: return elements_of<cuda_kernel_finish>(from, to, plain);
    case cuda_kernel_activation: return elements_of<cuda_kernel_activation>(from, to, plain);
    case cuda_kernel_activation_backward: return elements_of<cuda_kernel_activation_backward>(from, to, plain);
    case cuda_kernel_add: return elements_of<cuda_kernel_add>(from, to, plain);
    case cuda_kernel_dropout: return elements_of<cuda_kernel_dropout>(from, to, plain);
    case cuda_kernel_from_bytes:
        return from | to ? NULL : elements_of_types<cuda_kernel_from_bytes, CUDA_FLOAT, CUDA_FLOAT>(plain);
    case cuda_kernel_penalty_backward:
        return from | to ? NULL : elements_of_types<cuda_kernel_penalty_backward, CUDA_FLOAT, CUDA_FLOAT>(plain);
    default: return NULL;
    }
}

elements_kernel elements_for(uint32_t kernel, const struct cuda_arguments *a, int64_t items)
{
    const bool two = kernel == cuda_kernel_activation_backward || kernel == cuda_kernel_add;
    const uintptr_t all = (uintptr_t)a->a | (two ? (uintptr_t)a->b : 0) | (uintptr_t)a->bias | (uintptr_t)a->store.out |
                          (uintptr_t)a->store.y;
    const bool by_columns = a->bias || kernel == cuda_kernel_dropout;
    if (items % 4 || all % 16 || (by_columns && a->columns % 4) || (two && a->b_type != a->a_type))
        return NULL;
    return elements_of(kernel, a->a_type, a->store.type, !a->store.epilogue && !a->store.add);
}

unsigned start_elements(elements_kernel kernel, const struct cuda_arguments *a, int64_t items, cudaStream_t stream)
{
    int64_t fours = items / 4;
    void *values[] = {(void *)a, &fours};
    return cudaLaunchKernel(kernel, dim3((unsigned)((fours + 2 * threads - 1) / (2 * threads))), dim3(threads), values, 0, stream);
}

unsigned load_elements()
{
    cudaFuncAttributes attributes;
    unsigned error = cudaSuccess;
    for (uint32_t kernel = 0; kernel < CUDA_KERNEL_COUNT; kernel++)
        for (uint32_t i = 0; i < 3 * 3 * 2; i++) {
            const elements_kernel found = elements_of(kernel, i / 6, i / 2 % 3, i % 2);
            error = error || !found ? error : cudaFuncGetAttributes(&attributes, found);
        }
    return error;
}

// ---- Rows, and sums of pairs ----

using rows_kernel = void (*)(struct cuda_arguments, int64_t, int32_t);

template <uint32_t kernel, bool block, bool floats>
__global__ void __launch_bounds__(CUDA_BLOCK)
    run_rows(const __grid_constant__ struct cuda_arguments arguments, int64_t rows, int32_t across)
{
    struct cuda_arguments a = arguments;
    if (floats)
        a.a_type = a.b_type = a.store.type = CUDA_FLOAT;
    const cuda_row row = cuda_row_of<block>(rows, a.columns, across);
    if constexpr (kernel == cuda_kernel_softmax)
        cuda_row_softmax<block>(a, row);
    else if constexpr (kernel == cuda_kernel_softmax_backward)
        cuda_row_softmax_backward<block>(a, row);
    else if constexpr (kernel == cuda_kernel_cross_entropy)
        cuda_row_cross_entropy<block>(a, row);
    else
        cuda_row_cross_entropy_backward<floats ? 4 : 2>(a, row); // more would not fit into registers
}

template <uint32_t kernel>
rows_kernel rows_of(bool block, bool floats)
{
    return block ? (floats ? run_rows<kernel, true, true> : run_rows<kernel, true, false>)
                 : (floats ? run_rows<kernel, false, true> : run_rows<kernel, false, false>);
}

// A block for a row of so many that a warp would ask for them too often.
template <uint32_t kernel>
unsigned start_rows(const struct cuda_arguments *a, int64_t rows, cudaStream_t stream)
{
    const bool block = a->columns > 256;
    int32_t across = block ? CUDA_BLOCK : 1;
    while (across < a->columns && across < 32)
        across *= 2;
    const int64_t blocks = (rows * across + CUDA_BLOCK - 1) / CUDA_BLOCK;
    void *values[] = {(void *)a, &rows, &across};
    return cudaLaunchKernel(rows_of<kernel>(block, !(a->a_type | a->b_type | a->store.type)), dim3((unsigned)blocks),
                            dim3(CUDA_BLOCK), values, 0, stream);
}

template <void (*body)(const cuda_arguments &)>
__global__ void __launch_bounds__(CUDA_BLOCK) run_pairs(const __grid_constant__ struct cuda_arguments a)
{
    body(a);
}

template <void (*body)(const cuda_arguments &)>
unsigned start_pairs(const struct cuda_arguments *a, cudaStream_t stream)
{
    void *values[] = {(void *)a};
    return cudaLaunchKernel(run_pairs<body>, dim3(1), dim3(CUDA_BLOCK), values, 0, stream);
}

unsigned load_rows()
{
    cudaFuncAttributes attributes;
    unsigned error = cudaFuncGetAttributes(&attributes, run_pairs<cuda_loss_sums>);
    error = error ? error : cudaFuncGetAttributes(&attributes, run_pairs<cuda_metric_sums>);
    error = error ? error : cudaFuncGetAttributes(&attributes, run_pairs<cuda_penalty_sums>);
    error = error ? error : cudaFuncGetAttributes(&attributes, run_pairs<cuda_measure_sums>);
    for (int i = 0; i < 4; i++) {
#define CUDA_ROWS_LOAD(name) \
    error = error ? error : cudaFuncGetAttributes(&attributes, rows_of<cuda_kernel_##name>(i / 2, i % 2));
        CUDA_ROW_KERNELS(CUDA_ROWS_LOAD)
    }
    return error;
}

// ---- Max-pooling ----

using pooling_kernel = void (*)(struct cuda_pooling);

template <void (*body)(const cuda_pooling &, uint32_t)>
__global__ void __launch_bounds__(threads) run_pooling(const __grid_constant__ struct cuda_pooling p)
{
    const uint32_t i = blockIdx.x * threads + threadIdx.x;
    if (i < p.items)
        body(p, i);
}

// By what each is, by channels of an item (1, 4), by what it knows of the window and of what comes behind.
template <uint32_t type, int pack>
constexpr pooling_kernel poolings_of_pack[3][3] = {
    {run_pooling<cuda_max_pool<type, pack, 2, CUDA_POOLED_PLAIN>>,
     run_pooling<cuda_max_pool<type, pack, 1, CUDA_POOLED_PLAIN>>,
     run_pooling<cuda_max_pool<type, pack, 1, CUDA_POOLED_ANYTHING>>},
    {run_pooling<cuda_max_pool_apart<type, pack, CUDA_POOLED_PLAIN>>,
     run_pooling<cuda_max_pool_apart<type, pack, CUDA_POOLED_RELU>>,
     run_pooling<cuda_max_pool_apart<type, pack, CUDA_POOLED_ANYTHING>>},
    {run_pooling<cuda_max_pool_overlapping<type, pack, CUDA_POOLED_PLAIN>>,
     run_pooling<cuda_max_pool_overlapping<type, pack, CUDA_POOLED_RELU>>,
     run_pooling<cuda_max_pool_overlapping<type, pack, CUDA_POOLED_ANYTHING>>},
};

template <uint32_t type>
pooling_kernel pooling_of(uint32_t kernel, const struct cuda_pooling *p)
{
    const bool plain = !p->store.epilogue && !p->store.add;
    const bool small = p->size[0] == 2 && p->size[1] == 2;
    const int known = kernel == cuda_pooling_forward ? (plain ? !small : 2) : p->largest ? 1 : plain ? 0 : 2;
    return p->pack == 4 ? poolings_of_pack<type, 4>[kernel][known] : poolings_of_pack<type, 1>[kernel][known];
}

template <uint32_t type, int pack>
unsigned load_poolings()
{
    cudaFuncAttributes attributes;
    unsigned error = cudaSuccess;
    for (const auto &row : poolings_of_pack<type, pack>)
        for (const pooling_kernel kernel : row)
            error = error ? error : cudaFuncGetAttributes(&attributes, kernel);
    return error;
}

template <uint32_t type>
unsigned load_pooling()
{
    const unsigned error = load_poolings<type, 1>();
    return error ? error : load_poolings<type, 4>();
}

// ---- Sums of columns ----

template <uint32_t type, int pack>
__global__ void __launch_bounds__(CUDA_BLOCK, 3) run_columns(const __grid_constant__ struct cuda_column_sums c)
{
    cuda_add_columns<type, pack>(c);
}

using columns_kernel = void (*)(struct cuda_column_sums);

// By type, and by columns of a thread.
constexpr columns_kernel columns_kernels[4][2] = {
    {run_columns<CUDA_FLOAT, 1>, run_columns<CUDA_FLOAT, 4>},
    {run_columns<CUDA_F16, 1>, run_columns<CUDA_F16, 4>},
    {run_columns<CUDA_BF16, 1>, run_columns<CUDA_BF16, 4>},
    {run_columns<CUDA_DOUBLES, 1>, run_columns<CUDA_DOUBLES, 1>},
};

unsigned load_columns()
{
    cudaFuncAttributes attributes;
    unsigned error = cudaSuccess;
    for (const auto &of_type : columns_kernels)
        for (const columns_kernel kernel : of_type)
            error = error ? error : cudaFuncGetAttributes(&attributes, kernel);
    return error;
}

// ---- Batch normalization ----

using block_kernel = void (*)(struct cuda_normalization);
using thread_body = void (*)(const struct cuda_normalization *, int64_t, bool);
using arguments_of = struct cuda_normalization;

constexpr unsigned beside = CUDA_BLOCKS_BESIDE;

unsigned start_tiles(block_kernel kernel, const struct cuda_normalization *n, const struct cuda_tiles *tiles,
                     cudaStream_t stream)
{
    return start_blocks(kernel, n, tiles->parts * tiles->tiles, stream);
}

// Kernels and bodies know the type at compile time, so that a thread asks for several elements before it waits for the first;
// bodies also what follows them, where that is nothing or a ReLU.
constexpr block_kernel moments_of_parts[] = {cuda_moments_of_parts<CUDA_FLOAT>, cuda_moments_of_parts<CUDA_F16>,
                                             cuda_moments_of_parts<CUDA_BF16>};
constexpr block_kernel products_of_parts[] = {cuda_products_of_parts<CUDA_FLOAT>, cuda_products_of_parts<CUDA_F16>,
                                              cuda_products_of_parts<CUDA_BF16>};

template <uint32_t type, enum cuda_follower known, thread_body body>
__device__ void item_of(const struct cuda_normalization *n, int64_t i)
{
    struct cuda_normalization typed = *n;
    typed.type = typed.store.type = type;
    if (known != CUDA_ANYTHING) {
        typed.store.epilogue = known == CUDA_RELU;
        typed.store.activation = 1;
        typed.store.add = 0;
    }
    body(&typed, i, cuda_reads_several(known));
}

template <uint32_t type, bool activated, thread_body body>
unsigned start_item(const struct cuda_normalization *n, cudaStream_t stream)
{
    const int64_t items = n->tiles.columns / n->tiles.pack * n->lanes;
    const enum cuda_follower known = cuda_follower_of(&n->store, activated);
    if (known == CUDA_NOTHING)
        return start<arguments_of, item_of<type, CUDA_NOTHING, body>, beside>(n, items, stream);
    if constexpr (activated)
        if (known == CUDA_RELU)
            return start<arguments_of, item_of<type, CUDA_RELU, body>, beside>(n, items, stream);
    return start<arguments_of, item_of<type, CUDA_ANYTHING, body>, beside>(n, items, stream);
}

template <bool activated, thread_body body>
unsigned start_items(const struct cuda_normalization *n, cudaStream_t stream)
{
    switch (n->type) {
    case CUDA_F16: return start_item<CUDA_F16, activated, body>(n, stream);
    case CUDA_BF16: return start_item<CUDA_BF16, activated, body>(n, stream);
    default: return start_item<CUDA_FLOAT, activated, body>(n, stream);
    }
}

template <uint32_t type>
unsigned load_normalization()
{
    unsigned error = load_kernel(moments_of_parts[type]);
    error = error ? error : load_kernel(products_of_parts[type]);
#define CUDA_FOLLOWED_LOAD(known, body) \
    error = error ? error : load<arguments_of, item_of<type, known, cuda_body_##body>, beside>();
    CUDA_FOLLOWED_LOAD(CUDA_NOTHING, normalize)
    CUDA_FOLLOWED_LOAD(CUDA_RELU, normalize)
    CUDA_FOLLOWED_LOAD(CUDA_ANYTHING, normalize)
    CUDA_FOLLOWED_LOAD(CUDA_NOTHING, normalize_backward)
    CUDA_FOLLOWED_LOAD(CUDA_ANYTHING, normalize_backward)
    return error;
}

} // namespace

extern "C" unsigned cuda_kernels_load(void)
{
    unsigned error = functions::load();
    error = error ? error : taps::load();
    error = error ? error : gathering::load();
    error = error ? error : layers::load();
    error = error ? error : moves::load();
    error = error ? error : walks::load();
    error = error ? error : products::load();
    error = error ? error : attention::load();
    error = error ? error : updates::load();
    error = error ? error : losses::load();
#define CUDA_KERNEL_LOAD(name)                                                     \
    error = error ? error : load<struct cuda_arguments, cuda_body_##name>();       \
    error = error ? error : load<struct cuda_arguments, as_float32<cuda_body_##name>>();
    CUDA_KERNELS(CUDA_KERNEL_LOAD)
#define CUDA_REDUCE_LOAD(name, stored, value, ordered, divided, load_value, store) \
    error = error ? error : load<struct cuda_reduction, cuda_reduce_##name>();
    CUDA_REDUCED_TYPES(CUDA_REDUCE_LOAD)
    error = error ? error : load_columns();
    error = error ? error : load_elements();
    error = error ? error : load_rows();
    error = error ? error : load_pooling<CUDA_FLOAT>();
    error = error ? error : load_pooling<CUDA_F16>();
    error = error ? error : load_pooling<CUDA_BF16>();
    error = error ? error : load_normalization<CUDA_FLOAT>();
    error = error ? error : load_normalization<CUDA_F16>();
    error = error ? error : load_normalization<CUDA_BF16>();
    error = error ? error : load<arguments_of, cuda_shared_statistics>();
    error = error ? error : load<arguments_of, cuda_shared_gradients>();
    error = error ? error : load_kernel(cuda_statistics_of_channels);
    return error ? error : load_kernel(cuda_gradients_of_channels);
}

extern "C" unsigned cuda_kernel_launch(uint32_t kernel, const struct cuda_arguments *arguments,
                                       int64_t items, struct CUstream_st *stream)
{
    if (items < 1)
        return cudaSuccess;
    const elements_kernel fours = elements_for(kernel, arguments, items);
    if (fours)
        return start_elements(fours, arguments, items, stream);
    switch (kernel) {
#define CUDA_KERNEL_CASE(name) \
    case cuda_kernel_##name: return start_body<cuda_body_##name>(arguments, items, stream);
        CUDA_KERNELS(CUDA_KERNEL_CASE)
#define CUDA_ROWS_CASE(name) \
    case cuda_kernel_##name: return start_rows<cuda_kernel_##name>(arguments, items, stream);
        CUDA_ROW_KERNELS(CUDA_ROWS_CASE)
#define CUDA_PAIRS_CASE(name) \
    case cuda_kernel_##name: return start_pairs<cuda_##name>(arguments, stream);
        CUDA_PAIR_KERNELS(CUDA_PAIRS_CASE)
    default: return cudaErrorInvalidValue;
    }
}

extern "C" unsigned cuda_reduce_launch(const struct cuda_reduction *reduction,
                                       struct CUstream_st *stream)
{
    switch (reduction->dtype) {
#define CUDA_REDUCE_CASE(name, stored, value, ordered, divided, load, store) \
    case cuda_reduce_number_##name:                                          \
        return start<struct cuda_reduction, cuda_reduce_##name>(reduction, reduction->items, stream);
        CUDA_REDUCED_TYPES(CUDA_REDUCE_CASE)
    default: return cudaErrorInvalidValue;
    }
}

extern "C" unsigned cuda_pooling_launch(uint32_t kernel, const struct cuda_pooling *pooling,
                                        struct CUstream_st *stream)
{
    const pooling_kernel run = pooling->store.type == CUDA_F16    ? pooling_of<CUDA_F16>(kernel, pooling)
                               : pooling->store.type == CUDA_BF16 ? pooling_of<CUDA_BF16>(kernel, pooling)
                                                                  : pooling_of<CUDA_FLOAT>(kernel, pooling);
    void *values[] = {(void *)pooling};
    return cudaLaunchKernel(run, dim3((pooling->items + threads - 1) / threads), dim3(threads), values, 0, stream);
}

extern "C" unsigned cuda_column_sums_launch(const struct cuda_column_sums *sums, struct CUstream_st *stream)
{
    void *values[] = {(void *)sums};
    return cudaLaunchKernel(columns_kernels[sums->type][sums->pack == 4],
                            dim3(sums->tiles * (unsigned)sums->parts), dim3(CUDA_BLOCK), values, 0, stream);
}

extern "C" unsigned cuda_normalization_launch(uint32_t kernel, const struct cuda_normalization *n,
                                              struct CUstream_st *stream)
{
    switch (kernel) {
    case cuda_normalization_moments: return start_tiles(moments_of_parts[n->type], n, &n->tiles, stream);
    case cuda_normalization_statistics: return start_tiles(cuda_statistics_of_channels, n, &n->merged, stream);
    case cuda_normalization_shared_statistics: return start<arguments_of, cuda_shared_statistics>(n, n->channels, stream);
    case cuda_normalization_shared_gradients: return start<arguments_of, cuda_shared_gradients>(n, n->channels, stream);
    case cuda_normalization_normalize: return start_items<true, cuda_body_normalize>(n, stream);
    case cuda_normalization_products: return start_tiles(products_of_parts[n->type], n, &n->tiles, stream);
    case cuda_normalization_gradients: return start_tiles(cuda_gradients_of_channels, n, &n->merged, stream);
    case cuda_normalization_normalize_backward: return start_items<false, cuda_body_normalize_backward>(n, stream);
    default: return cudaErrorInvalidValue;
    }
}
