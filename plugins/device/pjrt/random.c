// SPDX-License-Identifier: Apache-2.0
// Dropout and noise, drawn as core/plugin/operations.h says: the same numbers on every device.
#include "plugins/device/pjrt/operations.h"

#include <math.h>

// ---- ls_mix64() ----

static struct hlo_value shifted(struct hlo *h, struct hlo_value z, double bits)
{
    return hlo_binary(h, "shift_right_logical", z, hlo_like(h, z, bits));
}

static struct hlo_value exclusive(struct hlo *h, struct hlo_value a, struct hlo_value b)
{
    return hlo_binary(h, "xor", a, b);
}

static struct hlo_value times(struct hlo *h, struct hlo_value z, uint64_t factor)
{
    return hlo_multiply(h, z, hlo_bits(h, z.type, z.shape, factor));
}

static struct hlo_value mix64(struct hlo *h, struct hlo_value a, struct hlo_value b)
{
    struct hlo_value z = hlo_add(h, a, times(h, hlo_plus(h, b, 1), UINT64_C(0x9e3779b97f4a7c15)));
    z = times(h, exclusive(h, z, shifted(h, z, 30)), UINT64_C(0xbf58476d1ce4e5b9));
    z = times(h, exclusive(h, z, shifted(h, z, 27)), UINT64_C(0x94d049bb133111eb));
    return exclusive(h, z, shifted(h, z, 31));
}

// ls_dropout_key() of each example: (B)
static struct hlo_value keys(struct pjrt_call *call, int64_t examples)
{
    struct hlo *h = call->h;
    const struct hlo_value layer =
        hlo_bits(h, HLO_U64, (struct hlo_shape){0}, call->attributes->key);
    const struct hlo_value step =
        mix64(h, PJRT_RECORD(call, seed, HLO_U64), PJRT_RECORD(call, step, HLO_U64));
    const struct hlo_value all = hlo_spread(h, mix64(h, step, layer), hlo_flat(examples));
    const struct hlo_value first =
        hlo_spread(h, PJRT_RECORD(call, example_offset, HLO_U64), hlo_flat(examples));
    return mix64(h, all, hlo_add(h, first, hlo_iota(h, HLO_U64, hlo_flat(examples), 0)));
}

// The key of its example for each element.
static struct hlo_value spread_keys(struct pjrt_call *call, struct hlo_shape shape)
{
    static const int64_t first = 0;
    return hlo_broadcast(call->h, keys(call, shape.dims[0]), shape, &first);
}

// ---- Dropout ----

struct hlo_value pjrt_kept(struct pjrt_call *call, struct hlo_value element)
{
    struct hlo *h = call->h;
    const struct hlo_value key = spread_keys(call, element.shape);
    const struct hlo_value low = hlo_convert(h, key, HLO_U32);
    const struct hlo_value high = hlo_convert(h, shifted(h, key, 32), HLO_U32);
    const double rate = (double)call->attributes->rate;
    struct hlo_value z = hlo_add(h, times(h, element, UINT32_C(0x9e3779b9)), low);
    z = times(h, exclusive(h, z, shifted(h, z, 16)), UINT32_C(0x85ebca6b));
    z = times(h, exclusive(h, exclusive(h, z, shifted(h, z, 13)), high), UINT32_C(0xc2b2ae35));
    z = exclusive(h, z, shifted(h, z, 16));
    const struct hlo_value u = hlo_scaled(h, hlo_convert(h, shifted(h, z, 8), LS_F32), 0x1p-24);
    return hlo_select(h, hlo_compare(h, "GE", u, hlo_like(h, u, rate)),
                      hlo_like(h, u, 1 / (1 - rate)), hlo_like(h, u, 0));
}

// The index within the example of each element, with shared dimensions left out.
static struct hlo_value drawn_elements(struct pjrt_call *call, struct hlo_shape shape)
{
    struct hlo *h = call->h;
    struct hlo_value at = hlo_constant(h, HLO_U32, shape, 0);
    int64_t stride = 1;
    for (uint32_t i = shape.ndims; i > 1; i--) {
        if (call->attributes->axes[i - 1])
            continue;
        at = hlo_add(h, at, times(h, hlo_iota(h, HLO_U32, shape, i - 1), (uint64_t)stride));
        stride *= shape.dims[i - 1];
    }
    return at;
}

void pjrt_dropout(struct pjrt_call *call)
{
    const struct hlo_value x = call->inputs[0];
    const struct hlo_value kept = pjrt_kept(call, drawn_elements(call, x.shape));
    // x / (1 - rate) where it is kept, else 0, also of what is not finite.
    const struct hlo_value none = hlo_like(call->h, x, 0);
    call->outputs[0] = hlo_select(call->h, hlo_compare(call->h, "GT", kept, none),
                                  hlo_multiply(call->h, x, kept), none);
}

// ---- Noise ----

void pjrt_noise(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value x = call->inputs[0];
    const int64_t examples = x.shape.dims[0], each = hlo_elements(&x.shape) / examples;
    const struct hlo_shape shape = HLO_SHAPE(examples, each);
    const struct hlo_value bits =
        mix64(h, spread_keys(call, shape), hlo_iota(h, HLO_U64, shape, 1));
    const struct hlo_value upper = hlo_convert(h, shifted(h, bits, 32), LS_F64);
    const struct hlo_value lower =
        hlo_convert(h, hlo_convert(h, hlo_convert(h, bits, HLO_U32), HLO_U64), LS_F64);
    const struct hlo_value u = hlo_scaled(h, hlo_plus(h, upper, 1), 0x1p-32);
    const struct hlo_value v = hlo_scaled(h, lower, 0x1p-32 * 6.283185307179586476925);
    const struct hlo_value radius = hlo_unary(h, "sqrt", hlo_scaled(h, hlo_unary(h, "log", u), -2));
    const struct hlo_value z = hlo_multiply(h, radius, hlo_unary(h, "cosine", v));
    const struct hlo_value noise =
        hlo_convert(h, hlo_scaled(h, z, (double)call->attributes->rate), LS_F32);
    call->outputs[0] = hlo_add(h, x, hlo_reshape(h, noise, x.shape));
}
