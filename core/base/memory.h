// SPDX-License-Identifier: Apache-2.0
// Memory whose place matters: on cache lines of its own, or where kernels may use it.
#ifndef LS_BASE_MEMORY_H
#define LS_BASE_MEMORY_H

#include <stddef.h>

// For memory that one thread writes often, so that threads do not slow each other down by false
// sharing: processors fetch cache lines of 64 bytes in pairs.
#define LS_APART 128

// Like calloc(), but the memory shares no pair of cache lines with anything else. NULL: no memory.
// Freed by free(). [any thread]
void *ls_calloc_cacheline(size_t count, size_t size);

// Like malloc(), but aligned to 64 bytes, as tensors are (LS_ALIGNMENT in core/plugin/device.h).
// NULL: no memory. Freed by free(). [any thread]
void *ls_malloc_aligned(size_t bytes);

// Returns freed memory to the system, which glibc would keep in its heaps: to be called when much
// was freed that will not be needed again. Not in steps, because the system clears each page that
// they take again. [any thread]
void ls_give_memory_back(void);

#endif
