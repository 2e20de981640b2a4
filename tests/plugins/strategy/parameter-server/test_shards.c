// SPDX-License-Identifier: Apache-2.0
// The shard plan: every float of every variable on exactly one server, whatever the sizes.
#include "plugins/strategy/parameter-server/shards.h"
#include "tests/support/plugin.h"
#include "tests/support/suite.h"

#include <check.h>

#define MOST 64

static struct test_host host;

static int32_t plan(const struct range *variables, uint32_t count, const struct range *buckets,
                    uint32_t bucket_count, uint64_t least_bytes, uint32_t servers,
                    struct shard_plan *out)
{
    return shard_plan_create(&host.host, variables, count, buckets, bucket_count, least_bytes,
                             servers, out);
}

static void release(struct shard_plan *out)
{
    host.host.release(&host.host, out->shards);
}

TEST(parts_are_those_of_the_min_size_partitioner)
{
    ck_assert_uint_eq(shard_parts(1000, 4000, 8), 1); // exactly one
    ck_assert_uint_eq(shard_parts(1000, 4001, 8), 1); // less than one
    ck_assert_uint_eq(shard_parts(1999, 4000, 8), 1);
    ck_assert_uint_eq(shard_parts(2000, 4000, 8), 2);
    ck_assert_uint_eq(shard_parts(100000, 4000, 8), 8); // at most one a server
    ck_assert_uint_eq(shard_parts(100000, 1, 8), 8);
    ck_assert_uint_eq(shard_parts(100000, 0, 8), 8);
    ck_assert_uint_eq(shard_parts(100000, UINT64_MAX, 8), 1);
    ck_assert_uint_eq(shard_parts(10, 1, 8), 1); // one grain
    ck_assert_uint_eq(shard_parts(33, 1, 8), 3);
    ck_assert_uint_eq(shard_parts(1, 1, 1), 1);
}

TEST(parts_follow_each_other_and_differ_by_a_grain)
{
    static const uint64_t counts[] = {1, 15, 16, 17, 31, 97, 160, 161, 1009, 65536, 100003};
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
        for (uint32_t servers = 1; servers <= 9; servers++) {
            const struct range whole = {7, counts[i]};
            const uint32_t parts = shard_parts(counts[i], 1, servers);
            uint64_t at = whole.first, largest = 0, smallest = UINT64_MAX;
            for (uint32_t k = 0; k < parts; k++) {
                const struct range part = shard_part(whole, parts, k);
                ck_assert_uint_eq(part.first, at);
                ck_assert_uint_gt(part.count, 0);
                ck_assert(k == 0 || (part.first - whole.first) % SHARD_GRAIN == 0);
                at += part.count;
                largest = part.count > largest ? part.count : largest;
                smallest = part.count < smallest ? part.count : smallest;
            }
            ck_assert_uint_eq(at, whole.first + whole.count);
            ck_assert_uint_lt(largest - smallest, 2 * SHARD_GRAIN);
        }
}

// Variables with padding between them, in three buckets; all numbers of servers, sizes of shards from one float to more
// than there is.
TEST(every_float_lies_on_one_server)
{
    static const struct range variables[] = {{0, 10},    {16, 1},     {32, 5000},  {5040, 0},
                                             {5040, 97}, {5152, 32},  {5184, 640}, {5824, 13},
                                             {5840, 13}, {5856, 4096}};
    static const struct range buckets[] = {{0, 32}, {32, 5152}, {5184, 5000}};
    static const uint64_t least[] = {1, 64, 1000, 4096, 20000, UINT64_MAX};
    const uint32_t count = sizeof(variables) / sizeof(*variables);
    for (size_t i = 0; i < sizeof(least) / sizeof(*least); i++)
        for (uint32_t servers = 1; servers <= 9; servers++) {
            struct shard_plan out;
            uint64_t loads[9] = {0}, all = 0;
            ck_assert_int_eq(plan(variables, count, buckets, 3, least[i], servers, &out), LS_OK);
            uint32_t variable = 0;
            uint64_t at = 0;
            for (uint32_t k = 0; k < out.count; k++) {
                const struct shard *shard = &out.shards[k];
                const struct range *bucket = &buckets[shard->bucket];
                while (at == variables[variable].first + variables[variable].count ||
                       !variables[variable].count || at < variables[variable].first) {
                    if (at < variables[variable].first) {
                        at = variables[variable].first;
                        break;
                    }
                    variable++;
                }
                ck_assert_uint_eq(shard->range.first, at);
                at += shard->range.count;
                all += shard->range.count;
                ck_assert_uint_ge(shard->range.first, bucket->first);
                ck_assert_uint_le(at, bucket->first + bucket->count);
                ck_assert_uint_lt(shard->server, servers);
                ck_assert_uint_le(shard->range.count, out.largest);
                loads[shard->server] += shard->range.count;
            }
            ck_assert_uint_eq(all, 10 + 1 + 5000 + 97 + 32 + 640 + 13 + 13 + 4096);
            for (uint32_t k = 0; k < servers && out.count >= servers; k++)
                ck_assert_uint_gt(loads[k], 0);
            // Greedy: nobody has more than the mean and the largest shard.
            for (uint32_t k = 0; k < servers; k++)
                ck_assert_uint_le(loads[k], all / servers + out.largest);
            release(&out);
        }
}

TEST(small_variables_stay_whole_and_are_spread_by_size)
{
    static const struct range variables[] = {{0, 16}, {16, 48}, {64, 32}, {96, 64}};
    static const struct range buckets[] = {{0, 160}};
    struct shard_plan out;
    ck_assert_int_eq(plan(variables, 4, buckets, 1, 4096, 2, &out), LS_OK);
    ck_assert_uint_eq(out.count, 4);
    // 64 to server 0, 48 to 1, 32 to 1, 16 to 0.
    ck_assert_uint_eq(out.shards[3].server, 0);
    ck_assert_uint_eq(out.shards[1].server, 1);
    ck_assert_uint_eq(out.shards[2].server, 1);
    ck_assert_uint_eq(out.shards[0].server, 0);
    release(&out);
}

TEST(a_variable_that_lies_in_no_bucket_whole_is_refused)
{
    static const struct range across[] = {{0, 20}}, outside[] = {{40, 8}}, before[] = {{0, 8}};
    static const struct range buckets[] = {{8, 8}, {16, 16}};
    struct shard_plan out = {.count = 99};
    ck_assert_int_eq(plan(across, 1, buckets, 2, 1, 2, &out), LS_BAD_INPUT);
    ck_assert_int_eq(plan(outside, 1, buckets, 2, 1, 2, &out), LS_BAD_INPUT);
    ck_assert_int_eq(plan(before, 1, buckets, 2, 1, 2, &out), LS_BAD_INPUT);
    ck_assert_uint_eq(out.count, 99);
}

TEST(the_same_call_gives_the_same_plan)
{
    struct range variables[MOST];
    uint64_t at = 0;
    for (uint32_t i = 0; i < MOST; i++) {
        variables[i] = (struct range){at, 1 + i * 37 % 500};
        at += variables[i].count;
    }
    const struct range bucket = {0, at};
    struct shard_plan one, two;
    ck_assert_int_eq(plan(variables, MOST, &bucket, 1, 256, 5, &one), LS_OK);
    ck_assert_int_eq(plan(variables, MOST, &bucket, 1, 256, 5, &two), LS_OK);
    ck_assert_uint_eq(one.count, two.count);
    for (uint32_t i = 0; i < one.count; i++) {
        ck_assert_uint_eq(one.shards[i].range.first, two.shards[i].range.first);
        ck_assert_uint_eq(one.shards[i].server, two.shards[i].server);
    }
    release(&one);
    release(&two);
}

static void *no_memory(const struct ls_host *own, uint64_t bytes, uint64_t alignment)
{
    (void)own, (void)bytes, (void)alignment;
    return NULL;
}

TEST(without_memory_there_is_no_plan)
{
    static const struct range variable = {0, 8};
    struct shard_plan out = {.count = 99};
    host.host.allocate = no_memory;
    ck_assert_int_eq(plan(&variable, 1, &variable, 1, 1, 1, &out), LS_OUT_OF_MEMORY);
    ck_assert_uint_eq(out.count, 99);
}

static void set_up(void)
{
    test_host_init(&host, NULL);
}

TEST_FIXTURE(set_up, NULL);
