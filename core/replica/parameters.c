// SPDX-License-Identifier: Apache-2.0
// Parameters of a replica as the world outside sees them: by name, float32, plain layout.
#include "core/replica/internal.h"

#include "core/base/hash.h"
#include "core/base/log.h"
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

// ---- Whole, or in parts ----

// What the replica holds of a parameter in a buffer that it has in parts.
struct part {
    struct ls_memory memory;
    uint64_t at, bytes; // from the beginning of the parameter; 0 bytes: nothing
};

static struct part part_of(const struct ls_replica *replica, uint32_t buffer, uint32_t place)
{
    const struct ls_parameter_place *master = &replica->plan->places[place];
    const uint32_t bucket = ls_buckets_find(&replica->buckets, place);
    const enum ls_held kind = buffer == LS_BUFFER_PARAMETERS  ? LS_HELD_PARAMETERS
                              : buffer == LS_BUFFER_GRADIENTS ? LS_HELD_GRADIENTS
                                                              : LS_HELD_STATES;
    if (kind == LS_HELD_STATES && buffer - LS_BUFFER_STATE >= replica->optimizer.state_count)
        return (struct part){.bytes = 0};
    const struct ls_held_range all = {master->offset / sizeof(float),
                                      master->bytes / sizeof(float)};
    const struct ls_held_range held = ls_replica_held(replica, kind, bucket);
    const struct ls_held_range own = ls_held_common(all, held);
    if (!own.count)
        return (struct part){.bytes = 0};
    return (struct part){ls_memory_at(ls_replica_held_memory(replica, buffer, bucket),
                                      (own.first - held.first) * sizeof(float)),
                         (own.first - all.first) * sizeof(float), own.count * sizeof(float)};
}

// Room for one parameter by itself, where kernels may use it. A device in host memory takes the
// host's, which counts as none of its own.
static struct ls_memory take_room(const struct ls_replica *replica, uint64_t bytes)
{
    if (!ls_device_in_host_memory(replica->device))
        return ls_device_allocate(replica->device, bytes);
    void *own = ls_malloc_aligned(bytes);
    return own ? ls_host_memory(own) : (struct ls_memory){NULL, 0};
}

static void give_room(const struct ls_replica *replica, struct ls_memory room)
{
    if (ls_device_in_host_memory(replica->device))
        free(ls_memory_is_null(room) ? NULL : ls_address(room));
    else
        ls_device_release(replica->device, room);
}

static enum ls_status set_part(struct ls_replica *replica, uint32_t buffer, uint32_t place,
                               const float *values)
{
    const uint64_t bytes = replica->plan->places[place].bytes;
    const struct part part = part_of(replica, buffer, place);
    if (!part.bytes)
        return LS_OK;
    const struct ls_memory room = take_room(replica, bytes);
    enum ls_status status = ls_memory_is_null(room)
                                ? LS_OUT_OF_MEMORY
                                : ls_device_zero(replica->device, room, bytes, NULL); // its padding
    if (!status)
        status = ls_plan_import(replica->plan, place, values, room);
    if (!status)
        status = ls_device_copy(replica->device, part.memory, ls_memory_at(room, part.at),
                                part.bytes, NULL);
    give_room(replica, room);
    return status;
}

enum ls_status ls_replica_set_buffer(struct ls_replica *replica, uint32_t buffer, uint32_t index,
                                     const float *values)
{
    const uint32_t place = find_place(replica, index);
    if (!has(replica, buffer, place))
        return LS_OK;
    const struct ls_memory at = ls_replica_place_memory(replica, buffer, place);
    return ls_memory_is_null(at) ? set_part(replica, buffer, place, values)
                                 : ls_plan_import(replica->plan, place, values, at);
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
    return ls_plan_export(replica->plan, place, ls_replica_place_memory(replica, buffer, place),
                          out);
}

enum ls_status ls_replica_export(struct ls_replica *replica, uint32_t index, const float *from,
                                 float *out)
{
    const uint32_t place = find_place(replica, index);
    const uint64_t bytes = replica->plan->places[place].bytes;
    if (ls_device_in_host_memory(replica->device))
        return ls_plan_export(replica->plan, place, ls_host_memory(from), out);
    const struct ls_memory room = take_room(replica, bytes);
    enum ls_status status =
        ls_memory_is_null(room)
            ? LS_OUT_OF_MEMORY
            : ls_device_copy(replica->device, room, ls_host_memory(from), bytes, NULL);
    if (!status)
        status = ls_plan_export(replica->plan, place, room, out);
    give_room(replica, room);
    return status;
}

enum ls_status ls_replica_import(struct ls_replica *replica, uint32_t index, const float *from,
                                 float *out)
{
    const uint32_t place = find_place(replica, index);
    const uint64_t bytes = replica->plan->places[place].bytes;
    if (ls_device_in_host_memory(replica->device))
        return ls_plan_import(replica->plan, place, from, ls_host_memory(out));
    const struct ls_memory room = take_room(replica, bytes);
    enum ls_status status =
        ls_memory_is_null(room)
            ? LS_OUT_OF_MEMORY
            : ls_device_copy(replica->device, room, ls_host_memory(out), bytes, NULL);
    if (!status)
        status = ls_plan_import(replica->plan, place, from, room);
    if (!status)
        status = ls_device_copy(replica->device, ls_host_memory(out), room, bytes, NULL);
    give_room(replica, room);
    return status;
}

enum ls_status ls_replica_copy_part(struct ls_replica *replica, uint32_t to, uint32_t from,
                                    uint32_t index)
{
    const uint32_t place = find_place(replica, index);
    const struct part target = part_of(replica, to, place), source = part_of(replica, from, place);
    if (target.at != source.at || target.bytes != source.bytes) {
        ls_error("replica",
                 "it holds other parts of '%s' than of its averages: an error of the "
                 "strategy",
                 replica->graph->parameters[index]->name);
        return LS_FAILED;
    }
    return target.bytes
               ? ls_device_copy(replica->device, target.memory, source.memory, target.bytes, NULL)
               : LS_OK;
}

// ---- Looking at them ----

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

// Of a parameter of which it holds a part.
static enum ls_status check_part(const struct ls_replica *replica, uint32_t place)
{
    const struct part part = part_of(replica, LS_BUFFER_PARAMETERS, place);
    float *values = malloc(part.bytes + 1);
    enum ls_status status = values ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status && part.bytes)
        status =
            ls_device_copy(replica->device, ls_host_memory(values), part.memory, part.bytes, NULL);
    if (!status)
        status = ls_values_check_finite(values, part.bytes / sizeof(*values));
    free(values);
    return status;
}

enum ls_status ls_replica_check_parameter(struct ls_replica *replica, uint32_t index)
{
    const uint32_t place = find_place(replica, index);
    return ls_memory_is_null(ls_replica_place_memory(replica, LS_BUFFER_PARAMETERS, place))
               ? check_part(replica, place)
               : look_at(replica, index, check_values, NULL);
}

uint32_t *ls_replica_name_order(const struct ls_replica *replica)
{
    const uint32_t count = replica->graph->parameter_count;
    struct named *order = malloc(((size_t)count + 1) * sizeof(*order));
    uint32_t *out = malloc(((size_t)count + 1) * sizeof(*out));
    for (uint32_t i = 0; order && i < count; i++)
        order[i] = (struct named){replica->graph->parameters[i]->name, i};
    if (order)
        qsort(order, count, sizeof(*order), compare_names);
    for (uint32_t i = 0; order && out && i < count; i++)
        out[i] = order[i].index;
    if (!order) {
        free(out);
        out = NULL;
    }
    free(order);
    return out;
}

enum ls_status ls_replica_hash(struct ls_replica *replica, uint64_t *out)
{
    uint32_t *order = ls_replica_name_order(replica);
    struct ls_hash *hash = ls_hash_create();
    enum ls_status status = order && hash ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < replica->graph->parameter_count; i++)
        status = look_at(replica, order[i], add_values, hash);
    if (!status)
        *out = ls_hash_get(hash);
    ls_hash_destroy(hash);
    free(order);
    return status;
}
