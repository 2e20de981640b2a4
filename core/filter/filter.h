// SPDX-License-Identifier: Apache-2.0
// The plan of a filter for a bucket: what it takes, and its stages, read and checked once. Knows
// nothing of communicators: who runs the stages does (core/strategy/filtered.c).
#ifndef LS_FILTER_FILTER_H
#define LS_FILTER_FILTER_H

#include "core/base/status.h"
#include "core/plugin/filter.h"

#include <stdbool.h>

struct ls_filter_stage {
    bool collective; // else local
    uint32_t function; // of a local one
    uint32_t operation, dtype, reduction; // of a collective one
    uint64_t offset, count; // bytes of scratch, elements
};

struct ls_filter_plan {
    const struct ls_filter_interface *interface;
    struct ls_filter_call call;
    struct ls_filter_variable *variables; // those that it takes, in x one after the other
    uint64_t *parts; // of a reduce-scatter: those of the call
    uint32_t *taken; // for each of these, which of the variables that there were it is
    struct ls_filter_stage stages[LS_FILTER_STAGES];
    uint32_t stage_count; // 0: everything travels as it is
    uint64_t scratch_bytes, shared_bytes;
};

// For `count` variables of a range, in their order; `name` is the filter's, for messages. `ends`:
// of a reduce-scatter, where the part of each rank ends in the range, and the variables' `first` is
// where they are in it; NULL: an all-reduce. LS_FAILED, logged: the plugin writes stages that make
// no sense; else what the plugin answers.
LS_STATUS ls_filter_plan_create(const struct ls_filter_interface *interface,
                                const struct ls_host *host, const char *name, uint32_t world,
                                const struct ls_filter_variable *variables, uint32_t count,
                                const uint64_t *ends, struct ls_filter_plan **out);
void ls_filter_plan_destroy(struct ls_filter_plan *plan); // NULL, too

#endif
