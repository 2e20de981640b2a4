// SPDX-License-Identifier: Apache-2.0
// The host that the strategy suite offers: whole numbers in place of tensors, and a meeting place of the replicas.
#include "tools/conformance/strategy/suite.h"

#include "core/base/instance.h"
#include "core/base/random.h"
#include "core/schedule/schedule.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEADLINE_SECONDS 5

static struct ls_fake_host *fake_of(const struct ls_strategy_host *host)
{
    return host->context;
}

// ---- The model ----

struct ls_fake_model ls_fake_small_model(uint32_t buckets)
{
    return (struct ls_fake_model){.variables = 2 * buckets, .per_bucket = 2, .sizes = {31, 13}};
}

static uint64_t with_padding(uint64_t floats)
{
    return (floats + 15) / 16 * 16;
}

// `variable` may be the number of variables: what begins there is the end.
struct ls_placed_range ls_fake_variable(const struct ls_fake_model *model, uint32_t variable)
{
    const uint64_t first = with_padding(model->sizes[0]),
                   both = first + with_padding(model->sizes[1]);
    return (struct ls_placed_range){variable / 2 * both + variable % 2 * first,
                                    model->sizes[variable % 2]};
}

struct ls_placed_range ls_fake_bucket(const struct ls_fake_model *model, uint32_t bucket)
{
    const uint32_t end = (bucket + 1) * model->per_bucket;
    const uint64_t first = ls_fake_variable(model, bucket * model->per_bucket).first;
    const uint64_t after =
        ls_fake_variable(model, end < model->variables ? end : model->variables).first;
    return (struct ls_placed_range){first, after - first};
}

bool ls_fake_is_padding(const struct ls_fake_model *model, uint64_t index)
{
    const struct ls_placed_range second = ls_fake_variable(model, 1);
    const uint64_t place = index % ls_fake_variable(model, 2).first;
    return place < second.first ? place >= model->sizes[0] : place >= second.first + second.count;
}

float ls_fake_gradient(const struct ls_fake_host *fake, uint32_t replica, uint32_t step,
                       uint64_t index)
{
    const uint64_t key = ls_random_key(fake->seed, 1 + step);
    if (ls_fake_is_padding(&fake->model, index))
        return 0;
    return (float)((int64_t)(ls_random_u64(key, replica * 1000 + index) % 1000) - 500);
}

float ls_fake_first_parameter(const struct ls_fake_host *fake, uint32_t replica, uint64_t index)
{
    if (ls_fake_is_padding(&fake->model, index))
        return 0;
    return (float)(ls_random_u64(ls_random_key(fake->seed, 0), replica * 1000 + index) % 100000);
}

// ---- What every call has in common ----

bool ls_fake_known(struct ls_fake_host *fake, uint32_t replica, uint32_t bucket, const char *call)
{
    if (replica < fake->replicas && bucket < fake->buckets)
        return true;
    return ls_tally_blame(fake->tally, "%s of replica %u, bucket %u; there are %u and %u", call,
                          replica, bucket, fake->replicas, fake->buckets);
}

int32_t ls_fake_refusal(const struct ls_fake_host *fake)
{
    return fake->lenient ? LS_OK : LS_FAILED;
}

static void abort_all(struct ls_fake_host *fake)
{
    fake->aborted = true;
    for (uint32_t i = 0; i < fake->endpoint_count; i++)
        if (fake->endpoints[i]) {
            fake->table.transport->abort(fake->endpoints[i]);
            break;
        }
    pthread_cond_broadcast(&fake->changed);
}

int32_t ls_fake_failure(struct ls_fake_host *fake, enum ls_fake_call call, uint32_t replica)
{
    if (fake->fails != call || (replica != UINT32_MAX && fake->fails_at != replica))
        return LS_OK;
    if (replica == UINT32_MAX)
        fake->failures_elsewhere++;
    else
        fake->replica[replica].failures++;
    abort_all(fake); // as the core does when a replica fails
    return fake->fails_with;
}

bool ls_fake_wait(struct ls_fake_host *fake, const struct timespec *end)
{
    return pthread_cond_timedwait(&fake->changed, &fake->lock, end) != ETIMEDOUT;
}

struct timespec ls_fake_deadline(void)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += DEADLINE_SECONDS;
    return end;
}

// ---- Collectives ----

static int32_t all_reduce_start(const struct ls_strategy_host *host, uint32_t replica,
                                uint32_t bucket)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!ls_fake_known(fake, replica, bucket, "all_reduce_start"))
        return ls_fake_refusal(fake);
    pthread_mutex_lock(&fake->lock);
    struct ls_fake_replica *own = &fake->replica[replica];
    struct ls_fake_bucket *part = &own->buckets[bucket];
    const int32_t status = ls_fake_failure(fake, LS_FAKE_START, replica);
    if (!part->ready)
        ls_tally_blame(fake->tally, "bucket %u of replica %u is reduced before it is ready", bucket,
                       replica);
    if (part->started)
        ls_tally_blame(fake->tally, "bucket %u of replica %u is reduced twice in a step", bucket,
                       replica);
    if (!status && own->started < LS_FAKE_CALLS) {
        const uint32_t number = own->started;
        for (uint32_t i = 0; i < fake->replicas; i++)
            if (fake->replica[i].started > number && fake->replica[i].order[number] != bucket)
                ls_tally_blame(fake->tally,
                               "all_reduce_start number %u is bucket %u on replica %u, but bucket "
                               "%u on replica %u; the order must be the same",
                               number, bucket, replica, fake->replica[i].order[number], i);
        own->order[own->started++] = bucket;
        part->started = true;
        const struct ls_placed_range range = ls_fake_bucket(&fake->model, bucket);
        for (uint64_t i = 0; i < range.count; i++)
            fake->sums[number][i] += own->gradients[range.first + i];
        fake->arrived[number]++;
        pthread_cond_broadcast(&fake->changed);
    }
    pthread_mutex_unlock(&fake->lock);
    return status;
}

// The number of the last all-reduce that this replica started for the bucket.
static uint32_t number_of(const struct ls_fake_replica *own, uint32_t bucket)
{
    uint32_t number = own->started;
    while (number > 0 && own->order[number - 1] != bucket)
        number--;
    return number ? number - 1 : LS_FAKE_CALLS;
}

static int32_t wait_for_all(struct ls_fake_host *fake, uint32_t replica, uint32_t bucket,
                            uint32_t number)
{
    const struct timespec end = ls_fake_deadline();
    while (fake->arrived[number] < fake->replicas) {
        if (fake->aborted)
            return LS_ABORTED;
        if (!ls_fake_wait(fake, &end)) {
            ls_tally_blame(fake->tally,
                           "replica %u waits for bucket %u, and not all replicas have started it "
                           "after %d s",
                           replica, bucket, DEADLINE_SECONDS);
            return LS_PEER_LOST;
        }
    }
    return LS_OK;
}

static int32_t all_reduce_wait(const struct ls_strategy_host *host, uint32_t replica,
                               uint32_t bucket)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!ls_fake_known(fake, replica, bucket, "all_reduce_wait"))
        return ls_fake_refusal(fake);
    pthread_mutex_lock(&fake->lock);
    struct ls_fake_replica *own = &fake->replica[replica];
    struct ls_fake_bucket *part = &own->buckets[bucket];
    int32_t status = ls_fake_failure(fake, LS_FAKE_WAIT, replica);
    if (own->hook == LS_FAKE_READY && fake->replicas > 1)
        ls_tally_blame(fake->tally, "gradient_ready of replica %u waits for other replicas",
                       replica);
    if (!status && !part->started) {
        ls_tally_blame(fake->tally, "replica %u waits for bucket %u, which it has not started",
                       replica, bucket);
        status = ls_fake_refusal(fake);
    }
    if (!status && part->started && !part->waited) {
        const uint32_t number = number_of(own, bucket);
        status = number < LS_FAKE_CALLS ? wait_for_all(fake, replica, bucket, number) : LS_FAILED;
        if (!status) {
            const struct ls_placed_range range = ls_fake_bucket(&fake->model, bucket);
            memcpy(own->gradients + range.first, fake->sums[number], range.count * sizeof(float));
            part->waited = true;
        }
    }
    pthread_mutex_unlock(&fake->lock);
    return status;
}

static int32_t broadcast_parameters(const struct ls_strategy_host *host, uint32_t replica,
                                    uint32_t root)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!ls_fake_known(fake, replica, 0, "broadcast_parameters") ||
        !ls_fake_known(fake, root, 0, "broadcast_parameters: the root"))
        return ls_fake_refusal(fake);
    pthread_mutex_lock(&fake->lock);
    struct ls_fake_replica *own = &fake->replica[replica];
    int32_t status = ls_fake_failure(fake, LS_FAKE_BROADCAST, replica);
    own->broadcasts++;
    own->root = root;
    if (!status && replica == root) {
        memcpy(fake->roots, own->parameters, sizeof(fake->roots));
        fake->root_came = true;
        pthread_cond_broadcast(&fake->changed);
    }
    const struct timespec end = ls_fake_deadline();
    while (!status && !fake->root_came) {
        if (fake->aborted)
            status = LS_ABORTED;
        else if (!ls_fake_wait(fake, &end)) {
            ls_tally_blame(fake->tally, "replica %u waits for parameters from %u, who sends none",
                           replica, root);
            status = LS_PEER_LOST;
        }
    }
    if (!status)
        memcpy(own->parameters, fake->roots, sizeof(fake->roots));
    own->changes++;
    pthread_mutex_unlock(&fake->lock);
    return status;
}

// ---- Check and update ----

void ls_fake_checked(struct ls_fake_host *fake, uint32_t replica)
{
    fake->replica[replica].checks++;
}

static int32_t check_step(const struct ls_strategy_host *host, uint32_t replica)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!ls_fake_known(fake, replica, 0, "check_step"))
        return ls_fake_refusal(fake);
    pthread_mutex_lock(&fake->lock);
    struct ls_fake_replica *own = &fake->replica[replica];
    const int32_t status = ls_fake_failure(fake, LS_FAKE_CHECK_STEP, replica);
    ls_fake_checked(fake, replica);
    if (fake->replicas > 1 && fake->traits.divisor == LS_DIVISOR_GLOBAL &&
        !own->buckets[0].waited && !own->sums_waited)
        ls_tally_blame(
            fake->tally,
            "replica %u checks the step before bucket 0, which carries the sums of the step, is "
            "reduced",
            replica);
    pthread_mutex_unlock(&fake->lock);
    return status;
}

static int32_t update(const struct ls_strategy_host *host, uint32_t replica, uint32_t bucket)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!ls_fake_known(fake, replica, bucket, "update"))
        return ls_fake_refusal(fake);
    pthread_mutex_lock(&fake->lock);
    struct ls_fake_replica *own = &fake->replica[replica];
    struct ls_fake_bucket *part = &own->buckets[bucket];
    own->updates_after_failure += own->failures > 0;
    const int32_t status = ls_fake_failure(fake, LS_FAKE_UPDATE, replica);
    if (!own->checks)
        ls_tally_blame(fake->tally, "replica %u updates bucket %u before check_step", replica,
                       bucket);
    if (!part->ready)
        ls_tally_blame(fake->tally, "replica %u updates bucket %u before it is ready", replica,
                       bucket);
    if (part->started && !part->waited)
        ls_tally_blame(fake->tally, "replica %u updates bucket %u before its sum is there", replica,
                       bucket);
    part->updates++;
    const struct ls_placed_range range = ls_fake_bucket(&fake->model, bucket);
    for (uint64_t i = range.first; i < range.first + range.count; i++)
        own->parameters[i] -= own->gradients[i];
    own->changes++;
    pthread_mutex_unlock(&fake->lock);
    return status;
}

// ---- Around them ----

// ---- Ranges ----

static float *find_range(struct ls_fake_host *fake, uint32_t replica, uint32_t memory,
                         uint64_t first, uint64_t count, const char *call)
{
    const uint64_t flat = fake->table.flat_count;
    struct ls_fake_replica *own = &fake->replica[replica];
    const struct {
        float *floats;
        uint64_t count;
    } memories[] = {
        [LS_REPLICA_PARAMETERS] = {own->parameters, flat},
        [LS_REPLICA_GRADIENTS] = {own->gradients, flat},
        [LS_REPLICA_SUMS] = {own->sums, LS_STRATEGY_SUMS},
        [LS_REPLICA_SUMS_AND_GRADIENTS] = {own->sums_and_gradients, LS_STRATEGY_SUMS + flat},
        [LS_REPLICA_ROOM_AND_PARAMETERS] = {own->room_and_parameters, LS_STRATEGY_SUMS + flat},
        [LS_REPLICA_ROUND] = {own->rounds[0], fake->strategy->rounds ? flat : 0},
        [LS_REPLICA_MOMENTUM] = {own->rounds[1], fake->strategy->rounds ? flat : 0},
        [LS_REPLICA_DIFFERENCE] = {own->rounds[2], fake->strategy->rounds ? flat : 0},
    };
    const bool known = memory < sizeof(memories) / sizeof(memories[0]);
    if (known && first <= memories[memory].count && count <= memories[memory].count - first &&
        memories[memory].floats)
        return memories[memory].floats + first;
    ls_tally_blame(fake->tally, "%s of %" PRIu64 " floats from %" PRIu64 " of memory %u", call,
                   count, first, memory);
    return NULL;
}

static bool equal(const struct ls_strategy_operation *a, const struct ls_strategy_operation *b)
{
    return a->operation == b->operation && a->memory == b->memory && a->root == b->root &&
           a->first == b->first && a->count == b->count;
}

static bool take_memory(struct ls_strategy_collective *range, uint32_t replica, uint64_t count)
{
    for (uint32_t i = 0; i < 2; i++) {
        range->values[i][replica] = calloc(count + 1, sizeof(float));
        if (!range->values[i][replica])
            return false;
    }
    return true;
}

static void release_ranges(struct ls_fake_host *fake)
{
    for (uint32_t i = 0; i < LS_FAKE_RANGES; i++)
        for (uint32_t k = 0; k < 2 * LS_FAKE_REPLICAS; k++)
            free(fake->ranges[i].values[k % 2][k / 2]);
}

// The n-th that one replica prepares is the n-th of all.
static int32_t prepare(const struct ls_strategy_host *host, uint32_t replica,
                       const struct ls_strategy_operation *operation,
                       struct ls_strategy_collective **out)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!ls_fake_known(fake, replica, 0, "prepare") ||
        !ls_fake_known(fake, operation->root, 0, "prepare: the root"))
        return ls_fake_refusal(fake);
    if (!find_range(fake, replica, operation->memory, operation->first, operation->count,
                    "prepare"))
        return LS_FAILED;
    if (ls_collective_whole_count(operation->operation, operation->count, fake->replicas) !=
        operation->count) {
        ls_tally_blame(fake->tally,
                       "prepare: an all-to-all of %" PRIu64 " values has no equal blocks for %u "
                       "replicas",
                       operation->count, fake->replicas);
        return LS_FAILED;
    }
    pthread_mutex_lock(&fake->lock);
    struct ls_fake_replica *own = &fake->replica[replica];
    const uint32_t number = own->prepared;
    const bool room =
        number < LS_FAKE_RANGES && take_memory(&fake->ranges[number], replica, operation->count);
    if (own->hook != LS_FAKE_INITIALIZE && !fake->lenient)
        ls_tally_blame(fake->tally, "prepare outside of initialize_parameters");
    if (room) {
        struct ls_strategy_collective *range = &fake->ranges[number];
        if (range->prepared && !equal(&range->operation, operation))
            ls_tally_blame(fake->tally,
                           "prepare number %u of replica %u is not that of the others; the order "
                           "must be the same",
                           number, replica);
        range->operation = *operation;
        range->prepared = true;
        own->prepared++;
        *out = range;
    }
    pthread_mutex_unlock(&fake->lock);
    return room ? LS_OK : LS_OUT_OF_MEMORY;
}

// A replica may be one run ahead of another, never two: so two copies of what each gave are enough.
static int32_t range_start(const struct ls_strategy_host *host, uint32_t replica,
                           struct ls_strategy_collective *range)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!ls_fake_known(fake, replica, 0, "start"))
        return ls_fake_refusal(fake);
    pthread_mutex_lock(&fake->lock);
    const struct ls_strategy_operation *of = &range->operation;
    const float *from = find_range(fake, replica, of->memory, of->first, of->count, "start");
    const uint32_t run = range->started[replica]++;
    if (range->waited[replica] != run)
        ls_tally_blame(fake->tally, "replica %u starts a collective again before it waited for it",
                       replica);
    memcpy(range->values[run % 2][replica], from, of->count * sizeof(float));
    pthread_cond_broadcast(&fake->changed);
    pthread_mutex_unlock(&fake->lock);
    return LS_OK;
}

static void take_result(const struct ls_fake_host *fake, const struct ls_strategy_collective *range,
                        uint32_t run, uint32_t replica, float *to)
{
    const struct ls_strategy_operation *of = &range->operation;
    const uint32_t world = fake->replicas;
    const uint64_t each = of->count / world;
    for (uint64_t i = 0; of->operation == LS_ALL_TO_ALL && i < of->count; i++)
        to[i] = range->values[run % 2][i / each][replica * each + i % each];
    for (uint32_t rank = 0; of->operation != LS_ALL_TO_ALL && rank < world; rank++) {
        const struct ls_range part = ls_part(ls_data_range(0, of->count), rank, world);
        const bool gathers = of->operation == LS_ALL_GATHER || of->operation == LS_BROADCAST;
        const uint32_t source = of->operation == LS_BROADCAST ? of->root : rank;
        const bool keeps = (of->operation == LS_REDUCE_SCATTER && rank != replica) ||
                           (of->operation == LS_REDUCE && replica != of->root);
        for (uint64_t i = part.offset; !keeps && i < part.offset + part.count; i++) {
            float sum = gathers ? range->values[run % 2][source][i] : 0;
            for (uint32_t k = 0; !gathers && k < world; k++)
                sum += range->values[run % 2][k][i];
            to[i] = sum;
        }
    }
}

static int32_t range_wait(const struct ls_strategy_host *host, uint32_t replica,
                          struct ls_strategy_collective *range)
{
    struct ls_fake_host *fake = fake_of(host);
    const struct timespec end = ls_fake_deadline();
    int32_t status = LS_OK;
    if (!ls_fake_known(fake, replica, 0, "wait"))
        return ls_fake_refusal(fake);
    pthread_mutex_lock(&fake->lock);
    struct ls_fake_replica *own = &fake->replica[replica];
    const struct ls_strategy_operation *of = &range->operation;
    const uint32_t run = range->waited[replica];
    if (own->hook == LS_FAKE_READY && fake->replicas > 1)
        ls_tally_blame(fake->tally, "gradient_ready of replica %u waits for other replicas",
                       replica);
    if (range->started[replica] == run) {
        ls_tally_blame(fake->tally, "replica %u waits for a collective that it has not started",
                       replica);
        status = LS_FAILED;
    }
    for (uint32_t i = 0; !status && i < fake->replicas;) {
        if (range->started[i] > run)
            i++;
        else if (fake->aborted)
            status = LS_ABORTED;
        else if (!ls_fake_wait(fake, &end))
            status = LS_PEER_LOST;
    }
    if (!status) {
        take_result(fake, range, run, replica,
                    find_range(fake, replica, of->memory, of->first, of->count, "wait"));
        range->waited[replica]++;
        own->sums_waited |= of->memory == LS_REPLICA_SUMS;
        own->changes +=
            of->memory == LS_REPLICA_PARAMETERS || of->memory == LS_REPLICA_ROOM_AND_PARAMETERS;
    }
    pthread_mutex_unlock(&fake->lock);
    return status;
}

static int32_t update_range(const struct ls_strategy_host *host, uint32_t replica, uint64_t first,
                            uint64_t count)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!ls_fake_known(fake, replica, 0, "update_range"))
        return ls_fake_refusal(fake);
    pthread_mutex_lock(&fake->lock);
    struct ls_fake_replica *own = &fake->replica[replica];
    const float *gradients =
        find_range(fake, replica, LS_REPLICA_GRADIENTS, first, count, "update_range");
    own->updates_after_failure += own->failures > 0;
    if (!own->checks)
        ls_tally_blame(fake->tally, "replica %u updates a range before check_step", replica);
    for (uint64_t i = 0; gradients && i < count; i++)
        own->parameters[first + i] -= gradients[i];
    own->changes++;
    own->ranged = true;
    pthread_mutex_unlock(&fake->lock);
    return gradients ? LS_OK : LS_FAILED;
}

// ---- The host ----

static const struct ls_strategy_collectives collectives = {
    .struct_size = sizeof(collectives),
    .all_reduce_start = all_reduce_start,
    .all_reduce_wait = all_reduce_wait,
    .broadcast_parameters = broadcast_parameters,
    .prepare = prepare,
    .start = range_start,
    .wait = range_wait,
};

static const struct ls_strategy_step step_table = {
    .struct_size = sizeof(step_table),
    .current = ls_fake_current,
    .read_sums = ls_fake_read_sums,
    .check_step = check_step,
    .check_step_on = ls_fake_check_step_on,
    .update = update,
    .update_range = update_range,
};

int32_t ls_fake_open(struct ls_fake_host *fake, struct ls_strategy **out)
{
    struct ls_strategy *strategy = ls_instance_create(fake->strategy, fake->strategy->state_bytes);
    if (!strategy)
        return LS_OUT_OF_MEMORY;
    const int32_t status = fake->strategy->open(&fake->table, strategy);
    if (status)
        ls_instance_destroy(strategy);
    else
        *out = strategy;
    return status;
}

void ls_fake_close(struct ls_fake_host *fake, struct ls_strategy *strategy)
{
    if (strategy && fake->strategy->close)
        fake->strategy->close(strategy);
    ls_instance_destroy(strategy);
}

void ls_fake_host_init(struct ls_fake_host *fake, struct ls_tally *tally,
                       const struct ls_strategy_interface *strategy, const struct ls_host *host,
                       const struct ls_fake_transport *transport, uint32_t replicas,
                       const struct ls_fake_model *model, uint64_t seed)
{
    const uint32_t buckets = (model->variables + model->per_bucket - 1) / model->per_bucket;
    memset(fake, 0, sizeof(*fake));
    fake->tally = tally;
    fake->strategy = strategy;
    fake->traits = strategy->traits;
    fake->traits.struct_size = sizeof(fake->traits);
    fake->transport = *transport;
    fake->seed = seed;
    fake->replicas = replicas;
    fake->buckets = buckets;
    fake->model = *model;
    fake->bucket_floats = ls_fake_bucket(model, 0).count;
    fake->first_step = strategy->rounds ? LS_FAKE_FIRST_STEP_OF_ROUNDS : LS_FAKE_FIRST_STEP;
    fake->threads_allowed = LS_FAKE_THREADS;
    pthread_mutex_init(&fake->lock, NULL);
    pthread_cond_init(&fake->changed, NULL);
    fake->table = (struct ls_strategy_host){
        .struct_size = sizeof(fake->table),
        .replicas = replicas,
        .world = replicas,
        .bucket_count = buckets,
        .variable_count = model->variables,
        .flat_count = ls_fake_variable(model, model->variables).first,
        .deadline_ns = DEADLINE_SECONDS * UINT64_C(1000000000),
        .context = fake,
        .host = host,
        .layout = &ls_fake_layout,
        .collectives = &collectives,
        .step = &step_table,
        .memory = &ls_fake_memory,
        .stores = &ls_fake_stores,
        .threads = &ls_fake_threads,
        .endpoints = &ls_fake_endpoints,
        .report = &ls_fake_report,
        .transport = transport->interface,
    };
    for (uint32_t i = 0; i < replicas; i++)
        ls_fake_own_sums(i, fake->replica[i].own_sums);
    for (uint32_t i = 0; i < replicas; i++)
        for (uint64_t k = 0; k < fake->table.flat_count; k++)
            fake->replica[i].seen[k] = fake->replica[i].parameters[k] =
                ls_fake_first_parameter(fake, i, k);
}

void ls_fake_host_finish(struct ls_fake_host *fake)
{
    ls_fake_finish_peers(fake);
    for (uint32_t i = 0; i < LS_FAKE_STORES; i++)
        if (fake->stores[i].fake)
            ls_tally_blame(fake->tally, "close leaves a store open");
    for (uint32_t i = 0; i < LS_FAKE_STORES; i++)
        free(fake->stores[i].values);
    release_ranges(fake);
    pthread_cond_destroy(&fake->changed);
    pthread_mutex_destroy(&fake->lock);
}

void ls_fake_read_traits(struct ls_fake_host *fake, struct ls_strategy *strategy)
{
    struct ls_strategy_traits *traits = &fake->traits;
    if (fake->strategy->find_traits)
        fake->strategy->find_traits(strategy, traits);
    if (traits->divisor < LS_DIVISOR_GLOBAL || traits->divisor > LS_DIVISOR_SHARE ||
        (traits->equality != LS_EQUAL_EVERY_STEP && traits->equality != LS_EQUAL_AT_SYNCHRONISE))
        ls_tally_blame(fake->tally, "the traits are divisor %u and equality %u", traits->divisor,
                       traits->equality);
    if ((traits->divisor == LS_DIVISOR_SHARE) != (fake->strategy->rounds == 1))
        ls_tally_blame(fake->tally, "rounds are %u with divisor %u", fake->strategy->rounds,
                       traits->divisor);
    if (traits->survives && (!fake->strategy->lost || traits->divisor != LS_DIVISOR_OWN))
        ls_tally_blame(fake->tally, "the traits say that it survives, but %s",
                       fake->strategy->lost ? "its replicas wait for each other"
                                            : "there is no `lost`");
}

void ls_fake_begin(struct ls_fake_host *fake, uint32_t replica, uint32_t step)
{
    pthread_mutex_lock(&fake->lock);
    struct ls_fake_replica *own = &fake->replica[replica];
    own->checks = 0;
    own->sums_waited = false;
    memcpy(own->sums, own->own_sums, sizeof(own->sums));
    own->step = step;
    for (uint32_t i = 0; i < fake->buckets; i++)
        own->buckets[i] = (struct ls_fake_bucket){0};
    pthread_mutex_unlock(&fake->lock);
}

// Without the lock: ThreadSanitizer sees a thread that still reads them, though it may not.
void ls_fake_compute(struct ls_fake_host *fake, uint32_t replica)
{
    struct ls_fake_replica *own = &fake->replica[replica];
    for (uint64_t i = 0; i < fake->table.flat_count; i++)
        own->gradients[i] = ls_fake_gradient(fake, replica, own->step, i);
}

// The shadows of a model are made anew only when the strategy says that parameters have changed.
static void judge_touch(struct ls_fake_host *fake, uint32_t replica)
{
    struct ls_fake_replica *own = &fake->replica[replica];
    const size_t bytes = fake->table.flat_count * sizeof(float);
    if (own->changes == own->judged && memcmp(own->seen, own->parameters, bytes) != 0)
        ls_tally_blame(fake->tally,
                       "replica %u: a hook changed parameters through map and did not call changed",
                       replica);
    memcpy(own->seen, own->parameters, bytes);
    own->judged = own->changes;
}

void ls_fake_enter(struct ls_fake_host *fake, uint32_t replica, enum ls_fake_hook hook)
{
    pthread_mutex_lock(&fake->lock);
    fake->replica[replica].hook = hook;
    if (hook == LS_FAKE_OUTSIDE)
        judge_touch(fake, replica);
    pthread_mutex_unlock(&fake->lock);
}

void ls_fake_ready(struct ls_fake_host *fake, uint32_t replica, uint32_t bucket)
{
    pthread_mutex_lock(&fake->lock);
    fake->replica[replica].buckets[bucket].ready = true;
    fake->replica[replica].hook = LS_FAKE_READY;
    pthread_mutex_unlock(&fake->lock);
}

void ls_fake_abort(struct ls_fake_host *fake)
{
    pthread_mutex_lock(&fake->lock);
    abort_all(fake);
    pthread_mutex_unlock(&fake->lock);
}
