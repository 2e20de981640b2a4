// SPDX-License-Identifier: Apache-2.0
// A server that is a process of its own: hears one message after the other, applies pushes at once,
// and answers a worker when it may go on. It waits for workers that are not connected, because they
// may come back, and ends when all have done their steps. [main thread]
#include "plugins/strategy/parameter-server/remote_server.h"

#define PATIENCE_NS \
    UINT64_C(1000000000) // after which a worker that waits is told that it is not forgotten
#define FAREWELL_NS UINT64_C(5000000000) // for workers to go, where the user ends this process
#define TEXT_BYTES 1280

static uint64_t now_ns(const struct remote_server *server)
{
    return server->host->host->clock_ns(server->host->host);
}

static uint32_t worker_of(const struct remote_server *server, uint32_t peer)
{
    uint32_t worker = 0;
    while (worker < server->host->workers && server->workers[worker].peer != peer)
        worker++;
    return worker;
}

static void reply(const struct remote_server *server, uint32_t peer, uint32_t kind,
                  const void *data, uint64_t bytes)
{
    const struct ls_message_piece piece = {.data = data, .bytes = bytes};
    server->host->send(server->host, peer, kind, &piece, 1);
}

// Nothing is heard of this worker until it connects again.
static void disconnect(struct remote_server *server, uint32_t worker)
{
    struct remote_worker *of = &server->workers[worker];
    if (of->peer == server->setup_peer)
        server->setup_peer = NO_PEER; // it begins anew when it is back
    of->peer = NO_PEER;
    of->welcome = false;
    of->waits = 0;
    server->pace.states[worker] = PACE_RESTING;
}

// ---- Greetings ----

// What a worker has other than worker 0 had, or than the training that this server goes on with, as
// a sentence; false: nothing.
static bool differs(const struct remote_server *server, const struct remote_hello *hello,
                    char *text)
{
    static const char *const modes[] = {"async", "bounded", "sync"};
    const struct remote_agreed *own = &hello->agreed, *first = &server->agreed;
    char mine[64], theirs[64] = "";
    if (own->mode != first->mode) {
        snprintf(mine, sizeof(mine), "mode=%s", own->mode < 3 ? modes[own->mode] : "?");
        snprintf(theirs, sizeof(theirs), "mode=%s", first->mode < 3 ? modes[first->mode] : "?");
    } else if (own->staleness != first->staleness) {
        snprintf(mine, sizeof(mine), "staleness=%llu", (unsigned long long)own->staleness);
        snprintf(theirs, sizeof(theirs), "staleness=%llu", (unsigned long long)first->staleness);
    } else if (own->shard_bytes != first->shard_bytes) {
        snprintf(mine, sizeof(mine), "shard_bytes=%llu", (unsigned long long)own->shard_bytes);
        snprintf(theirs, sizeof(theirs), "shard_bytes=%llu",
                 (unsigned long long)first->shard_bytes);
    } else if (own->tally != first->tally) {
        // A server of before tallies were kept has left 0.
        snprintf(mine, sizeof(mine), first->tally ? "other metrics" : "another version");
    } else if (own->description != first->description) {
        snprintf(mine, sizeof(mine), "another model, optimizer or seed");
    } else {
        return false;
    }
    const char *but = theirs[0] ? ", but " : " than ", *has = theirs[0] ? " has " : "";
    if (server->goes_on)
        snprintf(text, TEXT_BYTES,
                 "worker %u has %s%sthe training that server %u goes on with%s%s: give the same "
                 "command, or remove %s to begin anew",
                 hello->worker, mine, but, server->host->server, has, theirs, server->file.path);
    else
        snprintf(text, TEXT_BYTES,
                 "worker %u has %s%sworker 0%s%s: expected the same command and files for all "
                 "workers",
                 hello->worker, mine, but, has, theirs);
    return true;
}

static void refuse(struct remote_server *server, uint32_t peer, const char *text)
{
    const uint32_t worker = worker_of(server, peer);
    reply(server, peer, REMOTE_REFUSED, text, strlen(text));
    if (worker < server->host->workers)
        disconnect(server, worker);
    server->host->drop(server->host, peer);
}

static void welcome(struct remote_server *server, uint32_t worker)
{
    struct remote_worker *of = &server->workers[worker];
    const struct remote_hello *hello = &of->hello;
    char text[TEXT_BYTES];
    if (differs(server, hello, text)) {
        refuse(server, of->peer, text);
        return;
    }
    if (hello->job && hello->job != server->job) {
        snprintf(text, sizeof(text),
                 "server %u has another training than worker %u: start all processes anew",
                 server->host->server, worker);
        refuse(server, of->peer, text);
        return;
    }
    struct remote_welcome answer = {.job = server->job, .updates = remote_shards_updates(server)};
    remote_shards_position(server, worker, &answer.least, &answer.most);
    memset(of->sent, 0, (server->held_count ? server->held_count : 1) * sizeof(*of->sent));
    of->welcome = true;
    server->host->allow(server->host, of->peer, remote_shards_most(server));
    reply(server, of->peer, REMOTE_WELCOME, &answer, sizeof(answer));
}

// Worker 0 brings the setup; the others wait for it.
static void ask_for_setup(struct remote_server *server, uint32_t peer)
{
    char text[TEXT_BYTES];
    if (server->workers[0].hello.begun || server->workers[0].hello.steps) {
        snprintf(text, sizeof(text),
                 "server %u was started again and has nothing of the training any more (%s): start "
                 "all processes anew",
                 server->host->server, server->file.path);
        refuse(server, peer, text);
        return;
    }
    server->setup_peer = peer;
    server->host->allow(server->host, peer, REMOTE_SETUP_MOST);
    reply(server, peer, REMOTE_WANTS_SETUP, NULL, 0);
}

static int32_t hear_hello(struct remote_server *server, uint32_t peer, const void *data,
                          uint64_t bytes)
{
    const struct ls_server_host *host = server->host;
    struct remote_hello hello;
    char text[TEXT_BYTES];
    if (bytes != sizeof(hello))
        return LS_BAD_INPUT;
    memcpy(&hello, data, sizeof(hello));
    if (hello.magic != REMOTE_MAGIC)
        return LS_BAD_INPUT;
    if (hello.workers != host->workers || hello.servers != host->servers ||
        hello.server != host->server || hello.worker >= host->workers) {
        snprintf(text, sizeof(text),
                 "worker %u of %u takes this for server %u of %u, but it is server %u of %u of %u "
                 "workers",
                 hello.worker, hello.workers, hello.server, hello.servers, host->server,
                 host->servers, host->workers);
        refuse(server, peer, text);
        return LS_OK;
    }
    struct remote_worker *worker = &server->workers[hello.worker];
    if (worker->peer != NO_PEER) { // its connection has ended, though nobody was told
        const uint32_t old = worker->peer;
        disconnect(server, hello.worker);
        host->drop(host, old);
    }
    worker->peer = peer;
    worker->hello = hello;
    worker->heard_ns = now_ns(server);
    if (worker->done) {
        const int32_t status = shard_file_set_done(&server->file, hello.worker, false);
        if (status)
            return status;
    }
    worker->done = worker->rests = false;
    if (hello.steps > worker->reached)
        worker->reached = hello.steps;
    if (server->job)
        welcome(server, hello.worker);
    else if (hello.worker == 0)
        ask_for_setup(server, peer);
    return LS_OK;
}

static int32_t begin_training(struct remote_server *server)
{
    server->setup_peer = NO_PEER;
    for (uint32_t i = 0; i < server->host->workers; i++)
        if (server->workers[i].peer != NO_PEER && !server->workers[i].welcome)
            welcome(server, i);
    return LS_OK;
}

// ---- Answers ----

static bool lacks_steps(const struct remote_worker *worker, uint64_t step)
{
    return !worker->done && !worker->rests && worker->reached < step;
}

static bool have_all_reached(const struct remote_server *server, uint64_t step)
{
    for (uint32_t i = 0; i < server->host->workers; i++)
        if (lacks_steps(&server->workers[i], step))
            return false;
    return true;
}

static bool may_answer(const struct remote_server *server, uint32_t worker)
{
    const struct remote_worker *of = &server->workers[worker];
    if (of->waits == REMOTE_MEET)
        return of->rests || have_all_reached(server, of->request.step);
    return server->agreed.mode != MODE_BOUNDED || of->request.at_once ||
           pace_lead(&server->pace, worker) <= server->agreed.staleness;
}

static int32_t send_answer(struct remote_server *server, uint32_t worker)
{
    struct remote_worker *of = &server->workers[worker];
    const uint32_t count = server->held_count;
    struct ls_message_piece *pieces = remote_allocate(server, count + 2, sizeof(*pieces));
    uint64_t *versions = remote_allocate(server, count, sizeof(*versions));
    if (!pieces || !versions) {
        remote_release(server, pieces);
        remote_release(server, versions);
        return LS_OUT_OF_MEMORY;
    }
    const struct remote_answer answer = {.held_back = of->held_back, .shards = count};
    struct statistics *statistics = &server->counts.statistics;
    uint32_t used = 2;
    pieces[0] = (struct ls_message_piece){&answer, sizeof(answer)};
    pieces[1] = (struct ls_message_piece){versions, count * sizeof(*versions)};
    for (uint32_t i = 0; i < count; i++) {
        versions[i] = shard_file_version(&server->file, i) + 1;
        statistics->pulls++;
        statistics->pulls_unchanged += of->sent[i] == versions[i];
        if (of->sent[i] == versions[i])
            continue;
        of->sent[i] = versions[i];
        pieces[used++] = (struct ls_message_piece){shard_file_store(&server->file, i),
                                                   server->held[i].shard.count * sizeof(float)};
    }
    for (uint32_t i = 0; i < used; i++)
        statistics->bytes_sent += pieces[i].bytes;
    of->waits = 0;
    server->host->send(server->host, of->peer, REMOTE_ANSWER, pieces, used);
    remote_release(server, pieces);
    remote_release(server, versions);
    return LS_OK;
}

// Whom a worker waits for: of those that lack steps the one of which nothing was heard for longest.
static uint32_t late_one(const struct remote_server *server, uint32_t worker)
{
    const struct remote_worker *of = &server->workers[worker];
    uint32_t late = PACE_NOBODY;
    for (uint32_t i = 0; i < server->host->workers; i++) {
        const struct remote_worker *other = &server->workers[i];
        const bool lacks = of->waits == REMOTE_MEET
                               ? lacks_steps(other, of->request.step)
                               : server->pace.states[i] == PACE_RUNNING && i != worker;
        if (lacks && (late == PACE_NOBODY || other->heard_ns < server->workers[late].heard_ns))
            late = i;
    }
    return late;
}

// The worker has waited for a while: it is told so, or whom it waits for in vain.
static void console(struct remote_server *server, uint32_t worker, uint64_t now)
{
    struct remote_worker *of = &server->workers[worker];
    const uint32_t late = late_one(server, worker);
    if (late != PACE_NOBODY && late != worker) {
        const struct remote_worker *other = &server->workers[late];
        const uint64_t since =
            other->heard_ns > of->waits_since_ns ? other->heard_ns : of->waits_since_ns;
        if (now - since > server->host->deadline_ns) {
            const bool came = other->heard_ns || other->reached; // to a server before this one
            const struct remote_late told = {
                .worker = late,
                .here = !came ? 2 : other->peer != NO_PEER,
                .steps = other->reached,
                .seconds = (double)(now - (other->heard_ns ? other->heard_ns : since)) * 1e-9};
            of->waits = 0;
            reply(server, of->peer, REMOTE_LATE, &told, sizeof(told));
            return;
        }
    }
    if (now - of->told_ns > PATIENCE_NS) {
        of->told_ns = now;
        reply(server, of->peer, REMOTE_PATIENCE, NULL, 0);
    }
}

static int32_t answer_all(struct remote_server *server)
{
    const uint64_t now = now_ns(server);
    struct statistics *statistics = &server->counts.statistics;
    for (uint32_t i = 0; i < server->host->workers; i++) {
        struct remote_worker *of = &server->workers[i];
        if (!of->waits)
            continue;
        if (!may_answer(server, i)) {
            of->held_back = 1;
            console(server, i, now);
            continue;
        }
        if (of->waits == REMOTE_PULL && !of->request.at_once) {
            distribution_add(&statistics->lead, pace_lead(&server->pace, i));
            statistics->waits += of->held_back;
            statistics->waits_ns += of->held_back ? now - of->waits_since_ns : 0;
        }
        const int32_t status = send_answer(server, i);
        if (status)
            return status;
    }
    return LS_OK;
}

// ---- Messages ----

static int32_t hear_wait(struct remote_server *server, uint32_t worker, uint32_t kind,
                         const struct remote_request *request)
{
    struct remote_worker *of = &server->workers[worker];
    const bool pulls = kind == REMOTE_PULL;
    const uint64_t reached = pulls && request->step ? request->step - 1 : request->step;
    if (request->step == UINT64_MAX)
        return LS_BAD_INPUT;
    if (reached > of->reached)
        of->reached = reached;
    of->rests = of->rests && !pulls;
    of->waits = kind;
    of->request = *request;
    of->held_back = 0;
    of->waits_since_ns = of->told_ns = now_ns(server);
    if (pulls && !request->at_once) {
        server->pace.states[worker] = PACE_RUNNING;
        server->pace.steps[worker] = reached;
    } else if (!pulls) {
        server->pace.states[worker] = PACE_MEETING;
    }
    return LS_OK;
}

static int32_t send_tally(struct remote_server *server, uint32_t peer, uint64_t epoch)
{
    double *sums =
        server->tally_count ? remote_allocate(server, server->tally_count, sizeof(*sums)) : NULL;
    if (!sums)
        return server->tally_count ? LS_OUT_OF_MEMORY : LS_BAD_INPUT;
    remote_shards_tally(server, epoch, sums);
    reply(server, peer, REMOTE_SUMS, sums, server->tally_count * sizeof(*sums));
    remote_release(server, sums);
    return LS_OK;
}

static int32_t hear_request(struct remote_server *server, uint32_t worker, uint32_t kind,
                            const void *data, uint64_t bytes)
{
    struct remote_worker *of = &server->workers[worker];
    struct remote_request request;
    if (bytes != sizeof(request))
        return LS_BAD_INPUT;
    memcpy(&request, data, sizeof(request));
    if (of->waits && kind != REMOTE_LEAVE)
        return LS_BAD_INPUT; // whoever waits for an answer asks nothing else
    switch (kind) {
    case REMOTE_REST:
        server->pace.states[worker] = PACE_RESTING;
        of->rests = true;
        return LS_OK;
    case REMOTE_LEAVE: {
        const uint32_t peer = of->peer;
        const int32_t status = shard_file_set_done(&server->file, worker, request.done == 1);
        if (status)
            return status;
        of->done = request.done == 1;
        reply(server, peer, REMOTE_GOODBYE, NULL, 0);
        disconnect(server, worker);
        server->host->drop(server->host, peer);
        return LS_OK;
    }
    case REMOTE_TALLY: return send_tally(server, of->peer, request.step);
    case REMOTE_STATISTICS:
        server->counts.updates = remote_shards_updates(server);
        reply(server, of->peer, REMOTE_COUNTS, &server->counts, sizeof(server->counts));
        return LS_OK;
    default: return hear_wait(server, worker, kind, &request);
    }
}

static int32_t hear_setup(struct remote_server *server, uint32_t kind, const void *data,
                          uint64_t bytes)
{
    const bool first = kind == REMOTE_SETUP;
    const int32_t status = first ? remote_shards_setup(server, data, bytes)
                                 : remote_shards_initial(server, data, bytes);
    return !status && server->job ? begin_training(server) : status;
}

// LS_BAD_INPUT: no worker says so, or not now.
static int32_t hear(struct remote_server *server, const struct ls_server_event *event)
{
    const uint32_t worker = worker_of(server, event->peer);
    const bool known = worker < server->host->workers;
    server->counts.statistics.bytes_received += event->bytes;
    if (event->message == REMOTE_HELLO)
        return known ? LS_BAD_INPUT : hear_hello(server, event->peer, event->data, event->bytes);
    if (!known)
        return LS_BAD_INPUT;
    server->workers[worker].heard_ns = now_ns(server);
    switch (event->message) {
    case REMOTE_SETUP:
    case REMOTE_INITIAL:
        return event->peer == server->setup_peer
                   ? hear_setup(server, event->message, event->data, event->bytes)
                   : LS_BAD_INPUT;
    case REMOTE_PUSH:
        return server->workers[worker].welcome
                   ? remote_shards_push(server, worker, event->data, event->bytes)
                   : LS_BAD_INPUT;
    case REMOTE_PULL:
    case REMOTE_MEET:
    case REMOTE_REST:
    case REMOTE_STATISTICS:
    case REMOTE_TALLY:
    case REMOTE_LEAVE:
        return server->workers[worker].welcome
                   ? hear_request(server, worker, event->message, event->data, event->bytes)
                   : LS_BAD_INPUT;
    default: return LS_BAD_INPUT;
    }
}

static int32_t take_event(struct remote_server *server, const struct ls_server_event *event)
{
    const struct ls_host *host = server->host->host;
    const uint32_t worker = worker_of(server, event->peer);
    char text[128];
    if (event->kind == LS_SERVER_CLOSED && worker < server->host->workers)
        disconnect(server, worker);
    if (event->kind != LS_SERVER_MESSAGE)
        return LS_OK;
    const int32_t status = hear(server, event);
    if (status != LS_BAD_INPUT)
        return status;
    if (worker < server->host->workers) {
        snprintf(text, sizeof(text),
                 "worker %u sent message %u of %llu bytes, which makes no sense: "
                 "its connection is closed",
                 worker, event->message, (unsigned long long)event->bytes);
        host->log(host, LS_LOG_WARN, text);
        disconnect(server, worker);
    }
    server->host->drop(server->host, event->peer);
    return LS_OK;
}

// ---- The whole ----

static bool is_over(const struct remote_server *server)
{
    for (uint32_t i = 0; i < server->host->workers; i++)
        if (!server->workers[i].done)
            return false;
    return true;
}

// LS_PEER_LOST: nobody has been here for the deadline. LS_INTERRUPTED: the user ends this process,
// and all workers have gone, or do not go.
static int32_t watch(struct remote_server *server)
{
    const struct ls_host *host = server->host->host;
    const uint64_t now = now_ns(server);
    bool any = false;
    for (uint32_t i = 0; i < server->host->workers; i++)
        any |= server->workers[i].peer != NO_PEER;
    if (server->interrupted_ns && (!any || now - server->interrupted_ns > FAREWELL_NS))
        return LS_INTERRUPTED;
    if (any)
        server->alone_since_ns = 0;
    else if (!server->alone_since_ns)
        server->alone_since_ns = now;
    if (any || now - server->alone_since_ns <= server->host->deadline_ns)
        return LS_OK;
    return ls_host_fail(host, LS_PEER_LOST, "server %u: no worker was here for %.1f s; %s %s",
                        server->host->server, (double)server->host->deadline_ns * 1e-9,
                        server->job ? "what it knows stays in" : "nothing is in",
                        server->file.path);
}

static int32_t serve(struct remote_server *server)
{
    int32_t status = LS_OK;
    while (!status && !is_over(server)) {
        struct ls_server_event event;
        status = server->host->next(server->host, PATIENCE_NS / 4, &event);
        if (!status)
            status = take_event(server, &event);
        else if (status == LS_INTERRUPTED && !server->interrupted_ns)
            server->interrupted_ns = now_ns(server);
        if (status == LS_AGAIN || status == LS_INTERRUPTED)
            status = LS_OK;
        if (!status)
            status = answer_all(server);
        if (!status)
            status = watch(server);
    }
    return status;
}

int32_t remote_serve(const struct ls_server_host *host)
{
    struct remote_server server = {.host = host, .setup_peer = NO_PEER, .file = {.fd = -1}};
    server.workers = remote_allocate(&server, host->workers, sizeof(*server.workers));
    server.pace.workers = host->workers;
    server.pace.steps = remote_allocate(&server, host->workers, sizeof(*server.pace.steps));
    server.pace.states = remote_allocate(&server, host->workers, sizeof(*server.pace.states));
    int32_t status =
        server.workers && server.pace.steps && server.pace.states ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < host->workers; i++) {
        server.workers[i].peer = NO_PEER;
        server.pace.states[i] = PACE_RESTING;
    }
    if (!status)
        status = remote_shards_open(&server);
    if (!status)
        status = serve(&server);
    const bool unused = (status == LS_PEER_LOST || status == LS_INTERRUPTED) && !server.job;
    remote_shards_close(&server, !status || unused);
    remote_release(&server, server.workers);
    remote_release(&server, server.pace.steps);
    remote_release(&server, server.pace.states);
    return status;
}
