// SPDX-License-Identifier: Apache-2.0
// Ctrl-C, SIGTERM, and the end of the terminal (SIGHUP) for the commands that train and evaluate. [main thread]
#ifndef LS_TOOLS_INTERRUPT_H
#define LS_TOOLS_INTERRUPT_H

#include "lockstep.h"

#include <stdbool.h>

// From here on an interruption ends the program with 130 and a line; once interrupt_run was called, it asks that run
// to end after its step, and only the second one ends the program at once. Signals that are ignored stay so. timeout(1), and a
// terminal that goes away, send one signal twice: the same one again within half a second is no second one.
void interrupt_catch(void);
void interrupt_run(struct ls_run *run); // NULL: none any more

// For signal handlers: whether this signal only repeats the one before.
bool interrupt_is_echo(int number);

#endif
