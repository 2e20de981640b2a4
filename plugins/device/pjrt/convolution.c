// SPDX-License-Identifier: Apache-2.0
// Two-dimensional convolutions. Each of the six operations is one of three products of x (B,H,W,C),
// w (KH,KW,C/groups,F) and y (B,OH,OW,F): y from x and w, x from y and w, w from x and y; all three
// are convolutions for XLA.
#include "plugins/device/pjrt/operations.h"

// The window of an XLA convolution, rows and columns.
struct window {
    int64_t stride[2], low[2], high[2], left_dilation[2], right_dilation[2];
};

static int64_t dilation_of(const struct ls_op_attributes *a, int i)
{
    return a->dilation[i] > 0 ? a->dilation[i] : 1;
}

static int64_t groups_of(const struct ls_op_attributes *a)
{
    return a->groups > 0 ? a->groups : 1;
}

static struct hlo_value convolution(struct hlo *h, struct hlo_value a, struct hlo_value b,
                                    const char *dimensions, const struct window *w,
                                    int64_t feature_groups, int64_t batch_groups,
                                    struct hlo_shape shape)
{
    const struct hlo_value y = hlo_new(h, a.type, shape);
    hlo_print(h,
              "%%%u = stablehlo.convolution(%%%u, %%%u) dim_numbers = %s, window = {stride = "
              "[%lld, %lld], pad = [[%lld, %lld], [%lld, %lld]], lhs_dilate = [%lld, %lld], "
              "rhs_dilate = [%lld, %lld]} {batch_group_count = %lld : i64, feature_group_count = "
              "%lld : i64, precision_config = [#stablehlo<precision HIGHEST>, "
              "#stablehlo<precision HIGHEST>]} : (",
              y.id, a.id, b.id, dimensions, (long long)w->stride[0], (long long)w->stride[1],
              (long long)w->low[0], (long long)w->high[0], (long long)w->low[1],
              (long long)w->high[1], (long long)w->left_dilation[0], (long long)w->left_dilation[1],
              (long long)w->right_dilation[0], (long long)w->right_dilation[1],
              (long long)batch_groups, (long long)feature_groups);
    hlo_print_type(h, &a);
    hlo_print(h, ", ");
    hlo_print_type(h, &b);
    hlo_print(h, ") -> ");
    hlo_print_type(h, &y);
    hlo_print(h, "\n");
    return y;
}

// x, w -> y
static struct hlo_value forward(struct pjrt_call *call, struct hlo_value x, struct hlo_value w,
                                struct hlo_shape y)
{
    const struct ls_op_attributes *a = call->attributes;
    struct window window;
    for (int i = 0; i < 2; i++) {
        window.stride[i] = a->strides[i];
        window.low[i] = a->padding[2 * i];
        window.right_dilation[i] = dilation_of(a, i);
        window.left_dilation[i] = 1;
        const int64_t kernel = (w.shape.dims[i] - 1) * window.right_dilation[i] + 1;
        window.high[i] =
            (y.dims[1 + i] - 1) * a->strides[i] + kernel - x.shape.dims[1 + i] - window.low[i];
    }
    return convolution(call->h, x, w, "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", &window,
                       groups_of(a), 1, y);
}

// w with rows and columns reversed, and channels and filters of each group exchanged.
static struct hlo_value turned(struct hlo *h, struct hlo_value w, int64_t groups)
{
    static const int64_t order[5] = {0, 1, 4, 3, 2};
    const int64_t *d = w.shape.dims;
    const struct hlo_value y = hlo_new(h, w.type, w.shape);
    hlo_print(h, "%%%u = stablehlo.reverse %%%u, dims = [0, 1] : ", y.id, w.id);
    hlo_print_type(h, &y);
    hlo_print(h, "\n");
    const struct hlo_value apart =
        hlo_reshape(h, y, HLO_SHAPE(d[0], d[1], d[2], groups, d[3] / groups));
    return hlo_reshape(h, hlo_transpose(h, apart, order),
                       HLO_SHAPE(d[0], d[1], d[3] / groups, groups * d[2]));
}

// y, w -> x
static struct hlo_value to_data(struct pjrt_call *call, struct hlo_value y, struct hlo_value w,
                                struct hlo_shape x)
{
    const struct ls_op_attributes *a = call->attributes;
    struct window window;
    for (int i = 0; i < 2; i++) {
        const int64_t reach = (w.shape.dims[i] - 1) * dilation_of(a, i);
        const int64_t spread = (y.shape.dims[1 + i] - 1) * a->strides[i] + 1;
        window.stride[i] = 1;
        window.left_dilation[i] = a->strides[i];
        window.right_dilation[i] = dilation_of(a, i);
        window.low[i] = reach - a->padding[2 * i];
        window.high[i] = x.dims[1 + i] + reach - spread - window.low[i];
    }
    return convolution(call->h, y, turned(call->h, w, groups_of(a)),
                       "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", &window, groups_of(a), 1, x);
}

// x, y -> w: examples are what is summed over, y is the kernel
static struct hlo_value to_weights(struct pjrt_call *call, struct hlo_value x, struct hlo_value y,
                                   struct hlo_shape w)
{
    const struct ls_op_attributes *a = call->attributes;
    struct window window;
    for (int i = 0; i < 2; i++) {
        window.stride[i] = dilation_of(a, i);
        window.left_dilation[i] = 1;
        window.right_dilation[i] = a->strides[i];
        window.low[i] = a->padding[2 * i];
        window.high[i] = (w.dims[i] - 1) * window.stride[i] +
                         (y.shape.dims[1 + i] - 1) * a->strides[i] + 1 - x.shape.dims[1 + i] -
                         window.low[i];
    }
    return convolution(call->h, x, y, "[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]", &window, 1,
                       groups_of(a), w);
}

static struct hlo_value with_bias(struct pjrt_call *call, struct hlo_value y)
{
    return call->input_count == 3
               ? hlo_add(call->h, y, hlo_along(call->h, call->inputs[2], y.shape))
               : y;
}

static struct hlo_value bias_gradient(struct pjrt_call *call, struct hlo_value dy)
{
    return hlo_reduce(call->h, "add", dy, 7, 0); // all but the last dimension
}

// ---- Convolution ----

static void emit_forward(struct pjrt_call *call)
{
    call->outputs[0] = with_bias(
        call, forward(call, call->inputs[0], call->inputs[1], pjrt_output_shape(call, 0)));
}

static void emit_data(struct pjrt_call *call)
{
    call->outputs[0] = to_data(call, call->inputs[0], call->inputs[1], pjrt_output_shape(call, 0));
}

static void emit_weights(struct pjrt_call *call)
{
    call->outputs[0] =
        to_weights(call, call->inputs[0], call->inputs[1], pjrt_output_shape(call, 0));
    if (call->output_count == 2)
        call->outputs[1] = bias_gradient(call, call->inputs[1]);
}

// ---- Transposed: x and y change places ----

static void emit_transposed(struct pjrt_call *call)
{
    call->outputs[0] = with_bias(
        call, to_data(call, call->inputs[0], call->inputs[1], pjrt_output_shape(call, 0)));
}

static void emit_transposed_data(struct pjrt_call *call)
{
    call->outputs[0] = forward(call, call->inputs[0], call->inputs[1], pjrt_output_shape(call, 0));
}

static void emit_transposed_weights(struct pjrt_call *call)
{
    call->outputs[0] =
        to_weights(call, call->inputs[1], call->inputs[0], pjrt_output_shape(call, 0));
    if (call->output_count == 2)
        call->outputs[1] = bias_gradient(call, call->inputs[1]);
}

const struct pjrt_operation pjrt_conv2d = {
    .name = "conv2d",
    .used_inputs = 7,
    .emit = emit_forward,
};

const struct pjrt_operation pjrt_conv2d_backward_data = {
    .name = "conv2d_backward_data",
    .used_inputs = 3,
    .emit = emit_data,
};

const struct pjrt_operation pjrt_conv2d_backward_weights = {
    .name = "conv2d_backward_weights",
    .used_inputs = 3,
    .emit = emit_weights,
};

const struct pjrt_operation pjrt_conv2d_transpose = {
    .name = "conv2d_transpose",
    .used_inputs = 7,
    .emit = emit_transposed,
};

const struct pjrt_operation pjrt_conv2d_transpose_backward_data = {
    .name = "conv2d_transpose_backward_data",
    .used_inputs = 3,
    .emit = emit_transposed_data,
};

const struct pjrt_operation pjrt_conv2d_transpose_backward_weights = {
    .name = "conv2d_transpose_backward_weights",
    .used_inputs = 3,
    .emit = emit_transposed_weights,
};
