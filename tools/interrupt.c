// SPDX-License-Identifier: Apache-2.0
// Interruptions by signal.
#include "tools/interrupt.h"

#include "core/run/run.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#define ECHO_MS 500

static struct ls_run *_Atomic running;
static atomic_bool asked; // that run to end
static atomic_bool terminated; // by SIGTERM
static atomic_bool over; // a run has ended: what is left takes some seconds at most

int interrupt_exit_code(void)
{
    return atomic_load(&terminated) ? 128 + SIGTERM : LS_INTERRUPTED;
}

bool interrupt_is_echo(int number)
{
    static _Atomic int last_number;
    static _Atomic int64_t last_ms;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const int64_t now_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    if (atomic_load(&last_number) == number && now_ms - atomic_load(&last_ms) < ECHO_MS)
        return true;
    atomic_store(&last_number, number);
    atomic_store(&last_ms, now_ms);
    return false;
}

static void on_interrupt(int number)
{
    static const char early[] = "lockstep: error: interrupted before the first step\n";
    struct ls_run *run = atomic_load(&running);
    if (number == SIGTERM && !atomic_load(&asked)) // the first one counts
        atomic_store(&terminated, true);
    if (!run && !atomic_load(&over)) {
        (void)!write(STDERR_FILENO, early, sizeof(early) - 1);
        _exit(interrupt_exit_code());
    }
    if (interrupt_is_echo(number))
        return;
    if (!atomic_exchange(&asked, true)) {
        if (run)
            ls_run_interrupt_by(run, (uint32_t)number);
        return;
    }
    signal(number, SIG_DFL);
    raise(number); // arrives when this handler has returned
}

static void catch_one(int number)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART}, before;
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler == SIG_IGN)
        return;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

void interrupt_catch(void)
{
    catch_one(SIGINT);
    catch_one(SIGTERM);
    catch_one(SIGHUP);
}

void interrupt_run(struct ls_run *run)
{
    const struct ls_run *before = atomic_load(&running);
    // One that has reached another worker has ended this one, too.
    if (!run && before && ls_run_interrupted_by(before) == SIGTERM)
        atomic_store(&terminated, true);
    atomic_store(&asked, false);
    atomic_store(&over, !run && before);
    atomic_store(&running, run);
}
