// SPDX-License-Identifier: Apache-2.0
// Shares, sizes and orders.
#include "core/data/stream.h"
#include "tests/core/data/capture.h"
#include "tests/support/suite.h"

#include <math.h>

TEST(shares_are_contiguous_and_differ_by_at_most_one)
{
    for (uint32_t world = 1; world <= 9; world++) {
        for (uint64_t count = 0; count <= 40; count++) {
            uint64_t next = 0, before = UINT64_MAX;
            for (uint32_t rank = 0; rank < world; rank++) {
                uint64_t offset, size;
                ls_share(&(struct ls_shares){.world = world}, count, 1, rank, &offset, &size);
                ck_assert_uint_eq(offset, next);
                ck_assert_uint_ge(size, count / world);
                ck_assert_uint_le(size, count / world + 1);
                ck_assert_uint_le(size, before);
                before = size;
                next += size;
            }
            ck_assert_uint_eq(next, count);
        }
    }
}

TEST(shares_are_even_where_all_are_equal)
{
    const struct ls_share_group groups[2] = {{.ranks = 2, .weight = 1}, {.ranks = 1, .weight = 2}};
    struct ls_shares shares;
    for (shares = (struct ls_shares){.world = 1}; shares.world <= 9; shares.world++)
        for (uint64_t count = 0; count <= 40; count++) {
            uint64_t offset, first, last;
            ls_share(&shares, count, 1, 0, &offset, &first);
            ls_share(&shares, count, 1, shares.world - 1, &offset, &last);
            ck_assert_int_eq(ls_shares_are_even(&shares, count), first == last);
        }
    shares = (struct ls_shares){.world = 3, .groups = groups, .group_count = 2};
    ck_assert(!ls_shares_are_even(&shares, 12));
    shares = (struct ls_shares){.world = 2, .shards = 3};
    ck_assert(!ls_shares_are_even(&shares, 12));
}

TEST(with_fewer_examples_than_replicas_the_last_get_none)
{
    const uint64_t wanted[8] = {1, 1, 1, 1, 1, 1, 1, 0};
    for (uint32_t rank = 0; rank < 8; rank++) {
        uint64_t offset, size;
        ls_share(&(struct ls_shares){.world = 8}, 7, 1, rank, &offset, &size);
        ck_assert_uint_eq(size, wanted[rank]);
    }
}

TEST(steps_are_rounded_up)
{
    ck_assert_uint_eq(ls_stream_steps(0, 50), 0);
    ck_assert_uint_eq(ls_stream_steps(1, 50), 1);
    ck_assert_uint_eq(ls_stream_steps(50, 50), 1);
    ck_assert_uint_eq(ls_stream_steps(1003, 50), 21);
    ck_assert_uint_eq(ls_stream_steps(UINT64_MAX, 2), UINT64_C(1) << 63);
}

// Blocks are cut as the shares of so many ranks are, whoever has them.
TEST(a_share_is_its_blocks)
{
    for (uint32_t world = 1; world <= 4; world++)
        for (uint32_t blocks = 1; blocks <= 4; blocks++)
            for (uint64_t count = 0; count <= 23; count++)
                for (uint32_t rank = 0; rank < world; rank++) {
                    uint64_t offset, size, first, each, at, same, all = 0;
                    const struct ls_shares shares = {.world = world},
                                           parts = {.world = world * blocks};
                    ls_share(&shares, count, blocks, rank, &offset, &size);
                    for (uint32_t i = 0; i < blocks; i++) {
                        ls_share(&parts, count, 1, rank * blocks + i, &first, &each);
                        ck_assert_uint_eq(first, offset + all);
                        ls_share_block(&shares, count, blocks, rank, i, &at, &same);
                        ck_assert_uint_eq(at, first);
                        ck_assert_uint_eq(same, each);
                        all += each;
                    }
                    ck_assert_uint_eq(all, size);
                }
}

// What all ranks compute at the same time is what one device computes then.
TEST(blocks_that_are_cut_first_are_those_of_one_device)
{
    static const struct ls_share_group groups[] = {{2, 3}, {1, 1}, {1, 1000}};
    const struct ls_shares alone = {.world = 1};
    for (uint32_t world = 1; world <= 4; world++)
        for (uint32_t blocks = 1; blocks <= 5; blocks++)
            for (uint64_t count = 0; count <= 40; count++) {
                const struct ls_shares shares = {.world = world,
                                                 .group_count = world == 4 ? 3 : 0,
                                                 .groups = groups,
                                                 .blocks_first = true};
                uint64_t sums[4] = {0}, largest = 0, first, whole, offset, size;
                for (uint32_t i = 0; i < blocks; i++) {
                    ls_share_block(&alone, count, blocks, 0, i, &first, &whole);
                    for (uint32_t rank = 0; rank < world; rank++) {
                        ls_share_block(&shares, count, blocks, rank, i, &offset, &size);
                        ck_assert_uint_eq(offset, first);
                        sums[rank] += size;
                        first += size;
                        whole -= size;
                        largest = size > largest ? size : largest;
                    }
                    ck_assert_uint_eq(whole, 0);
                }
                for (uint32_t rank = 0; rank < world; rank++) {
                    ls_share(&shares, count, blocks, rank, &offset, &size);
                    ck_assert_uint_eq(size, sums[rank]);
                }
                if (world < 4) // with weights a smaller block may have a larger part
                    ck_assert_uint_eq(ls_largest_block(&shares, count, blocks), largest);
            }
}

#define GROUPS 4

static struct ls_shares weighted(const struct ls_share_group *groups, uint32_t count)
{
    struct ls_shares shares = {.group_count = count, .groups = groups};
    for (uint32_t i = 0; i < count; i++)
        shares.world += groups[i].ranks;
    return shares;
}

// The examples of all ranks of group `index`.
static uint64_t part_of(const struct ls_shares *shares, uint64_t count, uint32_t blocks,
                        uint32_t index)
{
    uint64_t offset, size, part = 0;
    uint32_t first = 0;
    for (uint32_t i = 0; i < index; i++)
        first += shares->groups[i].ranks;
    for (uint32_t i = 0; i < shares->groups[index].ranks; i++) {
        ls_share(shares, count, blocks, first + i, &offset, &size);
        part += size;
    }
    return part;
}

static const struct ls_share_group groupings[][GROUPS] = {
    {{1, 2}, {1, 1}},
    {{2, 3}, {1, 1}, {3, 1}},
    {{1, 1}, {1, 1000000}, {2, 7}},
    {{3, 1000000}, {1, 999999}, {1, 1}, {2, 500}},
    {{1, 6}, {1, 6}, {1, 2}},
    {{4, 5}},
};

// Each example once, in rank order; the part of a group is less than one example from its quota; its
// ranks share the part as they would share a batch of their own.
TABLE_TEST(weighted_shares_are_contiguous_and_near_their_quotas, groupings)
{
    const struct ls_share_group *groups = groupings[_i];
    uint32_t group_count = 0;
    uint64_t weights = 0;
    for (; group_count < GROUPS && groups[group_count].ranks; group_count++)
        weights += groups[group_count].weight;
    const struct ls_shares shares = weighted(groups, group_count);
    const uint64_t counts[] = {0, 1, 2, 3, 5, 7, 31, 64, 97, 1009, 65537, UINT64_C(1) << 40};
    for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++)
        for (uint32_t blocks = 1; blocks <= 3; blocks++) {
            const uint64_t count = counts[c];
            uint64_t next = 0, largest = 0;
            for (uint32_t i = 0, rank = 0; i < group_count; i++) {
                const uint64_t begin = next, part = part_of(&shares, count, blocks, i);
                const double quota = (double)count * groups[i].weight / (double)weights;
                ck_assert_double_lt(fabs((double)part - quota), 1);
                for (uint32_t k = 0; k < groups[i].ranks; k++, rank++) {
                    const struct ls_shares alone = {.world = groups[i].ranks};
                    uint64_t offset, size, expected_offset, expected;
                    ls_share(&shares, count, blocks, rank, &offset, &size);
                    ls_share(&alone, part, blocks, k, &expected_offset, &expected);
                    ck_assert_uint_eq(offset, next);
                    ck_assert_uint_eq(offset, begin + expected_offset);
                    ck_assert_uint_eq(size, expected);
                    largest = size > largest ? size : largest;
                    next += size;
                }
            }
            ck_assert_uint_eq(next, count);
            ck_assert_uint_eq(ls_largest_share(&shares, count, blocks), largest);
        }
}

static void expect_parts(const struct ls_share_group *groups, uint64_t count,
                         const uint64_t *expected, uint32_t group_count)
{
    const struct ls_shares shares = weighted(groups, group_count);
    for (uint32_t i = 0; i < group_count; i++)
        ck_assert_msg(part_of(&shares, count, 1, i) == expected[i], "%u: %llu", i,
                      (unsigned long long)part_of(&shares, count, 1, i));
}

// By hand: quotas rounded down, then the largest remainders, the first of equal ones.
TEST(the_largest_remainders_get_what_is_left)
{
    const struct ls_share_group thrice[] = {{1, 3}, {1, 1}}, three[] = {{1, 6}, {1, 6}, {1, 2}},
                                small[] = {{1, 1000}, {1, 1}};
    expect_parts(thrice, 64, (const uint64_t[]){48, 16}, 2);
    expect_parts(thrice, 10, (const uint64_t[]){8, 2}, 2); // 7.5 and 2.5
    expect_parts(thrice, 7, (const uint64_t[]){5, 2}, 2); // 5.25 and 1.75
    expect_parts(thrice, 1, (const uint64_t[]){1, 0}, 2);
    expect_parts(three, 11, (const uint64_t[]){5, 5, 1}, 3); // 4.71, 4.71 and 1.57
    expect_parts(three, 10, (const uint64_t[]){4, 4, 2}, 3); // 4.29, 4.29 and 1.43: more of fewer
    expect_parts(small, 64, (const uint64_t[]){64, 0}, 2);
}

// Replicas with equal weights take what they take without any.
TEST(equal_weights_are_no_weights)
{
    const struct ls_share_group equal[] = {{1, 7}, {1, 7}, {1, 7}};
    const struct ls_shares shares = weighted(equal, 3), plain = {.world = 3};
    for (uint64_t count = 0; count <= 40; count++)
        for (uint32_t rank = 0; rank < 3; rank++) {
            uint64_t offset, size, expected_offset, expected;
            ls_share(&shares, count, 1, rank, &offset, &size);
            ls_share(&plain, count, 1, rank, &expected_offset, &expected);
            ck_assert_uint_eq(offset, expected_offset);
            ck_assert_uint_eq(size, expected);
        }
}

static void expect_permutation(const uint32_t *order, uint64_t count)
{
    uint8_t *seen = calloc(count + 1, 1);
    for (uint64_t i = 0; i < count; i++) {
        ck_assert_uint_lt(order[i], count);
        ck_assert_uint_eq(seen[order[i]]++, 0);
    }
    free(seen);
}

TEST(every_order_is_a_permutation_keyed_by_seed_and_epoch)
{
    const uint64_t counts[] = {1, 2, 7, 64, 1003};
    uint32_t first[1003], again[1003], other[1003];
    for (int kind = LS_SHUFFLE_ALL; kind <= LS_SHUFFLE_BUFFER; kind++)
        for (int i = 0; i < 5; i++) {
            struct ls_stream_options options = {.shuffle = (enum ls_shuffle)kind, .seed = 3};
            options.shuffle_buffer = 100;
            ck_assert_int_eq(ls_stream_order(&options, counts[i], 1, first), LS_OK);
            expect_permutation(first, counts[i]);
            ck_assert_int_eq(ls_stream_order(&options, counts[i], 1, again), LS_OK);
            ck_assert_mem_eq(first, again, counts[i] * 4);
            ck_assert_int_eq(ls_stream_order(&options, counts[i], 2, other), LS_OK);
            expect_permutation(other, counts[i]);
            ck_assert(counts[i] < 64 || memcmp(first, other, counts[i] * 4));
            options.seed = 4;
            ck_assert_int_eq(ls_stream_order(&options, counts[i], 1, other), LS_OK);
            ck_assert(counts[i] < 64 || memcmp(first, other, counts[i] * 4));
        }
}

TEST(without_shuffle_the_order_is_that_of_the_file)
{
    uint32_t order[50];
    ck_assert_int_eq(ls_stream_order(&(struct ls_stream_options){.seed = 1}, 50, 9, order), LS_OK);
    for (uint32_t i = 0; i < 50; i++)
        ck_assert_uint_eq(order[i], i);
}

// An element cannot leave the buffer before it came in, and some wait long.
TEST(a_shuffle_buffer_lets_nothing_out_before_it_came_in)
{
    const uint64_t buffers[] = {1, 2, 10, 1000, 5000};
    uint32_t order[1000];
    for (int b = 0; b < 5; b++) {
        const struct ls_stream_options options = {.shuffle = LS_SHUFFLE_BUFFER,
                                                  .shuffle_buffer = buffers[b]};
        ck_assert_int_eq(ls_stream_order(&options, 1000, 1, order), LS_OK);
        expect_permutation(order, 1000);
        uint64_t moved = 0;
        for (uint64_t i = 0; i < 1000; i++) {
            ck_assert_uint_lt(order[i], i + buffers[b]);
            moved += order[i] != i;
        }
        ck_assert(buffers[b] == 1 ? moved == 0 : moved > 300);
    }
}

// The first out of a buffer of 4 is each of its four elements equally often; 4 deviations of the binomial count.
TEST(a_shuffle_buffer_draws_evenly)
{
    uint32_t order[16], counts[4] = {0};
    for (uint64_t seed = 0; seed < 4000; seed++) {
        const struct ls_stream_options options = {
            .shuffle = LS_SHUFFLE_BUFFER, .shuffle_buffer = 4, .seed = seed};
        ck_assert_int_eq(ls_stream_order(&options, 16, 1, order), LS_OK);
        counts[order[0]]++;
    }
    for (int i = 0; i < 4; i++)
        ck_assert_msg(counts[i] > 890 && counts[i] < 1110, "%u of 4000", counts[i]);
}

TEST(a_shuffle_buffer_of_nothing_is_refused)
{
    uint32_t order[4];
    capture_reset();
    ck_assert_int_eq(
        ls_stream_order(&(struct ls_stream_options){.shuffle = LS_SHUFFLE_BUFFER}, 4, 1, order),
        LS_USAGE);
    expect_error("shuffle buffer", "at least 1");
}
