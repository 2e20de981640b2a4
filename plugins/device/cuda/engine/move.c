// SPDX-License-Identifier: Apache-2.0
// Operations that move elements (move.cuh): parts, transposition, concatenation, upsampling.
#include "plugins/device/cuda/engine/internal.h"

_Static_assert(CUDA_DIMS == LS_MAX_DIMS, "kernels.h has fewer dimensions");
_Static_assert(CUDA_PARTS == LS_CONCATENATE_INPUTS, "kernels.h has fewer parts");

enum { PACK = 4 }; // elements that are moved at once

// ---- Parts, transposition, and upsampling to the nearest: each element has one that it comes from ----

static int32_t run_move(struct ls_device *device, const struct ls_kernel *kernel,
                        const struct cuda_call *launch)
{
    struct cuda_move m = *(const struct cuda_move *)kernel->state;
    m.store = cuda_store_of(kernel, launch);
    m.from = launch->arguments[0];
    return cuda_start_move(device, &m);
}

// A dimension that is taken whole, and follows the one before it in both tensors, is one with that, so there is less to divide by.
static void add_dimension(struct cuda_move *m, int64_t out, int64_t in, int64_t shift, int64_t step)
{
    const int last = m->dims - 1;
    if (out == 1 && in == 1)
        return;
    if (m->dims && out == in && m->step[last] == in * step) {
        m->out[last] *= out;
        m->in[last] *= out;
        m->shift[last] *= out;
        m->step[last] = step;
        return;
    }
    m->out[m->dims] = out;
    m->in[m->dims] = in;
    m->shift[m->dims] = shift;
    m->step[m->dims] = step;
    m->dims++;
}

static void use_packs(struct cuda_move *m)
{
    const int last = m->dims - 1;
    if (last < 0 || m->step[last] != 1 || m->out[last] % PACK || m->in[last] % PACK ||
        m->shift[last] % PACK)
        return;
    for (int i = 0; i < last; i++)
        if (m->step[i] % PACK)
            return;
    m->pack = PACK;
    m->out[last] /= PACK;
    m->in[last] /= PACK;
    m->shift[last] /= PACK;
    for (int i = 0; i < last; i++)
        m->step[i] /= PACK;
}

// Tiles of the dimension that comes from the last one, and of that which becomes the last, where both fill a warp for the most part.
static void use_tiles(struct cuda_move *m)
{
    enum { LEAST = 16 };
    const int last = m->dims - 1;
    int turned = last;
    while (turned >= 0 && m->step[turned] != 1)
        turned--;
    if (turned < 0 || turned == last || m->out[turned] < LEAST || m->out[last] < LEAST)
        return;
    m->turned = turned;
    m->blocks = 1;
    for (int i = 0; i <= last; i++) {
        const bool tiled = i == turned || i == last;
        const int64_t side = tiled ? CUDA_TURNED_TILE : 1, tiles = (m->out[i] + side - 1) / side;
        if (tiled)
            m->tiles[i == last] = tiles;
        m->blocks *= tiles;
    }
}

static struct cuda_move *new_move(struct ls_device *device, struct ls_kernel *kernel)
{
    struct cuda_move *m = cuda_state(device, kernel, sizeof(*m));
    if (m) {
        m->type = cuda_type_of(cuda_input_desc(kernel, 0));
        m->pack = 1;
        m->turned = -1;
    }
    return m;
}

static int32_t use_move(struct ls_kernel *kernel, struct ls_kernel_answer *answer,
                        struct cuda_move *m)
{
    use_packs(m);
    m->items = cuda_elements(cuda_output_desc(kernel, 0)) / m->pack;
    return cuda_run_own(kernel, answer, run_move);
}

// How far the next element along each dimension is.
static void steps_of(const struct ls_tensor_desc *desc, int64_t *steps)
{
    int64_t step = 1;
    for (uint32_t i = desc->ndims; i-- > 0; step *= desc->dims[i])
        steps[i] = step;
}

int32_t cuda_prepare_part(struct ls_device *device, struct ls_kernel *kernel,
                          struct ls_kernel_answer *answer)
{
    const uint32_t op = kernel->request.op;
    const bool take = op == LS_OP_SLICE || op == LS_OP_PAD_BACKWARD;
    const struct ls_tensor_desc *in = cuda_input_desc(kernel, 0),
                                *out = cuda_output_desc(kernel, 0);
    const int32_t *begin = kernel->request.attributes.axes;
    int64_t steps[LS_MAX_DIMS];
    struct cuda_move *m = new_move(device, kernel);
    if (!m)
        return LS_OUT_OF_MEMORY;
    steps_of(in, steps);
    for (uint32_t i = 0; i < in->ndims; i++)
        add_dimension(m, out->dims[i], in->dims[i], take ? begin[i] : -begin[i], steps[i]);
    return use_move(kernel, answer, m);
}

int32_t cuda_prepare_transposition(struct ls_device *device, struct ls_kernel *kernel,
                                   struct ls_kernel_answer *answer)
{
    const bool forward = kernel->request.op == LS_OP_TRANSPOSE;
    const struct ls_tensor_desc *in = cuda_input_desc(kernel, 0);
    const int32_t *axes = kernel->request.attributes.axes;
    int64_t steps[LS_MAX_DIMS];
    int32_t of[LS_MAX_DIMS] = {0}; // which dimension of the input each of the output is
    for (int32_t i = 0; i < (int32_t)in->ndims; i++)
        of[forward ? i : axes[i]] = forward ? axes[i] : i;
    struct cuda_move *m = new_move(device, kernel);
    if (!m)
        return LS_OUT_OF_MEMORY;
    steps_of(in, steps);
    for (uint32_t i = 0; i < in->ndims; i++)
        add_dimension(m, in->dims[of[i]], in->dims[of[i]], 0, steps[of[i]]);
    use_tiles(m);
    return use_move(kernel, answer, m);
}

// ---- Concatenation ----

static int32_t run_concatenation(struct ls_device *device, const struct ls_kernel *kernel,
                                 const struct cuda_call *launch)
{
    const bool forward = kernel->request.op == LS_OP_CONCATENATE;
    const uint32_t inputs = kernel->request.input_count, outputs = kernel->request.output_count;
    struct cuda_concatenation c = *(const struct cuda_concatenation *)kernel->state;
    c.store = cuda_store_of(kernel, launch);
    c.whole = forward ? NULL : launch->arguments[0];
    c.add = kernel->request.accumulate;
    for (uint32_t k = 0; k < (forward ? inputs : outputs); k++)
        c.parts[k] = launch->arguments[forward ? k : inputs + k];
    return cuda_start_concatenation(device, &c);
}

int32_t cuda_prepare_concatenation(struct ls_device *device, struct ls_kernel *kernel,
                                   struct ls_kernel_answer *answer)
{
    const bool forward = kernel->request.op == LS_OP_CONCATENATE;
    const uint32_t count = forward ? kernel->request.input_count : kernel->request.output_count;
    const struct ls_tensor_desc *parts = &kernel->descs[forward ? 0 : 1];
    const struct ls_tensor_desc *whole = &kernel->descs[forward ? count : 0];
    struct cuda_concatenation *c = cuda_state(device, kernel, sizeof(*c));
    if (!c)
        return LS_OUT_OF_MEMORY;
    uint32_t axis = 0;
    while (axis + 1 < whole->ndims && !kernel->request.attributes.axes[axis])
        axis++;
    int64_t behind = 1; // elements of one place along the axis
    for (uint32_t i = axis + 1; i < whole->ndims; i++)
        behind *= whole->dims[i];
    c->pack = PACK;
    for (uint32_t k = 0; k < count; k++)
        if (parts[k].dims[axis] * behind % PACK)
            c->pack = 1;
    for (uint32_t k = 0; k < CUDA_PARTS; k++)
        c->start[k + 1] = c->start[k] + (k < count ? parts[k].dims[axis] * behind / c->pack : 0);
    c->items = cuda_elements(whole) / c->pack;
    return cuda_run_own(kernel, answer, run_concatenation);
}

// ---- Upsampling ----

static int32_t run_upsampling(struct ls_device *device, const struct ls_kernel *kernel,
                              const struct cuda_call *launch)
{
    struct cuda_upsampling u = *(const struct cuda_upsampling *)kernel->state;
    u.store = cuda_store_of(kernel, launch);
    u.from = launch->arguments[0];
    return cuda_start_upsampling(device, &u);
}

// To the nearest: y is (B, H, rows that are alike, W, columns that are alike, C).
static int32_t prepare_nearest(struct ls_device *device, struct ls_kernel *kernel,
                               struct ls_kernel_answer *answer)
{
    const int64_t *dims = cuda_input_desc(kernel, 0)->dims;
    const int32_t *factors = kernel->request.attributes.strides;
    struct cuda_move *m = new_move(device, kernel);
    if (!m)
        return LS_OUT_OF_MEMORY;
    add_dimension(m, dims[0] * dims[1], dims[0] * dims[1], 0, dims[2] * dims[3]);
    add_dimension(m, factors[0], factors[0], 0, 0);
    add_dimension(m, dims[2], dims[2], 0, dims[3]);
    add_dimension(m, factors[1], factors[1], 0, 0);
    add_dimension(m, dims[3], dims[3], 0, 1);
    return use_move(kernel, answer, m);
}

int32_t cuda_prepare_upsampling(struct ls_device *device, struct ls_kernel *kernel,
                                struct ls_kernel_answer *answer)
{
    const struct ls_op_attributes *attributes = &kernel->request.attributes;
    const bool backward = kernel->request.op == LS_OP_UPSAMPLE2D_BACKWARD;
    const struct ls_tensor_desc *y = cuda_output_desc(kernel, 0);
    const struct ls_tensor_desc *small = backward ? y : cuda_input_desc(kernel, 0);
    if (attributes->function > LS_UPSAMPLE_BILINEAR)
        return cuda_unsupported(device, kernel, "it does not know this interpolation");
    if (!backward && attributes->function == LS_UPSAMPLE_NEAREST)
        return prepare_nearest(device, kernel, answer);
    struct cuda_upsampling *u = cuda_state(device, kernel, sizeof(*u));
    if (!u)
        return LS_OUT_OF_MEMORY;
    u->type = cuda_type_of(y);
    u->backward = backward;
    u->bilinear = attributes->function == LS_UPSAMPLE_BILINEAR;
    u->pack = small->dims[3] % PACK ? 1 : PACK;
    u->rows = small->dims[1];
    u->columns = small->dims[2];
    u->channels = small->dims[3] / u->pack;
    u->factor[0] = attributes->strides[0];
    u->factor[1] = attributes->strides[1];
    u->items = cuda_elements(y) / u->pack;
    return cuda_run_own(kernel, answer, run_upsampling);
}
