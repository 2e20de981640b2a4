// SPDX-License-Identifier: Apache-2.0
// How a worker connects with a server that is a process, tells it what to keep, and comes back when
// it was lost.
#include "plugins/strategy/parameter-server/remote_link.h"

#include <time.h>

int32_t remote_send(const struct remote *remote, const struct remote_link *link, uint32_t kind,
                    const void *data, uint64_t bytes)
{
    const struct ls_message_piece piece = {.data = data, .bytes = bytes};
    return remote->ops->send(link->channel, kind, &piece, bytes ? 1 : 0);
}

bool remote_is_loss(const struct remote *remote, int32_t status)
{
    return !remote->over && (status == LS_PEER_LOST || status == LS_BAD_INPUT);
}

int32_t remote_say_silent(struct remote *remote, const struct remote_link *link)
{
    remote->over = true;
    return ls_host_fail(remote_host(remote)->host, LS_PEER_LOST,
                        "worker %u, step %llu: server %u has said nothing for %.1f s, so it is "
                        "stopped or cut off",
                        remote->ops->worker, (unsigned long long)remote->worker->step,
                        remote_server_number(remote, link),
                        (double)remote_host(remote)->deadline_ns * 1e-9);
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
    const struct remote_setup setup = {
        .job = remote->job,
        .agreed = remote->agreed,
        .shards = link->shard_count,
        .tally = remote_keeps_tally(remote, link) ? remote->ops->tally_count : 0,
        .description_bytes = remote->description_bytes};
    const struct ls_message_piece pieces[] = {{&setup, sizeof(setup)},
                                              {shards, link->shard_count * sizeof(*shards)},
                                              {remote->description, remote->description_bytes}};
    int32_t status = remote->ops->send(link->channel, REMOTE_SETUP, pieces, 3);
    strategy_release(remote->strategy, shards);
    return status ? status : send_initial(remote, link);
}

// ---- Pushing ----

int32_t remote_push_bucket(struct remote *remote, struct remote_link *link, uint32_t bucket)
{
    struct worker *worker = remote->worker;
    const struct remote_push push = {.step = remote->pushed_step,
                                     .learning_rate = remote->pushed_rate,
                                     .bucket = bucket,
                                     .epoch = remote->pushed_epoch};
    const bool tally = bucket == 0 && remote_keeps_tally(remote, link);
    uint32_t first = 0, end;
    while (first < link->shard_count && link->shards[first]->bucket < bucket)
        first++;
    for (end = first; end < link->shard_count && link->shards[end]->bucket == bucket;)
        end++;
    if (first == end || remote->silent)
        return LS_OK;
    struct ls_message_piece *pieces =
        strategy_allocate(remote->strategy, end - first + 2, sizeof(*pieces));
    if (!pieces)
        return LS_OUT_OF_MEMORY;
    uint32_t used = 0;
    pieces[used++] = (struct ls_message_piece){&push, sizeof(push)};
    if (tally)
        pieces[used++] = (struct ls_message_piece){
            remote->tally, remote_tally_floats(remote->ops->tally_count) * sizeof(float)};
    for (uint32_t i = first; i < end; i++) {
        const struct range range = link->shards[i]->range;
        pieces[used++] =
            (struct ls_message_piece){worker->gradients + range.first, range.count * sizeof(float)};
    }
    for (uint32_t i = 0; i < used; i++)
        worker->sent_bytes += pieces[i].bytes;
    const int32_t status = remote->ops->send(link->channel, REMOTE_PUSH, pieces, used);
    strategy_release(remote->strategy, pieces);
    return status;
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
    return ls_host_fail(remote_host(remote)->host, LS_USAGE, "%s", text);
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
        job = remote_now_ns(remote) | 1;
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
    return ls_host_fail(remote_host(remote)->host, LS_USAGE,
                        "server %u goes on with another training than the servers before it: "
                        "remove what they have in folder=, and start all processes anew",
                        remote_server_number(remote, link));
}

// Waits for the answer to a hello.
static int32_t be_welcome(struct remote *remote, struct remote_link *link,
                          struct remote_welcome *out)
{
    const uint64_t begin = remote_now_ns(remote),
                   patience = worker_patience_ns(remote_host(remote));
    for (bool asked = false;;) {
        uint32_t kind = 0;
        uint64_t bytes = 0;
        int32_t status = remote->ops->receive(link->channel, &kind, &bytes);
        if (status == LS_AGAIN || remote_now_ns(remote) - begin > patience) {
            remote->over = true;
            return ls_host_fail(remote_host(remote)->host, LS_PEER_LOST,
                                "worker %u: server %u answers, but worker 0 has not told it within "
                                "%.1f s what to keep",
                                remote->ops->worker, remote_server_number(remote, link),
                                (double)(remote_now_ns(remote) - begin) * 1e-9);
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
                                       .server = remote_server_number(remote, link),
                                       .servers = remote->ops->servers,
                                       .job = remote->job,
                                       .steps = remote->acknowledged,
                                       .begun = remote->worker->step != 0,
                                       .agreed = remote->agreed};
    remote->ops->close(link->channel);
    link->channel = NULL;
    link->asked = false;
    memset(link->versions, 0, (link->shard_count ? link->shard_count : 1) * sizeof(uint64_t));
    const int32_t status = remote->ops->connect(remote_host(remote),
                                                remote_server_number(remote, link), &link->channel);
    if (status) { // the host has said why
        remote->over = true;
        return status;
    }
    const int32_t sent = remote_send(remote, link, REMOTE_HELLO, &hello, sizeof(hello));
    return sent ? sent : be_welcome(remote, link, out);
}

// What the server may not have of the step under way. It ignores what it has.
static int32_t push_again(struct remote *remote, struct remote_link *link)
{
    int32_t status = LS_OK;
    for (uint32_t bucket = 0; !status && bucket < remote->pushed; bucket++)
        status = remote_push_bucket(remote, link, bucket);
    return status;
}

int32_t remote_reach(struct remote *remote, struct remote_link *link, bool again,
                     struct remote_welcome *out)
{
    const struct ls_host *host = remote_host(remote)->host;
    const uint64_t patience = remote_host(remote)->deadline_ns;
    if (!link->failing_since_ns)
        link->failing_since_ns = remote_now_ns(remote);
    for (;;) {
        int32_t status = connect_once(remote, link, out);
        if (!status && again)
            status = push_again(remote, link);
        if (status == LS_AGAIN)
            return remote_say_silent(remote, link);
        if (!remote_is_loss(remote, status))
            return status;
        if (remote_now_ns(remote) - link->failing_since_ns > patience) {
            remote->over = true;
            return ls_host_fail(
                host, LS_PEER_LOST,
                "worker %u, step %llu: server %u closes each connection, for %.1f s "
                "now",
                remote->ops->worker, (unsigned long long)remote->worker->step,
                remote_server_number(remote, link), (double)patience * 1e-9);
        }
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
}

int32_t remote_reach_again(struct remote *remote, struct remote_link *link)
{
    const struct ls_host *host = remote_host(remote)->host;
    struct remote_welcome welcome;
    char text[128];
    snprintf(text, sizeof(text), "worker %u, step %llu: server %u is lost; waiting for it",
             remote->ops->worker, (unsigned long long)remote->worker->step,
             remote_server_number(remote, link));
    host->log(host, LS_LOG_WARN, text);
    return remote_reach(remote, link, true, &welcome);
}
