// SPDX-License-Identifier: Apache-2.0
// The state of an opened plugin, which the core allocates. In front of each state are 64 bytes that plugins do not see.
#ifndef LS_BASE_INSTANCE_H
#define LS_BASE_INSTANCE_H

#include <assert.h>
#include <stdint.h>

struct ls_instance {
    uint64_t magic; // LS_INSTANCE_MAGIC
    const void *interface; // the table that it was created for
    void *context; // its creator's
    uint64_t reserved[5];
};

_Static_assert(sizeof(struct ls_instance) == 64, "half a pair of cache lines");

#define LS_INSTANCE_MAGIC UINT64_C(0x54534e494b434f4c)

// Zeroed memory for a plugin's state, aligned to 128 bytes. `interface` is the table of the plugin's kind, which the state
// is opened and closed with. NULL: no memory. [any thread]
void *ls_instance_create(const void *interface, uint64_t state_bytes);
void ls_instance_destroy(void *state); // takes NULL

static inline struct ls_instance *ls_instance_of(const void *state)
{
    struct ls_instance *instance = (struct ls_instance *)(uintptr_t)state - 1;
    assert(instance->magic == LS_INSTANCE_MAGIC);
    return instance;
}

#endif
