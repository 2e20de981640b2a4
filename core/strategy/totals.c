// SPDX-License-Identifier: Apache-2.0
// Totals: sums that all replicas add up in the middle of a step (core/graph/program.h), as the statistics of a synchronized
// batch normalization. They have communicators of their own, so that they never wait behind the gradients of a bucket, and
// exist under strategies that reduce nothing with a collective, too.
#include "core/strategy/internal.h"

#include "core/base/log.h"

#include <stdio.h>
#include <stdlib.h>

// The layer of the first total.
static const char *layer_of(const struct ls_driver *driver)
{
    return driver->plan->totals[0].tensor->name;
}

// Every replica takes part in each step, and each gradient is one of the global batch.
static enum ls_status check_strategy(const struct ls_driver *driver)
{
    if (driver->traits.divisor == LS_DIVISOR_GLOBAL)
        return LS_OK;
    ls_error("--strategy",
             "strategy '%s' with these options lets replicas make steps of their own, but layer "
             "'%s' normalizes by the statistics of all of them (synchronized); take mirrored, "
             "central-storage or parameter-server:mode=sync, or set synchronized to false",
             ls_driver_name(driver), layer_of(driver));
    return LS_USAGE;
}

static enum ls_status check_transport(const struct ls_driver *driver,
                                      const struct ls_driver_plugin *transport)
{
    const struct ls_transport_interface *interface = transport->interface;
    const uint32_t kind = ls_device_interface(driver->options.parts[0].device)->memory_kind;
    if (!interface || interface->memory_kinds >> kind & 1)
        return LS_OK;
    ls_error("--strategy",
             "layer '%s' adds up statistics in the device's memory (synchronized), which transport "
             "'%s' cannot reach; take transport local, or set synchronized to false",
             layer_of(driver), transport->plugin->name);
    return LS_UNAVAILABLE;
}

enum ls_status ls_driver_open_totals(struct ls_driver *driver)
{
    const struct ls_driver_options *options = &driver->options;
    struct ls_driver_plugin collective = options->collective, transport = options->transport;
    if (driver->plan->total_count == 0 || driver->world < 2)
        return LS_OK;
    enum ls_status status = check_strategy(driver);
    if (!status && !collective.plugin)
        status = options->total_plugins(options->context, &collective, &transport);
    if (!status)
        status = check_transport(driver, &transport);
    if (!status)
        status = ls_driver_open_communicators(driver, &collective, &transport, "statistics",
                                              &driver->total_communicators);
    for (uint32_t i = 0; !status && i < driver->count; i++)
        driver->members[i].total_communicator = driver->total_communicators[i];
    if (status)
        return status;
    driver->total_collective = collective.plugin->name;
    driver->total_transport = transport.plugin ? transport.plugin->name : NULL;
    return LS_OK;
}

// "bn_1", or "bn_1 backward"
static enum ls_status create_plan(struct ls_driver *driver, uint32_t index, uint32_t number)
{
    struct ls_driver_member *member = &driver->members[index];
    const struct ls_total *total = &driver->plan->totals[number];
    const struct ls_memory totals = ls_replica_memory(member->replica, LS_BUFFER_TOTALS);
    char label[64];
    snprintf(label, sizeof(label), "%.40s%s", total->tensor->name,
             total->tensor->gradient_of ? " backward" : "");
    return ls_collective_plan_create(member->total_communicator, LS_ALL_REDUCE,
                                     ls_memory_at(totals, total->offset), total->count, LS_F64,
                                     LS_SUM, 0, label, &member->totals[number]);
}

enum ls_status ls_driver_attach_totals(struct ls_driver *driver)
{
    const uint32_t count = driver->plan->total_count;
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && driver->total_communicators && i < driver->count; i++) {
        struct ls_driver_member *member = &driver->members[i];
        member->totals = calloc(count, sizeof(struct ls_collective_plan *));
        status = member->totals ? LS_OK : LS_OUT_OF_MEMORY;
        for (uint32_t k = 0; !status && k < count; k++)
            status = create_plan(driver, i, k);
    }
    return status;
}

enum ls_status ls_driver_try_totals(struct ls_driver *driver, uint32_t index)
{
    struct ls_driver_member *member = &driver->members[index];
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && member->totals && i < driver->plan->total_count; i++)
        status = ls_collective_known_answer(member->totals[i]);
    return status;
}

uint64_t ls_driver_total_bytes(const struct ls_driver *driver)
{
    const struct ls_driver_member *first = &driver->members[0];
    uint64_t bytes = 0;
    for (uint32_t i = 0; first->totals && i < driver->plan->total_count; i++)
        if (first->totals[i]) // else the driver could not be attached
            bytes += ls_collective_plan_bytes(first->totals[i]);
    return bytes;
}

void ls_driver_close_totals(struct ls_driver *driver)
{
    for (uint32_t i = 0; driver->members && i < driver->count; i++) {
        struct ls_driver_member *member = &driver->members[i];
        for (uint32_t k = 0; member->totals && k < driver->plan->total_count; k++)
            ls_collective_plan_destroy(member->totals[k]);
        free(member->totals);
        member->totals = NULL;
    }
    if (driver->total_communicators)
        ls_communicators_close(driver->total_communicators, driver->count);
    free(driver->total_communicators);
    driver->total_communicators = NULL;
}
