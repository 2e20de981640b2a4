// SPDX-License-Identifier: Apache-2.0
// Schedules written by hand, and thousands of random ones, give on threads what their meaning says: rounds one
// after the other, every step of a round seeing memory as the round before left it.
#include "tests/core/collective/support.h"

#include "core/base/random.h"
#include "core/plugin/half.h"

#include <time.h>

#define CELLS 12
#define CELL 64 // elements
#define COUNT (CELLS * CELL)

// Cells of the data buffer, or of scratch.
static struct ls_range cells(uint32_t first, uint32_t count)
{
    return ls_data_range((uint64_t)first * CELL, (uint64_t)count * CELL);
}

static struct ls_range scratch_cells(uint32_t first, uint32_t count)
{
    return ls_scratch_range((uint64_t)first * CELL, (uint64_t)count * CELL);
}

// ---- What a schedule means, executed plainly ----

struct model {
    test_build_schedule build_schedule;
    uint32_t world;
    struct ls_step steps[TEST_RANKS][512];
    uint32_t rounds[TEST_RANKS][512];
    uint32_t step_counts[TEST_RANKS];
    uint32_t round_count;
    float data[TEST_RANKS][2][COUNT]; // by rank and buffer
    float before[TEST_RANKS][2][COUNT]; // as the round before left it
};

struct model_writer {
    struct model *model;
    uint32_t rank, round;
};

static int32_t model_add(struct ls_schedule *schedule, const struct ls_step *step)
{
    struct model_writer *writer = schedule->context;
    struct model *model = writer->model;
    const uint32_t index = model->step_counts[writer->rank]++;
    model->steps[writer->rank][index] = *step;
    model->rounds[writer->rank][index] = writer->round;
    return LS_OK;
}

static int32_t model_end_round(struct ls_schedule *schedule)
{
    struct model_writer *writer = schedule->context;
    writer->round++;
    if (writer->round > writer->model->round_count)
        writer->model->round_count = writer->round;
    return LS_OK;
}

static int32_t model_scratch(struct ls_schedule *schedule, uint64_t count)
{
    (void)schedule;
    return count <= COUNT ? LS_OK : LS_FAILED;
}

// The range of the n-th message from `from` to `to`. Both sides are in the same round in these tests.
static const struct ls_range *model_sent(const struct model *model, uint32_t from, uint32_t to,
                                         uint32_t number)
{
    for (uint32_t i = 0; i < model->step_counts[from]; i++) {
        const struct ls_step *step = &model->steps[from][i];
        if (step->kind == LS_STEP_SEND && step->peer == to && step->range.count && number-- == 0)
            return &step->range;
    }
    return NULL;
}

static void model_apply(struct model *model, uint32_t rank, const struct ls_step *step,
                        uint32_t *received)
{
    float *to = model->data[rank][step->range.buffer] + step->range.offset;
    const float *from;
    if (step->kind == LS_STEP_SEND || step->range.count == 0)
        return;
    if (step->kind == LS_STEP_REDUCE || step->kind == LS_STEP_COPY) {
        from = model->before[rank][step->from.buffer] + step->from.offset;
    } else {
        const struct ls_range *sent = model_sent(model, step->peer, rank, received[step->peer]++);
        from = model->before[step->peer][sent->buffer] + sent->offset;
    }
    const int reduces = step->kind == LS_STEP_REDUCE || step->kind == LS_STEP_RECEIVE_AND_REDUCE;
    for (uint64_t i = 0; i < step->range.count; i++)
        to[i] = reduces ? to[i] + from[i] : from[i];
}

// The type of messages; 0: float32.
static uint32_t wire;

static void round_range(struct model *model, uint32_t rank, const struct ls_range *range)
{
    float *values = model->data[rank][range->buffer] + range->offset;
    for (uint64_t i = 0; wire && i < range->count; i++)
        values[i] = ls_half_get(wire, ls_half_of(wire, values[i]));
}

static void model_run(struct model *model)
{
    uint32_t received[TEST_RANKS][TEST_RANKS] = {0};
    for (uint32_t round = 0; round <= model->round_count; round++) {
        for (uint32_t rank = 0; rank < model->world; rank++)
            for (uint32_t i = 0; i < model->step_counts[rank]; i++)
                if (model->rounds[rank][i] == round && model->steps[rank][i].kind == LS_STEP_SEND)
                    round_range(model, rank, &model->steps[rank][i].range);
        memcpy(model->before, model->data, sizeof(model->data));
        for (uint32_t rank = 0; rank < model->world; rank++)
            for (uint32_t i = 0; i < model->step_counts[rank]; i++)
                if (model->rounds[rank][i] == round)
                    model_apply(model, rank, &model->steps[rank][i], received[rank]);
    }
    const struct ls_range all = ls_data_range(0, COUNT);
    for (uint32_t rank = 0; rank < model->world; rank++)
        round_range(model, rank, &all);
}

static void model_init(struct model *model, const struct ls_host *host,
                       test_build_schedule build_schedule, uint32_t world)
{
    memset(model, 0, sizeof(*model));
    model->world = world;
    for (uint32_t rank = 0; rank < world; rank++) {
        struct model_writer writer = {model, rank, 0};
        struct ls_schedule schedule = {.struct_size = sizeof(schedule),
                                       .context = &writer,
                                       .add = model_add,
                                       .end_round = model_end_round,
                                       .scratch = model_scratch};
        const struct ls_collective_call call = {.struct_size = sizeof(call),
                                                .operation = LS_ALL_REDUCE,
                                                .rank = rank,
                                                .world = world,
                                                .count = COUNT,
                                                .element_bytes = 4,
                                                .host = host};
        ck_assert_int_eq(build_schedule(&call, &schedule), LS_OK);
    }
}

// ---- Running both ----

struct run {
    enum ls_status status;
    uint32_t sleep_ms; // before the rank begins
    float data[COUNT];
};

// Random normals: their sum shows the order of additions in its last bits.
static float input(uint64_t seed, uint32_t rank, uint32_t index)
{
    return (float)ls_random_normal(ls_random_key(seed, rank), index);
}

static void run_rank(struct test_rank *rank)
{
    struct run *run = rank->context;
    struct ls_collective_plan *plan = NULL;
    const struct timespec time = {.tv_nsec = run->sleep_ms * 1000000l};
    if (run->sleep_ms)
        nanosleep(&time, NULL);
    const struct ls_communicator_call call = {.operation = LS_ALL_REDUCE,
                                              .dtype = LS_F32,
                                              .reduction = LS_SUM,
                                              .buffer = ls_host_memory(run->data),
                                              .count = COUNT,
                                              .wire = wire};
    run->status = ls_collective_plan_open(rank->collective->communicators[rank->number], &call,
                                          "hand-written", &plan);
    for (uint32_t turn = 0; !run->status && turn < 2; turn++) {
        for (uint32_t i = 0; i < COUNT; i++)
            run->data[i] = input(turn, rank->number, i);
        run->status = ls_collective_start(plan);
        if (!run->status)
            run->status = ls_collective_wait(plan);
    }
    if (run->status)
        ls_communicator_abort(rank->collective->communicators[rank->number]);
    ls_collective_plan_destroy(plan);
}

// Runs the schedule on threads and compares every bit with the model; `late` sleeps first.
static void check_schedule(test_build_schedule build_schedule, uint32_t world,
                           uint64_t segment_bytes, uint32_t late)
{
    static struct model model;
    static struct run runs[TEST_RANKS];
    struct test_collective test;
    void *contexts[TEST_RANKS];
    test_collective_open(&test, build_schedule, world, segment_bytes, 0);
    model_init(&model, &test.host.host, build_schedule, world);
    for (uint32_t rank = 0; rank < world; rank++) {
        contexts[rank] = &runs[rank];
        runs[rank].sleep_ms = rank == late ? 20 : 0;
        for (uint32_t i = 0; i < COUNT; i++)
            model.data[rank][LS_BUFFER_DATA][i] = input(1, rank, i);
    }
    model_run(&model);
    test_run_ranks(&test, run_rank, contexts);
    test_collective_close(&test);
    for (uint32_t rank = 0; rank < world; rank++) {
        ck_assert_int_eq(runs[rank].status, LS_OK);
        for (uint32_t i = 0; i < COUNT; i++)
            ck_assert_msg(memcmp(&runs[rank].data[i], &model.data[rank][LS_BUFFER_DATA][i],
                                 sizeof(float)) == 0,
                          "rank %u of %u, element %u: %.9g is not %.9g", rank, world, i,
                          runs[rank].data[i], model.data[rank][LS_BUFFER_DATA][i]);
    }
}

static void check_with_every_rank_late(test_build_schedule build_schedule, uint32_t world)
{
    for (uint32_t late = 0; late <= world; late++) {
        check_schedule(build_schedule, world, 0, late);
        check_schedule(build_schedule, world, 256, late);
        wire = late % 2 ? LS_BF16 : LS_F16;
        check_schedule(build_schedule, world, late % 3 ? 256 : 0, late);
        wire = 0;
    }
}

// ---- By hand ----

// A range goes from rank to rank, and each overwrites it after it has passed it on.
static int32_t forward_then_overwrite(const struct ls_collective_call *call,
                                      struct ls_schedule *schedule)
{
    for (uint32_t i = 0; i + 1 < call->world; i++) {
        if (call->rank == i)
            ls_send(schedule, i + 1, cells(2, 5));
        if (call->rank == i + 1)
            ls_receive(schedule, i, cells(2, 5));
        ls_end_round(schedule);
        if (call->rank == i)
            ls_copy(schedule, cells(4, 3), cells(9, 3));
        ls_end_round(schedule);
    }
    return LS_OK;
}

TEST(a_range_is_forwarded_before_it_is_overwritten)
{
    check_with_every_rank_late(forward_then_overwrite, 2);
    check_with_every_rank_late(forward_then_overwrite, 4);
}

// Rank 0 reduces what rank 1 sends and returns the sum: the pass that may be fused. Rank 1 sends the same
// range to rank 2 as well, who must get what was there before the sum came back.
static int32_t reduce_and_return(const struct ls_collective_call *call,
                                 struct ls_schedule *schedule)
{
    const struct ls_range range = cells(1, 8);
    if (call->rank == 1) {
        ls_send(schedule, 0, range);
        ls_send(schedule, 2, range);
    } else if (call->rank == 0) {
        ls_receive_and_reduce(schedule, 1, range);
    } else {
        ls_receive(schedule, 1, cells(4, 8));
    }
    ls_end_round(schedule);
    if (call->rank == 0)
        ls_send(schedule, 1, range);
    else if (call->rank == 1)
        ls_receive(schedule, 0, range);
    ls_end_round(schedule);
    return LS_OK;
}

TEST(a_returned_sum_waits_for_other_readers_of_the_range)
{
    check_with_every_rank_late(reduce_and_return, 3);
}

// The message that comes back is not the sum of the one that was sent from there, but rank 2's: it may not
// be written while rank 0 still reads the first.
static int32_t return_something_else(const struct ls_collective_call *call,
                                     struct ls_schedule *schedule)
{
    const struct ls_range range = cells(0, 6);
    ls_scratch(schedule, COUNT);
    if (call->rank == 0) {
        ls_receive(schedule, 1, scratch_cells(0, 6));
        ls_receive_and_reduce(schedule, 2, range);
    } else {
        ls_send(schedule, 0, range);
    }
    ls_end_round(schedule);
    if (call->rank == 0)
        ls_send(schedule, 1, range);
    else if (call->rank == 1)
        ls_receive(schedule, 0, range);
    ls_end_round(schedule);
    if (call->rank == 0)
        ls_copy(schedule, cells(6, 6), scratch_cells(0, 6));
    ls_end_round(schedule);
    return LS_OK;
}

TEST(a_message_does_not_overwrite_one_that_is_still_read)
{
    check_with_every_rank_late(return_something_else, 3);
}

// Rank 0 reduces rank 1's second message into the range that it sends back to where the first lay.
static int32_t return_to_another_place(const struct ls_collective_call *call,
                                       struct ls_schedule *schedule)
{
    ls_scratch(schedule, COUNT);
    if (call->rank == 0)
        ls_receive(schedule, 1, scratch_cells(0, 4));
    else
        ls_send(schedule, 0, cells(0, 4));
    ls_end_round(schedule);
    if (call->rank == 0)
        ls_receive_and_reduce(schedule, 1, cells(0, 4));
    else
        ls_send(schedule, 0, cells(4, 4));
    ls_end_round(schedule);
    if (call->rank == 0)
        ls_send(schedule, 1, cells(0, 4));
    else
        ls_receive(schedule, 0, cells(0, 4));
    ls_end_round(schedule);
    if (call->rank == 0)
        ls_copy(schedule, cells(8, 4), scratch_cells(0, 4));
    ls_end_round(schedule);
    return LS_OK;
}

TEST(a_sum_may_return_to_where_another_message_lay)
{
    check_with_every_rank_late(return_to_another_place, 2);
}

// Ranges that overlap but are not the same: nothing may be fused.
static int32_t shifted_return(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    if (call->rank == 0)
        ls_receive_and_reduce(schedule, 1, cells(2, 6));
    else
        ls_send(schedule, 0, cells(2, 6));
    ls_end_round(schedule);
    if (call->rank == 0)
        ls_send(schedule, 1, cells(2, 6));
    else
        ls_receive(schedule, 0, cells(3, 6));
    ls_end_round(schedule);
    if (call->rank == 0)
        ls_send(schedule, 1, cells(1, 4));
    else
        ls_receive(schedule, 0, cells(5, 4));
    ls_end_round(schedule);
    return LS_OK;
}

TEST(ranges_that_only_overlap_keep_their_order)
{
    check_with_every_rank_late(shifted_return, 2);
}

// Rank 0 adds everybody into one range in one round, the last rank first, and then sends it to all.
static int32_t stacked_star(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const struct ls_range all = cells(0, CELLS);
    if (call->rank == 0)
        for (uint32_t peer = call->world - 1; peer > 0; peer--)
            ls_receive_and_reduce(schedule, peer, all);
    else
        ls_send(schedule, 0, all);
    ls_end_round(schedule);
    for (uint32_t peer = 1; peer < call->world; peer++) {
        if (call->rank == 0)
            ls_send(schedule, peer, all);
        else if (call->rank == peer)
            ls_receive(schedule, 0, all);
    }
    return LS_OK; // without a last ls_end_round
}

TEST(several_reductions_of_one_round_apply_in_the_order_written)
{
    check_with_every_rank_late(stacked_star, 2);
    check_with_every_rank_late(stacked_star, 5);
}

// Both send all of theirs and add the other's through scratch: recursive doubling.
static int32_t doubling(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const struct ls_range all = cells(0, CELLS);
    ls_scratch(schedule, COUNT);
    for (uint32_t distance = 1; distance < call->world; distance *= 2) {
        const uint32_t peer = call->rank ^ distance;
        ls_send(schedule, peer, all);
        ls_receive(schedule, peer, scratch_cells(0, CELLS));
        ls_end_round(schedule);
        ls_reduce(schedule, all, scratch_cells(0, CELLS));
        ls_end_round(schedule);
    }
    return LS_OK;
}

TEST(exchanges_through_scratch_add_up)
{
    check_with_every_rank_late(doubling, 2);
    check_with_every_rank_late(doubling, 4);
    check_schedule(doubling, 8, 256, 3);
}

// Steps of length 0 between others, on both sides and on one rank alone.
static int32_t with_empty_steps(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const uint32_t peer = 1 - call->rank;
    ls_send(schedule, peer, cells(3, 0));
    ls_receive(schedule, peer, cells(3, 0));
    ls_copy(schedule, cells(CELLS, 0), cells(0, 0));
    ls_end_round(schedule);
    ls_end_round(schedule);
    if (call->rank == 0) {
        ls_send(schedule, peer, cells(0, 2));
        ls_reduce(schedule, cells(5, 0), cells(5, 0));
    } else {
        ls_receive_and_reduce(schedule, peer, cells(7, 0));
        ls_receive_and_reduce(schedule, peer, cells(1, 2));
    }
    ls_end_round(schedule);
    return LS_OK;
}

TEST(empty_steps_are_dropped_on_both_sides)
{
    check_with_every_rank_late(with_empty_steps, 2);
}

static int32_t nothing(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)call;
    (void)schedule;
    return LS_OK;
}

TEST(a_schedule_may_have_no_steps)
{
    check_schedule(nothing, 3, 0, 3);
}

// ---- At random ----

// What the steps of the round at hand do to each cell of each rank.
struct round_use {
    uint8_t read[TEST_RANKS][2][CELLS];
    uint8_t written[TEST_RANKS][2][CELLS];
    uint8_t reduced[TEST_RANKS][2][CELLS];
};

struct draws {
    uint64_t key, next;
};

static uint32_t draw(struct draws *draws, uint32_t bound)
{
    return (uint32_t)(ls_random_u64(draws->key, draws->next++) >> 32) % bound;
}

static int any(const uint8_t *flags, const struct ls_range *range)
{
    for (uint64_t i = 0; i < range->count / CELL; i++)
        if (flags[range->offset / CELL + i])
            return 1;
    return 0;
}

static void mark(uint8_t *flags, const struct ls_range *range)
{
    for (uint64_t i = 0; i < range->count / CELL; i++)
        flags[range->offset / CELL + i] = 1;
}

static int may_read(const struct round_use *use, uint32_t rank, const struct ls_range *range)
{
    return !any(use->written[rank][range->buffer], range) &&
           !any(use->reduced[rank][range->buffer], range);
}

static int may_write(const struct round_use *use, uint32_t rank, const struct ls_range *range,
                     int reduces)
{
    return !any(use->read[rank][range->buffer], range) &&
           !any(use->written[rank][range->buffer], range) &&
           (reduces || !any(use->reduced[rank][range->buffer], range));
}

static uint64_t random_seed;

// The same schedule is drawn on every rank, which keeps its own steps. Half of the ranges repeat an earlier
// one, so that fused passes are frequent.
static int32_t random_schedule(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    struct draws draws = {ls_random_key(random_seed, 77), 0};
    const uint32_t rounds = 2 + draw(&draws, 9);
    uint32_t usual_first = draw(&draws, CELLS - 3);
    ls_scratch(schedule, COUNT);
    // Scratch is undefined at first.
    ls_copy(schedule, scratch_cells(0, CELLS), cells(0, CELLS));
    ls_end_round(schedule);
    for (uint32_t round = 0; round < rounds; round++) {
        struct round_use use = {0};
        for (uint32_t tries = 3 * call->world; tries > 0; tries--) {
            const int usual = draw(&draws, 2) == 0;
            const uint32_t length = usual ? 3 : 1 + draw(&draws, 5);
            const uint32_t a = draw(&draws, call->world), b = draw(&draws, call->world);
            const int reduces = draw(&draws, 2) == 0;
            struct ls_range from =
                cells(usual ? usual_first : draw(&draws, CELLS - length + 1), length);
            struct ls_range to =
                cells(usual ? usual_first : draw(&draws, CELLS - length + 1), length);
            from.buffer = draw(&draws, 4) == 0 ? LS_BUFFER_SCRATCH : LS_BUFFER_DATA;
            to.buffer = draw(&draws, 4) == 0 ? LS_BUFFER_SCRATCH : LS_BUFFER_DATA;
            const int overlap = a == b && from.buffer == to.buffer &&
                                from.offset < to.offset + to.count &&
                                to.offset < from.offset + from.count;
            if (overlap || !may_read(&use, a, &from) || !may_write(&use, b, &to, reduces))
                continue;
            mark(use.read[a][from.buffer], &from);
            mark(reduces ? use.reduced[b][to.buffer] : use.written[b][to.buffer], &to);
            if (a == b && call->rank == a) {
                if (reduces)
                    ls_reduce(schedule, to, from);
                else
                    ls_copy(schedule, to, from);
            } else if (call->rank == a) {
                ls_send(schedule, b, from);
            } else if (call->rank == b) {
                if (reduces)
                    ls_receive_and_reduce(schedule, a, to);
                else
                    ls_receive(schedule, a, to);
            }
        }
        if (draw(&draws, 3) == 0)
            usual_first = draw(&draws, CELLS - 3);
        ls_end_round(schedule);
    }
    return LS_OK;
}

TEST(random_schedules_do_what_they_say)
{
    for (random_seed = 0; random_seed < 1500; random_seed++)
        check_schedule(random_schedule, 2 + (uint32_t)(random_seed % 4), random_seed % 3 ? 256 : 0,
                       TEST_RANKS);
}

TEST(random_schedules_with_messages_of_16_bits_round_what_is_sent)
{
    for (random_seed = 0; random_seed < 400; random_seed++) {
        wire = random_seed % 2 ? LS_BF16 : LS_F16;
        check_schedule(random_schedule, 2 + (uint32_t)(random_seed % 4), random_seed % 3 ? 256 : 0,
                       TEST_RANKS);
    }
    wire = 0;
}

TEST_SECONDS(300);

int main(void)
{
    return test_plugin_open("transport-local") ? test_suite_run("core/collective/executor")
                                               : TEST_SKIPPED;
}
