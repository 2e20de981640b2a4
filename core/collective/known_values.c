// SPDX-License-Identifier: Apache-2.0
// Integers so small that no sum, product or mean is ever rounded, whatever the order of additions.
#include "core/collective/known_values.h"

#include "core/plugin/collective.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define DOUBLERS 6 // ranks that contribute factors of two: products up to 64
#define EXTREMES 101 // values of minima and maxima are below

// How the values of one call are made. In a sum, the value of a rank at an element is a base, below `bases`, that depends
// on the element alone, plus a number below `turns` that counts up from rank to rank, from another start at each element.
struct recipe {
    const struct ls_known_call *call;
    uint64_t bases, turns;
};

// The largest integer up to which the type has all.
static uint64_t exact_of(uint32_t dtype)
{
    switch (dtype) {
    case LS_F32:
    case LS_I32: return UINT64_C(1) << 24;
    case LS_F64:
    case LS_I64: return UINT64_C(1) << 40;
    case LS_F16: return UINT64_C(1) << 11;
    default: return UINT64_C(1) << 8;
    }
}

// Half of what is exact is for the turns at most, the rest for the bases.
static struct recipe recipe_of(const struct ls_known_call *call)
{
    const uint64_t each = exact_of(call->wire ? call->wire : call->dtype) / call->world;
    struct recipe recipe = {.call = call, .bases = 1, .turns = each / 2 + 1};
    if (recipe.turns > call->world)
        recipe.turns = call->world;
    if (recipe.turns < 2)
        recipe.turns = 2;
    if (call->reduction == LS_MEAN)
        recipe.turns = 2; // see value_at
    if (each > recipe.turns)
        recipe.bases = each - recipe.turns + 1;
    return recipe;
}

// Numbers without a pattern: a chunk at another place is seen.
static uint64_t spread(uint64_t index)
{
    index = (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    index = (index ^ index >> 31) * UINT64_C(0xd6e8feb86659fd93);
    return index ^ index >> 32;
}

static double value_at(const struct recipe *recipe, uint32_t rank, uint64_t index)
{
    const uint64_t number = spread(index), world = recipe->call->world;
    const uint64_t base = (number & UINT32_MAX) % recipe->bases, start = number >> 32;
    switch (recipe->call->reduction) {
    case LS_PRODUCT: return rank < DOUBLERS && (number >> rank & 1) ? 2 : 1;
    case LS_MIN:
    case LS_MAX: return (double)((number + (uint64_t)rank * 7) % EXTREMES);
    // Of all ranks together a multiple of their number.
    case LS_MEAN: return (double)(base + (start % world == rank ? world : 0));
    default: return (double)(base + (start + rank) % recipe->turns);
    }
}

// The ranks take whole rows of turns, and the rest of one.
static double sum_at(const struct recipe *recipe, uint64_t index)
{
    const uint64_t world = recipe->call->world, turns = recipe->turns, number = spread(index);
    uint64_t sum = (number & UINT32_MAX) % recipe->bases * world;
    sum += world / turns * (turns * (turns - 1) / 2);
    for (uint64_t rank = world / turns * turns; rank < world; rank++)
        sum += ((number >> 32) + rank) % turns;
    return (double)sum;
}

static double reduced_at(const struct recipe *recipe, uint64_t index)
{
    const struct ls_known_call *call = recipe->call;
    if (call->reduction == LS_SUM)
        return sum_at(recipe, index);
    if (call->reduction == LS_MEAN)
        return (double)((spread(index) & UINT32_MAX) % recipe->bases + 1);
    double result = value_at(recipe, 0, index);
    for (uint32_t rank = 1; rank < call->world; rank++) {
        const double value = value_at(recipe, rank, index);
        result = call->reduction == LS_PRODUCT ? result * value
                 : call->reduction == LS_MIN   ? fmin(result, value)
                                               : fmax(result, value);
    }
    return result;
}

// ---- Elements ----

static uint16_t half_of(double value)
{
    if (value == 0)
        return 0;
    int exponent;
    const double fraction = frexp(value, &exponent); // [0.5, 1)
    return (uint16_t)((exponent + 14) << 10 | ((int)ldexp(fraction, 11) & 0x3ff));
}

static void write_element(uint32_t dtype, double value, void *data, uint64_t index)
{
    const float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof(bits));
    switch (dtype) {
    case LS_F32: ((float *)data)[index] = single; break;
    case LS_F64: ((double *)data)[index] = value; break;
    case LS_F16: ((uint16_t *)data)[index] = half_of(value); break;
    case LS_BF16: ((uint16_t *)data)[index] = (uint16_t)(bits >> 16); break;
    case LS_I32: ((int32_t *)data)[index] = (int32_t)value; break;
    case LS_I64: ((int64_t *)data)[index] = (int64_t)value; break;
    default: ((uint8_t *)data)[index] = (uint8_t)((uint32_t)value & 0xff); break;
    }
}

void ls_known_values_fill(const struct ls_known_call *call, uint32_t rank, void *data)
{
    const struct recipe recipe = recipe_of(call);
    for (uint64_t i = 0; i < call->count; i++)
        write_element(call->dtype, value_at(&recipe, rank, i), data, i);
}

// `from`: the rank whose elements are expected, `shift` further on; -1: the reduction.
static uint64_t wrong_in(const struct recipe *recipe, const void *data, struct ls_range range,
                         int64_t from, uint64_t shift, uint64_t *first)
{
    const uint32_t dtype = recipe->call->dtype;
    const uint64_t bytes = ls_dtype_bytes(dtype);
    uint64_t wrong = 0;
    for (uint64_t i = range.offset; i < range.offset + range.count; i++) {
        uint64_t expected = 0;
        write_element(
            dtype, from < 0 ? reduced_at(recipe, i) : value_at(recipe, (uint32_t)from, i + shift),
            &expected, 0);
        if (memcmp((const char *)data + i * bytes, &expected, bytes) == 0)
            continue;
        if (first && (!wrong || i < *first))
            *first = i;
        wrong++;
    }
    return wrong;
}

uint64_t ls_known_values_wrong(const struct ls_known_call *call, uint32_t rank, const void *data,
                               uint64_t *first)
{
    const struct recipe recipe = recipe_of(call);
    const struct ls_range whole = ls_data_range(0, call->count);
    const uint64_t each = call->count / call->world;
    const bool all_to_all = call->operation == LS_ALL_TO_ALL;
    uint64_t wrong = 0;
    switch (call->operation) {
    case LS_REDUCE_SCATTER:
        return wrong_in(&recipe, data, ls_part(whole, rank, call->world), -1, 0, first);
    case LS_ALL_GATHER:
    case LS_ALL_TO_ALL:
        for (uint32_t part = 0; part < call->world; part++) {
            const struct ls_range range =
                all_to_all ? ls_data_range(part * each, each) : ls_part(whole, part, call->world);
            const uint64_t shift = all_to_all ? rank * each - range.offset : 0;
            uint64_t at = 0;
            const uint64_t more = wrong_in(&recipe, data, range, part, shift, &at);
            if (first && more && !wrong)
                *first = at;
            wrong += more;
        }
        return wrong;
    case LS_BROADCAST: return wrong_in(&recipe, data, whole, call->root, 0, first);
    case LS_REDUCE: return rank == call->root ? wrong_in(&recipe, data, whole, -1, 0, first) : 0;
    default: return wrong_in(&recipe, data, whole, -1, 0, first);
    }
}

uint64_t ls_known_values_checked(const struct ls_known_call *call)
{
    const bool once = call->operation == LS_REDUCE_SCATTER || call->operation == LS_REDUCE;
    return once ? call->count : call->count * call->world;
}
