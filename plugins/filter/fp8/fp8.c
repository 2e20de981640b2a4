// SPDX-License-Identifier: Apache-2.0
// fp8: gradients travel as floating-point numbers of 8 bits, with a scale for each block, so that
// its largest value becomes the largest number. e4m3: 3 bits of mantissa, to 448; e5m2: 2 bits, to
// 57344 (P. Micikevicius et al., "FP8 formats for deep learning", 2022).
#include "plugins/filter/blocks.h"

#define ROUNDING 0x1.8p23f // adding and taking away rounds to whole numbers, to even

static float power_of_two(int32_t exponent)
{
    const uint32_t bits = (uint32_t)(exponent + 127) << 23;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

// The code of the number nearest to `value`, which is not negative; of two, the even one.
static uint8_t round_value(const struct block_code *code, float value)
{
    const uint32_t cut = 23 - code->mantissa;
    const float normal = power_of_two(1 - (int32_t)code->bias);
    uint32_t bits;
    if (value < normal) // whole multiples of the least number
        return (uint8_t)(value * power_of_two((int32_t)(code->bias + code->mantissa) - 1) +
                         ROUNDING - ROUNDING);
    memcpy(&bits, &value, sizeof(bits));
    bits += (UINT32_C(1) << (cut - 1)) - 1 + (bits >> cut & 1);
    return (uint8_t)((bits >> cut) - ((127 - code->bias) << code->mantissa));
}

static float encode(const struct block_code *code, float largest, const float *x, uint64_t count,
                    uint8_t *out)
{
    const float scale = largest / code->most;
    const uint8_t most = round_value(code, code->most);
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t rounded = round_value(code, fabsf(x[i]) / scale);
        out[i] = (uint8_t)((rounded < most ? rounded : most) | (signbit(x[i]) ? 0x80 : 0));
    }
    return scale;
}

static float value_of(const struct block_code *code, uint32_t number)
{
    const uint32_t exponent = number >> code->mantissa;
    const uint32_t rest = number & ((UINT32_C(1) << code->mantissa) - 1);
    const uint32_t whole = exponent ? rest + (UINT32_C(1) << code->mantissa) : rest;
    return (float)whole * power_of_two((int32_t)(exponent ? exponent : 1) - (int32_t)code->bias -
                                       (int32_t)code->mantissa);
}

static int32_t blocks_open(const struct ls_host *host, struct block_code *out)
{
    const char *format = host->option(host, "format");
    const int e4m3 = format && !strcmp(format, "e4m3");
    out->encode = encode;
    out->mantissa = e4m3 ? 3 : 2;
    out->bias = e4m3 ? 7 : 15;
    out->most = e4m3 ? 448 : 57344;
    for (uint32_t i = 0; i < 128; i++) {
        out->values[i] = value_of(out, i);
        out->values[i + 128] = -out->values[i];
    }
    return LS_OK;
}

static const struct ls_plugin_option options[] = {
    {"format", "one of: e4m3, e5m2", "e4m3", "bits of exponent and mantissa"},
    {"block", "integer", "256", "elements that share a scale"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_FILTER),
    .name = "fp8",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "gradients travel in 8 bits: floating point, with a scale for each block",
    .options = options,
    .interface = &blocks_interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
