// SPDX-License-Identifier: Apache-2.0
// Collectives whose buffers are handles of a device: schedules work on copies in host memory.
#include "core/base/instance.h"
#include "core/device/device.h"
#include "core/plugin/device.h"
#include "tests/core/collective/support.h"

#include <stdlib.h>

#define RANKS 3
#define MOST 1000
#define BEFORE 5 // floats in front of a range
#define UNTOUCHED 7e7F

struct ls_device {
    uint32_t copies;
    bool broken; // no copy works
};

struct ls_buffer {
    void *data;
};

static struct {
    struct ls_instance instance; // what the core has in front of a device's state
    struct ls_device device;
} opened[RANKS];

static unsigned char *address(struct ls_memory memory)
{
    return memory.buffer ? (unsigned char *)memory.buffer->data + memory.offset
                         : ls_address(memory);
}

static int32_t copy(struct ls_device *device, struct ls_memory to, struct ls_memory from,
                    uint64_t bytes, void *stream)
{
    (void)stream;
    device->copies++;
    if (device->broken)
        return LS_FAILED;
    memmove(address(to), address(from), bytes);
    return LS_OK;
}

static const struct ls_device_memory memory_calls = {.struct_size = sizeof(memory_calls),
                                                     .copy = copy};
static const struct ls_device_interface device_ops = {
    .struct_size = sizeof(device_ops), .memory_kind = LS_MEMORY_OPAQUE, .memory = &memory_calls};

struct rank {
    pthread_t thread;
    uint32_t number, count;
    struct ls_communicator *communicator;
    float data[BEFORE + MOST + BEFORE];
    enum ls_status status;
};
static struct rank ranks[RANKS];

static float value(uint32_t rank, uint32_t i)
{
    return (float)(rank * 10 + i % 7);
}

// Twice on the same plan, the second time on what the first one left.
static void *add_up(void *context)
{
    struct rank *rank = context;
    struct ls_buffer buffer = {rank->data};
    struct ls_collective_plan *plan = NULL;
    for (uint32_t i = 0; i < BEFORE + MOST + BEFORE; i++)
        rank->data[i] = UNTOUCHED;
    for (uint32_t i = 0; i < rank->count; i++)
        rank->data[BEFORE + i] = value(rank->number, i);
    const struct ls_memory at = {&buffer, BEFORE * sizeof(float)};
    rank->status = ls_collective_plan_create(rank->communicator, LS_ALL_REDUCE, at, rank->count,
                                             LS_F32, LS_SUM, 0, "bucket 0", &plan);
    for (uint32_t i = 0; !rank->status && i < 2; i++) {
        rank->status = ls_collective_start(plan);
        if (!rank->status)
            rank->status = ls_collective_wait(plan);
    }
    ls_collective_plan_destroy(plan);
    return NULL;
}

static void run(uint32_t count)
{
    static const struct ls_known_plugin known = {
        .kind = LS_KIND_DEVICE, .label = "device-fake", .name = "fake"};
    const struct ls_plugin *ring = test_plugin_open("collective-ring");
    const struct ls_plugin *local = test_plugin_open("transport-local");
    ck_assert(ring && local);
    struct test_host ring_host, local_host;
    struct ls_communicator_place places[RANKS];
    struct ls_communicator *communicators[RANKS] = {NULL};
    test_host_init(&ring_host, ring);
    test_host_init(&local_host, local);
    for (uint32_t i = 0; i < RANKS; i++) {
        opened[i].instance = (struct ls_instance){.magic = LS_INSTANCE_MAGIC,
                                                  .plugin = &known,
                                                  .own = &device_ops,
                                                  .interface = &device_ops};
        places[i].device = &opened[i].device;
    }
    const struct ls_communicator_options options = {.collective = ring,
                                                    .collective_host = &ring_host.host,
                                                    .transport = local,
                                                    .transport_host = &local_host.host,
                                                    .world = RANKS,
                                                    .deadline_ns = UINT64_C(60000000000),
                                                    .name = "test",
                                                    .places = places};
    ck_assert_int_eq(ls_communicators_open(&options, communicators), LS_OK);
    for (uint32_t i = 0; i < RANKS; i++) {
        ranks[i].number = i;
        ranks[i].count = count;
        ranks[i].communicator = communicators[i];
        ck_assert_int_eq(pthread_create(&ranks[i].thread, NULL, add_up, &ranks[i]), 0);
    }
    for (uint32_t i = 0; i < RANKS; i++)
        pthread_join(ranks[i].thread, NULL);
    ls_communicators_close(communicators, RANKS);
}

LOOP_TEST(buffers_that_are_handles_get_the_sum, 0, 5)
{
    static const uint32_t counts[] = {0, 1, 2, 7, MOST};
    const uint32_t count = counts[_i];
    memset(opened, 0, sizeof(opened));
    run(count);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        ck_assert_int_eq(ranks[rank].status, LS_OK);
        ck_assert_uint_eq(opened[rank].device.copies, count ? 4 : 0); // there and back, twice
        for (uint32_t i = 0; i < BEFORE; i++) {
            ck_assert(ranks[rank].data[i] == UNTOUCHED);
            ck_assert(ranks[rank].data[BEFORE + count + i] == UNTOUCHED);
        }
        for (uint32_t i = 0; i < count; i++)
            ck_assert(ranks[rank].data[BEFORE + i] ==
                      RANKS * (value(0, i) + value(1, i) + value(2, i)));
    }
}

TEST(a_copy_that_fails_ends_all_ranks)
{
    memset(opened, 0, sizeof(opened));
    opened[1].device.broken = true;
    ls_log_set_writer(test_log_keep, NULL);
    run(MOST);
    ls_log_set_writer(NULL, NULL);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        ck_assert_int_ne(ranks[rank].status, LS_OK);
}

TEST(only_schedules_work_on_copies)
{
    const struct ls_plugin *ring = test_plugin_open("collective-ring");
    static const struct ls_collective_interface native = {.struct_size = sizeof(native)};
    ck_assert_ptr_nonnull(ring);
    ck_assert_uint_eq(ls_collective_memory(ring->interface, LS_MEMORY_OPAQUE), LS_MEMORY_HOST);
    ck_assert_uint_eq(ls_collective_memory(ring->interface, LS_MEMORY_CUDA), LS_MEMORY_CUDA);
    ck_assert_uint_eq(ls_collective_memory(ring->interface, LS_MEMORY_HOST), LS_MEMORY_HOST);
    ck_assert_uint_eq(ls_collective_memory(&native, LS_MEMORY_OPAQUE), LS_MEMORY_OPAQUE);
    ck_assert_uint_eq(ls_collective_memory(NULL, LS_MEMORY_OPAQUE), LS_MEMORY_OPAQUE);
}

TEST_SECONDS(300);

int main(void)
{
    return test_plugin_open("transport-local") ? test_suite_run("copies") : TEST_SKIPPED;
}
