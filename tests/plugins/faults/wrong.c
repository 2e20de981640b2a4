// SPDX-License-Identifier: Apache-2.0
// strategy-wrong, for tests: mirrored, but the same small mistake on every replica, so that all
// stay equal: `scaled` makes gradients 1 % too large, and `forgotten` never updates the last
// bucket.
#include "core/plugin/strategy.h"

#include <string.h>

const struct ls_plugin *mirrored_plugin(void); // the mirrored strategy's own, under another name

static const struct ls_strategy_interface *real;
static const struct ls_strategy_host *own_host;

static int is(const char *fault)
{
    return strcmp(own_host->host->option(own_host->host, "fault"), fault) == 0;
}

static int32_t wrong_open(const struct ls_strategy_host *host, struct ls_strategy *strategy)
{
    own_host = host;
    return real->open(host, strategy);
}

static int32_t scale(uint32_t replica, uint32_t bucket)
{
    uint64_t first, count;
    float *gradients = own_host->memory->map(own_host, replica, LS_REPLICA_GRADIENTS);
    if (!gradients)
        return LS_UNSUPPORTED;
    own_host->layout->bucket_range(own_host, bucket, &first, &count);
    for (uint64_t i = first; i < first + count; i++)
        gradients[i] *= 1.01f;
    return LS_OK;
}

static int32_t wrong_end_step(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = own_host;
    int32_t status = LS_OK;
    (void)strategy;
    for (uint32_t bucket = 0; !status && bucket < host->bucket_count; bucket++) {
        const int last = bucket + 1 == host->bucket_count;
        status = host->collectives->all_reduce_wait(host, replica, bucket);
        if (!status && bucket == 0)
            status = host->step->check_step(host, replica);
        if (!status && is("scaled"))
            status = scale(replica, bucket);
        if (!status && !(last && is("forgotten")))
            status = host->step->update(host, replica, bucket);
    }
    return status;
}

static const struct ls_plugin_option options[] = {
    {"fault", "one of: scaled, forgotten, none", "none", "what is wrong"},
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
    interface.open = wrong_open;
    interface.end_step = wrong_end_step;
    interface.traits.capturable = 0; // what is done in end_step cannot be recorded
    plugin.name = "wrong";
    plugin.summary = "for tests: mirrored, with a mistake that all replicas share";
    plugin.options = options;
    plugin.interface = &interface;
    return &plugin;
}
