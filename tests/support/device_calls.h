// SPDX-License-Identifier: Apache-2.0
// Calls of a device plugin in tests: requests with room for their arguments, and launches by address, for devices whose
// memory has addresses.
#ifndef LS_TESTS_SUPPORT_DEVICE_CALLS_H
#define LS_TESTS_SUPPORT_DEVICE_CALLS_H

#include "core/device/device.h"
#include "core/operation/operation.h"

#include <string.h>

enum { TEST_ARGUMENTS = 16 };

// As struct ls_kernel_request.
struct test_request {
    uint32_t op;
    struct ls_op_attributes attributes;
    uint32_t input_count, output_count;
    struct ls_tensor_desc arguments[TEST_ARGUMENTS];
    uint32_t accumulate;
};

static inline struct ls_kernel_request test_kernel_request(const struct test_request *request)
{
    return (struct ls_kernel_request){.struct_size = sizeof(struct ls_kernel_request),
                                      .op = request->op,
                                      .attributes = request->attributes,
                                      .input_count = request->input_count,
                                      .output_count = request->output_count,
                                      .arguments = request->arguments,
                                      .accumulate = request->accumulate};
}

// As core/device does it: a request that makes no sense reaches no device; `test_refusal` says why.
// The layouts of the answer are valid until the next call of this thread.
static char test_refusal[256];

static inline int32_t test_prepare(const struct ls_device_interface *ops, struct ls_device *device,
                                   const struct test_request *request, struct ls_kernel_answer *out)
{
    static _Thread_local struct ls_layout layouts[TEST_ARGUMENTS];
    const struct ls_kernel_request asked = test_kernel_request(request);
    bool halves = false; // whether the device takes them where the contract does not ask for that
    for (uint32_t i = 0; i < ops->pattern_count; i++)
        halves |=
            ops->patterns[i].producer == LS_OP_CONVERT && ops->patterns[i].consumer == request->op;
    const int32_t refused =
        (int32_t)ls_operation_check(&asked, halves, test_refusal, sizeof(test_refusal));
    if (refused)
        return refused;
    memset(layouts, 0, sizeof(layouts));
    *out = (struct ls_kernel_answer){.struct_size = sizeof(*out), .layouts = layouts};
    return ops->kernels->prepare(device, &asked, out);
}

static inline int32_t test_launch(const struct ls_device_interface *ops, struct ls_device *device,
                                  const struct ls_kernel *kernel, void *const *arguments,
                                  uint32_t count, const void *scratch)
{
    struct ls_memory memory[TEST_ARGUMENTS];
    for (uint32_t i = 0; i < count; i++)
        memory[i] = ls_host_memory(arguments[i]);
    const struct ls_launch launch = {.struct_size = sizeof(launch),
                                     .argument_count = count,
                                     .arguments = memory,
                                     .scratch = ls_host_memory(scratch)};
    return ops->kernels->launch(device, kernel, &launch);
}

#endif
