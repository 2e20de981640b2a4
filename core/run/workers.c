// SPDX-License-Identifier: Apache-2.0
// Several workers: how a run joins them, what they agree on, and what happens when one is lost.
#include "core/run/run.h"

#include "core/base/clock.h"
#include "core/base/libraries.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/data/data.h"
#include "core/plugin/device.h"
#include "core/strategy/driver.h"
#include "core/wire/secret.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SCOPE "cluster"
#define VERDICT_NS UINT64_C(1000000000) // for the news to arrive

void ls_workers_init(struct ls_run *run)
{
    pthread_mutex_init(&run->workers.watch_lock, NULL);
    run->workers.place.workers = 1;
}

// ---- Joining ----

// Workers with servers of their own do not join: each trains with what the servers have, and may come
// and go.
static enum ls_status train_with_servers(struct ls_run *run, const struct ls_run_options *options)
{
    run->workers.served = run->workers.place;
    run->workers.place = (struct ls_worker_place){
        .resolver = run->workers.served.resolver, .workers = 1, .listen_fd = -1};
    if (options->elastic) {
        ls_error("--elastic",
                 "'%s': workers with server processes come and go as they are; leave it out",
                 options->elastic);
        return LS_USAGE;
    }
    if (options->share) {
        ls_error("--share",
                 "'%s': workers with server processes train each for itself, and a slow one makes "
                 "fewer steps as it is; leave it out",
                 options->share);
        return LS_USAGE;
    }
    const enum ls_status status = ls_secret_find(
        getenv("LOCKSTEP_SECRET"), getenv("LOCKSTEP_SECRET_FILE"), &run->workers.secret);
    run->workers.channels = (struct ls_channels_options){.place = &run->workers.served,
                                                         .secret = run->workers.secret,
                                                         .insecure = options->insecure,
                                                         .interrupted = &run->interrupted};
    return status;
}

enum ls_status ls_workers_resolve(struct ls_run *run, const struct ls_run_options *options)
{
    const struct ls_environment environment = ls_environment_of_process();
    const enum ls_status status = ls_worker_place_resolve(
        options->cluster ? options->cluster : "auto", &environment, &run->workers.place);
    if (!status && *run->workers.place.ignored)
        ls_warn(SCOPE, "%s: incomplete, and not used", run->workers.place.ignored);
    return status || !run->workers.place.servers ? status : train_with_servers(run, options);
}

// A worker is lost: replicas that wait for it, or for those that do, must not.
// [the thread that finds out]
static void on_lost(void *context, const char *text)
{
    struct ls_run *run = context;
    (void)text;
    pthread_mutex_lock(&run->workers.watch_lock);
    run->workers.peer_lost = true;
    for (struct ls_loss_watch *each = run->workers.watches; each; each = each->next)
        each->lost(each->context);
    pthread_mutex_unlock(&run->workers.watch_lock);
}

static const char *or_default(const char *text)
{
    return text ? text : "(default)";
}

// Every worker's name of its machine, for the report.
static enum ls_status exchange_hosts(struct ls_run *run)
{
    char name[LS_WORKER_HOST_BYTES] = "";
    free(run->workers.hosts);
    run->workers.hosts = calloc(ls_cluster_workers(run->workers.cluster), sizeof(name));
    if (!run->workers.hosts)
        return LS_OUT_OF_MEMORY;
    if (gethostname(name, sizeof(name) - 1))
        snprintf(name, sizeof(name), "unknown");
    return ls_cluster_gather_workers(run->workers.cluster, name, sizeof(name), run->workers.hosts);
}

static atomic_bool joined; // whether a run of this process has

enum ls_status ls_workers_stay_alone(struct ls_run *run)
{
    return ls_cluster_open_alone(1, &run->workers.cluster);
}

void ls_workers_note_served(struct ls_run *run)
{
    run->workers.served.listen_fd = -1;
}

void ls_workers_leave(struct ls_run *run)
{
    struct ls_workers *workers = &run->workers;
    ls_cluster_close(workers->cluster);
    workers->cluster = NULL;
    if (workers->joined)
        atomic_store(&joined, false);
    workers->joined = false;
    free(workers->hosts);
    if (workers->served.servers && workers->served.listen_fd >= 0)
        close(workers->served.listen_fd);
    ls_secret_free(workers->secret);
    pthread_mutex_destroy(&workers->watch_lock);
}

static const struct ls_device_choices *choices_of(const struct ls_run *run)
{
    return ((const struct ls_device_interface *)run->device->interface)->choices;
}

// NULL: none depend on anything but what is asked.
static const char *choices_depend(const struct ls_run *run)
{
    const struct ls_device_choices *choices = choices_of(run);
    return choices ? choices->depend(run->device->host) : NULL;
}

enum ls_status ls_workers_join(struct ls_run *run, const struct ls_run_options *options,
                               uint32_t replicas)
{
    char seed[24], hardware[128], device[80], shards[24], threads[24];
    char libraries[128] = "(any)", *secret = NULL;
    // Replicas update their parameters each by itself: another instruction set rounds otherwise.
    const char *arithmetic = strrchr(run->hardware, '(');
    const char *choices = choices_depend(run);
    snprintf(seed, sizeof(seed), "%" PRIu64, options->seed);
    snprintf(hardware, sizeof(hardware), "%s", arithmetic ? arithmetic : run->hardware);
    snprintf(device, sizeof(device), "%s%s", run->device->plugin->name,
             run->by_default ? " by default" : ""); // of which the workers tell each other more
    snprintf(shards, sizeof(shards), run->shards ? "%u" : "(none)", run->shards);
    if (run->shards)
        ls_libraries_text(libraries, sizeof(libraries));
    snprintf(threads, sizeof(threads), run->shards ? "%u" : "(any)", run->threads);
    const struct ls_agreement agreement[] = {
        {"the version of Lockstep", LS_VERSION},
        {"--strategy", or_default(options->strategy)},
        {"--device", device},
        {"the choices of --device", choices ? choices : "(fixed)"},
        {"the instruction set (ONEDNN_MAX_CPU_ISA lowers it)", hardware},
        {"--seed", seed},
        {"--wire", or_default(options->wire)},
        {"--compress", options->compress ? options->compress : "(none)"},
        {"--topology", run->topology.says},
        {"--precision", or_default(options->precision)},
        {"--share", options->share ? options->share : "(none)"},
        {"--elastic", options->elastic ? options->elastic : "(none)"},
        {"--reproducible", shards},
        {"--threads (with --reproducible)", threads},
        {"the libraries that compute (with --reproducible)", libraries},
    };
    struct ls_cluster_options join = {
        .place = &run->workers.place,
        .count = replicas,
        .join_deadline_ns = (uint64_t)(options->join_seconds * 1e9),
        .deadline_ns = run->deadline_ns,
        .silence_ns = run->silence_ns,
        .insecure = options->insecure,
        .agreement = agreement,
        .agreements = sizeof(agreement) / sizeof(agreement[0]),
        .least_workers = run->least_workers,
        .most_workers = run->most_workers,
        .interrupted = &run->interrupted,
        .lost = on_lost,
        .context = run,
    };
    // A launcher gives a process one place, for one run at a time.
    enum ls_status status = LS_OK;
    if (run->workers.place.workers > 1 && atomic_exchange(&joined, true)) {
        ls_error(SCOPE,
                 "another run of this process has joined the workers; close it first, or open "
                 "this one with cluster \"none\"");
        return LS_USAGE;
    }
    run->workers.joined = run->workers.place.workers > 1;
    if (run->workers.joined)
        status = ls_secret_find(getenv("LOCKSTEP_SECRET"), getenv("LOCKSTEP_SECRET_FILE"), &secret);
    join.secret = secret;
    if (!status)
        status = ls_cluster_join(&join, &run->workers.cluster);
    ls_secret_free(secret);
    if (status)
        return status;
    run->workers.met = ls_cluster_generation(run->workers.cluster) == 0;
    status = exchange_hosts(run);
    if (status)
        return status;
    run->workers.exchange = (struct ls_cluster_endpoints){
        .cluster = run->workers.cluster, .world = ls_cluster_world(run->workers.cluster)};
    if (ls_cluster_workers(run->workers.cluster) > 1 &&
        ls_cluster_worker(run->workers.cluster) == 0 && run->progress)
        ls_info(SCOPE, "%s", ls_cluster_about(run->workers.cluster));
    return LS_OK;
}

enum ls_status ls_workers_reform(struct ls_run *run, struct ls_cluster_change *change)
{
    enum ls_status status = ls_cluster_reform(run->workers.cluster, 0, change);
    run->workers.unformed = status == LS_INTERRUPTED;
    pthread_mutex_lock(&run->workers.watch_lock);
    run->workers.peer_lost = ls_cluster_check(run->workers.cluster, NULL) != LS_OK;
    pthread_mutex_unlock(&run->workers.watch_lock);
    run->workers.exchange.world = ls_cluster_world(run->workers.cluster);
    run->drivers_opened = 0;
    return status;
}

enum ls_status ls_workers_meet(struct ls_run *run)
{
    return exchange_hosts(run);
}

void ls_workers_note_met(struct ls_run *run)
{
    run->workers.met = true;
}

// ---- Data ----

// Workers on this host, which open the same data when this one does.
static uint32_t count_host_workers(const struct ls_run *run)
{
    const uint32_t *hosts = ls_cluster_hosts(run->workers.cluster);
    const uint32_t *workers = ls_cluster_rank_workers(run->workers.cluster);
    const uint32_t own = hosts[ls_cluster_first_rank(run->workers.cluster)];
    uint32_t count = 0;
    for (uint32_t i = 0; i < ls_cluster_world(run->workers.cluster); i++)
        count += hosts[i] == own && (i == 0 || workers[i] != workers[i - 1]);
    return count > run->workers.served.local_workers ? count : run->workers.served.local_workers;
}

// Where the workers meet tells the jobs of a host apart.
enum ls_status ls_workers_open_data(struct ls_run *run, const char *text, const char *split,
                                    struct ls_data **out)
{
    const struct ls_worker_place *place =
        run->workers.served.servers ? &run->workers.served : &run->workers.place;
    char job[sizeof(place->address) + sizeof(place->job) + 32];
    snprintf(job, sizeof(job), "%s:%u %s %u", place->address, place->port, place->job,
             place->restart);
    const struct ls_data_sharing sharing = {
        .loader = run->loader, .job = job, .processes = count_host_workers(run)};
    return ls_open_data(&sharing, text, split, out);
}

// ---- Agreeing ----

struct compared {
    uint64_t key;
    char value[sizeof((struct ls_worker_item){0}.value)];
};

static bool is_same(const struct compared *one, const struct compared *other)
{
    return one->key || other->key ? one->key == other->key
                                  : strncmp(one->value, other->value, sizeof(one->value)) == 0;
}

static enum ls_status compare_item(struct ls_run *run, const struct ls_worker_item *item)
{
    const uint32_t workers = ls_cluster_workers(run->workers.cluster);
    struct compared mine = {.key = item->key}, *all = malloc(workers * sizeof(*all));
    if (!all)
        return LS_OUT_OF_MEMORY;
    memcpy(mine.value, item->value, sizeof(mine.value));
    enum ls_status status =
        ls_cluster_gather_workers(run->workers.cluster, &mine, sizeof(mine), all);
    for (uint32_t i = 1; !status && i < workers; i++)
        if (!is_same(&all[0], &all[i])) {
            ls_error(SCOPE, "worker %u has %s %.239s, but worker 0 has %.239s%s", i, item->name,
                     all[i].value, all[0].value, item->remedy ? item->remedy : "");
            status = LS_USAGE;
        }
    free(all);
    return status;
}

enum ls_status ls_workers_agree(struct ls_run *run, const struct ls_worker_item *items,
                                uint32_t count)
{
    const uint32_t workers = ls_cluster_workers(run->workers.cluster);
    if (workers == 1)
        return LS_OK;
    uint64_t mine = 0, *all = malloc(workers * sizeof(*all));
    if (!all)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < count; i++)
        mine = items[i].key ? ls_random_key(mine, items[i].key)
                            : ls_random_key_text(mine, items[i].value);
    enum ls_status status =
        ls_cluster_gather_workers(run->workers.cluster, &mine, sizeof(mine), all);
    bool same = true;
    for (uint32_t i = 1; !status && i < workers; i++)
        same = same && all[i] == all[0];
    free(all);
    for (uint32_t i = 0; !status && !same && i < count; i++)
        status = compare_item(run, &items[i]);
    if (status == LS_USAGE && ls_cluster_generation(run->workers.cluster) == 0)
        atomic_store(&run->workers.gave_up, true); // all workers know why, and end with it
    return status;
}

enum ls_status ls_workers_agree_on_tuning(struct ls_run *run, const struct ls_tuning *tuning)
{
    struct ls_worker_item item = {.name = tuning->table ? "the table of auto"
                                                        : "the candidates of auto"};
    ls_tuning_describe(tuning, item.value, sizeof(item.value));
    return ls_workers_agree(run, &item, 1);
}

bool ls_workers_share_choices(const struct ls_run *run)
{
    return ls_cluster_workers(run->workers.cluster) > 1 && !run->most_workers &&
           choices_depend(run);
}

#define MOST_CHOICES (UINT64_C(1) << 30) // bytes

// All that worker 0's device has chosen. Its replicas rest, so nothing is added meanwhile.
static enum ls_status give_choices(const struct ls_run *run, void **out, uint64_t *bytes)
{
    const struct ls_device_choices *choices = choices_of(run);
    uint64_t needed = 0;
    int32_t status = choices->give(run->device->host, NULL, 0, bytes);
    if (status)
        return (enum ls_status)status;
    *out = *bytes <= MOST_CHOICES ? malloc(*bytes + 1) : NULL;
    if (!*out)
        return LS_OUT_OF_MEMORY;
    status = choices->give(run->device->host, *out, *bytes, &needed);
    if (status || needed == *bytes)
        return (enum ls_status)status;
    ls_error(run->device->plugin->name,
             "it gives %" PRIu64 " bytes of choices after it said %" PRIu64, needed, *bytes);
    return LS_FAILED;
}

// The first wait for worker 0 while it chooses; lost after the deadline, it may be choosing yet.
static enum ls_status await_choices(const struct ls_run *run, uint64_t *bytes)
{
    const uint64_t begin = ls_clock_ns();
    const enum ls_status status =
        ls_cluster_broadcast(run->workers.cluster, bytes, sizeof(*bytes), 0);
    if (status == LS_PEER_LOST && ls_clock_ns() - begin >= run->deadline_ns)
        ls_error(run->device->plugin->name,
                 "worker 0 chooses kernels for all workers (%s), which took longer than "
                 "--deadline=%g; raise it, or keep the choices in a file (plans=FILE of cuda)",
                 choices_depend(run), (double)run->deadline_ns * 1e-9);
    return status;
}

enum ls_status ls_workers_hand_choices(struct ls_run *run)
{
    struct ls_cluster *cluster = run->workers.cluster;
    const bool chief = ls_cluster_worker(cluster) == 0;
    void *choices = NULL;
    uint64_t bytes = 0;
    enum ls_status status = chief ? give_choices(run, &choices, &bytes) : LS_OK;
    if (!status)
        status = await_choices(run, &bytes);
    if (!status && !chief)
        choices = malloc(bytes + 1);
    if (!status && !choices)
        status = LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_cluster_broadcast(cluster, choices, bytes, 0);
    if (!status && !chief)
        status = (enum ls_status)choices_of(run)->take(run->device->host, choices, bytes);
    free(choices);
    return status;
}

// What each worker has a folder or a file of its own for.
static bool is_own_place(const char *option, size_t length)
{
    static const char *const names[] = {"dir=", "cache="};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (length == strlen(names[i]) && strncmp(option, names[i], length) == 0)
            return true;
    return false;
}

// "csv:file=/data/a.csv+/data/b.csv,label=y" is "csv:file=a.csv+b.csv,label=y": files may be in
// another folder on each host. Generators have a number, which may be another one in each process.
static void describe_data(const struct ls_data *data, char *out, size_t room)
{
    const char *text = strcmp(data->name, "generator") == 0 ? data->name : data->text;
    size_t used = 0, option = 0, part = 0; // where the option and the name at hand begin in `out`
    for (; *text && used + 1 < room; text++) {
        if (*text == '/') {
            used = part;
            continue;
        }
        out[used++] = *text;
        if (strchr(":,=+", *text))
            part = used;
        if (*text == '=' && is_own_place(out + option, used - option))
            text += strcspn(text + 1, ",");
        if (strchr(":,", *text))
            option = used;
    }
    out[used] = '\0';
}

// Arrays of the program, whose contents are known from the beginning. Nobody else's are.
static bool is_memory(const struct ls_data *data)
{
    return strcmp(data->name, "memory") == 0;
}

static void describe_arrays(const struct ls_data *data, struct ls_worker_item *item)
{
    const struct ls_field *x =
        ls_field_find(data->info.fields, data->info.field_count, LS_FIELD_INPUT, 0);
    int used = snprintf(item->value, sizeof(item->value), "arrays of shape (%llu",
                        (unsigned long long)ls_data_count(data));
    for (uint32_t i = 0; x && i < x->ndims; i++)
        used += snprintf(item->value + used, sizeof(item->value) - (size_t)used, ", %lld",
                         (long long)x->dims[i]);
    snprintf(item->value + used, sizeof(item->value) - (size_t)used, ") with contents %016llx",
             (unsigned long long)data->dataset->contents);
    item->key = ls_random_key(ls_data_count(data), data->dataset->contents);
    item->remedy = "; load the same on all workers, or seed the numbers: Lockstep shares them out";
}

void ls_workers_describe_data(const struct ls_data *data, const char *name,
                              struct ls_worker_item *item)
{
    static const char *const splits[] = {
        [LS_TRAIN] = "train", [LS_TEST] = "test", [LS_VALIDATION] = "validation"};
    char text[161];
    *item = (struct ls_worker_item){.name = name, .key = 1, .value = "(none)"};
    if (!data)
        return;
    if (is_memory(data)) {
        describe_arrays(data, item);
        return;
    }
    describe_data(data, text, sizeof(text));
    snprintf(item->value, sizeof(item->value), "%s (%llu examples of split %s)", text,
             (unsigned long long)ls_data_count(data), splits[data->split]);
    item->key = ls_random_key(ls_data_count(data), 0);
}

enum ls_status ls_workers_agree_on_examples(struct ls_run *run, struct ls_data *data,
                                            const char *option)
{
    struct ls_worker_item item = {.name = option};
    char text[161];
    // The others do not ask a new worker: it compares its data with the state that it is given.
    if (ls_cluster_workers(run->workers.cluster) == 1 ||
        ls_cluster_generation(run->workers.cluster) || is_memory(data))
        return LS_OK;
    const enum ls_status status = ls_data_contents(data, &item.key);
    describe_data(data, text, sizeof(text));
    snprintf(item.value, sizeof(item.value), "%s, whose examples are %016llx", text,
             (unsigned long long)item.key);
    return status ? status : ls_workers_agree(run, &item, 1);
}

enum ls_status ls_workers_refuse(struct ls_run *run, uint32_t worker, const char *what)
{
    ls_error(SCOPE, "worker %u has %s", worker, what);
    atomic_store(&run->workers.gave_up, true);
    return LS_USAGE;
}

// A callback on one worker alone would let the replicas drift apart.
static enum ls_status compare_settings(struct ls_run *run, const struct ls_worker_word *all,
                                       uint32_t workers)
{
    char text[160];
    for (uint32_t i = 1; i < workers; i++) {
        if (memcmp(&all[i].learning_rate, &all[0].learning_rate, sizeof(double)) != 0) {
            snprintf(text, sizeof(text),
                     "the learning rate %.9g, but worker 0 has %.9g: a callback that sets it must "
                     "do so on all workers",
                     all[i].learning_rate, all[0].learning_rate);
            return ls_workers_refuse(run, i, text);
        }
        if (all[i].set_key != all[0].set_key)
            return ls_workers_refuse(run, i,
                                     "set other variables, or to other values, than worker "
                                     "0: a callback that sets them must do so on all "
                                     "workers");
    }
    return LS_OK;
}

enum ls_status ls_workers_combine(struct ls_run *run, struct ls_worker_word *word)
{
    const uint32_t workers = ls_cluster_workers(run->workers.cluster);
    struct ls_worker_word *all = calloc(workers, sizeof(*all));
    if (!all)
        return LS_OUT_OF_MEMORY;
    enum ls_status status =
        ls_cluster_gather_workers(run->workers.cluster, word, sizeof(*word), all);
    for (uint32_t i = 0; !status && i < workers; i++) {
        if (all[i].most_steps < word->most_steps)
            word->most_steps = all[i].most_steps;
        word->stops |= all[i].stops;
        word->interrupted |= all[i].interrupted;
        word->reforms |= all[i].reforms;
        if (all[i].signal > word->signal)
            word->signal = all[i].signal;
    }
    if (!status)
        status = compare_settings(run, all, workers);
    free(all);
    return status;
}

enum ls_status ls_workers_add(struct ls_run *run, double *values, uint64_t count)
{
    const uint32_t workers = ls_cluster_workers(run->workers.cluster);
    if (workers == 1 || count == 0)
        return LS_OK;
    double *all = malloc(workers * count * sizeof(*all));
    if (!all)
        return LS_OUT_OF_MEMORY;
    const enum ls_status status =
        ls_cluster_gather_workers(run->workers.cluster, values, count * sizeof(*values), all);
    for (uint64_t i = 0; !status && i < count; i++) {
        values[i] = 0;
        for (uint32_t k = 0; k < workers; k++)
            values[i] += all[k * count + i];
    }
    free(all);
    return status;
}

// What a worker's replicas compute in each batch, one batch's after the other's, is one block.
struct blocks {
    const struct ls_worker_shares *shares;
    uint32_t first, ranks; // of the worker
    float *block;
    uint64_t used; // elements
    enum { COUNT, TAKE, GIVE } what; // GIVE: from the block to the values
};

static void walk(struct blocks *blocks)
{
    const struct ls_worker_shares *shares = blocks->shares;
    blocks->used = 0;
    for (uint64_t at = 0; at < shares->count; at += shares->batch) {
        const uint64_t left = shares->count - at,
                       batch = left < shares->batch ? left : shares->batch;
        uint64_t offset = 0, own = 0;
        for (uint32_t i = 0; i < blocks->ranks; i++) {
            uint64_t its, share;
            ls_share(&shares->division, batch, 1, blocks->first + i, &its, &share);
            offset = i ? offset : its;
            own += share;
        }
        float *values = shares->values + (at + offset) * shares->elements;
        float *block = blocks->block + blocks->used;
        const size_t bytes = own * shares->elements * sizeof(float);
        if (blocks->what == TAKE)
            memcpy(block, values, bytes);
        else if (blocks->what == GIVE)
            memcpy(values, block, bytes);
        blocks->used += own * shares->elements;
    }
}

enum ls_status ls_workers_share(struct ls_run *run, const struct ls_worker_shares *shares)
{
    const uint32_t workers = ls_cluster_workers(run->workers.cluster);
    const uint32_t *owners = ls_cluster_rank_workers(run->workers.cluster);
    if (workers == 1)
        return LS_OK;
    float *block = malloc(shares->count * shares->elements * sizeof(*block) + 1);
    if (!block)
        return LS_OUT_OF_MEMORY;
    enum ls_status status = LS_OK;
    for (uint32_t worker = 0, rank = 0; !status && worker < workers; worker++) {
        struct blocks blocks = {.shares = shares, .first = rank, .block = block};
        for (; rank < shares->division.world && owners[rank] == worker; rank++)
            blocks.ranks++;
        const bool own = worker == ls_cluster_worker(run->workers.cluster);
        blocks.what = own ? TAKE : COUNT;
        walk(&blocks);
        status =
            ls_cluster_broadcast(run->workers.cluster, block, blocks.used * sizeof(*block), worker);
        blocks.what = GIVE;
        if (!status && !own)
            walk(&blocks);
    }
    free(block);
    return status;
}

// ---- Losing one ----

void ls_workers_watch(struct ls_run *run, struct ls_loss_watch *watch)
{
    pthread_mutex_lock(&run->workers.watch_lock);
    watch->next = run->workers.watches;
    run->workers.watches = watch;
    if (run->workers.peer_lost)
        watch->lost(watch->context);
    pthread_mutex_unlock(&run->workers.watch_lock);
}

void ls_workers_unwatch(struct ls_run *run, const struct ls_loss_watch *watch)
{
    pthread_mutex_lock(&run->workers.watch_lock);
    struct ls_loss_watch **link = &run->workers.watches;
    while (*link && *link != watch)
        link = &(*link)->next;
    if (*link)
        *link = watch->next;
    pthread_mutex_unlock(&run->workers.watch_lock);
}

// A worker that was only woken waits a little longer, to hear the reason of one that knows it.
enum ls_status ls_workers_await_verdict(struct ls_run *run, const struct ls_driver *driver,
                                        enum ls_status status)
{
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    const uint64_t silence = run->silence_ns ? run->silence_ns : LS_SILENCE_NS;
    uint32_t rank;
    const bool known = driver && ls_driver_lost(driver, &rank);
    const uint64_t end = ls_clock_ns() + silence + (known ? 1 : 2) * VERDICT_NS;
    if (ls_cluster_workers(run->workers.cluster) == 1)
        return status;
    while (!ls_cluster_check(run->workers.cluster, NULL) && ls_clock_ns() < end)
        nanosleep(&pause, NULL);
    char who[32] = "another worker";
    if (known || ls_cluster_workers(run->workers.cluster) == 2)
        snprintf(who, sizeof(who), "worker %u",
                 known ? ls_cluster_rank_workers(run->workers.cluster)[rank]
                       : 1 - ls_cluster_worker(run->workers.cluster));
    const char *what = "does not go on, although worker 0 hears of it";
    if (known)
        what = "cannot be reached from this worker, although both reach the store of worker 0";
    else if (status == LS_ABORTED)
        what = "has left the step, and has not said why";
    if (!ls_cluster_check(run->workers.cluster, NULL))
        ls_error(SCOPE, "%s %s", who, what);
    return LS_PEER_LOST;
}

void ls_workers_give_up(struct ls_run *run)
{
    if (ls_cluster_workers(run->workers.cluster) > 1 &&
        !atomic_exchange(&run->workers.gave_up, true))
        ls_cluster_give_up(run->workers.cluster, "it failed; see its log");
}
