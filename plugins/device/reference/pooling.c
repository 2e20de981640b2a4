// SPDX-License-Identifier: Apache-2.0
// Pooling over rows and columns: the largest element, or the mean, of each window. Padding takes no part:
// it never wins, and the mean divides by the elements that are there.
#include "plugins/device/reference/reference.h"

// The part of x (B,H,W,C) that one element of y (B,OH,OW,C) is made of: rows and columns, ends excluded,
// of one example and channel.
struct pool_window {
    int64_t rows[2], columns[2];
    int64_t origin; // index of element (0, 0) of this example and channel
    int64_t row, column; // how far the next row and the next column are
};

static void clip_range(int64_t *range, int64_t start, int64_t size, int64_t limit)
{
    range[0] = start < 0 ? 0 : start;
    range[1] = start + size > limit ? limit : start + size;
}

// The window of element `y` (an index in plain order).
static struct pool_window pool_window_at(const struct reference_call *call,
                                         const struct ls_tensor_desc *x,
                                         const struct ls_tensor_desc *y_desc, int64_t y)
{
    const struct reference_window window = reference_window_of(
        call->attributes, call->attributes->kernel[0], call->attributes->kernel[1]);
    const int64_t height = x->dims[1], width = x->dims[2], channels = x->dims[3];
    const int64_t channel = y % channels;
    const int64_t ow = y / channels % y_desc->dims[2];
    const int64_t oh = y / channels / y_desc->dims[2] % y_desc->dims[1];
    const int64_t b = y / channels / y_desc->dims[2] / y_desc->dims[1];

    struct pool_window out = {
        .origin = b * height * width * channels + channel,
        .row = width * channels,
        .column = channels,
    };
    clip_range(out.rows, oh * window.stride[0] - window.before[0], window.size[0], height);
    clip_range(out.columns, ow * window.stride[1] - window.before[1], window.size[1], width);
    return out;
}

// ---- Largest ----

// Index of the first largest element, in row order.
static int64_t first_largest(const float *x, const struct pool_window *window)
{
    int64_t best =
        window->origin + window->rows[0] * window->row + window->columns[0] * window->column;

    for (int64_t h = window->rows[0]; h < window->rows[1]; h++)
        for (int64_t w = window->columns[0]; w < window->columns[1]; w++) {
            const int64_t i = window->origin + h * window->row + w * window->column;
            if (x[i] > x[best])
                best = i;
        }
    return best;
}

// x -> y, saved: nothing is saved, backward looks for the largest element again.
void reference_max_pool2d(const struct reference_call *call)
{
    const int64_t count = (int64_t)ls_tensor_elements(&call->output_descs[0]);
    const float *x = call->inputs[0];

    for (int64_t i = 0; i < count; i++) {
        const struct pool_window window =
            pool_window_at(call, &call->input_descs[0], &call->output_descs[0], i);
        call->results[0][i] = (double)x[first_largest(x, &window)];
    }
}

// dy, x, y, saved -> dx
void reference_max_pool2d_backward(const struct reference_call *call)
{
    const int64_t count = (int64_t)ls_tensor_elements(&call->input_descs[0]);
    const float *dy = call->inputs[0], *x = call->inputs[1];

    for (int64_t i = 0; i < count; i++) {
        const struct pool_window window =
            pool_window_at(call, &call->output_descs[0], &call->input_descs[0], i);
        call->results[0][first_largest(x, &window)] += (double)dy[i];
    }
}

// ---- Mean ----

static double elements_of(const struct pool_window *window)
{
    return (double)((window->rows[1] - window->rows[0]) *
                    (window->columns[1] - window->columns[0]));
}

// x -> y
void reference_average_pool2d(const struct reference_call *call)
{
    const int64_t count = (int64_t)ls_tensor_elements(&call->output_descs[0]);
    const float *x = call->inputs[0];

    for (int64_t i = 0; i < count; i++) {
        const struct pool_window window =
            pool_window_at(call, &call->input_descs[0], &call->output_descs[0], i);
        double sum = 0;
        for (int64_t h = window.rows[0]; h < window.rows[1]; h++)
            for (int64_t w = window.columns[0]; w < window.columns[1]; w++)
                sum += (double)x[window.origin + h * window.row + w * window.column];
        call->results[0][i] = sum / elements_of(&window);
    }
}

// dy -> dx
void reference_average_pool2d_backward(const struct reference_call *call)
{
    const int64_t count = (int64_t)ls_tensor_elements(&call->input_descs[0]);
    const float *dy = call->inputs[0];

    for (int64_t i = 0; i < count; i++) {
        const struct pool_window window =
            pool_window_at(call, &call->output_descs[0], &call->input_descs[0], i);
        for (int64_t h = window.rows[0]; h < window.rows[1]; h++)
            for (int64_t w = window.columns[0]; w < window.columns[1]; w++)
                call->results[0][window.origin + h * window.row + w * window.column] +=
                    (double)dy[i] / elements_of(&window);
    }
}
