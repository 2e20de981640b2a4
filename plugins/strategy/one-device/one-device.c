// SPDX-License-Identifier: Apache-2.0
// one-device: one replica, no communication. The truth that other strategies are compared with.
#include "core/plugin/strategy.h"

struct ls_strategy {
    const struct ls_strategy_host *host;
};

static int32_t one_device_open(const struct ls_strategy_host *host, struct ls_strategy **out)
{
    struct ls_strategy *strategy =
        (struct ls_strategy *)host->host->allocate(host->host, sizeof(*strategy), sizeof(void *));
    if (!strategy)
        return LS_OUT_OF_MEMORY;
    strategy->host = host;
    *out = strategy;
    return LS_OK;
}

static void one_device_close(struct ls_strategy *strategy)
{
    if (strategy)
        strategy->host->host->release(strategy->host->host, strategy);
}

static int32_t one_device_place(struct ls_strategy *strategy, uint32_t replica)
{
    (void)strategy;
    (void)replica;
    return LS_OK;
}

static int32_t one_device_gradient_ready(struct ls_strategy *strategy, uint32_t replica,
                                         uint32_t bucket)
{
    (void)strategy;
    (void)replica;
    (void)bucket;
    return LS_OK;
}

static int32_t one_device_end_step(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    int32_t status = host->decide(host, replica);
    for (uint32_t bucket = 0; !status && bucket < host->bucket_count; bucket++)
        status = host->update(host, replica, bucket);
    return status;
}

// All that a step asks of the host is put on the device's stream.
static void one_device_traits(struct ls_strategy *strategy, struct ls_strategy_traits *out)
{
    (void)strategy;
    if (LS_HAS(out, capturable))
        out->capturable = 1;
}

static const struct ls_strategy_interface interface = {
    .struct_size = sizeof(interface),
    .divisor = LS_DIVISOR_GLOBAL,
    .equality = LS_EQUAL_EVERY_STEP,
    .maximum_replicas = 1,
    .open = one_device_open,
    .close = one_device_close,
    .place = one_device_place,
    .gradient_ready = one_device_gradient_ready,
    .end_step = one_device_end_step,
    .traits = one_device_traits,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_STRATEGY),
    .name = "one-device",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "one replica on one device, no communication",
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void);
LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
