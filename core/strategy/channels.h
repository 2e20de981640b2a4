// SPDX-License-Identifier: Apache-2.0
// Where the server processes of a job are, for the channels that a strategy gets
// (core/plugin/strategy.h).
#ifndef LS_STRATEGY_CHANNELS_H
#define LS_STRATEGY_CHANNELS_H

#include "core/place/resolve.h"
#include "core/wire/channel.h"

struct ls_channels_options {
    const struct ls_worker_place *place; // of a worker
    const char *secret; // NULL: none
    bool insecure; // without one, servers may be on other machines
    const atomic_bool *interrupted; // the user ends this process; NULL: never
};

#endif
