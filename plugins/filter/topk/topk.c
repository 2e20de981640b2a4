// SPDX-License-Identifier: Apache-2.0
// topk: of each variable only the elements of the largest magnitude travel, with their places; what
// stays behind is added to the next gradient (A. F. Aji and K. Heafield, "Sparse communication for
// distributed gradient descent", 2017). Bytes that a rank sends: 8 (world - 1) for each of them.
#include "core/plugin/filter.h"

enum { SELECT, ADD };

struct pair {
    uint32_t place; // in x
    float value;
};

// Biases and factors of normalizations are too few to be worth their places.
static uint32_t takes(const struct ls_host *host, const struct ls_filter_variable *variable)
{
    (void)host;
    return variable->ndims > 1;
}

// At least one.
static uint64_t pairs_of(const struct ls_filter_call *call, uint32_t variable)
{
    const double fraction = ls_host_number(call->host, "fraction");
    const uint64_t count = call->variables[variable].count;
    const uint64_t pairs = (uint64_t)(fraction * (double)count);
    return pairs ? pairs : 1;
}

// Of a rank; in its part there is room for so many.
static uint64_t all_pairs(const struct ls_filter_call *call)
{
    uint64_t pairs = 0;
    for (uint32_t i = 0; i < call->variable_count; i++)
        pairs += pairs_of(call, i);
    return pairs;
}

static uint64_t part_bytes(const struct ls_filter_call *call)
{
    return ls_filter_part(all_pairs(call) * sizeof(struct pair));
}

static int32_t plan(const struct ls_filter_call *call, struct ls_filter_stages *stages)
{
    const double fraction = ls_host_number(call->host, "fraction");
    if (!(fraction > 0 && fraction <= 1))
        return ls_host_fail(call->host, LS_USAGE, "fraction=%g: expected more than 0, at most 1",
                            fraction);
    if (call->count > UINT32_MAX)
        return ls_host_fail(call->host, LS_UNSUPPORTED,
                            "a bucket of more than 2^32 elements; make buckets smaller");
    const uint64_t bytes = call->world * part_bytes(call);
    stages->scratch(stages, bytes);
    stages->local(stages, SELECT);
    stages->collective(stages, LS_ALL_GATHER, LS_U8, LS_SUM, 0, bytes);
    return stages->local(stages, ADD);
}

// The magnitude as a number that orders alike; NaN is above infinity.
static uint32_t key_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits & UINT32_C(0x7fffffff);
}

// The `wanted`-th largest key, and how many of the elements with just this key belong to it. Digit
// by digit from the top: 11, 10 and 10 bits.
static uint32_t find_least(const float *x, uint64_t count, uint64_t wanted, uint64_t *equal)
{
    static const uint32_t shifts[] = {20, 10, 0}, digits[] = {2048, 1024, 1024};
    uint32_t found = 0; // the digits so far
    for (int level = 0; level < 3; level++) {
        uint64_t counts[2048] = {0};
        const uint32_t shift = shifts[level], above = level ? shifts[level - 1] : 31;
        for (uint64_t i = 0; i < count; i++) {
            const uint32_t key = key_of(x[i]);
            if (key >> above == found >> above)
                counts[key >> shift & (digits[level] - 1)]++;
        }
        uint32_t digit = digits[level] - 1;
        for (; counts[digit] < wanted; digit--)
            wanted -= counts[digit];
        found |= digit << shift;
    }
    *equal = wanted;
    return found;
}

// Of equal magnitudes, those in front.
static struct pair *select_pairs(const float *x, const struct ls_filter_variable *variable,
                                 uint64_t wanted, float *delivered, struct pair *out)
{
    const float *own = x + variable->first;
    uint64_t equal = 0;
    const uint32_t least = find_least(own, variable->count, wanted, &equal);
    for (uint64_t i = 0; i < variable->count; i++) {
        const uint32_t key = key_of(own[i]);
        delivered[variable->first + i] = 0;
        if (key < least || (key == least && !equal))
            continue;
        equal -= key == least;
        *out++ = (struct pair){(uint32_t)(variable->first + i), own[i]};
        delivered[variable->first + i] = own[i];
    }
    return out;
}

static int32_t add(const struct ls_filter_call *call, const struct ls_filter_memory *memory)
{
    const uint64_t each = part_bytes(call) / sizeof(struct pair), count = all_pairs(call);
    memset(memory->result, 0, call->count * sizeof(float));
    for (uint32_t rank = 0; rank < call->world; rank++) {
        const struct pair *pairs = (const struct pair *)(const void *)memory->scratch + rank * each;
        for (uint64_t i = 0; i < count; i++) {
            if (pairs[i].place >= call->count)
                return ls_host_fail(call->host, LS_FAILED,
                                    "rank %u sent place %u of %llu: what carried it is wrong", rank,
                                    pairs[i].place, (unsigned long long)call->count);
            memory->result[pairs[i].place] += pairs[i].value;
        }
    }
    return LS_OK;
}

static int32_t run(const struct ls_filter_call *call, const struct ls_filter_memory *memory,
                   uint32_t function)
{
    struct pair *out = (struct pair *)(void *)(memory->scratch + memory->rank * part_bytes(call));
    if (function == ADD)
        return add(call, memory);
    for (uint32_t i = 0; i < call->variable_count; i++)
        out =
            select_pairs(memory->x, &call->variables[i], pairs_of(call, i), memory->delivered, out);
    return LS_OK;
}

static const struct ls_plugin_option options[] = {
    {"fraction", "number", "0.01", "of the elements of each variable that travel"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_filter_interface interface = {
    .struct_size = sizeof(struct ls_filter_interface),
    .takes = takes,
    .plan = plan,
    .run = run,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_FILTER),
    .name = "topk",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "only the largest gradients of each variable travel, with their places",
    .options = options,
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
