// SPDX-License-Identifier: Apache-2.0
// Convolution, forward and backward, as oneDNN primitives (which: convolution_choice.h), also in
// bfloat16.
//
// Where the threads divide the examples evenly and nothing is converted around it, each thread computes its own with a
// primitive made for one thread: what it wrote is then still in its own cache when the next operation, split in the
// same way, reads it. The library divides channels among its threads, too, and a cache line that another core wrote
// last costs far more than one of its own.
#include "core/plugin/window.h"
#include "plugins/device/cpu/channel_sums.h"
#include "plugins/device/cpu/convolution_choice.h"
#include "plugins/device/cpu/cpu.h"
#include "plugins/device/cpu/layout.h"
#include "plugins/device/cpu/parts.h"

#include <omp.h>
#include <string.h>

struct convolution {
    struct cpu_parts parts;
    // Around it, where it pays (no primitive in it: not used): x is rewritten first. The images
    // that a model begins with are plain and have few channels, for which the library has good
    // kernels only in another order.
    struct cpu_primitive rewrite;
    // dw is written in another layout and then converted into the master layout.
    struct cpu_primitive convert;
    uint64_t rewritten_bytes, converted_bytes; // in scratch
    struct cpu_conv_taps taps; // dw by own loops, without a primitive
    struct cpu_conv_product product; // of matrices, whose primitives are the parts
    struct cpu_view dy; // whose channels are summed by own loops
    uint64_t sums_bytes; // scratch for that; 0: no db
};

static struct cpu_conv_geometry geometry_of(struct ls_kernel *kernel, uint32_t x, uint32_t w,
                                            uint32_t y, bool bias)
{
    const struct ls_op_attributes *a = &kernel->attributes;
    struct cpu_conv_geometry g = {.x = &kernel->arguments[x],
                                  .w = &kernel->arguments[w],
                                  .y = &kernel->arguments[y],
                                  .bias = bias,
                                  .groups = a->groups > 1 ? a->groups : 1};
    for (uint32_t i = 0, space = g.x->ndims - 2; i < space; i++) {
        const struct ls_moves moves = ls_moves_along(a, space, i);
        g.strides[i] = moves.stride;
        g.dilation[i] = (moves.dilation > 1 ? moves.dilation : 1) - 1;
        g.before[i] = moves.before;
        g.after[i] = moves.after;
    }
    return g;
}

// ---- what the three operations share ----

// Fixes the layout that the library chose; false: it has no name among ours.
static bool fix_layout(enum cpu_role role, struct ls_tensor_desc *desc, int32_t groups,
                       const dnnl_memory_desc_t *md)
{
    return desc->layout.kind != LS_LAYOUT_ANY ||
           cpu_layout_of(role, desc, groups, md, &desc->layout);
}

static dnnl_query_t query_of(uint32_t op, char tensor)
{
    if (tensor == 'x')
        return op == LS_OP_CONV2D_BACKWARD_DATA ? dnnl_query_diff_src_md : dnnl_query_src_md;
    if (tensor == 'y')
        return op == LS_OP_CONV2D ? dnnl_query_dst_md : dnnl_query_diff_dst_md;
    return op == LS_OP_CONV2D_BACKWARD_WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
}

static void finish_convolution(struct ls_kernel *kernel)
{
    struct convolution *state = kernel->state;
    if (!state)
        return;
    cpu_parts_finish(&state->parts);
    cpu_primitive_finish(&state->rewrite);
    cpu_primitive_finish(&state->convert);
}

// ---- running ----

// `pointers` are those of the primitive's arguments; x is the first, dw the third.
static int32_t execute(struct ls_device *device, struct ls_kernel *kernel, void **pointers,
                       char *scratch)
{
    struct convolution *state = kernel->state;
    if (state->product.op != LS_OP_NONE) {
        const dnnl_status_t ran =
            cpu_conv_product_run(device, &state->product, &state->parts, pointers, scratch);
        return ran == dnnl_success ? LS_OK : cpu_fail_dnnl(device, "convolution", ran);
    }
    char *rewritten = scratch, *converted = cpu_past(rewritten, state->rewritten_bytes);
    char *rest = cpu_past(converted, state->converted_bytes);
    dnnl_status_t status = dnnl_success;
    if (state->rewritten_bytes) {
        void *both[] = {pointers[0], rewritten};
        status = cpu_primitive_execute(&state->rewrite, device, both, rest);
        pointers[0] = rewritten;
    }
    void *dw[] = {converted, pointers[2]};
    if (state->converted_bytes)
        pointers[2] = converted;
    if (status == dnnl_success)
        status = cpu_parts_run(&state->parts, device, pointers, rest);
    if (status == dnnl_success && state->converted_bytes)
        status = cpu_primitive_execute(&state->convert, device, dw, rest);
    return status == dnnl_success ? LS_OK : cpu_fail_dnnl(device, "convolution", status);
}

static int32_t run_forward(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    const bool bias = kernel->input_count > 2;
    void *pointers[CPU_PART_POINTERS] = {launch->arguments[0], launch->arguments[1]};
    if (bias)
        pointers[2] = launch->arguments[2];
    pointers[bias ? 3 : 2] = cpu_output(kernel, launch, 0);
    return execute(device, kernel, pointers, launch->scratch);
}

// The epilogue's y, an input between w and dx, is not the primitive's.
static int32_t run_backward_data(struct ls_device *device, struct ls_kernel *kernel,
                                 const struct cpu_call *launch)
{
    void *pointers[CPU_PART_POINTERS] = {launch->arguments[0], launch->arguments[1],
                                         cpu_output(kernel, launch, 0)};
    return execute(device, kernel, pointers, launch->scratch);
}

// db
static void sum_channels(struct ls_device *device, struct ls_kernel *kernel,
                         const struct cpu_call *launch)
{
    const struct convolution *state = kernel->state;
    const struct cpu_tensor dy = {launch->arguments[1], kernel->arguments[1].dtype},
                            db = {cpu_output(kernel, launch, 1), cpu_output_desc(kernel, 1)->dtype};
    cpu_channel_sums(device, &state->dy, dy, db, launch->scratch);
}

static int32_t run_backward_weights(struct ls_device *device, struct ls_kernel *kernel,
                                    const struct cpu_call *launch)
{
    const struct convolution *state = kernel->state;
    void *pointers[CPU_PART_POINTERS] = {launch->arguments[0], launch->arguments[1],
                                         cpu_output(kernel, launch, 0)};
    if (state->sums_bytes)
        sum_channels(device, kernel, launch);
    return execute(device, kernel, pointers, cpu_past(launch->scratch, state->sums_bytes));
}

// The passes around the primitive.
static dnnl_status_t prepare_passes(struct ls_device *device, struct convolution *state,
                                    const struct cpu_conv_geometry *g,
                                    const struct cpu_conv_choice *choice)
{
    dnnl_memory_desc_t host;
    dnnl_status_t status = dnnl_success;
    if (choice->rewrites_x && cpu_memory_desc(CPU_ACTIVATION, g->x, 1, &host)) {
        const dnnl_memory_desc_t *x =
            dnnl_primitive_desc_query_md(choice->desc, dnnl_query_src_md, 0);
        state->rewritten_bytes = cpu_aligned(dnnl_memory_desc_get_size(x));
        status = cpu_primitive_reorder(&state->rewrite, device, &host, x);
    }
    if (status == dnnl_success && choice->converts_w &&
        cpu_memory_desc(CPU_KERNEL, g->w, g->groups, &host)) {
        const dnnl_memory_desc_t *dw =
            dnnl_primitive_desc_query_md(choice->desc, dnnl_query_diff_weights_md, 0);
        state->converted_bytes = cpu_aligned(dnnl_memory_desc_get_size(dw));
        status = cpu_primitive_reorder(&state->convert, device, dw, &host);
    }
    return status;
}

// ---- parts ----

// The tensors of a part, as `desc` has them.
static bool tensors_of_part(uint32_t op, dnnl_primitive_desc_t desc, int32_t count,
                            struct cpu_conv_tensors *out)
{
    const dnnl_memory_desc_t *b = dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 1);
    out->w = *dnnl_primitive_desc_query_md(desc, query_of(op, 'w'), 0);
    if (b)
        out->b = *b;
    return cpu_parts_share(dnnl_primitive_desc_query_md(desc, query_of(op, 'x'), 0), count,
                           &out->x) &&
           cpu_parts_share(dnnl_primitive_desc_query_md(desc, query_of(op, 'y'), 0), count,
                           &out->y);
}

static uint64_t size_of(const_dnnl_primitive_desc_t desc, dnnl_query_t query)
{
    return dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(desc, query, 0));
}

// A multiplication and an addition are one of work; a thread does about 60 a nanosecond.
static double work_of(const struct cpu_conv_geometry *g)
{
    const double taps = (double)ls_tensor_elements(g->w) / (double)g->w->dims[g->w->ndims - 1];
    return (double)ls_tensor_elements(g->y) * taps / 60.0;
}

// Each part but the first has a dw of its own to be added: many of them would be more than what is
// read for them.
static bool has_room_for_sums(uint32_t op, const_dnnl_primitive_desc_t desc, uint32_t parts)
{
    return op != LS_OP_CONV2D_BACKWARD_WEIGHTS ||
           (parts - 1) * size_of(desc, query_of(op, 'w')) <=
               size_of(desc, query_of(op, 'x')) + size_of(desc, query_of(op, 'y'));
}

static bool divisible(const struct ls_device *device, uint32_t op,
                      const struct cpu_conv_geometry *g, const struct cpu_conv_choice *whole)
{
    return cpu_worth_threads(device, work_of(g)) && g->x->dims[0] % device->threads == 0 &&
           !cpu_conv_is_slow(g, whole->desc) &&
           (g->x->dtype != LS_F32 || (!whole->rewrites_x && !whole->converts_w &&
                                      has_room_for_sums(op, whole->desc, device->threads)));
}

// Of all the dw of halves but the first, whatever x and y are: the library's own threads, which
// compute one dw together, are no choice there (below).
#define MOST_SUMS (UINT64_C(32) << 20)

// How many threads compute shares of the examples of dw of halves. The library's threads that
// compute it together wait for each other by spinning, which beside other processes takes a hundred
// times as long; so where threads do not divide the examples, fewer of them compute.
static int32_t parts_of_halves(const struct ls_device *device, uint32_t op,
                               const struct cpu_conv_geometry *g,
                               const struct cpu_conv_choice *whole)
{
    const uint64_t dw = size_of(whole->desc, query_of(op, 'w'));
    int32_t count = 1;
    if (g->w->dtype != LS_F32 || !cpu_worth_threads(device, work_of(g)) ||
        cpu_conv_is_slow(g, whole->desc))
        return 1;
    for (uint32_t n = 2; n <= device->threads && (n - 1) * dw <= MOST_SUMS; n++)
        if (g->x->dims[0] % n == 0)
            count = (int32_t)n;
    return count;
}

// How many threads compute shares of the examples; 0: the library divides the whole.
static int32_t parts_of(const struct ls_device *device, uint32_t op,
                        const struct cpu_conv_geometry *g, const struct cpu_conv_choice *whole)
{
    if (g->x->dtype != LS_F32 && op == LS_OP_CONV2D_BACKWARD_WEIGHTS)
        return parts_of_halves(device, op, g, whole);
    return divisible(device, op, g, whole) ? (int32_t)device->threads : 0;
}

// A share of the examples for one thread, as the whole is described; NULL: not to be divided.
static dnnl_primitive_desc_t part_desc(struct ls_device *device, uint32_t op,
                                       const struct cpu_conv_geometry *g,
                                       const struct cpu_conv_choice *whole, int32_t count,
                                       const_dnnl_primitive_attr_t attributes)
{
    struct cpu_conv_tensors t;
    dnnl_primitive_desc_t desc = NULL;
    if (count == 0 || !tensors_of_part(op, whole->desc, count, &t))
        return NULL;
    if (cpu_conv_make_desc(device, op, g, &t, attributes, &desc) != dnnl_success)
        return NULL;
    if (!cpu_conv_is_slow(g, desc))
        return desc;
    dnnl_primitive_desc_destroy(desc);
    return NULL;
}

// How far the arguments of one part are from those of the next.
static void set_steps(struct cpu_parts *parts, uint32_t op, const struct cpu_conv_geometry *g)
{
    const_dnnl_primitive_desc_t desc = parts->primitives[0].desc;
    const uint64_t x = size_of(desc, query_of(op, 'x')), y = size_of(desc, query_of(op, 'y'));
    if (op == LS_OP_CONV2D) {
        parts->steps[0] = x;
        parts->steps[g->bias ? 3 : 2] = y;
    } else if (op == LS_OP_CONV2D_BACKWARD_DATA) {
        parts->steps[0] = y;
        parts->steps[2] = x;
    } else {
        parts->steps[0] = x;
        parts->steps[1] = y;
        parts->sum_pointer = 2;
        parts->sum_bytes = size_of(desc, query_of(op, 'w'));
    }
}

// Takes the description in `whole` over, also when it fails.
static dnnl_status_t make_primitives(struct ls_device *device, uint32_t op,
                                     const struct cpu_conv_geometry *g,
                                     const struct cpu_conv_choice *whole,
                                     const_dnnl_primitive_attr_t attributes,
                                     struct cpu_parts *parts)
{
    const int32_t count = parts_of(device, op, g, whole);
    omp_set_num_threads(1); // for which a part is made
    const dnnl_primitive_desc_t part = part_desc(device, op, g, whole, count, attributes);
    const dnnl_status_t status = part ? cpu_parts_init(parts, part, count) : dnnl_success;
    omp_set_num_threads((int)device->threads);
    if (!part)
        return cpu_parts_init(parts, whole->desc, 1);
    dnnl_primitive_desc_destroy(whole->desc);
    if (status == dnnl_success)
        set_steps(parts, op, g);
    parts->work = work_of(g);
    return status;
}

static uint64_t scratch_of(const struct convolution *state)
{
    uint64_t most = cpu_parts_scratch(&state->parts);
    if (most < state->rewrite.scratch_bytes)
        most = state->rewrite.scratch_bytes;
    if (most < state->convert.scratch_bytes)
        most = state->convert.scratch_bytes;
    return state->rewritten_bytes + state->converted_bytes + state->product.rows_bytes + most;
}

// ---- preparing ----

// The layouts that the library chose; false: one has no name among ours.
static bool fix_layouts(uint32_t op, const struct cpu_conv_geometry *g,
                        const_dnnl_primitive_desc_t desc)
{
    return fix_layout(CPU_ACTIVATION, g->x, 1,
                      dnnl_primitive_desc_query_md(desc, query_of(op, 'x'), 0)) &&
           fix_layout(CPU_ACTIVATION, g->y, 1,
                      dnnl_primitive_desc_query_md(desc, query_of(op, 'y'), 0)) &&
           fix_layout(CPU_KERNEL, g->w, g->groups,
                      dnnl_primitive_desc_query_md(desc, query_of(op, 'w'), 0));
}

static dnnl_status_t make_all(struct ls_device *device, uint32_t op,
                              const struct cpu_conv_geometry *g,
                              const struct cpu_conv_choice *choice,
                              const_dnnl_primitive_attr_t attributes, struct convolution *state)
{
    const dnnl_status_t status = prepare_passes(device, state, g, choice);
    if (status != dnnl_success) {
        dnnl_primitive_desc_destroy(choice->desc);
        return status;
    }
    return make_primitives(device, op, g, choice, attributes, &state->parts);
}

static int32_t prepare_convolution(struct ls_device *device,
                                   const struct ls_kernel_request *request,
                                   struct ls_kernel *kernel, struct ls_kernel_answer *answer,
                                   const struct cpu_conv_geometry *g,
                                   dnnl_primitive_attr_t attributes)
{
    const uint32_t op = request->op;
    struct cpu_conv_choice best = {.grade = -1};
    if (g->x->dtype == LS_F16) // for which the library has no convolution
        return CPU_COPIES;
    struct convolution *state = cpu_state(device, sizeof(*state));
    if (!state)
        return LS_OUT_OF_MEMORY;
    kernel->state = state;
    kernel->finish = finish_convolution;
    const bool halves = g->x->dtype != LS_F32;
    dnnl_status_t status = dnnl_unimplemented;
    if (halves)
        status = cpu_conv_product_init(device, op, g, attributes, &state->product, &state->parts);
    if (status == dnnl_success) {
        answer->scratch_bytes = scratch_of(state);
        snprintf(answer->implementation, sizeof(answer->implementation), "oneDNN %s%s%s",
                 cpu_primitive_name(state->parts.primitives[0].desc),
                 state->parts.count > 1 ? ", by examples" : "",
                 state->product.gathers ? ", rows gathered" : "");
        return LS_OK;
    }
    state->product = (struct cpu_conv_product){.op = LS_OP_NONE};
    status = cpu_conv_choose(device, op, g, attributes, &best);
    if (halves && (status == dnnl_unimplemented ||
                   (status == dnnl_success && cpu_conv_is_slow(g, best.desc)))) {
        if (status == dnnl_success)
            dnnl_primitive_desc_destroy(best.desc);
        return CPU_COPIES;
    }
    if (status == dnnl_unimplemented)
        return cpu_unsupported(device, request,
                               "oneDNN has no convolution for these shapes and layouts");
    if (status != dnnl_success)
        return cpu_fail_dnnl(device, "convolution", status);
    answer->slow = cpu_conv_is_slow(g, best.desc);
    const bool named = fix_layouts(op, g, best.desc);
    status = make_all(device, op, g, &best, attributes, state);
    if (status != dnnl_success)
        return cpu_fail_dnnl(device, "convolution", status);
    if (!named && halves)
        return CPU_COPIES;
    if (!named)
        return cpu_unsupported(device, request, "oneDNN chose a layout that is not blocked");
    answer->scratch_bytes = scratch_of(state);
    snprintf(answer->implementation, sizeof(answer->implementation), "oneDNN %s%s%s%s",
             cpu_primitive_name(state->parts.primitives[0].desc),
             state->parts.count > 1 ? ", by examples" : "", best.rewrites_x ? ", x reordered" : "",
             best.converts_w ? ", dw reordered" : "");
    return LS_OK;
}

struct named {
    int argument;
    dnnl_query_t query;
    int index;
};

static int32_t add_arguments(struct ls_device *device, struct ls_kernel *kernel,
                             const struct named *names, int count)
{
    struct convolution *state = kernel->state;
    const_dnnl_primitive_desc_t desc = state->parts.primitives[0].desc;
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < count && status == dnnl_success; i++)
        status = cpu_parts_add(&state->parts, device, names[i].argument,
                               dnnl_primitive_desc_query_md(desc, names[i].query, names[i].index));
    if (status == dnnl_success)
        status = cpu_parts_add_scratch(&state->parts, device);
    return status == dnnl_success ? LS_OK : cpu_fail_dnnl(device, "convolution", status);
}

// ---- forward ----

// Makes the epilogue part of the primitive where the library computes it in registers.
static bool append_activation(dnnl_primitive_attr_t attributes, const struct cpu_epilogue *epilogue)
{
    dnnl_post_ops_t operations = NULL;
    const bool leaky = epilogue->activation == LS_LEAKY_RELU,
               six = epilogue->activation == LS_RELU6;
    if (epilogue->op != LS_OP_ACTIVATION || (epilogue->activation != LS_RELU && !leaky && !six) ||
        dnnl_post_ops_create(&operations) != dnnl_success)
        return false;
    dnnl_status_t status = dnnl_post_ops_append_eltwise(
        operations, 1.0f, six ? dnnl_eltwise_bounded_relu : dnnl_eltwise_relu,
        leaky ? epilogue->alpha : (six ? 6.0f : 0.0f), 0.0f);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(attributes, operations);
    dnnl_post_ops_destroy(operations);
    return status == dnnl_success;
}

int32_t cpu_convolution_forward(struct ls_device *device, const struct ls_kernel_request *request,
                                struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    static const struct named names[] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0},
                                         {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
                                         {DNNL_ARG_BIAS, dnnl_query_weights_md, 1},
                                         {DNNL_ARG_DST, dnnl_query_dst_md, 0}};
    static const struct named names_without_bias[] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0},
                                                      {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
                                                      {DNNL_ARG_DST, dnnl_query_dst_md, 0}};
    const bool bias = request->input_count > 2;
    const struct cpu_conv_geometry g = geometry_of(kernel, 0, 1, request->input_count, bias);
    dnnl_primitive_attr_t attributes = cpu_primitive_attributes();
    if (!attributes)
        return cpu_out_of_memory(device);
    if (append_activation(attributes, &kernel->epilogue))
        kernel->epilogue.op = LS_OP_NONE;
    kernel->run = run_forward;
    const int32_t status = prepare_convolution(device, request, kernel, answer, &g, attributes);
    dnnl_primitive_attr_destroy(attributes);
    if (status)
        return status;
    return bias ? add_arguments(device, kernel, names, 4)
                : add_arguments(device, kernel, names_without_bias, 3);
}

// ---- backward ----

static int32_t prepare_backward(struct ls_device *device, const struct ls_kernel_request *request,
                                struct ls_kernel *kernel, struct ls_kernel_answer *answer,
                                const struct cpu_conv_geometry *g, const struct named names[3])
{
    dnnl_primitive_attr_t attributes = cpu_primitive_attributes();
    if (!attributes)
        return cpu_out_of_memory(device);
    const int32_t status = prepare_convolution(device, request, kernel, answer, g, attributes);
    dnnl_primitive_attr_destroy(attributes);
    return status ? status : add_arguments(device, kernel, names, 3);
}

int32_t cpu_convolution_backward_data(struct ls_device *device,
                                      const struct ls_kernel_request *request,
                                      struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    static const struct named names[] = {{DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0},
                                         {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
                                         {DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0}};
    const struct cpu_conv_geometry g = geometry_of(kernel, request->input_count, 1, 0, false);
    kernel->run = run_backward_data;
    return prepare_backward(device, request, kernel, answer, &g, names);
}

struct widening {
    const struct cpu_half_loops *loops;
    const uint16_t *from;
    float *to;
};

static void widen_part(void *context, int64_t begin, int64_t end)
{
    const struct widening *w = context;
    w->loops->widen(LS_BF16, w->from + begin, w->to + begin, end - begin);
}

// The tensor as float32: where it is, or in `room`.
static const float *widened(struct ls_device *device, const struct ls_tensor_desc *desc,
                            const void *tensor, void *room)
{
    struct widening w = {device->loops->half, tensor, room};
    const int64_t count = (int64_t)cpu_elements(desc);
    if (desc->dtype == LS_F32)
        return tensor;
    cpu_parallel(device, count, CPU_CHUNK, (double)count * 0.15, widen_part, &w);
    return room;
}

// Scratch for that.
static uint64_t widened_bytes(const struct ls_tensor_desc *desc)
{
    return desc->dtype == LS_F32 ? 0 : cpu_aligned(cpu_elements(desc) * sizeof(float));
}

static int32_t run_taps(struct ls_device *device, struct ls_kernel *kernel,
                        const struct cpu_call *launch)
{
    const struct convolution *state = kernel->state;
    const struct ls_tensor_desc *x = &kernel->arguments[0], *dy = &kernel->arguments[1];
    char *wide_x = cpu_past(launch->scratch, state->sums_bytes),
         *wide_dy = cpu_past(wide_x, widened_bytes(x)),
         *rest = cpu_past(wide_dy, widened_bytes(dy));
    if (state->sums_bytes)
        sum_channels(device, kernel, launch);
    cpu_conv_taps_run(device, &state->taps, widened(device, x, launch->arguments[0], wide_x),
                      widened(device, dy, launch->arguments[1], wide_dy),
                      cpu_output(kernel, launch, 0), rest);
    return LS_OK;
}

static int32_t prepare_backward_weights(struct ls_device *device,
                                        const struct ls_kernel_request *request,
                                        struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    static const struct named names[] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0},
                                         {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0},
                                         {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md, 0}};
    const struct cpu_conv_geometry g = geometry_of(kernel, 0, 2, 1, false);
    struct cpu_conv_taps taps;
    // Of halves depthwise ones alone: the others are products.
    const bool may = g.x->dtype == LS_F32 || (g.x->dtype == LS_BF16 && g.groups > 1);
    if (!may || !cpu_conv_taps_fit(device, &g, &taps)) {
        kernel->run = run_backward_weights;
        return prepare_backward(device, request, kernel, answer, &g, names);
    }
    struct convolution *state = cpu_state(device, sizeof(*state));
    if (!state)
        return LS_OUT_OF_MEMORY;
    state->taps = taps;
    kernel->state = state;
    kernel->run = run_taps;
    answer->scratch_bytes = widened_bytes(g.x) + widened_bytes(g.y) + taps.scratch_bytes;
    cpu_implementation(device, answer, "convolution over few pixels");
    return LS_OK;
}

// db is not the library's: with the channels innermost its sums are scalar, and take as long as dw.
int32_t cpu_convolution_backward_weights(struct ls_device *device,
                                         const struct ls_kernel_request *request,
                                         struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const int32_t status = prepare_backward_weights(device, request, kernel, answer);
    if (status || request->output_count == 1)
        return status;
    struct convolution *state = kernel->state;
    if (!cpu_view_of(&kernel->arguments[1], &state->dy))
        return cpu_unsupported(device, request,
                               "dy lies in a layout whose channels cannot be summed");
    state->sums_bytes = cpu_channel_sums_scratch(&state->dy);
    answer->scratch_bytes += state->sums_bytes;
    return LS_OK;
}
