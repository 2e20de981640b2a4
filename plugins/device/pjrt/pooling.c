// SPDX-License-Identifier: Apache-2.0
// Pooling over rows and columns. Padding is never the largest, and the mean divides by the elements
// that are there.
#include "plugins/device/pjrt/operations.h"

#include <math.h>

struct window {
    int64_t size[2], stride[2], low[2], high[2]; // rows, columns
};

// The window that makes y of x; padding behind is as much as the last element of y needs.
static struct window window_of(const struct ls_op_attributes *a, struct hlo_shape x,
                               struct hlo_shape y)
{
    struct window w;
    for (int i = 0; i < 2; i++) {
        w.size[i] = a->kernel[i];
        w.stride[i] = a->strides[i];
        w.low[i] = a->padding[2 * i];
        w.high[i] = (y.dims[1 + i] - 1) * w.stride[i] + w.size[i] - x.dims[1 + i] - w.low[i];
    }
    return w;
}

static void print_window(struct hlo *h, const struct window *w)
{
    hlo_print(h,
              "{window_dimensions = array<i64: 1, %lld, %lld, 1>, window_strides = array<i64: 1, "
              "%lld, %lld, 1>, padding = dense<[[0, 0], [%lld, %lld], [%lld, %lld], [0, 0]]> : "
              "tensor<4x2xi64>} : (",
              (long long)w->size[0], (long long)w->size[1], (long long)w->stride[0],
              (long long)w->stride[1], (long long)w->low[0], (long long)w->high[0],
              (long long)w->low[1], (long long)w->high[1]);
}

// Windows that end before the last element of x leave it out: XLA wants no negative padding.
static struct hlo_value cut(struct hlo *h, struct hlo_value x, struct window *w)
{
    int64_t low[4] = {0}, high[4] = {0};
    for (int i = 0; i < 2; i++)
        if (w->high[i] < 0) {
            high[1 + i] = w->high[i];
            w->high[i] = 0;
        }
    return high[1] || high[2] ? hlo_pad(h, x, 0, low, high, NULL) : x;
}

static struct hlo_value reduce_windows(struct hlo *h, const char *name, struct hlo_value x,
                                       struct window w, double first, struct hlo_shape shape)
{
    x = cut(h, x, &w);
    const struct hlo_value from = hlo_constant(h, x.type, (struct hlo_shape){0}, first);
    const struct hlo_value y = hlo_new(h, x.type, shape);
    hlo_print(h,
              "%%%u = \"stablehlo.reduce_window\"(%%%u, %%%u) ({\n^bb0(%%a: tensor<f32>, %%b: "
              "tensor<f32>):\n%%c = stablehlo.%s %%a, %%b : tensor<f32>\nstablehlo.return %%c : "
              "tensor<f32>\n}) ",
              y.id, x.id, from.id, name);
    print_window(h, &w);
    hlo_print_type(h, &x);
    hlo_print(h, ", tensor<f32>) -> ");
    hlo_print_type(h, &y);
    hlo_print(h, "\n");
    return y;
}

void pjrt_max_pool2d(struct pjrt_call *call)
{
    const struct hlo_shape y = pjrt_output_shape(call, 0);
    const struct hlo_value x = call->inputs[0];
    call->outputs[0] = reduce_windows(
        call->h, "maximum", x, window_of(call->attributes, x.shape, y), (double)-INFINITY, y);
}

// dy, x -> dx: each gradient goes to the first of its window's largest elements. Padding is written
// out, as XLA on CPUs takes other elements than the first where it pads by itself.
void pjrt_max_pool2d_backward(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value dy = call->inputs[0], whole = call->inputs[1];
    struct window w = window_of(call->attributes, whole.shape, dy.shape);
    const int64_t low[4] = {0, w.low[0], w.low[1], 0}, high[4] = {0, w.high[0], w.high[1], 0};
    const int64_t first[4] = {0, -w.low[0], -w.low[1], 0}, last[4] = {0, -w.high[0], -w.high[1], 0};
    const struct hlo_value x = hlo_pad(h, whole, (double)-INFINITY, low, high, NULL);
    const struct hlo_value zero = hlo_constant(h, LS_F32, (struct hlo_shape){0}, 0);
    const struct hlo_value dx = hlo_new(h, x.type, x.shape);
    w.low[0] = w.low[1] = w.high[0] = w.high[1] = 0;
    hlo_print(h,
              "%%%u = \"stablehlo.select_and_scatter\"(%%%u, %%%u, %%%u) ({\n^bb0(%%a: "
              "tensor<f32>, %%b: tensor<f32>):\n%%c = stablehlo.compare GE, %%a, %%b : "
              "(tensor<f32>, tensor<f32>) -> tensor<i1>\nstablehlo.return %%c : tensor<i1>\n}, "
              "{\n^bb0(%%a: tensor<f32>, %%b: tensor<f32>):\n%%c = stablehlo.add %%a, %%b : "
              "tensor<f32>\nstablehlo.return %%c : tensor<f32>\n}) ",
              dx.id, x.id, dy.id, zero.id);
    print_window(h, &w);
    hlo_print_type(h, &x);
    hlo_print(h, ", ");
    hlo_print_type(h, &dy);
    hlo_print(h, ", tensor<f32>) -> ");
    hlo_print_type(h, &dx);
    hlo_print(h, "\n");
    call->outputs[0] = hlo_pad(h, dx, 0, first, last, NULL);
}

// How many rows (0) or columns (1) of x are in each window: a constant vector. XLA would find it,
// too, but folds a sum over windows slowly.
static struct hlo_value counts_along(struct hlo *h, const struct window *w, int axis, int64_t size,
                                     int64_t windows)
{
    const struct hlo_value y = hlo_new(h, LS_F32, hlo_flat(windows));
    hlo_print(h, "%%%u = stablehlo.constant dense<[", y.id);
    for (int64_t o = 0; o < windows; o++) {
        const int64_t start = o * w->stride[axis] - w->low[axis], end = start + w->size[axis];
        const int64_t count = (end < size ? end : size) - (start > 0 ? start : 0);
        hlo_print(h, "%s%lld.0", o ? ", " : "", (long long)count);
    }
    hlo_print(h, "]> : ");
    hlo_print_type(h, &y);
    hlo_print(h, "\n");
    return y;
}

// How many elements of x are in each window of y.
static struct hlo_value counts(struct pjrt_call *call, struct hlo_shape x, struct hlo_shape y)
{
    static const int64_t rows = 1, columns = 2;
    struct hlo *h = call->h;
    const struct window w = window_of(call->attributes, x, y);
    return hlo_multiply(
        h, hlo_broadcast(h, counts_along(h, &w, 0, x.dims[1], y.dims[1]), y, &rows),
        hlo_broadcast(h, counts_along(h, &w, 1, x.dims[2], y.dims[2]), y, &columns));
}

void pjrt_average_pool2d(struct pjrt_call *call)
{
    const struct hlo_shape y = pjrt_output_shape(call, 0);
    const struct hlo_value x = call->inputs[0];
    const struct hlo_value sum =
        reduce_windows(call->h, "add", x, window_of(call->attributes, x.shape, y), 0, y);
    call->outputs[0] = hlo_divide(call->h, sum, counts(call, x.shape, y));
}

// dy -> dx: the sum of the shares of all windows that an element is in
void pjrt_average_pool2d_backward(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct ls_op_attributes *a = call->attributes;
    const struct hlo_shape x = pjrt_output_shape(call, 0);
    const struct hlo_value dy = call->inputs[0];
    const struct hlo_value share = hlo_divide(h, dy, counts(call, x, dy.shape));
    int64_t low[4] = {0}, high[4] = {0}, between[4] = {0};
    for (int i = 0; i < 2; i++) {
        between[1 + i] = a->strides[i] - 1;
        low[1 + i] = a->kernel[i] - 1 - a->padding[2 * i];
        high[1 + i] = x.dims[1 + i] + a->kernel[i] - 1 - low[1 + i] -
                      ((dy.shape.dims[1 + i] - 1) * a->strides[i] + 1);
    }
    const struct window w = {.size = {a->kernel[0], a->kernel[1]}, .stride = {1, 1}};
    call->outputs[0] = reduce_windows(h, "add", hlo_pad(h, share, 0, low, high, between), w, 0, x);
}
