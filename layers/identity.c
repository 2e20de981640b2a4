// SPDX-License-Identifier: Apache-2.0
// Identity: what comes in.
#include "layers/kinds.h"

static const char *const keys[] = {NULL};

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    (void)graph;
    if (call->inputs)
        *outputs = call->inputs[0];
    return LS_OK;
}

const struct ls_layer_kind ls_layer_identity = {
    .class_name = "Identity",
    .summary = "what comes in",
    .mask = LS_MASK_PASSES,
    .keys = keys,
    .build = build,
};
