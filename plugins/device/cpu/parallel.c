// SPDX-License-Identifier: Apache-2.0
// Splits loops over the device's threads, in the OpenMP pool that oneDNN uses, and chooses the
// loops for this processor.
#include "plugins/device/cpu/cpu.h"

#include <omp.h>

// A fork and join costs one or two microseconds; below this much work it does not pay.
static const double worth_ns = 4000.0;

bool cpu_worth_threads(const struct ls_device *device, double work)
{
    return device->threads > 1 && work >= worth_ns;
}

void cpu_parallel(const struct ls_device *device, int64_t count, int64_t grain, double work,
                  cpu_body *body, void *context)
{
    const int64_t grains = (count + grain - 1) / grain;
    if (!cpu_worth_threads(device, work) || grains < 2) {
        body(context, 0, count);
        return;
    }
#pragma omp parallel num_threads((int)device->threads)
    {
        const int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
        const int64_t begin = grains * me / threads * grain,
                      end = grains * (me + 1) / threads * grain;
        if (begin < end)
            body(context, begin, end < count ? end : count);
    }
}

#define LOOPS(isa)                                                                            \
    {                                                                                         \
        .name = #isa, .elementwise = &cpu_elementwise_##isa, .function = &cpu_function_##isa, \
        .pair = &cpu_pair_##isa, .loss = &cpu_loss_##isa,                                     \
        .normalization = &cpu_normalization_##isa, .pooling = &cpu_pooling_##isa,             \
        .layers = &cpu_layers_##isa, .update = &cpu_update_##isa, .half = &cpu_half_##isa,    \
        .convolution = &cpu_convolution_##isa, .recurrent = &cpu_recurrent_##isa,             \
    }

static const struct cpu_loops baseline = LOOPS(baseline);
#ifdef CPU_HAVE_X86
static const struct cpu_loops avx2 = LOOPS(avx2);
static const struct cpu_loops avx512 = LOOPS(avx512);

const struct cpu_loops *cpu_loops_choose(void)
{
    const dnnl_cpu_isa_t limit = dnnl_get_effective_cpu_isa();
    __builtin_cpu_init();
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool has_avx512 =
        has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    // oneDNN's values are sets of bits, each instruction set containing those before it.
    if (has_avx512 && (limit & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core)
        return &avx512;
    if (has_avx2 && (limit & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2)
        return &avx2;
    return &baseline;
}
#else
const struct cpu_loops *cpu_loops_choose(void)
{
    return &baseline;
}
#endif
