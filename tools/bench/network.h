// SPDX-License-Identifier: Apache-2.0
// Measures what `lockstep simulate` must know of this machine.
#ifndef LS_TOOLS_BENCH_NETWORK_H
#define LS_TOOLS_BENCH_NETWORK_H

#include "core/base/status.h"
#include "core/loader/loader.h"
#include "tools/bench/lanes.h"

struct bench_network;

// Opens the collective `ring` between two ranks over the transport. [main thread, all of these]
LS_STATUS bench_network_open(struct ls_loader *loader, const struct ls_opened_plugin *transport,
                             uint64_t deadline_ns, struct bench_network **out);
void bench_network_close(struct bench_network *network); // takes NULL

// What of the file is also a row of a table can be timed in that row's own rounds, so that file and table agree on a machine
// that changes its speed: whether a task is one such (`bytes`: of its buffer), the lane to be timed beside the others, and
// the time that was found, in seconds.
bool bench_network_wants(const struct bench_task *task);
const struct bench_lane *bench_network_lane(const struct bench_network *network);
void bench_network_note(struct bench_network *network, uint64_t bytes, double seconds);

// Times what was not noted, `seconds` for each of its sizes, and writes the network file.
LS_STATUS bench_network_write(struct bench_network *network, double seconds, const char *path);

#endif
