// SPDX-License-Identifier: Apache-2.0
#include "core/base/instance.h"

#include "core/base/memory.h"

#include <stdlib.h>

void *ls_instance_create(const void *interface, uint64_t state_bytes)
{
    if (state_bytes > SIZE_MAX - LS_APART)
        return NULL;
    char *memory = ls_calloc_cacheline(1, LS_APART + (size_t)state_bytes);
    if (!memory)
        return NULL;
    void *state = memory + LS_APART;
    struct ls_instance *instance = (struct ls_instance *)state - 1;
    *instance = (struct ls_instance){.magic = LS_INSTANCE_MAGIC, .interface = interface};
    return state;
}

void ls_instance_destroy(void *state)
{
    if (!state)
        return;
    ls_instance_of(state)->magic = 0;
    free((char *)state - LS_APART);
}
