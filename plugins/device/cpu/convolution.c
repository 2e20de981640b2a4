// SPDX-License-Identifier: Apache-2.0
// Convolution, forward and backward, as oneDNN primitives. Where a layout is free the library chooses;
// if its backward kernels would then be its slow reference code (as with SSE4.1), plain activations are
// tried, for which it multiplies matrices.
#include "plugins/device/cpu/cpu.h"
#include "plugins/device/cpu/layout.h"
#include "plugins/device/cpu/primitive.h"

#include <string.h>

// Of a convolution, whichever of its three operations.
struct geometry {
    struct ls_tensor_desc *x, *w, *y; // or their gradients
    bool bias;
    int32_t groups;
    dnnl_dims_t strides, dilation, before, after;
};

// One way to describe the tensors to oneDNN.
struct tensors {
    dnnl_memory_desc_t x, w, b, y;
};

struct convolution {
    struct cpu_primitive primitive;
    // The x that the host gives is first rewritten as the primitive wants it: the images that a model
    // begins with are plain and have few channels, for which the library has good kernels only in
    // another order. Unused: no primitive in it.
    struct cpu_primitive rewrite;
    uint64_t rewritten_bytes;
};

static struct geometry geometry_of(struct ls_kernel *kernel, uint32_t x, uint32_t w, uint32_t y,
                                   bool bias)
{
    const struct ls_op_attributes *a = &kernel->attributes;
    struct geometry g = {.x = &kernel->arguments[x],
                         .w = &kernel->arguments[w],
                         .y = &kernel->arguments[y],
                         .bias = bias,
                         .groups = a->groups > 1 ? a->groups : 1};
    for (int i = 0; i < 2; i++) {
        g.strides[i] = a->strides[i];
        g.dilation[i] = (a->dilation[i] > 1 ? a->dilation[i] : 1) - 1;
        g.before[i] = a->padding[2 * i];
        g.after[i] = a->padding[2 * i + 1];
    }
    return g;
}

// ---- descriptors ----

static dnnl_status_t describe(uint32_t op, const struct geometry *g, const struct tensors *t,
                              dnnl_convolution_desc_t *out)
{
    const dnnl_memory_desc_t *bias = g->bias ? &t->b : NULL;
    const dnnl_alg_kind_t direct = dnnl_convolution_direct;
    if (op == LS_OP_CONV2D)
        return dnnl_dilated_convolution_forward_desc_init(out, dnnl_forward_training, direct, &t->x,
                                                          &t->w, bias, &t->y, g->strides,
                                                          g->dilation, g->before, g->after);
    if (op == LS_OP_CONV2D_BACKWARD_DATA)
        return dnnl_dilated_convolution_backward_data_desc_init(
            out, direct, &t->x, &t->w, &t->y, g->strides, g->dilation, g->before, g->after);
    return dnnl_dilated_convolution_backward_weights_desc_init(
        out, direct, &t->x, &t->w, bias, &t->y, g->strides, g->dilation, g->before, g->after);
}

static dnnl_status_t make_desc(struct ls_device *device, uint32_t op, const struct geometry *g,
                               const struct tensors *t, const_dnnl_primitive_attr_t attributes,
                               dnnl_primitive_desc_t *out)
{
    dnnl_convolution_desc_t desc;
    const dnnl_status_t status = describe(op, g, t, &desc);
    return status != dnnl_success
               ? status
               : dnnl_primitive_desc_create(out, &desc, attributes, device->engine, NULL);
}

static bool is_slow(const_dnnl_primitive_desc_t desc)
{
    return strncmp(cpu_primitive_name(desc), "ref", 3) == 0;
}

// Whether the library has a fast kernel for `op` with these tensors; the layout of w is free where it may differ.
static bool has_fast(struct ls_device *device, uint32_t op, const struct geometry *g,
                     struct tensors t)
{
    dnnl_primitive_desc_t desc = NULL;
    if (op == LS_OP_CONV2D_BACKWARD_DATA)
        dnnl_memory_desc_init_by_tag(&t.w, t.w.ndims, t.w.dims, dnnl_f32, dnnl_format_tag_any);
    if (make_desc(device, op, g, &t, NULL, &desc) != dnnl_success)
        return false;
    const bool fast = !is_slow(desc);
    dnnl_primitive_desc_destroy(desc);
    return fast;
}

enum { SLOW = 0, FORWARD_ONLY = 2, WITH_DATA = 4, WITH_WEIGHTS = 6, ALL_FAST = 8 };

// How good a choice is over a whole step: a layout that suits forward alone makes backward slow. The
// gradient of x counts least, for the first layer has none. One less where x must be rewritten.
static int judge(struct ls_device *device, uint32_t op, const struct geometry *g,
                 dnnl_primitive_desc_t desc, bool rewrites)
{
    if (is_slow(desc))
        return SLOW;
    if (op != LS_OP_CONV2D)
        return ALL_FAST - rewrites;
    const struct tensors chosen = {
        .x = *dnnl_primitive_desc_query_md(desc, dnnl_query_src_md, 0),
        .w = *dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 0),
        .b = *dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 1),
        .y = *dnnl_primitive_desc_query_md(desc, dnnl_query_dst_md, 0),
    };
    const int weights = has_fast(device, LS_OP_CONV2D_BACKWARD_WEIGHTS, g, chosen) ? 4 : 0;
    const int data = has_fast(device, LS_OP_CONV2D_BACKWARD_DATA, g, chosen) ? 2 : 0;
    return FORWARD_ONLY + weights + data - rewrites;
}

// The descriptions of one activation worth trying: as it is fixed, and the other name of the same memory;
// or what the library likes, then plain. Returns their number, 0: not a layout of ours.
static int ways_to_say(const struct ls_tensor_desc *desc, dnnl_memory_desc_t out[2])
{
    if (!cpu_memory_desc(CPU_ACTIVATION, desc, 1, &out[0]))
        return 0;
    if (desc->layout.kind != LS_LAYOUT_ANY)
        return cpu_memory_desc_transposed(desc, &out[1]) ? 2 : 1;
    struct ls_tensor_desc plain = *desc;
    cpu_layout_plain(desc, &plain.layout);
    return cpu_memory_desc(CPU_ACTIVATION, &plain, 1, &out[1]) ? 2 : 1;
}

// Keeps the better of two primitive descriptors.
struct choice {
    dnnl_primitive_desc_t desc;
    int grade;
    bool rewrites;
};

static dnnl_status_t consider(struct ls_device *device, uint32_t op, const struct geometry *g,
                              const struct tensors *t, const_dnnl_primitive_attr_t attributes,
                              bool rewrites, struct choice *best)
{
    dnnl_primitive_desc_t desc = NULL;
    const dnnl_status_t status = make_desc(device, op, g, t, attributes, &desc);
    if (status != dnnl_success)
        return status;
    const int grade = judge(device, op, g, desc, rewrites);
    if (best->desc && grade <= best->grade) {
        dnnl_primitive_desc_destroy(desc);
        return dnnl_success;
    }
    if (best->desc)
        dnnl_primitive_desc_destroy(best->desc);
    *best = (struct choice){desc, grade, rewrites};
    return dnnl_success;
}

// Tries the ways to describe x and y, then an x to be rewritten, and keeps the best primitive.
static dnnl_status_t choose(struct ls_device *device, uint32_t op, const struct geometry *g,
                            const_dnnl_primitive_attr_t attributes, struct choice *best)
{
    dnnl_memory_desc_t x[2], y[2];
    struct tensors t;
    const int x_ways = ways_to_say(g->x, x), y_ways = ways_to_say(g->y, y);
    if (!x_ways || !y_ways || !cpu_memory_desc(CPU_KERNEL, g->w, g->groups, &t.w))
        return dnnl_unimplemented;
    dnnl_dims_t bias = {g->y->dims[3]};
    dnnl_memory_desc_init_by_tag(&t.b, 1, bias, dnnl_f32, dnnl_a);
    dnnl_status_t status = dnnl_unimplemented;
    for (int i = 0; i < x_ways * y_ways && best->grade < ALL_FAST; i++) {
        t.x = x[i / y_ways];
        t.y = y[i % y_ways];
        status = consider(device, op, g, &t, attributes, false, best);
    }
    const bool may_rewrite =
        op != LS_OP_CONV2D_BACKWARD_DATA && g->x->layout.kind == LS_LAYOUT_PLAIN;
    if (may_rewrite && best->grade < WITH_WEIGHTS) {
        t.y = y[0];
        dnnl_memory_desc_init_by_tag(&t.x, 4, x[0].dims, dnnl_f32, dnnl_nchw);
        status = consider(device, op, g, &t, attributes, true, best);
    }
    return best->desc ? dnnl_success : status;
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
    cpu_primitive_finish(&state->primitive);
    cpu_primitive_finish(&state->rewrite);
}

static int32_t run_convolution(struct ls_device *device, struct ls_kernel *kernel,
                               const struct ls_launch *launch)
{
    struct convolution *state = kernel->state;
    void *pointers[LS_MAX_ARGUMENTS];
    memcpy(pointers, launch->arguments,
           (kernel->input_count + kernel->output_count) * sizeof(pointers[0]));
    char *scratch = launch->scratch;
    dnnl_status_t status = dnnl_success;
    if (state->rewritten_bytes) {
        void *both[] = {pointers[0], scratch};
        pointers[0] = scratch;
        scratch += state->rewritten_bytes;
        status = cpu_primitive_execute(&state->rewrite, device, both, scratch);
    }
    if (status == dnnl_success)
        status = cpu_primitive_execute(&state->primitive, device, pointers, scratch);
    return status == dnnl_success ? LS_OK : cpu_fail_dnnl(device, "convolution", status);
}

// The pass that rewrites x.
static dnnl_status_t prepare_rewrite(struct ls_device *device, struct convolution *state,
                                     const struct geometry *g)
{
    dnnl_memory_desc_t from;
    const dnnl_memory_desc_t *to =
        dnnl_primitive_desc_query_md(state->primitive.desc, dnnl_query_src_md, 0);
    if (!cpu_memory_desc(CPU_ACTIVATION, g->x, 1, &from))
        return dnnl_unimplemented;
    state->rewritten_bytes =
        (dnnl_memory_desc_get_size(to) + LS_ALIGNMENT - 1) / LS_ALIGNMENT * LS_ALIGNMENT;
    return cpu_primitive_reorder(&state->rewrite, device, &from, to);
}

static int32_t prepare_convolution(struct ls_device *device,
                                   const struct ls_kernel_request *request,
                                   struct ls_kernel *kernel, struct ls_kernel_answer *answer,
                                   const struct geometry *g, dnnl_primitive_attr_t attributes)
{
    const uint32_t op = request->op;
    struct choice best = {.grade = -1};
    struct convolution *state = cpu_state(device, sizeof(*state));
    if (!state)
        return LS_OUT_OF_MEMORY;
    kernel->state = state;
    kernel->finish = finish_convolution;
    kernel->run = run_convolution;
    dnnl_status_t status = choose(device, op, g, attributes, &best);
    if (status == dnnl_unimplemented)
        return cpu_unsupported(device, request,
                               "oneDNN has no convolution for these shapes and layouts");
    if (status == dnnl_success)
        status = cpu_primitive_init(&state->primitive, best.desc);
    if (status == dnnl_success && best.rewrites)
        status = prepare_rewrite(device, state, g);
    if (status != dnnl_success)
        return cpu_fail_dnnl(device, "convolution", status);
    const_dnnl_primitive_desc_t desc = state->primitive.desc;
    answer->slow = is_slow(desc);
    answer->scratch_bytes = state->primitive.scratch_bytes > state->rewrite.scratch_bytes
                                ? state->primitive.scratch_bytes
                                : state->rewrite.scratch_bytes;
    answer->scratch_bytes += state->rewritten_bytes;
    snprintf(answer->implementation, sizeof(answer->implementation), "oneDNN %s%s",
             cpu_primitive_name(desc), best.rewrites ? " + reorder of x" : "");
    if (!fix_layout(CPU_ACTIVATION, g->x, 1,
                    dnnl_primitive_desc_query_md(desc, query_of(op, 'x'), 0)) ||
        !fix_layout(CPU_ACTIVATION, g->y, 1,
                    dnnl_primitive_desc_query_md(desc, query_of(op, 'y'), 0)) ||
        !fix_layout(CPU_KERNEL, g->w, g->groups,
                    dnnl_primitive_desc_query_md(desc, query_of(op, 'w'), 0)))
        return cpu_unsupported(device, request, "oneDNN chose a layout that is not blocked");
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
    struct cpu_primitive *primitive = &((struct convolution *)kernel->state)->primitive;
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < count && status == dnnl_success; i++)
        status = cpu_primitive_add(
            primitive, device, names[i].argument,
            dnnl_primitive_desc_query_md(primitive->desc, names[i].query, names[i].index));
    if (status == dnnl_success)
        status = cpu_primitive_add_scratch(primitive, device);
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
    const struct geometry g = geometry_of(kernel, 0, 1, request->input_count, bias);
    dnnl_primitive_attr_t attributes = cpu_primitive_attributes();
    if (!attributes)
        return cpu_out_of_memory(device);
    if (append_activation(attributes, &kernel->epilogue))
        kernel->epilogue.op = LS_OP_NONE;
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
                                const struct geometry *g, const struct named *names, int count)
{
    dnnl_primitive_attr_t attributes = cpu_primitive_attributes();
    if (!attributes)
        return cpu_out_of_memory(device);
    const int32_t status = prepare_convolution(device, request, kernel, answer, g, attributes);
    dnnl_primitive_attr_destroy(attributes);
    return status ? status : add_arguments(device, kernel, names, count);
}

// The epilogue's y, an input between w and dx, is not the primitive's.
static int32_t run_backward_data(struct ls_device *device, struct ls_kernel *kernel,
                                 const struct ls_launch *launch)
{
    struct convolution *state = kernel->state;
    void *const pointers[] = {launch->arguments[0], launch->arguments[1],
                              cpu_output(kernel, launch, 0)};
    const dnnl_status_t status =
        cpu_primitive_execute(&state->primitive, device, pointers, launch->scratch);
    return status == dnnl_success ? LS_OK : cpu_fail_dnnl(device, "convolution", status);
}

int32_t cpu_convolution_backward_data(struct ls_device *device,
                                      const struct ls_kernel_request *request,
                                      struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    static const struct named names[] = {{DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0},
                                         {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
                                         {DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0}};
    const struct geometry g = geometry_of(kernel, request->input_count, 1, 0, false);
    const int32_t status = prepare_backward(device, request, kernel, answer, &g, names, 3);
    kernel->run = run_backward_data;
    return status;
}

int32_t cpu_convolution_backward_weights(struct ls_device *device,
                                         const struct ls_kernel_request *request,
                                         struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    static const struct named names[] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0},
                                         {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0},
                                         {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md, 0},
                                         {DNNL_ARG_DIFF_BIAS, dnnl_query_diff_weights_md, 1}};
    const bool bias = request->output_count > 1;
    const struct geometry g = geometry_of(kernel, 0, 2, 1, bias);
    return prepare_backward(device, request, kernel, answer, &g, names, bias ? 4 : 3);
}
