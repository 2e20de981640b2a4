// SPDX-License-Identifier: Apache-2.0
// What cuDNN's graph API is asked: its descriptors, and the graph of a question (struct cuda_plan_question). A convolution is one
// operation, or three with bias and ReLU. Attention is its formula: cuDNN knows it by its operations, their order and the types
// between them (NVIDIA's cudnn-frontend shows which).
#include "plugins/device/cuda/engine/internal.h"

#define ALIGNMENT 16 // of tensors: vectors of a kernel's loads
#define MOST_OPERATIONS 24

// ---- Descriptors ----

bool cuda_set_attribute(const struct ls_device *device, void *descriptor, unsigned name,
                        unsigned type, int64_t count, const void *values)
{
    return descriptor &&
           !device->calls->cudnnBackendSetAttribute(descriptor, name, type, count, values);
}

bool cuda_set_descriptor(const struct ls_device *device, void *descriptor, unsigned name,
                         void *value)
{
    return value &&
           cuda_set_attribute(device, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

// The descriptor, when all was set and cuDNN takes it; else NULL.
void *cuda_finalize(const struct ls_device *device, void *descriptor, bool is_set)
{
    return is_set && !device->calls->cudnnBackendFinalize(descriptor) ? descriptor : NULL;
}

void cuda_destroy(const struct ls_device *device, void *descriptor)
{
    if (descriptor)
        device->calls->cudnnBackendDestroyDescriptor(descriptor);
}

// ---- Tensors and operations ----

struct graph {
    const struct ls_device *device;
    struct cuda_plan *plan; // keeps what was made
    const struct cuda_plan_question *question;
    void *operations[MOST_OPERATIONS];
    int64_t count;
    int64_t next_id; // of tensors that are not in memory
};

static void *make(struct graph *g, unsigned type)
{
    struct cuda_plan *plan = g->plan;
    void *made = NULL;
    const int most = (int)(sizeof(plan->made) / sizeof(plan->made[0]));
    if (plan->made_count == most || g->device->calls->cudnnBackendCreateDescriptor(type, &made))
        return NULL;
    plan->made[plan->made_count++] = made;
    return made;
}

static bool set_integers(struct graph *g, void *descriptor, unsigned name, int64_t count,
                         const int64_t *values)
{
    return cuda_set_attribute(g->device, descriptor, name, CUDNN_TYPE_INT64, count, values);
}

// One of cuDNN's enumerations, of a type with that name.
static bool set_word(struct graph *g, void *descriptor, unsigned name, unsigned type,
                     unsigned value)
{
    return cuda_set_attribute(g->device, descriptor, name, type, 1, &value);
}

struct tensor {
    int64_t id; // 0: it is between two operations, and not in memory
    unsigned type;
    bool by_value; // a number that is in the host's memory
    int64_t dims[4], strides[4];
};

static void *make_tensor(struct graph *g, const struct tensor *t)
{
    const int64_t alignment = ALIGNMENT, id = t->id ? t->id : g->next_id++;
    const bool between = !t->id;
    void *d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    return cuda_finalize(
        g->device, d,
        set_word(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, t->type) &&
            set_integers(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, t->dims) &&
            set_integers(g, d, CUDNN_ATTR_TENSOR_STRIDES, 4, t->strides) &&
            set_integers(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id) &&
            set_integers(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment) &&
            cuda_set_attribute(g->device, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1,
                               &between) &&
            (!t->by_value || cuda_set_attribute(g->device, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE,
                                                CUDNN_TYPE_BOOLEAN, 1, &t->by_value)));
}

// Finalizes the operation and adds it.
static void add(struct graph *g, void *operation, bool is_set)
{
    if (g->count < MOST_OPERATIONS)
        g->operations[g->count++] = cuda_finalize(g->device, operation, is_set);
}

struct pointwise {
    unsigned mode, precision; // the latter: cudnnDataType_t of the arithmetic
    int64_t axis; // along which indices are counted
    void *x, *b, *mask, *y; // NULL: without; y = x or b by the mask
};

static void add_pointwise(struct graph *g, const struct pointwise *p)
{
    void *how = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    void *d = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    how = cuda_finalize(
        g->device, how,
        set_word(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, p->mode) &&
            set_word(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, p->precision) &&
            (p->mode != CUDNN_POINTWISE_RELU_FWD ||
             set_word(g, how, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION,
                      CUDNN_PROPAGATE_NAN)) &&
            (p->mode != CUDNN_POINTWISE_GEN_INDEX ||
             set_integers(g, how, CUDNN_ATTR_POINTWISE_AXIS, 1, &p->axis)));
    add(g, d,
        cuda_set_descriptor(g->device, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how) &&
            cuda_set_descriptor(g->device, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p->x) &&
            (!p->b ||
             cuda_set_descriptor(g->device, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p->b)) &&
            (!p->mask ||
             cuda_set_descriptor(g->device, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p->mask)) &&
            cuda_set_descriptor(g->device, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, p->y));
}

// y = mode(x), or mode(x, b) where there is a b.
static void apply(struct graph *g, unsigned mode, void *x, void *b, void *y)
{
    add_pointwise(g, &(struct pointwise){mode, CUDNN_DATA_FLOAT, .x = x, .b = b, .y = y});
}

// ---- Convolutions ----

// dims: (B, C, H, W); it is NHWC in memory. id 0: sums, that are not in memory.
static void *make_image(struct graph *g, int64_t id, const int64_t *dims)
{
    return make_tensor(g, &(struct tensor){id, id ? g->question->type : CUDNN_DATA_FLOAT,
                                           .dims = {dims[0], dims[1], dims[2], dims[3]},
                                           .strides = {dims[1] * dims[2] * dims[3], 1,
                                                       dims[3] * dims[1], dims[1]}});
}

static void *make_window(struct graph *g)
{
    const struct cuda_plan_question *q = g->question;
    const int64_t two = 2;
    void *d = make(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    return cuda_finalize(
        g->device, d,
        set_word(g, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT) &&
            set_word(g, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                     CUDNN_CROSS_CORRELATION) &&
            set_integers(g, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &two) &&
            set_integers(g, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, q->padding) &&
            set_integers(g, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, q->padding) &&
            set_integers(g, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, q->stride) &&
            set_integers(g, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, q->dilation));
}

// What the three operations call alike: the window, x, w, y, the factors of the result and of what was there.
struct names {
    unsigned type, window, x, w, y, alpha, beta;
};

static struct names names_of(uint32_t op)
{
    switch (op) {
    case LS_OP_CONV2D:
        return (struct names){CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case LS_OP_CONV2D_BACKWARD_DATA:
        return (struct names){CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    default:
        return (struct names){CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    }
}

static void add_convolution(struct graph *g, void *y)
{
    const struct cuda_plan_question *q = g->question;
    const struct names names = names_of(q->op);
    const float one = 1, zero = 0;
    void *window = make_window(g);
    void *x = make_image(g, CUDA_PLAN_X, q->x), *w = make_image(g, CUDA_PLAN_W, q->w);
    void *d = make(g, names.type);
    add(g, d,
        cuda_set_descriptor(g->device, d, names.window, window) &&
            cuda_set_descriptor(g->device, d, names.x, x) &&
            cuda_set_descriptor(g->device, d, names.w, w) &&
            cuda_set_descriptor(g->device, d, names.y, y) &&
            cuda_set_attribute(g->device, d, names.alpha, CUDNN_TYPE_FLOAT, 1, &one) &&
            cuda_set_attribute(g->device, d, names.beta, CUDNN_TYPE_FLOAT, 1, &zero));
}

static void convolve(struct graph *g)
{
    const struct cuda_plan_question *q = g->question;
    void *y = make_image(g, CUDA_PLAN_Y, q->y);
    if (!q->fused) {
        add_convolution(g, y);
        return;
    }
    void *bias = make_image(g, CUDA_PLAN_BIAS, (int64_t[]){1, q->y[1], 1, 1});
    void *product = make_image(g, 0, q->y), *sum = make_image(g, 0, q->y);
    add_convolution(g, product);
    apply(g, CUDNN_POINTWISE_ADD, product, bias, sum);
    apply(g, CUDNN_POINTWISE_RELU_FWD, sum, NULL, y);
}

// ---- Attention ----

// (B, H, positions, elements), which lies as (B, positions, H, elements); turned: (B, H, elements, positions).
static void *make_heads(struct graph *g, int64_t id, const int64_t *dims, bool turned)
{
    const int64_t position = dims[1] * dims[3], batch = dims[2] * position;
    return make_tensor(
        g, &(struct tensor){
               id, g->question->type,
               .dims = {dims[0], dims[1], dims[turned ? 3 : 2], dims[turned ? 2 : 3]},
               .strides = {batch, dims[3], turned ? 1 : position, turned ? position : 1}});
}

// What lies between its operations, and numbers of a row: (B, H, rows, columns), one after the other.
static void *make_rows(struct graph *g, int64_t id, unsigned type, int64_t rows, int64_t columns)
{
    const int64_t *q = g->question->x;
    return make_tensor(
        g, &(struct tensor){id, type, .dims = {q[0], q[1], rows, columns},
                            .strides = {q[1] * rows * columns, rows * columns, columns, 1}});
}

static void *make_scores(struct graph *g, unsigned type)
{
    return make_rows(g, 0, type, g->question->x[2], g->question->w[2]);
}

static void *make_number(struct graph *g, int64_t id)
{
    return make_tensor(g, &(struct tensor){id, CUDNN_DATA_FLOAT, true, {1, 1, 1, 1}, {1, 1, 1, 1}});
}

// mode(x) or mode(x, b), as scores are.
static void *score(struct graph *g, unsigned mode, void *x, void *b)
{
    void *y = make_scores(g, CUDNN_DATA_FLOAT);
    apply(g, mode, x, b, y);
    return y;
}

static void *multiply(struct graph *g, void *a, void *b, void *c)
{
    void *how = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    void *d = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    how = cuda_finalize(
        g->device, how,
        set_word(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT));
    add(g, d,
        cuda_set_descriptor(g->device, d, CUDNN_ATTR_OPERATION_MATMUL_DESC, how) &&
            cuda_set_descriptor(g->device, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a) &&
            cuda_set_descriptor(g->device, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b) &&
            cuda_set_descriptor(g->device, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c));
    return c;
}

// Over the last dimension.
static void *reduce(struct graph *g, unsigned operator, void * x, int64_t id)
{
    void *y = make_rows(g, id, CUDNN_DATA_FLOAT, g->question->x[2], 1);
    void *how = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    void *d = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    how = cuda_finalize(
        g->device, how,
        set_word(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT) &&
            set_word(g, how, CUDNN_ATTR_REDUCTION_OPERATOR,
                     CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, operator));
    add(g, d,
        cuda_set_descriptor(g->device, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how) &&
            cuda_set_descriptor(g->device, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x) &&
            cuda_set_descriptor(g->device, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y));
    return y;
}

static void *turn(struct graph *g, void *x, void *y)
{
    void *d = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    add(g, d,
        cuda_set_descriptor(g->device, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x) &&
            cuda_set_descriptor(g->device, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y));
    return y;
}

// Scores as a factor on the left of what belongs to the keys: turned, and of the tensors' type.
static void *turn_scores(struct graph *g, void *scores)
{
    const int64_t *q = g->question->x, t = q[2], s = g->question->w[2];
    const struct tensor turned = {0, g->question->type, .dims = {q[0], q[1], s, t},
                                  .strides = {q[1] * t * s, t * s, 1, s}};
    return turn(g, scores, make_tensor(g, &turned));
}

// The number of each row, or of each column.
static void *index_of(struct graph *g, void *scores, int64_t axis)
{
    void *y = make_scores(g, CUDNN_DATA_INT32);
    add_pointwise(g, &(struct pointwise){CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, axis,
                                         .x = scores, .y = y});
    return y;
}

// Where a query does not see a key, minus infinity.
static void *mask(struct graph *g, void *scores)
{
    if (!g->question->causal)
        return scores;
    void *row = index_of(g, scores, 2), *column = index_of(g, scores, 3);
    void *sees = make_scores(g, CUDNN_DATA_BOOLEAN), *y = make_scores(g, CUDNN_DATA_FLOAT);
    add_pointwise(g, &(struct pointwise){CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, .x = row,
                                         .b = column, .y = sees});
    add_pointwise(g,
                  &(struct pointwise){CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, .x = scores,
                                      .b = make_number(g, CUDA_PLAN_HIDDEN), .mask = sees, .y = y});
    return y;
}

static void attend(struct graph *g)
{
    const struct cuda_plan_question *q = g->question;
    const int64_t y[] = {q->x[0], q->x[1], q->x[2], q->y[3]};
    void *scores =
        multiply(g, make_heads(g, CUDA_PLAN_Q, q->x, false), make_heads(g, CUDA_PLAN_K, q->w, true),
                 make_scores(g, CUDNN_DATA_FLOAT));
    scores = mask(g, score(g, CUDNN_POINTWISE_MUL, scores, make_number(g, CUDA_PLAN_SCALE)));
    void *largest = reduce(g, CUDNN_REDUCE_TENSOR_MAX, scores, 0);
    void *powers =
        score(g, CUDNN_POINTWISE_EXP, score(g, CUDNN_POINTWISE_SUB, scores, largest), NULL);
    void *sum = reduce(g, CUDNN_REDUCE_TENSOR_ADD, powers, 0);
    void *logarithm = make_rows(g, 0, CUDNN_DATA_FLOAT, q->x[2], 1);
    apply(g, CUDNN_POINTWISE_LOG, sum, NULL, logarithm);
    apply(g, CUDNN_POINTWISE_ADD, largest, logarithm,
          make_rows(g, CUDA_PLAN_STATISTICS, CUDNN_DATA_FLOAT, q->x[2], 1));
    void *shares = make_scores(g, q->type);
    apply(g, CUDNN_POINTWISE_DIV, powers, sum, shares);
    multiply(g, shares, make_heads(g, CUDA_PLAN_V, q->y, false),
             make_heads(g, CUDA_PLAN_ATTENDED, y, false));
}

static void attend_backward(struct graph *g)
{
    const struct cuda_plan_question *question = g->question;
    const int64_t *q = question->x, *k = question->w, *v = question->y;
    const int64_t y[] = {q[0], q[1], q[2], v[3]};
    void *dy = make_heads(g, CUDA_PLAN_DY, y, false),
         *k_turned = make_heads(g, CUDA_PLAN_K, k, true);
    void *q_heads = make_heads(g, CUDA_PLAN_Q, q, false), *scale = make_number(g, CUDA_PLAN_SCALE);
    // Of each row the sum of dy y, which is that of p dp.
    void *product = make_rows(g, 0, CUDNN_DATA_FLOAT, y[2], y[3]);
    apply(g, CUDNN_POINTWISE_MUL, dy, make_heads(g, CUDA_PLAN_ATTENDED, y, false), product);
    void *sums = make_rows(g, CUDA_PLAN_SUMS, CUDNN_DATA_FLOAT, y[2], 1);
    apply(g, CUDNN_POINTWISE_MUL, reduce(g, CUDNN_REDUCE_TENSOR_ADD, product, 0),
          make_number(g, CUDA_PLAN_ONE), sums);
    // p, of the statistics that forward has left, and dv.
    void *scores = multiply(g, q_heads, k_turned, make_scores(g, CUDNN_DATA_FLOAT));
    scores = score(g, CUDNN_POINTWISE_MUL, scores, scale);
    scores = score(g, CUDNN_POINTWISE_SUB, scores,
                   make_rows(g, CUDA_PLAN_STATISTICS, CUDNN_DATA_FLOAT, q[2], 1));
    void *p = score(g, CUDNN_POINTWISE_EXP, mask(g, scores), NULL);
    multiply(g, turn_scores(g, p), dy, make_heads(g, CUDA_PLAN_DV, v, false));
    // ds = p (dp - sum(p dp)), scaled; dk and dq.
    void *ds =
        multiply(g, dy, make_heads(g, CUDA_PLAN_V, v, true), make_scores(g, CUDNN_DATA_FLOAT));
    ds = score(g, CUDNN_POINTWISE_MUL, score(g, CUDNN_POINTWISE_SUB, ds, sums), p);
    ds = score(g, CUDNN_POINTWISE_MUL, ds, scale);
    multiply(g, turn_scores(g, ds), q_heads, make_heads(g, CUDA_PLAN_DK, k, false));
    void *k_heads = turn(g, k_turned, make_heads(g, 0, k, false));
    multiply(g, ds, k_heads, make_heads(g, CUDA_PLAN_DQ, q, false));
}

void *cuda_graph_make(const struct ls_device *device, struct cuda_plan *plan)
{
    struct graph g = {
        .device = device, .plan = plan, .question = &plan->question, .next_id = CUDA_PLAN_TENSORS};
    if (plan->question.op == LS_OP_ATTENTION)
        attend(&g);
    else if (plan->question.op == LS_OP_ATTENTION_BACKWARD)
        attend_backward(&g);
    else
        convolve(&g);
    for (int64_t i = 0; i < g.count; i++)
        if (!g.operations[i])
            return NULL;
    void *d = make(&g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    return cuda_finalize(device, d,
                         cuda_set_attribute(device, d, CUDNN_ATTR_OPERATIONGRAPH_OPS,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, g.count, g.operations) &&
                             cuda_set_attribute(device, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
                                                CUDNN_TYPE_HANDLE, 1, &device->dnn));
}
