// SPDX-License-Identifier: Apache-2.0
// The shape rules. LS_BATCH counts as one element: it is first in all tensors of a rule or in none.
#include "core/operation/rules.h"

#include "core/attributes.h"
#include "core/plugin/augment.h"
#include "core/plugin/window.h"

#include <float.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// The last ones of space: of an image rows and columns.
static const char *const axis_names[] = {"planes", "rows", "columns"};
static const char *axis_name(uint32_t space, uint32_t axis)
{
    return axis_names[axis + 3 - space];
}

LS_PRINTF(2, 3)
static bool refuse(struct ls_shape_call *call, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(call->why, sizeof(call->why), format, list);
    va_end(list);
    return false;
}

static bool is_vector(const struct ls_shape *shape, int64_t elements)
{
    return shape->ndims == 1 && shape->dims[0] == elements;
}

static int64_t last_dim(const struct ls_shape *shape)
{
    return shape->dims[shape->ndims - 1];
}

static bool same_elements(const struct ls_shape *a, const struct ls_shape *b)
{
    return ls_shape_elements(a, 1) == ls_shape_elements(b, 1) &&
           (a->dims[0] == LS_BATCH) == (b->dims[0] == LS_BATCH);
}

bool ls_shapes_kept(struct ls_shape_call *call)
{
    for (uint32_t i = 0; i < LS_MAX_ARGUMENTS; i++)
        call->outputs[i] = call->inputs[0];
    return true;
}

// ---- Windows ----

static bool is_image(struct ls_shape_call *call)
{
    return call->inputs[0].ndims == 4 ||
           refuse(call, "expected 4 dimensions: batch, rows, columns, channels");
}

// An image, or a volume.
static bool has_space(struct ls_shape_call *call)
{
    return call->inputs[0].ndims == 5 || is_image(call);
}

// Checks the window along one axis and writes how often it fits.
static bool move_window(struct ls_shape_call *call, uint32_t axis, int64_t kernel)
{
    const uint32_t space = call->inputs[0].ndims - 2;
    const struct ls_moves moves = ls_moves_along(call->attributes, space, axis);
    const int64_t size = call->inputs[0].dims[1 + axis];
    const int32_t dilation = moves.dilation > 0 ? moves.dilation : 1;

    if (kernel < 1 || moves.stride < 1)
        return refuse(call, "window and stride must be at least 1 along the %s, not %lld and %d",
                      axis_name(space, axis), (long long)kernel, moves.stride);
    if (moves.before < 0 || moves.after < 0)
        return refuse(call, "padding must not be negative along the %s", axis_name(space, axis));

    const int64_t count =
        ls_window_count(size, kernel, moves.stride, dilation, moves.before, moves.after);
    if (count < 1)
        return refuse(
            call, "a window of %lld %s (dilation %d) does not fit into %lld with padding %d and %d",
            (long long)kernel, axis_name(space, axis), dilation, (long long)size, moves.before,
            moves.after);
    call->outputs[0].dims[1 + axis] = count;
    return true;
}

// x (B,[D],H,W,C), w ([KD],KH,KW,C/groups,F), [b (F)] -> y (B,[OD],OH,OW,F)
bool ls_shapes_of_conv2d(struct ls_shape_call *call)
{
    const struct ls_shape *x = &call->inputs[0], *w = &call->inputs[1];
    if (!has_space(call))
        return false;
    if (w->ndims != x->ndims)
        return refuse(call, "the kernel must have %u dimensions, not %u", x->ndims, w->ndims);

    const uint32_t space = x->ndims - 2;
    const int64_t channels = last_dim(x), filters = last_dim(w), groups = call->attributes->groups,
                  seen = w->dims[space];
    for (uint32_t axis = 0; axis < space; axis++)
        if (ls_moves_along(call->attributes, space, axis).dilation < 1)
            return refuse(call, "dilation must be at least 1");
    if (groups < 1 || channels % groups != 0 || filters % groups != 0)
        return refuse(call, "%lld channels and %lld filters cannot be split into %lld groups",
                      (long long)channels, (long long)filters, (long long)groups);
    if (seen != channels / groups)
        return refuse(call, "the kernel expects %lld channels a group, the input has %lld",
                      (long long)seen, (long long)(channels / groups));
    if (call->input_count > 2 && !is_vector(&call->inputs[2], filters))
        return refuse(call, "the bias must have %lld elements", (long long)filters);

    call->outputs[0] = *x;
    call->outputs[0].dims[x->ndims - 1] = filters;
    for (uint32_t axis = 0; axis < space; axis++)
        if (!move_window(call, axis, w->dims[axis]))
            return false;
    return true;
}

// Pooling adds nothing at the border, so every window must hold at least one element.
bool ls_shapes_of_pool(struct ls_shape_call *call)
{
    const struct ls_op_attributes *attributes = call->attributes;
    if (!is_image(call))
        return false;
    if (attributes->dilation[0] > 1 || attributes->dilation[1] > 1)
        return refuse(call, "pooling has no dilation");

    call->outputs[0] = call->outputs[1] = call->inputs[0];
    for (uint32_t axis = 0; axis < 2; axis++) {
        const int32_t kernel = attributes->kernel[axis], *padding = &attributes->padding[2 * axis];
        if (!move_window(call, axis, kernel))
            return false;
        if (padding[0] >= kernel || padding[1] >= kernel)
            return refuse(call, "padding must be smaller than the window of %d %s", kernel,
                          axis_name(2, axis));
    }
    return true;
}

// ---- Rows ----

// x, w (K,N), [b (N)] -> y. Where no shape is asked for, the last dimension becomes the units, as
// in Keras's Dense.
bool ls_shapes_of_dense(struct ls_shape_call *call)
{
    const struct ls_shape *x = &call->inputs[0], *w = &call->inputs[1], *asked = &call->asked;
    if (w->ndims != 2)
        return refuse(call, "the kernel must have 2 dimensions, not %u", w->ndims);

    const int64_t k = w->dims[0], n = w->dims[1];
    struct ls_shape *y = &call->outputs[0];
    *y = asked->ndims > 0 ? *asked : *x;
    if (asked->ndims == 0) {
        if (x->ndims < 2 || last_dim(x) != k)
            return refuse(call, "expected %lld as the last dimension", (long long)k);
        y->dims[y->ndims - 1] = n;
    } else if (y->ndims < 2 || (y->dims[0] == LS_BATCH) != (x->dims[0] == LS_BATCH) ||
               ls_shape_elements(y, 1) % n != 0 || ls_shape_elements(x, 1) % k != 0 ||
               ls_shape_elements(y, 1) / n != ls_shape_elements(x, 1) / k) {
        char text[128];
        return refuse(call, "a kernel of (%lld, %lld) cannot make %s of it", (long long)k,
                      (long long)n, ls_shape_text(y, text, sizeof(text)));
    }
    if (call->input_count > 2 && !is_vector(&call->inputs[2], n))
        return refuse(call, "the bias must have %lld elements", (long long)n);
    return true;
}

bool ls_shapes_of_softmax(struct ls_shape_call *call)
{
    return call->inputs[0].ndims >= 2 ? ls_shapes_kept(call)
                                      : refuse(call, "softmax wants at least 2 dimensions");
}

bool ls_shapes_of_reshape(struct ls_shape_call *call)
{
    char text[128];
    if (call->asked.ndims == 0)
        return refuse(call, "a reshape needs the shape to make");
    if (!same_elements(&call->asked, &call->inputs[0]))
        return refuse(call, "cannot become %s: another number of elements",
                      ls_shape_text(&call->asked, text, sizeof(text)));
    call->outputs[0] = call->asked;
    return true;
}

// ---- Elements ----

bool ls_shapes_of_activation(struct ls_shape_call *call)
{
    const struct ls_op_attributes *attributes = call->attributes;
    if (attributes->activation >= LS_ACTIVATION_COUNT)
        return refuse(call, "there is no activation number %u", attributes->activation);
    if (attributes->activation == LS_LEAKY_RELU && !(attributes->activation_alpha > 0))
        return refuse(call, "the negative slope must be above 0, not %g",
                      (double)attributes->activation_alpha);
    return ls_shapes_kept(call);
}

bool ls_shapes_of_dropout(struct ls_shape_call *call)
{
    const float rate = call->attributes->rate;
    if (!(rate >= 0 && rate < 1))
        return refuse(call, "rate must be at least 0 and below 1, not %g", (double)rate);
    for (uint32_t i = 0; i < LS_MAX_DIMS; i++) {
        const int32_t axis = call->attributes->axes[i];
        if (axis != 0 && (axis != 1 || i == 0 || i >= call->inputs[0].ndims))
            return refuse(call, "elements along dimension %u cannot share a draw", i);
    }
    return ls_shapes_kept(call);
}

bool ls_shapes_of_noise(struct ls_shape_call *call)
{
    const float deviation = call->attributes->rate;
    if (!(deviation >= 0 && deviation <= FLT_MAX))
        return refuse(call, "the standard deviation must be at least 0, not %g", (double)deviation);
    return ls_shapes_kept(call);
}

bool ls_shapes_of_pair(struct ls_shape_call *call)
{
    char text[128];
    if (!ls_shape_equal(&call->inputs[0], &call->inputs[1]))
        return refuse(call, "the other input must have the same shape, not %s",
                      ls_shape_text(&call->inputs[1], text, sizeof(text)));
    return ls_shapes_kept(call);
}

// a, b -> y: the larger of both along each dimension, from the last one on.
bool ls_shapes_of_broadcast(struct ls_shape_call *call)
{
    const struct ls_shape *a = &call->inputs[0], *b = &call->inputs[1];
    struct ls_shape *y = &call->outputs[0];
    char text[128];

    *y = (struct ls_shape){.ndims = a->ndims > b->ndims ? a->ndims : b->ndims};
    for (uint32_t i = 0; i < y->ndims; i++) { // from the last dimension on
        const int64_t one = i < a->ndims ? a->dims[a->ndims - 1 - i] : 1;
        const int64_t other = i < b->ndims ? b->dims[b->ndims - 1 - i] : 1;
        const uint32_t at = y->ndims - 1 - i;
        y->dims[at] = one == 1 ? other : one;
        if ((one != other && one != 1 && other != 1) || (y->dims[at] == LS_BATCH && at > 0))
            return refuse(call, "the shape of the other input, %s, cannot be broadcast to it",
                          ls_shape_text(b, text, sizeof(text)));
    }
    return true;
}

// x -> y, which keeps the dimensions that it is reduced over
bool ls_shapes_of_reduce(struct ls_shape_call *call)
{
    const struct ls_op_attributes *attributes = call->attributes;
    struct ls_shape *y = &call->outputs[0];

    *y = call->inputs[0];
    if (attributes->axes[0] != 0)
        return refuse(call, "the first dimension, of the examples, cannot be reduced");
    for (uint32_t i = 0; i < LS_MAX_DIMS; i++) {
        if (attributes->axes[i] != 0 && (attributes->axes[i] != 1 || i >= y->ndims))
            return refuse(call, "there is no dimension %u to reduce", i);
        if (attributes->axes[i] != 0)
            y->dims[i] = 1;
    }
    return true;
}

// ---- What moves elements ----

// a, b, ... -> y: their sum along the dimension with axes[i] 1, equal along all others
bool ls_shapes_of_concatenate(struct ls_shape_call *call)
{
    const int32_t *axes = call->attributes->axes;
    struct ls_shape *y = &call->outputs[0];
    uint32_t axis = 0, count = 0;
    char text[128];

    *y = call->inputs[0];
    for (uint32_t i = 0; i < LS_MAX_DIMS; i++) {
        axis = axes[i] == 1 ? i : axis;
        count += axes[i] != 0;
    }
    if (count != 1 || axis == 0 || axis >= y->ndims)
        return refuse(call, "a concatenation needs one dimension of it behind the first");
    for (uint32_t k = 1; k < call->input_count; k++) {
        struct ls_shape other = call->inputs[k];
        const int64_t size = axis < other.ndims ? other.dims[axis] : 0;
        other.dims[axis] = y->dims[axis];
        if (!ls_shape_equal(&other, y))
            return refuse(call, "%s can only differ from it along dimension %u",
                          ls_shape_text(&call->inputs[k], text, sizeof(text)), axis);
        if (size > INT64_MAX - y->dims[axis])
            return refuse(call, "the concatenation is larger than any memory");
        y->dims[axis] += size;
    }
    return true;
}

// Whether `part` lies in `whole` from axes on, with all examples.
static bool is_part(struct ls_shape_call *call, const struct ls_shape *part,
                    const struct ls_shape *whole)
{
    const int32_t *axes = call->attributes->axes;

    if (part->ndims != whole->ndims || axes[0] != 0 || part->dims[0] != whole->dims[0])
        return refuse(call, "a part must have as many dimensions, and all examples");
    for (uint32_t i = 1; i < LS_MAX_DIMS; i++) {
        if (i >= part->ndims
                ? axes[i] != 0
                : axes[i] < 0 || part->dims[i] < 1 || part->dims[i] > whole->dims[i] - axes[i])
            return refuse(call, "a part from %d on does not lie in dimension %u", axes[i], i);
    }
    return true;
}

bool ls_shapes_of_slice(struct ls_shape_call *call)
{
    call->outputs[0] = call->asked;
    return is_part(call, &call->asked, &call->inputs[0]);
}

bool ls_shapes_of_pad(struct ls_shape_call *call)
{
    call->outputs[0] = call->asked;
    return is_part(call, &call->inputs[0], &call->asked);
}

// x -> y: dimension i is dimension axes[i] of x
bool ls_shapes_of_transpose(struct ls_shape_call *call)
{
    const struct ls_shape *x = &call->inputs[0];
    const int32_t *axes = call->attributes->axes;
    uint32_t seen = 0;

    call->outputs[0] = *x;
    for (uint32_t i = 0; i < x->ndims; i++) {
        if (axes[i] < 0 || (uint32_t)axes[i] >= x->ndims || (seen >> axes[i] & 1) != 0)
            return refuse(call, "a transposition names each dimension once");
        seen |= 1u << axes[i];
        call->outputs[0].dims[i] = x->dims[axes[i]];
    }
    if (axes[0] != 0)
        return refuse(call, "the first dimension, of the examples, must stay the first");
    return true;
}

// x (B,H,W,C) -> y (B, strides[0] H, strides[1] W, C)
bool ls_shapes_of_upsample2d(struct ls_shape_call *call)
{
    const struct ls_shape *x = &call->inputs[0];
    if (!is_image(call))
        return false;
    call->outputs[0] = *x;
    for (uint32_t axis = 0; axis < 2; axis++) {
        const int32_t factor = call->attributes->strides[axis];
        if (factor < 1 || x->dims[1 + axis] > INT32_MAX / factor)
            return refuse(call, "%d times as many %s are not possible", factor, axis_name(2, axis));
        call->outputs[0].dims[1 + axis] = x->dims[1 + axis] * factor;
    }
    return true;
}

bool ls_shapes_of_from_bytes(struct ls_shape_call *call)
{
    if (!(call->attributes->divisor > 0))
        return refuse(call, "the divisor must be above 0, not %g",
                      (double)call->attributes->divisor);
    return ls_shapes_kept(call);
}

// ---- Normalization ----

// x, then vectors of C: gamma, beta, with mean and variance given those, too; [addend] -> y, mean,
// variance
bool ls_shapes_of_batch_normalization(struct ls_shape_call *call)
{
    static const char *const names[] = {"x", "gamma", "beta", "mean", "variance"};
    const struct ls_shape *x = &call->inputs[0];
    const uint32_t vectors = call->input_count < 5 ? 3 : 5;
    if (x->ndims < 2)
        return refuse(call, "batch normalization expects at least 2 dimensions");
    if (!(call->attributes->epsilon >= 0))
        return refuse(call, "epsilon must not be negative, it is %g",
                      (double)call->attributes->epsilon);
    for (uint32_t i = 1; i < vectors; i++) // a backward operation does not have all of them
        if (call->inputs[i].ndims > 0 && !is_vector(&call->inputs[i], last_dim(x)))
            return refuse(call, "%s must have %lld elements, one a channel", names[i],
                          (long long)last_dim(x));
    if (call->input_count > vectors && !ls_shape_equal(&call->inputs[vectors], x))
        return refuse(call, "the addend must be shaped as the input");
    call->outputs[0] = *x;
    call->outputs[1] = call->outputs[2] = call->inputs[1];
    return true;
}

// x (B,...,C) -> moments (2 C + 1)
bool ls_shapes_of_moments(struct ls_shape_call *call)
{
    const struct ls_shape *x = &call->inputs[0];
    if (x->ndims < 2)
        return refuse(call, "batch normalization expects at least 2 dimensions");
    call->outputs[0] = (struct ls_shape){.ndims = 1, .dims = {2 * last_dim(x) + 1}};
    return true;
}

// x, gamma, beta, moments, [addend] -> y, mean, variance
bool ls_shapes_of_synchronized_normalization(struct ls_shape_call *call)
{
    const struct ls_shape *x = &call->inputs[0], *moments = &call->inputs[3];
    struct ls_shape_call own = *call;
    own.input_count = 3;
    if (!ls_shapes_of_batch_normalization(&own)) {
        *call = own;
        return false;
    }
    if (moments->ndims > 0 && !is_vector(moments, 2 * last_dim(x) + 1))
        return refuse(call, "the moments must have %lld elements",
                      (long long)(2 * last_dim(x) + 1));
    if (call->input_count > 4 && !ls_shape_equal(&call->inputs[4], x))
        return refuse(call, "the addend must be shaped as the input");
    call->outputs[0] = *x;
    call->outputs[1] = call->outputs[2] =
        (struct ls_shape){.ndims = 1, .dims = {last_dim(x)}}; // gamma may not be there
    return true;
}

// ---- Losses ----

static bool make_sums(struct ls_shape_call *call)
{
    call->outputs[0] = (struct ls_shape){.ndims = 1, .dims = {4}};
    call->outputs[1] = call->inputs[0];
    return true;
}

// predictions (B,...,C), labels (B,...) -> sums, saved
bool ls_shapes_of_sparse_cross_entropy(struct ls_shape_call *call)
{
    struct ls_shape positions = call->inputs[0];
    if (positions.ndims < 2)
        return refuse(call, "a loss expects at least 2 dimensions: batch, classes");
    positions.ndims--;
    if (!same_elements(&positions, &call->inputs[1]))
        return refuse(call, "there must be one label a position");
    return make_sums(call);
}

// predictions, targets -> sums
bool ls_shapes_of_mean_squared_error(struct ls_shape_call *call)
{
    if (!same_elements(&call->inputs[0], &call->inputs[1]))
        return refuse(call, "there must be one target a prediction");
    return make_sums(call);
}

// Targets as predictions, or a label for each position.
static bool has_targets(struct ls_shape_call *call, bool elements, bool labels)
{
    const struct ls_shape *predictions = &call->inputs[0], *targets = &call->inputs[1];
    struct ls_shape positions = *predictions;
    if (predictions->ndims < 2)
        return refuse(call, "expected at least 2 dimensions: batch, classes");
    positions.ndims--;
    return (elements && same_elements(predictions, targets)) ||
           (labels && same_elements(&positions, targets)) ||
           refuse(call, "there must be one target a prediction, or one label a position");
}

// A weight for each position, or for each example where `examples` says so.
static bool has_weights(struct ls_shape_call *call, bool examples)
{
    const struct ls_shape *weights = &call->inputs[2];
    struct ls_shape positions = call->inputs[0];
    positions.ndims--;
    return call->input_count < 3 ||
           (examples && weights->ndims == 1 && weights->dims[0] == positions.dims[0]) ||
           ls_shape_equal(&positions, weights) ||
           refuse(call, "there must be one weight %s",
                  examples ? "an example or a position" : "a position");
}

// predictions, targets, [weights], [moments] -> sums
bool ls_shapes_of_loss(struct ls_shape_call *call)
{
    const bool sparse = call->attributes->function == LS_LOSS_SPARSE;
    const struct ls_shape *moments = &call->inputs[3];
    const float smoothing = call->attributes->smoothing;
    if (!has_targets(call, !sparse, sparse))
        return false;
    if (!(smoothing >= 0 && smoothing <= 1))
        return refuse(call, "smoothing must be from 0 to 1, not %g", (double)smoothing);
    if (call->attributes->function == LS_LOSS_HUBER && !(call->attributes->threshold > 0))
        return refuse(call, "delta must be above 0, not %g", (double)call->attributes->threshold);
    if (!has_weights(call, true))
        return false;
    if (call->input_count > 3 && (moments->ndims != 1 || moments->dims[0] != 3))
        return refuse(call, "there must be the moments of one channel");
    return make_sums(call);
}

// predictions, targets -> y, one a position
bool ls_shapes_of_position_loss(struct ls_shape_call *call)
{
    if (!ls_shapes_of_loss(call))
        return false;
    call->outputs[0] = call->inputs[0];
    call->outputs[0].dims[call->outputs[0].ndims - 1] = 1;
    return true;
}

// x (B,...,1), mask (B,...), moments -> y (B,1)
bool ls_shapes_of_masked_mean(struct ls_shape_call *call)
{
    const struct ls_shape *moments = &call->inputs[2];
    struct ls_shape positions = call->inputs[0];
    if (positions.ndims < 2 || last_dim(&positions) != 1)
        return refuse(call, "expected at least 2 dimensions, the last of them 1");
    positions.ndims--;
    if (!ls_shape_equal(&positions, &call->inputs[1]))
        return refuse(call, "the mask must have one element a position");
    if (moments->ndims != 1 || moments->dims[0] != 3)
        return refuse(call, "there must be the moments of one channel");
    call->outputs[0] = (struct ls_shape){.ndims = 2, .dims = {positions.dims[0], 1}};
    return true;
}

// predictions, targets, [weights] -> counts
bool ls_shapes_of_metric(struct ls_shape_call *call)
{
    const struct ls_op_attributes *attributes = call->attributes;
    const int64_t classes = last_dim(&call->inputs[0]), most = LS_METRIC_MOST_CLASSES;
    const int64_t counts[LS_METRIC_FUNCTION_COUNT] = {
        2,           2,           2, 4, 2 * (int64_t)attributes->count, classes * classes,
        classes * 3, classes * 5, 2, 2};
    if (!has_targets(call, true, true) || !has_weights(call, false))
        return false;
    if ((attributes->function == LS_METRIC_BUCKETS && attributes->count < 2) ||
        (attributes->function == LS_METRIC_TOP && attributes->count < 1))
        return refuse(call, "too few buckets or classes: %u", attributes->count);
    if (attributes->function >= LS_METRIC_CLASSES && attributes->function <= LS_METRIC_SQUARES &&
        classes > most)
        return refuse(call, "counts are of at most %lld classes", (long long)most);
    call->outputs[0] = (struct ls_shape){.ndims = 1, .dims = {counts[attributes->function]}};
    return true;
}

// ---- Flat ranges ----

bool ls_shapes_of_measure(struct ls_shape_call *call)
{
    call->outputs[0] = (struct ls_shape){.ndims = 1, .dims = {2}};
    return true;
}

bool ls_shapes_of_guard(struct ls_shape_call *call)
{
    call->outputs[0] = call->outputs[1] = (struct ls_shape){.ndims = 1, .dims = {1}};
    return true;
}

// Whether the optimizer has the states that it needs.
bool ls_shapes_of_update(struct ls_shape_call *call)
{
    if (call->attributes->function >= LS_UPDATE_COUNT)
        return refuse(call, "there is no optimizer number %u", call->attributes->function);
    return ls_shapes_kept(call);
}

// x, [measures (2 K)] -> y
bool ls_shapes_of_clip(struct ls_shape_call *call)
{
    const bool norm = call->attributes->function == LS_CLIP_NORM;
    if (!(call->attributes->threshold > 0))
        return refuse(call, "the bound must be above 0, not %g",
                      (double)call->attributes->threshold);
    if (norm != (call->input_count == 2) ||
        (norm && (call->inputs[1].ndims != 1 || call->inputs[1].dims[0] % 2 != 0)))
        return refuse(call, "clipping by norm, and only that, needs pairs of measures");
    return ls_shapes_kept(call);
}

// direction, measures (4) -> parameter
bool ls_shapes_of_lamb_update(struct ls_shape_call *call)
{
    if (call->inputs[1].ndims != 1 || call->inputs[1].dims[0] != 4)
        return refuse(call, "there must be measures of the parameter and of the direction");
    return ls_shapes_kept(call);
}

// ---- Layers: normalization of examples, rows by index, attention, products, transposed convolution, PReLU ----

// x (B,...,C), [gamma], [beta] -> y, saved
bool ls_shapes_of_layer_normalization(struct ls_shape_call *call)
{
    static const char *const names[] = {"x", "gamma", "beta"};
    const struct ls_op_attributes *attributes = call->attributes;
    const struct ls_shape *x = &call->inputs[0];

    if (x->ndims < 2)
        return refuse(call, "expected at least 2 dimensions");
    if (!(attributes->epsilon >= 0))
        return refuse(call, "epsilon must not be negative, it is %g", (double)attributes->epsilon);
    if (attributes->groups < 0 || (attributes->groups > 0 && last_dim(x) % attributes->groups != 0))
        return refuse(call, "%lld channels cannot be split into %d groups", (long long)last_dim(x),
                      attributes->groups);
    if (attributes->only_beta > 1 || (attributes->only_beta == 1 && call->input_count != 2))
        return refuse(call, "only_beta says what a single vector is");
    for (uint32_t i = 1; i < call->input_count; i++)
        if (ls_shape_elements(&call->inputs[i], 1) != last_dim(x))
            return refuse(call, "%s must have %lld elements, one a channel",
                          names[i + attributes->only_beta], (long long)last_dim(x));
    call->outputs[0] = *x;
    return true;
}

// ids (B,...), table (V,N) -> y (B,...,N)
bool ls_shapes_of_gather_rows(struct ls_shape_call *call)
{
    const struct ls_shape *ids = &call->inputs[0], *table = &call->inputs[1];

    if (table->ndims != 2)
        return refuse(call, "the table must have 2 dimensions, not %u", table->ndims);
    if (ids->ndims == LS_MAX_DIMS)
        return refuse(call, "expected at most %d dimensions", LS_MAX_DIMS - 1);
    call->outputs[0] = *ids;
    call->outputs[0].dims[call->outputs[0].ndims++] = table->dims[1];
    return true;
}

// q (B,T,H,D), k (B,S,H,D), v (B,S,H,E) -> y (B,T,H,E), saved
bool ls_shapes_of_attention(struct ls_shape_call *call)
{
    static const char *const names[] = {"q", "k", "v"};
    const struct ls_shape *q = &call->inputs[0], *k = &call->inputs[1], *v = &call->inputs[2];
    const float rate = call->attributes->rate;

    for (uint32_t i = 0; i < 3; i++)
        if (call->inputs[i].ndims != 4)
            return refuse(call, "%s must have 4 dimensions: batch, positions, heads, elements",
                          names[i]);
    if (k->dims[0] != q->dims[0] || v->dims[0] != q->dims[0] || k->dims[2] != q->dims[2] ||
        v->dims[2] != q->dims[2])
        return refuse(call, "q, k and v must have the same examples and heads");
    if (k->dims[3] != q->dims[3])
        return refuse(call, "q and k must have as many elements in a head, not %lld and %lld",
                      (long long)q->dims[3], (long long)k->dims[3]);
    if (v->dims[1] != k->dims[1])
        return refuse(call, "k and v must have as many positions, not %lld and %lld",
                      (long long)k->dims[1], (long long)v->dims[1]);
    if (call->attributes->causal > 1)
        return refuse(call, "causal must be 0 or 1");
    if (!(rate >= 0 && rate < 1))
        return refuse(call, "rate must be at least 0 and below 1, not %g", (double)rate);
    call->outputs[0] = *q;
    call->outputs[0].dims[3] = v->dims[3];
    return true;
}

// a (...,M,K), b (...,K,N) -> y (...,M,N)
bool ls_shapes_of_matmul(struct ls_shape_call *call)
{
    const struct ls_shape *a = &call->inputs[0], *b = &call->inputs[1];
    const uint32_t last = a->ndims - 1;
    char text[128];

    if (a->ndims < 2 || b->ndims != a->ndims || a->dims[last] != b->dims[last - 1] ||
        memcmp(a->dims, b->dims, (last - 1) * sizeof(a->dims[0])) != 0)
        return refuse(call, "cannot be multiplied by a tensor of %s",
                      ls_shape_text(b, text, sizeof(text)));
    call->outputs[0] = *a;
    call->outputs[0].dims[last] = b->dims[last];
    return true;
}

// The convolution of y that makes x has this window along the axis; y has `size` elements there.
static bool fits_window(struct ls_shape_call *call, uint32_t axis, int64_t size)
{
    const uint32_t space = call->inputs[0].ndims - 2;
    const struct ls_moves moves = ls_moves_along(call->attributes, space, axis);
    const int64_t kernel = call->inputs[1].dims[axis];

    if (moves.stride < 1 || moves.dilation < 1 || moves.before < 0 || moves.after < 0)
        return refuse(call, "strides and dilation must be at least 1, padding at least 0");
    if (ls_window_count(size, kernel, moves.stride, moves.dilation, moves.before, moves.after) !=
        call->inputs[0].dims[1 + axis])
        return refuse(call, "a window of %lld over %lld %s does not fit %lld times",
                      (long long)kernel, (long long)size, axis_name(space, axis),
                      (long long)call->inputs[0].dims[1 + axis]);
    return true;
}

// x (B,[D],H,W,C), w ([KD],KH,KW,F,C), [b (F)] -> y (B,[OD],OH,OW,F)
bool ls_shapes_of_conv2d_transpose(struct ls_shape_call *call)
{
    const struct ls_shape *x = &call->inputs[0], *w = &call->inputs[1], *y = &call->asked;
    const uint32_t space = x->ndims - 2;

    if (!has_space(call))
        return false;
    if (w->ndims != x->ndims)
        return refuse(call, "the kernel must have %u dimensions, not %u", x->ndims, w->ndims);
    const int64_t filters = w->dims[space];
    if (last_dim(w) != last_dim(x))
        return refuse(call, "the kernel is for %lld channels, the input has %lld",
                      (long long)last_dim(w), (long long)last_dim(x));
    if (call->attributes->groups > 1)
        return refuse(call, "a transposed convolution has no groups");
    if (call->input_count > 2 && !is_vector(&call->inputs[2], filters))
        return refuse(call, "the bias must have %lld elements", (long long)filters);
    if (y->ndims != x->ndims || y->dims[0] != x->dims[0] || last_dim(y) != filters)
        return refuse(call, "a transposed convolution needs the shape to make");
    call->outputs[0] = *y;
    for (uint32_t axis = 0; axis < space; axis++)
        if (!fits_window(call, axis, y->dims[1 + axis]))
            return false;
    return true;
}

// x (B,...), alpha -> y
bool ls_shapes_of_prelu(struct ls_shape_call *call)
{
    const struct ls_shape *x = &call->inputs[0], *alpha = &call->inputs[1];
    char text[128];
    bool fits = x->ndims >= 2 && alpha->ndims + 1 == x->ndims;

    for (uint32_t i = 0; fits && i < alpha->ndims; i++)
        fits = alpha->dims[i] == x->dims[i + 1] || alpha->dims[i] == 1;
    if (!fits)
        return refuse(call, "alpha cannot be %s", ls_shape_text(alpha, text, sizeof(text)));
    call->outputs[0] = *x;
    return true;
}

// x, w -> sums
bool ls_shapes_of_penalty(struct ls_shape_call *call)
{
    if (!(call->attributes->l1 >= 0) || !(call->attributes->l2 >= 0))
        return refuse(call, "l1 and l2 must not be negative, they are %g and %g",
                      (double)call->attributes->l1, (double)call->attributes->l2);
    call->outputs[0] = (struct ls_shape){.ndims = 1, .dims = {4}};
    return true;
}

// ---- Recurrent layers ----

static const int64_t recurrent_gates[LS_RECURRENT_COUNT] = {1, 4, 3, 3};

static bool is_one_step_function(struct ls_shape_call *call, uint32_t activation)
{
    if (activation >= LS_ACTIVATION_COUNT)
        return refuse(call, "there is no activation number %u", activation);
    if (activation == LS_LEAKY_RELU || activation == LS_ELU)
        return refuse(call, "an activation with a slope of its own cannot be repeated");
    return true;
}

// p (B,T,G U), w (U,G U), b, s (B,S,U) or (1,S,U), [mask (B,T)] -> y (B,N,U)
bool ls_shapes_of_recurrent(struct ls_shape_call *call)
{
    const struct ls_op_attributes *attributes = call->attributes;
    const struct ls_shape *p = &call->inputs[0], *w = &call->inputs[1], *b = &call->inputs[2],
                          *s = &call->inputs[3], *mask = &call->inputs[4];
    const int64_t gates = recurrent_gates[attributes->function], units = w->dims[0];
    const bool after = attributes->function == LS_RECURRENT_GRU_RESET_AFTER;
    const int64_t states = attributes->function == LS_RECURRENT_LSTM ? 2 : 1;

    if (p->ndims != 3 || w->ndims != 2 || w->dims[1] / gates != units || w->dims[1] % gates != 0 ||
        p->dims[2] != w->dims[1])
        return refuse(call, "expected steps of %lld values, %lld times the units",
                      (long long)(gates * units), (long long)gates);
    if (!is_vector(b, gates * units) &&
        !(after && b->ndims == 2 && b->dims[0] == 2 && b->dims[1] == gates * units))
        return refuse(call, "the bias must have %lld elements%s", (long long)(gates * units),
                      after ? " twice" : "");
    if (after && b->ndims != 2)
        return refuse(call, "the bias must have two rows");
    if (s->ndims != 3 || (s->dims[0] != p->dims[0] && s->dims[0] != 1) || s->dims[1] != states ||
        s->dims[2] != units)
        return refuse(call, "the first states must be %lld of %lld elements", (long long)states,
                      (long long)units);
    if (call->input_count > 4 &&
        (mask->ndims != 2 || mask->dims[0] != p->dims[0] || mask->dims[1] != p->dims[1]))
        return refuse(call, "the mask must have an element for each step");
    if (!(attributes->rate >= 0 && attributes->rate < 1))
        return refuse(call, "rate must be at least 0 and below 1, not %g",
                      (double)attributes->rate);
    const int64_t rows = (attributes->sequence & LS_SEQUENCE_ALL ? p->dims[1] : 1) +
                         (attributes->sequence & LS_SEQUENCE_STATES ? states : 0);
    call->outputs[0] = (struct ls_shape){.ndims = 3, .dims = {p->dims[0], rows, units}};
    return is_one_step_function(call, attributes->activation) &&
           is_one_step_function(call, attributes->recurrent_activation);
}

// x -> y as x, or without the last dimension
bool ls_shapes_of_differs(struct ls_shape_call *call)
{
    const struct ls_shape *x = &call->inputs[0];
    const int32_t *axes = call->attributes->axes;
    const uint32_t last = x->ndims - 1;

    call->outputs[0] = *x;
    for (uint32_t i = 0; i < LS_MAX_DIMS; i++)
        if (axes[i] != 0 && (axes[i] != 1 || i != last || last == 0))
            return refuse(call, "only the last dimension can be looked at as a whole");
    if (axes[last] == 1)
        call->outputs[0].dims[call->outputs[0].ndims-- - 1] = 0;
    return true;
}

// ---- Categories ----

bool ls_shapes_of_bucket(struct ls_shape_call *call)
{
    if (call->inputs[1].ndims != 1)
        return refuse(call, "boundaries must have 1 dimension, not %u", call->inputs[1].ndims);
    return ls_shapes_kept(call);
}

bool ls_shapes_of_lookup(struct ls_shape_call *call)
{
    const struct ls_shape *table = &call->inputs[1];
    if (table->ndims != 2 || table->dims[1] != 3)
        return refuse(call, "the table must have 2 dimensions, the second of 3");
    return ls_shapes_kept(call);
}

// ids (B,...) -> y (B,...,N), for several ids of an example without their dimension, the second
bool ls_shapes_of_encode(struct ls_shape_call *call)
{
    const struct ls_shape *ids = &call->inputs[0];
    const bool together = call->attributes->function >= LS_ENCODE_MULTI_HOT;
    struct ls_shape *y = &call->outputs[0];

    if (call->attributes->count < 1 || call->attributes->count > INT32_MAX)
        return refuse(call, "there must be 1 category or more");
    if (together && ids->ndims < 2)
        return refuse(call, "expected 2 dimensions or more: batch, ids");
    *y = *ids;
    if (together)
        memmove(&y->dims[1], &y->dims[2], (--y->ndims - 1) * sizeof(y->dims[0]));
    else if (y->ndims > 1 && last_dim(y) == 1)
        y->ndims--;
    if (y->ndims == LS_MAX_DIMS)
        return refuse(call, "expected at most %d dimensions", LS_MAX_DIMS - 1);
    y->dims[y->ndims++] = call->attributes->count;
    return true;
}

bool ls_shapes_of_dense_transposed(struct ls_shape_call *call)
{
    const struct ls_shape *x = &call->inputs[0], *w = &call->inputs[1];
    if (w->ndims != 2)
        return refuse(call, "the kernel must have 2 dimensions, not %u", w->ndims);
    if (x->ndims < 2 || last_dim(x) != w->dims[1])
        return refuse(call, "expected %lld as the last dimension", (long long)w->dims[1]);
    call->outputs[0] = *x;
    call->outputs[0].dims[x->ndims - 1] = w->dims[0];
    return true;
}

// ---- Images ----

// x -> y, as large as it is asked to be
bool ls_shapes_of_resize2d(struct ls_shape_call *call)
{
    const struct ls_shape *x = &call->inputs[0], *y = &call->asked;
    if (!is_image(call))
        return false;
    if (y->ndims != 4 || y->dims[0] != x->dims[0] || y->dims[3] != x->dims[3])
        return refuse(call, "an image of another size has the same examples and channels");
    call->outputs[0] = *y;
    return true;
}

static bool is_range(struct ls_shape_call *call, float low, float high)
{
    return (low <= high && low >= -FLT_MAX && high <= FLT_MAX) ||
           refuse(call, "%g to %g is no range", (double)low, (double)high);
}

// x -> factors
bool ls_shapes_of_draw(struct ls_shape_call *call)
{
    const struct ls_op_attributes *a = call->attributes;
    const struct ls_shape *x = &call->inputs[0];
    if (!is_image(call) || !is_range(call, a->l1, a->l2) || !is_range(call, a->beta1, a->beta2))
        return false;
    for (uint32_t axis = 0; axis < 2 && a->function == LS_DRAW_CROP; axis++)
        if (a->kernel[axis] < 1 || a->kernel[axis] > x->dims[1 + axis])
            return refuse(call, "%d %s cannot be cropped out of it", a->kernel[axis],
                          axis_name(2, axis));
    call->outputs[0] = (struct ls_shape){.ndims = 2};
    call->outputs[0].dims[0] = x->dims[0];
    call->outputs[0].dims[1] = ls_draw_numbers(a->function);
    return true;
}

static bool has_factors(struct ls_shape_call *call, int64_t count)
{
    const struct ls_shape *x = &call->inputs[0], *factors = &call->inputs[1];
    if (!is_image(call))
        return false;
    return (factors->ndims == 2 && factors->dims[0] == x->dims[0] && factors->dims[1] == count) ||
           refuse(call, "there must be %lld factors an example", (long long)count);
}

// x, factors, [otherwise] -> y, as large as it is asked to be
bool ls_shapes_of_resample(struct ls_shape_call *call)
{
    if (!has_factors(call, LS_TRANSFORM_NUMBERS))
        return false;
    if (call->asked.ndims == 0)
        call->asked = call->inputs[call->input_count > 2 ? 2 : 0];
    if (call->input_count > 2 && !ls_shape_equal(&call->inputs[2], &call->asked))
        return refuse(call, "what stands for the result otherwise must have its shape");
    return ls_shapes_of_resize2d(call);
}

// x, factors -> y
bool ls_shapes_of_recolour(struct ls_shape_call *call)
{
    return has_factors(call, LS_RECOLOUR_NUMBERS) &&
           is_range(call, call->attributes->l1, call->attributes->l2) && ls_shapes_kept(call);
}

bool ls_shapes_of_erase(struct ls_shape_call *call)
{
    return has_factors(call, LS_ERASE_NUMBERS) &&
           is_range(call, call->attributes->l1, call->attributes->l2) && ls_shapes_kept(call);
}
