// SPDX-License-Identifier: Apache-2.0
// Finds calls into plugins that do not return while nothing else goes on: every wait for a peer has a deadline of its
// own, but where all replicas hang, or the thread that prepares a run does, nobody waits for a peer.
#ifndef LS_BASE_WATCHDOG_H
#define LS_BASE_WATCHDOG_H

#include "core/base/status.h"

#include <stdint.h>

#define LS_NO_REPLICA UINT32_MAX // the thread that called ls_watchdog_start

// Starts a thread that looks now and then at the replicas and at the calling thread. When one of
// them is in a plugin, and none has entered or left a plugin for `deadline_ns`, it logs plugin,
// call and operation, and calls `stuck` with the replica, once. A long call is no hang while
// another replica makes progress; waiting for data is no call. Starts and stops are counted; the
// longest deadline holds.
LS_STATUS ls_watchdog_start(uint64_t deadline_ns, void (*stuck)(uint32_t replica));
void ls_watchdog_stop(void);

#endif
