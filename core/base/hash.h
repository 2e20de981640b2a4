// SPDX-License-Identifier: Apache-2.0
// XXH64 of a sequence of byte ranges (library xxHash). [any thread]
#ifndef LS_BASE_HASH_H
#define LS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct ls_hash; // a running hash

struct ls_hash *ls_hash_create(void); // NULL: no memory
void ls_hash_destroy(struct ls_hash *hash);
void ls_hash_add(struct ls_hash *hash, const void *data, size_t bytes);
uint64_t ls_hash_get(const struct ls_hash *hash);

#endif
