// SPDX-License-Identifier: Apache-2.0
// Measures the candidates of `auto` on the communicators of a run. One thread a rank. Rank 0
// leads: before each batch of calls it tells the others which candidate comes next and how often
// it is called, and after each batch it hears how long that took on every rank. Whom to call,
// when to stop and what was chosen are thus known on all ranks from one rank alone, also where
// ranks are in different processes.
#include "core/collective/internal.h"
#include "core/collective/tuner_internal.h"

#include "core/base/log.h"
#include "core/base/memory.h"
#include "core/base/shared_memory.h"
#include "core/base/threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_SECONDS 100e-6 // calls are timed together until they take that long
#define ITERATIONS_MOST 1000
#define ROUNDS_MOST 32
#define ROUNDS_LEAST 5 // fewer say nothing about noise
#define ROUNDS_HOPELESS 4 // a candidate that was slower in all of so many is given up
#define WARM_UPS 3
#define HOPELESS 4 // times the baseline: given up after the first call
#define CONTROL_WORDS 2
// What is larger takes too long; its class is that of the largest that was measured.
#define BYTES_MOST (UINT64_C(64) << 20)

// What the leader tells: a candidate to be called, or the end of a size and the candidate chosen.
enum { ORDER_END, ORDER_SKIP, ORDER_CALL };

struct measurement {
    struct ls_tuner *tuner;
    const struct ls_tuner_task *task;
    const uint64_t *counts; // those of the task that are measured, growing
    size_t size_count;
    struct ls_tuner_row *rows; // one a size; written by the first rank here
    double (*samples)[ROUNDS_MOST]; // the leader's: by candidate and round
    uint64_t deadline_ns;
    struct rank *ranks; // of this process
};

struct rank {
    struct measurement *measurement;
    struct ls_communicator *communicator;
    bool records; // the rows of this process
    enum ls_status status;
    pthread_t thread;
    struct ls_memory control; // floats, reduced to tell and to hear
    struct ls_collective_plan *control_plan;
    struct ls_memory buffer;
    struct ls_collective_plan *plans[LS_TUNER_CANDIDATES]; // NULL: does not do this call
};

static uint64_t now_ns(const struct measurement *measurement)
{
    const struct ls_host *base = measurement->tuner->base;
    return base->clock_ns(base);
}

// ---- Memory, where the collectives of the run work ----

static struct ls_memory allocate(const struct rank *rank, size_t bytes)
{
    const struct ls_rank_place *place = rank->communicator->place;
    if (place)
        return ls_device_allocate(place->device, bytes); // zeroed
    void *memory = ls_segment_allocate(bytes, LS_ALIGNMENT); // as the buffers of replicas
    return ls_host_memory(memory ? memset(memory, 0, bytes) : NULL);
}

static void release(const struct rank *rank, struct ls_memory memory)
{
    const struct ls_rank_place *place = rank->communicator->place;
    if (place)
        ls_device_release(place->device, memory);
    else
        ls_segment_free(ls_address(memory));
}

static enum ls_status move(const struct rank *rank, struct ls_memory to, struct ls_memory from,
                           size_t bytes)
{
    const struct ls_rank_place *place = rank->communicator->place;
    if (place)
        return ls_device_copy(place->device, to, from, bytes, NULL);
    memcpy(ls_address(to), ls_address(from), bytes);
    return LS_OK;
}

// ---- Calls ----

static enum ls_status call(const struct rank *rank, struct ls_collective_plan *plan,
                           uint64_t iterations)
{
    enum ls_status status = LS_OK;
    for (uint64_t i = 0; !status && i < iterations; i++) {
        status = ls_collective_start(plan);
        if (!status)
            status = ls_collective_wait(plan);
    }
    return status ? status : ls_communicator_synchronize(rank->communicator);
}

// Adds up the words of all ranks, on all of them.
static enum ls_status add_up(const struct rank *rank, float words[CONTROL_WORDS])
{
    const size_t bytes = CONTROL_WORDS * sizeof(float);
    enum ls_status status = move(rank, rank->control, ls_host_memory(words), bytes);
    if (!status)
        status = call(rank, rank->control_plan, 1);
    return status ? status : move(rank, ls_host_memory(words), rank->control, bytes);
}

static enum ls_status create_plan(struct rank *rank, size_t candidate, struct ls_memory buffer,
                                  const struct ls_tuner_task *what, uint64_t count,
                                  struct ls_collective_plan **out)
{
    rank->communicator->tried = &rank->measurement->tuner->drawers[candidate].host;
    const struct ls_communicator_call call = {.operation = what->operation,
                                              .dtype = what->dtype,
                                              .reduction = what->reduction,
                                              .buffer = buffer,
                                              .count = count,
                                              .wire = what->wire};
    enum ls_status status = ls_collective_plan_open(rank->communicator, &call, "auto", out);
    rank->communicator->tried = NULL;
    return status ? status : ls_collective_known_answer(*out);
}

// Runs what the leader ordered, and tells how long a call took. `seconds`: the mean over all ranks.
static enum ls_status run_batch(const struct rank *rank, size_t candidate, uint64_t iterations,
                                double *seconds)
{
    const struct measurement *measurement = rank->measurement;
    const uint64_t begin = now_ns(measurement);
    const enum ls_status status = call(rank, rank->plans[candidate], iterations);
    const double each = (double)(now_ns(measurement) - begin) * 1e-9 / (double)iterations;
    float words[CONTROL_WORDS] = {(float)each, 0};
    if (status)
        return status;
    const enum ls_status told = add_up(rank, words);
    *seconds = (double)words[0] / rank->communicator->group->world;
    return told;
}

// ---- What noise hides ----

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

struct ls_tuner_time ls_tuner_summarise(const double *samples, const double *baseline,
                                        uint32_t rounds)
{
    struct ls_tuner_time time = {.rounds = rounds > ROUNDS_MOST ? ROUNDS_MOST : rounds};
    double sorted[ROUNDS_MOST];
    const uint32_t count = time.rounds;
    if (!count)
        return time;
    for (uint32_t i = 0; i < count; i++) {
        sorted[i] = samples[i];
        time.faster += samples[i] < baseline[i];
    }
    qsort(sorted, count, sizeof(*sorted), compare);
    time.seconds = (sorted[count / 2] + sorted[(count - 1) / 2]) / 2;
    time.spread = (sorted[count - 1 - count / 4] - sorted[count / 4]) / 2;
    return time;
}

size_t ls_tuner_decide(const struct ls_tuner_time *times, size_t count)
{
    size_t base = 0;
    while (base + 1 < count && !times[base].rounds)
        base++;
    size_t best = times[base].rounds ? base : 0;
    for (size_t i = base + 1; i < count; i++) {
        const struct ls_tuner_time *time = &times[i];
        if (time->dropped || time->rounds < ROUNDS_LEAST || times[base].rounds < ROUNDS_LEAST)
            continue;
        const bool beyond = times[base].seconds - time->seconds > times[base].spread + time->spread;
        if (beyond && (uint64_t)time->faster * 8 >= (uint64_t)time->rounds * 7 &&
            time->seconds < times[best].seconds)
            best = i;
    }
    return best;
}

// ---- The leader ----

static enum ls_status order(const struct rank *rank, size_t candidate, uint64_t iterations,
                            double *seconds)
{
    float words[CONTROL_WORDS] = {(float)(ORDER_CALL + candidate), (float)iterations};
    const enum ls_status status = add_up(rank, words);
    return status ? status : run_batch(rank, candidate, iterations, seconds);
}

static uint64_t fitting_iterations(double seconds)
{
    const double fitting = seconds > 0 ? BATCH_SECONDS / seconds : ITERATIONS_MOST;
    return fitting < 1 ? 1 : fitting > ITERATIONS_MOST ? ITERATIONS_MOST : (uint64_t)fitting;
}

// Calls each candidate until its calls fill a batch. The first calls take longer than those that
// follow: they touch memory for the first time, and threads come from elsewhere.
static enum ls_status warm_up(const struct rank *rank, uint64_t deadline_ns,
                              uint64_t iterations[LS_TUNER_CANDIDATES],
                              struct ls_tuner_time times[LS_TUNER_CANDIDATES])
{
    const struct measurement *measurement = rank->measurement;
    double first = 0;
    for (size_t i = 0; i < measurement->tuner->count; i++) {
        double seconds = 0;
        times[i].dropped = !rank->plans[i] || (first > 0 && now_ns(measurement) >= deadline_ns);
        if (times[i].dropped)
            continue;
        iterations[i] = 1;
        for (int call = 0; call < WARM_UPS; call++) {
            const enum ls_status status = order(rank, i, iterations[i], &seconds);
            if (status)
                return status;
            iterations[i] = fitting_iterations(seconds);
            if (seconds > 20 * BATCH_SECONDS)
                break;
        }
        if (first == 0)
            first = seconds;
        times[i].seconds = seconds;
        times[i].dropped = seconds > HOPELESS * first;
    }
    return LS_OK;
}

// All candidates in turn, forwards, then backwards, so that what disturbs one disturbs its
// neighbours. `whole`: it was not cut off by the deadline.
static enum ls_status run_round(const struct rank *rank, uint32_t round, uint64_t deadline_ns,
                                const uint64_t *iterations, const struct ls_tuner_time *times,
                                bool *whole)
{
    const struct measurement *measurement = rank->measurement;
    const size_t count = measurement->tuner->count;
    for (size_t i = 0; i < count; i++) {
        const size_t candidate = round % 2 ? count - 1 - i : i;
        if (times[candidate].dropped)
            continue;
        *whole = now_ns(measurement) < deadline_ns;
        if (!*whole)
            return LS_OK;
        const enum ls_status status =
            order(rank, candidate, iterations[candidate], &measurement->samples[candidate][round]);
        if (status)
            return status;
    }
    return LS_OK;
}

static bool is_always_slower(const double *samples, const double *than, uint32_t rounds)
{
    for (uint32_t i = 0; i < rounds; i++)
        if (samples[i] < than[i])
            return false;
    return true;
}

// True while more rounds can change the choice: a candidate that was slower than the baseline, or than the
// fastest, in all rounds so far is not timed any further.
static bool summarise(const struct measurement *measurement, uint32_t rounds,
                      struct ls_tuner_time *times)
{
    const size_t count = measurement->tuner->count;
    double(*samples)[ROUNDS_MOST] = measurement->samples;
    size_t base = 0, left = 0;
    while (times[base].dropped)
        base++;
    size_t fastest = base;
    for (size_t i = 0; i < count; i++) {
        if (times[i].dropped)
            continue;
        times[i] = ls_tuner_summarise(samples[i], samples[base], rounds);
        if (times[i].seconds < times[fastest].seconds)
            fastest = i;
    }
    for (size_t i = base + 1; i < count; i++) {
        if (!times[i].dropped && i != fastest && rounds >= ROUNDS_HOPELESS)
            times[i].dropped = is_always_slower(samples[i], samples[base], rounds) ||
                               is_always_slower(samples[i], samples[fastest], rounds);
        left += !times[i].dropped;
    }
    return left > 0;
}

// Drops the slower half of the candidates, but never the baseline and the fastest other one.
static void drop_slower_half(const struct measurement *measurement, struct ls_tuner_time *times)
{
    const size_t count = measurement->tuner->count;
    size_t base = 0, others = 0;
    while (times[base].dropped)
        base++;
    for (size_t i = base + 1; i < count; i++)
        others += !times[i].dropped;
    for (size_t drops = others / 2; drops > 0; drops--) {
        size_t slowest = base;
        for (size_t i = base + 1; i < count; i++)
            if (!times[i].dropped && (slowest == base || times[i].seconds > times[slowest].seconds))
                slowest = i;
        times[slowest].dropped = true;
    }
}

// When a size must be done. A round of a large size takes longer, and more of a run's time
// depends on what is found: the largest gets as much as four small ones.
static uint64_t size_deadline_ns(const struct measurement *measurement, size_t number)
{
    const struct ls_tuner_row *rows = measurement->rows;
    const double largest = (double)rows[measurement->size_count - 1].bytes + 1;
    const uint64_t begin = now_ns(measurement);
    const uint64_t left = measurement->deadline_ns > begin ? measurement->deadline_ns - begin : 0;
    double all = 0;
    for (size_t i = number; i < measurement->size_count; i++)
        all += 1 + 3 * (double)rows[i].bytes / largest;
    return begin + (uint64_t)((double)left * (1 + 3 * (double)rows[number].bytes / largest) / all);
}

static enum ls_status lead(const struct rank *rank, size_t number)
{
    const struct measurement *measurement = rank->measurement;
    struct ls_tuner_row *row = &measurement->rows[number];
    const uint64_t deadline_ns = size_deadline_ns(measurement, number);
    uint64_t iterations[LS_TUNER_CANDIDATES] = {0};
    enum ls_status status = warm_up(rank, deadline_ns, iterations, row->times);
    bool whole = false; // and something is left to decide
    for (size_t i = 0; i < measurement->tuner->count; i++)
        whole = whole || !row->times[i].dropped;
    for (uint32_t round = 0; !status && whole && round < ROUNDS_MOST; round++) {
        const uint64_t begin = now_ns(measurement);
        status = run_round(rank, round, deadline_ns, iterations, row->times, &whole);
        if (status || !whole)
            break;
        whole = summarise(measurement, round + 1, row->times);
        // Too slow for the rounds that are needed at least: better fewer candidates than no choice.
        const uint64_t end = now_ns(measurement);
        if (whole && round + 1 < ROUNDS_LEAST &&
            end + (ROUNDS_LEAST + 1 - round) * (end - begin) > deadline_ns)
            drop_slower_half(measurement, row->times);
    }
    row->candidate = ls_tuner_decide(row->times, measurement->tuner->count);
    float words[CONTROL_WORDS] = {ORDER_END, (float)row->candidate};
    return status ? status : add_up(rank, words);
}

// ---- The others ----

static enum ls_status follow(const struct rank *rank, size_t *chosen)
{
    for (;;) {
        float words[CONTROL_WORDS] = {0, 0};
        double seconds;
        enum ls_status status = add_up(rank, words);
        if (status)
            return status;
        if (words[0] < ORDER_CALL) {
            *chosen = (size_t)words[1];
            return LS_OK;
        }
        status = run_batch(rank, (size_t)words[0] - ORDER_CALL, (uint64_t)words[1], &seconds);
        if (status)
            return status;
    }
}

// ---- A size ----

// Whether there is time for it: the leader knows how long the baseline took for the size before.
static enum ls_status begin_size(const struct rank *rank, size_t number, bool *begin)
{
    const struct measurement *measurement = rank->measurement;
    const struct ls_tuner_row *before = number ? &measurement->rows[number - 1] : NULL;
    float words[CONTROL_WORDS] = {0, 0};
    if (rank->communicator->rank == 0) {
        const double expected = before && before->bytes
                                    ? before->times[0].seconds *
                                          (double)measurement->rows[number].bytes /
                                          (double)before->bytes
                                    : 0;
        const uint64_t end = now_ns(measurement) + (uint64_t)(2e9 * expected);
        words[0] = end >= measurement->deadline_ns ? ORDER_SKIP : ORDER_CALL;
    }
    const enum ls_status status = add_up(rank, words);
    *begin = words[0] == ORDER_CALL;
    return status;
}

// All ranks find the same: a candidate that cannot send 16 bits is left out from now on, and the
// proof has said why.
static enum ls_status create_plans(struct rank *rank, uint64_t count)
{
    const struct measurement *measurement = rank->measurement;
    struct ls_tuner *tuner = measurement->tuner;
    const struct ls_tuner_task *task = measurement->task;
    const struct ls_communicator_group *group = rank->communicator->group;
    const struct ls_collective_call asked = {.struct_size = sizeof(asked),
                                             .operation = task->operation,
                                             .world = group->world,
                                             .hosts = group->around.hosts,
                                             .cards = group->around.cards,
                                             .order = group->around.order,
                                             .count = count,
                                             .element_bytes =
                                                 (uint32_t)ls_dtype_bytes(task->dtype)};
    enum ls_status status = LS_OK;
    for (size_t i = 0; !status && i < tuner->count; i++) {
        if (!ls_tuner_does(tuner, i, &asked))
            continue;
        status = create_plan(rank, i, rank->buffer, task, count, &rank->plans[i]);
        if (status == LS_UNAVAILABLE && task->wire && !rank->plans[i]) {
            atomic_store(&tuner->left_out[i], true);
            status = LS_OK;
        }
    }
    return status;
}

static void destroy_plans(struct rank *rank)
{
    for (size_t i = 0; i < LS_TUNER_CANDIDATES; i++) {
        ls_collective_plan_destroy(rank->plans[i]);
        rank->plans[i] = NULL;
    }
}

static enum ls_status measure_size(struct rank *rank, size_t number)
{
    const struct measurement *measurement = rank->measurement;
    struct ls_tuner_row *row = &measurement->rows[number];
    bool begin = false;
    size_t chosen = 0;
    enum ls_status status = begin_size(rank, number, &begin);
    if (status || !begin)
        return status;
    status = create_plans(rank, measurement->counts[number]);
    if (!status)
        status = rank->communicator->rank == 0 ? lead(rank, number) : follow(rank, &chosen);
    if (!status && rank->records && rank->communicator->rank != 0)
        row->candidate = chosen;
    destroy_plans(rank);
    return status;
}

// ---- A rank ----

static enum ls_status measure_rank(struct rank *rank)
{
    static const struct ls_tuner_task sum = {
        .operation = LS_ALL_REDUCE, .dtype = LS_F32, .reduction = LS_SUM};
    const struct measurement *measurement = rank->measurement;
    struct ls_communication_times times;
    rank->control = allocate(rank, CONTROL_WORDS * sizeof(float));
    rank->buffer = allocate(rank, measurement->rows[measurement->size_count - 1].bytes + 1);
    enum ls_status status = ls_memory_is_null(rank->control) || ls_memory_is_null(rank->buffer)
                                ? LS_OUT_OF_MEMORY
                                : LS_OK;
    if (!status)
        status = create_plan(rank, measurement->tuner->count, rank->control, &sum, CONTROL_WORDS,
                             &rank->control_plan);
    for (size_t i = 0; !status && i < measurement->size_count; i++)
        status = measure_size(rank, i);
    if (status)
        ls_communicator_abort(rank->communicator);
    ls_collective_plan_destroy(rank->control_plan);
    release(rank, rank->control);
    release(rank, rank->buffer);
    ls_communicator_times(rank->communicator, 1, &times); // it is no part of a step
    return status;
}

static void *run_rank(void *argument)
{
    struct rank *rank = argument;
    ls_log_set_rank((int32_t)rank->communicator->rank);
    // Two ranks on one core wait for the scheduler, which says nothing of a collective.
    const struct ls_communicator_group *group = rank->communicator->group;
    ls_thread_pin_rank(group->hosts, group->world, rank->communicator->rank);
    rank->status = measure_rank(rank);
    if (rank->status == LS_OUT_OF_MEMORY)
        ls_error("auto", "out of memory while collectives are measured; name one");
    return NULL;
}

// The threads have no track in a timeline of their own: what they do is one slice of the caller's.
static enum ls_status run_ranks(struct measurement *measurement,
                                struct ls_communicator *const *communicators, uint32_t count)
{
    struct ls_trace_track *track = ls_trace_mine;
    enum ls_status status = LS_OK;
    uint32_t started = 0;
    ls_trace_mine = NULL;
    for (; !status && started < count; started += !status) {
        struct rank *rank = &measurement->ranks[started];
        char name[16];
        *rank = (struct rank){.measurement = measurement,
                              .communicator = communicators[started],
                              .records = started == 0};
        snprintf(name, sizeof(name), "auto %u", started);
        status = ls_thread_start(&rank->thread, name, run_rank, rank);
    }
    ls_trace_mine = track;
    if (status) // the others would wait for a rank that has no thread
        ls_communicator_abort(communicators[0]);
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(measurement->ranks[i].thread, NULL);
        const enum ls_status ended = measurement->ranks[i].status;
        if (ended && (!status || status == LS_ABORTED))
            status = ended;
    }
    return status;
}

// ---- Which sizes ----

static int compare_counts(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

// Growing, one of each class of sizes, the largest; without classes that have a row. The caller
// frees it.
static uint64_t *list_counts(const struct ls_tuner *tuner, const struct ls_tuner_task *task,
                             size_t *size_count)
{
    const uint64_t element_bytes = ls_dtype_bytes(task->dtype);
    uint64_t *counts = malloc((task->size_count + 1) * sizeof(*counts));
    *size_count = 0;
    if (!counts)
        return NULL;
    memcpy(counts, task->counts, task->size_count * sizeof(*counts));
    qsort(counts, task->size_count, sizeof(*counts), compare_counts);
    for (size_t i = 0; i < task->size_count; i++) {
        if (counts[i] * element_bytes > BYTES_MOST)
            break;
        const int class = ls_tuner_class(counts[i] * element_bytes);
        const struct ls_tuner_row *known =
            ls_tuner_nearest(tuner, task->operation, counts[i] * element_bytes);
        if (known && ls_tuner_class(known->bytes) == class)
            continue;
        if (*size_count && ls_tuner_class(counts[*size_count - 1] * element_bytes) == class)
            --*size_count;
        counts[(*size_count)++] = counts[i];
    }
    return counts;
}

static enum ls_status measure(struct measurement *measurement,
                              struct ls_communicator *const *communicators, uint32_t count)
{
    const uint64_t element_bytes = ls_dtype_bytes(measurement->task->dtype);
    struct ls_tuner *tuner = measurement->tuner;
    for (size_t i = 0; i < measurement->size_count; i++) {
        measurement->rows[i].operation = measurement->task->operation;
        measurement->rows[i].bytes = measurement->counts[i] * element_bytes;
    }
    enum ls_status status = run_ranks(measurement, communicators, count);
    for (size_t i = 0; !status && i < measurement->size_count; i++)
        status = ls_tuner_append(tuner, &measurement->rows[i]);
    return status;
}

enum ls_status ls_tuner_measure(struct ls_tuner *tuner, const struct ls_tuner_task *task,
                                struct ls_communicator *const *communicators, uint32_t count)
{
    static const struct ls_trace_label slice = {.category = "start", .name = "measure collectives"};
    struct measurement measurement = {.tuner = tuner, .task = task};
    const uint64_t budget = (uint64_t)(LS_TUNER_SECONDS * 1e9);
    if (communicators[0]->group->world == 1)
        return LS_OK;
    uint64_t *counts = list_counts(tuner, task, &measurement.size_count);
    if (counts && !measurement.size_count) {
        free(counts);
        return LS_OK;
    }
    const uint64_t begin = now_ns(&measurement);
    measurement.counts = counts;
    measurement.deadline_ns = begin + (tuner->spent_ns < budget ? budget - tuner->spent_ns : 0);
    measurement.rows = calloc(measurement.size_count, sizeof(*measurement.rows));
    measurement.samples = calloc(tuner->count, sizeof(*measurement.samples));
    measurement.ranks = ls_calloc_cacheline(count, sizeof(*measurement.ranks));
    enum ls_status status = LS_OUT_OF_MEMORY;
    ls_trace_begin(&slice, 0);
    if (counts && measurement.rows && measurement.samples && measurement.ranks)
        status = measure(&measurement, communicators, count);
    ls_trace_end();
    tuner->spent_ns += now_ns(&measurement) - begin;
    free(counts);
    free(measurement.rows);
    free(measurement.samples);
    free(measurement.ranks);
    return status;
}
