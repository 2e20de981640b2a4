// SPDX-License-Identifier: Apache-2.0
// enum ls_status inside the core, with its text and the exit code it ends the program with.
#ifndef LS_BASE_STATUS_H
#define LS_BASE_STATUS_H

#include "core/attributes.h"
#include "core/plugin/status.h"

// The return type of every function that can fail; the caller must check it.
#define LS_STATUS LS_MUST_CHECK enum ls_status

// "deadline passed or peer lost", ... Never NULL.
const char *ls_status_text(enum ls_status status);

// 0 done, 1 failed, 2 usage, 3 bad input, 4 not available, 5 peer lost or deadline, 130 interrupted.
int ls_status_exit_code(enum ls_status status);

// What a function of a program's own has answered. A number that is no status, or one that only means
// something between parts of the core, is LS_FAILED.
enum ls_status ls_status_of_program(enum ls_status answer);

#endif
