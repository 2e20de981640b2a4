// SPDX-License-Identifier: Apache-2.0
// Layers of volumes (B, D, H, W, C), one dimension at a time: pooling by windows and to a given
// size, which images and sequences have, too; repetition. What comes before a dimension is
// seen as rows of an image, and what comes behind it as channels, so that the operations of images
// do it.
#include "layers/convolution.h"

static const char *const pool_keys[] = {"pool_size", "strides", "padding", "data_format", NULL};
static const char *const global_keys[] = {"data_format", "keepdims", NULL};
static const char *const adaptive_keys[] = {"output_size", "data_format", NULL};
static const char *const size_keys[] = {"size", "data_format", NULL};

// Dimension `axis` of x as the columns of an image (B, before, size, behind).
static enum ls_status as_image(struct ls_graph *graph, struct ls_tensor *x, uint32_t axis,
                               struct ls_tensor **out)
{
    struct ls_shape image = {.ndims = 4, .dims = {LS_BATCH, 1, x->shape.dims[axis], 1}};
    for (uint32_t i = 1; i < x->shape.ndims; i++)
        if (i != axis)
            image.dims[i < axis ? 1 : 3] *= x->shape.dims[i];
    return ls_add_reshape(graph, x, &image, out);
}

// The image back in the dimensions of x, but for `axis`.
static enum ls_status as_before(struct ls_graph *graph, const struct ls_tensor *x, uint32_t axis,
                                struct ls_tensor *image, struct ls_tensor **out)
{
    struct ls_shape shape = x->shape;
    shape.dims[axis] = image->shape.dims[2];
    return ls_add_reshape(graph, image, &shape, out);
}

// An operation of images along one dimension.
static enum ls_status along(struct ls_graph *graph, uint32_t op,
                            const struct ls_op_attributes *attributes, struct ls_tensor *x,
                            uint32_t axis, struct ls_tensor **out)
{
    struct ls_tensor *image;
    enum ls_status status = as_image(graph, x, axis, &image);
    if (!status)
        status = ls_graph_add(graph, op, attributes, &image, 1, NULL, &image);
    return status ? status : as_before(graph, x, axis, image, out);
}

static enum ls_status check_volume(const struct ls_graph *graph, const struct ls_tensor *x)
{
    return x->shape.ndims == 5
               ? LS_OK
               : ls_graph_fail(graph, x, "expected 5 dimensions: batch, three of space, channels");
}

// ---- Windows ----

static enum ls_status build_windows(struct ls_graph *graph, const struct ls_layer_call *call,
                                    struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);
    int32_t window[3], strides[3];
    const json_t *given = json_object_get(call->config, "strides");

    ls_config_sizes(&c, "pool_size", 3, 2, window);
    for (int i = 0; i < 3; i++)
        strides[i] = window[i];
    if (given && !json_is_null(given))
        ls_config_sizes(&c, "strides", 3, 1, strides);
    const bool same = ls_config_padding_same(&c);
    ls_config_data_format(&c);
    if (c.status || !x)
        return c.status;
    enum ls_status status = check_volume(graph, x);
    // The last dimension first, so that of equal elements the first one in memory is the largest.
    for (uint32_t i = 3; i-- > 0 && !status;) {
        struct ls_op_attributes attributes = {.kernel = {1, window[i]}, .strides = {1, strides[i]}};
        const int64_t size = x->shape.dims[1 + i];
        if (same)
            ls_same_padding(size, window[i], strides[i], 1, &attributes.padding[2],
                            &attributes.padding[3]);
        else if (size < window[i])
            return ls_graph_fail(graph, x,
                                 "pool_size: expected at least %d along dimension %u with padding "
                                 "\"valid\"",
                                 window[i], 1 + i);
        status = along(graph, call->kind->function, &attributes, x, 1 + i, &x);
    }
    *outputs = x;
    return status;
}

// ---- One number a channel ----

static enum ls_status build_global(struct ls_graph *graph, const struct ls_layer_call *call,
                                   struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);
    const bool keeps = ls_config_boolean(&c, "keepdims", false);

    ls_config_data_format(&c);
    if (c.status || !x)
        return c.status;
    enum ls_status status = check_volume(graph, x);
    if (!status)
        status = ls_add_reduction(graph, call->kind->function, 1u << 1 | 1u << 2 | 1u << 3, x, &x);
    if (status)
        return status;
    const struct ls_shape flat = {.ndims = 2, .dims = {LS_BATCH, x->shape.dims[4]}};
    return ls_add_reshape(graph, x, keeps ? &x->shape : &flat, outputs);
}

// ---- To a given size: piece i of n goes from floor(i size / n) to ceil((i + 1) size / n) ----

static enum ls_status pool_pieces(struct ls_graph *graph, uint32_t op, int64_t pieces,
                                  struct ls_tensor *x, uint32_t axis, struct ls_tensor **out)
{
    const int64_t size = x->shape.dims[axis];
    struct ls_tensor *image, *made[LS_LAYER_INPUTS];
    enum ls_status status = as_image(graph, x, axis, &image);

    if (pieces > LS_LAYER_INPUTS)
        return ls_graph_fail(graph, x, "output_size: at most %d where it does not divide %lld",
                             LS_LAYER_INPUTS, (long long)size);
    for (int64_t i = 0; i < pieces && !status; i++) {
        const int64_t begin = i * size / pieces, end = ((i + 1) * size + pieces - 1) / pieces;
        const struct ls_op_attributes from = {.axes = {0, 0, (int32_t)begin}};
        struct ls_shape part = image->shape;
        part.dims[2] = end - begin;
        status = ls_graph_add(graph, LS_OP_SLICE, &from, &image, 1, &part, &made[i]);
        if (!status)
            status = ls_add_reduction(
                graph, op == LS_OP_MAX_POOL2D ? LS_REDUCE_TO_MAXIMUM : LS_REDUCE_TO_MEAN, 1u << 2,
                made[i], &made[i]);
    }
    if (!status)
        status = ls_add_concatenation(graph, made, (uint32_t)pieces, 2, &image);
    return status ? status : as_before(graph, x, axis, image, out);
}

static enum ls_status build_adaptive(struct ls_graph *graph, const struct ls_layer_call *call,
                                     struct ls_tensor **outputs)
{
    const uint32_t axes = call->kind->axes, op = call->kind->function;
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);
    enum ls_status status = LS_OK;
    int32_t sizes[3];

    ls_config_sizes(&c, "output_size", axes, 0, sizes);
    ls_config_data_format(&c);
    if (c.status || !x)
        return c.status;
    if (x->shape.ndims != axes + 2)
        return ls_graph_fail(graph, x, "expected %u dimensions: batch, %u of space, channels",
                             axes + 2, axes);
    for (uint32_t i = 0; i < axes && !status; i++) {
        const int64_t size = x->shape.dims[1 + i], window = size / sizes[i];
        const struct ls_op_attributes attributes = {.kernel = {1, (int32_t)window},
                                                    .strides = {1, (int32_t)window}};
        status = size % sizes[i] == 0 ? along(graph, op, &attributes, x, 1 + i, &x)
                                      : pool_pieces(graph, op, sizes[i], x, 1 + i, &x);
    }
    *outputs = x;
    return status;
}

// ---- Repetition ----

static enum ls_status build_up_sampling(struct ls_graph *graph, const struct ls_layer_call *call,
                                        struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);
    int32_t times[3];

    ls_config_sizes(&c, "size", 3, 2, times);
    ls_config_data_format(&c);
    if (c.status || !x)
        return c.status;
    enum ls_status status = check_volume(graph, x);
    for (uint32_t i = 0; i < 3 && !status; i++) {
        const struct ls_op_attributes attributes = {.strides = {1, times[i]},
                                                    .function = LS_UPSAMPLE_NEAREST};
        status = along(graph, LS_OP_UPSAMPLE2D, &attributes, x, 1 + i, &x);
    }
    *outputs = x;
    return status;
}

const struct ls_layer_kind ls_layer_max_pooling3d = {
    .class_name = "MaxPooling3D",
    .summary = "the largest element of each window of a volume",
    .keys = pool_keys,
    .function = LS_OP_MAX_POOL2D,
    .build = build_windows,
};

const struct ls_layer_kind ls_layer_average_pooling3d = {
    .class_name = "AveragePooling3D",
    .summary = "the mean of each window of a volume",
    .keys = pool_keys,
    .function = LS_OP_AVERAGE_POOL2D,
    .build = build_windows,
};

const struct ls_layer_kind ls_layer_global_max_pooling3d = {
    .class_name = "GlobalMaxPooling3D",
    .summary = "the largest element of each channel of a volume",
    .keys = global_keys,
    .function = LS_REDUCE_TO_MAXIMUM,
    .build = build_global,
};

const struct ls_layer_kind ls_layer_global_average_pooling3d = {
    .class_name = "GlobalAveragePooling3D",
    .summary = "the mean of each channel of a volume",
    .keys = global_keys,
    .function = LS_REDUCE_TO_MEAN,
    .build = build_global,
};

const struct ls_layer_kind ls_layer_adaptive_average_pooling1d = {
    .class_name = "AdaptiveAveragePooling1D",
    .summary = "the means of as many pieces of a sequence as asked for",
    .keys = adaptive_keys,
    .axes = 1,
    .function = LS_OP_AVERAGE_POOL2D,
    .build = build_adaptive,
};

const struct ls_layer_kind ls_layer_adaptive_max_pooling1d = {
    .class_name = "AdaptiveMaxPooling1D",
    .summary = "the largest elements of as many pieces of a sequence as asked for",
    .keys = adaptive_keys,
    .axes = 1,
    .function = LS_OP_MAX_POOL2D,
    .build = build_adaptive,
};

const struct ls_layer_kind ls_layer_adaptive_average_pooling2d = {
    .class_name = "AdaptiveAveragePooling2D",
    .summary = "the means of as many pieces of an image as asked for",
    .keys = adaptive_keys,
    .axes = 2,
    .function = LS_OP_AVERAGE_POOL2D,
    .build = build_adaptive,
};

const struct ls_layer_kind ls_layer_adaptive_max_pooling2d = {
    .class_name = "AdaptiveMaxPooling2D",
    .summary = "the largest elements of as many pieces of an image as asked for",
    .keys = adaptive_keys,
    .axes = 2,
    .function = LS_OP_MAX_POOL2D,
    .build = build_adaptive,
};

const struct ls_layer_kind ls_layer_adaptive_average_pooling3d = {
    .class_name = "AdaptiveAveragePooling3D",
    .summary = "the means of as many pieces of a volume as asked for",
    .keys = adaptive_keys,
    .axes = 3,
    .function = LS_OP_AVERAGE_POOL2D,
    .build = build_adaptive,
};

const struct ls_layer_kind ls_layer_adaptive_max_pooling3d = {
    .class_name = "AdaptiveMaxPooling3D",
    .summary = "the largest elements of as many pieces of a volume as asked for",
    .keys = adaptive_keys,
    .axes = 3,
    .function = LS_OP_MAX_POOL2D,
    .build = build_adaptive,
};

const struct ls_layer_kind ls_layer_up_sampling3d = {
    .class_name = "UpSampling3D",
    .summary = "each element of a volume several times",
    .keys = size_keys,
    .build = build_up_sampling,
};
