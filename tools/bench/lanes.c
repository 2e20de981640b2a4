// SPDX-License-Identifier: Apache-2.0
// One thread a rank. All go through the same list of batches, with a barrier around each; rank 0 decides how many
// calls a batch has and when it is enough. Whoever fails still comes to the next barrier, where all leave. Over workers
// the first rank of each meets those of the others in every barrier, and all hear what the ranks of all have done.
#include "tools/bench/lanes.h"
#include "tools/bench/ranks.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/threads.h"
#include "core/plugin/collective.h"
#include "core/plugin/device.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_NS 2000000.0
#define ITERATIONS_MOST 10000
#define ROUNDS_LEAST 5
#define ROUNDS_MOST 1000
#define SPINS 4000 // then another thread may have the core

struct barrier {
    _Alignas(64) _Atomic uint32_t come;
    _Alignas(64) _Atomic uint32_t passed;
};

struct run {
    const struct bench_task *task;
    struct bench_result (*results)[BENCH_PLACES];
    struct barrier barrier;
    uint32_t count; // of ranks here
    _Atomic int status; // enum ls_status: of who failed first
    _Atomic uint64_t wrong;
    double *times; // by rank here: of the batch that was last, seconds a call
    struct bench_word all; // what the ranks of all workers had to say in the last barrier
    double *samples; // [lane][place][round]
    uint32_t rounds;
    bool enough; // written by rank 0 between barriers
};

struct rank {
    struct run *run;
    uint32_t number; // among those here
    pthread_t thread;
    struct ls_memory data, input;
    void *image; // host memory for what lies on a device; NULL: the buffers are host memory
    struct ls_collective_plan *plans[BENCH_LANES_MOST];
};

// ---- Together ----

// What is said here is heard everywhere, and who is alone hears it, too.
static void tell(struct run *run)
{
    struct bench_word mine = {.status = atomic_load(&run->status),
                              .wrong = (double)atomic_load(&run->wrong),
                              .enough = run->enough};
    for (uint32_t i = 0; i < run->count; i++)
        mine.seconds += run->times[i];
    run->all = mine;
    if (run->task->workers)
        bench_workers_tell(run->task->workers, &run->all);
    run->enough = run->all.enough != 0;
    atomic_store(&run->status, (int)run->all.status);
}

static void rest(uint32_t *spins)
{
    if (++*spins > SPINS)
        sched_yield();
}

// The first rank waits for the others, tells and hears, and lets them go on.
static void wait_for_all(const struct rank *rank)
{
    struct run *run = rank->run;
    struct barrier *barrier = &run->barrier;
    const uint32_t passed = atomic_load_explicit(&barrier->passed, memory_order_acquire);
    uint32_t spins = 0;
    if (rank->number) {
        atomic_fetch_add(&barrier->come, 1);
        while (atomic_load_explicit(&barrier->passed, memory_order_acquire) == passed)
            rest(&spins);
        return;
    }
    while (atomic_load_explicit(&barrier->come, memory_order_acquire) != run->count - 1)
        rest(&spins);
    tell(run);
    atomic_store(&barrier->come, 0);
    atomic_store(&barrier->passed, passed + 1);
}

static void fail(struct run *run, enum ls_status status)
{
    int none = LS_OK;
    if (status)
        atomic_compare_exchange_strong(&run->status, &none, (int)status);
}

// Whether all are well. Between this and the next one the status may only be looked at by who has failed.
static bool meet(const struct rank *rank)
{
    wait_for_all(rank);
    const bool well = atomic_load(&rank->run->status) == LS_OK;
    wait_for_all(rank); // nobody fails before all have looked
    return well;
}

// ---- One batch ----

static size_t bytes_of(const struct ls_known_call *call)
{
    return (size_t)(call->count * ls_dtype_bytes(call->dtype));
}

static enum ls_status call_once(const struct rank *rank, uint32_t lane, uint32_t place)
{
    const struct bench_task *task = rank->run->task;
    enum ls_status status = LS_OK;
    if (place == BENCH_OUT_OF_PLACE)
        status = bench_memory_copy(&task->memory, rank->number, rank->data, rank->input,
                                   bytes_of(&task->call));
    if (!status)
        status = ls_collective_start(rank->plans[lane]);
    return status ? status : ls_collective_wait(rank->plans[lane]);
}

// What was called is over on a device, too.
static enum ls_status settle(const struct rank *rank, uint32_t lane)
{
    return ls_communicator_synchronize(rank->run->task->lanes[lane].communicators[rank->number]);
}

// Each call by itself, after all ranks have written their buffers anew. Who has failed still comes to the barriers.
static enum ls_status call_afresh(const struct rank *rank, uint32_t lane, uint32_t place,
                                  uint64_t iterations, uint64_t *spent)
{
    const struct bench_task *task = rank->run->task;
    const struct ls_memory input = place == BENCH_IN_PLACE ? rank->data : rank->input;
    enum ls_status status = LS_OK;
    *spent = 0;
    for (uint64_t i = 0; i < iterations; i++) {
        if (!status)
            status = bench_memory_zero(&task->memory, rank->number, input, bytes_of(&task->call));
        if (!status && rank->image) // waits for it
            status = bench_memory_copy(&task->memory, rank->number, ls_host_memory(rank->image),
                                       input, 1);
        wait_for_all(rank);
        const uint64_t begin = ls_clock_ns();
        if (!status)
            status = call_once(rank, lane, place);
        if (!status)
            status = settle(rank, lane);
        *spent += ls_clock_ns() - begin;
    }
    return status;
}

static enum ls_status call_in_a_row(const struct rank *rank, uint32_t lane, uint32_t place,
                                    uint64_t iterations, uint64_t *spent)
{
    enum ls_status status = LS_OK;
    const uint64_t begin = ls_clock_ns();
    for (uint64_t i = 0; !status && i < iterations; i++)
        status = call_once(rank, lane, place);
    if (!status)
        status = settle(rank, lane);
    *spent = ls_clock_ns() - begin;
    return status;
}

// Leaves the seconds a call in run->times; true when all are well.
static bool run_batch(const struct rank *rank, uint32_t lane, uint32_t place, uint64_t iterations)
{
    struct run *run = rank->run;
    uint64_t spent;
    wait_for_all(rank);
    const enum ls_status status = run->task->fresh
                                      ? call_afresh(rank, lane, place, iterations, &spent)
                                      : call_in_a_row(rank, lane, place, iterations, &spent);
    run->times[rank->number] = (double)spent * 1e-9 / (double)(iterations ? iterations : 1);
    fail(run, status);
    return meet(rank);
}

static double mean_time(const struct run *run)
{
    return run->all.seconds / run->task->call.world;
}

static double *samples_of(const struct run *run, uint32_t lane, uint32_t place)
{
    return run->samples + ((size_t)lane * BENCH_PLACES + place) * ROUNDS_MOST;
}

// ---- The three parts: warm up, time, check ----

static void choose_iterations(struct run *run, uint32_t lane, uint32_t place)
{
    const uint64_t given = run->task->iterations;
    const double fitting = BATCH_NS * 1e-9 / mean_time(run);
    run->results[lane][place].iterations = given                       ? given
                                           : fitting > ITERATIONS_MOST ? ITERATIONS_MOST
                                           : fitting < 1               ? 1
                                                                       : (uint64_t)fitting;
}

static bool warm_up(const struct rank *rank)
{
    struct run *run = rank->run;
    for (uint32_t lane = 0; lane < run->task->lane_count; lane++)
        for (uint32_t place = 0; place < BENCH_PLACES; place++) {
            if (!run->task->places[place])
                continue;
            if (!run_batch(rank, lane, place, run->task->warmup))
                return false;
            if (!run_batch(rank, lane, place, 1)) // timed alone: the first calls take longer
                return false;
            if (rank->number == 0)
                choose_iterations(run, lane, place);
        }
    return meet(rank);
}

static bool run_round(const struct rank *rank, uint32_t round)
{
    struct run *run = rank->run;
    const uint32_t slots = run->task->lane_count * BENCH_PLACES;
    for (uint32_t i = 0; i < slots; i++) {
        const uint32_t slot = round % 2 ? slots - 1 - i : i; // who comes after whom changes
        const uint32_t lane = slot / BENCH_PLACES, place = slot % BENCH_PLACES;
        if (!run->task->places[place])
            continue;
        if (!run_batch(rank, lane, place, run->results[lane][place].iterations))
            return false;
        if (rank->number == 0)
            samples_of(run, lane, place)[round] = mean_time(run);
    }
    return true;
}

static bool run_rounds(const struct rank *rank)
{
    struct run *run = rank->run;
    const uint64_t begin = ls_clock_ns();
    for (uint32_t round = 0; round < ROUNDS_MOST; round++) {
        if (!run_round(rank, round))
            return false;
        if (rank->number == 0) {
            const double spent = (double)(ls_clock_ns() - begin) * 1e-9;
            run->rounds = round + 1;
            run->enough = run->rounds >= ROUNDS_LEAST && spent >= run->task->seconds;
        }
        if (!meet(rank))
            return false;
        if (run->enough)
            break;
    }
    return true;
}

static enum ls_status move(const struct rank *rank, struct ls_memory to, struct ls_memory from)
{
    const struct bench_task *task = rank->run->task;
    return to.buffer == from.buffer && to.offset == from.offset
               ? LS_OK
               : bench_memory_copy(&task->memory, rank->number, to, from, bytes_of(&task->call));
}

static bool check_one(const struct rank *rank, uint32_t lane, uint32_t place)
{
    struct run *run = rank->run;
    const struct ls_known_call *call = &run->task->call;
    const struct ls_memory input = place == BENCH_IN_PLACE ? rank->data : rank->input;
    void *values = rank->image ? rank->image : ls_address(input); // that this thread writes
    void *results = rank->image ? rank->image : ls_address(rank->data);
    ls_known_values_fill(call, run->task->first_rank + rank->number, values);
    enum ls_status status = move(rank, input, ls_host_memory(values));
    wait_for_all(rank);
    if (!status)
        status = call_once(rank, lane, place);
    if (!status)
        status = settle(rank, lane);
    if (!status)
        status = move(rank, ls_host_memory(results), rank->data);
    fail(run, status);
    if (!status)
        atomic_fetch_add(
            &run->wrong,
            ls_known_values_wrong(call, run->task->first_rank + rank->number, results, NULL));
    if (!meet(rank))
        return false;
    if (rank->number == 0) {
        run->results[lane][place].wrong = (uint64_t)run->all.wrong;
        atomic_store(&run->wrong, 0);
    }
    return meet(rank);
}

static bool check_all(const struct rank *rank)
{
    const struct bench_task *task = rank->run->task;
    for (uint32_t lane = 0; lane < task->lane_count; lane++)
        for (uint32_t place = 0; place < BENCH_PLACES; place++)
            if (task->places[place] && !check_one(rank, lane, place))
                return false;
    return true;
}

// ---- A rank ----

// Zeros stay zeros under every reduction, so that no time depends on what the calls before have made of them.
static enum ls_status prepare(struct rank *rank)
{
    const struct bench_task *task = rank->run->task;
    const struct ls_known_call *call = &task->call;
    const size_t bytes = bytes_of(call);
    rank->data = bench_memory_allocate(&task->memory, rank->number, bytes);
    rank->input = bench_memory_allocate(&task->memory, rank->number, bytes);
    rank->image = task->memory.ops ? malloc(bytes + 1) : NULL;
    if (ls_memory_is_null(rank->data) || ls_memory_is_null(rank->input) ||
        (task->memory.ops && !rank->image)) {
        ls_error("bench", "no memory for two buffers of %zu bytes for each of %u ranks", bytes,
                 call->world);
        return LS_OUT_OF_MEMORY;
    }
    enum ls_status status = LS_OK;
    const struct ls_communicator_call made = {.operation = call->operation,
                                              .dtype = call->dtype,
                                              .reduction = call->reduction,
                                              .buffer = rank->data,
                                              .count = call->count,
                                              .wire = call->wire};
    for (uint32_t i = 0; !status && i < task->lane_count; i++)
        status = ls_collective_plan_open(task->lanes[i].communicators[rank->number], &made, "bench",
                                         &rank->plans[i]);
    return status;
}

static bool try_plans(const struct rank *rank)
{
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < rank->run->task->lane_count; i++)
        status = ls_collective_known_answer(rank->plans[i]);
    fail(rank->run, status);
    return meet(rank);
}

static void *run_rank(void *argument)
{
    struct rank *rank = argument;
    struct run *run = rank->run;
    const uint32_t number = run->task->first_rank + rank->number;
    ls_log_set_rank((int32_t)number);
    if (run->task->pin)
        ls_thread_pin_rank(run->task->hosts, run->task->call.world, number);
    fail(run, prepare(rank));
    if (meet(rank) && try_plans(rank) && warm_up(rank) && run_rounds(rank))
        (void)check_all(rank);
    for (uint32_t i = 0; i < run->task->lane_count; i++)
        ls_collective_plan_destroy(rank->plans[i]);
    bench_memory_release(&run->task->memory, rank->number, rank->data);
    bench_memory_release(&run->task->memory, rank->number, rank->input);
    free(rank->image);
    return NULL;
}

// ---- All ----

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void summarise(const struct run *run)
{
    for (uint32_t lane = 0; lane < run->task->lane_count; lane++)
        for (uint32_t place = 0; place < BENCH_PLACES; place++) {
            double *samples = samples_of(run, lane, place);
            struct bench_result *result = &run->results[lane][place];
            if (!run->task->places[place])
                continue;
            qsort(samples, run->rounds, sizeof(*samples), compare);
            result->rounds = run->rounds;
            result->median = (samples[run->rounds / 2] + samples[(run->rounds - 1) / 2]) / 2;
            result->least = samples[0];
            result->low = samples[run->rounds / 4];
            result->high = samples[run->rounds - 1 - run->rounds / 4];
        }
}

// A rank that has no thread cannot be waited for, so that is the end of the program's work: the others leave the first
// time that they meet, to which the missing ones come from here.
static void start_ranks(struct run *run, struct rank *ranks)
{
    uint32_t started = 0;
    enum ls_status status = LS_OK;
    for (; !status && started < run->count; started += !status) {
        char name[16];
        ranks[started] = (struct rank){.run = run, .number = started};
        snprintf(name, sizeof(name), "rank %u", started);
        status = ls_thread_start(&ranks[started].thread, name, run_rank, &ranks[started]);
    }
    fail(run, status);
    for (int i = 0; i < 2 && status && started; i++) { // meet() is two barriers
        const uint32_t passed = atomic_load(&run->barrier.passed);
        atomic_fetch_add(&run->barrier.come, run->count - started);
        while (atomic_load(&run->barrier.passed) == passed)
            sched_yield();
    }
    for (uint32_t i = 0; i < started; i++)
        pthread_join(ranks[i].thread, NULL);
}

enum ls_status bench_lanes_run(const struct bench_task *task,
                               struct bench_result (*out)[BENCH_PLACES])
{
    void *memory = NULL;
    if (posix_memalign(&memory, 64, sizeof(struct run)))
        return LS_OUT_OF_MEMORY;
    struct run *run = memory;
    const uint32_t count = task->count ? task->count : task->call.world;
    struct rank *ranks = calloc(count, sizeof(*ranks));
    *run = (struct run){.task = task, .count = count, .results = out};
    run->times = calloc(count, sizeof(*run->times));
    run->samples =
        calloc((size_t)task->lane_count * BENCH_PLACES * ROUNDS_MOST, sizeof(*run->samples));
    enum ls_status status = LS_OUT_OF_MEMORY;
    if (ranks && run->times && run->samples) {
        bench_workers_watch(task->workers, task);
        start_ranks(run, ranks);
        bench_workers_watch(task->workers, NULL);
        status = (enum ls_status)atomic_load(&run->status);
    }
    if (!status)
        summarise(run);
    free(run->samples);
    free(run->times);
    free(ranks);
    free(run);
    return status;
}
