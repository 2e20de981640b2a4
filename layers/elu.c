// SPDX-License-Identifier: Apache-2.0
// ELU: x above 0, alpha (exp(x) - 1) below.
#include "layers/kinds.h"

#include <float.h>

static const char *const keys[] = {"alpha", NULL};

struct ls_layer_activation ls_read_elu(struct ls_config *config)
{
    // The derivative is expressed through the output, which a negative alpha would make ambiguous.
    const double alpha = ls_config_number(config, "alpha", 0, FLT_MAX, 1);

    if ((float)alpha > 0)
        return (struct ls_layer_activation){.function = LS_ELU, .alpha = (float)alpha};
    return (struct ls_layer_activation){.function = LS_RELU};
}

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    return ls_build_activation(graph, call, ls_read_elu, outputs);
}

const struct ls_layer_kind ls_layer_elu = {
    .class_name = "ELU",
    .summary = "x above 0, alpha (exp(x) - 1) below",
    .keys = keys,
    .build = build,
};
