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
    ROOM = 2048, // terms that are computed, or halves that are widened, before they are added
    ROOM_ROWS = 64, // of halves that are added as they are: as many as loops add in float32
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
    const struct ls_device *device;
    const struct cpu_reduce *plan;
    const struct cpu_reduce_call *call;
};

// Some rows of columns of dy, a and b.
struct rows {
    struct cpu_place places[3];
    int64_t rows, columns;
};

// `rows` of them, `columns` wide, from (row, column) on.
static struct rows part_of(const struct rows *from, int64_t row, int64_t rows, int64_t column,
                           int64_t columns)
{
    struct rows part = *from;
    part.rows = from->rows - row < rows ? from->rows - row : rows;
    part.columns = from->columns - column < columns ? from->columns - column : columns;
    for (int t = 0; t < 3; t++)
        part.places[t].offset += row * part.places[t].row + column * part.places[t].step;
    return part;
}

// Whether what is joined is dy as it is.
static bool is_same(const struct reducing *r)
{
    return r->call->largest || r->call->term == CPU_TERM_SAME;
}

static struct cpu_operand read_rows(const struct reducing *r, const struct rows *rows, int tensor,
                                    float *room)
{
    return cpu_read_rows(r->device, &rows->places[tensor], rows->rows, rows->columns, room);
}

// The terms of at most ROOM elements.
static void terms_of(const struct reducing *r, const struct rows *rows, float *out)
{
    float rooms[3][ROOM];
    struct cpu_operand operands[3];
    for (int t = 0; t < 3; t++)
        operands[t] = rows->places[t].tensor.at ? read_rows(r, rows, t, rooms[t]) : operands[0];
    r->device->loops->pair->terms(r->call->term, rows->rows, rows->columns, operands[0],
                                  operands[1], operands[2],
                                  (struct cpu_result){out, rows->columns});
}

// Each column's own result.
static void join_rows(const struct reducing *r, const struct rows *all, double *results)
{
    const struct cpu_pair_loops *loops = r->device->loops->pair;
    const bool halves = r->call->inputs[0].dtype != LS_F32;
    int64_t height = ROOM / all->columns, width = all->columns;
    float room[ROOM];
    if (is_same(r)) {
        height = halves ? ROOM_ROWS : all->rows;
        width = halves ? ROOM / ROOM_ROWS : all->columns;
    }
    for (int64_t row = 0; row < all->rows; row += height)
        for (int64_t column = 0; column < all->columns; column += width) {
            const struct rows rows = part_of(all, row, height, column, width);
            struct cpu_operand x = {room, rows.columns, 1};
            if (is_same(r))
                x = read_rows(r, &rows, 0, room);
            else
                terms_of(r, &rows, room);
            (r->call->largest ? loops->largest_rows : loops->add_rows)(
                x.at, rows.rows, rows.columns, x.row, results + column);
        }
}

// One result of all columns of a row.
static void join_run(const struct reducing *r, const struct rows *all, double *result)
{
    const struct cpu_pair_loops *loops = r->device->loops->pair;
    const bool whole = is_same(r) && r->call->inputs[0].dtype == LS_F32;
    const int64_t width = whole ? all->columns : ROOM;
    float room[ROOM];
    double sum = 0;
    for (int64_t column = 0; column < all->columns; column += width) {
        const struct rows rows = part_of(all, 0, 1, column, width);
        if (r->call->largest) {
            const double largest =
                loops->largest_run(read_rows(r, &rows, 0, room).at, rows.columns);
            *result = largest > *result || isnan(largest) ? largest : *result;
        } else if (is_same(r)) {
            sum = loops->add_run(read_rows(r, &rows, 0, room).at, rows.columns, sum);
        } else {
            terms_of(r, &rows, room);
            *result += loops->add_run(room, rows.columns, 0);
        }
    }
    if (is_same(r) && !r->call->largest)
        *result += sum;
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
            rows.places[t] =
                (struct cpu_place){.tensor = r->call->inputs[t],
                                   .offset = first * plan->steps[t] +
                                             cpu_strided_offset(&plan->kept, t, plan->kept.ndims,
                                                                item / blocks_of(plan)) +
                                             cpu_strided_offset(reduced, t, reduced->ndims, row),
                                   .row = inner >= 0 ? reduced->strides[t][inner] : 0,
                                   .step = plan->steps[t]};
        if (plan->columns_kept) {
            join_rows(r, &rows, results);
            continue;
        }
        for (int64_t i = 0; i < count; i++) {
            const struct rows one = part_of(&rows, i, 1, 0, width);
            join_run(r, &one, results);
        }
    }
}

static void write_item(const struct reducing *r, int64_t item, const double *results)
{
    const struct cpu_reduce *plan = r->plan;
    const int64_t first = item % blocks_of(plan) * WIDTH, left = plan->columns - first;
    const int64_t width = !plan->columns_kept ? 1 : left < WIDTH ? left : WIDTH;
    const int64_t at = first * plan->steps[CPU_REDUCE_RESULT] +
                       cpu_strided_offset(&plan->kept, CPU_REDUCE_RESULT, plan->kept.ndims,
                                          item / blocks_of(plan));
    float room[WIDTH], *out = cpu_target(r->call->result, at, room);
    for (int64_t i = 0; i < width; i++)
        out[i] = (float)(results[i] / r->call->divisor);
    cpu_written(r->device, r->call->result, at, width, out);
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
    struct reducing r = {device, plan, call};
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
    const struct ls_tensor_desc *y = cpu_output_desc(kernel, 0);
    const struct cpu_reduce_call call = {.largest =
                                             kernel->attributes.function == LS_REDUCE_TO_MAXIMUM,
                                         .term = CPU_TERM_SAME,
                                         .divisor = state->divisor,
                                         .inputs = {{launch->arguments[0], y->dtype}},
                                         .result = {launch->arguments[1], y->dtype},
                                         .scratch = launch->scratch};
    cpu_reduce_run(device, &state->plan, &call);
    cpu_zero_padding(y, launch->arguments[1]);
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
    const struct ls_device *device;
    const struct cpu_strided *strided;
    uint32_t term;
    struct cpu_tensor tensors[4]; // share, x, y, dx
};

// dx is the share of its y.
static void spread(void *context, const int64_t *offsets, int64_t rows, int64_t columns)
{
    const struct spreading *s = context;
    float rooms[4][CPU_CHUNK];
    struct cpu_place places[4];
    struct cpu_operand operands[3];
    for (int t = 0; t < 4; t++)
        places[t] = cpu_strided_place(s->strided, t, s->tensors[t], offsets);
    for (int t = 0; t < 3; t++)
        operands[t] = places[t].tensor.at
                          ? cpu_read_rows(s->device, &places[t], rows, columns, rooms[t])
                          : operands[0];
    const struct cpu_result dx = cpu_target_rows(&places[3], columns, rooms[3]);
    s->device->loops->pair->terms(s->term, rows, columns, operands[0], operands[1], operands[2],
                                  dx);
    cpu_written_rows(s->device, &places[3], rows, columns, dx.at);
}

static int32_t run_reduce_backward(struct ls_device *device, struct ls_kernel *kernel,
                                   const struct cpu_call *launch)
{
    const struct reduce_state *state = kernel->state;
    const bool largest = kernel->attributes.function == LS_REDUCE_TO_MAXIMUM;
    const uint32_t dtype = kernel->arguments[0].dtype;
    const struct cpu_tensor dy = {launch->arguments[0], dtype}, x = {launch->arguments[1], dtype};
    const struct cpu_tensor y = {launch->arguments[2], dtype};
    float *share = (float *)(void *)cpu_past(launch->scratch, state->shares), room[CPU_CHUNK];
    const int64_t count = (int64_t)cpu_elements(&kernel->arguments[0]);
    struct spreading s = {device,
                          &state->strided,
                          CPU_TERM_SAME,
                          {{share, LS_F32}, {NULL, 0}, {NULL, 0}, {launch->arguments[3], dtype}}};
    if (largest) {
        const struct cpu_reduce_call counting = {.term = CPU_TERM_COUNT,
                                                 .divisor = 1,
                                                 .inputs = {x, x, y},
                                                 .result = {share, LS_F32},
                                                 .scratch = launch->scratch};
        cpu_reduce_run(device, &state->plan, &counting);
        s.term = CPU_TERM_EQUAL;
        s.tensors[1] = x;
        s.tensors[2] = y;
    }
    for (int64_t at = 0, n; at < count; at += n) {
        n = count - at < CPU_CHUNK ? count - at : CPU_CHUNK;
        const float *from = cpu_read(device, dy, at, n, room);
        for (int64_t i = 0; i < n; i++)
            share[at + i] = from[i] / (largest ? share[at + i] : (float)state->divisor);
    }
    cpu_strided_run(device, &state->strided,
                    (double)cpu_elements(cpu_output_desc(kernel, 0)) * 0.15, spread, &s);
    cpu_zero_padding(cpu_output_desc(kernel, 0), launch->arguments[3]);
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
    state->strided.piece = dy->dtype == LS_F32 ? 0 : CPU_CHUNK;
    answer->scratch_bytes = state->shares + cpu_elements(dy) * sizeof(float);
    answer->used_inputs = largest ? 7 : 1;
    kernel->run = run_reduce_backward;
    cpu_implementation(device, answer, "reduction");
    return LS_OK;
}
