// SPDX-License-Identifier: Apache-2.0
// What worker 0 asks of the others while it compares.
#include "tools/compare/crew.h"

#include "core/base/log.h"
#include "core/wire/sockets.h"
#include "tools/compare/orders.h"
#include "tools/interrupt.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOST_SECONDS 10 // for the end after a worker is lost

// ---- Interruptions ----

static volatile sig_atomic_t interruptions;

static void on_interrupt(int number)
{
    if (interruptions < 2 && !interrupt_is_echo(number))
        interruptions++;
}

static volatile sig_atomic_t lost;

static void on_loss(int number)
{
    (void)number;
    lost = 1;
    interruptions = 2;
    alarm(LOST_SECONDS);
}

bool compare_lost(void)
{
    return lost;
}

void compare_catch(void)
{
    struct sigaction action = {.sa_handler = on_interrupt}, before;
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    action.sa_handler = on_loss;
    sigaction(SIGUSR1, &action, NULL);
    signal(SIGPIPE, SIG_IGN); // a child that is gone is noticed when its answers end
}

int compare_interrupted(void)
{
    return interruptions;
}

// ---- Lines ----

bool compare_line_send(int line, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes) {
        const ssize_t sent = send(line, at, bytes, MSG_NOSIGNAL);
        if ((sent < 0 && errno != EINTR) || compare_lost())
            return false;
        at += sent > 0 ? sent : 0;
        bytes -= sent > 0 ? (size_t)sent : 0;
    }
    return true;
}

bool compare_line_receive(int line, void *data, size_t bytes)
{
    char *at = data;
    while (bytes) {
        const ssize_t got = recv(line, at, bytes, 0);
        if (got == 0 || (got < 0 && errno != EINTR) || compare_lost())
            return false;
        at += got > 0 ? got : 0;
        bytes -= got > 0 ? (size_t)got : 0;
    }
    return true;
}

void compare_crew_leave(struct compare_crew *workers)
{
    close(workers->line);
}

// ---- Orders ----

// `answers` has one for each worker; that of worker 0 is empty. Where the parent is gone all is
// over, as when a worker is lost; the kernel says so a little later.
static enum ls_status give(const struct compare_crew *workers, const struct compare_order *order,
                           struct compare_answer *answers)
{
    if (!compare_lost() && compare_line_send(workers->line, order, sizeof(*order)) &&
        compare_line_receive(workers->line, answers, workers->count * sizeof(*answers)))
        return LS_OK;
    if (!compare_lost())
        raise(SIGUSR1);
    return LS_PEER_LOST;
}

static uint32_t find_strategy(const struct compare_crew *workers, const char *strategy)
{
    uint32_t index = 0;
    while (index < workers->strategies->count &&
           strcmp(workers->strategies->items[index], strategy) != 0)
        index++;
    return index;
}

static enum ls_status order_start(const struct compare_crew *workers,
                                  const struct compare_order *order, const char *strategy)
{
    struct compare_answer *answers = calloc(workers->count, sizeof(*answers));
    enum ls_status status = answers ? give(workers, order, answers) : LS_OUT_OF_MEMORY;
    for (uint32_t i = 1; !status && i < workers->count; i++)
        if (answers[i].status) {
            ls_error("compare",
                     "worker %u cannot start a process of '%s', for the reason that it has logged",
                     i, strategy);
            status = LS_FAILED;
        }
    free(answers);
    return status;
}

enum ls_status compare_crew_start(struct compare_crew *workers,
                                  const struct compare_setting *setting,
                                  const struct compare_entry *entry, uint32_t *number,
                                  struct compare_meeting *meeting)
{
    struct compare_order order = {.kind = COMPARE_START,
                                  .run = ++workers->runs,
                                  .strategy = find_strategy(workers, entry->strategy),
                                  .replicas = entry->replicas,
                                  .threads = entry->threads,
                                  .microbatches = entry->microbatches,
                                  .batch = entry->batch,
                                  .timed = entry->timed,
                                  .validation = setting->validation};
    struct compare_meeting here = {.workers = workers->count,
                                   .local_worker = workers->local_worker,
                                   .local_workers = workers->local_workers};
    if (ls_socket_listen_at(workers->host, 0, &here.listener)) {
        ls_error("compare", "no socket can listen at %s for the workers of '%s': %s", workers->host,
                 entry->strategy, strerror(errno));
        return LS_FAILED;
    }
    order.port = ls_socket_port(here.listener);
    enum ls_status status = ls_secret_draw(order.secret);
    memcpy(here.secret, order.secret, sizeof(here.secret));
    snprintf(here.address, sizeof(here.address), "127.0.0.1:%u", order.port); // it has the socket
    *number = order.run; // also where only some have started theirs
    if (!status)
        status = order_start(workers, &order, entry->strategy);
    if (status)
        close(here.listener);
    else
        *meeting = here;
    return status;
}

bool compare_crew_any_ended(const struct compare_crew *workers, uint32_t number)
{
    const struct compare_order order = {.kind = COMPARE_LOOK, .run = number};
    struct compare_answer *answers = calloc(workers->count, sizeof(*answers));
    bool ended = !answers || give(workers, &order, answers);
    for (uint32_t i = 1; !ended && i < workers->count; i++)
        ended = answers[i].ended;
    free(answers);
    return ended;
}

// Whether a process has failed by itself: not as one that has lost another, or was interrupted.
static bool is_cause(const struct compare_answer *answer)
{
    return answer->end != COMPARE_ENDED ||
           (answer->code && answer->code != LS_PEER_LOST && answer->code != LS_INTERRUPTED);
}

enum ls_status compare_crew_end(struct compare_crew *workers, uint32_t number, uint64_t patience_ns,
                                struct compare_other *other)
{
    const struct compare_order order = {
        .kind = COMPARE_END, .run = number, .patience_ns = patience_ns};
    if (workers->worker)
        return LS_OK;
    struct compare_answer *answers = calloc(workers->count, sizeof(*answers));
    const enum ls_status status = answers ? give(workers, &order, answers) : LS_OUT_OF_MEMORY;
    for (uint32_t i = 1; !status && other && !other->worker && i < workers->count; i++) {
        if (!is_cause(&answers[i]))
            continue;
        // One that had to be stopped has a message, and is no other kind of failure here.
        const bool hung = answers[i].end == COMPARE_HUNG;
        *other =
            (struct compare_other){.worker = i,
                                   .end = hung ? COMPARE_ENDED : (enum compare_end)answers[i].end,
                                   .code = hung ? LS_FAILED : (int)answers[i].code,
                                   .signal = hung ? 0 : (int)answers[i].signal};
        if (answers[i].message[0])
            snprintf(other->message, sizeof(other->message), "worker %u: %.*s", i,
                     (int)sizeof(answers[i].message) - 1, answers[i].message);
    }
    free(answers);
    return status;
}
