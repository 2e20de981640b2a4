// SPDX-License-Identifier: Apache-2.0
// Convolution of images and volumes, and its two backward operations. All three are sums over the same products:
//     y[b, oh, ow, f] = bias[f] + sum over kh, kw, c of x[b, h, w, c] * w[kh, kw, c, f]
//     with h = oh stride - before + kh dilation, columns and the planes of a volume alike; outside of x
//     there are zeros.
// As in Keras and oneDNN the kernel is not flipped. With groups, filter f sees only its group's channels.
#include "core/plugin/window.h"
#include "plugins/device/reference/reference.h"

enum { SPACE = 3 }; // planes, rows, columns

// x: (B,D,H,W,C), w: (KD,KH,KW,C/groups,F), y: (B,OD,OH,OW,F), all plain; an image has one plane
struct convolution {
    int64_t batch, channels, filters, groups;
    int64_t size[SPACE], out[SPACE], kernel[SPACE];
    struct ls_moves moves[SPACE];
};

// The products of one element of x with the `count` filters of its group, which lie side by side in w
// and in y. Each argument is the index of the first.
typedef void (*convolution_terms)(const struct reference_call *call, int64_t x, int64_t w,
                                  int64_t y, int64_t count);

static struct convolution convolution_of(const struct reference_call *call,
                                         const struct ls_tensor_desc *x,
                                         const struct ls_tensor_desc *w,
                                         const struct ls_tensor_desc *y)
{
    const uint32_t space = x->ndims - 2;
    struct convolution c = {
        .batch = x->dims[0],
        .channels = x->dims[1 + space],
        .filters = y->dims[1 + space],
        .groups = call->attributes->groups > 0 ? call->attributes->groups : 1,
        .size = {1},
        .out = {1},
        .kernel = {1},
    };
    for (uint32_t axis = 0; axis < space; axis++) {
        const uint32_t i = axis + SPACE - space;
        c.size[i] = x->dims[1 + axis];
        c.out[i] = y->dims[1 + axis];
        c.kernel[i] = w->dims[axis];
        c.moves[i] = ls_moves_along(call->attributes, space, axis);
        if (c.moves[i].dilation < 1)
            c.moves[i].dilation = 1;
    }
    return c;
}

// Places of one kernel element: calls `terms` for each group and channel of x under it.
static void convolution_point(const struct reference_call *call, const struct convolution *c,
                              int64_t x, int64_t w, int64_t y, convolution_terms terms)
{
    const int64_t group_channels = c->channels / c->groups, group_filters = c->filters / c->groups;

    for (int64_t group = 0; group < c->groups; group++)
        for (int64_t channel = 0; channel < group_channels; channel++)
            terms(call, x + group * group_channels + channel,
                  w + channel * c->filters + group * group_filters, y + group * group_filters,
                  group_filters);
}

// The element of x along one dimension that tap `tap` of the window at `out` lies on; -1: a zero.
static int64_t under(const struct convolution *c, int dimension, int64_t out, int64_t tap)
{
    const struct ls_moves *moves = &c->moves[dimension];
    const int64_t at = out * moves->stride - moves->before + tap * moves->dilation;
    return at < c->size[dimension] ? at : -1;
}

// The window at (od, oh, ow), which is pixel y of all; x is the first pixel of the example.
static void convolution_window(const struct reference_call *call, const struct convolution *c,
                               const int64_t out[SPACE], int64_t x, int64_t y,
                               convolution_terms terms)
{
    const int64_t tap_elements = c->channels / c->groups * c->filters;

    for (int64_t kd = 0, tap = 0; kd < c->kernel[0]; kd++)
        for (int64_t kh = 0; kh < c->kernel[1]; kh++)
            for (int64_t kw = 0; kw < c->kernel[2]; kw++, tap++) {
                const int64_t d = under(c, 0, out[0], kd), h = under(c, 1, out[1], kh),
                              w = under(c, 2, out[2], kw);
                if (d >= 0 && h >= 0 && w >= 0)
                    convolution_point(call, c,
                                      (x + (d * c->size[1] + h) * c->size[2] + w) * c->channels,
                                      tap * tap_elements, y * c->filters, terms);
            }
}

static void convolution_visit(const struct reference_call *call, const struct convolution *c,
                              convolution_terms terms)
{
    const int64_t pixels = c->size[0] * c->size[1] * c->size[2];
    int64_t out[SPACE], y = 0;

    for (int64_t b = 0; b < c->batch; b++)
        for (out[0] = 0; out[0] < c->out[0]; out[0]++)
            for (out[1] = 0; out[1] < c->out[1]; out[1]++)
                for (out[2] = 0; out[2] < c->out[2]; out[2]++, y++)
                    convolution_window(call, c, out, b * pixels, y, terms);
}

// ---- Forward: x, w, [b] -> y ----

static void forward_terms(const struct reference_call *call, int64_t x, int64_t w, int64_t y,
                          int64_t count)
{
    const double value = ((const float *)call->inputs[0])[x];
    const float *kernel = (const float *)call->inputs[1] + w;
    double *result = call->results[0] + y;

    for (int64_t i = 0; i < count; i++)
        result[i] += value * (double)kernel[i];
}

void reference_conv2d(const struct reference_call *call)
{
    const struct ls_tensor_desc *y = call->output_descs;
    const struct convolution c =
        convolution_of(call, &call->input_descs[0], &call->input_descs[1], y);

    if (call->input_count == 3) {
        const float *bias = call->inputs[2];
        const int64_t count = (int64_t)ls_tensor_elements(y);
        for (int64_t i = 0; i < count; i++)
            call->results[0][i] = bias[i % c.filters];
    }
    convolution_visit(call, &c, forward_terms);
}

// ---- Backward to the data: dy, w -> dx ----

static void backward_data_terms(const struct reference_call *call, int64_t x, int64_t w, int64_t y,
                                int64_t count)
{
    const float *dy = (const float *)call->inputs[0] + y;
    const float *kernel = (const float *)call->inputs[1] + w;
    double sum = 0;

    for (int64_t i = 0; i < count; i++)
        sum += (double)dy[i] * (double)kernel[i];
    call->results[0][x] += sum;
}

void reference_conv2d_backward_data(const struct reference_call *call)
{
    const struct convolution c =
        convolution_of(call, call->output_descs, &call->input_descs[1], &call->input_descs[0]);
    convolution_visit(call, &c, backward_data_terms);
}

// ---- Backward to the weights: x, dy -> dw, [db] ----

static void backward_weights_terms(const struct reference_call *call, int64_t x, int64_t w,
                                   int64_t y, int64_t count)
{
    const double value = ((const float *)call->inputs[0])[x];
    const float *dy = (const float *)call->inputs[1] + y;
    double *result = call->results[0] + w;

    for (int64_t i = 0; i < count; i++)
        result[i] += value * (double)dy[i];
}

void reference_conv2d_backward_weights(const struct reference_call *call)
{
    const struct convolution c =
        convolution_of(call, &call->input_descs[0], &call->output_descs[0], &call->input_descs[1]);
    convolution_visit(call, &c, backward_weights_terms);

    if (call->output_count == 2) {
        const float *dy = call->inputs[1];
        const int64_t count = (int64_t)ls_tensor_elements(&call->input_descs[1]);
        for (int64_t i = 0; i < count; i++)
            call->results[1][i % c.filters] += (double)dy[i];
    }
}

// ---- Transposed: the convolution from y to x, run backwards ----

// x, w, [b] -> y
void reference_conv2d_transpose(const struct reference_call *call)
{
    const struct ls_tensor_desc *y = call->output_descs;
    const struct convolution c =
        convolution_of(call, y, &call->input_descs[1], &call->input_descs[0]);

    convolution_visit(call, &c, backward_data_terms);
    if (call->input_count == 3) {
        const float *bias = call->inputs[2];
        for (int64_t i = 0; i < (int64_t)ls_tensor_elements(y); i++)
            call->results[0][i] += (double)bias[i % c.channels];
    }
}

// dy, w -> dx
void reference_conv2d_transpose_backward_data(const struct reference_call *call)
{
    const struct convolution c =
        convolution_of(call, &call->input_descs[0], &call->input_descs[1], call->output_descs);
    convolution_visit(call, &c, forward_terms);
}

// The product of one element of dy and the elements of x that it is made of.
static void transpose_weights_terms(const struct reference_call *call, int64_t y, int64_t w,
                                    int64_t x, int64_t count)
{
    const double dy = ((const float *)call->inputs[1])[y];
    const float *from = (const float *)call->inputs[0] + x;

    for (int64_t i = 0; i < count; i++)
        call->results[0][w + i] += dy * (double)from[i];
}

// x, dy -> dw, [db]
void reference_conv2d_transpose_backward_weights(const struct reference_call *call)
{
    const struct ls_tensor_desc *desc = &call->input_descs[1];
    const struct convolution c =
        convolution_of(call, desc, &call->output_descs[0], &call->input_descs[0]);

    convolution_visit(call, &c, transpose_weights_terms);
    if (call->output_count == 2) {
        const float *dy = call->inputs[1];
        for (int64_t i = 0; i < (int64_t)ls_tensor_elements(desc); i++)
            call->results[1][i % c.channels] += (double)dy[i];
    }
}
