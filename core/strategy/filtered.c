// SPDX-License-Identifier: Apache-2.0
// Ranges whose sum a filter makes (--compress, core/plugin/filter.h): buckets, and what a strategy
// prepares on ranges of gradients or of differences. The way of such a range:
//
//   begin    what travels as it is is packed, and its plain all-reduce begins; x = values +
//            residual of what the filter takes; its stages run up to the first collective
//   finish   the other stages, of all ranges in turn, so that one travels while another is
//            computed; the sums go back to where the values were, or where the rank keeps its part
//   settle   the step counts: residual = x - delivered; the shared memory is what the stages made
//
// Until the filter begins to work, such a range is reduced like any other, and nothing of this
// happens.
//
// Collectives begin in the same order on all ranks: the stages after the first collective of a
// range wait for `finish`, because when one ends is another moment on each rank. From begin on a
// range has all that it needs in memory of its own, so that others may write where it was.
#include "core/strategy/internal.h"

#include "core/base/caller.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/trace.h"
#include "core/filter/filter.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VECTORS 4 // of as many floats as x

// Floats of the range, one after the other, as they are in a packed buffer.
struct piece {
    uint64_t at; // in the range
    uint64_t packed; // in x, or in what travels plain
    uint64_t count; // packed
    bool filtered;
    uint32_t *order; // where each element is from `at`, in the order of Keras; NULL: as it is there
};

// Floats of the range that the replica gets of the sums, and where it has them.
struct window {
    uint64_t first, count;
    float *to;
};

struct ls_filtered {
    struct ls_filtered *next; // of the member
    struct ls_filtered_range range;
    struct window windows[2]; // the sums of the step; gradients
    struct ls_filter_plan *plan;
    struct piece *pieces;
    uint32_t piece_count;
    float *memory; // of all that follow
    uint64_t memory_bytes;
    float *x, *residual, *result, *delivered, *plain; // x becomes the next residual
    uint8_t *scratch, *shared, *next_shared;
    uint64_t plain_count;
    struct ls_collective_plan *plain_plan;
    struct ls_collective_plan *collectives[LS_FILTER_STAGES]; // NULL: that stage is local
    uint32_t next_stage; // of the step under way; a collective one has begun
    float scale; // of the loss, in that step
    bool begun, owes; // what follows from the last step is to be settled
};

static const struct ls_trace_label stage_span = {
    .category = "strategy", .name = "filter", .value = "stage"};

bool ls_driver_filters(const struct ls_driver *driver)
{
    return driver->options.filter.plugin && driver->world > 1;
}

// How many updates are made before it works.
static uint64_t begins(const struct ls_driver *driver)
{
    const struct ls_driver_plugin *filter = &driver->options.filter;
    const struct ls_filter_interface *interface = filter->interface;
    return interface->begins ? interface->begins(filter->host) : 0;
}

bool ls_driver_begins_plain(const struct ls_driver *driver)
{
    return ls_driver_filters(driver) && begins(driver);
}

bool ls_driver_filters_update(const struct ls_driver *driver, uint64_t update)
{
    return ls_driver_filters(driver) && update > begins(driver);
}

// ---- What it needs ----

static enum ls_status refuse(const struct ls_driver *driver, enum ls_status status, const char *why)
{
    ls_error("--compress", "%s: %s", driver->options.filter.plugin->name, why);
    return status;
}

// All replicas make the same calls, and one says it.
enum ls_status ls_driver_refuse_filter(struct ls_driver *driver, const char *what)
{
    ls_caller_note_reason();
    if (!atomic_exchange(&driver->filter_refused, true))
        ls_error("--compress", "strategy '%s' %s, which no filter does; leave --compress out",
                 ls_driver_name(driver), what);
    return LS_USAGE;
}

enum ls_status ls_driver_check_filter(const struct ls_driver *driver)
{
    char text[320];
    const struct ls_driver_options *options = &driver->options;
    const bool each_step = driver->traits.divisor == LS_DIVISOR_GLOBAL &&
                           driver->traits.equality == LS_EQUAL_EVERY_STEP;
    if (!ls_driver_filters(driver))
        return LS_OK;
    if (!driver->ops->needs_collective || !(each_step || driver->ops->rounds)) {
        snprintf(text, sizeof(text),
                 "strategy '%s' with these options sums no gradients with a collective; use "
                 "mirrored, sharded or diloco, or leave --compress out",
                 ls_driver_name(driver));
        return refuse(driver, LS_USAGE, text);
    }
    if (options->wire)
        return refuse(driver, LS_USAGE, "--wire rounds what travels, too; leave one of both out");
    if (options->shards)
        return refuse(driver, LS_USAGE,
                      "--reproducible sums exactly what --compress rounds; leave one of both out");
    if (driver->on_host)
        return LS_OK;
    snprintf(text, sizeof(text),
             "gradients are in the memory of device '%s', so far a filter works in host memory; "
             "use --device=cpu, or leave --compress out",
             options->parts[0].device_name);
    return refuse(driver, LS_UNAVAILABLE, text);
}

// ---- The layout of a range ----

// In a reduce-scatter of the filter a rank's part is one of the device's order.
static bool scatters(const struct ls_driver *driver, const struct ls_filtered_range *range)
{
    const struct ls_filter_interface *interface = driver->options.filter.interface;
    return range->operation == LS_REDUCE_SCATTER && interface->scatters;
}

static void describe(const struct ls_parameter_place *place, bool plain,
                     struct ls_filter_variable *out)
{
    const struct ls_shape *shape = ls_variable_shape(place->parameter);
    const uint64_t elements = (uint64_t)ls_shape_elements(shape, 1);
    *out = (struct ls_filter_variable){.struct_size = sizeof(*out),
                                       .ndims = shape->ndims,
                                       .count = plain ? elements : place->bytes / sizeof(float),
                                       .plain = plain};
    for (uint32_t i = 0; i < shape->ndims; i++)
        out->dims[i] = shape->dims[i];
}

// Variables that are wholly in the range and that gradients train; `first`: where in the range.
// `*of`: for each, its place.
static enum ls_status list_variables(const struct ls_driver *driver,
                                     const struct ls_filtered_range *range,
                                     struct ls_filter_variable **out, uint32_t **of,
                                     uint32_t *count)
{
    const struct ls_parameter_plan *plan = driver->plan;
    const bool own_order = scatters(driver, range);
    *out = calloc((size_t)plan->reduced_count + 1, sizeof(**out));
    *of = calloc((size_t)plan->reduced_count + 1, sizeof(**of));
    *count = 0;
    if (!*out || !*of)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < plan->reduced_count; i++) {
        const struct ls_parameter_place *place = &plan->places[i];
        const uint64_t first = LS_STEP_STATS + place->offset / sizeof(float);
        const uint64_t end = first + place->bytes / sizeof(float);
        if (place->offset < plan->statistics_bytes || first < range->first ||
            end > range->first + range->count)
            continue;
        describe(place, !own_order || place->layout.kind == LS_LAYOUT_PLAIN, &(*out)[*count]);
        (*out)[*count].first = first - range->first;
        (*of)[(*count)++] = i;
    }
    return LS_OK;
}

static void add_piece(struct ls_filtered *own, uint64_t at, uint64_t count, bool filtered,
                      uint64_t packed)
{
    if (!count)
        return;
    own->pieces[own->piece_count++] = (struct piece){at, packed, count, filtered, NULL};
    own->plain_count += filtered ? 0 : count;
}

// `offered`: the variables that the plan was asked about; `of`: their places.
static enum ls_status cut(const struct ls_driver_member *member,
                          const struct ls_filter_variable *offered, const uint32_t *of,
                          struct ls_filtered *own)
{
    const struct ls_filter_plan *plan = own->plan;
    const struct ls_parameter_plan *places = ls_replica_plan(member->replica);
    enum ls_status status = LS_OK;
    uint64_t at = 0;
    own->pieces = calloc(2 * (size_t)plan->call.variable_count + 1, sizeof(*own->pieces));
    if (!own->pieces)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < plan->call.variable_count; i++) {
        const struct ls_filter_variable *variable = &plan->variables[i];
        const uint32_t place = of[plan->taken[i]];
        const uint64_t begin = offered[plan->taken[i]].first;
        add_piece(own, at, begin - at, false, own->plain_count);
        add_piece(own, begin, variable->count, true, variable->first);
        if (variable->plain)
            status = ls_plan_order(places, place, &own->pieces[own->piece_count - 1].order);
        at = begin + places->places[place].bytes / sizeof(float);
    }
    add_piece(own, at, own->range.count - at, false, own->plain_count);
    return status;
}

// What the replica gets: the range, its own part of it, or what it holds of the bucket.
static void find_windows(const struct ls_driver_member *member, struct ls_filtered *own)
{
    const struct ls_driver *driver = member->driver;
    const struct ls_filtered_range *range = &own->range;
    const uint64_t sums = range->first < LS_STEP_STATS ? LS_STEP_STATS - range->first : 0;
    const struct ls_range all = ls_data_range(0, range->count);
    const uint32_t rank = driver->first_rank + member->index;
    const struct ls_range part =
        range->operation == LS_REDUCE_SCATTER ? ls_part(all, rank, driver->world) : all;
    const uint64_t begin = part.offset > sums ? part.offset : sums;
    const uint64_t end = part.offset + part.count > begin ? part.offset + part.count : begin;
    own->windows[0] = (struct window){0, sums, range->values};
    own->windows[1] = (struct window){begin, end - begin, range->values + begin};
    if (!range->kept)
        return;
    const struct ls_held_range held =
        ls_replica_held(member->replica, LS_HELD_GRADIENTS, range->bucket);
    own->windows[1] = (struct window){
        LS_STEP_STATS + held.first - range->first, held.count,
        ls_address(ls_replica_held_memory(member->replica, LS_BUFFER_GRADIENTS, range->bucket))};
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + LS_ALIGNMENT - 1) / LS_ALIGNMENT * LS_ALIGNMENT;
}

static enum ls_status allocate(struct ls_filtered *own)
{
    const struct ls_filter_plan *plan = own->plan;
    const uint64_t vector = aligned(plan->call.count * sizeof(float)) / sizeof(float);
    const uint64_t plain = aligned(own->plain_count * sizeof(float)) / sizeof(float);
    const uint64_t scratch = aligned(plan->scratch_bytes), shared = aligned(plan->shared_bytes);
    own->memory_bytes = (VECTORS * vector + plain) * sizeof(float) + scratch + 2 * shared;
    own->memory = aligned_alloc(LS_ALIGNMENT, own->memory_bytes);
    if (!own->memory)
        return LS_OUT_OF_MEMORY;
    memset(own->memory, 0, own->memory_bytes);
    own->x = own->memory;
    own->residual = own->x + vector;
    own->result = own->residual + vector;
    own->delivered = own->result + vector;
    own->plain = own->delivered + vector;
    own->scratch = (uint8_t *)(own->plain + plain);
    own->shared = own->scratch + scratch;
    own->next_shared = own->shared + shared;
    return LS_OK;
}

static enum ls_status open_plans(struct ls_communicator *communicator, struct ls_filtered *own)
{
    struct ls_communicator_call call = {.operation = LS_ALL_REDUCE,
                                        .dtype = LS_F32,
                                        .reduction = LS_SUM,
                                        .buffer = ls_host_memory(own->plain),
                                        .count = own->plain_count};
    const char *name = own->range.label;
    char label[64];
    enum ls_status status = LS_OK;
    snprintf(label, sizeof(label), "%s, not filtered", name);
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
        snprintf(label, sizeof(label), "%s, stage %u", name, i + 1);
        status = ls_collective_plan_open(communicator, &call, label, &own->collectives[i]);
    }
    return status;
}

static void close_range(struct ls_filtered *own)
{
    if (!own)
        return;
    ls_collective_plan_destroy(own->plain_plan);
    for (uint32_t i = 0; i < LS_FILTER_STAGES; i++)
        ls_collective_plan_destroy(own->collectives[i]);
    ls_filter_plan_destroy(own->plan);
    for (uint32_t i = 0; i < own->piece_count; i++)
        free(own->pieces[i].order);
    free(own->pieces);
    free(own->memory);
    free(own);
}

static enum ls_status make_plan(const struct ls_driver *driver,
                                const struct ls_filter_variable *variables, uint32_t count,
                                struct ls_filtered *own)
{
    const struct ls_driver_plugin *filter = &driver->options.filter;
    const struct ls_filter_interface *interface = filter->interface;
    const struct ls_range all = ls_data_range(0, own->range.count);
    const bool in_parts = scatters(driver, &own->range);
    uint64_t *ends = in_parts ? calloc(driver->world, sizeof(*ends)) : NULL;
    if (in_parts && !ends)
        return LS_OUT_OF_MEMORY;
    for (uint32_t rank = 0; in_parts && rank < driver->world; rank++) {
        const struct ls_range part = ls_part(all, rank, driver->world);
        ends[rank] = part.offset + part.count;
    }
    const enum ls_status status =
        ls_filter_plan_create(interface, filter->host, filter->plugin->name, driver->world,
                              variables, count, ends, &own->plan);
    free(ends);
    return status;
}

// The last one of the member's, so that ranges are in the same order on all ranks.
static void append(struct ls_driver_member *member, struct ls_filtered *own)
{
    struct ls_filtered **last = &member->filtered_ranges;
    while (*last)
        last = &(*last)->next;
    *last = own;
}

enum ls_status ls_driver_open_filtered(struct ls_driver_member *member,
                                       const struct ls_filtered_range *range,
                                       struct ls_filtered **out)
{
    struct ls_filter_variable *variables = NULL;
    uint32_t *of = NULL, count = 0;
    struct ls_filtered *own = calloc(1, sizeof(*own));
    *out = NULL;
    if (!own)
        return LS_OUT_OF_MEMORY;
    own->range = *range;
    enum ls_status status = list_variables(member->driver, range, &variables, &of, &count);
    if (!status)
        status = make_plan(member->driver, variables, count, own);
    if (!status && own->plan->stage_count) {
        find_windows(member, own);
        status = cut(member, variables, of, own);
        if (!status)
            status = allocate(own);
        if (!status)
            status = open_plans(member->communicator, own);
        if (!status) {
            own->range.label = NULL; // the caller's
            append(member, own);
            *out = own;
            own = NULL;
        }
    }
    close_range(own);
    free(variables);
    free(of);
    return status;
}

// What is owed is kept by its place in the flat buffer, so that only one range can owe it.
enum ls_status ls_driver_check_overlap(const struct ls_driver_member *member,
                                       const struct ls_filtered_range *range)
{
    for (const struct ls_filtered *own = member->filtered_ranges; own; own = own->next)
        if (range->first < own->range.first + own->range.count &&
            own->range.first < range->first + range->count)
            return ls_driver_refuse_filter(member->driver, "sums some variables in two ranges");
    return LS_OK;
}

static enum ls_status open_bucket(struct ls_driver_member *member, uint32_t number)
{
    char label[32];
    struct ls_filtered_range range = {.operation = LS_ALL_REDUCE, .bucket = number, .label = label};
    snprintf(label, sizeof(label), "bucket %u", number);
    ls_buckets_reduced(member->driver->buckets, number, &range.first, &range.count);
    range.values = ls_address(ls_replica_bucket_memory(member->replica, LS_BUFFER_REDUCED, number));
    return ls_driver_open_filtered(member, &range, &member->filtered[number]);
}

enum ls_status ls_driver_attach_filter(struct ls_driver *driver, uint32_t index)
{
    struct ls_driver_member *member = &driver->members[index];
    enum ls_status status = LS_OK;
    member->filters = ls_driver_filters(driver) && !begins(driver);
    if (!ls_driver_filters(driver) || driver->ops->placement || driver->ops->rounds)
        return LS_OK;
    member->filtered = calloc(driver->bucket_count, sizeof(struct ls_filtered *));
    if (!member->filtered)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < driver->bucket_count; i++)
        status = open_bucket(member, i);
    return status;
}

void ls_driver_close_filter(struct ls_driver_member *member)
{
    while (member->filtered_ranges) {
        struct ls_filtered *own = member->filtered_ranges;
        member->filtered_ranges = own->next;
        close_range(own);
    }
    free(member->filtered);
    member->filtered = NULL;
}

bool ls_driver_reduces_plain(const struct ls_driver_member *member, uint32_t bucket)
{
    return !member->filtered || !member->filtered[bucket] || begins(member->driver);
}

struct ls_filtered *ls_driver_filtered(const struct ls_driver_member *member, uint32_t bucket)
{
    return member->filtered && member->filters ? member->filtered[bucket] : NULL;
}

enum ls_status ls_driver_try_filtered(const struct ls_filtered *own)
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
    for (const struct ls_filtered *own = member->filtered_ranges; !status && own; own = own->next)
        status = ls_driver_try_filtered(own);
    return status;
}

uint64_t ls_driver_filtered_bytes(const struct ls_filtered *own)
{
    uint64_t bytes = own && own->plain_plan ? ls_collective_plan_bytes(own->plain_plan) : 0;
    for (uint32_t i = 0; own && i < LS_FILTER_STAGES; i++)
        bytes += own->collectives[i] ? ls_collective_plan_bytes(own->collectives[i]) : 0;
    return bytes;
}

uint64_t ls_driver_filter_memory(const struct ls_driver *driver)
{
    uint64_t bytes = 0;
    for (const struct ls_filtered *own = driver->members[0].filtered_ranges; own; own = own->next) {
        bytes += own->memory_bytes;
        for (uint32_t i = 0; i < own->piece_count; i++)
            bytes += own->pieces[i].order ? own->pieces[i].count * sizeof(uint32_t) : 0;
    }
    return bytes;
}

// ---- A step ----

// `from`: where the piece begins.
static void gather(const struct piece *piece, const float *from, float *packed)
{
    if (!piece->order)
        memcpy(packed, from, piece->count * sizeof(float));
    for (uint64_t i = 0; piece->order && i < piece->count; i++)
        packed[i] = from[piece->order[i]];
}

// What of the piece is in the window. Padding stays as it is.
static void scatter(const struct piece *piece, const float *packed, const struct window *window)
{
    const uint64_t window_end = window->first + window->count;
    const uint64_t begin = piece->at > window->first ? piece->at : window->first;
    const uint64_t end =
        piece->at + piece->count < window_end ? piece->at + piece->count : window_end;
    if (!piece->order && begin < end)
        memcpy(window->to + (begin - window->first), packed + (begin - piece->at),
               (end - begin) * sizeof(float));
    for (uint64_t i = 0; piece->order && i < piece->count; i++) {
        const uint64_t at = piece->at + piece->order[i];
        if (at >= window->first && at < window_end)
            window->to[at - window->first] = packed[i];
    }
}

// Runs local stages, and begins the collective one behind them.
static enum ls_status run_stages(const struct ls_driver_member *member, struct ls_filtered *own)
{
    const struct ls_filter_plan *plan = own->plan;
    const struct ls_filter_memory memory = {.struct_size = sizeof(memory),
                                            .rank = member->driver->first_rank + member->index,
                                            .x = own->x,
                                            .result = own->result,
                                            .delivered = own->delivered,
                                            .scratch = own->scratch,
                                            .shared = own->next_shared};
    enum ls_status status = LS_OK;
    for (; !status && own->next_stage < plan->stage_count && !own->collectives[own->next_stage];
         own->next_stage++) {
        ls_trace_begin(&stage_span, own->next_stage + 1);
        status = (enum ls_status)plan->interface->run(&plan->call, &memory,
                                                      plan->stages[own->next_stage].function);
        ls_trace_end();
    }
    return status || own->next_stage == plan->stage_count
               ? status
               : ls_collective_start(own->collectives[own->next_stage]);
}

// Gradients are those of the scaled loss, and so is x; what is owed has no scale.
static float scale_of(const struct ls_driver_member *member)
{
    return ls_optimizer_scales(&member->driver->optimizer)
               ? ls_replica_scale(member->replica)->scale
               : 1;
}

enum ls_status ls_driver_begin_filtered(const struct ls_driver_member *member,
                                        struct ls_filtered *own)
{
    own->scale = scale_of(member);
    for (uint32_t i = 0; i < own->piece_count; i++) {
        const struct piece *piece = &own->pieces[i];
        const float *residual = own->residual + piece->packed;
        float *to = (piece->filtered ? own->x : own->plain) + piece->packed;
        gather(piece, own->range.values + piece->at, to);
        for (uint64_t k = 0; piece->filtered && k < piece->count; k++)
            to[k] += residual[k] * own->scale;
    }
    memcpy(own->next_shared, own->shared, own->plan->shared_bytes);
    own->next_stage = 0;
    own->begun = true;
    own->owes = false;
    const enum ls_status status = own->plain_plan ? ls_collective_start(own->plain_plan) : LS_OK;
    return status ? status : run_stages(member, own);
}

bool ls_driver_has_taken(const struct ls_driver_member *member, uint32_t bucket)
{
    for (const struct ls_filtered *own = member->filtered_ranges; own; own = own->next)
        if (own->range.kept && own->range.bucket == bucket && own->begun)
            return true;
    return false;
}

// One collective stage further.
static enum ls_status advance(const struct ls_driver_member *member, struct ls_filtered *own)
{
    if (!own->begun || own->next_stage == own->plan->stage_count)
        return LS_OK;
    const enum ls_status status = ls_collective_wait(own->collectives[own->next_stage]);
    if (status)
        return status;
    own->next_stage++;
    return run_stages(member, own);
}

static void unpack(const struct ls_filtered *own, const struct window *window)
{
    for (uint32_t i = 0; i < own->piece_count; i++) {
        const struct piece *piece = &own->pieces[i];
        scatter(piece, (piece->filtered ? own->result : own->plain) + piece->packed, window);
    }
}

// What was not finite is in the sum, and all replicas see it there. It is not owed as well: it
// would come back in each later step, whatever the caller has done about the first one.
static void leave(const struct ls_filtered *own)
{
    for (uint64_t i = 0; i < own->plan->call.count; i++) {
        const float left = (own->x[i] - own->delivered[i]) / own->scale;
        own->x[i] = fabsf(left) <= FLT_MAX ? left : 0;
    }
}

enum ls_status ls_driver_finish_filtered(const struct ls_driver_member *member,
                                         struct ls_filtered *own)
{
    enum ls_status status = LS_OK;
    if (!own->begun)
        return LS_OK;
    while (!status && own->next_stage < own->plan->stage_count)
        for (struct ls_filtered *each = member->filtered_ranges; !status && each; each = each->next)
            status = advance(member, each);
    if (!status && own->plain_plan)
        status = ls_collective_wait(own->plain_plan);
    if (status)
        return status;
    leave(own);
    unpack(own, &own->windows[0]);
    unpack(own, &own->windows[1]);
    own->begun = false;
    own->owes = true;
    return LS_OK;
}

void ls_driver_settle_filtered(struct ls_filtered *own)
{
    float *residual = own->residual;
    if (!own->owes)
        return;
    uint8_t *shared = own->shared;
    own->residual = own->x;
    own->x = residual;
    own->shared = own->next_shared;
    own->next_shared = shared;
    own->owes = false;
}

void ls_driver_settle_filter(const struct ls_driver_member *member)
{
    const bool skipped = ls_optimizer_scales(&member->driver->optimizer) &&
                         ls_replica_scale(member->replica)->skipped_in_row > 0;
    for (struct ls_filtered *own = member->filtered_ranges; own && !skipped; own = own->next)
        ls_driver_settle_filtered(own);
}

// ---- What replicas owe, for checkpoints ----

uint64_t ls_driver_residual_count(const struct ls_driver *driver)
{
    return ls_driver_filters(driver) ? driver->table.flat_count : 0;
}

// Between the residual and a flat buffer.
static void copy_residual(const struct ls_driver_member *member, float *out, const float *in)
{
    for (const struct ls_filtered *own = member->filtered_ranges; own; own = own->next)
        for (uint32_t i = 0; i < own->piece_count; i++) {
            const struct piece *piece = &own->pieces[i];
            if (!piece->filtered) // the sums of the step, which lie before the flat buffer
                continue;
            const uint64_t flat = own->range.first + piece->at - LS_STEP_STATS;
            float *residual = own->residual + piece->packed;
            if (out)
                scatter(piece, residual,
                        &(struct window){piece->at, UINT64_MAX - piece->at, out + flat});
            else
                gather(piece, in + flat, residual);
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

// ---- What all ranks share, for checkpoints ----

uint64_t ls_driver_shared_bytes(const struct ls_driver *driver)
{
    uint64_t bytes = 0;
    for (const struct ls_filtered *own = driver->members[0].filtered_ranges; own; own = own->next)
        bytes += own->plan->shared_bytes;
    return bytes;
}

static void add_text(struct ls_hash *hash, const char *text)
{
    ls_hash_add(hash, text ? text : "", text ? strlen(text) + 1 : 1);
}

static void add_range(struct ls_hash *hash, const struct ls_filter_plan *plan)
{
    for (uint32_t i = 0; i < plan->call.variable_count; i++) {
        const struct ls_filter_variable *variable = &plan->variables[i];
        ls_hash_add(hash, variable->dims, sizeof(variable->dims));
        ls_hash_add(hash, &variable->count, sizeof(variable->count));
        ls_hash_add(hash, &variable->plain, sizeof(variable->plain));
    }
    ls_hash_add(hash, &plan->shared_bytes, sizeof(plan->shared_bytes));
}

enum ls_status ls_driver_shared_key(const struct ls_driver *driver, uint64_t *out)
{
    const struct ls_driver_plugin *filter = &driver->options.filter;
    struct ls_hash *hash = ls_hash_create();
    if (!hash)
        return LS_OUT_OF_MEMORY;
    add_text(hash, filter->plugin->name);
    for (const struct ls_plugin_option *i = filter->plugin->options; i && i->name; i++) {
        add_text(hash, i->name);
        add_text(hash, filter->host->option(filter->host, i->name));
    }
    for (const struct ls_filtered *own = driver->members[0].filtered_ranges; own; own = own->next)
        add_range(hash, own->plan);
    *out = ls_hash_get(hash);
    ls_hash_destroy(hash);
    return LS_OK;
}

void ls_driver_read_shared(const struct ls_driver *driver, uint8_t *out)
{
    const struct ls_filtered *own = driver->members[0].filtered_ranges;
    for (; own; out += own->plan->shared_bytes, own = own->next)
        memcpy(out, own->shared, own->plan->shared_bytes);
}

void ls_driver_set_shared(struct ls_driver *driver, uint32_t replica, const uint8_t *values)
{
    struct ls_filtered *own = driver->members[replica].filtered_ranges;
    for (; own; values += own->plan->shared_bytes, own = own->next)
        memcpy(own->shared, values, own->plan->shared_bytes);
}
