// SPDX-License-Identifier: Apache-2.0
// What a server process must know to update variables without a model: their places in the flat
// buffer, and the optimizer; as bytes that a worker sends. Private to strategy/.
#ifndef LS_STRATEGY_DESCRIPTION_H
#define LS_STRATEGY_DESCRIPTION_H

#include "core/replica/updater.h"

struct ls_described {
    const struct ls_parameter_plan *plan;
    const struct ls_optimizer *optimizer;
    uint64_t seed;
    const char *agreement; // what else all workers must have alike; a server does not read it
};

// Writes at most `room` bytes to `out`, and how many there are to `bytes`. LS_USAGE, logged: the
// optimizer is a function of the program.
LS_STATUS ls_describe(const struct ls_described *described, void *out, uint64_t room,
                      uint64_t *bytes);

// The same, read. `plan` has no device and nothing but places, which are reduced, and `tensors`.
struct ls_description {
    struct ls_parameter_plan plan;
    struct ls_tensor *tensors; // one a place
    char *names;
    struct ls_optimizer optimizer;
    uint64_t seed;
};

// LS_BAD_INPUT, logged: it makes no sense.
LS_STATUS ls_description_read(const void *data, uint64_t bytes, struct ls_description *out);
void ls_description_finish(struct ls_description *description); // takes a zeroed one

#endif
