// SPDX-License-Identifier: Apache-2.0
// Names and means of metrics.
#include "core/train/metrics.h"

#include "core/base/keras_names.h"
#include "core/base/log.h"
#include "core/plugin/strategy.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static const struct ls_metric_source loss_source = {"loss", "val_loss", LS_SUMS_LOSS};
static const struct ls_metric_source accuracy_source = {"accuracy", "val_accuracy", LS_SUMS_RIGHT};

const char *const ls_metric_names[] = {"accuracy", "none", NULL};

enum ls_status ls_metric_set_parse(const char *text, const struct ls_loss *loss,
                                   struct ls_metric_set *out)
{
    const bool classes = loss->kind == LS_LOSS_SPARSE_CROSS_ENTROPY;
    struct ls_metric_set set = {.count = 1, .list = {loss_source}};
    if (text ? strcmp(text, accuracy_source.name) == 0 : classes)
        set.list[set.count++] = accuracy_source;
    else if (text && strcmp(text, "none") != 0) {
        char why[120];
        ls_error("--metrics", "'%s' %s", text,
                 ls_keras_refusal(LS_KERAS_METRIC, text, ls_metric_names, why, sizeof(why)));
        return LS_USAGE;
    }
    if (set.count > 1 && !classes) {
        ls_error("--metrics",
                 "accuracy needs classes, and mean_squared_error has none; leave it out");
        return LS_USAGE;
    }
    *out = set;
    return LS_OK;
}

bool ls_metric_set_has(const struct ls_metric_set *set, const char *name)
{
    for (uint32_t i = 0; i < set->count; i++)
        if (strcmp(set->list[i].name, name) == 0)
            return true;
    return false;
}

void ls_metrics_append(struct ls_metrics *out, const struct ls_metric_set *set,
                       const double statistics[static LS_STATISTICS], bool validation)
{
    assert(out->count + set->count <= LS_METRICS);
    for (uint32_t i = 0; i < set->count; i++) {
        const struct ls_metric_source *source = &set->list[i];
        out->list[out->count++] = (struct ls_metric){
            .name = validation ? source->validation_name : source->name,
            .value = statistics[source->statistic] / statistics[LS_SUMS_EXAMPLES],
        };
    }
}

double ls_metric_value(const struct ls_metrics *metrics, const char *name)
{
    for (uint32_t i = 0; i < metrics->count; i++)
        if (strcmp(metrics->list[i].name, name) == 0)
            return metrics->list[i].value;
    return NAN;
}
