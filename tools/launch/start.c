// SPDX-License-Identifier: Apache-2.0
// Starts the processes of a launch.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // SOCK_CLOEXEC
#endif
#include "core/base/log.h"
#include "tools/launch/leftover.h"
#include "tools/launch/watch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// The kernel chooses the port, and the process inherits the socket, so no other program can take it
// in between.
static enum ls_status listen_here(int *listener, uint16_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof(address);
    *listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*listener < 0 || bind(*listener, (struct sockaddr *)&address, sizeof(address)) ||
        listen(*listener, SOMAXCONN) ||
        getsockname(*listener, (struct sockaddr *)&address, &bytes)) {
        ls_error("launch", "cannot listen on 127.0.0.1: %s", strerror(errno));
        return LS_FAILED;
    }
    *port = ntohs(address.sin_port);
    return LS_OK;
}

enum ls_status launch_make_folder(struct launch_place *place)
{
    const char *temporary = getenv("TMPDIR");
    if (!temporary || !*temporary)
        temporary = "/tmp";
    const int length =
        snprintf(place->folder, sizeof(place->folder), "%s/lockstep-launch-XXXXXX", temporary);
    if (length > 0 && (size_t)length < sizeof(place->folder) && mkdtemp(place->folder))
        return LS_OK;
    ls_error("launch", "cannot make a folder for the servers' files in %s: %s; set TMPDIR",
             temporary, strerror(errno));
    *place->folder = '\0';
    return LS_FAILED;
}

// Where the servers of the job are reached, whichever process is the server at the time.
static enum ls_status listen_for_servers(struct launch_place *place)
{
    const size_t each = sizeof("127.0.0.1:65535,"), bytes = place->servers * each + 1;
    enum ls_status status = LS_OK;
    size_t length = 0;
    if (!place->servers || place->server_addresses)
        return LS_OK;
    place->server_listeners = malloc(place->servers * sizeof(*place->server_listeners));
    place->server_addresses = calloc(1, bytes);
    if (!place->server_listeners || !place->server_addresses)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < place->servers; i++)
        place->server_listeners[i] = -1;
    for (uint32_t i = 0; i < place->servers && !status; i++) {
        uint16_t port = 0;
        status = listen_here(&place->server_listeners[i], &port);
        length += (size_t)snprintf(place->server_addresses + length, bytes - length,
                                   "%s127.0.0.1:%u", i ? "," : "", port);
    }
    snprintf(place->job, sizeof(place->job), "launch-%ld", (long)getpid());
    return status;
}

void launch_forget_servers(struct launch_place *place)
{
    for (uint32_t i = 0; place->server_listeners && i < place->servers; i++)
        if (place->server_listeners[i] >= 0)
            close(place->server_listeners[i]);
    free(place->server_listeners);
    free(place->server_addresses);
    launch_remove_folder(place->folder);
}

static void prefix_of(const struct launch_job *job, const struct launch_process *process,
                      bool is_error, char *prefix, size_t room)
{
    const enum launch_prefix kind = job->options->prefix;
    const bool chief = !process->server && process->number == 0;
    *prefix = '\0';
    if (kind == LAUNCH_PREFIX_NEVER)
        return;
    if (kind == LAUNCH_PREFIX_AUTO && (job->count == 1 || (chief && !is_error)))
        return;
    snprintf(prefix, room, "[%s%u] ", process->server ? "server " : "", process->number);
}

static enum ls_status start_one(struct launch_job *job, struct launch_process *process)
{
    char out[24], err[24];
    prefix_of(job, process, false, out, sizeof(out));
    prefix_of(job, process, true, err, sizeof(err));
    return launch_process_start(process, &job->place, &job->output, out, err);
}

enum ls_status launch_start_all(struct launch_job *job)
{
    const uint32_t workers = job->options->workers;
    enum ls_status status = ls_secret_draw(job->place.secret);
    if (!status)
        status = listen_here(&job->place.listener, &job->place.port);
    if (!status)
        status = listen_for_servers(&job->place);
    for (uint32_t i = 0; i < job->count && !status; i++) {
        struct launch_process *process = &job->processes[i];
        *process = (struct launch_process){.server = i >= workers,
                                           .number = i < workers ? i : i - workers,
                                           .out = {.fd = -1},
                                           .err = {.fd = -1}};
        status = start_one(job, process);
    }
    if (job->place.listener >= 0) // who connects when worker 0 has ended must be refused
        close(job->place.listener);
    job->place.listener = -1;
    return status;
}

enum ls_status launch_start_again(struct launch_job *job, struct launch_process *process)
{
    launch_stream_close(&process->out);
    launch_stream_close(&process->err);
    *process = (struct launch_process){.server = process->server,
                                       .number = process->number,
                                       .restarts = process->restarts + 1,
                                       .out = {.fd = -1},
                                       .err = {.fd = -1}};
    return start_one(job, process);
}
