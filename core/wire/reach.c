// SPDX-License-Identifier: Apache-2.0
// Connecting to a peer, again and again until it is there.
#include "core/wire/reach.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/wire/sockets.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SAY_AFTER_NS UINT64_C(5000000000)
#define CONNECT_NS UINT64_C(2000000000)
#define ANSWER_NS UINT64_C(4000000000)
#define LEAST_PAUSE_NS UINT64_C(5000000) // between two tries; grows by half each time
#define MOST_PAUSE_NS UINT64_C(250000000)

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

// One try. LS_AGAIN: `why` says why not yet, and `error` why it was not connected; 0: it was.
static enum ls_status try_once(const struct ls_reach *reach, uint64_t left_ns,
                               struct ls_connection *out, int *error, char *why, size_t bytes)
{
    int fd;
    enum ls_status status =
        ls_socket_connect(reach->address, reach->port, left_ns < CONNECT_NS ? left_ns : CONNECT_NS,
                          &reach->stop, &fd, why, bytes);
    *error = status ? errno : 0;
    if (status)
        return status;
    if (reach->open_to_all && !ls_socket_leads_here(fd)) {
        close(fd);
        return ls_secret_is_missing(reach->name, reach->address, reach->port, reach->all);
    }
    status = ls_connection_init(out, fd, reach->key);
    if (status)
        return status;
    status = ls_shake_hands(out, left_ns < ANSWER_NS ? left_ns : ANSWER_NS, &reach->stop);
    if (!status)
        return LS_OK;
    ls_connection_finish(out);
    if (status == LS_USAGE)
        ls_error("cluster", "%s at %s:%u has another secret than this %s: expected %s", reach->name,
                 reach->address, reach->port, reach->own, reach->expected);
    else if (status == LS_AGAIN)
        snprintf(why, bytes, "it takes connections but does not answer as %s does", reach->name);
    else if (status == LS_PEER_LOST)
        snprintf(why, bytes, "it takes connections but closes them; is it another program?");
    return status == LS_PEER_LOST ? LS_AGAIN : status;
}

static void report_silence(const struct ls_reach *reach, uint64_t passed_ns, const char *why)
{
    const bool replaced = reach->unreachable_ns > 0;
    const char *advice = reach->advice && !replaced ? reach->advice : NULL;
    char text[1024];
    snprintf(text, sizeof(text), "%s did not answer at %s:%u within %g s%s%s%s%s", reach->name,
             reach->address, reach->port, (double)passed_ns * 1e-9, *why ? ": " : "", why,
             advice ? "; " : "", advice ? advice : "");
    if (replaced)
        ls_warn("cluster", "%s", text);
    else
        ls_error("cluster", "%s", text);
}

enum ls_status ls_reach(const struct ls_reach *reach, struct ls_connection *out)
{
    const uint64_t begin = ls_clock_ns();
    const double patience = (double)reach->patience_ns * 1e-9;
    if (reach->open_to_all && ls_socket_leads_away(reach->address, reach->port))
        return ls_secret_is_missing(reach->name, reach->address, reach->port,
                                    reach->all); // at once: the peer refuses to listen there, too
    uint64_t pause = LEAST_PAUSE_NS, say_at = SAY_AFTER_NS, connected_at = 0;
    char why[256] = ""; // of the last try: on a busy machine the deadline may pass before another
    int error = 0;
    for (;;) {
        const uint64_t passed = ls_clock_ns() - begin;
        if (passed < reach->patience_ns) {
            const enum ls_status status =
                try_once(reach, reach->patience_ns - passed, out, &error, why, sizeof(why));
            if (status != LS_AGAIN || (error == ECONNREFUSED && reach->unreachable_ns))
                return status;
        }
        if (reach->stop.asked && reach->stop.asked(reach->stop.context))
            return LS_ABORTED;
        const uint64_t now = ls_clock_ns() - begin;
        connected_at = error && error != ECONNRESET ? connected_at : now;
        const bool cut_off = reach->unreachable_ns && now - connected_at >= reach->unreachable_ns;
        if (cut_off || now + pause >= reach->patience_ns) {
            report_silence(reach, cut_off ? reach->unreachable_ns : reach->patience_ns, why);
            return LS_PEER_LOST;
        }
        if (now >= say_at) {
            say_at = now + ls_log_wait_ns();
            ls_info("cluster", "waiting for %s (%s:%u%s%s), %.0f s of %g s", reach->name,
                    reach->address, reach->port, *why ? ": " : "", why, (double)now * 1e-9,
                    patience);
        }
        nanosleep(&(struct timespec){.tv_nsec = (long)pause}, NULL);
        pause = pause * 3 / 2 < MOST_PAUSE_NS ? pause * 3 / 2 : MOST_PAUSE_NS;
    }
}
