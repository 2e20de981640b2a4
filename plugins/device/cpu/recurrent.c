// SPDX-License-Identifier: Apache-2.0
// Recurrent layers. Threads share the examples, so that none of them waits for another between two
// steps: each goes through all steps with its own, a few rows at a time in memory of its own, while
// the recurrent kernel, packed once, stays in the cache. What is saved is in the order of p, so
// that the gradient of the kernel is one product for all steps at the end.
#include "plugins/device/cpu/cpu.h"

#include <omp.h>
#include <string.h>

enum { BLOCK = 64 }; // rows or columns of a gradient that one thread makes

struct shape {
    int64_t batch, steps, units, gates, states, rows;
    bool one_start; // s is the same for all examples
    uint32_t cell, sequence; // enum ls_recurrent, bits of enum ls_sequence
    float rate;
};

// What forward leaves; (B,T,U) each, but gates (B,T,G U). NULL: not this kind, or nothing is saved.
struct saved {
    float *before, *gates; // the state before each step
    float *c, *shown; // LSTM: c before each step; f(c) after it
    float *q; // reset after: h w_h + b_1h
};

// Floats in scratch, a row for each example where it is not said otherwise.
struct room {
    float *packed; // (G, a packed matrix)
    float *gates, *h, *c, *shown, *next; // (G U), (U), ...: forward; backward gradients of these
    float *kept; // (G U): what the states are multiplied by for each gate; NULL: nothing is dropped
    float *dropped; // (U)
    float *of_h; // (B,T,U): gradient of h w_h + b_1h, where it is not that of p
    float *factors; // (gates that need it,B,T,U): what the gradient of the kernel is a product with
};

struct running {
    const struct ls_device *device;
    struct shape s;
    struct cpu_function f, g;
    const struct ls_step_record *record;
    uint32_t key;
    const float *p, *w, *b, *start, *mask, *dy;
    float *y, *dp, *dw, *db, *ds;
    struct saved saved;
    struct room room;
};

static struct shape shape_of(const struct ls_op_attributes *attributes,
                             const struct ls_tensor_desc *p)
{
    struct shape s = {.batch = p[0].dims[0],
                      .steps = p[0].dims[1],
                      .units = p[1].dims[0],
                      .gates = p[1].dims[1] / p[1].dims[0],
                      .states = p[3].dims[1],
                      .one_start = p[3].dims[0] == 1,
                      .cell = attributes->function,
                      .sequence = attributes->sequence,
                      .rate = attributes->rate};
    s.rows = (s.sequence & LS_SEQUENCE_ALL ? s.steps : 1) +
             (s.sequence & LS_SEQUENCE_STATES ? s.states : 0);
    return s;
}

static float *take(char *base, uint64_t *used, int64_t count)
{
    const uint64_t at = *used;
    *used += cpu_aligned((uint64_t)count * sizeof(float));
    return base && count ? (float *)(void *)(base + at) : NULL;
}

// What is saved, from `base` on, which may be NULL; its bytes.
static uint64_t lay_saved(const struct shape *s, char *base, struct saved *out)
{
    const int64_t all = s->batch * s->steps * s->units;
    uint64_t used = 0;
    out->before = take(base, &used, all);
    out->gates = take(base, &used, all * s->gates);
    out->c = take(base, &used, s->cell == LS_RECURRENT_LSTM ? all : 0);
    out->shown = take(base, &used, s->cell == LS_RECURRENT_LSTM ? all : 0);
    out->q = take(base, &used, s->cell == LS_RECURRENT_GRU_RESET_AFTER ? all : 0);
    return used;
}

static int64_t packed_count(const struct ls_device *device, const struct shape *s)
{
    const int64_t panel = device->loops->recurrent->panel;
    return (s->units + panel - 1) / panel * panel * s->units;
}

// Gates whose states are not h as it is when they are multiplied.
static int64_t factor_count(const struct shape *s)
{
    return s->rate > 0 ? s->gates : s->cell == LS_RECURRENT_GRU ? 1 : 0;
}

static uint64_t lay_room(const struct ls_device *device, const struct shape *s, bool backward,
                         char *base, struct room *out)
{
    const int64_t row = s->batch * s->units;
    uint64_t used = 0;
    out->packed = take(base, &used, s->gates * packed_count(device, s));
    out->gates = take(base, &used, row * s->gates);
    out->h = take(base, &used, row);
    out->c = take(base, &used, row);
    out->shown = take(base, &used, row);
    out->next = take(base, &used, row);
    out->kept = take(base, &used, s->rate > 0 ? row * s->gates : 0);
    out->dropped = take(base, &used, row);
    const bool after = backward && s->cell == LS_RECURRENT_GRU_RESET_AFTER;
    out->of_h = take(base, &used, after ? row * s->steps : 0);
    out->factors = take(base, &used, backward ? factor_count(s) * row * s->steps : 0);
    return used;
}

static uint64_t saved_bytes(const struct shape *s)
{
    struct saved saved;
    return lay_saved(s, NULL, &saved);
}

static uint64_t room_bytes(const struct ls_device *device, const struct shape *s, bool backward)
{
    struct room room;
    return lay_room(device, s, backward, NULL, &room);
}

static struct running running_of(const struct ls_device *device, const struct ls_kernel *kernel,
                                 const struct cpu_call *launch, uint32_t first)
{
    void *const *arguments = launch->arguments + first;
    struct running r = {.device = device,
                        .s = shape_of(&kernel->attributes, kernel->arguments + first),
                        .f = {kernel->attributes.activation, 0},
                        .g = {kernel->attributes.recurrent_activation, 0},
                        .record = launch->record,
                        .key = kernel->attributes.key,
                        .p = arguments[0],
                        .w = arguments[1],
                        .b = arguments[2],
                        .start = arguments[3]};
    lay_room(device, &r.s, first > 0, launch->scratch, &r.room);
    return r;
}

// Which step in time is the i-th that is made, and in which row of y its output is.
static int64_t time_of(const struct shape *s, int64_t i)
{
    return s->sequence & LS_SEQUENCE_BACKWARDS ? s->steps - 1 - i : i;
}

static int64_t row_of(const struct shape *s, int64_t i)
{
    return s->sequence & LS_SEQUENCE_IN_TIME ? time_of(s, i) : i;
}

static bool is_masked(const struct running *r, int64_t b, int64_t t)
{
    return r->mask && r->mask[b * r->s.steps + t] == 0.0f;
}

static void copy(float *to, const float *from, int64_t count)
{
    memcpy(to, from, (size_t)count * sizeof(float));
}

static void fill_kept(const struct running *r, int64_t begin, int64_t end)
{
    const int64_t row = r->s.gates * r->s.units;
    const float scale = 1.0f / (1.0f - r->s.rate);
    for (int64_t b = begin; r->room.kept && b < end; b++) {
        const uint64_t key = ls_dropout_key(r->record, r->key, (uint64_t)b);
        for (int64_t k = 0; k < row; k++)
            r->room.kept[b * row + k] = ls_dropout_keep(key, (uint32_t)k, r->s.rate) ? scale : 0.0f;
    }
}

// Gate by gate; backward transposed.
static void pack_part(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    const int64_t units = r->s.units, row = r->s.gates * units;
    for (int64_t g = begin; g < end; g++)
        r->device->loops->recurrent->pack(r->w + g * units, units, units, r->dp ? 1 : row,
                                          r->dp ? row : 1,
                                          r->room.packed + g * packed_count(r->device, &r->s));
}

static void pack(const struct running *r)
{
    const double work = (double)(r->s.units * r->s.units * r->s.gates);
    cpu_parallel(r->device, r->s.gates, 1, work, pack_part, (void *)(uintptr_t)r);
}

// ---- Forward ----

// The states times the kernel of gate g for rows of gates; `x` rows of U.
static void multiply_gate(const struct running *r, const float *x, int64_t g, int64_t begin,
                          int64_t end)
{
    const struct cpu_recurrent_loops *loops = r->device->loops->recurrent;
    const int64_t units = r->s.units, row = r->s.gates * units;
    for (int64_t b = begin; r->room.kept && b < end; b++)
        loops->multiply(x + b * units, r->room.kept + b * row + g * units,
                        r->room.dropped + b * units, units);
    const float *from = r->room.kept ? r->room.dropped : x;
    loops->product(from + begin * units, units, r->room.packed + g * packed_count(r->device, &r->s),
                   units, units, 0, r->room.gates + begin * row + g * units, row, end - begin);
}

static void gate(const struct running *r, struct cpu_function function, float *x, int64_t n)
{
    r->device->loops->elementwise->activate(function, x, x, n);
}

// Of one example: what is left of its step when the products are there.
static void finish_step(const struct running *r, int64_t b, int64_t t)
{
    const struct cpu_recurrent_loops *loops = r->device->loops->recurrent;
    const int64_t units = r->s.units, row = r->s.gates * units, at = b * r->s.steps + t;
    const float *p = r->p + at * row;
    float *a = r->room.gates + b * row, *e = a + 2 * units, *h = r->room.h + b * units,
          *c = r->room.c + b * units, *next = r->room.next + b * units,
          *q = r->saved.q ? r->saved.q + at * units : r->room.dropped + b * units;

    if (r->saved.before)
        copy(r->saved.before + at * units, h, units);
    if (r->saved.c)
        copy(r->saved.c + at * units, c, units);
    if (is_masked(r, b, t))
        return;
    switch (r->s.cell) {
    case LS_RECURRENT_SIMPLE:
        loops->add_two(p, r->b, a, units);
        gate(r, r->f, a, units);
        copy(next, a, units);
        break;
    case LS_RECURRENT_LSTM:
        loops->add_two(p, r->b, a, row);
        gate(r, r->g, a, 2 * units);
        gate(r, r->f, e, units);
        gate(r, r->g, a + 3 * units, units);
        loops->lstm_state(a, c, c, units);
        copy(next, c, units);
        gate(r, r->f, next, units);
        if (r->saved.shown)
            copy(r->saved.shown + at * units, next, units);
        loops->multiply(next, a + 3 * units, next, units);
        break;
    case LS_RECURRENT_GRU_RESET_AFTER:
        memset(q, 0, (size_t)units * sizeof(float));
        loops->add_two(e, r->b + row + 2 * units, q, units);
        loops->add_two(p, r->b, a, 2 * units);
        r->device->loops->elementwise->add(a, r->b + row, a, 2 * units);
        gate(r, r->g, a, 2 * units);
        r->device->loops->elementwise->add(p + 2 * units, r->b + 2 * units, e, units);
        loops->multiply_add(a + units, q, e, units);
        gate(r, r->f, e, units);
        loops->gru_state(a, h, next, units);
        break;
    default: // z and r are there
        loops->add_two(p + 2 * units, r->b + 2 * units, e, units);
        gate(r, r->f, e, units);
        loops->gru_state(a, h, next, units);
    }
    if (r->saved.gates)
        copy(r->saved.gates + at * row, a, row);
    copy(h, next, units);
}

// Of a gated unit that is reset before its product: z and r, and that product.
static void reset_before(const struct running *r, int64_t t, int64_t begin, int64_t end)
{
    const struct cpu_recurrent_loops *loops = r->device->loops->recurrent;
    const int64_t units = r->s.units, row = r->s.gates * units;
    for (int64_t b = begin; b < end; b++) {
        float *a = r->room.gates + b * row;
        loops->add_two(r->p + (b * r->s.steps + t) * row, r->b, a, 2 * units);
        gate(r, r->g, a, 2 * units);
        loops->multiply(a + units, r->room.h + b * units, r->room.next + b * units, units);
    }
    multiply_gate(r, r->room.next, 2, begin, end);
}

static void write_output(const struct running *r, int64_t b, int64_t i)
{
    const int64_t units = r->s.units;
    const bool all = (r->s.sequence & LS_SEQUENCE_ALL) != 0;
    float *shown = r->room.shown + b * units;
    if (!is_masked(r, b, time_of(&r->s, i)))
        copy(shown, r->room.h + b * units, units);
    else if (r->s.sequence & LS_SEQUENCE_ZEROS)
        memset(shown, 0, (size_t)units * sizeof(float));
    if (all || i + 1 == r->s.steps)
        copy(r->y + (b * r->s.rows + (all ? row_of(&r->s, i) : 0)) * units, shown, units);
}

static void forward_part(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    const struct shape *s = &r->s;
    const int64_t units = s->units;
    const int64_t ready = s->cell == LS_RECURRENT_GRU ? 2 : s->gates; // products with h as it is

    fill_kept(r, begin, end);
    for (int64_t b = begin; b < end; b++) {
        const float *start = r->start + (s->one_start ? 0 : b) * s->states * units;
        copy(r->room.h + b * units, start, units);
        if (s->states > 1)
            copy(r->room.c + b * units, start + units, units);
        memset(r->room.shown + b * units, 0, (size_t)units * sizeof(float));
    }
    for (int64_t i = 0; i < s->steps; i++) {
        const int64_t t = time_of(s, i);
        for (int64_t g = 0; g < ready; g++)
            multiply_gate(r, r->room.h, g, begin, end);
        if (s->cell == LS_RECURRENT_GRU)
            reset_before(r, t, begin, end);
        for (int64_t b = begin; b < end; b++) {
            finish_step(r, b, t);
            write_output(r, b, i);
        }
    }
    for (int64_t b = begin; s->sequence & LS_SEQUENCE_STATES && b < end; b++) {
        copy(r->y + ((b + 1) * s->rows - s->states) * units, r->room.h + b * units, units);
        if (s->states > 1)
            copy(r->y + ((b + 1) * s->rows - 1) * units, r->room.c + b * units, units);
    }
}

// About nanoseconds: 30 multiplications each, and the functions.
static double work_of(const struct shape *s)
{
    const double values = (double)(s->batch * s->steps) * (double)(s->gates * s->units);
    return values * ((double)s->units / 30.0 + 1.0);
}

static int32_t run_forward(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    struct running r = running_of(device, kernel, launch, 0);
    r.mask = kernel->input_count > 4 ? launch->arguments[4] : NULL;
    r.y = cpu_output(kernel, launch, 0);
    if (kernel->output_count > 1)
        lay_saved(&r.s, cpu_output(kernel, launch, 1), &r.saved);
    pack(&r);
    cpu_parallel(device, r.s.batch, 1, work_of(&r.s), forward_part, &r);
    return LS_OK;
}

// ---- Backward ----

static void slope(const struct running *r, struct cpu_function function, const float *y, float *d,
                  int64_t n)
{
    r->device->loops->elementwise->activate_backward(function, d, y, d, n);
}

// Of one example, whose gradient of the state after the step is there: d, the gradients of the
// products, and what goes past these to the states before.
static void step_backward(const struct running *r, int64_t b, int64_t t)
{
    const struct cpu_loops *all = r->device->loops;
    const int64_t units = r->s.units, row = r->s.gates * units, at = b * r->s.steps + t;
    const float *gates = r->saved.gates + at * row, *before = r->saved.before + at * units;
    float *d = r->room.gates + b * row, *dh = r->room.h + b * units, *dc = r->room.c + b * units,
          *through = r->room.next + b * units;

    switch (r->s.cell) {
    case LS_RECURRENT_SIMPLE:
        copy(d, dh, units);
        slope(r, r->f, gates, d, units);
        memset(dh, 0, (size_t)units * sizeof(float));
        break;
    case LS_RECURRENT_LSTM:
        all->recurrent->multiply(dh, gates + 3 * units, through, units);
        slope(r, r->f, r->saved.shown + at * units, through, units);
        all->recurrent->lstm_backward(gates, r->saved.c + at * units, r->saved.shown + at * units,
                                      dh, through, dc, d, units);
        slope(r, r->g, gates, d, 2 * units);
        slope(r, r->f, gates + 2 * units, d + 2 * units, units);
        slope(r, r->g, gates + 3 * units, d + 3 * units, units);
        memset(dh, 0, (size_t)units * sizeof(float));
        break;
    default:
        all->recurrent->gru_backward(gates, before, dh, d, units);
        slope(r, r->g, gates, d, units);
        slope(r, r->f, gates + 2 * units, d + 2 * units, units);
    }
    if (r->s.cell == LS_RECURRENT_GRU_RESET_AFTER) {
        all->recurrent->multiply(d + 2 * units, r->saved.q + at * units, d + units, units);
        slope(r, r->g, gates + units, d + units, units);
    }
    if (r->s.cell == LS_RECURRENT_GRU)
        memset(d + units, 0, (size_t)units * sizeof(float)); // follows
    copy(r->dp + at * row, d, row);
    if (r->s.cell == LS_RECURRENT_GRU_RESET_AFTER) {
        all->recurrent->multiply(d + 2 * units, gates + units, d + 2 * units, units);
        copy(r->room.of_h + at * units, d + 2 * units, units);
    }
}

// Rows of `to` = [to +] the gradients of gate g times its kernel, with what was dropped.
static void multiply_gate_backward(const struct running *r, int64_t g, uint32_t add, float *to,
                                   int64_t begin, int64_t end)
{
    const struct cpu_recurrent_loops *loops = r->device->loops->recurrent;
    const int64_t units = r->s.units, row = r->s.gates * units;
    const bool drops = r->room.kept != NULL;
    float *result = drops ? r->room.dropped : to;
    loops->product(r->room.gates + begin * row + g * units, row,
                   r->room.packed + g * packed_count(r->device, &r->s), units, units,
                   drops ? 0 : add, result + begin * units, units, end - begin);
    for (int64_t b = begin; drops && b < end; b++) {
        if (!add)
            memset(to + b * units, 0, (size_t)units * sizeof(float));
        loops->multiply_add(result + b * units, r->room.kept + b * row + g * units, to + b * units,
                            units);
    }
}

// Of a gated unit that is reset before its product: the gradient of r, and what goes past it to h.
static void reset_before_backward(const struct running *r, int64_t t, int64_t begin, int64_t end)
{
    const struct cpu_recurrent_loops *loops = r->device->loops->recurrent;
    const int64_t units = r->s.units, row = r->s.gates * units;
    multiply_gate_backward(r, 2, 0, r->room.next, begin, end);
    for (int64_t b = begin; b < end; b++) {
        const int64_t at = b * r->s.steps + t;
        const float *reset = r->saved.gates + at * row + units;
        float *d = r->room.gates + b * row + units, *inner = r->room.next + b * units;
        if (is_masked(r, b, t))
            continue;
        loops->multiply(inner, r->saved.before + at * units, d, units);
        slope(r, r->g, reset, d, units);
        copy(r->dp + at * row + units, d, units);
        loops->multiply_add(inner, reset, r->room.h + b * units, units);
    }
}

// What each state was multiplied by on its way to the products that need it, for that of the
// kernel.
static void fill_factors(const struct running *r, int64_t b, int64_t t)
{
    const struct cpu_recurrent_loops *loops = r->device->loops->recurrent;
    const int64_t units = r->s.units, row = r->s.gates * units, at = b * r->s.steps + t;
    const int64_t count = factor_count(&r->s), whole = r->s.batch * r->s.steps * units;
    for (int64_t k = 0; k < count; k++) {
        const int64_t g = r->s.gates - count + k;
        float *to = r->room.factors + k * whole + at * units;
        copy(to, r->saved.before + at * units, units);
        if (is_masked(r, b, t)) // its gates are not there, and its gradients 0
            continue;
        if (r->s.cell == LS_RECURRENT_GRU && g == 2)
            loops->multiply(to, r->saved.gates + at * row + units, to, units);
        if (r->room.kept)
            loops->multiply(to, r->room.kept + b * row + g * units, to, units);
    }
}

static void begin_backward(const struct running *r, int64_t b)
{
    const struct shape *s = &r->s;
    const int64_t units = s->units;
    const size_t bytes = (size_t)units * sizeof(float);
    const float *dy = r->dy + b * s->rows * units, *states = dy + (s->rows - s->states) * units;
    float *dh = r->room.h + b * units, *dc = r->room.c + b * units,
          *shown = r->room.shown + b * units;
    memset(dh, 0, bytes);
    memset(dc, 0, bytes);
    memset(shown, 0, bytes);
    if (s->sequence & LS_SEQUENCE_STATES)
        copy(dh, states, units);
    if (s->sequence & LS_SEQUENCE_STATES && s->states > 1)
        copy(dc, states + units, units);
    if (!(s->sequence & LS_SEQUENCE_ALL))
        copy(shown, dy, units);
}

static void example_backward(const struct running *r, int64_t b, int64_t i)
{
    const int64_t units = r->s.units, row = r->s.gates * units, t = time_of(&r->s, i);
    const int64_t at = b * r->s.steps + t;
    const struct cpu_elementwise_loops *loops = r->device->loops->elementwise;
    float *shown = r->room.shown + b * units, *dh = r->room.h + b * units;

    if (r->s.sequence & LS_SEQUENCE_ALL)
        loops->add(shown, r->dy + (b * r->s.rows + row_of(&r->s, i)) * units, shown, units);
    if (!is_masked(r, b, t)) {
        loops->add(dh, shown, dh, units);
        step_backward(r, b, t);
    } else {
        memset(r->room.gates + b * row, 0, (size_t)row * sizeof(float));
        memset(r->dp + at * row, 0, (size_t)row * sizeof(float));
        if (r->room.of_h)
            memset(r->room.of_h + at * units, 0, (size_t)units * sizeof(float));
    }
    if (!is_masked(r, b, t) || r->s.sequence & LS_SEQUENCE_ZEROS)
        memset(shown, 0, (size_t)units * sizeof(float));
    fill_factors(r, b, t);
}

static void backward_part(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    const struct shape *s = &r->s;
    const int64_t ready = s->cell == LS_RECURRENT_GRU ? 2 : s->gates;

    fill_kept(r, begin, end);
    for (int64_t b = begin; b < end; b++)
        begin_backward(r, b);
    for (int64_t i = s->steps - 1; i >= 0; i--) {
        for (int64_t b = begin; b < end; b++)
            example_backward(r, b, i);
        if (s->cell == LS_RECURRENT_GRU)
            reset_before_backward(r, time_of(s, i), begin, end);
        for (int64_t g = 0; g < ready; g++)
            multiply_gate_backward(r, g, 1, r->room.h, begin, end);
    }
    for (int64_t b = begin; !s->one_start && b < end; b++) {
        float *ds = r->ds + b * s->states * s->units;
        copy(ds, r->room.h + b * s->units, s->units);
        if (s->states > 1)
            copy(ds + s->units, r->room.c + b * s->units, s->units);
    }
}

// dw: blocks of rows of the kernel of a gate, for all examples and steps at once.
static void kernel_part(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    const struct shape *s = &r->s;
    const int64_t units = s->units, row = s->gates * units, count = s->batch * s->steps;
    const int64_t blocks = (units + BLOCK - 1) / BLOCK, special = s->gates - factor_count(s);
    omp_set_num_threads(1); // the library may not divide a block
    for (int64_t i = begin; i < end; i++) {
        const int64_t g = i / blocks, first = i % blocks * BLOCK;
        const int64_t rows = units - first < BLOCK ? units - first : BLOCK;
        const float *x =
            g < special ? r->saved.before : r->room.factors + (g - special) * count * units;
        const bool own = r->room.of_h && g == 2;
        dnnl_sgemm('T', 'N', rows, units, count, 1.0f, x + first, units,
                   own ? r->room.of_h : r->dp + g * units, own ? units : row, 0.0f,
                   r->dw + first * row + g * units, row);
    }
}

static void bias_part(void *context, int64_t begin, int64_t end)
{
    const struct running *r = context;
    const int64_t units = r->s.units, row = r->s.gates * units, count = r->s.batch * r->s.steps;
    r->device->loops->elementwise->column_sums(r->dp + begin, count, end - begin, row, 0,
                                               r->db + begin);
    if (r->s.cell != LS_RECURRENT_GRU_RESET_AFTER)
        return;
    for (int64_t k = begin; k < end && k < 2 * units; k++)
        r->db[row + k] = r->db[k];
    const int64_t first = begin < 2 * units ? 2 * units : begin;
    if (first < end)
        r->device->loops->elementwise->column_sums(r->room.of_h + first - 2 * units, count,
                                                   end - first, units, 0, r->db + row + first);
}

static int32_t run_backward(struct ls_device *device, struct ls_kernel *kernel,
                            const struct cpu_call *launch)
{
    struct running r = running_of(device, kernel, launch, 1);
    const int64_t units = r.s.units, row = r.s.gates * units;
    r.dy = launch->arguments[0];
    lay_saved(&r.s, launch->arguments[5], &r.saved);
    r.mask = kernel->input_count > 6 ? launch->arguments[6] : NULL;
    r.dp = cpu_output(kernel, launch, 0);
    r.dw = cpu_output(kernel, launch, 1);
    r.db = cpu_output(kernel, launch, 2);
    r.ds = cpu_output(kernel, launch, 3);
    pack(&r);
    cpu_parallel(device, r.s.batch, 1, work_of(&r.s), backward_part, &r);
    cpu_parallel(device, r.s.gates * ((units + BLOCK - 1) / BLOCK), 1, work_of(&r.s), kernel_part,
                 &r);
    cpu_parallel(device, row, BLOCK, (double)(r.s.batch * r.s.steps * row) / 4.0, bias_part, &r);
    if (r.s.one_start) {
        const struct cpu_elementwise_loops *loops = device->loops->elementwise;
        loops->column_sums(r.room.h, r.s.batch, units, units, 0, r.ds);
        if (r.s.states > 1)
            loops->column_sums(r.room.c, r.s.batch, units, units, 0, r.ds + units);
    }
    return LS_OK;
}

// ---- prepare ----

int32_t cpu_recurrent(struct ls_device *device, const struct ls_kernel_request *request,
                      struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const struct shape s = shape_of(&kernel->attributes, kernel->arguments);
    kernel->run = run_forward;
    answer->saved_bytes = saved_bytes(&s);
    answer->scratch_bytes = room_bytes(device, &s, false);
    snprintf(answer->implementation, sizeof(answer->implementation), "own %s", device->loops->name);
    return cpu_all_plain(device, request, kernel);
}

int32_t cpu_recurrent_backward(struct ls_device *device, const struct ls_kernel_request *request,
                               struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const struct shape s = shape_of(&kernel->attributes, kernel->arguments + 1);
    kernel->run = run_backward;
    answer->used_inputs &= ~0x1aU; // neither p nor b nor s
    answer->scratch_bytes = room_bytes(device, &s, true);
    snprintf(answer->implementation, sizeof(answer->implementation), "oneDNN sgemm + own %s",
             device->loops->name);
    return cpu_all_plain(device, request, kernel);
}
