// SPDX-License-Identifier: Apache-2.0
// The real MNIST, where LOCKSTEP_LARGE_DATA has it: what the reader gives has the SHA-256 of the
// inflated files.
#include "tests/datasets/real.h"
#include "tests/support/suite.h"

#define SUM_LETTERS 64

static char dir[400];

static const char *const sums_of_images[2] = {
    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
};
static const char *const sums_of_labels[2] = {
    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
};

static size_t put_number(uint8_t *header, size_t at, uint32_t number)
{
    for (int i = 0; i < 4; i++)
        header[at + (size_t)i] = (uint8_t)(number >> (24 - 8 * i));
    return at + 4;
}

// The file made again from what was read, through sha256sum.
static void expect_sum(const char *expected, const uint8_t *header, size_t header_bytes,
                       const void *data, size_t bytes)
{
    char command[256], line[256] = "";
    char temporary[] = "/tmp/lockstep-test-XXXXXX";
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
    ck_assert_str_eq(line, expected);
}

LOOP_TEST(both_splits_have_the_published_sums, 0, 2)
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
    expect_sum(sums_of_images[split], header, at, dataset->fields[0].values, dataset->count * 784);
    at = put_number(header, 0, 0x801);
    at = put_number(header, at, (uint32_t)dataset->count);
    expect_sum(sums_of_labels[split], header, at, dataset->fields[1].values, dataset->count);
    ck_assert_str_eq(dataset->fields[1].class_names[3], "3");
    ls_dataset_close(dataset);
}

int main(void)
{
    const char *data = getenv("LOCKSTEP_LARGE_DATA");
    snprintf(dir, sizeof(dir), "%s/mnist", data ? data : "");
    if (!have_files(dir)) {
        printf("SKIP: the real MNIST (CONTRIBUTING.md says where it is looked for)\n");
        return SKIPPED;
    }
    return test_suite_run("datasets/mnist");
}
