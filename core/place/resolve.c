// SPDX-License-Identifier: Apache-2.0
// Asks the resolvers one after the other. The first whose variables are complete wins. Variables
// that are incomplete are an error only if no other launcher is complete: scripts of Slurm set
// WORLD_SIZE and MASTER_ADDR for programs that need them.
#include "core/place/resolve.h"

#include "core/base/log.h"
#include "core/base/options.h"
#include "core/place/own_address.h"
#include "core/place/pmix_calls.h"
#include "core/place/resolvers/resolver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct ls_resolver *const resolvers[] = {
    &ls_resolver_launch,  &ls_resolver_tf_config, &ls_resolver_torchrun, &ls_resolver_pmix,
    &ls_resolver_openmpi, &ls_resolver_pmi,       &ls_resolver_slurm,    &ls_resolver_kubernetes,
};
#define RESOLVERS (sizeof(resolvers) / sizeof(resolvers[0]))

// In the order of `resolvers`; a test compares them.
const char *const *ls_resolver_names(void)
{
    static const char *const names[RESOLVERS + 1] = {
        "launch", "tf-config", "torchrun", "pmix", "openmpi", "pmi", "slurm", "kubernetes", NULL};
    return names;
}

// ---- Resolving ----

static void alone(struct ls_worker_place *out)
{
    *out = (struct ls_worker_place){.resolver = "none", .workers = 1, .listen_fd = -1};
}

// Many hosts have a name that stands for 127.0.1.1 on themselves.
static bool is_reached_from_outside(const struct ls_worker_place *place)
{
    return place->role == LS_ROLE_WORKER && place->number == 0 && !place->joins &&
           place->workers + place->servers > 1 && place->local_workers != place->workers &&
           place->address[0] && !ls_host_is_loopback(place->address);
}

static enum ls_resolver_answer ask(const struct ls_resolver *resolver,
                                   struct ls_resolving *resolving)
{
    alone(resolving->place);
    resolving->place->resolver = resolver->name;
    resolving->problem[0] = '\0';
    resolving->advice = NULL;
    const enum ls_resolver_answer answer = resolver->resolve(resolving);
    if (!resolving->advice)
        resolving->advice = resolver->start;
    if (is_reached_from_outside(resolving->place))
        resolving->place->reached_from_outside = true;
    return answer;
}

static enum ls_status refuse(const struct ls_resolving *resolving, const char *otherwise)
{
    if (resolving->status == LS_OUT_OF_MEMORY)
        ls_error("cluster", "out of memory");
    else
        ls_error("cluster", "%s: %s%s", resolving->problem, resolving->advice, otherwise);
    return resolving->status;
}

static enum ls_status resolve_by(const struct ls_resolver *resolver, struct ls_resolving *resolving)
{
    switch (ask(resolver, resolving)) {
    case LS_RESOLVER_TAKEN: return LS_OK;
    case LS_RESOLVER_ABSENT:
        if (resolving->problem[0])
            return refuse(resolving, "");
        ls_error("cluster", "--cluster=%s needs %s, which this process does not have: %s",
                 resolver->name, resolver->variables, resolver->start);
        return LS_USAGE;
    default: return refuse(resolving, "");
    }
}

static void append(char *text, size_t bytes, const char *more)
{
    const size_t used = strlen(text), room = bytes - used - 1;
    const size_t length = strlen(more) < room ? strlen(more) : room;
    memcpy(text + used, more, length);
    text[used + length] = '\0';
}

// Adds the variables of `taken` that the launcher which won does not use, too.
static void note_ignored(struct ls_worker_place *place, const char *taken)
{
    while (*taken) {
        const size_t length = strcspn(taken, " "), used = strlen(place->ignored);
        char word[sizeof(place->taken)];
        memcpy(word, taken, length);
        word[length] = '\0';
        if (length > 0 && !strstr(place->taken, word)) {
            append(place->ignored, sizeof(place->ignored), used ? " " : "");
            append(place->ignored, sizeof(place->ignored), word);
        }
        taken += length + strspn(taken + length, " ");
    }
}

// Of several incomplete launchers the last one is told of: the later ones are asked for what only
// they set, and the earlier ones for what scripts set, too.
static enum ls_status resolve_auto(struct ls_resolving *resolving)
{
    static const char otherwise[] = ", or train alone with --cluster=none";
    struct ls_resolving incomplete = {.status = LS_OK};
    char ignored[sizeof(resolving->place->taken)] = "";
    for (size_t i = 0; i < RESOLVERS; i++) {
        switch (ask(resolvers[i], resolving)) {
        case LS_RESOLVER_ABSENT: break;
        case LS_RESOLVER_INCOMPLETE:
            incomplete = *resolving;
            append(ignored, sizeof(ignored), resolving->place->taken);
            append(ignored, sizeof(ignored), " ");
            break;
        case LS_RESOLVER_WRONG: return refuse(resolving, otherwise);
        case LS_RESOLVER_TAKEN: note_ignored(resolving->place, ignored); return LS_OK;
        }
    }
    if (incomplete.status)
        return refuse(&incomplete, otherwise);
    alone(resolving->place);
    return LS_OK;
}

static const struct ls_resolver *find(const char *which)
{
    for (size_t i = 0; i < RESOLVERS; i++)
        if (strcmp(which, resolvers[i]->name) == 0)
            return resolvers[i];
    const char *nearest = ls_nearest(which, ls_resolver_names());
    ls_error(
        "cluster",
        "--cluster=%s: expected none, auto, launch, tf-config, torchrun, pmix, openmpi, pmi, slurm "
        "or kubernetes%s%s%s",
        which, nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
    return NULL;
}

enum ls_status ls_worker_place_resolve(const char *which, const struct ls_environment *environment,
                                       struct ls_worker_place *out)
{
    struct ls_worker_place place;
    struct ls_resolving resolving = {
        .environment = environment, .place = &place, .status = LS_USAGE};
    const struct ls_resolver *resolver = NULL;
    enum ls_status status = LS_OK;
    if (strcmp(which, "none") == 0) {
        alone(&place);
    } else if (strcmp(which, "auto") == 0) {
        status = resolve_auto(&resolving);
    } else {
        resolver = find(which);
        status = resolver ? resolve_by(resolver, &resolving) : LS_USAGE;
    }
    if (!status)
        *out = place;
    return status;
}

void ls_worker_place_describe(const struct ls_worker_place *place, char *out, size_t bytes)
{
    char who[64];
    if (strcmp(place->resolver, "none") == 0) {
        snprintf(out, bytes, "this process trains alone");
        return;
    }
    if (place->joins)
        snprintf(who, sizeof(who), "a new worker");
    else if (place->role == LS_ROLE_WORKER)
        snprintf(who, sizeof(who), "worker %u of %u", place->number, place->workers);
    else
        snprintf(who, sizeof(who), "server %u of %u", place->number, place->servers);
    // What Lockstep's own launcher sets is of interest where something is wrong.
    const bool launch = strcmp(place->resolver, "launch") == 0;
    const bool own = launch && ls_log_level() < LS_LOG_DEBUG;
    snprintf(out, bytes, "%s by %s%s%s%s%s%s", who,
             launch && !place->job[0] ? "LOCKSTEP_RANK" : place->resolver, own ? "" : " (",
             own ? "" : place->taken, own ? "" : ")", place->ignored[0] ? ", not by " : "",
             place->ignored);
}

// ---- Meeting through PMIx ----

enum ls_status ls_worker_place_meet(struct ls_worker_place *place, uint16_t port,
                                    uint64_t deadline_ns)
{
    struct ls_pmix_job job = {.rank = place->number, .size = place->workers};
    char text[LS_HOST_BYTES + 16] = "", host[LS_HOST_BYTES], problem[256];
    if (place->address[0] || place->workers == 1)
        return LS_OK;
    snprintf(job.name, sizeof(job.name), "%s", place->pmix_name);
    if (place->number == 0) {
        const bool one_host = place->local_workers == place->workers;
        if (one_host)
            snprintf(host, sizeof(host), "127.0.0.1");
        else if (!ls_own_address(host)) {
            ls_error("cluster", "this host has no address that other hosts could reach: set "
                                "LOCKSTEP_ADDRESS=host:port, a free port of the host of rank 0");
            return LS_UNAVAILABLE;
        }
        snprintf(text, sizeof(text), strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
    }
    place->reached_from_outside = place->number == 0 && place->local_workers != place->workers;
    const bool shared =
        ls_pmix_share(&job, deadline_ns, text, sizeof(text), problem, sizeof(problem));
    if (shared && ls_host_port_parse(text, place->address, &place->port))
        return LS_OK;
    if (shared)
        snprintf(problem, sizeof(problem), "'%.100s' came as the address of worker 0", text);
    ls_error("cluster",
             "the workers cannot find each other through PMIx: %s: set "
             "LOCKSTEP_ADDRESS=host:port, a free port of the host of rank 0",
             problem);
    return LS_PEER_LOST;
}
