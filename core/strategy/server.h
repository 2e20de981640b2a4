// SPDX-License-Identifier: Apache-2.0
// A process that is a server of a strategy, and nothing else: it has neither model nor data.
#ifndef LS_STRATEGY_SERVER_H
#define LS_STRATEGY_SERVER_H

#include "core/strategy/driver.h"

struct ls_server_options {
    struct ls_driver_plugin strategy; // with `serve`
    const struct ls_worker_place *place; // of a server
    const char *secret; // NULL: none
    bool insecure; // without one, workers may be on other machines
    uint64_t deadline_ns;
    // As in struct ls_driver_options.
    enum ls_status (*store_device)(void *context, struct ls_driver_plugin *out);
    void *context;
    const atomic_bool *interrupted; // the user ends this process
};

// Serves until the training is over. place->listen_fd is closed in any case. LS_PEER_LOST, logged:
// no worker was there for the deadline; LS_INTERRUPTED. [main thread]
LS_STATUS ls_server_run(const struct ls_server_options *options);

#endif
