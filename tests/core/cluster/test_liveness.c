// SPDX-License-Identifier: Apache-2.0
// Workers that are killed, stopped, cut off or end: what the others learn, and when.
#include "core/cluster/frames.h"
#include "core/cluster/liveness.h"
#include "core/cluster/member.h"
#include "tests/core/cluster/processes.h"

#include <pthread.h>

// Says where it is, and then waits in a barrier that job->victim never comes to: that one stays
// outside until it is killed.
static void wait_for_a_victim(struct process *process)
{
    struct ls_cluster *cluster = process_join(process);
    if (!cluster)
        return;
    ls_cluster_say(cluster, 117, "bucket 0");
    nap_ms(1200); // two beats take that along, to the store and from there
    process->own.state = 1;
    if ((int)process->own.index == process->job->victim) {
        while (ls_cluster_check(cluster, NULL) == LS_OK)
            nap_ms(5);
        process->status = ls_cluster_barrier(cluster);
    } else {
        process->status = ls_cluster_barrier(cluster);
    }
    process->numbers[0] = ls_clock_ns();
    const char *text = "";
    process->numbers[1] = (uint64_t)ls_cluster_check(cluster, &text);
    process->numbers[2] = strstr(process->own.log, text) != NULL && *text;
    ls_cluster_close(cluster);
    process->numbers[3] = ls_clock_ns();
}

// All but the victim lose it, with one sentence, soon.
static void assert_lost(const struct job *job, uint32_t victim, uint64_t since_ns, uint64_t most_ns,
                        const char *why)
{
    char text[64];
    snprintf(text, sizeof(text), "worker %u (", victim);
    for (uint32_t i = 0; i < job->count; i++) {
        const struct process *process = &job->process[i];
        if (i == victim)
            continue;
        ck_assert_int_eq(process->joined, LS_OK);
        ck_assert_int_eq(process->status, LS_PEER_LOST);
        ck_assert_msg(process->numbers[0] - since_ns < most_ns, "worker %u learned it after %g s",
                      i, (double)(process->numbers[0] - since_ns) * 1e-9);
        ck_assert_uint_eq(process->numbers[1], LS_PEER_LOST);
        ck_assert_uint_eq(process->numbers[2], 1);
        ck_assert_uint_lt(process->numbers[3] - process->numbers[0], 10 * SECOND); // closing
        ck_assert_uint_eq(process->lost_calls, 1);
        ck_assert_ptr_nonnull(strstr(process->own.log, process->lost_text));
        assert_log_has(process, text);
        assert_log_has(process, ") lost, last heard of in step 117, bucket 0: ");
        assert_log_has(process, why);
        ck_assert_ptr_eq(strchr(process->own.log, '\n') + 1,
                         process->own.log + strlen(process->own.log));
    }
}

static void wait_for_all(struct job *job)
{
    for (uint32_t i = 0; i < job->count; i++)
        crew_await(&job->process[i].own.state, 1);
    nap_ms(50);
}

// Two jobs at once, because most of the time is spent waiting: one loses worker 0, the other
// worker 1.
static void start_two(struct job *jobs[2], uint64_t silence_ns)
{
    for (int victim = 0; victim < 2; victim++) {
        jobs[victim] = job_create(4);
        jobs[victim]->victim = victim;
        for (uint32_t i = 0; i < 4; i++)
            jobs[victim]->process[i].options.silence_ns = silence_ns;
        job_start(jobs[victim], 4, wait_for_a_victim);
    }
    for (int victim = 0; victim < 2; victim++)
        wait_for_all(jobs[victim]);
}

static void signal_victim(struct job *job, int number)
{
    job->begin_ns = ls_clock_ns();
    ck_assert_int_eq(kill(job->process[job->victim].own.pid, number), 0);
}

static void wait_for_others(struct job *job)
{
    for (uint32_t i = 0; i < job->count; i++)
        if ((int)i != job->victim)
            crew_wait(&job->process[i].own);
}

SIDE_TEST(a_killed_worker_is_lost_at_once, 0, 1)
{
    struct job *jobs[2];
    start_two(jobs, 2 * SECOND);
    for (uint32_t victim = 0; victim < 2; victim++) {
        signal_victim(jobs[victim], SIGKILL);
        wait_for_others(jobs[victim]);
        crew_wait(&jobs[victim]->process[victim].own);
        assert_lost(jobs[victim], victim, jobs[victim]->begin_ns, 2 * SECOND,
                    "its connection closed");
        job_destroy(jobs[victim]);
    }
}

SIDE_TEST(a_stopped_worker_is_lost_after_its_silence_and_learns_it, 0, 1)
{
    struct job *jobs[2];
    start_two(jobs, 3 * SECOND / 2);
    for (int victim = 0; victim < 2; victim++)
        signal_victim(jobs[victim], SIGSTOP);
    for (uint32_t victim = 0; victim < 2; victim++) {
        struct job *job = jobs[victim];
        wait_for_others(job);
        assert_lost(job, victim, job->begin_ns, 4 * SECOND, "so it is stopped or cut off");
        kill(job->process[victim].own.pid, SIGCONT);
        crew_wait(&job->process[victim].own);
        ck_assert_int_eq(job->process[victim].own.exit_status, 0);
        ck_assert_int_eq(job->process[victim].status, LS_PEER_LOST);
        job_destroy(job);
    }
}

SIDE_TEST(a_worker_that_is_cut_off_is_lost_and_loses_the_others, 0, 1)
{
    struct job *job = job_create(3);
    const pid_t relay = job_start_relay(job, 2);
    job->victim = 2;
    for (uint32_t i = 0; i < 3; i++)
        job->process[i].options.silence_ns = 3 * SECOND / 2;
    job_start(job, 3, wait_for_a_victim);
    wait_for_all(job);
    job->begin_ns = ls_clock_ns();
    job->cut = 1;
    job_wait(job, 3);
    assert_lost(job, 2, job->begin_ns, 4 * SECOND, "so it is stopped or cut off");
    const struct process *victim = &job->process[2];
    ck_assert_int_eq(victim->status, LS_PEER_LOST);
    ck_assert_uint_lt(victim->numbers[0] - job->begin_ns, 4 * SECOND);
    ck_assert_uint_eq(victim->lost_calls, 1);
    assert_log_has(victim, "worker 0 (");
    assert_log_has(victim, ") lost, last heard of in step 117, bucket 0: it was silent for ");
    kill(relay, SIGKILL);
    ck_assert_int_eq(waitpid(relay, NULL, 0), relay);
    job_destroy(job);
}

SIDE_TEST(a_job_that_was_stopped_as_a_whole_goes_on, 0, 1)
{
    struct job *job = job_create(3);
    for (uint32_t i = 0; i < 3; i++)
        job->process[i].options.silence_ns = 3 * SECOND / 2;
    job_start(job, 3, stay_a_while);
    for (uint32_t i = 0; i < 3; i++)
        crew_await(&job->process[i].own.state, 1);
    for (uint32_t i = 0; i < 3; i++)
        kill(job->process[i].own.pid, SIGSTOP);
    nap_ms(1900);
    for (uint32_t i = 0; i < 3; i++)
        kill(job->process[i].own.pid, SIGCONT);
    nap_ms(300);
    job->go = 1;
    job_wait(job, 3);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_int_eq(job->process[i].status, LS_OK);
        assert_log_empty(&job->process[i]);
    }
    job_destroy(job);
}

static void end_at_different_times(struct process *process)
{
    struct ls_cluster *cluster = process_join(process);
    if (!cluster)
        return;
    process->status = ls_cluster_barrier(cluster);
    nap_ms(process->own.index == (uint32_t)process->job->victim ? 0 : 700);
    process->numbers[1] = (uint64_t)ls_cluster_check(cluster, NULL);
    ls_cluster_close(cluster);
}

SIDE_TEST(workers_that_end_in_order_are_not_lost, 0, 2)
{
    struct job *job = job_create(3);
    job->victim = _i;
    job_run(job, 3, end_at_different_times);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_int_eq(job->process[i].status, LS_OK);
        ck_assert_uint_eq(job->process[i].numbers[1], LS_OK);
        ck_assert_uint_eq(job->process[i].lost_calls, 0);
        assert_log_empty(&job->process[i]);
    }
    job_destroy(job);
}

static void end_too_early(struct process *process)
{
    struct ls_cluster *cluster = process_join(process);
    if (!cluster)
        return;
    if ((int)process->own.index != process->job->victim) {
        nap_ms(process->own.index == 1 ? 0 : 300);
        process->status = ls_cluster_barrier(cluster);
    }
    ls_cluster_close(cluster);
}

SIDE_TEST(who_waits_for_a_worker_that_has_ended_is_told, 0, 3)
{
    struct job *job = job_create(3);
    job->victim = _i;
    job_run(job, 3, end_too_early);
    char text[64];
    snprintf(text, sizeof(text), "worker %d (", _i);
    for (int i = 0; i < 3; i++) {
        if (i == _i)
            continue;
        ck_assert_int_eq(job->process[i].status, LS_PEER_LOST);
        assert_log_has(&job->process[i], text);
        assert_log_has(&job->process[i], ") has ended, but ");
    }
    job_destroy(job);
}

static void one_gives_up(struct process *process)
{
    struct ls_cluster *cluster = process_join(process);
    if (!cluster)
        return;
    if (process->own.index == 1) {
        ls_cluster_say(cluster, LS_NO_STEP, "reading data");
        nap_ms(1000); // three beats: one of them says so
        ls_cluster_give_up(cluster, "mnist: file is too short");
        process->status = ls_cluster_barrier(cluster);
    } else {
        process->status = ls_cluster_barrier(cluster);
    }
    ls_cluster_close(cluster);
}

SIDE_TEST(a_worker_that_gives_up_tells_the_others_why, 0, 1)
{
    struct job *job = job_create(3);
    job_run(job, 3, one_gives_up);
    for (uint32_t i = 0; i < 3; i += 2) {
        ck_assert_int_eq(job->process[i].status, LS_PEER_LOST);
        assert_log_has(&job->process[i],
                       ") lost, last heard of in reading data: mnist: file is too short");
    }
    ck_assert_int_eq(job->process[1].status, LS_FAILED);
    assert_log_empty(&job->process[1]);
    job_destroy(job);
}

static void one_does_not_come(struct process *process)
{
    struct ls_cluster *cluster = process_join(process);
    if (!cluster)
        return;
    ls_cluster_say(cluster, 3, "forward");
    if (process->own.index == 2) {
        while (ls_cluster_check(cluster, NULL) == LS_OK)
            nap_ms(5);
        process->status = ls_cluster_check(cluster, NULL);
    } else {
        process->status = ls_cluster_barrier(cluster);
    }
    ls_cluster_close(cluster);
}

SIDE_TEST(a_worker_that_does_not_come_to_a_barrier_is_named_at_the_deadline, 0, 1)
{
    struct job *job = job_create(3);
    for (uint32_t i = 0; i < 3; i++)
        job->process[i].options.deadline_ns = SECOND;
    job_run(job, 3, one_does_not_come);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_int_eq(job->process[i].status, LS_PEER_LOST);
        assert_log_has(&job->process[i], "worker 2 (");
        assert_log_has(&job->process[i],
                       "lost, last heard of in step 3, forward: it did not come to the barrier "
                       "that worker ");
    }
    job_destroy(job);
}

// A worker whose store is the test.
static struct ls_member *open_member(const struct ls_cluster_options *options,
                                     struct ls_connection *store)
{
    struct ls_connection worker;
    struct ls_member *member = NULL;
    uint8_t key[LS_SECURE_KEY];
    ck_assert_int_eq(ls_secure_key(options->secret, key), LS_OK);
    ck_assert_int_eq(ls_connection_pair(key, &worker, store), LS_OK);
    ck_assert_int_eq(ls_member_open(&worker, options, -1, &member), LS_OK);
    return member;
}

static void send_from_store(struct ls_connection *store, const struct ls_frame *frame)
{
    ck_assert_int_eq(ls_connection_send(store, frame->data, frame->bytes), LS_OK);
    ck_assert_int_eq(ls_connection_flush(store), LS_OK);
}

// Otherwise it would depend on which thread runs first whether joining fails, or the first call
// after it.
SIDE_TEST(who_is_lost_right_after_the_beginning_is_lost_by_the_next_call, 0, 1)
{
    static struct ls_frame frame;
    static struct process process;
    struct ls_worker_place place = {.number = 1, .workers = 2, .listen_fd = -1};
    const struct ls_cluster_options options = {.place = &place,
                                               .count = 1,
                                               .deadline_ns = 20 * SECOND,
                                               .silence_ns = 20 * SECOND,
                                               .lost = process_note_lost,
                                               .context = &process};
    struct ls_connection store;
    const struct ls_welcome *welcome;
    struct ls_member *member = open_member(&options, &store);
    const uint8_t *result;
    size_t bytes;
    ls_log_set_writer(crew_note_line, &process.own);
    ls_frame_begin(&frame, LS_FRAME_WELCOME, 0);
    for (uint32_t i = 1; i <= 3; i++)
        ls_frame_put_u32(&frame, i == 3 ? 0 : i); // number, workers, survivors
    ls_frame_put_text(&frame, "east");
    ls_frame_put_u8(&frame, 0);
    for (uint32_t i = 0; i < 2; i++) {
        ls_frame_put_u32(&frame, 1 + i);
        ls_frame_put_u32(&frame, 0);
    }
    send_from_store(&store, &frame);
    ls_frame_begin(&frame, LS_FRAME_LOST, 0);
    ls_frame_put_u32(&frame, LS_PEER_LOST);
    ls_frame_put_u32(&frame, 0);
    ls_frame_put_text(&frame, "worker 0 (east) lost: it was only a test");
    send_from_store(&store, &frame);
    for (int i = 0; i < 20000 && !process.lost_calls; i++)
        nap_ms(1);
    ck_assert_uint_eq(process.lost_calls, 1);
    ck_assert_int_eq(ls_member_wait_welcome(member, 20 * SECOND, &welcome), LS_OK);
    ck_assert_uint_eq(welcome->counts[1], 2);
    ck_assert_int_eq(
        ls_member_exchange(member, LS_OPERATION_BARRIER, 0, 0, NULL, 0, &result, &bytes),
        LS_PEER_LOST);
    ls_log_set_writer(NULL, NULL);
    assert_log_has(&process, "worker 0 (east) lost: it was only a test");
    ls_member_close(member);
    ls_connection_finish(&store);
}

// ---- What a worker says ----

SIDE_TEST(what_was_said_last_is_read, 0, 1)
{
    struct ls_said said = {0};
    struct ls_spot spot = {.step = 1};
    char text[96];
    ls_said_read(&said, &spot);
    ck_assert_uint_eq(spot.step, LS_NO_STEP);
    ck_assert_str_eq(spot.where, "");
    ls_said_write(&said, 117, "bucket 0");
    ls_said_write(&said, 118, "a text that is longer than forty-seven letters, so it is cut");
    ls_said_read(&said, &spot);
    ck_assert_uint_eq(spot.step, 118);
    ck_assert_str_eq(spot.where, "a text that is longer than forty-seven letters,");
    ls_said_write(&said, 119, NULL);
    ls_said_read(&said, &spot);
    ls_spot_text(&spot, text, sizeof(text));
    ck_assert_str_eq(text, " in step 119");
}

static void *write_spots(void *said)
{
    static const char *const texts[] = {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                        "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"};
    for (uint64_t i = 0; i < 20000; i++)
        ls_said_write(said, i % 2, texts[i % 2]);
    return NULL;
}

SIDE_TEST(what_is_read_was_written_by_one_call, 0, 1)
{
    struct ls_said said = {0};
    pthread_t writers[2];
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&writers[i], NULL, write_spots, &said), 0);
    for (int i = 0; i < 20000; i++) {
        struct ls_spot spot = {.step = LS_NO_STEP};
        ls_said_read(&said, &spot);
        for (size_t k = 0; spot.step != LS_NO_STEP && k < LS_WHERE_BYTES - 1; k++)
            if (spot.where[k] != (spot.step ? 'b' : 'a'))
                ck_abort_msg("step %d: %s", (int)spot.step, spot.where);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(writers[i], NULL);
}

SIDE_TEST(a_clock_of_its_own_does_not_count_what_it_did_not_see, 0, 1)
{
    struct ls_own_clock clock = {0};
    ck_assert_uint_eq(ls_own_clock_look(&clock, SECOND), 0);
    clock.seen_ns -= 10 * SECOND; // as if it had not run for so long
    ck_assert_uint_eq(ls_own_clock_look(&clock, SECOND), SECOND);
    ck_assert_uint_eq(clock.now_ns, SECOND);
    ck_assert_uint_lt(ls_own_clock_look(&clock, 20 * SECOND), 10 * SECOND);
}

int main(void)
{
    return sides_run("liveness");
}
