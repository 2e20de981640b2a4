// SPDX-License-Identifier: Apache-2.0
// Runs a filter over worlds of ranks in one thread.
#include "tools/conformance/filter.h"

#include "core/base/random.h"
#include "core/filter/filter.h"
#include "tools/conformance/tally.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_WORLD 8
#define MOST_VARIABLES 4
#define STEPS 20
#define MARGIN 64 // bytes around each array that must stay as they are
#define MARK 0xA5

struct model {
    const char *name;
    uint32_t count;
    int64_t dims[MOST_VARIABLES][3]; // 0: no more
};
static const struct model models[] = {
    {"one element", 1, {{1, 1}}},
    {"a dense layer", 2, {{64, 33}, {33}}},
    {"primes", 3, {{1009, 7}, {13}, {3, 3, 5}}},
    {"only one dimension", 1, {{300}}},
    {"several blocks", 4, {{128, 128}, {128}, {128, 10}, {10}}},
};

// How the sum is wanted: all of it; parts as strategies cut them; all in the part of the last rank.
enum cut { WHOLE, EVEN, LOPSIDED };
static const char *const cut_names[] = {"", ", in parts", ", in one part"};

enum values { RANDOM, ZEROS, EMPTY_SHARE, NOT_A_NUMBER, INFINITE, TINY };
static const char *const value_names[] = {"random", "zeros",    "an empty share",
                                          "NaN",    "infinity", "tiny"};

struct rank {
    struct ls_filter_plan *plan;
    unsigned char *memory; // all arrays, with margins
    uint64_t bytes;
    float *x, *result, *delivered, *gradient, *residual;
    uint8_t *scratch, *shared;
};

struct trial {
    const struct ls_filter_conformance_options *options;
    struct ls_tally *tally;
    uint32_t world;
    enum cut cut;
    struct rank ranks[MOST_WORLD];
};

// ---- Plans and memory ----

// One after the other in a range, behind the sums of a step.
static uint32_t list_variables(const struct model *model, struct ls_filter_variable *out,
                               uint64_t *range)
{
    *range = MARGIN;
    for (uint32_t i = 0; i < model->count; i++, *range += out[i - 1].count) {
        out[i] = (struct ls_filter_variable){
            .struct_size = sizeof(*out), .count = 1, .plain = 1, .first = *range};
        for (; out[i].ndims < 3 && model->dims[i][out[i].ndims]; out[i].ndims++) {
            out[i].dims[out[i].ndims] = model->dims[i][out[i].ndims];
            out[i].count *= (uint64_t)model->dims[i][out[i].ndims];
        }
    }
    return model->count;
}

static uint64_t room(uint64_t bytes)
{
    return (bytes + 63) / 64 * 64 + MARGIN;
}

static bool allocate(struct rank *rank)
{
    const uint64_t vector = rank->plan->call.count * sizeof(float);
    float **const vectors[] = {&rank->x, &rank->result, &rank->delivered, &rank->gradient,
                               &rank->residual};
    rank->bytes = MARGIN + 5 * room(vector) + room(rank->plan->scratch_bytes) +
                  room(rank->plan->shared_bytes);
    rank->memory = aligned_alloc(64, rank->bytes);
    if (!rank->memory)
        return false;
    memset(rank->memory, MARK, rank->bytes);
    unsigned char *at = rank->memory + MARGIN;
    for (size_t i = 0; i < sizeof(vectors) / sizeof(*vectors); i++, at += room(vector))
        *vectors[i] = memset(at, 0, vector);
    rank->scratch = at;
    rank->shared = memset(at + room(rank->plan->scratch_bytes), 0, rank->plan->shared_bytes);
    return true;
}

static bool is_marked(const unsigned char *from, uint64_t bytes, uint64_t all)
{
    for (uint64_t i = bytes; i < all; i++)
        if (from[i] != MARK)
            return false;
    return true;
}

static bool has_margins(const struct rank *rank)
{
    const uint64_t vector = rank->plan->call.count * sizeof(float);
    const float *const vectors[] = {rank->x, rank->result, rank->delivered};
    bool good = is_marked(rank->memory, 0, MARGIN);
    for (size_t i = 0; i < sizeof(vectors) / sizeof(*vectors); i++)
        good = good && is_marked((const unsigned char *)vectors[i], vector, room(vector));
    return good &&
           is_marked(rank->scratch, rank->plan->scratch_bytes, room(rank->plan->scratch_bytes)) &&
           is_marked(rank->shared, rank->plan->shared_bytes, room(rank->plan->shared_bytes));
}

static bool same_plans(const struct ls_filter_plan *a, const struct ls_filter_plan *b)
{
    bool same = a->stage_count == b->stage_count && a->scratch_bytes == b->scratch_bytes &&
                a->shared_bytes == b->shared_bytes &&
                a->call.variable_count == b->call.variable_count;
    for (uint32_t i = 0; same && i < a->call.variable_count; i++)
        same = a->taken[i] == b->taken[i];
    for (uint32_t i = 0; same && i < a->stage_count; i++) {
        const struct ls_filter_stage *one = &a->stages[i], *other = &b->stages[i];
        same = one->collective == other->collective && one->function == other->function &&
               one->operation == other->operation && one->dtype == other->dtype &&
               one->reduction == other->reduction && one->offset == other->offset &&
               one->count == other->count;
    }
    return same;
}

static void close_ranks(struct trial *trial)
{
    for (uint32_t i = 0; i < trial->world; i++) {
        ls_filter_plan_destroy(trial->ranks[i].plan);
        free(trial->ranks[i].memory);
    }
    memset(trial->ranks, 0, sizeof(trial->ranks));
}

static bool open_ranks(struct trial *trial, const struct model *model)
{
    struct ls_filter_variable variables[MOST_VARIABLES];
    uint64_t range, ends[MOST_WORLD];
    const uint32_t count = list_variables(model, variables, &range);
    for (uint32_t i = 0; i < trial->world; i++) {
        const struct ls_range part = ls_part(ls_data_range(0, range), i, trial->world);
        ends[i] = trial->cut == EVEN ? part.offset + part.count : i + 1 == trial->world ? range : 0;
    }
    for (uint32_t i = 0; i < trial->world; i++) {
        struct rank *rank = &trial->ranks[i];
        const enum ls_status status = ls_filter_plan_create(
            trial->options->filter, trial->options->host, trial->options->name, trial->world,
            variables, count, trial->cut == WHOLE ? NULL : ends, &rank->plan);
        if (status)
            return ls_tally_blame(trial->tally, "plan: %s", ls_status_text(status));
        if (!same_plans(rank->plan, trial->ranks[0].plan))
            return ls_tally_blame(trial->tally, "the plan is another one when it is asked again");
        if (!allocate(rank))
            return ls_tally_blame(trial->tally, "out of memory");
    }
    return true;
}

// ---- Collectives ----

#define COMBINE(type)                                                           \
    do {                                                                        \
        type *to = (type *)a;                                                   \
        const type *from = (const type *)b;                                     \
        for (uint64_t i = 0; i < count; i++)                                    \
            to[i] = reduction == LS_MAX   ? (from[i] > to[i] ? from[i] : to[i]) \
                    : reduction == LS_MIN ? (from[i] < to[i] ? from[i] : to[i]) \
                                          : (type)(to[i] + from[i]);            \
    } while (0)

static bool combine(void *a, const void *b, uint64_t count, uint32_t dtype, uint32_t reduction)
{
    if (reduction != LS_SUM && reduction != LS_MAX && reduction != LS_MIN)
        return false;
    switch (dtype) {
    case LS_F32: COMBINE(float); return true;
    case LS_F64: COMBINE(double); return true;
    case LS_I32: COMBINE(int32_t); return true;
    case LS_I64: COMBINE(int64_t); return true;
    case LS_U8: COMBINE(uint8_t); return true;
    default: return false;
    }
}

// What all ranks have is known before anybody gets something.
static bool run_collective(struct trial *trial, const struct ls_filter_stage *stage)
{
    const uint64_t unit = ls_dtype_bytes(stage->dtype), bytes = stage->count * unit;
    const uint32_t world = trial->world;
    unsigned char *all = malloc(world * bytes + 1), *sum = malloc(bytes + 1);
    bool known = all && sum;
    for (uint32_t i = 0; known && i < world; i++) {
        memcpy(all + i * bytes, trial->ranks[i].scratch + stage->offset, bytes);
        if (i == 0)
            memcpy(sum, all, bytes);
        else if (ls_operation_reduces(stage->operation))
            known = combine(sum, all + i * bytes, stage->count, stage->dtype, stage->reduction);
    }
    for (uint32_t i = 0; known && i < world; i++) {
        unsigned char *to = trial->ranks[i].scratch + stage->offset;
        const uint64_t block = bytes / world;
        if (ls_operation_reduces(stage->operation))
            memcpy(to, sum, bytes);
        for (uint32_t k = 0; k < world; k++) {
            const struct ls_range part = ls_part(ls_data_range(0, stage->count), k, world);
            if (stage->operation == LS_ALL_TO_ALL)
                memcpy(to + k * block, all + k * bytes + i * block, block);
            else if (stage->operation == LS_ALL_GATHER)
                memcpy(to + part.offset * unit, all + k * bytes + part.offset * unit,
                       part.count * unit);
            else if (stage->operation == LS_REDUCE_SCATTER && k != i) // is undefined
                memset(to + part.offset * unit, MARK, part.count * unit);
        }
    }
    free(all);
    free(sum);
    return known || ls_tally_blame(trial->tally,
                                   "a stage combines type %u by %u, which this suite "
                                   "cannot do",
                                   stage->dtype, stage->reduction);
}

// ---- A step ----

static bool run_stage(struct trial *trial, uint32_t number)
{
    const struct ls_filter_stage *stage = &trial->ranks[0].plan->stages[number];
    if (stage->collective)
        return run_collective(trial, stage);
    for (uint32_t i = 0; i < trial->world; i++) {
        struct rank *rank = &trial->ranks[i];
        const struct ls_filter_memory memory = {.struct_size = sizeof(memory),
                                                .rank = i,
                                                .x = rank->x,
                                                .result = rank->result,
                                                .delivered = rank->delivered,
                                                .scratch = rank->scratch,
                                                .shared = rank->shared};
        const int32_t status =
            trial->options->filter->run(&rank->plan->call, &memory, stage->function);
        if (status)
            return ls_tally_blame(trial->tally, "stage %u on rank %u: %s", number + 1, i,
                                  ls_status_text((enum ls_status)status));
        if (!has_margins(rank))
            return ls_tally_blame(trial->tally, "stage %u on rank %u wrote beside its memory",
                                  number + 1, i);
    }
    return true;
}

static bool same_bits(float a, float b)
{
    return memcmp(&a, &b, sizeof(a)) == 0 || (isnan(a) && isnan(b));
}

static bool check_ranks(struct trial *trial, bool finite)
{
    const struct rank *first = &trial->ranks[0];
    for (uint32_t i = 0; i < trial->world; i++) {
        struct rank *rank = &trial->ranks[i];
        if (memcmp(rank->shared, first->shared, first->plan->shared_bytes) != 0)
            return ls_tally_blame(trial->tally,
                                  "the shared memory of rank %u is not that of rank 0", i);
        for (uint64_t k = 0; k < rank->plan->call.count; k++) {
            if (!same_bits(rank->result[k], first->result[k]))
                return ls_tally_blame(trial->tally,
                                      "element %" PRIu64 ": rank %u has %.9g, rank 0 %.9g", k, i,
                                      (double)rank->result[k], (double)first->result[k]);
            if (finite && !isfinite(rank->delivered[k]))
                return ls_tally_blame(trial->tally,
                                      "element %" PRIu64 " of rank %u: delivered %.9g of %.9g", k,
                                      i, (double)rank->delivered[k], (double)rank->x[k]);
            rank->residual[k] = rank->x[k] - rank->delivered[k];
        }
    }
    return true;
}

// Each rank has its own part of the result; nobody looks at what it has of the others.
static void gather_parts(struct trial *trial)
{
    const uint64_t *parts = trial->ranks[0].plan->call.parts;
    for (uint32_t owner = 0; owner < trial->world; owner++)
        for (uint32_t i = 0; i < trial->world; i++)
            if (i != owner)
                memcpy(trial->ranks[i].result + parts[owner],
                       trial->ranks[owner].result + parts[owner],
                       (parts[owner + 1] - parts[owner]) * sizeof(float));
}

static bool run_step(struct trial *trial, bool finite)
{
    bool good = true;
    for (uint32_t i = 0; i < trial->world; i++) {
        struct rank *rank = &trial->ranks[i];
        for (uint64_t k = 0; k < rank->plan->call.count; k++)
            rank->x[k] = rank->gradient[k] + rank->residual[k];
        memset(rank->scratch, MARK, rank->plan->scratch_bytes);
        memset(rank->result, MARK, rank->plan->call.count * sizeof(float));
        memset(rank->delivered, MARK, rank->plan->call.count * sizeof(float));
    }
    for (uint32_t i = 0; good && i < trial->ranks[0].plan->stage_count; i++)
        good = run_stage(trial, i);
    if (good && trial->cut != WHOLE)
        gather_parts(trial);
    return good && check_ranks(trial, finite);
}

static void fill(struct trial *trial, enum values values)
{
    for (uint32_t i = 0; i < trial->world; i++) {
        struct rank *rank = &trial->ranks[i];
        const bool zero = values == ZEROS || (values == EMPTY_SHARE && i == trial->world / 2);
        const uint64_t count = rank->plan->call.count;
        const uint64_t key = ls_random_key(trial->options->seed, trial->world * MOST_WORLD + i);
        for (uint64_t k = 0; k < count; k++) {
            const float value = (float)ls_random_normal(key, k) * (k % 7 ? 1.0f : 0.01f);
            rank->gradient[k] = zero ? 0 : values == TINY ? value * 0x1p-120f : value;
        }
        if (i == trial->world - 1 && count && values == NOT_A_NUMBER)
            rank->gradient[count / 2] = NAN;
        if (i == trial->world - 1 && count && values == INFINITE)
            rank->gradient[count / 2] = INFINITY;
    }
}

// Over all steps, what came out and what is owed at the end is what went in, but for the roundings
// of floats.
static bool check_total(struct trial *trial, const double *total)
{
    double missing = 0, all = 0;
    for (uint64_t k = 0; k < trial->ranks[0].plan->call.count; k++) {
        double given = 0, owed = 0;
        for (uint32_t i = 0; i < trial->world; i++) {
            given += STEPS * (double)trial->ranks[i].gradient[k];
            owed += (double)trial->ranks[i].residual[k];
        }
        missing += (given - owed - total[k]) * (given - owed - total[k]);
        all += given * given;
    }
    return sqrt(missing) <= 1e-4 * sqrt(all) ||
           ls_tally_blame(trial->tally,
                          "after %d steps, %.3g of the gradients' norm of %.3g is neither in the "
                          "sums nor owed",
                          STEPS, sqrt(missing), sqrt(all));
}

static bool run_steps(struct trial *trial)
{
    const uint64_t count = trial->ranks[0].plan->call.count;
    double *total = calloc(count + 1, sizeof(*total));
    bool good = total != NULL;
    for (int step = 0; good && step < STEPS; step++) {
        good = run_step(trial, true);
        for (uint64_t k = 0; good && k < count; k++)
            total[k] += (double)trial->ranks[0].result[k];
    }
    good = good && check_total(trial, total);
    free(total);
    return good;
}

static void check_special(struct trial *trial, enum values values)
{
    const struct rank *first = &trial->ranks[0];
    bool finite = true, zero = true;
    if (!run_step(trial, values != NOT_A_NUMBER && values != INFINITE))
        return;
    for (uint64_t k = 0; k < first->plan->call.count; k++) {
        finite = finite && isfinite(first->result[k]);
        zero = zero && first->result[k] == 0;
    }
    if ((values == NOT_A_NUMBER || values == INFINITE) && finite)
        ls_tally_blame(trial->tally, "the sum is finite, and what was added is not");
    if (values == ZEROS && !zero)
        ls_tally_blame(trial->tally, "the sum of zeros is not zero");
}

static void filter_case(struct trial *trial, const struct model *model, enum values values)
{
    if (!ls_tally_begin(trial->tally, "ranks=%u %s, %s%s", trial->world, model->name,
                        value_names[values], cut_names[trial->cut]))
        return;
    if (open_ranks(trial, model)) {
        fill(trial, values);
        if (!trial->ranks[0].plan->stage_count)
            ls_tally_refuse(trial->tally, "the filter takes none of it");
        else if (values == RANDOM || values == EMPTY_SHARE || values == TINY)
            (void)run_steps(trial);
        else
            check_special(trial, values);
    }
    close_ranks(trial);
    ls_tally_end(trial->tally);
}

enum ls_status ls_conformance_filter(const struct ls_filter_conformance_options *options,
                                     ls_conformance_report report, void *context,
                                     struct ls_conformance_counts *tallied)
{
    struct ls_tally tally;
    ls_tally_init(&tally, options->only, options->wanted, report, context);
    struct trial trial = {.options = options, .tally = &tally};
    const uint32_t cuts = options->filter->scatters ? LOPSIDED + 1 : WHOLE + 1;
    for (uint32_t cut = WHOLE; cut < cuts; cut++)
        for (trial.world = 1; trial.world <= MOST_WORLD; trial.world++)
            for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++)
                for (uint32_t values = RANDOM; values <= TINY; values++) {
                    trial.cut = (enum cut)cut;
                    filter_case(&trial, &models[i], (enum values)values);
                }
    if (tallied)
        *tallied = tally.counts;
    ls_tally_finish(&tally);
    return tally.counts.failed ? LS_FAILED : LS_OK;
}
