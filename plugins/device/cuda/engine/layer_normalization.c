// SPDX-License-Identifier: Apache-2.0
// Normalization of each example by itself, over the last dimension or over groups of channels, by own kernels (layer.cuh).
#include "plugins/device/cuda/engine/internal.h"

enum {
    PACK = 4, // channels that a thread has at once
    WARP_VALUES = 1024, // that a warp normalizes; more are for a block
    BLOCKS = 132 * 4, // that add parts of the gradients of gamma and beta
    TILE = 32, // threads of a block over the channels there
    ROWS = 8 * 4, // that a block has there, at least where there are as many
};

struct layer {
    struct cuda_layer arguments; // without what a launch brings
    uint64_t sums; // offset in the scratch memory
};

static int32_t run_forward(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct cuda_call *launch)
{
    const struct layer *state = kernel->state;
    const bool only_beta = kernel->request.attributes.only_beta != 0;
    const uint32_t inputs = kernel->request.input_count;
    struct cuda_layer n = state->arguments;
    n.store = cuda_store_of(kernel, launch);
    n.x = launch->arguments[0];
    n.gamma = inputs > 1 && !only_beta ? launch->arguments[1] : NULL;
    n.beta = only_beta ? launch->arguments[1] : inputs > 2 ? launch->arguments[2] : NULL;
    n.saved = kernel->request.output_count > 1 ? cuda_output(kernel, launch, 1) : NULL;
    return cuda_start_layer(device, cuda_layer_forward, &n);
}

// Where the gradient of a vector goes; output 0: there is none.
static struct cuda_store vector_store(const struct ls_kernel *kernel,
                                      const struct cuda_call *launch, uint32_t output)
{
    return (struct cuda_store){.out = output ? cuda_output(kernel, launch, output) : NULL,
                               .add = output ? cuda_accumulates(kernel, output) : 0};
}

static int32_t run_backward(struct ls_device *device, const struct ls_kernel *kernel,
                            const struct cuda_call *launch)
{
    const struct layer *state = kernel->state;
    const bool only_beta = kernel->request.attributes.only_beta != 0;
    const uint32_t outputs = kernel->request.output_count;
    struct cuda_layer n = state->arguments;
    n.store = cuda_store_of(kernel, launch);
    n.gamma_store = vector_store(kernel, launch, outputs > 1 && !only_beta ? 1 : 0);
    n.beta_store = vector_store(kernel, launch, only_beta ? 1 : outputs > 2 ? 2 : 0);
    n.dy = launch->arguments[0];
    n.x = launch->arguments[1];
    n.saved = launch->arguments[2];
    n.gamma = kernel->request.input_count > 3 && !only_beta ? launch->arguments[3] : NULL;
    n.sums = (float *)(void *)((char *)launch->scratch + state->sums);
    // The gradients of the vectors first: dx may be where dy or x is.
    int32_t status = LS_OK;
    if (outputs > 1)
        status = cuda_start_layer(device, cuda_layer_add_part, &n);
    if (!status && outputs > 1)
        status = cuda_start_layer(device, cuda_layer_add_parts, &n);
    return status ? status : cuda_start_layer(device, cuda_layer_backward, &n);
}

static void lay_out(struct cuda_layer *n, const struct ls_tensor_desc *x, int64_t groups)
{
    const int64_t channels = x->dims[x->ndims - 1];
    const int64_t rows = cuda_elements(x) / channels, examples = x->dims[0];
    n->channels = channels;
    n->groups = groups ? groups : 1;
    n->positions = groups ? rows / examples : 1;
    n->width = channels / n->groups;
    n->sets = groups ? examples * groups : rows;
    n->values = n->positions * n->width;
    n->pack = n->width % PACK ? 1 : PACK;
    n->wide = n->values > WARP_VALUES;
    const int64_t tiles = (channels / n->pack + TILE - 1) / TILE;
    const int64_t most = BLOCKS / tiles, useful = (rows + ROWS - 1) / ROWS;
    n->parts = useful < most ? useful : most;
    n->parts = n->parts > 0 ? n->parts : 1;
}

int32_t cuda_prepare_layer(struct ls_device *device, struct ls_kernel *kernel,
                           struct ls_kernel_answer *answer)
{
    const bool backward = kernel->request.op == LS_OP_LAYER_NORMALIZATION_BACKWARD;
    const struct ls_tensor_desc *x = cuda_input_desc(kernel, backward ? 1 : 0);
    struct layer *state = cuda_state(device, kernel, sizeof(*state));
    if (!state)
        return LS_OUT_OF_MEMORY;
    struct cuda_layer *n = &state->arguments;
    n->epsilon = kernel->request.attributes.epsilon;
    n->type = cuda_type_of(x);
    lay_out(n, x, kernel->request.attributes.groups);
    answer->in_place = backward ? 3 : 1;
    const uint64_t saved = (uint64_t)n->sets * 2 * sizeof(float);
    const uint32_t inputs = kernel->request.input_count;
    answer->saved_bytes = backward ? 0 : saved;
    if ((backward || kernel->request.output_count > 1) &&
        !cuda_layout_saved(&kernel->descs[backward ? 2 : inputs + 1], saved))
        return cuda_unsupported(device, kernel, "`saved` is not what forward leaves");
    if (backward && kernel->request.output_count > 1)
        state->sums = cuda_scratch(answer, (uint64_t)(n->parts * 2 * n->channels) * sizeof(float));
    return cuda_run_own(kernel, answer, backward ? run_backward : run_forward);
}
