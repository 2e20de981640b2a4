// SPDX-License-Identifier: Apache-2.0
// What a strategy tells the report.
#include "core/strategy/internal.h"

#include "core/base/log.h"

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

static void host_report(const struct ls_strategy_host *table, const char *name,
                        const double *values, uint64_t count, uint32_t list)
{
    struct ls_driver *driver = ls_driver_of(table);
    if (!driver->describing || !name || !*name || (!list && count != 1)) {
        ls_error(ls_driver_name(driver), "report of '%s'%s: an error of the plugin",
                 name ? name : "",
                 driver->describing ? ": a number that is no list" : " outside of describe");
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

void ls_driver_offer_facts(struct ls_strategy_host *table)
{
    table->report = host_report;
}

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
    driver->describing = true;
    if (driver->ops->describe)
        driver->ops->describe(driver->strategy);
    driver->describing = false;
    *count = driver->fact_count;
    return driver->facts;
}
