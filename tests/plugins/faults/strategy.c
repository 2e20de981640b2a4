// SPDX-License-Identifier: Apache-2.0
// strategy-slow, for tests: mirrored, but the last replica computes for `percent` of a step more. So there is a difference in
// speed whose size is known, and with 0 none.
#include "core/plugin/strategy.h"

#include <stdlib.h>
#include <time.h>

const struct ls_plugin *mirrored_plugin(void); // the mirrored strategy's own, under another name

static const struct ls_strategy_interface *real;
static const struct ls_strategy_host *own_host;
static double share; // of a step
static double began,
    took; // the running step; the last one, without what was added. Seconds, of the slow replica

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int is_slow(uint32_t replica)
{
    return replica + 1 == own_host->replicas;
}

static int32_t slow_open(const struct ls_strategy_host *host, struct ls_strategy *strategy)
{
    own_host = host;
    share = 0.01 * strtod(host->host->option(host->host, "percent"), NULL);
    return real->open(host, strategy);
}

static int32_t slow_begin_step(struct ls_strategy *strategy, uint32_t replica)
{
    (void)strategy;
    if (is_slow(replica))
        began = now();
    return LS_OK;
}

static int32_t slow_end_step(struct ls_strategy *strategy, uint32_t replica)
{
    const double start = now(), added = is_slow(replica) ? share * took : 0;
    while (now() < start + added) // busy: a replica that sleeps leaves its core to the others
        ;
    const int32_t status = real->end_step(strategy, replica);
    if (is_slow(replica))
        took = now() - began - added;
    return status;
}

static const struct ls_plugin_option options[] = {
    {"percent", "number", "10", "of a step that the last replica computes in addition"},
    {NULL, NULL, NULL, NULL},
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void);
LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    static struct ls_strategy_interface interface;
    static struct ls_plugin plugin;
    plugin = *mirrored_plugin();
    real = plugin.interface;
    interface = *real;
    interface.open = slow_open;
    interface.begin_step = slow_begin_step;
    interface.end_step = slow_end_step;
    interface.traits.capturable = 0; // what is done in end_step cannot be recorded
    plugin.name = "slow";
    plugin.summary = "for tests: mirrored, with a replica that is slower";
    plugin.options = options;
    plugin.interface = &interface;
    return &plugin;
}
