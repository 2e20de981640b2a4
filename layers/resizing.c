// SPDX-License-Identifier: Apache-2.0
// Resizing makes images of another size, CenterCrop takes their middle.
#include "layers/kinds.h"

#include <float.h>

static const char *const resizing_keys[] = {
    "height",    "width",      "interpolation", "crop_to_aspect_ratio", "pad_to_aspect_ratio",
    "fill_mode", "fill_value", "antialias",     "data_format",          NULL};
static const char *const crop_keys[] = {"height", "width", "data_format", NULL};

// ---- Windows of an image ----

// Rows and columns from..from + size of x, or around x with zeros where `pad` is set.
static enum ls_status add_window(struct ls_graph *graph, bool pad, const int64_t from[2],
                                 const int64_t size[2], struct ls_tensor *x, struct ls_tensor **out)
{
    const struct ls_op_attributes attributes = {.axes = {0, (int32_t)from[0], (int32_t)from[1]}};
    struct ls_shape shape = x->shape;
    *out = x;
    shape.dims[1] = size[0];
    shape.dims[2] = size[1];
    return ls_shape_equal(&shape, &x->shape) ? LS_OK
                                             : ls_graph_add(graph, pad ? LS_OP_PAD : LS_OP_SLICE,
                                                            &attributes, &x, 1, &shape, out);
}

static enum ls_status add_resize(struct ls_graph *graph, uint32_t function, const int64_t size[2],
                                 struct ls_tensor *x, struct ls_tensor **out)
{
    const struct ls_op_attributes attributes = {.function = function};
    struct ls_shape shape = x->shape;
    *out = x;
    shape.dims[1] = size[0];
    shape.dims[2] = size[1];
    return ls_shape_equal(&shape, &x->shape)
               ? LS_OK
               : ls_graph_add(graph, LS_OP_RESIZE2D, &attributes, &x, 1, &shape, out);
}

// One side of an image of `size` that has its other side, and the ratio of the sides of `to`.
static int64_t other_side(const int64_t size[2], const int64_t to[2], int axis)
{
    return (int64_t)((double)size[1 - axis] * (double)to[axis] / (double)to[1 - axis]);
}

// The largest window in the middle that has the ratio of rows to columns of `to`.
static enum ls_status add_middle(struct ls_graph *graph, const int64_t to[2], struct ls_tensor *x,
                                 struct ls_tensor **out)
{
    const int64_t *size = x->shape.dims + 1;
    int64_t from[2], window[2];
    for (int axis = 0; axis < 2; axis++) {
        const int64_t side = other_side(size, to, axis);
        window[axis] = side < 1 ? 1 : side < size[axis] ? side : size[axis];
        from[axis] = (size[axis] - window[axis]) / 2;
    }
    return add_window(graph, false, from, window, x, out);
}

enum ls_status ls_add_fitted(struct ls_graph *graph, uint32_t function, const int64_t to[2],
                             struct ls_tensor *x, struct ls_tensor **out)
{
    const enum ls_status status = add_middle(graph, to, x, out);
    return status ? status : add_resize(graph, function, to, *out, out);
}

// As many rows or columns of `value` on both sides as give x the ratio of `to`.
static enum ls_status add_padding(struct ls_graph *graph, const int64_t to[2], double value,
                                  struct ls_tensor *x, struct ls_tensor **out)
{
    const int64_t *size = x->shape.dims + 1;
    int64_t from[2], padded[2];
    for (int axis = 0; axis < 2; axis++) {
        const int64_t side = other_side(size, to, axis);
        from[axis] = side > size[axis] ? (side - size[axis]) / 2 : 0;
        padded[axis] = size[axis] + 2 * from[axis];
    }
    enum ls_status status = ls_add_scale(graph, 1, -value, x, &x); // PAD has zeros
    if (!status)
        status = add_window(graph, true, from, padded, x, out);
    return status ? status : ls_add_scale(graph, 1, value, *out, out);
}

void ls_config_size(struct ls_config *config, int64_t out[2])
{
    out[0] = ls_config_integer(config, "height", 1, LS_CONFIG_WINDOW, LS_CONFIG_NONE);
    out[1] = ls_config_integer(config, "width", 1, LS_CONFIG_WINDOW, LS_CONFIG_NONE);
    ls_config_data_format(config);
}

bool ls_is_image(const struct ls_graph *graph, const struct ls_tensor *x)
{
    return x->shape.ndims == 4 ||
           ls_graph_fail(graph, x, "expected 4 dimensions: batch, rows, columns, channels") ==
               LS_OK;
}

// ---- Layers ----

// x: (B, H, W, C) -> (B, height, width, C)
static enum ls_status build_resizing(struct ls_graph *graph, const struct ls_layer_call *call,
                                     struct ls_tensor **outputs)
{
    static const char *const names[] = {"nearest", "bilinear", NULL};
    static const char *const fills[] = {"constant", NULL};
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);
    int64_t size[2];

    ls_config_size(&c, size);
    const uint32_t function = ls_config_choice(&c, "interpolation", names, LS_UPSAMPLE_BILINEAR);
    const bool crop = ls_config_boolean(&c, "crop_to_aspect_ratio", false);
    const bool pad = ls_config_boolean(&c, "pad_to_aspect_ratio", false);
    const double value = ls_config_number(&c, "fill_value", -FLT_MAX, FLT_MAX, 0);
    ls_config_choice(&c, "fill_mode", fills, 0);
    if (ls_config_boolean(&c, "antialias", false))
        ls_config_fail(&c, "antialias", "expected false: smaller images are not smoothed first");
    if (crop && pad)
        ls_config_fail(&c, "pad_to_aspect_ratio", "crop_to_aspect_ratio is true, too");
    if (c.status || !x)
        return c.status;
    if (!ls_is_image(graph, x))
        return LS_BAD_INPUT;
    if (crop)
        return ls_add_fitted(graph, function, size, x, outputs);
    const enum ls_status status = pad ? add_padding(graph, size, value, x, &x) : LS_OK;
    return status ? status : add_resize(graph, function, size, x, outputs);
}

// The middle of x, or where it is too small what is largest of its ratio, made larger.
static enum ls_status build_center_crop(struct ls_graph *graph, const struct ls_layer_call *call,
                                        struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);
    int64_t size[2];

    ls_config_size(&c, size);
    if (c.status || !x)
        return c.status;
    if (!ls_is_image(graph, x))
        return LS_BAD_INPUT;
    const int64_t more[2] = {x->shape.dims[1] - size[0], x->shape.dims[2] - size[1]};
    if (more[0] < 0 || more[1] < 0)
        return ls_add_fitted(graph, LS_UPSAMPLE_BILINEAR, size, x, outputs);
    return add_window(graph, false, (const int64_t[]){more[0] / 2, more[1] / 2}, size, x, outputs);
}

const struct ls_layer_kind ls_layer_resizing = {
    .class_name = "Resizing",
    .summary = "images of another size",
    .keys = resizing_keys,
    .says_training = true,
    .build = build_resizing,
};

const struct ls_layer_kind ls_layer_center_crop = {
    .class_name = "CenterCrop",
    .summary = "the middle of an image",
    .keys = crop_keys,
    .says_training = true,
    .build = build_center_crop,
};
