// SPDX-License-Identifier: Apache-2.0
// What updates a range of the flat buffers: the kernels of clipping, weight decay, the optimizer
// and the average of weights, in the order in which they run. A range is cut into runs of places
// that one kernel can update: the same operation with the same coefficients. Moving statistics are
// averages, whatever the optimizer does beside them. [one thread at a time]
#ifndef LS_REPLICA_UPDATER_H
#define LS_REPLICA_UPDATER_H

#include "core/graph/program.h"
#include "core/optimizer/optimizer.h"

struct ls_updater;

struct ls_updater_options {
    struct ls_device *device;
    const char *about; // in messages of the device: "update"
    const struct ls_parameter_plan *plan;
    const struct ls_optimizer *optimizer;
    uint64_t first, end; // floats of the flat buffers; `first` is a multiple of LS_ALIGNMENT bytes
    // Where all gradients are looked at together: which of the measures (pairs of doubles) are this
    // range's, from which on; and how many there are in all.
    uint64_t first_measure, measures;
};

// LS_UNSUPPORTED: the device does not offer an operation, *missing.
LS_STATUS ls_updater_create(const struct ls_updater_options *options, const char **missing,
                            struct ls_updater **out);
void ls_updater_destroy(struct ls_updater *updater); // takes NULL

// Whether the range has a part of a variable whose norm the optimizer needs.
bool ls_updater_cuts_variables(const struct ls_parameter_plan *plan,
                               const struct ls_optimizer *optimizer, uint64_t first, uint64_t end);

// How many measures a range has: one for each trained place in it, or part of one.
uint64_t ls_updater_count_measures(const struct ls_parameter_plan *plan, uint64_t first,
                                   uint64_t end);

uint64_t ls_updater_scratch_bytes(const struct ls_updater *updater);

// Where a range is: all but the measures from its first float on. Gradients may be changed.
struct ls_updater_memory {
    struct ls_memory gradients, parameters, states[LS_OPTIMIZER_STATES];
    struct ls_memory measures; // of all ranges; nowhere: the optimizer needs none
    struct ls_memory own; // LS_UPDATER_OWN bytes for measures of one variable; likewise
    struct ls_memory scratch, record;
};
#define LS_UPDATER_OWN (4 * sizeof(double))

// Where the optimizer measures all gradients: of every range, before any update. It divides the
// gradients by the loss scale of the record, if there is one, and leaves them so.
LS_STATUS ls_updater_measure(const struct ls_updater *updater,
                             const struct ls_updater_memory *memory);
// Whether all gradients behind these measures are finite.
bool ls_measures_finite(const double *measures, uint64_t count);
LS_STATUS ls_updater_run(const struct ls_updater *updater, const struct ls_updater_memory *memory);

#endif
