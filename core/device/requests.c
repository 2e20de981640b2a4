// SPDX-License-Identifier: Apache-2.0
// Asks devices for kernels: for an operation, for one on a range, and for a whole segment of a
// program. A request that makes no sense reaches no device.
#include "core/device/device.h"

#include "core/base/inside.h"
#include "core/base/log.h"
#include "core/operation/operation.h"

#include <stdlib.h>
#include <string.h>

// ---- Operations ----

bool ls_device_takes_casts(const struct ls_device *device, uint32_t op)
{
    const struct ls_device_interface *interface = ls_device_interface(device);
    for (uint32_t i = 0; i < interface->pattern_count; i++)
        if (interface->patterns[i].producer == LS_OP_CONVERT &&
            interface->patterns[i].consumer == op)
            return true;
    return false;
}

// A request that makes no sense reaches no device; one that makes sense may still be refused there.
static enum ls_status ask(struct ls_device *device, const struct ls_kernel_request *request,
                          struct ls_kernel_answer *answer)
{
    char why[256];
    const bool casts = ls_device_takes_casts(device, request->op);
    const enum ls_status status = ls_operation_check(request, casts, why, sizeof(why));
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

// ---- Segments ----

bool ls_device_takes_segments(const struct ls_device *device)
{
    const struct ls_device_kernels *kernels = ls_device_interface(device)->kernels;
    return LS_HAS(kernels, prepare_segment) && kernels->prepare_segment;
}

// The arguments of one kernel. `written` says of each value whether a kernel before it wrote it.
static const char *check_kernel(const struct ls_segment_request *request,
                                const struct ls_segment_kernel *kernel, bool *written)
{
    const uint32_t inputs = kernel->request->input_count;
    const uint32_t count = inputs + kernel->request->output_count;
    for (uint32_t i = 0; i < count; i++)
        if (kernel->values[i] >= request->value_count)
            return "a kernel names a value that there is not";
    for (uint32_t i = 0; i < count; i++) {
        const struct ls_segment_value *value = &request->values[kernel->values[i]];
        const bool added = i >= inputs && kernel->request->accumulate >> (i - inputs) & 1;
        if (kernel->request->arguments[i].layout.kind == LS_LAYOUT_ANY)
            return "a layout is not fixed";
        if (value->argument == LS_SEGMENT_INSIDE && (i < inputs || added) &&
            !written[kernel->values[i]])
            return "a value inside of the segment is read before it is written";
    }
    for (uint32_t i = inputs; i < count; i++)
        written[kernel->values[i]] = true;
    return NULL;
}

static const char *check_values(const struct ls_segment_request *request, bool *taken)
{
    for (uint32_t i = 0; i < request->value_count; i++) {
        const uint32_t argument = request->values[i].argument;
        if (argument == LS_SEGMENT_INSIDE)
            continue;
        if (argument >= request->argument_count)
            return "a value is an argument that there is not";
        if (taken[argument])
            return "two values are the same argument";
        taken[argument] = true;
    }
    for (uint32_t i = 0; i < request->argument_count; i++)
        if (!taken[i])
            return "an argument is no value";
    return NULL;
}

static enum ls_status check_segment(const struct ls_device *device, const char *about,
                                    const struct ls_segment_request *request)
{
    bool *written = calloc((size_t)request->value_count + 1, sizeof(*written));
    bool *taken = calloc((size_t)request->argument_count + 1, sizeof(*taken));
    const char *wrong = NULL;
    char why[256];
    enum ls_status status = written && taken ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        wrong = check_values(request, taken);
    for (uint32_t i = 0; !status && !wrong && i < request->kernel_count; i++) {
        const struct ls_kernel_request *asked = request->kernels[i].request;
        status =
            ls_operation_check(asked, ls_device_takes_casts(device, asked->op), why, sizeof(why));
        wrong = status ? why : check_kernel(request, &request->kernels[i], written);
    }
    if (wrong) {
        ls_error("device", "%s: %s; an error of Lockstep", about, wrong);
        status = LS_FAILED;
    }
    free(written);
    free(taken);
    return status;
}

enum ls_status ls_device_prepare_segment(struct ls_device *device, const char *about,
                                         const struct ls_segment_request *request,
                                         struct ls_kernel_answer *out)
{
    if (!ls_device_takes_segments(device))
        return LS_UNSUPPORTED;
    const enum ls_status status = check_segment(device, about, request);
    if (status)
        return status;
    *out = (struct ls_kernel_answer){.struct_size = sizeof(*out)};
    ls_inside_about(about);
    return (enum ls_status)ls_device_interface(device)->kernels->prepare_segment(device, request,
                                                                                 out);
}
