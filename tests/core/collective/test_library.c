// SPDX-License-Identifier: Apache-2.0
// Communicators of a native collective, on devices that compute beside the caller: both are fakes, which do nothing
// and say what they were asked. The host thread of the test is that of every rank, for nothing waits but settle; unless the
// devices were refreshed.
#include "core/collective/internal.h" // deadlines that change
#include "core/device/device.h"
#include "core/base/instance.h"
#include "core/base/log.h"
#include "tests/core/collective/support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define RANKS 3
#define COUNT 1000
#define DEADLINE_NS UINT64_C(200000000)

// ---- The device ----

struct ls_device {
    uint32_t index; // of the physical device
    bool hangs; // no event is over
};

struct ls_event {
    uint32_t recorded;
};

static uint32_t events, streams, kernels; // open
static char launched[RANKS][64]; // what each device was given, in order
static char stream_memory[1];

static int32_t stream_open(struct ls_device *device, void **out)
{
    (void)device;
    *out = stream_memory;
    streams++;
    return LS_OK;
}

static void stream_close(struct ls_device *device, void *stream)
{
    (void)device;
    streams -= stream != NULL;
}

static int32_t stream_native(struct ls_device *device, void *stream, struct ls_native_stream *out)
{
    out->family = LS_STREAM_CUDA;
    out->native = stream;
    out->index = device->index;
    snprintf(out->identity, sizeof(out->identity), "0000:0%u:00.0", device->index);
    return LS_OK;
}

static int32_t event_open(struct ls_device *device, struct ls_event **out)
{
    (void)device;
    *out = calloc(1, sizeof(**out));
    events++;
    return LS_OK;
}

static void event_close(struct ls_device *device, struct ls_event *event)
{
    (void)device;
    events -= event != NULL;
    free(event);
}

static int32_t event_record(struct ls_device *device, struct ls_event *event, void *stream)
{
    (void)device;
    (void)stream;
    event->recorded++;
    return LS_OK;
}

static int32_t event_wait(struct ls_device *device, struct ls_event *event, void *stream)
{
    (void)device;
    (void)stream;
    return event->recorded ? LS_OK : LS_FAILED; // an order that none has given
}

static int32_t event_query(struct ls_device *device, const struct ls_event *event)
{
    (void)event;
    return device->hangs ? LS_AGAIN : LS_OK;
}

static struct ls_buffer *allocate(struct ls_device *device, uint64_t bytes)
{
    (void)device;
    return aligned_alloc(LS_ALIGNMENT, (bytes + LS_ALIGNMENT - 1) / LS_ALIGNMENT * LS_ALIGNMENT);
}

static void release(struct ls_device *device, struct ls_buffer *buffer)
{
    (void)device;
    free(buffer);
}

static int32_t zero(struct ls_device *device, struct ls_memory memory, uint64_t bytes, void *stream)
{
    (void)device;
    (void)stream;
    memset(ls_address(memory), 0, bytes);
    return LS_OK;
}

static const struct ls_device_memory memory = {
    .struct_size = sizeof(memory), .allocate = allocate, .release = release, .zero = zero};

struct ls_kernel {
    uint32_t to; // enum ls_dtype
};

static int32_t prepare(struct ls_device *device, const struct ls_kernel_request *request,
                       struct ls_kernel_answer *out)
{
    (void)device;
    if (request->op != LS_OP_CONVERT || request->arguments[0].dims[0] != COUNT)
        return LS_FAILED;
    out->kernel = calloc(1, sizeof(*out->kernel));
    out->kernel->to = request->arguments[1].dtype;
    kernels++;
    return LS_OK;
}

static void note(uint32_t rank, const char *what)
{
    const size_t used = strlen(launched[rank]);
    snprintf(launched[rank] + used, sizeof(launched[rank]) - used, "%s ", what);
}

static int32_t launch(struct ls_device *device, const struct ls_kernel *kernel,
                      const struct ls_launch *how)
{
    if (how->stream != stream_memory)
        return LS_FAILED;
    note(device->index, kernel->to == LS_BF16 ? "round" : "widen");
    return LS_OK;
}

static void release_kernel(struct ls_device *device, struct ls_kernel *kernel)
{
    (void)device;
    kernels -= kernel != NULL;
    free(kernel);
}

static const struct ls_device_kernels kernel_calls = {.struct_size = sizeof(kernel_calls),
                                                      .prepare = prepare,
                                                      .launch = launch,
                                                      .release = release_kernel};
static const struct ls_device_streams stream_calls = {.struct_size = sizeof(stream_calls),
                                                      .open = stream_open,
                                                      .close = stream_close,
                                                      .native = stream_native,
                                                      .event_open = event_open,
                                                      .event_close = event_close,
                                                      .event_record = event_record,
                                                      .event_wait = event_wait,
                                                      .event_query = event_query};
static const struct ls_device_interface device_ops = {.struct_size = sizeof(device_ops),
                                                      .memory_kind = LS_MEMORY_CUDA,
                                                      .memory = &memory,
                                                      .kernels = &kernel_calls,
                                                      .streams = &stream_calls};

// ---- The library ----

struct ls_collective {
    uint32_t rank;
    struct ls_collective_run last;
    uint32_t runs, aborts;
    uint64_t ended; // operations, as `done` says it
    int32_t poll;
};

static struct ls_collective *ranks[RANKS]; // in memory of the host's
static bool is_open[RANKS];
static _Atomic uint32_t arrived,
    early; // ranks on their way to an operation; operations before all were
static uint32_t needed; // 0: nobody waits
static uint64_t world_seen;

static int32_t library_open(const struct ls_host *host, const struct ls_collective_config *config,
                            struct ls_collective *const *out)
{
    uint32_t own[RANKS], all[RANKS] = {0};
    (void)host;
    world_seen = config->world;
    const uint32_t first = config->members[0].rank;
    for (uint32_t i = 0; i < config->count; i++) {
        const uint32_t rank = config->members[i].rank;
        own[i] = 100 + rank;
        ranks[rank] = out[i];
        ranks[rank]->rank = rank;
        is_open[rank] = true;
        if (config->members[i].ops && config->members[i].stream != stream_memory)
            return LS_FAILED;
    }
    if (config->exchange(config->context, own, sizeof(own[0]), all))
        return LS_FAILED;
    return memcmp(own, all + first, config->count * sizeof(own[0])) ? LS_FAILED : LS_OK;
}

static void library_close(struct ls_collective *collective)
{
    is_open[collective->rank] = false;
}

static int32_t library_run(struct ls_collective *collective, const struct ls_collective_run *run)
{
    if (atomic_load(&arrived) < needed)
        atomic_fetch_add(&early, 1);
    collective->last = *run;
    collective->runs++;
    note(collective->rank, "add");
    return LS_OK;
}

static uint32_t memories; // taken and not released
static bool has_memory; // the library has any

static int32_t library_allocate(struct ls_collective *collective, uint64_t bytes, void **out)
{
    *out = has_memory ? aligned_alloc(LS_ALIGNMENT,
                                      (bytes + LS_ALIGNMENT - 1) / LS_ALIGNMENT * LS_ALIGNMENT)
                      : NULL;
    if (*out)
        memset(*out, 1, bytes);
    memories += *out != NULL;
    return is_open[collective->rank] ? LS_OK : LS_FAILED;
}

static void library_release(struct ls_collective *collective, void *taken)
{
    memories -= is_open[collective->rank];
    free(taken);
}

static int32_t library_poll(struct ls_collective *collective)
{
    return collective->aborts ? LS_ABORTED : collective->poll;
}

static void library_abort(struct ls_collective *collective)
{
    collective->aborts++;
}

static const struct ls_collective_interface library = {
    .struct_size = sizeof(library),
    .operations = 1u << LS_ALL_REDUCE,
    .memory_kinds = 1u << LS_MEMORY_CUDA,
    .stream_families = 1u << LS_STREAM_CUDA,
    .one_rank_a_device = 1,
    .capturable = 1,
    .state_bytes = sizeof(struct ls_collective),
    .open = library_open,
    .close = library_close,
    .run = library_run,
    .poll = library_poll,
    .abort = library_abort,
    .allocate = library_allocate,
    .release = library_release,
};

// ---- A job of three ranks ----

static struct {
    struct ls_instance instance; // what the core has in front of a device's state
    struct ls_device device;
} opened[RANKS];
static struct ls_communicator *communicators[RANKS];
static struct ls_collective_plan *plans[RANKS];
static struct test_host host;
static float data[RANKS][COUNT];
static char said[1024];

static void hear(void *context, uint32_t level, const char *line)
{
    (void)context;
    if (level == LS_LOG_ERROR)
        snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s\n", line);
}

static void init_instance(uint32_t rank, const struct ls_device_interface *ops)
{
    static const struct ls_known_plugin plugin = {
        .kind = LS_KIND_DEVICE, .label = "device-fake", .name = "fake"};
    opened[rank].instance = (struct ls_instance){
        .magic = LS_INSTANCE_MAGIC, .plugin = &plugin, .own = ops, .interface = ops};
}

// Unproven: a library that computes nothing has no known answer.
static enum ls_status open_job(const struct ls_device_interface *ops)
{
    static const struct ls_plugin plugin = {LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE), .name = "fake",
                                            .version = "1", .interface = &library};
    struct ls_communicator_place places[RANKS];
    for (uint32_t i = 0; i < RANKS; i++)
        init_instance(i, ops);
    test_host_init(&host, &plugin);
    for (uint32_t i = 0; i < RANKS; i++)
        places[i] = (struct ls_communicator_place){.device = &opened[i].device};
    said[0] = '\0';
    ls_log_set_writer(hear, NULL);
    return ls_communicators_open(&(struct ls_communicator_options){.collective = &plugin,
                                                                   .collective_host = &host.host,
                                                                   .world = RANKS,
                                                                   .deadline_ns = DEADLINE_NS,
                                                                   .name = "test",
                                                                   .places = ops ? places : NULL,
                                                                   .unproven = true},
                                 communicators);
}

static void setup(void)
{
    for (uint32_t i = 0; i < RANKS; i++)
        opened[i].device = (struct ls_device){.index = i};
    ck_assert_int_eq(open_job(&device_ops), LS_OK);
    for (uint32_t i = 0; i < RANKS; i++)
        ck_assert_int_eq(ls_collective_plan_create(communicators[i], LS_ALL_REDUCE,
                                                   ls_host_memory(data[i]), COUNT, LS_F32, LS_MEAN,
                                                   0, "bucket 3", &plans[i]),
                         LS_OK);
}

static void teardown(void)
{
    for (uint32_t i = 0; i < RANKS; i++)
        ls_collective_plan_destroy(plans[i]);
    ls_communicators_close(communicators, RANKS);
    for (uint32_t i = 0; i < RANKS; i++)
        ck_assert(!is_open[i]);
    ls_log_set_writer(NULL, NULL);
}

static enum ls_status run_once(uint32_t rank)
{
    const enum ls_status status = ls_collective_start(plans[rank]);
    return status ? status : ls_collective_wait(plans[rank]);
}

// Where somebody must come in time: a thread of a busy machine may not run for longer than DEADLINE_NS.
#define PATIENT_NS UINT64_C(20000000000)

static void set_deadline(uint64_t deadline_ns)
{
    communicators[0]->group->deadline_ns = deadline_ns; // of all ranks
}

// `before`, the seconds of a wait that lasted for the deadline, and no longer than a busy machine explains, `after`.
static void expect_waited(const char *before, const char *after)
{
    char *end = NULL;
    const char *text = strstr(said, before);
    ck_assert_msg(text != NULL, "%s", said);
    const double seconds = strtod(text + strlen(before), &end);
    ck_assert_msg(strncmp(end, after, strlen(after)) == 0, "%s", said);
    ck_assert_double_ge(seconds, (double)DEADLINE_NS * 1e-9 - 0.05); // it is rounded to 0.1 s
    ck_assert_double_lt(seconds, (double)PATIENT_NS * 1e-9);
}

static int32_t library_done(struct ls_collective *collective, uint64_t *ended)
{
    *ended = __atomic_load_n(&collective->ended, __ATOMIC_SEQ_CST);
    return collective->poll;
}

static void *end_soon(void *argument)
{
    struct ls_collective *rank = argument;
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    __atomic_store_n(&rank->ended, 2, __ATOMIC_SEQ_CST);
    return NULL;
}

// A library that works in host memory beside the rank's thread, as MPI_Iallreduce does.
TEST(in_host_memory_operations_go_on_beside_the_rank)
{
    struct ls_collective_interface beside = library;
    const struct ls_plugin plugin = {LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE), .name = "beside",
                                     .version = "1", .interface = &beside};
    const struct ls_communicator_options options = {.collective = &plugin,
                                                    .collective_host = &host.host,
                                                    .world = RANKS,
                                                    .deadline_ns = DEADLINE_NS,
                                                    .name = "test",
                                                    .unproven = true};
    struct ls_collective_plan *two[2];
    pthread_t thread;
    beside.memory_kinds = 1u << LS_MEMORY_HOST;
    beside.one_rank_a_device = beside.capturable = 0;
    beside.done = library_done;
    test_host_init(&host, &plugin);
    said[0] = '\0';
    ls_log_set_writer(hear, NULL);
    ck_assert_int_eq(ls_communicators_open(&options, communicators), LS_OK);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(ls_collective_plan_create(communicators[0], LS_ALL_REDUCE,
                                                   ls_host_memory(data[i]), COUNT, LS_F32, LS_SUM,
                                                   0, "part", &two[i]),
                         LS_OK);
    ck_assert_int_eq(ls_collective_start(two[0]), LS_OK); // returns at once
    ck_assert_int_eq(ls_collective_start(two[1]), LS_OK);
    ck_assert_uint_eq(ranks[0]->runs, 2);
    ck_assert_int_eq(ls_communicator_progress(communicators[0]), LS_OK);
    ranks[0]->ended = 1;
    ck_assert_int_eq(ls_communicator_progress(communicators[0]), LS_OK);
    ck_assert_int_eq(ls_collective_wait(two[0]), LS_OK);
    ck_assert_int_eq(pthread_create(&thread, NULL, end_soon, ranks[0]), 0);
    set_deadline(PATIENT_NS);
    ck_assert_int_eq(ls_collective_wait(two[1]), LS_OK);
    pthread_join(thread, NULL);
    set_deadline(DEADLINE_NS);
    ck_assert_int_eq(ls_collective_start(two[1]), LS_OK); // and never ends
    ck_assert_int_eq(ls_collective_wait(two[1]), LS_PEER_LOST);
    expect_waited("rank 0 waited ", " s for ");
    for (int i = 0; i < 2; i++)
        ls_collective_plan_destroy(two[i]);
    ls_communicators_close(communicators, RANKS);
    ls_log_set_writer(NULL, NULL);
}

TEST(an_operation_is_handed_over_whole)
{
    setup();
    ck_assert_uint_eq(world_seen, RANKS);
    for (uint32_t i = 0; i < RANKS; i++) {
        ck_assert_int_eq(run_once(i), LS_OK);
        ck_assert_uint_eq(ranks[i]->runs, 1);
        ck_assert_uint_eq(ranks[i]->last.reduction, LS_MEAN);
        ck_assert_ptr_eq(ranks[i]->last.buffer, data[i]);
        ck_assert(ls_memory_is_same(ranks[i]->last.place, ls_host_memory(data[i])));
        ck_assert_uint_eq(ranks[i]->last.count, COUNT);
        ck_assert_int_eq(ls_communicator_synchronize(communicators[i]), LS_OK);
    }
    // Of a ring: twice 2/3 of the buffer.
    ck_assert_uint_eq(ls_collective_plan_bytes(plans[0]), 2 * (COUNT * 4 * 2 / 3));
    ck_assert_uint_eq(ls_collective_plan_rounds(plans[0]), 0);
    ck_assert_str_eq(said, "");
    teardown();
    ck_assert_uint_eq(events, 0);
    ck_assert_uint_eq(streams, 0);
}

// Rounded, added in 16 bits and widened, on the communicator's stream; in the caller's memory of halves, or the plan's own.
TEST(in_a_devices_memory_values_travel_in_16_bits)
{
    uint16_t halves[COUNT];
    struct ls_collective_plan *plan = NULL;
    struct ls_communicator_call call = {.operation = LS_ALL_REDUCE,
                                        .dtype = LS_F32,
                                        .reduction = LS_SUM,
                                        .buffer = ls_host_memory(data[1]),
                                        .count = COUNT,
                                        .wire = LS_BF16,
                                        .halves = ls_host_memory(halves)};
    setup();
    for (int own = 0; own < 2; own++) {
        launched[1][0] = '\0';
        call.halves = own ? (struct ls_memory){NULL, 0} : ls_host_memory(halves);
        ck_assert_int_eq(ls_collective_plan_open(communicators[1], &call, "bucket 0", &plan),
                         LS_OK);
        ck_assert_int_eq(ls_collective_start(plan), LS_OK);
        ck_assert_int_eq(ls_collective_wait(plan), LS_OK);
        ck_assert_str_eq(launched[1], "round add widen ");
        ck_assert_uint_eq(ranks[1]->last.dtype, LS_BF16);
        ck_assert_uint_eq(ranks[1]->last.count, COUNT);
        ck_assert((ranks[1]->last.buffer == halves) == !own);
        ck_assert_uint_eq(ls_collective_plan_bytes(plan), 2 * (COUNT * 2 * 2 / 3));
        ls_collective_plan_destroy(plan);
    }
    call.reduction = LS_MAX;
    ck_assert_int_eq(ls_collective_plan_open(communicators[1], &call, "bucket 0", &plan), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(said, "only sums of float32 travel in 16 bits"));
    teardown();
    ck_assert_uint_eq(kernels, 0);
}

TEST(memory_of_the_library_is_zeroed_and_released_before_it_is_closed)
{
    static const char zeros[1000];
    for (int has = 0; has < 2; has++) {
        struct ls_memory taken;
        has_memory = has;
        setup();
        for (uint32_t i = 0; i < RANKS; i++)
            for (int times = 0; times < 2; times++) {
                ck_assert_int_eq(ls_communicator_allocate(communicators[i], sizeof(zeros), &taken),
                                 LS_OK);
                ck_assert_int_eq(ls_memory_is_null(taken), !has);
                ck_assert(!has || !memcmp(ls_address(taken), zeros, sizeof(zeros)));
            }
        ck_assert_uint_eq(memories, has ? 2 * RANKS : 0);
        teardown();
        ck_assert_uint_eq(memories, 0);
    }
    has_memory = false;
}

// What hangs may still write there.
TEST(memory_of_the_library_stays_where_the_device_hangs)
{
    struct ls_memory taken;
    has_memory = true;
    setup();
    ck_assert_int_eq(ls_communicator_allocate(communicators[0], 10, &taken), LS_OK);
    opened[0].device.hangs = true;
    teardown();
    ck_assert_uint_eq(memories, 1);
    free(ls_address(taken));
    memories = 0;
    has_memory = false;
}

TEST(what_it_lacks_is_made_of_the_whole_reduction_or_refused)
{
    struct ls_collective_plan *reduce = NULL, *broadcast = NULL;
    setup();
    ck_assert_int_eq(ls_collective_plan_create(communicators[0], LS_REDUCE, ls_host_memory(data[0]),
                                               COUNT, LS_F32, LS_SUM, 1, "sums", &reduce),
                     LS_OK);
    ck_assert_int_eq(ls_collective_start(reduce), LS_OK);
    ck_assert_int_eq(ls_collective_wait(reduce), LS_OK);
    ck_assert_uint_eq(ranks[0]->last.operation, LS_ALL_REDUCE);
    ls_collective_plan_destroy(reduce);
    ck_assert_int_eq(ls_collective_plan_create(communicators[0], LS_BROADCAST,
                                               ls_host_memory(data[0]), COUNT, LS_F32, LS_SUM, 0,
                                               "weights", &broadcast),
                     LS_USAGE);
    ck_assert_ptr_nonnull(strstr(said, "is native and does not do this operation"));
    teardown();
}

TEST(a_device_that_hangs_is_named_after_the_deadline)
{
    setup();
    for (uint32_t i = 0; i < RANKS; i++)
        ck_assert_int_eq(run_once(i), LS_OK);
    ck_assert_int_eq(ls_communicator_synchronize(communicators[0]), LS_OK);
    opened[1].device.hangs = true;
    ck_assert_int_eq(ls_communicator_poll(communicators[1], DEADLINE_NS / 2), LS_OK);
    ck_assert_int_eq(ls_communicator_synchronize(communicators[1]), LS_PEER_LOST);
    expect_waited("rank 1 waited ", " s for its device in call 0, all-reduce (mean) of 1000 "
                                    "float32, bucket 3: all ranks have made");
    // All are ended, and nobody has more to say.
    for (uint32_t i = 0; i < RANKS; i++)
        ck_assert_uint_ge(ranks[i]->aborts, 1);
    const size_t length = strlen(said);
    ck_assert_int_eq(run_once(0), LS_ABORTED);
    ck_assert_int_eq(ls_communicator_synchronize(communicators[2]), LS_ABORTED);
    ck_assert_uint_eq(strlen(said), length);
    teardown();
}

TEST(a_rank_that_does_not_come_is_named)
{
    setup();
    for (uint32_t i = 0; i < RANKS - 1; i++) {
        ck_assert_int_eq(run_once(i), LS_OK);
        opened[i].device.hangs = true; // as it does until the last one comes
    }
    ck_assert_int_eq(ls_communicator_poll(communicators[0], DEADLINE_NS), LS_PEER_LOST);
    expect_waited("rank 0 waited ", " s for rank 2 in call 0");
    ck_assert_ptr_nonnull(strstr(said, "bucket 3: it has not made this call"));
    ck_assert_int_eq(ls_communicator_synchronize(communicators[1]), LS_ABORTED);
    teardown();
}

TEST(a_call_that_differs_is_named_with_both_sides)
{
    struct ls_collective_plan *other = NULL;
    setup();
    ck_assert_int_eq(ls_collective_plan_create(communicators[2], LS_ALL_REDUCE,
                                               ls_host_memory(data[2]), COUNT - 1, LS_F32, LS_MEAN,
                                               0, "bucket 4", &other),
                     LS_OK);
    ck_assert_int_eq(run_once(0), LS_OK);
    ck_assert_int_eq(ls_collective_start(other), LS_OK);
    opened[0].device.hangs = true;
    ck_assert_int_eq(ls_communicator_poll(communicators[0], DEADLINE_NS / 2), LS_FAILED);
    ck_assert_ptr_nonnull(strstr(said, "bucket 3, rank 2 calls all-reduce (mean) of 999"));
    ls_collective_plan_destroy(other);
    teardown();
}

TEST(what_the_library_reports_ends_the_wait)
{
    setup();
    for (uint32_t i = 0; i < RANKS; i++)
        ck_assert_int_eq(run_once(i), LS_OK);
    ranks[2]->poll = LS_PEER_LOST;
    opened[2].device.hangs = true;
    ck_assert_int_eq(ls_communicator_synchronize(communicators[2]), LS_PEER_LOST);
    ck_assert_int_eq(ls_communicator_synchronize(communicators[0]), LS_ABORTED);
    ck_assert_uint_ge(ranks[0]->aborts, 1);
    teardown();
}

TEST(replays_are_runs_and_recordings_are_not)
{
    setup();
    for (uint32_t i = 0; i < RANKS; i++) {
        ck_assert(ls_communicator_capturable(communicators[i]));
        ck_assert_int_eq(run_once(i), LS_OK); // call 0
        ls_communicator_record(communicators[i], true);
        ck_assert_int_eq(run_once(i), LS_OK);
        ls_communicator_record(communicators[i], false);
        ck_assert_uint_eq(ranks[i]->runs, 2);
        for (uint32_t replay = 0; replay < 3; replay++) // calls 1, 2, 3
            ck_assert_int_eq(ls_communicator_replayed(communicators[i]), LS_OK);
        ck_assert_uint_eq(ranks[i]->runs, 2);
        ck_assert_int_eq(ls_communicator_synchronize(communicators[i]), LS_OK);
        opened[i].device.hangs = true;
    }
    ck_assert_int_eq(ls_communicator_replayed(communicators[0]), LS_OK);
    ck_assert_int_eq(ls_communicator_poll(communicators[0], DEADLINE_NS), LS_PEER_LOST);
    ck_assert_ptr_nonnull(strstr(said, "for rank 1 in call 4, all-reduce"));
    teardown();
}

TEST(where_it_cannot_work_it_is_refused_before_anything_is_opened)
{
    struct ls_device_interface foreign = device_ops;
    for (uint32_t i = 0; i < RANKS; i++)
        opened[i].device = (struct ls_device){.index = i % 2};
    ck_assert_int_eq(open_job(&device_ops), LS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(said, "rank 0 and rank 2 are both on GPU 0; use "
                                       "hierarchical-copy, or one replica a GPU"));
    ck_assert_int_eq(open_job(NULL), LS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(said, "take --device=cuda"));
    foreign.memory_kind = LS_MEMORY_HOST;
    ck_assert_int_eq(open_job(&foreign), LS_UNAVAILABLE);
    ck_assert_uint_eq(events + streams, 0);
    ls_log_set_writer(NULL, NULL);
}

static void *run_rank(void *context)
{
    const uint32_t rank = *(const uint32_t *)context;
    ck_assert_int_eq(ls_communicator_refresh(communicators[rank]), LS_OK);
    nanosleep(&(struct timespec){.tv_nsec = rank * 3000000L}, NULL);
    atomic_fetch_add(&arrived, 1);
    if (run_once(rank) || ls_communicator_barrier(communicators[rank]))
        atomic_fetch_add(&early, 1);
    nanosleep(&(struct timespec){.tv_nsec = rank * 3000000L}, NULL);
    atomic_fetch_add(&arrived, 1);
    if (ls_communicator_barrier(communicators[rank]) || atomic_load(&arrived) < 2 * RANKS)
        atomic_fetch_add(&early, 1);
    return NULL;
}

TEST(what_is_new_on_a_device_waits_for_all_ranks)
{
    pthread_t threads[RANKS];
    uint32_t numbers[RANKS] = {0, 1, 2};
    setup();
    needed = RANKS;
    set_deadline(PATIENT_NS);
    for (uint32_t i = 0; i < RANKS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_rank, &numbers[i]), 0);
    for (uint32_t i = 0; i < RANKS; i++)
        pthread_join(threads[i], NULL);
    needed = 0;
    ck_assert_uint_eq(early, 0);
    for (uint32_t i = 0; i < RANKS; i++) // what has run there before does not wait
        ck_assert_int_eq(run_once(i), LS_OK);
    set_deadline(DEADLINE_NS);
    ck_assert_int_eq(ls_communicator_refresh(communicators[0]), LS_OK);
    ck_assert_int_eq(run_once(0), LS_PEER_LOST);
    ck_assert_ptr_nonnull(strstr(said, "for rank 1 in call 2"));
    teardown();
}

static int32_t exchange_from(void *context, const void *own, uint64_t bytes, void *all)
{
    const struct ls_communicator_options *process = context;
    memcpy((char *)all + process->first_rank * bytes, own, process->count * bytes);
    return LS_OK;
}

// Two processes, as far as communicators know: one has rank 0, the other ranks 1 and 2.
TEST(a_process_opens_its_own_ranks)
{
    static const struct ls_plugin plugin = {LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE), .name = "fake",
                                            .version = "1", .interface = &library};
    struct ls_communicator_place places[RANKS];
    struct ls_communicator_options processes[2];
    for (uint32_t i = 0; i < RANKS; i++) {
        opened[i].device = (struct ls_device){.index = i};
        init_instance(i, &device_ops);
        places[i] = (struct ls_communicator_place){.device = &opened[i].device};
    }
    test_host_init(&host, &plugin);
    for (uint32_t i = 0; i < 2; i++) {
        processes[i] = (struct ls_communicator_options){
            .collective = &plugin,
            .collective_host = &host.host,
            .world = RANKS,
            .first_rank = i,
            .count = 1 + i,
            .deadline_ns = DEADLINE_NS,
            .name = "test",
            .places = &places[i],
            .exchange = {.call = exchange_from, .context = &processes[i]},
            .unproven = true};
        ck_assert_int_eq(ls_communicators_open(&processes[i], &communicators[i]), LS_OK);
        ck_assert_uint_eq(world_seen, RANKS);
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        ck_assert_uint_eq(communicators[i]->rank, i);
        ck_assert_ptr_eq(communicators[i]->place->device, &opened[i].device);
        ck_assert_int_eq(ls_collective_plan_create(communicators[i], LS_ALL_REDUCE,
                                                   ls_host_memory(data[i]), COUNT, LS_F32, LS_SUM,
                                                   0, "bucket 0", &plans[i]),
                         LS_OK);
        ck_assert_int_eq(run_once(i), LS_OK);
        ck_assert_uint_eq(ranks[i]->runs, 1);
        ck_assert_ptr_eq(ranks[i]->last.buffer, data[i]);
        ls_collective_plan_destroy(plans[i]);
    }
    ls_communicators_close(&communicators[1], 2);
    ck_assert(is_open[0] && !is_open[1] && !is_open[2]);
    ls_communicators_close(&communicators[0], 1);
    ck_assert(!is_open[0]);
}

TEST_SECONDS(300);
