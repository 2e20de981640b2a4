// SPDX-License-Identifier: Apache-2.0
// Opens, briefly uses and closes an instance of a plugin of any kind, for cases that all kinds share.
#ifndef LS_TOOLS_CONFORMANCE_INSTANCE_H
#define LS_TOOLS_CONFORMANCE_INSTANCE_H

#include "tools/conformance/tally.h"
#include "core/loader/loader.h"
#include "core/plugin/callback.h"
#include "core/plugin/collective.h"
#include "core/plugin/dataset.h"
#include "core/plugin/device.h"
#include "core/plugin/strategy.h"
#include "core/plugin/transport.h"

struct ls_fake_host;

// Zeroed, or opened.
struct ls_instance_trial {
    const struct ls_opened_plugin *opened;
    struct ls_device *device;
    struct ls_transport *endpoints[2];
    struct ls_strategy *strategy;
    struct ls_callback *callback;
    struct ls_dataset_state *dataset;
    struct ls_dataset_description examples; // of the dataset
    struct ls_fake_host *fake; // of the strategy
    struct ls_tally unheard; // what it finds: the suite of strategies says that
    uint32_t uses;
};

// False: the tally has the reason. A collective has no instances: its build_schedule is pure. The loader opens the transport
// that a strategy needs.
bool ls_instance_open(struct ls_instance_trial *trial, struct ls_loader *loader,
                      const struct ls_opened_plugin *opened, struct ls_tally *tally);
void ls_instance_use(struct ls_instance_trial *trial, struct ls_tally *tally);
void ls_instance_close(struct ls_instance_trial *trial); // takes a zeroed one

// Opens an instance with a host that has no memory: the open may fail, but must not crash.
void ls_instance_starve(struct ls_loader *loader, const struct ls_opened_plugin *opened,
                        struct ls_tally *tally);

#endif
