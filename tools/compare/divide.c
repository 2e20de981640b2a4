// SPDX-License-Identifier: Apache-2.0
// The process that has joined the other workers: passes on orders, answers and interruptions.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // SOCK_CLOEXEC
#endif
#include "tools/compare/crew.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/wire/secret.h"
#include "tools/compare/orders.h"
#include "tools/interrupt.h"
#include "tools/last_words.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PULSE_MS 500 // all hear that often from worker 0, which hears of interruptions
#define LOOK_MS 200 // whether a worker was lost
#define END_NS UINT64_C(15000000000) // for the child; it ends itself a little earlier
#define END_PAUSE_NS 5000000L

// How often a worker was interrupted, and the last signal.
struct pulse {
    uint32_t interruptions, number;
};

struct member {
    const struct compare_crew_options *options;
    struct ls_cluster *cluster;
    pid_t child; // 0: reaped
    int child_status;
    int line; // to the child
    uint32_t interruptions; // that worker 0's child was told of
    struct pulse *pulses; // of all workers
    struct compare_answer *answers; // likewise
};

// ---- Interruptions ----

static volatile sig_atomic_t interruptions, last_number;

static void on_interrupt(int number)
{
    if (interrupt_is_echo(number))
        return;
    last_number = number;
    interruptions++;
}

static void catch_interruptions(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_interrupt}, before;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
}

static struct pulse own_pulse(void)
{
    return (struct pulse){.interruptions = (uint32_t)interruptions,
                          .number = (uint32_t)last_number};
}

// Whoever interrupts one worker interrupts the comparison; whoever interrupts all, once.
static void pass_on_interruptions(struct member *member)
{
    for (uint32_t i = 0; i < ls_cluster_workers(member->cluster); i++) {
        const struct pulse *pulse = &member->pulses[i];
        if (pulse->interruptions <= member->interruptions || member->child == 0)
            continue;
        member->interruptions = pulse->interruptions;
        kill(member->child, (int)pulse->number);
    }
}

// ---- The child ----

static bool has_ended(struct member *member, int how)
{
    pid_t reaped = 0;
    if (member->child > 0)
        do
            reaped = waitpid(member->child, &member->child_status, how);
        while (reaped < 0 && errno == EINTR);
    if (reaped)
        member->child = 0;
    return member->child == 0;
}

// It has ended, or is about to.
static void await_child(struct member *member)
{
    const uint64_t begin = ls_clock_ns();
    while (!has_ended(member, WNOHANG)) {
        if (ls_clock_ns() - begin > END_NS)
            kill(member->child, SIGKILL);
        nanosleep(&(struct timespec){.tv_nsec = END_PAUSE_NS}, NULL);
    }
}

static enum ls_status status_of_child(struct member *member)
{
    await_child(member);
    const int status = member->child_status;
    if (WIFEXITED(status)) {
        const enum ls_status code = (enum ls_status)WEXITSTATUS(status);
        if (code)
            ls_log_note_error();
        return code;
    }
    ls_error("compare", "the process that compares ended by signal %d (%s)", WTERMSIG(status),
             strsignal(WTERMSIG(status)));
    return LS_FAILED;
}

// ---- Orders ----

// What the child of worker 0 says within a pulse. Where it says nothing more it has ended.
static void next_order(struct member *member, struct compare_order *order)
{
    struct pollfd ready = {.fd = member->line, .events = POLLIN};
    if (poll(&ready, 1, PULSE_MS) <= 0)
        return;
    if (!compare_line_receive(member->line, order, sizeof(*order)))
        *order = (struct compare_order){.kind = COMPARE_LEAVE,
                                        .status = (uint32_t)status_of_child(member)};
}

// The child of another worker may take a while.
static enum ls_status await_answer(struct member *member, struct compare_answer *answer)
{
    struct pollfd ready = {.fd = member->line, .events = POLLIN};
    for (;;) {
        const enum ls_status status = ls_cluster_check(member->cluster, NULL);
        if (status)
            return status;
        if (poll(&ready, 1, LOOK_MS) > 0)
            break;
    }
    if (compare_line_receive(member->line, answer, sizeof(*answer)))
        return LS_OK;
    ls_error("compare", "the process that starts the runs of this worker has ended");
    return LS_FAILED;
}

static enum ls_status carry_out(struct member *member, const struct compare_order *order)
{
    struct compare_answer answer = {0};
    enum ls_status status = LS_OK;
    if (ls_cluster_worker(member->cluster)) {
        (void)compare_line_send(member->line, order, sizeof(*order)); // else there is no answer
        status = await_answer(member, &answer);
    }
    if (!status)
        status =
            ls_cluster_gather_workers(member->cluster, &answer, sizeof(answer), member->answers);
    if (!status && ls_cluster_worker(member->cluster) == 0)
        (void)compare_line_send(member->line, member->answers,
                                ls_cluster_workers(member->cluster) * sizeof(answer));
    return status;
}

// The same calls in the same order on all workers, until the child of worker 0 has ended.
static enum ls_status relay(struct member *member, enum ls_status *ended)
{
    for (;;) {
        struct compare_order order = {.kind = COMPARE_NOTHING};
        if (ls_cluster_worker(member->cluster) == 0)
            next_order(member, &order);
        enum ls_status status = ls_cluster_broadcast(member->cluster, &order, sizeof(order), 0);
        if (!status && order.kind == COMPARE_LEAVE) {
            *ended = (enum ls_status)order.status;
            return LS_OK;
        }
        const struct pulse pulse = own_pulse();
        if (!status)
            status =
                ls_cluster_gather_workers(member->cluster, &pulse, sizeof(pulse), member->pulses);
        if (!status && ls_cluster_worker(member->cluster) == 0)
            pass_on_interruptions(member);
        if (!status && order.kind != COMPARE_NOTHING)
            status = carry_out(member, &order);
        if (status)
            return status;
    }
}

// ---- Joining ----

static enum ls_status join(struct member *member)
{
    const struct compare_crew_options *options = member->options;
    char *secret = NULL;
    enum ls_status status =
        ls_secret_find(getenv("LOCKSTEP_SECRET"), getenv("LOCKSTEP_SECRET_FILE"), &secret);
    const struct ls_cluster_options join = {
        .place = options->place,
        .count = 1,
        .join_deadline_ns = (uint64_t)(options->run->join_seconds * 1e9),
        .silence_ns = (uint64_t)(options->run->silence_seconds * 1e9),
        .secret = secret,
        .insecure = options->run->insecure,
        .agreement = options->agreement,
        .agreements = options->agreements};
    if (!status)
        status = ls_cluster_join(&join, &member->cluster);
    ls_secret_free(secret);
    if (status)
        return status;
    const uint32_t workers = ls_cluster_workers(member->cluster);
    member->pulses = calloc(workers, sizeof(*member->pulses));
    member->answers = calloc(workers, sizeof(*member->answers));
    return member->pulses && member->answers ? LS_OK : LS_OUT_OF_MEMORY;
}

// The child learns who takes part.
static enum ls_status introduce(struct member *member)
{
    const struct ls_cluster *cluster = member->cluster;
    const struct ls_worker_place *place = member->options->place;
    const uint32_t *hosts = ls_cluster_hosts(cluster); // a worker has one rank here
    struct compare_crew workers = {.worker = ls_cluster_worker(cluster),
                                   .count = ls_cluster_workers(cluster),
                                   .local_worker = place->local_worker,
                                   .local_workers = place->local_workers};
    for (uint32_t i = 0; i < workers.count; i++) {
        uint32_t crowd = 0;
        for (uint32_t k = 0; k < workers.count; k++)
            crowd += hosts[k] == hosts[i];
        workers.crowd = crowd > workers.crowd ? crowd : workers.crowd;
        workers.hosts = hosts[i] + 1 > workers.hosts ? hosts[i] + 1 : workers.hosts;
    }
    snprintf(workers.host, sizeof(workers.host), "%s", ls_cluster_store_host(cluster));
    if (compare_line_send(member->line, &workers, sizeof(workers)))
        return LS_OK;
    ls_error("compare", "the process that starts the runs of this worker has ended");
    return LS_FAILED;
}

// ---- Both processes ----

// The child: worker 0 of the comparison, or one that follows.
static enum ls_status begin_child(pid_t parent, int line, struct compare_crew *out)
{
    const struct compare_list *strategies = out->strategies;
    last_words_take();
    compare_catch();
    prctl(PR_SET_PDEATHSIG, SIGUSR1); // as when a worker is lost
    if (getppid() != parent)
        raise(SIGUSR1);
    if (!compare_line_receive(line, out, sizeof(*out))) {
        ls_log_note_error(); // the parent has said it
        close(line);
        return LS_PEER_LOST;
    }
    out->line = line;
    out->strategies = strategies;
    out->runs = 0;
    return LS_OK;
}

static void say_how_it_ended(const struct member *member, enum ls_status ended)
{
    if (ls_cluster_worker(member->cluster) && ended && ended != LS_INTERRUPTED)
        ls_error("compare", "worker 0 failed, for the reason that it has logged");
}

static enum ls_status take_part(struct member *member)
{
    enum ls_status ended = LS_OK;
    interrupt_catch(); // until all are there an interruption ends this worker
    enum ls_status status = join(member);
    if (!status) {
        catch_interruptions();
        if (member->options->run->progress && ls_cluster_worker(member->cluster) == 0)
            ls_info("cluster", "%s", ls_cluster_about(member->cluster));
        status = introduce(member);
    }
    if (!status)
        status = relay(member, &ended);
    if (!status)
        say_how_it_ended(member, ended);
    else if (member->cluster && status != LS_PEER_LOST)
        ls_cluster_give_up(member->cluster, "it failed; see its log");
    if (status && member->child > 0)
        kill(member->child, SIGUSR1);
    close(member->line);
    await_child(member);
    ls_cluster_close(member->cluster);
    free(member->pulses);
    free(member->answers);
    return status ? status : ended;
}

enum ls_status compare_crew_divide(const struct compare_crew_options *options,
                                   struct compare_crew *out, bool *passed_on)
{
    struct member member = {.options = options};
    const pid_t parent = getpid();
    const int listener = options->place->listen_fd;
    int ends[2] = {-1, -1};
    fflush(stdout);
    fflush(stderr);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0)
        member.child = fork();
    *passed_on = ends[0] < 0 || member.child != 0;
    if (!*passed_on) {
        close(ends[0]);
        if (listener >= 0)
            close(listener);
        return begin_child(parent, ends[1], out);
    }
    if (ends[0] < 0 || member.child < 0) {
        ls_error("compare", "cannot start a child process: %s", strerror(errno));
        return LS_FAILED;
    }
    close(ends[1]);
    member.line = ends[0];
    return take_part(&member);
}
