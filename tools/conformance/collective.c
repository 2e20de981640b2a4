// SPDX-License-Identifier: Apache-2.0
// Each case opens communicators of its own, runs one thread a rank, and asks each for its verdict.
#include "tools/conformance/collective.h"

#include "core/base/log.h"
#include "tools/conformance/collective/suite.h"

#include <stdio.h>
#include <string.h>

static const char *const operation_names[] = {
    "", "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all"};
static const char *const dtype_names[] = {"",         "float32", "float64", "float16",
                                          "bfloat16", "int32",   "int64",   "uint8"};
static const char *const reduction_names[] = {"", "sum", "product", "min", "max", "mean"};

// ---- Running a case ----

static void *rank_main(void *argument)
{
    struct ls_collective_rank *rank = argument;
    ls_log_set_rank((int32_t)rank->number);
    rank->trial->body(rank);
    return NULL;
}

static enum ls_status open_ranks(const struct ls_collective_suite *suite,
                                 const struct ls_collective_case *trial,
                                 struct ls_collective_rank *ranks)
{
    struct ls_communicator_place places[MAXIMUM_WORLD];
    const struct ls_conformance_devices *devices = &suite->devices;
    for (uint32_t i = 0; i < trial->world; i++)
        places[i] = (struct ls_communicator_place){.device = devices->opened[i]};
    const struct ls_communicator_options options = {
        .collective = suite->options->collective,
        .collective_host = suite->options->collective_host,
        .transport = suite->options->transport,
        .transport_host = suite->options->transport_host,
        .world = trial->world,
        .deadline_ns = trial->deadline_ns,
        .name = "conformance",
        .segment_bytes = trial->segment_bytes,
        .places = devices->ops ? places : NULL,
        .unproven =
            true, // the schedules are verified by a suite of their own, and here is seen what they do
    };
    struct ls_communicator *communicators[MAXIMUM_WORLD];
    const enum ls_status status = ls_communicators_open(&options, communicators);
    for (uint32_t i = 0; i < trial->world; i++)
        ranks[i] = (struct ls_collective_rank){.suite = suite,
                                               .trial = trial,
                                               .communicator = status ? NULL : communicators[i],
                                               .number = i};
    return status;
}

static void run_ranks(const struct ls_collective_case *trial, struct ls_collective_rank *ranks)
{
    uint32_t started = 0;
    while (started < trial->world &&
           !ls_thread_start(&ranks[started].thread, "rank", rank_main, &ranks[started]))
        started++;
    if (started < trial->world) {
        ls_conformance_blame(&ranks[0], "only %u of %u threads could be started", started,
                             trial->world);
        ls_communicator_abort(ranks[0].communicator);
    }
    for (uint32_t i = 0; i < started; i++)
        pthread_join(ranks[i].thread, NULL);
}

static void report(struct ls_collective_suite *suite, const char *name,
                   enum ls_conformance_outcome outcome, const char *message)
{
    const struct ls_conformance_result result = {name, outcome, message};
    suite->counts.passed += outcome == LS_CONFORMANCE_PASSED;
    suite->counts.failed += outcome == LS_CONFORMANCE_FAILED;
    suite->counts.refused += outcome == LS_CONFORMANCE_REFUSED;
    if (suite->report)
        suite->report(suite->context, &result);
}

// Devices are opened once, for the largest of these.
static const uint32_t device_worlds[] = {1, 2, 3, 5};
#define MOST_DEVICES 5

static bool is_world_of_devices(uint32_t world)
{
    for (size_t i = 0; i < sizeof(device_worlds) / sizeof(*device_worlds); i++)
        if (device_worlds[i] == world)
            return true;
    return false;
}

static bool wanted(const struct ls_collective_suite *suite, const struct ls_collective_case *trial)
{
    const uint32_t limit = suite->options->maximum_world;
    if (suite->devices.ops && !is_world_of_devices(trial->world))
        return false;
    return (!limit || trial->world <= limit) &&
           (!suite->options->only || strstr(trial->name, suite->options->only)) &&
           (!suite->options->wanted || suite->options->wanted(suite->context, trial->name));
}

static void close_ranks(const struct ls_collective_case *trial, struct ls_collective_rank *ranks)
{
    for (uint32_t i = 0; i < trial->world; i++)
        ls_communicators_close(&ranks[i].communicator, 1);
}

// Runs the case on all ranks and lets `verdict` (may be NULL) look at them; it blames rank 0.
static void run_case(struct ls_collective_suite *suite, const struct ls_collective_case *trial,
                     void (*verdict)(struct ls_collective_rank *ranks))
{
    struct ls_collective_rank ranks[MAXIMUM_WORLD];
    const struct ls_collective_interface *algorithm = suite->options->collective->interface;
    if (!wanted(suite, trial))
        return;
    if (algorithm->maximum_world && trial->world > algorithm->maximum_world) {
        report(suite, trial->name, LS_CONFORMANCE_REFUSED, "more ranks than it serves");
        return;
    }
    enum ls_status status = ls_conformance_devices_need(&suite->devices, MOST_DEVICES);
    if (!status && algorithm->one_rank_a_device && trial->world > suite->devices.physical) {
        report(suite, trial->name, LS_CONFORMANCE_REFUSED, "more ranks than devices");
        return;
    }
    if (!status)
        status = open_ranks(suite, trial, ranks);
    if (status == LS_UNSUPPORTED) {
        report(suite, trial->name, LS_CONFORMANCE_REFUSED, "it does not serve so many ranks");
        return;
    }
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

static void verdict_equal_bits(struct ls_collective_rank *ranks)
{
    for (uint32_t i = 1; i < ranks[0].trial->world; i++)
        if (ranks[i].hash != ranks[0].hash)
            ls_conformance_blame(&ranks[0], "rank %u has other bits than rank 0", i);
}

// What the ranks wrote to the log while a case provoked an error.
static struct {
    pthread_mutex_t lock;
    char text[2048];
} captured = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void capture(void *context, uint32_t level, const char *line)
{
    (void)context;
    if (level > LS_LOG_INFO) // which call a library has failed in is information
        return;
    pthread_mutex_lock(&captured.lock);
    const size_t used = strlen(captured.text);
    snprintf(captured.text + used, sizeof(captured.text) - used, "%s\n", line);
    pthread_mutex_unlock(&captured.lock);
}

// All callers failed, one of them with `cause`, and the message has the words.
static void verdict_failed(struct ls_collective_rank *ranks, uint32_t callers, enum ls_status cause,
                           const char *first_word, const char *second_word)
{
    bool caused = false;
    for (uint32_t i = 0; i < callers; i++) {
        caused = caused || ranks[i].status == cause;
        if (ranks[i].status != cause && ranks[i].status != LS_ABORTED)
            ls_conformance_blame(&ranks[0], "rank %u ended with: %s", i,
                                 ls_status_text(ranks[i].status));
    }
    if (!caused)
        ls_conformance_blame(&ranks[0], "no rank ended with: %s", ls_status_text(cause));
    if (first_word && (!strstr(captured.text, first_word) || !strstr(captured.text, second_word)))
        ls_conformance_blame(&ranks[0], "the error does not say \"%s\" and \"%s\": %.300s",
                             first_word, second_word, captured.text);
}

static void verdict_lost(struct ls_collective_rank *ranks)
{
    char culprit[32];
    snprintf(culprit, sizeof(culprit), "for rank %u", ranks[0].trial->world - 1);
    verdict_failed(ranks, ranks[0].trial->world - 1, LS_PEER_LOST, culprit, "bucket 7");
}

static void verdict_aborted(struct ls_collective_rank *ranks)
{
    verdict_failed(ranks, ranks[0].trial->world, LS_ABORTED, NULL, NULL);
}

static void verdict_other_count(struct ls_collective_rank *ranks)
{
    verdict_failed(ranks, ranks[0].trial->world, LS_FAILED, "30011", "30012");
}

static void verdict_other_reduction(struct ls_collective_rank *ranks)
{
    verdict_failed(ranks, ranks[0].trial->world, LS_FAILED, "(sum)", "(max)");
}

static void verdict_other_operation(struct ls_collective_rank *ranks)
{
    verdict_failed(ranks, ranks[0].trial->world, LS_FAILED, "all-reduce", "broadcast");
}

// ---- The cases ----

static const uint32_t worlds[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16};
#define WORLDS (sizeof(worlds) / sizeof(*worlds))

static void value_case(struct ls_collective_suite *suite, uint32_t world, uint32_t operation,
                       uint32_t dtype, uint32_t reduction, bool large)
{
    char name[160];
    const struct ls_collective_case trial = {
        .name = name,
        .world = world,
        .segment_bytes = large ? 0 : 1024, // many segments of small buffers
        .deadline_ns = LONG_DEADLINE_NS,
        .operation = operation,
        .dtype = dtype,
        .reduction = reduction,
        .body = large ? ls_conformance_large_body : ls_conformance_values_body,
    };
    snprintf(name, sizeof(name), "%s%s ranks=%u %s %s", operation_names[operation],
             large ? "_large" : "", world, dtype_names[dtype], reduction_names[reduction]);
    run_case(suite, &trial, NULL);
}

// What the host cannot make of a native collective's all-reduce.
static bool can_do(const struct ls_collective_suite *suite, uint32_t operation)
{
    const struct ls_collective_interface *algorithm = suite->options->collective->interface;
    const bool moves =
        operation == LS_BROADCAST || operation == LS_ALL_GATHER || operation == LS_ALL_TO_ALL;
    return !moves || algorithm->build_schedule || algorithm->operations >> operation & 1;
}

static void run_values(struct ls_collective_suite *suite)
{
    for (size_t i = 0; i < WORLDS; i++)
        for (uint32_t operation = LS_ALL_REDUCE; operation <= LS_ALL_TO_ALL; operation++)
            if (can_do(suite, operation))
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
        if (suite->dtypes & 1u << dtype && can_do(suite, LS_ALL_TO_ALL))
            value_case(suite, 5, LS_ALL_TO_ALL, dtype, LS_SUM, false);
    }
}

static void behaviour_case(struct ls_collective_suite *suite, const char *what, uint32_t world,
                           ls_collective_body body,
                           void (*verdict)(struct ls_collective_rank *ranks),
                           uint64_t segment_bytes, uint64_t deadline_ns)
{
    char name[160];
    const struct ls_collective_case trial = {
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

static void run_behaviour(struct ls_collective_suite *suite)
{
    for (size_t i = 0; i < WORLDS; i++) {
        const uint32_t world = worlds[i];
        const struct ls_collective_interface *algorithm = suite->options->collective->interface;
        behaviour_case(suite, "plans_in_flight", world, ls_conformance_in_flight_body, NULL, 4096,
                       LONG_DEADLINE_NS);
        if (algorithm->deterministic)
            behaviour_case(suite, "equal_bits", world, ls_conformance_bits_body, verdict_equal_bits,
                           16384, LONG_DEADLINE_NS);
    }
    behaviour_case(suite, "late_rank", 2, ls_conformance_late_body, NULL, 0, LONG_DEADLINE_NS);
    behaviour_case(suite, "late_rank", 5, ls_conformance_late_body, NULL, 0, LONG_DEADLINE_NS);
}

static void run_failures(struct ls_collective_suite *suite)
{
    static const uint32_t some[] = {2, 3, 4, 7};
    ls_log_set_writer(capture, NULL);
    for (size_t i = 0; i < sizeof(some) / sizeof(*some); i++) {
        const struct {
            const char *name;
            ls_collective_body body;
            void (*verdict)(struct ls_collective_rank *ranks);
            uint64_t deadline_ns;
        } cases[] = {
            {"lost_rank", ls_conformance_lost_body, verdict_lost, SHORT_DEADLINE_NS},
            {"abort_while_waiting", ls_conformance_abort_body, verdict_aborted, LONG_DEADLINE_NS},
            {"abort_while_busy", ls_conformance_abort_busy_body, verdict_aborted, LONG_DEADLINE_NS},
            {"other_count", ls_conformance_other_count_body, verdict_other_count, LONG_DEADLINE_NS},
            {"other_reduction", ls_conformance_other_reduction_body, verdict_other_reduction,
             LONG_DEADLINE_NS},
            {"other_operation", ls_conformance_other_operation_body, verdict_other_operation,
             LONG_DEADLINE_NS},
        };
        // A library may hang, or do worse, when calls differ.
        const size_t count = suite->options->transport ? sizeof(cases) / sizeof(*cases) : 3;
        for (size_t k = 0; k < count; k++) {
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
    struct ls_collective_suite suite = {
        .options = options,
        .report = report_case,
        .context = context,
        .dtypes = algorithm->dtypes ? algorithm->dtypes : UINT32_MAX,
        .reductions = algorithm->reductions ? algorithm->reductions : UINT32_MAX,
        .devices = {.ops = options->device, .host = options->device_host},
    };
    run_values(&suite);
    run_behaviour(&suite);
    run_failures(&suite);
    ls_conformance_devices_close(&suite.devices);
    if (counts)
        *counts = suite.counts;
    return suite.counts.failed ? LS_FAILED : LS_OK;
}
