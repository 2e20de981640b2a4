// SPDX-License-Identifier: Apache-2.0
// A launch is recorded, or runs a program of this operation alone.
#include "plugins/device/pjrt/device.h"
#include "plugins/device/pjrt/program.h"

static int32_t make_alone(struct ls_device *device, struct ls_kernel *kernel,
                          const struct pjrt_access *access)
{
    struct hlo h = {0};
    struct hlo_value reads[2 * PJRT_MAX_ARGUMENTS], writes[PJRT_MAX_ARGUMENTS];
    for (uint32_t i = 0; i < access->read_count; i++)
        reads[i] = pjrt_program_argument(&h, &access->reads[i]);
    pjrt_emit(&h, kernel, reads, writes);
    const struct pjrt_function function = {.instructions = &h,
                                           .arguments = reads,
                                           .results = writes,
                                           .argument_count = access->read_count,
                                           .result_count = access->written_count};
    const int32_t status =
        pjrt_program_compile(&device->caller, kernel->operation->name, &function, &kernel->alone);
    hlo_finish(&h);
    return status;
}

int32_t pjrt_launch(struct ls_device *device, const struct ls_kernel *kernel,
                    const struct ls_launch *launch)
{
    struct pjrt_access access;
    struct PJRT_Buffer *arguments[2 * PJRT_MAX_ARGUMENTS], *results[PJRT_MAX_ARGUMENTS];
    int32_t status = LS_OK;
    if (device->recording)
        return pjrt_record_launch(device, kernel, launch);
    pjrt_access_of(kernel, launch, &access);
    if (!kernel->alone) // kernels are the device's, which one thread has at a time
        status = make_alone(device, (struct ls_kernel *)kernel, &access);
    for (uint32_t i = 0; !status && i < access.read_count; i++)
        status = pjrt_fetch(device, &access.reads[i], &arguments[i]);
    if (!status)
        status = pjrt_execute(&device->caller, kernel->operation->name, kernel->alone, arguments,
                              access.read_count, results);
    if (status)
        return status;
    for (uint32_t i = 0; i < access.written_count; i++) {
        const int32_t stored_status = pjrt_store(device, &access.writes[i], results[i]);
        status = status ? status : stored_status;
    }
    return status;
}
