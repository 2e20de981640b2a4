// SPDX-License-Identifier: Apache-2.0
// Metrics of counts by class, and of points of a curve. [any thread]
#ifndef LS_MODEL_CLASS_METRICS_H
#define LS_MODEL_CLASS_METRICS_H

#include "core/model/metrics.h"

// Of LS_METRIC_FBETA: precision and recall of each class, of LS_METRIC_CLASSES or
// LS_METRIC_EACH_CLASS (van Rijsbergen 1979), as the average says.
double ls_metric_fbeta(const struct ls_metric_source *source, const double *counts);
// Of LS_METRIC_UNION: the mean over the classes asked for, which are predicted or a target, of what
// is both, divided by what is one of them (Jaccard 1912).
double ls_metric_union(const struct ls_metric_source *source, const double *counts);
// Of LS_METRIC_PRECISION_AT and those like it, from LS_METRIC_BUCKETS: the largest value at a point
// where the other one is at least `limit`; 0: there is none.
double ls_metric_at(const struct ls_metric_source *source, const double *counts);
// Of LS_METRIC_R2, from LS_METRIC_SQUARES: 1 - squares of the errors / squares of the targets
// around their mean, of each column, averaged as the average says (LS_AVERAGE_WEIGHTED: by the
// latter); 0 of a column whose targets are all the same. With regressors p and n elements, adjusted
// (Theil 1961): 1 - (1 - score) (n - 1) / (n - p - 1), where n - 1 > p.
double ls_metric_r2(const struct ls_metric_source *source, const double *counts);

#endif
