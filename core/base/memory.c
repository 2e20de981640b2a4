// SPDX-License-Identifier: Apache-2.0
#include "core/base/memory.h"

#include "core/plugin/device.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

void *ls_calloc_cacheline(size_t count, size_t size)
{
    void *memory = NULL;
    if (size && count > (SIZE_MAX - LS_APART) / size)
        return NULL;
    const size_t bytes = (count * size + LS_APART - 1) / LS_APART * LS_APART;
    if (posix_memalign(&memory, LS_APART, bytes ? bytes : LS_APART))
        return NULL;
    memset(memory, 0, bytes);
    return memory;
}

void *ls_malloc_aligned(size_t bytes)
{
    void *memory = NULL;
    return posix_memalign(&memory, LS_ALIGNMENT, bytes ? bytes : 1) ? NULL : memory;
}

void ls_give_memory_back(void)
{
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}
