// SPDX-License-Identifier: Apache-2.0
// Memory that one thread writes often, on cache lines of its own, so that threads do not slow each
// other down by false sharing.
#ifndef LS_BASE_MEMORY_H
#define LS_BASE_MEMORY_H

#include <stddef.h>

// Processors fetch cache lines of 64 bytes in pairs.
#define LS_APART 128

// Like calloc(), but the memory shares no pair of cache lines with anything else. NULL: no memory.
// Freed by free(). [any thread]
void *ls_calloc_cacheline(size_t count, size_t size);

#endif
