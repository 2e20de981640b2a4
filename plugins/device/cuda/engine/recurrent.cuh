// SPDX-License-Identifier: Apache-2.0
// What recurrent layers compute beside their products, a kernel for all units of all examples at
// one step. An item is a unit of an example; it reads and writes nothing that another one writes.
// Formulas: enum ls_recurrent, and device `reference`.
#ifndef LS_DEVICE_CUDA_RECURRENT_CUH
#define LS_DEVICE_CUDA_RECURRENT_CUH

#include "plugins/device/cuda/engine/grid.cuh"
#include "plugins/device/cuda/engine/random_body.h"
#include "plugins/device/cuda/engine/store_body.h"

namespace recurrent
{

struct place {
    int64_t i, b, u; // b: example, u: unit
    int64_t position; // of (B,T)
    int64_t gates; // where the gates of the step are in (B,T,G U), the first one's
};

__device__ inline struct place place_of(const struct cuda_recurrent &r, int64_t i)
{
    const int64_t b = cuda_quotient(i, r.units), u = i - b * r.units;
    const int64_t position = b * r.steps + r.time;
    return {i, b, u, position, position * r.gate_count * r.units + u};
}

__device__ inline bool is_masked(const struct cuda_recurrent &r, const struct place &at)
{
    return r.mask && r.mask[at.position] == 0;
}

__device__ inline float f(const struct cuda_recurrent &r, float x)
{
    return cuda_activate(r.activation, 0, x);
}

__device__ inline float g(const struct cuda_recurrent &r, float x)
{
    return cuda_activate(r.recurrent_activation, 0, x);
}

__device__ inline float f_slope(const struct cuda_recurrent &r, float y)
{
    return cuda_slope(r.activation, 0, y);
}

__device__ inline float g_slope(const struct cuda_recurrent &r, float y)
{
    return cuda_slope(r.recurrent_activation, 0, y);
}

// What the state is multiplied by for gate k.
__device__ inline float kept(const struct cuda_recurrent &r, uint64_t key, const struct place &at,
                             int64_t k)
{
    return cuda_keep(key, (uint32_t)(k * r.units + at.u), r.rate) ? 1 / (1 - r.rate) : 0;
}

__device__ inline float kept(const struct cuda_recurrent &r, const struct place &at, int64_t k)
{
    return r.rate > 0 ? kept(r, cuda_draw_key(r.record, r.key, at.b), at, k) : 1;
}

// Gates whose products are with the state as it is.
__device__ inline int64_t plain_gates(const struct cuda_recurrent &r)
{
    return r.cell == LS_RECURRENT_GRU ? 2 : r.gate_count;
}

// ---- Forward ----

// The state, and what the products of the next step are with.
__device__ inline void put_state(const struct cuda_recurrent &r, const struct place &at, float h)
{
    r.h[at.i] = h;
    if (r.rate <= 0)
        return;
    const uint64_t key = cuda_draw_key(r.record, r.key, at.b);
    for (int64_t k = 0; k < plain_gates(r); k++)
        r.factors[k * r.batch * r.units + at.i] = h * kept(r, key, at, k);
}

__device__ inline void begin(const struct cuda_recurrent *r, int64_t i)
{
    const struct place at = place_of(*r, i);
    const float *s = r->start + (r->one_start ? 0 : at.b) * r->states * r->units + at.u;
    if (r->states > 1)
        r->c[i] = s[r->units];
    r->shown[i] = 0;
    put_state(*r, at, s[0]);
}

// Of gate k before its function, of which r->q has the product.
__device__ inline float sum_of(const struct cuda_recurrent &r, const struct place &at, int64_t k)
{
    const int64_t u = k * r.units;
    return r.p[at.gates + u] + r.q[at.b * r.gate_count * r.units + u + at.u] + r.b[u + at.u];
}

// The gates z and r of a unit that is reset before its product, in place of their products; and
// what that product is with.
__device__ inline void reset(const struct cuda_recurrent *r, int64_t i)
{
    const struct place at = place_of(*r, i);
    const float z = g(*r, sum_of(*r, at, 0)), by = g(*r, sum_of(*r, at, 1));
    float *q = r->q + at.b * 3 * r->units + at.u;
    q[0] = z;
    q[r->units] = by;
    r->reset[i] = by * r->h[i] * kept(*r, at, 2);
}

struct step_result {
    float h, c;
};

// Gates are kept where somebody asks for them.
__device__ inline void keep_gate(const struct cuda_recurrent &r, const struct place &at, int64_t k,
                                 float value)
{
    if (r.gates)
        r.gates[at.gates + k * r.units] = value;
}

__device__ inline struct step_result lstm(const struct cuda_recurrent &r, const struct place &at,
                                          float c)
{
    const float in = g(r, sum_of(r, at, 0)), forget = g(r, sum_of(r, at, 1));
    const float made = f(r, sum_of(r, at, 2)), out = g(r, sum_of(r, at, 3));
    keep_gate(r, at, 0, in);
    keep_gate(r, at, 1, forget);
    keep_gate(r, at, 2, made);
    keep_gate(r, at, 3, out);
    const float next = forget * c + in * made;
    return {out * f(r, next), next};
}

__device__ inline struct step_result gated(const struct cuda_recurrent &r, const struct place &at,
                                           float h)
{
    const bool after = r.cell == LS_RECURRENT_GRU_RESET_AFTER;
    const int64_t row = 3 * r.units;
    const float *q = r.q + at.b * row + at.u, *more = r.b + row + at.u;
    const float z = after ? g(r, sum_of(r, at, 0) + more[0]) : q[0];
    const float by = after ? g(r, sum_of(r, at, 1) + more[r.units]) : q[r.units];
    const float inner = q[2 * r.units] + (after ? more[2 * r.units] : 0);
    const float made =
        f(r, r.p[at.gates + 2 * r.units] + r.b[2 * r.units + at.u] + (after ? by : 1) * inner);
    keep_gate(r, at, 0, z);
    keep_gate(r, at, 1, by);
    keep_gate(r, at, 2, made);
    if (after && r.resets)
        r.resets[at.position * r.units + at.u] = inner;
    return {z * h + (1 - z) * made, 0};
}

__device__ inline void step(const struct cuda_recurrent *r, int64_t i)
{
    const struct place at = place_of(*r, i);
    const bool lasting = r->cell == LS_RECURRENT_LSTM, masked = is_masked(*r, at);
    const float h = r->h[i], c = lasting ? r->c[i] : 0;
    if (r->before)
        r->before[at.position * r->units + at.u] = h;
    if (r->cells)
        r->cells[at.position * r->units + at.u] = c;
    struct step_result next;
    if (lasting)
        next = lstm(*r, at, c);
    else if (r->gate_count == 3)
        next = gated(*r, at, h);
    else {
        next = {f(*r, sum_of(*r, at, 0)), 0};
        keep_gate(*r, at, 0, next.h);
    }
    float shown = next.h;
    if (masked) {
        next = {h, c};
        shown = r->sequence & LS_SEQUENCE_ZEROS ? 0 : r->shown[i];
    }
    r->shown[i] = shown;
    if (lasting)
        r->c[i] = next.c;
    put_state(*r, at, next.h);
    float *y = r->y + at.b * r->rows * r->units + at.u;
    if (r->row >= 0)
        y[r->row * r->units] = shown;
    if (r->last && r->sequence & LS_SEQUENCE_STATES) {
        y[(r->rows - r->states) * r->units] = next.h;
        if (r->states > 1)
            y[(r->rows - 1) * r->units] = next.c;
    }
}

// ---- Backward ----

// h, c and shown have the gradients of the states, and of the output that a masked step shows.

__device__ inline void begin_backward(const struct cuda_recurrent *r, int64_t i)
{
    const struct place at = place_of(*r, i);
    const float *dy = r->dy + at.b * r->rows * r->units + at.u;
    const bool states = (r->sequence & LS_SEQUENCE_STATES) != 0;
    r->h[i] = states ? dy[(r->rows - r->states) * r->units] : 0;
    if (r->states > 1)
        r->c[i] = states ? dy[(r->rows - 1) * r->units] : 0;
    r->shown[i] = r->sequence & LS_SEQUENCE_ALL ? 0 : dy[0];
}

// The gradient of the state with what came through the products of the step after this one, where
// these are a part for each gate.
__device__ inline float joined(const struct cuda_recurrent &r, const struct place &at)
{
    float sum = r.h[at.i];
    if (r.rate <= 0 || !r.join)
        return sum;
    const uint64_t key = cuda_draw_key(r.record, r.key, at.b);
    for (int64_t k = 0; k < plain_gates(r); k++)
        sum += kept(r, key, at, k) * r.parts[k * r.batch * r.units + at.i];
    return sum;
}

// Gradients of p and of h w for gate k.
__device__ inline void put_gate(const struct cuda_recurrent &r, const struct place &at, int64_t k,
                                float d, float dq)
{
    r.d[at.gates + k * r.units] = d;
    if (r.dq != r.d)
        r.dq[at.gates + k * r.units] = dq;
}

// What goes past the products to the states before the step.
__device__ inline struct step_result lstm_backward(const struct cuda_recurrent &r,
                                                   const struct place &at, float dh, float dc)
{
    const float *gate = r.gates + at.gates, c = r.cells[at.position * r.units + at.u];
    const float in = gate[0], forget = gate[r.units], made = gate[2 * r.units],
                out = gate[3 * r.units];
    const float shown = f(r, forget * c + in * made);
    const float more = dc + dh * out * f_slope(r, shown);
    const float d[4] = {more * made * g_slope(r, in), more * c * g_slope(r, forget),
                        more * in * f_slope(r, made), dh * shown * g_slope(r, out)};
#pragma unroll
    for (int k = 0; k < 4; k++)
        put_gate(r, at, k, d[k], d[k]);
    return {0, more * forget};
}

__device__ inline struct step_result gated_backward(const struct cuda_recurrent &r,
                                                    const struct place &at, float dh)
{
    const float *gate = r.gates + at.gates, h = r.before[at.position * r.units + at.u];
    const float z = gate[0], by = gate[r.units], made = gate[2 * r.units];
    const float dz = dh * (h - made) * g_slope(r, z), d = dh * (1 - z) * f_slope(r, made);
    put_gate(r, at, 0, dz, dz);
    if (r.cell == LS_RECURRENT_GRU_RESET_AFTER) {
        const float dr = d * r.resets[at.position * r.units + at.u] * g_slope(r, by);
        put_gate(r, at, 1, dr, dr);
        put_gate(r, at, 2, d, d * by);
    } else
        put_gate(r, at, 2, d, d); // that of r follows from the product
    return {dh * z, 0};
}

__device__ inline void step_backward(const struct cuda_recurrent *r, int64_t i)
{
    const struct place at = place_of(*r, i);
    const bool lasting = r->cell == LS_RECURRENT_LSTM;
    float dh = joined(*r, at), shown = r->shown[i];
    if (r->sequence & LS_SEQUENCE_ALL)
        shown += r->dy[(at.b * r->rows + r->row) * r->units + at.u];
    if (is_masked(*r, at)) {
        for (int64_t k = 0; k < r->gate_count; k++)
            put_gate(*r, at, k, 0, 0);
        r->h[i] = dh;
        r->shown[i] = r->sequence & LS_SEQUENCE_ZEROS ? 0 : shown;
        return;
    }
    dh += shown;
    r->shown[i] = 0;
    struct step_result past = {0, 0};
    if (lasting)
        past = lstm_backward(*r, at, dh, r->c[i]);
    else if (r->gate_count == 3)
        past = gated_backward(*r, at, dh);
    else {
        const float d = dh * f_slope(*r, r->gates[at.gates]);
        put_gate(*r, at, 0, d, d);
    }
    r->h[i] = past.h;
    if (lasting)
        r->c[i] = past.c;
}

// Of a unit that is reset before its product: `reset` has the gradient of what that was with.
__device__ inline void reset_backward(const struct cuda_recurrent *r, int64_t i)
{
    const struct place at = place_of(*r, i);
    const bool masked = is_masked(*r, at);
    const float by = r->gates[at.gates + r->units], h = r->before[at.position * r->units + at.u];
    const float d = masked ? 0 : r->reset[i] * kept(*r, at, 2);
    const float dr = masked ? 0 : d * h * g_slope(*r, by);
    put_gate(*r, at, 1, dr, dr);
    if (!masked)
        r->h[i] += d * by;
}

// Of one gate at one step: what its product was with. Items are (G,B,T,U).
__device__ inline void factor(const struct cuda_recurrent *r, int64_t i)
{
    const int64_t line = cuda_quotient(i, r->units), u = i - line * r->units,
                  lines = r->batch * r->steps;
    const int64_t k = cuda_quotient(line, lines), position = line - k * lines;
    const struct place at = {0, cuda_quotient(position, r->steps), u, position,
                             position * r->gate_count * r->units + u};
    float x = r->before[position * r->units + u] * kept(*r, at, k);
    if (r->cell == LS_RECURRENT_GRU && k == 2)
        x = is_masked(*r, at) ? 0 : x * r->gates[at.gates + r->units];
    r->factors[i] = x;
}

// The gradients of the first states: of each example, or left where they are added up.
__device__ inline void finish(const struct cuda_recurrent *r, int64_t i)
{
    const struct place at = place_of(*r, i);
    const float dh = joined(*r, at);
    float *ds = r->ds + at.b * r->states * r->units + at.u;
    r->h[i] = dh;
    if (r->one_start)
        return;
    ds[0] = r->add ? ds[0] + dh : dh;
    if (r->states > 1)
        ds[r->units] = r->add ? ds[r->units] + r->c[i] : r->c[i];
}

} // namespace recurrent

extern "C" unsigned cuda_recurrent_launch(uint32_t kernel, const struct cuda_recurrent *r,
                                          struct CUstream_st *stream)
{
    using namespace recurrent;
    const int64_t items = r->batch * r->units;
    switch (kernel) {
    case cuda_recurrent_begin: return start<struct cuda_recurrent, begin>(r, items, stream);
    case cuda_recurrent_reset: return start<struct cuda_recurrent, reset>(r, items, stream);
    case cuda_recurrent_step: return start<struct cuda_recurrent, step>(r, items, stream);
    case cuda_recurrent_begin_backward:
        return start<struct cuda_recurrent, begin_backward>(r, items, stream);
    case cuda_recurrent_step_backward:
        return start<struct cuda_recurrent, step_backward>(r, items, stream);
    case cuda_recurrent_reset_backward:
        return start<struct cuda_recurrent, reset_backward>(r, items, stream);
    case cuda_recurrent_factor:
        return start<struct cuda_recurrent, factor>(r, r->gate_count * r->steps * items, stream);
    case cuda_recurrent_finish: return start<struct cuda_recurrent, finish>(r, items, stream);
    default: return cudaErrorInvalidValue;
    }
}

#endif
