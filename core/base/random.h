// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: a draw is a function of (key, index), so it depends neither on
// threads nor on the order of draws. ls_random_key() builds a key from the seed and the purpose of
// the draw. [any thread]
#ifndef LS_BASE_RANDOM_H
#define LS_BASE_RANDOM_H

#include <stdint.h>

uint64_t ls_random_key(uint64_t seed, uint64_t purpose);
uint64_t ls_random_key_text(uint64_t seed, const char *purpose);

uint64_t ls_random_u64(uint64_t key, uint64_t index);
double ls_random_uniform(uint64_t key, uint64_t index); // [0, 1), 53 bits
double ls_random_normal(uint64_t key, uint64_t index); // mean 0, deviation 1 (Box, Muller 1958)

// `order` becomes a random permutation of 0 .. count - 1 (Fisher, Yates).
void ls_random_permutation(uint64_t key, uint32_t *order, uint64_t count);

#endif
