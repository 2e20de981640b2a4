// SPDX-License-Identifier: Apache-2.0
// Looks at the notes of core/base/inside.h.
#include "core/base/watchdog.h"

#include "core/base/caller.h"
#include "core/base/clock.h"
#include "core/base/compiling.h"
#include "core/base/inside_internal.h"
#include "core/base/log.h"
#include "core/base/threads.h"
#include "core/plugin/waiting.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Waits for a peer end first, with a message that says more; on a busy machine they end late.
#define SLACK_NS UINT64_C(600000000)
#define MOST_SLACK_NS UINT64_C(4000000000)
// For a call that never returns but keeps calling the host, and other plugins through it. It gets
// more time, as a hook may wait for several peers, for each of them as long as the deadline.
#define OUTER_LEAST_NS UINT64_C(7000000000)
#define LONGEST_PAUSE_NS UINT64_C(250000000)
#define SHORTEST_PAUSE_NS UINT64_C(10000000)
// A look that comes so much later than it should: the process was stopped (Ctrl-Z, a debugger), not
// only delayed.
#define STOPPED_NS UINT64_C(500000000)
// How often the expectations are looked at, and how long the thread sleeps where nothing is to be
// looked at.
#define LOOK_NS UINT64_C(1000000000)
#define IDLE_NS UINT64_C(3600000000000)

// What is watched for one caller: its replicas, and the thread that has called ls_watchdog_start
// first.
struct watch {
    struct ls_caller *caller; // shared, so that no other one gets its address
    const struct ls_inside *main_record;
    void (*on_stuck)(uint32_t);
    uint64_t deadline;
    uint32_t users;
    bool fired;
    bool said; // that something compiles
    struct watch *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of starts and stops
static pthread_t thread;
static bool running; // the thread
static atomic_bool over;
static atomic_bool idle; // the thread sleeps until it is woken
static uint32_t changes; // a word that the thread waits on

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER; // taken before ls_inside_lock
static struct watch *list;
static struct ls_expectation *expectations;

struct finding {
    struct ls_inside_call call;
    int64_t replica;
    uint64_t for_ns;
    bool compiles;
};

enum verdict { FINE, COMPILES, HANGS };

static bool is_watched(const struct watch *watch, const struct ls_inside *record)
{
    return record->caller == watch->caller &&
           (record == watch->main_record || atomic_load(&record->replica) >= 0);
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

// Of the watched threads that are in a plugin, the one that has been in its call longest, or one
// that compiles; and how long ago any watched thread last moved. False: none is in a plugin.
static bool find(const struct watch *watch, uint64_t now, bool outer, struct finding *out)
{
    uint64_t last_move = 0, oldest = UINT64_MAX;
    out->compiles = false;
    for (struct ls_inside *record = atomic_load(&ls_inside_list); record; record = record->next) {
        if (!is_watched(watch, record))
            continue;
        const uint64_t since = outer ? record->outer_since_ns : record->since_ns;
        const struct ls_inside_call call = ls_inside_read(record);
        const bool compiles = call.plugin && strcmp(call.name, LS_COMPILING) == 0;
        last_move = since > last_move ? since : last_move;
        if (!call.plugin || (!compiles && (out->compiles || since >= oldest)))
            continue;
        oldest = since;
        out->compiles = compiles;
        out->call = call;
        out->replica = atomic_load(&record->replica);
    }
    out->for_ns = now - last_move;
    return oldest != UINT64_MAX;
}

static enum verdict judge(const struct finding *finding, uint64_t most, uint64_t slack)
{
    const uint64_t times = finding->compiles ? LS_COMPILING_TIMES : 1;
    if (finding->for_ns > times * most + slack)
        return HANGS;
    return finding->for_ns > most + slack ? COMPILES : FINE;
}

// `afresh`: what was seen before does not count.
static enum verdict look(const struct watch *watch, bool afresh, struct finding *out)
{
    const uint64_t now = ls_clock_ns(), most = watch->deadline;
    const uint64_t quarter = most / 4 < MOST_SLACK_NS ? most / 4 : MOST_SLACK_NS;
    enum verdict verdict = FINE;
    pthread_mutex_lock(&ls_inside_lock);
    for (struct ls_inside *record = atomic_load(&ls_inside_list); record; record = record->next)
        if (is_watched(watch, record)) {
            record->watched = record->watched && !afresh;
            refresh(record, now);
        }
    if (find(watch, now, false, out))
        verdict = judge(out, most, quarter + SLACK_NS);
    if (verdict == FINE && find(watch, now, true, out))
        verdict = judge(out, most, most > OUTER_LEAST_NS ? most : OUTER_LEAST_NS);
    pthread_mutex_unlock(&ls_inside_lock);
    return verdict;
}

static void tell_stuck(void (*stuck)(uint32_t), int64_t replica)
{
    if (stuck)
        stuck(replica < 0 ? LS_NO_REPLICA : (uint32_t)replica);
}

// A plugin has ended the calling thread.
static void tell_lost(int64_t replica)
{
    const struct ls_caller *caller = ls_caller_mine();
    void (*stuck)(uint32_t) = NULL;
    pthread_mutex_lock(&list_lock);
    for (struct watch *watch = list; watch; watch = watch->next)
        if (watch->caller == caller && !watch->fired) {
            watch->fired = true;
            stuck = watch->on_stuck;
        }
    pthread_mutex_unlock(&list_lock);
    tell_stuck(stuck, replica);
}

static void report(const struct finding *finding, enum verdict verdict, void (*stuck)(uint32_t))
{
    char text[256], whose[32] = "";
    if (finding->replica >= 0)
        snprintf(whose, sizeof(whose), "replica %u%s: ", (uint32_t)finding->replica,
                 verdict == HANGS ? " hangs" : "");
    ls_inside_text(&finding->call, text, sizeof(text));
    if (verdict == COMPILES) {
        ls_warn(NULL, "%s%s has taken %.0f s; a device may compile there, for %d times --deadline",
                whose, text, (double)finding->for_ns * 1e-9, LS_COMPILING_TIMES);
        return;
    }
    ls_error(NULL,
             "%s%s has not returned, and no replica has made progress for %.1f s; if it is only "
             "slow, raise "
             "--deadline",
             whose, text, (double)finding->for_ns * 1e-9);
    tell_stuck(stuck, finding->replica);
}

// Whether there is something to be said of the watch that has not been said.
static enum verdict look_anew(struct watch *watch, bool stopped, struct finding *out)
{
    const enum verdict verdict = watch->fired ? FINE : look(watch, stopped, out);
    if (verdict == COMPILES && watch->said)
        return FINE;
    watch->fired = watch->fired || verdict == HANGS;
    watch->said = watch->said || verdict == COMPILES;
    return verdict;
}

// Looks at each watch, and reports outside of the lock, because nobody knows what `stuck` does.
static void look_at_all(bool stopped)
{
    struct finding finding;
    void (*stuck)(uint32_t) = NULL;
    enum verdict verdict;
    do {
        verdict = FINE;
        pthread_mutex_lock(&list_lock);
        for (struct watch *watch = list; watch && verdict == FINE; watch = watch->next) {
            verdict = look_anew(watch, stopped, &finding);
            stuck = watch->on_stuck;
        }
        pthread_mutex_unlock(&list_lock);
        if (verdict != FINE)
            report(&finding, verdict, stuck);
    } while (verdict != FINE);
}

// ---- Expectations ----

static void look_at(struct ls_expectation *expectation, uint64_t now)
{
    const uint64_t began = atomic_load(&expectation->began_ns);
    if (began && now > began && now - began >= expectation->deadline_ns) {
        ls_error(
            expectation->scope,
            "collective %s: build_schedule for rank %u of %u has not returned after %.3g s; the "
            "plugin hangs, and the program ends",
            expectation->name, atomic_load(&expectation->rank), expectation->world,
            (double)expectation->deadline_ns * 1e-9);
        _exit(ls_status_exit_code(expectation->status));
    }
    if (!expectation->tick || now < atomic_load(&expectation->next_tick_ns))
        return;
    atomic_store(&expectation->next_tick_ns, now + LOOK_NS);
    expectation->tick(expectation->context);
}

static void look_at_expectations(void)
{
    const uint64_t now = ls_clock_ns();
    pthread_mutex_lock(&list_lock);
    for (struct ls_expectation *one = expectations; one; one = one->next)
        if (atomic_load(&one->entered))
            look_at(one, now);
    pthread_mutex_unlock(&list_lock);
}

static _Thread_local struct ls_expectation *expected; // of this thread

struct ls_expected ls_watchdog_expect(uint32_t rank)
{
    struct ls_expected before = {.inside = ls_inside_now(), .expectation = expected};
    if (!before.expectation)
        return before;
    before.began_ns = atomic_load(&before.expectation->began_ns);
    before.rank = atomic_load(&before.expectation->rank);
    atomic_store(&before.expectation->rank, rank);
    atomic_store(&before.expectation->began_ns, ls_clock_ns());
    return before;
}

void ls_watchdog_returned(const struct ls_expected *call)
{
    ls_inside_return(call->inside);
    if (!call->expectation)
        return;
    atomic_store(&call->expectation->rank, call->rank);
    atomic_store(&call->expectation->began_ns, call->began_ns ? ls_clock_ns() : 0);
}

// ---- The thread ----

static void wake(void)
{
    __atomic_fetch_add(&changes, 1, __ATOMIC_RELEASE);
    ls_wake_word(&changes);
}

static uint64_t shorter(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t find_pause(void)
{
    uint64_t pause = IDLE_NS;
    pthread_mutex_lock(&list_lock);
    for (const struct watch *watch = list; watch; watch = watch->next)
        pause = shorter(pause, shorter(watch->deadline / 16, LONGEST_PAUSE_NS));
    if (pause < SHORTEST_PAUSE_NS)
        pause = SHORTEST_PAUSE_NS;
    for (struct ls_expectation *one = expectations; one; one = one->next)
        if (atomic_load(&one->entered))
            pause = shorter(pause, shorter(one->deadline_ns, LOOK_NS));
    pthread_mutex_unlock(&list_lock);
    return pause;
}

// A thread that enters an expectation either is seen by find_pause, or sees `idle` and wakes this
// thread.
static void *watch_calls(void *argument)
{
    (void)argument;
    for (;;) {
        const uint32_t seen = __atomic_load_n(&changes, __ATOMIC_ACQUIRE);
        if (atomic_load(&over))
            return NULL;
        atomic_store(&idle, true);
        const uint64_t pause = find_pause();
        atomic_store(&idle, pause == IDLE_NS);
        const uint64_t begin = ls_clock_ns();
        ls_wait_word(&changes, seen, pause);
        const bool stopped = ls_clock_ns() - begin > pause + STOPPED_NS;
        if (atomic_load(&over) || pause == IDLE_NS)
            continue;
        look_at_expectations();
        look_at_all(stopped);
    }
}

// Under `lock`.
static struct watch *find_mine(void)
{
    struct watch *watch = list;
    while (watch && watch->caller != ls_caller_mine())
        watch = watch->next;
    return watch;
}

static void destroy(struct watch *watch)
{
    ls_caller_release(watch->caller);
    free(watch);
}

static struct watch *add_watch(uint64_t deadline_ns, void (*stuck)(uint32_t rank))
{
    struct watch *watch = malloc(sizeof(*watch));
    if (!watch)
        return NULL;
    *watch = (struct watch){.caller = ls_caller_share(),
                            .main_record = ls_inside_mine(),
                            .on_stuck = stuck,
                            .deadline = deadline_ns};
    pthread_mutex_lock(&list_lock);
    watch->next = list;
    list = watch;
    pthread_mutex_unlock(&list_lock);
    return watch;
}

static enum ls_status start_thread(void)
{
    if (running)
        return LS_OK;
    atomic_store(&over, false);
    atomic_store(&ls_inside_lost_thread, tell_lost);
    const enum ls_status status = ls_thread_start(&thread, "watchdog", watch_calls, NULL);
    running = !status;
    return status;
}

// Under `lock`: ends the thread where nothing is left to be watched.
static void stop_thread(void)
{
    pthread_mutex_lock(&list_lock);
    const bool last = !list && !expectations;
    pthread_mutex_unlock(&list_lock);
    if (!last || !running)
        return;
    atomic_store(&over, true);
    wake();
    pthread_join(thread, NULL);
    running = false;
    atomic_store(&ls_inside_lost_thread, NULL);
}

static void remove_watch(struct watch *watch)
{
    pthread_mutex_lock(&list_lock);
    struct watch **place = &list;
    while (*place != watch)
        place = &(*place)->next;
    *place = watch->next;
    pthread_mutex_unlock(&list_lock);
    stop_thread();
    destroy(watch);
}

// ---- Forks ----

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

// The child has what is watched, but not the thread. Another thread may have had a lock, and ended
// with it; a call that was under way on another thread is in the parent alone.
static void after_fork_in_child(void)
{
    running = false;
    pthread_mutex_init(&lock, NULL);
    pthread_mutex_init(&list_lock, NULL);
    for (struct ls_expectation *one = expectations; one; one = one->next)
        if (one != expected)
            atomic_store(&one->entered, false);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, after_fork_in_child);
}

// ---- Starts and stops ----

enum ls_status ls_watchdog_start(uint64_t deadline_ns, void (*stuck)(uint32_t rank))
{
    pthread_once(&fork_once, watch_forks);
    pthread_mutex_lock(&lock);
    struct watch *watch = find_mine();
    if (!watch)
        watch = add_watch(deadline_ns, stuck);
    enum ls_status status = watch ? LS_OK : LS_OUT_OF_MEMORY;
    if (watch) {
        pthread_mutex_lock(&list_lock);
        watch->users++;
        watch->deadline = deadline_ns > watch->deadline ? deadline_ns : watch->deadline;
        pthread_mutex_unlock(&list_lock);
        status = start_thread();
        wake(); // it may sleep for long
    }
    if (watch && status && --watch->users == 0)
        remove_watch(watch);
    pthread_mutex_unlock(&lock);
    return status;
}

void ls_watchdog_stop(void)
{
    pthread_mutex_lock(&lock);
    struct watch *watch = find_mine();
    if (watch && --watch->users == 0)
        remove_watch(watch);
    pthread_mutex_unlock(&lock);
}

enum ls_status ls_expectation_start(struct ls_expectation *expectation)
{
    pthread_once(&fork_once, watch_forks);
    pthread_mutex_lock(&lock);
    const enum ls_status status = start_thread();
    if (!status) {
        pthread_mutex_lock(&list_lock);
        expectation->next = expectations;
        expectations = expectation;
        pthread_mutex_unlock(&list_lock);
    }
    expectation->started = !status;
    pthread_mutex_unlock(&lock);
    return status;
}

void ls_expectation_stop(struct ls_expectation *expectation)
{
    if (!expectation->started)
        return;
    expectation->started = false;
    pthread_mutex_lock(&lock);
    pthread_mutex_lock(&list_lock);
    struct ls_expectation **place = &expectations;
    while (*place != expectation)
        place = &(*place)->next;
    *place = expectation->next;
    pthread_mutex_unlock(&list_lock);
    stop_thread();
    pthread_mutex_unlock(&lock);
}

void ls_expectation_enter(struct ls_expectation *expectation)
{
    if (!expectation->started)
        return;
    expected = expectation;
    if (expectation->tick)
        atomic_store(&expectation->next_tick_ns, ls_clock_ns() + LOOK_NS);
    atomic_store(&expectation->entered, true);
    if (atomic_load(&idle))
        wake();
}

void ls_expectation_leave(struct ls_expectation *expectation)
{
    if (!expectation->started)
        return;
    expected = NULL;
    atomic_store(&expectation->entered, false);
}
