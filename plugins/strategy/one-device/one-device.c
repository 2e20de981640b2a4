// SPDX-License-Identifier: Apache-2.0
// one-device: one replica, no communication. The truth that other strategies are compared with.
#include "core/plugin/strategy.h"

struct ls_strategy {
    const struct ls_strategy_host *host;
};

static int32_t one_device_open(const struct ls_strategy_host *host, struct ls_strategy *strategy)
{
    strategy->host = host;
    return LS_OK;
}

static int32_t one_device_initialize(struct ls_strategy *strategy, uint32_t replica)
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
    int32_t status = host->step->check_step(host, replica);
    for (uint32_t bucket = 0; !status && bucket < host->bucket_count; bucket++)
        status = host->step->update(host, replica, bucket);
    return status;
}

static const struct ls_strategy_interface interface = {
    .struct_size = sizeof(interface),
    .state_bytes = sizeof(struct ls_strategy),
    .traits = {.struct_size = sizeof(interface.traits),
               .divisor = LS_DIVISOR_GLOBAL,
               .equality = LS_EQUAL_EVERY_STEP,
               .capturable = 1},
    .maximum_replicas = 1,
    .norms = LS_NORM_OF_VARIABLES | LS_NORM_OF_ALL,
    .open = one_device_open,
    .initialize_parameters = one_device_initialize,
    .gradient_ready = one_device_gradient_ready,
    .end_step = one_device_end_step,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_STRATEGY),
    .name = "one-device",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "one replica on one device, no communication",
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
