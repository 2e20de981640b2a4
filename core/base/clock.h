// SPDX-License-Identifier: Apache-2.0
// Time. [any thread]
#ifndef LS_BASE_CLOCK_H
#define LS_BASE_CLOCK_H

#include <stdint.h>

uint64_t ls_clock_ns(void); // monotonic
uint64_t ls_clock_boot_ns(void); // the same, but it goes on while the machine sleeps

// Nanoseconds since this process was started by the kernel (resolution 10 ms).
uint64_t ls_clock_since_start_ns(void);

#endif
