// SPDX-License-Identifier: Apache-2.0
// What a strategy tells the report.
#include "core/strategy/internal.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/trace.h"

#include <stdlib.h>
#include <string.h>

static void fact_finish(struct ls_driver_fact *fact)
{
    free(fact->name);
    free(fact->values);
}

static bool fact_init(struct ls_driver_fact *fact, const char *name, const double *values,
                      uint64_t count)
{
    *fact = (struct ls_driver_fact){.name = strdup(name), .count = count};
    fact->values = malloc((count + 1) * sizeof(*values));
    if (!fact->name || !fact->values)
        return false;
    if (count)
        memcpy(fact->values, values, count * sizeof(*values));
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
    struct ls_driver_fact fact;
    struct ls_driver_fact *grown =
        realloc(driver->facts, (driver->fact_count + 1) * sizeof(*grown));
    if (grown)
        driver->facts = grown;
    if (!grown || !fact_init(&fact, name, values, count)) {
        if (grown)
            fact_finish(&fact);
        ls_error("strategy", "no memory for '%s' of the report", name);
        return;
    }
    fact.list = list != 0;
    driver->facts[driver->fact_count++] = fact;
}

static const struct ls_trace_label replicas_slice = {.category = "strategy",
                                                     .name = "wait for the others"};
static const struct ls_trace_label servers_slice = {.category = "strategy",
                                                    .name = "wait for the servers"};

static void host_waited(const struct ls_strategy_host *table, uint32_t replica, uint32_t whom,
                        uint64_t since_ns)
{
    (void)table;
    (void)replica;
    ls_trace_slice(whom == LS_WAITED_FOR_SERVERS ? &servers_slice : &replicas_slice, since_ns,
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

void ls_driver_close_facts(struct ls_driver *driver)
{
    for (size_t i = 0; i < driver->fact_count; i++)
        fact_finish(&driver->facts[i]);
    free(driver->facts);
    driver->facts = NULL;
    driver->fact_count = 0;
}

const struct ls_driver_fact *ls_driver_describe(struct ls_driver *driver, size_t *count)
{
    ls_driver_close_facts(driver);
    driver->reporting = true;
    if (driver->ops->report_metrics)
        driver->ops->report_metrics(driver->strategy);
    driver->reporting = false;
    *count = driver->fact_count;
    return driver->facts;
}
