// SPDX-License-Identifier: Apache-2.0
// What layers, losses and metrics of one's own are composed of: the operations of
// core/plugin/operations.h on tensors of the model's graph. Gradients follow from the operations, and
// so do mixed precision, fusion and every device that has the operations.
//
// A `build` function composes once, when a model is made, with the table that it is given:
//
//     struct ls_tensor *scores = ls_compose_dense(composer, x, kernel, NULL);
//     struct ls_tensor *gate = composer->function(composer, "sigmoid", scores);
//     outputs[0] = ls_compose_multiply(composer, x, gate);
//     return LS_OK;
//
// A call that fails says why and returns NULL, and a call that is given NULL returns NULL: so a
// build function need not look at each result. It returns LS_OK all the same; the host knows.
#ifndef LS_PLUGIN_COMPOSE_H
#define LS_PLUGIN_COMPOSE_H

#include "core/plugin/device.h"

#ifdef __cplusplus
extern "C" {
#endif

// The first dimension of everything that has a row for each example, until a program binds it.
#define LS_BATCH INT64_C(-1)

struct ls_tensor; // a tensor of the graph, or a weight; the host's own

// A variable of a layer.
struct ls_weight {
    const char *name; // "kernel": in files of weights it is LAYER/kernel
    uint32_t ndims; // at least 1
    uint32_t frozen; // 1: gradients do not change it
    int64_t dims[LS_MAX_DIMS]; // `ndims` of them, each at least 1
    // As Keras has them: "glorot_uniform", "constant:value=0.1"; the value of an option may be
    // passed on. NULL: "glorot_uniform".
    const char *initializer;
};

// [main thread], while the build function runs that it was given to.
struct ls_composer {
    uint32_t struct_size;
    // 0: this call of a layer acts as in predictions (training=False), also when the model is
    // trained. Otherwise dropout and noise act in training only, by themselves.
    uint32_t training;
    void *context; // the host's own

    // Fills `dims`, the first of which is LS_BATCH unless x is a weight or a constant; returns how
    // many there are, 0 for NULL.
    uint32_t (*shape)(const struct ls_composer *composer, const struct ls_tensor *x,
                      int64_t dims[LS_MAX_DIMS]);

    // A variable of the layer; layers only. A layer that is called several times gets the same ones
    // each time, so it must ask for the same ones in the same order.
    struct ls_tensor *(*weight)(const struct ls_composer *composer, const struct ls_weight *weight);

    // Numbers that stay as they are and are not in files of weights; they are copied.
    struct ls_tensor *(*constant)(const struct ls_composer *composer, uint32_t ndims,
                                  const int64_t *dims, const float *values);

    // Any operation of enum ls_op that layers use: not those of losses, metrics and optimizers, and
    // no backward ones. `attributes` may be NULL, and so may optional inputs at the end. `ndims`
    // and `dims`, the shape of the result, are for operations that can make several, such as
    // LS_OP_RESHAPE, else 0 and NULL. The result is the operation's first output.
    struct ls_tensor *(*operation)(const struct ls_composer *composer, uint32_t op,
                                   const struct ls_op_attributes *attributes,
                                   struct ls_tensor *const *inputs, uint32_t input_count,
                                   uint32_t ndims, const int64_t *dims);

    // A function of each element, or softmax over the last dimension: each activation of Keras by
    // its name ("relu", "gelu", "linear"), and "square", "sqrt", "log", "exp", "abs", "negative".
    struct ls_tensor *(*function)(const struct ls_composer *composer, const char *name,
                                  struct ls_tensor *x);

    // Of whole numbers (B,...), int32 or float32: (B,...,classes), 1 where the number is the class,
    // else 0.
    struct ls_tensor *(*one_hot)(const struct ls_composer *composer, struct ls_tensor *x,
                                 int64_t classes);

    // Refuses what was asked for: a line that names the layer, or the loss or metric, then
    // `message`. Returns the status for build to return.
    int32_t (*fail)(const struct ls_composer *composer, const char *message);
};

// ---- Calls that are often needed, in terms of the above ----

// Elements of x and y pair by pair (enum ls_pair_function), shapes as numpy broadcasts them.
static inline struct ls_tensor *ls_compose_pair(const struct ls_composer *composer,
                                                uint32_t function, struct ls_tensor *x,
                                                struct ls_tensor *y)
{
    struct ls_op_attributes attributes;
    struct ls_tensor *inputs[2];
    memset(&attributes, 0, sizeof(attributes));
    attributes.function = function;
    inputs[0] = x;
    inputs[1] = y;
    return x && y ? composer->operation(composer, LS_OP_PAIR, &attributes, inputs, 2, 0, NULL)
                  : NULL;
}

// x + y, shapes as in ls_compose_pair.
static inline struct ls_tensor *ls_compose_add(const struct ls_composer *composer,
                                               struct ls_tensor *x, struct ls_tensor *y)
{
    return ls_compose_pair(composer, LS_PAIR_ADD, x, y);
}

// x - y, shapes as in ls_compose_pair.
static inline struct ls_tensor *ls_compose_subtract(const struct ls_composer *composer,
                                                    struct ls_tensor *x, struct ls_tensor *y)
{
    return ls_compose_pair(composer, LS_PAIR_SUBTRACT, x, y);
}

// x y, shapes as in ls_compose_pair.
static inline struct ls_tensor *ls_compose_multiply(const struct ls_composer *composer,
                                                    struct ls_tensor *x, struct ls_tensor *y)
{
    return ls_compose_pair(composer, LS_PAIR_MULTIPLY, x, y);
}

// x / y, shapes as in ls_compose_pair.
static inline struct ls_tensor *ls_compose_divide(const struct ls_composer *composer,
                                                  struct ls_tensor *x, struct ls_tensor *y)
{
    return ls_compose_pair(composer, LS_PAIR_DIVIDE, x, y);
}

// factor x + offset
static inline struct ls_tensor *ls_compose_scale(const struct ls_composer *composer,
                                                 struct ls_tensor *x, double factor, double offset)
{
    struct ls_op_attributes attributes;
    memset(&attributes, 0, sizeof(attributes));
    attributes.function = LS_SCALE;
    attributes.factor = (float)factor;
    attributes.offset = (float)offset;
    return composer->operation(composer, LS_OP_FUNCTION, &attributes, &x, 1, 0, NULL);
}

// Over each dimension i of which bit i of `dimensions` is set (enum ls_reduce); they stay, as 1.
// The first, the batch, cannot be reduced.
static inline struct ls_tensor *ls_compose_reduce(const struct ls_composer *composer,
                                                  uint32_t function, struct ls_tensor *x,
                                                  uint32_t dimensions)
{
    struct ls_op_attributes attributes;
    memset(&attributes, 0, sizeof(attributes));
    attributes.function = function;
    for (uint32_t i = 0; i < LS_MAX_DIMS; i++)
        attributes.axes[i] = (int32_t)(dimensions >> i & 1);
    return composer->operation(composer, LS_OP_REDUCE, &attributes, &x, 1, 0, NULL);
}

// The bit of the last dimension, for ls_compose_reduce.
static inline uint32_t ls_compose_last(const struct ls_composer *composer,
                                       const struct ls_tensor *x)
{
    int64_t dims[LS_MAX_DIMS];
    const uint32_t ndims = composer->shape(composer, x, dims);
    return ndims ? 1u << (ndims - 1) : 0;
}

// The bits of all dimensions but the batch.
static inline uint32_t ls_compose_all(const struct ls_composer *composer, const struct ls_tensor *x)
{
    int64_t dims[LS_MAX_DIMS];
    const uint32_t ndims = composer->shape(composer, x, dims);
    return ndims ? (1u << ndims) - 2 : 0;
}

// How many elements the last dimension has; 0 for NULL.
static inline int64_t ls_compose_channels(const struct ls_composer *composer,
                                          const struct ls_tensor *x)
{
    int64_t dims[LS_MAX_DIMS];
    const uint32_t ndims = composer->shape(composer, x, dims);
    return ndims ? dims[ndims - 1] : 0;
}

// The same elements in another shape, whose first dimension is LS_BATCH.
static inline struct ls_tensor *ls_compose_reshape(const struct ls_composer *composer,
                                                   struct ls_tensor *x, uint32_t ndims,
                                                   const int64_t *dims)
{
    return composer->operation(composer, LS_OP_RESHAPE, NULL, &x, 1, ndims, dims);
}

// x (B,...,K) times a weight (K,N), plus a weight (N) or, with NULL, nothing.
static inline struct ls_tensor *ls_compose_dense(const struct ls_composer *composer,
                                                 struct ls_tensor *x, struct ls_tensor *kernel,
                                                 struct ls_tensor *bias)
{
    struct ls_tensor *inputs[3];
    inputs[0] = x;
    inputs[1] = kernel;
    inputs[2] = bias;
    return composer->operation(composer, LS_OP_DENSE, NULL, inputs, bias ? 3 : 2, 0, NULL);
}

// Drops elements at this rate while the model is trained; x where composer->training is 0.
static inline struct ls_tensor *ls_compose_dropout(const struct ls_composer *composer,
                                                   struct ls_tensor *x, double rate)
{
    struct ls_op_attributes attributes;
    memset(&attributes, 0, sizeof(attributes));
    attributes.rate = (float)rate;
    return composer->training
               ? composer->operation(composer, LS_OP_DROPOUT, &attributes, &x, 1, 0, NULL)
               : x;
}

// A number, as a tensor that is broadcast.
static inline struct ls_tensor *ls_compose_number(const struct ls_composer *composer, double value)
{
    const int64_t one = 1;
    const float number = (float)value;
    return composer->constant(composer, 1, &one, &number);
}

// fail() with a formatted message.
__attribute__((format(printf, 2, 3))) static inline int32_t ls_compose_fail(
    const struct ls_composer *composer, const char *format, ...)
{
    char text[400];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    return composer->fail(composer, text);
}

#ifdef __cplusplus
}
#endif

#endif
