// SPDX-License-Identifier: Apache-2.0
// Products by cuBLASLt (product.c). Of two activations, one for each index of their leading
// dimensions: y = a b, da = dy b^T, db = a^T dy. Of an activation, whose rows are those of all
// leading dimensions, and a transposed parameter: y = x w^T, dx = dy w, dw = dy^T x. What is added
// to is cuBLASLt's D, so nothing is left behind the product.
#include "plugins/device/cuda/engine/internal.h"

#define MOST_MATRICES 32768 // of a batch

enum { ROUND, REST, PRODUCTS };

struct matmul {
    int64_t matrices;
    uint32_t left; // which input is the left factor
    struct cuda_product products[PRODUCTS]; // of MOST_MATRICES, and of those that are left
    uint64_t workspace; // offset in the scratch memory
};

static void matmul_finish(struct ls_device *device, struct ls_kernel *kernel)
{
    struct matmul *m = kernel->state;
    for (int i = 0; m && i < PRODUCTS; i++)
        cuda_product_finish(device, &m->products[i]);
}

// ---- Running ----

static const char *matrix_at(const void *values, uint32_t dtype, int64_t element)
{
    return (const char *)values + element * (int64_t)ls_dtype_bytes(dtype);
}

static int32_t run_matmul(struct ls_device *device, const struct ls_kernel *kernel,
                          const struct cuda_call *launch)
{
    const struct matmul *m = kernel->state;
    int32_t status = LS_OK;
    for (int64_t i = 0; !status && i < m->matrices; i += MOST_MATRICES) {
        const struct cuda_product *p = &m->products[m->matrices - i < MOST_MATRICES ? REST : ROUND];
        const struct cuda_factors of = {
            .a = matrix_at(launch->arguments[m->left], p->dtype, i * p->a.next),
            .b = matrix_at(launch->arguments[1 - m->left], p->dtype, i * p->b.next),
            .d = (void *)(uintptr_t)matrix_at(launch->arguments[2], p->dtype, i * p->d.next),
            .workspace = cuda_workspace_at(launch, m->workspace),
        };
        status = cuda_product_multiply(device, kernel, p, &of);
    }
    return status;
}

// ---- Preparing ----

static bool is_left_turned(uint32_t op)
{
    return op == LS_OP_MATMUL_BACKWARD_RIGHT || op == LS_OP_DENSE_TRANSPOSED_BACKWARD_WEIGHTS;
}

static bool is_right_turned(uint32_t op)
{
    return op == LS_OP_MATMUL_BACKWARD_LEFT || op == LS_OP_DENSE_TRANSPOSED;
}

// How many lie one after the other in each tensor.
static int64_t matrices_of(const struct ls_kernel *kernel)
{
    const struct ls_tensor_desc *a = &kernel->descs[0];
    if (kernel->request.op >= LS_OP_DENSE_TRANSPOSED)
        return 1;
    return cuda_elements(a) / (a->dims[a->ndims - 2] * a->dims[a->ndims - 1]);
}

static struct cuda_matrix matrix_of(const struct ls_tensor_desc *desc, int64_t matrices,
                                    bool turned)
{
    const int64_t columns = desc->dims[desc->ndims - 1], next = cuda_elements(desc) / matrices;
    return turned ? (struct cuda_matrix){1, columns, next} : (struct cuda_matrix){columns, 1, next};
}

static struct cuda_product product_of(struct ls_kernel *kernel, const struct matmul *m)
{
    const uint32_t op = kernel->request.op;
    const struct ls_tensor_desc *left = &kernel->descs[m->left], *out = &kernel->descs[2];
    const struct ls_tensor_desc *right = &kernel->descs[1 - m->left];
    const int64_t columns = out->dims[out->ndims - 1];
    const int64_t rows = cuda_elements(out) / (m->matrices * columns);
    return (struct cuda_product){
        .m = rows,
        .n = columns,
        .k = cuda_elements(left) / (m->matrices * rows),
        .a = matrix_of(left, m->matrices, is_left_turned(op)),
        .b = matrix_of(right, m->matrices, is_right_turned(op)),
        .d = matrix_of(out, m->matrices, false),
        .alpha = 1,
        .beta = cuda_accumulates(kernel, 0) ? 1 : 0,
        .dtype = left->dtype,
        .result = out->dtype,
        .alignment = LS_ALIGNMENT, // a round's matrices have a multiple of it
        .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
    };
}

int32_t cuda_prepare_matmul(struct ls_device *device, struct ls_kernel *kernel,
                            struct ls_kernel_answer *answer)
{
    struct matmul *m = cuda_state(device, kernel, sizeof(*m));
    if (!m)
        return LS_OUT_OF_MEMORY;
    kernel->finish = matmul_finish;
    m->matrices = matrices_of(kernel);
    m->left = kernel->request.op == LS_OP_DENSE_TRANSPOSED_BACKWARD_WEIGHTS; // dy^T x
    const struct cuda_product product = product_of(kernel, m);
    const int64_t batches[PRODUCTS] = {m->matrices < MOST_MATRICES ? 0 : MOST_MATRICES,
                                       m->matrices % MOST_MATRICES};
    uint64_t workspace = 0;
    for (int i = 0; i < PRODUCTS; i++) {
        m->products[i] = product;
        m->products[i].batch = batches[i];
        if (!batches[i])
            continue;
        answer->slow |= !cuda_product_choose(device, &m->products[i]);
        if (m->products[i].choice.workspaceSize > workspace)
            workspace = m->products[i].choice.workspaceSize;
    }
    m->workspace = cuda_workspace(answer, workspace);
    kernel->run = run_matmul;
    cuda_implementation(answer, answer->slow ? "own, without cuBLASLt" : "cuBLASLt");
    return LS_OK;
}
