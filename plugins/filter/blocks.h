// SPDX-License-Identifier: Apache-2.0
// A filter that sends one byte an element: x is cut into blocks, and each block into a scale, a
// float, and a code of 8 bits for each element.
//
//   encode      each rank encodes what it gives, cut into one part for each rank
//   all-to-all  rank r gets part r of all
//   add         it decodes and adds them in the order of the ranks, and encodes the sum
//   all-gather  all get the sums
//   decode      of all parts; the own one, too, so that all ranks have the same bits
//
// A reduce-scatter ends with the sum, which is not encoded: half of the bytes, and one rounding.
// Its parts are those that the ranks need; where they are so unequal that blocks of the largest
// would be more bytes than to make all of the sum, all of it is made.
//
// Each element is rounded twice. What the first rounding leaves is still owed by the rank, and what
// the second one leaves by the rank that makes it (H. Tang et al., "DoubleSqueeze", 2019). Bytes
// that a rank sends: about 2 (world - 1) / world of the elements. To be included once by each
// plugin.
#ifndef LS_PLUGINS_FILTER_BLOCKS_H
#define LS_PLUGINS_FILTER_BLOCKS_H

#include "core/plugin/filter.h"

#include <float.h>
#include <math.h>

// Blocks whose values are all smaller are sent as zeros and stay owed: so nothing that is computed
// here is denormal, which some processors flush.
#define BLOCKS_SMALLEST 0x1p-80f
#define BLOCKS_MOST 65536 // elements of a block

// How a block is encoded.
struct block_code {
    // Returns the scale; NaN: a value is not finite, and so all become. `largest`: of the
    // magnitudes, at least BLOCKS_SMALLEST.
    float (*encode)(const struct block_code *code, float largest, const float *x, uint64_t count,
                    uint8_t *out);
    float values[256]; // that the codes stand for, to be multiplied by the scale
    float most; // the largest of them
    uint32_t mantissa, bias; // of a floating-point code
};

static int32_t blocks_open(const struct ls_host *host, struct block_code *out); // the plugin's

// Where what is encoded is: as many whole blocks for each part, the last ones perhaps empty.
struct blocks {
    uint64_t block; // elements of a block
    uint64_t part_blocks; // blocks of a part
    uint64_t part_bytes; // of an encoded part: its scales, then its codes
    uint32_t scatters; // parts are those of the call
};

static uint64_t blocks_for(uint64_t count, uint64_t each)
{
    return (count + each - 1) / each;
}

static struct blocks blocks_of(const struct ls_filter_call *call)
{
    const uint64_t block = (uint64_t)ls_host_number(call->host, "block");
    const uint64_t equal = blocks_for(blocks_for(call->count, block), call->world);
    const uint32_t may_scatter = call->operation == LS_REDUCE_SCATTER;
    uint64_t most = 0; // blocks of the largest part
    for (uint32_t rank = 0; may_scatter && rank < call->world; rank++) {
        const uint64_t own = blocks_for(call->parts[rank + 1] - call->parts[rank], block);
        most = own > most ? own : most;
    }
    const uint32_t scatters = may_scatter && most <= 2 * equal;
    const uint64_t each = scatters ? most : equal;
    return (struct blocks){block, each, ls_filter_part(each * (sizeof(float) + block)), scatters};
}

// The elements of x in a block; `count` of them.
static uint64_t blocks_first(const struct ls_filter_call *call, const struct blocks *blocks,
                             uint64_t part, uint64_t block, uint64_t *count)
{
    const uint64_t begin =
        blocks->scatters ? call->parts[part] : part * blocks->part_blocks * blocks->block;
    const uint64_t end = blocks->scatters ? call->parts[part + 1] : call->count;
    const uint64_t first = begin + block * blocks->block;
    const uint64_t left = first < end ? end - first : 0;
    *count = left < blocks->block ? left : blocks->block;
    return first;
}

static void encode_block(const struct block_code *code, const float *x, uint64_t count,
                         float *scale, uint8_t *out)
{
    float largest = 0;
    uint32_t finite = 1;
    for (uint64_t i = 0; i < count; i++) {
        const float magnitude = fabsf(x[i]);
        finite &= magnitude <= FLT_MAX;
        largest = magnitude > largest ? magnitude : largest;
    }
    memset(out, 0, count);
    *scale = finite ? 0 : NAN;
    if (finite && largest >= BLOCKS_SMALLEST)
        *scale = code->encode(code, largest, x, count, out);
}

static void decode_block(const struct block_code *code, float scale, const uint8_t *codes,
                         uint64_t count, float *out)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = code->values[codes[i]] * scale;
}

// The scales and codes of a part.
static float *part_scales(uint8_t *encoded, const struct blocks *blocks, uint64_t part)
{
    return (float *)(void *)(encoded + part * blocks->part_bytes);
}

static uint8_t *part_codes(uint8_t *encoded, const struct blocks *blocks, uint64_t part)
{
    return encoded + part * blocks->part_bytes + blocks->part_blocks * sizeof(float);
}

static void blocks_encode(const struct ls_filter_call *call, const struct blocks *blocks,
                          const struct block_code *code, const struct ls_filter_memory *memory)
{
    for (uint64_t part = 0; part < call->world; part++)
        for (uint64_t i = 0; i < blocks->part_blocks; i++) {
            uint64_t count;
            const uint64_t first = blocks_first(call, blocks, part, i, &count);
            float *scale = part_scales(memory->scratch, blocks, part) + i;
            uint8_t *codes = part_codes(memory->scratch, blocks, part) + i * blocks->block;
            *scale = 0;
            memset(codes, 0, blocks->block);
            if (!count)
                continue;
            encode_block(code, memory->x + first, count, scale, codes);
            decode_block(code, *scale, codes, count, memory->delivered + first);
        }
}

// Block `block` of the own part, of all ranks.
static void add_block(const struct ls_filter_call *call, const struct blocks *blocks,
                      const struct block_code *code, const struct ls_filter_memory *memory,
                      uint64_t block, uint64_t count, float *sum)
{
    for (uint64_t rank = 0; rank < call->world; rank++) {
        const float scale = part_scales(memory->scratch, blocks, rank)[block];
        const uint8_t *codes = part_codes(memory->scratch, blocks, rank) + block * blocks->block;
        for (uint64_t k = 0; k < count; k++) {
            const float value = code->values[codes[k]] * scale;
            sum[k] = rank ? sum[k] + value : value;
        }
    }
}

// Into the same part of what is gathered.
static void blocks_add(const struct ls_filter_call *call, const struct blocks *blocks,
                       const struct block_code *code, const struct ls_filter_memory *memory)
{
    uint8_t *sums = memory->scratch + call->world * blocks->part_bytes;
    float *sum = (float *)(void *)(sums + call->world * blocks->part_bytes);
    for (uint64_t i = 0; i < blocks->part_blocks; i++) {
        uint64_t count;
        const uint64_t first = blocks_first(call, blocks, memory->rank, i, &count);
        float *scale = part_scales(sums, blocks, memory->rank) + i;
        uint8_t *out = part_codes(sums, blocks, memory->rank) + i * blocks->block;
        *scale = 0;
        memset(out, 0, blocks->block);
        if (!count)
            continue;
        add_block(call, blocks, code, memory, i, count, sum);
        encode_block(code, sum, count, scale, out);
        for (uint64_t k = 0; k < count; k++) {
            const float decoded = code->values[out[k]] * *scale;
            memory->delivered[first + k] += decoded - sum[k];
        }
    }
}

// Of a reduce-scatter.
static void blocks_add_own(const struct ls_filter_call *call, const struct blocks *blocks,
                           const struct block_code *code, const struct ls_filter_memory *memory)
{
    for (uint64_t i = 0; i < blocks->part_blocks; i++) {
        uint64_t count;
        const uint64_t first = blocks_first(call, blocks, memory->rank, i, &count);
        if (count)
            add_block(call, blocks, code, memory, i, count, memory->result + first);
    }
}

static void blocks_decode(const struct ls_filter_call *call, const struct blocks *blocks,
                          const struct block_code *code, const struct ls_filter_memory *memory)
{
    uint8_t *sums = memory->scratch + call->world * blocks->part_bytes;
    for (uint64_t part = 0; part < call->world; part++)
        for (uint64_t i = 0; i < blocks->part_blocks; i++) {
            uint64_t count;
            const uint64_t first = blocks_first(call, blocks, part, i, &count);
            if (count)
                decode_block(code, part_scales(sums, blocks, part)[i],
                             part_codes(sums, blocks, part) + i * blocks->block, count,
                             memory->result + first);
        }
}

// ---- The calls of the table ----

enum { BLOCKS_ENCODE, BLOCKS_ADD, BLOCKS_ADD_OWN, BLOCKS_DECODE };

// Biases and factors of normalizations are few, and a model feels their rounding.
static uint32_t blocks_takes(const struct ls_host *host, const struct ls_filter_variable *variable)
{
    (void)host;
    return variable->ndims > 1;
}

static int32_t blocks_plan(const struct ls_filter_call *call, struct ls_filter_stages *stages)
{
    const double block = ls_host_number(call->host, "block");
    if (!(block >= 1 && block <= BLOCKS_MOST))
        return ls_host_fail(call->host, LS_USAGE, "block=%.0f: expected 1 to %d elements", block,
                            BLOCKS_MOST);
    const struct blocks blocks = blocks_of(call);
    const uint64_t bytes = call->world * blocks.part_bytes;
    stages->scratch(stages, blocks.scatters ? bytes : 2 * bytes + blocks.block * sizeof(float));
    stages->local(stages, BLOCKS_ENCODE);
    stages->collective(stages, LS_ALL_TO_ALL, LS_U8, LS_SUM, 0, bytes);
    if (blocks.scatters)
        return stages->local(stages, BLOCKS_ADD_OWN);
    stages->local(stages, BLOCKS_ADD);
    stages->collective(stages, LS_ALL_GATHER, LS_U8, LS_SUM, bytes, bytes);
    return stages->local(stages, BLOCKS_DECODE);
}

static int32_t blocks_run(const struct ls_filter_call *call, const struct ls_filter_memory *memory,
                          uint32_t function)
{
    const struct blocks blocks = blocks_of(call);
    struct block_code code = {0};
    const int32_t status = blocks_open(call->host, &code);
    if (status)
        return status;
    switch (function) {
    case BLOCKS_ENCODE: blocks_encode(call, &blocks, &code, memory); break;
    case BLOCKS_ADD: blocks_add(call, &blocks, &code, memory); break;
    case BLOCKS_ADD_OWN: blocks_add_own(call, &blocks, &code, memory); break;
    default: blocks_decode(call, &blocks, &code, memory); break;
    }
    return LS_OK;
}

static const struct ls_filter_interface blocks_interface = {
    .struct_size = sizeof(struct ls_filter_interface),
    .scatters = 1,
    .takes = blocks_takes,
    .plan = blocks_plan,
    .run = blocks_run,
};

#endif
