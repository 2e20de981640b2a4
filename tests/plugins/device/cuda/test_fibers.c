// SPDX-License-Identifier: Apache-2.0
// What the fake of CUDA does with kernels: threads, barriers, shuffles, shared memory, and that their misuse ends the process.
// NOT A GPU.
#include "tests/plugins/device/cuda/fiber_kernels.h"
#include "tests/support/cuda-fake/fibers.h"
#include "tests/support/suite.h"

#include <check.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const orders[] = {"forward", "backward", "random:1", "random:2"};
enum { ORDERS = sizeof(orders) / sizeof(orders[0]) };

enum { MOST = 8192 }; // numbers that a kernel writes

struct launch {
    enum fiber_kernel kernel;
    unsigned blocks[3], threads[3];
    size_t dynamic;
};

static unsigned start(const struct launch *launch, int32_t *memory, struct CUstream_st *stream)
{
    return fiber_launch(launch->kernel, launch->blocks, launch->threads, launch->dynamic, memory,
                        stream);
}

// Runs it over numbers that are `fill`; what they are then.
static void run(const struct launch *launch, int32_t fill, int32_t *out)
{
    struct CUstream_st *stream;
    void *memory;
    ck_assert_uint_eq(cudaMalloc(&memory, MOST * sizeof(*out)), 0);
    ck_assert_uint_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), 0);
    int32_t *numbers = double_reach(memory);
    for (int i = 0; i < MOST; i++)
        numbers[i] = fill;
    ck_assert_uint_eq(start(launch, memory, stream), 0);
    while (cudaStreamQuery(stream) == cudaErrorNotReady)
        sched_yield();
    memcpy(out, numbers, MOST * sizeof(*out));
    cudaStreamDestroy(stream);
    cudaFree(memory);
}

static void use_order(const char *order)
{
    setenv("CUDA_FAKE_THREADS", order, 1);
}

LOOP_TEST(each_thread_of_each_block_runs_once, 0, ORDERS)
{
    static const struct launch shapes[] = {{FIBER_VISIT, {1, 1, 1}, {1, 1, 1}, 0},
                                           {FIBER_VISIT, {7, 1, 1}, {1000, 1, 1}, 0},
                                           {FIBER_VISIT, {2, 3, 5}, {4, 5, 6}, 0}};
    static const int counts[] = {1, 7000, 3600};
    int32_t out[MOST];
    use_order(orders[_i]);
    for (int s = 0; s < 3; s++) {
        run(&shapes[s], 0, out);
        for (int i = 0; i < MOST; i++)
            if (out[i] != (i < counts[s]))
                ck_abort_msg("shape %d: thread %d ran %d times", s, i, out[i]);
    }
}

static int32_t sum_of(int32_t block, int32_t threads)
{
    return threads * (threads - 1) / 2 + 1000 * block * threads;
}

LOOP_TEST(threads_hand_numbers_over_at_barriers, 0, ORDERS)
{
    static const struct launch sums[] = {{FIBER_SUM, {5, 1, 1}, {1024, 1, 1}, 0},
                                         {FIBER_SUM, {5, 1, 1}, {10, 3, 11}, 0},
                                         {FIBER_SUM_DYNAMIC, {5, 1, 1}, {77, 1, 1}, 308}};
    static const int32_t threads[] = {1024, 330, 77};
    int32_t out[MOST];
    use_order(orders[_i]);
    for (int s = 0; s < 3; s++) {
        run(&sums[s], 0, out);
        for (int32_t block = 0; block < 5; block++)
            ck_assert_int_eq(out[block], sum_of(block, threads[s]));
    }
}

TEST(a_missing_barrier_gives_other_numbers_in_some_order)
{
    const struct launch sum = {FIBER_SUM_WITHOUT_BARRIER, {1, 1, 1}, {256, 1, 1}, 0};
    int32_t out[MOST];
    int wrong = 0;
    for (int i = 0; i < ORDERS; i++) {
        use_order(orders[i]);
        run(&sum, 0, out);
        wrong += out[0] != sum_of(0, 256);
    }
    ck_assert_int_ge(wrong, ORDERS - 1);
}

// How many threads of four warps got other numbers than those of the three turns.
static int count_mistaken(enum fiber_kernel kernel)
{
    const struct launch exchanges = {kernel, {1, 1, 1}, {128, 1, 1}, 0};
    int32_t out[MOST];
    int wrong = 0;
    run(&exchanges, 0, out);
    for (int i = 0; i < 128; i++)
        wrong += out[i] != (1 + 2 + 3) * (0 + 32 + 64 + 96);
    return wrong;
}

LOOP_TEST(a_warp_overtakes_others_where_a_barrier_is_missing, 0, ORDERS)
{
    use_order(orders[_i]);
    ck_assert_int_eq(count_mistaken(FIBER_EXCHANGES), 0);
    ck_assert_int_gt(count_mistaken(FIBER_EXCHANGES_WITHOUT_BARRIER), 0);
}

// The last warp has 13 lanes: from one that is not there comes -1, all bits of it.
static int32_t lane_or_nothing(int lane, int by, int group, int lanes, int first)
{
    const int from = lane + by;
    const int end = lane / group * group + group;
    if (from < lane / group * group || from >= end)
        return first + lane;
    return from < lanes ? first + from : -1;
}

LOOP_TEST(lanes_show_each_other_what_they_have, 0, ORDERS)
{
    enum { THREADS = 77 };
    int32_t out[MOST];
    use_order(orders[_i]);
    for (int group = 8; group <= 32; group += 24) {
        const struct launch shuffle = {
            group == 8 ? FIBER_SHUFFLE_EIGHTS : FIBER_SHUFFLE, {1, 1, 1}, {THREADS, 1, 1}, 0};
        run(&shuffle, 0, out);
        for (int i = 0; i < THREADS; i++) {
            const int first = i / 32 * 32, lane = i % 32;
            const int lanes = THREADS - first < 32 ? THREADS - first : 32;
            const int32_t wanted[] = {
                lane / group * group + 3 < lanes ? first + lane / group * group + 3 : -1,
                lane_or_nothing(lane, -2, group, lanes, first),
                lane_or_nothing(lane, 5, group, lanes, first),
                (lane ^ 1) < lanes ? first + (lane ^ 1) : -1};
            for (int k = 0; k < 4; k++)
                if (out[4 * i + k] != wanted[k])
                    ck_abort_msg("group %d, thread %d, shuffle %d: %d, not %d", group, i, k,
                                 out[4 * i + k], wanted[k]);
        }
    }
}

LOOP_TEST(lanes_vote, 0, ORDERS)
{
    const struct launch votes = {FIBER_VOTES, {1, 1, 1}, {96, 1, 1}, 0};
    int32_t out[MOST];
    use_order(orders[_i]);
    run(&votes, 0, out);
    for (int i = 0; i < 96; i++) {
        ck_assert_int_eq(out[3 * i], i % 2);
        ck_assert_int_eq(out[3 * i + 1], i < 64);
        ck_assert_uint_eq((uint32_t)out[3 * i + 2], 0xaaaaaaaa);
    }
}

LOOP_TEST(atomics_lose_nothing, 0, ORDERS)
{
    const struct launch atomics = {FIBER_ATOMICS, {9, 1, 1}, {100, 1, 1}, 0};
    int32_t out[MOST];
    float sum;
    use_order(orders[_i]);
    run(&atomics, 0, out);
    memcpy(&sum, &out[3], sizeof(sum));
    ck_assert_int_eq(out[0], 900 * 899 / 2);
    ck_assert_int_eq(out[1], 0);
    ck_assert_int_eq(out[2], 899);
    ck_assert(sum == 450);
    ck_assert(_i > 1 || out[4] == (_i == 0 ? 899 : 0)); // who came last
}

LOOP_TEST(shared_memory_holds_nothing_of_the_block_before, 0, ORDERS)
{
    const struct launch unwritten = {FIBER_UNWRITTEN, {20, 1, 1}, {64, 1, 1}, 0};
    int32_t out[MOST];
    use_order(orders[_i]);
    run(&unwritten, 0, out);
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(out[i], -1);
}

// ---- Misuse ----

TEST(grids_that_a_gpu_does_not_take_are_refused)
{
    enum { VALUE = 1, CONFIGURATION = 9 };
    static const struct {
        struct launch launch;
        unsigned error;
    } cases[] = {{{FIBER_VISIT, {0, 1, 1}, {1, 1, 1}, 0}, CONFIGURATION},
                 {{FIBER_VISIT, {1, 1, 1}, {0, 1, 1}, 0}, CONFIGURATION},
                 {{FIBER_VISIT, {1, 1, 1}, {1025, 1, 1}, 0}, CONFIGURATION},
                 {{FIBER_VISIT, {1, 1, 1}, {32, 33, 1}, 0}, CONFIGURATION},
                 {{FIBER_VISIT, {1, 65536, 1}, {1, 1, 1}, 0}, CONFIGURATION},
                 {{FIBER_VISIT, {1, 1, 1}, {1, 1, 1}, (48 << 10) + 1}, VALUE}};
    struct CUstream_st *stream;
    ck_assert_uint_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        ck_assert_uint_eq(start(&cases[i].launch, NULL, stream), cases[i].error);
    cudaStreamDestroy(stream);
}

// Runs it in a process of its own, which must not come to its end, and must say `text`.
static void assert_ends(const struct launch *launch, const char *text)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        int32_t out[MOST];
        dup2(ends[1], STDERR_FILENO);
        run(launch, 0, out);
        _exit(0);
    }
    char said[4096];
    size_t bytes = 0;
    ssize_t more;
    close(ends[1]);
    while ((more = read(ends[0], said + bytes, sizeof(said) - 1 - bytes)) > 0)
        bytes += (size_t)more;
    said[bytes] = 0;
    close(ends[0]);
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(!WIFEXITED(status) || WEXITSTATUS(status) != 0, "kernel %d came to its end",
                  (int)launch->kernel);
    ck_assert_msg(strstr(said, text), "\"%s\" does not say \"%s\"", said, text);
}

LOOP_TEST(misuse_ends_the_process_with_its_place, 0, ORDERS)
{
    static const struct {
        enum fiber_kernel kernel;
        const char *text;
    } cases[] = {
        {FIBER_BARRIER_AFTER_END, "waits at a barrier, and other threads of the block have ended"},
        {FIBER_TWO_BARRIERS, "waits at another barrier than the first thread of the block"},
        {FIBER_LANE_MISSING, "waits for lanes of its warp that do not come"},
        {FIBER_MASK_WITHOUT_ITSELF, "the mask does not name the lane itself"},
        {FIBER_UNALIGNED, ""}, // by a signal, or UndefinedBehaviorSanitizer's report
        {FIBER_INDEX_BEYOND, ""},
    };
    use_order(orders[_i]);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct launch launch = {cases[i].kernel, {2, 1, 1}, {64, 1, 1}, 0};
        assert_ends(&launch, cases[i].text);
        if (cases[i].text[0])
            assert_ends(&launch, "fiber_kernels.cc:");
    }
}

TEST(an_order_that_is_none_ends_the_process)
{
    const struct launch visit = {FIBER_VISIT, {1, 1, 1}, {1, 1, 1}, 0};
    use_order("sideways");
    assert_ends(&visit, "CUDA_FAKE_THREADS");
}

int main(void)
{
    printf("on the fake of CUDA: NOT A GPU\n");
    return test_suite_run("kernels on the fake of CUDA");
}
