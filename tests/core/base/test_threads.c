// SPDX-License-Identifier: Apache-2.0
// Threads take no signals, cores are those of the affinity mask, words wake their waiters.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // sched_setaffinity, pthread_getname_np
#endif
#include "core/base/threads.h"

#include "core/base/cpu_quota.h"
#include "core/base/clock.h"
#include "core/plugin/waiting.h"
#include "tests/support/suite.h"

#include <check.h>
#include <float.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void *read_mask(void *argument)
{
    pthread_sigmask(SIG_BLOCK, NULL, argument);
    return argument;
}

TEST(a_thread_starts_with_all_signals_blocked)
{
    sigset_t before, after, inside;
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    sigemptyset(&inside);
    pthread_t thread;
    ck_assert_int_eq(ls_thread_start(&thread, "a-name-that-is-too-long", read_mask, &inside),
                     LS_OK);
    void *result = NULL;
    ck_assert_int_eq(pthread_join(thread, &result), 0);
    ck_assert_ptr_eq(result, &inside);
    ck_assert(sigismember(&inside, SIGINT) && sigismember(&inside, SIGTERM) &&
              sigismember(&inside, SIGCHLD));
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    ck_assert_int_eq(sigismember(&after, SIGINT), sigismember(&before, SIGINT));
}

// A denormal result of normal operands, and a normal result of a denormal operand.
struct denormals {
    float result, operand;
};

static struct denormals compute_denormals(void)
{
    volatile float smallest = FLT_MIN, half = 0.5f, denormal = FLT_TRUE_MIN, large = 0x1p100f;
    return (struct denormals){smallest * half, denormal * large};
}

static void *compute_in_thread(void *out)
{
    *(struct denormals *)out = compute_denormals();
    return NULL;
}

// In this thread, and in one that it starts.
static void *compute_twice(void *out)
{
    struct denormals *found = out;
    found[0] = compute_denormals();
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, compute_in_thread, &found[1]), 0);
    pthread_join(thread, NULL);
    return NULL;
}

TEST(denormals_are_zero_in_our_threads_and_in_no_others)
{
    struct denormals found[2] = {{1, 1}, {1, 1}};
    pthread_t thread;
    ck_assert_int_eq(ls_thread_start(&thread, "denormals", compute_twice, found), LS_OK);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
#if defined(__x86_64__) || defined(__aarch64__)
    for (int i = 0; i < 2; i++)
        ck_assert(found[i].result == 0.0f && found[i].operand == 0.0f);
#endif
    const struct denormals here = compute_denormals();
    ck_assert(here.result > 0.0f && here.operand > 0.0f);
}

TEST(cores_are_those_of_the_affinity_mask)
{
    cpu_set_t before, one;
    ck_assert_int_eq(sched_getaffinity(0, sizeof(before), &before), 0);
    const uint32_t quota = ls_cpu_quota(""), count = (uint32_t)CPU_COUNT(&before);
    ck_assert_uint_eq(ls_core_count(), quota && quota < count ? quota : count);
    int core = 0;
    while (!CPU_ISSET(core, &before))
        core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
    ck_assert_uint_eq(ls_core_count(), 1);
}

// A file of a machine below the current folder.
static void write_file(const char *path, const char *text)
{
    char folder[256];
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
        (void)!mkdir(folder, 0777);
    }
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

#define MOUNT_2 "41 31 0:38 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
#define MOUNT_1(root)                                                   \
    "30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" \
    "31 25 0:27 " root " /sys/fs/cgroup/cpu,cpu\\040acct rw - cgroup cgroup rw,cpu,cpuacct\n"
#define CPU_1 "m/sys/fs/cgroup/cpu,cpu acct/"

TEST(quotas_of_control_groups_are_processors)
{
    static const struct {
        const char *groups, *mounts, *files[6]; // path and text of each
        uint32_t expected;
    } rows[] = {
        {"0::/\n", MOUNT_2, {NULL}, 0},
        {"0::/\n", MOUNT_2, {"m/sys/fs/cgroup/cpu.max", "max 100000\n"}, 0},
        {"0::/\n", MOUNT_2, {"m/sys/fs/cgroup/cpu.max", "150000 100000\n"}, 2},
        {"0::/\n", MOUNT_2, {"m/sys/fs/cgroup/cpu.max", "20000 100000\n"}, 1},
        {"0::/pod/box\n", // the one above has less
         MOUNT_2,
         {"m/sys/fs/cgroup/pod/cpu.max", "200000 100000\n", "m/sys/fs/cgroup/pod/box/cpu.max",
          "400000 100000\n"},
         2},
        {"0::/pod/box\n",
         MOUNT_2,
         {"m/sys/fs/cgroup/pod/cpu.max", "max 100000\n", "m/sys/fs/cgroup/pod/box/cpu.max",
          "300000 100000\n"},
         3},
        {"0::/../other\n", MOUNT_2, {"m/sys/fs/cgroup/cpu.max", "250000 50000\n"}, 5},
        {"4:memory:/a\n3:cpu,cpuacct:/docker/ab\n0::/\n", // the mount begins at the group, as in docker
         MOUNT_1("/docker/ab") MOUNT_2,
         {CPU_1 "cpu.cfs_quota_us", "100000\n", CPU_1 "cpu.cfs_period_us", "100000\n"},
         1},
        {"3:cpuacct,cpu:/box\n",
         MOUNT_1("/"),
         {CPU_1 "box/cpu.cfs_quota_us", "-1\n", CPU_1 "box/cpu.cfs_period_us", "100000\n"},
         0},
        {"3:cpuacct,cpu:/box\n",
         MOUNT_1("/"),
         {CPU_1 "box/cpu.cfs_quota_us", "350000\n", CPU_1 "box/cpu.cfs_period_us", "100000\n"},
         4},
        {"not of this form\n", "nor this\n", {NULL}, 0},
    };
    char folder[] = "quota-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
    ck_assert_uint_eq(ls_cpu_quota("nowhere"), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        write_file("m/proc/self/cgroup", rows[i].groups);
        write_file("m/proc/self/mountinfo", rows[i].mounts);
        for (size_t k = 0; rows[i].files[k]; k += 2)
            write_file(rows[i].files[k], rows[i].files[k + 1]);
        ck_assert_msg(ls_cpu_quota("m") == rows[i].expected, "row %zu: %u, expected %u", i,
                      ls_cpu_quota("m"), rows[i].expected);
        ck_assert_int_eq(system("rm -r m"), 0);
    }
    ck_assert_int_eq(chdir(".."), 0);
    ck_assert_int_eq(rmdir(folder), 0);
}

#define SECOND UINT64_C(1000000000)

static void set_later(uint32_t *word)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    nanosleep(&pause, NULL);
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
}

static void *set_and_wake(void *word)
{
    set_later(word);
    ls_wake_word(word);
    return NULL;
}

// Without the wake-up a waiter would sleep for the whole timeout, and the test would be killed.
static bool is_set(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE) != 0;
}

TEST(a_waiter_is_woken_by_another_thread)
{
    uint32_t word = 0;
    pthread_t thread;
    ck_assert_int_eq(ls_thread_start(&thread, "waker", set_and_wake, &word), LS_OK);
    while (!is_set(&word))
        ls_wait_word(&word, 0, 3600 * SECOND);
    ck_assert_uint_eq(word, 1);
    pthread_join(thread, NULL);
}

TEST(a_waiter_is_woken_by_another_process)
{
    uint32_t *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(word, MAP_FAILED);
    const pid_t child = fork();
    if (!child) {
        set_later(word);
        ls_wake_shared_word(word);
        _exit(0);
    }
    while (!is_set(word))
        ls_wait_shared_word(word, 0, 3600 * SECOND);
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}

TEST(a_wait_ends_when_the_word_differs_or_the_time_is_over)
{
    uint32_t word = 5;
    ls_wait_word(&word, 4, 3600 * SECOND); // differs already
    ls_wait_word(&word, 5, 0);
    const uint64_t before = ls_clock_ns();
    do
        ls_wait_word(&word, 5, 10 * 1000 * 1000);
    while (ls_clock_ns() - before < 10 * 1000 * 1000);
    ck_assert_uint_eq(word, 5);
    word = 6;
    ls_wait_word(&word, 5, UINT64_MAX);
}

TEST(peak_memory_counts_what_was_touched)
{
    const uint64_t before = ls_peak_rss_bytes(), bytes = 64 << 20;
    ck_assert_uint_gt(before, 0);
    char *memory = malloc(bytes);
    ck_assert_ptr_nonnull(memory);
    memset(memory, 1, bytes);
    const char last = ((volatile char *)memory)[bytes - 1];
    free(memory);
    ck_assert_int_eq(last, 1);
    ck_assert_uint_ge(ls_peak_rss_bytes(), before + bytes / 2);
}

struct pinned {
    uint32_t rank;
    int core; // -1: more than one
};

static void *pin_rank(void *argument)
{
    static const uint32_t hosts[] = {0, 1, 0, 1};
    struct pinned *pinned = argument;
    ls_thread_pin_rank(hosts, 4, pinned->rank);
    pinned->core = ls_core_count() == 1 ? sched_getcpu() : -1;
    return NULL;
}

// Ranks 0 and 2 share a host, as do 1 and 3: wherever their processes are, they take two cores.
TEST(ranks_of_a_host_take_a_core_each)
{
    struct pinned ranks[4];
    const bool pins = ls_core_count() >= 2;
    for (uint32_t i = 0; i < 4; i++) {
        pthread_t thread;
        ranks[i].rank = i;
        ck_assert_int_eq(pthread_create(&thread, NULL, pin_rank, &ranks[i]), 0);
        pthread_join(thread, NULL);
        ck_assert_int_ge(ranks[i].core, 0);
    }
    ck_assert(!pins || ranks[0].core != ranks[2].core);
    ck_assert(!pins || ranks[1].core != ranks[3].core);
    ck_assert(!pins || ranks[0].core == ranks[1].core);
}

static void *pin_too_many(void *argument)
{
    const uint32_t before = ls_core_count();
    (void)argument;
    ls_thread_pin_rank(NULL, before + 1, 0);
    return ls_core_count() == before ? argument : NULL;
}

TEST(ranks_that_outnumber_the_cores_are_not_pinned)
{
    int mark = 0;
    pthread_t thread;
    void *same;
    ck_assert_int_eq(pthread_create(&thread, NULL, pin_too_many, &mark), 0);
    pthread_join(thread, &same);
    ck_assert_ptr_nonnull(same);
}
