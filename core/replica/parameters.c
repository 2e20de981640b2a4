// SPDX-License-Identifier: Apache-2.0
// Parameters of a replica as the world outside sees them: by name, float32, plain layout.
#include "core/replica/internal.h"

#include "core/base/hash.h"
#include "core/base/memory.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t find_place(const struct ls_replica *replica, uint32_t index)
{
    const uint32_t place = ls_plan_find(replica->plan, replica->graph->parameters[index]->name);
    assert(place != LS_NO_PLACE); // the plan was made from the graph
    return place;
}

// Frozen parameters have no gradient and no state of the optimizer.
static bool has(const struct ls_replica *replica, uint32_t buffer, uint32_t place)
{
    return buffer == LS_BUFFER_PARAMETERS || place < replica->plan->reduced_count;
}

enum ls_status ls_replica_set_buffer(struct ls_replica *replica, uint32_t buffer, uint32_t index,
                                     const float *values)
{
    const uint32_t place = find_place(replica, index);
    if (!has(replica, buffer, place))
        return LS_OK;
    return ls_plan_import(replica->plan, place, values, ls_replica_memory(replica, buffer));
}

enum ls_status ls_replica_get_buffer(struct ls_replica *replica, uint32_t buffer, uint32_t index,
                                     float *out)
{
    const uint32_t place = find_place(replica, index);
    const struct ls_shape *shape = &replica->graph->parameters[index]->shape;
    if (!has(replica, buffer, place)) {
        memset(out, 0, (size_t)ls_shape_elements(shape, 1) * sizeof(*out));
        return LS_OK;
    }
    return ls_plan_export(replica->plan, place, ls_replica_memory(replica, buffer), out);
}

struct named {
    const char *name;
    uint32_t index;
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

// Looks at a parameter in plain layout. Its copy is where activations are, which nobody needs
// between steps: a large one of its own would be the peak of what the process needs.
static enum ls_status look_at(struct ls_replica *replica, uint32_t index,
                              enum ls_status (*look)(void *context, const float *values,
                                                     size_t count),
                              void *context)
{
    const size_t count = (size_t)ls_shape_elements(&replica->graph->parameters[index]->shape, 1);
    const bool fits = ls_device_in_host_memory(replica->device) &&
                      !ls_memory_is_null(replica->arena.memory) &&
                      count * sizeof(float) <= replica->arena.bytes;
    float *own = fits ? NULL : ls_malloc_aligned(count * sizeof(*own));
    float *values = fits ? ls_address(replica->arena.memory) : own;
    enum ls_status status =
        values ? ls_replica_get_buffer(replica, LS_BUFFER_PARAMETERS, index, values)
               : LS_OUT_OF_MEMORY;
    if (!status)
        status = look(context, values, count);
    free(own);
    return status;
}

static enum ls_status add_values(void *context, const float *values, size_t count)
{
    ls_hash_add(context, values, count * sizeof(*values));
    return LS_OK;
}

enum ls_status ls_values_check_finite(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return LS_FAILED;
    return LS_OK;
}

static enum ls_status check_values(void *context, const float *values, size_t count)
{
    (void)context;
    return ls_values_check_finite(values, count);
}

enum ls_status ls_replica_check_parameter(struct ls_replica *replica, uint32_t index)
{
    return look_at(replica, index, check_values, NULL);
}

enum ls_status ls_replica_hash(struct ls_replica *replica, uint64_t *out)
{
    const uint32_t count = replica->graph->parameter_count;
    struct named *order = malloc(((size_t)count + 1) * sizeof(*order));
    struct ls_hash *hash = ls_hash_create();
    enum ls_status status = order && hash ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status) {
        for (uint32_t i = 0; i < count; i++)
            order[i] = (struct named){replica->graph->parameters[i]->name, i};
        qsort(order, count, sizeof(*order), compare_names);
    }
    for (uint32_t i = 0; !status && i < count; i++)
        status = look_at(replica, order[i].index, add_values, hash);
    if (!status)
        *out = ls_hash_get(hash);
    ls_hash_destroy(hash);
    free(order);
    return status;
}
