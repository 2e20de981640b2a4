// SPDX-License-Identifier: Apache-2.0
// The losses of LS_OP_LOSS with their gradients, LS_OP_MASKED_MEAN, and the counts of LS_OP_METRIC.
// Predictions are seen as (N,C), a position a row.
#include "plugins/device/pjrt/operations.h"

#include <math.h>

// All positions of a call: predictions, and what they should be.
struct positions {
    struct hlo *h;
    const struct ls_op_attributes *a;
    struct hlo_value p, t; // (N,C); t: targets, also of labels
    struct hlo_value label; // (N); none: targets were given
    struct hlo_value weight; // (N); none: each position counts once
    double examples, each, classes; // each: positions of an example
};

// What a loss is made of: its value at each position (N) and its slope by each prediction (N,C).
struct loss {
    struct hlo_value value, slope;
};

static struct hlo_value by_row(const struct positions *at, struct hlo_value rows)
{
    static const int64_t first = 0;
    return hlo_broadcast(at->h, rows, at->p.shape, &first);
}

static struct hlo_value row_sum(const struct positions *at, struct hlo_value x)
{
    return hlo_reduce(at->h, "add", x, 2, 0);
}

static struct hlo_value number(const struct positions *at, double value)
{
    return hlo_like(at->h, at->p, value);
}

static struct hlo_value targets_of(const struct positions *at)
{
    struct hlo *h = at->h;
    if (at->classes == 1)
        return hlo_reshape(h, hlo_convert(h, at->label, LS_F32), at->p.shape);
    const struct hlo_value column = hlo_iota(h, LS_I32, at->p.shape, 1);
    return hlo_convert(h, hlo_compare(h, "EQ", column, by_row(at, at->label)), LS_F32);
}

static struct positions positions_of(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_shape whole = call->inputs[0].shape;
    const int64_t classes = whole.dims[whole.ndims - 1];
    const int64_t rows = hlo_elements(&whole) / classes;
    struct positions at = {.h = h,
                           .a = call->attributes,
                           .examples = (double)whole.dims[0],
                           .each = (double)(rows / whole.dims[0]),
                           .classes = (double)classes,
                           .p = hlo_reshape(h, call->inputs[0], HLO_SHAPE(rows, classes))};
    if (call->inputs[1].type == LS_I32) {
        at.label = hlo_reshape(h, call->inputs[1], hlo_flat(rows));
        at.t = targets_of(&at);
    } else {
        at.t = hlo_reshape(h, call->inputs[1], at.p.shape);
    }
    return at;
}

static struct hlo_value clip(const struct positions *at, struct hlo_value x, double low,
                             double high)
{
    return hlo_minimum(at->h, hlo_maximum(at->h, x, hlo_like(at->h, x, low)),
                       hlo_like(at->h, x, high));
}

// `yes` where a and b compare so, else 0.
static struct hlo_value where(const struct positions *at, struct hlo_value a, const char *direction,
                              struct hlo_value b, struct hlo_value yes)
{
    return hlo_select(at->h, hlo_compare(at->h, direction, a, b), yes, number(at, 0));
}

// ---- Losses of elements: values and slopes (N,C) ----

static struct loss binary(const struct positions *at)
{
    struct hlo *h = at->h;
    const double epsilon = (double)at->a->epsilon, s = (double)at->a->smoothing;
    const struct hlo_value t = hlo_plus(h, hlo_scaled(h, at->t, 1 - s), s / 2), one = number(at, 1);
    if (at->a->from_logits) {
        const struct hlo_value away = hlo_unary(h, "negate", hlo_unary(h, "abs", at->p));
        const struct hlo_value rest =
            hlo_unary(h, "log_plus_one", hlo_unary(h, "exponential", away));
        const struct hlo_value value =
            hlo_subtract(h, hlo_maximum(h, at->p, number(at, 0)), hlo_multiply(h, at->p, t));
        return (struct loss){hlo_add(h, value, rest), hlo_subtract(h, pjrt_sigmoid(h, at->p), t)};
    }
    const struct hlo_value q = clip(at, at->p, epsilon, (double)(1.0f - at->a->epsilon));
    const struct hlo_value no = hlo_subtract(h, one, q), not_t = hlo_subtract(h, one, t);
    const struct hlo_value value = hlo_add(h, hlo_multiply(h, t, hlo_unary(h, "log", q)),
                                           hlo_multiply(h, not_t, hlo_unary(h, "log", no)));
    const struct hlo_value slope = hlo_subtract(h, hlo_divide(h, not_t, no), hlo_divide(h, t, q));
    return (struct loss){hlo_unary(h, "negate", value), where(at, q, "EQ", at->p, slope)};
}

static struct loss logarithmic(const struct positions *at)
{
    struct hlo *h = at->h;
    const struct hlo_value least = number(at, (double)at->a->epsilon);
    const struct hlo_value d =
        hlo_subtract(h, hlo_unary(h, "log_plus_one", hlo_maximum(h, at->p, least)),
                     hlo_unary(h, "log_plus_one", hlo_maximum(h, at->t, least)));
    const struct hlo_value slope = hlo_divide(h, hlo_scaled(h, d, 2), hlo_plus(h, at->p, 1));
    return (struct loss){hlo_multiply(h, d, d), where(at, at->p, "GT", least, slope)};
}

static struct loss huber(const struct positions *at, struct hlo_value e)
{
    struct hlo *h = at->h;
    const double delta = (double)at->a->threshold;
    const struct hlo_value size = hlo_unary(h, "abs", e);
    const struct hlo_value near = hlo_compare(h, "LE", size, number(at, delta));
    const struct hlo_value far = hlo_plus(h, hlo_scaled(h, size, delta), -delta * delta / 2);
    return (struct loss){hlo_select(h, near, hlo_scaled(h, hlo_multiply(h, e, e), 0.5), far),
                         hlo_select(h, near, e, hlo_scaled(h, hlo_unary(h, "sign", e), delta))};
}

static struct loss log_cosh(const struct positions *at, struct hlo_value e)
{
    struct hlo *h = at->h;
    const struct hlo_value size = hlo_unary(h, "abs", e);
    const struct hlo_value rest =
        hlo_unary(h, "log_plus_one", hlo_unary(h, "exponential", hlo_scaled(h, size, -2)));
    return (struct loss){hlo_plus(h, hlo_add(h, size, rest), -log(2)), hlo_unary(h, "tanh", e)};
}

static struct loss percentage(const struct positions *at, struct hlo_value e)
{
    struct hlo *h = at->h;
    const struct hlo_value of =
        hlo_maximum(h, hlo_unary(h, "abs", at->t), number(at, (double)at->a->epsilon));
    return (struct loss){hlo_divide(h, hlo_scaled(h, hlo_unary(h, "abs", e), 100), of),
                         hlo_divide(h, hlo_scaled(h, hlo_unary(h, "sign", e), 100), of)};
}

static struct loss poisson(const struct positions *at)
{
    struct hlo *h = at->h;
    const struct hlo_value p = hlo_plus(h, at->p, (double)at->a->epsilon);
    return (struct loss){hlo_subtract(h, at->p, hlo_multiply(h, at->t, hlo_unary(h, "log", p))),
                         hlo_subtract(h, number(at, 1), hlo_divide(h, at->t, p))};
}

static struct loss hinge(const struct positions *at, bool square)
{
    struct hlo *h = at->h;
    const struct hlo_value zero = number(at, 0);
    const struct hlo_value y =
        hlo_select(h, hlo_compare(h, "EQ", at->t, zero), number(at, -1), at->t);
    const struct hlo_value value =
        hlo_maximum(h, hlo_subtract(h, number(at, 1), hlo_multiply(h, y, at->p)), zero);
    const struct hlo_value slope = where(at, value, "GT", zero, hlo_unary(h, "negate", y));
    if (!square)
        return (struct loss){value, slope};
    return (struct loss){hlo_multiply(h, value, value),
                         hlo_scaled(h, hlo_multiply(h, slope, value), 2)};
}

// The mean over the elements of a position.
static struct loss of_elements(const struct positions *at)
{
    struct hlo *h = at->h;
    const struct hlo_value e = hlo_subtract(h, at->p, at->t);
    struct loss loss;
    switch (at->a->function) {
    case LS_LOSS_BINARY: loss = binary(at); break;
    case LS_LOSS_SQUARED: loss = (struct loss){hlo_multiply(h, e, e), hlo_scaled(h, e, 2)}; break;
    case LS_LOSS_ABSOLUTE:
        loss = (struct loss){hlo_unary(h, "abs", e), hlo_unary(h, "sign", e)};
        break;
    case LS_LOSS_PERCENTAGE: loss = percentage(at, e); break;
    case LS_LOSS_LOGARITHMIC: loss = logarithmic(at); break;
    case LS_LOSS_HUBER: loss = huber(at, e); break;
    case LS_LOSS_LOG_COSH: loss = log_cosh(at, e); break;
    case LS_LOSS_POISSON: loss = poisson(at); break;
    case LS_LOSS_HINGE: loss = hinge(at, false); break;
    case LS_LOSS_SQUARED_HINGE: loss = hinge(at, true); break;
    default: loss = (struct loss){at->p, number(at, 1)}; break; // LS_LOSS_VALUES
    }
    return (struct loss){hlo_scaled(h, row_sum(at, loss.value), 1 / at->classes),
                         hlo_scaled(h, loss.slope, 1 / at->classes)};
}

// ---- Losses of positions ----

// exp(p - largest) of logits, the logarithms of their shares, and their sum (N)
static struct hlo_value exponentials(const struct positions *at, struct hlo_value *low,
                                     struct hlo_value *sum)
{
    struct hlo *h = at->h;
    const struct hlo_value largest = hlo_reduce(h, "maximum", at->p, 2, (double)-INFINITY);
    *low = hlo_subtract(h, at->p, by_row(at, largest));
    const struct hlo_value e = hlo_unary(h, "exponential", *low);
    *sum = row_sum(at, e);
    return e;
}

static struct loss sparse(const struct positions *at)
{
    struct hlo *h = at->h;
    const double epsilon = (double)at->a->epsilon;
    const struct hlo_value label = hlo_reshape(h, at->label, hlo_flat(at->p.shape.dims[0]));
    const struct hlo_value valid =
        hlo_binary(h, "and", hlo_compare(h, "GE", label, hlo_like(h, label, 0)),
                   hlo_compare(h, "LT", label, hlo_like(h, label, at->classes)));
    const struct hlo_value column = hlo_iota(h, LS_I32, at->p.shape, 1);
    const struct hlo_value is = hlo_compare(h, "EQ", column, by_row(at, label));
    const struct hlo_value one = hlo_convert(h, is, LS_F32);
    struct hlo_value sum, low, value, slope;
    if (at->a->from_logits) {
        const struct hlo_value e = exponentials(at, &low, &sum);
        value = hlo_select(h, is, low, number(at, 0));
        slope = hlo_subtract(h, hlo_divide(h, e, by_row(at, sum)), one);
    } else {
        const struct hlo_value c = clip(at, at->p, epsilon, 1 - epsilon);
        sum = row_sum(at, c);
        value = hlo_select(h, is, hlo_unary(h, "log", c), number(at, 0));
        slope = hlo_divide(h, hlo_subtract(h, hlo_divide(h, c, by_row(at, sum)), one), c);
        slope = where(at, c, "EQ", at->p, slope);
    }
    value = hlo_subtract(h, hlo_unary(h, "log", sum), row_sum(at, value));
    return (struct loss){hlo_select(h, valid, value, hlo_like(h, value, (double)NAN)),
                         hlo_select(h, by_row(at, valid), slope, number(at, (double)NAN))};
}

static struct loss categorical(const struct positions *at)
{
    struct hlo *h = at->h;
    const double epsilon = (double)at->a->epsilon, s = (double)at->a->smoothing;
    const struct hlo_value t = hlo_plus(h, hlo_scaled(h, at->t, 1 - s), s / at->classes);
    struct hlo_value sum, low;
    if (at->a->from_logits) {
        const struct hlo_value e = exponentials(at, &low, &sum);
        const struct hlo_value share = hlo_subtract(h, low, by_row(at, hlo_unary(h, "log", sum)));
        const struct hlo_value q = hlo_divide(h, e, by_row(at, sum));
        return (struct loss){hlo_unary(h, "negate", row_sum(at, hlo_multiply(h, t, share))),
                             hlo_subtract(h, hlo_multiply(h, by_row(at, row_sum(at, t)), q), t)};
    }
    sum = row_sum(at, at->p);
    const struct hlo_value q = hlo_divide(h, at->p, by_row(at, sum));
    const struct hlo_value c = clip(at, q, epsilon, 1 - epsilon), minus = hlo_unary(h, "negate", t);
    const struct hlo_value product = row_sum(at, where(at, c, "EQ", q, minus));
    const struct hlo_value slope = where(at, c, "EQ", q, hlo_divide(h, minus, c));
    return (struct loss){
        row_sum(at, hlo_multiply(h, minus, hlo_unary(h, "log", c))),
        hlo_divide(h, hlo_subtract(h, slope, by_row(at, product)), by_row(at, sum))};
}

static struct loss divergence(const struct positions *at)
{
    struct hlo *h = at->h;
    const double epsilon = (double)at->a->epsilon;
    const struct hlo_value q = clip(at, at->p, epsilon, 1), t = clip(at, at->t, epsilon, 1);
    const struct hlo_value ratio = hlo_divide(h, t, q);
    return (struct loss){row_sum(at, hlo_multiply(h, t, hlo_unary(h, "log", ratio))),
                         where(at, at->p, "EQ", q, hlo_unary(h, "negate", ratio))};
}

static struct loss categorical_hinge(const struct positions *at)
{
    struct hlo *h = at->h;
    const struct hlo_value not_t = hlo_subtract(h, number(at, 1), at->t);
    const struct hlo_value wrong = hlo_multiply(h, not_t, at->p);
    const struct hlo_value worst = hlo_reduce(h, "maximum", wrong, 2, (double)-INFINITY);
    const struct hlo_value right = row_sum(at, hlo_multiply(h, at->t, at->p));
    const struct hlo_value value = hlo_plus(h, hlo_subtract(h, worst, right), 1);
    const struct hlo_value loss = hlo_maximum(h, value, hlo_like(h, value, 0));
    const struct hlo_value column = hlo_iota(h, LS_I32, at->p.shape, 1);
    const struct hlo_value last = hlo_like(h, column, (double)INT32_MAX);
    const struct hlo_value is_worst = hlo_compare(h, "EQ", wrong, by_row(at, worst));
    const struct hlo_value first =
        hlo_reduce(h, "minimum", hlo_select(h, is_worst, column, last), 2, (double)INT32_MAX);
    const struct hlo_value is_first = hlo_compare(h, "EQ", column, by_row(at, first));
    const struct hlo_value slope =
        hlo_subtract(h, hlo_select(h, is_first, not_t, number(at, 0)), at->t);
    return (struct loss){loss, where(at, by_row(at, loss), "GT", number(at, 0), slope)};
}

static struct loss cosine(const struct positions *at)
{
    struct hlo *h = at->h;
    const struct hlo_value pp = hlo_unary(h, "sqrt", row_sum(at, hlo_multiply(h, at->p, at->p)));
    const struct hlo_value tt = hlo_unary(h, "sqrt", row_sum(at, hlo_multiply(h, at->t, at->t)));
    const struct hlo_value product = row_sum(at, hlo_multiply(h, at->t, at->p));
    const struct hlo_value least = hlo_like(h, pp, (double)at->a->epsilon);
    const struct hlo_value norm = hlo_maximum(h, pp, least), other = hlo_maximum(h, tt, least);
    const struct hlo_value both = hlo_multiply(h, norm, other);
    const struct hlo_value turn =
        hlo_select(h, hlo_compare(h, "GT", pp, least),
                   hlo_divide(h, product, hlo_multiply(h, norm, norm)), hlo_like(h, pp, 0));
    const struct hlo_value rest = hlo_subtract(h, hlo_multiply(h, by_row(at, turn), at->p), at->t);
    return (struct loss){hlo_unary(h, "negate", hlo_divide(h, product, both)),
                         hlo_divide(h, rest, by_row(at, both))};
}

static struct loss loss_of(const struct positions *at)
{
    switch (at->a->function) {
    case LS_LOSS_SPARSE: return sparse(at);
    case LS_LOSS_CATEGORICAL: return categorical(at);
    case LS_LOSS_DIVERGENCE: return divergence(at);
    case LS_LOSS_CATEGORICAL_HINGE: return categorical_hinge(at);
    case LS_LOSS_COSINE: return cosine(at);
    default: return of_elements(at);
    }
}

// ---- Weights, and masks of positions ----

static bool weighs_positions(const struct pjrt_call *call)
{
    return call->input_count > 2 && call->descs[2].ndims > 1;
}

// Its own weight for each position (N), or that of its example; none: no weights.
static struct hlo_value weights_of(const struct pjrt_call *call, const struct positions *at)
{
    struct hlo *h = call->h;
    static const int64_t first = 0;
    if (call->input_count < 3)
        return (struct hlo_value){0};
    const int64_t examples = (int64_t)at->examples, each = (int64_t)at->each;
    if (weighs_positions(call))
        return hlo_reshape(h, call->inputs[2], hlo_flat(examples * each));
    const struct hlo_value vector = hlo_reshape(h, call->inputs[2], hlo_flat(examples));
    return hlo_reshape(h, hlo_broadcast(h, vector, HLO_SHAPE(examples, each), &first),
                       hlo_flat(examples * each));
}

// x times the weights, as wide; 0 where a weight is, whatever x is.
static struct hlo_value weighted(struct hlo *h, struct hlo_value x, struct hlo_value weights)
{
    const struct hlo_value zero = hlo_like(h, x, 0);
    return hlo_select(h, hlo_compare(h, "NE", weights, zero), hlo_multiply(h, x, weights), zero);
}

// The share of the positions that a mask leaves, a scalar, by its moments; none: there is no mask.
static struct hlo_value left_of(const struct pjrt_call *call, uint32_t index)
{
    struct hlo *h = call->h;
    if (call->input_count <= index)
        return (struct hlo_value){0};
    const struct hlo_value moments = call->inputs[index];
    const struct hlo_value left =
        hlo_divide(h, hlo_part(h, moments, 0, 1), hlo_part(h, moments, 2, 1));
    return hlo_convert(h, hlo_reshape(h, left, (struct hlo_shape){0}), LS_F32);
}

// x divided by what is left; 0 where nothing is.
static struct hlo_value over_left(struct hlo *h, struct hlo_value x, struct hlo_value left)
{
    if (!left.id)
        return x;
    const struct hlo_value wide = hlo_spread(h, left, x.shape), zero = hlo_like(h, x, 0);
    return hlo_select(h, hlo_compare(h, "GT", wide, zero), hlo_divide(h, x, wide), zero);
}

// The examples that count: by a mask, by the weights of their positions; none: nobody asks.
static struct hlo_value examples_left(const struct pjrt_call *call, const struct positions *at,
                                      struct hlo_value left)
{
    struct hlo *h = call->h;
    if (left.id)
        return hlo_scaled(h, left, at->examples);
    return weighs_positions(call)
               ? hlo_scaled(h, hlo_reduce(h, "add", at->weight, 1, 0), 1 / at->each)
               : left;
}

// predictions, targets, [weights], [moments] -> sums
void pjrt_loss(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    struct positions at = positions_of(call);
    const struct hlo_value left = left_of(call, 3);
    at.weight = weights_of(call, &at);
    struct hlo_value losses = loss_of(&at).value;
    if (at.weight.id)
        losses = weighted(h, losses, at.weight);
    const struct hlo_value sum = hlo_scaled(h, hlo_reduce(h, "add", losses, 1, 0), 1 / at.each);
    call->outputs[0] =
        pjrt_sums(h, over_left(h, sum, left), hlo_constant(h, LS_F32, (struct hlo_shape){0}, 0),
                  at.examples, examples_left(call, &at, left));
}

// predictions, targets, [weights], [moments] -> dpredictions
void pjrt_loss_backward(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct positions at = positions_of(call);
    const struct hlo_value weights = weights_of(call, &at), left = left_of(call, 3);
    struct hlo_value slope = loss_of(&at).slope;
    const struct hlo_value scale =
        hlo_scaled(h, PJRT_RECORD(call, gradient_scale, LS_F32), 1 / at.each);
    if (weights.id)
        slope = weighted(h, slope, by_row(&at, weights));
    slope = hlo_multiply(h, slope, hlo_spread(h, scale, slope.shape));
    call->outputs[0] = over_left(h, slope, left);
}

// predictions, targets -> y: the loss of each position
void pjrt_position_loss(struct pjrt_call *call)
{
    const struct positions at = positions_of(call);
    call->outputs[0] = loss_of(&at).value;
}

// predictions, targets, dy -> dpredictions
void pjrt_position_loss_backward(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct positions at = positions_of(call);
    const struct hlo_value dy = hlo_reshape(h, call->inputs[2], hlo_flat(at.p.shape.dims[0]));
    call->outputs[0] = hlo_multiply(h, loss_of(&at).slope, by_row(&at, dy));
}

// x, mask, moments -> y
void pjrt_masked_mean(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value mask = call->inputs[1];
    const int64_t examples = mask.shape.dims[0], each = hlo_elements(&mask.shape) / examples;
    const struct hlo_shape rows = HLO_SHAPE(examples, each);
    const struct hlo_value x = hlo_reshape(h, call->inputs[0], rows);
    const struct hlo_value left = weighted(h, x, hlo_reshape(h, mask, rows));
    const struct hlo_value mean = hlo_scaled(h, hlo_reduce(h, "add", left, 2, 0), 1 / (double)each);
    call->outputs[0] = over_left(h, mean, left_of(call, 2));
}

// dy, mask, moments -> dx
void pjrt_masked_mean_backward(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    static const int64_t first = 0;
    const struct hlo_value mask = call->inputs[1];
    const int64_t examples = mask.shape.dims[0], each = hlo_elements(&mask.shape) / examples;
    const struct hlo_value dy =
        hlo_scaled(h, hlo_reshape(h, call->inputs[0], hlo_flat(examples)), 1 / (double)each);
    const struct hlo_value wide = hlo_broadcast(h, dy, HLO_SHAPE(examples, each), &first);
    const struct hlo_value dx = hlo_multiply(h, wide, hlo_reshape(h, mask, wide.shape));
    call->outputs[0] = over_left(h, dx, left_of(call, 2));
}

const char *pjrt_loss_refusal(const struct ls_kernel_request *request)
{
    return request->attributes.function < LS_LOSS_FUNCTION_COUNT ? NULL
                                                                 : "a function it does not know";
}

// ---- Metrics ----

// The weights of positions (N), or of elements (N,C), where something is; else 0.
static struct hlo_value marks(const struct positions *at, struct hlo_value is)
{
    struct hlo *h = at->h;
    if (!at->weight.id)
        return hlo_convert(h, is, LS_F32);
    const struct hlo_value weights = is.shape.ndims == 1 ? at->weight : by_row(at, at->weight);
    return hlo_select(h, is, weights, hlo_like(h, weights, 0));
}

static struct hlo_value count(const struct positions *at, struct hlo_value is)
{
    const uint32_t axes = (UINT32_C(1) << is.shape.ndims) - 1;
    return hlo_reshape(at->h, hlo_reduce(at->h, "add", marks(at, is), axes, 0), hlo_flat(1));
}

// All positions, each `times`.
static struct hlo_value count_all(const struct positions *at, double times)
{
    struct hlo *h = at->h;
    if (!at->weight.id)
        return hlo_constant(h, LS_F32, hlo_flat(1), at->examples * at->each * times);
    const struct hlo_value all = hlo_scaled(h, hlo_reduce(h, "add", at->weight, 1, 0), times);
    return hlo_reshape(h, all, hlo_flat(1));
}

static struct hlo_value is_not(struct hlo *h, struct hlo_value condition)
{
    return hlo_unary(h, "not", condition);
}

// The first of the largest elements of each position (N).
static struct hlo_value first_largest(const struct positions *at, struct hlo_value x)
{
    struct hlo *h = at->h;
    const struct hlo_value largest = hlo_reduce(h, "maximum", x, 2, (double)-INFINITY);
    const struct hlo_value column = hlo_iota(h, LS_I32, x.shape, 1);
    const struct hlo_value is = hlo_compare(h, "EQ", x, by_row(at, largest));
    return hlo_reduce(h, "minimum",
                      hlo_select(h, is, column, hlo_like(h, column, (double)INT32_MAX)), 2,
                      (double)INT32_MAX);
}

// The class that each position should have (N): of labels, or the first of the largest targets.
static struct hlo_value right_class(const struct positions *at)
{
    return at->label.id ? at->label : first_largest(at, at->t);
}

// How many classes have a larger prediction than the right one, or an equal one before it (N).
static struct hlo_value classes_before(const struct positions *at, bool equal_ones)
{
    struct hlo *h = at->h;
    const struct hlo_value right = right_class(at), wide = by_row(at, right);
    const struct hlo_value column = hlo_iota(h, LS_I32, at->p.shape, 1);
    const struct hlo_value is = hlo_compare(h, "EQ", column, wide);
    const struct hlo_value own = by_row(at, row_sum(at, hlo_select(h, is, at->p, number(at, 0))));
    struct hlo_value before = hlo_compare(h, "GT", at->p, own);
    if (equal_ones) {
        const struct hlo_value equal = hlo_binary(h, "and", hlo_compare(h, "EQ", at->p, own),
                                                  hlo_compare(h, "LT", column, wide));
        before = hlo_binary(h, "or", before, equal);
    }
    const struct hlo_value all = row_sum(at, hlo_convert(h, before, LS_F32));
    const struct hlo_value valid =
        hlo_binary(h, "and", hlo_compare(h, "GE", right, hlo_like(h, right, 0)),
                   hlo_compare(h, "LT", right, hlo_like(h, right, at->classes)));
    return hlo_select(h, valid, all, hlo_like(h, all, at->classes));
}

static void emit_positions(struct pjrt_call *call, const struct positions *at, bool top)
{
    struct hlo *h = call->h;
    const struct hlo_value before = classes_before(at, !top);
    const struct hlo_value most = hlo_like(h, before, top ? (double)at->a->count : 1);
    const struct hlo_value parts[2] = {count(at, hlo_compare(h, "LT", before, most)),
                                       count_all(at, 1)};
    call->outputs[0] = hlo_concatenate(h, parts, 2, 0);
}

static void emit_binary(struct pjrt_call *call, const struct positions *at, struct hlo_value above)
{
    struct hlo *h = call->h;
    const struct hlo_value parts[2] = {
        count(at, hlo_compare(h, "EQ", hlo_convert(h, above, LS_F32), at->t)),
        count_all(at, at->classes)};
    call->outputs[0] = hlo_concatenate(h, parts, 2, 0);
}

static void emit_confusion(struct pjrt_call *call, const struct positions *at,
                           struct hlo_value above, struct hlo_value is)
{
    struct hlo *h = call->h;
    const struct hlo_value below = is_not(h, above), no = is_not(h, is);
    const struct hlo_value parts[4] = {
        count(at, hlo_binary(h, "and", above, is)), count(at, hlo_binary(h, "and", above, no)),
        count(at, hlo_binary(h, "and", below, is)), count(at, hlo_binary(h, "and", below, no))};
    call->outputs[0] = hlo_concatenate(h, parts, 4, 0);
}

// Compares each element's bucket with all buckets: (elements, count), summed over the elements.
static void emit_buckets(struct pjrt_call *call, const struct positions *at, struct hlo_value is)
{
    struct hlo *h = call->h;
    static const int64_t first = 0;
    const double last = (double)at->a->count - 1;
    const int64_t elements = hlo_elements(&at->p.shape);
    const struct hlo_shape table = HLO_SHAPE(elements, (int64_t)at->a->count);
    const struct hlo_value scaled = hlo_unary(h, "ceil", hlo_scaled(h, at->p, last));
    const struct hlo_value bucket = clip(at, hlo_plus(h, scaled, -1), 0, last);
    const struct hlo_value wide =
        hlo_broadcast(h, hlo_reshape(h, bucket, hlo_flat(elements)), table, &first);
    const struct hlo_value in = hlo_compare(h, "EQ", wide, hlo_iota(h, LS_F32, table, 1));
    const struct hlo_value with = hlo_reshape(h, marks(at, is), hlo_flat(elements)),
                           without = hlo_reshape(h, marks(at, is_not(h, is)), hlo_flat(elements)),
                           zero = hlo_constant(h, LS_F32, table, 0);
    const struct hlo_value parts[2] = {
        hlo_reduce(h, "add", hlo_select(h, in, hlo_broadcast(h, with, table, &first), zero), 1, 0),
        hlo_reduce(h, "add", hlo_select(h, in, hlo_broadcast(h, without, table, &first), zero), 1,
                   0)};
    call->outputs[0] = hlo_concatenate(h, parts, 2, 0);
}

// (N,C): which class each position (N) has; all false where it is no class.
static struct hlo_value is_class(const struct positions *at, struct hlo_value of)
{
    return hlo_compare(at->h, "EQ", hlo_iota(at->h, LS_I32, at->p.shape, 1), by_row(at, of));
}

// The right class by the predicted one.
static void emit_classes(struct pjrt_call *call, const struct positions *at)
{
    struct hlo *h = call->h;
    const struct hlo_value right = marks(at, is_class(at, right_class(at))),
                           found = hlo_convert(h, is_class(at, first_largest(at, at->p)), LS_F32);
    call->outputs[0] = hlo_dot(h, right, found, 0, 0, 0);
}

static void emit_each_class(struct pjrt_call *call, const struct positions *at,
                            struct hlo_value above, struct hlo_value is)
{
    struct hlo *h = call->h;
    static const int64_t turned[2] = {1, 0};
    const struct hlo_shape row = HLO_SHAPE(1, (int64_t)at->classes);
    const struct hlo_value which[3] = {hlo_binary(h, "and", above, is),
                                       hlo_binary(h, "and", above, is_not(h, is)),
                                       hlo_binary(h, "and", is_not(h, above), is)};
    struct hlo_value rows[3];
    for (uint32_t i = 0; i < 3; i++)
        rows[i] = hlo_reshape(h, hlo_reduce(h, "add", marks(at, which[i]), 1, 0), row);
    call->outputs[0] = hlo_transpose(h, hlo_concatenate(h, rows, 3, 0), turned);
}

// ---- Sums of squares and correlations: in float64, as on other devices ----

static struct hlo_value wide_weights(const struct positions *at)
{
    struct hlo *h = at->h;
    const int64_t rows = at->p.shape.dims[0];
    return at->weight.id ? hlo_convert(h, at->weight, LS_F64)
                         : hlo_constant(h, LS_F64, hlo_flat(rows), 1);
}

static void emit_squares(struct pjrt_call *call, const struct positions *at)
{
    struct hlo *h = call->h;
    static const int64_t turned[2] = {1, 0};
    const struct hlo_shape row = HLO_SHAPE(1, (int64_t)at->classes);
    const struct hlo_value t = hlo_convert(h, at->t, LS_F64), w = by_row(at, wide_weights(at)),
                           e = hlo_subtract(h, t, hlo_convert(h, at->p, LS_F64));
    const struct hlo_value terms[5] = {
        hlo_multiply(h, w, t), hlo_multiply(h, w, hlo_multiply(h, t, t)),
        hlo_multiply(h, w, hlo_multiply(h, e, e)), w, hlo_like(h, w, 1)};
    struct hlo_value rows[5];
    for (uint32_t i = 0; i < 5; i++)
        rows[i] = hlo_reshape(h, hlo_reduce(h, "add", terms[i], 1, 0), row);
    const struct hlo_value sums = hlo_transpose(h, hlo_concatenate(h, rows, 5, 0), turned);
    call->outputs[0] = hlo_convert(h, sums, LS_F32);
}

static struct hlo_value row_mean(const struct positions *at, struct hlo_value x)
{
    return hlo_scaled(at->h, row_sum(at, x), 1 / at->classes);
}

static void emit_correlation(struct pjrt_call *call, const struct positions *at, bool concordance)
{
    struct hlo *h = call->h;
    const struct hlo_value p = hlo_convert(h, at->p, LS_F64), t = hlo_convert(h, at->t, LS_F64),
                           mean_p = row_mean(at, p), mean_t = row_mean(at, t),
                           dp = hlo_subtract(h, p, by_row(at, mean_p)),
                           dt = hlo_subtract(h, t, by_row(at, mean_t)),
                           pp = row_mean(at, hlo_multiply(h, dp, dp)),
                           tt = row_mean(at, hlo_multiply(h, dt, dt)),
                           pt = row_mean(at, hlo_multiply(h, dp, dt)), w = wide_weights(at);
    struct hlo_value value;
    if (concordance) {
        const struct hlo_value apart = hlo_subtract(h, mean_t, mean_p);
        const struct hlo_value below =
            hlo_add(h, hlo_add(h, pp, tt), hlo_multiply(h, apart, apart));
        value = hlo_divide(h, hlo_scaled(h, pt, 2), hlo_plus(h, below, 1e-7));
    } else {
        value =
            hlo_divide(h, pt, hlo_multiply(h, hlo_unary(h, "sqrt", pp), hlo_unary(h, "sqrt", tt)));
    }
    const struct hlo_value parts[2] = {
        hlo_reshape(h, hlo_reduce(h, "add", hlo_multiply(h, w, value), 1, 0), hlo_flat(1)),
        hlo_reshape(h, hlo_reduce(h, "add", w, 1, 0), hlo_flat(1))};
    call->outputs[0] = hlo_convert(h, hlo_concatenate(h, parts, 2, 0), LS_F32);
}

// predictions, targets, [weights] -> counts
void pjrt_metric(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    struct positions at = positions_of(call);
    at.weight = weights_of(call, &at);
    const struct hlo_value above = hlo_compare(h, "GT", at.p, number(&at, (double)at.a->threshold));
    const struct hlo_value is = hlo_compare(h, "GT", at.t, number(&at, 0));
    switch (at.a->function) {
    case LS_METRIC_BINARY: emit_binary(call, &at, above); break;
    case LS_METRIC_CATEGORICAL: emit_positions(call, &at, false); break;
    case LS_METRIC_TOP: emit_positions(call, &at, true); break;
    case LS_METRIC_CONFUSION: emit_confusion(call, &at, above, is); break;
    case LS_METRIC_CLASSES: emit_classes(call, &at); break;
    case LS_METRIC_EACH_CLASS: emit_each_class(call, &at, above, is); break;
    case LS_METRIC_SQUARES: emit_squares(call, &at); break;
    case LS_METRIC_PEARSON: emit_correlation(call, &at, false); break;
    case LS_METRIC_CONCORDANCE: emit_correlation(call, &at, true); break;
    default: emit_buckets(call, &at, is); break;
    }
}

const char *pjrt_metric_refusal(const struct ls_kernel_request *request)
{
    return request->attributes.function <= LS_METRIC_CONCORDANCE ? NULL
                                                                 : "a function it does not know";
}
