// SPDX-License-Identifier: Apache-2.0
// Layers of volumes (B, D, H, W, C), one dimension at a time: pooling by windows and to a given
// size, which images and sequences have, too; borders; repetition. What comes before a dimension is
// seen as rows of an image, and what comes behind it as channels, so that the operations of images
// do it.
#include "layers/convolution.h"

static const char *const pool_keys[] = {"pool_size", "strides", "padding", "data_format", NULL};
static const char *const global_keys[] = {"data_format", "keepdims", NULL};
static const char *const adaptive_keys[] = {"output_size", "data_format", NULL};
static const char *const padding_keys[] = {"padding", "data_format", NULL};
static const char *const cropping_keys[] = {"cropping", "data_format", NULL};
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

static enum ls_status pool(struct ls_graph *graph, const struct ls_layer_call *call, uint32_t op,
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
        status = along(graph, op, &attributes, x, 1 + i, &x);
    }
    *outputs = x;
    return status;
}

static enum ls_status build_max(struct ls_graph *graph, const struct ls_layer_call *call,
                                struct ls_tensor **outputs)
{
    return pool(graph, call, LS_OP_MAX_POOL2D, outputs);
}

static enum ls_status build_average(struct ls_graph *graph, const struct ls_layer_call *call,
                                    struct ls_tensor **outputs)
{
    return pool(graph, call, LS_OP_AVERAGE_POOL2D, outputs);
}

// ---- One number a channel ----

static enum ls_status pool_all(struct ls_graph *graph, const struct ls_layer_call *call,
                               uint32_t function, struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);
    const bool keeps = ls_config_boolean(&c, "keepdims", false);

    ls_config_data_format(&c);
    if (c.status || !x)
        return c.status;
    enum ls_status status = check_volume(graph, x);
    if (!status)
        status = ls_add_reduction(graph, function, 1u << 1 | 1u << 2 | 1u << 3, x, &x);
    if (status)
        return status;
    const struct ls_shape flat = {.ndims = 2, .dims = {LS_BATCH, x->shape.dims[4]}};
    return ls_add_reshape(graph, x, keeps ? &x->shape : &flat, outputs);
}

static enum ls_status build_global_max(struct ls_graph *graph, const struct ls_layer_call *call,
                                       struct ls_tensor **outputs)
{
    return pool_all(graph, call, LS_REDUCE_TO_MAXIMUM, outputs);
}

static enum ls_status build_global_average(struct ls_graph *graph, const struct ls_layer_call *call,
                                           struct ls_tensor **outputs)
{
    return pool_all(graph, call, LS_REDUCE_TO_MEAN, outputs);
}

// ---- To a given size: piece i of n goes from floor(i size / n) to ceil((i + 1) size / n) ----

static enum ls_status pool_pieces(struct ls_graph *graph, bool largest, int64_t pieces,
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
            status = ls_add_reduction(graph, largest ? LS_REDUCE_TO_MAXIMUM : LS_REDUCE_TO_MEAN,
                                      1u << 2, made[i], &made[i]);
    }
    if (!status)
        status = ls_add_concatenation(graph, made, (uint32_t)pieces, 2, &image);
    return status ? status : as_before(graph, x, axis, image, out);
}

static enum ls_status adapt(struct ls_graph *graph, const struct ls_layer_call *call, uint32_t axes,
                            bool largest, struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);
    const uint32_t op = largest ? LS_OP_MAX_POOL2D : LS_OP_AVERAGE_POOL2D;
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
                                      : pool_pieces(graph, largest, sizes[i], x, 1 + i, &x);
    }
    *outputs = x;
    return status;
}

#define ADAPTIVE(axes, name, largest)                                                         \
    static enum ls_status build_adaptive_##name##axes(                                        \
        struct ls_graph *graph, const struct ls_layer_call *call, struct ls_tensor **outputs) \
    {                                                                                         \
        return adapt(graph, call, axes, largest, outputs);                                    \
    }
ADAPTIVE(1, average, false)
ADAPTIVE(2, average, false)
ADAPTIVE(3, average, false)
ADAPTIVE(1, max, true)
ADAPTIVE(2, max, true)
ADAPTIVE(3, max, true)

// ---- Borders: before and behind each dimension, one number for all, three, or three pairs ----

static void read_borders(struct ls_config *c, const char *key, int32_t missing, int64_t out[3][2])
{
    const json_t *value = json_object_get(c->object, key);
    const bool list = json_is_array(value);
    bool right = !value || (list ? json_array_size(value) == 3 : json_is_integer(value));
    char text[64];

    for (size_t i = 0; i < 6; i++) {
        const json_t *side = list ? json_array_get(value, i / 2) : value;
        if (json_is_array(side)) {
            right = right && json_array_size(side) == 2;
            side = json_array_get(side, i % 2);
        }
        const json_int_t number = side ? json_integer_value(side) : missing;
        right =
            right && (!side || json_is_integer(side)) && number >= 0 && number <= LS_CONFIG_WINDOW;
        out[i / 2][i % 2] = right ? number : 0;
    }
    if (!right)
        ls_config_fail(c, key, "expected a number from 0, three of them, or three pairs, got %s",
                       ls_json_text(value, text, sizeof(text)));
}

static enum ls_status change_borders(struct ls_graph *graph, const struct ls_layer_call *call,
                                     const char *key, int32_t missing, int sign,
                                     struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);
    struct ls_op_attributes attributes = {0};
    int64_t borders[3][2];

    read_borders(&c, key, missing, borders);
    ls_config_data_format(&c);
    if (c.status || !x)
        return c.status;
    const enum ls_status status = check_volume(graph, x);
    if (status)
        return status;
    struct ls_shape shape = x->shape;
    for (int i = 0; i < 3; i++) {
        attributes.axes[1 + i] = (int32_t)borders[i][0];
        shape.dims[1 + i] += sign * (borders[i][0] + borders[i][1]);
        if (shape.dims[1 + i] < 1)
            return ls_graph_fail(graph, x, "%s: nothing remains of dimension %d", key, 1 + i);
    }
    *outputs = x;
    return ls_shape_equal(&shape, &x->shape)
               ? LS_OK
               : ls_graph_add(graph, sign > 0 ? LS_OP_PAD : LS_OP_SLICE, &attributes, &x, 1, &shape,
                              outputs);
}

static enum ls_status build_padding(struct ls_graph *graph, const struct ls_layer_call *call,
                                    struct ls_tensor **outputs)
{
    return change_borders(graph, call, "padding", 1, 1, outputs);
}

static enum ls_status build_cropping(struct ls_graph *graph, const struct ls_layer_call *call,
                                     struct ls_tensor **outputs)
{
    return change_borders(graph, call, "cropping", 1, -1, outputs);
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
    .build = build_max,
};

const struct ls_layer_kind ls_layer_average_pooling3d = {
    .class_name = "AveragePooling3D",
    .summary = "the mean of each window of a volume",
    .keys = pool_keys,
    .build = build_average,
};

const struct ls_layer_kind ls_layer_global_max_pooling3d = {
    .class_name = "GlobalMaxPooling3D",
    .summary = "the largest element of each channel of a volume",
    .keys = global_keys,
    .build = build_global_max,
};

const struct ls_layer_kind ls_layer_global_average_pooling3d = {
    .class_name = "GlobalAveragePooling3D",
    .summary = "the mean of each channel of a volume",
    .keys = global_keys,
    .build = build_global_average,
};

const struct ls_layer_kind ls_layer_adaptive_average_pooling1d = {
    .class_name = "AdaptiveAveragePooling1D",
    .summary = "the means of as many pieces of a sequence as asked for",
    .keys = adaptive_keys,
    .build = build_adaptive_average1,
};

const struct ls_layer_kind ls_layer_adaptive_max_pooling1d = {
    .class_name = "AdaptiveMaxPooling1D",
    .summary = "the largest elements of as many pieces of a sequence as asked for",
    .keys = adaptive_keys,
    .build = build_adaptive_max1,
};

const struct ls_layer_kind ls_layer_adaptive_average_pooling2d = {
    .class_name = "AdaptiveAveragePooling2D",
    .summary = "the means of as many pieces of an image as asked for",
    .keys = adaptive_keys,
    .build = build_adaptive_average2,
};

const struct ls_layer_kind ls_layer_adaptive_max_pooling2d = {
    .class_name = "AdaptiveMaxPooling2D",
    .summary = "the largest elements of as many pieces of an image as asked for",
    .keys = adaptive_keys,
    .build = build_adaptive_max2,
};

const struct ls_layer_kind ls_layer_adaptive_average_pooling3d = {
    .class_name = "AdaptiveAveragePooling3D",
    .summary = "the means of as many pieces of a volume as asked for",
    .keys = adaptive_keys,
    .build = build_adaptive_average3,
};

const struct ls_layer_kind ls_layer_adaptive_max_pooling3d = {
    .class_name = "AdaptiveMaxPooling3D",
    .summary = "the largest elements of as many pieces of a volume as asked for",
    .keys = adaptive_keys,
    .build = build_adaptive_max3,
};

const struct ls_layer_kind ls_layer_zero_padding3d = {
    .class_name = "ZeroPadding3D",
    .summary = "zeros around a volume",
    .keys = padding_keys,
    .build = build_padding,
};

const struct ls_layer_kind ls_layer_cropping3d = {
    .class_name = "Cropping3D",
    .summary = "a volume without its outer elements",
    .keys = cropping_keys,
    .build = build_cropping,
};

const struct ls_layer_kind ls_layer_up_sampling3d = {
    .class_name = "UpSampling3D",
    .summary = "each element of a volume several times",
    .keys = size_keys,
    .build = build_up_sampling,
};
