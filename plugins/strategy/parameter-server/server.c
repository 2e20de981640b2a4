// SPDX-License-Identifier: Apache-2.0
// A server: keeps its shards and their optimizer state, hears each worker's requests one after
// another, and answers. One thread, which never waits for one worker alone: what a worker's request
// needs before it can go on (a value that another still reads, its turn, the slowest worker) is
// looked at again whenever anything has moved. [its thread]
#include "plugins/strategy/parameter-server/internal.h"

#include <math.h>
#include <string.h>

static const struct ls_strategy_host *host_of(const struct server *server)
{
    return server->strategy->host;
}

static uint64_t now_ns(const struct server *server)
{
    const struct ls_host *host = host_of(server)->host;
    return host->clock_ns(host);
}

static bool is_sync(const struct server *server)
{
    return server->strategy->settings.mode == MODE_SYNC;
}

// ---- Requests ----

static int32_t await_request(struct peer *peer)
{
    peer->state = PEER_IDLE;
    return channel_receive(&peer->channel, &peer->incoming, SIGNATURE_REQUEST, &peer->request,
                           sizeof(peer->request), LS_U8, 0);
}

// Adds the sums of all workers in the order of their ranks, as soon as all are known: before the
// last gradient of any shard, because bucket 0 comes first.
static void hear_sums(struct server *server, struct peer *peer)
{
    const uint32_t world = host_of(server)->world;
    memcpy(peer->sums, peer->request.sums, sizeof(peer->sums));
    if (++server->sums_heard < world)
        return;
    memset(server->sums, 0, sizeof(server->sums));
    for (uint32_t rank = 0; rank < world; rank++)
        for (uint32_t i = 0; i < LS_STRATEGY_SUMS; i++)
            server->sums[i] += server->peers[rank].sums[i];
    server->finite = isfinite(server->sums[LS_SUMS_LOSS]) != 0;
}

static int32_t hear_push(struct server *server, uint32_t rank)
{
    struct peer *peer = &server->peers[rank];
    const uint32_t bucket = peer->request.bucket;
    if (bucket >= host_of(server)->bucket_count)
        return ls_host_fail(host_of(server)->host, LS_FAILED,
                            "server %u: worker %u pushes bucket %u, but there are %u",
                            server->index, rank, bucket, host_of(server)->bucket_count);
    if (is_sync(server) && bucket == 0)
        hear_sums(server, peer);
    peer->place = server->bucket_begins[bucket];
    peer->end = server->bucket_begins[bucket + 1];
    peer->state = PEER_PUSHES;
    return LS_OK;
}

static int32_t send_statistics(struct server *server, struct peer *peer)
{
    server->statistics.bytes_sent += sizeof(server->statistics);
    server->statistics_sent = server->statistics;
    peer->state = PEER_TAKES;
    peer->send_count = 1;
    peer->sends_done = 0;
    return channel_send(&peer->channel, &peer->sends[0], SIGNATURE_STATISTICS,
                        &server->statistics_sent, sizeof(server->statistics_sent), LS_U8);
}

// Nothing of this worker is waited for any more.
static void take_out(struct server *server, uint32_t rank)
{
    struct peer *peer = &server->peers[rank];
    for (uint32_t i = 1; peer->state == PEER_TAKES && i < peer->send_count; i++)
        if (peer->sends[i].state != LS_TRANSFER_COMPLETE)
            server->held[peer->sent_places[i]].readers--;
    peer->state = PEER_GONE;
    server->pace.states[rank] = PACE_GONE;
}

static int32_t hear(struct server *server, uint32_t rank)
{
    struct peer *peer = &server->peers[rank];
    server->statistics.bytes_received += sizeof(peer->request);
    switch (peer->request.kind) {
    case REQUEST_PUSH: return hear_push(server, rank);
    case REQUEST_END: server->pace.steps[rank]++; return await_request(peer);
    case REQUEST_REST: server->pace.states[rank] = PACE_RESTING; return await_request(peer);
    case REQUEST_PULL: pace_run(&server->pace, rank); break;
    case REQUEST_STATISTICS: return send_statistics(server, peer);
    case REQUEST_LEAVE: take_out(server, rank); return LS_OK;
    case REQUEST_MEET: server->pace.states[rank] = PACE_MEETING; break;
    case REQUEST_FETCH: break;
    default:
        return ls_host_fail(host_of(server)->host, LS_FAILED,
                            "server %u: worker %u sends request %u, which no server knows; all "
                            "workers and servers must run the same build",
                            server->index, rank, peer->request.kind);
    }
    peer->state = PEER_WAITS;
    peer->held_back = 0;
    peer->waits_since_ns = now_ns(server);
    return LS_OK;
}

// ---- Gradients ----

static int32_t update(struct server *server, struct held *held, const float *gradient,
                      uint64_t step, double learning_rate)
{
    const struct ls_strategy_host *host = host_of(server);
    const int32_t status = host->stores->update(host, held->store, gradient, step, learning_rate);
    held->version++;
    return status;
}

// The last gradient of the last shard is added and measured.
static int32_t update_all(struct server *server, const struct request *request)
{
    int32_t status = LS_OK;
    for (uint32_t i = 0; !status && i < server->held_count; i++)
        status = update(server, &server->held[i], server->held[i].sum, request->step,
                        request->learning_rate);
    return status;
}

// The last gradient of a shard is added: sync makes one update of it, unless the step is to be
// dropped; or where the optimizer needs the norm of all gradients, it makes all updates when all
// shards are measured.
static int32_t finish_shard(struct server *server, struct held *held, const struct request *request)
{
    const struct ls_strategy_host *host = host_of(server);
    const bool measures = (host->norms & LS_NORM_OF_ALL) != 0;
    int32_t status = LS_OK;
    held->turn = 0;
    if (server->finite && measures)
        status = host->stores->measure(host, held->store, held->sum);
    else if (server->finite)
        status = update(server, held, held->sum, request->step, request->learning_rate);
    if (++server->done_count == server->held_count) {
        if (!status && server->finite && measures)
            status = update_all(server, request);
        server->done_count = server->sums_heard = 0;
        server->done_step = request->step;
    }
    return status;
}

static int32_t apply(struct server *server, struct peer *peer, struct held *held)
{
    server->statistics.pushes++;
    server->statistics.bytes_received += held->shard->range.count * sizeof(float);
    if (is_sync(server))
        return ++held->turn == host_of(server)->world ? finish_shard(server, held, &peer->request)
                                                      : LS_OK;
    distribution_add(&server->statistics.missed, held->version - peer->versions[peer->place]);
    return update(server, held, peer->gradient, 0, peer->request.learning_rate); // the shard's next
}

static int32_t receive_gradient(struct server *server, struct peer *peer, struct held *held)
{
    peer->receiving = 1;
    return channel_receive(&peer->channel, &peer->incoming, SIGNATURE_GRADIENT | peer->place,
                           is_sync(server) ? held->sum : peer->gradient, held->shard->range.count,
                           LS_F32, is_sync(server) && held->turn > 0);
}

// LS_AGAIN: it has to wait. Gradients of sync are added in the order of the ranks, so that the sum
// does not depend on who is first; others are applied as they come, unless a worker still reads the
// values.
static int32_t serve_push(struct server *server, uint32_t rank)
{
    struct peer *peer = &server->peers[rank];
    while (peer->place < peer->end) {
        struct held *held = &server->held[peer->place];
        int32_t status = LS_OK;
        if (!peer->receiving) {
            if (is_sync(server) && held->turn != rank)
                return LS_AGAIN;
            status = receive_gradient(server, peer, held);
        }
        if (!status && peer->incoming.state != LS_TRANSFER_COMPLETE)
            status = peer->channel.ops->test(peer->channel.own, &peer->incoming);
        if (!status && held->readers)
            return LS_AGAIN;
        if (!status)
            status = apply(server, peer, held);
        if (status)
            return status;
        peer->receiving = 0;
        peer->place++;
    }
    return await_request(peer);
}

// ---- Answers ----

static bool may_answer(const struct server *server, uint32_t rank)
{
    const struct peer *peer = &server->peers[rank];
    const struct settings *settings = &server->strategy->settings;
    if (peer->request.kind == REQUEST_MEET)
        return server->pace.states[rank] != PACE_MEETING;
    if (peer->request.kind != REQUEST_PULL)
        return true;
    if (settings->mode == MODE_SYNC)
        return server->done_step >= peer->request.step;
    return settings->mode == MODE_ASYNC || pace_lead(&server->pace, rank) <= settings->staleness;
}

static int32_t send_answer(struct server *server, struct peer *peer, uint32_t late, uint32_t whom)
{
    const uint64_t bytes = answer_bytes(server->held_count);
    uint64_t *versions = answer_versions(peer->answer);
    *peer->answer =
        (struct answer){.late = late, .late_worker = whom, .held_back = peer->held_back};
    if (late)
        peer->answer->late_steps = server->pace.steps[whom];
    memcpy(peer->answer->sums, server->sums, sizeof(server->sums));
    for (uint32_t i = 0; i < server->held_count; i++)
        versions[i] = server->held[i].version;
    peer->state = PEER_TAKES;
    peer->send_count = 1;
    peer->sends_done = 0;
    server->statistics.bytes_sent += bytes;
    return channel_send(&peer->channel, &peer->sends[0], SIGNATURE_ANSWER, peer->answer, bytes,
                        LS_U8);
}

// The values of each shard that has changed since this worker had it.
static int32_t send_values(struct server *server, struct peer *peer)
{
    const struct ls_strategy_host *host = host_of(server);
    int32_t status = LS_OK;
    for (uint32_t i = 0; !status && i < server->held_count; i++) {
        struct held *held = &server->held[i];
        server->statistics.pulls++;
        if (peer->versions[i] == held->version) {
            server->statistics.pulls_unchanged++;
            continue;
        }
        peer->versions[i] = held->version;
        peer->sent_places[peer->send_count] = i;
        held->readers++;
        server->statistics.bytes_sent += held->shard->range.count * sizeof(float);
        status =
            channel_send(&peer->channel, &peer->sends[peer->send_count++], SIGNATURE_VALUES | i,
                         host->stores->values(host, held->store), held->shard->range.count, LS_F32);
    }
    return status;
}

// LS_AGAIN: it has to wait.
static int32_t serve_wait(struct server *server, uint32_t rank)
{
    struct peer *peer = &server->peers[rank];
    const bool begins = peer->request.kind == REQUEST_PULL && !is_sync(server);
    if (!may_answer(server, rank)) {
        peer->held_back = 1;
        return LS_AGAIN;
    }
    if (begins)
        distribution_add(&server->statistics.lead, pace_lead(&server->pace, rank));
    if (begins && peer->held_back) {
        server->statistics.waits++;
        server->statistics.waits_ns += now_ns(server) - peer->waits_since_ns;
    }
    const int32_t status = send_answer(server, peer, 0, 0);
    return status ? status : send_values(server, peer);
}

// LS_AGAIN: nothing was taken since. Later sends are tested too, because more than a window of them
// may be under way.
static int32_t serve_sends(struct server *server, struct peer *peer)
{
    bool moved = false;
    for (uint32_t i = peer->sends_done; i < peer->send_count; i++) {
        if (peer->sends[i].state == LS_TRANSFER_COMPLETE)
            continue;
        const int32_t status = peer->channel.ops->test(peer->channel.own, &peer->sends[i]);
        if (status == LS_AGAIN)
            continue;
        if (status)
            return status;
        moved = true;
        if (i > 0)
            server->held[peer->sent_places[i]].readers--;
    }
    while (peer->sends_done < peer->send_count &&
           peer->sends[peer->sends_done].state == LS_TRANSFER_COMPLETE)
        peer->sends_done++;
    if (peer->sends_done == peer->send_count)
        return await_request(peer);
    return moved ? LS_OK : LS_AGAIN;
}

// ---- All workers ----

// Moves this worker's request on. LS_AGAIN: it has to wait.
static int32_t serve(struct server *server, uint32_t rank)
{
    struct peer *peer = &server->peers[rank];
    int32_t status = LS_AGAIN;
    switch (peer->state) {
    case PEER_IDLE:
        status = peer->channel.ops->test(peer->channel.own, &peer->incoming);
        return status ? status : hear(server, rank);
    case PEER_PUSHES: return serve_push(server, rank);
    case PEER_WAITS: return serve_wait(server, rank);
    case PEER_TAKES: return serve_sends(server, peer);
    default: return LS_AGAIN;
    }
}

static int32_t blame(struct server *server, uint32_t rank, int32_t status)
{
    if (status == LS_FAILED && server->peers[rank].incoming.state == LS_TRANSFER_MISMATCH)
        return ls_host_fail(host_of(server)->host, status,
                            "server %u: what worker %u sends is not what was agreed (request %u, "
                            "bucket %u)",
                            server->index, rank, server->peers[rank].request.kind,
                            server->peers[rank].request.bucket);
    return status;
}

// Serves all until all have to wait. A worker that is lost is taken out, and the others served.
static int32_t serve_all(struct server *server)
{
    const uint32_t world = host_of(server)->world;
    for (bool moved = true; moved;) {
        moved = pace_all_meet(&server->pace);
        if (moved)
            pace_restart(&server->pace);
        for (uint32_t rank = 0; rank < world; rank++) {
            const int32_t status = serve(server, rank);
            if (status == LS_PEER_LOST)
                take_out(server, rank);
            else if (status && status != LS_AGAIN)
                return blame(server, rank, status);
            moved |= status != LS_AGAIN;
        }
    }
    return LS_OK;
}

// ---- Waiting ----

// sync: the first that has not asked for the step's values.
static uint32_t late_in_sync(const struct server *server)
{
    uint32_t rank = 0;
    while (rank + 1 < host_of(server)->world && server->peers[rank].state == PEER_WAITS)
        rank++;
    return rank;
}

// Whom those wait for that wait; PACE_NOBODY: no one.
static uint32_t late_one(const struct server *server)
{
    if (is_sync(server))
        return late_in_sync(server);
    const struct pace *pace = &server->pace;
    const uint32_t slowest = pace_slowest(pace);
    if (slowest != PACE_NOBODY)
        return slowest;
    for (uint32_t rank = 0; rank < pace->workers; rank++)
        if (pace->states[rank] == PACE_RESTING)
            return rank;
    return PACE_NOBODY;
}

// Polls the workers: takes out those that are lost, and tells those that have waited for the
// deadline why.
static int32_t poll_workers(struct server *server)
{
    const uint64_t now = now_ns(server);
    server->polled_ns = now;
    for (uint32_t rank = 0; rank < host_of(server)->world; rank++) {
        struct peer *peer = &server->peers[rank];
        if (peer->state == PEER_GONE)
            continue;
        const int32_t status = peer->channel.ops->peer_state(server->endpoint, rank);
        if (status == LS_PEER_LOST)
            take_out(server, rank);
        else if (status)
            return status;
        const uint32_t late = late_one(server);
        if (peer->state != PEER_WAITS ||
            now - peer->waits_since_ns < host_of(server)->deadline_ns || late == PACE_NOBODY)
            continue;
        const int32_t sent = send_answer(server, peer, 1, late);
        if (sent)
            return sent;
    }
    return LS_OK;
}

static int32_t wait_for_workers(struct server *server)
{
    uint64_t count = 0;
    for (uint32_t rank = 0; rank < host_of(server)->world; rank++) {
        struct peer *peer = &server->peers[rank];
        const bool hears =
            peer->state == PEER_IDLE || (peer->state == PEER_PUSHES && peer->receiving &&
                                         peer->incoming.state != LS_TRANSFER_COMPLETE);
        if (hears)
            server->waiting[count++] = &peer->incoming;
        else if (peer->state == PEER_TAKES)
            server->waiting[count++] = &peer->sends[peer->sends_done];
    }
    const struct ls_transport_interface *ops = host_of(server)->transport;
    const int32_t status = ops->wait_any(server->endpoint, server->waiting, count, POLL_NS);
    if (status && status != LS_AGAIN)
        return status;
    return now_ns(server) - server->polled_ns >= POLL_NS ? poll_workers(server) : LS_OK;
}

int32_t server_run(void *context)
{
    struct server *server = context;
    int32_t status = LS_OK;
    for (uint32_t rank = 0; !status && rank < host_of(server)->world; rank++)
        status = await_request(&server->peers[rank]);
    while (!status) {
        status = serve_all(server);
        if (status || !pace_living(&server->pace))
            break;
        status = wait_for_workers(server);
    }
    return status;
}

// ---- Opening ----

static int32_t open_held(struct server *server)
{
    const struct ls_strategy_host *host = host_of(server);
    const struct shard_plan *plan = &server->strategy->plan;
    int32_t status = LS_OK;
    for (uint32_t i = 0; !status && i < plan->count; i++) {
        if (plan->shards[i].server != server->index)
            continue;
        struct held *held = &server->held[server->held_count++];
        held->shard = &plan->shards[i];
        held->version = 1;
        if (is_sync(server)) {
            held->sum =
                strategy_allocate(server->strategy, held->shard->range.count, sizeof(float));
            if (!held->sum)
                return LS_OUT_OF_MEMORY;
        }
        status = host->stores->open(host, held->shard->range.first, held->shard->range.count,
                                    &held->store);
    }
    for (uint32_t bucket = 0, i = 0; bucket <= host->bucket_count; bucket++) {
        while (i < server->held_count && server->held[i].shard->bucket < bucket)
            i++;
        server->bucket_begins[bucket] = i;
    }
    return status;
}

static int32_t open_peer(struct server *server, uint32_t rank)
{
    struct ls_strategy *strategy = server->strategy;
    struct peer *peer = &server->peers[rank];
    const uint32_t count = server->held_count;
    peer->channel =
        (struct channel){.ops = strategy->host->transport, .own = server->endpoint, .peer = rank};
    peer->versions = strategy_allocate(strategy, count, sizeof(*peer->versions));
    peer->answer = strategy_allocate(strategy, 1, answer_bytes(count));
    peer->sends = strategy_allocate(strategy, count + 1, sizeof(*peer->sends));
    peer->sent_places = strategy_allocate(strategy, count + 1, sizeof(*peer->sent_places));
    if (!is_sync(server))
        peer->gradient = strategy_allocate(strategy, strategy->plan.largest, sizeof(float));
    return peer->versions && peer->answer && peer->sends && peer->sent_places &&
                   (is_sync(server) || peer->gradient)
               ? LS_OK
               : LS_OUT_OF_MEMORY;
}

int32_t server_open(struct ls_strategy *strategy, struct server *server, uint32_t index)
{
    const uint32_t world = strategy->host->world;
    server->strategy = strategy;
    server->index = index;
    server->endpoint = strategy->endpoints[world + index];
    server->held = strategy_allocate(strategy, strategy->plan.count, sizeof(*server->held));
    server->bucket_begins =
        strategy_allocate(strategy, strategy->host->bucket_count + 1, sizeof(uint32_t));
    server->peers = strategy_allocate(strategy, world, sizeof(*server->peers));
    server->waiting = strategy_allocate(strategy, world, sizeof(struct ls_transfer *));
    server->pace.workers = world;
    server->pace.steps = strategy_allocate(strategy, world, sizeof(*server->pace.steps));
    server->pace.states = strategy_allocate(strategy, world, sizeof(*server->pace.states));
    if (!server->held || !server->bucket_begins || !server->peers || !server->waiting ||
        !server->pace.steps || !server->pace.states)
        return LS_OUT_OF_MEMORY;
    int32_t status = open_held(server);
    for (uint32_t rank = 0; !status && rank < world; rank++)
        status = open_peer(server, rank);
    return status;
}

void server_close(struct server *server)
{
    struct ls_strategy *strategy = server->strategy;
    if (!strategy)
        return;
    for (uint32_t i = 0; i < server->held_count; i++) {
        strategy_release(strategy, server->held[i].sum);
        strategy->host->stores->close(strategy->host, server->held[i].store);
    }
    for (uint32_t rank = 0; server->peers && rank < strategy->host->world; rank++) {
        struct peer *peer = &server->peers[rank];
        strategy_release(strategy, peer->gradient);
        strategy_release(strategy, peer->versions);
        strategy_release(strategy, peer->answer);
        strategy_release(strategy, peer->sends);
        strategy_release(strategy, peer->sent_places);
    }
    strategy_release(strategy, server->held);
    strategy_release(strategy, server->bucket_begins);
    strategy_release(strategy, server->peers);
    strategy_release(strategy, server->waiting);
    strategy_release(strategy, server->pace.steps);
    strategy_release(strategy, server->pace.states);
}
