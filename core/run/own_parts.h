// SPDX-License-Identifier: Apache-2.0
// Layers, losses and metrics that are plugins: those of the search path of a run, and those that
// its program has registered. [main thread]
#ifndef LS_RUN_OWN_PARTS_H
#define LS_RUN_OWN_PARTS_H

#include "core/graph/layer.h"
#include "core/loader/loader.h"
#include "core/plugin/metric.h"

// The loader is borrowed and must last as long.
LS_STATUS ls_own_parts_create(struct ls_loader *loader, struct ls_own_parts **out);
void ls_own_parts_destroy(struct ls_own_parts *parts); // takes NULL

// A loss or a metric (enum ls_kind) as the user names it, "focal:gamma=2" or a file; name= of a
// metric is not the plugin's. What is found lasts as long as the parts. Errors are logged.
LS_STATUS ls_own_part_open(struct ls_own_parts *parts, uint32_t kind, const struct ls_spec *spec,
                           const struct ls_composed **out);
// Whether `name` is one of these: a file, or found on the search path.
bool ls_own_part_is(const struct ls_own_parts *parts, uint32_t kind, const char *name);

// The value of a metric, of its sums over so many examples; NaN without any.
double ls_own_metric_value(const struct ls_composed *composed, const double *sums, double examples);
bool ls_own_metric_is_upwards(const struct ls_composed *composed);

#endif
