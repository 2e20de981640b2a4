// SPDX-License-Identifier: Apache-2.0
// What every operation needs while it prepares a kernel: its state, the words of a refusal, and layouts.
#include "core/plugin/half.h"
#include "plugins/device/cpu/cpu.h"
#include "plugins/device/cpu/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int32_t cpu_fail_dnnl(struct ls_device *device, const char *what, dnnl_status_t status)
{
    if (status == dnnl_out_of_memory)
        return cpu_out_of_memory(device);
    return ls_host_fail(device->host, status == dnnl_unimplemented ? LS_UNSUPPORTED : LS_FAILED,
                        "cpu: %s: oneDNN answers status %d", what, (int)status);
}

int32_t cpu_out_of_memory(struct ls_device *device)
{
    return ls_host_fail(device->host, LS_OUT_OF_MEMORY,
                        "cpu: out of memory while a kernel was prepared");
}

int32_t cpu_unsupported(struct ls_device *device, const struct ls_kernel_request *request,
                        const char *why)
{
    return ls_host_fail(device->host, LS_UNSUPPORTED, "cpu: operation %u: %s", request->op, why);
}

void *cpu_state(struct ls_device *device, uint64_t bytes)
{
    void *state = calloc(1, bytes);
    if (!state)
        cpu_out_of_memory(device);
    return state;
}

void cpu_implementation(struct ls_device *device, struct ls_kernel_answer *answer, const char *what)
{
    snprintf(answer->implementation, sizeof(answer->implementation), "own %s %s",
             device->loops->name, what);
}

int32_t cpu_all_plain(struct ls_device *device, const struct ls_kernel_request *request,
                      struct ls_kernel *kernel)
{
    for (uint32_t i = 0; i < request->input_count + request->output_count; i++) {
        struct ls_tensor_desc *desc = &kernel->arguments[i];
        if (desc->layout.kind == LS_LAYOUT_ANY)
            cpu_layout_plain(desc, &desc->layout);
        if (desc->layout.kind != LS_LAYOUT_PLAIN)
            return cpu_unsupported(device, request, "only the plain layout");
    }
    return LS_OK;
}

int32_t cpu_same_layout(struct ls_device *device, const struct ls_kernel_request *request,
                        struct ls_kernel *kernel, uint32_t mask)
{
    struct ls_layout chosen;
    uint32_t first = 0;
    while (!(mask >> first & 1))
        first++;
    const uint32_t type = kernel->arguments[first].dtype;
    memset(&chosen, 0, sizeof(chosen));
    for (uint32_t i = 0; i < CPU_MAX_ARGUMENTS && chosen.kind == LS_LAYOUT_ANY; i++)
        if (mask >> i & 1)
            chosen = kernel->arguments[i].layout;
    if (chosen.kind == LS_LAYOUT_ANY)
        cpu_layout_plain(&kernel->arguments[first], &chosen);
    for (uint32_t i = 0; i < CPU_MAX_ARGUMENTS; i++) {
        struct ls_tensor_desc *desc = &kernel->arguments[i];
        if (!(mask >> i & 1))
            continue;
        if (desc->dtype != type || (type != LS_F32 && !ls_dtype_is_half(type)))
            return cpu_unsupported(device, request, "only one floating type");
        if (desc->layout.kind == LS_LAYOUT_ANY)
            desc->layout = chosen;
        if (memcmp(&desc->layout, &chosen, sizeof(chosen)) != 0)
            return cpu_unsupported(device, request, "the arguments lie in different layouts");
    }
    return LS_OK;
}
