// SPDX-License-Identifier: Apache-2.0
// Finds calls into plugins that do not return while nothing else goes on: every wait for a peer has a deadline of its
// own, but where all replicas hang, or the thread that prepares a run does, nobody waits for a peer.
#ifndef LS_BASE_WATCHDOG_H
#define LS_BASE_WATCHDOG_H

#include "core/base/status.h"

#include <stdint.h>

#define LS_NO_REPLICA UINT32_MAX // the thread that called ls_watchdog_start

// From here on a thread of its own looks now and then at the replicas and at the calling thread. When one is in a
// plugin and none of them has called a plugin or come back from one for `deadline_ns`, this is logged, naming plugin, call
// and operation, and `stuck` is called with the replica, once. Calls that take long are no hang as long as another
// replica gets on; waiting for data is no call. Starts and stops are counted; the longest deadline holds.
LS_STATUS ls_watchdog_start(uint64_t deadline_ns, void (*stuck)(uint32_t replica));
void ls_watchdog_stop(void);

#endif
