// SPDX-License-Identifier: Apache-2.0
// Workers of an elastic cluster are killed, stopped and joined by new ones, and the others go on.
#include "tests/core/cluster/processes.h"

// What a process reports, in process->numbers.
enum {
    STEPS, // that it has done
    WORKERS, // now
    WORKER, // its number now
    GENERATION,
    WRONG, // things that must not be
    PAUSE, // the longest re-forming, in ns
    LOST, // workers, as the last change says
    JOINED,
    FORMER, // its number before the last change
    WAITING, // new workers that worker 0 sees
};

enum { TRAIN, END }; // job->go

struct message {
    uint64_t step;
    bool ends, reforms; // of worker 0
};

static enum ls_status take_over_state(struct ls_cluster *cluster, uint64_t *step)
{
    uint64_t all[MOST_PROCESSES];
    uint32_t most = 0;
    enum ls_status status = ls_cluster_gather_workers(cluster, step, sizeof(*step), all);
    for (uint32_t i = 1; !status && i < ls_cluster_workers(cluster); i++)
        most = all[i] > all[most] ? i : most;
    return status ? status : ls_cluster_broadcast(cluster, step, sizeof(*step), most);
}

static void note(struct process *process, struct ls_cluster *cluster)
{
    process->numbers[WORKERS] = ls_cluster_workers(cluster);
    process->numbers[WORKER] = ls_cluster_worker(cluster);
    process->numbers[GENERATION] = ls_cluster_generation(cluster);
    process->numbers[WRONG] += ls_cluster_world(cluster) < ls_cluster_workers(cluster);
    for (uint32_t i = 0; i < ls_cluster_world(cluster); i++)
        process->numbers[WRONG] +=
            ls_cluster_rank_workers(cluster)[i] >= ls_cluster_workers(cluster);
}

// Until the workers have formed anew and agree on the step; a loss in between begins it again.
static enum ls_status reform(struct process *process, struct ls_cluster *cluster, uint64_t *step)
{
    enum ls_status status = LS_PEER_LOST;
    for (int tries = 0; tries < 4 && status == LS_PEER_LOST; tries++) {
        struct ls_cluster_change change;
        const uint64_t begin = ls_clock_ns();
        const uint32_t number = ls_cluster_worker(cluster);
        status = ls_cluster_reform(cluster, process->options.deadline_ns / 4, &change);
        const uint64_t took = ls_clock_ns() - begin;
        if (status)
            return status;
        if (took > process->numbers[PAUSE])
            process->numbers[PAUSE] = took;
        process->numbers[LOST] = change.lost;
        process->numbers[JOINED] = change.joined;
        process->numbers[FORMER] = number;
        process->numbers[WRONG] +=
            change.former[ls_cluster_worker(cluster)] != number ||
            change.survivors + change.joined != ls_cluster_workers(cluster) ||
            change.generation != ls_cluster_generation(cluster);
        for (uint32_t i = 0; i < ls_cluster_workers(cluster); i++)
            process->numbers[WRONG] +=
                (change.former[i] == LS_NO_WORKER) != (i >= change.survivors) ||
                (i > 0 && i < change.survivors && change.former[i] <= change.former[i - 1]);
        note(process, cluster);
        status = take_over_state(cluster, step);
    }
    return status;
}

// Counts steps, each together with all others, until the test ends it.
static void train(struct process *process)
{
    struct ls_cluster *cluster = process_join(process);
    uint64_t step = 0;
    bool ends = false;
    if (!cluster)
        return;
    note(process, cluster);
    enum ls_status status =
        ls_cluster_generation(cluster) ? take_over_state(cluster, &step) : LS_OK;
    process->own.state = 1;
    while (!status && !ends) {
        struct message mine = {.step = step}, all[MOST_PROCESSES];
        ls_cluster_say(cluster, step, "all-reduce");
        if (ls_cluster_worker(cluster) == 0) {
            process->numbers[WAITING] = ls_cluster_waiting(cluster);
            mine.ends = process->job->go == END;
            mine.reforms = !mine.ends && process->numbers[WAITING] > 0;
        }
        status = ls_cluster_gather_workers(cluster, &mine, sizeof(mine), all);
        if (!status) {
            for (uint32_t i = 1; i < ls_cluster_workers(cluster); i++)
                process->numbers[WRONG] += all[i].step != all[0].step;
            ends = all[0].ends;
            process->numbers[STEPS] = ++step;
        }
        if (status == LS_PEER_LOST || (!status && all[0].reforms))
            status = reform(process, cluster, &step);
        nap_ms(1);
    }
    process->status = status;
    ls_cluster_close(cluster);
}

static struct job *create_elastic(uint32_t count, uint32_t least, uint32_t most)
{
    struct job *job = job_create(count);
    for (uint32_t i = 0; i < MOST_PROCESSES; i++) {
        job->process[i].options.least_workers = least;
        job->process[i].options.most_workers = most;
        job->process[i].options.count = 1 + i % 2;
        job->process[i].options.silence_ns = 3 * SECOND / 2;
        job->process[i].place.joins = i >= count;
    }
    return job;
}

static struct job *begin_elastic_job(uint32_t count, uint32_t least, uint32_t most,
                                     const char *name)
{
    struct job *job = create_elastic(count, least, most);
    for (uint32_t i = 0; i < count; i++)
        snprintf(job->process[i].place.job, sizeof(job->process[i].place.job), "%s", name);
    job_start(job, count, train);
    for (uint32_t i = 0; i < count; i++)
        crew_await(&job->process[i].own.state, 1);
    close(job->listener); // worker 0 has it alone, so it ends with worker 0
    job->listener = -1;
    return job;
}

static struct job *begin_elastic(uint32_t count, uint32_t least, uint32_t most)
{
    return begin_elastic_job(count, least, most, "");
}

static void kill_one(struct job *job, uint32_t index, int number)
{
    ck_assert_int_eq(kill(job->process[index].own.pid, number), 0);
}

static uint64_t read_number(const struct process *process, int which)
{
    return ((const volatile uint64_t *)process->numbers)[which];
}

// Until a process has come to a generation, and has done steps in it.
static void wait_for_generation(const struct process *process, uint64_t generation)
{
    const uint64_t end = ls_clock_ns() + 15 * SECOND;
    while (read_number(process, GENERATION) < generation && ls_clock_ns() < end)
        nap_ms(1);
    ck_assert_msg(read_number(process, GENERATION) >= generation, "process %u: generation %d: %s",
                  process->own.index, (int)read_number(process, GENERATION), process->own.log);
    const uint64_t steps = read_number(process, STEPS);
    while (read_number(process, STEPS) < steps + 3 && ls_clock_ns() < end)
        nap_ms(1);
    ck_assert_msg(read_number(process, STEPS) >= steps + 3, "process %u stands still: %s",
                  process->own.index, process->own.log);
}

// The processes of `indices` (ended by -1) have trained to the end, as workers 0, 1, ... in this
// order.
static void end_with(struct job *job, const int *indices)
{
    uint64_t count = 0, steps = 0;
    job->go = END;
    for (const int *index = indices; *index >= 0; index++, count++) {
        crew_wait(&job->process[(uint32_t)*index].own);
        if (count == 0)
            steps = job->process[*index].numbers[STEPS];
    }
    for (uint64_t i = 0; i < count; i++) {
        const struct process *process = &job->process[indices[i]];
        ck_assert_msg(process->own.exit_status == 0 && process->status == LS_OK,
                      "process %u: exit status %d, status %d: %s", process->own.index,
                      process->own.exit_status, (int)process->status, process->own.log);
        ck_assert_uint_eq(process->numbers[WRONG], 0);
        ck_assert_uint_eq(process->numbers[WORKERS], count);
        ck_assert_uint_eq(process->numbers[WORKER], i);
        ck_assert_uint_eq(process->numbers[STEPS], steps);
        ck_assert_ptr_null(strstr(process->own.log, "error: "));
    }
}

static void reap(struct job *job, uint32_t index)
{
    crew_wait(&job->process[index].own);
    ck_assert(WIFSIGNALED(job->process[index].own.exit_status));
}

// ---- Losses ----

SIDE_TEST(of_four_workers_three_go_on, 0, 1)
{
    struct job *job = begin_elastic(4, 2, 4);
    kill_one(job, 2, SIGKILL);
    reap(job, 2);
    for (uint32_t i = 0; i < 4; i++)
        if (i != 2)
            wait_for_generation(&job->process[i], 1);
    end_with(job, (const int[]){0, 1, 3, -1});
    for (uint32_t i = 0; i < 4; i++) {
        const struct process *process = &job->process[i];
        if (i == 2)
            continue;
        ck_assert_uint_eq(process->lost_calls, 1);
        ck_assert_uint_eq(process->numbers[LOST], 1);
        ck_assert_uint_eq(process->numbers[JOINED], 0);
        ck_assert_uint_eq(process->numbers[FORMER], i);
        ck_assert_uint_lt(process->numbers[PAUSE], 3 * SECOND);
        assert_log_has(process, "worker 2 (");
        assert_log_has(process, "its connection closed");
    }
    assert_log_has(&job->process[0], "continuing with 3 workers (1 lost, 0 new)");
    job_destroy(job);
}

SIDE_TEST(without_worker_0_the_next_one_takes_over, 0, 1)
{
    struct job *job = begin_elastic(3, 1, 3);
    kill_one(job, 0, SIGKILL);
    reap(job, 0);
    for (uint32_t i = 1; i < 3; i++)
        wait_for_generation(&job->process[i], 1);
    end_with(job, (const int[]){1, 2, -1});
    ck_assert_uint_lt(job->process[1].numbers[PAUSE], 3 * SECOND);
    assert_log_has(&job->process[1], "this worker takes over as worker 0");
    assert_log_has(&job->process[2], "worker 0 (");
    job_destroy(job);
}

SIDE_TEST(one_of_two_goes_on_alone, 0, 2)
{
    struct job *job = begin_elastic(2, 1, 2);
    kill_one(job, (uint32_t)_i, SIGKILL);
    reap(job, (uint32_t)_i);
    wait_for_generation(&job->process[!_i], 1);
    end_with(job, (const int[]){!_i, -1});
    job_destroy(job);
}

// Of five: two with worker 0, two without, and worker 0 with the one that should follow.
SIDE_TEST(two_are_lost_at_once, 0, 3)
{
    static const uint32_t victims[][2] = {{0, 3}, {1, 2}, {0, 1}};
    static const int left[][4] = {{1, 2, 4, -1}, {0, 3, 4, -1}, {2, 3, 4, -1}};
    struct job *job = begin_elastic(5, 2, 5);
    for (int k = 0; k < 2; k++)
        kill_one(job, victims[_i][k], SIGKILL);
    for (int k = 0; k < 2; k++)
        reap(job, victims[_i][k]);
    for (int k = 0; k < 3; k++)
        wait_for_generation(&job->process[left[_i][k]], 1);
    for (int k = 0; k < 3; k++)
        ck_assert_uint_lt(read_number(&job->process[left[_i][k]], PAUSE), 3 * SECOND);
    end_with(job, left[_i]);
    job_destroy(job);
}

SIDE_TEST(worker_0_is_lost_twice, 0, 1)
{
    struct job *job = begin_elastic(4, 1, 4);
    for (uint32_t victim = 0; victim < 2; victim++) {
        kill_one(job, victim, SIGKILL);
        reap(job, victim);
        for (uint32_t i = victim + 1; i < 4; i++)
            wait_for_generation(&job->process[i], victim + 1);
    }
    end_with(job, (const int[]){2, 3, -1});
    job_destroy(job);
}

static void give_up_soon(struct process *process)
{
    struct ls_cluster *cluster = process_join(process);
    struct message mine = {0}, all[MOST_PROCESSES];
    if (!cluster || ls_cluster_gather_workers(cluster, &mine, sizeof(mine), all))
        return;
    process->own.state = 1;
    ls_cluster_give_up(cluster, "its data cannot be read");
    ls_cluster_close(cluster);
}

SIDE_TEST(a_worker_that_gives_up_is_left_behind, 0, 2)
{
    struct job *job = create_elastic(3, 1, 3);
    for (uint32_t i = 0; i < 3; i++)
        job_start_one(job, i, (int)i == _i ? give_up_soon : train);
    for (int i = 0; i < 3; i++)
        if (i != _i)
            wait_for_generation(&job->process[i], 1);
    end_with(job, _i ? (const int[]){0, 2, -1} : (const int[]){1, 2, -1});
    assert_log_has(&job->process[2], "its data cannot be read");
    crew_wait(&job->process[(uint32_t)_i].own);
    job_destroy(job);
}

// The transport of worker _i has lost another one, of which the store knows nothing.
static void one_forms_anew(struct process *process)
{
    struct ls_cluster *cluster = process_join(process);
    struct ls_cluster_change change;
    if (!cluster)
        return;
    for (int i = 0; i < 10000 && !process->lost_calls; i++) {
        if ((int)process->own.index == process->job->victim)
            break;
        nap_ms(1);
    }
    process->status = ls_cluster_reform(cluster, 8 * SECOND, &change);
    note(process, cluster);
    ls_cluster_close(cluster);
}

SIDE_TEST(one_worker_calls_all_others_together, 0, 2)
{
    struct job *job = create_elastic(3, 1, 3);
    job->victim = _i;
    job_run(job, 3, one_forms_anew);
    for (uint32_t i = 0; i < 3; i++) {
        const struct process *process = &job->process[i];
        ck_assert_int_eq(process->status, LS_OK);
        ck_assert_uint_eq(process->lost_calls, (int)i != _i);
        ck_assert_uint_eq(process->numbers[GENERATION], 1);
        ck_assert_uint_eq(process->numbers[WORKERS], 3);
        if ((int)i != _i)
            assert_log_has(process, ") waits until all form anew");
    }
    job_destroy(job);
}

// ---- Stopped ones: the others cannot know whether they are dead ----

SIDE_TEST(a_stopped_worker_is_left_behind_and_learns_it, 0, 2)
{
    struct job *job = begin_elastic(3, 1, 3);
    const uint32_t next = _i ? 0 : 1;
    kill_one(job, (uint32_t)_i, SIGSTOP);
    for (int i = 0; i < 3; i++)
        if (i != _i)
            wait_for_generation(&job->process[i], 1);
    kill_one(job, (uint32_t)_i, SIGCONT);
    crew_wait(&job->process[(uint32_t)_i].own);
    ck_assert_int_eq(job->process[_i].own.exit_status, 0);
    ck_assert_int_eq(job->process[_i].status, LS_PEER_LOST);
    assert_log_has(&job->process[_i], _i ? "the others go on without this worker"
                                         : "only 1 of 3 workers is left here, and the others are "
                                           "perhaps cut off");
    wait_for_generation(&job->process[2], 1);
    end_with(job, (const int[]){(int)next, 2, -1});
    job_destroy(job);
}

SIDE_TEST(a_worker_that_is_cut_off_is_left_behind_and_ends, 0, 1)
{
    struct job *job = create_elastic(3, 1, 3);
    const pid_t relay = job_start_relay(job, 2);
    for (uint32_t i = 0; i < 3; i++)
        job->process[i].options.deadline_ns = 2 * SECOND; // a quarter of it for forming anew
    job_start(job, 3, train);
    for (uint32_t i = 0; i < 3; i++)
        crew_await(&job->process[i].own.state, 1);
    job->cut = 1;
    for (uint32_t i = 0; i < 2; i++)
        wait_for_generation(&job->process[i], 1);
    crew_wait(&job->process[2].own);
    ck_assert_int_eq(job->process[2].status, LS_PEER_LOST);
    assert_log_has(&job->process[2], "worker 1 did not answer at ");
    assert_log_has(&job->process[2], "only 1 of 3 workers is left here, and the others are perhaps "
                                     "cut off and go on without them: this part ends; not here: "
                                     "worker 0, worker 1");
    end_with(job, (const int[]){0, 1, -1});
    kill(relay, SIGKILL);
    ck_assert_int_eq(waitpid(relay, NULL, 0), relay);
    job_destroy(job);
}

// ---- Too few ----

SIDE_TEST(fewer_than_the_least_end_with_an_error, 0, 2)
{
    struct job *job = create_elastic(3, 3, 4);
    for (uint32_t i = 0; i < 3; i++)
        job->process[i].options.deadline_ns = 4 * SECOND; // a quarter of it for forming anew
    job_start(job, 3, train);
    for (uint32_t i = 0; i < 3; i++)
        crew_await(&job->process[i].own.state, 1);
    kill_one(job, (uint32_t)_i, SIGKILL);
    for (uint32_t i = 0; i < 3; i++) {
        crew_wait(&job->process[i].own);
        if ((int)i == _i)
            continue;
        ck_assert_int_eq(job->process[i].status, LS_PEER_LOST);
        assert_log_has(&job->process[i], "2 workers are left, fewer than the 3 of --elastic=3:4, "
                                         "and no new ones came within 1 s");
    }
    assert_log_has(&job->process[_i ? 0 : 1], "waiting for 1 new worker to continue, ");
    job_destroy(job);
}

SIDE_TEST(a_new_worker_replaces_a_lost_one, 0, 2)
{
    struct job *job = begin_elastic(3, 3, 3);
    kill_one(job, (uint32_t)_i, SIGKILL);
    reap(job, (uint32_t)_i);
    nap_ms(200);
    job_start_one(job, 3, train);
    for (int i = 0; i < 4; i++)
        if (i != _i)
            wait_for_generation(&job->process[i], 1);
    end_with(job, _i ? (const int[]){0, 2, 3, -1} : (const int[]){1, 2, 3, -1});
    ck_assert_uint_eq(job->process[2].numbers[JOINED], 1);
    job_destroy(job);
}

// ---- New ones ----

// _i == 0: by LOCKSTEP_JOIN, and it does not know the name of the job; _i == 1: it comes when the
// training has begun.
SIDE_TEST(a_new_worker_comes_in, 0, 2)
{
    struct job *job = begin_elastic_job(2, 1, 3, "job 7");
    if (_i) {
        job->process[2].place.joins = false;
        job->process[2].place.number = 1;
        snprintf(job->process[2].place.job, sizeof(job->process[2].place.job), "job 7");
    }
    job_start_one(job, 2, train);
    for (uint32_t i = 0; i < 3; i++)
        wait_for_generation(&job->process[i], 1);
    end_with(job, (const int[]){0, 1, 2, -1});
    ck_assert_uint_eq(job->process[0].numbers[JOINED], 1);
    ck_assert_uint_eq(job->process[0].numbers[LOST], 0);
    ck_assert_uint_eq(job->process[0].lost_calls, 0);
    ck_assert_uint_lt(job->process[0].numbers[PAUSE], 3 * SECOND);
    job_destroy(job);
}

SIDE_TEST(one_worker_alone_grows, 0, 1)
{
    struct job *job = begin_elastic(1, 1, 3);
    for (uint32_t i = 1; i < 3; i++) {
        job_start_one(job, i, train);
        wait_for_generation(&job->process[0], i);
        wait_for_generation(&job->process[i], i);
    }
    end_with(job, (const int[]){0, 1, 2, -1});
    job_destroy(job);
}

SIDE_TEST(a_new_worker_comes_in_while_another_one_dies, 0, 2)
{
    struct job *job = begin_elastic(4, 1, 4);
    job_start_one(job, 4, train);
    nap_ms(20);
    kill_one(job, (uint32_t)_i, SIGKILL);
    reap(job, (uint32_t)_i);
    for (int i = 0; i < 5; i++)
        if (i != _i)
            wait_for_generation(&job->process[i], 1);
    for (int tries = 0; tries < 3000 && read_number(&job->process[3], WORKERS) < 4; tries++)
        nap_ms(1);
    end_with(job, _i ? (const int[]){0, 2, 3, 4, -1} : (const int[]){1, 2, 3, 4, -1});
    job_destroy(job);
}

// The first worker 0 is stopped, and so keeps the address where new workers come; then it ends.
SIDE_TEST(new_workers_find_the_store_that_took_over, 0, 1)
{
    struct job *job = begin_elastic(3, 1, 3);
    kill_one(job, 0, SIGSTOP);
    for (uint32_t i = 1; i < 3; i++)
        wait_for_generation(&job->process[i], 1);
    job_start_one(job, 3, train);
    nap_ms(300);
    kill_one(job, 0, SIGKILL);
    for (uint32_t i = 1; i < 4; i++)
        wait_for_generation(&job->process[i], 2);
    end_with(job, (const int[]){1, 2, 3, -1});
    assert_log_has(&job->process[1], "new workers join at 127.0.0.1:");
    reap(job, 0);
    job_destroy(job);
}

SIDE_TEST(there_is_no_room_for_more_than_the_most, 0, 1)
{
    struct job *job = begin_elastic(2, 1, 2);
    job->process[2].options.join_deadline_ns = SECOND / 2;
    job_start_one(job, 2, train);
    crew_wait(&job->process[2].own);
    ck_assert_int_eq(job->process[2].joined, LS_PEER_LOST);
    assert_log_has(&job->process[2], "did not take this worker in within");
    end_with(job, (const int[]){0, 1, -1});
    ck_assert_uint_eq(job->process[0].numbers[GENERATION], 0);
    job_destroy(job);
}

SIDE_TEST(a_new_worker_that_differs_is_refused_alone, 0, 1)
{
    struct job *job = begin_elastic(2, 1, 4);
    job->process[2].agreement[0].value = "mlp";
    job_start_one(job, 2, train);
    crew_wait(&job->process[2].own);
    ck_assert_int_eq(job->process[2].joined, LS_USAGE);
    assert_log_has(&job->process[2], "the new worker (");
    assert_log_has(&job->process[2], ") has --model mlp, but worker 0 (");
    end_with(job, (const int[]){0, 1, -1});
    ck_assert_uint_eq(job->process[1].numbers[GENERATION], 0);
    job_destroy(job);
}

SIDE_TEST(a_training_that_is_not_elastic_takes_nobody_in, 0, 1)
{
    struct job *job = create_elastic(2, 0, 0);
    job_start(job, 2, train);
    for (uint32_t i = 0; i < 2; i++)
        crew_await(&job->process[i].own.state, 1);
    job->process[2].options.least_workers = job->process[2].options.most_workers = 1;
    job_start_one(job, 2, train);
    job_start_one(job, 3, train);
    for (uint32_t i = 2; i < 4; i++) {
        crew_wait(&job->process[i].own);
        ck_assert_int_eq(job->process[i].joined, LS_USAGE);
    }
    assert_log_has(&job->process[2], "worker 0 takes in no new workers");
    assert_log_has(&job->process[3], "LOCKSTEP_JOIN: only a training with --elastic=MIN:MAX");
    end_with(job, (const int[]){0, 1, -1});
    job_destroy(job);
}

SIDE_TEST(numbers_that_make_no_sense_are_refused, 0, 4)
{
    static const uint32_t wrong[][2] = {{0, 2}, {3, 2}, {3, 4}, {1, 1}};
    struct job *job = create_elastic(2, wrong[_i][0], wrong[_i][1]);
    job_start_one(job, 0, train);
    crew_wait(&job->process[0].own);
    ck_assert_int_eq(job->process[0].joined, LS_USAGE);
    assert_log_has(&job->process[0], _i < 2 ? "expected MIN:MAX, 1 <= MIN <= MAX"
                                            : "but the training begins with 2 workers");
    job_destroy(job);
}

int main(void)
{
    return sides_run("elastic");
}
