// SPDX-License-Identifier: Apache-2.0
// central-storage: variables live once, on the host; every replica computes on its share of the batch. The gradients
// meet on the host, where each replica's thread adds up one range of them, always in the order of the ranks, and makes
// the update of that range. Then every replica takes the new values. A clip by the norm of all gradients costs one more
// meeting, after each range is measured.
// Bytes of a replica in a step: it sends its gradients and takes the variables, as much as the model each. Waits: two.
#include "core/plugin/strategy.h"

#include <string.h>

#define LINE 16 // floats: ranges do not share cache lines
#define BLOCK 4096 // floats that are added up while they are in the cache

// What belongs to one replica, which alone writes it between two meetings.
struct seat {
    uint64_t first, count; // the range that its thread updates
    struct ls_store *store; // NULL: the range is empty
    float *sum; // of that range's gradients; NULL with one replica
    float *gradients; // all of this replica's, in host memory
    float *copied; // the same where the device's memory is its own; else NULL
    float sums[LS_STRATEGY_SUMS];
};

struct ls_strategy {
    const struct ls_strategy_host *host;
    struct seat *seats;
};

static void *allocate(const struct ls_strategy_host *host, uint64_t bytes)
{
    void *memory = host->host->allocate(host->host, bytes, 64);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

static void release(const struct ls_strategy_host *host, void *memory)
{
    host->host->release(host->host, memory);
}

// ---- Opening and closing ----

static void central_close(struct ls_strategy *strategy)
{
    const struct ls_strategy_host *host = strategy->host;
    for (uint32_t i = 0; strategy->seats && i < host->replicas; i++) {
        host->stores->close(host, strategy->seats[i].store);
        release(host, strategy->seats[i].sum);
        release(host, strategy->seats[i].copied);
    }
    release(host, strategy->seats);
}

// The beginning of the variable that has float `at`, or the end of all.
static uint64_t begin_of_variable(const struct ls_strategy_host *host, uint64_t at)
{
    uint64_t begin = 0;
    for (uint32_t i = 0; at < host->flat_count && i < host->variable_count; i++) {
        uint64_t first, count;
        host->layout->variable_range(host, i, &first, &count);
        if (first <= at && first > begin)
            begin = first;
    }
    return at < host->flat_count ? begin : host->flat_count;
}

// Ranges of whole lines, as equal as they can be; of whole variables, where the optimizer needs them.
static void cut(const struct ls_strategy_host *host, uint32_t replica, struct seat *seat)
{
    const uint64_t lines = (host->flat_count + LINE - 1) / LINE;
    const uint64_t each = lines / host->replicas, more = lines % host->replicas;
    uint64_t first = (each * replica + (replica < more ? replica : more)) * LINE;
    uint64_t end = first + (each + (replica < more)) * LINE;
    if (host->norms & LS_NORM_OF_VARIABLES) {
        first = begin_of_variable(host, first);
        end = begin_of_variable(host, end);
    }
    end = end < host->flat_count ? end : host->flat_count;
    seat->first = first < end ? first : end;
    seat->count = end - seat->first;
}

static int32_t seat_init(const struct ls_strategy_host *host, uint32_t replica, struct seat *seat)
{
    cut(host, replica, seat);
    if (!seat->count)
        return LS_OK;
    if (host->replicas > 1) {
        seat->sum = (float *)allocate(host, seat->count * sizeof(float));
        if (!seat->sum)
            return LS_OUT_OF_MEMORY;
    }
    return host->stores->open(host, seat->first, seat->count, &seat->store);
}

static int32_t central_open(const struct ls_strategy_host *host, struct ls_strategy *strategy)
{
    if (host->replicas != host->world)
        return ls_host_fail(host->host, LS_UNAVAILABLE,
                            "variables live in the memory of one worker, which has %u of the %u "
                            "replicas; use one worker, or choose mirrored",
                            host->replicas, host->world);
    strategy->host = host;
    strategy->seats = (struct seat *)allocate(host, host->replicas * sizeof(struct seat));
    int32_t status = strategy->seats ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < host->replicas; i++)
        status = seat_init(host, i, &strategy->seats[i]);
    if (status)
        central_close(strategy);
    return status;
}

// ---- A step ----

// Takes all variables, which nobody writes now.
static int32_t take_values(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    float *parameters = host->memory->map(host, replica, LS_REPLICA_PARAMETERS);
    int32_t status = LS_OK;
    for (uint32_t i = 0; !status && i < host->replicas; i++) {
        const struct seat *from = &strategy->seats[i];
        if (!from->count)
            continue;
        const float *values = host->stores->values(host, from->store);
        if (parameters)
            memcpy(parameters + from->first, values, from->count * sizeof(float));
        else
            status = host->memory->write(host, replica, LS_REPLICA_PARAMETERS, from->first,
                                         from->count, values);
    }
    if (parameters)
        host->memory->changed(host, replica);
    return status;
}

// Finds the gradients of the replica, or takes memory for a copy.
static int32_t central_initialize(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    struct seat *seat = &strategy->seats[replica];
    seat->gradients = host->memory->map(host, replica, LS_REPLICA_GRADIENTS);
    if (!seat->gradients && !seat->copied)
        seat->copied = (float *)allocate(host, (host->flat_count + 1) * sizeof(float));
    if (!seat->gradients)
        seat->gradients = seat->copied;
    return seat->gradients ? take_values(strategy, replica) : LS_OUT_OF_MEMORY;
}

// Optimizer states are in the stores.
static void central_placement(struct ls_strategy *strategy, uint32_t rank, uint32_t bucket,
                              struct ls_strategy_placement *out)
{
    (void)strategy;
    (void)rank;
    (void)bucket;
    out->states.count = 0;
}

static int32_t central_gradient_ready(struct ls_strategy *strategy, uint32_t replica,
                                      uint32_t bucket)
{
    const struct ls_strategy_host *host = strategy->host;
    const struct seat *seat = &strategy->seats[replica];
    uint64_t first, count;
    if (!seat->copied)
        return LS_OK;
    host->layout->bucket_range(host, bucket, &first, &count);
    return host->memory->read(host, replica, LS_REPLICA_GRADIENTS, first, count,
                              seat->copied + first);
}

// The sums of the global batch, the same on all replicas.
static int32_t decide(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    float sums[LS_STRATEGY_SUMS];
    memcpy(sums, strategy->seats[0].sums, sizeof(sums));
    for (uint32_t i = 1; i < host->replicas; i++)
        for (uint32_t k = 0; k < LS_STRATEGY_SUMS; k++)
            sums[k] += strategy->seats[i].sums[k];
    return host->step->check_step_on(host, replica, sums);
}

static void add(float *to, const float *from, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        to[i] += from[i];
}

// Where the sum of all replicas' gradients in the seat's range is.
static const float *seat_gradient(const struct seat *seat)
{
    return seat->sum ? seat->sum : seat->gradients + seat->first;
}

static void add_up(const struct ls_strategy *strategy, const struct seat *seat)
{
    const uint32_t replicas = strategy->host->replicas;
    for (uint64_t at = 0; replicas > 1 && at < seat->count; at += BLOCK) {
        const uint64_t left = seat->count - at, count = left < BLOCK ? left : BLOCK;
        memcpy(seat->sum + at, strategy->seats[0].gradients + seat->first + at,
               count * sizeof(float));
        for (uint32_t i = 1; i < replicas; i++)
            add(seat->sum + at, strategy->seats[i].gradients + seat->first + at, count);
    }
}

static int32_t update_range(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    const struct seat *seat = &strategy->seats[replica];
    uint64_t number;
    double rate;
    if (!seat->count)
        return LS_OK;
    host->step->current(host, replica, &number, &rate);
    return host->stores->update(host, seat->store, seat_gradient(seat), number, rate);
}

// Adds up and, where the optimizer needs the norm of all gradients, measures: then all meet once more.
static int32_t sum_range(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    const struct seat *seat = &strategy->seats[replica];
    int32_t status = LS_OK;
    add_up(strategy, seat);
    if (!(host->norms & LS_NORM_OF_ALL))
        return LS_OK;
    if (seat->count)
        status = host->stores->measure(host, seat->store, seat_gradient(seat));
    return status ? status : host->threads->barrier(host, replica);
}

// After the first meeting all gradients and sums are there; after the second nobody reads them any more, and all values
// are new.
static int32_t central_end_step(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    int32_t status = host->step->read_sums(host, replica, strategy->seats[replica].sums);
    if (!status)
        status = host->threads->barrier(host, replica);
    if (!status)
        status = decide(strategy, replica);
    if (!status)
        status = sum_range(strategy, replica);
    if (!status)
        status = update_range(strategy, replica);
    if (!status)
        status = host->threads->barrier(host, replica);
    if (!status)
        status = take_values(strategy, replica);
    host->report->count_bytes(host, replica, (host->flat_count + LS_STRATEGY_SUMS) * sizeof(float));
    return status;
}

static const struct ls_strategy_interface interface = {
    .struct_size = sizeof(interface),
    .state_bytes = sizeof(struct ls_strategy),
    .all_here = 1,
    .traits = {.struct_size = sizeof(interface.traits),
               .divisor = LS_DIVISOR_GLOBAL,
               .equality = LS_EQUAL_EVERY_STEP},
    .norms = LS_NORM_OF_VARIABLES | LS_NORM_OF_ALL,
    .open = central_open,
    .close = central_close,
    .placement = central_placement,
    .initialize_parameters = central_initialize,
    .gradient_ready = central_gradient_ready,
    .end_step = central_end_step,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_STRATEGY),
    .name = "central-storage",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "variables once, on the host; replicas compute, one update by ranges",
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
