// SPDX-License-Identifier: Apache-2.0
// The dense layer by cuBLASLt: y (M,N) = x (M,K) w (K,N) + b, and its two backward operations. cuBLASLt stores columns, so
// it sees every matrix turned: y as (N,M), x as (K,M), w as (N,K), and nothing is copied. Sums are float32 whatever the
// tensors are; TF32 only where it was asked for.
#include "plugins/device/cuda/engine/internal.h"

#include <string.h>

#define MOST_WORKSPACE (UINT64_C(32) << 20)

enum {
    WEIGHTS,
    DATA,
    RESULT,
    MATRICES
}; // A, B and D of cuBLASLt; A is dy where weights are the result

struct dense {
    int64_t m, k, n;
    cublasLtMatmulDescOpaque_t *matmul; // NULL: by the own kernels
    cublasLtMatrixLayoutOpaque_t *layouts[MATRICES];
    cublasLtMatmulHeuristicResult_t choice;
    uint32_t epilogue; // of cuBLASLt
    bool post; // what is left (bias, epilogue, addition) runs as a kernel behind it
    uint64_t workspace, result; // offsets in the scratch memory
};

static void dense_finish(struct ls_device *device, struct ls_kernel *kernel)
{
    struct dense *d = kernel->state;
    if (!d)
        return;
    for (int i = 0; i < MATRICES; i++)
        if (d->layouts[i])
            device->calls->cublasLtMatrixLayoutDestroy(d->layouts[i]);
    if (d->matmul)
        device->calls->cublasLtMatmulDescDestroy(d->matmul);
    d->matmul = NULL;
    memset(d->layouts, 0, sizeof(d->layouts));
}

// ---- Preparing ----

// How cuBLASLt is told the product: D (rows, columns) = A B, each of them turned or not.
struct product {
    int64_t rows, columns, inner;
    bool turn_a, turn_b;
};

static struct product product_of(uint32_t op, const struct dense *d)
{
    switch (op) {
    case LS_OP_DENSE: return (struct product){d->n, d->m, d->k, false, false};
    case LS_OP_DENSE_BACKWARD_DATA: return (struct product){d->k, d->m, d->n, true, false};
    default: return (struct product){d->n, d->k, d->m, false, true};
    }
}

static unsigned library_type(const struct ls_tensor_desc *desc)
{
    return desc->dtype == LS_F16 ? CUDA_R_16F : desc->dtype == LS_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static unsigned make_layouts(struct ls_device *device, struct ls_kernel *kernel,
                             const struct product *p)
{
    struct dense *d = kernel->state;
    const unsigned factor = library_type(cuda_input_desc(kernel, 0));
    const unsigned types[MATRICES] = {factor, factor, library_type(cuda_output_desc(kernel, 0))};
    const int64_t shapes[MATRICES][2] = {
        [WEIGHTS] = {p->turn_a ? p->inner : p->rows, p->turn_a ? p->rows : p->inner},
        [DATA] = {p->turn_b ? p->columns : p->inner, p->turn_b ? p->inner : p->columns},
        [RESULT] = {p->rows, p->columns},
    };
    unsigned error = 0;
    for (int i = 0; !error && i < MATRICES; i++)
        error = device->calls->cublasLtMatrixLayoutCreate(
            &d->layouts[i], types[i], (uint64_t)shapes[i][0], (uint64_t)shapes[i][1], shapes[i][0]);
    return error;
}

// Halves are multiplied as they are; TF32 rounds factors of float32 to 10 bits.
static unsigned compute_type(const struct ls_device *device, struct ls_kernel *kernel)
{
    return device->tf32 && cuda_input_desc(kernel, 0)->dtype == LS_F32
               ? CUBLAS_COMPUTE_32F_FAST_TF32
               : CUBLAS_COMPUTE_32F;
}

static unsigned make_matmul(struct ls_device *device, struct ls_kernel *kernel,
                            const struct product *p)
{
    const struct cuda_calls *calls = device->calls;
    struct dense *d = kernel->state;
    const int32_t turn_a = p->turn_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t turn_b = p->turn_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    // The choice looks at whether there is a bias and how it is aligned; its address comes with each launch.
    const void *bias = (const void *)(uintptr_t)LS_ALIGNMENT;
    unsigned error =
        calls->cublasLtMatmulDescCreate(&d->matmul, compute_type(device, kernel), CUDA_R_32F);
    if (!error)
        error = calls->cublasLtMatmulDescSetAttribute(d->matmul, CUBLASLT_MATMUL_DESC_TRANSA,
                                                      &turn_a, sizeof(turn_a));
    if (!error)
        error = calls->cublasLtMatmulDescSetAttribute(d->matmul, CUBLASLT_MATMUL_DESC_TRANSB,
                                                      &turn_b, sizeof(turn_b));
    if (!error)
        error = calls->cublasLtMatmulDescSetAttribute(d->matmul, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                      &d->epilogue, sizeof(d->epilogue));
    if (!error && d->epilogue & (CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_BGRADA))
        error = calls->cublasLtMatmulDescSetAttribute(d->matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                      &bias, sizeof(bias));
    return error;
}

static unsigned set_preferences(const struct cuda_calls *calls,
                                cublasLtMatmulPreferenceOpaque_t *preference, bool halves)
{
    static const unsigned alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint64_t workspace = MOST_WORKSPACE;
    const uint32_t alignment = LS_ALIGNMENT;
    // Parts of a sum meet in float32: the other schemes round them to the type of the result, which may be a half.
    const uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    unsigned error = calls->cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace));
    if (!error && halves)
        error = calls->cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme, sizeof(scheme));
    for (size_t i = 0; !error && i < sizeof(alignments) / sizeof(alignments[0]); i++)
        error = calls->cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &alignment,
                                                            sizeof(alignment));
    return error;
}

// Whether cuBLASLt knows how, with this epilogue.
static bool choose(struct ls_device *device, struct ls_kernel *kernel, uint32_t epilogue)
{
    const struct cuda_calls *calls = device->calls;
    struct dense *d = kernel->state;
    const struct product p = product_of(kernel->request.op, d);
    cublasLtMatmulPreferenceOpaque_t *preference = NULL;
    int found = 0;
    d->epilogue = epilogue;
    unsigned error = make_layouts(device, kernel, &p);
    if (!error)
        error = make_matmul(device, kernel, &p);
    if (!error)
        error = calls->cublasLtMatmulPreferenceCreate(&preference);
    if (!error)
        error = set_preferences(calls, preference, cuda_input_desc(kernel, 0)->dtype != LS_F32);
    if (!error)
        error = calls->cublasLtMatmulAlgoGetHeuristic(
            device->blas, d->matmul, d->layouts[WEIGHTS], d->layouts[DATA], d->layouts[RESULT],
            d->layouts[RESULT], preference, 1, &d->choice, &found);
    if (preference)
        calls->cublasLtMatmulPreferenceDestroy(preference);
    if (error || found < 1 || d->choice.state) {
        dense_finish(device, kernel);
        return false;
    }
    return true;
}

// What cuBLASLt does beside the product. Not ReLU: its own makes 0 of NaN (others report it), so
// that a loss would stay finite.
static uint32_t best_epilogue(const struct ls_kernel *kernel)
{
    const bool post = kernel->request.attributes.epilogue != LS_OP_NONE; // which adds the bias, too
    if (cuda_has_bias_gradient(kernel) && !cuda_accumulates(kernel, 1))
        return CUBLASLT_EPILOGUE_BGRADA;
    if (kernel->request.op == LS_OP_DENSE && cuda_has_bias(kernel) && !post &&
        !cuda_accumulates(kernel, 0))
        return CUBLASLT_EPILOGUE_BIAS;
    return CUBLASLT_EPILOGUE_DEFAULT;
}

static void name_implementation(const struct dense *d, struct ls_kernel_answer *answer)
{
    cuda_implementation(answer, d->epilogue == CUBLASLT_EPILOGUE_BIAS ? "cuBLASLt + bias"
                                : d->epilogue == CUBLASLT_EPILOGUE_BGRADA
                                    ? "cuBLASLt + bias gradient"
                                    : "cuBLASLt");
}

// What the epilogue did not do.
static void plan_rest(struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    struct dense *d = kernel->state;
    const bool biased = d->epilogue & CUBLASLT_EPILOGUE_BIAS;
    d->post = cuda_accumulates(kernel, 0) || kernel->request.attributes.epilogue != LS_OP_NONE ||
              (cuda_has_bias(kernel) && !biased);
    d->workspace = cuda_workspace(answer, d->choice.workspaceSize);
    if (cuda_accumulates(kernel, 0))
        d->result = cuda_scratch(answer, cuda_output_desc(kernel, 0)->layout.bytes);
}

// ---- Running ----

static int32_t run_post(struct ls_device *device, const struct ls_kernel *kernel,
                        const struct cuda_call *launch, const void *result)
{
    const struct dense *d = kernel->state;
    const bool bias = cuda_has_bias(kernel) && !(d->epilogue & CUBLASLT_EPILOGUE_BIAS);
    const struct cuda_store store = cuda_store_of(kernel, launch);
    const struct cuda_arguments a = {.a = result,
                                     .a_type = store.type,
                                     .bias = bias ? launch->arguments[2] : NULL,
                                     .columns = d->n,
                                     .store = store};
    const struct product p = product_of(kernel->request.op, d);
    return cuda_start(device, cuda_kernel_finish, &a, p.rows * p.columns);
}

static int32_t multiply(struct ls_device *device, const struct ls_kernel *kernel,
                        const struct cuda_call *launch, void *result)
{
    static const float one = 1, zero = 0;
    const struct dense *d = kernel->state;
    const bool weights = kernel->request.op == LS_OP_DENSE_BACKWARD_WEIGHTS;
    const void *bias = weights                 ? cuda_output(kernel, launch, 1)
                       : cuda_has_bias(kernel) ? launch->arguments[2]
                                               : NULL;
    unsigned error = 0;
    if (d->epilogue & (CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_BGRADA))
        error = device->calls->cublasLtMatmulDescSetAttribute(
            d->matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias));
    // A is w or dy, the second argument of each; B is x or dy, the first.
    if (!error)
        error = device->calls->cublasLtMatmul(
            device->blas, d->matmul, &one, launch->arguments[1], d->layouts[WEIGHTS],
            launch->arguments[0], d->layouts[DATA], &zero, result, d->layouts[RESULT], result,
            d->layouts[RESULT], &d->choice.algo, cuda_workspace_at(launch, d->workspace),
            d->choice.workspaceSize, device->stream);
    return cuda_check_blas(device, error, kernel->operation->name);
}

static int32_t run_library(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch)
{
    const struct dense *d = kernel->state;
    void *result = cuda_accumulates(kernel, 0) ? (char *)launch->scratch + d->result
                                               : cuda_output(kernel, launch, 0);
    int32_t status = multiply(device, kernel, launch, result);
    if (!status && d->post)
        status = run_post(device, kernel, launch, result);
    if (!status && cuda_has_bias_gradient(kernel) && d->epilogue != CUBLASLT_EPILOGUE_BGRADA)
        status = cuda_run_bias_gradient(device, kernel, launch);
    return status;
}

static void plan_direct(struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const struct dense *d = kernel->state;
    const struct cuda_direct direct = {.window = {.batch = d->m,
                                                  .height = 1,
                                                  .width = 1,
                                                  .channels = d->k,
                                                  .out_height = 1,
                                                  .out_width = 1,
                                                  .size = {1, 1},
                                                  .stride = {1, 1},
                                                  .dilation = {1, 1}},
                                       .filters = d->n,
                                       .groups = 1,
                                       .library = "cuBLASLt"};
    cuda_use_direct(kernel, answer, &direct);
}

// ---- Shapes ----

static bool find_shape(struct ls_kernel *kernel, struct dense *d)
{
    const bool weights = kernel->request.op == LS_OP_DENSE_BACKWARD_WEIGHTS;
    const bool data = kernel->request.op == LS_OP_DENSE_BACKWARD_DATA;
    const struct ls_tensor_desc *in = kernel->descs, *out = cuda_output_desc(kernel, 0);
    const struct ls_tensor_desc *w = weights ? out : &in[1], *x = data ? out : &in[0];
    const struct ls_tensor_desc *y = weights ? &in[1] : data ? &in[0] : out;
    if (w->ndims != 2)
        return false;
    d->k = w->dims[0];
    d->n = w->dims[1];
    d->m = (int64_t)ls_tensor_elements(y) / d->n;
    if ((int64_t)ls_tensor_elements(y) != d->m * d->n ||
        (int64_t)ls_tensor_elements(x) != d->m * d->k)
        return false;
    if (cuda_has_bias(kernel) && (int64_t)ls_tensor_elements(&in[2]) != d->n)
        return false;
    return !cuda_has_bias_gradient(kernel) || (int64_t)ls_tensor_elements(&out[1]) == d->n;
}

int32_t cuda_prepare_dense(struct ls_device *device, struct ls_kernel *kernel,
                           struct ls_kernel_answer *answer)
{
    struct dense *d = cuda_state(device, kernel, sizeof(*d));
    if (!d)
        return LS_OUT_OF_MEMORY;
    kernel->finish = dense_finish;
    if (!find_shape(kernel, d))
        return cuda_unsupported(device, kernel, "the shapes do not belong together");
    if (!cuda_layout_plain(cuda_output_desc(kernel, 0)))
        return cuda_unsupported(device, kernel, "results lie plain");
    const uint32_t best = best_epilogue(kernel);
    plan_direct(kernel, answer);
    answer->slow =
        !choose(device, kernel, best) &&
        (best == CUBLASLT_EPILOGUE_DEFAULT || !choose(device, kernel, CUBLASLT_EPILOGUE_DEFAULT));
    if (answer->slow)
        return LS_OK;
    kernel->run = run_library;
    name_implementation(d, answer);
    plan_rest(kernel, answer);
    return LS_OK;
}
