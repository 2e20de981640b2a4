// SPDX-License-Identifier: Apache-2.0
// The metrics of a model: their names, and the statistics that they are means of. Private to train/. [any thread]
#ifndef LS_TRAIN_METRICS_H
#define LS_TRAIN_METRICS_H

#include "core/graph/graph.h"
#include "core/graph/program.h"
#include "lockstep.h"

// The statistics of a step: sums over its examples. The first LS_SUMS are those of the loss operation, which travel in
// the step's statistics of bucket 0 (LS_STEP_STATS); plugins know these places, so they stay. A metric that the loss operation does
// not count gets places behind them, which will travel in a range of their own after the step's statistics.
#define LS_STATISTICS LS_SUMS

// A metric is the mean over the examples of one of the statistics. Half of the places of an ls_metrics are for
// validation.
struct ls_metric_set {
    uint32_t count; // at least 1: the loss is always the first
    struct ls_metric_source {
        const char *name, *validation_name; // "accuracy", "val_accuracy"
        uint32_t statistic;
    } list[LS_METRICS / 2];
};

// What --metrics= may be; ends with NULL.
extern const char *const ls_metric_names[];

// The metrics that `text` names, as in ls_compile_options, with the loss in front. LS_USAGE, logged.
LS_STATUS ls_metric_set_parse(const char *text, const struct ls_loss *loss,
                              struct ls_metric_set *out);
bool ls_metric_set_has(const struct ls_metric_set *set, const char *name);

// Appends the mean of each metric to `out`, under its name for validation where that is asked for. NaN without examples.
void ls_metrics_append(struct ls_metrics *out, const struct ls_metric_set *set,
                       const double statistics[static LS_STATISTICS], bool validation);

#endif
