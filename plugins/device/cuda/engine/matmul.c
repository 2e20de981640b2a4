// SPDX-License-Identifier: Apache-2.0
// Products of two activations by cuBLASLt (product.c), one for each index of their leading dimensions: y = a b, da = dy b^T,
// db = a^T dy. What is added to is cuBLASLt's D, so nothing is left behind the product.
#include "plugins/device/cuda/engine/internal.h"

#define MOST_MATRICES 32768 // of a batch

enum { ROUND, REST, PRODUCTS };

struct matmul {
    int64_t matrices;
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
            .a = matrix_at(launch->arguments[0], p->dtype, i * p->a.next),
            .b = matrix_at(launch->arguments[1], p->dtype, i * p->b.next),
            .d = (void *)(uintptr_t)matrix_at(launch->arguments[2], p->dtype, i * p->d.next),
            .workspace = cuda_workspace_at(launch, m->workspace),
        };
        status = cuda_product_multiply(device, kernel, p, &of);
    }
    return status;
}

// ---- Preparing ----

static int64_t rows_of(const struct ls_tensor_desc *desc)
{
    return desc->dims[desc->ndims - 2];
}

static int64_t columns_of(const struct ls_tensor_desc *desc)
{
    return desc->dims[desc->ndims - 1];
}

static struct cuda_matrix plain(const struct ls_tensor_desc *desc)
{
    return (struct cuda_matrix){columns_of(desc), 1, rows_of(desc) * columns_of(desc)};
}

static struct cuda_matrix turned(const struct ls_tensor_desc *desc)
{
    return (struct cuda_matrix){1, columns_of(desc), rows_of(desc) * columns_of(desc)};
}

static struct cuda_product product_of(struct ls_kernel *kernel)
{
    const struct ls_tensor_desc *a = &kernel->descs[0], *b = &kernel->descs[1];
    const struct ls_tensor_desc *d = &kernel->descs[2];
    const bool turn_a = kernel->request.op == LS_OP_MATMUL_BACKWARD_RIGHT;
    const bool turn_b = kernel->request.op == LS_OP_MATMUL_BACKWARD_LEFT;
    return (struct cuda_product){
        .m = turn_a ? columns_of(a) : rows_of(a),
        .n = turn_b ? rows_of(b) : columns_of(b),
        .k = turn_a ? rows_of(a) : columns_of(a),
        .a = turn_a ? turned(a) : plain(a),
        .b = turn_b ? turned(b) : plain(b),
        .d = plain(d),
        .alpha = 1,
        .beta = cuda_accumulates(kernel, 0) ? 1 : 0,
        .dtype = a->dtype,
        .result = d->dtype,
        .alignment = LS_ALIGNMENT, // a round's matrices have a multiple of it
        .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
    };
}

int32_t cuda_prepare_matmul(struct ls_device *device, struct ls_kernel *kernel,
                            struct ls_kernel_answer *answer)
{
    const struct cuda_product product = product_of(kernel);
    struct matmul *m = cuda_state(device, kernel, sizeof(*m));
    if (!m)
        return LS_OUT_OF_MEMORY;
    kernel->finish = matmul_finish;
    m->matrices = cuda_elements(cuda_output_desc(kernel, 0)) / (product.m * product.n);
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
