// SPDX-License-Identifier: Apache-2.0
// Memory that one thread writes often while others write theirs: apart, so that they do not take cache lines from each other.
#ifndef LS_BASE_MEMORY_H
#define LS_BASE_MEMORY_H

#include <stddef.h>

// Processors fetch cache lines of 64 bytes in pairs.
#define LS_APART 128

// As calloc(), but shares no pair of cache lines with anything else. NULL: no memory. For free(). [any thread]
void *ls_calloc_apart(size_t count, size_t size);

#endif
