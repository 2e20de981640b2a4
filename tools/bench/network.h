// SPDX-License-Identifier: Apache-2.0
// Measures the parameters of this machine for `lockstep simulate`.
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

// A size that is in both the file and the table is timed in the rounds of the table, so that both
// agree even if the machine changes its speed. These calls say whether a task is such a size
// (`bytes`: of its buffer), give the lane to time in addition to the others, and take the measured
// time in seconds.
bool bench_network_wants(const struct bench_task *task);
const struct bench_lane *bench_network_lane(const struct bench_network *network);
void bench_network_note(struct bench_network *network, uint64_t bytes, double seconds);

// Times the sizes that were not noted, `seconds` for each, and writes the network file.
LS_STATUS bench_network_write(struct bench_network *network, double seconds, const char *path);

#endif
