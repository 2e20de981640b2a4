// SPDX-License-Identifier: Apache-2.0
// The cross-entropy with labels, the squared error, and what regularized variables add. The loss of
// an example is the mean over its positions; `sums` adds the examples up.
#include "plugins/device/pjrt/operations.h"

#include <math.h>

static uint32_t all_axes(struct hlo_value x)
{
    return (UINT32_C(1) << x.shape.ndims) - 1;
}

static struct hlo_value sum_of_all(struct hlo *h, struct hlo_value x)
{
    return hlo_reduce(h, "add", x, all_axes(x), 0);
}

struct hlo_value pjrt_sums(struct hlo *h, struct hlo_value loss, struct hlo_value right,
                           double examples, struct hlo_value left)
{
    const struct hlo_shape one = hlo_flat(1);
    const struct hlo_value parts[4] = {hlo_reshape(h, loss, one), hlo_reshape(h, right, one),
                                       hlo_constant(h, LS_F32, one, examples),
                                       left.id ? hlo_reshape(h, left, one)
                                               : hlo_constant(h, LS_F32, one, 0)};
    return hlo_concatenate(h, parts, 4, 0);
}

// ---- Cross-entropy of one label for each position: p seen as (positions, classes) ----

struct positions {
    struct hlo_value p, label, is_label; // (N,C), (N), (N,C)
    struct hlo_value valid; // (N): the label is a class
    double examples, each; // positions of an example
};

static struct positions positions_of(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_shape whole = call->inputs[0].shape;
    const int64_t classes = whole.dims[whole.ndims - 1];
    const int64_t rows = hlo_elements(&whole) / classes;
    const int64_t examples = whole.ndims > 1 ? whole.dims[0] : 1;
    static const int64_t first = 0;
    struct positions at = {.examples = (double)examples,
                           .each = (double)(rows / examples),
                           .p = hlo_reshape(h, call->inputs[0], HLO_SHAPE(rows, classes)),
                           .label = hlo_reshape(h, call->inputs[1], hlo_flat(rows))};
    const struct hlo_value wide = hlo_broadcast(h, at.label, at.p.shape, &first);
    at.is_label = hlo_compare(h, "EQ", hlo_iota(h, LS_I32, at.p.shape, 1), wide);
    at.valid = hlo_binary(h, "and", hlo_compare(h, "GE", at.label, hlo_like(h, at.label, 0)),
                          hlo_compare(h, "LT", at.label, hlo_like(h, at.label, (double)classes)));
    return at;
}

static struct hlo_value clipped(struct hlo *h, const struct ls_op_attributes *a, struct hlo_value p)
{
    return hlo_minimum(h, hlo_maximum(h, p, hlo_like(h, p, (double)a->epsilon)),
                       hlo_like(h, p, 1 - (double)a->epsilon));
}

static struct hlo_value row_sum(struct hlo *h, struct hlo_value x)
{
    return hlo_reduce(h, "add", x, 2, 0);
}

static struct hlo_value by_row(struct hlo *h, struct hlo_value rows, struct hlo_shape shape)
{
    static const int64_t first = 0;
    return hlo_broadcast(h, rows, shape, &first);
}

// The value of the label's class in each row.
static struct hlo_value chosen(struct hlo *h, const struct positions *at, struct hlo_value x)
{
    return row_sum(h, hlo_select(h, at->is_label, x, hlo_like(h, x, 0)));
}

// (N): -log of the label's share, and (N,C): the shares
static struct hlo_value position_losses(struct pjrt_call *call, const struct positions *at,
                                        struct hlo_value *shares)
{
    struct hlo *h = call->h;
    const struct ls_op_attributes *a = call->attributes;
    struct hlo_value loss;
    if (a->from_logits) {
        const struct hlo_value largest = hlo_reduce(h, "maximum", at->p, 2, (double)-INFINITY);
        const struct hlo_value low = hlo_subtract(h, at->p, by_row(h, largest, at->p.shape));
        const struct hlo_value e = hlo_unary(h, "exponential", low), sum = row_sum(h, e);
        *shares = hlo_divide(h, e, by_row(h, sum, e.shape));
        loss = hlo_subtract(h, hlo_unary(h, "log", sum), chosen(h, at, low));
    } else {
        const struct hlo_value c = clipped(h, a, at->p), sum = row_sum(h, c);
        *shares = hlo_divide(h, c, by_row(h, sum, c.shape));
        loss = hlo_subtract(h, hlo_unary(h, "log", sum), hlo_unary(h, "log", chosen(h, at, c)));
    }
    return hlo_select(h, at->valid, loss, hlo_like(h, loss, (double)NAN));
}

// (N): 1 where the label's prediction is the largest, and the first of equal ones
static struct hlo_value right_ones(struct hlo *h, const struct positions *at)
{
    const struct hlo_value largest = hlo_reduce(h, "maximum", at->p, 2, (double)-INFINITY);
    const struct hlo_value is_largest =
        hlo_compare(h, "EQ", at->p, by_row(h, largest, at->p.shape));
    const struct hlo_value column = hlo_iota(h, LS_I32, at->p.shape, 1);
    const struct hlo_value last = hlo_like(h, column, (double)INT32_MAX);
    const struct hlo_value first =
        hlo_reduce(h, "minimum", hlo_select(h, is_largest, column, last), 2, (double)INT32_MAX);
    return hlo_convert(h, hlo_compare(h, "EQ", first, at->label), LS_F32);
}

// predictions, labels -> sums, saved
void pjrt_sparse_cross_entropy(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct positions at = positions_of(call);
    struct hlo_value shares;
    const struct hlo_value losses = position_losses(call, &at, &shares);
    call->outputs[0] = pjrt_sums(h, hlo_scaled(h, sum_of_all(h, losses), 1 / at.each),
                                 hlo_scaled(h, sum_of_all(h, right_ones(h, &at)), 1 / at.each),
                                 at.examples, (struct hlo_value){0});
    call->outputs[1] = shares;
}

// predictions, labels, saved -> dpredictions
void pjrt_sparse_cross_entropy_backward(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct positions at = positions_of(call);
    const struct hlo_value q = hlo_reshape(h, call->inputs[2], at.p.shape);
    const struct hlo_value zero = hlo_like(h, q, 0);
    struct hlo_value g = hlo_subtract(h, q, hlo_select(h, at.is_label, hlo_like(h, q, 1), zero));
    g = hlo_select(h, by_row(h, at.valid, q.shape), g, hlo_like(h, q, (double)NAN));
    if (!call->attributes->from_logits) {
        const struct hlo_value inside =
            hlo_compare(h, "EQ", clipped(h, call->attributes, at.p), at.p);
        g = hlo_select(h, inside, hlo_divide(h, g, at.p), zero);
    }
    const struct hlo_value scale =
        hlo_scaled(h, PJRT_RECORD(call, gradient_scale, LS_F32), 1 / at.each);
    call->outputs[0] = hlo_multiply(h, g, hlo_spread(h, scale, g.shape));
}

// ---- Squared error ----

void pjrt_mean_squared_error(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value e = hlo_subtract(h, call->inputs[0], call->inputs[1]);
    const double examples = (double)e.shape.dims[0];
    const struct hlo_value sum = sum_of_all(h, hlo_multiply(h, e, e));
    call->outputs[0] = pjrt_sums(h, hlo_scaled(h, sum, examples / (double)hlo_elements(&e.shape)),
                                 hlo_constant(h, LS_F32, (struct hlo_shape){0}, 0), examples,
                                 (struct hlo_value){0});
}

void pjrt_mean_squared_error_backward(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value e = hlo_subtract(h, call->inputs[0], call->inputs[1]);
    const double each = (double)hlo_elements(&e.shape) / (double)e.shape.dims[0];
    const struct hlo_value scale =
        hlo_scaled(h, PJRT_RECORD(call, gradient_scale, LS_F32), 2 / each);
    call->outputs[0] = hlo_multiply(h, e, hlo_spread(h, scale, e.shape));
}

// ---- Regularized variables: x (of which the examples count), w ----

static double examples_of(const struct pjrt_call *call)
{
    return (double)call->descs[0].dims[0];
}

void pjrt_penalty(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value w = call->inputs[1];
    const struct hlo_value each =
        hlo_add(h, hlo_scaled(h, hlo_unary(h, "abs", w), (double)call->attributes->l1),
                hlo_scaled(h, hlo_multiply(h, w, w), (double)call->attributes->l2));
    const struct hlo_value sum = hlo_scaled(h, sum_of_all(h, each), examples_of(call));
    const int64_t low = 0, high = 3;
    call->outputs[0] = hlo_pad(h, hlo_reshape(h, sum, hlo_flat(1)), 0, &low, &high, NULL);
}

void pjrt_penalty_backward(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value w = call->inputs[1];
    const struct hlo_value scale =
        hlo_scaled(h, PJRT_RECORD(call, gradient_scale, LS_F32), examples_of(call));
    const struct hlo_value slope =
        hlo_add(h, hlo_scaled(h, hlo_unary(h, "sign", w), (double)call->attributes->l1),
                hlo_scaled(h, w, 2 * (double)call->attributes->l2));
    call->outputs[0] = hlo_multiply(h, slope, hlo_spread(h, scale, w.shape));
}
