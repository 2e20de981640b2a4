// SPDX-License-Identifier: Apache-2.0
// The table of operations, and the shapes that they make.
#include "core/graph/operations.h"

#include <string.h>

#define AXES 2
static const char *const axis_names[AXES] = {"rows", "columns"};

static enum ls_status want_image(const struct ls_graph *graph, const struct ls_tensor *x)
{
    if (x->shape.ndims == 4)
        return LS_OK;
    return ls_graph_fail(graph, x, "wants 4 dimensions: batch, rows, columns, channels");
}

// Checks the window along one axis and writes how often it fits.
static enum ls_status infer_axis(const struct ls_graph *graph, const struct ls_tensor *x,
                                 const struct ls_op_attributes *attributes, uint32_t axis,
                                 int64_t kernel, int64_t *out)
{
    const int64_t size = x->shape.dims[1 + axis];
    const int32_t stride = attributes->strides[axis];
    const int32_t dilation = attributes->dilation[axis] > 0 ? attributes->dilation[axis] : 1;
    const int32_t before = attributes->padding[2 * axis], after = attributes->padding[2 * axis + 1];

    if (kernel < 1 || stride < 1)
        return ls_graph_fail(graph, x,
                             "window and stride must be at least 1 along the %s, not %lld and %d",
                             axis_names[axis], (long long)kernel, stride);
    if (before < 0 || after < 0)
        return ls_graph_fail(graph, x, "padding must not be negative along the %s",
                             axis_names[axis]);

    *out = ls_window_count(size, kernel, stride, dilation, before, after);
    if (*out < 1)
        return ls_graph_fail(
            graph, x,
            "a window of %lld %s (dilation %d) does not fit into %lld with padding %d and %d",
            (long long)kernel, axis_names[axis], dilation, (long long)size, before, after);
    return LS_OK;
}

// x (B,H,W,C), w (KH,KW,C/groups,F), [b (F)] -> y (B,OH,OW,F)
static enum ls_status infer_conv2d(const struct ls_graph *graph,
                                   struct ls_op_attributes *attributes,
                                   struct ls_tensor *const *inputs, uint32_t input_count,
                                   const struct ls_shape *output_shape, struct ls_inferred *out)
{
    const struct ls_tensor *x = inputs[0], *w = inputs[1];
    enum ls_status status = want_image(graph, x);
    (void)output_shape;
    if (status)
        return status;
    if (w->shape.ndims != 4)
        return ls_graph_fail(graph, x, "the kernel must have 4 dimensions, not %u", w->shape.ndims);

    const int64_t channels = x->shape.dims[3], filters = w->shape.dims[3],
                  groups = attributes->groups;
    if (attributes->dilation[0] < 1 || attributes->dilation[1] < 1)
        return ls_graph_fail(graph, x, "dilation must be at least 1");
    if (groups < 1 || channels % groups != 0 || filters % groups != 0)
        return ls_graph_fail(graph, x,
                             "%lld channels and %lld filters cannot be split into %lld groups",
                             (long long)channels, (long long)filters, (long long)groups);
    if (w->shape.dims[2] != channels / groups)
        return ls_graph_fail(graph, x, "the kernel wants %lld channels a group, the input has %lld",
                             (long long)w->shape.dims[2], (long long)(channels / groups));
    if (input_count > 2 && (inputs[2]->shape.ndims != 1 || inputs[2]->shape.dims[0] != filters))
        return ls_graph_fail(graph, x, "the bias must have %lld elements", (long long)filters);

    struct ls_shape *y = &out->shapes[0];
    *y = (struct ls_shape){.ndims = 4, .dims = {x->shape.dims[0], 0, 0, filters}};
    for (uint32_t axis = 0; axis < AXES && !status; axis++)
        status = infer_axis(graph, x, attributes, axis, w->shape.dims[axis], &y->dims[1 + axis]);
    return status;
}

// Pooling adds nothing at the border, so every window must hold at least one element.
static enum ls_status infer_pool(const struct ls_graph *graph, struct ls_op_attributes *attributes,
                                 struct ls_tensor *const *inputs, struct ls_inferred *out)
{
    const struct ls_tensor *x = inputs[0];
    enum ls_status status = want_image(graph, x);
    if (status)
        return status;
    memset(attributes->dilation, 0, sizeof(attributes->dilation));

    struct ls_shape *y = &out->shapes[0];
    *y = x->shape;
    for (uint32_t axis = 0; axis < AXES; axis++) {
        const int32_t kernel = attributes->kernel[axis], *padding = &attributes->padding[2 * axis];
        status = infer_axis(graph, x, attributes, axis, kernel, &y->dims[1 + axis]);
        if (status)
            return status;
        if (padding[0] >= kernel || padding[1] >= kernel)
            return ls_graph_fail(graph, x, "padding must be smaller than the window of %d %s",
                                 kernel, axis_names[axis]);
    }
    return LS_OK;
}

// x -> y, saved
static enum ls_status infer_max_pool(const struct ls_graph *graph,
                                     struct ls_op_attributes *attributes,
                                     struct ls_tensor *const *inputs, uint32_t input_count,
                                     const struct ls_shape *output_shape, struct ls_inferred *out)
{
    (void)input_count, (void)output_shape;
    out->count = 2;
    out->roles[1] = LS_ROLE_SAVED;
    out->dtypes[1] = LS_U8;
    return infer_pool(graph, attributes, inputs, out);
}

static enum ls_status infer_average_pool(const struct ls_graph *graph,
                                         struct ls_op_attributes *attributes,
                                         struct ls_tensor *const *inputs, uint32_t input_count,
                                         const struct ls_shape *output_shape,
                                         struct ls_inferred *out)
{
    (void)input_count, (void)output_shape;
    return infer_pool(graph, attributes, inputs, out);
}

// Without a wanted shape the last dimension becomes the units, as Keras's Dense does.
// x, w (K,N), [b (N)] -> y
static enum ls_status infer_dense(const struct ls_graph *graph, struct ls_op_attributes *attributes,
                                  struct ls_tensor *const *inputs, uint32_t input_count,
                                  const struct ls_shape *output_shape, struct ls_inferred *out)
{
    const struct ls_tensor *x = inputs[0], *w = inputs[1];
    (void)attributes;
    if (w->shape.ndims != 2)
        return ls_graph_fail(graph, x, "the kernel must have 2 dimensions, not %u", w->shape.ndims);

    const int64_t k = w->shape.dims[0], n = w->shape.dims[1];
    struct ls_shape y = x->shape;
    y.dims[y.ndims - 1] = n;
    if (!output_shape && (x->shape.ndims < 2 || x->shape.dims[x->shape.ndims - 1] != k))
        return ls_graph_fail(graph, x, "wants %lld as the last dimension", (long long)k);
    if (output_shape)
        y = *output_shape;
    enum ls_status status = ls_graph_check_shape(graph, x, &y);
    if (status)
        return status;

    const int64_t elements = ls_shape_elements(&y, 1);
    if (y.ndims < 2 || y.dims[0] != x->shape.dims[0] || elements % n != 0 ||
        elements / n * k != ls_shape_elements(&x->shape, 1)) {
        char text[128];
        return ls_graph_fail(graph, x, "a kernel of (%lld, %lld) cannot make %s of it",
                             (long long)k, (long long)n, ls_shape_text(&y, text, sizeof(text)));
    }
    if (input_count > 2 && (inputs[2]->shape.ndims != 1 || inputs[2]->shape.dims[0] != n))
        return ls_graph_fail(graph, x, "the bias must have %lld elements", (long long)n);
    out->shapes[0] = y;
    return LS_OK;
}

static enum ls_status infer_activation(const struct ls_graph *graph,
                                       struct ls_op_attributes *attributes,
                                       struct ls_tensor *const *inputs, uint32_t input_count,
                                       const struct ls_shape *output_shape, struct ls_inferred *out)
{
    (void)input_count, (void)output_shape;
    if (attributes->activation >= LS_ACTIVATION_COUNT)
        return ls_graph_fail(graph, inputs[0], "there is no activation number %u",
                             attributes->activation);
    if (attributes->activation == LS_LEAKY_RELU && !(attributes->activation_alpha > 0))
        return ls_graph_fail(graph, inputs[0], "the negative slope must be above 0, not %g",
                             (double)attributes->activation_alpha);
    out->shapes[0] = inputs[0]->shape;
    return LS_OK;
}

static enum ls_status infer_softmax(const struct ls_graph *graph,
                                    struct ls_op_attributes *attributes,
                                    struct ls_tensor *const *inputs, uint32_t input_count,
                                    const struct ls_shape *output_shape, struct ls_inferred *out)
{
    (void)attributes, (void)input_count, (void)output_shape;
    if (inputs[0]->shape.ndims < 2)
        return ls_graph_fail(graph, inputs[0], "softmax wants at least 2 dimensions");
    out->shapes[0] = inputs[0]->shape;
    return LS_OK;
}

static enum ls_status infer_dropout(const struct ls_graph *graph,
                                    struct ls_op_attributes *attributes,
                                    struct ls_tensor *const *inputs, uint32_t input_count,
                                    const struct ls_shape *output_shape, struct ls_inferred *out)
{
    (void)input_count, (void)output_shape;
    if (!(attributes->rate >= 0 && attributes->rate < 1))
        return ls_graph_fail(graph, inputs[0], "rate must be at least 0 and below 1, not %g",
                             (double)attributes->rate);
    out->shapes[0] = inputs[0]->shape;
    return LS_OK;
}

static enum ls_status infer_reshape(const struct ls_graph *graph,
                                    struct ls_op_attributes *attributes,
                                    struct ls_tensor *const *inputs, uint32_t input_count,
                                    const struct ls_shape *output_shape, struct ls_inferred *out)
{
    const struct ls_tensor *x = inputs[0];
    char text[128];
    (void)attributes, (void)input_count;
    if (!output_shape)
        return ls_graph_fail(graph, x, "a reshape needs the shape to make");
    enum ls_status status = ls_graph_check_shape(graph, x, output_shape);
    if (status)
        return status;
    if (output_shape->dims[0] != x->shape.dims[0] ||
        ls_shape_elements(output_shape, 1) != ls_shape_elements(&x->shape, 1))
        return ls_graph_fail(graph, x, "cannot become %s: another number of elements",
                             ls_shape_text(output_shape, text, sizeof(text)));
    out->shapes[0] = *output_shape;
    return LS_OK;
}

static enum ls_status infer_add(const struct ls_graph *graph, struct ls_op_attributes *attributes,
                                struct ls_tensor *const *inputs, uint32_t input_count,
                                const struct ls_shape *output_shape, struct ls_inferred *out)
{
    char text[128];
    (void)attributes, (void)input_count, (void)output_shape;
    if (!ls_shape_equal(&inputs[0]->shape, &inputs[1]->shape))
        return ls_graph_fail(graph, inputs[0], "can only be added to the same shape, not to %s",
                             ls_shape_text(&inputs[1]->shape, text, sizeof(text)));
    out->shapes[0] = inputs[0]->shape;
    return LS_OK;
}

static enum ls_status want_channels(const struct ls_graph *graph, const struct ls_tensor *x,
                                    const struct ls_tensor *vector, const char *name)
{
    const int64_t channels = x->shape.dims[x->shape.ndims - 1];
    if (vector->shape.ndims == 1 && vector->shape.dims[0] == channels)
        return LS_OK;
    return ls_graph_fail(graph, x, "%s must have %lld elements, one a channel", name,
                         (long long)channels);
}

// x, gamma (C), beta (C) -> y, mean (C), variance (C). The addend is left to fusion. Where there is no backward the statistics are
// those of the batch, too: moving ones, and LS_OP_BATCH_NORMALIZATION_INFERENCE with them, come with the layer that has them.
static enum ls_status infer_batch_normalization(const struct ls_graph *graph,
                                                struct ls_op_attributes *attributes,
                                                struct ls_tensor *const *inputs,
                                                uint32_t input_count,
                                                const struct ls_shape *output_shape,
                                                struct ls_inferred *out)
{
    const struct ls_tensor *x = inputs[0];
    (void)input_count, (void)output_shape;
    if (x->shape.ndims < 2)
        return ls_graph_fail(graph, x, "batch normalization wants at least 2 dimensions");
    if (!(attributes->epsilon >= 0))
        return ls_graph_fail(graph, x, "epsilon must not be negative, it is %g",
                             (double)attributes->epsilon);
    enum ls_status status = want_channels(graph, x, inputs[1], "gamma");
    if (!status)
        status = want_channels(graph, x, inputs[2], "beta");
    if (status)
        return status;
    if (inputs[1] == inputs[2]) // its gradient would be the sum of two outputs of one operation
        return ls_graph_fail(graph, x,
                             "gamma and beta must be two variables, not both the same one");

    out->count = 3;
    out->shapes[0] = x->shape;
    for (uint32_t i = 1; i < out->count; i++) {
        out->shapes[i] = inputs[1]->shape;
        out->dtypes[i] = LS_F32;
        out->roles[i] = LS_ROLE_ACTIVATION;
    }
    return LS_OK;
}

#define OP_COUNT (LS_OP_BATCH_NORMALIZATION_INFERENCE + 1)

const struct ls_op_entry ls_op_entries[OP_COUNT] = {
    [LS_OP_NONE] = {"none"},
    [LS_OP_CONV2D] = {"conv2d", 1, 1, 1, infer_conv2d, ls_gradient_of_weighted},
    [LS_OP_CONV2D_BACKWARD_DATA] = {"conv2d_backward_data"},
    [LS_OP_CONV2D_BACKWARD_WEIGHTS] = {"conv2d_backward_weights"},
    [LS_OP_DENSE] = {"dense", 1, 1, 1, infer_dense, ls_gradient_of_weighted},
    [LS_OP_DENSE_BACKWARD_DATA] = {"dense_backward_data"},
    [LS_OP_DENSE_BACKWARD_WEIGHTS] = {"dense_backward_weights"},
    [LS_OP_MAX_POOL2D] = {"max_pool2d", 1, 0, 0, infer_max_pool, ls_gradient_of_max_pool},
    [LS_OP_MAX_POOL2D_BACKWARD] = {"max_pool2d_backward"},
    [LS_OP_AVERAGE_POOL2D] = {"average_pool2d", 1, 0, 0, infer_average_pool,
                              ls_gradient_of_average_pool},
    [LS_OP_AVERAGE_POOL2D_BACKWARD] = {"average_pool2d_backward"},
    [LS_OP_ACTIVATION] = {"activation", 1, 0, 0, infer_activation, ls_gradient_through_output},
    [LS_OP_ACTIVATION_BACKWARD] = {"activation_backward"},
    [LS_OP_SOFTMAX] = {"softmax", 1, 0, 0, infer_softmax, ls_gradient_through_output},
    [LS_OP_SOFTMAX_BACKWARD] = {"softmax_backward"},
    [LS_OP_DROPOUT] = {"dropout", 1, 0, 0, infer_dropout, ls_gradient_of_same_op},
    [LS_OP_RESHAPE] = {"reshape", 1, 0, 0, infer_reshape, ls_gradient_of_same_op},
    [LS_OP_ADD] = {"add", 2, 0, 0, infer_add, ls_gradient_of_add},
    [LS_OP_CONVERT] = {"convert"},
    [LS_OP_SPARSE_CROSS_ENTROPY] = {"sparse_cross_entropy", 2, 0, 0, NULL,
                                    ls_gradient_of_cross_entropy},
    [LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD] = {"sparse_cross_entropy_backward"},
    [LS_OP_MEAN_SQUARED_ERROR] = {"mean_squared_error", 2, 0, 0, NULL,
                                  ls_gradient_of_squared_error},
    [LS_OP_MEAN_SQUARED_ERROR_BACKWARD] = {"mean_squared_error_backward"},
    [LS_OP_SGD_UPDATE] = {"sgd_update"},
    [LS_OP_ADAM_UPDATE] = {"adam_update"},
    [LS_OP_MEASURE] = {"measure"},
    [LS_OP_FROM_BYTES] = {"from_bytes"},
    [LS_OP_GUARD] = {"guard"},
    [LS_OP_BATCH_NORMALIZATION] = {"batch_normalization", 1, 2, 0, infer_batch_normalization,
                                   ls_gradient_of_batch_normalization},
    [LS_OP_BATCH_NORMALIZATION_BACKWARD] = {"batch_normalization_backward"},
    [LS_OP_BATCH_NORMALIZATION_INFERENCE] = {"batch_normalization_inference"},
};

const struct ls_op_entry *ls_op_entry(uint32_t op)
{
    return op < OP_COUNT ? &ls_op_entries[op] : NULL;
}
