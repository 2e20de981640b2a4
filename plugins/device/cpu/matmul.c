// SPDX-License-Identifier: Apache-2.0
// Products of two activations, one for each index of their leading dimensions, or of an activation
// and a transposed parameter, in blocks of rows of fixed size: the bits do not depend on the number
// of threads.
#include "plugins/device/cpu/cpu.h"
#include "plugins/device/cpu/layout.h"

#include <omp.h>

enum { BLOCK = 64 }; // rows of a result

// Each result is (rows,columns), a sum over `depth`.
struct running {
    int64_t products, rows, columns, depth, blocks;
    char left_order, right_order; // 'T': transposed
    int64_t left_stride, right_stride; // of a row in memory
    const float *left, *right;
    float *result;
};

static void part(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    omp_set_num_threads(1); // the library may not divide a block
    for (int64_t i = begin; i < end; i++) {
        const int64_t product = i / r->blocks, first = i % r->blocks * BLOCK;
        const int64_t rows = r->rows - first < BLOCK ? r->rows - first : BLOCK;
        const float *left = r->left + product * r->rows * r->depth;
        dnnl_sgemm(r->left_order, r->right_order, rows, r->columns, r->depth, 1.0f,
                   r->left_order == 'T' ? left + first : left + first * r->depth, r->left_stride,
                   r->right + product * r->depth * r->columns, r->right_stride, 0.0f,
                   r->result + (product * r->rows + first) * r->columns, r->columns);
    }
}

static void run_all(const struct ls_device *device, struct running *r)
{
    const double work = (double)r->products * (double)r->rows * (double)r->columns;
    r->blocks = (r->rows + BLOCK - 1) / BLOCK;
    cpu_parallel(device, r->products * r->blocks, 1, work * (double)r->depth / 60.0, part, r);
}

// x (M,K), w (N,K) -> y (M,N); dy, w -> dx; x, dy -> dw
static int32_t run_transposed(struct ls_device *device, struct ls_kernel *kernel,
                              const struct cpu_call *launch)
{
    const struct ls_tensor_desc *result = cpu_output_desc(kernel, 0);
    const bool weights = kernel->op == LS_OP_DENSE_TRANSPOSED_BACKWARD_WEIGHTS;
    const uint32_t left = weights ? 1 : 0;
    const struct ls_tensor_desc *first = &kernel->arguments[left];
    struct running r = {
        .products = 1,
        .columns = result->dims[result->ndims - 1],
        .left_order = weights ? 'T' : 'N',
        .right_order = kernel->op == LS_OP_DENSE_TRANSPOSED ? 'T' : 'N',
        .left_stride = first->dims[first->ndims - 1],
        .left = launch->arguments[left],
        .right = launch->arguments[1 - left],
        .result = cpu_output(kernel, launch, 0),
    };
    r.rows = (int64_t)ls_tensor_elements(result) / r.columns;
    r.depth = weights ? (int64_t)ls_tensor_elements(first) / r.left_stride : r.left_stride;
    r.right_stride = r.right_order == 'T' ? r.depth : r.columns;
    run_all(device, &r);
    return LS_OK;
}

int32_t cpu_dense_transposed(struct ls_device *device, const struct ls_kernel_request *request,
                             struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_transposed;
    snprintf(answer->implementation, sizeof(answer->implementation), "oneDNN sgemm");
    return cpu_all_plain(device, request, kernel);
}

static int32_t run(struct ls_device *device, struct ls_kernel *kernel,
                   const struct cpu_call *launch)
{
    const struct ls_tensor_desc *y = cpu_output_desc(kernel, 0), *left = &kernel->arguments[0];
    const bool transposed = kernel->op == LS_OP_MATMUL_BACKWARD_RIGHT;
    struct running r = {
        .rows = y->dims[y->ndims - 2],
        .columns = y->dims[y->ndims - 1],
        .depth = left->dims[left->ndims - (transposed ? 2 : 1)],
        .left_order = transposed ? 'T' : 'N',
        .right_order = kernel->op == LS_OP_MATMUL_BACKWARD_LEFT ? 'T' : 'N',
        .left_stride = left->dims[left->ndims - 1],
        .right_stride = kernel->arguments[1].dims[left->ndims - 1],
        .left = launch->arguments[0],
        .right = launch->arguments[1],
        .result = cpu_output(kernel, launch, 0),
    };
    r.products = (int64_t)ls_tensor_elements(y) / (r.rows * r.columns);
    run_all(device, &r);
    return LS_OK;
}

int32_t cpu_matmul(struct ls_device *device, const struct ls_kernel_request *request,
                   struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run;
    snprintf(answer->implementation, sizeof(answer->implementation), "oneDNN sgemm");
    return cpu_all_plain(device, request, kernel);
}
