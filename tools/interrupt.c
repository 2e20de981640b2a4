// SPDX-License-Identifier: Apache-2.0
// Interruptions by signal.
#include "tools/interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

static struct ls_run *_Atomic running;

static void on_interrupt(int number)
{
    static const char early[] = "lockstep: error: interrupted before the first step\n";
    struct ls_run *run = atomic_load(&running);
    if (!run) {
        (void)!write(STDERR_FILENO, early, sizeof(early) - 1);
        _exit(LS_INTERRUPTED);
    }
    ls_run_interrupt(run);
    signal(number, SIG_DFL);
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
    atomic_store(&running, run);
}
