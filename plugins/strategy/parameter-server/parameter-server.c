// SPDX-License-Identifier: Apache-2.0
// parameter-server: variables are cut into shards that are on servers, with their optimizer state.
// Workers (replicas) pull values, compute, and push gradients; a server applies the optimizer to
// its shards. Servers and workers are threads of one process, and speak over the transport only; or
// where the job has servers of their own, processes, which may die and come back (remote.h).
//
// Options
//   servers=N        how many servers (1)
//   mode=            async: nobody waits for another worker. One push is one step of its shard's
//                      optimizer, of the mean gradient of the worker's own share. (default)
//                    bounded: the same, but a worker may begin a step only when it is at most
//                      `staleness` steps ahead of the slowest.
//                    sync: every step is that of the whole global batch, as under mirrored.
//   staleness=N      bounded: the largest lead (2). 0: steps begin together, though pushes are
//                    applied as they come.
//   shard_bytes=N    least bytes of a shard (262144, as TensorFlow's MinSizePartitioner); shards.h
//   folder=PATH      servers that are processes: where each keeps its shards (the launch's own, or
//                    /tmp), so that one that is started again goes on where it was
//   durability=      memory: until the machine fails (default); disk: each update is written out
//                    before it counts
//   delay_replica=R, delay_ms=N   for tests and experiments: replica R sleeps in each step, as if
//                    it computed longer
//
// Files: shards.c which shard is where; wire.h messages; memory.c memory; pace.c how far each
// worker is; worker.c and server.c the two sides. For processes: remote.h messages;
// remote_worker.c, remote_server.c and remote_shards.c the two sides; shard_file.c.
//
// Messages. A worker numbers its requests to a server one after another; the server hears them in
// that order, and the next only when the one before is done. Each is a struct request; gradients
// follow a push, one message a shard.
//
//   initialize_parameters
//                 worker: FETCH        server: at once, all values
//   begin_step    worker: PULL         server: when the worker may begin: the versions of all
//                                      shards, and the values of those that changed since this
//                                      worker had them, into the replica's parameters
//   gradient_ready worker: PUSH + gradients of the bucket's shards, from where backward wrote them;
//                                      does not wait
//                                      server: one update a shard, as it comes
//   end_step      worker: END          server: this worker has made one step more; does not wait
//   synchronise   worker: MEET         server: when all workers have come: as PULL. All pushes are
//                                      applied by then, and all replicas have the same values. No
//                                      `bounded` worker waits for one that has come, because that
//                                      makes no step. All begin again at zero.
//   rest          worker: REST         server: bounded: nobody waits for its next step; does not
//                                      wait
//   close, lost   worker: LEAVE        server: waits for nothing of it any more
//   report_metrics
//                 worker: STATISTICS   server: its counts
//
// sync: begin_step asks nothing. PUSH of bucket 0 carries the worker's sums. A server adds the
// gradients of a shard in the order of the ranks, and makes one update with the last, unless the
// loss of all is not finite. end_step asks PULL; the answer comes when all shards are done, with
// the sums over all workers.
//
// What waits for what. Workers wait for servers (an answer). Servers wait for any worker, never for
// a certain one: an update of a shard whose values are on the way to a worker is put off until they
// have arrived, and what else goes on goes on. So the only waits that depend on other workers are
// the pull of bounded (the slowest), that of sync (all) and the meeting (all). A server tells a
// worker that has waited for the deadline which one is late.
//
// A worker whose device or transport fails (async, bounded) leaves: by LEAVE where the transport
// still works, else the servers see within 50 ms that its endpoint is closed. What it pushed before
// stays. Under sync a lost worker ends the run, as under mirrored: the step belongs to all, and a
// part of it cannot be taken back.
//
// A share without examples pushes nothing in async and bounded: it is a step of the clock, not of
// the optimizer.
#include "plugins/strategy/parameter-server/internal.h"

#include <stdlib.h>
#include <string.h>

#define MOST_DELAY_MS 10000

// ---- Options ----

// An integer option from `least` to `most`; stays as it is when the user gave none and it has no
// default.
static int32_t read_integer(const struct ls_host *host, const char *name, int64_t least,
                            int64_t most, uint64_t *out)
{
    const char *text = host->option(host, name);
    if (!text)
        return LS_OK;
    const int64_t value = strtoll(text, NULL, 10);
    if (value < least)
        return ls_host_fail(host, LS_USAGE, "%s=%s: must be at least %lld", name, text,
                            (long long)least);
    if (value > most)
        return ls_host_fail(host, LS_USAGE, "%s=%s: must be at most %lld", name, text,
                            (long long)most);
    *out = (uint64_t)value;
    return LS_OK;
}

static int32_t read_mode(const struct ls_host *host, struct settings *settings)
{
    const char *mode = host->option(host, "mode");
    settings->mode = MODE_ASYNC;
    if (mode && strcmp(mode, "bounded") == 0)
        settings->mode = MODE_BOUNDED;
    else if (mode && strcmp(mode, "sync") == 0)
        settings->mode = MODE_SYNC;
    if (settings->mode != MODE_BOUNDED && host->option(host, "staleness"))
        return ls_host_fail(host, LS_USAGE, "staleness=%s is for mode=bounded only; the mode is %s",
                            host->option(host, "staleness"), mode ? mode : "async");
    settings->staleness = 2;
    return read_integer(host, "staleness", 0, INT32_MAX, &settings->staleness);
}

static int32_t read_delay(const struct ls_host *host, uint32_t world, struct settings *settings)
{
    uint64_t replica = UINT32_MAX, milliseconds = 0;
    int32_t status = read_integer(host, "delay_replica", 0, (int64_t)world - 1, &replica);
    if (!status)
        status = read_integer(host, "delay_ms", 0, MOST_DELAY_MS, &milliseconds);
    if (!status && !host->option(host, "delay_replica") != !host->option(host, "delay_ms"))
        status = ls_host_fail(host, LS_USAGE,
                              "delay_replica and delay_ms belong together: which replica is slowed "
                              "down, and by how much");
    settings->delay_replica = (uint32_t)replica;
    settings->delay_ns = milliseconds * UINT64_C(1000000);
    return status;
}

// What the optimizer needs norms of must be in one place at one time.
static int32_t heed_norms(struct ls_strategy *strategy)
{
    const struct ls_host *host = strategy->host->host;
    struct settings *settings = &strategy->settings;
    if (strategy->host->norms & LS_NORM_OF_VARIABLES)
        settings->shard_bytes = UINT64_MAX; // shards are whole variables
    if (!(strategy->host->norms & LS_NORM_OF_ALL))
        return LS_OK;
    if (settings->mode != MODE_SYNC)
        return ls_host_fail(
            host, LS_USAGE,
            "global_clipnorm and loss scales need all gradients of a step together, which workers "
            "that do not wait for each other never have; use mode=sync, or clipnorm, and "
            "--loss-scale=none");
    if (settings->servers > 1)
        return ls_host_fail(host, LS_USAGE,
                            "global_clipnorm and loss scales need all gradients on one server; use "
                            "servers=1, or clipnorm, and --loss-scale=none");
    return LS_OK;
}

// Workers and servers that are processes.
static int32_t check_remote(const struct ls_strategy *strategy, struct settings *settings)
{
    const struct ls_host *host = strategy->host->host;
    const struct ls_strategy_channels *channels = strategy->host->channels;
    if (settings->servers != 1 && settings->servers != channels->servers)
        return ls_host_fail(host, LS_USAGE,
                            "servers=%u, but this job has %u server processes; leave it out",
                            settings->servers, channels->servers);
    settings->servers = channels->servers;
    if (settings->mode == MODE_SYNC)
        return ls_host_fail(host, LS_USAGE,
                            "mode=sync has servers in the workers' process only, because in a step "
                            "of all workers none can be missing; use mode=async or bounded, or "
                            "--strategy=multi-worker-mirrored without servers");
    if (strategy->host->replicas != 1)
        return ls_host_fail(host, LS_USAGE,
                            "%u replicas in a worker, but with server processes each worker has "
                            "one; use --replicas=1 and more workers",
                            strategy->host->replicas);
    return LS_OK;
}

static bool is_remote(const struct ls_strategy *strategy)
{
    return strategy->host->channels && strategy->host->channels->servers;
}

static int32_t read_settings(struct ls_strategy *strategy)
{
    const struct ls_host *host = strategy->host->host;
    const bool remote = is_remote(strategy);
    struct settings *settings = &strategy->settings;
    uint64_t servers = 1;
    settings->shard_bytes = UINT64_C(262144);
    int32_t status = read_mode(host, settings);
    if (!status)
        status = read_integer(host, "servers", 1, 65536, &servers);
    if (!status)
        status = read_integer(host, "shard_bytes", 1, INT64_MAX, &settings->shard_bytes);
    settings->servers = (uint32_t)servers;
    if (!status)
        status = read_delay(
            host, remote ? strategy->host->channels->workers : strategy->host->world, settings);
    if (!status && remote)
        status = check_remote(strategy, settings);
    return status ? status : heed_norms(strategy);
}

// ---- Opening ----

static int32_t plan_shards(struct ls_strategy *strategy)
{
    const struct ls_strategy_host *host = strategy->host;
    const struct settings *settings = &strategy->settings;
    strategy->variables =
        strategy_allocate(strategy, host->variable_count, sizeof(*strategy->variables));
    strategy->buckets = strategy_allocate(strategy, host->bucket_count, sizeof(*strategy->buckets));
    if (!strategy->variables || !strategy->buckets)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < host->variable_count; i++)
        host->layout->variable_range(host, i, &strategy->variables[i].first,
                                     &strategy->variables[i].count);
    for (uint32_t i = 0; i < host->bucket_count; i++)
        host->layout->bucket_range(host, i, &strategy->buckets[i].first,
                                   &strategy->buckets[i].count);
    const int32_t status = shard_plan_create(
        host->host, strategy->variables, host->variable_count, strategy->buckets,
        host->bucket_count, settings->shard_bytes, settings->servers, &strategy->plan);
    if (status == LS_BAD_INPUT)
        return ls_host_fail(host->host, LS_FAILED, "a variable lies in no bucket whole");
    if (!status && strategy->plan.count < settings->servers)
        return ls_host_fail(host->host, LS_USAGE,
                            "servers=%u, but the variables of the model fill only %u: they make %u "
                            "shard%s of at least shard_bytes=%llu; fewer servers or smaller shards",
                            settings->servers, strategy->plan.count, strategy->plan.count,
                            strategy->plan.count == 1 ? "" : "s",
                            (unsigned long long)settings->shard_bytes);
    return status;
}

static int32_t open_sides(struct ls_strategy *strategy)
{
    const struct ls_strategy_host *host = strategy->host;
    const uint32_t servers = strategy->settings.servers;
    strategy->endpoints =
        strategy_allocate(strategy, host->world + servers, sizeof(struct ls_transport *));
    strategy->workers = strategy_allocate(strategy, host->world, sizeof(*strategy->workers));
    strategy->servers = strategy_allocate(strategy, servers, sizeof(*strategy->servers));
    if (!strategy->endpoints || !strategy->workers || !strategy->servers)
        return LS_OUT_OF_MEMORY;
    int32_t status = host->endpoints->open(host, servers, strategy->endpoints);
    for (uint32_t i = 0; !status && i < host->world; i++)
        status = worker_open(strategy, &strategy->workers[i], i);
    for (uint32_t i = 0; !status && i < servers; i++)
        status = server_open(strategy, &strategy->servers[i], i);
    return status;
}

static int32_t start_servers(struct ls_strategy *strategy)
{
    const struct ls_strategy_host *host = strategy->host;
    int32_t status = LS_OK;
    for (uint32_t i = 0; !status && i < strategy->settings.servers; i++) {
        char name[32];
        snprintf(name, sizeof(name), "server %u", i);
        status = host->threads->start(host, name, server_run, &strategy->servers[i],
                                      &strategy->servers[i].thread);
    }
    return status;
}

// Servers end when all workers have left. One that cannot leave, because what it does next is
// unknown, ends all.
static void end_servers(struct ls_strategy *strategy)
{
    const struct ls_strategy_host *host = strategy->host;
    bool orderly = true;
    for (uint32_t i = 0; i < host->world && strategy->servers[0].thread; i++) {
        struct worker *worker = &strategy->workers[i];
        if (!worker->lost)
            orderly = orderly && !worker->broken && worker_leave(worker) == LS_OK;
    }
    if (!orderly)
        host->transport->abort(strategy->servers[0].endpoint);
    for (uint32_t i = 0; i < strategy->settings.servers; i++)
        if (strategy->servers[i].thread)
            host->threads->join(host, strategy->servers[i].thread);
}

static void parameter_server_close(struct ls_strategy *strategy)
{
    if (strategy->remote) {
        remote_close(strategy);
        strategy->workers = NULL;
    }
    if (strategy->workers && strategy->servers) {
        const uint32_t last = strategy->settings.servers - 1;
        // Some threads are missing when the last could not be started: nobody can leave in order
        // then.
        if (strategy->servers[0].thread && !strategy->servers[last].thread)
            strategy->workers[0].broken = 1;
        end_servers(strategy);
        for (uint32_t i = 0; i <= last; i++)
            server_close(&strategy->servers[i]);
        for (uint32_t i = 0; i < strategy->host->world; i++)
            worker_close(&strategy->workers[i]);
    }
    strategy_release(strategy, strategy->servers);
    strategy_release(strategy, strategy->workers);
    strategy_release(strategy, strategy->endpoints);
    strategy_release(strategy, strategy->plan.shards);
    strategy_release(strategy, strategy->buckets);
    strategy_release(strategy, strategy->variables);
}

static int32_t parameter_server_open(const struct ls_strategy_host *host,
                                     struct ls_strategy *strategy)
{
    strategy->host = host;
    int32_t status = read_settings(strategy);
    if (!status)
        status = plan_shards(strategy);
    if (!status && is_remote(strategy))
        status = remote_open(strategy);
    if (!status && !is_remote(strategy))
        status = open_sides(strategy);
    if (!status && !is_remote(strategy))
        status = start_servers(strategy);
    if (status)
        parameter_server_close(strategy);
    return status;
}

// ---- Hooks ----

// Optimizer states are in the servers' stores.
static void parameter_server_placement(struct ls_strategy *strategy, uint32_t rank, uint32_t bucket,
                                       struct ls_strategy_placement *out)
{
    (void)strategy;
    (void)rank;
    (void)bucket;
    out->states.count = 0;
}

static int32_t parameter_server_initialize(struct ls_strategy *strategy, uint32_t replica)
{
    return strategy->remote ? remote_initialize(strategy->remote)
                            : worker_initialize(&strategy->workers[replica]);
}

static int32_t parameter_server_begin_step(struct ls_strategy *strategy, uint32_t replica)
{
    return strategy->remote ? remote_begin(strategy->remote)
                            : worker_begin(&strategy->workers[replica]);
}

static int32_t parameter_server_gradient_ready(struct ls_strategy *strategy, uint32_t replica,
                                               uint32_t bucket)
{
    return strategy->remote ? remote_push(strategy->remote, bucket)
                            : worker_push(&strategy->workers[replica], bucket);
}

static int32_t parameter_server_end_step(struct ls_strategy *strategy, uint32_t replica)
{
    return strategy->remote ? remote_end(strategy->remote)
                            : worker_end(&strategy->workers[replica]);
}

static int32_t parameter_server_synchronise(struct ls_strategy *strategy, uint32_t replica)
{
    return strategy->remote ? remote_meet(strategy->remote)
                            : worker_barrier(&strategy->workers[replica]);
}

static int32_t parameter_server_rest(struct ls_strategy *strategy, uint32_t replica)
{
    return strategy->remote ? remote_rest(strategy->remote)
                            : worker_rest(&strategy->workers[replica]);
}

static void parameter_server_find_traits(struct ls_strategy *strategy,
                                         struct ls_strategy_traits *traits)
{
    const bool sync = strategy->settings.mode == MODE_SYNC;
    traits->divisor = sync ? LS_DIVISOR_GLOBAL : LS_DIVISOR_OWN;
    traits->equality = sync ? LS_EQUAL_EVERY_STEP : LS_EQUAL_AT_SYNCHRONISE;
    traits->survives = !sync;
}

// Where its transport fails too, nobody can be told; then the closed endpoint tells it.
static int32_t parameter_server_lost(struct ls_strategy *strategy, uint32_t replica)
{
    struct worker *worker = &strategy->workers[replica];
    if (strategy->remote)
        return LS_OK;
    const int32_t status = worker->broken ? LS_OK : worker_leave(worker);
    worker->lost = 1;
    if (status == LS_ABORTED)
        return status;
    strategy->host->endpoints->close(strategy->host, replica);
    return LS_OK;
}

// ---- The report ----

static void report_number(const struct ls_strategy_host *host, const char *name, double value)
{
    host->report->metric(host, name, &value, 1, 0);
}

static void report_distribution(const struct ls_strategy_host *host, const char *name,
                                const struct distribution *distribution)
{
    char text[64];
    double bins[DISTRIBUTION_BINS];
    for (uint32_t i = 0; i < DISTRIBUTION_BINS; i++)
        bins[i] = (double)distribution->bins[i];
    snprintf(text, sizeof(text), "%s.mean", name);
    report_number(host, text, distribution_mean(distribution));
    snprintf(text, sizeof(text), "%s.max", name);
    report_number(host, text, (double)distribution->largest);
    snprintf(text, sizeof(text), "%s.histogram", name);
    host->report->metric(host, text, bins, distribution_bins(distribution), 1);
}

static void report_staleness(const struct ls_strategy *strategy, const struct statistics *of,
                             uint64_t updates)
{
    const struct ls_strategy_host *host = strategy->host;
    const struct settings *settings = &strategy->settings;
    struct distribution missed = {0};
    uint64_t pushes = 0, pulls = 0, unchanged = 0;
    for (uint32_t i = 0; i < settings->servers; i++) {
        distribution_merge(&missed, &of[i].missed);
        pushes += of[i].pushes;
        pulls += of[i].pulls;
        unchanged += of[i].pulls_unchanged;
    }
    if (settings->mode == MODE_BOUNDED)
        report_number(host, "staleness.bound", (double)settings->staleness);
    if (settings->mode != MODE_SYNC) {
        report_distribution(host, "staleness.lead", &of[0].lead);
        report_distribution(host, "staleness.missed_updates", &missed);
        report_number(host, "staleness.waits", (double)of[0].waits);
        report_number(host, "staleness.waits_seconds", (double)of[0].waits_ns * 1e-9);
    }
    report_number(host, "staleness.pushes", (double)(updates ? updates : pushes));
    report_number(host, "staleness.pulls", (double)pulls);
    report_number(host, "staleness.pulls_unchanged", (double)unchanged);
}

// `figures` has room for one a server.
static void report_servers(const struct ls_strategy *strategy, const struct statistics *of,
                           double *figures)
{
    static const char *const names[] = {"servers.parameters", "servers.shards",
                                        "servers.bytes_received", "servers.bytes_sent"};
    const struct ls_strategy_host *host = strategy->host;
    const uint32_t servers = strategy->settings.servers;
    for (uint32_t what = 0; what < 4; what++) {
        for (uint32_t i = 0; i < servers; i++)
            figures[i] = what == 2 ? (double)of[i].bytes_received
                                   : (what == 3 ? (double)of[i].bytes_sent : 0.0);
        for (uint32_t i = 0; i < strategy->plan.count && what < 2; i++) {
            const struct shard *shard = &strategy->plan.shards[i];
            figures[shard->server] += what == 0 ? (double)shard->range.count : 1.0;
        }
        host->report->metric(host, names[what], figures, servers, 1);
    }
}

// The first worker that is still there asks. After an abort nobody answers, and nothing is
// reported.
static void parameter_server_report(struct ls_strategy *strategy)
{
    const uint32_t servers = strategy->settings.servers;
    struct statistics *of = strategy_allocate(strategy, servers, sizeof(*of));
    double *figures = strategy_allocate(strategy, servers, sizeof(*figures));
    uint64_t updates = 0; // what servers that were started again remember
    uint32_t rank = 0;
    while (rank < strategy->host->world &&
           (strategy->workers[rank].lost || strategy->workers[rank].broken))
        rank++;
    const bool asked =
        of && figures && rank < strategy->host->world &&
        (strategy->remote ? remote_statistics(strategy->remote, of, &updates)
                          : worker_statistics(&strategy->workers[rank], of)) == LS_OK;
    if (asked) {
        report_staleness(strategy, of, updates);
        report_servers(strategy, of, figures);
    }
    strategy_release(strategy, of);
    strategy_release(strategy, figures);
}

static const struct ls_strategy_interface interface = {
    .struct_size = sizeof(interface),
    .state_bytes = sizeof(struct ls_strategy),
    .all_here = 1,
    .traits = {.struct_size = sizeof(interface.traits),
               .divisor = LS_DIVISOR_OWN,
               .equality = LS_EQUAL_AT_SYNCHRONISE},
    .needs_transport = 1,
    .norms = LS_NORM_OF_VARIABLES | LS_NORM_OF_ALL,
    .open = parameter_server_open,
    .close = parameter_server_close,
    .find_traits = parameter_server_find_traits,
    .placement = parameter_server_placement,
    .initialize_parameters = parameter_server_initialize,
    .begin_step = parameter_server_begin_step,
    .gradient_ready = parameter_server_gradient_ready,
    .end_step = parameter_server_end_step,
    .synchronise = parameter_server_synchronise,
    .lost = parameter_server_lost,
    .rest = parameter_server_rest,
    .report_metrics = parameter_server_report,
    .serve = remote_serve,
};

static const struct ls_plugin_option options[] = {
    {"servers", "integer", "1", "servers that the variables are spread over"},
    {"mode", "one of: async, bounded, sync", "async",
     "async: nobody waits; bounded: nobody is more than staleness steps ahead; sync: as mirrored"},
    {"staleness", "integer", NULL, "bounded: the largest lead over the slowest worker; 2"},
    {"shard_bytes", "integer", "262144", "least bytes of a part of a variable"},
    {"folder", "text", NULL,
     "server processes: where each keeps its part of the variables; the launch's own, or /tmp"},
    {"durability", "one of: memory, disk", "memory",
     "server processes: what an update survives: the end of the process, or that of the machine"},
    {"delay_replica", "integer", NULL, "for experiments: the replica that delay_ms slows down"},
    {"delay_ms", "integer", NULL, "for experiments: milliseconds that it sleeps in each step"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_STRATEGY),
    .name = "parameter-server",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "variables on servers; workers pull values and push gradients, in step or not",
    .options = options,
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
