// SPDX-License-Identifier: Apache-2.0
// Inputs of a collective that differ from rank to rank and from element to element, whose results are known and exact in
// every element type; and the count of what came out wrong. [any thread]
#ifndef LS_COLLECTIVE_KNOWN_VALUES_H
#define LS_COLLECTIVE_KNOWN_VALUES_H

#include <stdint.h>

#define LS_KNOWN_VALUES_WORLD \
    256 // sums of more ranks are not exact in bfloat16; in float32 4,096 are

struct ls_known_call {
    uint32_t operation; // enum ls_collective_operation
    uint32_t dtype;
    uint32_t reduction;
    uint32_t world;
    uint32_t root; // of broadcast and reduce
    uint64_t count; // elements of the whole buffer
    uint32_t wire; // as in struct ls_communicator_call: values and sums are exact in it, too
};

// What `rank` has before the call.
void ls_known_values_fill(const struct ls_known_call *call, uint32_t rank, void *data);
// Elements of the result of `rank` that are not what they must be. `first` (may be NULL) is the first of them.
uint64_t ls_known_values_wrong(const struct ls_known_call *call, uint32_t rank, const void *data,
                               uint64_t *first);
// Elements of the results of all ranks together.
uint64_t ls_known_values_checked(const struct ls_known_call *call);

#endif
