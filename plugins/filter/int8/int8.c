// SPDX-License-Identifier: Apache-2.0
// int8: gradients travel as whole numbers from -127 to 127, with a scale for each block.
#include "plugins/filter/blocks.h"

// Adding and taking away rounds to the nearest whole number, to even where there are two.
#define ROUNDING 0x1.8p23f

static float encode(const struct block_code *code, float largest, const float *x, uint64_t count,
                    uint8_t *out)
{
    const float scale = largest / code->most;
    for (uint64_t i = 0; i < count; i++) {
        const float rounded = x[i] / scale + ROUNDING;
        out[i] = (uint8_t)(int8_t)(rounded - ROUNDING);
    }
    return scale;
}

static int32_t blocks_open(const struct ls_host *host, struct block_code *out)
{
    (void)host;
    out->encode = encode;
    out->most = 127;
    for (int32_t i = 0; i < 256; i++)
        out->values[i] = (float)(i < 128 ? i : i - 256);
    return LS_OK;
}

static const struct ls_plugin_option options[] = {
    {"block", "integer", "256", "elements that share a scale"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_FILTER),
    .name = "int8",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "gradients travel in 8 bits: whole numbers, with a scale for each block",
    .options = options,
    .interface = &blocks_interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
