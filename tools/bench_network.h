// SPDX-License-Identifier: Apache-2.0
// Measures what `lockstep simulate` must know of this machine.
#ifndef LS_TOOLS_BENCH_NETWORK_H
#define LS_TOOLS_BENCH_NETWORK_H

#include "core/base/status.h"
#include "core/loader/loader.h"

// Times the collective `ring` between two ranks over the transport, and writes the network file that
// describes it. `seconds`: for each of 16 sizes. [main thread]
LS_STATUS bench_network_write(struct ls_loader *loader, const struct ls_opened_plugin *transport,
                              double seconds, uint64_t deadline_ns, const char *path);

#endif
