// SPDX-License-Identifier: Apache-2.0
// A worker's side of servers that are processes: what it asks, and how it goes on when a server is lost and comes back.
// [replica thread, but where said]
#include "plugins/strategy/parameter-server/internal.h"
#include "plugins/strategy/parameter-server/remote.h"

#include <stdbool.h>
#include <time.h>

// A worker's side of one server.
struct remote_link {
    struct ls_strategy_channel *channel; // NULL: not connected
    const struct shard **shards; // of this server, as they lie
    uint32_t shard_count;
    uint64_t *versions; // that this connection has brought
    uint64_t *news; // those of an answer
    bool asked; // the request under way was sent over this connection
    uint64_t failing_since_ns; // 0: the last request was answered
};

struct remote {
    struct ls_strategy *strategy;
    const struct ls_strategy_channels *ops;
    struct remote_link *links; // one a server
    struct worker *worker; // step, learning rate, memory: as of servers that are threads
    struct remote_agreed agreed;
    void *description;
    uint64_t description_bytes;
    uint64_t job; // 0: not known yet
    uint64_t acknowledged; // steps that all servers have applied
    // What a server may not have yet: so many buckets of a step. The next step has a number already when it asks for
    // values, and these are not its gradients.
    uint32_t pushed;
    uint64_t pushed_step;
    double pushed_rate;
    bool silent; // this step's share has no examples: nothing is pushed
    bool met; // all steps are pushed, and all servers said so
    bool rests; // the user ends this worker, before its last step maybe
    bool over; // what failed was said, and there is no sense in trying again
    bool set_up; // some server had nothing, and was told what to keep
};

static const struct ls_strategy_host *host_of(const struct remote *remote)
{
    return remote->strategy->host;
}

static uint64_t now_ns(const struct remote *remote)
{
    const struct ls_host *host = host_of(remote)->host;
    return host->clock_ns(host);
}

static uint32_t number_of(const struct remote *remote, const struct remote_link *link)
{
    return (uint32_t)(link - remote->links);
}

static int32_t send(const struct remote *remote, const struct remote_link *link, uint32_t kind,
                    const void *data, uint64_t bytes)
{
    const struct ls_message_piece piece = {.data = data, .bytes = bytes};
    return remote->ops->send(link->channel, kind, &piece, bytes ? 1 : 0);
}

// The connection is of no use any more, but the server may come back.
static bool is_loss(const struct remote *remote, int32_t status)
{
    return !remote->over && (status == LS_PEER_LOST || status == LS_BAD_INPUT);
}

static int32_t say_silent(struct remote *remote, const struct remote_link *link)
{
    remote->over = true;
    return ls_host_fail(host_of(remote)->host, LS_PEER_LOST,
                        "worker %u, step %llu: server %u has said nothing for %.1f s, so it is "
                        "stopped or cut off",
                        remote->ops->worker, (unsigned long long)remote->worker->step,
                        number_of(remote, link), (double)host_of(remote)->deadline_ns * 1e-9);
}

// ---- Setup ----

static int32_t send_initial(const struct remote *remote, const struct remote_link *link)
{
    int32_t status = LS_OK;
    for (uint32_t i = 0; !status && i < link->shard_count; i++) {
        const struct range range = link->shards[i]->range;
        const struct remote_initial initial = {.shard = i};
        const struct ls_message_piece pieces[] = {
            {&initial, sizeof(initial)},
            {remote->worker->parameters + range.first, range.count * sizeof(float)}};
        status = remote->ops->send(link->channel, REMOTE_INITIAL, pieces, 2);
    }
    return status;
}

static int32_t send_setup(struct remote *remote, const struct remote_link *link)
{
    struct remote_shard *shards =
        strategy_allocate(remote->strategy, link->shard_count, sizeof(*shards));
    if (!shards)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < link->shard_count; i++)
        shards[i] = (struct remote_shard){.first = link->shards[i]->range.first,
                                          .count = link->shards[i]->range.count,
                                          .bucket = link->shards[i]->bucket};
    const struct remote_setup setup = {.job = remote->job,
                                       .agreed = remote->agreed,
                                       .shards = link->shard_count,
                                       .description_bytes = remote->description_bytes};
    const struct ls_message_piece pieces[] = {{&setup, sizeof(setup)},
                                              {shards, link->shard_count * sizeof(*shards)},
                                              {remote->description, remote->description_bytes}};
    int32_t status = remote->ops->send(link->channel, REMOTE_SETUP, pieces, 3);
    strategy_release(remote->strategy, shards);
    return status ? status : send_initial(remote, link);
}

// ---- Connecting ----

static int32_t take_refusal(struct remote *remote, const struct remote_link *link, uint64_t bytes)
{
    char text[1280];
    if (bytes >= sizeof(text))
        return LS_BAD_INPUT;
    const int32_t status = remote->ops->read(link->channel, text, bytes);
    if (status)
        return status;
    text[bytes] = '\0';
    for (uint64_t i = 0; i < bytes; i++)
        if (text[i] < ' ' || text[i] > '~')
            text[i] = '?';
    remote->over = true;
    return ls_host_fail(host_of(remote)->host, LS_USAGE, "%s", text);
}

// A number that no other training has.
static uint64_t draw_job(const struct remote *remote)
{
    uint64_t job = 0;
    FILE *file = fopen("/dev/urandom", "rb");
    const bool read = file && fread(&job, sizeof(job), 1, file) == 1;
    if (file)
        fclose(file);
    if (!read || !job)
        job = now_ns(remote) | 1;
    return job;
}

static int32_t take_welcome(struct remote *remote, const struct remote_link *link, uint64_t bytes,
                            struct remote_welcome *out)
{
    if (bytes != sizeof(*out))
        return LS_BAD_INPUT;
    const int32_t status = remote->ops->read(link->channel, out, sizeof(*out));
    if (status)
        return status;
    if (!remote->job)
        remote->job = out->job;
    if (out->job == remote->job)
        return LS_OK;
    remote->over = true;
    return ls_host_fail(host_of(remote)->host, LS_USAGE,
                        "server %u goes on with another training than the servers before it: "
                        "remove what they have in folder=, and start all processes anew",
                        number_of(remote, link));
}

// Waits for the answer to a hello.
static int32_t be_welcome(struct remote *remote, struct remote_link *link,
                          struct remote_welcome *out)
{
    const uint64_t begin = now_ns(remote), patience = worker_patience_ns(host_of(remote));
    for (bool asked = false;;) {
        uint32_t kind = 0;
        uint64_t bytes = 0;
        int32_t status = remote->ops->receive(link->channel, &kind, &bytes);
        if (status == LS_AGAIN || now_ns(remote) - begin > patience) {
            remote->over = true;
            return ls_host_fail(host_of(remote)->host, LS_PEER_LOST,
                                "worker %u: server %u answers, but worker 0 has not told it within "
                                "%.1f s what to keep",
                                remote->ops->worker, number_of(remote, link),
                                (double)(now_ns(remote) - begin) * 1e-9);
        }
        if (status)
            return status;
        if (kind == REMOTE_WELCOME)
            return take_welcome(remote, link, bytes, out);
        if (kind == REMOTE_REFUSED)
            return take_refusal(remote, link, bytes);
        if (kind != REMOTE_WANTS_SETUP || bytes || remote->ops->worker != 0 || asked)
            return LS_BAD_INPUT;
        asked = remote->set_up = true;
        if (!remote->job)
            remote->job = draw_job(remote);
        status = send_setup(remote, link);
        if (status)
            return status;
    }
}

static int32_t connect_once(struct remote *remote, struct remote_link *link,
                            struct remote_welcome *out)
{
    const struct remote_hello hello = {.magic = REMOTE_MAGIC,
                                       .worker = remote->ops->worker,
                                       .workers = remote->ops->workers,
                                       .server = number_of(remote, link),
                                       .servers = remote->ops->servers,
                                       .job = remote->job,
                                       .steps = remote->acknowledged,
                                       .begun = remote->worker->step != 0,
                                       .agreed = remote->agreed};
    remote->ops->close(link->channel);
    link->channel = NULL;
    link->asked = false;
    memset(link->versions, 0, (link->shard_count ? link->shard_count : 1) * sizeof(uint64_t));
    const int32_t status =
        remote->ops->connect(host_of(remote), number_of(remote, link), &link->channel);
    if (status) { // the host has said why
        remote->over = true;
        return status;
    }
    const int32_t sent = send(remote, link, REMOTE_HELLO, &hello, sizeof(hello));
    return sent ? sent : be_welcome(remote, link, out);
}

static int32_t push_bucket(struct remote *remote, struct remote_link *link, uint32_t bucket);

// What the server may not have of the step under way. It ignores what it has.
static int32_t push_again(struct remote *remote, struct remote_link *link)
{
    int32_t status = LS_OK;
    for (uint32_t bucket = 0; !status && bucket < remote->pushed; bucket++)
        status = push_bucket(remote, link, bucket);
    return status;
}

static int32_t reach(struct remote *remote, struct remote_link *link, bool again,
                     struct remote_welcome *out)
{
    const struct ls_host *host = host_of(remote)->host;
    const uint64_t patience = host_of(remote)->deadline_ns;
    if (!link->failing_since_ns)
        link->failing_since_ns = now_ns(remote);
    for (;;) {
        int32_t status = connect_once(remote, link, out);
        if (!status && again)
            status = push_again(remote, link);
        if (status == LS_AGAIN)
            return say_silent(remote, link);
        if (!is_loss(remote, status))
            return status;
        if (now_ns(remote) - link->failing_since_ns > patience) {
            remote->over = true;
            return ls_host_fail(
                host, LS_PEER_LOST,
                "worker %u, step %llu: server %u closes each connection, for %.1f s "
                "now",
                remote->ops->worker, (unsigned long long)remote->worker->step,
                number_of(remote, link), (double)patience * 1e-9);
        }
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
}

// The server was lost in the middle of something. Then it has all pushes of this step again.
static int32_t reach_again(struct remote *remote, struct remote_link *link)
{
    const struct ls_host *host = host_of(remote)->host;
    struct remote_welcome welcome;
    char text[128];
    snprintf(text, sizeof(text), "worker %u, step %llu: server %u is lost; waiting for it",
             remote->ops->worker, (unsigned long long)remote->worker->step,
             number_of(remote, link));
    host->log(host, LS_LOG_WARN, text);
    return reach(remote, link, true, &welcome);
}

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
            status = host_of(remote)->memory->write(host_of(remote), 0, LS_REPLICA_PARAMETERS,
                                                    range.first, range.count,
                                                    remote->worker->parameters + range.first);
        else if (!status)
            host_of(remote)->memory->changed(host_of(remote), 0);
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
    return ls_host_fail(host_of(remote)->host, LS_PEER_LOST,
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

static int32_t take_counts(struct remote *remote, struct remote_link *link,
                           struct remote_counts *out)
{
    uint32_t kind = 0;
    uint64_t bytes = 0;
    const int32_t status = remote->ops->receive(link->channel, &kind, &bytes);
    if (status)
        return status;
    return kind == REMOTE_COUNTS && bytes == sizeof(*out)
               ? remote->ops->read(link->channel, out, sizeof(*out))
               : LS_BAD_INPUT;
}

// Until this server has answered, however often it is lost. `counts`: of REMOTE_STATISTICS.
static int32_t finish_request(struct remote *remote, struct remote_link *link, uint32_t kind,
                              const struct remote_request *request, struct remote_counts *counts)
{
    for (;;) {
        int32_t status = link->asked ? LS_OK : send(remote, link, kind, request, sizeof(*request));
        link->asked = true;
        if (!status)
            status = counts ? take_counts(remote, link, counts) : take_answer(remote, link);
        if (status == LS_AGAIN) // also in the middle of an answer
            return say_silent(remote, link);
        if (!status)
            link->failing_since_ns = 0;
        if (!is_loss(remote, status)) {
            link->asked = false;
            return status;
        }
        status = reach_again(remote, link);
        if (status)
            return status;
    }
}

// Asks all servers at once, and takes their answers.
static int32_t ask(struct remote *remote, uint32_t kind, const struct remote_request *request,
                   struct remote_counts *counts)
{
    const struct ls_strategy_host *host = host_of(remote);
    const uint64_t begin = now_ns(remote);
    int32_t status = LS_OK;
    for (uint32_t i = 0; i < remote->ops->servers; i++) {
        struct remote_link *link = &remote->links[i];
        link->asked = send(remote, link, kind, request, sizeof(*request)) == LS_OK;
    }
    for (uint32_t i = 0; !status && i < remote->ops->servers; i++)
        status =
            finish_request(remote, &remote->links[i], kind, request, counts ? &counts[i] : NULL);
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
        status = reach(remote, link, false, &welcome);
        link->failing_since_ns = 0;
        updates += welcome.updates;
        if (link->shard_count && welcome.least < least)
            least = welcome.least;
    }
    *steps = least == UINT64_MAX ? 0 : least;
    if (status || !remote->set_up || !updates)
        return status;
    remote->over = true;
    return ls_host_fail(host_of(remote)->host, LS_USAGE,
                        "some servers go on with a training of which others have nothing: remove "
                        "the files in folder= of all servers, and start all processes anew");
}

static int32_t describe(struct remote *remote)
{
    const struct ls_strategy_host *host = host_of(remote);
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
    const struct ls_strategy_host *host = host_of(remote);
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
    const struct ls_strategy_host *host = host_of(remote);
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

static int32_t push_bucket(struct remote *remote, struct remote_link *link, uint32_t bucket)
{
    struct worker *worker = remote->worker;
    const struct remote_push push = {
        .step = remote->pushed_step, .learning_rate = remote->pushed_rate, .bucket = bucket};
    uint32_t first = 0, end;
    while (first < link->shard_count && link->shards[first]->bucket < bucket)
        first++;
    for (end = first; end < link->shard_count && link->shards[end]->bucket == bucket;)
        end++;
    if (first == end || remote->silent)
        return LS_OK;
    struct ls_message_piece *pieces =
        strategy_allocate(remote->strategy, end - first + 1, sizeof(*pieces));
    if (!pieces)
        return LS_OUT_OF_MEMORY;
    pieces[0] = (struct ls_message_piece){&push, sizeof(push)};
    worker->sent_bytes += sizeof(push);
    for (uint32_t i = first; i < end; i++) {
        const struct range range = link->shards[i]->range;
        pieces[1 + i - first] =
            (struct ls_message_piece){worker->gradients + range.first, range.count * sizeof(float)};
        worker->sent_bytes += range.count * sizeof(float);
    }
    const int32_t status = remote->ops->send(link->channel, REMOTE_PUSH, pieces, end - first + 1);
    strategy_release(remote->strategy, pieces);
    return status;
}

int32_t remote_push(struct remote *remote, uint32_t bucket)
{
    const struct ls_strategy_host *host = host_of(remote);
    struct worker *worker = remote->worker;
    float sums[LS_STRATEGY_SUMS];
    int32_t status = LS_OK;
    if (bucket == 0) {
        status = host->step->read_sums(host, 0, sums);
        remote->silent = !status && sums[LS_SUMS_EXAMPLES] <= 0;
        if (!status)
            status = host->step->check_step_on(host, 0, sums);
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
        status = push_bucket(remote, link, bucket);
        if (status == LS_AGAIN)
            status = say_silent(remote, link);
        if (is_loss(remote, status))
            status = reach_again(remote, link);
    }
    worker->broken |= status != LS_OK;
    return status;
}

int32_t remote_end(struct remote *remote)
{
    const struct ls_strategy_host *host = host_of(remote);
    host->report->count_bytes(host, 0, remote->worker->sent_bytes);
    return LS_OK;
}

int32_t remote_rest(struct remote *remote)
{
    const struct remote_request request = {.step = remote->worker->step};
    for (uint32_t i = 0; i < remote->ops->servers; i++) // who is lost waits for nobody either
        (void)send(remote, &remote->links[i], REMOTE_REST, &request, sizeof(request));
    remote->rests = true;
    return LS_OK;
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
    return LS_OK;
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
    int32_t status = send(remote, link, REMOTE_LEAVE, request, sizeof(*request));
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
        while (is_loss(remote, status)) {
            status = reach_again(remote, link);
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
    remote->agreed = (struct remote_agreed){.mode = (uint32_t)strategy->settings.mode,
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
    strategy_release(strategy, remote);
    strategy_release(strategy, strategy->workers);
}
