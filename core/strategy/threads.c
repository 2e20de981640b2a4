// SPDX-License-Identifier: Apache-2.0
// Threads of a strategy's own: servers, for example.
#include "core/strategy/internal.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/threads.h"
#include "core/base/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SLEEP_NS UINT64_C(100000000)

struct ls_strategy_thread {
    struct ls_strategy_thread *next; // of the driver
    struct ls_driver *driver;
    pthread_t thread;
    char name[16];
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
    thread->status = thread->run(thread->context);
    if (thread->status && thread->status != LS_ABORTED) {
        int32_t none = LS_OK;
        atomic_compare_exchange_strong(&driver->failure, &none, thread->status);
        ls_driver_abort(driver);
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

// Whom an abort does not wake either is left alone: its memory must stay.
static int32_t join(struct ls_driver *driver, struct ls_strategy_thread *thread)
{
    const uint64_t deadline_ns = driver->options.deadline_ns;
    bool ended = wait_for_end(thread, deadline_ns);
    if (!ended) {
        ls_error("strategy", "thread '%s' has not ended after %.1f s", thread->name,
                 (double)deadline_ns * 1e-9);
        ls_driver_abort(driver);
        ended = wait_for_end(thread, deadline_ns);
    }
    if (!ended)
        return LS_PEER_LOST;
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

void ls_driver_offer_threads(struct ls_strategy_host *table)
{
    table->thread_start = host_thread_start;
    table->thread_join = host_thread_join;
}

void ls_driver_close_threads(struct ls_driver *driver)
{
    while (driver->threads) {
        struct ls_strategy_thread *thread = driver->threads;
        driver->threads = thread->next;
        ls_error("strategy", "thread '%s' was not joined: an error of the plugin", thread->name);
        (void)join(driver, thread);
    }
}
