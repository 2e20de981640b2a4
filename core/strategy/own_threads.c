// SPDX-License-Identifier: Apache-2.0
// Threads of a strategy's own: servers, for example.
#include "core/strategy/internal.h"

#include "core/base/caller.h"
#include "core/base/clock.h"
#include "core/base/inside.h"
#include "core/base/log.h"
#include "core/base/threads.h"
#include "core/base/trace.h"
#include "core/plugin/waiting.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SLEEP_NS UINT64_C(100000000)
#define AFTER_ABORT_NS UINT64_C(200000000)

struct ls_strategy_thread {
    struct ls_strategy_thread *next; // of the driver
    struct ls_driver *driver;
    pthread_t thread;
    char name[16];
    char plugin[96]; // "strategy-parameter-server"
    int32_t (*run)(void *context);
    void *context;
    int32_t status;
    _Atomic uint32_t ended; // waited on
};

static void *thread_main(void *argument)
{
    struct ls_strategy_thread *thread = argument;
    struct ls_driver *driver = thread->driver;
    ls_trace_move(1 + driver->count, driver->options.strategy.plugin->name, NULL);
    const struct ls_inside_call before = ls_inside_enter(thread->plugin, thread->name);
    const uint32_t reasons = ls_thread_reasons();
    thread->status = thread->run(thread->context);
    ls_inside_leave(before);
    if (thread->status && thread->status != LS_ABORTED) {
        if (reasons == ls_thread_reasons())
            ls_driver_note_silent(driver, thread->status);
        ls_driver_fail(driver, (enum ls_status)thread->status);
    }
    atomic_store(&thread->ended, 1);
    ls_wake_word((const uint32_t *)&thread->ended);
    return NULL;
}

static int32_t host_thread_start(const struct ls_strategy_host *table, const char *name,
                                 int32_t (*run)(void *context), void *context,
                                 struct ls_strategy_thread **out)
{
    struct ls_driver *driver = ls_driver_of(table);
    struct ls_strategy_thread *thread = calloc(1, sizeof(*thread));
    if (!thread)
        return LS_OUT_OF_MEMORY;
    thread->driver = driver;
    thread->run = run;
    thread->context = context;
    snprintf(thread->name, sizeof(thread->name), "%.15s", name);
    snprintf(thread->plugin, sizeof(thread->plugin), "strategy-%s", ls_driver_name(driver));
    const enum ls_status status =
        ls_thread_start(&thread->thread, thread->name, thread_main, thread);
    if (status) {
        free(thread);
        return (int32_t)status;
    }
    pthread_mutex_lock(&driver->lock);
    thread->next = driver->threads;
    driver->threads = thread;
    pthread_mutex_unlock(&driver->lock);
    *out = thread;
    return LS_OK;
}

static bool wait_for_end(struct ls_strategy_thread *thread, uint64_t deadline_ns)
{
    const uint64_t begin = ls_clock_ns();
    while (!atomic_load(&thread->ended)) {
        if (ls_clock_ns() - begin >= deadline_ns)
            return false;
        ls_wait_word((const uint32_t *)&thread->ended, 0, SLEEP_NS);
    }
    return true;
}

void ls_driver_wait_for_threads(struct ls_driver *driver)
{
    for (struct ls_strategy_thread *thread = driver->threads; thread; thread = thread->next)
        (void)wait_for_end(thread, AFTER_ABORT_NS);
}

// A thread that not even an abort wakes is left running, so its memory and the driver's must stay.
static int32_t join(struct ls_driver *driver, struct ls_strategy_thread *thread)
{
    const uint64_t deadline_ns = driver->options.deadline_ns;
    bool ended = wait_for_end(thread, deadline_ns);
    if (!ended) {
        ls_driver_abort(driver);
        ended = wait_for_end(thread, AFTER_ABORT_NS);
    }
    if (!ended) {
        ls_error(ls_driver_name(driver),
                 "thread '%s' of plugin %s has not ended %.1f s after it should have; if it is "
                 "only slow, raise --deadline",
                 thread->name, thread->plugin, (double)deadline_ns * 1e-9);
        driver->hangs = true;
        return LS_PEER_LOST;
    }
    pthread_join(thread->thread, NULL);
    const int32_t status = thread->status;
    free(thread);
    return status;
}

static int32_t host_thread_join(const struct ls_strategy_host *table,
                                struct ls_strategy_thread *thread)
{
    struct ls_driver *driver = ls_driver_of(table);
    if (!thread)
        return LS_OK;
    pthread_mutex_lock(&driver->lock);
    struct ls_strategy_thread **place = &driver->threads;
    while (*place && *place != thread)
        place = &(*place)->next;
    if (*place)
        *place = thread->next;
    pthread_mutex_unlock(&driver->lock);
    return join(driver, thread);
}

static const struct ls_trace_label barrier_span = {.category = "strategy",
                                                   .name = "wait for the others"};

static int32_t host_barrier(const struct ls_strategy_host *table, uint32_t replica)
{
    struct ls_driver *driver = ls_driver_of(table);
    if (!ls_driver_find_member(table, "barrier", replica))
        return LS_FAILED;
    ls_trace_begin(&barrier_span, 0);
    const enum ls_status status =
        ls_barrier_wait(&driver->barrier, replica, driver->options.deadline_ns);
    ls_trace_end();
    return (int32_t)status;
}

const struct ls_strategy_threads ls_driver_threads = {
    .struct_size = sizeof(ls_driver_threads),
    .barrier = host_barrier,
    .start = host_thread_start,
    .join = host_thread_join,
};

void ls_driver_close_threads(struct ls_driver *driver)
{
    while (driver->threads) {
        struct ls_strategy_thread *thread = driver->threads;
        driver->threads = thread->next;
        ls_error(ls_driver_name(driver), "thread '%s' was not joined: an error of the plugin",
                 thread->name);
        (void)join(driver, thread);
    }
}
