// SPDX-License-Identifier: Apache-2.0
// How the flat buffer is cut into buckets.
#include "core/replica/buckets.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>

#define MOST 64
#define CAP 1000
#define FROZEN_BYTES 4096

// A plan whose parameters have these sizes in bytes (ends with 0), each padded up to a multiple of 64; a
// frozen one is behind them.
static struct ls_parameter_plan plan_of(const uint64_t *sizes)
{
    static struct ls_parameter_place places[MOST + 1];
    struct ls_parameter_plan plan = {.places = places};
    for (; sizes[plan.place_count]; plan.place_count++) {
        struct ls_parameter_place *place = &places[plan.place_count];
        place->offset = plan.flat_bytes;
        place->bytes = sizes[plan.place_count];
        plan.flat_bytes += (place->bytes + LS_ALIGNMENT - 1) / LS_ALIGNMENT * LS_ALIGNMENT;
    }
    plan.reduced_count = plan.place_count++;
    plan.reduced_bytes = plan.flat_bytes;
    places[plan.reduced_count] =
        (struct ls_parameter_place){.offset = plan.flat_bytes, .bytes = FROZEN_BYTES};
    plan.flat_bytes += FROZEN_BYTES;
    return plan;
}

// Whatever the sizes: buckets follow each other without a hole and every parameter lies in exactly one;
// so do the ranges that are reduced, behind the statistics of the step in the first.
static struct ls_buckets cut(const struct ls_parameter_plan *plan, uint64_t first, uint64_t others)
{
    struct ls_buckets buckets;
    ck_assert_int_eq(ls_buckets_create(plan, first, others, &buckets), LS_OK);
    ck_assert_uint_ge(buckets.count, 1);
    uint64_t end = 0, reduced = 0;
    uint32_t place = 0;
    for (uint32_t i = 0; i < buckets.count; i++) {
        const struct ls_bucket *bucket = &buckets.list[i];
        ck_assert_uint_eq(bucket->offset, end);
        ck_assert_uint_eq(bucket->first_place, place);
        ck_assert_uint_eq(bucket->bytes % sizeof(float), 0);
        uint64_t from, count;
        ls_buckets_reduced(&buckets, i, &from, &count);
        ck_assert_uint_eq(from, reduced);
        ck_assert_uint_ge(count, bucket->bytes / sizeof(float));
        reduced += count;
        end += bucket->bytes;
        place += bucket->place_count;
        if (bucket->place_count) {
            const struct ls_parameter_place *last = &plan->places[place - 1];
            const uint64_t held = last->offset + last->bytes - bucket->offset;
            ck_assert_uint_ge(bucket->bytes, held);
            ck_assert(bucket->place_count == 1 || held <= (i ? others : first));
        }
    }
    ck_assert_uint_eq(end, plan->reduced_bytes);
    ck_assert_uint_eq(reduced, LS_STEP_STATS + plan->reduced_bytes / sizeof(float));
    ck_assert_uint_eq(place, plan->reduced_count);
    return buckets;
}

static void expect_counts(const uint64_t *sizes, uint64_t first, uint64_t others,
                          const uint32_t *counts)
{
    const struct ls_parameter_plan plan = plan_of(sizes);
    struct ls_buckets buckets = cut(&plan, first, others);
    uint32_t i = 0;
    for (; counts[i]; i++) {
        ck_assert_uint_lt(i, buckets.count);
        ck_assert_uint_eq(buckets.list[i].place_count, counts[i]);
    }
    ck_assert_uint_eq(buckets.count, i);
    ls_buckets_finish(&buckets);
    ck_assert_ptr_null(buckets.list);
}

#define LIST(type, ...) ((const type[]){__VA_ARGS__, 0})

TEST(small_parameters_share_one_bucket)
{
    expect_counts(LIST(uint64_t, 64, 128, 64), CAP, CAP, LIST(uint32_t, 3));
}

TEST(a_bucket_ends_before_it_would_exceed_its_cap)
{
    expect_counts(LIST(uint64_t, 64, 128, 256), 191, 384, LIST(uint32_t, 1, 2));
    expect_counts(LIST(uint64_t, 64, 128, 256), 192, 384, LIST(uint32_t, 2, 1));
    expect_counts(LIST(uint64_t, 64, 64, 64, 64), 64, 128, LIST(uint32_t, 1, 2, 1));
}

TEST(padding_counts_between_parameters_but_not_behind_the_last)
{
    // 4 bytes, padded to 64, then 4: the bucket holds 68 bytes up to its last number.
    expect_counts(LIST(uint64_t, 4, 4), 68, 68, LIST(uint32_t, 2));
    expect_counts(LIST(uint64_t, 4, 4), 67, 67, LIST(uint32_t, 1, 1));
}

TEST(a_parameter_larger_than_the_cap_has_a_bucket_of_its_own)
{
    expect_counts(LIST(uint64_t, 64, 1 << 20, 64, 64), CAP, CAP, LIST(uint32_t, 1, 1, 2));
    expect_counts(LIST(uint64_t, 1 << 20), 1, 1, LIST(uint32_t, 1));
    expect_counts(LIST(uint64_t, 1 << 20, 1 << 20), 1, 1, LIST(uint32_t, 1, 1));
}

TEST(a_model_without_parameters_has_one_bucket_for_the_sums)
{
    const struct ls_parameter_plan plan = plan_of((const uint64_t[]){0});
    struct ls_buckets buckets = cut(&plan, CAP, CAP);
    ck_assert_uint_eq(buckets.count, 1);
    ck_assert_uint_eq(buckets.list[0].bytes, 0);
    ck_assert_uint_eq(buckets.list[0].place_count, 0);
    ls_buckets_finish(&buckets);
}

LOOP_TEST(any_sizes_are_covered, 0, 200)
{
    srand((unsigned)_i);
    uint64_t sizes[MOST] = {0};
    const int count = rand() % (MOST - 1);
    for (int i = 0; i < count; i++)
        sizes[i] = 4 * (uint64_t)(1 + rand() % (rand() % 4 ? 50 : 2000));
    const struct ls_parameter_plan plan = plan_of(sizes);
    struct ls_buckets buckets = cut(&plan, (uint64_t)(rand() % 3000), (uint64_t)(rand() % 3000));
    ls_buckets_finish(&buckets);
}
