// SPDX-License-Identifier: Apache-2.0
// Pairs of tensors, one of which may be repeated along some dimensions, forward and backward.
#include "plugins/device/cpu/layout.h"
#include "plugins/device/cpu/reduce.h"

#include <string.h>

struct pair_state {
    struct cpu_strided strided; // a, b, y; backward: dy, a, b, the gradient
    bool reduces; // backward: the operand was repeated
    struct cpu_reduce plan;
    uint32_t term;
};

static int32_t mismatch(struct ls_device *device, const struct ls_kernel_request *request)
{
    return cpu_unsupported(device, request, "the arguments lie in layouts that do not match");
}

static bool lies_alike(const struct ls_tensor_desc *a, const struct ls_tensor_desc *b)
{
    return a->ndims == b->ndims && memcmp(a->dims, b->dims, a->ndims * sizeof(a->dims[0])) == 0 &&
           memcmp(&a->layout, &b->layout, sizeof(a->layout)) == 0;
}

// All tensors as they lie; where all lie alike, that may be any layout.
static bool plan_tensors(const struct ls_kernel *kernel, uint32_t count, uint32_t whole,
                         struct cpu_strided *out)
{
    const struct ls_tensor_desc *largest = &kernel->arguments[whole];
    bool alike = true;
    for (uint32_t i = 0; i < count; i++)
        alike = alike && lies_alike(&kernel->arguments[i], largest);
    if (alike) {
        *out = (struct cpu_strided){.ndims = 1, .count = (int)count};
        out->dims[0] = (int64_t)cpu_elements(largest);
        for (uint32_t i = 0; i < count; i++)
            out->strides[i][0] = 1;
        return true;
    }
    if (!cpu_strided_start(largest, out))
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (!cpu_strided_add(largest, &kernel->arguments[i], out))
            return false;
    cpu_strided_collapse(out);
    return cpu_strided_has_rows(out);
}

// Halves pass through rooms.
static int64_t piece_of(const struct ls_tensor_desc *desc)
{
    return desc->dtype == LS_F32 ? 0 : CPU_CHUNK;
}

// ---- Forward ----

struct pairing {
    const struct ls_device *device;
    const struct cpu_strided *strided;
    uint32_t choice; // the function; backward: the term
    struct cpu_tensor tensors[4]; // as `strided` has them
};

// What is not read is `other` instead.
static struct cpu_operand operand(const struct pairing *p, int tensor, const int64_t *offsets,
                                  int64_t rows, int64_t columns, float *room,
                                  struct cpu_operand other)
{
    const struct cpu_place place =
        cpu_strided_place(p->strided, tensor, p->tensors[tensor], offsets);
    return place.tensor.at ? cpu_read_rows(p->device, &place, rows, columns, room) : other;
}

static void pair_part(void *context, const int64_t *offsets, int64_t rows, int64_t columns)
{
    const struct pairing *p = context;
    float rooms[3][CPU_CHUNK];
    const struct cpu_place y = cpu_strided_place(p->strided, 2, p->tensors[2], offsets);
    const struct cpu_result to = cpu_target_rows(&y, columns, rooms[2]);
    const struct cpu_operand none = {NULL, 0, 0};
    p->device->loops->pair->pair(p->choice, rows, columns,
                                 operand(p, 0, offsets, rows, columns, rooms[0], none),
                                 operand(p, 1, offsets, rows, columns, rooms[1], none), to);
    cpu_written_rows(p->device, &y, rows, columns, to.at);
}

static int32_t run_pair(struct ls_device *device, struct ls_kernel *kernel,
                        const struct cpu_call *launch)
{
    const struct pair_state *state = kernel->state;
    const struct ls_tensor_desc *y = cpu_output_desc(kernel, 0);
    struct pairing p = {device, &state->strided, kernel->attributes.function, {{0}}};
    for (uint32_t i = 0; i < 3; i++)
        p.tensors[i] = (struct cpu_tensor){launch->arguments[i], y->dtype};
    cpu_strided_run(device, &state->strided, (double)cpu_elements(y) * 0.2, pair_part, &p);
    cpu_zero_padding(y, launch->arguments[2]);
    return LS_OK;
}

int32_t cpu_pair(struct ls_device *device, const struct ls_kernel_request *request,
                 struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    struct pair_state *state = kernel->state = cpu_state(device, sizeof(*state));
    if (!state)
        return LS_OUT_OF_MEMORY;
    if (request->attributes.function >= LS_PAIR_COUNT)
        return cpu_unsupported(device, request, "there is no such function");
    cpu_broadcast_layouts(kernel, 3, 2);
    if (!plan_tensors(kernel, 3, 2, &state->strided))
        return mismatch(device, request);
    state->strided.piece = piece_of(&kernel->arguments[2]);
    for (uint32_t i = 0; i < 2; i++)
        if (lies_alike(&kernel->arguments[i], &kernel->arguments[2]))
            answer->in_place |= 1U << i;
    kernel->run = run_pair;
    cpu_implementation(device, answer, "pair");
    return LS_OK;
}

// ---- Backward ----

static uint32_t term_of(uint32_t function, bool second)
{
    switch (function) {
    case LS_PAIR_SUBTRACT: return second ? CPU_TERM_MINUS : CPU_TERM_SAME;
    case LS_PAIR_MULTIPLY: return second ? CPU_TERM_TIMES_A : CPU_TERM_TIMES_B;
    case LS_PAIR_DIVIDE: return second ? CPU_TERM_QUOTIENT : CPU_TERM_OVER_B;
    case LS_PAIR_MAXIMUM: return second ? CPU_TERM_LESS : CPU_TERM_NOT_LESS;
    case LS_PAIR_MINIMUM: return second ? CPU_TERM_MORE : CPU_TERM_NOT_MORE;
    default: return CPU_TERM_SAME;
    }
}

// Bit i: the term reads input i of dy, a, b.
static uint32_t inputs_of(uint32_t term)
{
    switch (term) {
    case CPU_TERM_SAME:
    case CPU_TERM_MINUS: return 1;
    case CPU_TERM_TIMES_A: return 3;
    case CPU_TERM_TIMES_B:
    case CPU_TERM_OVER_B: return 5;
    default: return 7;
    }
}

static void terms_part(void *context, const int64_t *offsets, int64_t rows, int64_t columns)
{
    const struct pairing *p = context;
    float rooms[4][CPU_CHUNK];
    const struct cpu_place out = cpu_strided_place(p->strided, 3, p->tensors[3], offsets);
    const struct cpu_result to = cpu_target_rows(&out, columns, rooms[3]);
    const struct cpu_operand none = {NULL, 0, 0};
    const struct cpu_operand dy = operand(p, 0, offsets, rows, columns, rooms[0], none);
    p->device->loops->pair->terms(p->choice, rows, columns, dy,
                                  operand(p, 1, offsets, rows, columns, rooms[1], dy),
                                  operand(p, 2, offsets, rows, columns, rooms[2], dy), to);
    cpu_written_rows(p->device, &out, rows, columns, to.at);
}

static int32_t run_pair_backward(struct ls_device *device, struct ls_kernel *kernel,
                                 const struct cpu_call *launch)
{
    const struct pair_state *state = kernel->state;
    const struct ls_tensor_desc *out = cpu_output_desc(kernel, 0);
    struct pairing p = {device, &state->strided, state->term, {{0}}};
    for (uint32_t i = 0; i < 4; i++)
        if (i == 3 || inputs_of(state->term) >> i & 1)
            p.tensors[i] = (struct cpu_tensor){launch->arguments[i], out->dtype};
    if (state->reduces) {
        const struct cpu_reduce_call call = {.term = state->term,
                                             .divisor = 1,
                                             .inputs = {p.tensors[0], p.tensors[1], p.tensors[2]},
                                             .result = p.tensors[3],
                                             .scratch = launch->scratch};
        cpu_reduce_run(device, &state->plan, &call);
    } else {
        cpu_strided_run(device, &state->strided, (double)cpu_elements(out) * 0.2, terms_part, &p);
    }
    cpu_zero_padding(out, launch->arguments[3]);
    return LS_OK;
}

int32_t cpu_pair_backward(struct ls_device *device, const struct ls_kernel_request *request,
                          struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const bool second = request->op == LS_OP_PAIR_BACKWARD_SECOND;
    struct ls_tensor_desc *dy = &kernel->arguments[0], *out = &kernel->arguments[3];
    struct pair_state *state = kernel->state = cpu_state(device, sizeof(*state));
    if (!state)
        return LS_OUT_OF_MEMORY;
    if (request->attributes.function >= LS_PAIR_COUNT)
        return cpu_unsupported(device, request, "there is no such function");
    state->term = term_of(request->attributes.function, second);
    cpu_broadcast_layouts(kernel, 4, 0);
    // What is not read lies as dy, wherever it lies.
    const uint32_t used = inputs_of(state->term);
    struct ls_kernel read = *kernel;
    for (uint32_t i = 1; i < 3; i++)
        if (!(used >> i & 1))
            read.arguments[i] = *dy;
    if (!plan_tensors(&read, 4, 0, &state->strided))
        return mismatch(device, request);
    state->strided.piece = piece_of(dy);
    state->reduces = ls_tensor_elements(out) != ls_tensor_elements(dy);
    if (state->reduces) {
        if ((cpu_has_padding(dy) && out->dims[out->ndims - 1] != dy->dims[dy->ndims - 1]) ||
            !cpu_reduce_plan(&state->strided, &state->plan))
            return mismatch(device, request);
        answer->scratch_bytes = cpu_reduce_scratch(&state->plan);
    }
    answer->used_inputs = used;
    for (uint32_t i = 0; i < 3; i++)
        if (used >> i & 1 && lies_alike(&kernel->arguments[i], out) && lies_alike(dy, out))
            answer->in_place |= 1U << i;
    kernel->run = run_pair_backward;
    cpu_implementation(device, answer, "pair");
    return LS_OK;
}
