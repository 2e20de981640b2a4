// SPDX-License-Identifier: Apache-2.0
// Ctrl-C, SIGTERM, and the end of the terminal (SIGHUP) for the commands that train and evaluate. [main thread]
#ifndef LS_TOOLS_INTERRUPT_H
#define LS_TOOLS_INTERRUPT_H

#include "lockstep.h"

#include <stdbool.h>

// From now on an interruption ends the program with 130 (SIGTERM: 143) and a message. After
// interrupt_run, the first interruption asks that run to stop after its current step, and only the
// second one ends the program at once. Ignored signals stay ignored. timeout(1), and a terminal
// that closes, send one signal twice; therefore the same signal within half a second does not count
// as a second one.
void interrupt_catch(void);
void interrupt_run(struct ls_run *run); // NULL: none any more

// The exit code of a program that was interrupted: 143 by SIGTERM, as who sends it expects; else
// 130.
int interrupt_exit_code(void);

// For signal handlers: whether this signal only repeats the one before.
bool interrupt_is_echo(int number);

#endif
