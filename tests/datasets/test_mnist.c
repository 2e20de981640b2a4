// SPDX-License-Identifier: Apache-2.0
// The real MNIST, where LOCKSTEP_TEST_DATA has it: what the reader gives has the published SHA-256 of the files.
#include "tests/datasets/real.h"
#include "tests/support/suite.h"

#define SUM_LETTERS 64

static char dir[400];

// The sum that the README beside the data gives for the inflated file `name`.
static void published_sum(const char *name, char out[SUM_LETTERS + 1])
{
    char path[512], line[512];
    snprintf(path, sizeof(path), "%s/../README.md", dir);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    memset(out, 0, SUM_LETTERS + 1);
    while (fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strspn(line, "0123456789abcdef") == SUM_LETTERS &&
            !strcmp(line + SUM_LETTERS + 2, name))
            memcpy(out, line, SUM_LETTERS);
    }
    fclose(file);
    ck_assert_uint_eq(strlen(out), SUM_LETTERS);
}

static size_t put_number(uint8_t *header, size_t at, uint32_t number)
{
    for (int i = 0; i < 4; i++)
        header[at + (size_t)i] = (uint8_t)(number >> (24 - 8 * i));
    return at + 4;
}

// The file made again from what was read, through sha256sum.
static void expect_sum(const char *name, const uint8_t *header, size_t header_bytes,
                       const void *data, size_t bytes)
{
    char wanted[SUM_LETTERS + 1], command[256], line[256] = "";
    char temporary[] = "/tmp/lockstep-test-XXXXXX";
    published_sum(name, wanted);
    const int made = mkstemp(temporary);
    ck_assert_int_ge(made, 0);
    FILE *file = fdopen(made, "wb");
    ck_assert_uint_eq(fwrite(header, 1, header_bytes, file), header_bytes);
    ck_assert_uint_eq(fwrite(data, 1, bytes, file), bytes);
    ck_assert_int_eq(fclose(file), 0);
    snprintf(command, sizeof(command), "sha256sum '%s'", temporary);
    FILE *sum = popen(command, "r");
    ck_assert_ptr_nonnull(fgets(line, sizeof(line), sum));
    ck_assert_int_eq(pclose(sum), 0);
    unlink(temporary);
    line[SUM_LETTERS] = '\0';
    ck_assert_str_eq(line, wanted);
}

START_TEST(both_splits_have_the_published_sums)
{
    const enum ls_split split = (enum ls_split)_i;
    char text[500];
    snprintf(text, sizeof(text), "mnist:dir=%s", dir);
    struct ls_dataset *dataset = open_split(text, split);
    uint8_t header[16];
    size_t at = put_number(header, 0, 0x803);
    at = put_number(header, at, (uint32_t)dataset->count);
    at = put_number(header, at, 28);
    at = put_number(header, at, 28);
    expect_sum(images_of[split], header, at, dataset->examples, dataset->count * 784);
    at = put_number(header, 0, 0x801);
    at = put_number(header, at, (uint32_t)dataset->count);
    expect_sum(labels_of[split], header, at, dataset->labels, dataset->count);
    ck_assert_str_eq(dataset->class_names[3], "3");
    ls_dataset_close(dataset);
}
END_TEST

int main(void)
{
    const char *data = getenv("LOCKSTEP_TEST_DATA");
    snprintf(dir, sizeof(dir), "%s/mnist", data ? data : "");
    if (!have_files(dir)) {
        printf("SKIP: the real MNIST (LOCKSTEP_TEST_DATA says where the data is)\n");
        return SKIPPED;
    }
    TCase *tests = tcase_create("mnist");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, both_splits_have_the_published_sums, 0, 2);
    Suite *suite = suite_create("datasets/mnist");
    suite_add_tcase(suite, tests);
    return test_suite_run(suite);
}
