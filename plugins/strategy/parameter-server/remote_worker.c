// SPDX-License-Identifier: Apache-2.0
// A worker's side of servers that are processes: what it asks, and how it goes on when a server is lost and comes back.
// [replica thread, but where said]
#include "plugins/strategy/parameter-server/remote_link.h"

#include <time.h>

// ---- Requests ----

static int32_t read_values(struct remote *remote, struct remote_link *link, uint64_t bytes)
{
    const struct ls_strategy_channels *ops = remote->ops;
    struct remote_answer answer;
    const uint64_t heads = sizeof(answer) + link->shard_count * sizeof(uint64_t);
    if (bytes < heads)
        return LS_BAD_INPUT;
    int32_t status = ops->read(link->channel, &answer, sizeof(answer));
    if (!status && answer.shards != link->shard_count)
        return LS_BAD_INPUT;
    if (!status)
        status = ops->read(link->channel, link->news, link->shard_count * sizeof(uint64_t));
    if (status)
        return status;
    uint64_t expected = heads;
    for (uint32_t i = 0; i < link->shard_count; i++)
        if (link->news[i] != link->versions[i])
            expected += link->shards[i]->range.count * sizeof(float);
    if (bytes != expected)
        return LS_BAD_INPUT;
    for (uint32_t i = 0; !status && i < link->shard_count; i++) {
        const struct range range = link->shards[i]->range;
        if (link->news[i] == link->versions[i])
            continue;
        status = ops->read(link->channel, remote->worker->parameters + range.first,
                           range.count * sizeof(float));
        if (!status && remote->worker->parameter_copy)
            status = remote_host(remote)->memory->write(
                remote_host(remote), 0, LS_REPLICA_PARAMETERS, range.first, range.count,
                remote->worker->parameters + range.first);
        else if (!status)
            remote_host(remote)->memory->changed(remote_host(remote), 0);
        if (!status)
            link->versions[i] = link->news[i];
    }
    return status;
}

static int32_t say_late(struct remote *remote, const struct remote_link *link, uint64_t bytes)
{
    struct remote_late late;
    if (bytes != sizeof(late))
        return LS_BAD_INPUT;
    const int32_t status = remote->ops->read(link->channel, &late, sizeof(late));
    if (status)
        return status;
    remote->over = true;
    if (late.here == 2)
        return ls_host_fail(remote_host(remote)->host, LS_PEER_LOST,
                            "worker %u, step %llu: worker %u has not come within %.1f s; "
                            "--deadline says how long to wait",
                            remote->ops->worker, (unsigned long long)remote->worker->step,
                            late.worker, late.seconds);
    return ls_host_fail(remote_host(remote)->host, LS_PEER_LOST,
                        "worker %u, step %llu: worker %u %s after %llu steps, %.1f s ago, and did "
                        "not come back; --deadline says how long to wait",
                        remote->ops->worker, (unsigned long long)remote->worker->step, late.worker,
                        late.here ? "was last heard of" : "was lost",
                        (unsigned long long)late.steps, late.seconds);
}

static int32_t take_answer(struct remote *remote, struct remote_link *link)
{
    for (;;) {
        uint32_t kind = 0;
        uint64_t bytes = 0;
        const int32_t status = remote->ops->receive(link->channel, &kind, &bytes);
        if (status)
            return status;
        if (kind == REMOTE_ANSWER)
            return read_values(remote, link, bytes);
        if (kind == REMOTE_LATE)
            return say_late(remote, link, bytes);
        if (kind != REMOTE_PATIENCE || bytes)
            return LS_BAD_INPUT;
    }
}

// What is asked for: an answer of this kind and size. NULL: an answer to PULL or MEET.
struct reply {
    uint32_t kind;
    void *memory;
    uint64_t bytes;
};

static int32_t take_reply(struct remote *remote, struct remote_link *link,
                          const struct reply *expected)
{
    uint32_t kind = 0;
    uint64_t bytes = 0;
    const int32_t status = remote->ops->receive(link->channel, &kind, &bytes);
    if (status)
        return status;
    return kind == expected->kind && bytes == expected->bytes
               ? remote->ops->read(link->channel, expected->memory, bytes)
               : LS_BAD_INPUT;
}

// Until this server has answered, however often it is lost.
static int32_t finish_request(struct remote *remote, struct remote_link *link, uint32_t kind,
                              const struct remote_request *request, const struct reply *reply)
{
    for (;;) {
        int32_t status =
            link->asked ? LS_OK : remote_send(remote, link, kind, request, sizeof(*request));
        link->asked = true;
        if (!status)
            status = reply ? take_reply(remote, link, reply) : take_answer(remote, link);
        if (status == LS_AGAIN) // also in the middle of an answer
            return remote_say_silent(remote, link);
        if (!status)
            link->failing_since_ns = 0;
        if (!remote_is_loss(remote, status)) {
            link->asked = false;
            return status;
        }
        status = remote_reach_again(remote, link);
        if (status)
            return status;
    }
}

// Asks all servers at once, and takes their answers.
static int32_t ask(struct remote *remote, uint32_t kind, const struct remote_request *request,
                   struct remote_counts *counts)
{
    const struct ls_strategy_host *host = remote_host(remote);
    const uint64_t begin = remote_now_ns(remote);
    int32_t status = LS_OK;
    for (uint32_t i = 0; i < remote->ops->servers; i++) {
        struct remote_link *link = &remote->links[i];
        link->asked = remote_send(remote, link, kind, request, sizeof(*request)) == LS_OK;
    }
    for (uint32_t i = 0; !status && i < remote->ops->servers; i++) {
        const struct reply reply = {REMOTE_COUNTS, counts ? &counts[i] : NULL, sizeof(*counts)};
        status = finish_request(remote, &remote->links[i], kind, request, counts ? &reply : NULL);
    }
    remote->worker->broken |= status != LS_OK;
    if (!counts)
        host->report->waited(host, 0, LS_WAITED_FOR_SERVERS, begin);
    return status;
}

// ---- The hooks ----

// Where this worker goes on: after the steps that all shards have of it.
static int32_t join(struct remote *remote, uint64_t *steps)
{
    uint64_t least = UINT64_MAX, updates = 0;
    int32_t status = LS_OK;
    for (uint32_t i = 0; !status && i < remote->ops->servers; i++) {
        struct remote_link *link = &remote->links[i];
        struct remote_welcome welcome = {0};
        status = remote_reach(remote, link, false, &welcome);
        link->failing_since_ns = 0;
        updates += welcome.updates;
        if (link->shard_count && welcome.least < least)
            least = welcome.least;
    }
    *steps = least == UINT64_MAX ? 0 : least;
    if (status || !remote->set_up || !updates)
        return status;
    remote->over = true;
    return ls_host_fail(remote_host(remote)->host, LS_USAGE,
                        "some servers go on with a training of which others have nothing: remove "
                        "the files in folder= of all servers, and start all processes anew");
}

static int32_t describe(struct remote *remote)
{
    const struct ls_strategy_host *host = remote_host(remote);
    uint64_t bytes = 0, hash = UINT64_C(0xcbf29ce484222325);
    int32_t status = remote->ops->describe(host, NULL, 0, &bytes);
    if (status)
        return status;
    remote->description = strategy_allocate(remote->strategy, bytes, 1);
    if (!remote->description)
        return LS_OUT_OF_MEMORY;
    status = remote->ops->describe(host, remote->description, bytes, &remote->description_bytes);
    for (uint64_t i = 0; !status && i < bytes; i++)
        hash = (hash ^ ((const uint8_t *)remote->description)[i]) * UINT64_C(0x100000001b3);
    remote->agreed.description = hash;
    return status;
}

int32_t remote_initialize(struct remote *remote)
{
    const struct ls_strategy_host *host = remote_host(remote);
    char text[128];
    uint64_t steps = 0;
    int32_t status = worker_find_memory(remote->worker);
    if (!status && remote->worker->parameter_copy)
        status = host->memory->read(host, 0, LS_REPLICA_PARAMETERS, 0, host->flat_count,
                                    remote->worker->parameter_copy);
    if (!status)
        status = describe(remote);
    if (!status)
        status = join(remote, &steps);
    if (status)
        return status;
    if (steps) {
        snprintf(text, sizeof(text), "worker %u goes on after step %llu", remote->ops->worker,
                 (unsigned long long)steps);
        host->host->log(host->host, LS_LOG_WARN, text);
    }
    remote->acknowledged = steps;
    remote->ops->go_on(host, steps);
    const struct remote_request fetch = {.at_once = 1};
    return ask(remote, REMOTE_PULL, &fetch, NULL);
}

static int32_t delay(const struct remote *remote)
{
    const struct settings *settings = &remote->strategy->settings;
    if (settings->delay_replica == remote->ops->worker)
        nanosleep(&(struct timespec){.tv_sec = (time_t)(settings->delay_ns / 1000000000),
                                     .tv_nsec = (long)(settings->delay_ns % 1000000000)},
                  NULL);
    return LS_OK;
}

int32_t remote_begin(struct remote *remote)
{
    const struct ls_strategy_host *host = remote_host(remote);
    struct worker *worker = remote->worker;
    worker->sent_bytes = 0;
    host->step->current(host, 0, &worker->step, &worker->learning_rate);
    remote->met = remote->rests = false;
    const struct remote_request pull = {.step = worker->step};
    const int32_t status = ask(remote, REMOTE_PULL, &pull, NULL);
    if (status)
        return status;
    remote->acknowledged = worker->step - 1;
    remote->pushed = 0;
    return delay(remote);
}

int32_t remote_push(struct remote *remote, uint32_t bucket)
{
    const struct ls_strategy_host *host = remote_host(remote);
    struct worker *worker = remote->worker;
    float sums[LS_STRATEGY_SUMS];
    int32_t status = LS_OK;
    if (bucket == 0) {
        status = host->step->read_sums(host, 0, sums);
        remote->silent = !status && sums[LS_SUMS_EXAMPLES] <= 0;
        if (!status)
            status = host->step->check_step_on(host, 0, sums);
        if (!status)
            status = remote->ops->read_tally(host, &remote->pushed_epoch, remote->tally);
    }
    if (!status && worker->gradient_copy && !remote->silent) {
        const struct range range = remote->strategy->buckets[bucket];
        status = host->memory->read(host, 0, LS_REPLICA_GRADIENTS, range.first, range.count,
                                    worker->gradient_copy + range.first);
    }
    if (status)
        return status;
    remote->pushed = bucket + 1;
    remote->pushed_step = worker->step;
    remote->pushed_rate = worker->learning_rate;
    for (uint32_t i = 0; !status && i < remote->ops->servers; i++) {
        struct remote_link *link = &remote->links[i];
        status = remote_push_bucket(remote, link, bucket);
        if (status == LS_AGAIN)
            status = remote_say_silent(remote, link);
        if (remote_is_loss(remote, status))
            status = remote_reach_again(remote, link);
    }
    worker->broken |= status != LS_OK;
    return status;
}

int32_t remote_end(struct remote *remote)
{
    const struct ls_strategy_host *host = remote_host(remote);
    host->report->count_bytes(host, 0, remote->worker->sent_bytes);
    return LS_OK;
}

int32_t remote_rest(struct remote *remote)
{
    const struct remote_request request = {.step = remote->worker->step};
    for (uint32_t i = 0; i < remote->ops->servers; i++) // a lost server waits for nobody either
        (void)remote_send(remote, &remote->links[i], REMOTE_REST, &request, sizeof(request));
    remote->rests = true;
    return LS_OK;
}

// What all workers' steps of this epoch have come to, for the report of worker 0.
static int32_t ask_for_tally(struct remote *remote)
{
    const struct ls_strategy_host *host = remote_host(remote);
    const uint32_t count = remote->ops->tally_count;
    struct remote_link *link = remote->links;
    const struct remote_link *end = link + remote->ops->servers;
    struct remote_request request = {0};
    while (link < end && !remote_keeps_tally(remote, link))
        link++;
    int32_t status = remote->ops->read_tally(host, &request.step, NULL);
    if (status || link == end)
        return status;
    double *sums = strategy_allocate(remote->strategy, count, sizeof(*sums));
    if (!sums)
        return LS_OUT_OF_MEMORY;
    const struct reply reply = {REMOTE_SUMS, sums, count * sizeof(*sums)};
    status = finish_request(remote, link, REMOTE_TALLY, &request, &reply);
    if (!status)
        remote->ops->give_tally(host, request.step, sums);
    strategy_release(remote->strategy, sums);
    remote->worker->broken |= status != LS_OK;
    return status;
}

int32_t remote_meet(struct remote *remote)
{
    const uint64_t step =
        remote->worker->step > remote->acknowledged ? remote->worker->step : remote->acknowledged;
    const struct remote_request meet = {.step = step};
    const int32_t status = ask(remote, REMOTE_MEET, &meet, NULL);
    if (status)
        return status;
    remote->acknowledged = step;
    remote->pushed = 0;
    remote->met = true;
    return remote->ops->worker == 0 ? ask_for_tally(remote) : LS_OK;
}

// [main thread, while the replica's is in no hook]
int32_t remote_statistics(struct remote *remote, struct statistics *out, uint64_t *updates)
{
    const uint32_t servers = remote->ops->servers;
    struct remote_counts *counts = strategy_allocate(remote->strategy, servers, sizeof(*counts));
    const struct remote_request request = {0};
    int32_t status = counts ? ask(remote, REMOTE_STATISTICS, &request, counts) : LS_OUT_OF_MEMORY;
    *updates = 0;
    for (uint32_t i = 0; !status && i < servers; i++) {
        out[i] = counts[i].statistics;
        *updates += counts[i].updates;
    }
    strategy_release(remote->strategy, counts);
    return status;
}

// A server that has heard of it says goodbye.
static int32_t say_goodbye(struct remote *remote, struct remote_link *link,
                           const struct remote_request *request)
{
    uint32_t kind = 0;
    uint64_t bytes = 0;
    int32_t status = remote_send(remote, link, REMOTE_LEAVE, request, sizeof(*request));
    while (!status && kind != REMOTE_GOODBYE) {
        status = remote->ops->receive(link->channel, &kind, &bytes);
        if (!status && (bytes || (kind != REMOTE_GOODBYE && kind != REMOTE_PATIENCE)))
            status = LS_BAD_INPUT;
    }
    return status;
}

// A worker that has not done all its steps only goes: it may come back. [main thread too, while the replica's is in no
// hook]
static void leave(struct remote *remote)
{
    const struct remote_request request = {.step = remote->acknowledged, .done = 1};
    if (!remote->met || remote->rests || remote->worker->broken)
        return;
    for (uint32_t i = 0; i < remote->ops->servers; i++) {
        struct remote_link *link = &remote->links[i];
        int32_t status = say_goodbye(remote, link, &request);
        while (remote_is_loss(remote, status)) {
            status = remote_reach_again(remote, link);
            if (!status)
                status = say_goodbye(remote, link, &request);
        }
    }
}

// ---- Opening ----

static int32_t open_link(struct remote *remote, uint32_t server)
{
    struct ls_strategy *strategy = remote->strategy;
    const struct shard_plan *plan = &strategy->plan;
    struct remote_link *link = &remote->links[server];
    link->shards = strategy_allocate(strategy, plan->count, sizeof(*link->shards));
    if (!link->shards)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < plan->count; i++)
        if (plan->shards[i].server == server)
            link->shards[link->shard_count++] = &plan->shards[i];
    link->versions = strategy_allocate(strategy, link->shard_count, sizeof(*link->versions));
    link->news = strategy_allocate(strategy, link->shard_count, sizeof(*link->news));
    return link->versions && link->news ? LS_OK : LS_OUT_OF_MEMORY;
}

int32_t remote_open(struct ls_strategy *strategy)
{
    struct remote *remote = strategy_allocate(strategy, 1, sizeof(*remote));
    strategy->workers = strategy_allocate(strategy, 1, sizeof(*strategy->workers));
    strategy->remote = remote;
    if (!remote || !strategy->workers)
        return LS_OUT_OF_MEMORY;
    remote->strategy = strategy;
    remote->ops = strategy->host->channels;
    remote->worker = strategy->workers;
    remote->worker->strategy = strategy;
    remote->tally = strategy_allocate(strategy, remote_tally_floats(remote->ops->tally_count),
                                      sizeof(*remote->tally));
    if (!remote->tally)
        return LS_OUT_OF_MEMORY;
    remote->agreed = (struct remote_agreed){.mode = (uint32_t)strategy->settings.mode,
                                            .tally = remote->ops->tally_count,
                                            .staleness = strategy->settings.staleness,
                                            .shard_bytes = strategy->settings.shard_bytes};
    remote->links = strategy_allocate(strategy, remote->ops->servers, sizeof(*remote->links));
    int32_t status = remote->links ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < remote->ops->servers; i++)
        status = open_link(remote, i);
    return status;
}

void remote_close(struct ls_strategy *strategy)
{
    struct remote *remote = strategy->remote;
    if (!remote)
        return;
    if (remote->links)
        leave(remote);
    for (uint32_t i = 0; remote->links && i < remote->ops->servers; i++) {
        struct remote_link *link = &remote->links[i];
        remote->ops->close(link->channel);
        strategy_release(strategy, (void *)link->shards);
        strategy_release(strategy, link->versions);
        strategy_release(strategy, link->news);
    }
    if (strategy->workers) {
        strategy_release(strategy, strategy->workers->parameter_copy);
        strategy_release(strategy, strategy->workers->gradient_copy);
    }
    strategy_release(strategy, remote->links);
    strategy_release(strategy, remote->description);
    strategy_release(strategy, remote->tally);
    strategy_release(strategy, remote);
    strategy_release(strategy, strategy->workers);
}
