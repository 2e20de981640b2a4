// SPDX-License-Identifier: Apache-2.0
// The dense layer by cuBLASLt (product.c): y (M,N) = x (M,K) w (K,N) + b, and its two backward operations. And convolutions of one
// point, whose w may be turned (convolution.c).
#include "plugins/device/cuda/engine/internal.h"

// Of halves whose rows begin at odd addresses cuBLASLt multiplies without tensor cores (a gradient of (256,65) from 8,192 rows took an
// H200 330 microseconds). A large gradient of weights is computed with columns of 0 beside those of dy, and then stripped of them.
#define ALIGNED_COLUMNS 8
#ifndef CUDA_LARGE_PRODUCT // multiplications; tests have less time
#define CUDA_LARGE_PRODUCT (INT64_C(1) << 26)
#endif

struct dense {
    uint32_t op; // as that of a dense layer
    int64_t m, k, n;
    bool turned; // w lies as cuda_layout_weights() says
    int64_t columns; // n, or with those of 0
    struct cuda_product product;
    bool post; // what is left (bias, epilogue, addition) runs as a kernel behind it
    uint64_t workspace, result, dy; // offsets in the scratch memory
};

static void dense_finish(struct ls_device *device, struct ls_kernel *kernel)
{
    struct dense *d = kernel->state;
    if (d)
        cuda_product_finish(device, &d->product);
}

// ---- Preparing ----

static struct cuda_product product_of(const struct dense *d)
{
    const struct cuda_matrix x = {d->k, 1, 0}, y = {d->n, 1, 0}, turned_x = {1, d->k, 0};
    const struct cuda_matrix w = {d->turned ? 1 : d->n, d->turned ? d->k : 1, 0};
    const struct cuda_matrix turned_w = {w.column, w.row, 0};
    switch (d->op) {
    case LS_OP_DENSE: return (struct cuda_product){d->m, d->n, d->k, .a = x, .b = w, .d = y};
    case LS_OP_DENSE_BACKWARD_DATA:
        return (struct cuda_product){d->m, d->k, d->n, .a = y, .b = turned_w, .d = x};
    default:
        return (struct cuda_product){d->k,
                                     d->columns,
                                     d->m,
                                     .a = turned_x,
                                     .b = {d->columns, 1, 0},
                                     .d = {d->columns, 1, 0}};
    }
}

// Whether cuBLASLt knows how, with this epilogue.
static bool choose(struct ls_device *device, struct ls_kernel *kernel, uint32_t epilogue)
{
    struct dense *d = kernel->state;
    d->product = product_of(d);
    d->product.batch = 1;
    d->product.alpha = 1;
    d->product.dtype = cuda_input_desc(kernel, 0)->dtype;
    d->product.result = cuda_output_desc(kernel, 0)->dtype;
    d->product.alignment = LS_ALIGNMENT;
    d->product.epilogue = epilogue;
    return cuda_product_choose(device, &d->product);
}

// What cuBLASLt does beside the product. Not ReLU: its own makes 0 of NaN (others report it), so
// that a loss would stay finite.
static uint32_t best_epilogue(const struct ls_kernel *kernel)
{
    const bool post = kernel->request.attributes.epilogue != LS_OP_NONE; // which adds the bias, too
    const struct dense *d = kernel->state;
    if (cuda_has_bias_gradient(kernel) && !cuda_accumulates(kernel, 1) && d->columns == d->n)
        return CUBLASLT_EPILOGUE_BGRADA;
    if (d->op == LS_OP_DENSE && cuda_has_bias(kernel) && !post && !cuda_accumulates(kernel, 0))
        return CUBLASLT_EPILOGUE_BIAS;
    return CUBLASLT_EPILOGUE_DEFAULT;
}

static void name_implementation(const struct dense *d, struct ls_kernel_answer *answer)
{
    cuda_implementation(answer, d->columns != d->n ? "cuBLASLt, columns of 0 beside dy's"
                                : d->product.epilogue == CUBLASLT_EPILOGUE_BIAS ? "cuBLASLt + bias"
                                : d->product.epilogue == CUBLASLT_EPILOGUE_BGRADA
                                    ? "cuBLASLt + bias gradient"
                                    : "cuBLASLt");
}

// What the epilogue did not do.
static void plan_rest(struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    struct dense *d = kernel->state;
    const bool biased = d->product.epilogue & CUBLASLT_EPILOGUE_BIAS;
    d->post = cuda_accumulates(kernel, 0) || kernel->request.attributes.epilogue != LS_OP_NONE ||
              (cuda_has_bias(kernel) && !biased);
    d->workspace = cuda_workspace(answer, d->product.choice.workspaceSize);
    if (d->columns != d->n)
        d->dy =
            cuda_scratch(answer, (uint64_t)(d->m * d->columns) * ls_dtype_bytes(d->product.dtype));
    if (d->columns != d->n || cuda_accumulates(kernel, 0))
        d->result = cuda_scratch(answer, (uint64_t)(d->product.m * d->product.n) *
                                             ls_dtype_bytes(d->product.result));
}

// ---- Running ----

static int32_t run_post(struct ls_device *device, const struct ls_kernel *kernel,
                        const struct cuda_call *launch, const void *result)
{
    const struct dense *d = kernel->state;
    const bool bias = cuda_has_bias(kernel) && !(d->product.epilogue & CUBLASLT_EPILOGUE_BIAS);
    const struct cuda_store store = cuda_store_of(kernel, launch);
    const struct cuda_arguments a = {.a = result,
                                     .a_type = store.type,
                                     .bias = bias ? launch->arguments[2] : NULL,
                                     .columns = d->n,
                                     .store = store};
    return cuda_start(device, cuda_kernel_finish, &a, d->product.m * d->product.n);
}

// Copies a matrix of other columns: those that it lacks are 0.
static int32_t copy_columns(struct ls_device *device, const void *from, int64_t from_columns,
                            int64_t rows, int64_t columns, struct cuda_store store)
{
    const struct cuda_move m = {.store = store,
                                .from = from,
                                .type = store.type,
                                .dims = 2,
                                .pack = 1,
                                .items = rows * columns,
                                .out = {rows, columns},
                                .in = {rows, from_columns},
                                .step = {from_columns, 1},
                                .turned = -1};
    return cuda_start_move(device, &m);
}

static int32_t multiply(struct ls_device *device, const struct ls_kernel *kernel,
                        const struct cuda_call *launch, const void *right, void *result)
{
    const struct dense *d = kernel->state;
    const struct cuda_factors factors = {
        .a = launch->arguments[0],
        .b = right,
        .d = result,
        .bias = kernel->request.op == LS_OP_DENSE_BACKWARD_WEIGHTS ? cuda_output(kernel, launch, 1)
                : cuda_has_bias(kernel)                            ? launch->arguments[2]
                                                                   : NULL,
        .workspace = cuda_workspace_at(launch, d->workspace),
    };
    return cuda_product_run(device, &d->product, &factors);
}

static int32_t multiply_wider(struct ls_device *device, const struct ls_kernel *kernel,
                              const struct cuda_call *launch)
{
    const struct dense *d = kernel->state;
    void *dy = (char *)launch->scratch + d->dy, *dw = (char *)launch->scratch + d->result;
    const struct cuda_store wider = {.out = dy, .type = cuda_type_of(&kernel->descs[1])};
    int32_t status = copy_columns(device, launch->arguments[1], d->n, d->m, d->columns, wider);
    if (!status)
        status = multiply(device, kernel, launch, dy, dw);
    return status ? status
                  : copy_columns(device, dw, d->columns, d->k, d->n, cuda_store_of(kernel, launch));
}

static int32_t run_library(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch)
{
    const struct dense *d = kernel->state;
    const bool wider = d->columns != d->n;
    void *result = cuda_accumulates(kernel, 0) ? (char *)launch->scratch + d->result
                                               : cuda_output(kernel, launch, 0);
    int32_t status = wider ? multiply_wider(device, kernel, launch)
                           : multiply(device, kernel, launch, launch->arguments[1], result);
    if (!status && d->post && !wider)
        status = run_post(device, kernel, launch, result);
    if (!status && cuda_has_bias_gradient(kernel) &&
        d->product.epilogue != CUBLASLT_EPILOGUE_BGRADA)
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
                                       .turned = d->turned,
                                       .library = "cuBLASLt"};
    cuda_use_direct(kernel, answer, &direct);
}

// ---- Shapes ----

static void find_shape(struct ls_kernel *kernel, struct dense *d)
{
    const uint32_t op = kernel->request.op;
    d->op = op == LS_OP_CONV2D                 ? LS_OP_DENSE
            : op == LS_OP_CONV2D_BACKWARD_DATA ? LS_OP_DENSE_BACKWARD_DATA
                                               : op;
    const bool weights = d->op == LS_OP_DENSE_BACKWARD_WEIGHTS;
    const struct ls_tensor_desc *in = kernel->descs, *out = cuda_output_desc(kernel, 0);
    const struct ls_tensor_desc *w = weights ? out : &in[1];
    const struct ls_tensor_desc *y = weights ? in + 1 : d->op == LS_OP_DENSE ? out : in;
    d->turned = w->layout.kind == LS_LAYOUT_OWN;
    d->k = w->dims[w->ndims - 2];
    d->n = w->dims[w->ndims - 1];
    d->m = cuda_elements(y) / d->n;
}

int32_t cuda_prepare_dense(struct ls_device *device, struct ls_kernel *kernel,
                           struct ls_kernel_answer *answer)
{
    struct dense *d = cuda_state(device, kernel, sizeof(*d));
    if (!d)
        return LS_OUT_OF_MEMORY;
    kernel->finish = dense_finish;
    find_shape(kernel, d);
    if (!cuda_layout_plain(cuda_output_desc(kernel, 0)))
        return cuda_unsupported(device, kernel, "results lie plain");
    d->columns = d->n;
    if (kernel->request.op == LS_OP_DENSE_BACKWARD_WEIGHTS && kernel->descs[1].dtype != LS_F32 &&
        d->m * d->k * d->n >= CUDA_LARGE_PRODUCT)
        d->columns = (d->n + ALIGNED_COLUMNS - 1) / ALIGNED_COLUMNS * ALIGNED_COLUMNS;
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
