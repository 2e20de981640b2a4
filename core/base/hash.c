// SPDX-License-Identifier: Apache-2.0
// XXH64 with seed 0, from the library xxHash; its state stands behind our opaque struct.
#include "core/base/hash.h"

#include <stdlib.h>
#include <xxhash.h>

struct ls_hash {
    XXH64_state_t *state;
};

struct ls_hash *ls_hash_create(void)
{
    struct ls_hash *hash = malloc(sizeof(*hash));
    if (!hash)
        return NULL;
    hash->state = XXH64_createState();
    if (!hash->state) {
        free(hash);
        return NULL;
    }
    XXH64_reset(hash->state, 0);
    return hash;
}

void ls_hash_destroy(struct ls_hash *hash)
{
    if (!hash)
        return;
    XXH64_freeState(hash->state);
    free(hash);
}

void ls_hash_add(struct ls_hash *hash, const void *data, size_t bytes)
{
    if (bytes)
        XXH64_update(hash->state, data, bytes);
}

uint64_t ls_hash_get(const struct ls_hash *hash)
{
    return XXH64_digest(hash->state);
}
