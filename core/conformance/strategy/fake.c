// SPDX-License-Identifier: Apache-2.0
// The host that the strategy suite offers: whole numbers in place of tensors, and a meeting place of the replicas.
#include "core/conformance/strategy/suite.h"

#include "core/base/random.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define DEADLINE_SECONDS 5

static struct ls_fake_host *fake_of(const struct ls_strategy_host *host)
{
    return host->context;
}

int64_t ls_fake_gradient(const struct ls_fake_host *fake, uint32_t replica, uint32_t step,
                         uint32_t bucket)
{
    const uint64_t key = ls_random_key(fake->seed, 1 + step);
    return (int64_t)(ls_random_u64(key, replica * 100 + bucket) % 1000) - 500;
}

int64_t ls_fake_first_parameter(const struct ls_fake_host *fake, uint32_t replica, uint32_t bucket)
{
    return (int64_t)(ls_random_u64(ls_random_key(fake->seed, 0), replica * 100 + bucket) % 100000);
}

// ---- What every call has in common ----

// Whether the numbers of a call are those of a replica and a bucket. A plugin that names others would write past a
// model's buffers.
static bool known(struct ls_fake_host *fake, uint32_t replica, uint32_t bucket, const char *call)
{
    if (replica < fake->replicas && bucket < fake->buckets)
        return true;
    return ls_tally_blame(fake->tally, "%s of replica %u, bucket %u; there are %u and %u", call,
                          replica, bucket, fake->replicas, fake->buckets);
}

// The status of a call that is to fail here; with the lock held.
static int32_t failure(struct ls_fake_host *fake, enum ls_fake_call call, uint32_t replica)
{
    if (fake->fails != call || fake->fails_at != replica)
        return LS_OK;
    fake->replica[replica].failures++;
    fake->aborted = true; // as the core does when a replica fails
    pthread_cond_broadcast(&fake->changed);
    return fake->fails_with;
}

// Waits for a change until the deadline; false: it has passed.
static bool wait_changed(struct ls_fake_host *fake, const struct timespec *end)
{
    return pthread_cond_timedwait(&fake->changed, &fake->lock, end) != ETIMEDOUT;
}

static struct timespec deadline(void)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += DEADLINE_SECONDS;
    return end;
}

// ---- The calls ----

static int32_t all_reduce_start(const struct ls_strategy_host *host, uint32_t replica,
                                uint32_t bucket)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!known(fake, replica, bucket, "all_reduce_start"))
        return LS_FAILED;
    pthread_mutex_lock(&fake->lock);
    struct ls_fake_replica *own = &fake->replica[replica];
    struct ls_fake_bucket *part = &own->buckets[bucket];
    const int32_t status = failure(fake, LS_FAKE_START, replica);
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
        fake->sums[number] += part->gradient;
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
    const struct timespec end = deadline();
    while (fake->arrived[number] < fake->replicas) {
        if (fake->aborted)
            return LS_ABORTED;
        if (!wait_changed(fake, &end)) {
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
    if (!known(fake, replica, bucket, "all_reduce_wait"))
        return LS_FAILED;
    pthread_mutex_lock(&fake->lock);
    struct ls_fake_replica *own = &fake->replica[replica];
    struct ls_fake_bucket *part = &own->buckets[bucket];
    int32_t status = failure(fake, LS_FAKE_WAIT, replica);
    if (own->hook == LS_FAKE_READY && fake->replicas > 1)
        ls_tally_blame(fake->tally, "gradient_ready of replica %u waits for other replicas",
                       replica);
    if (!status && !part->started) {
        ls_tally_blame(fake->tally, "replica %u waits for bucket %u, which it has not started",
                       replica, bucket);
        status = LS_FAILED;
    }
    if (!status && !part->waited) {
        const uint32_t number = number_of(own, bucket);
        status = number < LS_FAKE_CALLS ? wait_for_all(fake, replica, bucket, number) : LS_FAILED;
        if (!status) {
            part->gradient = fake->sums[number];
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
    if (!known(fake, replica, 0, "broadcast_parameters") ||
        !known(fake, root, 0, "broadcast_parameters: the root"))
        return LS_FAILED;
    pthread_mutex_lock(&fake->lock);
    struct ls_fake_replica *own = &fake->replica[replica];
    int32_t status = failure(fake, LS_FAKE_BROADCAST, replica);
    own->broadcasts++;
    own->root = root;
    if (!status && replica == root) {
        for (uint32_t i = 0; i < fake->buckets; i++)
            fake->roots[i] = own->buckets[i].parameter;
        fake->root_came = true;
        pthread_cond_broadcast(&fake->changed);
    }
    const struct timespec end = deadline();
    while (!status && !fake->root_came) {
        if (fake->aborted)
            status = LS_ABORTED;
        else if (!wait_changed(fake, &end)) {
            ls_tally_blame(fake->tally, "replica %u waits for parameters from %u, who sends none",
                           replica, root);
            status = LS_PEER_LOST;
        }
    }
    for (uint32_t i = 0; !status && i < fake->buckets; i++)
        own->buckets[i].parameter = fake->roots[i];
    pthread_mutex_unlock(&fake->lock);
    return status;
}

static int32_t decide(const struct ls_strategy_host *host, uint32_t replica)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!known(fake, replica, 0, "decide"))
        return LS_FAILED;
    pthread_mutex_lock(&fake->lock);
    struct ls_fake_replica *own = &fake->replica[replica];
    const int32_t status = failure(fake, LS_FAKE_DECIDE, replica);
    own->decisions++;
    if (fake->replicas > 1 && fake->strategy->divisor == LS_DIVISOR_GLOBAL &&
        !own->buckets[0].waited)
        ls_tally_blame(fake->tally,
                       "replica %u decides before bucket 0, which carries the sums of the step, is "
                       "reduced",
                       replica);
    pthread_mutex_unlock(&fake->lock);
    return status;
}

static int32_t update(const struct ls_strategy_host *host, uint32_t replica, uint32_t bucket)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!known(fake, replica, bucket, "update"))
        return LS_FAILED;
    pthread_mutex_lock(&fake->lock);
    struct ls_fake_replica *own = &fake->replica[replica];
    struct ls_fake_bucket *part = &own->buckets[bucket];
    own->updates_after_failure += own->failures > 0;
    const int32_t status = failure(fake, LS_FAKE_UPDATE, replica);
    if (!own->decisions)
        ls_tally_blame(fake->tally, "replica %u updates bucket %u before decide", replica, bucket);
    if (!part->ready)
        ls_tally_blame(fake->tally, "replica %u updates bucket %u before it is ready", replica,
                       bucket);
    if (part->started && !part->waited)
        ls_tally_blame(fake->tally, "replica %u updates bucket %u before its sum is there", replica,
                       bucket);
    part->updates++;
    part->parameter -= part->gradient;
    pthread_mutex_unlock(&fake->lock);
    return status;
}

// ---- Around them ----

void ls_fake_host_init(struct ls_fake_host *fake, struct ls_tally *tally,
                       const struct ls_strategy_interface *strategy, const struct ls_host *host,
                       uint32_t replicas, uint32_t buckets, uint64_t seed)
{
    memset(fake, 0, sizeof(*fake));
    fake->tally = tally;
    fake->strategy = strategy;
    fake->seed = seed;
    fake->replicas = replicas;
    fake->buckets = buckets;
    pthread_mutex_init(&fake->lock, NULL);
    pthread_cond_init(&fake->changed, NULL);
    fake->table = (struct ls_strategy_host){
        .struct_size = sizeof(fake->table),
        .replicas = replicas,
        .world = replicas,
        .bucket_count = buckets,
        .context = fake,
        .host = host,
        .all_reduce_start = all_reduce_start,
        .all_reduce_wait = all_reduce_wait,
        .broadcast_parameters = broadcast_parameters,
        .decide = decide,
        .update = update,
    };
    for (uint32_t i = 0; i < replicas; i++)
        for (uint32_t k = 0; k < buckets; k++)
            fake->replica[i].buckets[k].parameter = ls_fake_first_parameter(fake, i, k);
}

void ls_fake_host_finish(struct ls_fake_host *fake)
{
    pthread_cond_destroy(&fake->changed);
    pthread_mutex_destroy(&fake->lock);
}

void ls_fake_begin(struct ls_fake_host *fake, uint32_t replica, uint32_t step)
{
    pthread_mutex_lock(&fake->lock);
    struct ls_fake_replica *own = &fake->replica[replica];
    own->decisions = 0;
    for (uint32_t i = 0; i < fake->buckets; i++) {
        struct ls_fake_bucket *bucket = &own->buckets[i];
        bucket->gradient = ls_fake_gradient(fake, replica, step, i);
        bucket->ready = bucket->started = bucket->waited = false;
        bucket->updates = 0;
    }
    pthread_mutex_unlock(&fake->lock);
}

void ls_fake_enter(struct ls_fake_host *fake, uint32_t replica, enum ls_fake_hook hook)
{
    pthread_mutex_lock(&fake->lock);
    fake->replica[replica].hook = hook;
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
    fake->aborted = true;
    pthread_cond_broadcast(&fake->changed);
    pthread_mutex_unlock(&fake->lock);
}
