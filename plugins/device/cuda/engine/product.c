// SPDX-License-Identifier: Apache-2.0
// Products of matrices by cuBLASLt: D (m,n) = alpha A (m,k) B (k,n) + beta D, several at once. cuBLASLt stores columns, so it sees every
// matrix turned: D as (n,m), which is B A, and nothing is copied. Sums are float32 whatever the matrices are; TF32 only where it
// was asked for, or the factors come from halves.
#include "plugins/device/cuda/engine/internal.h"

#include <string.h>

#define MOST_WORKSPACE (UINT64_C(32) << 20)

enum {
    LEFT,
    RIGHT,
    RESULT,
}; // A, B and D of cuBLASLt: our B, A and D

void cuda_product_finish(struct ls_device *device, struct cuda_product *p)
{
    for (int i = 0; i < CUDA_MATRICES; i++)
        if (p->layouts[i])
            device->calls->cublasLtMatrixLayoutDestroy(p->layouts[i]);
    if (p->matmul)
        device->calls->cublasLtMatmulDescDestroy(p->matmul);
    p->matmul = NULL;
    memset(p->layouts, 0, sizeof(p->layouts));
}

static unsigned library_type(uint32_t dtype)
{
    return dtype == LS_F16 ? CUDA_R_16F : dtype == LS_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

// Whether the elements of a row, of which there are so many, are beside each other; else those of a column are.
static bool is_plain(const struct cuda_matrix *matrix, int64_t columns)
{
    return matrix->column == 1 && matrix->row >= columns;
}

static unsigned make_layout(struct ls_device *device, const struct cuda_product *p,
                            const struct cuda_matrix *matrix, const int64_t *shape, uint32_t dtype,
                            cublasLtMatrixLayoutOpaque_t **out)
{
    const struct cuda_calls *calls = device->calls;
    const bool plain = is_plain(matrix, shape[1]);
    const int32_t count = (int32_t)p->batch;
    unsigned error = calls->cublasLtMatrixLayoutCreate(
        out, library_type(dtype), (uint64_t)shape[plain ? 1 : 0], (uint64_t)shape[plain ? 0 : 1],
        plain ? matrix->row : matrix->column);
    if (!error && count > 1)
        error = calls->cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                        &count, sizeof(count));
    if (!error && count > 1)
        error = calls->cublasLtMatrixLayoutSetAttribute(
            *out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &matrix->next, sizeof(matrix->next));
    return error;
}

static unsigned make_layouts(struct ls_device *device, struct cuda_product *p)
{
    const int64_t a[] = {p->m, p->k}, b[] = {p->k, p->n}, d[] = {p->m, p->n};
    unsigned error = make_layout(device, p, &p->b, b, p->dtype, &p->layouts[LEFT]);
    if (!error)
        error = make_layout(device, p, &p->a, a, p->dtype, &p->layouts[RIGHT]);
    return error ? error : make_layout(device, p, &p->d, d, p->result, &p->layouts[RESULT]);
}

// Halves are multiplied as they are; TF32 rounds factors of float32 to 11 bits.
static unsigned compute_type(const struct ls_device *device, const struct cuda_product *p)
{
    return (device->tf32 || p->tf32) && p->dtype == LS_F32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                           : CUBLAS_COMPUTE_32F;
}

static bool is_biased(const struct cuda_product *p)
{
    return p->epilogue & (CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_BGRADA);
}

static unsigned make_matmul(struct ls_device *device, struct cuda_product *p)
{
    const struct cuda_calls *calls = device->calls;
    const int32_t turn_left = is_plain(&p->b, p->n) ? CUBLAS_OP_N : CUBLAS_OP_T;
    const int32_t turn_right = is_plain(&p->a, p->k) ? CUBLAS_OP_N : CUBLAS_OP_T;
    // The choice looks at whether there is a bias and how it is aligned; its address comes with each launch.
    const void *bias = (const void *)(uintptr_t)LS_ALIGNMENT;
    unsigned error =
        calls->cublasLtMatmulDescCreate(&p->matmul, compute_type(device, p), CUDA_R_32F);
    if (!error)
        error = calls->cublasLtMatmulDescSetAttribute(p->matmul, CUBLASLT_MATMUL_DESC_TRANSA,
                                                      &turn_left, sizeof(turn_left));
    if (!error)
        error = calls->cublasLtMatmulDescSetAttribute(p->matmul, CUBLASLT_MATMUL_DESC_TRANSB,
                                                      &turn_right, sizeof(turn_right));
    if (!error)
        error = calls->cublasLtMatmulDescSetAttribute(p->matmul, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                      &p->epilogue, sizeof(p->epilogue));
    if (!error && is_biased(p))
        error = calls->cublasLtMatmulDescSetAttribute(p->matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                      &bias, sizeof(bias));
    return error;
}

static unsigned set_preferences(const struct cuda_calls *calls, const struct cuda_product *p,
                                cublasLtMatmulPreferenceOpaque_t *preference)
{
    static const unsigned alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint64_t workspace = MOST_WORKSPACE;
    // Parts of a sum meet in float32: the other schemes round them to the type of the result, which may be a half.
    const uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    unsigned error = calls->cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace));
    if (!error && p->dtype != LS_F32)
        error = calls->cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme, sizeof(scheme));
    for (size_t i = 0; !error && i < sizeof(alignments) / sizeof(alignments[0]); i++)
        error = calls->cublasLtMatmulPreferenceSetAttribute(preference, alignments[i],
                                                            &p->alignment, sizeof(p->alignment));
    return error;
}

bool cuda_product_choose(struct ls_device *device, struct cuda_product *p)
{
    const struct cuda_calls *calls = device->calls;
    cublasLtMatmulPreferenceOpaque_t *preference = NULL;
    int found = 0;
    unsigned error = make_layouts(device, p);
    if (!error)
        error = make_matmul(device, p);
    if (!error)
        error = calls->cublasLtMatmulPreferenceCreate(&preference);
    if (!error)
        error = set_preferences(calls, p, preference);
    if (!error)
        error = calls->cublasLtMatmulAlgoGetHeuristic(
            device->blas, p->matmul, p->layouts[LEFT], p->layouts[RIGHT], p->layouts[RESULT],
            p->layouts[RESULT], preference, 1, &p->choice, &found);
    if (preference)
        calls->cublasLtMatmulPreferenceDestroy(preference);
    if (error || found < 1 || p->choice.state) {
        cuda_product_finish(device, p);
        return false;
    }
    return true;
}

int32_t cuda_product_run(struct ls_device *device, const struct cuda_product *p,
                         const struct cuda_factors *of)
{
    unsigned error = 0;
    if (is_biased(p))
        error = device->calls->cublasLtMatmulDescSetAttribute(
            p->matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &of->bias, sizeof(of->bias));
    if (!error)
        error = device->calls->cublasLtMatmul(
            device->blas, p->matmul, &p->alpha, of->b, p->layouts[LEFT], of->a, p->layouts[RIGHT],
            &p->beta, of->d, p->layouts[RESULT], of->d, p->layouts[RESULT], &p->choice.algo,
            of->workspace, p->choice.workspaceSize, device->stream);
    return cuda_check_blas(device, error, cuda_last(device));
}

static int32_t run_own(struct ls_device *device, const struct cuda_product *p,
                       const struct cuda_factors *of)
{
    const struct cuda_multiplication m = {
        .a = of->a,
        .b = of->b,
        .d = of->d,
        .type = cuda_type(p->dtype),
        .rows = p->m,
        .columns = p->n,
        .inner = p->k,
        .batch = p->batch,
        .a_steps = {p->a.next, p->a.row, p->a.column},
        .b_steps = {p->b.next, p->b.row, p->b.column},
        .d_steps = {p->d.next, p->d.row, p->d.column},
        .alpha = p->alpha,
        .beta = p->beta,
    };
    return cuda_start_multiplication(device, &m);
}

int32_t cuda_product_multiply(struct ls_device *device, const struct ls_kernel *kernel,
                              const struct cuda_product *p, const struct cuda_factors *of)
{
    if (!p->matmul || kernel->turn->refused)
        return run_own(device, p, of);
    const int32_t status = cuda_product_run(device, p, of);
    return status && cuda_turn_to_own(device, kernel) ? run_own(device, p, of) : status;
}
