// SPDX-License-Identifier: Apache-2.0
// Sums and largest elements along any dimensions. The result is cut into items of at most WIDTH
// neighbouring elements; where that makes too few for threads, what becomes an item is cut into
// chunks, whose results are joined in order. Both depend on the shapes alone.
#include "plugins/device/cpu/reduce.h"
#include "plugins/device/cpu/layout.h"

#include <math.h>
#include <string.h>

enum {
    WIDTH = 256, // elements of an item
    ROOM = 2048, // terms that are computed before they are added
    FEW_ITEMS = 16,
    CHUNK = 16384, // elements that are worth a chunk
    MOST_CHUNKS = 64,
};

// ---- Planning ----

static int64_t product(const struct cpu_strided *s)
{
    int64_t count = 1;
    for (int i = 0; i < s->ndims; i++)
        count *= s->dims[i];
    return count;
}

static void append_dim(struct cpu_strided *to, const struct cpu_strided *from, int dim)
{
    to->dims[to->ndims] = from->dims[dim];
    for (int t = 0; t < CPU_STRIDED_TENSORS; t++)
        to->strides[t][to->ndims] = from->strides[t][dim];
    to->ndims++;
}

static int64_t blocks_of(const struct cpu_reduce *plan)
{
    return plan->columns_kept ? (plan->columns + WIDTH - 1) / WIDTH : 1;
}

bool cpu_reduce_plan(const struct cpu_strided *s, struct cpu_reduce *out)
{
    const int last = s->ndims - 1;
    if (!cpu_strided_has_rows(s))
        return false;
    *out = (struct cpu_reduce){.columns_kept = s->strides[CPU_REDUCE_RESULT][last] != 0,
                               .columns = s->dims[last],
                               .chunks = 1};
    out->kept.count = out->reduced.count = CPU_STRIDED_TENSORS;
    for (int i = 0; i < last; i++)
        append_dim(s->strides[CPU_REDUCE_RESULT][i] != 0 ? &out->kept : &out->reduced, s, i);
    for (int t = 0; t < CPU_STRIDED_TENSORS; t++)
        out->steps[t] = s->strides[t][last];

    out->items = product(&out->kept) * blocks_of(out);
    const int64_t rows = product(&out->reduced);
    const int64_t width = out->columns < WIDTH || !out->columns_kept ? out->columns : WIDTH;
    if (out->items < FEW_ITEMS) {
        const int64_t worth = rows * width / CHUNK, most = rows < MOST_CHUNKS ? rows : MOST_CHUNKS;
        out->chunks = worth < 1 ? 1 : worth < most ? worth : most;
    }
    return true;
}

uint64_t cpu_reduce_scratch(const struct cpu_reduce *plan)
{
    return plan->chunks > 1 ? (uint64_t)(plan->items * plan->chunks) * WIDTH * sizeof(double) : 0;
}

// ---- Running ----

struct reducing {
    const struct cpu_pair_loops *loops;
    const struct cpu_reduce *plan;
    const struct cpu_reduce_call *call;
};

// Some rows of columns, as operands: whole rows of dy, a and b.
struct rows {
    struct cpu_operand operands[3]; // dy, a, b
    int64_t rows, columns;
};

static void move(struct rows *r, int64_t rows, int64_t columns)
{
    for (int t = 0; t < 3; t++)
        r->operands[t].at += rows * r->operands[t].row + columns * r->operands[t].step;
}

// Each column's own result.
static void join_rows(const struct reducing *r, struct rows rows, double *results)
{
    const int64_t at_once = ROOM / rows.columns;
    struct cpu_operand dy = rows.operands[0];
    float room[ROOM];
    if (r->call->largest) {
        r->loops->largest_rows(dy.at, rows.rows, rows.columns, dy.row, results);
        return;
    }
    if (r->call->term == CPU_TERM_SAME) {
        r->loops->add_rows(dy.at, rows.rows, rows.columns, dy.row, results);
        return;
    }
    for (int64_t left = rows.rows; left > 0; left -= at_once) {
        const int64_t count = left < at_once ? left : at_once;
        r->loops->terms(r->call->term, count, rows.columns, rows.operands[0], rows.operands[1],
                        rows.operands[2], (struct cpu_result){room, rows.columns});
        r->loops->add_rows(room, count, rows.columns, rows.columns, results);
        move(&rows, count, 0);
    }
}

// One result of all columns.
static void join_run(const struct reducing *r, struct rows rows, double *result)
{
    const struct cpu_operand *dy = &rows.operands[0];
    float room[ROOM];
    if (r->call->largest) {
        const double largest = r->loops->largest_run(dy->at, rows.columns);
        *result = largest > *result || isnan(largest) ? largest : *result;
        return;
    }
    if (r->call->term == CPU_TERM_SAME) {
        *result += r->loops->add_run(dy->at, rows.columns);
        return;
    }
    for (int64_t left = rows.columns; left > 0; left -= ROOM) {
        const int64_t count = left < ROOM ? left : ROOM;
        r->loops->terms(r->call->term, 1, count, rows.operands[0], rows.operands[1],
                        rows.operands[2], (struct cpu_result){room, count});
        *result += r->loops->add_run(room, count);
        move(&rows, 0, count);
    }
}

static const float *address(const struct cpu_reduce_call *call, int tensor)
{
    return tensor == CPU_REDUCE_DY ? call->dy : tensor == CPU_REDUCE_A ? call->a : call->b;
}

// What rows begin <= row < end of the reduced dimensions make of an item.
static void join(const struct reducing *r, int64_t item, int64_t begin, int64_t end,
                 double *results)
{
    const struct cpu_reduce *plan = r->plan;
    const struct cpu_strided *reduced = &plan->reduced;
    const int64_t first = item % blocks_of(plan) * WIDTH, left = plan->columns - first;
    const int64_t width = !plan->columns_kept ? plan->columns : left < WIDTH ? left : WIDTH;
    const int inner = reduced->ndims - 1;
    const int64_t size = inner >= 0 ? reduced->dims[inner] : 1;
    int64_t count;

    for (int64_t i = 0; i < (plan->columns_kept ? width : 1); i++)
        results[i] = r->call->largest ? (double)-INFINITY : 0;
    for (int64_t row = begin; row < end; row += count) {
        struct rows rows = {.columns = width};
        count = size - row % size < end - row ? size - row % size : end - row;
        rows.rows = count;
        for (int t = 0; t < 3; t++)
            rows.operands[t] = (struct cpu_operand){
                .at = address(r->call, t) + first * plan->steps[t] +
                      cpu_strided_offset(&plan->kept, t, plan->kept.ndims, item / blocks_of(plan)) +
                      cpu_strided_offset(reduced, t, reduced->ndims, row),
                .row = inner >= 0 ? reduced->strides[t][inner] : 0,
                .step = plan->steps[t]};
        if (plan->columns_kept) {
            join_rows(r, rows, results);
            continue;
        }
        for (int64_t i = 0; i < count; i++) {
            join_run(r, rows, results);
            move(&rows, 1, 0);
        }
    }
}

static void write_item(const struct reducing *r, int64_t item, const double *results)
{
    const struct cpu_reduce *plan = r->plan;
    const int64_t first = item % blocks_of(plan) * WIDTH, left = plan->columns - first;
    const int64_t width = !plan->columns_kept ? 1 : left < WIDTH ? left : WIDTH;
    float *out = r->call->result + first * plan->steps[CPU_REDUCE_RESULT] +
                 cpu_strided_offset(&plan->kept, CPU_REDUCE_RESULT, plan->kept.ndims,
                                    item / blocks_of(plan));
    for (int64_t i = 0; i < width; i++)
        out[i] = (float)(results[i] / r->call->divisor);
}

static void reduce_part(void *context, int64_t begin, int64_t end)
{
    const struct reducing *r = context;
    const int64_t chunks = r->plan->chunks, rows = product(&r->plan->reduced);
    double own[WIDTH];
    for (int64_t at = begin; at < end; at++) {
        const int64_t chunk = at % chunks;
        double *results = chunks > 1 ? r->call->scratch + at * WIDTH : own;
        join(r, at / chunks, rows * chunk / chunks, rows * (chunk + 1) / chunks, results);
        if (chunks == 1)
            write_item(r, at, results);
    }
}

// The chunks of an item, in order.
static void join_chunks(const struct reducing *r, int64_t item)
{
    const struct cpu_reduce *plan = r->plan;
    const int64_t width = plan->columns_kept ? (plan->columns < WIDTH ? plan->columns : WIDTH) : 1;
    double *results = r->call->scratch + item * plan->chunks * WIDTH;
    for (int64_t chunk = 1; chunk < plan->chunks; chunk++)
        for (int64_t i = 0; i < width; i++) {
            const double more = results[chunk * WIDTH + i];
            if (!r->call->largest)
                results[i] += more;
            else if (more > results[i] || isnan(more))
                results[i] = more;
        }
    write_item(r, item, results);
}

void cpu_reduce_run(struct ls_device *device, const struct cpu_reduce *plan,
                    const struct cpu_reduce_call *call)
{
    struct reducing r = {device->loops->pair, plan, call};
    const double elements =
        (double)product(&plan->kept) * (double)product(&plan->reduced) * (double)plan->columns;
    cpu_parallel(device, plan->items * plan->chunks, 1, elements * 0.2, reduce_part, &r);
    for (int64_t item = 0; item < plan->items && plan->chunks > 1; item++)
        join_chunks(&r, item);
}

// ---- REDUCE ----

struct reduce_state {
    struct cpu_reduce plan; // of x, or of dx
    struct cpu_strided strided; // backward: dy, x, y, dx
    double divisor;
    uint64_t shares; // backward of the largest: where in scratch
};

static int32_t run_reduce(struct ls_device *device, struct ls_kernel *kernel,
                          const struct cpu_call *launch)
{
    const struct reduce_state *state = kernel->state;
    const float *x = launch->arguments[0];
    const struct cpu_reduce_call call = {.largest =
                                             kernel->attributes.function == LS_REDUCE_TO_MAXIMUM,
                                         .term = CPU_TERM_SAME,
                                         .divisor = state->divisor,
                                         .dy = x,
                                         .a = x,
                                         .b = x,
                                         .result = cpu_output(kernel, launch, 0),
                                         .scratch = launch->scratch};
    cpu_reduce_run(device, &state->plan, &call);
    cpu_zero_padding(cpu_output_desc(kernel, 0), call.result);
    return LS_OK;
}

// Whether padding would be among what is reduced.
static bool reduces_padding(const struct ls_tensor_desc *x, const struct ls_tensor_desc *y)
{
    return cpu_has_padding(x) && y->dims[y->ndims - 1] != x->dims[x->ndims - 1];
}

static double each_of(const struct ls_tensor_desc *x, const struct ls_tensor_desc *y)
{
    return (double)(ls_tensor_elements(x) / ls_tensor_elements(y));
}

int32_t cpu_reduce(struct ls_device *device, const struct ls_kernel_request *request,
                   struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const struct ls_tensor_desc *x = &kernel->arguments[0], *y = &kernel->arguments[1];
    struct reduce_state *state = kernel->state = cpu_state(device, sizeof(*state));
    struct cpu_strided strided;
    if (!state)
        return LS_OUT_OF_MEMORY;
    if (request->attributes.function >= LS_REDUCE_COUNT)
        return cpu_unsupported(device, request, "there is no such function");
    cpu_broadcast_layouts(kernel, 2, 0);
    bool good = cpu_strided_start(x, &strided) && !reduces_padding(x, y);
    for (int i = 0; i < 3 && good; i++)
        good = cpu_strided_add(x, x, &strided);
    good = good && cpu_strided_add(x, y, &strided);
    if (good) {
        cpu_strided_collapse(&strided);
        good = cpu_reduce_plan(&strided, &state->plan);
    }
    if (!good)
        return cpu_unsupported(device, request, "the arguments lie in layouts that do not match");
    state->divisor = request->attributes.function == LS_REDUCE_TO_MEAN ? each_of(x, y) : 1;
    answer->scratch_bytes = cpu_reduce_scratch(&state->plan);
    kernel->run = run_reduce;
    cpu_implementation(device, answer, "reduction");
    return LS_OK;
}

struct spreading {
    const struct cpu_pair_loops *loops;
    const struct cpu_strided *strided;
    uint32_t term;
    const float *share, *x, *y;
    float *dx;
};

static struct cpu_operand operand_of(const struct cpu_strided *s, int tensor, const float *from,
                                     const int64_t *offsets)
{
    return (struct cpu_operand){from + offsets[tensor], cpu_strided_row(s, tensor),
                                cpu_strided_step(s, tensor)};
}

// dx is the share of its y.
static void spread(void *context, const int64_t *offsets, int64_t rows, int64_t columns)
{
    const struct spreading *s = context;
    s->loops->terms(s->term, rows, columns, operand_of(s->strided, 0, s->share, offsets),
                    operand_of(s->strided, 1, s->x, offsets),
                    operand_of(s->strided, 2, s->y, offsets),
                    (struct cpu_result){s->dx + offsets[3], cpu_strided_row(s->strided, 3)});
}

static int32_t run_reduce_backward(struct ls_device *device, struct ls_kernel *kernel,
                                   const struct cpu_call *launch)
{
    const struct reduce_state *state = kernel->state;
    const bool largest = kernel->attributes.function == LS_REDUCE_TO_MAXIMUM;
    const float *dy = launch->arguments[0], *x = launch->arguments[1], *y = launch->arguments[2];
    float *share = (float *)(void *)cpu_past(launch->scratch, state->shares);
    const int64_t count = (int64_t)cpu_elements(&kernel->arguments[0]);
    struct spreading s = {
        device->loops->pair,          &state->strided, CPU_TERM_SAME, share, NULL, NULL,
        cpu_output(kernel, launch, 0)};
    if (largest) {
        const struct cpu_reduce_call counting = {.term = CPU_TERM_COUNT,
                                                 .divisor = 1,
                                                 .dy = x,
                                                 .a = x,
                                                 .b = y,
                                                 .result = share,
                                                 .scratch = launch->scratch};
        cpu_reduce_run(device, &state->plan, &counting);
        s.term = CPU_TERM_EQUAL;
    }
    for (int64_t i = 0; i < count; i++)
        share[i] = dy[i] / (largest ? share[i] : (float)state->divisor);
    s.x = largest ? x : s.dx;
    s.y = largest ? y : share;
    cpu_strided_run(device, &state->strided,
                    (double)cpu_elements(cpu_output_desc(kernel, 0)) * 0.15, spread, &s);
    cpu_zero_padding(cpu_output_desc(kernel, 0), s.dx);
    return LS_OK;
}

int32_t cpu_reduce_backward(struct ls_device *device, const struct ls_kernel_request *request,
                            struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const struct ls_tensor_desc *dy = &kernel->arguments[0], *x = &kernel->arguments[1];
    const struct ls_tensor_desc *y = &kernel->arguments[2];
    const bool largest = request->attributes.function == LS_REDUCE_TO_MAXIMUM;
    struct reduce_state *state = kernel->state = cpu_state(device, sizeof(*state));
    struct cpu_strided counting;
    if (!state)
        return LS_OUT_OF_MEMORY;
    if (request->attributes.function >= LS_REDUCE_COUNT)
        return cpu_unsupported(device, request, "there is no such function");
    cpu_broadcast_layouts(kernel, 4, 1);
    struct cpu_strided *s = &state->strided;
    const bool same = memcmp(&dy->layout, &y->layout, sizeof(y->layout)) == 0;
    bool good = same && cpu_strided_start(x, s) && !reduces_padding(x, y) &&
                cpu_strided_add(x, dy, s) && cpu_strided_add(x, x, s) && cpu_strided_add(x, y, s) &&
                cpu_strided_add(x, cpu_output_desc(kernel, 0), s);
    // Counting: x, x, y and what lies as y.
    good = good && cpu_strided_start(x, &counting) && cpu_strided_add(x, x, &counting) &&
           cpu_strided_add(x, x, &counting) && cpu_strided_add(x, y, &counting) &&
           cpu_strided_add(x, y, &counting);
    if (good) {
        cpu_strided_collapse(s);
        cpu_strided_collapse(&counting);
        good = cpu_strided_has_rows(s) && cpu_reduce_plan(&counting, &state->plan);
    }
    if (!good)
        return cpu_unsupported(device, request, "the arguments lie in layouts that do not match");
    state->divisor = request->attributes.function == LS_REDUCE_TO_MEAN ? each_of(x, y) : 1;
    state->shares = largest ? cpu_aligned(cpu_reduce_scratch(&state->plan)) : 0;
    answer->scratch_bytes = state->shares + dy->layout.bytes;
    answer->used_inputs = largest ? 7 : 1;
    kernel->run = run_reduce_backward;
    cpu_implementation(device, answer, "reduction");
    return LS_OK;
}
