// SPDX-License-Identifier: Apache-2.0
// Rounds: replicas that train weights of their own between two of them (core/plugin/rounds.h). What
// evaluates, saves and compares knows nothing of that. It finds the weights of the last round where
// parameters are, because these change places after `synchronise`, and back before the next step.
#include "core/strategy/internal.h"

#include "core/base/log.h"
#include "core/base/memory.h"

#include <stdlib.h>
#include <string.h>

static enum ls_status refuse(const struct ls_driver *driver, const char *option, const char *why)
{
    ls_error(option, "under strategy '%s' replicas have weights of their own between rounds, %s",
             ls_driver_name(driver), why);
    return LS_USAGE;
}

static enum ls_status check_plugin(const struct ls_driver *driver)
{
    const bool rounds = driver->ops->rounds;
    const bool share = driver->traits.divisor == LS_DIVISOR_SHARE;
    const bool fits = driver->ops->needs_collective && !driver->ops->placement &&
                      driver->traits.equality == LS_EQUAL_AT_SYNCHRONISE;
    if (rounds == share && (!rounds || fits))
        return LS_OK;
    ls_error(ls_driver_name(driver),
             "strategy '%s' has rounds without LS_DIVISOR_SHARE, LS_EQUAL_AT_SYNCHRONISE and a "
             "collective, or with a placement: an error of the plugin",
             ls_driver_name(driver));
    return LS_FAILED;
}

enum ls_status ls_driver_check_rounds(const struct ls_driver *driver)
{
    const struct ls_driver_options *options = &driver->options;
    const enum ls_status status = check_plugin(driver);
    if (status || !driver->ops->rounds)
        return status;
    if (!driver->on_host) {
        ls_error("--strategy",
                 "strategy '%s' makes its rounds in host memory, so far not in that of device "
                 "'%s'; use --device=cpu, or mirrored",
                 ls_driver_name(driver), options->parts[0].device_name);
        return LS_UNAVAILABLE;
    }
    if (options->whole_steps && !driver->ops->workers_changed)
        return refuse(driver, "--elastic",
                      "so far with the same workers from beginning to end; leave it out, and go on "
                      "from checkpoints with --resume, or use mirrored");
    if (options->whole_steps && driver->count > 1)
        return refuse(driver, "--elastic",
                      "so far one replica a worker; start more workers, or leave it out");
    if (options->whole_steps && ls_driver_filters(driver))
        return refuse(driver, "--elastic",
                      "and what a filter has delivered of an exchange that breaks off is not known "
                      "so far; leave --compress or --elastic out");
    if (options->wire)
        return refuse(driver, "--wire",
                      "and what they send is float32 so far; leave it out, or use mirrored");
    if (options->shards)
        return refuse(driver, "--reproducible",
                      "and each number of replicas makes others of them; leave it out, or use "
                      "mirrored");
    if (driver->optimizer.averages)
        return refuse(driver, "--optimizer",
                      "and use_ema=on would average those of one of them; leave it out: the "
                      "weights of a round are a mean already");
    return LS_OK;
}

enum ls_status ls_driver_attach_rounds(struct ls_driver *driver)
{
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && driver->ops->rounds && i < driver->count; i++)
        for (uint32_t k = 0; !status && k < LS_ROUND_MEMORIES; k++) {
            const uint64_t bytes = k == LS_ROUND_OWN_NOTES ? LS_ROUND_NOTES * sizeof(float)
                                                           : driver->plan->reduced_bytes;
            driver->members[i].round[k] = ls_malloc_aligned(bytes);
            status = driver->members[i].round[k] ? LS_OK : LS_OUT_OF_MEMORY;
            if (!status)
                memset(driver->members[i].round[k], 0, bytes);
        }
    return status;
}

static float *parameters_of(const struct ls_driver_member *member)
{
    return ls_address(ls_replica_memory(member->replica, LS_BUFFER_PARAMETERS));
}

static void exchange(struct ls_driver_member *member)
{
    const uint64_t count = member->driver->plan->reduced_bytes / sizeof(float);
    float *own = parameters_of(member), *round = member->round[LS_ROUND_WEIGHTS];
    for (uint64_t i = 0; i < count; i++) {
        const float value = own[i];
        own[i] = round[i];
        round[i] = value;
    }
    member->shows_round = !member->shows_round;
    member->touched = true;
}

void ls_driver_show_round(struct ls_driver_member *member)
{
    if (member->round[LS_ROUND_WEIGHTS] && !member->shows_round)
        exchange(member);
}

void ls_driver_hide_round(struct ls_driver_member *member)
{
    if (member->shows_round)
        exchange(member);
}

void ls_driver_begin_round(struct ls_driver *driver, uint32_t replica)
{
    struct ls_driver_member *member = &driver->members[replica];
    if (!member->round[LS_ROUND_WEIGHTS])
        return;
    member->shows_round = false;
    memcpy(member->round[LS_ROUND_WEIGHTS], parameters_of(member), driver->plan->reduced_bytes);
    memset(member->round[LS_ROUND_OWN_NOTES], 0, LS_ROUND_NOTES * sizeof(float));
}

bool ls_driver_has_rounds(const struct ls_driver *driver)
{
    return driver->ops->rounds;
}

float *ls_driver_round_memory(const struct ls_driver *driver, uint32_t replica,
                              enum ls_round_memory memory)
{
    return driver->members[replica].round[memory];
}

void ls_driver_close_rounds(struct ls_driver_member *member)
{
    for (uint32_t k = 0; k < LS_ROUND_MEMORIES; k++)
        free(member->round[k]);
}
