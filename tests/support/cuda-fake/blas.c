// SPDX-License-Identifier: Apache-2.0
// cuBLASLt in the fake: D = epilogue(alpha op(A) op(B) + beta C), columns first, as NVIDIA's documentation has it. Which types
// go together is its table of cublasLtMatmul(): with sums in float32, A and B of one type; C, D and the bias of that type or
// float32; TF32 for float32 alone.
#include "tests/support/cuda-fake/fake.h"
#include "tests/support/cuda-fake/numbers.h"

#include <stdlib.h>
#include <string.h>

#define WORKSPACE 4096
// cublasStatus_t. A wrong call ends the run, so that a test sees it: after INVALID_VALUE the engine
// would go on.
enum { MISUSED = 14 /* INTERNAL_ERROR */, NOT_SUPPORTED = CUBLAS_STATUS_NOT_SUPPORTED };

struct cublasLtContext {
    int unused;
};

struct cuda_matmul_desc {
    unsigned compute;
    int32_t turn_a, turn_b;
    uint32_t epilogue;
    const void *bias;
};

struct cuda_matrix_layout {
    unsigned type;
    uint64_t rows, columns;
    int64_t leading;
    int32_t batch; // matrices
    int64_t next; // elements to the next of them
};

struct cuda_matmul_preference {
    uint64_t workspace;
    uint32_t schemes; // how parts of a sum may meet
    uint32_t alignments[4];
};

unsigned cublasLtCreate(struct cublasLtContext **handle)
{
    *handle = calloc(1, sizeof(**handle));
    double_add(&double_live.handles, 1);
    return 0;
}

unsigned cublasLtDestroy(struct cublasLtContext *handle)
{
    double_device_waits();
    free(handle);
    double_add(&double_live.handles, -1);
    return 0;
}

const char *cublasLtGetStatusString(unsigned status)
{
    return status == NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "an error of the fake";
}

// Descriptors are all made alike.
static unsigned make(void *out, size_t bytes)
{
    *(void **)out = calloc(1, bytes);
    double_add(&double_live.descriptors, 1);
    return *(void **)out ? 0 : 3;
}

static unsigned unmake(void *memory)
{
    free(memory);
    double_add(&double_live.descriptors, -1);
    return 0;
}

unsigned cublasLtMatmulDescCreate(cublasLtMatmulDescOpaque_t **desc, unsigned compute,
                                  unsigned scale)
{
    if ((compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32) ||
        scale != CUDA_R_32F)
        return MISUSED;
    const unsigned error = make(desc, sizeof(**desc));
    if (!error)
        **desc =
            (struct cuda_matmul_desc){.compute = compute, .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    return error;
}

unsigned cublasLtMatmulDescDestroy(cublasLtMatmulDescOpaque_t *desc)
{
    return unmake(desc);
}

unsigned cublasLtMatmulDescSetAttribute(cublasLtMatmulDescOpaque_t *desc, unsigned attribute,
                                        const void *value, size_t bytes)
{
    const struct {
        unsigned attribute;
        size_t bytes;
        void *place;
    } known[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, sizeof(desc->turn_a), &desc->turn_a},
        {CUBLASLT_MATMUL_DESC_TRANSB, sizeof(desc->turn_b), &desc->turn_b},
        {CUBLASLT_MATMUL_DESC_EPILOGUE, sizeof(desc->epilogue), &desc->epilogue},
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, sizeof(desc->bias), (void *)&desc->bias},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i].attribute == attribute && known[i].bytes == bytes) {
            memcpy(known[i].place, value, bytes);
            return 0;
        }
    return MISUSED;
}

unsigned cublasLtMatrixLayoutCreate(cublasLtMatrixLayoutOpaque_t **layout, unsigned type,
                                    uint64_t rows, uint64_t columns, int64_t leading)
{
    if ((type != CUDA_R_32F && type != CUDA_R_16F && type != CUDA_R_16BF) ||
        leading < (int64_t)rows)
        return MISUSED;
    const unsigned error = make(layout, sizeof(**layout));
    if (!error)
        **layout = (struct cuda_matrix_layout){type, rows, columns, leading, 1, 0};
    return error;
}

unsigned cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayoutOpaque_t *layout, unsigned attribute,
                                          const void *value, size_t bytes)
{
    if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == sizeof(layout->batch))
        memcpy(&layout->batch, value, bytes);
    else if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET &&
             bytes == sizeof(layout->next))
        memcpy(&layout->next, value, bytes);
    else
        return MISUSED;
    return 0;
}

unsigned cublasLtMatrixLayoutDestroy(cublasLtMatrixLayoutOpaque_t *layout)
{
    return unmake(layout);
}

unsigned cublasLtMatmulPreferenceCreate(cublasLtMatmulPreferenceOpaque_t **preference)
{
    const unsigned error = make(preference, sizeof(**preference));
    if (!error)
        (*preference)->schemes = 7;
    return error;
}

unsigned cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreferenceOpaque_t *preference)
{
    return unmake(preference);
}

unsigned cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreferenceOpaque_t *preference,
                                              unsigned attribute, const void *value, size_t bytes)
{
    const unsigned first = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && bytes == 8)
        memcpy(&preference->workspace, value, bytes);
    else if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK && bytes == 4)
        memcpy(&preference->schemes, value, bytes);
    else if (attribute >= first && attribute < first + 4 && bytes == 4)
        memcpy(&preference->alignments[attribute - first], value, bytes);
    else
        return MISUSED;
    return 0;
}

static int types_fit(const struct cuda_matmul_desc *desc, const struct cuda_matrix_layout *a,
                     const struct cuda_matrix_layout *b, const struct cuda_matrix_layout *d)
{
    const int tf32 = desc->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    return a->type == b->type && (d->type == a->type || d->type == CUDA_R_32F) &&
           (!tf32 || a->type == CUDA_R_32F);
}

// Whether shapes and types belong together.
static int fits(const struct cuda_matmul_desc *desc, const struct cuda_matrix_layout *a,
                const struct cuda_matrix_layout *b, const struct cuda_matrix_layout *d)
{
    if (!types_fit(desc, a, b, d) || a->batch != d->batch || b->batch != d->batch ||
        (d->batch > 1 && (!d->next || desc->epilogue != CUBLASLT_EPILOGUE_DEFAULT)))
        return 0;
    const uint64_t rows = desc->turn_a ? a->columns : a->rows;
    const uint64_t inner = desc->turn_a ? a->rows : a->columns;
    return rows == d->rows && inner == (desc->turn_b ? b->columns : b->rows) &&
           d->columns == (desc->turn_b ? b->rows : b->columns);
}

unsigned cublasLtMatmulAlgoGetHeuristic(struct cublasLtContext *handle,
                                        cublasLtMatmulDescOpaque_t *desc,
                                        cublasLtMatrixLayoutOpaque_t *a,
                                        cublasLtMatrixLayoutOpaque_t *b,
                                        cublasLtMatrixLayoutOpaque_t *c,
                                        cublasLtMatrixLayoutOpaque_t *d,
                                        cublasLtMatmulPreferenceOpaque_t *preference, int wanted,
                                        cublasLtMatmulHeuristicResult_t *results, int *found)
{
    *found = 0;
    if (!handle || wanted < 1 || c != d || !fits(desc, a, b, d))
        return MISUSED;
    // Halves whose partial sums would be rounded to halves are a mistake, not a wish.
    if (a->type != CUDA_R_32F && preference->schemes != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
        return MISUSED;
    if (double_setting("CUDA_FAKE_NO_BLAS", 0) ||
        (a->type != CUDA_R_32F && double_setting("CUDA_FAKE_NO_HALVES", 0)) ||
        (desc->epilogue != CUBLASLT_EPILOGUE_DEFAULT && double_setting("CUDA_FAKE_NO_EPILOGUE", 0)))
        return NOT_SUPPORTED;
    memset(results, 0, sizeof(*results));
    results->workspaceSize = preference->workspace < WORKSPACE ? preference->workspace : WORKSPACE;
    results->algo.data[0] = 4711;
    for (int i = 0; i < 4; i++) // how the matrices have to be aligned at a launch
        results->algo.data[1] |= (uint64_t)preference->alignments[i] << 16 * i;
    *found = 1;
    return 0;
}

static uint32_t blas_type(unsigned type)
{
    return type == CUDA_R_16F ? CUDA_F16 : type == CUDA_R_16BF ? CUDA_BF16 : CUDA_FLOAT;
}

struct product {
    struct cuda_matmul_desc desc;
    struct cuda_matrix_layout a_layout, b_layout, d_layout;
    const void *a, *b, *c;
    void *d, *bias, *workspace;
    float alpha, beta;
    size_t workspace_bytes;
};

// A factor, as the unit that multiplies sees it.
static double factor(const struct product *p, const void *values,
                     const struct cuda_matrix_layout *layout, int turn, uint64_t row,
                     uint64_t column)
{
    const uint64_t at =
        turn ? column + row * (uint64_t)layout->leading : row + column * (uint64_t)layout->leading;
    const float value = double_get(values, blas_type(layout->type), at);
    return (double)(p->desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? double_tf32(value) : value);
}

static void write_bias_gradient(const struct product *p, uint64_t inner)
{
    const uint32_t type = blas_type(p->a_layout.type);
    for (uint64_t row = 0; row < p->d_layout.rows; row++) {
        double sum = 0;
        for (uint64_t k = 0; k < inner; k++)
            sum += (double)double_get(p->a, type,
                                      p->desc.turn_a ? k + row * (uint64_t)p->a_layout.leading
                                                     : row + k * (uint64_t)p->a_layout.leading);
        double_put(p->bias, blas_type(p->d_layout.type), row, (float)sum);
    }
}

static float finished(const struct product *p, float value, uint64_t row, uint64_t at)
{
    const uint32_t type = blas_type(p->d_layout.type);
    value *= p->alpha;
    if (p->beta != 0)
        value += p->beta * double_get(p->c, type, at);
    if (p->desc.epilogue & CUBLASLT_EPILOGUE_BIAS)
        value += double_get(p->bias, type, row);
    return value;
}

// All rows of a column at once, whose terms come one by one, so that the sums are those of plain
// loops.
static void run_matrix(const struct product *p, uint64_t inner)
{
    const uint64_t rows = p->d_layout.rows;
    double *a = calloc(inner * rows + 1, sizeof(*a)), *sums = calloc(rows + 1, sizeof(*sums));
    if (!a || !sums)
        abort();
    for (uint64_t i = 0; i < inner * rows; i++)
        a[i] = factor(p, p->a, &p->a_layout, p->desc.turn_a, i % rows, i / rows);
    for (uint64_t column = 0; column < p->d_layout.columns; column++) {
        memset(sums, 0, rows * sizeof(*sums));
        for (uint64_t k = 0; k < inner; k++) {
            const double b = factor(p, p->b, &p->b_layout, p->desc.turn_b, k, column);
            for (uint64_t row = 0; row < rows; row++)
                sums[row] += a[k * rows + row] * b;
        }
        for (uint64_t row = 0; row < rows; row++) {
            const uint64_t at = row + column * (uint64_t)p->d_layout.leading;
            double_put(p->d, blas_type(p->d_layout.type), at,
                       finished(p, (float)sums[row], row, at));
        }
    }
    free(a);
    free(sums);
}

static const void *next_of(const void *values, const struct cuda_matrix_layout *layout, int32_t i)
{
    const int64_t size = layout->type == CUDA_R_32F ? 4 : 2;
    return (const char *)values + i * layout->next * size;
}

static void run_product(const void *data)
{
    const struct product *p = data;
    const uint64_t inner = p->desc.turn_a ? p->a_layout.rows : p->a_layout.columns;
    memset(p->workspace, 0x77, p->workspace_bytes);
    for (int32_t i = 0; i < p->d_layout.batch; i++) {
        struct product one = *p;
        one.a = next_of(p->a, &p->a_layout, i);
        one.b = next_of(p->b, &p->b_layout, i);
        one.c = next_of(p->c, &p->d_layout, i);
        one.d = (void *)(uintptr_t)next_of(p->d, &p->d_layout, i);
        run_matrix(&one, inner);
    }
    if (p->desc.epilogue == CUBLASLT_EPILOGUE_BGRADA)
        write_bias_gradient(p, inner);
}

unsigned cublasLtMatmul(struct cublasLtContext *handle, cublasLtMatmulDescOpaque_t *desc,
                        const void *alpha, const void *a, cublasLtMatrixLayoutOpaque_t *a_layout,
                        const void *b, cublasLtMatrixLayoutOpaque_t *b_layout, const void *beta,
                        const void *c, cublasLtMatrixLayoutOpaque_t *c_layout, void *d,
                        cublasLtMatrixLayoutOpaque_t *d_layout,
                        const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t bytes,
                        struct CUstream_st *stream)
{
    const int biased =
        desc->epilogue & CUBLASLT_EPILOGUE_BIAS || desc->epilogue == CUBLASLT_EPILOGUE_BGRADA;
    const struct product product = {
        .desc = *desc,
        .a_layout = *a_layout,
        .b_layout = *b_layout,
        .d_layout = *d_layout,
        .a = double_reach_on(stream, a),
        .b = double_reach_on(stream, b),
        .c = double_reach_on(stream, c),
        .d = double_reach_on(stream, d),
        .bias = biased ? double_reach_on(stream, desc->bias) : NULL,
        .workspace = double_reach_on(stream, workspace),
        .alpha = *(const float *)alpha,
        .beta = *(const float *)beta,
        .workspace_bytes = bytes,
    };
    const uintptr_t addresses[4] = {(uintptr_t)a, (uintptr_t)b, (uintptr_t)c, (uintptr_t)d};
    uint64_t unaligned = 0;
    for (int i = 0; i < 4; i++)
        unaligned |= addresses[i] & ((algorithm->data[1] >> 16 * i & 0xffff) - 1);
    if (!handle || c_layout != d_layout || !fits(desc, a_layout, b_layout, d_layout) ||
        algorithm->data[0] != 4711 || bytes < WORKSPACE || unaligned ||
        (uintptr_t)workspace % 256 || (biased && !desc->bias))
        return MISUSED;
    if (double_setting("CUDA_FAKE_REFUSE", 0))
        return NOT_SUPPORTED;
    return double_enqueue(stream, run_product, &product, sizeof(product), 1) ? 13 : 0;
}
