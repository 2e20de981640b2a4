// SPDX-License-Identifier: Apache-2.0
// What a strategy tells the report.
#include "core/strategy/internal.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/trace.h"

#include <stdlib.h>
#include <string.h>

static void metric_finish(struct ls_driver_metric *metric)
{
    free(metric->name);
    free(metric->values);
}

static bool metric_init(struct ls_driver_metric *metric, const char *name, const double *values,
                        uint64_t count)
{
    *metric = (struct ls_driver_metric){.name = strdup(name), .count = count};
    metric->values = malloc((count + 1) * sizeof(*values));
    if (!metric->name || !metric->values)
        return false;
    if (count)
        memcpy(metric->values, values, count * sizeof(*values));
    return true;
}

static void host_metric(const struct ls_strategy_host *table, const char *name,
                        const double *values, uint64_t count, uint32_t list)
{
    struct ls_driver *driver = ls_driver_of(table);
    if (!driver->reporting || !name || !*name || (!list && count != 1)) {
        ls_error(ls_driver_name(driver), "metric '%s'%s: an error of the plugin", name ? name : "",
                 driver->reporting ? ": a number that is no list" : " outside of report_metrics");
        return;
    }
    struct ls_driver_metric metric;
    struct ls_driver_metric *grown =
        realloc(driver->metrics, (driver->metric_count + 1) * sizeof(*grown));
    if (grown)
        driver->metrics = grown;
    if (!grown || !metric_init(&metric, name, values, count)) {
        if (grown)
            metric_finish(&metric);
        ls_error("strategy", "no memory for '%s' of the report", name);
        return;
    }
    metric.list = list != 0;
    driver->metrics[driver->metric_count++] = metric;
}

static const struct ls_trace_label replicas_span = {.category = "strategy",
                                                    .name = "wait for the others"};
static const struct ls_trace_label servers_span = {.category = "strategy",
                                                   .name = "wait for the servers"};

static void host_waited(const struct ls_strategy_host *table, uint32_t replica, uint32_t whom,
                        uint64_t since_ns)
{
    (void)table;
    (void)replica;
    ls_trace_span(whom == LS_WAITED_FOR_SERVERS ? &servers_span : &replicas_span, since_ns,
                  ls_clock_ns(), 0);
}

static void host_count_bytes(const struct ls_strategy_host *table, uint32_t replica, uint64_t bytes)
{
    struct ls_driver_member *member = ls_driver_need_member(table, "count_bytes", replica);
    if (member)
        member->bytes += bytes;
}

const struct ls_strategy_report ls_driver_report = {
    .struct_size = sizeof(ls_driver_report),
    .count_bytes = host_count_bytes,
    .waited = host_waited,
    .metric = host_metric,
};

void ls_driver_close_metrics(struct ls_driver *driver)
{
    for (size_t i = 0; i < driver->metric_count; i++)
        metric_finish(&driver->metrics[i]);
    free(driver->metrics);
    driver->metrics = NULL;
    driver->metric_count = 0;
}

const struct ls_driver_metric *ls_driver_describe(struct ls_driver *driver, size_t *count)
{
    ls_driver_close_metrics(driver);
    driver->reporting = true;
    if (driver->ops->report_metrics)
        driver->ops->report_metrics(driver->strategy);
    driver->reporting = false;
    *count = driver->metric_count;
    return driver->metrics;
}
