// SPDX-License-Identifier: Apache-2.0
// Communicators between processes when something goes wrong: lost processes, deadlines, wrong
// collectives, closing.
#include "core/plugin/plugin.h"
#include "tests/core/comm/processes.h"
#include "tests/support/suite.h"

#include <pthread.h>

#define MANY 4096

static int open_comm(struct hand *hand, const char *name, const uint32_t *members, uint32_t size,
                     double deadline, struct ls_comm **out)
{
    NEED(!ls_comm_open(&(struct ls_comm_options){.job = hand->job,
                                                 .name = name,
                                                 .transport = crew_transport,
                                                 .members = members,
                                                 .size = size,
                                                 .deadline_seconds = deadline},
                       out));
    return 0;
}

// Until another process has come to a state, but not for ever.
static void await(const struct hand *hand, uint32_t rank, int state)
{
    crew_await(&hand->crew->processes[rank].state, state);
}

// ---- Lost processes ----

static uint32_t victim;

// The communicator of all ends; that of the two that are left goes on.
static int outlive(struct hand *hand)
{
    static float values[MANY];
    struct ls_comm *all, *rest = NULL;
    struct ls_comm_work *works[2];
    uint32_t others[2], count = 0;
    char name[32];
    for (uint32_t i = 0; i < 3; i++)
        if (i != victim)
            others[count++] = i;
    TRY(join_job(hand));
    TRY(open_comm(hand, "all", NULL, 0, 60, &all));
    if (hand->rank != victim)
        TRY(open_comm(hand, "rest", others, 2, 60, &rest));
    NEED(!ls_comm_barrier(all));
    if (hand->rank == victim) {
        hand->crew->processes[victim].state = 1;
        for (;;)
            pause();
    }
    NEED(!ls_comm_start_all_reduce(all, values, MANY, "float32", "sum", &works[0]));
    NEED(!ls_comm_start_barrier(all, &works[1]));
    hand->crew->processes[hand->rank].state = 1;
    snprintf(name, sizeof(name), "process %u (", victim);
    for (int i = 0; i < 2; i++) {
        NEED(end(works[i]) == LS_PEER_LOST);
        NEED(says(name));
    }
    const uint64_t begin = ls_clock_ns();
    NEED(ls_comm_barrier(all) == LS_PEER_LOST && says(name)); // at once
    NEED(!ls_comm_start_barrier(all, &works[0]));
    NEED(end(works[0]) == LS_PEER_LOST && says(name));
    NEED(ls_clock_ns() - begin < SECOND / 2);
    NEED(ls_job_lost(hand->job) && strstr(ls_job_lost(hand->job), name));
    for (int i = 0; i < 100; i++) {
        float value = 1;
        NEED(!ls_comm_all_reduce(rest, &value, 1, "float32", "sum"));
        NEED(value == 2);
    }
    ls_comm_close(all);
    if (victim) { // who has the store is there
        struct ls_comm *later;
        NEED(ls_comm_open(&(struct ls_comm_options){.job = hand->job, .name = "again"}, &later) ==
             LS_PEER_LOST);
        TRY(open_comm(hand, "later", others, 2, 60, &later));
        NEED(!ls_comm_barrier(later));
        ls_comm_close(later);
    }
    ls_comm_close(rest);
    ls_job_close(hand->job);
    return 0;
}

static void lose(int signal, uint32_t who, uint64_t most_ns)
{
    struct crew *crew = crew_create(3);
    victim = who;
    crew_start(crew, outlive);
    for (uint32_t i = 0; i < 3; i++)
        crew_await_state(crew, i, 1);
    const uint64_t begin = ls_clock_ns();
    kill(crew->processes[who].pid, signal);
    crew_wait_all(crew, who);
    ck_assert_uint_lt(ls_clock_ns() - begin, most_ns);
    kill(crew->processes[who].pid, SIGKILL);
    crew_destroy(crew);
}

LOOP_TEST(a_killed_process_is_named_and_the_others_go_on, 0, 3)
{
    lose(SIGKILL, (uint32_t)_i, 3 * SECOND);
}

LOOP_TEST(a_stopped_process_is_named_and_the_others_go_on, 0, 3)
{
    lose(SIGSTOP, (uint32_t)_i, 8 * SECOND);
}

static int give_up(struct hand *hand)
{
    struct ls_comm *comm;
    float value = 1;
    TRY(join_job(hand));
    TRY(open_comm(hand, "all", NULL, 0, 60, &comm));
    NEED(!ls_comm_barrier(comm));
    hand->crew->processes[hand->rank].state = 1; // it is over here
    if (hand->rank == 1) {
        await(hand, 0, 1);
        await(hand, 2, 1);
        ls_job_give_up(hand->job, "an exception of the program");
        NEED(ls_comm_all_reduce(comm, &value, 1, "float32", "sum") == LS_PEER_LOST);
        NEED(says("this process gave up: an exception of the program"));
    } else {
        NEED(ls_comm_all_reduce(comm, &value, 1, "float32", "sum") == LS_PEER_LOST);
        NEED(says("process 1 (") && says("an exception of the program"));
    }
    ls_comm_close(comm);
    ls_job_close(hand->job);
    return 0;
}

TEST(a_process_that_gives_up_is_lost_at_once)
{
    crew_run(3, give_up);
}

// While others open a communicator with it.
static int lose_early(struct hand *hand)
{
    struct ls_comm *comm;
    TRY(join_job(hand));
    hand->crew->processes[hand->rank].state = 1;
    if (hand->rank == 1)
        for (;;)
            pause();
    NEED(ls_comm_open(&(struct ls_comm_options){.job = hand->job, .name = "all"}, &comm) ==
         LS_PEER_LOST);
    NEED(says("process 1 ("));
    ls_job_close(hand->job);
    return 0;
}

TEST(a_process_that_is_lost_while_others_wait_for_it_to_open)
{
    struct crew *crew = crew_create(3);
    crew_start(crew, lose_early);
    for (uint32_t i = 0; i < 3; i++)
        crew_await_state(crew, i, 1);
    nap_ms(100);
    kill(crew->processes[1].pid, SIGKILL);
    crew_wait_all(crew, 1);
    crew_wait(&crew->processes[1]);
    crew_destroy(crew);
}

// ---- Deadlines ----

#define LATE_CREW 4

// The deadline of rank 0 passes first, which in a ring waits for its neighbour, and that for its own.
static int come_late(struct hand *hand)
{
    struct ls_comm *comm;
    struct ls_comm_work *work;
    float value = 1;
    TRY(join_job(hand));
    TRY(open_comm(hand, "all", NULL, 0, 60, &comm));
    NEED(!ls_comm_barrier(comm));
    if (hand->rank == 1) {
        for (uint32_t i = 0; i < LATE_CREW; i++)
            if (i != hand->rank)
                await(hand, i, 1);
        NEED(ls_comm_barrier(comm) == LS_ABORTED); // with what another one has found
        NEED(says("has ended it: all: rank 0 waited 0.") && says("for rank 1 "));
        NEED(!ls_job_lost(hand->job)); // nobody is
        ls_comm_close(comm);
        ls_job_close(hand->job);
        return 0;
    }
    ls_comm_set_deadline(comm, hand->rank ? 30 : 0.5);
    const uint64_t begin = ls_clock_ns();
    NEED(!ls_comm_start_all_reduce(comm, &value, 1, "float32", "sum", &work));
    NEED(ls_comm_work_wait(work, 0.1) == LS_AGAIN);
    const enum ls_status status = end(work);
    NEED(status == (hand->rank ? LS_ABORTED : LS_PEER_LOST)); // the first to fail ends the others
    NEED(says("waited 0.") && says("for rank 1 ") && says("it has not made this call"));
    NEED(!hand->rank || says("has ended it: all: rank 0 "));
    NEED(says("or raise --deadline"));
    NEED(ls_clock_ns() - begin < 5 * SECOND);
    hand->crew->processes[hand->rank].state = 1;
    ls_comm_close(comm);
    ls_job_close(hand->job);
    return 0;
}

TEST(a_work_whose_deadline_passes_ends)
{
    crew_run(LATE_CREW, come_late);
}

static int never_open(struct hand *hand)
{
    struct ls_comm *comm;
    TRY(join_job(hand));
    if (hand->rank == 1) {
        await(hand, 0, 1);
    } else {
        NEED(
            ls_comm_open(
                &(struct ls_comm_options){.job = hand->job, .name = "all", .deadline_seconds = 0.5},
                &comm) == LS_PEER_LOST);
        NEED(says("process 1 (") && says("has not come within"));
        hand->crew->processes[0].state = 1;
    }
    ls_job_close(hand->job);
    return 0;
}

TEST(a_process_that_does_not_open_is_named)
{
    crew_run(2, never_open);
}

// ---- What is refused ----

static const char *wrong;

static int run_wrong(struct hand *hand)
{
    struct ls_comm *comm;
    struct ls_comm_work *work;
    float values[64] = {1};
    TRY(join_job(hand));
    NEED(!ls_comm_open(
        &(struct ls_comm_options){
            .job = hand->job, .name = "all", .collective = wrong, .plugin_path = FAULTS},
        &comm));
    NEED(ls_comm_all_reduce(comm, values, 64, "float32", "sum") == LS_FAILED);
    NEED(says(wrong) && values[0] == 1);
    NEED(!ls_comm_start_all_reduce(comm, values, 64, "float32", "sum", &work));
    NEED(end(work) == LS_FAILED);
    NEED(says(wrong) && values[0] == 1);
    ls_comm_close(comm);
    ls_job_close(hand->job);
    return 0;
}

LOOP_TEST(a_wrong_collective_is_refused_by_all, 0, 3)
{
    static const char *const all[] = {"twice", "missing", "deadlock"};
    wrong = all[_i];
    crew_run(2, run_wrong);
}

static int call_differently(struct hand *hand)
{
    struct ls_comm *comm;
    float values[64] = {0};
    TRY(join_job(hand));
    TRY(open_comm(hand, "all", NULL, 0, 60, &comm));
    const enum ls_status status =
        ls_comm_all_reduce(comm, values, hand->rank ? 64 : 32, "float32", "sum");
    NEED(status == LS_FAILED || status == LS_ABORTED);
    NEED(says("differs: rank "));
    hand->crew->processes[hand->rank].state = status == LS_FAILED ? 2 : 1;
    ls_comm_close(comm);
    ls_job_close(hand->job);
    return 0;
}

TEST(different_calls_fail)
{
    struct crew *crew = crew_create(2);
    crew_start(crew, call_differently);
    crew_wait_all(crew, NOBODY);
    ck_assert(crew->processes[0].state == 2 || crew->processes[1].state == 2);
    crew_destroy(crew);
}

static int open_differently(struct hand *hand)
{
    struct ls_comm *comm;
    TRY(join_job(hand));
    NEED(ls_comm_open(&(struct ls_comm_options){.job = hand->job,
                                                .name = "one",
                                                .collective = hand->rank ? "direct" : "ring"},
                      &comm) == LS_USAGE);
    NEED(says("process 1 has collective direct, but process 0 has ring"));
    const enum ls_status status = ls_comm_open(
        &(struct ls_comm_options){.job = hand->job,
                                  .name = "two",
                                  .collective = hand->rank ? "no-such-collective" : "ring"},
        &comm);
    NEED(status == (hand->rank ? LS_UNAVAILABLE : LS_FAILED));
    NEED(says(hand->rank ? "no-such-collective" : "process 1 cannot open it"));
    NEED(ls_comm_open(&(struct ls_comm_options){.job = hand->job,
                                                .name = "three",
                                                .members = (const uint32_t[]){0, 1},
                                                .size = 1 + hand->rank,
                                                .deadline_seconds = 0.5},
                      &comm) == (hand->rank ? LS_PEER_LOST : LS_OK)); // alone it is one rank
    if (hand->rank == 0)
        ls_comm_close(comm);
    NEED(ls_comm_open(&(struct ls_comm_options){.job = hand->job, .name = ""}, &comm) == LS_USAGE);
    NEED(ls_comm_open(
             &(struct ls_comm_options){
                 .job = hand->job, .name = "four", .members = (const uint32_t[]){0, 2}, .size = 2},
             &comm) == LS_USAGE);
    ls_job_close(hand->job);
    return 0;
}

TEST(communicators_that_differ_are_refused)
{
    crew_run(2, open_differently);
}

TEST(jobs_that_make_no_sense_are_refused)
{
    struct ls_job *job = NULL;
    static struct crew_process test;
    ls_set_log(crew_note_warning, &test);
    ck_assert_int_eq(ls_job_open(&(struct ls_job_options){.size = 0}, &job), LS_USAGE);
    ck_assert_int_eq(ls_job_open(&(struct ls_job_options){.rank = 2, .size = 2}, &job), LS_USAGE);
    ck_assert_int_eq(ls_job_open(&(struct ls_job_options){.size = 2}, &job), LS_USAGE);
    ck_assert_int_eq(ls_job_open(&(struct ls_job_options){.size = 2, .address = "here"}, &job),
                     LS_USAGE);
    ck_assert(says("expected host:port"));
    ck_assert_int_eq(
        ls_job_open(&(struct ls_job_options){.size = 2, .address = "10.1.2.3:29600"}, &job),
        LS_USAGE);
    ck_assert(says("the same `secret`"));
    ck_assert_int_eq(ls_job_open(&(struct ls_job_options){.size = 1, .join_seconds = -1}, &job),
                     LS_USAGE);
    ck_assert_ptr_null(job);
    ls_job_close(NULL);
    ls_comm_close(NULL);
    ls_comm_work_free(NULL);
}

static int bring_another_secret(struct hand *hand)
{
    struct ls_job_options options = crew_options(hand->crew, hand->rank);
    options.join_seconds = 3;
    options.secret = hand->rank ? "the secret of another job" : "the secret of this job";
    const enum ls_status status = ls_job_open(&options, &hand->job);
    NEED(status == (hand->rank ? LS_USAGE : LS_PEER_LOST));
    if (hand->rank)
        NEED(says("process 0 at ") &&
             says("another secret than this process: expected the same `secret`"));
    else
        NEED(says("process 1 did not connect to ") && says("start both processes"));
    NEED(!says("worker") && !says("--cluster"));
    return 0;
}

TEST(a_process_with_another_secret_is_refused)
{
    crew_run(2, bring_another_secret);
}

// ---- The end ----

// Works under way when the communicator is closed, and freed afterwards.
static int close_early(struct hand *hand)
{
    static float values[1 << 20];
    struct ls_comm *comm;
    struct ls_comm_work *works[5];
    TRY(join_job(hand));
    TRY(open_comm(hand, "all", NULL, 0, 60, &comm));
    NEED(!ls_comm_barrier(comm));
    hand->crew->processes[hand->rank].state = 1; // it is over here
    for (uint32_t i = 0; i < 3; i++)
        await(hand, i, 1);
    if (hand->rank) {
        for (int i = 0; i < 5; i++)
            NEED(!ls_comm_start_all_reduce(comm, values, 1 << 20, "float32", "sum", &works[i]));
        ls_comm_work_free(works[4]); // it goes on
        if (hand->rank == 2)
            nap_ms(50);
        ls_comm_close(comm);
        for (int i = 0; i < 4; i++) {
            const enum ls_status status = end(works[i]);
            NEED(status == LS_ABORTED || status == LS_PEER_LOST);
        }
    } else {
        const enum ls_status status = ls_comm_barrier(comm);
        NEED(status == LS_ABORTED || status == LS_PEER_LOST || status == LS_FAILED);
        ls_comm_close(comm);
    }
    ls_job_close(hand->job);
    return 0;
}

TEST(closing_ends_works_under_way)
{
    crew_run(3, close_early);
}

static void *abort_soon(void *argument)
{
    nap_ms(100);
    ls_comm_abort(argument);
    return NULL;
}

static int abort_it(struct hand *hand)
{
    struct ls_comm *comm;
    pthread_t thread;
    TRY(join_job(hand));
    TRY(open_comm(hand, "all", NULL, 0, 60, &comm));
    NEED(!ls_comm_barrier(comm));
    if (hand->rank)
        hand->crew->processes[1].state = 1; // it is over here
    await(hand, 1, 1);
    if (hand->rank == 0) {
        NEED(!pthread_create(&thread, NULL, abort_soon, comm));
        NEED(ls_comm_barrier(comm) == LS_ABORTED);
        NEED(says("was aborted"));
        pthread_join(thread, NULL);
        hand->crew->processes[0].state = 1;
    } else {
        await(hand, 0, 1);
        NEED(ls_comm_barrier(comm) == LS_ABORTED);
        NEED(says("process 0 has ended it: it was aborted"));
    }
    ls_comm_close(comm);
    ls_job_close(hand->job);
    return 0;
}

TEST(an_abort_ends_it_everywhere)
{
    crew_run(2, abort_it);
}

// Process 0 leaves in order while the others go on; later they cannot open anything with it.
static int leave_in_order(struct hand *hand)
{
    struct ls_comm *pair = NULL, *later;
    static const uint32_t others[] = {1, 2};
    TRY(join_job(hand));
    if (hand->rank)
        TRY(open_comm(hand, "pair", others, 2, 60, &pair));
    if (hand->rank == 0) {
        await(hand, 1, 1);
        await(hand, 2, 1);
        ls_job_close(hand->job);
        hand->crew->processes[0].state = 1;
        return 0;
    }
    hand->crew->processes[hand->rank].state = 1;
    await(hand, 0, 1);
    NEED(!ls_comm_barrier(pair));
    NEED(ls_comm_open(
             &(struct ls_comm_options){.job = hand->job, .name = "later", .deadline_seconds = 5},
             &later) == LS_PEER_LOST);
    NEED(says("process 0 (") && says("has left the job"));
    NEED(!ls_job_lost(hand->job));
    ls_comm_close(pair);
    ls_job_close(hand->job);
    return 0;
}

TEST(who_leaves_in_order_is_not_lost)
{
    crew_run(3, leave_in_order);
}

// LeakSanitizer would take what only a thread of the parent knows for lost in the child.
static void end_child(void)
{
#ifdef __SANITIZE_ADDRESS__
    _exit(0);
#else
    exit(0);
#endif
}

// A child, as a data loader's, that closes what it has inherited, and one that only ends.
static int fork_meanwhile(struct hand *hand)
{
    static float values[1 << 18];
    struct ls_comm *comm;
    struct ls_comm_work *work;
    int status = -1;
    TRY(join_job(hand));
    TRY(open_comm(hand, "all", NULL, 0, 60, &comm));
    for (int i = 0; i < 6; i++) {
        NEED(!ls_comm_start_all_reduce(comm, values, 1 << 18, "float32", "sum", &work));
        const pid_t child = fork();
        if (child == 0) {
            alarm(20);
            if (i % 2) {
                ls_comm_work_free(work);
                ls_comm_close(comm);
                ls_job_close(hand->job);
            }
            end_child();
        }
        NEED(child > 0 && waitpid(child, &status, 0) == child && status == 0);
        NEED(!end(work));
    }
    ls_comm_close(comm);
    ls_job_close(hand->job);
    return 0;
}

TEST(a_child_leaves_what_is_its_parents)
{
    crew_run(2, fork_meanwhile);
}

#define REFUSED(call) NEED((call) == LS_USAGE && says("a forked process has no part in the "))

// All that it inherits is refused, and does nothing to its parent.
static int use_as_child(const struct hand *hand, struct ls_comm *comm, struct ls_comm_work *work)
{
    struct ls_comm *other;
    struct ls_comm_work *next;
    float value = 1;
    REFUSED(ls_comm_all_reduce(comm, &value, 1, "float32", "sum"));
    REFUSED(ls_comm_barrier(comm));
    REFUSED(ls_comm_start_all_reduce(comm, &value, 1, "float32", "sum", &next));
    REFUSED(ls_comm_start_send(comm, &value, 4, 0, 1, &next));
    REFUSED(ls_comm_start_receive(comm, &value, 4, 0, 1, &next));
    REFUSED(ls_comm_work_wait(work, 60));
    REFUSED(ls_comm_work_wait(work, 0));
    REFUSED(ls_comm_open(&(struct ls_comm_options){.job = hand->job, .name = "child"}, &other));
    NEED(says("open a new one"));
    ls_comm_abort(comm);
    ls_job_give_up(hand->job, "a child");
    NEED(!ls_job_lost(hand->job));
    ls_comm_work_free(work);
    ls_comm_close(comm);
    ls_job_close(hand->job);
    return 0;
}

static int refuse_child(struct hand *hand)
{
    struct ls_comm *comm;
    struct ls_comm_work *work;
    int status = -1, value = 0;
    TRY(join_job(hand));
    NEED(!ls_comm_open(
        &(struct ls_comm_options){
            .job = hand->job, .name = "all", .transport = crew_transport, .messages = 1},
        &comm));
    NEED(!ls_comm_start_receive(comm, &value, 4, 1 - hand->rank, 7, &work)); // is not over yet
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        _exit(use_as_child(hand, comm, work) ? 1 : 0);
    }
    NEED(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    NEED(!ls_comm_barrier(comm)); // the parents go on
    struct ls_comm_work *send;
    int sent = 42;
    NEED(!ls_comm_start_send(comm, &sent, 4, 1 - hand->rank, 7, &send));
    NEED(!end(work) && !end(send) && value == 42);
    NEED(!ls_comm_barrier(comm) && !ls_job_lost(hand->job));
    ls_comm_close(comm);
    ls_job_close(hand->job);
    return 0;
}

TEST(a_child_is_refused_what_is_its_parents)
{
    crew_run(2, refuse_child);
}

TEST(a_child_has_no_part_in_communicators_of_threads)
{
    struct ls_comm *comms[2];
    int status = -1;
    ck_assert_int_eq(ls_comm_open(&(struct ls_comm_options){.size = 2}, comms), LS_OK);
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        const bool refused = ls_comm_barrier(comms[0]) == LS_USAGE && says("a forked process");
        ls_comm_close(comms[0]);
        ls_comm_close(comms[1]);
        _exit(refused ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ls_comm_close(comms[0]);
    ls_comm_close(comms[1]);
}

// Ends by exit() with works under way, which the other one learns.
static int exit_meanwhile(struct hand *hand)
{
    static float values[1 << 20];
    static struct ls_comm_work *works[3]; // some are over when the program exits
    struct ls_comm *comm;
    struct ls_comm_work *work = NULL;
    TRY(join_job(hand));
    TRY(open_comm(hand, "all", NULL, 0, 60, &comm));
    for (int i = 0; i < 3; i++)
        NEED(!ls_comm_start_all_reduce(comm, values, 1 << 20, "float32", "sum", &works[i]));
    if (hand->rank == 0)
        exit(0);
    NEED(!ls_comm_start_barrier(comm, &work));
    NEED(end(work) == LS_PEER_LOST && says("process 0 ("));
    ls_comm_close(comm);
    ls_job_close(hand->job);
    return 0;
}

TEST(a_program_may_exit_with_works_under_way)
{
    crew_run(2, exit_meanwhile);
}

TEST_SECONDS(LONGEST_S);

int main(int count, char **words)
{
    if (!crew_begin(count, words))
        return TEST_SKIPPED;
    return test_suite_run("core/comm/lost");
}
