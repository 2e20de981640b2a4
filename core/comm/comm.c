// SPDX-License-Identifier: Apache-2.0
// Opens and closes communicators without a model, between threads or between the processes of a
// job.
#include "core/base/log.h"
#include "core/base/plain_locale.h"
#include "core/base/shared_memory.h"
#include "core/base/threads.h"
#include "core/comm/comm.h"
#include "core/base/sizes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCOPE "ls_comm_open"
#define DEFAULT_DEADLINE_SECONDS 60
#define DEFAULT_COLLECTIVE "ring"
#define LOCAL_TRANSPORT "local"
#define MOST_RANKS 4096
#define NAME_MOST 200 // letters, where the name is part of keys

// "two-level:node=2", wherever its file is.
static const char *name_plugin(const struct ls_opened_plugin *opened, char *text, size_t bytes)
{
    const size_t path = opened->file ? strlen(opened->file) : 0;
    const char *options = opened->text && strlen(opened->text) > path ? opened->text + path : "";
    snprintf(text, bytes, "%s%s", opened->plugin->name, options);
    return text;
}

// ---- Opening: plugins ----

static const char *or_else(const char *text, const char *other)
{
    return text ? text : other;
}

static enum ls_status open_collective(const struct ls_comm_options *options,
                                      struct ls_comm_ranks *ranks)
{
    const enum ls_status status =
        ls_loader_open_text(ranks->loader, SCOPE, LS_KIND_COLLECTIVE,
                            or_else(options->collective, DEFAULT_COLLECTIVE), &ranks->collective);
    if (status || !ls_is_auto(ranks->collective))
        return status;
    ls_error(SCOPE, "auto chooses the collective of a training by the sizes of its buckets; name a "
                    "collective here, as ring or direct");
    return LS_USAGE;
}

// The network that the job names is for a transport that has not been told another one.
static enum ls_status open_far(const struct ls_comm_ranks *ranks,
                               const struct ls_opened_plugin **out)
{
    const char *network = ls_job_network(ranks->job);
    char text[64];
    snprintf(text, sizeof(text), "%s%s%.32s", LS_FAR_TRANSPORT, network ? ":network=" : "",
             or_else(network, ""));
    return ls_loader_open_text(ranks->loader, SCOPE, LS_KIND_TRANSPORT, text, out);
}

// By which processes share a host, as a training does.
static enum ls_status choose_transport(struct ls_comm_ranks *ranks)
{
    const enum ls_route_choice choice =
        ranks->job ? ls_route_choose(ranks->hosts, ranks->world, 1) : LS_ROUTE_PROCESS;
    if (choice == LS_ROUTE_PROCESS || choice == LS_ROUTE_HOST)
        return ls_loader_open_text(ranks->loader, SCOPE, LS_KIND_TRANSPORT,
                                   choice == LS_ROUTE_HOST && ranks->world > 1 ? LS_NEAR_TRANSPORT
                                                                               : LOCAL_TRANSPORT,
                                   &ranks->transport);
    enum ls_status status = open_far(ranks, &ranks->transport);
    if (!status && choice == LS_ROUTE_BOTH)
        status = ls_mixed_transport_open(ranks->loader, ranks->transport, &ranks->mixed);
    if (!status && choice == LS_ROUTE_BOTH)
        ranks->transport = &ranks->mixed.opened;
    return status;
}

static enum ls_status open_plugins(const struct ls_comm_options *options,
                                   struct ls_comm_ranks *ranks)
{
    const char *path = options->plugin_path;
    if (!path && ranks->job)
        path = ls_job_plugin_path(ranks->job);
    enum ls_status status = ls_loader_create(path, &ranks->loader);
    if (!status)
        status = open_collective(options, ranks);
    if (status)
        return status;
    return options->transport ? ls_loader_open_text(ranks->loader, SCOPE, LS_KIND_TRANSPORT,
                                                    options->transport, &ranks->transport)
                              : choose_transport(ranks);
}

// ---- Opening: between processes ----

// What every process says first: whether it can go on, and with what.
struct intro {
    uint32_t status; // enum ls_status
    uint32_t messages;
    char collective[160], transport[80];
};

static enum ls_status compare_intros(const struct ls_comm_ranks *ranks, const struct intro *all)
{
    for (uint32_t i = 0; i < ranks->world; i++) {
        const char *values[2] = {all[0].collective, all[i].collective};
        const char *what = "collective";
        if (all[i].status) {
            ls_error(SCOPE, "%s: process %u cannot open it; its own message says why", ranks->name,
                     ranks->members[i]);
            return LS_FAILED;
        }
        if (strcmp(values[0], values[1]) == 0) {
            what = "transport";
            values[0] = all[0].transport;
            values[1] = all[i].transport;
        }
        if (all[i].messages != all[0].messages) {
            ls_error(SCOPE,
                     "%s: process %u has messages = %u, but process %u has %u; expected the same",
                     ranks->name, ranks->members[i], all[i].messages, ranks->members[0],
                     all[0].messages);
            return LS_USAGE;
        }
        if (strcmp(values[0], values[1]) != 0) {
            ls_error(SCOPE, "%s: process %u has %s %s, but process %u has %s; expected the same",
                     ranks->name, ranks->members[i], what, values[1], ranks->members[0], values[0]);
            return LS_USAGE;
        }
    }
    return LS_OK;
}

// A process that fails before the others wait for it tells them.
static enum ls_status introduce(struct ls_comm_ranks *ranks, bool messages, enum ls_status status)
{
    struct intro own = {.status = (uint32_t)status, .messages = messages};
    struct intro *all = calloc(ranks->world, sizeof(own));
    if (!status) {
        name_plugin(ranks->collective, own.collective, sizeof(own.collective));
        name_plugin(ranks->transport, own.transport, sizeof(own.transport));
    }
    enum ls_status met =
        all ? (enum ls_status)ls_job_exchange(ranks, &own, sizeof(own), all) : LS_OUT_OF_MEMORY;
    if (!met && !status)
        met = compare_intros(ranks, all);
    free(all);
    return status ? status : met;
}

// ---- Opening: all of it ----

static enum ls_status open_communicators(struct ls_comm_ranks *ranks)
{
    struct ls_communicator **communicators = calloc(ranks->count, sizeof(*communicators));
    const struct ls_communicator_options options = {
        .collective = ranks->collective->plugin,
        .collective_host = ranks->collective->host,
        .collective_text = ranks->collective->text,
        .transport = ranks->transport->plugin,
        .transport_host = ranks->transport->host,
        .world = ranks->world,
        .first_rank = ranks->job ? ranks->comms[0]->rank : 0,
        .count = ranks->count,
        .deadline_ns = ranks->deadline_ns,
        .name = ranks->name,
        .hosts = ranks->hosts,
        .exchange = {.call = ranks->world > ranks->count ? ls_job_exchange : NULL,
                     .context = ranks},
        .ask = ranks->job ? ls_job_ask : NULL,
        .ask_context = ranks->comms[0],
    };
    const enum ls_status status =
        communicators ? ls_communicators_open(&options, communicators) : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < ranks->count; i++)
        ranks->comms[i]->communicator = communicators[i];
    free(communicators);
    return status;
}

static enum ls_status make_comms(struct ls_comm_ranks *ranks, uint32_t first_rank)
{
    ranks->comms = calloc(ranks->count, sizeof(*ranks->comms));
    for (uint32_t i = 0; ranks->comms && i < ranks->count; i++) {
        struct ls_comm *comm = calloc(1, sizeof(*comm));
        if (!comm)
            return LS_OUT_OF_MEMORY;
        comm->ranks = ranks;
        comm->rank = first_rank + i;
        comm->forks = ls_fork_count();
        atomic_store(&comm->deadline_ns, ranks->deadline_ns);
        atomic_store(&comm->users, 1);
        ls_comm_works_init(comm);
        ranks->comms[i] = comm;
    }
    return ranks->comms ? LS_OK : LS_OUT_OF_MEMORY;
}

// Which processes the ranks are, on which hosts; `rank` is this one's.
static enum ls_status take_members(const struct ls_comm_options *options,
                                   struct ls_comm_ranks *ranks, uint32_t *rank)
{
    const struct ls_job *job = options->job;
    ranks->members = calloc(ranks->world, sizeof(*ranks->members));
    ranks->hosts = calloc(ranks->world, sizeof(*ranks->hosts));
    if (!ranks->members || !ranks->hosts)
        return LS_OUT_OF_MEMORY;
    uint32_t host_count = 0;
    *rank = ranks->world;
    for (uint32_t i = 0; i < ranks->world; i++) {
        const uint32_t process = options->members ? options->members[i] : i;
        ranks->members[i] = process;
        if (process >= ls_job_size(job)) {
            ls_error(SCOPE, "%s: member %u is process %u, but the job has %u", ranks->name, i,
                     process, ls_job_size(job));
            return LS_USAGE;
        }
        uint32_t k = 0;
        while (k < i && ls_job_host(job, ranks->members[k]) != ls_job_host(job, process))
            k++;
        ranks->hosts[i] = k < i ? ranks->hosts[k] : host_count++;
        for (k = 0; k < i && ranks->members[k] != process; k++)
            ;
        if (k < i) {
            ls_error(SCOPE, "%s: process %u is twice among the members", ranks->name, process);
            return LS_USAGE;
        }
        if (process == ls_job_rank(job))
            *rank = i;
    }
    if (*rank < ranks->world)
        return LS_OK;
    ls_error(SCOPE, "%s: process %u is none of its members", ranks->name, ls_job_rank(job));
    return LS_USAGE;
}

static enum ls_status check_options(const struct ls_comm_options *options, uint32_t size,
                                    double deadline)
{
    if (size == 0 || size > MOST_RANKS) {
        ls_error(SCOPE, "a communicator of %u ranks; expected 1 to %d", size, MOST_RANKS);
        return LS_USAGE;
    }
    if (!(deadline > 0) || deadline > 1e6) {
        ls_error(SCOPE, "a deadline of %g: expected seconds, above 0 and up to 1000000", deadline);
        return LS_USAGE;
    }
    if (options->job && (!options->name || !*options->name || strlen(options->name) > NAME_MOST)) {
        ls_error(SCOPE,
                 "a communicator of a job needs a name of 1 to %d letters, which no other one has",
                 NAME_MOST);
        return LS_USAGE;
    }
    if (!options->job && (options->members || options->messages)) {
        ls_error(SCOPE, "members and messages are for the processes of a job, and there is none");
        return LS_USAGE;
    }
    return LS_OK;
}

static void destroy(struct ls_comm_ranks *ranks)
{
    for (uint32_t i = 0; ranks->comms && i < ranks->count; i++) {
        struct ls_comm *comm = ranks->comms[i];
        if (comm)
            ls_comm_messages_close(comm->messages);
        if (comm && comm->communicator) {
            ls_communicator_end(comm->communicator);
            ls_communicators_close(&comm->communicator, 1);
        }
        if (comm) {
            ls_segment_free(comm->parts);
            comm->parts = NULL;
            comm->ranks = NULL;
            ls_comm_unref(comm);
        }
    }
    ls_mixed_transport_close(&ranks->mixed);
    ls_loader_destroy(ranks->loader);
    free(ranks->comms);
    free(ranks->members);
    free(ranks->hosts);
    free(ranks->name);
    free(ranks);
}

static enum ls_status open_ranks(const struct ls_comm_options *options, struct ls_comm_ranks *ranks)
{
    uint32_t rank = 0;
    enum ls_status status = ranks->name ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status && ranks->job)
        status = take_members(options, ranks, &rank);
    if (status)
        return status;
    status = open_plugins(options, ranks);
    if (!status)
        status = make_comms(ranks, rank);
    if (ranks->world > ranks->count)
        status = introduce(ranks, options->messages, status);
    if (!status)
        status = open_communicators(ranks);
    return status || !options->messages ? status : ls_comm_messages_open(ranks->comms[0]);
}

static enum ls_status open_all(const struct ls_comm_options *options, struct ls_comm **out)
{
    const double deadline =
        options->deadline_seconds != 0 ? options->deadline_seconds : DEFAULT_DEADLINE_SECONDS;
    const uint32_t size = options->job && !options->members && !options->size
                              ? ls_job_size(options->job)
                              : options->size;
    enum ls_status status = check_options(options, size, deadline);
    if (status)
        return status;
    struct ls_comm_ranks *ranks = calloc(1, sizeof(*ranks));
    if (!ranks)
        return LS_OUT_OF_MEMORY;
    ranks->job = options->job;
    ranks->world = size;
    ranks->count = options->job ? 1 : size;
    ranks->deadline_ns = (uint64_t)(deadline * 1e9);
    atomic_store(&ranks->open, ranks->count);
    ranks->name = strdup(or_else(options->name, "communicator"));
    status = open_ranks(options, ranks);
    if (status) {
        destroy(ranks);
        return status;
    }
    if (ranks->job)
        ls_job_add(ranks->job, ranks->comms[0]);
    memcpy(out, ranks->comms, ranks->count * sizeof(*out));
    return LS_OK;
}

enum ls_status ls_comm_open_sized(const struct ls_comm_options *options, size_t bytes,
                                  struct ls_comm **out)
{
    LS_PLAIN_LOCALE;
    const uint64_t errors = ls_log_errors();
    struct ls_comm_options ours;
    enum ls_status status =
        ls_take_options("struct ls_comm_options", options, bytes, &ours, sizeof(ours));
    if (!status && ours.job)
        status = ls_job_check_process(ours.job, SCOPE);
    if (!status)
        status = open_all(&ours, out);
    if (status && ls_log_errors() == errors)
        ls_error(SCOPE, "%s", ls_status_text(status));
    return status;
}

// ---- Closing ----

// The last one closes all: others may still be in a call to which this rank has given its part.
void ls_comm_close(struct ls_comm *comm)
{
    LS_PLAIN_LOCALE;
    if (!comm || comm->forks != ls_fork_count())
        return;
    struct ls_comm_ranks *ranks = comm->ranks;
    ls_comm_messages_stop(comm->messages);
    ls_comm_works_close(comm);
    if (ranks->job)
        ls_job_remove(ranks->job, comm);
    if (atomic_fetch_sub(&ranks->open, 1) == 1)
        destroy(ranks);
}

void ls_comm_abort(struct ls_comm *comm)
{
    if (!ls_comm_check_process(comm, "ls_comm_abort"))
        ls_comm_abort_because(comm, "it was aborted");
}

// ---- What it is ----

uint32_t ls_comm_rank(const struct ls_comm *comm)
{
    return comm->rank;
}

uint32_t ls_comm_size(const struct ls_comm *comm)
{
    return comm->ranks->world;
}

void ls_comm_set_deadline(struct ls_comm *comm, double seconds)
{
    if (seconds > 0)
        atomic_store(&comm->deadline_ns,
                     seconds < 1e6 ? (uint64_t)(seconds * 1e9) : UINT64_C(1000000000000000));
}

const char *ls_comm_about(struct ls_comm *comm)
{
    const struct ls_comm_ranks *ranks = comm->ranks;
    const enum ls_schedule_check check = ls_communicator_check(comm->communicator);
    char collective[160];
    snprintf(comm->about, sizeof(comm->about), "%s over %s, %u rank%s, %s",
             name_plugin(ranks->collective, collective, sizeof(collective)),
             ranks->transport->plugin->name, ranks->world, ranks->world == 1 ? "" : "s",
             ranks->world == 1        ? "nothing to verify"
             : check == LS_CHECK_NONE ? "verified before it runs"
                                      : ls_schedule_check_text(check));
    return comm->about;
}
