// SPDX-License-Identifier: Apache-2.0
// Processes of one program that reduce together, one rank each: for benchmarks and tests of
// transports.
#ifndef LS_TOOLS_DEVELOPMENT_PROCESSES_H
#define LS_TOOLS_DEVELOPMENT_PROCESSES_H

#include "core/base/status.h"
#include "core/collective/endpoints.h"
#include "core/collective/executor.h"
#include "core/loader/loader.h"
#include "core/plugin/collective.h"
#include "core/plugin/transport.h"

#include <stdbool.h>
#include <stdint.h>

struct process {
    uint32_t rank, world; // of this process among the processes
    // The ranks of a communicator that are in this process, and those of all processes. One rank a
    // process, unless the body says otherwise.
    uint32_t first, count, ranks;
    const uint32_t *hosts; // of each rank; NULL: all on one
    uint64_t deadline_ns; // of all waits; 10 s, unless the body says otherwise
    struct ls_exchange exchange; // of process_open(); empty: process_exchange
    struct processes_meeting *meeting; // that all share
    void *shared; // likewise: of the caller
    const struct ls_opened_plugin *opened; // the transport
    struct ls_transport *endpoint;
    struct ls_message_numbers numbers;
};

// Forks `world` processes, in each of which `body` returns 0 or another exit code, and waits for
// them; returns how many failed or were killed. `shared_bytes` of zeroed memory are `shared` of
// all. The caller has no other thread.
uint32_t processes_run(uint32_t world, size_t shared_bytes, int (*body)(struct process *, void *),
                       void *argument);
bool process_barrier(struct process *process); // false: not all came in time
bool process_barrier_within(struct process *process, uint64_t limit_ns);

// In the body: as struct ls_transport_config says of its `exchange`, at most 4 KiB a rank; the
// context is the struct process.
int32_t process_exchange(void *context, const void *own, uint64_t bytes, void *all);
// The endpoint of this process, which has one rank.
LS_STATUS process_open(struct process *process, const struct ls_opened_plugin *transport);
void process_close(struct process *process);

// One all-reduce, in place, to be run many times.
struct process_reduction {
    struct process *process;
    struct ls_compiled_schedule compiled;
    struct ls_executor *executor;
    void *scratch;
    uint64_t signature;
};
LS_STATUS process_reduction_create(struct process *process,
                                   const struct ls_opened_plugin *collective, void *data,
                                   uint64_t count, uint32_t dtype, uint32_t reduction,
                                   struct process_reduction *out);
LS_STATUS process_reduction_run(struct process_reduction *reduction);
void process_reduction_destroy(struct process_reduction *reduction);

#endif
