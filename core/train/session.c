// SPDX-License-Identifier: Apache-2.0
// Opens a session, makes it ready for what comes next, and closes it.
#include "core/train/session.h"

#include "core/base/caller.h"
#include "core/base/log.h"
#include "core/base/memory.h"
#include "core/base/segment.h"
#include "core/base/trace.h"
#include "core/base/watchdog.h"

#include "core/run/workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A replica failed: nobody may wait for it.
static void wake_all(void *context, enum ls_status status)
{
    struct ls_session *session = context;
    if (status == LS_PEER_LOST)
        session->hung = true;
    // An interrupted evaluation ends its own stream alone: the communicators are needed
    // afterwards. Who is aborted follows another, which has done this already.
    // A loss that is not finite is found by all workers in the same step, and needs no abort, which
    // could reach another one before that.
    const bool alone = ls_cluster_workers(session->cluster) == 1;
    const bool found = session->driver && ls_driver_not_finite(session->driver);
    if (session->lacks && status == LS_UNAVAILABLE)
        return; // the workers meet, and take another device (agree_on_lack)
    if (session->driver && status != LS_INTERRUPTED && status != LS_ABORTED && (alone || !found))
        ls_driver_abort(session->driver);
    // Who has lost a peer says nothing: the peer is to be named by all, and not this worker.
    if (status != LS_INTERRUPTED && status != LS_ABORTED && status != LS_PEER_LOST && !found)
        ls_workers_give_up(session->run);
    struct ls_stream *stream = session->stream;
    if (stream)
        ls_stream_abort(stream);
    for (uint32_t i = 0; session->input.own && !stream && i < session->count; i++)
        ls_stream_abort(session->input.own[i]);
}

// A worker is lost: whatever the replicas do ends with LS_ABORTED, or did already. [any thread]
static void abort_session(void *context)
{
    struct ls_session *session = context;
    atomic_store(&session->aborted, true);
    if (session->driver)
        ls_driver_abort(session->driver);
}

// After a replica has failed: a kernel takes that long at times, whatever the deadline is; and no
// replica is waited for longer, as what it does is not needed any more.
#define LEAST_PATIENCE_NS UINT64_C(2000000000)
#define MOST_PATIENCE_NS UINT64_C(8000000000)

static void say_stuck(void *context, uint32_t rank)
{
    ((struct ls_session *)context)->run->stuck(rank);
}

// Whether the device computes beside the threads of the replicas.
static bool works_on(const struct ls_session *session)
{
    return !((const struct ls_device_interface *)session->run->device->interface)->blocking;
}

struct work {
    const char *doing;
    enum ls_status (*function)(void *context, uint32_t index);
    void *context;
};

// [replica thread]
static enum ls_status work(void *context, uint32_t index)
{
    const struct work *work = context;
    const uint32_t reasons = ls_thread_reasons();
    const enum ls_status status = work->function(work->context, index);
    if (status == LS_OUT_OF_MEMORY && ls_thread_reasons() == reasons)
        ls_error("train", "out of memory while %s; smaller batches and fewer replicas need less",
                 work->doing);
    return status;
}

enum ls_status ls_session_run(struct ls_session *session, const char *doing,
                              enum ls_status (*function)(void *context, uint32_t index),
                              void *context)
{
    struct work shared = {doing, function, context};
    session->run->doing = doing;
    enum ls_status status = ls_group_run(session->group, work, &shared);
    if (status == LS_PEER_LOST || status == LS_ABORTED)
        status = ls_workers_await_verdict(session->run, session->driver, status);
    if (status && atomic_load(&session->aborted))
        status = LS_PEER_LOST;
    session->broken = session->broken || (status && status != LS_INTERRUPTED);
    return status;
}

bool ls_session_in_host_memory(const struct ls_session *session)
{
    return ((const struct ls_device_interface *)session->run->device->interface)->memory_kind ==
           LS_MEMORY_HOST;
}

uint32_t ls_session_rank(const struct ls_session *session, uint32_t index)
{
    return ls_cluster_first_rank(session->cluster) + index;
}

uint32_t ls_session_share(const struct ls_session *session, uint32_t index)
{
    return ls_run_first_share(session->run) + index;
}

// ---- Opening ----

// Each rank is a process of its own in a timeline.
static void name_rank(const struct ls_run *run, uint32_t rank)
{
    char name[32], remark[128];
    snprintf(name, sizeof(name), "rank %u", rank);
    snprintf(remark, sizeof(remark), "%s, %u thread%s", run->device->plugin->name, run->threads,
             run->threads == 1 ? "" : "s");
    ls_trace_move(1 + rank, name, remark);
}

// NULL: the session does not train.
static const struct ls_optimizer *optimizer_of(const struct ls_session *session)
{
    return session->need.training_examples ? &session->model->optimizer : NULL;
}

// [replica thread]
static enum ls_status open_replica(void *context, uint32_t index)
{
    struct ls_session *session = context;
    const struct ls_run *run = session->run;
    const uint32_t rank = ls_session_rank(session, index);
    name_rank(run, rank);
    struct ls_replica_options replica = {
        .ops = run->device->interface,
        .host = run->device->host,
        .device_name = run->device->plugin->name,
        .rank = rank,
        .device_index = run->chosen[index % run->chosen_count],
        .threads = run->threads,
        .graph = session->model->graph,
        .optimizer = optimizer_of(session),
        .seed = run->seed,
        .plan_batch = (int64_t)ls_session_layout_batch(session, &session->need),
        .first_bucket_bytes = LS_FIRST_BUCKET_BYTES,
        .bucket_bytes = LS_BUCKET_BYTES,
        .timing = run->verbose,
        .deadline_ns = run->deadline_ns,
        .lack = session->lacks ? session->lacks[index] : NULL,
    };
    memcpy(replica.byte_divisors, session->need.byte_divisors, sizeof(replica.byte_divisors));
    return ls_replica_open(&replica, &session->replicas[index]);
}

struct allocating {
    struct ls_session *session;
    struct ls_replica_placement *placements; // one a replica of this worker
};

// A replica holds all of its optimizer state, or where the strategy places none of it there,
// nothing. [main thread]
static enum ls_status find_placement(struct ls_session *session, uint32_t index,
                                     struct ls_replica_placement *out)
{
    *out = (struct ls_replica_placement){.no_states = session->driver != NULL};
    const struct ls_buckets *buckets = ls_replica_buckets(session->replicas[index]);
    for (uint32_t i = 0; session->driver && i < buckets->count; i++) {
        struct ls_strategy_placement bucket;
        const enum ls_status status = ls_driver_placement(session->driver, index, i, &bucket);
        if (status)
            return status;
        out->no_states = out->no_states && bucket.states.count == 0;
        // What the model has after the training is in the states of the first replica, or in stores.
        const uint64_t whole = buckets->list[i].bytes / sizeof(float);
        if (session->model->optimizer.averages && session->need.training_examples &&
            bucket.states.count && bucket.states.count != whole) {
            ls_error("--optimizer",
                     "use_ema needs averages of all weights in one place, but the strategy spreads "
                     "the optimizer's state over the replicas; use --strategy=mirrored");
            return LS_USAGE;
        }
    }
    return LS_OK;
}

// [replica thread]
static enum ls_status allocate_replica(void *context, uint32_t index)
{
    const struct allocating *allocating = context;
    return ls_replica_allocate(allocating->session->replicas[index],
                               &allocating->placements[index]);
}

static enum ls_status allocate_replicas(struct ls_session *session)
{
    struct allocating allocating = {.session = session};
    allocating.placements = calloc(session->count, sizeof(*allocating.placements));
    enum ls_status status = allocating.placements ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < session->count; i++)
        status = find_placement(session, i, &allocating.placements[i]);
    if (!status)
        status = ls_session_run(session, "preparing the replicas", allocate_replica, &allocating);
    free(allocating.placements);
    return status;
}

// [replica thread]
static enum ls_status initialize_parameters(void *context, uint32_t index)
{
    return ls_driver_initialize_parameters(((struct ls_session *)context)->driver, index);
}

static struct ls_driver_plugin driver_plugin(const struct ls_opened_plugin *opened)
{
    if (!opened)
        return (struct ls_driver_plugin){0};
    return (struct ls_driver_plugin){.plugin = opened->plugin,
                                     .host = opened->host,
                                     .interface = opened->interface,
                                     .text = opened->text};
}

static struct ls_driver_plugin collective_plugin(const struct ls_run *run)
{
    if (!run->tuning.tuner)
        return driver_plugin(run->strategy.collective);
    const struct ls_plugin *plugin = ls_tuner_plugin(run->tuning.tuner);
    return (struct ls_driver_plugin){
        .plugin = plugin, .host = ls_tuner_host(run->tuning.tuner), .interface = plugin->interface};
}

// Whether the collectives are measured: `auto` without a table.
static bool measures(const struct ls_run *run)
{
    return run->tuning.tuner && !run->tuning.table;
}

// The run's own device where it computes in host memory, else the cpu device. [main thread]
static enum ls_status store_device(void *context, struct ls_driver_plugin *out)
{
    const struct ls_run *run = ((struct ls_session *)context)->run;
    const struct ls_device_interface *own = run->device->interface;
    const struct ls_opened_plugin *device = run->device;
    if (own->memory_kind != LS_MEMORY_HOST) {
        const enum ls_status status =
            ls_loader_open(run->loader, LS_KIND_DEVICE, "cpu", NULL, 0, &device);
        if (status)
            return status;
    }
    *out = driver_plugin(device);
    return LS_OK;
}

// Totals are small: what counts is the number of rounds. [main thread]
#define TOTAL_COLLECTIVE "direct"
#define TOTAL_TRANSPORT "local"

static enum ls_status total_plugins(void *context, struct ls_driver_plugin *collective,
                                    struct ls_driver_plugin *transport)
{
    struct ls_run *run = ((struct ls_session *)context)->run;
    enum ls_status status = ls_loader_open(run->loader, LS_KIND_COLLECTIVE, TOTAL_COLLECTIVE, NULL,
                                           0, &run->total_collective);
    if (!status && !transport->plugin)
        status = ls_loader_open(run->loader, LS_KIND_TRANSPORT, TOTAL_TRANSPORT, NULL, 0,
                                &run->total_transport);
    if (status)
        return status;
    *collective = driver_plugin(run->total_collective);
    if (!transport->plugin)
        *transport = driver_plugin(run->total_transport);
    return LS_OK;
}

static enum ls_status open_driver(struct ls_session *session)
{
    const struct ls_run *run = session->run;
    struct ls_driver_part *parts = calloc(session->count, sizeof(*parts));
    if (!parts)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < session->count; i++)
        parts[i] = ls_driver_part_of(session->replicas[i]);
    char agreement[128];
    snprintf(agreement, sizeof(agreement), "%llu examples, batch %llu, %u parts",
             (unsigned long long)session->need.training_examples,
             (unsigned long long)session->need.global_batch, session->need.microbatches);
    const struct ls_driver_options options = {
        .strategy = driver_plugin(run->strategy.strategy),
        .collective = collective_plugin(run),
        .transport = driver_plugin(run->strategy.transport),
        .tuner = measures(run) ? run->tuning.tuner : NULL,
        .wire = run->wire,
        .deadline_ns = run->deadline_ns,
        .cluster = session->cluster,
        .number = ++session->run->drivers_opened,
        .exchange = &session->run->exchange,
        .parts = parts,
        .threads = run->threads,
        .whole_steps = run->most_workers,
        .optimizer = optimizer_of(session),
        .seed = run->seed,
        .steps_before = session->model->steps_done,
        .channels = run->served.servers ? &run->channels : NULL,
        .agreement = agreement,
        .store_device = store_device,
        .total_plugins = total_plugins,
        .context = session,
    };
    session->run->doing = "starting the strategy";
    struct ls_driver *driver = NULL;
    enum ls_status status = ls_driver_open(&options, &driver);
    free(parts);
    session->driver = driver;
    if (status == LS_PEER_LOST) // the library of a collective may see that before the cluster does
        status = ls_workers_await_verdict(session->run, session->driver, status);
    if (!status && run->share_group_count && ls_driver_asynchronous(driver)) {
        ls_error("--share",
                 "strategy '%s' with these options divides gradients by the examples of each "
                 "replica, so unequal shares would give no mean over the batch; leave it out, or "
                 "use --strategy=mirrored",
                 run->strategy.strategy->plugin->name);
        return LS_USAGE;
    }
    session->watch = (struct ls_loss_watch){.lost = abort_session, .context = session};
    if (!status)
        ls_workers_watch(session->run, &session->watch);
    if (!status && ls_driver_survives(session->driver))
        ls_group_set_first_error_only(session->group, false);
    return status;
}

static enum ls_status open_group(struct ls_session *session)
{
    const struct ls_run *run = session->run;
    const enum ls_status status =
        ls_group_create(ls_cluster_first_rank(session->cluster), session->count, wake_all, session,
                        &session->group);
    if (status)
        return status;
    ls_group_set_first_error_only(session->group, works_on(session));
    if (run->stuck)
        ls_group_set_patience(session->group,
                              run->deadline_ns < LEAST_PATIENCE_NS  ? LEAST_PATIENCE_NS
                              : run->deadline_ns > MOST_PATIENCE_NS ? MOST_PATIENCE_NS
                                                                    : run->deadline_ns,
                              say_stuck);
    return LS_OK;
}

// Whether the replicas, of any worker, found that a device that nobody named lacks something; then
// LS_UNAVAILABLE. `status` is that of this worker's.
static enum ls_status agree_on_lack(struct ls_session *session, enum ls_status status)
{
    const uint32_t workers = ls_cluster_workers(session->cluster);
    char mine[LS_LACK_BYTES] = "", (*all)[LS_LACK_BYTES];
    for (uint32_t i = 0; session->lacks && !*mine && i < session->count; i++)
        memcpy(mine, session->lacks[i], sizeof(mine));
    if (!session->lacks || (status && !*mine))
        return status;
    all = calloc(workers, sizeof(*all));
    status = all ? ls_cluster_gather_workers(session->cluster, mine, sizeof(mine), all)
                 : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < workers; i++)
        if (all[i][0]) {
            memcpy(session->lack, all[i], sizeof(session->lack));
            status = LS_UNAVAILABLE;
        }
    free(all);
    return status;
}

// A strategy that cannot work on the device is a lack, too. All workers refuse it alike.
static enum ls_status open_strategy(struct ls_session *session)
{
    static const char prefix[] = "lockstep: error: ";
    char *error = NULL;
    if (!session->lacks)
        return open_driver(session);
    char **before = ls_log_keep(&error);
    const enum ls_status status = open_driver(session);
    ls_log_keep(before);
    if (status == LS_UNAVAILABLE && error)
        snprintf(session->lacks[0], LS_LACK_BYTES, "does not go with the strategy (%s)",
                 strncmp(error, prefix, strlen(prefix)) ? error : error + strlen(prefix));
    else
        ls_log_write_kept(&error);
    free(error);
    return agree_on_lack(session, status);
}

static enum ls_status make_programs(struct ls_session *session)
{
    return agree_on_lack(session, ls_session_make_programs(session));
}

// In the order that session.h says. The strategy is opened when devices and layouts are known, and
// says what replicas hold before anything is allocated.
static enum ls_status open_session(struct ls_session *session)
{
    const bool trains = session->need.training_examples;
    session->count = ls_cluster_count(session->cluster);
    if (ls_run_shares_memory(session->run))
        (void)!ls_segment_open(); // without it the transport copies
    session->replicas = calloc(session->count, sizeof(struct ls_replica *));
    if (session->run->by_default)
        session->lacks = calloc(session->count, sizeof(*session->lacks));
    if (!session->replicas || (session->run->by_default && !session->lacks))
        return LS_OUT_OF_MEMORY;
    enum ls_status status = open_group(session);
    if (!status)
        status = agree_on_lack(
            session, ls_session_run(session, "opening the replicas", open_replica, session));
    if (!status)
        status = ls_session_note_layouts(session, ls_session_layout_batch(session, &session->need));
    if (!status && trains)
        status = open_strategy(session);
    if (!status)
        status = allocate_replicas(session);
    if (!status)
        status = make_programs(session);
    if (!status && trains)
        status = ls_driver_attach(session->driver, session->replicas);
    if (!status)
        status = ls_session_give_weights(session);
    if (!status && trains)
        status =
            ls_session_run(session, "making the parameters equal", initialize_parameters, session);
    ls_give_memory_back(); // first weights were copied one after the other
    return status;
}

// Whether the session may go on with another need.
static enum ls_status suits(struct ls_session *session, const struct ls_session_need *need,
                            bool *out)
{
    const struct ls_device_interface *device = session->run->device->interface;
    const bool bytes = device->memory_kind != LS_MEMORY_HOST; // what examples come as is fixed
    *out = false;
    if (session->broken || (need->training_examples && !session->driver) ||
        (bytes && memcmp(need->byte_divisors, session->need.byte_divisors,
                         sizeof(need->byte_divisors)) != 0))
        return LS_OK;
    return agree_on_lack(session, ls_session_has_layouts(session, need, out));
}

static enum ls_status make_ready(struct ls_model *model, const struct ls_session_need *need)
{
    struct ls_session_need requested = *need;
    requested.microbatches = need->microbatches ? need->microbatches : 1;
    if (model->session) {
        if (!need->training_examples) // those of the last fit stay as they are
            requested.microbatches = model->session->need.microbatches;
        bool fits = false;
        enum ls_status status = suits(model->session, &requested, &fits);
        if (!status && fits) {
            model->session->need = requested;
            status = make_programs(model->session);
            return status ? status : ls_session_give_assigned(model->session);
        }
        if (!status)
            status = ls_model_take(model, LS_TAKE_ALL);
        const enum ls_status closed = ls_session_close(model);
        if (status || closed)
            return status ? status : closed;
    }
    struct ls_session *session = calloc(1, sizeof(*session));
    if (!session)
        return LS_OUT_OF_MEMORY;
    enum ls_status status =
        ls_weighting_init(&session->weighting, ls_cluster_count(model->run->cluster));
    if (status) {
        free(session);
        return status;
    }
    static _Atomic uint64_t sessions;
    session->number = atomic_fetch_add(&sessions, 1) + 1;
    session->model = model;
    session->run = model->run;
    session->cluster = model->run->cluster;
    session->need = requested;
    model->session = session;
    session->run->session_count++;
    status = open_session(session);
    session->broken = session->broken || status;
    return status;
}

// The device was nobody's choice, and lacks something that the model needs.
static enum ls_status take_cpu(struct ls_model *model)
{
    struct ls_run *run = model->run;
    char lack[LS_LACK_BYTES];
    memcpy(lack, model->session->lack, sizeof(lack));
    if (run->session_count > 1) {
        ls_error(model->source,
                 "device %s %s, and another model of this run is on it; use "
                 "--device=cpu for both",
                 run->device->plugin->name, lack);
        return LS_UNAVAILABLE;
    }
    const enum ls_status status = ls_session_close(model);
    return status ? status : ls_run_take_cpu(run, lack);
}

enum ls_status ls_session_ready(struct ls_model *model, const struct ls_session_need *need)
{
    enum ls_status status = make_ready(model, need);
    if (status != LS_UNAVAILABLE || !model->session || !*model->session->lack)
        return status;
    status = take_cpu(model);
    return status ? status : make_ready(model, need);
}

// ---- Closing ----

// [replica thread]
static enum ls_status destroy_replica(void *context, uint32_t index)
{
    ls_replica_destroy(((struct ls_session *)context)->replicas[index]);
    return LS_OK;
}

// What follows from a failure that was said is not said again.
static enum ls_status close_driver(struct ls_session *session)
{
    char *error = NULL;
    if (ls_group_has_logged(session->group))
        ls_log_keep(&error);
    for (uint32_t i = 0; session->hung && session->replicas && i < session->count; i++)
        ls_replica_abandon(session->replicas[i]);
    const bool closed = ls_driver_close(session->driver);
    session->driver = NULL;
    ls_log_keep(NULL);
    free(error);
    if (!closed && session->run->stuck)
        session->run->stuck(LS_NO_REPLICA);
    return closed ? LS_OK : LS_PEER_LOST;
}

enum ls_status ls_session_close(struct ls_model *model)
{
    struct ls_session *session = model->session;
    if (!session)
        return LS_OK;
    model->session = NULL;
    ls_workers_unwatch(session->run, &session->watch);
    ls_model_give_up(model);
    ls_session_forget_data(session);
    const enum ls_status status = close_driver(session);
    if (status)
        return status;
    if (session->group && session->replicas)
        (void)!ls_group_run(session->group, destroy_replica, session);
    ls_group_destroy(session->group);
    session->run->session_count--;
    ls_weighting_finish(&session->weighting);
    free(session->lacks);
    free(session->same_layouts);
    free(session->replicas);
    free(session);
    return LS_OK;
}

// ---- Failures and lost replicas ----

// [replica thread]
static enum ls_status synchronise(void *context, uint32_t index)
{
    return ls_driver_synchronise(((struct ls_session *)context)->driver, index);
}

enum ls_status ls_session_synchronise(struct ls_session *session)
{
    if (!session->unsynchronized || session->broken)
        return LS_OK;
    session->unsynchronized = false;
    return ls_session_run(session, "bringing the replicas together", synchronise, session);
}

uint64_t ls_session_explain(struct ls_session *session)
{
    // What ends the communicators must not reach a worker that has not seen the loss yet.
    if (session->driver && ls_driver_not_finite(session->driver))
        (void)!ls_cluster_barrier(session->cluster);
    const uint64_t failed = session->driver ? ls_driver_explain(session->driver) : 0;
    if (session->differ || session->hung)
        session->model->refused = session->differ ? LS_REFUSED_DIFFER : LS_REFUSED_HUNG;
    return session->hung ? 0 : failed;
}

bool ls_session_is_lost(const struct ls_session *session, uint32_t index)
{
    return session->driver && ls_driver_is_lost(session->driver, index);
}

uint32_t ls_session_first(const struct ls_session *session)
{
    uint32_t index = 0;
    while (index + 1 < session->count && ls_session_is_lost(session, index))
        index++;
    return index;
}

void ls_session_say_lost(const struct ls_session *session, uint32_t index, const char *doing)
{
    char whose[48] = "";
    uint32_t left = 0;
    for (uint32_t i = 0; i < session->count; i++)
        if (!ls_session_is_lost(session, i) && left++ == 0)
            snprintf(whose, sizeof(whose), "replica %u trains", ls_session_rank(session, i));
    if (left > 1)
        snprintf(whose, sizeof(whose), "the other %u replicas train", left);
    ls_warn("train", "replica %u failed at %s (the reason was logged above); %s its examples",
            ls_session_rank(session, index), doing, whose);
}
