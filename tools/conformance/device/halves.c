// SPDX-License-Identifier: Apache-2.0
// The half types: cases of the other files in bfloat16 and float16, and the casts, for every value that a half has.
//
// A case in halves is one of float32 whose values were rounded to halves; the reference device runs it in float32, which says
// what is wanted before it is rounded. A result y may then be off by what the float32 case may, and by
//     u |y| + s / 2                  for its own rounding, u = 2^-8 (bfloat16) or 2^-11 (float16), s the least subnormal
//     u (|x| + |b|) |f'| + s / 2     where a bias b, an epilogue f or an addition follows x, for a rounding before that.
// The number of additions does not matter to these: sums are float32, with the tolerance of that. No more than
// one rounding is given: a device that added in halves, n terms, would be off by sqrt(n) u times a typical term and more.
#include "tools/conformance/device/suite.h"
#include "core/plugin/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// One case in so many runs with a half type; prime to the lengths of the lists that the cases are made of.
enum { ONE_IN = 5, ONE_FUSED_IN = 11 };

const char *ls_device_dtype_name(uint32_t dtype)
{
    return dtype == LS_BF16 ? "bfloat16" : dtype == LS_F16 ? "float16" : "float32";
}

double ls_device_rounding(uint32_t dtype, double value)
{
    switch (dtype) {
    case LS_BF16: return 0x1p-8 * value + 0x1p-134;
    case LS_F16: return 0x1p-11 * value + 0x1p-25;
    default: return 0;
    }
}

// The middle between the largest finite one and the next one if there were one.
double ls_device_overflow(uint32_t dtype)
{
    return dtype == LS_F16 ? 65520 : dtype == LS_BF16 ? 0x1.ffp127 : INFINITY;
}

// ---- Cases in halves ----

static bool follows(const struct ls_device_case *c, uint32_t argument)
{
    return c->request.arguments[argument].dtype == LS_F32 &&
           (c->roles[argument] == LS_DEVICE_ACTIVATION || c->roles[argument] == LS_DEVICE_WEIGHTS);
}

// The values of an argument as halves; and rounds the float32 ones to the same.
static void *narrow_values(float *values, uint64_t count, uint32_t dtype)
{
    uint16_t *halves = malloc(count * sizeof(*halves));
    for (uint64_t i = 0; halves && i < count; i++) {
        halves[i] = ls_half_of(dtype, values[i]);
        values[i] = ls_half_get(dtype, halves[i]);
    }
    return halves;
}

bool ls_device_takes_halves(const struct ls_device_suite *suite, uint32_t op)
{
    const struct ls_device_interface *d = suite->tested->interface;
    for (uint32_t i = 0; i < d->pattern_count; i++)
        if (d->patterns[i].producer == LS_OP_CONVERT && d->patterns[i].consumer == op)
            return true;
    return false;
}

// An argument becomes a half, but for those that are float32 beside halves. In order: the first one decides.
static void narrow_argument(const struct ls_device_suite *suite, struct ls_device_request *request,
                            uint32_t index, enum ls_device_role role)
{
    request->arguments[index].dtype = suite->dtype;
    const struct ls_kernel_request asked = ls_device_kernel_request(request);
    if (role != LS_DEVICE_ACTIVATION || !ls_device_takes_halves(suite, request->op))
        request->arguments[index].dtype = ls_argument_dtype(&asked, index);
}

static void narrow_forward(const struct ls_device_suite *suite, struct ls_device_case *out)
{
    struct ls_device_request *forward = &out->forward;
    for (uint32_t i = 0; i < forward->input_count + forward->output_count; i++)
        if (forward->arguments[i].dtype == LS_F32 &&
            (out->forward_roles[i] == LS_DEVICE_ACTIVATION ||
             out->forward_roles[i] == LS_DEVICE_WEIGHTS))
            narrow_argument(suite, forward, i, out->forward_roles[i]);
}

// Gradients of weights go now to halves, now to float32.
static bool keeps_outputs(const struct ls_device_case *c, uint32_t number)
{
    return number % 2 && (c->request.op == LS_OP_DENSE_BACKWARD_WEIGHTS ||
                          c->request.op == LS_OP_CONV2D_BACKWARD_WEIGHTS);
}

bool ls_device_case_narrow(struct ls_device_suite *suite, const struct ls_device_case *c,
                           struct ls_device_case *out)
{
    const bool fused = c->request.attributes.epilogue != LS_OP_NONE;
    const uint32_t number = suite->met[fused][c->request.op]++;
    const uint32_t one_in = fused ? ONE_FUSED_IN : ONE_IN;
    const bool keep = keeps_outputs(c, number / one_in);
    if (number % one_in != (suite->dtype == LS_F16 ? one_in / 2 : 0))
        return false;
    *out = *c;
    memset(out->values, 0, sizeof(out->values));
    out->draw_count = 0;
    snprintf(out->name, sizeof(out->name), "%s %.*s%s", ls_device_dtype_name(suite->dtype), 150,
             c->name, keep ? " into float32" : "");
    narrow_forward(suite, out);
    const uint32_t count =
        keep ? c->request.input_count : c->request.input_count + c->request.output_count;
    for (uint32_t i = 0; i < count; i++)
        if (follows(c, i))
            narrow_argument(suite, &out->request, i, c->roles[i]);
    return true;
}

bool ls_device_case_narrow_values(struct ls_device_case *c, struct ls_device_case *out)
{
    for (uint32_t i = 0; i < c->request.input_count + c->request.output_count; i++) {
        const struct ls_tensor_desc *desc = &c->request.arguments[i];
        const uint32_t dtype = out->request.arguments[i].dtype;
        if (!c->values[i])
            continue;
        out->values[i] = dtype != desc->dtype
                             ? narrow_values(c->values[i], ls_tensor_elements(desc), dtype)
                             : malloc(ls_device_plain_bytes(desc));
        if (!out->values[i])
            return false;
        if (dtype == desc->dtype)
            memcpy(out->values[i], c->values[i], ls_device_plain_bytes(desc));
    }
    return true;
}

// ---- Casts ----

struct cast {
    uint32_t from, to;
    uint64_t count;
    void *values, *wanted, *got;
};

static void cast_request(const struct cast *cast, struct ls_device_request *out)
{
    *out = (struct ls_device_request){.op = LS_OP_CONVERT, .input_count = 1, .output_count = 1};
    for (int i = 0; i < 2; i++) {
        struct ls_tensor_desc *desc = &out->arguments[i];
        *desc = LS_DEVICE_DESC(i ? cast->to : cast->from, (int64_t)cast->count);
        desc->layout = ls_device_plain_layout(desc);
    }
}

static double value_of(uint32_t dtype, const void *values, uint64_t i)
{
    return (double)(dtype == LS_F32 ? ((const float *)values)[i]
                                    : ls_half_get(dtype, ((const uint16_t *)values)[i]));
}

static void check_cast(struct ls_device_suite *suite, const struct cast *cast)
{
    const uint64_t bytes = ls_dtype_bytes(cast->to);
    for (uint64_t i = 0; i < cast->count; i++) {
        const double x = value_of(cast->from, cast->values, i);
        const double got = value_of(cast->to, cast->got, i);
        if (isnan(x) ? isnan(got)
                     : memcmp((char *)cast->got + i * bytes, (char *)cast->wanted + i * bytes,
                              bytes) == 0)
            continue;
        ls_device_suite_fail(suite, "%.9g becomes %.9g, not %.9g", x, got,
                             value_of(cast->to, cast->wanted, i));
        return;
    }
}

static void run_cast(struct ls_device_suite *suite, const struct cast *cast)
{
    struct ls_device_request request;
    struct ls_device_session session;
    cast_request(cast, &request);
    const int32_t status = ls_device_session_prepare(&session, suite, suite->tested, &request);
    if (status == LS_UNSUPPORTED)
        ls_device_suite_fail(suite, "refused: %s", suite->tested->message);
    else if (!status && ls_device_session_allocate(&session) &&
             ls_device_session_write(&session, 0, cast->values) &&
             ls_device_session_launch(&session) &&
             ls_device_session_read(&session, 1, &session.buffers[1], cast->got))
        check_cast(suite, cast);
    ls_device_session_close(&session);
}

static void cast_case(struct ls_device_suite *suite, struct cast *cast,
                      void (*fill)(struct cast *cast))
{
    char name[64];
    snprintf(name, sizeof(name), "convert %s to %s", ls_device_dtype_name(cast->from),
             ls_device_dtype_name(cast->to));
    if (!ls_device_suite_begin(suite, name))
        return;
    cast->values = malloc(cast->count * ls_dtype_bytes(cast->from));
    cast->wanted = malloc(cast->count * ls_dtype_bytes(cast->to));
    cast->got = malloc(cast->count * ls_dtype_bytes(cast->to));
    if (!cast->values || !cast->wanted || !cast->got) {
        ls_device_suite_fail(suite, "no host memory");
    } else {
        fill(cast);
        run_cast(suite, cast);
    }
    free(cast->values);
    free(cast->wanted);
    free(cast->got);
    ls_device_suite_end(suite, name, NULL);
}

enum { PATTERNS = 65536, SIGN = 0x8000 };

// What a half stands for, by the definition of IEEE 754 and of bfloat16.
static double meaning(uint32_t dtype, uint32_t half)
{
    const int bits = dtype == LS_F16 ? 10 : 7, bias = dtype == LS_F16 ? 15 : 127;
    const int exponent = (int)(half & ~SIGN) >> bits, most = dtype == LS_F16 ? 31 : 255;
    const int mantissa = (int)half & ((1 << bits) - 1);
    const double size = exponent == most ? (mantissa ? NAN : INFINITY)
                        : exponent       ? ldexp((1 << bits) + mantissa, exponent - bias - bits)
                                         : ldexp(mantissa, 1 - bias - bits);
    return half & SIGN ? -size : size;
}

static void fill_from_half(struct cast *cast)
{
    for (uint32_t i = 0; i < PATTERNS; i++) {
        ((uint16_t *)cast->values)[i] = (uint16_t)i;
        ((float *)cast->wanted)[i] = (float)meaning(cast->from, i);
    }
}

static void put(struct cast *cast, uint64_t i, double value, uint32_t half)
{
    ((float *)cast->values)[i] = (float)value;
    ((uint16_t *)cast->wanted)[i] = (uint16_t)half;
}

// Each half; the middle to the next one, which goes to the even of both; and the float32 values beside that middle.
static void fill_to_half(struct cast *cast)
{
    for (uint32_t i = 0; i < PATTERNS; i++) {
        const uint32_t size = i & ~(uint32_t)SIGN, sign = i & SIGN;
        const double here = fabs(meaning(cast->to, size)), next = meaning(cast->to, size + 1);
        const double middle = isfinite(next) ? (here + next) / 2 : ls_device_overflow(cast->to);
        const double side = sign ? -1 : 1;
        put(cast, 4 * (uint64_t)i, side * here, i);
        put(cast, 4 * (uint64_t)i + 1, side * middle, sign | (size & 1 ? size + 1 : size));
        put(cast, 4 * (uint64_t)i + 2, side * (double)nextafterf((float)middle, 0), i);
        put(cast, 4 * (uint64_t)i + 3, side * (double)nextafterf((float)middle, INFINITY),
            sign | (size + 1));
        for (uint64_t k = 0; k < 4 && !isfinite(here); k++)
            put(cast, 4 * (uint64_t)i + k, side * here, i);
    }
}

static void fill_between_halves(struct cast *cast)
{
    for (uint32_t i = 0; i < PATTERNS; i++) {
        ((uint16_t *)cast->values)[i] = (uint16_t)i;
        ((uint16_t *)cast->wanted)[i] = ls_half_of(cast->to, ls_half_get(cast->from, (uint16_t)i));
    }
}

// ---- All of it ----

// Whether the device has the type at all; its reason not to lies in suite->tested->message.
static bool offers(struct ls_device_suite *suite, uint32_t dtype)
{
    const struct cast cast = {.from = LS_F32, .to = dtype, .count = 4};
    struct ls_device_request request;
    struct ls_device_session session;
    cast_request(&cast, &request);
    const int32_t status = ls_device_session_prepare(&session, suite, suite->tested, &request);
    ls_device_session_close(&session);
    return status != LS_UNSUPPORTED;
}

static void run_in(struct ls_device_suite *suite, uint32_t dtype,
                   void (*run_groups)(struct ls_device_suite *suite))
{
    suite->dtype = dtype;
    memset(suite->met, 0, sizeof(suite->met));
    run_groups(suite);
    suite->dtype = 0;
}

// One case for the whole type: that it is not there, and is refused wherever it is asked for.
static void missing_case(struct ls_device_suite *suite, uint32_t dtype,
                         void (*run_groups)(struct ls_device_suite *suite))
{
    char reason[600];
    snprintf(reason, sizeof(reason), "not offered: %s", suite->tested->message);
    if (!ls_device_suite_begin(suite, ls_device_dtype_name(dtype)))
        return;
    suite->missing = true;
    run_in(suite, dtype, run_groups);
    suite->missing = false;
    ls_device_suite_end(suite, ls_device_dtype_name(dtype), reason);
}

void ls_device_half_cases(struct ls_device_suite *suite,
                          void (*run_groups)(struct ls_device_suite *suite))
{
    static const uint32_t types[] = {LS_BF16, LS_F16};
    for (size_t i = 0; i < 2; i++) {
        const uint32_t dtype = types[i], other = types[1 - i];
        if (!offers(suite, dtype)) {
            missing_case(suite, dtype, run_groups);
            continue;
        }
        cast_case(suite, &(struct cast){dtype, LS_F32, PATTERNS, 0, 0, 0}, fill_from_half);
        cast_case(suite, &(struct cast){LS_F32, dtype, 4 * PATTERNS, 0, 0, 0}, fill_to_half);
        if (offers(suite, other))
            cast_case(suite, &(struct cast){dtype, other, PATTERNS, 0, 0, 0}, fill_between_halves);
        run_in(suite, dtype, run_groups);
    }
}
