// SPDX-License-Identifier: Apache-2.0
// Attention: products by cuBLASLt, and own kernels between them (attention.cuh). q, k and v are (B, positions, H, elements); the matrices
// of all examples for one head are a batch of cuBLASLt's, or those of all heads for one example, whichever are more. One batch
// after the other goes through all its products, so that its scores (batch, T, S) are the only ones in memory, and stay in the
// cache where they are few. Backward makes the scores anew, so nothing is saved.
#include "plugins/device/cuda/engine/internal.h"

#include <math.h>

enum { SCORES, OUTPUT, FORWARD_PRODUCTS };
enum { P_GRADIENT = 1, V_GRADIENT, Q_GRADIENT, K_GRADIENT, BACKWARD_PRODUCTS }; // after the scores

struct attention {
    int64_t batch, queries, keys, heads, depth, width; // B, T, S, H, and elements of q and k, of v
    bool over_heads; // whether the loop goes over the heads, a batch over the examples
    struct cuda_product products[BACKWARD_PRODUCTS];
    int count;
    uint64_t scores, gradients, workspace; // offsets in the scratch memory
};

static void attention_finish(struct ls_device *device, struct ls_kernel *kernel)
{
    struct attention *a = kernel->state;
    for (int i = 0; a && i < a->count; i++)
        cuda_product_finish(device, &a->products[i]);
}

// ---- How matrices are in memory ----

// How far the next of the loop is in a tensor.
static int64_t loop_step(const struct attention *a, int64_t positions, int64_t elements)
{
    return a->over_heads ? elements : positions * a->heads * elements;
}

// (positions, elements), of the batch.
static struct cuda_matrix tensor(const struct attention *a, int64_t positions, int64_t elements)
{
    const int64_t row = a->heads * elements;
    return (struct cuda_matrix){row, 1, a->over_heads ? positions * row : elements};
}

static struct cuda_matrix turned(struct cuda_matrix matrix)
{
    return (struct cuda_matrix){matrix.column, matrix.row, matrix.next};
}

static uint32_t alignment_of(const struct attention *a)
{
    const int64_t steps = loop_step(a, a->queries, a->depth) | loop_step(a, a->keys, a->depth) |
                          loop_step(a, a->queries, a->width) | loop_step(a, a->keys, a->width);
    uint32_t alignment = LS_ALIGNMENT;
    while (steps * (int64_t)sizeof(float) % alignment)
        alignment /= 2;
    return alignment;
}

// ---- Running ----

static void *at(void *tensor, int64_t elements)
{
    return tensor ? (float *)tensor + elements : NULL;
}

// The tensors of one round of the loop.
struct round {
    float *q, *k, *v, *y; // y: or dy
    float *dq, *dk, *dv;
    float *scores, *gradients;
    void *workspace;
};

static struct round round_of(const struct attention *a, const struct ls_kernel *kernel,
                             const struct cuda_call *launch, int64_t outer)
{
    const bool backward = kernel->request.op == LS_OP_ATTENTION_BACKWARD;
    void *const *inputs = launch->arguments + (backward ? 1 : 0); // dy comes first
    const int64_t q = outer * loop_step(a, a->queries, a->depth);
    const int64_t k = outer * loop_step(a, a->keys, a->depth);
    const int64_t v = outer * loop_step(a, a->keys, a->width);
    char *scratch = launch->scratch;
    return (struct round){
        .q = at(inputs[0], q),
        .k = at(inputs[1], k),
        .v = at(inputs[2], v),
        .y = at(backward ? launch->arguments[0] : cuda_output(kernel, launch, 0),
                outer * loop_step(a, a->queries, a->width)),
        .dq = backward ? at(cuda_output(kernel, launch, 0), q) : NULL,
        .dk = backward ? at(cuda_output(kernel, launch, 1), k) : NULL,
        .dv = backward ? at(cuda_output(kernel, launch, 2), v) : NULL,
        .scores = (float *)(void *)(scratch + a->scores),
        .gradients = backward ? (float *)(void *)(scratch + a->gradients) : NULL,
        .workspace = cuda_workspace_at(launch, a->workspace),
    };
}

static int32_t multiply(struct ls_device *device, const struct ls_kernel *kernel, int product,
                        const struct round *r, const float *left, const float *right, float *out)
{
    const struct attention *a = kernel->state;
    const struct cuda_factors of = {left, right, out, NULL, r->workspace};
    return cuda_product_multiply(device, kernel, &a->products[product], &of);
}

static int32_t run_softmax(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch, const struct round *r, int64_t outer)
{
    const struct attention *a = kernel->state;
    const struct ls_op_attributes *attributes = &kernel->request.attributes;
    const struct cuda_attention arguments = {
        .scores = r->scores,
        .gradients = r->gradients,
        .record = (const struct cuda_record *)launch->record,
        .rows = (a->over_heads ? a->batch : a->heads) * a->queries,
        .queries = a->queries,
        .keys = a->keys,
        .outer = outer,
        .over_heads = a->over_heads,
        .causal = attributes->causal,
        .rate = attributes->rate,
        .key = attributes->key,
    };
    return cuda_check(device, cuda_attention_launch(&arguments, device->stream),
                      "launching a kernel");
}

static int32_t run_forward(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch)
{
    const struct attention *a = kernel->state;
    int32_t status = LS_OK;
    for (int64_t i = 0; !status && i < (a->over_heads ? a->heads : a->batch); i++) {
        const struct round r = round_of(a, kernel, launch, i);
        status = multiply(device, kernel, SCORES, &r, r.q, r.k, r.scores);
        if (!status)
            status = run_softmax(device, kernel, launch, &r, i);
        if (!status)
            status = multiply(device, kernel, OUTPUT, &r, r.scores, r.v, r.y);
    }
    return status;
}

static int32_t run_backward(struct ls_device *device, const struct ls_kernel *kernel,
                            const struct cuda_call *launch)
{
    const struct attention *a = kernel->state;
    int32_t status = LS_OK;
    for (int64_t i = 0; !status && i < (a->over_heads ? a->heads : a->batch); i++) {
        const struct round r = round_of(a, kernel, launch, i);
        status = multiply(device, kernel, SCORES, &r, r.q, r.k, r.scores);
        if (!status)
            status = multiply(device, kernel, P_GRADIENT, &r, r.y, r.v, r.gradients);
        if (!status)
            status = run_softmax(device, kernel, launch, &r, i);
        if (!status)
            status = multiply(device, kernel, V_GRADIENT, &r, r.scores, r.y, r.dv);
        if (!status)
            status = multiply(device, kernel, Q_GRADIENT, &r, r.gradients, r.k, r.dq);
        if (!status)
            status = multiply(device, kernel, K_GRADIENT, &r, r.gradients, r.q, r.dk);
    }
    return status;
}

// ---- Preparing ----

static void add_product(struct attention *a, struct cuda_product product)
{
    product.batch = a->over_heads ? a->batch : a->heads;
    product.dtype = product.result = LS_F32;
    product.alignment = alignment_of(a);
    product.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    a->products[a->count++] = product;
}

static void add_products(struct attention *a, const struct ls_kernel *kernel)
{
    const int64_t t = a->queries, s = a->keys, d = a->depth, e = a->width;
    const struct cuda_matrix q = tensor(a, t, d), k = tensor(a, s, d), v = tensor(a, s, e);
    const struct cuda_matrix y = tensor(a, t, e), scores = {s, 1, t * s};
    const float scale = 1 / sqrtf((float)d);
    float add[3];
    for (uint32_t i = 0; i < 3; i++)
        add[i] = cuda_accumulates(kernel, i) ? 1 : 0;
    add_product(
        a, (struct cuda_product){t, s, d, .a = q, .b = turned(k), .d = scores, .alpha = scale});
    if (kernel->request.op == LS_OP_ATTENTION) {
        add_product(a, (struct cuda_product){t, e, s, .a = scores, .b = v, .d = y, .alpha = 1,
                                             .beta = add[0]});
        return;
    }
    add_product(a, (struct cuda_product){t, s, e, .a = y, .b = turned(v), .d = scores, .alpha = 1});
    add_product(a, (struct cuda_product){s, e, t, .a = turned(scores), .b = y, .d = v, .alpha = 1,
                                         .beta = add[2]});
    add_product(a, (struct cuda_product){t, d, s, .a = scores, .b = k, .d = q, .alpha = scale,
                                         .beta = add[0]});
    add_product(a, (struct cuda_product){s, d, t, .a = turned(scores), .b = q, .d = k,
                                         .alpha = scale, .beta = add[1]});
}

static bool has_dims(const struct ls_tensor_desc *desc, int64_t batch, int64_t positions,
                     int64_t heads, int64_t elements)
{
    return desc->ndims == 4 && desc->dims[0] == batch && desc->dims[1] == positions &&
           desc->dims[2] == heads && desc->dims[3] == elements;
}

static bool find_shape(struct ls_kernel *kernel, struct attention *a)
{
    const bool backward = kernel->request.op == LS_OP_ATTENTION_BACKWARD;
    const struct ls_tensor_desc *q = cuda_input_desc(kernel, backward ? 1 : 0), *k = q + 1,
                                *v = q + 2;
    const struct ls_tensor_desc *out = cuda_output_desc(kernel, 0);
    if (q->ndims != 4 || k->ndims != 4 || v->ndims != 4)
        return false;
    *a = (struct attention){.batch = q->dims[0],
                            .queries = q->dims[1],
                            .keys = k->dims[1],
                            .heads = q->dims[2],
                            .depth = q->dims[3],
                            .width = v->dims[3],
                            .over_heads = q->dims[2] <= q->dims[0]};
    if (!has_dims(k, a->batch, a->keys, a->heads, a->depth) ||
        !has_dims(v, a->batch, a->keys, a->heads, a->width) ||
        !has_dims(backward ? kernel->descs : out, a->batch, a->queries, a->heads, a->width))
        return false;
    return !backward || (has_dims(out, a->batch, a->queries, a->heads, a->depth) &&
                         has_dims(out + 1, a->batch, a->keys, a->heads, a->depth) &&
                         has_dims(out + 2, a->batch, a->keys, a->heads, a->width));
}

static void take_scratch(struct attention *a, struct ls_kernel_answer *answer, bool backward)
{
    const uint64_t scores = (uint64_t)(a->over_heads ? a->batch : a->heads) *
                            (uint64_t)(a->queries * a->keys) * sizeof(float);
    uint64_t workspace = 0;
    for (int i = 0; i < a->count; i++)
        if (a->products[i].choice.workspaceSize > workspace)
            workspace = a->products[i].choice.workspaceSize;
    a->scores = cuda_scratch(answer, scores);
    a->gradients = backward ? cuda_scratch(answer, scores) : 0;
    a->workspace = cuda_workspace(answer, workspace);
}

int32_t cuda_prepare_attention(struct ls_device *device, struct ls_kernel *kernel,
                               struct ls_kernel_answer *answer)
{
    const bool backward = kernel->request.op == LS_OP_ATTENTION_BACKWARD;
    struct attention *a = cuda_state(device, kernel, sizeof(*a));
    if (!a)
        return LS_OUT_OF_MEMORY;
    kernel->finish = attention_finish;
    if (!find_shape(kernel, a))
        return cuda_unsupported(device, kernel, "the shapes do not belong together");
    struct ls_tensor_desc *saved = backward                           ? cuda_input_desc(kernel, 4)
                                   : kernel->request.output_count > 1 ? cuda_output_desc(kernel, 1)
                                                                      : NULL;
    if (saved && !cuda_layout_saved(saved, 0))
        return cuda_unsupported(device, kernel, "`saved` is not what forward leaves");
    add_products(a, kernel);
    for (int i = 0; i < a->count; i++)
        answer->slow |= !cuda_product_choose(device, &a->products[i]);
    take_scratch(a, answer, backward);
    kernel->run = backward ? run_backward : run_forward;
    if (backward)
        answer->used_inputs &= ~(UINT32_C(1) << 4);
    cuda_implementation(answer,
                        answer->slow ? "own (cuBLASLt has none)" : "cuBLASLt + own softmax");
    return LS_OK;
}
