// SPDX-License-Identifier: Apache-2.0
// Detects plugin calls that do not return while nothing else makes progress. Every wait for a peer
// has a deadline of its own, but if all replicas hang, or the thread that prepares a run hangs, no
// thread waits for a peer.
#ifndef LS_BASE_WATCHDOG_H
#define LS_BASE_WATCHDOG_H

#include "core/base/status.h"

#include <stdint.h>

#define LS_NO_REPLICA UINT32_MAX // the thread that called ls_watchdog_start

// Starts a thread that periodically checks the replicas of this caller (core/base/caller.h) and the
// calling thread; the replicas of other callers are watched apart from them. If one of them is
// in a plugin, and none has entered or left a plugin for `deadline_ns`, it logs plugin, call and
// operation, and calls `stuck` with the rank of the replica, once. A long call does not count as a hang while
// another replica makes progress, and neither does waiting for data. Starts and stops are counted;
// the longest deadline applies.
LS_STATUS ls_watchdog_start(uint64_t deadline_ns, void (*stuck)(uint32_t rank));
void ls_watchdog_stop(void);

#endif
