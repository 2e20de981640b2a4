// SPDX-License-Identifier: Apache-2.0
// Stores, and the table by which a strategy reaches those of its driver.
#include "core/strategy/stores.h"

#include "core/base/clock.h"
#include "core/base/inside.h"
#include "core/base/log.h"
#include "core/base/trace.h"
#include "core/strategy/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct ls_trace_label update_span = {
    .category = "update", .name = "update on the host", .value = "elements"};

// A device instance that updates the store, by one thread or by as many as a replica has.
struct lane {
    struct ls_device *device;
    struct ls_updater *updater; // NULL: nothing is updated
    struct ls_memory scratch;
};

enum { ALONE, REPLICA, LANES };

struct ls_store {
    struct ls_store *next;
    uint64_t first, count;
    float *values;
    float *states[LS_OPTIMIZER_STATES];
    uint32_t state_count;
    uint64_t steps; // that the state has had
    bool placed; // values and states are memory of a server process
    float *aligned; // a gradient that is not, or that is changed; NULL until one comes
    float *measured; // the gradient of this step that was measured, as that has left it; NULL: none
    uint64_t first_measure; // of all stores'
    double own[4]; // measures of one variable
    struct ls_step_record record;
    struct lane lanes[LANES];
};

static uint64_t padded_bytes(uint64_t count)
{
    return (count * sizeof(float) + LS_ALIGNMENT) / LS_ALIGNMENT * LS_ALIGNMENT;
}

// ---- The device ----

static const struct ls_device_interface *device_ops(const struct ls_stores *stores)
{
    return stores->device.interface;
}

static enum ls_status need_device(struct ls_stores *stores)
{
    if (stores->device.interface)
        return LS_OK;
    if (!stores->find_device) {
        ls_error("strategy", "there is no device for variables on the host");
        return LS_UNAVAILABLE;
    }
    enum ls_status status = stores->find_device(stores->context, &stores->device);
    if (!status && device_ops(stores)->memory_kind != LS_MEMORY_HOST) {
        stores->device = (struct ls_driver_plugin){0};
        ls_error("strategy", "the device for variables on the host computes in memory of its own");
        status = LS_UNAVAILABLE;
    }
    return status;
}

static enum ls_status prepare_lane(struct ls_stores *stores, const struct ls_store *store,
                                   struct lane *lane)
{
    const struct ls_updater_options options = {.device = lane->device,
                                               .about = "update on the host",
                                               .plan = stores->plan,
                                               .optimizer = stores->optimizer,
                                               .first = store->first,
                                               .end = store->first + store->count,
                                               .first_measure = store->first_measure,
                                               .measures = stores->measure_count};
    const char *missing = NULL;
    if (ls_updater_cuts_variables(stores->plan, stores->optimizer, options.first, options.end)) {
        ls_error(stores->strategy,
                 "a store of %" PRIu64 " values from %" PRIu64
                 " is not of whole variables, as optimizer %s needs them: an error of the plugin",
                 store->count, store->first, stores->optimizer->name);
        return LS_FAILED;
    }
    const enum ls_status status = ls_updater_create(&options, &missing, &lane->updater);
    if (status == LS_UNSUPPORTED) {
        ls_error("strategy", "the device for variables on the host has no operation %s", missing);
        return LS_UNAVAILABLE;
    }
    const uint64_t scratch = status ? 0 : ls_updater_scratch_bytes(lane->updater);
    if (scratch)
        lane->scratch = ls_device_allocate(lane->device, scratch);
    return scratch && ls_memory_is_null(lane->scratch) ? LS_OUT_OF_MEMORY : status;
}

static enum ls_status open_lane(struct ls_stores *stores, struct ls_store *store, int index,
                                uint32_t threads)
{
    const struct ls_device_options options = {
        .interface = device_ops(stores), .host = stores->device.host, .threads = threads};
    struct lane *lane = &store->lanes[index];
    const enum ls_status status = ls_device_open(&options, &lane->device);
    if (status || !store->count || stores->optimizer->op == LS_OP_NONE)
        return status;
    return prepare_lane(stores, store, lane);
}

static void close_lane(struct lane *lane)
{
    if (!lane->device)
        return;
    ls_updater_destroy(lane->updater);
    ls_device_release(lane->device, lane->scratch);
    ls_device_close(lane->device);
}

// ---- Opening and closing ----

static void store_destroy(struct ls_store *store)
{
    for (int i = 0; i < LANES; i++)
        close_lane(&store->lanes[i]);
    for (uint32_t i = 0; i < LS_OPTIMIZER_STATES && !store->placed; i++)
        free(store->states[i]);
    if (!store->placed)
        free(store->values);
    free(store->aligned);
    free(store);
}

static float *allocate_buffer(const struct ls_store *store)
{
    float *buffer = aligned_alloc(LS_ALIGNMENT, padded_bytes(store->count));
    if (buffer)
        memset(buffer, 0, padded_bytes(store->count));
    return buffer;
}

static enum ls_status attach_store(struct ls_stores *stores, struct ls_store *store)
{
    const uint32_t threads = stores->threads;
    store->state_count = stores->optimizer->state_count;
    store->record.seed = stores->seed;
    store->steps = stores->steps_before;
    for (uint32_t i = 0; i < store->state_count && !store->placed; i++)
        if (!store->states[i] && !(store->states[i] = allocate_buffer(store)))
            return LS_OUT_OF_MEMORY;
    enum ls_status status = open_lane(stores, store, ALONE, 1);
    if (!status && threads > 1)
        status = open_lane(stores, store, REPLICA, threads);
    return status;
}

// Where in the measures each store has its own: in the order of the buffer, in which they are added,
// whatever the stores are. With whole variables in each the sum is then that of a replica's own.
static enum ls_status count_measures(struct ls_stores *stores)
{
    if (!ls_optimizer_measures_all(stores->optimizer) || !stores->first)
        return LS_OK;
    stores->measure_count = 0;
    for (struct ls_store *store = stores->first; store; store = store->next) {
        const uint64_t count =
            ls_updater_count_measures(stores->plan, store->first, store->first + store->count);
        stores->measure_count += count;
        for (struct ls_store *other = stores->first; other; other = other->next)
            if (other->first > store->first)
                other->first_measure += count;
    }
    stores->measures = calloc(2 * stores->measure_count + 1, sizeof(*stores->measures));
    return stores->measures ? LS_OK : LS_OUT_OF_MEMORY;
}

static enum ls_status attach_stores(struct ls_stores *stores)
{
    enum ls_status status = count_measures(stores);
    for (struct ls_store *store = stores->first; !status && store; store = store->next)
        status = attach_store(stores, store);
    return status;
}

static void add_store(struct ls_stores *stores, struct ls_store *store)
{
    pthread_mutex_lock(&stores->lock);
    store->next = stores->first;
    stores->first = store;
    pthread_mutex_unlock(&stores->lock);
}

// `count` values from `first`, all of them 0, in memory of its own or where ls_store_place says.
static enum ls_status open_store(struct ls_stores *stores, uint64_t first, uint64_t count,
                                 bool placed, struct ls_store **out)
{
    enum ls_status status = need_device(stores);
    if (status)
        return status;
    struct ls_store *store = calloc(1, sizeof(*store));
    if (!store)
        return LS_OUT_OF_MEMORY;
    store->first = first;
    store->count = count;
    store->placed = placed;
    if (placed)
        status = attach_store(stores, store);
    else if (!(store->values = allocate_buffer(store)))
        status = LS_OUT_OF_MEMORY;
    if (status) {
        store_destroy(store);
        return status;
    }
    add_store(stores, store);
    *out = store;
    return LS_OK;
}

static void close_store(struct ls_stores *stores, struct ls_store *store)
{
    if (!store)
        return;
    pthread_mutex_lock(&stores->lock);
    struct ls_store **place = &stores->first;
    while (*place && *place != store)
        place = &(*place)->next;
    if (*place)
        *place = store->next;
    pthread_mutex_unlock(&stores->lock);
    store_destroy(store);
}

void ls_stores_init(struct ls_stores *stores)
{
    pthread_mutex_init(&stores->lock, NULL);
}

void ls_stores_clear(struct ls_stores *stores)
{
    while (stores->first)
        close_store(stores, stores->first);
    free(stores->measures);
    stores->measures = NULL;
}

void ls_stores_finish(struct ls_stores *stores)
{
    ls_stores_clear(stores);
    pthread_mutex_destroy(&stores->lock);
}

// ---- In memory of a server process ----

enum ls_status ls_stores_open_placed(struct ls_stores *stores, uint64_t first, uint64_t count,
                                     struct ls_store **out, uint64_t *bytes)
{
    const enum ls_status status = open_store(stores, first, count, true, out);
    if (!status)
        *bytes = (1 + (*out)->state_count) * padded_bytes(count);
    return status;
}

void ls_store_place(struct ls_store *store, void *memory)
{
    float *at = memory;
    const uint64_t floats = padded_bytes(store->count) / sizeof(float);
    store->values = at;
    for (uint32_t i = 0; i < store->state_count; i++)
        store->states[i] = at + (i + 1) * floats;
}

void ls_stores_fill_placed(const struct ls_stores *stores, struct ls_store *store,
                           const float *values)
{
    const uint64_t floats = padded_bytes(store->count) / sizeof(float);
    memset(store->values, 0, (1 + store->state_count) * padded_bytes(store->count));
    memcpy(store->values, values, store->count * sizeof(float));
    for (uint32_t i = 0; i < store->state_count; i++)
        for (uint64_t k = 0; k < floats; k++)
            store->states[i][k] = stores->optimizer->initial[i];
}

// ---- Use ----

// The gradient as it is, or a copy: clipping, LAMB and loss scales change it, and it is the
// strategy's.
static float *take_gradient(struct ls_store *store, const struct ls_optimizer *optimizer,
                            const float *gradient)
{
    const bool changes = optimizer->clipping || optimizer->op == LS_OP_LAMB_DIRECTION ||
                         ls_optimizer_scales(optimizer);
    if (!changes && (uintptr_t)gradient % LS_ALIGNMENT == 0)
        return (float *)(uintptr_t)gradient;
    if (!store->aligned)
        store->aligned = aligned_alloc(LS_ALIGNMENT, padded_bytes(store->count));
    if (store->aligned)
        memcpy(store->aligned, gradient, store->count * sizeof(float));
    return store->aligned;
}

static struct ls_updater_memory memory_of(const struct ls_stores *stores, struct ls_store *store,
                                          const struct lane *lane, float *gradient)
{
    struct ls_updater_memory memory = {.gradients = ls_host_memory(gradient),
                                       .parameters = ls_host_memory(store->values),
                                       .measures = ls_host_memory(stores->measures),
                                       .own = ls_host_memory(store->own),
                                       .scratch = lane->scratch,
                                       .record = ls_host_memory(&store->record)};
    for (uint32_t i = 0; i < store->state_count; i++)
        memory.states[i] = ls_host_memory(store->states[i]);
    return memory;
}

static const struct lane *lane_of(const struct ls_store *store, const struct ls_store_step *step)
{
    const bool many = step->on_replica && store->lanes[REPLICA].device;
    return &store->lanes[many ? REPLICA : ALONE];
}

static void write_scale(struct ls_store *store, const struct ls_store_step *step)
{
    if (!step->scale)
        return;
    store->record.loss_scale = step->scale->scale;
    store->record.update = step->scale->updates + 1;
}

// For an optimizer that must know something of all gradients before it updates anything; this one
// is the next update's, too.
static enum ls_status measure_gradient(struct ls_stores *stores, struct ls_store *store,
                                       const float *gradient, const struct ls_store_step *step)
{
    const struct lane *lane = lane_of(store, step);
    if (!lane->updater)
        return LS_OK;
    float *own = take_gradient(store, stores->optimizer, gradient);
    if (!own)
        return LS_OUT_OF_MEMORY;
    const struct ls_updater_memory memory = memory_of(stores, store, lane, own);
    store->measured = own;
    write_scale(store, step);
    ls_inside_about("measure of gradients on the host");
    return ls_updater_measure(lane->updater, &memory);
}

enum ls_status ls_stores_update(struct ls_stores *stores, struct ls_store *store,
                                const float *gradient, const struct ls_store_step *step)
{
    const uint64_t start = ls_clock_ns();
    const struct lane *lane = lane_of(store, step);
    if (!lane->updater)
        return LS_OK;
    float *own = store->measured;
    store->measured = NULL;
    store->steps = step->step ? step->step : store->steps + 1;
    store->record.step = store->record.update = store->steps;
    store->record.learning_rate = (float)step->learning_rate;
    write_scale(store, step);
    if (!own)
        own = take_gradient(store, stores->optimizer, gradient);
    if (!own)
        return LS_OUT_OF_MEMORY;
    const struct ls_updater_memory memory = memory_of(stores, store, lane, own);
    ls_inside_about("update on the host");
    const enum ls_status status = ls_updater_run(lane->updater, &memory);
    ls_trace_span(&update_span, start, ls_clock_ns(), store->count);
    return status;
}

bool ls_stores_finite(const struct ls_stores *stores)
{
    return ls_measures_finite(stores->measures, stores->measure_count);
}

// ---- Those of a driver ----

static int32_t host_store_open(const struct ls_strategy_host *table, uint64_t first, uint64_t count,
                               struct ls_store **out)
{
    struct ls_driver *driver = ls_driver_of(table);
    if (driver->opened || first > table->flat_count || count > table->flat_count - first) {
        ls_error(ls_driver_name(driver),
                 "stores->open of %" PRIu64 " values from %" PRIu64 " of %" PRIu64
                 "%s: an error of the plugin",
                 count, first, table->flat_count, driver->opened ? " after open" : "");
        return LS_FAILED;
    }
    if (first % (LS_ALIGNMENT / sizeof(float))) {
        ls_error(ls_driver_name(driver),
                 "stores->open from float %" PRIu64
                 ", which is no multiple of %zu: an error of the plugin",
                 first, LS_ALIGNMENT / sizeof(float));
        return LS_FAILED;
    }
    return (int32_t)open_store(&driver->stores, first, count, false, out);
}

static void host_store_close(const struct ls_strategy_host *table, struct ls_store *store)
{
    close_store(&ls_driver_of(table)->stores, store);
}

static float *host_store_values(const struct ls_strategy_host *table, struct ls_store *store)
{
    (void)table;
    return store->values;
}

static struct ls_store_step step_of(const struct ls_driver *driver)
{
    const bool scales = ls_optimizer_scales(&driver->optimizer);
    return (struct ls_store_step){.scale =
                                      scales ? ls_replica_scale(driver->members[0].replica) : NULL,
                                  .on_replica = ls_driver_current() != NULL};
}

// What the replicas are going to decide. They are all in the step, between its gradients and its
// end.
static bool skips(const struct ls_driver *driver)
{
    return ls_optimizer_scales(&driver->optimizer) &&
           (ls_replica_has_overflow(driver->members[0].replica) ||
            !ls_stores_finite(&driver->stores));
}

static int32_t host_store_measure(const struct ls_strategy_host *table, struct ls_store *store,
                                  const float *gradient)
{
    struct ls_driver *driver = ls_driver_of(table);
    const struct ls_store_step step = step_of(driver);
    return (int32_t)measure_gradient(&driver->stores, store, gradient, &step);
}

static int32_t host_store_update(const struct ls_strategy_host *table, struct ls_store *store,
                                 const float *gradient, uint64_t step, double learning_rate)
{
    struct ls_driver *driver = ls_driver_of(table);
    struct ls_driver_member *member = ls_driver_current();
    struct ls_store_step of_store = step_of(driver);
    const uint64_t start = ls_clock_ns();
    if (skips(driver)) {
        store->measured = NULL;
        return LS_OK;
    }
    of_store.step = step;
    of_store.learning_rate = learning_rate;
    const enum ls_status status = ls_stores_update(&driver->stores, store, gradient, &of_store);
    if (member)
        member->own_update_ns += ls_clock_ns() - start;
    return (int32_t)status;
}

const struct ls_strategy_stores ls_driver_stores = {
    .struct_size = sizeof(ls_driver_stores),
    .open = host_store_open,
    .close = host_store_close,
    .values = host_store_values,
    .update = host_store_update,
    .measure = host_store_measure,
};

uint64_t ls_driver_store_steps(const struct ls_driver *driver)
{
    uint64_t most = 0;
    for (const struct ls_store *store = driver->stores.first; store; store = store->next)
        most = store->steps > most ? store->steps : most;
    return most;
}

bool ls_driver_has_stores(const struct ls_driver *driver)
{
    return driver->stores.first;
}

static float *buffer_of(struct ls_store *store, uint32_t buffer)
{
    return buffer == LS_BUFFER_PARAMETERS ? store->values : store->states[buffer - LS_BUFFER_STATE];
}

// Copies the ranges of all stores from a flat buffer of a replica, or into it.
static enum ls_status copy_stores(struct ls_driver *driver, uint32_t index, uint32_t buffer,
                                  uint32_t flat, bool into)
{
    const struct ls_replica *replica = driver->members[index].replica;
    const struct ls_memory whole = ls_replica_memory(replica, flat);
    enum ls_status status = LS_OK;
    for (struct ls_store *store = driver->stores.first; !status && store; store = store->next) {
        const struct ls_memory own = ls_host_memory(buffer_of(store, buffer));
        const struct ls_memory range = ls_memory_at(whole, store->first * sizeof(float));
        status = ls_device_copy(ls_replica_device(replica), into ? range : own, into ? own : range,
                                store->count * sizeof(float), NULL);
    }
    return status;
}

enum ls_status ls_driver_fill_stores(struct ls_driver *driver, uint32_t index, uint32_t buffer,
                                     uint32_t flat)
{
    return copy_stores(driver, index, buffer, flat, false);
}

enum ls_status ls_driver_read_stores(struct ls_driver *driver, uint32_t index, uint32_t buffer,
                                     uint32_t flat)
{
    return copy_stores(driver, index, buffer, flat, true);
}

enum ls_status ls_driver_attach_stores(struct ls_driver *driver)
{
    const struct ls_replica *replica = driver->members[0].replica;
    enum ls_status status = attach_stores(&driver->stores);
    if (!status)
        status = ls_driver_fill_stores(driver, 0, LS_BUFFER_PARAMETERS, LS_BUFFER_PARAMETERS);
    for (uint32_t i = 0; !status && i < driver->optimizer.state_count; i++)
        if (!ls_memory_is_null(ls_replica_memory(replica, LS_BUFFER_STATE + i)))
            status = ls_driver_fill_stores(driver, 0, LS_BUFFER_STATE + i, LS_BUFFER_STATE + i);
    return status;
}
