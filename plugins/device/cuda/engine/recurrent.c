// SPDX-License-Identifier: Apache-2.0
// Recurrent layers: at each step the products by cuBLASLt (product.c), all gates at once, and one
// own kernel for everything else (recurrent.cuh); two of each for a gated unit that is reset before
// its product. What is saved is in the order of p, so the gradient of w is one product for all
// steps. With dropped states each gate has a state of its own, and a product is one of a batch.
#include "plugins/device/cuda/engine/internal.h"

// Products of a step: of the gates with the state as it is, and of the one that is reset before;
// then the gradient of w.
enum { PLAIN, RESET, WEIGHTS, PRODUCTS };

// Parts of the scratch memory. H, C and SHOWN are (B,U), backward the gradients of these.
enum {
    H,
    C,
    SHOWN,
    OF_GATES, // forward: products (B,G U)
    FACTORS, // what products are with (G,B,U), where that is not the state; backward (G,B,T,U)
    RESET_STATE, // (B,U), and its gradient
    PARTS, // backward: gradients of the state by gate (G,B,U)
    OF_P, // backward: gradients of p, where p's own are added to (B,T,G U)
    OF_PRODUCTS, // backward: those of h w, where they are others (B,T,G U)
    SUMS, // of columns
    WORKSPACE,
    ROOMS
};

// Parts of what is saved, (B,T,U) but the gates.
enum { BEFORE, GATES, CELLS, RESETS, SAVED };

struct recurrent {
    struct cuda_recurrent arguments; // without what a launch brings
    struct cuda_product products[PRODUCTS];
    uint64_t rooms[ROOMS], saved[SAVED]; // offsets
    bool has_room[ROOMS], is_saved[SAVED];
    uint64_t saved_bytes;
    bool factored; // gates have factors of their own
};

static void recurrent_finish(struct ls_device *device, struct ls_kernel *kernel)
{
    struct recurrent *state = kernel->state;
    for (int i = 0; state && i < PRODUCTS; i++)
        cuda_product_finish(device, &state->products[i]);
}

// ---- Running ----

static float *room_at(const struct recurrent *state, const struct cuda_call *launch, int room)
{
    return state->has_room[room] ? (float *)(void *)((char *)launch->scratch + state->rooms[room])
                                 : NULL;
}

static float *saved_at(const struct recurrent *state, void *saved, int part)
{
    return saved && state->is_saved[part] ? (float *)(void *)((char *)saved + state->saved[part])
                                          : NULL;
}

// `first`: which argument p is; `saved` NULL: nothing is.
static struct cuda_recurrent arguments_of(const struct ls_kernel *kernel,
                                          const struct cuda_call *launch, uint32_t first,
                                          void *saved)
{
    const struct recurrent *state = kernel->state;
    const uint32_t mask = first ? 6 : 4;
    struct cuda_recurrent r = state->arguments;
    r.p = launch->arguments[first];
    r.b = launch->arguments[first + 2];
    r.start = launch->arguments[first + 3];
    r.mask = kernel->request.input_count > mask ? launch->arguments[mask] : NULL;
    r.record = launch->record;
    r.h = room_at(state, launch, H);
    r.c = room_at(state, launch, C);
    r.shown = room_at(state, launch, SHOWN);
    r.q = room_at(state, launch, OF_GATES);
    r.factors = room_at(state, launch, FACTORS);
    r.reset = room_at(state, launch, RESET_STATE);
    r.parts = room_at(state, launch, PARTS);
    r.before = saved_at(state, saved, BEFORE);
    r.gates = saved_at(state, saved, GATES);
    r.cells = saved_at(state, saved, CELLS);
    r.resets = saved_at(state, saved, RESETS);
    return r;
}

// The i-th step that is made.
static void go_to(struct cuda_recurrent *r, int64_t i)
{
    r->time = r->sequence & LS_SEQUENCE_BACKWARDS ? r->steps - 1 - i : i;
    r->last = i + 1 == r->steps;
    if (r->sequence & LS_SEQUENCE_ALL)
        r->row = r->sequence & LS_SEQUENCE_IN_TIME ? r->time : i;
    else
        r->row = r->last ? 0 : -1;
}

static int32_t multiply(struct ls_device *device, const struct ls_kernel *kernel,
                        const struct cuda_call *launch, int which, struct cuda_factors of)
{
    const struct recurrent *state = kernel->state;
    of.workspace = cuda_workspace_at(launch, state->rooms[WORKSPACE]);
    return cuda_product_multiply(device, kernel, &state->products[which], &of);
}

static int32_t run_forward(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch)
{
    void *saved = kernel->request.output_count > 1 ? cuda_output(kernel, launch, 1) : NULL;
    struct cuda_recurrent r = arguments_of(kernel, launch, 0, saved);
    const float *w = launch->arguments[1];
    const struct cuda_factors plain = {.a = r.rate > 0 ? r.factors : r.h, .b = w, .d = r.q};
    const struct cuda_factors reset = {
        .a = r.reset, .b = w + 2 * r.units, .d = r.q + 2 * r.units}; // of the third gate
    r.y = cuda_output(kernel, launch, 0);
    int32_t status = cuda_start_recurrent(device, cuda_recurrent_begin, &r);
    for (int64_t i = 0; !status && i < r.steps; i++) {
        go_to(&r, i);
        status = multiply(device, kernel, launch, PLAIN, plain);
        if (!status && r.cell == LS_RECURRENT_GRU)
            status = cuda_start_recurrent(device, cuda_recurrent_reset, &r);
        if (!status && r.cell == LS_RECURRENT_GRU)
            status = multiply(device, kernel, launch, RESET, reset);
        if (!status)
            status = cuda_start_recurrent(device, cuda_recurrent_step, &r);
    }
    return status;
}

// The steps from the last to the first: gradients of p, of h w and of the first states.
static int32_t run_steps_backward(struct ls_device *device, const struct ls_kernel *kernel,
                                  const struct cuda_call *launch, struct cuda_recurrent *r)
{
    const float *w = launch->arguments[2];
    int32_t status = cuda_start_recurrent(device, cuda_recurrent_begin_backward, r);
    for (int64_t i = r->steps; !status && i-- > 0;) {
        go_to(r, i);
        const float *dq = r->dq + r->time * r->gate_count * r->units;
        const struct cuda_factors plain = {.a = dq, .b = w, .d = r->rate > 0 ? r->parts : r->h};
        const struct cuda_factors reset = {
            .a = dq + 2 * r->units, .b = w + 2 * r->units, .d = r->reset};
        status = cuda_start_recurrent(device, cuda_recurrent_step_backward, r);
        if (!status && r->cell == LS_RECURRENT_GRU)
            status = multiply(device, kernel, launch, RESET, reset);
        if (!status && r->cell == LS_RECURRENT_GRU)
            status = cuda_start_recurrent(device, cuda_recurrent_reset_backward, r);
        if (!status)
            status = multiply(device, kernel, launch, PLAIN, plain);
        r->join = 1;
    }
    return status ? status : cuda_start_recurrent(device, cuda_recurrent_finish, r);
}

// Sums of (rows, columns) into a row of an output.
static int32_t add_rows(struct ls_device *device, const struct ls_kernel *kernel,
                        const struct cuda_call *launch, const struct cuda_columns *of,
                        uint32_t output, int64_t row)
{
    const struct recurrent *state = kernel->state;
    struct cuda_columns columns = *of;
    columns.scratch = room_at(state, launch, SUMS);
    const struct cuda_store store = {.out = (float *)cuda_output(kernel, launch, output) +
                                            row * of->columns,
                                     .add = cuda_accumulates(kernel, output)};
    return cuda_column_sums(device, &columns, &store);
}

// What all steps add up to: dw, db, and ds where all examples begin alike.
static int32_t run_sums(struct ls_device *device, const struct ls_kernel *kernel,
                        const struct cuda_call *launch, struct cuda_recurrent *r)
{
    const struct recurrent *state = kernel->state;
    const int64_t all = r->gate_count * r->units, positions = r->batch * r->steps;
    const struct cuda_columns of_p = {.values = r->d, .rows = positions, .columns = all};
    const struct cuda_columns of_products = {.values = r->dq, .rows = positions, .columns = all};
    const struct cuda_columns of_h = {.values = r->h, .rows = r->batch, .columns = r->units};
    const struct cuda_columns of_c = {.values = r->c, .rows = r->batch, .columns = r->units};
    const struct cuda_factors weights = {.a = state->factored ? r->factors : r->before,
                                         .b = r->dq,
                                         .d = cuda_output(kernel, launch, 1)};
    int32_t status = state->factored ? cuda_start_recurrent(device, cuda_recurrent_factor, r) : 0;
    if (!status)
        status = multiply(device, kernel, launch, WEIGHTS, weights);
    if (!status)
        status = add_rows(device, kernel, launch, &of_p, 2, 0);
    if (!status && r->cell == LS_RECURRENT_GRU_RESET_AFTER)
        status = add_rows(device, kernel, launch, &of_products, 2, 1);
    if (!status && r->one_start)
        status = add_rows(device, kernel, launch, &of_h, 3, 0);
    if (!status && r->one_start && r->states > 1)
        status = add_rows(device, kernel, launch, &of_c, 3, 1);
    return status;
}

static int32_t run_backward(struct ls_device *device, const struct ls_kernel *kernel,
                            const struct cuda_call *launch)
{
    const struct recurrent *state = kernel->state;
    struct cuda_recurrent r = arguments_of(kernel, launch, 1, launch->arguments[5]);
    r.dy = launch->arguments[0];
    r.d = state->has_room[OF_P] ? room_at(state, launch, OF_P) : cuda_output(kernel, launch, 0);
    r.dq = state->has_room[OF_PRODUCTS] ? room_at(state, launch, OF_PRODUCTS) : r.d;
    r.ds = cuda_output(kernel, launch, 3);
    r.add = cuda_accumulates(kernel, 3);
    int32_t status = run_steps_backward(device, kernel, launch, &r);
    if (!status)
        status = run_sums(device, kernel, launch, &r);
    if (status || !state->has_room[OF_P])
        return status;
    const int64_t row = r.gate_count * r.units;
    const struct cuda_arguments to_p = {
        .store = {.out = cuda_output(kernel, launch, 0), .add = 1}, .a = r.d, .columns = row};
    return cuda_start(device, cuda_kernel_finish, &to_p, r.batch * r.steps * row);
}

// ---- Preparing ----

// Gates whose products are with the state as it is.
static int64_t plain_gates(const struct cuda_recurrent *r)
{
    return r->cell == LS_RECURRENT_GRU ? 2 : r->gate_count;
}

// Of a step. w is (U,G U); gates side by side are one product, or a batch of them where each has a
// state of its own.
static struct cuda_product product_of(const struct cuda_recurrent *r, bool backward, int64_t gates)
{
    const int64_t units = r->units, all = r->gate_count * units;
    const bool apart = r->rate > 0 && gates > 1;
    const int64_t width = apart ? units : gates * units;
    const struct cuda_matrix states = {units, 1, r->batch * units};
    const struct cuda_matrix forward_w = {all, 1, units}, backward_w = {1, all, units};
    const struct cuda_matrix of_gates = {backward ? r->steps * all : all, 1, units};
    return (struct cuda_product){.m = r->batch,
                                 .n = backward ? units : width,
                                 .k = backward ? width : units,
                                 .batch = apart ? gates : 1,
                                 .a = backward ? of_gates : states,
                                 .b = backward ? backward_w : forward_w,
                                 .d = backward ? states : of_gates,
                                 .alpha = 1};
}

// The gradient of w: of all states at once, or gate by gate with the factors.
static struct cuda_product weights_of(const struct cuda_recurrent *r, bool factored)
{
    const int64_t units = r->units, all = r->gate_count * units, positions = r->batch * r->steps;
    return (struct cuda_product){.m = units,
                                 .n = factored ? units : all,
                                 .k = positions,
                                 .batch = factored ? r->gate_count : 1,
                                 .a = {1, units, positions * units},
                                 .b = {all, 1, units},
                                 .d = {all, 1, units},
                                 .alpha = 1};
}

static void choose(struct ls_device *device, struct ls_kernel *kernel,
                   struct ls_kernel_answer *answer, bool backward)
{
    struct recurrent *state = kernel->state;
    const struct cuda_recurrent *r = &state->arguments;
    const bool reset = r->cell == LS_RECURRENT_GRU;
    uint64_t workspace = 0;
    state->products[PLAIN] = product_of(r, backward, plain_gates(r));
    state->products[PLAIN].beta = backward && r->rate <= 0 ? 1 : 0; // added to what goes past
    state->products[RESET] = product_of(r, backward, 1);
    state->products[WEIGHTS] = weights_of(r, state->factored);
    state->products[WEIGHTS].beta = backward && cuda_accumulates(kernel, 1) ? 1 : 0;
    for (int i = 0; i < PRODUCTS; i++) {
        struct cuda_product *p = &state->products[i];
        if ((i == RESET && !reset) || (i == WEIGHTS && !backward))
            continue;
        p->dtype = p->result = LS_F32;
        p->alignment = r->units % 4 ? sizeof(float) : 4 * sizeof(float);
        p->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
        answer->slow |= !cuda_product_choose(device, p);
        if (p->choice.workspaceSize > workspace)
            workspace = p->choice.workspaceSize;
    }
    state->rooms[WORKSPACE] = cuda_workspace(answer, workspace);
}

static void take(struct recurrent *state, struct ls_kernel_answer *answer, int room, int64_t count)
{
    state->has_room[room] = count > 0;
    if (count > 0)
        state->rooms[room] = cuda_scratch(answer, (uint64_t)count * sizeof(float));
}

static void lay_rooms(struct ls_kernel *kernel, struct ls_kernel_answer *answer, bool backward)
{
    struct recurrent *state = kernel->state;
    const struct cuda_recurrent *r = &state->arguments;
    const int64_t row = r->batch * r->units, all = row * r->gate_count;
    const bool after = r->cell == LS_RECURRENT_GRU_RESET_AFTER, drops = r->rate > 0;
    const bool factors = backward ? state->factored : drops;
    const uint64_t of_b = cuda_column_bytes(r->batch * r->steps, r->gate_count * r->units);
    const uint64_t of_s = cuda_column_bytes(r->batch, r->units);
    take(state, answer, H, row);
    take(state, answer, C, r->states > 1 ? row : 0);
    take(state, answer, SHOWN, row);
    take(state, answer, OF_GATES, backward ? 0 : all);
    take(state, answer, FACTORS, factors ? (backward ? all * r->steps : all) : 0);
    take(state, answer, RESET_STATE, r->cell == LS_RECURRENT_GRU ? row : 0);
    take(state, answer, PARTS, backward && drops ? all : 0);
    take(state, answer, OF_P, backward && cuda_accumulates(kernel, 0) ? all * r->steps : 0);
    take(state, answer, OF_PRODUCTS, backward && after ? all * r->steps : 0);
    take(state, answer, SUMS,
         backward ? (int64_t)((of_b > of_s ? of_b : of_s) / sizeof(float)) : 0);
}

static void lay_saved(struct recurrent *state)
{
    const struct cuda_recurrent *r = &state->arguments;
    const int64_t all = r->batch * r->steps * r->units;
    const int64_t counts[SAVED] = {[BEFORE] = all,
                                   [GATES] = all * r->gate_count,
                                   [CELLS] = r->cell == LS_RECURRENT_LSTM ? all : 0,
                                   [RESETS] = r->cell == LS_RECURRENT_GRU_RESET_AFTER ? all : 0};
    for (int i = 0; i < SAVED; i++) {
        state->is_saved[i] = counts[i] > 0;
        state->saved[i] = state->saved_bytes;
        state->saved_bytes +=
            ((uint64_t)counts[i] * sizeof(float) + LS_ALIGNMENT - 1) / LS_ALIGNMENT * LS_ALIGNMENT;
    }
}

int32_t cuda_prepare_recurrent(struct ls_device *device, struct ls_kernel *kernel,
                               struct ls_kernel_answer *answer)
{
    const struct ls_op_attributes *attributes = &kernel->request.attributes;
    const bool backward = kernel->request.op == LS_OP_RECURRENT_BACKWARD;
    const struct ls_tensor_desc *p = cuda_input_desc(kernel, backward ? 1 : 0);
    const struct ls_tensor_desc *w = p + 1, *s = p + 3;
    const uint32_t sequence = attributes->sequence, inputs = kernel->request.input_count;
    if (attributes->function > LS_RECURRENT_GRU_RESET_AFTER)
        return cuda_unsupported(device, kernel, "it does not know this cell");
    if (attributes->recurrent_activation > LS_HARD_SIGMOID)
        return cuda_unsupported(device, kernel, "it does not know this activation");
    struct recurrent *state = cuda_state(device, kernel, sizeof(*state));
    if (!state)
        return LS_OUT_OF_MEMORY;
    kernel->finish = recurrent_finish;
    struct cuda_recurrent *r = &state->arguments;
    *r = (struct cuda_recurrent){.batch = p->dims[0],
                                 .steps = p->dims[1],
                                 .units = w->dims[0],
                                 .gate_count = w->dims[1] / w->dims[0],
                                 .states = s->dims[1],
                                 .one_start = s->dims[0] == 1,
                                 .cell = attributes->function,
                                 .sequence = sequence,
                                 .activation = attributes->activation,
                                 .recurrent_activation = attributes->recurrent_activation,
                                 .key = attributes->key,
                                 .rate = attributes->rate};
    r->rows = (sequence & LS_SEQUENCE_ALL ? r->steps : 1) +
              (sequence & LS_SEQUENCE_STATES ? r->states : 0);
    state->factored = r->rate > 0 || r->cell == LS_RECURRENT_GRU;
    lay_saved(state);
    answer->saved_bytes = backward ? 0 : state->saved_bytes;
    if ((backward || kernel->request.output_count > 1) &&
        !cuda_layout_saved(&kernel->descs[backward ? 5 : inputs + 1], state->saved_bytes))
        return cuda_unsupported(device, kernel, "`saved` is not what forward leaves");
    lay_rooms(kernel, answer, backward);
    choose(device, kernel, answer, backward);
    kernel->run = backward ? run_backward : run_forward;
    cuda_implementation(answer, answer->slow ? "own, without cuBLASLt" : "cuBLASLt and own");
    return LS_OK;
}
