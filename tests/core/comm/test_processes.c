// SPDX-License-Identifier: Apache-2.0
// Communicators between processes: every operation, at once and as works, among all processes and
// among some.
#include "core/base/dtype.h"
#include "core/plugin/device.h"
#include "tests/core/comm/processes.h"
#include "tests/support/suite.h"

#include <pthread.h>

#define MILLION 1000003
#define LARGE_DTYPES 2

static const struct dtype {
    const char *name;
    size_t bytes;
} dtypes[] = {{"float32", 4},  {"uint8", 1}, {"float64", 8}, {"float16", 2},
              {"bfloat16", 2}, {"int32", 4}, {"int64", 8}};
#define DTYPES (sizeof(dtypes) / sizeof(*dtypes))
static const uint64_t counts[] = {0, 1, 63, 64, 65, MILLION};

// Small numbers that every dtype has exactly, also summed up or multiplied over three ranks.
static int number(uint32_t rank, uint64_t index)
{
    return (int)((index + rank) % 3 + 1);
}

// The 16-bit patterns of 0 to 27, which float16 and bfloat16 have exactly.
static uint16_t half_bits(int value, bool brain)
{
    union {
        float number;
        uint32_t bits;
    } whole = {.number = (float)value};
    if (brain)
        return (uint16_t)(whole.bits >> 16);
    if (!value)
        return 0;
    const uint32_t exponent = (whole.bits >> 23) - 127 + 15, fraction = whole.bits >> 13 & 0x3ff;
    return (uint16_t)(exponent << 10 | fraction);
}

// The bits of a value.
static uint64_t bits_of(const struct dtype *dtype, int value)
{
    uint64_t bits = 0;
    const float single = (float)value;
    const double wide = value;
    if (strcmp(dtype->name, "float32") == 0)
        memcpy(&bits, &single, sizeof(single));
    else if (strcmp(dtype->name, "float64") == 0)
        memcpy(&bits, &wide, sizeof(wide));
    else if (strstr(dtype->name, "float16"))
        bits = half_bits(value, dtype->name[0] == 'b');
    else
        bits = (uint64_t)value;
    return bits;
}

// Values that come again after three elements.
static void fill(void *values, uint64_t count, const struct dtype *dtype, const int three[3])
{
    uint64_t bits[3];
    for (int i = 0; i < 3; i++)
        bits[i] = bits_of(dtype, three[i]);
    for (uint64_t i = 0; i < count; i++)
        if (dtype->bytes == 1)
            ((uint8_t *)values)[i] = (uint8_t)bits[i % 3];
        else if (dtype->bytes == 2)
            ((uint16_t *)values)[i] = (uint16_t)bits[i % 3];
        else if (dtype->bytes == 4)
            ((uint32_t *)values)[i] = (uint32_t)bits[i % 3];
        else
            ((uint64_t *)values)[i] = bits[i % 3];
}

static bool is_filled(const void *values, uint64_t count, const struct dtype *dtype,
                      const int three[3])
{
    const uint64_t bytes = count * dtype->bytes;
    void *expected = malloc(bytes + 1);
    if (!expected)
        return false;
    fill(expected, count, dtype, three);
    const bool same = memcmp(values, expected, bytes) == 0;
    free(expected);
    return same;
}

static int reduced(const char *reduction, uint32_t size, uint64_t index)
{
    int sum = 0, product = 1, least = 9, most = 0;
    for (uint32_t i = 0; i < size; i++) {
        const int value = number(i, index);
        sum += value;
        product *= value;
        least = value < least ? value : least;
        most = value > most ? value : most;
    }
    return strcmp(reduction, "sum") == 0       ? sum
           : strcmp(reduction, "product") == 0 ? product
           : strcmp(reduction, "min") == 0     ? least
                                               : most;
}

// ---- The operations ----

// Each call at once, or as a work.
static enum ls_status finish(enum ls_status status, struct ls_comm_work *const *work)
{
    if (status)
        return status;
    status = ls_comm_work_wait(*work, 60);
    ls_comm_work_free(*work);
    return status;
}

static void numbers(uint32_t rank, int out[3])
{
    for (uint64_t i = 0; i < 3; i++)
        out[i] = number(rank, i);
}

static int check_reductions(struct ls_comm *comm, bool works, const struct dtype *dtype,
                            uint64_t count, void *values)
{
    static const char *const reductions[] = {"sum", "min", "max", "product"};
    const uint32_t rank = ls_comm_rank(comm), size = ls_comm_size(comm);
    struct ls_comm_work *work = NULL;
    int own[3], all[3];
    numbers(rank, own);
    for (size_t k = 0; k < 4 && (k == 0 || count < MILLION); k++) {
        for (uint64_t i = 0; i < 3; i++)
            all[i] = reduced(reductions[k], size, i);
        fill(values, count, dtype, own);
        NEED(!(works ? finish(ls_comm_start_all_reduce(comm, values, count, dtype->name,
                                                       reductions[k], &work),
                              &work)
                     : ls_comm_all_reduce(comm, values, count, dtype->name, reductions[k])));
        NEED(is_filled(values, count, dtype, all));
    }
    for (uint64_t i = 0; i < 3; i++)
        all[i] = reduced("sum", size, i);
    fill(values, count, dtype, own);
    NEED(!(works ? finish(ls_comm_start_reduce(comm, values, count, dtype->name, "sum", size - 1,
                                               &work),
                          &work)
                 : ls_comm_reduce(comm, values, count, dtype->name, "sum", size - 1)));
    NEED(rank < size - 1 || is_filled(values, count, dtype, all));
    return 0;
}

static int check_moves(struct ls_comm *comm, bool works, const struct dtype *dtype, uint64_t count,
                       void *mine, char *all)
{
    static const int zeros[3] = {0};
    const uint32_t rank = ls_comm_rank(comm), size = ls_comm_size(comm);
    const uint64_t bytes = count * dtype->bytes;
    struct ls_comm_work *work = NULL;
    int own[3], sums[3], its[3];
    numbers(7, its);
    fill(mine, count, dtype, rank == 1 ? its : zeros);
    NEED(!(works ? finish(ls_comm_start_broadcast(comm, mine, count, dtype->name, 1, &work), &work)
                 : ls_comm_broadcast(comm, mine, count, dtype->name, 1)));
    NEED(is_filled(mine, count, dtype, its));
    numbers(rank, own);
    fill(mine, count, dtype, own);
    NEED(!(works
               ? finish(ls_comm_start_all_gather(comm, mine, count, dtype->name, all, &work), &work)
               : ls_comm_all_gather(comm, mine, count, dtype->name, all)));
    for (uint32_t i = 0; i < size; i++) {
        numbers(i, its);
        NEED(is_filled(all + i * bytes, count, dtype, its));
        fill(all + i * bytes, count, dtype, own);
    }
    NEED(!(works ? finish(ls_comm_start_reduce_scatter(comm, all, count, dtype->name, "sum", mine,
                                                       &work),
                          &work)
                 : ls_comm_reduce_scatter(comm, all, count, dtype->name, "sum", mine)));
    for (uint64_t i = 0; i < 3; i++)
        sums[i] = reduced("sum", size, i);
    NEED(is_filled(mine, count, dtype, sums));
    for (uint32_t i = 0; i < size; i++) { // which are the caller's
        NEED(is_filled(all + i * bytes, count, dtype, own));
        fill(all + i * bytes, count, dtype, (const int[]){(int)rank, (int)i, 1});
    }
    NEED(!(works
               ? finish(ls_comm_start_all_to_all(comm, all, count, dtype->name, all, &work), &work)
               : ls_comm_all_to_all(comm, all, count, dtype->name, all)));
    for (uint32_t i = 0; i < size; i++)
        NEED(is_filled(all + i * bytes, count, dtype, (const int[]){(int)i, (int)rank, 1}));
    return 0;
}

// Memory that the others reach (a `job`), or ordinary memory.
static void *allocate(struct ls_job *job, uint64_t bytes)
{
    void *memory = NULL;
    if (job && ls_job_allocate(job, bytes, &memory))
        return NULL;
    return job ? memory : malloc(bytes);
}

static void release(struct ls_job *job, void *memory)
{
    if (job)
        ls_job_free(memory);
    else
        free(memory);
}

static int check_all(struct ls_comm *comm, struct ls_job *job, bool works)
{
    void *mine = allocate(job, MILLION * 8);
    char *all = allocate(job, (uint64_t)MILLION * 8 * ls_comm_size(comm));
    struct ls_comm_work *work = NULL;
    NEED(mine && all);
    for (size_t d = 0; d < DTYPES; d++)
        for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
            if (counts[c] == MILLION && d >= LARGE_DTYPES)
                continue;
            int line = check_reductions(comm, works, &dtypes[d], counts[c], mine);
            if (!line)
                line = check_moves(comm, works, &dtypes[d], counts[c], mine, all);
            NEED(!(works ? finish(ls_comm_start_barrier(comm, &work), &work)
                         : ls_comm_barrier(comm)));
            if (line)
                return line;
        }
    release(job, mine);
    release(job, all);
    return 0;
}

static const char *collective;

static int do_everything(struct hand *hand)
{
    struct ls_comm *comm;
    TRY(join_job(hand));
    NEED(!ls_comm_open(
        &(struct ls_comm_options){
            .job = hand->job, .collective = collective, .transport = crew_transport, .name = "all"},
        &comm));
    NEED(ls_comm_rank(comm) == hand->rank && ls_comm_size(comm) == hand->size);
    int line = check_all(comm, NULL, false);
    if (!line)
        line = check_all(comm, NULL, true);
    if (!line)
        line = check_all(comm, hand->job, true);
    if (!line) // reached on one side only
        line = check_all(comm, hand->rank % 2 ? hand->job : NULL, false);
    if (line)
        return line;
    char about[160];
    snprintf(about, sizeof(about), "%s over %.*s, %u ranks, verified", collective,
             (int)(crew_transport ? strcspn(crew_transport, ":") : 13),
             crew_transport ? crew_transport : "shared-memory", hand->size);
    NEED(strcmp(ls_comm_about(comm), about) == 0);
    ls_comm_close(comm);
    NEED(!ls_job_lost(hand->job));
    ls_job_close(hand->job);
    return 0;
}

LOOP_TEST(every_operation_is_exact_at_once_and_as_a_work, 0, 4)
{
    static const char *const collectives[] = {"ring", "direct"};
    collective = collectives[_i / 2];
    crew_run(2 + (uint32_t)_i % 2, do_everything);
}

// ---- Several communicators ----

#define COMMS 3
#define WORKS 40

static int overlap(struct hand *hand)
{
    struct ls_comm *comms[COMMS];
    struct ls_comm_work *works[COMMS][WORKS];
    static float values[COMMS][WORKS][3000];
    TRY(join_job(hand));
    for (uint32_t i = 0; i < COMMS; i++) {
        const uint32_t which = i;
        char name[16];
        snprintf(name, sizeof(name), "comm %u", which);
        NEED(!ls_comm_open(
            &(struct ls_comm_options){.job = hand->job, .transport = crew_transport, .name = name},
            &comms[which]));
    }
    for (uint32_t k = 0; k < WORKS; k++)
        for (uint32_t i = 0; i < COMMS; i++) {
            const uint32_t which = (hand->rank + i) % COMMS;
            float *buffer = values[which][k];
            const uint64_t count = k % 3 ? 3000 : 10;
            for (uint64_t e = 0; e < count; e++)
                buffer[e] = (float)(hand->rank + which + k + e % 5);
            NEED(!ls_comm_start_all_reduce(comms[which], buffer, count, "float32", "sum",
                                           &works[which][k]));
        }
    for (uint32_t k = WORKS; k-- > 0;) // the last one first
        for (uint32_t i = 0; i < COMMS; i++) {
            const uint32_t which = (2 * hand->rank + i) % COMMS;
            const uint32_t ranks = hand->size * (hand->size - 1) / 2;
            NEED(!ls_comm_work_wait(works[which][k], 30));
            NEED(!ls_comm_work_wait(works[which][k], 0)); // again
            for (uint64_t e = 0; e < (k % 3 ? 3000 : 10); e++)
                NEED(values[which][k][e] ==
                     (float)(ranks + hand->size * (which + k + (uint32_t)e % 5)));
            ls_comm_work_free(works[which][k]);
        }
    for (uint32_t i = 0; i < COMMS; i++)
        ls_comm_close(comms[(hand->rank + i) % COMMS]);
    ls_job_close(hand->job);
    return 0;
}

LOOP_TEST(works_of_several_communicators_overlap_in_any_order, 0, 2)
{
    crew_run(2 + (uint32_t)_i, overlap);
}

// {0, 1}, {1, 2}, {2, 0}, and all the other way round.
static int some_of_them(struct hand *hand)
{
    static const uint32_t groups[][3] = {{0, 1}, {1, 2}, {2, 0}, {2, 1, 0}};
    TRY(join_job(hand));
    for (int round = 0; round < 3; round++) // names may be used again
        for (uint32_t g = 0; g < 4; g++) {
            const uint32_t size = g < 3 ? 2 : 3;
            char name[16];
            struct ls_comm *comm;
            int64_t value[3] = {hand->rank, -1, -1}, all[3] = {0};
            uint32_t rank = 0;
            while (rank < size && groups[g][rank] != hand->rank)
                rank++;
            if (rank == size)
                continue;
            snprintf(name, sizeof(name), "group %u", g);
            NEED(!ls_comm_open(
                &(struct ls_comm_options){
                    .job = hand->job, .name = name, .members = groups[g], .size = size},
                &comm));
            NEED(ls_comm_rank(comm) == rank && ls_comm_size(comm) == size);
            NEED(!ls_comm_all_gather(comm, value, 1, "int64", all));
            for (uint32_t i = 0; i < size; i++)
                NEED(all[i] == groups[g][i]);
            ls_comm_close(comm);
        }
    ls_job_close(hand->job);
    return 0;
}

TEST(some_processes_communicate_without_the_others)
{
    crew_run(3, some_of_them);
}

#define HUNDREDS 500
#define AT_ONCE 50

static int open_hundreds(struct hand *hand)
{
    struct ls_comm *comms[AT_ONCE];
    TRY(join_job(hand));
    for (uint32_t i = 0; i < HUNDREDS / AT_ONCE; i++) {
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            char name[32];
            float one = 1;
            snprintf(name, sizeof(name), "group %u", i * AT_ONCE + k);
            NEED(!ls_comm_open(&(struct ls_comm_options){.job = hand->job, .name = name},
                               &comms[k]));
            NEED(!ls_comm_all_reduce(comms[k], &one, 1, "float32", "sum"));
            NEED(one == (float)hand->size);
        }
        for (uint32_t k = 0; k < AT_ONCE; k++)
            ls_comm_close(comms[k]);
    }
    ls_job_close(hand->job);
    return 0;
}

START_TEST(hundreds_of_communicators_are_opened_and_closed)
{
    crew_run(2, open_hundreds);
}
END_TEST

#define SIZES 3000

// More calls than plans are kept: each size is new.
static int call_with_many_sizes(struct hand *hand)
{
    struct ls_comm *comm;
    static int32_t values[SIZES];
    struct ls_comm_work *works[100];
    TRY(join_job(hand));
    NEED(!ls_comm_open(
        &(struct ls_comm_options){.job = hand->job, .transport = crew_transport, .name = "all"},
        &comm));
    for (uint32_t count = 1; count < SIZES; count += 7) {
        for (uint32_t i = 0; i < count; i++)
            values[i] = (int32_t)(i + hand->rank);
        NEED(!ls_comm_all_reduce(comm, values, count, "int32", "max"));
        NEED(values[0] == (int32_t)hand->size - 1);
        NEED(values[count - 1] == (int32_t)(count + hand->size - 2));
    }
    for (uint32_t i = 0; i < 100; i++) // more under way than plans
        NEED(!ls_comm_start_all_reduce(comm, values + 10 * i, 1 + i % 10, "int32", "max",
                                       &works[i]));
    for (uint32_t i = 0; i < 100; i++)
        NEED(!finish(LS_OK, &works[i]));
    ls_comm_close(comm);
    ls_job_close(hand->job);
    return 0;
}

TEST(sizes_may_all_differ)
{
    crew_run(3, call_with_many_sizes);
}

static int alone(struct hand *hand)
{
    struct ls_comm *comm;
    struct ls_comm_work *work;
    float value = 3;
    NEED(!ls_job_open(&(struct ls_job_options){.size = 1}, &hand->job));
    NEED(!ls_comm_open(&(struct ls_comm_options){.job = hand->job, .name = "one"}, &comm));
    NEED(ls_comm_size(comm) == 1);
    NEED(!ls_comm_all_reduce(comm, &value, 1, "float32", "sum"));
    NEED(!finish(ls_comm_start_all_reduce(comm, &value, 1, "float32", "mean", &work), &work));
    NEED(value == 3);
    ls_comm_close(comm);
    ls_job_close(hand->job);
    return 0;
}

START_TEST(one_process_is_a_job_too)
{
    crew_run(1, alone);
}
END_TEST

// Works without a job: threads of this process.
struct thread_rank {
    struct ls_comm *comm;
    pthread_t thread;
    int line;
};

static void *run_thread(void *argument)
{
    struct thread_rank *rank = argument;
    rank->line = check_all(rank->comm, NULL, true);
    return NULL;
}

START_TEST(threads_start_works_too)
{
    struct ls_comm *comms[2];
    struct thread_rank ranks[2];
    ck_assert_int_eq(ls_comm_open(&(struct ls_comm_options){.size = 2}, comms), LS_OK);
    for (int i = 0; i < 2; i++) {
        ranks[i] = (struct thread_rank){.comm = comms[i]};
        ck_assert_int_eq(pthread_create(&ranks[i].thread, NULL, run_thread, &ranks[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(ranks[i].thread, NULL);
        ck_assert_int_eq(ranks[i].line, 0);
        ls_comm_close(comms[i]);
    }
}
END_TEST

TEST_SECONDS(LONGEST_S);

int main(int count, char **words)
{
    if (!crew_begin(count, words))
        return TEST_SKIPPED;
    if (!crew_transport) {
        tcase_add_test(test_registered(), hundreds_of_communicators_are_opened_and_closed);
        tcase_add_test(test_registered(), one_process_is_a_job_too);
        tcase_add_test(test_registered(), threads_start_works_too);
    }
    return test_suite_run("core/comm/processes");
}
