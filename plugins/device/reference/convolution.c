// SPDX-License-Identifier: Apache-2.0
// Two-dimensional convolution and its two backward operations. All three are sums over the same products:
//     y[b, oh, ow, f] = bias[f] + sum over kh, kw, c of x[b, h, w, c] * w[kh, kw, c, f]
//     with h = oh stride - before + kh dilation, and columns alike; outside of x there are zeros.
// As in Keras and oneDNN the kernel is not flipped. With groups, filter f sees only its group's channels.
#include "plugins/device/reference/reference.h"

// x: (B,H,W,C), w: (KH,KW,C/groups,F), y: (B,OH,OW,F), all plain
struct convolution {
    int64_t batch, height, width, channels;
    int64_t out_height, out_width, filters;
    int64_t groups;
    struct reference_window window;
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
    return (struct convolution){
        .batch = x->dims[0],
        .height = x->dims[1],
        .width = x->dims[2],
        .channels = x->dims[3],
        .out_height = y->dims[1],
        .out_width = y->dims[2],
        .filters = y->dims[3],
        .groups = call->attributes->groups > 0 ? call->attributes->groups : 1,
        .window = reference_window_of(call->attributes, w->dims[0], w->dims[1]),
    };
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

static void convolution_visit(const struct reference_call *call, const struct convolution *c,
                              convolution_terms terms)
{
    const struct reference_window *window = &c->window;
    const int64_t kernel_point = c->channels / c->groups * c->filters;

    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t oh = 0; oh < c->out_height; oh++)
            for (int64_t ow = 0; ow < c->out_width; ow++)
                for (int64_t kh = 0; kh < window->size[0]; kh++)
                    for (int64_t kw = 0; kw < window->size[1]; kw++) {
                        const int64_t h =
                            oh * window->stride[0] - window->before[0] + kh * window->dilation[0];
                        const int64_t w =
                            ow * window->stride[1] - window->before[1] + kw * window->dilation[1];
                        if (h < 0 || h >= c->height || w < 0 || w >= c->width)
                            continue;
                        convolution_point(
                            call, c, ((b * c->height + h) * c->width + w) * c->channels,
                            (kh * window->size[1] + kw) * kernel_point,
                            ((b * c->out_height + oh) * c->out_width + ow) * c->filters, terms);
                    }
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

static void forward_run(const struct reference_call *call)
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

static void backward_data_run(const struct reference_call *call)
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

static void backward_weights_run(const struct reference_call *call)
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
static void transpose_run(const struct reference_call *call)
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
static void transpose_backward_data_run(const struct reference_call *call)
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
static void transpose_backward_weights_run(const struct reference_call *call)
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

const struct reference_operation reference_conv2d = {
    .name = "conv2d",
    .inputs = {2, 3},
    .outputs = {1, 1},
    .used_inputs = 7,
    .run = forward_run,
};

const struct reference_operation reference_conv2d_backward_data = {
    .name = "conv2d_backward_data",
    .inputs = {2, 2},
    .outputs = {1, 1},
    .used_inputs = 3,
    .run = backward_data_run,
};

const struct reference_operation reference_conv2d_backward_weights = {
    .name = "conv2d_backward_weights",
    .inputs = {2, 2},
    .outputs = {1, 2},
    .used_inputs = 3,
    .run = backward_weights_run,
};

const struct reference_operation reference_conv2d_transpose = {
    .name = "conv2d_transpose",
    .inputs = {2, 3},
    .outputs = {1, 1},
    .used_inputs = 7,
    .run = transpose_run,
};

const struct reference_operation reference_conv2d_transpose_backward_data = {
    .name = "conv2d_transpose_backward_data",
    .inputs = {2, 2},
    .outputs = {1, 1},
    .used_inputs = 3,
    .run = transpose_backward_data_run,
};

const struct reference_operation reference_conv2d_transpose_backward_weights = {
    .name = "conv2d_transpose_backward_weights",
    .inputs = {2, 2},
    .outputs = {1, 2},
    .used_inputs = 3,
    .run = transpose_backward_weights_run,
};
