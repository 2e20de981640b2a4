// SPDX-License-Identifier: Apache-2.0
// The fake host's barrier, threads, endpoints and report.
#include "tools/conformance/strategy/suite.h"

#include "core/base/threads.h"
#include "core/collective/endpoints.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct ls_fake_host *fake_of(const struct ls_strategy_host *host)
{
    return host->context;
}

// ---- The barrier ----

static void end_barrier_if_complete(struct ls_fake_host *fake)
{
    uint32_t came = 0;
    for (uint32_t i = 0; i < fake->replicas; i++) {
        if (!fake->replica[i].came && !fake->replica[i].gone)
            return;
        came += fake->replica[i].came;
    }
    for (uint32_t i = 0; i < fake->replicas; i++)
        fake->replica[i].came = false;
    fake->met += came > 0;
    pthread_cond_broadcast(&fake->changed);
}

static int32_t wait_for_barrier(struct ls_fake_host *fake, uint32_t replica, uint32_t seen)
{
    const struct timespec end = ls_fake_deadline();
    while (fake->met == seen) {
        if (fake->aborted)
            return LS_ABORTED;
        if (!ls_fake_wait(fake, &end)) {
            ls_tally_blame(fake->tally, "replica %u waits in a barrier, and not all replicas came",
                           replica);
            return LS_PEER_LOST;
        }
    }
    return LS_OK;
}

static int32_t barrier(const struct ls_strategy_host *host, uint32_t replica)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!ls_fake_known(fake, replica, 0, "barrier"))
        return ls_fake_refusal(fake);
    pthread_mutex_lock(&fake->lock);
    struct ls_fake_replica *own = &fake->replica[replica];
    int32_t status = ls_fake_failure(fake, LS_FAKE_BARRIER, replica);
    if (own->hook == LS_FAKE_READY && fake->replicas > 1)
        ls_tally_blame(fake->tally, "gradient_ready of replica %u waits for other replicas",
                       replica);
    if (!status) {
        const uint32_t seen = fake->met;
        own->came = true;
        end_barrier_if_complete(fake);
        status = wait_for_barrier(fake, replica, seen);
    }
    pthread_mutex_unlock(&fake->lock);
    return status;
}

static void waited(const struct ls_strategy_host *host, uint32_t replica, uint32_t whom,
                   uint64_t since_ns)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!ls_fake_known(fake, replica, 0, "waited"))
        return;
    pthread_mutex_lock(&fake->lock);
    if (fake->replica[replica].hook == LS_FAKE_READY && fake->replicas > 1)
        ls_tally_blame(fake->tally, "gradient_ready of replica %u waits for other replicas",
                       replica);
    if (whom != LS_WAITED_FOR_REPLICAS && whom != LS_WAITED_FOR_SERVERS)
        ls_tally_blame(fake->tally, "replica %u waited for somebody unknown, %u", replica, whom);
    else
        fake->replica[replica].waits[whom]++;
    if (since_ns == 0 || since_ns > host->host->clock_ns(host->host))
        ls_tally_blame(fake->tally, "replica %u waited since a time that is none", replica);
    pthread_mutex_unlock(&fake->lock);
}

void ls_fake_lose(struct ls_fake_host *fake, uint32_t replica)
{
    pthread_mutex_lock(&fake->lock);
    fake->replica[replica].gone = true;
    end_barrier_if_complete(fake);
    pthread_mutex_unlock(&fake->lock);
}

int32_t ls_fake_end(struct ls_fake_host *fake)
{
    const struct timespec end = ls_fake_deadline();
    int32_t status = LS_OK;
    pthread_mutex_lock(&fake->lock);
    fake->ended++;
    pthread_cond_broadcast(&fake->changed);
    while (!status && fake->ended < fake->replicas)
        if (fake->aborted || !ls_fake_wait(fake, &end))
            status = fake->aborted ? LS_ABORTED : LS_PEER_LOST;
    pthread_mutex_unlock(&fake->lock);
    return status;
}

// ---- Threads ----

static void *thread_main(void *argument)
{
    struct ls_strategy_thread *thread = argument;
    struct ls_fake_host *fake = thread->fake;
    thread->status = thread->run(thread->context);
    if (thread->status && thread->status != LS_ABORTED) {
        pthread_mutex_lock(&fake->lock);
        fake->thread_failure = thread->status;
        pthread_mutex_unlock(&fake->lock);
        ls_fake_abort(fake); // as the core does
    }
    return NULL;
}

static int32_t thread_start(const struct ls_strategy_host *host, const char *name,
                            int32_t (*run)(void *context), void *context,
                            struct ls_strategy_thread **out)
{
    struct ls_fake_host *fake = fake_of(host);
    struct ls_strategy_thread *thread = NULL;
    for (uint32_t i = 0; !thread && i < fake->threads_allowed; i++)
        if (!fake->threads[i].fake)
            thread = &fake->threads[i];
    if (!thread)
        return LS_OUT_OF_MEMORY;
    *thread = (struct ls_strategy_thread){.fake = fake, .run = run, .context = context};
    char text[16] = "";
    strncat(text, name ? name : "", sizeof(text) - 1);
    const enum ls_status status = ls_thread_start(&thread->thread, text, thread_main, thread);
    if (status) {
        thread->fake = NULL;
        return (int32_t)status;
    }
    *out = thread;
    return LS_OK;
}

static int32_t thread_join(const struct ls_strategy_host *host, struct ls_strategy_thread *thread)
{
    (void)host;
    if (!thread || !thread->fake)
        return LS_OK;
    pthread_join(thread->thread, NULL);
    thread->fake = NULL;
    return thread->status;
}

// ---- Endpoints ----

static int32_t endpoints_open(const struct ls_strategy_host *host, uint32_t servers,
                              struct ls_transport **endpoints)
{
    struct ls_fake_host *fake = fake_of(host);
    const struct ls_endpoints_options options = {.transport = host->transport,
                                                 .host = fake->transport.host,
                                                 .world = fake->replicas + servers,
                                                 .name = "check",
                                                 .deadline_ns = host->deadline_ns};
    if (!fake->strategy->needs_transport || !host->transport || fake->endpoints) {
        ls_tally_blame(fake->tally, "endpoints->open %s",
                       fake->endpoints ? "twice" : "without needs_transport");
        return LS_FAILED;
    }
    fake->endpoints = calloc(options.world, sizeof(struct ls_transport *));
    if (!fake->endpoints)
        return LS_OUT_OF_MEMORY;
    const int32_t status = (int32_t)ls_endpoints_open(&options, fake->endpoints);
    if (status)
        return status;
    fake->endpoint_count = options.world;
    memcpy(endpoints, fake->endpoints, options.world * sizeof(struct ls_transport *));
    return LS_OK;
}

static void endpoint_close(const struct ls_strategy_host *host, uint32_t endpoint)
{
    struct ls_fake_host *fake = fake_of(host);
    if (endpoint >= fake->endpoint_count) {
        ls_tally_blame(fake->tally, "endpoints->close of %u; there are %u", endpoint,
                       fake->endpoint_count);
        return;
    }
    pthread_mutex_lock(&fake->lock);
    struct ls_transport *closed = fake->endpoints[endpoint];
    fake->endpoints[endpoint] = NULL;
    pthread_mutex_unlock(&fake->lock);
    ls_endpoint_close(host->transport, closed);
}

void ls_fake_finish_peers(struct ls_fake_host *fake)
{
    for (uint32_t i = 0; i < LS_FAKE_THREADS; i++)
        if (fake->threads[i].fake) {
            ls_tally_blame(fake->tally, "close leaves a thread that was not joined");
            ls_fake_abort(fake);
            pthread_join(fake->threads[i].thread, NULL);
        }
    for (uint32_t i = 0; i < fake->endpoint_count; i++)
        ls_endpoint_close(fake->table.transport, fake->endpoints[i]);
    free(fake->endpoints);
    fake->endpoints = NULL;
    fake->endpoint_count = 0;
}

// ---- The report ----

static void count_bytes(const struct ls_strategy_host *host, uint32_t replica, uint64_t bytes)
{
    if (ls_fake_known(fake_of(host), replica, 0, "count_bytes"))
        fake_of(host)->replica[replica].bytes += bytes;
}

static void metric(const struct ls_strategy_host *host, const char *name, const double *values,
                   uint64_t count, uint32_t list)
{
    struct ls_fake_host *fake = fake_of(host);
    if (!fake->reporting)
        ls_tally_blame(fake->tally, "metric outside of report_metrics");
    if (!name || !*name)
        ls_tally_blame(fake->tally, "a metric without a name");
    else if (!list && count != 1)
        ls_tally_blame(fake->tally, "metric '%s': %llu numbers that are no list", name,
                       (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++)
        if (isinf(values[i]))
            ls_tally_blame(fake->tally, "metric '%s': a number is not finite", name);
}

void ls_fake_report_metrics(struct ls_fake_host *fake, struct ls_strategy *strategy)
{
    if (!fake->strategy->report_metrics)
        return;
    fake->reporting = true;
    fake->strategy->report_metrics(strategy);
    fake->reporting = false;
}

const struct ls_strategy_threads ls_fake_threads = {
    .struct_size = sizeof(ls_fake_threads),
    .barrier = barrier,
    .start = thread_start,
    .join = thread_join,
};

const struct ls_strategy_endpoints ls_fake_endpoints = {
    .struct_size = sizeof(ls_fake_endpoints),
    .open = endpoints_open,
    .close = endpoint_close,
};

const struct ls_strategy_report ls_fake_report = {
    .struct_size = sizeof(ls_fake_report),
    .count_bytes = count_bytes,
    .waited = waited,
    .metric = metric,
};
