// SPDX-License-Identifier: Apache-2.0
// A worker's side: asks all servers at once, receives values straight into the replica's parameters, and posts its
// gradients where they are. Only the answers to its requests make it wait. [replica thread, but where said]
#include "plugins/strategy/parameter-server/internal.h"

#include <string.h>

// What a link waits for.
enum { LINK_NOTHING = 0, LINK_ANSWER, LINK_VALUES, LINK_STATISTICS };

// Requests of a step beside the pushes: its end, a rest, and a pull, meeting or goodbye.
#define REQUESTS_BESIDE 5

static const struct ls_strategy_host *host_of(const struct worker *worker)
{
    return worker->strategy->host;
}

static uint32_t server_count(const struct worker *worker)
{
    return worker->strategy->settings.servers;
}

static enum mode mode_of(const struct worker *worker)
{
    return worker->strategy->settings.mode;
}

// ---- Sending ----

static int32_t send_request(struct worker *worker, struct link *link, uint32_t kind,
                            uint32_t bucket, const float *sums)
{
    struct request *request = &link->requests[link->request_count++];
    *request = (struct request){.kind = kind,
                                .bucket = bucket,
                                .step = worker->step,
                                .learning_rate = worker->learning_rate};
    if (sums)
        memcpy(request->sums, sums, sizeof(request->sums));
    worker->sent_bytes += sizeof(*request);
    return channel_send(&link->channel, &link->sends[link->send_count++], SIGNATURE_REQUEST,
                        request, sizeof(*request), LS_U8);
}

// Moves sends on without waiting; later ones too, because more than a window of them may be under way.
static int32_t test_sends(struct link *link)
{
    for (uint32_t i = link->sends_done; i < link->send_count; i++) {
        if (link->sends[i].state == LS_TRANSFER_COMPLETE)
            continue;
        const int32_t status = link->channel.ops->test(link->channel.own, &link->sends[i]);
        if (status && status != LS_AGAIN)
            return status;
    }
    while (link->sends_done < link->send_count &&
           link->sends[link->sends_done].state == LS_TRANSFER_COMPLETE)
        link->sends_done++;
    return LS_OK;
}

// ---- Answers ----

static int32_t say_late(const struct worker *worker, const struct answer *answer)
{
    const struct settings *settings = &worker->strategy->settings;
    const double seconds = (double)host_of(worker)->deadline_ns * 1e-9;
    char why[96];
    if (settings->mode == MODE_SYNC)
        snprintf(why, sizeof(why), "to push its gradients");
    else
        snprintf(why, sizeof(why), "which is still in its step %llu since all met",
                 (unsigned long long)answer->late_steps + 1);
    return ls_host_fail(host_of(worker)->host, LS_PEER_LOST,
                        "worker %u, step %llu: waited %.1f s for worker %u%s %s; it hangs, or "
                        "--deadline is too short for it",
                        worker->rank, (unsigned long long)worker->step, seconds,
                        answer->late_worker, settings->mode == MODE_SYNC ? "" : ",", why);
}

// Posts where the values of all shards shall go that have changed.
static int32_t take_answer(struct worker *worker, struct link *link)
{
    const uint64_t *versions = answer_versions(link->answer);
    if (link->answer->late)
        return say_late(worker, link->answer);
    int32_t status = LS_OK;
    for (uint32_t i = 0; !status && i < link->shard_count; i++) {
        if (versions[i] == link->versions[i])
            continue;
        const struct range range = link->shards[i]->range;
        link->versions[i] = versions[i];
        link->changed[link->changed_count++] = i;
        status = channel_receive(&link->channel, &link->values[i], SIGNATURE_VALUES | i,
                                 worker->parameters + range.first, range.count, LS_F32, 0);
    }
    link->waits = LINK_VALUES;
    return status;
}

static int32_t test_receives(struct worker *worker, struct link *link)
{
    const struct ls_transport_interface *ops = link->channel.ops;
    int32_t status = LS_OK;
    if (link->waits == LINK_ANSWER || link->waits == LINK_STATISTICS) {
        status = ops->test(link->channel.own, &link->answering);
        if (!status && link->waits == LINK_ANSWER)
            status = take_answer(worker, link);
        else if (!status)
            link->waits = LINK_NOTHING;
    }
    while (!status && link->waits == LINK_VALUES) {
        if (link->changed_done == link->changed_count) {
            link->waits = LINK_NOTHING;
            break;
        }
        status = ops->test(link->channel.own, &link->values[link->changed[link->changed_done]]);
        link->changed_done += status == LS_OK;
    }
    return status == LS_AGAIN ? LS_OK : status;
}

// ---- Waiting ----

// Moves a link on, and adds what it still waits for to the list.
static int32_t move_link(struct worker *worker, struct link *link, uint64_t *count)
{
    int32_t status = test_receives(worker, link);
    if (!status)
        status = test_sends(link);
    if (status)
        return status;
    if (link->waits == LINK_VALUES)
        worker->waiting[(*count)++] = &link->values[link->changed[link->changed_done]];
    else if (link->waits)
        worker->waiting[(*count)++] = &link->answering;
    if (link->sends_done < link->send_count)
        worker->waiting[(*count)++] = &link->sends[link->sends_done];
    return LS_OK;
}

static bool is_done(const struct link *link)
{
    return !link->waits && link->sends_done == link->send_count;
}

static int32_t say_silent(const struct worker *worker, uint64_t waited_ns)
{
    uint32_t server = 0;
    while (server + 1 < server_count(worker) && is_done(&worker->links[server]))
        server++;
    return ls_host_fail(host_of(worker)->host, LS_PEER_LOST,
                        "worker %u, step %llu: waited %.1f s for server %u", worker->rank,
                        (unsigned long long)worker->step, (double)waited_ns * 1e-9, server);
}

static int32_t poll_servers(const struct worker *worker)
{
    for (uint32_t i = 0; i < server_count(worker); i++) {
        const struct channel *channel = &worker->links[i].channel;
        const int32_t status = channel->ops->peer_state(channel->own, channel->peer);
        if (status == LS_PEER_LOST)
            return ls_host_fail(host_of(worker)->host, status,
                                "worker %u, step %llu: server %u is lost", worker->rank,
                                (unsigned long long)worker->step, i);
        if (status)
            return status;
    }
    return LS_OK;
}

// Until all links have what they wait for, and all that was sent has arrived. `since_ns`: when it began to wait; stays as
// it is when nothing was missing.
static int32_t wait_for_links(struct worker *worker, uint64_t *since_ns)
{
    const struct ls_host *host = host_of(worker)->host;
    const uint64_t patience = worker_patience_ns(host_of(worker));
    const uint64_t begin = host->clock_ns(host);
    for (;;) {
        uint64_t count = 0;
        for (uint32_t i = 0; i < server_count(worker); i++) {
            const int32_t status = move_link(worker, &worker->links[i], &count);
            if (status)
                return status;
        }
        if (!count)
            return LS_OK;
        *since_ns = begin;
        int32_t status =
            host_of(worker)->transport->wait_any(worker->endpoint, worker->waiting, count, POLL_NS);
        if (status == LS_AGAIN)
            status = poll_servers(worker);
        if (status)
            return status;
        const uint64_t waited = host->clock_ns(host) - begin;
        if (waited > patience)
            return say_silent(worker, waited);
    }
}

// Values may have come though not all did.
static void say_changed(const struct worker *worker)
{
    bool changed = false;
    for (uint32_t i = 0; i < server_count(worker); i++)
        changed |= worker->links[i].changed_count > 0;
    if (changed && !worker->parameter_copy)
        host_of(worker)->memory->changed(host_of(worker), worker->rank);
}

// What was received goes where the replica wants it, and what was sent may be forgotten.
static int32_t finish_links(struct worker *worker)
{
    const struct ls_strategy_host *host = host_of(worker);
    int32_t status = LS_OK;
    for (uint32_t k = 0; k < server_count(worker); k++) {
        struct link *link = &worker->links[k];
        for (uint32_t i = 0; !status && worker->parameter_copy && i < link->changed_count; i++) {
            const struct range range = link->shards[link->changed[i]]->range;
            status = host->memory->write(host, worker->rank, LS_REPLICA_PARAMETERS, range.first,
                                         range.count, worker->parameter_copy + range.first);
        }
        link->changed_count = link->changed_done = 0;
        link->request_count = link->send_count = link->sends_done = 0;
    }
    return status;
}

// For the timeline: a server says whether it was other workers that it let this one wait for.
static void say_waited(const struct worker *worker, uint64_t since_ns)
{
    const struct ls_strategy_host *host = host_of(worker);
    bool held_back = false;
    for (uint32_t i = 0; i < server_count(worker); i++)
        held_back |= worker->links[i].answer->held_back != 0;
    host->report->waited(host, worker->rank,
                         held_back ? LS_WAITED_FOR_REPLICAS : LS_WAITED_FOR_SERVERS, since_ns);
}

// Asks all servers and waits for what they answer.
static int32_t ask(struct worker *worker, uint32_t kind)
{
    uint64_t since_ns = 0;
    int32_t status = LS_OK;
    for (uint32_t i = 0; !status && i < server_count(worker); i++) {
        struct link *link = &worker->links[i];
        status = send_request(worker, link, kind, 0, NULL);
        if (status)
            break;
        link->waits = LINK_ANSWER;
        link->answer->held_back = 0;
        status = channel_receive(&link->channel, &link->answering, SIGNATURE_ANSWER, link->answer,
                                 answer_bytes(link->shard_count), LS_U8, 0);
    }
    if (!status)
        status = wait_for_links(worker, &since_ns);
    if (since_ns)
        say_waited(worker, since_ns);
    worker->broken |= status != LS_OK;
    say_changed(worker);
    return status ? status : finish_links(worker);
}

// ---- The hooks ----

int32_t worker_initialize(struct worker *worker)
{
    const int32_t status = worker_find_memory(worker);
    return status ? status : ask(worker, REQUEST_FETCH);
}

// The option that makes a replica slow: it computes longer, between its pull and its pushes. An abort wakes it.
static int32_t delay(const struct worker *worker)
{
    const struct settings *settings = &worker->strategy->settings;
    if (settings->delay_replica != worker->rank)
        return LS_OK;
    const int32_t status = host_of(worker)->transport->wait_any(worker->endpoint, worker->waiting,
                                                                0, settings->delay_ns);
    return status == LS_AGAIN ? LS_OK : status;
}

int32_t worker_begin(struct worker *worker)
{
    const struct ls_strategy_host *host = host_of(worker);
    int32_t status = LS_OK;
    worker->sent_bytes = 0;
    host->step->current(host, worker->rank, &worker->step, &worker->learning_rate);
    if (mode_of(worker) != MODE_SYNC)
        status = ask(worker, REQUEST_PULL);
    for (uint32_t i = 0; i < server_count(worker); i++)
        worker->links[i].pushed = 0;
    return status ? status : delay(worker);
}

// Bucket 0 is the first, and with it the sums are known. What has no examples, and so no gradient, is no step of
// anybody's own optimizer; and nothing may be pushed of a loss that is not finite.
static int32_t begin_pushing(struct worker *worker, float *sums)
{
    const struct ls_strategy_host *host = host_of(worker);
    int32_t status = host->step->read_sums(host, worker->rank, sums);
    if (status || mode_of(worker) == MODE_SYNC)
        return status;
    worker->silent = sums[LS_SUMS_EXAMPLES] <= 0;
    return host->step->check_step_on(host, worker->rank, sums);
}

static int32_t push_shards(struct worker *worker, struct link *link, uint32_t bucket,
                           const float *sums)
{
    const bool any =
        link->pushed < link->shard_count && link->shards[link->pushed]->bucket == bucket;
    if (!any && !sums)
        return LS_OK;
    int32_t status = send_request(worker, link, REQUEST_PUSH, bucket, sums);
    for (; !status && link->pushed < link->shard_count &&
           link->shards[link->pushed]->bucket == bucket;
         link->pushed++) {
        const struct range range = link->shards[link->pushed]->range;
        worker->sent_bytes += range.count * sizeof(float);
        status = channel_send(&link->channel, &link->sends[link->send_count++],
                              SIGNATURE_GRADIENT | link->pushed, worker->gradients + range.first,
                              range.count, LS_F32);
    }
    return status ? status : test_sends(link);
}

int32_t worker_push(struct worker *worker, uint32_t bucket)
{
    const struct ls_strategy_host *host = host_of(worker);
    float sums[LS_STRATEGY_SUMS];
    int32_t status = bucket == 0 ? begin_pushing(worker, sums) : LS_OK;
    if (status || (worker->silent && mode_of(worker) != MODE_SYNC))
        return status;
    if (worker->gradient_copy) {
        const struct range range = worker->strategy->buckets[bucket];
        status = host->memory->read(host, worker->rank, LS_REPLICA_GRADIENTS, range.first,
                                    range.count, worker->gradient_copy + range.first);
        if (status)
            return status;
    }
    const bool with_sums = bucket == 0 && mode_of(worker) == MODE_SYNC;
    for (uint32_t i = 0; !status && i < server_count(worker); i++)
        status = push_shards(worker, &worker->links[i], bucket, with_sums ? sums : NULL);
    worker->broken |= status != LS_OK;
    return status;
}

static int32_t end_sync(struct worker *worker)
{
    const struct ls_strategy_host *host = host_of(worker);
    int32_t status = ask(worker, REQUEST_PULL);
    if (!status)
        status = host->step->check_step_on(host, worker->rank, worker->links[0].answer->sums);
    return status;
}

int32_t worker_end(struct worker *worker)
{
    const struct ls_strategy_host *host = host_of(worker);
    int32_t status = LS_OK;
    if (mode_of(worker) == MODE_SYNC)
        status = end_sync(worker);
    else
        for (uint32_t i = 0; !status && i < server_count(worker); i++) {
            status = send_request(worker, &worker->links[i], REQUEST_END, 0, NULL);
            if (!status)
                status = test_sends(&worker->links[i]);
            worker->broken |= status != LS_OK;
        }
    if (!status)
        host->report->count_bytes(host, worker->rank, worker->sent_bytes);
    return status;
}

// Only a bounded worker waits for another's step.
int32_t worker_rest(struct worker *worker)
{
    int32_t status = LS_OK;
    if (mode_of(worker) != MODE_BOUNDED)
        return LS_OK;
    for (uint32_t i = 0; !status && i < server_count(worker); i++) {
        status = send_request(worker, &worker->links[i], REQUEST_REST, 0, NULL);
        if (!status)
            status = test_sends(&worker->links[i]);
    }
    worker->broken |= status != LS_OK;
    return status;
}

int32_t worker_barrier(struct worker *worker)
{
    if (mode_of(worker) == MODE_SYNC || worker->lost)
        return LS_OK;
    return ask(worker, REQUEST_MEET);
}

// [main thread, while the replica's is in no hook]
int32_t worker_statistics(struct worker *worker, struct statistics *out)
{
    uint64_t since_ns;
    int32_t status = LS_OK;
    for (uint32_t i = 0; !status && i < server_count(worker); i++) {
        struct link *link = &worker->links[i];
        status = send_request(worker, link, REQUEST_STATISTICS, 0, NULL);
        if (status)
            break;
        link->waits = LINK_STATISTICS;
        status = channel_receive(&link->channel, &link->answering, SIGNATURE_STATISTICS, &out[i],
                                 sizeof(out[i]), LS_U8, 0);
    }
    if (!status)
        status = wait_for_links(worker, &since_ns);
    worker->broken |= status != LS_OK;
    return status ? status : finish_links(worker);
}

// [main thread too, while the replica's is in no hook]
int32_t worker_leave(struct worker *worker)
{
    uint64_t since_ns;
    int32_t status = LS_OK;
    for (uint32_t i = 0; !status && i < server_count(worker); i++)
        status = send_request(worker, &worker->links[i], REQUEST_LEAVE, 0, NULL);
    if (!status)
        status = wait_for_links(worker, &since_ns);
    worker->broken |= status != LS_OK;
    return status;
}

// ---- Opening ----

static int32_t open_link(struct worker *worker, uint32_t server)
{
    struct ls_strategy *strategy = worker->strategy;
    const struct shard_plan *plan = &strategy->plan;
    struct link *link = &worker->links[server];
    const uint32_t requests = strategy->host->bucket_count + REQUESTS_BESIDE;
    link->channel = (struct channel){.ops = strategy->host->transport,
                                     .own = worker->endpoint,
                                     .peer = strategy->host->world + server};
    link->shards = strategy_allocate(strategy, plan->count, sizeof(*link->shards));
    if (!link->shards)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < plan->count; i++)
        if (plan->shards[i].server == server)
            link->shards[link->shard_count++] = &plan->shards[i];
    const uint32_t count = link->shard_count;
    link->versions = strategy_allocate(strategy, count, sizeof(*link->versions));
    link->answer = strategy_allocate(strategy, 1, answer_bytes(count));
    link->values = strategy_allocate(strategy, count, sizeof(*link->values));
    link->changed = strategy_allocate(strategy, count, sizeof(*link->changed));
    link->requests = strategy_allocate(strategy, requests, sizeof(*link->requests));
    link->sends = strategy_allocate(strategy, requests + count, sizeof(*link->sends));
    return link->versions && link->answer && link->values && link->changed && link->requests &&
                   link->sends
               ? LS_OK
               : LS_OUT_OF_MEMORY;
}

int32_t worker_open(struct ls_strategy *strategy, struct worker *worker, uint32_t rank)
{
    worker->strategy = strategy;
    worker->rank = rank;
    worker->endpoint = strategy->endpoints[rank];
    worker->links = strategy_allocate(strategy, server_count(worker), sizeof(*worker->links));
    worker->waiting =
        strategy_allocate(strategy, 2 * server_count(worker), sizeof(struct ls_transfer *));
    if (!worker->links || !worker->waiting)
        return LS_OUT_OF_MEMORY;
    int32_t status = LS_OK;
    for (uint32_t i = 0; !status && i < server_count(worker); i++)
        status = open_link(worker, i);
    return status;
}

void worker_close(struct worker *worker)
{
    struct ls_strategy *strategy = worker->strategy;
    if (!strategy)
        return;
    for (uint32_t i = 0; worker->links && i < server_count(worker); i++) {
        struct link *link = &worker->links[i];
        strategy_release(strategy, (void *)link->shards);
        strategy_release(strategy, link->versions);
        strategy_release(strategy, link->answer);
        strategy_release(strategy, link->values);
        strategy_release(strategy, link->changed);
        strategy_release(strategy, link->requests);
        strategy_release(strategy, link->sends);
    }
    strategy_release(strategy, worker->links);
    strategy_release(strategy, worker->waiting);
    strategy_release(strategy, worker->parameter_copy);
    strategy_release(strategy, worker->gradient_copy);
}
