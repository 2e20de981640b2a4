// SPDX-License-Identifier: Apache-2.0
// Outputs that the host reads, and gradients that it gives instead of a loss.
#include "core/replica/programs.h"
#include "core/replica/seed.h"

#include "core/base/log.h"

#include <stdlib.h>

static uint64_t elements_of(const struct ls_replica *replica)
{
    return (uint64_t)ls_shape_elements(&replica->graph->outputs[0]->shape, 1);
}

void ls_seed_release(struct ls_replica *replica)
{
    struct ls_seed *seed = &replica->seed;
    if (seed->values && !ls_device_in_host_memory(replica->device))
        free(seed->values);
    ls_replica_give_memory(replica, seed->memory, seed->bytes);
    *seed = (struct ls_seed){0};
}

enum ls_status ls_seed_make_room(struct ls_replica *replica)
{
    struct ls_seed *seed = &replica->seed;
    const uint64_t bytes = replica->largest_batch * elements_of(replica) * sizeof(float);
    if (replica->graph->seed_count == 0 || bytes <= seed->bytes)
        return LS_OK;
    ls_seed_release(replica);
    seed->memory = ls_replica_take_memory(replica, bytes);
    if (ls_memory_is_null(seed->memory))
        return LS_OUT_OF_MEMORY;
    seed->bytes = bytes;
    seed->values = ls_device_in_host_memory(replica->device) ? ls_address(seed->memory)
                                                             : malloc((size_t)bytes);
    return seed->values ? LS_OK : LS_OUT_OF_MEMORY;
}

void ls_seed_bind(const struct ls_replica *replica, struct ls_program *program)
{
    if (replica->graph->seed_count)
        ls_program_set_seeds(program, &replica->seed.memory);
}

float *ls_replica_output_gradient(struct ls_replica *replica)
{
    return replica->seed.values;
}

enum ls_status ls_replica_give_loss(struct ls_replica *replica, uint64_t count, const float *sums)
{
    const struct ls_seed *seed = &replica->seed;
    const uint64_t elements = count * elements_of(replica);
    const float scale = replica->scale.scale;
    for (uint64_t i = 0; scale < 1 || scale > 1 ? i < elements : false; i++)
        seed->values[i] *= scale;
    enum ls_status status = ls_device_copy(replica->device, replica->reduced, ls_host_memory(sums),
                                           LS_SUMS * sizeof(float), NULL);
    if (!status && count && !ls_device_in_host_memory(replica->device))
        status = ls_device_copy(replica->device, seed->memory, ls_host_memory(seed->values),
                                elements * sizeof(float), NULL);
    return status;
}

enum ls_status ls_replica_output(const struct ls_replica *replica, uint64_t count,
                                 enum ls_purpose purpose, struct ls_memory *out)
{
    const struct ls_replica_program *entry = ls_programs_find(replica, count, purpose);
    if (!entry) {
        ls_error("replica", "no program was prepared for a share of %llu examples",
                 (unsigned long long)count);
        return LS_FAILED;
    }
    *out = ls_program_output(entry->program, 0);
    return LS_OK;
}
