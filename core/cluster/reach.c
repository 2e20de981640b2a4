// SPDX-License-Identifier: Apache-2.0
// Connecting to the store, again and again until it is there.
#include "core/cluster/reach.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/cluster/sockets.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SAY_AFTER_NS UINT64_C(5000000000)
#define SAY_EVERY_NS UINT64_C(1000000000)
#define CONNECT_NS UINT64_C(2000000000)
#define ANSWER_NS UINT64_C(4000000000)
#define LEAST_PAUSE_NS UINT64_C(5000000) // between two tries; grows by half each time
#define MOST_PAUSE_NS UINT64_C(250000000)

enum ls_status ls_refuse_without_secret(const struct ls_worker_place *place)
{
    char at[LS_HOST_BYTES + 16] = "";
    if (*place->address)
        snprintf(at, sizeof(at), " at %s:%u", place->address, place->port);
    ls_error("cluster",
             "other machines reach worker 0%s: give all workers one secret by LOCKSTEP_SECRET or "
             "LOCKSTEP_SECRET_FILE (`lockstep launch --make-secret=FILE` makes one), or --insecure "
             "on a network that you trust",
             at);
    return LS_USAGE;
}

static enum ls_status send_all(struct ls_connection *connection, const uint8_t *data, size_t bytes,
                               uint64_t end_ns, const struct ls_stop *stop)
{
    enum ls_status status = ls_connection_queue(connection, data, bytes);
    while (!status && (status = ls_connection_flush(connection)) == LS_AGAIN)
        status = ls_socket_wait(connection->fd, POLLOUT, end_ns, stop);
    return status;
}

static enum ls_status receive_all(struct ls_connection *connection, size_t bytes, uint64_t end_ns,
                                  const struct ls_stop *stop)
{
    enum ls_status status = LS_OK;
    while (!status && (status = ls_connection_read(connection, bytes)) == LS_AGAIN)
        status = ls_socket_wait(connection->fd, POLLIN, end_ns, stop);
    connection->in_bytes = 0;
    return status;
}

enum ls_status ls_shake_hands(struct ls_connection *connection, uint64_t patience_ns,
                              const struct ls_stop *stop)
{
    static const struct ls_stop never = {0};
    const uint64_t end = ls_clock_ns() + patience_ns;
    uint8_t greeting[LS_SECURE_GREETING], proof[LS_SECURE_PROOF];
    stop = stop ? stop : &never;
    ls_secure_greet(&connection->secure, greeting);
    enum ls_status status = send_all(connection, greeting, sizeof(greeting), end, stop);
    if (!status)
        status = receive_all(connection, LS_SECURE_NONCE, end, stop);
    if (status)
        return status;
    ls_secure_prove(&connection->secure, connection->in, proof);
    status = send_all(connection, proof, sizeof(proof), end, stop);
    if (!status)
        status = receive_all(connection, LS_SECURE_PROOF, end, stop);
    if (!status && !ls_secure_believe(&connection->secure, connection->in))
        status = LS_USAGE;
    return status;
}

static bool is_interrupted(void *context)
{
    const struct ls_reach *reach = context;
    return reach->interrupted && atomic_load(reach->interrupted);
}

// One try. LS_AGAIN: `why` says why not yet.
// `error` says why it was not connected; 0: it was.
static enum ls_status try_once(const struct ls_reach *reach, uint64_t left_ns,
                               struct ls_connection *out, int *error, char *why, size_t bytes)
{
    const struct ls_worker_place *place = reach->place;
    const struct ls_stop stop = {is_interrupted, (void *)reach};
    int fd;
    enum ls_status status =
        ls_socket_connect(place->address, place->port, left_ns < CONNECT_NS ? left_ns : CONNECT_NS,
                          &stop, &fd, why, bytes);
    *error = status ? errno : 0;
    if (status)
        return status;
    if (reach->open_to_all && !ls_socket_leads_here(fd)) {
        close(fd);
        return ls_refuse_without_secret(place);
    }
    status = ls_connection_init(out, fd, reach->key);
    if (status)
        return status;
    status = ls_shake_hands(out, left_ns < ANSWER_NS ? left_ns : ANSWER_NS, &stop);
    if (!status)
        return LS_OK;
    ls_connection_finish(out);
    if (status == LS_USAGE && reach->apart)
        ls_error("cluster",
                 "process %u at %s:%u has another secret than this process: expected the same "
                 "`secret` for all processes, and no other job at that address",
                 reach->number, place->address, place->port);
    else if (status == LS_USAGE)
        ls_error("cluster",
                 "worker %u at %s:%u has another secret than this worker: expected the same "
                 "LOCKSTEP_SECRET or LOCKSTEP_SECRET_FILE for all workers, and no other training "
                 "at that address",
                 reach->number, place->address, place->port);
    else if (status == LS_AGAIN)
        snprintf(why, bytes, "it takes connections but does not answer as %s 0 does",
                 reach->apart ? "process" : "worker");
    else if (status == LS_PEER_LOST)
        snprintf(why, bytes, "it takes connections but closes them; is it another program?");
    return status == LS_PEER_LOST ? LS_AGAIN : status;
}

static void report_silence(const struct ls_reach *reach, uint64_t passed_ns, const char *why)
{
    const struct ls_worker_place *place = reach->place;
    char text[1024];
    snprintf(text, sizeof(text), "%s %u did not answer at %s:%u within %g s%s%s",
             reach->apart ? "process" : "worker", reach->number, place->address, place->port,
             (double)passed_ns * 1e-9, *why ? ": " : "", why);
    if (reach->number)
        ls_warn("cluster", "%s", text); // another one may take over
    else
        ls_error("cluster", "%s; start all %u %s", text, place->workers,
                 reach->apart ? "processes" : "workers, or train alone with --cluster=none");
}

enum ls_status ls_store_reach(const struct ls_reach *reach, struct ls_connection *out)
{
    const uint64_t begin = ls_clock_ns();
    const double deadline = (double)reach->deadline_ns * 1e-9;
    if (reach->open_to_all && ls_socket_leads_away(reach->place->address, reach->place->port))
        return ls_refuse_without_secret(reach->place); // at once: worker 0 refuses, too
    uint64_t pause = LEAST_PAUSE_NS, say_at = SAY_AFTER_NS, connected_at = 0;
    char why[256] = ""; // of the last try: on a busy machine the deadline may pass before another
    int error = 0;
    for (;;) {
        const uint64_t passed = ls_clock_ns() - begin;
        if (passed < reach->deadline_ns) {
            const enum ls_status status =
                try_once(reach, reach->deadline_ns - passed, out, &error, why, sizeof(why));
            if (status == LS_ABORTED)
                return LS_INTERRUPTED;
            if (status != LS_AGAIN || (error == ECONNREFUSED && reach->number > 0))
                return status;
        }
        if (is_interrupted((void *)reach))
            return LS_INTERRUPTED;
        const uint64_t now = ls_clock_ns() - begin;
        connected_at = error && error != ECONNRESET ? connected_at : now;
        const bool cut_off = reach->number > 0 && now - connected_at >= reach->unreachable_ns;
        if (cut_off || now + pause >= reach->deadline_ns) {
            report_silence(reach, cut_off ? reach->unreachable_ns : reach->deadline_ns, why);
            return LS_PEER_LOST;
        }
        if (now >= say_at) {
            say_at = now + SAY_EVERY_NS;
            ls_info("cluster", "waiting for %s %u (%s:%u), %.0f s of %g s",
                    reach->apart ? "process" : "worker", reach->number, reach->place->address,
                    reach->place->port, (double)now * 1e-9, deadline);
        }
        nanosleep(&(struct timespec){.tv_nsec = (long)pause}, NULL);
        pause = pause * 3 / 2 < MOST_PAUSE_NS ? pause * 3 / 2 : MOST_PAUSE_NS;
    }
}
