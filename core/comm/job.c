// SPDX-License-Identifier: Apache-2.0
// Jobs: the processes of a program that communicate without a model. A job is a cluster of
// processes that are apart, with the communicators that end when one of their members is lost.
#include "core/comm/messages.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/plain_locale.h"
#include "core/base/shared_memory.h"
#include "core/base/threads.h"
#include "core/cluster/cluster.h"
#include "core/base/sizes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCOPE "ls_job_open"
#define TEXT_BYTES 1024
#define PAGE_BYTES 4096

// What became of a process.
struct fate {
    bool lost, left;
    char *text; // a sentence; NULL: nothing, or there was no memory for it
};

struct ls_job {
    struct ls_cluster *cluster;
    uint32_t rank, size;
    char *plugin_path, *network;
    uint64_t forks;
    pthread_mutex_t lock; // of what follows
    pthread_cond_t changed;
    struct fate *fates; // of each process
    _Atomic(const char *) lost; // the first sentence; stays
    struct ls_comm *comms; // open
};

// ---- Forks ----

static _Atomic uint64_t forks;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void note_fork(void)
{
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, note_fork);
}

uint64_t ls_fork_count(void)
{
    pthread_once(&fork_once, watch_forks);
    return atomic_load_explicit(&forks, memory_order_relaxed);
}

static enum ls_status check_forks(uint64_t opened, const char *call, const char *what)
{
    if (opened == ls_fork_count())
        return LS_OK;
    ls_error(call, "a forked process has no part in the %s of its parent: open a new one", what);
    return LS_USAGE;
}

enum ls_status ls_job_check_process(const struct ls_job *job, const char *call)
{
    return check_forks(job->forks, call, "job");
}

enum ls_status ls_comm_check_process(const struct ls_comm *comm, const char *call)
{
    return check_forks(comm->forks, call, "communicator");
}

// ---- Aborting a communicator ----

void ls_comm_messages_wake(const struct ls_comm_messages *messages)
{
    const uint64_t one = 1;
    (void)!write(messages->wake, &one, sizeof(one));
}

static void abort_messages(struct ls_comm_messages *messages)
{
    atomic_store(&messages->aborted, true);
    if (messages->endpoint)
        messages->interface->abort(messages->endpoint);
    ls_comm_messages_wake(messages);
}

static void abort_one(struct ls_comm *comm)
{
    ls_communicator_abort(comm->communicator);
    if (comm->messages)
        abort_messages(comm->messages);
}

void ls_comm_abort_because(struct ls_comm *comm, const char *why)
{
    if (!atomic_exchange(&comm->aborted, true) && comm->ranks->job)
        ls_job_tell(comm->ranks->job, comm, why);
    abort_one(comm);
}

// ---- Lost processes ----

static bool has_member(const struct ls_comm_ranks *ranks, uint32_t process)
{
    for (uint32_t i = 0; i < ranks->world; i++)
        if (ranks->members[i] == process)
            return true;
    return false;
}

// [the thread that finds out]
static void on_departure(void *context, uint32_t process, bool lost, const char *text)
{
    struct ls_job *job = context;
    pthread_mutex_lock(&job->lock);
    struct fate *fate = &job->fates[process];
    if (!fate->text)
        fate->text = strdup(text);
    fate->lost |= lost;
    fate->left |= !lost;
    if (lost && !atomic_load(&job->lost))
        atomic_store(&job->lost, fate->text ? fate->text : "a process is lost");
    for (struct ls_comm *comm = lost ? job->comms : NULL; comm; comm = comm->next_of_job)
        if (has_member(comm->ranks, process))
            abort_one(comm);
    pthread_cond_broadcast(&job->changed);
    pthread_mutex_unlock(&job->lock);
}

const char *ls_job_lost(const struct ls_job *job)
{
    return atomic_load(&job->lost);
}

void ls_job_give_up(struct ls_job *job, const char *why)
{
    char text[TEXT_BYTES];
    if (ls_job_check_process(job, "ls_job_give_up"))
        return;
    ls_cluster_give_up(job->cluster, why);
    snprintf(text, sizeof(text), "this process gave up: %s", why);
    on_departure(job, job->rank, true, text);
}

static const struct fate *find_lost(const struct ls_job *job, const struct ls_comm_ranks *ranks)
{
    for (uint32_t i = 0; i < ranks->world; i++)
        if (job->fates[ranks->members[i]].lost)
            return &job->fates[ranks->members[i]];
    return NULL;
}

static const struct fate *find_left(const struct ls_job *job, const struct ls_comm_ranks *ranks)
{
    for (uint32_t i = 0; i < ranks->world; i++)
        if (job->fates[ranks->members[i]].left)
            return &job->fates[ranks->members[i]];
    return NULL;
}

// Under the lock.
static enum ls_status judge(const struct ls_job *job, const struct ls_comm *comm, bool left,
                            const char **out)
{
    const struct fate *fate = find_lost(job, comm->ranks);
    if (!fate && comm->reason) {
        *out = comm->reason;
        return LS_ABORTED;
    }
    if (!fate && left)
        fate = find_left(job, comm->ranks);
    if (fate)
        *out = fate->text ? fate->text : "a process is lost";
    return fate ? LS_PEER_LOST : LS_OK;
}

enum ls_status ls_job_verdict(struct ls_job *job, const struct ls_comm *comm, uint64_t patience_ns,
                              bool left, char *text, size_t bytes)
{
    const uint64_t end = ls_clock_ns() + patience_ns;
    const char *why = "";
    pthread_mutex_lock(&job->lock);
    enum ls_status status = judge(job, comm, false, &why);
    for (uint64_t now; !status && (now = ls_clock_ns()) < end;
         status = judge(job, comm, false, &why))
        ls_condition_wait(&job->changed, &job->lock, end - now);
    if (!status)
        status = judge(job, comm, left, &why);
    snprintf(text, bytes, "%s", why);
    pthread_mutex_unlock(&job->lock);
    return status;
}

// What members tell each other about a communicator is a line of the log, or this:
#define QUESTION "calls?"
#define ANSWER "calls: "
#define ANSWER_NS UINT64_C(1000000000) // a process that runs answers at once

static bool all_have_answered(const struct ls_comm *comm)
{
    for (uint32_t i = 0; i < comm->ranks->world; i++)
        if (i != comm->rank && comm->answers[i] == UINT64_MAX)
            return false;
    return true;
}

void ls_job_ask(void *context, uint64_t *begun)
{
    struct ls_comm *comm = context;
    const struct ls_comm_ranks *ranks = comm->ranks;
    struct ls_job *job = ranks->job;
    pthread_mutex_lock(&job->lock);
    comm->answers = begun;
    pthread_mutex_unlock(&job->lock);
    ls_cluster_tell(job->cluster, ranks->name, ranks->members, ranks->world, QUESTION);
    const uint64_t end = ls_clock_ns() + ANSWER_NS;
    pthread_mutex_lock(&job->lock);
    for (uint64_t now;
         !all_have_answered(comm) && !find_lost(job, ranks) && (now = ls_clock_ns()) < end;)
        ls_condition_wait(&job->changed, &job->lock, end - now);
    comm->answers = NULL;
    pthread_mutex_unlock(&job->lock);
}

// The communicator of this name; NULL: it is not open here. Under the lock.
static struct ls_comm *find_comm(const struct ls_job *job, const char *name)
{
    struct ls_comm *comm = job->comms;
    while (comm && strcmp(comm->ranks->name, name) != 0)
        comm = comm->next_of_job;
    return comm;
}

static void answer(struct ls_job *job, uint32_t process, const char *name)
{
    char text[48] = "";
    pthread_mutex_lock(&job->lock);
    const struct ls_comm *comm = find_comm(job, name);
    if (comm && comm->communicator)
        snprintf(text, sizeof(text), ANSWER "%" PRIu64, ls_communicator_begun(comm->communicator));
    pthread_mutex_unlock(&job->lock);
    if (*text) // not under the lock, as the cluster has its own
        ls_cluster_tell(job->cluster, name, &process, 1, text);
}

static void take_answer(struct ls_job *job, uint32_t process, const char *name, const char *text)
{
    pthread_mutex_lock(&job->lock);
    const struct ls_comm *comm = find_comm(job, name);
    for (uint32_t i = 0; comm && comm->answers && i < comm->ranks->world; i++)
        if (comm->ranks->members[i] == process)
            comm->answers[i] = strtoull(text, NULL, 10);
    pthread_cond_broadcast(&job->changed);
    pthread_mutex_unlock(&job->lock);
}

#define PREFIX "lockstep: error: "

void ls_job_tell(struct ls_job *job, const struct ls_comm *comm, const char *line)
{
    const struct ls_comm_ranks *ranks = comm->ranks;
    if (strncmp(line, PREFIX, strlen(PREFIX)) == 0)
        line += strlen(PREFIX);
    ls_cluster_tell(job->cluster, ranks->name, ranks->members, ranks->world, line);
}

// Another process has ended a communicator, or asks or answers. [the cluster's thread]
static void on_news(void *context, uint32_t process, const char *key, const char *text)
{
    struct ls_job *job = context;
    char reason[TEXT_BYTES];
    if (strcmp(text, QUESTION) == 0) {
        answer(job, process, key);
        return;
    }
    if (strncmp(text, ANSWER, strlen(ANSWER)) == 0) {
        take_answer(job, process, key, text + strlen(ANSWER));
        return;
    }
    snprintf(reason, sizeof(reason), "process %u has ended it: %s", process, text);
    pthread_mutex_lock(&job->lock);
    for (struct ls_comm *comm = job->comms; comm; comm = comm->next_of_job) {
        if (strcmp(comm->ranks->name, key) != 0 || comm->reason)
            continue;
        comm->reason = strdup(reason);
        abort_one(comm);
    }
    pthread_cond_broadcast(&job->changed);
    pthread_mutex_unlock(&job->lock);
}

void ls_job_add(struct ls_job *job, struct ls_comm *comm)
{
    pthread_mutex_lock(&job->lock);
    comm->next_of_job = job->comms;
    job->comms = comm;
    if (find_lost(job, comm->ranks))
        abort_one(comm);
    pthread_mutex_unlock(&job->lock);
}

void ls_job_remove(struct ls_job *job, const struct ls_comm *comm)
{
    pthread_mutex_lock(&job->lock);
    struct ls_comm **link = &job->comms;
    while (*link && *link != comm)
        link = &(*link)->next_of_job;
    if (*link)
        *link = comm->next_of_job;
    pthread_mutex_unlock(&job->lock);
}

// ---- Opening and closing ----

static bool is_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "::1") == 0;
}

// "host:port", "[::1]:port".
static enum ls_status read_address(const char *text, struct ls_worker_place *place)
{
    const char *colon = strrchr(text, ':'), *host = text;
    char *end = NULL;
    const unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;
    size_t length = colon ? (size_t)(colon - text) : 0;
    if (length > 2 && host[0] == '[' && host[length - 1] == ']') {
        host++;
        length -= 2;
    }
    if (!colon || !length || length >= sizeof(place->address) || !colon[1] || *end || port == 0 ||
        port > UINT16_MAX) {
        ls_error(SCOPE, "address '%s'; expected host:port, where process 0 is reached", text);
        return LS_USAGE;
    }
    memcpy(place->address, host, length);
    place->address[length] = '\0';
    place->port = (uint16_t)port;
    return LS_OK;
}

static enum ls_status check_seconds(const char *what, double seconds)
{
    if (seconds >= 0 && seconds <= 1e6)
        return LS_OK;
    ls_error(SCOPE, "%s is %g: expected seconds, 0 to 1000000", what, seconds);
    return LS_USAGE;
}

static enum ls_status read_place(const struct ls_job_options *options,
                                 struct ls_worker_place *place)
{
    *place = (struct ls_worker_place){.resolver = "the program",
                                      .role = LS_ROLE_WORKER,
                                      .number = options->rank,
                                      .workers = options->size,
                                      .listen_fd = -1};
    snprintf(place->taken, sizeof(place->taken), "rank %u of %u", options->rank, options->size);
    if (options->size == 0 || options->rank >= options->size) {
        ls_error(SCOPE, "rank %u of %u: ranks begin at 0", options->rank, options->size);
        return LS_USAGE;
    }
    if (!options->address && options->size > 1) {
        ls_error(SCOPE, "%u processes need the address of process 0: host:port", options->size);
        return LS_USAGE;
    }
    enum ls_status status = options->address ? read_address(options->address, place) : LS_OK;
    if (!status)
        status = check_seconds("join_seconds", options->join_seconds);
    if (!status)
        status = check_seconds("deadline_seconds", options->deadline_seconds);
    if (!status)
        status = check_seconds("lost_after_seconds", options->lost_after_seconds);
    if (status || options->size == 1)
        return status;
    place->reached_from_outside = !is_loopback(place->address);
    if (place->reached_from_outside && !options->secret && !options->insecure) {
        ls_error(SCOPE,
                 "other machines reach %s: give all processes the same `secret`, of 16 letters or "
                 "more, or set `insecure`",
                 options->address);
        return LS_USAGE;
    }
    return LS_OK;
}

// Takes the listener.
static enum ls_status join(const struct ls_job_options *options, struct ls_job *job)
{
    struct ls_worker_place place;
    char size[16];
    const enum ls_status status = read_place(options, &place);
    const bool listens = options->listen_fd > 0 && options->rank == 0;
    if (status || options->size == 1) {
        if (listens)
            close(options->listen_fd);
        return status ? status : ls_cluster_open_alone(1, &job->cluster);
    }
    place.listen_fd = listens ? options->listen_fd : -1;
    snprintf(size, sizeof(size), "%u", options->size);
    const struct ls_agreement agreement[] = {{"the version of Lockstep", LS_VERSION},
                                             {"the kind of job", "processes of a program"},
                                             {"the number of processes", size}};
    const struct ls_cluster_options cluster = {
        .place = &place,
        .count = 1,
        .join_deadline_ns = (uint64_t)(options->join_seconds * 1e9),
        .deadline_ns = (uint64_t)(options->deadline_seconds * 1e9),
        .silence_ns = (uint64_t)(options->lost_after_seconds * 1e9),
        .secret = options->secret,
        .insecure = options->insecure,
        .agreement = agreement,
        .agreements = sizeof(agreement) / sizeof(agreement[0]),
        .context = job,
        .departed = on_departure,
        .told = on_news,
    };
    return ls_cluster_join(&cluster, &job->cluster);
}

static void destroy(struct ls_job *job)
{
    ls_cluster_close(job->cluster);
    for (uint32_t i = 0; job->fates && i < job->size; i++)
        free(job->fates[i].text);
    free(job->fates);
    free(job->plugin_path);
    free(job->network);
    pthread_mutex_destroy(&job->lock);
    pthread_cond_destroy(&job->changed);
    free(job);
}

static enum ls_status copy_text(const char *text, char **out)
{
    *out = text ? strdup(text) : NULL;
    return text && !*out ? LS_OUT_OF_MEMORY : LS_OK;
}

static enum ls_status open_job(const struct ls_job_options *options, struct ls_job **out)
{
    struct ls_job *job = calloc(1, sizeof(*job));
    if (!job)
        return LS_OUT_OF_MEMORY;
    pthread_mutex_init(&job->lock, NULL);
    ls_condition_init(&job->changed);
    job->rank = options->rank;
    job->size = options->size;
    job->forks = ls_fork_count();
    job->fates = calloc(options->size + 1, sizeof(*job->fates));
    enum ls_status status = job->fates ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        status = copy_text(options->plugin_path, &job->plugin_path);
    if (!status)
        status = copy_text(options->insecure ? "insecure" : options->network, &job->network);
    if (!status)
        status = join(options, job);
    if (!status && job->size > 1)
        (void)!ls_segment_open(); // without it the transport copies
    if (status)
        destroy(job);
    else
        *out = job;
    return status;
}

enum ls_status ls_job_open_sized(const struct ls_job_options *options, size_t bytes,
                                 struct ls_job **out)
{
    LS_PLAIN_LOCALE;
    const uint64_t errors = ls_log_errors();
    struct ls_job_options ours;
    enum ls_status status =
        ls_take_options("struct ls_job_options", options, bytes, &ours, sizeof(ours));
    if (!status)
        status = open_job(&ours, out);
    if (status && ls_log_errors() == errors)
        ls_error(SCOPE, "%s", ls_status_text(status));
    return status;
}

enum ls_status ls_job_allocate(struct ls_job *job, uint64_t bytes, void **out)
{
    void *memory = job && bytes <= SIZE_MAX ? ls_segment_allocate(bytes, PAGE_BYTES) : NULL;
    if (memory) {
        *out = memory;
        return LS_OK;
    }
    if (!job) {
        ls_error("ls_job_allocate", "expected a job, got NULL");
        return LS_USAGE;
    }
    ls_error("ls_job_allocate", "no memory for %llu bytes", (unsigned long long)bytes);
    return LS_OUT_OF_MEMORY;
}

void ls_job_free(void *memory)
{
    ls_segment_free(memory);
}

void ls_job_close(struct ls_job *job)
{
    if (job && job->forks == ls_fork_count())
        destroy(job);
}

// ---- For communicators ----

uint32_t ls_job_rank(const struct ls_job *job)
{
    return job->rank;
}

uint32_t ls_job_size(const struct ls_job *job)
{
    return job->size;
}

const char *ls_job_plugin_path(const struct ls_job *job)
{
    return job->plugin_path;
}

const char *ls_job_network(const struct ls_job *job)
{
    return job->network;
}

uint32_t ls_job_host(const struct ls_job *job, uint32_t process)
{
    return ls_cluster_hosts(job->cluster)[process];
}

int32_t ls_job_exchange(void *context, const void *own, uint64_t bytes, void *all)
{
    struct ls_comm_ranks *ranks = context;
    char key[256];
    snprintf(key, sizeof(key), "communicator %s, exchange %u", ranks->name, ranks->meetings++);
    const struct ls_meeting meeting = {.key = key,
                                       .members = ranks->members,
                                       .count = ranks->world,
                                       .deadline_ns = ranks->deadline_ns};
    return (int32_t)ls_cluster_meet(ranks->job->cluster, &meeting, own, bytes, all);
}
