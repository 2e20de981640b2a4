// SPDX-License-Identifier: Apache-2.0
// Recurrent layers, one example after the other and one step after the other. The backward
// operation runs the steps forward again, for this device saves nothing, and then from the last to
// the first.
#include "plugins/device/reference/reference.h"

#include <string.h>

enum { MOST_GATES = 4 };

// p: (B,T,G U), w: (U,G U), b: (G U) or (2,G U), s: (B,S,U) or (1,S,U), mask: (B,T), y: (B,N,U)
struct sequence {
    const struct ls_op_attributes *attributes;
    const struct ls_step_record *record;
    int64_t batch, steps, units, gates, states, rows;
    bool one_start; // s is the same for all examples
    const float *p, *w, *b, *s, *mask;
    double *h, *c; // before each step and after the last one: (T+1,U)
    double *gate; // (T,G,U)
    double *q; // (T,U): h w_h + b_1h of a gated unit that is reset after it
    double *carried; // (2,U), backward: gradients of h and c, then (U): of the output before
    double *d; // (2,G,U): gradients of p, and of h w
};

static int64_t gates_of(uint32_t function)
{
    return function == LS_RECURRENT_SIMPLE ? 1 : function == LS_RECURRENT_LSTM ? 4 : 3;
}

uint64_t reference_recurrent_room(const struct ls_kernel_request *request)
{
    const struct ls_tensor_desc *p = &request->arguments[request->op == LS_OP_RECURRENT ? 0 : 1];
    const uint64_t steps = (uint64_t)p->dims[1],
                   gates = (uint64_t)gates_of(request->attributes.function);
    const uint64_t units = (uint64_t)p->dims[2] / gates;
    return (2 * (steps + 1) + steps * gates + steps + 3 + 2 * gates) * units;
}

// `first`: which input p is.
static struct sequence sequence_of(const struct reference_call *call, uint32_t first)
{
    const struct ls_tensor_desc *descs = call->input_descs + first;
    const uint32_t mask = first ? 6 : 4;
    struct sequence q = {.attributes = call->attributes,
                         .record = call->record,
                         .batch = descs[0].dims[0],
                         .steps = descs[0].dims[1],
                         .units = descs[1].dims[0],
                         .gates = gates_of(call->attributes->function),
                         .states = descs[3].dims[1],
                         .one_start = descs[3].dims[0] == 1,
                         .p = call->inputs[first],
                         .w = call->inputs[first + 1],
                         .b = call->inputs[first + 2],
                         .s = call->inputs[first + 3],
                         .mask = call->input_count > mask ? call->inputs[mask] : NULL,
                         .h = call->room};
    const uint32_t sequence = call->attributes->sequence;
    q.rows =
        (sequence & LS_SEQUENCE_ALL ? q.steps : 1) + (sequence & LS_SEQUENCE_STATES ? q.states : 0);
    q.c = q.h + (q.steps + 1) * q.units;
    q.gate = q.c + (q.steps + 1) * q.units;
    q.q = q.gate + q.steps * q.gates * q.units;
    q.carried = q.q + q.steps * q.units;
    q.d = q.carried + 3 * q.units;
    return q;
}

// Which step in time is the i-th that is made, and in which row of y its output is.
static int64_t time_of(const struct sequence *q, int64_t i)
{
    return q->attributes->sequence & LS_SEQUENCE_BACKWARDS ? q->steps - 1 - i : i;
}

static int64_t row_of(const struct sequence *q, int64_t i)
{
    return q->attributes->sequence & LS_SEQUENCE_IN_TIME ? time_of(q, i) : i;
}

static bool is_masked(const struct sequence *q, int64_t b, int64_t i)
{
    return q->mask && q->mask[b * q->steps + time_of(q, i)] == 0;
}

// What element u of the state is multiplied by for gate g.
static double kept(const struct sequence *q, int64_t b, int64_t g, int64_t u)
{
    const float rate = q->attributes->rate;
    if (rate <= 0)
        return 1;
    const uint64_t key = ls_dropout_key(q->record, q->attributes->key, (uint64_t)b);
    return ls_dropout_keep(key, (uint32_t)(g * q->units + u), rate) ? 1 / (1 - (double)rate) : 0;
}

static double weight(const struct sequence *q, int64_t k, int64_t g, int64_t u)
{
    return (double)q->w[(k * q->gates + g) * q->units + u];
}

static double f(const struct sequence *q, double x)
{
    return reference_activate(q->attributes->activation, 0, x);
}

static double f_slope(const struct sequence *q, double y)
{
    return reference_activation_slope(q->attributes->activation, 0, y);
}

static double g_slope(const struct sequence *q, double y)
{
    return reference_activation_slope(q->attributes->recurrent_activation, 0, y);
}

// ---- Forward: p, w, b, s, [mask] -> y, [saved] ----

// h w for one unit of a gate; `reset` NULL: of all of the state.
static double product(const struct sequence *q, int64_t b, const double *h, const double *reset,
                      int64_t g, int64_t u)
{
    double sum = 0;
    for (int64_t k = 0; k < q->units; k++)
        sum += h[k] * (reset ? reset[k] : 1) * kept(q, b, g, k) * weight(q, k, g, u);
    return sum;
}

static void gated_step(const struct sequence *q, int64_t b, int64_t i)
{
    const int64_t units = q->units;
    const bool after = q->attributes->function == LS_RECURRENT_GRU_RESET_AFTER;
    const float *p = q->p + (b * q->steps + time_of(q, i)) * 3 * units, *more = q->b + 3 * units;
    const double *h = q->h + i * units;
    double *z = q->gate + i * 3 * units, *r = z + units, *e = r + units;

    for (int64_t j = 0; j < 2 * units; j++)
        z[j] = reference_activate(q->attributes->recurrent_activation, 0,
                                  (double)p[j] + (double)q->b[j] + (after ? (double)more[j] : 0) +
                                      product(q, b, h, NULL, j / units, j % units));
    for (int64_t u = 0; u < units; u++) {
        const double inner = product(q, b, h, after ? NULL : r, 2, u);
        const double x = (double)p[2 * units + u] + (double)q->b[2 * units + u];
        q->q[i * units + u] = inner + (after ? (double)more[2 * units + u] : 0);
        e[u] = f(q, x + (after ? r[u] : 1) * q->q[i * units + u]);
        q->h[(i + 1) * units + u] = z[u] * h[u] + (1 - z[u]) * e[u];
    }
}

static void step(const struct sequence *q, int64_t b, int64_t i)
{
    const int64_t units = q->units, gates = q->gates;
    const float *p = q->p + (b * q->steps + time_of(q, i)) * gates * units;
    const double *h = q->h + i * units, *c = q->c + i * units;
    double *gate = q->gate + i * gates * units, *next = q->h + (i + 1) * units,
           *next_c = q->c + (i + 1) * units;

    if (q->attributes->function >= LS_RECURRENT_GRU) {
        gated_step(q, b, i);
        return;
    }
    for (int64_t j = 0; j < gates * units; j++) {
        const double a =
            (double)p[j] + (double)q->b[j] + product(q, b, h, NULL, j / units, j % units);
        gate[j] = gates == 1 || j / units == 2
                      ? f(q, a)
                      : reference_activate(q->attributes->recurrent_activation, 0, a);
    }
    for (int64_t u = 0; u < units; u++) {
        next[u] = gate[u];
        if (gates == 1)
            continue;
        next_c[u] = gate[units + u] * c[u] + gate[u] * gate[2 * units + u];
        next[u] = gate[3 * units + u] * f(q, next_c[u]);
    }
}

// All states and gates of an example.
static void run_steps(const struct sequence *q, int64_t b)
{
    const int64_t units = q->units;
    const float *s = q->s + (q->one_start ? 0 : b) * q->states * units;
    for (int64_t u = 0; u < units; u++) {
        q->h[u] = (double)s[u];
        q->c[u] = q->states > 1 ? (double)s[units + u] : 0;
    }
    for (int64_t i = 0; i < q->steps; i++) {
        if (!is_masked(q, b, i)) {
            step(q, b, i);
            continue;
        }
        memcpy(q->h + (i + 1) * units, q->h + i * units, (size_t)units * sizeof(double));
        memcpy(q->c + (i + 1) * units, q->c + i * units, (size_t)units * sizeof(double));
    }
}

static void forward_example(const struct sequence *q, int64_t b, double *y)
{
    const int64_t units = q->units;
    const bool all = (q->attributes->sequence & LS_SEQUENCE_ALL) != 0,
               zeros = (q->attributes->sequence & LS_SEQUENCE_ZEROS) != 0;
    int64_t shown = -1; // the step whose output is that of step i; none: 0

    run_steps(q, b);
    for (int64_t i = 0; i < q->steps; i++) {
        const bool masked = is_masked(q, b, i);
        shown = masked ? (zeros ? -1 : shown) : i;
        double *to = y + (all ? row_of(q, i) : 0) * units;
        for (int64_t u = 0; u < units; u++)
            to[u] = shown < 0 ? 0 : q->h[(shown + 1) * units + u];
    }
    if (q->attributes->sequence & LS_SEQUENCE_STATES)
        for (int64_t u = 0; u < units; u++) {
            y[(q->rows - q->states) * units + u] = q->h[q->steps * units + u];
            if (q->states > 1)
                y[(q->rows - 1) * units + u] = q->c[q->steps * units + u];
        }
}

void reference_recurrent(const struct reference_call *call)
{
    const struct sequence q = sequence_of(call, 0);
    for (int64_t b = 0; b < q.batch; b++)
        forward_example(&q, b, call->results[0] + b * q.rows * q.units);
}

// ---- Backward: dy, p, w, b, s, saved, [mask] -> dp, dw, db, ds ----

// Gradients of p and of h w in q->d from `dh`, that of the state after step i; what goes past the
// products to the states before it is left in dh and dc.
static void step_backward(const struct sequence *q, int64_t i, double *dh, double *dc)
{
    const int64_t units = q->units;
    const double *gate = q->gate + i * q->gates * units, *h = q->h + i * units,
                 *c = q->c + i * units;
    double *d = q->d, *dq = q->d + q->gates * units;

    for (int64_t u = 0; u < units; u++) {
        if (q->gates == 1) {
            d[u] = dh[u] * f_slope(q, gate[u]);
            dh[u] = 0;
        } else if (q->gates == 4) {
            const double in = gate[u], forget = gate[units + u], new = gate[2 * units + u],
                         out = gate[3 * units + u], shown = f(q, c[units + u]);
            const double more = dc[u] + dh[u] * out * f_slope(q, shown);
            d[u] = more * new *g_slope(q, in);
            d[units + u] = more * c[u] * g_slope(q, forget);
            d[2 * units + u] = more * in * f_slope(q, new);
            d[3 * units + u] = dh[u] * shown * g_slope(q, out);
            dc[u] = more * forget;
            dh[u] = 0;
        } else {
            const double z = gate[u], e = gate[2 * units + u];
            d[u] = dh[u] * (h[u] - e) * g_slope(q, z);
            d[2 * units + u] = dh[u] * (1 - z) * f_slope(q, e);
            dh[u] *= z;
        }
    }
    if (q->gates == 3 && q->attributes->function == LS_RECURRENT_GRU_RESET_AFTER)
        for (int64_t u = 0; u < units; u++)
            d[units + u] = d[2 * units + u] * q->q[i * units + u] * g_slope(q, gate[units + u]);
    memcpy(dq, d, (size_t)(q->gates * units) * sizeof(double));
}

// The products of a step: adds to dw, and to dh what comes through them. Of a gated unit that is
// reset before its product the gradient of r follows here.
static void products_backward(const struct sequence *q, int64_t b, int64_t i, double *dh,
                              double *dw)
{
    const int64_t units = q->units;
    const bool before = q->attributes->function == LS_RECURRENT_GRU;
    const double *h = q->h + i * units, *r = q->gate + (i * q->gates + 1) * units;
    double *d = q->d, *dq = d + q->gates * units;

    if (q->attributes->function == LS_RECURRENT_GRU_RESET_AFTER)
        for (int64_t u = 0; u < units; u++)
            dq[2 * units + u] *= r[u];
    for (int64_t g = q->gates - 1; g >= 0; g--)
        for (int64_t k = 0; k < units; k++) {
            const double keep = kept(q, b, g, k), reset = before && g == 2 ? r[k] : 1;
            double sum = 0;
            for (int64_t u = 0; u < units; u++) {
                sum += dq[g * units + u] * weight(q, k, g, u);
                dw[(k * q->gates + g) * units + u] += h[k] * reset * keep * dq[g * units + u];
            }
            if (before && g == 2)
                d[units + k] = dq[units + k] = sum * keep * h[k] * g_slope(q, r[k]);
            dh[k] += sum * keep * reset;
        }
}

static void backward_example(const struct reference_call *call, const struct sequence *q, int64_t b)
{
    const int64_t units = q->units, all = q->gates * units;
    const uint32_t sequence = q->attributes->sequence;
    const float *dy = (const float *)call->inputs[0] + b * q->rows * units;
    double *dh = q->carried, *dc = dh + units, *shown = dc + units; // shown: of the last output
    double *ds = call->results[3] + (q->one_start ? 0 : b) * q->states * units;

    run_steps(q, b);
    for (int64_t u = 0; u < units; u++) {
        const bool states = (sequence & LS_SEQUENCE_STATES) != 0;
        dh[u] = states ? (double)dy[(q->rows - q->states) * units + u] : 0;
        dc[u] = states && q->states > 1 ? (double)dy[(q->rows - 1) * units + u] : 0;
        shown[u] = sequence & LS_SEQUENCE_ALL ? 0 : (double)dy[u];
    }
    for (int64_t i = q->steps - 1; i >= 0; i--) {
        double *dp = call->results[0] + (b * q->steps + time_of(q, i)) * all;
        for (int64_t u = 0; u < units && sequence & LS_SEQUENCE_ALL; u++)
            shown[u] += (double)dy[row_of(q, i) * units + u];
        if (is_masked(q, b, i)) {
            if (sequence & LS_SEQUENCE_ZEROS)
                memset(shown, 0, (size_t)units * sizeof(double));
            continue;
        }
        for (int64_t u = 0; u < units; u++) {
            dh[u] += shown[u];
            shown[u] = 0;
        }
        step_backward(q, i, dh, dc);
        products_backward(q, b, i, dh, call->results[1]);
        for (int64_t j = 0; j < all; j++) {
            dp[j] = q->d[j];
            call->results[2][j] += q->d[j];
            if (q->attributes->function == LS_RECURRENT_GRU_RESET_AFTER)
                call->results[2][all + j] += q->d[all + j];
        }
    }
    for (int64_t u = 0; u < units; u++) {
        ds[u] += dh[u];
        if (q->states > 1)
            ds[units + u] += dc[u];
    }
}

void reference_recurrent_backward(const struct reference_call *call)
{
    const struct sequence q = sequence_of(call, 1);
    for (int64_t b = 0; b < q.batch; b++)
        backward_example(call, &q, b);
}
