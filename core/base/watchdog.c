// SPDX-License-Identifier: Apache-2.0
// Looks at the notes of core/base/inside.h.
#include "core/base/watchdog.h"

#include "core/base/clock.h"
#include "core/base/inside_internal.h"
#include "core/base/log.h"
#include "core/base/threads.h"

#include <stdio.h>

// Waits for a peer end first, with a message that says more; on a busy machine they end late.
#define SLACK_NS UINT64_C(600000000)
#define MOST_SLACK_NS UINT64_C(4000000000)
// For a call that never returns but keeps calling the host, and other plugins through it. It gets more time, as a hook may
// wait for several peers, for each of them as long as the deadline.
#define OUTER_LEAST_NS UINT64_C(7000000000)
#define LONGEST_PAUSE_NS UINT64_C(250000000)
#define SHORTEST_PAUSE_NS UINT64_C(10000000)
// A look that comes so much later than it should: the process was stopped (Ctrl-Z, a debugger), not only delayed.
#define STOPPED_NS UINT64_C(500000000)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of starts and stops
static pthread_t thread;
static uint32_t users;
static _Atomic uint64_t deadline;
static _Atomic uint32_t over; // waited on
static _Atomic uint32_t running; // likewise: the thread has begun
static _Atomic(void (*)(uint32_t)) on_stuck;
static struct ls_inside *main_record;
static atomic_bool fired;

struct finding {
    struct ls_inside_call call;
    int64_t replica;
    uint64_t for_ns;
};

static bool is_watched(const struct ls_inside *record)
{
    return record == main_record || atomic_load(&record->replica) >= 0;
}

static void refresh(struct ls_inside *record, uint64_t now)
{
    const uint32_t moves = atomic_load_explicit(&record->moves, memory_order_relaxed);
    // Calls of sites are the outermost ones where no other call is under way.
    const bool within = atomic_load_explicit(&record->plugin, memory_order_relaxed) != NULL;
    const uint32_t outer =
        atomic_load_explicit(&record->outer_moves, memory_order_relaxed) + (within ? 0 : moves);
    if (!record->watched || moves != record->seen)
        record->since_ns = now;
    if (!record->watched || outer != record->outer_seen)
        record->outer_since_ns = now;
    record->watched = true;
    record->seen = moves;
    record->outer_seen = outer;
}

// Of the watched threads that are in a plugin, the one that has been in its call longest; and how long ago any watched
// thread last moved. False: none is in a plugin.
static bool find(uint64_t now, bool outer, struct finding *out)
{
    uint64_t last_move = 0, oldest = UINT64_MAX;
    for (struct ls_inside *record = atomic_load(&ls_inside_list); record; record = record->next) {
        if (!is_watched(record))
            continue;
        const uint64_t since = outer ? record->outer_since_ns : record->since_ns;
        const struct ls_inside_call call = ls_inside_read(record);
        last_move = since > last_move ? since : last_move;
        if (!call.plugin || since >= oldest)
            continue;
        oldest = since;
        out->call = call;
        out->replica = atomic_load(&record->replica);
    }
    out->for_ns = now - last_move;
    return oldest != UINT64_MAX;
}

// `afresh`: what was seen before does not count.
static bool look(bool afresh, struct finding *out)
{
    const uint64_t now = ls_clock_ns(), most = atomic_load(&deadline);
    const uint64_t quarter = most / 4 < MOST_SLACK_NS ? most / 4 : MOST_SLACK_NS;
    const uint64_t most_outer = most + (most > OUTER_LEAST_NS ? most : OUTER_LEAST_NS);
    pthread_mutex_lock(&ls_inside_lock);
    for (struct ls_inside *record = atomic_load(&ls_inside_list); record; record = record->next)
        if (is_watched(record)) {
            record->watched = record->watched && !afresh;
            refresh(record, now);
        }
    const bool hangs = (find(now, false, out) && out->for_ns > most + quarter + SLACK_NS) ||
                       (find(now, true, out) && out->for_ns > most_outer);
    pthread_mutex_unlock(&ls_inside_lock);
    return hangs;
}

static void tell_stuck(int64_t replica)
{
    void (*stuck)(uint32_t) = atomic_load(&on_stuck);
    if (stuck && !atomic_exchange(&fired, true))
        stuck(replica < 0 ? LS_NO_REPLICA : (uint32_t)replica);
}

static void report(const struct finding *finding)
{
    char text[256], whose[32] = "";
    if (finding->replica >= 0)
        snprintf(whose, sizeof(whose), "replica %u hangs: ", (uint32_t)finding->replica);
    ls_error(NULL,
             "%s%s has not returned, and no replica has made progress for %.1f s; if it is only "
             "slow, raise "
             "--deadline",
             whose, ls_inside_text(&finding->call, text, sizeof(text)),
             (double)finding->for_ns * 1e-9);
    tell_stuck(finding->replica);
}

static void *watch(void *argument)
{
    (void)argument;
    struct finding finding;
    atomic_store(&running, 1);
    ls_wake_word((const uint32_t *)&running);
    while (!atomic_load(&over)) {
        uint64_t pause = atomic_load(&deadline) / 16;
        pause = pause > LONGEST_PAUSE_NS    ? LONGEST_PAUSE_NS
                : pause < SHORTEST_PAUSE_NS ? SHORTEST_PAUSE_NS
                                            : pause;
        const uint64_t begin = ls_clock_ns();
        ls_wait_word((const uint32_t *)&over, 0, pause);
        const bool stopped = ls_clock_ns() - begin > pause + STOPPED_NS;
        if (!atomic_load(&over) && !atomic_load(&fired) && look(stopped, &finding))
            report(&finding);
    }
    return NULL;
}

// A thread that begins holds locks of libc and of sanitizers, and the loader forks next, to probe plugins: a child that is
// made in that moment finds the locks held for ever. Once it is in its loop, the thread holds none of them.
static void wait_until_running(void)
{
    while (!atomic_load(&running))
        ls_wait_word((const uint32_t *)&running, 0, LONGEST_PAUSE_NS);
}

enum ls_status ls_watchdog_start(uint64_t deadline_ns, void (*stuck)(uint32_t rank))
{
    enum ls_status status = LS_OK;
    pthread_mutex_lock(&lock);
    if (!users) {
        main_record = ls_inside_mine();
        atomic_store(&deadline, deadline_ns);
        atomic_store(&over, 0);
        atomic_store(&running, 0);
        atomic_store(&fired, false);
        atomic_store(&on_stuck, stuck);
        atomic_store(&ls_inside_lost_thread, tell_stuck);
        status = ls_thread_start(&thread, "watchdog", watch, NULL);
        if (!status)
            wait_until_running();
    } else if (deadline_ns > atomic_load(&deadline)) {
        atomic_store(&deadline, deadline_ns);
    }
    users += !status;
    pthread_mutex_unlock(&lock);
    return status;
}

void ls_watchdog_stop(void)
{
    pthread_mutex_lock(&lock);
    if (users && --users == 0) {
        atomic_store(&over, 1);
        ls_wake_word((const uint32_t *)&over);
        pthread_join(thread, NULL);
        atomic_store(&ls_inside_lost_thread, NULL);
        main_record = NULL;
    }
    pthread_mutex_unlock(&lock);
}
