// SPDX-License-Identifier: Apache-2.0
// Categories by own kernels (categories.cuh): the bucket of a number, the value that a table has
// for it, ids as zeros and ones.
#include "plugins/device/cuda/engine/internal.h"

static uint32_t kernel_of(uint32_t op)
{
    switch (op) {
    case LS_OP_BUCKET: return cuda_categories_bucket;
    case LS_OP_LOOKUP: return cuda_categories_lookup;
    default: return cuda_categories_encode;
    }
}

static int32_t run_categories(struct ls_device *device, const struct ls_kernel *kernel,
                              const struct cuda_call *launch)
{
    struct cuda_categories c = *(const struct cuda_categories *)kernel->state;
    const bool integers = kernel->descs[0].dtype == LS_I32;
    c.store = cuda_store_of(kernel, launch);
    c.whole = integers ? launch->arguments[0] : NULL;
    c.floats = integers ? NULL : launch->arguments[0];
    c.table = kernel->request.op == LS_OP_ENCODE ? NULL : launch->arguments[1];
    return cuda_start_categories(device, kernel_of(kernel->request.op), &c);
}

int32_t cuda_prepare_categories(struct ls_device *device, struct ls_kernel *kernel,
                                struct ls_kernel_answer *answer)
{
    const struct ls_op_attributes *attributes = &kernel->request.attributes;
    const struct ls_tensor_desc *ids = cuda_input_desc(kernel, 0);
    const bool encode = kernel->request.op == LS_OP_ENCODE;
    const bool several = encode && attributes->function >= LS_ENCODE_MULTI_HOT;
    if (encode && attributes->function > LS_ENCODE_COUNTS)
        return cuda_unsupported(device, kernel, "it does not know this function");
    struct cuda_categories *c = cuda_state(device, kernel, sizeof(*c));
    if (!c)
        return LS_OUT_OF_MEMORY;
    *c = (struct cuda_categories){.items = cuda_elements(cuda_output_desc(kernel, 0)),
                                  .table_rows = encode ? 0 : cuda_input_desc(kernel, 1)->dims[0],
                                  .together = several ? ids->dims[1] : 1,
                                  .rest = 1,
                                  .function = attributes->function,
                                  .count = attributes->count,
                                  .offset = attributes->offset};
    if (several)
        c->rest = cuda_elements(ids) / (ids->dims[0] * ids->dims[1]);
    return cuda_run_own(kernel, answer, run_categories);
}
