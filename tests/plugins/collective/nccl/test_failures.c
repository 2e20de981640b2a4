// SPDX-License-Identifier: Apache-2.0
// Collective `nccl` on the fakes (NEITHER NCCL NOR A GPU): what it refuses, and that all ranks end when one cannot go on,
// with one line that says why.
#include "plugins/collective/nccl/internal.h"
#include "tests/plugins/collective/nccl/job.h"
#include "tests/support/suite.h"

#include <check.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHORT_NS UINT64_C(200000000)

static void assert_says(const struct job *job, const char *text)
{
    ck_assert_msg(strstr(job->said, text), "\"%s\" does not say \"%s\"", job->said, text);
    ck_assert_int_eq(job->failures, 1);
}

// It does not open, says why once, and leaves nothing behind.
static void assert_refused(struct job *job, int32_t status, const char *text)
{
    ck_assert_int_eq(job_open(job), status);
    assert_says(job, text);
    job_finish(job);
}

static void refuse(uint32_t world, int32_t status, const char *text)
{
    struct job job;
    job_init(&job, world, NULL);
    job.deadline_ns = SHORT_NS;
    assert_refused(&job, status, text);
}

// ---- Opening ----

TEST(two_ranks_on_one_gpu_are_refused_by_name)
{
    static const uint32_t gpus[] = {2, 1, 2};
    struct job job;
    job_init(&job, 3, gpus);
    assert_refused(&job, LS_UNAVAILABLE,
                   "rank 0 and rank 2 are both on GPU 2; use hierarchical-copy, or one replica a "
                   "GPU");
}

TEST(an_old_nccl_is_refused_by_name)
{
    setenv("NCCL_FAKE_VERSION", "21701", 1);
    refuse(2, LS_UNAVAILABLE, "this is NCCL 2.17.1; 2.18 or newer is needed");
}

TEST(a_rank_that_never_joins_ends_the_opening_at_the_deadline)
{
    setenv("NCCL_FAKE_MISSING", "1", 1);
    refuse(3, LS_PEER_LOST,
           "of 3 ranks, those of this process that are not connected after 0.2 s are: 0, 1, 2");
}

TEST(an_error_of_nccl_in_the_opening_is_passed_on)
{
    setenv("NCCL_FAKE_ID_ERROR", "1", 1);
    refuse(2, LS_FAILED, "rank 0 cannot begin: NCCL answers");
}

// What another process says of its rank, the last one.
static struct nccl_peer other;

static void be_the_other(void *all, uint64_t bytes)
{
    if (bytes == sizeof(other))
        ((struct nccl_peer *)all)[1] = other;
}

static void refuse_other(int32_t status, const char *text)
{
    struct job job;
    job_init(&job, 2, NULL);
    job.deadline_ns = SHORT_NS;
    job.absent = 1;
    job.others = be_the_other;
    assert_refused(&job, status, text);
}

TEST(processes_that_do_not_fit_together_are_refused)
{
    other = (struct nccl_peer){.version = 22703, .gpu = "0000:10:00.0", .host = "another"};
    refuse_other(LS_UNAVAILABLE, "rank 0 has NCCL 2.28.9 and rank 1 has 2.27.3");
    other = (struct nccl_peer){.version = 22809, .host = "another", .algorithm = "Tree"};
    refuse_other(LS_USAGE, "NCCL_ALGO is '' on rank 0 and 'Tree' on rank 1");
    other = (struct nccl_peer){.version = 22809, .host = "another", .protocol = "LL"};
    refuse_other(LS_USAGE, "NCCL_PROTO is '' on rank 0 and 'LL' on rank 1");
    other = (struct nccl_peer){.status = LS_UNAVAILABLE};
    refuse_other(LS_UNAVAILABLE, "rank 1 cannot take part; it says why");
    // One that fits, but never comes.
    other = (struct nccl_peer){.version = 22809, .gpu = "0000:10:00.0", .host = "another"};
    refuse_other(LS_PEER_LOST, "of 2 ranks, those of this process that are not connected after 0.2 "
                               "s are: 0;");
}

TEST(a_gpu_that_two_processes_share_is_refused)
{
    struct ls_native_stream native = {.struct_size = sizeof(native), .index = 5};
    snprintf(native.identity, sizeof(native.identity), "0000:10:00.0"); // GPU 0 of the fake
    nccl_peer_fill(&other, LS_OK, 22809, &native);
    refuse_other(LS_UNAVAILABLE, "rank 0 and rank 1 are both on GPU 0");
}

// ---- Options ----

TEST(algorithm_and_protocol_are_where_nccl_reads_them)
{
    struct job job;
    job_init(&job, 2, NULL);
    job.algorithm = "tree";
    job.protocol = "simple";
    ck_assert_int_eq(job_open(&job), LS_OK);
    ck_assert_str_eq(getenv("NCCL_ALGO"), "Ring;allreduce:Tree");
    ck_assert_str_eq(getenv("NCCL_PROTO"), "Simple");
    job_finish(&job);
    // The next run of the process that pins nothing finds nothing.
    job_init(&job, 2, NULL);
    ck_assert_int_eq(job_open(&job), LS_OK);
    ck_assert_ptr_null(getenv("NCCL_ALGO"));
    ck_assert_ptr_null(getenv("NCCL_PROTO"));
    job_finish(&job);
}

TEST(what_the_user_has_set_is_not_overridden)
{
    struct job job;
    setenv("NCCL_ALGO", "Tree", 1);
    job_init(&job, 2, NULL);
    ck_assert_int_eq(job_open(&job), LS_OK);
    ck_assert_str_eq(getenv("NCCL_ALGO"), "Tree");
    job_finish(&job);
    job_init(&job, 2, NULL);
    job.algorithm = "ring";
    assert_refused(&job, LS_USAGE,
                   "algorithm=ring needs NCCL_ALGO='Ring', but the environment has 'Tree'");
    ck_assert_str_eq(getenv("NCCL_ALGO"), "Tree");
}

TEST(an_algorithm_for_one_operation_needs_an_nccl_that_knows_it)
{
    struct job job;
    setenv("NCCL_FAKE_VERSION", "22005", 1);
    job_init(&job, 2, NULL);
    job.algorithm = "tree";
    assert_refused(&job, LS_UNAVAILABLE, "algorithm=tree needs NCCL 2.24 or newer, this is 2.20.5");
}

// What a version does not know, or NCCL would pass over. The plugin asks for the version once in a process.
static const struct {
    const char *version, *options, *algorithm, *says;
    int32_t status;
} refused_settings[] = {
    {"22609", "policy=efficiency", NULL,
     "policy=efficiency needs NCCL 2.27 or newer, this is 2.26.9", LS_UNAVAILABLE},
    {"22609", "symmetric=on", NULL, "symmetric=on needs NCCL 2.27 or newer, this is 2.26.9",
     LS_UNAVAILABLE},
    {"22809", "ctas=65", NULL, "ctas=65: it is 1 to 64, or 0 for NCCL's choice", LS_USAGE},
    {"22809", "policy=efficiency", "ring",
     "policy=efficiency: NCCL passes over it where algorithm or protocol is pinned", LS_USAGE},
};

TABLE_TEST(settings_of_a_communicator_are_refused_by_name, refused_settings)
{
    struct job job;
    setenv("NCCL_FAKE_VERSION", refused_settings[_i].version, 1);
    job_init(&job, 2, NULL);
    job.algorithm = refused_settings[_i].algorithm;
    ck_assert(test_host_set(&job.host, refused_settings[_i].options));
    assert_refused(&job, refused_settings[_i].status, refused_settings[_i].says);
}

static const struct {
    const char *version, *options;
    int ctas, policy;
} settings[] = {{"22809", "ctas=8,policy=efficiency", 8, NCCL_CTA_POLICY_EFFICIENCY},
                {"22703", "policy=efficiency", 0, NCCL_CTA_POLICY_EFFICIENCY},
                {"22005", "ctas=4", 4, 0},
                {"22809", "ctas=0", 0, 0}};

TABLE_TEST(settings_of_a_communicator_reach_nccl, settings)
{
    struct nccl_fake_counts counts;
    struct job job;
    setenv("NCCL_FAKE_VERSION", settings[_i].version, 1);
    job_init(&job, 2, NULL);
    ck_assert(test_host_set(&job.host, settings[_i].options));
    ck_assert_msg(job_open(&job) == LS_OK, "%s", job.said);
    nccl_fake_count(&counts);
    ck_assert_int_eq(counts.ctas, settings[_i].ctas);
    ck_assert_int_eq(counts.policy, settings[_i].policy);
    job_finish(&job);
}

// ---- Symmetric memory ----

static int32_t allocating_body(struct rank *rank)
{
    void *memory = rank_allocate(rank, 1000);
    const int32_t status = rank->status;
    if (!status && !memory)
        rank_blame(rank, "there is none");
    if (!status)
        rank_release(rank, memory);
    return status;
}

static const struct {
    const char *version, *none, *options, *noted;
    bool allocates;
} unregistered[] = {
    {"22609", "0", "symmetric=auto",
     "gradients are not in symmetric memory: that needs NCCL 2.27 or newer, this is 2.26.9", false},
    {"22809", "1", "symmetric=auto",
     "gradients are not in symmetric memory: NCCL makes no window (NCCL_DEBUG=INFO says why)",
     true},
    {"22809", "0", "symmetric=off", "", false},
    {"22809", "0", "symmetric=auto", "", true},
};

TABLE_TEST(where_memory_is_not_registered_one_line_says_why, unregistered)
{
    struct job job;
    void *memory = NULL;
    setenv("NCCL_FAKE_VERSION", unregistered[_i].version, 1);
    setenv("NCCL_FAKE_NO_WINDOWS", unregistered[_i].none, 1);
    job_init(&job, 2, NULL);
    ck_assert(test_host_set(&job.host, unregistered[_i].options));
    ck_assert_int_eq(job_open(&job), LS_OK);
    job.symmetric = unregistered[_i].allocates;
    if (job.symmetric)
        job_run(&job, allocating_body);
    else
        ck_assert_int_eq(job_nccl->allocate(job.ranks[0].collective, 1, &memory), LS_OK);
    ck_assert_ptr_null(memory);
    ck_assert_str_eq(job.noted, unregistered[_i].noted);
    ck_assert_int_eq(job.failures, 0);
    job_finish(&job);
}

TEST(memory_that_cannot_be_registered_ends_all_ranks_with_one_line)
{
    static const struct {
        const char *name, *value, *options, *says;
        int32_t status;
    } rows[] = {
        {"NCCL_FAKE_NO_WINDOWS", "1", "symmetric=on", "symmetric=on: NCCL makes no window on rank ",
         LS_UNAVAILABLE},
        {"NCCL_FAKE_NO_WINDOWS", "2", "symmetric=auto",
         "registering memory (symmetric=off does without): NCCL answers", LS_FAILED},
        {"CUDA_FAKE_MEMORY", "100000", "symmetric=auto", "NCCL finds no 0.0 MB for gradients",
         LS_OUT_OF_MEMORY},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct job job;
        setenv(rows[i].name, rows[i].value, 1);
        job_init(&job, 2, NULL);
        ck_assert(test_host_set(&job.host, rows[i].options));
        ck_assert_int_eq(job_open(&job), LS_OK);
        job.symmetric = true;
        job_run(&job, allocating_body);
        ck_assert_msg(strstr(job.said, rows[i].says), "%s", job.said);
        ck_assert(job.ranks[0].status == rows[i].status || job.ranks[1].status == rows[i].status);
        job_finish(&job);
        unsetenv(rows[i].name);
    }
}

static int32_t first_allocates_body(struct rank *rank)
{
    return rank->number ? LS_OK : allocating_body(rank);
}

TEST(a_rank_that_does_not_register_ends_it_at_the_deadline)
{
    struct job job;
    job_init(&job, 2, NULL);
    job.deadline_ns = SHORT_NS;
    ck_assert_int_eq(job_open(&job), LS_OK);
    job.symmetric = true;
    job_run(&job, first_allocates_body);
    ck_assert_int_eq(job.ranks[0].status, LS_PEER_LOST);
    assert_says(&job, "rank 0: registering memory (symmetric=off does without): NCCL is still in "
                      "progress after 0.2 s");
    job_finish(&job);
}

enum mistake {
    RECORDED, // registered within a capture
    FOREIGN, // memory of cudaMalloc
    UNEQUAL, // other sizes on other ranks
    FREED, // under its window
    LEFT_OPEN, // when the communicator is destroyed
    SHIFTED, // operations at other places of the window on other ranks
    MISTAKES,
};
static enum mistake mistake;

static int32_t mistaken_body(struct rank *rank)
{
    const struct nccl_calls *calls = rank->collective->family->calls;
    struct ncclWindow_vidmem *window = NULL;
    void *memory = NULL;
    if (mistake == FOREIGN)
        memory = (void *)job_ops->memory->allocate(rank->device, 4096);
    if (mistake == RECORDED &&
        (job_ops->streams->native(rank->device, NULL, &rank->collective->native) ||
         calls->ncclMemAlloc(&memory, 4096) || job_ops->capture->begin(rank->device)))
        return LS_FAILED;
    if (memory)
        calls->ncclCommWindowRegister(rank->collective->comm, memory, 4096, &window,
                                      NCCL_WIN_COLL_SYMMETRIC);
    else
        memory = rank_allocate(rank, mistake == UNEQUAL ? 4096 + 4096 * rank->number : 4096);
    if (mistake == FREED)
        calls->ncclMemFree(memory);
    if (mistake == SHIFTED)
        rank_run(rank, LS_ALL_REDUCE, (char *)memory + 64 * rank->number, 4);
    return mistake == SHIFTED ? rank_wait(rank) : LS_OK;
}

// For the fake: each of these ends the process.
START_TEST(what_nccl_does_not_forgive_ends_the_fake)
{
    struct job job;
    mistake = (enum mistake)_i;
    job_init(&job, 2, NULL);
    ck_assert_int_eq(job_open(&job), LS_OK);
    job.symmetric = true;
    job_run(&job, mistaken_body);
    job_finish(&job);
}
END_TEST

// ---- Running ----

enum { COUNT = 300, MANY = 1000 };

// Until something fails; then run and poll say the same for ever, and the stream comes to its end.
static int32_t many_body(struct rank *rank)
{
    int32_t status = LS_OK;
    void *buffer = rank_allocate(rank, COUNT * sizeof(float));
    for (int i = 0; !status && i < MANY; i++) {
        status = rank_run(rank, LS_ALL_REDUCE, buffer, COUNT);
        if (!status)
            status = rank_wait(rank);
    }
    if (!status)
        rank_blame(rank, "nothing failed");
    if (rank_run(rank, LS_ALL_REDUCE, buffer, COUNT) != LS_ABORTED ||
        job_nccl->poll(rank->collective) != LS_ABORTED)
        rank_blame(rank, "it goes on after it has ended with %d", status);
    rank_release(rank, buffer); // the device's waits for the stream
    return status;
}

static void assert_one_and_others(const struct job *job, int32_t one)
{
    int found = 0;
    for (uint32_t i = 0; i < job->world; i++) {
        found += job->ranks[i].status == one;
        if (job->ranks[i].status != one)
            ck_assert_int_eq(job->ranks[i].status, LS_ABORTED);
    }
    ck_assert_int_eq(found, 1);
}

LOOP_TEST(an_asynchronous_error_ends_all_ranks_with_one_line, 0, 2)
{
    struct job job;
    setenv("NCCL_FAKE_ERROR", "31", 1);
    job_init(&job, 4, NULL);
    job.symmetric = _i;
    ck_assert_int_eq(job_open(&job), LS_OK);
    job_run(&job, many_body);
    assert_one_and_others(&job, LS_PEER_LOST);
    assert_says(&job, "NCCL answers \"remote process exited or there was a network error\": the "
                      "fake was told to lose a peer");
    job_finish(&job);
    struct nccl_fake_counts counts;
    nccl_fake_count(&counts);
    ck_assert_uint_eq(counts.aborts, 4);
}

TEST(an_operation_that_is_never_put_on_the_stream_ends_at_the_deadline)
{
    struct job job;
    setenv("NCCL_FAKE_STUCK", "7", 1);
    job_init(&job, 2, NULL);
    job.deadline_ns = SHORT_NS;
    ck_assert_int_eq(job_open(&job), LS_OK);
    job_run(&job, many_body);
    assert_one_and_others(&job, LS_PEER_LOST);
    assert_says(&job, "all-reduce: NCCL is still in progress after 0.2 s");
    job_finish(&job);
}

// Rank 1 never calls, and rank 0 would wait for ever.
static int32_t lonely_body(struct rank *rank)
{
    int32_t status = LS_OK;
    void *buffer = (void *)job_ops->memory->allocate(rank->device, COUNT * sizeof(float));
    if (rank->number == 0) {
        status = rank_run(rank, LS_ALL_REDUCE, buffer, COUNT);
        if (!status)
            status = rank_wait(rank);
    } else {
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        job_nccl->abort(rank->collective);
        status = job_nccl->poll(rank->collective);
    }
    job_ops->memory->release(rank->device, buffer);
    return status;
}

TEST(an_abort_ends_those_who_wait)
{
    struct job job;
    job_init(&job, 2, NULL);
    ck_assert_int_eq(job_open(&job), LS_OK);
    job_run(&job, lonely_body);
    ck_assert_int_eq(job.ranks[0].status, LS_ABORTED);
    ck_assert_int_eq(job.ranks[1].status, LS_ABORTED);
    ck_assert_int_eq(job.failures, 0); // whoever aborts has said why
    job_finish(&job);
}

TEST(a_rank_that_is_never_asked_again_is_aborted_when_all_are_closed)
{
    struct nccl_fake_counts counts;
    struct job job;
    job_init(&job, 3, NULL);
    ck_assert_int_eq(job_open(&job), LS_OK);
    job_nccl->abort(job.ranks[1].collective);
    job_finish(&job);
    nccl_fake_count(&counts);
    ck_assert_uint_eq(counts.aborts, 3);
}

TEST(closing_has_a_deadline)
{
    struct nccl_fake_counts counts;
    struct job job;
    setenv("NCCL_FAKE_STAY", "1", 1);
    job_init(&job, 2, NULL);
    job.deadline_ns = SHORT_NS;
    ck_assert_int_eq(job_open(&job), LS_OK);
    job_finish(&job);
    nccl_fake_count(&counts);
    ck_assert_uint_eq(counts.aborts, 2);
}

// ---- About ----

TEST(the_version_is_told)
{
    char text[64];
    job_nccl->about(text, sizeof(text));
    ck_assert_str_eq(text, "NCCL 2.28.9");
}

TEST(no_device_and_no_driver_are_told)
{
    char reason[400] = "";
    ck_assert_int_eq(job_plugin->probe(reason, sizeof(reason)), LS_OK);
    setenv("CUDA_FAKE_DEVICES", "0", 1);
    ck_assert_int_eq(job_plugin->probe(reason, sizeof(reason)), LS_UNAVAILABLE);
    ck_assert_str_eq(reason, "no device: the driver finds no GPU (CUDA_VISIBLE_DEVICES?)");
    setenv("CUDA_FAKE_INIT", "34", 1);
    ck_assert_int_eq(job_plugin->probe(reason, sizeof(reason)), LS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(reason, "is the toolkit's stub"));
    setenv("CUDA_FAKE_INIT", "999", 1);
    ck_assert_int_eq(job_plugin->probe(reason, sizeof(reason)), LS_UNAVAILABLE);
    ck_assert_str_eq(reason, "the driver does not start (error 999)");
}

// The driver does not start again in a child of a process that uses it, but it runs.
TEST(a_child_of_a_process_that_uses_the_driver_finds_it)
{
    char reason[400] = "";
    int ended = 0;
    unsetenv("CUDA_FAKE_FORKED");
    ck_assert_int_eq(job_plugin->probe(reason, sizeof(reason)), LS_OK);
    const pid_t child = fork();
    if (child == 0)
        _exit(job_plugin->probe(reason, sizeof(reason)) == LS_OK ? 0 : 1);
    ck_assert_int_eq(waitpid(child, &ended, 0), child);
    ck_assert_int_eq(ended, 0);
}

int main(void)
{
    setenv("CUDA_FAKE_FORKED", "1", 1); // each test is a child of this process
    if (!job_load())
        return EXIT_FAILURE; // it says why; the fakes are built wherever the tests are
    tcase_add_loop_test_raise_signal(test_registered(), what_nccl_does_not_forgive_ends_the_fake,
                                     SIGABRT, 0, MISTAKES);
    return test_suite_run("plugins/collective/nccl/failures, on the fakes: neither NCCL nor a GPU");
}
