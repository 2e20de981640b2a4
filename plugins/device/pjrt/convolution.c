// SPDX-License-Identifier: Apache-2.0
// Convolutions of images and volumes. Each of the six operations is one of three products of x
// (B,H,W,C), w (KH,KW,C/groups,F) and y (B,OH,OW,F), with planes before the rows of volumes: y from
// x and w, x from y and w, w from x and y; all three are convolutions for XLA.
#include "core/plugin/window.h"
#include "plugins/device/pjrt/operations.h"

enum { SPACE = 3 }; // at most: planes, rows, columns

// The window of an XLA convolution.
struct window {
    uint32_t space;
    int64_t stride[SPACE], low[SPACE], high[SPACE], left_dilation[SPACE], right_dilation[SPACE];
};

// How the operation's window moves along dimension `axis` of `space`.
static struct ls_moves moves_of(const struct ls_op_attributes *a, uint32_t space, uint32_t axis)
{
    struct ls_moves moves = ls_moves_along(a, space, axis);
    if (moves.dilation < 1)
        moves.dilation = 1;
    return moves;
}

static int64_t groups_of(const struct ls_op_attributes *a)
{
    return a->groups > 0 ? a->groups : 1;
}

// "name = [2, 1]"
static void print_numbers(struct hlo *h, const char *name, const int64_t *numbers, uint32_t count)
{
    hlo_print(h, "%s = [", name);
    for (uint32_t i = 0; i < count; i++)
        hlo_print(h, "%s%lld", i > 0 ? ", " : "", (long long)numbers[i]);
    hlo_print(h, "]");
}

static void print_window(struct hlo *h, const struct window *w)
{
    print_numbers(h, "window = {stride", w->stride, w->space);
    hlo_print(h, ", pad = [");
    for (uint32_t i = 0; i < w->space; i++)
        hlo_print(h, "%s[%lld, %lld]", i > 0 ? ", " : "", (long long)w->low[i],
                  (long long)w->high[i]);
    print_numbers(h, "], lhs_dilate", w->left_dilation, w->space);
    print_numbers(h, ", rhs_dilate", w->right_dilation, w->space);
    hlo_print(h, "}");
}

// `dimensions` are of the three tensors, by the number of dimensions of space.
static struct hlo_value convolution(struct hlo *h, struct hlo_value a, struct hlo_value b,
                                    const char *const dimensions[2], const struct window *w,
                                    int64_t feature_groups, int64_t batch_groups,
                                    struct hlo_shape shape)
{
    const struct hlo_value y = hlo_new(h, a.type, shape);
    hlo_print(h, "%%%u = stablehlo.convolution(%%%u, %%%u) dim_numbers = %s, ", y.id, a.id, b.id,
              dimensions[w->space - 2]);
    print_window(h, w);
    hlo_print(h,
              " {batch_group_count = %lld : i64, feature_group_count = %lld : i64, "
              "precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} "
              ": (",
              (long long)batch_groups, (long long)feature_groups);
    hlo_print_type(h, &a);
    hlo_print(h, ", ");
    hlo_print_type(h, &b);
    hlo_print(h, ") -> ");
    hlo_print_type(h, &y);
    hlo_print(h, "\n");
    return y;
}

static const char *const with_kernel[] = {"[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]",
                                          "[b, 0, 1, 2, f]x[0, 1, 2, i, o]->[b, 0, 1, 2, f]"};

// x, w -> y
static struct hlo_value forward(struct pjrt_call *call, struct hlo_value x, struct hlo_value w,
                                struct hlo_shape y)
{
    struct window window = {.space = x.shape.ndims - 2};
    for (uint32_t i = 0; i < window.space; i++) {
        const struct ls_moves moves = moves_of(call->attributes, window.space, i);
        const int64_t kernel = (w.shape.dims[i] - 1) * moves.dilation + 1;
        window.stride[i] = moves.stride;
        window.low[i] = moves.before;
        window.right_dilation[i] = moves.dilation;
        window.left_dilation[i] = 1;
        window.high[i] =
            (y.dims[1 + i] - 1) * moves.stride + kernel - x.shape.dims[1 + i] - window.low[i];
    }
    return convolution(call->h, x, w, with_kernel, &window, groups_of(call->attributes), 1, y);
}

// w with its dimensions of space reversed, and channels and filters of each group exchanged.
static struct hlo_value turned(struct hlo *h, struct hlo_value w, int64_t groups)
{
    static const int64_t orders[2][SPACE + 3] = {{0, 1, 4, 3, 2}, {0, 1, 2, 5, 4, 3}};
    const uint32_t space = w.shape.ndims - 2;
    const int64_t channels = w.shape.dims[space], filters = w.shape.dims[space + 1];
    const struct hlo_value y = hlo_new(h, w.type, w.shape);
    struct hlo_shape apart = w.shape, together = w.shape;
    apart.dims[space + 1] = groups;
    apart.dims[apart.ndims++] = filters / groups;
    together.dims[space] = filters / groups;
    together.dims[space + 1] = groups * channels;

    hlo_print(h, "%%%u = stablehlo.reverse %%%u, dims = %s : ", y.id, w.id,
              space == 2 ? "[0, 1]" : "[0, 1, 2]");
    hlo_print_type(h, &y);
    hlo_print(h, "\n");
    return hlo_reshape(h, hlo_transpose(h, hlo_reshape(h, y, apart), orders[space - 2]), together);
}

// y, w -> x
static struct hlo_value to_data(struct pjrt_call *call, struct hlo_value y, struct hlo_value w,
                                struct hlo_shape x)
{
    const int64_t groups = groups_of(call->attributes);
    struct window window = {.space = x.ndims - 2};
    for (uint32_t i = 0; i < window.space; i++) {
        const struct ls_moves moves = moves_of(call->attributes, window.space, i);
        const int64_t reach = (w.shape.dims[i] - 1) * moves.dilation;
        const int64_t spread = (y.shape.dims[1 + i] - 1) * moves.stride + 1;
        window.stride[i] = 1;
        window.left_dilation[i] = moves.stride;
        window.right_dilation[i] = moves.dilation;
        window.low[i] = reach - moves.before;
        window.high[i] = x.dims[1 + i] + reach - spread - window.low[i];
    }
    return convolution(call->h, y, turned(call->h, w, groups), with_kernel, &window, groups, 1, x);
}

// x, y -> w: examples are what is summed over, y is the kernel
static struct hlo_value to_weights(struct pjrt_call *call, struct hlo_value x, struct hlo_value y,
                                   struct hlo_shape w)
{
    static const char *const dimensions[] = {"[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]",
                                             "[f, 0, 1, 2, b]x[i, 0, 1, 2, o]->[0, 1, 2, b, f]"};
    struct window window = {.space = x.shape.ndims - 2};
    for (uint32_t i = 0; i < window.space; i++) {
        const struct ls_moves moves = moves_of(call->attributes, window.space, i);
        window.stride[i] = moves.dilation;
        window.left_dilation[i] = 1;
        window.right_dilation[i] = moves.stride;
        window.low[i] = moves.before;
        window.high[i] = (w.dims[i] - 1) * window.stride[i] +
                         (y.shape.dims[1 + i] - 1) * moves.stride + 1 - x.shape.dims[1 + i] -
                         window.low[i];
    }
    return convolution(call->h, x, y, dimensions, &window, 1, groups_of(call->attributes), w);
}

static struct hlo_value with_bias(struct pjrt_call *call, struct hlo_value y)
{
    return call->input_count == 3
               ? hlo_add(call->h, y, hlo_along(call->h, call->inputs[2], y.shape))
               : y;
}

static struct hlo_value bias_gradient(struct pjrt_call *call, struct hlo_value dy)
{
    const uint32_t others = (1u << (dy.shape.ndims - 1)) - 1; // all dimensions but the last one
    return hlo_reduce(call->h, "add", dy, others, 0);
}

// ---- Convolution ----

void pjrt_conv2d(struct pjrt_call *call)
{
    call->outputs[0] = with_bias(
        call, forward(call, call->inputs[0], call->inputs[1], pjrt_output_shape(call, 0)));
}

void pjrt_conv2d_backward_data(struct pjrt_call *call)
{
    call->outputs[0] = to_data(call, call->inputs[0], call->inputs[1], pjrt_output_shape(call, 0));
}

void pjrt_conv2d_backward_weights(struct pjrt_call *call)
{
    call->outputs[0] =
        to_weights(call, call->inputs[0], call->inputs[1], pjrt_output_shape(call, 0));
    if (call->output_count == 2)
        call->outputs[1] = bias_gradient(call, call->inputs[1]);
}

// ---- Transposed: x and y change places ----

void pjrt_conv2d_transpose(struct pjrt_call *call)
{
    call->outputs[0] = with_bias(
        call, to_data(call, call->inputs[0], call->inputs[1], pjrt_output_shape(call, 0)));
}

void pjrt_conv2d_transpose_backward_data(struct pjrt_call *call)
{
    call->outputs[0] = forward(call, call->inputs[0], call->inputs[1], pjrt_output_shape(call, 0));
}

void pjrt_conv2d_transpose_backward_weights(struct pjrt_call *call)
{
    call->outputs[0] =
        to_weights(call, call->inputs[1], call->inputs[0], pjrt_output_shape(call, 0));
    if (call->output_count == 2)
        call->outputs[1] = bias_gradient(call, call->inputs[1]);
}
