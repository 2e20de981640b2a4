// SPDX-License-Identifier: Apache-2.0
// Attention. Where the dropout rate is 0, in halves, by a plan of cuDNN (plan.c), which reads q, k
// and v as they lie; forward leaves y and a statistic of each row for its plan of the gradients,
// which stores gradients of scores on its way instead of adding to dq in any order. It rounds
// probabilities and gradients of scores to the type of the tensors.
// Else composed: products by cuBLASLt, and own kernels around them (attention.cuh). q, k and v are
// (B, positions, H, elements); first the elements of each head are brought together, so that the
// matrices of all examples and heads, which are many and small, are one batch of cuBLASLt's, and at
// last the results go back. Halves are float32 meanwhile, and multiplied on tensor cores: TF32
// holds them exactly, and rounds probabilities and gradients of scores to 11 bits. Where the scores
// of all are more than the cache holds, several rounds go through all products, so that the scores
// of one round are the only ones in memory. Backward makes the scores anew, so nothing is saved.
#include "plugins/device/cuda/engine/internal.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

// Of scores, at most where one matrix has not more: with as many gradients they stay in the cache.
#define ROUND_BYTES (UINT64_C(16) << 20)
#define MOST_MATRICES 32768 // of a batch
// Of cuDNN, that was asked for plans; up to 9.15 some lengths want a mask for padding.
#define LEAST_VERSION 91900

enum { SCORES, OUTPUT, FORWARD_PRODUCTS };
enum { P_GRADIENT = 1, V_GRADIENT, Q_GRADIENT, K_GRADIENT, BACKWARD_PRODUCTS }; // after the scores

enum { Q, K, V, Y, DQ, DK, DV, TENSORS }; // Y: y or dy

struct attention {
    int64_t batch, queries, keys, heads, depth, width; // B, T, S, H, and elements of q and k, of v
    const struct cuda_plan *plan; // NULL: composed, for which what follows the next two is
    uint64_t saved_bytes; // for the plan of the gradients; 0: there is none
    // Of a plan, offset in the scratch memory: of forward where nothing is saved, else of sums.
    uint64_t statistics;
    int64_t matrices; // of a round; all of them are B H
    struct cuda_product products[BACKWARD_PRODUCTS];
    int count;
    uint64_t tensors[TENSORS], scores, gradients, workspace; // offsets in the scratch memory
};

static void attention_finish(struct ls_device *device, struct ls_kernel *kernel)
{
    struct attention *a = kernel->state;
    for (int i = 0; a && i < a->count; i++)
        cuda_product_finish(device, &a->products[i]);
}

static bool is_backward(const struct ls_kernel *kernel)
{
    return kernel->request.op == LS_OP_ATTENTION_BACKWARD;
}

// ---- Tensors whose heads are together ----

static int64_t positions_of(const struct attention *a, int tensor)
{
    return tensor == Q || tensor == Y || tensor == DQ ? a->queries : a->keys;
}

static int64_t elements_of(const struct attention *a, int tensor)
{
    return tensor == V || tensor == Y || tensor == DV ? a->width : a->depth;
}

static float *together(const struct attention *a, const struct cuda_call *launch, int tensor)
{
    return (float *)(void *)((char *)launch->scratch + a->tensors[tensor]);
}

// Brings the heads of `count` tensors together, or back to where they are in the arguments.
static int32_t move_heads(struct ls_device *device, const struct ls_kernel *kernel,
                          const struct cuda_call *launch, const int *tensors, int count, bool back)
{
    const struct attention *a = kernel->state;
    const uint32_t apart = cuda_type_of(&kernel->descs[0]);
    struct cuda_heads h = {
        .heads = a->heads,
        .from_type = back ? CUDA_FLOAT : apart,
        .to_type = back ? apart : CUDA_FLOAT,
        .together = !back,
        .pack = a->depth % CUDA_PACK || a->width % CUDA_PACK ? 1 : CUDA_PACK,
    };
    for (int i = 0; i < count; i++) {
        const int tensor = tensors[i];
        const uint32_t output = tensor >= DQ ? (uint32_t)(tensor - DQ) : 0;
        const int input = !is_backward(kernel) ? tensor : tensor == Y ? 0 : tensor + 1;
        const int64_t packs = elements_of(a, tensor) / h.pack;
        void *mine = together(a, launch, tensor);
        h.tensors[i] = (struct cuda_head_tensor){
            .from = back ? mine : launch->arguments[input],
            .to = back ? cuda_output(kernel, launch, output) : mine,
            .positions = positions_of(a, tensor),
            .packs = packs,
            .items = a->batch * a->heads * positions_of(a, tensor) * packs,
            .add = back && cuda_accumulates(kernel, output),
        };
    }
    return cuda_start_heads(device, &h);
}

// ---- Rounds ----

static float *in_round(const struct attention *a, const struct cuda_call *launch, int tensor,
                       int64_t first)
{
    return together(a, launch, tensor) + first * positions_of(a, tensor) * elements_of(a, tensor);
}

static int32_t multiply(struct ls_device *device, const struct ls_kernel *kernel,
                        const struct cuda_call *launch, int product, const float *left,
                        const float *right, float *out)
{
    const struct attention *a = kernel->state;
    const struct cuda_factors of = {left, right, out, NULL,
                                    cuda_workspace_at(launch, a->workspace)};
    return cuda_product_multiply(device, kernel, &a->products[product], &of);
}

// gradients: NULL forward
static int32_t run_softmax(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch, int64_t first, float *scores,
                           float *gradients)
{
    const struct attention *a = kernel->state;
    const struct ls_op_attributes *attributes = &kernel->request.attributes;
    const struct cuda_attention arguments = {
        .scores = scores,
        .gradients = gradients,
        .record = launch->record,
        .rows = a->matrices * a->queries,
        .queries = a->queries,
        .keys = a->keys,
        .heads = a->heads,
        .first = first,
        .causal = attributes->causal,
        .rate = attributes->rate,
        .key = attributes->key,
    };
    return cuda_start_attention(device, &arguments);
}

static int32_t forward_round(struct ls_device *device, const struct ls_kernel *kernel,
                             const struct cuda_call *launch, int64_t first)
{
    const struct attention *a = kernel->state;
    const float *q = in_round(a, launch, Q, first), *k = in_round(a, launch, K, first);
    float *scores = (float *)(void *)((char *)launch->scratch + a->scores);
    int32_t status = multiply(device, kernel, launch, SCORES, q, k, scores);
    if (!status)
        status = run_softmax(device, kernel, launch, first, scores, NULL);
    return status ? status
                  : multiply(device, kernel, launch, OUTPUT, scores, in_round(a, launch, V, first),
                             in_round(a, launch, Y, first));
}

static int32_t backward_round(struct ls_device *device, const struct ls_kernel *kernel,
                              const struct cuda_call *launch, int64_t first)
{
    const struct attention *a = kernel->state;
    const float *q = in_round(a, launch, Q, first), *k = in_round(a, launch, K, first);
    const float *v = in_round(a, launch, V, first), *dy = in_round(a, launch, Y, first);
    float *scores = (float *)(void *)((char *)launch->scratch + a->scores);
    float *gradients = (float *)(void *)((char *)launch->scratch + a->gradients);
    int32_t status = multiply(device, kernel, launch, SCORES, q, k, scores);
    if (!status)
        status = multiply(device, kernel, launch, P_GRADIENT, dy, v, gradients);
    if (!status)
        status = run_softmax(device, kernel, launch, first, scores, gradients);
    if (!status)
        status = multiply(device, kernel, launch, V_GRADIENT, scores, dy,
                          in_round(a, launch, DV, first));
    if (!status)
        status = multiply(device, kernel, launch, Q_GRADIENT, gradients, k,
                          in_round(a, launch, DQ, first));
    return status ? status
                  : multiply(device, kernel, launch, K_GRADIENT, gradients, q,
                             in_round(a, launch, DK, first));
}

static int32_t run_attention(struct ls_device *device, const struct ls_kernel *kernel,
                             const struct cuda_call *launch)
{
    static const int inputs[] = {Q, K, V, Y}, outputs[] = {DQ, DK, DV}, output[] = {Y};
    const struct attention *a = kernel->state;
    const bool backward = is_backward(kernel);
    int32_t status = move_heads(device, kernel, launch, inputs, backward ? 4 : 3, false);
    for (int64_t first = 0; !status && first < a->batch * a->heads; first += a->matrices)
        status = (backward ? backward_round : forward_round)(device, kernel, launch, first);
    if (status)
        return status;
    return backward ? move_heads(device, kernel, launch, outputs, 3, true)
                    : move_heads(device, kernel, launch, output, 1, true);
}

// ---- A plan of cuDNN ----

// `saved` has the statistics and then y.
static uint64_t statistics_bytes(const struct attention *a)
{
    const uint64_t bytes = (uint64_t)(a->batch * a->heads * a->queries) * sizeof(float);
    return (bytes + LS_ALIGNMENT - 1) / LS_ALIGNMENT * LS_ALIGNMENT;
}

static uint64_t y_bytes(const struct attention *a, const struct ls_kernel *kernel)
{
    const uint64_t element = kernel->descs[0].dtype == LS_F32 ? sizeof(float) : sizeof(uint16_t);
    return (uint64_t)(a->batch * a->queries * a->heads * a->width) * element;
}

static int32_t run_plan(struct ls_device *device, const struct ls_kernel *kernel,
                        const struct cuda_call *launch)
{
    const struct attention *a = kernel->state;
    const bool backward = is_backward(kernel);
    void *const *in = launch->arguments + (backward ? 1 : 0);
    void *scratch = (char *)launch->scratch + a->statistics, *y = cuda_output(kernel, launch, 0);
    char *saved = backward ? in[3] : a->saved_bytes ? cuda_output(kernel, launch, 1) : NULL;
    struct cuda_plan_memory memory = {
        .tensors = {[CUDA_PLAN_Q] = in[0],
                    [CUDA_PLAN_K] = in[1],
                    [CUDA_PLAN_V] = in[2],
                    [CUDA_PLAN_ATTENDED] = backward ? saved + statistics_bytes(a) : y,
                    [CUDA_PLAN_STATISTICS] = saved ? saved : scratch},
        .workspace = cuda_workspace_at(launch, a->workspace),
    };
    if (backward) {
        memory.tensors[CUDA_PLAN_DY] = launch->arguments[0];
        for (uint32_t i = 0; i < 3; i++)
            memory.tensors[CUDA_PLAN_DQ + i] = cuda_output(kernel, launch, i);
        memory.tensors[CUDA_PLAN_SUMS] = scratch;
    }
    const int32_t status = cuda_plan_run(device, a->plan, &memory, kernel->operation->name);
    if (status || backward || !saved)
        return status;
    return cuda_check(device,
                      device->calls->cudaMemcpyAsync(saved + statistics_bytes(a), y,
                                                     y_bytes(a, kernel), cudaMemcpyDeviceToDevice,
                                                     device->stream),
                      "keeping the result of attention");
}

// cuDNN's plan for the operation, or for the gradients of what it computes.
static int32_t find_plan(struct ls_device *device, const struct ls_kernel *kernel, uint32_t op,
                         const struct cuda_plan **out)
{
    const struct ls_op_attributes *attributes = &kernel->request.attributes;
    const struct attention *a = kernel->state;
    const int64_t sizes[] = {a->batch, a->queries, a->keys, a->heads, a->depth, a->width};
    const bool float32 = kernel->descs[0].dtype == LS_F32;
    struct cuda_plan_question q;
    int64_t largest = 0; // cuDNN counts in int
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        largest = sizes[i] > largest ? sizes[i] : largest;
    if (!device->fused_attention || device->calls->cudnnGetVersion() < LEAST_VERSION ||
        attributes->rate > 0 || kernel->request.accumulate || largest > INT_MAX)
        return LS_OK;
    memset(&q, 0, sizeof(q));
    q.op = op;
    q.type = cuda_dnn_type(kernel->descs[0].dtype);
    q.tensor_cores = !float32 || device->tf32;
    q.causal = attributes->causal;
    q.scale = 1 / sqrtf((float)a->depth);
    memcpy(q.x, (int64_t[]){a->batch, a->heads, a->queries, a->depth}, sizeof(q.x));
    memcpy(q.w, (int64_t[]){a->batch, a->heads, a->keys, a->depth}, sizeof(q.w));
    memcpy(q.y, (int64_t[]){a->batch, a->heads, a->keys, a->width}, sizeof(q.y));
    return cuda_plan_get(device, &q, out);
}

// Forward saves only what there is a plan for that reads it.
static int32_t choose_plan(struct ls_device *device, struct ls_kernel *kernel)
{
    struct attention *a = kernel->state;
    const struct cuda_plan *gradients = NULL;
    int32_t status = LS_OK;
    if (!is_backward(kernel))
        status = find_plan(device, kernel, LS_OP_ATTENTION, &a->plan);
    if (!status && (is_backward(kernel) || (a->plan && kernel->request.output_count > 1)))
        status = find_plan(device, kernel, LS_OP_ATTENTION_BACKWARD, &gradients);
    if (gradients)
        a->saved_bytes = statistics_bytes(a) + y_bytes(a, kernel);
    if (is_backward(kernel))
        a->plan = gradients;
    return status;
}

static void use_plan(struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    struct attention *a = kernel->state;
    a->statistics = cuda_scratch(answer, statistics_bytes(a));
    a->workspace = cuda_workspace(answer, a->plan->workspace_bytes);
    kernel->run = run_plan;
    snprintf(answer->implementation, sizeof(answer->implementation), "cuDNN engine %lld",
             (long long)a->plan->engine);
}

// ---- Preparing ----

static void add_product(struct attention *a, bool halves, struct cuda_product product)
{
    const int64_t sizes = a->queries * a->depth | a->keys * a->depth | a->queries * a->width |
                          a->keys * a->width | a->queries * a->keys;
    product.batch = a->matrices;
    product.dtype = product.result = LS_F32;
    product.alignment = LS_ALIGNMENT; // of a round, which begins where so many matrices end
    while (a->matrices * sizes * (int64_t)sizeof(float) % product.alignment)
        product.alignment /= 2;
    product.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    product.tf32 = halves;
    a->products[a->count++] = product;
}

// (positions, elements), one after the other.
static struct cuda_matrix plain(int64_t rows, int64_t columns)
{
    return (struct cuda_matrix){columns, 1, rows * columns};
}

static struct cuda_matrix turned(struct cuda_matrix matrix)
{
    return (struct cuda_matrix){matrix.column, matrix.row, matrix.next};
}

static void add_products(struct attention *a, bool backward, bool halves)
{
    const int64_t t = a->queries, s = a->keys, d = a->depth, e = a->width;
    const struct cuda_matrix q = plain(t, d), k = plain(s, d), v = plain(s, e), y = plain(t, e);
    const struct cuda_matrix p = plain(t, s); // and scores, and gradients of both
    const float scale = 1 / sqrtf((float)d);
    add_product(a, halves,
                (struct cuda_product){t, s, d, .a = q, .b = turned(k), .d = p, .alpha = scale});
    if (!backward) {
        add_product(a, halves, (struct cuda_product){t, e, s, .a = p, .b = v, .d = y, .alpha = 1});
        return;
    }
    add_product(a, halves,
                (struct cuda_product){t, s, e, .a = y, .b = turned(v), .d = p, .alpha = 1});
    add_product(a, halves,
                (struct cuda_product){s, e, t, .a = turned(p), .b = y, .d = v, .alpha = 1});
    add_product(a, halves, (struct cuda_product){t, d, s, .a = p, .b = k, .d = q, .alpha = scale});
    add_product(a, halves,
                (struct cuda_product){s, d, t, .a = turned(p), .b = q, .d = k, .alpha = scale});
}

static bool has_dims(const struct ls_tensor_desc *desc, int64_t batch, int64_t positions,
                     int64_t heads, int64_t elements)
{
    return desc->ndims == 4 && desc->dims[0] == batch && desc->dims[1] == positions &&
           desc->dims[2] == heads && desc->dims[3] == elements;
}

static bool find_shape(struct ls_kernel *kernel, struct attention *a)
{
    const bool backward = is_backward(kernel);
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
                            .width = v->dims[3]};
    if (!has_dims(k, a->batch, a->keys, a->heads, a->depth) ||
        !has_dims(v, a->batch, a->keys, a->heads, a->width) ||
        !has_dims(backward ? kernel->descs : out, a->batch, a->queries, a->heads, a->width))
        return false;
    return !backward || (has_dims(out, a->batch, a->queries, a->heads, a->depth) &&
                         has_dims(out + 1, a->batch, a->keys, a->heads, a->depth) &&
                         has_dims(out + 2, a->batch, a->keys, a->heads, a->width));
}

// All matrices are a multiple of a round's, which has the same products each time.
static int64_t matrices_of_round(const struct attention *a)
{
    const int64_t all = a->batch * a->heads;
    const uint64_t bytes = (uint64_t)(a->queries * a->keys) * sizeof(float);
    int64_t matrices = all < MOST_MATRICES ? all : MOST_MATRICES;
    while (matrices > 1 && (all % matrices || (uint64_t)matrices * bytes > ROUND_BYTES))
        matrices--;
    return matrices;
}

static void take_scratch(struct attention *a, struct ls_kernel_answer *answer, bool backward)
{
    const uint64_t scores = (uint64_t)(a->matrices * a->queries * a->keys) * sizeof(float);
    uint64_t workspace = 0;
    for (int i = 0; i < (backward ? TENSORS : DQ); i++)
        a->tensors[i] = cuda_scratch(
            answer, (uint64_t)(a->batch * a->heads * positions_of(a, i) * elements_of(a, i)) *
                        sizeof(float));
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
    const bool backward = is_backward(kernel);
    struct attention *a = cuda_state(device, kernel, sizeof(*a));
    if (!a)
        return LS_OUT_OF_MEMORY;
    kernel->finish = attention_finish;
    if (!find_shape(kernel, a))
        return cuda_unsupported(device, kernel, "the shapes do not belong together");
    const int32_t status = choose_plan(device, kernel);
    if (status)
        return status;
    struct ls_tensor_desc *saved = backward                           ? cuda_input_desc(kernel, 4)
                                   : kernel->request.output_count > 1 ? cuda_output_desc(kernel, 1)
                                                                      : NULL;
    if (saved && !cuda_layout_saved(saved, a->saved_bytes)) {
        // Forward was composed, or has left what is read only where nothing is added to the
        // gradients.
        a->plan = NULL;
        if (!backward)
            return cuda_unsupported(device, kernel, "`saved` is not what forward leaves");
    }
    answer->saved_bytes = backward ? 0 : a->saved_bytes;
    if (a->plan) {
        use_plan(kernel, answer);
        return LS_OK;
    }
    a->matrices = matrices_of_round(a);
    add_products(a, backward, cuda_input_desc(kernel, 0)->dtype != LS_F32);
    for (int i = 0; i < a->count; i++)
        answer->slow |= !cuda_product_choose(device, &a->products[i]);
    take_scratch(a, answer, backward);
    kernel->run = run_attention;
    if (backward)
        answer->used_inputs &= ~(UINT32_C(1) << 4);
    cuda_implementation(answer, answer->slow ? "own (cuBLASLt has none)" : "cuBLASLt, own softmax");
    return LS_OK;
}
