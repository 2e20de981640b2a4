// SPDX-License-Identifier: Apache-2.0
// my-plugin: gradients travel as bfloat16: the upper half of each float, cut off.
#include "core/plugin/filter.h"

// The numbers of the local stages; the host passes them on to `run`.
enum { ENCODE, ADD };

static uint16_t to_half(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if ((bits & 0x7f800000) == 0x7f800000 && bits & 0x007fffff)
        bits |= 0x00400000; // a NaN stays one
    return (uint16_t)(bits >> 16);
}

static float from_half(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

// Writes the stages, the same ones on all ranks. Begin here: let fewer bytes travel, and let
// `lockstep plugin check` tell you whether all ranks still end with the same bits.
static int32_t plan(const struct ls_filter_call *call, struct ls_filter_stages *stages)
{
    const uint64_t bytes = call->world * ls_filter_part(call->count) * sizeof(uint16_t);
    stages->scratch(stages, bytes); // what all ranks give, one after the other
    stages->local(stages, ENCODE);
    stages->collective(stages, LS_ALL_GATHER, LS_U8, LS_SUM, 0, bytes);
    return stages->local(stages, ADD); // the host keeps the first failure of the calls above
}

static int32_t run(const struct ls_filter_call *call, const struct ls_filter_memory *memory,
                   uint32_t function)
{
    uint16_t *halves = (uint16_t *)(void *)memory->scratch;
    const uint64_t part = ls_filter_part(call->count);
    if (function == ENCODE) {
        uint16_t *own = halves + memory->rank * part;
        for (uint64_t i = 0; i < call->count; i++) {
            own[i] = to_half(memory->x[i]);
            memory->delivered[i] = from_half(own[i]); // the host adds the rest to the next gradient
        }
        return LS_OK;
    }
    for (uint64_t i = 0; i < call->count; i++) {
        float sum = 0;
        for (uint32_t rank = 0; rank < call->world; rank++) // in one order, so the same bits
            sum += from_half(halves[rank * part + i]);
        memory->result[i] = sum;
    }
    return LS_OK;
}

static const struct ls_filter_interface interface = {
    .struct_size = sizeof(struct ls_filter_interface),
    .plan = plan,
    .run = run,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_FILTER),
    .name = "my-plugin",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "gradients travel as the upper halves of their floats",
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
