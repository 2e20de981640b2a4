// SPDX-License-Identifier: Apache-2.0
// The weight gradient where y has so few pixels that most taps of the kernel meet padding: at 2 x 2 pixels, more than
// half of the products of a 3 x 3 kernel. The library computes these too, and for some depthwise shapes it has only a
// grouped convolution of whole blocks, which is twenty times slower.
#include "plugins/device/cpu/convolution_choice.h"
#include "plugins/device/cpu/layout.h"

#include <string.h>

// Of the pixels of y and the taps of one direction, how many pairs lie inside x.
static int64_t pairs_inside(const struct cpu_taps *t, int d)
{
    int64_t count = 0;
    for (int64_t tap = 0; tap < t->kernel[d]; tap++)
        for (int64_t i = 0; i < t->y_size[d]; i++) {
            const int64_t at = i * t->strides[d] + tap * t->dilation[d] - t->before[d];
            count += at >= 0 && at < t->x_size[d];
        }
    return count;
}

static bool lies_as(enum cpu_role role, const struct ls_tensor_desc *desc, int32_t groups,
                    dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t is, expected;
    return desc->layout.kind == LS_LAYOUT_OWN && cpu_memory_desc(role, desc, groups, &is) &&
           dnnl_memory_desc_init_by_tag(&expected, is.ndims, is.dims, dnnl_f32, tag) ==
               dnnl_success &&
           dnnl_memory_desc_equal(&is, &expected);
}

// False: the tensor is neither plain, with whole blocks of channels, nor in such blocks.
static bool see(const struct ls_tensor_desc *desc, int64_t lanes, struct cpu_conv_side *out)
{
    const int64_t *d = desc->dims, pixels = d[1] * d[2], blocks = (d[3] + lanes - 1) / lanes;
    const bool plain = desc->layout.kind == LS_LAYOUT_PLAIN && d[3] % lanes == 0;
    *out = (struct cpu_conv_side){.pixels = pixels,
                                  .blocks = blocks,
                                  .pixel = plain ? d[3] : lanes,
                                  .block = plain ? lanes : pixels * lanes,
                                  .example = pixels * blocks * lanes};
    return plain || lies_as(CPU_ACTIVATION, desc, 1, lanes == 16 ? dnnl_nChw16c : dnnl_nChw8c);
}

// Where the layout is free, it becomes that.
static bool gradient_lies_in_blocks(struct ls_tensor_desc *dw, int32_t groups, int64_t lanes)
{
    const dnnl_format_tag_t tag = groups > 1 ? (lanes == 16 ? dnnl_Goihw16g : dnnl_Goihw8g)
                                             : (lanes == 16 ? dnnl_OIhw16i16o : dnnl_OIhw8i8o);
    dnnl_memory_desc_t free, blocks;
    if (dw->layout.kind == LS_LAYOUT_ANY && cpu_memory_desc(CPU_KERNEL, dw, groups, &free) &&
        dnnl_memory_desc_init_by_tag(&blocks, free.ndims, free.dims, dnnl_f32, tag) == dnnl_success)
        (void)!cpu_layout_of(CPU_KERNEL, dw, groups, &blocks, &dw->layout);
    return lies_as(CPU_KERNEL, dw, groups, tag);
}

bool cpu_conv_taps_fit(const struct ls_device *device, const struct cpu_conv_geometry *g,
                       struct cpu_conv_taps *out)
{
    const int64_t lanes = device->loops->convolution->lanes;
    const int64_t *x = g->x->dims, *y = g->y->dims;
    struct cpu_taps *t = &out->taps;
    if (g->x->ndims != 4)
        return false;
    *out = (struct cpu_conv_taps){.depthwise = g->groups > 1};
    for (int d = 0; d < 2; d++) {
        t->kernel[d] = g->w->dims[d];
        t->strides[d] = g->strides[d];
        t->dilation[d] = g->dilation[d] + 1;
        t->before[d] = g->before[d];
        t->x_size[d] = x[1 + d];
        t->y_size[d] = y[1 + d];
    }
    struct ls_tensor_desc dw = *g->w, dy = *g->y; // where it may lie as it likes, dy lies as x does
    if (dy.layout.kind == LS_LAYOUT_ANY && g->x->layout.kind != LS_LAYOUT_ANY)
        cpu_layout_like(&g->x->layout, &dy, &dy.layout);
    const int64_t inside = pairs_inside(t, 0) * pairs_inside(t, 1);
    if (2 * inside > t->kernel[0] * t->kernel[1] * y[1] * y[2] || (lanes != 16 && lanes != 8) ||
        (out->depthwise && (g->groups != x[3] || g->groups != y[3])) ||
        !gradient_lies_in_blocks(&dw, g->groups, lanes) || !see(g->x, lanes, &out->x) ||
        !see(&dy, lanes, &out->y))
        return false;
    g->w->layout = dw.layout;
    g->y->layout = dy.layout;
    t->examples = x[0];
    t->x_pixel = out->depthwise ? out->x.pixel : lanes; // packed, if not depthwise
    t->y_pixel = out->depthwise ? out->y.pixel : lanes;
    t->x_example = out->depthwise ? out->x.example : out->x.pixels * lanes;
    t->y_example = out->depthwise ? out->y.example : out->y.pixels * lanes;
    if (!out->depthwise) {
        out->x_bytes = cpu_aligned((uint64_t)(x[0] * out->x.example) * sizeof(float));
        out->scratch_bytes =
            out->x_bytes + cpu_aligned((uint64_t)(x[0] * out->y.example) * sizeof(float));
    }
    out->work = (double)(inside * x[0] * y[3] * (out->depthwise ? 1 : x[3])) / 60.0;
    return true;
}

// ---- running ----

// Blocks of a tensor, one after the other: as it lies, the pixels that are read together are a power of two apart and
// push each other out of the cache.
struct packing {
    const float *from;
    float *to;
    const struct cpu_conv_side *side;
    int64_t examples, lanes;
};

static void pack_blocks(void *context, int64_t begin, int64_t end)
{
    const struct packing *p = context;
    const struct cpu_conv_side *side = p->side;
    float *to = p->to + begin * p->examples * side->pixels * p->lanes;
    for (int64_t block = begin; block < end; block++)
        for (int64_t n = 0; n < p->examples; n++) {
            const float *from = p->from + block * side->block + n * side->example;
            for (int64_t i = 0; i < side->pixels; i++, to += p->lanes)
                memcpy(to, from + i * side->pixel, (size_t)p->lanes * sizeof(float));
        }
}

static void pack(const struct ls_device *device, const struct cpu_conv_side *side, int64_t examples,
                 const float *from, float *to)
{
    struct packing packing = {from, to, side, examples, device->loops->convolution->lanes};
    const double floats = (double)(side->blocks * examples * side->pixels * packing.lanes);
    cpu_parallel(device, side->blocks, 1, floats / 8.0, pack_blocks, &packing);
}

struct run {
    const struct cpu_conv_taps *taps;
    const struct cpu_convolution_loops *loops;
    const float *x, *dy;
    float *dw;
};

// Blocks of dw, those of x innermost.
static void run_blocks(void *context, int64_t begin, int64_t end)
{
    const struct run *run = context;
    const struct cpu_conv_taps *c = run->taps;
    const struct cpu_taps *t = &c->taps;
    const int64_t lanes = run->loops->lanes, dw_block = t->kernel[0] * t->kernel[1] * lanes * lanes;
    for (int64_t i = begin; i < end; i++)
        run->loops->weights(t, run->x + i % c->x.blocks * t->examples * t->x_example,
                            run->dy + i / c->x.blocks * t->examples * t->y_example,
                            run->dw + i * dw_block);
}

static void run_depthwise(void *context, int64_t begin, int64_t end)
{
    const struct run *run = context;
    const struct cpu_conv_taps *c = run->taps;
    const struct cpu_taps *t = &c->taps;
    for (int64_t i = begin; i < end; i++)
        run->loops->depthwise_weights(t, run->x + i * c->x.block, run->dy + i * c->y.block,
                                      run->dw +
                                          i * t->kernel[0] * t->kernel[1] * run->loops->lanes);
}

void cpu_conv_taps_run(const struct ls_device *device, const struct cpu_conv_taps *taps,
                       const float *x, const float *dy, float *dw, void *scratch)
{
    struct run run = {taps, device->loops->convolution, x, dy, dw};
    if (taps->depthwise) {
        cpu_parallel(device, taps->x.blocks, 1, taps->work, run_depthwise, &run);
        return;
    }
    float *packed_x = scratch, *packed_dy = (float *)cpu_past(scratch, taps->x_bytes);
    pack(device, &taps->x, taps->taps.examples, x, packed_x);
    pack(device, &taps->y, taps->taps.examples, dy, packed_dy);
    run.x = packed_x;
    run.dy = packed_dy;
    cpu_parallel(device, taps->x.blocks * taps->y.blocks, 1, taps->work, run_blocks, &run);
}
