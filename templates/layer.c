// SPDX-License-Identifier: Apache-2.0
// my-plugin: root mean square normalization (Zhang and Sennrich 2019), x / sqrt(mean(x^2) + epsilon) gamma.
#include "core/plugin/layer.h"

// The keys of the layer's "config" in a model's file.
static const struct ls_plugin_option options[] = {
    {"epsilon", "number", "1e-6", "added to the mean of the squares"},
    {"gamma_initializer", "text", "ones", "first values of the factors"},
    {NULL, NULL, NULL, NULL},
};

// x: (B, ..., C) -> the same. A call that fails returns NULL, which the next ones pass on.
static int32_t build(const struct ls_host *host, const struct ls_composer *composer,
                     struct ls_tensor *const *inputs, uint32_t input_count,
                     struct ls_tensor **outputs)
{
    struct ls_tensor *x = inputs[0];
    struct ls_weight gamma = {.name = "gamma", .ndims = 1};
    (void)input_count; // 1
    gamma.dims[0] = ls_compose_channels(composer, x);
    gamma.initializer = host->option(host, "gamma_initializer");

    struct ls_tensor *square = composer->function(composer, "square", x);
    struct ls_tensor *mean =
        ls_compose_reduce(composer, LS_REDUCE_TO_MEAN, square, ls_compose_last(composer, x));
    struct ls_tensor *root = composer->function(
        composer, "sqrt", ls_compose_scale(composer, mean, 1, ls_host_number(host, "epsilon")));
    outputs[0] = ls_compose_multiply(composer, ls_compose_divide(composer, x, root),
                                     composer->weight(composer, &gamma));
    return LS_OK;
}

static const struct ls_layer_interface interface = {
    .struct_size = sizeof(struct ls_layer_interface),
    .build = build,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_LAYER),
    .name = "my-plugin",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "divides by the root mean square of the last dimension",
    .options = options,
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
