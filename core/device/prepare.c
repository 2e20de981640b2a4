// SPDX-License-Identifier: Apache-2.0
// Asks devices for kernels.
#include "core/device/device.h"

#include "core/base/inside.h"
#include "core/base/log.h"
#include "core/operation/operation.h"

#include <stdlib.h>
#include <string.h>

// A request that makes no sense reaches no device; one that makes sense may still be refused there.
static enum ls_status ask(struct ls_device *device, const struct ls_kernel_request *request,
                          struct ls_kernel_answer *answer)
{
    char why[256];
    const enum ls_status status = ls_operation_check(request, why, sizeof(why));
    if (status) {
        ls_debug("device", "%s", why);
        return status;
    }
    return (enum ls_status)ls_device_interface(device)->kernels->prepare(device, request, answer);
}

enum ls_status ls_device_prepare(struct ls_device *device, const char *about,
                                 const struct ls_kernel_request *request,
                                 struct ls_kernel_answer *out)
{
    const size_t count = (size_t)request->input_count + request->output_count;
    struct ls_layout *layouts = out->layouts, *own = NULL;
    if (!layouts)
        layouts = own = malloc(count * sizeof(*own));
    if (!layouts)
        return LS_OUT_OF_MEMORY;
    memset(layouts, 0, count * sizeof(*layouts));
    *out = (struct ls_kernel_answer){.struct_size = sizeof(*out), .layouts = layouts};
    ls_inside_about(about);
    const enum ls_status status = ask(device, request, out);
    if (own)
        out->layouts = NULL;
    free(own);
    return status;
}

enum ls_status ls_device_prepare_range(struct ls_device *device, const char *about,
                                       const struct ls_range_operation *operation,
                                       struct ls_kernel_answer *out)
{
    const uint32_t count = operation->input_count + operation->output_count;
    struct ls_tensor_desc *arguments = calloc(count, sizeof(*arguments));
    if (!arguments)
        return LS_OUT_OF_MEMORY;
    struct ls_kernel_request request = {.struct_size = sizeof(request),
                                        .op = operation->op,
                                        .input_count = operation->input_count,
                                        .output_count = operation->output_count,
                                        .arguments = arguments};
    if (operation->attributes)
        request.attributes = *operation->attributes;
    for (uint32_t i = 0; i < count; i++) {
        const bool measures = i == 1 && operation->measures;
        const uint64_t elements = measures ? operation->measures : operation->count;
        arguments[i] = (struct ls_tensor_desc){
            .dtype = measures ? LS_F64 : LS_F32,
            .ndims = 1,
            .dims = {(int64_t)elements},
            .layout = {.kind = LS_LAYOUT_PLAIN,
                       .bytes = elements * (measures ? sizeof(double) : sizeof(float))}};
    }
    out->layouts = NULL;
    const enum ls_status status = ls_device_prepare(device, about, &request, out);
    free(arguments);
    return status;
}
