// SPDX-License-Identifier: Apache-2.0
// Devices compile what they have recorded, which may take much longer than any other call. The
// watchdog (core/base/watchdog.h) gives that call LS_COMPILING_TIMES the deadline, and a wait for a
// replica of this process does not count the time in which one of them compiles.
#ifndef LS_BASE_COMPILING_H
#define LS_BASE_COMPILING_H

#include <stdbool.h>
#include <stdint.h>

#define LS_COMPILING "record_end" // the name of the call
#define LS_COMPILING_TIMES 30

// Around the call. [any thread]
void ls_compiling_begin(void);
void ls_compiling_end(void);

// Whether a wait that began at `begin_ns` goes on, though its deadline has passed: a device of this
// process compiles, or has done so meanwhile, and the deadline has not passed since. [any thread]
bool ls_compiling_excuses(uint64_t begin_ns, uint64_t deadline_ns);

#endif
