// SPDX-License-Identifier: Apache-2.0
// Activations of halves are plain, the layout of the library's kernels for AMX, and so are volumes,
// which are then pooled, normalized and reshaped as they are. Of images in float32, where a
// layout is free the library chooses; if its backward kernels would then be its slow reference code
// (as with SSE4.1), plain activations are tried, for which it multiplies matrices.
#include "plugins/device/cpu/convolution_choice.h"

#include "plugins/device/cpu/layout.h"
#include "plugins/device/cpu/primitive.h"

#include <string.h>

// The gradient of a bias is no part of it (channel_sums.h).
static dnnl_status_t describe(uint32_t op, const struct cpu_conv_geometry *g,
                              const struct cpu_conv_tensors *t, dnnl_convolution_desc_t *out)
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
        out, direct, &t->x, &t->w, NULL, &t->y, g->strides, g->dilation, g->before, g->after);
}

dnnl_status_t cpu_conv_make_desc(struct ls_device *device, uint32_t op,
                                 const struct cpu_conv_geometry *g,
                                 const struct cpu_conv_tensors *t,
                                 const_dnnl_primitive_attr_t attributes, dnnl_primitive_desc_t *out)
{
    dnnl_convolution_desc_t desc;
    const dnnl_status_t status = describe(op, g, t, &desc);
    return status != dnnl_success
               ? status
               : dnnl_primitive_desc_create(out, &desc, attributes, device->engine, NULL);
}

// Without AMX the library's kernels for halves are no faster than those for float32.
bool cpu_conv_is_slow(const struct cpu_conv_geometry *g, const_dnnl_primitive_desc_t desc)
{
    const uint32_t unit = dnnl_cpu_isa_avx512_core_amx;
    const char *name = cpu_primitive_name(desc);
    if (g->x->dtype != LS_F32 &&
        (((uint32_t)dnnl_get_effective_cpu_isa() & unit) != unit || strstr(name, "gemm") != NULL))
        return true;
    return strncmp(name, "ref", 3) == 0;
}

// Whether the library has a fast kernel for `op` with these tensors.
static bool has_fast(struct ls_device *device, uint32_t op, const struct cpu_conv_geometry *g,
                     struct cpu_conv_tensors t, bool any_w)
{
    dnnl_primitive_desc_t desc = NULL;
    if (any_w)
        dnnl_memory_desc_init_by_tag(&t.w, t.w.ndims, t.w.dims, t.w.data_type, dnnl_format_tag_any);
    if (cpu_conv_make_desc(device, op, g, &t, NULL, &desc) != dnnl_success)
        return false;
    const bool fast = !cpu_conv_is_slow(g, desc);
    dnnl_primitive_desc_destroy(desc);
    return fast;
}

// Grades of a choice over a whole step: a layout that suits forward alone makes backward slow. dw
// may be converted, which costs little; the gradient of x counts least, for the first layer has
// none.
enum {
    SLOW = 0,
    FORWARD = 4,
    WEIGHTS = 12,
    WEIGHTS_CONVERTED = 8,
    DATA = 2,
    ALL_FAST = FORWARD + WEIGHTS + DATA,
    PASS = 1, // off for each pass around the primitive
};

static int judge(struct ls_device *device, uint32_t op, const struct cpu_conv_geometry *g,
                 dnnl_primitive_desc_t desc)
{
    if (cpu_conv_is_slow(g, desc))
        return SLOW;
    if (op != LS_OP_CONV2D || g->x->dtype != LS_F32)
        return ALL_FAST;
    const struct cpu_conv_tensors chosen = {
        .x = *dnnl_primitive_desc_query_md(desc, dnnl_query_src_md, 0),
        .w = *dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 0),
        .b = *dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 1),
        .y = *dnnl_primitive_desc_query_md(desc, dnnl_query_dst_md, 0),
    };
    int grade = FORWARD;
    if (has_fast(device, LS_OP_CONV2D_BACKWARD_WEIGHTS, g, chosen, false))
        grade += WEIGHTS;
    else if (has_fast(device, LS_OP_CONV2D_BACKWARD_WEIGHTS, g, chosen, true))
        grade += WEIGHTS_CONVERTED;
    return grade + (has_fast(device, LS_OP_CONV2D_BACKWARD_DATA, g, chosen, true) ? DATA : 0);
}

// The descriptions of one activation worth trying: as it is fixed, and the other name of the same
// memory; or what the library likes, then plain; halves and volumes plain alone. Returns their
// number, 0: not a layout of ours.
static int ways_to_say(const struct ls_tensor_desc *desc, dnnl_memory_desc_t out[2])
{
    if (!cpu_memory_desc(CPU_ACTIVATION, desc, 1, &out[0]))
        return 0;
    if (desc->layout.kind != LS_LAYOUT_ANY)
        return cpu_memory_desc_transposed(desc, &out[1]) ? 2 : 1;
    struct ls_tensor_desc plain = *desc;
    cpu_layout_plain(desc, &plain.layout);
    if (desc->dtype != LS_F32 || desc->ndims != 4)
        return cpu_memory_desc(CPU_ACTIVATION, &plain, 1, &out[0]);
    return cpu_memory_desc(CPU_ACTIVATION, &plain, 1, &out[1]) ? 2 : 1;
}

static dnnl_status_t consider(struct ls_device *device, uint32_t op,
                              const struct cpu_conv_geometry *g, const struct cpu_conv_tensors *t,
                              const_dnnl_primitive_attr_t attributes,
                              struct cpu_conv_choice candidate, struct cpu_conv_choice *best)
{
    const dnnl_status_t status = cpu_conv_make_desc(device, op, g, t, attributes, &candidate.desc);
    if (status != dnnl_success)
        return status;
    candidate.grade = judge(device, op, g, candidate.desc);
    if (candidate.grade != SLOW)
        candidate.grade -= PASS * (candidate.rewrites_x + candidate.converts_w);
    struct cpu_conv_choice worse = candidate;
    if (!best->desc || candidate.grade > best->grade) {
        worse = *best;
        *best = candidate;
    }
    if (worse.desc)
        dnnl_primitive_desc_destroy(worse.desc);
    return dnnl_success;
}

// Tries the ways to describe x and y, with an x to be rewritten as the last of them, and for
// gradients of a w that is fixed also any other w.
dnnl_status_t cpu_conv_choose(struct ls_device *device, uint32_t op,
                              const struct cpu_conv_geometry *g,
                              const_dnnl_primitive_attr_t attributes, struct cpu_conv_choice *best)
{
    dnnl_memory_desc_t x[3], y[2], w[2];
    const bool rewrites = op != LS_OP_CONV2D_BACKWARD_DATA && g->x->dtype == LS_F32 &&
                          g->x->ndims == 4 && g->x->layout.kind == LS_LAYOUT_PLAIN;
    const bool converts = op == LS_OP_CONV2D_BACKWARD_WEIGHTS && g->w->layout.kind != LS_LAYOUT_ANY;
    const int x_ways = ways_to_say(g->x, x), y_ways = ways_to_say(g->y, y);
    if (!x_ways || !y_ways || !cpu_memory_desc(CPU_KERNEL, g->w, g->groups, &w[0]))
        return dnnl_unimplemented;
    if (rewrites)
        dnnl_memory_desc_init_by_tag(&x[x_ways], 4, x[0].dims, dnnl_f32, dnnl_nchw);
    dnnl_memory_desc_init_by_tag(&w[1], w[0].ndims, w[0].dims, w[0].data_type, dnnl_format_tag_any);
    struct cpu_conv_tensors t;
    dnnl_dims_t bias = {g->y->dims[g->y->ndims - 1]};
    dnnl_memory_desc_init_by_tag(&t.b, 1, bias, cpu_dnnl_type(g->x->dtype), dnnl_a);
    dnnl_status_t status = dnnl_unimplemented;
    for (int k = 0; k <= converts; k++)
        for (int i = 0; i < x_ways + rewrites; i++)
            for (int j = 0; j < y_ways && best->grade < ALL_FAST; j++) {
                const struct cpu_conv_choice candidate = {.rewrites_x = i == x_ways,
                                                          .converts_w = k == 1};
                t.x = x[i];
                t.y = y[j];
                t.w = w[k];
                status = consider(device, op, g, &t, attributes, candidate, best);
            }
    return best->desc ? dnnl_success : status;
}
