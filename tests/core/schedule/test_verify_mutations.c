// SPDX-License-Identifier: Apache-2.0
// Shipped collectives hold for many worlds and counts; and the verifier's word is held against the executor: shipped
// schedules are changed at random in one or two places. What the verifier passes computes the right result when it is
// run, with the same bits on all ranks; what it refuses for its result computes a wrong one; what it refuses for a
// conflict, the compiler refuses, too.
#include "core/base/random.h"
#include "core/schedule/compile.h"
#include "core/schedule/verify.h"
#include "tests/core/collective/support.h"

#include <inttypes.h>

#define MUTANTS 1000 // of each collective
#define MOST_COUNT (1500 + TEST_RANKS) // rounded up to equal blocks
#define MOST_STEPS 4096 // of a rank
#define VERDICTS (LS_VERDICT_ORDER + 1)

static const char *const shipped[] = {
    "ring", "hierarchical-copy", "tree", "halving-doubling", "torus", "direct", "two-level"};

static const char *const verdict_names[VERDICTS] = {
    "hold",     "declined",  "describe refused", "beyond limits", "unmatched",
    "conflict", "deadlocks", "undefined read",   "wrong result",  "other order"};

// ---- Shipped collectives ----

static const struct ls_plugin *open_shipped(const char *name)
{
    char file[64];
    snprintf(file, sizeof(file), "collective-%s", name);
    return test_plugin_open(file);
}

static int is_rooted(uint32_t operation)
{
    return operation == LS_BROADCAST || operation == LS_REDUCE;
}

TABLE_TEST(a_shipped_collective_holds_in_every_world, shipped)
{
    const struct ls_plugin *plugin = open_shipped(shipped[_i]);
    if (!plugin)
        return; // said so
    const struct ls_collective_interface *interface = plugin->interface;
    struct test_host host;
    uint32_t held = 0;
    test_host_init(&host, plugin);
    for (uint32_t world = 1; world <= 64; world += world < 20 ? 1 : 11) {
        const uint64_t counts[] = {0, 1, world - 1, world, world + 1, 1009, 104729};
        for (uint32_t operation = LS_ALL_REDUCE; operation <= LS_ALL_TO_ALL; operation++)
            for (uint32_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
                const struct ls_verify_case verified = {
                    .operation = operation,
                    .world = world,
                    .root = is_rooted(operation) ? (world - 1) / 2 : 0,
                    .ranks_per_host = i % 2 * 3,
                    .count = ls_collective_whole_count(operation, counts[i], world),
                    .element_bytes = 4};
                struct ls_verification found;
                ck_assert_int_eq(ls_verify_schedule(interface, &host.host, &verified, &found),
                                 LS_OK);
                ck_assert_msg(found.verdict == LS_VERDICT_HOLDS, "%s, operation %u, world %u: %s",
                              shipped[_i], operation, world, found.reason);
                ck_assert_double_ge((double)found.most_bytes + 0.5, found.least_bytes);
                ck_assert_uint_ge(found.rounds, found.least_rounds);
                held++;
            }
    }
    ck_assert_uint_ge(held, 6 * 7 * 20);
}

// ---- Mutants ----

struct rank_schedule {
    struct ls_scheduled_step steps[MOST_STEPS];
    uint32_t step_count, round_count;
    uint64_t scratch;
};

static struct {
    struct rank_schedule ranks[TEST_RANKS];
    struct ls_verify_case verified;
    uint64_t key, draws; // of random numbers
} mutant;

static uint32_t draw_below(uint64_t bound)
{
    return bound ? (uint32_t)(ls_random_u64(mutant.key, mutant.draws++) % bound) : 0;
}

static int32_t replay(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const struct rank_schedule *rank = &mutant.ranks[call->rank];
    uint32_t round = 0;
    if (call->count != mutant.verified.count)
        return LS_OK; // the communicator tries whether options fit
    if (rank->scratch)
        ls_scratch(schedule, rank->scratch);
    for (uint32_t i = 0; i < rank->step_count; i++) {
        for (; round < rank->steps[i].round; round++)
            ls_end_round(schedule);
        schedule->add(schedule, &rank->steps[i].step);
    }
    for (; round < rank->round_count; round++)
        ls_end_round(schedule);
    return LS_OK;
}

static struct ls_collective_interface replaying(uint32_t deterministic)
{
    return (struct ls_collective_interface){.struct_size = sizeof(struct ls_collective_interface),
                                            .operations = 0x7e,
                                            .deterministic = deterministic,
                                            .build_schedule = replay};
}

// The unchanged schedule of all ranks.
static void load(const struct ls_plugin *plugin, const struct ls_host *host)
{
    for (uint32_t rank = 0; rank < mutant.verified.world; rank++) {
        const struct ls_collective_call call = {.struct_size = sizeof(call),
                                                .operation = mutant.verified.operation,
                                                .rank = rank,
                                                .world = mutant.verified.world,
                                                .root = mutant.verified.root,
                                                .count = mutant.verified.count,
                                                .element_bytes = 4,
                                                .host = host};
        struct ls_drawn_schedule drawn;
        struct rank_schedule *to = &mutant.ranks[rank];
        ck_assert_int_eq(ls_schedule_draw(plugin->interface, plugin->name, &call, &drawn), LS_OK);
        ck_assert_uint_lt(drawn.step_count, MOST_STEPS / 2);
        memcpy(to->steps, drawn.steps, drawn.step_count * sizeof(*drawn.steps));
        to->step_count = (uint32_t)drawn.step_count;
        to->round_count = drawn.round_count;
        to->scratch = drawn.scratch_count;
        ls_drawn_schedule_finish(&drawn);
    }
}

// ---- Changes ----

static void remove_step(struct rank_schedule *rank, uint32_t index)
{
    memmove(&rank->steps[index], &rank->steps[index + 1],
            (--rank->step_count - index) * sizeof(rank->steps[0]));
}

static void insert_step(struct rank_schedule *rank, uint32_t index, struct ls_scheduled_step step)
{
    memmove(&rank->steps[index + 1], &rank->steps[index],
            (rank->step_count++ - index) * sizeof(rank->steps[0]));
    rank->steps[index] = step;
    if (step.round >= rank->round_count)
        rank->round_count = step.round + 1;
}

// A rank that has steps, and one of them.
static struct rank_schedule *pick(uint32_t *index)
{
    const uint32_t world = mutant.verified.world, first = draw_below(world);
    for (uint32_t i = 0; i < world; i++) {
        struct rank_schedule *rank = &mutant.ranks[(first + i) % world];
        *index = draw_below(rank->step_count);
        if (rank->step_count)
            return rank;
    }
    return NULL;
}

// The other side of a message, or NULL.
static struct rank_schedule *other_side(const struct rank_schedule *rank, uint32_t index,
                                        uint32_t *found)
{
    const uint32_t number = (uint32_t)(rank - mutant.ranks), peer = rank->steps[index].step.peer;
    const uint32_t kind = rank->steps[index].step.kind;
    uint32_t before = 0;
    if (kind == LS_STEP_REDUCE || kind == LS_STEP_COPY || peer >= mutant.verified.world)
        return NULL;
    const int sends = kind == LS_STEP_SEND;
    for (uint32_t i = 0; i < index; i++) {
        const struct ls_step *step = &rank->steps[i].step;
        before += step->peer == peer && step->kind <= LS_STEP_RECEIVE_AND_REDUCE &&
                  (step->kind == LS_STEP_SEND) == sends;
    }
    struct rank_schedule *other = &mutant.ranks[peer];
    for (uint32_t i = 0; i < other->step_count; i++) {
        const struct ls_step *step = &other->steps[i].step;
        if (step->peer == number && step->kind <= LS_STEP_RECEIVE_AND_REDUCE &&
            (step->kind == LS_STEP_SEND) != sends && before-- == 0) {
            *found = i;
            return other;
        }
    }
    return NULL;
}

static void change_peer(struct rank_schedule *rank, uint32_t index)
{
    rank->steps[index].step.peer = draw_below(mutant.verified.world + 1);
}

static void change_kind(struct rank_schedule *rank, uint32_t index)
{
    struct ls_step *step = &rank->steps[index].step;
    if (draw_below(8) == 0)
        step->kind = 1 + draw_below(5);
    else
        step->kind = step->kind == LS_STEP_RECEIVE              ? LS_STEP_RECEIVE_AND_REDUCE
                     : step->kind == LS_STEP_RECEIVE_AND_REDUCE ? LS_STEP_RECEIVE
                     : step->kind == LS_STEP_REDUCE             ? LS_STEP_COPY
                     : step->kind == LS_STEP_COPY               ? LS_STEP_REDUCE
                                                                : LS_STEP_SEND;
}

static void change_range(struct rank_schedule *rank, uint32_t index)
{
    struct ls_step *step = &rank->steps[index].step;
    struct ls_range *range =
        step->kind >= LS_STEP_REDUCE && draw_below(2) ? &step->from : &step->range;
    const uint64_t by = draw_below(2) ? 1 : LS_CHUNK_ALIGNMENT;
    switch (draw_below(5)) {
    case 0: range->offset += by; break;
    case 1: range->offset -= range->offset >= by ? by : 0; break;
    case 2: range->count -= range->count > by ? by : 0; break;
    case 3: range->count += by; break;
    default: range->buffer = !range->buffer; break;
    }
}

static void move_to_round(struct rank_schedule *rank, uint32_t index)
{
    struct ls_scheduled_step step = rank->steps[index];
    remove_step(rank, index);
    if (draw_below(2) && step.round)
        step.round--;
    else
        step.round++;
    uint32_t place = 0;
    while (place < rank->step_count && rank->steps[place].round < step.round)
        place++;
    while (place < rank->step_count && rank->steps[place].round == step.round && draw_below(2))
        place++;
    insert_step(rank, place, step);
}

static void duplicate(struct rank_schedule *rank, uint32_t index)
{
    insert_step(rank, index, rank->steps[index]);
}

static void swap_steps(struct rank_schedule *rank, uint32_t index)
{
    const uint32_t other = draw_below(rank->step_count);
    const struct ls_step step = rank->steps[index].step;
    rank->steps[index].step = rank->steps[other].step;
    rank->steps[other].step = step;
}

// With the next one of its round: the order of reductions.
static void swap_neighbours(struct rank_schedule *rank, uint32_t index)
{
    if (index + 1 < rank->step_count && rank->steps[index].round == rank->steps[index + 1].round) {
        const struct ls_scheduled_step step = rank->steps[index];
        rank->steps[index] = rank->steps[index + 1];
        rank->steps[index + 1] = step;
    }
}

// From here on, both sides of a message change, so that it still matches.
static void remove_message(struct rank_schedule *rank, uint32_t index)
{
    uint32_t there;
    struct rank_schedule *other = other_side(rank, index, &there);
    if (other)
        remove_step(other, there);
    remove_step(rank, index);
}

static void duplicate_message(struct rank_schedule *rank, uint32_t index)
{
    uint32_t there;
    struct rank_schedule *other = other_side(rank, index, &there);
    if (!other)
        return;
    // In a round of its own.
    const struct ls_scheduled_step step = rank->steps[index], answer = other->steps[there];
    for (uint32_t i = index + 1; i < rank->step_count; i++)
        rank->steps[i].round++;
    for (uint32_t i = there + 1; i < other->step_count; i++)
        other->steps[i].round++;
    rank->round_count++;
    other->round_count++;
    insert_step(rank, index + 1, step);
    insert_step(other, there + 1, answer);
    rank->steps[index + 1].round++;
    other->steps[there + 1].round++;
    if (rank->steps[index + 1].round >= rank->round_count)
        rank->round_count++;
    if (other->steps[there + 1].round >= other->round_count)
        other->round_count++;
}

static void shift_message(struct rank_schedule *rank, uint32_t index)
{
    uint32_t there;
    struct rank_schedule *other = other_side(rank, index, &there);
    struct ls_range *range = &rank->steps[index].step.range;
    const uint64_t by = draw_below(2) ? 1 : LS_CHUNK_ALIGNMENT;
    if (draw_below(2))
        range->offset += by;
    else
        range->offset -= range->offset >= by ? by : 0;
    if (other && draw_below(2))
        other->steps[there].step.range.offset = range->offset;
}

static void shorten_message(struct rank_schedule *rank, uint32_t index)
{
    uint32_t there;
    struct rank_schedule *other = other_side(rank, index, &there);
    struct ls_range *range = &rank->steps[index].step.range;
    if (other && range->count > 1) {
        range->count -= 1 + draw_below(range->count - 1);
        other->steps[there].step.range.count = range->count;
    }
}

// Means the same.
static void split_message(struct rank_schedule *rank, uint32_t index)
{
    uint32_t there;
    struct rank_schedule *other = other_side(rank, index, &there);
    if (!other || rank->steps[index].step.range.count < 2)
        return;
    const uint64_t part = 1 + draw_below(rank->steps[index].step.range.count - 1);
    duplicate(rank, index);
    duplicate(other, there);
    struct ls_scheduled_step *steps[] = {&rank->steps[index], &other->steps[there]};
    for (uint32_t side = 0; side < 2; side++) {
        steps[side][0].step.range.count = part;
        steps[side][1].step.range.offset += part;
        steps[side][1].step.range.count -= part;
    }
}

// Another round without steps: means the same.
static void insert_round(struct rank_schedule *rank, uint32_t index)
{
    const uint32_t round = rank->steps[index].round;
    for (uint32_t i = 0; i < rank->step_count; i++)
        rank->steps[i].round += rank->steps[i].round >= round;
    rank->round_count++;
}

static void join_rounds(struct rank_schedule *rank, uint32_t index)
{
    const uint32_t round = rank->steps[index].round;
    for (uint32_t i = 0; i < rank->step_count; i++)
        rank->steps[i].round -= rank->steps[i].round && rank->steps[i].round >= round;
}

static void join_everywhere(struct rank_schedule *rank, uint32_t index)
{
    const uint32_t round = rank->steps[index].round;
    for (uint32_t of = 0; of < mutant.verified.world; of++)
        for (uint32_t i = 0; i < mutant.ranks[of].step_count; i++) {
            struct ls_scheduled_step *step = &mutant.ranks[of].steps[i];
            step->round -= step->round && step->round >= round;
        }
}

static void change(void)
{
    static void (*const changes[])(struct rank_schedule *, uint32_t) = {
        change_peer,    change_kind,       change_range,  move_to_round,
        duplicate,      remove_step,       swap_steps,    swap_neighbours,
        remove_message, duplicate_message, shift_message, shorten_message,
        split_message,  insert_round,      join_rounds,   join_everywhere};
    uint32_t index;
    struct rank_schedule *rank = pick(&index);
    if (rank)
        changes[draw_below(sizeof(changes) / sizeof(changes[0]))](rank, index);
}

// ---- Running one ----

struct mutant_run {
    enum ls_status status;
    float data[2][MOST_COUNT]; // small integers, and normals
};

static float integer_of(uint32_t rank, uint64_t index)
{
    return (float)(ls_random_u64(ls_random_key(7, rank), index) % 1000);
}

static float normal_of(uint32_t rank, uint64_t index)
{
    return (float)ls_random_normal(ls_random_key(8, rank), index);
}

static void run_mutant_rank(struct test_rank *rank)
{
    struct mutant_run *run = rank->context;
    struct ls_communicator *communicator = rank->collective->communicators[rank->number];
    run->status = LS_OK;
    for (uint32_t turn = 0; !run->status && turn < 2; turn++) {
        struct ls_collective_plan *plan = NULL;
        for (uint64_t i = 0; i < mutant.verified.count; i++)
            run->data[turn][i] = turn ? normal_of(rank->number, i) : integer_of(rank->number, i);
        run->status = ls_collective_plan_create(
            communicator, mutant.verified.operation, ls_host_memory(run->data[turn]),
            mutant.verified.count, LS_F32, LS_SUM, mutant.verified.root, "mutant", &plan);
        if (!run->status)
            run->status = ls_collective_start(plan);
        if (!run->status)
            run->status = ls_collective_wait(plan);
        ls_collective_plan_destroy(plan);
    }
    if (run->status)
        ls_communicator_abort(communicator);
}

static float wanted(uint32_t at, uint64_t index)
{
    const struct ls_collective_call call = {.world = mutant.verified.world,
                                            .count = mutant.verified.count};
    const uint64_t each = call.count / call.world;
    float sum = 0;
    uint32_t owner = mutant.verified.root;
    if (mutant.verified.operation == LS_ALL_TO_ALL)
        return integer_of((uint32_t)(index / each), at * each + index % each);
    if (mutant.verified.operation == LS_ALL_GATHER) {
        owner = 0;
        while (ls_chunk(&call, owner).offset + ls_chunk(&call, owner).count <= index)
            owner++;
    }
    if (mutant.verified.operation == LS_ALL_GATHER || mutant.verified.operation == LS_BROADCAST)
        return integer_of(owner, index);
    for (uint32_t rank = 0; rank < mutant.verified.world; rank++)
        sum += integer_of(rank, index);
    return sum;
}

// Elements of the result that are wrong, or of which rank 0 has other bits.
static uint64_t count_wrong(const struct mutant_run *runs, int of_bits)
{
    uint64_t wrong = 0;
    for (uint32_t rank = 0; rank < mutant.verified.world; rank++) {
        const struct ls_collective_call call = {.world = mutant.verified.world,
                                                .count = mutant.verified.count};
        struct ls_range range = ls_data_range(0, mutant.verified.count);
        if (mutant.verified.operation == LS_REDUCE_SCATTER)
            range = ls_chunk(&call, rank);
        if (mutant.verified.operation == LS_REDUCE && rank != mutant.verified.root)
            range.count = 0;
        for (uint64_t i = range.offset; i < range.offset + range.count; i++)
            wrong += of_bits ? memcmp(&runs[rank].data[1][i], &runs[0].data[1][i], 4) != 0
                             : runs[rank].data[0][i] != wanted(rank, i);
    }
    return wrong;
}

static void run_mutant(struct test_collective *collective, struct mutant_run *runs)
{
    void *contexts[TEST_RANKS];
    for (uint32_t rank = 0; rank < mutant.verified.world; rank++)
        contexts[rank] = &runs[rank];
    test_run_ranks(collective, run_mutant_rank, contexts);
    for (uint32_t rank = 0; rank < mutant.verified.world; rank++)
        ck_assert_msg(runs[rank].status == LS_OK, "rank %u: status %d: %s", rank, runs[rank].status,
                      test_log.text);
}

// Whether the compiler refuses some rank's part.
static int compiler_refuses(const struct ls_collective_interface *interface)
{
    int refused = 0;
    for (uint32_t rank = 0; rank < mutant.verified.world; rank++) {
        const struct ls_collective_call call = {.struct_size = sizeof(call),
                                                .operation = mutant.verified.operation,
                                                .rank = rank,
                                                .world = mutant.verified.world,
                                                .root = mutant.verified.root,
                                                .count = mutant.verified.count,
                                                .element_bytes = 4};
        const struct ls_compile_options options = {.name = "mutant",
                                                   .rank = rank,
                                                   .world = call.world,
                                                   .element_bytes = 4,
                                                   .count = call.count};
        struct ls_drawn_schedule drawn;
        struct ls_compiled_schedule compiled;
        ck_assert_int_eq(ls_schedule_draw(interface, "mutant", &call, &drawn), LS_OK);
        if (ls_compile_schedule(&drawn, &options, &compiled))
            refused++;
        else
            ls_compiled_schedule_finish(&compiled);
        ls_drawn_schedule_finish(&drawn);
    }
    return refused;
}

static struct ls_verification verify_mutant(uint32_t deterministic)
{
    const struct ls_collective_interface interface = replaying(deterministic);
    struct ls_verification found;
    ck_assert_int_eq(ls_verify_schedule(&interface, NULL, &mutant.verified, &found), LS_OK);
    return found;
}

// What the mutant is, and whether that is true.
static uint32_t judge_mutant(struct test_collective *collective, uint32_t deterministic)
{
    static struct mutant_run runs[TEST_RANKS];
    const struct ls_collective_interface interface = replaying(deterministic);
    const struct ls_verification found = verify_mutant(deterministic);
    const uint32_t verdict = found.verdict;
    test_log_begin();
    if (verdict == LS_VERDICT_CONFLICT)
        ck_assert_msg(compiler_refuses(&interface), "%s", found.reason);
    if (verdict == LS_VERDICT_HOLDS || verdict == LS_VERDICT_RESULT ||
        verdict == LS_VERDICT_ORDER) {
        run_mutant(collective, runs);
        const uint64_t wrong = count_wrong(runs, 0);
        const int equal = mutant.verified.operation != LS_ALL_REDUCE || !count_wrong(runs, 1);
        if (verdict == LS_VERDICT_RESULT)
            ck_assert_msg(wrong > 0, "refused, and right: %s", found.reason);
        else
            ck_assert_msg(wrong == 0, "passed, and %" PRIu64 " elements are wrong", wrong);
        if (verdict == LS_VERDICT_HOLDS && found.same_order)
            ck_assert_msg(equal, "passed, and ranks have different bits");
    } else {
        ck_assert_msg(verdict != LS_VERDICT_DECLINED && found.reason[0], "%s", found.reason);
    }
    ls_log_set_writer(NULL, NULL);
    return verdict;
}

TABLE_TEST(the_executor_confirms_what_is_said_of_mutants, shipped)
{
    const struct ls_plugin *plugin = open_shipped(shipped[_i]);
    if (!plugin)
        return; // said so
    static const uint64_t counts[] = {1, 7, 100, 500, 1009, 1500};
    const struct ls_collective_interface *shipped_interface = plugin->interface;
    struct test_collective collectives[TEST_RANKS + 1];
    struct test_host host;
    uint32_t verdicts[VERDICTS] = {0}, unchanged = 0;
    test_host_init(&host, plugin);
    for (uint32_t world = 2; world <= TEST_RANKS; world++) {
        test_collective_open(&collectives[world], replay, world, 0, 0);
        collectives[world].interface.operations = 0x7e;
    }
    for (uint32_t i = 0; i < MUTANTS; i++) {
        mutant.key = ls_random_key(i, _i);
        mutant.draws = 0;
        mutant.verified = (struct ls_verify_case){.world = 2 + draw_below(TEST_RANKS - 1),
                                                  .count = counts[draw_below(6)],
                                                  .element_bytes = 4};
        do
            mutant.verified.operation = draw_below(2) ? LS_ALL_REDUCE : 1 + draw_below(6);
        while (!((shipped_interface->operations | 1u << LS_ALL_TO_ALL) &
                 1u << mutant.verified.operation)); // else the host's
        mutant.verified.count = ls_collective_whole_count(
            mutant.verified.operation, mutant.verified.count, mutant.verified.world);
        if (is_rooted(mutant.verified.operation))
            mutant.verified.root = draw_below(mutant.verified.world);
        load(plugin, &host.host);
        const uint64_t before = verify_mutant(1).fingerprint;
        change();
        if (draw_below(4) == 0)
            change();
        unchanged += verify_mutant(1).fingerprint == before;
        verdicts[judge_mutant(&collectives[mutant.verified.world],
                              shipped_interface->deterministic)]++;
    }
    for (uint32_t world = 2; world <= TEST_RANKS; world++)
        test_collective_close(&collectives[world]);
    printf("%s: %u mutants, %u of them unchanged:", shipped[_i], MUTANTS, unchanged);
    for (uint32_t verdict = 0; verdict < VERDICTS; verdict++)
        if (verdicts[verdict])
            printf(" %u %s", verdicts[verdict], verdict_names[verdict]);
    printf("\n");
    fflush(stdout);
    ck_assert_uint_gt(verdicts[LS_VERDICT_HOLDS], unchanged + MUTANTS / 50);
    ck_assert_uint_gt(verdicts[LS_VERDICT_RESULT], MUTANTS / 50);
    ck_assert_uint_gt(verdicts[LS_VERDICT_MATCH], MUTANTS / 50);
}

TEST_SECONDS(300);

int main(void)
{
    return test_plugin_open("transport-local") ? test_suite_run("verify-mutations") : TEST_SKIPPED;
}
