// SPDX-License-Identifier: Apache-2.0
// Runs single operations of device `reference` on plain arrays.
#ifndef LS_TESTS_DEVICE_REFERENCE_OPERATION_H
#define LS_TESTS_DEVICE_REFERENCE_OPERATION_H

#include "core/device/device.h"
#include "core/operation/operation.h"
#include "tests/support/plugin.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>

#define OPERATION_ARGUMENTS 16

struct argument {
    struct ls_tensor_desc desc;
    void *values; // plain order
};

// One operation: fill in, then operation_run().
struct operation {
    uint32_t op;
    struct ls_op_attributes attributes;
    struct ls_step_record record;
    uint32_t inputs, outputs;
    struct argument arguments[OPERATION_ARGUMENTS];
    uint32_t accumulate;
};

#define DIMS(...)                                                                     \
    (uint32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) \
    {                                                                                 \
        __VA_ARGS__                                                                   \
    }

static inline struct argument argument_of(uint32_t dtype, void *values, uint32_t ndims,
                                          const int64_t *dims)
{
    struct argument argument = {.desc = {.dtype = dtype, .ndims = ndims}, .values = values};
    for (uint32_t i = 0; i < ndims; i++)
        argument.desc.dims[i] = dims[i];
    return argument;
}

// F32 argument over an array; dims follow.
#define F32(values, ...) argument_of(LS_F32, values, DIMS(__VA_ARGS__))
#define I32(values, ...) argument_of(LS_I32, values, DIMS(__VA_ARGS__))
#define F64(values, ...) argument_of(LS_F64, values, DIMS(__VA_ARGS__))

static struct test_host operation_host;

// The plugin, or NULL after a line with SKIP.
static inline const struct ls_device_interface *operation_device(void)
{
    static const struct ls_plugin *plugin;
    if (!plugin)
        plugin = test_plugin_open("device-reference");
    if (plugin)
        test_host_init(&operation_host, plugin);
    return plugin ? plugin->interface : NULL;
}

// The status of prepare; anything later is asserted.
static inline int32_t operation_try(struct operation *operation)
{
    const struct ls_device_interface *d = operation_device();
    const struct ls_device_config config = {.struct_size = sizeof(config)};
    struct ls_device *device = NULL;
    ck_assert_ptr_nonnull(d);
    ck_assert_int_eq(ls_device_open_state(d, &operation_host.host, &config, &device), LS_OK);

    struct ls_tensor_desc descs[OPERATION_ARGUMENTS];
    struct ls_layout layouts[OPERATION_ARGUMENTS] = {0};
    const struct ls_kernel_request request = {.struct_size = sizeof(request),
                                              .op = operation->op,
                                              .attributes = operation->attributes,
                                              .input_count = operation->inputs,
                                              .output_count = operation->outputs,
                                              .arguments = descs,
                                              .accumulate = operation->accumulate};
    struct ls_memory memory[OPERATION_ARGUMENTS] = {{NULL, 0}};
    for (uint32_t i = 0; i < operation->inputs + operation->outputs; i++) {
        descs[i] = operation->arguments[i].desc;
        memory[i] = ls_host_memory(operation->arguments[i].values);
    }
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer), .layouts = layouts};
    char why[256];
    int32_t status =
        (int32_t)ls_operation_check(&request, false, why, sizeof(why)); // as core/device does
    if (!status)
        status = d->kernels->prepare(device, &request, &answer);
    if (status == LS_OK) {
        struct ls_buffer *scratch = d->memory->allocate(device, answer.scratch_bytes + 1);
        const struct ls_launch launch = {.struct_size = sizeof(launch),
                                         .argument_count = operation->inputs + operation->outputs,
                                         .arguments = memory,
                                         .scratch = ls_memory_of(scratch),
                                         .record = ls_host_memory(&operation->record)};
        ck_assert_int_eq(d->kernels->launch(device, answer.kernel, &launch), LS_OK);
        d->memory->release(device, scratch);
        d->kernels->release(device, answer.kernel);
    }
    ls_device_close(device);
    return status;
}

static inline void operation_run(struct operation *operation)
{
    const int32_t status = operation_try(operation);
    ck_assert_msg(status == LS_OK, "operation %u: %s", operation->op, operation_host.message);
}

// Numbers between -1 and 1 from a seed.
static inline void draw(float *values, uint64_t count, uint64_t seed)
{
    for (uint64_t i = 0; i < count; i++)
        values[i] = (float)((double)(ls_mix64(seed, i) >> 11) * 0x1p-52 - 1);
}

static inline void assert_values(const float *got, const float *wanted, size_t count,
                                 double tolerance)
{
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(fabs((double)got[i] - (double)wanted[i]) <= tolerance,
                      "element %zu: got %.9g, expected %.9g", i, (double)got[i], (double)wanted[i]);
}

#endif
