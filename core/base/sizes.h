// SPDX-License-Identifier: Apache-2.0
// Options of programs that were compiled with the lockstep.h of another version: in front of lockstep.h
// is the rule. [any thread]
#ifndef LS_BASE_SIZES_H
#define LS_BASE_SIZES_H

#include "core/base/status.h"
#include "lockstep.h"

// Copies a struct of options that has `bytes` in the program to one that has `own` bytes here: fields
// that the program lacks become zero. LS_USAGE when a field that the library lacks is not zero. `from`
// NULL: all fields are zero. `name` ("struct ls_fit_options") is for the message.
LS_STATUS ls_take_options(const char *name, const void *from, size_t bytes, void *to, size_t own);

// The same for an array of layers that ends with LS_END. The caller frees `out`.
LS_STATUS ls_take_layers(const struct ls_layer *from, size_t bytes, struct ls_layer **out);

// The same for an array of tables; none: `out` is NULL. The caller frees `out`.
LS_STATUS ls_take_callbacks(const struct ls_callbacks *from, size_t bytes, uint32_t count,
                            struct ls_callbacks **out);

// The options of a fit, with what they point to.
struct ls_taken_fit {
    struct ls_fit_options options;
    struct ls_checkpoint_options checkpoints;
    struct ls_callbacks *callbacks;
};
// `out` is to be finished whatever the status is.
LS_STATUS ls_take_fit_options(const struct ls_fit_options *from, size_t bytes,
                              size_t callbacks_bytes, size_t checkpoint_bytes,
                              struct ls_taken_fit *out);
void ls_taken_fit_finish(struct ls_taken_fit *taken);

#endif
