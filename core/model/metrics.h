// SPDX-License-Identifier: Apache-2.0
// The metrics of a model: their names, and the statistics that they are made of. [any thread]
#ifndef LS_MODEL_METRICS_H
#define LS_MODEL_METRICS_H

#include "core/graph/graph.h"
#include "core/graph/program.h"
#include "core/model/losses.h"
#include "core/run/own_parts.h"
#include "lockstep.h"

// The statistics of a step: sums over its examples. The first LS_SUMS are those of the loss operation, which travel in
// the step's statistics of bucket 0 (LS_STEP_STATS); plugins know these places, so they stay. What other metrics count
// (graph->count_slots) is added up on each replica by itself, whatever the strategy, and merged after each segment of steps: it follows them.
#define LS_STATISTICS LS_SUMS
// How a metric is made of its statistics.
enum ls_metric_kind {
    LS_METRIC_OF_MODEL, // the loss; its counts, if it has any, are of the part that is under a mask
    LS_METRIC_OF_OUTPUT, // the loss of an output, which is a part of that of the model
    LS_METRIC_OF_STATISTIC, // one of the first LS_STATISTICS by the examples
    LS_METRIC_OF_LOSS, // sums of a loss operation: the first by the third
    LS_METRIC_OF_ROOT, // the square root of that
    LS_METRIC_SHARE, // the first count by the second
    LS_METRIC_PRECISION, // of LS_METRIC_CONFUSION
    LS_METRIC_RECALL,
    LS_METRIC_COUNT_OF, // the count of that `statistic`
    LS_METRIC_AREA, // of LS_METRIC_BUCKETS, or of LS_METRIC_CONFUSION at each threshold: under the ROC curve
    LS_METRIC_AREA_PR, // under precision over recall
    LS_METRIC_FBETA, // of classes: see core/model/class_metrics.h
    LS_METRIC_UNION,
    LS_METRIC_PRECISION_AT, // of points of a curve
    LS_METRIC_RECALL_AT,
    LS_METRIC_SENSITIVITY_AT,
    LS_METRIC_SPECIFICITY_AT,
    LS_METRIC_R2, // of LS_METRIC_SQUARES
    LS_METRIC_COMPOSED, // of the sums of one of the user's own
};

enum ls_metric_average { LS_AVERAGE_MACRO, LS_AVERAGE_MICRO, LS_AVERAGE_WEIGHTED };

#define LS_METRIC_CLASS_IDS 64
#define LS_METRIC_THRESHOLDS 66 // of an area, with one below 0 and one above 1

// Half of the places of an ls_metrics are for validation.
struct ls_metric_set {
    uint32_t count; // at least 1: the loss is always the first
    struct ls_metric_source {
        const char *name,
            *validation_name; // "accuracy", "val_accuracy"; last as long as the process
        enum ls_metric_kind kind;
        uint32_t statistic; // of LS_METRIC_OF_STATISTIC and LS_METRIC_COUNT_OF
        double factor; // of a loss: how often that of the output counts in that of the model
        struct ls_count counts; // of others: what the graph has to count
        const struct ls_composed *composed; // of LS_METRIC_COMPOSED
        uint32_t slots[LS_METRIC_SUMS]; // where the count of each of its sums begins
        double limit; // beta of LS_METRIC_FBETA, regressors of LS_METRIC_R2, else that of the other
        uint32_t classes;
        enum ls_metric_average average;
        uint32_t class_count, class_ids[LS_METRIC_CLASS_IDS]; // of LS_METRIC_UNION; 0: all
        // Of an area, in order, `counts` for each, which begin at `counts.slot` and have `step` floats between them.
        // 0: LS_METRIC_BUCKETS.
        uint32_t threshold_count, step;
        float thresholds[LS_METRIC_THRESHOLDS];
    } list[LS_METRICS / 2];
};

// What --metrics= may be, some with options; ends with NULL.
extern const char *const ls_metric_names[];
// What the metric of that name is, in a line; "" for a name that is none.
const char *ls_metric_summary(const char *name);

// The metrics that `text` names, as in ls_compile_options. In front are the loss, and those of the
// outputs where it is made of several. LS_USAGE, logged.
LS_STATUS ls_metric_set_parse(const char *text, const struct ls_loss_set *losses,
                              const struct ls_graph *graph, struct ls_own_parts *parts,
                              struct ls_metric_set *out);
// The labels that are predicted right, counted by the metric where the loss does not.
void ls_metric_count_right(struct ls_metric_source *source);
bool ls_metric_set_has(const struct ls_metric_set *set, const char *name);

// Adds what the set counts to a graph with the loss, and notes where.
LS_STATUS ls_metric_set_add(struct ls_metric_set *set, struct ls_graph *graph);

// Appends each metric to `out`, under its name for validation where that is asked for. NaN without examples. `statistics`:
// LS_STATISTICS sums, and behind them the counts; NULL for `counts`: those metrics are NaN.
void ls_metrics_append(struct ls_metrics *out, const struct ls_metric_set *set,
                       const double statistics[static LS_STATISTICS], const double *counts,
                       bool validation);
// The metrics of a step of training. Its loss is the float32 that ls_fit_losses and reports have.
void ls_metrics_of_step(struct ls_metrics *out, const struct ls_metric_set *set,
                        const double statistics[static LS_STATISTICS], const double *counts);

// What replicas find of one batch of an evaluation where a loss is under a mask
// (ls_graph_loss_is_masked): each normalizes by what the mask leaves of its share. Sums that add up:
// of the model's loss, and by output where that is made of several.
struct ls_masked_sums {
    double total[LS_STATISTICS], of[LS_GRAPH_LOSSES][LS_STATISTICS];
};
// Adds what a share has found. What is counted of such a loss is taken out of `counts`, which may
// have other counts of other shares.
void ls_masked_sums_add(struct ls_masked_sums *sums, const struct ls_metric_set *set,
                        const double share[static LS_STATISTICS], double *counts);
void ls_masked_sums_merge(struct ls_masked_sums *sums, const struct ls_masked_sums *other);
// Adds those of a batch, of which all shares are there, to statistics and counts: the mean loss
// times the examples, of which Keras averages over batches.
void ls_masked_sums_end(const struct ls_masked_sums *sums, const struct ls_metric_set *set,
                        double statistics[static LS_STATISTICS], double *counts);

#endif
