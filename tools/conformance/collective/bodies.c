// SPDX-License-Identifier: Apache-2.0
// What a rank does in each kind of case.
#include "tools/conformance/collective/suite.h"

#include "core/base/random.h"
#include "core/schedule/schedule.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool make_plan(struct ls_collective_rank *rank, struct ls_collective_buffer *buffer,
                      uint32_t root, const char *label, struct ls_collective_plan **out)
{
    const struct ls_collective_case *trial = rank->trial;
    rank->status = ls_collective_plan_create(
        rank->communicator, trial->operation, ls_conformance_image_at(&buffer->image, buffer->data),
        buffer->count, trial->dtype, trial->reduction, root, label, out);
    ls_conformance_expect_ok(rank, rank->status, "making a plan");
    return rank->status == LS_OK;
}

// The buffer as the host filled it, where the ranks compute.
static enum ls_status begin(const struct ls_collective_buffer *buffer,
                            struct ls_collective_plan *plan)
{
    const enum ls_status status = ls_conformance_image_push(&buffer->image, NULL);
    return status ? status : ls_collective_start(plan);
}

// And what became of it, for the host.
static enum ls_status end(const struct ls_collective_rank *rank,
                          const struct ls_collective_buffer *buffer,
                          struct ls_collective_plan *plan)
{
    enum ls_status status = ls_collective_wait(plan);
    if (!status)
        status = ls_communicator_synchronize(rank->communicator);
    return status ? status : ls_conformance_image_pull(&buffer->image, NULL);
}

static void run_plan(struct ls_collective_rank *rank, const struct ls_collective_buffer *buffer,
                     struct ls_collective_plan *plan)
{
    rank->status = begin(buffer, plan);
    if (!rank->status)
        rank->status = end(rank, buffer, plan);
}

// One count, twice with the same plan.
static void one_count(struct ls_collective_rank *rank, uint64_t count, uint64_t offset,
                      uint32_t root)
{
    struct ls_collective_buffer buffer;
    struct ls_collective_plan *plan = NULL;
    if (!ls_conformance_buffer_init(rank, &buffer, count, offset, rank->trial->dtype))
        return;
    if (make_plan(rank, &buffer, root, "values", &plan)) {
        for (uint64_t run = 0; run < 2 && !rank->message[0]; run++) {
            ls_conformance_fill(rank, &buffer, run);
            run_plan(rank, &buffer, plan);
            ls_conformance_expect_ok(rank, rank->status, "running");
            if (!rank->status)
                ls_conformance_judge(rank, &buffer, run, root);
        }
    }
    if (rank->message[0])
        ls_communicator_abort(rank->communicator);
    ls_collective_plan_destroy(plan);
    ls_conformance_buffer_finish(&buffer);
}

void ls_conformance_values_body(struct ls_collective_rank *rank)
{
    static const uint64_t counts[] = {0, 1, 2, 31, 64, 97, 128, 1009, 4096, 10007};
    const struct ls_collective_case *trial = rank->trial;
    const bool rooted = trial->operation == LS_BROADCAST || trial->operation == LS_REDUCE;
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts) && !rank->message[0]; i++)
        for (uint32_t root = 0; root < (rooted ? trial->world : 1) && !rank->message[0]; root++)
            one_count(rank, ls_collective_whole_count(trial->operation, counts[i], trial->world),
                      i % 4, root);
}

// Several segments of the usual length a rank, and a prime.
void ls_conformance_large_body(struct ls_collective_rank *rank)
{
    const uint64_t segment = (UINT64_C(256) << 10) / ls_dtype_bytes(rank->trial->dtype);
    one_count(rank, 2 * segment * rank->trial->world + 77, 1, 0);
    if (!rank->message[0])
        one_count(rank, 500009, 3, 0);
}

// Buckets 0, 1 and 2 start before the first is waited for, several times over.
void ls_conformance_in_flight_body(struct ls_collective_rank *rank)
{
    enum { PLANS = 3 };
    static const uint64_t counts[PLANS] = {5003, 0, 40009};
    struct ls_collective_buffer buffers[PLANS] = {0};
    struct ls_collective_plan *plans[PLANS] = {0};
    for (uint32_t i = 0; i < PLANS && !rank->message[0]; i++) {
        if (ls_conformance_buffer_init(rank, &buffers[i], counts[i], i, rank->trial->dtype))
            (void)make_plan(rank, &buffers[i], 0, "bucket", &plans[i]);
    }
    for (uint64_t run = 0; run < 5 && !rank->message[0]; run++) {
        for (uint32_t i = 0; i < PLANS; i++) {
            ls_conformance_fill(rank, &buffers[i], run + i);
            ls_conformance_expect_ok(rank, begin(&buffers[i], plans[i]), "starting");
            ls_conformance_expect_ok(rank, ls_communicator_progress(rank->communicator),
                                     "progress");
        }
        for (uint32_t i = 0; i < PLANS && !rank->message[0]; i++) {
            ls_conformance_expect_ok(rank, end(rank, &buffers[i], plans[i]), "waiting");
            ls_conformance_judge(rank, &buffers[i], run + i, 0);
        }
    }
    if (rank->message[0])
        ls_communicator_abort(rank->communicator);
    for (uint32_t i = 0; i < PLANS; i++) {
        ls_collective_plan_destroy(plans[i]);
        ls_conformance_buffer_finish(&buffers[i]);
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
void ls_conformance_bits_body(struct ls_collective_rank *rank)
{
    enum { COUNT = 70001 };
    struct ls_collective_buffer buffer;
    struct ls_collective_plan *plan = NULL;
    if (!ls_conformance_buffer_init(rank, &buffer, COUNT, 0, LS_F32))
        return;
    float *numbers = malloc(COUNT * sizeof(*numbers));
    if (!numbers)
        ls_conformance_blame(rank, "rank %u: no memory for %d elements", rank->number, COUNT);
    const uint64_t key = ls_random_key(rank->suite->options->seed, rank->number);
    for (uint32_t i = 0; numbers && i < COUNT; i++)
        numbers[i] = (float)ls_random_normal(key, i);
    const bool made = numbers && make_plan(rank, &buffer, 0, "random", &plan);
    for (uint32_t run = 0; made && run < 4 && !rank->message[0]; run++) {
        memcpy(buffer.data, numbers, COUNT * sizeof(*numbers));
        run_plan(rank, &buffer, plan);
        ls_conformance_expect_ok(rank, rank->status, "running");
        const uint64_t hash = bits_hash(buffer.data, COUNT * sizeof(float));
        if (run > 0 && hash != rank->hash)
            ls_conformance_blame(rank, "rank %u: run %u gives other bits than the first",
                                 rank->number, run);
        rank->hash = hash;
    }
    if (rank->message[0])
        ls_communicator_abort(rank->communicator);
    ls_collective_plan_destroy(plan);
    ls_conformance_buffer_finish(&buffer);
    free(numbers);
}

static void sleep_ms(long milliseconds)
{
    const struct timespec time = {.tv_nsec = milliseconds * 1000000};
    nanosleep(&time, NULL);
}

void ls_conformance_late_body(struct ls_collective_rank *rank)
{
    for (uint32_t turn = 0; turn < 2 && !rank->message[0]; turn++) {
        if (rank->number == (turn ? 0 : rank->trial->world - 1))
            sleep_ms(30);
        one_count(rank, 20011, 0, 0);
    }
}

// One call; `status` says how it ended, and the buffer is freed at once, whatever the others do.
static void single_call(struct ls_collective_rank *rank, uint64_t count)
{
    struct ls_collective_buffer buffer;
    struct ls_collective_plan *plan = NULL;
    if (!ls_conformance_buffer_init(rank, &buffer, count, 0, rank->trial->dtype))
        return;
    if (make_plan(rank, &buffer, 0, "bucket 7", &plan)) {
        ls_conformance_fill(rank, &buffer, 0);
        run_plan(rank, &buffer, plan);
    }
    ls_collective_plan_destroy(plan);
    ls_conformance_buffer_finish(&buffer);
}

void ls_conformance_lost_body(struct ls_collective_rank *rank)
{
    if (rank->number != rank->trial->world - 1)
        single_call(rank, 30011);
}

void ls_conformance_abort_body(struct ls_collective_rank *rank)
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
void ls_conformance_abort_busy_body(struct ls_collective_rank *rank)
{
    struct ls_collective_buffer buffer;
    struct ls_collective_plan *plan = NULL;
    if (!ls_conformance_buffer_init(rank, &buffer, 150001, 0, rank->trial->dtype))
        return;
    if (make_plan(rank, &buffer, 0, "busy", &plan)) {
        ls_conformance_fill(rank, &buffer, 0);
        for (uint32_t run = 0; !rank->status; run++) {
            if (run == 20 && rank->number == 0)
                ls_communicator_abort(rank->communicator);
            run_plan(rank, &buffer, plan);
        }
    }
    ls_collective_plan_destroy(plan);
    ls_conformance_buffer_finish(&buffer);
}

void ls_conformance_other_count_body(struct ls_collective_rank *rank)
{
    single_call(rank, rank->number == rank->trial->world - 1 ? 30012 : 30011);
}

void ls_conformance_other_reduction_body(struct ls_collective_rank *rank)
{
    const struct ls_collective_case *trial = rank->trial;
    struct ls_collective_case other = *trial;
    other.reduction = LS_MAX;
    if (rank->number == trial->world - 1)
        rank->trial = &other;
    single_call(rank, 30011);
    rank->trial = trial;
}

void ls_conformance_other_operation_body(struct ls_collective_rank *rank)
{
    const struct ls_collective_case *trial = rank->trial;
    struct ls_collective_case other = *trial;
    other.operation = LS_BROADCAST;
    if (rank->number == trial->world - 1)
        rank->trial = &other;
    single_call(rank, 30011);
    rank->trial = trial;
}
