// SPDX-License-Identifier: Apache-2.0
// Attention (Vaswani et al. 2017, section 3.2.1), one query at a time: p = softmax(q k^T /
// sqrt(D)), y = p v. Its backward operation computes p again: this device saves nothing.
#include "plugins/device/reference/reference.h"

#include <math.h>

// q: (B,T,H,D), k: (B,S,H,D), v: (B,S,H,E), y: (B,T,H,E)
struct attention {
    int64_t batch, queries, keys, heads, depth, width;
    bool causal;
    float rate;
};

// One query of one head, or position s of its keys.
struct query {
    int64_t b, t, h;
};

static struct attention attention_of(const struct reference_call *call,
                                     const struct ls_tensor_desc *q)
{
    return (struct attention){
        .batch = q[0].dims[0],
        .queries = q[0].dims[1],
        .keys = q[1].dims[1],
        .heads = q[0].dims[2],
        .depth = q[0].dims[3],
        .width = q[2].dims[3],
        .causal = call->attributes->causal != 0,
        .rate = call->attributes->rate,
    };
}

// Index of the first element of head h at a position, where an example has `positions`.
static int64_t at(const struct attention *a, int64_t b, int64_t position, int64_t positions,
                  int64_t h, int64_t elements)
{
    return ((b * positions + position) * a->heads + h) * elements;
}

static int64_t visible_keys(const struct attention *a, int64_t t)
{
    return a->causal && t + 1 < a->keys ? t + 1 : a->keys;
}

static double score(const struct attention *a, const float *q, const float *k,
                    const struct query *i, int64_t s)
{
    double sum = 0;
    for (int64_t d = 0; d < a->depth; d++)
        sum += (double)q[at(a, i->b, i->t, a->queries, i->h, a->depth) + d] *
               (double)k[at(a, i->b, s, a->keys, i->h, a->depth) + d];
    return sum / sqrt((double)a->depth);
}

// The largest score of a query, and the sum of exp(score - largest).
static void normalizer(const struct attention *a, const float *q, const float *k,
                       const struct query *i, double *largest, double *sum)
{
    *largest = -INFINITY;
    *sum = 0;
    for (int64_t s = 0; s < visible_keys(a, i->t); s++)
        *largest = fmax(*largest, score(a, q, k, i, s));
    for (int64_t s = 0; s < visible_keys(a, i->t); s++)
        *sum += exp(score(a, q, k, i, s) - *largest);
}

// What p is multiplied by: 1 where nothing is dropped.
static double kept(const struct reference_call *call, const struct attention *a,
                   const struct query *i, int64_t s)
{
    if (a->rate <= 0)
        return 1;
    const uint64_t key = ls_dropout_key(call->record, call->attributes->key, (uint64_t)i->b);
    const int64_t element = (i->h * a->queries + i->t) * a->keys + s;
    return ls_dropout_keep(key, (uint32_t)element, a->rate) ? 1 / (1 - (double)a->rate) : 0;
}

// ---- Forward: q, k, v -> y, [saved] ----

static void forward_query(const struct reference_call *call, const struct attention *a,
                          const struct query *i)
{
    const float *q = call->inputs[0], *k = call->inputs[1], *v = call->inputs[2];
    double *y = call->results[0] + at(a, i->b, i->t, a->queries, i->h, a->width);
    double largest, sum;

    normalizer(a, q, k, i, &largest, &sum);
    for (int64_t s = 0; s < visible_keys(a, i->t); s++) {
        const double p = exp(score(a, q, k, i, s) - largest) / sum * kept(call, a, i, s);
        for (int64_t e = 0; e < a->width; e++)
            y[e] += p * (double)v[at(a, i->b, s, a->keys, i->h, a->width) + e];
    }
}

// ---- Backward: dy, q, k, v, saved -> dq, dk, dv ----

// sum over e of dy[e] v[s, e]: the gradient of p[s] before the dropout
static double gradient_of_p(const struct reference_call *call, const struct attention *a,
                            const struct query *i, int64_t s)
{
    const float *dy = call->inputs[0], *v = call->inputs[3];
    double sum = 0;
    for (int64_t e = 0; e < a->width; e++)
        sum += (double)dy[at(a, i->b, i->t, a->queries, i->h, a->width) + e] *
               (double)v[at(a, i->b, s, a->keys, i->h, a->width) + e];
    return sum * kept(call, a, i, s);
}

static void backward_query(const struct reference_call *call, const struct attention *a,
                           const struct query *i)
{
    const float *dy = call->inputs[0], *q = call->inputs[1], *k = call->inputs[2];
    const int64_t here = at(a, i->b, i->t, a->queries, i->h, a->depth);
    double largest, sum, mean = 0; // sum of p dp

    normalizer(a, q, k, i, &largest, &sum);
    for (int64_t s = 0; s < visible_keys(a, i->t); s++)
        mean += exp(score(a, q, k, i, s) - largest) / sum * gradient_of_p(call, a, i, s);
    for (int64_t s = 0; s < visible_keys(a, i->t); s++) {
        const int64_t there = at(a, i->b, s, a->keys, i->h, a->depth);
        const int64_t value = at(a, i->b, s, a->keys, i->h, a->width);
        const double p = exp(score(a, q, k, i, s) - largest) / sum;
        const double ds = p * (gradient_of_p(call, a, i, s) - mean) / sqrt((double)a->depth);
        for (int64_t d = 0; d < a->depth; d++) {
            call->results[0][here + d] += ds * (double)k[there + d];
            call->results[1][there + d] += ds * (double)q[here + d];
        }
        for (int64_t e = 0; e < a->width; e++)
            call->results[2][value + e] +=
                p * kept(call, a, i, s) *
                (double)dy[at(a, i->b, i->t, a->queries, i->h, a->width) + e];
    }
}

static void each_query(const struct reference_call *call, const struct ls_tensor_desc *q,
                       void (*run)(const struct reference_call *, const struct attention *,
                                   const struct query *))
{
    const struct attention a = attention_of(call, q);
    struct query i;
    for (i.b = 0; i.b < a.batch; i.b++)
        for (i.h = 0; i.h < a.heads; i.h++)
            for (i.t = 0; i.t < a.queries; i.t++)
                run(call, &a, &i);
}

void reference_attention(const struct reference_call *call)
{
    each_query(call, &call->input_descs[0], forward_query);
}

void reference_attention_backward(const struct reference_call *call)
{
    each_query(call, &call->input_descs[1], backward_query);
}
