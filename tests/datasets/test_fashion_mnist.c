// SPDX-License-Identifier: Apache-2.0
// The real Fashion-MNIST of Debian's package dataset-fashion-mnist, and the first of it that is installed with Lockstep.
#include "tests/datasets/real.h"
#include "tests/support/suite.h"

#define DIR_OF_PACKAGE "/usr/share/datasets/fashion-mnist"

START_TEST(both_splits_are_the_files_to_the_byte)
{
    const enum ls_split split = (enum ls_split)_i;
    struct ls_dataset *dataset = open_split("fashion-mnist", split);
    expect_content(DIR_OF_PACKAGE, images_of[split], 16, dataset->fields[0].values,
                   dataset->count * 784);
    expect_content(DIR_OF_PACKAGE, labels_of[split], 8, dataset->fields[1].values, dataset->count);
    ls_dataset_close(dataset);
}
END_TEST

START_TEST(every_class_is_as_frequent_as_its_authors_say)
{
    const enum ls_split split = (enum ls_split)_i;
    struct ls_dataset *dataset = open_split("fashion-mnist:dir=" DIR_OF_PACKAGE, split);
    uint64_t counts[10] = {0};
    for (uint64_t i = 0; i < dataset->count; i++)
        counts[((const uint8_t *)dataset->fields[1].values)[i]]++;
    for (int i = 0; i < 10; i++)
        ck_assert_uint_eq(counts[i], dataset->count / 10);
    ls_dataset_close(dataset);
}
END_TEST

START_TEST(limit_gives_the_first_examples)
{
    struct ls_dataset *dataset, *whole = open_split("fashion-mnist", LS_TEST);
    ck_assert_int_eq(ls_dataset_open("fashion-mnist:limit=1003", LS_TEST, &dataset), LS_OK);
    ck_assert_uint_eq(dataset->count, 1003);
    ck_assert(!memcmp(dataset->fields[0].values, whole->fields[0].values, 1003 * 784));
    ck_assert(!memcmp(dataset->fields[1].values, whole->fields[1].values, 1003));
    ls_dataset_close(dataset);
    ls_dataset_close(whole);
}
END_TEST

LOOP_TEST(the_small_one_is_found_without_a_folder, 0, 2)
{
    static const uint64_t counts[] = {[LS_TRAIN] = 4000, [LS_TEST] = 1000};
    struct ls_dataset *small = open_split("fashion-mnist-small", (enum ls_split)_i);
    ck_assert_uint_eq(small->count, counts[_i]);
    ck_assert_str_eq(small->fields[1].class_names[9], "Ankle boot");
    ls_dataset_close(small);
}

START_TEST(the_small_one_is_the_first_of_the_whole)
{
    const enum ls_split split = (enum ls_split)_i;
    struct ls_dataset *small = open_split("fashion-mnist-small", split);
    struct ls_dataset *whole = open_split("fashion-mnist", split);
    ck_assert(!memcmp(small->fields[0].values, whole->fields[0].values, small->count * 784));
    ck_assert(!memcmp(small->fields[1].values, whole->fields[1].values, small->count));
    ls_dataset_close(small);
    ls_dataset_close(whole);
}
END_TEST

int main(void)
{
    const bool whole = have_files(DIR_OF_PACKAGE);
    if (whole) {
        tcase_add_loop_test(test_registered(), both_splits_are_the_files_to_the_byte, 0, 2);
        tcase_add_loop_test(test_registered(), every_class_is_as_frequent_as_its_authors_say, 0, 2);
        tcase_add_test(test_registered(), limit_gives_the_first_examples);
        tcase_add_loop_test(test_registered(), the_small_one_is_the_first_of_the_whole, 0, 2);
    } else {
        printf("SKIP: the real Fashion-MNIST; Debian's package dataset-fashion-mnist brings it\n");
    }
    const int code = test_suite_run("datasets/fashion-mnist");
    return code || whole ? code : SKIPPED;
}
