// SPDX-License-Identifier: Apache-2.0
// cuDNN's graph API in the fake: descriptors with attributes of one type each, which are all set before they are finalized and not
// changed afterwards; graphs of a convolution, alone or with a bias and a ReLU, and of attention (dnn_attention.h); engines,
// heuristics, plans and packs of addresses. A convolution's tensors are NHWC and, in memory, all of one type: for a float32 gradient
// of halves cuDNN has no engine.
#include "tests/support/cuda-fake/dnn_attention.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define BAD_PARAM CUDNN_STATUS_BAD_PARAM
#define MOST_VALUES DNN_WALK_STEPS

// ---- Engines ----

// In the order of the heuristics. First those that must not be taken: each is right but for one reason, and running it ends the run.
enum {
    LOOPS, // slow, a fallback
    OTHER_BITS,
    ROUNDS_INPUTS,
    ROUNDS_SUMS,
    COMPILED,
    HAS_NO_PLAN,
    LARGE,
    LOSES_NAN, // in a ReLU
    CORES,
    PLAIN,
};

struct engine {
    int64_t index;
    int note, behavior; // -1: none
    int64_t workspace;
};

static const struct engine engines[] = {
    {OTHER_BITS, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, -1, DNN_WORKSPACE},
    {ROUNDS_INPUTS, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, -1, DNN_WORKSPACE},
    {ROUNDS_SUMS, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, -1, DNN_WORKSPACE},
    {COMPILED, -1, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION, DNN_WORKSPACE},
    {HAS_NO_PLAN, -1, -1, DNN_WORKSPACE},
    {LARGE, -1, -1, INT64_C(2) << 30},
    {LOSES_NAN, -1, -1, DNN_WORKSPACE},
    {CORES, CUDNN_NUMERICAL_NOTE_TENSOR_CORE, -1, DNN_WORKSPACE + 64},
    {PLAIN, -1, -1, DNN_WORKSPACE + 128},
};

// Of attention: all have tensor cores and are compiled first.
#define ATTENTION_ENGINE(index, note, bytes)                        \
    {                                                               \
        index, note, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION, bytes \
    }
static const struct engine attention_engines[] = {
    ATTENTION_ENGINE(OTHER_BITS, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, DNN_WORKSPACE),
    ATTENTION_ENGINE(HAS_NO_PLAN, CUDNN_NUMERICAL_NOTE_TENSOR_CORE, DNN_WORKSPACE),
    ATTENTION_ENGINE(LARGE, CUDNN_NUMERICAL_NOTE_TENSOR_CORE, INT64_C(2) << 30),
    ATTENTION_ENGINE(LOSES_NAN, CUDNN_NUMERICAL_NOTE_TENSOR_CORE, DNN_WORKSPACE),
    ATTENTION_ENGINE(CORES, CUDNN_NUMERICAL_NOTE_TENSOR_CORE, DNN_WORKSPACE + 64),
};

static const struct engine fallbacks[] = {
    {PLAIN, -1, -1, DNN_WORKSPACE + 128},
    {LOOPS, -1, -1, DNN_WORKSPACE},
};

// ---- Descriptors ----

union value {
    int64_t integer;
    float real;
    unsigned word;
    bool truth;
    void *pointer;
};

struct attribute {
    unsigned name;
    int count;
    union value values[MOST_VALUES];
};

struct descriptor {
    unsigned type;
    bool final;
    struct attribute attributes[8];
    struct dnn_job job; // of a graph, and of what was made from it
    struct dnn_walk walk; // instead, of attention
    bool keeps_nan; // its ReLU was asked to
    struct engine engine; // of an engine, a configuration, a plan
};

// Which descriptor has it, the type of its values, and how many there are at the most.
struct rule {
    unsigned name, descriptor, type;
    int most;
};

#define RULE(name, descriptor, type, most)                                                  \
    {                                                                                       \
        CUDNN_ATTR_##name, CUDNN_BACKEND_##descriptor##_DESCRIPTOR, CUDNN_TYPE_##type, most \
    }
#define CONVOLUTION_RULES(attribute, descriptor, x, w, y)           \
    RULE(attribute##_CONV_DESC, descriptor, BACKEND_DESCRIPTOR, 1), \
        RULE(attribute##_##x, descriptor, BACKEND_DESCRIPTOR, 1),   \
        RULE(attribute##_##w, descriptor, BACKEND_DESCRIPTOR, 1),   \
        RULE(attribute##_##y, descriptor, BACKEND_DESCRIPTOR, 1),   \
        RULE(attribute##_ALPHA, descriptor, FLOAT, 1),              \
        RULE(attribute##_BETA, descriptor, FLOAT, 1)

static const struct rule rules[] = {
    RULE(TENSOR_DATA_TYPE, TENSOR, DATA_TYPE, 1),
    RULE(TENSOR_DIMENSIONS, TENSOR, INT64, 4),
    RULE(TENSOR_STRIDES, TENSOR, INT64, 4),
    RULE(TENSOR_UNIQUE_ID, TENSOR, INT64, 1),
    RULE(TENSOR_BYTE_ALIGNMENT, TENSOR, INT64, 1),
    RULE(TENSOR_IS_VIRTUAL, TENSOR, BOOLEAN, 1),
    RULE(CONVOLUTION_COMP_TYPE, CONVOLUTION, DATA_TYPE, 1),
    RULE(CONVOLUTION_CONV_MODE, CONVOLUTION, CONVOLUTION_MODE, 1),
    RULE(CONVOLUTION_SPATIAL_DIMS, CONVOLUTION, INT64, 1),
    RULE(CONVOLUTION_PRE_PADDINGS, CONVOLUTION, INT64, 2),
    RULE(CONVOLUTION_POST_PADDINGS, CONVOLUTION, INT64, 2),
    RULE(CONVOLUTION_FILTER_STRIDES, CONVOLUTION, INT64, 2),
    RULE(CONVOLUTION_DILATIONS, CONVOLUTION, INT64, 2),
    CONVOLUTION_RULES(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD, X, W, Y),
    CONVOLUTION_RULES(OPERATION_CONVOLUTION_BWD_DATA, OPERATION_CONVOLUTION_BACKWARD_DATA, DX, W,
                      DY),
    CONVOLUTION_RULES(OPERATION_CONVOLUTION_BWD_FILTER, OPERATION_CONVOLUTION_BACKWARD_FILTER, X,
                      DW, DY),
    RULE(POINTWISE_MODE, POINTWISE, POINTWISE_MODE, 1),
    RULE(POINTWISE_MATH_PREC, POINTWISE, DATA_TYPE, 1),
    RULE(POINTWISE_NAN_PROPAGATION, POINTWISE, NAN_PROPOGATION, 1),
    RULE(OPERATION_POINTWISE_PW_DESCRIPTOR, OPERATION_POINTWISE, BACKEND_DESCRIPTOR, 1),
    RULE(OPERATION_POINTWISE_XDESC, OPERATION_POINTWISE, BACKEND_DESCRIPTOR, 1),
    RULE(OPERATION_POINTWISE_BDESC, OPERATION_POINTWISE, BACKEND_DESCRIPTOR, 1),
    RULE(OPERATION_POINTWISE_YDESC, OPERATION_POINTWISE, BACKEND_DESCRIPTOR, 1),
    RULE(TENSOR_IS_BY_VALUE, TENSOR, BOOLEAN, 1),
    RULE(POINTWISE_AXIS, POINTWISE, INT64, 1),
    RULE(OPERATION_POINTWISE_TDESC, OPERATION_POINTWISE, BACKEND_DESCRIPTOR, 1),
    RULE(MATMUL_COMP_TYPE, MATMUL, DATA_TYPE, 1),
    RULE(OPERATION_MATMUL_DESC, OPERATION_MATMUL, BACKEND_DESCRIPTOR, 1),
    RULE(OPERATION_MATMUL_ADESC, OPERATION_MATMUL, BACKEND_DESCRIPTOR, 1),
    RULE(OPERATION_MATMUL_BDESC, OPERATION_MATMUL, BACKEND_DESCRIPTOR, 1),
    RULE(OPERATION_MATMUL_CDESC, OPERATION_MATMUL, BACKEND_DESCRIPTOR, 1),
    RULE(REDUCTION_OPERATOR, REDUCTION, REDUCTION_OPERATOR_TYPE, 1),
    RULE(REDUCTION_COMP_TYPE, REDUCTION, DATA_TYPE, 1),
    RULE(OPERATION_REDUCTION_DESC, OPERATION_REDUCTION, BACKEND_DESCRIPTOR, 1),
    RULE(OPERATION_REDUCTION_XDESC, OPERATION_REDUCTION, BACKEND_DESCRIPTOR, 1),
    RULE(OPERATION_REDUCTION_YDESC, OPERATION_REDUCTION, BACKEND_DESCRIPTOR, 1),
    RULE(OPERATION_RESHAPE_XDESC, OPERATION_RESHAPE, BACKEND_DESCRIPTOR, 1),
    RULE(OPERATION_RESHAPE_YDESC, OPERATION_RESHAPE, BACKEND_DESCRIPTOR, 1),
    RULE(OPERATIONGRAPH_OPS, OPERATIONGRAPH, BACKEND_DESCRIPTOR, MOST_VALUES),
    RULE(OPERATIONGRAPH_HANDLE, OPERATIONGRAPH, HANDLE, 1),
    RULE(ENGINEHEUR_OPERATION_GRAPH, ENGINEHEUR, BACKEND_DESCRIPTOR, 1),
    RULE(ENGINEHEUR_MODE, ENGINEHEUR, HEUR_MODE, 1),
    RULE(EXECUTION_PLAN_ENGINE_CONFIG, EXECUTION_PLAN, BACKEND_DESCRIPTOR, 1),
    RULE(EXECUTION_PLAN_HANDLE, EXECUTION_PLAN, HANDLE, 1),
    RULE(VARIANT_PACK_UNIQUE_IDS, VARIANT_PACK, INT64, MOST_VALUES),
    RULE(VARIANT_PACK_DATA_POINTERS, VARIANT_PACK, VOID_PTR, MOST_VALUES),
    RULE(VARIANT_PACK_WORKSPACE, VARIANT_PACK, VOID_PTR, 1),
};

static size_t bytes_of(unsigned type)
{
    return type == CUDNN_TYPE_BOOLEAN ? sizeof(bool)
           : type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_VOID_PTR || type == CUDNN_TYPE_HANDLE ||
                   type == CUDNN_TYPE_BACKEND_DESCRIPTOR
               ? 8
               : 4;
}

unsigned cudnnBackendCreateDescriptor(unsigned type, void **out)
{
    const unsigned error = double_dnn_make(out, sizeof(struct descriptor));
    if (!error)
        ((struct descriptor *)*out)->type = type;
    return error;
}

unsigned cudnnBackendDestroyDescriptor(void *descriptor)
{
    return double_dnn_unmake(descriptor);
}

unsigned cudnnBackendSetAttribute(void *descriptor, unsigned name, unsigned type, int64_t count,
                                  const void *values)
{
    struct descriptor *d = descriptor;
    const struct rule *rule = rules, *end = rules + sizeof(rules) / sizeof(rules[0]);
    struct attribute *a = d->attributes;
    while (rule < end && (rule->name != name || rule->descriptor != d->type))
        rule++;
    if (rule == end || rule->type != type || count < 1 || count > rule->most || d->final)
        return DNN_MISUSED;
    while (a->count && a->name != name)
        if (++a == d->attributes + sizeof(d->attributes) / sizeof(d->attributes[0]))
            return DNN_MISUSED;
    *a = (struct attribute){.name = name, .count = (int)count};
    for (int i = 0; i < count; i++) {
        memcpy(&a->values[i], (const char *)values + (size_t)i * bytes_of(type), bytes_of(type));
        const struct descriptor *other = a->values[i].pointer;
        if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR && (!other || !other->final))
            return BAD_PARAM;
    }
    return 0;
}

static const struct attribute *get(const struct descriptor *d, unsigned name)
{
    static const struct attribute none;
    for (size_t i = 0; i < sizeof(d->attributes) / sizeof(d->attributes[0]); i++)
        if (d->attributes[i].count && d->attributes[i].name == name)
            return &d->attributes[i];
    return &none;
}

static const union value *values(const struct descriptor *d, unsigned name)
{
    return get(d, name)->values;
}

static const struct descriptor *other(const struct descriptor *d, unsigned name)
{
    return get(d, name)->values[0].pointer;
}

static bool is_complete(const struct descriptor *d)
{
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        const bool optional = rules[i].name == CUDNN_ATTR_OPERATION_POINTWISE_BDESC ||
                              rules[i].name == CUDNN_ATTR_OPERATION_POINTWISE_TDESC ||
                              rules[i].name == CUDNN_ATTR_POINTWISE_AXIS ||
                              rules[i].name == CUDNN_ATTR_TENSOR_IS_BY_VALUE ||
                              rules[i].name == CUDNN_ATTR_POINTWISE_NAN_PROPAGATION;
        const bool any = rules[i].name == CUDNN_ATTR_OPERATIONGRAPH_OPS ||
                         d->type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR;
        const int count = get(d, rules[i].name)->count;
        if (rules[i].descriptor == d->type && !optional && (any ? !count : count != rules[i].most))
            return false;
    }
    return true;
}

// ---- Graphs ----

static unsigned tensor_type(const struct descriptor *d)
{
    return values(d, CUDNN_ATTR_TENSOR_DATA_TYPE)->word;
}

static bool is_between(const struct descriptor *d)
{
    return values(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL)->truth;
}

static bool is_tensor(const struct descriptor *d)
{
    const unsigned type = tensor_type(d);
    return values(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)->integer == 16 &&
           (type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16 ||
            (is_between(d) && (type == CUDNN_DATA_INT32 || type == CUDNN_DATA_BOOLEAN)));
}

static bool is_nhwc(const struct descriptor *d)
{
    const union value *dims = values(d, CUDNN_ATTR_TENSOR_DIMENSIONS);
    const union value *strides = values(d, CUDNN_ATTR_TENSOR_STRIDES);
    const int64_t c = dims[1].integer, h = dims[2].integer, w = dims[3].integer;
    return strides[0].integer == c * h * w && strides[1].integer == 1 &&
           strides[2].integer == w * c && strides[3].integer == c;
}

static struct cudnnTensorStruct tensor_of(const struct descriptor *d)
{
    const union value *dims = values(d, CUDNN_ATTR_TENSOR_DIMENSIONS);
    return (struct cudnnTensorStruct){.n = dims[0].integer,
                                      .c = dims[1].integer,
                                      .h = dims[2].integer,
                                      .w = dims[3].integer,
                                      .type = tensor_type(d)};
}

// What the three operations name alike.
struct names {
    unsigned window, x, w, y, alpha, beta;
};

#define NAMES(operation, x, w, y)                                 \
    (struct names)                                                \
    {                                                             \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##operation##_CONV_DESC, \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##operation##_##x,   \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##operation##_##w,   \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##operation##_##y,   \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##operation##_ALPHA, \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##operation##_BETA,  \
    }

static enum dnn_direction direction_of(const struct descriptor *d)
{
    return d->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? DNN_FORWARD
           : d->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? DNN_DATA
                                                                                     : DNN_WEIGHTS;
}

static struct names names_of(const struct descriptor *d)
{
    const enum dnn_direction direction = direction_of(d);
    return direction == DNN_FORWARD ? NAMES(FORWARD, X, W, Y)
           : direction == DNN_DATA  ? NAMES(BWD_DATA, DX, W, DY)
                                    : NAMES(BWD_FILTER, X, DW, DY);
}

// `alpha` is 1 and `beta` 0, and both sides are padded alike: the plugin asks for nothing else.
static bool is_convolution(const struct descriptor *d)
{
    const struct names names = names_of(d);
    const struct descriptor *window = other(d, names.window);
    const float one = values(d, names.alpha)->real, zero = values(d, names.beta)->real;
    const union value *before = values(window, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    const union value *after = values(window, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
    return window->type == CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR && one >= 1 && one <= 1 &&
           zero >= 0 && zero <= 0 && before[0].integer == after[0].integer &&
           before[1].integer == after[1].integer &&
           values(window, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS)->integer == 2 &&
           values(window, CUDNN_ATTR_CONVOLUTION_COMP_TYPE)->word == CUDNN_DATA_FLOAT &&
           values(window, CUDNN_ATTR_CONVOLUTION_CONV_MODE)->word == CUDNN_CROSS_CORRELATION;
}

// The types of its tensors are compared with those in memory later.
static bool read_convolution(const struct descriptor *d, struct dnn_job *job)
{
    const struct names names = names_of(d);
    const struct descriptor *window = other(d, names.window);
    const struct cudnnTensorStruct w = tensor_of(other(d, names.w));
    if (!is_nhwc(other(d, names.x)) || !is_nhwc(other(d, names.w)) || !is_nhwc(other(d, names.y)))
        return false;
    job->direction = direction_of(d);
    job->x_desc = tensor_of(other(d, names.x));
    job->y_desc = tensor_of(other(d, names.y));
    job->w_desc = (struct cudnnFilterStruct){w.n, w.c, w.h, w.w, w.type};
    for (int i = 0; i < 2; i++) {
        job->convolution.pad[i] = values(window, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)[i].integer;
        job->convolution.stride[i] =
            values(window, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)[i].integer;
        job->convolution.dilation[i] = values(window, CUDNN_ATTR_CONVOLUTION_DILATIONS)[i].integer;
    }
    job->convolution.groups = w.c ? (int)(job->x_desc.c / w.c) : 0;
    struct cudnnTensorStruct x = job->x_desc, y = job->y_desc;
    struct cudnnFilterStruct plain = job->w_desc;
    x.type = y.type = plain.type = CUDNN_DATA_FLOAT;
    return job->convolution.groups > 0 && x.c == plain.c * job->convolution.groups &&
           plain.k % job->convolution.groups == 0 &&
           double_dnn_fits(&x, &plain, &job->convolution, &y);
}

static unsigned mode_of(const struct descriptor *d)
{
    return d->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR
               ? values(other(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR),
                        CUDNN_ATTR_POINTWISE_MODE)
                     ->word
               : UINT32_MAX;
}

// Convolution, sum with a bias, ReLU, each with the result of the one before it.
static bool read_fused(const union value *operations, struct descriptor *graph)
{
    const struct descriptor *first = operations[0].pointer, *sum = operations[1].pointer,
                            *relu = operations[2].pointer;
    if (mode_of(sum) != CUDNN_POINTWISE_ADD || mode_of(relu) != CUDNN_POINTWISE_RELU_FWD ||
        direction_of(first) != DNN_FORWARD)
        return false;
    const struct descriptor *product = other(first, names_of(first).y);
    const struct descriptor *added = other(sum, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    const struct descriptor *bias = other(sum, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    const struct descriptor *y = other(relu, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    if (!bias || other(sum, CUDNN_ATTR_OPERATION_POINTWISE_XDESC) != product ||
        other(relu, CUDNN_ATTR_OPERATION_POINTWISE_XDESC) != added || !is_between(product) ||
        !is_between(added) || is_between(y))
        return false;
    if (!is_nhwc(bias) || !is_nhwc(y))
        return false;
    const struct cudnnTensorStruct b = tensor_of(bias), out = tensor_of(y);
    graph->keeps_nan = values(other(relu, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR),
                              CUDNN_ATTR_POINTWISE_NAN_PROPAGATION)
                           ->word == CUDNN_PROPAGATE_NAN;
    graph->job.relu = 1;
    graph->job.y_desc = out;
    return b.n == 1 && b.h == 1 && b.w == 1 && b.c == out.c && b.type == out.type;
}

// ---- Graphs of attention ----

static int add_tensor(struct dnn_walk *walk, const struct descriptor *d)
{
    struct dnn_walk_tensor t = {.id = values(d, CUDNN_ATTR_TENSOR_UNIQUE_ID)->integer,
                                .type = tensor_type(d),
                                .between = is_between(d),
                                .by_value = values(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE)->truth};
    for (int i = 0; i < 4; i++) {
        t.dims[i] = values(d, CUDNN_ATTR_TENSOR_DIMENSIONS)[i].integer;
        t.strides[i] = values(d, CUDNN_ATTR_TENSOR_STRIDES)[i].integer;
    }
    for (int i = 0; i < walk->tensor_count; i++)
        if (walk->tensors[i].id == t.id)
            return i;
    if (walk->tensor_count == DNN_WALK_TENSORS)
        abort();
    walk->tensors[walk->tensor_count] = t;
    return walk->tensor_count++;
}

static int add_optional(struct dnn_walk *walk, const struct descriptor *d, unsigned name)
{
    const struct descriptor *tensor = other(d, name);
    return tensor ? add_tensor(walk, tensor) : -1;
}

static char pointwise_of(const struct descriptor *how)
{
    switch (values(how, CUDNN_ATTR_POINTWISE_MODE)->word) {
    case CUDNN_POINTWISE_ADD: return '+';
    case CUDNN_POINTWISE_SUB: return '-';
    case CUDNN_POINTWISE_MUL: return '*';
    case CUDNN_POINTWISE_DIV: return '/';
    case CUDNN_POINTWISE_EXP: return 'e';
    case CUDNN_POINTWISE_LOG: return 'l';
    case CUDNN_POINTWISE_CMP_GE: return '>';
    case CUDNN_POINTWISE_BINARY_SELECT: return '?';
    case CUDNN_POINTWISE_GEN_INDEX:
        return values(how, CUDNN_ATTR_POINTWISE_AXIS)->integer == 2 ? 'r' : 'c';
    default: return 0;
    }
}

// Whether it is an operation of attention.
static bool add_step(struct dnn_walk *walk, const struct descriptor *d)
{
    struct dnn_walk_step s = {.b = -1, .mask = -1};
    switch (d->type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        s.what = 'x';
        s.x = add_tensor(walk, other(d, CUDNN_ATTR_OPERATION_MATMUL_ADESC));
        s.b = add_tensor(walk, other(d, CUDNN_ATTR_OPERATION_MATMUL_BDESC));
        s.y = add_tensor(walk, other(d, CUDNN_ATTR_OPERATION_MATMUL_CDESC));
        break;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        s.what =
            values(other(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC), CUDNN_ATTR_REDUCTION_OPERATOR)
                        ->word == CUDNN_REDUCE_TENSOR_MAX
                ? 'M'
                : 'S';
        s.x = add_tensor(walk, other(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC));
        s.y = add_tensor(walk, other(d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
        break;
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        s.what = 't';
        s.x = add_tensor(walk, other(d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC));
        s.y = add_tensor(walk, other(d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
        break;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        s.what = pointwise_of(other(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR));
        s.x = add_tensor(walk, other(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
        s.b = add_optional(walk, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
        s.mask = add_optional(walk, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
        s.y = add_tensor(walk, other(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
        break;
    default: return false;
    }
    walk->steps[walk->step_count++] = s;
    return s.what;
}

static unsigned finalize_attention(struct descriptor *graph)
{
    const struct attribute *operations = get(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    for (int i = 0; i < operations->count; i++)
        if (!add_step(&graph->walk, operations->values[i].pointer))
            return DNN_MISUSED;
    return 0;
}

static unsigned finalize_graph(struct descriptor *graph)
{
    const struct attribute *operations = get(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    if (operations->count > 3)
        return finalize_attention(graph);
    if (!read_convolution(operations->values[0].pointer, &graph->job) ||
        (operations->count == 3 && !read_fused(operations->values, graph)) ||
        operations->count == 2)
        return DNN_MISUSED;
    if ((operations->count == 3 && double_setting("CUDA_FAKE_NO_FUSED", 0)))
        return CUDNN_STATUS_NOT_SUPPORTED;
    graph->job.type = double_dnn_type(graph->job.x_desc.type);
    return 0;
}

static bool is_of_one_type(const struct dnn_job *job)
{
    return job->x_desc.type == job->w_desc.type && job->w_desc.type == job->y_desc.type;
}

// ---- Finalizing ----

static unsigned finalize_plan(struct descriptor *d)
{
    const struct descriptor *config = other(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    d->job = config->job;
    d->walk = config->walk;
    d->keeps_nan = config->keeps_nan;
    d->engine = config->engine;
    return d->engine.index == HAS_NO_PLAN ? CUDNN_STATUS_NOT_SUPPORTED : 0;
}

static bool is_pack(const struct descriptor *d)
{
    const struct attribute *ids = get(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    for (int i = 1; i < ids->count; i++)
        if (ids->values[i].integer <= ids->values[i - 1].integer)
            return false;
    return ids->count >= 3 && ids->count == get(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->count;
}

static unsigned finalize(struct descriptor *d)
{
    if (!is_complete(d))
        return BAD_PARAM;
    switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: return is_tensor(d) ? 0 : DNN_MISUSED;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        return is_convolution(d) ? 0 : DNN_MISUSED;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: return finalize_graph(d);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: return finalize_plan(d);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: return is_pack(d) ? 0 : DNN_MISUSED;
    default: return 0;
    }
}

unsigned cudnnBackendFinalize(void *descriptor)
{
    struct descriptor *d = descriptor;
    const unsigned error = finalize(d);
    d->final = !error;
    return error;
}

// ---- Answers ----

static bool is_offered(struct descriptor *graph)
{
    if (!graph->walk.step_count)
        return is_of_one_type(&graph->job) && double_dnn_knows(&graph->job);
    return !double_setting("CUDA_FAKE_NO_CUDNN", 0) && double_walk_knows(&graph->walk) &&
           (graph->walk.type == CUDNN_DATA_FLOAT || !double_setting("CUDA_FAKE_NO_HALVES", 0));
}

static unsigned give_offers(const struct descriptor *heuristics, int64_t wanted, int64_t *count,
                            void *const *configs)
{
    struct descriptor *graph = values(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->pointer;
    const bool first = values(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE)->word == CUDNN_HEUR_MODE_A;
    const bool attention = graph->walk.step_count;
    const struct engine *list = attention ? attention_engines : first ? engines : fallbacks;
    const size_t most = attention ? sizeof(attention_engines)
                        : first   ? sizeof(engines)
                                  : sizeof(fallbacks);
    *count = 0;
    if (!is_offered(graph))
        return 0;
    for (; *count < wanted && *count < (int64_t)(most / sizeof(*list)); ++*count) {
        struct descriptor *config = configs[*count];
        if (!config || config->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
            return DNN_MISUSED;
        config->job = graph->job;
        config->walk = graph->walk;
        config->keeps_nan = graph->keeps_nan;
        config->engine = list[*count];
        config->final = true;
    }
    return 0;
}

static unsigned give_note(int note, int64_t *count, unsigned *out)
{
    *count = note >= 0;
    if (note >= 0)
        *out = (unsigned)note;
    return 0;
}

unsigned cudnnBackendGetAttribute(void *descriptor, unsigned name, unsigned type, int64_t wanted,
                                  int64_t *count, void *out)
{
    const struct descriptor *d = descriptor;
    if (!d->final || wanted < 1)
        return BAD_PARAM;
    *count = 1;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        return give_offers(d, wanted, count, out);
    if (name == CUDNN_ATTR_ENGINECFG_ENGINE && type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        struct descriptor *engine = *(void **)out;
        engine->engine = d->engine;
        engine->final = true;
        return 0;
    }
    if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && type == CUDNN_TYPE_NUMERICAL_NOTE)
        return give_note(d->engine.note, count, out);
    if (name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE && type == CUDNN_TYPE_BEHAVIOR_NOTE)
        return give_note(d->engine.behavior, count, out);
    if (type != CUDNN_TYPE_INT64)
        return DNN_MISUSED;
    if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX)
        *(int64_t *)out = d->engine.index;
    else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
        *(int64_t *)out = d->engine.workspace;
    else
        return DNN_MISUSED;
    return 0;
}

// An address for each tensor in memory, of the GPU or, by value, of the host, and no other.
static unsigned execute_attention(struct cudnnContext *handle, const struct descriptor *plan,
                                  const struct descriptor *pack)
{
    const struct attribute *ids = get(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const struct attribute *at = get(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    struct dnn_walk walk = plan->walk;
    int given = 0, wanted = 0;
    if (double_setting("CUDA_FAKE_REFUSE", 0))
        return CUDNN_STATUS_NOT_SUPPORTED + 1; // one of its reasons
    for (int i = 0; i < walk.tensor_count; i++) {
        struct dnn_walk_tensor *t = &walk.tensors[i];
        wanted += !t->between;
        for (int k = 0; k < ids->count && !t->between; k++) {
            void *address = at->values[k].pointer;
            if (ids->values[k].integer != t->id)
                continue;
            given++;
            if (!address || (!t->by_value && (uintptr_t)address % 16))
                return DNN_MISUSED;
            if (t->by_value)
                t->number = *(const float *)address;
            else
                t->address = double_reach_on(handle->stream, address);
        }
    }
    walk.workspace = values(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)->pointer;
    if (given != wanted || given != ids->count || !walk.workspace ||
        (uintptr_t)walk.workspace % 256 || plan->engine.index < LOSES_NAN)
        return DNN_MISUSED;
    walk.workspace = double_reach_on(handle->stream, walk.workspace);
    walk.tf32 = walk.type == CUDNN_DATA_FLOAT;
    walk.loses_nan = plan->engine.index == LOSES_NAN;
    return double_enqueue(handle->stream, double_walk_run, &walk, sizeof(walk), 1)
               ? DNN_EXECUTION_FAILED
               : 0;
}

static void note_engine(long long engine)
{
    const char *path = getenv("CUDA_FAKE_ENGINES");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file)
        return;
    fprintf(file, "%lld\n", engine);
    fclose(file);
}

unsigned cudnnBackendExecute(struct cudnnContext *handle, void *plan, void *pack)
{
    const struct descriptor *p = plan, *addresses = pack;
    const struct attribute *at = get(addresses, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    struct dnn_job job = p->job;
    note_engine(p->engine.index);
    if (p->final && addresses->final && p->walk.step_count)
        return execute_attention(handle, p, addresses);
    if (!p->final || !addresses->final || (p->engine.index && p->engine.index < LOSES_NAN) ||
        at->count != (job.relu ? 4 : 3))
        return DNN_MISUSED;
    job.x = at->values[0].pointer;
    job.w = at->values[1].pointer;
    job.y = at->values[2].pointer;
    job.bias = job.relu ? at->values[3].pointer : NULL;
    job.workspace = values(addresses, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)->pointer;
    job.tf32 = p->engine.index == CORES && job.x_desc.type == CUDNN_DATA_FLOAT;
    job.loses_nan = !p->keeps_nan || p->engine.index == LOSES_NAN;
    job.slow = p->engine.index == LOOPS ||
               p->engine.index == double_setting("CUDA_FAKE_SLOW_ENGINE", LOOPS);
    for (int i = 0; i < at->count; i++)
        if (!at->values[i].pointer || (uintptr_t)at->values[i].pointer % 16)
            return DNN_MISUSED;
    if (!job.workspace || (uintptr_t)job.workspace % 256)
        return DNN_MISUSED;
    return double_dnn_enqueue(handle, &job);
}
