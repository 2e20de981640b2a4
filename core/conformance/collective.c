// SPDX-License-Identifier: Apache-2.0
// Each case opens communicators of its own, runs one thread a rank, and asks each for its verdict.
#include "core/conformance/collective.h"

#include "core/base/log.h"
#include "core/base/random.h"
#include "core/base/threads.h"
#include "core/collective/communicator.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAXIMUM_WORLD 16
#define MESSAGE_BYTES 512
#define GUARD 64 // elements on both sides of a buffer that must stay as they are
#define LONG_DEADLINE_NS UINT64_C(60000000000)
#define SHORT_DEADLINE_NS UINT64_C(300000000)

struct suite {
    const struct ls_collective_conformance_options *options;
    ls_conformance_report report;
    void *context;
    struct ls_conformance_counts counts;
    uint32_t operations, dtypes, reductions; // masks that are tested
};

struct rank;
typedef void (*rank_body)(struct rank *rank);

struct trial_case {
    const char *name;
    uint32_t world;
    uint64_t segment_bytes;
    uint64_t deadline_ns;
    uint32_t operation, dtype, reduction;
    rank_body body;
};

// One rank of a running case. What it finds wrong goes to `message`.
struct rank {
    const struct suite *suite;
    const struct trial_case *trial;
    struct ls_communicator *communicator;
    uint32_t number;
    enum ls_status status; // what the body's last call returned, where the case wants to know
    uint64_t hash; // of the result, where the case compares ranks
    char message[MESSAGE_BYTES];
    pthread_t thread;
};

static const char *const operation_names[] = {"",           "all_reduce", "reduce_scatter",
                                              "all_gather", "broadcast",  "reduce"};
static const char *const dtype_names[] = {"",         "float32", "float64", "float16",
                                          "bfloat16", "int32",   "int64",   "uint8"};
static const char *const reduction_names[] = {"", "sum", "product", "min", "max", "mean"};

// ---- Values ----

// Small whole numbers are exact in every type.
static void encode(void *memory, uint64_t index, uint32_t dtype, int32_t value)
{
    const float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof(bits));
    switch (dtype) {
    case LS_F32: ((float *)memory)[index] = single; break;
    case LS_F64: ((double *)memory)[index] = value; break;
    case LS_F16: // same sign, exponent moved from bias 127 to 15, ten bits of mantissa
        ((uint16_t *)memory)[index] =
            (uint16_t)(value ? (bits >> 16 & 0x8000) | ((bits & 0x7fffffff) - 0x38000000) >> 13
                             : 0);
        break;
    case LS_BF16: ((uint16_t *)memory)[index] = (uint16_t)(bits >> 16); break;
    case LS_I32: ((int32_t *)memory)[index] = value; break;
    case LS_I64: ((int64_t *)memory)[index] = value; break;
    default: ((uint8_t *)memory)[index] = (uint8_t)value; break;
    }
}

static uint32_t draw(uint64_t run, uint64_t index, uint32_t bound)
{
    return (uint32_t)(ls_random_u64(run + 1, index) >> 33) % bound;
}

// What rank `rank` contributes to element `index` in run `run`. Sums stay below 256, products below 2^7, means
// are whole; unsigned types get nothing negative.
static int32_t contribution(const struct trial_case *trial, uint64_t run, uint32_t rank,
                            uint64_t index)
{
    const int32_t lowest = trial->dtype == LS_U8 ? 0 : -5;
    const uint32_t world = trial->world;
    if (trial->reduction == LS_PRODUCT)
        return (rank + index + run) % 3 == 0 ? (rank % 3 == 0 ? 2 : 1)
                                             : (lowest && (rank + index) % 2 ? -1 : 1);
    if (trial->reduction == LS_MEAN)
        return (int32_t)draw(run, index, 6) + (rank == index % world ? (int32_t)world : 0);
    return lowest + (int32_t)draw(run + rank * 1000, index, 11);
}

static int32_t combined(const struct trial_case *trial, uint64_t run, uint64_t index)
{
    int32_t value = contribution(trial, run, 0, index);
    for (uint32_t rank = 1; rank < trial->world; rank++) {
        const int32_t other = contribution(trial, run, rank, index);
        switch (trial->reduction) {
        case LS_PRODUCT: value *= other; break;
        case LS_MIN: value = other < value ? other : value; break;
        case LS_MAX: value = other > value ? other : value; break;
        default: value += other; break;
        }
    }
    return trial->reduction == LS_MEAN ? value / (int32_t)trial->world : value;
}

// ---- Buffers ----

struct buffer {
    char *memory;
    void *data; // behind the guard; `offset` elements past a multiple of 64 bytes
    uint64_t count, offset, element_bytes;
};

static bool buffer_init(struct buffer *buffer, uint64_t count, uint64_t offset, uint32_t dtype)
{
    void *memory = NULL;
    buffer->element_bytes = ls_dtype_bytes(dtype);
    buffer->count = count;
    buffer->offset = offset;
    const uint64_t bytes = (count + 2 * GUARD + offset) * buffer->element_bytes;
    if (posix_memalign(&memory, 64, bytes))
        return false;
    memset(memory, 0xa5, bytes);
    buffer->memory = memory;
    buffer->data = buffer->memory + (GUARD + offset) * buffer->element_bytes;
    return true;
}

static bool guards_hold(const struct buffer *buffer)
{
    const uint64_t before = (GUARD + buffer->offset) * buffer->element_bytes;
    const uint64_t after = before + buffer->count * buffer->element_bytes;
    for (uint64_t i = 0; i < before; i++)
        if ((unsigned char)buffer->memory[i] != 0xa5)
            return false;
    for (uint64_t i = after; i < after + GUARD * buffer->element_bytes; i++)
        if ((unsigned char)buffer->memory[i] != 0xa5)
            return false;
    return true;
}

// ---- Judging ----

__attribute__((format(printf, 2, 3))) static void blame(struct rank *rank, const char *format, ...)
{
    va_list list;
    if (rank->message[0])
        return; // the first finding counts
    va_start(list, format);
    vsnprintf(rank->message, sizeof(rank->message), format, list);
    va_end(list);
}

// The part of the buffer in which the operation promises something to this rank.
static struct ls_range result_range(const struct rank *rank, uint64_t count, uint32_t root)
{
    const struct ls_collective_call call = {.world = rank->trial->world, .count = count};
    if (rank->trial->operation == LS_REDUCE_SCATTER)
        return ls_chunk(&call, rank->number);
    if (rank->trial->operation == LS_REDUCE && rank->number != root)
        return ls_data_range(0, 0);
    return ls_data_range(0, count);
}

static uint32_t part_owner(uint64_t count, uint32_t world, uint64_t index)
{
    const struct ls_collective_call call = {.world = world, .count = count};
    for (uint32_t i = 0; i < world; i++) {
        const struct ls_range part = ls_chunk(&call, i);
        if (index >= part.offset && index < part.offset + part.count)
            return i;
    }
    return 0;
}

static void fill(const struct rank *rank, struct buffer *buffer, uint64_t run)
{
    for (uint64_t i = 0; i < buffer->count; i++)
        encode(buffer->data, i, rank->trial->dtype,
               contribution(rank->trial, run, rank->number, i));
}

static void judge(struct rank *rank, const struct buffer *buffer, uint64_t run, uint32_t root)
{
    const struct trial_case *trial = rank->trial;
    const struct ls_range range = result_range(rank, buffer->count, root);
    const uint64_t bytes = buffer->element_bytes;
    for (uint64_t i = range.offset; i < range.offset + range.count; i++) {
        uint64_t expected[1];
        int32_t value;
        if (trial->operation == LS_BROADCAST)
            value = contribution(trial, run, root, i);
        else if (trial->operation == LS_ALL_GATHER)
            value = contribution(trial, run, part_owner(buffer->count, trial->world, i), i);
        else
            value = combined(trial, run, i);
        encode(expected, 0, trial->dtype, value);
        if (memcmp(expected, (char *)buffer->data + i * bytes, bytes) != 0) {
            blame(rank,
                  "rank %u: element %" PRIu64 " of %" PRIu64 " is not %d (root %u, offset %" PRIu64
                  ", run %" PRIu64 ")",
                  rank->number, i, buffer->count, value, root, buffer->offset, run);
            return;
        }
    }
    if (!guards_hold(buffer))
        blame(rank, "rank %u: memory outside a buffer of %" PRIu64 " was written", rank->number,
              buffer->count);
}

static void expect_ok(struct rank *rank, enum ls_status status, const char *what)
{
    if (status)
        blame(rank, "rank %u: %s: %s", rank->number, what, ls_status_text(status));
}

// ---- Bodies: what a rank does in a case ----

static bool make_plan(struct rank *rank, struct buffer *buffer, uint32_t root, const char *label,
                      struct ls_collective_plan **out)
{
    const struct trial_case *trial = rank->trial;
    rank->status =
        ls_collective_plan_create(rank->communicator, trial->operation, buffer->data, buffer->count,
                                  trial->dtype, trial->reduction, root, label, out);
    expect_ok(rank, rank->status, "making a plan");
    return rank->status == LS_OK;
}

static void run_plan(struct rank *rank, struct ls_collective_plan *plan)
{
    rank->status = ls_collective_start(plan);
    if (!rank->status)
        rank->status = ls_collective_wait(plan);
}

// One count, twice with the same plan.
static void one_count(struct rank *rank, uint64_t count, uint64_t offset, uint32_t root)
{
    struct buffer buffer;
    struct ls_collective_plan *plan = NULL;
    if (!buffer_init(&buffer, count, offset, rank->trial->dtype)) {
        blame(rank, "rank %u: no memory for %" PRIu64 " elements", rank->number, count);
        ls_communicator_abort(rank->communicator);
        return;
    }
    if (make_plan(rank, &buffer, root, "values", &plan)) {
        for (uint64_t run = 0; run < 2 && !rank->message[0]; run++) {
            fill(rank, &buffer, run);
            run_plan(rank, plan);
            expect_ok(rank, rank->status, "running");
            if (!rank->status)
                judge(rank, &buffer, run, root);
        }
    }
    if (rank->message[0])
        ls_communicator_abort(rank->communicator);
    ls_collective_plan_destroy(plan);
    free(buffer.memory);
}

static void values_body(struct rank *rank)
{
    static const uint64_t counts[] = {0, 1, 2, 31, 64, 97, 128, 1009, 4096, 10007};
    const struct trial_case *trial = rank->trial;
    const bool rooted = trial->operation == LS_BROADCAST || trial->operation == LS_REDUCE;
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts) && !rank->message[0]; i++)
        for (uint32_t root = 0; root < (rooted ? trial->world : 1) && !rank->message[0]; root++)
            one_count(rank, counts[i], i % 4, root);
}

// Several segments of the usual length a rank, and a prime.
static void large_body(struct rank *rank)
{
    const uint64_t segment = (UINT64_C(256) << 10) / ls_dtype_bytes(rank->trial->dtype);
    one_count(rank, 2 * segment * rank->trial->world + 77, 1, 0);
    if (!rank->message[0])
        one_count(rank, 500009, 3, 0);
}

// Buckets 0, 1 and 2 start before the first is waited for, several times over.
static void in_flight_body(struct rank *rank)
{
    enum { PLANS = 3 };
    static const uint64_t counts[PLANS] = {5003, 0, 40009};
    struct buffer buffers[PLANS] = {0};
    struct ls_collective_plan *plans[PLANS] = {0};
    for (uint32_t i = 0; i < PLANS && !rank->message[0]; i++) {
        if (!buffer_init(&buffers[i], counts[i], i, rank->trial->dtype))
            blame(rank, "rank %u: no memory", rank->number);
        else
            (void)make_plan(rank, &buffers[i], 0, "bucket", &plans[i]);
    }
    for (uint64_t run = 0; run < 5 && !rank->message[0]; run++) {
        for (uint32_t i = 0; i < PLANS; i++) {
            fill(rank, &buffers[i], run + i);
            expect_ok(rank, ls_collective_start(plans[i]), "starting");
            expect_ok(rank, ls_communicator_progress(rank->communicator), "progress");
        }
        for (uint32_t i = 0; i < PLANS && !rank->message[0]; i++) {
            expect_ok(rank, ls_collective_wait(plans[i]), "waiting");
            judge(rank, &buffers[i], run + i, 0);
        }
    }
    if (rank->message[0])
        ls_communicator_abort(rank->communicator);
    for (uint32_t i = 0; i < PLANS; i++) {
        ls_collective_plan_destroy(plans[i]);
        free(buffers[i].memory);
    }
}

static uint64_t bits_hash(const void *data, uint64_t bytes)
{
    const unsigned char *byte = data;
    uint64_t hash = UINT64_C(0xcbf29ce484222325); // FNV-1a
    for (uint64_t i = 0; i < bytes; i++)
        hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
    return hash;
}

// Random numbers, whose sum depends on the order: the same bits in every run; ranks are compared later.
static void bits_body(struct rank *rank)
{
    enum { COUNT = 70001 };
    struct buffer buffer;
    struct ls_collective_plan *plan = NULL;
    if (!buffer_init(&buffer, COUNT, 0, LS_F32)) {
        blame(rank, "rank %u: no memory", rank->number);
        ls_communicator_abort(rank->communicator);
        return;
    }
    const bool made = make_plan(rank, &buffer, 0, "random", &plan);
    for (uint32_t run = 0; made && run < 4 && !rank->message[0]; run++) {
        const uint64_t key = ls_random_key(rank->suite->options->seed, rank->number);
        for (uint32_t i = 0; i < COUNT; i++)
            ((float *)buffer.data)[i] = (float)ls_random_normal(key, i);
        run_plan(rank, plan);
        expect_ok(rank, rank->status, "running");
        const uint64_t hash = bits_hash(buffer.data, COUNT * sizeof(float));
        if (run > 0 && hash != rank->hash)
            blame(rank, "rank %u: run %u gives other bits than the first", rank->number, run);
        rank->hash = hash;
    }
    if (rank->message[0])
        ls_communicator_abort(rank->communicator);
    ls_collective_plan_destroy(plan);
    free(buffer.memory);
}

static void sleep_ms(long milliseconds)
{
    const struct timespec time = {.tv_nsec = milliseconds * 1000000};
    nanosleep(&time, NULL);
}

static void late_body(struct rank *rank)
{
    for (uint32_t turn = 0; turn < 2 && !rank->message[0]; turn++) {
        if (rank->number == (turn ? 0 : rank->trial->world - 1))
            sleep_ms(30);
        one_count(rank, 20011, 0, 0);
    }
}

// One call; `status` says how it ended, and the buffer is freed at once, whatever the others do.
static void single_call(struct rank *rank, uint64_t count)
{
    struct buffer buffer;
    struct ls_collective_plan *plan = NULL;
    if (!buffer_init(&buffer, count, 0, rank->trial->dtype)) {
        blame(rank, "rank %u: no memory", rank->number);
        return;
    }
    if (make_plan(rank, &buffer, 0, "bucket 7", &plan)) {
        fill(rank, &buffer, 0);
        run_plan(rank, plan);
    }
    ls_collective_plan_destroy(plan);
    free(buffer.memory);
}

static void lost_body(struct rank *rank)
{
    if (rank->number != rank->trial->world - 1)
        single_call(rank, 30011);
}

static void abort_body(struct rank *rank)
{
    if (rank->number != rank->trial->world - 1) {
        single_call(rank, 300007);
        return;
    }
    sleep_ms(20);
    ls_communicator_abort(rank->communicator);
    rank->status = LS_ABORTED;
}

// All ranks call over and over until one aborts in the middle of it.
static void abort_busy_body(struct rank *rank)
{
    struct buffer buffer;
    struct ls_collective_plan *plan = NULL;
    if (!buffer_init(&buffer, 150001, 0, rank->trial->dtype)) {
        blame(rank, "rank %u: no memory", rank->number);
        ls_communicator_abort(rank->communicator);
        return;
    }
    if (make_plan(rank, &buffer, 0, "busy", &plan)) {
        fill(rank, &buffer, 0);
        for (uint32_t run = 0; !rank->status; run++) {
            if (run == 20 && rank->number == 0)
                ls_communicator_abort(rank->communicator);
            run_plan(rank, plan);
        }
    }
    ls_collective_plan_destroy(plan);
    free(buffer.memory);
}

static void other_count_body(struct rank *rank)
{
    single_call(rank, rank->number == rank->trial->world - 1 ? 30012 : 30011);
}

static void other_reduction_body(struct rank *rank)
{
    const struct trial_case *trial = rank->trial;
    struct trial_case other = *trial;
    other.reduction = LS_MAX;
    if (rank->number == trial->world - 1)
        rank->trial = &other;
    single_call(rank, 30011);
    rank->trial = trial;
}

static void other_operation_body(struct rank *rank)
{
    const struct trial_case *trial = rank->trial;
    struct trial_case other = *trial;
    other.operation = LS_BROADCAST;
    if (rank->number == trial->world - 1)
        rank->trial = &other;
    single_call(rank, 30011);
    rank->trial = trial;
}

// ---- Running a case ----

static void *rank_main(void *argument)
{
    struct rank *rank = argument;
    ls_log_set_rank((int32_t)rank->number);
    rank->trial->body(rank);
    return NULL;
}

static enum ls_status open_ranks(const struct suite *suite, const struct trial_case *trial,
                                 struct rank *ranks)
{
    const struct ls_communicator_options options = {
        .collective = suite->options->collective,
        .collective_host = suite->options->collective_host,
        .transport = suite->options->transport,
        .transport_host = suite->options->transport_host,
        .world = trial->world,
        .deadline_ns = trial->deadline_ns,
        .name = "conformance",
        .segment_bytes = trial->segment_bytes,
    };
    struct ls_communicator *communicators[MAXIMUM_WORLD];
    const enum ls_status status = ls_communicators_open(&options, communicators);
    for (uint32_t i = 0; i < trial->world; i++)
        ranks[i] = (struct rank){.suite = suite,
                                 .trial = trial,
                                 .communicator = status ? NULL : communicators[i],
                                 .number = i};
    return status;
}

static void run_ranks(const struct trial_case *trial, struct rank *ranks)
{
    uint32_t started = 0;
    while (started < trial->world &&
           !ls_thread_start(&ranks[started].thread, "rank", rank_main, &ranks[started]))
        started++;
    if (started < trial->world) {
        blame(&ranks[0], "only %u of %u threads could be started", started, trial->world);
        ls_communicator_abort(ranks[0].communicator);
    }
    for (uint32_t i = 0; i < started; i++)
        pthread_join(ranks[i].thread, NULL);
}

static void report(struct suite *suite, const char *name, enum ls_conformance_outcome outcome,
                   const char *message)
{
    const struct ls_conformance_result result = {name, outcome, message};
    suite->counts.passed += outcome == LS_CONFORMANCE_PASSED;
    suite->counts.failed += outcome == LS_CONFORMANCE_FAILED;
    suite->counts.refused += outcome == LS_CONFORMANCE_REFUSED;
    if (suite->report)
        suite->report(suite->context, &result);
}

static bool wanted(const struct suite *suite, const struct trial_case *trial)
{
    const uint32_t limit = suite->options->maximum_world;
    return (!limit || trial->world <= limit) &&
           (!suite->options->only || strstr(trial->name, suite->options->only)) &&
           (!suite->options->wanted || suite->options->wanted(suite->context, trial->name));
}

static void close_ranks(const struct trial_case *trial, struct rank *ranks)
{
    for (uint32_t i = 0; i < trial->world; i++)
        ls_communicators_close(&ranks[i].communicator, 1);
}

// Runs the case on all ranks and lets `verdict` (may be NULL) look at them; it blames rank 0.
static void run_case(struct suite *suite, const struct trial_case *trial,
                     void (*verdict)(struct rank *ranks))
{
    struct rank ranks[MAXIMUM_WORLD];
    const struct ls_collective_interface *algorithm = suite->options->collective->interface;
    if (!wanted(suite, trial))
        return;
    if (algorithm->maximum_world && trial->world > algorithm->maximum_world) {
        report(suite, trial->name, LS_CONFORMANCE_REFUSED, "more ranks than it serves");
        return;
    }
    const enum ls_status status = open_ranks(suite, trial, ranks);
    if (status) {
        report(suite, trial->name, LS_CONFORMANCE_FAILED, "the communicators do not open");
        return;
    }
    run_ranks(trial, ranks);
    if (verdict)
        verdict(ranks);
    close_ranks(trial, ranks);
    // A rank that found something aborts the others; what those say of it is not the cause.
    const char *message = "";
    for (uint32_t i = 0; i < trial->world; i++)
        if (ranks[i].message[0] && (!message[0] || strstr(message, ls_status_text(LS_ABORTED))))
            message = ranks[i].message;
    report(suite, trial->name, message[0] ? LS_CONFORMANCE_FAILED : LS_CONFORMANCE_PASSED, message);
}

// ---- Verdicts over all ranks ----

static void verdict_equal_bits(struct rank *ranks)
{
    for (uint32_t i = 1; i < ranks[0].trial->world; i++)
        if (ranks[i].hash != ranks[0].hash)
            blame(&ranks[0], "rank %u has other bits than rank 0", i);
}

// What the ranks wrote to the log while a case provoked an error.
static struct {
    pthread_mutex_t lock;
    char text[2048];
} captured = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void capture(void *context, uint32_t level, const char *line)
{
    (void)context;
    if (level > LS_LOG_ERROR)
        return;
    pthread_mutex_lock(&captured.lock);
    const size_t used = strlen(captured.text);
    snprintf(captured.text + used, sizeof(captured.text) - used, "%s\n", line);
    pthread_mutex_unlock(&captured.lock);
}

// All callers failed, one of them with `cause`, and the message has the words.
static void verdict_failed(struct rank *ranks, uint32_t callers, enum ls_status cause,
                           const char *first_word, const char *second_word)
{
    bool caused = false;
    for (uint32_t i = 0; i < callers; i++) {
        caused = caused || ranks[i].status == cause;
        if (ranks[i].status != cause && ranks[i].status != LS_ABORTED)
            blame(&ranks[0], "rank %u ended with: %s", i, ls_status_text(ranks[i].status));
    }
    if (!caused)
        blame(&ranks[0], "no rank ended with: %s", ls_status_text(cause));
    if (first_word && (!strstr(captured.text, first_word) || !strstr(captured.text, second_word)))
        blame(&ranks[0], "the error does not say \"%s\" and \"%s\": %.300s", first_word,
              second_word, captured.text);
}

static void verdict_lost(struct rank *ranks)
{
    char culprit[32];
    snprintf(culprit, sizeof(culprit), "for rank %u", ranks[0].trial->world - 1);
    verdict_failed(ranks, ranks[0].trial->world - 1, LS_PEER_LOST, culprit, "bucket 7");
}

static void verdict_aborted(struct rank *ranks)
{
    verdict_failed(ranks, ranks[0].trial->world, LS_ABORTED, NULL, NULL);
}

static void verdict_other_count(struct rank *ranks)
{
    verdict_failed(ranks, ranks[0].trial->world, LS_FAILED, "30011", "30012");
}

static void verdict_other_reduction(struct rank *ranks)
{
    verdict_failed(ranks, ranks[0].trial->world, LS_FAILED, "(sum)", "(max)");
}

static void verdict_other_operation(struct rank *ranks)
{
    verdict_failed(ranks, ranks[0].trial->world, LS_FAILED, "all-reduce", "broadcast");
}

// ---- The cases ----

static const uint32_t worlds[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16};
#define WORLDS (sizeof(worlds) / sizeof(*worlds))

static void value_case(struct suite *suite, uint32_t world, uint32_t operation, uint32_t dtype,
                       uint32_t reduction, bool large)
{
    char name[160];
    const struct trial_case trial = {
        .name = name,
        .world = world,
        .segment_bytes = large ? 0 : 1024, // many segments of small buffers
        .deadline_ns = LONG_DEADLINE_NS,
        .operation = operation,
        .dtype = dtype,
        .reduction = reduction,
        .body = large ? large_body : values_body,
    };
    snprintf(name, sizeof(name), "%s%s ranks=%u %s %s", operation_names[operation],
             large ? "_large" : "", world, dtype_names[dtype], reduction_names[reduction]);
    run_case(suite, &trial, NULL);
}

static void run_values(struct suite *suite)
{
    for (size_t i = 0; i < WORLDS; i++)
        for (uint32_t operation = LS_ALL_REDUCE; operation <= LS_REDUCE; operation++)
            value_case(suite, worlds[i], operation, LS_F32, LS_SUM, false);
    for (uint32_t world = 1; world <= 5; world++)
        value_case(suite, world, LS_ALL_REDUCE, LS_F32, LS_SUM, true);
    for (uint32_t dtype = LS_F32; dtype <= LS_U8; dtype++) {
        for (uint32_t reduction = LS_SUM; reduction <= LS_MEAN; reduction++) {
            if (!(suite->dtypes & 1u << dtype) || !(suite->reductions & 1u << reduction))
                continue;
            value_case(suite, 2, LS_ALL_REDUCE, dtype, reduction, false);
            value_case(suite, 3, LS_ALL_REDUCE, dtype, reduction, false);
            value_case(suite, 5, LS_REDUCE_SCATTER, dtype, reduction, false);
        }
    }
}

static void behaviour_case(struct suite *suite, const char *what, uint32_t world, rank_body body,
                           void (*verdict)(struct rank *ranks), uint64_t segment_bytes,
                           uint64_t deadline_ns)
{
    char name[160];
    const struct trial_case trial = {
        .name = name,
        .world = world,
        .segment_bytes = segment_bytes,
        .deadline_ns = deadline_ns,
        .operation = LS_ALL_REDUCE,
        .dtype = LS_F32,
        .reduction = LS_SUM,
        .body = body,
    };
    snprintf(name, sizeof(name), "%s ranks=%u", what, world);
    run_case(suite, &trial, verdict);
}

static void run_behaviour(struct suite *suite)
{
    for (size_t i = 0; i < WORLDS; i++) {
        const uint32_t world = worlds[i];
        const struct ls_collective_interface *algorithm = suite->options->collective->interface;
        behaviour_case(suite, "plans_in_flight", world, in_flight_body, NULL, 4096,
                       LONG_DEADLINE_NS);
        if (algorithm->deterministic)
            behaviour_case(suite, "equal_bits", world, bits_body, verdict_equal_bits, 16384,
                           LONG_DEADLINE_NS);
    }
    behaviour_case(suite, "late_rank", 2, late_body, NULL, 0, LONG_DEADLINE_NS);
    behaviour_case(suite, "late_rank", 5, late_body, NULL, 0, LONG_DEADLINE_NS);
}

static void run_failures(struct suite *suite)
{
    static const uint32_t some[] = {2, 3, 4, 7};
    ls_log_set_writer(capture, NULL);
    for (size_t i = 0; i < sizeof(some) / sizeof(*some); i++) {
        const struct {
            const char *name;
            rank_body body;
            void (*verdict)(struct rank *ranks);
            uint64_t deadline_ns;
        } cases[] = {
            {"lost_rank", lost_body, verdict_lost, SHORT_DEADLINE_NS},
            {"abort_while_waiting", abort_body, verdict_aborted, LONG_DEADLINE_NS},
            {"abort_while_busy", abort_busy_body, verdict_aborted, LONG_DEADLINE_NS},
            {"other_count", other_count_body, verdict_other_count, LONG_DEADLINE_NS},
            {"other_reduction", other_reduction_body, verdict_other_reduction, LONG_DEADLINE_NS},
            {"other_operation", other_operation_body, verdict_other_operation, LONG_DEADLINE_NS},
        };
        for (size_t k = 0; k < sizeof(cases) / sizeof(*cases); k++) {
            captured.text[0] = '\0';
            behaviour_case(suite, cases[k].name, some[i], cases[k].body, cases[k].verdict, 4096,
                           cases[k].deadline_ns);
        }
    }
    ls_log_set_writer(NULL, NULL);
}

enum ls_status ls_conformance_collective(const struct ls_collective_conformance_options *options,
                                         ls_conformance_report report_case, void *context,
                                         struct ls_conformance_counts *counts)
{
    const struct ls_collective_interface *algorithm = options->collective->interface;
    struct suite suite = {
        .options = options,
        .report = report_case,
        .context = context,
        .dtypes = algorithm->dtypes ? algorithm->dtypes : UINT32_MAX,
        .reductions = algorithm->reductions ? algorithm->reductions : UINT32_MAX,
    };
    run_values(&suite);
    run_behaviour(&suite);
    run_failures(&suite);
    if (counts)
        *counts = suite.counts;
    return suite.counts.failed ? LS_FAILED : LS_OK;
}
