// SPDX-License-Identifier: Apache-2.0
// text: windows of ids, the id after each place, and the places, without a copy for each window.
#include "tests/datasets/dataset_checks.h"
#include "tests/support/suite.h"

static const char *text_of(const char *options)
{
    static char text[512];
    snprintf(text, sizeof(text), "text:file=%s/t.txt,%s", folder, options);
    return text;
}

static struct ls_dataset *open_split(const char *options, enum ls_split split)
{
    struct ls_dataset *dataset = dataset_opened(text_of(options), split);
    ck_assert_uint_eq(dataset->field_count, 3);
    return dataset;
}

TEST(windows_and_what_follows)
{
    // Sorted: \n, space, a, b, \xff.
    const char content[] = "ab\n a\xff"
                           "bb";
    static const int32_t ids[] = {2, 3, 0, 1, 2, 4, 3, 3};
    static const char *const vocabulary[] = {"\n", " ", "a", "b", "\\xff"};
    write_file("t.txt", content, 8);
    struct ls_dataset *dataset = open_split("length=3,stride=2", LS_TRAIN);
    ck_assert_uint_eq(dataset->count, 3); // at 0, 2 and 4
    const struct ls_field *x = &dataset->fields[0], *places = &dataset->fields[1],
                          *y = &dataset->fields[2];
    ck_assert_int_eq(y->role, LS_FIELD_TARGET);
    ck_assert_uint_eq(y->class_count, 5);
    ck_assert(y->text && places->optional && !x->optional);
    for (int i = 0; i < 5; i++)
        ck_assert_str_eq(y->class_names[i], vocabulary[i]);
    for (uint32_t window = 0; window < 3; window++) {
        int32_t found[3];
        ls_gather(x, LS_I32, &window, 1, found);
        ck_assert_mem_eq(found, ids + 2 * window, sizeof(found));
        ls_gather(y, LS_I32, &window, 1, found);
        ck_assert_mem_eq(found, ids + 2 * window + 1, sizeof(found));
        ls_gather(places, LS_I32, &window, 1, found);
        ck_assert(found[0] == 0 && found[1] == 1 && found[2] == 2);
    }
    ls_dataset_close(dataset);
    dataset = open_split("length=3", LS_TEST); // apart, and one split
    ck_assert_uint_eq(dataset->count, 2);
    ls_dataset_close(dataset);
    dataset = open_split("length=7", LS_TRAIN); // the longest
    ck_assert_uint_eq(dataset->count, 1);
    ls_dataset_close(dataset);
}

TEST(the_last_windows_validate)
{
    char content[101];
    for (int i = 0; i < 101; i++)
        content[i] = (char)('0' + i % 10);
    write_file("t.txt", content, sizeof(content));
    struct ls_dataset *dataset = open_split("length=10,validation_split=0.25", LS_VALIDATION);
    ck_assert_uint_eq(dataset->count, 3); // of 10: Keras keeps floor(10 * 0.75) to train on
    ck_assert_uint_eq(dataset->fields[2].class_count, 10);
    int32_t found[10];
    ls_gather(&dataset->fields[1], LS_I32, &(uint32_t){2}, 1, found);
    ck_assert_int_eq(found[9], 9);
    ls_dataset_close(dataset);
}

TEST(what_does_not_fit_is_refused)
{
    char missing[600];
    write_file("t.txt", "abc", 3);
    dataset_unopened(text_of("length=3"), LS_TRAIN, LS_BAD_INPUT, "t.txt: 3 bytes",
                     "too few for a window of 3");
    dataset_unopened(text_of("length=0"), LS_TRAIN, LS_USAGE, "length must be from 1", "not 0");
    dataset_unopened(text_of("length=2,stride=0"), LS_TRAIN, LS_USAGE, "stride must be from 1",
                     "not 0");
    dataset_unopened(text_of("length=9999999999999999999"), LS_TRAIN, LS_USAGE, "length", "");
    dataset_unopened(text_of("stride=2"), LS_TRAIN, LS_USAGE, "length is missing",
                     "text:file=FILE,length=N");
    dataset_unopened("text:length=2", LS_TRAIN, LS_USAGE, "file is missing",
                     "text:file=FILE,length=N");
    snprintf(missing, sizeof(missing), "text:file=%s/none.txt,length=2", folder);
    dataset_unopened(missing, LS_TRAIN, LS_BAD_INPUT, "none.txt", "No such file");
    write_file("t.txt", "", 0);
    dataset_unopened(text_of("length=1"), LS_TRAIN, LS_BAD_INPUT, "t.txt: 0 bytes", "too few");
    // A hole of more than 1 GiB: refused before memory is asked for.
    ck_assert_int_eq(truncate(in_folder("t.txt"), (1L << 30) + 1), 0);
    dataset_unopened(text_of("length=1"), LS_TRAIN, LS_BAD_INPUT, "t.txt: 1073741825 bytes",
                     "(1 GiB)");
}

START_TEST(a_real_text_is_read)
{
    char text[700];
    struct ls_dataset *dataset = NULL;
    snprintf(text, sizeof(text), "text:file=%s/tinyshakespeare/input.txt,length=64,stride=32",
             getenv("LOCKSTEP_LARGE_DATA"));
    ck_assert_int_eq(ls_dataset_open(text, LS_TRAIN, &dataset), LS_OK);
    ck_assert_uint_eq(dataset->count, (1115394 - 65) / 32 + 1);
    ck_assert_uint_eq(dataset->fields[2].class_count, 65);
    ls_dataset_close(dataset);
}
END_TEST

TEST_FIXTURE(folder_make, folder_remove);

int main(void)
{
    const char *data = getenv("LOCKSTEP_LARGE_DATA");
    char path[600];
    snprintf(path, sizeof(path), "%s/tinyshakespeare/input.txt", data ? data : "");
    if (data && access(path, R_OK) == 0)
        tcase_add_test(test_registered(), a_real_text_is_read);
    else
        printf("SKIP: %s is not there\n", path);
    return test_suite_run("datasets/text");
}
