// SPDX-License-Identifier: Apache-2.0
// Communicators without a model: every operation by every collective, between threads of a program.
#include "tests/core/train/support.h"
#include "tests/support/suite.h"

#include <pthread.h>

#define RANKS 4
#define MOST 200 // elements of a rank

static const char *const collectives[] = {"ring",  "direct",    "halving-doubling", "tree",
                                          "torus", "two-level", "hierarchical-copy"};
#define COLLECTIVES ((int)(sizeof(collectives) / sizeof(collectives[0])))

struct rank {
    pthread_t thread;
    struct ls_comm *comm;
    enum ls_status (*work)(struct ls_comm *comm);
    enum ls_status status;
};

static void *rank_main(void *argument)
{
    struct rank *rank = argument;
    rank->status = rank->work(rank->comm);
    ls_comm_close(rank->comm); // others may still wait for it
    return NULL;
}

// Runs `work` on a thread for each rank, which closes its communicator.
static void run_ranks(const struct ls_comm_options *options,
                      enum ls_status (*work)(struct ls_comm *comm), enum ls_status *statuses)
{
    struct ls_comm *comms[RANKS];
    struct rank ranks[RANKS];
    OK(ls_comm_open(options, comms));
    for (uint32_t i = 0; i < options->size; i++) {
        ranks[i] = (struct rank){.comm = comms[i], .work = work};
        ck_assert_uint_eq(ls_comm_rank(comms[i]), i);
        ck_assert_uint_eq(ls_comm_size(comms[i]), options->size);
        ck_assert_int_eq(pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]), 0);
    }
    for (uint32_t i = 0; i < options->size; i++) {
        pthread_join(ranks[i].thread, NULL);
        statuses[i] = ranks[i].status;
    }
}

// Status LS_FAILED: a value is wrong.
#define WRONG_UNLESS(condition) \
    do {                        \
        if (!(condition))       \
            return LS_FAILED;   \
    } while (0)

static float value_of(uint32_t rank, uint64_t index)
{
    return (float)(rank + 1) * (float)(index % 7 + 1);
}

static enum ls_status reduce_all(struct ls_comm *comm, uint64_t count)
{
    const uint32_t rank = ls_comm_rank(comm), size = ls_comm_size(comm);
    const double ranks = size * (size + 1) / 2.0;
    float floats[MOST];
    double doubles[MOST];
    int32_t integers[MOST];
    for (uint64_t i = 0; i < count; i++) {
        floats[i] = value_of(rank, i);
        doubles[i] = (double)value_of(rank, i);
        integers[i] = (int32_t)value_of(rank, i);
    }
    enum ls_status status = ls_comm_all_reduce(comm, floats, count, "float32", "sum");
    if (!status)
        status = ls_comm_all_reduce(comm, doubles, count, "float64", "mean");
    if (!status)
        status = ls_comm_all_reduce(comm, integers, count, "int32", "max");
    for (uint64_t i = 0; !status && i < count; i++) {
        WRONG_UNLESS((double)floats[i] == ranks * (double)value_of(0, i));
        WRONG_UNLESS(fabs(doubles[i] - ranks / size * (double)value_of(0, i)) < 1e-12);
        WRONG_UNLESS(integers[i] == (int32_t)value_of(size - 1, i));
    }
    return status;
}

static enum ls_status gather_and_scatter(struct ls_comm *comm, uint64_t count)
{
    const uint32_t rank = ls_comm_rank(comm), size = ls_comm_size(comm);
    float all[RANKS * MOST], mine[MOST], back[MOST];
    for (uint64_t i = 0; i < count; i++)
        mine[i] = value_of(rank, i);
    enum ls_status status = ls_comm_all_gather(comm, mine, count, "float32", all);
    for (uint64_t i = 0; !status && i < size * count; i++)
        WRONG_UNLESS(all[i] == value_of((uint32_t)(i / count), i % count));
    // Each rank gives every part what all gathered: the sum is so many times it.
    if (!status)
        status = ls_comm_reduce_scatter(comm, all, count, "float32", "sum", back);
    for (uint64_t i = 0; !status && i < count; i++)
        WRONG_UNLESS(back[i] == (float)size * mine[i]);
    return status;
}

// What `from` has for `to`.
static uint8_t sent_to(uint32_t from, uint32_t to, uint64_t index)
{
    return (uint8_t)(from * 61 + to * 17 + index * 3);
}

static enum ls_status each_to_each(struct ls_comm *comm, uint64_t count)
{
    const uint32_t rank = ls_comm_rank(comm), size = ls_comm_size(comm);
    uint8_t from[RANKS * MOST], to[RANKS * MOST], kept[RANKS * MOST];
    struct ls_comm_work *work = NULL;
    for (uint64_t i = 0; i < size * count; i++)
        kept[i] = from[i] = sent_to(rank, (uint32_t)(i / count), i % count);
    enum ls_status status = ls_comm_all_to_all(comm, from, count, "uint8", to);
    WRONG_UNLESS(memcmp(from, kept, size * count) == 0);
    if (!status)
        status = ls_comm_start_all_to_all(comm, from, count, "uint8", from, &work); // in place
    if (!status)
        status = ls_comm_work_wait(work, 60);
    ls_comm_work_free(work);
    for (uint64_t i = 0; !status && i < size * count; i++) {
        WRONG_UNLESS(to[i] == sent_to((uint32_t)(i / count), rank, i % count));
        WRONG_UNLESS(from[i] == to[i]);
    }
    return status;
}

static enum ls_status from_the_last(struct ls_comm *comm, uint64_t count)
{
    const uint32_t rank = ls_comm_rank(comm), size = ls_comm_size(comm);
    int64_t sent[MOST], summed[MOST];
    for (uint64_t i = 0; i < count; i++) {
        sent[i] = rank == size - 1 ? (int64_t)i - 5 : 0;
        summed[i] = rank;
    }
    enum ls_status status = ls_comm_broadcast(comm, sent, count, "int64", size - 1);
    if (!status)
        status = ls_comm_reduce(comm, summed, count, "int64", "sum", size - 1);
    for (uint64_t i = 0; !status && i < count; i++) {
        WRONG_UNLESS(sent[i] == (int64_t)i - 5);
        WRONG_UNLESS(rank < size - 1 || summed[i] == size * (size - 1) / 2);
    }
    return status;
}

// Of values whose sum their type does not hold.
static enum ls_status mean_in_a_wider_type(struct ls_comm *comm, uint64_t count)
{
    // Of rank 0, of the others, the mean of three, of four.
    static const int64_t rows[][4] = {{INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX},
                                      {INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN},
                                      {INT64_MAX, -INT64_MAX, -(INT64_MAX / 3), -(INT64_MAX / 2)},
                                      {7, -8, -3, -4},
                                      {-7, 2, -1, 0}};
    const uint32_t rank = ls_comm_rank(comm), size = ls_comm_size(comm);
    uint16_t halves[MOST], brains[MOST], scattered[RANKS * MOST], own[MOST];
    uint8_t bytes[MOST];
    int32_t integers[MOST];
    int64_t wide[MOST];
    for (uint64_t i = 0; i < count; i++) {
        halves[i] = 0x7bff; // 65504, the largest
        brains[i] = 0x7f7f; // 3.39e38, likewise
        bytes[i] = (uint8_t)(250 + rank);
        integers[i] = INT32_MIN + (int32_t)rank;
        wide[i] = rows[i % 5][rank > 0];
    }
    for (uint64_t i = 0; i < size * count; i++)
        scattered[i] = rank ? 0x3c00 : 0x6800; // 1, and 2048 on rank 0
    enum ls_status status = ls_comm_all_reduce(comm, halves, count, "float16", "mean");
    if (!status)
        status = ls_comm_reduce(comm, brains, count, "bfloat16", "mean", 1);
    if (!status)
        status = ls_comm_all_reduce(comm, bytes, count, "uint8", "mean");
    if (!status)
        status = ls_comm_all_reduce(comm, integers, count, "int32", "mean");
    if (!status)
        status = ls_comm_all_reduce(comm, wide, count, "int64", "mean");
    if (!status)
        status = ls_comm_reduce_scatter(comm, scattered, count, "float16", "mean", own);
    for (uint64_t i = 0; !status && i < count; i++) {
        WRONG_UNLESS(halves[i] == 0x7bff && brains[i] == 0x7f7f && bytes[i] == 251);
        WRONG_UNLESS(integers[i] == INT32_MIN + (int32_t)(size / 2));
        WRONG_UNLESS(wide[i] == rows[i % 5][size - 1]);
        WRONG_UNLESS(own[i] ==
                     (size == 3 ? 0x6157 : 0x6002)); // 2050 / 3 = 683.3, 2051 / 4 = 512.75
    }
    return status;
}

static enum ls_status do_everything(struct ls_comm *comm)
{
    static const uint64_t counts[] = {0, 1, 5, 64, 200};
    enum ls_status status = ls_comm_barrier(comm);
    for (size_t i = 0; !status && i < sizeof(counts) / sizeof(counts[0]); i++) {
        status = reduce_all(comm, counts[i]);
        if (!status)
            status = gather_and_scatter(comm, counts[i]);
        if (!status)
            status = each_to_each(comm, counts[i]);
        if (!status)
            status = from_the_last(comm, counts[i]);
        if (!status && ls_comm_size(comm) > 2)
            status = mean_in_a_wider_type(comm, counts[i]);
    }
    return status;
}

LOOP_TEST(every_collective_does_every_operation, 0, COLLECTIVES)
{
    enum ls_status statuses[RANKS];
    forget_errors();
    for (uint32_t size = RANKS - 1; size <= RANKS; size++) {
        run_ranks(&(struct ls_comm_options){.collective = collectives[_i], .size = size},
                  do_everything, statuses);
        for (uint32_t i = 0; i < size; i++)
            ck_assert_msg(statuses[i] == LS_OK, "%s, rank %u of %u: %d %s", collectives[_i], i,
                          size, (int)statuses[i], message);
    }
}

// Communicators of other threads are others, also while they run.
static void *a_program(void *argument)
{
    enum ls_status *statuses = argument;
    run_ranks(&(struct ls_comm_options){.collective = "ring", .size = 2}, do_everything, statuses);
    return NULL;
}

TEST(communicators_have_nothing_in_common)
{
    pthread_t threads[3];
    enum ls_status statuses[3][RANKS];
    forget_errors();
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, a_program, statuses[i]), 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_int_eq(statuses[i][0], LS_OK);
        ck_assert_int_eq(statuses[i][1], LS_OK);
    }
}

// ---- What goes wrong ----

static enum ls_status rank_2_leaves(struct ls_comm *comm)
{
    float values[8] = {0};
    if (ls_comm_rank(comm) == 2)
        return LS_OK;
    return ls_comm_all_reduce(comm, values, 8, "float32", "sum");
}

static char first_message[1024]; // since `errors` was 0

static void keep_first(void *context, uint32_t level, const char *line)
{
    (void)context;
    if (level == LS_LOG_ERROR && errors++ == 0)
        snprintf(first_message, sizeof(first_message), "%s", line);
}

static enum ls_status ranks_differ(struct ls_comm *comm)
{
    float values[8] = {0};
    const uint64_t count = ls_comm_rank(comm) ? 8 : 7;
    return ls_comm_all_reduce(comm, values, count, "float32", "sum");
}

static enum ls_status rank_1_aborts(struct ls_comm *comm)
{
    if (ls_comm_rank(comm) == 1) {
        ls_comm_abort(comm);
        return LS_OK;
    }
    return ls_comm_barrier(comm);
}

TEST(failures_are_said_and_a_missing_rank_is_named)
{
    enum ls_status statuses[RANKS];
    errors = 0;
    ls_log_set_writer(keep_first, NULL);
    run_ranks(&(struct ls_comm_options){.size = 3, .deadline_seconds = 0.3, .name = "my ranks"},
              rank_2_leaves, statuses);
    ck_assert(statuses[0] == LS_PEER_LOST || statuses[1] == LS_PEER_LOST);
    ck_assert_int_ne(statuses[0], LS_OK);
    ck_assert_int_ne(statuses[1], LS_OK);
    ck_assert_msg(strstr(first_message, "my ranks") != NULL, "%s", first_message);
    ck_assert_msg(strstr(first_message, "for rank 2") != NULL, "%s", first_message);
    ck_assert_msg(strstr(first_message, "it has not made this call") != NULL, "%s", first_message);
    for (int i = 0; i < 30; i++) { // the cause comes before what the other rank says of it
        errors = 0;
        run_ranks(&(struct ls_comm_options){.size = 2}, ranks_differ, statuses);
        ck_assert(statuses[0] == LS_FAILED || statuses[1] == LS_FAILED);
        ck_assert_msg(strstr(first_message, "differs: rank") != NULL, "%s", first_message);
    }
    errors = 0;
    run_ranks(&(struct ls_comm_options){.size = 2}, rank_1_aborts, statuses);
    ck_assert_int_eq(statuses[0], LS_ABORTED);
    ck_assert_msg(strstr(first_message, "was aborted") != NULL, "%s", first_message);
}

TEST(a_single_rank_has_nothing_to_verify)
{
    struct ls_comm *comm = NULL;
    float value = 3;
    OK(ls_comm_open(&(struct ls_comm_options){.size = 1}, &comm));
    OK(ls_comm_all_reduce(comm, &value, 1, "float32", "sum"));
    ck_assert_float_eq(value, 3);
    ck_assert_str_eq(ls_comm_about(comm), "ring over local, 1 rank, nothing to verify");
    ls_comm_close(comm);
}

TEST(wrong_arguments_are_refused)
{
    struct ls_comm *comm = NULL;
    float value = 1;
    forget_errors();
    expect_error(ls_comm_open(&(struct ls_comm_options){.size = 0}, &comm), LS_USAGE,
                 "a communicator of 0 ranks");
    expect_error(ls_comm_open(&(struct ls_comm_options){.size = 5000}, &comm), LS_USAGE,
                 "expected 1 to 4096");
    expect_error(ls_comm_open(&(struct ls_comm_options){.size = 1, .collective = "auto"}, &comm),
                 LS_USAGE, "name a collective");
    expect_error(ls_comm_open(&(struct ls_comm_options){.size = 1, .collective = "rind"}, &comm),
                 LS_UNAVAILABLE, "rind");
    expect_error(ls_comm_open(&(struct ls_comm_options){.size = 2, .deadline_seconds = -1}, &comm),
                 LS_USAGE, "a deadline of -1");
    OK(ls_comm_open(&(struct ls_comm_options){.size = 1}, &comm));
    expect_error(ls_comm_all_reduce(comm, &value, 1, "float", "sum"), LS_USAGE, "dtype 'float'");
    expect_error(ls_comm_all_reduce(comm, &value, 1, "float32", "average"), LS_USAGE,
                 "reduction 'average'");
    expect_error(ls_comm_broadcast(comm, &value, 1, "float32", 1), LS_USAGE,
                 "1 elements of float32, reduction 1, root 1 of 1 ranks: the root is no rank");
    expect_error(ls_comm_all_reduce(comm, NULL, 1, "float32", "sum"), LS_USAGE, "no such buffer");
    expect_error(ls_comm_all_gather(comm, NULL, 64, "float32", &value), LS_USAGE, "got NULL");
    expect_error(ls_comm_all_gather(comm, &value, UINT64_C(1) << 62, "float32", &value), LS_USAGE,
                 "too many");
    expect_error(ls_comm_reduce_scatter(comm, &value, 1, "float32", "sum", NULL), LS_USAGE,
                 "got NULL");
    expect_error(ls_comm_all_to_all(comm, NULL, 1, "float32", &value), LS_USAGE, "got NULL");
    expect_error(ls_comm_all_to_all(comm, &value, 1, "complex64", &value), LS_USAGE,
                 "dtype 'complex64'");
    OK(ls_comm_all_reduce(comm, &value, 1, "float32", "mean")); // and it is of use still
    ck_assert(value == 1);
    ls_comm_close(comm);
}
