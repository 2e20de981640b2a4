// SPDX-License-Identifier: Apache-2.0
// What the filters make of values, against the plain definition of their formats.
#include "core/base/random.h"
#include "core/loader/loader.h"
#include "tests/plugins/filter/ranks.h"
#include "tests/support/suite.h"

#include <math.h>

#define COUNT 1000 // no multiple of the blocks
#define BLOCK 48
#define WORLD 3
#define PART 336 // of a rank: 7 of the 21 blocks

static struct ls_loader *loader;
static struct ranks ranks;
static float *x[WORLD], *result[WORLD], *delivered[WORLD];

static void open_parts(const char *text, const uint64_t *ends)
{
    const struct ls_opened_plugin *opened = NULL;
    const struct ls_filter_variable variable = {.struct_size = sizeof(variable),
                                                .ndims = 2,
                                                .dims = {COUNT / 10, 10},
                                                .count = COUNT,
                                                .plain = 1};
    ck_assert_int_eq(ls_loader_create(NULL, &loader), LS_OK);
    ck_assert_int_eq(ls_loader_open_text(loader, "--compress", LS_KIND_FILTER, text, &opened),
                     LS_OK);
    ranks_open(&ranks, opened->interface, opened->host, WORLD, &variable, 1, ends);
    for (uint32_t i = 0; i < WORLD; i++) {
        x[i] = ranks.of[i].x;
        result[i] = ranks.of[i].result;
        delivered[i] = ranks.of[i].delivered;
        for (uint64_t k = 0; k < COUNT; k++)
            x[i][k] = (float)(ls_random_normal(7 + i, k) * pow(10, (double)(k % 11) - 8));
    }
    x[0][5] = 0;
    x[1][6] = -x[1][7]; // equal magnitudes
}

static void open_filter(const char *text)
{
    open_parts(text, NULL);
}

static void close_filter(void)
{
    ranks_close(&ranks);
    ls_loader_destroy(loader);
}

// A format: its numbers that are not negative, in ascending order.
struct format {
    const char *text;
    double numbers[128];
    int count;
};

static struct format whole_numbers(void)
{
    struct format format = {.text = "int8:block=48", .count = 128};
    for (int i = 0; i < 128; i++)
        format.numbers[i] = i;
    return format;
}

static struct format floating(const char *text, int mantissa, int bias, int count)
{
    struct format format = {.text = text, .count = count};
    for (int i = 0; i < count; i++) {
        const int exponent = i >> mantissa, rest = i & ((1 << mantissa) - 1);
        format.numbers[i] = exponent ? ldexp(1 + ldexp(rest, -mantissa), exponent - bias)
                                     : ldexp(rest, 1 - bias - mantissa);
    }
    return format;
}

// The nearest number of the format; of two, that with the even place. `value` is what the filter
// sees: a quotient rounded to float.
static double nearest(const struct format *format, float value)
{
    const double magnitude = fabs((double)value);
    int best = 0;
    for (int i = 1; i < format->count; i++) {
        const double now = fabs(format->numbers[i] - magnitude),
                     before = fabs(format->numbers[best] - magnitude);
        if (now < before || (now == before && i % 2 == 0))
            best = i;
    }
    return copysign(format->numbers[best], (double)value);
}

static void round_part(const struct format *format, uint64_t first, uint64_t part_end,
                       const float *values, float *out)
{
    for (; first < part_end; first += BLOCK) {
        const uint64_t end = first + BLOCK < part_end ? first + BLOCK : part_end;
        float largest = 0;
        for (uint64_t k = first; k < end; k++)
            largest = fmaxf(largest, fabsf(values[k]));
        const float scale = largest / (float)format->numbers[format->count - 1];
        for (uint64_t k = first; k < end; k++)
            out[k] = (float)nearest(format, values[k] / scale) * scale;
    }
}

static void round_blocks(const struct format *format, const float *values, float *out)
{
    round_part(format, 0, COUNT, values, out);
}

static void check_format(const struct format *format)
{
    float rounded[WORLD][COUNT], sum[COUNT], twice[COUNT];
    open_filter(format->text);
    ranks_step(&ranks);
    for (uint32_t i = 0; i < WORLD; i++)
        round_blocks(format, x[i], rounded[i]);
    for (uint64_t k = 0; k < COUNT; k++) {
        sum[k] = rounded[0][k] + rounded[1][k];
        sum[k] += rounded[2][k];
    }
    round_blocks(format, sum, twice); // blocks begin with parts, so they are those of the sums
    for (uint64_t k = 0; k < COUNT; k++) // who makes the sum owes what its rounding leaves, too
        rounded[k / PART][k] += twice[k] - sum[k];
    for (uint64_t k = 0; k < COUNT; k++)
        for (uint32_t i = 0; i < WORLD; i++) {
            ck_assert_msg(delivered[i][k] == rounded[i][k], "element %d of rank %u: %.9g, not %.9g",
                          (int)k, i, (double)delivered[i][k], (double)rounded[i][k]);
            ck_assert_msg(result[i][k] == twice[k], "sum %d on rank %u: %.9g, not %.9g", (int)k, i,
                          (double)result[i][k], (double)twice[k]);
        }
    close_filter();
}

TEST(int8_rounds_to_the_nearest_whole_number)
{
    const struct format format = whole_numbers();
    check_format(&format);
}

// The sum of what was delivered, in the order of the ranks, without another rounding; parts of any
// length, one of them empty.
TEST(int8_sums_parts_that_are_given)
{
    const struct format format = whole_numbers();
    const uint64_t ends[WORLD] = {400, 400, COUNT};
    float rounded[WORLD][COUNT];
    open_parts(format.text, ends);
    ck_assert_uint_eq(ranks.plan->call.operation, LS_REDUCE_SCATTER);
    ck_assert_uint_eq(ranks.plan->stage_count, 3);
    ranks_step(&ranks);
    for (uint32_t i = 0; i < WORLD; i++)
        for (uint32_t part = 0; part < WORLD; part++)
            round_part(&format, part ? ends[part - 1] : 0, ends[part], x[i], rounded[i]);
    for (uint64_t k = 0; k < COUNT; k++) {
        float sum = rounded[0][k] + rounded[1][k];
        sum += rounded[2][k];
        for (uint32_t i = 0; i < WORLD; i++)
            ck_assert(delivered[i][k] == rounded[i][k]);
        ck_assert(result[k < 400 ? 0 : 2][k] == sum);
    }
    close_filter();
}

// Equal blocks of the largest part would be more bytes than to make all of the sum.
TEST(int8_makes_all_of_a_sum_for_parts_too_unequal)
{
    const uint64_t ends[WORLD] = {0, 0, COUNT};
    open_parts("int8:block=48", ends);
    ck_assert_uint_eq(ranks.plan->stage_count, 5);
    ranks_step(&ranks);
    for (uint64_t k = 0; k < COUNT; k++)
        ck_assert(result[0][k] == result[2][k]);
    close_filter();
}

TEST(fp8_rounds_to_the_nearest_number_of_either_format)
{
    const struct format e4m3 = floating("fp8:format=e4m3,block=48", 3, 7, 127),
                        e5m2 = floating("fp8:format=e5m2,block=48", 2, 15, 124);
    ck_assert(e4m3.numbers[126] == 448 && e5m2.numbers[123] == 57344);
    check_format(&e4m3);
    check_format(&e5m2);
}

// By counting, for each element, how many come before it.
TEST(topk_adds_the_largest_of_each_rank)
{
    float sum[COUNT] = {0};
    open_filter("topk:fraction=0.037");
    ranks_step(&ranks);
    for (uint32_t i = 0; i < WORLD; i++)
        for (uint64_t k = 0; k < COUNT; k++) {
            uint64_t before = 0;
            for (uint64_t other = 0; other < COUNT; other++)
                before += fabsf(x[i][other]) > fabsf(x[i][k]) ||
                          (fabsf(x[i][other]) == fabsf(x[i][k]) && other < k);
            ck_assert(delivered[i][k] == (before < 37 ? x[i][k] : 0));
            sum[k] += before < 37 ? x[i][k] : 0;
        }
    for (uint64_t k = 0; k < COUNT; k++)
        for (uint32_t i = 0; i < WORLD; i++)
            ck_assert(result[i][k] == sum[k]);
    close_filter();
}
