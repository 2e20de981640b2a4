// SPDX-License-Identifier: Apache-2.0
// The sums of a step in integers (--reproducible). When a replica has made all of its logical
// shards, the largest magnitude of each variable becomes that of all replicas, and the integers of
// each bucket are added (core/replica/shard_sums.h): by the strategy's collective, or where it has
// none, by the one that adds up totals. Only then is the strategy told that gradients are ready.
//
// What a strategy adds afterwards changes no bit: where it asks for sums of gradients, of buckets or
// of ranges, all replicas have them already; where it adds what the replicas have itself, all
// replicas but rank 0 have zeros.
#include "core/strategy/internal.h"

#include "core/base/log.h"

#include <stdio.h>
#include <stdlib.h>

// Who adds floats itself gets the sum from rank 0.
static bool gives_zeros(const struct ls_driver_member *member)
{
    const struct ls_driver *driver = member->driver;
    return !driver->ops->needs_collective && driver->first_rank + member->index > 0;
}

// Whether the gradients are in host memory, where the strategy's collective can add integers, too.
static bool on_host(const struct ls_driver *driver)
{
    const struct ls_device *device = driver->options.parts[0].device;
    return ls_device_in_host_memory(device) && ls_device_blocking(device);
}

// ---- What it needs ----

static enum ls_status refuse(const struct ls_driver *driver, const char *why)
{
    ls_error("--reproducible", "strategy '%s' with these options %s", ls_driver_name(driver), why);
    return LS_USAGE;
}

// A replica computes its shards one after the other, so in its forward pass it has the statistics of
// all of them only where there is one.
static enum ls_status check_totals(const struct ls_driver *driver)
{
    const char *layer = driver->plan->totals[0].tensor->name;
    const uint32_t shards = driver->options.shards;
    if (driver->world > 1 && !on_host(driver)) {
        ls_error("--reproducible",
                 "layer '%s' normalizes by the statistics of all replicas (synchronized), which "
                 "are added in the memory of device '%s', in any order; use --device=cpu, or set "
                 "synchronized to false",
                 layer, driver->options.parts[0].device_name);
        return LS_UNAVAILABLE;
    }
    if (driver->options.whole_steps)
        ls_error("--reproducible",
                 "layer '%s' normalizes by the statistics of all replicas (synchronized), which "
                 "takes as many replicas as logical shards at any time; leave --elastic out, or "
                 "set synchronized to false",
                 layer);
    else if (driver->world != shards)
        ls_error("--reproducible",
                 "layer '%s' normalizes by the statistics of all replicas (synchronized), which "
                 "takes one replica for each logical shard, and there %s %u for %u; use "
                 "--reproducible=%u, or set synchronized to false, and each logical shard has "
                 "statistics of its own",
                 layer, driver->world == 1 ? "is" : "are", driver->world, shards, driver->world);
    return driver->options.whole_steps || driver->world != shards ? LS_USAGE : LS_OK;
}

enum ls_status ls_driver_check_reproducible(const struct ls_driver *driver)
{
    const struct ls_driver_options *options = &driver->options;
    if (!options->shards)
        return LS_OK;
    if (driver->traits.divisor != LS_DIVISOR_GLOBAL ||
        driver->traits.equality != LS_EQUAL_EVERY_STEP)
        return refuse(driver,
                      "lets replicas make steps of their own, whose order is another one in "
                      "every run; use mirrored, central-storage or "
                      "parameter-server:mode=sync");
    if (driver->stores.first && !on_host(driver)) {
        ls_error("--reproducible",
                 "strategy '%s' updates variables on the host, which rounds otherwise than device "
                 "'%s'; use mirrored, sharded or --device=cpu",
                 ls_driver_name(driver), options->parts[0].device_name);
        return LS_UNAVAILABLE;
    }
    return driver->plan->total_count ? check_totals(driver) : LS_OK;
}

// ---- Communicators and plans ----

enum ls_status ls_driver_open_integers(struct ls_driver *driver)
{
    const struct ls_driver_options *options = &driver->options;
    struct ls_driver_plugin collective = options->collective, transport = options->transport;
    if (!options->shards || driver->world < 2 || (driver->communicators && on_host(driver)))
        return LS_OK;
    if (!on_host(driver) && !transport.plugin && driver->count < driver->world) {
        ls_error("--reproducible",
                 "sums in integers travel through host memory, and strategy '%s' of device '%s' "
                 "has no transport for them; use replicas of one process, or --device=cpu",
                 ls_driver_name(driver), options->parts[0].device_name);
        return LS_UNAVAILABLE;
    }
    enum ls_status status = options->total_plugins(options->context, &collective, &transport);
    if (!status)
        status = ls_driver_open_communicators(driver, &collective, &transport, "integers",
                                              !on_host(driver), &driver->integer_communicators);
    return status;
}

static enum ls_status create_plans(struct ls_driver_member *member,
                                   struct ls_communicator *communicator)
{
    const struct ls_driver *driver = member->driver;
    struct ls_communicator_call call = {
        .operation = LS_ALL_REDUCE, .dtype = LS_I32, .reduction = LS_MAX};
    call.buffer = ls_replica_largest(member->replica, &call.count);
    enum ls_status status =
        ls_collective_plan_open(communicator, &call, "magnitudes", &member->magnitudes);
    call.dtype = LS_I64;
    call.reduction = LS_SUM;
    for (uint32_t i = 0; !status && i < driver->bucket_count; i++) {
        char label[32];
        snprintf(label, sizeof(label), "bucket %u", i);
        call.buffer = ls_replica_integers(member->replica, i, &call.count);
        status = ls_collective_plan_open(communicator, &call, label, &member->reduce[i]);
    }
    return status;
}

enum ls_status ls_driver_attach_integers(struct ls_driver *driver)
{
    enum ls_status status = LS_OK;
    struct ls_communicator **list =
        driver->integer_communicators ? driver->integer_communicators : driver->communicators;
    for (uint32_t i = 0; !status && driver->options.shards && list && i < driver->count; i++)
        status = create_plans(&driver->members[i], list[i]);
    return status;
}

void ls_driver_close_integers(struct ls_driver *driver)
{
    for (uint32_t i = 0; driver->members && i < driver->count; i++) {
        struct ls_driver_member *member = &driver->members[i];
        ls_collective_plan_destroy(member->magnitudes);
        member->magnitudes = NULL;
        for (uint32_t k = 0; member->reduce && driver->options.shards && k < driver->bucket_count;
             k++) {
            ls_collective_plan_destroy(member->reduce[k]);
            member->reduce[k] = NULL;
        }
    }
    if (driver->integer_communicators)
        ls_communicators_close(driver->integer_communicators, driver->count);
    free(driver->integer_communicators);
    driver->integer_communicators = NULL;
}

// ---- A step ----

// The last shard of the replica is kept. Buckets travel while others are added or rounded.
enum ls_status ls_driver_add_shards(struct ls_driver_member *member)
{
    const uint32_t count = member->driver->bucket_count;
    const bool alone = !member->magnitudes;
    enum ls_status status = alone ? LS_OK : ls_collective_start(member->magnitudes);
    if (!status && !alone)
        status = ls_collective_wait(member->magnitudes);
    for (uint32_t i = 0; !status && i < count; i++) {
        ls_replica_add_shards(member->replica, i);
        if (!alone)
            status = ls_collective_start(member->reduce[i]);
    }
    for (uint32_t i = 0; !status && i < count; i++) {
        if (!alone)
            status = ls_collective_wait(member->reduce[i]);
        if (!status)
            status = ls_replica_round_sums(member->replica, i, gives_zeros(member));
    }
    return status;
}

// With a collective all replicas have the sum. Who asks for none would add it up once more.
enum ls_status ls_driver_check_sums(const struct ls_driver_member *member)
{
    struct ls_driver *driver = member->driver;
    if (!driver->options.shards || !driver->ops->needs_collective || driver->world < 2 ||
        member->asked)
        return LS_OK;
    if (atomic_exchange(&driver->wrong_sums, true))
        return LS_USAGE;
    return refuse(driver, "adds gradients in a way of its own, which --reproducible does not know; "
                          "use mirrored, central-storage or parameter-server:mode=sync");
}
