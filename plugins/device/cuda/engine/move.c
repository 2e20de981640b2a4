// SPDX-License-Identifier: Apache-2.0
// Operations that move elements: a part of a tensor is taken, or put where the rest is 0.
#include "plugins/device/cuda/engine/internal.h"

_Static_assert(CUDA_DIMS == LS_MAX_DIMS, "kernels.h has fewer dimensions");

static int32_t run_shift(struct ls_device *device, const struct ls_kernel *kernel,
                         const struct cuda_call *launch)
{
    struct cuda_shift s = *(const struct cuda_shift *)kernel->state;
    s.store = cuda_store_of(kernel, launch);
    s.from = launch->arguments[0];
    return cuda_check(device, cuda_shift_launch(&s, kernel->items, device->stream),
                      "launching a kernel");
}

// Whether the part lies in the whole along each dimension.
static bool part_fits(const struct ls_tensor_desc *part, const struct ls_tensor_desc *whole,
                      const int32_t *begin)
{
    if (part->ndims != whole->ndims)
        return false;
    for (uint32_t i = 0; i < whole->ndims; i++)
        if (begin[i] < 0 || begin[i] + part->dims[i] > whole->dims[i])
            return false;
    return true;
}

// A dimension that is taken whole is one with the dimension before it, so there is less to divide by.
static void add_dimension(struct cuda_shift *s, int64_t out, int64_t in, int64_t shift)
{
    if (s->dims && out == in) {
        s->out[s->dims - 1] *= out;
        s->in[s->dims - 1] *= out;
        s->shift[s->dims - 1] *= out;
        return;
    }
    s->out[s->dims] = out;
    s->in[s->dims] = in;
    s->shift[s->dims] = shift;
    s->dims++;
}

static void use_packs(struct cuda_shift *s)
{
    enum { PACK = 4 };
    const int last = s->dims - 1;
    if (s->out[last] % PACK || s->in[last] % PACK || s->shift[last] % PACK)
        return;
    s->pack = PACK;
    s->out[last] /= PACK;
    s->in[last] /= PACK;
    s->shift[last] /= PACK;
}

int32_t cuda_prepare_part(struct ls_device *device, struct ls_kernel *kernel,
                          struct ls_kernel_answer *answer)
{
    const uint32_t op = kernel->request.op;
    const bool take = op == LS_OP_SLICE || op == LS_OP_PAD_BACKWARD;
    const struct ls_tensor_desc *in = cuda_input_desc(kernel, 0),
                                *out = cuda_output_desc(kernel, 0);
    const int32_t *begin = kernel->request.attributes.axes;
    if (!part_fits(take ? out : in, take ? in : out, begin))
        return cuda_unsupported(device, kernel, "the part is not in the whole");
    struct cuda_shift *s = cuda_state(device, kernel, sizeof(*s));
    if (!s)
        return LS_OUT_OF_MEMORY;
    s->type = cuda_type_of(in);
    s->pack = 1;
    for (uint32_t i = 0; i < in->ndims; i++)
        add_dimension(s, out->dims[i], in->dims[i], take ? begin[i] : -begin[i]);
    use_packs(s);
    kernel->items = (int64_t)ls_tensor_elements(out) / s->pack;
    kernel->run = run_shift;
    cuda_implementation(answer, "own");
    return LS_OK;
}
