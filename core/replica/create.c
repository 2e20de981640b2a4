// SPDX-License-Identifier: Apache-2.0
// Opens and closes a replica: device, layouts, buckets, optimizer kernels, flat buffers.
#include "core/replica/input.h"
#include "core/replica/programs.h"
#include "core/replica/microbatches.h"
#include "core/replica/seed.h"

#include "core/base/inside.h"
#include "core/base/log.h"

#include <stdlib.h>
#include <string.h>

static enum ls_status open_device(struct ls_replica *replica,
                                  const struct ls_replica_options *options)
{
    const struct ls_device_options device = {.interface = options->ops,
                                             .host = options->host,
                                             .index = options->device_index,
                                             .threads = options->threads,
                                             .deadline_ns = options->deadline_ns,
                                             .lack = options->lack};
    return ls_device_open(&device, &replica->device);
}

void ls_replica_need_scratch(struct ls_replica *replica, uint64_t bytes)
{
    if (bytes > replica->scratch_bytes)
        replica->scratch_bytes = bytes;
}

struct ls_memory ls_replica_take_memory(struct ls_replica *replica, uint64_t bytes)
{
    bytes = bytes ? bytes : LS_ALIGNMENT;
    replica->device_bytes += bytes;
    return ls_device_allocate(replica->device, bytes);
}

void ls_replica_give_memory(struct ls_replica *replica, struct ls_memory memory, uint64_t bytes)
{
    if (ls_memory_is_null(memory))
        return;
    ls_device_release(replica->device, memory);
    replica->device_bytes -= bytes ? bytes : LS_ALIGNMENT;
}

enum ls_status ls_replica_say_no_memory(const struct ls_replica *replica, enum ls_status status)
{
    if (status == LS_OUT_OF_MEMORY)
        ls_host_fail(replica->host, (int32_t)status,
                     "the device has no %.1f MB of memory left for this model; a smaller batch "
                     "needs less",
                     (double)replica->device_bytes * 1e-6);
    return status;
}

static bool is_there(struct ls_memory memory)
{
    return !ls_memory_is_null(memory);
}

enum ls_status ls_replica_allocate(struct ls_replica *replica,
                                   const struct ls_replica_placement *placement)
{
    const uint64_t reduced = replica->plan->reduced_bytes;
    const uint32_t states = placement && placement->no_states ? 0 : replica->optimizer.state_count;
    replica->parameters = ls_replica_take_memory(replica, replica->plan->flat_bytes);
    replica->reduced = ls_replica_take_memory(replica, LS_STEP_STATS_BYTES + reduced);
    if (replica->graph->count_slots) {
        const uint32_t slots = replica->graph->count_slots;
        replica->counts = ls_replica_take_memory(replica, slots * sizeof(float));
        replica->found = calloc(slots, sizeof(*replica->found));
        replica->found_before = calloc(slots, sizeof(*replica->found_before));
        replica->counted = calloc(slots, sizeof(*replica->counted));
        if (!is_there(replica->counts) || !replica->found || !replica->found_before ||
            !replica->counted)
            return ls_replica_say_no_memory(replica, LS_OUT_OF_MEMORY);
    }
    replica->evaluation_sums = ls_replica_take_memory(replica, LS_STEP_STATS_BYTES);
    if (replica->plan->total_count)
        replica->totals = ls_replica_take_memory(replica, replica->plan->total_bytes);
    const bool measures = ls_optimizer_measures_variables(&replica->optimizer) ||
                          ls_optimizer_measures_all(&replica->optimizer);
    if (measures)
        replica->measures = ls_replica_take_memory(
            replica, LS_UPDATER_OWN + 2 * sizeof(double) * replica->plan->reduced_count);
    if (ls_optimizer_scales(&replica->optimizer)) {
        replica->measured =
            calloc(2 * replica->plan->reduced_count + 1, sizeof(*replica->measured));
        if (!replica->measured)
            return LS_OUT_OF_MEMORY;
    }
    if (replica->guard)
        replica->failed = ls_replica_take_memory(replica, sizeof(int32_t));
    bool complete = is_there(replica->parameters) && is_there(replica->reduced) &&
                    is_there(replica->evaluation_sums) &&
                    (!replica->plan->total_count || is_there(replica->totals)) &&
                    (!replica->guard || is_there(replica->failed)) &&
                    (!measures || is_there(replica->measures));
    for (uint32_t i = 0; i < states; i++) {
        replica->states[i] = ls_replica_take_memory(replica, reduced);
        complete = complete && is_there(replica->states[i]);
    }
    if (!complete)
        return ls_replica_say_no_memory(replica, LS_OUT_OF_MEMORY);
    replica->gradients = ls_memory_at(replica->reduced, LS_STEP_STATS_BYTES);
    return LS_OK;
}

// A device without the operation is waited for in every step.
static enum ls_status prepare_guard(struct ls_replica *replica)
{
    struct ls_tensor_desc arguments[3];
    const struct ls_kernel_request request = {.struct_size = sizeof(request),
                                              .op = LS_OP_GUARD,
                                              .input_count = 1,
                                              .output_count = 2,
                                              .arguments = arguments};
    struct ls_kernel_answer answer = {.layouts = NULL};
    if (!ls_deferred_offered(&replica->deferred))
        return LS_OK;
    for (uint32_t i = 0; i < 3; i++)
        arguments[i] =
            (struct ls_tensor_desc){.dtype = i == 0 ? LS_F32 : LS_I32,
                                    .ndims = 1,
                                    .dims = {1},
                                    .layout = {.kind = LS_LAYOUT_PLAIN, .bytes = sizeof(float)}};
    const enum ls_status status =
        ls_device_prepare(replica->device, "guard of the loss", &request, &answer);
    if (status)
        return status == LS_UNSUPPORTED ? LS_OK : status;
    replica->guard = answer.kernel;
    ls_replica_need_scratch(replica, answer.scratch_bytes);
    return LS_OK;
}

// The host decides whether a step is skipped: where a device works on meanwhile, it would have to wait
// for each step, and nothing could be recorded.
static enum ls_status check_scale(const struct ls_replica *replica)
{
    if (!ls_optimizer_scales(&replica->optimizer) || ls_device_blocking(replica->device))
        return LS_OK;
    if (ls_device_tell_lack(replica->device, "computes beside the host, which decides by the loss "
                                             "scale whether a step is skipped"))
        return LS_UNAVAILABLE;
    ls_error("--loss-scale",
             "device %s computes beside the host, which decides whether a step is skipped; use "
             "--device=cpu, or --loss-scale=none",
             replica->device_name);
    return LS_UNAVAILABLE;
}

enum ls_status ls_replica_open(const struct ls_replica_options *options, struct ls_replica **out)
{
    struct ls_replica *replica = calloc(1, sizeof(*replica));
    if (!replica)
        return LS_OUT_OF_MEMORY;
    replica->host = options->host;
    replica->rank = options->rank;
    replica->device_name = options->device_name ? options->device_name : "?";
    replica->graph = options->graph;
    replica->timing = options->timing;
    replica->deadline_ns = options->deadline_ns;
    replica->microbatches = 1;
    replica->host_record.seed = options->seed;
    if (options->optimizer)
        replica->optimizer = *options->optimizer;
    replica->scale = ls_loss_scale_begin(&replica->optimizer.loss_scale);
    if (options->graph->label)
        replica->label_bytes = 4 * (uint64_t)ls_shape_elements(&options->graph->label->shape, 1);

    enum ls_status status = open_device(replica, options);
    if (!status)
        status = check_scale(replica);
    if (!status) {
        ls_recorder_init(replica, options->host);
        status = ls_deferred_init(&replica->deferred, replica->device);
    }
    if (!status)
        status = ls_plan_create(options->graph, replica->device, options->plan_batch,
                                options->plain, &replica->plan);
    if (!status)
        status = ls_buckets_create(replica->plan, options->first_bucket_bytes,
                                   options->bucket_bytes, &replica->buckets);
    if (!status)
        status = ls_updates_prepare(replica);
    if (!status && replica->optimizer.op != LS_OP_NONE)
        status = prepare_guard(replica);
    if (!status)
        status = ls_input_open(replica, options->byte_divisors);
    if (status) {
        ls_replica_destroy(replica);
        return status;
    }
    *out = replica;
    return LS_OK;
}

void ls_replica_destroy(struct ls_replica *replica)
{
    if (!replica)
        return;
    ls_replica_forget_recordings(replica);
    ls_programs_destroy(replica);
    ls_updates_release(replica);
    for (uint32_t i = 0; replica->adds && i < replica->buckets.count; i++)
        ls_device_release_kernel(replica->device, replica->adds[i]);
    free(replica->adds);
    free(replica->found);
    free(replica->found_before);
    free((void *)replica->counted);
    free(replica->measured);
    if (replica->guard)
        ls_device_release_kernel(replica->device, replica->guard);
    ls_deferred_finish(&replica->deferred);
    ls_buckets_finish(&replica->buckets);
    ls_plan_destroy(replica->plan);
    if (replica->device) {
        const struct ls_memory buffers[] = {replica->parameters,     replica->reduced,
                                            replica->shadows.memory, replica->arena.memory,
                                            replica->scratch.memory, replica->evaluation_sums,
                                            replica->totals,         replica->failed,
                                            replica->measures,       replica->counts};
        ls_input_close(replica);
        ls_seed_release(replica);
        for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++)
            ls_device_release(replica->device, buffers[i]);
        for (uint32_t i = 0; i < LS_OPTIMIZER_STATES; i++)
            ls_device_release(replica->device, replica->states[i]);
        for (uint32_t i = 0; i < replica->levels; i++)
            ls_device_release(replica->device, replica->accumulated[i]);
        ls_device_close(replica->device);
    }
    free(replica);
}

enum ls_status ls_replica_same_layouts(const struct ls_replica *replica, int64_t batch, bool *out)
{
    struct ls_parameter_plan *plan = NULL;
    const enum ls_status status =
        ls_plan_create(replica->graph, replica->device, batch, false, &plan);
    if (!status)
        *out = ls_plan_fingerprint(plan) == ls_plan_fingerprint(replica->plan);
    ls_plan_destroy(plan);
    return status;
}

void ls_replica_abandon(struct ls_replica *replica)
{
    if (replica)
        ls_device_abandon(replica->device);
}

struct ls_virtual_device *ls_replica_device(const struct ls_replica *replica)
{
    return replica->device;
}

const char *ls_replica_device_name(const struct ls_replica *replica)
{
    return replica->device_name;
}

const struct ls_parameter_plan *ls_replica_plan(const struct ls_replica *replica)
{
    return replica->plan;
}

const struct ls_buckets *ls_replica_buckets(const struct ls_replica *replica)
{
    return &replica->buckets;
}

uint32_t ls_replica_rank(const struct ls_replica *replica)
{
    return replica->rank;
}

struct ls_memory ls_replica_step_record(const struct ls_replica *replica)
{
    return replica->record;
}

uint64_t ls_replica_update_ns(const struct ls_replica *replica)
{
    return replica->update_ns;
}

void ls_replica_bytes(const struct ls_replica *replica, uint64_t *all, uint64_t *activations)
{
    *all = replica->device_bytes;
    *activations = replica->arena_bytes;
}
