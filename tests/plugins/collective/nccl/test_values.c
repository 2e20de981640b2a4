// SPDX-License-Identifier: Apache-2.0
// Collective `nccl` on the fakes (NEITHER NCCL NOR A GPU): every operation, type and reduction gives exactly what it
// should, with parts that are even, uneven and empty, also when it is recorded and replayed.
#include "plugins/device/cuda/engine/half.h"
#include "tests/plugins/collective/nccl/job.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>

struct values {
    uint32_t operation, dtype, reduction, root;
    uint64_t count;
};

// ---- Numbers of any type, as doubles; all used here are exact in each ----

static double get(const void *from, uint64_t i, uint32_t dtype)
{
    switch (dtype) {
    case LS_F32: return (double)((const float *)from)[i];
    case LS_F64: return ((const double *)from)[i];
    case LS_F16: return (double)cuda_from_f16(((const uint16_t *)from)[i]);
    case LS_BF16: return (double)cuda_from_bf16(((const uint16_t *)from)[i]);
    case LS_I32: return ((const int32_t *)from)[i];
    case LS_I64: return (double)((const int64_t *)from)[i];
    default: return ((const uint8_t *)from)[i];
    }
}

static void set(void *to, uint64_t i, uint32_t dtype, double value)
{
    switch (dtype) {
    case LS_F32: ((float *)to)[i] = (float)value; break;
    case LS_F64: ((double *)to)[i] = value; break;
    case LS_F16: ((uint16_t *)to)[i] = cuda_to_f16((float)value); break;
    case LS_BF16: ((uint16_t *)to)[i] = cuda_to_bf16((float)value); break;
    case LS_I32: ((int32_t *)to)[i] = (int32_t)value; break;
    case LS_I64: ((int64_t *)to)[i] = (int64_t)value; break;
    default: ((uint8_t *)to)[i] = (uint8_t)value; break;
    }
}

static double input(uint32_t rank, uint64_t i, uint32_t dtype)
{
    const double value = (double)((i * 5 + rank * 3 + i / 7) % 7);
    return dtype == LS_U8 ? value : value - 3;
}

static double reduced(const struct values *values, uint32_t world, uint64_t i)
{
    double result = input(0, i, values->dtype);
    for (uint32_t rank = 1; rank < world; rank++) {
        const double value = input(rank, i, values->dtype);
        switch (values->reduction) {
        case LS_PRODUCT: result *= value; break;
        case LS_MIN: result = value < result ? value : result; break;
        case LS_MAX: result = value > result ? value : result; break;
        default: result += value; break;
        }
    }
    if (values->reduction != LS_MEAN)
        return result;
    const bool whole = values->dtype == LS_I32 || values->dtype == LS_I64 || values->dtype == LS_U8;
    return whole ? trunc(result / world) : result / world;
}

// Whether the rank has a result at element i, and which.
static bool expected(const struct rank *rank, const struct values *values, uint64_t i, double *out)
{
    const uint32_t world = rank->job->world;
    const struct ls_range own = ls_part(ls_data_range(0, values->count), rank->number, world);
    uint32_t owner = 0;
    switch (values->operation) {
    case LS_ALL_REDUCE: *out = reduced(values, world, i); return true;
    case LS_REDUCE_SCATTER:
        *out = reduced(values, world, i);
        return i >= own.offset && i < own.offset + own.count;
    case LS_ALL_GATHER:
        for (uint32_t k = 0; k < world; k++) {
            const struct ls_range part = ls_part(ls_data_range(0, values->count), k, world);
            owner = i >= part.offset && i < part.offset + part.count ? k : owner;
        }
        *out = input(owner, i, values->dtype);
        return true;
    case LS_BROADCAST: *out = input(values->root, i, values->dtype); return true;
    case LS_ALL_TO_ALL: {
        const uint64_t each = values->count / world;
        *out = input((uint32_t)(i / each), rank->number * each + i % each, values->dtype);
        return true;
    }
    default: *out = reduced(values, world, i); return rank->number == values->root;
    }
}

static int32_t compare(struct rank *rank, const struct values *values, const void *found)
{
    for (uint64_t i = 0; i < values->count; i++) {
        double wanted, rounded[1];
        if (!expected(rank, values, i, &wanted))
            continue;
        set(rounded, 0, values->dtype, wanted);
        wanted = get(rounded, 0, values->dtype);
        if (get(found, i, values->dtype) != wanted)
            return rank_blame(rank,
                              "operation %u, type %u, reduction %u, %llu elements: element %llu "
                              "is %g, not %g",
                              values->operation, values->dtype, values->reduction,
                              (unsigned long long)values->count, (unsigned long long)i,
                              get(found, i, values->dtype), wanted);
    }
    return LS_OK;
}

// One element more lies behind the buffer, which nobody may touch.
static int32_t try_values(struct rank *rank, const struct values *values)
{
    const uint64_t bytes = (values->count + 1) * ls_dtype_bytes(values->dtype);
    const struct ls_collective_run run = {
        .struct_size = sizeof(run),
        .operation = values->operation,
        .dtype = values->dtype,
        .reduction = values->reduction,
        .root = values->root,
        .buffer = (void *)job_ops->memory->allocate(rank->device, bytes),
        .count = values->count,
        .scratch = values->operation == LS_ALL_TO_ALL
                       ? (void *)job_ops->memory->allocate(rank->device, bytes)
                       : NULL};
    void *host = malloc(bytes);
    for (uint64_t i = 0; i <= values->count; i++)
        set(host, i, values->dtype, input(rank->number, i, values->dtype));
    int32_t status = job_ops->memory->copy(rank->device, ls_host_memory(run.buffer),
                                           ls_host_memory(host), bytes, rank->stream);
    if (!status)
        status = job_nccl->run(rank->collective, &run);
    if (!status)
        status = job_ops->memory->copy(rank->device, ls_host_memory(host),
                                       ls_host_memory(run.buffer), bytes, rank->stream);
    if (status)
        rank_blame(rank, "operation %u of type %u ends with %d: %s", values->operation,
                   values->dtype, status, rank->job->said);
    else
        status = compare(rank, values, host);
    if (!status && get(host, values->count, values->dtype) !=
                       input(rank->number, values->count, values->dtype))
        status = rank_blame(rank, "what lies behind the buffer was changed");
    job_ops->memory->release(rank->device, run.buffer);
    job_ops->memory->release(rank->device, run.scratch);
    free(host);
    return status;
}

// The blocks of an all-to-all are equal.
static uint64_t whole(uint32_t operation, uint64_t count, uint32_t world)
{
    return operation == LS_ALL_TO_ALL ? (count + world - 1) / world * world : count;
}

static int32_t all_types_body(struct rank *rank)
{
    const uint32_t world = rank->job->world;
    const uint64_t counts[] = {UINT64_C(128) * world, 193};
    int32_t status = LS_OK;
    for (uint32_t operation = LS_ALL_REDUCE; operation <= LS_ALL_TO_ALL; operation++)
        for (uint32_t dtype = LS_F32; dtype <= LS_U8; dtype++)
            for (uint32_t reduction = LS_SUM; reduction <= LS_MEAN; reduction++)
                for (int i = 0; !status && i < 2; i++) {
                    const bool reduces = ls_operation_reduces(operation);
                    const bool rooted = operation == LS_BROADCAST || operation == LS_REDUCE;
                    const struct values values = {operation, dtype, reduction,
                                                  rooted ? reduction % world : 0,
                                                  whole(operation, counts[i], world)};
                    if (reduces || reduction == LS_SUM)
                        status = try_values(rank, &values);
                }
    return status;
}

static int32_t all_counts_body(struct rank *rank)
{
    static const uint64_t counts[] = {0, 1, 2, 3, 63, 64, 65, 127, 192, 256, 509, 768, 10007};
    int32_t status = LS_OK;
    for (uint32_t operation = LS_ALL_REDUCE; operation <= LS_ALL_TO_ALL; operation++)
        for (size_t i = 0; !status && i < sizeof(counts) / sizeof(counts[0]); i++)
            status =
                try_values(rank, &(struct values){operation, LS_F32, LS_SUM, 0,
                                                  whole(operation, counts[i], rank->job->world)});
    return status;
}

LOOP_TEST(every_operation_type_and_reduction_is_exact, 1, MOST_RANKS + 1)
{
    struct job job;
    job_init(&job, (uint32_t)_i, NULL);
    ck_assert_msg(job_open(&job) == LS_OK, "%s", job.said);
    job_run(&job, all_types_body);
    job_run(&job, all_counts_body);
    struct nccl_fake_counts counts;
    nccl_fake_count(&counts);
    ck_assert_uint_eq(counts.slots, 0);
    ck_assert_uint_eq(counts.aborts, 0);
    ck_assert_int_eq(job.failures, 0);
    job_finish(&job);
}

// ---- Many at once, and recorded ----

enum { BUFFERS = 6, COUNT = 1000, REPLAYS = 5 };

// Several operations on the stream before anybody waits.
static int32_t in_flight_body(struct rank *rank)
{
    float host[BUFFERS][COUNT];
    void *buffers[BUFFERS];
    int32_t status = LS_OK;
    for (int b = 0; b < BUFFERS; b++) {
        buffers[b] = rank_allocate(rank, sizeof(host[b]));
        for (int i = 0; i < COUNT; i++)
            host[b][i] = (float)(i % 100 + b + (int)rank->number);
        if (!status)
            status = job_ops->memory->copy(rank->device, ls_host_memory(buffers[b]),
                                           ls_host_memory(host[b]), sizeof(host[b]), rank->stream);
    }
    for (int b = 0; !status && b < BUFFERS; b++)
        status = rank_run(rank, LS_ALL_REDUCE, buffers[b], COUNT);
    if (!status)
        status = rank_wait(rank);
    for (int b = 0; !status && b < BUFFERS; b++) {
        status = job_ops->memory->copy(rank->device, ls_host_memory(host[b]),
                                       ls_host_memory(buffers[b]), sizeof(host[b]), rank->stream);
        for (int i = 0; !status && i < COUNT; i++)
            if (host[b][i] != (float)(3 * (i % 100 + b) + 3))
                status = rank_blame(rank, "buffer %d, element %d is %g", b, i, (double)host[b][i]);
    }
    for (int b = 0; b < BUFFERS; b++)
        rank_release(rank, buffers[b]);
    return status ? rank_blame(rank, "ends with %d", status) : LS_OK;
}

TEST(several_operations_are_under_way_at_once)
{
    struct job job;
    job_init(&job, 3, NULL);
    ck_assert_int_eq(job_open(&job), LS_OK);
    job_run(&job, in_flight_body);
    job_finish(&job);
}

struct recorded {
    const uint32_t *operations; // ends with 0
    float *buffer, *scratch;
    float host[COUNT]; // the input, then the result
};

// The device's own stream hands over to the collective's and takes back from it.
static int32_t record(struct rank *rank, const struct recorded *recorded,
                      struct ls_event *const *events, struct ls_recording **out)
{
    struct ls_device *device = rank->device;
    struct ls_collective_run run = {.struct_size = sizeof(run),
                                    .dtype = LS_F32,
                                    .reduction = LS_SUM,
                                    .buffer = recorded->buffer,
                                    .count = COUNT};
    int32_t status = job_ops->capture->begin(device);
    if (!status)
        status = job_ops->streams->event_record(device, events[0], NULL);
    if (!status)
        status = job_ops->streams->event_wait(device, events[0], rank->stream);
    for (const uint32_t *operation = recorded->operations; !status && *operation; operation++) {
        run.operation = *operation;
        run.scratch = *operation == LS_ALL_TO_ALL ? recorded->scratch : NULL;
        status = job_nccl->run(rank->collective, &run);
    }
    if (!status)
        status = job_ops->streams->event_record(device, events[1], rank->stream);
    if (!status)
        status = job_ops->streams->event_wait(device, events[1], NULL);
    const int32_t ended = job_ops->capture->end(device, out);
    return status ? status : ended;
}

// In symmetric memory, the window was made before.
static int32_t replay(struct rank *rank, struct recorded *recorded)
{
    struct ls_event *events[2] = {NULL, NULL};
    struct ls_recording *recording = NULL;
    const struct ls_memory host = ls_host_memory(recorded->host);
    recorded->buffer = rank_allocate(rank, sizeof(recorded->host));
    recorded->scratch = (void *)job_ops->memory->allocate(rank->device, sizeof(recorded->host));
    const struct ls_memory buffer = ls_host_memory(recorded->buffer);
    int32_t status = job_ops->streams->event_open(rank->device, &events[0]);
    if (!status)
        status = job_ops->streams->event_open(rank->device, &events[1]);
    if (!status)
        status = job_ops->memory->copy(rank->device, buffer, host, sizeof(recorded->host), NULL);
    if (!status)
        status = record(rank, recorded, events, &recording);
    for (int i = 0; !status && i < REPLAYS; i++)
        status = job_ops->capture->replay(rank->device, recording);
    if (!status)
        status = job_ops->memory->copy(rank->device, host, buffer, sizeof(recorded->host), NULL);
    job_ops->capture->release(rank->device, recording);
    job_ops->streams->event_close(rank->device, events[0]);
    job_ops->streams->event_close(rank->device, events[1]);
    rank_release(rank, recorded->buffer);
    job_ops->memory->release(rank->device, (void *)recorded->scratch);
    return status ? rank_blame(rank, "ends with %d: %s", status, rank->job->said) : LS_OK;
}

// Each replay makes 2 + 2 of every 1, which is 4 for two ranks: all-reduce doubles, and so does reduce-scatter.
static int32_t recorded_body(struct rank *rank)
{
    static const uint32_t operations[] = {LS_ALL_REDUCE, LS_REDUCE_SCATTER, LS_ALL_GATHER, 0};
    const float world = (float)rank->job->world;
    struct recorded recorded = {.operations = operations};
    float wanted = 1;
    for (int i = 0; i < COUNT; i++)
        recorded.host[i] = 1;
    for (int i = 0; i < REPLAYS; i++)
        wanted *= world * world;
    const int32_t status = replay(rank, &recorded);
    for (int i = 0; !status && i < COUNT; i++)
        if (recorded.host[i] != wanted)
            return rank_blame(rank, "element %d is %g, not %g", i, (double)recorded.host[i],
                              (double)wanted);
    return status;
}

// Blocks that are exchanged twice are where they were; the replays are an odd number.
static int32_t recorded_exchange_body(struct rank *rank)
{
    static const uint32_t operations[] = {LS_ALL_TO_ALL, 0};
    const int each = COUNT / (int)rank->job->world, number = (int)rank->number;
    struct recorded recorded = {.operations = operations};
    for (int i = 0; i < COUNT; i++)
        recorded.host[i] = (float)(number * COUNT + i);
    const int32_t status = replay(rank, &recorded);
    for (int i = 0; !status && i < COUNT; i++)
        if (recorded.host[i] != (float)(i / each * COUNT + number * each + i % each))
            return rank_blame(rank, "element %d is %g", i, (double)recorded.host[i]);
    return status;
}

TEST(operations_can_be_recorded_and_replayed)
{
    struct job job;
    job_init(&job, 2, NULL);
    ck_assert_int_eq(job_open(&job), LS_OK);
    job_run(&job, recorded_body);
    job_run(&job, recorded_exchange_body);
    job_finish(&job);
}

// Six windows of three ranks, then one of each rank with recorded operations.
TEST(operations_in_symmetric_memory_have_the_same_results)
{
    struct nccl_fake_counts counts;
    for (uint32_t world = 2; world <= MOST_RANKS; world += 2) {
        struct job job;
        job_init(&job, world, NULL);
        ck_assert(test_host_set(&job.host, "symmetric=on"));
        job.symmetric = true;
        ck_assert_msg(job_open(&job) == LS_OK, "%s", job.said);
        job_run(&job, recorded_body);
        nccl_fake_count(&counts);
        ck_assert_uint_ge(counts.symmetric, 3 * world);
        ck_assert_uint_eq(counts.windows, 0);
        job_finish(&job);
    }
    struct job job;
    job_init(&job, 3, NULL);
    job.symmetric = true;
    ck_assert_int_eq(job_open(&job), LS_OK);
    job_run(&job, in_flight_body);
    nccl_fake_count(&counts);
    ck_assert_str_eq(job.noted, "");
    job_finish(&job);
}

TEST_SECONDS(120);

int main(void)
{
    if (!job_load())
        return EXIT_FAILURE; // it says why; the fakes are built wherever the tests are
    return test_suite_run("plugins/collective/nccl/values, on the fakes: neither NCCL nor a GPU");
}
