// SPDX-License-Identifier: Apache-2.0
// The half types on this device, where an operation does not take them itself: the float32 kernel
// between conversions. Its inputs become float32 in scratch memory, its results are rounded once.
// That is right on every processor and slower than float32, which the plan of the steps says.
// Layouts of halves are then those of float32 with half the bytes. Casts alone are one pass.
#include "core/plugin/half.h"
#include "plugins/device/cpu/cpu.h"
#include "plugins/device/cpu/layout.h"

#include <stdatomic.h>
#include <string.h>

// ---- Conversions in memory order ----

struct cast {
    const struct cpu_half_loops *loops;
    uint32_t from_type, to_type;
    const char *from;
    char *to;
};

static void cast_part(void *context, int64_t begin, int64_t end)
{
    const struct cast *c = context;
    const char *from = c->from + (uint64_t)begin * ls_dtype_bytes(c->from_type);
    char *to = c->to + (uint64_t)begin * ls_dtype_bytes(c->to_type);
    float room[CPU_CHUNK];

    if (c->from_type == c->to_type) {
        memmove(to, from, (uint64_t)(end - begin) * ls_dtype_bytes(c->to_type));
    } else if (c->from_type == LS_F32) {
        c->loops->narrow(c->to_type, (const float *)(const void *)from, (uint16_t *)(void *)to,
                         end - begin);
    } else if (c->to_type == LS_F32) {
        c->loops->widen(c->from_type, (const uint16_t *)(const void *)from, (float *)(void *)to,
                        end - begin);
    } else {
        for (int64_t i = 0, n; i < end - begin; i += n) {
            n = end - begin - i < CPU_CHUNK ? end - begin - i : CPU_CHUNK;
            c->loops->widen(c->from_type, (const uint16_t *)(const void *)from + i, room, n);
            c->loops->narrow(c->to_type, room, (uint16_t *)(void *)to + i, n);
        }
    }
}

// From one half type to the other the elements of a thread go in order, so `to` may be `from`.
static void cast_all(struct ls_device *device, uint32_t from_type, const void *from,
                     uint32_t to_type, void *to, uint64_t count)
{
    struct cast c = {device->loops->half, from_type, to_type, from, to};
    if (from != to || from_type != to_type)
        cpu_parallel(device, (int64_t)count, CPU_CHUNK, (double)count * 0.15, cast_part, &c);
}

static int32_t run_cast(struct ls_device *device, struct ls_kernel *kernel,
                        const struct cpu_call *launch)
{
    const struct ls_tensor_desc *to = cpu_output_desc(kernel, 0);
    cast_all(device, kernel->arguments[0].dtype, launch->arguments[0], to->dtype,
             cpu_output(kernel, launch, 0), cpu_elements(to));
    return LS_OK;
}

// ---- The float32 kernel ----

struct halves {
    struct ls_kernel *inner;
    uint32_t used; // bit i: the inner kernel reads input i
    uint32_t added; // bit i: output i is added to
    uint64_t inner_scratch; // bytes, at the beginning of scratch; behind them the float32 values:
    uint64_t offsets[CPU_MAX_ARGUMENTS]; // of each argument that is a half
};

static void finish_halves(struct ls_kernel *kernel)
{
    struct halves *halves = kernel->state;
    if (halves)
        cpu_kernel_release(halves->inner);
}

static int32_t run_halves(struct ls_device *device, struct ls_kernel *kernel,
                          const struct cpu_call *launch)
{
    const struct halves *halves = kernel->state;
    const uint32_t count = kernel->input_count + kernel->output_count;
    struct ls_memory arguments[CPU_MAX_ARGUMENTS];
    const struct ls_launch inner = {.struct_size = sizeof(inner),
                                    .argument_count = count,
                                    .arguments = arguments,
                                    .scratch = ls_host_memory(launch->scratch),
                                    .record = ls_host_memory(launch->record)};

    for (uint32_t i = 0; i < count; i++) {
        const struct ls_tensor_desc *desc = &kernel->arguments[i];
        const bool read = i < kernel->input_count ? halves->used >> i & 1
                                                  : halves->added >> (i - kernel->input_count) & 1;
        arguments[i] = ls_host_memory(launch->arguments[i]);
        if (!ls_dtype_is_half(desc->dtype) || !launch->arguments[i])
            continue;
        arguments[i] = ls_host_memory((char *)launch->scratch + halves->offsets[i]);
        if (read)
            cast_all(device, desc->dtype, launch->arguments[i], LS_F32, ls_address(arguments[i]),
                     cpu_elements(desc));
    }
    const int32_t status = cpu_kernel_launch(device, halves->inner, &inner);
    for (uint32_t i = kernel->input_count; i < count && !status; i++) {
        const struct ls_tensor_desc *desc = &kernel->arguments[i];
        if (ls_dtype_is_half(desc->dtype) && launch->arguments[i])
            cast_all(device, LS_F32, ls_address(arguments[i]), desc->dtype, launch->arguments[i],
                     cpu_elements(desc));
    }
    return status;
}

// ---- Preparing ----

// The same tensor as float32.
static struct ls_tensor_desc widened(const struct ls_tensor_desc *desc)
{
    struct ls_tensor_desc wide = *desc;
    if (ls_dtype_is_half(desc->dtype)) {
        wide.dtype = LS_F32;
        wide.layout.bytes *= 2;
    }
    return wide;
}

static bool is_one_layout(const struct ls_tensor_desc *a, const struct ls_tensor_desc *b)
{
    const struct ls_tensor_desc first = widened(a), second = widened(b);
    return memcmp(&first.layout, &second.layout, sizeof(first.layout)) == 0;
}

// A cast between tensors that lie alike is a pass of its own.
static bool prepare_cast(struct ls_device *device, struct ls_kernel *kernel,
                         struct ls_kernel_answer *answer)
{
    struct ls_tensor_desc *from = &kernel->arguments[0], *to = cpu_output_desc(kernel, 0);
    if (from->layout.kind == LS_LAYOUT_ANY)
        cpu_layout_plain(from, &from->layout);
    if (to->layout.kind == LS_LAYOUT_ANY) {
        const struct ls_tensor_desc wide = widened(from);
        to->layout = wide.layout;
        if (ls_dtype_is_half(to->dtype))
            to->layout.bytes /= 2;
    }
    if (!is_one_layout(from, to))
        return false;
    kernel->run = run_cast;
    answer->in_place = ls_dtype_bytes(from->dtype) == ls_dtype_bytes(to->dtype);
    cpu_implementation(device, answer, "cast");
    return true;
}

// All inputs are read before the first result is written.
static bool may_replace(const struct ls_tensor_desc *x, const struct ls_tensor_desc *y)
{
    return ls_dtype_is_half(x->dtype) && ls_dtype_is_half(y->dtype) && x->ndims == y->ndims &&
           memcmp(x->dims, y->dims, x->ndims * sizeof(x->dims[0])) == 0 &&
           x->layout.bytes == y->layout.bytes;
}

static void take_answer(struct ls_kernel *kernel, const struct ls_kernel_answer *inner,
                        struct ls_kernel_answer *answer)
{
    struct halves *halves = kernel->state;
    uint64_t offset = cpu_aligned(inner->scratch_bytes);

    halves->inner = inner->kernel;
    halves->used = inner->used_inputs;
    halves->inner_scratch = inner->scratch_bytes;
    answer->used_inputs = inner->used_inputs;
    answer->saved_bytes = inner->saved_bytes;
    answer->slow = inner->slow;
    for (uint32_t i = 0; i < kernel->input_count + kernel->output_count; i++) {
        struct ls_tensor_desc *desc = &kernel->arguments[i];
        desc->layout = inner->layouts[i];
        if (!ls_dtype_is_half(desc->dtype))
            continue;
        desc->layout.bytes /= 2;
        halves->offsets[i] = offset;
        offset = cpu_aligned(offset + inner->layouts[i].bytes);
    }
    for (uint32_t i = 0; i < kernel->input_count; i++)
        if (may_replace(&kernel->arguments[i], cpu_output_desc(kernel, 0)))
            answer->in_place |= UINT32_C(1) << i;
    answer->scratch_bytes = offset;
    snprintf(answer->implementation, sizeof(answer->implementation), "%.40s on float32 copies",
             inner->implementation);
}

static const struct ls_kernel *inner_of(const struct ls_kernel *forward)
{
    return forward && forward->run == run_halves ? ((const struct halves *)forward->state)->inner
                                                 : forward;
}

// oneDNN's kernels for bfloat16 multiply by AVX512-BF16 or AMX, and AMX is among its sets with the
// former.
static bool multiplies(uint32_t dtype)
{
    const uint32_t unit = dnnl_cpu_isa_avx512_core_bf16;
    return dtype == LS_BF16 && ((uint32_t)dnnl_get_effective_cpu_isa() & unit) == unit;
}

void cpu_say_slow(struct ls_device *device, uint32_t dtype)
{
    static atomic_flag said[] = {ATOMIC_FLAG_INIT, ATOMIC_FLAG_INIT};
    if (multiplies(dtype) || atomic_flag_test_and_set(&said[dtype == LS_F16]))
        return;
    device->host->log(device->host, LS_LOG_INFO,
                      dtype == LS_F16
                          ? "products in float16 are computed in float32 between conversions, "
                            "slower than in float32"
                          : "this processor has no unit for bfloat16: mixed_bfloat16 is computed "
                            "in float32 between conversions, slower than float32");
}

int32_t cpu_halves(struct ls_device *device, const struct ls_kernel_request *request,
                   struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    struct ls_tensor_desc arguments[CPU_MAX_ARGUMENTS];
    struct ls_layout layouts[CPU_MAX_ARGUMENTS];
    struct ls_kernel_request wide = *request;
    struct ls_kernel_answer inner = {.struct_size = sizeof(inner), .layouts = layouts};

    if (request->op == LS_OP_CONVERT && prepare_cast(device, kernel, answer))
        return LS_OK;
    memset(layouts, 0, sizeof(layouts));
    for (uint32_t i = 0; i < kernel->input_count + kernel->output_count; i++)
        arguments[i] = widened(&kernel->arguments[i]);
    wide.arguments = arguments;
    wide.forward = inner_of(request->forward);
    struct halves *halves = kernel->state = cpu_state(device, sizeof(*halves));
    kernel->finish = finish_halves;
    kernel->run = run_halves;
    if (!halves)
        return LS_OUT_OF_MEMORY;
    halves->added = request->accumulate;
    // What the float32 kernel does, this one need not do again.
    kernel->accumulate = 0;
    kernel->epilogue = (struct cpu_epilogue){.op = LS_OP_NONE};
    const int32_t status = cpu_kernel_prepare(device, &wide, &inner);
    if (status)
        return status;
    take_answer(kernel, &inner, answer);
    return LS_OK;
}
