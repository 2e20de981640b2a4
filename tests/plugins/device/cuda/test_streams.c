// SPDX-License-Identifier: Apache-2.0
// Streams, recordings and memory of device `cuda` on the fake. NOT A GPU. What the device suite does not ask: GPUs that
// do not reach each other, work that fails or never ends, what spoils a recording, and how much of a GPU is held.
#include "plugins/device/cuda/engine.h"
#include "tests/plugins/device/cuda/on_fake.h"

#include <check.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

#ifndef CUDA_ENGINE_FILE
#error "the build names the engine on the fake: CUDA_ENGINE_FILE"
#endif

static void *stream_of(struct ls_device *device)
{
    void *stream = NULL;
    ck_assert_int_eq(ops->streams->open(device, &stream), LS_OK);
    return stream;
}

static struct ls_event *event_of(struct ls_device *device)
{
    struct ls_event *event = NULL;
    ck_assert_int_eq(ops->streams->event_open(device, &event), LS_OK);
    return event;
}

// One kernel: adds 64 bytes to themselves.
static int32_t run_kernel(struct ls_device *device, void *to, const void *from, void *stream)
{
    const struct ls_device_reduction sum = {.struct_size = sizeof(sum),
                                            .dtype = LS_U8,
                                            .reduction = LS_SUM,
                                            .to = ls_host_memory(to),
                                            .from = ls_host_memory(from),
                                            .count = 64};
    return ops->peers->reduce(device, &sum, stream);
}

// ---- Several GPUs ----

TEST(a_gpu_that_cannot_be_reached_is_named)
{
    setenv("CUDA_FAKE_DEVICES", "2", 1);
    setenv("CUDA_FAKE_NO_PEERS", "1", 1);
    struct ls_device *first = opened(0), *second = opened(1), *third = opened(0);
    ck_assert_int_eq(ops->peers->can_access_peer(first, second), LS_UNSUPPORTED);
    assert_says("GPU 0 cannot read memory of GPU 1");
    ck_assert_int_eq(ops->peers->can_access_peer(first, third), LS_OK); // the same GPU
    ls_device_close(first);
    ls_device_close(second);
    ls_device_close(third);
}

TEST(peer_access_is_opened_once_for_all)
{
    setenv("CUDA_FAKE_DEVICES", "2", 1);
    struct ls_device *first = opened(0), *second = opened(1), *third = opened(0);
    ck_assert_int_eq(ops->peers->can_access_peer(first, second), LS_OK);
    ck_assert_int_eq(ops->peers->can_access_peer(first, second), LS_OK);
    ck_assert_int_eq(ops->peers->can_access_peer(third, second), LS_OK);
    ls_device_close(first);
    ls_device_close(second);
    ls_device_close(third);
}

// Ends the process (fake.h).
START_TEST(memory_of_a_gpu_that_was_not_opened_to_is_never_touched)
{
    setenv("CUDA_FAKE_DEVICES", "2", 1);
    struct ls_device *first = opened(0), *second = opened(1);
    void *here = (void *)ops->memory->allocate(first, 64),
         *there = (void *)ops->memory->allocate(second, 64);
    run_kernel(first, here, there, NULL);
}
END_TEST

TEST(a_later_copy_wants_memory_of_the_device)
{
    struct ls_device *device = opened(0);
    char bytes[64] = "";
    void *memory = (void *)ops->memory->allocate(device, 64);
    ck_assert_int_eq(
        ops->staging->copy_async(device, ls_host_memory(memory), ls_host_memory(bytes), 64, NULL),
        LS_UNSUPPORTED);
    assert_says("of the table of staging");
    ls_device_close(device);
}

// Two threads, each with a GPU, add the other's memory to their own, round after round: only events keep the order.
enum { ROUNDS = 40, NUMBERS = 8 };

struct partner {
    struct ls_device *device;
    struct ls_event *ready, *taken;
    double *memory; // NUMBERS, and what was taken of the other's
    struct partner *other;
    int32_t failed;
};

static pthread_barrier_t both;

static void *add_the_other(void *argument)
{
    struct partner *p = argument;
    const struct ls_device_reduction sum = {.struct_size = sizeof(sum),
                                            .dtype = LS_F64,
                                            .reduction = LS_SUM,
                                            .to = ls_host_memory(p->memory),
                                            .from = ls_host_memory(p->memory + NUMBERS),
                                            .count = NUMBERS};
    for (int i = 0; i < ROUNDS; i++) {
        p->failed |= ops->streams->event_record(p->device, p->ready, NULL);
        pthread_barrier_wait(&both);
        p->failed |= ops->streams->event_wait(p->device, p->other->ready, NULL);
        p->failed |=
            ops->memory->copy(p->device, ls_host_memory(p->memory + NUMBERS),
                              ls_host_memory(p->other->memory), NUMBERS * sizeof(double), NULL);
        p->failed |= ops->streams->event_record(p->device, p->taken, NULL);
        pthread_barrier_wait(&both);
        p->failed |= ops->streams->event_wait(p->device, p->other->taken, NULL);
        p->failed |= ops->peers->reduce(p->device, &sum, NULL);
    }
    double values[NUMBERS];
    p->failed |= ops->memory->copy(p->device, ls_host_memory(values), ls_host_memory(p->memory),
                                   sizeof(values), NULL);
    const double wanted = 3 * (double)(UINT64_C(1) << (ROUNDS - 1));
    for (int i = 0; i < NUMBERS; i++)
        p->failed |= values[i] < wanted || values[i] > wanted;
    return NULL;
}

TEST(events_keep_the_order_of_two_threads_with_a_gpu_each)
{
    struct partner partners[2];
    double values[NUMBERS];
    pthread_t thread;
    setenv("CUDA_FAKE_DEVICES", "2", 1);
    pthread_barrier_init(&both, NULL, 2);
    for (uint32_t i = 0; i < 2; i++) {
        struct ls_device *device = opened(i);
        partners[i] = (struct partner){
            .device = device,
            .ready = event_of(device),
            .taken = event_of(device),
            .memory = (void *)ops->memory->allocate(device, 2 * NUMBERS * sizeof(double)),
            .other = &partners[1 - i]};
        for (int k = 0; k < NUMBERS; k++)
            values[k] = i + 1;
        ck_assert_int_eq(ops->memory->copy(device, ls_host_memory(partners[i].memory),
                                           ls_host_memory(values), sizeof(values), NULL),
                         LS_OK);
    }
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(ops->peers->can_access_peer(partners[i].device, partners[1 - i].device),
                         LS_OK);
    ck_assert_int_eq(pthread_create(&thread, NULL, add_the_other, &partners[0]), 0);
    add_the_other(&partners[1]);
    pthread_join(thread, NULL);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(partners[i].failed, 0);
    for (int i = 0; i < 2; i++) {
        ops->streams->event_close(partners[i].device, partners[i].ready);
        ops->streams->event_close(partners[i].device, partners[i].taken);
        ls_device_close(partners[i].device);
    }
    pthread_barrier_destroy(&both);
}

// ---- What goes wrong ----

TEST(an_event_tells_that_work_has_failed)
{
    setenv("CUDA_FAKE_FAIL", "0", 1);
    struct ls_device *device = opened(0);
    struct ls_event *event = event_of(device);
    void *memory = (void *)ops->memory->allocate(device, 64), *stream = stream_of(device);
    ck_assert_int_eq(run_kernel(device, memory, memory, stream), LS_OK);
    int32_t status =
        ops->streams->event_record(device, event, stream); // the kernel may have failed by now
    while (status == LS_OK || status == LS_AGAIN)
        if ((status = ops->streams->event_query(device, event)) == LS_OK)
            break;
    ck_assert_int_eq(status, LS_FAILED);
    assert_says("unspecified launch failure");
    ops->streams->event_close(device, event);
    ops->streams->close(device, stream);
    ls_device_close(device);
}

// The own stream waits for a stream whose work never ends: nothing of both is freed.
TEST(who_waits_for_work_that_never_ends_meets_the_deadline)
{
    setenv("CUDA_FAKE_HANG", "0", 1);
    host.host.option = short_deadline;
    struct ls_device *device = opened(0);
    struct ls_event *event = event_of(device);
    void *memory = (void *)ops->memory->allocate(device, 64), *stream = stream_of(device);
    char bytes[64];
    ck_assert_int_eq(run_kernel(device, memory, memory, stream), LS_OK);
    ck_assert_int_eq(ops->streams->event_record(device, event, stream), LS_OK);
    ck_assert_int_eq(ops->streams->event_wait(device, event, NULL), LS_OK);
    ck_assert_int_eq(ops->streams->event_query(device, event), LS_AGAIN);
    ck_assert_int_eq(
        ops->memory->copy(device, ls_host_memory(bytes), ls_host_memory(memory), 64, NULL),
        LS_PEER_LOST);
    assert_says("not done after 1.0 s; launched last: reduce");
    struct double_counts before, after;
    ops->streams->event_close(device, event);
    double_count(&before);
    ops->streams->close(device, stream);
    ops->memory->release(device, memory);
    ls_device_close(device);
    double_count(&after);
    ck_assert_uint_eq(before.blocks, after.blocks);
    ck_assert_uint_eq(before.streams, after.streams);
}

TEST(urgent_streams_go_before_the_others)
{
    struct ls_native_stream own = {.struct_size = sizeof(own)}, beside = own, first = own;
    struct ls_device *device = opened(0);
    void *stream = stream_of(device), *urgent = NULL;
    ck_assert_int_eq(ops->streams->open_urgent(device, &urgent), LS_OK);
    ck_assert_int_eq(ops->streams->native(device, NULL, &own), LS_OK);
    ck_assert_int_eq(ops->streams->native(device, stream, &beside), LS_OK);
    ck_assert_int_eq(ops->streams->native(device, urgent, &first), LS_OK);
    ck_assert_int_eq(double_priority_of(beside.native), double_priority_of(own.native));
    ck_assert_int_lt(double_priority_of(first.native), double_priority_of(own.native));
    ops->streams->close(device, stream);
    ops->streams->close(device, urgent);
    ls_device_close(device);
}

// A wait that was put on a stream outlives the event and the stream that it is for.
TEST(events_and_streams_are_closed_while_others_wait_for_them)
{
    struct ls_device *device = opened(0);
    void *memory = (void *)ops->memory->allocate(device, 64);
    for (int i = 0; i < 50; i++) {
        struct ls_event *event = event_of(device);
        void *first = stream_of(device), *second = stream_of(device);
        ck_assert_int_eq(run_kernel(device, memory, memory, first), LS_OK);
        ck_assert_int_eq(ops->streams->event_record(device, event, first), LS_OK);
        ck_assert_int_eq(ops->streams->event_wait(device, event, second), LS_OK);
        ck_assert_int_eq(ops->streams->event_record(device, event, second), LS_OK);
        ops->streams->event_close(device, event);
        ops->streams->close(device, first);
        ops->streams->close(device, second);
    }
    ops->memory->release(device, memory);
    ls_device_close(device);
}

// ---- Recordings ----

static int32_t end_of(struct ls_device *device)
{
    struct ls_recording *recording = NULL;
    const int32_t status = ops->capture->end(device, &recording);
    ck_assert((status == LS_OK) == (recording != NULL));
    ops->capture->release(device, recording);
    return status;
}

TEST(a_stream_that_does_not_come_back_spoils_a_recording)
{
    struct ls_device *device = opened(0);
    struct ls_event *event = event_of(device);
    void *memory = (void *)ops->memory->allocate(device, 64), *stream = stream_of(device);
    ck_assert_int_eq(ops->capture->begin(device), LS_OK);
    ck_assert_int_eq(ops->streams->event_record(device, event, NULL), LS_OK);
    ck_assert_int_eq(ops->streams->event_wait(device, event, stream), LS_OK);
    ck_assert_int_eq(run_kernel(device, memory, memory, stream), LS_OK);
    ck_assert_int_eq(end_of(device), LS_UNSUPPORTED);
    assert_says("capturing stream has unjoined work");
    ck_assert_int_eq(run_kernel(device, memory, memory, stream), LS_OK); // it runs again
    ck_assert_int_eq(ops->capture->end(device, NULL), LS_FAILED);
    assert_says("nothing is recorded");
    ops->streams->event_close(device, event);
    ls_device_close(device);
}

TEST(an_event_of_outside_spoils_a_recording)
{
    struct ls_device *device = opened(0);
    struct ls_event *event = event_of(device);
    void *stream = stream_of(device);
    ck_assert_int_eq(ops->streams->event_record(device, event, stream), LS_OK);
    ck_assert_int_eq(ops->capture->begin(device), LS_OK);
    ck_assert_int_eq(ops->streams->event_wait(device, event, NULL), LS_UNSUPPORTED);
    assert_says("uncaptured work");
    ck_assert_int_eq(end_of(device), LS_UNSUPPORTED);
    // One that was recorded inside tells nothing outside.
    ck_assert_int_eq(ops->capture->begin(device), LS_OK);
    ck_assert_int_eq(ops->streams->event_record(device, event, NULL), LS_OK);
    ck_assert_int_eq(end_of(device), LS_OK);
    ck_assert_int_eq(ops->streams->event_query(device, event), LS_FAILED);
    assert_says("last recorded in a capturing stream");
    ops->streams->event_close(device, event);
    ls_device_close(device);
}

static void *close_device(void *device)
{
    ls_device_close(device);
    return NULL;
}

static void *allocate_more(void *device)
{
    return (void *)ops->memory->allocate(device, 5000000);
}

static void run_beside(void *(*what)(void *), struct ls_device *device)
{
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, what, device), 0);
    pthread_join(thread, NULL);
}

// As a device is closed, NVIDIA's libraries wait for the GPU; an allocation waits for nothing.
TEST(another_thread_that_waits_for_the_gpu_spoils_a_recording)
{
    setenv("CUDA_FAKE_DEVICES", "2", 1);
    struct ls_device *device = opened(0), *beside = opened(0), *elsewhere = opened(1);
    struct ls_recording *recording = NULL;
    void *memory = (void *)ops->memory->allocate(device, 64);

    ck_assert_int_eq(ops->capture->begin(device), LS_OK);
    ck_assert_int_eq(run_kernel(device, memory, memory, NULL), LS_OK);
    run_beside(allocate_more, beside);
    run_beside(close_device, elsewhere);
    ck_assert_int_eq(ops->capture->end(device, &recording), LS_OK);
    ops->capture->release(device, recording);

    ck_assert_int_eq(ops->capture->begin(device), LS_OK);
    ck_assert_int_eq(run_kernel(device, memory, memory, NULL), LS_OK);
    run_beside(close_device, beside);
    ck_assert_int_eq(ops->capture->end(device, &recording), LS_UNSUPPORTED);
    assert_says("cannot be recorded");
    ops->memory->release(device, memory);
    ls_device_close(device);
}

// ---- Random orders of the fake itself ----

struct mark {
    char *marks, name;
};

static void put_mark(const void *data)
{
    const struct mark *mark = data;
    mark->marks[strlen(mark->marks)] = mark->name;
}

static void post_mark(struct CUstream_st *stream, char *marks, char name)
{
    const struct mark mark = {marks, name};
    ck_assert_uint_eq(double_enqueue(stream, put_mark, &mark, sizeof(mark), 0), cudaSuccess);
}

static void wait_for(struct CUstream_st *stream)
{
    unsigned error = cudaErrorNotReady;
    while (error == cudaErrorNotReady)
        error = cudaStreamQuery(stream);
    ck_assert_uint_eq(error, cudaSuccess);
}

// Two streams, the second of which waits for the first piece of the first: of a, b, c and d, c runs after a, and d after c.
TEST(random_streams_keep_to_events_and_to_nothing_else)
{
    int first = 0, between = 0, last = 0; // where b was
    setenv("CUDA_FAKE_STREAMS", "random:5", 1);
    for (int round = 0; round < 60; round++) {
        struct CUstream_st *one, *other;
        struct CUevent_st *event;
        char marks[8] = "";
        ck_assert_uint_eq(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking), cudaSuccess);
        ck_assert_uint_eq(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
        ck_assert_uint_eq(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
        post_mark(one, marks, 'a');
        ck_assert_uint_eq(cudaEventRecord(event, one), cudaSuccess);
        post_mark(one, marks, 'b');
        ck_assert_uint_eq(cudaStreamWaitEvent(other, event, 0), cudaSuccess);
        post_mark(other, marks, 'c');
        post_mark(other, marks, 'd');
        wait_for(other);
        wait_for(one);
        first += strcmp(marks, "abcd") == 0;
        between += strcmp(marks, "acbd") == 0;
        last += strcmp(marks, "acdb") == 0;
        cudaEventDestroy(event);
        cudaStreamDestroy(one);
        cudaStreamDestroy(other);
    }
    ck_assert_int_eq(first + between + last, 60);
    ck_assert(first && between && last);
}

// A recording of a and b beside each other.
TEST(random_replays_change_their_order)
{
    struct CUstream_st *one, *other;
    struct CUevent_st *fork, *join;
    struct CUgraph_st *graph;
    struct CUgraphExec_st *exec;
    char marks[8] = "";
    int forward = 0, backward = 0;
    setenv("CUDA_FAKE_STREAMS", "random:5", 1);
    ck_assert_uint_eq(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking), cudaSuccess);
    ck_assert_uint_eq(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
    ck_assert_uint_eq(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming), cudaSuccess);
    ck_assert_uint_eq(cudaEventCreateWithFlags(&join, cudaEventDisableTiming), cudaSuccess);
    ck_assert_uint_eq(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    ck_assert_uint_eq(cudaEventRecord(fork, one), cudaSuccess);
    ck_assert_uint_eq(cudaStreamWaitEvent(other, fork, 0), cudaSuccess);
    post_mark(one, marks, 'a');
    post_mark(other, marks, 'b');
    ck_assert_uint_eq(cudaEventRecord(join, other), cudaSuccess);
    ck_assert_uint_eq(cudaStreamWaitEvent(one, join, 0), cudaSuccess);
    ck_assert_uint_eq(cudaStreamEndCapture(one, &graph), cudaSuccess);
    ck_assert_uint_eq(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    for (int round = 0; round < 30; round++) {
        memset(marks, 0, sizeof(marks));
        ck_assert_uint_eq(cudaGraphLaunch(exec, one), cudaSuccess);
        wait_for(one);
        forward += strcmp(marks, "ab") == 0;
        backward += strcmp(marks, "ba") == 0;
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaEventDestroy(fork);
    cudaEventDestroy(join);
    cudaStreamDestroy(one);
    cudaStreamDestroy(other);
    ck_assert_int_eq(forward + backward, 30);
    ck_assert(forward && backward);
}

TEST(a_device_is_closed_while_it_records)
{
    struct ls_device *device = opened(0);
    void *memory = (void *)ops->memory->allocate(device, 64);
    ck_assert_int_eq(ops->capture->begin(device), LS_OK);
    ck_assert_int_eq(run_kernel(device, memory, memory, NULL), LS_OK);
    ls_device_close(device);
    struct double_counts counts;
    double_count(&counts);
    ck_assert_uint_eq(counts.graphs + counts.streams + counts.blocks + counts.pinned, 0);
}

// ---- Memory ----

static uint64_t reserved, used;

static void ask_use(const struct ls_device *device)
{
    const struct cuda_engine *(*get)(void);
    void *handle = dlopen(CUDA_ENGINE_FILE, RTLD_NOW | RTLD_LOCAL);
    ck_assert_ptr_nonnull(handle);
    *(void **)&get = dlsym(handle, CUDA_ENGINE_ENTRY);
    get()->memory_use(device, &reserved, &used);
    dlclose(handle);
}

// Frees in another order than it allocated, again and again: no byte more is taken, and at the end all is one piece.
TEST(a_run_holds_as_much_of_a_gpu_after_a_hundred_rounds_as_after_one)
{
    enum { COUNT = 20 };
    struct ls_device *device = opened(0);
    uint64_t first = 0;
    for (unsigned round = 0; round < 100; round++) {
        void *memory[COUNT];
        for (unsigned i = 0; i < COUNT; i++)
            memory[i] = (void *)ops->memory->allocate(device, 1000 + (i + round) % COUNT * 30000);
        ask_use(device);
        ck_assert_uint_ge(used, COUNT * 1000);
        first = round ? first : reserved;
        ck_assert_uint_le(reserved, first);
        for (unsigned i = 0; i < COUNT; i++)
            ops->memory->release(device, memory[(i * 7 + round) % COUNT]);
        ask_use(device);
        ck_assert_uint_eq(used, 0);
    }
    void *all =
        (void *)ops->memory->allocate(device, reserved / 2); // the larger of two chunks, whole
    ask_use(device);
    ck_assert_uint_le(reserved, first);
    ops->memory->release(device, all);
    ls_device_close(device);
}

TEST(what_is_larger_than_a_chunk_gets_one_of_its_own)
{
    struct ls_device *device = opened(0);
    void *small = (void *)ops->memory->allocate(device, 100),
         *large = (void *)ops->memory->allocate(device, 50000001);
    ask_use(device);
    ck_assert_uint_eq(used, 256 + 50000128);
    ck_assert_uint_eq(reserved, (2 << 20) + 50000128);
    ops->memory->release(device, small);
    ops->memory->release(device, large);
    ls_device_close(device);
}

// Where the GPU is full, what lies empty is given back to it.
TEST(empty_chunks_are_used_before_memory_is_said_to_be_out)
{
    setenv("CUDA_FAKE_MEMORY", "20000000", 1);
    struct ls_device *device = opened(0);
    void *memory = (void *)ops->memory->allocate(device, 9000000);
    ops->memory->release(device, memory);
    memory = (void *)ops->memory->allocate(device, 15000000);
    ck_assert_ptr_nonnull(memory);
    ask_use(device);
    ck_assert_uint_eq(reserved, 15000064);
    ck_assert_ptr_null((void *)ops->memory->allocate(device, 9000000));
    ops->memory->release(device, memory);
    ls_device_close(device);
}

TEST(closing_gives_everything_back)
{
    struct ls_device *device = opened(0);
    struct ls_event *event = event_of(device);
    struct ls_recording *recording = NULL;
    void *memory = (void *)ops->memory->allocate(device, 64),
         *pinned = ops->staging->allocate(device, 1000);
    stream_of(device); // closed with the device
    ck_assert_int_eq(ops->capture->begin(device), LS_OK);
    ck_assert_int_eq(run_kernel(device, memory, memory, NULL), LS_OK);
    ck_assert_int_eq(ops->capture->end(device, &recording), LS_OK);
    ck_assert_int_eq(ops->capture->replay(device, recording), LS_OK);
    ops->capture->release(device, recording);
    ops->streams->event_close(device, event);
    ops->staging->release(device, pinned);
    ops->memory->release(device, memory);
    ls_device_close(device);
    struct double_counts counts;
    double_count(&counts);
    ck_assert_uint_eq(counts.blocks + counts.pinned + counts.streams + counts.events, 0);
    ck_assert_uint_eq(counts.handles + counts.graphs, 0);
}

TEST_FIXTURE(reset, NULL);

int main(void)
{
    tcase_add_test_raise_signal(test_registered(),
                                memory_of_a_gpu_that_was_not_opened_to_is_never_touched, SIGABRT);
    return run_on_fake("streams of device cuda on the fake");
}
