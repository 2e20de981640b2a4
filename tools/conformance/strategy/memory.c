// SPDX-License-Identifier: Apache-2.0
// The fake host's buffers, sums and stores, for strategies that move numbers themselves.
#include "tools/conformance/strategy/suite.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct ls_fake_host *fake_of(const struct ls_strategy_host *host)
{
    return host->context;
}

static bool is_replica(struct ls_fake_host *fake, uint32_t replica, const char *call)
{
    return ls_fake_known(fake, replica, 0, call);
}

static void bucket_range(const struct ls_strategy_host *host, uint32_t bucket, uint64_t *first,
                         uint64_t *count)
{
    const bool good = ls_fake_known(fake_of(host), 0, bucket, "bucket_range");
    const struct ls_placed_range range =
        good ? ls_fake_bucket(&fake_of(host)->model, bucket) : (struct ls_placed_range){0};
    *first = range.first;
    *count = range.count;
}

static void variable_range(const struct ls_strategy_host *host, uint32_t variable, uint64_t *first,
                           uint64_t *count)
{
    const struct ls_fake_model *model = &fake_of(host)->model;
    const bool good =
        ls_fake_known(fake_of(host), 0, variable / model->per_bucket, "variable_range");
    const struct ls_placed_range range =
        good ? ls_fake_variable(model, variable) : (struct ls_placed_range){0};
    *first = range.first;
    *count = range.count;
}

static float *buffer_of(struct ls_fake_host *fake, uint32_t replica, uint32_t memory)
{
    if (memory == LS_REPLICA_PARAMETERS)
        return fake->replica[replica].parameters;
    if (memory == LS_REPLICA_GRADIENTS)
        return fake->replica[replica].gradients;
    if (fake->strategy->rounds && memory >= LS_REPLICA_ROUND && memory <= LS_REPLICA_NOTES)
        return fake->replica[replica].rounds[memory - LS_REPLICA_ROUND];
    ls_tally_blame(fake->tally, "there is no memory %u of a replica", memory);
    return NULL;
}

static float *map(const struct ls_strategy_host *host, uint32_t replica, uint32_t memory)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!is_replica(fake, replica, "map") || fake->own_memory)
        return NULL;
    return buffer_of(fake, replica, memory);
}

static bool fits(struct ls_fake_host *fake, uint64_t first, uint64_t count, const char *call)
{
    const uint64_t flat = fake->table.flat_count;
    if (first <= flat && count <= flat - first)
        return true;
    return ls_tally_blame(fake->tally,
                          "%s of %" PRIu64 " floats from %" PRIu64 "; there are %" PRIu64, call,
                          count, first, flat);
}

// Gradients are there when their bucket is ready.
static void judge_ready(struct ls_fake_host *fake, uint32_t replica, uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++)
        if (!fake->replica[replica].buckets[i / fake->bucket_floats].ready) {
            ls_tally_blame(fake->tally,
                           "bucket %" PRIu64 " of replica %u is read before it is ready",
                           i / fake->bucket_floats, replica);
            return;
        }
}

static int32_t read_range(const struct ls_strategy_host *host, uint32_t replica, uint32_t memory,
                          uint64_t first, uint64_t count, float *out)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!is_replica(fake, replica, "read") || !fits(fake, first, count, "read"))
        return ls_fake_refusal(fake);
    const float *buffer = buffer_of(fake, replica, memory);
    if (!buffer)
        return LS_FAILED;
    pthread_mutex_lock(&fake->lock);
    const int32_t status = ls_fake_failure(fake, LS_FAKE_READ, replica);
    if (memory == LS_REPLICA_GRADIENTS)
        judge_ready(fake, replica, first, count);
    if (!status)
        memcpy(out, buffer + first, count * sizeof(float));
    pthread_mutex_unlock(&fake->lock);
    return status;
}

static int32_t write_range(const struct ls_strategy_host *host, uint32_t replica, uint32_t memory,
                           uint64_t first, uint64_t count, const float *in)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!is_replica(fake, replica, "write") || !fits(fake, first, count, "write"))
        return ls_fake_refusal(fake);
    float *buffer = buffer_of(fake, replica, memory);
    if (!buffer)
        return LS_FAILED;
    pthread_mutex_lock(&fake->lock);
    const int32_t status = ls_fake_failure(fake, LS_FAKE_WRITE, replica);
    if (!status)
        memcpy(buffer + first, in, count * sizeof(float));
    fake->replica[replica].changes += memory == LS_REPLICA_PARAMETERS;
    pthread_mutex_unlock(&fake->lock);
    return status;
}

static void say_changed(const struct ls_strategy_host *host, uint32_t replica)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!is_replica(fake, replica, "changed"))
        return;
    pthread_mutex_lock(&fake->lock);
    fake->replica[replica].changes++;
    pthread_mutex_unlock(&fake->lock);
}

// ---- Sums ----

// Each replica has another loss; all have two examples, of which one is right.
void ls_fake_own_sums(uint32_t replica, float out[LS_STRATEGY_SUMS])
{
    memset(out, 0, LS_STRATEGY_SUMS * sizeof(float));
    out[LS_SUMS_LOSS] = (float)(replica + 1);
    out[LS_SUMS_RIGHT] = 1;
    out[LS_SUMS_EXAMPLES] = 2;
    out[LS_SUMS_STOP] = replica == 0;
}

int32_t ls_fake_read_sums(const struct ls_strategy_host *host, uint32_t replica, float *out)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!is_replica(fake, replica, "read_sums"))
        return ls_fake_refusal(fake);
    pthread_mutex_lock(&fake->lock);
    const int32_t status = ls_fake_failure(fake, LS_FAKE_READ_SUMS, replica);
    if (!fake->replica[replica].buckets[0].ready)
        ls_tally_blame(fake->tally, "the sums of replica %u are read before bucket 0 is ready",
                       replica);
    memcpy(out, fake->replica[replica].own_sums, sizeof(fake->replica[replica].own_sums));
    pthread_mutex_unlock(&fake->lock);
    return status;
}

static void judge_sums(struct ls_fake_host *fake, uint32_t replica, const float *sums)
{
    const bool global = fake->traits.divisor == LS_DIVISOR_GLOBAL;
    float wanted[LS_STRATEGY_SUMS] = {0};
    for (uint32_t i = 0; i < fake->replicas; i++)
        for (uint32_t k = 0; (global || i == replica) && k < LS_STRATEGY_SUMS; k++)
            wanted[k] += fake->replica[i].own_sums[k];
    for (uint32_t i = 0; i < LS_STRATEGY_SUMS; i++)
        if (sums[i] < wanted[i] || sums[i] > wanted[i]) {
            ls_tally_blame(fake->tally, "replica %u checks %g as sum number %u; that of %s is %g",
                           replica, (double)sums[i], i, global ? "all replicas" : "its share",
                           (double)wanted[i]);
            return;
        }
}

int32_t ls_fake_check_step_on(const struct ls_strategy_host *host, uint32_t replica,
                              const float *sums)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!is_replica(fake, replica, "check_step_on"))
        return ls_fake_refusal(fake);
    pthread_mutex_lock(&fake->lock);
    int32_t status = ls_fake_failure(fake, LS_FAKE_CHECK_STEP_ON, replica);
    ls_fake_checked(fake, replica);
    memcpy(fake->replica[replica].checked, sums, LS_STRATEGY_SUMS * sizeof(float));
    judge_sums(fake, replica, sums);
    if (!status && !isfinite(sums[LS_SUMS_LOSS]))
        status = LS_FAILED;
    pthread_mutex_unlock(&fake->lock);
    return status;
}

void ls_fake_current(const struct ls_strategy_host *host, uint32_t replica, uint64_t *number,
                     double *learning_rate)
{
    struct ls_fake_host *fake = fake_of(host);
    const bool good = is_replica(fake, replica, "current");
    *number = fake->first_step + (good ? fake->replica[replica].step : 0);
    *learning_rate = LS_FAKE_RATE;
}

// ---- Stores ----

static void judge_overlap(struct ls_fake_host *fake, uint64_t first, uint64_t count)
{
    for (uint32_t i = 0; i < LS_FAKE_STORES; i++) {
        const struct ls_store *other = &fake->stores[i];
        if (other->fake && first < other->first + other->count && other->first < first + count)
            ls_tally_blame(fake->tally, "a store from %" PRIu64 " overlaps one from %" PRIu64,
                           first, other->first);
    }
}

static int32_t store_open(const struct ls_strategy_host *host, uint64_t first, uint64_t count,
                          struct ls_store **out)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!fits(fake, first, count, "stores->open"))
        return ls_fake_refusal(fake);
    if (first % 16)
        ls_tally_blame(fake->tally, "a store from %" PRIu64 ", which is no multiple of 16", first);
    pthread_mutex_lock(&fake->lock);
    struct ls_store *store = NULL;
    for (uint32_t i = 0; !store && i < LS_FAKE_STORES; i++)
        if (!fake->stores[i].fake)
            store = &fake->stores[i];
    float *values = store ? aligned_alloc(64, (count + 16) / 16 * 64) : NULL;
    if (values) {
        judge_overlap(fake, first, count);
        *store = (struct ls_store){.fake = fake,
                                   .first = first,
                                   .count = count,
                                   .steps = fake->first_step - 1,
                                   .values = values};
        for (uint64_t i = 0; i < count; i++)
            values[i] = ls_fake_first_parameter(fake, 0, first + i);
        fake->store_count++;
        *out = store;
    }
    pthread_mutex_unlock(&fake->lock);
    return values ? LS_OK : LS_OUT_OF_MEMORY;
}

static void store_close(const struct ls_strategy_host *host, struct ls_store *store)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!store)
        return;
    pthread_mutex_lock(&fake->lock);
    free(store->values);
    store->values = NULL;
    store->fake = NULL;
    pthread_mutex_unlock(&fake->lock);
}

static float *store_values(const struct ls_strategy_host *host, struct ls_store *store)
{
    (void)host;
    return store->values;
}

// The replica whose thread this is, or UINT32_MAX: a thread of the strategy's.
static _Thread_local uint32_t thread_replica = UINT32_MAX;

// Counts a call on the store in, or out again; two at once are wrong.
static void enter_store(struct ls_store *store)
{
    struct ls_fake_host *fake = store->fake;
    if (store->busy++)
        ls_tally_blame(fake->tally, "two threads are in one store at once");
}

static int32_t store_update(const struct ls_strategy_host *host, struct ls_store *store,
                            const float *gradient, uint64_t number, double learning_rate)
{
    struct ls_fake_host *fake = fake_of(host);
    pthread_mutex_lock(&fake->lock);
    const int32_t status = ls_fake_failure(fake, LS_FAKE_STORE_UPDATE, thread_replica);
    enter_store(store);
    if (learning_rate < LS_FAKE_RATE || learning_rate > LS_FAKE_RATE)
        ls_tally_blame(fake->tally, "stores->update with learning rate %g", learning_rate);
    if (number && number < store->steps + 1)
        ls_tally_blame(fake->tally,
                       "stores->update for step %" PRIu64
                       ", but the optimizer's state has had %" PRIu64 "; 0 is the next one",
                       number, store->steps);
    store->steps = number ? number : store->steps + 1;
    pthread_mutex_unlock(&fake->lock);
    for (uint64_t i = 0; !status && i < store->count; i++)
        store->values[i] -= gradient[i];
    pthread_mutex_lock(&fake->lock);
    store->busy--;
    store->updates++;
    pthread_mutex_unlock(&fake->lock);
    return status;
}

void ls_fake_set_thread(uint32_t replica)
{
    thread_replica = replica;
}

static int32_t run(const struct ls_strategy_host *host, uint32_t replica,
                   const struct ls_strategy_range_operation *operation)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!is_replica(fake, replica, "run") || !fits(fake, operation->first, operation->count, "run"))
        return ls_fake_refusal(fake);
    return LS_UNSUPPORTED; // a device may do so
}

const struct ls_strategy_layout ls_fake_layout = {
    .struct_size = sizeof(ls_fake_layout),
    .bucket_range = bucket_range,
    .variable_range = variable_range,
};

const struct ls_strategy_memory ls_fake_memory = {
    .struct_size = sizeof(ls_fake_memory),
    .map = map,
    .read = read_range,
    .write = write_range,
    .changed = say_changed,
    .run = run,
};

const struct ls_strategy_stores ls_fake_stores = {
    .struct_size = sizeof(ls_fake_stores),
    .open = store_open,
    .close = store_close,
    .values = store_values,
    .update = store_update,
};
