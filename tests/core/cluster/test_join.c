// SPDX-License-Identifier: Apache-2.0
// Workers find each other, agree, and tell each other something; or learn why not.
//
//     test_cluster_join            in every run
//     test_cluster_join long       what takes some seconds
#include "tests/core/cluster/processes.h"

#include <stdlib.h>
#include <sys/stat.h>

// ---- Who takes part ----

static void tell_what_it_sees(struct process *process)
{
    struct ls_cluster *cluster = process_join(process);
    if (!cluster)
        return;
    process->numbers[0] = ls_cluster_worker(cluster);
    process->numbers[1] = ls_cluster_workers(cluster);
    process->numbers[2] = ls_cluster_first_rank(cluster);
    process->numbers[3] = ls_cluster_count(cluster);
    process->numbers[4] = ls_cluster_world(cluster);
    for (uint32_t rank = 0; rank < ls_cluster_world(cluster); rank++) {
        process->numbers[5] = process->numbers[5] * 10 + ls_cluster_hosts(cluster)[rank];
        process->numbers[6] = process->numbers[6] * 10 + ls_cluster_rank_workers(cluster)[rank];
    }
    ls_cluster_close(cluster);
}

SIDE_TEST(all_workers_see_the_same_ranks_and_hosts, 0, 1)
{
    static const uint32_t counts[] = {1, 2, 3, 1}, firsts[] = {0, 1, 3, 6};
    static const char *const hosts[] = {"east", "west", "east", "north"};
    struct job *job = job_create(4);
    for (uint32_t i = 0; i < 4; i++) {
        job->process[i].options.count = counts[i];
        job->process[i].options.host = hosts[i];
    }
    job_run(job, 4, tell_what_it_sees);
    for (uint32_t i = 0; i < 4; i++) {
        const struct process *process = &job->process[i];
        ck_assert_int_eq(process->joined, LS_OK);
        ck_assert_uint_eq(process->numbers[0], i);
        ck_assert_uint_eq(process->numbers[1], 4);
        ck_assert_uint_eq(process->numbers[2], firsts[i]);
        ck_assert_uint_eq(process->numbers[3], counts[i]);
        ck_assert_uint_eq(process->numbers[4], 7);
        ck_assert_uint_eq(process->numbers[5], 110002); // 0110002
        ck_assert_uint_eq(process->numbers[6], 112223); // 0112223
        assert_log_empty(process);
    }
    job_destroy(job);
}

SIDE_TEST(workers_of_one_machine_are_on_one_host, 0, 1)
{
    struct job *job = job_create(2);
    job_run(job, 2, tell_what_it_sees);
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_int_eq(job->process[i].joined, LS_OK);
        ck_assert_uint_eq(job->process[i].numbers[5], 0);
    }
    job_destroy(job);
}

static void join_late(struct process *process)
{
    if (process->own.index == 3)
        nap_ms(600);
    tell_what_it_sees(process);
}

SIDE_TEST(the_others_wait_for_a_worker_that_comes_later, 0, 1)
{
    struct job *job = job_create(4);
    job_run(job, 4, join_late);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_int_eq(job->process[i].joined, LS_OK);
    ck_assert_uint_gt(job->process[0].took_ns, 500 * MILLISECOND);
    job_destroy(job);
}

SIDE_TEST(one_worker_opens_no_socket_and_starts_no_thread, 0, 1)
{
    struct ls_worker_place place = {.workers = 1, .listen_fd = -1};
    struct ls_cluster_options options = {.place = &place, .count = 2};
    struct ls_cluster *cluster = NULL;
    struct stat tasks;
    ck_assert_int_eq(stat("/proc/self/task", &tasks), 0);
    const nlink_t threads = tasks.st_nlink;
    const int before = dup(0);
    ck_assert_int_eq(ls_cluster_join(&options, &cluster), LS_OK);
    const int after = dup(0);
    ck_assert_int_eq(after, before + 1);
    ck_assert_int_eq(stat("/proc/self/task", &tasks), 0);
    ck_assert_uint_eq(tasks.st_nlink, threads);
    ck_assert_uint_eq(ls_cluster_world(cluster), 2);
    uint64_t mine[2] = {5, 6}, all[2] = {0};
    ck_assert_int_eq(ls_cluster_gather(cluster, mine, sizeof(mine[0]), all), LS_OK);
    ck_assert_uint_eq(all[1], 6);
    ck_assert_int_eq(ls_cluster_gather_workers(cluster, mine, sizeof(mine), all), LS_OK);
    ck_assert_int_eq(ls_cluster_broadcast(cluster, mine, sizeof(mine), 0), LS_OK);
    ck_assert_int_eq(ls_cluster_barrier(cluster), LS_OK);
    ck_assert_int_eq(ls_cluster_check(cluster, NULL), LS_OK);
    ls_cluster_say(cluster, 1, "forward");
    ls_cluster_give_up(cluster, "nothing");
    ls_cluster_close(cluster);
    close(before);
    close(after);
}

// ---- Telling each other ----

static uint64_t expected_number(uint64_t rank, uint64_t i)
{
    return rank * 1000003 + i * 7919;
}

// false: a number is not what that rank gave.
static bool gather_numbers(struct ls_cluster *cluster, uint64_t numbers, bool by_rank)
{
    const uint32_t own = by_rank ? ls_cluster_count(cluster) : 1,
                   first = by_rank ? ls_cluster_first_rank(cluster) : ls_cluster_worker(cluster),
                   blocks = by_rank ? ls_cluster_world(cluster) : ls_cluster_workers(cluster);
    uint64_t *mine = calloc(own * numbers + 1, sizeof(*mine));
    uint64_t *all = calloc(blocks * numbers + 1, sizeof(*all));
    bool good = mine && all;
    for (uint64_t i = 0; good && i < own * numbers; i++)
        mine[i] = expected_number(first + i / numbers, i % numbers);
    const size_t bytes = numbers * sizeof(*mine);
    good = good && (by_rank ? ls_cluster_gather(cluster, mine, bytes, all)
                            : ls_cluster_gather_workers(cluster, mine, bytes, all)) == LS_OK;
    for (uint64_t i = 0; good && i < blocks * numbers; i++)
        good = all[i] == expected_number(i / numbers, i % numbers);
    free(mine);
    free(all);
    return good;
}

static bool broadcast_numbers(struct ls_cluster *cluster, uint64_t numbers)
{
    uint64_t *data = calloc(numbers, sizeof(*data));
    bool good = data;
    for (uint32_t root = 0; good && root < ls_cluster_workers(cluster); root++) {
        for (uint64_t i = 0; i < numbers; i++)
            data[i] = root == ls_cluster_worker(cluster) ? expected_number(root, i) : 0;
        good = ls_cluster_broadcast(cluster, data, numbers * sizeof(*data), root) == LS_OK;
        for (uint64_t i = 0; good && i < numbers; i++)
            good = data[i] == expected_number(root, i);
    }
    free(data);
    return good;
}

// Each worker has every n-th endpoint, two of them.
static bool exchange_numbers(struct ls_cluster *cluster)
{
    const uint32_t workers = ls_cluster_workers(cluster);
    uint32_t owners[2 * MOST_PROCESSES];
    uint64_t mine[2], all[2 * MOST_PROCESSES];
    struct ls_cluster_endpoints endpoints = {
        .cluster = cluster, .world = 2 * workers, .workers = owners};
    for (uint32_t i = 0; i < 2 * workers; i++)
        owners[i] = i % workers;
    for (uint32_t k = 0; k < 2; k++)
        mine[k] = expected_number(ls_cluster_worker(cluster) + k * workers, 3);
    bool good = ls_cluster_exchange(&endpoints, mine, sizeof(mine[0]), all) == LS_OK;
    for (uint32_t i = 0; i < 2 * workers; i++)
        good = good && all[i] == expected_number(i, 3);
    return good;
}

static void tell_each_other(struct process *process)
{
    struct ls_cluster *cluster = process_join(process);
    if (!cluster)
        return;
    uint64_t *right = process->numbers;
    right[0] = gather_numbers(cluster, 1, true);
    right[1] = gather_numbers(cluster, 0, true);
    right[2] = gather_numbers(cluster, 25000, true); // 200 KB a rank: in several parts
    right[3] = gather_numbers(cluster, 9, false);
    right[4] = broadcast_numbers(cluster, 1);
    right[5] = broadcast_numbers(cluster, 40000);
    right[6] = exchange_numbers(cluster);
    right[7] = ls_cluster_barrier(cluster) == LS_OK;
    ls_cluster_close(cluster);
}

SIDE_TEST(workers_tell_each_other_numbers, 0, 3)
{
    const uint32_t workers = (const uint32_t[]){2, 3, 8}[_i];
    struct job *job = job_create(workers);
    job->process[1].options.count = 3;
    job_run(job, workers, tell_each_other);
    for (uint32_t i = 0; i < workers; i++) {
        ck_assert_int_eq(job->process[i].joined, LS_OK);
        for (int k = 0; k < 8; k++)
            ck_assert_msg(job->process[i].numbers[k] == 1, "worker %u, call %d", i, k);
        assert_log_empty(&job->process[i]);
    }
    job_destroy(job);
}

static void wait_at_barrier(struct process *process)
{
    struct ls_cluster *cluster = process_join(process);
    if (!cluster)
        return;
    if (process->own.index == 2) {
        nap_ms(300);
        process->job->process[2].own.state = 1;
    }
    process->status = ls_cluster_barrier(cluster);
    process->numbers[0] = (uint64_t)process->job->process[2].own.state;
    ls_cluster_close(cluster);
}

SIDE_TEST(nobody_passes_a_barrier_before_all_have_come, 0, 1)
{
    struct job *job = job_create(3);
    job_run(job, 3, wait_at_barrier);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_int_eq(job->process[i].status, LS_OK);
        ck_assert_uint_eq(job->process[i].numbers[0], 1);
    }
    job_destroy(job);
}

static void call_something_else(struct process *process)
{
    struct ls_cluster *cluster = process_join(process);
    if (!cluster)
        return;
    uint64_t number = 1, all[4];
    if (process->own.index == 1)
        process->status = ls_cluster_broadcast(cluster, &number, sizeof(number), 1);
    else
        process->status = ls_cluster_gather(cluster, &number, sizeof(number), all);
    ls_cluster_close(cluster);
}

SIDE_TEST(different_calls_are_refused_on_every_worker, 0, 1)
{
    struct job *job = job_create(3);
    job_run(job, 3, call_something_else);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_int_eq(job->process[i].status, LS_FAILED);
        assert_log_has(&job->process[i], "calls broadcast (8 bytes, worker 1)");
        assert_log_has(&job->process[i], "calls gather (8 bytes, worker 0)");
        assert_log_has(&job->process[i], "expected the same calls in the same order");
        ck_assert_uint_eq(job->process[i].lost_calls, 1);
    }
    job_destroy(job);
}

// ---- Who does not fit ----

SIDE_TEST(a_worker_that_does_not_come_is_named_on_all_others, 0, 1)
{
    struct job *job = job_create(4);
    char text[128];
    for (uint32_t i = 0; i < 4; i++)
        job->process[i].options.join_deadline_ns = SECOND;
    job_run(job, 3, tell_what_it_sees);
    snprintf(text, sizeof(text), "worker 3 did not connect to 127.0.0.1:%u within 1 s", job->port);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_int_eq(job->process[i].joined, LS_PEER_LOST);
        assert_log_has(&job->process[i], text);
        ck_assert_uint_lt(job->process[i].took_ns, 5 * SECOND);
        ck_assert_uint_eq(job->process[i].lost_calls, 0);
    }
    job_destroy(job);
}

SIDE_TEST(worker_0_that_does_not_come_is_named, 0, 1)
{
    struct job *job = job_create(2);
    char text[128];
    close(job->listener);
    job->process[1].options.join_deadline_ns = SECOND / 2;
    job_start_one(job, 1, tell_what_it_sees);
    crew_wait(&job->process[1].own);
    ck_assert_int_eq(job->process[1].joined, LS_PEER_LOST);
    snprintf(text, sizeof(text),
             "worker 0 did not answer at 127.0.0.1:%u within 0.5 s: Connection refused", job->port);
    assert_log_has(&job->process[1], text);
    job_destroy(job);
}

SIDE_TEST(something_else_at_the_address_is_told_from_worker_0, 0, 1)
{
    struct job *job = job_create(2); // nobody accepts what the listener takes
    job->process[1].options.join_deadline_ns = SECOND / 2;
    job_start_one(job, 1, tell_what_it_sees);
    crew_wait(&job->process[1].own);
    ck_assert_int_eq(job->process[1].joined, LS_PEER_LOST);
    assert_log_has(&job->process[1], "it takes connections but does not answer as worker 0 does");
    job_destroy(job);
}

SIDE_TEST(a_second_worker_of_the_same_number_is_refused_by_name, 0, 1)
{
    struct job *job = job_create(3);
    job->process[3].place.number = 1;
    job->process[3].place.workers = 3;
    job_start_one(job, 0, tell_what_it_sees);
    job_start_one(job, 1, tell_what_it_sees);
    nap_ms(300);
    job_start_one(job, 3, tell_what_it_sees); // number 1, too
    crew_wait(&job->process[3].own);
    job_start_one(job, 2, tell_what_it_sees);
    job_wait(job, 4);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_int_eq(job->process[i].joined, LS_OK);
    ck_assert_int_eq(job->process[3].joined, LS_USAGE);
    char text[64];
    snprintf(text, sizeof(text), "worker 1 is already here, process %d on ",
             (int)job->process[1].own.pid);
    assert_log_has(&job->process[3], text);
    assert_log_has(&job->process[0], text);
    snprintf(text, sizeof(text), "process %d on ", (int)job->process[3].own.pid);
    assert_log_has(&job->process[3], text);
    job_destroy(job);
}

SIDE_TEST(a_worker_that_comes_after_the_beginning_is_refused_and_disturbs_nobody, 0, 1)
{
    struct job *job = job_create(2);
    job->process[2].place.number = 1;
    job_start(job, 2, stay_a_while);
    for (uint32_t i = 0; i < 2; i++)
        crew_await(&job->process[i].own.state, 1);
    job_start_one(job, 2, tell_what_it_sees);
    crew_wait(&job->process[2].own);
    job->go = 1;
    job_wait(job, 3);
    ck_assert_int_eq(job->process[2].joined, LS_USAGE);
    assert_log_has(&job->process[2], "worker 1 is already here");
    for (uint32_t i = 0; i < 2; i++)
        ck_assert_int_eq(job->process[i].status, LS_OK);
    job_destroy(job);
}

SIDE_TEST(a_difference_is_refused_on_every_worker_with_both_values, 0, 1)
{
    struct job *job = job_create(3);
    job->process[2].agreement[0].value = "mlp";
    job_run(job, 3, tell_what_it_sees);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_int_eq(job->process[i].joined, LS_USAGE);
        assert_log_has(&job->process[i], "worker 2 (");
        assert_log_has(&job->process[i], ") has --model mlp, but worker 0 (");
        assert_log_has(&job->process[i], ") has cnn: expected the same on all workers");
    }
    job_destroy(job);
}

START_TEST(a_difference_is_told_although_somebody_is_missing)
{
    struct job *job = job_create(3);
    job->process[1].agreement[1] = (struct ls_agreement){"--optimizer", "sgd"};
    job_run(job, 2, tell_what_it_sees);
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_int_eq(job->process[i].joined, LS_USAGE);
        assert_log_has(&job->process[i], "has --optimizer sgd, but worker 0 (");
        assert_log_has(&job->process[i], "does not say it");
    }
    job_destroy(job);
}
END_TEST

SIDE_TEST(another_number_of_workers_is_refused_on_every_worker, 0, 1)
{
    struct job *job = job_create(3);
    job->process[1].place.workers = 4;
    job_start_one(job, 0, tell_what_it_sees);
    job_start_one(job, 2, tell_what_it_sees);
    nap_ms(200);
    job_start_one(job, 1, tell_what_it_sees);
    job_wait(job, 3);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_int_eq(job->process[i].joined, LS_USAGE);
        assert_log_has(&job->process[i],
                       "expects 4 workers and 0 servers, but worker 0 expects 3 and 0");
        ck_assert_ptr_null(strstr(job->process[i].own.log, "warning")); // one error, one line
    }
    job_destroy(job);
}

SIDE_TEST(another_job_at_the_same_address_is_refused, 0, 1)
{
    struct job *job = job_create(2);
    snprintf(job->process[0].place.job, sizeof(job->process[0].place.job), "slurm 12");
    snprintf(job->process[1].place.job, sizeof(job->process[1].place.job), "slurm 13");
    job_run(job, 2, tell_what_it_sees);
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_int_eq(job->process[i].joined, LS_USAGE);
        assert_log_has(&job->process[i], "has job slurm 13, but worker 0 (");
    }
    job_destroy(job);
}

SIDE_TEST(worker_0_that_dies_before_the_beginning_is_named, 0, 1)
{
    struct job *job = job_create(3);
    job_start(job, 2, tell_what_it_sees);
    nap_ms(300);
    kill(job->process[0].own.pid, SIGKILL);
    crew_wait(&job->process[0].own);
    crew_wait(&job->process[1].own);
    ck_assert_int_eq(job->process[1].own.exit_status, 0);
    ck_assert_int_eq(job->process[1].joined, LS_PEER_LOST);
    assert_log_has(&job->process[1],
                   "was lost before all workers were there: its connection closed");
    job_destroy(job);
}

// ---- Secrets ----

SIDE_TEST(another_secret_is_refused_at_once, 0, 2)
{
    struct job *job = job_create(2);
    job->process[1].options.secret = _i ? NULL : "quite another secret";
    job->process[0].options.join_deadline_ns = SECOND;
    job_run(job, 2, tell_what_it_sees);
    ck_assert_int_eq(job->process[1].joined, LS_USAGE);
    assert_log_has(&job->process[1], "has another secret than this worker");
    ck_assert_int_eq(job->process[0].joined, LS_PEER_LOST);
    assert_log_has(&job->process[0], "it has another secret");
    assert_log_has(&job->process[0], "1 connections with another secret were dropped");
    job_destroy(job);
}

SIDE_TEST(on_one_machine_no_secret_is_necessary, 0, 1)
{
    struct job *job = job_create(2);
    for (uint32_t i = 0; i < 2; i++)
        job->process[i].options.secret = NULL;
    job_run(job, 2, tell_what_it_sees);
    for (uint32_t i = 0; i < 2; i++)
        ck_assert_int_eq(job->process[i].joined, LS_OK);
    job_destroy(job);
}

SIDE_TEST(where_other_machines_reach_worker_0_a_secret_is_necessary, 0, 2)
{
    struct job *job = job_create(2);
    struct process *chief = &job->process[0];
    close(job->listener);
    for (uint32_t i = 0; i < 2; i++) {
        job->process[i].options.secret = NULL;
        job->process[i].options.insecure = _i;
        job->process[i].options.join_deadline_ns = 5 * SECOND;
    }
    chief->place.listen_fd = -1;
    chief->place.reached_from_outside = true;
    job_start_one(job, 0, tell_what_it_sees);
    if (_i)
        job_start_one(job, 1, tell_what_it_sees);
    job_wait(job, _i ? 2 : 1);
    ck_assert_int_eq(chief->joined, _i ? LS_OK : LS_USAGE);
    if (!_i)
        assert_log_has(chief, "give all workers one secret by LOCKSTEP_SECRET");
    job_destroy(job);
}

SIDE_TEST(a_short_secret_is_refused, 0, 1)
{
    struct job *job = job_create(2);
    job->process[0].options.secret = "secret";
    job_start_one(job, 0, tell_what_it_sees);
    crew_wait(&job->process[0].own);
    ck_assert_int_eq(job->process[0].joined, LS_USAGE);
    assert_log_has(&job->process[0], "has 6 letters: expected 16 to 4096");
    job_destroy(job);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "long") == 0) {
        side_test_count = 0; // that alone
        side_test_add(a_difference_is_told_although_somebody_is_missing, 0, 1);
    }
    return sides_run("join");
}
