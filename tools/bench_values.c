// SPDX-License-Identifier: Apache-2.0
// Small integers, so that no sum, product or mean is ever rounded, whatever the order of additions.
#include "tools/bench_values.h"

#include "core/plugin/collective.h"

#include <math.h>
#include <string.h>

#define PERIOD 8 // values of a sum are below it, if the sum of all ranks stays exact
#define EXACT 256 // the largest integer up to which bfloat16 has all
#define DOUBLERS 6 // ranks that contribute factors of two: products up to 64

static uint32_t period_of(const struct bench_call *call)
{
    const uint32_t most = EXACT / call->world;
    return most < 2 ? 2 : most > PERIOD ? PERIOD : most;
}

static double value_at(const struct bench_call *call, uint32_t rank, uint64_t index)
{
    const uint32_t period = period_of(call);
    switch (call->reduction) {
    case LS_PRODUCT: return rank < DOUBLERS && (index >> rank & 1) ? 2 : 1;
    case LS_MIN:
    case LS_MAX: return (double)((index * 3 + (uint64_t)rank * 7) % 101);
    // Of all ranks together a multiple of their number.
    case LS_MEAN:
        return (double)(index % (period - 1)) + (index % call->world == rank ? call->world : 0);
    default: return (double)((index + rank) % period);
    }
}

static double reduced_at(const struct bench_call *call, uint64_t index)
{
    double result = value_at(call, 0, index);
    for (uint32_t rank = 1; rank < call->world; rank++) {
        const double value = value_at(call, rank, index);
        switch (call->reduction) {
        case LS_PRODUCT: result *= value; break;
        case LS_MIN: result = fmin(result, value); break;
        case LS_MAX: result = fmax(result, value); break;
        default: result += value; break;
        }
    }
    return call->reduction == LS_MEAN ? result / call->world : result;
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

void bench_values_fill(const struct bench_call *call, uint32_t rank, void *data)
{
    for (uint64_t i = 0; i < call->count; i++)
        write_element(call->dtype, value_at(call, rank, i), data, i);
}

static uint64_t wrong_in(const struct bench_call *call, const void *data, struct ls_range range,
                         int64_t from)
{
    const uint64_t bytes = ls_dtype_bytes(call->dtype);
    uint64_t wrong = 0;
    for (uint64_t i = range.offset; i < range.offset + range.count; i++) {
        uint64_t wanted;
        write_element(call->dtype,
                      from < 0 ? reduced_at(call, i) : value_at(call, (uint32_t)from, i), &wanted,
                      0);
        wrong += memcmp((const char *)data + i * bytes, &wanted, bytes) != 0;
    }
    return wrong;
}

uint64_t bench_values_wrong(const struct bench_call *call, uint32_t rank, const void *data)
{
    const struct ls_range whole = ls_data_range(0, call->count);
    uint64_t wrong = 0;
    switch (call->operation) {
    case LS_REDUCE_SCATTER: return wrong_in(call, data, ls_part(whole, rank, call->world), -1);
    case LS_ALL_GATHER:
        for (uint32_t part = 0; part < call->world; part++)
            wrong += wrong_in(call, data, ls_part(whole, part, call->world), part);
        return wrong;
    case LS_BROADCAST: return wrong_in(call, data, whole, 0);
    case LS_REDUCE: return rank == 0 ? wrong_in(call, data, whole, -1) : 0;
    default: return wrong_in(call, data, whole, -1);
    }
}
