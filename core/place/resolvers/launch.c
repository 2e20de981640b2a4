// SPDX-License-Identifier: Apache-2.0
// LOCKSTEP_RANK and its relatives, which `lockstep launch` sets, or a script of the user's.
//
//     LOCKSTEP_ROLE                worker (the default) or server
//     LOCKSTEP_RANK                number of this process among those of its role
//     LOCKSTEP_WORLD_SIZE          number of workers
//     LOCKSTEP_SERVERS             number of servers; not set: none
//     LOCKSTEP_LOCAL_RANK, LOCKSTEP_LOCAL_WORLD_SIZE   among the processes of its role on this host
//     LOCKSTEP_ADDRESS             host:port of worker 0
//     LOCKSTEP_SERVER_ADDRESSES    host:port,host:port of all servers
//     LOCKSTEP_SERVER_FOLDER       for files of the servers; removed when the job has ended
//     LOCKSTEP_LISTEN_FD           on worker 0 and on servers: a socket that listens there already
//     LOCKSTEP_JOB                 a name of the job, equal on all its processes
//     LOCKSTEP_RESTART_COUNT       how often this process was started again
//     LOCKSTEP_JOIN                1: a new worker for a training that has begun (--elastic), at
//                                  LOCKSTEP_ADDRESS; it needs no rank
#include "core/place/resolvers/resolver.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static void read_server(struct ls_resolving *resolving)
{
    struct ls_worker_place *place = resolving->place;
    place->role = LS_ROLE_SERVER;
    place->workers = ls_resolving_number(resolving, "LOCKSTEP_WORLD_SIZE", 1, LS_MOST_WORKERS);
    place->number = ls_resolving_number(resolving, "LOCKSTEP_RANK", 0, LS_MOST_WORKERS - 1);
    if (place->number >= place->servers)
        ls_resolving_fail(resolving,
                          "LOCKSTEP_RANK=%u of a server is not below LOCKSTEP_SERVERS=%u",
                          place->number, place->servers);
}

static void read_role(struct ls_resolving *resolving)
{
    struct ls_worker_place *place = resolving->place;
    const char *role = ls_resolving_read(resolving, "LOCKSTEP_ROLE");
    place->servers = ls_resolving_number_or(resolving, "LOCKSTEP_SERVERS", 0, LS_MOST_WORKERS, 0);
    if (role && strcmp(role, "server") == 0)
        read_server(resolving);
    else if (role && strcmp(role, "worker") != 0)
        ls_resolving_fail(resolving, "LOCKSTEP_ROLE=%.40s is neither worker nor server", role);
    else
        ls_resolving_rank(resolving, "LOCKSTEP_RANK", "LOCKSTEP_WORLD_SIZE");
    ls_resolving_local_rank(resolving, "LOCKSTEP_LOCAL_RANK", "LOCKSTEP_LOCAL_WORLD_SIZE");
}

// A program that the launcher's child starts must not inherit the socket, so it is closed on exec.
static void read_socket(struct ls_resolving *resolving)
{
    struct ls_worker_place *place = resolving->place;
    if (!ls_resolving_has(resolving, "LOCKSTEP_LISTEN_FD"))
        return;
    const int fd = (int)ls_resolving_number(resolving, "LOCKSTEP_LISTEN_FD", 3, 1 << 20);
    if (place->role == LS_ROLE_WORKER && place->number != 0)
        ls_resolving_fail(
            resolving,
            "LOCKSTEP_LISTEN_FD=%d is set, but this process is neither worker 0 nor a "
            "server",
            fd);
    if (resolving->problem[0])
        return;
    int listens = 0;
    socklen_t size = sizeof(listens);
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) || !listens ||
        fcntl(fd, F_SETFD, FD_CLOEXEC))
        ls_resolving_fail(resolving, "LOCKSTEP_LISTEN_FD=%d is not a socket that listens", fd);
    place->listen_fd = fd;
}

// Where each of the servers is, and so where this one listens.
static void read_servers(struct ls_resolving *resolving)
{
    struct ls_worker_place *place = resolving->place;
    const char *addresses = ls_resolving_read(resolving, "LOCKSTEP_SERVER_ADDRESSES");
    const char *folder = ls_resolving_read(resolving, "LOCKSTEP_SERVER_FOLDER");
    if (folder && strlen(folder) < sizeof(place->server_folder))
        snprintf(place->server_folder, sizeof(place->server_folder), "%s", folder);
    if (!addresses)
        return;
    if (strlen(addresses) >= sizeof(place->server_addresses)) {
        ls_resolving_fail(resolving, "LOCKSTEP_SERVER_ADDRESSES is longer than %zu letters",
                          sizeof(place->server_addresses) - 1);
        return;
    }
    snprintf(place->server_addresses, sizeof(place->server_addresses), "%s", addresses);
    if (place->role == LS_ROLE_SERVER && !resolving->problem[0] &&
        ls_worker_place_server(place, place->number, place->own_address, &place->own_port))
        ls_resolving_fail(resolving, "LOCKSTEP_SERVER_ADDRESSES=%.100s is wrong", addresses);
}

static enum ls_resolver_answer resolve(struct ls_resolving *resolving)
{
    static const char *const needed[] = {"LOCKSTEP_RANK", "LOCKSTEP_WORLD_SIZE", NULL};
    static const char *const needed_by_several[] = {"LOCKSTEP_RANK", "LOCKSTEP_WORLD_SIZE",
                                                    "LOCKSTEP_ADDRESS", NULL};
    static const char *const needed_to_join[] = {"LOCKSTEP_JOIN", "LOCKSTEP_ADDRESS", NULL};
    static const char *const needed_by_role[] = {"LOCKSTEP_ROLE", "LOCKSTEP_RANK",
                                                 "LOCKSTEP_WORLD_SIZE", NULL};
    struct ls_worker_place *place = resolving->place;
    const bool joins = ls_resolving_has(resolving, needed_to_join[0]);
    const bool has_role = ls_resolving_has(resolving, needed_by_role[0]);
    if (!joins && !has_role && !ls_resolving_has(resolving, needed[0]) &&
        !ls_resolving_has(resolving, needed[1]))
        return LS_RESOLVER_ABSENT;
    if (ls_resolving_lacks(resolving, joins ? needed_to_join : has_role ? needed_by_role : needed))
        return LS_RESOLVER_INCOMPLETE;
    if (joins)
        place->joins = ls_resolving_number(resolving, "LOCKSTEP_JOIN", 0, 1) == 1;
    if (!place->joins || ls_resolving_has(resolving, needed[0]) || has_role)
        read_role(resolving);
    if (place->joins && place->role != LS_ROLE_WORKER)
        ls_resolving_fail(resolving, "LOCKSTEP_JOIN=1, but only workers join later");
    if (place->joins && place->workers < 2)
        place->workers = 2; // this one and another one, at least
    if (!ls_resolving_given_address(resolving) && !resolving->problem[0] &&
        place->workers + place->servers > 1 && ls_resolving_lacks(resolving, needed_by_several))
        return LS_RESOLVER_INCOMPLETE;
    read_servers(resolving);
    read_socket(resolving);
    const char *job = ls_resolving_read(resolving, "LOCKSTEP_JOB");
    snprintf(place->job, sizeof(place->job), "%s", job ? job : "");
    place->restart = ls_resolving_number_or(resolving, "LOCKSTEP_RESTART_COUNT", 0, INT32_MAX, 0);
    return ls_resolving_end(resolving);
}

const struct ls_resolver ls_resolver_launch = {
    .name = "launch",
    .variables = "LOCKSTEP_RANK, LOCKSTEP_WORLD_SIZE and LOCKSTEP_ADDRESS",
    .start = "start the workers with lockstep launch",
    .resolve = resolve,
};
