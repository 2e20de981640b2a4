// SPDX-License-Identifier: Apache-2.0
// The dense layer by cuBLASLt (product.c): y (M,N) = x (M,K) w (K,N) + b, and its two backward operations.
#include "plugins/device/cuda/engine/internal.h"

struct dense {
    int64_t m, k, n;
    struct cuda_product product;
    bool post; // what is left (bias, epilogue, addition) runs as a kernel behind it
    uint64_t workspace, result; // offsets in the scratch memory
};

static void dense_finish(struct ls_device *device, struct ls_kernel *kernel)
{
    struct dense *d = kernel->state;
    if (d)
        cuda_product_finish(device, &d->product);
}

// ---- Preparing ----

static struct cuda_product product_of(uint32_t op, const struct dense *d)
{
    const struct cuda_matrix x = {d->k, 1, 0}, w = {d->n, 1, 0}, y = {d->n, 1, 0};
    const struct cuda_matrix turned_x = {1, d->k, 0}, turned_w = {1, d->n, 0};
    switch (op) {
    case LS_OP_DENSE: return (struct cuda_product){d->m, d->n, d->k, .a = x, .b = w, .d = y};
    case LS_OP_DENSE_BACKWARD_DATA:
        return (struct cuda_product){d->m, d->k, d->n, .a = y, .b = turned_w, .d = x};
    default: return (struct cuda_product){d->k, d->n, d->m, .a = turned_x, .b = y, .d = w};
    }
}

// Whether cuBLASLt knows how, with this epilogue.
static bool choose(struct ls_device *device, struct ls_kernel *kernel, uint32_t epilogue)
{
    struct dense *d = kernel->state;
    d->product = product_of(kernel->request.op, d);
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
    if (cuda_has_bias_gradient(kernel) && !cuda_accumulates(kernel, 1))
        return CUBLASLT_EPILOGUE_BGRADA;
    if (kernel->request.op == LS_OP_DENSE && cuda_has_bias(kernel) && !post &&
        !cuda_accumulates(kernel, 0))
        return CUBLASLT_EPILOGUE_BIAS;
    return CUBLASLT_EPILOGUE_DEFAULT;
}

static void name_implementation(const struct dense *d, struct ls_kernel_answer *answer)
{
    cuda_implementation(answer, d->product.epilogue == CUBLASLT_EPILOGUE_BIAS ? "cuBLASLt + bias"
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
    if (cuda_accumulates(kernel, 0))
        d->result = cuda_scratch(answer, cuda_output_desc(kernel, 0)->layout.bytes);
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

static int32_t multiply(struct ls_device *device, const struct ls_kernel *kernel,
                        const struct cuda_call *launch, void *result)
{
    const struct dense *d = kernel->state;
    const struct cuda_factors factors = {
        .a = launch->arguments[0],
        .b = launch->arguments[1],
        .d = result,
        .bias = kernel->request.op == LS_OP_DENSE_BACKWARD_WEIGHTS ? cuda_output(kernel, launch, 1)
                : cuda_has_bias(kernel)                            ? launch->arguments[2]
                                                                   : NULL,
        .workspace = cuda_workspace_at(launch, d->workspace),
    };
    return cuda_product_run(device, &d->product, &factors);
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
