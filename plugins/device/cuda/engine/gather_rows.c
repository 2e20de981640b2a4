// SPDX-License-Identifier: Apache-2.0
// Rows of a table by index, as an embedding reads them, and their gradient, by own kernels (gather.cuh).
#include "plugins/device/cuda/engine/internal.h"

enum {
    PACK = 4, // columns that a thread has at once
    ACROSS = 64, // threads of a block over the columns, at most
};

struct gather {
    struct cuda_gather arguments; // without what a launch brings
    uint64_t keys[2], starts; // offsets in the scratch memory
};

static int32_t run_gather(struct ls_device *device, const struct ls_kernel *kernel,
                          const struct cuda_call *launch)
{
    const struct gather *state = kernel->state;
    char *scratch = launch->scratch;
    struct cuda_gather g = state->arguments;
    g.store = cuda_store_of(kernel, launch);
    g.ids = launch->arguments[0];
    g.from = launch->arguments[1];
    if (kernel->request.op == LS_OP_GATHER_ROWS)
        return cuda_start_gather(device, cuda_gather_forward, &g);
    g.keys = (uint64_t *)(void *)(scratch + state->keys[0]);
    g.sorted = (uint64_t *)(void *)(scratch + state->keys[1]);
    g.starts = (int32_t *)(void *)(scratch + state->starts);
    int32_t status = cuda_start_gather(device, cuda_gather_sort, &g);
    for (g.run = CUDA_GATHER_TILE; !status && g.run < g.count; g.run *= 2) {
        uint64_t *sorted = g.sorted;
        g.sorted = g.keys;
        g.keys = sorted;
        status = cuda_start_gather(device, cuda_gather_merge, &g);
    }
    if (!status)
        status = cuda_start_gather(device, cuda_gather_find, &g);
    return status ? status : cuda_start_gather(device, cuda_gather_add, &g);
}

int32_t cuda_prepare_gather(struct ls_device *device, struct ls_kernel *kernel,
                            struct ls_kernel_answer *answer)
{
    const bool backward = kernel->request.op == LS_OP_GATHER_ROWS_BACKWARD;
    const struct ls_tensor_desc *ids = cuda_input_desc(kernel, 0);
    const struct ls_tensor_desc *table =
        backward ? cuda_output_desc(kernel, 0) : cuda_input_desc(kernel, 1);
    const int64_t count = cuda_elements(ids);
    if (count >= INT32_MAX || table->dims[0] >= INT32_MAX)
        return cuda_unsupported(device, kernel, "more indices or rows than 32 bits count");
    struct gather *state = cuda_state(device, kernel, sizeof(*state));
    if (!state)
        return LS_OUT_OF_MEMORY;
    const int64_t pack = table->dims[1] % PACK ? 1 : PACK, packs = table->dims[1] / pack;
    const int64_t across = packs < ACROSS ? packs : ACROSS;
    state->arguments = (struct cuda_gather){.type = cuda_type_of(cuda_input_desc(kernel, 1)),
                                            .float_ids = ids->dtype != LS_I32,
                                            .pack = (uint32_t)pack,
                                            .across = (int32_t)across,
                                            .tiles = (packs + across - 1) / across,
                                            .count = count,
                                            .rows = table->dims[0],
                                            .width = table->dims[1],
                                            .packs = packs};
    for (int i = 0; backward && i < 2; i++)
        state->keys[i] = cuda_scratch(answer, (uint64_t)count * sizeof(uint64_t));
    if (backward)
        state->starts = cuda_scratch(answer, (uint64_t)(table->dims[0] + 1) * sizeof(int32_t));
    return cuda_run_own(kernel, answer, run_gather);
}
