// SPDX-License-Identifier: Apache-2.0
// What layers, losses and metrics of your own are composed of: the operations of
// core/plugin/operations.h on tensors of the model's graph. Gradients, mixed precision and fusion
// follow from the operations, and every device that has the operations can run the model.
//
// A `build` function runs once, when a model is made, and composes with the table that it gets:
//
//     struct ls_tensor *scores = ls_compose_dense(composer, x, kernel, NULL);
//     struct ls_tensor *gate = composer->function(composer, "sigmoid", scores);
//     outputs[0] = ls_compose_multiply(composer, x, gate);
//     return LS_OK;
//
// A call that fails logs why and returns NULL, and a call that gets NULL returns NULL. So a build
// function need not check each result. It may return LS_OK all the same; the host knows.
#ifndef LS_PLUGIN_COMPOSE_H
#define LS_PLUGIN_COMPOSE_H

#include "core/plugin/device.h"

#ifdef __cplusplus
extern "C" {
#endif

// The first dimension of every tensor that has a row for each example; its size is not known yet.
#define LS_BATCH INT64_C(-1)

struct ls_tensor; // a tensor of the graph, or a weight; the host's own

// A variable of a layer.
struct ls_weight {
    const char *name; // "kernel": in files of weights it is LAYER/kernel
    uint32_t ndims; // at least 1
    uint32_t frozen; // 1: gradients do not change it
    int64_t dims[LS_MAX_DIMS]; // `ndims` of them, each at least 1
    // As in Keras: "glorot_uniform", "constant:value=0.1", or the value of an option. NULL:
    // "glorot_uniform".
    const char *initializer;
};

// The calls that a build function gets, valid until it returns. [main thread]
struct ls_composer {
    uint32_t struct_size;
    // 0: this call of the layer acts as in predictions (training=False), even when the model is
    // trained. 1: dropout and noise act in training, and in predictions they do nothing by
    // themselves.
    uint32_t training;
    void *context; // the host's own

    // Fills in `dims`, the first of which is LS_BATCH unless x is a weight or a constant. Returns
    // the number of dimensions; 0 for NULL.
    uint32_t (*shape)(const struct ls_composer *composer, const struct ls_tensor *x,
                      int64_t dims[LS_MAX_DIMS]);

    // A variable of the layer; layers only. A layer that is called several times gets the same
    // variables each time, so it must ask for the same ones in the same order.
    struct ls_tensor *(*weight)(const struct ls_composer *composer, const struct ls_weight *weight);

    // A tensor of numbers that never change, and that are not in files of weights. They are copied.
    struct ls_tensor *(*constant)(const struct ls_composer *composer, uint32_t ndims,
                                  const int64_t *dims, const float *values);

    // Adds an operation of enum ls_op, and returns its first output. Operations of losses, metrics
    // and optimizers and backward operations are refused. `attributes` may be NULL, and so may
    // optional inputs at the end. `ndims` and `dims` are the shape of the result for operations
    // that do not determine it, such as LS_OP_RESHAPE; else 0 and NULL.
    struct ls_tensor *(*operation)(const struct ls_composer *composer, uint32_t op,
                                   const struct ls_op_attributes *attributes,
                                   struct ls_tensor *const *inputs, uint32_t input_count,
                                   uint32_t ndims, const int64_t *dims);

    // A function of each element, or softmax over the last dimension, by name: all activations of
    // Keras ("relu", "gelu", "linear"), and "square", "sqrt", "log", "exp", "abs", "negative".
    struct ls_tensor *(*function)(const struct ls_composer *composer, const char *name,
                                  struct ls_tensor *x);

    // x has whole numbers (B,...), int32 or float32. The result, (B,...,classes), is 1 where the
    // number is the class, else 0.
    struct ls_tensor *(*one_hot)(const struct ls_composer *composer, struct ls_tensor *x,
                                 int64_t classes);

    // Refuses the layer, loss or metric: logs a line with its name and `message`. Returns the
    // status that build then returns.
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

// Reduces (enum ls_reduce) each dimension i whose bit i is set in `dimensions`; it stays, with size
// 1. The first one, the batch, cannot be reduced.
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

// The bits of all dimensions except the batch, for ls_compose_reduce.
static inline uint32_t ls_compose_all(const struct ls_composer *composer, const struct ls_tensor *x)
{
    int64_t dims[LS_MAX_DIMS];
    const uint32_t ndims = composer->shape(composer, x, dims);
    return ndims ? (1u << ndims) - 2 : 0;
}

// The size of the last dimension; 0 for NULL.
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

// Drops elements at this rate while the model is trained; returns x if composer->training is 0.
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
