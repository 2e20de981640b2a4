// SPDX-License-Identifier: Apache-2.0
// Finding a dataset by its text, and `limit`; with kinds of our own.
#include "core/data/dataset.h"
#include "tests/core/data/capture.h"
#include "tests/support/suite.h"

static unsigned closed;

static const uint8_t numbers[100];

static void close_dataset(struct ls_dataset *dataset)
{
    closed++;
    free(dataset);
}

static enum ls_status open_dataset(const struct ls_spec *spec, enum ls_split split,
                                   struct ls_dataset **out)
{
    (void)spec;
    *out = calloc(1, sizeof(**out));
    (*out)->count = split == LS_TRAIN ? 100 : 10;
    (*out)->close = close_dataset;
    (*out)->field_count = 1;
    (*out)->fields[0] = (struct ls_field){.values = numbers, .stride = 1};
    return LS_OK;
}

static enum ls_status describe_dataset(const struct ls_spec *spec, enum ls_split split,
                                       struct ls_dataset_info *out)
{
    (void)spec;
    *out = (struct ls_dataset_info){.count = split == LS_TRAIN ? 100 : 10,
                                    .field_count = 1,
                                    .fields = {{.ndims = 1, .dims = {7}}}};
    return LS_OK;
}

static enum ls_status describe_broken(const struct ls_spec *spec, enum ls_split split,
                                      struct ls_dataset_info *out)
{
    (void)spec, (void)split, (void)out;
    return LS_BAD_INPUT;
}

static enum ls_status open_broken(const struct ls_spec *spec, enum ls_split split,
                                  struct ls_dataset **out)
{
    (void)spec, (void)split, (void)out;
    return LS_BAD_INPUT;
}

static const struct ls_plugin_option options[] = {{"dir", "text", NULL, "where"}, {0}};
static const struct ls_dataset_kind apples = {
    .name = "apples", .options = options, .open = open_dataset, .describe = describe_dataset};
static const struct ls_dataset_kind pears = {
    .name = "pears", .open = open_broken, .describe = describe_broken};
static const struct ls_dataset_kind plums = {
    .name = "plums", .one_split = true, .open = open_dataset, .describe = describe_dataset};
const struct ls_dataset_kind *const ls_dataset_kinds[] = {&apples, &pears, &plums, NULL};

static void expect_count(const char *text, enum ls_split split, uint64_t count)
{
    struct ls_dataset *dataset;
    capture_reset();
    ck_assert_msg(ls_dataset_open(text, split, &dataset) == LS_OK, "%s", captured);
    ck_assert_uint_eq(dataset->count, count);
    ls_dataset_close(dataset);
    struct ls_dataset_info info; // says the same
    ck_assert_msg(ls_dataset_describe(text, split, &info) == LS_OK, "%s", captured);
    ck_assert_uint_eq(info.count, count);
    ck_assert_int_eq(info.fields[0].dims[0], 7);
}

static void expect_usage(const char *text, const char *one, const char *other)
{
    struct ls_dataset *dataset = (void *)&closed; // is not touched
    capture_reset();
    ck_assert_int_eq(ls_dataset_open(text, LS_TRAIN, &dataset), LS_USAGE);
    ck_assert_ptr_eq(dataset, &closed);
    expect_error(one, other);
    struct ls_dataset_info info = {.count = 12345};
    ck_assert_int_eq(ls_dataset_describe(text, LS_TRAIN, &info), LS_USAGE);
    ck_assert_uint_eq(info.count, 12345);
    expect_error(one, other);
}

TEST(limit_takes_the_first_of_each_split)
{
    expect_count("apples", LS_TRAIN, 100);
    expect_count("apples:dir=x,limit=1", LS_TRAIN, 1);
    expect_count("apples:limit=100", LS_TRAIN, 100);
    expect_count("apples:limit=7", LS_TEST, 7);
}

TEST(a_smaller_test_set_is_taken_whole)
{
    expect_count("apples:limit=50", LS_TEST, 10);
}

TEST(more_than_the_training_set_has_is_refused_and_the_count_named)
{
    closed = 0;
    expect_usage("apples:limit=101", "limit=101", "100");
    ck_assert_uint_eq(closed, 1);
}

TEST(a_limit_that_is_no_count_is_refused)
{
    expect_usage("apples:limit=0", "limit", "at least 1");
    expect_usage("apples:limit=-3", "limit", "-3");
    expect_usage("apples:limit=ten", "limit", "ten");
    expect_usage("apples:limit=99999999999999999999", "limit", "99999999999999999999");
}

TEST(examples_are_skipped_taken_and_repeated)
{
    expect_count("apples:skip=30", LS_TRAIN, 70);
    expect_count("apples:skip=3", LS_TEST, 7);
    expect_count("apples:skip=30,take=20", LS_TRAIN, 20);
    expect_count("apples:skip=3,take=20", LS_TEST, 7); // a smaller test set is taken whole
    expect_count("apples:take=20,repeat=3", LS_TRAIN, 60);
    expect_count("apples:take=5,repeat=3", LS_TEST, 5); // once is enough
    expect_count("apples:validation_split=0.25,repeat=2,limit=40", LS_TRAIN, 60);
    expect_count("apples:validation_split=0.25,repeat=2,limit=40", LS_VALIDATION, 10);
    expect_count("apples:cache=memory", LS_TRAIN, 100); // is in memory as it is
    struct ls_dataset *dataset;
    capture_reset();
    ck_assert_int_eq(ls_dataset_open("apples:skip=30,take=20,repeat=3", LS_TRAIN, &dataset), LS_OK);
    ck_assert_uint_eq(dataset->repeat, 3);
    ck_assert_ptr_eq(dataset->fields[0].values, numbers + 30);
    ls_dataset_close(dataset);
}

TEST(what_leaves_nothing_or_too_much_is_refused)
{
    expect_usage("apples:skip=100", "skip=100", "none of the 100 training examples");
    expect_usage("apples:skip=80,take=21", "take=21", "only 20");
    expect_usage("apples:limit=3,take=3", "limit and take", "the same");
    expect_usage("apples:skip=0", "skip must be at least 1", "0");
    expect_usage("apples:repeat=none", "repeat", "none");
    expect_usage("apples:repeat=100000000", "repeat=100000000", "--epochs");
    expect_usage("apples:cache=file", "cache=file", "in memory once they are read");
    expect_usage("apples:random_flip=sideways", "random_flip", "horizontal");
    expect_usage("apples:random_crop=4", "for images", "random_crop");
}

TEST(an_unknown_dataset_is_refused_with_the_nearest_name_and_the_list)
{
    expect_usage("aples", "did you mean apples", "apples, pears");
    expect_usage("bananas", "unknown dataset bananas", "apples, pears");
    expect_usage("", "--dataset", "");
}

TEST(an_unknown_option_is_refused)
{
    expect_usage("apples:dri=x", "dri", "dir");
    expect_usage("apples:limits=3", "limits", "limit");
    expect_usage("pears:dir=x", "dir", "pears");
}

TEST(what_the_reader_answers_is_passed_on)
{
    struct ls_dataset *dataset;
    ck_assert_int_eq(ls_dataset_open("pears:limit=3", LS_TRAIN, &dataset), LS_BAD_INPUT);
    ls_dataset_close(NULL);
    struct ls_dataset_info info;
    ck_assert_int_eq(ls_dataset_describe("pears", LS_TRAIN, &info), LS_BAD_INPUT);
}

// The readers give 100 training examples, and 10 others; example i is the number i.
static void expect_part(const char *text, enum ls_split split, uint64_t first, uint64_t count)
{
    struct ls_dataset *dataset = NULL;
    struct ls_dataset_info info;
    ck_assert_msg(ls_dataset_describe(text, split, &info) == LS_OK, "%s", captured);
    ck_assert_uint_eq(info.count, count);
    if (count == 0)
        return;
    ck_assert_msg(ls_dataset_open(text, split, &dataset) == LS_OK, "%s", captured);
    ck_assert_uint_eq(dataset->count, count);
    ck_assert_ptr_eq(dataset->fields[0].values, numbers + first);
    ls_dataset_close(dataset);
}

TEST(the_last_part_is_validated_on)
{
    expect_part("apples", LS_VALIDATION, 0, 10); // the test split
    expect_part("apples:validation_split=0.25", LS_TRAIN, 0, 75);
    expect_part("apples:validation_split=0.25", LS_VALIDATION, 75, 25);
    expect_part("apples:validation_split=0.25", LS_TEST, 0, 10);
    expect_part("apples:validation_split=0.25,limit=9", LS_TRAIN, 0, 6); // of 6.75
    expect_part("apples:validation_split=0.25,limit=9", LS_VALIDATION, 6, 3);
    expect_part("apples:validation_split=0.25,limit=9", LS_TEST, 0, 9);
    expect_part("apples:validation_split=0", LS_TRAIN, 0, 100); // nothing set aside
    expect_part("apples:validation_split=0", LS_VALIDATION, 0, 10);
    expect_part("plums:validation_split=0", LS_VALIDATION, 0, 0);
    expect_part("plums", LS_TRAIN, 0, 100);
    expect_part("plums", LS_TEST, 0, 100);
    expect_part("plums", LS_VALIDATION, 0, 0);
    expect_part("plums:validation_split=0.1", LS_TRAIN, 0, 90);
    expect_part("plums:validation_split=0.1", LS_TEST, 90, 10);
    expect_part("plums:validation_split=0.1", LS_VALIDATION, 90, 10);
}

TEST(a_part_that_leaves_nothing_is_refused)
{
    expect_usage("apples:validation_split=-0.5", "validation_split", "between 0 and 1");
    expect_usage("apples:validation_split=1.5", "validation_split", "between 0 and 1");
    expect_usage("apples:validation_split=nan", "validation_split", "");
    expect_usage("apples:validation_split=a", "validation_split", "");
    expect_usage("apples:validation_split=0.999", "validation_split",
                 "of 100 examples leaves none to train on");
    expect_usage("apples:validation_split=1e-30", "validation_split",
                 "of 100 examples leaves none to validate on");
}

static enum ls_status load_number(const struct ls_dataset *dataset, uint64_t epoch, uint64_t first,
                                  uint64_t count, void *const *fields)
{
    (void)epoch, (void)count;
    const uint8_t *number = dataset->storage;
    *(uint8_t *)fields[0] = number[first];
    return LS_OK;
}

static uint64_t contents_of(const struct ls_dataset *dataset)
{
    uint64_t contents = 0;
    ck_assert_int_eq(ls_dataset_contents(dataset, &contents), LS_OK);
    ck_assert_uint_ne(contents, 0);
    return contents;
}

// Every value counts, its order and what is made of it; not where it is, nor what lies between two.
TEST(contents_are_all_that_is_trained_on)
{
    static const char *const pets[] = {"cat", "dog"}, *const others[] = {"dog", "cat"};
    uint8_t values[10000] = {0}, spread[30000] = {0};
    struct ls_dataset dataset = {
        .count = 10000,
        .field_count = 1,
        .fields = {
            {.dtype = LS_U8, .stride = 1, .divisor = 1, .class_count = 2, .class_names = pets}}};
    struct ls_field *field = &dataset.fields[0];
    values[0] = 1;
    field->values = values;
    const uint64_t own = contents_of(&dataset);
    for (int i = 0; i < 10000; i++)
        memset(spread + 3 * i, i, 3), spread[3 * i] = values[i];
    field->values = spread;
    field->stride = 3;
    ck_assert_uint_eq(contents_of(&dataset), own);
    field->values = values;
    field->stride = 1;
    values[7777] = 1; // the last of many
    ck_assert_uint_ne(contents_of(&dataset), own);
    values[7777] = values[0] = 0, values[1] = 1; // in another order
    ck_assert_uint_ne(contents_of(&dataset), own);
    values[1] = 0, values[0] = 1;
    field->class_names = others;
    ck_assert_uint_ne(contents_of(&dataset), own);
    field->class_names = pets;
    field->divisor = 255;
    ck_assert_uint_ne(contents_of(&dataset), own);
    field->divisor = 1;
    field->role = LS_FIELD_WEIGHT;
    ck_assert_uint_ne(contents_of(&dataset), own);
    field->role = LS_FIELD_INPUT;
    dataset.augmentation.rotation = 0.1;
    ck_assert_uint_ne(contents_of(&dataset), own);
    dataset.augmentation.rotation = 0;
    dataset.repeat = 2, dataset.count = 20000;
    ck_assert_uint_ne(contents_of(&dataset), own);
    dataset.repeat = 0, dataset.count = 10000;
    ck_assert_uint_eq(contents_of(&dataset), own);
}

// Of 10,000 that are made, every second or third is looked at; of those in order none.
TEST(contents_of_what_is_made_are_those_of_4096_examples)
{
    uint8_t values[10000] = {0};
    struct ls_dataset dataset = {.count = 10000,
                                 .field_count = 1,
                                 .fields = {{.dtype = LS_U8, .stride = 1, .divisor = 1}},
                                 .load = load_number,
                                 .storage = values};
    const uint64_t own = contents_of(&dataset);
    unsigned seen = 0;
    for (int i = 0; i < 100; i++) {
        values[i] = 1;
        seen += contents_of(&dataset) != own;
        values[i] = 0;
    }
    ck_assert_uint_eq(seen, 41);
    values[0] = 1;
    ck_assert_uint_ne(contents_of(&dataset), own);
    dataset.in_order = true;
    const uint64_t ordered = contents_of(&dataset);
    values[0] = 0;
    ck_assert_uint_eq(contents_of(&dataset), ordered);
}
