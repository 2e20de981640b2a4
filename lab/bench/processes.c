// SPDX-License-Identifier: Apache-2.0
#include "lab/bench/processes.h"

#include "core/base/child.h"
#include "core/base/clock.h"
#include "core/base/shared_memory.h"
#include "core/plugin/device.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST 64
#define MOST_BYTES 4096 // of an exchange, for each rank
#define DEADLINE_NS UINT64_C(10000000000)

struct processes_meeting {
    _Alignas(128) _Atomic uint32_t arrived;
    _Alignas(128) _Atomic uint32_t turn;
    char given[MOST][MOST_BYTES];
};

uint32_t processes_run(uint32_t world, size_t shared_bytes, int (*body)(struct process *, void *),
                       void *argument)
{
    pid_t children[MOST] = {0};
    uint32_t failed = 0;
    struct process process = {
        .world = world, .count = 1, .ranks = world, .deadline_ns = DEADLINE_NS};
    if (world > MOST)
        return world;
    process.meeting = ls_child_memory_create(sizeof(*process.meeting));
    process.shared = ls_child_memory_create(shared_bytes + 1);
    fflush(NULL);
    for (uint32_t i = 0; process.meeting && process.shared && i < world; i++) {
        process.rank = process.first = i;
        children[i] = fork();
        if (children[i])
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        const int code = body(&process, argument);
        fflush(NULL);
        _exit(code);
    }
    for (uint32_t i = 0; i < world; i++) {
        int status = 1;
        if (children[i] <= 0 || waitpid(children[i], &status, 0) != children[i] || status)
            failed++;
    }
    ls_child_memory_destroy(process.meeting, sizeof(*process.meeting));
    ls_child_memory_destroy(process.shared, shared_bytes + 1);
    return failed;
}

bool process_barrier(struct process *process)
{
    return process_barrier_within(process, process->deadline_ns);
}

bool process_barrier_within(struct process *process, uint64_t limit_ns)
{
    struct processes_meeting *meeting = process->meeting;
    const uint32_t turn = atomic_load(&meeting->turn);
    const uint64_t begin_ns = ls_clock_ns();
    if (atomic_fetch_add(&meeting->arrived, 1) + 1 == process->world) {
        atomic_store(&meeting->arrived, 0);
        atomic_fetch_add(&meeting->turn, 1);
        return true;
    }
    for (uint32_t spins = 0; atomic_load(&meeting->turn) == turn; spins++) {
        if (spins < 20000)
            continue;
        if (ls_clock_ns() - begin_ns > limit_ns)
            return false;
        if (spins < 30000)
            sched_yield();
        else
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return true;
}

int32_t process_exchange(void *context, const void *own, uint64_t bytes, void *all)
{
    struct process *process = context;
    if (bytes > MOST_BYTES || process->ranks > MOST)
        return LS_FAILED;
    for (uint32_t i = 0; i < process->count; i++)
        memcpy(process->meeting->given[process->first + i], (const char *)own + i * bytes, bytes);
    if (!process_barrier(process))
        return LS_PEER_LOST;
    for (uint32_t i = 0; i < process->ranks; i++)
        memcpy((char *)all + i * bytes, process->meeting->given[i], bytes);
    return process_barrier(process) ? LS_OK : LS_PEER_LOST;
}

enum ls_status process_open(struct process *process, const struct ls_opened_plugin *transport)
{
    if (!process->exchange.call)
        process->exchange = (struct ls_exchange){.call = process_exchange, .context = process};
    const struct ls_endpoints_options options = {.transport = transport->interface,
                                                 .host = transport->host,
                                                 .world = process->world,
                                                 .own = &process->rank,
                                                 .count = 1,
                                                 .hosts = process->hosts,
                                                 .name = "processes",
                                                 .exchange = process->exchange,
                                                 .deadline_ns = process->deadline_ns};
    process->opened = transport;
    process->numbers.next_send = calloc(process->world, sizeof(uint64_t));
    process->numbers.next_receive = calloc(process->world, sizeof(uint64_t));
    if (!process->numbers.next_send || !process->numbers.next_receive)
        return LS_OUT_OF_MEMORY;
    return ls_endpoints_open(&options, &process->endpoint);
}

void process_close(struct process *process)
{
    ls_endpoint_close(process->opened->interface, process->endpoint);
    free(process->numbers.next_send);
    free(process->numbers.next_receive);
}

enum ls_status process_reduction_create(struct process *process,
                                        const struct ls_opened_plugin *collective, void *data,
                                        uint64_t count, uint32_t dtype, uint32_t reduction,
                                        struct process_reduction *out)
{
    const uint32_t bytes = (uint32_t)ls_dtype_bytes(dtype);
    const uint32_t one_host[MOST] = {0};
    struct ls_drawn_schedule drawn = {0};
    const struct ls_collective_call call = {.struct_size = sizeof(call),
                                            .operation = LS_ALL_REDUCE,
                                            .world = process->world,
                                            .rank = process->rank,
                                            .hosts = process->hosts ? process->hosts : one_host,
                                            .count = count,
                                            .element_bytes = bytes,
                                            .host = collective->host};
    const struct ls_compile_options options = {.name = collective->plugin->name,
                                               .rank = process->rank,
                                               .world = process->world,
                                               .element_bytes = bytes,
                                               .count = count};
    *out = (struct process_reduction){.process = process, .signature = count * 8 + dtype};
    enum ls_status status =
        ls_schedule_draw(collective->interface, collective->plugin->name, &call, &drawn);
    if (!status)
        status = ls_compile_schedule(&drawn, &options, &out->compiled);
    ls_drawn_schedule_finish(&drawn);
    if (status)
        return status;
    out->scratch = ls_segment_allocate(out->compiled.scratch_count * bytes, LS_ALIGNMENT);
    if (!out->scratch)
        return LS_OUT_OF_MEMORY;
    const struct ls_executor_memory memory = {
        .buffers = {data, out->scratch}, .dtype = dtype, .reduction = reduction, .divisor = 1};
    return ls_executor_create(&out->compiled, &memory, &out->executor);
}

enum ls_status process_reduction_run(struct process_reduction *reduction)
{
    struct process *process = reduction->process;
    const struct ls_transport_interface *interface = process->opened->interface;
    const uint64_t end_ns = ls_clock_ns() + process->deadline_ns;
    enum ls_status status = ls_executor_begin(reduction->executor, interface, process->endpoint,
                                              &process->numbers, reduction->signature);
    while (!status && !ls_executor_done(reduction->executor)) {
        bool moved = false;
        uint32_t count;
        status = ls_executor_advance(reduction->executor, &moved);
        if (status || moved || ls_executor_done(reduction->executor))
            continue;
        struct ls_transfer *const *pending = ls_executor_pending(reduction->executor, &count);
        status = (enum ls_status)interface->wait_any(process->endpoint, pending, count, 100000000);
        if (status == LS_AGAIN)
            status = ls_clock_ns() < end_ns ? LS_OK : LS_PEER_LOST;
    }
    return status;
}

void process_reduction_destroy(struct process_reduction *reduction)
{
    ls_executor_destroy(reduction->executor);
    ls_compiled_schedule_finish(&reduction->compiled);
    ls_segment_free(reduction->scratch);
}
