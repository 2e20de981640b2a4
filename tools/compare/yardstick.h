// SPDX-License-Identifier: Apache-2.0
// What the runs of `lockstep compare` are held against, and what rounding alone does to it. [main
// thread]
//
// Both depend on the model. Unless a layer uses statistics of the batch, a strategy computes what
// one device does with the whole batch, and one device that takes the batch in two halves shows
// what rounding does. A BatchNormalization normalizes each replica's share by the share's own
// statistics: N replicas then compute what one device does that takes the same N shares one after
// the other. Halves would be another function, so rounding is shown by a run that begins or goes on
// with one rounding error more: in the learning rate, which is as much as one in each gradient, or
// where replicas round in the forward pass, too (synchronized statistics), in the initial weights.
//
// Where a model computes in 16 bits, or gradients travel in them, each gradient is rounded to them
// somewhere, so the learning rate of the second run is off by such a rounding. Halves alone show too
// little of it: by chance, hardly any weight may round to other 16 bits.
#ifndef LS_TOOLS_COMPARE_YARDSTICK_H
#define LS_TOOLS_COMPARE_YARDSTICK_H

#include "tools/compare/comparison.h"
#include "tools/compare/race.h"

struct compare_yardstick {
    enum ls_basis basis;
    uint32_t nudge_dtype; // as in struct ls_comparison
    size_t reference; // runner: one device with whole batches
    size_t *truth_of; // by runner, what it is held against; SIZE_MAX: nothing
    size_t twin, twin_of; // runners that differ by rounding alone; SIZE_MAX: there are none
};

// Adds the hidden runs that are held against the others, once the reference is prepared.
// LS_OUT_OF_MEMORY, LS_FAILED (logged).
LS_STATUS compare_yardstick_add(struct compare_race *race, size_t reference,
                                struct compare_yardstick *out);
// The hidden runs, in the sentence on what is trained: ", and the reference in two halves".
const char *compare_yardstick_text(const struct compare_yardstick *yardstick);
void compare_yardstick_finish(struct compare_yardstick *yardstick); // takes a zeroed one

#endif
