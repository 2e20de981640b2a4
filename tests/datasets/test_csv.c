// SPDX-License-Identifier: Apache-2.0
// csv: cells, quotes, headers and labels; whatever is missing or no number is refused by its line.
#include "tests/datasets/dataset_checks.h"
#include "tests/support/suite.h"

#include <math.h>
#include <stdlib.h>

static void put(const char *name, const char *text)
{
    write_file(name, text, strlen(text));
}

static struct ls_dataset *open_text(const char *content, const char *options)
{
    char text[256];
    put("t.csv", content);
    snprintf(text, sizeof(text), "csv:file=@/t.csv%s", options);
    return dataset_open(text, LS_TRAIN);
}

// Two examples (1, -2.5) and (3e2, 4), with classes 1 and 0, however they are written.
static const struct {
    const char *content, *options;
} same[] = {
    {"1,-2.5,1\n3e2,4,0\n", ""},
    {"1,-2.5,1\r\n3e2,4,0", ""},
    {"\xef\xbb\xbf"
     "a,b,y\n1,-2.5,1\n\n3e2,4,0\n\n",
     ""},
    {"\"a\",\"b\"\"s, or\nso\",y\n\"1\",\"-2.5\",1\n3e2,4,\"0\"\n", ",label=y,columns=a+2"},
    {"y;a;b\n1;1;-2.5\n0;3e2;4\n", ",label=1,separator=semicolon"},
    {"y\tid\ta\tb\n1\t77\t1\t-2.5\n0\t78\t3e2\t4\n", ",label=y,separator=tab,columns=a+b"},
    {"1,yes,-2.5\n300,no,4\n", ",label=-2"},
    {" 1 , -2.5 , 1 \n 300 , 4 , 0 \n", ",header=off"},
    {"1,2,3\n1,-2.5,1\n300,4,0\n", ",header=on"},
};

TABLE_TEST(tables_are_read, same)
{
    folder_make();
    struct ls_dataset *dataset = open_text(same[_i].content, same[_i].options);
    ck_assert_uint_eq(dataset->count, 2);
    ck_assert_int_eq(dataset->fields[0].dims[0], 2);
    ck_assert_uint_eq(dataset->fields[1].class_count, 2);
    ck_assert_float_eq(dataset_value(dataset, 0, 0, 0), 1);
    ck_assert_float_eq(dataset_value(dataset, 0, 0, 1), -2.5f);
    ck_assert_float_eq(dataset_value(dataset, 0, 1, 0), 300);
    ck_assert_float_eq(dataset_value(dataset, 0, 1, 1), 4);
    ck_assert_float_eq(dataset_value(dataset, 1, 0, 0), 1);
    ck_assert_float_eq(dataset_value(dataset, 1, 1, 0), 0);
    ls_dataset_close(dataset);
    folder_remove();
}

TEST(names_are_classes_in_their_order)
{
    static const char *const names[] = {"cat", "dog", "eel"};
    static const int labels[] = {1, 0, 2, 0};
    folder_make();
    struct ls_dataset *dataset = open_text("a,kind\n1,dog\n2,cat\n3,eel\n4,cat\n", "");
    ck_assert_uint_eq(dataset->fields[1].class_count, 3);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_str_eq(dataset->fields[1].class_names[i], names[i]);
    for (uint64_t i = 0; i < 4; i++)
        ck_assert_float_eq(dataset_value(dataset, 1, i, 0), (float)labels[i]);
    ls_dataset_close(dataset);
    folder_remove();
}

TEST(other_numbers_are_targets)
{
    folder_make();
    struct ls_dataset *dataset = open_text("1,0.5\n2,7\n", "");
    ck_assert_uint_eq(dataset->fields[1].class_count, 0);
    ck_assert_uint_eq(dataset->fields[1].dtype, LS_F32);
    ck_assert_float_eq(dataset_value(dataset, 1, 0, 0), 0.5f);
    ls_dataset_close(dataset);
    dataset = open_text("1,5\n2,7\n", ",targets=numbers");
    ck_assert_uint_eq(dataset->fields[1].class_count, 0);
    ck_assert_float_eq(dataset_value(dataset, 1, 1, 0), 7);
    ls_dataset_close(dataset);
    dataset = open_text("1,5\n2,7\n", ",label=none");
    ck_assert_uint_eq(dataset->field_count, 1);
    ck_assert_int_eq(dataset->fields[0].dims[0], 2);
    ls_dataset_close(dataset);
    folder_remove();
}

TEST(tests_have_the_classes_of_the_training_examples)
{
    folder_make();
    put("a.csv", "1,dog\n2,cat\n3,eel\n");
    put("b.csv", "5,eel\n6,dog\n");
    put("c.csv", "5,eel\n6,ox\n");
    struct ls_dataset *test = dataset_open("csv:train=@/a.csv,test=@/b.csv", LS_VALIDATION);
    ck_assert_uint_eq(test->count, 2);
    ck_assert_uint_eq(test->fields[1].class_count, 3);
    ck_assert_float_eq(dataset_value(test, 1, 0, 0), 2);
    ck_assert_float_eq(dataset_value(test, 1, 1, 0), 1);
    ls_dataset_close(test);
    dataset_refused("csv:train=@/a.csv,test=@/c.csv", LS_TEST, LS_BAD_INPUT, "c.csv", "'ox'");
    folder_remove();
}

static const struct {
    const char *content, *options, *one, *other;
    enum ls_status status;
} refused[] = {
    {"a,b,y\n1,,0\n", "", "line 2, column 2 (b): ''", "missing value", LS_BAD_INPUT},
    {"1,,0\n1,2,1\n", "", "line 1, column 2: ''", "missing value", LS_BAD_INPUT}, // no header
    {"1,2,0\n1,NA,1\n", "", "line 2, column 2: 'NA'", "missing value", LS_BAD_INPUT},
    {"1,2,0\n1,2,\n", "", "line 2, column 3: ''", "missing value", LS_BAD_INPUT},
    {"1,2,0\n\"1\",2x,0\n", "", "line 2, column 2: '2x'", "not a number", LS_BAD_INPUT},
    {"1,2,0\n1,1e99,0\n", "", "line 2, column 2: '1e99'", "float32", LS_BAD_INPUT},
    {"1,2,0\n1,inf,0\n", "", "'inf'", "not a number", LS_BAD_INPUT},
    {"1,2,0\n1,2\n", "", "line 2 has 2 columns", "the first has 3", LS_BAD_INPUT},
    {"1,2,0\n1,2,0,\n", "", "line 2 has 4 columns", "the first has 3", LS_BAD_INPUT},
    {"1,2,0\n\n1,\"2,0\n5,6,7\n", "", "line 3", "never closed", LS_BAD_INPUT},
    {"1,2,0\n1,\"2\"3,0\n", "", "line 2", "behind a closing quote", LS_BAD_INPUT},
    {"1,2,cat\n1,2,7\n", "", "line 2, column 3: '7'", "header=on", LS_BAD_INPUT},
    {"1,2,7\n1,2,cat\n", "", "line 2, column 3: 'cat'", "no number", LS_BAD_INPUT},
    {"1,2,0\n", ",label=kind", "line 1", "no examples", LS_BAD_INPUT},
    {"1,2,0\n1,2,0\n", ",label=4", "label=4", "no such column", LS_BAD_INPUT},
    {"a,b\n1,2\n", ",label=c", "label=c", "names are in the first line", LS_BAD_INPUT},
    {"a,Price\n1,2\n", ",label=price", "did you mean Price?", "1 to 2 or -1 to -2", LS_BAD_INPUT},
    {"a;price\n1;2\n", ",label=price", "only one column", "separator=semicolon", LS_BAD_INPUT},
    {"a,b\n1,2\n", ",columns=a+z", "columns=z", "no such column", LS_BAD_INPUT},
    {"1.5,2.5\n", ",targets=classes", "2.5", "whole numbers from 0", LS_BAD_INPUT},
    {"1,x\n", ",targets=numbers", "column 2 has names", "'x'", LS_BAD_INPUT},
    {"5\n6\n", "", "no column is left to train on; the file has only one column",
     "separator=", LS_BAD_INPUT},
    {"a,b,y\n", "", "t.csv", "no examples", LS_BAD_INPUT},
    {"", "", "t.csv", "no examples", LS_BAD_INPUT},
    {"1,2\n", ",train=x", "expected csv:file=FILE", "train=FILE", LS_USAGE},
    {"1,2\n", ",cache=@/c", "in memory once they are read", "cache=", LS_USAGE},
    {"1,2\n", ",random_flip=horizontal", "for images", "'x'", LS_USAGE},
};

TABLE_TEST(what_does_not_fit_is_refused_by_its_line, refused)
{
    char text[256];
    folder_make();
    put("t.csv", refused[_i].content);
    snprintf(text, sizeof(text), "csv:file=@/t.csv%s", refused[_i].options);
    if (strcmp(refused[_i].options, ",label=kind") == 0) // its only line would be the header
        dataset_refused(text, LS_TRAIN, LS_BAD_INPUT, "label=kind", "no such column");
    else
        dataset_refused(text, LS_TRAIN, refused[_i].status, refused[_i].one, refused[_i].other);
    folder_remove();
}

TEST(a_byte_of_0_and_a_missing_file_are_refused)
{
    folder_make();
    write_file("t.csv", "1,2\n3,\0 4\n", 10);
    dataset_refused("csv:file=@/t.csv", LS_TRAIN, LS_BAD_INPUT, "line 2", "is 0");
    write_file("t.csv",
               "\xff\xfe"
               "1\0,\0",
               6);
    dataset_refused("csv:file=@/t.csv", LS_TRAIN, LS_BAD_INPUT, "t.csv", "in UTF-16");
    dataset_refused("csv:file=@/u.csv", LS_TRAIN, LS_BAD_INPUT, "u.csv", "No such file");
    folder_remove();
}

// The same floats as strtod makes.
TEST(numbers_are_rounded_once)
{
    enum { NUMBERS = 2000 };
    static char numbers[NUMBERS][32];
    folder_make();
    FILE *file = fopen(in_folder("t.csv"), "w");
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < NUMBERS; i++) {
        const double value = ((double)rand() / RAND_MAX - 0.3) * pow(10, rand() % 12 - 6);
        snprintf(numbers[i], sizeof(numbers[i]), i % 9 ? "%.*f" : "%.*e", rand() % 17, value);
        fprintf(file, "%s,%d\n", numbers[i], i % 2);
    }
    fclose(file);
    struct ls_dataset *dataset = dataset_open("csv:file=@/t.csv", LS_TRAIN);
    for (uint64_t i = 0; i < NUMBERS; i++)
        ck_assert_msg(dataset_value(dataset, 0, i, 0) == (float)strtod(numbers[i], NULL), "%s",
                      numbers[i]);
    ls_dataset_close(dataset);
    folder_remove();
}

// More lines than are read at a time, packed.
TEST(long_tables_and_gzip)
{
    enum { LINES = 30000 };
    folder_make();
    FILE *file = fopen(in_folder("t.csv"), "w");
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < LINES; i++)
        fprintf(file, "%d,%d,%d\n", i, -i, i % 5);
    fclose(file);
    char command[256];
    snprintf(command, sizeof(command), "gzip -k '%s'", in_folder("t.csv"));
    ck_assert_int_eq(system(command), 0);
    for (int packed = 0; packed < 2; packed++) {
        struct ls_dataset *dataset =
            dataset_open(packed ? "csv:file=@/t.csv.gz" : "csv:file=@/t.csv", LS_TRAIN);
        ck_assert_uint_eq(dataset->count, LINES);
        for (uint64_t i = 0; i < LINES; i += 7) {
            ck_assert_float_eq(dataset_value(dataset, 0, i, 1), -(float)i);
            ck_assert_float_eq(dataset_value(dataset, 1, i, 0), (float)(i % 5));
        }
        ls_dataset_close(dataset);
    }
    folder_remove();
}

// 20 MB of two bytes in 20 KB.
TEST(what_explodes_is_refused)
{
    char command[256];
    folder_make();
    snprintf(command, sizeof(command), "yes 1,1,1 | head -c 20000000 | gzip -9 > '%s'",
             in_folder("t.csv.gz"));
    ck_assert_int_eq(system(command), 0);
    dataset_refused("csv:file=@/t.csv.gz", LS_TRAIN, LS_BAD_INPUT, "t.csv.gz", "unpack it first");
    folder_remove();
}
