// SPDX-License-Identifier: Apache-2.0
// The same tensor in another layout: oneDNN's reorder for blocked layouts, own loops for the rows
// of dense kernels; and reshaping, which goes through the plain order.
#include "core/plugin/half.h"
#include "plugins/device/cpu/cpu.h"
#include "plugins/device/cpu/layout.h"
#include "plugins/device/cpu/primitive.h"

#include <stdlib.h>
#include <string.h>

// One or two passes: own -> plain -> own where a reshape has own layouts on both sides.
struct conversion {
    struct cpu_primitive first, second; // unused: no primitive in it
    uint64_t between_bytes; // the plain tensor between two passes
    uint64_t bytes; // of a plain copy
    int64_t *rows; // dense: for each row in memory, the row to take, -1: zeros
    int64_t row_count, row_floats;
    struct cpu_pairs pairs;
};

static void finish_conversion(struct ls_kernel *kernel)
{
    struct conversion *c = kernel->state;
    if (!c)
        return;
    cpu_primitive_finish(&c->first);
    cpu_primitive_finish(&c->second);
    free(c->rows);
}

static struct conversion *start(struct ls_device *device, struct ls_kernel *kernel)
{
    kernel->state = cpu_state(device, sizeof(struct conversion));
    kernel->finish = finish_conversion;
    return kernel->state;
}

// ---- copy ----

struct copy {
    const char *from;
    char *to;
};

static void copy_part(void *context, int64_t begin, int64_t end)
{
    const struct copy *c = context;
    memcpy(c->to + begin, c->from + begin, (size_t)(end - begin));
}

static int32_t run_copy(struct ls_device *device, struct ls_kernel *kernel,
                        const struct cpu_call *launch)
{
    const struct conversion *state = kernel->state;
    struct copy c = {launch->arguments[0], cpu_output(kernel, launch, 0)};
    if (c.from != c.to)
        cpu_parallel(device, (int64_t)state->bytes, 4096, (double)state->bytes * 0.05, copy_part,
                     &c);
    return LS_OK;
}

// ---- reorders ----

static int32_t run_reorder(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    struct conversion *state = kernel->state;
    void *from = launch->arguments[0], *to = cpu_output(kernel, launch, 0);
    void *scratch = cpu_past(launch->scratch, state->between_bytes);
    void *first[] = {from, state->between_bytes ? launch->scratch : to};
    dnnl_status_t status = cpu_primitive_execute(&state->first, device, first, scratch);
    if (status == dnnl_success && state->between_bytes) {
        void *second[] = {launch->scratch, to};
        status = cpu_primitive_execute(&state->second, device, second, scratch);
    }
    return status == dnnl_success ? LS_OK : cpu_fail_dnnl(device, "conversion", status);
}

static dnnl_status_t make_reorder(struct ls_device *device, struct cpu_primitive *out,
                                  enum cpu_role role, int32_t groups,
                                  const struct ls_tensor_desc *from,
                                  const struct ls_tensor_desc *to)
{
    dnnl_memory_desc_t source, target;
    if (!cpu_memory_desc(role, from, groups, &source) ||
        !cpu_memory_desc(role, to, groups, &target))
        return dnnl_unimplemented;
    return cpu_primitive_reorder(out, device, &source, &target);
}

static int32_t prepare_reorder(struct ls_device *device, const struct ls_kernel_request *request,
                               struct ls_kernel *kernel, struct ls_kernel_answer *answer,
                               const struct ls_tensor_desc *from, const struct ls_tensor_desc *to)
{
    const struct ls_layout *own = from->layout.kind == LS_LAYOUT_OWN ? &from->layout : &to->layout;
    struct conversion *state = kernel->state;
    const dnnl_status_t status = make_reorder(device, &state->first, cpu_layout_role(own),
                                              (int32_t)(own->words[0] >> 32), from, to);
    if (status == dnnl_unimplemented && (from->dtype != LS_F32 || to->dtype != LS_F32))
        return CPU_COPIES;
    if (status == dnnl_unimplemented)
        return cpu_unsupported(device, request, "there is no conversion between these layouts");
    if (status != dnnl_success)
        return cpu_fail_dnnl(device, "conversion", status);
    kernel->run = run_reorder;
    answer->scratch_bytes = state->first.scratch_bytes;
    snprintf(answer->implementation, sizeof(answer->implementation), "oneDNN %s",
             cpu_primitive_name(state->first.desc));
    return LS_OK;
}

// ---- rows of dense kernels ----

struct rows {
    const struct conversion *state;
    const float *from;
    float *to;
};

static void rows_part(void *context, int64_t begin, int64_t end)
{
    const struct rows *r = context;
    const int64_t n = r->state->row_floats;
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = r->state->rows[i];
        if (row < 0)
            memset(r->to + i * n, 0, (size_t)n * sizeof(float));
        else
            memcpy(r->to + i * n, r->from + row * n, (size_t)n * sizeof(float));
    }
}

static int32_t run_rows(struct ls_device *device, struct ls_kernel *kernel,
                        const struct cpu_call *launch)
{
    const struct conversion *state = kernel->state;
    struct rows r = {state, launch->arguments[0], cpu_output(kernel, launch, 0)};
    cpu_parallel(device, state->row_count, 16, (double)(state->row_count * state->row_floats) * 0.2,
                 rows_part, &r);
    return LS_OK;
}

// For each row in memory its plain row; the identity for the plain layout.
static int64_t *plain_rows(const struct ls_tensor_desc *w, int64_t *count)
{
    if (w->layout.kind == LS_LAYOUT_OWN)
        return cpu_dense_rows(w, count);
    *count = w->dims[0];
    int64_t *rows = malloc((size_t)*count * sizeof(*rows));
    for (int64_t i = 0; rows && i < *count; i++)
        rows[i] = i;
    return rows;
}

static int32_t prepare_rows(struct ls_device *device, struct ls_kernel *kernel,
                            struct ls_kernel_answer *answer, const struct ls_tensor_desc *from,
                            const struct ls_tensor_desc *to)
{
    struct conversion *state = kernel->state;
    int64_t from_count = 0;
    int64_t *source = plain_rows(from, &from_count);
    int64_t *where = malloc((size_t)from->dims[0] * sizeof(*where)); // of each plain row in `from`
    state->rows = plain_rows(to, &state->row_count);
    state->row_floats = to->dims[1];
    kernel->run = run_rows;
    cpu_implementation(device, answer, "rows");
    if (source && where && state->rows) {
        for (int64_t i = 0; i < from_count; i++)
            if (source[i] >= 0)
                where[source[i]] = i;
        for (int64_t i = 0; i < state->row_count; i++)
            if (state->rows[i] >= 0)
                state->rows[i] = where[state->rows[i]];
    }
    const bool done = source && where && state->rows;
    free(source);
    free(where);
    return done ? LS_OK : cpu_out_of_memory(device);
}

// ---- weights for the units for matrices ----

// Of a depth that gives a cache whole lines of a row, without too many rows at a time.
enum { PAIRS_DEPTH = 32, TRANSPOSED_DEPTH = 128 };

struct packing {
    const struct cpu_half_loops *loops;
    struct cpu_pairs pairs;
    int64_t step, steps, blocks; // of depth; of columns
    const float *from;
    uint32_t *to;
};

static int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void pack_part(void *context, int64_t begin, int64_t end)
{
    const struct packing *p = context;
    const struct cpu_pairs *q = &p->pairs;
    for (int64_t i = begin; i < end; i++) {
        const int64_t k = (q->transposed ? i % p->steps : i / p->blocks) * p->step;
        const int64_t n = (q->transposed ? i / p->steps : i % p->blocks) * q->block;
        const int64_t depth = q->depth - k, columns = at_most(q->columns - n, q->block);
        const int64_t padded = at_most(q->padded_depth - k, p->step);
        uint32_t *to = p->to + (n * q->padded_depth + k * q->block) / 2;
        if (q->transposed)
            p->loops->pack_transposed_pairs(p->from + n * q->depth + k, depth, columns, q->depth,
                                            q->block, padded, to);
        else
            p->loops->pack_pairs(p->from + k * q->columns + n, depth, columns, q->columns, q->block,
                                 padded, to);
    }
}

static int32_t run_pack(struct ls_device *device, struct ls_kernel *kernel,
                        const struct cpu_call *launch)
{
    const struct conversion *state = kernel->state;
    struct packing p = {.loops = device->loops->half,
                        .pairs = state->pairs,
                        .step = state->pairs.transposed ? TRANSPOSED_DEPTH : PAIRS_DEPTH,
                        .from = launch->arguments[0],
                        .to = cpu_output(kernel, launch, 0)};
    p.steps = (p.pairs.padded_depth + p.step - 1) / p.step;
    p.blocks = (p.pairs.columns + p.pairs.block - 1) / p.pairs.block;
    const double work = (double)(p.pairs.depth * p.pairs.columns) * 0.25;
    cpu_parallel(device, p.steps * p.blocks, 1, work, pack_part, &p);
    return LS_OK;
}

// ---- reshaping of halves ----

// oneDNN's reorder computes with halves: it loses the sign of a zero, and on some processors the
// smallest ones. Here they are moved.

struct pixels {
    struct cpu_view view;
    const uint16_t *from;
    uint16_t *to;
    bool pack; // from the plain order into blocks of channels, else back
};

static void move_pixels(void *context, int64_t begin, int64_t end)
{
    const struct pixels *p = context;
    const struct cpu_view *v = &p->view;
    const int64_t plane = v->height * v->width;
    for (int64_t pixel = begin; pixel < end; pixel++)
        for (int64_t block = 0; block < v->blocks; block++) {
            const int64_t first = block * v->inner, left = v->channels - first;
            const int64_t used = left < v->inner ? left : v->inner;
            const int64_t plain = pixel * v->channels + first;
            const int64_t own =
                ((pixel / plane * v->blocks + block) * plane + pixel % plane) * v->inner;
            memcpy(p->to + (p->pack ? own : plain), p->from + (p->pack ? plain : own),
                   (size_t)used * sizeof(uint16_t));
            if (p->pack)
                memset(p->to + own + used, 0, (size_t)(v->inner - used) * sizeof(uint16_t));
        }
}

static void move_all(struct ls_device *device, const struct ls_tensor_desc *own, bool pack,
                     const void *from, void *to)
{
    struct pixels p = {.from = from, .to = to, .pack = pack};
    const double work = (double)ls_tensor_elements(own) * 0.15;
    cpu_view_of(own, &p.view);
    cpu_parallel(device, p.view.outer / p.view.blocks * p.view.height * p.view.width, 1, work,
                 move_pixels, &p);
}

static int32_t run_move(struct ls_device *device, struct ls_kernel *kernel,
                        const struct cpu_call *launch)
{
    const struct ls_tensor_desc *x = &kernel->arguments[0], *y = cpu_output_desc(kernel, 0);
    void *from = launch->arguments[0], *to = cpu_output(kernel, launch, 0);
    if (x->layout.kind == LS_LAYOUT_PLAIN) {
        move_all(device, y, true, from, to);
    } else if (y->layout.kind == LS_LAYOUT_PLAIN) {
        move_all(device, x, false, from, to);
    } else {
        move_all(device, x, false, from, launch->scratch);
        move_all(device, y, true, launch->scratch, to);
    }
    return LS_OK;
}

static int32_t prepare_move(struct ls_device *device, struct ls_kernel *kernel,
                            struct ls_kernel_answer *answer)
{
    struct ls_tensor_desc *x = &kernel->arguments[0], *y = cpu_output_desc(kernel, 0);
    struct cpu_view view;
    const bool unpack = x->layout.kind == LS_LAYOUT_OWN, pack = y->layout.kind == LS_LAYOUT_OWN;
    if ((unpack && !cpu_view_of(x, &view)) || (pack && !cpu_view_of(y, &view)))
        return CPU_COPIES;
    kernel->run = run_move;
    if (unpack && pack)
        answer->scratch_bytes = ls_tensor_elements(x) * sizeof(uint16_t);
    cpu_implementation(device, answer, "reshape");
    return LS_OK;
}

// ---- operations ----

static bool is_rows(const struct ls_tensor_desc *desc)
{
    return cpu_layout_role(&desc->layout) == CPU_DENSE_ROWS;
}

// Whether both tensors have every element at the same place, or one may lie as the other does.
static bool lie_alike(const struct ls_tensor_desc *from, const struct ls_tensor_desc *to)
{
    return to->layout.kind == LS_LAYOUT_ANY ||
           (from->layout.kind == to->layout.kind &&
            memcmp(from->layout.words, to->layout.words, sizeof(to->layout.words)) == 0);
}

// A parameter and what kernels read of it: oneDNN changes type and layout in one pass. What lies
// alike differs in the type alone, which is a cast of half.c.
static int32_t convert_halves(struct ls_device *device, const struct ls_kernel_request *request,
                              struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const struct ls_tensor_desc *from = &kernel->arguments[0], *to = cpu_output_desc(kernel, 0);
    if (lie_alike(from, to) || is_rows(from) || is_rows(to))
        return CPU_COPIES;
    if (from->dtype == to->dtype)
        return prepare_move(device, kernel, answer);
    if (from->dtype != LS_F32 && to->dtype != LS_F32)
        return CPU_COPIES;
    struct conversion *state = kernel->state;
    if (from->layout.kind == LS_LAYOUT_PLAIN && to->dtype == LS_BF16 &&
        cpu_pairs_of(to, &state->pairs)) {
        kernel->run = run_pack;
        cpu_implementation(device, answer, "pack");
        return LS_OK;
    }
    return prepare_reorder(device, request, kernel, answer, from, to);
}

int32_t cpu_convert(struct ls_device *device, const struct ls_kernel_request *request,
                    struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    struct ls_tensor_desc *from = &kernel->arguments[0], *to = cpu_output_desc(kernel, 0);
    struct conversion *state = start(device, kernel);
    if (!state)
        return LS_OUT_OF_MEMORY;
    if (from->layout.kind == LS_LAYOUT_ANY)
        cpu_layout_plain(from, &from->layout);
    if (to->layout.kind == LS_LAYOUT_ANY && to->dtype == from->dtype)
        to->layout = from->layout;
    if (from->dtype != LS_F32 || to->dtype != LS_F32)
        return convert_halves(device, request, kernel, answer);
    if (memcmp(&from->layout, &to->layout, sizeof(to->layout)) == 0) {
        state->bytes = from->layout.bytes;
        kernel->run = run_copy;
        answer->in_place = 1;
        cpu_implementation(device, answer, "copy");
        return LS_OK;
    }
    if (!is_rows(from) && !is_rows(to))
        return prepare_reorder(device, request, kernel, answer, from, to);
    const bool both = (is_rows(from) || from->layout.kind == LS_LAYOUT_PLAIN) &&
                      (is_rows(to) || to->layout.kind == LS_LAYOUT_PLAIN);
    if (!both)
        return cpu_unsupported(device, request, "there is no conversion between these layouts");
    return prepare_rows(device, kernel, answer, from, to);
}

// Own layouts on either side are those of 4-D activations.
int32_t cpu_reshape(struct ls_device *device, const struct ls_kernel_request *request,
                    struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    struct ls_tensor_desc *from = &kernel->arguments[0], *to = cpu_output_desc(kernel, 0);
    struct conversion *state = start(device, kernel);
    if (!state)
        return LS_OUT_OF_MEMORY;
    if (from->layout.kind == LS_LAYOUT_ANY)
        cpu_layout_plain(from, &from->layout);
    if (to->layout.kind == LS_LAYOUT_ANY)
        cpu_layout_plain(to, &to->layout);
    struct ls_tensor_desc plain_from = *from, plain_to = *to;
    cpu_layout_plain(from, &plain_from.layout);
    cpu_layout_plain(to, &plain_to.layout);
    const bool unpack = from->layout.kind == LS_LAYOUT_OWN, pack = to->layout.kind == LS_LAYOUT_OWN;
    if (!unpack && !pack) {
        state->bytes = from->layout.bytes;
        kernel->run = run_copy;
        answer->in_place = 1;
        cpu_implementation(device, answer, "copy");
        return LS_OK;
    }
    if (ls_dtype_is_half(from->dtype))
        return prepare_move(device, kernel, answer);
    int32_t status = unpack ? prepare_reorder(device, request, kernel, answer, from, &plain_from)
                            : prepare_reorder(device, request, kernel, answer, &plain_to, to);
    if (status || !unpack || !pack)
        return status;
    const dnnl_status_t made =
        make_reorder(device, &state->second, CPU_ACTIVATION, 1, &plain_to, to);
    if (made != dnnl_success)
        return cpu_fail_dnnl(device, "conversion", made);
    state->between_bytes = cpu_aligned(plain_to.layout.bytes);
    if (answer->scratch_bytes < state->second.scratch_bytes)
        answer->scratch_bytes = state->second.scratch_bytes;
    answer->scratch_bytes += state->between_bytes;
    return LS_OK;
}
