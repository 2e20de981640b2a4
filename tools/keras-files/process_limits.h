// SPDX-License-Identifier: Apache-2.0
// What this process may use while it reads a file of others. [main thread]
#ifndef LS_TOOLS_KERAS_FILES_PROCESS_LIMITS_H
#define LS_TOOLS_KERAS_FILES_PROCESS_LIMITS_H

#include "tools/keras-files/contents.h"

// Ends with its parent, leaves no core, gets no new rights; `seconds` of processor time; writes at
// most `bytes` to any file. Not for writers, whose input is Lockstep's own: memory.
bool limits_set(uint32_t seconds, uint64_t bytes);
bool limits_memory(void);
// Allows memory for `bytes` of data, beside what was allowed before.
bool limits_allow(uint64_t bytes, struct contents *contents);
// No file can be opened from now on.
bool limits_close_files(struct contents *contents);

#endif
