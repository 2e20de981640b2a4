// SPDX-License-Identifier: Apache-2.0
// Buckets whose sum a filter makes (--compress, core/plugin/filter.h). The way of such a bucket:
//
//   begin    what travels as it is is packed, and its plain all-reduce begins; x = gradient +
//            residual of what the filter takes; its stages run up to the first collective
//   finish   the other stages, of all buckets in turn, so that one travels while another is
//            computed; the sums go back to where the gradients were
//   settle   the step counts: residual = x - delivered
//
// Collectives begin in the same order on all ranks: the stages after the first collective of a
// bucket wait for `finish`, because when one ends is another moment on each rank.
#include "core/strategy/internal.h"

#include "core/base/log.h"
#include "core/base/trace.h"
#include "core/filter/filter.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VECTORS 5 // of as many floats as x

// Floats of the bucket, one after the other, as they are in a packed buffer.
struct piece {
    uint64_t at; // in the bucket's part of LS_BUFFER_REDUCED, in floats
    uint64_t packed; // in x, or in what travels plain
    uint64_t count;
    bool filtered;
};

struct ls_filtered_bucket {
    struct ls_filter_plan *plan;
    struct piece *pieces;
    uint32_t piece_count;
    float *memory; // of all that follow
    float *x, *residual, *next_residual, *result, *delivered, *plain;
    uint8_t *scratch;
    uint64_t plain_count;
    struct ls_collective_plan *plain_plan;
    struct ls_collective_plan *collectives[LS_FILTER_STAGES]; // NULL: that stage is local
    uint32_t next; // stage, of the step under way; a collective one has begun
    bool begun, owes; // what follows from the last step is to be settled
};

static const struct ls_trace_label stage_span = {
    .category = "strategy", .name = "filter", .value = "stage"};

static bool filters(const struct ls_driver *driver)
{
    return driver->options.filter.plugin && driver->world > 1;
}

// ---- What it needs ----

static enum ls_status refuse(const struct ls_driver *driver, enum ls_status status, const char *why)
{
    ls_error("--compress", "%s: %s", driver->options.filter.plugin->name, why);
    return status;
}

enum ls_status ls_driver_check_filter(const struct ls_driver *driver)
{
    char text[320];
    const struct ls_driver_options *options = &driver->options;
    if (!filters(driver))
        return LS_OK;
    if (!driver->ops->needs_collective || driver->ops->placement ||
        driver->traits.divisor != LS_DIVISOR_GLOBAL ||
        driver->traits.equality != LS_EQUAL_EVERY_STEP) {
        snprintf(text, sizeof(text),
                 "strategy '%s' with these options does not sum the gradients of whole buckets in "
                 "each step; use mirrored, or leave --compress out",
                 ls_driver_name(driver));
        return refuse(driver, LS_USAGE, text);
    }
    if (options->wire)
        return refuse(driver, LS_USAGE, "--wire rounds what travels, too; leave one of both out");
    if (options->shards)
        return refuse(driver, LS_USAGE,
                      "--reproducible sums exactly what --compress rounds; leave one of both out");
    if (ls_optimizer_scales(&driver->optimizer))
        return refuse(driver, LS_USAGE,
                      "a loss scale changes the unit of what replicas still owe, which is not "
                      "done yet; use --loss-scale=none or mixed_bfloat16");
    if (driver->on_host)
        return LS_OK;
    snprintf(text, sizeof(text),
             "gradients are in the memory of device '%s', so far a filter works in host memory; "
             "use --device=cpu, or leave --compress out",
             options->parts[0].device_name);
    return refuse(driver, LS_UNAVAILABLE, text);
}

// ---- The layout of a bucket ----

static void describe(const struct ls_parameter_place *place, struct ls_filter_variable *out)
{
    const struct ls_shape *shape = ls_variable_shape(place->parameter);
    *out = (struct ls_filter_variable){.struct_size = sizeof(*out),
                                       .ndims = shape->ndims,
                                       .count = place->bytes / sizeof(float),
                                       .plain = place->layout.kind == LS_LAYOUT_PLAIN};
    for (uint32_t i = 0; i < shape->ndims; i++)
        out->dims[i] = shape->dims[i];
}

// `*of`: for each variable, its place.
static enum ls_status list_variables(const struct ls_driver *driver, uint32_t number,
                                     struct ls_filter_variable **out, uint32_t **of,
                                     uint32_t *count)
{
    const struct ls_bucket *bucket = &driver->buckets->list[number];
    const struct ls_parameter_plan *plan = driver->plan;
    *out = calloc((size_t)bucket->place_count + 1, sizeof(**out));
    *of = calloc((size_t)bucket->place_count + 1, sizeof(**of));
    *count = 0;
    if (!*out || !*of)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = bucket->first_place; i < bucket->first_place + bucket->place_count; i++)
        if (plan->places[i].offset >= plan->statistics_bytes) {
            (*of)[*count] = i;
            describe(&plan->places[i], &(*out)[(*count)++]);
        }
    return LS_OK;
}

static void add_piece(struct ls_filtered_bucket *own, uint64_t at, uint64_t count, bool filtered,
                      uint64_t packed)
{
    if (!count)
        return;
    own->pieces[own->piece_count++] = (struct piece){at, packed, count, filtered};
    own->plain_count += filtered ? 0 : count;
}

// `of`: the place of each variable that the plan was asked about.
static enum ls_status cut(const struct ls_driver *driver, uint32_t number, const uint32_t *of,
                          struct ls_filtered_bucket *own)
{
    const struct ls_filter_plan *plan = own->plan;
    uint64_t first, count, at = 0;
    ls_buckets_reduced(driver->buckets, number, &first, &count);
    own->pieces = calloc(2 * (size_t)plan->call.variable_count + 1, sizeof(*own->pieces));
    if (!own->pieces)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < plan->call.variable_count; i++) {
        const struct ls_filter_variable *variable = &plan->variables[i];
        const struct ls_parameter_place *place = &driver->plan->places[of[plan->taken[i]]];
        const uint64_t begin = LS_STEP_STATS + place->offset / sizeof(float) - first;
        add_piece(own, at, begin - at, false, own->plain_count);
        add_piece(own, begin, variable->count, true, variable->first);
        at = begin + variable->count;
    }
    add_piece(own, at, count - at, false, own->plain_count);
    return LS_OK;
}

static uint64_t aligned(uint64_t floats)
{
    const uint64_t unit = LS_ALIGNMENT / sizeof(float);
    return (floats + unit - 1) / unit * unit;
}

static enum ls_status allocate(struct ls_filtered_bucket *own)
{
    const uint64_t vector = aligned(own->plan->call.count), plain = aligned(own->plain_count);
    const uint64_t scratch =
        aligned((own->plan->scratch_bytes + sizeof(float) - 1) / sizeof(float));
    const uint64_t bytes = (VECTORS * vector + plain + scratch) * sizeof(float);
    own->memory = aligned_alloc(LS_ALIGNMENT, bytes);
    if (!own->memory)
        return LS_OUT_OF_MEMORY;
    memset(own->memory, 0, bytes);
    own->x = own->memory;
    own->residual = own->x + vector;
    own->next_residual = own->residual + vector;
    own->result = own->next_residual + vector;
    own->delivered = own->result + vector;
    own->plain = own->delivered + vector;
    own->scratch = (uint8_t *)(own->plain + plain);
    return LS_OK;
}

static enum ls_status open_plans(struct ls_communicator *communicator, uint32_t number,
                                 struct ls_filtered_bucket *own)
{
    struct ls_communicator_call call = {.operation = LS_ALL_REDUCE,
                                        .dtype = LS_F32,
                                        .reduction = LS_SUM,
                                        .buffer = ls_host_memory(own->plain),
                                        .count = own->plain_count};
    char label[48];
    enum ls_status status = LS_OK;
    snprintf(label, sizeof(label), "bucket %u, not filtered", number);
    if (call.count)
        status = ls_collective_plan_open(communicator, &call, label, &own->plain_plan);
    for (uint32_t i = 0; !status && i < own->plan->stage_count; i++) {
        const struct ls_filter_stage *stage = &own->plan->stages[i];
        if (!stage->collective)
            continue;
        call = (struct ls_communicator_call){.operation = stage->operation,
                                             .dtype = stage->dtype,
                                             .reduction = stage->reduction,
                                             .buffer = ls_host_memory(own->scratch + stage->offset),
                                             .count = stage->count};
        snprintf(label, sizeof(label), "bucket %u, stage %u", number, i + 1);
        status = ls_collective_plan_open(communicator, &call, label, &own->collectives[i]);
    }
    return status;
}

static void close_bucket(struct ls_filtered_bucket *own)
{
    if (!own)
        return;
    ls_collective_plan_destroy(own->plain_plan);
    for (uint32_t i = 0; i < LS_FILTER_STAGES; i++)
        ls_collective_plan_destroy(own->collectives[i]);
    ls_filter_plan_destroy(own->plan);
    free(own->pieces);
    free(own->memory);
    free(own);
}

// `*out` stays NULL where nothing of the bucket is filtered: then it is reduced as any other.
static enum ls_status open_bucket(struct ls_driver_member *member, uint32_t number,
                                  struct ls_filtered_bucket **out)
{
    const struct ls_driver *driver = member->driver;
    const struct ls_driver_plugin *filter = &driver->options.filter;
    struct ls_filter_variable *variables = NULL;
    uint32_t *of = NULL, count = 0;
    struct ls_filtered_bucket *own = calloc(1, sizeof(*own));
    enum ls_status status = own ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        status = list_variables(driver, number, &variables, &of, &count);
    if (!status)
        status = ls_filter_plan_create(filter->interface, filter->host, filter->plugin->name,
                                       driver->world, variables, count, &own->plan);
    if (!status && own->plan->stage_count) {
        status = cut(driver, number, of, own);
        if (!status)
            status = allocate(own);
        if (!status)
            status = open_plans(member->communicator, number, own);
        if (!status) {
            *out = own;
            own = NULL;
        }
    }
    close_bucket(own);
    free(variables);
    free(of);
    return status;
}

enum ls_status ls_driver_attach_filter(struct ls_driver *driver, uint32_t index)
{
    struct ls_driver_member *member = &driver->members[index];
    enum ls_status status = LS_OK;
    if (!filters(driver))
        return LS_OK;
    member->filtered = calloc(driver->bucket_count, sizeof(struct ls_filtered_bucket *));
    if (!member->filtered)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < driver->bucket_count; i++)
        status = open_bucket(member, i, &member->filtered[i]);
    return status;
}

void ls_driver_close_filter(struct ls_driver_member *member)
{
    for (uint32_t i = 0; member->filtered && i < member->driver->bucket_count; i++)
        close_bucket(member->filtered[i]);
    free(member->filtered);
    member->filtered = NULL;
}

struct ls_filtered_bucket *ls_driver_filtered(const struct ls_driver_member *member,
                                              uint32_t bucket)
{
    return member->filtered ? member->filtered[bucket] : NULL;
}

static enum ls_status try_bucket(const struct ls_filtered_bucket *own)
{
    enum ls_status status = own->plain_plan ? ls_collective_known_answer(own->plain_plan) : LS_OK;
    for (uint32_t i = 0; !status && i < LS_FILTER_STAGES; i++)
        if (own->collectives[i])
            status = ls_collective_known_answer(own->collectives[i]);
    return status;
}

enum ls_status ls_driver_try_filter(const struct ls_driver_member *member)
{
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && member->filtered && i < member->driver->bucket_count; i++)
        if (member->filtered[i])
            status = try_bucket(member->filtered[i]);
    return status;
}

uint64_t ls_driver_filtered_bytes(const struct ls_driver_member *member, uint32_t bucket)
{
    const struct ls_filtered_bucket *own = ls_driver_filtered(member, bucket);
    uint64_t bytes = own && own->plain_plan ? ls_collective_plan_bytes(own->plain_plan) : 0;
    for (uint32_t i = 0; own && i < LS_FILTER_STAGES; i++)
        bytes += own->collectives[i] ? ls_collective_plan_bytes(own->collectives[i]) : 0;
    return bytes;
}

// ---- A step ----

static float *gradients_of(const struct ls_driver_member *member, uint32_t bucket)
{
    return ls_address(ls_replica_bucket_memory(member->replica, LS_BUFFER_REDUCED, bucket));
}

// Runs local stages, and begins the collective one behind them.
static enum ls_status run_stages(const struct ls_driver_member *member,
                                 struct ls_filtered_bucket *own)
{
    const struct ls_filter_plan *plan = own->plan;
    const struct ls_filter_memory memory = {.struct_size = sizeof(memory),
                                            .rank = member->driver->first_rank + member->index,
                                            .x = own->x,
                                            .result = own->result,
                                            .delivered = own->delivered,
                                            .scratch = own->scratch};
    enum ls_status status = LS_OK;
    for (; !status && own->next < plan->stage_count && !own->collectives[own->next]; own->next++) {
        ls_trace_begin(&stage_span, own->next + 1);
        status = (enum ls_status)plan->interface->run(&plan->call, &memory,
                                                      plan->stages[own->next].function);
        ls_trace_end();
    }
    return status || own->next == plan->stage_count
               ? status
               : ls_collective_start(own->collectives[own->next]);
}

enum ls_status ls_driver_begin_filtered(struct ls_driver_member *member, uint32_t bucket)
{
    struct ls_filtered_bucket *own = member->filtered[bucket];
    const float *gradients = gradients_of(member, bucket);
    for (uint32_t i = 0; i < own->piece_count; i++) {
        const struct piece *piece = &own->pieces[i];
        const float *from = gradients + piece->at;
        if (!piece->filtered)
            memcpy(own->plain + piece->packed, from, piece->count * sizeof(float));
        for (uint64_t k = 0; piece->filtered && k < piece->count; k++)
            own->x[piece->packed + k] = from[k] + own->residual[piece->packed + k];
    }
    own->next = 0;
    own->begun = true;
    const enum ls_status status = own->plain_plan ? ls_collective_start(own->plain_plan) : LS_OK;
    return status ? status : run_stages(member, own);
}

// One collective stage further.
static enum ls_status advance(const struct ls_driver_member *member, struct ls_filtered_bucket *own)
{
    if (!own || !own->begun || own->next == own->plan->stage_count)
        return LS_OK;
    const enum ls_status status = ls_collective_wait(own->collectives[own->next]);
    if (status)
        return status;
    own->next++;
    return run_stages(member, own);
}

static void unpack(const struct ls_filtered_bucket *own, float *gradients)
{
    for (uint32_t i = 0; i < own->piece_count; i++) {
        const struct piece *piece = &own->pieces[i];
        const float *from = piece->filtered ? own->result : own->plain;
        memcpy(gradients + piece->at, from + piece->packed, piece->count * sizeof(float));
    }
}

// What was not finite is in the sum, and all replicas see it there. It is not owed as well: it
// would come back in each later step, whatever the caller has done about the first one.
static void leave(const struct ls_filtered_bucket *own)
{
    for (uint64_t i = 0; i < own->plan->call.count; i++) {
        const float left = own->x[i] - own->delivered[i];
        own->next_residual[i] = fabsf(left) <= FLT_MAX ? left : 0;
    }
}

enum ls_status ls_driver_finish_filtered(struct ls_driver_member *member, uint32_t bucket)
{
    struct ls_filtered_bucket *own = member->filtered[bucket];
    enum ls_status status = LS_OK;
    if (!own->begun)
        return LS_OK;
    while (!status && own->next < own->plan->stage_count)
        for (uint32_t i = bucket; !status && i < member->driver->bucket_count; i++)
            status = advance(member, member->filtered[i]);
    if (!status && own->plain_plan)
        status = ls_collective_wait(own->plain_plan);
    if (status)
        return status;
    leave(own);
    unpack(own, gradients_of(member, bucket));
    own->begun = false;
    own->owes = true;
    return LS_OK;
}

void ls_driver_settle_filtered(const struct ls_driver_member *member, uint32_t bucket)
{
    struct ls_filtered_bucket *own = ls_driver_filtered(member, bucket);
    if (!own || !own->owes)
        return;
    float *residual = own->residual;
    own->residual = own->next_residual;
    own->next_residual = residual;
    own->owes = false;
}

// ---- What replicas owe, for checkpoints ----

uint64_t ls_driver_residual_count(const struct ls_driver *driver)
{
    return driver->members[0].filtered ? driver->table.flat_count : 0;
}

static void copy_residual(const struct ls_driver_member *member, float *out, const float *in)
{
    const struct ls_driver *driver = member->driver;
    for (uint32_t bucket = 0; member->filtered && bucket < driver->bucket_count; bucket++) {
        const struct ls_filtered_bucket *own = member->filtered[bucket];
        uint64_t first, count;
        ls_buckets_reduced(driver->buckets, bucket, &first, &count);
        for (uint32_t i = 0; own && i < own->piece_count; i++) {
            const struct piece *piece = &own->pieces[i];
            const uint64_t flat = first + piece->at - LS_STEP_STATS;
            if (piece->filtered && out)
                memcpy(out + flat, own->residual + piece->packed, piece->count * sizeof(float));
            else if (piece->filtered)
                memcpy(own->residual + piece->packed, in + flat, piece->count * sizeof(float));
        }
    }
}

void ls_driver_read_residual(const struct ls_driver *driver, uint32_t replica, float *out)
{
    memset(out, 0, ls_driver_residual_count(driver) * sizeof(float));
    copy_residual(&driver->members[replica], out, NULL);
}

void ls_driver_set_residual(struct ls_driver *driver, uint32_t replica, const float *values)
{
    copy_residual(&driver->members[replica], NULL, values);
}
