// SPDX-License-Identifier: Apache-2.0
// Buffers in a device's memory that has handles instead of addresses (LS_MEMORY_OPAQUE). Schedules
// and transports know addresses only, so a run copies the buffer to host memory, works there, and
// copies the result back.
#include "core/collective/internal.h"

#include "core/base/dtype.h"
#include "core/base/shared_memory.h"

#include <string.h>

uint32_t ls_collective_memory(const struct ls_collective_interface *algorithm, uint32_t kind)
{
    const bool described = algorithm && algorithm->build_schedule;
    return described && kind == LS_MEMORY_OPAQUE ? LS_MEMORY_HOST : kind;
}

bool ls_works_on_copies(const struct ls_collective_interface *algorithm,
                        const struct ls_device *device)
{
    const uint32_t kind = ls_device_interface(device)->memory_kind;
    return ls_collective_memory(algorithm, kind) != kind;
}

enum ls_status ls_communicator_copy(const struct ls_communicator *communicator, struct ls_memory to,
                                    struct ls_memory from, uint64_t bytes)
{
    const struct ls_rank_place *place = communicator->place;
    struct ls_device *device = place ? place->device : communicator->behind;
    if (device)
        return (enum ls_status)ls_device_copy(device, to, from, bytes, NULL);
    memcpy(ls_address(to), ls_address(from), bytes);
    return LS_OK;
}

static uint64_t bytes_of(const struct ls_collective_plan *plan)
{
    return plan->signature.count * ls_dtype_bytes(plan->signature.dtype);
}

enum ls_status ls_plan_open_copy(struct ls_collective_plan *plan)
{
    if (!plan->communicator->behind || !plan->buffer.buffer || !bytes_of(plan))
        return LS_OK;
    plan->copy = ls_segment_allocate(bytes_of(plan), LS_ALIGNMENT);
    return plan->copy ? LS_OK : LS_OUT_OF_MEMORY;
}

enum ls_status ls_plan_fetch(const struct ls_collective_plan *plan)
{
    return plan->copy ? ls_communicator_copy(plan->communicator, ls_host_memory(plan->copy),
                                             plan->buffer, bytes_of(plan))
                      : LS_OK;
}

enum ls_status ls_plan_bring_back(const struct ls_collective_plan *plan)
{
    return plan->copy ? ls_communicator_copy(plan->communicator, plan->buffer,
                                             ls_host_memory(plan->copy), bytes_of(plan))
                      : LS_OK;
}
